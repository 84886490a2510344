"""Several loops in a process, loops closed before their clients, and loops in debug mode."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from cancelling import GUARD_S

from kafkacore import KafkaAdminClient as SyncAdmin
from kafkacore import KafkaConsumer as SyncConsumer
from kafkacore import KafkaProducer as SyncProducer
from kafkacore._codec import finish_on_loop
from kafkacore.aio import KafkaConsumer, KafkaProducer, RebalanceListener
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import descriptor_of, driver_of
from tests.kit.loops import NewLoop
from tests.kit.records import fill
from tests.kit.rows import each_row

SESSION_MS = 1_500


UNCLOSED = """
import asyncio, gc, sys, warnings
import uvloop
from kafkacore import KafkaConsumer as SyncConsumer
from kafkacore._codec import finish_on_loop
from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer, RebalanceListener

servers, topic, kind, end = sys.argv[1:]


async def work():
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=60_000)
    await producer.send(topic, b"last")
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest")
    (await consumer.poll(None))
    waiting = asyncio.create_task(consumer.poll(None))
    await asyncio.sleep(0)
    admin = KafkaAdminClient(bootstrap_servers=servers)
    await admin.list_topics()
    future = await producer.send(topic, b"last of all")
    delivery = asyncio.ensure_future(asyncio.wait_for(future, None))
    await asyncio.sleep(0)
    return producer, consumer, admin, waiting, delivery


loop = (uvloop if kind == "uvloop" else asyncio).new_event_loop()
clients = loop.run_until_complete(work())
loop.close()
if end == "collected":
    del clients
    gc.collect()
print("the end", flush=True)
"""


@pytest.mark.parametrize("end", ["collected", "held"])
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_loop_that_is_closed_before_its_clients(servers: str, kind: str, end: str) -> None:
    """They warn; the process ends, its records are delivered, and its member has left."""
    topic = f"unclosed-{kind}-{end}"
    with SyncAdmin(bootstrap_servers=servers) as admin:
        with SyncProducer(bootstrap_servers=servers) as producer:
            producer.send(topic, b"first").result()
        command = [sys.executable, "-X", "dev", "-c", UNCLOSED, servers, topic, kind, end]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            said = program.stdout.readline()
            stdout, stderr = program.communicate(timeout=GUARD_S)
        assert (program.returncode, said, stdout) == (0, "the end\n", ""), stderr
        for client in ("aio.KafkaProducer", "KafkaConsumer", "aio.KafkaAdminClient"):
            assert "ResourceWarning" in stderr
            assert client in stderr
        assert "never awaited" not in stderr
        assert "Exception ignored" not in stderr
        assert admin.describe_groups([topic])[topic].state.lower() == "empty", stderr
        assert next(iter(admin.list_offsets({(topic, 0): "latest"}).values())).offset == 3, stderr


class Noting(RebalanceListener):
    """Counts its calls."""

    def __init__(self) -> None:
        self.assigned = self.given_up = 0

    async def on_partitions_assigned(self, partitions: Any) -> None:
        self.assigned += 1

    async def on_partitions_revoked(self, partitions: Any) -> None:
        self.given_up += 1


def test_a_member_survives_a_loop_that_is_blocked_for_longer_than_its_session() -> None:
    """Of both group protocols: what blocks the loop is the poll of a synchronous consumer."""

    async def work(cluster: EmbeddedCluster, idle: SyncConsumer) -> None:
        servers = cluster.bootstrap_servers
        members: dict[KafkaConsumer, Noting] = {}
        async with KafkaProducer(bootstrap_servers=servers, linger_ms=0) as producer:
            await (await producer.send("t", b"0"))
            for protocol in ("classic", "consumer"):
                own = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 50} if protocol == "classic" else {}
                settings = {"group_id": protocol, "group_protocol": protocol, "auto_offset_reset": "earliest", **own}
                member = KafkaConsumer(bootstrap_servers=servers, **settings)
                members[member] = Noting()
                member.subscribe(["t"], listener=members[member])
                assert [record.value for records in (await member.poll(None)).values() for record in records] == [b"0"]
            before = [member.consumer_group_metadata() for member in members]
            future = await producer.send("t", b"1")
            assert idle.poll(2 * SESSION_MS / 1000) == {}
            assert future.done()
            assert [member.consumer_group_metadata() for member in members] == before
            for member, heard in members.items():
                assert [record.value for records in (await member.poll(None)).values() for record in records] == [b"1"]
                await member.commit()
                assert (heard.assigned, heard.given_up) == (1, 0)
                await member.close()

    config = {
        "group_consumer_heartbeat_interval_ms": 50,
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_min_session_timeout_ms": SESSION_MS,
    }
    with EmbeddedCluster(config=config) as cluster, SyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as idle:
        cluster.create_topic("empty", partitions=1)
        idle.assign([("empty", 0)])
        asyncio.run(asyncio.wait_for(work(cluster, idle), GUARD_S))


def test_a_consumer_is_closed_in_the_loop_after_its_own(servers: str, new_loop: NewLoop) -> None:
    """The listener is called where the close runs."""
    topic = f"two-loops-{new_loop.__module__}"
    heard: list[asyncio.AbstractEventLoop] = []

    class Where(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            await asyncio.sleep(0)
            heard.append(asyncio.get_running_loop())

    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest")

    async def read() -> None:
        fill(servers, topic, [b"x"])
        consumer.subscribe([topic], listener=Where())
        assert await consumer.poll(None)

    async def close() -> None:
        await consumer.close()
        assert heard == [asyncio.get_running_loop()]

    for work in (read, close):
        with asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
            runner.run(asyncio.wait_for(work(), GUARD_S))


def test_a_loop_that_is_closed_within_a_listener(servers: str, new_loop: NewLoop) -> None:
    """The consumer's thread does not wait for the listener for ever: another loop can close the consumer."""
    topic = f"within-{new_loop.__module__}"

    class Stays(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Any) -> None:
            reached.set()
            await asyncio.Event().wait()

    async def begin() -> KafkaConsumer:
        nonlocal reached
        reached = asyncio.Event()
        fill(servers, topic, [b"x"])
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest")
        consumer.subscribe([topic], listener=Stays())
        polls.append(asyncio.create_task(consumer.poll(None)))
        await reached.wait()
        return consumer

    reached: asyncio.Event
    polls: list[asyncio.Task[Any]] = []
    loop = new_loop()
    consumer = loop.run_until_complete(begin())
    loop.close()
    polls.pop().get_coro().close()
    with asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
        runner.run(asyncio.wait_for(consumer.close(), GUARD_S))
    assert consumer.closed


