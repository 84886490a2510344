"""The cluster: its brokers, their directories, leaders and replicas, quotas.

Source: Kafka's KafkaAdminClient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import AdminBase, ItemResults, complete, moved, results_of
from kafkacore.admin.security import operations_of
from kafkacore.net import controllers
from kafkacore.net.leaders import by_topic
from kafkacore.protocol import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    ClientQuotaAlteration,
    ClientQuotaEntityPart,
    ClientQuotaFilterComponent,
    ClientQuotaOp,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from kafkacore.types import Node, TopicPartition

_ELECTIONS = {"preferred": 0, "unclean": 1}
_EXACT, _DEFAULT, _ANY = range(3)
_FIRST_FENCED_VERSION = 2

QuotaEntity = frozenset[tuple[str, str | None]]
"""Whom a quota is for: (type, name) pairs with the types user, client-id and ip; None is the default of a type."""


def _entity_parts(entity: Any) -> list[ClientQuotaEntityPart]:
    """Of the entity's pairs. One pair in the place of a tuple of pairs is an easy mistake, and texts of two letters would pass."""
    pairs = list(entity) if isinstance(entity, Iterable) and not isinstance(entity, str) else []
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise errors.UsageError(f'the entity of a quota is a tuple of (type, name) pairs, such as (("user", "alice"),), not {entity!r}')
    return [ClientQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in pairs]


class ClusterDescription(NamedTuple):
    """The cluster.

    Attributes:
        cluster_id: its id.
        controller: where clients send what the controller does; on KRaft clusters any broker may be named.
        nodes: the brokers that run, or the controllers.
        authorized_operations: what this client may do to the cluster, if that was asked for.
        fenced_nodes: brokers that are registered and do not run, if they were asked for.
    """

    cluster_id: str | None
    controller: Node | None
    nodes: list[Node]
    authorized_operations: list[str] | None = None
    fenced_nodes: list[Node] | None = None


class ReplicaSize(NamedTuple):
    """A partition in a directory: its bytes, how far it is behind, and whether it is on its way into the directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A directory of a broker; sizes are -1 where the broker does not tell. `error` says why it is offline."""

    error: errors.KafkaError | None
    replicas: dict[TopicPartition, ReplicaSize]
    total_bytes: int
    usable_bytes: int


class ReplicaLogDirs(NamedTuple):
    """Where a replica lies.

    Attributes:
        current: its directory; None where the broker has no such replica.
        current_lag: how many records the replica there is behind the high watermark.
        future: the directory it is on its way to, if it is.
        future_lag: how many records the copy there is behind.
    """

    current: str | None = None
    current_lag: int = -1
    future: str | None = None
    future_lag: int = -1


