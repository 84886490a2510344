"""What the handlers share: error codes, topics by name or id, hints about leaders.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkacore import errors
from kafkacore.broker.controller.state import code_of as code_of
from kafkacore.broker.sessions import TopicKey
from kafkacore.broker.state import BrokerState
from kafkacore.errors import Code
from kafkacore.protocol import LeaderIdAndEpoch, NodeEndpoint
from kafkacore.types import Node

# Bits are AclOperation codes. Without an authorizer everything that exists for the resource is allowed.
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(2**31)

ZERO_ID = bytes(16)
FIRST_VERSION_WITH_TOPIC_IDS = 13
"""Of Produce and of Fetch."""
STALE_LEADER = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker."
    " See the broker logs for more details."
)
"""What Kafka says of INVALID_REQUEST where it has nothing to say."""


def current_leader(state: BrokerState, topic: TopicKey, index: int) -> LeaderIdAndEpoch:
    """KIP-951: who leads the partition, for clients whose view is old."""
    known = state.cluster.topics_by_id.get(topic) if isinstance(topic, bytes) else state.cluster.topics.get(topic)
    if known is None or index >= len(known.partitions):
        return LeaderIdAndEpoch()
    return LeaderIdAndEpoch(leader_id=known.partitions[index].leader, leader_epoch=known.partitions[index].leader_epoch)


def node_at(state: BrokerState, listener: str, node_id: int) -> Node | None:
    """A broker that is alive as clients of a listener see it (KIP-103); None if it is not alive, or has no such listener."""
    node = state.cluster.nodes.get(node_id)
    return node if node is None or not listener else state.cluster.brokers[node_id].node_at(listener)


def nodes_at(state: BrokerState, listener: str, ids: Iterable[int]) -> list[Node]:
    """The same of several, without those that are not to be had."""
    return [node for node_id in ids if (node := node_at(state, listener, node_id)) is not None]


def endpoints(state: BrokerState, listener: str, leaders: set[int]) -> list[NodeEndpoint]:
    if not leaders:
        return []
    nodes = nodes_at(state, listener, sorted(leaders))
    return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


def topic_name(state: BrokerState, topic: TopicKey) -> str:
    if isinstance(topic, str):
        return topic
    known = state.cluster.topics_by_id.get(topic)
    if known is None:
        raise errors.UnknownTopicId("no topic has this id")
    return known.name
