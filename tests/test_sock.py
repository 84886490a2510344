"""send_gather and recv_into over a socket pair: what the kernel takes, refuses and ends."""

import errno
import itertools
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore._codec import PooledBuffer, recv_into, send_gather
from tests.kit.reached import Reached


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    with a, b:
        yield a, b


def arrived(sock: socket.socket) -> bytes:
    out = bytearray()
    buffer = PooledBuffer(65_536)
    while (n := recv_into(sock.fileno(), buffer, 0, 65_536)) > 0:
        out += memoryview(buffer)[:n]
    return bytes(out)


skipped = Reached("inside a buffer", "to the beginning of one", "everything", "an empty buffer")


@skipped.by
@given(st.lists(st.just(b"") | st.binary(min_size=2, max_size=9), max_size=8), st.data())
def test_any_skip(buffers: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(buffers)
    begins = list(itertools.accumulate(map(len, buffers)))
    skip = data.draw(st.integers(0, len(whole)) | st.sampled_from([0, *begins, len(whole)]))
    skipped("inside a buffer", skip < len(whole) and skip not in (0, *begins))
    skipped("to the beginning of one", 0 < skip < len(whole) and skip in begins)
    skipped("everything", whole and skip == len(whole))
    skipped("an empty buffer", b"" in buffers)
    kinds = [data.draw(st.sampled_from([bytes, bytearray, memoryview]))(x) for x in buffers]
    a, b = socket.socketpair()
    with a, b:
        assert send_gather(a.fileno(), kinds, skip) == len(whole) - skip
        assert arrived(b) == whole[skip:]


def test_partial_writes_until_all_is_there(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    buffers = [bytes([i]) * 10_007 for i in range(40)]
    whole = b"".join(buffers)
    sent, received, blocked, calls = 0, b"", 0, 0
    while sent < len(whole):
        n = send_gather(a.fileno(), buffers, sent)
        calls += 1
        if n == -1:
            blocked += 1
            received += arrived(b)
        else:
            assert 0 < n <= len(whole) - sent
            sent += n
    assert received + arrived(b) == whole
    assert blocked > 0
    assert calls > 2


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_more_buffers_than_one_call_takes(pair: tuple[socket.socket, socket.socket], kind: type) -> None:
    a, b = pair
    buffers = [kind(b"%04d" % i) for i in range(3_000)]  # IOV_MAX is 1,024 on Linux
    sent, received = 0, b""
    while sent < 12_000:
        n = send_gather(a.fileno(), buffers, sent)
        assert n == min(256 * 4, 12_000 - sent)
        sent += n
        received += arrived(b)
    assert received == b"".join(buffers)


def test_buffers_before_the_first_are_not_looked_at(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    assert send_gather(a.fileno(), ["no bytes", b"ab", b"cd"], 1, 1) == 3
    assert arrived(b) == b"bcd"
    assert send_gather(a.fileno(), [b"ab"], 0, 1) == 0
    for first in (-1, 2):
        with pytest.raises(ValueError, match=f"first {first} is not in a list of 1 buffers"):
            send_gather(a.fileno(), [b"ab"], 0, first)


def test_views_are_released(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    first, second = bytearray(b"ab"), bytearray(b"cd")
    assert send_gather(a.fileno(), [first, second], 2) == 2
    with pytest.raises(TypeError):
        send_gather(a.fileno(), [first, "text"])  # type: ignore[list-item]
    first.clear()  # BufferError if a view were still held
    second.clear()
    buffer = bytearray(10)
    assert recv_into(b.fileno(), buffer, 0, 10) == 2
    buffer.clear()


def test_receives_where_told(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    a.send(b"abcdef")
    buffer = bytearray(b"........")
    assert recv_into(b.fileno(), buffer, 2, 4) == 4
    assert buffer == b"..abcd.."
    assert recv_into(b.fileno(), memoryview(buffer), 0, 8) == 2
    assert buffer == b"efabcd.."
    assert recv_into(b.fileno(), buffer, 0, 8) == -1
    a.close()
    assert recv_into(b.fileno(), buffer, 0, 8) == 0


@pytest.mark.parametrize(("start", "nbytes"), [(-1, 2), (0, 9), (8, 1), (9, 1), (0, 0), (4, -1), (2**62, 2**62), (1, 2**63 - 1)])
def test_ranges_outside_the_buffer(pair: tuple[socket.socket, socket.socket], start: int, nbytes: int) -> None:
    for buffer in (bytearray(8), PooledBuffer(8)):
        with pytest.raises(ValueError, match="do not lie in a buffer of 8 bytes"):
            recv_into(pair[1].fileno(), buffer, start, nbytes)


def test_read_only_target(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(BufferError):
        recv_into(pair[1].fileno(), b"12345678", 0, 8)


def test_broken_pipe_is_an_error_and_no_signal(pair: tuple[socket.socket, socket.socket]) -> None:
    a, b = pair
    b.close()
    with pytest.raises(BrokenPipeError):
        send_gather(a.fileno(), [b"x"])


def test_bad_descriptors() -> None:
    with pytest.raises(OSError) as sending:
        send_gather(-1, [b"x"])
    with pytest.raises(OSError) as receiving:
        recv_into(-1, bytearray(1), 0, 1)
    assert sending.value.errno == receiving.value.errno == errno.EBADF


def test_skip_outside_the_list(pair: tuple[socket.socket, socket.socket]) -> None:
    a, _ = pair
    with pytest.raises(ValueError, match="negative"):
        send_gather(a.fileno(), [b"x"], -1)
    with pytest.raises(ValueError, match="beyond the 3 bytes"):
        send_gather(a.fileno(), [b"x", b"yz"], 4)
