"""Builders and readers in the hands of callers who do odd things: foreign code in the middle, other threads, arrays that lie."""

import ctypes
import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkacore import compress
from kafkacore.errors import CorruptDataError, IllegalStateError
from kafkacore.records import BatchBuilder, ColumnSource, PartitionReader, read_batches
from tests.kit.rows import each_row

python_buffers = pytest.mark.skipif(sys.version_info < (3, 12), reason="classes export buffers since Python 3.12 (PEP 688)")


def batch_of(*values: bytes, **options: Any) -> bytes:
    builder = BatchBuilder(**options)
    for value in values:
        assert builder.append(value, timestamp_ms=1)
    return bytes(builder.build())


def values_in(data: Any) -> list[bytes | None]:
    return [record.value for batch in read_batches(data) for record in batch.records()]


# ---- numbers at their limits ----


def test_offset_deltas_end_with_their_type():
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="more than a batch can count"):
        builder.append(b"", offset_delta=2**31 - 1)
    assert builder.append(b"last", offset_delta=2**31 - 2)
    assert not builder.append(b"full")
    assert builder.append_many([b"full"]) == 0
    assert builder.append_many((b"full", np.array([0, 4], "int32"))) == 0
    (batch,) = read_batches(builder.build())
    assert (batch.last_offset, [record.offset for record in batch.records()]) == (2**31 - 2, [2**31 - 2])


def test_the_end_of_a_batch_with_the_largest_delta():
    data = bytearray(batch_of(b"x"))
    data[23:27] = b"\x7f\xff\xff\xff"
    assert PartitionReader(data).end_offset == 2**31


@each_row("magic", [0, 1])
@each_row("offset", [-1, -(2**63), 2**63 - 1])
def test_a_message_whose_offset_cannot_be(magic: int, offset: int):
    data = batch_of(b"x", magic=magic, base_offset=offset)
    with pytest.raises(CorruptDataError, match=f"offset {offset}"):
        PartitionReader(data).records()
    (batch,) = read_batches(data)
    with pytest.raises(CorruptDataError, match=f"offset {offset}"):
        batch.records()


def test_relative_offsets_beyond_the_last():
    inner = batch_of(b"a", magic=1, base_offset=7) + batch_of(b"b", magic=1, base_offset=2)
    builder = BatchBuilder(magic=1, compression="gzip", base_offset=100)
    builder.append(b"")
    wrapper = bytearray(builder.build())
    packed = compress.compress(compress.GZIP, inner)
    wrapper[30:] = len(packed).to_bytes(4, "big") + packed
    wrapper[8:12] = (len(wrapper) - 12).to_bytes(4, "big")
    (batch,) = read_batches(wrapper, check_crcs=False)
    with pytest.raises(CorruptDataError, match="relative offset 7, but 2 is the last"):
        batch.records()


def test_timestamps_that_are_none():
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        BatchBuilder().append_many([b"x"], timestamps_ms=np.array([2**63], "uint64"))
    with pytest.raises(ValueError, match="NaT"):
        BatchBuilder().append_many([b"x"], timestamps_ms=np.array(["NaT"], "datetime64[ms]"))


# ---- columns ----


@each_row("kind", [">i4", ">i8", "uint32", "int16", "float64"])
def test_offsets_of_another_kind_are_not_values(kind: str):
    with pytest.raises(TypeError, match="offsets must be int32 or int64"):
        ColumnSource((b"abcdef", np.array([0, 3, 6], kind)))


def test_offsets_from_ctypes():
    assert list(ColumnSource((b"abcdef", (ctypes.c_int32 * 3)(0, 2, 6)))) == [b"ab", b"cdef"]


@each_row("offsets", [
    [5, -(2**63)], [0, 7], [-1, 3], [3, 2], [2**62, -(2**62)],
    [0, 1, 2, 3, 4, 5, 7], [0, 2, 4, 6, 8, 10], [0, 1, 2, 3, 4, 3], [0, 1, 2**63 - 1, 2, 3, 4],
])  # fmt: skip
def test_offsets_that_lie(offsets: list[int]):
    column = (b"abcdef", np.array(offsets, "int64"))
    with pytest.raises(ValueError, match="offsets are not inside"):
        BatchBuilder().append_many(column)
    with pytest.raises(ValueError, match="offsets are not inside"):
        list(ColumnSource(column))


def test_something_like_a_numpy_array():
    class Flat:
        dtype = np.dtype("S4")
        ndim = 1

        def view(self, dtype: str) -> object:
            return np.zeros((), "S4")

    with pytest.raises(TypeError, match="one dimension"):
        ColumnSource(Flat())


def test_an_arrow_array_that_somebody_took():
    class Taken:
        def __init__(self) -> None:
            self.capsules = pa.array([b"x" * 100]).__arrow_c_array__()
            pa.Array._import_from_c_capsule(*self.capsules)

        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return self.capsules

    with pytest.raises(ValueError, match="taken by somebody else"):
        ColumnSource(Taken())


def test_positions_cannot_be_moved():
    columns = PartitionReader(batch_of(b"x")).columns()
    for array in (columns.values.starts, columns.values.lengths, columns.keys.lengths, columns.offsets, columns.timestamps_ms):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1 << 30
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


