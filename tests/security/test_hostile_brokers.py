"""A short, repeatable piece of `hostile_brokers.py`: clients and the command line against a broker that lies.

KAFKACORE_HOSTILE_SECONDS=600 makes the run longer.
"""

import gc
import logging
import os
import random
import signal
import threading

import pytest

from kafkacore import KafkaAdminClient, protocol
from kafkacore.errors import CorruptDataError, KafkaError
from tests.fuzz_loop import random_message
from tests.kit.rows import each_row
from tests.security import hostile_lies
from tests.security.hostile_brokers import Attack, Misbehaved, _interrupting, lie, run, twisted
from tests.security.hostile_faces import FACES

SECONDS = float(os.environ.get("KAFKACORE_HOSTILE_SECONDS", "0"))


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # Ctrl+C came before the command had its directory in hand
def test_clients_take_lies():
    attack = run(7, seconds=SECONDS) if SECONDS else run(7, rounds=60)
    assert set(attack.done) >= {"producer", "consumer", "admin", "cli", "cli groups", "cli reads", "lies"}
    assert len(set(attack.done) & set(FACES)) >= 4
    assert len(attack.proxy.changed) >= 10
    assert attack.faults


@each_row("key", sorted(protocol.APIS))
def test_every_answer_can_be_lied_about(key):
    """What comes is a frame with its size, and often another one; a client's decoder takes or refuses it."""
    api, rng = protocol.APIS[key], random.Random(key)
    outcomes = set()
    for version in range(api.min_version, api.max_version + 1):
        for _ in range(8):
            made = random_message(api.response, version, rng)
            frame = b"".join(bytes(part) for part in protocol.encode_response(made, version, 77))[4:]
            shown = lie(key, version, frame, rng)
            outcomes.add(shown[4:] != frame)
            try:
                _, start = protocol.decode_response_header(key, version, shown[4:])
                api.response.decode(version, shown[4:], start)
            except CorruptDataError:
                pass
            assert type(twisted(made, rng)) is api.response
    assert True in outcomes


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


@each_row(("name", "drive"), NATIVE, ids=[f"{drive}: {name}" for name, drive in NATIVE])
def test_a_lie_that_is_told_again_and_again_keeps_no_client_busy(lied_to, name, drive):
    """Counted are requests: a slow machine makes fewer of them."""
    pace = reached_pace(lied_to, name, drive)
    assert pace.rate < hostile_lies.PACE, pace


@pytest.mark.night
@each_row("face", sorted(set(FACES) - {"kafkacore"}))
@each_row(
    ("name", "drive"),
    [
        ("a nearer replica that is behind", "read"),
        ("fetch: nothing, at once, and much behind it", "read"),
        ("produce: not the leader, which is this one, with a rising epoch", "write"),
        ("committed offsets beyond the log", "group"),
    ],
)
def test_nor_a_client_of_another_face(lied_to, face, name, drive):
    if (name, drive) not in hostile_lies.cases(face):
        pytest.skip("this face has no such setting")
    pace = reached_pace(lied_to, name, drive, face)
    assert pace.rate < hostile_lies.PACE, pace


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


def test_ctrl_c_is_not_lost_in_a_callback_of_the_collector():
    inside, came, goes_on = [], [], []

    def callback(phase, info):
        if inside and not came:  # the collector may run before, too
            came.append(phase)
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(callback)
    try:
        with _interrupting(60):
            inside.append(True)
            gc.collect()
            threading.Event().wait(30)
            goes_on.append(True)
    finally:
        gc.callbacks.remove(callback)
    assert came and not goes_on
