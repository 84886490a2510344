"""Faults that a control function orders for one request, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkacore.protocol.schema import Response

__all__ = ["Control", "Delay", "Disconnect", "Drop", "Fault"]


@dataclass(frozen=True)
class Delay:
    """A fault: the request is served `ms` later; its connection waits."""

    ms: int


@dataclass(frozen=True)
class Drop:
    """A fault: the request and everything after it on its connection stay without answer; the connection stays open.

    Attributes:
        handle: serve this request all the same, so that only its response is lost.
    """

    handle: bool = False


@dataclass(frozen=True)
class Disconnect:
    """A fault: the connection is closed instead of an answer.

    Attributes:
        handle: serve the request first, so that only its response is lost.
    """

    handle: bool = False


Fault = Delay | Drop | Disconnect
Control = Callable[[Any], "Response | Fault | type[Drop] | type[Disconnect] | None"]
