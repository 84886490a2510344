"""Ctrl+C at a chosen step of a call: any line of this package's Python code."""

from __future__ import annotations

import functools
import gc
import linecache
import os
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import kafkacore

HERE = os.path.dirname(kafkacore.__file__) + os.sep
_NO_SIGNAL = re.compile(r"\s*(with |return \w+$)")  # on the way out, before the lock is released; a name is returned without a call


@functools.cache
def _is_ours(file: str) -> bool:
    return file.startswith(HERE) and not file.endswith("/clock.py")  # the system's clock has no Python frame


@functools.cache
def _takes_no_signal(file: str, line: int) -> bool:
    return _NO_SIGNAL.match(linecache.getline(file, line)) is not None


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line or call that runs in this package's Python code: where a signal could arrive.

    Args:
        at: how many lines and calls come before it.
        files: only those of these files count, by the end of their paths; None for all.
    """

    def __init__(self, at: int, files: tuple[str, ...] | None = None) -> None:
        self.left = at
        self.files = files
        self.done = False

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not _is_ours(file):
            return None
        if event == "line" and _takes_no_signal(file, frame.f_lineno):
            return self.trace
        if event in ("call", "line") and not self.done and (self.files is None or file.endswith(self.files)):
            if self.left == 0:
                self.done = True
                raise KeyboardInterrupt
            self.left -= 1
        return self.trace

    def run(self, what: Callable[[], object]) -> bool:
        """True when it was interrupted. Nothing is collected meanwhile: an interrupt in a finalizer, or in what others do at a collection,
        is lost, and where a collection falls depends on all that ran before."""
        previous, collects = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self.trace)
        try:
            what()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(previous)
            if collects:
                gc.enable()
        return self.done
