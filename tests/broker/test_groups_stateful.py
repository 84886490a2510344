"""Groups under any order of events: clients that join, go, die and come back, topics that change, time, and coordinators that move.

What must hold, whatever happens: a partition has at most one owner among a group's members; generations and epochs only rise; no request is
answered twice; and the log alone gives the same group. In the end, when everybody behaves, everything is assigned.
"""

import pytest
from controlling import create_partitions
from group_bench import GroupBench, assigned, check_counts
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kafkacore.errors import Code
from kafkacore.protocol.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_stored,
    encode_stored,
)

SESSION_MS, REBALANCE_MS = 3_000, 5_000
LOST = {Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.FENCED_INSTANCE_ID, Code.ILLEGAL_GENERATION, Code.GROUP_ID_NOT_FOUND}


class ConsumerClient:
    """A member of a consumer group that does what its protocol says, at its own pace."""

    def __init__(self, member_id, instance):
        self.member_id, self.instance = member_id, instance
        self.epoch, self.owned, self.told = 0, set(), set()
        self.topics = ["a"]
        self.send_topics = True

    def beat(self, bench, ids):
        """The next heartbeat, with topic ids by name; whether it changed anything."""
        joins, owned = self.epoch == 0, {}
        for name, partition in self.owned:
            owned.setdefault(ids[name], set()).add(partition)
        answer = bench.beat(
            self.member_id,
            self.epoch,
            topics=self.topics if joins or self.send_topics else None,
            owned=None if joins else owned,
            instance=self.instance,
            rebalance_ms=REBALANCE_MS if joins else None,
        )
        if answer.error_code:
            assert answer.error_code in LOST | ({Code.UNRELEASED_INSTANCE_ID} if self.instance else set()), answer
            self.epoch, self.owned, self.told = 0, set(), set()  # abandon everything; the next heartbeat joins
            return True
        assert answer.member_epoch >= self.epoch
        changed = self.send_topics or answer.member_epoch != self.epoch
        self.epoch, self.send_topics = answer.member_epoch, False
        if answer.assignment is not None:
            names = {topic_id: name for name, topic_id in ids.items()}
            now = {(names[topic_id], partition) for topic_id, parts in assigned(answer).items() for partition in parts}
            changed = changed or now != self.told
            self.told = now
            self.owned |= now  # what is to go goes later, by let_go
        return changed

    def let_go(self):
        """It has finished with what it was told to give up."""
        self.owned &= self.told


