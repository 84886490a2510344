"""Event loops of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop."""
    return LOOPS[request.param]
