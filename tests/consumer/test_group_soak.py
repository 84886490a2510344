"""A group of members under faults for a moment, and that what a member does wrong is found; longer by `python -m tests.soak --group`."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from kafkacore import TopicPartition
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.subscription import SubscriptionState
from kafkacore.testing.history import Kind
from tests.soak import group, members
from tests.soak.frame import WAIT_S
from tests.soak.group import GroupSoak
from tests.soak.members import PROTOCOLS, Rows, SoakMember

Fault = Callable[[pytest.MonkeyPatch], None]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FACED = [group, members]


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.night)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_under_faults_keeps_its_promises(protocol: str, seed: int) -> None:
    figures = GroupSoak(protocol, seed, rounds=6).run()
    assert figures["findings"] == []
    assert 0 <= figures["records"] - 7 * 60 <= 12 * (figures["generations"] - 1)
    assert figures["commits"] > 0
    assert figures["looks"] > 0
    assert figures["revoked"] > 0


class SlowMember(SoakMember):
    """Its work takes until the observer has seen what is committed meanwhile."""

    def handle(self, rows: Rows) -> None:
        super().handle(rows)
        if self.auto and rows:
            self.soak.wait_for_looks(WAIT_S)


def is_found(kind: Kind, protocol: str, member: type[SoakMember] = SlowMember) -> bool:
    """Whether a run shows a fault when nothing else goes wrong."""
    soak = GroupSoak(protocol, 1, rounds=3, kinds=("member joins",), member=member, wait_s=3)
    soak.run()
    return kind in {finding.kind for finding in soak.judged}


class CommitsFirst(SoakMember):
    """Commits what it is about to process."""

    def handle(self, rows: Rows) -> None:
        offsets = {tp: records[-1].offset + 1 for tp, records in rows.items()}
        if offsets:
            self.member.commit(offsets)
            self.consumer.commit(offsets)
        super().handle(rows)


class ForgetsRevoke(SoakMember):
    """Hands out what it was given before its partition was revoked."""

    held: dict[TopicPartition, list]

    def poll(self) -> Rows:
        self.held = getattr(self, "held", {})
        rows = super().poll()
        mine = self.consumer.assignment()
        gone = {tp: self.held.pop(tp) for tp in list(self.held) if tp not in mine}
        self.held |= {tp: records[-1:] for tp, records in rows.items()}
        return {**rows, **gone}


class Skips(SoakMember):
    """Leaves records out."""

    def poll(self) -> Rows:
        kept = {tp: [record for record in records if record.offset % 7 != 3] for tp, records in super().poll().items()}
        return {tp: records for tp, records in kept.items() if records}


class StartsLate(SoakMember):
    """Begins one record behind the committed offset."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        super().on_partitions_assigned(partitions)
        for tp in partitions:
            self.consumer.seek(tp, self.consumer.position(tp) + 1)


class Repeats(SoakMember):
    """Hands out a record twice."""

    last: dict[TopicPartition, list]

    def poll(self) -> Rows:
        before = getattr(self, "last", {})
        rows = super().poll()
        self.last = before | {tp: records[-1:] for tp, records in rows.items()}
        return {tp: [*before.get(tp, []), *records] for tp, records in rows.items()}


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize(
    ("member", "kind"),
    [
        pytest.param(CommitsFirst, Kind.UNPROCESSED, marks=pytest.mark.aio_at_length),
        (ForgetsRevoke, Kind.UNOWNED),
        pytest.param(Skips, Kind.UNPROCESSED, marks=pytest.mark.aio_at_length),
        pytest.param(StartsLate, Kind.UNPROCESSED, marks=pytest.mark.aio_at_length),
        pytest.param(Repeats, Kind.NON_MONOTONIC, marks=pytest.mark.aio_at_length),
    ],
)
def test_a_member_that_breaks_a_promise_is_found(member: type[SoakMember], kind: Kind) -> None:
    assert is_found(kind, "consumer", member)


def commits_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a poll returned counts as processed at once."""
    monkeypatch.setattr(Fetcher, "begun", lambda self, state: None)


def keeps_what_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assignment adds to what is read."""
    take = SubscriptionState.set_assignment
    monkeypatch.setattr(SubscriptionState, "set_assignment", lambda self, tps: take(self, {*self.partitions, *tps}))


def begins_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The committed offset is taken for the last one processed."""
    seek = SubscriptionState.seek
    monkeypatch.setattr(SubscriptionState, "seek", lambda self, tp, offset, epoch=-1: seek(self, tp, offset + 1, epoch))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(commits_first, Kind.UNPROCESSED), (keeps_what_is_revoked, Kind.UNOWNED), (begins_late, Kind.UNPROCESSED)],
)
@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
@pytest.mark.usefixtures("client_face")
@pytest.mark.aio_at_length
def test_a_consumer_that_breaks_a_promise_is_found(monkeypatch: pytest.MonkeyPatch, protocol: str, fault: Fault, kind: Kind) -> None:
    fault(monkeypatch)
    assert is_found(kind, protocol)