class Reassignment(NamedTuple):
    """A partition on its way to other brokers."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


class ClusterAdmin(AdminBase):
    """The calls about the cluster."""

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, include_fenced_brokers: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        Args:
            include_authorized_operations: ask what this client may do, too; brokers know it since Kafka 2.8.
            include_fenced_brokers: ask for the brokers that are registered and do not run, too; brokers know them since Kafka 4.0.
            timeout: seconds.

        Returns:
            With `bootstrap_controllers` the controllers, in the place of the brokers, and the active one of them.
        """
        asks_controllers = self.config.asks_controllers
        if asks_controllers and include_fenced_brokers:
            raise errors.UsageError("controllers do not list fenced brokers; a client with bootstrap_servers asks brokers")
        if include_authorized_operations or include_fenced_brokers or asks_controllers:

            def build(version: int) -> DescribeClusterRequest:
                if include_fenced_brokers and version < _FIRST_FENCED_VERSION:
                    raise errors.UnsupportedVersion("the broker does not list fenced brokers", api="DescribeCluster")
                request = controllers.question(version) if asks_controllers else DescribeClusterRequest()
                return request._replace(
                    include_cluster_authorized_operations=include_authorized_operations, include_fenced_brokers=include_fenced_brokers
                )

            found = self._ask(DescribeClusterRequest, build, self._timeout_ms(timeout))
            errors.raise_for(found.error_code, found.error_message, api="DescribeCluster")
            known = {b.broker_id: Node(b.broker_id, b.host, b.port, b.rack) for b in found.brokers if not b.is_fenced}
            fenced = None
            if include_fenced_brokers:
                fenced = sorted(Node(b.broker_id, b.host, b.port, b.rack) for b in found.brokers if b.is_fenced)
            may = operations_of(found.cluster_authorized_operations)
            return ClusterDescription(found.cluster_id, known.get(found.controller_id), sorted(known.values()), may, fenced)
        response = self._metadata([], self._timeout_ms(timeout))
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        return ClusterDescription(response.cluster_id, nodes.get(response.controller_id), sorted(nodes.values()))

    def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> ItemResults[int, dict[str, LogDirDescription]]:
        """The directories of brokers, and what lies in them.

        Args:
            brokers: their ids; None for all.
            timeout: seconds.

        Returns:
            By broker, the directories by path.
        """
        deadline_ms = self._deadline_ms(timeout)
        ids = [node.id for node in self._nodes(self._left_ms(deadline_ms))] if brokers is None else list(dict.fromkeys(brokers))

        def build(version: int) -> DescribeLogDirsRequest:
            return DescribeLogDirsRequest(topics=None)

        found: dict[int, dict[str, LogDirDescription]] = {}
        failed: dict[int, errors.KafkaError] = {}
        for node_id, asked in self._ask_brokers(dict.fromkeys(ids, (DescribeLogDirsRequest, build)), self._left_ms(deadline_ms)).items():
            if asked.error is not None:
                failed[node_id] = asked.error
            elif asked.response.error_code:
                failed[node_id] = errors.from_code(asked.response.error_code, api="DescribeLogDirs", broker=node_id)
            else:
                found[node_id] = {each.log_dir: _log_dir(each) for each in asked.response.results}
        return ItemResults(found, failed)

    def describe_replica_log_dirs(
        self, replicas: Iterable[tuple[str, int, int]], *, timeout: float | None = None
    ) -> ItemResults[tuple[str, int, int], ReplicaLogDirs]:
        """The directories that replicas lie in, and those they are on their way to.

        Args:
            replicas: (topic, partition, broker id) triples.
            timeout: seconds.

        Returns:
            By replica. Typical errors: BrokerNotAvailable, KafkaStorage for a directory that is offline.
        """
        wanted = [(topic, partition, broker) for topic, partition, broker in dict.fromkeys(replicas)]
        by_broker = self.describe_log_dirs(dict.fromkeys(broker for _, _, broker in wanted), timeout=timeout)
        found: dict[tuple[str, int, int], ReplicaLogDirs] = {}
        failed: dict[tuple[str, int, int], errors.KafkaError] = {}
        for replica in wanted:
            topic, partition, broker = replica
            if broker in by_broker.errors:
                failed[replica] = by_broker.errors[broker]
                continue
            place = ReplicaLogDirs()
            for path, directory in by_broker[broker].items():
                held = directory.replicas.get(TopicPartition(topic, partition))
                if held is None:
                    continue
                if held.is_future:
                    place = place._replace(future=path, future_lag=held.offset_lag)
                else:
                    place = place._replace(current=path, current_lag=held.offset_lag)
            found[replica] = place
        return ItemResults(found, failed)

    def alter_replica_log_dirs(
        self, places: Mapping[tuple[str, int, int], str], *, timeout: float | None = None
    ) -> ItemResults[tuple[str, int, int], None]:
        """Has brokers move replicas to other directories of theirs. The answer comes when the move begins; see `describe_replica_log_dirs`.

        Args:
            places: by (topic, partition, broker id) the directory.
            timeout: seconds.

        Returns:
            By replica. Typical errors: LogDirNotFound, KafkaStorage, BrokerNotAvailable, ReplicaNotAvailable where the broker has no such
            replica yet: it puts one there when it gets it.
        """
        wanted: dict[int, dict[str, list[TopicPartition]]] = {}
        for (topic, partition, broker), path in places.items():
            wanted.setdefault(broker, {}).setdefault(path, []).append(TopicPartition(topic, partition))

        def request(paths: Mapping[str, list[TopicPartition]]) -> tuple[type[Any], Callable[[int], Any]]:
            dirs = [
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=[index for index, _ in group])
                        for name, group in by_topic((tp, None) for tp in tps).items()
                    ],
                )
                for path, tps in paths.items()
            ]
            return AlterReplicaLogDirsRequest, lambda version: AlterReplicaLogDirsRequest(dirs=dirs)

        found: dict[tuple[str, int, int], None] = {}
        failed: dict[tuple[str, int, int], errors.KafkaError] = {}
        requests = {broker: request(paths) for broker, paths in wanted.items()}
        for broker, asked in self._ask_brokers(requests, self._timeout_ms(timeout)).items():
            if asked.error is not None:
                failed |= {replica: asked.error for replica in places if replica[2] == broker}
                continue
            for topic in asked.response.results:
                for each in topic.partitions:
                    replica = (topic.topic_name, each.partition_index, broker)
                    if each.error_code:
                        where = {"topic": topic.topic_name, "partition": each.partition_index, "broker": broker}
                        failed[replica] = errors.from_code(each.error_code, api="AlterReplicaLogDirs", **where)
                    else:
                        found[replica] = None
        return complete(ItemResults(found, failed), places, "AlterReplicaLogDirs")

    # -- leaders and replicas -----------------------------------------------------------------------------------------------------

    def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        election: str = "preferred",
        operation_timeout: float | None = None,
        timeout: float | None = None,
    ) -> ItemResults[TopicPartition, None]:
        """Elects leaders.

        Args:
            partitions: None for all that could have another leader.
            election: "preferred" the first replica of each; "unclean" any that is alive, where none is in sync: records may be lost.
            operation_timeout: seconds that the broker may wait for the operation to reach the cluster; None: as long as the call.
            timeout: seconds.

        Returns:
            By partition. Typical errors: ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable.
        """
        if election not in _ELECTIONS:
            raise errors.UsageError(f"an election is {' or '.join(_ELECTIONS)}, not {election!r}")
        wanted = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        timeout_ms = self._timeout_ms(timeout)
        operation_ms = self._timeout_ms(timeout if operation_timeout is None else operation_timeout)
        topics = None
        if wanted is not None:
            topics = [
                TopicPartitions(topic=name, partitions=[index for index, _ in group])
                for name, group in by_topic((tp, None) for tp in wanted).items()
            ]

        def build(version: int) -> ElectLeadersRequest:
            if version == 0 and _ELECTIONS[election]:
                raise errors.UnsupportedVersion("the broker knows preferred elections only", api="ElectLeaders")
            return ElectLeadersRequest(
                election_type=_ELECTIONS[election] if version else 0, topic_partitions=topics, timeout_ms=operation_ms
            )

        response = self._ask(ElectLeadersRequest, build, timeout_ms, to_controller=True, refused=moved)
        errors.raise_for(response.error_code, api="ElectLeaders")
        return results_of(
            (
                (TopicPartition(topic.topic, each.partition_id), each.error_code, each.error_message, None)
                for topic in response.replica_election_results
                for each in topic.partition_result
            ),
            wanted,
            "ElectLeaders",
        )

    def alter_partition_reassignments(
        self, changes: Mapping[tuple[str, int], Iterable[int] | None], *, timeout: float | None = None
    ) -> ItemResults[TopicPartition, None]:
        """Begins to move partitions to other brokers, or stops it. The answer comes when that is decided, not when the data is there.

        Args:
            changes: by (topic, partition) the brokers it shall be on, the preferred leader first; None cancels a reassignment.
            timeout: seconds.

        Returns:
            By partition. Typical errors: InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition.
        """
        timeout_ms = self._timeout_ms(timeout)
        wanted = {TopicPartition(*tp): None if ids is None else list(ids) for tp, ids in changes.items()}
        topics = [
            ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=ids) for index, ids in group])
            for name, group in by_topic(wanted.items()).items()
        ]

        def build(version: int) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)

        if not wanted:
            return ItemResults({}, {})
        response = self._ask(AlterPartitionReassignmentsRequest, build, timeout_ms, to_controller=True, refused=moved)
        errors.raise_for(response.error_code, response.error_message, api="AlterPartitionReassignments")
        return results_of(
            (
                (TopicPartition(topic.name, each.partition_index), each.error_code, each.error_message, None)
                for topic in response.responses
                for each in topic.partitions
            ),
            wanted,
            "AlterPartitionReassignments",
        )

    def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The partitions that are on their way to other brokers.

        Args:
            partitions: look at these only; None for all.
            timeout: seconds.
        """
        timeout_ms = self._timeout_ms(timeout)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=[index for index, _ in group])
                for name, group in by_topic((TopicPartition(*tp), None) for tp in partitions).items()
            ]

        def build(version: int) -> ListPartitionReassignmentsRequest:
            return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)

        response = self._ask(ListPartitionReassignmentsRequest, build, timeout_ms, to_controller=True, refused=moved)
        errors.raise_for(response.error_code, response.error_message, api="ListPartitionReassignments")
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(each.replicas, each.adding_replicas, each.removing_replicas)
            for topic in response.topics
            for each in topic.partitions
        }

    # -- quotas -------------------------------------------------------------------------------------------------------------------

    def describe_client_quotas(
        self, filters: Mapping[str, str | None] | None = None, *, strict: bool = False, timeout: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas that are set.

        Args:
            filters: by type (user, client-id, ip) the name an entity must have: None the default, "*" any name or the default.
            strict: only entities of exactly these types.
            timeout: seconds.

        Returns:
            By entity, the quotas by name.
        """
        components = [
            ClientQuotaFilterComponent(
                entity_type=kind,
                match_type=_DEFAULT if name is None else _ANY if name == "*" else _EXACT,
                match=None if name == "*" else name,
            )
            for kind, name in (filters or {}).items()
        ]

        def build(version: int) -> DescribeClientQuotasRequest:
            return DescribeClientQuotasRequest(components=components, strict=strict)

        response = self._ask(DescribeClientQuotasRequest, build, self._timeout_ms(timeout))
        errors.raise_for(response.error_code, response.error_message, api="DescribeClientQuotas")
        return {
            frozenset((part.entity_type, part.entity_name) for part in each.entity): {value.key: value.value for value in each.values}
            for each in response.entries or ()
        }

    def alter_client_quotas(
        self,
        changes: Mapping[Iterable[tuple[str, str | None]], Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> ItemResults[QuotaEntity, None]:
        """Sets quotas.

        Args:
            changes: by entity, a tuple or frozenset of (type, name) pairs as in `QuotaEntity`, the quotas by name; None takes one away:
                `{(("user", "alice"),): {"producer_byte_rate": 1_000_000}}`.
            validate_only: check only.
            timeout: seconds.

        Returns:
            By entity. Typical error: InvalidRequest.

        Raises:
            UsageError: an entity is not of pairs.
        """
        entries = [
            ClientQuotaAlteration(
                entity=_entity_parts(entity),
                ops=[ClientQuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
            )
            for entity, quotas in changes.items()
        ]

        def build(version: int) -> AlterClientQuotasRequest:
            return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

        if not entries:
            return ItemResults({}, {})
        response = self._ask(AlterClientQuotasRequest, build, self._timeout_ms(timeout))
        return results_of(
            (
                (frozenset((part.entity_type, part.entity_name) for part in each.entity), each.error_code, each.error_message, None)
                for each in response.entries
            ),
            map(frozenset, changes),
            "AlterClientQuotas",
        )


def _log_dir(found: Any) -> LogDirDescription:
    error = errors.from_code(found.error_code, api="DescribeLogDirs") if found.error_code else None
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaSize(each.partition_size, each.offset_lag, each.is_future_key)
        for topic in found.topics
        for each in topic.partitions
    }
    return LogDirDescription(error, replicas, found.total_bytes, found.usable_bytes)
