"""Fixtures for pytest: `kafka_cluster`, an embedded cluster that tests share, and `kafka_topic`, a fresh topic in it::

    @pytest.mark.kafkacore(topics={"orders": 4}, brokers=3, configs={"min.insync.replicas": 2})
    def test_orders(kafka_cluster):
        kafka_cluster.produce("orders", ["one"])

What a test, its class or its module says by the marker is what it gets: `topics` are there when the test begins (a name, a list of names,
or numbers of partitions by name), everything else are arguments of `EmbeddedCluster`. Tests that say the same share a cluster. After a test
its topics are deleted and the brokers that it stopped are started, so that the next begins with what wider fixtures have set up.

A test whose fixture `kafka_cluster` is a project's own is left alone; one that asks for ours and overrides it counts as ours. The marker
`kafka` means the same as `kafkacore` on tests that have our cluster, and nothing on others. A marker that is wrong fails its test alone.

`aio_kafka_cluster` is the cluster of `kafka_cluster` for tests that are coroutines. No fixture is a coroutine itself, so they need no
plugin that runs coroutines, and work with each.
"""

# Every pytest run of an environment loads this file: nothing of kafkacore is imported before a fixture is used.

from __future__ import annotations

import difflib
import inspect
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
_TOPICS = "_kafkacore_topics"
_MARKER = "kafkacore"
_MARKERS = (_MARKER, "kafka")
"""The second is the first one's old name, which other projects use too."""
_COMPILED = ("kafkacore._codec", "kafkacore._wheel")
_SOURCES = Path(__file__).parent.parent / "native" / "append.pxi"
_serial = itertools.count(1)
_wanted: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()
"""The arguments of clusters, each once: pytest compares parameters of fixtures by identity."""
_running: pytest.StashKey[EmbeddedCluster] = pytest.StashKey()
"""The cluster of the last `kafka_cluster`: an overriding fixture may hand out something else."""


def pytest_configure(config: pytest.Config) -> None:
    """Makes the markers known."""
    config.addinivalue_line("markers", "kafkacore(topics=..., **arguments of EmbeddedCluster): the cluster and the topics of a test")
    config.addinivalue_line("markers", "kafka(...): the same as kafkacore, for tests with kafkacore's fixture kafka_cluster")
    config.stash[_wanted] = []


def _has_ours(node: Any) -> bool:
    """Whether the `kafka_cluster` of a test is this module's, or a fixture that asks for this module's."""
    if _CLUSTER not in getattr(node, "fixturenames", ()):
        return False
    known = getattr(node, "_fixtureinfo").name2fixturedefs.get(_CLUSTER, ())  # noqa: B009 - of pytest's own, as other plugins use it
    for definition in reversed(known):
        if getattr(definition.func, "__module__", None) == __name__:
            return True
        if _CLUSTER not in definition.argnames:
            break
    return False


def _said(node: pytest.Item | pytest.Collector) -> dict[str, Any]:
    """What the markers of a test say together; the nearest counts."""
    said: dict[str, Any] = {}
    for marker in node.iter_markers():
        if marker.name in _MARKERS:
            said = {**marker.kwargs, **said}
    return said


