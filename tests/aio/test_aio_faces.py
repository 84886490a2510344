"""The asyncio clients have the methods, arguments and settings of the synchronous ones."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

import kafkacore
from kafkacore import aio, errors, testing
from kafkacore.aio import testing as aio_testing
from tests.kit.loops import run, turns
from tests.kit.rows import each_row

FACES = [
    (kafkacore.KafkaProducer, aio.KafkaProducer),
    (kafkacore.KafkaConsumer, aio.KafkaConsumer),
    (kafkacore.KafkaAdminClient, aio.KafkaAdminClient),
    (testing.EmbeddedCluster, aio_testing.EmbeddedCluster),
    (testing.Network, aio_testing.Network),
]
OTHER_DUNDERS = {"__iter__": "__aiter__", "__enter__": "__aenter__", "__exit__": "__aexit__"}
NEVER_WAIT = {
    "KafkaProducer": {"begin_transaction", "measured", "metrics", "statistics", "transaction"},
    "KafkaConsumer": {
        "assign", "assignment", "commit_async", "consumer_group_metadata", "enforce_rebalance", "health", "lag", "measured", "metrics",
        "pause", "paused", "read", "read_range", "resume", "seek", "seek_to_beginning", "seek_to_end", "statistics", "subscribe",
        "subscription", "wakeup",
    },
    "KafkaAdminClient": set(),
    "EmbeddedCluster": {"client_settings", "listener", "processes"},
    "Network": set(),
}  # fmt: skip
OF_THE_CLUSTER = {"Network": {"close", "connect", "is_cut", "is_from_broker", "join", "listens", "transports"}}
"""Methods that are not for users."""


def public(client: type) -> list[str]:
    inner = OF_THE_CLUSTER.get(client.__name__, set())
    names = [name for name in dir(client) if hasattr(client, name)]  # the others answer names of other clients
    return [name for name in names if (not name.startswith("_") and name not in inner) or name in OTHER_DUNDERS]


def arguments(method: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values() if p.name != "self"]


@each_row(("sync", "face"), FACES, ids=lambda client: client.__name__)
def test_every_method_is_there(sync: type, face: type) -> None:
    for name in public(sync):
        assert hasattr(face, OTHER_DUNDERS.get(name, name)), f"{face.__name__} lacks {name}"


@each_row(("sync", "face"), FACES, ids=lambda client: client.__name__)
def test_the_methods_take_the_same_arguments(sync: type, face: type) -> None:
    for name in public(sync):
        method = getattr(sync, name)
        if callable(method):
            assert arguments(getattr(face, OTHER_DUNDERS.get(name, name))) == arguments(method), name


@each_row(("sync", "face"), FACES, ids=lambda client: client.__name__)
def test_what_can_wait_is_a_coroutine(sync: type, face: type) -> None:
    plain = {
        name
        for name in public(sync)
        if name not in OTHER_DUNDERS and callable(getattr(sync, name)) and not inspect.iscoroutinefunction(getattr(face, name))
    }
    assert plain == NEVER_WAIT[sync.__name__]


@each_row(("sync", "face"), FACES[:-1], ids=lambda client: client.__name__)
def test_they_are_made_alike(sync: type, face: type) -> None:
    assert arguments(face.__init__) == arguments(sync.__init__)  # type: ignore[misc]


def test_a_cluster_hands_on_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def cluster(*args: Any, **named: Any) -> Any:
        made.append(inspect.signature(testing.EmbeddedCluster).bind(*args, **named).arguments)
        return SimpleNamespace(config=None, _brokers=())

    monkeypatch.setattr(aio_testing, "Cluster", cluster)
    given = {name: object() for name, *_ in arguments(aio_testing.EmbeddedCluster.__init__)}
    aio_testing.EmbeddedCluster(**given)  # type: ignore[arg-type]
    assert made == [given]
    sync: Any = SimpleNamespace(config=None, _brokers=(), client_settings=lambda user, *, listener: (user, listener))
    assert aio_testing.EmbeddedCluster.of(sync).client_settings("u", listener="l") == ("u", "l")


def test_the_modules_for_tests_have_the_same_names() -> None:
    assert aio_testing.__all__ == testing.__all__
    for name in ("CLIENTS", "CONTROLLER", "Delay", "Disconnect", "Drop"):
        assert getattr(aio_testing, name) is getattr(testing, name)


def test_clients_that_have_done_nothing_say_what_they_are() -> None:
    """What they measure is the short list, unless all of it is asked for. Arguments that a call does not have are refused."""

    async def work() -> None:
        settings = {"bootstrap_servers": "127.0.0.1:1"}
        faces = {"aio.KafkaConsumer(127.0.0.1:1; 0 partitions": aio.KafkaConsumer, "<aio.KafkaProducer 127.0.0.1:1": aio.KafkaProducer}
        for said, face in faces.items():
            async with face(**settings) as client:
                assert repr(client).startswith(said) and not client.closed
                assert {type(each) for each in client.metrics().values()} <= {int, float}
                assert {type(each) for each in client.metrics(detail=True).values()} == {dict}
            assert client.closed and "closed" in repr(client)
        async with aio.KafkaAdminClient(**settings) as admin, aio.KafkaConsumer(**settings) as consumer:
            assert not admin.closed and repr(admin).startswith("aio.")
            for call in (consumer.poll, consumer.poll_batch):
                with pytest.raises(TypeError, match="timeout_ms"):
                    await call(timeout_ms=1)
            consumer.assign([("t", 0)])
            reading = asyncio.create_task(consumer.poll(None))
            await turns(3)
            for other in (consumer.read_range(("t", 0), 0, 1), consumer.read("t")):
                with pytest.raises(errors.IllegalStateError, match="another task is reading"):
                    await anext(other)
            reading.cancel()
            await asyncio.wait([reading])
        assert admin.closed

    run(work)
