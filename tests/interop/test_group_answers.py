"""The same conversations with the group coordinators of the embedded broker and of Apache Kafka: the answers are equal.

Each scene talks over connections of its own and notes every answer. Member ids, topic ids, ports and times differ from run to run, so they
are replaced by names in the order in which they appear.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import protocol as p
from kafkacore.protocol.schema import Struct
from kafkacore.protocol.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_stored,
    encode_stored,
)
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import fresh, until
from tests.kit.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {
    "group_min_session_timeout_ms": 500,
    "group_consumer_session_timeout_ms": 45_000,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_assignment_interval_ms": 0,
}
KAFKA_ONLY = {
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_min_assignment_interval_ms": 0,
}


class Talk:
    """A scene's connections, and what was answered."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wires: dict[str, Wire] = {}
        self.notes: list[Any] = []
        self.names: dict[Any, str] = {}
        self.group = fresh("g")
        self.topic = fresh("t")
        self.names |= {self.group: "GROUP", self.topic: "TOPIC"}
        self.ask(p.CreateTopicsRequest(topics=[p.CreatableTopic(name=self.topic, num_partitions=4, replication_factor=1)]), 7, note=False)
        topic = until(self._is_led, "the topic and the coordinator are there")
        self.topic_id = bytes(topic.topic_id)
        self.names[self.topic_id] = "TOPIC_ID"
        until(self._coordinator_knows_the_topic, "the coordinator has heard of the topic")

    def _is_led(self) -> Any:
        topic = self.ask(p.MetadataRequest(topics=[p.MetadataRequestTopic(name=self.topic)]), 12, note=False).topics[0]
        found = self.ask(p.FindCoordinatorRequest(coordinator_keys=[self.group]), 4, note=False).coordinators[0]
        fetch = p.OffsetFetchRequest(groups=[p.OffsetFetchRequestGroup(group_id=self.group, topics=None)])
        ready = not (topic.error_code or found.error_code or self.ask(fetch, 8, note=False).groups[0].error_code)
        return topic if ready and all(part.leader_id >= 0 for part in topic.partitions) else None

    def _coordinator_knows_the_topic(self) -> bool:
        """Kafka's coordinators hear of topics later than its metadata. A group that is gone at once shows it."""
        member, group = uuid.uuid4().hex, self.group + "-probe"
        wanted = {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        answer = self.ask(p.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=0, **wanted), 1, note=False)
        self.ask(p.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1), 1, note=False)
        return answer.error_code == 0 and bool(answer.assignment.topic_partitions)

    def wire(self, who: str) -> Wire:
        if who not in self.wires:
            self.wires[who] = Wire(self.address, timeout_s=90)
        return self.wires[who]

    def ask(self, request: Any, version: int, who: str = "main", note: bool = True) -> Any:
        answer = self.wire(who).ask(request, version)
        if note:
            self.note(answer)
        return answer

    def send(self, request: Any, version: int, who: str) -> Callable[[], Any]:
        """Sends; calling the result waits for the answer."""
        self.wire(who).send(request, version)

        def receive() -> Any:
            _, answer = self.wire(who).receive(type(request), version)
            self.note(answer)
            return answer

        return receive

    def note(self, answer: Any) -> None:
        member = getattr(answer, "member_id", "")
        if member and ("-" in member or isinstance(answer, p.JoinGroupResponse)):  # given by the broker
            self.names.setdefault(member, f"MEMBER{sum(name.startswith('MEMBER') for name in self.names.values())}")
        self.notes.append(self.plain(answer))

    def plain(self, value: Any) -> Any:
        if isinstance(value, Struct):
            fields = {name: self.plain(getattr(value, name)) for name in type(value).FIELDS if name not in ("throttle_time_ms",)}
            return {"": type(value).__name__} | fields
        if isinstance(value, list):
            plain = [self.plain(each) for each in value]
            return sorted(plain, key=repr) if plain and isinstance(plain[0], dict) else plain
        if isinstance(value, memoryview):
            value = bytes(value)
        if isinstance(value, str):
            for known, name in self.names.items():
                if isinstance(known, str):
                    value = value.replace(known, name)
            return value
        if isinstance(value, bytes):
            value = self.names.get(value, value.replace(self.topic.encode(), b"TOPIC") if value else value)
        return value

    def close(self) -> None:
        for wire in self.wires.values():
            wire.sock.close()

    # ---- requests

    def join(
        self, member_id: str = "", who: str = "main", version: int = 9, instance: str | None = None, **options: Any
    ) -> Callable[[], Any]:
        protocols = options.pop("protocols", {"range": encode_stored(ConsumerProtocolSubscription(topics=[self.topic]), 0)})
        request = p.JoinGroupRequest(
            **{"group_id": self.group, "session_timeout_ms": 45_000, "protocol_type": "consumer"}
            | ({"rebalance_timeout_ms": 60_000} if version else {})
            | ({"group_instance_id": instance} if version >= 5 else {})
            | options,
            member_id=member_id,
            protocols=[p.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols.items()],
        )
        return self.send(request, version, who)

    def sync(self, member_id: str, generation: int, given: dict[str, list[int]] | None = None, who: str = "main", **options: Any) -> Any:
        assignments = []
        for each, parts in (given or {}).items():
            partitions = [ConsumerProtocolTopicPartition(topic=self.topic, partitions=parts)]
            data = encode_stored(ConsumerProtocolAssignment(assigned_partitions=partitions), 0)
            self.names[data] = f"ASSIGNED{parts}"
            assignments.append(p.SyncGroupRequestAssignment(member_id=each, assignment=data))
        request = p.SyncGroupRequest(
            **{"group_id": self.group, "protocol_type": "consumer", "protocol_name": "range"} | options,
            generation_id=generation,
            member_id=member_id,
            assignments=assignments,
        )
        return self.send(request, 5, who)

    def heartbeat(self, member_id: str, generation: int, who: str = "main", **options: Any) -> int:
        request = p.HeartbeatRequest(**{"group_id": self.group} | options, generation_id=generation, member_id=member_id)
        code: int = self.ask(request, 4, who).error_code
        return code

    def leave(self, *members: tuple[str, str | None]) -> Any:
        identities = [p.MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        return self.ask(p.LeaveGroupRequest(group_id=self.group, members=identities), 5)

    def commit(
        self, version: int = 9, topic: str | None = None, partition: int = 0, member: str = "", epoch: int = -1, **options: Any
    ) -> Any:
        metadata = options.pop("metadata", "m")
        part = p.OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata=metadata)
        named: dict[str, Any] = {"topic_id": options.pop("topic_id", self.topic_id)} if version >= 10 else {"name": topic or self.topic}
        request = p.OffsetCommitRequest(
            **{"group_id": self.group} | options,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[p.OffsetCommitRequestTopic(**named, partitions=[part])],
        )
        return self.ask(request, version)

    def fetch(self, version: int = 9, topics: bool = True, **options: Any) -> Any:
        group_id = options.pop("group_id", self.group)
        if version < 8:
            old = [p.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0, 1])] if topics else None
            return self.ask(p.OffsetFetchRequest(group_id=group_id, topics=old), version)
        named: dict[str, Any] = {"topic_id": self.topic_id} if version >= 10 else {"name": self.topic}
        wanted = [p.OffsetFetchRequestTopics(**named, partition_indexes=[0, 1, 9])] if topics else None
        return self.ask(p.OffsetFetchRequest(groups=[p.OffsetFetchRequestGroup(group_id=group_id, topics=wanted, **options)]), version)

    def describe(self) -> None:
        for version in (5, 6):
            self.ask(p.DescribeGroupsRequest(groups=[self.group], include_authorized_operations=True), version)
        self.ask(p.ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True), 1)
        listed = self.ask(p.ListGroupsRequest(), 5, note=False)
        self.notes.append([self.plain(each) for each in listed.groups if each.group_id == self.group])

    def beat(self, member_id: str, epoch: int, version: int = 1, **options: Any) -> Any:
        joins = {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": [self.topic], "topic_partitions": []} if epoch == 0 else {}
        owned = options.pop("owned", None)
        if owned is not None:
            parts = p.ConsumerGroupHeartbeatTopicPartitions(topic_id=self.topic_id, partitions=owned)
            options["topic_partitions"] = [parts] if owned else []
        request = p.ConsumerGroupHeartbeatRequest(**{"group_id": self.group} | joins | options, member_id=member_id, member_epoch=epoch)
        answer = self.ask(request, version, note=False)
        self.note(answer)
        return answer

    def describe_epochs(self) -> None:
        """A consumer group but for its partitions, which assignors of equal quality may hand out differently."""
        (group,) = self.ask(p.ConsumerGroupDescribeRequest(group_ids=[self.group]), 1, note=False).groups
        members = sorted((each.member_epoch, each.instance_id or "", each.member_type) for each in group.members)
        has = sorted(_count(each.assignment) for each in group.members)
        is_to_have = sorted(_count(each.target_assignment) for each in group.members)
        self.notes.append((group.group_state, group.group_epoch, group.assignment_epoch, members, has, is_to_have))

    def describe_classic(self) -> None:
        """A group as DescribeGroups shows it, but for assignments."""
        (group,) = self.ask(p.DescribeGroupsRequest(groups=[self.group]), 5, note=False).groups
        members = sorted((self.plain(each.member_id), each.group_instance_id, each.client_id) for each in group.members)
        self.notes.append((group.error_code, group.group_state, group.protocol_type, group.protocol_data, members))

    def owning(self, partitions: list[int]) -> dict[str, bytes]:
        """The protocols of a member that has partitions."""
        owned = [ConsumerProtocolTopicPartition(topic=self.topic, partitions=partitions)]
        return {"range": encode_stored(ConsumerProtocolSubscription(topics=[self.topic], owned_partitions=owned), 1)}

    def sync_counting(self, member_id: str, generation: int) -> list[int]:
        """SyncGroup; notes how many partitions it gives, and returns them."""
        request = p.SyncGroupRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, protocol_type="consumer", protocol_name="range"
        )
        answer = self.ask(request, 5, note=False)
        partitions: list[int] = []
        if answer.assignment:
            assignment = decode_stored(ConsumerProtocolAssignment, answer.assignment)
            partitions = [partition for topic in assignment.assigned_partitions for partition in topic.partitions]
        self.notes.append((answer.error_code, answer.protocol_type, answer.protocol_name, bytes(answer.assignment[:2]), len(partitions)))
        return sorted(partitions)

    def beat_counting(self, member_id: str, epoch: int) -> None:
        """ConsumerGroupHeartbeat; notes how many partitions it gives."""
        request = p.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member_id, member_epoch=epoch)
        answer = self.ask(request, 1, note=False)
        given = None if answer.assignment is None else sum(len(each.partitions) for each in answer.assignment.topic_partitions)
        self.notes.append((answer.error_code, answer.member_epoch, given))


