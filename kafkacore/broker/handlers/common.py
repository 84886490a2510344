"""What the handlers share: error codes, topics by name or id, hints about leaders.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

from kafkacore import errors
from kafkacore.broker.controller.state import code_of as code_of
from kafkacore.broker.sessions import TopicKey
from kafkacore.broker.state import BrokerState
from kafkacore.errors import Code
from kafkacore.protocol import LeaderIdAndEpoch, NodeEndpoint

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


def endpoints(state: BrokerState, leaders: set[int]) -> list[NodeEndpoint]:
    if not leaders:
        return []
    nodes = (state.cluster.nodes[leader] for leader in sorted(leaders) if leader in state.cluster.nodes)
    return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


def topic_name(state: BrokerState, topic: TopicKey) -> str:
    if isinstance(topic, str):
        return topic
    known = state.cluster.topics_by_id.get(topic)
    if known is None:
        raise errors.UnknownTopicId("no topic has this id")
    return known.name
