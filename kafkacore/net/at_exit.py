"""What open clients do when the interpreter exits.

atexit calls it after the threads that are not daemons have ended, while daemon threads still run. A child that multiprocessing forks ends
by os._exit, which skips atexit: there multiprocessing's own finalizers call it. A forked child forgets the clients of its parent.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_EXIT_PRIORITY = 10  # any that is not None: before the finalizers that do not care


class AtExit(Generic[T]):
    """Open clients of one kind.

    Args:
        end: called once when the interpreter exits, with the clients of this process that are still there.
    """

    def __init__(self, end: Callable[[list[T]], None]) -> None:
        self._end = end
        self._clients: weakref.WeakSet[T] = weakref.WeakSet()
        self._pid = os.getpid()
        self._finalizer_pid = -1  # of the process whose multiprocessing calls `run`
        atexit.register(self.run)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def add(self, client: T) -> None:
        """This client is open from now on."""
        self._clients.add(client)
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None and self._finalizer_pid != self._pid and multiprocessing.parent_process() is not None:
            from multiprocessing.util import Finalize

            Finalize(None, self.run, exitpriority=_EXIT_PRIORITY)
            self._finalizer_pid = self._pid

    def discard(self, client: T) -> None:
        """This client is closed."""
        self._clients.discard(client)

    def run(self) -> None:
        """The interpreter exits. Nothing happens in a child that was forked behind Python's back."""
        if os.getpid() == self._pid:
            clients = list(self._clients)
            self._clients.clear()
            self._end(clients)

    def _forget(self) -> None:
        self._clients = weakref.WeakSet()
        self._pid = os.getpid()
