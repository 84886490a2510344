"""The controller's image of a cluster: its brokers, topics, their settings, and who leads what.

Everything here belongs to one thread. Operations raise the broker error a client should see; the handlers turn it into a code.

Source: org.apache.kafka.image.{ClusterImage, TopicsImage}, org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.config import BrokerConfig
from kafkacore.errors import UsageError
from kafkacore.types import Node

MAX_NAME_CHARS = 249
MAX_PARTITIONS_PER_REQUEST = 10_000
PRODUCER_ID_FIRST = 0
NO_LEADER = -1
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

FEATURES: Mapping[str, tuple[int, int]] = {"transaction.version": (0, 2)}
"""The features brokers of this kind support, (lowest, highest) level by name; level 0 is "off"."""

SOURCE_TOPIC = 1
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must lie between {low} and {high}")
        return value

    return parse


def _choice(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(f"must be {' or '.join(values)}")
        return text

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


class TopicSetting(NamedTuple):
    """One topic setting: how its text is read, and the broker setting that gives its default (None for a fixed one)."""

    parse: Callable[[str], int | str]
    broker_setting: str | None
    fixed: int | str | None = None


_INT64_MAX = 2**63 - 1
TOPIC_SETTINGS: dict[str, TopicSetting] = {
    "cleanup.policy": TopicSetting(_choice("delete", "compact", "compact,delete"), None, "delete"),
    "compression.type": TopicSetting(_choice("producer"), None, "producer"),
    "file.delete.delay.ms": TopicSetting(_integer(0, _INT64_MAX), "log_segment_delete_delay_ms"),
    "flush.messages": TopicSetting(_integer(1, _INT64_MAX), "log_flush_interval_messages"),
    "flush.ms": TopicSetting(_integer(0, _INT64_MAX), "log_flush_interval_ms"),
    "index.interval.bytes": TopicSetting(_integer(0, 2**31 - 1), "log_index_interval_bytes"),
    "max.message.bytes": TopicSetting(_integer(0, 2**31 - 1), "message_max_bytes"),
    "message.timestamp.after.max.ms": TopicSetting(_integer(0, _INT64_MAX), "log_message_timestamp_after_max_ms"),
    "message.timestamp.type": TopicSetting(_choice("CreateTime", "LogAppendTime"), "log_message_timestamp_type"),
    "min.insync.replicas": TopicSetting(_integer(1, 2**31 - 1), "min_insync_replicas"),
    "preallocate": TopicSetting(_boolean, "log_preallocate"),
    "retention.bytes": TopicSetting(_integer(-1, _INT64_MAX), "log_retention_bytes"),
    "retention.ms": TopicSetting(_integer(-1, _INT64_MAX), "log_retention_ms"),
    "segment.bytes": TopicSetting(_integer(1 << 20, 2**31 - 1), "log_segment_bytes"),
    "segment.index.bytes": TopicSetting(_integer(4, 2**31 - 1), "log_index_size_max_bytes"),
    "segment.jitter.ms": TopicSetting(_integer(0, _INT64_MAX), "log_roll_jitter_ms"),
    "segment.ms": TopicSetting(_integer(1, _INT64_MAX), "log_roll_ms"),
}
"""The topic settings that are implemented; any other is refused with INVALID_CONFIG rather than ignored."""


@dataclass(frozen=True)
class TopicConfig:
    """A topic's settings in force; `overrides` are those set on the topic itself."""

    max_message_bytes: int
    message_timestamp_type: str
    message_timestamp_after_max_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    preallocate: bool
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    overrides: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def build(cls, overrides: Mapping[str, str | None], broker: BrokerConfig) -> TopicConfig:
        """Checks the topic's own settings and fills in the broker's.

        Args:
            overrides: Kafka's names and their texts; None means the default.
            broker: gives the defaults.

        Raises:
            InvalidConfiguration: an unknown or unsupported name, or a value out of range.
        """
        values: dict[str, int | str] = {}
        for name, setting in TOPIC_SETTINGS.items():
            value: Any = setting.fixed if setting.broker_setting is None else getattr(broker, setting.broker_setting)
            text = overrides.get(name)
            if text is not None:
                try:
                    value = setting.parse(text)
                except ValueError as problem:
                    raise errors.InvalidConfiguration(f"invalid value {text!r} for {name}: {problem}") from None
            values[name.replace(".", "_")] = value
        for name in overrides:
            if name not in TOPIC_SETTINGS:
                raise errors.InvalidConfiguration(
                    f"topic setting {name!r} is not served by the embedded broker; it knows {', '.join(TOPIC_SETTINGS)}"
                )
        return cls(overrides={name: text for name, text in overrides.items() if text is not None}, **values)  # type: ignore[arg-type]

    def describe(self) -> Iterable[tuple[str, str, int]]:
        """Name, value as text and source (Kafka's numbers) of every setting."""
        for name, setting in TOPIC_SETTINGS.items():
            source = SOURCE_TOPIC if name in self.overrides else SOURCE_DEFAULT if setting.broker_setting is None else SOURCE_STATIC_BROKER
            value = getattr(self, name.replace(".", "_"))
            yield name, str(value).lower() if isinstance(value, bool) else str(value), source


