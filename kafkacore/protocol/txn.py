"""Producer ids and transactions.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BOOL, INT8, INT16, INT32, INT64, STRING, F, Request, Response, Struct


class InitProducerIdRequest(Request, api_key=22, versions="0-6", flexible="2+"):
    """Gets a producer id; with a transactional id it also fences older producers and aborts what they left open. Version 6 (two-
    phase commit, KIP-939) is not stable yet: Kafka 4.3 has it behind unstable.api.versions.enable, and refuses keep_prepared_txn."""

    transactional_id: str | None = F(STRING, nullable="0+")
    transaction_timeout_ms: int = F(INT32)
    producer_id: int = F(INT64, "3+", default=-1)
    producer_epoch: int = F(INT16, "3+", default=-1)
    enable2_pc: bool = F(BOOL, "6+")
    keep_prepared_txn: bool = F(BOOL, "6+")


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = F(INT32, ignorable=True)
    error_code: int = F(INT16)
    producer_id: int = F(INT64, default=-1)
    producer_epoch: int = F(INT16)
    ongoing_txn_producer_id: int = F(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = F(INT16, "6+", default=-1)


class AddPartitionsToTxnTopic(Struct):
    name: str = F(STRING)
    partitions: list[int] = F([INT32])


class AddPartitionsToTxnTransaction(Struct):
    """One transaction of the batch form, which brokers use among themselves; verify_only checks without adding."""

    transactional_id: str = F(STRING, "4+")
    producer_id: int = F(INT64, "4+")
    producer_epoch: int = F(INT16, "4+")
    verify_only: bool = F(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = F([AddPartitionsToTxnTopic], "4+")


class AddPartitionsToTxnRequest(Request, api_key=24, versions="0-5", flexible="3+"):
    """Clients stop at version 3; from version 4 on it is the brokers' batch form (KIP-890)."""

    transactions: list[AddPartitionsToTxnTransaction] = F([AddPartitionsToTxnTransaction], "4+")
    v3_and_below_transactional_id: str = F(STRING, "0-3")
    v3_and_below_producer_id: int = F(INT64, "0-3")
    v3_and_below_producer_epoch: int = F(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = F([AddPartitionsToTxnTopic], "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = F(INT32)
    partition_error_code: int = F(INT16)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = F(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = F([AddPartitionsToTxnPartitionResult])


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = F(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = F([AddPartitionsToTxnTopicResult], "4+")


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = F([AddPartitionsToTxnResult], "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = F([AddPartitionsToTxnTopicResult], "0-3")


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+"):
    """Takes the group's partition of the offsets topic into the transaction."""

    transactional_id: str = F(STRING)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    group_id: str = F(STRING)


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)


class EndTxnRequest(Request, api_key=26, versions="0-5", flexible="3+"):
    """Commits or aborts."""

    transactional_id: str = F(STRING)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    committed: bool = F(BOOL)


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    """From version 5 on the producer goes on with the epoch given here (KIP-890)."""

    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    producer_id: int = F(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = F(INT16, "5+", default=-1, ignorable=True)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = F(INT32)
    committed_offset: int = F(INT64)
    committed_leader_epoch: int = F(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = F(STRING, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = F(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = F([TxnOffsetCommitRequestPartition])


class TxnOffsetCommitRequest(Request, api_key=28, versions="0-5", flexible="3+"):
    """Stores positions that become visible when the transaction commits."""

    transactional_id: str = F(STRING)
    group_id: str = F(STRING)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    generation_id: int = F(INT32, "3+", default=-1)
    member_id: str = F(STRING, "3+")
    group_instance_id: str | None = F(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = F([TxnOffsetCommitRequestTopic])


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = F(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = F([TxnOffsetCommitResponsePartition])


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = F(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = F([TxnOffsetCommitResponseTopic])


# Between brokers.


class WritableTxnMarkerTopic(Struct):
    name: str = F(STRING)
    partition_indexes: list[int] = F([INT32])


class WritableTxnMarker(Struct):
    """transaction_result: True commits, False aborts."""

    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    transaction_result: bool = F(BOOL)
    topics: list[WritableTxnMarkerTopic] = F([WritableTxnMarkerTopic])
    coordinator_epoch: int = F(INT32)
    transaction_version: int = F(INT8, "2+", ignorable=True)


class WriteTxnMarkersRequest(Request, api_key=27, versions="0-2", flexible="1+", dropped="0"):
    """From the transaction coordinator to the leaders of the partitions, or from an administrator to end a hanging transaction."""

    markers: list[WritableTxnMarker] = F([WritableTxnMarker])


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class WritableTxnMarkerTopicResult(Struct):
    name: str = F(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = F([WritableTxnMarkerPartitionResult])


class WritableTxnMarkerResult(Struct):
    producer_id: int = F(INT64)
    topics: list[WritableTxnMarkerTopicResult] = F([WritableTxnMarkerTopicResult])


class WriteTxnMarkersResponse(Response, api_key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = F([WritableTxnMarkerResult])


# Looking at producers and transactions.


class DescribeProducersTopicRequest(Struct):
    name: str = F(STRING)
    partition_indexes: list[int] = F([INT32])


class DescribeProducersRequest(Request, api_key=61, versions="0", flexible="0+"):
    topics: list[DescribeProducersTopicRequest] = F([DescribeProducersTopicRequest])


class ProducerState(Struct):
    """A producer that the partition remembers. current_txn_start_offset is -1 outside a transaction."""

    producer_id: int = F(INT64)
    producer_epoch: int = F(INT32)
    last_sequence: int = F(INT32, default=-1)
    last_timestamp: int = F(INT64, default=-1)
    coordinator_epoch: int = F(INT32)
    current_txn_start_offset: int = F(INT64, default=-1)


class DescribeProducersPartitionResponse(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", default=None)
    active_producers: list[ProducerState] = F([ProducerState])


class DescribeProducersTopicResponse(Struct):
    name: str = F(STRING)
    partitions: list[DescribeProducersPartitionResponse] = F([DescribeProducersPartitionResponse])


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    topics: list[DescribeProducersTopicResponse] = F([DescribeProducersTopicResponse])


class DescribeTransactionsRequest(Request, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = F([STRING])


class DescribeTransactionsTopicData(Struct):
    topic: str = F(STRING)
    partitions: list[int] = F([INT32])


class DescribeTransactionsTransactionState(Struct):
    error_code: int = F(INT16)
    transactional_id: str = F(STRING)
    transaction_state: str = F(STRING)
    transaction_timeout_ms: int = F(INT32)
    transaction_start_time_ms: int = F(INT64)
    producer_id: int = F(INT64)
    producer_epoch: int = F(INT16)
    topics: list[DescribeTransactionsTopicData] = F([DescribeTransactionsTopicData])


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    transaction_states: list[DescribeTransactionsTransactionState] = F([DescribeTransactionsTransactionState])


class ListTransactionsRequest(Request, api_key=66, versions="0-2", flexible="0+"):
    """Empty lists mean all. duration_filter: milliseconds that a transaction must have run, -1 for any."""

    state_filters: list[str] = F([STRING])
    producer_id_filters: list[int] = F([INT64])
    duration_filter: int = F(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = F(STRING, "2+", nullable="2+", default=None)


class ListTransactionsTransactionState(Struct):
    transactional_id: str = F(STRING)
    producer_id: int = F(INT64)
    transaction_state: str = F(STRING)


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    unknown_state_filters: list[str] = F([STRING])
    transaction_states: list[ListTransactionsTransactionState] = F([ListTransactionsTransactionState])
