"""The brokers of an `EmbeddedCluster`: threads of this process, or processes of their own. Both have the same methods."""

from __future__ import annotations

import signal
from typing import Any

from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.state import ControllerState
from kafkacore.broker.processes import BrokerProcess
from kafkacore.broker.server import Broker
from kafkacore.clock import JumpingClock
from kafkacore.errors import BrokerNotAvailable, KafkaTimeoutError

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
        """Sets its clock wrong; it then looks at its deadlines anew."""
        assert isinstance(self.clock, JumpingClock)
        (self.clock.sleep if asleep else self.clock.jump)(ms)
        self.call(lambda: None)


class ProcessMember(BrokerProcess):
    """A broker in a process of its own, and the controller in this one that it belongs to."""

    def __init__(self, host_of_controller: ControllerHost, *arguments: Any, **options: Any) -> None:
        """Args:
        host_of_controller: the controller.
        *arguments, **options: as for `BrokerProcess`.
        """
        super().__init__(*arguments, **options)
        self.host_of_controller = host_of_controller
        self._epoch_before = -1

    def start(self) -> ProcessMember:
        if not self.running:
            self._epoch_before = self._epoch()
        super().start()
        return self

    def _epoch(self) -> int:
        known = self.host_of_controller.read(lambda image: image.brokers.get(self.node_id))
        return -1 if known is None else known.epoch

    def ready(self) -> None:
        """Waits until the controller has unfenced it.

        Raises:
            BrokerNotAvailable: its process ended.
            KafkaTimeoutError: it does not come up.
        """

        def up(state: ControllerState) -> bool:
            known = state.image.brokers.get(self.node_id)
            return known is not None and known.epoch != self._epoch_before and not known.fenced

        for _ in range(START_TIMEOUT_S * 5):
            if self.host_of_controller.wait_until(up, 0.2):
                self.port = self.host_of_controller.read(lambda image: image.brokers[self.node_id].node.port)
                return
            if not self.running:
                raise BrokerNotAvailable("its process ended; what it says is on stderr", broker=self.node_id)
        raise KafkaTimeoutError(f"broker {self.node_id} did not come up within {START_TIMEOUT_S} s", broker=self.node_id)

    def begin_to_stop(self) -> None:
        """Says so, and does not wait."""
        self._signal(signal.SIGTERM)

    def _partitions(self) -> int:
        return self.host_of_controller.read(
            lambda image: sum(self.node_id in each.replicas for topic in image.topics.values() for each in topic.partitions)
        )

    def stop(self, clean: bool = True) -> None:
        epoch = self._epoch()
        super().stop(clean)
        if epoch >= 0:
            self.host_of_controller.broker_lost(self.node_id, epoch)  # the process is gone, whether its connection has shown it or not

    def settle(self) -> None:
        """Waits until it knows what the controller has decided."""
        offset = self.host_of_controller.end_offset()

        def reached(state: ControllerState) -> bool:
            session = state.sessions.get(self.node_id)
            return session is None or session.metadata_offset >= offset or not self.running

        if not self.host_of_controller.wait_until(reached, SETTLE_TIMEOUT_S):
            raise KafkaTimeoutError(f"broker {self.node_id} does not follow the metadata log", broker=self.node_id)

    def high_watermark(self, topic: str, partition: int) -> int:
        """As this broker knows it."""
        return int(self.call("high_watermark", topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        """Of this broker's log."""
        return int(self.call("end_offset", topic, partition))

    def jump_clock(self, ms: int, asleep: bool) -> None:
        """Sets its clock wrong; its thread then looks at its deadlines anew."""
        self.call("jump_clock", ms, asleep)