@dataclass
class PartitionRegistration:
    """Who holds and who leads one partition."""

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass
class Topic:
    """One topic."""

    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: list[PartitionRegistration]


class TopicListener:
    """What a broker does when the image changes; the base does nothing."""

    def topic_changed(self, topic: Topic) -> None:
        """A topic came into being, got more partitions, or other leaders."""

    def topic_deleted(self, topic: Topic) -> None:
        """A topic is gone."""


def check_topic_name(name: str) -> None:
    """Refuses names Kafka refuses.

    Raises:
        InvalidTopic: empty, ".", "..", longer than 249 characters, or with other characters than letters, digits, ".", "_" and "-".
    """
    if name in ("", ".", ".."):
        raise errors.InvalidTopic(f"a topic cannot be named {name!r}")
    if len(name) > MAX_NAME_CHARS:
        raise errors.InvalidTopic(f"a topic's name has at most {MAX_NAME_CHARS} characters, not {len(name)}")
    if not _NAME.fullmatch(name):
        raise errors.InvalidTopic(f"topic name {name!r} contains characters other than letters, digits, '.', '_' and '-'")


def _new_uuid() -> bytes:
    return uuid.uuid4().bytes


class ClusterImage:
    """Brokers, topics and producer ids of one cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str | None = None,
        new_uuid: Callable[[], bytes] = _new_uuid,
        first_producer_id: int = PRODUCER_ID_FIRST,
    ) -> None:
        """An empty cluster.

        Args:
            config: gives the defaults of new topics.
            cluster_id: a random one if left out.
            new_uuid: makes topic ids.
            first_producer_id: where producer ids begin.
        """
        self.config = config
        self.features = {name: high for name, (_, high) in FEATURES.items()}
        self.cluster_id = cluster_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.listeners: list[TopicListener] = []
        self._new_uuid = new_uuid
        self._next_producer_id = first_producer_id
        self._next_replica = 0

    @property
    def controller_id(self) -> int:
        """The node that answers as controller: the lowest one alive, -1 without any."""
        return min(self.nodes, default=-1)

    def finalize_features(self, levels: Mapping[str, int]) -> None:
        """Sets features to other levels than the highest ones.

        Args:
            levels: by name.

        Raises:
            UsageError: a feature or level that is not supported.
        """
        for name, level in levels.items():
            low, high = FEATURES.get(name, (0, -1))
            if not low <= level <= high:
                raise UsageError(f"feature {name!r} cannot have level {level}; supported are {dict(FEATURES)}")
        self.features.update(levels)

    def register_broker(self, node: Node) -> None:
        """A broker came up: it leads its partitions again, each in a new epoch if it led it before.

        Args:
            node: its id and address.
        """
        self.nodes[node.id] = node
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == NO_LEADER and node.id in partition.isr:
                    partition.leader = node.id
                    partition.leader_epoch += 1
            self._tell_changed(topic)

    def unregister_broker(self, node_id: int) -> None:
        """A broker went down: its partitions have no leader until it is back (nobody else holds them)."""
        self.nodes.pop(node_id, None)
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node_id:
                    partition.leader = NO_LEADER
            self._tell_changed(topic)

    def next_producer_id(self) -> int:
        """A producer id nobody has had."""
        producer_id = self._next_producer_id
        self._next_producer_id += 1
        return producer_id

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        assignments: Mapping[int, list[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Creates a topic.

        Args:
            name: its name.
            num_partitions: -1 for the broker's default.
            replication_factor: -1 for the broker's default.
            configs: topic settings by Kafka's names.
            assignments: partition -> brokers, instead of the two numbers.
            validate_only: check, but change nothing.

        Returns:
            The topic.

        Raises:
            BrokerError: with the code Kafka gives, and the reason.

        Source: ReplicationControlManager.createTopic.
        """
        check_topic_name(name)
        if name in self.topics:
            raise errors.TopicExists(f"topic {name!r} already exists")
        if "." in name or "_" in name:
            alike = name.replace(".", "_")
            collision = next((other for other in self.topics if other.replace(".", "_") == alike), None)
            if collision is not None:
                raise errors.InvalidTopic(f"topic {name!r} collides with {collision!r}: '.' and '_' are the same in metric names")
        if assignments:
            if num_partitions != -1 or replication_factor != -1:
                raise errors.InvalidRequest("give either replica assignments or numbers of partitions and replicas, not both")
            replicas = self._check_assignments(assignments)
        else:
            replicas = self._place(num_partitions, replication_factor)
        topic = Topic(name, self._new_uuid(), TopicConfig.build(configs or {}, self.config), [])
        for nodes in replicas:
            topic.partitions.append(PartitionRegistration(nodes, list(nodes), nodes[0]))
        if not validate_only:
            self.topics[name] = self.topics_by_id[topic.topic_id] = topic
            self._tell_changed(topic)
        return topic

    def _place(self, num_partitions: int, replication_factor: int) -> list[list[int]]:
        if num_partitions == -1:
            num_partitions = self.config.num_partitions
        if replication_factor == -1:
            replication_factor = min(self.config.default_replication_factor, max(len(self.nodes), 1))
        if num_partitions <= 0:
            raise errors.InvalidPartitions(f"a topic has at least one partition, not {num_partitions}")
        if num_partitions > MAX_PARTITIONS_PER_REQUEST:
            raise errors.PolicyViolation(f"at most {MAX_PARTITIONS_PER_REQUEST} partitions can be created at a time, not {num_partitions}")
        if replication_factor <= 0:
            raise errors.InvalidReplicationFactor(f"a partition has at least one replica, not {replication_factor}")
        nodes = sorted(self.nodes)
        if replication_factor > len(nodes):
            raise errors.InvalidReplicationFactor(f"{replication_factor} replicas need as many brokers; there are {len(nodes)}")
        start, self._next_replica = self._next_replica, self._next_replica + num_partitions
        return [[nodes[(start + index + nth) % len(nodes)] for nth in range(replication_factor)] for index in range(num_partitions)]

    def _check_assignments(self, assignments: Mapping[int, list[int]]) -> list[list[int]]:
        if sorted(assignments) != list(range(len(assignments))):
            raise errors.InvalidReplicaAssignment("assignments must name the partitions 0 to n-1, each once")
        for index, nodes in assignments.items():
            if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(self.nodes):
                raise errors.InvalidReplicaAssignment(f"partition {index} is assigned to {nodes}; the brokers are {sorted(self.nodes)}")
            if len(nodes) != len(assignments[0]):
                raise errors.InvalidReplicaAssignment("all partitions of a topic have the same number of replicas")
        return [list(assignments[index]) for index in range(len(assignments))]

    def create_partitions(self, name: str, count: int, assignments: list[list[int]] | None = None, validate_only: bool = False) -> None:
        """Adds partitions to a topic.

        Args:
            name: the topic.
            count: how many it has afterwards.
            assignments: the brokers of each new partition.
            validate_only: check, but change nothing.

        Raises:
            BrokerError: with the code Kafka gives, and the reason.
        """
        topic = self.topic(name)
        added = count - len(topic.partitions)
        if added <= 0:
            raise errors.InvalidPartitions(f"topic {name!r} has {len(topic.partitions)} partitions; {count} would not be more")
        if assignments is None:
            replicas = self._place(added, len(topic.partitions[0].replicas))
        else:
            if len(assignments) != added:
                raise errors.InvalidReplicaAssignment(f"{added} partitions are new, but {len(assignments)} are assigned")
            replicas = self._check_assignments(dict(enumerate(assignments)))
        if not validate_only:
            for nodes in replicas:
                topic.partitions.append(PartitionRegistration(nodes, list(nodes), nodes[0]))
            self._tell_changed(topic)

    def restore_topic(self, topic: Topic) -> None:
        """Puts a topic back that was there when the cluster stopped."""
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic

    def delete_topic(self, topic: Topic) -> None:
        """Deletes a topic and its data."""
        del self.topics[topic.name]
        del self.topics_by_id[topic.topic_id]
        for listener in self.listeners:
            listener.topic_deleted(topic)

    def topic(self, name: str) -> Topic:
        """The topic of a name.

        Raises:
            UnknownTopicOrPartition: there is none.
        """
        found = self.topics.get(name)
        if found is None:
            raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}", topic=name)
        return found

    def _tell_changed(self, topic: Topic) -> None:
        for listener in self.listeners:
            listener.topic_changed(topic)
