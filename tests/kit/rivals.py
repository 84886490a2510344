"""What the acceptance tests share: other clients' consumers and producers behind a few plain functions, and names no test uses twice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
import kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkacore import KafkaAdminClient
from kafkacore.admin import FeatureUpdate
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until


def applied(admin: KafkaAdminClient) -> None:
    """Returns when Kafka has applied what its controller had decided before.

    A node reads one change after the other. It shows a change first, and applies it then: to logs, quotas, users and coordinators. So when
    it shows a change that was decided after another was shown, it has applied that one, and all before it.
    """
    for _ in range(2):
        user = fresh("applied")
        entity = frozenset({("user", user)})
        admin.alter_client_quotas({entity: {"request_percentage": 1e9}}).check()
        until(lambda user=user: admin.describe_client_quotas({"user": user}), "the broker follows the controller")
        admin.alter_client_quotas({entity: {"request_percentage": None}}).check()


def take_transactions_back(servers: str, version: int) -> None:
    """Returns when a Kafka's transaction.version is this one, for those that ask now."""
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.update_features({"transaction.version": FeatureUpdate(version, "safe_downgrade")}).check()

        def level() -> int:
            found = admin.describe_features().finalized.get("transaction.version")
            return 0 if found is None else found.highest

        until(lambda: level() == version, "the broker follows the controller")
        applied(admin)


# confluent-kafka


def marked(servers: str, topic: str, offset: int) -> None:
    """Returns when the marker at an offset is there: the end of a transaction is acknowledged before its markers are written."""
    settings = {"bootstrap.servers": servers, "group.id": "unused", "isolation.level": "read_uncommitted"}
    with contextlib.closing(Consumer(settings)) as consumer:
        partition = TopicPartition(topic, 0)
        until(lambda: consumer.get_watermark_offsets(partition, WAIT_S)[1] > offset, f"the marker at {offset} is written")


def confluent_producer(servers: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 1, "log_level": 2} | _dotted(settings))


def confluent_consumer(servers: str, **settings: Any) -> Consumer:
    defaults = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    return Consumer(defaults | {"log_level": 2, "fetch.wait.max.ms": 50} | _dotted(settings))


def confluent_admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 2})


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def send_all(producer: Producer, topic: str, values: Iterable[bytes | None], partition: int = 0, **fields: Any) -> list[int]:
    """Sends and waits; the offsets. Raises the first error that a delivery reports."""
    offsets: list[int] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered, **fields)
    assert producer.flush(WAIT_S) == 0
    if failed:
        raise confluent_kafka.KafkaException(failed[0])
    return offsets


def take(consumer: Consumer, count: int, wait_s: float = WAIT_S) -> list[confluent_kafka.Message]:
    """The next `count` messages."""
    got: list[confluent_kafka.Message] = []
    deadline = time.monotonic() + wait_s
    while len(got) < count:
        assert time.monotonic() < deadline, f"only {len(got)} of {count} messages came"
        for message in consumer.consume(count - len(got), timeout=0.5):
            if (error := message.error()) is not None:
                raise confluent_kafka.KafkaException(error)
            got.append(message)
    return got


def read_from_start(servers: str, topic: str, count: int, partition: int = 0, **settings: Any) -> list[confluent_kafka.Message]:
    """The first `count` messages of a partition, by assignment."""
    consumer = confluent_consumer(servers, **settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return take(consumer, count)
    finally:
        consumer.close()


def error_of(act: Callable[[], Any]) -> str:
    """The name of Kafka's error that a confluent-kafka call raises: "UNKNOWN_TOPIC_OR_PART", ..."""
    try:
        act()
    except confluent_kafka.KafkaException as exception:
        error = exception.args[0]
        assert isinstance(error, KafkaError)
        return str(error.name())
    raise AssertionError("nothing was raised")


# kafka-python


def kafka_python_consumer(servers: str, **settings: Any) -> kafka.KafkaConsumer:
    defaults = {"bootstrap_servers": servers, "auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    return kafka.KafkaConsumer(**(defaults | settings))


def subscribe(consumer: kafka.KafkaConsumer, topic: str) -> None:
    """Joins when the consumer knows the topic: a leader that does not assigns nothing, and never joins again."""
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])


def drain(consumer: kafka.KafkaConsumer, count: int, wait_s: float = WAIT_S) -> list[Any]:
    """The next `count` records of a kafka-python consumer."""
    got: list[Any] = []
    deadline = time.monotonic() + wait_s
    while len(got) < count:
        assert time.monotonic() < deadline, f"only {len(got)} of {count} records came"
        for records in consumer.poll(timeout_ms=500, max_records=count - len(got)).values():
            got += records
    return got
