"""A loop over a consumer of kafka-python's names."""

from __future__ import annotations

import contextlib
import time

from kafkacore.compat.kafka import KafkaConsumer, TopicPartition
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
