"""`format("kafkacore")` for writing: batch and streams, at least once.

A task hands its rows to `KafkaProducer.send_many` column by column and is done when every record is acknowledged; the first record that
fails fails the task with its cause. Producers are kept per process, as consumers are.

What a task reports (`Written`) and where it is committed are apart, so that a guarantee with a second phase can be put between them.

Source: org.apache.spark.sql.kafka010.{KafkaWriter, KafkaWriteTask}.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampNTZType, TimestampType

from kafkacore import errors
from kafkacore.producer import KafkaProducer
from kafkacore.spark import secrets
from kafkacore.spark.options import SinkOptions, sink_options

TEXT = (StringType, BinaryType)
TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT,
    "value": TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, TimestampNTZType),
}
READ_ONLY = ("offset", "timestampType")

_kept: dict[tuple[tuple[str, str], ...], KafkaProducer] = {}
_lock = threading.Lock()


def checked(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    """The options of a write whose rows have this schema.

    Raises:
        errors.ConfigError: an option or a column that cannot be written.
    """
    if overwrite:
        raise errors.ConfigError("save mode overwrite is not possible for Kafka: a topic only grows; use append")
    options = sink_options(given)
    for each in schema.fields:
        if each.name in READ_ONLY:
            raise errors.ConfigError(f"column {each.name} is the broker's to give: drop it, or select the columns to write")
        if each.name not in TYPES:
            raise errors.ConfigError(f"column {each.name} would be lost: Kafka records have the columns {', '.join(TYPES)}")
        if not isinstance(each.dataType, TYPES[each.name]):
            wanted = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in TYPES[each.name])
            raise errors.ConfigError(f"column {each.name} must be {wanted}, not {each.dataType.simpleString()}")
    if "value" not in schema.names:
        raise errors.ConfigError("there is no column value, and a record needs one (null makes a tombstone)")
    if options.topic is None and "topic" not in schema.names:
        raise errors.ConfigError("where to write: use the option topic, or a column topic")
    return options


@dataclass
class Written(datasource.WriterCommitMessage):
    """What a task has written.

    Attributes:
        partition_id: the task's number.
        rows: records acknowledged.
    """

    partition_id: int
    rows: int


def _producer(options: SinkOptions) -> KafkaProducer:
    key = tuple(sorted(options.client.items()))
    with _lock:
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = KafkaProducer(secrets.resolve_all(options.client))
        return found


def _forget(options: SinkOptions) -> None:
    """A task failed: what it left in the producer must not come with the next task's records."""
    with _lock:
        producer = _kept.pop(tuple(sorted(options.client.items())), None)
    if producer is not None:
        producer.close(timeout=0)


class Writer:
    """What batch and stream share. Runs in tasks; picklable."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Writes a task's rows and waits until all are acknowledged.

        Raises:
            errors.KafkaError: the first record that could not be written, with topic and partition.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        rows = 0
        try:
            producer = _producer(self.options)
            futures = []
            for batch in batches:
                rows += batch.num_rows
                futures += self._send(producer, batch)
            producer.flush()
            for each in futures:
                each.result()
        except BaseException:
            _forget(self.options)
            raise
        return Written(-1 if context is None else context.partitionId(), rows)

    def _send(self, producer: KafkaProducer, batch: pa.RecordBatch) -> list[Any]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        topics = columns.pop("topic", None)
        if self.options.topic is not None:
            return self._send_runs(producer, self.options.topic, columns)
        if topics.null_count:
            raise errors.UsageError("a row has no topic: the column topic is null, and there is no option topic")
        names = pc.unique(topics).to_pylist()
        if len(names) == 1:
            return self._send_runs(producer, names[0], columns)
        sent = []
        for name in names:
            mask = pc.equal(topics, name)
            sent += self._send_runs(producer, name, {key: column.filter(mask) for key, column in columns.items()})
        return sent

    def _send_runs(self, producer: KafkaProducer, topic: str, columns: Mapping[str, pa.Array]) -> list[Any]:
        """Rows with a partition and rows that leave it to the partitioner go apart, in their order."""
        partitions = columns.get("partition")
        if partitions is None or partitions.null_count in (0, len(partitions)):
            return [self._send_to(producer, topic, columns)]
        edges = numpy.flatnonzero(numpy.diff(partitions.is_null().to_numpy(zero_copy_only=False))) + 1
        bounds = [0, *edges.tolist(), len(partitions)]
        return [
            self._send_to(producer, topic, {key: column.slice(low, high - low) for key, column in columns.items()})
            for low, high in itertools.pairwise(bounds)
        ]

    def _send_to(self, producer: KafkaProducer, topic: str, columns: Mapping[str, pa.Array]) -> Any:
        settings: dict[str, Any] = {}
        partitions = columns.get("partition")
        if partitions is not None and partitions.null_count < len(partitions):
            settings["partitions"] = partitions.to_numpy()
        timestamps = columns.get("timestamp")
        if timestamps is not None and timestamps.null_count < len(timestamps):
            micros = timestamps.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(time.time_ns() // 1_000)
            settings["timestamps_ms"] = numpy.floor_divide(micros.to_numpy(), 1_000)
        headers = columns.get("headers")
        if headers is not None and headers.null_count < len(headers):
            settings["headers"] = [None if each is None else [(one["key"], one["value"]) for one in each] for each in headers.to_pylist()]
        return producer.send_many(topic, columns["value"], columns.get("key"), **settings)


class BatchWriter(Writer, datasource.DataSourceArrowWriter):
    """`df.write`."""

    def commit(self, messages: list[Written | None]) -> None:
        """Everything has been acknowledged by the tasks."""

    def abort(self, messages: list[Written | None]) -> None:
        """Records cannot be taken back: the write is at least once."""


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """For `DataSource.writer`."""
    return BatchWriter(checked(given, schema, overwrite))


_StreamBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


class StreamWriter(Writer, _StreamBase):
    """`df.writeStream`."""

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """Everything has been acknowledged by the tasks."""

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        """Records cannot be taken back: the write is at least once."""


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """For `DataSource.streamWriter`; Spark 4.0 cannot hand Arrow to a stream's sink.

    Args:
        given: the options.
        schema: of the rows.
        overwrite: complete mode: every batch is the whole result, written again.
    """
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise errors.UsageError("streaming writes need pyspark 4.1 or later; with 4.0 use foreachBatch and df.write")
    return StreamWriter(checked(given, schema, overwrite=False))
