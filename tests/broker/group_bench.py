"""A broker's group coordinator without sockets or threads: requests through the wire format of their version, time moved by hand."""

import contextlib
import random
from collections import Counter

from controlling import broker_state, create_topic

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.handlers import SERVED
from kafkacore.broker.internal_topics import GROUP_TOPIC
from kafkacore.broker.state import Call
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.protocol.stored import ConsumerProtocolSubscription, encode_stored
from kafkacore.records import read_batches
from tests.kit.batches import T0


class Pending:
    """A request's answer, once it is there."""

    def __init__(self):
        self.response = None

    @property
    def waits(self):
        return self.response is None


def subscription(*topics):
    """What a classic consumer says it wants."""
    return encode_stored(ConsumerProtocolSubscription(topics=list(topics)), 0)


class GroupBench:
    """One broker that keeps all groups in one partition."""

    def __init__(self, **config):
        settings = {"offsets_topic_num_partitions": 1, "group_min_session_timeout_ms": 1} | config
        self.clock = ManualClock(wall_ms=T0)
        self.state = broker_state(BrokerConfig(**settings), self.clock)
        self.ask(p.FindCoordinatorRequest(key="g"), 1)

    # ---- requests

    def send(self, request, version, client_id="client"):
        frame = b"".join(bytes(part) for part in p.encode_request(request, version, 5, client_id))
        header, decoded = p.decode_request(memoryview(frame)[4:])
        pending = Pending()

        def respond(response):
            assert pending.waits, "answered twice"
            encoded = b"".join(bytes(part) for part in p.encode_response(response, version, 5))[4:]
            _, start = p.decode_response_header(type(response).API_KEY, version, encoded)
            pending.response = type(response).decode(version, encoded, start)

        call = Call(version, header.client_id, self.clock.now_ms(), self.clock.wall_ms(), respond, self._fail, "/127.0.0.1")
        result = SERVED[type(request).API_KEY].handler(self.state, call, decoded)
        if hasattr(result, "encode"):
            respond(result)
        groups = getattr(self.shard, "groups", {})  # none while another broker coordinates them
        for group in groups.values() if len(groups) < 100 else ():
            check_counts(group)
        return pending

    def ask(self, request, version, client_id="client"):
        pending = self.send(request, version, client_id)
        assert not pending.waits, f"no answer to {request}"
        return pending.response

    @staticmethod
    def _fail():
        raise AssertionError("a late answer failed")

    def advance(self, ms=0):
        """Lets time pass, in steps as small as the deadlines on the way."""
        end_ms = self.clock.now_ms() + ms
        while True:
            for each in self.state.clocked:
                each.advance_clock()
            deadlines = [deadline for each in self.state.clocked if (deadline := each.next_deadline_ms()) is not None]
            next_ms = min(deadlines, default=end_ms + 1)
            if next_ms > end_ms:
                self.clock.advance(end_ms - self.clock.now_ms())
                return
            self.clock.advance(max(next_ms - self.clock.now_ms(), 0))

    # ---- what is there

    def topic(self, name, partitions=1):
        create_topic(self.state.controller, name, partitions)
        return self.state.cluster.topics[name]

    @property
    def shard(self):
        found = []
        self.state.groups.runtime.read(0, lambda shard: shard, found.append)
        return found[0] if found else None

    def group(self, group_id="g"):
        return self.shard.groups.get(group_id)

    def reload(self):
        """The leadership goes and comes back: the state is what the log says, which knows all groups that are settled."""
        runtime = self.state.groups.runtime
        before = {group_id: snapshot(group) for group_id, group in getattr(self.shard, "groups", {}).items() if settled(group)}
        runtime.resigned(GROUP_TOPIC, 0)
        runtime.became_leader(GROUP_TOPIC, 0, 0)
        after = self.shard.groups
        assert {group_id: snapshot(after[group_id]) for group_id in before} == before

    def stored(self):
        """The records of __consumer_offsets: (key, value)."""
        log = self.state.replicas.partition(GROUP_TOPIC, 0).log
        views = log.read(log.start_offset, 1 << 24, log.end_offset, True)
        parts = [view.read() if hasattr(view, "read") else view for view in views]
        return [(record.key, record.value) for part in parts for batch in read_batches(part) for record in batch.records()]

    @contextlib.contextmanager
    def no_appends(self):
        """Too few replicas are in sync: nothing can be written."""
        replicas = self.state.replicas

        def refuse(*args, **options):
            raise errors.NotEnoughReplicas("2 must be in sync")

        before, replicas.append_internal = replicas.append_internal, refuse
        try:
            yield
        finally:
            replicas.append_internal = before

    # ---- classic members

    def join(
        self,
        member_id="",
        *,
        group="g",
        version=9,
        instance=None,
        protocols=(("range", b"r"),),
        kind="consumer",
        session_ms=10_000,
        rebalance_ms=30_000,
    ):
        return self.send(
            p.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms if version else -1,
                member_id=member_id,
                protocol_type=kind,
                protocols=[p.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
                **({"group_instance_id": instance} if version >= 5 else {}),
            ),
            version,
        )

    def known_id(self, **options):
        """A member id of a new dynamic member."""
        answer = self.join(**options).response
        assert answer.error_code == 79
        return answer.member_id

    def sync(self, member_id, generation, assignments=None, *, group="g", version=5, instance=None, **options):
        return self.send(
            p.SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                assignments=[p.SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in (assignments or {}).items()],
                **({"protocol_type": "consumer", "protocol_name": "range"} | options if version >= 5 else {}),
            ),
            version,
        )

    def heartbeat(self, member_id, generation, *, group="g", instance=None):
        return self.ask(
            p.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance), 4
        ).error_code

    def leave(self, *members, group="g"):
        identities = [p.MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        return self.ask(p.LeaveGroupRequest(group_id=group, members=identities), 5)

    def stable(self, *clients, **options):
        """A group in its first generation with its assignment: (generation, member ids, leader)."""
        ids = [self.known_id(**options) for _ in clients]
        waiting = [self.join(member_id, **options) for member_id in ids]
        self.advance()
        answers = [each.response for each in waiting]
        assert [answer.error_code for answer in answers] == [0] * len(ids)
        generation, leader = answers[0].generation_id, answers[0].leader
        syncs = [self.sync(member_id, generation) for member_id in ids if member_id != leader]
        self.sync(leader, generation, {member_id: member_id.encode() for member_id in ids})
        assert all(each.response.error_code == 0 for each in syncs)
        return generation, ids, leader

    # ---- offsets

    def commit(self, offsets, *, group="g", member="", generation=-1, instance=None, version=9, metadata="", retention_ms=-1):
        topics = {}
        for (topic, partition), offset in offsets.items():
            part = p.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
            topics.setdefault(topic, []).append(part)
        request = p.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[p.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
            **({"group_instance_id": instance} if version >= 7 else {}),
            **({"retention_time_ms": retention_ms} if 2 <= version <= 4 else {}),
        )
        answer = self.ask(request, version)
        return {(topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions}

    def fetch(self, *wanted, group="g", require_stable=False, member=None, epoch=-1):
        topics = None
        if wanted:
            names = dict.fromkeys(topic for topic, _ in wanted)
            topics = [
                p.OffsetFetchRequestTopics(name=name, partition_indexes=[index for topic, index in wanted if topic == name])
                for name in names
            ]
        request = p.OffsetFetchRequest(
            groups=[p.OffsetFetchRequestGroup(group_id=group, topics=topics, member_id=member, member_epoch=epoch)],
            require_stable=require_stable,
        )
        (answer,) = self.ask(request, 9).groups
        if answer.error_code:
            return answer.error_code
        return {
            (topic.name, part.partition_index): part.error_code or part.committed_offset
            for topic in answer.topics
            for part in topic.partitions
        }

    # ---- KIP-848 members

    def beat(
        self,
        member_id,
        epoch,
        *,
        group="g",
        topics=None,
        regex=None,
        owned=None,
        instance=None,
        assignor=None,
        rebalance_ms=None,
        version=1,
    ):
        """ConsumerGroupHeartbeat; owned is {topic id: partitions}."""
        joins = epoch == 0
        return self.ask(
            p.ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance,
                rebalance_timeout_ms=rebalance_ms if rebalance_ms is not None else 30_000 if joins else -1,
                subscribed_topic_names=topics if topics is not None or not joins or regex is not None else [],
                server_assignor=assignor,
                topic_partitions=[] if joins and owned is None else None if owned is None else owned_partitions(owned),
                **({"subscribed_topic_regex": regex} if version >= 1 else {}),
            ),
            version,
        )


def names_without_likeness(count):
    """Long names of topics that have no beginning in common, which a slow expression could know already."""
    chance = random.Random(1)
    return ["".join(chance.choices("ab", k=240)) for _ in range(count)]


class Unwalked(dict):
    """Members that a request may look up, but not walk."""

    def __iter__(self):
        raise AssertionError("this walks all members")

    keys = values = items = copy = __iter__


def check_counts(group):
    """What a group counts is what a walk over its members finds."""
    if isinstance(group.members, Unwalked):
        return
    members = list(group.members.values())
    if group.kind == "consumer":
        assert group.name_counts == Counter(name for member in members for name in member.topic_names)
        assert group.regex_counts == Counter(member.topic_regex for member in members if member.topic_regex)
        assert group.consumer_count == sum(not member.uses_classic_protocol for member in members)
    else:
        assert group.joined_count() == sum(member.awaiting_join is not None for member in members)
        known = Counter(name for member in members for name in member.protocols)
        names = [*known, "unknown"]
        if members and group.state_name != "Empty":
            supported = [group.supports_protocols(group.protocol_type, [name]) for name in names]
            assert supported == [known[name] == len(members) for name in names]


def settled(group):
    """Whether all of a group is in the log."""
    return group.kind == "consumer" or (group.state_name in ("Stable", "Empty") and not group.pending_joins)


def snapshot(group):
    """What of a group the log must give back."""
    if group.kind == "consumer":
        epochs = group.epoch, group.assignment_epoch, group.metadata_hash, group.assignment_wall_ms
        regexes = {regex: resolved.topics for regex, resolved in group.regexes.items()}  # a newer version of the same is not written
        return group.kind, group.state_name, epochs, group.members, group.target, group.static_members, regexes
    whole = group.protocol_type, group.protocol_name, group.generation, group.leader, group.static_members
    members = {
        each.member_id: (
            *(each.instance_id, each.client_id, each.client_host, each.rebalance_timeout_ms, each.session_timeout_ms),
            *(each.protocol_type, each.protocols[group.protocol_name], each.assignment),
        )
        for each in group.members.values()
    }
    return group.kind, group.state_name, whole, members


def owned_partitions(owned):
    return [
        p.ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in owned.items()
    ]


def assigned(response):
    """{topic id: partitions} of a heartbeat's answer; None if it says nothing."""
    if response.assignment is None:
        return None
    return {bytes(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions}
