"""The same programs over aiokafka and over kafkacore.compat.aiokafka see the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat import aiokafka_administering, aiokafka_consuming, aiokafka_producing
from tests.compat.aiokafka_face import Face
from tests.compat.both_packages import CLUSTERS, Servers, cluster_of, compare_programs, quiet

pytest.importorskip("aiokafka", minversion="0.14")

pytestmark = pytest.mark.filterwarnings("ignore")  # aiokafka's own
PACKAGES = ("kafkacore.compat.aiokafka", "aiokafka")

quiet_loggers = quiet("aiokafka", "kafkacore.compat")


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with cluster_of(request.param, group_min_session_timeout_ms=500, auto_create_topics_enable=False) as found:
        yield found


def test_programs_that_produce_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    on_kafka = {"transactions", "offsets_in_a_transaction", "a_fenced_producer"}
    compare_programs(subtests, [aiokafka_producing], Face, PACKAGES, servers, on_kafka)


def test_programs_that_consume_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    compare_programs(subtests, [aiokafka_consuming], Face, PACKAGES, servers, {"stamps_of_the_broker"})


def test_programs_that_administer_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    compare_programs(subtests, [aiokafka_administering], Face, PACKAGES, servers, {"settings_of_a_topic"})
