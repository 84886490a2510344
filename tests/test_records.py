"""Record batches v2: golden bytes, round trips through every input layout, other clients as oracle, broken bytes."""

import gc
import pickle
import struct

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kafkacore import bounds, compress
from kafkacore.errors import CorruptDataError, DecompressedTooLarge, IllegalStateError
from kafkacore.records import (
    BatchBuilder,
    ColumnSource,
    ConsumerRecord,
    PartitionReader,
    control_batch,
    read_batches,
    set_base_offset,
    set_leader_epoch,
    set_log_append_time,
)
from tests.kit.batches import records_of as read
from tests.kit.reached import Reached
from tests.kit.rows import each_row

# From a Kafka 0.11 broker: one record "123".
GOLDEN = bytes.fromhex(
    "00000000000000000000003b00000001020318a2700000000000000000015dff7b063c0000015dff7b063c"
    "ffffffffffffffffffffffffffff0000000112000000010631323300"
)
BIG = 1 << 22

byte_values = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.integers(120, 400).map(lambda n: b"v" * n))
headers_of = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
timestamps = st.one_of(st.integers(0, 2**42), st.integers(-(2**63), 2**63 - 1))
records_of = st.lists(st.tuples(byte_values, byte_values, headers_of, timestamps), max_size=30)


def build(records, **options):
    builder = BatchBuilder(max_bytes=BIG, **options)
    for value, key, headers, timestamp_ms in records:
        assert builder.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
    return builder.build()


def fields(records):
    return [(r.value, r.key, list(r.headers), r.timestamp_ms) for r in records]


def other_clients_read(module, buffer):
    out, batches = [], module(bytes(buffer))
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        out += [(r.value, r.key, list(r.headers), r.timestamp) for r in batch]
    return out


# ---- golden bytes ----


def test_golden_batch():
    builder = BatchBuilder(leader_epoch=1)
    builder.append("123", timestamp_ms=1503229838908)
    assert bytes(builder.build()) == GOLDEN
    (batch,) = read_batches(GOLDEN)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 0, 1)
    assert (batch.leader_epoch, batch.magic, batch.crc) == (1, 2, 0x0318A270)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, batch.record_count) == (-1, -1, -1, -1, 1)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.compression, batch.size_bytes) == (1503229838908, 1503229838908, 0, 71)
    assert not batch.is_transactional and not batch.is_control and batch.control_type is None and batch.buffer == GOLDEN
    (record,) = batch.records("t", 7)
    assert record == ConsumerRecord(topic="t", partition=7, offset=0, timestamp_ms=1503229838908, value=b"123", leader_epoch=1)


def test_golden_empty_batch():
    empty = bytearray(61)
    struct.pack_into(">i", empty, 8, 49)
    empty[16] = 2
    empty[17:21] = bytes.fromhex("595fb7dd")
    (batch,) = read_batches(empty)
    assert batch.records() == [] and len(batch.columns()) == 0 and batch.next_offset == 1
    assert read(BatchBuilder().build()) == []


@pytest.mark.parametrize(("type", "number"), [("abort", 0), ("commit", 1)])
def test_control_batch(type, number):
    buffer = control_batch(number, producer_id=7, producer_epoch=3, coordinator_epoch=21, base_offset=40, timestamp_ms=5)
    (batch,) = read_batches(buffer)
    assert (
        batch.is_control and batch.is_transactional and batch.control_type == number and (batch.producer_id, batch.producer_epoch) == (7, 3)
    )
    (record,) = batch.records()
    assert (record.offset, record.key, record.value) == (40, struct.pack(">hh", 0, number), struct.pack(">hi", 0, 21))
    theirs = KafkaPythonRecords(bytes(buffer)).next_batch()
    assert theirs.is_control_batch and getattr(next(iter(theirs)), type)


def test_control_batch_without_record_is_corrupt():
    builder = BatchBuilder(is_control=True)
    builder.append(b"v", key=b"abc")
    (batch,) = read_batches(builder.build())
    with pytest.raises(CorruptDataError, match="control"):
        _ = batch.control_type


