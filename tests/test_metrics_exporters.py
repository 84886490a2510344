"""Exporters for Prometheus and OpenTelemetry, with the real packages."""

from __future__ import annotations

import gc
import math
import re
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.consumer import KafkaConsumer, consumer_metrics
from kafkacore.metrics import is_counter, unit_of
from kafkacore.net.measure import Measured
from kafkacore.producer import KafkaProducer, producer_metrics
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.late import late
from tests.kit.rows import each_row

MeterProvider = late("opentelemetry.sdk.metrics:MeterProvider")
InMemoryMetricReader = late("opentelemetry.sdk.metrics.export:InMemoryMetricReader")
KafkaInstruments = late("kafkacore.metrics.opentelemetry:KafkaInstruments")
CollectorRegistry = late("prometheus_client:CollectorRegistry")
start_http_server = late("prometheus_client:start_http_server")
generate_openmetrics = late("prometheus_client.openmetrics.exposition:generate_latest")
parse_openmetrics = late("prometheus_client.openmetrics.parser:text_string_to_metric_families")
text_string_to_metric_families = late("prometheus_client.parser:text_string_to_metric_families")
KafkaCollector = late("kafkacore.metrics.prometheus:KafkaCollector")


class Scripted:
    """A client with values given by hand."""

    def __init__(self, client_id: str, *measured: Measured) -> None:
        self.config = SimpleNamespace(client_id=client_id)
        self.closed = False
        self.values = list(measured)
        self.reads = 0

    def measured(self) -> list[Measured]:
        self.reads += 1
        return self.values


cluster = embedded({"orders": 2})


