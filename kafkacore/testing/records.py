"""Records in and out of an `EmbeddedCluster`, in one call each: what tests do before and after the code they are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkacore.clock import SystemClock
from kafkacore.consumer import KafkaConsumer
from kafkacore.errors import KafkaTimeoutError, UsageError
from kafkacore.producer import KafkaProducer
from kafkacore.records import ConsumerRecord
from kafkacore.types import ProducerRecord, RecordMetadata, TopicPartition

TIMEOUT_S = 30
_LOOK_S = 0.05


def _record(topic: str, given: Any) -> ProducerRecord:
    """A record of what a test writes: a value, a (key, value) pair or a whole record."""
    if isinstance(given, ProducerRecord):
        if given.topic != topic:
            raise UsageError(f"the record is for topic {given.topic!r}, and {topic!r} is asked for")
        return given
    if isinstance(given, tuple):
        if len(given) != 2:
            raise UsageError(f"a record is a value, a (key, value) pair or a ProducerRecord, not a tuple of {len(given)}")
        return ProducerRecord(topic, key=given[0], value=given[1])
    return ProducerRecord(topic, value=given)


def produce(client: dict[str, Any], topic: str, records: Iterable[Any], settings: dict[str, Any]) -> list[RecordMetadata]:
    """See `EmbeddedCluster.produce`."""
    if isinstance(records, (str, bytes, bytearray, memoryview, ProducerRecord)):
        raise UsageError(f"records is a list of values, (key, value) pairs or ProducerRecords, not a single {type(records).__name__}")
    made = [_record(topic, each) for each in records]
    with KafkaProducer(**{**client, **settings}) as producer:
        sent = [
            producer.send(
                topic, each.value, key=each.key, headers=each.headers, partition=each.partition, timestamp_ms=each.timestamp_ms
            )
            for each in made
        ]
        return [future.result(TIMEOUT_S) for future in sent]


def records(client: dict[str, Any], topic: str, timeout: float, settings: dict[str, Any]) -> list[ConsumerRecord]:
    """See `EmbeddedCluster.records`."""
    clock = SystemClock()
    found: list[ConsumerRecord] = []
    with KafkaConsumer(**{"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **client, **settings}) as consumer:
        partitions = [TopicPartition(topic, each) for each in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        deadline_ms = clock.now_ms() + int(timeout * 1000)
        while behind := [each for each in partitions if consumer.position(each) < ends[each]]:
            remaining_ms = deadline_ms - clock.now_ms()
            if remaining_ms <= 0:
                places = ", ".join(f"{each.partition} at {consumer.position(each)} of {ends[each]}" for each in behind)
                raise KafkaTimeoutError(f"the end was not reached within {timeout:g} s: partition {places}", topic=topic)
            # A position also moves over what holds no records, as the marker of a transaction, and poll does not end for that.
            for tp, polled in consumer.poll(timeout=min(remaining_ms / 1000, _LOOK_S)).items():
                found += [each for each in polled if each.offset < ends[tp]]  # what was written meanwhile is not asked for
    return sorted(found, key=lambda each: (each.partition, each.offset))
