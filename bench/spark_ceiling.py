"""A Spark data source that has its batches ready, and a sink that drops them: what Python could reach at most. Used by spark.py.

It is a file of its own because Spark's workers import it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

BATCH_ROWS = 50_000
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
}


@functools.cache
def prepared(names: tuple[str, ...], value_bytes: int) -> pa.RecordBatch:
    """One batch, made once per process."""
    items = {
        "key": lambda i: b"key-%06d" % i,
        "value": lambda i: (b"%012d" % i).ljust(value_bytes, b"x"),
        "topic": lambda _: "topic",
        "partition": lambda _: 0,
        "offset": lambda i: i,
        "timestamp": lambda i: 1_700_000_000_000_000 + i,
        "timestampType": lambda _: 0,
    }
    columns = [pa.array([items[name](i) for i in range(BATCH_ROWS)], TYPES[name]) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([(name, TYPES[name]) for name in names]))


class Rows(InputPartition):
    """So many rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class PreparedReader(DataSourceReader):
    """Hands out the same batch again and again."""

    def __init__(self, options: dict[str, str], names: tuple[str, ...]) -> None:
        self.rows, self.parts = int(options["rows"]), int(options["parts"])
        self.value_bytes = int(options["value_bytes"])
        self.names = names

    def partitions(self) -> list[Rows]:
        return [Rows(self.rows // self.parts) for _ in range(self.parts)]

    def read(self, partition: Rows) -> Iterator[pa.RecordBatch]:
        batch = prepared(self.names, self.value_bytes)
        for start in range(0, partition.rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.rows - start))


class PreparedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as a stream; offsets are rows."""

    def __init__(self, options: dict[str, str], names: tuple[str, ...]) -> None:
        self.reader = PreparedReader(options, names)
        self.per_trigger = int(options["per_trigger"])

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        pass                                                          # there is nothing new ever

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(self.per_trigger)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": min(start["rows"] + self.per_trigger, self.reader.rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Rows]:
        return [Rows((end["rows"] - start["rows"]) // self.reader.parts) for _ in range(self.reader.parts)]

    def read(self, partition: Rows) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)


class DroppingWriter(DataSourceArrowWriter):
    """Takes the batches that Spark hands over."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class PreparedSource(DataSource):
    """`format("prepared")`."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> PreparedReader:
        return PreparedReader(dict(self.options), tuple(schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        return DroppingWriter()

    def streamReader(self, schema: StructType) -> PreparedStream:
        return PreparedStream(dict(self.options), tuple(schema.names))
