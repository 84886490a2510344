"""What the bare parts of reading a topic into frames cost, beside frames.py: CPU, nanoseconds a row, the best of some rounds.

    python bench/frames_floor.py [--rounds N] [--rows N]

Nothing can be faster than the sum of the parts it has: the bytes out of a socket, their checksums and positions, JSON to columns, fresh
memory for a frame that stays, and what the library does with a table that is ready.
"""

from __future__ import annotations

import argparse
import itertools
import mmap
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
from frames import batch
from frames_case import ASKED, PARTITIONS, TOPIC, lines_of, rows
from nullbroker import NullBroker

from kafkacore import KafkaConsumer
from kafkacore.records import BatchBuilder, PartitionReader, json_batch

NAMES, ANSWER_ROWS, ANSWERS_OF_A_GROUP = (b"flight", b"carrier", b"distance", b"delay"), 14_000, 16
LAYOUTS = {"string": "u", "large_string": "U", "string_view": "v"}


class Ready:
    """A table that is there, behind Arrow's stream interface alone."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


SENDER = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); data = bytes(1 << 20)\nwhile True: s.sendall(data)"


def received(near: socket.socket, nbytes: int) -> None:
    """Takes bytes out of a socket that another process fills."""
    into = bytearray(1 << 20)
    while nbytes > 0:
        nbytes -= near.recv_into(into)


def fresh(nbytes: int) -> None:
    """Touches memory that the system has to find, in pages of 4 KiB."""
    for _ in range(nbytes >> 22):
        with mmap.mmap(-1, 1 << 22) as made:
            for at in range(0, 1 << 22, mmap.PAGESIZE):
                made[at] = 1


def decoded(columns: Any, kinds: str, times: int) -> None:
    for _ in range(times):
        json_batch(columns, len(columns), NAMES, kinds, (), "binary", None)


def parts(count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each part's name and a run of it for so many rows."""
    data = batch()
    in_batch = len(PartitionReader(data, topic=TOPIC, partition=0).columns())
    builder = BatchBuilder(max_bytes=1 << 22)
    for value in lines_of(rows(ANSWER_ROWS)):
        builder.append(value, timestamp_ms=0)
    answer = PartitionReader(bytes(builder.build()), topic=TOPIC, partition=0).columns()
    times = count // len(answer)
    near, far = socket.socketpair()
    command = [sys.executable, "-c", SENDER, str(far.fileno())]
    with near, subprocess.Popen(command, pass_fds=[far.fileno()], stderr=subprocess.DEVNULL) as sender:
        far.close()
        yield "out of a socket", lambda: received(near, count * len(data) // in_batch)
        sender.kill()
    with NullBroker(partitions=PARTITIONS, batches={TOPIC: data}) as broker, KafkaConsumer(bootstrap_servers=broker.address) as consumer:
        yield "fetched, checked, positions", lambda: [None for _ in consumer.read_range((TOPIC, 0), 0, count)]
    for name, letter in LAYOUTS.items():
        yield f"JSON to columns, {name}", lambda kinds=f"{letter}{letter}lg": decoded(answer, kinds, times)
    yield "fresh memory, 48 bytes", lambda: fresh(48 * count)
    whole = rows(count).to_arrow()
    for name in LAYOUTS:
        text = getattr(pyarrow, name)()
        schema = pyarrow.schema([(each.name, text if each.name in ("flight", "carrier") else each.type) for each in whole.schema])
        table = pyarrow.Table.from_batches(whole.cast(schema).combine_chunks().to_batches(ANSWER_ROWS))
        frame = Ready(table)
        yield f"ready table, {name}: polars", lambda frame=frame: polars.DataFrame(frame)
        yield f"ready table, {name}: pandas", lambda frame=frame: pandas.DataFrame.from_arrow(frame)
        yield f"ready table, {name}: DuckDB, the average", lambda frame=frame: duckdb.sql(ASKED).fetchall()
    yield "ready table: Parquet, a row group for 1 answer", lambda: written(table, 1)
    yield f"ready table: Parquet, a row group for {ANSWERS_OF_A_GROUP} answers", lambda: written(table, ANSWERS_OF_A_GROUP)


def written(table: Any, answers: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with pyarrow.parquet.ParquetWriter(f"{directory}/table.parquet", table.schema, compression="zstd") as writer:
            batches = iter(table.to_batches())
            while group := list(itertools.islice(batches, answers)):
                writer.write_table(pyarrow.Table.from_batches(group))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    options = parser.parse_args()
    for name, run in parts(options.rows):
        best = float("inf")
        for _ in range(options.rounds + 1):                # one more, to warm up
            before = time.process_time()
            kept = run()
            best = min(best, time.process_time() - before)
            del kept
        print(f"{name:50} {best / options.rows * 1e9:8.1f}", flush=True)


if __name__ == "__main__":
    main()
