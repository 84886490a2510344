"""The same programs over kafka-python and over kafkacore.compat.kafka see the same."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.compat import kafka_administering, kafka_consuming, kafka_producing
from tests.compat.both_packages import own_topic, plain
from tests.compat.kafka_face import CASES, Face
from tests.kit.rows import each_row

pytest.importorskip("kafka", minversion="3.0")

SUBJECTS = (kafka_producing, kafka_consuming, kafka_administering)  # each adds its cases to CASES


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with EmbeddedCluster(config={"group_min_session_timeout_ms": 500}) as started:
        yield started


def seen(case: Callable[[Face], Any], package: str, cluster: EmbeddedCluster) -> Any:
    topic = own_topic(case, package, cluster.bootstrap_servers)
    face = Face(package, cluster.bootstrap_servers, topic)
    try:
        return plain(case(face), topic)
    finally:
        face.close()


@pytest.mark.filterwarnings("ignore")  # kafka-python's own
@each_row("case", CASES, ids=[case.__name__ for case in CASES])
def test_both_packages_show_a_program_the_same(case: Callable[[Face], Any], cluster: EmbeddedCluster) -> None:
    assert seen(case, "kafkacore.compat.kafka", cluster) == seen(case, "kafka", cluster)


@pytest.mark.filterwarnings("ignore")
@each_row("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_both_packages_authenticate_alike(mechanism: str) -> None:
    with EmbeddedCluster(users={"alice": "secret"}) as secured:
        who = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        }
        for package in ("kafkacore.compat.kafka", "kafka"):
            face = Face(package, secured.bootstrap_servers, package.replace(".", "-"))
            try:
                face.producer(**who).send(face.topic, b"v", partition=0).get(60)
                consumer = face.consumer(**who)
                consumer.assign([face.tp()])
                assert next(consumer).value == b"v"
            finally:
                face.close()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40
    assert {fn.__module__ for fn in CASES} == {each.__name__ for each in SUBJECTS}
