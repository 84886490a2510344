"""Acceptance: consumer groups by unmodified clients, with the same expectations of the embedded broker and of Apache Kafka.

Each client in groups of its own is in tests/broker/test_group_rivals.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from tests.kit.rivals import (
    confluent_admin,
    confluent_consumer,
    confluent_producer,
    error_of,
    kafka_python_consumer,
    send_all,
    subscribe,
)
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.kafka_at_length]
PARTITIONS = 4


def fill(servers: str, topic: str, per_partition: int = 10, generation: int = 0) -> set[bytes]:
    """Writes numbered values to all partitions of a topic."""
    producer = confluent_producer(servers)
    written: set[bytes] = set()
    for partition in range(PARTITIONS):
        values = [b"%d-%d-%d" % (generation, partition, n) for n in range(per_partition)]
        send_all(producer, topic, values, partition=partition)
        written.update(values)
    return written


def confluent_member(servers: str, group: str, topic: str, **settings: Any) -> Consumer:
    consumer = confluent_consumer(servers, group_id=group, session_timeout_ms=45_000, heartbeat_interval_ms=200, **settings)
    consumer.subscribe([topic])
    return consumer


def member(protocol: str, servers: str, group: str, topic: str, **settings: Any) -> Consumer:
    if protocol == "classic":
        return confluent_member(servers, group, topic, **settings)
    consumer = confluent_consumer(servers, group_id=group, group_protocol="consumer", **settings)
    consumer.subscribe([topic])
    return consumer


def poll_all(consumers: list[Consumer], into: list[bytes]) -> None:
    for consumer in consumers:
        message = consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            into.append(message.value())


def test_three_clients_in_one_group(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """The three agree on an assignor, and their subscription metadata understands each other."""
    topic, group = make_topic(PARTITIONS), fresh("g")
    written = fill(bootstrap_servers, topic)
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
        rdkafka = confluent_member(bootstrap_servers, group, topic, partition_assignment_strategy="range")
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
                poll_all([rdkafka], got)
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


def test_commits_carry_metadata_and_epochs(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    consumer = confluent_consumer(bootstrap_servers, group_id=group)
    committed = TopicPartition(topic, 1, 7, "where I was: ∞", 0)
    (answer,) = consumer.commit(offsets=[committed], asynchronous=False)
    assert answer.error is None
    two, none = consumer.committed([TopicPartition(topic, 1), TopicPartition(topic, 2)], timeout=WAIT_S)
    assert (two.offset, two.metadata, two.leader_epoch) == (7, "where I was: ∞", 0)
    assert none.offset == confluent_kafka.OFFSET_INVALID
    consumer.close()
    python = kafka_python_consumer(bootstrap_servers, group_id=group)
    place = kafka.TopicPartition(topic, 3)
    python.commit({place: kafka.structs.OffsetAndMetadata(9, "plain", 0)})
    assert python.committed(place, metadata=True) == kafka.structs.OffsetAndMetadata(9, "plain", 0)
    python.close()
    too_long = TopicPartition(topic, 1, 8, "x" * 5000)
    consumer = confluent_consumer(bootstrap_servers, group_id=group)
    assert error_of(lambda: consumer.commit(offsets=[too_long], asynchronous=False)) == "OFFSET_METADATA_TOO_LARGE"
    consumer.close()


def describe(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(WAIT_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_and_deleted(bootstrap_servers: str, make_topic: MakeTopic, protocol: str) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    admin = confluent_admin(bootstrap_servers)
    consumer = member(protocol, bootstrap_servers, group, topic, client_id="the-client")
    until(lambda: (poll_all([consumer], []), len(consumer.assignment()) == PARTITIONS)[1], "there is a member")
    described = until(lambda: (found := describe(admin, group)).state == ConsumerGroupState.STABLE and found, "the group is stable")
    (only,) = described.members
    assert (only.client_id, only.host.lstrip("/")) == ("the-client", "127.0.0.1")
    assert {place.partition for place in only.assignment.topic_partitions} == set(range(PARTITIONS))
    assert described.coordinator.id == 1 and not described.is_simple_consumer_group
    assert described.partition_assignor == ("uniform" if protocol == "consumer" else "range")
    listed = {found.group_id: found for found in admin.list_consumer_groups().result(WAIT_S).valid}
    assert listed[group].state == ConsumerGroupState.STABLE
    assert listed[group].type.name == ("CONSUMER" if protocol == "consumer" else "CLASSIC")
    assert error_of(lambda: admin.delete_consumer_groups([group])[group].result(WAIT_S)) == "NON_EMPTY_GROUP"
    consumer.close()
    until(lambda: describe(admin, group).state == ConsumerGroupState.EMPTY, "the group is empty")
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert group not in {found.group_id for found in admin.list_consumer_groups().result(WAIT_S).valid}
    assert error_of(lambda: admin.delete_consumer_groups([group])[group].result(WAIT_S)) == "GROUP_ID_NOT_FOUND"


def test_offsets_of_a_group_are_altered_and_deleted_by_an_admin(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    admin = confluent_admin(bootstrap_servers)
    wanted = [TopicPartition(topic, partition, 5 + partition) for partition in range(PARTITIONS)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(WAIT_S)

    def offsets() -> dict[int, int]:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
        return {place.partition: place.offset for place in found.topic_partitions}

    assert offsets() == {0: 5, 1: 6, 2: 7, 3: 8}
    python = kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    python.delete_group_offsets(group, [kafka.TopicPartition(topic, 1)])
    assert offsets() == {0: 5, 2: 7, 3: 8}
    consumer = confluent_member(bootstrap_servers, group, topic)
    until(lambda: (poll_all([consumer], []), consumer.assignment())[1], "there is a member")
    refused = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(WAIT_S)
    assert {place.error.name() for place in refused.topic_partitions} == {"UNKNOWN_MEMBER_ID"}
    consumer.close()
    python.delete_groups([group])
    python.close()
    assert offsets() == {}
