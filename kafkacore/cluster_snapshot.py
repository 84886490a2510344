"""The cluster as one answer after another described it: nodes, topics, partitions; and what an answer makes of a topic that is known.

Rules:

1. Nothing here changes once it is made, so threads share it without a lock. What an answer left as it was stays the same object.
   [test_a_snapshot_stays_as_it_was_while_later_ones_share_its_topics, test_a_topic_that_an_answer_repeats_stays_the_same_object]
2. The partitions of a topic stay the bytes that came in until a caller looks at them (`TopicInfo.table`).
   [test_partitions_are_made_when_they_are_looked_at]
3. A leader epoch does not go back, unless the topic has a new topic id; rule 2 of metadata.py says when an older one counts all the same.
   [test_leader_epochs_never_go_back, test_a_topic_with_a_new_id_starts_over]
4. A few changed topics do not copy the mapping of all (`_Layered`). [test_topics_that_come_one_after_the_other_cost_what_they_are]

Source: Kafka's MetadataSnapshot, Cluster, Metadata.handleMetadataResponse; KIP-320, KIP-516.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkacore import _codec, errors
from kafkacore._codec import PartitionTable
from kafkacore.errors import KafkaError
from kafkacore.plurals import counted
from kafkacore.protocol.data import MetadataResponsePartition
from kafkacore.types import Node, TopicPartition

ZERO_ID = bytes(16)
_LAYER_MIN = 32  # topics that a layer may hold however few there are below it
_LEADER_NOT_AVAILABLE = 5
_REPLICA_NOT_AVAILABLE = 9  # a replica is down, the leader is fine


class PartitionInfo(NamedTuple):
    """One partition. `leader` is a node id, -1 for none; `leader_epoch` -1 when the broker did not say."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is of no use here
    leader: int
    leader_epoch: int = -1
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    offline: Sequence[int] = ()


_codec._bind_partitions(MetadataResponsePartition, PartitionInfo)


