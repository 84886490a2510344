"""Rows of a decoded read: the value's fields beside Kafka's columns, and what becomes of values that cannot be decoded.

Source: org.apache.spark.sql.catalyst.util.FailureSafeParser.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from kafkacore import errors
from kafkacore.config import ClientConfig
from kafkacore.decode.base import RowFailed
from kafkacore.producer import KafkaProducer
from kafkacore.records import RecordColumns
from kafkacore.spark import formats, secrets
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.rows import MAX_BATCH_BYTES, MAX_BATCH_ROWS, RowBuilder

HEADER = "__kafkacore.errors."


class DecodedRows:
    """Turns fetched columns of one partition into record batches of a decoded read."""

    def __init__(self, options: SourceOptions, topic: str, partition: int, schema: pa.Schema) -> None:
        """Prepares for one partition.

        Args:
            options: of the read.
            topic, partition: of the records.
            schema: of the rows.

        Raises:
            ConfigError: a column that cannot be.
        """
        self._options, self._schema = options, schema
        self._topic, self._partition = topic, partition
        fields = formats.value_fields(schema, options)
        self._kafka = {each.name: name for each in schema if (name := formats.kafka_column(each.name, options)) is not None}
        self._builder = RowBuilder(topic, partition, ("value", *dict.fromkeys(self._kafka.values())))
        self._wants_corrupt = formats.CORRUPT in schema.names
        # No column of the query would show whether a value can be decoded.
        idle = not fields and not self._wants_corrupt and options.mode in ("permissive", "rowwise") and options.dead_letter_topic is None
        self._decoder = None if idle else formats.decoder(options, fields)
        self._names = [each.name for each in fields]
        self._letters = None if options.dead_letter_topic is None else DeadLetters(options, options.dead_letter_topic)

    def batches(self, columns: RecordColumns, end: int) -> Iterator[pa.RecordBatch]:
        """The records below an offset.

        Args:
            columns: as fetched.
            end: offsets from here on are left out.

        Yields:
            Batches of at most MAX_BATCH_ROWS rows and about MAX_BATCH_BYTES of values.

        Raises:
            errors.CorruptDataError: with mode=failfast: the first value that cannot be decoded.
        """
        rows = int(numpy.searchsorted(columns.offsets, end)) if len(columns) and columns.offsets[-1] >= end else len(columns)
        if not rows:
            return
        batch = self._builder.batch(columns)
        step = min(MAX_BATCH_ROWS, max(1, rows * MAX_BATCH_BYTES // max(batch.nbytes, 1)))
        for start in range(0, rows, step):
            yield self._decoded(columns, batch.slice(start, min(step, rows - start)), start)

    def __enter__(self) -> DecodedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The end of a task: it is not done before what could not be decoded is where it was sent to.

        Raises:
            errors.DeliveryError: it is not.
        """
        if self._letters is not None:
            # Spark closes the generator when it needs no more rows: what has been read is dealt with then too.
            if kind is None or kind is GeneratorExit:
                self._letters.flush()
            else:
                self._letters.discard()

    def _decoded(self, columns: RecordColumns, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        values = batch.column(0)
        found: dict[str, Any] = {}
        mask = None
        if self._decoder is not None:
            try:
                decoded = self._decoder.decode(values)
            except RowFailed as failed:
                error = failed.error
                error.topic, error.partition, error.offset = self._topic, self._partition, int(columns.offsets[start + failed.row])
                raise error from None
            found = dict(zip(self._names, decoded.columns, strict=True))
            mask = decoded.mask
            if decoded.faults:
                self._tell(columns, decoded.faults, start)
        kafka = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays = []
        for each in self._schema:
            if each.name == formats.CORRUPT:
                nothing = pa.scalar(None, pa.binary())
                arrays.append(pa.nulls(len(values), pa.binary()) if mask is None else pc.if_else(mask, values, nothing))
            else:
                arrays.append(kafka[self._kafka[each.name]] if each.name in self._kafka else found[each.name])
        made = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if mask is not None and self._options.mode == "dropmalformed":
            return made.filter(pc.invert(mask))
        return made

    def _tell(self, columns: RecordColumns, faults: dict[int, str], start: int) -> None:
        if self._options.mode == "failfast":
            row = min(faults)
            raise errors.CorruptDataError(
                f"the value is not what value.format={self._options.value_format} and the schema say: {faults[row]}",
                topic=self._topic,
                partition=self._partition,
                offset=int(columns.offsets[start + row]),
            )
        if self._letters is not None:
            for row in sorted(faults):
                self._letters.send(columns[start + row], faults[row])


# ---- dead letters --------------------------------------------------------------------------------------------------------------------

_kept: dict[tuple[tuple[str, str], ...], KafkaProducer] = {}
_lock = threading.Lock()


class DeadLetters:
    """Sends records as they are to another topic. The producer, made when there is something to send, stays for the process's next task."""

    def __init__(self, options: SourceOptions, topic: str) -> None:
        """Prepares; opens nothing yet.

        Args:
            options: of the read: the same brokers are written to.
            topic: where to.
        """
        known = {*ClientConfig.names(), "allow_auto_create_topics"}
        self._settings = {name: value for name, value in options.client.items() if name.replace(".", "_") in known}
        self._topic = topic
        self._futures: list[Any] = []

    def send(self, record: Any, why: str) -> None:
        """Queues one record, with headers that say where it was and why it is here."""
        headers = [
            *(record.headers or ()),
            (HEADER + "topic", record.topic.encode()),
            (HEADER + "partition", str(record.partition).encode()),
            (HEADER + "offset", str(record.offset).encode()),
            (HEADER + "reason", why.encode("utf-8", "replace")),
        ]
        self._futures.append(self._producer().send(self._topic, record.value, key=record.key, headers=headers))

    def flush(self) -> None:
        """Waits until all are acknowledged.

        Raises:
            errors.KafkaError: the first that is not, with its cause.
        """
        if not self._futures:
            return
        futures, self._futures = self._futures, []
        try:
            self._producer().flush()
            for each in futures:
                each.result()
        except errors.KafkaError as error:
            raise errors.DeliveryError(
                f"values that cannot be decoded could not be sent to the option deadLetterTopic: {error}", topic=self._topic
            ) from error

    def discard(self) -> None:
        """Drops what is queued, and the producer with it."""
        if self._futures:
            self._futures = []
            with _lock:
                producer = _kept.pop(self._key, None)
            if producer is not None:
                producer.close(timeout=0)

    @property
    def _key(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self._settings.items()))

    def _producer(self) -> KafkaProducer:
        with _lock:
            found = _kept.get(self._key)
            if found is None:
                found = _kept[self._key] = KafkaProducer(secrets.resolve_all(self._settings))
            return found
