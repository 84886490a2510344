"""Members that are away: an application that does not poll, a process that is stopped, a program that ends without closing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from numbered import send_numbers

from kafkacore import errors
from kafkacore.clock import SystemClock
from kafkacore.consumer import KafkaConsumer, RebalanceListener
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.inside import group_of

PARTITIONS = 2
RECORDS = 100
GUARD_S = 60
SESSION_MS = 1_500


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    config = {
        "group_consumer_heartbeat_interval_ms": 50,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_min_session_timeout_ms": SESSION_MS,
    }
    with EmbeddedCluster(brokers=1, config=config) as cluster:
        yield cluster


@pytest.fixture
def member(shared: EmbeddedCluster, topic: str, group_protocol: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(listener: RebalanceListener | None = None, **settings: Any) -> KafkaConsumer:
        own = {"heartbeat_interval_ms": 50} if group_protocol == "classic" else {}
        given = {"bootstrap_servers": shared.bootstrap_servers, "group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
        consumer = KafkaConsumer(**{**given, "group_protocol": group_protocol, **own, **settings})
        made.append(consumer)
        consumer.subscribe([topic], listener=listener)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions):
        if partitions:
            self.calls.append("assigned")

    def on_partitions_revoked(self, partitions):
        self.calls.append("revoked")

    def on_partitions_lost(self, partitions):
        self.calls.append("lost")


def until(condition: Callable[[], object], *polled: KafkaConsumer) -> None:
    for _ in range(GUARD_S * 50):
        if condition():
            return
        for consumer in polled:
            consumer.poll(0.02)
        if not polled:
            threading.Event().wait(0.02)
    raise AssertionError("it never came")


def read(consumer: KafkaConsumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of so many records."""
    found: list[tuple[int, int]] = []
    for _ in range(GUARD_S * 10):
        found += [(r.partition, r.offset) for records in consumer.poll(0.1).values() for r in records]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records came")


# -- the application does not poll ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto", [True, False])
def test_a_member_that_does_not_poll_leaves_and_says_why_it_cannot_commit(member, topic: str, auto: bool) -> None:
    heard = Notes()
    slow = member(heard, max_poll_interval_ms=2_000, enable_auto_commit=auto, auto_commit_interval_ms=1, max_poll_records=10)
    read(slow, 1)
    until(lambda: group_of(slow).membership.breached)
    other = member()
    tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    until(lambda: len(other.assignment()) == PARTITIONS, other)
    assert heard.calls == ["assigned"], "the listener is called by poll alone"
    assert group_of(slow).managed
    refused = pytest.raises(errors.CommitFailed, match=r"poll\(\) was not called for max_poll_interval_ms \(2000 ms\)")
    with refused:
        slow.commit({tps[0]: 7})
    with refused:
        slow.commit_async({tps[0]: 7})
    with pytest.raises(errors.MaxPollExceeded, match=r"max_poll_interval_ms \(2000 ms\)"):
        slow.poll(0)
    with pytest.raises(errors.CommitFailed, match="max_poll_interval_ms"):
        slow.commit({tps[0]: 7})
    other.close()
    until(lambda: len(slow.assignment()) == PARTITIONS and heard.calls[-1] == "assigned" and len(heard.calls) > 1, slow)
    assert heard.calls == ["assigned", "lost", "assigned"]
    slow.commit({tps[0]: 9})
    assert slow.committed(tps[0]).offset in {9, slow.position(tps[0]) if auto else 9}  # automatic commits go on


class Jumping(SystemClock):
    """The machine's clocks, with jumps."""

    def __init__(self) -> None:
        self.by_ms = self.wall_by_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_by_ms


def test_a_wall_clock_that_jumps_changes_nothing(member, shared: EmbeddedCluster, topic: str) -> None:
    clock, heard = Jumping(), Notes()
    consumer = member(heard, clock=clock)
    read(consumer, RECORDS)
    before = consumer.consumer_group_metadata()
    for by_ms in (3_600_000, -3_600_000, 0):
        clock.wall_by_ms = by_ms
        beats = group_of(consumer).membership.heartbeats
        until(lambda beats=beats: group_of(consumer).membership.heartbeats > beats + 2)
        send_numbers(shared, topic, PARTITIONS, RECORDS)
        read(consumer, RECORDS)
    assert consumer.consumer_group_metadata() == before
    assert heard.calls == ["assigned"]


