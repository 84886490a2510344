"""KafkaChannel: one connection as the selector sees it.

Rules:

1. One `NetworkSend` at a time. Setting a second one while the first is unfinished is a programming error and raises. (There is no
   queue of bytes per connection: what waits, waits as batches or requests in the layers above, where it can still expire or move.)
   [test_a_second_send_is_an_error_until_the_first_is_complete]
2. `read()` and `write()` each make one bounded step. A channel with more to do is called again in the next poll, after all others.
   [test_a_read_of_a_large_frame_takes_a_bounded_number_of_steps, test_a_read_gives_one_frame_and_keeps_the_next]
3. States move CONNECTING -> HANDSHAKE -> AUTHENTICATING -> READY only; CLOSED can follow any of them.
   [test_states_follow_connect_handshake_authentication,
   test_authentication_begins_when_the_handshake_is_over_and_the_interest_follows_both]

Source: Kafka's KafkaChannel, NetworkSend, NetworkReceive.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Protocol

from kafkacore import _codec
from kafkacore._codec import FIRST_STEP_BYTES, ChannelCore, FrameReader, NetworkReceive, NetworkSend, ReceiveMemory
from kafkacore.errors import IllegalStateError
from kafkacore.net.transport import READ, WRITE, PlaintextTransport, Transport
from kafkacore.protocol.schema import Request

__all__ = ["Authenticator", "ChannelState", "Dialogue", "KafkaChannel", "MuteEvent", "MuteState", "NetworkReceive", "NetworkSend"]

ConnectionId = int | str
"""Clients name connections by node id, servers by address pair."""


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

    @property
    def session_lifetime_ms(self) -> int:
        """For how long the other side takes requests without another authentication (KIP-368); 0 without limit."""

    def again(self) -> Dialogue:
        """Begins another authentication on the same connection; raises AuthenticationFailedError."""


class Dialogue(Protocol):
    """An authentication between other requests."""

    def next(self, answer: Any = None) -> tuple[Request, int] | None:
        """The next request and its version, given the answer to the one before; None at the end; raises AuthenticationFailedError."""

    @property
    def session_lifetime_ms(self) -> int:
        """As for the authenticator; known at the end."""


_codec._bind_channel_states(ChannelState.READY)


class KafkaChannel(ChannelCore):
    """A transport, the frame being written, the frame being read, and who is allowed to go on.

    Attributes:
        interest: READ and WRITE bits the channel wants.
        armed: The bits that the poller has.
        muted: Reads are not wanted now.
        served: Serial number of the poll that read from this channel last (one receive per poll).
    """

    __slots__ = ()

    def __init__(
        self,
        id: ConnectionId,
        transport: Transport,
        max_receive_bytes: int,
        authenticator: Authenticator | None = None,
        receive_step_bytes: int = FIRST_STEP_BYTES,
        receive_memory: ReceiveMemory | None = None,
    ) -> None:
        self.id = id
        self.transport = transport
        self.authenticator = authenticator
        self.reader = FrameReader(max_receive_bytes, transport.peer, receive_step_bytes, receive_memory)
        if type(transport) is PlaintextTransport and transport.sock.gettimeout() == 0:
            self.plain_fd = transport.fd
        self.send = None
        self.state = ChannelState.CONNECTING
        self.mute_state = MuteState.NOT_MUTED
        self.muted = False
        self.interest = WRITE  # a connect that succeeds or fails makes the socket writable
        self.armed = 0

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
        self.plain_fd = -1
        self.transport.close()

