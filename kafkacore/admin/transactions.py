"""Producers and their transactions.

Source: Kafka's KafkaAdminClient.{describeProducers, listTransactions, describeTransactions, abortTransaction} (KIP-664).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import TRANSACTION_KEY, AdminBase, ItemResults, Listed, complete, names_of
from kafkacore.errors import Code
from kafkacore.net.leaders import by_topic
from kafkacore.protocol import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkacore.types import TopicPartition

_BUSY = frozenset({Code.CONCURRENT_TRANSACTIONS})
"""Asked again after the back-off, as a coordinator that loads."""


class ProducerDescription(NamedTuple):
    """A producer that a partition remembers.

    Attributes:
        producer_id, producer_epoch: of the producer.
        last_sequence: of its last record; -1 for none.
        last_timestamp_ms: of its last batch; -1 for none.
        coordinator_epoch: of the coordinator that ended its last transaction; -1 for none.
        transaction_start_offset: the first record of its open transaction; -1 without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


class FencedProducer(NamedTuple):
    """What a producer with a fenced transactional id goes on from."""

    producer_id: int
    producer_epoch: int


class TransactionListing(NamedTuple):
    """A transactional id, as listed. state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, ..."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """The state of a transactional id. start_time_ms is -1 without an open transaction; `partitions` are those it wrote to."""

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: list[TopicPartition]


class TransactionsAdmin(AdminBase):
    """The calls about transactions."""

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, broker: int | None = None, timeout: float | None = None
    ) -> ItemResults[TopicPartition, list[ProducerDescription]]:
        """The producers that wrote to partitions lately, as their leaders know them.

        Args:
            partitions: (topic, partition) pairs.
            broker: who is asked in the place of the leaders: a broker with replicas of the partitions.
            timeout: seconds.

        Returns:
            By partition. Typical errors: UnknownTopicOrPartition, InvalidTopic; NotLeaderOrFollower where `broker` has no replica.
        """

        def request(tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
            topics = [
                DescribeProducersTopicRequest(name=name, partition_indexes=[index for index, _ in group])
                for name, group in by_topic((tp, None) for tp in tps).items()
            ]
            return DescribeProducersRequest, lambda version: DescribeProducersRequest(topics=topics)

        def read(response: Any) -> Iterable[tuple[TopicPartition, int, list[ProducerDescription]]]:
            for topic in response.topics:
                for found in topic.partitions:
                    producers = [
                        ProducerDescription(
                            each.producer_id,
                            each.producer_epoch,
                            each.last_sequence,
                            each.last_timestamp,
                            each.coordinator_epoch,
                            each.current_txn_start_offset,
                        )
                        for each in found.active_producers
                    ]
                    yield TopicPartition(topic.name, found.partition_index), found.error_code, producers

        wanted = [TopicPartition(*tp) for tp in partitions]
        if broker is None or not wanted:
            return self._ask_leaders(wanted, request, read, timeout)
        asked = self._ask_brokers({broker: request(wanted)}, self._timeout_ms(timeout))[broker]
        if asked.error is not None:
            return ItemResults({}, dict.fromkeys(wanted, asked.error))
        found: dict[TopicPartition, list[ProducerDescription]] = {}
        failed: dict[TopicPartition, errors.KafkaError] = {}
        for tp, code, value in read(asked.response):
            if code:
                failed[tp] = errors.from_code(code, topic=tp.topic, partition=tp.partition, broker=broker, api="DescribeProducers")
            else:
                found[tp] = value
        return complete(ItemResults(found, failed), wanted, "DescribeProducers", broker)

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        partial: bool = False,
        timeout: float | None = None,
    ) -> Listed[TransactionListing]:
        """The transactional ids that the coordinators know.

        Args:
            states: only in these states, as "Ongoing"; none for all.
            producer_ids: only of these producers; none for all.
            longer_than_ms: only transactions open for longer (Kafka 3.8); -1 for any.
            pattern: a regular expression (RE2) for the ids (Kafka 4.1); None for any.
            partial: a broker that fails leaves what the others list as it is, and its error is in `errors` of the list.
            timeout: seconds.

        Raises:
            errors.UnsupportedVersion: a broker is too old for a filter.
            errors.KafkaError: a broker did not answer, so the list would have holes, and it may not be partial.
        """
        deadline_ms = self._deadline_ms(timeout)
        wanted_states, wanted_ids = list(states), list(producer_ids)

        def build(version: int) -> ListTransactionsRequest:
            if (longer_than_ms >= 0 and version < 1) or (pattern is not None and version < 2):
                raise errors.UnsupportedVersion("the broker cannot filter so", api="ListTransactions")
            return ListTransactionsRequest(
                state_filters=wanted_states,
                producer_id_filters=wanted_ids,
                duration_filter=longer_than_ms if version >= 1 else -1,
                transactional_id_pattern=pattern,
            )

        def items(response: Any) -> Iterable[TransactionListing]:
            listed = response.transaction_states
            return (TransactionListing(each.transactional_id, each.producer_id, each.transaction_state) for each in listed)

        return self._list_everywhere(ListTransactionsRequest, build, items, deadline_ms, partial)

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> ItemResults[str, TransactionDescription]:
        """The state of transactional ids.

        Args:
            transactional_ids: the ids.
            timeout: seconds.

        Returns:
            By id. Typical error: TransactionalIdNotFound.
        """

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            return DescribeTransactionsRequest, lambda version: DescribeTransactionsRequest(transactional_ids=ids)

        def read(response: Any) -> Iterable[tuple[str, TransactionDescription | errors.KafkaError]]:
            for each in response.transaction_states:
                if each.error_code:
                    yield each.transactional_id, errors.from_code(
                        each.error_code, f"transactional id {each.transactional_id}", api="DescribeTransactions"
                    )
                    continue
                partitions = [TopicPartition(topic.topic, index) for topic in each.topics for index in topic.partitions]
                yield (
                    each.transactional_id,
                    TransactionDescription(
                        each.transaction_state,
                        each.producer_id,
                        each.producer_epoch,
                        each.transaction_timeout_ms,
                        each.transaction_start_time_ms,
                        partitions,
                    ),
                )

        return self._ask_coordinators(names_of(transactional_ids), TRANSACTION_KEY, request, read, timeout)

    def fence_producers(self, transactional_ids: Iterable[str], *, timeout: float | None = None) -> ItemResults[str, FencedProducer]:
        """Fences the producers that have these transactional ids; an open transaction is aborted.

        Args:
            transactional_ids: the ids; one that no producer has had is made.
            timeout: seconds.

        Returns:
            By id, the producer id and epoch from which a new producer goes on. Typical error: TransactionalIdAuthorization.
        """
        wanted = names_of(transactional_ids)
        deadline_ms = self._deadline_ms(timeout)
        made: dict[str, FencedProducer] = {}
        failed: dict[str, errors.KafkaError] = {}

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            # The timeout counts for a new transactional id only, which no transaction follows on: the shortest that brokers take.
            return InitProducerIdRequest, lambda version: InitProducerIdRequest(transactional_id=ids[0], transaction_timeout_ms=1)

        for each in wanted:  # a request has a single id

            def read(response: Any, each: str = each) -> Iterable[tuple[str, FencedProducer | errors.KafkaError]]:
                if response.error_code in _BUSY:
                    yield each, errors.from_code(Code.COORDINATOR_LOAD_IN_PROGRESS, "its transaction is just being ended")
                elif response.error_code:
                    yield each, errors.from_code(response.error_code, f"transactional id {each}", api="InitProducerId")
                else:
                    yield each, FencedProducer(response.producer_id, response.producer_epoch)

            results = self._ask_coordinators([each], TRANSACTION_KEY, request, read, self._left_ms(deadline_ms) / 1000)
            made |= results.succeeded
            failed |= results.errors
        return ItemResults(made, failed)

    def force_terminate_transaction(self, transactional_id: str, *, timeout: float | None = None) -> None:
        """Aborts the transaction of an id whose producer does not end it, also a prepared one (KIP-939), and fences the producer.

        Args:
            transactional_id: the id.
            timeout: seconds.

        Raises:
            errors.KafkaError: the coordinator refused or did not answer.
        """
        self.fence_producers([transactional_id], timeout=timeout).check()

    def abort_transaction(
        self, partition: tuple[str, int], producer_id: int, producer_epoch: int, coordinator_epoch: int, *, timeout: float | None = None
    ) -> None:
        """Ends a transaction that hangs in one partition, without its coordinator. For repairs: see `describe_producers`.

        Args:
            partition: where it hangs.
            producer_id, producer_epoch, coordinator_epoch: as `describe_producers` tells them.
            timeout: seconds.

        Raises:
            errors.KafkaError: the leader refused.
        """
        self._write_marker(False, TopicPartition(*partition), producer_id, producer_epoch, coordinator_epoch, timeout)

    def commit_transaction(
        self, partition: tuple[str, int], producer_id: int, producer_epoch: int, coordinator_epoch: int, *, timeout: float | None = None
    ) -> None:
        """Writes the marker of a commit into one partition, without the coordinator. For repairs: where the coordinator has committed the
        transaction and the marker is missing. Nothing is checked here: of a transaction that was not committed it commits a part.

        Args:
            partition: where the marker is missing.
            producer_id: of the transaction.
            producer_epoch: as `describe_transactions` says it now, which with `transaction.version` 2 is the one after that of the records.
            coordinator_epoch: as `describe_producers` says it.
            timeout: seconds.

        Raises:
            errors.KafkaError: the leader refused; `InvalidProducerEpoch`, as the producer has gone on.
        """
        self._write_marker(True, TopicPartition(*partition), producer_id, producer_epoch, coordinator_epoch, timeout)

    def _write_marker(
        self, commits: bool, tp: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int, timeout: float | None
    ) -> None:
        def request(tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=commits,
                topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                coordinator_epoch=max(coordinator_epoch, 0),  # -1 where no coordinator has ever written to the partition
            )
            return WriteTxnMarkersRequest, lambda version: WriteTxnMarkersRequest(markers=[marker])

        def read(response: Any) -> Iterable[tuple[TopicPartition, int, None]]:
            for marker in response.markers:
                for topic in marker.topics:
                    for found in topic.partitions:
                        yield TopicPartition(topic.name, found.partition_index), found.error_code, None

        self._ask_leaders([tp], request, read, timeout).check()
