"""The broker behind a connection's id."""

from __future__ import annotations

from kafkacore.net.node_ids import broker_of, coordinator_id, title_of
from tests.kit.rows import each_row


@each_row("broker", [0, 1, 1000, 2**30 - 1])
def test_a_coordinator_s_connection_leads_back_to_its_broker(broker: int) -> None:
    assert coordinator_id(broker) != broker
    assert broker_of(coordinator_id(broker)) == broker_of(broker) == broker
    assert title_of(coordinator_id(broker)) == f"coordinator, broker {broker}"
    assert title_of(broker) == f"node {broker}"


@each_row("id", [-1, -7, "127.0.0.1:9092-127.0.0.1:40001-1"])
def test_bootstrap_addresses_and_accepted_connections_have_none(id: int | str) -> None:
    assert broker_of(id) is None
