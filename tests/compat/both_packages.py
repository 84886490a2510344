"""What comparisons of two packages share: programs as functions of a package, where they run, a topic for each side of a program, and what
was seen without that topic's name.

The embedded broker runs all programs. A real Kafka runs those that the test file names, where brokers may differ; with KAFKACORE_RIVALS=all
it runs all of them, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kafkacore import KafkaAdminClient, NewTopic
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import KafkaServer, why_unavailable
from tests.kit.waiting import GUARD_S, until

CLUSTERS = ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
"""Parameters of a fixture that gives `cluster_of(request.param)`."""
Program = Callable[[Any], Any]
ALL = os.environ.get("KAFKACORE_RIVALS") == "all"


class Servers(NamedTuple):
    """A cluster: embedded or kafka, and its addresses."""

    kind: str
    addresses: str


@contextlib.contextmanager
def cluster_of(kind: str, **config: Any) -> Iterator[Servers]:
    """A cluster; `config` are settings of the broker, with underscores."""
    if kind == "embedded":
        with EmbeddedCluster(config=config) as started:
            yield Servers(kind, started.bootstrap_servers)
        return
    if reason := why_unavailable():
        pytest.skip(reason)
    with KafkaServer(**{name: str(value).lower() if isinstance(value, bool) else value for name, value in config.items()}) as server:
        yield Servers(kind, server.bootstrap_servers)


def quiet(*names: str) -> Any:
    """A fixture: without the lines of these loggers about what programs do wrong on purpose."""

    @pytest.fixture(autouse=True)
    def quiet_loggers() -> Iterator[None]:
        loggers = [logging.getLogger(name) for name in names]
        before = [each.level for each in loggers]
        for each in loggers:
            each.setLevel(logging.CRITICAL + 1)
        yield
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)

    return quiet_loggers


def case(program: Program) -> Program:
    """Marks a program."""
    program.is_case = True  # type: ignore[attr-defined]
    return program


def embedded_only(program: Program) -> Program:
    """Marks a program that no real Kafka runs: there the rival itself now and then does not see it."""
    program.embedded_only = True  # type: ignore[attr-defined]
    return program


def compare_programs(
    subtests: pytest.Subtests, subjects: list[ModuleType], face: Any, packages: tuple[str, str], servers: Servers, on_kafka: set[str]
) -> None:
    """Runs the programs of some modules over both packages: what they see is the same.

    Args:
        subtests: of pytest.
        subjects: modules with programs.
        face: makes what a program gets, of a package, addresses and a topic.
        packages: their names.
        servers: where.
        on_kafka: the names of those that a real Kafka runs in each run of the tests.
    """
    by_module = [[fn for fn in vars(module).values() if getattr(fn, "is_case", False)] for module in subjects]
    assert all(by_module)
    programs = [fn for found in by_module for fn in found]
    assert on_kafka <= {fn.__name__ for fn in programs}
    for program in programs:
        wanted = program.__name__ in on_kafka or (ALL and not getattr(program, "embedded_only", False))
        if servers.kind == "embedded" or wanted:
            with subtests.test(program.__name__):
                ours, theirs = (seen(program, face, package, servers.addresses) for package in packages)
                assert ours == theirs, f"ours: {ours!r}\ntheirs: {theirs!r}"


def seen(program: Program, face: Any, package: str, servers: str) -> Any:
    """What a program sees with a package."""
    topic = own_topic(program, package, servers)

    async def awaited() -> Any:
        made = face(package, servers, topic)
        try:
            return await asyncio.wait_for(program(made), GUARD_S)  # a task of its own: tasks that it has begun have their turn
        finally:
            await made.close()

    if inspect.iscoroutinefunction(program):
        return without_topic(asyncio.run(awaited()), topic)
    made = face(package, servers, topic)
    try:
        return without_topic(program(made), topic)
    finally:
        made.close()


def own_topic(program: Program, package: str, servers: str) -> str:
    """The topic of a program and a package: made, with two partitions, and every broker has heard of it."""
    topic = f"{program.__name__.replace('_', '-')}-{'ours' if package.startswith('kafkacore') else 'real'}"
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)]).check()

        def heard() -> bool:
            brokers = [seen.by_name.get(topic) for seen in admin.describe_topics_by_broker([topic]).check().values()]
            return all(found is not None and not isinstance(found, Exception) for found in brokers)

        until(heard, "every broker has heard of the topic")
    return topic


def without_topic(value: Any, topic: str) -> Any:
    """Without the topic's own name."""
    if isinstance(value, str):
        return value.replace(topic, "TOPIC")
    if isinstance(value, (list, tuple)):
        return [without_topic(each, topic) for each in value]
    if isinstance(value, dict):
        return {str(without_topic(key, topic)): without_topic(each, topic) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return {str(without_topic(each, topic)) for each in value}
    return value
