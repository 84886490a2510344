"""What `send` gives: the outcome of a record, or of a batch, with the methods of asyncio's futures.

The engine's futures become these in place (native/recast.pxi). They are no asyncio.Future, which would cost more than the record: they can
be awaited, gathered and waited for, and have callbacks. They cannot be cancelled: the record is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Generator
from typing import Any

from kafkacore import errors as ours
from kafkacore._codec import RecordFuture, on_delivery_in_loop, recastable
from kafkacore.compat.aiokafka import errors
from kafkacore.compat.aiokafka.structs import RecordMetadata
from kafkacore.producer import BatchFuture
from kafkacore.types import RecordMetadata as EngineMetadata
from kafkacore.types import TopicPartition

_callbacks: dict[tuple[int, Any], list[_Callback]] = {}
"""Callbacks that were not called yet, by the identity of the future and the function; each holds its future."""


class _Callback:
    """A function that the loop calls once."""

    def __init__(self, future: Outcome, fn: Callable[[Any], object], context: contextvars.Context | None) -> None:
        self._future = future
        self._fn = fn
        self._context = context or contextvars.copy_context()
        _callbacks.setdefault((id(future), fn), []).append(self)

    def withdraw(self) -> bool:
        """It is not to be called any more; False when it was called or withdrawn before."""
        key = id(self._future), self._fn
        waiting = _callbacks.get(key, [])
        if self not in waiting:
            return False
        waiting.remove(self)
        if not waiting:
            del _callbacks[key]
        return True

    def __call__(self, *outcome: object) -> None:
        if not self.withdraw():
            return
        try:
            self._context.run(self._fn, self._future)
        except Exception as error:
            context = {"message": f"a callback of {self._future!r} failed", "exception": error, "future": self._future}
            asyncio.get_running_loop().call_exception_handler(context)


class Outcome:
    """The methods of asyncio's futures."""

    __slots__ = ()

    def done(self) -> bool:
        """True once the outcome is known."""
        raise NotImplementedError

    def _get(self) -> Any:
        """The outcome, which is known; raises the engine's errors."""
        raise NotImplementedError

    def _when_done(self, call: _Callback) -> None:
        """Has the running loop make a call."""
        raise NotImplementedError

    def result(self) -> Any:
        """RecordMetadata; None with acks=0.

        Raises:
            asyncio.InvalidStateError: it is not known yet.
            KafkaError: why the record failed.
        """
        if not self.done():
            raise asyncio.InvalidStateError("Result is not set.")
        with errors.translated():
            return self._get()

    def exception(self) -> BaseException | None:
        """Why the record failed, None when it did not.

        Raises:
            asyncio.InvalidStateError: it is not known yet.
        """
        if not self.done():
            raise asyncio.InvalidStateError("Exception is not set.")
        try:
            self._get()
        except ours.KafkaError as error:
            return errors.of(error)
        return None

    def cancelled(self) -> bool:
        """False."""
        return False

    def cancel(self, msg: Any = None) -> bool:
        """False: the record is on its way."""
        return False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs."""
        return asyncio.get_running_loop()

    def add_done_callback(self, fn: Callable[[Any], object], *, context: contextvars.Context | None = None) -> None:
        """Has the loop call fn(future) once the outcome is known."""
        self._when_done(_Callback(self, fn, context))

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Takes back `add_done_callback`; returns how many calls are not made now."""
        return sum(each.withdraw() for each in list(_callbacks.get((id(self), fn), ())))


def _shown(future: RecordFuture, found: EngineMetadata) -> RecordMetadata:
    topic, partition, offset, timestamp_ms, _, _ = found
    stamped = future.log_append_time_ms >= 0
    return RecordMetadata(topic, partition, TopicPartition(topic, partition), offset, timestamp_ms, int(stamped), None)


@recastable
class SentRecord(Outcome, RecordFuture):  # type: ignore[misc]
    """The class that the engine's futures get; `RecastSend` alone makes its objects."""

    __slots__ = ()

    done = RecordFuture.done

    def _get(self) -> RecordMetadata | None:
        return _shown(self, RecordFuture.result(self, 0))

    def _when_done(self, call: _Callback) -> None:
        on_delivery_in_loop(self, asyncio.get_running_loop(), call)

    def __await__(self) -> Generator[Any, None, Any]:
        with errors.translated():
            return _shown(self, (yield from RecordFuture.__await__(self)))


@recastable
class UnansweredRecord(Outcome, RecordFuture):  # type: ignore[misc]
    """The same with acks=0, where aiokafka's futures give None."""

    __slots__ = ()

    done = RecordFuture.done
    _when_done = SentRecord._when_done

    def _get(self) -> None:
        RecordFuture.result(self, 0)

    def __await__(self) -> Generator[Any, None, Any]:
        with errors.translated():
            yield from RecordFuture.__await__(self)


class HeldRecord(Outcome):
    """A record that did not go into its batch at once: the engine's future, held."""

    __slots__ = ("_future", "_unanswered")

    def __init__(self, future: RecordFuture, *, unanswered: bool) -> None:
        self._future = future
        self._unanswered = unanswered

    def done(self) -> bool:
        return self._future.done()

    def _get(self) -> RecordMetadata | None:
        found = self._future.result(0)
        return None if self._unanswered else _shown(self._future, found)

    def _when_done(self, call: _Callback) -> None:
        on_delivery_in_loop(self._future, asyncio.get_running_loop(), call)

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        with errors.translated():
            yield from self._future.__await__()
            return self._get()


class SentBatch(Outcome):
    """A batch of `send_batch`; it has failed when one of its records has."""

    __slots__ = ("_future", "_partition", "_unanswered")

    def __init__(self, future: BatchFuture, partition: TopicPartition, *, unanswered: bool) -> None:
        self._future = future
        self._partition = partition
        self._unanswered = unanswered

    def done(self) -> bool:
        return self._future.done()

    def _get(self) -> RecordMetadata | None:
        if (failed := self._future.exception(0)) is not None:
            raise failed
        if self._unanswered:
            return None
        topic, partition = tp = self._partition
        offsets = self._future.result(0).offsets
        stamp_ms = max((each.log_append_time_ms for each in self._future._progress.deliveries), default=-1)
        return RecordMetadata(topic, partition, tp, int(offsets[0]) if len(offsets) else -1, stamp_ms, int(stamp_ms >= 0), None)

    def _when_done(self, call: _Callback) -> None:
        loop = asyncio.get_running_loop()

        def soon(_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(call)

        self._future.add_done_callback(soon)

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        with errors.translated():
            yield from self._future.__await__()
            return self._get()
