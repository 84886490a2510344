"""A consumer's metrics under Kafka's names, put together when they are read.

Source: Kafka's FetchMetricsRegistry, ConsumerCoordinatorMetrics, HeartbeatMetricsManager, RebalanceMetricsManager, KafkaConsumerMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafkacore._codec import NodeStats, SampledStat
from kafkacore.consumer.fetcher import FetchMetrics
from kafkacore.consumer.group.membership import Membership
from kafkacore.consumer.group.stats import GroupStats
from kafkacore.consumer.subscription import FetchState, PartitionState
from kafkacore.net.measure import SECONDS_PER_HOUR, Measured, NetworkStats, average_and_most, events, of_network, seconds_since
from kafkacore.types import TopicPartition

FETCH = "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"
CONSUMER = "consumer-metrics"


class GroupCounts(NamedTuple):
    """What a member of a group counts.

    Attributes:
        membership: the engine.
        stats: what was seen of its counts.
        commits_ms: how long commits took.
    """

    membership: Membership
    stats: GroupStats
    commits_ms: SampledStat


def of_consumer(
    network: NetworkStats,
    fetches: FetchMetrics,
    partitions: dict[TopicPartition, PartitionState],
    polls: SampledStat,
    group: GroupCounts | None,
    unread: Mapping[TopicPartition, int],
    now_ms: int,
    *,
    read_committed: bool,
) -> Iterator[Measured]:
    """Everything a consumer measures.

    Args:
        network: what its network counts.
        fetches: the fetcher's counters.
        partitions: what is assigned.
        polls: a mark per poll.
        group: of its part in a group, None without one.
        unread: what a `for` loop has in hand and did not reach: from which offset on, per partition.
        now_ms: the time.
        read_committed: the lag goes to the last stable offset.
    """
    states = list(partitions.items())
    lags = [lag_of(state, unread.get(tp), read_committed=read_committed) for tp, state in states]
    leads = [_lead(state, unread.get(tp)) for tp, state in states]
    for name, value in _of_fetches(fetches, now_ms):
        yield Measured(FETCH, name, value)
    yield Measured(FETCH, "records-lag-max", max((lag for lag in lags if lag is not None), default=float("nan")))
    yield Measured(FETCH, "records-lead-min", min((lead for lead in leads if lead is not None), default=float("nan")))
    for (tp, state), lag, lead in zip(states, lags, leads, strict=True):
        tags = (("topic", tp.topic), ("partition", str(tp.partition)))
        if lag is not None:
            yield Measured(FETCH, "records-lag", lag, tags)
        if lead is not None:
            yield Measured(FETCH, "records-lead", lead, tags)
        yield Measured(FETCH, "bytes-consumed-total", state.fetched_bytes, tags)
        yield Measured(FETCH, "records-consumed-total", state.handed_records, tags)
        yield Measured(FETCH, "preferred-read-replica", state.preferred_replica, tags)
    for name, value in average_and_most("time-between-poll", polls, now_ms):
        yield Measured(CONSUMER, name, value)
    yield Measured(CONSUMER, "last-poll-seconds-ago", seconds_since(polls.last_ms, now_ms))
    yield Measured(COORDINATOR, "assigned-partitions", len(states))
    if group is not None:
        for name, value in _of_group(group, now_ms):
            yield Measured(COORDINATOR, name, value)
    yield from of_network(network, "consumer", now_ms)


def lag_of(state: PartitionState, unread: int | None, *, read_committed: bool) -> int | None:
    """Records from the application's position to the end, None while that is not known.

    Args:
        state: of the partition.
        unread: the first offset that a `for` loop has in hand and did not reach, None for none.
        read_committed: the end is the last stable offset.
    """
    lag = state.lag(read_committed)
    return lag if lag is None or unread is None else max(0, lag + state.offset - unread)


def _lead(state: PartitionState, unread: int | None) -> int | None:
    """Records from the start of the log to the application's position: how far retention is from deleting what is not read yet."""
    if state.log_start_offset < 0 or not state.has_position:
        return None
    return max(0, (state.offset if unread is None else unread) - state.log_start_offset)