class TopicInfo:
    """One topic; never changes.

    Args:
        name: Its name.
        topic_id: 16 bytes, all zero when unknown.
        partitions: PartitionInfo in the order of their numbers, or what an answer said about them.
        is_internal: The broker's mark for topics of its own.
        error: Why the broker would not describe it.
    """

    __slots__ = ("_partitions", "error", "is_internal", "name", "table", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: bytes = ZERO_ID,
        partitions: list[PartitionInfo] | PartitionTable | None = None,
        is_internal: bool = False,
        error: KafkaError | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.error = error
        self.table: PartitionTable | None = None  # when all of it is what one answer said
        self._partitions: list[PartitionInfo] | None = None
        if isinstance(partitions, PartitionTable):
            self.table = partitions
        else:
            self._partitions = [] if partitions is None else partitions

    def __repr__(self) -> str:
        return f"TopicInfo({self.name!r}, {self.topic_id.hex()}, {counted(self.partition_count, 'partition')}, error={self.error!r})"

    def _replace(self, **changes: Any) -> TopicInfo:
        """A copy with some arguments changed, as of a named tuple."""
        same = {"name": self.name, "topic_id": self.topic_id, "is_internal": self.is_internal, "error": self.error}
        return TopicInfo(**{**same, "partitions": self._partitions if self.table is None else self.table, **changes})

    @property
    def partitions(self) -> list[PartitionInfo]:
        """The partitions in the order of their numbers."""
        found = self._partitions
        if found is None:
            assert self.table is not None
            found = self._partitions = self.table.infos()  # two threads may both make it: the lists are equal
        return found

    @property
    def partition_count(self) -> int:
        """How many partitions are known."""
        return len(self.partitions) if self.table is None else self.table.count

    def partition(self, index: int) -> PartitionInfo | None:
        """Returns the partition with that number."""
        partitions = self._partitions
        if partitions is None:
            partitions = self.partitions
        if 0 <= index < len(partitions) and partitions[index].index == index:
            return partitions[index]
        return next((info for info in partitions if info.index == index), None)  # a topic with holes in its numbering


_codec._bind_topic_info(TopicInfo)


class _Layered(Mapping[str, TopicInfo]):
    """Topics of which only the last changes were copied; never changes. Any further change makes a plain dict of it when there are more
    changes than the square root of all topics, so that N changes one after the other copy about N * sqrt(N) topics."""

    __slots__ = ("base", "recent")

    def __init__(self, base: dict[str, TopicInfo], recent: dict[str, TopicInfo]) -> None:
        self.base = base
        self.recent = recent

    def __getitem__(self, name: str) -> TopicInfo:
        found = self.recent.get(name)
        return self.base[name] if found is None else found

    def get(self, name: str, default: Any = None) -> Any:  # Mapping's own raises and catches for each unknown name
        found = self.recent.get(name)
        return self.base.get(name, default) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self.recent or name in self.base

    def __iter__(self) -> Iterator[str]:
        yield from self.base
        for name in self.recent:
            if name not in self.base:
                yield name

    def __len__(self) -> int:
        return len(self.base) + sum(name not in self.base for name in self.recent)


def changed_topics(old: Mapping[str, TopicInfo], changed: Mapping[str, TopicInfo]) -> Mapping[str, TopicInfo]:
    """The old topics, some of them replaced or added."""
    base, recent = (old.base, {**old.recent, **changed}) if isinstance(old, _Layered) else (old, dict(changed))
    if not isinstance(base, dict) or (len(recent) > _LAYER_MIN and len(recent) ** 2 > len(base)):
        return {**base, **recent}
    return _Layered(base, recent)


class ClusterSnapshot:
    """The cluster at one moment; never changes.

    Attributes:
        nodes: {id: Node}.
        controller: The controller's node, or None.
        cluster_id: Name of the cluster, or None.
        topics: {name: TopicInfo}.
        is_bootstrap: True while only the configured addresses are known.
    """

    __slots__ = ("_names", "cluster_id", "controller", "is_bootstrap", "node_list", "nodes", "topics")

    def __init__(
        self,
        nodes: Mapping[int, Node] | None = None,
        *,
        controller_id: int = -1,
        cluster_id: str | None = None,
        topics: Mapping[str, TopicInfo] | None = None,
        is_bootstrap: bool = False,
    ) -> None:
        self.nodes: Mapping[int, Node] = nodes or {}
        self.node_list: tuple[Node, ...] = tuple(self.nodes.values())
        self.controller: Node | None = None if controller_id < 0 else self.nodes.get(controller_id)  # entry points have ids below 0
        self.cluster_id = cluster_id
        self.topics: Mapping[str, TopicInfo] = topics or {}
        self.is_bootstrap = is_bootstrap
        self._names: dict[bytes, str] | None = None  # by topic id; made when it is first asked for

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """Returns what is known about a partition."""
        info = self.topics.get(tp[0])
        return None if info is None else info.partition(tp[1])

    def leader(self, tp: TopicPartition) -> Node | None:
        """Returns the node that leads a partition, None without a leader, or when it is not known."""
        found = self.partition(tp)
        return None if found is None else self.nodes.get(found.leader)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Returns the leader's epoch, -1 when not known."""
        found = self.partition(tp)
        return -1 if found is None else found.leader_epoch

    def partition_count(self, topic: str) -> int | None:
        """Returns how many partitions a topic has, None when it is not known."""
        info = self.topics.get(topic)
        return None if info is None else info.partition_count or None

    def available_partitions(self, topic: str) -> list[PartitionInfo]:
        """Returns a topic's partitions that have a leader."""
        info = self.topics.get(topic)
        if info is None:
            return []
        nodes = self.nodes
        return [found for found in info.partitions if found.leader in nodes]

    def topic_id(self, topic: str) -> bytes:
        """Returns a topic's id, 16 zero bytes when not known."""
        info = self.topics.get(topic)
        return ZERO_ID if info is None else info.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name that belongs to a topic id."""
        names = self._names
        if names is None:
            names = self._names = {info.topic_id: name for name, info in self.topics.items() if info.topic_id != ZERO_ID}
        return names.get(topic_id)


def take_topic(name: str, data: Any, old: TopicInfo | None) -> tuple[TopicInfo, bool, bool]:
    """Joins a topic of a response with what is known; also returns whether it should be asked for again soon, and whether it is older."""
    table = data.partitions
    if type(table) is not PartitionTable or data.error_code:
        return _merge_topic(name, data, data.partitions, old)
    topic_id = data.topic_id
    if old is not None and old.error is None and (old.topic_id == topic_id or ZERO_ID in (topic_id, old.topic_id)):
        known = old.table
        if known is None:
            if table.is_behind(old.partitions):
                return _merge_topic(name, data, table.structs(), old)
        elif table.same(known):
            if old.topic_id == topic_id and old.is_internal == data.is_internal:
                return old, table.incomplete, False
        elif table.is_behind(known):
            return _merge_topic(name, data, table.structs(), old)
    elif old is not None:
        return _merge_topic(name, data, table.structs(), old)
    return TopicInfo(name, topic_id, table, data.is_internal), table.incomplete, False


def _merge_topic(name: str, data: Any, parts: Iterable[Any], old: TopicInfo | None) -> tuple[TopicInfo, bool, bool]:
    """As `take_topic`, partition by partition."""
    topic_id = bytes(data.topic_id) if data.topic_id is not None else ZERO_ID
    if old is not None and topic_id != ZERO_ID and old.topic_id not in (ZERO_ID, topic_id):
        old = None  # deleted and created again: nothing known about the old one counts
    if data.error_code:
        error = errors.from_code(data.error_code, topic=name, api="Metadata")
        again = error.retriable
        if old is not None and again and old.partitions:
            return old._replace(error=error), True, False  # a broker that does not know it yet does not unmake it
        return TopicInfo(name, topic_id, [], bool(data.is_internal), error), again, False
    again = behind = False
    partitions = []
    for part in parts:
        known = None if old is None else old.partition(part.partition_index)
        epoch = part.leader_epoch
        if known is not None and epoch >= 0 and known.leader_epoch > epoch:
            partitions.append(known)  # the answer is older than what is known
            again = behind = True
            continue
        if part.error_code and part.error_code != _REPLICA_NOT_AVAILABLE:
            again = True
        leader = part.leader_id
        if part.error_code == _LEADER_NOT_AVAILABLE or leader < 0:
            leader = -1
            again = True
        partitions.append(
            PartitionInfo(part.partition_index, leader, epoch, part.replica_nodes, part.isr_nodes, part.offline_replicas or ())
        )
    partitions.sort(key=_index)
    return TopicInfo(name, topic_id, partitions, bool(data.is_internal), None), again, behind


def with_leaders(info: TopicInfo, changed: Mapping[int, PartitionInfo]) -> TopicInfo:
    """The topic with some of its partitions replaced."""
    partitions = info.partitions.copy()
    for index, part in changed.items():
        if index < len(partitions) and partitions[index].index == index:
            partitions[index] = part
        else:  # a topic with holes in its numbering
            partitions = [changed.get(each.index, each) for each in partitions]
            break
    return info._replace(partitions=partitions)


def _index(part: PartitionInfo) -> int:
    return part.index


def same_leaders(new: Mapping[str, TopicInfo], old: Mapping[str, TopicInfo]) -> bool:
    """True when two views lead every request to the same place (replica sets and errors do not matter here)."""
    if new.keys() != old.keys():
        return False
    for name, info in new.items():
        before = old[name]
        if info is before:
            continue
        if info.topic_id != before.topic_id or info.partition_count != before.partition_count:
            return False
        for a, b in zip(info.partitions, before.partitions, strict=True):
            if a.leader != b.leader or a.leader_epoch != b.leader_epoch:
                return False
    return True
