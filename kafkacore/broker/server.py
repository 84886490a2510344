"""Broker: the server of a broker's APIs, its state and its place in the cluster."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from kafkacore.broker.authentication import Authentication
from kafkacore.broker.cluster import FEATURES, ClusterImage
from kafkacore.broker.configs import check_started
from kafkacore.broker.controller.access import ControllerAddress
from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.link import ControllerLink, LocalControllerLink
from kafkacore.broker.controller.log import CONTROLLER_ID
from kafkacore.broker.controller.remote import RemoteControllerLink
from kafkacore.broker.emulation import API_VERSIONS_KEY, NEWEST, emulation
from kafkacore.broker.faults import Control, Delay, Disconnect, Drop, Fault
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.broker.socket_server import Server
from kafkacore.broker.state import BrokerState
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.config_broker_tls import broker_contexts, same_tls, tls_of
from kafkacore.config_listeners import LOOPBACK, inter_broker, joined, listeners_of
from kafkacore.errors import ConfigError, KafkaStorage
from kafkacore.timer import TimerTask
from kafkacore.types import Node

__all__ = ["Broker", "Control", "Delay", "Disconnect", "Drop", "Fault"]

logger = logging.getLogger(__name__)

_RISKS = {
    "PLAINTEXT": "anyone who reaches this port reads and changes everything (PLAINTEXT)",
    "SSL": "anyone who reaches this port may use it: ssl.client.auth is not required (SSL)",
    "SASL_PLAINTEXT": "records, and passwords by PLAIN, can be read on their way (SASL_PLAINTEXT)",
}

CONTROLLED_SHUTDOWN_MAX_MS = 5_000
"""How long a stopping broker waits for the others to take over."""
STOP_S_PER_PARTITION = 0.02
"""What a partition adds to the time a broker may take to stop: several fsyncs of a slow disk."""


class Broker(Server):
    """One broker of a cluster.

    Example:
        broker = Broker(BrokerConfig(num_partitions=4), port=9092)
        broker.serve_forever()
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        node_id: int | None = None,
        controller: ControllerHost | ControllerAddress | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        log_dirs: Sequence[str | os.PathLike[str]] | None = None,
        api_versions: Mapping[int, tuple[int, int]] = API_VERSIONS,
        supported_features: Mapping[str, tuple[int, int]] = FEATURES,
        emulate: str = NEWEST,
        clock: Clock | None = None,
    ) -> None:
        """Prepares a broker and opens its logs; `start` opens the port.

        Args:
            config: settings; Kafka's defaults if left out.
            node_id: its id in the cluster; that of config if left out.
            controller: of the cluster it belongs to, in this process or another; one of its own if left out.
            host, port: the address to listen on and to give clients, unless config has listeners; port 0 lets the system choose, and the
                choice holds for every later start.
            log_dirs: directories for the logs, in Kafka's format; None keeps them in memory.
            api_versions: what ApiVersions advertises, (min, max) by API key; at most what is served.
            supported_features: the levels of Kafka's features it says it supports, (lowest, highest) by name.
            emulate: the release whose message format and errors it has.
            clock: the time.

        Raises:
            UsageError: api_versions promises what is not served, or leaves out ApiVersions itself; a log directory is in use.
            KafkaStorage: no log directory can be used.
            ConfigError: a certificate or key cannot be used.
        """
        config = config or BrokerConfig()
        node_id = config.node_id if node_id is None else node_id
        played = emulation(emulate)
        is_old = played.versions is not None
        listeners = listeners_of(config, host, port)
        check_started(config)
        tls = broker_contexts(config, listeners)  # before anything is opened
        super().__init__(
            SERVED,
            config,
            name=f"broker {node_id}",
            listeners=listeners,
            api_versions=api_versions,
            peer_versions=API_VERSIONS if is_old else None,
            is_silent=is_old and API_VERSIONS_KEY not in (played.versions or {}),
            clock=clock,
        )
        self.node_id = node_id
        self.tls, self._tls_config = tls, config
        self._accepts_at_once = not isinstance(controller, ControllerAddress)
        controller = controller or ControllerHost(config, supported_features=supported_features, clock=self.clock)
        self.state: BrokerState = BrokerState(
            config,
            node_id,
            controller.cluster_id,
            functools.partial(self._connect, controller),
            self.api_versions,
            self.clock,
            controller_node=Node(CONTROLLER_ID, controller.host, controller.port) if isinstance(controller, ControllerAddress) else None,
            log_dirs=log_dirs,
            supported_features=supported_features,
            played=played,
            peer_versions=API_VERSIONS if is_old else self.api_versions,
            post=self.post,
        )
        self.state.altered = self._altered
        self.state.halt = self._halt
        self.on_halt: Callable[[], None] = lambda: None
        """Called in the broker's thread when it stops by itself, for want of a disk."""
        self.clocked = self.state.clocked
        self.peers = self.state.peers
        self.connection_rates = self.state.quotas.connections
        self.state.quotas.on_change = self._quotas_changed
        self._quotas_changed(self.state.quotas.is_active)
        if any(each.protocol.startswith("SASL_") for each in listeners):
            self.authentication = authentication = Authentication(config, self.state.cluster, self.clock)
            if inter_broker(config, listeners).protocol.startswith("SASL_"):
                self.peer_logins = authentication.new_client
        if isinstance(controller, ControllerAddress):
            self.controller_logins = controller.logins()
        self._clean = True
        self._retention: TimerTask | None = None
        self._shutdown_deadline: TimerTask | None = None

    def _connect(self, controller: ControllerHost | ControllerAddress, state: BrokerState) -> ControllerLink:
        if isinstance(controller, ControllerHost):
            return LocalControllerLink(controller, state.node_id, state.cluster, state.timer, state.post)
        return RemoteControllerLink(state.config, state.node_id, state.cluster, state.timer, state.peers, self._set_stopping, self._accept)

    def _quotas_changed(self, active: bool) -> None:
        self.throttling = self.state.quotas if active else None

    def _altered(self) -> None:
        """Limits of connections may be others, and certificates of listeners: connections that are made from now on have them."""
        config = self.state.config
        self._limit_connections(config)
        if same_tls(config, self._tls_config):
            return
        self._tls_config = config
        try:
            self.tls = broker_contexts(config, self.listeners)
        except ConfigError as error:
            logger.error("broker %d: what was read before is used on: %s", self.node_id, error)

    def _halt(self) -> None:
        """Ends at once, without handing anything over: the disk takes nothing any more."""
        self._clean = False
        self._set_stopping()
        self.on_halt()

    def set_controller(self, controller: ControllerAddress) -> None:
        """Where a controller that is reached over a connection listens. To be called before `start`."""
        self.state.controller_node = Node(CONTROLLER_ID, controller.host, controller.port)
        self.controller_logins = controller.logins()

    @property
    def cluster(self) -> ClusterImage:
        """The broker's image of its cluster; it belongs to the broker's thread."""
        return self.state.cluster

    def _prepare(self) -> None:
        self.state.prepare()

    def _registered(self) -> None:
        own = inter_broker(self.config, self.listeners)
        listeners = [own, *(each for each in self.listeners if each is not own)]
        for each in listeners:
            is_open = each.protocol == "SSL" and tls_of(self.config, each).server.client_auth != "required"
            if not each.is_local and (is_open or each.protocol in ("PLAINTEXT", "SASL_PLAINTEXT")):
                where = joined(each.host, each.port)
                logger.warning("broker %d listens on %s, beyond this machine: %s", self.node_id, where, _RISKS[each.protocol])
        self.state.controller.start(Node(self.node_id, *own.advertised, self.config.broker_rack), listeners)

    def _began(self) -> None:
        self._plan_retention()
        self.state.started()

    def _plan_retention(self) -> None:
        self._retention = TimerTask(self.config.log_retention_check_interval_ms, self._apply_retention)
        self.state.timer.add(self._retention)

    def _apply_retention(self) -> None:
        self._plan_retention()
        self.state.replicas.clean_up(self.clock.wall_ms(), self.state.config.producer_id_expiration_ms)

    def _begin_to_stop(self) -> None:
        """A controlled shutdown, unless this broker hangs or the others do."""
        if self._shutdown_deadline is not None:
            return  # it has started
        self._shutdown_deadline = TimerTask(CONTROLLED_SHUTDOWN_MAX_MS, self._set_stopping)
        self.state.timer.add(self._shutdown_deadline)
        self.state.controller.shut_down(self._set_stopping)

    def stop_timeout_s(self) -> float:
        return super().stop_timeout_s() + STOP_S_PER_PARTITION * len(self.state.replicas.partitions)

    def _ending(self) -> None:
        for task in (self._retention, self._shutdown_deadline):
            if task is not None:
                task.cancel()
        self._shutdown_deadline = None
        self.state.stopping()
        self.state.cancel_waits()
        self.state.sessions.clear()
        self.state.logs.compactor.cancel()
        self.state.checker.stop()
        self.state.cleaner.stop()
        self.state.worker.stop()

    def _ended(self) -> None:
        # After the sockets are gone: what this broker still leads goes to others, which clients that were connected here do not hear.
        self.state.controller.close()
        self.state.ended(self._clean)

    def start(self) -> Self:
        """Opens the port and starts the thread; nothing happens if it runs.

        Returns:
            Itself.

        Raises:
            OSError: the port cannot be opened.
            KafkaStorage: no log directory can be used; a Kafka ends then, too.
            ForkedClientError: the broker belongs to the parent process.
        """
        if self.running:
            return self
        super().start()
        if self.state.logs.on_disk and self.call(lambda: self.state.logs.is_offline):  # found out by the thread, when it opened the logs
            self.stop(clean=False)
            raise KafkaStorage(f"no log directory can be used: {self.state.logs.failures()}", broker=self.node_id)
        self.state.is_up = True
        return self

    def stop(self, clean: bool = True) -> None:
        """Closes the port and all connections, ends the thread and closes the logs; the data stays.

        Args:
            clean: first have other brokers take over what this one leads, and say in the log directories that all is written.

        Raises:
            KafkaTimeoutError: the thread is stuck in a control function.
        """
        self._clean = clean
        super().stop(clean)
        if self._owner_pid == os.getpid() and self.state is not None:  # which it is if its making failed
            self.state.ended()  # of a broker that was never started

    def statistics(self) -> dict[str, int]:
        """Counts of what the broker holds: connections, waiting fetches and produces, fetch sessions, partitions, log bytes;
        connections that quotas keep waiting now, requests that they had wait, and for how many milliseconds together."""
        return self.call(
            lambda: {
                "connections": self.num_connections(),
                "waiting_fetches": self.state.fetches.num_delayed(),
                "waiting_produces": self.state.produces.num_delayed(),
                "fetch_sessions": len(self.state.sessions),
                "partitions": len(self.state.replicas.partitions),
                "throttled_connections": len(self.pauses.throttled),
                "throttled_requests": sum(requests for requests, _ in self.state.quotas.throttled.values()),
                "throttled_ms": sum(wait_ms for _, wait_ms in self.state.quotas.throttled.values()),
                "log_bytes": sum(partition.log.size_bytes for partition in self.state.replicas.partitions.values()),
            }
        )