def _of_fetches(fetches: FetchMetrics, now_ms: int) -> Iterator[tuple[str, float]]:
    yield from average_and_most("fetch-latency", fetches.latency_ms, now_ms)
    yield "fetch-latency-p99", fetches.latency_ms.percentile(0.99, now_ms)
    yield "fetch-rate", fetches.latency_ms.count_rate(now_ms)
    yield "fetch-total", fetches.fetches
    yield "fetch-error-total", fetches.errors
    yield from average_and_most("fetch-size", fetches.answer_bytes, now_ms)
    yield from average_and_most("fetch-throttle-time", fetches.throttle_ms, now_ms)
    yield "bytes-consumed-rate", fetches.answer_bytes.rate(now_ms)
    yield "bytes-consumed-total", fetches.bytes
    yield "records-per-request-avg", fetches.handed.avg(now_ms)
    yield "records-consumed-rate", fetches.handed.rate(now_ms)
    yield "records-consumed-total", fetches.records


def _of_group(group: GroupCounts, now_ms: int) -> Iterator[tuple[str, float]]:
    membership, stats = group.membership, group.stats
    yield from average_and_most("commit-latency", group.commits_ms, now_ms)
    yield from events("commit", group.commits_ms, now_ms)
    yield "heartbeat-rate", stats.heartbeats.count_rate(now_ms)
    yield "heartbeat-total", membership.heartbeats
    yield "last-heartbeat-seconds-ago", seconds_since(membership.last_heartbeat_ms, now_ms)
    yield from average_and_most("rebalance-latency", stats.rebalances_ms, now_ms)
    yield "rebalance-latency-total", membership.rebalance_ms_sum
    yield "rebalance-total", membership.rebalances
    yield "rebalance-rate-per-hour", stats.rebalances_ms.count_rate(now_ms) * SECONDS_PER_HOUR
    yield "failed-rebalance-total", membership.failed_rebalances
    yield "failed-rebalance-rate-per-hour", stats.failed_rebalances.count_rate(now_ms) * SECONDS_PER_HOUR
    yield "last-rebalance-seconds-ago", seconds_since(stats.last_rebalance_ms, now_ms)


def totals(metrics: FetchMetrics, states: list[PartitionState], *, read_committed: bool) -> dict[str, float]:
    """The short list: counters since the start, and the largest lag."""
    lags = [lag for state in states if (lag := state.lag(read_committed)) is not None]
    return {
        "fetch_total": metrics.fetches,
        "fetch_full_total": metrics.full_fetches,
        "fetch_error_total": metrics.errors,
        "fetch_latency_avg": metrics.latency_ms_sum / metrics.answers if metrics.answers else 0.0,
        "fetch_latency_max": metrics.latency_ms_max,
        "bytes_consumed_total": metrics.bytes,
        "records_consumed_total": metrics.records,
        "records_lag_max": max(lags, default=0),
        "assigned_partitions": len(states),
    }


class _NoCounts:
    """The counts of a membership that has done nothing."""

    heartbeats = rebalances = failed_rebalances = rebalance_ms_sum = 0
    last_heartbeat_ms = -1


def all_names() -> list[Measured]:
    """One of each value that a consumer may have, for exporters that have to know names before there are values."""
    state = PartitionState(TopicPartition("", 0))
    state.state = FetchState.FETCHING
    state.offset = state.high_watermark = state.log_start_offset = 0
    membership: Any = _NoCounts()
    group = GroupCounts(membership, GroupStats(), SampledStat())
    network = NetworkStats({0: NodeStats()}, 0)
    return list(of_consumer(network, FetchMetrics(), {state.tp: state}, SampledStat(), group, {}, 0, read_committed=False))
