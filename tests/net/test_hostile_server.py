"""Real sockets at which nobody answers: what is left of them, and what calls say. Wrong answers are in test_network_client.py."""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
from collections.abc import Callable

import pytest

from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.errors import DisconnectError, KafkaTimeoutError, NetworkError
from kafkacore.metadata import NEVER_MS, Metadata
from kafkacore.net.client import NetworkClient
from kafkacore.net.selector import Selector
from kafkacore.net.transport import Address
from kafkacore.producer import KafkaProducer
from kafkacore.types import Node
from tests.kit.waiting import until


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors in /proc")
def test_fifty_dropped_connections_leave_nothing_behind() -> None:
    clock, node = ManualClock(1_000_000), Node(1, "h", 1)
    config = ClientConfig.from_user(bootstrap_servers="h:1")
    metadata = Metadata(config, clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(socket.AF_INET, listener.getsockname(), "h")
        client = NetworkClient(Selector(clock), metadata, config, resolver=lambda host, port: [address])
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            clock.advance(2_000)
            assert not client.ready(node, clock.now_ms())
            listener.accept()[0].close()
            while not client.connection_failed(node):
                metadata.next_update_ms = NEVER_MS  # no metadata here
                client.poll(5_000, clock.now_ms())
        assert len(os.listdir("/proc/self/fd")) == before
        assert client.selector.statistics()["connections"] == 0
        assert 0 < len(client.connection_errors(node)) <= 8
        assert len(metadata.attempts) < 20
        client.close()


def says_why(call: Callable[[], object], says: str) -> bool:
    """Whether a call, whose time is short, says it."""
    with pytest.raises(KafkaTimeoutError) as raised:
        call()
    attempts = [str(each).lower() for each in raised.value.attempts if isinstance(each, (NetworkError, DisconnectError))]
    return says in " ".join(attempts) and says in str(raised.value).lower()


def refusing_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("what", ["refused", "unknown name", "hangs up"])
def test_a_wrong_address_reaches_the_next_call_with_its_reason(what: str) -> None:
    def hang_up() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=hang_up)
        thread.start()
        where, says = {
            "refused": (refusing_address(), "refused"),
            "unknown name": ("no-such-host.invalid:9092", "cannot resolve host 'no-such-host.invalid'"),
            "hangs up": (f"127.0.0.1:{listener.getsockname()[1]}", "connection"),  # closed or reset, as it happens
        }[what]
        with KafkaProducer(bootstrap_servers=where, max_block_ms=300, reconnect_backoff_ms=10) as p:
            for call in (lambda: p.send("t", b"x"), lambda: p.send_many("t", [b"x"]), lambda: p.partitions_for("t")):
                until(functools.partial(says_why, call, says))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
