"""The same programs over kafka-python and over kafkacore.compat.kafka see the same."""

from __future__ import annotations

from types import ModuleType

import pytest

from kafkacore.config_authorizer import ANONYMOUS, STANDARD_AUTHORIZER
from kafkacore.testing import EmbeddedCluster
from tests.compat import kafka_administering, kafka_consuming, kafka_producing
from tests.compat.both_packages import Servers, compare_programs, quiet
from tests.compat.kafka_face import Face
from tests.kit.clusters import embedded

pytest.importorskip("kafka", minversion="3.0")

PACKAGES = ("kafkacore.compat.kafka", "kafka")

quiet_loggers = quiet("kafka", "kafkacore.compat")
AUTHORIZER = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": ANONYMOUS}
cluster = embedded(config={"group_min_session_timeout_ms": 500, **AUTHORIZER})


pytestmark = pytest.mark.filterwarnings("ignore")  # kafka-python's own


def see_the_same(subtests: pytest.Subtests, subject: ModuleType, cluster: EmbeddedCluster) -> None:
    compare_programs(subtests, [subject], Face, PACKAGES, Servers("embedded", cluster.bootstrap_servers), set())


def test_programs_that_produce_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    see_the_same(subtests, kafka_producing, cluster)


def test_programs_that_consume_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    see_the_same(subtests, kafka_consuming, cluster)


def test_programs_that_administer_see_the_same(cluster: EmbeddedCluster, subtests: pytest.Subtests) -> None:
    see_the_same(subtests, kafka_administering, cluster)
