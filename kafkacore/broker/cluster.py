"""What one node knows of its cluster: brokers, topics, their settings, who leads what. Built from the records of the metadata log.

Rules:

1. An image changes by `apply` alone, record after record in the order of the log: who has the same records has the same image.
   [test_an_image_as_records_is_the_same_image, TestCluster]
2. An image belongs to one thread: a broker's to its owner thread, the controller's to the thread that holds the controller's lock.
   [test_an_image_changes_only_when_its_broker_turns_to_it,
   test_followers_hear_of_it_under_the_lock_before_the_answer_and_read_at_their_own_pace]
3. Registrations are never changed but replaced, so what a listener or an answer holds stays what it was.
   [test_what_was_registered_stays_what_it_was_for_those_who_hold_it]
4. Reading raises the broker error a client should see; the handlers turn it into a code. Changing is the controller's work.
   [test_records_make_an_image]

Source: org.apache.kafka.image.{MetadataImage, MetadataDelta, TopicsImage, ClusterImage}.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.broker.fault_handler import contained
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.config import BrokerConfig
from kafkacore.errors import InternalError
from kafkacore.plurals import counted
from kafkacore.protocol import metadata_log as m
from kafkacore.protocol.metadata_log import MetadataRecord
from kafkacore.types import Node

MAX_NAME_CHARS = 249
NO_LEADER = -1
MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY = (bytes(15) + bytes([number]) for number in range(3))
"""Ids that are no directory's: it is unknown where it lies; its broker has to say; it lay in one that is gone."""
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

FEATURES: Mapping[str, tuple[int, int]] = {
    "metadata.version": (7, 30),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "kraft.version": (0, 0),
}
"""The features brokers of this kind support, (lowest, highest) level by name; level 0 is "off". Of metadata.version 30 is Kafka 4.3, 7 the
oldest that Kafka 4 knows. The voters are fixed (kraft.version 0): there is one controller."""


@dataclass(frozen=True)
class BrokerRegistration:
    """A broker that has registered, alive or not.

    Attributes:
        id: of the node.
        epoch: the offset of its registration in the metadata log; requests of an older one are fenced.
        incarnation_id: new in every life of the broker.
        endpoints: the addresses that clients are given, by listener; that of the other brokers is the first.
        features: supported levels, (lowest, highest) by name.
        rack: where it stands, for placement and clients.
        fenced: it may neither lead nor be in sync: it has not caught up yet, or is thought dead.
        in_controlled_shutdown: it is handing over what it leads.
        log_dirs: ids of its directories that work; empty for one that keeps its logs in memory.
        cordoned_log_dirs: those of them that a Kafka wants no new replica in (KIP-1066).
    """

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[m.BrokerEndpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None

    @property
    def node(self) -> Node:
        """As the other brokers see it."""
        return Node(self.id, self.endpoints[0].host, self.endpoints[0].port, self.rack)

    def node_at(self, listener: str) -> Node | None:
        """As clients of a listener see it; None if it has no such listener."""
        found = [each for each in self.endpoints if each.name == listener] if listener else self.endpoints[:1]
        return Node(self.id, found[0].host, found[0].port, self.rack) if found else None

    @property
    def active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: bytes) -> bool:
        """Whether what lies in a directory can be read. Source: org.apache.kafka.common.DirectoryId.isOnline."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY) or (not self.log_dirs and directory != LOST_DIRECTORY):
            return True
        return directory in self.log_dirs


@dataclass(frozen=True)
class PartitionRegistration:
    """Who holds and who leads one partition.

    Attributes:
        replicas: the brokers that hold it, the preferred leader first.
        isr: those of them that are in sync.
        leader: one of the ISR; -1 if none of them is alive.
        leader_epoch: rises with every change of leader, also to none.
        partition_epoch: rises with every change; a leader that wants to change the ISR names the one it knows.
        adding_replicas, removing_replicas: of a reassignment in progress; both are among the replicas.
        leader_recovery_state: 1 after an unclean election, until the leader says it has recovered.
        directories: where each of the replicas lies (KIP-858); none at all where it is unknown.
        elr: replicas outside the ISR that have every acknowledged record (KIP-966), as a Kafka left them.
        last_known_elr: those of which that is likely.
    """

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)
    leader_recovery_state: int = 0
    directories: list[bytes] = field(default_factory=list)
    elr: list[int] = field(default_factory=list)
    last_known_elr: list[int] = field(default_factory=list)

    def directory(self, node: int) -> bytes:
        """Where a replica lies, as far as is known."""
        at = self.replicas.index(node) if node in self.replicas else len(self.directories)
        return self.directories[at] if at < len(self.directories) else MIGRATING_DIRECTORY

    def merge(self, record: m.PartitionChangeRecord) -> PartitionRegistration:
        """What it is after a change. Source: org.apache.kafka.metadata.PartitionRegistration.merge."""
        led = record.leader != m.NO_LEADER_CHANGE
        recovery = record.leader_recovery_state
        replicas = self.replicas if record.replicas is None else record.replicas
        directories = record.directories
        if directories is None or len(directories) != len(replicas):
            directories = self.directories if replicas == self.replicas else [self.directory(node) for node in replicas]
        return PartitionRegistration(
            replicas=replicas,
            isr=self.isr if record.isr is None else record.isr,
            leader=record.leader if led else self.leader,
            leader_epoch=self.leader_epoch + led,
            partition_epoch=self.partition_epoch + 1,
            adding_replicas=self.adding_replicas if record.adding_replicas is None else record.adding_replicas,
            removing_replicas=self.removing_replicas if record.removing_replicas is None else record.removing_replicas,
            leader_recovery_state=self.leader_recovery_state if recovery < 0 else recovery,
            directories=directories,
            elr=self.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas,
            last_known_elr=self.last_known_elr if record.last_known_elr is None else record.last_known_elr,
        )

    @property
    def reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)


@dataclass
class Topic:
    """One topic; partition i is partitions[i]."""

    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: list[PartitionRegistration]


class Acl(NamedTuple):
    """One access control entry, by Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


