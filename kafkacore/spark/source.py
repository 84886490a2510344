"""`format("kafkacore")` for reading: batch and micro-batch streams.

What Spark does with these classes, and what follows from it:

1. Constructors run several times, on the driver and in planner processes: they do no I/O. [test_constructors_ask_nobody]
2. Options are checked in the constructor, since an error raised by `streamReader()` is masked by Spark 4.3, and `schema()` is not called
   where a schema is given. It does not know whether there will be a read or a write, a batch or a stream: what fits none is refused.
   [test_options_are_checked_when_the_source_is_made_with_or_without_a_schema, test_what_fits_one_kind_of_read_or_write_is_let_through]
3. A batch that is replayed after a crash calls `partitions(start, end)` only: the split is a pure function of arguments and options.
   [test_tasks_are_cut_the_same_way_when_a_batch_is_replayed]
4. While nothing arrives Spark asks `latestOffset` about every 12 ms: the longer nothing has come, the longer it waits there, up to
   IDLE_POLL_MS. It never waits while there is something to read. [test_the_longer_nothing_comes_the_longer_the_source_waits]
5. `commit(end)` never comes for the last batch, but `latestOffset(start)` comes when the batch before is in Spark's commit log.
   [test_offsets_show_in_the_group_and_a_missing_coordinator_is_a_warning]
6. The source of a stream is not pickled; partitions are, so they hold the range and nothing else. [test_batches_have_sparks_types_exactly]
7. Spark does not log `initialOffset`: batch 0 that is replayed begins at what a new process answers. So a start that is not a number is
   pinned: batch 0 ends where it begins, which Spark logs. Spark runs batch 0 even if it is empty. Only Trigger.Once, which runs one
   batch, gets what there is; it is the trigger that passes ReadAllAvailable, because the default limit is never that.
   [test_a_first_batch_that_is_replayed_loses_nothing, test_a_start_by_numbers_needs_no_empty_batch,
   test_once_takes_what_is_there_in_its_only_batch]

Source: SPARK-55304, org.apache.spark.sql.kafka010.{KafkaBatch, KafkaMicroBatchStream}.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from kafkacore import errors
from kafkacore.cluster_snapshot import ZERO_ID
from kafkacore.spark import clients, offsets, workers
from kafkacore.spark.offsets import Loss, OffsetRange, Offsets, Partition
from kafkacore.spark.options import SourceOptions, sink_options, source_options

log = logging.getLogger(__name__)

IDLE_POLL_MS = 50
IDLE_SHARE = 0.1
GROUP_COMMIT_TIMEOUT_S = 5.0
GROUP_COMMIT_PAUSE_S = 30.0
KEPT = "; where its records kept their offsets, as in a mirrored cluster, checkTopicIds=false goes on"
UNLIMITED = (1 << 63) - 1
"""Rows of a batch where no option limits them: ReadAllAvailable is how Trigger.Once is recognized."""
KAFKA_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RANGES = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())])
WITH_HEADERS = StructType([*KAFKA_SCHEMA.fields, StructField("headers", HEADERS_TYPE)])
RANGES_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)
ADMISSION_CONTROL = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)

if ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
else:  # 4.0 and 4.1 ask latestOffset() without a limit

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Not in this Spark, nor are the others: nothing is an instance of them."""

    ReadAllAvailable = ReadMaxRows = ReadMinRows = SupportsTriggerAvailableNow


class RangePartition(InputPartition):
    """One task: offsets of one partition, or few of each of several."""

    def __init__(self, *ranges: OffsetRange) -> None:
        self.ranges = ranges

    def __repr__(self) -> str:
        return ", ".join(f"{each.topic}-{each.partition}[{each.start}, {each.end})" for each in self.ranges)


