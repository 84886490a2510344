"""confluent-kafka's KafkaError and KafkaException, and how the engine's errors become them.

A KafkaError is no exception but a code with a text: callbacks and messages carry it, and a KafkaException has it as its first argument.
Codes below -1 are the client's own. `of(error)` gives the counterpart of an error of the engine, which stays the `__cause__` of what is
raised.

Source: the names and numbers of confluent_kafka.KafkaError, confluent-kafka 2.16.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator
from typing import Any

from kafkacore import errors as ours

_FIRST_LOCAL = -199
_LOCAL = (
    "_BAD_MSG _BAD_COMPRESSION _DESTROY _FAIL _TRANSPORT _CRIT_SYS_RESOURCE _RESOLVE _MSG_TIMED_OUT _PARTITION_EOF _UNKNOWN_PARTITION _FS "
    "_UNKNOWN_TOPIC _ALL_BROKERS_DOWN _INVALID_ARG _TIMED_OUT _QUEUE_FULL _ISR_INSUFF _NODE_UPDATE _SSL _WAIT_COORD _UNKNOWN_GROUP "
    "_IN_PROGRESS _PREV_IN_PROGRESS _EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _CONFLICT _STATE _UNKNOWN_PROTOCOL "
    "_NOT_IMPLEMENTED _AUTHENTICATION _NO_OFFSET _OUTDATED _TIMED_OUT_QUEUE _UNSUPPORTED_FEATURE _WAIT_CACHE _INTR _KEY_SERIALIZATION "
    "_VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION _PARTIAL _READ_ONLY _NOENT _UNDERFLOW _INVALID_TYPE _RETRY "
    "_PURGE_QUEUE _PURGE_INFLIGHT _FATAL _INCONSISTENT _GAPLESS_GUARANTEE _MAX_POLL_EXCEEDED _UNKNOWN_BROKER _NOT_CONFIGURED _FENCED "
    "_APPLICATION _ASSIGNMENT_LOST _NOOP _AUTO_OFFSET_RESET _LOG_TRUNCATION _INVALID_DIFFERENT_RECORD _DESTROY_BROKER"
).split()
"""The client's own codes, from -199 on."""

_OTHER_NAMES = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    2: "INVALID_MSG",
    3: "UNKNOWN_TOPIC_OR_PART",
    4: "INVALID_MSG_SIZE",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MSG_SIZE_TOO_LARGE",
    11: "STALE_CTRL_EPOCH",
    17: "TOPIC_EXCEPTION",
}
"""Brokers' codes that have other names there than in Kafka."""
_WITHOUT_NAME = frozenset({98, 99, 101, 102, *range(104, 110)})
"""Brokers' codes that it has no names for: clients never see them."""

CODES: dict[str, int] = {
    **{name: _FIRST_LOCAL + nth for nth, name in enumerate(_LOCAL)},
    **{_OTHER_NAMES.get(code, code.name): int(code) for code in ours.Code if code not in _WITHOUT_NAME},
}
"""Codes by name: the attributes of KafkaError."""
NAMES = {code: name for name, code in CODES.items()}


def _text(code: int) -> str:
    name = NAMES.get(code)
    if name is None:
        return f"Err-{code}?"
    if not code:
        return "Success"
    words = name.strip("_").replace("_", " ").capitalize()
    return f"{'Local' if code < -1 else 'Broker'}: {words}"


