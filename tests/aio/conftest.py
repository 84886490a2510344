"""Event loops of both kinds; a cluster for each file, and a topic for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import uvloop

from kafkacore.testing import EmbeddedCluster

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop."""
    return LOOPS[request.param]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """The addresses of a cluster."""
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic of the test's own."""
    return str(request.node.name).replace("[", "-").replace("]", "").replace(" ", "-")
