"""What is asked by each of `acl_principals.py`: a request per case, of every API and of all its forms.

A request that would change much, if it is allowed, is one that must fail afterwards: it names what does not exist, or only validates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkacore import protocol as p
from tests.kit.batches import batch
from tests.security.acl_principals import LITERAL, OF_EVERYBODY, SUPER, TOPIC


class Who(NamedTuple):
    """What a request is made of.

    Attributes:
        user: who asks.
        topic_ids: by topic.
        producers: producer id and epoch by transactional id.
    """

    user: str
    topic_ids: dict[str, bytes]
    producers: dict[str, tuple[int, int]]

    def own(self, *names: str) -> list[str]:
        return [f"{self.user}.{name}" for name in names]


Build = Callable[[Who], Any]


class Case(NamedTuple):
    """A request.

    Attributes:
        name: of its row in the table.
        version: of its API.
        build: makes it.
        ordered: whether the order of the items in the answer counts; Kafka's is that of a hash table else.
    """

    name: str
    version: int
    build: Build
    ordered: bool


CASES: dict[str, Case] = {}


def case(*versions: int, ordered: bool = True, name: str | None = None) -> Callable[[Build], Build]:
    """Of a function, or of a lambda with a name."""

    def add(build: Build) -> Build:
        for version in versions:
            shown = f"{(name or build.__name__).replace('_', '-')} v{version}"
            CASES[shown] = Case(shown, version, build, ordered)
        return build

    return add


def topics_of(who: Who) -> list[str]:
    return [*who.own("t", "missing"), "other.t", "other.missing", "public.t", "closed.t"]


UNKNOWN_ID = b"\x07" * 16


def ids_of(who: Who) -> list[bytes]:
    return [who.topic_ids[f"{who.user}.t"], UNKNOWN_ID, *(who.topic_ids[f"{name}.t"] for name in ("other", "public", "closed"))]


def named(who: Who, kind: Any, **fields: Any) -> list[Any]:
    """A struct for each topic that is asked about."""
    return [kind(name=name, **fields) for name in topics_of(who)]


def by_id(who: Who, kind: Any, **fields: Any) -> list[Any]:
    return [kind(topic_id=topic_id, **fields) for topic_id in ids_of(who)]


# ---- records


def _produce(topics: list[p.TopicProduceData], transactional_id: str | None = None) -> p.ProduceRequest:
    return p.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics, transactional_id=transactional_id)


def _records(**settings: Any) -> list[p.PartitionProduceData]:
    now_ms = int(time.time() * 1000)  # else Kafka's retention has it
    return [p.PartitionProduceData(index=0, records=batch([b"v"], timestamps_ms=[now_ms], **settings))]


case(12, ordered=False, name="produce")(lambda who: _produce(named(who, p.TopicProduceData, partition_data=_records())))
case(13, ordered=False, name="produce_by_id")(lambda who: _produce(by_id(who, p.TopicProduceData, partition_data=_records())))


def _produce_transactionally(who: Who, transactional_id: str) -> p.ProduceRequest:
    producer_id, epoch = who.producers[transactional_id]
    records = _records(producer_id=producer_id, epoch=epoch, sequence=0, is_transactional=True)
    return _produce([p.TopicProduceData(name=f"{who.user}.t", partition_data=records)], transactional_id)


case(12, ordered=False, name="produce_in_a_transaction")(lambda who: _produce_transactionally(who, f"{who.user}.x"))
case(12, ordered=False, name="produce_in_a_transaction_of_another")(lambda who: _produce_transactionally(who, "closed.x"))


def _fetch(topics: list[p.FetchTopic], replica_id: int = -1) -> p.FetchRequest:
    return p.FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, replica_id=replica_id)


_PART = [p.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]


case(12, ordered=False, name="fetch")(lambda who: _fetch([p.FetchTopic(topic=name, partitions=_PART) for name in topics_of(who)]))
case(17, ordered=False, name="fetch_by_id")(lambda who: _fetch(by_id(who, p.FetchTopic, partitions=_PART)))
case(12, ordered=False, name="fetch_as_a_broker")(
    lambda who: _fetch([p.FetchTopic(topic=name, partitions=_PART) for name in topics_of(who)[:4]], replica_id=99)
)
_BEGIN = [p.ListOffsetsPartition(partition_index=0, timestamp=-2)]
case(10, ordered=False, name="list_offsets")(
    lambda who: p.ListOffsetsRequest(replica_id=-1, topics=named(who, p.ListOffsetsTopic, partitions=_BEGIN))
)


@case(4, ordered=False)
def offset_for_leader_epoch(who: Who) -> Any:
    part = [p.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return p.OffsetForLeaderEpochRequest(topics=[p.OffsetForLeaderTopic(topic=name, partitions=part) for name in topics_of(who)])


_NOTHING = [p.DeleteRecordsPartition(partition_index=0, offset=0)]
case(2, ordered=False, name="delete_records")(
    lambda who: p.DeleteRecordsRequest(topics=named(who, p.DeleteRecordsTopic, partitions=_NOTHING), timeout_ms=10_000)
)


# ---- metadata


def _metadata(topics: Any, operations: bool = True) -> p.MetadataRequest:
    return p.MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=operations)


case(12, ordered=False, name="metadata")(lambda who: _metadata(named(who, p.MetadataRequestTopic), operations=False))
case(12, ordered=False, name="metadata_with_operations")(lambda who: _metadata(named(who, p.MetadataRequestTopic)))
case(12, ordered=False, name="metadata_of_all_topics")(lambda _: p.MetadataRequest(topics=None, include_topic_authorized_operations=True))
case(12, ordered=False, name="metadata_by_id")(lambda who: _metadata(by_id(who, p.MetadataRequestTopic, name=None)))
case(0, ordered=False, name="describe_topic_partitions")(
    lambda who: p.DescribeTopicPartitionsRequest(topics=named(who, p.DescribeTopicPartitionsTopicRequest))
)
case(0, name="describe_topic_partitions_of_all")(lambda _: p.DescribeTopicPartitionsRequest(topics=[], cursor=None))


# ---- groups

GROUPS = ("g", "missing")


def groups_of(who: Who) -> list[str]:
    return [*who.own(*GROUPS), "other.g", "other.missing", "public.g", "closed.g"]


def _commit(group: str, topics: list[p.OffsetCommitRequestTopic]) -> p.OffsetCommitRequest:
    return p.OffsetCommitRequest(group_id=group, topics=topics)


_COMMITTED = [p.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="") for index in (0, 9)]


def _commit_by_name(who: Who, group: str) -> p.OffsetCommitRequest:
    return _commit(group, named(who, p.OffsetCommitRequestTopic, partitions=_COMMITTED))


case(9, ordered=False, name="offset_commit")(lambda who: _commit_by_name(who, f"{who.user}.g"))
case(9, ordered=False, name="offset_commit_of_another_group")(lambda who: _commit_by_name(who, "other.g"))
case(9, ordered=False, name="offset_commit_of_a_public_group")(lambda who: _commit_by_name(who, "public.g"))
case(10, ordered=False, name="offset_commit_by_id")(
    lambda who: _commit(f"{who.user}.g", by_id(who, p.OffsetCommitRequestTopic, partitions=_COMMITTED))
)
case(7, name="offset_fetch")(
    lambda who: p.OffsetFetchRequest(group_id=f"{who.user}.g", topics=named(who, p.OffsetFetchRequestTopic, partition_indexes=[0]))
)


def _fetch_of_groups(who: Who, topics: list[p.OffsetFetchRequestTopics] | None) -> p.OffsetFetchRequest:
    return p.OffsetFetchRequest(groups=[p.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups_of(who)])


case(9, name="offset_fetch_of_groups")(lambda who: _fetch_of_groups(who, named(who, p.OffsetFetchRequestTopics, partition_indexes=[0])))
case(9, ordered=False, name="offset_fetch_of_all_topics")(lambda who: _fetch_of_groups(who, None))
case(10, name="offset_fetch_by_id")(lambda who: _fetch_of_groups(who, by_id(who, p.OffsetFetchRequestTopics, partition_indexes=[0])))


@case(0)
def offset_delete(who: Who) -> Any:
    part = [p.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    topics = [p.OffsetDeleteRequestTopic(name=name, partitions=part) for name in topics_of(who)]
    return p.OffsetDeleteRequest(group_id=f"{who.user}.mixed", topics=topics)


@case(0)
def offset_delete_of_another_group(who: Who) -> Any:
    part = [p.OffsetDeleteRequestPartition(partition_index=0)]
    return p.OffsetDeleteRequest(group_id="other.missing", topics=[p.OffsetDeleteRequestTopic(name=f"{who.user}.t", partitions=part)])


case(3, name="find_coordinator")(lambda who: p.FindCoordinatorRequest(key=f"{who.user}.g"))
case(6, name="find_coordinators")(lambda who: p.FindCoordinatorRequest(key_type=0, coordinator_keys=groups_of(who)))
case(4, name="find_coordinators_of_transactions")(
    lambda who: p.FindCoordinatorRequest(key_type=1, coordinator_keys=[*who.own("x", "missing"), "other.x", "closed.x"])
)


def _each_group(build: Callable[[Who, str], Any], *versions: int) -> None:
    """The same request for a group of its own, and for those of others."""
    for which in ("own", "other", "public", "closed"):

        def for_group(who: Who, which: str = which) -> Any:
            return build(who, f"{who.user}.j" if which == "own" else f"{which}.g")

        for_group.__name__ = f"{build.__name__}_{which}"
        case(*versions)(for_group)


def join_group(who: Who, group: str) -> Any:
    return p.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[p.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync_group(who: Who, group: str) -> Any:
    return p.SyncGroupRequest(group_id=group, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range")


def heartbeat(who: Who, group: str) -> Any:
    return p.HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


def leave_group(who: Who, group: str) -> Any:
    return p.LeaveGroupRequest(group_id=group, members=[p.MemberIdentity(member_id="m"), p.MemberIdentity(member_id="n")])


_each_group(join_group, 9)
_each_group(sync_group, 5)
_each_group(heartbeat, 4)
_each_group(leave_group, 5)


case(5, ordered=False, name="describe_groups")(lambda who: p.DescribeGroupsRequest(groups=groups_of(who)))
case(6, ordered=False, name="describe_groups_with_operations")(
    lambda who: p.DescribeGroupsRequest(groups=groups_of(who), include_authorized_operations=True)
)
case(5, ordered=False, name="list_groups")(lambda _: p.ListGroupsRequest())


def _beat(who: Who, group: str, topics: list[str]) -> p.ConsumerGroupHeartbeatRequest:
    return p.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"{who.user}-{len(topics)}-{group}",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        server_assignor="uniform",
        topic_partitions=[],
    )


case(1, name="consumer_group_heartbeat")(lambda who: _beat(who, f"{who.user}.k", who.own("t")))
case(1, name="consumer_group_heartbeat_of_another_group")(lambda who: _beat(who, "other.missing", who.own("t", "missing", "d1")))
case(1, name="consumer_group_heartbeat_for_other_topics")(lambda who: _beat(who, f"{who.user}.k", [f"{who.user}.t", "other.t"]))


@case(1, ordered=False)
def consumer_group_describe(who: Who) -> Any:
    groups = [*who.own("c", "mixed", "g", "missing"), "other.c", "public.c", "closed.c"]
    return p.ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=True)


case(2, ordered=False, name="delete_groups")(
    lambda who: p.DeleteGroupsRequest(groups_names=[*who.own("missing"), "other.missing", "closed.g", *who.own("missing", "c")])
)


# ---- transactions


case(4, name="init_producer_id")(lambda _: p.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
case(5, name="init_producer_id_of_a_transaction")(
    lambda who: p.InitProducerIdRequest(transactional_id=f"{who.user}.new", transaction_timeout_ms=60_000)
)
case(4, name="init_producer_id_of_another")(lambda _: p.InitProducerIdRequest(transactional_id="other.new", transaction_timeout_ms=0))


def _partitions(*names: str) -> list[p.AddPartitionsToTxnTopic]:
    return [p.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names]


def _add_partitions(who: Who, of: str, *names: str) -> p.AddPartitionsToTxnRequest:
    producer_id, epoch = who.producers[of]
    return p.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=of,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=_partitions(*names),
    )


case(3, ordered=False, name="add_partitions_to_txn")(
    lambda who: _add_partitions(who, f"{who.user}.x", *topics_of(who), "__consumer_offsets")
)
case(3, ordered=False, name="add_own_partitions_to_txn")(lambda who: _add_partitions(who, f"{who.user}.x", f"{who.user}.t"))
case(3, ordered=False, name="add_partitions_to_txn_of_another")(lambda who: _add_partitions(who, "closed.x", *topics_of(who)))


@case(4, ordered=False)
def add_partitions_to_txn_as_a_broker(who: Who) -> Any:
    producer_id, epoch = who.producers["other.x"]
    wanted = p.AddPartitionsToTxnTransaction(
        transactional_id="other.x", producer_id=producer_id, producer_epoch=epoch, verify_only=True, topics=_partitions("other.t")
    )
    return p.AddPartitionsToTxnRequest(transactions=[wanted])


def _add_offsets(who: Who, transactional_id: str, group: str) -> p.AddOffsetsToTxnRequest:
    producer_id, epoch = who.producers[f"{who.user}.x"]
    return p.AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group)


case(3, name="add_offsets_to_txn")(lambda who: _add_offsets(who, *who.own("x", "g")))
case(3, name="add_offsets_of_another_group_to_txn")(lambda who: _add_offsets(who, f"{who.user}.x", "closed.g"))
case(3, name="add_offsets_to_txn_of_another")(lambda who: _add_offsets(who, "closed.x", f"{who.user}.g"))


def _txn_commit(who: Who, transactional_id: str, group: str) -> Any:
    producer_id, epoch = who.producers[f"{who.user}.x"]
    part = [p.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="") for index in (0, 9)]
    topics = [p.TxnOffsetCommitRequestTopic(name=name, partitions=part) for name in topics_of(who)]
    return p.TxnOffsetCommitRequest(
        transactional_id=transactional_id, group_id=group, producer_id=producer_id, producer_epoch=epoch, topics=topics
    )


case(5, ordered=False, name="txn_offset_commit")(lambda who: _txn_commit(who, f"{who.user}.x", f"{who.user}.g"))
case(5, ordered=False, name="txn_offset_commit_of_another_group")(lambda who: _txn_commit(who, f"{who.user}.x", "closed.g"))
case(5, ordered=False, name="txn_offset_commit_of_another")(lambda who: _txn_commit(who, "closed.x", f"{who.user}.g"))


@case(4, 5)
def end_txn(who: Who) -> Any:
    producer_id, epoch = who.producers[f"{who.user}.e"]
    return p.EndTxnRequest(transactional_id=f"{who.user}.e", producer_id=producer_id, producer_epoch=epoch, committed=True)


case(4, name="end_txn_of_another")(
    lambda _: p.EndTxnRequest(transactional_id="other.missing", producer_id=1, producer_epoch=0, committed=False)
)


@case(1)
def write_txn_markers(who: Who) -> Any:
    marker = p.WritableTxnMarker(
        producer_id=987_654,
        producer_epoch=0,
        transaction_result=False,
        topics=[p.WritableTxnMarkerTopic(name=f"{who.user}.missing", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    return p.WriteTxnMarkersRequest(markers=[marker])


@case(0)
def describe_producers(who: Who) -> Any:
    names = [*topics_of(who), "a b"]
    return p.DescribeProducersRequest(topics=[p.DescribeProducersTopicRequest(name=name, partition_indexes=[0, 9]) for name in names])


case(0, ordered=False, name="describe_transactions")(
    lambda who: p.DescribeTransactionsRequest(transactional_ids=[*who.own("x", "missing"), "other.x", "other.missing", "closed.x"])
)
case(1, ordered=False, name="list_transactions")(lambda _: p.ListTransactionsRequest(state_filters=["Ongoing", "Strange"]))


# ---- settings

BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP_CONFIG = 4, 8, 16, 32


def resources_of(who: Who) -> list[tuple[int, str]]:
    return [
        *((TOPIC, name) for name in topics_of(who)),
        (BROKER, "1"),
        (BROKER, ""),
        (BROKER_LOGGER, "1"),
        (CLIENT_METRICS, "m"),
        (GROUP_CONFIG, f"{who.user}.configured"),
        (GROUP_CONFIG, "other.g"),
        (GROUP_CONFIG, "closed.g"),
    ]


SETTINGS = {
    TOPIC: ("retention.ms", "1000"),
    BROKER: ("log.retention.ms", "1000"),
    BROKER_LOGGER: ("root", "WARN"),
    CLIENT_METRICS: ("interval.ms", "1000"),
    GROUP_CONFIG: ("consumer.session.timeout.ms", "50000"),
}


@case(4, ordered=False)
def describe_configs(who: Who) -> Any:
    return p.DescribeConfigsRequest(
        resources=[
            p.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources_of(who)
            if name  # of the defaults of all brokers a Kafka with eligible leader replicas keeps one
        ]
    )


@case(2, ordered=False)
def alter_configs(who: Who) -> Any:
    resources = [
        p.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[p.AlterableConfig(name=SETTINGS[kind][0], value=SETTINGS[kind][1])]
        )
        for kind, name in resources_of(who)
        if kind != BROKER_LOGGER and name
    ]
    return p.AlterConfigsRequest(resources=resources, validate_only=True)


@case(1, ordered=False)
def incremental_alter_configs(who: Who) -> Any:
    resources = [
        p.IncrementalAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[p.IncrementalAlterableConfig(name=SETTINGS[kind][0], config_operation=0, value=SETTINGS[kind][1])],
        )
        for kind, name in resources_of(who)
    ]
    return p.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


case(0, name="list_client_metrics")(lambda _: p.ListConfigResourcesRequest())
case(1, name="list_config_resources")(lambda _: p.ListConfigResourcesRequest(resource_types=[BROKER]))


# ---- the cluster


case(0, 2, name="describe_cluster")(lambda _: p.DescribeClusterRequest(include_cluster_authorized_operations=True))
case(4, name="describe_log_dirs")(
    lambda who: p.DescribeLogDirsRequest(topics=[p.DescribableLogDirTopic(topic=f"{who.user}.t", partitions=[0])])
)


@case(2, ordered=False)
def alter_replica_log_dirs(who: Who) -> Any:
    topics = [p.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in who.own("t", "missing")]
    return p.AlterReplicaLogDirsRequest(dirs=[p.AlterReplicaLogDir(path="/nowhere", topics=topics)])


@case(2)
def describe_quorum(who: Who) -> Any:
    partitions = [p.QuorumPartition(partition_index=0)]
    return p.DescribeQuorumRequest(topics=[p.QuorumTopic(topic_name="__cluster_metadata", partitions=partitions)])


case(0, name="add_raft_voter")(lambda _: p.AddRaftVoterRequest(cluster_id=None, voter_id=-1, timeout_ms=1000))
case(0, name="remove_raft_voter")(lambda _: p.RemoveRaftVoterRequest(cluster_id=None, voter_id=-1))
case(0, name="unregister_broker")(lambda _: p.UnregisterBrokerRequest(broker_id=999))


@case(1)
def update_features(who: Who) -> Any:
    update = p.FeatureUpdateKey(feature="strange.version", max_version_level=1, upgrade_type=1)
    return p.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update], validate_only=True)


# ---- topics


def _create_topics(*names: str) -> p.CreateTopicsRequest:
    topics = [p.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return p.CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True)


_OF_OTHERS = ("other.new", "other.t", "public.t", "closed.t", "closed.new")
case(7, ordered=False, name="create_topics")(lambda who: _create_topics(*who.own("new", "t", "d1"), *_OF_OTHERS))
case(7, ordered=False, name="create_the_metadata_topic")(lambda who: _create_topics("__cluster_metadata", f"{who.user}.new"))
case(3, ordered=False, name="create_partitions")(
    lambda who: p.CreatePartitionsRequest(
        topics=named(who, p.CreatePartitionsTopic, count=2, assignments=None), timeout_ms=10_000, validate_only=True
    )
)


@case(2)
def elect_leaders(who: Who) -> Any:
    wanted = [p.TopicPartitions(topic=name, partitions=[0]) for name in who.own("t", "missing")]
    return p.ElectLeadersRequest(topic_partitions=wanted, timeout_ms=10_000)


@case(0)
def alter_partition_reassignments(who: Who) -> Any:
    part = [p.ReassignablePartition(partition_index=0, replicas=None)]
    topics = [p.ReassignableTopic(name=name, partitions=part) for name in who.own("t", "missing")]
    return p.AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics)


case(0, name="list_partition_reassignments")(lambda _: p.ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None))


# ---- tokens, users, quotas, ACLs


case(3, name="create_delegation_token")(lambda _: p.CreateDelegationTokenRequest(max_lifetime_ms=1000))
case(3, name="create_delegation_token_for_another")(
    lambda _: p.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="other", max_lifetime_ms=1000)
)
case(2, name="renew_delegation_token")(lambda _: p.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000))
case(2, name="expire_delegation_token")(lambda _: p.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1000))
case(3, name="describe_delegation_tokens")(lambda _: p.DescribeDelegationTokenRequest(owners=None))
case(0, name="describe_user_scram_credentials")(lambda _: p.DescribeUserScramCredentialsRequest(users=[p.ScramUserName(name="missing")]))
case(0, name="alter_user_scram_credentials")(
    lambda _: p.AlterUserScramCredentialsRequest(deletions=[p.ScramCredentialDeletion(name="missing", mechanism=1)], upsertions=[])
)


@case(1)
def describe_client_quotas(who: Who) -> Any:
    return p.DescribeClientQuotasRequest(components=[p.ClientQuotaFilterComponent(entity_type="user", match_type=0, match="missing")])


@case(1)
def alter_client_quotas(who: Who) -> Any:
    entity = [p.ClientQuotaEntityPart(entity_type="user", entity_name="missing")]
    ops = [p.ClientQuotaOp(key="producer_byte_rate", value=1000.0)]
    return p.AlterClientQuotasRequest(entries=[p.ClientQuotaAlteration(entity=entity, ops=ops)], validate_only=True)


def _any_acl_of(topic: str) -> dict[str, Any]:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": topic,
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


case(3, name="describe_acls")(lambda _: p.DescribeAclsRequest(**_any_acl_of("public.t")))
case(3, name="create_acls")(lambda _: p.CreateAclsRequest(creations=[OF_EVERYBODY[0]]))
case(3, name="delete_acls")(lambda _: p.DeleteAclsRequest(filters=[p.DeleteAclsFilter(**_any_acl_of("missing"))]))


# ---- the end: what is really removed


@case(6, ordered=False)
def delete_topics(who: Who) -> Any:
    by_id = [who.topic_ids[f"{who.user}.d2"], UNKNOWN_ID, who.topic_ids["closed.t"]] if who.user != SUPER else [UNKNOWN_ID]
    names = [*who.own("d1", "missing"), "other.missing", "closed.missing"]
    states = [*(p.DeleteTopicState(name=name) for name in names), *(p.DeleteTopicState(name=None, topic_id=each) for each in by_id)]
    return p.DeleteTopicsRequest(topics=states, timeout_ms=10_000)


case(1, name="delete_own_groups")(lambda who: p.DeleteGroupsRequest(groups_names=who.own("g")))
case(9, ordered=False, name="metadata_that_creates")(
    lambda who: p.MetadataRequest(topics=[p.MetadataRequestTopic(name=name) for name in (f"{who.user}.auto", "closed.auto")])
)
