"""ConsumerConnector: streams of messages for the threads of an application. The high-level consumer of Kafka 0.8.

Each stream is a member of the group, with a `KafkaConsumer` of its own: the group shares the partitions of a topic out among the streams
that read it, here and in other processes. A stream joins when its thread begins to iterate.

Two locks let another thread commit between two pulls of a stream: who wants to commit takes the turn, so that the stream cannot pull again,
ends the pull under way, and then has the consumer for itself. Neither is taken per message.

Source: kafka.consumer.ConsumerConnector, kafka.consumer.KafkaStream of Kafka 0.8, which had its groups in ZooKeeper.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from kafkacore import errors
from kafkacore.consumer import KafkaConsumer
from kafkacore.records import ConsumerRecord

_OLD_NAMES: Final = {"auto_commit_enable": "enable_auto_commit"}
_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_DEFAULTS: Final[Mapping[str, Any]] = {"auto_commit_interval_ms": 60_000}


class MessageStream:
    """Messages of the partitions that the group gives this stream; iterate it in a thread of its own. `ConsumerConnector.shutdown` ends it.

    Args:
        consumer: reads; it belongs to the stream.
        timeout_ms: consumer_timeout_ms.
    """

    def __init__(self, consumer: KafkaConsumer, timeout_ms: int) -> None:
        self._consumer = consumer
        self._timeout_ms = timeout_ms
        self._turn = threading.Lock()
        self._pulling = threading.Lock()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every message from here on, with topic, partition, offset, key and value; waits for new ones.

        Leaving the loop and iterating again loses and repeats nothing.

        Raises:
            errors.ConsumerTimeoutError: there was none for consumer_timeout_ms; iterating again goes on.
            errors.KafkaError: as `KafkaConsumer.poll`.
        """
        while (chunk := self._pull()) is not None:
            yield from chunk

    def _pull(self) -> Iterator[ConsumerRecord] | None:
        """The next messages; None when the stream has ended."""
        clock, timeout_ms = self._consumer._clock, self._timeout_ms
        deadline_ms = clock.now_ms() + timeout_ms
        waited = False
        while True:
            with self._turn:
                self._pulling.acquire()
            try:
                if (chunk := self._consumer._take_chunk(waited)) is not None:
                    return chunk
                waited = self._consumer._await_records(None if timeout_ms < 0 else max(0, deadline_ms - clock.now_ms()) / 1000)
                if not waited:
                    raise errors.ConsumerTimeoutError(f"no message for {timeout_ms} ms")
            except errors.WakeupError:
                continue  # a thread wants to commit: it has the turn
            except errors.ClosedError:
                return None
            finally:
                self._pulling.release()

    def commit(self) -> None:
        """Commits the offsets behind the last message that the loop was given, of each partition. Any thread may call it. A stream without
        partitions has nothing to commit.

        Raises:
            errors.RebalanceInProgress: the group is sharing partitions out; once the loop has gone on, commit again.
            errors.KafkaError: as `KafkaConsumer.commit`.
        """
        with self._turn:
            self._consumer.wakeup()
            with self._pulling:
                self._consumer._driver.forget_wakeup()  # if no pull was under way
                if self._consumer.assignment():
                    self._consumer.commit()

    def close(self) -> None:
        """Leaves the group; with auto_commit_enable what was handed out is committed first. The loop ends. Any thread may call it."""
        self._consumer.close()


