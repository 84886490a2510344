"""Metrics of clients for OpenTelemetry: observable instruments, read when a reader collects (extra `opentelemetry`).

Names are those of OpenTelemetry's bridge for Kafka's Java clients: kafka.consumer.<name> and kafka.producer.<name> with underscores,
Kafka's units (ms, By), attributes client-id, node-id, topic, partition. Where two groups have the same name, attributes tell them apart, so
a sum needs a filter, as there:

    consumer-fetch-manager-metrics  records-lag    kafka.consumer.records_lag    client-id, topic, partition
    consumer-node-metrics           request-total  kafka.consumer.request_total  client-id, node-id

Source: opentelemetry-java-instrumentation, kafka-clients: OpenTelemetryMetricsReporter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from kafkacore.consumer import consumer_metrics
from kafkacore.metrics import Client, Clients, is_counter, unit_of
from kafkacore.net.measure import Measured
from kafkacore.producer import producer_metrics

__all__ = ["KafkaInstruments"]

_UCUM = {"ns": "ns", "ms": "ms", "s": "s", "bytes": "By", "": "1"}


class KafkaInstruments:
    """Makes an observable instrument for each metric that consumers and producers have.

    OpenTelemetry takes no instrument back and holds this object by its callbacks, so one for each meter provider does for a whole program;
    clients come and go by `add`, and are held by weak reference.

    Args:
        *clients: consumers and producers; more by `add`.
        meter_provider: the program's when None.

    Source: opentelemetry-java-instrumentation's OpenTelemetryMetricsReporter.
    """

    def __init__(self, *clients: Client, meter_provider: MeterProvider | None = None) -> None:
        self._clients = Clients()
        self._lock = threading.Lock()
        self._observed: dict[str, list[Observation]] = {}
        self._asked: set[str] | None = None  # which instruments have had what is in `_observed`
        for client in clients:
            self._clients.add(client)
        self._make_instruments(get_meter("kafkacore", meter_provider=meter_provider))

    def add(self, client: Client, client_id: str | None = None) -> str:
        """Observes a client, too.

        Args:
            client: a consumer or a producer.
            client_id: the attribute to give it; its setting client_id when None.

        Returns:
            The attribute, with a number where another open client of this kind has it already.
        """
        return self._clients.add(client, client_id)

    def remove(self, client: Client) -> None:
        """A client is no longer observed."""
        self._clients.remove(client)

    def _make_instruments(self, meter: Meter) -> None:
        """All of them at once: while a reader collects, none can be made."""
        made: set[str] = set()
        for one in (*consumer_metrics.all_names(), *producer_metrics.all_names()):
            name = _name_of(one)
            if name not in made:
                made.add(name)
                create = meter.create_observable_counter if is_counter(one.name) else meter.create_observable_gauge
                create(name, [self._observer(name)], unit=_UCUM[unit_of(one.name)], description=f"{one.name} of Kafka's {one.group}")

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self._observe(name)

    def _observe(self, name: str) -> Iterable[Observation]:
        """What is to be observed under a name. A reader asks for each once; the first that is asked for again begins another reading."""
        with self._lock:
            if self._asked is None or name in self._asked:
                self._asked = set()
                self._observed = self._read()
            self._asked.add(name)
            return self._observed.get(name, ())

    def _read(self) -> dict[str, list[Observation]]:
        found: dict[str, list[Observation]] = {}
        for client_id, one in self._clients.measured():
            if not math.isnan(one.value):
                found.setdefault(_name_of(one), []).append(Observation(one.value, {"client-id": client_id, **dict(one.tags)}))
        return found


def _name_of(one: Measured) -> str:
    return f"kafka.{one.group.partition('-')[0]}.{one.name.replace('-', '_')}"
