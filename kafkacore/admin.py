"""KafkaAdminClient: topics, the cluster, offsets. One answer per item: what failed does not hide what worked.

Calls are driven by the calling thread; several threads take turns.

Source: Kafka's KafkaAdminClient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, NamedTuple, NoReturn, Self, TypeVar

from kafkacore import errors
from kafkacore.clock import Clock
from kafkacore.config import AdminConfig
from kafkacore.errors import Code
from kafkacore.metadata import PartitionInfo
from kafkacore.net.client import ClientResponse
from kafkacore.net.driver import CallerDriver
from kafkacore.net.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, ListedOffset, OffsetQuery
from kafkacore.protocol import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kafkacore.types import NewPartitions, NewTopic, Node, TopicPartition

__all__ = ["ClusterDescription", "CreatedTopic", "ItemResults", "KafkaAdminClient", "TopicDescription"]

K = TypeVar("K")
V = TypeVar("V")

_SPECS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "max_timestamp": MAX_TIMESTAMP}


class ItemResults(Mapping[K, V], Generic[K, V]):
    """Results by item. Reading the result of an item that failed raises its error.

    Args:
        values: of the items that worked.
        failed: why the others did not.

    Attributes:
        errors: the error of each item that failed; empty when all worked.
    """

    __slots__ = ("_values", "errors")

    def __init__(self, values: dict[K, V], failed: dict[K, errors.KafkaError]) -> None:
        self._values = values
        self.errors = failed

    def __getitem__(self, item: K) -> V:
        failed = self.errors.get(item)
        if failed is not None:
            raise failed
        return self._values[item]

    def __contains__(self, item: object) -> bool:
        return item in self._values or item in self.errors

    def __iter__(self) -> Iterator[K]:
        yield from self._values
        yield from self.errors

    def __len__(self) -> int:
        return len(self._values) + len(self.errors)

    @property
    def succeeded(self) -> dict[K, V]:
        """The items that worked."""
        return dict(self._values)

    def check(self) -> Self:
        """Raises the first error, if there is one; otherwise returns these results."""
        for failed in self.errors.values():
            raise failed
        return self

    def __repr__(self) -> str:
        return f"ItemResults({self._values!r}, errors={self.errors!r})"


class CreatedTopic(NamedTuple):
    """A topic as it was created; counts are -1 and the id is zero where the broker is too old to tell (before 2.4, 2.8)."""

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    configs: dict[str, str | None]


class TopicDescription(NamedTuple):
    """A topic: its partitions in ascending order."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionInfo]


class ClusterDescription(NamedTuple):
    """The cluster. `controller` is where clients send what the controller does; on KRaft clusters any broker may be named."""

    cluster_id: str | None
    controller: Node | None
    nodes: list[Node]


class _Call:
    """One request to one broker, tried again until it is answered, refused for good, or late."""

    def __init__(self, admin: KafkaAdminClient, api: type[Any], build: Callable[[int], Any], *, to_controller: bool) -> None:
        self._admin = admin
        self._api = api
        self._build = build
        self._to_controller = to_controller
        self._in_flight = False
        self._failed_try: errors.KafkaError | None = None
        self._retry_at_ms = 0
        self.tries = 0
        self.attempts: list[errors.KafkaError] = []
        self.response: Any = None
        self.error: errors.KafkaError | None = None

    @property
    def done(self) -> bool:
        return self.response is not None or self.error is not None

    def step(self, now_ms: int) -> int | None:
        admin = self._admin
        client = admin._driver.client
        if self._failed_try is not None:
            self.attempts.append(self._failed_try)
            config = admin.config
            if self.tries > config.retries:
                self.error = self._failed_try
                return None
            self._retry_at_ms = now_ms + min(config.retry_backoff_max_ms, config.retry_backoff_ms << min(self.tries - 1, 20))
            self._failed_try = None
        if self._in_flight or self.done:
            return None
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        snapshot = admin._driver.metadata.snapshot
        if not self._to_controller:
            node = client.least_loaded_node(now_ms)
        else:
            node = snapshot.controller
            if node is None:
                admin._driver.metadata.request_update()
                return None
        if node is None:
            return admin.config.reconnect_backoff_ms
        if not client.ready(node, now_ms):
            return client.poll_delay_ms(node, now_ms) if self._to_controller else admin.config.reconnect_backoff_ms
        self._in_flight = True
        self.tries += 1
        client.send(client.new_client_request(node.id, self._api, self._build, now_ms, callback=self._answered), now_ms)
        return None

    def retry(self, cause: errors.KafkaError) -> None:
        """Another try is needed, after the back-off."""
        self.response = None
        self._failed_try = cause
        if cause.invalid_metadata or self._to_controller:
            self._admin._driver.metadata.request_update()

    def _answered(self, response: ClientResponse) -> None:
        self._in_flight = False
        if response.response is not None:
            self.response = response.response
            return
        cause = response.error or errors.DisconnectError("the connection was lost before the answer")
        if cause.retriable:
            self.retry(cause)
        else:
            self.error = cause


