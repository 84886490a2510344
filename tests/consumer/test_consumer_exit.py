"""Programs that end without `close`: the member leaves its group at once, calls nothing of the application's, and never hangs.

What the group hears is what its coordinator is sent: LeaveGroup, or a last ConsumerGroupHeartbeat.
"""

from __future__ import annotations

import gc
import json
import signal
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from numbered import numbered_topic

from kafkacore.consumer import KafkaConsumer
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.groups import MEMBER
from tests.kit.inside import driver_of, loop_of, thread_of
from tests.kit.programs import Saying

PARTITIONS = 2
RECORDS = 40
GUARD_S = 180


class Departures:
    """What the coordinator hears of members that leave."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.left: list[str] = []
        self.epochs: list[int] = []
        cluster.control("LeaveGroup", self.leave_group)
        cluster.control("ConsumerGroupHeartbeat", self.heartbeat)

    def leave_group(self, request: Any) -> None:
        self.left += [member.member_id for member in request.members] or [request.member_id]

    def heartbeat(self, request: Any) -> None:
        if request.member_epoch < 0:
            self.epochs.append(request.member_epoch)


@pytest.fixture
def departures(shared: EmbeddedCluster) -> Iterator[Departures]:
    yield Departures(shared)
    shared.control("LeaveGroup", None)
    shared.control("ConsumerGroupHeartbeat", None)


PROGRAM = (
    MEMBER
    + """
import logging
from kafkacore.consumer import at_exit

