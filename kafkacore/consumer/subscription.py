"""What a consumer reads and where it stands: the subscription, and one state machine per partition (`PartitionState` is compiled:
native/partition_state.pxi).

Rules:
1. Every change of a partition's state happens in this file and is one of `TRANSITIONS`. [test_every_move_not_in_the_table_is_a_bug]
2. A position is always the offset of the next record the application gets; what is fetched ahead of it lives in fetcher.py.
   [test_the_next_fetch_is_in_flight_while_the_application_works]
3. `unsettled` names exactly the partitions that are not FETCHING, and `unasked` those of them that nothing is asked about, so that a poll
   looks only at what has something to be done. [test_polls_in_a_row_take_no_step_before_one_is_due,
   test_errors_of_many_partitions_are_raised_one_by_one_and_do_not_pile_up]
4. What changes a position, its epoch or its leader epoch takes `question` away: an answer counts only for the position it was asked for.
   The question is left in `withdrawn`, where its asker finds it. An error that nobody has seen yet stands in the question's place.
   [test_a_reset_answer_that_comes_too_late_changes_nothing, test_a_partition_reads_on_after_anything_that_happens_to_its_question,
   test_what_a_seek_has_mended_is_not_raised]
5. Whatever may change whether and what to fetch of a partition notes it in `touched`: the fetcher looks at those, and never at all of them.
   [TestBothWays, test_seek_drops_what_was_fetched_and_what_is_on_its_way]
6. `partitions` is the truth, the other collections follow from it. An interrupt between two of them is mended by `settle_anew`.
   [test_a_consumer_goes_on_after_an_interrupt_at_any_step, test_an_interrupt_at_any_line_leaves_no_partition_behind]

Source: Kafka's SubscriptionState (clients, consumer internals); KIP-320 for the validation of positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from kafkacore import _codec, errors
from kafkacore._codec import PartitionState as PartitionState
from kafkacore.config import reset_duration_ms
from kafkacore.metadata import checked_topic
from kafkacore.net.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kafkacore.types import TopicPartition

if TYPE_CHECKING:
    from kafkacore.metadata import ClusterSnapshot, PartitionInfo

_OFFSETS = 1 << 63


class Mode(Enum):
    """How the assignment comes about; a consumer keeps to one of them until `unsubscribe()`."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker_pattern"
    MANUAL = "manual"


class FetchState(Enum):
    """How far a partition is on its way to being fetched."""

    INITIALIZING = "initializing"
    AWAIT_RESET = "await_reset"
    AWAIT_VALIDATION = "await_validation"
    FETCHING = "fetching"


TRANSITIONS: dict[FetchState, frozenset[FetchState]] = {
    FetchState.INITIALIZING: frozenset({FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}),
    FetchState.AWAIT_RESET: frozenset({FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}),
    FetchState.AWAIT_VALIDATION: frozenset({FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}),
    FetchState.FETCHING: frozenset({FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION, FetchState.FETCHING}),
}


class ResetStrategy:
    """Where to go when there is no valid position: `earliest`, `latest`, `none` or `by_duration:P1DT2H` (KIP-1106).

    Args:
        text: the value of `auto.offset.reset`.

    Raises:
        errors.ConfigError: the text is none of these.
    """

    __slots__ = ("duration_ms", "name")

    def __init__(self, text: str) -> None:
        self.name = text
        self.duration_ms = reset_duration_ms(text) if text not in ("earliest", "latest", "none") else None

    def timestamp_ms(self, wall_ms: int) -> int | None:
        """The timestamp to ask ListOffsets for, or None when the strategy is `none`."""
        if self.duration_ms is not None:
            return max(0, wall_ms - self.duration_ms)  # below 0 a timestamp has a meaning of its own: -1 is latest
        return {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}.get(self.name)

    def __repr__(self) -> str:
        return f"ResetStrategy({self.name!r})"


EARLIEST = ResetStrategy("earliest")
LATEST = ResetStrategy("latest")


_codec._bind_fetch_states(FetchState.INITIALIZING, FetchState.AWAIT_VALIDATION, FetchState.FETCHING)


