"""A request on its way through the network client, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from kafkacore.errors import KafkaError
from kafkacore.metadata import NEVER_MS
from kafkacore.net.channel import NetworkSend

__all__ = ["ClientRequest", "ClientResponse", "Kind"]


class Kind(Enum):
    """Who asked: a user of the client, or the client itself."""

    USER = 0
    METADATA = 1
    API_VERSIONS = 2


USER = Kind.USER  # a member of an enum takes longer to look up than a global

class ClientRequest:
    """A request and, once it is sent, its place in the stream (made by `NetworkClient.new_client_request`).

    Attributes:
        node_id: Where it goes.
        api: Request class.
        build: Called with the negotiated version to make the request.
        created_ms: When it was made.
        expect_response: False for acks=0.
        timeout_ms: Time the answer may take, from the send on.
        callback: Called with the ClientResponse at the end of a poll.
        min_version: Lowest version that can express the request.
        max_version: Highest version to use.
        correlation_id: Number in the stream, -1 before the send.
        version: Negotiated version, -1 before the send.
        send: The frame, None before the send.
        sent_ms: When it was sent.
        deadline_ms: When the answer is late.
    """

    __slots__ = (
        "api", "build", "callback", "correlation_id", "created_ms", "deadline_ms", "expect_response", "kind", "max_version", "min_version",
        "node_id", "send", "sent_ms", "timeout_ms", "version",
    )  # fmt: skip

    def __init__(
        self,
        node_id: int,
        api: type[Any],
        build: Callable[[int], Any],
        created_ms: int,
        expect_response: bool,
        timeout_ms: int,
        callback: Callable[[ClientResponse], None] | None,
        min_version: int,
        max_version: int,
    ) -> None:
        self.node_id = node_id
        self.api = api
        self.build = build
        self.created_ms = created_ms
        self.expect_response = expect_response
        self.timeout_ms = timeout_ms
        self.callback = callback
        self.min_version = min_version
        self.max_version = max_version
        self.kind = USER
        self.correlation_id = -1
        self.version = -1
        self.send: NetworkSend | None = None
        self.sent_ms = -1
        self.deadline_ms = NEVER_MS

    def __repr__(self) -> str:
        return f"ClientRequest({self.api.__name__} v{self.version}, node {self.node_id}, correlation id {self.correlation_id})"


class ClientResponse:
    """What became of a request.

    Attributes:
        request: The request.
        response: Decoded message, None without one (acks=0, or a failure).
        disconnected: The connection ended before the answer.
        timed_out: It ended because this request, or one beside it, took too long.
        error: Why there is no response, or None.
        version: Version of the exchange, -1 when it never got that far.
        latency_ms: From send to answer.
    """

    __slots__ = ("disconnected", "error", "latency_ms", "request", "response", "timed_out", "version")

    def __init__(
        self,
        request: ClientRequest,
        response: Any = None,
        *,
        disconnected: bool = False,
        timed_out: bool = False,
        error: KafkaError | None = None,
        latency_ms: int = 0,
    ) -> None:
        self.request = request
        self.response = response
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.error = error
        self.version = request.version
        self.latency_ms = latency_ms

    def __repr__(self) -> str:
        return f"ClientResponse({self.request!r}, error={self.error!r})"
