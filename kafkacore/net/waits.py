"""What a client waits for at brokers, for a client's `health`."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacore.config_listeners import joined
from kafkacore.net.client import NetworkClient
from kafkacore.net.connection import AWAITING_TOKEN, CHECKING_API_VERSIONS, CONNECTING, REAUTHENTICATING, RESOLVING
from kafkacore.net.node_ids import broker_of

LONG_MS = 5_000
"""A wait that is named."""

_SETTING_UP = {
    RESOLVING: "its name has been looked up",
    CONNECTING: "it has been connected to, or asked to let this client in,",
    AWAITING_TOKEN: "credentials for it (an OAuth token, a Kerberos ticket) have been waited for",
    REAUTHENTICATING: "the session has been renewed",
    CHECKING_API_VERSIONS: "it has been asked for its versions",
}


def waits(client: NetworkClient, now_ms: int, may_take_ms: Mapping[type, int]) -> list[str]:
    """Answers, throttles and connections that have been waited for for 5 s, one sentence each. What has arrived has been taken in.

    Args:
        client: the network.
        now_ms: time.
        may_take_ms: by request, how long its answer may be away with nothing wrong.
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
            waited_ms = now_ms - request.sent_ms
            if waited_ms - may_take_ms.get(request.api, 0) >= LONG_MS:
                found.append(f"{named} has not answered {request.api.__name__.removesuffix('Request')} for {waited_ms // 1000} s")
        elif connection.state in _SETTING_UP and (waited_ms := now_ms - connection.last_attempt_ms) >= LONG_MS:
            found.append(f"{named}: {_SETTING_UP[connection.state]} for {waited_ms // 1000} s")
    return found
