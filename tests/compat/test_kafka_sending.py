"""The compiled way of a record and the general one: the same records, futures and errors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkacore.compat.kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.compat.kafka.future import FutureRecordMetadata, HeldRecord, QueuedRecord
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
