"""Assignors of classic groups beside Kafka's own: 1,000 members share 10,000 partitions.

    python bench/assignors.py [--json] [--rounds N] [--members N] [--partitions N] [--only TITLE]

CPU of the thread that assigns, for one assignment by the group's leader, from decoded subscriptions to the partitions of each member.
Kafka's assignors run in a JVM that has assigned the same group often enough to be warm; the two take turns. "first call" is what the first
assignment takes in a JVM of its own, as a leader that has not led before pays it. "a member leaves" and "a tenth leaves" begin with what
the members had before. The JVM collects garbage on other threads, which are not counted; Python's collector is. Needs Java and Kafka's
jars, as the tests on a real Kafka do.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness import Table, Timing, Verdict, add_arguments, report

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "consumer")]
from groups_of_members import Group, make_cluster, partitions_by_member  # noqa: E402

from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription, PartitionAssignor  # noqa: E402
from kafkacore.consumer.group.assignors import make_assignors  # noqa: E402
from kafkacore.types import ConsumerGroupMetadata, TopicPartition  # noqa: E402
from tests.interop.java_assignors import KafkaAssignors  # noqa: E402
from tests.kit.kafka_server import why_unavailable  # noqa: E402

TOPICS = 20
GOAL = 1.5
WARM_NS = 1_500_000_000
"""So long the JVM assigns before it is measured; at least once."""
Owned = dict[str, tuple[TopicPartition, ...]]


def group_of(members: int, partitions: int, *, alike: bool, racks: int) -> Group:
    rng = random.Random(1)
    sizes = {f"topic-{i}": partitions // TOPICS for i in range(TOPICS)}
    subscriptions = {
        f"consumer-{i:05}": MemberSubscription(
            tuple(sizes) if alike else tuple(rng.sample([*sizes], TOPICS // 2)), rack_id=f"r{i % racks}" if racks else None
        )
        for i in range(members)
    }
    return Group(make_cluster(rng, sizes, racks), subscriptions)


def rejoining(name: str, group: Group, owned: Owned) -> Group:
    """The subscriptions of members that had partitions in generation 1."""
    found = {}
    for member, subscription in group.subscriptions.items():
        assignor = make(name)
        if member in owned:
            assignor.on_assignment(MemberAssignment(owned[member]), ConsumerGroupMetadata("g", 1))
        data = assignor.subscription_user_data(frozenset(subscription.topics))
        has = owned.get(member, ()) if name == "cooperative-sticky" else ()
        found[member] = subscription._replace(user_data=data, owned_partitions=has, generation_id=1 if member in owned else -1)
    return group._replace(subscriptions=found)


def make(name: str) -> PartitionAssignor:
    (made,) = make_assignors([name])
    return made


def first_call(name: str, group: Group, owned: Owned) -> Timing:
    """Milliseconds of the first assignment of a JVM."""
    kafka = KafkaAssignors(is_fast=False)
    try:
        (took,) = kafka.assign(name, group.cluster, group.subscriptions, owned, dict.fromkeys(owned, 1), timeout=600).took_ns
    finally:
        kafka.close()
    return Timing(took / 1e6, took / 1e6)


def taking_turns(kafka: KafkaAssignors, name: str, group: Group, owned: Owned, rounds: int) -> dict[str, Timing]:
    """Milliseconds of one assignment."""

    def theirs(times: int) -> list[int]:
        generations = dict.fromkeys(owned, 1)
        return kafka.assign(name, group.cluster, group.subscriptions, owned, generations, times=times, timeout=600).took_ns

    def ours() -> int:
        assignor = make(name)
        start = time.thread_time_ns()
        assignor.assign(group.cluster, group.subscriptions)
        return time.thread_time_ns() - start

    (first,) = theirs(1)
    if first < WARM_NS:
        first = min(theirs(3))
        theirs(max(1, min(1000, WARM_NS // first)))
    samples: dict[str, list[int]] = {"kafkacore": [], "Kafka": []}
    for _ in range(rounds if first < WARM_NS else 1):
        samples["Kafka"] += theirs(3 if first < WARM_NS else 1)
        samples["kafkacore"] += [ours() for _ in range(3)]
    return {who: Timing(statistics.median(took) / 1e6, min(took) / 1e6) for who, took in samples.items()}


def tables(kafka: KafkaAssignors, members: int, partitions: int, rounds: int, only: str) -> list[Table]:
    kinds: list[tuple[str, Callable[[], Group]]] = [
        ("all subscribe to the same topics", lambda: group_of(members, partitions, alike=True, racks=0)),
        ("the same topics, 3 racks", lambda: group_of(members, partitions, alike=True, racks=3)),
        ("each subscribes to half of the topics", lambda: group_of(members, partitions, alike=False, racks=0)),
    ]
    found = []
    for title, make_group in kinds:
        if only not in title:
            continue
        table = Table(f"assignors: {members:,} members, {partitions:,} partitions; {title}", "ms")
        group = make_group()
        for name in ("range", "roundrobin", "sticky", "cooperative-sticky"):
            had = partitions_by_member(make(name).assign(group.cluster, group.subscriptions))
            cases: list[tuple[str, Group, Owned]] = [(f"{name}, new group", group, {})]
            if "sticky" in name:
                for what, leavers in (("a member leaves", 1), ("a tenth leaves", members // 10)):
                    gone = {*sorted(had)[:leavers]}
                    owned = {member: mine for member, mine in had.items() if member not in gone}
                    left = group._replace(subscriptions={m: s for m, s in group.subscriptions.items() if m not in gone})
                    cases.append((f"{name}, {what}", rejoining(name, left, owned), owned))
            for label, case, owned in cases:
                timings = {**taking_turns(kafka, name, case, owned, rounds), "first call": first_call(name, case, owned)}
                table.add(label, timings)
                ratio = timings["kafkacore"].median_ns / timings["Kafka"].median_ns
                table.goals[label] = {"kafkacore": Verdict(f"{ratio:.2f} of Kafka's time, at most {GOAL}", ratio <= GOAL)}
        found.append(table)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--only", default="", help="only tables with this in their titles")
    args = parser.parse_args()
    if reason := why_unavailable():
        raise SystemExit(reason)
    kafka = KafkaAssignors(is_fast=False)
    try:
        found = tables(kafka, args.members, args.partitions, args.rounds, args.only)
    finally:
        kafka.close()
    report(found, as_json=args.json)


if __name__ == "__main__":
    main()
