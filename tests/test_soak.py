"""A short soak, and that the soak finds what is broken; `python -m tests.soak` runs it for longer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.soak import credentials, plain_clients
from tests.soak.plain import PlainSoak
from tests.soak.plain_clients import OurReader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]
FACED = [credentials, plain_clients]


@pytest.mark.usefixtures("client_face")
def test_a_short_soak_finds_nothing() -> None:
    figures = PlainSoak(7, seconds=4).run()
    assert figures["findings"] == []
    assert figures["faults"]
    assert figures["transactions"]["committed"] > 0
    assert all(count > 0 for count in figures["shown"].values())


@pytest.mark.usefixtures("client_face")
@pytest.mark.aio_at_length
def test_a_reader_that_loses_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = OurReader._poll

    def losing(self: OurReader, consumer: Any) -> list[Any]:
        return [(place, [record for record in records if record.offset % 50]) for place, records in poll(self, consumer)]

    monkeypatch.setattr(OurReader, "_poll", losing)
    found = PlainSoak(7).run()["findings"]
    assert any(each.startswith(("SKIPPED", "LOST")) for each in found)


def test_a_client_that_does_not_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetting(_: OurReader, consumer: Any) -> list[Any]:
        consumer.poll(0.1)
        return []

    monkeypatch.setattr(OurReader, "_poll", forgetting)
    findings = PlainSoak(7, wait_s=0.2).run()["findings"]
    assert any(found.startswith("STUCK: ['reader") and "reader-plain" in found for found in findings)
