"""Tuples that compiled code makes have the hash of those that Python makes: each finds the other in a dict."""

from __future__ import annotations

from typing import Any

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore._codec import name_partitions
from kafkacore.protocol import ApiVersionsRequest
from kafkacore.testing import EmbeddedCluster


def hash_of(value: tuple[Any, ...]) -> int | str:
    try:
        return hash(value)
    except TypeError:
        return "holds a list"


def hashes_alike(made: tuple[Any, ...]) -> bool:
    by_python = tuple.__new__(type(made), tuple(made))
    return hash_of(made) == hash_of(by_python)


def test_partitions_and_structs() -> None:
    (partition,) = name_partitions([("t", [7])])
    assert hashes_alike(partition)
    assert {TopicPartition("t", 7): "found"}[partition] == "found"
    request = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert hashes_alike(request)
    assert hashes_alike(ApiVersionsRequest.decode(4, b"".join(request.encode(4))))


def test_what_clients_return() -> None:
    with EmbeddedCluster() as cluster:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert hashes_alike(producer.send("t", b"x").result())
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            (info,) = consumer.partition_infos("t")
            assert hashes_alike(info)
