"""Topics and their partitions: creating, describing, offsets, deleting records, leaders, replicas.

Source: Kafka's KafkaAdminClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import AdminBase, ItemResults, complete, names_of, not_controller, results_of
from kafkacore.admin.security import operations_of
from kafkacore.config_text import setting_texts
from kafkacore.errors import Code
from kafkacore.metadata import PartitionInfo
from kafkacore.net.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, ListedOffset, OffsetQuery, by_topic
from kafkacore.plurals import counted
from kafkacore.protocol import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from kafkacore.types import NewPartitions, NewTopic, TopicPartition, topic_id_text

_EARLIEST_LOCAL, _LATEST_TIERED = -4, -5
log = logging.getLogger("kafkacore.admin")
_SPECS = {
    "earliest": EARLIEST_TIMESTAMP,
    "latest": LATEST_TIMESTAMP,
    "max_timestamp": MAX_TIMESTAMP,
    "earliest_local": _EARLIEST_LOCAL,
    "latest_tiered": _LATEST_TIERED,
}
_FIRST_ID_DELETION, _FIRST_ID_VERSION = 6, 12


def _shown(topic: Any, **said: str) -> str:
    """The repr of a named tuple with a topic id: as text, and some fields in other words."""
    texts = {name: repr(value) for name, value in topic._asdict().items()}
    texts |= {"topic_id": topic_id_text(topic.topic_id), **said}
    return f"{type(topic).__name__}({', '.join(f'{name}={text}' for name, text in texts.items())})"


class CreatedTopic(NamedTuple):
    """A topic as it was created; counts are -1 and the id is zero where the broker is too old to tell (before 2.4, 2.8)."""

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    configs: dict[str, str | None]

    def __repr__(self) -> str:
        return _shown(self, configs=f"{{{counted(len(self.configs), 'setting')}}}")


class TopicDescription(NamedTuple):
    """A topic: its partitions in ascending order; what this client may do, as "read", if that was asked for."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionInfo]
    authorized_operations: list[str] | None = None

    def __repr__(self) -> str:
        return _shown(self)


class TopicsSeen(NamedTuple):
    """What one broker says of topics: by name and by id, the topic or the error it answers."""

    by_name: dict[str, TopicDescription | errors.KafkaError]
    by_id: dict[bytes, TopicDescription | errors.KafkaError]


def _name(item: Any) -> Any:
    return item.name


class _Mutation:
    """Items of one call that the controller changes: those that a quota holds back are asked for again, while the call's time lasts
    (KIP-599). The client does not send to a broker that has it wait.

    Args:
        items: what is asked for.
        name: of an item.
        field: of the answers that has the results.
        named: which item a result is of.
        retries: what a quota holds back is asked for again.

    Attributes:
        items: what is still asked for.
    """

    def __init__(
        self, items: Iterable[Any], name: Callable[[Any], Any], field: str, named: Callable[[Any], Any], *, retries: bool = True
    ) -> None:
        self.items = list(items)
        self._name = name
        self._field = field
        self._named = named
        self._retries = retries
        self._results: dict[Any, Any] = {}

    def refused(self, response: Any) -> errors.KafkaError | None:
        """Why the request must be sent again."""
        cause = not_controller(self._field)(response)
        if cause is not None:
            return cause
        results = getattr(response, self._field)
        self._results.update((self._named(each), each) for each in results)
        held = {self._named(each) for each in results if each.error_code == Code.THROTTLING_QUOTA_EXCEEDED}
        left = [each for each in self.items if self._name(each) in held]
        if not left or not self._retries:
            return None
        self.items = left
        return errors.from_code(Code.THROTTLING_QUOTA_EXCEEDED)

    def ask(self, admin: AdminBase, api: type[Any], build: Callable[[int], Any], timeout_ms: int) -> list[Any]:
        """The results, the last of each item. What was still held back at the end has THROTTLING_QUOTA_EXCEEDED."""
        try:
            admin._ask(api, build, timeout_ms, to_controller=True, refused=self.refused)
        except errors.KafkaError as error:
            if not self._results:
                raise
            if not isinstance(error, errors.KafkaTimeoutError):  # those that worked must not be lost for it
                log.warning("%d of the items were held back by a quota and could not be asked for again: %s", len(self.items), error)
        return list(self._results.values())


