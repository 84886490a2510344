"""The comparisons of `admin_cases` that are about the cluster, its replicas, quotas and credentials."""

from __future__ import annotations

from kafkacore import protocol as p
from tests.interop.admin_cases import Cases, create, new


def describe_partitions(*topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> p.DescribeTopicPartitionsRequest:
    return p.DescribeTopicPartitionsRequest(
        topics=[p.DescribeTopicPartitionsTopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else p.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def log_dirs(*topics: tuple[str, list[int]]) -> p.DescribeLogDirsRequest:
    return p.DescribeLogDirsRequest(topics=[p.DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics])


def elect(kind: int, *topics: tuple[str, list[int]]) -> p.ElectLeadersRequest:
    return p.ElectLeadersRequest(
        election_type=kind, topic_partitions=[p.TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    )


def reassign(topic: str, changes: dict[int, list[int] | None], change_factor: bool = True) -> p.AlterPartitionReassignmentsRequest:
    return p.AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        allow_replication_factor_change=change_factor,
        topics=[
            p.ReassignableTopic(
                name=topic, partitions=[p.ReassignablePartition(partition_index=index, replicas=ids) for index, ids in changes.items()]
            )
        ],
    )


Entity = dict[str, str | None]


def quota(*entries: tuple[Entity, dict[str, float | None]], validate_only: bool = False) -> p.AlterClientQuotasRequest:
    return p.AlterClientQuotasRequest(
        entries=[
            p.ClientQuotaAlteration(
                entity=[p.ClientQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[p.ClientQuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
            )
            for entity, ops in entries
        ],
        validate_only=validate_only,
    )


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> p.DescribeClientQuotasRequest:
    return p.DescribeClientQuotasRequest(
        components=[p.ClientQuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )


def quorum(*topics: tuple[str, list[int]]) -> p.DescribeQuorumRequest:
    return p.DescribeQuorumRequest(
        topics=[
            p.QuorumTopic(topic_name=name, partitions=[p.QuorumPartition(partition_index=index) for index in indexes])
            for name, indexes in topics
        ]
    )


def update(*features: tuple[str, int, int], validate_only: bool = True) -> p.UpdateFeaturesRequest:
    return p.UpdateFeaturesRequest(
        feature_updates=[p.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in features],
        validate_only=validate_only,
    )


def move_replicas(path: str, name: str, partitions: list[int]) -> p.AlterReplicaLogDirsRequest:
    topics = [p.AlterReplicaLogDirTopic(name=name, partitions=partitions)]
    return p.AlterReplicaLogDirsRequest(dirs=[p.AlterReplicaLogDir(path=path, topics=topics)])


def upsert_scram(name: str, mechanism: int, iterations: int = 4096) -> p.AlterUserScramCredentialsRequest:
    one = p.ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32)
    return p.AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])


def remove_scram(name: str, mechanism: int) -> p.AlterUserScramCredentialsRequest:
    return p.AlterUserScramCredentialsRequest(deletions=[p.ScramCredentialDeletion(name=name, mechanism=mechanism)], upsertions=[])


def scram_of(*names: str) -> p.DescribeUserScramCredentialsRequest:
    return p.DescribeUserScramCredentialsRequest(users=[p.ScramUserName(name=name) for name in names])


def cases(topic: str) -> Cases:
    """Of the cluster, its replicas, quotas and credentials."""
    first, second = topic + "-a", topic + "-b"
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    one = p.AclCreation(resource_type=2, resource_name=topic, principal="User:a", host="*", operation=3, permission_type=3)
    user: Entity = {"user": topic}
    client: Entity = {"client-id": topic}
    return {
        "describe-cluster": [
            (p.DescribeClusterRequest(), 0),
            (p.DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
            (p.DescribeClusterRequest(include_fenced_brokers=True), 2),
            (p.DescribeClusterRequest(endpoint_type=2), 2),
            (p.DescribeClusterRequest(endpoint_type=3), 2),
            (p.DescribeClusterRequest(endpoint_type=0), 1),
        ],
        "describe-topic-partitions": [
            (create(new(first, 3), new(second, 2)), 7),
            (describe_partitions(first, second), 0),
            (describe_partitions(second, first, first), 0),
            (describe_partitions(first, second, limit=2), 0),
            (describe_partitions(first, second, limit=3), 0),
            (describe_partitions(first, second, limit=4), 0),
            (describe_partitions(first, second, limit=2, cursor=(first, 2)), 0),
            (describe_partitions(first, second, cursor=(second, 1)), 0),
            (describe_partitions(first, second, cursor=(first, 7)), 0),
            (describe_partitions(first, second, cursor=(topic + "-aa", 0)), 0),
            (describe_partitions(first, cursor=(second, 1)), 0),
            (describe_partitions(first, cursor=(first, -1)), 0),
            (describe_partitions(topic + "-missing", first), 0),
            (describe_partitions("a b"), 0),
            (describe_partitions(first, second, limit=0), 0),
            (describe_partitions(first, second, limit=-5), 0),
            (describe_partitions(first, second, limit=100_000), 0),
        ],
        "describe-log-dirs": [
            (create(new(topic, 3)), 7),
            *((log_dirs((topic, [0, 1])), version) for version in range(1, 6)),
            (log_dirs((topic, [0, 9]), (topic + "-missing", [0])), 5),
            (log_dirs(), 5),
        ],
        "elect-leaders": [
            (create(new(topic, 2)), 7),
            (elect(0, (topic, [0, 1])), 2),
            (elect(1, (topic, [0])), 2),
            (elect(0, (topic, [0])), 0),
            (elect(0, (topic, [0])), 1),
            (elect(0, (topic, [5]), (topic + "-missing", [0])), 2),
            (elect(0, (topic, [0, 0])), 2),
            (elect(7, (topic, [0])), 2),
            (elect(0), 2),
        ],
        "reassign-partitions": [
            (create(new(topic, 2)), 7),
            (reassign(topic, {0: [1]}), 1),
            (reassign(topic, {0: None}), 1),
            (reassign(topic, {0: [9]}), 1),
            (reassign(topic, {0: []}), 1),
            (reassign(topic, {0: [1, 1]}), 0),
            (reassign(topic, {0: [-1]}), 0),
            (reassign(topic, {7: [1], 1: [1]}), 1),
            (reassign(topic + "-missing", {0: [1]}), 1),
            (reassign(topic, {0: [1, 2]}, change_factor=False), 1),
            (p.AlterPartitionReassignmentsRequest(topics=[]), 1),
            (p.ListPartitionReassignmentsRequest(topics=None), 0),
            (p.ListPartitionReassignmentsRequest(topics=[p.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 9])]), 0),
            (p.ListPartitionReassignmentsRequest(topics=[p.ListPartitionReassignmentsTopics(name="missing", partition_indexes=[0])]), 0),
        ],
        "alter-replica-log-dirs": [
            (create(new(topic, 2)), 7),
            (move_replicas("/no/such/directory", topic, [0, 1]), 1),
            (move_replicas("/no/such/directory", topic, [0, 9]), 2),
            (move_replicas("relative", topic + "-missing", [0]), 2),
            (p.AlterReplicaLogDirsRequest(dirs=[]), 2),
        ],
        "acls-without-an-authorizer": [
            *((p.DescribeAclsRequest(**every), version) for version in (1, 2, 3)),
            *((p.CreateAclsRequest(creations=[one, one]), version) for version in (1, 2, 3)),
            *((p.DeleteAclsRequest(filters=[p.DeleteAclsFilter(**every)]), version) for version in (1, 2, 3)),
            (p.CreateAclsRequest(creations=[]), 3),
            (p.DeleteAclsRequest(filters=[]), 3),
        ],
        "client-quotas": [
            (quotas(("user", 0, topic)), 1),
            (quota((user, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.5})), 1),
            (quota((client, {"request_percentage": 50.0}), ({**user, **client}, {"controller_mutation_rate": 3.5})), 0),
            (quotas(("user", 0, topic)), 0),
            (quotas(("user", 0, topic)), 1),
            (quotas(("user", 0, topic), strict=True), 1),
            (quotas(("user", 0, topic), ("client-id", 0, topic), strict=True), 1),
            (quotas(("user", 2, None), ("client-id", 2, None)), 1),
            (quotas(("client-id", 0, topic)), 1),
            (quota((user, {"producer_byte_rate": None, "no_such": None})), 1),
            (quota((user, {"producer_byte_rate": None})), 1),
            (quotas(("user", 0, topic), strict=True), 1),
            (quota((user, {"consumer_byte_rate": 7.0}), validate_only=True), 1),
            (quotas(("user", 0, topic), strict=True), 1),
            (quota((client, {"request_percentage": None}), ({**user, **client}, {"controller_mutation_rate": None})), 1),
            (quota(({"ip": "1.2.3.4"}, {"connection_creation_rate": 5.0})), 1),
            (quotas(("ip", 0, "1.2.3.4")), 1),
            (quota(({"ip": "1.2.3.4"}, {"connection_creation_rate": None})), 1),
            (quota(({"user": None}, {"producer_byte_rate": 5.0})), 1),
            (quotas(("user", 1, None)), 1),
            (quota(({"user": None}, {"producer_byte_rate": None})), 1),
        ],
        "wrong-client-quotas": [
            (quota(({}, {"producer_byte_rate": 1.0})), 1),
            (quota(({"planet": "x"}, {"producer_byte_rate": 1.0})), 1),
            (quota(({"user": ""}, {"producer_byte_rate": 1.0})), 1),
            (quota((user, {"no_such": 1.0})), 1),
            (quota((user, {"connection_creation_rate": 1.0})), 1),
            (quota(({"ip": "1.2.3.4"}, {"producer_byte_rate": 1.0})), 1),
            (quota(({"ip": "1.2.3.4", "user": "x"}, {"producer_byte_rate": 1.0})), 1),
            (quota(({"ip": "not an ip"}, {"connection_creation_rate": 1.0})), 1),
            (quota((user, {"producer_byte_rate": 0.0})), 1),
            (quota((user, {"producer_byte_rate": -1.0})), 1),
            (quota((user, {"producer_byte_rate": 1.5})), 1),
            (quota((user, {"request_percentage": -3.0})), 1),
            (quota((user, {"consumer_byte_rate": 1e30})), 1),
            (quota((user, {})), 1),
            (quota(), 1),
            (quota((user, {"producer_byte_rate": 1.0}), (user, {"producer_byte_rate": 2.0})), 1),
            (quota((user, {"producer_byte_rate": None})), 1),
            (quotas(("planet", 0, "x")), 1),
            (quotas(("", 0, "x")), 1),
            (quotas(("user", 0, None)), 1),
            (quotas(("user", 1, "x")), 1),
            (quotas(("user", 2, "x")), 1),
            (quotas(("user", 9, "x")), 1),
            (quotas(("user", 0, "x"), ("user", 0, "y")), 1),
            (quotas(("ip", 0, "1.2.3.4"), ("user", 0, "y")), 1),
        ],
        "scram-credentials": [
            (scram_of(topic), 0),
            (scram_of(topic, topic), 0),
            (p.DescribeUserScramCredentialsRequest(users=None), 0),
            (upsert_scram(topic, 1), 0),
            (upsert_scram(topic, 2, 8192), 0),
            (scram_of(topic), 0),
            (remove_scram(topic, 1), 0),
            (scram_of(topic), 0),
            (remove_scram(topic, 1), 0),
            (remove_scram(topic, 2), 0),
            (scram_of(topic), 0),
            (upsert_scram("", 1), 0),
            (upsert_scram(topic, 0), 0),
            (upsert_scram(topic, 9), 0),
            (upsert_scram(topic, 1, 1), 0),
            (upsert_scram(topic, 1, 20_000), 0),
            (remove_scram("", 1), 0),
            (remove_scram(topic, 7), 0),
            (p.AlterUserScramCredentialsRequest(deletions=[], upsertions=[]), 0),
        ],
        "describe-quorum": [
            *((quorum(("__cluster_metadata", [0])), version) for version in range(3)),
            (quorum(("__cluster_metadata", [1])), 2),
            (quorum(("__cluster_metadata", [0, 1])), 2),
            (quorum((topic, [0])), 2),
            (quorum(), 2),
        ],
        "update-features": [
            (update(("transaction.version", 2, 1)), 2),
            (update(("transaction.version", 1, 1)), 2),
            (update(("transaction.version", 1, 2)), 2),
            (update(("transaction.version", 0, 3)), 1),
            (update(("transaction.version", 9, 1)), 2),
            (update(("transaction.version", 2, 0)), 2),
            (update(("transaction.version", 2, 9)), 2),
            (update(("transaction.version", -1, 1)), 2),
            (update(("no.such", 1, 1)), 2),
            (update(("no.such", 1, 1), ("group.version", 1, 1)), 1),
            (update(("metadata.version", 1, 2)), 2),
            (update(("metadata.version", 0, 2)), 2),
            (update(("metadata.version", 900, 1)), 2),
            (update(("", 1, 1)), 2),
            (update(), 2),
            (p.UpdateFeaturesRequest(feature_updates=[p.FeatureUpdateKey(feature="no.such", max_version_level=1)]), 0),
        ],
        "api-versions": [(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), version) for version in range(5)],
    }
