"""`ColumnStream.write_parquet`: record batches become a Parquet file. It takes pyarrow.

The calling thread reads and decodes a row group's batches while another writes the row group before them; both let go of the GIL for most
of it. So at most two row groups are in memory, and the order of the file is that of the batches.

Rules
1. The second thread exists while the call runs. All that touches the file after it was opened is done there, one after another: a call that
   is interrupted while it waits cannot close what is being written. [test_ctrl_c_while_the_writer_is_waited_for,
   test_ctrl_c_twice_closes_nothing_that_is_written]
2. The file has its name when it is complete. What fails leaves nothing, and a file that was there before stays. Before that it has a lock:
   of two calls with one file, in one process or two, the second fails. [test_a_full_disk_is_the_caller_s_error,
   test_a_file_is_written_once_at_a_time]
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafkacore import errors

GROUP_BATCHES = 16
"""Batches in a row group. Each by itself takes twice the time to write and a half more of the disk."""


class _File:
    """A file that is being written, for one thread at a time."""

    def __init__(self, path: Path, schema: Any, options: dict[str, Any]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._sink = pa.OSFile(os.fspath(path), "wb")
        try:
            self._writer = parquet.ParquetWriter(self._sink, schema, **options)
        except BaseException:
            self._sink.close()
            raise

    def write(self, group: Any) -> None:
        """Adds a row group."""
        self._writer.write_table(group)

    def close(self) -> None:
        """Writes what ends a file."""
        try:
            self._writer.close()
        finally:
            self._sink.close()

    def abandon(self) -> None:
        """Closes the file, which is incomplete."""
        import pyarrow as pa

        with contextlib.suppress(OSError, pa.ArrowException):
            self.close()


@contextlib.contextmanager
def _unfinished(file: Path) -> Iterator[Path]:
    """A path beside a file, which becomes the file when the block ends well, and else is deleted. What a killed process left is lost.

    Raises:
        UsageError: what is there is no regular file; another program is writing it, and would write into ours.
    """
    import fcntl

    whole = file.resolve()                                     # a link goes on naming what it names
    if whole.exists() and not whole.is_file():
        raise errors.UsageError(f"{file} is no regular file")
    unfinished = whole.with_name(whole.name + ".part")
    try:
        opened = os.open(unfinished, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise errors.UsageError(f"{unfinished} is a link, and what it names would be written over") from None
        raise
    with open(opened, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.IllegalStateError(f"{unfinished} is being written by another process, or another call") from None
        try:
            yield unfinished
            unfinished.replace(whole)
        finally:
            unfinished.unlink(missing_ok=True)


def write_parquet(batches: Generator[Any, None, None], schema: Any, file: str | os.PathLike[str], options: dict[str, Any]) -> int:
    """Writes record batches into a file, and closes their generator.

    Args:
        batches: `pyarrow.RecordBatch`es, GROUP_BATCHES of them for a row group.
        schema: theirs.
        file: where to.
        options: of `pyarrow.parquet.ParquetWriter`.

    Returns:
        How many rows there were.

    Raises:
        errors.UsageError: the path is of no regular file, or the file is being written already.
        OSError: the file cannot be written.
        Exception: what the batches raise, or pyarrow for an option or type that it does not know.
    """
    import pyarrow as pa

    rows = 0
    writing: Future[None] | None = None
    with contextlib.closing(batches), _unfinished(Path(file)) as unfinished:
        try:
            with ThreadPoolExecutor(1, "kafkacore-parquet") as writer:
                writer.submit(int).result()                    # a pool that is interrupted in its first `submit` would start two threads
                target = _File(unfinished, schema, options)
                try:
                    while group := list(itertools.islice(batches, GROUP_BATCHES)):
                        table = pa.Table.from_batches(group)
                        del group                              # so that a row group is freed as soon as it is written
                        rows += len(table)
                        if writing is not None:
                            writing.result()
                        writing = writer.submit(target.write, table)
                        del table
                    if writing is not None:
                        writing.result()
                    writer.submit(target.close).result()
                except BaseException:
                    writer.submit(target.abandon)
                    raise
        except BaseException as error:
            if writing is not None and writing.done() and writing.exception() not in (None, error):
                error.add_note(f"{unfinished} could not be written either: {writing.exception()}")
            raise
    return rows
