"""AddRaftVoter, RemoveRaftVoter: the voters of the controller's quorum, which here is one that stays.

Answered as by a Kafka whose quorum is fixed by its settings (kraft.version 0).

Source: org.apache.kafka.raft.{KafkaRaftClient, RaftUtil}, its internals AddVoterHandler and RemoveVoterHandler.
"""

from __future__ import annotations

from kafkacore import errors
from kafkacore.broker.authorizer import ALTER
from kafkacore.broker.controller.state import code_of
from kafkacore.broker.handlers.access import CLUSTER_REFUSED, may_cluster
from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import KafkaError
from kafkacore.protocol import (
    ZERO_UUID,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RaftVoterListener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

LISTENER = "CONTROLLER"


def add_raft_voter(state: BrokerState, call: Call, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """AddRaftVoter v0-1: UNSUPPORTED_VERSION, if nothing else is wrong."""
    refused = _look(state, call, request, "Add", request.listeners)
    return AddRaftVoterResponse(error_code=code_of(refused), error_message=refused.message)


def remove_raft_voter(state: BrokerState, call: Call, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """RemoveRaftVoter v0: UNSUPPORTED_VERSION, if nothing else is wrong."""
    refused = _look(state, call, request, "Remove", None)
    return RemoveRaftVoterResponse(error_code=code_of(refused), error_message=refused.message)


def _look(
    state: BrokerState,
    call: Call,
    request: AddRaftVoterRequest | RemoveRaftVoterRequest,
    verb: str,
    listeners: list[RaftVoterListener] | None,
) -> KafkaError:
    if not may_cluster(state, call, ALTER):
        return errors.ClusterAuthorization(CLUSTER_REFUSED)
    cluster_id = state.cluster.cluster_id
    if request.cluster_id not in (None, cluster_id):
        return errors.InconsistentClusterId(f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"')
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return errors.InvalidRequest(f"{verb} voter request didn't include a valid voter")
    if listeners is not None and all(each.name != LISTENER for each in listeners):
        shown = ", ".join(f"ListenerName({each.name})={each.host}/<unresolved>:{each.port}" for each in listeners)
        return errors.InvalidRequest(
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{shown}}})) for the default listener"
            f" ListenerName({LISTENER})"
        )
    doing = "adding" if listeners is not None else "removing"
    return errors.UnsupportedVersion(f"Cluster doesn't support {doing} voter because the kraft.version feature is 0")
