"""Fixtures for pytest: `kafka_cluster`, one embedded broker for the session, and `kafka_topic`, a fresh topic in it.

`aio_kafka_cluster` is the broker of `kafka_cluster` for tests that are coroutines. None of the three is a coroutine itself, so they need no
plugin that runs coroutines, and work with each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkacore.aio.testing import EmbeddedCluster as AioCluster
    from kafkacore.testing import EmbeddedCluster

_serial = itertools.count(1)


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[EmbeddedCluster]:
    """A running `EmbeddedCluster` of one broker, shared by the whole session."""
    from kafkacore.testing import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def aio_kafka_cluster(kafka_cluster: EmbeddedCluster) -> AioCluster:
    """The `kafka_cluster` of the session as a `kafkacore.aio.testing.EmbeddedCluster`, whose calls are coroutines."""
    from kafkacore.aio.testing import EmbeddedCluster

    return EmbeddedCluster.of(kafka_cluster)


@pytest.fixture
def kafka_topic(kafka_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic with one partition, made for this test and deleted after it."""
    plain = "".join(char if char.isalnum() and char.isascii() else "-" for char in request.node.name)
    name = f"{plain[:100]}-{next(_serial)}"
    kafka_cluster.create_topic(name, partitions=1)
    yield name
    if name in kafka_cluster.topics():
        kafka_cluster.delete_topic(name)
