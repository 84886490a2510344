"""FileSlice: bytes that go from a file to a socket, a TLS stream or a pipe, all of them or none."""

from __future__ import annotations

import errno
import itertools
import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkacore._codec import FileSlice, SharedFile, buffer_pool_stats, recv_into, send_gather
from kafkacore.errors import KafkaStorage, UsageError
from kafkacore.protocol import FetchResponse, decode_response_header, encode_response
from kafkacore.protocol.data import FetchableTopicResponse, PartitionData
from tests.kit.reached import Reached

CONTENT = random.Random(7).randbytes(3_000_000)
STEP_BYTES = 1024 * 1024


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("slices") / "content"
    made.write_bytes(CONTENT)
    return made


@pytest.fixture
def file(path: Path) -> Iterator[SharedFile]:
    opened = SharedFile(os.open(path, os.O_RDONLY))
    yield opened
    opened.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    with a, b:
        yield a, b


def receive(sock: socket.socket, most: int = 1 << 30) -> bytes:
    out = bytearray()
    buffer = bytearray(65_536)
    while len(out) < most and (n := recv_into(sock.fileno(), buffer, 0, min(len(buffer), most - len(out)))) > 0:
        out += buffer[:n]
    return bytes(out)


def gathered(buffers: list[object]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in buffers)  # type: ignore[call-overload]


# ---- reading -------------------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_exactly_its_part(file: SharedFile, position: int, nbytes: int, data: st.DataObject) -> None:
    part = FileSlice(file, position, nbytes)
    whole = CONTENT[position : position + nbytes]
    assert (part.position, part.nbytes, len(part)) == (position, nbytes, nbytes)
    assert part.read() == whole
    start = data.draw(st.integers(0, nbytes))
    length = data.draw(st.integers(0, nbytes - start))
    assert part.read(start) == whole[start:]
    assert part.read(start, length) == whole[start : start + length]


@pytest.mark.parametrize(("start", "nbytes"), [(-1, 2), (0, 11), (11, 0), (10, 1), (2**62, 2**62), (5, 2**63 - 1)])
def test_a_part_outside_the_slice_is_refused(file: SharedFile, start: int, nbytes: int) -> None:
    with pytest.raises(ValueError, match="do not lie in a slice"):
        FileSlice(file, 3, 10).read(start, nbytes)


@pytest.mark.parametrize(("position", "nbytes"), [(-1, 5), (0, -1), (2**63 - 1, 1), (1, 2**63 - 1)])
def test_impossible_slices_are_refused(file: SharedFile, position: int, nbytes: int) -> None:
    with pytest.raises(ValueError, match="cannot be part of a file"):
        FileSlice(file, position, nbytes)