def test_a_control_batch_is_not_unpacked_beyond_what_a_marker_takes():
    builder = BatchBuilder(is_control=True, compression="zstd", max_bytes=1 << 24)
    builder.append(bytes(bounds.CONTROL_BATCH_BYTES), key=struct.pack(">hh", 0, 1))
    (batch,) = read_batches(builder.build())
    with pytest.raises(CorruptDataError, match=f"control batch at base offset 0 holds more than {bounds.CONTROL_BATCH_BYTES} bytes"):
        _ = batch.control_type


# ---- round trips ----


@given(records=records_of, codec_name=st.sampled_from(compress.NAMES))
def test_objects_and_columns_round_trip(records, codec_name):
    buffer = build(records, compression=codec_name, base_offset=1000)
    got = read(buffer)
    assert fields(got) == records
    assert [r.offset for r in got] == list(range(1000, 1000 + len(records)))
    (batch,) = read_batches(buffer)
    columns = batch.columns()
    assert columns.to_records() == got and columns.values == [r[0] for r in records] and columns.keys == [r[1] for r in records]
    assert columns.timestamps_ms.tolist() == [r[3] for r in records] and [list(h) for h in columns.headers] == [r[2] for r in records]
    assert batch.record_count == len(records) and batch.max_timestamp_ms == max((r[3] for r in records), default=-1)


spread = Reached("several batches", "a record of its own", "null and empty")


@spread.by
@given(records=records_of.filter(bool), cuts=st.lists(st.integers(1, 9), min_size=1))
def test_append_many_equals_append(records, cuts):
    values, keys, headers, times = (list(column) for column in zip(*records, strict=True))
    one = build(records)
    assert bytes(one) == bytes(build_many(values, keys, headers, times))
    # the same column spread over batches that fill up
    source, at, out, i = ColumnSource(values), 0, [], 0
    while at < len(records):
        builder = BatchBuilder(max_bytes=100 * cuts[i % len(cuts)])
        n = builder.append_many(source, keys, headers, np.array(times), start=at)
        assert n >= 1
        spread("a record of its own", n == 1 and at + 1 < len(records))
        at, i = at + n, i + 1
        out += fields(read(builder.build()))
    spread("several batches", i > 1)
    spread("null and empty", {None, b""} <= {*values})
    assert out == records


RUNS = st.lists(st.tuples(st.sampled_from([0, 1, 10, 61, 62, 63, 64, 65, 130, 600, 8149, 8150]), st.integers(1, 70)), min_size=1)


