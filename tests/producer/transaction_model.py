"""A broker that is a transaction coordinator too, in a few lines, and KafkaProducer's calls over it without sockets or threads."""

from __future__ import annotations

from typing import Any

from broker_model import LOST, REFUSED, BrokerClient
from producer_support import Bench, read_request

from kafkacore import errors, protocol
from kafkacore.clock import ManualClock
from kafkacore.producer import KafkaProducer
from kafkacore.producer.producer_metrics import TransactionStats


class TransactionalBroker(BrokerClient):
    """A broker that is also the coordinator: batches belong to the open transaction of their epoch, EndTxn decides about them."""

    def __init__(self, clock: ManualClock, version: int = 2) -> None:
        super().__init__(clock, 2)
        self.finalized_features = {"transaction.version": version}
        self.version = version
        self.epoch, self.last_epoch = -1, -1
        self.state = "empty"
        self.open: list[bytes] = []
        self.committed: list[list[bytes]] = []
        self.ends: list[int] = []  # faults of EndTxn
        self.looks: list[Any] = []  # answers to DescribeTransactions: states, codes, LOST; then CompleteCommit

    def serve(self, request: Any, message: Any) -> None:
        lost = errors.DisconnectError("the connection was closed before the answer", broker=1)
        if request.api is protocol.FindCoordinatorRequest:
            found = protocol.Coordinator(key=message.coordinator_keys[0], node_id=1, host="h", port=1, error_code=0)
            self.answer(protocol.FindCoordinatorResponse(coordinators=[found]))
        elif request.api is protocol.InitProducerIdRequest:
            assert self.state != "ongoing"
            known = message.producer_epoch
            if known < 0 or known == self.epoch:
                self.last_epoch, self.epoch = self.epoch, self.epoch + 1
            else:
                assert known == self.last_epoch
            self.state = "empty"
            self.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch))
        elif request.api is protocol.AddPartitionsToTxnRequest:
            assert self.version == 1
            assert message.v3_and_below_producer_epoch == self.epoch
            self.state = "ongoing"
            self.answer(
                protocol.AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[
                        protocol.AddPartitionsToTxnTopicResult(
                            name=each.name,
                            results_by_partition=[
                                protocol.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=0)
                                for index in each.partitions
                            ],
                        )
                        for each in message.v3_and_below_topics
                    ]
                )
            )
        elif request.api is protocol.DescribeTransactionsRequest:
            seen = self.looks.pop(0) if self.looks else "Ongoing" if self.state == "ongoing" else "CompleteCommit"
            if seen == LOST:
                self.answer(error=lost)
                return
            code, state = (0, seen) if isinstance(seen, str) else (seen, "")
            found = protocol.DescribeTransactionsTransactionState(
                transactional_id="x", error_code=code, transaction_state=state, producer_id=7, producer_epoch=self.epoch
            )
            self.answer(protocol.DescribeTransactionsResponse(transaction_states=[found]))
        elif request.api is protocol.EndTxnRequest:
            fault = self.ends.pop(0) if self.ends else 0
            if fault == REFUSED:
                self.answer(error=lost)
                return
            answer = self.end(message)
            if fault == LOST:
                self.answer(error=lost)
            else:
                self.answer(answer)
        else:
            assert message.transactional_id == "x"
            assert all(batch.is_transactional for batch in read_request(message).values())
            assert (request.version >= 12) is (self.version == 2)
            assert self.version == 2 or self.state == "ongoing"
            self.state = "ongoing"
            before = [len(log.values) for log in self.logs]
            super().serve(request, message)
            for log, had in zip(self.logs, before, strict=True):
                self.open += log.values[had:]

    def end(self, message: Any) -> Any:
        target = "committed" if message.committed else "aborted"
        if self.version == 2 and message.producer_epoch == self.last_epoch == self.epoch - 1 and self.state == target:
            return protocol.EndTxnResponse(producer_id=7, producer_epoch=self.epoch)
        assert message.producer_epoch == self.epoch, (message, self.epoch, self.state)
        assert self.state in ("ongoing", target) or (self.version == 2 and target == "aborted")
        if message.committed and self.state == "ongoing":
            self.committed.append(sorted(self.open))
        self.open = []
        self.state = target
        if self.version == 2:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        return protocol.EndTxnResponse(producer_id=7, producer_epoch=self.epoch)


class TransactionalBench(Bench):
    """KafkaProducer's calls for transactions over a Bench."""

    _step = KafkaProducer._step
    _submit = KafkaProducer._submit
    _step_s = KafkaProducer._step_s
    _transactional = KafkaProducer._transactional
    init_transactions = KafkaProducer.init_transactions
    begin_transaction = KafkaProducer.begin_transaction
    prepare_transaction = KafkaProducer.prepare_transaction
    commit_transaction = KafkaProducer.commit_transaction
    abort_transaction = KafkaProducer.abort_transaction
    transaction = KafkaProducer.transaction

    def __init__(self, version: int, **options: Any) -> None:
        super().__init__(client=lambda clock: TransactionalBroker(clock, version), transactional_id="x", **options)
        self._sender = self.sender
        self._transaction_stats = TransactionStats()

    def _check_open(self) -> None: ...

    def _send_general(self, *args: Any) -> Any:
        assert self.engine is not None
        self.engine.check_sending()
        raise AssertionError("the producer takes records, and send() did not")

    @property
    def broker(self) -> TransactionalBroker:
        return self.client  # type: ignore[return-value]
