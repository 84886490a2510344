"""Kafka for tests in an event loop: `kafkacore.testing.EmbeddedCluster` with coroutines.

    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("t", partitions=4)
        async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:

The brokers run in threads or processes of their own, as there. A cluster belongs to no loop: a fixture of one loop may serve tests that
run in others. The fixture `aio_kafka_cluster` of the pytest plugin is the broker of `kafka_cluster` with this face.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kafkacore.aio.calls import in_thread
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.config import BrokerConfig
from kafkacore.config_listeners import LOOPBACK
from kafkacore.testing import CLIENTS, CONTROLLER, Delay, Disconnect, Drop
from kafkacore.testing import EmbeddedCluster as Cluster
from kafkacore.testing import Network as SyncNetwork
from kafkacore.testing.cluster import BrokerLife

__all__ = ["CLIENTS", "CONTROLLER", "Delay", "Disconnect", "Drop", "EmbeddedCluster", "Network"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method as a coroutine: made by a thread, which goes on if the caller is cancelled."""

    @functools.wraps(method)
    async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(method, self._sync, *args, **kwargs)

    return call  # type: ignore[return-value]


def _in_turn(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same for what changes a broker, its first argument, or all brokers if it has none."""

    @functools.wraps(method)
    async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._change(method, *args, **kwargs)  # type: ignore[no-any-return]

    return call  # type: ignore[return-value]


def _ended() -> threading.Event:
    ended = threading.Event()
    ended.set()
    return ended


class Network:
    """The network of a cluster, as `kafkacore.testing.Network`: it can be bad."""

    def __init__(self, network: SyncNetwork) -> None:
        """Args:
        network: whose calls become coroutines.
        """
        self._sync = network

    isolate = _awaited(SyncNetwork.isolate)
    delay = _awaited(SyncNetwork.delay)
    trickle = _awaited(SyncNetwork.trickle)
    throttle = _awaited(SyncNetwork.throttle)
    cut = _awaited(SyncNetwork.cut)
    heal = _awaited(SyncNetwork.heal)


class EmbeddedCluster:
    """Brokers on loopback for the life of an `async with` block (or from `start` to `close`).

    What asks the brokers or the controller is a coroutine and blocks no loop. Changes of one broker are made in the order in which they are
    asked for, in whatever tasks. A call that is cancelled is made all the same; `start` alone is taken back.
    """

    def __init__(
        self,
        brokers: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | BrokerConfig | None = None,
        *,
        configs: Mapping[str, Any] | BrokerConfig | None = None,
        users: Mapping[str, str] | None = None,
        super_users: Sequence[str] | None = None,
        tls: bool | str = False,
        host: str = LOOPBACK,
        advertised_host: str | None = None,
        port: int = 0,
        api_versions: Mapping[int, tuple[int, int]] = API_VERSIONS,
        features: Mapping[str, int] | None = None,
        emulate: str | None = None,
        racks: Sequence[str] | None = None,
        processes: bool = False,
        faults: bool = False,
    ) -> None:
        """Prepares a cluster and opens its data_dir, which reads the log of the controller; takes and raises what
        `kafkacore.testing.EmbeddedCluster` does.
        """
        self._over(
            Cluster(
                brokers,
                data_dir,
                config,
                configs=configs,
                users=users,
                super_users=super_users,
                tls=tls,
                host=host,
                advertised_host=advertised_host,
                port=port,
                api_versions=api_versions,
                features=features,
                emulate=emulate,
                racks=racks,
                processes=processes,
                faults=faults,
            )
        )

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """This face of a cluster that exists already."""
        face = cls.__new__(cls)
        face._over(cluster)
        return face

    def _over(self, cluster: Cluster) -> None:
        self._sync = cluster
        self.config: BrokerConfig = cluster.config
        self._lock = threading.Lock()
        self._last = {broker: _ended() for broker in cluster._brokers}  # change of each broker: set when it has ended

    async def _change(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Makes a change behind those of the same broker that were asked for before."""
        named = args[0] if args else kwargs.get("broker")
        ended = threading.Event()
        with self._lock:
            before = [self._last[broker] for broker in self._last if named is None or broker == named]
            self._last.update({broker: ended for broker in self._last if named is None or broker == named})

        def make() -> T:
            try:
                for change in before:
                    change.wait()
                return method(self._sync, *args, **kwargs)
            finally:
                ended.set()

        return await in_thread(make)

    async def start(self) -> Self:
        """Starts all brokers. If it is cancelled, what has started is closed.

        Returns:
            Itself.
        """
        try:
            await self._change(Cluster.start)
        except asyncio.CancelledError:
            await self.close()  # behind the start, which goes on
            raise
        return self

    close = _in_turn(Cluster.close)

    async def __aenter__(self) -> Self:
        return await self.start()

    def __repr__(self) -> str:
        return f"<aio {repr(self._sync)[1:]}"

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, with commas; of stopped ones too, since they come back there."""
        return self._sync.bootstrap_servers

    def listener(self, name: str) -> str:
        """As `kafkacore.testing.EmbeddedCluster.listener`."""
        return self._sync.listener(name)

    def client_settings(self, user: str | None = None, *, listener: str | None = None) -> dict[str, Any]:
        """As `kafkacore.testing.EmbeddedCluster.client_settings`."""
        return self._sync.client_settings(user, listener=listener)

    @property
    def cluster_id(self) -> str:
        """The id clients see."""
        return self._sync.cluster_id

    @property
    def network(self) -> Network:
        """The network of the cluster, for faults.

        Raises:
            UsageError: the cluster was made without faults=True, or its brokers are processes.
        """
        return Network(self._sync.network)

    def processes(self) -> dict[int, BrokerLife]:
        """As `kafkacore.testing.EmbeddedCluster.processes`."""
        return self._sync.processes()

    create_topic = _awaited(Cluster.create_topic)
    delete_topic = _awaited(Cluster.delete_topic)
    topics = _awaited(Cluster.topics)
    produce = _awaited(Cluster.produce)
    records = _awaited(Cluster.records)
    stop_broker = _in_turn(Cluster.stop_broker)
    kill_broker = _in_turn(Cluster.kill_broker)
    start_broker = _in_turn(Cluster.start_broker)
    pause_broker = _in_turn(Cluster.pause_broker)
    resume_broker = _in_turn(Cluster.resume_broker)
    jump_clock = _awaited(Cluster.jump_clock)
    move_leader = _awaited(Cluster.move_leader)
    control = _awaited(Cluster.control)
    leader = _awaited(Cluster.leader)
    isr = _awaited(Cluster.isr)
    high_watermark = _awaited(Cluster.high_watermark)
    end_offset = _awaited(Cluster.end_offset)
