"""kafka-python's exceptions, and how the engine's errors become them.

`of(error)` gives the counterpart of a `kafkacore.errors.KafkaError`: with a broker's code the class of that code, else by the table below.
The engine's error stays its `__cause__`, with topic, partition, broker and earlier attempts.

Source: the names, numbers and bases of kafka.errors, kafka-python 3.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kafkacore import errors as ours
from kafkacore.types import TopicPartition


class KafkaError(Exception):
    """Base of all of them.

    Attributes:
        retriable: the same may succeed later.
        invalid_metadata: what the client knows of the cluster is out of date.
    """

    retriable: bool = False
    invalid_metadata: bool = False

    def __str__(self) -> str:
        return f"{type(self).__name__}: {super().__str__()}" if self.args else type(self).__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaError) and self.__class__ == other.__class__ and self.args == other.args

    def __hash__(self) -> int:
        return hash((self.__class__, str(self)))


# fmt: off
class RetriableError(KafkaError):
    retriable = True
class InvalidMetadataError(RetriableError):
    invalid_metadata = True
class Cancelled(RetriableError):
    pass
class IllegalArgumentError(KafkaError):
    pass
class IllegalStateError(KafkaError):
    pass
class KafkaConfigurationError(KafkaError):
    pass
class KafkaConnectionError(InvalidMetadataError):
    pass
class KafkaProtocolError(KafkaError):
    pass
class CorrelationIdError(RetriableError, KafkaProtocolError):
    pass
class InvalidReceiveError(KafkaProtocolError):
    pass
class KafkaTimeoutError(RetriableError):
    pass
class MetadataEmptyBrokerList(RetriableError):
    pass
class NoOffsetForPartitionError(KafkaError):
    pass
class NodeNotReadyError(RetriableError):
    pass
class UnknownBrokerIdError(KafkaError):
    pass
class QuotaViolationError(KafkaError):
    pass
class StaleMetadata(InvalidMetadataError):
    pass
class TooManyInFlightRequests(RetriableError):
    pass
class UnrecognizedBrokerVersion(KafkaError):
    pass
class UnsupportedCodecError(KafkaError):
    pass
class TransactionAbortedError(KafkaError):
    message = "the transaction was aborted before the record was sent"
# fmt: on


class CommitFailedError(KafkaError):
    """The group has given the partitions to other members."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args or ("this consumer is not a member of its group any more; its partitions may be another member's",))


class LogTruncationError(KafkaError):
    """The log lost records before the position.

    Attributes:
        divergent_offsets: by TopicPartition where the logs part, None where that is unknown.
    """

    def __init__(self, divergent_offsets: Any, *args: object) -> None:
        self.divergent_offsets = divergent_offsets
        super().__init__(*args or (f"truncated: {divergent_offsets}",))


_OTHER_NAMES = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MESSAGE_SIZE_TOO_LARGE",
    17: "INVALID_TOPIC",
    39: "INVALID_REPLICATION_ASSIGNMENT",
}
"""Codes that kafka-python names in its own way."""


class BrokerResponseError(KafkaError):
    """A broker answered with an error code.

    Attributes:
        errno: the code.
        message: Kafka's name of it.
        description: what it means.
    """

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __init_subclass__(cls) -> None:
        errno = cls.__dict__.get("errno")
        if errno is not None and "message" not in cls.__dict__:
            found = ours.for_code(errno)
            cls.message = _OTHER_NAMES.get(errno) or ours.Code(errno).name
            cls.description = "no error" if found is None else (found.__doc__ or "").partition("\n")[0]

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class AuthorizationError(BrokerResponseError):
    """The principal may not do this."""


# fmt: off
class UnknownError(BrokerResponseError):
    errno = -1
class NoError(BrokerResponseError):
    errno = 0
class OffsetOutOfRangeError(BrokerResponseError):
    errno = 1
class CorruptRecordError(BrokerResponseError):
    errno = 2
class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    errno = 3
class InvalidFetchRequestError(BrokerResponseError):
    errno = 4
class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 5
class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    errno = 6
class RequestTimedOutError(RetriableError, BrokerResponseError):
    errno = 7
class BrokerNotAvailableError(BrokerResponseError):
    errno = 8
class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 9
class MessageSizeTooLargeError(BrokerResponseError):
    errno = 10
class StaleControllerEpochError(BrokerResponseError):
    errno = 11
