"""Rows of a decoded read: the value's fields beside Kafka's columns, and what becomes of values that cannot be decoded.

Source: org.apache.spark.sql.catalyst.util.FailureSafeParser.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from kafkacore import errors
from kafkacore.decode.base import RowFailed
from kafkacore.producer import KafkaProducer
from kafkacore.records import RecordColumns
from kafkacore.spark import formats, secrets
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.rows import MAX_BATCH_BYTES, MAX_BATCH_ROWS, RowBuilder

log = logging.getLogger(__name__)

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
            is_done = False
            try:
                if kind is None or kind is GeneratorExit:
                    self._letters.flush()
                    is_done = True
            finally:
                if not is_done:
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

VALUE_BYTES = 4096
SHORT_BYTES = 256

_kept: dict[tuple[tuple[str, str], ...], KafkaProducer] = {}
_lock = threading.Lock()


class Letter:
    """A record as it is sent to the dead letters.

    Attributes:
        record: as it was read.
        key, value, headers: as they are sent.
        is_cut: whether something of the record is left out; a header says what.
    """

    def __init__(self, record: Any, why: str, cut: tuple[str, ...] = ()) -> None:
        """Makes the record that is sent.

        Args:
            record: as it was read.
            why: it cannot be decoded.
            cut: what is left out of it: "value", and "key" and "headers" with it.
        """
        self.record, self.is_cut = record, bool(cut)
        self._why, self._cut = why, cut
        self.value = record.value[: SHORT_BYTES if "key" in cut else VALUE_BYTES] if cut else record.value
        self.key = record.key[:SHORT_BYTES] if "key" in cut and record.key is not None else record.key
        own = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "reason": why[:SHORT_BYTES] if cut else why,
        }
        if cut:
            own |= {"cut": ",".join(cut), "value.bytes": len(record.value)}
        if "key" in cut:
            own |= {"key.bytes": len(record.key or b""), "headers.count": len(record.headers or ())}
        of_record = () if "headers" in cut else record.headers or ()
        self.headers = [*of_record, *((HEADER + name, str(each).encode("utf-8", "replace")) for name, each in own.items())]

    def less(self) -> Letter | None:
        """The same with less of the record; None if little is left to leave out."""
        if not self._cut and len(self.record.value) > VALUE_BYTES:
            return Letter(self.record, self._why, ("value",))
        return Letter(self.record, self._why, ("value", "key", "headers")) if "key" not in self._cut else None


class DeadLetters:
    """Sends records as they are to another topic. The producer, made when there is something to send, stays for the process's next task.

    A record that the topic does not take because of its size is sent again, cut: a value that cannot be decoded must not stop a query.

    Attributes:
        cut: how many were cut so far.
    """

    def __init__(self, options: SourceOptions, topic: str) -> None:
        """Prepares; opens nothing yet.

        Args:
            options: of the read, with the settings of the producer.
            topic: where to.
        """
        self._settings = options.dead_letter_client
        self._topic = topic
        self._open: deque[tuple[Any, Letter]] = deque()
        self._has_failed = False
        self.cut = 0

    def send(self, record: Any, why: str) -> None:
        """Queues one record, with headers that say where it was and why it is here.

        Raises:
            errors.DeliveryError: it cannot be sent, or one before it was not.
        """
        while self._open and self._open[0][0].done():
            self._look_at(*self._open.popleft())
        self._queue(Letter(record, why))

    def flush(self) -> None:
        """Waits until all are acknowledged.

        Raises:
            errors.DeliveryError: of the first that is not, with its cause.
        """
        while self._open:
            with contextlib.suppress(errors.DeliveryError):        # the futures say more: which record, and why
                self._producer().flush()
            for _ in range(len(self._open)):
                self._look_at(*self._open.popleft())

    def _look_at(self, future: Any, letter: Letter) -> None:
        try:
            future.result()
        except (errors.RecordTooLarge, errors.RecordBatchTooLarge) as error:
            self._send_less(letter, error)
        except errors.KafkaError as error:
            raise self._failed(error) from error

    def _queue(self, letter: Letter) -> None:
        try:
            future = self._producer().send(self._topic, letter.value, key=letter.key, headers=letter.headers)
        except errors.RecordTooLarge as error:
            self._send_less(letter, error)
        except errors.KafkaError as error:
            raise self._failed(error) from error
        else:
            self._open.append((future, letter))

    def _send_less(self, letter: Letter, error: errors.KafkaError) -> None:
        less = letter.less()
        if less is None:
            raise self._failed(error) from error
        if not letter.is_cut:
            self.cut += 1
            record = letter.record
            log.warning(
                "%s-%d, offset %d: a value that cannot be decoded (%d bytes) is too large for topic %s and is sent cut (%d so far): %s",
                *(record.topic, record.partition, record.offset, len(record.value), self._topic, self.cut, error),
            )
        self._queue(less)

    def _failed(self, error: errors.KafkaError) -> errors.DeliveryError:
        self._has_failed = True
        return errors.DeliveryError(
            f"values that cannot be decoded could not be sent to the option deadLetterTopic: {error}", topic=self._topic
        )

    def discard(self) -> None:
        """Drops what is queued, and the producer with it."""
        if self._open or self._has_failed:                          # after some errors a producer takes nothing any more
            self._open.clear()
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
