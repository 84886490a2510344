"""Real sockets at which nobody answers: what is left of them. Wrong answers are in test_network_client.py."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.metadata import NEVER_MS, Metadata
from kafkacore.net.client import NetworkClient
from kafkacore.net.selector import Selector
from kafkacore.net.transport import Address
from kafkacore.types import Node


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