class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = 12
class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    errno = 13
class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    errno = 14
class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    errno = 15
class NotCoordinatorError(RetriableError, BrokerResponseError):
    errno = 16
class InvalidTopicError(BrokerResponseError):
    errno = 17
class RecordListTooLargeError(BrokerResponseError):
    errno = 18
class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    errno = 19
class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    errno = 20
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
class TopicAuthorizationFailedError(AuthorizationError):
    errno = 29
class GroupAuthorizationFailedError(AuthorizationError):
    errno = 30
class ClusterAuthorizationFailedError(AuthorizationError):
    errno = 31
class InvalidTimestampError(BrokerResponseError):
    errno = 32
class UnsupportedSaslMechanismError(BrokerResponseError):
    errno = 33
class IllegalSaslStateError(BrokerResponseError):
    errno = 34
class UnsupportedVersionError(BrokerResponseError):
    errno = 35
class IncompatibleBrokerVersion(UnsupportedVersionError):
    pass
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
class NotControllerError(RetriableError, BrokerResponseError):
    errno = 41
class InvalidRequestError(BrokerResponseError):
    errno = 42
class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = 43
class PolicyViolationError(BrokerResponseError):
    errno = 44
class OutOfOrderSequenceNumberError(BrokerResponseError):
    errno = 45
class DuplicateSequenceNumberError(BrokerResponseError):
    errno = 46
class InvalidProducerEpochError(BrokerResponseError):
    errno = 47
class InvalidTxnStateError(BrokerResponseError):
    errno = 48
class InvalidProducerIdMappingError(BrokerResponseError):
    errno = 49
class InvalidTransactionTimeoutError(BrokerResponseError):
    errno = 50
class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    errno = 51
class TransactionCoordinatorFencedError(BrokerResponseError):
    errno = 52
class TransactionalIdAuthorizationFailedError(AuthorizationError):
    errno = 53
class SecurityDisabledError(BrokerResponseError):
    errno = 54
class OperationNotAttemptedError(BrokerResponseError):
    errno = 55
class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    errno = 56
class LogDirNotFoundError(BrokerResponseError):
    errno = 57
class SaslAuthenticationFailedError(BrokerResponseError):
    errno = 58
class UnknownProducerIdError(BrokerResponseError):
    errno = 59
class ReassignmentInProgressError(BrokerResponseError):
    errno = 60
class DelegationTokenAuthDisabledError(BrokerResponseError):
    errno = 61
class DelegationTokenNotFoundError(BrokerResponseError):
    errno = 62
class DelegationTokenOwnerMismatchError(BrokerResponseError):
    errno = 63
class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    errno = 64
class DelegationTokenAuthorizationFailedError(AuthorizationError):
    errno = 65
class DelegationTokenExpiredError(BrokerResponseError):
    errno = 66
class InvalidPrincipalTypeError(BrokerResponseError):
    errno = 67
class NonEmptyGroupError(BrokerResponseError):
    errno = 68
class GroupIdNotFoundError(BrokerResponseError):
    errno = 69
class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    errno = 70
class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    errno = 71
class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    errno = 72
class TopicDeletionDisabledError(BrokerResponseError):
    errno = 73
class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    errno = 74
class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    errno = 75
class UnsupportedCompressionTypeError(BrokerResponseError):
    errno = 76
class StaleBrokerEpochError(BrokerResponseError):
    errno = 77
class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    errno = 78
class MemberIdRequiredError(BrokerResponseError):
    errno = 79
class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 80
class GroupMaxSizeReachedError(BrokerResponseError):
    errno = 81
class FencedInstanceIdError(BrokerResponseError):
    errno = 82
class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    errno = 83
class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    errno = 84
class NoReassignmentInProgressError(BrokerResponseError):
    errno = 85
class GroupSubscribedToTopicError(BrokerResponseError):
    errno = 86
class InvalidRecordError(BrokerResponseError):
    errno = 87
class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    errno = 88
class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    errno = 89
class ProducerFencedError(BrokerResponseError):
    errno = 90
class ResourceNotFoundError(BrokerResponseError):
    errno = 91
class DuplicateResourceError(BrokerResponseError):
    errno = 92
class UnacceptableCredentialError(BrokerResponseError):
    errno = 93
class InconsistentVoterSetError(BrokerResponseError):
    errno = 94
class InvalidUpdateVersionError(BrokerResponseError):
    errno = 95
