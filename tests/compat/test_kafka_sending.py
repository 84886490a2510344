"""The compiled way of a record and the general one: the same records, futures and errors."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkacore.compat.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafkacore.compat.kafka.admin import ACL, ACLPermissionType, OffsetSpec, ResourcePattern, ResourceType, UserScramCredentialUpsertion
from kafkacore.compat.kafka.future import Future, FutureRecordMetadata, HeldRecord, QueuedRecord
from kafkacore.compat.kafka.listener import AsyncConsumerRebalanceListener
from kafkacore.compat.kafka.structs import ConsumerRecord
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.inside import general_send_of, producer_in
from tests.kit.reached import Reached

TOPIC = "sending"


cluster = embedded({TOPIC: 3})


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as made:
        made.send(TOPIC, b"the topic is known from now on").get(60)
        yield made


@pytest.fixture(scope="module")
def reader(cluster: EmbeddedCluster) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as made:
        made.assign([TopicPartition(TOPIC, index) for index in range(3)])
        yield made


def stored_record(reader: KafkaConsumer, partition: int, offset: int) -> Any:
    reader.seek(TopicPartition(TOPIC, partition), offset)
    while True:
        for found in reader.poll(1_000).values():
            for record in found:
                assert type(record) is ConsumerRecord  # no other class without deserializers
                if (record.partition, record.offset) == (partition, offset):
                    return record


VALUES = st.sampled_from([None, None, b"", b"v", b"a longer one"])
reached = Reached("a partition that there is not", "a partition that is given", "the key chooses", "nothing chooses", "a tombstone")


@reached.by
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=VALUES,
    key=VALUES,
    partition=st.sampled_from([None, None, None, 0, 2, -1, 3]),
    timestamp_ms=st.sampled_from([None, 0, 1_700_000_000_000]),
)
def test_both_ways_do_the_same(
    producer: KafkaProducer, reader: KafkaConsumer, value: bytes | None, key: bytes | None, partition: int | None, timestamp_ms: int | None
) -> None:
    def outcome(send: Any) -> Any:
        try:
            found = send(TOPIC, value, key, None, partition, timestamp_ms).get(60)
        except Exception as error:
            return type(error), str(error)
        record = stored_record(reader, found.partition, found.offset)
        chosen = found.partition if partition is not None or key is not None else None  # else the batch chooses
        stamped = found.timestamp if timestamp_ms is not None else None
        return chosen, stamped, tuple(found[-4:]), record.value, record.key, record.headers, record.timestamp == found.timestamp

    reached("a partition that there is not", partition in (-1, 3))
    reached("a partition that is given", partition in (0, 2))
    reached("the key chooses", partition is None and key is not None)
    reached("nothing chooses", partition is None and key is None)
    reached("a tombstone", value is None and partition not in (-1, 3))
    assert outcome(producer.send) == outcome(general_send_of(producer))


def test_the_compiled_way_gives_the_engines_own_future(producer: KafkaProducer) -> None:
    plain, held = producer.send(TOPIC, b"v"), producer.send(TOPIC, b"v", headers=[("a", b"b")])
    assert (type(plain), type(held)) == (QueuedRecord, HeldRecord)
    assert isinstance(plain, FutureRecordMetadata)
    assert isinstance(held, FutureRecordMetadata)
    assert not gc.is_tracked(plain)
    assert plain.get(60)._fields == held.get(60)._fields


def test_a_record_that_fails_later_says_why_to_everybody(
    producer: KafkaProducer, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("small", 1, configs={"max.message.bytes": 200})
    producer.send("small", b"x" * 1_000)
    producer.flush(20)  # nobody has looked at the future: the engine's flush would raise
    assert "1 record" in caplog.text
    assert "MESSAGE_TOO_LARGE" in caplog.text
    heard: list[Any] = []
    future = producer.send("small", b"x" * 1_000).add_callback(heard.append).add_errback(lambda error: heard.append(type(error)))
    producer.flush(20)
    with pytest.raises(errors.MessageSizeTooLargeError) as caught:
        future.get(60)
    assert heard == [errors.MessageSizeTooLargeError]
    assert (future.failed(), future.succeeded(), future.value, future.retriable()) == (True, False, None, False)
    assert future.exception == caught.value
    assert caught.value.__cause__.topic == "small"  # type: ignore[union-attr]


def test_a_producer_that_nobody_holds_is_collected(cluster: EmbeddedCluster) -> None:
    made = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    future = made.send(TOPIC, b"v")
    engine = weakref.ref(producer_in(made))
    del made
    gc.collect()
    assert engine() is None
    assert future.get(60).topic == TOPIC  # the Sender delivers what was queued


def test_what_only_kafka_python_has_is_refused(cluster: EmbeddedCluster) -> None:
    class Coroutines(AsyncConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            heard.append(revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    heard: list[Any] = []
    asyncio.run(Coroutines().on_partitions_lost({1}))
    assert heard == [{1}]
    servers, tp, one = {"bootstrap_servers": cluster.bootstrap_servers}, TopicPartition(TOPIC, 0), 1
    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    with KafkaAdminClient(**servers) as admin, KafkaConsumer(**servers) as consumer, KafkaProducer(**servers) as producer:
        calls: list[tuple[Any, ...]] = [
            (consumer.poll, 0, None, False), (consumer.metrics, True), (producer.metrics, True),
            (consumer.subscribe, ["t"], None, Coroutines()),
            (admin.delete_records, {tp: 0}, None, one), (admin.delete_groups, ["g"], one), (admin.describe_groups, ["g"], one),
            (admin.alter_group_offsets, "g", {}, one),
            (admin.reset_group_offsets, "g", {}, one), (admin.delete_group_offsets, "g", [tp], one),
            (admin.remove_group_members, "g", [], one),
            (admin.describe_producers, [tp], one), (admin.list_partition_offsets, {tp: OffsetSpec.EARLIEST_LOCAL}),
            (UserScramCredentialUpsertion, "u", "SCRAM-SHA-256", "p", None, b"salt"),
            (ResourcePattern, 2, "t"), (ResourcePattern, ResourceType.TOPIC, "t", 3), (ACL, "a", "b", 3, ACLPermissionType.ALLOW, pattern),
        ]  # fmt: skip
        for call, *args in calls:
            with pytest.raises(errors.IllegalArgumentError):
                call(*args)
        assert consumer.metrics() and producer.metrics()
    with KafkaConsumer(**servers, metrics_enabled=False) as silent:
        assert silent.metrics() is None


def test_a_commit_that_is_refused_says_so_to_callback_and_future(cluster: EmbeddedCluster) -> None:
    heard: list[Any] = []
    tp, settings = TopicPartition(TOPIC, 0), {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "busy"}
    with KafkaConsumer(TOPIC, **settings) as member, KafkaConsumer(**settings) as other:
        while not member.assignment():
            member.poll(20)
        other.assign([tp])
        future = other.commit_async({tp: OffsetAndMetadata(1, "", -1)}, lambda *said: heard.append(said))
        while not future.is_done:
            other.poll(20)
    ((offsets, error),) = heard
    assert (offsets, type(error), future.exception) == ({tp: OffsetAndMetadata(1, "", -1)}, errors.CommitFailedError, error)
    with pytest.raises(errors.CommitFailedError):
        future.get(1)
    with pytest.raises(errors.KafkaTimeoutError):
        Future().get(0)
    assert Future().success(5).get(1) == 5


@pytest.mark.parametrize(("end", "outcome"), [("success", 5), ("failure", errors.KafkaTimeoutError("late"))])
def test_an_outcome_is_told_to_all_who_ask_before_and_behind_it(end: str, outcome: Any, caplog: pytest.LogCaptureFixture) -> None:
    future, chained, heard = Future(), Future(), list[Any]()

    def hear(*args: Any, **kwargs: Any) -> None:
        heard.append((args, kwargs))

    assert (future.is_done, future.succeeded(), future.failed(), future.retriable()) == (False, False, False, False)
    future.add_both(lambda _: 1 / 0).chain(chained)
    future.add_callback(hear, "callback", first=1).add_errback(hear, "errback", first=2)
    assert getattr(future, end)(outcome) is future
    future.add_both(hear, "behind")
    name, number = ("callback", 1) if end == "success" else ("errback", 2)
    assert heard == [((name, outcome), {"first": number}), (("behind", outcome), {})]
    value, error = (5, None) if end == "success" else (None, outcome)
    for each in (future, chained):
        assert (each.is_done, each.value, each.exception) == (True, value, error)
        assert (each.succeeded(), each.failed(), each.retriable()) == (error is None, error is not None, error is not None)
    assert "a callback failed" in caplog.text
    assert (Future().failure(LookupError).exception.__class__, Future().failure(LookupError()).retriable()) == (LookupError, False)