def _not_yet(call: str) -> Callable[..., NoReturn]:
    """A call that belongs to the public face and has no implementation yet."""

    def refuse(self: KafkaAdminClient, *_: object, **__: object) -> NoReturn:
        raise errors.UsageError(f"{call} is not implemented yet")

    refuse.__name__ = call
    refuse.__doc__ = "Not implemented yet: always raises UsageError."
    return refuse


class KafkaAdminClient:
    """Manages topics and looks at the cluster.

    Args:
        **settings: see `AdminConfig`; a mapping with dotted names may be passed as the first argument.

    Raises:
        errors.ConfigError: an unknown or wrong setting.

    Every call takes `timeout` in seconds (`default_api_timeout_ms` when None) and raises KafkaTimeoutError when no broker answered in
    time, with the reasons of all tries. Results come per item, see `ItemResults`.
    """

    def __init__(self, mapping: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Any) -> None:
        self.config = AdminConfig.from_user(mapping, **settings)
        self._driver = CallerDriver(self.config, "KafkaAdminClient", exclusive=False, clock=clock)

    # -- topics -------------------------------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = None
    ) -> ItemResults[str, CreatedTopic]:
        """Creates topics.

        Args:
            topics: a name alone takes the broker's default counts.
            validate_only: check only.
            timeout: seconds.

        Returns:
            By name; `.check()` raises the first error.
            Typical errors: TopicExists, InvalidTopic, InvalidReplicationFactor, InvalidPartitions.
        """
        if isinstance(topics, (str, NewTopic)):
            raise errors.UsageError(f"topics must be a collection of topics, not the single {topics!r}")
        wanted = [NewTopic(t) if isinstance(t, str) else t for t in topics]
        timeout_ms = self._timeout_ms(timeout)
        entries = [
            CreatableTopic(
                name=t.name,
                num_partitions=-1 if t.replica_assignments else t.num_partitions,
                replication_factor=-1 if t.replica_assignments else t.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=i, broker_ids=list(ids)) for i, ids in (t.replica_assignments or {}).items()
                ],
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in (t.configs or {}).items()],
            )
            for t in wanted
        ]

        def build(version: int) -> CreateTopicsRequest:
            return CreateTopicsRequest(topics=entries, timeout_ms=timeout_ms, validate_only=validate_only)

        if not entries:
            return ItemResults({}, {})
        response = self._ask(CreateTopicsRequest, build, timeout_ms, to_controller=True, refused=_not_controller("topics"))
        made: dict[str, CreatedTopic] = {}
        failed: dict[str, errors.KafkaError] = {}
        for item in response.topics:
            if item.error_code:
                failed[item.name] = errors.from_code(item.error_code, item.error_message, topic=item.name, api="CreateTopics")
            else:
                configs = {c.name: c.value for c in item.configs or ()}
                made[item.name] = CreatedTopic(item.name, bytes(item.topic_id), item.num_partitions, item.replication_factor, configs)
        return ItemResults(made, failed)

    def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> ItemResults[str, None]:
        """Deletes topics with all their records.

        Args:
            names: the topics.
            timeout: seconds.

        Returns:
            By name. Typical errors: UnknownTopicOrPartition, TopicDeletionDisabled.
        """
        wanted = _names(names)
        timeout_ms = self._timeout_ms(timeout)

        def build(version: int) -> DeleteTopicsRequest:
            if version >= 6:
                return DeleteTopicsRequest(topics=[DeleteTopicState(name=n, topic_id=bytes(16)) for n in wanted], timeout_ms=timeout_ms)
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=timeout_ms)

        if not wanted:
            return ItemResults({}, {})
        response = self._ask(DeleteTopicsRequest, build, timeout_ms, to_controller=True, refused=_not_controller("responses"))
        gone: dict[str, None] = {}
        failed: dict[str, errors.KafkaError] = {}
        for item in response.responses:
            if item.error_code:
                failed[item.name] = errors.from_code(item.error_code, item.error_message, topic=item.name, api="DeleteTopics")
            else:
                gone[item.name] = None
        return ItemResults(gone, failed)

    def create_partitions(
        self, partitions: Mapping[str, NewPartitions | int], *, validate_only: bool = False, timeout: float | None = None
    ) -> ItemResults[str, None]:
        """Adds partitions to topics. Keyed records are spread anew: those of one key may lie in two partitions afterwards.

        Args:
            partitions: by topic, how many it is to have in all.
            validate_only: check only.
            timeout: seconds.

        Returns:
            By topic. Typical errors: InvalidPartitions, UnknownTopicOrPartition, InvalidReplicaAssignment.
        """
        wanted = {name: NewPartitions(given) if isinstance(given, int) else given for name, given in partitions.items()}
        timeout_ms = self._timeout_ms(timeout)
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

        def build(version: int) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(topics=entries, timeout_ms=timeout_ms, validate_only=validate_only)

        if not entries:
            return ItemResults({}, {})
        response = self._ask(CreatePartitionsRequest, build, timeout_ms, to_controller=True, refused=_not_controller("results"))
        grown: dict[str, None] = {}
        failed: dict[str, errors.KafkaError] = {}
        for item in response.results:
            if item.error_code:
                failed[item.name] = errors.from_code(item.error_code, item.error_message, topic=item.name, api="CreatePartitions")
            else:
                grown[item.name] = None
        return ItemResults(grown, failed)

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """Names of all topics this client may see, sorted.

        Args:
            include_internal: also those Kafka keeps for itself, as __consumer_offsets.
            timeout: seconds.
        """
        response = self._metadata(None, timeout)
        return sorted(t.name for t in response.topics if t.name and not t.error_code and (include_internal or not t.is_internal))

    def describe_topics(self, names: Iterable[str], *, timeout: float | None = None) -> ItemResults[str, TopicDescription]:
        """Partitions, leaders and replicas of topics.

        Args:
            names: the topics.
            timeout: seconds.

        Returns:
            By name. Typical errors: UnknownTopicOrPartition, InvalidTopic, TopicAuthorization.
        """
        wanted = _names(names)
        if not wanted:
            return ItemResults({}, {})
        response = self._metadata(wanted, timeout)
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

    # -- the cluster --------------------------------------------------------------------------------------------------------------

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        Args:
            timeout: seconds.
        """
        response = self._metadata([], timeout)
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        return ClusterDescription(response.cluster_id, nodes.get(response.controller_id), sorted(nodes.values()))

    def list_offsets(
        self, partitions: Mapping[tuple[str, int], str | int], *, read_committed: bool = False, timeout: float | None = None
    ) -> ItemResults[TopicPartition, ListedOffset]:
        """Offsets by place or time, asked of each partition's leader.

        Args:
            partitions: (topic, partition) to "earliest", "latest", "max_timestamp", or epoch milliseconds: the first record from then on.
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
        failed: dict[TopicPartition, errors.KafkaError] = {}
        deadline_ms = self._driver.clock.now_ms() + self._timeout_ms(timeout)
        described = self.describe_topics({tp.topic for tp in timestamps}, timeout=timeout)
        for tp in list(timestamps):
            cause = described.errors.get(tp.topic)
            if cause is None and tp.partition not in {p.index for p in described[tp.topic].partitions}:
                cause = errors.UnknownTopicOrPartition("the topic has no such partition", topic=tp.topic, partition=tp.partition)
            if cause is not None:
                failed[tp] = cause
                del timestamps[tp]
        with self._driver as driver:
            query = OffsetQuery(
                driver.client,
                driver.metadata,
                timestamps,
                isolation_level=int(read_committed),
                retry_backoff_ms=self.config.retry_backoff_ms,
                retry_backoff_max_ms=self.config.retry_backoff_max_ms,
                retries=self.config.retries,
            )

            def step(now_ms: int) -> int | None:
                query.step(now_ms)
                return query.next_wake_ms(now_ms)

            if not driver.run(step, lambda: query.done, max(deadline_ms - driver.clock.now_ms(), 0)):
                late = query.unanswered()
                for tp in late:
                    failed[tp] = errors.KafkaTimeoutError(
                        "no answer in time",
                        topic=tp.topic,
                        partition=tp.partition,
                        attempts=[query.last_errors[tp]] if tp in query.last_errors else driver.attempts(),
                    )
                query.cancel()
            return ItemResults(query.results, failed | query.failed)

    # -- not yet ------------------------------------------------------------------------------------------------------------------

    describe_configs = _not_yet("describe_configs")
    alter_configs = _not_yet("alter_configs")
    delete_records = _not_yet("delete_records")
    elect_leaders = _not_yet("elect_leaders")
    list_groups = _not_yet("list_groups")
    describe_groups = _not_yet("describe_groups")
    delete_groups = _not_yet("delete_groups")
    list_group_offsets = _not_yet("list_group_offsets")
    alter_group_offsets = _not_yet("alter_group_offsets")
    describe_producers = _not_yet("describe_producers")
    list_transactions = _not_yet("list_transactions")
    describe_transactions = _not_yet("describe_transactions")
    abort_transaction = _not_yet("abort_transaction")
    describe_acls = _not_yet("describe_acls")
    create_acls = _not_yet("create_acls")
    delete_acls = _not_yet("delete_acls")

    # -- asking -------------------------------------------------------------------------------------------------------------------

    def _timeout_ms(self, timeout: float | None) -> int:
        return self.config.default_api_timeout_ms if timeout is None else round(timeout * 1000)

    def _metadata(self, names: list[str] | None, timeout: float | None) -> MetadataResponse:
        def build(version: int) -> MetadataRequest:
            topics = None if names is None else [MetadataRequestTopic(name=n) for n in names]
            return MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)

        response: MetadataResponse = self._ask(MetadataRequest, build, self._timeout_ms(timeout), to_controller=False)
        code = getattr(response, "error_code", 0)
        errors.raise_for(code, api="Metadata")
        return response

    def _ask(
        self,
        api: type[Any],
        build: Callable[[int], Any],
        timeout_ms: int,
        *,
        to_controller: bool,
        refused: Callable[[Any], errors.KafkaError | None] | None = None,
    ) -> Any:
        """Sends one request to any broker, or to the controller, until one answers it.

        Args:
            api, build: the request.
            timeout_ms: for all tries together.
            to_controller: who is asked.
            refused: looks into an answer for the reason to ask again.
        """
        with self._driver as driver:
            call = _Call(self, api, build, to_controller=to_controller)

            def done() -> bool:
                if call.response is not None and refused is not None:
                    cause = refused(call.response)
                    if cause is not None and call.tries <= self.config.retries:
                        call.retry(cause)
                return call.done

            if not driver.run(call.step, done, timeout_ms):
                raise errors.KafkaTimeoutError(
                    f"no answer within {timeout_ms} ms", api=api.__name__, attempts=[*call.attempts, *driver.attempts()]
                )
            if call.error is not None:
                raise call.error
            return call.response

    def close(self) -> None:
        """Closes all connections at once; calls of other threads end with ClosedError. A second close does nothing."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaAdminClient({', '.join(self.config.bootstrap_servers)})"


def _names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise errors.UsageError(f"names must be a collection of topic names, not the string {names!r}")
    return list(dict.fromkeys(names))


def _not_controller(field: str) -> Callable[[Any], errors.KafkaError | None]:
    """An answer of a broker that is no longer the controller says so for every item."""

    def look(response: Any) -> errors.KafkaError | None:
        if any(item.error_code == Code.NOT_CONTROLLER for item in getattr(response, field)):
            return errors.from_code(Code.NOT_CONTROLLER)
        return None

    return look


def _describe(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = [
        PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas or ())
        for p in topic.partitions
    ]
    partitions.sort(key=lambda p: p.index)
    return TopicDescription(topic.name or "", bytes(topic.topic_id), topic.is_internal, partitions)
