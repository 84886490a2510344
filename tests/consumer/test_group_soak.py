"""A group of members under faults for a moment; longer by `python -m tests.soak --group`."""

from __future__ import annotations

import pytest

from tests.soak import group, members
from tests.soak.group import GroupSoak
from tests.soak.members import PROTOCOLS

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