class TopicsAdmin(AdminBase):
    """The calls about topics."""

    def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        operation_timeout: float | None = None,
        timeout: float | None = None,
    ) -> ItemResults[str, CreatedTopic]:
        """Creates topics.

        Args:
            topics: a name alone takes the broker's default counts.
            validate_only: check only.
            retry_on_quota_violation: topics that a quota holds back are asked for again, while the call's time lasts.
            operation_timeout: seconds that the broker may wait for the operation to reach the cluster; None: as long as the call.
            timeout: seconds.

        Returns:
            By name; `.check()` raises the first error.
            Typical errors: TopicExists, InvalidTopic, InvalidReplicationFactor, InvalidPartitions.
        """
        if isinstance(topics, (str, NewTopic)):
            raise errors.UsageError(f"topics must be a collection of topics, not the single {topics!r}")
        wanted = [NewTopic(t) if isinstance(t, str) else t for t in topics]
        timeout_ms = self._timeout_ms(timeout)
        operation_ms = self._timeout_ms(timeout if operation_timeout is None else operation_timeout)
        entries = [
            CreatableTopic(
                name=t.name,
                num_partitions=-1 if t.replica_assignments else t.num_partitions,
                replication_factor=-1 if t.replica_assignments else t.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=i, broker_ids=list(ids)) for i, ids in (t.replica_assignments or {}).items()
                ],
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in setting_texts(t.configs).items()],
            )
            for t in wanted
        ]

        mutation = _Mutation(entries, _name, "topics", _name, retries=retry_on_quota_violation)

        def build(version: int) -> CreateTopicsRequest:
            return CreateTopicsRequest(topics=mutation.items, timeout_ms=operation_ms, validate_only=validate_only)

        if not entries:
            return ItemResults({}, {})
        made: dict[str, CreatedTopic] = {}
        failed: dict[str, errors.KafkaError] = {}
        for item in mutation.ask(self, CreateTopicsRequest, build, timeout_ms):
            if item.error_code:
                failed[item.name] = errors.from_code(item.error_code, item.error_message, topic=item.name, api="CreateTopics")
            else:
                configs = {c.name: c.value for c in item.configs or ()}
                made[item.name] = CreatedTopic(item.name, bytes(item.topic_id), item.num_partitions, item.replication_factor, configs)
        return complete(ItemResults(made, failed), dict.fromkeys(t.name for t in wanted), "CreateTopics")

    def delete_topics(
        self,
        names: Iterable[str],
        *,
        retry_on_quota_violation: bool = True,
        operation_timeout: float | None = None,
        timeout: float | None = None,
    ) -> ItemResults[str, None]:
        """Deletes topics with all their records.

        Args:
            names: the topics.
            retry_on_quota_violation: topics that a quota holds back are asked for again, while the call's time lasts.
            operation_timeout: seconds that the broker may wait for the operation to reach the cluster; None: as long as the call.
            timeout: seconds.

        Returns:
            By name. Typical errors: UnknownTopicOrPartition, TopicDeletionDisabled.
        """
        wanted = names_of(names)
        timeout_ms = self._timeout_ms(timeout)
        operation_ms = self._timeout_ms(timeout if operation_timeout is None else operation_timeout)
        mutation = _Mutation(wanted, str, "responses", _name, retries=retry_on_quota_violation)

        def build(version: int) -> DeleteTopicsRequest:
            if version >= 6:
                topics = [DeleteTopicState(name=n, topic_id=bytes(16)) for n in mutation.items]
                return DeleteTopicsRequest(topics=topics, timeout_ms=operation_ms)
            return DeleteTopicsRequest(topic_names=mutation.items, timeout_ms=operation_ms)

        if not wanted:
            return ItemResults({}, {})
        results = mutation.ask(self, DeleteTopicsRequest, build, timeout_ms)
        found = ((item.name, item.error_code, item.error_message, None) for item in results)
        return results_of(found, wanted, "DeleteTopics", by_topic=True)

    def delete_topics_by_id(
        self,
        topic_ids: Iterable[bytes],
        *,
        retry_on_quota_violation: bool = True,
        operation_timeout: float | None = None,
        timeout: float | None = None,
    ) -> ItemResults[bytes, None]:
        """Deletes topics with all their records, by their ids (KIP-516): never a topic that has the name by now, and another id.

        Args:
            topic_ids: of the topics, 16 bytes each, as `describe_topics` shows them.
            retry_on_quota_violation: topics that a quota holds back are asked for again, while the call's time lasts.
            operation_timeout: seconds that the broker may wait for the operation to reach the cluster; None: as long as the call.
            timeout: seconds.

        Returns:
            By id. Typical errors: UnknownTopicId, TopicDeletionDisabled, UnsupportedVersion before Kafka 2.8.
        """
        wanted = _ids_of(topic_ids)
        timeout_ms = self._timeout_ms(timeout)
        broker_ms = timeout_ms if operation_timeout is None else round(operation_timeout * 1000)
        mutation = _Mutation(wanted, bytes, "responses", lambda item: bytes(item.topic_id), retries=retry_on_quota_violation)

        def build(version: int) -> DeleteTopicsRequest:
            if version < _FIRST_ID_DELETION:
                raise errors.UnsupportedVersion("the broker does not know topics by their ids", api="DeleteTopics")
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=each) for each in mutation.items], timeout_ms=broker_ms)

        if not wanted:
            return ItemResults({}, {})
        results = mutation.ask(self, DeleteTopicsRequest, build, timeout_ms)
        found = ((bytes(item.topic_id), item.error_code, item.error_message, None) for item in results)
        return results_of(found, wanted, "DeleteTopics")

    def describe_topics_by_id(self, topic_ids: Iterable[bytes], *, timeout: float | None = None) -> ItemResults[bytes, TopicDescription]:
        """Partitions, leaders and replicas of topics, by their ids (KIP-516).

        Args:
            topic_ids: 16 bytes each.
            timeout: seconds.

        Returns:
            By id. Typical errors: UnknownTopicId, UnsupportedVersion before Kafka 2.8.
        """
        wanted = _ids_of(topic_ids)

        def build(version: int) -> MetadataRequest:
            if version < _FIRST_ID_VERSION:
                raise errors.UnsupportedVersion("the broker does not know topics by their ids", api="Metadata")
            return MetadataRequest(topics=[MetadataRequestTopic(topic_id=each, name=None) for each in wanted])

        if not wanted:
            return ItemResults({}, {})
        response = self._ask(MetadataRequest, build, self._timeout_ms(timeout))
        errors.raise_for(response.error_code, api="Metadata")
        found: dict[bytes, TopicDescription] = {}
        failed: dict[bytes, errors.KafkaError] = {}
        for topic in response.topics:
            if topic.error_code:
                failed[bytes(topic.topic_id)] = errors.from_code(topic.error_code, topic=topic.name or None, api="Metadata")
            else:
                found[bytes(topic.topic_id)] = _describe(topic)
        return complete(ItemResults(found, failed), wanted, "Metadata")

    def create_partitions(
        self,
        partitions: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        operation_timeout: float | None = None,
        timeout: float | None = None,
    ) -> ItemResults[str, None]:
        """Adds partitions to topics. Keyed records are spread again: those of one key may lie in two partitions afterwards.

        Args:
            partitions: by topic, how many it is to have in all.
            validate_only: check only.
            retry_on_quota_violation: topics that a quota holds back are asked for again, while the call's time lasts.
            operation_timeout: seconds that the broker may wait for the operation to reach the cluster; None: as long as the call.
            timeout: seconds.

        Returns:
            By topic. Typical errors: InvalidPartitions, UnknownTopicOrPartition, InvalidReplicaAssignment.
        """
        wanted = {name: NewPartitions(given) if isinstance(given, int) else given for name, given in partitions.items()}
        timeout_ms = self._timeout_ms(timeout)
        operation_ms = self._timeout_ms(timeout if operation_timeout is None else operation_timeout)
        entries = [
            CreatePartitionsTopic(
                name=name,
                count=given.total_count,
                assignments=None
                if given.assignments is None
                else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in given.assignments],
            )
            for name, given in wanted.items()
        ]

        mutation = _Mutation(entries, _name, "results", _name, retries=retry_on_quota_violation)

        def build(version: int) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(topics=mutation.items, timeout_ms=operation_ms, validate_only=validate_only)

        if not entries:
            return ItemResults({}, {})
        results = mutation.ask(self, CreatePartitionsRequest, build, timeout_ms)
        found = ((item.name, item.error_code, item.error_message, None) for item in results)
        return results_of(found, wanted, "CreatePartitions", by_topic=True)

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """Names of all topics this client may see, sorted.

        Args:
            include_internal: also those Kafka keeps for itself, as __consumer_offsets.
            timeout: seconds.
        """
        response = self._metadata(None, self._timeout_ms(timeout))
        return sorted(t.name for t in response.topics if t.name and not t.error_code and (include_internal or not t.is_internal))

    def describe_topics(
        self, names: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> ItemResults[str, TopicDescription]:
        """Partitions, leaders and replicas of topics.

        Args:
            names: the topics.
            include_authorized_operations: ask what this client may do, too.
            timeout: seconds.

        Returns:
            By name. Typical errors: UnknownTopicOrPartition, InvalidTopic, TopicAuthorization.
        """
        wanted = names_of(names)
        if not wanted:
            return ItemResults({}, {})
        response = self._metadata(wanted, self._timeout_ms(timeout), include_authorized_operations)
        found: dict[str, TopicDescription] = {}
        failed: dict[str, errors.KafkaError] = {}
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                failed[name] = errors.from_code(topic.error_code, topic=name, api="Metadata")
            else:
                found[name] = _describe(topic)
        for name in wanted:
            if name not in found and name not in failed:
                failed[name] = errors.UnknownTopicOrPartition("the broker said nothing about it", topic=name, api="Metadata")
        return ItemResults(found, failed)

    def describe_topics_by_broker(
        self, names: Iterable[str], *, topic_ids: Iterable[bytes] = (), brokers: Iterable[int] | None = None, timeout: float | None = None
    ) -> ItemResults[int, TopicsSeen]:
        """What each of several brokers says of topics. Brokers apply metadata one by one, so their answers may differ for a while.

        Args:
            names: the topics.
            topic_ids: further topics, by id (KIP-516). Brokers before Kafka 2.8 cannot look them up and say nothing of them.
            brokers: their ids; None for all.
            timeout: seconds.

        Returns:
            By broker. Typical errors of a topic: UnknownTopicOrPartition, UnknownTopicId, TopicAuthorization. A broker that cannot be
            reached has an error of its own.
        """
        deadline_ms = self._deadline_ms(timeout)
        wanted, ids = names_of(names), list(dict.fromkeys(topic_ids))
        nodes = [node.id for node in self._nodes(self._left_ms(deadline_ms))] if brokers is None else list(dict.fromkeys(brokers))

        def by_name(version: int) -> MetadataRequest:
            return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in wanted], allow_auto_topic_creation=version < 4)

        def by_id(version: int) -> MetadataRequest:
            topics = [MetadataRequestTopic(topic_id=each, name=None) for each in ids] if version >= 12 else []
            return MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)

        found: dict[int, TopicsSeen] = {node: TopicsSeen({}, {}) for node in nodes}
        failed: dict[int, errors.KafkaError] = {}
        for build in (by_name, by_id) if ids else (by_name,):
            requests = dict.fromkeys(nodes, (MetadataRequest, build))
            for node, asked in self._ask_brokers(requests, self._left_ms(deadline_ms), may_move=True).items():
                if asked.error is not None:
                    failed[node] = asked.error
                    continue
                if asked.response.error_code:
                    failed[node] = errors.from_code(asked.response.error_code, api="Metadata", broker=node)
                    continue
                for topic in asked.response.topics:
                    answer: TopicDescription | errors.KafkaError
                    if topic.error_code:
                        answer = errors.from_code(topic.error_code, topic=topic.name, api="Metadata", broker=node)
                    else:
                        answer = _describe(topic)
                    if build is by_id:
                        found[node].by_id[bytes(topic.topic_id)] = answer
                    else:
                        found[node].by_name[topic.name or ""] = answer
        for node, seen in found.items():
            for name in wanted:
                silent = errors.UnknownTopicOrPartition("the broker said nothing about it", topic=name, api="Metadata", broker=node)
                seen.by_name.setdefault(name, silent)
        return ItemResults({node: seen for node, seen in found.items() if node not in failed}, failed)

    def list_offsets(
        self, partitions: Mapping[tuple[str, int], str | int], *, read_committed: bool = False, timeout: float | None = None
    ) -> ItemResults[TopicPartition, ListedOffset]:
        """Offsets by place or time, asked of each partition's leader.

        Args:
            partitions: (topic, partition) to "earliest", "latest", "max_timestamp", or epoch milliseconds: the first record from then on.
                With tiered storage (KIP-405) also "earliest_local", the first record on the broker's own disk, and "latest_tiered", the
                last record in remote storage.
            read_committed: "latest" is the last stable offset.
            timeout: seconds.

        Returns:
            By partition; offset -1 where no record matches.
        """
        timestamps: dict[TopicPartition, int] = {}
        for tp, spec in partitions.items():
            timestamp = _SPECS.get(spec) if isinstance(spec, str) else spec
            if timestamp is None or (isinstance(spec, int) and spec < 0):
                raise errors.UsageError(f"not {', '.join(_SPECS)} or a timestamp: {spec!r}", topic=tp[0], partition=tp[1])
            timestamps[TopicPartition(*tp)] = timestamp
        deadline_ms = self._deadline_ms(timeout)
        there, failed = self._existing(timestamps, deadline_ms)
        with self._driver as driver:
            query = OffsetQuery(
                driver.client,
                driver.metadata,
                {tp: timestamps[tp] for tp in there},
                isolation_level=int(read_committed),
                retry_backoff_ms=self.config.retry_backoff_ms,
                retry_backoff_max_ms=self.config.retry_backoff_max_ms,
                retries=self.config.retries,
            )
            return self._run_query(query, failed, deadline_ms)

    def delete_records(
        self, offsets: Mapping[tuple[str, int], int], *, operation_timeout: float | None = None, timeout: float | None = None
    ) -> ItemResults[TopicPartition, int]:
        """Deletes what lies before an offset.

        Args:
            offsets: by (topic, partition) the first offset to keep; -1 deletes everything up to the high watermark.
            operation_timeout: seconds that the broker may wait for the operation to reach the cluster; None: as long as the call.
            timeout: seconds.

        Returns:
            By partition its low watermark: the first offset that is left. Typical errors: OffsetOutOfRange, PolicyViolation.
        """
        before = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        operation_ms = self._timeout_ms(timeout if operation_timeout is None else operation_timeout)

        def request(tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
            topics = [
                DeleteRecordsTopic(
                    name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in partitions]
                )
                for name, partitions in by_topic((tp, before[tp]) for tp in tps).items()
            ]
            return DeleteRecordsRequest, lambda version: DeleteRecordsRequest(topics=topics, timeout_ms=operation_ms)

        def read(response: Any) -> Iterable[tuple[TopicPartition, int, int]]:
            for topic in response.topics:
                for found in topic.partitions:
                    yield TopicPartition(topic.name, found.partition_index), found.error_code, found.low_watermark

        return self._ask_leaders(before, request, read, timeout)


def _ids_of(topic_ids: Iterable[bytes]) -> list[bytes]:
    ids = list(dict.fromkeys(topic_ids))
    for each in ids:
        if not isinstance(each, bytes) or len(each) != 16:
            raise errors.UsageError(f"topic_ids is a collection of ids, 16 bytes each: {each!r} is not an id")
    return ids


def _describe(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = [
        PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas or ())
        for p in topic.partitions
    ]
    partitions.sort(key=lambda p: p.index)
    return TopicDescription(
        topic.name or "", bytes(topic.topic_id), topic.is_internal, partitions, operations_of(topic.topic_authorized_operations)
    )
