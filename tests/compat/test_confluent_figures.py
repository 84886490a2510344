"""compat.confluent: what settings of librdkafka become, and the figures of statistics, by tables."""

from __future__ import annotations

import itertools
import json
import math
import operator
import re
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.compat.confluent import KafkaException, TopicPartition, statistics
from kafkacore.compat.confluent.admin.base import Options
from kafkacore.compat.confluent.client_settings import CONSUMER_SETTINGS, PRODUCER_SETTINGS, engine_settings
from kafkacore.net.node_ids import coordinator_id
from tests.kit.rows import each_row

LONG = 2**31 - 1
BOTH: dict[str, Any] = {
    "bootstrap_servers": ["a:1"], "client_id": "rdkafka", "client_rack": "", "connections_max_idle_ms": -1, "metadata_max_age_ms": 300_000,
    "receive_buffer_bytes": -1, "send_buffer_bytes": -1, "reconnect_backoff_ms": 100, "reconnect_backoff_max_ms": 10_000,
    "request_timeout_ms": 60_000, "retry_backoff_ms": 100, "retry_backoff_max_ms": 1_000, "security_protocol": "plaintext",
    "socket_connection_setup_timeout_ms": 30_000,
}  # fmt: skip
OF_PRODUCERS = {
    "acks": -1, "batch_size": 1_000_000, "buffer_memory": 1 << 30, "compression_type": "none", "delivery_timeout_ms": 300_000,
    "linger_ms": 5,
    "max_request_size": 1_000_000, "partitioner": "consistent_random", "retries": LONG, "transaction_timeout_ms": 60_000,
}  # fmt: skip
OF_CONSUMERS = {
    "auto_commit_interval_ms": 5_000, "auto_offset_reset": "latest", "check_crcs": False, "fetch_max_bytes": 50 << 20,
    "fetch_max_wait_ms": 500, "fetch_min_bytes": 1, "group_protocol": "classic", "heartbeat_interval_ms": 3_000,
    "isolation_level": "read_committed", "max_partition_fetch_bytes": 1 << 20, "max_poll_interval_ms": 300_000,
    "partition_assignment_strategy": "range,roundrobin", "session_timeout_ms": 45_000,
}  # fmt: skip


@each_row(
    ("given", "changes"),
    [
        ({}, {}),
        ({"bootstrap.servers": " b , c:2,,SSL://[::1]:3,[::2]"}, {"bootstrap_servers": ["b:9092", "c:2", "[::1]:3", "[::2]:9092"]}),
        ({"bootstrap.servers": ","}, {"bootstrap_servers": ["bootstrap-servers-is-not-set.invalid:9092"]}),
        ({"socket.send.buffer.bytes": "7", "socket.receive.buffer.bytes": 8}, {"send_buffer_bytes": 7, "receive_buffer_bytes": 8}),
        ({"connections.max.idle.ms": "9"}, {"connections_max_idle_ms": 9}),
        ({"topic.metadata.refresh.interval.ms": -1}, {"metadata_max_age_ms": LONG}),
        ({"topic.metadata.refresh.interval.ms": 0}, {"metadata_max_age_ms": 0}),
        ({"client.id": None}, {}),
        ({"sasl.username": "u", "ssl.ca.location": "ca"}, {}),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.username": "u",
                "ssl.ca.location": "ca",
                "ssl.endpoint.identification.algorithm": "NONE",
            },
            {"security_protocol": "SASL_SSL", "sasl_username": "u", "ssl_cafile": "ca", "ssl_check_hostname": False},
        ),
        ({"security.protocol": "ssl"}, {"security_protocol": "ssl", "ssl_check_hostname": True}),
    ],
)
def test_what_settings_of_all_clients_become(given: dict[str, Any], changes: dict[str, Any]) -> None:
    for table, more in ((PRODUCER_SETTINGS, OF_PRODUCERS), (CONSUMER_SETTINGS, OF_CONSUMERS)):
        assert engine_settings(table, {"bootstrap.servers": "a:1", **given}) == {**BOTH, **more, **changes}


def test_what_settings_of_one_kind_become() -> None:
    def changed(table: Any, **given: Any) -> dict[str, Any]:
        named = {"bootstrap.servers": "a:1", **{name.replace("_", "."): value for name, value in given.items()}}
        defaults = BOTH | (OF_PRODUCERS if table is PRODUCER_SETTINGS else OF_CONSUMERS)
        return {name: value for name, value in engine_settings(table, named).items() if value != defaults.get(name)}

    sent = {"queue_buffering_max_kbytes": "3", "queue_buffering_max_ms": "7.9", "message_timeout_ms": 0, "compression_codec": "inherit"}
    assert changed(PRODUCER_SETTINGS, **sent) == {"buffer_memory": 3_072, "linger_ms": 7, "delivery_timeout_ms": LONG}
    assert changed(PRODUCER_SETTINGS, message_timeout_ms=1) == {"delivery_timeout_ms": 1}
    assert changed(PRODUCER_SETTINGS, partitioner="murmur2") == {"partitioner": "murmur2_null_too"}
    assert changed(CONSUMER_SETTINGS, check_crcs="1", auto_offset_reset="error") == {"check_crcs": True, "auto_offset_reset": "none"}
    for table, name, value in (
        (PRODUCER_SETTINGS, "partitioner", "hot"),
        (CONSUMER_SETTINGS, "auto.offset.reset", "none"),
        (CONSUMER_SETTINGS, "check.crcs", "yes"),
        (CONSUMER_SETTINGS, "nonsense", 1),
    ):
        with pytest.raises(KafkaException, match=name.replace(".", r"\.")):
            engine_settings(table, {name: value})


