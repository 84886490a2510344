"""Records as Arrow capsules: what pyarrow reads out of them is what was written, and their memory lives as long as a reader needs it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import weakref
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import KafkaConsumer, KafkaProducer, errors
from kafkacore.consumer.batches import RecordBatches
from kafkacore.records import ArrowBatch, BatchBuilder, PartitionReader, arrow_stream, arrow_stream_of
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import subscription_of
from tests.kit.late import late
from tests.kit.programs import run_python
from tests.kit.reached import Reached
from tests.kit.rows import each_row

pl = late("polars")

HEADER = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
TYPES = {"binary": pa.binary(), "string": pa.string(), "view": pa.binary_view(), "string view": pa.string_view()}


def schema_of(key="view", value="view", headers=True):
    fields = {
        "key": TYPES[key],
        "value": TYPES[value],
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "timestamp_type": pa.int32(),
    }
    return pa.schema({**fields, "headers": pa.list_(HEADER)} if headers else fields)


def built_batches(batches):
    """Batches of (value, key, headers, timestamp) one behind the other: (bytes, offset of each record, timestamp type of each)."""
    out, at, types = bytearray(), 0, []
    for records, codec, kind in batches:
        builder = BatchBuilder(max_bytes=1 << 22, base_offset=at, compression=codec, timestamp_type=kind)
        for value, key, headers, timestamp_ms in records:
            assert builder.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        at += len(records)
        types += [kind] * len(records)
        if records:
            out += builder.build()
    return bytes(out), types


def columns_of(data, topic="t", partition=3, **more):
    return PartitionReader(data, topic=topic, partition=partition, **more).columns()


some_bytes = st.sampled_from([None, b"", b"twelve bytes", b"a byte more..", b"longer than a view"]) | st.binary(max_size=20)
text = st.none() | st.text(max_size=20).map(str.encode)
headers_of = st.lists(st.tuples(st.sampled_from(["h", "", "é"]), st.sampled_from([None, b"h"])), max_size=2)
times = st.integers(0, 2**42) | st.integers(-(2**61), 2**61)


def batches_of(values):
    records = st.lists(st.tuples(values, values, headers_of, times), max_size=6)
    return st.lists(st.tuples(records, st.sampled_from(["none", "none", "lz4"]), st.sampled_from([0, 1])), min_size=1, max_size=3)


def expected_batch(records, types, key, value, headers, topic="t", partition=3, start=0):
    rows = len(records)
    arrays = [
        pa.array([each[1] for each in records], pa.binary()).cast(TYPES[key]),
        pa.array([each[0] for each in records], pa.binary()).cast(TYPES[value]),
        pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([topic], pa.string())),
        pa.array([partition] * rows, pa.int32()),
        pa.array(range(start, start + rows), pa.int64()),
        pa.array([each[3] for each in records], pa.int64()).cast(pa.timestamp("ms", "UTC")),
        pa.array(types, pa.int32()),
    ]
    if headers:
        pairs = [[{"key": name, "value": header} for name, header in each[2]] for each in records]
        arrays.append(pa.array(pairs, pa.list_(HEADER)))
    return pa.record_batch(arrays, schema=schema_of(key, value, headers))


out = Reached("null", "longer than a view", "compressed", "LogAppendTime", "cut at the start", "cut at the end", "a header without value")


@partial(out.by, rounds=12)
@settings(max_examples=12)
@given(batches_of(some_bytes), *[st.sampled_from(["binary", "view"])] * 2, st.sampled_from([True, True, False]), st.data())
def test_what_pyarrow_reads_is_what_was_written(batches, key, value, headers, draw):
    data, types = built_batches(batches)
    records = [each for batch, _, _ in batches for each in batch]
    start = draw.draw(st.integers(0, len(records)))
    columns = columns_of(data, start_offset=start)
    out("cut at the start", 0 < start < len(records))
    out("compressed", any(batch and codec != "none" for batch, codec, _ in batches))
    records, types = records[start:], types[start:]
    stamps = columns.timestamps_ms.tolist()
    records = [(each[0], each[1], each[2], stamp) for each, stamp in zip(records, stamps, strict=True)]  # of LogAppendTime the batch's
    rows = draw.draw(st.integers(0, len(records)))
    out("cut at the end", 0 < rows < len(records))
    out("null", any(None in each[:2] for each in records[:rows]))
    out("longer than a view", any(len(each[0] or b"") > 12 for each in records[:rows]))
    out("LogAppendTime", 1 in types[:rows])
    out("a header without value", headers and any(header is None for each in records[:rows] for _, header in each[2]))
    found = pa.record_batch(ArrowBatch(columns, rows, key, value, headers))
    found.validate(full=True)
    assert found.schema.equals(schema_of(key, value, headers), check_metadata=True)
    assert found.equals(expected_batch(records[:rows], types[:rows], key, value, headers, start=start))
    whole = pa.table(columns)
    assert whole.schema.equals(schema_of(), check_metadata=True) and whole.num_rows == len(records)
    assert whole.to_batches() == ([expected_batch(records, types, "view", "view", True, start=start)] if records else whole.to_batches())


@given(batches_of(text), st.sampled_from(["string", "string view"]))
def test_text_columns(batches, kind):
    data, _ = built_batches(batches)
    records = [each for batch, _, _ in batches for each in batch]
    columns = columns_of(data)
    found = pa.record_batch(ArrowBatch(columns, len(columns), kind, kind, False))
    found.validate(full=True)
    for name, at in (("value", 0), ("key", 1)):
        assert found[name].type == TYPES[kind]
        assert found[name].to_pylist() == [None if each[at] is None else each[at].decode() for each in records]


TEXTS = [b"", b"a", "é".encode(), "a😀".encode()]
NO_TEXTS = [b"\xff", b"a\xff", b"\xc3", b"a\xf0\x9f", b"\xed\xa0\x80", b"a\xed\xa0\x80b", b"\xc0\x80"]
utf_8 = Reached("text", "no text", "behind text in the same value", "a surrogate", "cut short")


@partial(utf_8.by, rounds=12)
@settings(max_examples=12)
@given(st.lists(st.sampled_from(TEXTS + NO_TEXTS) | st.binary(max_size=3), min_size=1, max_size=3))
def test_text_is_what_python_takes_for_utf_8(values):
    data, _ = built_batches([([(each, None, [], 0) for each in values], "none", 0)])
    columns = columns_of(data)

    def refused(value):
        try:
            str(value, "utf-8")
        except UnicodeDecodeError:
            return True
        return False

    bad = [row for row, each in enumerate(values) if refused(each)]
    utf_8("no text" if bad else "text")
    for each in (values[row] for row in bad):
        utf_8("behind text in the same value", each[:1] == b"a")
        utf_8("a surrogate", b"\xed\xa0" in each)
        utf_8("cut short", each.endswith((b"\xc3", b"\xf0\x9f")))
    if bad:
        with pytest.raises(errors.SerializationError, match="the value is not UTF-8: byte") as found:
            pa.record_batch(ArrowBatch(columns, len(columns), "view", "string view", True))
        assert (found.value.topic, found.value.partition, found.value.offset) == ("t", 3, bad[0])
    else:
        pa.record_batch(ArrowBatch(columns, len(columns), "view", "string", True)).validate(full=True)


PLAIN = [(b"a value that is longer than a view", b"k", [("h", b"v")], 5), (None, None, [], 6)]
DATA = built_batches([(PLAIN, "none", 0), (PLAIN, "lz4", 1)])[0]


@pytest.mark.parametrize("rows", [-1, 5])
def test_more_rows_than_there_are(rows):
    with pytest.raises(ValueError, match=f"{rows} rows of 4"):
        pa.record_batch(ArrowBatch(columns_of(DATA), rows, "view", "view", True))


@each_row("kind", TYPES)
def test_the_types_requested(kind):
    columns = columns_of(DATA)
    wanted = schema_of(kind, kind)
    assert pa.record_batch(columns, schema=wanted).schema == wanted
    capsule = columns.__arrow_c_stream__(wanted.__arrow_c_schema__())
    assert pa.RecordBatchReader._import_from_c_capsule(capsule).schema == wanted
    alone = pa.array(columns.values, TYPES[kind])
    assert alone.type == TYPES[kind] and alone.to_pylist() == pa.table(columns)["value"].cast(TYPES[kind]).to_pylist()
    assert pa.array(columns.keys).type == pa.binary_view()


def test_what_else_is_requested_is_not_heeded():
    for wanted in (pa.schema({"value": pa.int32(), "other": pa.string()}), pa.schema([]), pa.field("x", pa.int8())):
        schema, _ = columns_of(DATA).__arrow_c_array__(wanted.__arrow_c_schema__())
        assert pa.Schema._import_from_c_capsule(schema) == schema_of()
    with pytest.raises(ValueError, match="PyCapsule"):
        columns_of(DATA).__arrow_c_array__(object())


@each_row("wrong", ["text", "", "VIEW"])
def test_unknown_types_are_refused(wrong):
    with pytest.raises(KeyError):
        ArrowBatch(columns_of(DATA), 0, wrong, "view", True)


# ---- memory --------------------------------------------------------------------------------------------------------------------------


class Fetched(np.ndarray):
    """Fetched bytes whose end can be seen."""


def watched():
    memory = np.frombuffer(DATA, np.uint8).copy().view(Fetched)
    return columns_of(memory), weakref.ref(memory)


def test_the_fetched_bytes_live_as_long_as_any_reader():
    columns, memory = watched()
    batch = pa.record_batch(columns)
    del columns
    value = batch.column(1)
    del batch
    gc.collect()
    assert memory() is not None and value.to_pylist()[0] == PLAIN[0][0]
    del value
    gc.collect()
    assert memory() is None


def test_what_is_a_copy_keeps_nothing():
    columns, memory = watched()
    batch = pa.record_batch(ArrowBatch(columns, 2, "binary", "string", True))
    del columns
    gc.collect()
    assert memory() is None and batch["value"].to_pylist() == [PLAIN[0][0].decode(), None]


@each_row("what", ["array", "stream", "column"])
def test_a_capsule_that_nobody_takes_lets_go(what):
    columns, memory = watched()
    capsules = columns.__arrow_c_stream__() if what == "stream" else (columns.values if what == "column" else columns).__arrow_c_array__()
    del columns
    gc.collect()
    assert memory() is not None
    del capsules
    gc.collect()
    assert memory() is None


def test_capsules_outlive_what_gave_them():
    columns, memory = watched()
    stream, again = RecordBatches([columns, columns]).__arrow_c_stream__(), RecordBatches([columns]).__arrow_c_stream__()
    del columns
    gc.collect()
    table = pa.RecordBatchReader._import_from_c_capsule(stream).read_all()
    frame = pl.DataFrame(pa.RecordBatchReader._import_from_c_capsule(again))
    del stream, again
    assert table.num_rows == 8 and frame["value"].to_list() == [PLAIN[0][0], None] * 2
    del table, frame
    gc.collect()
    assert memory() is None


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_ten_thousand_exports_leave_nothing():
    columns = columns_of(DATA)

    def export(times):
        for _ in range(times):
            pa.record_batch(columns)
            columns.__arrow_c_stream__()
            columns.__arrow_c_array__()
            pa.table(columns)
            arrow_stream([], "view", "view", True)
            columns.values.__arrow_c_array__()

    export(300)
    gc.collect()  # what other tests left
    counts = sys.getrefcount(columns), len(gc.get_objects())
    before = resident_bytes()
    export(2_000)
    gc.collect()
    assert (sys.getrefcount(columns), abs(len(gc.get_objects()) - counts[1]) < 200) == (counts[0], True)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which keeps what was freed
        assert resident_bytes() - before < 3 << 20  # a schema alone that stays would be more


class Array(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    ]


def structure(capsule, name=b"arrow_array"):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Array.from_address(pointer(capsule, name))


def children(array):
    return [Array.from_address(each) for each in (ctypes.c_void_p * array.n_children).from_address(array.children)]


def test_a_thread_that_python_does_not_know_releases():
    columns, memory = watched()
    schema, capsule = columns.__arrow_c_array__()
    del columns, schema
    array = structure(capsule)
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(array.release), ctypes.byref(array)) == 0
    assert libc.pthread_join(thread, None) == 0
    assert array.release is None and memory() is None


def test_children_that_were_moved_out_outlive_their_parent():
    columns, memory = watched()
    schema, capsule = columns.__arrow_c_array__()
    del columns, schema
    array = structure(capsule)
    moved = []
    for child in children(array):
        moved.append(Array.from_buffer_copy(child))
        child.release = None
    del capsule
    gc.collect()
    assert memory() is not None
    for each in reversed(moved):
        ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))(each.release)(ctypes.byref(each))  # without the GIL
        assert each.release is None
    assert memory() is None


def test_the_end_of_the_interpreter():
    """Frames, capsules and a released thread's work that are there when it ends."""
    program = f"""
import threading
import polars as pl, pyarrow as pa
from kafkacore.records import PartitionReader
columns = PartitionReader({DATA!r}, topic="t", partition=3).columns()
kept = pl.DataFrame(columns), pa.table(columns), columns.__arrow_c_stream__(), columns.__arrow_c_array__()
class Late:
    def __del__(self, table=pa.table(columns)): pass
late = Late(); late.me = late
threading.Thread(target=lambda: threading.Event().wait(30), daemon=True).start()
"""
    done = run_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


