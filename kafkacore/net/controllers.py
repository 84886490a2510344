"""A cluster that is reached by its controllers (KIP-919): they have no Metadata, and DescribeCluster says who they are.

Source: Kafka's AdminMetadataManager, KafkaAdminClient.
"""

from __future__ import annotations

from typing import Any

from kafkacore import errors
from kafkacore.metadata import Metadata
from kafkacore.protocol import DescribeClusterRequest, DescribeClusterResponse, MetadataResponse, MetadataResponseBroker

CONTROLLERS = 2
"""The endpoint type of controllers."""
FIRST_VERSION = 1
"""Of DescribeCluster with endpoint types (Kafka 3.7)."""
_CONTROLLERS_ONLY = 62
"""BrokerRegistration: no broker serves it."""
_API = "DescribeCluster"


def question(version: int) -> DescribeClusterRequest:
    """Asks who the controllers are."""
    if version < FIRST_VERSION:
        raise errors.UnsupportedVersion("clients can ask controllers since Kafka 3.7", api=_API)
    return DescribeClusterRequest(endpoint_type=CONTROLLERS)


def explain(error: errors.UnsupportedVersion, ranges: dict[int, tuple[int, int]], asks_controllers: bool) -> None:
    """Says in an error why a node that was reached cannot say what the cluster looks like, if that is known.

    Args:
        error: its message becomes longer.
        ranges: what the node serves.
        asks_controllers: it was given as a controller, else as a broker.
    """
    if asks_controllers:
        error.message += "; clients can ask controllers since Kafka 3.7, but not an embedded cluster's, which serves its brokers alone"
    elif _CONTROLLERS_ONLY in ranges:
        names = "bootstrap_servers names brokers, bootstrap_controllers of the admin client controllers"
        error.message = f"the address is that of a controller: {names}"


class ControllersMetadata(Metadata):
    """The controllers as the client knows them, in the place of the brokers; `snapshot.controller` is the active one."""

    asks_controllers = True

    def update(self, response: DescribeClusterResponse, now_ms: int) -> None:
        """Takes in a DescribeClusterResponse."""
        code = response.error_code
        if code:
            is_other = code in (errors.Code.MISMATCHED_ENDPOINT_TYPE, errors.Code.UNSUPPORTED_ENDPOINT_TYPE)
            text = response.error_message or ""
            if is_other:
                text += f"{'; ' if text else ''}bootstrap_controllers names controllers, bootstrap_servers brokers"
            self.failed(errors.from_code(code, text, api=_API, **({"fatal": True} if is_other else {})), now_ms)
        elif response.endpoint_type != CONTROLLERS:
            self.failed(errors.CorruptDataError("the answer is not about controllers", api=_API), now_ms)
        elif not response.brokers:
            self.failed(errors.NetworkError("the answer names no controllers", api=_API), now_ms)
        else:
            super().update(_as_metadata(response), now_ms)


def _as_metadata(response: DescribeClusterResponse) -> Any:
    nodes = [MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack) for each in response.brokers]
    return MetadataResponse(brokers=nodes, cluster_id=response.cluster_id, controller_id=response.controller_id, topics=[])