def offsets_and_list(lengths, wide):
    ends = np.cumsum([3, *lengths], dtype=np.int64 if wide else np.int32)
    data = (bytes(range(256)) * (int(ends[-1]) // 256 + 1))[: int(ends[-1])]
    return (data, ends), [data[a:b] for a, b in zip(ends.tolist(), ends.tolist()[1:], strict=False)]


framed = Reached("the batch is full", "all fit", "nothing fits")


@framed.by
@given(RUNS, st.integers(0, 80), st.sampled_from([0, 1, 100, 10**12]), st.sampled_from([200, 220, 400, 9_000, 1 << 20]), st.booleans())
def test_values_behind_offsets_are_framed_like_those_of_a_list(runs, before, later_ms, max_bytes, wide):
    """Lengths that are alike, and that are not; before, others move the offset delta; the batch ends anywhere."""
    column, items = offsets_and_list([n for n, times in runs for _ in range(times)], wide)
    built = []
    for values in (column, items):
        builder = BatchBuilder(max_bytes=max_bytes)
        for _ in range(before):
            builder.append(b"b", timestamp_ms=5)
        taken = builder.append_many(values, timestamps_ms=5 + later_ms)
        built.append((taken, bytes(builder.build()) if taken or before else b""))
    framed("the batch is full", 0 < taken < len(items))
    framed("all fit", taken == len(items))
    framed("nothing fits", not taken)
    assert built[0] == built[1]


@pytest.mark.parametrize("lengths", [[1] * 9_000, [1, 2] * 4_500], ids=["alike", "unlike"])
def test_offset_deltas_of_one_to_three_bytes(lengths):
    column, items = offsets_and_list(lengths, wide=True)
    assert bytes(build_many(column)) == bytes(build_many(items))
    assert read(build_many(column))[-1].offset == 8_999


def build_many(values, keys=None, headers=None, times=None):
    builder = BatchBuilder(max_bytes=BIG)
    times = 0 if times is None else np.array(times, "int64")
    assert builder.append_many(values, keys, headers, times) == len(ColumnSource(values))
    return builder.build()


VALUES = [bytes([i % 256]) * (i % 150) for i in range(400)] + [b"L" * 5000, b"", b"after"] + [b"M" * 9000, b"M" * 70000, b"z"]
NULLED = [None if i % 5 == 0 else v for i, v in enumerate(VALUES)]


def column_layouts():
    data = b"".join(VALUES)
    offsets = np.cumsum([0] + [len(v) for v in VALUES])
    eights = [v[:8].ljust(8, b"x") for v in VALUES]
    stripped = [v[:9].rstrip(b"\0") for v in VALUES]
    yield "list", VALUES, VALUES
    yield "tuple", tuple(NULLED), NULLED
    yield "generator", iter(VALUES), VALUES
    yield "buffers", [bytearray(v) if i % 2 else memoryview(v) for i, v in enumerate(VALUES)], VALUES
    yield "str", ["gr\u00fc\u00df", None, "\U0001f600", ""], ["gr\u00fc\u00df".encode(), None, "\U0001f600".encode(), b""]
    yield "pair32", (data, offsets.astype("int32")), VALUES
    yield "pair64", (bytearray(data), offsets), VALUES
    yield "pair unaligned", (data, np.frombuffer(b"x" + offsets.astype("int32").tobytes(), "int32", offset=1)), VALUES
    yield "pair of nothing", (b"", np.zeros(4, "int64")), [b""] * 3
    yield "pair of a slice", (data, offsets[5:50]), VALUES[5:49]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield f"{kind}", pa.array(VALUES, kind), VALUES
        yield f"{kind} nulls", pa.array(NULLED, kind), NULLED
        yield f"{kind} slice", pa.array(NULLED, kind)[13:377], NULLED[13:377]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield f"{kind}", pa.array(["a", None, "\u00fc" * 20], kind), [b"a", None, "\u00fc".encode() * 20]
    yield "fixed", pa.array([None, *eights], pa.binary(8))[1:], eights
    yield "arrow null", pa.nulls(3), [None] * 3
    yield "arrow empty", pa.array([], pa.binary()), []
    yield "numpy S", np.array(stripped, "S9"), stripped
    yield "numpy V", np.array(eights, "V8"), eights
    yield "numpy strided", np.array(eights, "V8")[::-3], eights[::-3]


@each_row(("source", "expected"), lambda: [pytest.param(*row, id=name) for name, *row in column_layouts()])
def test_column_layouts(source, expected):
    column = ColumnSource(source)
    assert [column[i] for i in range(len(column))] == expected
    gc.collect()
    for keys in (None, column):
        got = read(build_many(column, keys))
        assert [r.value for r in got] == expected
        assert [r.key for r in got] == (expected if keys else [None] * len(expected))
    with pytest.raises(IndexError):
        column[len(column)]


def test_column_outlives_its_source():
    column = ColumnSource(pa.array([b"x" * 50] * 1000))
    pa.array([b"y" * 50] * 1000)
    gc.collect()
    assert column[999] == b"x" * 50


@each_row(
    ("source", "error"),
    lambda: [
        (b"one value", TypeError),
        ("text", TypeError),
        (5, TypeError),
        ([5], TypeError),
        (pa.array([1, 2]), TypeError),
        (pa.chunked_array([[b"x"]]), TypeError),
        (np.zeros((2, 2), "S1"), TypeError),
        (np.zeros(3), TypeError),
        ((b"abc", np.array([], "int32")), ValueError),
        ((b"abc", np.array([0, 4], "int32")), ValueError),
        ((b"abc", np.array([-1, 2])), ValueError),
        ((b"abc", np.array([2, 1])), ValueError),
        ((b"abc", np.array([0, 1 << 40])), ValueError),
    ],
)
def test_bad_columns_are_refused(source, error):
    with pytest.raises(error):
        BatchBuilder().append_many(source)


def test_column_lengths_must_agree():
    for options in ({"keys": [b"k"]}, {"timestamps_ms": [1, 2, 3]}, {"headers": [()]}):
        with pytest.raises(ValueError, match="differ in length"):
            BatchBuilder().append_many([b"a", b"b"], **options)


def test_bad_item_keeps_what_was_before_it():
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="item 2"):
        builder.append_many((b"abcd", np.array([0, 1, 2, 99])))
    assert [r.value for r in read(builder.build())] == [b"a", b"b"]


# ---- the builder ----


def test_full_batch_refuses_and_first_record_always_fits():
    builder = BatchBuilder(max_bytes=200)
    assert builder.append(b"x" * 1000)
    assert not builder.append(b"") and len(builder) == 1
    builder = BatchBuilder(max_bytes=200)
    while builder.append(b"0123456789"):
        assert builder.size_bytes <= 200
    assert len(builder) == 8 and builder.append_many([b"0123456789"]) == 0
    assert len(builder.build()) == builder.size_bytes or len(builder.build()) <= 200
    builder = BatchBuilder(max_bytes=200)
    assert builder.append_many((b"x" * 1000, np.array([0, 1000, 1000]))) == 1


def test_built_batch_is_closed_and_stays_good():
    builder = BatchBuilder()
    builder.append(b"kept")
    buffer = builder.build()
    assert builder.build() is buffer
    with pytest.raises(IllegalStateError):
        builder.append(b"late")
    with pytest.raises(IllegalStateError):
        builder.append_many([b"late"])
    del builder
    others = [BatchBuilder() for _ in range(20)]
    assert all(other.append(b"over") for other in others)
    assert read(buffer)[0].value == b"kept"


def test_sparse_offsets():
    builder = BatchBuilder(base_offset=10)
    for delta in (0, 5, None, 100):
        builder.append(b"", offset_delta=delta)
    with pytest.raises(ValueError, match="rise"):
        builder.append(b"", offset_delta=3)
    (batch,) = read_batches(builder.build())
    assert [r.offset for r in batch.records()] == [10, 15, 16, 110] and (batch.last_offset, batch.record_count) == (110, 4)


@each_row(
    "options",
    [
        {"magic": 3},
        {"compression": "brotli"},
        {"compression": "gzip", "compression_level": 99},
        {"max_bytes": -1},
        {"timestamp_type": 2},
        {"magic": 1, "compression": "zstd"},
        {"magic": 0, "is_transactional": True},
    ],
)
def test_builder_options_are_checked(options):
    with pytest.raises(ValueError):
        BatchBuilder(**options)


def test_failed_append_changes_nothing():
    builder = BatchBuilder()
    builder.append(b"a", timestamp_ms=1)
    for bad in (
        {"value": 5},
        {"value": b"", "key": 5},
        {"value": b"", "headers": [(None, b"")]},
        {"value": b"", "headers": [("k",)]},
        {"value": "\ud800"},
    ):
        with pytest.raises((TypeError, ValueError)):
            builder.append(**bad)
    builder.append(b"b", timestamp_ms=2)
    assert fields(read(builder.build())) == [(b"a", None, [], 1), (b"b", None, [], 2)]


# ---- other clients ----

SAMPLE = [
    (None if i % 7 == 3 else b"v" * i, None if i % 3 else b"key%d" % i, [("h", b"x"), ("n", None)][: i % 3], 1_600_000_000_000 + 50 * i)
    for i in range(200)
]


@each_row("name", compress.NAMES)
@each_row("reader", [AiokafkaRecords, KafkaPythonRecords], ids=["aiokafka", "kafka-python"])
def test_other_clients_read_ours(reader, name):
    assert other_clients_read(reader, build(SAMPLE, compression=name)) == SAMPLE


@each_row("codec_number", range(5))
@each_row("builder", [AiokafkaBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
def test_we_read_theirs(builder, codec_number):
    theirs = builder(
        magic=2,
        compression_type=codec_number,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i, (value, key, headers, timestamp) in enumerate(SAMPLE):
        theirs.append(i, timestamp, key, value, headers)
    assert fields(read(bytes(theirs.build()))) == SAMPLE


def test_bytes_equal_aiokafka():
    theirs = AiokafkaBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 20
    )
    for i, (value, key, headers, timestamp) in enumerate(SAMPLE):
        theirs.append(i, timestamp, key, value, headers)
    assert bytes(build(SAMPLE))[16:] == bytes(theirs.build())[16:]  # offsets and leader epoch are the broker's


# ---- the partition reader ----


def fetched(*parts):
    return b"".join(bytes(p) for p in parts)


STARTS = [0, 1, 69, 70, 71, 99, 100, 101, 228, 229, 250]
portioned = Reached("inside a batch", "at the beginning of one", "in a gap between offsets", "behind the end", "a portion over two batches")


@portioned.by
@given(portion=st.integers(1, 50), start=st.sampled_from(STARTS), name=st.sampled_from(compress.NAMES))
def test_portions_over_several_batches(portion, start, name):
    parts = [
        build(SAMPLE[:70], compression=name),
        build(SAMPLE[70:71], base_offset=70),
        build(SAMPLE[71:], compression=name, base_offset=100),
    ]
    parts.append(parts[0][:-1])  # a broker cuts the last one off
    expected = [r for r in PartitionReader(fetched(*parts), topic="t", partition=1).records() if r.offset >= start]
    portioned("inside a batch", start in (1, 69, 101, 228))
    portioned("at the beginning of one", start in (0, 70, 100))
    portioned("in a gap between offsets", start in (71, 99))
    portioned("behind the end", start >= 229)
    portioned("a portion over two batches", start < 70 and (70 - start) % portion)
    for columnar in (False, True):
        reader = PartitionReader(fetched(*parts), topic="t", partition=1, start_offset=start)
        got = []
        while piece := list(reader.columns(portion)) if columnar else reader.records(portion):
            assert len(piece) <= portion
            got += piece
            assert reader.next_offset == (229 if len(got) == len(expected) else reader.next_offset)
        assert got == expected and reader.exhausted and reader.next_offset == max(start, 229)


def transaction(producer_id, base_offset, *, transactional=True, count=2):
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=transactional, base_offset=base_offset
    )
    for _ in range(count):
        builder.append(b"%d" % producer_id)
    return builder.build()


def test_aborted_transactions_are_left_out():
    buffer = fetched(
        transaction(1, 0),  # aborted below
        transaction(2, 2),  # committed
        transaction(1, 4),  # aborted too
        control_batch(0, producer_id=1, producer_epoch=0, base_offset=6),
        transaction(1, 7),  # the next transaction of 1 commits
        control_batch(1, producer_id=2, producer_epoch=0, base_offset=9),
        transaction(1, 10, transactional=False),
        control_batch(1, producer_id=1, producer_epoch=0, base_offset=12),
        transaction(3, 13),  # aborted, its marker is not fetched yet
    )
    uncommitted = PartitionReader(buffer)
    assert [r.offset for r in uncommitted.records()] == [0, 1, 2, 3, 4, 5, 7, 8, 10, 11, 13, 14]
    for columnar in (False, True):
        reader = PartitionReader(buffer, aborted=[(1, 0), (3, 13)])
        got = reader.columns() if columnar else reader.records()
        assert [r.offset for r in got] == [2, 3, 7, 8, 10, 11] and reader.next_offset == 15
    # the fetch may start inside the aborted transaction
    assert [r.offset for r in PartitionReader(buffer, start_offset=5, aborted=[(1, 0), (3, 13)]).records()] == [7, 8, 10, 11]


def test_what_is_before_a_broken_batch_is_handed_out_first():
    bad = bytearray(build(SAMPLE, base_offset=200))
    bad[-1] ^= 1
    for portion in (None, 150):
        for method in ("records", "columns"):
            reader = PartitionReader(fetched(build(SAMPLE), bad), topic="t", partition=3)
            got = []
            with pytest.raises(CorruptDataError, match="CRC") as caught:
                while piece := list(getattr(reader, method)(portion)):
                    got += piece
            assert fields(got) == SAMPLE and reader.next_offset == 200
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, len(build(SAMPLE)))
            with pytest.raises(CorruptDataError):
                reader.records()
    assert len(PartitionReader(bad, check_crcs=False, start_offset=399).columns()) <= 1


def test_log_append_time_and_leader_epochs():
    buffer = bytearray(build(SAMPLE))
    set_base_offset(buffer, 1 << 40)
    set_leader_epoch(buffer, 9)
    set_log_append_time(buffer, 77)
    (batch,) = read_batches(buffer)
    assert (batch.base_offset, batch.leader_epoch, batch.timestamp_type, batch.max_timestamp_ms) == (1 << 40, 9, 1, 77)
    both = fetched(buffer, build(SAMPLE, base_offset=(1 << 40) + 200, compression="lz4"))
    for records in (PartitionReader(both).records(), PartitionReader(both).columns().to_records()):
        assert {(r.timestamp_ms, r.timestamp_type, r.leader_epoch) for r in records[:200]} == {(77, 1, 9)}
        assert {(r.timestamp_type, r.leader_epoch) for r in records[200:]} == {(0, -1)}
    assert other_clients_read(KafkaPythonRecords, buffer)[0][3] == 77
    for bad in (b"", bytes(100), GOLDEN[:-1]):
        with pytest.raises((ValueError, CorruptDataError)):
            set_base_offset(bytearray(bad), 1)


# ---- columns ----


SPARKS_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
header_lists = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=4)


