"""Objects that see what a consumer hands out and commits, and may change the former.

Source: org.apache.kafka.clients.consumer.ConsumerInterceptor and ConsumerInterceptors; KIP-42.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacore import errors
from kafkacore.consumer.batches import RecordBatches
from kafkacore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns

log = logging.getLogger("kafkacore.consumer")
T = TypeVar("T")


class ConsumerInterceptor:
    """One of the objects of the setting `interceptors`. Override what is needed; a class of your own need not derive from this one.

    All methods are called on the thread that polls. What they raise is logged and stops nothing: the next interceptor is given what this
    one was given.
    """

    def on_consume(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> Mapping[TopicPartition, list[ConsumerRecord]]:
        """Sees the records that `poll` or a `for` loop hands out, after deserialization.

        Records may be left out or replaced (`record.replace(value=...)`). The position is behind all of them whatever is returned.

        Returns:
            What the next interceptor, or the application, is given.
        """
        return records

    # on_consume_batch(self, batches: RecordBatches) -> RecordBatches: the same for poll_batch and read_range. It is no method here, since
    # poll_batch refuses an interceptor without it: one that only knows records would be passed by.

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Sees offsets that were committed, automatically or by `commit` and `commit_async`; not commits that failed.

        An automatic commit is seen by the next poll.
        """

    def close(self) -> None:
        """The consumer is closed; called once, after the last commit."""


class Interceptors:
    """The interceptors of a consumer, in their order.

    Args:
        given: the objects.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self._given = tuple(given)

    def on_consume(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What the interceptors make of records; partitions without any are left out."""
        found = self._pass_through("on_consume", dict(records), Mapping, dict)
        return {tp: of_partition for tp, of_partition in found.items() if of_partition}

    def check_columns(self) -> None:
        """Before columns are handed out.

        Raises:
            errors.UsageError: an interceptor sees records alone.
        """
        for interceptor in self._given:
            method = getattr(type(interceptor), "on_consume", None)
            sees_records = hasattr(interceptor, "on_consume") and method is not ConsumerInterceptor.on_consume
            if sees_records and not hasattr(interceptor, "on_consume_batch"):
                raise errors.UsageError(
                    f"the interceptor {interceptor!r} has on_consume and no on_consume_batch: columns would pass it by. Give it "
                    "on_consume_batch(batches), or read with poll() or a for loop"
                )

    def on_consume_batch(self, columns: list[RecordColumns]) -> RecordBatches:
        """What the interceptors make of columns."""
        return self._pass_through("on_consume_batch", RecordBatches(columns), RecordBatches, lambda batches: batches)

    def _pass_through(self, method: str, found: T, kind: Any, copied: Callable[[T], T]) -> T:
        """What the last interceptor returns. An interceptor that fails, or returns nothing of use, is passed over.

        Args:
            method: of the interceptors.
            found: for the first of them.
            kind: of what they return.
            copied: what an interceptor gets, so that it cannot change what goes on if it fails.
        """
        for interceptor in self._given:
            if (called := getattr(interceptor, method, None)) is None:
                continue
            try:
                changed = called(copied(found))
            except Exception:
                log.exception("%s of %r failed; what it was given goes on as it was", method, interceptor)
                continue
            if isinstance(changed, kind):
                found = changed
            else:
                log.error("%s of %r returned %r, no %s; what it was given goes on as it was", method, interceptor, changed, kind.__name__)
        return found

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed."""
        self._call("on_commit", offsets)

    def close(self) -> None:
        """The consumer is closed."""
        self._call("close")

    def _call(self, method: str, *args: Any) -> None:
        for interceptor in self._given:
            if (called := getattr(interceptor, method, None)) is None:
                continue
            try:
                called(*args)
            except Exception:
                log.exception("%s of %r failed", method, interceptor)
