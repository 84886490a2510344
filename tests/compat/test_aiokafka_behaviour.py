"""The same programs over aiokafka and over kafkacore.compat.aiokafka see the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compat import aiokafka_administering, aiokafka_consuming, aiokafka_producing
from tests.compat.aiokafka_face import CASES, GUARD_S, Face
from tests.compat.both_packages import CLUSTERS, cluster_of, own_topic, plain
from tests.kit.rows import each_row

pytest.importorskip("aiokafka", minversion="0.14")

SUBJECTS = (aiokafka_producing, aiokafka_consuming, aiokafka_administering)  # each adds its cases to CASES


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


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a cluster is."""
    with cluster_of(request.param, group_min_session_timeout_ms=500, auto_create_topics_enable=False) as found:
        yield found


def seen(case: Callable[[Face], Any], package: str, servers: str) -> Any:
    topic = own_topic(case, package, servers)

    async def run() -> Any:
        face = Face(package, servers, topic)
        try:
            return plain(await asyncio.wait_for(case(face), GUARD_S), topic)
        finally:
            await face.close()

    return asyncio.run(run())


@pytest.mark.filterwarnings("ignore")  # aiokafka's own
@each_row("case", CASES, ids=[case.__name__ for case in CASES])
def test_both_packages_show_a_program_the_same(case: Callable[[Face], Any], servers: str) -> None:
    assert seen(case, "kafkacore.compat.aiokafka", servers) == seen(case, "aiokafka", servers)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40
    assert {fn.__module__ for fn in CASES} == {each.__name__ for each in SUBJECTS}
