"""The partitions a broker holds: appending, reading, high watermarks.

With one replica per partition the high watermark is the log's end: it rises with the append itself. Errors are raised as the broker
error the client is to see.

Source: kafka.cluster.Partition, kafka.server.ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafkacore import errors
from kafkacore.broker.cluster import PartitionRegistration, Topic, TopicConfig, TopicListener
from kafkacore.broker.log import Log, check_records, read_one_batch
from kafkacore.broker.producers import NO_PRODUCER_ID, ProducerStates
from kafkacore.errors import KafkaError
from kafkacore.records import read_batches

ZSTD = 4
# KIP-110: clients that speak an older Produce do not know zstd.
FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
READ_COMMITTED = 1


class Appended(NamedTuple):
    """Where a batch lies in the log.

    Attributes:
        base_offset: of its first record.
        append_time_ms: -1 unless the topic uses LogAppendTime; of a duplicate its largest timestamp, as Kafka answers.
        log_start_offset: of the partition.
        duplicate: the batch had been written before.
    """

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Partition:
    """One partition on one broker."""

    def __init__(self, topic: Topic, index: int, node_id: int) -> None:
        self.topic = topic
        self.index = index
        self.node_id = node_id
        self.log = Log(topic.config.segment_bytes)
        self.producers = ProducerStates()

    @property
    def key(self) -> tuple[str, int]:
        """What operations waiting for this partition are watched under."""
        return self.topic.name, self.index

    @property
    def registration(self) -> PartitionRegistration:
        """Leader, epoch and replicas."""
        return self.topic.partitions[self.index]

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        return self.topic.config

    @property
    def high_watermark(self) -> int:
        """Records below it are on all in-sync replicas."""
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Records below it belong to no open transaction; the high watermark, since there are no transactions."""
        return self.high_watermark

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Refuses to serve what another broker leads or what the client knows under another epoch.

        Args:
            current_leader_epoch: the leader epoch as the client knows it; -1 if it does not say.

        Raises:
            NotLeaderOrFollower: this broker does not lead the partition.
            FencedLeaderEpoch: the client's epoch is over.
            UnknownLeaderEpoch: the client's epoch is ahead of this broker's.
        """
        registration = self.registration
        if registration.leader != self.node_id:
            raise errors.NotLeaderOrFollower(f"broker {self.node_id} does not lead it; {registration.leader} does")
        self.log.begin_epoch(registration.leader_epoch)  # nothing can have been written since it became the leader
        if current_leader_epoch >= 0:
            if current_leader_epoch < registration.leader_epoch:
                raise errors.FencedLeaderEpoch(f"leader epoch {current_leader_epoch} is over; {registration.leader_epoch} is current")
            if current_leader_epoch > registration.leader_epoch:
                raise errors.UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is unknown; {registration.leader_epoch} is current")

    def append(self, data: memoryview | bytes, acks: int, version: int, wall_ms: int) -> Appended:
        """Writes one batch as leader.

        Args:
            data: the records of a Produce request for this partition.
            acks: -1, 0 or 1.
            version: of the Produce request.
            wall_ms: the time now.

        Returns:
            Where it lies; for a resend of one of the producer's last five batches, where that lies.

        Raises:
            BrokerError, CorruptDataError: nothing was written.
        """
        self.check_leader()
        config, registration = self.config, self.registration
        if acks == -1 and len(registration.isr) < config.min_insync_replicas:
            raise errors.NotEnoughReplicas(
                f"{len(registration.isr)} replicas are in sync, min.insync.replicas is {config.min_insync_replicas}"
            )
        batch = read_one_batch(data, config.max_message_bytes)
        if batch.compression == ZSTD and version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
            raise errors.UnsupportedCompressionType(f"Produce v{version} does not know zstd")
        max_timestamp_ms = check_records(batch)
        append_time_ms = None
        if config.message_timestamp_type == "LogAppendTime":
            append_time_ms = wall_ms
            if batch.timestamp_type:
                raise errors.InvalidTimestamp("a producer's batch cannot claim that the broker set its timestamps")
        elif max_timestamp_ms - wall_ms > config.message_timestamp_after_max_ms:
            raise errors.InvalidTimestamp(
                f"timestamp {max_timestamp_ms} is more than {config.message_timestamp_after_max_ms} ms ahead of the broker's {wall_ms}"
            )
        producer_id = batch.producer_id
        if producer_id == NO_PRODUCER_ID and batch.is_transactional:
            raise errors.InvalidRecord("a transactional batch needs a producer id")
        if producer_id != NO_PRODUCER_ID:
            if producer_id < 0 or batch.base_sequence < 0 or batch.producer_epoch < 0:
                raise errors.InvalidRecord(
                    f"producer id {producer_id} with epoch {batch.producer_epoch} and sequence {batch.base_sequence} is impossible"
                )
            resent = self.producers.check(batch)
            if resent is not None:
                return Appended(resent.first_offset, resent.timestamp_ms, self.log.start_offset, True)
        base_offset = self.log.append(
            batch, registration.leader_epoch, append_time_ms, max_timestamp_ms=max_timestamp_ms, wall_ms=wall_ms
        )
        self.producers.replay(batch, base_offset, max_timestamp_ms if append_time_ms is None else append_time_ms)
        return Appended(base_offset, -1 if append_time_ms is None else append_time_ms, self.log.start_offset, False)

    def upper_offset(self, isolation_level: int) -> int:
        """How far a consumer may read: the last stable offset for read_committed, else the high watermark."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def read(self, offset: int, max_bytes: int, isolation_level: int, at_least_one: bool) -> list[memoryview]:
        """Batches from an offset on; see `Log.read`."""
        return self.log.read(offset, max_bytes, self.upper_offset(isolation_level), at_least_one)