# ---- scenes


def simple(talk: Talk) -> None:
    """Commits from outside."""
    for version in range(2, 11):
        talk.commit(version)
    talk.commit(9, metadata="x" * 4096)
    talk.commit(9, metadata="x" * 4097)
    talk.commit(9, metadata=None)
    talk.commit(9, topic="nothing")
    talk.commit(9, partition=9)
    talk.commit(10, partition=9)
    for version in range(1, 11):
        talk.fetch(version)
    talk.fetch(9, topics=False)
    talk.fetch(10, topics=False)
    talk.describe()
    partitions = [p.OffsetDeleteRequestPartition(partition_index=each) for each in (0, 1, 9)]
    topics = [p.OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in (talk.topic, "nothing")]
    talk.ask(p.OffsetDeleteRequest(group_id=talk.group, topics=topics), 0)
    talk.fetch(9)
    talk.commit(9)
    talk.ask(p.DeleteGroupsRequest(groups_names=[talk.group, talk.group]), 2)
    talk.describe()


def two_members(talk: Talk) -> None:
    """A group's life: two members, rebalances, who may do what when."""
    first = talk.join()().member_id
    one = talk.join(first)()
    generation = one.generation_id
    talk.describe()
    talk.commit(9, member=first, epoch=generation)
    talk.sync(first, generation, {first: [0, 1, 2, 3]})()
    talk.describe()
    talk.heartbeat(first, generation)
    talk.heartbeat(first, generation + 1)
    talk.heartbeat("who", generation)
    talk.commit(9, member=first, epoch=generation)
    talk.commit(9, member=first, epoch=generation + 1)
    talk.commit(9, member="who", epoch=generation)
    talk.commit(9)
    talk.commit(2)
    talk.sync(first, generation)()
    talk.sync(first, generation + 1)()
    talk.sync(first, generation, protocol_name="other")()
    talk.sync("who", generation)()
    talk.join(protocol_type="connect")()
    talk.join(protocols={"other": b""})()
    talk.join("who")()
    second = talk.join(who="two")().member_id
    joining = talk.join(second, who="two")
    while talk.heartbeat(first, generation) == 0:
        talk.notes.pop()
    talk.describe()
    talk.sync(first, generation)()
    talk.commit(9, member=first, epoch=generation)
    rejoining = talk.join(first)
    one, two = rejoining(), joining()
    generation = one.generation_id
    assert two.generation_id == generation
    waiting = talk.sync(second, generation, who="two")
    talk.commit(9, member=first, epoch=generation)
    talk.heartbeat(first, generation)
    talk.sync(first, generation, {first: [0, 1], second: [2, 3]})()
    waiting()
    talk.describe()
    talk.join(second, who="two")()  # unchanged
    partitions = [p.OffsetDeleteRequestPartition(partition_index=0)]
    talk.ask(p.OffsetDeleteRequest(group_id=talk.group, topics=[p.OffsetDeleteRequestTopic(name=talk.topic, partitions=partitions)]), 0)
    talk.ask(p.DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.leave((second, None), ("who", None), ("", None), (first, "i"))
    talk.heartbeat(first, generation)
    talk.join(first)()
    talk.leave((first, None))
    talk.describe()
    talk.fetch(9)


def static_members(talk: Talk) -> None:
    """Instance ids: replaced, fenced, removed."""
    one = talk.join(instance="x")()
    first, generation = one.member_id, one.generation_id
    talk.sync(first, generation, {first: [0, 1, 2, 3]}, group_instance_id="x")()
    talk.describe()
    again = talk.join(instance="x")()
    second = again.member_id
    assert again.generation_id == generation
    talk.heartbeat(first, generation, group_instance_id="x")
    talk.heartbeat(second, generation, group_instance_id="x")
    talk.heartbeat(second, generation, group_instance_id="y")
    talk.sync(second, generation, group_instance_id="x")()
    talk.sync(first, generation, group_instance_id="x")()
    talk.commit(9, member=first, epoch=generation, group_instance_id="x")
    talk.commit(9, member=second, epoch=generation, group_instance_id="x")
    talk.join(first, instance="x")()
    old = talk.join(instance="x", version=8)()
    talk.sync(old.member_id, generation, group_instance_id="x")()
    changed = talk.join(instance="x", protocols={"range": b"\0\0\0\0\0\0\xff\xff\xff\xff"})()
    talk.notes.append(changed.generation_id - generation)
    talk.describe()
    talk.leave(("", "y"), ("who", "x"))
    talk.leave(("", "x"))
    talk.describe()


def consumer_group(talk: Talk) -> None:
    """KIP-848: joining, reconciling, epochs, commits, leaving."""
    talk.beat("", 0)
    talk.beat("a", 0, group_id="")
    talk.beat("a", 0, rebalance_timeout_ms=-1)
    talk.beat("a", 0, topic_partitions=None)
    talk.beat("a", 0, owned=[1])
    talk.beat("a", 0, subscribed_topic_names=None)
    talk.beat("a", 0, instance_id="")
    talk.beat("a", 0, rack_id="")
    talk.beat("a", -2)
    talk.beat("a", -3)
    talk.beat("a", 1)
    talk.beat("a", -1)
    talk.beat("a", 0, server_assignor="nobody")
    talk.beat("a", 0, subscribed_topic_names=None, subscribed_topic_regex="(")
    talk.describe()
    first = talk.beat("a", 0)
    epoch = first.member_epoch
    talk.describe()
    everything = [0, 1, 2, 3]
    talk.beat("a", epoch, owned=everything)
    talk.beat("a", epoch)
    talk.beat("a", epoch + 1)
    talk.beat("a", epoch - 1)
    talk.beat("who", epoch)
    talk.beat("a", 0)
    talk.commit(9, member="a", epoch=epoch)
    talk.commit(9, member="a", epoch=epoch + 1)
    talk.commit(9, member="a", epoch=epoch - 1)
    talk.commit(9, member="who", epoch=epoch)
    talk.commit(8, member="a", epoch=epoch)
    talk.commit(9)
    talk.fetch(9, member_id="a", member_epoch=epoch)
    talk.fetch(9, member_id="a", member_epoch=epoch + 1)
    talk.fetch(9, member_id="who", member_epoch=epoch)
    talk.fetch(9)
    talk.beat("b", 0)
    talk.describe_epochs()
    told = talk.beat("a", epoch, owned=everything)
    kept = sorted(told.assignment.topic_partitions[0].partitions)
    talk.beat("b", epoch + 1, owned=[])
    talk.beat("a", epoch, owned=everything)
    talk.commit(9, member="a", epoch=epoch)
    talk.beat("a", epoch, owned=kept)
    talk.beat("b", epoch + 1, owned=[])
    talk.commit(9, member="a", epoch=epoch, partition=kept[0])
    talk.commit(9, member="a", epoch=epoch, partition=next(each for each in everything if each not in kept))
    talk.ask(p.DeleteGroupsRequest(groups_names=[talk.group]), 2)
    partitions = [p.OffsetDeleteRequestPartition(partition_index=0)]
    talk.ask(p.OffsetDeleteRequest(group_id=talk.group, topics=[p.OffsetDeleteRequestTopic(name=talk.topic, partitions=partitions)]), 0)
    talk.beat("a", -1)
    talk.beat("b", -1)
    talk.describe()
    talk.fetch(9)
    talk.ask(p.DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.describe()


def static_consumers(talk: Talk) -> None:
    """KIP-848 with instance ids."""
    epoch = talk.beat("a", 0, instance_id="x").member_epoch
    talk.beat("b", 0, instance_id="x")
    talk.beat("b", epoch, instance_id="x")
    talk.beat("b", -1, instance_id="x")
    talk.beat("a", -1, instance_id="y")
    talk.beat("a", -2, instance_id="x")
    talk.describe_epochs()
    talk.beat("c", 0, instance_id="x")
    talk.describe_epochs()
    talk.beat("a", epoch, instance_id="x")
    talk.beat("c", -1, instance_id="x")
    talk.describe_epochs()


def room_for_each_other(talk: Talk) -> None:
    """Groups of one kind that become the other when they have no members."""
    talk.commit(9)
    talk.beat("a", 0)
    talk.fetch(9)
    talk.beat("a", -1)
    member = talk.join()().member_id
    generation = talk.join(member)().generation_id
    talk.sync(member, generation, {member: [0]})()
    talk.describe()
    talk.fetch(9)
    talk.leave((member, None))
    talk.beat("b", 0)
    talk.describe_epochs()
    talk.fetch(9)


def both_protocols(talk: Talk) -> None:
    """A classic group whose members move to the consumer protocol one by one, and back."""
    first = talk.join(who="one")().member_id
    generation = talk.join(first, who="one")().generation_id
    talk.sync(first, generation, {first: [0, 1, 2, 3]}, who="one")()
    epoch = talk.beat("a", 0).member_epoch
    talk.describe_epochs()
    talk.describe_classic()
    talk.heartbeat(first, generation)
    talk.heartbeat(first, generation + 9)
    talk.heartbeat("a", epoch)
    talk.heartbeat("who", epoch)
    talk.sync(first, generation)()
    talk.sync("a", epoch)()
    talk.commit(9, member=first, epoch=generation)
    talk.commit(8, member=first, epoch=generation)
    talk.commit(9, member=first, epoch=generation + 9)
    talk.fetch(9, member_id=first, member_epoch=generation + 9)
    talk.join(protocol_type="connect")()
    talk.join(protocols={"other": b"\0\0\0\0\0\0\xff\xff\xff\xff"})()
    # It joins again with what it has, is told what it may keep, and joins once more without the rest.
    told = talk.join(first, protocols=talk.owning([0, 1, 2, 3]))()
    kept = talk.sync_counting(first, told.generation_id)
    talk.heartbeat(first, told.generation_id)
    done = talk.join(first, protocols=talk.owning(kept))()
    assert talk.sync_counting(first, done.generation_id) == kept
    talk.heartbeat(first, done.generation_id)
    talk.beat_counting("a", epoch)
    talk.describe_epochs()
    second = talk.join(who="two")().member_id
    joined = talk.join(second, who="two")()
    talk.sync("who", 1)()
    talk.describe_epochs()
    talk.leave((second, None), ("who", None))
    talk.sync(second, joined.generation_id)()
    talk.describe_epochs()
    talk.beat("a", -1)
    talk.describe_classic()
    talk.heartbeat(first, done.generation_id)
    rejoined = talk.join(first)()
    assert talk.sync_counting(first, rejoined.generation_id) == []


SCENES = [simple, two_members, static_members, consumer_group, static_consumers, room_for_each_other, both_protocols]


@pytest.fixture(scope="module")
def apache() -> Iterator[KafkaServer]:
    with KafkaServer(**SETTINGS, **KAFKA_ONLY) as server:
        yield server


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=SETTINGS) as cluster:
        yield cluster


def _count(assignment: p.ConsumerGroupDescribeAssignment) -> int:
    return sum(len(topic.partitions) for topic in assignment.topic_partitions)


def play(address: str, scene: Callable[[Talk], None]) -> list[Any]:
    talk = Talk(address)
    try:
        scene(talk)
        return talk.notes
    finally:
        talk.close()


@pytest.mark.parametrize("scene", SCENES)
def test_the_answers_are_kafkas(scene: Callable[[Talk], None], apache: KafkaServer, embedded: EmbeddedCluster) -> None:
    theirs = play(apache.bootstrap_servers, scene)
    ours = play(embedded.bootstrap_servers, scene)
    for nth, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert our == their, f"answer {nth}"
