"""What a partition's leader asks the coordinator before a transaction's first batch (KIP-890).

Without the question a batch that was delayed on its way could open a transaction in this partition after the coordinator has ended it
everywhere: no producer would ever end that one, and readers of committed data would wait forever. Producers of transaction.version 2 do not
tell the coordinator which partitions they write to; the leader does it for them, with the same question.

Source: kafka.server.AddPartitionsToTxnManager, kafka.server.ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from kafkacore import errors
from kafkacore.broker.txns.coordinator import TransactionCoordinator
from kafkacore.broker.txns.peers import Peers
from kafkacore.broker.txns.shard import ProducerIdAndEpoch, by_topic
from kafkacore.broker.txns.state import TopicIndex
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, KafkaError, from_code
from kafkacore.protocol import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkacore.protocol.schema import Response
from kafkacore.timer import LoopTimer, TimerTask

BATCH_VERSION = 5
LANE = "transactions"
CLIENT_VERSION_OF_BATCH = 2
"""Only producers of transaction.version 2 have partitions added for them."""

Refusals = Mapping[TopicIndex, KafkaError]


class Support(enum.Enum):
    """What the version of a request says about its producer."""

    NO_ABORTABLE_ERROR = "it does not know TRANSACTION_ABORTABLE"
    ABORTABLE_ERROR = "it knows TRANSACTION_ABORTABLE"
    ADDS_BY_WRITING = "it leaves it to the leader to add partitions: transaction.version 2"


class TransactionVerifier:
    """Asks the coordinator of a transactional id, here or on another broker."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        coordinator: TransactionCoordinator,
        coordinator_of: Callable[[str], int],
        peers: Peers | None,
        timeout_ms: int,
        timer: LoopTimer,
        clock: Clock,
    ) -> None:
        """Asks nothing yet.

        Args:
            config: for how long to ask again.
            node_id: this broker.
            coordinator: its own coordinator.
            coordinator_of: the broker that serves a transactional id; raises CoordinatorNotAvailable.
            peers: other brokers; None in a cluster of one.
            timeout_ms: how long another broker may take to answer.
            timer, clock: for asking again.
        """
        self._config = config
        self._node_id = node_id
        self._coordinator = coordinator
        self._coordinator_of = coordinator_of
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._timer = timer
        self._clock = clock

    def ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicIndex],
        support: Support,
        done: Callable[[Refusals], None],
    ) -> None:
        """Has partitions verified, or added for producers of transaction.version 2.

        Args:
            transactional_id, producer: who writes.
            partitions: where.
            support: what the producer knows.
            done: called with the partitions that must not be written to, with the error for the client; may be called before `ask` returns.
        """
        targets = tuple(partitions)
        give_up_ms = self._clock.now_ms() + self._config.add_partitions_to_txn_retry_backoff_max_ms
        adds = support is Support.ADDS_BY_WRITING

        def attempt() -> None:
            self._ask_once(transactional_id, producer, targets, adds, answered)

        def answered(outcome: Mapping[TopicIndex, KafkaError | None] | KafkaError) -> None:
            found = dict.fromkeys(targets, outcome) if isinstance(outcome, KafkaError) else outcome
            refused = {target: error for target, error in found.items() if error is not None}
            busy = any(error.code == Code.CONCURRENT_TRANSACTIONS for error in refused.values())
            # The markers of the last transaction take a moment: waiting here is cheaper than a round trip of the client.
            if adds and busy and self._clock.now_ms() < give_up_ms:
                self._timer.add(TimerTask(self._config.add_partitions_to_txn_retry_backoff_ms, attempt))
                return
            done({target: _for_producer(error, support) for target, error in refused.items()})

        attempt()

    def _ask_once(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        targets: tuple[TopicIndex, ...],
        adds: bool,
        done: Callable[[Mapping[TopicIndex, KafkaError | None] | KafkaError], None],
    ) -> None:
        try:
            node_id = self._coordinator_of(transactional_id)
        except KafkaError as error:
            done(error)
            return
        if node_id == self._node_id:
            if adds:
                self._coordinator.add_partitions(
                    transactional_id, producer, targets, CLIENT_VERSION_OF_BATCH, lambda error: done({} if error is None else error)
                )
            else:
                self._coordinator.verify_partitions(transactional_id, producer, targets, done)
            return
        if self._peers is None:
            done(errors.CoordinatorNotAvailable(f"broker {node_id} cannot be reached from here"))
            return
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=not adds,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(targets).items()],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        self._peers.send(node_id, request, BATCH_VERSION, lambda answer: done(_read(answer)), self._timeout_ms, LANE)


def _read(answer: Response | KafkaError) -> Mapping[TopicIndex, KafkaError | None] | KafkaError:
    if not isinstance(answer, AddPartitionsToTxnResponse):
        return errors.NetworkError("the transaction coordinator did not answer")
    if answer.error_code:
        return from_code(answer.error_code)
    return {
        (topic.name, partition.partition_index): from_code(partition.partition_error_code) if partition.partition_error_code else None
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for partition in topic.results_by_partition
    }


def _for_producer(error: KafkaError, support: Support) -> KafkaError:
    """The coordinator's error in words the producer knows."""
    if error.code == Code.PRODUCER_FENCED:
        return errors.InvalidProducerEpoch(error.message)
    if error.code == Code.TRANSACTION_ABORTABLE and support is Support.NO_ABORTABLE_ERROR:
        return errors.InvalidTxnState(error.message)
    return error


_TRY_AGAIN = (
    Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
)


def for_batch(error: KafkaError, support: Support) -> KafkaError:
    """A refusal as the answer to a Produce request: what passes makes old producers try again, without asking for new metadata."""
    if error.code in _TRY_AGAIN or (error.code == Code.CONCURRENT_TRANSACTIONS and support is not Support.ADDS_BY_WRITING):
        return errors.NotEnoughReplicas(f"the transaction cannot be verified now: {error.message}")
    return error


def for_offsets(error: KafkaError) -> KafkaError:
    """A refusal as the answer to a TxnOffsetCommit request: old producers do not try again after a lost connection between brokers."""
    return errors.CoordinatorLoadInProgress(error.message) if error.code == Code.NETWORK_EXCEPTION else error
