"""Connections of a server that are not read for now.

    muted       is not read: its request waits, is carried out in slices, or one of the two below holds it
    delayed     its request is handled after a time (a control function's `Delay`)
    throttled   it is read again after a time: its client has exceeded a quota; or it is closed then
    silenced    what it sends is dropped, for good

A throttled connection stays muted until its time has ended, whatever is answered before. Belongs to the server's thread.

Source: kafka.network.SocketServer.Processor (muted channels, throttling), org.apache.kafka.common.network.Selector.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from kafkacore.clock import Clock
from kafkacore.net.channel import ConnectionId
from kafkacore.net.selector import Selector
from kafkacore.timer import LoopTimer, TimerTask


class Pauses:
    """The connections of one server, from its start to its stop.

    Args:
        clock: the time.

    Attributes:
        selector: of the server; None while it is stopped.
        timer: ends the pauses that have a time; the loop advances it.
        muted, delayed, throttled, silenced: see the top of this file. A connection that is gone is in none of them.
    """

    def __init__(self, clock: Clock) -> None:
        self.selector: Selector | None = None
        self.timer = LoopTimer(clock=clock)
        self.muted: set[ConnectionId] = set()
        self.silenced: set[ConnectionId] = set()
        self.delayed: dict[ConnectionId, TimerTask] = {}
        self.throttled: dict[ConnectionId, TimerTask] = {}

    def mute(self, connection: ConnectionId) -> None:
        """Reads nothing from a connection until `unmute`."""
        if connection not in self.muted and self.selector is not None and connection in self.selector.channels:
            self.muted.add(connection)
            self.selector.mute(connection)

    def unmute(self, connection: ConnectionId) -> None:
        """Reads from a connection again, unless it is throttled."""
        if connection in self.muted and connection not in self.throttled:
            self.muted.discard(connection)
            if self.selector is not None and connection in self.selector.channels:
                self.selector.unmute(connection)

    def delay(self, connection: ConnectionId, wait_ms: int, then: Callable[[], None]) -> None:
        """Calls a function after a time, and reads nothing from the connection; `end_delay` comes first in that function."""
        self.delayed[connection] = task = TimerTask(wait_ms, then)
        self.mute(connection)
        self.timer.add(task)

    def end_delay(self, connection: ConnectionId) -> None:
        """The time has passed; the connection stays muted."""
        self.delayed.pop(connection, None)

    def throttle(self, connection: ConnectionId, wait_ms: int) -> None:
        """Reads nothing from a connection for so long; its answer is on its way."""
        self.mute(connection)
        if connection in self.muted and self.selector is not None:
            self.throttled[connection] = task = TimerTask(wait_ms, functools.partial(self._end_throttle, connection))
            self.timer.add(task)
            self.selector.watch(connection)

    def doom(self, connection: ConnectionId, wait_ms: int, drop: Callable[[ConnectionId], None]) -> None:
        """A connection of an address that opened too many: it is not read, and dropped when its time has ended."""
        self.silenced.add(connection)  # what came along with it, or behind a TLS handshake
        self.mute(connection)
        if connection in self.muted:
            self.throttled[connection] = task = TimerTask(wait_ms, functools.partial(drop, connection))
            self.timer.add(task)

    def _end_throttle(self, connection: ConnectionId) -> None:
        self.throttled.pop(connection, None)
        self.unmute(connection)

    def forget(self, connection: ConnectionId) -> None:
        """A connection is gone."""
        self.muted.discard(connection)
        self.silenced.discard(connection)
        for later in (self.delayed.pop(connection, None), self.throttled.pop(connection, None)):
            if later is not None:
                later.cancel()
