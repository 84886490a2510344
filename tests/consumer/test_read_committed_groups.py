"""Members of groups that read committed data only: positions, commits and lags around aborted records, markers and open transactions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit import groups
from tests.kit.clusters import embedded
from tests.kit.groups import Members
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("client_face")

FACED = (groups,)
FETCH = "consumer-fetch-manager-metrics"
_numbers = itertools.count()


cluster = embedded()


@pytest.fixture
def where(cluster: EmbeddedCluster) -> TopicPartition:
    name = f"t{next(_numbers)}"
    cluster.create_topic(name, partitions=1)
    return TopicPartition(name, 0)


@pytest.fixture
def member(group_protocol: str, cluster: EmbeddedCluster) -> Iterator[Callable[..., KafkaConsumer]]:
    settings = {"isolation_level": "read_committed", "enable_auto_commit": False, "fetch_max_wait_ms": 20, "group_protocol": group_protocol}
    with contextlib.ExitStack() as stack:
        yield lambda tp, **more: stack.enter_context(Members(cluster.bootstrap_servers, tp.topic, **settings))(**more)


class Writer:
    """A transactional producer of one partition."""

    def __init__(self, cluster: EmbeddedCluster, tp: TopicPartition) -> None:
        self.tp = tp
        self.producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"tx{next(_numbers)}", linger_ms=0)
        self.producer.init_transactions()

    def open(self, *values: str) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.send(self.tp.topic, value, partition=0)
        self.producer.flush(30)

    def write(self, *values: str, commit: bool) -> None:
        self.open(*values)
        self.end(commit)

    def end(self, commit: bool) -> None:
        """And waits for the marker: the answer to EndTxn comes before it."""
        with KafkaConsumer(bootstrap_servers=self.producer.config.bootstrap_servers) as other:
            [before] = other.end_offsets([self.tp]).values()
            (self.producer.commit_transaction if commit else self.producer.abort_transaction)()
            while other.end_offsets([self.tp])[self.tp] == before:
                pass


@pytest.fixture
def writer(cluster: EmbeddedCluster, where: TopicPartition) -> Iterator[Writer]:
    writer = Writer(cluster, where)
    yield writer
    writer.producer.close()


def texts_until(consumer: KafkaConsumer, done: Callable[[], bool]) -> list[str]:
    """Polls until it is so; all values that came."""
    got: list[str] = []

    def look() -> bool:
        got.extend((record.value or b"").decode() for records in consumer.poll(timeout=0.02).values() for record in records)
        return done()

    until(look, "what the reader comes to", every_s=0)
    return got


def at(consumer: KafkaConsumer, tp: TopicPartition, offset: int) -> Callable[[], bool]:
    return lambda: tp in consumer.assignment() and consumer.position(tp) == offset


@pytest.mark.aio_at_length
def test_a_member_reads_past_the_markers_at_the_end(where: TopicPartition, writer: Writer, member: Any) -> None:
    """Offsets: a b M | c d M(abort) | e M | f M(abort)."""
    writer.write("a", "b", commit=True)
    writer.write("c", "d", commit=False)
    writer.write("e", commit=True)
    writer.write("f", commit=False)
    consumer = member(where)
    assert texts_until(consumer, at(consumer, where, 10)) == ["a", "b", "e"]
    assert consumer.lag(where) == 0
    assert consumer.end_offsets([where]) == {where: 10}
    consumer.commit()
    assert consumer.committed(where) == OffsetAndMetadata(10, 0)
    consumer.close()
    heir = member(where)
    assert texts_until(heir, lambda: where in heir.assignment() and heir.lag(where) == 0) == [], "nothing is left"
    assert heir.position(where) == 10


def test_what_follows_an_open_transaction_waits(cluster: EmbeddedCluster, where: TopicPartition, writer: Writer, member: Any) -> None:
    """Everything that says where the end is says the last stable offset, and all of it moves on with the end of the transaction."""
    other = Writer(cluster, where)
    writer.write("a", commit=True)
    other.open("open")
    writer.write("b", commit=True)
    consumer = member(where)
    at_the_end = at(consumer, where, 2)
    assert texts_until(consumer, lambda: at_the_end() and consumer.lag(where) == 0 and consumer.health().held_back != ()) == ["a"]
    assert consumer.position(where) == 2
    assert consumer.end_offsets([where]) == {where: 2}
    assert consumer.metrics()["records_lag_max"] == 0
    assert consumer.metrics(detail=True)[f"{FETCH}.partition-{where.topic}-0"]["records-lag"] == 0
    [held] = consumer.health().held_back
    assert held[:3] == (where, 2, 3)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as all_of_it:
        all_of_it.assign([where])
        all_of_it.seek(where, 2)
        texts_until(all_of_it, lambda: all_of_it.position(where) == 5)
        assert all_of_it.end_offsets([where]) == {where: 5}
        assert all_of_it.health().held_back == ()
    other.end(commit=True)
    assert texts_until(consumer, at(consumer, where, 6)) == ["open", "b"]
    assert consumer.health().held_back == ()
    other.producer.close()


@pytest.mark.aio_at_length
def test_a_seek_to_every_offset(cluster: EmbeddedCluster, where: TopicPartition, writer: Writer, member: Any) -> None:
    """Into committed and aborted transactions, interleaved ones too, onto markers: what comes is what lies behind, without what was
    aborted."""
    other = Writer(cluster, where)
    writer.write("0", "1", commit=True)
    writer.write("-", "-", "-", commit=False)
    other.open("-", "-")
    writer.open("9")
    other.producer.send(where.topic, "-", partition=0).result(30)
    writer.end(commit=True)
    other.end(commit=False)
    writer.write("13", commit=True)
    visible = {0: "0", 1: "1", 9: "9", 13: "13"}
    consumer = member(where)
    texts_until(consumer, at(consumer, where, 15))
    for offset in [*range(16), *reversed(range(16))]:
        consumer.seek(where, offset)
        assert texts_until(consumer, at(consumer, where, 15)) == [value for at_, value in visible.items() if at_ >= offset], offset
        assert consumer.lag(where) == 0
    other.producer.close()
