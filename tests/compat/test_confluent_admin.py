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

PACKAGES = ("kafkacore.compat.confluent", "confluent_kafka")
OF_ADMINS = {
    "access_lists", "groups_are_listed", "groups_of_the_new_protocol", "offsets_of_a_group", "settings_are_changed_one_by_one", "users",
}  # fmt: skip
OF_CLIENTS = {"a_topic_that_does_not_exist", "incremental_rebalance_callbacks", "times_that_brokers_give", "transactions"}
"""What a real Kafka runs in each run of the tests."""
AUTHORIZER = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super_users": "User:ANONYMOUS"}

quiet_loggers = quiet("kafkacore")


@pytest.fixture(scope="module", params=CLUSTERS)
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Kafka has an authorizer."""
    more = AUTHORIZER if request.param == "kafka" else {}
    with cluster_of(request.param, group_min_session_timeout_ms=500, auto_create_topics_enable=False, **more) as found:
        yield found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_that_administer_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    compare_programs(subtests, [confluent_administering], Face, PACKAGES, servers, OF_ADMINS)
    if servers.kind == "kafka":
        compare_programs(subtests, [confluent_clients, confluent_details, confluent_serving], Face, PACKAGES, servers, OF_CLIENTS)


def test_programs_of_serializers_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    compare_programs(subtests, [confluent_serializing], Face, PACKAGES, servers, set())


def test_programs_of_topics_that_are_not_known_see_the_same(servers: Servers, subtests: pytest.Subtests) -> None:
    compare_programs(subtests, [confluent_unknown_topics], Face, PACKAGES, servers, {"a_topic_that_the_brokers_do_not_have"})
