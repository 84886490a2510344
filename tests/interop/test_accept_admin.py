"""Acceptance: administration by unmodified clients, with the same expectations of the embedded broker and of Apache Kafka.

The broker's words and refusals are in test_admin_answers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import aiokafka.admin
import kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from tests.kit.rivals import confluent_admin, confluent_producer, error_of, read_from_start, send_all
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(300), pytest.mark.kafka_at_length]


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return confluent_admin(bootstrap_servers)


@pytest.fixture
def python(bootstrap_servers: str) -> Iterator[kafka.KafkaAdminClient]:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as client:
        yield client


def delete(admin: AdminClient, *topics: str) -> None:
    for future in admin.delete_topics(list(topics)).values():
        future.result(WAIT_S)


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


def test_the_cluster_is_described(admin: AdminClient, python: kafka.KafkaAdminClient, bootstrap_servers: str) -> None:
    described = admin.describe_cluster().result(WAIT_S)
    host, port = bootstrap_servers.split(":")
    assert [(node.id, node.host, node.port) for node in described.nodes] == [(1, host, int(port))]
    assert described.controller.id == 1 and len(described.cluster_id) == 22
    seen = python.describe_cluster()
    assert seen["cluster_id"] == described.cluster_id and seen["controller_id"] == 1

    async def by_aiokafka() -> dict[str, Any]:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await client.start()
        try:
            return await client.describe_cluster()
        finally:
            await client.close()

    found = asyncio.run(by_aiokafka())
    assert found["cluster_id"] == described.cluster_id and [broker["node_id"] for broker in found["brokers"]] == [1]
