"""The same programs over kafka-python and over kafkacore.compat.kafka see the same."""

from __future__ import annotations

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.compat import kafka_administering, kafka_consuming, kafka_producing
from tests.compat.both_packages import Servers, compare_programs, quiet
from tests.compat.kafka_face import Face
from tests.kit.clusters import embedded
from tests.kit.rows import each_row

pytest.importorskip("kafka", minversion="3.0")

PACKAGES = ("kafkacore.compat.kafka", "kafka")

quiet_loggers = quiet("kafka", "kafkacore.compat")
cluster = embedded(config={"group_min_session_timeout_ms": 500})


@pytest.mark.filterwarnings("ignore")  # kafka-python's own
def test_programs_over_kafka_python_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    subjects = [kafka_producing, kafka_consuming, kafka_administering]
    compare_programs(subtests, subjects, Face, PACKAGES, Servers("embedded", cluster.bootstrap_servers), set())


@pytest.mark.filterwarnings("ignore")
@each_row("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_both_packages_authenticate_alike(mechanism: str) -> None:
    credentials = {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
    who = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **credentials}
    with EmbeddedCluster(users={"alice": "secret"}) as secured:
        for package in PACKAGES:
            face = Face(package, secured.bootstrap_servers, package.replace(".", "-"))
            try:
                face.producer(**who).send(face.topic, b"v", partition=0).get(60)
                consumer = face.consumer(**who)
                consumer.assign([face.tp()])
                assert next(consumer).value == b"v"
            finally:
                face.close()
