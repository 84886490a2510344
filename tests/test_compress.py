"""Compression: every codec against its own and other libraries' writers, broken bytes, and declared sizes that lie."""

import contextlib
import gzip
import random
import struct
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from kafkacore import compress as c
from kafkacore.errors import CorruptDataError, DecompressedTooLarge
from tests.kit.reached import Reached
from tests.kit.rows import each_row

CODECS = [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD]
SAMPLES = [b"", b"a", b"Kafka" * 40, bytes(range(256)) * 500, b"\x00" * 1_000_000]
CAP = 1 << 20


@each_row("codec", range(5))
@each_row("sample", SAMPLES, ids=len)
def test_round_trip(codec, sample):
    for data in (sample, bytearray(sample), memoryview(sample)):
        assert c.decompress(codec, c.compress(codec, data), CAP) == sample


@each_row(
    ("codec", "level"),
    [(c.GZIP, n) for n in (-1, *range(1, 10))]
    + [(c.LZ4, n) for n in (1, 3, 9, 12, 17)]
    + [(c.ZSTD, n) for n in (-131072, -5, 1, 3, 19, 22)],
)
def test_levels(codec, level):
    data = b"level" * 1000
    assert c.decompress(codec, c.compress(codec, data, level), CAP) == data


@each_row(
    ("codec", "level"),
    [*((c.GZIP, n) for n in (0, 10, 1.5)), *((c.LZ4, n) for n in (-1, 0, 18)), (c.ZSTD, 23), (c.ZSTD, -131073), (c.NONE, 1), (c.SNAPPY, 1)],
)
def test_levels_out_of_range(codec, level):
    with pytest.raises(ValueError, match="level"):
        c.compress(codec, b"x", level)


def test_default_levels(monkeypatch):
    words = random.Random(1)
    data = b" ".join(words.choice([b"kafka", b"topic", b"lag", b"leader", b"epoch", b"record"]) for _ in range(4000))
    default = lz4.frame.compress(data, compression_level=0, block_linked=False, store_size=False)
    assert c.compress(c.LZ4, data) == default != c.compress(c.LZ4, data, 9)
    if c._isal is not None:
        assert c.compress(c.GZIP, data, -1) == c.compress(c.GZIP, data, 2) != c.compress(c.GZIP, data, 3)
        packer = c._isal.compressobj(3, zlib.DEFLATED, 31)
        assert c.compress(c.GZIP, data, 3) == packer.compress(data) + packer.flush()
    for number in range(4, 10):
        packer = zlib.compressobj(number, zlib.DEFLATED, 31)
        assert c.compress(c.GZIP, data, number) == packer.compress(data) + packer.flush()
    monkeypatch.setattr(c, "_isal", None)
    assert c.compress(c.GZIP, data) == c.compress(c.GZIP, data, 6) != c.compress(c.GZIP, data, 5)
    made = []
    monkeypatch.setattr(zstandard, "ZstdCompressor", lambda level: made.append(level) or plain(level))
    monkeypatch.setattr(c._contexts, "zstd_compressors", {})
    assert [c.compress(c.ZSTD, data, level) for level in (None, 3, 7, 7)] == [plain(level).compress(data) for level in (3, 3, 7, 7)]
    assert made == [3, 7]


plain = zstandard.ZstdCompressor


def test_codec_id():
    assert [c.codec_id(name) for name in c.NAMES] == [0, 1, 2, 3, 4] == [c.codec_id(n) for n in range(5)]
    for bad in ("brotli", 5, -1, True, 1.5):
        with pytest.raises(ValueError, match="unknown compression"):
            c.codec_id(bad)
    for bad in (5, -1):
        with pytest.raises(CorruptDataError, match=f"unknown compression codec {bad}"):
            c.decompress(bad, b"x", 10)
        with pytest.raises(ValueError, match=f"unknown compression codec {bad}"):
            c.compress(bad, b"x")


@each_row("sample", SAMPLES[1:], ids=len)
@each_row("peer", [aiokafka_codec, kafka_codec], ids=["aiokafka", "kafka-python"])
@each_row(("codec", "name"), [(c.GZIP, "gzip"), (c.SNAPPY, "snappy"), (c.LZ4, "lz4"), (c.ZSTD, "zstd")])
def test_other_clients_read_ours_and_we_theirs(peer, codec, name, sample):
    assert bytes(getattr(peer, f"{name}_decode")(c.compress(codec, sample))) == sample
    assert c.decompress(codec, bytes(getattr(peer, f"{name}_encode")(sample)), CAP) == sample