# ---- foreign code in the middle ----


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_headers_that_build_the_batch_they_are_for(codec: str):
    builder = BatchBuilder(compression=codec)
    builder.append(b"first")

    def headers() -> Any:
        builder.build()
        yield ("key", b"value")

    with pytest.raises(IllegalStateError):
        builder.append(b"second", headers=headers())
    with pytest.raises(IllegalStateError):
        builder.append_many([b"second"], headers=[headers()])
    assert values_in(builder.build()) == [b"first"]


def test_a_record_that_comes_while_the_batch_is_compressed(monkeypatch: pytest.MonkeyPatch):
    builder = BatchBuilder(compression="zstd")
    builder.append(b"first")
    refused: list[BaseException] = []
    real = compress.compress

    def slow(*arguments: Any) -> bytes:
        def late() -> None:
            for call in (lambda: builder.append(b"late"), lambda: builder.append_many([b"late"]), builder.build):
                with pytest.raises(IllegalStateError) as error:
                    call()
                refused.append(error.value)

        thread = threading.Thread(target=late)
        thread.start()
        thread.join()
        return real(*arguments)

    monkeypatch.setattr(compress, "compress", slow)
    built = builder.build()
    assert len(refused) == 3
    assert values_in(built) == [b"first"]
    assert builder.build() is built


def test_a_build_that_fails_leaves_the_builder_as_it_was(monkeypatch: pytest.MonkeyPatch):
    builder = BatchBuilder(compression="zstd")
    builder.append(b"first")
    with monkeypatch.context() as patch:
        patch.setattr(compress, "compress", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            builder.build()
    assert builder.append(b"second")
    assert values_in(builder.build()) == [b"first", b"second"]


@pytest.mark.parametrize("read", ["records", "columns"])
def test_a_reader_in_two_threads(monkeypatch: pytest.MonkeyPatch, read: str):
    reader = PartitionReader(batch_of(b"first", compression="gzip") + batch_of(b"second", compression="gzip", base_offset=1))
    refused: list[BaseException] = []
    real = compress.decompress

    def slow(*arguments: Any) -> bytes:
        for other in (reader.records, reader.columns):
            with pytest.raises(IllegalStateError) as error:
                other()
            refused.append(error.value)
        return real(*arguments)

    monkeypatch.setattr(compress, "decompress", slow)
    assert [record.value for record in getattr(reader, read)(1)] == [b"first"]
    assert [record.value for record in getattr(reader, read)(1)] == [b"second"]
    assert len(refused) == 4


@python_buffers
def test_a_value_that_goes_while_its_key_is_read():
    values: list[Any] = [bytes([i]) * 3000 for i in range(20)]

    class Key:
        def __buffer__(self, flags: int) -> memoryview:
            values[:] = [None] * len(values)
            return memoryview(b"k")

    builder = BatchBuilder(max_bytes=1 << 20)
    assert builder.append_many(values, keys=[Key()] * 20) == 20
    assert values_in(builder.build()) == [bytes(3000), *[None] * 19]


@python_buffers
def test_a_buffer_that_is_another_one_each_time():
    good = batch_of(b"x" * 200, compression="gzip")

    class Moving:
        asked = 0

        def __buffer__(self, flags: int) -> memoryview:
            self.asked += 1
            return memoryview(good if self.asked == 1 else b"tiny")

    (batch,) = read_batches(Moving())
    assert batch.buffer == good
    assert batch.columns().values.to_arrow(view=True).to_pylist() == [b"x" * 200]


# ---- what stays behind ----


class Bytes(bytearray):
    """bytearray with weak references."""


@each_row("read", ["records", "columns"])
@each_row("topic", ["", "t"])
@each_row("codec", ["none", "gzip"])
def test_a_failed_reader_keeps_nothing_once_gone(read: str, topic: str, codec: str):
    data = Bytes(batch_of(b"x" * 100, compression=codec))
    data[80] ^= 1
    gone = weakref.ref(data)

    def use(data: Bytes) -> None:
        reader = PartitionReader(data, topic=topic, check_crcs=codec == "none")
        for _ in range(3):
            with pytest.raises(CorruptDataError) as caught:
                getattr(reader, read)()
            assert (caught.value.topic, caught.value.offset) == (topic or None, 0)
            del caught

    gc.collect()
    gc.disable()
    try:
        use(data)
        del data
        assert gone() is None
    finally:
        gc.enable()


@each_row("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_no_export_outlives_its_reader(codec: str):
    data = bytearray(batch_of(b"a" * 50, b"b" * 50, compression=codec) * 2)
    for cut in (len(data), len(data) - 1, 100, 61):
        part = bytearray(data[:cut])
        for check_crcs in (True, False):
            for wound in (None, 17, 60, 66, 70):
                if wound is not None and wound < cut:
                    part[wound] ^= 0x55
                try:
                    for batch in read_batches(part, check_crcs):
                        batch.records()
                        batch.columns().to_arrow(view=True)
                        batch.columns().values.view(0)
                    reader = PartitionReader(part, check_crcs=check_crcs)
                    while not reader.exhausted:
                        reader.records(1)
                except CorruptDataError:
                    pass
                batch = reader = None  # type: ignore[assignment]
                part.append(0)  # BufferError while somebody still holds it
                part.pop()
