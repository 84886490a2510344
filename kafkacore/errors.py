"""Every error kafkacore raises.

Three families, by whose fault it is:

* the peer's: `BrokerError` (a broker answered with an error code; one class per code, named as in Kafka's Java client without the
  "Exception"), `TransportError` (the connection failed, and often it is not known whether the broker did the work) and `CorruptDataError`
  (bytes that no honest peer sends);
* the caller's: `UsageError` and what derives from it;
* ours: `InternalError`.

Rules of this file: one class per broker code and one code per class (a second one is refused at import); the flags `retriable`,
`invalid_metadata`, `fatal` and `txn_requires_abort` are facts about the class and may be overridden for one error; every error can say
where it happened (topic, partition, broker, API, offset) and survives pickling.

Source: org.apache.kafka.common.protocol.Errors of Apache Kafka 4.3; KIP-1050 for the transactional flags.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkacore.error_codes import NAMES as NAMES
from kafkacore.error_codes import Code as Code
from kafkacore.plurals import counted

_BY_CODE: dict[int, type[KafkaError]] = {}


class KafkaError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: Kafka's error code, or None for errors that have none.
        name: Kafka's name of the code, or the name of the class.
        retriable: the same request may succeed later.
        fatal: the client cannot go on; a new one is needed once the cause is removed.
        invalid_metadata: the client's view of the cluster is out of date and is refreshed before the retry.
        txn_requires_abort: the open transaction can only be aborted.
        topic, partition, broker, api, offset: where it happened, None where that is unknown.
        attempts: why each try before failed, oldest first.
    """

    code: int | None = None
    retriable: bool = False
    fatal: bool = False
    invalid_metadata: bool = False
    txn_requires_abort: bool = False

    def __init_subclass__(
        cls,
        *,
        code: Code | None = None,
        retriable: bool | None = None,
        fatal: bool | None = None,
        invalid_metadata: bool | None = None,
        txn_requires_abort: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if code is not None:
            if code in _BY_CODE:
                raise TypeError(f"error code {int(code)} belongs to {_BY_CODE[code].__name__}; {cls.__name__} cannot have it too")
            _BY_CODE[int(code)] = cls
            cls.code = int(code)
        if retriable is not None:
            cls.retriable = retriable
        if fatal is not None:
            cls.fatal = fatal
        if invalid_metadata is not None:
            cls.invalid_metadata = invalid_metadata
        if txn_requires_abort is not None:
            cls.txn_requires_abort = txn_requires_abort

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        api: str | None = None,
        offset: int | None = None,
        attempts: Iterable[object] = (),
        code: int | None = None,
        retriable: bool | None = None,
        fatal: bool | None = None,
        invalid_metadata: bool | None = None,
        txn_requires_abort: bool | None = None,
    ) -> None:
        """Says what went wrong and where.

        Args:
            message: what happened; the text of the class where it is empty.
            topic, partition, broker: where.
            api: the request and its version, as "Produce v9".
            offset: a log offset, or a byte offset for `CorruptDataError`.
            attempts: why earlier tries failed.
            code, retriable, fatal, invalid_metadata, txn_requires_abort: override the facts of the class for this error.
        """
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.broker = broker
        self.api = api
        self.offset = offset
        self.attempts: tuple[object, ...] = tuple(attempts)
        if code is not None:
            self.code = code
        if retriable is not None:
            self.retriable = retriable
        if fatal is not None:
            self.fatal = fatal
        if invalid_metadata is not None:
            self.invalid_metadata = invalid_metadata
        if txn_requires_abort is not None:
            self.txn_requires_abort = txn_requires_abort

    @property
    def name(self) -> str:
        """Kafka's name of the code ("UNKNOWN" if newer than this table), or the name of the class for errors without one."""
        if self.code is None:
            return type(self).__name__
        return NAMES.get(self.code, "UNKNOWN")

    @property
    def where(self) -> str:
        """Topic, partition, broker, API and offset as far as known, "" otherwise."""
        known = (
            ("topic", self.topic),
            ("partition", self.partition),
            ("broker", self.broker),
            ("", self.api),
            ("offset", self.offset),
        )
        return ", ".join(f"{label} {value}".lstrip() for label, value in known if value is not None)

    def __str__(self) -> str:
        text, advice = self.message or self._meaning(), self._advice()
        if advice:
            text = f"{text.removesuffix('.')}; {advice}"
        if self.code is not None:
            text = f"{NAMES.get(self.code, 'UNKNOWN')} ({self.code}): {text}"
        if self.where:
            text += f" [{self.where}]"
        if self.attempts:
            runs = itertools.groupby(str(attempt) or repr(attempt) for attempt in self.attempts)
            counted = ((attempt, sum(1 for _ in same)) for attempt, same in runs)
            text += "; earlier attempts: " + "; ".join(f"{attempt} ({count} times)" if count > 1 else attempt for attempt, count in counted)
        return text

    def _meaning(self) -> str:
        """What the class means: the text of an error that came without one."""
        return (type(self).__doc__ or "").split("\n", 1)[0]

    def _advice(self) -> str:
        """What to do about it, behind the message."""
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[KafkaError], args: tuple[object, ...], state: dict[str, object]) -> KafkaError:
    """Unpickles an error without running its constructor, whose keywords differ from class to class."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


# ---- families ----------------------------------------------------------------------------------------------------------------------


class BrokerError(KafkaError):
    """A broker answered with an error code."""


class TransportError(KafkaError, retriable=True):
    """The connection failed, or no answer came."""


class CorruptDataError(KafkaError):
    """Bytes that break the format they claim to have; `offset` is the byte where reading stopped."""


class IncompleteAnswerError(CorruptDataError):
    """A broker's answer leaves out an item that it was asked about."""


