"""aiokafka's rebalance listeners, called as aiokafka calls them.

With every rebalance they hear of the partitions before it, also of none, and then of all after it; what they raise is logged. They hear
nothing when the consumer is stopped or unsubscribed.

Source: aiokafka.consumer.group_coordinator, aiokafka 0.14.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any

from kafkacore.aio import RebalanceListener
from kafkacore.compat.aiokafka.abc import ConsumerRebalanceListener
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.compat")


class EngineListener(RebalanceListener):
    """What the engine calls in the loop.

    Args:
        listener: the program's; None for nothing.
        assignment: gives all partitions of this member.

    Attributes:
        silent: no longer calls the program.
        assigned: True once this member has had its partitions.
    """

    def __init__(self, listener: ConsumerRebalanceListener | None, assignment: Callable[[], set[TopicPartition]]) -> None:
        self._listener = listener
        self._assignment = assignment
        self._revoked = False
        self._calling: asyncio.Future[None] | None = None
        self._caller: asyncio.Task[Any] | None = None
        self.silent = self.assigned = False

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        with self._begun():
            await self._revoke(set(partitions))

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        with self._begun():
            if not self._revoked:
                await self._revoke(set())
            self._revoked = False
            if self._listener is not None:
                await self._call(self._listener.on_partitions_assigned, self._assignment())
            self.assigned = True

    async def _revoke(self, partitions: set[TopicPartition]) -> None:
        self._revoked = True
        if self._listener is not None:
            await self._call(self._listener.on_partitions_revoked, partitions)

    async def _call(self, method: Callable[[Any], Any], partitions: set[TopicPartition]) -> None:
        if self.silent:
            return
        try:
            if inspect.isawaitable(found := method(partitions)):
                await found
        except Exception:
            log.exception("the rebalance listener %r failed on %s", self._listener, partitions)

    @contextlib.contextmanager
    def _begun(self) -> Iterator[None]:
        """A call of the engine, which can be waited for."""
        self._calling, self._caller = asyncio.get_running_loop().create_future(), asyncio.current_task()
        try:
            yield
        finally:
            self._calling.set_result(None)
            self._calling = self._caller = None

    @property
    def calls(self) -> bool:
        """Whether the program's listener is being called."""
        return self._calling is not None

    @property
    def inside(self) -> bool:
        """Whether this task is the one in which the listener is called."""
        return self._caller is asyncio.current_task()

    async def ended(self) -> None:
        """Waits for a call that is under way, unless this task is inside it."""
        if self._calling is not None and not self.inside:
            await asyncio.wait((self._calling,))
