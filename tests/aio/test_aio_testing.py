"""The embedded cluster of `kafkacore.aio.testing`, and fixtures with the plugins that run tests in event loops."""

from __future__ import annotations

import asyncio
import inspect
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from kafkacore import errors, testing
from kafkacore.aio import KafkaProducer
from kafkacore.aio.testing import CONTROLLER, Delay, EmbeddedCluster, Network
from tests.kit.rows import each_row

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent.parent
GUARD_S = 60
COROUTINES = [
    (face, name)
    for face in (EmbeddedCluster, Network)
    for name, method in vars(face).items()
    if inspect.iscoroutinefunction(method) and not name.startswith("_")
]
ARGUMENTS = {"broker": 1, "name": "t", "topic": "t", "partition": 0, "ms": 1, "bytes_per_second": 1, "api": "Fetch", "fn": None}
ARGUMENTS["records"] = []


class Reached(Exception):
    pass


class SlowCluster:
    """Stands where the synchronous cluster stands: whatever is looked at in it waits for the loop."""

    def __init__(self) -> None:
        self.turned = threading.Event()
        self.threads: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        self.threads.append(threading.current_thread())
        assert self.turned.wait(GUARD_S), "the loop is blocked"
        raise Reached


@each_row(("face", "name"), COROUTINES, ids=lambda each: getattr(each, "__name__", each))
def test_no_call_blocks_the_loop(face: type, name: str) -> None:
    async def call() -> None:
        cluster = face.__new__(face)
        cluster._sync = slow = SlowCluster()
        cluster._lock, cluster._last = threading.Lock(), {}
        asyncio.get_running_loop().call_soon(slow.turned.set)
        parameters = inspect.signature(getattr(cluster, name)).parameters.values()
        wanted = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        with pytest.raises(Reached):
            await getattr(cluster, name)(**{each.name: ARGUMENTS[each.name] for each in wanted})
        assert threading.current_thread() not in slow.threads

    asyncio.run(asyncio.wait_for(call(), GUARD_S))


def test_a_cluster_from_birth_to_death() -> None:
    async def live() -> None:
        async with EmbeddedCluster(brokers=2, config={"num.partitions": 2}, faults=True) as cluster:
            await cluster.create_topic("a")
            await cluster.create_topic("b", partitions=1, configs={"retention.ms": "1000"})
            assert await cluster.topics() == {"a": 2, "b": 1}
            await cluster.delete_topic("a")
            with pytest.raises(errors.UnknownTopicOrPartition):
                await cluster.delete_topic("a")
            await cluster.move_leader("b", 0, broker=2)
            assert (await cluster.leader("b", 0), sorted(await cluster.isr("b", 0))) == (2, [1, 2])
            seen = []
            await cluster.control("Produce", lambda request: seen.append(request) or Delay(1))
            async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await (await producer.send("b", b"x"))
                await cluster.network.delay(1, broker=1)
                await cluster.kill_broker(2)
                await (await producer.send("b", b"y"))
            assert seen
            assert await cluster.leader("b", 0) == 1
            assert await cluster.high_watermark("b", 0) == await cluster.end_offset("b", 0, broker=1) == 2
            await cluster.network.isolate(1, peer=CONTROLLER)
            await cluster.network.heal()
            await cluster.jump_clock(1, 1)
            await cluster.start_broker(broker=2)
            await cluster.pause_broker(2)
            await cluster.resume_broker(2)
            with pytest.raises(errors.UsageError, match="no broker 7"):
                await cluster.stop_broker(7)
            assert (cluster.processes(), len(cluster.bootstrap_servers.split(",")), bool(cluster.cluster_id)) == ({}, 2, True)
        await cluster.close()

    asyncio.run(asyncio.wait_for(live(), GUARD_S))


