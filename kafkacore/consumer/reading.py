"""The loop of a call that reads, and what goes on between two calls.

    wait(collect)   step: metadata -> group -> positions -> fetches sent; then collect, or wait for the network and again. Where nothing
                    but a fetch was answered: fetches sent, then collect
    drive()         the same step, by the background thread while no call is running

Rules:
1. Before records are returned, the next fetch is sent, so that it travels while the caller works. A caller that has come straight back
   gets a few records first, and its next call sends the fetch. If it stays away that time, one fetch's time is lost.
   [test_the_next_fetch_is_on_its_way_while_a_slow_caller_works,
   test_records_reach_a_caller_that_comes_straight_back_before_the_next_fetch_is_sent]
2. A step is taken when it has something to do. Work that arrives shows in `_is_settled`, work that falls due in `_step_ms`. After any other
   call than one that reads, and after an error or Ctrl+C, neither is relied on. Records that are there already are returned without a step.
   [test_polls_in_a_row_take_no_step_before_one_is_due, test_a_poll_after_another_call_takes_a_step,
   test_a_poll_after_one_that_raised_takes_a_step, test_heartbeats_are_sent_when_due_by_polls_that_take_no_step]
3. Before an error is raised, what it is not about goes on: fetches are sent, so that a caller that polls on is served.
   [test_a_fetch_is_on_its_way_when_an_error_is_raised, test_every_way_of_reading_goes_on_with_the_neighbours]
4. What goes wrong in the background is raised by the next call. The thread itself goes on with heartbeats.
   [test_a_failure_in_the_background_is_raised_and_heartbeats_go_on]
5. Records that the fetcher has given are in hand until the caller has them: an error or Ctrl+C on the way gives them back.
   [test_ctrl_c_in_a_deserializer_loses_no_record, test_ctrl_c_at_every_line_that_hands_records_over]

Source: Kafka's KafkaConsumer.poll and ConsumerNetworkThread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kafkacore import errors
from kafkacore._codec import SampledStat
from kafkacore.consumer.arguments import milliseconds
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.group.background import BackgroundThread
from kafkacore.consumer.group.member import GroupMember
from kafkacore.consumer.offsets import PositionKeeper
from kafkacore.consumer.out_of_range import with_range
from kafkacore.consumer.subscription import FetchState, Mode, SubscriptionState
from kafkacore.consumer.topics import TopicWatch
from kafkacore.net.driver import CallerDriver
from kafkacore.types import TopicPartition

T = TypeVar("T")

_NEVER_MS = 2**62
_HASTY_MS = 1  # a caller that comes back so soon had next to nothing to do
_LITTLE_BYTES = 16_384


class ReadLoop:
    """Drives a consumer until there is something to return; the background thread drives it between two calls.

    Args:
        driver: of the network.
        subscription: what is read and where it stands.
        topics: follows the metadata.
        positions: finds positions.
        fetcher: fetches.
        group: this consumer's part in its group, None without one.
        isolation_level: 1 where records end at the last stable offset.

    Attributes:
        polls: when the application polled, for the metrics.
        background: the thread that drives between two calls; None before the first poll, and without a group.
        in_hand: what `wait` collected, as long as the caller does not have it; the position is behind it already.
    """

    def __init__(
        self,
        driver: CallerDriver,
        subscription: SubscriptionState,
        topics: TopicWatch,
        positions: PositionKeeper,
        fetcher: Fetcher,
        group: GroupMember | None,
        *,
        isolation_level: int,
    ) -> None:
        self._driver = driver
        self._clock = driver.clock
        self._metadata = driver.metadata
        self._subscription = subscription
        self._topics = topics
        self._positions = positions
        self._fetcher = fetcher
        self._queue = fetcher.queue
        self._group = group
        self._isolation_level = isolation_level
        self.polls = SampledStat()
        self.empty_since_ms = -1  # when the first of the calls in a row began that found nothing; -1 after one that found something
        self.in_hand: Any = None
        self._step_ms = 0  # when a step has something to do although nothing comes
        self._entries = -1  # the driver's count when a call that reads ended well
        self._left_ms = -1  # and the time
        self.background: BackgroundThread | None = None
        self.on_news: Callable[[], None] | None = None  # called by the background thread when the group waits for a poll
        self._left_over: errors.KafkaError | None = None

    # -- a call -------------------------------------------------------------------------------------------------------------------

    def wait(self, collect: Callable[[], T], nothing: Any, timeout: float | None, *, reads: bool = True) -> T:
        """Collects, polling the network until there is something.

        Args:
            collect: what is false while there is nothing.
            nothing: what is returned while partitions are being given up.
            timeout: seconds; None for no limit.
            reads: raises what is wrong with positions; a call that waits for something else leaves that to one that reads.
        """
        driver, group, topics, fetcher, queue, clock = self._driver, self._group, self._topics, self._fetcher, self._queue, self._clock
        driver.check_woken()
        now_ms = clock.now_ms()
        self.polls.mark(now_ms)
        undisturbed = driver.entries == self._entries + 1
        hasty = undisturbed and now_ms - self._left_ms <= _HASTY_MS
        self._entries = -1  # until this call has ended well
        empty_since_ms, self.empty_since_ms = self.empty_since_ms, -1
        if group is not None:
            self._enter_group(group, now_ms)
        owes = bool(topics.owed) or self._metadata.unraised is not None
        settled = not owes and self._is_settled(now_ms)
        if settled:
            found = self._collect(collect)
            if found:
                if queue.wants_fetch:
                    self._send_ahead()
                if undisturbed:
                    self._left(now_ms)
                return found
        if not self._subscription.partitions and self._subscription.mode is Mode.NONE:
            raise errors.IllegalStateError("nothing to read: subscribe to topics or assign partitions first")
        deadline_ms = _NEVER_MS if timeout is None else now_ms + milliseconds(timeout)
        if empty_since_ms < 0:
            empty_since_ms = now_ms
        polled = False
        steps = not settled or not undisturbed or now_ms >= self._step_ms or fetcher.waits_for_nodes
        driver.client.catch_up(now_ms)
        while True:
            if steps:
                try:
                    if group is not None:
                        group.still_polling(now_ms)
                    self.step(now_ms)
                    if group is not None:
                        now_ms = self._take_part(group, now_ms, deadline_ms)
                    if reads:
                        self._positions.raise_failure()
                    if owes:
                        owes = False
                        self._raise_owed()
                except errors.KafkaError:
                    self._go_on()
                    raise
            elif queue.wants_fetch or polled:
                if hasty and queue.held_bytes < _LITTLE_BYTES and (found := self._collect(collect)):
                    self._left(now_ms)
                    return found
                fetcher.send_fetches(now_ms)
            if steps or polled:
                found = nothing if group is not None and group.gives_up else self._collect(collect)
                if steps:
                    self._step_ms = self._next_step_ms(now_ms)
                if found:
                    if queue.wants_fetch:
                        self._send_ahead()
                    self._left(now_ms)
                    return found
                if not steps and not self._is_settled(now_ms):
                    steps = True
                    continue
            if topics.owed:
                self._go_on()
                self._raise_owed()
            if queue.wants_fetch:
                fetcher.send_fetches(now_ms)
            due_ms = self._next_wake_ms(now_ms)
            while True:  # a large answer comes in many pieces: only what changes something is worth a round
                if polled and now_ms >= deadline_ms:
                    if group is not None:
                        group.poll_ends()
                    self.empty_since_ms = empty_since_ms
                    self._left(now_ms)
                    return found
                driver.poll(min(deadline_ms, due_ms) - now_ms, now_ms)
                polled = True
                now_ms = clock.now_ms()
                steps = now_ms >= self._step_ms or fetcher.waits_for_nodes or not self._is_settled(now_ms)
                if steps or queue.wants_fetch or now_ms >= due_ms:
                    break

    def _left(self, now_ms: int) -> None:
        """A call that reads ends well: if no other comes between, the next one need not take a step before one is due."""
        self._left_ms = now_ms
        self._entries = self._driver.entries

    def passed_by(self) -> None:
        """A call that changes nothing came between two that read."""
        if self._entries + 1 == self._driver.entries:
            self._entries += 1

    def at_once(self, collect: Callable[[], T], waited: bool = False) -> T | None:
        """Collects what is there already, without a step.

        Args:
            collect: what is false while there is nothing.
            waited: `wait` has just ended, and so has taken the step. What is still unsettled, as a partition whose leader is away, does
                not hold up the others.

        Returns:
            None when there is nothing, or when something else has to be done first; `wait` does it.
        """
        group = self._group
        now_ms = self._clock.now_ms()
        if self._topics.owed or self._metadata.unraised is not None or self._driver.woken:
            return None
        undisturbed = self._driver.entries == self._entries + 1
        if group is not None:
            phase = group.membership.phase
            self._enter_group(group, now_ms)
            if group.membership.phase is not phase:  # it joins again: what is held may be another member's by now
                return None
            if group.has_news or group.gives_up:
                return None
        if not (waited or self._is_settled(now_ms)):
            return None
        try:
            self.in_hand = found = collect()
        except errors.OffsetOutOfRange:
            return None  # asked for again: `wait` says which offsets there are
        if not found:
            return None
        self.polls.mark(now_ms)
        self.empty_since_ms = -1
        if self._fetcher.wants_fetch:
            self._send_ahead()
        if undisturbed:
            self._left(now_ms)
        return found

    def hand_over(self, call: Callable[[], T]) -> T:
        """Makes a call that returns what `wait` collected. If it ends otherwise, the records come with the next call.

        The background thread drives as soon as the driver is left, so positions go back before that. What Ctrl+C ends on the way out is
        in hand again; the next that drives takes it back.

        Args:
            call: returns the caller's records.
        """
        handed: Any = None
        in_hand: Any = None
        try:
            with self._driver:
                try:
                    handed = call()
                    in_hand, self.in_hand = self.in_hand, None
                except BaseException:
                    self.give_back()
                    raise
            return handed  # type: ignore[no-any-return]
        except BaseException:
            if in_hand:
                self.in_hand = in_hand
                self._driver.interrupted()
            raise

    def give_back(self) -> None:
        """Ctrl+C, or a broker that refuses, before records reached the caller: they come with the next poll."""
        self._entries = -1
        found = self.in_hand
        if found and found is not True:  # which is the answer of is_ready
            if not isinstance(found, dict):
                found = {TopicPartition(c.topic, c.partition): c for c in found if c is not None}
            self._fetcher.give_back(found)
        self.in_hand = None

    def _collect(self, collect: Callable[[], T]) -> T:
        try:
            self.in_hand = found = collect()
            return found
        except errors.OffsetOutOfRange as error:
            self._go_on()
            raise with_range(error, self._driver, self._isolation_level, self._group_step) from None
        except errors.KafkaError:
            self._go_on()
            raise

    def _group_step(self, now_ms: int) -> int | None:
        if self._group is None:
            return None
        self._group.step(now_ms)
        return self._group.next_wake_ms(now_ms)

    def _go_on(self) -> None:
        """Before an error is raised: what it is not about goes on, however often it is raised."""
        now_ms = self._clock.now_ms()
        self._fetcher.send_fetches(now_ms)
        self._driver.client.poll(0, now_ms)

    def _raise_owed(self) -> None:
        """Raises what the last metadata answer refused, or why an attempt to connect failed; each once."""
        self._topics.raise_owed()
        self._driver.raise_failure()

    def _send_ahead(self) -> None:
        """Sends the next fetches and lets the network move without waiting, while the caller has records to work on."""
        now_ms = self._clock.now_ms()
        self._driver.client.catch_up(now_ms)
        if self._fetcher.send_fetches(now_ms):
            self._driver.client.poll(0, now_ms)

    def position(self, tp: TopicPartition, timeout_ms: int) -> int:
        """A partition's position, once it is found and valid.

        Raises:
            errors.KafkaTimeoutError: no answer in time.
        """
        state_of = self._subscription.state_of  # a topic that is created again has other states

        def step(now_ms: int) -> int | None:
            self.step(now_ms)
            self._positions.raise_failure(tp)
            if not found() and (refusal := self._topics.owed.pop(tp.topic, None)) is not None:
                raise refusal
            due_ms = self._next_step_ms(now_ms)  # the group's, too: it sends the question about committed offsets, and heartbeats meanwhile
            return None if due_ms == _NEVER_MS else due_ms - now_ms

        def found() -> bool:
            return state_of(tp).state is FetchState.FETCHING

        if not found() and not self._driver.run(step, found, timeout_ms):
            raise errors.KafkaTimeoutError(
                "no position found in time",
                topic=tp.topic,
                partition=tp.partition,
                attempts=self._positions.attempts(tp) or self._driver.topic_attempts(tp.topic),
            )
        return state_of(tp).offset

    def settle(self, timeout_ms: int) -> bool:
        """Looks positions up until all are known, or are an error that a call that reads raises. False when the time was up.

        Raises:
            errors.KafkaError: an attempt to connect failed for a reason that waiting does not end.
        """

        def step(now_ms: int) -> int | None:
            self.step(now_ms)
            due_ms = self._next_step_ms(now_ms)
            return None if due_ms == _NEVER_MS else due_ms - now_ms

        return self._driver.run(step, lambda: not self._subscription.seeks_positions, timeout_ms)

    # -- what is due --------------------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> None:
        """Brings assignment, positions and fetches up to date; sends what can be sent."""
        if self._topics.behind:
            self._topics.follow()
        if self._group is not None:
            self._group.step(now_ms)
            self._topics.step(now_ms)
        self._positions.step(now_ms, self._clock.wall_ms())
        self._fetcher.send_fetches(now_ms)

    def _is_settled(self, now_ms: int) -> bool:
        """Nothing has come but what the fetcher takes in: a step before `_step_ms` would find nothing to do."""
        group = self._group
        return not self._subscription.unsettled and self._topics.settled and (group is None or not group.due(now_ms))

    def _next_step_ms(self, now_ms: int) -> int:
        """After a step: when the next one is due although nothing arrives. What the fetcher waits for is not counted."""
        waits = [self._positions.next_wake_ms(now_ms)]
        if self._group is not None:
            waits += [self._group.next_wake_ms(now_ms), self._topics.next_wake_ms(now_ms)]
        known = [w for w in waits if w is not None]
        return now_ms + min(known) if known else _NEVER_MS

    def _next_wake_ms(self, now_ms: int) -> int:
        """When something is due although nothing arrives."""
        fetcher_ms = self._fetcher.next_wake_ms(now_ms)
        return self._step_ms if fetcher_ms is None else min(self._step_ms, now_ms + fetcher_ms)

    # -- the group ----------------------------------------------------------------------------------------------------------------

    def _enter_group(self, group: GroupMember, now_ms: int) -> None:
        """What was returned before is processed now; what went wrong in the background since is raised."""
        group.refuse_inside_listener("poll")
        self._fetcher.begin()
        if self.background is None:
            self.background = BackgroundThread(self._driver, self, group.membership, f"kafkacore-consumer-{group.group_id}")
        group.enter_poll(now_ms)
        if self._left_over is not None:
            left_over, self._left_over = self._left_over, None
            raise left_over

    def _take_part(self, group: GroupMember, now_ms: int, deadline_ms: int) -> int:
        """Carries out what a rebalance changes. Returns the time, which calls of the application have moved on."""
        group.poll_on(now_ms)
        if group.membership.change is None:
            return now_ms
        group.carry_out(deadline_ms)
        now_ms = self._clock.now_ms()
        self.step(now_ms)
        return now_ms

    def drive(self, now_ms: int) -> int | None:
        """For the background thread: sends what is due while the application works. What goes wrong is raised by the next poll."""
        if self._left_over is None:
            try:
                self.step(now_ms)
            except errors.KafkaError as error:
                self._left_over = error
        elif self._group is not None:
            self._group.step(now_ms)
            self._fetcher.send_fetches(now_ms)
        if self.on_news is not None and self._group is not None and self._group.has_news:
            self.on_news()
        self._step_ms = self._next_step_ms(now_ms)
        return self._next_wake_ms(now_ms) - now_ms

    def driving_failed(self, error: Exception) -> None:
        """For the background thread: what ended its driving is raised by the next poll."""
        if self._left_over is None:
            if not isinstance(error, errors.KafkaError):
                cause, error = error, errors.InternalError(f"the background thread failed: {error!r}")
                error.__cause__ = cause
            self._left_over = error

    def end(self) -> None:
        """The consumer is closed."""
        background, self.background = self.background, None
        if background is not None:
            background.close()