# ---- streams that fail ---------------------------------------------------------------------------------------------------------------


def test_an_error_on_the_way_is_the_readers_and_stays():
    def batches():
        columns = columns_of(DATA)
        yield columns, 2
        raise errors.OffsetOutOfRange("gone", topic="t", partition=3, offset=7)

    reader = pa.RecordBatchReader.from_stream(Stream(arrow_stream(batches(), "view", "view", True)))
    assert reader.read_next_batch().num_rows == 2
    for _ in range(2):  # it never looks like the end
        with pytest.raises(OSError, match=r"OffsetOutOfRange: .*gone"):
            reader.read_next_batch()
    with pytest.raises(pl.exceptions.PolarsError, match="offset 7"):
        pl.DataFrame(Stream(arrow_stream(batches(), "view", "view", True)))


class Stream:
    def __init__(self, capsule):
        self.capsule = capsule

    def __arrow_c_stream__(self, requested_schema=None):
        return self.capsule


@each_row("wrong", [(1, 2), (None, 0), 5, (None,)])
def test_batches_that_are_none_are_an_error(wrong):
    with pytest.raises(OSError, match=r"TypeError|IndexError"):
        pa.table(Stream(arrow_stream([wrong], "view", "view", True)))


def test_the_bytes_that_are_no_text_name_their_record():
    data, _ = built_batches([([(b"fine", None, [], 0), (b"\xff", None, [], 0)], "none", 0)])
    with pytest.raises(OSError, match=r"the value is not UTF-8: byte 0 of 1.*offset 1"):
        pa.table(Stream(arrow_stream([(columns_of(data), 2)], "view", "string view", True)))


