"""KafkaChannel: one connection as the selector sees it.

Rules:

1. One `NetworkSend` at a time. Setting a second one while the first is unfinished is a programming error and raises. (There is no
   queue of bytes per connection: what waits, waits as batches or requests in the layers above, where it can still expire or move.)
2. `read()` and `write()` each make one bounded step. Whoever has more to do is called again in the next poll, after everybody else.
3. States move CONNECTING -> HANDSHAKE -> AUTHENTICATING -> READY only; CLOSED can follow any of them.

Source: Kafka's KafkaChannel, NetworkSend, NetworkReceive.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Protocol

from kafkacore.errors import DisconnectError, IllegalStateError
from kafkacore.net.frames import FrameReader
from kafkacore.net.transport import READ, WRITE, Transport

__all__ = ["Authenticator", "ChannelState", "KafkaChannel", "MuteEvent", "MuteState", "NetworkReceive", "NetworkSend"]

ConnectionId = int | str
"""Clients name connections by node id, servers by address pair."""


class NetworkSend:
    """A frame on its way out: a gather list that is referenced, never copied.

    Args:
        destination: Connection id.
        buffers: Complete frame, size included, as bytes-likes.
        await_completion: False when nobody waits to hear that the frame is written (a response will tell); the selector then need
            not return early from a poll only to report it.
    """

    __slots__ = ("await_completion", "buffers", "completed", "destination", "size_bytes", "written_bytes")

    def __init__(self, destination: ConnectionId, buffers: list[Any], await_completion: bool = True) -> None:
        size = 0
        for buffer in buffers:
            size += len(buffer)  # byte formats only: bytes, bytearray, PooledBuffer, memoryview of "B"
        self.destination = destination
        self.buffers = buffers
        self.size_bytes = size
        self.written_bytes = 0
        self.completed = False
        self.await_completion = await_completion


class NetworkReceive:
    """A complete frame that came in: `payload` is a memoryview without the size."""

    __slots__ = ("payload", "source")

    def __init__(self, source: ConnectionId, payload: memoryview) -> None:
        self.source = source
        self.payload = payload

    def __repr__(self) -> str:
        return f"NetworkReceive({self.source!r}, {len(self.payload)} bytes)"


class ChannelState(IntEnum):
    """Life of a channel."""

    CONNECTING = 0
    HANDSHAKE = 1
    AUTHENTICATING = 2
    READY = 3
    CLOSED = 4


class MuteState(Enum):
    """Why a server does not read from a channel."""

    NOT_MUTED = "not muted"
    MUTED = "muted"
    MUTED_AND_RESPONSE_PENDING = "muted, response pending"
    MUTED_AND_THROTTLED = "muted, throttled"
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = "muted, throttled, response pending"


class MuteEvent(Enum):
    """What changes a mute state."""

    REQUEST_RECEIVED = "request received"
    RESPONSE_SENT = "response sent"
    THROTTLE_STARTED = "throttle started"
    THROTTLE_ENDED = "throttle ended"


_M = MuteState
_E = MuteEvent
_MUTE_MOVES: dict[tuple[MuteState, MuteEvent], MuteState] = {
    (_M.MUTED, _E.REQUEST_RECEIVED): _M.MUTED_AND_RESPONSE_PENDING,
    (_M.MUTED_AND_RESPONSE_PENDING, _E.RESPONSE_SENT): _M.MUTED,
    (_M.MUTED_AND_RESPONSE_PENDING, _E.THROTTLE_STARTED): _M.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (_M.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, _E.RESPONSE_SENT): _M.MUTED_AND_THROTTLED,
    (_M.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, _E.THROTTLE_ENDED): _M.MUTED_AND_RESPONSE_PENDING,
    (_M.MUTED, _E.THROTTLE_STARTED): _M.MUTED_AND_THROTTLED,
    (_M.MUTED_AND_THROTTLED, _E.THROTTLE_ENDED): _M.MUTED,
}


class Authenticator(Protocol):
    """The step between the transport's handshake and the first request (SASL, client and server side)."""

    def step(self, transport: Transport) -> bool:
        """Makes what progress it can without blocking and returns True when done; raises AuthenticationFailedError or OSError."""

    @property
    def wants_write(self) -> bool:
        """True while it waits for the transport to take bytes."""


