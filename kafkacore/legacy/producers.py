"""AsyncProducer and SyncProducer: the two ways into `DefaultEventHandler`.

Rules:

1. `MessageQueue` is the engine: it is handed the time, and never waits. `AsyncProducer` has its lock, its thread and the waiting.
   [test_a_batch_is_due_when_enough_messages_wait, test_the_queue_takes_what_it_has_room_for]
2. A message waits in the queue for `queue_buffering_max_ms` at most, counted from when the oldest one came. The thread sleeps while the
   queue is empty. [test_a_batch_is_due_when_the_oldest_message_has_waited_long_enough, test_what_stays_behind_a_batch_begins_to_wait]
3. The lock is taken once per `send`, not once per message. [test_a_send_takes_the_lock_once]
4. A batch that fails takes nothing with it: the thread goes on with the next one. What was lost is reported to the callback handler, or
   else by `close`. [test_a_batch_that_fails_takes_nothing_with_it_and_the_close_tells,
   test_a_callback_hears_of_what_was_lost_and_of_what_was_dropped]
5. Whatever ends a `send` early, it says which messages are not queued. A callback that sends does not wait for room: its thread makes it.
   [test_a_close_beside_a_caller_that_waits_says_what_is_queued, test_ctrl_c_while_a_caller_waits_says_what_is_not_queued,
   test_a_callback_that_sends_does_not_wait_for_its_own_thread]
6. A thread that ends early (SystemExit in a callback) closes the producer and gives up what is queued, by rule 4.
   [test_a_thread_that_ends_early_leaves_nobody_waiting]

Source: kafka.producer.Producer, kafka.producer.async.ProducerSendThread of Kafka 0.8; kafka.producer.async.CallbackHandler of Kafka 0.7.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from kafkacore import errors
from kafkacore.clock import Clock, SystemClock
from kafkacore.legacy.event_handler import DefaultEventHandler
from kafkacore.legacy.messages import KeyedMessage
from kafkacore.legacy.settings import AsyncProducerConfig, EventHandlerConfig
from kafkacore.legacy.statistics import Counts, ProducerStatistics
from kafkacore.net.at_exit import AtExit
from kafkacore.plurals import counted

log = logging.getLogger("kafkacore.legacy")

_AT_EXIT_S = 10.0
_KEPT_ERRORS = 16


class EventHandler(Protocol):
    """Sends a batch of messages; `DefaultEventHandler` does."""

    counts: Counts

    def handle(self, messages: Sequence[KeyedMessage]) -> None:
        """Sends the messages, or raises."""

    def close(self) -> None:
        """Gives connections up."""


class CallbackHandler:
    """What an `AsyncProducer` calls on the way of each message; derive from it. `before_enqueue` and `after_enqueue` run in the thread of
    the caller of `send`, the others in the producer's thread.

    Source: kafka.producer.async.CallbackHandler of Kafka 0.7; `on_failure` is ours.
    """

    def before_enqueue(self, message: KeyedMessage) -> KeyedMessage:
        """Returns what is queued in place of the message."""
        return message

    def after_enqueue(self, message: KeyedMessage, added: bool) -> None:
        """The message was queued, or was dropped since the queue was full."""

    def after_dequeuing_existing_data(self, messages: list[KeyedMessage]) -> list[KeyedMessage]:
        """Returns what is sent in place of messages that leave the queue."""
        return messages

    def before_sending_data(self, messages: list[KeyedMessage]) -> list[KeyedMessage]:
        """Returns what goes to the event handler in place of a batch."""
        return messages

    def last_batch_before_close(self) -> list[KeyedMessage]:
        """Returns what is sent after all else, before the producer closes."""
        return []

    def on_failure(self, messages: Sequence[KeyedMessage], error: Exception) -> None:
        """These messages were not sent."""

    def close(self) -> None:
        """The producer has sent all it had."""


class MessageQueue:
    """Messages on their way from `send` to the event handler: a bounded queue that gives out batches. No lock, no clock, no waiting.

    Args:
        max_messages: how many may wait.
        max_ms: how long the oldest may wait for company.
        batch_messages: how many are enough for a batch.
    """

    def __init__(self, max_messages: int, max_ms: int, batch_messages: int) -> None:
        self._max_messages = max_messages
        self._max_ms = max_ms
        self._batch_messages = batch_messages
        self._messages: deque[KeyedMessage] = deque()
        self._oldest_ms = 0
        self.closing = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def room(self) -> int:
        """How many more may come."""
        return self._max_messages - len(self._messages)

    def put(self, messages: Sequence[KeyedMessage], now_ms: int) -> int:
        """Takes as many of the messages as there is room for; returns how many."""
        count = min(len(messages), self.room)
        if count and not self._messages:
            self._oldest_ms = now_ms
        self._messages.extend(messages[:count])
        return count

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until there is a batch if nothing else comes: 0 when there is, None when the queue is empty."""
        if not self._messages:
            return None
        if self.closing or len(self._messages) >= min(self._batch_messages, self._max_messages):
            return 0
        return max(0, self._oldest_ms + self._max_ms - now_ms)

    def take(self, now_ms: int) -> list[KeyedMessage]:
        """The next batch; what stays begins to wait now. A message is not late: the queue held more than a batch, so a batch was due."""
        found = [self._messages.popleft() for _ in range(min(len(self._messages), self._batch_messages))]
        if len(self._messages) < self._batch_messages:
            self._oldest_ms = now_ms
        return found


