"""Which topic an offset is of. A deleted topic can be created again under its name, never under its id (KIP-516): an offset of the old
topic is none of the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafkacore import errors
from kafkacore.consumer.subscription import PartitionState, SubscriptionState
from kafkacore.metadata import ClusterSnapshot, Metadata
from kafkacore.types import OffsetAndMetadata, TopicPartition

NO_ID = bytes(16)


class _Current(dict[str, bytes]):
    """The ids of topics by name, each looked up once: commits are of many partitions and few topics."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    def __missing__(self, topic: str) -> bytes:
        found = self[topic] = self._snapshot.topic_id(topic)
        return found


class OffsetIds:
    """The topic ids of the offsets of a commit. The offsets of a topic nearly always have one id, so that a commit of many partitions is
    looked at by topic.

    Attributes:
        by_topic: the id of the first offset of each topic.
        others: the ids of the offsets that have another id than the first one of their topic.
    """

    __slots__ = ("by_topic", "others")

    def __init__(self, ids: Iterable[tuple[TopicPartition, bytes]]) -> None:
        self.by_topic: dict[str, bytes] = {}
        self.others: dict[TopicPartition, bytes] = {}
        first = self.by_topic.setdefault
        for tp, topic_id in ids:
            if first(tp.topic, topic_id) != topic_id:
                self.others[tp] = topic_id

    def __getitem__(self, tp: TopicPartition) -> bytes:
        return self.others[tp] if tp in self.others else self.by_topic[tp.topic]

    def names(self) -> dict[bytes, str]:
        """Topics by id."""
        return {topic_id: topic for topic, topic_id in self.by_topic.items()} | {topic_id: tp.topic for tp, topic_id in self.others.items()}

    def name_all(self, tps: Collection[TopicPartition]) -> bool:
        """Each of these offsets has an id, and those of a topic the same one: a request can name topics by id."""
        if not self.others and NO_ID not in self.by_topic.values():
            return True
        ids = OffsetIds((tp, self[tp]) for tp in tps)
        return not ids.others and NO_ID not in ids.by_topic.values()

    def any_known(self) -> bool:
        """One of the offsets has an id."""
        return any(topic_id != NO_ID for topic_id in (*self.by_topic.values(), *self.others.values()))


class TopicIds:
    """The ids of the topics that a consumer commits offsets of.

    Args:
        subscription: what is read; a position knows the topic that it was fetched from.
        metadata: of the cluster.
    """

    def __init__(self, subscription: SubscriptionState, metadata: Metadata) -> None:
        self._subscription = subscription
        self._metadata = metadata
        self._before: dict[TopicPartition, tuple[PartitionState, bytes]] = {}  # what was handed out last is of topics with these ids

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The cluster as known now."""
        return self._metadata.snapshot

    def of(self, tp: TopicPartition) -> bytes:
        """The id of the topic that a partition's position is of; without a position, of the topic of this name. NO_ID when not known."""
        if self.is_before(tp):
            return self._before[tp][1]
        state = self._subscription.partitions.get(tp)
        return (state.topic_id if state is not None else b"") or self._metadata.snapshot.topic_id(tp.topic)

    def of_all(self, tps: Iterable[TopicPartition]) -> OffsetIds:
        """`of` for each of them."""
        if self._before:
            return OffsetIds((tp, self.of(tp)) for tp in tps)
        current, partitions = self.current(), self._subscription.partitions
        return OffsetIds((tp, (state.topic_id if (state := partitions.get(tp)) is not None else b"") or current[tp.topic]) for tp in tps)

    def current(self) -> dict[str, bytes]:
        """The ids that the metadata name now, by topic; looked up as they are asked for."""
        return _Current(self._metadata.snapshot)

    @property
    def any_before(self) -> bool:
        """Whether `is_before` may be true of a partition."""
        return bool(self._before)

    def started_over(self, tp: TopicPartition, topic_id: bytes) -> None:
        """A partition's position is of a new topic; the application may have records of the one before, whose id this is, in hand."""
        self._before[tp] = self._subscription.partitions[tp], topic_id

    def is_before(self, tp: TopicPartition) -> bool:
        """The application may still be at records of the topic before: none of the new one was handed out."""
        found = self._before.get(tp)
        if found is None:
            return False
        state = found[0]
        if state.assigned and not state.handed_records:
            return True
        del self._before[tp]
        return False

    def replaced(self, tp: TopicPartition, topic_id: bytes) -> bool:
        """The metadata name another topic under this name."""
        return topic_id != NO_ID and self._metadata.snapshot.topic_id(tp.topic) not in (NO_ID, topic_id)

    def lost(self, tp: TopicPartition, topic_id: bytes) -> bool:
        """The metadata have no such partition, or another topic under this name."""
        info = self._metadata.snapshot.topics.get(tp.topic)
        if info is None:
            return self._metadata.all_topics and not self._metadata.snapshot.is_bootstrap
        if isinstance(info.error, errors.UnknownTopicOrPartition) or self.replaced(tp, topic_id):
            return True
        return info.error is None and info.partition(tp.partition) is None

    def replaced_of(self, ids: OffsetIds, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that are `replaced`."""
        current = self._metadata.snapshot.topic_id
        if not ids.others and all(current(topic) == topic_id for topic, topic_id in ids.by_topic.items()):
            return []  # nearly always
        return [tp for tp in tps if self.replaced(tp, ids[tp])]

    def lost_of(self, ids: OffsetIds, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of the partitions that are `lost`."""
        return {tp for tp in tps if self.lost(tp, ids[tp])}

    def refusal(self, tp: TopicPartition, topic_id: bytes, found: OffsetAndMetadata) -> errors.KafkaError:
        """Why an offset of such a partition is not committed."""
        if self.replaced(tp, topic_id):
            why = "the topic was deleted and created again, and this offset is of the topic before"
        else:
            why = "the cluster has no such topic or partition (any more)"
        return errors.UnknownTopicOrPartition(f"not committed: {why}", topic=tp.topic, partition=tp.partition, offset=found.offset)

    def ask(self) -> int:
        """Asks for metadata. Returns what `answered_since` wants to know."""
        self._metadata.request_update(reset_equivalent=True)
        return self._metadata.started

    def answered_since(self, asked: int) -> bool:
        """Metadata have come that were asked for after `ask` returned this number."""
        return self._metadata.answered > asked
