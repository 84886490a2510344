"""The fast path: Spark plans ranges of offsets, `mapInArrow` fetches them: the rows of `format("kafkacore")` with less of Spark between.

A Python data source hands its rows through Spark's row format; `mapInArrow` hands Arrow batches over as they are. So the source is asked
for ranges alone (`emit=ranges`: one row per range, in Spark's log like any other row), and a function fetches and decodes them with the
source's own reader. What it costs: Spark's progress counts ranges, not records, and pandas must be installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from kafkacore import errors
from kafkacore.spark.offsets import OffsetRange
from kafkacore.spark.options import option_text, sink_options, source_options
from kafkacore.spark.source import KafkaBatchReader, KafkaSource, RangePartition

FORMAT = "kafkacore"


class Fetch:
    """What `mapInArrow` calls on rows of `emit=ranges`. Picklable; made by `fetch`.

    Attributes:
        schema: of the rows it yields.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Checks the options; no I/O.

        Args:
            given: the options of the read; those that say where it begins and ends have done their work in the ranges.
            schema: the columns wanted.
        """
        self.schema = schema
        self._given = {name: value for name, value in given.items() if name.lower() != "emit"}
        self._reader()

    def _reader(self) -> KafkaBatchReader:
        error = None
        for streaming in (False, True):
            try:
                return KafkaBatchReader(source_options(self._given, streaming=streaming), self.schema)
            except errors.ConfigError as refused:
                error = refused
        assert error is not None
        raise error

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: the records of the ranges, in order."""
        reader = self._reader()
        for batch in batches:
            for row in batch.to_pylist():
                yield from reader.read(RangePartition(OffsetRange(**row)))


def _parsed(schema: StructType | str | None, given: Mapping[str, str]) -> StructType:
    if schema is None:
        return KafkaSource(dict(given)).schema()
    return StructType.fromDDL(schema) if isinstance(schema, str) else schema


def fetch(schema: StructType | str | None = None, **options: Any) -> Fetch:
    """The function for `mapInArrow(function, function.schema)` on rows of `option("emit", "ranges")`.

    Args:
        schema: the columns wanted, as for `.schema()`; None for Kafka's columns.
        **options: as for `read`, the same that the ranges were planned with.

    Raises:
        errors.ConfigError: an option is refused.
    """
    given = option_text(options)
    return Fetch(given, _parsed(schema, given))


def _rows(reader: Any, schema: StructType | str | None, options: Mapping[str, Any]) -> Any:
    given = option_text(options)
    if "emit" in map(str.lower, given):
        raise errors.ConfigError("option emit is the fast path's own: leave it out")
    rows = Fetch(given, _parsed(schema, given))
    return reader.format(FORMAT).options(**given, emit="ranges").load().mapInArrow(rows, rows.schema)


def read(spark: Any, /, schema: StructType | str | None = None, **options: Any) -> Any:
    """As `spark.read.format("kafkacore").schema(schema).options(**options).load()`, faster.

    Args:
        spark: the session.
        schema: the columns wanted; None for Kafka's columns.
        **options: the source's options; dots may be written as underscores, as kafka_bootstrap_servers.

    Returns:
        The DataFrame.

    Raises:
        errors.ConfigError: an option is refused.
    """
    source_options(option_text(options), streaming=False)
    return _rows(spark.read, schema, options)


def stream(spark: Any, /, schema: StructType | str | None = None, **options: Any) -> Any:
    """As `spark.readStream.format("kafkacore").schema(schema).options(**options).load()`, faster.

    Spark's progress counts ranges in numInputRows; its offsets, and so lag and checkpoints, are the same.

    Args:
        spark: the session.
        schema: the columns wanted; None for Kafka's columns.
        **options: as for `read`.

    Returns:
        The streaming DataFrame.

    Raises:
        errors.ConfigError: an option is refused.
    """
    source_options(option_text(options), streaming=True)
    return _rows(spark.readStream, schema, options)


class BatchWrite:
    """What `foreachBatch` calls. Picklable, as Spark Connect wants it; made by `foreach_batch`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Checks the options; no I/O."""
        sink_options(given)
        self._given = dict(given)

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Writes one batch."""
        frame.write.format(FORMAT).mode("append").options(**self._given).save()


def foreach_batch(options: Mapping[str, Any] | None = None, /, **more: Any) -> BatchWrite:
    """For `writeStream.foreachBatch`: writes each batch to Kafka, in every output mode, also update, which Spark denies a Python sink.

    Args:
        options: the sink's options.
        **more: further ones; dots may be written as underscores.

    Raises:
        errors.ConfigError: an option is refused.
    """
    return BatchWrite(option_text({**(options or {}), **more}))


def sink(frame: Any, /, **options: Any) -> Any:
    """Writes a DataFrame to Kafka.

    Args:
        frame: with the columns key, value, headers, topic, partition, timestamp, or some of them, value among them.
        **options: the sink's options; dots may be written as underscores.

    Returns:
        For a streaming frame its `DataStreamWriter`, any output mode, to be given a checkpointLocation and a trigger and started. Nothing
        for a batch, which is written when this returns.

    Raises:
        errors.ConfigError: an option is refused.
    """
    write = foreach_batch(**options)
    if frame.isStreaming:
        return frame.writeStream.foreachBatch(write)
    write(frame, 0)
    return None