class ConsumerGroups(RuleBasedStateMachine):
    members = Bundle("members")

    def __init__(self):
        super().__init__()
        self.bench = GroupBench(group_consumer_session_timeout_ms=SESSION_MS)
        self.sizes = {"a": 4}
        self.ids = {"a": self.bench.topic("a", 4).topic_id}
        self.clients = {}
        self.serial = 0
        self.epoch = 0

    # ---- what happens

    @rule(target=members, instance=st.sampled_from([None, None, "x", "y"]), topics=st.sets(st.sampled_from("abc"), min_size=1))
    def start(self, instance, topics):
        if len(self.clients) >= 5 or (instance is not None and any(each.instance == instance for each in self.clients.values())):
            return multiple()
        self.serial += 1
        client = self.clients[f"m{self.serial}"] = ConsumerClient(f"m{self.serial}", instance)
        client.topics = sorted(topics)
        self.beat(client)
        return client.member_id

    @rule(member_id=members)
    def heartbeat(self, member_id):
        if member_id in self.clients:
            self.beat(self.clients[member_id])

    @rule(member_id=members)
    def let_go(self, member_id):
        if member_id in self.clients:
            self.clients[member_id].let_go()

    @rule(member_id=members, topics=st.sets(st.sampled_from("abc"), min_size=1))
    def subscribe(self, member_id, topics):
        if member_id in self.clients:
            self.clients[member_id].topics = sorted(topics)
            self.clients[member_id].send_topics = True

    @rule(member_id=consumes(members))
    def leave(self, member_id):
        client = self.clients.pop(member_id, None)
        if client is not None and client.epoch > 0:
            self.bench.beat(member_id, -1, instance=client.instance)

    @rule(member_id=consumes(members))
    def die(self, member_id):
        self.clients.pop(member_id, None)

    @rule(member_id=consumes(members), target=members)
    def restart(self, member_id):
        """A static member goes for a moment."""
        client = self.clients.pop(member_id, None)
        if client is None:
            return multiple()
        if client.instance is None or client.epoch <= 0:
            self.clients[member_id] = client
            return member_id
        self.bench.beat(member_id, -2, instance=client.instance)
        self.serial += 1
        again = self.clients[f"m{self.serial}"] = ConsumerClient(f"m{self.serial}", client.instance)
        again.topics = client.topics
        self.beat(again)
        return again.member_id

    @rule(ms=st.sampled_from([100, 1_000, 2_000]))
    def time_passes(self, ms):
        self.bench.advance(ms)

    @rule(name=st.sampled_from("abc"))
    def grow(self, name):
        size = self.sizes.get(name, 0)
        if size == 0:
            self.ids[name] = self.bench.topic(name, 2).topic_id
            self.sizes[name] = 2
        elif size < 6:
            create_partitions(self.bench.state.controller, name, size + 1)
            self.sizes[name] = size + 1

    @rule()
    def coordinator_moves(self):
        self.bench.reload()

    def beat(self, client):
        return client.beat(self.bench, self.ids)

    # ---- what holds

    @invariant()
    def one_owner_each(self):
        group = self.bench.group()
        members = {} if group is None or group.kind != "consumer" else group.members
        owners = {}
        for client in self.clients.values():
            if client.member_id not in members:
                continue  # fenced; it will learn
            for at in client.owned:
                assert at not in owners, f"{at} is owned by {owners[at]} and {client.member_id}"
                owners[at] = client.member_id

    @invariant()
    def counts_are_right(self):
        if self.bench.group() is not None:
            check_counts(self.bench.group())

    @invariant()
    def epochs_rise(self):
        group = self.bench.group()
        if group is not None:
            assert group.epoch >= self.epoch
            assert group.assignment_epoch <= group.epoch
            assert all(member.epoch <= group.assignment_epoch for member in group.members.values())
            self.epoch = group.epoch

    def teardown(self):
        """Everybody behaves from now on: the group settles, and each partition somebody wants has one owner."""
        quiet = 0
        for _ in range(60):
            self.bench.advance(100)  # the dead end with their sessions
            busy = False
            for client in self.clients.values():
                client.let_go()
                busy |= self.beat(client)
                client.let_go()
            quiet = 0 if busy else quiet + 1
        assert quiet > 3, "it does not settle"
        names = {name for client in self.clients.values() for name in client.topics}
        wanted = {(name, partition) for name in names for partition in range(self.sizes.get(name, 0))}
        owned = [at for client in self.clients.values() for at in client.owned]
        assert len(owned) == len(set(owned)) and set(owned) == wanted
        if self.clients:
            assert self.bench.group().state_name == "Stable"


TestConsumerGroups = pytest.mark.slow(ConsumerGroups.TestCase)
TestConsumerGroups.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


PARTITIONS = 8


def leaders_assignment(partitions):
    """What a leader gives a member."""
    topics = [ConsumerProtocolTopicPartition(topic="a", partitions=list(partitions))]
    return encode_stored(ConsumerProtocolAssignment(assigned_partitions=topics), 1)


class ClassicClient:
    """A member of a classic group."""

    def __init__(self, instance):
        self.instance = instance
        self.member_id, self.generation = "", -1
        self.joining = self.syncing = None
        self.owned = frozenset()
        self.wish = b"0"