KINDS_OF_STREAM = {
    "records": lambda batches: arrow_stream(((columns_of(DATA), 2) for _ in batches), "view", "view", True),
    "other": lambda batches: arrow_stream_of((pa.record_batch(columns_of(DATA)) for _ in batches), schema_of()),
}


@pytest.mark.parametrize("kind", KINDS_OF_STREAM)
def test_an_interrupt_comes_again_once_the_reader_has_returned(kind):
    ended = []

    def batches():
        try:
            yield
            raise KeyboardInterrupt
        finally:
            ended.extend(range(3))  # Python code on the way out

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            try:
                pl.DataFrame(Stream(KINDS_OF_STREAM[kind](batches())))
            finally:
                ended.append("returned")  # a call: it comes there at the latest
        assert ended[:3] == [0, 1, 2]
    finally:
        signal.signal(signal.SIGINT, before)


class Unspeakable(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def test_an_error_without_a_text_and_an_interrupt_beside_it():
    ended = []

    def batches():
        raise Unspeakable
        yield

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            try:
                pl.DataFrame(Stream(arrow_stream(batches(), "view", "view", True)))
            finally:
                ended.append("returned")  # a call: it comes there at the latest
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_batches_pass_through():
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    stream = Stream(arrow_stream_of(iter(table.to_batches(2)), table.schema))
    assert pa.table(stream).equals(table)
    memory = pa.array(np.arange(1000))
    before = pa.total_allocated_bytes()
    for _ in range(200):
        batches = [pa.record_batch({"a": pa.array(range(1_000))})]
        arrow_stream_of(batches, batches[0].schema)
        assert pl.DataFrame(Stream(arrow_stream_of(batches, batches[0].schema))).height == len(memory)
    del batches
    assert pa.total_allocated_bytes() - before < 64 << 10
    for wrong, says in (([5], "AttributeError"), ([Taken()], "ValueError: somebody else has taken")):
        with pytest.raises(OSError, match=says):
            pa.table(Stream(arrow_stream_of(wrong, table.schema)))
    with pytest.raises(OSError, match="AttributeError"):
        pa.table(Stream(arrow_stream_of([], None)))


class Taken:
    def __arrow_c_array__(self, requested_schema=None):
        capsules = pa.record_batch({"a": [1]}).__arrow_c_array__()
        pa.RecordBatch._import_from_c_capsule(*capsules)
        return capsules


# ---- with a consumer -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address():
    with EmbeddedCluster() as cluster:
        for topic in ("a", "b"):
            cluster.create_topic(topic, partitions=2)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for topic in ("a", "b"):
                for at in range(0, 600, 100):  # batches smaller than the topic
                    numbers = range(at, at + 100)
                    producer.send_many(topic, [f"{topic}{i}" for i in numbers], keys=[str(i) for i in numbers]).result(60)
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("other", ["a", "b"])
def test_a_read_that_has_not_ended_when_another_begins_is_an_error(address, other):
    with KafkaConsumer(bootstrap_servers=address, max_partition_fetch_bytes=1_000) as consumer:
        stream = consumer.read("a")
        first = iter(stream)
        next(first)
        second = iter(consumer.read(other, until_end=False))
        next(second)
        with pytest.raises(errors.IllegalStateError, match="another read has started"):
            list(first)
        next(second)
        third = list(stream)
        assert sum(map(len, third)) == 600
        with pytest.raises(errors.IllegalStateError, match="another read has started"):
            for _ in second:
                pass
        assert subscription_of(consumer).default_reset.name == consumer.config.auto_offset_reset