class KafkaError:
    """A code and a text. Comparable with numbers: `error == KafkaError._PARTITION_EOF`.

    Args:
        error: the code, one of the class's attributes.
        reason: the text; the code's own when left out.
        fatal: the client cannot go on.
        retriable: the operation may be tried again.
        txn_requires_abort: the transaction can only be aborted.
    """

    __slots__ = ("_code", "_fatal", "_reason", "_retriable", "_txn_requires_abort")

    def __init__(
        self, error: int, reason: str | None = None, fatal: bool = False, retriable: bool = False, txn_requires_abort: bool = False
    ) -> None:
        self._code = error.__index__()
        self._reason = _text(self._code) if reason is None else reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._txn_requires_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """The number."""
        return self._code

    def name(self) -> str:
        """The number's name."""
        return NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """The text."""
        return self._reason

    def fatal(self) -> bool:
        """True when the client cannot go on."""
        return self._fatal

    def retriable(self) -> bool:
        """True when the operation may be tried again."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """True when the transaction can only be aborted."""
        return self._txn_requires_abort

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._reason}"}}'

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self._code)

    def __eq__(self, other: object) -> bool:
        return self._code == _number(other)

    def __lt__(self, other: object) -> bool:
        return self._code < _number(other)

    def __le__(self, other: object) -> bool:
        return self._code <= _number(other)

    def __gt__(self, other: object) -> bool:
        return self._code > _number(other)

    def __ge__(self, other: object) -> bool:
        return self._code >= _number(other)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._code, self._reason, self._fatal, self._retriable, self._txn_requires_abort)


def _number(other: object) -> int:
    if isinstance(other, KafkaError):
        return other._code
    return other if isinstance(other, int) else 0


for _name, _code in CODES.items():
    setattr(KafkaError, _name, _code)


class KafkaException(Exception):
    """Raised by calls; the first argument is a KafkaError."""


class IllegalStateException(RuntimeError):
    """A call that the state of the consumer does not allow."""


class ConcurrentModificationException(RuntimeError):
    """A call while another thread is inside the consumer."""


_BY_CLASS: tuple[tuple[type[ours.KafkaError], str], ...] = (
    (ours.BufferFullError, "_QUEUE_FULL"),
    (ours.SslAuthenticationFailed, "_SSL"),
    (ours.LogTruncationError, "_LOG_TRUNCATION"),
    (ours.NoOffsetForPartition, "_AUTO_OFFSET_RESET"),
    (ours.MaxPollExceeded, "_MAX_POLL_EXCEEDED"),
    (ours.CommitFailed, "_ASSIGNMENT_LOST"),
    (ours.TransactionAborted, "_PURGE_QUEUE"),
    (ours.ProducerFenced, "_FENCED"),
    (ours.UnknownCodecError, "_NOT_IMPLEMENTED"),
    (ours.DecompressedTooLarge, "_BAD_COMPRESSION"),
    (ours.CorruptDataError, "_BAD_MSG"),
    (ours.ClosedError, "_DESTROY"),
    (ours.ConfigError, "_INVALID_ARG"),
    (ours.IllegalStateError, "_STATE"),
    (ours.UsageError, "_INVALID_ARG"),
    (ours.InternalError, "_FAIL"),
)
"""Errors of the engine, most special first; what is not named here goes by its code."""


def code_of(error: BaseException) -> int:
    """The code of an error of the engine."""
    if isinstance(error, ours.OffsetOutOfRange):
        return CODES["_AUTO_OFFSET_RESET"]
    for cls, name in _BY_CLASS:
        if isinstance(error, cls):
            return CODES[name]
    if isinstance(error, ours.AuthenticationFailedError):
        return CODES["_AUTHENTICATION"]
    if isinstance(error, ours.TransportError) and not isinstance(error, ours.RequestTimedOut):
        return CODES["_TRANSPORT"]
    if isinstance(error, ours.KafkaTimeoutError):
        return CODES["_TIMED_OUT"]
    code = getattr(error, "code", None)
    return CODES["_FAIL"] if code is None else int(code)


def of(error: BaseException, what: str = "") -> KafkaError:
    """The counterpart of an error of the engine.

    Args:
        error: the engine's.
        what: what was tried, for the text.
    """
    text = f"{what}: {error}" if what else str(error)
    if not isinstance(error, ours.KafkaError):
        return KafkaError(CODES["_FAIL"], text)
    return KafkaError(code_of(error), text, error.fatal, error.retriable, error.txn_requires_abort)


def local(name: str, text: str | None = None, *, retriable: bool = False) -> KafkaException:
    """An exception of the client's own.

    Args:
        name: of the code, as `_STATE`.
        text: what happened.
        retriable: the same call may succeed later.
    """
    return KafkaException(KafkaError(CODES[name], text, retriable=retriable))


@contextlib.contextmanager
def translated(what: str = "") -> Iterator[None]:
    """Errors of the engine leave the block as KafkaException.

    Args:
        what: what is tried, for the text.
    """
    try:
        yield
    except ours.KafkaError as error:
        raise KafkaException(of(error, what)) from error