class ClassicGroups(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self):
        super().__init__()
        self.bench = GroupBench(group_consumer_session_timeout_ms=SESSION_MS)
        self.topic_id = self.bench.topic("a", PARTITIONS).topic_id
        self.alive = {}
        self.serial = 0
        self.generation = self.written = 0
        self.empty_kinds = set()

    @rule(target=clients, instance=st.sampled_from([None, None, "x", "y"]))
    def start(self, instance):
        if len(self.alive) >= 4 or (instance is not None and any(each.instance == instance for each in self.alive.values())):
            return multiple()
        self.serial += 1
        self.alive[self.serial] = ClassicClient(instance)
        self.go_on(self.serial)
        return self.serial

    @rule(client=clients)
    def go_on(self, client):
        self.proceed(client)

    def proceed(self, client):
        """A client's next request, as its protocol says; whether that changed anything."""
        client = self.alive.get(client)
        if client is None:
            return False
        if client.joining is None and client.syncing is None:
            if client.generation < 0:
                return self.join(client)
            answer = self.bench.heartbeat(client.member_id, client.generation, instance=client.instance)
            if answer == Code.REBALANCE_IN_PROGRESS:
                client.owned = frozenset()  # an eager consumer gives everything up and joins again
                return self.join(client)
            if answer:
                assert answer in LOST, answer
                return self.lose(client)
            return False
        return self.look(client)

    @rule(client=clients)
    def change_mind(self, client):
        client = self.alive.get(client)
        if client is not None and client.joining is None and client.syncing is None and client.generation >= 0:
            client.wish = b"%d" % (int(client.wish) + 1)
            client.owned = frozenset()
            self.join(client)

    def join(self, client):
        options = {"instance": client.instance, "session_ms": SESSION_MS, "rebalance_ms": REBALANCE_MS}
        owned = [ConsumerProtocolTopicPartition(topic="a", partitions=sorted(client.owned))]
        wish = ConsumerProtocolSubscription(topics=["a"], user_data=client.wish, owned_partitions=owned)
        client.joining = self.bench.join(client.member_id, protocols=(("range", encode_stored(wish, 1)),), **options)
        return self.look(client) or True

    def lose(self, client):
        client.member_id, client.generation, client.owned = "", -1, frozenset()
        client.joining = client.syncing = None
        return True

    def look(self, client):
        """Goes on with the answer to what it waits for, if it is there."""
        if client.joining is not None:
            if client.joining.waits:
                return False
            answer, client.joining = client.joining.response, None
            if answer.error_code == Code.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
                return self.join(client)
            if answer.error_code in (Code.NOT_COORDINATOR, Code.REBALANCE_IN_PROGRESS):
                return self.join(client)
            if answer.error_code:
                assert answer.error_code in LOST, answer
                return self.lose(client)
            client.member_id, client.generation = answer.member_id, answer.generation_id
            assignments = {}
            if answer.leader == client.member_id and answer.members and not answer.skip_assignment:
                names = sorted(each.member_id for each in answer.members)
                assignments = {name: leaders_assignment(range(nth, PARTITIONS, len(names))) for nth, name in enumerate(names)}
            client.syncing = self.bench.sync(client.member_id, client.generation, assignments, instance=client.instance)
        if client.syncing is not None and not client.syncing.waits:
            answer, client.syncing = client.syncing.response, None
            if answer.error_code in (Code.REBALANCE_IN_PROGRESS, Code.NOT_COORDINATOR):
                return self.join(client)
            if answer.error_code:
                assert answer.error_code in LOST, answer
                return self.lose(client)
            found = decode_stored(ConsumerProtocolAssignment, answer.assignment).assigned_partitions if answer.assignment else []
            client.owned = frozenset(partition for topic in found for partition in topic.partitions)
            return True
        return False

    @rule(client=consumes(clients))
    def leave(self, client):
        client = self.alive.pop(client, None)
        if client is not None and client.member_id:
            self.bench.leave((client.member_id, client.instance))

    @rule(client=consumes(clients))
    def die(self, client):
        self.alive.pop(client, None)

    @rule(client=clients)
    def restart(self, client):
        """A static member comes back without its id; what it waited for is nobody's any more."""
        before = self.alive.get(client)
        if before is not None and before.instance is not None:
            self.alive[client] = ClassicClient(before.instance)
            self.go_on(client)

    @rule(ms=st.sampled_from([0, 100, 1_000, 2_000]))
    def time_passes(self, ms):
        self.bench.advance(ms)

    @rule()
    def coordinator_moves(self):
        self.bench.reload()
        self.generation = self.written  # a generation is written with its assignment; until then it is forgotten with the coordinator

    @invariant()
    def one_owner_each(self):
        self.owners()

    def owners(self):
        """The owner of each partition among the members that are up to date."""
        group = self.bench.group()
        owners = {}
        for client in self.alive.values():
            if group is None or client.member_id not in group.members or client.generation != self.generation_of(group, client):
                continue
            for partition in client.owned:
                assert partition not in owners, f"{partition} is owned by {owners[partition]} and {client.member_id}"
                owners[partition] = client.member_id
        return owners

    @staticmethod
    def generation_of(group, client):
        return group.generation if group.kind == "classic" else group.members[client.member_id].epoch

    @invariant()
    def generations_rise(self):
        group = self.bench.group()
        if group is not None:
            generation = group.generation if group.kind == "classic" else group.epoch
            if group.kind not in self.empty_kinds and self.empty_kinds:
                self.generation = self.written = 0  # a group without members made room for a new one of the other kind
            self.empty_kinds = set() if group.members else {group.kind}
            assert generation >= self.generation
            self.generation = generation
            if group.kind == "consumer":
                self.written = generation
            elif group.state_name in ("Stable", "Empty"):
                self.written = generation

    def teardown(self):
        quiet = 0
        for _ in range(120):
            self.bench.advance(100)
            quiet = 0 if sum(bool(self.proceed(each)) for each in list(self.alive)) else quiet + 1
        assert quiet > 3, "it does not settle"
        owned = [partition for client in self.alive.values() for partition in client.owned]
        assert sorted(owned) == (list(range(PARTITIONS)) if self.alive else [])


