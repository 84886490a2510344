"""Message sets of magic 0 and 1: golden bytes, wrappers and their offsets, other clients as oracle, broken bytes."""

import struct
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kafkacore import compress
from kafkacore.errors import CorruptDataError, DecompressedTooLarge
from kafkacore.records import BatchBuilder, PartitionReader, read_batches
from tests.kit.batches import records_of as read
from tests.kit.rows import each_row

CODECS = compress.NAMES[:4]
SAMPLE = [(None if i % 7 == 3 else b"v" * i, None if i % 3 else b"key%d" % i, 1_600_000_000_000 + 50 * i) for i in range(60)]
messages = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20), st.integers(0, 2**62)), max_size=8)


def build(magic, records, **options):
    builder = BatchBuilder(magic=magic, max_bytes=1 << 20, **options)
    for value, key, timestamp_ms in records:
        assert builder.append(value, key=key, timestamp_ms=timestamp_ms)
    return builder.build()


def message(magic, offset, value, attributes=0, timestamp=0, key=None):
    """One message, written here from the format's description."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_golden_crcs():
    (v0,) = read_batches(build(0, [(b"123", None, 0)]))
    (v1,) = read_batches(build(1, [(b"123", None, 0x015E1867ABAE)]))
    assert (v0.crc, v1.crc) == (0xFEB01DBF, 0x478628C2)
    assert (v0.timestamp_type, v0.magic, v1.timestamp_type, v1.magic) == (-1, 0, 0, 1)
    (record,) = v0.records("t", 1)
    assert (record.topic, record.timestamp_ms, record.timestamp_type, record.value, record.headers) == ("t", -1, -1, b"123", ())
    assert v1.records()[0].timestamp_ms == v1.base_timestamp_ms == v1.max_timestamp_ms == 0x015E1867ABAE


@pytest.mark.parametrize("magic", [0, 1])
@given(records=messages, codec=st.sampled_from(CODECS), base=st.integers(0, 2**40))
def test_round_trip(magic, records, codec, base):
    buffer = build(magic, records, compression=codec, base_offset=base)
    got = read(buffer)
    assert [(r.value, r.key, r.timestamp_ms) for r in got] == [(v, k, t if magic else -1) for v, k, t in records]
    assert [r.offset for r in got] == list(range(base, base + len(records)))
    reader = PartitionReader(buffer, start_offset=base + 2)
    assert [r.value for r in reader.columns(2)] + [r.value for r in reader.records()] == [v for v, _, _ in records[2:]]


# Without lz4 in magic 0: aiokafka refuses it and kafka-python wants xxhash for its broken header.
@each_row(("magic", "codec"), [(m, c) for m in (0, 1) for c in CODECS if (m, c) != (0, "lz4")])
@each_row("peer", ["aiokafka", "kafka-python"])
def test_other_clients(peer, magic, codec):
    number = compress.codec_id(codec)
    records, builder = (AiokafkaRecords, AiokafkaBuilder) if peer == "aiokafka" else (KafkaPythonRecords, KafkaPythonBuilder)
    theirs = builder(magic=magic, compression_type=number, batch_size=1 << 20)
    for i, (value, key, timestamp) in enumerate(SAMPLE):
        theirs.append(i, timestamp, key, value)
    expected = [(v, k, t if magic else -1) for v, k, t in SAMPLE]
    buffer = bytearray(theirs.build())
    if codec != "none":
        struct.pack_into(">q", buffer, 0, 59)  # the broker gives a wrapper its offset
    got = read(buffer)
    assert [(r.value, r.key, r.timestamp_ms) for r in got] == expected and [r.offset for r in got] == list(range(60))
    out, sets = [], records(bytes(build(magic, SAMPLE, compression=codec)))
    while sets.has_next():
        batch = sets.next_batch()
        assert batch.validate_crc()
        out += [(r.value, r.key, r.timestamp if magic else -1) for r in batch]
    assert out == expected


def test_kip57_header_is_written_for_magic_0_only_and_read_in_both():
    for magic in (0, 1):
        (batch,) = read_batches(build(magic, SAMPLE, compression="lz4"))
        value = bytes(batch.buffer)[26 if magic == 0 else 34 :]
        assert (compress.lz4_mend_header(value) != value) is (magic == 0)
        right = compress.lz4_mend_header(value)
        for frame in (right, compress.lz4_break_header(right)):
            assert len(read(message(magic, 59, frame, attributes=3))) == 60


def test_wrapper_offsets():
    inner = message(1, 0, b"a", timestamp=5) + message(1, 1, b"b", timestamp=6) + message(1, 4, b"c", timestamp=7)
    wrapper = message(1, 104, compress.compress(1, inner), attributes=1, timestamp=7)
    assert [(r.offset, r.timestamp_ms, r.timestamp_type) for r in read(wrapper)] == [(100, 5, 0), (101, 6, 0), (104, 7, 0)]
    (batch,) = read_batches(wrapper)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 104, 3)
    absolute = message(0, 77, b"a") + message(0, 80, b"b")
    assert [r.offset for r in read(message(0, 80, compress.compress(2, absolute), attributes=2))] == [77, 80]
    appended = message(1, 104, compress.compress(1, inner), attributes=1 | 8, timestamp=999)
    assert {(r.timestamp_ms, r.timestamp_type) for r in read(appended)} == {(999, 1)}
    for start in (100, 101, 102, 104):
        reader = PartitionReader(wrapper, start_offset=start)
        assert [r.offset for r in reader.records()] == [o for o in (100, 101, 104) if o >= start] and reader.next_offset == 105


def test_a_log_of_all_formats():
    buffer = b"".join(
        bytes(build(magic, SAMPLE, base_offset=60 * magic, compression=c)) for magic, c in ((0, "none"), (1, "gzip"), (2, "lz4"))
    )
    for portion in (None, 7):
        for method in ("records", "columns"):
            reader, got = PartitionReader(buffer), []
            while piece := list(getattr(reader, method)(portion)):
                got += piece
            assert [r.offset for r in got] == list(range(180)) and [r.value for r in got] == 3 * [v for v, _, _ in SAMPLE]
            assert [r.timestamp_type for r in got] == [-1] * 60 + [0] * 120


@pytest.mark.parametrize("magic", [0, 1])
def test_nested_compression_and_mixed_magic_are_corrupt(magic):
    nested = message(magic, 0, compress.compress(1, message(magic, 0, b"x")), attributes=1)
    for inner in (nested, message(1 - magic, 0, b"x"), message(magic, 0, b"x")[:-1], b"junk" * 9):
        with pytest.raises(CorruptDataError):
            read(message(magic, 0, compress.compress(1, inner), attributes=1))
    for attributes, value in ((1, None), (1, b"not gzip"), (4, compress.compress(4, b"")), (7, b"")):
        with pytest.raises(CorruptDataError):
            read(message(magic, 0, value, attributes=attributes))


@each_row("magic", [0, 1])
@each_row("codec", ["none", "gzip", "lz4"])
def test_every_bit_flip_and_truncation(magic, codec):
    sound = bytes(build(magic, SAMPLE[:4], compression=codec))
    for bit in range(8 * len(sound)):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        for check_crcs in (False, True):
            try:
                for batch in read_batches(flipped, check_crcs, max_decompressed_bytes=1 << 16):
                    assert len(batch.records()) == len(batch.columns()) == batch.record_count
            except (CorruptDataError, DecompressedTooLarge):
                pass
    for size in range(len(sound)):
        assert len(read(sound[:size])) < 4
        if size >= 12:
            shorter = bytearray(sound[:size])
            struct.pack_into(">i", shorter, 8, size - 12)
            try:
                [batch.records() for batch in read_batches(shorter, False)]
            except CorruptDataError:
                pass


def test_magic_limits():
    for magic in (0, 1):
        with pytest.raises(ValueError, match="headers"):
            BatchBuilder(magic=magic).append(b"", headers=[("h", b"")])
        with pytest.raises(ValueError, match="headers"):
            BatchBuilder(magic=magic).append_many([b""], headers=[()])
    builder = BatchBuilder(magic=1, max_bytes=100)
    assert builder.append(b"x" * 200) and not builder.append(b"")
    assert len(read(builder.build())) == 1 and read(BatchBuilder(magic=0).build()) == []
