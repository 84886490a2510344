"""What tests of consumers share; a module may replace each of these by its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from numbered import numbered_topic

from kafkacore.testing import EmbeddedCluster


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
