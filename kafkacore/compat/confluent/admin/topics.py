"""confluent-kafka's calls about topics, partitions and the cluster.

Source: confluent_kafka.admin.AdminClient, confluent-kafka 2.16.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from kafkacore import errors as ours
from kafkacore import types
from kafkacore.admin import KafkaAdminClient as Engine
from kafkacore.admin.security import operations_of as words_of
from kafkacore.compat.confluent.admin.base import AdminBase, a_list, outcomes
from kafkacore.compat.confluent.admin.kinds import operations_of
from kafkacore.compat.confluent.admin.values import (
    DeletedRecords,
    DescribeClusterResult,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)
from kafkacore.compat.confluent.kafka_error import of
from kafkacore.compat.confluent.metadata import ClusterMetadata, cluster_of
from kafkacore.compat.confluent.model import (
    ElectionType,
    IsolationLevel,
    Node,
    TopicCollection,
    TopicPartitionInfo,
    node_of,
    uuid_of,
)
from kafkacore.compat.confluent.partitions import TopicPartition, engines

MOST_PARTITIONS = 100_000
_PLACES = {-1: "latest", -2: "earliest", -3: "max_timestamp"}


def _are_lists(assignment: Any) -> bool:
    return isinstance(assignment, list) and all(isinstance(each, list) and all(isinstance(i, int) for i in each) for each in assignment)


def _new_topic(given: NewTopic) -> types.NewTopic:
    assignment = given.replica_assignment
    if assignment is not None:
        if not _are_lists(assignment) or len(assignment) != given.num_partitions:
            raise ValueError("replica_assignment must be a list of int lists with an outer size of num_partitions")
        if given.replication_factor != -1:
            raise ValueError(f"Invalid NewTopic({given.topic}): replication_factor must be -1 if a replica_assignment is specified")
    return types.NewTopic(
        given.topic,
        given.num_partitions,
        given.replication_factor,
        None if assignment is None else dict(enumerate(assignment)),
        {name: str(value) for name, value in (given.config or {}).items()},
    )


def _new_partitions(given: NewPartitions) -> types.NewPartitions:
    if not 1 <= given.new_total_count <= MOST_PARTITIONS:
        raise ValueError(f"Invalid NewPartitions({given.topic}): new_total_cnt out of expected range 1..{MOST_PARTITIONS}")
    if given.replica_assignment is not None and not _are_lists(given.replica_assignment):
        raise ValueError(f"Invalid NewPartitions({given.topic}): replica_assignment must be a list of int lists")
    return types.NewPartitions(given.new_total_count, given.replica_assignment)


class TopicAdmin(AdminBase):
    """The calls about topics and the cluster."""

    def create_topics(self, new_topics: list[NewTopic], **kwargs: Any) -> dict[str, Future[Any]]:
        """Creates topics.

        Args:
            new_topics: what to create.
            **kwargs: request_timeout, operation_timeout (the broker's own time): seconds; validate_only: check only.

        Returns:
            By topic a future of None.
        """
        options = self._options("create_topics", kwargs, validate_only=False, operation_timeout=None)
        wanted = {each.topic: _new_topic(each) for each in a_list(new_topics, NewTopic, "NewTopic objects", AttributeError)}

        def work(engine: Engine) -> dict[str, Any]:
            found = engine.create_topics(
                wanted.values(),
                validate_only=options.validate_only,
                operation_timeout=options.operation_timeout,
                timeout=options.left(),
            )
            return outcomes(found, dict(zip(wanted, wanted, strict=True)), lambda _: None)

        return self._each(wanted, work)

    def delete_topics(self, topics: list[str], **kwargs: Any) -> dict[str, Future[Any]]:
        """Deletes topics with all their records.

        Args:
            topics: names.
            **kwargs: request_timeout, operation_timeout (the broker's own time): seconds.

        Returns:
            By topic a future of None.
        """
        options = self._options("delete_topics", kwargs, operation_timeout=None)
        wanted = list(dict.fromkeys(a_list(topics, str, "topic strings")))

        def work(engine: Engine) -> dict[str, Any]:
            found = engine.delete_topics(wanted, operation_timeout=options.operation_timeout, timeout=options.left())
            return outcomes(found, {name: name for name in wanted})

        return self._each(wanted, work)

    def create_partitions(self, new_partitions: list[NewPartitions], **kwargs: Any) -> dict[str, Future[Any]]:
        """Adds partitions to topics.

        Args:
            new_partitions: the new totals.
            **kwargs: request_timeout, operation_timeout (the broker's own time): seconds; validate_only: check only.

        Returns:
            By topic a future of None.
        """
        options = self._options("create_partitions", kwargs, validate_only=False, operation_timeout=None)
        given = a_list(new_partitions, NewPartitions, "NewPartitions objects", AttributeError)
        wanted = {each.topic: _new_partitions(each) for each in given}

        def work(engine: Engine) -> dict[str, Any]:
            found = engine.create_partitions(
                dict(wanted),
                validate_only=options.validate_only,
                operation_timeout=options.operation_timeout,
                timeout=options.left(),
            )
            return outcomes(found, {name: name for name in wanted})

        return self._each(wanted, work)

    def describe_topics(self, topics: TopicCollection, **kwargs: Any) -> dict[str, Future[Any]]:
        """Partitions, leaders and replicas of topics.

        Args:
            topics: names, in a TopicCollection.
            **kwargs: request_timeout: seconds; include_authorized_operations: ask what this client may do, too.

        Returns:
            By topic a future of TopicDescription.
        """
        options = self._options("describe_topics", kwargs, include_authorized_operations=False)
        if not isinstance(topics, TopicCollection):
            raise TypeError("Expected input to be instance of TopicCollection")
        wanted = list(dict.fromkeys(a_list(topics.topic_names, str, "topic names"))) if topics.topic_names != [] else []

        if "" in wanted:
            raise ValueError(f"Empty topic name at index {topics.topic_names.index('')} isn't allowed")

        def work(engine: Engine) -> dict[str, Any]:
            answer = engine._metadata(wanted, round(options.left() * 1000), options.include_authorized_operations)
            nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
            return {topic.name or "": _described(topic, nodes) for topic in answer.topics}

        return self._each(wanted, work)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Brokers, topics and partitions, at once.

        Args:
            topic: one topic; None for all.
            timeout: seconds; -1 waits as long as it takes.

        Raises:
            KafkaException: no answer in time.
        """
        names = None if topic is None else [topic]
        answer = self._now("Failed to get metadata", timeout, lambda engine, left: engine._metadata(names, round(left * 1000)))
        return cluster_of(answer, ours.from_code)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id, at once.

        Args:
            timeout: seconds; -1 waits as long as it takes.
        """
        found: str | None = self._now(
            "Failed to retrieve cluster id", timeout, lambda engine, left: engine.describe_cluster(timeout=left).cluster_id
        )
        return found

    def describe_cluster(self, **kwargs: Any) -> Future[Any]:
        """The cluster's id, controller and brokers.

        Args:
            **kwargs: request_timeout: seconds; include_authorized_operations: ask what this client may do, too.

        Returns:
            A future of DescribeClusterResult.
        """
        options = self._options("describe_cluster", kwargs, include_authorized_operations=False)

        def work(engine: Engine) -> DescribeClusterResult:
            found = engine.describe_cluster(include_authorized_operations=options.include_authorized_operations, timeout=options.left())
            nodes = [Node(each.id, each.host, each.port, each.rack) for each in found.nodes]
            return DescribeClusterResult(node_of(found.controller), nodes, found.cluster_id, operations_of(found.authorized_operations))

        return self._one(work)

    # -- partitions ---------------------------------------------------------------------------------------------------------------

    def list_offsets(self, topic_partition_offsets: dict[TopicPartition, OffsetSpec], **kwargs: Any) -> dict[TopicPartition, Future[Any]]:
        """Offsets by place or time.

        Args:
            topic_partition_offsets: by partition an OffsetSpec.
            **kwargs: request_timeout: seconds; isolation_level: an IsolationLevel.

        Returns:
            By partition a future of ListOffsetsResultInfo.
        """
        options = self._options("list_offsets", kwargs, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        if not isinstance(options.isolation_level, IsolationLevel):
            raise TypeError("isolation_level argument should be an IsolationLevel")
        if not isinstance(topic_partition_offsets, dict):
            raise TypeError("Expected topic_partition_offsets to be dict of [TopicPartition, OffsetSpec]")
        keys: dict[TopicPartition, types.TopicPartition] = {}
        wanted: dict[tuple[str, int], str | int] = {}
        for partition, spec in topic_partition_offsets.items():
            if not isinstance(spec, OffsetSpec):
                raise TypeError("Value must be a OffsetSpec")
            tp = _checked(partition)
            keys[TopicPartition(tp.topic, tp.partition, spec._value)] = tp
            wanted[tp] = _PLACES.get(spec._value, spec._value)

        def work(engine: Engine) -> dict[TopicPartition, Any]:
            committed = options.isolation_level is IsolationLevel.READ_COMMITTED
            found = engine.list_offsets(wanted, read_committed=committed, timeout=options.left())
            return outcomes(found, keys, lambda each: ListOffsetsResultInfo(each.offset, each.timestamp_ms, each.leader_epoch))

        return self._each(keys, work)

    def delete_records(self, topic_partition_offsets: list[TopicPartition], **kwargs: Any) -> dict[TopicPartition, Future[Any]]:
        """Deletes what lies before an offset.

        Args:
            topic_partition_offsets: partitions with the first offset to keep; OFFSET_END deletes everything.
            **kwargs: request_timeout, operation_timeout (the broker's own time): seconds.

        Returns:
            By partition a future of DeletedRecords.
        """
        options = self._options("delete_records", kwargs, operation_timeout=None)
        if not isinstance(topic_partition_offsets, list):
            raise TypeError(f"Expected Request to be a list, got '{type(topic_partition_offsets).__name__}'")
        keys = {each: _checked(each) for each in topic_partition_offsets}

        def work(engine: Engine) -> dict[TopicPartition, Any]:
            found = engine.delete_records(
                {tp: each.offset for each, tp in keys.items()}, operation_timeout=options.operation_timeout, timeout=options.left()
            )
            return outcomes(found, keys, DeletedRecords)

        return self._each(keys, work)

    def elect_leaders(self, election_type: ElectionType, partitions: list[TopicPartition] | None = None, **kwargs: Any) -> Future[Any]:
        """Elects leaders.

        Args:
            election_type: PREFERRED or UNCLEAN.
            partitions: None for all that could have another leader.
            **kwargs: request_timeout, operation_timeout (the broker's own time): seconds.

        Returns:
            A future of {partition: KafkaError or None}.
        """
        options = self._options("elect_leaders", kwargs, operation_timeout=None)
        if not isinstance(election_type, ElectionType):
            raise TypeError("Expected 'election_type' to be of type 'ElectionType'")
        if partitions is not None and not isinstance(partitions, list):
            raise TypeError(f"Expected 'partitions' to be a list, got '{type(partitions).__name__}'")
        wanted = None if partitions is None else [_checked(each) for each in partitions]

        def work(engine: Engine) -> dict[TopicPartition, Any]:
            found = engine.elect_leaders(
                wanted,
                election=election_type.name.lower(),
                operation_timeout=options.operation_timeout,
                timeout=options.left(),
            )
            failed = {tp: of(error) for tp, error in found.errors.items()}
            return {TopicPartition(tp.topic, tp.partition, 0).failed(failed.get(tp)): failed.get(tp) for tp in [*found.succeeded, *failed]}

        return self._one(work)


def _checked(partition: TopicPartition) -> types.TopicPartition:
    tp = engines(partition)
    if not tp.topic:
        raise ValueError("partition topic name cannot be empty")
    if tp.partition < 0:
        raise ValueError("'partition' cannot be negative")
    return tp


def _described(topic: Any, nodes: dict[int, Node]) -> Any:
    if topic.error_code:
        return ours.from_code(topic.error_code, topic=topic.name, api="Metadata")

    def known(ids: Any) -> list[Node]:
        return [nodes[each] for each in ids if each in nodes]

    partitions = [
        TopicPartitionInfo(each.partition_index, nodes.get(each.leader_id), known(each.replica_nodes), known(each.isr_nodes))
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    may = operations_of(words_of(topic.topic_authorized_operations))
    return TopicDescription(topic.name, uuid_of(topic.topic_id), topic.is_internal, partitions, may)
