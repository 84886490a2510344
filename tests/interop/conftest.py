"""Clusters for the interop tests: the embedded broker, and Apache Kafka for those marked `kafka`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer, why_unavailable
from tests.kit.topics import new_topic

# Times that Kafka has no reason to keep short, and tests have; the second ones are limits and cycles that only Kafka has.
SETTINGS = {
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_session_timeout_ms": 10_000,
    "group_min_session_timeout_ms": 500,
    "log_retention_check_interval_ms": 86_400_000,  # records with timestamps of long ago stay where a test put them
}
KAFKA_SETTINGS = {
    "group_consumer_min_heartbeat_interval_ms": 200,
    "group_consumer_min_session_timeout_ms": 500,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 200,
}


def pytest_configure(config: pytest.Config) -> None:
    length = "a test that on Apache Kafka repeats its neighbours, or checks its expectations and nothing of this package"
    config.addinivalue_line("markers", "kafka_alone(room): not on the embedded broker, where the tests of that room show the same")
    config.addinivalue_line("markers", f"kafka_at_length: {length}: there only with KAFKACORE_KAFKA=all")


def is_left_out(item: pytest.Item) -> bool:
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "embedded" in params:
        return item.get_closest_marker("kafka_alone") is not None
    at_length = item.get_closest_marker("kafka_at_length") and item.get_closest_marker("kafka")
    return bool(at_length) and os.environ.get("KAFKACORE_KAFKA") != "all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]
    if reason := why_unavailable():
        for item in items:
            if item.get_closest_marker("kafka"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def real_kafka() -> Iterator[KafkaServer]:
    """One Apache Kafka for the whole run."""
    with KafkaServer(**SETTINGS, **KAFKA_SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedCluster]:
    """One embedded broker for the whole run."""
    with EmbeddedCluster(brokers=1, config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def java() -> Iterator[JavaTools]:
    """Kafka's command-line tools; for tests marked `kafka`."""
    tools = JavaTools()
    yield tools
    tools.close()


@pytest.fixture(scope="session", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The same test on the embedded broker and on Apache Kafka."""
    servers: str = request.getfixturevalue("embedded" if request.param == "embedded" else "real_kafka").bootstrap_servers
    return servers


@pytest.fixture
def make_topic(bootstrap_servers: str) -> Callable[..., str]:
    """A function that creates a fresh topic and gives its name."""

    def make(partitions: int = 1, **configs: Any) -> str:
        return new_topic(bootstrap_servers, partitions, **configs)

    return make


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as client:
        yield client
