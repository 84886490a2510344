"""kafka-python's calls about topics, partitions and the cluster.

Source: kafka.admin._topics, kafka.admin._partitions, kafka.admin._cluster, kafka-python 3.0.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafkacore import errors as ours
from kafkacore import protocol as p
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.admin_base import AdminBase, as_dict, check
from kafkacore.compat.kafka.admin_types import ConfigSourceType, ConfigType, IsolationLevel, NewTopic, OffsetSpec
from kafkacore.compat.kafka.structs import OffsetAndTimestamp
from kafkacore.protocol.admin import DescribeTopicPartitionsTopicRequest
from kafkacore.protocol.cluster import QuorumPartition, QuorumTopic
from kafkacore.types import TopicPartition

NO_ID = bytes(16)
READY_PAUSE_S = 0.1
ELECTION_NOT_NEEDED = int(ours.Code.ELECTION_NOT_NEEDED)


def shown_config(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A setting's name, and the rest of it with names in place of numbers."""
    name = config.pop("name")
    config.pop("is_default", None)  # of versions before 1, which no broker of today speaks
    config["config_source"] = ConfigSourceType(config["config_source"]).name
    if "config_type" in config:
        config["config_type"] = ConfigType(config["config_type"]).name
    for synonym in config.get("synonyms") or ():
        synonym["source"] = ConfigSourceType(synonym["source"]).name
    return name, config


