"""The way to the coordinator of a group or of a transactional id: FindCoordinator, and a connection of its own.

The connection has a node id of its own, as in Kafka's clients: a broker answers the requests of one connection in order, and a heartbeat
must not stand behind a Fetch that waits for records, nor the end of a transaction behind a Produce.

Source: Kafka's AbstractCoordinator (ensureCoordinatorReady, markCoordinatorUnknown) and CoordinatorRequestManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafkacore import errors
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.connection import doubled_ms
from kafkacore.net.node_ids import broker_of, coordinator_id
from kafkacore.protocol import FindCoordinatorRequest
from kafkacore.types import Node

GROUP = 0
TRANSACTION = 1
"""What FindCoordinator calls the kinds of coordinators."""

consumer_log = logging.getLogger("kafkacore.consumer")


def named(title: str, message: str | None) -> str:
    """A broker's message, if it sent one, behind the name of what it is about."""
    return f"{title}: {message}" if message else title


class CoordinatorLink:
    """Finds the coordinator of a group or a transactional id and sends it requests.

    Args:
        client: the network.
        key: the group id or the transactional id.
        kind: GROUP or TRANSACTION.
        log: where it says that the coordinator is another one.
        retry_backoff_ms, retry_backoff_max_ms: between two questions for the coordinator, doubled with every failed one.

    Attributes:
        node: the coordinator, under its connection's own id; None while it is not known.
        failure: why the cluster refuses to name a coordinator for good (authorization, a wrong group id, too old a broker); the caller
            that raises it takes it away.
        attempts: why the coordinator could not be found or reached since it was last ready, oldest first.
        unknown_since_ms: since when it has been looked for and not found, -1 while it is known or before it is needed.
        changes: counts how often the coordinator became unknown.
        awaited: the node whose connection was not ready when something was to be sent; None once it was.
        answers: counts what came in: a change means that a step has something to do.
    """

    def __init__(
        self,
        client: NetworkClient,
        key: str,
        *,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        kind: int = GROUP,
        log: logging.Logger = consumer_log,
    ) -> None:
        self._client = client
        self._key = key
        self._kind = kind
        self._title = f"transactional id {key}" if kind == TRANSACTION else f"group {key}"
        self._log = log
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self.node: Node | None = None
        self.failure: errors.KafkaError | None = None
        self.attempts: list[errors.KafkaError] = []
        self.unknown_since_ms = -1
        self.changes = 0
        self.answers = 0
        self._asked: object | None = None
        self._asked_node: Node | None = None
        self.awaited: Node | None = None
        self._tries = 0
        self._failed = False  # answers carry no time: the next step starts the back-off
        self._retry_at_ms = 0

    def start_anew(self, client: NetworkClient) -> None:
        """Another network client: nothing is under way any more."""
        self._client = client
        self._asked = self.awaited = None

    def ready(self, now_ms: int) -> bool:
        """True when a request can be sent now; else goes on finding the coordinator and connecting to it."""
        node = self.node
        if node is None:
            if self.unknown_since_ms < 0:
                self.unknown_since_ms = now_ms
            self._find(now_ms)
            return False
        if self._client.ready(node, now_ms):
            self.awaited = None
            self.attempts.clear()
            self.unknown_since_ms = -1
            return True
        self.awaited = node
        if self._client.connection_failed(node):
            self.lost(self._client.connection_errors(node)[-1])
            self._failed = True  # the same coordinator is likely to be named again: not in a circle without a rest
        return False

    def can_go_on(self, now_ms: int) -> bool:
        """True when a connection that was not ready has become so: what waits for it needs no back-off."""
        return self.awaited is not None and self._client.is_ready(self.awaited, now_ms)

    @property
    def broker_id(self) -> int:
        """The coordinator's broker id, -1 while it is not known."""
        return -1 if self.node is None else coordinator_id(self.node.id)  # which is its own inverse

    def lost(self, reason: errors.KafkaError | str) -> None:
        """The coordinator has moved or cannot be reached: it is looked for again."""
        if self.node is None:
            return
        self._log.info("%s: broker %d is not the coordinator any more or cannot be reached: %s", self._title, self.broker_id, reason)
        if isinstance(reason, errors.KafkaError):
            self._note(reason)
        self._client.disconnect(self.node.id)
        self.node = None
        self.changes += 1

    def _note(self, cause: errors.KafkaError) -> None:
        self.attempts.append(cause)
        del self.attempts[:-10]

    def _find(self, now_ms: int) -> None:
        if self._failed:
            self._failed = False
            self._retry_at_ms = now_ms + doubled_ms(self._backoff_ms, self._backoff_max_ms, self._tries)
            self._tries += 1
        if self._asked is not None or now_ms < self._retry_at_ms:
            return
        node = self._client.least_loaded_node(now_ms)
        self._asked_node = self.awaited = node
        if node is None or not self._client.ready(node, now_ms):
            return
        self.awaited = None
        asked = self._asked = object()

        def build(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[self._key])
            return FindCoordinatorRequest(key=self._key, key_type=self._kind)

        def answered(response: ClientResponse) -> None:
            if self._asked is not asked:
                return
            self._asked = None
            self.answers += 1
            self._found(response)

        least = 1 if self._kind else None  # version 0 knows groups only
        request = self._client.new_client_request(node.id, FindCoordinatorRequest, build, now_ms, callback=answered, min_version=least)
        try:
            self._client.send(request, now_ms)
        except errors.UsageError as error:  # the key has no form on the wire
            self._asked = None
            self._failed = True
            self.failure = error

    def _found(self, response: ClientResponse) -> None:
        if response.error is not None or response.response is None:
            self._failed = True
            self._note(response.error or errors.DisconnectError("the connection was lost"))
            if isinstance(response.error, errors.UnsupportedVersion):
                self.failure = response.error                 # the broker is too old, and will be when it is asked again
            return
        data: Any = response.response
        if response.version >= 4:
            answers = [c for c in data.coordinators if c.key == self._key]
            if not answers:
                self._failed = True
                where = broker_of(response.request.node_id)
                self._note(errors.UnknownServer(f"the answer leaves {self._title} out", broker=where, api="FindCoordinator"))
                return
            data = answers[0]
        if data.error_code:
            cause = errors.from_code(
                data.error_code,
                named(self._title, data.error_message),
                broker=broker_of(response.request.node_id),
                api=f"FindCoordinator v{response.version}",
            )
            self._failed = True
            self._note(cause)
            if not cause.retriable:
                self.failure = cause
            return
        if data.node_id < 0 or not data.host or not 0 < data.port < 65_536:
            self._failed = True
            self._note(
                errors.UnknownServer(
                    f"{self._title}: the answer names broker {data.node_id} at {data.host!r}, port {data.port}",
                    broker=broker_of(response.request.node_id),
                    api=f"FindCoordinator v{response.version}",
                )
            )
            return
        self._tries = 0
        self.failure = None
        self.node = Node(coordinator_id(data.node_id), data.host, data.port)
        self._log.debug("%s: broker %d (%s:%d) is the coordinator", self._title, data.node_id, data.host, data.port)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until the next question for the coordinator, or the next attempt to connect to it; None when only an answer is
        awaited.
        """
        if self.node is not None:
            return self._wait_ms(self.node, now_ms)
        if self._failed:
            return 0
        if self._asked is not None:
            return None
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        return self._backoff_ms if self._asked_node is None else self._wait_ms(self._asked_node, now_ms)

    def _wait_ms(self, node: Node, now_ms: int) -> int:
        """How long until something may be sent to a node. One that is connected but not ready waits for metadata, or for answers."""
        if self._client.is_ready(node, now_ms):
            return 0
        return min(self._client.poll_delay_ms(node, now_ms), max(self._backoff_ms, 10))

    def send(
        self,
        api: type[Any],
        build: Callable[[int], Any],
        now_ms: int,
        answered: Callable[[ClientResponse], None],
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        """Sends a request to the coordinator; `ready` has just said that it can be sent.

        A coordinator that disconnects or does not answer in time is looked for again before `answered` is called. A request that cannot be
        encoded is answered at once, with a UsageError.
        """
        node = self.node
        if node is None:
            raise errors.InternalError("a request for a coordinator that is not known")

        def check(response: ClientResponse) -> None:
            self.answers += 1
            if (response.disconnected or response.timed_out) and self.node is node:
                self.lost(response.error or "the connection was lost")
            answered(response)

        request = self._client.new_client_request(
            node.id, api, build, now_ms, callback=check, timeout_ms=timeout_ms, min_version=min_version, max_version=max_version
        )
        try:
            self._client.send(request, now_ms)
        except errors.UsageError as error:  # something that the caller gave has no form on the wire
            check(ClientResponse(request, error=error))
