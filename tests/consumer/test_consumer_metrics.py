"""A consumer's metrics: counters by hand-moved clocks, and read from other threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.clock import JumpingClock
from kafkacore.consumer import KafkaConsumer
from kafkacore.consumer.consumer_metrics import all_names, lag_of
from kafkacore.consumer.fetcher import FetchMetrics
from kafkacore.consumer.group.stats import GroupStats
from kafkacore.consumer.subscription import FetchState, PartitionState
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.clusters import embedded
from tests.kit.inside import clock_of, driver_of
from tests.kit.records import numbered, take

A = TopicPartition("t", 0)
FETCH = "consumer-fetch-manager-metrics"


VALUES = numbered(1_000)
cluster = embedded({"t": [VALUES[::2], VALUES[1::2]]}, brokers=1, config={"group_initial_rebalance_delay_ms": 0})


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", clock=JumpingClock()) as made:
        yield made


def test_answers_are_sampled_with_what_was_handed_out_since_the_last() -> None:
    metrics = FetchMetrics()
    metrics.answered(40, 0, 1_000)
    metrics.records += 500
    metrics.answered(10, 7, 2_000)
    metrics.records += 100
    metrics.answered(10, 0, 3_000)
    assert (metrics.answers, metrics.latency_ms_sum, metrics.latency_ms_max) == (3, 60, 40)
    assert (metrics.latency_ms.avg(3_000), metrics.throttle_ms.max(3_000)) == (20, 7)
    assert (metrics.handed.avg(3_000), metrics.handed.rate(3_000)) == (200, 20)
    assert metrics.latency_ms.percentile(0.99, 3_000) == 40
    assert math.isnan(metrics.latency_ms.max(63_000))  # of the last minute only
    assert metrics.latency_ms_max == 40


def test_lag_goes_to_where_a_loop_is() -> None:
    state = PartitionState(A)
    assert lag_of(state, None, read_committed=False) is None
    state.state = FetchState.FETCHING
    state.offset, state.high_watermark, state.last_stable_offset = 50, 80, 60
    assert [lag_of(state, unread, read_committed=False) for unread in (None, 50, 20)] == [30, 30, 60]
    assert lag_of(state, 20, read_committed=True) == 40


def test_group_stats_follow_the_counts_of_an_engine() -> None:
    engine: Any = SimpleNamespace(heartbeats=0, rebalances=0, failed_rebalances=0, last_rebalance_ms=-1)
    stats = GroupStats()
    stats.look(engine, 1_000)
    assert (stats.heartbeats.count, stats.last_rebalance_ms) == (0, -1)
    engine.heartbeats, engine.rebalances, engine.last_rebalance_ms = 2, 1, 300
    stats.look(engine, 2_000)
    stats.look(engine, 5_000)
    engine.failed_rebalances = 1
    stats.look(engine, 6_000)
    assert (stats.heartbeats.count, stats.failed_rebalances.count) == (2, 1)
    assert (stats.rebalances_ms.avg(6_000), stats.last_rebalance_ms) == (300, 2_000)
    assert stats.heartbeats.count_rate(6_000) == 2 / 30


def test_partitions_have_lag_lead_bytes_and_records(consumer: KafkaConsumer) -> None:
    consumer.assign([A, ("t", 1)])
    consumer.seek(("t", 1), 490)
    take(consumer, 510)
    found = consumer.metrics(detail=True)
    first, second = found[f"{FETCH}.partition-t-0"], found[f"{FETCH}.partition-t-1"]
    assert (first["records-lag"], first["records-lead"], first["records-consumed-total"]) == (0, 500, 500)
    assert (second["records-lag"], second["records-lead"], second["records-consumed-total"]) == (0, 500, 10)
    assert first["bytes-consumed-total"] + second["bytes-consumed-total"] == found[FETCH]["bytes-consumed-total"] > 5_000
    assert (found[FETCH]["records-lag-max"], found[FETCH]["records-lead-min"]) == (0, 500)
    assert found[FETCH]["records-consumed-total"] == consumer.metrics()["records_consumed_total"] == 510
    assert found[FETCH]["fetch-latency-max"] >= found[FETCH]["fetch-latency-avg"] >= 0
    assert found["consumer-coordinator-metrics"] == {"assigned-partitions": 2}
    consumer.seek_to_beginning(A)
    for record in consumer:
        if record.partition == 0 and record.offset == 99:
            break
    assert consumer.metrics(detail=True)[f"{FETCH}.partition-t-0"]["records-lag"] == consumer.lag(A) == 400


def test_polls_are_timed(consumer: KafkaConsumer) -> None:
    consumer.assign([A])
    before = consumer.metrics(detail=True)["consumer-metrics"]
    assert before["last-poll-seconds-ago"] == -1
    assert math.isnan(before["time-between-poll-max"])
    clock = clock_of(consumer)
    assert isinstance(clock, JumpingClock)
    consumer.poll(0)
    clock.sleep(20_000)
    consumer.poll(0)
    clock.sleep(5_000)
    found = consumer.metrics(detail=True)["consumer-metrics"]
    assert 20_000 <= found["time-between-poll-max"] < 25_000
    assert 5 <= found["last-poll-seconds-ago"] < 20


def test_a_member_has_all_names_and_counts_its_group(cluster: EmbeddedCluster) -> None:
    with KafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=50
    ) as consumer:
        take(consumer, 1_000)
        consumer.commit()
        while consumer.metrics(detail=True)["consumer-coordinator-metrics"]["last-heartbeat-seconds-ago"] < 0:
            consumer.poll(0.05)
        found = consumer.metrics(detail=True)
        group = found["consumer-coordinator-metrics"]
        assert (group["rebalance-total"], group["failed-rebalance-total"], group["assigned-partitions"]) == (1, 0, 2)
        assert group["rebalance-latency-total"] == group["rebalance-latency-avg"] == group["rebalance-latency-max"] >= 0
        assert group["last-rebalance-seconds-ago"] >= 0
        assert group["commit-total"] >= 1
        assert group["commit-latency-max"] >= group["commit-latency-avg"] >= 0
        assert group["heartbeat-total"] >= 1
        assert group["heartbeat-rate"] > 0
        assert found["consumer-node-metrics.node-2147483646"]["connection-count"] == 1  # the coordinator's, which is broker 1
        assert {(one.group, one.name) for one in consumer.measured()} == {(one.group, one.name) for one in all_names()}


def test_another_thread_reads_while_a_call_runs(consumer: KafkaConsumer) -> None:
    consumer.assign([A])
    take(consumer, 500)
    got: list[Any] = []
    with driver_of(consumer):  # as inside a poll
        reader = threading.Thread(target=lambda: got.extend([consumer.metrics(), consumer.metrics(detail=True)]))
        reader.start()
        reader.join(30)
    assert got[0]["records_consumed_total"] == got[1][FETCH]["records-consumed-total"] == 500


def test_counts_of_nodes_outlive_a_network_that_was_given_up(consumer: KafkaConsumer) -> None:
    consumer.assign([A])
    take(consumer, 500)
    before = consumer.metrics(detail=True)["consumer-metrics"]
    with pytest.raises(KeyboardInterrupt), driver_of(consumer):
        raise KeyboardInterrupt
    consumer.seek(A, 0)
    after = consumer.metrics(detail=True)["consumer-metrics"]
    assert after["request-total"] == before["request-total"]
    assert (after["connection-count"], after["connection-close-total"]) == (0, before["connection-creation-total"])
    take(consumer, 500)
    assert consumer.metrics(detail=True)["consumer-metrics"]["request-total"] > before["request-total"]
