"""One contract for every transport: what the rules at the top of transport.py say, on sockets, TLS and in-process pipes."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafkacore._codec import FileSlice, SharedFile
from kafkacore.errors import AuthenticationFailedError, KafkaStorage
from kafkacore.net.channel import KafkaChannel, NetworkSend
from kafkacore.net.transport import PlaintextTransport, TlsTransport, Transport, memory_pair

Pair = tuple[Transport, Transport]


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("broker.test").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return client, server


def sockets() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    return pair


def tls_pair(contexts: tuple[ssl.SSLContext, ssl.SSLContext], name: str = "broker.test") -> Pair:
    left, right = sockets()
    return TlsTransport(left, contexts[0], server_hostname=name), TlsTransport(right, contexts[1], server_side=True)


def shake(pair: Pair) -> None:
    for _ in range(20):
        done = [end.handshake() for end in pair]
        if all(done):
            return
    raise AssertionError("the handshake does not end")


@pytest.fixture(params=["plaintext", "tls", "memory"])
def pair(request: pytest.FixtureRequest, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Pair]:
    made: Pair
    if request.param == "plaintext":
        left, right = sockets()
        made = PlaintextTransport(left), PlaintextTransport(right)
    elif request.param == "tls":
        made = tls_pair(contexts)
    else:
        made = memory_pair(capacity_bytes=20_000)
    shake(made)
    yield made
    for end in made:
        end.close()


def wait_readable(end: Transport) -> None:
    if end.fd >= 0 and not end.buffered:
        assert select.select([end.fd], [], [], 5)[0]


def read_exactly(end: Transport, wanted: int, step: int = 65536) -> bytes:
    got = bytearray()
    buffer = bytearray(step)
    while len(got) < wanted:
        count = end.read_into(buffer, 0, min(step, wanted - len(got)))
        assert count != 0, "end of stream too early"
        if count < 0:
            wait_readable(end)
            continue
        got += buffer[:count]
    return bytes(got)


def test_would_block_is_minus_one(pair: Pair) -> None:
    assert not pair[0].handshake_wants_write and not pair[0].pending_writes and pair[0].flush()
    assert all(end.connected and not end.buffered for end in pair)
    assert pair[0].read_into(bytearray(10), 0, 10) == -1
    assert pair[1].read_into(bytearray(10), 0, 10) == -1


def test_a_read_takes_no_more_than_asked(pair: Pair) -> None:
    for sender, receiver in (pair, pair[::-1]):
        assert sender.write([b"ab", bytearray(b"cde"), memoryview(b"f")], 0) == 6
        wait_readable(receiver)
        buffer = bytearray(b".......")
        assert receiver.read_into(buffer, 1, 2) == 2
        # What is left must be findable: announced by the system, or by `buffered`.
        wait_readable(receiver)
        assert receiver.read_into(buffer, 3, 4) == 4
        assert buffer == b".abcdef"
        assert receiver.read_into(buffer, 0, 1) == -1
        assert not receiver.buffered


def test_each_step_of_a_send_begins_where_the_one_before_ended(pair: Pair) -> None:
    """A list of many pieces is sent in many steps: the work would grow with its square if each looked at all of them."""
    channel = KafkaChannel(1, pair[0], 100)
    assert channel.finish_connect()
    assert channel.prepare()
    pieces: list[Any] = [bytes([n % 251]) * (n % 90) for n in range(20_000)]
    whole = b"".join(pieces)
    send = NetworkSend(1, pieces)
    channel.set_send(send)
    got = bytearray()
    buffer = bytearray(1 << 16)
    steps = 0
    while len(got) < len(whole):
        if not send.completed:
            channel.write()
            steps += 1
            pieces[: send.first] = ["no bytes"] * send.first
        while (count := pair[1].read_into(buffer, 0, len(buffer))) > 0:
            got += buffer[:count]
    assert got == whole
    assert send.completed
    assert 2 < steps < len(pieces) / 256  # several calls of 256 pieces make a step


def test_small_pieces_share_records(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ours, theirs = tls_pair(contexts)
    shake((ours, theirs))
    while theirs.read_into(bytearray(10), 0, 10) > 0:  # session tickets
        pass
    assert ours.write([bytes([n]) * 20 for n in range(100)] + [b"x" * 3_000], 0) == 5_000
    assert len(theirs.sock.recv(1 << 16, socket.MSG_PEEK)) < 5_000 + 2 * 40
    assert read_exactly(theirs, 5_000) == b"".join(bytes([n]) * 20 for n in range(100)) + b"x" * 3_000
    ours.close()
    theirs.close()


def test_a_send_is_complete_when_its_ciphertext_has_gone(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ours, theirs = tls_pair(contexts)
    shake((ours, theirs))
    channel = KafkaChannel(1, ours, 100)
    assert channel.finish_connect()
    assert channel.prepare()
    assert not ours.pending_writes
    data = bytes(range(256)) * 800
    send = NetworkSend(1, [data])
    channel.set_send(send)
    assert channel.write() is None
    assert (send.written_bytes, send.completed) == (len(data), False)  # all of it encrypted, and more than the socket takes
    assert ours.pending_writes
    received = bytearray()
    buffer = bytearray(65536)
    while not send.completed:
        before = len(received)
        while (count := theirs.read_into(buffer, 0, len(buffer))) > 0:
            received += buffer[:count]
        assert len(received) > before
        assert ours.pending_writes
        channel.write()
    assert not ours.pending_writes
    assert received + read_exactly(theirs, len(data) - len(received)) == data
    ours.close()
    theirs.close()


def test_a_full_peer_takes_part_and_then_nothing(pair: Pair) -> None:
    data = bytes(range(256)) * 8192  # 2 MiB
    buffers = [data[:1000], memoryview(data)[1000:]]
    written = 0
    while (count := pair[0].write(buffers, written)) > 0:
        written += count
    assert 0 < written < len(data)
    received = bytearray()
    buffer = bytearray(65536)
    while len(received) < len(data):
        if written < len(data):
            count = pair[0].write(buffers, written)
            written += max(0, count)
        else:
            pair[0].flush()
        while (count := pair[1].read_into(buffer, 0, len(buffer))) > 0:
            received += buffer[:count]
        assert count == -1
    assert received == data
    assert pair[0].flush()
    assert not pair[0].pending_writes


def test_slices_of_files_go_out_in_pieces(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    content = bytes(range(256)) * 4096  # 1 MiB
    path.write_bytes(content)
    file = SharedFile(os.open(path, os.O_RDONLY))
    buffers = [b"head", FileSlice(file, 3, 900_000), b"", FileSlice(file, 0, 0), memoryview(b"between"), FileSlice(file, 77, 100_000)]
    file.close()
    path.unlink()
    data = b"head" + content[3:900_003] + b"between" + content[77:100_077]
    buffer = bytearray(65536)
    received, written = bytearray(), 0
    while len(received) < len(data):
        if written < len(data):
            written += max(0, pair[0].write(buffers, written))
        else:
            pair[0].flush()
        step = 1 if len(received) < 3_000 else len(buffer)
        count = pair[1].read_into(buffer, 0, step)
        assert count != 0
        received += buffer[: max(count, 0)]
    assert received == data
    assert not pair[0].pending_writes


def test_a_file_cut_under_a_slice_breaks_the_write(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 5000)
    part = FileSlice(SharedFile(os.open(path, os.O_RDONLY)), 0, 5000)
    os.truncate(path, 2000)

    def write_to_the_end() -> None:
        written = 0
        while written < 5004:
            written += max(0, pair[0].write([b"head", part], written))

    with pytest.raises(KafkaStorage, match="ends at 2000"):
        write_to_the_end()


def test_the_end_of_the_stream_comes_after_the_data(pair: Pair) -> None:
    pair[0].write([b"bye"], 0)
    pair[0].close()
    pair[0].close()  # twice is fine
    assert read_exactly(pair[1], 3) == b"bye"
    wait_readable(pair[1])
    assert pair[1].read_into(bytearray(10), 0, 10) == 0


def test_writing_to_a_closed_peer_raises_oserror(pair: Pair) -> None:
    pair[1].close()

    def write_until_it_breaks() -> None:
        for _ in range(100):
            pair[0].write([b"x" * 100], 0)

    with pytest.raises(OSError):
        write_until_it_breaks()


def test_tls_refuses_the_wrong_name(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = tls_pair(contexts, name="other.test")
    with pytest.raises(AuthenticationFailedError, match=r"other\.test"):
        shake(pair)
    for end in pair:
        end.close()


def test_tls_truncation_is_an_end_of_stream_and_garbage_breaks_it(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    for garbage in (b"", b"\x17\x03\x03\x00\x20" + b"?" * 32):
        left, right = sockets()
        pair = TlsTransport(left, contexts[0], server_hostname="broker.test"), TlsTransport(right, contexts[1], server_side=True)
        shake(pair)
        if garbage:
            left.send(garbage)
            with pytest.raises(ConnectionResetError, match="broken"):
                pair[1].read_into(bytearray(10), 0, 10)
        else:
            left.shutdown(socket.SHUT_WR)  # no closing alert
            assert pair[1].read_into(bytearray(10), 0, 10) == 0
        for end in pair:
            end.close()


@pytest.mark.parametrize("reads", [4096, 4], ids=["closes", "resets"])
def test_a_peer_that_ends_when_tls_begins_may_be_without_it(contexts: tuple[ssl.SSLContext, ssl.SSLContext], reads: int) -> None:
    """Kafka reads four bytes, takes them for a size, and closes with the rest unread: a reset."""
    left, right = sockets()
    client = TlsTransport(left, contexts[0], server_hostname="broker.test")
    assert not client.handshake()
    right.recv(reads)
    right.close()
    with pytest.raises(ConnectionResetError, match="that is security_protocol=PLAINTEXT or SASL_PLAINTEXT"):
        client.handshake()
    client.close()


def test_memory_pipe_can_be_scripted() -> None:
    left, right = memory_pair()
    left.max_write_bytes = 3
    right.max_read_bytes = 2
    assert left.write([b"abcdef"], 0) == 3
    buffer = bytearray(6)
    assert right.read_into(buffer, 0, 6) == 2
    left.max_write_bytes = 0
    assert left.write([b"abcdef"], 3) == -1
    changes: list[str] = []
    right.on_change = lambda: changes.append("right")
    left.max_write_bytes = 10
    left.write([b"x"], 0)
    assert changes == ["right"]
