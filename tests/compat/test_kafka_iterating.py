"""A loop over a consumer of kafka-python's names."""

from __future__ import annotations

import contextlib
import time

import pytest

from kafkacore.compat.kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import make_topics
from tests.kit.failing_once import VALUES, FailingOnce


def test_a_loop_does_not_end_before_its_time() -> None:
    """Answers without records come in the middle of a millisecond meanwhile, and the time that is left is counted in whole ones."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        settings = {"consumer_timeout_ms": 20, "fetch_max_wait_ms": 7, "auto_offset_reset": "earliest"}
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            for _ in range(40):
                began_s = time.monotonic()
                assert list(consumer) == []
                assert time.monotonic() - began_s >= 0.020


def test_a_value_that_cannot_be_deserialized_costs_no_record_of_another_partition() -> None:
    with EmbeddedCluster() as cluster:
        make_topics(cluster, {"t": VALUES})
        settings = {"auto_offset_reset": "earliest", "value_deserializer": (failing := FailingOnce())}
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
            tps = [TopicPartition("t", partition) for partition in range(3)]
            consumer.assign(tps)
            read: dict[TopicPartition, list[bytes]] = {tp: [] for tp in tps}
            for _ in range(30):
                with contextlib.suppress(LookupError):
                    for tp, records in consumer.poll(100).items():
                        read[tp] += [record.value for record in records]
                if sum(map(len, read.values())) >= 9:
                    break
    assert not failing.left and list(read.values()) == VALUES


def test_a_key_that_cannot_be_deserialized_comes_again() -> None:
    refused: list[bytes] = []

    def once(key: bytes) -> str:
        if key == b"b" and not refused:
            refused.append(key)
            raise LookupError(key)
        return key.decode()

    with EmbeddedCluster() as cluster:
        tp = TopicPartition("t", 0)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for key in (b"a", b"b", b"c"):
                producer.send("t", b"v", key, partition=0)
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", key_deserializer=once) as consumer:
            consumer.assign([tp])
            assert next(consumer).key == "a"
            with pytest.raises(LookupError):
                next(consumer)
            assert consumer.position(tp) == 1
            assert [next(consumer).key for _ in range(2)] == ["b", "c"]
