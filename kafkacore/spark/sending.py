"""Rows to records: what stands between Arrow batches and `KafkaProducer.send_many`. No pyspark here.

Memory is bounded by the producer: `send_many` waits while buffer.memory is full. What is kept of a batch is one future, until the outcome
of all its records is known, and the oldest is looked at before the next batch is sent: a task fails soon after its first record did.

Source: org.apache.spark.sql.kafka010.{KafkaRowWriter, KafkaWriteTask}.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from kafkacore import errors
from kafkacore.clock import Clock, SystemClock
from kafkacore.producer import KafkaProducer
from kafkacore.records import HeaderColumn


class RowSender:
    """Sends the rows of one task.

    Attributes:
        rows: how many were handed to the producer.
    """

    def __init__(self, producer: KafkaProducer, topic: str | None = None, *, clock: Clock | None = None) -> None:
        """Starts with nothing sent.

        Args:
            producer: stays the caller's. After an error it may hold records still: it must be closed, not used again.
            topic: of every row, whatever the column topic says; None to go by the column.
            clock: what rows without a timestamp get; the system's by default.
        """
        self._producer = producer
        self._topic = topic
        self._clock: Clock = clock or SystemClock()
        self._open: deque[Any] = deque()
        self.rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Queues the rows of a batch, in their order.

        Args:
            batch: the columns key, value, headers, topic, partition and timestamp, or some of them.

        Raises:
            errors.KafkaError: a row that cannot be a record, or the first record that failed so far.
        """
        while self._open and self._open[0].done():
            self._look_at(self._open.popleft())
        if not batch.num_rows:
            return
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for topic, part in self._by_topic(columns):
            self._open.append(self._send_to(topic, part))
        self.rows += batch.num_rows

    def finish(self) -> int:
        """Waits until every row is acknowledged.

        Returns:
            How many rows.

        Raises:
            errors.KafkaError: the first record that failed.
        """
        failure = None
        try:
            self._producer.flush()
        except errors.DeliveryError as error:
            failure = error
        while self._open:
            self._look_at(self._open.popleft())                     # says more: which record failed first, and where
        if failure is not None:
            raise failure
        return self.rows

    @staticmethod
    def _look_at(future: Any) -> None:
        outcome = future.result()
        if outcome.errors:
            first = outcome.errors[min(outcome.errors)]
            first.add_note(f"{len(outcome.errors)} of the {len(outcome)} records sent with this one to {outcome.topic} failed")
            raise first

    def _by_topic(self, columns: dict[str, pa.Array]) -> list[tuple[str, Mapping[str, pa.Array]]]:
        topics = columns.pop("topic", None)
        if self._topic is not None:
            return [(self._topic, columns)]
        if topics is None:
            raise errors.UsageError("where to write: there is neither an option topic nor a column topic")
        if topics.null_count:
            raise errors.UsageError("a row has no topic: the column topic is null, and there is no option topic")
        coded = topics.dictionary_encode()
        names = coded.dictionary.to_pylist()
        if len(names) <= 1:
            return [(name, columns) for name in names]
        codes = coded.indices.to_numpy()
        order = numpy.argsort(codes, kind="stable")                 # the rows of one topic keep their order
        bounds = numpy.searchsorted(codes[order], numpy.arange(len(names) + 1))
        sorted_columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
        return [
            (topic, {name: column.slice(low, high - low) for name, column in sorted_columns.items()})
            for topic, low, high in zip(names, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]

    def _send_to(self, topic: str, columns: Mapping[str, pa.Array]) -> Any:
        if "value" not in columns:
            raise errors.UsageError(f"there is no column value for the records of topic {topic}", topic=topic)
        given = {name: column for name, column in columns.items() if column.null_count < len(column)}
        settings: dict[str, Any] = {}
        if "partition" in given:
            settings["partitions"] = given["partition"]             # nulls are left to the partitioner
        if "timestamp" in given:
            settings["timestamps_ms"] = self._timestamps_ms(topic, given["timestamp"])
        if "headers" in given:
            settings["headers"] = self._headers(topic, given["headers"])
        return self._producer.send_many(topic, columns["value"], given.get("key"), **settings)

    def _timestamps_ms(self, topic: str, column: pa.Array) -> Any:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        earliest = pc.min(micros).as_py()
        if earliest < 0:
            raise errors.UsageError(f"column timestamp: {earliest / 1e6:f} s since 1970 is negative, which Kafka cannot keep", topic=topic)
        return numpy.floor_divide(micros.fill_null(self._clock.wall_ms() * 1_000).to_numpy(), 1_000)

    @staticmethod
    def _headers(topic: str, column: pa.Array) -> HeaderColumn:
        names, values = column.flatten().flatten()                  # of this slice, without those under a null
        if names.null_count:
            raise errors.UsageError("column headers: a header has no key", topic=topic)
        return HeaderColumn(pc.list_value_length(column).fill_null(0).to_numpy(), names, values)