class PartlyDoneError(BrokerError):
    """A part of what was asked for one item was done, and the rest refused.

    Attributes:
        done: the parts that were done.
        refused: why the others were not, by part.
    """

    done: tuple[Any, ...] = ()
    refused: Mapping[Any, KafkaError] = {}


class UsageError(KafkaError):
    """The caller asked for something that cannot be."""


class InternalError(KafkaError):
    """A state kafkacore should never reach: please report it."""


# ---- transport ---------------------------------------------------------------------------------------------------------------------


class KafkaTimeoutError(KafkaError, TimeoutError, retriable=True):
    """The time allowed for an operation has passed."""


class RequestTimedOut(TransportError, KafkaTimeoutError, code=Code.REQUEST_TIMED_OUT):
    """No answer came in time, from the broker or from the replicas it waited for."""


class NetworkError(TransportError, code=Code.NETWORK_EXCEPTION, invalid_metadata=True):
    """The connection failed before an answer came."""


class DisconnectError(NetworkError):
    """The connection was closed before an answer came."""


class AuthenticationFailedError(KafkaError, fatal=True):
    """The peer's or this client's identity was refused (TLS certificate, SASL credentials)."""


class SslAuthenticationFailed(AuthenticationFailedError):
    """The TLS handshake failed."""


# ---- caller ------------------------------------------------------------------------------------------------------------------------


class ConfigError(UsageError, ValueError):
    """A setting is unknown, malformed, or contradicts another."""


class IllegalStateError(UsageError):
    """The call does not fit the object's state."""


class ClosedError(IllegalStateError):
    """The object is closed."""


class ForkedClientError(IllegalStateError):
    """A client made before a fork was used in the child: each process makes its own."""


class SerializationError(UsageError):
    """A key or value could not be turned into bytes, or back."""


class NoOffsetForPartition(UsageError):
    """The partition has no position, and auto_offset_reset is "none".

    Attributes:
        partitions: (topic, partition) of all that this is about; `topic` and `partition` are the first.
    """

    def __init__(self, message: str = "", *, partitions: Iterable[tuple[str, int]] = (), **where: Any) -> None:
        """Says which partitions have no position.

        Args:
            message: what happened.
            partitions: (topic, partition) of all that this is about.
            **where: as for `KafkaError`.
        """
        super().__init__(message, **where)
        self.partitions: tuple[tuple[str, int], ...] = tuple(partitions)


class UnknownCodecError(UsageError, ValueError):
    """No compression codec that message sets know: none, gzip, snappy or lz4."""


class DecompressedTooLarge(UsageError):
    """A batch holds more uncompressed bytes than the reader allows (`max_decompressed_bytes`); its data need not be wrong. `offset` is the
    first offset of the batch."""


class LogTruncationError(NoOffsetForPartition):
    """Records read before are no longer on the leader's log, and auto_offset_reset is "none"; `offset` is the position (KIP-320)."""


# ---- client ------------------------------------------------------------------------------------------------------------------------


class BufferFullError(KafkaTimeoutError, BufferError):
    """buffer_memory stayed full for max_block_ms."""


class QueueFullError(BufferFullError):
    """The queue of an `AsyncProducer` had no room in time.

    Attributes:
        messages: what was not queued; the messages before it in the same call were.
    """

    def __init__(self, message: str = "", *, messages: Sequence[Any] = (), **where: Any) -> None:
        """Says what was dropped.

        Args:
            message: what happened.
            messages: what was not queued.
            **where: as for `KafkaError`.
        """
        self.messages = tuple(messages)
        super().__init__(message, **where)


class ConsumerTimeoutError(KafkaTimeoutError):
    """A stream of a `ConsumerConnector` had no message for consumer_timeout_ms; the stream goes on when it is asked again."""


class WakeupError(KafkaError):
    """wakeup() ended a wait."""


class MaxPollExceeded(KafkaError):
    """poll() was not called for max_poll_interval_ms, so the member left its group. Raised once; the next poll joins again."""


class CommitFailed(KafkaError):
    """The offsets were not committed, since this consumer is not a member of its group any more."""


