"""KafkaChannel: one send at a time, one bounded step per call, states and mute states."""

from __future__ import annotations

import pytest

from kafkacore.errors import DisconnectError, IllegalStateError
from kafkacore.net.channel import ChannelState, KafkaChannel, MuteEvent, MuteState, NetworkSend
from kafkacore.net.transport import READ, WRITE, MemoryTransport, Transport, memory_pair
from tests.kit.wire import sized


def open_channel(limit: int = 1 << 20) -> tuple[KafkaChannel, MemoryTransport]:
    ours, theirs = memory_pair()
    channel = KafkaChannel(1, ours, limit)
    assert channel.finish_connect()
    assert channel.prepare()
    return channel, theirs


def received(end: MemoryTransport, size: int = 1 << 16) -> bytes:
    buffer = bytearray(size)
    count = end.read_into(buffer, 0, size)
    return bytes(buffer[: max(0, count)])


def test_a_send_is_written_in_steps_and_its_write_interest_comes_and_goes() -> None:
    channel, peer = open_channel()
    ours = channel.transport
    assert isinstance(ours, MemoryTransport)
    ours.max_write_bytes = 4
    send = NetworkSend(1, [b"abc", b"defg", b"hi"])
    assert channel.interest == READ
    channel.set_send(send)
    assert channel.interest == READ | WRITE
    assert channel.write() is None
    assert (send.written_bytes, send.completed) == (4, False)
    assert received(peer) == b"abcd"
    assert channel.write() is None
    assert channel.write() is send
    assert send.completed
    assert channel.interest == READ
    assert received(peer) == b"efghi"
    assert channel.write() is None  # nothing to do


def test_a_second_send_is_an_error_until_the_first_is_complete() -> None:
    channel, _peer = open_channel()
    ours = channel.transport
    assert isinstance(ours, MemoryTransport)
    ours.max_write_bytes = 1
    channel.set_send(NetworkSend(1, [b"ab"]))
    channel.write()
    with pytest.raises(IllegalStateError, match="still writing"):
        channel.set_send(NetworkSend(1, [b"c"]))
    assert channel.write() is not None
    channel.set_send(NetworkSend(1, [b"c"]))


def test_a_read_gives_one_frame_and_keeps_the_next() -> None:
    channel, peer = open_channel()
    peer.write([sized(b"one") + sized(b"two") + b"\0"], 0)
    assert bytes(channel.read() or b"") == b"one"
    assert channel.has_buffered_read
    assert bytes(channel.read() or b"") == b"two"
    assert not channel.has_buffered_read
    assert channel.read() is None


def test_a_read_of_a_large_frame_takes_a_bounded_number_of_steps() -> None:
    channel, peer = open_channel()
    body = bytes(range(256)) * 400
    peer.write([sized(body)], 0)
    assert bytes(channel.read() or b"") == body  # staging, then straight into the frame's own buffer


def test_the_end_of_the_stream_names_the_peer_and_where_it_stood() -> None:
    channel, peer = open_channel()
    peer.write([b"\0\0\0\5ab"], 0)
    assert channel.read() is None
    peer.close()
    with pytest.raises(DisconnectError, match="memory closed the connection in the middle of a frame"):
        channel.read()


class Script:
    """An authenticator that is ready after its answers are used up."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.wants_write = True

    def step(self, transport: Transport) -> bool:
        assert transport.connected
        return self.answers.pop(0)


def test_states_follow_connect_handshake_authentication() -> None:
    ours, theirs = memory_pair(connected=False)
    channel = KafkaChannel(1, ours, 100, Script(False, True))
    assert channel.state is ChannelState.CONNECTING
    assert not channel.finish_connect()
    theirs.accept()
    assert channel.finish_connect()
    assert channel.state is ChannelState.HANDSHAKE
    assert not channel.prepare()
    assert channel.state is ChannelState.AUTHENTICATING
    assert channel.interest == READ | WRITE
    assert channel.prepare()
    assert channel.ready
    assert channel.interest == READ
    channel.close()
    assert channel.state is ChannelState.CLOSED


class Shaking:
    """A transport whose handshake takes steps: (whether it is over, whether it waits for the socket to take bytes)."""

    connected = True
    peer = "peer"

    def __init__(self, *steps: tuple[bool, bool]) -> None:
        self.steps = list(steps)
        self.handshake_wants_write = False

    def finish_connect(self) -> bool:
        return True

    def handshake(self) -> bool:
        over, self.handshake_wants_write = self.steps.pop(0)
        return over


def test_authentication_begins_when_the_handshake_is_over_and_the_interest_follows_both() -> None:
    authenticator = Script(False, True)
    channel = KafkaChannel(1, Shaking((False, True), (False, False), (True, False)), 100, authenticator)
    assert channel.finish_connect()
    for interest in (READ | WRITE, READ):
        assert not channel.prepare()
        assert (channel.state, channel.interest) == (ChannelState.HANDSHAKE, interest)
        assert len(authenticator.answers) == 2
    assert not channel.prepare()
    assert (channel.state, channel.interest) == (ChannelState.AUTHENTICATING, READ | WRITE)
    assert channel.prepare()
    assert channel.interest == READ


def test_unmuting_waits_for_the_response_and_the_throttle() -> None:
    channel, _peer = open_channel()
    channel.mute()
    assert channel.muted
    for event, state in [
        (MuteEvent.REQUEST_RECEIVED, MuteState.MUTED_AND_RESPONSE_PENDING),
        (MuteEvent.THROTTLE_STARTED, MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING),
        (MuteEvent.RESPONSE_SENT, MuteState.MUTED_AND_THROTTLED),
    ]:
        channel.handle_mute_event(event)
        assert channel.mute_state is state
        assert not channel.maybe_unmute()
        assert channel.muted
    channel.handle_mute_event(MuteEvent.THROTTLE_ENDED)
    assert channel.maybe_unmute()
    assert not channel.muted
    with pytest.raises(IllegalStateError, match="response sent while not muted"):
        channel.handle_mute_event(MuteEvent.RESPONSE_SENT)


def test_a_pipe_in_memory_holds_what_fits() -> None:
    near, far = memory_pair(capacity_bytes=4)
    assert (near.fd, near.peer, near.buffered, near.closed) == (-1, "memory", False, False) and near.ready_ops() == WRITE
    assert near.write([b"ab", b"cdef"], 0) == 4 and near.write([b"ef"], 0) == -1
    assert near.ready_ops() == 0 and far.ready_ops() == READ | WRITE
    data = bytearray(6)
    far.max_read_bytes = 3
    assert far.read_into(data, 1, 9) == 3 and far.read_into(data, 4, 1) == 1 and data == b"\0abcd\0"
    assert far.read_into(data, 0, 6) == -1 and near.ready_ops() == WRITE
    near.max_write_bytes = 0
    assert near.ready_ops() == 0 and near.write([b"ef"], 0) == -1
    near.max_write_bytes = 1
    assert near.write([b"ef"], 1) == 1 and far.read_into(data, 0, 6) == 1 and data[:1] == b"f"
    far.write([b"x"], 0)
    near.close()
    assert far.ready_ops() == READ | WRITE and far.read_into(data, 0, 6) == 0 and near.ready_ops() == WRITE
    with pytest.raises(BrokenPipeError):
        far.write([b"x"], 0)
    with pytest.raises(OSError, match="closed"):
        near.read_into(data, 0, 6)
