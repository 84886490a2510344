"""Work instead of time: how many lines of Python a call runs, which does not depend on how busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.kit.interrupter import HERE


def lines_of(call: Callable[[], object]) -> int:
    """Lines of this package that a call runs on this thread; one that goes round in itself counts again."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
