"""aiokafka's exceptions, and how the engine's errors become them.

`of(error)` gives the counterpart of a `kafkacore.errors.KafkaError`: with a broker's code the class of that code, else by the table below.
The engine's error stays its `__cause__`, with topic, partition, broker and earlier attempts.

Source: the names, numbers and bases of aiokafka.errors, aiokafka 0.14.
"""

from __future__ import annotations

from typing import Any

from kafkacore import errors as ours
from kafkacore.types import TopicPartition


class KafkaError(RuntimeError):
    """Base of nearly all of them.

    Attributes:
        retriable: the same may succeed later.
        invalid_metadata: what the client knows of the cluster is out of date.
    """

    retriable: bool = False
    invalid_metadata: bool = False

    def __str__(self) -> str:
        return f"{type(self).__name__}: {super().__str__()}" if self.args else type(self).__name__


class ConsumerStoppedError(Exception):
    """The consumer is stopped, or was stopped while a call waited for records."""


class IllegalOperation(Exception):
    """The client has no setting for this: a group, a transactional id."""


# fmt: off
class IllegalStateError(KafkaError):
    pass
class IllegalArgumentError(KafkaError):
    pass
class NoBrokersAvailable(KafkaError):
    retriable = True
    invalid_metadata = True
class NodeNotReadyError(KafkaError):
    retriable = True
class KafkaProtocolError(KafkaError):
    retriable = True
class CorrelationIdError(KafkaProtocolError):
    pass
class Cancelled(KafkaError):
    retriable = True
class TooManyInFlightRequests(KafkaError):
    retriable = True
class StaleMetadata(KafkaError):
    retriable = True
    invalid_metadata = True
class MetadataEmptyBrokerList(KafkaError):
    retriable = True
class UnrecognizedBrokerVersion(KafkaError):
    pass
class IncompatibleBrokerVersion(KafkaError):
    pass
class AuthenticationMethodNotSupported(KafkaError):
    pass
class AuthenticationFailedError(KafkaError):
    pass
class KafkaUnavailableError(KafkaError):
    pass
class KafkaTimeoutError(KafkaError):
    pass
class KafkaConnectionError(KafkaError):
    retriable = True
    invalid_metadata = True
class UnsupportedCodecError(KafkaError):
    pass
class KafkaConfigurationError(KafkaError):
    pass
class QuotaViolationError(KafkaError):
    pass
class NoOffsetForPartitionError(KafkaError):
    pass
class RecordTooLargeError(KafkaError):
    pass
class ProducerClosed(KafkaError):
    pass
# fmt: on


