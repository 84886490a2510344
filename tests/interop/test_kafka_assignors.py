"""Our assignors beside Kafka's own, on random groups."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore.consumer.group.assignor import MemberAssignment, PartitionAssignor
from kafkacore.consumer.group.assignors import RangeAssignor, RoundRobinAssignor
from kafkacore.consumer.group.sticky import CooperativeStickyAssignor, StickyAssignor
from kafkacore.types import ConsumerGroupMetadata, TopicPartition
from tests.interop.java_assignors import KafkaAssignors

sys.path.append(str(Path(__file__).parent.parent / "consumer"))
from groups_of_members import Group, make_group, partitions_by_member

from tests.kit.groups import Whole

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ALL = os.environ.get("KAFKACORE_KAFKA") == "all"
GROUPS, CHAINS = (1000, 200) if ALL else (200, 40)
REBALANCES = 4
Owned = dict[str, list[TopicPartition]]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaAssignors]:
    made = KafkaAssignors()
    yield made
    made.close()


def by_set(assigned) -> dict[str, set[TopicPartition]]:
    return {member: {*partitions} for member, partitions in assigned.items()}


@pytest.mark.parametrize("racks", [False, True], ids=["no racks", "racks"])
def test_range_assigns_as_kafka_does(kafka, racks):
    rng = random.Random(881 + racks)
    matter = 0
    for _ in range(GROUPS):
        group = make_group(rng, racks=racks)
        matter += racks and group.racks_matter
        ours = partitions_by_member(RangeAssignor().assign(group.cluster, group.subscriptions))
        theirs = kafka.assign("range", group.cluster, group.subscriptions, {}, {}).partitions
        assert by_set(ours) == by_set(theirs), group.subscriptions
        if group.racks_matter:
            assert {member: [*mine] for member, mine in ours.items()} == theirs
    assert not racks or matter > GROUPS // 2


def test_round_robin_assigns_as_kafka_does(kafka):
    rng = random.Random(7)
    for _ in range(GROUPS):
        group = make_group(rng)
        ours = partitions_by_member(RoundRobinAssignor().assign(group.cluster, group.subscriptions))
        theirs = kafka.assign("roundrobin", group.cluster, group.subscriptions, {}, {}).partitions
        assert {member: [*mine] for member, mine in ours.items()} == theirs, group.subscriptions


def changed(rng: random.Random, group: Group, owned: Owned, *, racks: bool, alike: bool) -> tuple[Group, Owned]:
    """The group some time later: members came or left, or others than before subscribe to something."""
    other = make_group(rng, racks=racks, alike=alike, static=False)
    subscriptions = dict(group.subscriptions)
    for member in rng.sample([*subscriptions], min(len(subscriptions) - 1, rng.randint(0, 2))):
        del subscriptions[member]
    topics = [*group.cluster.topics]
    common = next(iter(subscriptions.values())).topics
    for member, subscription in [*other.subscriptions.items()][: rng.randint(0, 3)]:
        wants = common if alike else tuple(rng.sample(topics, rng.randint(1, len(topics))))
        subscriptions.setdefault(member, subscription._replace(topics=wants))
    return group._replace(subscriptions=subscriptions), {m: mine for m, mine in owned.items() if m in subscriptions}


def with_data(kind: type[PartitionAssignor], group: Group, owned: Owned, generations: dict[str, int]) -> Group:
    """The group with subscriptions as members of ours send them."""
    found = {}
    for member, subscription in group.subscriptions.items():
        assignor = kind()
        generation = generations.get(member, -1)
        if generation >= 0:
            assignor.on_assignment(MemberAssignment(tuple(owned[member])), ConsumerGroupMetadata("g", generation))
        cooperative = isinstance(assignor, CooperativeStickyAssignor)
        found[member] = subscription._replace(
            user_data=assignor.subscription_user_data(frozenset(subscription.topics)),
            owned_partitions=tuple(owned.get(member, ())) if cooperative else (),
            generation_id=generation,
        )
    return group._replace(subscriptions=found)


@pytest.mark.parametrize("racks", [False, True], ids=["no racks", "racks"])
@pytest.mark.parametrize("alike", [True, False], ids=["same topics", "other topics"])
@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
def test_sticky_is_as_balanced_and_sticky_as_kafkas_over_rebalances(kafka, kind, alike, racks):
    """Where all subscribe to the same and no rack matters, both reach the best; else ours is never worse."""
    rng = random.Random(f"{kind.name} {alike} {racks}")
    seen: Counter[str] = Counter()
    for _ in range(CHAINS):
        group = make_group(rng, racks=racks, alike=alike, static=False)
        owned: Owned = {}
        generations: dict[str, int] = {}
        for generation in range(REBALANCES):
            group = with_data(kind, group, owned, generations)
            ours = partitions_by_member(kind().assign(group.cluster, group.subscriptions))
            theirs = kafka.assign(kind.name, group.cluster, group.subscriptions, owned, generations)
            for member, subscription in group.subscriptions.items():
                in_java = subscription._replace(user_data=theirs.user_data[member])
                assert len(in_java.user_data) == len(subscription.user_data or b"")  # it writes topics in any order
                read = [sorted(kind().member_data(each).partitions) for each in (in_java, subscription)]
                assert read == [sorted(owned.get(member, []))] * 2
                assert kind().member_data(in_java).generation == generations.get(member, -1)
            mine, best = group.worth(ours, owned), group.worth(theirs.partitions, owned)
            if kind is CooperativeStickyAssignor:  # nothing that another member has is handed out; balance is judged with it
                owner = {tp: member for member, partitions in owned.items() for tp in partitions}
                assert all(owner.get(tp, member) == member for member, partitions in ours.items() for tp in partitions)
                missing = len(group.partitions) - sum(map(len, ours.values()))
                their_missing = len(group.partitions) - sum(map(len, theirs.partitions.values()))
                if generation == 0:
                    assert missing == their_missing == 0
                if alike and not racks:
                    assert missing == their_missing
                whole = partitions_by_member(Whole().assign(group.cluster, group.subscriptions))
                mine = group.worth(whole, owned)
                if their_missing:
                    seen["partly handed out"] += 1
                    owned, generations = {m: [*p] for m, p in ours.items()}, dict.fromkeys(ours, generation)
                    group, owned = changed(rng, group, owned, racks=racks, alike=alike)
                    continue
            if alike and not group.racks_matter:
                assert mine == best, group
            assert mine <= best, group
            seen["equal" if mine == best else "better"] += 1
            owned, generations = {m: [*p] for m, p in ours.items()}, dict.fromkeys(ours, generation)
            group, owned = changed(rng, group, owned, racks=racks, alike=alike)
    assert seen["equal"] > CHAINS // 2
