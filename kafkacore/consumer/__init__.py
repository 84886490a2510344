"""KafkaConsumer: reads records. The calling thread drives the I/O; in a group a background thread does so between its calls.

How a poll goes: records already fetched are handed out at once; else positions are settled, fetches sent, and the network is waited for.
Before records are returned, the next fetch is sent, so that it travels while the application works (rule 1 of reading.py).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, Unpack, overload

from kafkacore import errors
from kafkacore.clock import Clock
from kafkacore.config import ConsumerConfig
from kafkacore.config_keywords import ConsumerKeywords, list_settings
from kafkacore.config_plugins import made, made_list
from kafkacore.consumer.arguments import milliseconds, offset_of, partition_of
from kafkacore.consumer.at_exit import open_members
from kafkacore.consumer.batches import RecordBatches
from kafkacore.consumer.chunks import Chunks
from kafkacore.consumer.consumer_metrics import GroupCounts, lag_of, of_consumer, totals
from kafkacore.consumer.decoding import decoding_of
from kafkacore.consumer.deserializers import Deserializers
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.group.engines import engines
from kafkacore.consumer.group.listener import RebalanceListener
from kafkacore.consumer.group.member import CommitCallback, GroupMember
from kafkacore.consumer.handing import HandOut
from kafkacore.consumer.health import ConsumerHealth, HealthWatch, describe_partitions
from kafkacore.consumer.interceptors import ConsumerInterceptor, Interceptors
from kafkacore.consumer.lookups import Lookups
from kafkacore.consumer.offsets import PositionKeeper
from kafkacore.consumer.reading import ReadLoop
from kafkacore.consumer.sessions import FetchLimits
from kafkacore.consumer.stretches import ColumnStream, Layout, Where, stretches_of
from kafkacore.consumer.subscription import EARLIEST, LATEST, Mode, ResetStrategy, SubscriptionState
from kafkacore.consumer.topics import TopicWatch
from kafkacore.consumer.weakly import weakly
from kafkacore.elsewhere import CONSUMER, answer_names, check_plain_function, check_seconds, refuse_arguments
from kafkacore.epoch import Time, epoch_ms
from kafkacore.metadata import PartitionInfo
from kafkacore.net.block_end import CLOSE_S, close_timeout_s
from kafkacore.net.client import NetworkClient
from kafkacore.net.driver import CallerDriver, warn_unclosed
from kafkacore.net.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListedOffset
from kafkacore.net.measure import Measured, NetworkStats, grouped
from kafkacore.plurals import counted
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, SubscriptionPattern, TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns

__all__ = ["ConsumerHealth", "ConsumerInterceptor", "KafkaConsumer", "RebalanceListener", "RecordBatches"]


class KafkaConsumer:
    """Reads records from Kafka.

    Args:
        *topics: topics to read; in a group its members share their partitions, without one that is every partition, also those added later.
        **settings: see `ConsumerConfig`; a mapping with dotted names may be passed as the first argument.

    Raises:
        errors.ConfigError: an unknown or wrong setting.
    Not thread-safe: a call from a second thread while one is running raises IllegalStateError, except `wakeup`.

    Source: Kafka's KafkaConsumer.
    """

    def __init__(self, *topics: str | Mapping[str, Any], clock: Clock | None = None, **settings: Unpack[ConsumerKeywords]) -> None:
        mapping: dict[str, Any] = {}
        while topics and isinstance(topics[0], Mapping):
            mapping.update(topics[0])
            topics = topics[1:]
        self.config = ConsumerConfig.from_user(mapping, **settings)
        config = self.config
        self._driver = CallerDriver(config, "KafkaConsumer", exclusive=True, clock=clock, renewed=weakly(self._start_anew))
        self._clock = self._driver.clock
        self._metadata = self._driver.metadata
        self._read_committed = config.isolation_level == "read_committed"
        self._isolation_level = int(self._read_committed)
        self._subscription = SubscriptionState(ResetStrategy(config.auto_offset_reset))
        self._fetcher = Fetcher(
            self._subscription,
            self._driver.client,
            self._metadata,
            FetchLimits(
                config.fetch_max_wait_ms, config.fetch_min_bytes, config.fetch_max_bytes, self._isolation_level, config.client_rack
            ),
            max_partition_bytes=config.max_partition_fetch_bytes,
            check_crcs=config.check_crcs,
            max_decompressed_bytes=config.max_decompressed_bytes,
            retry_backoff_ms=config.retry_backoff_ms,
            preferred_max_age_ms=config.metadata_max_age_ms,
        )
        self._positions = PositionKeeper(
            self._subscription,
            self._driver.client,
            self._metadata,
            isolation_level=self._isolation_level,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )
        topics_ = self._topics = TopicWatch(self._subscription, self._driver, self._fetcher, config)
        self._lookups = Lookups(self._driver, config, isolation_level=self._isolation_level)
        self._unread = Chunks()
        self._closes = False
        interceptors = made_list(config, "interceptors", ("on_consume", "on_consume_batch", "on_commit"))
        self._interceptors = Interceptors(interceptors) if interceptors else None
        self._group: GroupMember | None = None
        fetcher, unread = self._fetcher, self._unread
        if config.group_id is not None:
            self._group = topics_.group = GroupMember(
                config,
                self._driver,
                self._subscription,
                membership=engines(config, self._metadata, weakly(topics_.want_of_group), weakly(topics_.ask_names_of_ids)),
                assigned=weakly(topics_.assigned_by_group),
                reached=lambda state: fetcher.begun(state) if (at := unread.working_on(state.tp)) is None else at,
                on_commit=None if self._interceptors is None else self._interceptors.on_commit,
            )
            self._positions.fetch_committed = self._group.commits.fetch
            open_members.add(self)
        self._health = HealthWatch(
            self._driver, self._subscription, self._positions, fetcher, topics_, self._group, config, read_committed=self._read_committed
        )
        self._loop = ReadLoop(
            self._driver,
            self._subscription,
            topics_,
            self._positions,
            self._fetcher,
            self._group,
            isolation_level=self._isolation_level,
        )
        self._out = HandOut(
            self._driver,
            self._loop,
            self._subscription,
            fetcher,
            unread,
            Deserializers(
                made(config, "key_deserializer", ("deserialize", "__call__")),
                made(config, "value_deserializer", ("deserialize", "__call__")),
                self._subscription,
                fetcher,
            ),
            self._interceptors,
            config.max_poll_records,
        )
        self._next_chunk = self._out.next_chunk
        # For asyncio, where no thread may wait: what is there already, or None.
        self._await_records = self._out.await_records
        self._take_records, self._take_batch, self._take_chunk = self._out.take_records, self._out.take_batch, self._out.take_chunk
        if topics:
            self.subscribe([*topics])  # type: ignore[list-item]

    def _start_anew(self, client: NetworkClient) -> None:
        """The call before was interrupted: positions go back before what did not reach the caller, everything on its way starts over."""
        self._loop.give_back()
        if self._unread.going_back:
            self._out.rewind(self._unread.going_back)
        self._fetcher.start_anew(client)
        self._positions.start_anew(client)
        if self._group is not None:
            self._group.start_anew(client)
        self._subscription.settle_anew()
        self._topics.start_anew(client)

    # -- what to read -------------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
        **unknown: Never,
    ) -> None:
        """Reads these topics: in a group the partitions that this member is given, without one all partitions, also those added later,
        which begin at their start.

        Args:
            topics: names; they replace the topics subscribed to before. None or empty, without a pattern, unsubscribes.
            pattern: a regular expression in place of names; every topic whose whole name it matches is read, also topics created later.
                A `SubscriptionPattern` is matched by the broker (RE2's syntax); it needs group_protocol=consumer.
            listener: is called when partitions come and go; a `RebalanceListener`. Needs a group.

        Raises:
            errors.IllegalStateError: partitions are assigned by `assign`.
        """
        refuse_arguments("subscribe()", unknown)
        if listener is not None and self._group is None:
            raise errors.UsageError("a rebalance listener needs a consumer group: set group_id")
        if pattern is not None and topics:
            raise errors.UsageError("subscribe to topics or to a pattern, not to both")
        names = [] if topics is None else topics if isinstance(topics, str) else list(topics)
        if not names and pattern is None:
            self.unsubscribe()
            return
        with self._driver:
            self._out.rewind()
            if isinstance(pattern, SubscriptionPattern):
                self._topics.subscribe_broker_pattern(pattern.pattern)
            elif pattern is not None:
                self._topics.subscribe_pattern(re.compile(pattern))
            else:
                self._topics.subscribe(names)
            if self._group is not None:
                self._group.listener = listener
            self._topics.look_again()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads exactly these partitions; those that were assigned before keep their position.

        Args:
            partitions: (topic, partition) pairs.

        Raises:
            errors.IllegalStateError: topics are subscribed to.
        """
        self._assign([partition_of(p) for p in partitions])

    def _assign(self, tps: list[TopicPartition], *, create: bool = True) -> None:
        with self._driver:
            self._out.rewind()
            if not tps:
                self.unsubscribe()
                return
            self._subscription.assign_manual(tps)
            self._topics.want({tp.topic for tp in tps}, create=create)
            self._fetcher.retain()

    def unsubscribe(self) -> None:
        """Reads nothing any more. A member commits what was processed, if it does so automatically, and leaves its group."""
        with self._driver:
            self._out.rewind()
            if self._group is not None:
                self._group.refuse_inside_listener("unsubscribe")
                self._fetcher.begin()
                self._group.begin_to_leave("unsubscribed")
            try:
                if self._group is not None:
                    self._group.leave("unsubscribed", self.config.default_api_timeout_ms)
            finally:
                self._topics.unsubscribe()
                self._fetcher.retain()

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read."""
        return set(self._subscription.partitions)

    def subscription(self) -> set[str]:
        """The topics subscribed to; empty with `assign`."""
        return set(self._subscription.topics)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hands out nothing of these partitions until `resume`; they stay assigned."""
        with self._driver:
            tps = [self._assigned(p) for p in partitions]
            self._out.rewind(tps)
            for tp in tps:
                self._subscription.pause(tp)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Undoes `pause`."""
        with self._driver:
            for tp in [self._assigned(p) for p in partitions]:
                self._subscription.resume(tp)
            self._fetcher.wants_fetch = True

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return set(self._subscription.paused())

    def _assigned(self, partition: tuple[str, int]) -> TopicPartition:
        tp = partition_of(partition)
        self._subscription.state_of(tp)
        return tp

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def poll(
        self, timeout: float | None = 0.0, max_records: int | None = None, **unknown: Never
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records. Without a timeout it does not wait: records are there once a poll has had time to fetch them.

        Args:
            timeout: seconds to wait when there is nothing to hand out, 0 when left out; None waits until there is something.
            max_records: at most so many; `max_poll_records` when None.

        Returns:
            Records in offset order per partition; empty when the time was up.

        Raises:
            errors.IllegalStateError: nothing is subscribed to or assigned, or another thread is using the consumer.
            errors.WakeupError: `wakeup` was called.
            errors.NoOffsetForPartition, errors.OffsetOutOfRange: no position, and auto_offset_reset is none. The polls after it go on with
                the other partitions; it is raised again after retry_backoff_ms, unless `seek` has given the partition a position.
            errors.CorruptDataError: the data at a position is broken; it names the offset, and `seek` behind it goes on without it.
            errors.DecompressedTooLarge: the batch at a position holds more than max_decompressed_bytes; a larger one reads it.
            errors.SerializationError: a deserializer failed; the position stands at that record.
            errors.MaxPollExceeded: poll was not called for max_poll_interval_ms, so the member left its group; the next poll joins again.
            errors.KafkaError: what a broker refused for good, a wrong password, ...
        """
        if unknown:
            refuse_arguments("poll()", unknown)
        check_seconds("poll", timeout)
        limit = self._limit(max_records)
        return self._loop.hand_over(functools.partial(self._out.records, limit, timeout))

    def _limit(self, max_records: int | None) -> int:
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise errors.UsageError(f"max_records must be at least 1, not {limit}")
        return limit

    def poll_batch(self, timeout: float | None = 0.0, **unknown: Never) -> RecordBatches:
        """Everything fetched so far, as columns; the cheapest way to read.

        Args:
            timeout: seconds to wait when there is nothing to hand out; None waits until there is.

        Returns:
            One `RecordColumns` per partition. Deserializers do not apply: columns are bytes.

        Raises:
            errors.UsageError: an interceptor has on_consume and no on_consume_batch.
            errors.KafkaError: as `poll`.
        """
        if unknown:
            refuse_arguments("poll_batch()", unknown)
        check_seconds("poll_batch", timeout)
        if self._interceptors is not None:
            self._interceptors.check_columns()
        return self._loop.hand_over(functools.partial(self._out.columns, timeout))

    def read_range(
        self, partition: tuple[str, int], start: int, end: int | None, timeout: float | None = None
    ) -> Iterator[RecordColumns]:
        """A stretch of one partition, as columns; the partition is all that is assigned afterwards.

        It ends where the log has been read up to `end`, also if the last offsets hold no records: transaction markers, aborted
        transactions, what compaction removed.

        Args:
            partition: (topic, partition).
            start: first offset.
            end: the offset after the last; at most the log's end, which None is, as of now.
            timeout: seconds without progress; `default_api_timeout_ms` when None.

        Yields:
            Columns in offset order. The last may hold records from `end` on as well: whole answers are handed out.

        Raises:
            errors.KafkaTimeoutError: no progress in time.
            errors.OffsetOutOfRange: an offset is not there, and auto_offset_reset is none.
            errors.KafkaError: as `poll`.
        """
        tp = partition_of(partition)
        if end is None:
            end = self.end_offsets([tp], timeout)[tp]
        if not 0 <= start <= end:
            raise errors.UsageError(f"a range goes from an offset to one that is not smaller, not from {start} to {end}")
        wait_s = self._api_timeout_ms(timeout) / 1000
        position = start
        if self._interceptors is not None:
            self._interceptors.check_columns()
        if start == end:
            return
        self._assign([tp], create=False)
        self.resume(tp)
        self.seek(tp, start)
        state = self._subscription.state_of(tp)
        self._subscription.read_up_to(state, end)
        try:
            while position < end:
                before = position
                found, position = self._loop.hand_over(functools.partial(self._out.next_columns, tp, before, wait_s))
                if not found and position == before:
                    raise errors.KafkaTimeoutError(
                        f"nothing came for {wait_s:g} s", topic=tp[0], partition=tp[1], offset=position, attempts=self._driver.attempts()
                    )
                columns = [c for c in found if c is not None]
                yield from columns if self._interceptors is None else self._interceptors.on_consume_batch(columns)
        finally:
            self._subscription.read_up_to(state, None)

    def read(
        self,
        what: str | Iterable[str] | Mapping[tuple[str, int], tuple[int, int | None]],
        start: Where = None,
        end: Where = None,
        *,
        key: Literal["binary", "string"] = "binary",
        value: Literal["binary", "string"] = "binary",
        json: Any = None,
        avro: Any = None,
        protobuf: Any = None,
        registry: Any = None,
        on_error: Literal["raise", "null", "skip"] = "raise",
        headers: bool | None = None,
        record_columns: bool | Iterable[str] = True,
        text: Literal["string", "large_string", "string_view"] = "string",
        until_end: bool = True,
        timeout: float | None = None,
    ) -> ColumnStream:
        """Topics up to where they end now, or a part of that, as a stream of Arrow batches. What polars, pandas or DuckDB
        take of it needs no pyarrow; batches of one's own and decoded values do.

        Undecoded batches have the columns of `RecordColumns.to_arrow`. With `json`, `avro` or `protobuf` the fields of the values are the
        columns, followed by `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`. A null value is a row of nulls.
        Deserializers do not apply.

        Args:
            what: a topic or several; or {(topic, partition): (first offset, offset after the last)}, where None is the end.
            start: an offset, -n for the last n offsets of each partition, a datetime with a time zone, "beginning" or "end"; None for the
                beginning.
            end: the same, exclusive; None for the end that each partition has now.
            key, value: "string" gives text columns, checked to be UTF-8.
            json: values are JSON objects with these columns: `"a INT, b STRING"`, {name: type}, a JSON Schema, an Arrow schema. Fields
                that are no columns are left out. "infer" takes the columns from the first 1,000 values; a later value that does not fit
                them is an error, a later field none. True with a registry: the columns of the subject TOPIC-value.
            avro: the schema that values are written with, as JSON or a dict. True or an Arrow schema with a registry: each value names its
                schema; the columns are those of the subject TOPIC-value, or of the Arrow schema.
            protobuf: a generated class, or (descriptor set file, message name); with a registry as `avro`.
            registry: URL of a schema registry, with user:password@ if need be, or a `decode.registry.RegistryOptions`. Values begin with
                its prefix.
            on_error: a value that cannot be decoded is an error ("raise"), a row of nulls beside it in the column `_corrupt`; of JSON the
                good fields stay ("null"), or no row ("skip"), counted in `ColumnStream.skipped`.
            headers: there is a column of headers; None means only with undecoded values.
            record_columns: which of the record's columns stand beside the fields of decoded values: some of their names, False for none.
            text: the Arrow type of decoded text columns. polars takes "string_view" as it is, pandas "large_string"; a schema that is
                requested with the capsule goes first.
            until_end: False goes on with new records, from all partitions that there are now, as they come, until the loop is left or the
                consumer closed.
            timeout: seconds without progress; `default_api_timeout_ms` when None. Waiting for new records has no limit.

        Returns:
            A `ColumnStream`: `for batch in stream`, `pl.DataFrame(stream)`, `pa.table(stream)`, DuckDB's `from stream`.

        Raises:
            errors.OffsetOutOfRange: offsets of a mapping are not there.
            errors.UnknownTopicOrPartition: there is no such topic.
            errors.ConfigError: a schema that cannot be read, or has a field with the name of one of the record's columns.
            errors.UsageError: arguments that exclude each other.
            errors.KafkaError: as `end_offsets`; the registry does not answer.
        """
        if not until_end and end is not None:
            raise errors.UsageError("a read with until_end=False has no end: leave one of them out")
        stretches = stretches_of(self, what, start, end, timeout)
        topics = [tp.topic for tp in stretches]
        decoding = decoding_of(topics, json, avro, protobuf, registry, on_error, headers, value, record_columns, text)
        layout = Layout(key, value, headers is not False if decoding is None else decoding.headers)
        return ColumnStream(self, stretches, layout, timeout, decoding=decoding, endless=not until_end)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every record from here on, waiting for new ones; ends when the consumer is closed.

        The position follows the loop record by record: leaving the loop and reading on loses and repeats nothing.
        """
        while True:
            yield from self._next_chunk() or ()
            if self._driver.closed:
                return

    # -- positions ----------------------------------------------------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continues at an offset. Whether it exists shows when it is fetched: `auto_offset_reset` decides if not.

        Args:
            partition: an assigned (topic, partition).
            offset: of the next record to read, not negative. An `OffsetAndMetadata` (as `committed` gives it) with a leader epoch is
                validated first: where the leader's log has lost the record before it, the position moves back to where the logs part
                (KIP-320), or poll raises LogTruncationError with auto_offset_reset=none.
        """
        found = offset_of(partition, offset)
        with self._driver:
            tp = self._assigned_after_metadata(partition)
            self._out.rewind([tp])
            self._positions.seek(tp, found.offset, -1 if found.leader_epoch is None else found.leader_epoch)
            self._fetcher.retain()

    def _assigned_after_metadata(self, partition: tuple[str, int]) -> TopicPartition:
        """With a subscription to topics the assignment follows the metadata: what it already says counts."""
        if self._subscription.mode is Mode.TOPICS and self._topics.behind:
            self._topics.follow()
        return self._assigned(partition)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continues at the first record of these partitions, of all when none is named. Looked up when needed."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continues behind the last record of these partitions, of all when none is named. Looked up when needed."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: tuple[tuple[str, int], ...], strategy: ResetStrategy) -> None:
        with self._driver:
            tps = [self._assigned_after_metadata(p) for p in partitions] or [*self._subscription.partitions]
            self._out.rewind(tps)
            for tp in tps:
                self._subscription.request_reset(tp, strategy)
            self._fetcher.retain()

    def position(self, partition: tuple[str, int], timeout: float | None = None) -> int:
        """Offset of the next record that will be handed out; looked up if it is not known yet.

        After a change of the leader it is returned once the new leader has confirmed it, or has named where its log was truncated.

        Args:
            partition: an assigned (topic, partition).
            timeout: seconds; `default_api_timeout_ms` when None.

        Raises:
            errors.KafkaTimeoutError: no answer in time.
            errors.NoOffsetForPartition: the partition has no offset, and auto_offset_reset is none.
            errors.LogTruncationError: the log lost records before the position, and auto_offset_reset is none.
        """
        with self._driver:
            tp = self._assigned(partition)
            unread = self._unread.next_offset(tp)
            return self._loop.position(tp, self._api_timeout_ms(timeout)) if unread is None else unread

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Records between the position and the end of the partition, as of the last answer; None before the first.

        It is None, too, while the position is looked up or validated: the end is that of an earlier leader then, and says nothing.
        In read_committed the end is the last stable offset. Offsets are counted: what compaction removed is included.
        """
        tp = self._assigned(partition)
        return lag_of(self._subscription.state_of(tp), self._unread.next_offset(tp), read_committed=self._read_committed)

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]], timeout: float | None = None) -> dict[TopicPartition, int]:
        """First offset of each partition; they need not be assigned.

        Args:
            partitions: (topic, partition) pairs.
            timeout: seconds; `default_api_timeout_ms` when None.

        Raises:
            errors.KafkaTimeoutError: not all leaders answered in time.
            errors.UnknownTopicOrPartition: the cluster has not known a topic for 5 s.
        """
        found = self._list_offsets({partition_of(p): EARLIEST_TIMESTAMP for p in partitions}, timeout)
        return {tp: o.offset for tp, o in found.items()}

    def end_offsets(self, partitions: Iterable[tuple[str, int]], timeout: float | None = None) -> dict[TopicPartition, int]:
        """Offset behind the last readable record of each partition: the high watermark, in read_committed the last stable offset.

        Args:
            partitions: (topic, partition) pairs.
            timeout: seconds; `default_api_timeout_ms` when None.

        Raises:
            errors.KafkaTimeoutError: not all leaders answered in time.
            errors.UnknownTopicOrPartition: the cluster has not known a topic for 5 s.
        """
        found = self._list_offsets({partition_of(p): LATEST_TIMESTAMP for p in partitions}, timeout)
        return {tp: o.offset for tp, o in found.items()}

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], Time], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, per partition.

        Args:
            timestamps_ms: epoch milliseconds, a datetime or a datetime64, by (topic, partition).
            timeout: seconds; `default_api_timeout_ms` when None.

        Returns:
            None for a partition without such a record.

        Raises:
            errors.KafkaTimeoutError: not all leaders answered in time.
            errors.UnknownTopicOrPartition: the cluster has not known a topic for 5 s.
            TypeError: a time is a float or no time at all.
        """
        times_ms: dict[TopicPartition, int] = {}
        for partition, time in timestamps_ms.items():
            tp = partition_of(partition)
            times_ms[tp] = ms = epoch_ms(time, f"the time of {tp.topic}-{tp.partition}")
            if ms < 0:
                raise errors.UsageError(f"a timestamp is not negative: {ms}", topic=tp.topic, partition=tp.partition)
        found = self._list_offsets(times_ms, timeout)
        return {tp: OffsetAndTimestamp(o.offset, o.timestamp_ms, o.leader_epoch) if o.offset >= 0 else None for tp, o in found.items()}

    def _list_offsets(self, timestamps_ms: dict[TopicPartition, int], timeout: float | None) -> dict[TopicPartition, ListedOffset]:
        with self._driver:
            return self._lookups.offsets(timestamps_ms, self._api_timeout_ms(timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """The partitions of a topic.

        Args:
            topic: its name.
            timeout: seconds; `default_api_timeout_ms` when None.

        Returns:
            Partition numbers in ascending order.

        Raises:
            errors.KafkaTimeoutError: no broker answered in time.
            errors.UnknownTopicOrPartition: there is no such topic.
        """
        return [found.index for found in self.partition_infos(topic, timeout)]

    def partition_infos(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with leader and replicas; as old as the last metadata (`metadata_max_age_ms`).

        Args:
            topic: its name.
            timeout: seconds; `default_api_timeout_ms` when None.

        Returns:
            `PartitionInfo(index, leader, leader_epoch, replicas, isr, offline)` in ascending order: ids of brokers, -1 for no leader.

        Raises:
            errors.KafkaTimeoutError: no broker answered in time.
            errors.UnknownTopicOrPartition: there is no such topic.
        """
        with self._driver:
            return self._lookups.partitions(topic, self._api_timeout_ms(timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this consumer may see, also the brokers' own; asked for now.

        Args:
            timeout: seconds; `default_api_timeout_ms` when None.

        Returns:
            By name, sorted, what `partition_infos` gives.

        Raises:
            errors.KafkaTimeoutError: no broker answered in time.
        """
        with self._driver:
            return self._lookups.topics(self._api_timeout_ms(timeout))

    def _api_timeout_ms(self, timeout: float | None) -> int:
        return self.config.default_api_timeout_ms if timeout is None else milliseconds(timeout)

    # -- commits ------------------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int] | None = None, timeout: float | None = None) -> None:
        """Commits offsets for the group, and waits for the answer.

        Args:
            offsets: per partition the offset of the next record to read; None commits the positions of all assigned partitions: everything
                that was handed out.
            timeout: seconds; `default_api_timeout_ms` when None. Errors that pass are retried within it.

        Raises:
            errors.CommitFailed: this consumer is not a member of its group any more; its partitions may be another member's.
            errors.RebalanceInProgress: the group is rebalancing; poll, then commit what is still assigned.
            errors.KafkaTimeoutError: no answer in time.
            errors.UsageError: there is no group.
        """
        with self._driver:
            group = self._with_group("commit")
            group.commit(self._to_commit(group, offsets), self._api_timeout_ms(timeout))

    def commit_async(
        self, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int] | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits offsets for the group without waiting. Commits arrive in the order of the calls; one that fails is not sent again.

        Args:
            offsets: as for `commit`.
            callback: called as `callback(offsets, error)` by a later poll, commit or close; error is None when the commit worked.

        Raises:
            errors.CommitFailed: this consumer is not a member of its group.
            errors.UsageError: there is no group, or the callback is a coroutine function.
        """
        if callback is not None:
            check_plain_function(callback, "callback", "commit with commit(), or have a function make a task")
        with self._driver:
            group = self._with_group("commit_async")
            group.commit_async(self._to_commit(group, offsets), callback)

    def _with_group(self, call: str) -> GroupMember:
        if self._group is None:
            raise errors.UsageError(f"{call} needs a consumer group: set group_id")
        return self._group

    def _to_commit(
        self, group: GroupMember, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return group.consumed(self._unread.next_offsets())
        return {partition_of(p): offset_of(p, found) for p, found in offsets.items()}

    def committed(self, partitions: tuple[str, int] | Iterable[tuple[str, int]], timeout: float | None = None) -> Any:
        """What the group has committed.

        Args:
            partitions: a (topic, partition) pair, or several; they need not be assigned.
            timeout: seconds; `default_api_timeout_ms` when None.

        Returns:
            For one pair an `OffsetAndMetadata`, or None where nothing is committed; for several a dict of these.

        Raises:
            errors.KafkaTimeoutError: no answer in time.
            errors.UsageError: there is no group.
        """
        one = isinstance(partitions, tuple) and len(partitions) == 2 and isinstance(partitions[0], str)
        tps = [partition_of(partitions)] if one else [partition_of(p) for p in partitions]
        with self._driver:
            found = self._with_group("committed").committed(tps, self._api_timeout_ms(timeout))
        return found[tps[0]] if one else found

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member, as `KafkaProducer.send_offsets_to_transaction` wants them.

        Raises:
            errors.UsageError: there is no group.
        """
        with self._driver:
            return self._with_group("consumer_group_metadata").identity()

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Makes the group rebalance with the next poll.

        Args:
            reason: for the broker's log.

        Raises:
            errors.UsageError: there is no group.
        """
        with self._driver:
            self._with_group("enforce_rebalance").rejoin(reason)

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Ends a running or the next poll with WakeupError. The only call another thread may make. It does not end a `close`."""
        if not self._closes:
            self._driver.wakeup()

    def health(self) -> ConsumerHealth:
        """Whether reading goes on: brokers reachable, topics there, positions known, partitions that have records left moving; and how a
        member stands in its group: id, generation, coordinator, last heartbeat, what it waits for.

        Every wait of 5 s is named: for an answer, a connection, credentials, the end of a throttle, metadata, a position, a commit before a
        rebalance, an open transaction (read_committed), and a partition whose position has not moved for so long although there are records
        behind it. Records that have come and that the program does not take are no fault for 30 s: it may be at work. Some of these clocks
        start at the first call of `health` that sees the partition standing, so call it regularly; it takes in what has arrived, and waits
        for nothing.
        """
        with self._driver:
            return self._health.look(self._loop.empty_since_ms, self._clock.now_ms())

    @overload
    def metrics(self, *, detail: Literal[False] = False) -> dict[str, float]: ...
    @overload
    def metrics(self, *, detail: Literal[True]) -> dict[str, dict[str, float]]: ...
    def metrics(self, *, detail: bool = False) -> dict[str, float] | dict[str, dict[str, float]]:
        """What operators look at. Any thread may ask, also while a poll is running; it takes no lock.

        Args:
            detail: everything under Kafka's names.

        Returns:
            Counters since the start under the names of Kafka's consumer metrics in snake_case. With `detail` values by group and name:
            consumer-fetch-manager-metrics (of one partition: consumer-fetch-manager-metrics.partition-TOPIC-0), consumer-metrics,
            consumer-coordinator-metrics, consumer-node-metrics.node-1. Times are in ms; averages, maxima and rates are of the last 30 to
            60 s, NaN without values; names that end in -total count since the start.
        """
        if detail:
            return grouped(self.measured())
        return totals(self._fetcher.metrics, list(self._subscription.partitions.values()), read_committed=self._read_committed)

    def measured(self) -> list[Measured]:
        """What `metrics(detail=True)` holds, with group, name and tags apart; for exporters (kafkacore.metrics)."""
        group = self._group
        return list(
            of_consumer(
                NetworkStats.of(self._driver.client),
                self._fetcher.metrics,
                self._subscription.partitions,
                self._loop.polls,
                None if group is None else GroupCounts(group.membership, group.stats, group.commits.latency_ms),
                self._unread.next_offsets(),
                self._clock.now_ms(),
                read_committed=self._read_committed,
            )
        )

    @property
    def closed(self) -> bool:
        """True once the consumer is closed."""
        return self._driver.closed

    def statistics(self) -> dict[str, Any]:
        """What the consumer holds right now: buffers, fetches in flight, sessions, positions."""
        return {
            "buffered_bytes": self._fetcher.buffered_bytes,
            "fetches_in_flight": sorted(self._fetcher.in_flight),
            "fetch_sessions": self._fetcher.sessions,
            "partitions": dict(describe_partitions(self._subscription, self._read_committed)),
        }

    def close(self, timeout: float = CLOSE_S) -> None:
        """Ends fetch sessions and closes all connections; a `for` loop over the consumer ends. A second close does nothing.

        A member commits what was processed, if it does so automatically, and leaves its group. Another thread may call it: the call that
        is running ends with ClosedError first.

        Args:
            timeout: seconds; never waited longer than for the answers that are due. With the brokers gone they are all waited.

        Raises:
            errors.KafkaTimeoutError: another thread was inside a call for all that time; the consumer is not closed.
            Exception: what the rebalance listener raised; the consumer is closed all the same.
        """
        self._close(timeout, processed=True)

    def _close(self, timeout: float, *, processed: bool) -> None:
        driver = self._driver
        if driver.closed or driver.forked:
            driver.close()
            return
        timeout_ms = milliseconds(timeout)
        deadline_ms = self._clock.now_ms() + timeout_ms
        driver.take_for_close(timeout_ms)
        with driver:
            if self._group is not None:
                self._group.refuse_inside_listener("close")
            self._closes = True  # a wakeup for a poll, or one that is left over, must not cut the commit before leaving
            driver.forget_wakeup()
            try:
                now_ms = self._clock.now_ms()
                if self._group is not None:
                    if processed:
                        self._fetcher.begin()
                    else:
                        self._fetcher.work_on(self._unread.being_worked_on())
                self._out.rewind()
                self._unread.end()
                if self._group is not None:
                    self._group.close(max(0, deadline_ms - now_ms))
                    now_ms = self._clock.now_ms()
                closing = self._fetcher.close_sessions(now_ms)
                while closing and now_ms < deadline_ms and (closing & self._fetcher.in_flight):
                    driver.client.poll(min(deadline_ms - now_ms, 1000), now_ms)
                    now_ms = self._clock.now_ms()
            finally:
                if self._interceptors is not None:
                    self._interceptors.close()
                self._loop.end()
                driver.close()

    def _leave_at_exit(self, timeout: float) -> None:
        """As `close`, without a call of the application's code (consumer/at_exit.py)."""
        try:
            warn_unclosed(self)
        finally:
            if self._group is not None:
                self._group.silence()
            self._interceptors = None
            self._driver.begin_exit()
            self._close(timeout, processed=False)

    def __del__(self) -> None:
        loop: ReadLoop | None = self.__dict__.get("_loop")
        if loop is None or self._driver.closed or self._driver.forked:
            return
        if loop.background is None:
            self._driver.abandon(self)
        elif not self._driver.reported:
            warn_unclosed(self)  # its background thread leaves the group

    def __reduce__(self) -> Never:
        raise errors.UsageError("a KafkaConsumer belongs to the process that made it; make one in each process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Closes. After an error, what the last poll returned is not committed automatically: it is not known how far it was processed.

        The block's error goes on, with one of the close at the end of its chain. With the brokers gone this takes 30 s, as `close()`, and
        5 s after an error or Ctrl+C.
        """
        try:
            self._close(close_timeout_s(kind), processed=kind is None)
        except Exception as error:
            if value is None:
                raise
            errors.append_to_chain(value, error)

    def __repr__(self) -> str:
        parts = [", ".join(self.config.bootstrap_servers), counted(len(self._subscription.partitions), "partition")]
        if self._group is not None:
            parts.insert(1, self._group.describe())
        return f"KafkaConsumer({'; '.join(parts)}{'; closed' if self.closed else ''})"


answer_names(KafkaConsumer, CONSUMER)
list_settings(KafkaConsumer, ConsumerConfig)
