"""The consumer's part in its group: membership, commits, and what the polling thread does for them.

The thread that drives the network calls `step`: the polling thread inside a call, the background thread between two calls. Only the
polling thread calls `enter_poll` and `carry_out`, which call the application.

What is committed automatically is what the application has processed: the records of the poll before the one that is running. Between two
polls the records of the last one are still being worked on: `reached` says where they began.

Source: Kafka's ConsumerCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from kafkacore import errors
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.group.commits import Commit, OffsetCommits
from kafkacore.consumer.group.listener import RebalanceListener
from kafkacore.consumer.group.member_health import (
    LONG_COMMIT_MS,
    MemberHealth,
    commit_wait,
    coordinator_problem,
    member_health,
    member_problems,
)
from kafkacore.consumer.group.membership import Change, GroupSettings, Membership
from kafkacore.consumer.group.stats import GroupStats
from kafkacore.consumer.group.topic_ids import TopicIds
from kafkacore.consumer.subscription import Mode, PartitionState, SubscriptionState
from kafkacore.net.client import NetworkClient
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.net.driver import CallerDriver
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("kafkacore.consumer")

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], errors.KafkaError | None], object]
_NEVER_MS = 2**62
_TOPIC_GONE = (errors.UnknownTopicOrPartition, errors.UnknownTopicId)
_MANAGED = (Mode.TOPICS, Mode.PATTERN, Mode.BROKER_PATTERN)


class GroupMember:
    """A consumer's part in its group.

    Args:
        config: the consumer's settings, with a group id.
        driver: of the network.
        subscription: what is read and where it stands.
        membership: the engine of the group's protocol, made from link and settings; None for a consumer that only commits.
        assigned: called on the polling thread when the assignment has changed.
        reached: from which offset on a partition's records are still being worked on; None where those before the position are processed.
        on_commit: called on the polling thread with offsets that were committed; None for nothing.

    Attributes:
        stats: for the metrics.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        driver: CallerDriver,
        subscription: SubscriptionState,
        *,
        membership: Callable[[CoordinatorLink, GroupSettings], Membership],
        assigned: Callable[[], None],
        reached: Callable[[PartitionState], int | None],
        on_commit: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] | None = None,
    ) -> None:
        group_id = config.group_id
        if group_id is None:
            raise errors.InternalError("a member without a group")
        self.group_id = group_id
        self._config = config
        self._driver = driver
        self._subscription = subscription
        self._assigned = assigned
        self._reached = reached
        first_ms, longest_ms = config.retry_backoff_ms, config.retry_backoff_max_ms
        self.link = CoordinatorLink(driver.client, group_id, retry_backoff_ms=first_ms, retry_backoff_max_ms=longest_ms)
        settings = self._settings = GroupSettings(
            group_id,
            config.group_instance_id,
            config.session_timeout_ms,
            config.heartbeat_interval_ms,
            config.max_poll_interval_ms,
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
            config.request_timeout_ms,
            config.client_rack,
        )
        self.membership = membership(self.link, settings)
        self._topics = TopicIds(subscription, driver.metadata)
        self.commits = OffsetCommits(
            self.link,
            group_id,
            self.identity,
            self._topics,
            retry_backoff_ms=first_ms,
            retry_backoff_max_ms=longest_ms,
            names_member=config.group_protocol == "consumer",
            refused=self.membership.commit_refused,
            assigned=lambda tp: tp in subscription.partitions,
            taken=self._note_committed,
        )
        self._on_commit = on_commit
        self.commits.notes_all = on_commit is not None
        self.stats = GroupStats()
        self.listener: RebalanceListener | None = None
        self._next_commit_ms = _NEVER_MS
        self._committed: dict[TopicPartition, int] = {}
        self._auto: Commit | None = None
        self._carrying: Change | None = None
        self._stage = 0
        self._commit_before: Commit | None = None  # of the change that is being carried out, until it is answered
        self._commit_until_ms = 0
        self._commit_since_ms = 0
        self._noted_wait = False
        self._announced: frozenset[TopicPartition] = frozenset()
        self._calling = ""
        self._silent = False
        self._out_since_breach = False  # from the poll that raised MaxPollExceeded until the next one
        self._raised: BaseException | None = None
        self._leaves = ""  # why this member leaves, until it has left
        self._due_ms = 0
        self._seen_answers = -1

    @property
    def managed(self) -> bool:
        """The group assigns the partitions; False with `assign`, where the group only keeps offsets."""
        return self._subscription.mode in _MANAGED

    @property
    def gives_up(self) -> bool:
        """The commit before partitions are given up has no answer yet: of these nothing may be handed out any more."""
        return self._commit_before is not None

    def identity(self) -> ConsumerGroupMetadata:
        return self.membership.metadata if self.managed else ConsumerGroupMetadata(self.group_id)

    def start_anew(self, client: NetworkClient) -> None:
        """The call before was interrupted: what was under way is sent again. A member that was leaving leaves."""
        self.membership.start_anew(client)
        self.commits.start_anew()
        self._auto = None
        if self._leaves:
            self._depart(self._driver.clock.now_ms())
            self._subscription.unsubscribe()

    # -- by the driving thread ----------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> None:
        """Sends what is due: joins, heartbeats, commits. Calls no application code and raises nothing of theirs."""
        if self.managed:
            self.membership.step(now_ms)
        self._commit_automatically(now_ms)
        self.commits.step(now_ms)
        self.stats.look(self.membership, now_ms)
        wake_ms = self.next_wake_ms(now_ms)
        self._due_ms = _NEVER_MS if wake_ms is None else now_ms + wake_ms
        self._seen_answers = self.link.answers

    def due(self, now_ms: int) -> bool:
        """True when `step` or `carry_out` has something to do."""
        link = self.link
        if now_ms >= self._due_ms or link.answers != self._seen_answers or self.membership.change is not None:
            return True
        return link.awaited is not None and link.can_go_on(now_ms)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes."""
        waits = [self.membership.next_wake_ms(now_ms)] if self.managed else []
        waits.append(self.commits.next_wake_ms(now_ms))
        if self._next_commit_ms < _NEVER_MS and self._auto is None:
            waits.append(max(0, self._next_commit_ms - now_ms))
        known = [w for w in waits if w is not None]
        return min(known) if known else None

    def _commit_automatically(self, now_ms: int) -> None:
        if not self._config.enable_auto_commit:
            return
        auto = self._auto
        if auto is not None and auto.done:
            self._auto = None
            if auto.error is None:
                pass
            elif isinstance(auto.error, _TOPIC_GONE):
                log.info("group %s: auto-commit: %s", self.group_id, auto.error)  # the others are committed
            elif auto.error.retriable or isinstance(auto.error, errors.StaleMemberEpoch):
                self._next_commit_ms = now_ms + self._config.retry_backoff_ms
            else:
                log.warning("group %s: auto-commit failed: %s", self.group_id, auto.error)
        if not self._subscription.partitions or (self.managed and not self.membership.joined):
            self._next_commit_ms = _NEVER_MS  # nothing to commit, or no member that may
            return
        if self._next_commit_ms == _NEVER_MS:
            self._next_commit_ms = now_ms + self._config.auto_commit_interval_ms
        if now_ms < self._next_commit_ms or self._auto is not None:
            return
        self._next_commit_ms = now_ms + self._config.auto_commit_interval_ms
        offsets = self.processed()
        if offsets:
            self._auto = self.commits.commit(offsets, retried=False)

    def _note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """What is committed by now, of what is still this member's: what it gave up since then others may have committed."""
        assigned = self._subscription.partitions
        self._committed.update((tp, found.offset) for tp, found in offsets.items() if tp in assigned)

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the application has processed and is not committed yet, as far as the client can know. A commit of the application that is
        under way counts: what is sent behind it would take its offsets back."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        committed, reached = self._committed, self._reached
        under_way = self.commits.under_way()
        topics = self._topics
        current, any_before = topics.current(), topics.any_before
        for tp, state in self._subscription.partitions.items():
            if not state.has_position or (any_before and topics.is_before(tp)):
                continue
            topic_id = state.topic_id
            if topic_id and current[tp.topic] != topic_id and topics.replaced(tp, topic_id):
                continue
            offset, epoch = state.offset, state.offset_epoch
            begun = reached(state)
            if begun is not None and begun < offset:
                if begun < committed.get(tp, begun) <= offset or begun < under_way.get(tp, begun) <= offset:
                    continue  # the application has committed some of them itself
                offset, epoch = begun, state.epoch_before(begun)
            if committed.get(tp) != offset:
                found[tp] = OffsetAndMetadata(offset, leader_epoch=epoch if epoch >= 0 else None)
        return found

    def start_over(self, tp: TopicPartition, topic_id: bytes) -> None:
        """The topic was deleted and created again: what was committed or processed of the one before, with this id, does not count."""
        self._committed.pop(tp, None)
        self._topics.started_over(tp, topic_id)

    # -- by the polling thread ----------------------------------------------------------------------------------------------------

    def enter_poll(self, now_ms: int) -> None:
        """The application polls.

        Raises:
            errors.IllegalStateError: the listener is being called.
            errors.MaxPollExceeded: the member left its group since the application did not poll; the next poll joins again.
            errors.KafkaError: the coordinator refused for good; the next poll tries again.
        """
        if self._calling:
            self.refuse_inside_listener("poll")
        if self.commits.answered:
            self.call_back()
        if self._subscription.mode not in _MANAGED:
            return
        membership = self.membership
        self._out_since_breach = membership.breached
        if membership.breached:
            membership.breached = False
            raise errors.MaxPollExceeded(
                f"{self._not_polled()}, so this member left group {self.group_id} and its partitions went to others; the next poll joins "
                "again. Do less between two polls, lower max_poll_records or raise max_poll_interval_ms"
            )
        phase = membership.phase
        membership.polled(now_ms)
        if membership.phase is not phase:  # it joins again: what is held may be another member's by now
            self._due_ms = 0
        if membership.failure is not None or self.link.failure is not None:
            self.raise_failure()

    def poll_on(self, now_ms: int) -> None:
        """The application still waits in poll.

        Raises:
            errors.KafkaError: the coordinator refused for good.
        """
        if self.commits.answered:
            self.call_back()
        if self.managed:
            self.raise_failure()

    def poll_ends(self) -> None:
        """A poll has waited in vain.

        Raises:
            errors.FencedInstanceId: another process has this member's group_instance_id: nothing will come of this subscription.
        """
        fenced = self.membership.fenced
        if fenced is not None and self.managed and not self.membership.joined:
            raise fenced

    def still_polling(self, now_ms: int) -> None:
        """Before a step inside poll: a caller that waits there for longer than max_poll_interval_ms has polled all the same."""
        if self.managed:
            self.membership.polled(now_ms)

    def refuse_inside_listener(self, call: str) -> None:
        """For calls that would change what is just being carried out.

        Raises:
            errors.IllegalStateError: the listener is being called.
        """
        if self._calling:
            raise errors.IllegalStateError(
                f"{call} inside {self._calling} of the rebalance listener of group {self.group_id}: the assignment is just being changed; "
                "do it after poll has returned"
            )

    @property
    def has_news(self) -> bool:
        """True when the next step calls the listener, or raises."""
        membership = self.membership
        return self.managed and (membership.change is not None or membership.failure is not None or self.link.failure is not None)

    def rejoin(self, reason: str) -> None:
        """Makes the group rebalance with the next poll."""
        self.membership.rejoin(reason)
        self._due_ms = 0

    def health(self, now_ms: int) -> tuple[MemberHealth | None, list[str]]:
        """How the member stands, None with `assign`; and what is wrong, one sentence each."""
        unknown = coordinator_problem(self.link, self.group_id, now_ms)
        problems = [unknown] if unknown else []
        if not self.managed:
            return None, problems
        member = member_health(self.membership, self.link, self._settings, now_ms)
        commit = self._commit_before
        if commit is not None:
            waiting_ms = now_ms - self._commit_since_ms
            member = member._replace(waits_for=commit_wait(commit.offsets, commit.error), waiting_ms=waiting_ms)
        joined, fenced = self.membership.joined, self.membership.fenced is not None
        return member, problems + member_problems(member, self._settings, joined=joined, commits=commit is not None, fenced=fenced)

    def silence(self) -> None:
        """Calls no listener, callback or interceptor any more."""
        self._silent = True

    def describe(self) -> str:
        """In a few words; any thread may ask."""
        if not self.managed:
            return f"group {self.group_id}"
        membership = self.membership
        identity = membership.metadata
        who = f" {identity.member_id} generation {identity.generation_id}" if membership.joined else ""
        return f"group {self.group_id}: member{who} {membership.phase.value}"

    def raise_failure(self) -> None:
        """Raises what the coordinator refused for good, once."""
        failure = self.membership.failure or self.link.failure
        if failure is not None:
            if (change := self.membership.change) is not None and change.lost:
                self.carry_out(_NEVER_MS)  # a failure that every poll raises: the application hears first what it has lost
            self.membership.failure = self.link.failure = None
            raise failure

    def call_back(self) -> None:
        """Interceptors and callbacks hear of the commits that were answered, in their order."""
        while self.commits.answered:
            commit = self.commits.answered.popleft()
            if self._silent:
                continue
            if self._on_commit is not None and commit.error is None and commit.offsets:
                self._on_commit(commit.offsets)
            if commit.callback is not None:
                commit.callback(commit.offsets, commit.error)

    def carry_out(self, deadline_ms: int) -> None:
        """Does what the membership wants to change. An interrupt at any stage leaves the rest to the next poll; nothing is called twice.

        Args:
            deadline_ms: when poll has to return. It waits for a commit; what is left then is the next poll's, and nothing is handed out
                until then.

        Raises:
            Exception: what the listener raised; the change is carried out all the same.
        """
        while (change := self.membership.change) is not None and not self._calling:
            if self._carrying is not change:
                self._take_up(change)
                continue
            if self._stage == 0:
                if change.revoked and not change.lost and not self._committed_before(change, deadline_ms):
                    return
                if self.membership.change is not change:  # the generation was lost during the change
                    continue
                self._stage = 1
            if self._stage == 1:
                revoked = change.revoked - self._announced
                self._announced |= revoked
                self._stage = 2
                if revoked:
                    self._call("on_partitions_lost" if change.lost else "on_partitions_revoked", revoked)
            if self._stage == 2:
                for tp in change.revoked | (change.added or frozenset()):
                    self._committed.pop(tp, None)
                self._subscription.set_assignment(change.assignment)
                self._assigned()
                self._stage = 3
            if self._stage == 3:
                self._stage = 4
                back = self._announced & change.assignment  # given up for a change that this one replaced, and kept after all
                if change.added is not None or back:
                    self._call("on_partitions_assigned", back | (change.added or frozenset()))
            self._end_change(change)
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised

    def _take_up(self, change: Change) -> None:
        """Begins with a change. Another one that was interrupted before counts as carried out if its assignment had been made."""
        before = self._carrying
        if before is not None and self._stage >= 3:
            self._end_change(before)
            return
        self._stage = 0
        self._carrying = change
        self._drop_commit_before()

    def _end_change(self, change: Change) -> None:
        self._stage = 0
        self._carrying = None
        self._announced = frozenset()
        self.membership.carried_out(change, self._driver.clock.now_ms())

    def _call(self, method: str, partitions: Collection[TopicPartition]) -> None:
        """Calls the listener; what it raises comes after the change."""
        if self.listener is None or self._silent:
            return
        self._calling = method
        try:
            getattr(self.listener, method)(sorted(partitions))
        except Exception as error:
            log.exception("group %s: %s of the listener failed", self.group_id, method)
            self._raised = self._raised or error
        finally:
            self._calling = ""

    def _committed_before(self, change: Change, deadline_ms: int) -> bool:
        """Commits what was processed before partitions go to other members. False when poll has to return before the answer is here."""
        now_ms = self._driver.clock.now_ms()
        commit = self._commit_before
        if commit is None:
            if not self._config.enable_auto_commit or not self.membership.joined:
                return True
            offsets = {tp: found for tp, found in self.processed().items() if tp in change.revoked}
            commit = self._commit_before = self.commits.commit(offsets, retried=True, gives_up=True)
            self._commit_until_ms = now_ms + min(self._config.default_api_timeout_ms, self._config.max_poll_interval_ms // 2)
            self._commit_since_ms, self._noted_wait = now_ms, False
        until_ms = min(deadline_ms, self._commit_until_ms)
        error: errors.KafkaError | None = None
        try:
            if not self._driver.run(self._advance_to_give_up, lambda: commit.done, max(0, until_ms - now_ms)):
                if until_ms < self._commit_until_ms:
                    return False
                error = commit.error or errors.KafkaTimeoutError("no answer in time")
        except (errors.WakeupError, errors.ClosedError):  # the next poll waits on; closing commits what is still owned
            raise
        except errors.KafkaError as cause:
            error = cause
        self._drop_commit_before()
        self.call_back()
        if (error := error or commit.error) is not None:
            self._log_not_committed("the rebalance", error)
        return True

    def _advance_to_give_up(self, now_ms: int) -> int | None:
        """As `_advance`; says once what a poll waits for that hands out nothing."""
        wake_ms = self._advance(now_ms)
        commit = self._commit_before
        if commit is None or self._noted_wait:
            return wake_ms
        left_ms = self._commit_since_ms + LONG_COMMIT_MS - now_ms
        if left_ms > 0:
            return left_ms if wake_ms is None else min(left_ms, wake_ms)
        self._noted_wait = True
        log.warning("group %s: poll() hands out nothing, it waits for %s", self.group_id, commit_wait(commit.offsets, commit.error))
        return wake_ms

    def _log_not_committed(self, when: str, error: errors.KafkaError) -> None:
        if isinstance(error, _TOPIC_GONE):  # no records that could come twice; the offsets of other topics are committed
            log.info("group %s: at the commit before %s: %s", self.group_id, when, error)
        else:
            log.warning("group %s: the commit before %s failed, records may come twice: %s", self.group_id, when, error)

    def _drop_commit_before(self) -> None:
        commit, self._commit_before = self._commit_before, None
        if commit is not None and not commit.done:
            self.commits.give_up(commit)

    # -- commits ------------------------------------------------------------------------------------------------------------------

    def consumed(self, unread: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions that have one: what `commit()` without offsets commits.

        Args:
            unread: the first offset that a `for` loop has not reached yet, of the partitions of which it has not reached all.
        """
        found = {}
        any_before = self._topics.any_before
        for tp, state in self._subscription.partitions.items():
            if any_before and self._topics.is_before(tp):
                continue
            offset = unread.get(tp)
            if offset is not None and state.has_position and offset < state.offset:  # else of a topic that was created again since
                epoch = state.epoch_before(offset)
                found[tp] = OffsetAndMetadata(offset, leader_epoch=epoch if epoch >= 0 else None)
            elif state.has_position:
                found[tp] = OffsetAndMetadata(state.offset, leader_epoch=state.offset_epoch if state.offset_epoch >= 0 else None)
        return found

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        """Commits and waits.

        Raises:
            errors.CommitFailed: this consumer is not a member any more.
            errors.RebalanceInProgress: the group is rebalancing.
            errors.KafkaTimeoutError: no answer in time.
        """
        self._check_member()
        commit = self.commits.commit(offsets, retried=True, last=bool(self._leaves))
        try:
            in_time = self._driver.run(self._advance, lambda: commit.done, timeout_ms)
        except BaseException:
            self.commits.give_up(commit)
            raise
        if not in_time:
            self.commits.give_up(commit)
            raise errors.KafkaTimeoutError(
                f"no answer to the commit for group {self.group_id} in time; it may still be carried out",
                attempts=[e for e in (commit.error, *self.link.attempts, *self._driver.attempts()) if e is not None],
            )
        self.call_back()
        if commit.error is not None:
            raise commit.error

    def commit_async(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None) -> None:
        """Commits without waiting; the callback comes with a later poll, commit or close, in the order of the calls."""
        self._check_member()
        commit = self.commits.commit(offsets, callback=callback or self._report, retried=False)
        now_ms = self._driver.clock.now_ms()
        self._driver.client.catch_up(now_ms)
        self.commits.step(now_ms)
        self._driver.client.poll(0, now_ms)
        if isinstance(commit.error, errors.UsageError):
            self.commits.answered.remove(commit)
            raise commit.error

    def _report(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: errors.KafkaError | None) -> None:
        if error is not None:
            log.error("group %s: commit_async of %d partitions failed: %s", self.group_id, len(offsets), error)

    def _check_member(self) -> None:
        if self.managed and not self.membership.joined:
            fenced = self.membership.fenced
            if fenced is not None:
                raise errors.CommitFailed(fenced.message, attempts=[fenced])
            why = f": {self._not_polled()}, so it left" if self.membership.breached or self._out_since_breach else ""
            raise errors.CommitFailed(
                f"this consumer is not a member of group {self.group_id} (any more){why}. poll() joins. Its partitions may belong to "
                "another member, which goes on from the last committed offset"
            )

    def _not_polled(self) -> str:
        return f"poll() was not called for max_poll_interval_ms ({self._settings.max_poll_interval_ms} ms)"

    def committed(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed for these partitions.

        Raises:
            errors.KafkaTimeoutError: no answer in time.
        """
        query = self.commits.fetch(partitions)
        try:
            in_time = self._driver.run(self._advance, lambda: query.done, timeout_ms)
        finally:
            self.commits.forget(query)
        if query.error is not None:
            raise query.error
        if not in_time:
            raise errors.KafkaTimeoutError(
                f"no committed offsets of group {self.group_id} in time",
                attempts=[e for e in (query.last_error, *self.link.attempts, *self._driver.attempts()) if e is not None],
            )
        return query.results

    def _advance(self, now_ms: int) -> int | None:
        self.step(now_ms)
        return self.next_wake_ms(now_ms)

    # -- leaving ------------------------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int) -> None:
        """Leaves the group, and waits for the commits that are under way; a consumer without a membership commits what was processed.

        Raises:
            Exception: what the listener or a callback raised.
        """
        clock = self._driver.clock
        deadline_ms = clock.now_ms() + timeout_ms
        try:
            if self.managed:
                self.leave("the consumer is closed", timeout_ms)
            elif self._config.enable_auto_commit and (offsets := self.processed()):
                self.commit(offsets, timeout_ms)
        except errors.KafkaError as error:
            log.warning("group %s: %s", self.group_id, error)
        except Exception:  # not Ctrl+C, after which nothing is waited for
            self._end_commits(deadline_ms)
            raise
        self._end_commits(deadline_ms)

    def _end_commits(self, deadline_ms: int) -> None:
        try:
            self._driver.run(self._advance, lambda: self.commits.idle, max(0, deadline_ms - self._driver.clock.now_ms()))
        except errors.KafkaError as error:
            log.warning("group %s: commits were under way when the consumer was closed: %s", self.group_id, error)
        self.call_back()

    def begin_to_leave(self, reason: str) -> None:
        """From now on the member leaves even if `leave` is interrupted: then before the next call, which finds nothing subscribed to."""
        if self.managed:
            self._leaves = reason

    def leave(self, reason: str, timeout_ms: int) -> None:
        """Gives all partitions up and leaves the group: commits what was processed, calls the listener, tells the coordinator.

        Raises:
            Exception: what the listener raised; the member has left all the same.
        """
        if not self.managed:
            return
        clock = self._driver.clock
        deadline_ms = clock.now_ms() + timeout_ms
        owned = frozenset(self._subscription.partitions) - self._announced
        lost = not self.membership.joined
        self.begin_to_leave(reason)
        self.membership.hold()
        try:
            if owned and not lost and self._config.enable_auto_commit and (offsets := self.processed()):
                self.commit(offsets, timeout_ms)
            if not lost and not self.commits.idle:  # those of commit_async: afterwards they name no member
                self._driver.run(self._advance, lambda: self.commits.idle, max(0, deadline_ms - clock.now_ms()))
        except errors.KafkaError as error:
            self._log_not_committed("leaving", error)
        finally:
            try:
                if owned:
                    self._call("on_partitions_lost" if lost else "on_partitions_revoked", owned)
            finally:
                now_ms = clock.now_ms()
                self._depart(now_ms)
        try:
            self._driver.run(self._advance, lambda: not self.membership.leaving, max(0, deadline_ms - now_ms))
        except errors.KafkaError as error:
            log.warning("group %s: the coordinator has not heard that this member leaves: %s", self.group_id, error)
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _depart(self, now_ms: int) -> None:
        self.membership.leave(now_ms, self._leaves)
        self._drop_commit_before()
        self._committed.clear()
        self._stage = 0
        self._carrying = None
        self._announced = frozenset()
        self._leaves = ""
        self._out_since_breach = False
