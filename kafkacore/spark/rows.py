"""Records as Spark's rows: the columns of its own Kafka source, as Arrow batches without an object per row.

Columns that are the same in all rows of a batch (topic, partition) are slices of arrays made once; offsets and timestamps are views of what
the fetch decoded; keys and values are copied once. Arrays are made of buffers: `pa.array`, `pa.scalar` and `pa.repeat` load pandas if it is
there, a third of a worker's first second.

Source: org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import pyarrow as pa

from kafkacore.errors import ConfigError
from kafkacore.records import RecordColumns

MAX_BATCH_ROWS = 50_000
MAX_BATCH_BYTES = 16 << 20

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
KAFKA_COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


class RowBuilder:
    """Turns fetched columns into record batches of some of the Kafka columns."""

    def __init__(self, topic: str, partition: int, names: Sequence[str]) -> None:
        """Prepares for one partition.

        Args:
            topic, partition: of the records.
            names: the columns wanted, in order.

        Raises:
            ConfigError: there is no such column.
        """
        self._constants: dict[str, Callable[[int], Any]] = {
            "topic": lambda count: _repeated(topic.encode(), count),
            "partition": lambda count: _integers(numpy.full(count, partition, "int32")),
        }
        unknown = [name for name in names if name not in KAFKA_COLUMNS]
        if unknown:
            raise ConfigError(f"there is no column {unknown[0]}; the columns of a read are {', '.join(KAFKA_COLUMNS)}")
        self._names = tuple(names)
        self._schema = pa.schema([(name, KAFKA_COLUMNS[name]) for name in names])
        self._made: dict[str, Any] = {}

    def batches(self, columns: RecordColumns, end: int) -> Iterator[pa.RecordBatch]:
        """The records below an offset.

        Args:
            columns: as fetched.
            end: offsets from here on are left out.

        Yields:
            Batches of at most MAX_BATCH_ROWS rows and about MAX_BATCH_BYTES.
        """
        batch = self.batch(columns)
        rows = int(numpy.searchsorted(columns.offsets, end)) if len(columns) and columns.offsets[-1] >= end else len(columns)
        if not rows:
            return
        pieces = max(-(-rows // MAX_BATCH_ROWS), -(-batch.nbytes // MAX_BATCH_BYTES))
        step = max(1, -(-rows // pieces))
        for start in range(0, rows, step):
            yield batch.slice(start, min(step, rows - start))

    def batch(self, columns: RecordColumns) -> pa.RecordBatch:
        """All records of a fetch as one batch."""
        return pa.RecordBatch.from_arrays([self._column(name, columns) for name in self._names], schema=self._schema)

    def _column(self, name: str, columns: RecordColumns) -> Any:
        count = len(columns)
        if name == "value":
            return columns.values.to_arrow()
        if name == "key":
            return columns.keys.to_arrow()
        if name == "offset":
            return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)])
        if name == "timestamp":
            return pa.Array.from_buffers(pa.timestamp("us", "UTC"), count, [None, pa.py_buffer(columns.timestamps_ms * 1000)])
        if name == "timestampType":
            return _integers(columns.timestamp_types)
        if name == "headers":
            return columns.headers_to_arrow(HEADERS, none_is_null=True)
        made = self._made.get(name)
        if made is None or len(made) < count:
            made = self._made[name] = self._constants[name](count if made is None else max(count, MAX_BATCH_ROWS))
        return made.slice(0, count)


def _integers(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])


def _repeated(text: bytes, count: int) -> pa.Array:
    if len(text) * count > 0x7FFFFFFF:
        raise OverflowError(f"{count} rows of one fetch: their topics alone take more than 2 GiB; fetch fewer bytes at once")
    ends = numpy.arange(count + 1, dtype="int32") * numpy.int32(len(text))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])
