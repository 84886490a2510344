"""The partitions one broker holds: made, led, followed and dropped as the cluster's image says.

    image --update--> Partition.apply --> leader:   serves, watches its followers, proposes ISRs
                                          follower: is fetched for
    append, a follower's fetch, an answer of the leader --> Partition --> changed --> waiting operations are tried again

Whatever may complete a waiting operation ends in `changed`, after the partition is in its new state. Operations that complete may append
again; what that changes is queued and looked at by the outermost call, so nothing recurses.

Each partition is a unit of its own: one whose disk fails is offline, and what else a delta says of others is applied. If its directory
works after all (no descriptor was left), the partition is tried again after `RETRY_OFFLINE_MS`.

Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from kafkacore import errors
from kafkacore.broker.assignments import DirectoryAssignments
from kafkacore.broker.cluster import RESOURCE_TOPIC, ClusterImage, ImageDelta, ImageListener, PartitionRegistration, Topic
from kafkacore.broker.fault_handler import contained
from kafkacore.broker.fetcher import ReplicaFetchers
from kafkacore.broker.internal_topics import is_internal
from kafkacore.broker.isr import IsrProposals
from kafkacore.broker.limits import log_memory_bytes
from kafkacore.broker.log import LogManager, validate
from kafkacore.broker.log.memory import MemoryLimit
from kafkacore.broker.partition import UNKNOWN_BROKER_EPOCH, Appended, Check, Committed, Partition, Role
from kafkacore.broker.producers import Verification
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import KafkaError
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

PartitionKey = tuple[str, int]
RETRY_OFFLINE_MS = 1_000
OPENED_PER_TURN = 8
"""New logs on disk that are opened in one turn of the loop: several small files each, 5 ms on a slow disk."""
CHECKED_PER_TURN = 500
"""Partitions whose ISR is checked in one turn of the loop: some 2 us each."""


class LeadershipListener(Protocol):
    """Called when this broker begins and ceases to lead a partition."""

    def became_leader(self, topic: str, index: int, leader_epoch: int) -> None:
        """This broker leads the partition in a new epoch."""

    def resigned(self, topic: str, index: int) -> None:
        """This broker does not lead it any more: it follows, the partition is deleted, or the broker stops."""


class ReplicaManager(ImageListener):
    """All partitions of one broker."""

    def __init__(
        self,
        node_id: int,
        cluster: ClusterImage,
        config: BrokerConfig,
        clock: Clock,
        timer: LoopTimer,
        logs: LogManager,
        on_change: Callable[[PartitionKey], object],
    ) -> None:
        """Holds what the image gives this broker.

        Args:
            node_id: this broker.
            cluster: the image.
            config: settings.
            clock: the time.
            timer: for the check of ISRs.
            logs: where the logs of the partitions are.
            on_change: called with the key of a partition that changed, so that operations waiting for it are tried again.
        """
        self.node_id = node_id
        self.cluster = cluster
        self.config = config
        self.logs = logs
        self.partitions: dict[PartitionKey, Partition] = {}
        self.changes = 0
        """How often a partition changed."""
        self.offline: dict[PartitionKey, Partition | None] = {}
        """Partitions whose log could not be opened (None), or whose disk failed while their role changed."""
        self.listeners: list[LeadershipListener] = []
        self.fetchers: ReplicaFetchers | None = None
        """What copies the partitions that others lead; None where there are no others."""
        self.proposals: IsrProposals | None = None
        """Sends ISR changes to the controller; None before it is known."""
        self.assignments: DirectoryAssignments | None = None
        """The way to the controller of where replicas lie; None before there is one."""
        self.on_opened: Callable[[], None] = lambda: None
        """Called when the last of the partitions that waited to be opened is."""
        self.note_change: Callable[[Partition], None] = lambda partition: None
        """Called for each partition that changed, at once and before anything that waits for it is tried again."""
        self._to_open: dict[PartitionKey, None] = {}
        self._opening: TimerTask | None = None
        self._isr_check: TimerTask | None = None
        self._restless: dict[Partition, None] = {}  # led here; all others are `is_at_rest`
        self._to_check: list[Partition] = []
        self._retry: TimerTask | None = None
        self._to_retry: set[PartitionKey] = set()
        self._clock = clock
        self._timer = timer
        self._on_change = on_change
        self._dirty: dict[PartitionKey, Partition] = {}
        self._settling = False
        self.memory_limit: MemoryLimit | None = None
        """Of logs in memory; None for logs on disk, and on a system that does not say how much memory it has."""
        self._freeing: TimerTask | None = None
        if not logs.on_disk and (limit_bytes := log_memory_bytes(config)):
            self.memory_limit = MemoryLimit(limit_bytes, logs.logs, self._plan_to_free_memory)
            logs.on_memory_growth = self.memory_limit.grew
        logs.high_watermarks = self._high_watermarks
        logs.last_stable_offset = lambda key: self.partitions[key].last_stable_offset
        self.started()

    # ---- the image

    def image_changed(self, delta: ImageDelta) -> None:
        if not self._serving:
            return  # `started` catches up
        for topic in delta.deleted_topics:  # their ids are unknown from here on: a fetch that the first of them ends reads all of them
            for index in range(len(topic.partitions)):
                gone = self.partitions.get((topic.name, index))
                if gone is not None:
                    self.note_change(gone)
        for topic in delta.deleted_topics:
            for index in range(len(topic.partitions)):
                with contained("the deletion of partition %s-%d", topic.name, index):
                    self._drop((topic.name, index))
        for change in delta.partitions:
            key = change.topic.name, change.index
            if key in self._to_open:
                continue  # its turn comes, with what the image says by then
            if self._waits_to_be_opened(change.topic, key):
                self._to_open[key] = None
                continue
            with contained("the change of partition %s-%d", *key):
                self.update(change.topic, change.index)
        self._wake_fetchers()
        self._open_some()
        for kind, name in delta.configs:
            if kind == RESOURCE_TOPIC and name in self.cluster.topics:
                self._settings_changed(self.cluster.topics[name])
        if delta.brokers:
            self._brokers_changed(delta.brokers)

    def is_opening(self) -> bool:
        """Whether partitions that the image gives this broker wait to be opened."""
        return bool(self._to_open)

    def _waits_to_be_opened(self, topic: Topic, key: PartitionKey) -> bool:
        """A new log on disk; one in memory is no work, and a partition that is here changes at once."""
        is_new = key not in self.partitions and key not in self.offline
        return self.logs.on_disk and is_new and self.node_id in topic.partitions[key[1]].replicas

    def _open_some(self) -> None:
        """Opens the next partitions; between two turns the loop serves clients, who are answered NOT_LEADER_OR_FOLLOWER for the rest."""
        if self._opening is not None:
            return
        for _ in range(min(OPENED_PER_TURN, len(self._to_open))):
            key = next(iter(self._to_open))
            topic = self.cluster.topics.get(key[0])
            with contained("the opening of partition %s-%d", *key):
                if topic is not None and key[1] < len(topic.partitions):
                    self.update(topic, key[1])
            self._to_open.pop(key, None)
        self._wake_fetchers()
        if self._to_open:
            self._opening = TimerTask(0, self._open_next)
            self._timer.add(self._opening)
        else:
            self.on_opened()

    def _open_next(self) -> None:
        self._opening = None
        self._open_some()

    def _wake_fetchers(self) -> None:
        """After `update`, once for many partitions."""
        if self.fetchers is not None:
            self.fetchers.wake()

    def _high_watermarks(self) -> dict[PartitionKey, int]:
        aside = {key: partition.high_watermark for key, partition in self.offline.items() if partition is not None}
        return {**aside, **{key: partition.high_watermark for key, partition in self.partitions.items()}}

    def _settings_changed(self, topic: Topic) -> None:
        for index in range(len(topic.partitions)):
            partition = self.partitions.get((topic.name, index))
            if partition is not None:
                with contained("the new settings of partition %s-%d", *partition.key):
                    partition.log.config = topic.config
                    partition.look_again(self._clock.now_ms())
                    self.changed(partition)

    def _brokers_changed(self, nodes: set[int]) -> None:
        """Brokers came or went: who must be waited for is another question then, and who can be fetched from."""
        for partition in list(self.partitions.values()):
            if not nodes.isdisjoint(partition.remotes):
                with contained("partition %s-%d, after a change of brokers,", *partition.key):
                    partition.look_again(self._clock.now_ms())
                    self.changed(partition)
        for node in nodes:
            if node in self.cluster.nodes and self.fetchers is not None:
                with contained("the fetcher of leader %d", node):
                    self.fetchers.leader_is_back(node)

    def reopen(self) -> None:
        """The log manager was closed and started again: opens the logs again."""
        self.offline.clear()  # `started` tries them
        for (topic, index), partition in list(self.partitions.items()):
            try:
                partition.log = self.logs.open(topic, partition.topic.topic_id, index, partition.config, is_new=False)
            except (errors.KafkaStorage, OSError) as error:
                del self.partitions[topic, index]
                self._is_offline((topic, index), None, error)
                continue
            partition.restore_high_watermark(partition.high_watermark)

    def _is_offline(self, key: PartitionKey, partition: Partition | None, error: Exception) -> None:
        # Once, not with every change of the image; and not at all where all directories are offline, which each has reported itself.
        if key not in self.offline and not self.logs.is_offline:
            logger.error("partition %s-%d is offline: %s", *key, error)
        self.offline[key] = partition
        if isinstance(error, OSError) or (partition is not None and not self.logs.has_failed(partition.log)):
            self._to_retry.add(key)
            if self._retry is None:
                self._retry = TimerTask(RETRY_OFFLINE_MS, self._retry_offline)
                self._timer.add(self._retry)

    def _retry_offline(self) -> None:
        self._retry = None
        again, self._to_retry = self._to_retry, set()
        for name, index in again:
            topic = self.cluster.topics.get(name)
            if self._serving and topic is not None and index < len(topic.partitions):
                with contained("another try with the offline partition %s-%d", name, index):
                    self.update(topic, index)
        self._wake_fetchers()

    def _set_aside(self, partition: Partition, was_leader: bool, error: Exception) -> None:
        """The disk failed while a partition changed its role: this broker neither leads nor follows it."""
        key = partition.key
        del self.partitions[key]
        self._is_offline(key, partition, error)
        if self.fetchers is not None:
            self.fetchers.unfollow(key)
        partition.resign(errors.KafkaStorage(f"partition {key[0]}-{key[1]} is offline: {error}"))
        if was_leader:
            self._tell_resigned(key)
        self.changed(partition)

    def storage_failed(self, keys: Iterable[PartitionKey]) -> None:
        """A log directory went offline: the requests that wait for its partitions are answered."""
        for key in keys:
            partition = self.partitions.get(key)
            if partition is not None:
                with contained("partition %s-%d, whose log directory is offline,", *key):
                    if self.fetchers is not None:
                        self.fetchers.unfollow(key)  # a follower that only asks looks as if it were in sync
                    self.changed(partition)

    def started(self) -> None:
        """The broker serves again, with what it holds."""
        self._serving = self._starting = True
        for key, partition in list(self.partitions.items()):
            topic_now = self.cluster.topics.get(key[0])
            if topic_now is None or topic_now.topic_id != partition.topic.topic_id:
                with contained("the deletion of partition %s-%d", *key):
                    self._drop(key)
        for topic in self.cluster.topics.values():
            for index in range(len(topic.partitions)):
                with contained("the start of partition %s-%d", topic.name, index):
                    self.update(topic, index)
        self._wake_fetchers()
        self._starting = False

    def stopping(self) -> None:
        """The broker stops serving: requests that wait for a commit are answered, the coordinators end. Its data stays."""
        self._serving = False
        for part in (self.fetchers, self.proposals, self.assignments):
            if part is not None:
                with contained("the end of %s", type(part).__name__):
                    part.close()
        for task in (self._isr_check, self._retry, self._freeing, self._opening):
            if task is not None:
                task.cancel()
        self._isr_check = self._retry = self._freeing = self._opening = None
        self._restless.clear()
        self._to_check.clear()
        self._to_open.clear()  # `started` opens them
        self._to_retry.clear()
        for partition in list(self.partitions.values()):
            with contained("the end of partition %s-%d", *partition.key):
                was_leader = partition.is_leader
                partition.resign(errors.NotLeaderOrFollower(f"broker {self.node_id} stops"))
                partition.settle()
                if was_leader:
                    self._tell_resigned(partition.key)

    def update(self, topic: Topic, index: int) -> None:
        """Makes a partition here what the image says it is. What it follows by that is asked for after `ReplicaFetchers.wake`.

        Args:
            topic: as the image has it.
            index: the partition.
        """
        if not self.logs.is_open:
            return  # the broker is stopped; `started` catches up
        key = topic.name, index
        registration = topic.partitions[index]
        partition = self.partitions.get(key)
        if partition is not None and partition.topic.topic_id != topic.topic_id:
            self._drop(key)
            partition = None
        if self.node_id not in registration.replicas:
            self._drop(key)
            return
        if partition is None:
            aside = self.offline.get(key)
            if aside is not None and aside.topic.topic_id == topic.topic_id:
                partition = aside
            else:
                try:
                    log = self.logs.open(topic.name, topic.topic_id, index, topic.config, is_new=self._may_be_new(key, registration))
                except (errors.KafkaStorage, OSError) as error:
                    self._is_offline(key, None, error)
                    return
                partition = Partition(topic, index, self.node_id, log, self, self.config.replica_lag_time_max_ms)
                partition.restore_high_watermark(self.logs.high_watermark(topic.name, index))
            self.partitions[key] = partition
        if partition.log.config is not topic.config:
            partition.log.config = topic.config
            self.logs.compactor.look_soon(partition.log)
        self._tell_directory(partition, registration)
        was_leader = partition.is_leader
        try:
            role = partition.apply(topic, registration, self._clock.now_ms())
        except (errors.KafkaStorage, OSError) as error:
            self._set_aside(partition, was_leader, error)
            return
        self.offline.pop(key, None)
        if role is Role.LEADER:
            for listener in self.listeners:
                with contained("the new leadership of partition %s-%d: %s", *key, type(listener).__name__):
                    listener.became_leader(*key, partition.leader_epoch)
        elif was_leader and not partition.is_leader:
            self._tell_resigned(key)
        if self.fetchers is not None:
            if partition.is_leader or self.logs.has_failed(partition.log):
                self.fetchers.unfollow(key)
            else:
                self.fetchers.follow(partition)
        self.changed(partition)

    def _tell_directory(self, partition: Partition, registration: PartitionRegistration) -> None:
        directory = self.logs.directory_of(partition.log)
        if self.assignments is not None and directory is not None and registration.directory(self.node_id) != directory:
            self.assignments.tell(partition.topic.topic_id, partition.index, directory)

    def _may_be_new(self, key: PartitionKey, registration: PartitionRegistration) -> bool:
        """Whether an empty log is true: nothing was written yet, or no replica counts on what this broker had."""
        if self.node_id not in registration.isr:
            return True
        return not self._starting and key not in self.offline and registration.leader_epoch == registration.partition_epoch == 0

    def _drop(self, key: PartitionKey) -> None:
        self._to_open.pop(key, None)
        aside = self.offline.pop(key, None)
        partition = self.partitions.pop(key, None) or aside
        if partition is None:
            return
        was_leader = partition.is_leader
        if self.fetchers is not None:
            self.fetchers.unfollow(key)
        partition.resign(errors.UnknownTopicOrPartition(f"partition {key[0]}-{key[1]} was deleted, or moved to other brokers"))
        if was_leader:
            self._tell_resigned(key)
        with contained("the deletion of the log of %s-%d", *key):
            self.logs.delete(*key)
        self.changed(partition)

    def _tell_resigned(self, key: PartitionKey) -> None:
        for listener in self.listeners:
            with contained("the end of the leadership of %s-%d: %s", *key, type(listener).__name__):
                listener.resigned(*key)

    def _may_lag(self, partition: Partition) -> None:
        """What changed may keep followers from being in sync: the next check of ISRs looks at the partition."""
        self._restless[partition] = None
        if self._isr_check is None:
            self._plan_isr_check(max(self.config.replica_lag_time_max_ms // 2, 1))

    def _plan_isr_check(self, delay_ms: int) -> None:
        self._isr_check = TimerTask(delay_ms, self._check_isrs)
        self._timer.add(self._isr_check)

    def _check_isrs(self) -> None:
        """Twice per replica.lag.time.max.ms: followers that lag leave the ISR, and high watermarks need not wait for them.

        A partition at rest is not looked at again before it changes.
        """
        if not self._to_check:
            self._to_check = list(self._restless)
        now_ms = self._clock.now_ms()
        for _ in range(min(CHECKED_PER_TURN, len(self._to_check))):
            partition = self._to_check.pop()
            with contained("the ISR check of partition %s-%d", *partition.key):
                partition.maybe_shrink_isr(now_ms)
                if partition.look_again(now_ms):
                    self.changed(partition)
                if not partition.remotes or partition.is_at_rest:
                    self._restless.pop(partition, None)
        self._isr_check = None
        if self._to_check:
            self._plan_isr_check(0)
        elif self._restless:
            self._plan_isr_check(max(self.config.replica_lag_time_max_ms // 2, 1))

    def is_isr_eligible(self, partition: Partition, node_id: int, broker_epoch: int) -> bool:
        """Whether a follower may be in an ISR: its broker is active, the one that fetched is the one that is registered, and the
        directory of the replica works."""
        broker = self.cluster.brokers.get(node_id)
        topic = self.cluster.topics_by_id.get(partition.topic.topic_id)
        if broker is None or topic is None or broker_epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
            return False
        return self.cluster.may_lead(node_id, topic.partitions[partition.index])

    def has_alive_broker(self, node_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        return node_id in self.cluster.nodes

    def propose_isr(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Asks the controller for another ISR."""
        if self.proposals is not None:
            self.proposals.propose(partition, isr)
        else:
            partition.isr_refused(partition.leader_epoch)

    # ---- the data path

    def partition(self, topic: str, index: int) -> Partition:
        """A partition this broker holds.

        Raises:
            UnknownTopicOrPartition: no partition has that name and number.
            NotLeaderOrFollower: others hold it.
        """
        found = self.partitions.get((topic, index))
        if found is None:
            if (topic, index) in self.offline:
                raise errors.KafkaStorage("its log directory is offline", topic=topic, partition=index)
            known = self.cluster.topics.get(topic)
            if known is not None and 0 <= index < len(known.partitions):
                raise errors.NotLeaderOrFollower(f"broker {self.node_id} holds no replica of it", topic=topic, partition=index)
            raise errors.UnknownTopicOrPartition(f"there is no partition {index} of topic {topic!r} here", topic=topic, partition=index)
        return found

    def append(
        self,
        topic: str,
        index: int,
        data: memoryview | bytes,
        acks: int,
        version: int,
        wall_ms: int,
        now_ms: int,
        verification: Verification | None = None,
        check: Check = validate,
    ) -> Appended:
        """Writes one batch and wakes the fetches that wait for it. See `Partition.append`."""
        partition = self.partitions.get((topic, index)) or self.partition(topic, index)
        enabled = self.config.transaction_partition_verification_enable
        appended = partition.append(data, acks, version, wall_ms, now_ms, verification, enabled, check)
        if not appended.duplicate:
            self.changed(partition)
        return appended

    def append_messages(
        self, topic: str, index: int, data: memoryview | bytes, acks: int, version: int, wall_ms: int, now_ms: int, magic: int
    ) -> Appended:
        """Writes a message set of an old client. See `Partition.append_messages`."""
        partition = self.partition(topic, index)
        appended = partition.append_messages(data, acks, version, wall_ms, now_ms, magic)
        self.changed(partition)
        return appended

    def append_internal(
        self,
        topic: str,
        index: int,
        batch: memoryview | bytes,
        done: Committed,
        timeout_ms: int | None,
        *,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> int:
        """Writes a batch of a coordinator, as a producer with acks=all would.

        Args:
            topic, index: the partition.
            batch: one record batch.
            done: called with None when the batch is committed, which with one replica is within this call; the error if leadership ends
                before, RequestTimedOut if it takes too long. The batch may survive then: the log says.
            timeout_ms: how long the commit may take; None for as long as this broker leads.
            verification: of a transactional batch, from `ProducerStates.start_verification`.
            transaction_version: of the transaction that a marker ends.

        Returns:
            The offset of its first record.

        Raises:
            BrokerError: nothing was written and `done` is not called.
        """
        partition = self.partition(topic, index)
        appended = partition.append_internal(
            batch,
            self._clock.wall_ms(),
            self._clock.now_ms(),
            verification=verification,
            verification_enabled=self.config.transaction_partition_verification_enable,
            transaction_version=transaction_version,
        )
        if timeout_ms is None or appended.committed:
            partition.when_committed(appended.required_offset, done)
        else:
            self._wait_for_commit(partition, appended.required_offset, done, timeout_ms)
        self.changed(partition)
        return appended.base_offset

    def _wait_for_commit(self, partition: Partition, offset: int, done: Committed, timeout_ms: int) -> None:
        waiting: list[Committed] = [done]

        def tell(error: KafkaError | None) -> None:
            if waiting:
                expiry.cancel()
                waiting.pop()(error)

        def expire() -> None:
            message = f"offset {offset} was not committed within {timeout_ms} ms"
            tell(errors.RequestTimedOut(message, topic=partition.key[0], partition=partition.key[1]))

        expiry = TimerTask(timeout_ms, expire)
        self._timer.add(expiry)
        partition.when_committed(offset, tell)

    def delete_records(self, topic: str, index: int, offset: int) -> tuple[Partition, int]:
        """Moves the start of a log up. See `Partition.delete_records`.

        Returns:
            The partition, and where its log is to begin on all replicas.
        """
        partition = self.partition(topic, index)
        start_offset = partition.delete_records(offset)
        self.changed(partition)
        return partition, start_offset

    def follower_fetched(
        self, partition: Partition, node_id: int, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """A follower asked for what comes after an offset. See `Partition.follower_fetched`."""
        now_ms = self._clock.now_ms()
        if partition.follower_fetched(node_id, offset, log_start_offset, leader_end_offset, broker_epoch, now_ms):
            self.changed(partition)
        elif offset != partition.log.end_offset:
            self._may_lag(partition)  # it may have lost what it had

    def clean_up(self, wall_ms: int, producer_id_expiration_ms: int) -> None:
        """Applies retention and forgets idle producers."""
        for partition in list(self.partitions.values()):
            config = partition.config
            expires = "delete" in config.cleanup_policy       # else only what lies before the log's start goes
            limits = (config.retention_ms, config.retention_bytes) if expires else (-1, -1)
            with contained("the retention of partition %s-%d", *partition.key):
                try:
                    if partition.log.delete_old_segments(*limits, wall_ms, partition.high_watermark):
                        self.changed(partition)
                except errors.KafkaError as error:            # also a damaged segment
                    logger.warning("retention of %s-%d: %s", *partition.key, error)
                partition.producers.expire(wall_ms, producer_id_expiration_ms)

    def _plan_to_free_memory(self) -> None:
        """In the loop's next turn: the append that noticed is still under way."""
        if self._freeing is None:
            self._freeing = TimerTask(0, self._free_memory)
            self._timer.add(self._freeing)

    def _free_memory(self) -> None:
        self._freeing = None
        assert self.memory_limit is not None

        def may_delete(partition: Partition) -> bool:
            return "delete" in partition.config.cleanup_policy and not is_internal(partition.topic.name)

        for partition in self.memory_limit.free(self.partitions.values(), may_delete, self._clock.wall_ms()):
            self.changed(partition)

    def changed(self, partition: Partition) -> None:
        """Tries again what waits for a partition; see the top of the file."""
        self.changes += 1
        self.note_change(partition)
        if partition.remotes:
            self._may_lag(partition)
        if self.fetchers is not None and partition.leader != self.node_id:
            self.fetchers.log_changed(partition.key)
        if self._settling:
            self._dirty[partition.key] = partition
            return
        self._settling = True
        try:
            if partition.has_waiters():
                partition.settle()
            self._on_change(partition.key)
            while self._dirty:
                key, changed = self._dirty.popitem()
                with contained("the requests that wait for partition %s-%d", *key):
                    changed.settle()
                    self._on_change(key)
        finally:
            self._settling = False