with_headers = Reached("a row without headers", "a null value", "rows of two batches", "keys of several bytes")


@with_headers.by
@given(st.lists(header_lists, max_size=12), st.sampled_from(["none", "zstd"]), st.booleans())
def test_headers_to_arrow_without_objects(lists, codec, none_is_null):
    """Against the headers as Python objects."""
    with_headers("a row without headers", [] in lists)
    with_headers("a null value", any(value is None for one in lists for _, value in one))
    with_headers("rows of two batches", len(lists) > 1)
    with_headers("keys of several bytes", any(not key.isascii() for one in lists for key, _ in one))
    half = len(lists) // 2
    parts = fetched(
        *(
            build([(b"v", None, one, 0) for one in some], compression=codec, base_offset=offset)
            for offset, some in ((0, lists[:half]), (half, lists[half:]))
            if some
        )
    )
    columns = PartitionReader(parts).columns()
    made = columns.headers_to_arrow(SPARKS_HEADERS, none_is_null)
    made.validate(full=True)
    rows = [[{"key": key, "value": value} for key, value in one] for one in columns.headers]
    assert made.equals(pa.array([one or None if none_is_null else one for one in rows], SPARKS_HEADERS))
    assert columns.headers == [tuple(one) for one in lists]


def test_header_keys_that_are_not_utf8_to_arrow():
    batch = bytearray(build([(b"v", None, [("abcd", b"x"), ("\u00e9", None)], 0)]))
    at = batch.index(b"abcd")
    batch[at : at + 4] = b"a\xff\xfe\xe2"
    columns = PartitionReader(bytes(batch), check_crcs=False).columns()
    made = columns.headers_to_arrow(SPARKS_HEADERS)
    made.validate(full=True)
    assert made.to_pylist() == [[{"key": "a\ufffd\ufffd\ufffd", "value": b"x"}, {"key": "\u00e9", "value": None}]]
    assert columns.headers == [(("a\ufffd\ufffd\ufffd", b"x"), ("\u00e9", None))]


