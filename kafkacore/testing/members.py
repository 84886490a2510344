"""The brokers of an `EmbeddedCluster`: threads of this process, or processes of their own. Both have the same methods."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import Any, Self

from kafkacore.broker.controller.access import ControllerAddress
from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.state import ControllerState
from kafkacore.broker.processes import BrokerProcess
from kafkacore.broker.server import Broker
from kafkacore.clock import JumpingClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import BrokerNotAvailable, KafkaTimeoutError
from kafkacore.testing.network import CONTROLLER, Network

START_TIMEOUT_S = 30
SETTLE_TIMEOUT_S = 30


class ThreadMember(Broker):
    """A broker in a thread of this process."""

    def ready(self) -> None:
        """It serves when `start` returns."""

    def begin_to_stop(self) -> None:
        """Threads stop one after the other."""

    def settle(self) -> None:
        """Waits until it knows what the controller has decided."""
        self.call(lambda: None)  # behind the message that the controller left

    def high_watermark(self, topic: str, partition: int) -> int:
        """As this broker knows it."""
        return self.call(lambda: self.state.replicas.partition(topic, partition).high_watermark)

    def end_offset(self, topic: str, partition: int) -> int:
        """Of this broker's log."""
        return self.call(lambda: self.state.replicas.partition(topic, partition).log.end_offset)

    def jump_clock(self, ms: int, asleep: bool) -> None:
        """Sets its clock wrong; it then looks at its deadlines again."""
        assert isinstance(self.clock, JumpingClock)
        (self.clock.sleep if asleep else self.clock.jump)(ms)
        self.call(lambda: None)


class _ControllerOfMember:
    """What the controller, which is in this process, knows of a broker that reaches it over a connection."""

    def __init__(self, host: ControllerHost, node_id: int, is_cut: Callable[[], bool]) -> None:
        """Args:
        host: the controller.
        node_id: the broker.
        is_cut: whether the two cannot reach each other.
        """
        self._host = host
        self._node_id = node_id
        self._is_cut = is_cut
        self._epoch_before = -1

    def epoch(self) -> int:
        """Of its last registration; -1 before the first."""
        known = self._host.read(lambda image: image.brokers.get(self._node_id))
        return -1 if known is None else known.epoch

    def starts(self) -> None:
        """It is about to register."""
        self._epoch_before = self.epoch()

    def ended(self, epoch: int) -> None:
        """The incarnation of an epoch has ended: the controller learns of it at once, if they can reach each other."""
        if epoch >= 0 and not self._is_cut():
            self._host.broker_lost(self._node_id, epoch)

    def wait_until_unfenced(self, is_running: Callable[[], bool], ended: str) -> dict[str, int]:
        """Waits until the controller has unfenced it.

        Args:
            is_running: whether it has not ended.
            ended: the error's text if it has.

        Returns:
            The ports it has registered, by listener.

        Raises:
            BrokerNotAvailable: it ended.
            KafkaTimeoutError: it does not come up.
        """

        def up(state: ControllerState) -> bool:
            known = state.image.brokers.get(self._node_id)
            return known is not None and known.epoch != self._epoch_before and not known.fenced

        for _ in range(START_TIMEOUT_S * 5):
            if self._host.wait_until(up, 0.2):
                return self._host.read(lambda image: {each.name: each.port for each in image.brokers[self._node_id].endpoints})
            if not is_running():
                raise BrokerNotAvailable(ended, broker=self._node_id)
        raise KafkaTimeoutError(f"broker {self._node_id} did not come up within {START_TIMEOUT_S} s", broker=self._node_id)

    def settle(self, is_running: Callable[[], bool]) -> None:
        """Waits until it knows what the controller has decided; not for a broker that cannot learn of it.

        Raises:
            KafkaTimeoutError: it does not follow the metadata log.
        """
        offset = self._host.end_offset()

        def reached(state: ControllerState) -> bool:
            session = state.sessions.get(self._node_id)
            return session is None or session.metadata_offset >= offset or self._is_cut() or not is_running()

        if not self._host.wait_until(reached, SETTLE_TIMEOUT_S):
            raise KafkaTimeoutError(f"broker {self._node_id} does not follow the metadata log", broker=self._node_id)

    def num_partitions(self) -> int:
        """Those that have a replica on it."""
        return self._host.read(
            lambda image: sum(self._node_id in each.replicas for topic in image.topics.values() for each in topic.partitions)
        )


