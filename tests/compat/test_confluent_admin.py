"""Programs over confluent-kafka's admin client and serializers, and over their names here, see the same; on Kafka all of its programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat import (
    confluent_administering,
    confluent_clients,
    confluent_details,
    confluent_serializing,
    confluent_serving,
    confluent_unknown_topics,
)
from tests.compat.both_packages import CLUSTERS, Servers, cluster_of, compare_programs, quiet
from tests.compat.confluent_face import Face

pytest.importorskip("confluent_kafka", minversion="2.16")

SUBJECTS = {"embedded": [confluent_administering, confluent_serializing, confluent_unknown_topics]}
SUBJECTS["kafka"] = [*SUBJECTS["embedded"], confluent_clients, confluent_details, confluent_serving]
ON_KAFKA = {
    "access_lists", "groups_are_listed", "groups_of_the_new_protocol", "offsets_of_a_group", "settings_are_changed_one_by_one", "users",
    "a_topic_that_does_not_exist", "a_topic_that_the_brokers_do_not_have", "incremental_rebalance_callbacks", "times_that_brokers_give",
    "transactions",
}  # fmt: skip
AUTHORIZER = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super_users": "User:ANONYMOUS"}

quiet_loggers = quiet("kafkacore")


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Kafka has an authorizer."""
    more = AUTHORIZER if request.param == "kafka" else {}
    with cluster_of(request.param, group_min_session_timeout_ms=500, auto_create_topics_enable=False, **more) as found:
        yield found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_over_confluent_kafkas_admin_client_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    on_kafka = ON_KAFKA if servers.kind == "kafka" else set()
    compare_programs(subtests, SUBJECTS[servers.kind], Face, ("kafkacore.compat.confluent", "confluent_kafka"), servers, on_kafka)
