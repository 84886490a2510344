"""The same programs over aiokafka and over kafkacore.compat.aiokafka see the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, NewTopic
from kafkacore.testing import EmbeddedCluster
from tests.compat.aiokafka_behaviour import CASES, GUARD_S, Face
from tests.interop.kafka_server import KafkaServer, why_unavailable

pytest.importorskip("aiokafka", minversion="0.14")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Without the lines about what the cases do wrong on purpose."""
    loggers = [logging.getLogger(name) for name in ("aiokafka", "kafkacore.compat")]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a cluster is."""
    if request.param == "embedded":
        with EmbeddedCluster(config={"group_min_session_timeout_ms": 500, "auto_create_topics_enable": False}) as started:
            yield started.bootstrap_servers
        return
    if reason := why_unavailable():
        pytest.skip(reason)
    with KafkaServer(group_min_session_timeout_ms=500, auto_create_topics_enable="false") as server:
        yield server.bootstrap_servers


def seen(case: Callable[[Face], Any], package: str, servers: str) -> Any:
    topic = f"{case.__name__.replace('_', '-')}-{'ours' if package.startswith('kafkacore') else 'real'}"
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)]).check()

    async def run() -> Any:
        face = Face(package, servers, topic)
        try:
            return plain(await asyncio.wait_for(case(face), GUARD_S), topic)
        finally:
            await face.close()

    return asyncio.run(run())


def plain(value: Any, topic: str) -> Any:
    """Without the topic's own name."""
    if isinstance(value, str):
        return value.replace(topic, "TOPIC")
    if isinstance(value, (list, tuple)):
        return [plain(each, topic) for each in value]
    if isinstance(value, dict):
        return {str(plain(key, topic)): plain(each, topic) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return {str(plain(each, topic)) for each in value}
    return value


@pytest.mark.filterwarnings("ignore")  # aiokafka's own
@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_both_packages_show_a_program_the_same(case: Callable[[Face], Any], servers: str) -> None:
    assert seen(case, "kafkacore.compat.aiokafka", servers) == seen(case, "aiokafka", servers)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40