class FaultyMember(ThreadMember):
    """A broker in a thread of this process whose connections, that to the controller included, pass through a `Network`."""

    def __init__(self, host_of_controller: ControllerHost, network: Network, config: BrokerConfig, node_id: int, **options: Any) -> None:
        """Args:
        host_of_controller: the controller.
        network: that its connections pass through.
        config, node_id, **options: as for `Broker`.
        """
        unknown = ControllerAddress("127.0.0.1", 0, host_of_controller.cluster_id, "")  # until the controller listens
        super().__init__(config, node_id, unknown, clock=JumpingClock(), **options)
        self._network = network
        self._known = _ControllerOfMember(host_of_controller, node_id, lambda: network.is_cut(node_id, CONTROLLER))
        self.wrap_transports = functools.partial(network.transports, node_id)

    def _registered(self) -> None:
        for listener in self.listeners:
            self._network.listens(self.node_id, listener.port)  # before any other broker learns the port
        super()._registered()

    def start(self) -> Self:
        if not self.running:
            self._known.starts()
        return super().start()

    def ready(self) -> None:
        """Waits until the controller has unfenced it.

        Raises:
            BrokerNotAvailable: it ended.
            KafkaTimeoutError: it does not come up, or it cannot reach the controller.
        """
        self._known.wait_until_unfenced(lambda: self.running, "it ended while it started; the log of this process says why")

    def begin_to_stop(self) -> None:
        """Says so, and does not wait: a broker that is cut off waits for its controller while the others stop."""
        if self.running and not self._paused:
            self._clean = True
            self.post(self._begin_to_stop)

    def stop(self, clean: bool = True) -> None:
        epoch = self._known.epoch()
        super().stop(clean)
        self._known.ended(epoch)

    def settle(self) -> None:
        """Waits until it knows what the controller has decided."""
        self._known.settle(lambda: self.running)


class ProcessMember(BrokerProcess):
    """A broker in a process of its own, and the controller in this one that it belongs to."""

    def __init__(self, host_of_controller: ControllerHost, config: BrokerConfig, node_id: int, **options: Any) -> None:
        """Args:
        host_of_controller: the controller.
        config, node_id, **options: as for `BrokerProcess`.
        """
        super().__init__(config, node_id, **options)
        self._known = _ControllerOfMember(host_of_controller, node_id, lambda: False)

    def start(self) -> ProcessMember:
        if not self.running:
            self._known.starts()
        super().start()
        return self

    def ready(self) -> None:
        """Waits until the controller has unfenced it.

        Raises:
            BrokerNotAvailable: its process ended.
            KafkaTimeoutError: it does not come up.
        """
        self.came_up(self._known.wait_until_unfenced(lambda: self.running, "its process ended; what it says is on stderr"))

    def begin_to_stop(self) -> None:
        """Says so, and does not wait."""
        self._signal(signal.SIGTERM)

    def _partitions(self) -> int:
        return self._known.num_partitions()

    def stop(self, clean: bool = True) -> None:
        epoch = self._known.epoch()
        super().stop(clean)
        self._known.ended(epoch)  # the process has ended, whether its connection has shown it or not

    def settle(self) -> None:
        """Waits until it knows what the controller has decided."""
        self._known.settle(lambda: self.running)

    def high_watermark(self, topic: str, partition: int) -> int:
        """As this broker knows it."""
        return int(self.call("high_watermark", topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        """Of this broker's log."""
        return int(self.call("end_offset", topic, partition))

    def jump_clock(self, ms: int, asleep: bool) -> None:
        """Sets its clock wrong; its thread then looks at its deadlines again."""
        self.call("jump_clock", ms, asleep)
