"""Members that are away: an application that does not poll, a process that is stopped, a program that ends without closing."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import pytest
from numbered import send_numbers

from kafkacore import errors
from kafkacore.clock import JumpingClock
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit import groups
from tests.kit.clusters import embedded
from tests.kit.groups import Heard, until_polled
from tests.kit.inside import group_of
from tests.kit.programs import Saying
from tests.kit.records import take

PARTITIONS = 2
RECORDS = 100
SESSION_MS = 1_500


shared = embedded(
    brokers=1,
    config={
        "group_consumer_heartbeat_interval_ms": 50,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_min_session_timeout_ms": SESSION_MS,
    },
)


def places(records: list[Any]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


# -- the application does not poll ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto", [True, False])
def test_a_member_that_does_not_poll_leaves_and_says_why_it_cannot_commit(member, topic: str, auto: bool) -> None:
    heard = Heard()
    slow = member(heard, max_poll_interval_ms=2_000, enable_auto_commit=auto, auto_commit_interval_ms=1, max_poll_records=10)
    take(slow, 1)
    until_polled(lambda: group_of(slow).membership.breached)
    other = member()
    tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    until_polled(lambda: len(other.assignment()) == PARTITIONS, other)
    assert heard.kinds == ["assigned"], "the listener is called by poll alone"
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
    assert not slow.poll(0), "what it has fetched is another member's by now"
    other.close()
    until_polled(lambda: len(slow.assignment()) == PARTITIONS and heard.kinds[-1] == "assigned" and len(heard.kinds) > 1, slow)
    assert heard.kinds == ["assigned", "lost", "assigned"]
    slow.commit({tps[0]: 9})
    assert slow.committed(tps[0]).offset in {9, slow.position(tps[0]) if auto else 9}  # automatic commits go on


def test_an_hour_passes_at_once_for_a_member_that_is_away(member, shared: EmbeddedCluster, topic: str) -> None:
    """A suspended machine whose monotonic clock counts that time: time-outs, back-offs and connections end all at once."""
    clock, heard = JumpingClock(), Heard()
    consumer = member(heard, clock=clock, enable_auto_commit=False)
    assert len(take(consumer, RECORDS)) == RECORDS
    consumer.commit()
    clock.sleep(3_600_000)
    until_polled(lambda: group_of(consumer).membership.breached)
    with pytest.raises(errors.CommitFailed, match="max_poll_interval_ms"):
        consumer.commit()
    with pytest.raises(errors.MaxPollExceeded):
        consumer.poll(0)
    send_numbers(shared, topic, PARTITIONS, RECORDS)
    found = places(take(consumer, RECORDS))
    assert sorted(found) == [(i, offset) for i in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS, 2 * RECORDS // PARTITIONS)]
    assert heard.kinds == ["assigned", "lost", "assigned"]


# -- the process is stopped -----------------------------------------------------------------------------------------------------------

STOPPED = """
consumer = member()

def read_on():
    say("read", read(consumer))

read_on()
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
while "lost" not in heard:
    read_on()  # first what it had fetched
for _ in range(5):
    read_on()
say("end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("group_protocol", "auto"), [("classic", True), ("consumer", False)])
def test_a_process_that_is_stopped_past_its_session_commits_nothing_more(
    shared: EmbeddedCluster, member, topic: str, group_protocol: str, auto: bool
) -> None:
    """Others take over from what was committed. The stopped one hears what it lost; its old commits are refused."""
    tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    own = {"heartbeat_interval_ms": 50, "session_timeout_ms": SESSION_MS} if group_protocol == "classic" else {}
    given = {**member.settings, **own, "enable_auto_commit": auto, "auto_commit_interval_ms": 1}
    with Saying(groups.MEMBER + STOPPED, topic, json.dumps(given)) as stopped:
        stopped.hear("read")
        stopped.process.send_signal(signal.SIGSTOP)
        successor = member(enable_auto_commit=False)
        found = places(take(successor, RECORDS))
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