class TopicAdmin(AdminBase):
    """The calls about topics."""

    def _metadata(self, topics: Iterable[Any] | None) -> dict[str, Any]:
        wanted = None if topics is None else list(topics)

        def build(version: int) -> p.MetadataRequest:
            names = None
            if wanted is not None:
                names = [
                    p.MetadataRequestTopic(name=None, topic_id=each.bytes)
                    if isinstance(each, uuid.UUID)
                    else p.MetadataRequestTopic(name=each)
                    for each in wanted
                ]
            return p.MetadataRequest(
                topics=names,
                allow_auto_topic_creation=version < 4,
                include_topic_authorized_operations=version >= 8,
            )

        found: dict[str, Any] = as_dict(self._send(p.MetadataRequest, build))
        return found

    def list_topics(self) -> list[str]:
        """Names of all topics."""
        return [topic["name"] for topic in self._metadata(None)["topics"]]

    def describe_topics(self, topics: Iterable[Any] | None = None) -> list[dict[str, Any]]:
        """What the cluster says of topics, with their partitions.

        Args:
            topics: names or UUIDs; None for all.
        """
        found: list[dict[str, Any]] = self._metadata(topics)["topics"]
        return found

    def create_topics(
        self,
        new_topics: Any,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Creates topics.

        Args:
            new_topics: names, NewTopics, or {name: {num_partitions, replication_factor, assignments, configs}}.
            timeout_ms: request_timeout_ms when None.
            validate_only: check only.
            raise_errors: raise the first error; else all are in the answer.
            wait_for_metadata: wait until each partition has a leader.

        Raises:
            ValueError: there are no topics in `new_topics`.
            KafkaError: a topic cannot be created.
        """
        if validate_only and wait_for_metadata:
            raise ValueError("validate_only and wait_for_metadata are mutually exclusive")
        wanted = _new_topics(new_topics)
        request = p.CreateTopicsRequest(topics=wanted, timeout_ms=self._ms(timeout_ms), validate_only=validate_only)
        response = self._send(p.CreateTopicsRequest, lambda _: request, timeout_ms, to_controller=True)
        if raise_errors:
            check((each.error_code, each.error_message, f"creating topic {each.name}") for each in response.topics)
        if wait_for_metadata:
            self.wait_for_topics([each.name for each in wanted])
        result: dict[str, Any] = as_dict(response)
        del result["throttle_time_ms"]
        for topic in result["topics"]:
            if configs := topic.pop("configs", None):
                topic["configs"] = dict(map(shown_config, configs))
        return result

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Waits until each partition of these topics has a leader.

        Raises:
            KafkaTimeoutError: not in time.
        """
        names = list(topic_names)
        end = time.monotonic() + timeout_ms / 1000
        while names:
            found = {topic["name"]: topic for topic in self.describe_topics(names)}
            names = [name for name in names if not _is_ready(found.get(name))]
            if names and time.monotonic() >= end:
                raise errors.KafkaTimeoutError(f"Topics not ready after {timeout_ms}ms: {names}")
            if names:
                time.sleep(READY_PAUSE_S)

    def delete_topics(self, topics: Iterable[Any], timeout_ms: float | None = None, raise_errors: bool = True) -> dict[str, Any]:
        """Deletes topics with all their records.

        Args:
            topics: names or UUIDs.
            timeout_ms: request_timeout_ms when None.
            raise_errors: raise the first error; else all are in the answer.
        """
        wanted = list(topics)
        ms = self._ms(timeout_ms)

        def build(version: int) -> p.DeleteTopicsRequest:
            if version < 6:
                return p.DeleteTopicsRequest(topic_names=wanted, timeout_ms=ms)
            states = [
                p.DeleteTopicState(name=None, topic_id=each.bytes)
                if isinstance(each, uuid.UUID)
                else p.DeleteTopicState(name=each, topic_id=NO_ID)
                for each in wanted
            ]
            return p.DeleteTopicsRequest(topics=states, timeout_ms=ms)

        response = self._send(p.DeleteTopicsRequest, build, timeout_ms, to_controller=True)
        if raise_errors:
            check((each.error_code, each.error_message, f"deleting topic {each.name}") for each in response.responses)
        return {"topics": as_dict(response.responses)}

    # -- partitions ---------------------------------------------------------------------------------------------------------------

    def create_partitions(
        self, topic_partitions: Mapping[str, Any], timeout_ms: float | None = None, validate_only: bool = False, raise_errors: bool = True
    ) -> Any:
        """Adds partitions to topics.

        Args:
            topic_partitions: by topic the new total, {count, assignments}, or NewPartitions.
            timeout_ms: request_timeout_ms when None.
            validate_only: check only.
            raise_errors: raise the first error; else all are in the answer.

        Returns:
            The answer: `results` of (topic, error code, message).
        """
        topics = []
        for name, given in topic_partitions.items():
            if isinstance(given, int):
                count, assignments = given, None
            elif isinstance(given, dict):
                count, assignments = given["count"], given["assignments"]
            else:
                count, assignments = given.total_count, given.new_assignments
            brokers = None if assignments is None else [p.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]
            topics.append(p.CreatePartitionsTopic(name=name, count=count, assignments=brokers))
        request = p.CreatePartitionsRequest(topics=topics, timeout_ms=self._ms(timeout_ms), validate_only=validate_only)
        response = self._send(p.CreatePartitionsRequest, lambda _: request, timeout_ms, to_controller=True)
        if raise_errors:
            check((each.error_code, each.error_message, f"adding partitions to {each.name}") for each in response.results)
        return response

    def delete_records(
        self, records_to_delete: Mapping[TopicPartition, int], timeout_ms: float | None = None, partition_leader_id: int | None = None
    ) -> dict[TopicPartition, dict[str, int]]:
        """Deletes what lies before an offset.

        Args:
            records_to_delete: by partition the first offset to keep; -1 deletes everything.
            timeout_ms: request_timeout_ms when None.
            partition_leader_id: cannot be given: each partition's leader is asked.

        Raises:
            KafkaError: of a partition; BrokerResponseError where there are several.
        """
        if partition_leader_id is not None:
            raise errors.IllegalArgumentError("partition_leader_id: the leader of each partition is asked")
        before: dict[tuple[str, int], int] = dict(records_to_delete.items())
        with errors.translated():
            results = self._admin.delete_records(before, timeout=self._seconds(timeout_ms))
        if len(results.errors) == 1:
            raise errors.of(next(iter(results.errors.values())))
        if results.errors:
            raise errors.BrokerResponseError("; ".join(f"{tp}: {error}" for tp, error in results.errors.items()))
        return {tp: {"partition_index": tp.partition, "low_watermark": low, "error_code": 0} for tp, low in results.succeeded.items()}

    def _partitions(self, given: Any) -> dict[str, list[int]]:
        if isinstance(given, dict):
            return {topic: list(partitions) for topic, partitions in given.items()}
        return {topic["name"]: [each["partition_index"] for each in topic["partitions"]] for topic in self.describe_topics(given)}

    def elect_leaders(
        self, election_type: int, topic_partitions: Any = None, timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Any:
        """Elects leaders.

        Args:
            election_type: 0 the preferred ones, 1 any that is alive.
            topic_partitions: {topic: [partitions]}, topics, or None for all.
            timeout_ms: request_timeout_ms when None.
            raise_errors: raise the first error but ElectionNotNeededError; else all are in the answer.

        Returns:
            The answer: `replica_election_results` of (topic, [(partition, error code, message)]).
        """
        topics = [p.TopicPartitions(topic=name, partitions=found) for name, found in self._partitions(topic_partitions).items()]
        request = p.ElectLeadersRequest(election_type=int(election_type), topic_partitions=topics, timeout_ms=self._ms(timeout_ms))
        response = self._send(p.ElectLeadersRequest, lambda _: request, timeout_ms, to_controller=True)
        if raise_errors:
            check([(response.error_code, None, "electing leaders")])
            found = ((each, topic.topic) for topic in response.replica_election_results for each in topic.partition_result)
            check(((each.error_code, each.error_message, f"electing the leader of {name}") for each, name in found), (ELECTION_NOT_NEEDED,))
        return response

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, Any]:
        """Begins to move partitions to other brokers; None stops it.

        Returns:
            By partition an error class, None where it was accepted.
        """
        for tp, replicas in reassignments.items():
            if replicas is not None and (not replicas or not all(isinstance(each, int) for each in replicas)):
                raise ValueError(f"Replica list for {tp} must be int broker_ids, and not empty; use None to cancel a reassignment.")
        changes: dict[tuple[str, int], Iterable[int] | None] = dict(reassignments.items())
        with errors.translated():
            results = self._admin.alter_partition_reassignments(changes, timeout=self._seconds(timeout_ms))
        found: dict[TopicPartition, Any] = dict.fromkeys(results.succeeded)
        return found | {tp: type(errors.of(error)) for tp, error in results.errors.items()}

    def list_partition_reassignments(self, topic_partitions: Any = None, timeout_ms: float | None = None) -> dict[TopicPartition, Any]:
        """The partitions that are on their way to other brokers.

        Args:
            topic_partitions: {topic: [partitions]}, TopicPartitions, or None for all.
            timeout_ms: request_timeout_ms when None.
        """
        wanted = topic_partitions
        if isinstance(wanted, dict):
            wanted = [TopicPartition(topic, each) for topic, partitions in wanted.items() for each in partitions]
        with errors.translated():
            found = self._admin.list_partition_reassignments(wanted, timeout=self._seconds(timeout_ms))
        return {tp: each._asdict() for tp, each in found.items()}

    def describe_topic_partitions(
        self, topics: Iterable[str], response_partition_limit: int = 2000, cursor: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Topics and partitions page by page.

        Args:
            topics: names.
            response_partition_limit: partitions of a page.
            cursor: `next_cursor` of the page before.
        """
        at = None if cursor is None else p.Cursor(topic_name=cursor["topic_name"], partition_index=cursor["partition_index"])
        names = [DescribeTopicPartitionsTopicRequest(name=name) for name in topics]
        request = p.DescribeTopicPartitionsRequest(topics=names, response_partition_limit=response_partition_limit, cursor=at)
        result: dict[str, Any] = as_dict(self._send(p.DescribeTopicPartitionsRequest, lambda _: request))
        del result["throttle_time_ms"]
        return result

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, Any],
        isolation_level: Any = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by place or time.

        Args:
            topic_partition_specs: by partition an OffsetSpec, or epoch milliseconds.
            isolation_level: READ_COMMITTED: the latest offset is the last stable one.
            timeout_ms: request_timeout_ms when None.

        Raises:
            IllegalArgumentError: a spec of tiered storage, which is not there.
            KafkaError: of the first partition that has one.
        """
        committed = IsolationLevel.build_from(isolation_level) is IsolationLevel.READ_COMMITTED
        wanted: dict[tuple[str, int], str | int] = {tp: _spec(spec) for tp, spec in topic_partition_specs.items()}
        with errors.translated():
            found = self._admin.list_offsets(wanted, read_committed=committed, timeout=self._seconds(timeout_ms)).check()
        return {
            tp: OffsetAndTimestamp(each.offset, each.timestamp_ms, each.leader_epoch if each.leader_epoch >= 0 else None)  # type: ignore[arg-type]
            for tp, each in found.items()
        }

    # -- the cluster --------------------------------------------------------------------------------------------------------------

    def describe_cluster(self) -> dict[str, Any]:
        """The cluster's id, controller and brokers."""
        request = p.DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = self._send(p.DescribeClusterRequest, lambda _: request)
        check([(response.error_code, response.error_message, "describing the cluster")])
        found: dict[str, Any] = as_dict(response)
        return {
            name: value for name, value in found.items() if name not in ("error_code", "error_message", "endpoint_type", "throttle_time_ms")
        }

    def describe_log_dirs(self, topic_partitions: Any = None, brokers: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """The directories of brokers, and what lies in them.

        Args:
            topic_partitions: {topic: [partitions]}, topics, or None for all.
            brokers: ids; None for all.
        """
        wanted = self._partitions(topic_partitions)
        topics = [p.DescribableLogDirTopic(topic=name, partitions=found) for name, found in wanted.items()]
        request = p.DescribeLogDirsRequest(topics=topics)
        return [
            {"broker": node_id, "log_dirs": as_dict(self._send(p.DescribeLogDirsRequest, lambda _: request, node_id=node_id).results)}
            for node_id in self._brokers(brokers)
        ]

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """The controllers and their followers."""
        name = "__cluster_metadata"
        topic = QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=0)])
        response = self._send(p.DescribeQuorumRequest, lambda _: p.DescribeQuorumRequest(topics=[topic]))
        check([(response.error_code, response.error_message, "describing the quorum")])
        found: dict[str, Any] = as_dict(response)
        for each in (partition for topic in found["topics"] for partition in topic["partitions"]):
            code, message = each.pop("error_code"), each.pop("error_message")
            each["error"] = str(errors.for_code(code)(message)) if code else None
        return {name: value for name, value in found.items() if name not in ("error_code", "error_message", "throttle_time_ms")}


