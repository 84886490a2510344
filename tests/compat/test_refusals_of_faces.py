"""A record that one of the faces refuses in a transaction: only the abort is left, as with the producer itself.

A full queue of confluent-kafka's, after which its programs call `produce` again, is no refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.compat import aiokafka, confluent, kafka
from kafkacore.compat.confluent.serializing_producer import SerializingProducer
from tests.kit.clusters import embedded
from tests.kit.records import all_values
from tests.kit.waiting import until_equal

LARGE = bytes(50_000)
GUARD_S = 60


cluster = embedded(config={"auto_create_topics_enable": False})


@pytest.fixture
def topic(cluster: Any, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    cluster.create_topic(name, partitions=2)
    return name


def failing_serializer(value: Any, *_: Any) -> Any:
    if value == b"broken":
        raise LookupError("no such schema")
    return value


def is_abortable(error: BaseException | None) -> bool:
    """Whether it says, or was made of one that says, that the transaction can only be aborted because of a refusal."""
    while error is not None and not isinstance(error, errors.TransactionAbortable):
        error = error.__cause__
    return error is not None and "refused a record of the transaction" in str(error)


def committed_values(cluster: Any, topic: str) -> list[bytes]:
    return [
        value for partition in (0, 1) for value in all_values(cluster.bootstrap_servers, topic, partition, isolation_level="read_committed")
    ]


KAFKA: dict[str, tuple[dict[str, Any], Callable[[Any, str], object]]] = {
    "too large": ({}, lambda p, t: p.send(t, LARGE)),
    "unknown partition": ({}, lambda p, t: p.send(t, b"v", partition=7)),
    "serializer": ({"value_serializer": failing_serializer}, lambda p, t: p.send(t, b"broken")),
    "no bytes": ({}, lambda p, t: p.send(t, "text")),
    "no metadata": ({"max_block_ms": 2_000}, lambda p, t: p.send("no-" + t, b"v")),
    "headers": ({}, lambda p, t: p.send(t, b"v", headers=[1])),
}


@pytest.mark.parametrize("case", KAFKA)
@pytest.mark.parametrize("first", [False, True], ids=["known topic", "new topic"])
def test_kafka_python(cluster: Any, topic: str, case: str, first: bool) -> None:
    settings, refused = KAFKA[case]
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, max_request_size=20_000, **settings)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        if not first:
            producer.send(topic, b"before")
        with pytest.raises((kafka.errors.KafkaError, ValueError, TypeError, LookupError)):
            refused(producer, topic)
        with pytest.raises(kafka.errors.KafkaError) as ended:
            producer.commit_transaction()
        assert is_abortable(ended.value)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"whole")
        producer.commit_transaction()
    finally:
        producer.close(GUARD_S)
    until_equal(lambda: committed_values(cluster, topic), [b"whole"])  # markers are written behind the answer


AIOKAFKA: dict[str, tuple[dict[str, Any], Callable[[Any, str], Any]]] = {
    "too large": ({}, lambda p, t: p.send(t, LARGE)),
    "unknown partition": ({}, lambda p, t: p.send(t, b"v", partition=7)),
    "serializer": ({"value_serializer": failing_serializer}, lambda p, t: p.send(t, b"broken")),
    "no bytes": ({}, lambda p, t: p.send(t, "text")),
    "no metadata": ({}, lambda p, t: p.send("no name", b"v")),
    "headers": ({}, lambda p, t: p.send(t, b"v", headers=[1])),
    "send_batch": ({}, lambda p, t: p.send_batch(filled_batch(p), t, partition=7)),
}


def filled_batch(producer: Any) -> Any:
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    return batch


@pytest.mark.parametrize("case", AIOKAFKA)
@pytest.mark.parametrize("first", [False, True], ids=["known topic", "new topic"])
def test_aiokafka(cluster: Any, topic: str, case: str, first: bool) -> None:
    settings, refused = AIOKAFKA[case]

    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, max_request_size=20_000, **settings
        ) as producer:
            await producer.begin_transaction()
            if not first:
                await producer.send(topic, b"before")
            with pytest.raises((aiokafka.errors.KafkaError, AssertionError, ValueError, TypeError, LookupError)):
                await refused(producer, topic)
            with pytest.raises(aiokafka.errors.KafkaError) as ended:
                await producer.commit_transaction()
            assert is_abortable(ended.value)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"whole")

    asyncio.run(main())
    until_equal(lambda: committed_values(cluster, topic), [b"whole"])  # markers are written behind the answer


CONFLUENT: dict[str, tuple[dict[str, Any], Callable[[Any, str], object]]] = {
    "too large": ({}, lambda p, t: p.produce(t, LARGE)),
    "unknown partition": ({}, lambda p, t: p.produce(t, b"v", partition=7)),
    "serializer": ({"value.serializer": failing_serializer}, lambda p, t: p.produce(t, value=b"broken")),
    "key serializer": ({"key.serializer": failing_serializer}, lambda p, t: p.produce(t, key=b"broken")),
    "no bytes": ({}, lambda p, t: p.produce(t, 7)),
    "headers": ({}, lambda p, t: p.produce(t, b"v", headers=[("a", 7)])),
}


@pytest.mark.parametrize("case", CONFLUENT)
@pytest.mark.parametrize("first", [False, True], ids=["known topic", "new topic"])
def test_confluent_kafka(cluster: Any, topic: str, case: str, first: bool) -> None:
    more, refused = CONFLUENT[case]
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "message.max.bytes": 20_000}
    producer: Any = SerializingProducer(settings | more) if more else confluent.Producer(settings)
    with producer:
        producer.init_transactions(GUARD_S)
        producer.begin_transaction()
        if not first:
            producer.produce(topic, value=b"before")
            producer.flush(GUARD_S)
        reported = first and case == "unknown partition"  # nothing is known of the topic yet, and produce() does not wait
        with nullcontext() if reported else pytest.raises((confluent.KafkaException, ValueError, TypeError, LookupError)):
            refused(producer, topic)
        with pytest.raises(confluent.KafkaException) as ended:
            producer.commit_transaction(GUARD_S)
        assert reported or is_abortable(ended.value)
        assert ended.value.args[0].txn_requires_abort()
        producer.abort_transaction(GUARD_S)
        producer.begin_transaction()
        producer.produce(topic, value=b"whole")
        producer.commit_transaction(GUARD_S)
    until_equal(lambda: committed_values(cluster, topic), [b"whole"])  # markers are written behind the answer


def test_a_full_queue_of_confluent_kafka_is_no_refusal(cluster: Any, topic: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "queue.buffering.max.messages": 2}
    with confluent.Producer(settings) as producer:
        producer.init_transactions(GUARD_S)
        producer.begin_transaction()
        full = 0
        for at in range(20):
            while True:
                try:
                    producer.produce(topic, b"%d" % at, partition=0)
                    break
                except BufferError:
                    full += 1
                    producer.poll(GUARD_S)
        producer.commit_transaction(GUARD_S)
    assert full
    until_equal(lambda: committed_values(cluster, topic), [b"%d" % at for at in range(20)])  # markers are written behind the answer
