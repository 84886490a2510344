"""What is served: API key -> versions and handler.

A handler is `handler(state, call, request)` and returns the response or an `Outcome`; see broker/state.py.
"""

from __future__ import annotations

from kafkacore.broker.handlers import (
    acls,
    configs,
    coordination,
    describe,
    fetch,
    forwarding,
    groups,
    metadata,
    offsets,
    produce,
    security,
    tokens,
    topics,
    txn,
    voters,
)
from kafkacore.broker.handlers.parts import PARTS, SLICED_BY_HANDLER
from kafkacore.broker.served import MAX_REQUEST_ELEMENTS, Served
from kafkacore.broker.slices import MAX_WHOLE_ELEMENTS
from kafkacore.protocol import APIS

__all__ = ["API_VERSIONS", "SERVED", "Served"]

_HANDLERS: dict[int, Served] = {
    0: Served(0, 13, produce.produce),
    1: Served(0, 18, fetch.fetch),
    2: Served(0, 11, offsets.list_offsets),
    3: Served(0, 13, metadata.metadata),
    8: Served(0, 10, groups.offset_commit),
    9: Served(0, 10, groups.offset_fetch),
    10: Served(0, 6, coordination.find_coordinator),
    11: Served(0, 9, groups.join_group),
    12: Served(0, 4, groups.heartbeat),
    13: Served(0, 5, groups.leave_group),
    14: Served(0, 5, groups.sync_group),
    15: Served(0, 6, groups.describe_groups),
    16: Served(0, 5, groups.list_groups),
    17: Served(0, 1, security.sasl_handshake),
    18: Served(0, 4, metadata.api_versions),
    19: Served(0, 7, topics.create_topics),
    20: Served(0, 6, topics.delete_topics),
    21: Served(0, 2, offsets.delete_records),
    22: Served(0, 5, txn.init_producer_id),
    23: Served(0, 4, offsets.offset_for_leader_epoch),
    24: Served(0, 5, txn.add_partitions_to_txn),
    25: Served(0, 4, txn.add_offsets_to_txn),
    26: Served(0, 5, txn.end_txn),
    27: Served(0, 2, txn.write_txn_markers),
    28: Served(0, 5, txn.txn_offset_commit),
    29: Served(0, 3, acls.describe_acls),
    30: Served(0, 3, acls.create_acls),
    31: Served(0, 3, acls.delete_acls),
    32: Served(0, 4, configs.describe_configs),
    33: Served(0, 2, configs.alter_configs),
    34: Served(0, 2, describe.alter_replica_log_dirs),
    35: Served(0, 5, describe.describe_log_dirs),
    36: Served(0, 2, security.sasl_authenticate),
    37: Served(0, 3, topics.create_partitions),
    38: Served(0, 3, tokens.create_delegation_token),
    39: Served(0, 2, tokens.renew_delegation_token),
    40: Served(0, 2, tokens.expire_delegation_token),
    41: Served(0, 3, tokens.describe_delegation_token),
    42: Served(0, 2, groups.delete_groups),
    43: Served(0, 2, forwarding.pass_on),
    44: Served(0, 1, configs.incremental_alter_configs),
    45: Served(0, 1, forwarding.pass_on),
    46: Served(0, 0, forwarding.pass_on),
    47: Served(0, 0, groups.offset_delete),
    48: Served(0, 1, security.describe_client_quotas),
    49: Served(0, 1, forwarding.pass_on),
    50: Served(0, 0, security.describe_user_scram_credentials),
    51: Served(0, 0, forwarding.pass_on),
    55: Served(0, 2, describe.describe_quorum),
    57: Served(0, 2, forwarding.pass_on),
    60: Served(0, 2, describe.describe_cluster),
    61: Served(0, 0, txn.describe_producers),
    64: Served(0, 0, forwarding.pass_on),
    65: Served(0, 0, txn.describe_transactions),
    66: Served(0, 2, txn.list_transactions),
    68: Served(0, 1, groups.consumer_group_heartbeat),
    69: Served(0, 1, groups.consumer_group_describe),
    74: Served(0, 1, configs.list_config_resources),
    75: Served(0, 0, describe.describe_topic_partitions),
    80: Served(0, 1, voters.add_raft_voter),
    81: Served(0, 0, voters.remove_raft_voter),
}

SERVED: dict[int, Served] = {
    key: served._replace(
        parts=PARTS.get(key, ()),
        max_elements=MAX_REQUEST_ELEMENTS if key in PARTS or key in SLICED_BY_HANDLER else MAX_WHOLE_ELEMENTS,
    )
    for key, served in _HANDLERS.items()
}
"""What a broker serves, by API key."""

# Kafka 4 advertises Produce from 0 on, because old clients read "compression is possible" from it, and refuses versions 0-2 (KIP-896).
_ADVERTISED_ALTHOUGH_REFUSED = (0,)

API_VERSIONS: dict[int, tuple[int, int]] = {
    key: (0 if key in _ADVERTISED_ALTHOUGH_REFUSED else APIS[key].oldest_served, served.max_version) for key, served in SERVED.items()
}
"""The table a broker advertises unless it is started with another: Kafka 4's. What is served begins with version 0, for older releases."""
