"""One partition on one broker: its log, who leads it, and how far the replicas are.

    log start          high watermark         log end (LEO)
        |  on all in-sync replicas  |  not yet   |
        |---- consumers read -------|            |
        |---- followers read --------------------|

Rules:

1. A leader's high watermark is the smallest LEO of the *maximal* ISR: the committed one, and what an AlterPartition under way would add;
   what it would take away still counts. It also waits for a replica that has caught up and is about to join. So whatever the controller
   decides, a record below the high watermark is on every replica that may be elected.
   [test_who_is_to_leave_the_isr_counts_until_the_controller_agrees, test_who_is_to_join_the_isr_counts_at_once,
   test_a_follower_that_has_caught_up_is_waited_for_before_it_is_in_the_isr]
2. It never falls while a broker leads or follows, but for a truncation: an unclean election took the records away.
   [test_the_high_watermark_waits_for_all_in_sync_replicas, test_where_a_follower_truncates]
3. It does not move while the ISR is smaller than min.insync.replicas (at most the number of replicas, as in Kafka).
   [test_below_min_isr_nothing_is_committed, test_no_more_replicas_must_be_in_sync_than_there_are]
4. A leader learns where a follower is from its Fetch requests and from nothing else: fetching from offset n says that all below n is
   written. Where a new leader's followers are is unknown until they fetch. [test_the_high_watermark_waits_for_all_in_sync_replicas,
   test_a_new_leader_knows_nothing_of_its_followers_and_old_decisions_are_ignored]
5. Leader, ISR and epochs change by `apply` (the controller's image) or by `isr_committed` (the answer to an AlterPartition); older epochs
   than known are ignored, so the two may come in any order.
   [test_a_new_leader_knows_nothing_of_its_followers_and_old_decisions_are_ignored]

Nothing here sends, waits or reads a clock. Errors are raised as the broker error the client is to see.

Source: kafka.cluster.Partition, org.apache.kafka.server.replica.Replica; KIP-101, KIP-279, KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kafkacore import errors
from kafkacore.broker.cluster import NO_LEADER, PartitionRegistration, Topic
from kafkacore.broker.log import Log, messages, validate
from kafkacore.broker.log.validate import Validated
from kafkacore.broker.producers import (
    NO_PRODUCER_ID,
    AppendOrigin,
    ProducerStates,
    Verification,
    coordinator_epoch,
)
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.errors import KafkaError
from kafkacore.records import Batch, read_batches

logger = logging.getLogger(__name__)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
_MAGIC_AT = 16
_FIRST_MAGIC_WITH_EPOCHS = 2


class Appended(NamedTuple):
    """Where a batch lies in the log.

    Attributes:
        base_offset: of its first record.
        append_time_ms: -1 unless the topic uses LogAppendTime; of a duplicate its largest timestamp, as Kafka answers.
        log_start_offset: of the partition.
        duplicate: the batch had been written before.
        required_offset: what the high watermark must reach before the batch is committed.
        committed: it is, as with one replica it always is.
    """

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool
    required_offset: int
    committed: bool = False


class FollowerSession(Protocol):
    """A follower's fetch session.

    Attributes:
        last_used_ms: when its last request came.
    """

    last_used_ms: int

    def mark(self, key: Any) -> None:
        """Has the session read a partition again, and take it up."""


class Replica:
    """How far a follower is, as its leader knows. Source: org.apache.kafka.server.replica.Replica."""

    __slots__ = (
        "_last_caught_up_ms",
        "_left_out_by",
        "_left_out_key",
        "broker_epoch",
        "fetched_at_ms",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self._last_caught_up_ms = 0
        self._left_out_by: FollowerSession | None = None
        self._left_out_key: Any = None
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.fetched_at_ms = 0
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def reset(self, now_ms: int, leader_end_offset: int, in_sync: bool, new_leader: bool) -> None:
        """Leadership or ISR was decided again; an in-sync follower gets the whole lag time to show itself."""
        self._last_caught_up_ms = now_ms if in_sync else 0
        self._left_out_by = None
        if new_leader:
            self.log_start_offset = self.log_end_offset = self.leader_end_at_fetch = UNKNOWN_OFFSET
            self.fetched_at_ms = 0
            self.broker_epoch = UNKNOWN_BROKER_EPOCH
        else:
            self.leader_end_at_fetch = leader_end_offset if in_sync else 0
            self.fetched_at_ms = now_ms if in_sync else 0

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        """The follower fetched from `offset`. It was caught up now, or at its last fetch if it has all there was then."""
        if self._left_out_by is not None:
            self._left_out_by.mark(self._left_out_key)  # another request of the follower: the session's next one speaks for itself again
        if offset >= leader_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_fetch:
            self._last_caught_up_ms = max(self._last_caught_up_ms, self.fetched_at_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.leader_end_at_fetch = max(leader_end_offset, self.leader_end_at_fetch)
        self.fetched_at_ms = now_ms
        self.broker_epoch = max(broker_epoch, self.broker_epoch)

    @property
    def last_caught_up_ms(self) -> int:
        """When it held everything the last time."""
        session = self._left_out_by
        return self._last_caught_up_ms if session is None else max(self._last_caught_up_ms, session.last_used_ms)

    def left_out_by(self, session: FollowerSession, key: Any) -> None:
        """The follower has everything. Until `taken_up_by` each request of the session says so again, without a look at this partition.

        Args:
            session: the session that leaves it out.
            key: as the session calls the partition.
        """
        if self._left_out_by is not None:
            self._left_out_by.mark(self._left_out_key)
        self._left_out_by, self._left_out_key = session, key

    def taken_up_by(self, session: FollowerSession) -> None:
        """The session reads the partition again: the leader's log may have grown, or the follower asks for something else."""
        if self._left_out_by is session:
            self._last_caught_up_ms = max(self._last_caught_up_ms, session.last_used_ms)
            self.fetched_at_ms = max(self.fetched_at_ms, session.last_used_ms)
            self._left_out_by = None

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it holds everything, or did so within the lag time."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms


