"""kafka-python's futures over the engine's.

What `send` returns is the engine's RecordFuture under another class (native/recast.pxi), so it costs nothing until it is asked. A record
with headers, and one that was refused at once, have an object of their own around it.

Source: kafka.future, kafka.producer.future, kafka-python 3.0.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Self

from kafkacore._codec import RecordFuture, recastable
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.structs import RecordMetadata
from kafkacore.types import RecordMetadata as EngineMetadata
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.compat")

_done, _result, _exception, _add_done_callback = (
    RecordFuture.done,
    RecordFuture.result,
    RecordFuture.exception,
    RecordFuture.add_done_callback,
)


def _partial(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    return functools.partial(f, *args, **kwargs) if args or kwargs else f


class FutureRecordMetadata:
    """The outcome of one record.

    Callbacks run on the thread that drives the I/O, in the order in which they were added, or at once when the outcome is known; what they
    raise is logged.
    """

    __slots__ = ()

    def _engine(self) -> RecordFuture:
        raise NotImplementedError

    def _metadata(self, found: EngineMetadata) -> RecordMetadata:
        topic, partition, offset, timestamp_ms, key_size, value_size = found
        return RecordMetadata(topic, partition, TopicPartition(topic, partition), offset, timestamp_ms, None, key_size, value_size, -1)

    @property
    def is_done(self) -> bool:
        """True once the outcome is known."""
        return _done(self._engine())

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record went; None before, and after a failure."""
        return self._metadata(_result(self._engine(), 0)) if self.succeeded() else None

    @property
    def exception(self) -> Any:
        """Why the record failed, None otherwise."""
        if not self.is_done:
            return None
        error = _exception(self._engine(), 0)
        return None if error is None else errors.of(error)

    def succeeded(self) -> bool:
        """True once the record is delivered."""
        return self.is_done and _exception(self._engine(), 0) is None

    def failed(self) -> bool:
        """True once the record has failed."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """True once the record has failed for a reason that may pass."""
        return isinstance(self.exception, errors.RetriableError)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the outcome.

        Args:
            timeout: seconds, None = no limit (a record has an outcome after delivery_timeout_ms).

        Raises:
            KafkaTimeoutError: not known within `timeout`; the record is still on its way.
            KafkaError: the record failed.
        """
        with errors.translated():
            return self._metadata(_result(self._engine(), timeout))

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Has f(*args, metadata, **kwargs) called once the record is delivered."""
        f = _partial(f, args, kwargs)

        def call(future: RecordFuture) -> None:
            if _exception(future, 0) is None:
                f(self._metadata(_result(future, 0)))

        _add_done_callback(self._engine(), call)
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Has f(*args, exception, **kwargs) called when the record has failed."""
        f = _partial(f, args, kwargs)

        def call(future: RecordFuture) -> None:
            error = _exception(future, 0)
            if error is not None:
                f(errors.of(error))

        _add_done_callback(self._engine(), call)
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Has f called with metadata or exception."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Any) -> Self:
        """Has another future's `success` or `failure` called with the outcome."""
        return self.add_callback(future.success).add_errback(future.failure)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Waits in an asyncio event loop."""
        with errors.translated():
            return self._metadata((yield from RecordFuture.__await__(self._engine())))


@recastable
class QueuedRecord(FutureRecordMetadata, RecordFuture):  # type: ignore[misc]
    """The class that the engine's futures get; `RecastSend` alone makes its objects."""

    __slots__ = ()

    def _engine(self) -> RecordFuture:
        return self


class HeldRecord(FutureRecordMetadata):
    """A record with headers: the engine does not keep their size."""

    __slots__ = ("_future", "_header_size")

    def __init__(self, future: RecordFuture, header_size: int) -> None:
        self._future = future
        self._header_size = header_size

    def _engine(self) -> RecordFuture:
        return self._future

    def _metadata(self, found: EngineMetadata) -> RecordMetadata:
        return super()._metadata(found)._replace(serialized_header_size=self._header_size)


class Future:
    """An outcome that is set by `success` or `failure`: of a commit, or of a record that was refused at once."""

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.exception: Any = None
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._callbacks: list[tuple[bool, Callable[[Any], Any]]] = []

    def succeeded(self) -> bool:
        """True once there is a value."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """True once there is an exception."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """True once it has failed for a reason that may pass."""
        return isinstance(self.exception, errors.RetriableError)

    def success(self, value: Any) -> Self:
        """Sets the value."""
        return self._finish(value, None)

    def failure(self, e: Any) -> Self:
        """Sets the exception."""
        return self._finish(None, e() if isinstance(e, type) else e)

    def _finish(self, value: Any, exception: Any) -> Self:
        with self._lock:
            self.value, self.exception, self.is_done = value, exception, True
            callbacks, self._callbacks = self._callbacks, []
        for on_success, f in callbacks:
            self._call(on_success, f)
        self._event.set()
        return self

    def _call(self, on_success: bool, f: Callable[[Any], Any]) -> None:
        if on_success != (self.exception is None):
            return
        try:
            f(self.value if on_success else self.exception)
        except Exception:
            log.exception("a callback failed")

    def _add(self, on_success: bool, f: Callable[[Any], Any]) -> Self:
        with self._lock:
            if not self.is_done:
                self._callbacks.append((on_success, f))
                return self
        self._call(on_success, f)
        return self

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Has f(*args, value, **kwargs) called once there is a value."""
        return self._add(True, _partial(f, args, kwargs))

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Has f(*args, exception, **kwargs) called once it has failed."""
        return self._add(False, _partial(f, args, kwargs))

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Has f called with value or exception."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Any) -> Self:
        """Has another future's `success` or `failure` called with the outcome."""
        return self.add_callback(future.success).add_errback(future.failure)

    def get(self, timeout: float | None = None) -> Any:
        """Waits for the outcome.

        Raises:
            KafkaTimeoutError: not known within `timeout` seconds.
            Exception: the exception.
        """
        if not self._event.wait(timeout):
            raise errors.KafkaTimeoutError(f"no outcome within {timeout} s")
        if self.exception is not None:
            raise self.exception
        return self.value