def test_a_start_that_is_cancelled_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()
    start_now = testing.EmbeddedCluster.start

    def start_when_cancelled(cluster: testing.EmbeddedCluster) -> testing.EmbeddedCluster:
        assert cancelled.wait(GUARD_S)
        return start_now(cluster)

    async def start() -> None:
        monkeypatch.setattr(testing.EmbeddedCluster, "start", start_when_cancelled)
        for turns in (1, 2, 3):
            cancelled.clear()
            starting = asyncio.create_task(EmbeddedCluster(data_dir=tmp_path).start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await starting
        async with EmbeddedCluster(data_dir=tmp_path) as cluster:  # the directory is free again
            await cluster.create_topic("t")

    before = set(threading.enumerate())  # of clusters that live longer than a test, too
    asyncio.run(asyncio.wait_for(start(), GUARD_S))
    assert not [thread.name for thread in threading.enumerate() if "broker" in thread.name and thread not in before]


def test_changes_of_a_broker_come_in_their_order() -> None:
    """Also those whose callers were cancelled; each change waits for the one before, so that the last one counts."""

    async def change() -> None:
        async with EmbeddedCluster(brokers=2) as cluster:
            await cluster.create_topic("t", partitions=1)
            for _ in range(5):
                asked = (cluster.stop_broker(1), cluster.start_broker(1), cluster.stop_broker(1))
                changes = [asyncio.ensure_future(each) for each in asked]
                await asyncio.sleep(0)
                changes[0].cancel()
                await asyncio.wait(changes)
                assert await cluster.isr("t", 0) == [2]
                await cluster.start_broker(1)
                await cluster.move_leader("t", 0, broker=1)

    asyncio.run(asyncio.wait_for(change(), GUARD_S))


def test_a_cluster_belongs_to_no_loop() -> None:
    with testing.EmbeddedCluster() as sync:
        cluster = EmbeddedCluster.of(sync)
        for name in ("a", "b"):
            asyncio.run(cluster.create_topic(name, partitions=1))
        assert asyncio.run(cluster.topics()) == sync.topics() == {"a": 1, "b": 1}


USERS_TESTS = """
import asyncio
import pytest
{imports}
from kafkacore.aio import KafkaConsumer, KafkaProducer
from kafkacore.aio.testing import EmbeddedCluster


{wide_fixture}
async def cluster():
    async with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


{fixture}
async def producer(cluster):
    async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        yield producer


{mark}
async def test_a_leader_that_ends(cluster, producer):
    await cluster.create_topic("orders", partitions=1)
    await (await producer.send("orders", b"first"))
    await cluster.stop_broker(await cluster.leader("orders", 0))
    await (await producer.send("orders", b"second"))
    assert await cluster.high_watermark("orders", 0) == 2


{mark}
async def test_what_it_left(cluster):
    async with KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        assert [record.value async for record in first_two(consumer)] == [b"first", b"second"]


async def first_two(consumer):
    async for record in consumer:
        yield record
        if record.offset == 1:
            return


{mark}
@pytest.mark.parametrize("value", [b"x", b"y"])
async def test_the_cluster_of_the_session(aio_kafka_cluster, kafka_topic, value):
    assert await aio_kafka_cluster.topics() == {{kafka_topic: 1}}
    async with KafkaProducer(bootstrap_servers=aio_kafka_cluster.bootstrap_servers) as producer:
        assert (await (await producer.send(kafka_topic, value))).offset == 0
"""
OF_ANYIO = """
@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"
"""
USERS = {
    "pytest-asyncio": {
        "imports": "import pytest_asyncio",
        "wide_fixture": '@pytest_asyncio.fixture(scope="module", loop_scope="module")',
        "fixture": "@pytest_asyncio.fixture",
        "mark": "@pytest.mark.asyncio",
    },
    "anyio": {
        "imports": OF_ANYIO,
        "wide_fixture": '@pytest.fixture(scope="module")',
        "fixture": "@pytest.fixture",
        "mark": "@pytest.mark.anyio",
    },
}


@pytest.mark.parametrize("plugin", USERS)
def test_the_tests_of_a_user(plugin: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["-p", "no:asyncio"]
    if plugin != "anyio":
        pytest.importorskip("pytest_asyncio")
        options = ["-p", "no:anyio", "-o", "asyncio_mode=strict"]
        for setting in ("asyncio_default_fixture_loop_scope", "asyncio_default_test_loop_scope"):
            options += ["-o", f"{setting}=function"]
    if not any(point.name == "kafkacore" for point in entry_points(group="pytest11")):
        options += ["-p", "kafkacore.testing.plugin"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    pytester.makepyfile(test_users=USERS_TESTS.format(**USERS[plugin]))
    done = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider", "-W", "error", *options, timeout=GUARD_S)
    done.assert_outcomes(passed=4)
