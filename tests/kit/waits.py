"""Something that happens once a call waits for the network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkacore.net.client import NetworkClient

GUARD_S = 90  # the machine may be busy


class Waits:
    """Does something once the thread that makes it waits for the network."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        self.act = act
        self.caller = threading.get_ident()
        self.status = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self.waits = threading.Event()
        self.acted_s = 0.0
        poll = NetworkClient.poll

        def polls(client: NetworkClient, timeout_ms: int, now_ms: int) -> Any:
            if threading.get_ident() == self.caller and timeout_ms > 0:
                self.waits.set()
            return poll(client, timeout_ms, now_ms)

        monkeypatch.setattr(NetworkClient, "poll", polls)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        assert self.waits.wait(GUARD_S)
        asleep = 0
        while asleep < 3:  # a signal that comes just before the system call is seen at its end
            asleep = asleep + 1 if self.status.read_text().rpartition(")")[2].split()[0] == "S" else 0
            threading.Event().wait(0.001)
        self.acted_s = time.monotonic()
        self.act()

    def took_s(self) -> float:
        """How long ago it was done."""
        self.thread.join()
        return time.monotonic() - self.acted_s


def interrupt(*_: object) -> None:
    """A signal handler."""
    raise KeyboardInterrupt