class _Producer:
    """What both producers share."""

    def statistics(self) -> ProducerStatistics:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as error:
            if value is None:
                raise
            errors.append_to_chain(value, error)


class SyncProducer(_Producer):
    """Sends messages in the thread of the caller, and returns when the brokers have answered (producer.type=sync).

    Args:
        config: settings as a mapping with dotted names.
        clock: the time; the system's unless given.
        event_handler: sends; a `DefaultEventHandler` unless given.
        **settings: see `EventHandlerConfig`.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        clock: Clock | None = None,
        event_handler: EventHandler | None = None,
        **settings: Any,
    ) -> None:
        self._clock = clock or SystemClock()
        self._handler = event_handler or DefaultEventHandler(EventHandlerConfig.from_user(config, **settings), clock=self._clock)
        self._closed = False

    def send(self, *messages: KeyedMessage) -> None:
        """Sends messages, in their order within each partition.

        Raises:
            errors.FailedToSendMessageError: some were not sent.
            errors.SerializationError: a serializer refused one; nothing was sent.
            errors.ClosedError: the producer is closed.
        """
        if self._closed:
            raise errors.ClosedError("this SyncProducer is closed")
        self._handler.handle(_checked(messages))

    def statistics(self) -> ProducerStatistics:
        """What was counted so far; any thread may ask."""
        return self._handler.counts.read(self._clock.now_ms(), 0)

    def close(self) -> None:
        """Closes all connections. A second close does nothing."""
        if not self._closed:
            self._closed = True
            self._handler.close()


class AsyncProducer(_Producer):
    """Queues messages; a thread of its own sends them in batches (producer.type=async). Any thread may call it.

    Args:
        config: settings as a mapping with dotted names.
        clock: the time; the system's unless given.
        event_handler: sends the batches; a `DefaultEventHandler` unless given.
        callback_handler: is called on the way of each message; a `CallbackHandler`.
        **settings: see `AsyncProducerConfig`.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        clock: Clock | None = None,
        event_handler: EventHandler | None = None,
        callback_handler: CallbackHandler | None = None,
        **settings: Any,
    ) -> None:
        self.config = AsyncProducerConfig.from_user(config, **settings)
        self._clock = clock or SystemClock()
        self._handler: EventHandler = event_handler or DefaultEventHandler(
            self.config, clock=self._clock, on_serialization_error=lambda message, error: self._lost([message], error)
        )
        self._callbacks = callback_handler
        self._queue = MessageQueue(
            self.config.queue_buffering_max_messages, self.config.queue_buffering_max_ms, self.config.batch_num_messages
        )
        self._lock = threading.Lock()  # Condition.__enter__ is Python: Ctrl+C in it would leave the lock taken
        self._changed = threading.Condition(self._lock)
        self._lost_count = 0
        self._lost_causes: list[Exception] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"kafkacore-async-producer-{self.config.client_id}", daemon=True)
        self._thread.start()
        _open_producers.add(self)

    # -- the caller's side --------------------------------------------------------------------------------------------------------

    def send(self, *messages: KeyedMessage) -> None:
        """Queues messages, in their order. Where the queue is full, `queue_enqueue_timeout_ms` says how long to wait for room.

        Raises:
            errors.QueueFullError: there was no room in time.
            errors.ClosedError: the producer is closed.

        These, and Ctrl+C, have an attribute `messages`: what was not queued. The messages before it in the same call were.
        """
        callbacks = self._callbacks
        checked: Sequence[KeyedMessage] = _checked(messages)
        if callbacks is not None:
            checked = [callbacks.before_enqueue(message) for message in checked]
        progress = [0]
        try:
            self._enqueue(checked, progress)
        except BaseException as error:
            error.messages = tuple(checked[progress[0] :])  # type: ignore[attr-defined]
            raise
        finally:
            count = progress[0]
            if callbacks is not None:
                for index, message in enumerate(checked):
                    callbacks.after_enqueue(message, index < count)
        if count < len(checked):
            now_ms = self._clock.now_ms()
            for message in checked[count:]:
                self._handler.counts.of(message.topic).dropped.record(1, now_ms)
            dropped = checked[count:]
            raise errors.QueueFullError(
                f"the queue is full of unsent messages: {len(dropped)} were dropped, the first for topic {dropped[0].topic}",
                messages=dropped,
            )

    def _enqueue(self, messages: Sequence[KeyedMessage], progress: list[int]) -> None:
        """Queues what there is room for in time; `progress` holds how many that are, also after an error."""
        timeout_ms = 0 if threading.current_thread() is self._thread else self.config.queue_enqueue_timeout_ms
        with self._lock:
            deadline_ms = self._clock.now_ms() + timeout_ms
            while True:
                if self._closed:
                    of_call = f"{progress[0]} of {counted(len(messages), 'message')} of this call were queued before"
                    raise errors.ClosedError(f"this AsyncProducer is closed{f'; {of_call}' if progress[0] else ''}")
                now_ms = self._clock.now_ms()
                before = self._queue.wait_ms(now_ms)
                progress[0] += self._queue.put(messages[progress[0] :], now_ms)
                if self._queue.wait_ms(now_ms) != before:
                    self._changed.notify_all()
                if progress[0] == len(messages) or timeout_ms == 0 or (timeout_ms > 0 and now_ms >= deadline_ms):
                    return
                self._changed.wait(None if timeout_ms < 0 else (deadline_ms - now_ms) / 1000)

    def statistics(self) -> ProducerStatistics:
        """What was counted so far; any thread may ask."""
        return self._handler.counts.read(self._clock.now_ms(), len(self._queue))

    def close(self, timeout: float | None = None) -> None:
        """Sends what is queued, and ends. A second close does nothing.

        Args:
            timeout: seconds to wait for that; None without limit.

        Raises:
            errors.DeliveryError: messages were lost since the producer was made, and there is no callback handler to hear of it.
            errors.KafkaTimeoutError: not all was sent in time; the thread goes on.
        """
        with self._lock:
            self._closed = self._queue.closing = True
            self._changed.notify_all()
        if threading.current_thread() is self._thread:
            return  # in a callback: the thread ends after it
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise errors.KafkaTimeoutError(f"{counted(len(self._queue), 'message')} still queued after {timeout:g} s")
        _open_producers.discard(self)
        lost, self._lost_count = self._lost_count, 0
        if lost and self._callbacks is None:
            raise errors.DeliveryError(failed=lost, causes=self._lost_causes)

    # -- the thread's side --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._handle(batch)
            if self._callbacks is not None:
                self._handle(self._callbacks.last_batch_before_close(), dequeued=False)
                self._callbacks.close()
        except Exception:  # of a callback handler
            log.exception("the callback handler failed while the producer closed")
        except BaseException as error:  # SystemExit: the thread ends, and nobody may wait for it
            self._give_up(error)
        finally:
            self._handler.close()

    def _give_up(self, error: BaseException) -> None:
        with self._lock:
            self._closed = self._queue.closing = True
            left: list[KeyedMessage] = []
            while len(self._queue):
                left += self._queue.take(0)
            self._changed.notify_all()
        if left:
            cause = errors.ClosedError(f"the producer's thread ended: {error!r}")
            cause.__cause__ = error
            self._lost(left, cause)

    def _next_batch(self) -> list[KeyedMessage] | None:
        """Waits for a batch; None when the producer is closed and the queue is empty."""
        with self._lock:
            while True:
                now_ms = self._clock.now_ms()
                wait_ms = self._queue.wait_ms(now_ms)
                if wait_ms == 0:
                    found = self._queue.take(now_ms)
                    self._changed.notify_all()
                    return found
                if self._queue.closing:
                    return None
                self._changed.wait(None if wait_ms is None else wait_ms / 1000)

    def _handle(self, batch: list[KeyedMessage], *, dequeued: bool = True) -> None:
        callbacks = self._callbacks
        try:
            if callbacks is not None:
                batch = callbacks.before_sending_data(callbacks.after_dequeuing_existing_data(batch) if dequeued else batch)
            if batch:
                self._handler.handle(batch)
        except errors.FailedToSendMessageError as error:
            self._lost(error.messages, error)
        except Exception as error:
            self._lost(batch, error)
        except BaseException as error:
            self._lost(batch, errors.ClosedError(f"the producer's thread ended: {error!r}"))
            raise

    def _lost(self, messages: Sequence[KeyedMessage], error: Exception) -> None:
        log.error("%d messages were not sent: %s", len(messages), error)
        self._lost_count += len(messages)
        if len(self._lost_causes) < _KEPT_ERRORS:
            self._lost_causes.append(error)
        if self._callbacks is not None:
            try:
                self._callbacks.on_failure(messages, error)
            except Exception:
                log.exception("on_failure of %r failed", self._callbacks)


def _checked(messages: tuple[KeyedMessage, ...]) -> tuple[KeyedMessage, ...]:
    for message in messages:
        if not isinstance(message, KeyedMessage):
            raise errors.UsageError(f"send takes KeyedMessages, not {type(message).__name__}")
    return messages


def _at_exit(producers: list[AsyncProducer]) -> None:
    """Sends what programs left queued, within a bound."""
    for producer in producers:
        try:
            producer.close(_AT_EXIT_S)
        except errors.KafkaError as error:
            log.warning("an AsyncProducer was not closed before the program ended: %s", error)


_open_producers: AtExit[AsyncProducer] = AtExit(_at_exit)