class CommitFailedError(KafkaError):
    """The group has given the partitions to other members."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args or ("this consumer is not a member of its group any more; its partitions may be another member's",))


class ProducerFenced(KafkaError):
    """A newer producer has this transactional id, or the coordinator has ended the transaction because of its time."""

    def __init__(self, msg: str = "a newer producer has this transactional id, or transaction_timeout_ms has passed") -> None:
        super().__init__(msg)


_OTHER_NAMES = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MESSAGE_SIZE_TOO_LARGE",
    13: "STALE_LEADER_EPOCH_CODE",
    17: "INVALID_TOPIC",
    39: "INVALID_REPLICATION_ASSIGNMENT",
}
"""Codes that aiokafka names in its own way."""


class BrokerResponseError(KafkaError):
    """A broker answered with an error code.

    Attributes:
        errno: the code.
        message: Kafka's name of it.
        description: what it means.
    """

    errno: int
    message: str
    description: str = ""

    def __init_subclass__(cls) -> None:
        errno = cls.__dict__.get("errno")
        if errno is not None and "message" not in cls.__dict__:
            found = ours.for_code(errno)
            cls.message = _OTHER_NAMES.get(errno) or ours.Code(errno).name
            cls.description = "no error" if found is None else (found.__doc__ or "").partition("\n")[0]

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


# fmt: off
class NoError(BrokerResponseError):
    errno = 0
class UnknownError(BrokerResponseError):
    errno = -1
class OffsetOutOfRangeError(BrokerResponseError):
    errno = 1
class CorruptRecordException(BrokerResponseError):
    errno = 2
class UnknownTopicOrPartitionError(BrokerResponseError):
    errno = 3
    retriable = True
    invalid_metadata = True
class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
class LeaderNotAvailableError(BrokerResponseError):
    errno = 5
    retriable = True
    invalid_metadata = True
class NotLeaderForPartitionError(BrokerResponseError):
    errno = 6
    retriable = True
    invalid_metadata = True
class RequestTimedOutError(BrokerResponseError):
    errno = 7
    retriable = True
class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
class ReplicaNotAvailableError(BrokerResponseError):
    errno = 9
class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
class StaleControllerEpochError(BrokerResponseError):
    errno = 11
class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
class StaleLeaderEpochCodeError(BrokerResponseError):
    errno = 13
class GroupLoadInProgressError(BrokerResponseError):
    errno = 14
    retriable = True
class GroupCoordinatorNotAvailableError(BrokerResponseError):
    errno = 15
    retriable = True
class NotCoordinatorForGroupError(BrokerResponseError):
    errno = 16
    retriable = True
class InvalidTopicError(BrokerResponseError):
    errno = 17
class RecordListTooLargeError(BrokerResponseError):
    errno = 18
class NotEnoughReplicasError(BrokerResponseError):
    errno = 19
    retriable = True
class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    errno = 20
    retriable = True
class InvalidRequiredAcksError(BrokerResponseError):
    errno = 21
class IllegalGenerationError(BrokerResponseError):
    errno = 22
class InconsistentGroupProtocolError(BrokerResponseError):
    errno = 23
class InvalidGroupIdError(BrokerResponseError):
    errno = 24
class UnknownMemberIdError(BrokerResponseError):
    errno = 25
class InvalidSessionTimeoutError(BrokerResponseError):
    errno = 26
class RebalanceInProgressError(BrokerResponseError):
    errno = 27
class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = 28
class TopicAuthorizationFailedError(BrokerResponseError):
    errno = 29
class GroupAuthorizationFailedError(BrokerResponseError):
    errno = 30
class ClusterAuthorizationFailedError(BrokerResponseError):
    errno = 31
class InvalidTimestampError(BrokerResponseError):
    errno = 32
class UnsupportedSaslMechanismError(BrokerResponseError):
    errno = 33
class IllegalSaslStateError(BrokerResponseError):
    errno = 34
class UnsupportedVersionError(BrokerResponseError):
    errno = 35
class TopicAlreadyExistsError(BrokerResponseError):
    errno = 36
class InvalidPartitionsError(BrokerResponseError):
    errno = 37
class InvalidReplicationFactorError(BrokerResponseError):
    errno = 38
class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = 39
class InvalidConfigurationError(BrokerResponseError):
    errno = 40
class NotControllerError(BrokerResponseError):
    errno = 41
    retriable = True
class InvalidRequestError(BrokerResponseError):
    errno = 42
class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = 43
class PolicyViolationError(BrokerResponseError):
    errno = 44
class OutOfOrderSequenceNumber(BrokerResponseError):
    errno = 45
class DuplicateSequenceNumber(BrokerResponseError):
    errno = 46
class InvalidProducerEpoch(BrokerResponseError):
    errno = 47
class InvalidTxnState(BrokerResponseError):
    errno = 48
class InvalidProducerIdMapping(BrokerResponseError):
    errno = 49
class InvalidTransactionTimeout(BrokerResponseError):
    errno = 50
class ConcurrentTransactions(BrokerResponseError):
    errno = 51
class TransactionCoordinatorFenced(BrokerResponseError):
    errno = 52
class TransactionalIdAuthorizationFailed(BrokerResponseError):
    errno = 53
class SecurityDisabled(BrokerResponseError):
    errno = 54
class OperationNotAttempted(BrokerResponseError):
    errno = 55
class KafkaStorageError(BrokerResponseError):
    errno = 56
    retriable = True
    invalid_metadata = True
class LogDirNotFound(BrokerResponseError):
    errno = 57
class SaslAuthenticationFailed(BrokerResponseError):
    errno = 58
class UnknownProducerId(BrokerResponseError):
    errno = 59
class ReassignmentInProgress(BrokerResponseError):
    errno = 60
class DelegationTokenAuthDisabled(BrokerResponseError):
    errno = 61
class DelegationTokenNotFound(BrokerResponseError):
    errno = 62
class DelegationTokenOwnerMismatch(BrokerResponseError):
    errno = 63
class DelegationTokenRequestNotAllowed(BrokerResponseError):
    errno = 64
class DelegationTokenAuthorizationFailed(BrokerResponseError):
    errno = 65
class DelegationTokenExpired(BrokerResponseError):
    errno = 66
class InvalidPrincipalType(BrokerResponseError):
    errno = 67
class NonEmptyGroup(BrokerResponseError):
    errno = 68
class GroupIdNotFound(BrokerResponseError):
    errno = 69
class FetchSessionIdNotFound(BrokerResponseError):
    errno = 70
class InvalidFetchSessionEpoch(BrokerResponseError):
    errno = 71
class ListenerNotFound(BrokerResponseError):
    errno = 72
class MemberIdRequired(BrokerResponseError):
    errno = 79
# fmt: on


InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError

kafka_errors: dict[int, type[BrokerResponseError]] = {
    each.errno: each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, BrokerResponseError) and each is not BrokerResponseError
}
"""Class by code."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of a broker's code; 0 has one too, NoError, and a code that aiokafka does not know has UnknownError."""
    return kafka_errors.get(error_code, UnknownError)


