"""Cutting a byte stream into frames.

Frame layout (both directions)::

    int32 size, big-endian | size bytes of payload

Rules:

1. A size is checked before anything is allocated from it: negative or above the limit is `CorruptDataError`. A large frame within the
   limit starts with a bounded buffer that doubles only as bytes really arrive.
2. `FrameReader` never asks for bytes past the frame it is filling once that frame has its own buffer, so the payload of a large frame
   goes from the kernel straight to its final place. Small frames are read, size and body, by one call into a staging buffer.

Source: Kafka's NetworkReceive.
"""

from __future__ import annotations

from typing import Any

from kafkacore._codec import PooledBuffer
from kafkacore.errors import CorruptDataError

__all__ = ["FIRST_STEP_BYTES", "STAGING_BYTES", "UNLIMITED", "FrameReader"]

UNLIMITED = 2**31 - 1
"""The largest frame the size field can name; what a client accepts (Kafka's NetworkReceive.UNLIMITED)."""

STAGING_BYTES = 16 * 1024
# Unused pages of a fresh buffer cost no memory, so the step is wide enough that most fetches are never copied.
FIRST_STEP_BYTES = 16 * 1024 * 1024

_EMPTY = memoryview(b"")


class FrameReader:
    """Cuts a byte stream into frames, keeping partial sizes and bodies between calls.

    Use: `target()` says where the next bytes go, `received(n)` that n of them are there, `next_frame()` gives a complete payload.

    Args:
        max_bytes: Largest payload accepted.
        where: Name of the peer for error messages.
    """

    __slots__ = ("_body", "_body_filled", "_body_size", "_end", "_max", "_staging", "_staging_view", "_start", "where")

    def __init__(self, max_bytes: int = UNLIMITED, where: str = "") -> None:
        self._max = max_bytes
        self.where = where
        # Made at the first read: a listening broker may hold many connections that never speak.
        self._staging: bytearray | None = None
        self._staging_view = _EMPTY
        self._start = 0  # staged bytes not yet consumed are [start, end)
        self._end = 0
        self._body: Any = None  # PooledBuffer of the frame being filled, or None
        self._body_size = 0
        self._body_filled = 0

    @property
    def partial(self) -> bool:
        """True when the stream stands in the middle of a frame."""
        return self._body is not None or self._end > self._start

    def target(self) -> tuple[Any, int, int]:
        """Returns (buffer, start, nbytes): where the next bytes of the stream belong. nbytes is never 0."""
        body = self._body
        if body is not None:
            filled = self._body_filled
            room = min(body.nbytes, self._body_size) - filled
            if room == 0:
                body = self._grow()
                room = min(body.nbytes, self._body_size) - filled
            return body, filled, room
        staging = self._staging
        if staging is None:
            staging = self._staging = bytearray(STAGING_BYTES)
            self._staging_view = memoryview(staging)
        elif self._start:
            # Only a partial size or a short partial body is left here; moving it keeps room for one full read.
            left = self._end - self._start
            if left:
                staging[:left] = staging[self._start : self._end]
            self._start, self._end = 0, left
        return staging, self._end, STAGING_BYTES - self._end

    def received(self, nbytes: int) -> None:
        """Accounts for `nbytes` put at the target."""
        if self._body is not None:
            self._body_filled += nbytes
        else:
            self._end += nbytes

    def has_frame(self) -> bool:
        """True when `next_frame` has something to say (a payload, or an error) without further bytes."""
        if self._body is not None:
            return self._body_filled == self._body_size
        start = self._start
        if self._end - start < 4:
            return False
        size = int.from_bytes(self._staging_view[start : start + 4], "big", signed=True)
        return size <= self._end - start - 4 or size > self._max  # a negative size is an error to report, so it counts

    def next_frame(self) -> memoryview | None:
        """Returns the payload of the next complete frame (a view of a PooledBuffer, without the size), or None.

        Raises:
            CorruptDataError: The size is negative or above the limit; the connection cannot go on.
        """
        body = self._body
        if body is not None:
            if self._body_filled < self._body_size:
                return None
            self._body = None
            view = memoryview(body)
            return view if view.nbytes == self._body_size else view[: self._body_size]
        start = self._start
        staged = self._end - start - 4
        if staged < 0:
            return None
        size = int.from_bytes(self._staging_view[start : start + 4], "big", signed=True)
        if size < 0 or size > self._max:
            raise CorruptDataError(
                f"frame size {size} from {self.where or 'peer'} is "
                + ("negative" if size < 0 else f"above the limit of {self._max} bytes")
                + "; the stream is not Kafka's protocol or is out of step"
            )
        start += 4
        if size <= staged:
            self._start = start + size
            if self._start == self._end:
                self._start = self._end = 0
            if size == 0:
                return _EMPTY
            view = memoryview(PooledBuffer(size))
            if view.nbytes != size:
                view = view[:size]
            view[:] = self._staging_view[start : start + size]
            return view
        if size + 4 > STAGING_BYTES:
            body = PooledBuffer(size if size <= FIRST_STEP_BYTES else FIRST_STEP_BYTES)
            memoryview(body)[:staged] = self._staging_view[start : self._end]
            self._body = body
            self._body_size = size
            self._body_filled = staged
            self._start = self._end = 0
        return None

    def _grow(self) -> Any:
        """Doubles the buffer of a large frame: the peer has sent as much as the buffer held, so the next step is earned."""
        old = self._body
        new = PooledBuffer(min(self._body_size, 2 * old.nbytes))
        memoryview(new)[: self._body_filled] = memoryview(old)[: self._body_filled]
        self._body = new
        return new