class TransactionAborted(KafkaError):
    """The record was not sent because its transaction was aborted."""


class PurgedError(KafkaError):
    """The record was purged before it was delivered.

    Attributes:
        in_flight: its request was on the wire: the broker may have it.
    """

    in_flight: bool = False


class PreparedTransactionError(KafkaError):
    """A prepared transaction did not end as it was to. The classes below say how it ended."""


class PreparedTransactionAborted(PreparedTransactionError):
    """A prepared transaction cannot be committed, since it was aborted: its records and offsets do not count.

    Attributes:
        timed_out: it was open for longer than its transaction_timeout_ms, by the clock of this process: then its coordinator aborts it.
    """

    timed_out: bool = False


class PreparedTransactionCommitted(PreparedTransactionError):
    """A prepared transaction cannot be aborted, since it was committed."""


class PreparedTransactionUnknown(PreparedTransactionError):
    """How a prepared transaction ended cannot be found out any more: its transactional id has been used again since, or is forgotten."""


class DeliveryError(KafkaError):
    """Records of a flushed set failed and their futures had not been looked at.

    Attributes:
        failed: how many.
        causes: the first few errors, one of each kind.
    """

    def __init__(self, message: str = "", *, failed: int = 0, causes: Iterable[BaseException] = (), **where: Any) -> None:
        """Counts the lost records.

        Args:
            message: what happened; made from the count and the first cause where it is empty.
            failed: records that were not delivered.
            causes: the first errors.
            **where: as for `KafkaError`.
        """
        self.failed = failed
        self.causes = tuple(causes)
        if not message:
            message = f"{counted(failed, 'record')} {'was' if failed == 1 else 'were'} not delivered"
            if self.causes:
                message += f"; first cause: {self.causes[0]}"
        super().__init__(message, **where)


class FailedToSendMessageError(KafkaError):
    """Messages that `DefaultEventHandler` could not send, with all its tries.

    Attributes:
        failed: why, by (topic, partition): the error of the last try. The partition is -1 where none could be chosen.
        messages: the messages as they were handed in, in their order.
    """

    def __init__(
        self, message: str = "", *, failed: Mapping[Any, BaseException] | None = None, messages: Sequence[Any] = (), **where: Any
    ) -> None:
        """Names what failed.

        Args:
            message: what happened; the first failures are named behind it.
            failed: why, by (topic, partition).
            messages: what was not sent.
            **where: as for `KafkaError`.
        """
        self.failed = dict(failed or {})
        self.messages = tuple(messages)
        named = [f"{topic}-{partition}: {cause}" for (topic, partition), cause in itertools.islice(self.failed.items(), 5)]
        if len(self.failed) > len(named):
            named.append(f"and {len(self.failed) - len(named)} more")
        super().__init__("; ".join([message, *named]) if named else message, **where)


# ---- broker codes, one row each, in the order of Code ------------------------------------------------------------------------------


class AuthorizationError(BrokerError):
    """The principal may not do this. The text names the operation that an ACL has to allow, where the request says which it is."""

    def _advice(self) -> str:
        request = (self.api or "").partition(" ")[0]
        operation = next((name for name, requests in _NEEDED.get(self.code or 0, {}).items() if request in requests), None)
        return "" if operation is None else f"an ACL must allow {operation}"


# For what a request is refused, by code and operation. Source: kafka.server.{KafkaApis, ControllerApis}.
_NEEDED: dict[int, dict[str, frozenset[str]]] = {
    code: {operation: frozenset(requests.split()) for operation, requests in needed.items()}
    for code, needed in {
        Code.TOPIC_AUTHORIZATION_FAILED: {
            "READ": "Fetch OffsetCommit TxnOffsetCommit OffsetDelete DescribeProducers",
            "WRITE": "Produce AddPartitionsToTxn",
            "CREATE": "CreateTopics",
            "DELETE": "DeleteTopics DeleteRecords",
            "ALTER": "CreatePartitions",
            "DESCRIBE, which READ and WRITE include": "Metadata ListOffsets OffsetForLeaderEpoch OffsetFetch DescribeTopicPartitions"
            " ConsumerGroupHeartbeat ConsumerGroupDescribe",
            "DESCRIBE_CONFIGS": "DescribeConfigs",
            "ALTER_CONFIGS": "AlterConfigs IncrementalAlterConfigs",
        },
        Code.GROUP_AUTHORIZATION_FAILED: {
            "READ": "JoinGroup SyncGroup Heartbeat LeaveGroup ConsumerGroupHeartbeat OffsetCommit AddOffsetsToTxn TxnOffsetCommit",
            "DESCRIBE, which READ includes": "FindCoordinator OffsetFetch DescribeGroups ConsumerGroupDescribe",
            "DELETE": "DeleteGroups OffsetDelete",
            "DESCRIBE_CONFIGS": "DescribeConfigs",
            "ALTER_CONFIGS": "AlterConfigs IncrementalAlterConfigs",
        },
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: {
            "WRITE": "InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit Produce",
            "DESCRIBE, which WRITE includes": "FindCoordinator DescribeTransactions",
        },
        Code.CLUSTER_AUTHORIZATION_FAILED: {
            "IDEMPOTENT_WRITE, or WRITE on some topic": "InitProducerId",
            "DESCRIBE": "DescribeAcls DescribeLogDirs DescribeQuorum DescribeUserScramCredentials ListPartitionReassignments",
            "DESCRIBE_CONFIGS": "DescribeClientQuotas DescribeConfigs ListConfigResources",
            "ALTER_CONFIGS": "AlterClientQuotas AlterConfigs IncrementalAlterConfigs",
            "ALTER": "AddRaftVoter AlterPartitionReassignments AlterReplicaLogDirs AlterUserScramCredentials CreateAcls DeleteAcls"
            " ElectLeaders RemoveRaftVoter UnregisterBroker UpdateFeatures WriteTxnMarkers",
        },
    }.items()
}


