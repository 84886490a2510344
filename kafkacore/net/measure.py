"""What clients measure, under Kafka's names: one value with its group and tags, and the groups that all clients share.

Kafka names a metric by group, name and tags. Tags here: node-id, topic, partition. `grouped` makes dotted groups of them for people:

    consumer-fetch-manager-metrics                        of the client
    consumer-node-metrics.node-1                          of one node; the group coordinator's connection has a node id of its own
    producer-topic-metrics.topic-orders                   of one topic
    consumer-fetch-manager-metrics.partition-orders-0     of one partition

Averages, maxima, percentiles and rates are of the last 30 to 60 s (`SampledStat`), NaN without values; names that end in -total count since
the client was made. Everything is read without a lock, from any thread: containers that others change are copied in one step first.

Source: Kafka's MetricName, SelectorMetricsRegistry (org.apache.kafka.common.network.Selector.SelectorMetrics).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkacore._codec import NodeStats, SampledStat
from kafkacore.net.client import NetworkClient

SECONDS_PER_HOUR = 3600


class Measured(NamedTuple):
    """One value.

    Attributes:
        group: Kafka's, for example consumer-fetch-manager-metrics.
        name: Kafka's, for example records-lag.
        value: a number, NaN where nothing was measured.
        tags: (name, value) pairs in Kafka's words.
    """

    group: str
    name: str
    value: float
    tags: tuple[tuple[str, str], ...] = ()


def grouped(measured: Iterable[Measured]) -> dict[str, dict[str, float]]:
    """Values by dotted group and name."""
    found: dict[str, dict[str, float]] = {}
    for one in measured:
        found.setdefault(dotted_group(one), {})[one.name] = one.value
    return found


def dotted_group(one: Measured) -> str:
    """The group with the tags behind a dot."""
    tags = dict(one.tags)
    if "node-id" in tags:
        return f"{one.group}.{tags['node-id']}"
    if "partition" in tags:
        return f"{one.group}.partition-{tags['topic']}-{tags['partition']}"
    return f"{one.group}.topic-{tags['topic']}" if tags else one.group


def average_and_most(name: str, stat: SampledStat, now_ms: int) -> Iterator[tuple[str, float]]:
    """name-avg and name-max."""
    yield f"{name}-avg", stat.avg(now_ms)
    yield f"{name}-max", stat.max(now_ms)


def events(name: str, stat: SampledStat, now_ms: int) -> Iterator[tuple[str, float]]:
    """name-rate and name-total of what happens one at a time."""
    yield f"{name}-rate", stat.count_rate(now_ms)
    yield f"{name}-total", stat.count


def amounts(name: str, stat: SampledStat, now_ms: int) -> Iterator[tuple[str, float]]:
    """name-rate and name-total of what comes in amounts: bytes, records."""
    yield f"{name}-rate", stat.rate(now_ms)
    yield f"{name}-total", stat.total


def seconds_since(then_ms: int, now_ms: int) -> float:
    """-1 when it never happened."""
    return (now_ms - then_ms) / 1000 if then_ms >= 0 else -1.0


def of_node(stats: NodeStats, now_ms: int) -> Iterator[tuple[str, float]]:
    """Requests, answers, throttling and connections of one node. The percentile and what a node throttles are not Kafka's."""
    yield from events("request", stats.sent_bytes, now_ms)
    yield from average_and_most("request-size", stats.sent_bytes, now_ms)
    yield from amounts("outgoing-byte", stats.sent_bytes, now_ms)
    yield from events("response", stats.received_bytes, now_ms)
    yield from amounts("incoming-byte", stats.received_bytes, now_ms)
    yield from average_and_most("request-latency", stats.latency_ms, now_ms)
    yield "request-latency-p99", stats.latency_ms.percentile(0.99, now_ms)
    yield from average_and_most("throttle-time", stats.throttle_ms, now_ms)
    yield from of_connections([stats], now_ms)


def of_connections(nodes: list[NodeStats], now_ms: int) -> Iterator[tuple[str, float]]:
    """Connections to these nodes."""
    opened = sum(stats.connections_opened for stats in nodes)
    closed = sum(stats.connections_closed for stats in nodes)
    yield "connection-count", opened - closed
    yield "connection-creation-rate", sum(stats.opened.count_rate(now_ms) for stats in nodes)
    yield "connection-creation-total", opened
    yield "connection-close-total", closed
    yield "failed-authentication-total", sum(stats.failed_authentications for stats in nodes)


class NetworkStats(NamedTuple):
    """What a network client counts.

    Attributes:
        nodes: by node id.
        requests_in_flight: now.
    """

    nodes: dict[int, NodeStats]
    requests_in_flight: int

    @classmethod
    def of(cls, client: NetworkClient) -> NetworkStats:
        return cls(client.node_stats.copy(), client.in_flight.count)


def of_network(network: NetworkStats, kind: str, now_ms: int) -> Iterator[Measured]:
    """What every client has of its network.

    Args:
        network: what it counts.
        kind: consumer or producer, as groups begin.
        now_ms: the time.
    """
    nodes = list(network.nodes.values())
    group = f"{kind}-metrics"
    for name, value in of_connections(nodes, now_ms):
        yield Measured(group, name, value)
    yield Measured(group, "request-rate", sum(stats.sent_bytes.count_rate(now_ms) for stats in nodes))
    yield Measured(group, "request-total", sum(stats.sent_bytes.count for stats in nodes))
    yield Measured(group, "outgoing-byte-rate", sum(stats.sent_bytes.rate(now_ms) for stats in nodes))
    yield Measured(group, "outgoing-byte-total", sum(stats.sent_bytes.total for stats in nodes))
    yield Measured(group, "response-rate", sum(stats.received_bytes.count_rate(now_ms) for stats in nodes))
    yield Measured(group, "response-total", sum(stats.received_bytes.count for stats in nodes))
    yield Measured(group, "incoming-byte-rate", sum(stats.received_bytes.rate(now_ms) for stats in nodes))
    yield Measured(group, "incoming-byte-total", sum(stats.received_bytes.total for stats in nodes))
    yield Measured(group, "requests-in-flight", network.requests_in_flight)
    for node_id, stats in network.nodes.items():
        tags = (("node-id", f"node-{node_id}"),)
        for name, value in of_node(stats, now_ms):
            yield Measured(f"{kind}-node-metrics", name, value, tags)