QuotaEntity = frozenset[tuple[str, "str | None"]]
"""Whom a quota is for: (type, name) pairs; None is the default of the type."""


@dataclass(frozen=True)
class PartitionChange:
    """A partition before and after a batch of records; `before` is None for a new one."""

    topic: Topic
    index: int
    before: PartitionRegistration | None
    now: PartitionRegistration


class ImageDelta:
    """What one batch of records changed in an image.

    Attributes:
        image: after the change.
        created_topics: new topics; their partitions are among the changed ones too.
        deleted_topics: as they were; nothing of them is among the changed partitions.
        configs: the resources with changed settings, (type, name).
        brokers: the ids of brokers that registered, left, or changed their state.
        features: the names of features with new levels.
        quotas: the entities with changed quotas.
        acls: the ids of access control entries that were added or removed.

    Source: org.apache.kafka.image.MetadataDelta.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.created_topics: list[Topic] = []
        self.deleted_topics: list[Topic] = []
        self.configs: set[tuple[int, str]] = set()
        self.brokers: set[int] = set()
        self.features: set[str] = set()
        self.quotas: set[QuotaEntity] = set()
        self.acls: set[bytes] = set()
        self._before: dict[tuple[bytes, int], PartitionRegistration | None] = {}

    def note_partition(self, topic: Topic, index: int, before: PartitionRegistration | None) -> None:
        """Keeps what a partition was before the batch's first change of it."""
        self._before.setdefault((topic.topic_id, index), before)

    def note_deletion(self, topic: Topic) -> None:
        """A topic is deleted, and all that the batch said of it before."""
        for index in range(len(topic.partitions)):
            self._before.pop((topic.topic_id, index), None)
        if topic in self.created_topics:
            self.created_topics.remove(topic)
        else:
            self.deleted_topics.append(topic)

    @property
    def partitions(self) -> list[PartitionChange]:
        """The new and changed partitions, in the order of the records."""
        topics = self.image.topics_by_id
        return [
            PartitionChange(topics[topic_id], index, before, topics[topic_id].partitions[index])
            for (topic_id, index), before in self._before.items()
        ]


class ImageListener:
    """Is called for every change of an image; the base does nothing."""

    def image_changed(self, delta: ImageDelta) -> None:
        """A batch of records was applied."""


RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4


def check_topic_name(name: str) -> None:
    """Refuses names Kafka refuses.

    Raises:
        InvalidTopic: empty, ".", "..", longer than 249 characters, or with other characters than letters, digits, ".", "_" and "-".
    """
    why = None
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_CHARS:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_CHARS}"
    elif not _NAME.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if why is not None:
        raise errors.InvalidTopic(f"Topic name is invalid: {why}")


def new_uuid() -> bytes:
    """A random id that is none of Kafka's reserved ones (0 and 1) and whose text does not begin with a dash."""
    while True:
        made = uuid.uuid4().bytes
        if uuid_text(made)[0] != "-":
            return made


