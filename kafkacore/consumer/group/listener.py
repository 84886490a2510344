"""What an application may do when partitions come and go."""

from __future__ import annotations

from collections.abc import Collection

from kafkacore.types import TopicPartition


class RebalanceListener:
    """Called by `KafkaConsumer.subscribe(listener=...)` on the thread that polls, inside `poll`. Override what is needed.

    The consumer may be used inside: commit, seek, pause, position. What a method raises reaches the caller of poll; the rebalance goes on.

    Source: org.apache.kafka.clients.consumer.ConsumerRebalanceListener.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are new; under the cooperative protocols the others stay. Called after every rebalance, perhaps with none."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are about to be given up; what was processed can still be committed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions belong to other members already; commits for them fail. Calls `on_partitions_revoked` unless overridden."""
        self.on_partitions_revoked(partitions)
