"""FrameReader: partial sizes and bodies, limits, growth."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._codec import buffer_pool_trim
from kafkacore.errors import CorruptDataError
from kafkacore.net.frames import FIRST_STEP_BYTES, STAGING_BYTES, FrameReader
from tests.kit.reached import Reached
from tests.kit.rows import each_row
from tests.kit.wire import sized


def feed(reader: FrameReader, data: bytes, step: int = 1 << 30) -> list[bytes]:
    """Feeds `data`, at most `step` bytes at a time, and collects the frames as a channel would."""
    frames = []
    at = 0
    while at < len(data):
        buffer, start, room = reader.target()
        assert room > 0
        part = data[at : at + min(step, room)]
        memoryview(buffer)[start : start + len(part)] = part
        reader.received(len(part))
        at += len(part)
        while (payload := reader.next_frame()) is not None:
            frames.append(bytes(payload))
    return frames


SIZES = [0, 1, 3, 4, 5, 1000, STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES - 3, 70_000]
cuts = Reached("within a size", "several frames at once", "a frame larger than the staging behind another", "within a small frame")


@partial(cuts.by, rounds=4)
@settings(max_examples=25)
@given(st.lists(st.sampled_from(SIZES), max_size=6), st.sampled_from([1, 2, 3, 7, 1_000, STAGING_BYTES, 100_000]))
def test_any_cut_gives_the_same_frames(sizes: list[int], step: int) -> None:
    sizes = [size if step > 100 else min(size, 1_000) for size in sizes]  # a step for each byte takes its time
    cuts("within a size", sizes and step < 4)
    cuts("several frames at once", any(left + right + 8 <= step for left, right in itertools.pairwise(sizes)))
    cuts("a frame larger than the staging behind another", any(size + 4 > STAGING_BYTES for size in sizes[1:]))
    cuts("within a small frame", any(step < size + 4 <= STAGING_BYTES for size in sizes))
    bodies = [bytes([index & 255]) * size for index, size in enumerate(sizes)]
    reader = FrameReader()
    assert feed(reader, b"".join(map(sized, bodies)), step) == bodies
    assert not reader.partial


def test_a_second_frame_read_along_is_known_without_more_bytes() -> None:
    reader = FrameReader()
    buffer, start, _ = reader.target()
    data = sized(b"one") + sized(b"two") + b"\0\0"
    memoryview(buffer)[start : start + len(data)] = data
    reader.received(len(data))
    assert bytes(reader.next_frame() or b"") == b"one"
    assert reader.has_frame()
    assert bytes(reader.next_frame() or b"") == b"two"
    assert not reader.has_frame()
    assert reader.partial
    assert feed(reader, b"\0\1x") == [b"x"]


@each_row(("size", "says"), [(-1, "negative"), (-(2**31), "negative"), (101, "above the limit of 100"), (2**31 - 1, "above the limit")])
def test_a_bad_size_is_refused_before_anything_is_allocated(size: int, says: str) -> None:
    reader = FrameReader(100, "10.0.0.1:9092")
    with pytest.raises(CorruptDataError, match=says) as caught:
        feed(reader, size.to_bytes(4, "big", signed=True), step=1)
    assert "10.0.0.1:9092" in str(caught.value)
    assert reader.has_frame()  # it stays an error, not a wait


@each_row(
    ("begins", "said"),
    [
        # record headers of RFC 8446, section 5.1: of a ClientHello, of an alert
        (bytes.fromhex("16030102000100"), "above the limit of 1000 bytes; the peer speaks TLS, and this side of the connection does not"),
        (bytes.fromhex("15030300020250"), "; the peer speaks TLS"),
        (b"GET / HTTP/1.1", "; the peer speaks HTTP"),
        (b"POST / HTTP/1.1", "; the peer speaks HTTP"),
        (b"HTTP/1.1 400 Bad Request", "; the peer speaks HTTP"),
        (b"\x17\x03\0\0", "; the stream is not Kafka's protocol or is out of step"),
        (b"\xff\xff\xff\xff", "is negative; the stream is not Kafka's protocol"),
    ],
)
def test_a_frame_that_is_another_protocol_is_named(begins: bytes, said: str) -> None:
    with pytest.raises(CorruptDataError) as caught:
        feed(FrameReader(1000, "host:1"), begins)
    assert said in str(caught.value) and "host:1" in str(caught.value)


def test_the_limit_itself_is_allowed() -> None:
    assert feed(FrameReader(100), sized(b"x" * 100)) == [b"x" * 100]


def test_a_large_frame_is_given_memory_in_steps() -> None:
    """The size field alone commits a bounded buffer; it doubles as bytes arrive."""
    buffer_pool_trim()
    reader = FrameReader()
    size = 3 * FIRST_STEP_BYTES
    feed(reader, size.to_bytes(4, "big"))
    buffer, _, room = reader.target()
    assert buffer.nbytes == FIRST_STEP_BYTES == room
    chunk = bytes(range(256)) * 4096
    sent = 0
    seen = set()
    frames: list[memoryview] = []
    while sent < size:
        buffer, start, room = reader.target()
        seen.add(buffer.nbytes)
        part = memoryview(chunk)[: min(room, len(chunk))]
        memoryview(buffer)[start : start + len(part)] = part
        reader.received(len(part))
        sent += len(part)
        payload = reader.next_frame()
        if payload is not None:
            frames.append(payload)
    assert seen == {FIRST_STEP_BYTES, 2 * FIRST_STEP_BYTES, size}
    assert len(frames) == 1
    assert bytes(frames[0]) == chunk * (size // len(chunk))


def begin(size: int, first_step: int) -> FrameReader:
    """A reader that knows the size of a large frame."""
    reader = FrameReader(first_step_bytes=first_step)
    feed(reader, size.to_bytes(4, "big"))
    return reader


def fill_buffer(reader: FrameReader) -> None:
    """Fills the buffer that the reader has."""
    buffer, start, room = reader.target()
    memoryview(buffer)[start : start + room] = (bytes(range(251)) * (room // 251 + 1))[:room]
    reader.received(room)


def test_a_large_frame_grows_in_its_buffer_unless_somebody_looks_at_it() -> None:
    """No second buffer, so no copy of ours: the system moves pages. An open view must not point to nowhere."""
    buffer_pool_trim()
    reader = begin(200_000, 32_768)
    first = reader.target()[0]
    fill_buffer(reader)
    head = bytes(first)
    assert reader.target()[0] is first
    assert first.nbytes == 65_536
    assert bytes(first)[:32_768] == head
    view = memoryview(first)
    fill_buffer(reader)
    assert reader.target()[0] is not first
    assert bytes(view)[:32_768] == head
    fill_buffer(reader)
    fill_buffer(reader)
    payload = reader.next_frame()
    assert payload is not None
    assert len(payload) == 200_000
    assert bytes(payload)[:65_536] == bytes(view)


def test_payloads_are_writable_and_outlive_the_reader() -> None:
    reader = FrameReader()
    buffer, start, _ = reader.target()
    memoryview(buffer)[start : start + 7] = sized(b"abc")
    reader.received(7)
    payload = reader.next_frame()
    assert payload is not None
    feed(reader, sized(b"zzz"))
    del reader
    payload[0] = ord("X")  # brokers stamp offsets into the batches they received
    assert bytes(payload) == b"Xbc"
