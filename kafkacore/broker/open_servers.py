"""The servers of this process: they are stopped when the interpreter exits, and a forked child lets go of their sockets."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Protocol

from kafkacore.errors import KafkaError

logger = logging.getLogger(__name__)


class OpenServer(Protocol):
    """What the end of a process asks of a server."""

    name: str

    def stop(self) -> None:
        """Ends its thread; nothing happens if it does not run."""

    def abandon_in_child(self) -> None:
        """Closes the sockets of a forked child, whose server is the parent's."""


open_servers: weakref.WeakSet[OpenServer] = weakref.WeakSet()
"""All that were made and are not collected, running or not."""


def _stop_all() -> None:
    for server in list(open_servers):
        try:
            server.stop()
        except KafkaError as error:
            logger.warning("%s could not be stopped at exit: %s", server.name, error)


def _abandon_all() -> None:
    for server in list(open_servers):
        server.abandon_in_child()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
