"""The checker of a group's history: silent about every group that keeps its promises, and not silent about any planted fault."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.errors import UsageError
from kafkacore.testing.group_history import GroupHistory, Member
from kafkacore.testing.history import History, Kind
from tests.kit.histories import after
from tests.kit.reached import Reached

TOPIC = "t"
reached = Reached("moved from a member that knows", "moved from one that does not", "commit refused", "commit lost", "learns of it late")


@dataclass
class Held:
    """A partition in a member's hands."""

    position: int
    processed: int
    expelled: bool = False  # another member has it, and this one does not know yet


@dataclass
class Actor:
    member: Member
    held: dict[int, Held] = field(default_factory=dict)


class GroupScene:
    """A log, a coordinator that gives each partition to one member, and members that do what chance says."""

    def __init__(self, rng: random.Random, partitions: int = 2) -> None:
        self.rng = rng
        self.history = History()
        self.writer = self.history.writer("p")
        self.group = GroupHistory(self.history)
        self.actors = [Actor(self.group.member(f"m{n}")) for n in range(3)]
        self.logs: list[list[str]] = [[] for _ in range(partitions)]
        self.committed = [0] * partitions
        self.sent = 0

    def owner(self, partition: int) -> Actor | None:
        return next((each for each in self.actors if partition in each.held and not each.held[partition].expelled), None)

    def send(self, partition: int) -> None:
        self.sent += 1
        value = f"v{self.sent}"
        send = self.writer.send(TOPIC, value, partition)
        self.logs[partition].append(value)
        if self.rng.random() < 0.8:
            send.acked(len(self.logs[partition]) - 1)

    def assign(self, actor: Actor, partition: int) -> None:
        actor.member.assigned([(TOPIC, partition)])
        actor.held[partition] = Held(self.committed[partition], self.committed[partition])

    def move(self, partition: int) -> None:
        before, after = self.owner(partition), self.rng.choice(self.actors)
        if partition in after.held:
            return
        if before is not None:
            if self.rng.random() < 0.5:
                reached("moved from one that does not")
                before.held[partition].expelled = True
            else:
                reached("moved from a member that knows")
                self.commit(before, partition)
                self.give_up(before, partition)
        self.assign(after, partition)

    def give_up(self, actor: Actor, partition: int) -> None:
        del actor.held[partition]
        actor.member.revoked([(TOPIC, partition)])

    def poll(self, actor: Actor, partition: int) -> None:
        held = actor.held[partition]
        end = min(held.position + self.rng.randrange(4), len(self.logs[partition]))
        actor.member.polled(TOPIC, partition, [(offset, self.logs[partition][offset]) for offset in range(held.position, end)])
        held.position = end

    def process(self, actor: Actor, partition: int) -> None:
        held = actor.held[partition]
        held.processed = self.rng.randint(held.processed, held.position)
        actor.member.processed(TOPIC, partition, held.processed)

    def commit(self, actor: Actor, partition: int) -> None:
        """What an expelled member commits is refused; also another answer may be lost."""
        held = actor.held[partition]
        call = actor.member.commit({(TOPIC, partition): held.processed})
        reached("commit refused", held.expelled)
        if held.expelled or self.rng.random() < 0.2:
            return
        self.committed[partition] = held.processed
        if self.rng.random() < 0.7:
            call.taken()
        else:
            reached("commit lost")

    def step(self) -> None:
        partition = self.rng.randrange(len(self.logs))
        what = self.rng.choice(["send"] * 4 + ["move"] + ["poll", "process", "commit"] * 2 + ["see", "learn"])
        owners = [each for each in self.actors if partition in each.held]
        if what == "send":
            self.send(partition)
        elif what == "move":
            self.move(partition)
        elif what == "see":
            self.group.committed(TOPIC, partition, self.committed[partition])
        elif not owners:
            return
        elif what == "learn":
            for actor in owners:
                if actor.held[partition].expelled:
                    reached("learns of it late")
                    self.give_up(actor, partition)
        else:
            getattr(self, what)(self.rng.choice(owners), partition)

    def finish(self) -> None:
        """The group reads, processes and commits everything."""
        for partition, log in enumerate(self.logs):
            actor = self.owner(partition)
            if actor is None:
                actor = next(each for each in self.actors if partition not in each.held)
                self.assign(actor, partition)
            held = actor.held[partition]
            actor.member.polled(TOPIC, partition, [(offset, log[offset]) for offset in range(held.position, len(log))])
            held.position = held.processed = len(log)
            actor.member.processed(TOPIC, partition, len(log))
            actor.member.commit({(TOPIC, partition): len(log)}).taken()
        self.group.drained()


