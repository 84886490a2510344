"""Ids of connections, and the brokers behind them.

    negative        an address of bootstrap_servers; its broker's id is not known
    below 2**30     a broker, by its own id
    from 2**30 on   the connection of its own to a broker as coordinator: 2**31 - 1 less its id

Source: Kafka's clients (AbstractCoordinator).
"""

from __future__ import annotations

from typing import Any

_HIGHEST = 2**31 - 1
_FIRST_COORDINATOR = 2**30


def coordinator_id(broker_id: int) -> int:
    """The id of the connection to a broker as coordinator."""
    return _HIGHEST - broker_id


def broker_of(node_id: Any) -> int | None:
    """The broker behind a connection, as errors name it; None where it is not known."""
    if not isinstance(node_id, int) or node_id < 0:
        return None
    return _HIGHEST - node_id if node_id >= _FIRST_COORDINATOR else node_id


def title_of(node_id: int) -> str:
    """A connection's other end, for people."""
    return f"coordinator, broker {_HIGHEST - node_id}" if node_id >= _FIRST_COORDINATOR else f"node {node_id}"
