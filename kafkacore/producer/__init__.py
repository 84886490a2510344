"""KafkaProducer: sends records; see `KafkaProducer`.

How the pieces hang together: send() is compiled (native/append.pxi) and writes the record into its partition's open batch; the
accumulator holds the batches; the Sender takes them to the brokers (sender.py says which thread does that); txn.py numbers them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Literal, Never, Self, Unpack, overload

import numpy as np

from kafkacore import _codec
from kafkacore._codec import PartitionQueue, ProducerCore, RecordFuture, StickyPartitioner, TopicQueue
from kafkacore.clock import Clock, SystemClock
from kafkacore.config import ProducerConfig
from kafkacore.config_keywords import ProducerKeywords, list_settings
from kafkacore.config_plugins import made, made_list, partition_method
from kafkacore.elsewhere import PRODUCER, answer_names, check_partitioner
from kafkacore.epoch import Time
from kafkacore.errors import (
    BufferFullError,
    ClosedError,
    DeliveryError,
    ForkedClientError,
    IllegalStateError,
    KafkaTimeoutError,
    UnknownTopicOrPartition,
    UsageError,
)
from kafkacore.metadata import Metadata, TopicInfo
from kafkacore.net.authentication import authenticators
from kafkacore.net.block_end import CLOSE_S, close_timeout_s
from kafkacore.net.client import NetworkClient
from kafkacore.net.client_selector import client_selector
from kafkacore.net.connection import ExponentialBackoff
from kafkacore.net.measure import Measured, NetworkStats, grouped
from kafkacore.plurals import counted
from kafkacore.producer.accumulator import BufferPool, RecordAccumulator, buffer_bytes
from kafkacore.producer.endings import close_sender, open_senders
from kafkacore.producer.frame_future import FrameFuture, FrameMetadata
from kafkacore.producer.futures import BatchFuture, BatchMetadata
from kafkacore.producer.interceptors import Interceptors
from kafkacore.producer.many_call import ManyCall, none_queued, partition_numbers
from kafkacore.producer.not_now import NotNow
from kafkacore.producer.producer_metrics import TransactionStats, of_producer
from kafkacore.producer.sender import Sender
from kafkacore.producer.serializers import as_bytes, is_function_of_value, serialize
from kafkacore.producer.topic_queues import checked_name, follow, follow_changes, new_queue
from kafkacore.producer.transaction_calls import Transaction, await_step, checked_group, checked_offsets
from kafkacore.producer.transactions import CALLS, Step, StepKind, TransactionEngine
from kafkacore.producer.two_phase import PreparedTransaction
from kafkacore.producer.txn import TransactionManager
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, ProducerRecord, RecordMetadata, TopicPartition

__all__ = ["BatchFuture", "BatchMetadata", "FrameFuture", "FrameMetadata", "KafkaProducer", "RecordFuture"]

log = logging.getLogger(__name__)

MADE = (
    "topic %s was not there when it was asked for first, and is now, with %d partitions: brokers with auto.create.topics.enable make what "
    "producers ask for, unless these have allow.auto.create.topics=false"
)

METADATA_MAX_IDLE_MS = 300_000
BATCH_BYTES_MIN = 125                      # what a batch takes beside its records
COMPRESSED_MANY_BYTES = 256 * 1024         # compressing more at once lets answers wait; and a codec may make a batch a little larger

_codec._bind_producer_types(RecordMetadata, UsageError)

_producers: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


class KafkaProducer(ProducerCore):
    """Sends records to Kafka. Threads may share one producer; a forked child makes its own.

    Usable as a context manager: leaving it closes the producer, and so delivers what was sent. With the brokers gone that is tried for
    30 s, and for 5 s when the block was left by an error or Ctrl+C; what was not delivered is said in one line.

    Source: org.apache.kafka.clients.producer.KafkaProducer.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Unpack[ProducerKeywords]
    ) -> None:
        """Connects in the background; a wrong address shows at the first send.

        Args:
            config: settings under Kafka's dotted names.
            clock: time; the system's by default.
            **settings: the same with underscores, as in `kafkacore.config.ProducerConfig`.

        Raises:
            ConfigError: a setting is unknown or out of range.
        """
        self.config = settings_ = ProducerConfig.from_user(config, **settings)
        self._clock: Clock = clock or SystemClock()
        self._pid = os.getpid()
        self._closed = False
        metadata = self._metadata = Metadata(
            settings_,
            self._clock,
            topic_idle_ms=METADATA_MAX_IDLE_MS,
            allow_auto_topic_creation=settings_.topic_creation,
        )
        self._metadata.bootstrap(settings_.bootstrap_addresses)
        backoff = ExponentialBackoff(settings_.retry_backoff_ms, settings_.retry_backoff_max_ms)
        self._engine = None if settings_.transactional_id is None else TransactionEngine(backoff.backoff_ms)
        gate = self._gate = None if self._engine is None else self._engine.gate
        self._transactions = TransactionManager(gate) if settings_.enable_idempotence else None
        self._pool = BufferPool(settings_.buffer_memory, buffer_bytes(settings_.batch_size, settings_.max_request_size))
        self._accumulator = RecordAccumulator(
            batch_size=settings_.batch_size,
            linger_ms=settings_.linger_ms,
            delivery_timeout_ms=settings_.delivery_timeout_ms,
            max_request_size=settings_.max_request_size,
            pool=self._pool,
            backoff_ms=backoff.backoff_ms,
            transactions=self._transactions,
            choose_sticky=StickyPartitioner(
                lambda: metadata.snapshot,
                adaptive=settings_.partitioner_adaptive_partitioning_enable,
                unavailable=(lambda: sender.unavailable_nodes()) if settings_.partitioner_availability_timeout_ms else None,
                rack=settings_.client_rack if settings_.partitioner_rack_aware else None,
            ),
            many_bytes=min(settings_.send_many_batch_size, COMPRESSED_MANY_BYTES)
            if settings_.compression_type != "none"
            else settings_.send_many_batch_size,
        )
        this = weakref.ref(self)             # the Sender thread must not keep its producer alive
        client = NetworkClient(
            client_selector(
                settings_,
                self._clock,
                settings_.ssl_contexts(),
                authenticators(settings_.sasl_settings(), settings_.client_id, self._clock),
            ),
            metadata,
            settings_,
            self._clock,
            max_in_flight=settings_.max_in_flight_requests_per_connection,
            broker_version=settings_.broker_version,
        )
        sender = self._sender = Sender(
            client=client,
            metadata=self._metadata,
            accumulator=self._accumulator,
            transactions=self._transactions,
            config=settings_,
            clock=self._clock,
            backoff_ms=backoff.backoff_ms,
            on_metadata=lambda: _update_topics(this()),
            engine=self._engine,
        )
        self._transaction_stats = TransactionStats()
        interceptors = Interceptors(made_list(settings_, "interceptors", ("on_send", "on_acknowledgement")))
        self._intercept, self._not_queued = interceptors.on_send, interceptors.not_queued
        self._made: set[str] = set()
        self._topics_version = -1  # of the metadata that _update_topics has taken in
        self._partitioner, self._partitions_bytes = None, False
        if not isinstance(settings_.partitioner, str):
            own = made(settings_, "partitioner", ("partition", "__call__", "__init__"))
            self._partitioner, self._partitions_bytes = partition_method(own)
        self._round_robin = settings_.partitioner == "round_robin"
        by_name = settings_.partitioner if isinstance(settings_.partitioner, str) else "murmur2"
        self._place_by(by_name, settings_.partitioner_ignore_keys)
        self._murmur2_unsaid = settings_.partitioner == "murmur2" and "partitioner" not in settings_.given
        self._key_serializer = made(settings_, "key_serializer", ("serialize", "__call__"))
        self._value_serializer = made(settings_, "value_serializer", ("serialize", "__call__"))
        plain_choice = self._partitioner is None and not self._round_robin
        plain = is_function_of_value(self._key_serializer) and is_function_of_value(self._value_serializer) and not interceptors
        self._fast = plain and plain_choice
        # send_many appends columns as they are
        self._plain = plain and self._partitioner is None and self._value_serializer is None and self._key_serializer is None
        _producers.add(self)
        open_senders.add(self._sender)
        self._sender.start()
        self._never_waits = False                         # of an asyncio producer: what would wait raises NotNow
        self._put_off = False                             # it has raised that since its face looked
        self._asked_again: dict[tuple[str, int], tuple[int, int]] = {}   # the version asked for by it, and when to give up

    # ---- sending -----------------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedClientError("this producer belongs to the parent process; make one in each process")
        if self._closed:
            raise ClosedError("the producer is closed")

    def _check_sending(self) -> None:
        self._check_open()
        engine = self._engine
        if engine is not None and not engine.gate.takes_records:
            engine.check_sending()

    def _refuse(self, error: BaseException) -> None:
        if self._engine is not None and isinstance(error, Exception) and not isinstance(error, NotNow):
            self._engine.record_refused(error)            # who interrupts a call has not had a record refused: as in Java

    def _roll(self, queue: TopicQueue, chosen: PartitionQueue | None, record_bytes: int) -> int:
        """Called by the append path when the open batch does not take a record; returns how long it waited, ms."""
        return self._roll_within(queue, chosen, record_bytes, 0)

    def _roll_within(self, queue: TopicQueue, chosen: PartitionQueue | None, record_bytes: int, waited_ms: int) -> int:
        return self._roll_many(queue, chosen, record_bytes, waited_ms, 0)

    def _roll_many(
        self, queue: TopicQueue, chosen: PartitionQueue | None, record_bytes: int, waited_ms: int, left_bytes: int
    ) -> int:
        self._check_sending()
        now_ms = self._clock.now_ms()
        if self._never_waits:
            try:
                self._accumulator.roll(queue, chosen, record_bytes, now_ms, 0, left_bytes)
            except BufferFullError:
                self._put_off = True
                raise NotNow(max(self._pool.pooled_bytes, record_bytes + BATCH_BYTES_MIN)) from None
            return 0
        # In a delivery callback no other thread can free memory: it would wait for itself.
        max_block_ms = 0 if self._sender.in_io_thread else self._left_ms(waited_ms)
        self._accumulator.roll(queue, chosen, record_bytes, now_ms, max_block_ms, left_bytes)
        if self._engine is not None and not self._engine.gate.takes_records:
            self._engine.check_sending()                  # the transaction may have ended during a wait for memory
        return self._clock.now_ms() - now_ms

    def _left_ms(self, waited_ms: int) -> int:
        """What is left of max_block_ms, which is for one send: its metadata and its memory."""
        return max(0, self.config.max_block_ms - waited_ms)

    def _send_general(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: Time | None,
        on_delivery: Any,
        waited_ms: int = 0,
    ) -> RecordFuture:
        """send() off the fast path: a topic's first record, a ProducerRecord, interceptors, a partitioner, a closed producer."""
        if self._never_waits:
            self._put_off = True
            raise NotNow                                  # its caller has a general way of its own
        self._check_sending()
        _codec.check_delivery_callback(on_delivery)
        record, callback = self._intercept(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        try:
            queue, metadata_ms = self._queue_of(record.topic)
            future = self._prepare(queue, record, callback, waited_ms + metadata_ms)()
        except Exception as error:
            self._not_queued(error)
            raise
        if on_delivery is None and callback is not None:
            _codec.overlook(future)
        return future

    def _prepare(self, queue: TopicQueue, record: ProducerRecord, callback: Any, waited_ms: int) -> Callable[[], RecordFuture]:
        """Chooses the partition and serializes; what it returns appends."""
        if record.key is not None and self._murmur2_unsaid:
            check_partitioner()
        partition = record.partition
        if partition is None and self._partitioner is not None and not self._partitions_bytes:
            partition = self._partitioner(record.topic, record.key, record.value, self._metadata.snapshot)
        elif partition is None and self._round_robin:
            partition = self._next_in_turn(queue)
        value = serialize(self._value_serializer, record.topic, record.value)
        key = serialize(self._key_serializer, record.topic, record.key)
        if partition is None and self._partitioner is not None and self._partitions_bytes:
            cluster = self._metadata.snapshot
            partition = self._partitioner(record.topic, record.key, as_bytes(key), record.value, as_bytes(value), cluster)
        return functools.partial(
            self._append_serialized, queue, value, key, record.headers or None, partition, record.timestamp_ms, callback, waited_ms
        )

    def _next_in_turn(self, queue: TopicQueue) -> int:
        available = queue.available(self._metadata.snapshot)
        queue.turn += 1
        return available[queue.turn % len(available)].index

    def _next_in_turns(self, queue: TopicQueue, numbers: Any, count: int) -> Any:
        """What `_next_in_turn` says for all records that name no partition."""
        indexes = queue.available_numbers(self._metadata.snapshot)
        open_ = np.arange(count) if numbers is None else np.flatnonzero(numbers < 0)
        chosen = np.empty(count, np.int32) if numbers is None else numbers.copy()
        chosen[open_] = indexes[(queue.turn + 1 + np.arange(len(open_))) % len(indexes)]
        queue.turn += len(open_)
        return chosen

    def _queue_of(self, topic: str) -> tuple[TopicQueue, int]:
        """The topic's queues, and how long its metadata took, ms: at most max_block_ms."""
        waited_ms = 0
        queue = self._topics.get(checked_name(topic))
        if queue is None:
            start_ms = self._clock.now_ms()
            queue = self._queue_for(topic, self._await_topic(topic, self.config.max_block_ms))
            waited_ms = self._clock.now_ms() - start_ms
        return queue, waited_ms

    def _queue_for(self, topic: str, info: TopicInfo) -> TopicQueue:
        """The topic's queues, made if need be."""
        queue = self._topics.get(topic)
        if queue is None:
            unplaced = self._sender.unplaced
            with contextlib.nullcontext() if unplaced is None else unplaced.change_over(topic):
                queue = self._topics.setdefault(topic, new_queue(topic, info))
            follow(queue, self._metadata.snapshot.topics.get(topic))  # _update_topics may have been here before the queue was
        return queue

    def _await_partition(self, queue: TopicQueue, partition: int, waited_ms: int) -> int:
        """Asks once more before a partition number is refused: it may have been added since the last answer."""
        metadata = self._metadata
        start_ms = self._clock.now_ms()
        if self._never_waits:
            version, until_ms = self._asked_again.get((queue.topic, partition), (-1, 0))
            if version < 0:
                version = metadata.request_update()
                self._asked_again[queue.topic, partition] = version, start_ms + self.config.max_block_ms
                self._sender.wake(start_ms, True)
                self._put_off = True
                raise NotNow(version=version)
            if metadata.version <= version and start_ms < until_ms:
                self._put_off = True
                raise NotNow(version=version)
            del self._asked_again[queue.topic, partition]
        if not self._sender.in_io_thread and not self._never_waits:
            version = metadata.request_update()
            self._sender.wake(start_ms, True)
            metadata.await_update(version, self._left_ms(waited_ms))
        _update_topics(self)
        return self._clock.now_ms() - start_ms

    def _await_topic(self, topic: str, max_block_ms: int) -> TopicInfo:
        """What the cluster says about a topic; waits for it."""
        looks = self._looks_at_topic(topic, max_block_ms)
        while True:
            try:
                version, left_ms, fatal_count = next(looks)
            except StopIteration as found:
                info: TopicInfo = found.value
                return info
            self._metadata.await_update(version, left_ms, fatal_count)

    def _looks_at_topic(self, topic: str, max_block_ms: int) -> Generator[tuple[int, int, int], None, TopicInfo]:
        """What the cluster says about a topic. Errors known from before belong to earlier calls: only an answer to this one is raised.

        Yields:
            What has to be awaited before it looks again, as `Metadata.await_update` takes it.
        """
        metadata = self._metadata
        start_ms = now_ms = self._clock.now_ms()
        fatal_count = metadata.fatal_count
        started = metadata.started
        metadata.add_topic(topic, now_ms, create=True)
        before = metadata.snapshot.topics.get(topic)
        absent = False
        while True:
            version = metadata.version
            info = metadata.snapshot.topics.get(topic)
            if info is not None and info.partition_count:
                if absent and self.config.allow_auto_create_topics and topic not in self._made:
                    self._made.add(topic)                    # other threads may have waited for it too
                    log.warning(MADE, topic, info.partition_count)
                return info
            # An answer to an earlier question may be from before the topic was created.
            absent = absent or (metadata.answered > started and info is not None and isinstance(info.error, UnknownTopicOrPartition))
            if info is not None and info is not before and info.error is not None and not info.error.retriable:
                raise info.error
            left_ms = max_block_ms - (now_ms - start_ms)
            if left_ms <= 0 or self._sender.in_io_thread:
                metadata.request_update()                     # for the next call: this one cannot wait for the answer
                reasons = list(metadata.attempts)
                if info is not None and info.error is not None:
                    reasons.append(info.error)
                raise KafkaTimeoutError(f"no metadata of topic {topic} within {max_block_ms} ms", topic=topic, attempts=reasons)
            metadata.request_topic(topic)
            self._sender.wake(now_ms, True)
            yield version, left_ms, fatal_count
            self._check_open()
            now_ms = self._clock.now_ms()

    def send_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        headers: Any = None,
        partitions: Any = None,
        timestamps_ms: Any = None,
    ) -> BatchFuture:
        """Queues many records, in order, with one call.

        Batches hold up to `send_many_batch_size` (1 MiB; 256 KiB with a codec) whatever `batch_size` says, unless that is more: a batch of
        16 KiB costs more than its records. They are smaller where the call has less to send, where max_request_size or a 32nd of
        buffer_memory is less, and where the topic's max.message.bytes was: the first batch refused for its size is split, and later ones
        are cut below it. A batch with batch_size bytes is full and does not linger; it takes more until it leaves.

        Records without a key stick to a partition for one batch. A call for n partitions is cut into n parts or more if these have 256 KiB;
        less goes to one partition, and the next batch to another. With keys or `partitions` each partition fills batches of its own.

        With serializers, interceptors or a partitioner of your own each record goes as by send(): the result is the same, at send()'s
        cost per record, in batches of batch_size.

        Args:
            topic: topic name.
            values: list of bytes-like, str or None (with a value_serializer: of what it takes); an Arrow binary or string array; a
                pandas or polars Series or a column of an Arrow table (these take pyarrow); a numpy S or V array; or (data, offsets).
            keys: the same, one per value, or None.
            headers: headers for every record, [(name, value), ...]; or a list with such a list, or None, per record; or a
                `kafkacore.records.HeaderColumn`, made of columns without an object per header.
            partitions: one number for all, or an array of numbers, or None for the partitioner. In an Arrow array nulls leave their
                records to the partitioner.
            timestamps_ms: one for all, as `send` takes it, or one per record, or None for now: epoch milliseconds, a datetime64 array of
                any unit (UTC), Arrow timestamps, a Series of times, or a list of datetimes.

        Returns:
            BatchFuture. Its topic is `topic`, even where an interceptor sent a record elsewhere.

        Raises:
            BufferFullError and what else send() raises: the records before stay queued; `error.appended` says how many, and
                `error.future` is their BatchFuture.
            ValueError: columns differ in length.
        """
        self._check_sending()
        try:
            queue, waited_ms = self._queue_of(topic)
            call = self._checked_many(queue, values, keys, headers, partitions, timestamps_ms, waited_ms)
        except BaseException as error:
            self._refuse(error)
            none_queued(error, topic)
            raise
        try:
            if self._plain:
                self._append_call(call)
            else:
                for i in range(call.count):
                    call.progress.add(self._send_general(*call.record(i)))
        except BaseException as error:
            self._refuse(error)
            call.cut_short(error)
            raise
        return call.future()

    def send_frame(
        self,
        topic: str,
        frame: Any,
        *,
        key: str | list[str] | None = None,
        value: str | list[str] | None = None,
        value_format: Literal["json", "avro"] | None = None,
        key_format: Literal["json"] | None = None,
        value_schema: Any = None,
        registry: Any = None,
        headers: str | Mapping[str, str] | None = None,
        partition: str | int | None = None,
        timestamp: str | Time | None = None,
        null_keys: bool = False,
        null_fields: bool = True,
        keep: bool | list[str] = False,
    ) -> FrameFuture:
        """Queues the rows of a table, in order. It takes pyarrow. Memory holds some megabytes of the frame's records at a time.

        A row of which it becomes known meanwhile that it was not delivered ends the call.

        Args:
            topic: topic name.
            frame: what has `__arrow_c_stream__` or `__arrow_c_array__` (a polars frame, an Arrow table, batch or reader, a DuckDB relation,
                what `read` and `poll_batch` of a consumer return), or a pandas frame: its index is a column if it has a name.
            key: column of keys, text or bytes; with `key_format` any column, or a list of columns for one JSON object.
            value: column of values; with `value_format` any column, or a list of columns; None = all that no other argument names.
            value_format: "json" or "avro"; `kafkacore.producer.frame_json` and `frame_avro` say how each type is written. A null is a null
                value. Avro takes fastavro.
            key_format: "json".
            value_schema: the Avro schema, as a dict or JSON; None makes one of the columns. With a registry the id of a schema there; None
                takes the newest of the subject TOPIC-value.
            registry: URL of a schema registry, or a `decode.registry.RegistryOptions`: Avro values begin with its prefix.
            headers: {header name: column of text or bytes}, without the header where that is null; or a column of lists of (key, value)
                structs, as `read` has it.
            partition: column of numbers, nulls left to the partitioner; or one number for all.
            timestamp: column of timestamps, dates or epoch milliseconds; or one time for all; None for now.
            null_keys: rows whose key is null are sent without a key, instead of being refused.
            null_fields: False leaves null fields out of JSON objects.
            keep: columns that are keys, times, partitions or headers and stay in the value as well, where `value` is None; True for all of
                them. A record's time has milliseconds: of a column with more digits it is a part.

        Returns:
            FrameFuture; its result says where the rows are by partition, and which failed.

        Raises:
            UsageError: a column is not there or has the wrong type, or a row cannot be a record.
            DeliveryError: a row was not delivered, and others are not sent yet.
            KafkaError: as `send_many`. With each error `error.appended` says how many rows are queued, `error.future` is their FrameFuture.
            TypeError: the frame is no table.
        """
        from kafkacore.producer.frames import send_frame  # what it imports nobody else needs

        try:
            return send_frame(
                self, topic, frame, key=key, value=value, value_format=value_format, key_format=key_format,
                value_schema=value_schema, registry=registry, headers=headers,
                partition=partition, timestamp=timestamp, null_keys=null_keys, null_fields=null_fields, keep=keep,
            )  # fmt: skip
        except Exception as error:
            self._refuse(error)
            raise

    def _checked_many(
        self, queue: TopicQueue, values: Any, keys: Any, headers: Any, partitions: Any, timestamps_ms: Any, waited_ms: int
    ) -> ManyCall:
        if keys is not None and self._murmur2_unsaid:
            check_partitioner()
        call = ManyCall(queue, values, keys, headers, timestamps_ms, waited_ms)
        if partitions is not None:
            call.numbers, call.waited_ms = self._partition_numbers(queue, partitions, call.count, waited_ms)
        if self._plain and self._round_robin:
            call.numbers = self._next_in_turns(queue, call.numbers, call.count)
        return call

    def _append_call(self, call: ManyCall) -> None:
        """Appends columns as they are, from the first record that is not queued yet."""
        self._append_many(
            call.queue,
            call.column,
            call.key_column,
            call.encoded_headers(),
            call.numbers,
            call.one_ms,
            call.each_ms,
            call.progress,
            call.waited_ms,
        )

    def _partition_numbers(self, queue: TopicQueue, given: Any, count: int, waited_ms: int) -> tuple[Any, int]:
        """One checked number per record, -1 where the partitioner is to choose, None where it chooses all; and the wait so far, ms."""
        numbers, asked = partition_numbers(given)
        if numbers is None:
            return None, waited_ms
        if count:
            low, high = int(asked.min()), int(asked.max())
            if high >= queue.n:
                waited_ms += self._await_partition(queue, high, waited_ms)
            if not 0 <= low <= high < queue.n:
                wanted = f"{low}..{high}" if low < high else low
                raise UsageError(f"topic {queue.topic} has {counted(queue.n, 'partition')}; asked for {wanted}")
        return np.ascontiguousarray(np.broadcast_to(numbers, (count,))), waited_ms

    # ---- transactions ------------------------------------------------------------------------------------------------------------

    def _step(
        self,
        kind: StepKind,
        timeout: float | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: ConsumerGroupMetadata | None = None,
    ) -> None:
        began_ns = self._clock.now_ns()
        step = self._submit(kind, offsets, group)
        await_step(self._sender, step, self._step_s(timeout))
        self._transaction_stats.ended(CALLS[kind], self._clock.now_ns() - began_ns)

    def _submit(
        self,
        kind: StepKind,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: ConsumerGroupMetadata | None = None,
    ) -> Step:
        self._check_open()
        engine = self._transactional(CALLS[kind])
        if self._sender.in_io_thread:
            raise IllegalStateError(f"a delivery callback cannot call {kind.value}(): the thread that would do it is this one")
        return engine.submit(kind, offsets, group)

    def _step_s(self, timeout: float | None) -> float:
        return self.config.max_block_ms / 1000 if timeout is None else timeout

    def _transactional(self, call: str) -> TransactionEngine:
        if self._engine is None:
            raise IllegalStateError(f"{call}() needs the setting transactional_id")
        return self._engine

    def init_transactions(self, timeout: float | None = None) -> None:
        """Gets the producer ready for transactions; called once, first. A producer that used the transactional id before is fenced, and
        what it left open is aborted.

        Args:
            timeout: seconds, None = max_block_ms; so for all calls of a transaction.

        Raises:
            KafkaTimeoutError: not done in time; it goes on, and calling it again waits for its end. So for all calls of a transaction.
            KafkaError: refused for good; the producer can only be closed (`error.fatal`).
        """
        self._step(StepKind.INIT, timeout)

    def begin_transaction(self) -> None:
        """Opens a transaction: what is sent from now on belongs to it.

        Raises:
            IllegalStateError: one is open, or init_transactions() was not called.
        """
        self._check_open()
        began_ns = self._clock.now_ns()
        self._transactional("begin_transaction")
        assert self._sender.transactional is not None
        self._sender.transactional.begin(began_ns // 1_000_000)
        self._transaction_stats.ended("begin_transaction", self._clock.now_ns() - began_ns)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commits a consumer group's offsets with the transaction (KIP-447). The consumer has enable_auto_commit=False.

        Args:
            offsets: the next offset to read, by partition.
            group_metadata: `consumer.consumer_group_metadata()`, so that a member that has lost its partitions is refused. A group id alone
                is for consumers without a group's assignment (`assign`): then nothing but the transactional id tells who may commit.
            timeout: seconds, None = max_block_ms.

        Raises:
            KafkaError: with `txn_requires_abort`, call abort_transaction().
        """
        group, found = checked_group(group_metadata), checked_offsets(offsets)
        self._step(StepKind.OFFSETS, timeout, found, group)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Sends what is queued, waits until all records are delivered and commits.

        Args:
            timeout: seconds, None = max_block_ms.

        Raises:
            KafkaTimeoutError: how it ends is not known yet: call commit_transaction() again, and not abort_transaction().
            KafkaError: nothing of the transaction is committed. With `txn_requires_abort`, call abort_transaction() and begin again; with
                `fatal`, close the producer.
        """
        self._step(StepKind.COMMIT, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Aborts: records that are not on their way fail with TransactionAborted, and readers of committed data see none of the others. The
        producer can begin again afterwards.

        Args:
            timeout: seconds, None = max_block_ms.

        Raises:
            KafkaError: as `init_transactions`.
        """
        self._step(StepKind.ABORT, timeout)

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Sends what is queued, waits until all records are delivered, and leaves the transaction open, for `TwoPhaseClient` in any process
        to commit or abort. It takes no further records. This producer may end it as well, and closing the producer does not.

        The coordinator aborts it like any other when it has been open for transaction_timeout_ms, counted from its first record.

        Args:
            timeout: seconds, None = max_block_ms.

        Returns:
            What the other process needs: plain data.

        Raises:
            KafkaError: as `commit_transaction`; also if the coordinator has no such open transaction any more.
        """
        self._step(StepKind.PREPARE, timeout)
        assert self._engine is not None
        return PreparedTransaction.of(str(self.config.transactional_id), self._engine.at)

    def transaction(self) -> Transaction[Self]:
        """A transaction as a block: `with producer.transaction():` begins it, its end commits it. When the block raises, Ctrl+C included,
        it is aborted and the exception goes on. When the commit fails and an abort is called for, that is done, and the commit's error
        raised.
        """
        self._check_open()
        return Transaction(self, self._transactional("transaction"))

    # ---- waiting -----------------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Sends everything queued now and waits for the outcome.

        Args:
            timeout: seconds, None = no limit (every record has an outcome after delivery_timeout_ms).

        Raises:
            DeliveryError: records failed since the last flush and their futures were not looked at; counts and first causes.
            KafkaTimeoutError: the time has passed.
        """
        self._check_open()
        if self._sender.in_io_thread:
            raise IllegalStateError("a delivery callback cannot flush: the thread that would do it is this one")
        end = None if timeout is None else time.monotonic() + timeout
        self._accumulator.begin_flush()
        try:
            self._sender.wake(-1, True)
            pending = dict.fromkeys(batch.delivery.root for batch in self._accumulator.incomplete())
            for delivery in pending:
                if not delivery.finished:
                    self._sender.wait(delivery, None if end is None else max(0.0, end - time.monotonic()))
        finally:
            self._accumulator.end_flush()
        if (lost := self._unobserved()) is not None:
            raise lost

    def _unobserved(self) -> DeliveryError | None:
        """The failures that were not looked at so far; they count as looked at from now on."""
        failed, causes = self._sender.unobserved_failures()
        return DeliveryError(failed=failed, causes=causes) if failed else None

    def close(self, timeout: float | None = CLOSE_S) -> None:
        """Delivers what is queued, then closes the connections. Never hangs; calling it again does nothing.

        Failed records whose futures were not looked at are logged as a warning, with their number and causes; the end of a `with` block
        raises them.

        Args:
            timeout: seconds for a graceful end, None = delivery_timeout_ms; then the rest fails with ClosedError.
        """
        if self._close(timeout) and (lost := self._unobserved()) is not None:
            log.warning("%s", lost)

    def _close(self, timeout: float | None) -> bool:
        """Whether this call closed it."""
        closed, self._closed, self._fast = self._closed, True, False
        if closed or os.getpid() != self._pid:
            return False
        close_sender(self._sender, self.config.delivery_timeout_ms / 1000 if timeout is None else timeout)
        return True

    def __reduce__(self) -> Never:
        raise UsageError("a KafkaProducer belongs to the process that made it; make one in each process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Closes.

        Raises:
            DeliveryError: as `flush`, unless the block itself raised something.
        """
        if kind is not None:
            self.close(close_timeout_s(kind))
        elif self._close(CLOSE_S) and (lost := self._unobserved()) is not None:
            raise lost

    def __del__(self) -> None:
        # Runs in a collection, on any thread, between any two steps: initiate_close takes no lock that such a thread may hold.
        sender = self.__dict__.get("_sender") if hasattr(self, "__dict__") else None
        if sender is not None and not self._closed and os.getpid() == self._pid:
            sender.initiate_close()                       # the thread delivers what is queued, then ends

    # ---- looking in --------------------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic that is to be written to; waits for its metadata up to max_block_ms.

        As the first `send`, it may create the topic: see `allow_auto_create_topics`.

        Raises:
            KafkaTimeoutError: no metadata in time.
            KafkaError: the cluster refuses to describe the topic, or a broker refuses this client.
        """
        self._check_open()
        return {partition.index for partition in self._await_topic(checked_name(topic), self.config.max_block_ms).partitions}

    @overload
    def metrics(self, *, detail: Literal[False] = False) -> dict[str, int]: ...
    @overload
    def metrics(self, *, detail: Literal[True]) -> dict[str, dict[str, float]]: ...
    def metrics(self, *, detail: bool = False) -> dict[str, int] | dict[str, dict[str, float]]:
        """What operators look at. Any thread may ask; it takes no lock.

        Args:
            detail: everything under Kafka's names.

        Returns:
            Counts since the start (requests, batches, records, bytes, retries, ...) and the state of the buffer memory. With `detail`
            values by group and name: producer-metrics, producer-topic-metrics.topic-TOPIC, producer-node-metrics.node-1. Times are in ms;
            averages, maxima and rates are of the last 30 to 60 s, NaN without values; names that end in -total count since the start.
        """
        if detail:
            return grouped(self.measured())
        return {
            **self._sender.counters,
            "transactions_committed": self._transaction_stats.committed,
            "transactions_aborted": self._transaction_stats.aborted,
            "buffer_total_bytes": self._pool.total_bytes,
            "buffer_available_bytes": self._pool.available_bytes,
            "waiting_threads": self._pool.queued,
            "incomplete_batches": len(self._accumulator.incomplete()),
        }

    def measured(self) -> list[Measured]:
        """What `metrics(detail=True)` holds, with group, name and tags apart; for exporters (kafkacore.metrics)."""
        sender = self._sender
        network, topics = NetworkStats.of(sender.client), list(self._topics.values())
        return list(of_producer(network, sender.stats, self._transaction_stats, self._pool, topics, self._clock.now_ms()))

    @property
    def closed(self) -> bool:
        """True once the producer is closed."""
        return self._closed

    def __repr__(self) -> str:
        config = self.config
        named = "" if config.transactional_id is None else f"; transactional_id {config.transactional_id!r}"
        return f"KafkaProducer({', '.join(config.bootstrap_servers)}{named}{'; closed' if self._closed else ''})"

    def statistics(self) -> dict[str, Any]:
        """State by partition: batches queued and on the wire, and with idempotence the sequence numbers."""
        in_flight: dict[Any, int] = {}
        for partition in self._sender.in_flight_batches():
            in_flight[partition] = in_flight.get(partition, 0) + 1
        return {
            "partitions": {
                queue.topic_partition: {
                    "queued_batches": len(queue.batches),
                    "in_flight_batches": in_flight.get(queue, 0),
                    "muted": bool(queue.muted),
                }
                for topic in list(self._topics.values())
                for queue in topic.partitions
            },
            "transactions": None if self._transactions is None else self._transactions.statistics(),
        }


def _update_topics(producer: KafkaProducer | None) -> None:
    """Takes in what became of known topics."""
    if producer is not None:
        producer._topics_version = follow_changes(producer._topics, producer._metadata, producer._topics_version)


answer_names(KafkaProducer, PRODUCER)
list_settings(KafkaProducer, ProducerConfig)


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer._fast = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
