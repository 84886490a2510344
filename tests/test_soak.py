"""A short soak, and that the soak finds what is broken; tests/soak.py runs it for longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import soak
import soak_clients
from soak import Soak
from soak_clients import Commits, OurReader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]
FACED = [soak_clients]


@pytest.mark.usefixtures("client_face")
def test_a_short_soak_finds_nothing() -> None:
    figures = Soak(seconds=4, seed=7).run()
    assert figures["findings"] == []
    assert figures["faults"]
    assert figures["transactions"]["committed"] > 0
    assert figures["commits"] > 0
    assert all(count > 0 for count in figures["shown"].values())


@pytest.mark.usefixtures("client_face")
@pytest.mark.aio_at_length
def test_a_reader_that_loses_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = OurReader._poll

    def losing(self: OurReader, consumer: Any) -> list[Any]:
        return [(place, [record for record in records if record.offset % 50]) for place, records in poll(self, consumer)]

    monkeypatch.setattr(OurReader, "_poll", losing)
    [found] = Soak(seconds=0, seed=7).run()["findings"]
    assert "SKIPPED" in found or "LOST" in found


def test_a_client_that_does_not_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetting(_: OurReader, consumer: Any) -> list[Any]:
        consumer.poll(0.1)
        return []

    monkeypatch.setattr(OurReader, "_poll", forgetting)
    monkeypatch.setattr(soak, "RETURN_S", 0.2)
    findings = Soak(seconds=0, seed=7).run()["findings"]
    assert any(found.startswith("STUCK: reader-plain did not come back") for found in findings)


def test_a_committed_offset_that_goes_back_is_found() -> None:
    found: list[str] = []
    commits = Commits(SimpleNamespace(find=found.append))  # type: ignore[arg-type]
    commits.tried({0: 5}, took_s=10, acked=False)
    commits.tried({0: 7}, took_s=0.1, acked=True)
    commits.seen("observer", 0, 7, commits.floor()[0])
    commits.seen("observer", 0, 5, commits.floor()[0])  # a request that arrived late
    assert (found, commits.late, commits.floor()) == ([], 1, {0: 5})
    commits.seen("observer", 0, 4, commits.floor()[0])
    assert len(found) == 1
