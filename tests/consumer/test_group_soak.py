"""A group of members under faults for a moment, and that what a member does wrong is found; longer by `python -m tests.soak --group`."""

from __future__ import annotations

import pytest

from kafkacore import TopicPartition
from kafkacore.testing.history import Kind
from tests.soak import group, members
from tests.soak.group import GroupSoak
from tests.soak.members import PROTOCOLS, Rows, SoakMember

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FACED = [group, members]
ROUNDS = 4


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.night)])
@pytest.mark.parametrize("protocol", ["range", *(pytest.param(name, marks=pytest.mark.aio_at_length) for name in list(PROTOCOLS)[1:])])
def test_a_group_under_faults_keeps_its_promises(protocol: str, seed: int) -> None:
    figures = GroupSoak(protocol, seed, rounds=ROUNDS).run()
    assert figures["findings"] == []
    assert 0 <= figures["records"] - (ROUNDS + 1) * 60 <= 12 * (figures["generations"] - 1)
    assert figures["commits"] > 0
    assert figures["looks"] > 0
    assert figures["revoked"] > 0


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


@pytest.mark.parametrize(("member", "kind"), [(ForgetsRevoke, Kind.UNOWNED), (Skips, Kind.UNPROCESSED)])
def test_a_member_that_breaks_a_promise_is_found(member: type[SoakMember], kind: Kind) -> None:
    soak = GroupSoak("consumer", 1, rounds=3, kinds=("member joins",), member=member, wait_s=3)
    soak.run()
    assert kind in {finding.kind for finding in soak.judged}
