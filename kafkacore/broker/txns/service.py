"""The transaction rooms of one broker, put together: coordinator, markers, verification."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacore import errors
from kafkacore.broker.coordinator import CoordinatorRuntime
from kafkacore.broker.internal_topics import TRANSACTION_TOPIC
from kafkacore.broker.txns.coordinator import TransactionCoordinator
from kafkacore.broker.txns.markers import GroupMarkers, MarkerSender, MarkerWriter
from kafkacore.broker.txns.peers import Peers
from kafkacore.broker.txns.shard import TransactionShard
from kafkacore.broker.txns.verify import TransactionVerifier
from kafkacore.errors import KafkaError

if TYPE_CHECKING:
    from kafkacore.broker.cluster import ClusterImage
    from kafkacore.broker.replicas import ReplicaManager
    from kafkacore.clock import Clock
    from kafkacore.config import BrokerConfig
    from kafkacore.timer import LoopTimer

NO_LEADER = -1
TRANSACTION_VERSION = "transaction.version"
ANSWER_MARGIN_MS = 5_000


class TransactionService:
    """What a broker has to do with transactions.

    Attributes:
        coordinator: of the transactional ids whose partitions it leads.
        runtime: its shards.
        verifier: asks coordinators, here and elsewhere.
        writer: writes markers into the partitions it leads.
        sender: has markers written wherever they are needed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        cluster: ClusterImage,
        replicas: ReplicaManager,
        timer: LoopTimer,
        clock: Clock,
        take_producer_id: Callable[[Callable[[int | KafkaError], None]], None],
        group_markers: GroupMarkers,
        peers: Peers | None = None,
    ) -> None:
        """Builds the parts.

        Args:
            config: settings.
            node_id: this broker.
            cluster: who leads what.
            replicas: the partitions of this broker.
            timer, clock: of the broker.
            take_producer_id: gives a producer id, at once or later.
            group_markers: writes a marker into a partition of the offsets topic.
            peers: other brokers; None in a cluster of one.
        """
        self._cluster = cluster
        self.coordinator = TransactionCoordinator(
            config,
            clock,
            self._partition_count,
            self.transaction_version,
            take_producer_id,
            lambda partition: replicas.partition(TRANSACTION_TOPIC, partition).leader_epoch,
        )
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_TOPIC, replicas, self.coordinator.make_shard, timer, clock, config.request_timeout_ms
        )
        timeout_ms = config.request_timeout_ms
        self.writer = MarkerWriter(
            lambda topic, index, batch, version, done: replicas.append_internal(
                topic, index, batch, done, timeout_ms, transaction_version=version
            ),
            group_markers,
            clock,
        )
        # An answer of another broker comes when its markers are committed or have timed out there.
        answer_ms = timeout_ms + ANSWER_MARGIN_MS
        self.sender = MarkerSender(node_id, self.leader_of, self.writer, peers, answer_ms, timer, self.coordinator.marked)
        self.coordinator.attach(self.runtime, self.sender)
        self.verifier = TransactionVerifier(config, node_id, self.coordinator, self._coordinator_of, peers, timeout_ms, timer, clock)

    def transaction_version(self) -> int:
        """The finalized level of transaction.version."""
        return self._cluster.features.get(TRANSACTION_VERSION, 0)

    def _partition_count(self) -> int:
        topic = self._cluster.topics.get(TRANSACTION_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def leader_of(self, topic: str, index: int) -> int | None:
        """Who leads a partition: None if there is no such partition, -1 without a leader that is alive."""
        known = self._cluster.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return None
        leader = known.partitions[index].leader
        return leader if leader in self._cluster.nodes else NO_LEADER

    def _coordinator_of(self, transactional_id: str) -> int:
        if not self._partition_count():
            raise errors.CoordinatorNotAvailable(f"there is no topic {TRANSACTION_TOPIC}, and so no open transaction")
        leader = self.leader_of(TRANSACTION_TOPIC, self.coordinator.partition_for(transactional_id))
        if leader is None or leader == NO_LEADER:
            raise errors.CoordinatorNotAvailable(f"no broker leads the partition of {TRANSACTION_TOPIC} that keeps {transactional_id!r}")
        return leader