# fmt: off
class UnknownServer(BrokerError, code=Code.UNKNOWN_SERVER_ERROR):
    """The broker failed in a way it has no code for; its log says more."""
class OffsetOutOfRange(BrokerError, code=Code.OFFSET_OUT_OF_RANGE):
    """The fetch offset lies outside what the partition holds."""
class CorruptRecord(BrokerError, code=Code.CORRUPT_MESSAGE, retriable=True):
    """The broker found a batch whose checksum, size or key is wrong."""
class UnknownTopicOrPartition(BrokerError, code=Code.UNKNOWN_TOPIC_OR_PARTITION, retriable=True, invalid_metadata=True):
    """The broker does not host this topic or partition (yet)."""
    def _meaning(self) -> str:
        return super()._meaning() if self.topic is None or self.partition is not None else "There is no such topic (yet)."
class InvalidFetchSize(BrokerError, code=Code.INVALID_FETCH_SIZE):
    """The requested fetch size is not allowed."""
class LeaderNotAvailable(BrokerError, code=Code.LEADER_NOT_AVAILABLE, retriable=True, invalid_metadata=True):
    """The partition has no leader while an election runs."""
class NotLeaderOrFollower(BrokerError, code=Code.NOT_LEADER_OR_FOLLOWER, retriable=True, invalid_metadata=True):
    """The broker is no longer the leader (or a replica) of the partition."""
class BrokerNotAvailable(BrokerError, code=Code.BROKER_NOT_AVAILABLE):
    """The broker is not available."""
class ReplicaNotAvailable(BrokerError, code=Code.REPLICA_NOT_AVAILABLE, retriable=True, invalid_metadata=True):
    """The replica is not available on this broker."""
class RecordTooLarge(BrokerError, code=Code.MESSAGE_TOO_LARGE):
    """A record or batch is larger than the broker's or the client's limit."""
class ControllerMoved(BrokerError, code=Code.STALE_CONTROLLER_EPOCH):
    """The controller has moved to another broker."""
class OffsetMetadataTooLarge(BrokerError, code=Code.OFFSET_METADATA_TOO_LARGE):
    """The metadata stored with a committed offset is too long."""
class CoordinatorLoadInProgress(BrokerError, code=Code.COORDINATOR_LOAD_IN_PROGRESS, retriable=True):
    """The coordinator is still loading its log."""
class CoordinatorNotAvailable(BrokerError, code=Code.COORDINATOR_NOT_AVAILABLE, retriable=True):
    """The coordinator is not available."""
class NotCoordinator(BrokerError, code=Code.NOT_COORDINATOR, retriable=True):
    """The broker is not the coordinator of this group or transactional id."""
class InvalidTopic(BrokerError, code=Code.INVALID_TOPIC_EXCEPTION):
    """The topic name is not legal, or the topic may not be written to."""
class RecordBatchTooLarge(BrokerError, code=Code.RECORD_LIST_TOO_LARGE):
    """The batch is larger than a log segment of the topic."""
class NotEnoughReplicas(BrokerError, code=Code.NOT_ENOUGH_REPLICAS, retriable=True):
    """Fewer replicas are in sync than min.insync.replicas; nothing was written."""
class NotEnoughReplicasAfterAppend(BrokerError, code=Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, retriable=True):
    """The batch was written, but to fewer in-sync replicas than min.insync.replicas."""
class InvalidRequiredAcks(BrokerError, code=Code.INVALID_REQUIRED_ACKS):
    """acks must be -1, 0 or 1."""
class IllegalGeneration(BrokerError, code=Code.ILLEGAL_GENERATION, txn_requires_abort=True):
    """The group generation is not the current one."""
class InconsistentGroupProtocol(BrokerError, code=Code.INCONSISTENT_GROUP_PROTOCOL):
    """The member shares no protocol with the others, or names none."""