def _is_ready(topic: Mapping[str, Any] | None) -> bool:
    if topic is None or topic["error_code"] or not topic["partitions"]:
        return False
    return all(not each["error_code"] and each["leader_id"] >= 0 for each in topic["partitions"])


def _spec(spec: Any) -> str | int:
    names = {OffsetSpec.LATEST: "latest", OffsetSpec.EARLIEST: "earliest", OffsetSpec.MAX_TIMESTAMP: "max_timestamp"}
    if not isinstance(spec, int):
        raise TypeError(f"Unsupported ts type {type(spec)}, expected int or OffsetSpec")
    if spec >= 0:
        return int(spec)
    if spec not in names:
        raise errors.IllegalArgumentError(f"{spec!r}: offsets of tiered storage are not asked for")
    return names[OffsetSpec(spec)]


def _new_topics(given: Any) -> list[p.CreatableTopic]:
    if isinstance(given, dict):
        wanted = {
            name: (
                data.get("num_partitions", -1),
                data.get("replication_factor", -1),
                data.get("assignments", {}),
                data.get("configs", {}),
            )
            for name, data in given.items()
        }
    elif all(isinstance(each, str) for each in given):
        wanted = {name: (-1, -1, {}, {}) for name in given}
    elif all(isinstance(each, NewTopic) for each in given):
        wanted = {each.name: (each.num_partitions, each.replication_factor, each.replica_assignments, each.topic_configs) for each in given}
    else:
        wanted = {}
    if not wanted:
        raise ValueError(f"No valid topics found in new_topics: {given}")
    return [
        p.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[p.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in assignments.items()],
            configs=[p.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, (partitions, factor, assignments, configs) in wanted.items()
    ]
