"""aiokafka's AIOKafkaAdminClient over the engine's: its calls as one request each, whose answer is shown as aiokafka shows it.

Source: aiokafka.admin.client, aiokafka 0.14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkacore import protocol as p
from kafkacore.aio import KafkaAdminClient as Engine
from kafkacore.compat.aiokafka import errors
from kafkacore.compat.aiokafka.admin import answers
from kafkacore.compat.aiokafka.admin.answers import Answer
from kafkacore.compat.aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from kafkacore.compat.aiokafka.admin.new_partitions import NewPartitions
from kafkacore.compat.aiokafka.admin.new_topic import NewTopic
from kafkacore.compat.aiokafka.admin.records_to_delete import RecordsToDelete
from kafkacore.compat.aiokafka.common_settings import COMMON, COMMON_DEFAULTS, engine_settings
from kafkacore.compat.aiokafka.connecting import connect
from kafkacore.compat.aiokafka.structs import OffsetAndMetadata, TopicPartition
from kafkacore.config import AdminConfig

_CLIENT_ID = COMMON_DEFAULTS["client_id"]


class AIOKafkaAdminClient:
    """Manages a cluster from an event loop.

    Args:
        bootstrap_servers, ...: aiokafka's settings, with its defaults.

    Raises:
        ValueError: a setting is refused, with the reason.
        RuntimeError: no loop runs.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: Any = "localhost",
        client_id: str = _CLIENT_ID,
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int | None = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        api_version: Any = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in COMMON}
        self._loop, settings = engine_settings(COMMON, COMMON_DEFAULTS, given, AdminConfig)
        self._engine = Engine(**settings)
        self._request_timeout_ms = request_timeout_ms
        self._started = False

    # -- life ---------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects; again does nothing.

        Raises:
            KafkaConnectionError: none of bootstrap_servers could be reached; it can be called again.
        """
        if not self._started:
            await connect(self._engine._calls, self._engine._client._driver, self._engine.config, self._request_timeout_ms / 1000)
            self._started = True

    async def close(self) -> None:
        """Closes all connections; again does nothing."""
        await self._engine.close()

    async def _send(
        self,
        api: type[Any],
        build: Callable[[int], Any],
        timeout_ms: int | None = None,
        *,
        node_id: int | None = None,
        to_controller: bool = False,
    ) -> Any:
        """A request and its answer: from any broker, from one, or from the controller."""
        if not self._started:
            raise errors.IllegalStateError("await start() first")
        client, ms = self._engine._client, timeout_ms or self._request_timeout_ms

        def call() -> Any:
            if node_id is None:
                return client._ask(api, build, ms, to_controller=to_controller)
            asked = client._ask_brokers({node_id: (api, build)}, ms)[node_id]
            if asked.error is not None:
                raise asked.error
            return asked.response

        with errors.translated():
            return await self._engine._calls.run(call)

    # -- topics -------------------------------------------------------------------------------------------------------------------

    async def create_topics(self, new_topics: list[NewTopic], timeout_ms: int | None = None, validate_only: bool = False) -> Answer:
        """Creates topics.

        Args:
            new_topics: what to create.
            timeout_ms: request_timeout_ms when None.
            validate_only: check only.

        Returns:
            `topic_errors` of (topic, error code, message): what went wrong is not raised.
        """
        topics = [
            p.CreatableTopic(
                name=each.name,
                num_partitions=each.num_partitions,
                replication_factor=each.replication_factor,
                assignments=[
                    p.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in each.replica_assignments.items()
                ],
                configs=[p.CreatableTopicConfig(name=name, value=value) for name, value in each.topic_configs.items()],
            )
            for each in new_topics
        ]
        request = p.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms or self._request_timeout_ms, validate_only=validate_only)
        found = await self._send(p.CreateTopicsRequest, lambda _: request, timeout_ms, to_controller=True)
        rows = [(each.name, each.error_code, each.error_message) for each in found.topics]
        return Answer(found.throttle_time_ms, "topic_errors", answers.TOPIC_ERRORS, rows)

    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> Answer:
        """Deletes topics with all their records.

        Returns:
            `topic_error_codes` of (topic, error code): what went wrong is not raised.
        """
        names, ms = list(topics), timeout_ms or self._request_timeout_ms

        def build(version: int) -> p.DeleteTopicsRequest:
            if version < 6:
                return p.DeleteTopicsRequest(topic_names=names, timeout_ms=ms)
            return p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=name, topic_id=bytes(16)) for name in names], timeout_ms=ms)

        found = await self._send(p.DeleteTopicsRequest, build, timeout_ms, to_controller=True)
        rows = [(each.name, each.error_code) for each in found.responses]
        return Answer(found.throttle_time_ms, "topic_error_codes", answers.TOPIC_CODES, rows)

    async def _metadata(self, topics: list[str] | None) -> Any:
        names = None if topics is None else list(topics)

        def build(version: int) -> p.MetadataRequest:
            wanted = None if names is None else [p.MetadataRequestTopic(name=name) for name in names]
            return p.MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4)

        return await self._send(p.MetadataRequest, build)

    async def list_topics(self) -> list[str]:
        """Names of all topics."""
        return [topic.name for topic in (await self._metadata(None)).topics]

    async def describe_topics(self, topics: list[str] | None = None) -> list[Any]:
        """What the cluster says of topics, as dicts.

        Args:
            topics: names; None for all.
        """
        return [
            {
                "error_code": topic.error_code,
                "topic": topic.name,
                "is_internal": topic.is_internal,
                "partitions": [
                    {
                        "error_code": each.error_code,
                        "partition": each.partition_index,
                        "leader": each.leader_id,
                        "replicas": list(each.replica_nodes),
                        "isr": list(each.isr_nodes),
                        "offline_replicas": list(each.offline_replicas),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in (await self._metadata(topics)).topics
        ]

    async def describe_cluster(self) -> dict[str, Any]:
        """The cluster's id, controller and brokers."""
        found = await self._metadata([])
        brokers = [{"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack} for each in found.brokers]
        return {
            "throttle_time_ms": found.throttle_time_ms,
            "brokers": brokers,
            "cluster_id": found.cluster_id,
            "controller_id": found.controller_id,
        }

    async def create_partitions(
        self, topic_partitions: dict[str, NewPartitions], timeout_ms: int | None = None, validate_only: bool = False
    ) -> Answer:
        """Adds partitions to topics.

        Args:
            topic_partitions: by topic the new total.
            timeout_ms: request_timeout_ms when None.
            validate_only: check only.

        Raises:
            KafkaError: of the first topic that was refused.
        """
        topics = [
            p.CreatePartitionsTopic(
                name=name,
                count=given.total_count,
                assignments=None
                if given.new_assignments is None
                else [p.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in given.new_assignments],
            )
            for name, given in topic_partitions.items()
        ]
        ms = timeout_ms or self._request_timeout_ms
        request = p.CreatePartitionsRequest(topics=topics, timeout_ms=ms, validate_only=validate_only)
        found = await self._send(p.CreatePartitionsRequest, lambda _: request, timeout_ms, to_controller=True)
        for each in found.results:
            _check(each.error_code, f"Could not create partitions for {each.name}: {each.error_message}")
        rows = [(each.name, each.error_code, each.error_message) for each in found.results]
        return Answer(found.throttle_time_ms, "topic_errors", answers.TOPIC_ERRORS, rows)

    async def delete_records(
        self, records_to_delete: dict[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes what lies before an offset.

        Args:
            records_to_delete: by partition.
            timeout_ms: request_timeout_ms when None.

        Returns:
            By partition the first offset that is left.

        Raises:
            KafkaError: of the first partition that was refused.
        """
        before: Any = {tp: given.before_offset for tp, given in records_to_delete.items()}
        with errors.translated():
            found = await self._engine.delete_records(before, timeout=(timeout_ms or self._request_timeout_ms) / 1000)
            return dict(found.check().succeeded)

    # -- settings -----------------------------------------------------------------------------------------------------------------

    async def describe_configs(self, config_resources: list[ConfigResource], include_synonyms: bool = False) -> list[Answer]:
        """Settings in force.

        Args:
            config_resources: whose; `configs` names the settings, all when it is None or empty.
            include_synonyms: show the layers.

        Returns:
            An answer from each broker that is described, and one about all topics: `resources` of (error code, message, kind, name,
            entries).
        """

        def request(group: Iterable[ConfigResource]) -> p.DescribeConfigsRequest:
            wanted = [
                p.DescribeConfigsResource(
                    resource_type=each.resource_type,
                    resource_name=str(each.name),
                    configuration_keys=list(each.configs) if each.configs else None,
                )
                for each in group
            ]
            return p.DescribeConfigsRequest(resources=wanted, include_synonyms=include_synonyms)

        return [
            Answer(found.throttle_time_ms, "resources", answers.DESCRIBED, map(_described, found.results))
            for found in await self._ask_about(config_resources, request)
        ]

    async def alter_configs(self, config_resources: list[ConfigResource]) -> list[Answer]:
        """Replaces all settings of topics and brokers: what is not named is reset.

        Args:
            config_resources: `configs` holds values by name.

        Returns:
            `resources` of (error code, message, kind, name): what went wrong is not raised.
        """

        def request(group: Iterable[ConfigResource]) -> p.AlterConfigsRequest:
            wanted = [
                p.AlterConfigsResource(
                    resource_type=each.resource_type,
                    resource_name=str(each.name),
                    configs=[p.AlterableConfig(name=name, value=value) for name, value in (each.configs or {}).items()],
                )
                for each in group
            ]
            return p.AlterConfigsRequest(resources=wanted)

        return [
            Answer(found.throttle_time_ms, "resources", answers.ALTERED, map(_altered, found.responses))
            for found in await self._ask_about(config_resources, request)
        ]

    async def _ask_about(self, resources: Sequence[ConfigResource], request: Callable[[list[ConfigResource]], Any]) -> list[Any]:
        """Asks brokers about themselves and any broker about topics."""
        groups: dict[int | None, list[ConfigResource]] = {}
        for each in resources:
            if each.resource_type == ConfigResourceType.BROKER:
                groups.setdefault(int(each.name), []).append(each)
        if topics := [each for each in resources if each.resource_type != ConfigResourceType.BROKER]:
            groups[None] = topics
        found = []
        for node_id, group in groups.items():
            made = request(group)
            found.append(await self._send(type(made), _always(made), node_id=node_id))
        return found

    # -- groups -------------------------------------------------------------------------------------------------------------------

    async def list_consumer_groups(self, broker_ids: list[int] | None = None) -> list[tuple[Any, ...]]:
        """The groups of the cluster, as (group, protocol type).

        Args:
            broker_ids: only those that these brokers coordinate.

        Raises:
            KafkaError: of the first broker that refused.
        """
        if broker_ids is None:
            broker_ids = [each.node_id for each in (await self._metadata([])).brokers]
        groups: set[tuple[Any, ...]] = set()
        for node_id in broker_ids:
            found = await self._send(p.ListGroupsRequest, _always(p.ListGroupsRequest()), node_id=node_id)
            _check(found.error_code, "Error listing consumer groups")
            groups.update((each.group_id, each.protocol_type) for each in found.groups)
        return list(groups)

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """The id of the broker that coordinates a group.

        Args:
            group_id: the group, or a transactional id.
            coordinator_type: 0 for a group, 1 for a transactional id.

        Raises:
            KafkaError: the coordinator is not known now.
        """

        def build(version: int) -> p.FindCoordinatorRequest:
            if version < 4:
                return p.FindCoordinatorRequest(key=group_id, key_type=coordinator_type)
            return p.FindCoordinatorRequest(coordinator_keys=[group_id], key_type=coordinator_type)

        answer = await self._send(p.FindCoordinatorRequest, build)
        found = answer.coordinators[0] if answer.coordinators else answer
        _check(found.error_code, f"Unable to get coordinator id for {group_id}")
        return int(found.node_id)

    async def describe_consumer_groups(
        self, group_ids: list[str], group_coordinator_id: int | None = None, include_authorized_operations: bool = False
    ) -> list[Answer]:
        """Members and states of classic groups.

        Args:
            group_ids: the groups.
            group_coordinator_id: the broker that coordinates them all; None finds each group's.
            include_authorized_operations: also what this principal may do, as a bit set.

        Returns:
            An answer from each coordinator: `groups` of (error code, group, state, protocol type, protocol, members).
        """
        by_node: dict[int, list[str]] = {}
        for group_id in group_ids:
            node_id = await self.find_coordinator(group_id) if group_coordinator_id is None else group_coordinator_id
            by_node.setdefault(node_id, []).append(group_id)
        names = answers.GROUPS_WITH_OPERATIONS if include_authorized_operations else answers.GROUPS
        found = []
        for node_id, ids in by_node.items():
            request = p.DescribeGroupsRequest(groups=ids, include_authorized_operations=include_authorized_operations)
            answer = await self._send(p.DescribeGroupsRequest, _always(request), node_id=node_id)
            found.append(Answer(answer.throttle_time_ms, "groups", names, [_group(each)[: len(names)] for each in answer.groups]))
        return found

    async def list_consumer_group_offsets(
        self, group_id: str, group_coordinator_id: int | None = None, partitions: list[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed.

        Args:
            group_id: the group.
            group_coordinator_id: cannot be given: the engine finds it.
            partitions: only of these, with offset -1 where nothing is committed; None for all that have something.

        Raises:
            IllegalArgumentError: group_coordinator_id is given.
            KafkaError: refused.
        """
        if group_coordinator_id is not None:
            raise errors.IllegalArgumentError("group_coordinator_id: the engine finds the coordinator, and follows it when it moves")
        with errors.translated():
            found = await self._engine.list_group_offsets(group_id, partitions, timeout=self._request_timeout_ms / 1000)
        return {tp: OffsetAndMetadata(-1, "") if at is None else OffsetAndMetadata(at.offset, at.metadata) for tp, at in found.items()}


def _always(request: Any) -> Callable[[int], Any]:
    """The same request for every version."""
    return lambda _: request


def _check(code: int, what: str) -> None:
    if code:
        raise errors.coded(code)(what)


def _altered(found: Any) -> tuple[Any, ...]:
    return found.error_code, found.error_message, found.resource_type, found.resource_name


def _described(found: Any) -> tuple[Any, ...]:
    entries = [
        (each.name, each.value, each.read_only, each.config_source, each.is_sensitive, [(s.name, s.value, s.source) for s in each.synonyms])
        for each in found.configs
    ]
    return *_altered(found), entries


def _group(found: Any) -> tuple[Any, ...]:
    members = [
        (each.member_id, each.client_id, each.client_host, bytes(each.member_metadata), bytes(each.member_assignment))
        for each in found.members
    ]
    state, protocol = found.group_state, found.protocol_data
    return found.error_code, found.group_id, state, found.protocol_type, protocol, members, found.authorized_operations
