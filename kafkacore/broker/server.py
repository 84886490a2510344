"""Broker: the server of a broker's APIs, its state and its place in the cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.faults import Control, Delay, Disconnect, Drop, Fault
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.broker.socket_server import Server
from kafkacore.broker.state import BrokerState
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.timer import TimerTask
from kafkacore.types import Node

__all__ = ["Broker", "Control", "Delay", "Disconnect", "Drop", "Fault"]

logger = logging.getLogger(__name__)


class Broker(Server):
    """One broker of a cluster.

    Example:
        broker = Broker(BrokerConfig(num_partitions=4), port=9092)
        broker.serve_forever()
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        node_id: int = 1,
        cluster: ClusterImage | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        log_dirs: Sequence[str | os.PathLike[str]] | None = None,
        api_versions: Mapping[int, tuple[int, int]] = API_VERSIONS,
        clock: Clock | None = None,
    ) -> None:
        """Prepares a broker and opens its logs; `start` opens the port.

        Args:
            config: settings; Kafka's defaults if left out.
            node_id: its id in the cluster.
            cluster: the image it shares with others; its own if left out.
            host: the address to listen on and to tell clients.
            port: 0 lets the system choose; the choice holds for every later start.
            log_dirs: directories for the logs, in Kafka's format; None keeps them in memory.
            api_versions: what ApiVersions advertises, (min, max) by API key; at most what is served.
            clock: the time.

        Raises:
            UsageError: api_versions promises what is not served, or leaves out ApiVersions itself; a log directory is in use.
            KafkaStorage: no log directory can be used.
        """
        config = config or BrokerConfig()
        super().__init__(SERVED, config, name=f"broker {node_id}", host=host, port=port, api_versions=api_versions, clock=clock)
        self.node_id = node_id
        self.cluster = cluster or ClusterImage(config)
        self.state: BrokerState = BrokerState(
            config, node_id, self.cluster, self.api_versions, self.clock, log_dirs=log_dirs, post=self.post
        )
        self.clocked = self.state.clocked
        self.peers = self.state.peers
        self._retention: TimerTask | None = None

    def _prepare(self) -> None:
        self.state.prepare()

    def _registered(self) -> None:
        self.cluster.register_broker(Node(self.node_id, self.host, self.port, self.config.broker_rack))

    def _began(self) -> None:
        self._plan_retention()
        self.state.started()

    def _plan_retention(self) -> None:
        self._retention = TimerTask(self.config.log_retention_check_interval_ms, self._apply_retention)
        self.state.timer.add(self._retention)

    def _apply_retention(self) -> None:
        self._plan_retention()
        self.state.replicas.clean_up(self.clock.wall_ms(), self.config.producer_id_expiration_ms)

    def _ending(self) -> None:
        if self._retention is not None:
            self._retention.cancel()
        self.state.stopping()
        self.state.cancel_waits()
        self.state.sessions.clear()
        self.cluster.unregister_broker(self.node_id)
        self.state.worker.stop()

    def _ended(self) -> None:
        self.state.ended()

    def stop(self) -> None:
        """Closes the port and all connections, ends the thread and closes the logs; the data stays.

        Raises:
            KafkaTimeoutError: the thread is stuck in a control function.
        """
        super().stop()
        if self._owner_pid == os.getpid():
            self.state.ended()  # of a broker that was never started

    def statistics(self) -> dict[str, int]:
        """Counts of what the broker holds: connections, waiting fetches and produces, fetch sessions, partitions, log bytes."""
        return self.call(
            lambda: {
                "connections": self.num_connections(),
                "waiting_fetches": self.state.fetches.num_delayed(),
                "waiting_produces": self.state.produces.num_delayed(),
                "fetch_sessions": len(self.state.sessions),
                "partitions": len(self.state.replicas.partitions),
                "log_bytes": sum(partition.log.size_bytes for partition in self.state.replicas.partitions.values()),
            }
        )