TestClassicGroups = pytest.mark.slow(ClassicGroups.TestCase)
TestClassicGroups.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class MixedGroups(ClassicGroups):
    """Classic members and members of the consumer protocol in one group, which changes from one kind to the other and back."""

    consumers = Bundle("consumers")

    def __init__(self):
        super().__init__()
        self.modern = {}

    @rule(target=consumers)
    def start_consumer(self):
        if len(self.modern) >= 3:
            return multiple()
        self.serial += 1
        client = self.modern[f"m{self.serial}"] = ConsumerClient(f"m{self.serial}", None)
        self.beat(client)
        return client.member_id

    @rule(member_id=consumers)
    def heartbeat(self, member_id):
        if member_id in self.modern:
            self.beat(self.modern[member_id])

    @rule(member_id=consumers)
    def let_go(self, member_id):
        if member_id in self.modern:
            self.modern[member_id].let_go()

    @rule(member_id=consumes(consumers))
    def leave_consumer(self, member_id):
        client = self.modern.pop(member_id, None)
        if client is not None and client.epoch > 0:
            self.bench.beat(member_id, -1)

    @rule(member_id=consumes(consumers))
    def die_consumer(self, member_id):
        self.modern.pop(member_id, None)

    def beat(self, client):
        return client.beat(self.bench, {"a": self.topic_id})

    @invariant()
    def one_owner_each_in_both(self):
        group = self.bench.group()
        owners = self.owners()
        if group is None or group.kind != "consumer":
            return
        for client in self.modern.values():
            if client.member_id in group.members:
                for _, partition in client.owned:
                    assert partition not in owners, f"{partition} is owned by {owners[partition]} and {client.member_id}"
                    owners[partition] = client.member_id

    def teardown(self):
        quiet = 0
        for _ in range(200):
            self.bench.advance(100)
            busy = sum(bool(self.proceed(each)) for each in list(self.alive))
            for client in self.modern.values():
                client.let_go()
                busy += bool(self.beat(client))
                client.let_go()
            quiet = 0 if busy else quiet + 1
        assert quiet > 3, "it does not settle"
        owned = [partition for client in self.alive.values() for partition in client.owned]
        owned += [partition for client in self.modern.values() for _, partition in client.owned]
        assert sorted(owned) == (list(range(PARTITIONS)) if self.alive or self.modern else [])
        if self.alive or self.modern:
            assert (self.bench.group().kind, self.bench.group().state_name) == ("consumer" if self.modern else "classic", "Stable")


TestMixedGroups = pytest.mark.slow(MixedGroups.TestCase)
TestMixedGroups.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
