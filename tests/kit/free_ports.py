"""Ports for servers that have to be told theirs before they listen, and for addresses where nobody does."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

PORTS = range(10_000, 32_000)
"""Below those that systems give to connections by themselves: none of these takes a port after it was chosen, and none that waits for a
server connects to itself."""
_reserved: list[IO[bytes]] = []


def free_port() -> int:
    """A port that no other process of these tests has, or will have while this one runs."""
    directory = Path(tempfile.gettempdir()) / f"kafkacore-ports-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        kept = open(directory / str(port), "wb")  # locked as long as this process lives
        try:
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            kept.close()
            continue
        _reserved.append(kept)
        return port
    raise RuntimeError("no port is free")