class ConsumerConnector:
    """Makes streams of messages, and ends them.

    Args:
        config: settings as a mapping with dotted names.
        group_id: the group that shares the partitions.
        consumer_timeout_ms: how long a stream waits for a message before it raises ConsumerTimeoutError; -1 forever.
        **settings: see `kafkacore.config.ConsumerConfig`. Kafka 0.8's auto_commit_enable is enable_auto_commit, its smallest and largest of
            auto_offset_reset are earliest and latest; auto_commit_interval_ms is 60,000 unless given, as then.

    Raises:
        errors.ConfigError: a wrong setting, or no group.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        consumer_timeout_ms: int | None = None,
        **settings: Any,
    ) -> None:
        found = dict(_DEFAULTS)
        given: set[str] = set()
        for name, value in [*(config or {}).items(), *settings.items()]:
            new = _OLD_NAMES.get(name.replace(".", "_"), name.replace(".", "_"))
            if new in given:
                raise errors.ConfigError(f"setting {name!r} is given twice")
            given.add(new)
            found[new] = _OLD_RESETS.get(value, value) if new == "auto_offset_reset" else value
        timeout_ms = found.pop("consumer_timeout_ms", None)
        if timeout_ms is not None and consumer_timeout_ms is not None:
            raise errors.ConfigError("setting 'consumer_timeout_ms' is given twice")
        timeout_ms = consumer_timeout_ms if timeout_ms is None else timeout_ms
        self._timeout_ms = -1 if timeout_ms is None else int(timeout_ms)
        if not found.get("group_id"):
            raise errors.ConfigError("a ConsumerConnector needs a group_id")
        self._settings = found
        self._lock = threading.Lock()
        self._made = False
        self._closed = False
        self.streams: list[MessageStream] = []

    def create_message_streams(self, topic_count: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Makes streams; once per connector.

        Args:
            topic_count: how many streams by topic. More streams than a topic has partitions leave some without messages.

        Returns:
            The streams by topic.

        Raises:
            errors.IllegalStateError: there are streams already, or the connector was shut down.
        """
        for topic, count in topic_count.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise errors.UsageError(f"at least one stream, not {count!r}", topic=topic)
        made = self._make([([topic], None) for topic, count in topic_count.items() for _ in range(count)])
        return {topic: [next(made) for _ in range(count)] for topic, count in topic_count.items()}

    def create_message_streams_by_filter(self, pattern: str | re.Pattern[str], count: int = 1) -> list[MessageStream]:
        """Makes streams that read every topic whose whole name matches, also topics created later; once per connector.

        Args:
            pattern: a regular expression.
            count: how many streams.

        Raises:
            errors.IllegalStateError: there are streams already, or the connector was shut down.
        """
        if count < 1:
            raise errors.UsageError(f"at least one stream, not {count!r}")
        return list(self._make([(None, pattern)] * count))

    def _make(self, wanted: Iterable[tuple[list[str] | None, Any]]) -> Iterator[MessageStream]:
        with self._lock:
            if self._closed:
                raise errors.ClosedError("this ConsumerConnector is shut down")
            if self._made:
                raise errors.IllegalStateError("a ConsumerConnector makes its streams once")
            streams: list[MessageStream] = []
            try:
                for number, (topics, pattern) in enumerate(wanted):
                    client_id = f"{self._settings.get('client_id', 'kafkacore')}-{number}"
                    consumer = KafkaConsumer(**{**self._settings, "client_id": client_id})
                    streams.append(MessageStream(consumer, self._timeout_ms))
                    consumer.subscribe(topics, pattern=pattern)
            except BaseException:
                for stream in streams:
                    stream.close()
                raise
            self._made = True
            self.streams = streams
            return iter(streams)

    def commit_offsets(self) -> None:
        """Commits what the streams have handed out. Any thread may call it.

        Raises:
            errors.KafkaError: the first error; the other streams have committed.
        """
        _each(self.streams, MessageStream.commit)

    def shutdown(self) -> None:
        """Ends the streams: they leave the group, and their loops end. A second call does nothing.

        Raises:
            errors.KafkaError: the first error; all streams have ended.
        """
        with self._lock:
            self._closed = True
        _each(self.streams, MessageStream.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self.shutdown()
        except Exception as error:
            if value is None:
                raise
            errors.append_to_chain(value, error)


def _each(streams: Iterable[MessageStream], do: Any) -> None:
    """Does something to all of them; the first error is raised at the end."""
    failed: Exception | None = None
    for stream in streams:
        try:
            do(stream)
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