def test_a_producer_collected_between_the_stop_and_the_close_of_its_loop(servers: str, new_loop: NewLoop) -> None:
    """The loop makes no call any more: its descriptor is closed with the loop."""
    loop = new_loop()

    async def work() -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=servers, linger_ms=0)
        while not descriptor_of(driver_of(producer)).watched_by:
            await (await producer.send(f"stopped-{new_loop.__module__}", b"x"))
        return producer

    producer = loop.run_until_complete(work())
    number = descriptor_of(driver_of(producer)).number
    assert os.stat(f"/proc/self/fd/{number}")
    before = os.fstat(number)
    with pytest.warns(ResourceWarning, match="was never closed"):
        del producer
        gc.collect()
    loop.close()
    assert not os.path.exists(f"/proc/self/fd/{number}") or os.fstat(number) != before


def test_a_descriptor_that_two_threads_close_is_forgotten_once(servers: str) -> None:
    """Both have asked the loop to forget it."""
    logged: list[dict[str, Any]] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: logged.append(context))
        async with KafkaProducer(bootstrap_servers=servers, linger_ms=0) as producer:
            driver = driver_of(producer)
            while not descriptor_of(driver).watched_by:
                await (await producer.send("two-threads", b"x"))
            descriptor = descriptor_of(driver)
            driver.close()
            driver._descriptor = descriptor  # as the other thread has seen it
            driver.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert descriptor.number == -1

    asyncio.run(work())
    assert logged == []


class Turns:
    """A loop with a time of its own, which notes how much each call has finished."""

    def __init__(self, task_s: float) -> None:
        self.task_s = task_s
        self.now_s = 0.0
        self.finished: list[int] = [0]
        self.calls: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, fn: Callable[..., None], *args: Any) -> None:
        self.calls.append(lambda: fn(*args))

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        """A task goes on, and takes its time."""
        self.now_s += self.task_s
        self.finished[-1] += 1


@each_row(("task_s", "most"), [(0.0, 256), (0.000_1, 112), (0.000_5, 32), (0.1, 16)])
def test_deliveries_are_finished_in_turns(task_s: float, most: int) -> None:
    """At most 256 tasks go on in a call of the loop, and none begins 10 ms after its start, looked at with every 16th."""
    turns: Any = Turns(task_s)
    finish_on_loop(turns, [turns] * 2_000)
    while turns.calls:
        turns.finished.append(0)
        turns.calls.pop()()
    assert sum(turns.finished) == 2_000
    assert max(turns.finished) == turns.finished[0] == most