def test_snappy_framings():
    data = b"snappy" * 20_000
    blocks = [snappy.compress(data[i : i + 50_000]) for i in range(0, len(data), 50_000)]
    for order in ("<", ">"):
        framed = b"\x82SNAPPY\x00" + struct.pack(order + "ii", 1, 1)
        framed += b"".join(struct.pack(order + "i", len(block)) + block for block in blocks)
        assert c.decompress(c.SNAPPY, framed, len(data)) == data
    assert c.decompress(c.SNAPPY, snappy.compress(data), len(data)) == data  # raw
    ours = c.compress(c.SNAPPY, data)
    assert ours[:16].hex() == "82534e41505059000000000100000001"
    assert ours[20 : 20 + int.from_bytes(ours[16:20])] == snappy.compress(data[:32_768])


def test_lz4_frame_is_what_java_reads():
    packed = c.compress(c.LZ4, b"x" * 200_000)
    info = lz4.frame.get_frame_info(packed)
    assert info["block_linked"] is False and info["content_checksum"] is False and info["content_size"] == 0


def test_lz4_kip57_header():
    right = c.compress(c.LZ4, b"KIP-57")
    broken = c.lz4_break_header(right)
    assert broken != right and kafka_codec.lz4_decode(right) == b"KIP-57"
    assert c.lz4_mend_header(broken) == right == c.lz4_mend_header(right)
    sized = lz4.frame.compress(b"KIP-57", store_size=True)
    assert c.lz4_mend_header(c.lz4_break_header(sized)) == sized
    for flags, at in ((0x60, 6), (0x61, 10), (0x68, 14), (0x69, 18)):  # a dictionary's number, the content's size
        old = c.lz4_break_header(b"\x04\x22\x4d\x18" + bytes([flags]) + bytes(range(20)))
        new = c.lz4_mend_header(old)
        assert [n for n in range(25) if old[n] != new[n]] == [at] and c.lz4_break_header(new) == old
        assert c.lz4_mend_header(new) == new
        for size, says in ((at, "header is truncated"), (6, "not an lz4 frame")):
            with pytest.raises(CorruptDataError, match=says if at > 6 else "not an lz4 frame"):
                c.lz4_mend_header(old[:size])
    with pytest.raises(CorruptDataError, match="not an lz4 frame"):
        c.lz4_break_header(b"\x05" + right[1:])
    with pytest.raises(CorruptDataError):
        c.decompress(c.LZ4, broken, 100)


def test_several_members_and_unknown_sizes():
    streamed = zstandard.ZstdCompressor().compressobj()
    unknown = streamed.compress(b"one") + streamed.flush()
    assert zstandard.frame_content_size(unknown) == -1
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert c.decompress(c.ZSTD, unknown + skippable + zstandard.compress(b"two"), 6) == b"onetwo"
    assert c.decompress(c.ZSTD, zstandard.compress(b"one") + unknown, 6) == b"oneone"
    for skippable in (b"\x50\x2a\x4d\x18\0\0\0\0", b"\x5f\x2a\x4d\x18\1\0\0\0a"):
        assert c.decompress(c.ZSTD, unknown + skippable, 3) == b"one"
        with pytest.raises(CorruptDataError):
            c.decompress(c.ZSTD, unknown + skippable[:-1], 3)
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(b"one")
    assert c.decompress(c.ZSTD, checked + unknown, 6) == b"oneone"
    assert c.decompress(c.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), 6) == b"onetwo"
    assert c.decompress(c.LZ4, lz4.frame.compress(b"one") + lz4.frame.compress(b"two"), 6) == b"onetwo"


@each_row("codec", [c.NONE, *CODECS])
def test_cap_is_exact(codec):
    packed = c.compress(codec, b"z" * 300_000)
    assert len(c.decompress(codec, packed, 300_000)) == 300_000
    with pytest.raises(DecompressedTooLarge, match=f"{c.NAMES[codec]} data .* more than 299999 bytes"):
        c.decompress(codec, packed, 299_999)


BOMB_BYTES = 64 << 20


