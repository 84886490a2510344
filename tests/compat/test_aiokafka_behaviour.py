"""The same programs over aiokafka and over kafkacore.compat.aiokafka see the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat import aiokafka_administering, aiokafka_consuming, aiokafka_producing
from tests.compat.aiokafka_face import Face
from tests.compat.both_packages import CLUSTERS, Servers, cluster_of, compare_programs, quiet

pytest.importorskip("aiokafka", minversion="0.14")

SUBJECTS = [aiokafka_producing, aiokafka_consuming, aiokafka_administering]
ON_KAFKA = {"transactions", "offsets_in_a_transaction", "a_fenced_producer", "settings_of_a_topic", "stamps_of_the_broker"}

quiet_loggers = quiet("aiokafka", "kafkacore.compat")


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    with cluster_of(request.param, group_min_session_timeout_ms=500, auto_create_topics_enable=False) as found:
        yield found


@pytest.mark.filterwarnings("ignore")  # aiokafka's own
def test_programs_over_aiokafka_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    compare_programs(subtests, SUBJECTS, Face, ("kafkacore.compat.aiokafka", "aiokafka"), servers, ON_KAFKA)
