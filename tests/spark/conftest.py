"""What the tests of this room share: a broker with its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import kept_of


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as embedded:
        yield embedded


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as client:
        yield client


@pytest.fixture
def driven_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests that use `driven`: no pauses, and nothing stays open."""
    from kafkacore.spark import clients, source, topics
    from tests.spark.driven import running

    monkeypatch.setattr(source, "IDLE_POLL_MS", 0)
    for module in (topics, clients):
        monkeypatch.setattr(module, "CONFIRM_PAUSES_S", (0, 0, 0))
    yield
    while running:
        running.pop().stop()
    for consumers in kept_of(clients).values():
        while consumers:
            consumers.pop().close()
