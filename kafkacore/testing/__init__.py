"""Kafka for tests without Kafka: a real broker on loopback, in this process.

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=4)
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

The pytest plugin `kafkacore.testing.plugin` gives the fixtures `kafka_cluster` and `kafka_topic`; installing kafkacore registers it. pytest
then loads this package in every run, so the names of `__all__`, and the broker behind them, are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacore.broker.faults import Delay, Disconnect, Drop
    from kafkacore.testing.cluster import EmbeddedCluster
    from kafkacore.testing.network import CLIENTS, CONTROLLER, Network

__all__ = ["CLIENTS", "CONTROLLER", "Delay", "Disconnect", "Drop", "EmbeddedCluster", "Network"]

_HOMES = {
    "EmbeddedCluster": "kafkacore.testing.cluster",
    **dict.fromkeys(("Delay", "Disconnect", "Drop"), "kafkacore.broker.faults"),
    **dict.fromkeys(("CLIENTS", "CONTROLLER", "Network"), "kafkacore.testing.network"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
