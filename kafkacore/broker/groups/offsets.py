"""Committed offsets: those in force, and those of transactions that have not ended.

State changes by replay alone. A transaction's offset comes into force with its commit marker, unless a later record has been written for
the same partition since.

A record is replayed when it is written, and committed later, when the replicas have it. Until then the offset before it is kept beside the
new one: it is what consumers get, since the new one may be lost with the leader.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from kafkacore.broker.groups.records import OffsetAndMetadata
from kafkacore.protocol.stored import OffsetCommitKey, OffsetCommitValue

TopicPartitionKey = tuple[str, int]


class OffsetStore:
    """The offsets of one shard's groups."""

    def __init__(self) -> None:
        """Nothing is committed."""
        self._committed: dict[str, dict[TopicPartitionKey, OffsetAndMetadata]] = {}
        # producer id -> group -> partition -> offset, and the producers by group and partition
        self._pending: dict[int, dict[str, dict[TopicPartitionKey, OffsetAndMetadata]]] = {}
        self._open: dict[str, dict[TopicPartitionKey, set[int]]] = {}
        # Of records that are not committed: the offset before each, by group and partition, and where they lie, in order.
        self._before: dict[str, dict[TopicPartitionKey, deque[OffsetAndMetadata | None]]] = {}
        self._uncommitted: deque[tuple[int, str, TopicPartitionKey]] = deque()
        self._committed_to = 0

    # ---- looking

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """The offset in force."""
        return self._committed.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> dict[TopicPartitionKey, OffsetAndMetadata]:
        """All offsets of a group that are in force."""
        return self._committed.get(group_id, {})

    def committed_of_group(self, group_id: str, exists: bool = True) -> dict[TopicPartitionKey, OffsetAndMetadata]:
        """All offsets of a group as of the last committed record; exists: whether there is a group of that name now."""
        now = self._committed.get(group_id, {}) if exists else {}
        before = self._before.get(group_id)
        if not before:
            return now
        then = dict(now)
        for at, values in before.items():
            if values[0] is None:
                then.pop(at, None)
            else:
                then[at] = values[0]
        return then

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has committed an offset for the partition."""
        return (topic, partition) in self._open.get(group_id, {})

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has committed an offset of the group."""
        return group_id in self._open

    def known_partitions(self, group_id: str) -> list[TopicPartitionKey]:
        """The partitions with an offset, in force or pending."""
        return list(dict.fromkeys([*self._committed.get(group_id, {}), *self._open.get(group_id, {})]))

    def groups_with(self, topic: str) -> Iterator[tuple[str, int, OffsetAndMetadata]]:
        """Group, partition and offset of everything committed for a topic, pending offsets too."""
        for source in (self._committed, *self._pending.values()):
            for group_id, offsets in source.items():
                for (name, partition), committed in offsets.items():
                    if name == topic:
                        yield group_id, partition, committed

    def expired(
        self, group_id: str, is_subscribed: Callable[[str], bool], is_expired: Callable[[OffsetAndMetadata], bool]
    ) -> list[TopicPartitionKey]:
        """The partitions of a group whose offset is too old and read by no member."""
        return [
            key
            for key, committed in self.of_group(group_id).items()
            if not is_subscribed(key[0]) and is_expired(committed) and not self.is_pending(group_id, *key)
        ]

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in self._committed.values())

    # ---- replay

    def replay(self, record_offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Takes in a record."""
        group_id, at = key.group, (key.topic, key.partition)
        if value is None:
            self._keep(record_offset, group_id, at)
            _take(self._committed, group_id, at)
            for owner in self._open.get(group_id, {}).get(at, ()):
                _take(self._pending.get(owner, {}), group_id, at)
            _take(self._open, group_id, at)
            return
        committed = OffsetAndMetadata(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            bytes(value.topic_id),
            record_offset,
        )
        if producer_id < 0:
            self._keep(record_offset, group_id, at)
            self._committed.setdefault(group_id, {})[at] = committed
        else:
            self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[at] = committed
            self._open.setdefault(group_id, {}).setdefault(at, set()).add(producer_id)

    def _keep(self, record_offset: int, group_id: str, at: TopicPartitionKey) -> None:
        """A record that may not be committed is about to change an offset."""
        if record_offset >= self._committed_to:
            before = self._committed.get(group_id, {}).get(at)
            self._before.setdefault(group_id, {}).setdefault(at, deque()).append(before)
            self._uncommitted.append((record_offset, group_id, at))

    def committed_to(self, offset: int) -> None:
        """All records below an offset are committed."""
        self._committed_to = offset
        while self._uncommitted and self._uncommitted[0][0] < offset:
            _, group_id, at = self._uncommitted.popleft()
            held = self._before[group_id]
            held[at].popleft()
            if not held[at]:
                _take(self._before, group_id, at)

    def replay_end_marker(self, record_offset: int, producer_id: int, committed: bool) -> None:
        """A transaction ended; its marker lies at an offset."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            for at, offset in offsets.items():
                owners = self._open.get(group_id, {}).get(at)
                if owners is not None:
                    owners.discard(producer_id)
                    if not owners:
                        _take(self._open, group_id, at)
                before = self._committed.get(group_id, {}).get(at)
                if committed and (before is None or offset.record_offset > before.record_offset):
                    self._keep(record_offset, group_id, at)
                    self._committed.setdefault(group_id, {})[at] = offset


def _take(held: dict[str, dict[TopicPartitionKey, Any]], group_id: str, at: TopicPartitionKey) -> None:
    inner = held.get(group_id)
    if inner is not None:
        inner.pop(at, None)
        if not inner:
            del held[group_id]
