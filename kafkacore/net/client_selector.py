"""The selector of a client, as its settings say."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from kafkacore.clock import Clock
from kafkacore.config import ClientConfig
from kafkacore.net.authentication import Authenticators
from kafkacore.net.selector import Selector
from kafkacore.net.transport import SocketTransports


def client_selector(
    config: ClientConfig, clock: Clock, ssl_contexts: Callable[[], ssl.SSLContext] | None, authenticators: Authenticators | None
) -> Selector:
    """A new selector.

    Args:
        config: the client's settings.
        clock: the time.
        ssl_contexts: what `config.ssl_contexts` gives; a client that renews its selector keeps it.
        authenticators: of the connections; None without SASL.
    """
    transports = SocketTransports(
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
        ssl_context=ssl_contexts,
    )
    return Selector(
        clock,
        max_receive_bytes=config.receive_message_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        transports=transports,
        authenticator=authenticators,
    )
