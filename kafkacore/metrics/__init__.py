"""Exporters of clients' metrics: `kafkacore.metrics.prometheus` and `kafkacore.metrics.opentelemetry`, each an extra of the same name.

An exporter holds its clients by weak reference and reads them when it is asked, without a lock of theirs: a client without a reader pays
nothing, and one that is closed or collected is no longer exported. What clients measure is in `kafkacore.net.measure`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

from kafkacore.net.measure import Measured

__all__ = ["Client", "Clients", "is_counter", "unit_of"]


class _Config(Protocol):
    @property
    def client_id(self) -> str: ...


class Client(Protocol):
    """What is exported: a KafkaConsumer or a KafkaProducer."""

    @property
    def config(self) -> _Config: ...
    @property
    def closed(self) -> bool: ...
    def measured(self) -> list[Measured]:
        """All values now."""


class Clients:
    """The clients of one exporter, each under a client id of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[tuple[type, str], weakref.ref[Client]] = {}

    def add(self, client: Client, client_id: str | None = None) -> str:
        """Has a client exported.

        Args:
            client: a consumer or a producer; held by weak reference.
            client_id: the name to export it under; its setting client_id when None.

        Returns:
            The name. Where another open client of the same kind has it already, "-2", "-3", ... is added.
        """
        wanted = client.config.client_id if client_id is None else client_id
        kind = type(client)
        with self._lock:
            self._forget_ended()
            name, number = wanted, 1
            while (kind, name) in self._by_id:
                if self._by_id[kind, name]() is client:
                    return name
                number += 1
                name = f"{wanted}-{number}"
            self._by_id[kind, name] = weakref.ref(client)
        return name

    def remove(self, client: Client) -> None:
        """A client is no longer exported."""
        with self._lock:
            for key in [key for key, ref in self._by_id.items() if ref() is client]:
                del self._by_id[key]

    def _forget_ended(self) -> None:
        for key, ref in list(self._by_id.items()):
            client = ref()
            if client is None or client.closed:
                del self._by_id[key]

    def measured(self) -> Iterator[tuple[str, Measured]]:
        """(client id, value) of all open clients."""
        with self._lock:
            self._forget_ended()
            clients = [(name, client) for (_, name), ref in self._by_id.items() if (client := ref()) is not None]
        for name, client in clients:
            for one in client.measured():
                yield name, one


def is_counter(name: str) -> bool:
    """True for what only grows, as Kafka names it."""
    return name.endswith("-total")


def unit_of(name: str) -> str:
    """The unit of a metric: "ns", "ms", "s", "bytes" or "" for plain numbers and rates."""
    if "-time-ns-" in name:
        return "ns"
    if "-seconds-" in name:
        return "s"
    if "-rate" in name:
        return ""
    if "latency" in name or "-time-" in name or "time-between" in name:
        return "ms"
    if "byte" in name or name.startswith(("batch-size", "request-size", "fetch-size")):
        return "bytes"
    return ""
