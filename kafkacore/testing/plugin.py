"""Fixtures for pytest: `kafka_cluster`, an embedded cluster that tests share, and `kafka_topic`, a fresh topic in it::

    @pytest.mark.kafka(topics={"orders": 4}, brokers=3, configs={"min.insync.replicas": 2})
    def test_orders(kafka_cluster):
        kafka_cluster.produce("orders", ["one"])

What a test, its class or its module says by the marker is what it gets: `topics` are there when the test begins (a name, a list of names,
or numbers of partitions by name), everything else are arguments of `EmbeddedCluster`. Tests that say the same share a cluster. After a test
its topics are deleted and the brokers that it stopped are started, so that the next begins with what wider fixtures have set up.

`aio_kafka_cluster` is the cluster of `kafka_cluster` for tests that are coroutines. No fixture is a coroutine itself, so they need no
plugin that runs coroutines, and work with each.
"""

# Every pytest run of an environment loads this file: nothing of kafkacore is imported before a fixture is used.

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kafkacore.aio.testing import EmbeddedCluster as AioCluster
    from kafkacore.testing import EmbeddedCluster

_CLUSTER = "kafka_cluster"
_TOPICS = "_kafka_topics"
_MARKER = "kafka"
_COMPILED = ("kafkacore._codec", "kafkacore._wheel")
_SOURCES = Path(__file__).parent.parent / "native" / "append.pxi"
_serial = itertools.count(1)
_wanted: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()
"""The arguments of clusters, each once: pytest compares parameters of fixtures by identity."""


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", "kafka(topics=..., **arguments of EmbeddedCluster): the cluster and the topics of a test")
    config.stash[_wanted] = []


def _said(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """What the markers of a test say together; the nearest counts."""
    said: dict[str, Any] = {}
    for marker in node.iter_markers(_MARKER):
        if marker.args:
            raise pytest.UsageError(f"{node.nodeid}: the marker kafka has keywords alone, as kafka(topics=['orders'], brokers=3)")
        said = {**marker.kwargs, **said}
    return said


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Has the tests of one kind of cluster share it: the cluster is a parameter of its fixture."""
    said = _said(metafunc.definition)
    if _CLUSTER not in metafunc.fixturenames:
        if any(marker.name == _MARKER and marker.kwargs for marker in metafunc.definition.own_markers):  # not those of its class or module
            where = metafunc.definition.nodeid
            raise pytest.UsageError(f"{where}: marked with kafka(...), but no fixture gives it a cluster: add kafka_cluster")
        return
    said.pop("topics", None)
    if said:
        every = metafunc.config.stash[_wanted]
        if said not in every:
            every.append(said)
        own = next(each for each in every if each == said)
        shown = getattr(pytest, "HIDDEN_PARAM", "kafka")  # since pytest 8.4
        metafunc.parametrize(_CLUSTER, [own], ids=[shown], indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets every test with a cluster have its topics, behind the fixtures of wider scope: what these create stays."""
    for item in items:
        names: list[str] = getattr(item, "fixturenames", [])
        if _CLUSTER in names and _TOPICS not in names:
            known = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - of pytest's own, as other plugins use it
            wider = [at for at, name in enumerate(names) if name in known and known[name][-1].scope != "function"]
            names.insert(max(wider) + 1, _TOPICS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """An installed package has no sources of its compiled modules, and pytest would show `???` for each of their frames."""
    if call.excinfo is not None:
        for name in _COMPILED:
            module = sys.modules.get(name)
            if module is not None:
                vars(module)["__tracebackhide__"] = not _SOURCES.exists()  # pytest looks among the globals of a frame


def _partitions(topics: Any) -> dict[str, int]:
    """The numbers of partitions by name; -1 for num.partitions."""
    if topics is None or isinstance(topics, str):
        return {} if topics is None else {topics: -1}
    return dict(topics) if hasattr(topics, "keys") else dict.fromkeys(topics, -1)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A running `EmbeddedCluster`, of one broker unless the marker says more, shared by all tests that want the same."""
    from kafkacore.testing import EmbeddedCluster

    with EmbeddedCluster(**getattr(request, "param", {})) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def aio_kafka_cluster(kafka_cluster: EmbeddedCluster) -> AioCluster:
    """The `kafka_cluster` of the test as a `kafkacore.aio.testing.EmbeddedCluster`, whose calls are coroutines."""
    from kafkacore.aio.testing import EmbeddedCluster

    return EmbeddedCluster.of(kafka_cluster)


def _delete(cluster: EmbeddedCluster, topics: Iterable[str]) -> None:
    from kafkacore.errors import IllegalStateError, UnknownTopicOrPartition

    for name in topics:
        try:
            cluster.delete_topic(name)
        except (IllegalStateError, UnknownTopicOrPartition):
            pass  # the test has closed the cluster, or a client of its has deleted the topic


@pytest.fixture
def _kafka_topics(request: pytest.FixtureRequest, kafka_cluster: EmbeddedCluster) -> Iterator[None]:
    """Creates the topics of the marker. After the test the cluster is as it was: topics that were not there before go, but for internal
    ones, and what was stopped, paused, controlled or cut off is back."""
    before, condition = kafka_cluster.topics(), kafka_cluster._condition()
    for name, partitions in _partitions(_said(request.node).get("topics")).items():
        kafka_cluster.create_topic(name, partitions=partitions)
    yield
    from kafkacore.errors import IllegalStateError

    try:
        kafka_cluster._return_to(condition)
        left = kafka_cluster.topics()
    except IllegalStateError:
        return
    _delete(kafka_cluster, [name for name in left if name not in before and not name.startswith("__")])


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic with one partition, made for this test and deleted after it."""
    plain = "".join(char if char.isalnum() and char.isascii() else "-" for char in request.node.name)
    name = f"{plain[:100]}-{next(_serial)}"
    kafka_cluster.create_topic(name, partitions=1)
    yield name
    _delete(kafka_cluster, [name])
