"""Which topic an offset is of. A deleted topic can be created again under its name, never under its id (KIP-516): an offset of the old
topic is none of the new one.
"""

from __future__ import annotations

from kafkacore import errors
from kafkacore.consumer.subscription import PartitionState, SubscriptionState
from kafkacore.metadata import ClusterSnapshot, Metadata
from kafkacore.types import OffsetAndMetadata, TopicPartition

NO_ID = bytes(16)


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