def test_an_hour_passes_at_once_for_a_member_that_is_away(member, shared: EmbeddedCluster, topic: str) -> None:
    """A suspended machine whose monotonic clock counts that time: time-outs, back-offs and connections end all at once."""
    clock, heard = Jumping(), Notes()
    consumer = member(heard, clock=clock, enable_auto_commit=False)
    assert len(read(consumer, RECORDS)) == RECORDS
    consumer.commit()
    clock.by_ms = 3_600_000
    until(lambda: group_of(consumer).membership.breached)
    with pytest.raises(errors.CommitFailed, match="max_poll_interval_ms"):
        consumer.commit()
    with pytest.raises(errors.MaxPollExceeded):
        consumer.poll(0)
    send_numbers(shared, topic, PARTITIONS, RECORDS)
    found = read(consumer, RECORDS)
    assert sorted(found) == [(i, offset) for i in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS, 2 * RECORDS // PARTITIONS)]
    assert heard.calls == ["assigned", "lost", "assigned"]


# -- the process is stopped -----------------------------------------------------------------------------------------------------------

MEMBER = """
    import json, sys
    from kafkacore import errors
    from kafkacore.consumer import KafkaConsumer, RebalanceListener

    def say(*what):
        print(json.dumps(what), flush=True)

    class Says(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            say("assigned", len(partitions))
        def on_partitions_revoked(self, partitions):
            say("revoked", len(partitions))
        def on_partitions_lost(self, partitions):
            say("lost", len(partitions))
            losses.append(partitions)

    losses = []
    topic, settings = sys.argv[1], json.loads(sys.argv[2])
    consumer = KafkaConsumer(auto_offset_reset="earliest", **settings)
    consumer.subscribe([topic], listener=Says())

    def read():
        for _ in range(1200):
            if found := consumer.poll(0.1, max_records=10):
                say("read", [(r.partition, r.offset) for records in found.values() for r in records])
                return
"""


class Other:
    """A member in a process of its own: what it says, in order."""

    def __init__(self, topic: str, body: str, **settings: Any) -> None:
        script = textwrap.dedent(MEMBER) + textwrap.dedent(body)
        command = [sys.executable, "-W", "always", "-c", script, topic, json.dumps(settings)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said: list[list[Any]] = []
        self.guard = threading.Timer(2 * GUARD_S, self.process.kill)
        self.guard.start()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self.guard.cancel()
        self.process.kill()
        self.process.communicate()

    def hear(self, word: str) -> Any:
        """Waits until it says this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if self.said[-1][0] == word:
                return self.said[-1][-1]
        raise AssertionError(f"it ended: {self.said}, {self.process.stderr.read()}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def settings_of(shared: EmbeddedCluster, topic: str, group_protocol: str, **settings: Any) -> dict[str, Any]:
    own = {"heartbeat_interval_ms": 50, "session_timeout_ms": SESSION_MS} if group_protocol == "classic" else {}
    given = {"bootstrap_servers": shared.bootstrap_servers, "group_id": f"g-{topic}", "group_protocol": group_protocol}
    return {**given, **own, **settings}


STOPPED = """
    read()
    sys.stdin.readline()
    try:
        if settings["enable_auto_commit"]:  # what the poll before returned is processed now
            consumer.poll(0, max_records=1)
        else:
            consumer.commit()
            say("committed")
    except errors.CommitFailed as error:
        say("refused", str(error))
    say("ready")
    sys.stdin.readline()
    while not losses:
        read()  # first what it had fetched
    for _ in range(5):
        read()
    say("end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("auto", [True, False])
def test_a_process_that_is_stopped_past_its_session_commits_nothing_more(
    shared: EmbeddedCluster, member, topic: str, group_protocol: str, auto: bool
) -> None:
    """Others take over from what was committed. The stopped one hears what it lost; its old commits are refused."""
    tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    settings = settings_of(shared, topic, group_protocol, enable_auto_commit=auto, auto_commit_interval_ms=1)
    with Other(topic, STOPPED, **settings) as stopped:
        stopped.hear("read")
        stopped.process.send_signal(signal.SIGSTOP)
        successor = member(enable_auto_commit=False)
        found = read(successor, RECORDS)
        assert sorted(found) == [(i, offset) for i in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)], "nothing is skipped"
        successor.commit(dict.fromkeys(tps, 3))
        stopped.go_on()
        stopped.process.send_signal(signal.SIGCONT)
        stopped.hear("ready")
        if not auto:
            assert "not a member" in next(what for word, what in (s for s in stopped.said if len(s) == 2) if word == "refused")
        assert {tp: o.offset for tp, o in successor.committed(tps).items()} == dict.fromkeys(tps, 3)
        successor.close()
        stopped.go_on()
        stopped.hear("end")
        words = [s[0] for s in stopped.said]
        assert "revoked" not in words
        assert "committed" not in words
        joined_again = words.index("assigned", words.index("lost"))
        again = [r for word, *found in stopped.said[joined_again:] if word == "read" for r in found[0]]
        for i in range(PARTITIONS):
            mine = [offset for partition, offset in again if partition == i]
            assert mine == list(range(3, 3 + len(mine))), "it goes on from what is committed"
