"""Partitioners, serializers and interceptors of a program's own: instances, classes, and names of classes, configured as in Java."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import KafkaConsumer, KafkaProducer
from kafkacore.errors import ConfigError, KafkaTimeoutError
from kafkacore.producer.interceptors import Interceptors
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import ProducerRecord
from tests.kit.rows import each_row

HERE = __name__


class HotDataPartitioner:
    """The one of many articles on Kafka's producer: keys with hot_data go to the last partition, all others to any other."""

    def configure(self, configs: dict[str, Any]) -> None:
        self.random = random.Random()

    def partition(self, topic: str, key: Any, key_bytes: bytes, value: Any, value_bytes: bytes, cluster: Any) -> int:
        partition_count = len(cluster.available_partitions(topic))
        hot_data_partition = partition_count - 1
        return hot_data_partition if "hot_data" in key else self.random.randrange(partition_count - 1)


class Keeps:
    """Sends each record to the partition that its value names, and keeps what it was called with."""

    seen: list[Any] = []  # noqa: RUF012

    def partition(self, topic: str, key: Any, value: Any, cluster: Any) -> int:
        self.seen.append((topic, key, value))
        return int(value)


class Bytes:
    """As Java's, for what it gets."""

    seen: list[Any] = []  # noqa: RUF012

    def partition(self, topic: str, key: Any, key_bytes: bytes, value: Any, value_bytes: bytes, cluster: Any) -> int:
        self.seen.append((key, key_bytes, value, value_bytes))
        return 1


class Tagged:
    """A serializer, deserializer and interceptor that says with which settings it was made."""

    made: list[Any] = []  # noqa: RUF012

    def configure(self, configs: dict[str, Any], is_key: bool) -> None:
        self.tag = b"k:" if is_key else b"v:"
        self.made.append((sorted(configs), is_key))

    def serialize(self, topic: str, value: Any) -> bytes:
        return self.tag + str(value).encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        return (self.tag + data).decode()


class Marks:
    """An interceptor of producers and consumers."""

    made: list[Any] = []  # noqa: RUF012

    def configure(self, configs: dict[str, Any]) -> None:
        self.made.append(configs["client.id"])

    def on_send(self, record: Any) -> Any:
        return record._replace(value=f"{record.value}!")

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        pass

    def on_consume(self, records: Any) -> Any:
        return {tp: [each.replace(value=each.value + b"?") for each in found] for tp, found in records.items()}


class Refuses:
    def configure(self, configs: dict[str, Any]) -> None:
        raise ValueError("no such rule")

    def partition(self, topic: str, key: Any, value: Any, cluster: Any) -> int:
        return 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        for name in ("hot", "t", "own", "tagged", "marks"):
            cluster.create_topic(name, partitions=4)
        yield cluster


@each_row(
    ("name", "form"),
    [
        ("partitioner", HotDataPartitioner),
        ("partitioner", HotDataPartitioner()),
        ("partitioner.class", f"{HERE}:HotDataPartitioner"),
        ("partitioner.class", f"{HERE}.HotDataPartitioner"),
    ],
)
def test_the_partitioner_of_the_articles(cluster: EmbeddedCluster, name: str, form: Any) -> None:
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, name: form}) as producer:
        hot = {producer.send("hot", "v", f"hot_data-{nth}").result(30).partition for nth in range(20)}
        others = {producer.send("hot", "v", f"cold-{nth}").result(30).partition for nth in range(40)}
    assert (hot, others) == ({3}, {0, 1, 2})


@pytest.mark.parametrize("many", [False, True])
def test_an_object_with_a_method_partition(cluster: EmbeddedCluster, many: bool) -> None:
    Keeps.seen.clear()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=Keeps) as producer:
        if many:
            producer.send_many("own", ["2", "0"], keys=["a", "b"])
        else:
            producer.send("own", "2", "a")
            producer.send("own", "0", "b")
        assert producer.send("own", "3", "c", partition=1).result(30).partition == 1
    assert Keeps.seen == [("own", "a", "2"), ("own", "b", "0")]


def test_javas_arguments_have_the_bytes_too(cluster: EmbeddedCluster) -> None:
    Bytes.seen.clear()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner=Bytes(), value_serializer=lambda v: str(v)) as producer:
        assert producer.send("t", 5, "ä").result(30).partition == 1
        assert producer.send("t", None).result(30).partition == 1
    assert Bytes.seen == [("ä", "ä".encode(), 5, b"5"), (None, None, None, None)]