class InvalidGroupId(BrokerError, code=Code.INVALID_GROUP_ID):
    """The group id is not legal."""
class UnknownMemberId(BrokerError, code=Code.UNKNOWN_MEMBER_ID, txn_requires_abort=True):
    """The coordinator does not know this member."""
class InvalidSessionTimeout(BrokerError, code=Code.INVALID_SESSION_TIMEOUT):
    """The session timeout is outside the broker's range."""
class RebalanceInProgress(BrokerError, code=Code.REBALANCE_IN_PROGRESS):
    """The group is rebalancing; the member has to rejoin."""
class InvalidCommitOffsetSize(BrokerError, code=Code.INVALID_COMMIT_OFFSET_SIZE):
    """The offset commit is too large."""
class TopicAuthorization(AuthorizationError, code=Code.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True):
    """Not allowed on this topic."""
class GroupAuthorization(AuthorizationError, code=Code.GROUP_AUTHORIZATION_FAILED, txn_requires_abort=True):
    """Not allowed on this group."""
class ClusterAuthorization(AuthorizationError, code=Code.CLUSTER_AUTHORIZATION_FAILED, fatal=True):
    """Not allowed on this cluster."""
class InvalidTimestamp(BrokerError, code=Code.INVALID_TIMESTAMP):
    """The record's timestamp is outside what the topic accepts."""

    record_errors: Sequence[tuple[int, str]] = ()
class UnsupportedSaslMechanism(AuthenticationFailedError, BrokerError, code=Code.UNSUPPORTED_SASL_MECHANISM):
    """The broker does not offer this SASL mechanism."""
class IllegalSaslState(AuthenticationFailedError, BrokerError, code=Code.ILLEGAL_SASL_STATE):
    """The request does not fit the state of the SASL exchange."""
class UnsupportedVersion(BrokerError, code=Code.UNSUPPORTED_VERSION, fatal=True):
    """No version of the API is known to both sides."""
class TopicExists(BrokerError, code=Code.TOPIC_ALREADY_EXISTS):
    """The topic exists already."""
class InvalidPartitions(BrokerError, code=Code.INVALID_PARTITIONS):
    """The number of partitions is not legal."""
