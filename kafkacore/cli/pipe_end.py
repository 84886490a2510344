"""Whether a reader of the command's output is left: a reader that leaves (`| head`) is noticed also while there is nothing to write."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any


class PipeEnd:
    """The other end of the pipe or socket that a command writes to. A thread waits for its close, in poll(2), so looking costs nothing.

    Attributes:
        closed: True once the reader has left.
        notify: while set, called when the reader leaves; on the thread that waited.
    """

    def __init__(self) -> None:
        self.closed = False
        self.notify: Callable[[], None] | None = None

    @contextlib.contextmanager
    def watched(self, stream: Any) -> Iterator[PipeEnd]:
        """Looks within the block.

        Args:
            stream: what is written to. A file, a terminal and a stream in memory have no reader that leaves.
        """
        descriptor = descriptor_of(stream)
        if descriptor is None or not _has_reader(descriptor):
            yield self
            return
        end, ended = os.pipe()
        waiting = threading.Thread(target=self._wait, args=(descriptor, end), name="kafkacore-pipe-end", daemon=True)
        waiting.start()
        try:
            yield self
        finally:
            os.close(ended)
            waiting.join()
            os.close(end)

    def _wait(self, descriptor: int, end: int) -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # errors and hang-ups are always reported
        poll.register(end, 0)
        if descriptor in dict(poll.poll()):
            self.closed = True
            notify = self.notify
            if notify is not None:
                notify()


def descriptor_of(stream: Any) -> int | None:
    """The stream's file descriptor, None where it has none."""
    try:
        return int(stream.fileno())
    except OSError:  # io.UnsupportedOperation is one
        return None


def _has_reader(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