def test_columns_to_arrow():
    parts = fetched(build(SAMPLE), build(SAMPLE, compression="zstd", base_offset=200), build(SAMPLE, base_offset=400))
    columns = PartitionReader(parts, topic="t", partition=4).columns()
    for view, kind in ((False, pa.binary()), (True, pa.binary_view())):
        table = columns.to_arrow(view=view)
        table.validate(full=True)
        assert table.schema.field("value").type == kind
        assert table["value"].to_pylist() == 3 * [r[0] for r in SAMPLE] and table["key"].to_pylist() == 3 * [r[1] for r in SAMPLE]
        assert table["offset"].to_pylist() == list(range(600)) and set(table["topic"].to_pylist()) == {"t"}
        assert table["timestamp"].cast(pa.int64()).to_pylist() == 3 * [r[3] for r in SAMPLE]
        assert [[(h["key"], h["value"]) for h in row] for row in table["headers"].to_pylist()] == 3 * [r[2] for r in SAMPLE]
        del table
        columns = PartitionReader(parts, topic="t", partition=4).columns()
    empty = PartitionReader(b"").columns().to_arrow()
    assert empty.num_rows == 0 and empty.schema.names == "key value topic partition offset timestamp timestamp_type headers".split()


def test_columns_sequences():
    columns = PartitionReader(build(SAMPLE), topic="t").columns()
    values = columns.values
    assert values[5] == SAMPLE[5][0] and values[-1] == SAMPLE[-1][0] and values[10:12] == [SAMPLE[10][0], SAMPLE[11][0]]
    assert values.view(5) == SAMPLE[5][0] and values.view(3) is None and list(values) == [r[0] for r in SAMPLE]
    assert values.lengths.tolist() == [-1 if r[0] is None else len(r[0]) for r in SAMPLE] and len(values) == len(columns) == 200
    assert columns[7] == columns.to_records()[7] and columns[-1].offset == 199 and columns.has_headers
    for bad in (200, -201):
        with pytest.raises(IndexError):
            values[bad]
        with pytest.raises(IndexError):
            columns[bad]
    offsets = columns.offsets
    del columns, values
    gc.collect()
    assert offsets.sum() == 199 * 100 and offsets.dtype == np.int64


