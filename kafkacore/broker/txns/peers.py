"""How the transaction rooms see other brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkacore.errors import KafkaError
from kafkacore.protocol.schema import Request, Response


class Peers(Protocol):
    """Requests to other brokers; `PeerClient` is such."""

    def send(
        self, node_id: int, request: Request, version: int, done: Callable[[Response | KafkaError], None], timeout_ms: int, lane: str = ""
    ) -> None:
        """Sends a request.

        Args:
            node_id: the broker.
            request, version: what and how.
            done: gets the answer, or why there is no answer.
            timeout_ms: how long an answer may take.
            lane: requests of different lanes do not wait for each other.
        """
