"""What a client measures: windows of values, nodes, and their names. All clocks are moved by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacore import protocol
from kafkacore._codec import NodeStats, SampledStat
from kafkacore.net.measure import Measured, NetworkStats, dotted_group, grouped, of_network, seconds_since
from tests.kit.reached import Reached
from tests.net.net_support import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


def test_a_window_holds_the_last_30_to_60_seconds() -> None:
    stat = SampledStat()
    stat.record(10, 1_000)
    stat.record(30, 2_000)
    assert (stat.avg(2_000), stat.max(2_000), stat.count, stat.total) == (20, 30, 2, 40)
    stat.record(6, 31_000)  # another sample: the first is 30 s old
    assert (stat.avg(31_000), stat.max(31_000)) == (46 / 3, 30)
    assert stat.max(60_999) == 30
    assert (stat.avg(61_000), stat.max(61_000)) == (6, 6)  # the first sample is 60 s old
    assert math.isnan(stat.avg(91_000))
    assert math.isnan(stat.max(91_000))
    assert stat.rate(91_000) == stat.count_rate(91_000) == 0
    stat.record(-5, 200_000)
    assert (stat.max(200_000), stat.count, stat.total) == (-5, 4, 41)


def test_a_rate_is_over_the_window_and_at_least_30_seconds() -> None:
    stat = SampledStat()
    stat.record(60, 0)
    assert (stat.rate(0), stat.count_rate(0)) == (2, 1 / 30)
    stat.record(60, 20_000)
    assert stat.rate(40_000) == 3
    stat.record(30, 50_000)
    assert stat.rate(50_000) == 3
    assert stat.rate(60_000) == 1  # only the last is left


def test_marks_measure_what_is_between_them() -> None:
    stat = SampledStat()
    assert stat.last_ms == -1
    for now_ms in (500, 800, 900):
        stat.mark(now_ms)
    assert (stat.count, stat.avg(900), stat.max(900), stat.last_ms) == (2, 200, 300, 900)
    with pytest.raises(ValueError, match="percentiles"):
        stat.percentile(0.5, 0)


class StatModel:
    """Kafka's SampledStat with two samples, as lists."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, list[int]]] = []

    def record(self, value: int, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1][0] >= 30_000:
            self.samples.append((now_ms, []))
        self.samples[-1][1].append(value)

    def values(self, now_ms: int) -> list[int]:
        return [v for begin_ms, values in self.samples[-2:] if now_ms - begin_ms < 60_000 for v in values]


windows = Reached("two samples", "an older sample does not count", "a value for the last bucket", "nothing is left")


@partial(windows.by, rounds=4)
@settings(max_examples=25)
@example([(0, 15 << 16), (0, 2_000_000), (0, (15 << 16) - 1)], 0)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 9_999, 15_000, 30_000]),
            st.integers(0, 2_000_000) | st.sampled_from([0, 1, 50, (15 << 16) - 1, 15 << 16, 2_000_000]),
        ),
        max_size=60,
    ),
    st.sampled_from([0, 1, 29_999, 30_000, 59_999, 60_000]),
)
def test_windows_and_percentiles_are_those_of_a_model(steps: list[tuple[int, int]], later_ms: int) -> None:
    stat, model, now_ms = SampledStat(True), StatModel(), 0
    for ms, value in steps:
        now_ms += ms
        stat.record(value, now_ms)
        model.record(value, now_ms)
    now_ms += later_ms
    values = sorted(model.values(now_ms))
    ages_ms = [now_ms - begin_ms for begin_ms, _ in model.samples]
    windows("two samples", sum(age_ms < 60_000 for age_ms in ages_ms[-2:]) == 2)
    windows("an older sample does not count", values and len(ages_ms) > 1 and ages_ms[-2] >= 60_000)
    windows("a value for the last bucket", values and values[-1] >= 15 << 16)
    windows("nothing is left", steps and not values)
    assert stat.count == len(steps)
    if not values:
        assert math.isnan(stat.max(now_ms))
        assert math.isnan(stat.percentile(0.99, now_ms))
        return
    assert stat.max(now_ms) == values[-1]
    assert stat.avg(now_ms) == pytest.approx(sum(values) / len(values))
    for part in (0.0, 0.5, 0.99, 1.0):
        exact = values[max(1, math.ceil(part * len(values) - 1e-6)) - 1]
        found = stat.percentile(part, now_ms)
        if exact < 15 << 16:
            assert exact <= found <= exact * 1.125
        else:
            assert found == values[-1]  # the last bucket is for all that is larger


