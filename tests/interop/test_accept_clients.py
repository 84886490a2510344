"""Acceptance: what unmodified clients expect, of the embedded broker and of Apache Kafka alike.

Each of them alone, program by program, is in tests/compat; here are those that meet, and administration.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.errors import ProducerFenced
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from tests.kit.rivals import (
    confluent_admin,
    confluent_consumer,
    confluent_producer,
    error_of,
    kafka_python_consumer,
    read_from_start,
    send_all,
    subscribe,
    take,
)
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(300), pytest.mark.kafka_at_length]
PARTITIONS = 4
UNCOMMITTED = {"isolation_level": "read_uncommitted"}
COMMITTED = {"isolation_level": "read_committed"}


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return confluent_admin(bootstrap_servers)


def test_offsets_by_time_and_watermarks(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = confluent_producer(bootstrap_servers)
    for n in range(5):
        send_all(producer, topic, [b"%d" % n], timestamp=1_600_000_000_000 + n * 1000)
    wanted = {
        0: 0,
        1_600_000_000_000: 0,
        1_600_000_000_001: 1,
        1_600_000_002_500: 3,
        1_600_000_004_000: 4,
        1_600_000_004_001: -1,
    }
    consumer = confluent_consumer(bootstrap_servers)
    by_aiokafka = asyncio.run(_aiokafka_offsets(bootstrap_servers, topic, list(wanted)))
    by_kafka_python = kafka_python_consumer(bootstrap_servers)
    for when_ms, offset in wanted.items():
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, when_ms)], timeout=WAIT_S)
        assert found.offset == offset, when_ms
        where = kafka.TopicPartition(topic, 0)
        answer = by_kafka_python.offsets_for_times({where: when_ms})[where]
        assert (-1 if answer is None else answer.offset) == offset, when_ms
        assert by_aiokafka[when_ms] == offset, when_ms
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, 5)
    consumer.close()
    by_kafka_python.close()
    admin = confluent_admin(bootstrap_servers)
    place = TopicPartition(topic, 0)
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5), (OffsetSpec.max_timestamp(), 4)):
        assert admin.list_offsets({place: spec})[place].result(WAIT_S).offset == offset


async def _aiokafka_offsets(servers: str, topic: str, times_ms: list[int]) -> dict[int, int]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
    await consumer.start()
    try:
        where = aiokafka.TopicPartition(topic, 0)
        found = {when_ms: (await consumer.offsets_for_times({where: when_ms}))[where] for when_ms in times_ms}
        assert await consumer.beginning_offsets([where]) == {where: 0}
        return {when_ms: -1 if answer is None else answer.offset for when_ms, answer in found.items()}
    finally:
        await consumer.stop()


def test_a_big_message_and_the_limits(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """A message of 3 MB needs a topic that allows it; it is fetched whole even by a consumer that asks for less (KIP-74)."""
    topic, narrow = make_topic(max_message_bytes=4_000_000), make_topic(max_message_bytes=1000)
    producer = confluent_producer(bootstrap_servers, message_max_bytes=10_000_000)
    big = bytes(range(256)) * 12_000
    send_all(producer, topic, [big, b"small"])
    messages = read_from_start(bootstrap_servers, topic, 2, max_partition_fetch_bytes=1000, fetch_max_bytes=1000, message_max_bytes=1000)
    assert [message.value() for message in messages] == [big, b"small"]
    assert error_of(lambda: send_all(producer, narrow, [b"x" * 2000])) == "MSG_SIZE_TOO_LARGE"
    assert error_of(lambda: send_all(producer, topic, [b"x" * 4_000_001])) == "MSG_SIZE_TOO_LARGE"
    assert send_all(producer, narrow, [b"x" * 500]) == [0]


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT_S)
    return found


def change(admin: AdminClient, kind: ResourceType, name: str, *entries: tuple[str, str | None, AlterConfigOpType]) -> None:
    changes = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in entries]
    resource = ConfigResource(kind, name, incremental_configs=changes)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def test_a_topics_configs_are_changed(admin: AdminClient, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    kind, op = ResourceType.TOPIC, AlterConfigOpType

    def value(key: str) -> str:
        return str(configs(admin, kind, topic)[key].value)

    change(admin, kind, topic, ("max.message.bytes", "300", op.SET), ("retention.ms", "70000", op.SET))
    until(lambda: (value("max.message.bytes"), value("retention.ms")) == ("300", "70000"), "the change is shown")
    producer = confluent_producer(bootstrap_servers)
    taken: list[int] = []

    def said() -> str:
        try:
            taken.extend(send_all(producer, topic, [b"x" * 500]))
        except KafkaException as exception:
            return str(exception.args[0].name())
        return "taken"

    # Kafka shows what was altered, and applies it to the log some moments later.
    assert until(lambda: (word := said()) != "taken" and word, "the log has the new limit") == "MSG_SIZE_TOO_LARGE"
    change(admin, kind, topic, ("max.message.bytes", None, op.DELETE))
    until(lambda: value("max.message.bytes") == "1048588", "the default is back")
    assert until(lambda: (word := said()) != "MSG_SIZE_TOO_LARGE" and word, "the log has the old limit again") == "taken"
    assert taken == list(range(len(taken)))
    change(admin, kind, topic, ("cleanup.policy", "compact", op.APPEND))
    until(lambda: set(value("cleanup.policy").split(",")) == {"delete", "compact"}, "the list has grown")
    change(admin, kind, topic, ("cleanup.policy", "delete", op.SUBTRACT))
    until(lambda: value("cleanup.policy") == "compact", "the list has shrunk")
    for key, wrong in (("retention.ms", "soon"), ("no.such.config", "1"), ("min.cleanable.dirty.ratio", "7")):
        assert error_of(lambda key=key, wrong=wrong: change(admin, kind, topic, (key, wrong, op.SET))) == "INVALID_CONFIG"
    assert error_of(lambda: change(admin, kind, topic, ("retention.ms", "1", op.APPEND))) == "INVALID_CONFIG"
    assert error_of(lambda: change(admin, kind, fresh("unknown"), ("retention.ms", "1", op.SET))) == "UNKNOWN_TOPIC_OR_PART"
    assert value("retention.ms") == "70000"


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    send_all(confluent_producer(bootstrap_servers), topic, [b"%d" % n for n in range(10)])
    (future,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert future.result(WAIT_S).low_watermark == 4
    assert admin.list_offsets({place: OffsetSpec.earliest()})[place].result(WAIT_S).offset == 4
    assert [message.offset() for message in read_from_start(bootstrap_servers, topic, 6)] == [4, 5, 6, 7, 8, 9]
    (beyond,) = admin.delete_records([TopicPartition(topic, 0, 11)]).values()
    assert error_of(lambda: beyond.result(WAIT_S)) == "OFFSET_OUT_OF_RANGE"
    (unknown,) = admin.delete_records([TopicPartition(fresh("unknown"), 0, 1)]).values()
    assert error_of(lambda: unknown.result(WAIT_S)) == "_NOENT"
    (everything,) = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    assert everything.result(WAIT_S).low_watermark == 10
    assert send_all(confluent_producer(bootstrap_servers), topic, [b"next"]) == [10]


def test_three_clients_in_one_group(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """The three agree on an assignor, and their subscription metadata understands each other."""
    topic, group = make_topic(PARTITIONS), fresh("g")
    written = {b"%d-%d" % (partition, n) for partition in range(PARTITIONS) for n in range(10)}
    producer = confluent_producer(bootstrap_servers)
    for value in written:
        send_all(producer, topic, [value], partition=int(value[:1]))
    got: list[bytes] = []

    async def run() -> None:
        third = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[AiokafkaRange],
        )
        await third.start()  # first and alone: it ends when the group is whole, and nobody polls the others meanwhile
        settings = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 200, "partition_assignment_strategy": "range"}
        rdkafka = confluent_consumer(bootstrap_servers, group_id=group, **settings)
        rdkafka.subscribe([topic])
        python = kafka_python_consumer(
            bootstrap_servers,
            group_id=group,
            heartbeat_interval_ms=200,
            session_timeout_ms=45_000,
            partition_assignment_strategy=[KafkaPythonRange],
        )
        subscribe(python, topic)
        ended = threading.Event()
        shares: dict[str, int] = {}

        def poll_python() -> None:
            while not ended.is_set():
                got.extend(record.value for records in python.poll(200).values() for record in records)
                shares["kafka-python"] = len(python.assignment())

        def poll_rdkafka() -> None:
            while not ended.is_set():
                if (message := rdkafka.poll(0.02)) is not None:
                    assert message.error() is None, message.error()
                    got.append(message.value())
                shares["confluent"] = len(rdkafka.assignment())

        async def poll_third() -> None:
            while not ended.is_set():
                for records in (await third.getmany(timeout_ms=200)).values():
                    got.extend(record.value for record in records)
                shares["aiokafka"] = len(third.assignment())

        # Each in its own time: a member that is polled in turns keeps the others waiting while the group takes its members in.
        tasks = [asyncio.ensure_future(each) for each in (asyncio.to_thread(poll_python), asyncio.to_thread(poll_rdkafka), poll_third())]
        try:
            deadline = time.monotonic() + WAIT_S
            while not (sorted(shares.values()) == [1, 1, 2] and set(got) == written):
                assert time.monotonic() < deadline, f"{shares}, {len(set(got))} of {len(written)}"
                assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
                await asyncio.sleep(0.02)
        finally:
            ended.set()
            await asyncio.wait(tasks)
            await third.stop()
            rdkafka.close()
            python.close()

    asyncio.run(run())


def transactional(servers: str, transactional_id: str, **settings: Any) -> Producer:
    producer = confluent_producer(servers, transactional_id=transactional_id, **settings)
    producer.init_transactions(WAIT_S)
    return producer


def values(servers: str, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    return [message.value() for message in read_from_start(servers, topic, count, **settings)]


def test_a_second_producer_of_the_id_fences_the_first(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """The transaction that the first one left open is aborted before the second one starts."""
    topic, transactional_id = make_topic(), fresh("tx")
    first = transactional(bootstrap_servers, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"zombie", partition=0)
    first.flush(WAIT_S)
    second = transactional(bootstrap_servers, transactional_id)
    second.begin_transaction()
    second.produce(topic, b"heir", partition=0)
    second.commit_transaction(WAIT_S)
    first.produce(topic, b"from the grave", partition=0)
    assert error_of(lambda: first.commit_transaction(WAIT_S)) in ("_FENCED", "_STATE", "_FATAL")
    assert values(bootstrap_servers, topic, 1, **COMMITTED) == [b"heir"]
    assert values(bootstrap_servers, topic, 2, **UNCOMMITTED) == [b"zombie", b"heir"]

    async def fence_by_aiokafka() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # aiokafka leaves the same error in a future, too
        one = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
        two = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
        await one.start()
        await two.start()
        try:
            await one.begin_transaction()
            with pytest.raises(ProducerFenced):
                await one.send_and_wait(topic, b"late", partition=0)
                await one.commit_transaction()
        finally:
            await two.stop()
            await one.stop()

    asyncio.run(fence_by_aiokafka())


def test_offsets_are_committed_with_the_transaction(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """Consume, transform, produce: aborted offsets are forgotten, and a restart reads them again."""
    source, target, group = make_topic(), make_topic(), fresh("g")
    send_all(confluent_producer(bootstrap_servers), source, [b"%d" % n for n in range(10)])
    producer = transactional(bootstrap_servers, fresh("tx"))

    def round_of(commit: bool) -> list[bytes]:
        consumer = confluent_consumer(bootstrap_servers, group_id=group, heartbeat_interval_ms=200)
        consumer.subscribe([source])
        got = [message.value() for message in take(consumer, 5)]
        consumer.pause(consumer.assignment())
        producer.begin_transaction()
        for value in got:
            producer.produce(target, value * 2, partition=0)
        producer.send_offsets_to_transaction([TopicPartition(source, 0, int(got[-1]) + 1)], consumer.consumer_group_metadata(), WAIT_S)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
        consumer.close()
        return got

    assert round_of(commit=False) == [b"0", b"1", b"2", b"3", b"4"]
    assert round_of(commit=True) == [b"0", b"1", b"2", b"3", b"4"]
    assert round_of(commit=True) == [b"5", b"6", b"7", b"8", b"9"]
    assert values(bootstrap_servers, target, 10, **COMMITTED) == [b"%d" % n * 2 for n in range(10)]
    after = confluent_consumer(bootstrap_servers, group_id=group)
    assert after.committed([TopicPartition(source, 0)], timeout=WAIT_S)[0].offset == 10
    after.close()
