"""What handlers ask before they serve a client: may it? Without an authorizer it always may.

Source: kafka.server.AuthHelper.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkacore import errors
from kafkacore.broker.authorizer import CLUSTER, CLUSTER_NAME, DESCRIBE, TOPIC
from kafkacore.broker.handlers.common import ALL_CLUSTER_OPERATIONS
from kafkacore.broker.state import BrokerState, Call

CLUSTER_REFUSED = "Cluster authorization failed."
GROUP_REFUSED = "Group authorization failed."
TOPIC_REFUSED = "Topic authorization failed."
TRANSACTIONAL_ID_REFUSED = "Transactional Id authorization failed."
"""Kafka's words for CLUSTER_AUTHORIZATION_FAILED and so on."""


def may(state: BrokerState, call: Call, operation: int, resource_type: int, name: str) -> bool:
    """Whether the client may do something to a resource.

    Args:
        state: the broker's.
        call: the client's.
        operation, resource_type: Kafka's numbers, as in `kafkacore.broker.authorizer`.
        name: of the resource.
    """
    authorizer = state.authorizer
    if authorizer is None:
        return True
    if call.whole is None:
        return authorizer.allows(call.principal, call.client_host, operation, resource_type, name)
    key, answers = (operation, resource_type, name), call.whole.answers
    known = answers.get(key)
    if known is None:
        known = answers[key] = authorizer.allows(call.principal, call.client_host, operation, resource_type, name)
    return known


def may_some(state: BrokerState, call: Call, operation: int, resource_type: int) -> bool:
    """Whether the client may do something to any resource of a type."""
    authorizer = state.authorizer
    return authorizer is None or authorizer.allows_some(call.principal, call.client_host, operation, resource_type)


def check_topic(state: BrokerState, call: Call, operation: int, topic: str) -> None:
    """Refuses a client that may not do something to a topic.

    Raises:
        TopicAuthorization: it may not.
    """
    if not may(state, call, operation, TOPIC, topic):
        raise errors.TopicAuthorization(TOPIC_REFUSED, topic=topic)


def may_cluster(state: BrokerState, call: Call, operation: int) -> bool:
    """Whether the client may do something to the cluster."""
    return may(state, call, operation, CLUSTER, CLUSTER_NAME)


def names_allowed(
    state: BrokerState, call: Call, operation: int, resource_type: int, names: Iterable[str]
) -> frozenset[str] | None:
    """Which of several resources the client may do something to; None if there is no authorizer, and so to all.

    Args:
        state, call, operation, resource_type: as for `may`.
        names: of the resources; asked about once each.
    """
    if state.authorizer is None:
        return None
    return frozenset(name for name in set(names) if may(state, call, operation, resource_type, name))


def operations(state: BrokerState, call: Call, resource_type: int, name: str, candidates: int) -> int:
    """The bits of those operations that the client may do, for the *AuthorizedOperations of a response."""
    authorizer = state.authorizer
    return candidates if authorizer is None else authorizer.operations(call.principal, call.client_host, resource_type, name, candidates)


def cluster_operations(state: BrokerState, call: Call) -> int:
    """The bits of what the client may do to the cluster, if it may DESCRIBE it; else no bit."""
    return operations(state, call, CLUSTER, CLUSTER_NAME, ALL_CLUSTER_OPERATIONS) if may_cluster(state, call, DESCRIBE) else 0
