"""A record that one of the faces refuses in a transaction: only the abort is left, as with the producer itself.

A full queue of confluent-kafka's, after which its programs call `produce` again, is no refusal.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.compat import aiokafka, confluent, kafka
from kafkacore.compat.confluent.serializing_producer import SerializingProducer
from tests.kit.clusters import embedded
from tests.kit.records import all_values
from tests.kit.waiting import fresh, until_equal

LARGE = bytes(50_000)
GUARD_S = 60


cluster = embedded(config={"auto_create_topics_enable": False})


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


def transactional_producer(face: str, servers: str, transaction: str, settings: dict[str, Any]) -> Any:
    if face == "confluent":
        given = {"bootstrap.servers": servers, "transactional.id": transaction, "message.max.bytes": 20_000}
        return SerializingProducer(given | settings) if settings else confluent.Producer(given)
    kind = kafka.KafkaProducer if face == "kafka" else aiokafka.AIOKafkaProducer
    return kind(bootstrap_servers=servers, transactional_id=transaction, max_request_size=20_000, **settings)


def filled_batch(producer: Any) -> Any:
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    return batch


SEND: dict[str, tuple[dict[str, Any], Callable[[Any, str], Any]]] = {
    "too large": ({}, lambda p, t: p.send(t, LARGE)),
    "unknown partition": ({}, lambda p, t: p.send(t, b"v", partition=7)),
    "serializer": ({"value_serializer": failing_serializer}, lambda p, t: p.send(t, b"broken")),
    "no bytes": ({}, lambda p, t: p.send(t, "text")),
    "headers": ({}, lambda p, t: p.send(t, b"v", headers=[1])),
}
REFUSED: dict[str, dict[str, tuple[dict[str, Any], Callable[[Any, str], Any]]]] = {
    "kafka": SEND | {"no metadata": ({"max_block_ms": 2_000}, lambda p, t: p.send("no-" + t, b"v"))},
    "aiokafka": SEND
    | {
        "no metadata": ({}, lambda p, t: p.send("no name", b"v")),
        "send_batch": ({}, lambda p, t: p.send_batch(filled_batch(p), t, partition=7)),
    },
    "confluent": {
        "too large": ({}, lambda p, t: p.produce(t, LARGE)),
        "unknown partition": ({}, lambda p, t: p.produce(t, b"v", partition=7)),
        "serializer": ({"value.serializer": failing_serializer}, lambda p, t: p.produce(t, value=b"broken")),
        "key serializer": ({"key.serializer": failing_serializer}, lambda p, t: p.produce(t, key=b"broken")),
        "no bytes": ({}, lambda p, t: p.produce(t, 7)),
        "headers": ({}, lambda p, t: p.produce(t, b"v", headers=[("a", 7)])),
    },
}
ENDED = {"kafka": kafka.errors.KafkaError, "aiokafka": aiokafka.errors.KafkaError, "confluent": confluent.KafkaException}


@pytest.mark.parametrize("first", [False, True], ids=["known topic", "new topic"])
@pytest.mark.parametrize("face", REFUSED)
def test_only_the_abort_is_left(cluster: Any, subtests: pytest.Subtests, face: str, first: bool) -> None:
    async def refused_and_aborted(case: str, topic: str) -> None:
        async def done(outcome: Any) -> Any:
            return await outcome if inspect.isawaitable(outcome) else outcome

        settings, refused = REFUSED[face][case]
        producer = transactional_producer(face, cluster.bootstrap_servers, topic, settings)
        send = producer.produce if face == "confluent" else producer.send
        try:
            await done(producer.start() if face == "aiokafka" else producer.init_transactions())
            await done(producer.begin_transaction())
            if not first:
                await done(send(topic, value=b"before"))
                if face == "confluent":
                    producer.flush(GUARD_S)
            reported = face == "confluent" and first and case == "unknown partition"  # produce() does not wait for the topic
            refusals = (ENDED[face], AssertionError, ValueError, TypeError, LookupError)
            with nullcontext() if reported else pytest.raises(refusals):
                await done(refused(producer, topic))
            with pytest.raises(ENDED[face]) as ended:
                await done(producer.commit_transaction())
            assert reported or is_abortable(ended.value)
            assert face != "confluent" or ended.value.args[0].txn_requires_abort()
            await done(producer.abort_transaction())
            await done(producer.begin_transaction())
            await done(send(topic, value=b"whole"))
            await done(producer.commit_transaction())
        finally:
            await done(producer.stop() if face == "aiokafka" else producer.close())

    for case in REFUSED[face]:
        with subtests.test(case):
            topic = fresh()
            cluster.create_topic(topic, partitions=2)
            asyncio.run(asyncio.wait_for(refused_and_aborted(case, topic), GUARD_S))
            until_equal(lambda topic=topic: committed_values(cluster, topic), [b"whole"])  # markers are written behind the answer


def test_a_full_queue_of_confluent_kafka_is_no_refusal(cluster: Any) -> None:
    cluster.create_topic("full", partitions=2)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "full", "queue.buffering.max.messages": 2}
    with confluent.Producer(settings) as producer:
        producer.init_transactions(GUARD_S)
        producer.begin_transaction()
        full = 0
        for at in range(20):
            while True:
                try:
                    producer.produce("full", b"%d" % at, partition=0)
                    break
                except BufferError:
                    full += 1
                    producer.poll(GUARD_S)
        producer.commit_transaction(GUARD_S)
    assert full
    until_equal(lambda: committed_values(cluster, "full"), [b"%d" % at for at in range(20)])