@pytest.mark.parametrize("form", [Tagged, f"{HERE}:Tagged"])
def test_serializers_by_class(cluster: EmbeddedCluster, form: Any) -> None:
    Tagged.made.clear()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "me"}
    with KafkaProducer(settings | {"key.serializer": form, "value.serializer": form}) as producer:
        sent = producer.send("tagged", 5, 7, partition=0).result(30)
    with KafkaConsumer(settings | {"key.deserializer": form, "value.deserializer": form}) as consumer:
        consumer.assign([("tagged", 0)])
        consumer.seek(("tagged", 0), sent.offset)
        ((record,),) = consumer.poll(30).values()
    assert (record.key, record.value) == ("k:k:7", "v:v:5")
    names = [[f"{each}.{kind}" for each in ("key", "value")] for kind in ("serializer", "deserializer")]
    assert Tagged.made == [(["bootstrap.servers", "client.id", *mine], is_key) for mine in names for is_key in (True, False)]


def test_interceptors_by_class_and_by_name(cluster: EmbeddedCluster) -> None:
    Marks.made.clear()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "me"}
    with KafkaProducer(settings | {"interceptor.classes": f"{HERE}:Marks, {HERE}:Marks"}) as producer:
        sent = producer.send("marks", "v", partition=0).result(30)
    with KafkaConsumer(settings | {"interceptors": [Marks, Marks()]}) as consumer:
        consumer.assign([("marks", 0)])
        consumer.seek(("marks", 0), sent.offset)
        ((record,),) = consumer.poll(30).values()
    assert (record.value, Marks.made) == (b"v!!??", ["me"] * 4)


def test_an_interceptor_that_fails_keeps_no_other_from_a_record() -> None:
    class Broken:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ZeroDivisionError

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            raise ZeroDivisionError

    class Hears(Broken):
        heard: list[Any] = []  # noqa: RUF012

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=b"marked")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            self.heard.append(error)

    interceptors, lost = Interceptors([Broken(), Hears()]), KafkaTimeoutError("late")
    record, delivered = interceptors.on_send("t", b"v", None, None, 0, None, None)
    assert record.value == b"marked"
    delivered(None, lost)
    interceptors.not_queued(lost)
    assert Hears.heard == [lost, lost]


def test_javas_own_classes_are_what_they_are_here(cluster: EmbeddedCluster) -> None:
    java = "org.apache.kafka.common.serialization.String"
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    serializers = {"key.serializer": f"{java}Serializer", "value.serializer": f"{java}Serializer"}
    by_turn = {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    with KafkaProducer(settings | serializers | by_turn) as producer:
        found = [producer.send("t", "ä").result(30) for _ in range(4)]
    assert {each.partition for each in found} == {0, 1, 2, 3}
    with KafkaConsumer(settings | {"value.deserializer": f"{java}Deserializer"}) as consumer:
        consumer.assign([("t", found[0].partition)])
        consumer.seek(("t", found[0].partition), found[0].offset)
        ((record, *_),) = consumer.poll(30).values()
    assert record.value == "ä"


class Needs:
    def __init__(self, rule: str) -> None: ...

    def partition(self, topic: str, key: Any, value: Any, cluster: Any) -> int:
        return 0


@each_row(
    ("name", "value", "problem"),
    [
        ("partitioner", "no_such", "or a callable, an object with partition(), a class or its name as module:Class, not 'no_such'"),
        ("partitioner", f"{HERE}:NoSuch", f"partitioner='{HERE}:NoSuch' cannot be loaded: module '{HERE}' has no attribute 'NoSuch'"),
        ("partitioner.class", "no.such.Thing", "partitioner='no.such.Thing' cannot be loaded: No module named 'no'"),
        ("partitioner", object, "has no partition(topic, key, value, cluster), and cannot be called"),
        ("partitioner", Needs, "partitioner: Needs() failed: "),
        ("partitioner", Refuses, "partitioner: configure() of Refuses failed: no such rule"),
        ("key.serializer", "latin-1", "must be a callable, an object with serialize(), a class or its name as module:Class, not 'latin-1'"),
        ("interceptor.classes", f"{HERE}:Keeps", "is no object with on_send or on_acknowledgement"),
        ("value.serializer", "os:system", "value_serializer='os:system' is no class"),
        ("interceptors", [5], "interceptors: 5 is no object with on_send or on_acknowledgement"),
    ],
)
def test_what_is_no_such_object_is_said_when_the_client_is_made(name: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KafkaProducer({"bootstrap.servers": "localhost:1", name: value})
    assert problem in str(refused.value)
