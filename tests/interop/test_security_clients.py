"""Clients at secured listeners: one table of who gets in and who does not, for the embedded broker and for Apache Kafka 4.3.1."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop import security_brokers, security_clients
from tests.interop.security_brokers import DENIED, MECHANISMS, OPEN, PASSWORD, PROTOCOLS, Secured
from tests.interop.security_clients import CLIENTS, Access
from tests.kit.java_tools import JavaTools
from tests.kit.rows import each_row

pytestmark = pytest.mark.timeout(400)

WAYS = (
    ("PLAIN", ""), *(("SASL", each) for each in MECHANISMS), ("TLS", ""), ("MUTUAL", ""), *(("SASLTLS", each) for each in MECHANISMS[1:]),
)  # fmt: skip
_numbers = itertools.count()


class Case(NamedTuple):
    """A row of the table.

    Attributes:
        listener, mechanism: by which way in.
        has: right; or what is wrong: password, authority, certificate (none), stranger (of another authority), topic.
        outcome: what becomes of it.
    """

    listener: str
    mechanism: str
    has: str
    outcome: str

    def __str__(self) -> str:
        return "-".join(filter(None, (self.listener, self.mechanism, self.has)))


def table() -> list[Case]:
    rows = []
    for listener, mechanism in WAYS:
        wrong = [("right", "ok"), ("topic", "topic")]
        if mechanism:
            wrong.append(("password", "password"))
        if PROTOCOLS[listener].endswith("SSL"):
            wrong.append(("authority", "certificate"))
        if listener == "MUTUAL":
            wrong += [("certificate", "certificate"), ("stranger", "certificate")]
        rows += [Case(listener, mechanism, has, outcome) for has, outcome in wrong]
    return rows


TABLE = table()


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with getattr(security_brokers, request.param)() as where:
        yield where


def access_of(case: Case, where: Secured) -> Access:
    protocol = PROTOCOLS[case.listener]
    own = {"certificate": (), "stranger": where.files["stranger"]}.get(case.has, where.files["alice"]) if case.listener == "MUTUAL" else ()
    [ca] = where.files["foreign" if case.has == "authority" else "ca"]
    password = "guessed" if case.has == "password" else PASSWORD
    return Access(where.addresses[case.listener], protocol, ca, own, case.mechanism, "alice" if case.mechanism else "", password)


def place_of(case: Case) -> tuple[str, str]:
    """The topic, and a group of this test alone."""
    return DENIED if case.has == "topic" else OPEN, f"{OPEN}-{next(_numbers)}"


@each_row("case", TABLE, ids=str)
@pytest.mark.parametrize(
    "client", [pytest.param(each, marks=() if each == "kafkacore" else pytest.mark.kafka_at_length) for each in CLIENTS]
)
def test_who_gets_in(secured: Secured, client: str, case: Case) -> None:
    assert CLIENTS[client](access_of(case, secured), *place_of(case)) == case.outcome


@pytest.mark.kafka
@pytest.mark.kafka_at_length
@pytest.mark.parametrize("case", TABLE, ids=str)
def test_who_gets_in_with_kafkas_tools(secured: Secured, java: JavaTools, case: Case, tmp_path: Path) -> None:
    assert security_clients.java(java, access_of(case, secured), *place_of(case), tmp_path) == case.outcome
