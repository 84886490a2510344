"""kafka-python's KafkaConsumer over the engine's.

The engine's records get kafka-python's names in place (structs.ConsumerRecord), so poll and a `for` loop hand out the engine's own lists.
Deserializers, which see headers here, run on the way out.

Source: kafka.consumer.group, kafka-python 3.0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

from kafkacore import errors as ours
from kafkacore import types
from kafkacore._codec import recast_records
from kafkacore.compat.forms import INTERNAL_TOPICS
from kafkacore.compat.forms import at_beginning as _at_beginning
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.common_settings import engine_settings
from kafkacore.compat.kafka.consumer_settings import CONSUMER_DEFAULTS, CONSUMER_SETTINGS
from kafkacore.compat.kafka.future import Future
from kafkacore.compat.kafka.listener import AsyncConsumerRebalanceListener, ConsumerRebalanceListener, EngineListener
from kafkacore.compat.kafka.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    DeserializedRecord,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from kafkacore.consumer import KafkaConsumer as Engine

log = logging.getLogger("kafkacore.compat")

_OUT, _STABLE = ("out", "left"), "stable"


class OffsetCommitResponse(NamedTuple):
    """What a commit callback gets when the commit worked: (topic, [(partition, 0), ...]) for each topic."""

    topics: list[tuple[str, list[tuple[int, int]]]]


def _committed(offsets: Mapping[Any, Any]) -> OffsetCommitResponse:
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for topic, partition in offsets:
        by_topic.setdefault(topic, []).append((partition, 0))
    return OffsetCommitResponse(list(by_topic.items()))


class _Watch:
    """The engine's interceptor: automatic commits for default_offset_commit_callback.

    It hears of every commit that worked, right before the callback of `commit_async` does: what it hears waits until it is clear that the
    program has not asked for it.
    """

    def __init__(self, callback: Callable[[Any, Any], Any]) -> None:
        self._callback = callback
        self._heard: Mapping[TopicPartition, types.OffsetAndMetadata] | None = None

    def on_commit(self, offsets: Mapping[TopicPartition, types.OffsetAndMetadata]) -> None:
        self.hand_on()
        self._heard = offsets

    def was_asked_for(self) -> None:
        """The last commit has a caller of its own."""
        self._heard = None

    def hand_on(self) -> None:
        """The last commit was automatic."""
        offsets, self._heard = self._heard, None
        if offsets is not None:
            self._callback({tp: OffsetAndMetadata.of(found) for tp, found in offsets.items()}, _committed(offsets))


def _seconds(timeout_ms: float | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000


class KafkaConsumer:
    """Reads records; one thread at a time may use it.

    Takes kafka-python's settings as keywords (`DEFAULT_CONFIG`), with its defaults.

    Args:
        *topics: topics to subscribe to.

    Raises:
        KafkaConfigurationError: an unknown setting, one that contradicts another, or one that is not supported here.
        KafkaTimeoutError: no broker within bootstrap_timeout_ms; not with `api_version`, which kafka-python takes for not asking.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = CONSUMER_DEFAULTS

    def __init__(self, *topics: str, **configs: Any) -> None:
        unknown = set(configs) - set(self.DEFAULT_CONFIG)
        if unknown:
            raise errors.KafkaConfigurationError(f"Unrecognized configs: {unknown}")
        config = self.config = {**self.DEFAULT_CONFIG, **configs}
        if not config["fetch_max_wait_ms"] < config["request_timeout_ms"] < config["connections_max_idle_ms"]:
            raise errors.KafkaConfigurationError(
                f"connections_max_idle_ms ({config['connections_max_idle_ms']}) must be larger than request_timeout_ms"
                f" ({config['request_timeout_ms']}) which must be larger than fetch_max_wait_ms ({config['fetch_max_wait_ms']})."
            )
        if config["group_instance_id"] is not None and config["group_id"] is None:
            raise errors.KafkaConfigurationError("group_instance_id requires group_id")
        self._watch = _Watch(config["default_offset_commit_callback"])
        self._key_of, self._value_of = (_deserializer(config[name]) for name in ("key_deserializer", "value_deserializer"))
        self._deserializes = self._key_of is not None or self._value_of is not None
        self._subscribed = False
        settings = engine_settings(CONSUMER_SETTINGS, self.DEFAULT_CONFIG, configs)
        with errors.translated():
            self._consumer = Engine(**settings, interceptors=(self._watch,) if "default_offset_commit_callback" in configs else ())
        self._records: Iterator[Any] | None = None
        if config["api_version"] is None:
            try:
                self.bootstrap(config["bootstrap_timeout_ms"])
            except BaseException:
                self._consumer.close(0)
                raise
        if topics:
            self.subscribe(topics)

    # -- connecting ---------------------------------------------------------------------------------------------------------------

    def bootstrap_connected(self) -> bool:
        """True once a broker has described the cluster."""
        return not self._consumer._metadata.snapshot.is_bootstrap

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Waits until a broker has described the cluster.

        Args:
            timeout_ms: how long; None without limit.
            refresh: asks also if one has done so already.

        Raises:
            KafkaTimeoutError: no broker answered in time.
        """
        driver, metadata = self._consumer._driver, self._consumer._metadata
        if not metadata.snapshot.is_bootstrap and not refresh:
            return
        with errors.translated(), driver:
            version = metadata.request_update()
            if not driver.run(lambda _: None, lambda: metadata.version > version, None if timeout_ms is None else int(timeout_ms)):
                raise ours.KafkaTimeoutError(
                    f"no broker of {self.config['bootstrap_servers']} answered within {timeout_ms} ms", attempts=driver.attempts()
                )

    # -- what to read -------------------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions; none of them unsubscribes.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        found = list(partitions)
        if not found:
            self.unsubscribe()
            return
        with errors.translated():
            self._consumer.assign(found)

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read. Any thread may ask."""
        return self._consumer.assignment()

    def subscribe(self, topics: Sequence[str] = (), pattern: Any = None, listener: ConsumerRebalanceListener | None = None) -> None:
        """Reads these topics, or those whose name a pattern matches at its beginning.

        Args:
            topics: names.
            pattern: a regular expression in place of names.
            listener: hears of partitions that come and go; needs a group.

        Raises:
            ValueError: neither topics nor a pattern.
            IllegalStateError: both, or partitions are assigned by `assign`.
            TypeError: `topics` is a str, or the listener is none.
        """
        if not topics and not pattern:
            raise ValueError("Must provide topics or pattern")
        if topics and pattern:
            raise errors.IllegalStateError("You must choose one way to configure your consumer: topics, a pattern, or assigned partitions")
        if topics and (isinstance(topics, str) or not isinstance(topics, Sequence)):
            raise TypeError("Topics must be a list (or non-str sequence)")
        if isinstance(listener, AsyncConsumerRebalanceListener):
            raise errors.IllegalArgumentError(
                "a listener with coroutines needs kafka-python's I/O loop; derive from ConsumerRebalanceListener"
            )
        if listener and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener must be a ConsumerRebalanceListener or AsyncConsumerRebalanceListener")
        wrapped = None
        if listener and self.config["group_id"] is None:
            log.warning("the listener %r is never called: there is no group", listener)
        elif listener:
            wrapped = EngineListener(listener)
        with errors.translated():
            if pattern:
                self._consumer.subscribe(pattern=_at_beginning(pattern), listener=wrapped)
            else:
                self._consumer.subscribe(list(topics), listener=wrapped)
        self._subscribed = True

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None without a subscription."""
        return self._consumer.subscription() if self._subscribed else None

    def unsubscribe(self) -> None:
        """Reads nothing any more; a member leaves its group."""
        with errors.translated():
            self._consumer.unsubscribe()
        self._subscribed = False

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions until `resume`; they stay assigned."""
        self._consumer.pause(*self._known(partitions, KeyError))

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._consumer.paused()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undoes `pause`."""
        self._consumer.resume(*self._known(partitions, KeyError))

    def _known(self, partitions: tuple[TopicPartition, ...], unassigned: Callable[[str], Exception]) -> tuple[TopicPartition, ...]:
        if not all(isinstance(p, TopicPartition) for p in partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        assigned = self._consumer._subscription.partitions
        for p in partitions:
            if p not in assigned:
                raise unassigned(f"Unassigned partition: {p}")
        return partitions

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True) -> dict[TopicPartition, list[Any]]:
        """The next records, in offset order per partition.

        Args:
            timeout_ms: how long to wait when there is nothing to hand out.
            max_records: at most so many; max_poll_records when None.
            update_offsets: kafka-python's own iteration sets it to False; it cannot be here.

        Raises:
            ValueError, TypeError: an argument is out of range.
            IllegalStateError: the consumer is closed, or nothing is subscribed to or assigned.
            KafkaError: what a broker refused, a position that is not there with auto_offset_reset=none, ...
        """
        if timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        if max_records is not None:
            if not isinstance(max_records, int):
                raise TypeError("max_records must be an integer")
            if max_records <= 0:
                raise ValueError("max_records must be positive")
        if not update_offsets:
            raise errors.IllegalArgumentError("update_offsets=False belongs to kafka-python's own iteration; seek() moves the position")
        try:
            found: dict[TopicPartition, list[Any]] = self._consumer.poll(None if timeout_ms == math.inf else timeout_ms / 1000, max_records)
        except ours.KafkaError as error:
            raise errors.of(error) from error
        self._watch.hand_on()
        for records in found.values():
            recast_records(records, ConsumerRecord)
        return self._deserialized(found) if found and self._deserializes else found

    def _deserialized(self, polled: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        """The records with keys and values deserialized. A failure moves the position back to its record, and is raised by the next poll if
        there are records before it."""
        done: dict[TopicPartition, list[Any]] = {}
        failure: Exception | None = None
        for tp, records in polled.items():
            if failure is not None:
                self._consumer.seek(tp, records[0].offset)
                continue
            ready: list[Any] = []
            for record in records:
                try:
                    ready.append(self._deserialize(record))
                except Exception as error:
                    failure = error
                    self._consumer.seek(tp, record.offset)
                    break
            if ready:
                done[tp] = ready
        if failure is not None and not done:
            raise failure
        return done

    def _deserialize(self, record: ConsumerRecord) -> DeserializedRecord:
        key, value, headers = record.key, record.value, record.headers
        if self._key_of is not None:
            key = self._key_of(record.topic, headers, key)
        if self._value_of is not None:
            value = self._value_of(record.topic, headers, value)
        return DeserializedRecord.of(record, key, value)

    def __iter__(self) -> Iterator[Any]:
        """Every record from here on; ends when nothing comes for consumer_timeout_ms, and when the consumer is closed.

        The position follows record by record.
        """
        while True:
            chunk = self._next_chunk()
            if chunk is None:
                return
            yield from chunk

    def __next__(self) -> Any:
        for record in self._records or ():
            return record
        self._records = self._next_chunk()
        if self._records is None:
            raise StopIteration
        return next(self._records)

    def _next_chunk(self) -> Iterator[Any] | None:
        """Records that are there, or the next that come; None when none came in time."""
        if self._consumer.closed:
            return None
        timeout_ms = self.config["consumer_timeout_ms"]
        try:  # a millisecond more: the clock below counts whole ones, and kafka-python never ends before the time
            found = self._consumer._next_chunk(None if timeout_ms < 0 or timeout_ms == math.inf else (timeout_ms + 1) / 1000)
        except ours.ClosedError:
            return None
        except ours.KafkaError as error:
            raise errors.of(error) from error
        self._watch.hand_on()
        if found is None:
            return None
        recast_records(self._consumer._unread.chunks[0].records, ConsumerRecord)  # which `found` goes over
        return self._deserializing(found) if self._deserializes else found

    def _deserializing(self, records: Iterator[Any]) -> Iterator[Any]:
        for record in records:
            try:
                yield self._deserialize(record)
            except Exception:
                self._consumer.seek((record.topic, record.partition), record.offset)
                raise

    # -- positions ----------------------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """Offset of the next record; looked up if it is not known yet, None when that takes longer than the time given.

        Raises:
            TypeError: no TopicPartition.
            IllegalStateError: the partition is not assigned.
        """
        self._check_assigned(partition)
        try:
            with errors.translated():
                return self._consumer.position(partition, _seconds(timeout_ms))
        except errors.KafkaTimeoutError:
            return None

    def highwater(self, partition: TopicPartition) -> int | None:
        """Offset behind the last record of a partition as of the last answer; None before the first.

        Raises:
            TypeError: no TopicPartition.
            IllegalStateError: the partition is not assigned.
        """
        self._check_assigned(partition)
        found: int = self._consumer._subscription.state_of(partition).high_watermark
        return None if found < 0 else found

    def _check_assigned(self, partition: Any) -> None:
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        if partition not in self._consumer._subscription.partitions:
            raise errors.IllegalStateError("Partition is not assigned")

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continues at an offset.

        Raises:
            TypeError: no TopicPartition.
            ValueError: the offset is no number from 0 on, or the partition is not assigned.
        """
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be int >= 0")
        self._known((partition,), ValueError)
        with errors.translated():
            self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continues at the first record of these partitions, of all when none is named.

        Raises:
            ValueError: a partition is not assigned, or none is.
        """
        with errors.translated():
            self._consumer.seek_to_beginning(*self._to_seek(partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continues behind the last record of these partitions, of all when none is named.

        Raises:
            ValueError: a partition is not assigned, or none is.
        """
        with errors.translated():
            self._consumer.seek_to_end(*self._to_seek(partitions))

    def _to_seek(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        if not partitions and not self._consumer._subscription.partitions:
            raise ValueError("No partitions are currently assigned")
        return self._known(partitions, ValueError)

    def beginning_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """First offset of each partition.

        Raises:
            KafkaTimeoutError: not all leaders answered within `timeout_ms` (request_timeout_ms).
        """
        with errors.translated():
            return self._consumer.beginning_offsets(partitions, self._lookup_s(timeout_ms))

    def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Offset behind the last readable record of each partition.

        Raises:
            KafkaTimeoutError: not all leaders answered within `timeout_ms` (request_timeout_ms).
        """
        with errors.translated():
            return self._consumer.end_offsets(partitions, self._lookup_s(timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, per partition; None without such a record.

        Args:
            timestamps: epoch milliseconds.
            timeout_ms: request_timeout_ms when None.

        Raises:
            ValueError: a time is negative.
            KafkaTimeoutError: not all leaders answered in time.
        """
        for tp, ms in timestamps.items():
            if ms < 0:
                raise ValueError(f"The target time for partition {tp} is {ms}. The target time cannot be negative.")
        with errors.translated():
            found = self._consumer.offsets_for_times({tp: int(ms) for tp, ms in timestamps.items()}, self._lookup_s(timeout_ms))
        return {tp: None if at is None else OffsetAndTimestamp(*at) for tp, at in found.items()}

    def _lookup_s(self, timeout_ms: float | None) -> float:
        return float(self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms) / 1000

    def topics(self) -> set[str]:
        """All topics that this consumer may see; asked for now."""
        with errors.translated():
            found = set(self._consumer.list_topics())
        return found - INTERNAL_TOPICS if self.config["exclude_internal_topics"] else found

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The partition numbers of a topic, empty for an unknown one."""
        count = self._consumer._metadata.snapshot.partition_count(topic)
        if count is not None:
            return set(range(count))
        with errors.translated():
            return {partition.index for partition in self._consumer.list_topics().get(topic, ())}

    # -- commits ------------------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: float | None = None) -> None:
        """Commits offsets for the group, and waits for the answer.

        Args:
            offsets: OffsetAndMetadata by partition; None commits the positions of all assigned partitions.
            timeout_ms: 60 s when None.

        Raises:
            IllegalStateError: there is no group.
            CommitFailedError: this consumer is not a member of its group any more.
            KafkaTimeoutError: no answer in time.
        """
        found = self._to_commit(offsets)
        with errors.translated():
            self._consumer.commit(found, _seconds(timeout_ms))
        self._watch.was_asked_for()

    def commit_async(
        self, offsets: Mapping[TopicPartition, Any] | None = None, callback: Callable[[Any, Any], Any] | None = None
    ) -> Future:
        """Commits offsets for the group without waiting.

        Args:
            offsets: as for `commit`.
            callback: called as callback(offsets, response) by a later poll, commit or close; `response` is an exception or an
                OffsetCommitResponse. default_offset_commit_callback when None.

        Returns:
            Future: its outcome is there when the callback is called.

        Raises:
            IllegalStateError: there is no group.
        """
        found = self._to_commit(offsets)
        future = Future()
        call = callback or self.config["default_offset_commit_callback"]

        def done(committed: Mapping[TopicPartition, types.OffsetAndMetadata], error: ours.KafkaError | None) -> None:
            shown = {tp: OffsetAndMetadata.of(at) for tp, at in committed.items()}
            if error is None:
                self._watch.was_asked_for()
                future.success(response := _committed(committed))
                call(shown, response)
            else:
                future.failure(failure := errors.of(error))
                call(shown, failure)

        with errors.translated():
            self._consumer.commit_async(found, done)
        return future

    def _to_commit(self, offsets: Mapping[TopicPartition, Any] | None) -> dict[Any, Any] | None:
        self._check_group()
        if offsets is None:
            return None
        return {tp: OffsetAndMetadata(*at).engines() if isinstance(at, tuple) else at for tp, at in offsets.items()}

    def _check_group(self) -> None:
        if self.config["group_id"] is None:
            raise errors.IllegalStateError("Requires group_id")

    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None) -> Any:
        """What the group has committed for a partition.

        Args:
            partition: need not be assigned.
            metadata: gives the OffsetAndMetadata in place of the offset.
            timeout_ms: 60 s when None.

        Returns:
            None where nothing is committed.

        Raises:
            IllegalStateError: there is no group.
            KafkaTimeoutError: no answer in time.
        """
        self._check_group()
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        with errors.translated():
            found = self._consumer.committed(partition, _seconds(timeout_ms))
        if found is None:
            return None
        return OffsetAndMetadata.of(found) if metadata else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member, as `KafkaProducer.send_offsets_to_transaction` wants them. Any thread may ask."""
        group = self._consumer._group
        if group is None:
            return ConsumerGroupMetadata()
        identity = group.identity()
        state = group.membership.phase.value
        shown = MemberState.UNJOINED if state in _OUT else MemberState.STABLE if state == _STABLE else MemberState.REBALANCING
        return ConsumerGroupMetadata(*identity, shown)

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]] | None:
        """Figures by group and name, Kafka's names; None with metrics_enabled=False.

        Args:
            raw: kafka-python's own metric objects, which are not there.

        Raises:
            IllegalArgumentError: `raw` is set.
        """
        if raw:
            raise errors.IllegalArgumentError("the engine has no KafkaMetric objects: metrics() gives their values")
        return self._consumer.metrics(detail=True) if self.config["metrics_enabled"] else None

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits what was processed, if that is automatic, leaves the group and closes the connections; again does nothing.

        Args:
            autocommit: False: what the last poll returned is not committed.
            timeout_ms: request_timeout_ms when None.
        """
        if self._consumer.closed:
            return
        with errors.translated():
            self._consumer._close(self._lookup_s(timeout_ms), processed=autocommit)
        self._watch.hand_on()
        for name in ("key_deserializer", "value_deserializer"):
            if (close := getattr(self.config[name], "close", None)) is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        """Closes; after an error what the last poll returned is not committed."""
        self.close(autocommit=exc_type is None)


def _deserializer(given: Any) -> Callable[[str, Any, Any], Any] | None:
    if given is None:
        return None
    if hasattr(given, "deserialize"):
        found: Callable[[str, Any, Any], Any] = given.deserialize
        return found
    return lambda topic, headers, data: given(data)