def bombs():
    zeros = bytes(1 << 20)
    yield pytest.param(c.GZIP, gzip.compress(bytes(BOMB_BYTES), 1), id="gzip")
    block = snappy.compress(zeros)
    yield pytest.param(
        c.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + 64 * (struct.pack(">i", len(block)) + block), id="snappy"
    )
    yield pytest.param(c.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 50, id="snappy-declares-4-gib")
    yield pytest.param(c.LZ4, lz4.frame.compress(bytes(BOMB_BYTES), store_size=False), id="lz4")
    yield pytest.param(c.LZ4, lz4.frame.compress(bytes(BOMB_BYTES), store_size=True), id="lz4-sized")
    yield pytest.param(c.ZSTD, zstandard.compress(bytes(BOMB_BYTES)), id="zstd-sized")
    streamed = zstandard.ZstdCompressor().compressobj()
    yield pytest.param(c.ZSTD, streamed.compress(bytes(BOMB_BYTES)) + streamed.flush(), id="zstd")


@each_row(("codec", "bomb"), [*bombs()])
def test_bombs_cost_no_more_than_the_cap(codec, bomb):
    tracemalloc.start()
    try:
        with pytest.raises((CorruptDataError, DecompressedTooLarge)):
            c.decompress(codec, bomb, CAP)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * CAP


broken = Reached("cut", "changed and read", "changed and refused")


@broken.by
@settings(max_examples=300)
@given(codec=st.sampled_from(CODECS), data=st.data())
def test_broken_bytes_give_errors_of_ours(codec, data):
    packed = bytearray(c.compress(codec, b"0123456789" * 30))
    if is_cut := data.draw(st.booleans()):
        broken("cut")
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    else:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        c.decompress(codec, packed, 10_000)
        broken("changed and read", not is_cut)
    except (CorruptDataError, DecompressedTooLarge):
        broken("changed and refused", not is_cut)


def test_a_size_that_the_bytes_cannot_have_is_corrupt_and_not_too_large():
    with pytest.raises(CorruptDataError, match="declares 4294967295 bytes in 55"):
        c.decompress(c.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 50, 1000)
    for size, says in ((2201, "declares 2201 bytes in 100"), (2200, "broken")):
        with pytest.raises(CorruptDataError, match=says):
            c.decompress(c.SNAPPY, bytes([size & 127 | 128, size >> 7]) + bytes(98), CAP)
    with pytest.raises(CorruptDataError, match="snappy data is truncated"):
        c.decompress(c.SNAPPY, b"\xff\xff\xff\xff\xff\x01" + bytes(50), CAP)
    for block, says in (
        ("00000000", "snappy data is truncated"),
        ("ffffffff", "snappy block of -1 bytes in the 0 left"),
        ("0000000201", "snappy block of 2 bytes in the 1 left"),
        ("000000", "snappy block length is truncated"),
    ):
        with pytest.raises(CorruptDataError, match=says):
            c.decompress(c.SNAPPY, c.compress(c.SNAPPY, b"") + bytes.fromhex(block), CAP)
    zeros = snappy.compress(bytes(CAP))  # the most that a byte can make
    assert 21 * len(zeros) < CAP == len(c.decompress(c.SNAPPY, zeros, CAP))


@each_row("codec", CODECS)
def test_truncation_is_seen(codec):
    packed = c.compress(codec, b"0123456789" * 30)
    for size in range(len(packed)):
        if codec == c.SNAPPY and size == 16:  # a header and no block: nothing is missing
            continue
        with pytest.raises(CorruptDataError):
            c.decompress(codec, packed[:size], 10_000)
    assert c.decompress(codec, packed, 10_000) == b"0123456789" * 30


def test_many_small_members_cost_what_their_bytes_cost(monkeypatch):
    behind, calls = 0, []

    class Member:
        def __init__(self, inner):
            self.inner = inner

        def decompress(self, feed, room):
            calls.append((len(feed), room))
            return self.inner.decompress(feed, room)

        def __getattr__(self, name):
            nonlocal behind
            value = getattr(self.inner, name)
            if name == "unused_data":
                behind += len(value or b"")
            return value

    class Library:
        compressobj = zlib.compressobj

        def decompressobj(self, bits):
            return Member(zlib.decompressobj(bits))

    monkeypatch.setattr(c, "_isal", Library())
    monkeypatch.setattr(c._contexts, "lz4_decompressor", Member(lz4.frame.LZ4FrameDecompressor()))
    for codec in (c.GZIP, c.LZ4):
        behind = 0
        data = c.compress(codec, b"") * 20_000 if codec == c.LZ4 else gzip.compress(b"") * 10_000
        assert c.decompress(codec, data + c.compress(codec, b"end"), 100) == b"end"
        assert behind < 60 * len(data)
    for codec in (c.GZIP, c.LZ4):
        calls.clear()
        packed = c.compress(codec, b"") + c.compress(codec, random.Random(1).randbytes(4_000))
        assert len(c.decompress(codec, packed, 5_000)) == 4_000
        assert [feed for feed, _ in calls if feed] == [len(packed), 512, 1024, 2048, len(packed) - len(c.compress(codec, b"")) - 3584]
        assert calls[0][1] == 5_001
    calls.clear()
    assert len(c.decompress(c.GZIP, zlib.compress(bytes(1_000_000), 9, 31), 1_000_000)) == 1_000_000
    assert [room for _, room in calls] == [65_536, 65_536, 131_072, 262_144, 475_713]
    calls.clear()
    packed = zlib.compress(random.Random(1).randbytes(20_000), 0, 31)
    assert len(c.decompress(c.GZIP, packed, CAP)) == 20_000 and calls[0] == (len(packed), 4 * len(packed))