Committed = Callable[[KafkaError | None], None]
"""Called with None when a write is committed, or why it never may be."""


Check = Callable[[memoryview | bytes, TopicConfig, int, int], Validated]
"""Checks a client's batch as `validate` does."""


class Role(enum.Enum):
    """What `Partition.apply` made of the broker."""

    LEADER = "leader of a new epoch"
    FOLLOWER = "follower of a new epoch"
    UNCHANGED = "the role and epoch are as before"


class PartitionOwner(Protocol):
    """What a partition asks of its broker."""

    def is_isr_eligible(self, partition: Partition, node_id: int, broker_epoch: int) -> bool:
        """Whether a broker is alive, unfenced, not shutting down, in the incarnation it fetched with, and has not lost the replica."""

    def has_alive_broker(self, node_id: int) -> bool:
        """Whether a broker is registered and not fenced."""

    def propose_isr(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Asks the controller for another ISR; the answer comes by `isr_committed`, `isr_refused` or `apply`."""


class Partition:
    """A partition, leader or follower; see the rules at the top of the file.

    Attributes:
        key: topic and number, under which operations waiting for this partition are watched.
    """

    def __init__(self, topic: Topic, index: int, node_id: int, log: Log, owner: PartitionOwner, lag_time_max_ms: int) -> None:
        """A replica without a leadership yet; `apply` comes next.

        Args:
            topic: name, id and settings.
            index: the partition's number.
            node_id: this broker.
            log: its log.
            owner: the broker.
            lag_time_max_ms: replica.lag.time.max.ms.
        """
        self.topic = topic
        self.index = index
        self.key = topic.name, index
        self.node_id = node_id
        self.log = log
        self.high_watermark = log.start_offset
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.pending_isr: tuple[int, ...] | None = None
        self.epoch_start_offset = 0
        self.remotes: dict[int, Replica] = {}
        self._owner = owner
        self._lag_time_max_ms = lag_time_max_ms
        self._waiters: deque[tuple[int, Committed]] = deque()
        self._failed: deque[tuple[Committed, KafkaError | None]] = deque()

    # ---- what it is

    @property
    def producers(self) -> ProducerStates:
        """What the log knows of its producers."""
        return self.log.producers

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        return self.topic.config

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads it."""
        return self.leader == self.node_id

    @property
    def last_stable_offset(self) -> int:
        """Records below it are committed and belong to no open transaction."""
        producers = self.log.producers
        if not producers.ongoing and not producers.unreplicated:
            return self.high_watermark
        unstable = producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(self.high_watermark, max(unstable, self.log.start_offset))

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR, with what a proposal under way adds and without what it takes away."""
        if self.pending_isr is None:
            return self.isr
        return (*self.isr, *(node for node in self.pending_isr if node not in self.isr))

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        wanted, replicas = self.topic.config.min_insync_replicas, len(self.remotes) + 1
        return wanted if wanted < replicas else replicas

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused for now."""
        return self.is_leader and len(self.isr) < self.min_isr

    @property
    def low_watermark(self) -> int:
        """The smallest log start of the live replicas: below it records are deleted everywhere."""
        starts = [replica.log_start_offset for node, replica in self.remotes.items() if self._owner.has_alive_broker(node)]
        return min([self.log.start_offset, *starts])

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a peer that knows the partition under another leader epoch.

        Args:
            current_leader_epoch: as the peer knows it; -1 if it does not say.

        Raises:
            FencedLeaderEpoch: the peer's epoch has passed.
            UnknownLeaderEpoch: the peer's epoch is ahead of this broker's.
        """
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise errors.FencedLeaderEpoch(f"leader epoch {current_leader_epoch} has passed; {self.leader_epoch} is current")
        raise errors.UnknownLeaderEpoch(f"leader epoch {current_leader_epoch} is unknown; {self.leader_epoch} is current")

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """`check_epoch`, and refuses what another broker leads.

        Raises:
            NotLeaderOrFollower: this broker does not lead the partition.
            FencedLeaderEpoch, UnknownLeaderEpoch: as `check_epoch`.
        """
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise errors.NotLeaderOrFollower(f"broker {self.node_id} does not lead it; {self.leader} does")

    # ---- leadership

    def apply(self, topic: Topic, registration: PartitionRegistration, now_ms: int) -> Role:
        """Takes over what the controller decided.

        Args:
            topic: with the settings now in force.
            registration: replicas, ISR, leader and epochs.
            now_ms: the time now.

        Returns:
            What this broker became by it.
        """
        self.topic = topic
        new_epoch = registration.leader_epoch > self.leader_epoch
        if registration.leader_epoch < self.leader_epoch or (not new_epoch and registration.partition_epoch < self.partition_epoch):
            return Role.UNCHANGED
        changed = new_epoch or registration.leader != self.leader
        if not changed and registration.partition_epoch == self.partition_epoch:
            return Role.UNCHANGED
        self.leader = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = tuple(registration.replicas)
        self.isr = tuple(registration.isr)
        self.pending_isr = None
        if self.is_leader:
            self._lead(changed, now_ms)
            return Role.LEADER if changed else Role.UNCHANGED
        self.remotes.clear()
        if not changed:
            return Role.UNCHANGED
        self._fail_waiters(errors.NotLeaderOrFollower(f"broker {self.node_id} no longer leads {self.topic.name}-{self.index}"))
        return Role.FOLLOWER

    def _lead(self, new_epoch: bool, now_ms: int) -> None:
        if new_epoch:
            self.epoch_start_offset = self.log.end_offset
            self.log.begin_epoch(self.leader_epoch)
        before = self.remotes
        self.remotes = {node: before.get(node) or Replica() for node in self.replicas if node != self.node_id}
        for node, replica in self.remotes.items():
            if new_epoch or node not in before:
                replica.reset(now_ms, self.log.end_offset, node in self.isr, new_epoch)
        self._advance(now_ms)

    def resign(self, reason: KafkaError) -> None:
        """The partition leaves this broker, or the broker stops: what waits for a commit gets the error."""
        self.leader = NO_LEADER
        self.pending_isr = None
        self.remotes.clear()
        self._fail_waiters(reason)

    # ---- appending

    def check_enough_replicas(self) -> None:
        """Before a write with acks=all.

        Raises:
            NotEnoughReplicas: the ISR is smaller than min.insync.replicas.
        """
        if len(self.isr) < self.min_isr:
            raise errors.NotEnoughReplicas(f"{len(self.isr)} replicas are in sync, {self.min_isr} must be")

    def append(
        self,
        data: memoryview | bytes,
        acks: int,
        version: int,
        wall_ms: int,
        now_ms: int,
        verification: Verification | None = None,
        verification_enabled: bool = True,
        check: Check = validate,
    ) -> Appended:
        """Writes one batch of a client as leader.

        Args:
            data: the records of a Produce request for this partition.
            acks: -1, 0 or 1.
            version: of the Produce request.
            wall_ms, now_ms: the time now.
            verification: with which the coordinator has confirmed the transaction; see `ProducerStates.start_verification`.
            verification_enabled: transaction.partition.verification.enable.
            check: what looks at the batch. What it raises comes out of here, and nothing was written.

        Returns:
            Where it lies; for a resend of one of the producer's last five batches, where that lies.

        Raises:
            BrokerError, CorruptDataError: nothing was written.
        """
        if self.leader != self.node_id:
            self.check_leader()
        if acks == -1 and len(self.isr) <= len(self.remotes):  # else all are in sync
            self.check_enough_replicas()
        batch, max_timestamp_ms, append_time_ms = check(data, self.topic.config, version, wall_ms)
        if batch.producer_id != NO_PRODUCER_ID:
            resent = self.producers.check(batch, verification=verification, verification_enabled=verification_enabled)
            if resent is not None:
                return Appended(resent.first_offset, resent.timestamp_ms, self.log.start_offset, True, resent.last_offset + 1)
        return self._write(batch, append_time_ms, max_timestamp_ms, wall_ms, now_ms)

    def append_messages(
        self, data: memoryview | bytes, acks: int, version: int, wall_ms: int, now_ms: int, magic: int
    ) -> Appended:
        """Writes a message set of an old client as leader, in the format of the release that this broker plays.

        Args:
            data: the message set of a Produce request for this partition.
            acks: -1, 0 or 1.
            version: of the Produce request, 0 to 2.
            wall_ms, now_ms: the time now.
            magic: the format to store.

        Returns:
            Where it lies; base_offset -1 if the set held no whole message.

        Raises:
            BrokerError, CorruptDataError: nothing was written.
        """
        self.check_leader()
        if acks == -1:
            self.check_enough_replicas()
        log = self.log
        base_offset = log.end_offset if magic < messages.BATCH_MAGIC else 0
        taken = messages.taken(data, self.topic.config, magic, messages.newest_magic(version), base_offset, wall_ms)
        if not taken.num_records:
            return Appended(-1, -1, log.start_offset, True, log.end_offset)
        if magic == messages.BATCH_MAGIC:
            (batch,) = read_batches(taken.data, check_crcs=False)
            return self._write(batch, taken.append_time_ms, batch.max_timestamp_ms, wall_ms, now_ms)
        log.append_replicated(taken.data, wall_ms)
        return self._written(base_offset, taken.append_time_ms, now_ms)

    def append_internal(
        self,
        data: memoryview | bytes,
        wall_ms: int,
        now_ms: int,
        *,
        verification: Verification | None = None,
        verification_enabled: bool = True,
        transaction_version: int = 0,
    ) -> Appended:
        """Writes one batch of this broker's own making as leader, under the rules of acks=all.

        Args:
            data: one whole batch.
            wall_ms, now_ms: the time now.
            verification, verification_enabled: of a transactional batch, as for `append`.
            transaction_version: of the transaction that a marker ends.

        Raises:
            BrokerError: nothing was written.
        """
        self.check_leader()
        self.check_enough_replicas()
        if len(data) > self.config.max_message_bytes:
            raise errors.RecordTooLarge(f"the batch has {len(data)} bytes, max.message.bytes is {self.config.max_message_bytes}")
        batch = next(iter(read_batches(data, check_crcs=False)))
        if batch.is_control:
            self.producers.check_marker(batch.producer_id, batch.producer_epoch, coordinator_epoch(batch), transaction_version)
        elif batch.producer_id != NO_PRODUCER_ID:
            self.producers.check(batch, AppendOrigin.COORDINATOR, verification, verification_enabled=verification_enabled)
        return self._write(batch, None, batch.max_timestamp_ms, wall_ms, now_ms)

    def _write(self, batch: Batch, append_time_ms: int | None, max_timestamp_ms: int, wall_ms: int, now_ms: int) -> Appended:
        base_offset = self.log.append(batch, self.leader_epoch, append_time_ms, max_timestamp_ms=max_timestamp_ms, wall_ms=wall_ms)
        return self._written(base_offset, append_time_ms, now_ms)

    def _written(self, base_offset: int, append_time_ms: int | None, now_ms: int) -> Appended:
        log = self.log
        if self.remotes or log.producers.unreplicated or not self.isr:
            self._advance(now_ms)
        else:
            self.high_watermark = log.end_offset              # what _advance comes to for the only replica
        end_offset = log.end_offset
        committed = self.high_watermark >= end_offset and len(self.isr) > len(self.remotes)
        return Appended(base_offset, -1 if append_time_ms is None else append_time_ms, log.start_offset, False, end_offset, committed)

    def when_committed(self, required_offset: int, done: Committed) -> None:
        """Has `settle` call `done(None)` when the high watermark has reached an offset, `done(error)` if leadership ends before."""
        self._waiters.append((required_offset, done))

    def _fail_waiters(self, reason: KafkaError) -> None:
        self._failed.extend((done, reason) for _, done in self._waiters)
        self._waiters.clear()

    def has_waiters(self) -> bool:
        """Whether `settle` may have something to call."""
        return bool(self._failed or self._waiters)

    def settle(self) -> None:
        """Calls those that waited for what has happened. They may write again: nothing here is half done while they run."""
        while True:
            if self._failed:
                done, outcome = self._failed.popleft()
            elif self._waiters and self._waiters[0][0] <= self.high_watermark:
                done, outcome = self._waiters.popleft()[1], None
            else:
                return
            try:
                done(outcome)
            except Exception:  # what completed the wait, another request or the loop, must not suffer from it
                logger.exception("partition %s-%d: a callback of a write failed", *self.key)

    # ---- the leader's view of its followers

    def _advance(self, now_ms: int) -> bool:
        """Raises the high watermark as far as rules 1 and 3 allow."""
        end_offset = self.log.end_offset
        if self.high_watermark >= end_offset or (self.is_under_min_isr if self.remotes else not self.isr):
            return False
        maximal = self.maximal_isr
        reached = end_offset
        for node, replica in self.remotes.items():
            if replica.log_end_offset < reached and (
                node in maximal
                or (
                    replica.is_caught_up(end_offset, now_ms, self._lag_time_max_ms)
                    and self._owner.is_isr_eligible(self, node, replica.broker_epoch)
                )
            ):
                reached = replica.log_end_offset
        if reached <= self.high_watermark:
            return False
        self._set_high_watermark(reached)
        return True

    def _set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.producers.high_watermark_updated(offset)

    def restore_high_watermark(self, offset: int) -> None:
        """Takes over a high watermark for a log that was read again, whose producers know nothing of it yet.

        Args:
            offset: as far as is known; the log's start and end bound it.
        """
        self._set_high_watermark(max(self.log.start_offset, min(offset, self.log.end_offset)))

    def replica(self, node_id: int) -> Replica:
        """What is known of a follower.

        Raises:
            NotLeaderOrFollower: it holds no replica of the partition.
        """
        found = self.remotes.get(node_id)
        if found is None:
            raise errors.NotLeaderOrFollower(f"broker {node_id} is none of the replicas {list(self.replicas)}")
        return found

    def follower_fetched(
        self, node_id: int, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """A follower asked for what comes after `offset`: it has everything before.

        Args:
            node_id: the follower.
            offset: where it reads on.
            log_start_offset: of its log.
            leader_end_offset: of this log when the fetch was served.
            broker_epoch: the incarnation of the follower; -1 if it does not say.
            now_ms: the time now.

        Returns:
            Whether the high watermark or the low watermark may have risen by it.

        Raises:
            NotLeaderOrFollower: it is no replica, or an old incarnation speaks.
        """
        replica = self.replica(node_id)
        if 0 <= broker_epoch < replica.broker_epoch:
            raise errors.NotLeaderOrFollower(f"broker {node_id} fetches with epoch {broker_epoch}; {replica.broker_epoch} is known")
        before, low_before = replica.log_end_offset, replica.log_start_offset
        replica.fetched(offset, log_start_offset, leader_end_offset, broker_epoch, now_ms)
        self._maybe_expand_isr(node_id, replica)
        moved = self._advance(now_ms) if replica.log_end_offset != before or self.high_watermark < self.log.end_offset else False
        return moved or log_start_offset != low_before

    def _maybe_expand_isr(self, node_id: int, replica: Replica) -> None:
        if (
            self.pending_isr is None
            and node_id not in self.isr
            and replica.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
            and self._owner.is_isr_eligible(self, node_id, replica.broker_epoch)
        ):
            self._propose((*self.isr, node_id))

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Proposes an ISR without the followers that have not caught up for the lag time."""
        if not self.is_leader or self.pending_isr is not None:
            return
        end_offset = self.log.end_offset
        kept = tuple(
            node
            for node in self.isr
            if node == self.node_id or (node in self.remotes and self.remotes[node].is_caught_up(end_offset, now_ms, self._lag_time_max_ms))
        )
        if kept != self.isr:
            self._propose(kept)

    @property
    def is_at_rest(self) -> bool:
        """Whether time alone changes nothing: the replicas of the ISR have everything, and it is committed."""
        end_offset, remotes = self.log.end_offset, self.remotes
        return self.high_watermark >= end_offset and all(
            node == self.node_id or (node in remotes and remotes[node].log_end_offset == end_offset) for node in self.isr
        )

    def _propose(self, isr: tuple[int, ...]) -> None:
        self.pending_isr = isr  # first: the answer may come within the call
        self._owner.propose_isr(self, isr)

    def isr_committed(self, leader_epoch: int, partition_epoch: int, isr: list[int], now_ms: int) -> bool:
        """The controller accepted a proposal.

        Returns:
            Whether the high watermark rose by it.
        """
        if leader_epoch != self.leader_epoch or partition_epoch <= self.partition_epoch or not self.is_leader:
            return False  # the image was faster, or the leadership has ended
        self.partition_epoch = partition_epoch
        self.isr = tuple(isr)
        self.pending_isr = None
        return self._advance(now_ms)

    def isr_refused(self, leader_epoch: int) -> None:
        """The controller said no for now: the next fetch or check may propose again."""
        if leader_epoch == self.leader_epoch:
            self.pending_isr = None

    def look_again(self, now_ms: int) -> bool:
        """Time has passed or brokers changed: a replica that the high watermark waited for may not count any more.

        Returns:
            Whether the high watermark rose.
        """
        return self.is_leader and self._advance(now_ms)

    # ---- following

    def append_as_follower(self, data: Any, high_watermark: int, log_start_offset: int, wall_ms: int) -> bool:
        """Writes what the leader sent, as it is.

        Args:
            data: whole batches that begin at the end of this log; may be empty or None.
            high_watermark, log_start_offset: the leader's.
            wall_ms: the time now.

        Returns:
            Whether the log's end or start or the high watermark moved.

        Raises:
            CorruptDataError: the batches are damaged; the good ones before stay.
            KafkaStorage: they cannot be written.
        """
        log = self.log
        before = log.end_offset, self.high_watermark, log.start_offset
        if data is not None and len(data):
            self._begin_with(data, log_start_offset)
            first = log.end_offset
            log.append_replicated(data, wall_ms)
            if log.end_offset > first and data[_MAGIC_AT] < _FIRST_MAGIC_WITH_EPOCHS:
                log.epoch_written(self.leader_epoch, first)  # or this log would seem to part from the next leader's, again and again
        reached = min(high_watermark, log.end_offset)
        if reached > self.high_watermark:
            self._set_high_watermark(reached)
        log.advance_start(min(log_start_offset, self.high_watermark))
        return (log.end_offset, self.high_watermark, log.start_offset) != before

    def _begin_with(self, data: memoryview | bytes, leader_start_offset: int) -> None:
        """DeleteRecords may let the leader's log begin inside a batch: a log that holds nothing of the leader's begins with all of it."""
        if self.log.end_offset <= max(self.log.start_offset, leader_start_offset):
            first = next(iter(read_batches(data, check_crcs=False)), None)
            if first is not None and first.base_offset < self.log.end_offset <= first.last_offset:
                self.restart_at(first.base_offset)

    def truncate(self, offset: int) -> None:
        """Drops the records from an offset on, and the leader epochs that begin there."""
        self.log.truncate_to(offset)
        self.restore_high_watermark(self.high_watermark)

    def restart_at(self, offset: int) -> None:
        """Drops all records; the leader's log begins later than this one ended."""
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

    def truncation_offset(self, epoch: int, end_offset: int) -> int:
        """Where this log stops being the leader's, as far as one answer of the leader tells.

        Args:
            epoch, end_offset: the leader's largest epoch not above the one asked for, and where it ended there.

        Source: KIP-279; org.apache.kafka.server.AbstractFetcherThread.getOffsetTruncationState.
        """
        own_end = self.log.end_offset
        if end_offset < 0:
            return min(self.high_watermark, own_end)
        if epoch < 0:
            return min(end_offset, own_end)
        own_epoch, own_epoch_end = self.log.end_offset_for_epoch(epoch)
        if own_epoch < 0 and own_epoch_end < 0:
            return min(end_offset, own_end)
        if own_epoch != epoch:
            # The leader names an epoch that is not here: back to the end of the one before, and the next fetch asks about that.
            return min(own_epoch_end, own_end)
        return min(own_epoch_end, end_offset, own_end)

    # ---- reading

    def upper_offset(self, isolation_level: int) -> int:
        """How far a consumer may read: the last stable offset for read_committed, else the high watermark."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def delete_records(self, offset: int) -> int:
        """Moves the log's start up, as leader.

        Args:
            offset: the new start; -1 for the high watermark.

        Returns:
            The new start.

        Raises:
            OffsetOutOfRange: it lies above the high watermark.
            NotLeaderOrFollower: another broker leads.
            PolicyViolation: the topic is compacted, and nothing else deletes its records.
        """
        self.check_leader()
        if "delete" not in self.config.cleanup_policy:
            raise errors.PolicyViolation(f"records of a topic with cleanup.policy={self.config.cleanup_policy} cannot be deleted")
        wanted = self.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > self.high_watermark:
            raise errors.OffsetOutOfRange(f"offset {offset} is not between 0 and the high watermark {self.high_watermark}", offset=offset)
        self.log.advance_start(wanted)
        return wanted
