"""Metrics of clients for Prometheus: a collector that reads them at each scrape (extra `prometheus`).

Names follow Prometheus' conventions: kafka_<group without -metrics>_<name> with underscores, times in seconds, the unit in the name, _total
for counters. Kafka's tags become labels, beside client_id:

    consumer-fetch-manager-metrics  records-lag        kafka_consumer_fetch_manager_records_lag{client_id, topic, partition}
    consumer-fetch-manager-metrics  fetch-latency-avg  kafka_consumer_fetch_manager_fetch_latency_avg_seconds{client_id}
    consumer-node-metrics           request-total      kafka_consumer_node_request_total{client_id, node_id}
    producer-metrics                batch-size-avg     kafka_producer_batch_size_avg_bytes{client_id}

In Kafka a client and its partitions have some names in common (bytes-consumed-total), which differ in their tags only. To keep sums right,
those of a partition are kafka_consumer_fetch_manager_partition_<name> here.

Source: https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kafkacore.metrics import Client, Clients, is_counter, unit_of
from kafkacore.net.measure import Measured

__all__ = ["KafkaCollector"]

_SHARED = frozenset({"bytes-consumed-total", "records-consumed-total"})  # of a client and of its partitions


class KafkaCollector(Collector):
    """Collects the metrics of consumers and producers; `registry.register(KafkaCollector(consumer))`.

    Args:
        *clients: consumers and producers, held by weak reference; more by `add`.

    Source: https://github.com/prometheus/client_python, custom collectors.
    """

    def __init__(self, *clients: Client) -> None:
        self._clients = Clients()
        for client in clients:
            self._clients.add(client)

    def add(self, client: Client, client_id: str | None = None) -> str:
        """Collects from a client, too.

        Args:
            client: a consumer or a producer.
            client_id: the label to give it; its setting client_id when None.

        Returns:
            The label, with a number where another open client of this kind has it already.
        """
        return self._clients.add(client, client_id)

    def remove(self, client: Client) -> None:
        """A client's values are no longer collected."""
        self._clients.remove(client)

    def describe(self) -> list[Metric]:
        """Nothing: a registry does not have to collect when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All values of all open clients, one family per name."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for client_id, one in self._clients.measured():
            name, scale = _name_of(one)
            family = families.get(name)
            if family is None:
                labels = ["client_id", *(tag.replace("-", "_") for tag, _ in one.tags)]
                text = f"{one.name} of Kafka's {one.group}"
                kind = CounterMetricFamily if is_counter(one.name) else GaugeMetricFamily
                family = families[name] = kind(name, text, labels=labels)
            family.add_metric([client_id, *(value for _, value in one.tags)], one.value * scale)
        yield from families.values()


def _name_of(one: Measured) -> tuple[str, float]:
    """The family's name, and what values are multiplied by."""
    group = one.group.removesuffix("-metrics")
    if one.name in _SHARED and one.tags:
        group += "-partition"
    name = one.name.removesuffix("-total")
    unit = unit_of(one.name)
    if unit == "ms":
        name += "-seconds"
    elif unit == "bytes" and "byte" not in name:
        name += "-bytes"
    if is_counter(one.name):
        name += "-total"
    return f"kafka_{group}_{name}".replace("-", "_"), 0.001 if unit == "ms" else 1