@pytest.fixture
def clients(cluster: EmbeddedCluster) -> Iterator[tuple[KafkaProducer, KafkaConsumer]]:
    settings = {"bootstrap_servers": cluster.bootstrap_servers}
    with KafkaProducer(client_id="writer", **settings) as producer, KafkaConsumer(client_id="reader", **settings) as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek_to_end(("orders", 0))
        start = consumer.position(("orders", 0))
        producer.send_many("orders", [b"x" * 100] * 50, partitions=[0] * 50).result(30)
        while consumer.position(("orders", 0)) < start + 50:
            consumer.poll(10)
        yield producer, consumer


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_a_scrape_over_http(clients: tuple[KafkaProducer, KafkaConsumer]) -> None:
    registry = CollectorRegistry()
    registry.register(KafkaCollector(*clients))
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            found = families(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    (lag,) = found["kafka_consumer_fetch_manager_records_lag"].samples
    assert (lag.labels, lag.value) == ({"client_id": "reader", "topic": "orders", "partition": "0"}, 0)
    (records,) = found["kafka_consumer_fetch_manager_records_consumed"].samples
    assert (records.name, records.value) == ("kafka_consumer_fetch_manager_records_consumed_total", 50)
    (sent,) = found["kafka_producer_topic_record_send"].samples
    assert (sent.labels, sent.value) == ({"client_id": "writer", "topic": "orders"}, 50)
    assert found["kafka_producer_topic_record_send"].type == "counter"
    (of_partition,) = found["kafka_consumer_fetch_manager_partition_records_consumed"].samples
    assert of_partition.value == 50
    nodes = {sample.labels["node_id"] for sample in found["kafka_consumer_node_request_latency_p99_seconds"].samples}
    assert "node-1" in nodes
    assert found["kafka_producer_record_queue_time_max_seconds"].samples[0].value < 30


def test_prometheus_units_and_names() -> None:
    client = Scripted(
        "c",
        Measured("consumer-fetch-manager-metrics", "fetch-latency-avg", 250),
        Measured("consumer-coordinator-metrics", "rebalance-latency-total", 1_500),
        Measured("consumer-coordinator-metrics", "last-heartbeat-seconds-ago", 3),
        Measured("producer-metrics", "batch-size-avg", 700),
        Measured("producer-metrics", "buffer-total-bytes", 800),
        Measured("producer-metrics", "record-send-rate", math.nan),
    )
    found = {family.name: family for family in KafkaCollector(client).collect()}
    assert {name: family.samples[0].value for name, family in found.items() if not math.isnan(family.samples[0].value)} == {
        "kafka_consumer_fetch_manager_fetch_latency_avg_seconds": 0.25,
        "kafka_consumer_coordinator_rebalance_latency_seconds": 1.5,
        "kafka_consumer_coordinator_last_heartbeat_seconds_ago": 3,
        "kafka_producer_batch_size_avg_bytes": 700,
        "kafka_producer_buffer_total_bytes": 800,
    }
    assert math.isnan(found["kafka_producer_record_send_rate"].samples[0].value)


def test_everything_has_a_valid_name_and_the_strict_parser_takes_it() -> None:
    registry = CollectorRegistry()
    consumer, producer = Scripted("c", *consumer_metrics.all_names()), Scripted("p", *producer_metrics.all_names())
    registry.register(KafkaCollector(consumer, producer))
    parsed = list(parse_openmetrics(generate_openmetrics(registry).decode()))
    assert sum(len(family.samples) for family in parsed) == len(consumer.values) + len(producer.values)
    assert all(re.fullmatch(r"kafka_[a-z0-9_]+", family.name) for family in parsed)


def test_clients_are_told_apart_and_go_when_they_end() -> None:
    value = Measured("consumer-metrics", "connection-count", 1)
    first, second, named = Scripted("c", value), Scripted("c", value), Scripted("c", value)
    collector = KafkaCollector(first)
    assert first.reads == 0  # nothing is read before a scrape
    assert [collector.add(first), collector.add(second), collector.add(named, "mine")] == ["c", "c-2", "mine"]

    def ids() -> list[str]:
        return [sample.labels["client_id"] for family in collector.collect() for sample in family.samples]

    assert ids() == ["c", "c-2", "mine"]
    second.closed = True
    third = Scripted("c", value)
    assert [collector.add(third), collector.add(third, "other")] == ["c-2", "other"]  # the name of one that is closed is free
    assert ids() == ["c", "mine", "c-2", "other"]
    second, third.closed = third, True
    assert ids() == ["c", "mine"]
    collector.remove(named)
    assert ids() == ["c"]
    assert collector.add(first, "again") == "again"
    collector.remove(first)
    assert ids() == []
    collector.add(first)
    del first
    gc.collect()
    assert ids() == []
    assert collector.add(Scripted("c", value)) == "c"


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_opentelemetry_observes_clients(clients: tuple[KafkaProducer, KafkaConsumer]) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    KafkaInstruments(*clients, meter_provider=provider)
    found = points(reader)
    assert found["kafka.consumer.records_lag"] == [({"client-id": "reader", "topic": "orders", "partition": "0"}, 0)]
    assert ({"client-id": "reader"}, 50) in found["kafka.consumer.records_consumed_total"]
    assert found["kafka.producer.record_send_total"] == [({"client-id": "writer"}, 50), ({"client-id": "writer", "topic": "orders"}, 50)]
    assert "node-1" in [attributes.get("node-id") for attributes, _ in found["kafka.producer.request_latency_p99"]]
    provider.shutdown()


def test_opentelemetry_reads_once_per_collection_and_knows_units() -> None:
    client = Scripted("c", *consumer_metrics.all_names())
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    instruments = KafkaInstruments(meter_provider=provider)
    assert instruments.add(client) == "c"
    found = points(reader)
    assert client.reads == 1
    expected = {f"kafka.consumer.{one.name.replace('-', '_')}" for one in client.values if not math.isnan(one.value)}
    assert set(found) == expected
    values = [
        ("connection-count", 7, "1"),
        ("connection-creation-total", 8, "1"),
        ("request-latency-avg", 9, "ms"),
        ("fetch-size-max", 5, "By"),
    ]
    client.values = [Measured("consumer-metrics", name, value) for name, value, _ in values]
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    assert client.reads == 2
    seen = {metric.name: (metric.description, metric.unit, type(metric.data).__name__) for metric in scope.metrics}
    assert {name.rpartition(".")[2]: (unit, kind) for name, (_, unit, kind) in seen.items()} == {
        name.replace("-", "_"): (unit, "Sum" if name.endswith("-total") else "Gauge") for name, _, unit in values
    }
    assert seen["kafka.consumer.connection_count"][0].startswith("connection-count of Kafka's consumer-")
    assert points(reader)["kafka.consumer.connection_count"] == [({"client-id": "c"}, 7)]
    other = Scripted("d", client.values[0])
    assert instruments.add(other, "e") == "e"
    instruments.remove(client)
    assert points(reader)["kafka.consumer.connection_count"] == [({"client-id": "e"}, 7)]
    other.closed = True
    assert "kafka.consumer.connection_count" not in points(reader)
    provider.shutdown()


@each_row(
    ("name", "unit", "counter"),
    [
        ("fetch-latency-avg", "ms", False),
        ("rebalance-latency-total", "ms", True),
        ("last-poll-seconds-ago", "s", False),
        ("bytes-consumed-total", "bytes", True),
        ("outgoing-byte-rate", "", False),
        ("buffer-total-bytes", "bytes", False),
        ("records-lag", "", False),
        ("time-between-poll-avg", "ms", False),
        ("record-queue-time-max", "ms", False),
        ("batch-size-avg", "bytes", False),
        ("connection-creation-total", "", True),
        ("txn-commit-time-ns-total", "ns", True),
    ],
)
def test_units_follow_from_names(name: str, unit: str, counter: bool) -> None:
    assert (unit_of(name), is_counter(name)) == (unit, counter)