def test_members_of_every_size():
    parts = [bytes([n % 251]) * n for n in (0, 1, 500, 512, 513, 5000, 70_000, 0, 3)]
    parts += [random.Random(1).randbytes(n) for n in (1, 600, 3000, 70_000, 0)]
    for codec in CODECS:
        if codec != c.SNAPPY:  # it has no frames
            data = b"".join(c.compress(codec, part) for part in parts)
            assert c.decompress(codec, data, 1 << 20) == b"".join(parts)


@each_row("codec", [c.NONE, *CODECS])
def test_data_in_pieces_is_the_callers_mistake(codec):
    with pytest.raises(TypeError):
        c.decompress(codec, memoryview(bytes(100))[::2], 1000)


@each_row("codec", [*CODECS, "zstd blocks", "zstd frames to skip"])
def test_empty_members_and_blocks_count(codec):
    if codec == "zstd blocks":
        frame = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False).compress(b"")
        codec, data = c.ZSTD, frame[:-3] + b"\0\0\0" * 10_000 + b"\1\0\0"
    elif codec == "zstd frames to skip":
        codec, data = c.ZSTD, b"\x50\x2a\x4d\x18\0\0\0\0" * 10_000 + c.compress(c.ZSTD, b"")
    elif codec == c.SNAPPY:
        data = c.compress(codec, b"")[:16] + b"\0\0\0\1\0" * 10_000
    else:
        data = c.compress(codec, b"") * 10_000
    assert c.decompress(codec, data, CAP) == b""
    allowance = c.Allowance(8 << 20)
    with allowance, pytest.raises(c.AllowanceExceeded):
        c.decompress(codec, data, 128 << 20)
    assert allowance.left_bytes == 0


@each_row(("codec", "steps"), [(c.GZIP, 0), (c.SNAPPY, 4), (c.LZ4, 0), (c.ZSTD, 1)])
def test_an_allowance_says_nothing_about_the_data(codec, steps):
    data = c.compress(codec, bytes(100_000))
    allowance = c.Allowance(CAP)
    with allowance:
        for count in (1, 2, 3):
            assert len(c.decompress(codec, data, CAP)) == 100_000
            assert allowance.left_bytes == CAP - count * (100_000 + 4_096 * steps)
        with pytest.raises(DecompressedTooLarge):
            c.decompress(codec, data, 1_000)
        assert allowance.left_bytes == 0
        for most, error in ((65_536, DecompressedTooLarge), (65_537, c.AllowanceExceeded)):
            allowance.left_bytes = 65_536
            with pytest.raises(error):
                c.decompress(codec, data, most)
            assert allowance.left_bytes == 0
    assert len(c.decompress(codec, data, CAP)) == 100_000
    broken = c.Allowance(CAP)
    with broken, pytest.raises(CorruptDataError):
        c.decompress(codec, data[: len(data) // 2], CAP)
    assert broken.left_bytes == CAP // 2
    with broken, pytest.raises(c.AllowanceExceeded):
        for _ in range(20):
            with contextlib.suppress(CorruptDataError):
                c.decompress(codec, data[: len(data) // 2], CAP)


def test_what_an_allowance_counts():
    allowance = c.Allowance(65_537)
    with allowance:
        assert [c.decompress(c.NONE, b"a", 1) for _ in range(2)] == [b"a", b"a"]
        with pytest.raises(c.AllowanceExceeded):
            c.decompress(c.NONE, b"a", 1)
        assert allowance.left_bytes == 65_535
        c.compress(c.NONE, bytes(100_000))
        c.compress(c.GZIP, bytes(1_000))
        assert allowance.left_bytes == 1_535
        allowance.left_bytes = 64
        c.compress(c.LZ4, b"a")
        assert allowance.left_bytes == 0
        with pytest.raises(c.AllowanceExceeded):
            c.compress(c.LZ4, b"a")