def test_an_owner_must_have_a_descriptor() -> None:
    with pytest.raises(TypeError, match="fileno"):
        FileSlice(b"bytes", 0, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        FileSlice(None, 0, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a file descriptor"):
        SharedFile(-1)


def test_a_slice_is_no_buffer(file: SharedFile) -> None:
    with pytest.raises(TypeError):
        memoryview(FileSlice(file, 0, 5))  # type: ignore[arg-type]


# ---- life ----------------------------------------------------------------------------------------------------------------------------


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as error:
        assert error.errno == errno.EBADF
        return False
    return True


def test_a_closed_and_deleted_file_is_readable_while_a_slice_lives(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_RDONLY)
    file = SharedFile(fd)
    first, second = FileSlice(file, 2, 3), FileSlice(file, 7, 3)
    file.close()
    file.close()
    assert file.closed
    path.unlink()
    del file
    assert first.read() == b"234"
    del first
    assert second.read() == b"789"
    assert is_open(fd)
    del second
    assert not is_open(fd)


def test_a_closed_file_gives_no_new_slices(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    file = SharedFile(fd)
    assert file.fileno() == fd
    file.close()
    assert not is_open(fd)
    for use in (file.fileno, lambda: FileSlice(file, 0, 1)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_an_owner_of_another_kind_is_asked_each_time(path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    with open(path, "rb") as opened:
        part = FileSlice(opened, 10, 20)
        assert part.owner is opened
        assert part.read() == CONTENT[10:30]
    with pytest.raises(KafkaStorage, match="not open"):
        part.read()
    with pytest.raises(KafkaStorage, match="not open"):
        send_gather(pair[0].fileno(), [part])

    class Gone:
        def fileno(self) -> int:
            return -1

    with pytest.raises(KafkaStorage, match="not open"):
        FileSlice(Gone(), 0, 1).read()


# ---- sending -------------------------------------------------------------------------------------------------------------------------


mixed = Reached("begins inside a slice", "begins at a slice", "an empty slice", "two slices side by side", "all is sent before")


@mixed.by
@given(st.lists(st.one_of(st.binary(max_size=9), st.tuples(st.integers(0, 1000), st.integers(0, 9))), max_size=12), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mixture_from_any_byte(file: SharedFile, parts: list[bytes | tuple[int, int]], data: st.DataObject) -> None:
    buffers: list[object] = [
        FileSlice(file, *part) if isinstance(part, tuple) else data.draw(st.sampled_from([bytes, bytearray, memoryview]))(part)
        for part in parts
    ]
    whole = gathered(buffers)
    ends = list(itertools.accumulate(len(part) for part in buffers))  # type: ignore[arg-type]
    skip = data.draw(st.sampled_from([0, *ends, len(whole)]) | st.integers(0, len(whole)))
    slices = [(end - len(part), end) for part, end in zip(buffers, ends, strict=True) if isinstance(part, FileSlice)]
    mixed("begins inside a slice", any(begin < skip < end for begin, end in slices))
    mixed("begins at a slice", any(begin == skip < end for begin, end in slices))
    mixed("an empty slice", any(begin == end for begin, end in slices))
    mixed("two slices side by side", any(isinstance(x, FileSlice) and isinstance(y, FileSlice) for x, y in itertools.pairwise(buffers)))
    mixed("all is sent before", whole and skip == len(whole))
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    with a, b:
        sent = skip
        while sent < len(whole):
            moved = send_gather(a.fileno(), buffers, sent)
            assert moved > 0
            sent += moved
        assert send_gather(a.fileno(), buffers, sent) == 0
        assert receive(b) == whole[skip:]
        with pytest.raises(ValueError, match="is beyond"):
            send_gather(a.fileno(), buffers, len(whole) + 1)


def test_partial_progress_to_a_slow_reader(file: SharedFile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        b = socket.create_connection(listener.getsockname())
        a, _ = listener.accept()
    with a, b:
        a.setblocking(False)
        b.setblocking(False)
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
        buffers = [b"head", FileSlice(file, 5, 700_001), memoryview(b"between"), FileSlice(file, 700_006, 90_000), b"tail"]
        whole = gathered(buffers)
        sent, blocked, got = 0, 0, bytearray()
        while len(got) < len(whole):
            moved = send_gather(a.fileno(), buffers, sent) if sent < len(whole) else 0
            assert moved != 0 or sent == len(whole)
            if moved < 0:
                blocked += 1
            else:
                sent += moved
            got += receive(b, most=1 if len(got) < 2_000 else 10_007)
        assert got == whole
        assert blocked


def test_one_step_is_bounded(file: SharedFile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        b = socket.create_connection(listener.getsockname())
        a, _ = listener.accept()
    with a, b:
        a.setblocking(False)
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 20)
        b.setblocking(False)
        slices = [FileSlice(file, 0, 2_000_000), FileSlice(file, 0, 700_000)]
        sent, got = 0, bytearray()
        while len(got) < 2_700_000:
            moved = send_gather(a.fileno(), slices, sent)
            assert moved <= STEP_BYTES
            sent += max(moved, 0)
            got += receive(b)
        assert got == CONTENT[:2_000_000] + CONTENT[:700_000]


def test_a_blocking_socket_is_refused_before_anything_is_sent(file: SharedFile, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].setblocking(True)
    with pytest.raises(ValueError, match="non-blocking"):
        send_gather(pair[0].fileno(), [FileSlice(file, 0, 10)])
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)


def test_a_peer_that_is_gone_is_an_oserror(file: SharedFile, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        send_gather(pair[0].fileno(), [FileSlice(file, 0, 10)])


def taken(action: Callable[[], object]) -> int:
    """How many pooled buffers an action takes: copying a slice needs one for its bytes, sendfile none."""
    before = buffer_pool_stats()
    action()
    after = buffer_pool_stats()
    return after["hits"] + after["misses"] - before["hits"] - before["misses"]


@pytest.mark.parametrize("nbytes", [1, 100, 70_000])
def test_a_file_goes_to_a_socket_without_a_copy(file: SharedFile, pair: tuple[socket.socket, socket.socket], nbytes: int) -> None:
    a, b = pair
    part = FileSlice(file, 11, nbytes)
    assert taken(lambda: send_gather(a.fileno(), [b"<", part, b">"])) == 0
    assert receive(b).startswith(b"<" + CONTENT[11 : 11 + nbytes][:64])
    assert taken(part.read) == 0  # a read by Python makes bytes; it takes no pooled buffer either
    fd = os.open("/proc/self/cmdline", os.O_RDONLY)
    copied = FileSlice(SharedFile(fd), 0, 6)
    assert taken(lambda: send_gather(a.fileno(), [copied])) == 1  # sendfile does not know this file: the count sees a copy


def test_what_sendfile_does_not_know_goes_through_memory(pair: tuple[socket.socket, socket.socket]) -> None:
    """Files of /proc have no size and cannot be spliced; to sendfile that is EINVAL, to a reader just a file."""
    fd = os.open("/proc/self/cmdline", os.O_RDONLY)
    file = SharedFile(fd)
    known = os.pread(fd, 6, 0)
    sent = send_gather(pair[0].fileno(), [b"<", FileSlice(file, 0, len(known)), b">"])
    assert sent == len(known) + 2
    assert receive(pair[1]) == b"<" + known + b">"


# ---- files that change ---------------------------------------------------------------------------------------------------------------


def cut_file(tmp_path: Path, nbytes: int, left: int) -> FileSlice:
    path = tmp_path / "cut"
    path.write_bytes(CONTENT[:nbytes])
    part = FileSlice(SharedFile(os.open(path, os.O_RDONLY)), 10, nbytes - 10)
    os.truncate(path, left)
    return part


def test_a_file_cut_under_a_slice_is_an_error_and_nothing_else_is_sent(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    part = cut_file(tmp_path, 5_000, 3_000)
    with pytest.raises(KafkaStorage, match="ends at 3000"):
        part.read()
    assert part.read(0, 2_990) == CONTENT[10:3_000]
    sent = send_gather(pair[0].fileno(), [b"head", part, b"tail"])
    assert sent == 4 + 2_990
    with pytest.raises(KafkaStorage, match="ends at 3000"):
        send_gather(pair[0].fileno(), [b"head", part, b"tail"], sent)
    assert receive(pair[1]) == b"head" + CONTENT[10:3_000]


def test_a_descriptor_that_cannot_be_read_is_an_error(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    writer = SharedFile(os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT))
    with pytest.raises(KafkaStorage, match="cannot be read"):
        FileSlice(writer, 0, 5).read()
    with pytest.raises(OSError):
        send_gather(pair[0].fileno(), [FileSlice(writer, 0, 5)])


# ---- in messages ---------------------------------------------------------------------------------------------------------------------


def fetched(*records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, high_watermark=9, records=each) for i, each in enumerate(records)]  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12])
def test_a_response_names_the_bytes_of_its_slices(file: SharedFile, version: int) -> None:
    part, other = FileSlice(file, 100, 300), FileSlice(file, 1_000, 0)
    gather = encode_response(fetched(part, [b"ab", part, other], other), version, 5)
    assert [piece for piece in gather if isinstance(piece, FileSlice)] == [part, part, other]
    frame = gathered(gather)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame == gathered(encode_response(fetched(part.read(), [b"ab", part.read()], b""), version, 5))
    _, start = decode_response_header(1, version, frame[4:])
    decoded = FetchResponse.decode(version, frame[4:], start)
    assert [bytes(each.records or b"") for each in decoded.responses[0].partitions] == [part.read(), b"ab" + part.read(), b""]  # type: ignore[arg-type]


def test_slices_beyond_a_frame_are_refused(file: SharedFile) -> None:
    with pytest.raises(UsageError, match="a frame holds"):
        encode_response(fetched([FileSlice(file, 0, 1 << 30), FileSlice(file, 0, 1 << 30)]), 4, 1)


def test_only_records_may_lie_in_a_file(file: SharedFile) -> None:
    from kafkacore.protocol import SaslAuthenticateRequest, encode_request

    with pytest.raises(UsageError, match="bytes-like"):
        encode_request(SaslAuthenticateRequest(auth_bytes=FileSlice(file, 0, 4)), 1, 1, "c")  # type: ignore[arg-type]
