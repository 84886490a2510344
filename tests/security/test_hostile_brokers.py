"""A short, repeatable piece of `hostile_brokers.py`: clients and the command line against a broker that lies.

KAFKACORE_HOSTILE_SECONDS=600 makes the run longer.
"""

import logging
import os
import random

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.errors import KafkaError
from tests.kit.rows import each_row
from tests.security import hostile_lies
from tests.security.hostile_brokers import Attack, Misbehaved, run
from tests.security.hostile_faces import FACES

SECONDS = float(os.environ.get("KAFKACORE_HOSTILE_SECONDS", "0"))


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # Ctrl+C came before the command had its directory in hand
def test_clients_take_lies():
    attack = run(7, seconds=SECONDS) if SECONDS else run(7, rounds=35)
    assert set(attack.done) >= {"producer", "consumer", "admin", "cli", "cli groups", "cli reads", "lies"}
    assert len(set(attack.done) & set(FACES)) >= 4
    assert len(attack.proxy.changed) >= 10
    assert attack.faults


@pytest.fixture(scope="module")
def lied_to():
    with Attack(1)() as attack:
        yield attack


def reached_pace(lied_to, *case):
    """What a lie is about is reached, or it would show nothing: on a busy machine that takes longer."""
    for seconds in (0.6, 6, 60):
        pace = hostile_lies.measured(lied_to, *case, seconds=seconds)
        if pace.told:
            return pace
    raise AssertionError(pace)


NATIVE = hostile_lies.cases("kafkacore")
FIRST = {(drive, *hostile_lies.LIES[name].answers): (name, drive) for name, drive in reversed(NATIVE)}
"""One lie for each drive and the APIs that it is in the answers of; the others are for the night."""


def keeps_no_client_busy(lied_to, cases):
    """Counted are requests: a slow machine makes fewer of them."""
    paces = {case: reached_pace(lied_to, *case) for case in cases}
    assert not {case: str(pace) for case, pace in paces.items() if pace.rate >= hostile_lies.PACE}


def test_a_lie_that_is_told_again_and_again_keeps_no_client_busy(lied_to):
    keeps_no_client_busy(lied_to, FIRST.values())


@pytest.mark.night
def test_nor_do_other_lies_about_the_same(lied_to):
    keeps_no_client_busy(lied_to, set(NATIVE) - {*FIRST.values()})


OF_ANY_FACE = [
    ("a nearer replica that is behind", "read"),
    ("fetch: nothing, at once, and much behind it", "read"),
    ("produce: not the leader, which is this one, with a rising epoch", "write"),
    ("committed offsets beyond the log", "group"),
]


@pytest.mark.night
@each_row("face", sorted(set(FACES) - {"kafkacore"}))
def test_nor_a_client_of_another_face(lied_to, face):
    keeps_no_client_busy(lied_to, [(*case, face) for case in OF_ANY_FACE if case in hostile_lies.cases(face)])


def test_a_client_that_is_busy_is_found(lied_to, monkeypatch):
    def busy(address, seconds, settings, failed):
        with KafkaAdminClient(bootstrap_servers=address) as admin:
            for _ in range(300):
                admin.list_topics()

    monkeypatch.setitem(FACES["kafkacore"], "read", busy)
    pace = hostile_lies.measured(lied_to, "metadata: no leader", "read", seconds=0)
    assert pace.requests["Metadata"] >= 300
    monkeypatch.setattr(hostile_lies, "PACE", 0)
    monkeypatch.setattr(lied_to.rng, "choice", lambda options: "kafkacore" if "aio" in options else ("metadata: no leader", "read"))
    with pytest.raises(Misbehaved, match=r"kafkacore read, metadata: no leader: \d+ requests/s"):
        lied_to.consistent()


def _foreign(self, *_, **__):
    raise IndexError("planted")


def _logged(self, *_, **__):
    logging.getLogger("kafkacore.planted").error("a pass failed", exc_info=IndexError("planted"))
    raise KafkaError("and the call as well")


@pytest.mark.parametrize("fault", [_foreign, _logged])
def test_the_loop_tells_what_broke(fault, monkeypatch):
    monkeypatch.setattr(KafkaAdminClient, "describe_cluster", fault)
    attack = Attack(1)
    with attack():
        monkeypatch.setattr(attack, "rng", _Chooses(1))
        with pytest.raises(Misbehaved, match=r"planted|a pass failed"):
            attack.round()


class _Chooses(random.Random):
    """The admin client, and of its calls the one that is broken."""

    def choice(self, options):
        return next((each for each in options if each[0] == "admin"), options[0]) if isinstance(options[0], tuple) else options[0]

    def sample(self, options, k):
        return [lambda admin: admin.describe_cluster()]