def fresh(made: GroupScene) -> tuple[Actor, Actor]:
    """Two members that own a new partition one after the other see nothing of what came before; its log holds three records."""
    partition = len(made.logs)
    made.logs.append([])
    made.committed.append(0)
    for nth in range(3):
        made.writer.send(TOPIC, f"planted {nth}", partition).acked(nth)
        made.logs[partition].append(f"planted {nth}")
    first, second = (Actor(made.group.member(name)) for name in ("bad", "next"))
    made.actors += [first, second]
    made.assign(first, partition)
    return first, second


@reached.by
@given(st.integers(0, 2**32), st.sampled_from([1, 30, 80]))
def test_a_group_that_keeps_its_promises_gives_no_finding(seed: int, steps: int) -> None:
    made = after(GroupScene(random.Random(seed)), steps)
    assert made.history.check() == []  # in the middle of it
    made.finish()
    assert made.history.check() == []


FAULTS = {
    "commits what it has not processed": Kind.UNPROCESSED,
    "commits by itself what it has not processed": Kind.UNPROCESSED,
    "begins behind the committed offset": Kind.UNPROCESSED,
    "leaves a record out": Kind.LOST,
    "leaves the last record out": Kind.UNPROCESSED,
    "is shown a record twice": Kind.NON_MONOTONIC,
    "is shown a record after it gave the partition up": Kind.UNOWNED,
    "is shown a record before it has the partition": Kind.UNOWNED,
    "commits when another one has the partition": Kind.UNFENCED,
}


@pytest.mark.parametrize("fault", FAULTS)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 30))
@settings(max_examples=25)
def test_every_fault_planted_in_a_group_is_found_and_nothing_else(fault: str, seed: int, steps: int) -> None:
    made = after(GroupScene(random.Random(seed)), steps)
    bad, other = fresh(made)
    partition = len(made.logs) - 1
    place = TOPIC, partition
    rows = list(enumerate(made.logs[partition]))

    def shown(*offsets: int) -> None:
        bad.member.polled(*place, [rows[offset] for offset in offsets])
        bad.held[partition].position = offsets[-1] + 1

    if fault == "commits what it has not processed":
        shown(0, 1)
        bad.member.processed(*place, 1)
        bad.member.commit({place: 2})
        bad.member.processed(*place, 2)
    elif fault == "commits by itself what it has not processed":
        shown(0, 1)
        made.group.committed(*place, 2)
        bad.member.processed(*place, 2)
    elif fault == "begins behind the committed offset":
        shown(1)
    elif fault == "leaves a record out":
        shown(0, 2)
        bad.member.processed(*place, 3)
    elif fault == "leaves the last record out":
        shown(0, 1)
        bad.member.processed(*place, 3)
        made.group.drained()
    elif fault == "is shown a record twice":
        shown(0, 1)
        shown(1, 2)
        bad.member.processed(*place, 3)
    elif fault == "is shown a record after it gave the partition up":
        shown(0)
        made.give_up(bad, partition)
        bad.member.polled(*place, rows[1:2])
    elif fault == "is shown a record before it has the partition":
        other.member.polled(*place, rows[:1])
    elif fault == "commits when another one has the partition":
        shown(0)
        bad.member.processed(*place, 1)
        other.member.assigned([place])
        bad.member.commit({place: 1}).taken()
        other.member.revoked([place])
    if fault != "leaves the last record out":
        made.finish()
    found = made.history.check()
    ours = [finding for finding in found if finding.partition == partition]
    assert FAULTS[fault] in {finding.kind for finding in ours}, [str(finding) for finding in found]
    expected = {FAULTS[fault]}
    if fault in ("leaves a record out", "begins behind the committed offset"):
        expected = {Kind.LOST, Kind.UNPROCESSED}  # nobody was shown it, and so nobody processed it
    assert {finding.kind for finding in ours} <= expected, [str(finding) for finding in found]
    if fault != "leaves the last record out":
        assert found == ours


def test_what_was_acknowledged_after_the_group_had_read_everything_is_not_missed() -> None:
    history = History()
    group, writer = GroupHistory(history), history.writer("p")
    late = writer.send(TOPIC, "late", 0)
    group.drained()
    late.acked(0)
    assert history.check() == []