def _problem(item: pytest.Item) -> str:
    """What is wrong with the markers of a test; nothing, or a sentence."""
    ours = _has_ours(item)
    for marker in item.iter_markers():
        if marker.name == _MARKER and not ours and marker in item.own_markers:  # its class or module may have tests that need no cluster
            if _CLUSTER in getattr(item, "fixturenames", ()):
                own = "its kafka_cluster is the project's own: name that one otherwise, or have it ask for ours"
                return f"marked with kafkacore(...), but {own}, def kafka_cluster(kafka_cluster)"
            return "marked with kafkacore(...), but no fixture gives it kafkacore's cluster: add kafka_cluster"
        if marker.name in _MARKERS and ours and marker.args:
            return f"the marker {marker.name} has keywords alone, as {marker.name}(topics=['orders'], brokers=3)"
    said = _said(item) if ours else {}
    if said:
        from kafkacore.testing import EmbeddedCluster

        known = ["topics", *list(inspect.signature(EmbeddedCluster.__init__).parameters)[1:]]
        for name in said:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                return f"the marker {_MARKER} has no {name}: {hint}"
        callspec = getattr(item, "callspec", None)
        given = {} if callspec is None else callspec.params.get(_CLUSTER, {})
        late = [name for name in said if name != "topics" and name not in given]
        if late:  # the marker of a pytest.param, or added to the item
            return f"{', '.join(late)}: a marker of a test, class or module says what the cluster is to be; other markers have topics alone"
    return ""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Has the tests of one kind of cluster share it: the cluster is a parameter of its fixture."""
    said = _said(metafunc.definition) if _has_ours(metafunc.definition) else {}
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
        if _TOPICS not in names and _has_ours(item):
            known = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - see above
            wider = [at for at, name in enumerate(names) if name in known and known[name][-1].scope != "function"]
            names.insert(max(wider, default=-1) + 1, _TOPICS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test, and that one alone, whose marker cannot be followed."""
    problem = _problem(item)
    if problem:
        pytest.fail(f"{item.nodeid}: {problem}", pytrace=False)


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
        request.config.stash[_running] = cluster
        yield cluster


def _embedded(cluster: Any, wanted_by: str) -> EmbeddedCluster:
    """What a project's own fixture gives in the place of ours, where it is one."""
    from kafkacore.testing import EmbeddedCluster

    if not isinstance(cluster, EmbeddedCluster):
        kind = type(cluster).__name__
        pytest.fail(f"{wanted_by} needs an EmbeddedCluster, and the fixture kafka_cluster of this test gives a {kind}", pytrace=False)
    return cluster


@pytest.fixture(scope="session")
def aio_kafka_cluster(kafka_cluster: EmbeddedCluster) -> AioCluster:
    """The `kafka_cluster` of the test as a `kafkacore.aio.testing.EmbeddedCluster`, whose calls are coroutines."""
    from kafkacore.aio.testing import EmbeddedCluster

    return EmbeddedCluster.of(_embedded(kafka_cluster, "aio_kafka_cluster"))


def _delete(cluster: EmbeddedCluster, topics: Iterable[str]) -> None:
    from kafkacore.errors import IllegalStateError, UnknownTopicOrPartition

    for name in topics:
        try:
            cluster.delete_topic(name)
        except (IllegalStateError, UnknownTopicOrPartition):
            pass  # the test has closed the cluster, or a client of its has deleted the topic


@pytest.fixture
def _kafkacore_topics(request: pytest.FixtureRequest, kafka_cluster: Any) -> Iterator[None]:
    """Creates the topics of the marker. After the test the cluster is as it was: topics that were not there before go, but for internal
    ones, and what was stopped, paused, controlled or cut off is back."""
    cluster = request.config.stash[_running]
    before, condition = cluster.topics(), cluster._condition()
    for name, partitions in _partitions(_said(request.node).get("topics")).items():
        cluster.create_topic(name, partitions=partitions)
    yield
    from kafkacore.errors import IllegalStateError

    try:
        cluster._return_to(condition)
        left = cluster.topics()
    except IllegalStateError:
        return
    _delete(cluster, [name for name in left if name not in before and not name.startswith("__")])


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic with one partition, made for this test and deleted after it."""
    cluster = request.config.stash[_running] if _has_ours(request.node) else _embedded(kafka_cluster, "kafka_topic")
    plain = "".join(char if char.isalnum() and char.isascii() else "-" for char in request.node.name)
    name = f"{plain[:100]}-{next(_serial)}"
    cluster.create_topic(name, partitions=1)
    yield name
    _delete(cluster, [name])