def uuid_text(value: bytes) -> str:
    """An id as Kafka writes it: 22 characters of base64."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


class ClusterImage:
    """One cluster, as far as the applied records tell.

    Attributes:
        config: gives the defaults of topics.
        cluster_id: of the cluster.
        next_offset: of the first record of the metadata log that is not applied yet.
        brokers: all that are registered.
        nodes: those of them that are not fenced, as clients see them.
        topics, topics_by_id: by name and by id.
        led, in_sync: how many partitions each broker leads, NO_LEADER for none, and in how many ISRs it is.
        configs: settings by (type, name) of their resource.
        features: finalized levels by name.
        client_quotas: values by name, by entity.
        acls, acl_ids: entries by id, and ids by entry.
        scram_credentials: by user and mechanism.
        delegation_tokens: by id.
        controllers, zk_migration_state: what a Kafka wrote of its own controllers; kept for it.
        supported_features: the levels this node supports, (lowest, highest) by name.
        next_producer_id: the first of the next block.
        listeners: called after every batch.
    """

    def __init__(
        self, config: BrokerConfig, cluster_id: str | None = None, supported_features: Mapping[str, tuple[int, int]] = FEATURES
    ) -> None:
        """An empty cluster.

        Args:
            config: gives the defaults of topics.
            cluster_id: a random one if left out.
            supported_features: of this node; fewer ones to play an older Kafka.
        """
        self.config = config
        self.supported_features = supported_features
        self.cluster_id = cluster_id or uuid_text(new_uuid())
        self.next_offset = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.led: Counter[int] = Counter()
        self.in_sync: Counter[int] = Counter()
        self._alike: dict[str, dict[str, None]] = {}  # names with "." or "_", by what they are with "_" alone
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.acls: dict[bytes, Acl] = {}
        self.acl_ids: dict[Acl, bytes] = {}
        self.scram_credentials: dict[tuple[str, int], m.UserScramCredentialRecord] = {}
        self.delegation_tokens: dict[str, m.DelegationTokenRecord] = {}
        self.next_producer_id = 0
        self.controllers: dict[int, m.RegisterControllerRecord] = {}
        self.zk_migration_state = 0
        self.listeners: list[ImageListener] = []

    # ---- reading

    @property
    def controller_id(self) -> int:
        """The node that answers as controller: the lowest one alive, -1 without any. Every broker passes requests on to the controller."""
        return min(self.nodes, default=-1)

    def topic(self, name: str) -> Topic:
        """The topic of a name.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        found = self.topics.get(name)
        if found is None:
            raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}", topic=name)
        return found

    def partition(self, name: str, index: int) -> PartitionRegistration:
        """One partition.

        Raises:
            UnknownTopicOrPartition: there is no such topic or partition.
        """
        partitions = self.topic(name).partitions
        if not 0 <= index < len(partitions):
            raise errors.UnknownTopicOrPartition(f"topic {name!r} has {counted(len(partitions), 'partition')}", topic=name, partition=index)
        return partitions[index]

    def set_config(self, config: BrokerConfig) -> None:
        """Other defaults of topics.

        Args:
            config: the settings of the broker from now on.
        """
        self.config = config
        for topic in self.topics.values():
            topic.config = self._topic_config(topic.name)

    def is_active(self, node_id: int) -> bool:
        """Whether a broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.active

    def may_lead(self, node_id: int, partition: PartitionRegistration) -> bool:
        """Whether a broker is active and the directory of its replica works."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.active and broker.has_online(partition.directory(node_id))

    def default_directory(self, node_id: int) -> bytes:
        """Where a broker puts a new replica: known if it has one place. Source: ClusterControlManager.defaultDir."""
        broker = self.brokers.get(node_id)
        if broker is None or not broker.log_dirs:
            return MIGRATING_DIRECTORY
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY

    def offline_replicas(self, partition: PartitionRegistration) -> list[int]:
        """Those out of reach: their brokers are gone, or the directories they lie in."""
        return [
            node
            for node in partition.replicas
            if node not in self.nodes or not self.brokers[node].has_online(partition.directory(node))
        ]

    # ---- changing

    def apply(self, records: Sequence[MetadataRecord], next_offset: int) -> ImageDelta:
        """Applies a batch of records and tells the listeners.

        Args:
            records: in the order of the log.
            next_offset: of the record that follows them.

        Returns:
            What changed.

        Raises:
            InternalError: a record contradicts the image.
        """
        delta = ImageDelta(self)
        for record in records:
            _REPLAYS[type(record)](self, record, delta)
        self.next_offset = next_offset
        self.tell(delta)
        return delta

    def tell(self, delta: ImageDelta) -> None:
        """Tells the listeners of a change. What fails in one does not keep it from the others: the image does not come back to it.

        Args:
            delta: what changed.
        """
        for listener in self.listeners:
            with contained("metadata up to offset %d: listener %s", self.next_offset, type(listener).__name__):
                listener.image_changed(delta)

    def _set_broker(self, broker: BrokerRegistration, delta: ImageDelta) -> None:
        self.brokers[broker.id] = broker
        if broker.fenced:
            self.nodes.pop(broker.id, None)
        else:
            self.nodes[broker.id] = broker.node
        delta.brokers.add(broker.id)

    def _register_broker(self, record: m.RegisterBrokerRecord, delta: ImageDelta) -> None:
        self._set_broker(
            BrokerRegistration(
                record.broker_id,
                record.broker_epoch,
                record.incarnation_id,
                tuple(record.end_points),
                {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features},
                record.rack,
                record.fenced,
                record.in_controlled_shutdown,
                tuple(record.log_dirs),
                None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            ),
            delta,
        )

    def _known_broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InternalError(f"the metadata log speaks of broker {broker_id} with epoch {epoch}, which is not registered")
        return broker

    def _unregister_broker(self, record: m.UnregisterBrokerRecord, delta: ImageDelta) -> None:
        self._known_broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        self.nodes.pop(record.broker_id, None)
        delta.brokers.add(record.broker_id)

    def _fence_broker(self, record: m.FenceBrokerRecord, delta: ImageDelta) -> None:
        self._set_broker(replace(self._known_broker(record.id, record.epoch), fenced=True), delta)

    def _unfence_broker(self, record: m.UnfenceBrokerRecord, delta: ImageDelta) -> None:
        self._set_broker(replace(self._known_broker(record.id, record.epoch), fenced=False), delta)

    def _change_broker(self, record: m.BrokerRegistrationChangeRecord, delta: ImageDelta) -> None:
        broker = self._known_broker(record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["log_dirs"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        self._set_broker(replace(broker, **changes), delta)

    def _create_topic(self, record: m.TopicRecord, delta: ImageDelta) -> None:
        if record.name in self.topics or record.topic_id in self.topics_by_id:
            raise InternalError(f"the metadata log creates topic {record.name!r} twice")
        topic = Topic(record.name, record.topic_id, self._topic_config(record.name), [])
        self.add_topic(topic)
        delta.created_topics.append(topic)

    def add_topic(self, topic: Topic) -> None:
        """Takes a topic in; for what applies records or a snapshot."""
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
        for partition in topic.partitions:
            self._count(partition, 1)
        if "." in topic.name or "_" in topic.name:
            self._alike.setdefault(topic.name.replace(".", "_"), {})[topic.name] = None

    def drop_topic(self, topic: Topic) -> None:
        """Takes a topic out."""
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        for partition in topic.partitions:
            self._count(partition, -1)
        alike = topic.name.replace(".", "_")
        names = self._alike.get(alike, {})
        names.pop(topic.name, None)
        if not names:
            self._alike.pop(alike, None)

    def replace_partitions(self, topic: Topic, partitions: list[PartitionRegistration]) -> None:
        """Gives a topic other partitions; for a snapshot."""
        for partition in topic.partitions:
            self._count(partition, -1)
        topic.partitions = partitions
        for partition in partitions:
            self._count(partition, 1)

    def _count(self, partition: PartitionRegistration, step: int) -> None:
        self.led[partition.leader] += step
        for node in partition.isr:
            self.in_sync[node] += step

    def topic_like(self, name: str) -> str | None:
        """A topic whose name differs in "." and "_" alone, or not at all: their metrics have one name. None if no topic is like it."""
        return next(iter(self._alike.get(name.replace(".", "_"), ())), None)

    def _topic_of(self, topic_id: bytes) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise InternalError(f"the metadata log speaks of topic id {uuid_text(topic_id)}, which does not exist")
        return topic

    def _remove_topic(self, record: m.RemoveTopicRecord, delta: ImageDelta) -> None:
        topic = self._topic_of(record.topic_id)
        self.drop_topic(topic)
        if self.configs.pop((RESOURCE_TOPIC, topic.name), None):
            delta.configs.add((RESOURCE_TOPIC, topic.name))
        delta.note_deletion(topic)

    def _create_partition(self, record: m.PartitionRecord, delta: ImageDelta) -> None:
        topic, index = self._topic_of(record.topic_id), record.partition_id
        if index != len(topic.partitions):
            raise InternalError(f"the metadata log creates partition {index} of {topic.name!r}, which has {len(topic.partitions)}")
        topic.partitions.append(
            PartitionRegistration(
                record.replicas,
                record.isr,
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                record.adding_replicas,
                record.removing_replicas,
                record.leader_recovery_state,
                record.directories if len(record.directories) == len(record.replicas) else [MIGRATING_DIRECTORY] * len(record.replicas),
                record.eligible_leader_replicas or [],
                record.last_known_elr or [],
            )
        )
        self._count(topic.partitions[index], 1)
        delta.note_partition(topic, index, None)

    def _change_partition(self, record: m.PartitionChangeRecord, delta: ImageDelta) -> None:
        topic, index = self._topic_of(record.topic_id), record.partition_id
        if not 0 <= index < len(topic.partitions):
            raise InternalError(f"the metadata log changes partition {index} of {topic.name!r}, which has {len(topic.partitions)}")
        before = topic.partitions[index]
        now = topic.partitions[index] = before.merge(record)
        self._count(before, -1)
        self._count(now, 1)
        delta.note_partition(topic, index, before)

    def _clear_elr(self, record: m.ClearElrRecord, delta: ImageDelta) -> None:
        if record.topic_name and record.topic_name not in self.topics:
            raise InternalError(f"the metadata log clears the eligible leaders of topic {record.topic_name!r}, which does not exist")
        for topic in [self.topics[record.topic_name]] if record.topic_name else self.topics.values():
            topic.partitions = [replace(each, elr=[], last_known_elr=[]) for each in topic.partitions]

    def _set_controller(self, record: m.RegisterControllerRecord, delta: ImageDelta) -> None:
        self.controllers[record.controller_id] = record

    def _set_zk_migration_state(self, record: m.ZkMigrationStateRecord, delta: ImageDelta) -> None:
        self.zk_migration_state = record.zk_migration_state

    def _set_config(self, record: m.ConfigRecord, delta: ImageDelta) -> None:
        resource = record.resource_type, record.resource_name
        values = dict(self.configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.configs[resource] = values
        else:
            self.configs.pop(resource, None)
        topic = self.topics.get(record.resource_name)
        if record.resource_type == RESOURCE_TOPIC and topic is not None:
            topic.config = self._topic_config(topic.name)
        delta.configs.add(resource)

    def _topic_config(self, name: str) -> TopicConfig:
        return TopicConfig.recorded(self.configs.get((RESOURCE_TOPIC, name), {}), self.config)

    def _set_feature(self, record: m.FeatureLevelRecord, delta: ImageDelta) -> None:
        if record.feature_level > 0:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)
        delta.features.add(record.name)

    def _set_producer_ids(self, record: m.ProducerIdsRecord, delta: ImageDelta) -> None:
        self.next_producer_id = record.next_producer_id

    def _set_client_quota(self, record: m.ClientQuotaRecord, delta: ImageDelta) -> None:
        entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
        values = dict(self.client_quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self.client_quotas[entity] = values
        else:
            self.client_quotas.pop(entity, None)
        delta.quotas.add(entity)

    def _add_acl(self, record: m.AccessControlEntryRecord, delta: ImageDelta) -> None:
        acl = self.acls[record.id] = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self.acl_ids[acl] = record.id
        delta.acls.add(record.id)

    def _remove_acl(self, record: m.RemoveAccessControlEntryRecord, delta: ImageDelta) -> None:
        acl = self.acls.pop(record.id, None)
        if acl is None:
            raise InternalError(f"the metadata log removes access control entry {uuid_text(record.id)}, which does not exist")
        self.acl_ids.pop(acl, None)
        delta.acls.add(record.id)

    def _set_scram_credential(self, record: m.UserScramCredentialRecord, delta: ImageDelta) -> None:
        self.scram_credentials[record.name, record.mechanism] = record

    def _remove_scram_credential(self, record: m.RemoveUserScramCredentialRecord, delta: ImageDelta) -> None:
        if self.scram_credentials.pop((record.name, record.mechanism), None) is None:
            raise InternalError(f"the metadata log removes a SCRAM credential of {record.name!r}, which does not exist")

    def _set_delegation_token(self, record: m.DelegationTokenRecord, delta: ImageDelta) -> None:
        self.delegation_tokens[record.token_id] = record

    def _remove_delegation_token(self, record: m.RemoveDelegationTokenRecord, delta: ImageDelta) -> None:
        self.delegation_tokens.pop(record.token_id, None)

    def _nothing(self, record: MetadataRecord, delta: ImageDelta) -> None:
        """A record that changes no image."""

    # ---- the image as records

    def records(self) -> Iterator[MetadataRecord]:
        """Records that make the same image out of an empty one, as in a snapshot. Source: org.apache.kafka.image.MetadataImage.write."""
        for name, level in sorted(self.features.items(), key=lambda each: each[0] != "metadata.version"):  # which has to come first
            yield m.FeatureLevelRecord(name=name, feature_level=level)
        for broker in self.brokers.values():
            yield m.RegisterBrokerRecord(
                broker_id=broker.id,
                incarnation_id=broker.incarnation_id,
                broker_epoch=broker.epoch,
                end_points=list(broker.endpoints),
                features=[
                    m.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in broker.features.items()
                ],
                rack=broker.rack,
                fenced=broker.fenced,
                in_controlled_shutdown=broker.in_controlled_shutdown,
                log_dirs=list(broker.log_dirs),
                cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
            )
        yield from self.controllers.values()
        if self.zk_migration_state:
            yield m.ZkMigrationStateRecord(zk_migration_state=self.zk_migration_state)
        for topic in self.topics.values():
            yield m.TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, partition in enumerate(topic.partitions):
                yield partition_record(topic.topic_id, index, partition)
        for (resource_type, resource_name), values in self.configs.items():
            for name, value in values.items():
                yield m.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for entity, quotas in self.client_quotas.items():
            for key, quota in quotas.items():
                yield m.ClientQuotaRecord(
                    entity=[m.ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in sorted(entity, key=str)],
                    key=key,
                    value=quota,
                )
        if self.next_producer_id:
            yield m.ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id)
        for acl_id, acl in self.acls.items():
            yield m.AccessControlEntryRecord(id=acl_id, **acl._asdict())
        yield from self.scram_credentials.values()
        yield from self.delegation_tokens.values()


def partition_record(topic_id: bytes, index: int, partition: PartitionRegistration) -> m.PartitionRecord:
    """The record of a partition as it is."""
    return m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=[partition.directory(node) for node in partition.replicas],
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


_REPLAYS: dict[type[MetadataRecord], Callable[[ClusterImage, Any, ImageDelta], None]] = {
    m.RegisterBrokerRecord: ClusterImage._register_broker,
    m.UnregisterBrokerRecord: ClusterImage._unregister_broker,
    m.FenceBrokerRecord: ClusterImage._fence_broker,
    m.UnfenceBrokerRecord: ClusterImage._unfence_broker,
    m.BrokerRegistrationChangeRecord: ClusterImage._change_broker,
    m.TopicRecord: ClusterImage._create_topic,
    m.RemoveTopicRecord: ClusterImage._remove_topic,
    m.PartitionRecord: ClusterImage._create_partition,
    m.PartitionChangeRecord: ClusterImage._change_partition,
    m.ConfigRecord: ClusterImage._set_config,
    m.FeatureLevelRecord: ClusterImage._set_feature,
    m.ProducerIdsRecord: ClusterImage._set_producer_ids,
    m.ClientQuotaRecord: ClusterImage._set_client_quota,
    m.AccessControlEntryRecord: ClusterImage._add_acl,
    m.RemoveAccessControlEntryRecord: ClusterImage._remove_acl,
    m.UserScramCredentialRecord: ClusterImage._set_scram_credential,
    m.RemoveUserScramCredentialRecord: ClusterImage._remove_scram_credential,
    m.DelegationTokenRecord: ClusterImage._set_delegation_token,
    m.RemoveDelegationTokenRecord: ClusterImage._remove_delegation_token,
    m.ClearElrRecord: ClusterImage._clear_elr,
    m.RegisterControllerRecord: ClusterImage._set_controller,
    m.ZkMigrationStateRecord: ClusterImage._set_zk_migration_state,
    m.NoOpRecord: ClusterImage._nothing,
    m.AbortTransactionRecord: ClusterImage._nothing,  # what stood in the transaction has been left out: `controller.replay`
}
