"""Transactions of our producer on Apache Kafka, read by our consumer and by confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkacore import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from tests.kit import records
from tests.kit.records import read_committed
from tests.kit.rivals import confluent_producer, read_from_start, send_all
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh

MakeTopic = Callable[..., str]
FACED = (records,)
pytestmark = [pytest.mark.usefixtures("client_face"), pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.kafka_alone("tests/producer")]


def transactional(servers: str, transactional_id: str | None = None, **settings: Any) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id or fresh("tx"), **{"linger_ms": 0} | settings)
    producer.init_transactions()
    return producer


def theirs(servers: str, topic: str, count: int, isolation_level: str = "read_committed") -> list[bytes]:
    return [message.value() or b"" for message in read_from_start(servers, topic, count, isolation_level=isolation_level)]


def test_readers_of_committed_data_see_what_was_committed(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with transactional(bootstrap_servers) as producer:
        for nth in range(10):
            with producer.transaction():
                producer.send(topic, f"committed {nth}", partition=0)
            producer.begin_transaction()
            producer.send(topic, f"aborted {nth}", partition=0).result(WAIT_S)
            producer.abort_transaction()
            with pytest.raises(ZeroDivisionError), producer.transaction():
                producer.send_many(topic, [f"raised {nth}"] * 100, partitions=0).result(WAIT_S)
                raise ZeroDivisionError
    send_all(confluent_producer(bootstrap_servers), topic, [b"last"])
    expected = [f"committed {nth}".encode() for nth in range(10)] + [b"last"]
    assert read_committed(bootstrap_servers, topic, 11) == expected
    assert theirs(bootstrap_servers, topic, 11) == expected
    assert len(theirs(bootstrap_servers, topic, 1021, "read_uncommitted")) == 1021


def test_offsets_count_when_the_transaction_does(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    source, target, group = make_topic(2), make_topic(), fresh("g")
    send_all(confluent_producer(bootstrap_servers), source, [b"%d" % number for number in range(20)])
    done = 0
    with transactional(bootstrap_servers) as producer:
        for life in range(2):
            with KafkaConsumer(
                bootstrap_servers=bootstrap_servers,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                max_poll_records=5,
            ) as consumer:
                consumer.subscribe([source])
                while done < (10, 20)[life]:
                    polled = consumer.poll(timeout=WAIT_S)
                    assert polled
                    offsets = {where: OffsetAndMetadata(records[-1].offset + 1) for where, records in polled.items()}
                    with producer.transaction():
                        for records in polled.values():
                            for record in records:
                                producer.send(target, record.value, partition=0)
                        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
                    done += sum(map(len, polled.values()))
                stale = consumer.consumer_group_metadata()
        producer.begin_transaction()
        with pytest.raises((errors.UnknownMemberId, errors.IllegalGeneration)) as refused:
            producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, stale)
        assert refused.value.txn_requires_abort
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({TopicPartition(source, 0): 7}, group)
    assert sorted(read_committed(bootstrap_servers, target, 20), key=int) == [b"%d" % number for number in range(20)]
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        assert consumer.committed(TopicPartition(source, 0)) == OffsetAndMetadata(7)


def test_producers_of_two_clients_fence_each_other(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, name = make_topic(), fresh("tx")
    zombie = transactional(bootstrap_servers, name)
    zombie.begin_transaction()
    zombie.send(topic, "zombie", partition=0).result(WAIT_S)
    heir: Producer = confluent_producer(bootstrap_servers, transactional_id=name)
    heir.init_transactions(WAIT_S)
    heir.begin_transaction()
    heir.produce(topic, b"heir", partition=0)
    heir.commit_transaction(WAIT_S)
    with pytest.raises(errors.ProducerFenced) as fenced:
        zombie.commit_transaction()
    assert fenced.value.fatal
    zombie.close()
    with transactional(bootstrap_servers, name) as third:
        with third.transaction():
            third.send(topic, "third", partition=0)
    assert read_committed(bootstrap_servers, topic, 2) == [b"heir", b"third"]
    assert theirs(bootstrap_servers, topic, 2) == [b"heir", b"third"]
