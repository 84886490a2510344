"""Which requests are handed to their handlers in parts, and how: by API key, a row for each form that the versions have.

An API that is not here, nor yields between its steps, carries out its request as a whole: its limit of elements is lower.
"""

from __future__ import annotations

from typing import Any

from kafkacore.broker.slices import Parts, Repeats
from kafkacore.protocol import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

SLICED_BY_HANDLER = frozenset({1, 30, 31, 35, 75})
"""Fetch and DescribeTopicPartitions yield between their steps; for ACLs and log directories an element is next to no work."""
_ANY = 1 << 30
_LAST_SINGLE_OFFSET_FETCH = 7


def not_elected(part: ElectLeadersRequest, code: int, message: str | None) -> list[Any]:
    """The answers of ElectLeaders to partitions that are all refused."""
    return [
        ReplicaElectionResult(
            topic=each.topic,
            partition_result=[PartitionResult(partition_id=index, error_code=code, error_message=message) for index in each.partitions],
        )
        for each in part.topic_partitions or []
    ]


def not_reassigned(part: AlterPartitionReassignmentsRequest, code: int, message: str | None) -> list[Any]:
    """The same of AlterPartitionReassignments."""
    return [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(partition_index=each.partition_index, error_code=code, error_message=message)
                for each in topic.partitions
            ],
        )
        for topic in part.topics
    ]


def not_deleted(part: OffsetDeleteRequest, code: int, message: str | None) -> list[Any]:
    """The same of OffsetDelete."""
    return [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code) for each in topic.partitions],
        )
        for topic in part.topics
    ]


_ALTERED = Parts(
    ("resources",), ("responses",), (), Repeats.EACH_REFUSED, ("resource_type", "resource_name"), elements=20, inner=("configs",)
)

PARTS: dict[int, tuple[Parts, ...]] = {
    0: (  # partitions do not wait for each other's commits
        Parts(
            ("topic_data", "partition_data"),
            ("responses", "partition_responses"),
            ("name", "topic_id"),
            Repeats.LAST,
            ("index",),
            grouped=True,
            elements=100,
            outstanding=_ANY,
        ),
    ),
    2: (Parts(("topics", "partitions"), ("topics", "partitions"), ("name",), Repeats.REFUSED, ("partition_index",), grouped=True),),
    3: (Parts(("topics",), ("topics",), (), Repeats.FIRST, ("name", "topic_id"), elements=50),),
    8: (Parts(("topics", "partitions"), ("topics", "partitions"), ("name", "topic_id")),),
    9: (
        Parts(("topics", "partition_indexes"), ("topics", "partitions"), ("name",), last_version=_LAST_SINGLE_OFFSET_FETCH),
        Parts(
            ("groups", "topics", "partition_indexes"),
            ("groups", "topics", "partitions"),
            ("group_id", "name", "topic_id"),
            first_version=_LAST_SINGLE_OFFSET_FETCH + 1,
        ),
    ),
    10: (Parts(("coordinator_keys",), ("coordinators",), first_version=4),),
    15: (Parts(("groups",), ("groups",), elements=100),),
    19: (Parts(("topics",), ("topics",), (), Repeats.REFUSED, ("name",), elements=20, inner=("configs", "assignments")),),
    21: (Parts(("topics", "partitions"), ("topics", "partitions"), ("name",), Repeats.LAST, ("partition_index",), grouped=True),),
    23: (Parts(("topics", "partitions"), ("topics", "partitions"), ("topic",)),),
    27: (Parts(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions"), ("producer_id", "name"), grouped=True),),
    28: (Parts(("topics", "partitions"), ("topics", "partitions"), ("name",)),),
    32: (Parts(("resources",), ("results",), elements=10, inner=("configuration_keys",)),),
    33: (_ALTERED,),
    34: (Parts(("dirs", "topics", "partitions"), ("results", "partitions"), ("topic_name",), grouped=True),),
    37: (Parts(("topics",), ("results",), (), Repeats.REFUSED, ("name",), elements=20, inner=("assignments",)),),
    42: (Parts(("groups_names",), ("results",), (), Repeats.FIRST),),
    43: (Parts(("topic_partitions", "partitions"), ("replica_election_results", "partition_result"), ("topic",), refused=not_elected),),
    44: (_ALTERED,),
    45: (Parts(("topics", "partitions"), ("responses", "partitions"), ("name",), refused=not_reassigned),),
    46: (Parts(("topics", "partition_indexes"), ("topics", "partitions"), ("name",)),),
    47: (Parts(("topics", "partitions"), ("topics", "partitions"), ("name",), grouped=True, refused=not_deleted),),
    61: (Parts(("topics", "partition_indexes"), ("topics", "partitions"), ("name",)),),
    65: (Parts(("transactional_ids",), ("transaction_states",)),),
    69: (Parts(("group_ids",), ("groups",), elements=100),),
}
