"""Members that are away: an application that does not poll, a process that is stopped, a program that ends without closing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.clock import SystemClock
from kafkacore.consumer import KafkaConsumer, RebalanceListener
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition

PARTITIONS = 2
RECORDS = 100
GUARD_S = 60
SESSION_MS = 1_500


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    config = {
        "group_consumer_heartbeat_interval_ms": 50,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_min_session_timeout_ms": SESSION_MS,
    }
    with EmbeddedCluster(brokers=1, config=config) as cluster:
        yield cluster


@pytest.fixture(params=["classic", "consumer"])
def group_protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def topic(shared: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    shared.create_topic(name, partitions=PARTITIONS)
    produce(shared, name)
    return name


def produce(shared: EmbeddedCluster, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=shared.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(RECORDS)], partitions=[i % PARTITIONS for i in range(RECORDS)])


@pytest.fixture
def member(shared: EmbeddedCluster, topic: str, group_protocol: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(listener: RebalanceListener | None = None, **settings: Any) -> KafkaConsumer:
        own = {"heartbeat_interval_ms": 50} if group_protocol == "classic" else {}
        given = {"bootstrap_servers": shared.bootstrap_servers, "group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
        consumer = KafkaConsumer(**{**given, "group_protocol": group_protocol, **own, **settings})
        made.append(consumer)
        consumer.subscribe([topic], listener=listener)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions):
        if partitions:
            self.calls.append("assigned")

    def on_partitions_revoked(self, partitions):
        self.calls.append("revoked")

    def on_partitions_lost(self, partitions):
        self.calls.append("lost")


def until(condition: Callable[[], object], *polled: KafkaConsumer) -> None:
    for _ in range(GUARD_S * 50):
        if condition():
            return
        for consumer in polled:
            consumer.poll(0.02)
        if not polled:
            threading.Event().wait(0.02)
    raise AssertionError("it never came")


def read(consumer: KafkaConsumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of so many records."""
    found: list[tuple[int, int]] = []
    for _ in range(GUARD_S * 10):
        found += [(r.partition, r.offset) for records in consumer.poll(0.1).values() for r in records]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records came")


# -- the application does not poll ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto", [True, False])
def test_a_member_that_does_not_poll_leaves_and_says_why_it_cannot_commit(member, topic: str, auto: bool) -> None:
    heard = Notes()
    slow = member(heard, max_poll_interval_ms=2_000, enable_auto_commit=auto, auto_commit_interval_ms=1, max_poll_records=10)
    read(slow, 1)
    until(lambda: slow._group.membership.breached)
    other = member()
    tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    until(lambda: len(other.assignment()) == PARTITIONS, other)
    assert heard.calls == ["assigned"], "the listener is called by poll alone"
    assert slow._group.managed
    refused = pytest.raises(errors.CommitFailed, match=r"poll\(\) was not called for max_poll_interval_ms \(2000 ms\)")
    with refused:
        slow.commit({tps[0]: 7})
    with refused:
        slow.commit_async({tps[0]: 7})
    with pytest.raises(errors.MaxPollExceeded, match=r"max_poll_interval_ms \(2000 ms\)"):
        slow.poll(0)
    with pytest.raises(errors.CommitFailed, match="max_poll_interval_ms"):
        slow.commit({tps[0]: 7})
    other.close()
    until(lambda: len(slow.assignment()) == PARTITIONS and heard.calls[-1] == "assigned" and len(heard.calls) > 1, slow)
    assert heard.calls == ["assigned", "lost", "assigned"]
    slow.commit({tps[0]: 9})
    assert slow.committed(tps[0]).offset == 9


class Jumping(SystemClock):
    """The machine's clocks, with jumps."""

    def __init__(self) -> None:
        self.by_ms = self.wall_by_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_by_ms


def test_a_wall_clock_that_jumps_changes_nothing(member, shared: EmbeddedCluster, topic: str) -> None:
    clock, heard = Jumping(), Notes()
    consumer = member(heard, clock=clock)
    read(consumer, RECORDS)
    before = consumer.consumer_group_metadata()
    for by_ms in (3_600_000, -3_600_000, 0):
        clock.wall_by_ms = by_ms
        beats = consumer._group.membership.heartbeats
        until(lambda beats=beats: consumer._group.membership.heartbeats > beats + 2)
        produce(shared, topic)
        read(consumer, RECORDS)
    assert consumer.consumer_group_metadata() == before
    assert heard.calls == ["assigned"]


def test_an_hour_passes_at_once_for_a_member_that_is_away(member, shared: EmbeddedCluster, topic: str) -> None:
    """A suspended machine whose monotonic clock counts that time: time-outs, back-offs and connections end all at once."""
    clock, heard = Jumping(), Notes()
    consumer = member(heard, clock=clock, enable_auto_commit=False)
    assert len(read(consumer, RECORDS)) == RECORDS
    consumer.commit()
    clock.by_ms = 3_600_000
    until(lambda: consumer._group.membership.breached)
    with pytest.raises(errors.CommitFailed, match="max_poll_interval_ms"):
        consumer.commit()
    with pytest.raises(errors.MaxPollExceeded):
        consumer.poll(0)
    produce(shared, topic)
    found = read(consumer, RECORDS)
    assert sorted(found) == [(i, offset) for i in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS, 2 * RECORDS // PARTITIONS)]
    assert heard.calls == ["assigned", "lost", "assigned"]
