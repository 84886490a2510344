"""`format("kafkacore")` for writing: batch and streams, at least once.

A task hands its rows to a producer column by column and is done when every record is acknowledged; the first record that fails fails the
task with its cause. Producers are kept per process, since Spark's workers live longer than tasks.

What has to be known of the order of things:

1. Spark makes writers on the driver, twice per batch for streams, and never on executors: constructors do no I/O.
   [test_all_columns_are_taken_by_a_writer_that_travels]
2. `write` runs in tasks and returns a message; `commit` or `abort` run on the driver with the messages of all tasks, None for a task
   without one. `abort` also comes after a `commit` that raised. A restart replays a batch that was not committed, with its number.
   [test_the_message_says_what_a_second_phase_needs]
3. So a guarantee is four steps, `begin`, `finish`, `commit`, `abort`, and a message that carries from the second to the others what a
   decision about a whole batch needs: which attempt of which batch of which query, since when, and under which producer.
   [test_the_message_says_what_a_second_phase_needs]

Source: org.apache.spark.sql.kafka010.{KafkaWriter, KafkaWriteTask, KafkaStreamingWrite}.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from kafkacore import errors
from kafkacore.producer import KafkaProducer
from kafkacore.spark import secrets, workers
from kafkacore.spark.options import SinkOptions, sink_options
from kafkacore.spark.sending import RowSender

log = logging.getLogger(__name__)

KEPT_PRODUCERS = 4

TEXT = (StringType, BinaryType)
TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": TEXT,
    "value": TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
WANTED = {
    "key": "string or binary",
    "value": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}
READ_ONLY = ("offset", "timestampType")

_kept: dict[tuple[tuple[str, str], ...], KafkaProducer] = {}
_lock = threading.Lock()


def _fits(name: str, given: DataType) -> bool:
    if not isinstance(given, TYPES[name]):
        return False
    if isinstance(given, ArrayType):
        pair = given.elementType
        if not isinstance(pair, StructType) or pair.names != ["key", "value"]:
            return False
        return isinstance(pair["key"].dataType, StringType) and isinstance(pair["value"].dataType, TEXT)
    return True


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
        if not _fits(each.name, each.dataType):
            raise errors.ConfigError(f"column {each.name} must be {WANTED[each.name]}, not {each.dataType.simpleString()}: cast it")
    twice = [name for name in TYPES if schema.names.count(name) > 1]
    if twice:
        raise errors.ConfigError(f"there are two columns {twice[0]}")
    if "value" not in schema.names:
        raise errors.ConfigError("there is no column value, and a record needs one (null makes a tombstone)")
    if options.topic is None and "topic" not in schema.names:
        raise errors.ConfigError("where to write: use the option topic, or a column topic")
    return options


class Task(NamedTuple):
    """Which try of what runs here.

    Attributes:
        partition_id, attempt: the task's number in its stage; 0 for its first try.
        query_id, batch_id: of the stream; None in a batch write.
    """

    partition_id: int
    attempt: int
    query_id: str | None
    batch_id: int | None

    @classmethod
    def current(cls) -> Task:
        """The one this thread runs."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls(0, 0, None, None)
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            context.getLocalProperty("sql.streaming.queryId"),
            None if batch_id is None else int(batch_id),
        )


@dataclass(frozen=True)
class Written(datasource.WriterCommitMessage):
    """What a task has written: its message to the driver.

    Attributes:
        task: which try of which task, of which batch of which query.
        rows: records acknowledged.
        started_ms: since when, on the wall clock: a transaction must end before it is too old.
        transactional_id, producer_id, producer_epoch: whose records they are, if they are in a transaction that is still open.
    """

    task: Task
    rows: int
    started_ms: int
    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1


def _producer(options: SinkOptions) -> KafkaProducer:
    """This process's producer with these settings; those unused for longest are closed when there are many."""
    key = tuple(sorted(options.client.items()))
    closing: list[KafkaProducer] = []
    with _lock:
        found = _kept.pop(key, None)
        if found is None:
            found = KafkaProducer(secrets.resolve_all(options.client))
            while len(_kept) >= KEPT_PRODUCERS:
                closing.append(_kept.pop(next(iter(_kept))))
        _kept[key] = found                                        # the last of the dict: used just now
    for each in closing:
        each.close()
    return found


def _forget(options: SinkOptions) -> None:
    """A task failed: what it left in the producer must not come with the next task's records."""
    with _lock:
        producer = _kept.pop(tuple(sorted(options.client.items())), None)
    if producer is not None:
        producer.close(timeout=0)


class AtLeastOnce:
    """Records are there when the task ends; a task or batch that is run again writes them again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def begin(self, task: Task) -> KafkaProducer:
        """In a task, before its first row."""
        return _producer(self._options)

    def finish(self, task: Task, producer: KafkaProducer, rows: int, started_ms: int) -> Written:
        """In a task, when all its rows are acknowledged."""
        return Written(task, rows, started_ms)

    def failed(self, task: Task) -> None:
        """In a task that goes no further."""
        _forget(self._options)

    def commit(self, messages: Sequence[Written | None], batch_id: int | None) -> None:
        """On the driver, when all tasks are done. Nothing is left to do."""
        log.debug("batch %s: %d records written", batch_id, sum(each.rows for each in messages if each is not None))

    def abort(self, messages: Sequence[Written | None], batch_id: int | None) -> None:
        """On the driver, when a task or the commit failed. Records cannot be taken back: who repeats the write writes them again."""
        there = sum(each.rows for each in messages if each is not None)
        if there:
            log.warning("batch %s failed with %d records written, which stay: they are written again if it is repeated", batch_id, there)


GUARANTEES = {"at_least_once": AtLeastOnce}


class Writer:
    """What batch and stream share. Runs in tasks; picklable."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.guarantee = GUARANTEES[options.guarantee](options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes a task's rows and waits until all are acknowledged.

        Raises:
            errors.KafkaError: the first record that could not be written, with topic and partition.
        """
        task = Task.current()
        started_ms = time.time_ns() // 1_000_000
        try:
            producer = self.guarantee.begin(task)
            sender = RowSender(producer, self.options.topic)
            for batch in iterator:
                sender.send(batch)
            written = self.guarantee.finish(task, producer, sender.finish(), started_ms)
        except BaseException:
            self.guarantee.failed(task)
            raise
        workers.settle()
        return written


class BatchWriter(Writer, datasource.DataSourceArrowWriter):
    """`df.write`."""

    def commit(self, messages: list[Written | None]) -> None:
        """All tasks are done."""
        self.guarantee.commit(messages, None)

    def abort(self, messages: list[Written | None]) -> None:
        """A task failed, or the commit."""
        self.guarantee.abort(messages, None)


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """For `DataSource.writer`."""
    made = BatchWriter(checked(given, schema, overwrite))
    workers.settle()                                                # Spark plans and commits in workers, too
    return made


_StreamBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


class StreamWriter(Writer, _StreamBase):
    """`df.writeStream`."""

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """All tasks of a batch are done."""
        self.guarantee.commit(messages, batchId)

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        """A task failed, or the commit."""
        self.guarantee.abort(messages, batchId)


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """For `DataSource.streamWriter`; Spark 4.0 cannot hand Arrow to a stream's sink.

    Args:
        given: the options.
        schema: of the rows.
        overwrite: complete mode: every batch is the whole result, written again, as Spark's own Kafka sink does.
    """
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise errors.UsageError("streaming writes need pyspark 4.1 or later; with 4.0 use kafkacore.spark.foreach_batch")
    made = StreamWriter(checked(given, schema, overwrite=False))
    workers.settle()
    return made
