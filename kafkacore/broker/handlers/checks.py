"""The checks of a Produce request's batches: short ones at once, long ones in a thread beside the broker's own.

A batch of 4 KB may unpack to 128 MiB, which takes half a second. So the batches of a request may take the broker's thread `INLINE_BYTES` of
unpacking together. A batch that would go beyond them is checked by `BrokerState.checker`, and is written when that has been done:

    write(nth, allowed.check) -> AllowanceExceeded -> Checks.begin -> checker: validate -> write(nth, checked.take) -> ... -> finish

Its request waits, and with it its connection, as for any late answer. A request, or a part of one, has one check under way: so those of
several clients take turns. Between check and write everything may have changed: the write looks at leader, ISR and producer as ever, and
when the settings of the topic have changed the batch is checked again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkacore.broker.log import validate
from kafkacore.broker.log.headers import CODEC_MASK, HEADER_BYTES
from kafkacore.broker.log.validate import Validated
from kafkacore.broker.partition import Check
from kafkacore.broker.state import BrokerState, Call
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.compress import Allowance, AllowanceExceeded
from kafkacore.errors import KafkaError

logger = logging.getLogger(__name__)

INLINE_BYTES = 8 << 20
"""What the batches of one request may unpack to in the broker's thread: some 30 ms."""
_CODEC_AT = 22


class AllowedChecks:
    """Checks the batches of one request as long as they are short."""

    __slots__ = ("_allowance",)

    def __init__(self) -> None:
        self._allowance = Allowance(INLINE_BYTES)

    def check(self, data: memoryview | bytes, config: TopicConfig, produce_version: int, wall_ms: int) -> Validated:
        """`validate`.

        Raises:
            AllowanceExceeded: it takes too long for the broker's thread.
        """
        if len(data) < HEADER_BYTES or not (data[_CODEC_AT] & CODEC_MASK or config.compression_type != "producer"):
            return validate(data, config, produce_version, wall_ms)
        with self._allowance:
            return validate(data, config, produce_version, wall_ms)


class _Checked:
    """What came of a check under these settings."""

    def __init__(self, config: TopicConfig | None, outcome: Validated | Exception | None) -> None:
        self._config = config
        self._outcome = outcome

    def take(self, data: memoryview | bytes, config: TopicConfig, produce_version: int, wall_ms: int) -> Validated:
        """The outcome, with the time now as the time of the append.

        Raises:
            AllowanceExceeded: the settings have changed, so that it does not count.
        """
        if config is not self._config or self._outcome is None:
            raise AllowanceExceeded
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome if self._outcome.append_time_ms is None else self._outcome._replace(append_time_ms=wall_ms)


class LongBatch(NamedTuple):
    """A batch that is to be checked: its place in the request, topic and partition, and its bytes."""

    nth: int
    topic: str
    partition: int
    data: memoryview


class Checks:
    """The long checks of one request, one after the other; what its call waits in."""

    def __init__(
        self,
        state: BrokerState,
        call: Call,
        batches: Iterable[LongBatch],
        write: Callable[[LongBatch, Check], bool],
        finish: Callable[[], None],
    ) -> None:
        """Nothing is checked before `begin`.

        Args:
            state: the broker's.
            call: the request's.
            batches: what is to be checked.
            write: writes a batch, with the outcome of its check; False if it must be checked again.
            finish: all are written, or refused.
        """
        self._state = state
        self._call = call
        self._left = deque(batches)
        self._write = write
        self._finish = finish
        self._completed = False

    def begin(self) -> None:
        """Has the first batch checked."""
        self._call.operation = self
        self._state.checking.add(self)
        self._next()

    def _next(self) -> None:
        batch = self._left[0]
        partition = self._state.replicas.partitions.get((batch.topic, batch.partition))
        # Without a partition there are no settings, and the write is refused before it asks for the outcome.
        config = None if partition is None else partition.config
        version, wall_ms = self._call.version, self._call.wall_ms

        def check() -> Validated | KafkaError | None:
            if self._completed or config is None:
                return None
            try:
                return validate(batch.data, config, version, wall_ms)
            except KafkaError as error:
                error.__context__ = error.__cause__ = None     # with their frames they would hold the records in a cycle
                return error.with_traceback(None)

        def done(outcome: Validated | Exception | None) -> None:
            if not self._completed:
                self._checked(batch, config, outcome)

        self._state.checker.submit(check, done)

    def _checked(self, batch: LongBatch, config: TopicConfig | None, outcome: Validated | Exception | None) -> None:
        call, clock = self._call, self._state.clock
        try:
            call.now_ms, call.wall_ms = clock.now_ms(), clock.wall_ms()
            written = self._write(batch, _Checked(config, outcome).take)
            if isinstance(outcome, Exception):
                outcome.with_traceback(None)                  # with the frames it came through it would hold the records in a cycle
            if written:
                self._left.popleft()
            if self._left:
                self._next()
                return
            self._end()
            self._finish()
        except Exception:  # of this request's: the loop must not suffer from it
            logger.exception("a Produce request of client %s failed", call.client_id)
            self._end()
            call.fail()

    def _end(self) -> None:
        self._completed = True
        self._state.checking.discard(self)
        if self._call.operation is self:
            self._call.operation = None                       # with the call this would hold the records in a cycle

    def is_completed(self) -> bool:
        """Whether all is written, or nothing more will be."""
        return self._completed

    def abandon(self) -> None:
        """The peer has closed its connection, or the broker stops: what is not written yet never will be."""
        self._end()
