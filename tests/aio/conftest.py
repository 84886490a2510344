"""Event loops of both kinds; a cluster for each file, and a topic for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from cancelling import LOOPS

from tests.kit.clusters import addresses


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop."""
    return LOOPS[request.param]


servers = addresses()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic of the test's own."""
    return str(request.node.name).replace("[", "-").replace("]", "").replace(" ", "-")