at_exit.EXIT_MAX_S = 30  # the machine may be busy
logging.basicConfig(level=logging.WARNING)
"""
)


def started(cluster: EmbeddedCluster, topic: str, body: str, *, flags: tuple[str, ...] = (), **settings: Any) -> Saying:
    given = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": f"g-{topic}", **settings}
    return Saying(PROGRAM + textwrap.dedent(body), topic, json.dumps(given), flags=flags)


ENDS: dict[str, tuple[str, int, str]] = {
    "normal": ("consumer = joined()", 0, ""),
    "exception": ("consumer = joined()\nraise RuntimeError('a bug')", 1, "RuntimeError: a bug"),
    "ctrl-c in poll": (
        """
            consumer = joined()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            while True:
                consumer.poll(60)
        """,
        -signal.SIGINT,
        "KeyboardInterrupt",
    ),
    "a daemon thread calls on": (
        """
            consumer = joined()
            def run():
                while True:
                    consumer.poll(0.001)
            threading.Thread(target=run, daemon=True).start()
            while not consumer._driver.inside:
                time.sleep(0.001)
        """,
        0,
        "",
    ),
    "a thread that polls is waited for": (
        """
            consumer = joined()
            def run():
                threading.main_thread().join()
                read(consumer)
            threading.Thread(target=run).start()
        """,
        0,
        "",
    ),
    "several members": (
        """
            consumers = [member() for _ in range(3)]
            def settled():  # stable members are not enough: what one of them gave up may not be assigned again yet
                stable = all(c._group.membership.phase.value == "stable" for c in consumers)
                return stable and sorted(len(c.assignment()) for c in consumers) == [0, 1, 1]
            while not settled():
                for c in consumers:
                    c.poll(0.05)
        """,
        0,
        "",
    ),
    "a thread is listening": (
        """
            at_exit.EXIT_MAX_S = 2.0
            class Hangs(RebalanceListener):
                def on_partitions_assigned(self, partitions):
                    calls.set()
                    threading.Event().wait()
            calls = threading.Event()
            consumer = KafkaConsumer(**settings)
            consumer.subscribe([topic], listener=Hangs())
            threading.Thread(target=consumer.poll, args=(None,), daemon=True).start()
            calls.wait()
        """,
        0,
        "is still inside a call",
    ),
    "sys.exit in the listener": (
        """
            class Exits(RebalanceListener):
                def on_partitions_assigned(self, partitions):
                    sys.exit(4)
            consumer = KafkaConsumer(**settings)
            consumer.subscribe([topic], listener=Exits())
            while True:
                consumer.poll(1)
        """,
        4,
        "",
    ),
}


ENDING = [("normal", "classic"), *((end, ("consumer", "classic")[nth % 2]) for nth, end in enumerate(ENDS))]


@pytest.mark.parametrize(("end", "group_protocol"), ENDING)
def test_the_member_leaves_whatever_ends_the_program(shared, topic, departures, group_protocol: str, end: str) -> None:
    body, code, complaint = ENDS[end]
    program = started(shared, topic, body, group_protocol=group_protocol)
    returned, err = program.ended()
    assert returned == code, err
    if complaint:
        assert complaint in err
    else:
        assert not err
    assert not program.said or program.said[-1][0] == "assigned", "no listener is called"
    if end == "a thread is listening":
        return
    members = 3 if end == "several members" else 1
    if group_protocol == "classic":
        assert len(set(departures.left)) == members
    else:
        assert departures.epochs == [-1] * members


@pytest.mark.parametrize("instance_id", [None, "i"], ids=["os._exit", "static"])
def test_a_member_that_is_to_stay_stays(shared, topic, departures, group_protocol: str, instance_id: str | None) -> None:
    """A static one, and one of a program that skips what comes at its end."""
    body = "consumer = joined()" if instance_id else "consumer = joined()\nos._exit(0)"
    program = started(shared, topic, body, group_protocol=group_protocol, group_instance_id=instance_id)
    assert program.ended() == (0, "")
    assert (departures.left, departures.epochs) == ([], [-2] if instance_id and group_protocol == "consumer" else [])


@pytest.mark.parametrize(("auto", "group_protocol"), [(True, "classic"), (True, "consumer"), (False, "consumer")])
def test_what_the_last_poll_returned_is_not_committed(shared, topic, group_protocol: str, auto: bool) -> None:
    body = """
        consumer = joined()
        say("first", {str(tp.partition): consumer.position(tp) for tp in consumer.assignment()})
        read(consumer)
    """
    program = started(shared, topic, body, group_protocol=group_protocol, enable_auto_commit=auto, auto_commit_interval_ms=600_000)
    assert program.ended() == (0, "")
    first = program.said[-1][1]
    tps = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, group_id=f"g-{topic}") as observer:
        found = {str(tp.partition): o.offset for tp, o in observer.committed(tps).items() if o is not None and o.offset}
    assert found == ({number: offset for number, offset in first.items() if offset} if auto else {})


@pytest.mark.parametrize(("end", "group_protocol"), [("normal", "classic"), ("a local variable", "consumer")])
def test_a_member_that_was_never_closed_is_warned_about(shared, topic, group_protocol: str, end: str) -> None:
    body = "consumer = joined()" if end == "normal" else "def main():\n    consumer = joined()\nmain()"
    program = started(shared, topic, body, group_protocol=group_protocol, flags=("-W", "always::ResourceWarning"))
    code, err = program.ended()
    assert code == 0
    assert err.count("ResourceWarning: unclosed KafkaConsumer(") == 1
    assert f"group g-{topic}: member" in err


@pytest.mark.parametrize("how", ["close", "with"])
def test_a_member_that_was_closed_is_not(shared, topic, how: str) -> None:
    body = "consumer = joined()\nconsumer.close()" if how == "close" else "with joined() as consumer:\n    read(consumer)"
    program = started(shared, topic, body, flags=("-W", "error::ResourceWarning"))
    assert program.ended() == (0, "")


@pytest.mark.parametrize(("fork", "group_protocol"), [("os.fork", "classic"), ("multiprocessing", "consumer")])
def test_the_end_of_a_forked_child_leaves_the_parents_member_alone(shared, topic, departures, group_protocol: str, fork: str) -> None:
    body = """
        import multiprocessing
        consumer = joined()
        if sys.stdin.readline() == "os.fork\\n":
            child = os.fork()
            if child == 0:
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        else:
            child = multiprocessing.get_context("fork").Process(target=int)
            child.start()
            child.join()
            assert child.exitcode == 0
        before = consumer.consumer_group_metadata()
        beats = consumer._group.membership.heartbeats
        say("forked")
        sys.stdin.readline()
        consumer._group.membership._heartbeat_at_ms = 0
        while consumer._group.membership.heartbeats == beats:
            consumer.poll(0.01)
        assert consumer.consumer_group_metadata() == before
        say("stays")
    """
    program = started(shared, topic, body, group_protocol=group_protocol)
    program.go_on(fork)
    program.hear("forked")
    assert (departures.left, departures.epochs) == ([], [])
    program.go_on()
    program.hear("stays")
    assert program.ended() == (0, "")
    assert len(departures.left) + len(departures.epochs) == 1


@pytest.mark.parametrize(
    ("condition", "count", "group_protocol"), [("down", 4, "consumer"), ("stopped", 1, "consumer"), ("stopped", 4, "classic")]
)
def test_a_broker_that_does_not_answer_keeps_nobody(request, group_protocol: str, condition: str, count: int) -> None:
    """All members together take two seconds at most. Without a bound each would wait until the program is killed."""
    body = f"""
        at_exit.EXIT_MAX_S = 2.0
        consumers = [joined(group_id=settings["group_id"] + str(i)) for i in range({count})]
        for consumer in consumers:
            consumer.seek(sorted(consumer.assignment())[0], 1)  # something to commit
        say("joined")
        sys.stdin.readline()
    """
    with EmbeddedCluster(brokers=1, processes=True) as cluster:
        topic = numbered_topic(cluster, request)
        program = started(cluster, topic, body, group_protocol=group_protocol, default_api_timeout_ms=3_600_000)
        program.hear("joined")
        if condition == "down":
            cluster.kill_broker(1)
        else:
            cluster.pause_broker(1)
        try:
            program.go_on()
            code, err = program.ended()
        finally:
            cluster.kill_broker(1)
        assert code == 0, err


def test_a_consumer_that_nobody_refers_to_leaves(shared, topic, departures, group_protocol: str) -> None:
    consumer = KafkaConsumer(topic, bootstrap_servers=shared.bootstrap_servers, group_id=f"g-{topic}", group_protocol=group_protocol)
    while len(consumer.assignment()) < PARTITIONS:
        consumer.poll(0.05)
    driver, thread = driver_of(consumer), thread_of(loop_of(consumer).background)
    with pytest.warns(ResourceWarning, match="unclosed KafkaConsumer"):
        del consumer
        gc.collect()
    thread.join(GUARD_S)
    assert not thread.is_alive()
    assert driver.closed
    assert len(departures.left) + len(departures.epochs) == 1
