"""Kafka's assignors: what holds for any group, and small groups by hand."""

from __future__ import annotations

import gc
import itertools
import random
import zlib

import pytest
from groups_of_members import Group, make_cluster, make_group, partitions_by_member
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import PartitionAssignor, RebalanceProtocol, errors
from kafkacore._codec import name_partitions, places_of
from kafkacore.consumer.group import balance, sticky
from kafkacore.consumer.group.assignor import (
    MemberAssignment,
    MemberSubscription,
    check_assignment,
    decode_subscription,
    encode_subscription,
)
from kafkacore.consumer.group.assignors import RangeAssignor, RoundRobinAssignor, make_assignors
from kafkacore.consumer.group.sticky import CooperativeStickyAssignor, StickyAssignor
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.types import ConsumerGroupMetadata, Node, TopicPartition
from tests.kit.groups import Whole
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ALL = [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]
STICKY = [StickyAssignor, CooperativeStickyAssignor]
seeds = st.integers(0, 2**32)


def joining(kind: type[PartitionAssignor], subscription: MemberSubscription, owned, generation: int) -> MemberSubscription:
    """The subscription of a member that has these partitions since a generation, as its assignor writes it."""
    assignor = kind()
    if generation >= 0:
        assignor.on_assignment(MemberAssignment(tuple(owned)), ConsumerGroupMetadata("g", generation))
    user_data = assignor.subscription_user_data(frozenset(subscription.topics))
    cooperative = RebalanceProtocol.COOPERATIVE in kind.supported_protocols
    return subscription._replace(
        user_data=user_data, owned_partitions=tuple(owned) if cooperative else (), generation_id=generation if cooperative else -1
    )


def random_owners(rng: random.Random, group: Group, share: float = 0.7) -> dict[str, list[TopicPartition]]:
    owned: dict[str, list[TopicPartition]] = {member: [] for member in group.subscriptions}
    for partition in group.partitions:
        if rng.random() < share:
            owned[rng.choice([*owned])].append(partition)
    return owned


def with_owners(kind: type[PartitionAssignor], group: Group, owned) -> Group:
    return group._replace(subscriptions={m: joining(kind, s, owned[m], 1) for m, s in group.subscriptions.items()})


of_any = Reached("members want different topics", "a member gets nothing", "racks matter")


@each_row("kind", ALL)
@of_any.by
@given(seeds, st.booleans())
def test_every_partition_goes_to_one_member_that_wants_it(kind, seed, racks):
    rng = random.Random(seed)
    group = make_group(rng, racks=racks)
    of_any("members want different topics", len({s.topics for s in group.subscriptions.values()}) > 1)
    of_any("racks matter", group.racks_matter)
    found = partitions_by_member(kind().assign(group.cluster, group.subscriptions))
    of_any("a member gets nothing", not all(found.values()))
    assert found.keys() == group.subscriptions.keys()
    assert sorted(tp for mine in found.values() for tp in mine) == group.partitions
    assert all(tp.topic in group.subscriptions[member].topics for member, mine in found.items() for tp in mine)


@pytest.mark.parametrize("kind", [StickyAssignor, Whole])
@given(seeds, st.booleans())
def test_sticky_cannot_be_balanced_further_and_assigns_all(kind, seed, racks):
    rng = random.Random(seed)
    group = make_group(rng, racks=racks)
    group = with_owners(kind, group, random_owners(rng, group))
    found = partitions_by_member(kind().assign(group.cluster, group.subscriptions))
    assert sorted(tp for mine in found.values() for tp in mine) == group.partitions
    for mine in found.values():
        for tp in mine:
            for other, subscription in group.subscriptions.items():
                assert tp.topic not in subscription.topics or len(found[other]) >= len(mine) - 1


of_best = Reached("something moves", "all stays", "some have more than others")


