"""A loop over a consumer of kafka-python's names."""

from __future__ import annotations

import time

from kafkacore.compat.kafka import KafkaConsumer, TopicPartition
from kafkacore.testing import EmbeddedCluster


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