class InvalidReplicationFactor(BrokerError, code=Code.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of brokers."""
class InvalidReplicaAssignment(BrokerError, code=Code.INVALID_REPLICA_ASSIGNMENT):
    """The replica assignment is not legal."""
class InvalidConfiguration(BrokerError, code=Code.INVALID_CONFIG):
    """A configuration value is not legal."""
class NotController(BrokerError, code=Code.NOT_CONTROLLER, retriable=True):
    """The broker is not the controller."""
class InvalidRequest(BrokerError, code=Code.INVALID_REQUEST):
    """The request is malformed, or contradicts itself."""
class UnsupportedForMessageFormat(BrokerError, code=Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, fatal=True):
    """The message format of the topic cannot hold what was sent."""
class PolicyViolation(BrokerError, code=Code.POLICY_VIOLATION):
    """A policy of the cluster forbids the request."""
class OutOfOrderSequence(BrokerError, code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER, txn_requires_abort=True):
    """The batch's sequence number does not follow the last one."""
class DuplicateSequence(BrokerError, code=Code.DUPLICATE_SEQUENCE_NUMBER):
    """The batch was written before."""
class InvalidProducerEpoch(BrokerError, code=Code.INVALID_PRODUCER_EPOCH, txn_requires_abort=True):
    """A newer epoch of this producer id exists."""
class InvalidTxnState(BrokerError, code=Code.INVALID_TXN_STATE, fatal=True):
    """The transaction is not in a state that allows this."""
class InvalidPidMapping(BrokerError, code=Code.INVALID_PRODUCER_ID_MAPPING, fatal=True):
    """The producer id does not belong to the transactional id."""
class InvalidTxnTimeout(BrokerError, code=Code.INVALID_TRANSACTION_TIMEOUT):
    """The transaction timeout is above transaction.max.timeout.ms."""
class ConcurrentTransactions(BrokerError, code=Code.CONCURRENT_TRANSACTIONS, retriable=True):
    """Another operation of the same transaction is still running."""
class TransactionCoordinatorFenced(BrokerError, code=Code.TRANSACTION_COORDINATOR_FENCED):
    """The coordinator that sent the marker has been replaced."""
class TransactionalIdAuthorization(AuthorizationError, code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True):
    """Not allowed to use this transactional id."""
class SecurityDisabled(BrokerError, code=Code.SECURITY_DISABLED):
    """Security features are off on this cluster."""
class OperationNotAttempted(BrokerError, code=Code.OPERATION_NOT_ATTEMPTED):
    """The broker skipped this operation because another of the same request failed."""
class KafkaStorage(BrokerError, code=Code.KAFKA_STORAGE_ERROR, retriable=True, invalid_metadata=True):
    """A disk failed under the partition."""
class LogDirNotFound(BrokerError, code=Code.LOG_DIR_NOT_FOUND):
    """The broker has no such log directory."""
class SaslAuthentication(AuthenticationFailedError, BrokerError, code=Code.SASL_AUTHENTICATION_FAILED):
    """User name, password or token were refused."""
class UnknownProducerId(OutOfOrderSequence, code=Code.UNKNOWN_PRODUCER_ID, txn_requires_abort=True):
    """The broker remembers nothing of this producer id."""
class ReassignmentInProgress(BrokerError, code=Code.REASSIGNMENT_IN_PROGRESS):
    """A reassignment of the partition is running."""
class DelegationTokenDisabled(BrokerError, code=Code.DELEGATION_TOKEN_AUTH_DISABLED):
    """Delegation tokens are off on this cluster."""
class DelegationTokenNotFound(BrokerError, code=Code.DELEGATION_TOKEN_NOT_FOUND):
    """The broker does not know this delegation token."""
class DelegationTokenOwnerMismatch(BrokerError, code=Code.DELEGATION_TOKEN_OWNER_MISMATCH):
    """The principal neither owns nor may renew the token."""
class UnsupportedByAuthentication(BrokerError, code=Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    """Tokens may not be asked for over this kind of connection."""
class DelegationTokenAuthorization(AuthorizationError, code=Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
    """Not allowed on this delegation token."""
class DelegationTokenExpired(BrokerError, code=Code.DELEGATION_TOKEN_EXPIRED):
    """The delegation token has expired."""
class InvalidPrincipalType(BrokerError, code=Code.INVALID_PRINCIPAL_TYPE):
    """The principal type is not supported."""
class GroupNotEmpty(BrokerError, code=Code.NON_EMPTY_GROUP):
    """The group still has members."""
class GroupIdNotFound(BrokerError, code=Code.GROUP_ID_NOT_FOUND):
    """The group does not exist."""
class FetchSessionIdNotFound(BrokerError, code=Code.FETCH_SESSION_ID_NOT_FOUND, retriable=True):
    """The broker dropped the fetch session; a full fetch starts a new one."""
class InvalidFetchSessionEpoch(BrokerError, code=Code.INVALID_FETCH_SESSION_EPOCH, retriable=True):
    """The fetch session's epoch does not follow the last one."""
class ListenerNotFound(BrokerError, code=Code.LISTENER_NOT_FOUND, retriable=True, invalid_metadata=True):
    """The leader has no listener of the name the request came in on."""
class TopicDeletionDisabled(BrokerError, code=Code.TOPIC_DELETION_DISABLED):
    """Topic deletion is off on this cluster."""
class FencedLeaderEpoch(BrokerError, code=Code.FENCED_LEADER_EPOCH, retriable=True, invalid_metadata=True):
    """The request's leader epoch is older than the broker's."""
class UnknownLeaderEpoch(BrokerError, code=Code.UNKNOWN_LEADER_EPOCH, retriable=True):
    """The request's leader epoch is newer than the broker's."""
class UnsupportedCompressionType(BrokerError, code=Code.UNSUPPORTED_COMPRESSION_TYPE):
    """The topic's compression cannot be read by this version of the request."""
class StaleBrokerEpoch(BrokerError, code=Code.STALE_BROKER_EPOCH):
    """The broker's epoch has changed."""
class OffsetNotAvailable(BrokerError, code=Code.OFFSET_NOT_AVAILABLE, retriable=True):
    """The new leader does not know its high watermark yet."""
class MemberIdRequired(BrokerError, code=Code.MEMBER_ID_REQUIRED):
    """The member has to join again with the id it was given."""
class PreferredLeaderNotAvailable(BrokerError, code=Code.PREFERRED_LEADER_NOT_AVAILABLE, retriable=True, invalid_metadata=True):
    """The preferred leader is not available."""
class GroupMaxSizeReached(BrokerError, code=Code.GROUP_MAX_SIZE_REACHED):
    """The group has as many members as it may have."""
class FencedInstanceId(BrokerError, code=Code.FENCED_INSTANCE_ID, fatal=True, txn_requires_abort=True):
    """Another member took over this group.instance.id."""
class EligibleLeadersNotAvailable(BrokerError, code=Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, retriable=True, invalid_metadata=True):
    """No replica is eligible to lead."""
class ElectionNotNeeded(BrokerError, code=Code.ELECTION_NOT_NEEDED, retriable=True, invalid_metadata=True):
    """The partition needs no election."""
class NoReassignmentInProgress(BrokerError, code=Code.NO_REASSIGNMENT_IN_PROGRESS):
    """No reassignment is running."""
class GroupSubscribedToTopic(BrokerError, code=Code.GROUP_SUBSCRIBED_TO_TOPIC):
    """The group is subscribed to the topic whose offsets were to be deleted."""
class InvalidRecord(BrokerError, code=Code.INVALID_RECORD):
    """The broker's validation refused a record."""

    record_errors: Sequence[tuple[int, str]] = ()
class UnstableOffsetCommit(BrokerError, code=Code.UNSTABLE_OFFSET_COMMIT, retriable=True):
    """Offsets of an open transaction are pending."""
class ThrottlingQuotaExceeded(BrokerError, code=Code.THROTTLING_QUOTA_EXCEEDED, retriable=True):
    """A quota is used up; try later."""
class ProducerFenced(BrokerError, code=Code.PRODUCER_FENCED, fatal=True):
    """A newer producer with the same transactional id took over."""
class ResourceNotFound(BrokerError, code=Code.RESOURCE_NOT_FOUND):
    """The request names something that does not exist."""
class DuplicateResource(BrokerError, code=Code.DUPLICATE_RESOURCE):
    """The request names the same thing twice."""
class UnacceptableCredential(BrokerError, code=Code.UNACCEPTABLE_CREDENTIAL):
    """The credential is too weak or malformed."""
class InconsistentVoterSet(BrokerError, code=Code.INCONSISTENT_VOTER_SET):
    """Sender or receiver is not among the expected voters."""
class InvalidUpdateVersion(BrokerError, code=Code.INVALID_UPDATE_VERSION):
    """The feature update's version is not legal."""
class FeatureUpdateFailed(BrokerError, code=Code.FEATURE_UPDATE_FAILED):
    """The features could not be updated."""
class PrincipalDeserialization(BrokerError, code=Code.PRINCIPAL_DESERIALIZATION_FAILURE):
    """A forwarded principal could not be read."""
class SnapshotNotFound(BrokerError, code=Code.SNAPSHOT_NOT_FOUND):
    """The snapshot does not exist."""
class PositionOutOfRange(BrokerError, code=Code.POSITION_OUT_OF_RANGE):
    """The position is outside the snapshot."""
class UnknownTopicId(BrokerError, code=Code.UNKNOWN_TOPIC_ID, retriable=True, invalid_metadata=True):
    """The broker hosts no topic of this id (yet)."""
class DuplicateBrokerRegistration(BrokerError, code=Code.DUPLICATE_BROKER_REGISTRATION):
    """The broker id is in use."""
class BrokerIdNotRegistered(BrokerError, code=Code.BROKER_ID_NOT_REGISTERED):
    """The broker id is not registered."""
class InconsistentTopicId(BrokerError, code=Code.INCONSISTENT_TOPIC_ID, retriable=True, invalid_metadata=True):
    """The topic id differs from the one in the log."""
class InconsistentClusterId(BrokerError, code=Code.INCONSISTENT_CLUSTER_ID):
    """The cluster id differs from the broker's."""
class TransactionalIdNotFound(BrokerError, code=Code.TRANSACTIONAL_ID_NOT_FOUND):
    """The transactional id is not known."""
class FetchSessionTopicId(BrokerError, code=Code.FETCH_SESSION_TOPIC_ID_ERROR, retriable=True):
    """The fetch session mixed topic names and ids."""
class IneligibleReplica(BrokerError, code=Code.INELIGIBLE_REPLICA):
    """The new ISR holds a replica that is not eligible."""
class NewLeaderElected(BrokerError, code=Code.NEW_LEADER_ELECTED):
    """The partition changed, and its leader too."""
class OffsetMovedToTieredStorage(BrokerError, code=Code.OFFSET_MOVED_TO_TIERED_STORAGE):
    """The offset has moved to tiered storage."""
class FencedMemberEpoch(BrokerError, code=Code.FENCED_MEMBER_EPOCH):
    """The coordinator fenced the member's epoch; it has to give up its partitions and rejoin."""
class UnreleasedInstanceId(BrokerError, code=Code.UNRELEASED_INSTANCE_ID):
    """Another member still holds this group.instance.id."""
class UnsupportedAssignor(BrokerError, code=Code.UNSUPPORTED_ASSIGNOR):
    """The group does not support the assignor."""
class StaleMemberEpoch(BrokerError, code=Code.STALE_MEMBER_EPOCH):
    """The member's epoch is old; the next heartbeat brings the new one."""
class MismatchedEndpointType(BrokerError, code=Code.MISMATCHED_ENDPOINT_TYPE):
    """The request went to the wrong kind of endpoint (broker or controller)."""
class UnsupportedEndpointType(BrokerError, code=Code.UNSUPPORTED_ENDPOINT_TYPE):
    """This kind of endpoint is not supported."""
class UnknownControllerId(BrokerError, code=Code.UNKNOWN_CONTROLLER_ID):
    """The controller id is not known."""
class UnknownSubscriptionId(BrokerError, code=Code.UNKNOWN_SUBSCRIPTION_ID):
    """The telemetry subscription is not known or is old."""
class TelemetryTooLarge(BrokerError, code=Code.TELEMETRY_TOO_LARGE):
    """The pushed telemetry is too large."""
class InvalidRegistration(BrokerError, code=Code.INVALID_REGISTRATION):
    """The controller refused the broker's registration."""
class TransactionAbortable(BrokerError, code=Code.TRANSACTION_ABORTABLE, txn_requires_abort=True):
    """The transaction must be aborted; the producer can go on afterwards."""
class InvalidRecordState(BrokerError, code=Code.INVALID_RECORD_STATE):
    """The record is not in a state that allows this acknowledgement."""
class ShareSessionNotFound(BrokerError, code=Code.SHARE_SESSION_NOT_FOUND, retriable=True):
    """The share session does not exist."""
class InvalidShareSessionEpoch(BrokerError, code=Code.INVALID_SHARE_SESSION_EPOCH, retriable=True):
    """The share session's epoch does not follow the last one."""
class FencedStateEpoch(BrokerError, code=Code.FENCED_STATE_EPOCH):
    """The share group's state epoch differs."""
class InvalidVoterKey(BrokerError, code=Code.INVALID_VOTER_KEY):
    """The voter key differs from the replica's."""
class DuplicateVoter(BrokerError, code=Code.DUPLICATE_VOTER):
    """The voter is in the set already."""
class VoterNotFound(BrokerError, code=Code.VOTER_NOT_FOUND):
    """The voter is not in the set."""
class InvalidRegularExpression(BrokerError, code=Code.INVALID_REGULAR_EXPRESSION):
    """The regular expression is not legal."""
class RebootstrapRequired(BrokerError, code=Code.REBOOTSTRAP_REQUIRED):
    """The client's view of the cluster is too old; it has to bootstrap again."""
class StreamsInvalidTopology(BrokerError, code=Code.STREAMS_INVALID_TOPOLOGY):
    """The Streams topology is not legal."""
class StreamsInvalidTopologyEpoch(BrokerError, code=Code.STREAMS_INVALID_TOPOLOGY_EPOCH):
    """The Streams topology epoch is not legal."""
class StreamsTopologyFenced(BrokerError, code=Code.STREAMS_TOPOLOGY_FENCED):
    """A newer Streams topology took over."""
class ShareSessionLimitReached(BrokerError, code=Code.SHARE_SESSION_LIMIT_REACHED, retriable=True):
    """The broker holds as many share sessions as it may hold."""
# fmt: on


# ---- look-ups ----------------------------------------------------------------------------------------------------------------------


def for_code(code: int) -> type[KafkaError] | None:
    """The class of a broker's error code.

    Args:
        code: as it came over the wire.

    Returns:
        None for 0 (no error); `UnknownServer` for a code newer than this table.
    """
    if code == 0:
        return None
    return _BY_CODE.get(code, UnknownServer)


def from_code(code: int, message: str | None = None, **where: Any) -> KafkaError:
    """Makes the error of a broker's error code, without raising it.

    Args:
        code: as it came over the wire; not 0.
        message: the broker's own text, if it sent one.
        **where: topic, partition, broker, api, offset, attempts as for `KafkaError`.

    Returns:
        The error; one of a code newer than this table keeps that code.

    Raises:
        InternalError: the code is 0.
    """
    cls = for_code(code)
    if cls is None:
        raise InternalError("error code 0 is no error", **where)
    return cls(message or "", code=None if code in _BY_CODE else code, **where)


def joined(found: Sequence[KafkaError]) -> KafkaError:
    """One error for several of one answer: the first; where topics beside its own are refused too, its message names them.

    Args:
        found: at least one.
    """
    first = found[0]
    others = dict.fromkeys(e.topic if type(e) is type(first) else f"{e.topic} ({type(e).__name__})" for e in found)
    others.pop(first.topic, None)
    first = copy.copy(first)  # the original is kept as the error of its topic, without a traceback
    if others:
        named = ", ".join(str(name) for name in itertools.islice(others, 10))
        more = f" and {len(others) - 10} more" if len(others) > 10 else ""
        text = f"refused for {len(others) + 1} topics, also for: {named}{more}"
        first.message = f"{first.message} ({text})" if first.message else text
    return first


def append_to_chain(error: BaseException, later: BaseException) -> None:
    """Puts an error that came later, while this one was handled, at the end of its chain, so that the traceback of this one shows both."""
    first = later
    while first.__context__ is not None and first.__context__ is not error:
        first = first.__context__
    first.__context__ = None  # Python has put this error there
    last = error
    while last is not later and (before := last.__cause__ or last.__context__) is not None:
        last = before
    if last is not later:
        last.__context__ = later


def raise_for(code: int, message: str | None = None, **where: Any) -> None:
    """Raises the error of a broker's error code; does nothing for 0.

    Args:
        code: as it came over the wire.
        message: the broker's own text, if it sent one.
        **where: topic, partition, broker, api, offset, attempts as for `KafkaError`.

    Raises:
        KafkaError: of the code's class.
    """
    if code != 0:
        raise from_code(code, message, **where)