class SubscriptionState:
    """The subscription and the state of every assigned partition.

    Args:
        default_reset: strategy for partitions without a position.
    """

    def __init__(self, default_reset: ResetStrategy) -> None:
        self.default_reset = self._reset_before = default_reset
        self._reading: object | None = None
        self.mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.by_topic: dict[str, dict[int, PartitionState]] = {}
        self.unsettled: dict[TopicPartition, PartitionState] = {}
        self.unasked: dict[PartitionState, None] = {}
        self.withdrawn: list[tuple[object, PartitionState]] = []
        self.touched: dict[PartitionState, None] = {}

    @property
    def seeks_positions(self) -> bool:
        """Whether the position of a partition is still being looked up or validated; where that failed, a call that reads says so."""
        return not all(isinstance(state.question, errors.KafkaError) for state in self.unsettled.values())

    # -- the subscription ---------------------------------------------------------------------------------------------------------

    def _set_mode(self, mode: Mode) -> None:
        if self.mode is not Mode.NONE and self.mode is not mode:
            raise errors.IllegalStateError(
                "subscription to topics, to a pattern and to partitions are mutually exclusive: call unsubscribe() first"
            )
        self.mode = mode

    def subscribe_topics(self, topics: Iterable[str]) -> None:
        """Reads these topics in place of those subscribed to before."""
        if isinstance(topics, str):
            raise errors.UsageError(f"topics must be a collection of names, not the string {topics!r}")
        names = frozenset(topics)
        for name in names:
            if not isinstance(name, str) or not name:
                raise errors.UsageError(f"not a topic name: {name!r}")
            checked_topic(name)
        self._set_mode(Mode.TOPICS)
        self.topics = names

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Reads every topic the pattern matches wholly."""
        self._set_mode(Mode.PATTERN)
        self.pattern = pattern

    def subscribe_broker_pattern(self) -> None:
        """Reads what the group's coordinator assigns by a pattern that it matches; `topics` are those of the assignment."""
        self._set_mode(Mode.BROKER_PATTERN)

    def assign_manual(self, tps: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions; those that were assigned before keep their position."""
        self._set_mode(Mode.MANUAL)
        self.set_assignment(tps)

    def unsubscribe(self) -> None:
        """Reads nothing; the next subscription may be of any mode."""
        self.set_assignment(())
        self.mode = Mode.NONE
        self.topics = frozenset()
        self.pattern = None

    def set_assignment(self, tps: Iterable[TopicPartition]) -> None:
        """Makes `tps` the assignment. Partitions that stay keep their state, new ones begin in INITIALIZING.

        An interrupt leaves the old assignment or the new one.
        """
        before = self.partitions
        kept: dict[TopicPartition, PartitionState] = {}
        for tp in tps:
            kept[tp] = before.get(tp) or PartitionState(tp)
        self.partitions = kept
        for tp, state in before.items():
            if tp not in kept:
                self._take_out(state)
        for state in kept.values():
            if not state.assigned:
                self._take_in(state)

    def add(self, tps: Iterable[TopicPartition], reset: ResetStrategy | None = None) -> None:
        """Assigns more partitions; work is done for these alone. Those that are assigned already are left as they are.

        Args:
            tps: the partitions.
            reset: how to find their positions; by default as for any partition without a position.
        """
        added = {tp: PartitionState(tp) for tp in tps if tp not in self.partitions}
        if reset is not None:
            for state in added.values():
                state.reset = reset
                state.state = FetchState.AWAIT_RESET
        self.partitions.update(added)  # one step, which an interrupt cannot split
        for state in added.values():
            self._take_in(state)

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        """Takes partitions away; work is done for these alone. Those that are not assigned are left out."""
        for tp in tps:
            state = self.partitions.pop(tp, None)
            if state is not None:
                self._take_out(state)

    def _take_in(self, state: PartitionState) -> None:
        tp = state.tp
        state.assigned = True
        self.by_topic.setdefault(tp[0], {})[tp[1]] = state
        if state.state is not FetchState.FETCHING:
            self.unsettled[tp] = state
            self.unasked[state] = None
        self.touched[state] = None

    def _take_out(self, state: PartitionState) -> None:
        tp = state.tp
        state.assigned = False
        of_topic = self.by_topic.get(tp[0], {})
        if of_topic.pop(tp[1], None) is not None and not of_topic:
            del self.by_topic[tp[0]]
        self.unsettled.pop(tp, None)
        self.unasked.pop(state, None)
        self._withdraw(state)
        self.touched[state] = None

    def settle_anew(self) -> None:
        """No request about any partition is under way any more, and what an interrupt left half done is repaired."""
        self.by_topic = {}
        self.unsettled = {}
        self.unasked = {}
        self.touched = {}
        for state in self.partitions.values():
            state.question = None
            state.held = []
            state.node_id = -1
            state.row = state.placed_by = None
            self._take_in(state)
        self.withdrawn = []

    def states_that_differ(
        self, before: ClusterSnapshot | None, now: ClusterSnapshot, differs: Callable[[PartitionInfo, PartitionInfo], bool]
    ) -> list[PartitionState]:
        """The assigned partitions about which a newer snapshot says something else; of topics that stay as they are none is looked at.

        Args:
            before: the snapshot compared with; None gives all partitions.
            now: the newer one.
            differs: what of a partition counts.
        """
        if before is now:
            return []
        if before is None or before.nodes.keys() != now.nodes.keys():
            return list(self.partitions.values())
        found: list[PartitionState] = []
        for topic, states in self.by_topic.items():
            was, is_now = before.topics.get(topic), now.topics.get(topic)
            if was is is_now:
                continue
            if was is None or is_now is None or was.topic_id != is_now.topic_id or len(was.partitions) != len(is_now.partitions):
                found += states.values()
            elif was.partitions != is_now.partitions:
                for index, state in states.items():
                    a, b = was.partition(index), is_now.partition(index)
                    if a is not b and (a is None or b is None or differs(a, b)):
                        found.append(state)
        return found

    # -- one partition ------------------------------------------------------------------------------------------------------------

    def state_of(self, tp: TopicPartition) -> PartitionState:
        """The state of an assigned partition.

        Raises:
            errors.IllegalStateError: it is not assigned.
        """
        state = self.partitions.get(tp)
        if state is None:
            raise errors.IllegalStateError("the partition is not assigned to this consumer", topic=tp[0], partition=tp[1])
        return state

    def _move(self, state: PartitionState, to: FetchState) -> None:
        if to not in TRANSITIONS[state.state]:
            raise errors.InternalError(f"{state.tp}: {state.state.value} -> {to.value}")
        state.state = to
        self._withdraw(state)
        if state.assigned:
            if to is FetchState.FETCHING:
                state.unsettled_since_ms = -1
                self.unsettled.pop(state.tp, None)
                self.unasked.pop(state, None)
            else:
                self.unsettled[state.tp] = state
                self.unasked[state] = None
        self.touched[state] = None

    def _withdraw(self, state: PartitionState) -> None:
        question = state.question
        if question is not None:
            state.question = None
            self.withdrawn.append((question, state))

    def ask(self, state: PartitionState, question: object) -> None:
        """A question about an unsettled partition is under way."""
        state.question = question
        self.unasked.pop(state, None)

    def answered(self, state: PartitionState) -> None:
        """The question has its answer; what becomes of the partition is decided next."""
        state.question = None

    def ask_again(self, state: PartitionState) -> None:
        """A partition whose question failed may be asked about again, unless something else has happened to it since."""
        if state.assigned and state.question is None and state.state is not FetchState.FETCHING:
            self.unasked[state] = None

    def seek(self, tp: TopicPartition, offset: int, offset_epoch: int = -1) -> None:
        """Continues at `offset`; what was fetched or being looked up for another position is dropped by its readers."""
        state = self.state_of(tp)
        if offset >= _OFFSETS:
            raise errors.UsageError(f"an offset has 64 bits, {offset} has more", topic=tp[0], partition=tp[1])
        state.topic_id = b""
        self._place(state, offset, offset_epoch)

    def _place(self, state: PartitionState, offset: int, offset_epoch: int) -> None:
        """Gives a partition its position. The leader epoch it was last checked against stays: it is compared with the next metadata.

        An interrupt at any line leaves a partition that can go on.
        """
        state.offset = offset
        state.offset_epoch = offset_epoch
        state.epochs = [(offset - 1, offset_epoch)]
        state.retry_at_ms = 0
        self._move(state, FetchState.FETCHING)
        state.reset = None

    def rewind(self, tp: TopicPartition, offset: int) -> None:
        """Takes back what was handed over from `offset` on, when the partition still has a position behind it.

        A position that a truncation or a reset has moved before `offset` stays.
        """
        state = self.partitions.get(tp)
        if state is None or not state.has_position or offset >= state.offset:
            return
        state.offset = offset
        self._withdraw(state)
        if state.state is not FetchState.FETCHING:
            self.unasked[state] = None
        while len(state.epochs) > 1 and state.epochs[-1][0] >= offset:
            state.epochs.pop()
        if state.epochs:
            state.offset_epoch = state.epochs[-1][1]
        self.touched[state] = None

    def request_reset(self, tp: TopicPartition, strategy: ResetStrategy) -> None:
        """Looks a new position up by `strategy`, as seek_to_beginning and an out-of-range offset ask for."""
        state = self.state_of(tp)
        state.reset = strategy
        self._move(state, FetchState.AWAIT_RESET)
        state.offset = state.offset_epoch = -1
        state.topic_id = b""

    def start_over(self, tp: TopicPartition) -> None:
        """The topic was deleted and created again: its offsets have nothing to do with the position, and all of it is new.

        It is read from its start; without a reset strategy it has no offset, which is an error of the partition.
        """
        old = self.state_of(tp)
        state = PartitionState(tp)
        state.paused = old.paused
        self.partitions[tp] = state
        self._take_out(old)
        self._take_in(state)
        if self.default_reset.name != "none":
            self.request_reset(tp, EARLIEST)

    def initialize(self, state: PartitionState) -> bool:
        """Gives a partition without a position its default strategy.

        Returns:
            False when the policy is `none`: NoOffsetForPartition is the partition's error.
        """
        if self.default_reset.name == "none":
            return False
        self.request_reset(state.tp, self.default_reset)
        return True

    def complete_reset(
        self, state: PartitionState, strategy: ResetStrategy, offset: int, offset_epoch: int, leader_epoch: int = -1
    ) -> bool:
        """Takes the answer to a reset, unless the application has moved on (a seek, another reset, another assignment).

        Args:
            state, strategy: what was asked for.
            offset: the position.
            offset_epoch: what the leader named with it: not below the epoch of the record before `offset`, not above `leader_epoch`, so
                that a log that diverged before `offset` later on shows.
            leader_epoch: of the leader that answered, -1 when unknown.

        Returns:
            True when the answer became the position.
        """
        if not state.assigned or state.state is not FetchState.AWAIT_RESET or state.reset is not strategy:
            return False
        state.leader_epoch = max(leader_epoch, offset_epoch)
        self._place(state, offset, offset_epoch)
        return True

    def new_leader_epoch(self, state: PartitionState, epoch: int) -> None:
        """The partition has another leader epoch: a position behind a record of known epoch is validated before fetching goes on (KIP-320).

        Args:
            state: with a position.
            epoch: of the leader now, -1 where metadata carries none.
        """
        if epoch >= 0 and state.offset_epoch >= 0:
            self.request_validation(state)
        else:
            self.complete_validation(state)
        state.preferred_replica = -1
        state.leader_epoch = epoch
        self.touched[state] = None

    def request_validation(self, state: PartitionState) -> None:
        """Holds fetching until the (new) leader confirmed that the position is still on its log (KIP-320)."""
        self._move(state, FetchState.AWAIT_VALIDATION)

    def complete_validation(self, state: PartitionState) -> None:
        """The position is good."""
        if state.state is FetchState.AWAIT_VALIDATION:
            self._move(state, FetchState.FETCHING)

    def pause(self, tp: TopicPartition) -> None:
        """Hands out and fetches nothing of it until `resume`."""
        state = self.state_of(tp)
        state.paused = True
        self.touched[state] = None

    def resume(self, tp: TopicPartition) -> None:
        """Undoes `pause`. What went wrong with the partition meanwhile may be over: it is asked about again."""
        state = self.state_of(tp)
        state.paused = False
        self.touched[state] = None
        if isinstance(state.question, errors.KafkaError):
            self._withdraw(state)
            self.ask_again(state)

    def begin_stretches(self) -> object:
        """A read of stretches begins: offsets that are not there are errors until it ends. One that was under way is over.

        Returns:
            What the read is known by.
        """
        if self._reading is None:
            self._reset_before = self.default_reset
        self.default_reset = ResetStrategy("none")
        self._reading = token = object()
        return token

    @property
    def reads_stretches(self) -> bool:
        """Whether a read of stretches is under way."""
        return self._reading is not None

    def check_stretches(self, token: object) -> None:
        """Raises IllegalStateError if another read has begun since: this one would go on at the other one's place."""
        if self._reading is not token:
            raise errors.IllegalStateError("another read has started with this consumer, so this one cannot go on: use a consumer for each")

    def end_stretches(self, token: object) -> None:
        """The read is over, unless another one has begun."""
        if self._reading is token:
            self.default_reset, self._reading = self._reset_before, None

    def read_up_to(self, state: PartitionState, end: int | None) -> None:
        """Fetches nothing from offset `end` on; None for no such end."""
        state.fetch_end = end
        self.touched[state] = None

    def paused(self) -> Iterator[TopicPartition]:
        """The paused partitions."""
        return (tp for tp, s in self.partitions.items() if s.paused)
