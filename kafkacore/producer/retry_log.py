"""What the log says of errors that are retried: nothing of those that pass, one line of those that last.

An error is of a partition and lasts from the first failed try until a batch gets through, which is seen at the next error: a batch
that goes well passes nothing here. What is logged is limited by kind of error (its code and broker), not by partition: a full disk
is one line, however many partitions lie on it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from kafkacore._codec import Delivery, PartitionQueue
from kafkacore.errors import KafkaError

log = logging.getLogger("kafkacore.producer")

PATIENCE_MS = 1_000
"""How long tries may fail before that is a warning: a leader that moves takes less."""
REPEAT_MS = 30_000
"""The same kind of error is not logged again within this time."""


class _Failing:
    """A partition whose tries fail."""

    __slots__ = ("delivery", "last_ms", "since_ms")

    def __init__(self, delivery: Delivery, now_ms: int) -> None:
        self.delivery = delivery  # the batch whose tries fail
        self.since_ms = self.last_ms = now_ms

    @property
    def is_over(self) -> bool:
        """True when the batch got through; one that was given up says that the error lasts."""
        return self.delivery.resolved and self.delivery.first_error() is None


class RetryLog:
    """Warns once of an error that is retried for longer than `PATIENCE_MS`, and not again within `REPEAT_MS`."""

    def __init__(self, *, delivery_timeout_ms: int, silence_ms: int) -> None:
        """Knows of no error yet.

        Args:
            delivery_timeout_ms: how long a record is retried, for the text.
            silence_ms: tries further apart than this do not belong to the same error.
        """
        self._delivery_timeout_ms = delivery_timeout_ms
        self._silence_ms = silence_ms
        self._failing: OrderedDict[PartitionQueue, _Failing] = OrderedDict()
        self._told_ms: dict[tuple[object, int | None], int] = {}

    def failed(self, delivery: Delivery, error: KafkaError, now_ms: int) -> None:
        """A try failed, or could not be made, and will be made again.

        Args:
            delivery: what becomes of the batch.
            error: why it failed.
            now_ms: the time.
        """
        failing = self._failing.get(delivery.queue)
        if failing is None or failing.is_over or now_ms - failing.last_ms > self._silence_ms:
            self._forget_what_is_over(now_ms)
            failing = self._failing[delivery.queue] = _Failing(delivery, now_ms)
        elif failing.delivery.resolved:
            failing.delivery = delivery
        failing.last_ms = now_ms
        lasted_ms = now_ms - failing.since_ms
        if lasted_ms < PATIENCE_MS or not self.is_news(error, now_ms):
            return
        others = sum(not each.is_over for each in self._failing.values()) - 1
        more = f" and {others} other partition{'s' if others > 1 else ''}" if others else ""
        log.warning(
            "records for %s-%d%s wait and are retried, for %.1f s so far, until their delivery_timeout_ms=%d has passed: %s",
            delivery.topic,
            delivery.partition,
            more,
            lasted_ms / 1000,
            self._delivery_timeout_ms,
            error,
        )

    def is_news(self, error: KafkaError, now_ms: int) -> bool:
        """True when this kind of error has not been logged within `REPEAT_MS`; the caller logs it then."""
        kind = (error.code if error.code is not None else type(error), error.broker)
        told_ms = self._told_ms.get(kind)
        if told_ms is not None and now_ms - told_ms < REPEAT_MS:
            return False
        self._told_ms[kind] = now_ms
        return True

    def _forget_what_is_over(self, now_ms: int) -> None:
        """Drops the oldest as long as they are over. The first that is not goes to the end: so the next call looks at another, and as many
        partitions that fail at once are not walked for each of them."""
        while self._failing:
            queue, oldest = next(iter(self._failing.items()))
            if not oldest.is_over and now_ms - oldest.last_ms <= self._silence_ms:
                self._failing.move_to_end(queue)
                return
            del self._failing[queue]
        self._told_ms.clear()  # what comes now is another outage
