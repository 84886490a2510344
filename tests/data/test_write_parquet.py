"""`ColumnStream.write_parquet`: pyarrow reads what it writes, reading and writing overlap, and what fails leaves no file and no thread."""

from __future__ import annotations

import errno
import io
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkacore import errors
from kafkacore.consumer import parquet
from kafkacore.consumer.parquet import GROUP_BATCHES, write_parquet
from kafkacore.consumer.stretches import ColumnStream, Layout
from kafkacore.records import BatchBuilder, PartitionReader

PATIENCE_S = 60
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def batch(number):
    return pa.record_batch({"n": [number, None], "text": [f"é{number}", None]}, SCHEMA)


class Source:
    """A generator of batches: how many it gave, and whether it was closed."""

    def __init__(self, count, error=None, each=lambda number: None):
        self.given, self.ended = 0, False
        self.batches = self._run(count, error, each)

    def _run(self, count, error, each):
        try:
            for number in range(count):
                self.given += 1
                each(number)
                yield batch(number)
            if error is not None:
                raise error
        finally:
            self.ended = True


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def on_write(monkeypatch):
    """Calls functions, one after the other, in place of the writer, with what writes the row group."""

    def do(function):
        write = pq.ParquetWriter.write_table
        monkeypatch.setattr(pq.ParquetWriter, "write_table", lambda self, table: function(lambda: write(self, table)))

    return do


@pytest.mark.parametrize("count", [0, 1, GROUP_BATCHES - 1, GROUP_BATCHES, 2 * GROUP_BATCHES, 3 * GROUP_BATCHES + 1])
def test_the_file_has_the_rows_in_their_order(tmp_path, count):
    source = Source(count)
    assert write_parquet(source.batches, SCHEMA, tmp_path / "f.parquet", {"compression": "zstd"}) == 2 * count
    assert source.ended
    assert pq.read_table(tmp_path / "f.parquet") == pa.Table.from_batches([batch(number) for number in range(count)], SCHEMA)
    found = pq.read_metadata(tmp_path / "f.parquet")
    rows = [2 * GROUP_BATCHES] * (count // GROUP_BATCHES) + [2 * (count % GROUP_BATCHES)] * (count % GROUP_BATCHES > 0)
    assert [found.row_group(at).num_rows for at in range(found.num_row_groups)] == rows
    assert os.listdir(tmp_path) == ["f.parquet"]


def test_the_next_group_is_read_while_one_is_written(tmp_path, on_write):
    """The writer waits for a batch that comes after its row group, in another thread; no more than one group is read ahead."""
    far, threads, groups = threading.Event(), set(), 4
    source = Source(groups * GROUP_BATCHES, each=lambda number: far.set() if number == 2 * GROUP_BATCHES - 1 else None)
    ahead = []

    def write(go_on):
        assert far.wait(PATIENCE_S), "nothing is read while a row group is written"
        threads.add(threading.current_thread())
        go_on()
        ahead.append(source.given)

    on_write(write)
    write_parquet(source.batches, SCHEMA, tmp_path / "f.parquet", {})
    assert threading.current_thread() not in threads and len(threads) == 1
    assert len(ahead) == groups and all(given <= (number + 2) * GROUP_BATCHES for number, given in enumerate(ahead))


class SmallDisk(io.RawIOBase):
    """Holds so many bytes."""

    def __init__(self, room):
        self.room = room

    def writable(self):
        return True

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)


@pytest.mark.parametrize(("missing", "read"), [(None, 2), (1, 5), (0, 5)])
def test_a_full_disk_is_the_caller_s_error(tmp_path, monkeypatch, missing, read):
    """Its error comes with the row group behind it, or at the end; the file that was there stays."""
    file = tmp_path / "f.parquet"
    write_parquet(Source(5 * GROUP_BATCHES).batches, SCHEMA, file, {})
    disk = SmallDisk(4 if missing is None else file.stat().st_size - missing)
    file.write_bytes(b"what was there")

    def opened(path, mode):
        with open(path, mode):
            return pa.PythonFile(disk, mode)

    monkeypatch.setattr(pa, "OSFile", opened)
    source = Source(5 * GROUP_BATCHES)
    if missing == 0:
        assert write_parquet(source.batches, SCHEMA, file, {}) == 10 * GROUP_BATCHES
    else:
        with pytest.raises(OSError) as caught:
            write_parquet(source.batches, SCHEMA, file, {})
        assert caught.value.errno == errno.ENOSPC and file.read_bytes() == b"what was there"
    assert source.ended and source.given <= read * GROUP_BATCHES and disk.closed and os.listdir(tmp_path) == ["f.parquet"]


@pytest.mark.parametrize("count", [0, 3, GROUP_BATCHES + 3])
@pytest.mark.parametrize("kind", [errors.SerializationError, KeyboardInterrupt])
def test_what_the_reader_raises_comes_to_the_caller(tmp_path, kind, count):
    error = kind("no more")
    with pytest.raises(kind) as caught:
        write_parquet(Source(count, error).batches, SCHEMA, tmp_path / "f.parquet", {})
    assert caught.value is error and os.listdir(tmp_path) == [] and not hasattr(error, "__notes__")


def test_of_two_errors_none_is_lost(tmp_path, on_write):
    failing, error = threading.Event(), errors.SerializationError("no more")

    def write(go_on):
        failing.set()
        raise OSError(errno.EIO, "the disk is broken")

    def each(number):
        if number == GROUP_BATCHES + 1:
            assert failing.wait(PATIENCE_S)
            raise error

    on_write(write)
    with pytest.raises(errors.SerializationError) as caught:
        write_parquet(Source(2 * GROUP_BATCHES, each=each).batches, SCHEMA, tmp_path / "f.parquet", {})
    assert caught.value is error and "the disk is broken" in error.__notes__[0] and os.listdir(tmp_path) == []