class LeadershipListener(Protocol):
    """Told which partitions this broker leads."""

    def became_leader(self, topic: str, index: int, leader_epoch: int) -> None:
        """This broker leads a partition now."""

    def resigned(self, topic: str, index: int) -> None:
        """It does no longer: another does, the partition is gone, or the broker stops."""


class ReplicaManager(TopicListener):
    """All partitions of one broker, created and dropped as the cluster's image changes."""

    def __init__(self, node_id: int, on_change: Callable[[tuple[str, int]], object]) -> None:
        """Holds nothing yet.

        Args:
            node_id: this broker.
            on_change: told the key of a partition that grew or went away, so that operations waiting for it are tried again.
        """
        self.node_id = node_id
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._on_change = on_change
        self.listeners: list[LeadershipListener] = []

    def topic_created(self, topic: Topic) -> None:
        for index, registration in enumerate(topic.partitions):
            if self.node_id in registration.replicas and (topic.name, index) not in self.partitions:
                partition = self.partitions[topic.name, index] = Partition(topic, index, self.node_id)
                self._tell_if_leader(partition)

    def topic_deleted(self, topic: Topic) -> None:
        for index in range(len(topic.partitions)):
            if self.partitions.pop((topic.name, index), None) is not None:
                self._on_change((topic.name, index))
                for listener in self.listeners:
                    listener.resigned(topic.name, index)

    def _tell_if_leader(self, partition: Partition) -> None:
        registration = partition.registration
        if registration.leader == self.node_id:
            for listener in self.listeners:
                listener.became_leader(*partition.key, registration.leader_epoch)

    def started(self) -> None:
        """The broker serves again, with what it holds: tells the listeners what it leads."""
        for partition in list(self.partitions.values()):
            self._tell_if_leader(partition)

    def stopping(self) -> None:
        """The broker stops serving; its data stays."""
        for key in list(self.partitions):
            for listener in self.listeners:
                listener.resigned(*key)

    def partition(self, topic: str, index: int) -> Partition:
        """A partition this broker holds.

        Raises:
            UnknownTopicOrPartition: it holds none of that name and number.
        """
        found = self.partitions.get((topic, index))
        if found is None:
            raise errors.UnknownTopicOrPartition(f"there is no partition {index} of topic {topic!r} here", topic=topic, partition=index)
        return found

    def append(self, topic: str, index: int, data: memoryview | bytes, acks: int, version: int, wall_ms: int) -> Appended:
        """Writes one batch and wakes the fetches that wait for it. See `Partition.append`."""
        appended = self.partition(topic, index).append(data, acks, version, wall_ms)
        if not appended.duplicate:
            self._on_change((topic, index))
        return appended

    def append_internal(
        self, topic: str, index: int, batch: memoryview | bytes, done: Callable[[KafkaError | None], None], wall_ms: int = -1
    ) -> int:
        """Writes a coordinator's batch as leader, as with acks=all.

        Args:
            topic, index: an internal partition.
            batch: one batch, a control batch too.
            done: called with None when the high watermark has passed it (with one replica: within this call), or with the error if the
                leadership is lost before.
            wall_ms: the time, for retention.

        Returns:
            The offset of its first record.

        Raises:
            BrokerError: nothing was written, and `done` will not be called.
        """
        partition = self.partition(topic, index)
        partition.check_leader()
        if len(batch) > partition.config.max_message_bytes:
            raise errors.RecordTooLarge(f"the batch has {len(batch)} bytes, max.message.bytes is {partition.config.max_message_bytes}")
        checked = next(iter(read_batches(batch, check_crcs=False)))
        base_offset = partition.log.append(checked, partition.registration.leader_epoch, wall_ms=wall_ms)
        self._on_change((topic, index))
        done(None)
        return base_offset

    def clean_up(self, wall_ms: int, producer_id_expiration_ms: int) -> None:
        """Applies retention and forgets idle producers."""
        for partition in self.partitions.values():
            config = partition.config
            expires = "delete" in config.cleanup_policy
            if expires and partition.log.delete_old_segments(config.retention_ms, config.retention_bytes, wall_ms):
                self._on_change(partition.key)
            partition.producers.expire(wall_ms, producer_id_expiration_ms)
