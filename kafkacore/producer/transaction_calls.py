"""What an application's thread does for a transaction: hands a step over, drives the I/O or waits, and raises what came of it.

Rules of the waits: a call that raises KafkaTimeoutError, or that Ctrl+C ends, is not undone. It goes on, and the same call made again waits
for its end, also when that has come meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kafkacore.config import ProducerConfig
from kafkacore.errors import KafkaError, KafkaTimeoutError, UsageError
from kafkacore.net import block_end
from kafkacore.producer.transactions import Phase, Step, StepKind, TransactionEngine, fresh
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkacore.producer.sender import Sender

log = logging.getLogger("kafkacore.producer")

_AGAIN = {
    StepKind.INIT: "call init_transactions() again to go on waiting",
    StepKind.OFFSETS: "it goes on; call send_offsets_to_transaction() or commit_transaction() to wait for it, or abort_transaction()",
    StepKind.PREPARE: "it goes on; call prepare_transaction() again to wait for its end, or abort_transaction()",
    StepKind.COMMIT: "the transaction may still be committed: call commit_transaction() again to learn how it ends",
    StepKind.ABORT: "call abort_transaction() again to go on waiting",
}


def await_step(sender: Sender, step: Step, timeout_s: float) -> None:
    """Waits for the end of a step.

    Args:
        sender: drives the I/O; the calling thread takes its place where it can.
        step: what to wait for.
        timeout_s: seconds.

    Raises:
        KafkaTimeoutError: the time is over; the step goes on.
        KafkaError: it failed.
    """
    sender.wake(-1, False)                                    # no need to end a nap: this thread drives then
    try:
        sender.wait(step.delivery, timeout_s)
    except KafkaTimeoutError:
        raise late(sender, step, timeout_s) from None
    check_step(step)


def late(sender: Sender, step: Step, timeout_s: float) -> KafkaTimeoutError:
    """The error of a step that goes on when its caller's time is over."""
    assert sender.transactional is not None
    return KafkaTimeoutError(
        f"{step.kind.value}() did not end within {timeout_s:g} s: {_AGAIN[step.kind]}", attempts=sender.transactional.attempts()
    )


def check_step(step: Step) -> None:
    """Raises what became of a step that has ended."""
    error = step.delivery.first_error()
    if error is not None:
        raise fresh(error)


def checked_group(group: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """The group as TxnOffsetCommit names it.

    Raises:
        UsageError: no group, or a generation without a member.
    """
    if isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"group_metadata must be consumer.consumer_group_metadata() or a group id, not {type(group).__name__}")
    if not group.group_id:
        raise UsageError("group_metadata names no group: the group id is empty")
    if group.generation_id > 0 and not group.member_id:
        raise UsageError(f"group_metadata has generation {group.generation_id} but no member id")
    return group


def checked_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets with their notes.

    Raises:
        UsageError: a negative offset.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a mapping of (topic, partition) to the next offset to read, not {type(offsets).__name__}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in offsets.items():
        note = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(int(offset))
        if note.offset < 0:
            raise UsageError(f"offset {note.offset} of {partition[0]}-{partition[1]} is negative")
        found[TopicPartition(*partition)] = note
    return found


class Calls(Protocol):
    """What a block needs of a producer."""

    config: ProducerConfig

    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def abort_transaction(self, timeout: float | None = None) -> None: ...


P = TypeVar("P", bound=Calls)


class Transaction(Generic[P]):
    """The block of `with producer.transaction():`. Its end commits; an exception aborts and goes on. A transaction that was prepared in the
    block stays open.

    An abort takes max_block_ms at most, after Ctrl+C 5 s: what is left open then, the next `init_transactions` or the coordinator aborts.
    """

    def __init__(self, producer: P, engine: TransactionEngine) -> None:
        """Nothing has begun.

        Args:
            producer: whose transaction it is.
            engine: of the producer.
        """
        self._producer = producer
        self._engine = engine

    def __enter__(self) -> P:
        """Begins the transaction."""
        before = self._engine.at
        try:
            self._producer.begin_transaction()
            return self._producer
        except BaseException as error:
            if before.phase is Phase.READY and self._engine.at.phase is Phase.OPEN:   # Ctrl+C came behind it
                self._abort(type(error))
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commits, or aborts when the block raised."""
        if kind is not None:
            self._abort(kind)
            return
        if self._engine.at.phase is Phase.PREPARED:
            return                                            # its end is the affair of the process it is handed to
        try:
            self._producer.commit_transaction()
        except KafkaError as failed:
            if failed.txn_requires_abort:
                self._abort(type(failed))
            raise

    def _abort(self, reason: type[BaseException]) -> None:
        if self._engine.at.phase not in (Phase.OPEN, Phase.ABORTABLE, Phase.ABORTING):
            return                                            # fatal, or ended or prepared within the block
        timeout_s = self._producer.config.max_block_ms / 1000
        if issubclass(reason, KeyboardInterrupt):
            timeout_s = min(timeout_s, block_end.FAILED_BLOCK_S)
        with contextlib.suppress(KafkaError):
            try:
                self._producer.abort_transaction(timeout_s)
            except KafkaError as failed:
                log.error("the transaction could not be aborted: %s", failed)
                raise