@pytest.mark.parametrize("kind", [StickyAssignor, Whole])
@of_best.by
@settings(max_examples=60, deadline=None)
@given(seeds)
def test_sticky_moves_the_least_of_all_assignments_as_balanced(kind, seed):
    rng = random.Random(seed)
    group = make_group(rng, members=3, topics=3, partitions=4, total=7)
    owned = random_owners(rng, group)
    group = with_owners(kind, group, owned)
    found = partitions_by_member(kind().assign(group.cluster, group.subscriptions))
    worth = group.worth(found, owned)
    of_best("something moves", worth.moved)
    of_best("all stays", not worth.moved)
    of_best("some have more than others", worth.unbalanced)
    assert worth == group.best(owned)


with_racks = Reached("something moves", "all stays", "something is far")


@with_racks.by
@settings(max_examples=60, deadline=None)
@given(seeds)
def test_racks_come_after_balance_and_before_what_members_have(seed):
    rng = random.Random(seed)
    group = make_group(rng, members=3, topics=3, partitions=4, total=7, racks=True)
    owned = random_owners(rng, group)
    group = with_owners(Whole, group, owned)
    found = partitions_by_member(Whole().assign(group.cluster, group.subscriptions))
    worth = group.worth(found, owned)
    with_racks("something moves", worth.moved)
    with_racks("all stays", not worth.moved)
    with_racks("something is far", worth.far)
    assert worth == group.best(owned)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_sharing_out_between_groups_of_members_ends_as_sharing_out_between_members(seed):
    """Many members of few racks and few sets of topics: the short cut is taken, and what comes out is worth as much as without it."""
    rng = random.Random(seed)
    few = make_group(rng, members=4, topics=3, partitions=60, racks=True, static=False)
    members = rng.randint(50, 90)  # a group of members alike has 8 at least, also when a third has left
    kinds = [*few.subscriptions.values()]
    group = few._replace(subscriptions={f"m{at:03}": rng.choice(kinds) for at in range(members)})
    owned: dict[str, list[TopicPartition]] = {member: [] for member in group.subscriptions}
    if rng.random() < 0.5:
        owned = {**owned, **partitions_by_member(Whole().assign(group.cluster, group.subscriptions))}
        leavers = {*rng.sample([*owned], members // 3)}
        owned = {member: mine for member, mine in owned.items() if member not in leavers}
        group = group._replace(subscriptions={m: s for m, s in group.subscriptions.items() if m not in leavers})
    group = with_owners(Whole, group, owned)
    taken = []
    short_cut = balance._Flow._fill_groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balance._Flow, "_fill_groups", lambda self, free: taken.append(short_cut(self, free)) or taken[-1])
        found = partitions_by_member(Whole().assign(group.cluster, group.subscriptions))
        patch.setattr(balance._Flow, "_fill_groups", lambda self, free: False)
        general = partitions_by_member(Whole().assign(group.cluster, group.subscriptions))
    assert all(taken)
    assert sorted(tp for mine in found.values() for tp in mine) == group.partitions
    assert group.worth(found, owned) == group.worth(general, owned)


def random_balance(seed: int, members: int) -> list[list[int]]:
    """What a random group of so many members comes to; a large one has a few groups of members alike."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 6) if members < 10 else rng.randint(20, 60) for _ in range(4)]
    places = range(members)
    wanted = [tuple(sorted(rng.sample(places, rng.randint(1, members)))) for _ in sizes]
    if members >= 10:
        wanted = [tuple(places[: members // 2]), tuple(places[members // 3 :]), tuple(places), tuple(places)]
    owned: list[list[int]] = [[] for _ in places]
    for partition in range(sum(sizes)):
        if rng.random() < 0.6:
            owned[rng.choice(places)].append(partition)
    member_racks = [rng.choice(("a", "b", None)) for _ in places]
    partition_racks = [frozenset(rng.sample("abc", rng.randint(1, 2))) for _ in range(sum(sizes))] if seed % 2 else []
    return balance.balance(wanted, [sum(sizes[:at]) for at in range(4)], sum(sizes), owned, member_racks, partition_racks)


@pytest.mark.parametrize(("members", "seeds", "expected"), [(5, 50, 2864211846), (48, 4, 76812870)])
def test_the_same_group_is_assigned_in_the_same_way_by_each_release(members, seeds, expected):
    """Members of several releases take turns to lead: another choice among equally good ones would move partitions each time."""
    assert zlib.crc32(repr([random_balance(seed, members) for seed in range(seeds)]).encode()) == expected


in_steps = Reached("given up first", "handed out at once", "some had nothing")


@in_steps.by
@given(seeds, st.booleans())
def test_cooperative_hands_out_nothing_that_another_still_has(seed, racks):
    rng = random.Random(seed)
    group = make_group(rng, racks=racks)
    owned = random_owners(rng, group)
    group = with_owners(CooperativeStickyAssignor, group, owned)
    owner = {tp: member for member, mine in owned.items() for tp in mine}
    for _ in range(2):
        found = partitions_by_member(CooperativeStickyAssignor().assign(group.cluster, group.subscriptions))
        handed = sum(map(len, found.values()))
        in_steps("given up first", handed < len(group.partitions))
        in_steps("handed out at once", handed == len(group.partitions))
        in_steps("some had nothing", not all(owned.values()))
        assert all(owner.get(tp, member) == member for member, mine in found.items() for tp in mine)
        owner = {tp: member for member, mine in found.items() for tp in mine}
        group = with_owners(CooperativeStickyAssignor, group, found)
    assert sorted(owner) == group.partitions  # the second assignment hands out what was given up after the first
    third = partitions_by_member(CooperativeStickyAssignor().assign(group.cluster, group.subscriptions))
    assert {member: {*mine} for member, mine in third.items()} == {member: {*mine} for member, mine in found.items()}


@each_row("kind", STICKY)
@each_row(
    ("generations", "expected"),
    [
        ((4, 4, 5), {"a": "14", "b": "25", "c": "03"}),
        ((5, 5, 4), {"a": "10", "b": "24", "c": "35"}),
        ((5, 4, 4), {"a": "01", "b": "24", "c": "35"}),
    ],
)
def test_the_newest_generation_has_a_partition_that_several_claim(kind, generations, expected):
    """If it is that of two, none of them has it, and a cooperative assignor leaves it out at first."""
    wants = MemberSubscription(("t",))
    tps = [TopicPartition("t", i) for i in range(6)]
    claims = {"a": (tps[0], tps[1], tps[0]), "b": (tps[0], tps[2]), "c": (tps[0], tps[3])}
    group = {name: joining(kind, wants, claims[name], generation) for name, generation in zip(claims, generations, strict=True)}
    found = partitions_by_member(kind().assign(make_cluster(random.Random(1), {"t": 6}), group))
    left_out = "0" if kind is CooperativeStickyAssignor and generations == (5, 5, 4) else ""
    assert {name: "".join(str(tp.partition) for tp in mine) for name, mine in found.items()} == {
        name: mine.replace(left_out, "") for name, mine in expected.items()
    }


@each_row("kind", [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor])
@each_row("topics", [(), ("nothing-of-it",)])
@each_row("members", [0, 1, 3])
def test_a_group_that_subscribes_to_nothing_that_exists_gets_nothing(kind, topics, members):
    """All members have a pattern that matches nothing so far."""
    subscriptions = {f"m{i}": MemberSubscription(topics) for i in range(members)}
    assert kind().assign(make_cluster(random.Random(0), {"t": 3}), subscriptions) == dict.fromkeys(subscriptions, MemberAssignment(()))


@given(st.integers(0, 50), st.integers(1, 12))
def test_a_new_group_is_dealt_to_as_one_whose_members_own_nothing(partitions, members):
    tps = [TopicPartition("t", i) for i in range(partitions)]
    general = sticky._Constrained(tps, [[] for _ in range(members)]).assign()
    assert [[tps[p] for p in mine] for mine in general] == sticky._deal_to_all(tps, members)


@pytest.mark.parametrize("kind", STICKY)
def test_a_topic_with_holes_in_its_numbering_is_known_by_its_numbers(kind):
    """And a claim of what is not there is none."""
    numbers = (0, 2, 3, 7)
    indexes = {"a": numbers, "b": (0, 1), "d": (4,)}
    topics = {name: TopicInfo(name, partitions=[PartitionInfo(i, 0, 0, [0]) for i in mine]) for name, mine in indexes.items()}
    cluster = ClusterSnapshot({0: Node(0, "h", 1)}, topics=topics)
    wants = MemberSubscription(("a", "b", "d"))
    had = {
        "x": [*(TopicPartition(*pair) for pair in (("a", 1), ("b", -1), ("a", 0), ("b", 1), ("a", 7), ("c", 0), ("d", 4), ("d", 0)))],
        "y": [TopicPartition("b", 2), TopicPartition("a", -1), TopicPartition("a", 2)],
    }
    found = partitions_by_member(kind().assign(cluster, {member: joining(kind, wants, mine, 1) for member, mine in had.items()}))
    assert {member: {*mine} for member, mine in found.items()} == {
        "x": {("a", 0), ("a", 7), ("b", 1), ("d", 4)},
        "y": {("a", 2), ("a", 3), ("b", 0)},
    }
    assert sum(map(len, found.values())) == 7


def test_of_two_in_one_generation_neither_has_it_and_both_give_it_up():
    cluster = make_cluster(random.Random(1), {"t": 3})
    wants = MemberSubscription(("t",))
    tps = [TopicPartition("t", i) for i in range(3)]
    claims = {"a": joining(CooperativeStickyAssignor, wants, tps[:2], 5), "b": joining(CooperativeStickyAssignor, wants, tps[1:], 5)}
    found = partitions_by_member(CooperativeStickyAssignor().assign(cluster, claims))
    assert found == {"a": (tps[0],), "b": (tps[2],)}


@each_row(
    "user_data",
    [
        b"",
        b"\x00",
        b"\x7f\xff\xff\xff",
        bytes.fromhex("00000001 0001 74 00000001 00000000"),  # without a generation: version 0
        bytes.fromhex("00000001 0001 74 00000001 00000000 00000007"),
        bytes.fromhex("00000001 0001 74 00000001 00000000 00000007 ff"),
    ],
)
def test_user_data_of_other_clients_is_read_or_ignored(user_data):
    data = StickyAssignor().member_data(MemberSubscription(("t",), user_data))
    assert data == (([("t", 0)], 7 if len(user_data) > 15 else -1) if len(user_data) > 4 else ((), -1))
    generation = CooperativeStickyAssignor().member_data(MemberSubscription(("t",), user_data)).generation
    assert generation == (int.from_bytes(user_data[:4], "big") if len(user_data) >= 4 else -1)


def test_sticky_user_data_is_javas():
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(frozenset("t")) is None
    assignor.on_assignment(MemberAssignment((TopicPartition("t", 0), TopicPartition("u", 3))), ConsumerGroupMetadata("g", 7, "m"))
    expected = "00000002 0001 74 00000001 00000000 0001 75 00000001 00000003 00000007"
    assert assignor.subscription_user_data(frozenset("t")) == bytes.fromhex(expected)
    cooperative = CooperativeStickyAssignor()
    assert cooperative.subscription_user_data(frozenset()) == b"\xff" * 4
    cooperative.on_assignment(MemberAssignment(()), ConsumerGroupMetadata("g", 7, "m"))
    assert cooperative.subscription_user_data(frozenset()) == bytes.fromhex("00000007")


def test_what_a_subscription_says_survives_the_wire():
    subscription = MemberSubscription(("a", "b"), b"x", (TopicPartition("a", 1),), 3, "i", "r")
    assert decode_subscription(encode_subscription(subscription), "i") == subscription


@given(seeds, st.booleans())
def test_round_robin_asks_each_member_in_turn(seed, alike):
    """As Kafka's does, partition after partition."""
    rng = random.Random(seed)
    group = make_group(rng, members=12, alike=alike)
    by_instance = sorted(group.subscriptions, key=lambda m: ((i := group.subscriptions[m].group_instance_id) is None, i or "", m))
    turn = itertools.cycle(by_instance)
    expected: dict[str, list[TopicPartition]] = {member: [] for member in group.subscriptions}
    for partition in group.partitions:
        expected[next(member for member in turn if partition.topic in group.subscriptions[member].topics)].append(partition)
    found = partitions_by_member(RoundRobinAssignor().assign(group.cluster, group.subscriptions))
    assert found == {member: tuple(mine) for member, mine in expected.items()}


by_racks = Reached("topics alike", "a topic alone", "a member without a rack", "racks do not matter")


@by_racks.by
@given(seeds)
def test_range_looks_at_racks_as_kafkas_does(seed):
    """Where racks matter: topics alike number by number, another topic member by member; then runs of what is left."""
    group = make_group(random.Random(seed), members=6, topics=4, partitions=6, racks=True)
    wants, racks = group.subscriptions, group.racks
    order = sorted(wants, key=lambda m: ((i := wants[m].group_instance_id) is None, i or "", m))
    topics = {tp.topic: [p for p in group.partitions if p.topic == tp.topic] for tp in group.partitions}
    takers = {topic: [m for m in order if topic in wants[m].topics] for topic in topics}
    mine: dict[tuple[str, str], list[TopicPartition]] = {(topic, m): [] for topic in topics for m in order}

    def matters(topic: str) -> bool:
        of_topic = [racks(tp) for tp in topics[topic]]
        everywhere = frozenset().union(*of_topic)
        return bool({wants[m].rack_id for m in takers[topic]} & everywhere) and any(found != everywhere for found in of_topic)

    def give(topic: str, member: str, chosen: list[TopicPartition]) -> bool:
        share, extra = divmod(len(topics[topic]), len(takers[topic]))
        extra -= sum(len(mine[topic, m]) > share for m in takers[topic])
        room = max(0, share + (extra > 0) - len(mine[topic, member]))
        mine[topic, member] += [tp for tp in chosen if not any(tp in mine[topic, m] for m in order)][:room]
        return room > 0

    def near(member: str, tp: TopicPartition) -> bool:
        return wants[member].rack_id is None or wants[member].rack_id in racks(tp)

    alike: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic in topics:
        alike.setdefault((tuple(takers[topic]), len(topics[topic])), []).append(topic)
    by_racks("racks do not matter", not any(map(matters, topics)))
    for (members, count), those in alike.items() if any(map(matters, topics)) else ():
        by_racks("topics alike" if len(those) > 1 else "a topic alone")
        by_racks("a member without a rack", any(wants[m].rack_id is None for m in members))
        if len(those) > 1:
            for at in range(count):
                can = (m for m in members if all(near(m, topics[topic][at]) for topic in those))
                any(all(give(topic, m, [topics[topic][at]]) for topic in those) for m in can)
        elif matters(those[0]):
            for m in members:
                give(those[0], m, [tp for tp in topics[those[0]] if near(m, tp)])
    for topic in topics:
        for m in takers[topic]:
            give(topic, m, topics[topic])
    found = partitions_by_member(RangeAssignor().assign(group.cluster, wants))
    assert found == {m: tuple(sorted(tp for topic in topics for tp in mine[topic, m])) for m in order}


names = st.sampled_from("abc")


@given(st.lists(st.tuples(names, st.lists(st.integers(-(2**31), 2**31 - 1)))))
def test_partitions_are_named_in_order(groups):
    found = name_partitions(groups)
    assert found == [TopicPartition(topic, index) for topic, indexes in groups for index in indexes]
    assert {*map(type, found)} <= {TopicPartition}


def test_the_garbage_collector_looks_at_no_name_that_refers_to_nothing():
    class Text(str):
        """May refer to anything."""

    (plain,) = name_partitions([("t", [1])])
    (odd,) = name_partitions([(Text("t"), [1])])
    assert not gc.is_tracked(plain) and gc.is_tracked(odd)


spans = st.dictionaries(names, st.tuples(st.integers(0, 100), st.integers(0, 5)))


@given(spans, st.lists(st.tuples(names, st.integers(-2, 6))))
def test_partitions_have_the_places_of_their_topics_spans(spans, partitions):
    found = places_of(spans, [TopicPartition(*pair) for pair in partitions])
    assert found == [spans[topic][0] + index for topic, index in partitions if topic in spans and 0 <= index < spans[topic][1]]
    assert places_of(spans, partitions) == found


@each_row("wrong", [("t",), ["t", 1], "t1", None])
def test_what_is_no_partition_has_no_place(wrong):
    with pytest.raises(errors.UsageError, match="tuple"):
        places_of({"t": (0, 3)}, [wrong])


T0, T1, T2 = (TopicPartition("t", i) for i in range(3))


def check(protocol: RebalanceProtocol, owned: dict[str, tuple], found: dict[str, tuple]) -> None:
    subscriptions = {member: MemberSubscription(("t",), owned_partitions=mine) for member, mine in owned.items()}
    check_assignment("mine", subscriptions, {member: MemberAssignment(mine) for member, mine in found.items()}, protocol)


def test_a_cooperative_assignor_gives_no_partition_away_that_its_owner_has():
    owned: dict[str, tuple] = {"a": (T0, T1), "b": ()}
    check(RebalanceProtocol.COOPERATIVE, owned, {"a": (T0, T1), "b": (T2,)})  # that no member had
    check(RebalanceProtocol.COOPERATIVE, owned, {"a": (T0,), "b": ()})  # given up first
    check(RebalanceProtocol.COOPERATIVE, {"a": (T0,), "b": (T0,)}, {"a": (T0,), "b": ()})  # both say so: either may have it
    with pytest.raises(errors.UsageError, match="'mine' gave t-1 to b, while a has it; a cooperative assignor leaves out"):
        check(RebalanceProtocol.COOPERATIVE, owned, {"a": (T0,), "b": (T1,)})
    check(RebalanceProtocol.EAGER, owned, {"a": (T0,), "b": (T1,)})  # whose members gave up everything


@each_row("protocol", RebalanceProtocol)
@each_row(
    ("found", "complaint"),
    [
        ({"a": MemberAssignment((T0, T1)), "b": MemberAssignment((T1,))}, "t-1 to a and to b"),
        ({"c": MemberAssignment(())}, "does not have: c"),
        ({"a": (T0, T1)}, "dict of MemberAssignment"),
        (None, "dict of MemberAssignment"),
    ],
)
def test_what_no_assignor_may_return(protocol, found, complaint):
    subscriptions = dict.fromkeys("ab", MemberSubscription(("t",)))
    with pytest.raises(errors.UsageError, match=complaint):
        check_assignment("mine", subscriptions, found, protocol)


def test_names_java_classes_classes_and_instances_make_assignors():
    class Mine(PartitionAssignor):
        name = "mine"

        def assign(self, cluster: ClusterSnapshot, subscriptions):
            return {member: MemberAssignment(()) for member in subscriptions}

    instance = RoundRobinAssignor()
    made = make_assignors(["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range", "sticky", Mine, instance])
    assert [a.name for a in made] == ["cooperative-sticky", "range", "sticky", "mine", "roundrobin"]
    assert made[-1] is instance and type(made[3]) is Mine
    Mine.name = ""
    wrong = (["near"], [], [dict], [7], ["range", RangeAssignor], [Mine], [PartitionAssignor], ["org.apache.kafka.clients.consumer.Range"])
    for strategy in wrong:
        with pytest.raises(errors.ConfigError, match="partition_assignment_strategy"):
            make_assignors(strategy)
