"""A rebalance listener, and whoever has just joined, may ask for positions that nothing is known of yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kafkacore import KafkaConsumer, RebalanceListener, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.inside import clock_of
from tests.kit.records import numbered

GUARD_S = 90
TP = TopicPartition("t", 0)


cluster = embedded({"t": [numbered(5)]})


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers


class Rewinding(RebalanceListener):
    """Goes back two records wherever the group stands."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.found: list[int] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            position = self.consumer.position(tp, timeout=GUARD_S)
            self.found.append(position)
            self.consumer.seek(tp, max(0, position - 2))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_asks_for_a_position(servers: str, protocol: str) -> None:
    """Nothing but the question itself wakes the consumer: it is sent at once. So is a reset."""
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": f"asking-{protocol}", "group_protocol": protocol}
    found: list[int] = []
    for _ in range(2):
        with KafkaConsumer(**settings, auto_offset_reset="earliest") as consumer:
            listener = Rewinding(consumer)
            consumer.subscribe(["t"], listener=listener)
            began_ms = clock_of(consumer).now_ms()
            records = consumer.poll(GUARD_S)[TP]
            assert clock_of(consumer).now_ms() - began_ms < 1000 * GUARD_S / 2
            found += [*listener.found, records[0].offset]
            consumer.commit()
    assert found == [0, 0, 5, 3]


def test_an_assigned_partition_is_asked_for_at_once(servers: str) -> None:
    """The group's committed offset, of a consumer that is no member."""
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "assigned", "enable_auto_commit": False}
    with KafkaConsumer(**settings, auto_offset_reset="latest") as consumer:
        consumer.assign([TP])
        assert consumer.position(TP, timeout=GUARD_S) == 5
        consumer.commit({TP: 2})
    with KafkaConsumer(**settings) as consumer:
        consumer.assign([TP])
        assert consumer.committed(TP).offset == 2  # now it knows the coordinator
        began_ms = clock_of(consumer).now_ms()
        assert consumer.position(TP, timeout=GUARD_S) == 2
        assert clock_of(consumer).now_ms() - began_ms < 1000 * GUARD_S / 2