def ctrl_c():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.mark.parametrize("at", [1, 3])
def test_ctrl_c_while_the_writer_is_waited_for(tmp_path, on_write, at):
    """The signal comes within a write that the caller waits for; the write is finished before the file is closed."""
    source, written = Source(3 * GROUP_BATCHES), []

    def write(go_on):
        if len(written) == at - 1:
            ctrl_c()
        go_on()
        written.append(source.given)

    on_write(write)
    with pytest.raises(KeyboardInterrupt):
        write_parquet(source.batches, SCHEMA, tmp_path / "f.parquet", {})
    assert len(written) <= at + 1 and source.ended and os.listdir(tmp_path) == []


def test_ctrl_c_twice_closes_nothing_that_is_written(tmp_path, on_write, monkeypatch):
    """The second one ends the wait for the thread. The file is closed by that thread, behind what it writes."""
    happened, begun, left, threads = [], threading.Event(), threading.Event(), []

    class Impatient(ThreadPoolExecutor):
        def shutdown(self, wait=True, **how):
            super().shutdown(wait=False)
            threads.extend(self._threads)
            raise KeyboardInterrupt("the second")

    def each(number):
        if number == GROUP_BATCHES + 1:
            assert begun.wait(PATIENCE_S)
            raise KeyboardInterrupt("the first")

    def write(go_on):
        begun.set()
        assert left.wait(PATIENCE_S)
        go_on()
        happened.append("written")

    monkeypatch.setattr(parquet, "ThreadPoolExecutor", Impatient)
    on_write(write)
    closed = pq.ParquetWriter.close
    monkeypatch.setattr(pq.ParquetWriter, "close", lambda self: (happened.append(threading.current_thread()), closed(self)))
    with pytest.raises(KeyboardInterrupt, match="the second"):
        write_parquet(Source(2 * GROUP_BATCHES, each=each).batches, SCHEMA, tmp_path / "f.parquet", {})
    assert happened == [] and os.listdir(tmp_path) == []
    left.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert happened[:2] == ["written", *threads]


def test_a_file_is_written_once_at_a_time(tmp_path):
    """Links go on naming what they name; what is no file stays."""
    (tmp_path / "link").symlink_to("f.parquet")

    def each(number):
        for name in ("f.parquet", "link"):
            with pytest.raises(errors.IllegalStateError, match=r"f\.parquet\.part is being written"):
                write_parquet(Source(1).batches, SCHEMA, tmp_path / name, {})

    assert write_parquet(Source(1, each=each).batches, SCHEMA, tmp_path / "link", {}) == 2
    assert (tmp_path / "link").is_symlink() and len(pq.read_table(tmp_path / "f.parquet")) == 2
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(errors.UsageError, match="no regular file"):
            write_parquet(Source(1).batches, SCHEMA, path, {})
    assert sorted(os.listdir(tmp_path)) == ["f.parquet", "link", "pipe"] and (tmp_path / "pipe").is_fifo()


def test_ctrl_c_while_the_thread_starts(tmp_path, monkeypatch):
    """A pool whose first `submit` is interrupted does not know its thread: nothing was opened yet."""

    class Interrupted(ThreadPoolExecutor):
        def _adjust_thread_count(self):
            super()._adjust_thread_count()
            threads.extend(self._threads)
            self._threads.clear()
            raise KeyboardInterrupt

    threads, opened = [], []
    monkeypatch.setattr(parquet, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(pa, "OSFile", lambda *how: opened.append(how))
    with pytest.raises(KeyboardInterrupt):
        write_parquet(Source(GROUP_BATCHES).batches, SCHEMA, tmp_path / "f.parquet", {})
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(threads) == 1 and opened == [] and os.listdir(tmp_path) == []


def fetched_values(values):
    builder = BatchBuilder()
    for value in values:
        assert builder.append(value, timestamp_ms=0)
    return PartitionReader(bytes(builder.build()), topic="t", partition=0).columns()


class Given(ColumnStream):
    """A stream of columns that are there."""

    def __init__(self, columns, **how):
        super().__init__(None, {}, Layout("binary", "string", True), None, **how)
        self._given = columns

    def _fetched(self):
        for columns in self._given:
            yield columns, 2


def test_a_stream_writes_its_columns(tmp_path):
    stream = Given([fetched_values([b"a", b"b", b"beyond the end"]), fetched_values([b"c"])])
    for options, codec in (({}, "ZSTD"), ({"compression": "snappy", "write_statistics": False}, "SNAPPY")):
        assert stream.write_parquet(tmp_path / "t.parquet", **options) == 3
        assert pq.read_table(tmp_path / "t.parquet") == pa.table(stream).cast(stream.schema())
        column = pq.read_metadata(tmp_path / "t.parquet").row_group(0).column(1)
        assert column.compression == codec and column.is_stats_set == (not options)


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(errors.UsageError, match="until_end=True"):
        Given([], endless=True).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(TypeError, match="compresion"):
        Given([fetched_values([b"a"])]).write_parquet(tmp_path / "t.parquet", compresion="zstd")
    with pytest.raises(FileNotFoundError):
        Given([fetched_values([b"a"])]).write_parquet(tmp_path / "missing" / "t.parquet")
    with pytest.raises(errors.SerializationError, match="not UTF-8"):
        Given([fetched_values([b"\xff"])]).write_parquet(str(tmp_path / "t.parquet"))
    assert os.listdir(tmp_path) == []
