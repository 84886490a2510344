"""What tests of consumers share; a module may replace each of these by its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from numbered import numbered_topic

from kafkacore.admin import KafkaAdminClient
from kafkacore.broker.server import Broker
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewTopic
from tests.kit.groups import Members


@pytest.fixture(params=["classic", "consumer"])
def group_protocol(request: pytest.FixtureRequest) -> str:
    """The test runs under each of them."""
    return request.param


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    """One broker for the tests of a module."""
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def topic(shared: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """Has RECORDS records in PARTITIONS partitions."""
    return numbered_topic(shared, request)


@pytest.fixture
def member(shared: EmbeddedCluster, topic: str, group_protocol: str, request: pytest.FixtureRequest) -> Iterator[Members]:
    """Makes members of the topic's group, with the settings in MEMBER of the module."""
    settings = getattr(request.module, "MEMBER", {})
    with Members(shared.bootstrap_servers, topic, group_protocol=group_protocol, **settings) as make:
        yield make


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of the test's own, with two partitions of the topic t."""
    with Broker() as running, KafkaAdminClient(bootstrap_servers=running.address) as admin:
        admin.create_topics([NewTopic("t", 2, 1)]).check()
        yield running