class KafkaSource(DataSource):
    """The data source that Spark finds as `kafkacore`."""

    def __init__(self, options: dict[str, str]) -> None:
        """Checks the options; no I/O.

        Raises:
            errors.ConfigError: they fit neither a read nor a write.
        """
        super().__init__(options)
        check(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafkacore"

    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source; of a decoded read, those of the value."""
        try:
            return self._schema(either_options(self.options))
        finally:
            workers.settle()                                        # Spark makes and plans every query in workers, too

    @staticmethod
    def _schema(options: SourceOptions) -> StructType:
        if options.emit == "ranges":
            return RANGES_SCHEMA
        if options.value_format == "binary":
            return WITH_HEADERS if options.include_headers else KAFKA_SCHEMA
        if options.value_format == "string":
            fields = (WITH_HEADERS if options.include_headers else KAFKA_SCHEMA).fields
            return StructType([StructField("value", StringType()) if each.name == "value" else each for each in fields])
        from kafkacore.spark import formats

        return from_arrow_schema(formats.derived(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        workers.settle()
        return KafkaBatchReader(source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream."""
        try:
            options = source_options(self.options, streaming=True)
            if not ADMISSION_CONTROL and (options.max_offsets is not None or options.min_offsets is not None):
                fault = "options maxOffsetsPerTrigger and minOffsetsPerTrigger need pyspark 4.2 or later"
                raise errors.ConfigError(f"{fault}, this is {pyspark.__version__}")
            return KafkaStreamReader(options, schema)
        except errors.ConfigError as error:
            return _Refused(error)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """A batch write."""
        from kafkacore.spark import writer

        return writer.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """A stream's sink."""
        from kafkacore.spark import writer

        return writer.stream_writer(self.options, schema, overwrite)


def wanted_columns(schema: StructType, options: SourceOptions) -> Any:
    """The columns a read is to have: names, or the Arrow schema of a decoded read.

    Raises:
        errors.ConfigError: there is no such column, or it has another type.
    """
    if options.value_format != "binary":
        from kafkacore.spark import formats

        utc = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # before PySpark 4.2 it always is
        made = to_arrow_schema(schema, **utc)
        formats.value_fields(made, options)
        return made
    types = {each.name: each.dataType for each in WITH_HEADERS.fields}
    for each in schema.fields:
        if each.name not in types:
            raise errors.ConfigError(f"there is no column {each.name}; the columns of a read are {', '.join(types)}")
        if each.dataType != types[each.name]:
            raise errors.ConfigError(f"column {each.name} is {types[each.name].simpleString()}, not {each.dataType.simpleString()}")
    return tuple(schema.names)


def check(given: Mapping[str, str]) -> None:
    """Whether the options fit any kind of read or write.

    Raises:
        errors.ConfigError: they fit none. Of the reasons that of the kind that the options name topics for.
    """
    try:
        either_options(given)
    except errors.ConfigError as of_read:
        if not {"subscribe", "subscribepattern", "assign"}.isdisjoint(map(str.lower, given)):
            raise
        try:
            sink_options(given)
        except errors.ConfigError as of_write:
            raise (of_write if "topic" in map(str.lower, given) else of_read) from None


def either_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a read, before Spark has said whether it is to be a stream: what would be wrong for both is said now.

    Raises:
        errors.ConfigError: they fit neither. Of the two reasons the one that is not about the kind of read.
    """
    refused = []
    for streaming in (True, False):
        try:
            return source_options(given, streaming=streaming)
        except errors.ConfigError as error:
            refused.append(error)
    raise min(refused, key=lambda error: "has no effect in a" in str(error)) from None


class _Refused(DataSourceStreamReader):
    """In place of a stream that cannot be: says why when Spark asks the first thing, since it loses errors raised before."""

    def __init__(self, error: errors.ConfigError) -> None:
        self._error = error

    def initialOffset(self, *_: Any) -> Any:
        """Raises, whatever it is asked: a stream that goes on begins with its latest offset, from one to a limit."""
        raise self._error

    latestOffset = partitions = read = initialOffset


class _Reading:
    """What batch and stream share: planning and reading ranges.

    Attributes:
        tolerated: how many losses the query has tolerated since it started, each of one partition.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.tolerated = 0
        if options.emit == "ranges" and schema != RANGES_SCHEMA:
            raise errors.ConfigError(f"with emit=ranges the columns are {RANGES_SCHEMA.simpleString()}, not {schema.simpleString()}")
        self.columns = () if options.emit == "ranges" else wanted_columns(schema, options)

    def planned(self, ranges: list[OffsetRange]) -> list[RangePartition]:
        """The tasks. One at least: Spark takes no plan without partitions."""
        pieces = offsets.split(ranges, self.options.min_partitions, self.options.max_records)
        least = workers.parallelism() if self.options.join_down_to is None else self.options.join_down_to
        as_they_are = not least or self.options.min_partitions is not None or self.options.max_records is not None
        tasks: Sequence[list[OffsetRange]] = [[each] for each in pieces] if as_they_are else offsets.joined(pieces, least)
        if self.options.max_partitions is not None:
            tasks = offsets.at_most(tasks, self.options.max_partitions)
        return [RangePartition(*each) for each in tasks] or [RangePartition()]

    def read(self, partition: RangePartition) -> Iterator[Any]:
        """Runs in a task."""
        for each in partition.ranges:
            if self.options.emit == "ranges" and each.size:
                yield pa.RecordBatch.from_pylist([each._asdict()], RANGES)
            elif each.size:
                yield from clients.read(self.options, each, self.columns)

    def tolerate(self, start: dict[Partition, int], lost: Sequence[offsets.Loss]) -> dict[Partition, int]:
        """The offsets to read from instead of those that are lost.

        Raises:
            errors.OffsetOutOfRange: with onDataLoss=fail; names every partition.
        """
        if not lost:
            return start
        text = "; ".join(map(str, lost))
        if self.options.on_data_loss == "fail":
            raise errors.OffsetOutOfRange(
                f"records have been lost: {text}. With the option onDataLoss=earliest (or failOnDataLoss=false) the query goes on with "
                "what there is, with onDataLoss=skip behind it",
                topic=lost[0].topic,
                partition=lost[0].partition,
                offset=lost[0].wanted,
            )
        self.tolerated += len(lost)
        log.warning(
            "records have been lost, the query goes on with onDataLoss=%s: %s (%d losses since it started)",
            self.options.on_data_loss,
            text,
            self.tolerated,
        )
        return offsets.repaired(start, lost, skip=self.options.on_data_loss == "skip")


    def _within(self, wanted: Mapping[Partition, int], latest: Mapping[Partition, int], what: str = "begin") -> dict[Partition, int]:
        """Offsets no later than the ends of their partitions.

        Args:
            wanted: where reading is to begin or end.
            latest: the ends.
            what: "begin" or "end".

        Raises:
            errors.OffsetOutOfRange: one is later, with onDataLoss=fail.
        """
        for (topic, partition), offset in sorted(wanted.items()):
            if offset > latest[topic, partition]:
                fault = f"reading would {what} at offset {offset}, and the log ends at {latest[topic, partition]}"
                if self.options.on_data_loss == "fail":
                    raise errors.OffsetOutOfRange(fault, topic=topic, partition=partition, offset=offset)
                self.tolerated += 1
                log.warning("%s-%d: %s: with onDataLoss=%s it is read to its end", topic, partition, fault, self.options.on_data_loss)
        return {each: min(offset, latest[each]) for each, offset in wanted.items()}


class KafkaBatchReader(_Reading, DataSourceReader):
    """A batch read: offsets are looked up once, when the query is planned."""

    def partitions(self) -> Sequence[RangePartition]:
        """The tasks."""
        options, source = self.options, clients.OffsetSource(self.options)
        try:
            parts = source.partitions()
            (start, _), end = source.starting(parts), source.ending(parts)
            latest = source.latest(parts)
            # An offset asked for that has aged out is a loss; what "earliest" or a timestamp found is not, though it may age out since.
            asked = {} if options.starting_timestamps_ms is not None or isinstance(options.starting, str) else options.starting
            exact = {each: offset for each, offset in asked.items() if offset >= 0}
            earliest = source.earliest(sorted(exact))
        finally:
            source.close()
        lost = offsets.losses(exact, earliest, latest)
        start = self.tolerate(start, [each for each in lost if each.wanted < earliest[each.topic, each.partition]])
        if options.on_data_loss != "fail":
            end = self._within(end, latest, "end")
            start = {each: min(offset, end[each]) for each, offset in self._within(start, latest, "begin").items()}
        return self.planned(clients.check_range(start, end, latest))


class KafkaStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of micro-batches. Lives in one process of the driver as long as the query runs.

    What has been lost and is tolerated becomes a batch of its own, which holds no records and moves the query's offsets, if need be back:
    so a batch that is replayed finds in Spark's log what was decided.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._source = clients.OffsetSource(options)
        self._admission = offsets.Admission(options.min_offsets, options.max_delay_ms)
        self._initial: dict[Partition, int] | None = None
        self._at_end: set[Partition] = set()                      # those whose initial offset is the end at that moment
        self._looked_up: set[Partition] = set()                   # those whose initial offset is not the number that was given
        self._fresh = False                                       # batch 0 is next, and not in Spark's log
        self._moved: dict[str, Any] | None = None                 # where the last loss has moved the query
        self._planned: tuple[Any, Any] | None = None              # the batch last planned: foreachBatch may plan it several times
        self._offered: Any = None                                 # the end that this process has given last: another one is replayed
        self._newest: dict[Partition, int] = {}
        self._asked_at = self._news_at = 0.0
        self._idle = False
        self._skipped: dict[Partition, int] = {}                  # where the query goes on, also if records lie before that
        self._left_at: dict[tuple[bytes, int], int] = {}          # offsets of what is not available now, by topic id and partition
        self._committed: dict[Partition, int] = {}                # in the group of commitOffsetsToGroup
        self._commit_again_at = 0.0

    # ---- what Spark asks

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins, or batch 0 of one that has none behind it."""
        if self._initial is None:
            given = self.options.starting
            parts = self._source.partitions()
            initial, self._at_end = self._source.starting(parts)
            if self.options.starting_timestamps_ms is not None or isinstance(given, str):
                given = {}
            else:
                wanted, initial = initial, self._within(initial, self._source.latest(parts))
                self._at_end |= {each for each, offset in initial.items() if offset < wanted[each]}
            self._looked_up = {each for each, offset in initial.items() if given.get(each) != offset}
            if not ADMISSION_CONTROL:                             # it has asked for the end first: batch 0 must not begin behind that
                initial.update({each: min(initial[each], self._newest.get(each, initial[each])) for each in self._at_end})
            self._initial, self._fresh = initial, True
        return self._json(self._initial)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query is to stop at what there is now."""
        self._admission.goal = self._source.latest(self._source.partitions())

    def getDefaultReadLimit(self) -> Any:
        """How much one batch may take. Spark hands it back to `latestOffset`, except with Trigger.Once, which takes everything."""
        options = self.options
        if options.max_offsets is None and options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadMaxRows(UNLIMITED if options.max_offsets is None else options.max_offsets)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends.

        Args:
            start: where it begins; None from a Spark before 4.2, which keeps that to itself.
            limit: from `getDefaultReadLimit`, or ReadAllAvailable.
        """
        end = self._offered = self._next_end(start, limit)
        return end

    def _next_end(self, start: dict[str, Any] | None, limit: Any) -> dict[str, Any]:
        once = isinstance(limit, ReadAllAvailable)
        fresh, self._fresh = self._fresh, False
        if start is None:
            self._look({}, {})
            return self._json({**self._newest, **(self._pinned(once) if fresh else {})})
        begin, ids = offsets.from_json(start), self._ids(start)
        self._commit_to_group(begin)
        self._look(begin, ids)
        newest = self._newest
        if fresh and begin == self._initial:
            pinned = self._pinned(once)
            newest = {each: pinned.get(each, offset) for each, offset in newest.items() if each in begin}
        if (moved := self._moved_by_loss(begin, newest, ids)) is not None:
            self._moved = self._json(moved, ids)
            return self._moved
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._admission.end(begin, newest, most, not once, round(time.monotonic() * 1000))
        self._idle = end == begin
        return start if self._idle else self._json(end, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions, for progress reports."""
        return offsets.to_json(self._newest) if self._newest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        """The tasks of a batch; also of one that is replayed, which must get the same.

        So nothing is asked, but where loss is tolerated, of a topic that the batch is the first to have, and whether the topics of a batch
        that is replayed are still the same.
        """
        begin, until = offsets.from_json(start), offsets.from_json(end)
        renewed = self._renewed_since(start, end, until)
        # Where loss is tolerated a number may have been behind the end when the query first started.
        of_start: Collection[Partition] = self._looked_up if self.options.on_data_loss == "fail" else until
        looked_up = of_start if begin == self._initial else ()
        added = self._source.earliest(self._added(begin, until))
        begin = {each: min(added[each], offset) if each in added else begin.get(each, 0) for each, offset in until.items()}
        self._fresh = False
        known, self._planned = self._planned == (start, end), (start, end)
        lost = self._not_forward(begin, until, looked_up)
        if renewed:
            lost = [each for each in lost if each.topic not in renewed] + self._of_former(begin, until, renewed)
        if self.options.on_data_loss != "fail":
            begin, missing = self._there(begin, until, renewed)
            lost = [] if known else lost + missing
        self.tolerate(begin, [] if end == self._moved else lost)
        return self.planned([OffsetRange(*each, begin[each], max(begin[each], until[each])) for each in sorted(until)])

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done; never called for the last one, so `latestOffset` does the work, if it gets the place where the batch begins."""
        if not ADMISSION_CONTROL:
            self._commit_to_group(offsets.from_json(end))

    def stop(self) -> None:
        """The query ends."""
        self._source.close()

    # ---- how it is found out

    def _ids(self, logged: Mapping[str, Any]) -> dict[str, bytes]:
        """The ids of topics in offsets of Spark's log, as far as they count."""
        return offsets.topic_ids(logged) if self.options.check_topic_ids else {}

    def _json(self, ends: Offsets, ids: Mapping[str, bytes] | None = None) -> dict[str, Any]:
        """Offsets for Spark's log, with the ids of their topics.

        Args:
            ends: the offsets.
            ids: of topics, from where the batch begins: they stay where nothing else is known.
        """
        known = {name: self._source.topics.topic_id(name) for name, _ in ends}
        return offsets.to_json(ends, {**(ids or {}), **{name: found for name, found in known.items() if found != ZERO_ID}})

    def _look(self, begin: Mapping[Partition, int], ids: Mapping[str, bytes]) -> None:
        """Asks Kafka; waits before that if what it said last time was not worth a batch."""
        now = time.monotonic()
        wait_s = min(IDLE_POLL_MS / 1000, (now - self._news_at) * IDLE_SHARE) - (now - self._asked_at)
        if self._idle and wait_s > 0:
            time.sleep(wait_s)
        before, self._newest = self._newest, self._source.latest_behind(self._source.partitions(begin, ids), begin)
        self._asked_at = time.monotonic()
        if self._newest != before:
            self._news_at = self._asked_at
        self._idle = self._newest == before

    def _added(self, begin: Collection[Partition], until: Collection[Partition]) -> list[Partition]:
        """The partitions of topics that an option names now and did not before: nothing was promised but what there is.

        Not those of a pattern, which has named a topic since it was created.
        """
        if self.options.pattern is not None:
            return []
        known = {topic for topic, _ in begin}
        return sorted(each for each in until if each[0] not in known)

    def _renewed(self, ids: Mapping[str, bytes]) -> dict[str, str]:
        """Topics that were created again since the query's offsets had these ids, and what is said of them."""
        topics = self._source.topics
        former = {name: topics.former_id(name) for name in topics.renewed}
        former |= {name: topic_id for name, topic_id in ids.items() if topics.topic_id(name) not in (ZERO_ID, topic_id)}
        said = {name: offsets.created_again(topic_id, topics.topic_id(name)) for name, topic_id in former.items()}
        return {name: f"{text}{KEPT if name in ids else ''}" for name, text in said.items()}

    def _renewed_since(self, start: dict[str, Any], end: dict[str, Any], until: Offsets) -> dict[str, str]:
        """Topics of which a batch holds no records, since they were created again by then or since then, and what is said of them."""
        before, behind = self._ids(start), self._ids(end)
        if end != self._offered and behind:
            self._source.partitions(until, behind)
        found = self._renewed(behind) if end != self._offered else {}
        changed = {name: topic_id for name, topic_id in before.items() if behind.get(name, topic_id) != topic_id}
        return found | {name: offsets.created_again(topic_id, behind[name]) for name, topic_id in changed.items()}

    @staticmethod
    def _of_former(begin: Offsets, until: Offsets, renewed: Mapping[str, str]) -> list[Loss]:
        """What a batch would have read of topics that others of their names have replaced."""
        return [
            Loss(*each, begin[each], end, end, f"{renewed[each[0]]}; the batch begins at offset {begin[each]} and ends at {end}")
            for each, end in sorted(until.items())
            if each[0] in renewed and begin[each] != end
        ]

    def _moved_by_loss(
        self, begin: dict[Partition, int], newest: Mapping[Partition, int], ids: Mapping[str, bytes]
    ) -> dict[Partition, int] | None:
        """The end of a batch without records, where the query goes on after a loss; None when nothing is lost.

        Args:
            begin: where the query stands.
            newest: the ends of the partitions that the next batch may read.
            ids: of the topics it has read so far.

        Raises:
            errors.OffsetOutOfRange: something is lost, with onDataLoss=fail.
        """
        topics = self._source.topics
        renewed = self._renewed(ids)
        if newest == begin and not renewed:
            return None
        earliest = self._source.earliest(sorted(newest))
        fresh = dict.fromkeys(newest.keys() - begin.keys(), 0)
        resumed = {each: self._left_at[key] for each in fresh if (key := (topics.topic_id(each[0]), each[1])) in self._left_at}
        added = {each: earliest[each] for each in self._added(begin, newest) if earliest[each] and each not in resumed}
        fresh |= {**resumed, **added}
        lost = offsets.losses(begin, earliest, newest, renewed, self.options.names)
        lost += offsets.losses(fresh, earliest, newest)
        topics.renewed.clear()
        if not lost and not resumed:
            return {**begin, **added} if added else None
        moved = self.tolerate({**fresh, **begin}, lost)
        if resumed:
            text = ", ".join(f"{topic}-{partition} at offset {moved[topic, partition]}" for topic, partition in sorted(resumed))
            log.warning("partitions are available again, and the query goes on where it stood: %s", text)
        skipped = [each for each in lost if each.latest is not None] if self.options.on_data_loss == "skip" else []
        self._skipped = {each: moved[each] for each in [*resumed, *((each.topic, each.partition) for each in skipped)]}
        for each in (each for each in lost if each.latest is None):
            if (topic_id := topics.topic_id(each.topic)) != ZERO_ID:
                self._left_at[topic_id, each.partition] = each.wanted
        for name in resumed:
            self._left_at.pop((topics.topic_id(name[0]), name[1]))
        return moved

    def _pinned(self, once: bool) -> dict[Partition, int]:
        """Partitions in which batch 0 of a new query ends where it begins, and the offsets.

        Args:
            once: Trigger.Once, the one batch of which reads what is there. Sparks before 4.2 do not say that it is the only one.
        """
        pinned = self._at_end if once or not ADMISSION_CONTROL else self._looked_up
        return {each: offset for each, offset in (self._initial or {}).items() if each in pinned}

    def _not_forward(self, begin: Offsets, until: Offsets, looked_up: Collection[Partition]) -> list[Loss]:
        """What is lost of a batch that would begin behind its end.

        Args:
            begin, until: of the batch.
            looked_up: partitions whose begin this process has looked up: the batch is batch 0, and is replayed.
        """
        back = [each for each in sorted(until) if begin[each] > until[each]]
        earliest = self._source.earliest([each for each in back if each in looked_up])
        lost = []
        for each in back:
            first, end = earliest.get(each, until[each]), until[each]
            if each not in earliest:
                why = f"the batch begins at offset {begin[each]} and ends at {end}: the topic was created again, or lost records"
            elif first > end:
                why = f"the query first started at offset {end}; the offsets {end} to {first - 1} have aged out or were deleted since"
            else:                                                 # as it was pinned; batch 1 begins there
                log.warning("%s-%d: batch 0 is replayed and holds no records: the query began at offset %d", *each, end)
                continue
            lost.append(Loss(*each, begin[each], first, end, why))
        return lost

    def _there(self, begin: Mapping[Partition, int], until: Offsets, renewed: Collection[str]) -> tuple[dict[Partition, int], list[Loss]]:
        """Where a batch begins where loss is tolerated, and what is lost of it since it was planned.

        Args:
            begin, until: of the batch.
            renewed: topics that were created again; the batch behind this one reads them from their beginning, with older Sparks this one.
        """
        begin, lost = dict(begin), []
        there = set(self._source.partitions(until))
        earliest = self._source.earliest(sorted(there & set(until)))
        for each, end in until.items():
            if each[0] in renewed:
                begin[each] = end if ADMISSION_CONTROL or self.options.on_data_loss == "skip" else earliest.get(each, end)
                continue
            low, first = begin[each], earliest.get(each, end)
            if low < end and low < first and self._skipped.get(each) != end:
                fault = "have aged out or were deleted" if each in earliest else "are not available: the partition was deleted"
                lost.append(Loss(*each, low, first, end, f"the offsets {low} to {min(first, end) - 1} of a batch {fault}"))
            begin[each] = end if self._skipped.get(each) == end else max(low, first)
        return begin, lost

    def _commit_to_group(self, done: dict[Partition, int]) -> None:
        """Shows finished offsets to Kafka's tools: what the query begins with has been finished before.

        They are for looking at: where they cannot be written the query goes on, and it is tried again after GROUP_COMMIT_PAUSE_S.
        """
        group = self.options.commit_group
        if group is None or done == self._committed or time.monotonic() < self._commit_again_at:
            return
        try:
            self._source.admin().alter_group_offsets(group, done, timeout=GROUP_COMMIT_TIMEOUT_S).check()
        except errors.KafkaError as error:
            self._commit_again_at = time.monotonic() + GROUP_COMMIT_PAUSE_S
            log.warning("commitOffsetsToGroup: the offsets of group %s are behind those of the query: %s", group, error)
            return
        self._committed = dict(done)