def test_consumer_record_is_a_value():
    record = read(build(SAMPLE[:9]))[8]
    assert pickle.loads(pickle.dumps(record)) == record and hash(record) == hash(pickle.loads(pickle.dumps(record)))
    assert record != read(build(SAMPLE[:9]))[7] and record != 5 and eval(repr(record)) == record
    with pytest.raises(AttributeError):
        record.value = b""


def test_header_keys_that_are_not_utf8_stay_readable():
    builder = BatchBuilder()
    builder.append(b"", headers=[(b"\xff\xfe", b"v")])
    assert read(builder.build())[0].headers == (("\ufffd\ufffd", b"v"),)


# ---- broken bytes ----


def use_everything(buffer, check_crcs):
    for batch in read_batches(buffer, check_crcs=check_crcs, max_decompressed_bytes=1 << 20):
        batch.records()
        columns = batch.columns()
        assert len(columns.headers) == len(columns.values.to_pylist()) == len(columns.keys.to_pylist()) == len(columns)
        _ = (repr(batch), batch.control_type, batch.last_sequence, batch.next_offset)
    for aborted in (None, [(123, 0)]):
        reader = PartitionReader(buffer, check_crcs=check_crcs, aborted=aborted, max_decompressed_bytes=1 << 20)
        while reader.records(3) or len(reader.columns(3)):
            pass


