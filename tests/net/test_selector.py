"""Selector: what a poll reports, and when; scripted transports and real sockets."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore._codec import ChannelCore, FileSlice
from kafkacore.clock import ManualClock, SystemClock
from kafkacore.errors import CorruptDataError, DisconnectError, IllegalStateError, NetworkError
from kafkacore.net.channel import MuteEvent, NetworkSend
from kafkacore.net.selector import IdleDisconnect, Selector, SelectorsPoller
from kafkacore.net.transport import READ, WRITE, Address, MemoryTransport, PlaintextTransport, Transport, memory_pair
from tests.kit.inside import listeners_of, poller_of, starved_of, watched_by
from tests.kit.wire import sized

ADDRESS = Address(socket.AF_INET, ("192.0.2.1", 9092), "broker")


class Script:
    """Transports whose far ends the test holds."""

    def __init__(self, *, connected: bool = True, capacity_bytes: int = 1 << 20) -> None:
        self.connected = connected
        self.capacity_bytes = capacity_bytes
        self.near: list[MemoryTransport] = []
        self.far: list[MemoryTransport] = []
        self.refuse: OSError | None = None

    def connect(self, address: Address) -> Transport:
        if self.refuse is not None:
            raise self.refuse
        near, far = memory_pair(connected=self.connected, capacity_bytes=self.capacity_bytes)
        self.near.append(near)
        self.far.append(far)
        return near

    def accept(self, sock: socket.socket) -> Transport:
        return PlaintextTransport(sock)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
def selector(script: Script, clock: ManualClock) -> Iterator[Selector]:
    made = Selector(clock, transports=script, connections_max_idle_ms=10_000, max_receive_bytes=1 << 20)
    yield made
    made.close()


def connect(selector: Selector, id: int = 1) -> None:
    selector.connect(id, ADDRESS)
    selector.poll(0)
    assert selector.connected == [id]


def taken_from(end: MemoryTransport) -> bytes:
    buffer = bytearray(1 << 16)
    count = end.read_into(buffer, 0, len(buffer))
    return bytes(buffer[: max(0, count)])


def test_an_immediate_connection_is_reported_by_the_next_poll(selector: Selector) -> None:
    selector.connect(1, ADDRESS)
    assert selector.connected == []
    selector.poll(60_000)  # does not wait: there is something to report
    assert selector.connected == [1]
    assert selector.is_channel_ready(1)
    selector.poll(0)
    assert selector.connected == []


def test_a_pending_connection_is_reported_when_it_is_made(selector: Selector, script: Script) -> None:
    script.connected = False
    selector.connect(1, ADDRESS)
    selector.poll(0)
    assert selector.connected == []
    assert not selector.is_channel_ready(1)
    script.far[0].accept()
    selector.poll(60_000)
    assert selector.connected == [1]


def test_a_failed_connection_says_why(selector: Selector, script: Script) -> None:
    script.connected = False
    selector.connect(1, ADDRESS)
    script.near[0].connect_error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    selector.poll(60_000)
    assert isinstance(selector.disconnected[1], NetworkError)
    assert "Connection refused" in str(selector.disconnected[1])
    assert selector.disconnected[1].__cause__ is script.near[0].connect_error
    assert selector.connected == []
    script.connected = True
    connect(selector)


def test_a_send_is_written_at_once_and_reported_by_the_next_poll(selector: Selector, script: Script) -> None:
    connect(selector)
    send = NetworkSend(1, [sized(b"ping")])
    selector.send(send)
    assert taken_from(script.far[0]) == sized(b"ping")
    assert selector.completed_sends == []
    selector.poll(60_000)  # returns at once, to report it
    assert selector.completed_sends == [send]


def test_a_send_nobody_waits_for_does_not_end_a_wait() -> None:
    clock = ManualClock()
    waits: list[int] = []
    script = Script()
    selector = Selector(clock, transports=script, poller=RecordingPoller(waits), connections_max_idle_ms=-1)
    connect(selector)
    waits.clear()
    selector.send(NetworkSend(1, [sized(b"ping")], await_completion=False))
    selector.poll(5_000)
    assert waits == [5_000]
    assert len(selector.completed_sends) == 1
    selector.close()


class RecordingPoller(SelectorsPoller):
    """Notes how long it was asked to wait, and does not."""

    __slots__ = ("waits",)

    def __init__(self, waits: list[int]) -> None:
        super().__init__()
        self.waits = waits

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        self.waits.append(timeout_ms)
        return super().poll(0)


def test_one_receive_per_channel_and_poll_and_no_wait_for_the_second(selector: Selector, script: Script) -> None:
    connect(selector)
    script.far[0].write([sized(b"one") + sized(b"two") + sized(b"three")], 0)
    got = []
    for _ in range(3):
        selector.poll(60_000)
        assert len(selector.completed_receives) == 1
        got.append(bytes(selector.completed_receives[0].payload))
        assert selector.has_more == (len(got) < 3)
    assert got == [b"one", b"two", b"three"]
    selector.poll(0)
    assert selector.completed_receives == []


def test_muted_channels_are_not_read(selector: Selector, script: Script) -> None:
    connect(selector)
    selector.mute(1)
    script.far[0].write([sized(b"one") + sized(b"two")], 0)
    selector.poll(0)
    assert selector.completed_receives == []
    channel = selector.channels[1]
    channel.handle_mute_event(MuteEvent.REQUEST_RECEIVED)
    selector.unmute(1)
    selector.poll(0)
    assert selector.completed_receives == []  # a response is pending
    channel.handle_mute_event(MuteEvent.RESPONSE_SENT)
    selector.unmute(1)
    selector.poll(60_000)
    assert bytes(selector.completed_receives[0].payload) == b"one"
    selector.mute(1)
    selector.poll(0)  # the second frame is in memory already, and still not wanted
    assert selector.completed_receives == []
    selector.unmute(1)
    selector.poll(60_000)
    assert bytes(selector.completed_receives[0].payload) == b"two"


def test_of_muted_peers_each_is_read_again_in_its_own_time(selector: Selector, script: Script) -> None:
    ids = (1, 2, 3)
    for id in ids:
        connect(selector, id)
    for id, far in zip(ids, script.far, strict=True):
        far.write([sized(b"first of %d" % id) + sized(b"second of %d" % id)], 0)
    selector.poll(0)
    for id in (1, 2):
        selector.mute(id)

    def seen() -> list[bytes]:
        selector.poll(0)
        return [bytes(one.payload) for one in selector.completed_receives]

    assert seen() == [b"second of 3"]
    script.far[1].close()
    selector.unmute(1)
    assert seen() == [b"second of 1"]
    assert not selector.disconnected  # what peer 2 has sent is to be read first
    selector.unmute(2)
    assert seen() == [b"second of 2"]
    selector.poll(0)
    assert [*selector.disconnected] == [2] and selector.is_channel_ready(1)


def test_frames_before_the_end_are_delivered_before_the_disconnect(selector: Selector, script: Script) -> None:
    connect(selector)
    script.far[0].write([sized(b"one") + sized(b"two")], 0)
    script.far[0].close()
    seen: list[object] = []
    for _ in range(3):
        selector.poll(60_000)
        seen += [bytes(one.payload) for one in selector.completed_receives]
        seen += [type(error) for error in selector.disconnected.values()]
    assert seen == [b"one", b"two", DisconnectError]


def test_responses_are_read_out_after_a_write_failed(selector: Selector, script: Script) -> None:
    connect(selector)
    script.far[0].write([sized(b"one") + sized(b"two")], 0)
    script.far[0].close()
    selector.send(NetworkSend(1, [sized(b"x")]))
    seen: list[object] = []
    selector.poll(60_000)
    assert selector.failed_sends == [1]
    for _ in range(3):
        seen += [bytes(one.payload) for one in selector.completed_receives]
        seen += selector.disconnected
        selector.poll(0)
    assert seen == [b"one", b"two", 1]
    assert not selector.closing


def test_channels_without_peers_are_read_out_side_by_side_a_frame_a_poll(selector: Selector, script: Script) -> None:
    frames = {1: [b"a", b"b", b"c"], 2: [b"x"], 3: [b"y", b"z"]}
    for id in frames:
        connect(selector, id)
    for id, far in zip(frames, script.far, strict=True):
        far.write([b"".join(map(sized, frames[id]))], 0)
        far.close()
        selector.send(NetworkSend(id, [sized(b"x")]))
    seen = []
    for _ in range(4):
        selector.poll(0)
        seen.append(([bytes(one.payload) for one in selector.completed_receives], [*selector.disconnected]))
        selector.close(3)
    assert seen == [([b"a", b"x", b"y"], []), ([b"b"], [2]), ([b"c"], []), ([], [1])]
    assert script.near[2].closed


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_hostile_size_ends_the_connection(selector: Selector, script: Script, size: bytes) -> None:
    connect(selector)
    script.far[0].write([size], 0)
    selector.poll(60_000)
    assert isinstance(selector.disconnected[1], CorruptDataError)
    assert selector.disconnected[1].broker == 1
    assert not selector.channels


def test_a_frame_that_finds_no_memory_costs_only_its_connection(
    selector: Selector, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in (1, 2):
        connect(selector, id)

    def none_left(self: MemoryTransport, buffer: object, start: int, nbytes: int) -> int:
        raise MemoryError("no memory for a buffer of 500000 bytes")

    monkeypatch.setattr(MemoryTransport, "read_into", none_left)  # where the reader's own buffer would be missed
    script.far[0].write([sized(b"x" * 500_000)], 0)
    selector.poll(60_000)
    assert isinstance(selector.disconnected[1], NetworkError)
    assert "500000 bytes" in str(selector.disconnected[1])
    assert selector.is_channel_ready(2)


def test_idle_connections_expire_one_per_poll_least_recent_first(selector: Selector, script: Script, clock: ManualClock) -> None:
    for id in (1, 2, 3):
        connect(selector, id)
    clock.advance(6_000)
    script.far[0].write([sized(b"alive")], 0)
    selector.poll(0)
    clock.advance(4_000)
    expired = []
    for _ in range(4):
        selector.poll(0)
        expired += list(selector.disconnected)
        assert all(isinstance(error, IdleDisconnect) for error in selector.disconnected.values())
    assert expired == [2, 3]
    clock.advance(6_000)
    selector.poll(0)
    assert list(selector.disconnected) == [1]


def test_a_wait_ends_when_a_connection_expires() -> None:
    clock = ManualClock()
    waits: list[int] = []
    selector = Selector(clock, transports=Script(), poller=RecordingPoller(waits), connections_max_idle_ms=10_000)
    connect(selector)
    clock.advance(3_000)
    selector.poll(1 << 40)
    selector.poll(2_000)
    assert waits[-2:] == [7_000, 2_000]
    selector.close()


def test_close_is_silent(selector: Selector, script: Script) -> None:
    connect(selector)
    selector.close(1)
    selector.poll(0)
    assert not selector.disconnected
    assert script.far[0].read_into(bytearray(1), 0, 1) == 0
    connect(selector)  # the id is free again
    with pytest.raises(IllegalStateError, match="already"):
        selector.connect(1, ADDRESS)
    with pytest.raises(IllegalStateError, match="no connection 9"):
        selector.send(NetworkSend(9, [b""]))


def test_what_is_not_there_or_not_any_more_is_a_mistake_of_the_caller(selector: Selector, script: Script) -> None:
    near, far = memory_pair()
    selector.register_transport(1, near)
    for add in (selector.register_transport, selector.connect):
        with pytest.raises(IllegalStateError, match="already"):
            add(1, ADDRESS)  # type: ignore[arg-type]
    far.write([sized(b"one")], 0)
    selector.poll(0)
    assert [bytes(each.payload) for each in selector.completed_receives] == [b"one"]
    for call in (selector.mute, selector.unmute, selector.watch):
        with pytest.raises(IllegalStateError, match="no connection 9"):
            call(9)
    for _ in range(2):
        selector.close()
    with pytest.raises(IllegalStateError, match="closed"):
        selector.connect(2, ADDRESS)


def test_fail_is_reported(selector: Selector) -> None:
    """What becomes of two connections between polls, of both."""
    for id in (1, 2, 3):
        selector.connect(id, ADDRESS)
    selector.close(2)
    selector.poll(0)
    assert selector.connected == [1, 3]
    for id in (1, 3):
        selector.fail(id, CorruptDataError("nonsense"))
    selector.poll(60_000)
    assert [*selector.disconnected] == [1, 3]
    assert "nonsense" in str(selector.disconnected[3])


@pytest.mark.parametrize("step", ["eventfd_write", "eventfd_read"])
def test_ctrl_c_in_a_wakeup_or_behind_one_loses_no_later_one(selector: Selector, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    real = getattr(os, step)

    def interrupt(*args: int) -> None:
        if step == "eventfd_read":  # a signal is taken when the call has returned
            real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            selector.wakeup()
            selector.poll(-1)
    selector.wakeup()
    assert poller_of(selector).poll(0) != []


@pytest.mark.parametrize("system", ["eventfd", "none"])
def test_a_wakeup_from_another_thread_ends_a_wait(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if system == "none":
        monkeypatch.delattr(os, "eventfd")
    selector = Selector(SystemClock(), transports=Script())
    thread = threading.Timer(0, selector.wakeup)
    thread.start()
    selector.poll(-1)
    thread.join()
    selector.wakeup()
    selector.wakeup()
    selector.poll(-1)  # a wakeup before the poll counts too
    assert selector.statistics()["polls"] == 2
    assert poller_of(selector).poll(0) == []
    selector.close()
    selector.wakeup()


# ---- real sockets


@pytest.fixture(params=["epoll", "selectors"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Selector, tuple[str, int]]]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = Selector(SystemClock(), poller=None if request.param == "epoll" else SelectorsPoller())
    made.listen(listener)
    yield made, listener.getsockname()
    made.close()
    listener.close()


def until_accepted(selector: Selector) -> str:
    while not selector.accepted:
        selector.poll(5_000)
    return str(selector.accepted[0])


def until_received(selector: Selector) -> bytes:
    while True:
        selector.poll(5_000)
        if selector.completed_receives:
            return bytes(selector.completed_receives[0].payload)


def test_a_muted_channel_with_waiting_bytes_does_not_spin(server: tuple[Selector, tuple[str, int]]) -> None:
    serving, address = server
    with socket.create_connection(address) as peer:
        id = until_accepted(serving)
        serving.mute(id)
        peer.sendall(sized(b"one"))
        serving.poll(5_000)  # the event arrives, and takes the channel out of the poller
        assert serving.completed_receives == []
        channel = serving.channel(id)
        assert channel is not None
        assert channel.armed == 0
        serving.unmute(id)
        assert channel.armed == READ
        assert until_received(serving) == b"one"


def test_a_slice_of_a_file_waits_for_room_without_spinning(server: tuple[Selector, tuple[str, int]], tmp_path: Path) -> None:
    serving, address = server
    content = bytes(range(251)) * 80_000
    (tmp_path / "segment").write_bytes(content)
    with socket.create_connection(address) as peer, open(tmp_path / "segment", "rb") as file:
        id = until_accepted(serving)
        send = NetworkSend(id, [len(content).to_bytes(4, "big"), FileSlice(file, 0, len(content))])
        serving.send(send)
        assert serving.channels[id].armed == READ | WRITE
        written = 0
        while written < send.written_bytes:
            written = send.written_bytes
            serving.poll(0)
        assert 0 < written < send.size_bytes
        assert poller_of(serving).poll(0) == []  # full: nothing wakes the loop until the peer has read
        peer.setblocking(False)
        received = bytearray()
        while not serving.completed_sends:
            serving.poll(0)
            try:
                received += peer.recv(1 << 20)
            except BlockingIOError:
                pass
        assert serving.completed_sends == [send]
        assert serving.channels[id].armed == READ
        peer.setblocking(True)
        while len(received) < send.size_bytes:
            received += peer.recv(1 << 20)
        assert received[4:] == content


def test_a_quiet_selector_returns_for_whole_frames_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = Selector(SystemClock())
        serving.listen(listener)
        with socket.create_connection(listener.getsockname()) as peer:
            id = until_accepted(serving)
            serving.quiet = True
            data = sized(b"y" * 300_000)

            def send_in_parts() -> None:
                for at in range(0, len(data), 50_000):
                    peer.sendall(data[at : at + 50_000])

            sender = threading.Thread(target=send_in_parts)
            sender.start()
            serving.poll(10_000)
            assert [len(one.payload) for one in serving.completed_receives] == [300_000]
            sender.join()

            reply = sized(b"z" * 20_000_000)
            serving.send(NetworkSend(id, [reply]))
            received = bytearray()

            def receive() -> None:
                while len(received) < len(reply):
                    received.extend(peer.recv(1 << 20))

            receiver = threading.Thread(target=receive)
            receiver.start()
            polls = serving.poll_count
            serving.poll(10_000)
            assert len(serving.completed_sends) == 1
            assert serving.poll_count > polls + 1  # it waited more than once, by itself
            receiver.join()
            assert received == reply

            serving.poll(20)  # nothing comes: the time ends it
            serving.wakeup()
            serving.poll(-1)
        serving.poll(-1)
        assert list(serving.disconnected) == [id]
        serving.close()


def test_the_end_of_one_of_two_muted_peers_is_reported(server: tuple[Selector, tuple[str, int]]) -> None:
    serving, address = server
    ids = []
    with contextlib.ExitStack() as ends:
        made = [ends.enter_context(socket.create_connection(address)) for _ in range(3)]
        while len(ids) < 3:
            serving.poll(5_000)
            ids += map(str, serving.accepted)
        for id in ids:
            serving.mute(id)
        serving.watch(ids[1])
        peers = {f"{host}:{port}": peer for peer in made for host, port in [peer.getsockname()]}
        leaves, stays, follows = (peers[id.split("-")[1]] for id in ids)
        leaves.close()
        while serving.channels[ids[0]].armed:
            serving.poll(5_000)
        assert not serving.disconnected
        serving.watch(ids[0])  # whose end has come already
        serving.poll(5_000)
        assert [*serving.disconnected] == ids[:1]
        assert watched_by(serving) == {serving.channels[ids[1]]}
        serving.watch(ids[2])
        follows.close()
        serving.poll(5_000)
        assert [*serving.disconnected] == ids[2:]
        assert watched_by(serving) == {serving.channels[ids[1]]}
        stays.sendall(sized(b"still here"))
        serving.unmute(ids[1])
        assert until_received(serving) == b"still here"


def test_a_reset_peer_is_reported(server: tuple[Selector, tuple[str, int]]) -> None:
    serving, address = server
    peer = socket.create_connection(address)
    id = until_accepted(serving)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()
    while not serving.disconnected:
        serving.poll(5_000)
    assert isinstance(serving.disconnected[id], DisconnectError)


def test_a_listener_without_descriptors_waits_instead_of_spinning(server: tuple[Selector, tuple[str, int]]) -> None:
    serving, address = server
    first = socket.create_connection(address)
    id = until_accepted(serving)
    fd = next(iter(listeners_of(serving)))

    class Starved:
        def accept(self) -> tuple[socket.socket, object]:
            raise OSError(errno.EMFILE, "Too many open files")

    listening = listeners_of(serving)[fd]
    listeners_of(serving)[fd] = (Starved(), *listening[1:])  # type: ignore[assignment]
    second = socket.create_connection(address)
    serving.poll(5_000)
    assert serving.accepted == []
    serving.poll(0)
    assert starved_of(serving) == [fd]
    listeners_of(serving)[fd] = listening
    serving.close(id)
    assert until_accepted(serving)
    first.close()
    second.close()


def test_of_connections_that_end_or_are_refused_while_they_are_accepted_the_next_is_let_in() -> None:
    left, right = socket.socketpair(), socket.socketpair()
    steps: list[OSError | socket.socket] = [
        *(OSError(code, "") for code in (errno.ECONNABORTED, errno.EPROTO, errno.EPERM)),
        left[0],
        right[0],
        BlockingIOError(),
        OSError(errno.EINVAL, "no listener"),
    ]

    class Listener:
        def fileno(self) -> int:
            return listening.fileno()

        def setblocking(self, flag: bool) -> None:
            assert not flag

        def getsockname(self) -> tuple[str, int]:
            return "here", 1

        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            step = steps.pop(0)
            if isinstance(step, OSError):
                raise step
            return step, ("there", 2)

    seen: list[tuple[object, ...]] = []

    class Admits:
        def wait_ms(self, now_ms: int) -> int:
            return 0

        def opened(self, id: object, host: str) -> bool:
            seen.append((id, host))
            return len(seen) > 1

        def closed(self, id: object) -> None:
            seen.append((id,))

    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        serving = Selector(SystemClock(), admission=Admits())  # type: ignore[arg-type]
        serving.listen(Listener())  # type: ignore[arg-type]
        while not serving.accepted:
            serving.poll(5_000)
        assert serving.accepted == ["here:1-there:2-2"] and seen == [("here:1-there:2-1", "there"), ("here:1-there:2-2", "there")]
        assert left[0].fileno() < 0 <= right[0].fileno() and len(steps) == 1
        with pytest.raises(OSError, match="no listener"):
            serving.poll(5_000)
        serving.unlisten(Listener())  # type: ignore[arg-type]
        serving.poll(0)
        assert not steps and not listeners_of(serving)
        serving.close()
    for end in (left[1], right[1]):
        end.close()


def test_all_listeners_that_were_left_alone_are_listened_to_again() -> None:
    class Admits:
        ms = 1

        def wait_ms(self, now_ms: int) -> int:
            return self.ms

        def opened(self, id: object, host: str) -> bool:
            return True

        def closed(self, id: object) -> None:
            """Nothing is counted."""

    serving = Selector(SystemClock())
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        admits = [Admits() for _ in listeners]
        for listener, admission in zip(listeners, admits, strict=True):
            serving.listen(listener, admission=admission)  # type: ignore[arg-type]
            stack.enter_context(socket.create_connection(listener.getsockname()))
        while len(starved_of(serving)) < 3:
            serving.poll(5_000)
        for admission in admits[::2]:  # the one between them refuses on
            admission.ms = 0
        serving.rearm_listeners()
        accepted: list[str] = []
        while len(accepted) < 2 or not starved_of(serving):
            serving.poll(5_000)
            accepted += map(str, serving.accepted)
        addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
        assert {id.partition("-")[0] for id in accepted} == {*addresses[::2]}
        assert starved_of(serving) == [listeners[1].fileno()]
        serving.unlisten(listeners[1])
        assert starved_of(serving) == []
        serving.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="SO_RCVLOWAT wakes later on Linux only")
def test_a_large_frame_wakes_for_a_good_part_of_it_and_a_small_one_at_once() -> None:
    def low_water(channel: ChannelCore) -> int:
        with socket.socket(fileno=os.dup(channel.plain_fd)) as same:
            return same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = Selector(SystemClock())
        serving.listen(listener)
        serving.quiet = True
        with socket.create_connection(listener.getsockname()) as peer:
            channel = serving.channels[until_accepted(serving)]
            data = sized(b"y" * 1_000_000)
            sent = 40_000
            peer.sendall(data[:sent])
            while not channel.reader.filling:
                serving.poll(20)
            assert channel.low_water_bytes == low_water(channel) == 256 * 1024
            before = serving.poll_count
            peer.sendall(data[sent : sent + 100_000])
            serving.poll(200)
            assert serving.poll_count <= before + 2, "it woke for a small part"
            peer.sendall(data[sent + 100_000 :] + sized(b"z"))
            received: list[int] = []
            while len(received) < 2:
                serving.poll(5_000)
                received += [len(each.payload) for each in serving.completed_receives]
            assert received == [1_000_000, 1]
            assert channel.low_water_bytes == 0
            assert low_water(channel) == 1
            peer.sendall(sized(b"small"))
            serving.poll(5_000)
            assert [len(each.payload) for each in serving.completed_receives] == [5]

            peer.sendall(data[:sent])
            while not channel.low_water_bytes:
                serving.poll(20)
        serving.poll(5_000)  # less than the mark is there, and then the end
        assert list(serving.disconnected) == [channel.id]
        serving.close()
