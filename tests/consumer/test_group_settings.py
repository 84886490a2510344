"""Every setting of a group member does what it says: one check per name; test_consumer_settings.py sees that none is without."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kafkacore import errors
from kafkacore.config import ConsumerConfig
from kafkacore.consumer import KafkaConsumer
from kafkacore.consumer.group.assignor import decode_subscription
from kafkacore.consumer.group.assignors import RangeAssignor
from kafkacore.protocol import ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupRequest
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.checks import Checks
from tests.kit.clusters import embedded
from tests.kit.groups import joined

checks = Checks()
AT = TopicPartition("t", 0)


def member(cluster: EmbeddedCluster, **settings: object) -> KafkaConsumer:
    return KafkaConsumer(
        "t", **{"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest", **settings}
    )


def noted(cluster: EmbeddedCluster, api: str) -> list:
    seen: list = []
    cluster.control(api, seen.append)
    return seen


@checks("group_id")
def group_id(cluster: EmbeddedCluster) -> None:
    with member(cluster) as consumer:
        assert joined(consumer).consumer_group_metadata().group_id == "g"
    with pytest.raises(errors.ConfigError, match="group_id is empty"):
        ConsumerConfig.from_user(bootstrap_servers="h:1", group_id=" ")


@checks("group_instance_id")
def group_instance_id(cluster: EmbeddedCluster) -> None:
    with member(cluster, group_instance_id="i") as consumer:
        first = joined(consumer).consumer_group_metadata()
        assert first.group_instance_id == "i"
    with member(cluster, group_instance_id="i") as consumer:
        assert joined(consumer).consumer_group_metadata().generation_id == first.generation_id  # back without a rebalance


@checks("session_timeout_ms", "max_poll_interval_ms", "partition_assignment_strategy")
def what_join_group_says(cluster: EmbeddedCluster) -> None:
    joins: list[JoinGroupRequest] = noted(cluster, "JoinGroup")
    times = {"session_timeout_ms": 7_000, "max_poll_interval_ms": 70_000}
    settings = {**times, "partition_assignment_strategy": [RangeAssignor], "client_rack": "r"}
    with member(cluster, **settings) as consumer:
        joined(consumer)
    assert {(j.session_timeout_ms, j.rebalance_timeout_ms) for j in joins} == {(7_000, 70_000)}
    assert [[p.name for p in j.protocols] for j in joins] == [["range"]] * len(joins)
    assert decode_subscription(joins[0].protocols[0].metadata).rack_id == "r"
    with pytest.raises(errors.ConfigError, match="no assignor 'nearest'"):
        member(cluster, partition_assignment_strategy="nearest")


@checks("heartbeat_interval_ms")
def heartbeat_interval_ms(cluster: EmbeddedCluster) -> None:
    beats: list[HeartbeatRequest] = noted(cluster, "Heartbeat")
    with member(cluster, heartbeat_interval_ms=10) as consumer:
        joined(consumer)
        while len(beats) < 3:
            consumer.poll(0.05)
    with pytest.raises(errors.ConfigError, match="must be lower than session_timeout_ms"):
        ConsumerConfig.from_user(bootstrap_servers="h:1", heartbeat_interval_ms=45_000)


@checks("enable_auto_commit", "auto_commit_interval_ms")
def auto_commit(cluster: EmbeddedCluster) -> None:
    with member(cluster, enable_auto_commit=False) as consumer:
        assert len(consumer.poll(10)[AT]) == 5
    with member(cluster, auto_commit_interval_ms=1) as consumer:
        assert len(consumer.poll(10)[AT]) == 5
        while consumer.committed(AT) != OffsetAndMetadata(5, 0):
            consumer.poll(0.01)


@checks("exclude_internal_topics")
def exclude_internal_topics(cluster: EmbeddedCluster) -> None:
    for excluded in (True, False):
        with member(cluster, exclude_internal_topics=excluded) as consumer:
            consumer.unsubscribe()
            consumer.subscribe(pattern=re.compile("t|__consumer_offsets"))
            assert joined(consumer).subscription() == ({"t"} if excluded else {"t", "__consumer_offsets"})


@checks("group_protocol", "group_remote_assignor")
def group_protocol(cluster: EmbeddedCluster) -> None:
    beats: list[ConsumerGroupHeartbeatRequest] = noted(cluster, "ConsumerGroupHeartbeat")
    settings = {"group_protocol": "consumer", "group_remote_assignor": "range", "max_poll_interval_ms": 70_000, "client_rack": "r"}
    with member(cluster, **settings) as consumer:
        joined(consumer)
    assert [(b.server_assignor, b.rebalance_timeout_ms, b.rack_id) for b in beats if b.member_epoch == 0] == [("range", 70_000, "r")]
    with pytest.raises(errors.ConfigError, match="group_remote_assignor belongs to"):
        member(cluster, group_remote_assignor="uniform")
    for name, value in {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000, "partition_assignment_strategy": "range"}.items():
        with pytest.raises(errors.ConfigError, match=f"{name}: not with group_protocol=consumer"):
            member(cluster, group_protocol="consumer", **{name: value})
    wrong = {"group_protocol": "consumer", "group_remote_assignor": "nearest", "group_id": "g2"}
    with member(cluster, **wrong) as consumer, pytest.raises(errors.UnsupportedAssignor, match="nearest"):
        joined(consumer)


cluster = embedded({"t": [[b"v"] * 5]}, scope="function", brokers=1)


@checks.each_one
def test_a_setting_does_what_it_says(cluster: EmbeddedCluster, fn: Callable[[EmbeddedCluster], None]) -> None:
    fn(cluster)