def test_requests_answers_and_throttling_are_counted_by_node(cluster: Cluster) -> None:
    cluster.until_ready()
    stats = cluster.client.node_stats[1]
    before, sent, received = stats.sent_bytes.count, stats.sent_bytes.total, stats.received_bytes.total
    cluster.send()
    cluster.serve()
    header = cluster.peer().requests[-1][0]
    cluster.clock.advance(40)
    cluster.peer().answer(header, protocol.ProduceResponse(throttle_time_ms=700))
    cluster.poll()
    assert stats.sent_bytes.count == stats.received_bytes.count == stats.latency_ms.count == before + 1
    assert stats.sent_bytes.total - sent > 20
    assert stats.received_bytes.total - received > 8
    assert stats.latency_ms.max(cluster.now_ms) == 40
    assert stats.throttle_ms.max(cluster.now_ms) == 700
    found = grouped(of_network(NetworkStats.of(cluster.client), "consumer", cluster.now_ms))
    node = found["consumer-node-metrics.node-1"]
    assert node["request-latency-max"] == node["request-latency-p99"] == 40
    assert node["request-latency-avg"] == 40 / stats.latency_ms.count
    assert node["throttle-time-max"] == 700
    assert node["request-total"] == node["response-total"]
    assert found["consumer-metrics"]["request-total"] == node["request-total"] + _of_other_nodes(found, "request-total")
    assert node["outgoing-byte-total"] == stats.sent_bytes.total
    assert node["connection-count"] == 1
    silent = grouped(of_network(NetworkStats({5: NodeStats()}, 0), "producer", 0))["producer-node-metrics.node-5"]
    assert silent["request-total"] == silent["request-rate"] == silent["connection-count"] == 0
    assert math.isnan(silent["request-latency-avg"])


def _of_other_nodes(found: dict[str, dict[str, float]], name: str) -> float:
    return sum(values[name] for group, values in found.items() if ".node-" in group and not group.endswith(".node-1"))


def test_connections_are_counted_where_they_open_and_end(cluster: Cluster) -> None:
    node = cluster.until_ready()
    stats = cluster.client.node_stats[node.id]
    assert (stats.connections_opened, stats.connections_closed) == (1, 0)
    cluster.peer().close()
    cluster.poll()
    assert (stats.connections_opened, stats.connections_closed) == (1, 1)
    cluster.clock.advance(60_000)
    cluster.until_ready()
    assert (stats.connections_opened, stats.connections_closed) == (2, 1)
    cluster.client.close(node.id)
    cluster.poll()
    assert cluster.client.node_stats[node.id] is stats  # outlives what the client knows of the connection
    assert (stats.connections_opened, stats.connections_closed) == (2, 2)
    cluster.client.ready(node, cluster.now_ms)
    cluster.client.disconnect(node.id)  # an attempt only
    assert stats.connections_closed == 2


def test_a_moment_that_never_came_was_minus_one_second_ago() -> None:
    assert [seconds_since(then_ms, 2_500) for then_ms in (-1, 0, 500, 2_500)] == [-1.0, 2.5, 2.0, 0.0]


def test_a_client_s_numbers_are_the_sums_of_its_nodes() -> None:
    nodes = {1: NodeStats(), 2: NodeStats()}
    for node_id, stats in nodes.items():
        stats.connections_closed, stats.failed_authentications = 2 * node_id, node_id
        for _ in range(5 * node_id):
            stats.opened.record(1, 0)
        for _ in range(node_id):
            stats.sent_bytes.record(100, 0)
            stats.received_bytes.record(1_000, 0)
    found = grouped(of_network(NetworkStats(nodes, 7), "producer", 0))
    for group, share in (("producer-metrics", 3), ("producer-node-metrics.node-1", 1), ("producer-node-metrics.node-2", 2)):
        wanted = {
            "connection-count": 3,
            "connection-creation-rate": 5 / 30,
            "connection-creation-total": 5,
            "connection-close-total": 2,
            "failed-authentication-total": 1,
            "request-rate": 1 / 30,
            "request-total": 1,
            "outgoing-byte-rate": 100 / 30,
            "outgoing-byte-total": 100,
            "response-rate": 1 / 30,
            "response-total": 1,
            "incoming-byte-rate": 1_000 / 30,
            "incoming-byte-total": 1_000,
        }
        assert {name: found[group][name] for name in wanted} == pytest.approx({name: share * value for name, value in wanted.items()})
    assert found["producer-metrics"]["requests-in-flight"] == 7


def test_groups_are_dotted_by_tags() -> None:
    measured = [
        Measured("g-metrics", "a", 1),
        Measured("g-metrics", "a", 2, (("node-id", "node--1"),)),
        Measured("g-metrics", "a", 3, (("topic", "x.y-0"), ("partition", "7"))),
        Measured("g-metrics", "a", 4, (("topic", "x.y-0-7"),)),
    ]
    assert [dotted_group(one) for one in measured] == [
        "g-metrics",
        "g-metrics.node--1",
        "g-metrics.partition-x.y-0-7",
        "g-metrics.topic-x.y-0-7",
    ]
    assert sum(len(values) for values in grouped(measured).values()) == 4