class KafkaChannel:
    """A transport, the frame being written, the frame being read, and who is allowed to go on.

    Attributes:
        interest: READ and WRITE bits the channel wants.
        armed: The bits the poller has been told.
        muted: Reads are not wanted now.
        served: Serial number of the poll that read from this channel last (one receive per poll).
    """

    __slots__ = ("armed", "authenticator", "id", "interest", "mute_state", "muted", "reader", "send", "served", "state", "transport")

    def __init__(
        self, id: ConnectionId, transport: Transport, max_receive_bytes: int, authenticator: Authenticator | None = None
    ) -> None:
        self.id = id
        self.transport = transport
        self.authenticator = authenticator
        self.reader = FrameReader(max_receive_bytes, transport.peer)
        self.send: NetworkSend | None = None
        self.state = ChannelState.CONNECTING
        self.mute_state = MuteState.NOT_MUTED
        self.muted = False
        self.interest = WRITE  # a connect that succeeds or fails makes the socket writable
        self.armed = 0
        self.served = -1

    @property
    def ready(self) -> bool:
        """True when frames may flow."""
        return self.state is ChannelState.READY

    def finish_connect(self) -> bool:
        """Returns True when the stream is up; raises OSError when the attempt failed."""
        if not self.transport.finish_connect():
            return False
        self.state = ChannelState.HANDSHAKE
        self.interest = READ
        return True

    def prepare(self) -> bool:
        """Advances handshake and authentication; True once the channel is ready.

        Raises:
            AuthenticationFailedError: The peer or its certificate was refused, or refused us.
            OSError: The stream broke.
        """
        wants_write = False
        if self.state is ChannelState.HANDSHAKE:
            if self.transport.handshake():
                self.state = ChannelState.AUTHENTICATING
            else:
                wants_write = self.transport.handshake_wants_write
        if self.state is ChannelState.AUTHENTICATING:
            authenticator = self.authenticator
            if authenticator is None or authenticator.step(self.transport):
                self.state = ChannelState.READY
            else:
                wants_write = authenticator.wants_write
        self.interest = READ | WRITE if wants_write else READ
        return self.state is ChannelState.READY

    def set_send(self, send: NetworkSend) -> None:
        """Makes `send` the frame being written.

        Raises:
            IllegalStateError: The one before it is not finished.
        """
        if self.send is not None:
            raise IllegalStateError(f"connection {self.id} is still writing a frame; a second one cannot begin")
        self.send = send
        self.interest |= WRITE

    def write(self) -> NetworkSend | None:
        """Makes one write of the current send; returns it when that completed it, with the write interest removed."""
        send = self.send
        if send is None:
            return None
        transport = self.transport
        if send.written_bytes < send.size_bytes:
            written = transport.write(send.buffers, send.written_bytes)
            if written > 0:
                send.written_bytes += written
            if send.written_bytes < send.size_bytes:
                return None
            if transport.pending_writes:
                return None
        elif not transport.flush():
            return None
        send.completed = True
        self.send = None
        self.interest &= ~WRITE
        return send

    def read(self) -> memoryview | None:
        """Makes one step of reading; returns a payload when a frame is complete.

        At most one staging read and, when that shows a large frame, one read into the frame's own buffer.

        Raises:
            DisconnectError: The peer closed the connection.
            CorruptDataError: The frame size is not acceptable.
            OSError: The stream broke.
        """
        reader = self.reader
        frame = reader.next_frame()  # one may be here already, read together with the one before it
        if frame is not None:
            return frame
        buffer, start, wanted = reader.target()
        got = self.transport.read_into(buffer, start, wanted)
        if got > 0:
            reader.received(got)
            frame = reader.next_frame()
            if frame is not None or got < wanted:
                return frame
            buffer, start, wanted = reader.target()
            got = self.transport.read_into(buffer, start, wanted)
            if got > 0:
                reader.received(got)
                return reader.next_frame()
        if got == 0:
            inside = " in the middle of a frame" if reader.partial else ""
            raise DisconnectError(f"{self.transport.peer or 'the peer'} closed the connection{inside}")
        return None

    @property
    def has_buffered_read(self) -> bool:
        """True when a read would find something although the operating system will not announce it."""
        return self.transport.buffered or self.reader.has_frame()

    def mute(self) -> None:
        """Stops reading."""
        self.muted = True
        if self.mute_state is MuteState.NOT_MUTED:
            self.mute_state = MuteState.MUTED

    def maybe_unmute(self) -> bool:
        """Reads again unless a response is pending or the channel is throttled; returns whether reads are on."""
        if self.mute_state is MuteState.MUTED:
            self.mute_state = MuteState.NOT_MUTED
            self.muted = False
        return self.mute_state is MuteState.NOT_MUTED

    def handle_mute_event(self, event: MuteEvent) -> None:
        """Moves the mute state.

        Raises:
            IllegalStateError: The event makes no sense in this state.
        """
        state = _MUTE_MOVES.get((self.mute_state, event))
        if state is None:
            raise IllegalStateError(f"connection {self.id}: {event.value} while {self.mute_state.value}")
        self.mute_state = state

    def close(self) -> None:
        """Closes the transport; may be called twice."""
        self.state = ChannelState.CLOSED
        self.send = None
        self.transport.close()

