"""Acceptance of three brokers in processes of their own: tests of the other files, on a cluster whose controller is another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.testing import EmbeddedCluster
from tests.interop.conftest import SETTINGS

# The fixture and the tests of another file: here they find the fixtures below.
from tests.interop.test_accept_clients import (  # noqa: F401
    admin,
    test_a_second_producer_of_the_id_fences_the_first,
    test_a_topics_configs_are_changed,
    test_offsets_are_committed_with_the_transaction,
    test_offsets_by_time_and_watermarks,
    test_records_are_deleted_up_to_an_offset,
    test_three_clients_in_one_group,
)
from tests.kit.topics import new_topic

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    with EmbeddedCluster(brokers=3, processes=True, config=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def make_topic(bootstrap_servers: str) -> Callable[..., str]:
    def make(partitions: int = 1, **configs: Any) -> str:
        return new_topic(bootstrap_servers, partitions, 3, **configs)

    return make


def test_our_admin_client_sees_the_cluster(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as client:
        assert sorted(node.id for node in client.describe_cluster().nodes) == [1, 2, 3]
        partitions = client.describe_topics([topic])[topic].partitions
        assert sorted(each.leader for each in partitions) == [1, 2, 3]
        assert all(sorted(each.replicas) == [1, 2, 3] for each in partitions)
        assert len(client.describe_log_dirs()) == 3
        client.delete_topics([topic]).check()
        assert topic not in client.list_topics()