def only_corrupt(buffer, check_crcs=False):
    try:
        use_everything(buffer, check_crcs)
    except (CorruptDataError, DecompressedTooLarge):
        return True
    return False


SMALL = {
    "plain": bytes(build(SAMPLE[:12])),
    "zstd": bytes(build(SAMPLE[:12], compression="zstd")),
    "control": bytes(control_batch(0, producer_id=123, producer_epoch=1, timestamp_ms=5)),
    "headers": bytes(build([(b"v", b"k", [("a", b"1"), ("b", None)], 9)])),
}


@each_row("name", SMALL)
def test_every_bit_flip(name):
    sound = SMALL[name]
    for bit in range(8 * len(sound)):
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        only_corrupt(flipped)
        # offset and leader epoch are not covered; a longer length makes the batch a cut off one
        if bit // 8 not in range(16) and bit // 8 != 16:
            assert only_corrupt(flipped, check_crcs=True)


@each_row("name", SMALL)
def test_every_truncation(name):
    sound = SMALL[name]
    for size in range(len(sound)):
        assert not only_corrupt(sound[:size]) and read(sound[:size]) == []
        shorter = bytearray(sound[:size])
        if size >= 12:
            struct.pack_into(">i", shorter, 8, size - 12)  # the length says so too
            assert only_corrupt(shorter) or size < 17


def test_record_count_sizes_nothing():
    lying = bytearray(GOLDEN)
    struct.pack_into(">i", lying, 57, 2**31 - 1)
    with pytest.raises(CorruptDataError, match="declares 2147483647 records in 10 bytes"):
        next(read_batches(lying, check_crcs=False)).columns()
    struct.pack_into(">i", lying, 57, 0)
    with pytest.raises(CorruptDataError, match="does not account for"):
        next(read_batches(lying, check_crcs=False)).records()