def coded(error_code: int) -> type[BrokerResponseError]:
    """As `for_code`; a code that aiokafka does not know keeps its number and name."""
    if error_code in kafka_errors:
        return kafka_errors[error_code]
    name = ours.NAMES.get(error_code, "UNKNOWN")
    return type("UnknownError", (UnknownError,), {"errno": error_code, "message": name})


_COUNTERPARTS: tuple[tuple[type[ours.KafkaError], type[Exception]], ...] = (
    (ours.RequestTimedOut, KafkaTimeoutError),  # also a broker's code: the client's own time is what most programs ask about
    (ours.KafkaTimeoutError, KafkaTimeoutError),
    (ours.NoOffsetForPartition, NoOffsetForPartitionError),
    (ours.CommitFailed, CommitFailedError),
    (ours.MaxPollExceeded, CommitFailedError),
    (ours.DecompressedTooLarge, RecordTooLargeError),
    (ours.UnknownCodecError, UnsupportedCodecError),
    (ours.CorruptDataError, CorruptRecordException),
    (ours.TransactionAborted, KafkaError),
    (ours.AuthenticationFailedError, AuthenticationFailedError),
    (ours.ClosedError, IllegalStateError),
    (ours.ConfigError, KafkaConfigurationError),
    (ours.IllegalStateError, IllegalStateError),
    (ours.UsageError, IllegalArgumentError),
    (ours.NetworkError, KafkaConnectionError),
)


def of(error: BaseException) -> BaseException:
    """The counterpart of an error of the engine; others stay as they are.

    Args:
        error: what the engine raised.
    """
    if not isinstance(error, ours.KafkaError):
        return error
    made: Exception
    if isinstance(error, ours.SerializationError) and error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, (ours.InvalidProducerEpoch, ours.ProducerFenced)):
        made = ProducerFenced(str(error))
    elif isinstance(error, ours.OffsetOutOfRange) and error.topic is not None:
        made = OffsetOutOfRangeError({TopicPartition(error.topic, error.partition or 0): error.offset})
    elif error.code is not None and not isinstance(error, (ours.TransportError, ours.AuthenticationFailedError)):
        made = coded(error.code)(str(error))
    else:
        made = next((kind for cls, kind in _COUNTERPARTS if isinstance(error, cls)), KafkaError)(str(error))
    made.__cause__ = error
    return made


class translated:
    """A block whose errors of the engine come out as aiokafka's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, value: BaseException | None, traceback: Any) -> None:
        if isinstance(value, ours.KafkaError):
            raise of(value) from value