class Stat:
    """A statistic of fixed values."""

    def __init__(self, value: float, percentile: float = 0.0) -> None:
        self.value, self.rank = value, percentile

    def avg(self, now_ms: int) -> float:
        return self.value / 2 + now_ms

    def max(self, now_ms: int) -> float:
        return self.value

    def percentile(self, share: float, now_ms: int) -> float:
        return self.rank if share == 0.99 else -1


def counts_of_node(count: int, opened: int, closed: int, latency_ms: Stat) -> Any:
    sent, received = (SimpleNamespace(count=count + more, total=10.0 * count + more) for more in (0, 1))
    closing = {"connections_opened": opened, "connections_closed": closed}
    return SimpleNamespace(sent_bytes=sent, received_bytes=received, latency_ms=latency_ms, throttle_ms=Stat(4), **closing)


def engine_client() -> Any:
    """Two brokers, one of which is a coordinator as well, an address that was not reached, and a connection to a broker that there was."""
    quiet = Stat(math.nan, math.nan)
    stats = {
        1: counts_of_node(3, 2, 1, Stat(8.0, 7.5)),
        coordinator_id(1): counts_of_node(5, 1, 1, quiet),
        2: counts_of_node(7, 1, 1, quiet),
        -1: counts_of_node(9, 0, 0, quiet),
        3: counts_of_node(11, 1, 0, quiet),
    }
    nodes = {number: SimpleNamespace(id=number, host=f"h{number}", port=90 + number) for number in (1, 2, -1)}
    parts = [SimpleNamespace(index=number, leader=leader, leader_epoch=6) for number, leader in ((1, 2), (0, 1))]
    snapshot = SimpleNamespace(nodes=nodes, topics={"t": SimpleNamespace(partitions=parts), "u": None})
    clock = SimpleNamespace(now_ms=lambda: 2)
    return SimpleNamespace(
        node_stats=stats,
        metadata=SimpleNamespace(snapshot=snapshot),
        selector=SimpleNamespace(clock=clock),
        connection_failed=lambda node: node.id == 2,
    )


def shown_broker(number: int, state: str, count: int, connects: int, disconnects: int, **more: Any) -> dict[str, Any]:
    address = f"h{number}:{90 + number}"
    nothing = {"rtt": {"avg": 0, "max": 0, "p99": 0}, "throttle": {"avg": 4, "max": 4}}
    counts = {"tx": count, "txbytes": 10 * count, "connects": connects, "disconnects": disconnects}
    who = {"nodeid": number, "nodename": address, "source": "configured" if number < 0 else "learned", "state": state}
    return who | counts | nothing | more


def test_the_figures_of_brokers_and_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, reported, client = [100.0, 101.5], list[str](), engine_client()
    monkeypatch.setattr(statistics, "time", SimpleNamespace(monotonic=lambda: now_s.pop(0), time=lambda: 7.9))
    statistics.Statistics("producer", "me", reported.append, 1_000, lambda: client, lambda: {"msg_cnt": 5}).tell()
    said = json.loads(reported[0])
    said["name"] = re.sub(r"\d+$", "N", said["name"])
    sums = {"tx": 35, "tx_bytes": 350, "rx": 40, "rx_bytes": 355, "msg_cnt": 5}
    others = dict.fromkeys(("txmsgs", "txmsg_bytes", "rxmsgs", "rxmsg_bytes"), 0)
    who = {"name": "me#producer-N", "client_id": "me", "type": "producer", "metadata_cache_cnt": 2}
    times = {"ts": 101_500_000, "time": 7, "age": 1_500_000}
    assert said == {**who, **times, **sums, **others, "brokers": statistics.brokers_of(client)}
    found = statistics.brokers_of(client)
    rows = {
        "h1:91/1": shown_broker(1, "UP", 8, 3, 2, rx=10, rxbytes=82),
        "h2:92/2": shown_broker(2, "DOWN", 7, 1, 1, rx=8, rxbytes=71),
        "h-1:89/bootstrap": shown_broker(-1, "INIT", 9, 0, 0, rx=10, rxbytes=91),
    }
    assert found == {name: {"name": name, **row} for name, row in rows.items()}
    client.node_stats = {1: client.node_stats[1]}
    assert statistics.brokers_of(client)["h1:91/1"]["rtt"] == {"avg": 6_000, "max": 8_000, "p99": 7_500}


