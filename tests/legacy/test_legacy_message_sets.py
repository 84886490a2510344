"""ByteBufferMessageSet from bytes and from messages; the golden bytes are written from the article's layout."""

from __future__ import annotations

import gzip
import struct
import zlib
from array import array

import pytest
import snappy
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kafkacore import errors
from kafkacore.legacy import (
    ByteBufferMessageSet,
    DefaultCompressionCodec,
    GZIPCompressionCodec,
    LZ4CompressionCodec,
    NoCompressionCodec,
    SnappyCompressionCodec,
    UnknownCodecError,
)
from kafkacore.protocol import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacore.records import BatchBuilder, read_batches
from tests.kit.reached import Reached
from tests.kit.rows import each_row

CODECS = [NoCompressionCodec, GZIPCompressionCodec, SnappyCompressionCodec, LZ4CompressionCodec]
parts = st.none() | st.binary(max_size=30)
lists = st.lists(st.tuples(parts, parts), max_size=12)


def message(offset, key, value, magic=0, attributes=0, timestamp_ms=0):
    """offset int64, size int32, crc int32, magic int8, attributes int8, [timestamp int64,] key and value with int32 lengths."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_golden_bytes_of_magic_0():
    one = ByteBufferMessageSet(messages=[b"m", (b"key", b"m"), (b"key", None)])
    # offset 0, size 15, crc, magic 0, attributes 0, no key, 1 byte of value
    golden = bytes.fromhex("0000000000000000 0000000f 58697619 00 00 ffffffff 00000001 6d")
    assert bytes(one.buffer)[:27] == golden
    assert bytes(one.buffer) == message(0, None, b"m") + message(1, b"key", b"m") + message(2, b"key", None)


def test_golden_bytes_of_magic_1():
    one = ByteBufferMessageSet(messages=[(b"k", b"v"), b"w"], magic=1, timestamp_ms=1_600_000_000_123, base_offset=7)
    stamped = {"magic": 1, "timestamp_ms": 1_600_000_000_123}
    assert bytes(one.buffer) == message(7, b"k", b"v", **stamped) + message(8, None, b"w", **stamped)


def test_a_compressed_set_is_one_wrapper():
    assert DefaultCompressionCodec == GZIPCompressionCodec == "gzip"
    one = ByteBufferMessageSet(messages=[b"a", b"b"], compression_codec=DefaultCompressionCodec)
    (wrapper,) = one.shallow()
    assert (wrapper.compression, wrapper.magic, wrapper.last_offset, wrapper.size_bytes) == (1, 0, 1, one.size_bytes)
    value = bytes(one.buffer)[26:]
    assert bytes(one.buffer) == message(1, None, value, attributes=1)
    assert gzip.decompress(value) == message(0, None, b"a") + message(1, None, b"b")


def test_snappy_is_framed_as_xerial_does():
    value = bytes(ByteBufferMessageSet(messages=[b"a" * 99], compression_codec="snappy").buffer)[26:]
    assert value[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", value, 16)
    assert len(value) == 20 + size and snappy.uncompress(value[20:]) == message(0, None, b"a" * 99)


@each_row("codec", ["zstd", "brotli", "", 4, -1, True, None, 1.0])
def test_an_unknown_codec_is_named(codec):
    with pytest.raises(UnknownCodecError, match="message sets know none, gzip, snappy, lz4") as unknown:
        ByteBufferMessageSet(messages=[b"m"], compression_codec=codec)
    assert isinstance(unknown.value, errors.UsageError) and repr(codec) in str(unknown.value)


@each_row(("number", "name"), list(enumerate(CODECS)))
def test_codecs_have_kafkas_numbers(number, name):
    assert ByteBufferMessageSet(messages=[b"m"], compression_codec=number).compression_codec == name


@given(messages=lists, codec=st.sampled_from(CODECS), magic=st.sampled_from([0, 1, 2]), base=st.integers(0, 2**40))
def test_what_goes_in_comes_out(messages, codec, magic, base):
    if magic == 2 and not messages:
        base = 0
    one = ByteBufferMessageSet(messages=messages, compression_codec=codec, magic=magic, base_offset=base)
    expected = [(base + n, key, value) for n, (key, value) in enumerate(messages)]
    again = ByteBufferMessageSet(bytes(one.buffer))
    assert list(one) == list(again) == expected
    assert [batch.magic for batch in again.shallow()] == [magic] * len(list(again.shallow()))
    if messages:
        assert again.valid_bytes == again.size_bytes == len(one.buffer)
        assert again.next_offset == base + len(messages)


@each_row("magic", [0, 1, 2])
def test_keys_and_values_are_text_or_whatever_has_bytes(magic):
    """More of each than the room for their heads."""
    parts = ["\N{GRINNING FACE}" * 999, b"b" * 3_996, array("i", [7] * 999), None]
    one = ByteBufferMessageSet(messages=[pair for part in parts for pair in (part, (part, b""))], magic=magic)
    found = ["\N{GRINNING FACE}".encode() * 999, b"b" * 3_996, array("i", [7] * 999).tobytes(), None]
    assert [(m.key, m.value) for m in one] == [pair for part in found for pair in ((None, part), (part, b""))]


def test_a_set_says_what_it_is():
    assert repr(ByteBufferMessageSet(messages=[b"m"], compression_codec=1)) == "ByteBufferMessageSet(1 message, magic 0, gzip)"
    assert repr(ByteBufferMessageSet(b"abc")) == "ByteBufferMessageSet(3 bytes)"


@given(messages=lists.filter(bool), codec=st.sampled_from(CODECS[:3]), magic=st.sampled_from([0, 1]))
def test_other_clients_read_it(messages, codec, magic):
    buffer = bytes(ByteBufferMessageSet(messages=messages, compression_codec=codec, magic=magic).buffer)
    for records in (AiokafkaRecords, KafkaPythonRecords):
        out, sets = [], records(buffer)
        while sets.has_next():
            out += [(r.offset, r.key, r.value) for r in sets.next_batch()]
        assert out == [(n, key, value) for n, (key, value) in enumerate(messages)]


def test_offsets_in_a_wrapper_are_absolute_with_magic_0():
    inner = message(40, None, b"a") + message(44, None, b"b")
    wrapper = message(44, None, gzip.compress(inner), attributes=1)
    assert [m.offset for m in ByteBufferMessageSet(wrapper)] == [40, 44]
    assert [batch.last_offset for batch in ByteBufferMessageSet(wrapper).shallow()] == [44]


def test_offsets_in_a_wrapper_are_relative_with_magic_1():
    inner = message(0, None, b"a", magic=1) + message(1, None, b"b", magic=1) + message(4, None, b"c", magic=1)
    wrapper = message(44, None, gzip.compress(inner), magic=1, attributes=1)
    assert [m.offset for m in ByteBufferMessageSet(wrapper)] == [40, 41, 44]


def test_messages_below_the_start_are_left_out():
    whole = ByteBufferMessageSet(messages=[b"%d" % n for n in range(9)], compression_codec="snappy", base_offset=100)
    assert [m.offset for m in ByteBufferMessageSet(whole.buffer, start_offset=106)] == [106, 107, 108]


def test_a_message_cut_off_at_the_end_is_no_part_of_the_set():
    whole = bytes(ByteBufferMessageSet(messages=[b"one", b"two"]).buffer)
    for size in range(len(whole)):
        one = ByteBufferMessageSet(whole[:size], start_offset=0)
        count = 2 * (size >= len(whole)) or int(size >= len(whole) // 2)
        assert [m.offset for m in one] == list(range(count))
        assert (one.size_bytes, one.valid_bytes, one.next_offset) == (size, count * len(whole) // 2, count)


def test_an_empty_buffer_goes_on_where_it_was_to_start():
    empty = ByteBufferMessageSet(b"", start_offset=12)
    assert (list(empty), empty.next_offset, empty.valid_bytes) == ([], 12, 0)


def test_shallow_iteration_does_not_decompress():
    broken = message(5, None, b"this is not gzip", attributes=1)
    (wrapper,) = ByteBufferMessageSet(broken).shallow()
    assert (wrapper.last_offset, wrapper.compression) == (5, 1)
    with pytest.raises(errors.CorruptDataError):
        list(ByteBufferMessageSet(broken))


def test_a_wrong_checksum_is_noticed():
    buffer = bytearray(ByteBufferMessageSet(messages=[b"message"]).buffer)
    buffer[-1] ^= 1
    with pytest.raises(errors.CorruptDataError, match="CRC"):
        list(ByteBufferMessageSet(buffer))


def test_a_set_that_grows_too_large_is_refused():
    buffer = ByteBufferMessageSet(messages=[b"0" * 100_000], compression_codec="gzip").buffer
    one = ByteBufferMessageSet(buffer, max_decompressed_bytes=10_000)
    for read in (lambda: list(one), lambda: [batch.records() for batch in one.shallow()]):
        with pytest.raises(errors.DecompressedTooLarge):
            read()


def test_record_batches_are_read_as_well():
    builder = BatchBuilder(base_offset=3)
    builder.append(b"v", b"k", [("h", b"x")])
    buffer = message(1, None, b"a") + message(2, None, b"b", magic=1) + bytes(builder.build())
    assert list(ByteBufferMessageSet(buffer)) == [(1, None, b"a"), (2, None, b"b"), (3, b"k", b"v")]


@each_row("arguments", [{}, {"buffer": b"", "messages": []}, {"messages": [], "magic": 3}])
def test_arguments_that_make_no_set(arguments):
    with pytest.raises(errors.UsageError):
        ByteBufferMessageSet(**arguments)


# -- on the wire --------------------------------------------------------------------------------------------------------------------


pieces = Reached("one piece", "several pieces", "a piece of several messages among others", "a compressed set in pieces")


@pieces.by
@given(
    messages=st.lists(st.tuples(parts, parts), min_size=3, max_size=12),
    codec=st.sampled_from(CODECS),
    max_bytes=st.sampled_from([1, 100, 130, 400]),
)
def test_pieces_of_record_batches_hold_all_messages_once(messages, codec, max_bytes):
    one = ByteBufferMessageSet(messages=messages, compression_codec=codec, timestamp_ms=77)
    found, at = [], 0
    made = list(one.pieces(2, max_bytes))
    pieces("one piece", len(made) == 1)
    pieces("several pieces", len(made) > 1)
    pieces("a piece of several messages among others", len(made) > 1 and max(piece.count for piece in made) > 1)
    pieces("a compressed set in pieces", len(made) > 1 and codec != NoCompressionCodec)
    for piece in made:
        (batch,) = read_batches(piece.buffer)
        assert (piece.first, piece.count, batch.magic, batch.record_count) == (at, len(batch.records()), 2, piece.count)
        assert {r.timestamp_ms for r in batch.records()} == {77}
        found += [(r.key, r.value) for r in batch.records()]
        at += piece.count
    assert found == messages


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_set_stays_whole(magic):
    one = ByteBufferMessageSet(messages=[b"m" * 1000] * 50, timestamp_ms=5)
    (piece,) = one.pieces(magic, 100)
    assert (piece.first, piece.count) == (0, 50)
    assert {batch.magic for batch in read_batches(piece.buffer)} == {magic}


def test_a_set_from_bytes_is_converted_with_its_timestamps():
    old = message(4, b"k", b"v", magic=1, timestamp_ms=0) + message(5, None, b"w", magic=1, timestamp_ms=222)
    (piece,) = ByteBufferMessageSet(old).pieces(2, 1 << 20)
    (batch,) = read_batches(piece.buffer)
    assert [(r.key, r.value, r.timestamp_ms) for r in batch.records()] == [(b"k", b"v", 0), (None, b"w", 222)]


@each_row("version", [0, 1, 2])
def test_the_old_produce_request(version):
    """RequiredAcks int16, Timeout int32, [TopicName [Partition int32, MessageSetSize int32, MessageSet]]."""
    sets = {("a", 0): [b"1"], ("a", 3): [b"2", b"3"], ("b", 1): [(b"k", b"4")]}
    buffers = {where: bytes(ByteBufferMessageSet(messages=of).buffer) for where, of in sets.items()}
    request = ProduceRequest(
        acks=1,
        timeout_ms=1500,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=i, records=b) for (t, i), b in buffers.items() if t == name]
            )
            for name in "ab"
        ],
    )
    golden = struct.pack(">hi", 1, 1500) + struct.pack(">i", 2)
    for name, numbers in (("a", (0, 3)), ("b", (1,))):
        golden += struct.pack(">h", 1) + name.encode() + struct.pack(">i", len(numbers))
        for number in numbers:
            golden += struct.pack(">ii", number, len(buffers[name, number])) + buffers[name, number]
    assert b"".join(bytes(part) for part in request.encode(version)) == golden
