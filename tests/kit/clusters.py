"""Clusters for tests that need only topics and settings of one: `cluster = embedded({"t": 2})` is a fixture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.kit.records import fill

Topics = Mapping[str, int | Sequence[Sequence[bytes]]]


def make_topics(cluster: EmbeddedCluster, topics: Topics) -> None:
    """Creates topics: by name how many partitions, or the values of each partition."""
    for name, wanted in topics.items():
        cluster.create_topic(name, partitions=wanted if isinstance(wanted, int) else len(wanted))
        for partition, values in enumerate(() if isinstance(wanted, int) else wanted):
            fill(cluster.bootstrap_servers, name, values, partition)


def embedded(topics: Topics | None = None, *, scope: Any = "module", name: str | None = None, **settings: Any) -> Any:
    """A fixture: an EmbeddedCluster with these topics.

    Args:
        topics: by name how many partitions, or the values of each partition.
        scope: `module` for tests that do not disturb each other, else `function`.
        name: the fixture's, where it is not the variable's.
        settings: of EmbeddedCluster.
    """

    @pytest.fixture(scope=scope, name=name)
    def cluster() -> Iterator[EmbeddedCluster]:
        with EmbeddedCluster(**settings) as started:
            make_topics(started, topics or {})
            yield started

    return cluster


def addresses(topics: Topics | None = None, *, scope: Any = "module", **settings: Any) -> Any:
    """A fixture: the addresses of an EmbeddedCluster, as `embedded` makes it."""

    @pytest.fixture(scope=scope)
    def servers() -> Iterator[str]:
        with EmbeddedCluster(**settings) as started:
            make_topics(started, topics or {})
            yield started.bootstrap_servers

    return servers