def test_of_two_partitions_in_one_commit_each_is_judged() -> None:
    history = History()
    member, writer = GroupHistory(history).member("m"), history.writer("p")
    member.assigned([(TOPIC, 0), (TOPIC, 1)])
    for partition in (0, 1):
        writer.send(TOPIC, f"v{partition}", partition).acked(0)
        member.polled(TOPIC, partition, [(0, f"v{partition}")])
    member.processed(TOPIC, 0, 1)
    member.commit({(TOPIC, 0): 1, (TOPIC, 1): 1})
    assert {(finding.kind, finding.partition) for finding in history.check()} == {(Kind.UNPROCESSED, 1)}


def test_a_history_that_cannot_be_is_refused() -> None:
    history = History()
    member = GroupHistory(history).member("m")
    both = [(TOPIC, 0), (TOPIC, 1)]
    member.assigned(both)
    for each in both:
        with pytest.raises(UsageError, match="which it owns"):
            member.assigned([each])
    member.lost(both)
    for each in both:
        with pytest.raises(UsageError, match="does not own"):
            member.revoked([each])


def test_two_generations_of_a_topic_are_two_topics() -> None:
    """What was not processed of the deleted one is lost with it; an offset of it that counts for the new one is found."""
    history = History()
    group = GroupHistory(history)
    writer, member = history.writer("p"), group.member("m")
    for topic, values in (("t#0", "abc"), ("t#1", "xyz")):
        for offset, value in enumerate(values):
            writer.send(topic, value, 0).acked(offset)
    member.assigned([("t#0", 0)])
    member.polled("t#0", 0, [(0, "a"), (1, "b")])
    member.processed("t#0", 0, 2)
    group.deleted("t#0")
    member.revoked([("t#0", 0)])
    member.assigned([("t#1", 0)])
    member.polled("t#1", 0, [(0, "x"), (1, "y"), (2, "z")])
    member.processed("t#1", 0, 3)
    group.committed("t#1", 0, 3)
    group.drained()
    assert history.check() == []
    late = group.member("late")
    writer.send("t#2", "first", 0).acked(0)
    writer.send("t#2", "second", 0).acked(1)
    group.committed("t#2", 0, 1)
    late.assigned([("t#2", 0)])
    late.polled("t#2", 0, [(1, "second")])
    late.processed("t#2", 0, 2)
    group.drained()
    found = history.check()
    assert {(finding.kind, finding.topic, finding.value) for finding in found} == {(Kind.UNPROCESSED, "t#2", "first")}


def test_findings_say_which_member_and_what_it_did() -> None:
    history = History()
    group, writer = GroupHistory(history), history.writer("p")
    one, other = (TOPIC, 0), (TOPIC, 1)
    for offset in range(3):
        for topic, partition in (one, other):
            writer.send(topic, f"{partition}-{offset}", partition).acked(offset)
    first, second = group.member("first"), group.member("second")
    first.assigned([one, other])
    first.polled(*one, [(0, "0-0"), (1, "0-1")])
    first.processed(*one, 1)
    first.commit({one: 1, other: 0}).taken()
    first.commit({one: 2})
    group.committed(*other, 1)
    group.committed(*one, 1)
    second.assigned([one])
    first.commit({one: 1, other: 0}).taken()
    first.commit({one: 0})
    first.revoked([one])
    first.commit({one: 1}).taken()
    first.polled(*one, [])
    first.polled(*one, [(2, "0-2")])
    second.polled(*one, [(2, "0-2")])
    second.processed(*one, 3)
    group.drained()
    writer.send(TOPIC, "late", 1).acked(3)
    unprocessed = "when no member had processed it"
    assert [str(finding) for finding in history.check()] == [
        "UNOWNED: '0-2' at t-0, offset 2: first was shown it, and no longer owns the partition, or not yet",
        "UNFENCED: None at t-0, offset 1: first committed it, and second had the partition by then",
        f"UNPROCESSED: '0-1' at t-0, offset 1: second began at 2 {unprocessed}",
        f"UNPROCESSED: '0-1' at t-0, offset 1: first committed 2 {unprocessed}",
        f"UNPROCESSED: '0-1' at t-0, offset 1: the group had nothing left to read below 3 {unprocessed}",
        f"UNPROCESSED: '1-0' at t-1, offset 0: the group had committed 1 {unprocessed}",
        f"UNPROCESSED: '1-0' at t-1, offset 0: the group had nothing left to read below 3 {unprocessed}",
    ]
