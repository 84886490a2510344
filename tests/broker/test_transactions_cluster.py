"""Transactions over three brokers: a decision outlives its coordinator, and markers find leaders that move or are away.

Brokers that go while transactions are committed are in tests/producer/test_transactions_end_to_end.py.
"""

from typing import Any

import confluent_kafka as ck
import pytest

from kafkacore import protocol as p
from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.broker.internal_topics import TRANSACTION_TOPIC
from kafkacore.testing import EmbeddedCluster
from tests.kit.waiting import until
from tests.kit.wire import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
WAIT_S = 90
CONFIG = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
TXN = "txn"


@pytest.fixture(params=[1, 2])
def cluster(request):
    with EmbeddedCluster(brokers=3, config=CONFIG, features={"transaction.version": request.param}) as cluster:
        cluster.create_topic("t", partitions=6, replication_factor=3)
        yield cluster


def producer_of(cluster: EmbeddedCluster, **settings: Any) -> ck.Producer:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": TXN, "linger.ms": 1, "log_level": 2}
    config |= {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
    producer = ck.Producer(config | {key.replace("_", "."): value for key, value in settings.items()})
    producer.init_transactions(WAIT_S)
    return producer


def send_to_all(producer: ck.Producer, *values: bytes, topic: str = "t", partitions: int = 6) -> None:
    for value in values:
        for partition in range(partitions):
            producer.produce(topic, value + b"-%d" % partition, partition=partition)
    assert producer.flush(WAIT_S) == 0


def committed_values(cluster: EmbeddedCluster, topic: str = "t", partitions: int = 6) -> set[bytes]:
    """All committed values, up to the last stable offset of each partition, once the last transaction has its markers."""
    until(lambda: state_of(cluster) in ("CompleteCommit", "CompleteAbort"), "the transaction is completed")
    consumer = ck.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ended = set(), set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(ended)} partitions came to their end"
            if message.error() is None:
                assert message.value() not in found
                found.add(message.value())
            elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                assert message.error().retriable(), message.error()
        return found
    finally:
        consumer.close()


def values_of_all(*names: bytes) -> set[bytes]:
    return {name + b"-%d" % partition for name in names for partition in range(6)}


def coordinator(cluster: EmbeddedCluster) -> int:
    return cluster.leader(TRANSACTION_TOPIC, partition_for(TXN, 3)) or 0


def state_of(cluster: EmbeddedCluster) -> str:
    """What the coordinator says of the transaction."""
    with Wire(cluster._broker(coordinator(cluster)).address) as wire:
        return wire.ask(p.DescribeTransactionsRequest(transactional_ids=[TXN]), 0).transaction_states[0].transaction_state


def test_a_decision_survives_the_coordinator_that_took_it(cluster):
    producer = producer_of(cluster)
    producer.begin_transaction()
    send_to_all(producer, b"a")
    gone = coordinator(cluster)
    broker = cluster._broker(gone)
    broker.call(lambda: setattr(broker.state.transactions.sender, "send", lambda *_: None))  # it dies before it sends one marker
    producer.commit_transaction(WAIT_S)
    assert state_of(cluster) == "PrepareCommit"
    cluster.kill_broker(gone)
    until(lambda: state_of(cluster) == "CompleteCommit", "the transaction is completed")
    assert committed_values(cluster) == values_of_all(b"a")


def test_a_leader_moves_while_the_transaction_is_open(cluster):
    producer = producer_of(cluster)
    for commit in (False, True):
        producer.begin_transaction()
        send_to_all(producer, b"before-%d" % commit)
        for partition in range(6):
            others = [node for node in cluster.isr("t", partition) if node != cluster.leader("t", partition)]
            cluster.move_leader("t", partition, others[0])
        send_to_all(producer, b"after-%d" % commit)
        (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)
    assert committed_values(cluster) == values_of_all(b"before-1", b"after-1")
