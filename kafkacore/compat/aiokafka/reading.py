"""How tasks read from one consumer: each takes what is there for it; for the rest all wait together.

The engine's consumer serves one reader. Here any number of tasks may call `getone` and `getmany`, each for partitions of its own: a call of
the engine, by one of the tasks, waits for all of them, and when it ends, each looks whether something is there for it. Partitions that no
task waits for are paused meanwhile, and those that a task does not want while it takes; the program does not see that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from kafkacore import errors as ours
from kafkacore.aio import KafkaConsumer as Engine
from kafkacore.types import TopicPartition

T = TypeVar("T")

_TURN_S = 0.01
"""A task that always finds records lets others run this often."""


class Readers:
    """The tasks that read from a consumer.

    Args:
        engine: the consumer.
        loop: that it belongs to.

    Attributes:
        failure: what went wrong while no task read; the next one that reads raises it.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._wanted: dict[object, frozenset[TopicPartition]] = {}  # by task that waits; empty for all partitions
        self._pumps = False
        self._others: dict[object, asyncio.Future[None]] = {}  # of tasks that wait beside the one that pumps
        self._follows = False  # what pumps is no task that reads: it makes way for one
        self._held_back: set[TopicPartition] = set()
        self._turn_s = 0.0
        self.failure: ours.KafkaError | None = None

    # -- what the program has paused -------------------------------------------------------------------------------------------------

    def paused(self) -> set[TopicPartition]:
        """The partitions that the program has paused."""
        return self._engine.paused() - self._held_back

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """The program pauses partitions."""
        tps = list(partitions)
        self._engine.pause(*tps)
        self._held_back.difference_update(tps)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """The program resumes partitions."""
        paused = self.paused()
        self._engine.resume(*[tp for tp in partitions if tp in paused])

    def _hold_back(self, wanted: Collection[TopicPartition]) -> None:
        """Pauses what is not wanted, and resumes what was held back and is; empty: everything is wanted."""
        if wanted or self._held_back:
            self._engine._calls.call_now(lambda: self._exchange(wanted))

    def _exchange(self, wanted: Collection[TopicPartition]) -> None:
        client = self._engine._client
        assigned = client.assignment()
        unwanted = assigned.difference(wanted) if wanted else set()
        self._held_back &= assigned
        if back := self._held_back - unwanted:
            client.resume(*back)
            self._held_back -= back
        if more := unwanted - client.paused():
            client.pause(*more)
            self._held_back |= more

    # -- reading -----------------------------------------------------------------------------------------------------------------------

    async def read(self, partitions: Collection[TopicPartition], take: Callable[[bool], T | None], timeout_s: float | None) -> T | None:
        """Takes what is there, or waits until something is.

        Args:
            partitions: only of these; empty for all.
            take: hands out; its argument says that the engine has just waited.
            timeout_s: None without limit.

        Returns:
            None when the time was up.

        Raises:
            errors.ClosedError: the consumer is closed.
            errors.KafkaError: as the engine's poll.
        """
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        loop = self._loop
        now_s = loop.time()
        end_s = None if timeout_s is None else now_s + timeout_s
        if now_s - self._turn_s >= _TURN_S:
            await asyncio.sleep(0)
            self._turn_s = now_s
        wanted = frozenset(partitions)
        if (found := self._taken(wanted, take, False)) is not None:
            return found
        me = object()
        self._wanted[me] = wanted
        try:
            while True:
                waited = await self._ready(me, None if end_s is None else max(0.0, end_s - loop.time()))
                self._turn_s = loop.time()
                if (found := self._taken(wanted, take, waited)) is not None:
                    return found
                if end_s is not None and self._turn_s >= end_s:
                    return None
        finally:
            del self._wanted[me]
            if self._held_back and not self._wanted and self._engine._calls.idle and not self._engine.closed:
                self._hold_back(())

    def at_once(self, take: Callable[[bool], T | None]) -> T | None:
        """`read` of all partitions, as far as something is there already and no other task has its turn."""
        if self._wanted or self._held_back or self._loop.time() - self._turn_s >= _TURN_S or not self._engine._calls.idle:
            return None
        if self.failure is not None:
            return None
        return take(False)

    def _taken(self, wanted: frozenset[TopicPartition], take: Callable[[bool], T | None], waited: bool) -> T | None:
        if not self._engine._calls.idle:
            return None
        self._hold_back(wanted)
        try:
            return take(waited)
        finally:
            if self._held_back and not self._wanted:
                self._hold_back(())

    async def _ready(self, me: object, timeout_s: float | None) -> bool:
        """Waits until there may be something for one of the tasks; False when the time was up. One task waits for all: the others are
        woken when it ends, and look again. An error of a partition is raised by a task that reads it.
        """
        engine, calls = self._engine, self._engine._calls
        if self._pumps:
            woken = self._others[me] = self._loop.create_future()
            self._hold_back(self._all_wanted())
            if self._follows:
                calls.call_now(lambda: None)  # between its halves it sees that it has to make way
            try:
                await asyncio.wait((woken,), timeout=timeout_s)
            finally:
                self._others.pop(me, None)
            if woken.done():
                woken.result()
            return woken.done()
        self._pumps = True
        try:
            if calls.idle:
                self._hold_back(self._all_wanted())
            return await calls.wait(engine._client._await_records, timeout_s, engine._now_s) or False
        except ours.KafkaError as error:
            if not self._is_of_another(me, error):
                raise
            return False
        finally:
            self._wake_others()

    def _is_of_another(self, me: object, error: ours.KafkaError) -> bool:
        """Hands an error of a partition that this task does not read to one that does; where none does, it comes again once one does."""
        if error.topic is None or error.partition is None:
            return False
        tp = TopicPartition(error.topic, error.partition)
        if not self._wanted[me] or tp in self._wanted[me]:
            return False
        for other, woken in list(self._others.items()):
            if not woken.done() and (not self._wanted[other] or tp in self._wanted[other]):
                woken.set_exception(error)
                break
        return True

    def _all_wanted(self) -> frozenset[TopicPartition]:
        wanted = list(self._wanted.values())
        return frozenset() if not all(wanted) else frozenset().union(*wanted)

    async def follow(self, done: Callable[[], bool]) -> None:
        """Does what the group and new partitions ask for while no task reads, until that is done or a task wants to read, which goes on
        with it. The program's listener is called. What is wrong with a position is left to a task that reads.

        Args:
            done: as for `until`.
        """
        if self._pumps:
            return  # the task that reads does it
        self._pumps = self._follows = True
        try:
            await self.until(lambda: bool(self._others) or done(), None)
        finally:
            self._follows = False
            self._wake_others()

    def _wake_others(self) -> None:
        self._pumps = False
        others, self._others = self._others, {}
        for woken in others.values():
            if not woken.done():
                woken.set_result(None)

    async def until(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Takes part in the group and follows the cluster until something is so, and hands out nothing.

        Args:
            done: looks, on the engine's thread.
            timeout_s: None without limit.
        """
        client, calls = self._engine._client, self._engine._calls

        def wait(left_s: float | None) -> bool:
            found = client._loop.wait(done, False, left_s, reads=False)
            client._loop.in_hand = None
            return found

        found = await calls.wait(lambda left_s: client._loop.hand_over(lambda: wait(left_s)), timeout_s, self._engine._now_s)
        return found or False