def test_decompression_is_capped():
    builder = BatchBuilder(compression="gzip", max_bytes=1 << 24)
    builder.append(bytes(5_000_000))
    buffer = builder.build()
    assert len(read(buffer)[0].value) == 5_000_000
    said = "the gzip batch at offset 0 has [0-9]+ bytes and holds more than max_decompressed_bytes=1000000; a larger"
    with pytest.raises(DecompressedTooLarge, match=said):
        next(read_batches(buffer, max_decompressed_bytes=1_000_000)).records()


@pytest.mark.parametrize("read", [PartitionReader.records, PartitionReader.columns])
def test_a_batch_above_the_bound_is_not_called_corrupt_and_the_records_before_it_come_first(read):
    small, large = BatchBuilder(compression="zstd"), BatchBuilder(compression="zstd", max_bytes=1 << 24)
    small.append(b"first")
    large.append(bytes(5_000_000))
    second = bytearray(large.build())
    set_base_offset(second, 7)
    buffer = bytes(small.build()) + second
    reader = PartitionReader(buffer, topic="t", partition=3, max_decompressed_bytes=1_000_000)
    assert len(read(reader)) == 1
    for _ in range(2):
        with pytest.raises(DecompressedTooLarge) as caught:
            read(reader)
        assert not isinstance(caught.value, CorruptDataError)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 7)
        assert "zstd" in str(caught.value) and "max_decompressed_bytes=1000000" in str(caught.value)
        assert "seek" not in str(caught.value)
    assert reader.next_offset == 1
    assert len(read(PartitionReader(buffer, max_decompressed_bytes=5_100_000))) == 2


def test_a_reader_tells_where_the_next_fetch_begins_and_when_it_is_done():
    parts = [BatchBuilder(base_offset=base, leader_epoch=base) for base in (0, 3, 6)]
    for builder in parts:
        for value in (b"a", b"b", b"c"):
            builder.append(value)
    whole = b"".join(bytes(builder.build()) for builder in parts)
    reader = PartitionReader(whole, start_offset=1)
    assert (reader.end_offset, reader.leader_epoch, reader.exhausted) == (9, -1, False)
    assert len(reader.records(4)) == 4
    assert (reader.next_offset, reader.leader_epoch, reader.exhausted) == (5, 3, False)
    assert len(reader.records(4)) == 4
    assert (reader.next_offset, reader.leader_epoch, reader.exhausted) == (9, 6, True)
    cut = PartitionReader(whole[:-1])
    assert cut.end_offset == 6
    assert len(cut.records(6)) == 6
    assert cut.exhausted
    broken = PartitionReader(whole[: len(whole) // 3] + b"\xff" * 40)
    assert broken.end_offset == 3
    assert len(broken.records(3)) == 3
    assert not broken.exhausted  # what is broken has still to be said
    with pytest.raises(CorruptDataError):
        broken.records(3)


@each_row(
    ("name", "value"),
    [
        *(("key", None), ("value", {"a": 1}), ("headers", (("x", None),)), ("offset", 2**40), ("timestamp_ms", -1)),
        *(("topic", "u"), ("partition", 9), ("timestamp_type", 1), ("leader_epoch", -1)),
    ],
)
def test_replace_changes_the_fields_that_are_named(name, value):
    """As _replace of a named tuple."""
    names = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "leader_epoch")
    record = ConsumerRecord(
        topic="t", partition=3, offset=7, timestamp_ms=5, timestamp_type=0, key=b"k", value=b"v", headers=[("h", b"x")], leader_epoch=2
    )
    before = {each: getattr(record, each) for each in names}
    other = record.replace(**{name: value})
    assert {each: getattr(other, each) for each in names} == before | {name: value}
    assert {each: getattr(record, each) for each in names} == before
    assert record.replace() == record and record.replace() is not record


def test_replace_refuses_what_is_no_field():
    record = ConsumerRecord(topic="t", partition=0, offset=0, headers=())
    with pytest.raises(TypeError, match="timestamp"):
        record.replace(timestamp=5)
    with pytest.raises(TypeError):
        record.replace(offset="1")
    assert record.replace(headers=[("h", b"x")]).headers == (("h", b"x"),)
