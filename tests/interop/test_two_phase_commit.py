"""Prepared transactions across processes that die, on Apache Kafka.

The preparing process is SIGKILLed once it has handed its transaction over; others end it, and readers of three clients see the outcome.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kafkacore import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    PreparedState,
    PreparedTransaction,
    TopicPartition,
    TwoPhaseClient,
    errors,
)
from kafkacore import protocol as p
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer
from tests.kit.records import read_committed
from tests.kit.rivals import confluent_producer, read_from_start, send_all, take_transactions_back
from tests.kit.topics import new_topic
from tests.kit.waiting import fresh, until
from tests.kit.wire import Wire

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(400), pytest.mark.slow, pytest.mark.kafka_alone("tests/producer")]

PREPARE = """
import sys
from kafkacore import KafkaProducer
servers, name, topic, group, timeout_ms, *values = sys.argv[1:]
producer = KafkaProducer(bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=int(timeout_ms))
producer.init_transactions()
producer.begin_transaction()
for value in values:
    producer.send(topic, value, partition=0)
if group:
    producer.send_offsets_to_transaction({(topic, 0): 7}, group)
print(producer.prepare_transaction().to_json(), flush=True)
sys.stdin.read()
"""


def started(program: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def prepared_by_a_dead_process(servers: str, topic: str, *values: str, group: str = "", timeout_ms: int = 60_000) -> PreparedTransaction:
    with started(PREPARE, servers, fresh("tx"), topic, group, str(timeout_ms), *values) as process:
        assert process.stdout is not None
        text = process.stdout.readline()
        process.kill()
    return PreparedTransaction.from_json(text)


def test_the_preparing_process_is_killed(bootstrap_servers: str, make_topic: MakeTopic, java: JavaTools) -> None:
    topic, group = make_topic(), fresh("g")
    where = TopicPartition(topic, 0)
    prepared = prepared_by_a_dead_process(bootstrap_servers, topic, "a", "b", group=group)
    dropped = prepared_by_a_dead_process(bootstrap_servers, topic, "dropped")
    assert sorted(each.topic for each in prepared.partitions) == ["__consumer_offsets", topic]
    with (
        TwoPhaseClient(bootstrap_servers=bootstrap_servers) as client,
        KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer,
    ):
        assert client.states([prepared, dropped]) == [PreparedState.OPEN] * 2
        assert client.commit(prepared)
        assert client.abort(dropped)
        assert consumer.committed(where) == OffsetAndMetadata(7)
        assert not client.commit(prepared)
        assert not client.abort(dropped)
        with pytest.raises(errors.PreparedTransactionCommitted):
            client.abort(prepared)
        with pytest.raises(errors.PreparedTransactionAborted):
            client.commit(dropped)
    send_all(confluent_producer(bootstrap_servers), topic, [b"behind"])
    expected = [b"a", b"b", b"behind"]
    assert read_committed(bootstrap_servers, topic, 3) == expected
    assert [each.value() for each in read_from_start(bootstrap_servers, topic, 3, isolation_level="read_committed")] == expected
    said = java.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", 3, "--timeout-ms", 60_000),
        *("--isolation-level", "read_committed"),
    )
    assert said.ok().split() == ["a", "b", "behind"]


# ---- versions, on servers of their own -----------------------------------------------------------------------------------------------


VERSION_1 = pytest.param(1, marks=[pytest.mark.kafka, pytest.mark.kafka_at_length])


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.kafka), VERSION_1])
def versioned(request: pytest.FixtureRequest) -> Iterator[tuple[KafkaServer, int]]:
    """A Kafka with this transaction.version."""
    version = request.param
    with KafkaServer(transaction_abort_timed_out_transaction_cleanup_interval_ms=200) as server:
        if version < 2:
            take_transactions_back(server.bootstrap_servers, version)
        yield server, version


def test_a_zombie_that_goes_on_writing(versioned: tuple[KafkaServer, int]) -> None:
    """Over the wire, as a preparer that breaks the rule: before the end its records belong to the transaction; then they are refused."""
    server, version = versioned
    servers = server.bootstrap_servers
    topic = new_topic(servers)
    prepared = prepared_by_a_dead_process(servers, topic, "kept")
    assert prepared.transaction_version == version
    with Wire(servers) as wire, TwoPhaseClient(bootstrap_servers=servers) as client:
        assert write(wire, topic, prepared, b"smuggled", 1) == Code.NONE
        assert client.commit(prepared)
        assert read_committed(servers, topic, 2) == [b"kept", b"smuggled"]
        ended(servers, prepared)
        refused = Code.INVALID_PRODUCER_EPOCH if version == 2 else Code.TRANSACTION_ABORTABLE
        assert write(wire, topic, prepared, b"late", 2) == refused


def ended(servers: str, prepared: PreparedTransaction) -> None:
    """Returns when the coordinator has noted that all markers are written: until then a write is refused as one to try again."""
    name = prepared.transactional_id
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        until(lambda: admin.describe_transactions([name])[name].state == "CompleteCommit", "the transaction is complete")


def write(wire: Wire, topic: str, prepared: PreparedTransaction, value: bytes, sequence: int) -> int:
    builder = BatchBuilder(
        producer_id=prepared.producer_id, producer_epoch=prepared.producer_epoch, base_sequence=sequence, is_transactional=True
    )
    assert builder.append(value, timestamp_ms=1_700_000_000_000)
    part = p.PartitionProduceData(index=0, records=bytes(builder.build()))
    topics = [p.TopicProduceData(name=topic, partition_data=[part])]
    request = p.ProduceRequest(transactional_id=prepared.transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)
    answer = wire.ask(request, 12 if prepared.transaction_version == 2 else 11)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_what_came_after_it(versioned: tuple[KafkaServer, int]) -> None:
    """An end that comes after the next transaction of the id, or after another producer, is refused and touches nothing."""
    server, version = versioned
    servers = server.bootstrap_servers
    topic, name = new_topic(servers), fresh("tx")
    with KafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer, TwoPhaseClient(bootstrap_servers=servers) as client:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, "first", partition=0)
        first = producer.prepare_transaction()
        assert client.commit(first)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, "second", partition=0)
        second = producer.prepare_transaction()
        assert second.producer_epoch == first.producer_epoch + 1
        for end in (client.commit, client.abort):
            with pytest.raises(errors.PreparedTransactionUnknown, match="used again"):
                end(first)
        request = p.EndTxnRequest(
            transactional_id=name, producer_id=first.producer_id, producer_epoch=first.producer_epoch, committed=False
        )
        with Wire(servers) as wire:
            assert wire.ask(request, 5 if version == 2 else 4).error_code == Code.PRODUCER_FENCED
        assert client.states([second]) == [PreparedState.OPEN]
        with KafkaProducer(bootstrap_servers=servers, transactional_id=name) as heir:
            heir.init_transactions()
            with pytest.raises(errors.PreparedTransactionUnknown, match="Empty"):
                client.commit(second)
            with heir.transaction():
                heir.send(topic, "heir", partition=0)
        with pytest.raises(errors.ProducerFenced):
            producer.commit_transaction()
    assert read_committed(servers, topic, 2) == [b"first", b"heir"]


def test_its_producer_ends_it_after_another_process(versioned: tuple[KafkaServer, int]) -> None:
    """The other way, EndTxn is INVALID_TXN_STATE and not PRODUCER_FENCED, though its epoch is one behind: an abort goes on from there."""
    server, version = versioned
    servers = server.bootstrap_servers
    topic = new_topic(servers)
    with (
        KafkaProducer(bootstrap_servers=servers, transactional_id=fresh("tx")) as producer,
        TwoPhaseClient(bootstrap_servers=servers) as client,
    ):
        producer.init_transactions()

        def prepared(value: str) -> PreparedTransaction:
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            return producer.prepare_transaction()

        assert client.commit(prepared("committed"))
        producer.commit_transaction()
        assert client.abort(prepared("aborted"))
        producer.abort_transaction()
        dropped = prepared("dropped")
        assert client.abort(dropped)
        request = p.EndTxnRequest(
            transactional_id=dropped.transactional_id,
            producer_id=dropped.producer_id,
            producer_epoch=dropped.producer_epoch,
            committed=True,
        )
        codes: list[int] = []
        with Wire(servers) as wire:

            def refused() -> bool:
                codes.append(wire.ask(request, 5 if version == 2 else 4).error_code)
                return codes[-1] != Code.CONCURRENT_TRANSACTIONS

            until(refused, "the markers of the abort are written")
        assert codes[-1] == Code.INVALID_TXN_STATE
        with pytest.raises(errors.KafkaError) as lost:
            producer.commit_transaction()
        assert lost.value.txn_requires_abort
        producer.abort_transaction()
        assert client.commit(prepared("kept"))
        with pytest.raises(errors.PreparedTransactionCommitted):
            producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, "last", partition=0)
    assert read_committed(servers, topic, 3) == [b"committed", b"kept", b"last"]


@pytest.mark.kafka_at_length
def test_kafka_is_killed_in_between(versioned: tuple[KafkaServer, int]) -> None:
    """The embedded cluster's brokers are killed in tests/producer/test_two_phase.py."""
    server, _ = versioned
    servers = server.bootstrap_servers
    topic = new_topic(servers)
    with TwoPhaseClient(bootstrap_servers=servers) as client:
        prepared = prepared_by_a_dead_process(servers, topic, "kept")
        assert client.states([prepared]) == [PreparedState.OPEN]
        server.kill()
        server.start()
        assert client.commit(prepared, timeout=60)
        # Not before the markers are written: a Kafka killed then takes the topic for deleted when it starts, and never writes them.
        assert read_committed(servers, topic, 1) == [b"kept"]
        server.kill()
        server.start()
        assert not client.commit(prepared, timeout=60), "its coordinator remembers"
    assert read_committed(servers, topic, 1) == [b"kept"]
