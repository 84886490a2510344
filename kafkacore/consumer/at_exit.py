"""Members that are still open when the interpreter exits leave their groups, so that other members need not wait for a session's end.

They do what `close` does, but for what would call the application: its listeners, callbacks and interceptors may rely on what is taken
apart already. How far the records of the last poll were processed is not known, so they are not committed.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from kafkacore.net.at_exit import AtExit

log = logging.getLogger("kafkacore.consumer")

EXIT_MAX_S = 2.0


class Leaves(Protocol):
    """What may have to leave a group.

    Attributes:
        closed: there is nothing to leave.
    """

    @property
    def closed(self) -> bool:
        """True when there is nothing to leave."""

    def _leave_at_exit(self, timeout: float) -> None:
        """Leaves within so many seconds."""


def _leave(members: list[Leaves]) -> None:
    """All of them together take EXIT_MAX_S at most: each gets an equal share of what is left."""
    until_s = time.monotonic() + EXIT_MAX_S
    waiting = [member for member in members if not member.closed]
    while waiting:
        member = waiting.pop()
        try:
            member._leave_at_exit(max(0.0, until_s - time.monotonic()) / (len(waiting) + 1))
        except Exception as error:
            log.warning("%r was not closed, and could not leave its group at exit: %s", member, error)


open_members: AtExit[Leaves] = AtExit(_leave)
"""Consumers with a group, and the background threads of consumers to which no reference is left."""
