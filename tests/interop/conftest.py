"""Clusters for the interop tests: the embedded broker, and Apache Kafka for those marked `kafka`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.broker.handlers import SERVED
from kafkacore.protocol import APIS
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer, why_unavailable

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
SERVED_NAMES = {APIS[key].name for key in SERVED}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*apis): an acceptance test that the embedded broker can pass once it serves these")
    lacks = "an acceptance test that the embedded broker fails for this reason; strict, so that it tells when the reason is gone"
    config.addinivalue_line("markers", f"lacks(reason): {lacks}")
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
    reason = why_unavailable()
    for item in items:
        if reason and item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.skip(reason=reason))
        wanted = {api for marker in item.iter_markers("needs") for api in marker.args}
        if unknown := wanted - {api.name for api in APIS.values()}:
            raise pytest.UsageError(f"{item.nodeid} needs {sorted(unknown)}: there are no such APIs")
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("bootstrap_servers") != "embedded":
            continue
        if missing := wanted - SERVED_NAMES:
            item.add_marker(pytest.mark.xfail(run=False, reason=f"the embedded broker does not serve {', '.join(sorted(missing))} yet"))
        elif lacking := item.get_closest_marker("lacks"):
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"the embedded broker lacks {lacking.args[0]}"))


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


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as client:
        yield client


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Skips a test of what the embedded broker does not serve: served(api_key)."""

    def check(api_key: int) -> None:
        if "embedded" in request.node.callspec.id and api_key not in SERVED:
            pytest.skip(f"the embedded broker does not serve API {api_key} yet")

    return check
