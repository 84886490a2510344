"""kafka-python's rebalance listeners, and what the engine calls in their place.

Source: kafka.consumer.subscription_state, kafka-python 3.0.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from kafkacore.compat.kafka import errors
from kafkacore.consumer.group.listener import RebalanceListener
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.compat")


class ConsumerRebalanceListener(ABC):
    """Hears of partitions that come and go, on the thread that polls."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> None:
        """These partitions are about to be given up; what was processed can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> None:
        """These partitions are new."""

    def on_partitions_lost(self, lost: Any) -> None:
        """These partitions belong to other members already."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """The same with coroutines, for kafka-python's own I/O loop; here it is refused, for there is no such loop."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: Any) -> None:
        """As ConsumerRebalanceListener's."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: Any) -> None:
        """As ConsumerRebalanceListener's."""

    async def on_partitions_lost(self, lost: Any) -> None:
        """As ConsumerRebalanceListener's."""
        await self.on_partitions_revoked(lost)


class EngineListener(RebalanceListener):
    """What the engine calls: hands on to a listener of kafka-python's kind."""

    def __init__(self, listener: ConsumerRebalanceListener) -> None:
        self._listener = listener

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._call(self._listener.on_partitions_assigned, partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._call(self._listener.on_partitions_revoked, partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._call(self._listener.on_partitions_lost, partitions)

    def _call(self, method: Callable[[Any], None], partitions: Collection[TopicPartition]) -> None:
        try:
            method(set(partitions))
        except Exception as error:
            log.exception("the rebalance listener %r failed on %s", self._listener, partitions)
            raise errors.KafkaError("User rebalance callback throws an error") from error
