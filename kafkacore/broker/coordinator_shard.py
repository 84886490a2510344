"""What a coordinator gives `CoordinatorRuntime`, and gets from it: a shard, its records, what an operation decided; which shard has a key.

Source: org.apache.kafka.coordinator.common.runtime.{CoordinatorShard, CoordinatorRecord, CoordinatorResult, CoordinatorPlayback}.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from kafkacore.errors import KafkaError

T = TypeVar("T")


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic; without a value it deletes its key."""

    key: bytes
    value: bytes | None


class CoordinatorResult(NamedTuple, Generic[T]):
    """What an operation decided.

    Attributes:
        records: to be written as one batch, and replayed.
        response: given to the client when the records are committed.
        replay: False if the shard has this state already, because the records only describe what operations change themselves.
        appended: called after the append, before the next operation: None, or why nothing was written.
        committed: called when the records are committed, before the response is given: None, or why they are not, or not in time.
        is_atomic: False if each record counts for itself: many are written in several batches, as large as the topic allows. An error may
            then leave some of them written; the operation is run again.
        rests_on_log: False for an answer that would be the same whatever becomes of the records that are not committed yet.
    """

    records: list[CoordinatorRecord]
    response: T
    replay: bool = True
    appended: Callable[[KafkaError | None], None] | None = None
    committed: Callable[[KafkaError | None], None] | None = None
    is_atomic: bool = True
    rests_on_log: bool = True


class ReplayedRecord(NamedTuple):
    """A record on its way into a shard.

    Attributes:
        offset: where it lies.
        producer_id: of the transaction it belongs to; -1 if none. It counts when `replay_end_marker` says so.
        producer_epoch: of that producer.
        key: as written.
        value: None deletes.
    """

    offset: int
    producer_id: int
    producer_epoch: int
    key: bytes
    value: bytes | None


class CoordinatorShard(Protocol):
    """The state kept in one partition."""

    def replay(self, record: ReplayedRecord) -> None:
        """Takes in a record of the log.

        Raises:
            CorruptDataError: it is not one of this coordinator's records; it is skipped, counted and logged.
        """

    def replay_end_marker(self, offset: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A producer's transaction ended; its marker lies at an offset."""

    def committed_to(self, offset: int) -> None:
        """All records below an offset are committed, also those that are replayed later."""

    def loaded(self) -> None:
        """The log has been replayed; serving begins."""

    def unloaded(self) -> None:
        """The shard is dropped: requests that wait in it are answered NOT_COORDINATOR. Its timers have been cancelled."""


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, a signed 32-bit integer."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition that keeps a key. Source: org.apache.kafka.common.utils.Utils.abs, GroupCoordinatorService.partitionFor."""
    hashed = java_hash(key)
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions
