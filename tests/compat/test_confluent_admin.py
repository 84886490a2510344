"""Programs over confluent-kafka's admin client and serializers, and over their names here, see the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compat import confluent_administering, confluent_serializing
from tests.compat.both_packages import CLUSTERS, cluster_of, own_topic, plain
from tests.compat.confluent_face import CASES, Face
from tests.kit.rows import each_row

pytest.importorskip("confluent_kafka", minversion="2.16")

SUBJECTS = (confluent_administering, confluent_serializing)  # each adds its cases to CASES
AUTHORIZER = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super_users": "User:ANONYMOUS"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Without the lines about what the cases do wrong on purpose."""
    logger = logging.getLogger("kafkacore")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a cluster is; Kafka has an authorizer."""
    more = AUTHORIZER if request.param == "kafka" else {}
    with cluster_of(request.param, group_min_session_timeout_ms=500, auto_create_topics_enable=False, **more) as found:
        yield found


def seen(case: Callable[[Face], Any], package: str, servers: str) -> Any:
    topic = own_topic(case, package, servers)
    face = Face(package, servers, topic)
    try:
        return plain(case(face), topic)
    finally:
        face.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@each_row("case", CASES, ids=[case.__name__ for case in CASES])
def test_both_packages_show_a_program_the_same(case: Callable[[Face], Any], servers: str) -> None:
    assert seen(case, "kafkacore.compat.confluent", servers) == seen(case, "confluent_kafka", servers)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 35
    assert {fn.__module__ for fn in CASES} == {each.__name__ for each in SUBJECTS}
