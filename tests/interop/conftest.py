"""Clusters for the interop tests: the embedded broker, and Apache Kafka for those marked `kafka`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.interop.kafka_server import KafkaServer, why_unavailable


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := why_unavailable():
        for item in items:
            if item.get_closest_marker("kafka"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def real_kafka() -> Iterator[KafkaServer]:
    """One Apache Kafka for the whole run."""
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedCluster]:
    """One embedded broker for the whole run."""
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The same test on the embedded broker and on Apache Kafka."""
    servers: str = request.getfixturevalue("embedded" if request.param == "embedded" else "real_kafka").bootstrap_servers
    return servers


@pytest.fixture
def make_topic(bootstrap_servers: str) -> Callable[..., str]:
    """A function that creates a fresh topic and gives its name."""
    from kafkacore import KafkaAdminClient, KafkaConsumer, NewTopic, TopicPartition

    def make(partitions: int = 1, **configs: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, configs=settings)]).check()
        # Kafka shows a topic some moments before its leaders take records, and with acks=0 a refused record is lost. Leaders answer this.
        with KafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
            consumer.end_offsets([TopicPartition(name, p) for p in range(partitions)])
        return name

    return make
