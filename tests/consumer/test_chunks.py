"""What a `for` loop has in hand: where it stands in each partition, also after some of it was taken away."""

from collections import deque
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkacore.consumer.chunks import Chunk, Chunks
from kafkacore.types import TopicPartition
from tests.kit.reached import Reached

TPS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
reached = Reached(
    "two chunks of a partition",
    "taken back from the chunk in hand",
    "taken back from two chunks of a partition",
    "taken back beside what stays",
    "taken back from what is read",
    "all taken back",
    "between two chunks",
)


COUNTS = st.lists(st.tuples(st.sampled_from(TPS), st.integers(1, 4)), min_size=3, max_size=6)


class Record(NamedTuple):
    offset: int


class Loop(RuleBasedStateMachine):
    """A loop that is given records, reads some, and has some taken away; a model keeps the offsets in lists."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks = Chunks()
        self.iterator = None
        self.model: list[tuple[TopicPartition, list[int], list[int]]] = []  # read, unread
        self.next_offsets = dict.fromkeys(TPS, 0)

    @initialize(counts=COUNTS)
    def begin(self, counts):
        self.go_on(counts)

    @rule(counts=COUNTS)
    def go_on(self, counts):
        while self.model and not self.model[0][2]:
            del self.model[0]
        self.iterator = self.chunks.next()
        assert (self.iterator is None) == (not self.model)
        if self.iterator is None:
            reached("two chunks of a partition", len(counts) > len({tp for tp, _ in counts}))
            for tp, count in counts:
                begin = self.next_offsets[tp]
                self.next_offsets[tp] += count
                self.model.append((tp, [], list(range(begin, begin + count))))
            self.chunks.chunks.extend([Chunk(tp, [Record(o) for o in unread]) for tp, _, unread in self.model])
            self.iterator = self.chunks.next()

    @rule(count=st.integers(1, 4), counts=COUNTS)
    def read(self, count, counts):
        if not self.model:
            self.go_on(counts)
        for _ in range(count):
            record = None if self.iterator is None else next(self.iterator, None)
            if record is None:
                break
            _, read, unread = self.model[0]
            assert record.offset == unread[0]
            read.append(unread.pop(0))

    @rule(reads=st.integers(0, 2), counts=COUNTS, tps=st.sampled_from([None, *map(set, (TPS, TPS[:1], TPS[1:2], TPS[:2], TPS[1:]))]))
    def take_back(self, reads, counts, tps):
        self.read(reads, counts)
        taken = [(tp, unread) for tp, _, unread in self.model if unread and (tps is None or tp in tps)]
        if tps:
            reached("taken back from the chunk in hand", taken and self.model[0][1] and taken[0] == self.model[0][::2])
            reached("taken back from two chunks of a partition", len(taken) > len({tp for tp, _ in taken}))
            reached("taken back beside what stays", 0 < len(taken) < sum(bool(unread) for _, _, unread in self.model))
            reached("taken back from what is read", any(tp in tps and not unread for tp, _, unread in self.model))
        reached("all taken back", tps is None and len(taken) > 1)
        reached("between two chunks", len(self.model) > 1 and not self.model[0][2])
        assert self.chunks.take_back(tps) == {tp: unread[0] for tp, unread in reversed(taken)}
        self.chunks.going_back = {}
        self.model = [m for m in self.model if m[2] and tps is not None and m[0] not in tps]
        self.iterator = self.chunks.next()

    @rule(most=st.integers(0, 3), counts=COUNTS)
    def take(self, most, counts):
        if not self.model:
            self.go_on(counts)
        while self.model and not self.model[0][2]:
            del self.model[0]
        wanted = self.model[0][2][:most] if self.model else []
        assert [record.offset for record in self.chunks.take(most)] == wanted
        if self.model:
            self.model[0][1].extend(wanted)
            del self.model[0][2][:most]
        self.iterator = self.chunks.chunks[0].iterator if self.chunks else None

    @rule()
    def end(self):
        self.chunks.end()
        self.model.clear()
        self.iterator = None

    @invariant()
    def it_stands_where_the_model_says(self):
        for tp in TPS:
            of = [m for m in self.model if m[0] == tp]
            assert self.chunks.next_offset(tp) == next((unread[0] for _, _, unread in of if unread), None)
            assert self.chunks.working_on(tp) == next(((read[-1:] or unread)[0] for _, read, unread in of), None)
        assert self.chunks.next_offsets() == {tp: at for tp in TPS if (at := self.chunks.next_offset(tp)) is not None}
        assert self.chunks.being_worked_on() == {tp: self.chunks.working_on(tp) for tp, _, _ in self.model}


Loop.TestCase.settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
TestLoop = reached.by(Loop, rounds=8)


class CountedDeque(deque):
    """A deque that counts how often it is walked."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_asking_about_every_partition_walks_the_chunks_once():
    chunks = Chunks()
    chunks.chunks = CountedDeque()
    tps = [TopicPartition("t", index) for index in range(300)]
    assert [chunks.next_offset(tp) for tp in tps[:2]] == [None, None]
    chunks.chunks.walks = 0
    chunks.chunks.extend([Chunk(tp, [Record(tp.partition)]) for tp in tps])
    assert [chunks.next_offset(tp) for tp in tps] == [chunks.working_on(tp) for tp in tps] == list(range(300))
    assert chunks.chunks.walks == 1
