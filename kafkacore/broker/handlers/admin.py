"""DescribeCluster.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

from kafkacore.broker.handlers.common import ALL_CLUSTER_OPERATIONS, NOT_ASKED
from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import Code
from kafkacore.protocol import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

BROKERS_ENDPOINT = 1


def describe_cluster(state: BrokerState, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """DescribeCluster v0-2. Only the brokers' endpoint exists; there are no fenced brokers."""
    cluster = state.cluster
    if call.version >= 1 and request.endpoint_type != BROKERS_ENDPOINT:
        return DescribeClusterResponse(
            error_code=Code.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's listener",
            endpoint_type=BROKERS_ENDPOINT,
            cluster_id=cluster.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=0,
        error_message=None,
        endpoint_type=BROKERS_ENDPOINT,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in cluster.nodes.values()
        ],
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED,
    )