class FeatureUpdateFailedError(BrokerResponseError):
    errno = 96
class PrincipalDeserializationFailureError(BrokerResponseError):
    errno = 97
class SnapshotNotFoundError(BrokerResponseError):
    errno = 98
class PositionOutOfRangeError(BrokerResponseError):
    errno = 99
class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno = 100
class DuplicateBrokerRegistrationError(BrokerResponseError):
    errno = 101
class BrokerIdNotRegisteredError(BrokerResponseError):
    errno = 102
class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    errno = 103
class InconsistentClusterIdError(BrokerResponseError):
    errno = 104
class TransactionalIdNotFoundError(BrokerResponseError):
    errno = 105
class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    errno = 106
class IneligibleReplicaError(BrokerResponseError):
    errno = 107
class NewLeaderElectedError(BrokerResponseError):
    errno = 108
class OffsetMovedToTieredStorageError(BrokerResponseError):
    errno = 109
class FencedMemberEpochError(BrokerResponseError):
    errno = 110
class UnreleasedInstanceIdError(BrokerResponseError):
    errno = 111
class UnsupportedAssignorError(BrokerResponseError):
    errno = 112
class StaleMemberEpochError(BrokerResponseError):
    errno = 113
class MismatchedEndpointTypeError(BrokerResponseError):
    errno = 114
class UnsupportedEndpointTypeError(BrokerResponseError):
    errno = 115
class UnknownControllerIdError(BrokerResponseError):
    errno = 116
class UnknownSubscriptionIdError(BrokerResponseError):
    errno = 117
class TelemetryTooLargeError(BrokerResponseError):
    errno = 118
class InvalidRegistrationError(BrokerResponseError):
    errno = 119
class TransactionAbortableError(BrokerResponseError):
    errno = 120
class InvalidRecordStateError(BrokerResponseError):
    errno = 121
class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    errno = 122
class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    errno = 123
class FencedStateEpochError(BrokerResponseError):
    errno = 124
class InvalidVoterKeyError(BrokerResponseError):
    errno = 125
class DuplicateVoterError(BrokerResponseError):
    errno = 126
class VoterNotFoundError(BrokerResponseError):
    errno = 127
# fmt: on


CorruptRecordException = CorruptRecordError

kafka_errors: dict[int, type[BrokerResponseError]] = {
    each.errno: each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, BrokerResponseError) and each.errno is not None
}
"""Class by code."""
kafka_errors[35] = UnsupportedVersionError


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of a broker's code; 0 has one too, NoError. A code newer than this table keeps its number."""
    found = kafka_errors.get(error_code)
    return type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code, "message": "UNKNOWN"}) if found is None else found


_COUNTERPARTS: tuple[tuple[type[ours.KafkaError], type[KafkaError]], ...] = (
    (ours.RequestTimedOut, KafkaTimeoutError),  # also a broker's code: the client's own time is what most programs ask about
    (ours.KafkaTimeoutError, KafkaTimeoutError),
    (ours.CommitFailed, CommitFailedError),
    (ours.MaxPollExceeded, CommitFailedError),
    (ours.DecompressedTooLarge, UnsupportedCodecError),
    (ours.TransactionAborted, TransactionAbortedError),
    (ours.SslAuthenticationFailed, KafkaConnectionError),
    (ours.CorruptDataError, KafkaProtocolError),
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
    made: KafkaError
    if isinstance(error, ours.LogTruncationError):
        made = LogTruncationError({TopicPartition(str(error.topic), int(error.partition or 0)): None}, str(error))
    elif isinstance(error, ours.NoOffsetForPartition):
        made = NoOffsetForPartitionError(str(error))
    elif isinstance(error, ours.SerializationError) and error.__cause__ is not None:
        return error.__cause__  # kafka-python hands a deserializer's own exception on
    elif isinstance(error, ours.InvalidProducerEpoch):
        made = kafka_errors[int(ours.Code.PRODUCER_FENCED)](str(error))  # what brokers answer to a fenced producer's records
    elif error.code is not None and not isinstance(error, ours.TransportError):
        made = for_code(error.code)(str(error))
    else:
        made = next((kind for cls, kind in _COUNTERPARTS if isinstance(error, cls)), KafkaError)(str(error))
    made.__cause__ = error
    return made


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """A block whose errors of the engine come out as kafka-python's."""
    try:
        yield
    except ours.KafkaError as error:
        raise of(error) from error