def test_topics_have_the_partitions_of_metadata_and_of_the_client() -> None:
    of = {("t", 0): {"rxmsgs": 3}, ("t", 4): {}, ("v", 1): {}}
    known = {"leader_epoch": 6, "unknown": False}
    unknown = {"broker": -1, "leader": -1, "leader_epoch": -1, "unknown": True, "desired": True}
    assert statistics.topics_of(engine_client(), ["t", "v"], of) == {
        "t": {
            "topic": "t",
            "partitions": {
                "0": {"partition": 0, "broker": 1, "leader": 1, **known, "desired": True, "rxmsgs": 3},
                "1": {"partition": 1, "broker": 2, "leader": 2, **known, "desired": False},
                "4": {"partition": 4, **unknown},
            },
        },
        "v": {"topic": "v", "partitions": {"1": {"partition": 1, **unknown}}},
    }


def test_the_figures_of_a_consumers_partitions() -> None:
    def state(offset: int | None, paused: bool, start: int, end: int, stable: int, count: int) -> Any:
        ends = {"log_start_offset": start, "high_watermark": end, "last_stable_offset": stable}
        counts = {"handed_records": count, "fetched_bytes": 10 * count}
        return SimpleNamespace(offset=offset, has_position=offset is not None, paused=paused, **ends, **counts)

    def shown(*values: Any) -> dict[str, Any]:
        names = "fetch_state next_offset app_offset stored_offset committed_offset lo_offset hi_offset ls_offset consumer_lag"
        return dict(zip([*names.split(), "consumer_lag_stored", "rxmsgs", "rxbytes"], values, strict=True))

    first, second, third = ("t", 0), ("t", 1), ("v", 1)
    states = {first: state(5, True, 2, 9, 8, 1), second: state(0, False, 0, 0, 0, 2), third: state(None, False, -1, -1, -1, 4)}
    reached, stored = {second: SimpleNamespace(offset=0)}, {second: SimpleNamespace(offset=0), third: SimpleNamespace(offset=3)}
    client = engine_client()
    for committed, lag in ((True, 8), (False, 9)):
        parts = {"_subscription": SimpleNamespace(partitions=states), "_driver": SimpleNamespace(client=client), "_group": None}
        consumer = SimpleNamespace(_read_committed=committed, **parts)
        found = statistics.of_consumer(consumer, reached.get, stored, {first: 0, third: 3})
        rows = {
            first: shown("none", 5, -1001, -1001, 0, 2, 9, 8, lag, -1, 1, 10),
            second: shown("active", 0, 0, 0, -1001, 0, 0, 0, -1, 0, 2, 20),
            third: shown("none", -1001, -1001, 3, 3, -1001, -1001, -1001, -1, -1, 4, 40),
        }
        topics = statistics.topics_of(client, ["t", "v"], rows)
        assert found == {"rxmsgs": 7, "rxmsg_bytes": 70, "topics": topics}
    identity = SimpleNamespace(member_id="m")
    group = SimpleNamespace(membership=SimpleNamespace(rebalances=2))
    vars(consumer).update(consumer_group_metadata=lambda: identity, _group=group)
    for identity.member_id, shown_state in (("m", "up"), ("", "init")):
        found = statistics.of_consumer(consumer, reached.get, stored, {})
        assert found["cgrp"] == {"state": shown_state, "rebalance_cnt": 2, "assignment_size": 3}


def test_partitions_are_in_order_of_topics_and_numbers() -> None:
    rows = [TopicPartition("t", 0, 9), TopicPartition("t", 1, 5), TopicPartition("u", 0, 1)]
    for low, high in itertools.combinations(rows, 2):
        assert (low < high, low <= high, low > high, low >= high, low == high) == (True, True, False, False, False)
        assert (high < low, high <= low, high > low, high >= low, high == low) == (False, False, True, True, False)
    same = TopicPartition("t", 0, 3)
    assert (rows[0] < same, rows[0] <= same, rows[0] > same, rows[0] >= same, rows[0] == same) == (False, True, False, True, True)
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        with pytest.raises(TypeError):
            compare(same, ("t", 0))
    assert same != ("t", 0)


def test_the_time_that_a_call_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("kafkacore.compat.confluent.admin.base.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    given, default, none = (Options("call", more, 7.0) for more in ({"request_timeout": 2}, {}, {"request_timeout": 0}))
    assert [each.left() for each in (given, default, none)] == [2.0, 7.0, 0.001]
    now_s[0] = 101.5
    assert [each.left() for each in (given, default, none)] == [0.5, 5.5, 0.001]
    for now_s[0] in (102.0, 103.0):
        with pytest.raises(errors.KafkaTimeoutError, match="took all of its time"):
            given.left()
