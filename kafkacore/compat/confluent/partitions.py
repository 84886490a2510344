"""confluent-kafka's TopicPartition and the offsets that mean places.

Source: confluent_kafka.TopicPartition, confluent-kafka 2.16.
"""

from __future__ import annotations

from typing import Any

from kafkacore import types
from kafkacore.compat.confluent.kafka_error import KafkaError

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001
OFFSET_TAIL_BASE = -2000
"""OFFSET_TAIL_BASE - n: n records before the end."""


class TopicPartition:
    """A partition, and what is said about it: an offset, a note, an error. Equal by topic and partition.

    Args:
        topic: name.
        partition: number.
        offset: one of the log, or a place: OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID (none).
        metadata: the note of a committed offset.
        leader_epoch: of the record before the offset.
    """

    __slots__ = ("_error", "_leader_epoch", "_metadata", "_topic", "offset", "partition")

    def __init__(
        self, topic: str, partition: int = -1, offset: int = OFFSET_INVALID, metadata: str | None = None, leader_epoch: int | None = None
    ) -> None:
        self._topic = topic
        self.partition = partition
        self.offset = offset
        self._metadata = metadata
        self._leader_epoch = leader_epoch
        self._error: KafkaError | None = None

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def metadata(self) -> str | None:
        """The note of a committed offset."""
        return self._metadata

    @property
    def leader_epoch(self) -> int | None:
        """Leader epoch of the record before the offset; None where it is not known."""
        return None if self._leader_epoch is None or self._leader_epoch < 0 else self._leader_epoch

    @property
    def error(self) -> KafkaError | None:
        """What went wrong with this partition."""
        return self._error

    def failed(self, error: KafkaError | None) -> TopicPartition:
        """The same with an error; for the face's own use."""
        self._error = error
        return self

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self._topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self._error}}}"
        )

    def _key(self) -> tuple[str, int]:
        return self._topic, self.partition

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, TopicPartition) else NotImplemented

    def __lt__(self, other: TopicPartition) -> bool:
        return self._key() < other._key() if isinstance(other, TopicPartition) else NotImplemented

    def __le__(self, other: TopicPartition) -> bool:
        return self._key() <= other._key() if isinstance(other, TopicPartition) else NotImplemented

    def __gt__(self, other: TopicPartition) -> bool:
        return self._key() > other._key() if isinstance(other, TopicPartition) else NotImplemented

    def __ge__(self, other: TopicPartition) -> bool:
        return self._key() >= other._key() if isinstance(other, TopicPartition) else NotImplemented


def engines(partition: Any) -> types.TopicPartition:
    """The engine's tuple of topic and partition.

    Raises:
        TypeError: it is no TopicPartition.
    """
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"expected confluent_kafka.TopicPartition, not {type(partition).__name__}")
    return types.TopicPartition(partition.topic, partition.partition)


def listed(partitions: Any) -> list[TopicPartition]:
    """A checked list of TopicPartition.

    Raises:
        TypeError: it is no list, or holds something else.
    """
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    for partition in partitions:
        engines(partition)
    return partitions


def engines_offset(partition: TopicPartition) -> types.OffsetAndMetadata:
    """The engine's tuple of a position to commit."""
    return types.OffsetAndMetadata(partition.offset, partition.leader_epoch, partition.metadata)  # type: ignore[arg-type]


def of_offset(tp: tuple[str, int], found: types.OffsetAndMetadata | None) -> TopicPartition:
    """A position of the engine, with its note as the program has given it; OFFSET_INVALID where there is none."""
    if found is None:
        return TopicPartition(*tp)
    return TopicPartition(tp[0], tp[1], found.offset, found.metadata, found.leader_epoch)


def of_committed(tp: tuple[str, int], found: types.OffsetAndMetadata | None) -> TopicPartition:
    """What a broker has of a commit, for which no note is an empty one. librdkafka writes an empty note as a zero byte."""
    if found is None:
        return TopicPartition(*tp)
    return of_offset(tp, found._replace(metadata="" if found.metadata == "\0" else found.metadata or None))  # type: ignore[arg-type]
