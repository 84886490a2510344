"""write_at: pieces of any kind, at any position of a file, with one call."""

import os

import pytest

from kafkacore._codec import PooledBuffer, write_at


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def content(fd) -> bytes:
    return os.pread(fd, 1 << 30, 0)


def test_pieces_lie_one_after_the_other_at_the_position(file):
    pooled = PooledBuffer(3)
    memoryview(pooled)[:] = b"def"
    assert write_at(file, (b"abc", pooled, bytearray(b""), memoryview(b"xghi")[1:]), 2) == 9
    assert content(file) == b"\0\0abcdefghi"
    assert write_at(file, [b"ZZ"], 4) == 2
    assert content(file) == b"\0\0abZZefghi"
    assert write_at(file, [], 4) == 0


def test_more_than_is_written_under_the_gil(file):
    data = os.urandom(1 << 20)
    assert write_at(file, [data[:10], data[10:]], 0) == len(data)
    assert content(file) == data


def test_what_is_refused(file):
    with pytest.raises(ValueError, match="8 pieces"):
        write_at(file, [b"x"] * 9, 0)
    with pytest.raises(ValueError, match="negative"):
        write_at(file, [b"x"], -1)
    with pytest.raises(TypeError):
        write_at(file, ["text"], 0)  # type: ignore[list-item]
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_at(99999, [b"x"], 0)
    assert content(file) == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_told():
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space left"):
            write_at(fd, [b"x"], 0)
    finally:
        os.close(fd)
