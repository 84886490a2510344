"""What a client waits for at brokers, for a client's `health`."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore.config_listeners import joined
from kafkacore.net.client import ClientRequest, NetworkClient
from kafkacore.net.connection import AWAITING_TOKEN, CHECKING_API_VERSIONS, CONNECTING, REAUTHENTICATING, RESOLVING
from kafkacore.net.node_ids import broker_of

LONG_MS = 5_000
"""A wait that is named."""

_NONE: Mapping[int, int] = {}
_SETTING_UP = {
    RESOLVING: "its name has been looked up",
    CONNECTING: "it has been connected to, or asked to let this client in,",
    AWAITING_TOKEN: "credentials for it (an OAuth token, a Kerberos ticket) have been waited for",
    REAUTHENTICATING: "the session has been renewed",
    CHECKING_API_VERSIONS: "it has been asked for its versions",
}


class Pieces:
    """Large answers that come in pieces.

    One is waited for since its last piece: a program that does not poll leaves the rest in the socket, and that is no fault of the broker.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[tuple[ClientRequest, int], int]] = {}

    def take_in(self, client: NetworkClient, now_ms: int) -> dict[int, int]:
        """Takes in what has arrived; nothing is waited for.

        Args:
            client: the network.
            now_ms: time.

        Returns:
            By connection when a piece of the answer that is half here was last seen to come; 0 for not yet.
        """
        before = self._half_here(client)
        client.poll(0, now_ms)
        seen = {}
        for node_id, piece in self._half_here(client).items():
            known, came_ms = self._seen.get(node_id, (before.get(node_id), 0))
            seen[node_id] = piece, came_ms if piece == known else now_ms
        self._seen = seen
        return {node_id: came_ms for node_id, (_, came_ms) in seen.items()}

    @staticmethod
    def _half_here(client: NetworkClient) -> dict[int, tuple[ClientRequest, int]]:
        """Which requests have a part of a large answer, and how many bytes of it."""
        found: dict[int, tuple[ClientRequest, int]] = {}
        for node_id, channel in client.selector.channels.items():
            if isinstance(node_id, int) and channel.reader.filling and (request := client.in_flight.oldest(node_id)) is not None:
                found[node_id] = request, channel.reader.target()[1]
        return found


def waits(client: NetworkClient, now_ms: int, may_take_ms: Mapping[type, int], came_ms: Mapping[int, int] = _NONE) -> list[str]:
    """Answers, throttles and connections that have been waited for for 5 s, one sentence each. What has arrived has been taken in.

    Args:
        client: the network.
        now_ms: time.
        may_take_ms: by request, how long its answer may be away with nothing wrong.
        came_ms: what `Pieces.take_in` has found.
    """
    found: list[str] = []
    nodes = client.metadata.snapshot.nodes
    for node_id, connection in client._connections.items():
        broker = broker_of(node_id)
        node = nodes.get(node_id if broker is None else broker)
        named = "a bootstrap server" if broker is None else f"broker {broker}"
        if node is not None:
            named += f" ({joined(node.host, node.port)})"
        request = client.in_flight.oldest(node_id)
        left_ms = connection.throttled_until_ms - now_ms
        if left_ms > 0:
            if left_ms >= LONG_MS:
                found.append(f"{named} throttles this client for another {left_ms // 1000} s")
        elif request is not None:
            waited_ms = now_ms - max(request.sent_ms, came_ms.get(node_id, 0))
            if waited_ms - may_take_ms.get(request.api, 0) >= LONG_MS:
                found.append(f"{named} has not answered {request.api.__name__.removesuffix('Request')} for {waited_ms // 1000} s")
        elif connection.state in _SETTING_UP and (waited_ms := now_ms - connection.last_attempt_ms) >= LONG_MS:
            found.append(f"{named}: {_SETTING_UP[connection.state]} for {waited_ms // 1000} s")
    return found
