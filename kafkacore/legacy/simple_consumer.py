"""SimpleConsumer: fetches from the offset that the caller names, and keeps nothing. The low-level consumer of Kafka 0.8.

It finds the leader of a partition by the metadata and asks it once. What goes wrong is the caller's to deal with: each error has Kafka's
code, and one that says that the leader moved makes the next call look for it again.

Source: kafka.consumer.SimpleConsumer, kafka.api.OffsetRequest of Kafka 0.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from kafkacore import errors
from kafkacore.clock import Clock
from kafkacore.legacy.brokers import OneRequest, update_metadata
from kafkacore.legacy.message_set import ByteBufferMessageSet
from kafkacore.legacy.settings import SimpleConsumerConfig
from kafkacore.net.driver import CallerDriver
from kafkacore.protocol import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacore.types import Node, TopicPartition

LATEST_TIME: Final = -1
EARLIEST_TIME: Final = -2

_CONSUMER: Final = -1
_WITHOUT_SESSION: Final = -1
_LAST_FROM_LEADERS: Final = 10
"""From version 11 on followers answer consumers as well (KIP-392): a leader that moved would not be noticed."""


class SimpleConsumer:
    """Reads partitions at offsets of the caller's choice. Any thread may call it; one call at a time.

    Args:
        config: settings as a mapping with dotted names.
        clock: the time; the system's unless given.
        **settings: see `kafkacore.legacy.settings.SimpleConsumerConfig`.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Any) -> None:
        self.config = SimpleConsumerConfig.from_user(config, **settings)
        self._driver = CallerDriver(self.config, "SimpleConsumer", exclusive=False, clock=clock)
        self._stale: set[str] = set()
        """Topics of which the cluster is asked before the next request: a leader was not what it was taken for."""
        self._high_watermarks: dict[TopicPartition, int] = {}

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1_048_576) -> ByteBufferMessageSet:
        """Reads messages from an offset on.

        Args:
            topic, partition: where.
            offset: of the first message.
            max_bytes: as many bytes of messages; brokers since Kafka 0.10.1 send the first batch whole where it has more.

        Returns:
            The messages, without those below the offset; `next_offset` is where to read on. With brokers before 0.10.1 its `valid_bytes`
            are 0 although `size_bytes` are not, where the first message has more than max_bytes.

        Raises:
            errors.OffsetOutOfRange: there is no such offset; see `get_offsets_before`.
            errors.NotLeaderOrFollower: the leader has moved; the next call finds it.
            errors.UnknownTopicOrPartition, errors.LeaderNotAvailable: no leader is known now.
            errors.KafkaError: what else the broker answered, or why it did not.
        """
        tp = TopicPartition(topic, partition)
        config = self.config
        if offset < 0 or max_bytes < 0:
            raise errors.UsageError(f"offset and max_bytes are not negative: {offset}, {max_bytes}", topic=topic, partition=partition)

        def build(_version: int) -> FetchRequest:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
            return FetchRequest(
                replica_id=_CONSUMER,
                max_wait_ms=config.fetch_max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=max_bytes,
                session_epoch=_WITHOUT_SESSION,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )

        with self._driver:
            asked = self._ask(tp, FetchRequest, build, max_version=_LAST_FROM_LEADERS)
            where: dict[str, Any] = {"broker": asked.broker, "api": f"Fetch v{asked.version}"}
            self._check(asked.response.error_code, tp, **where)
            parts = [p for t in asked.response.responses if t.topic == topic for p in t.partitions if p.partition_index == partition]
            if not parts:
                raise errors.UnknownServer("the answer leaves the partition out", topic=topic, partition=partition, **where)
            self._check(parts[0].error_code, tp, offset=offset, **where)
            self._high_watermarks[tp] = parts[0].high_watermark
            buffer = b"" if parts[0].records is None else parts[0].records
            return ByteBufferMessageSet(buffer, start_offset=offset, max_decompressed_bytes=config.max_decompressed_bytes)

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """Offset behind the last message that consumers may read, as the last fetch said; None before the first."""
        return self._high_watermarks.get(TopicPartition(topic, partition))

    def get_offsets_before(self, topic: str, partition: int, time_ms: int, max_offsets: int = 1) -> list[int]:
        """Offsets from which a partition can be read.

        Brokers since Kafka 0.10.1 know the offset of each time: the first one is that of the first message at or after it, or the end of
        the log without one; the start of the log follows. Older brokers name the segments that were complete by then, newest
        first.

        Args:
            topic, partition: where.
            time_ms: epoch milliseconds, or LATEST_TIME (-1) for the end of the log, or EARLIEST_TIME (-2) for its start.
            max_offsets: at most so many.

        Returns:
            Offsets, the largest first.

        Raises:
            errors.KafkaError: as `fetch`.
        """
        tp = TopicPartition(topic, partition)
        if max_offsets < 1 or time_ms < EARLIEST_TIME:
            raise errors.UsageError(f"at least one offset of a time: {max_offsets} of {time_ms}", topic=topic, partition=partition)
        with self._driver:
            version, found = self._list_offsets(tp, time_ms, max_offsets)
            if version == 0:
                return found
            if found == [-1]:
                found = self._list_offsets(tp, LATEST_TIME, 1)[1]
            if max_offsets > 1 and time_ms != EARLIEST_TIME:
                found += self._list_offsets(tp, EARLIEST_TIME, 1)[1]
            return list(dict.fromkeys(found))

    def _list_offsets(self, tp: TopicPartition, time_ms: int, max_offsets: int) -> tuple[int, list[int]]:
        """The version of the answer, and what it says: up to `max_offsets` offsets with version 0, else one, -1 for none."""

        def build(version: int) -> ListOffsetsRequest:
            count = max_offsets if version == 0 else 1
            wanted = ListOffsetsPartition(partition_index=tp.partition, timestamp=time_ms, max_num_offsets=count)
            return ListOffsetsRequest(replica_id=_CONSUMER, topics=[ListOffsetsTopic(name=tp.topic, partitions=[wanted])])

        asked = self._ask(tp, ListOffsetsRequest, build)
        where: dict[str, Any] = {"broker": asked.broker, "api": f"ListOffsets v{asked.version}"}
        parts = [p for t in asked.response.topics if t.name == tp.topic for p in t.partitions if p.partition_index == tp.partition]
        if not parts:
            raise errors.UnknownServer("the answer leaves the partition out", topic=tp.topic, partition=tp.partition, **where)
        self._check(parts[0].error_code, tp, **where)
        return asked.version, list(parts[0].old_style_offsets) if asked.version == 0 else [parts[0].offset]

    def find_leader(self, topic: str, partition: int) -> Node:
        """The broker that leads a partition.

        Raises:
            errors.UnknownTopicOrPartition, errors.LeaderNotAvailable: no leader is known now.
            errors.KafkaError: no broker answered.
        """
        with self._driver as driver:
            tp = TopicPartition(topic, partition)
            leader = driver.metadata.snapshot.leader(tp)
            if leader is None or topic in self._stale:
                update_metadata(driver, [topic], self.config.default_api_timeout_ms)
                self._stale.discard(topic)
                leader = driver.metadata.snapshot.leader(tp)
            if leader is not None:
                return leader
            info = driver.metadata.snapshot.topics.get(topic)
            if info is not None and info.error is not None:
                raise info.error
            if info is None or info.partition(partition) is None:
                raise errors.UnknownTopicOrPartition("there is no such partition", topic=topic, partition=partition)
            raise errors.LeaderNotAvailable("no broker leads the partition", topic=topic, partition=partition)

    def _ask(self, tp: TopicPartition, api: type[Any], build: Callable[[int], Any], *, max_version: int | None = None) -> OneRequest:
        """Asks the leader of a partition, once."""
        driver = self._driver
        leader = self.find_leader(tp.topic, tp.partition)
        deadline_ms = driver.clock.now_ms() + self.config.default_api_timeout_ms
        call = OneRequest(driver, leader.id, deadline_ms, api, build, max_version=max_version)
        driver.run(call.step, lambda: call.done, None)
        if call.error is not None:
            self._stale.add(tp.topic)
            raise call.error
        return call

    def _check(self, code: int, tp: TopicPartition, **where: Any) -> None:
        if code:
            error = errors.from_code(code, topic=tp.topic, partition=tp.partition, **where)
            if error.invalid_metadata:
                self._stale.add(tp.topic)
            raise error

    def close(self) -> None:
        """Closes all connections. A second close does nothing."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
