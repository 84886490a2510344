"""The values that cross the public face: named tuples without behaviour.

`ConsumerRecord` is a compiled class and lives in `kafkacore.records`.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafkacore.config_text import SettingValue


def topic_id_text(topic_id: bytes) -> str:
    """A topic id, 16 bytes, as Kafka's own tools print it.

    Source: org.apache.kafka.common.Uuid.
    """
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Node(NamedTuple):
    """A broker as clients see it. Bootstrap addresses get negative ids until the first metadata arrives."""

    id: int
    host: str
    port: int
    rack: str | None = None


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the NEXT record to read, the leader epoch of the last record read (None: unknown), and a note."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class ConsumerGroupMetadata(NamedTuple):
    """A member of a consumer group as transactions name it (KIP-447).

    `generation_id` is the member epoch under KIP-848, and -1 with an empty `member_id` outside of a group.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class SubscriptionPattern(NamedTuple):
    """A regular expression in RE2's syntax that the broker matches with topic names (KIP-848), for `KafkaConsumer.subscribe`."""

    pattern: str


class OffsetAndTimestamp(NamedTuple):
    """The answer to a search by time: the first record at or after it (`timestamp_ms` in epoch milliseconds)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record went.

    `offset` is -1 when the broker was not asked for it (acks=0); `timestamp_ms` is the broker's where the topic stamps on append;
    sizes are in bytes and -1 for a null key or value.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


class ProducerRecord(NamedTuple):
    """A record to send. `partition` None leaves the choice to the partitioner, `timestamp_ms` None means now; datetime64 is one too."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | datetime.datetime | Any | None = None


class NewTopic(NamedTuple):
    """A topic to create. -1 takes the broker's default; `replica_assignments` maps partition to broker ids and excludes both counts.
    `configs` are settings by Kafka's names: texts, numbers, truth values, lists of texts."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, SettingValue] | None = None


class NewPartitions(NamedTuple):
    """Partitions to add: the new total, and broker ids for each added one where they are not left to the controller."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None
