"""Assignors of applications, and groups that change their assignor while they run, on both brokers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kafkacore import (
    KafkaConsumer,
    KafkaProducer,
    MemberAssignment,
    PartitionAssignor,
    RebalanceListener,
    RebalanceProtocol,
    TopicPartition,
    errors,
)
from tests.kit.inside import group_of
from tests.kit.rivals import confluent_consumer
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
Make = Callable[..., KafkaConsumer]
PARTITIONS = 6
pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]


class Hasty(PartitionAssignor):
    """In turn to the members, whatever they own."""

    name = "in-turn"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, cluster, subscriptions):
        members = sorted(subscriptions)
        found: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic in sorted({topic for asks in subscriptions.values() for topic in asks.topics}):
            for partition in range(cluster.partition_count(topic) or 0):
                found[members[partition % len(members)]].append(TopicPartition(topic, partition))
        return {member: MemberAssignment(tuple(mine)) for member, mine in found.items()}


class Patient(Hasty):
    """Leaves out what another member has."""

    def assign(self, cluster, subscriptions):
        owners = {tp: member for member, asks in subscriptions.items() for tp in asks.owned_partitions}
        return {
            member: MemberAssignment(tuple(tp for tp in mine.partitions if owners.get(tp, member) == member))
            for member, mine in super().assign(cluster, subscriptions).items()
        }


@pytest.fixture
def ours(bootstrap_servers: str) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def make(topic: str, group: str, *strategy: Any, listener: RebalanceListener | None = None, **settings: Any) -> KafkaConsumer:
            consumer = KafkaConsumer(
                bootstrap_servers=bootstrap_servers,
                group_id=group,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
                partition_assignment_strategy=[*strategy],
                **settings,
            )
            consumer.subscribe([topic], listener=listener)
            return stack.enter_context(consumer)

        yield make


class Share:
    """Partitions that a member has now; what it gave away while it was another's is an overlap."""

    def __init__(self) -> None:
        self.owners: dict[int, set[int]] = {}
        self.overlaps: list[int] = []

    def listener(self, member: int) -> RebalanceListener:
        share = self

        class Noted(RebalanceListener):
            def on_partitions_assigned(self, partitions):
                for tp in partitions:
                    share.owners.setdefault(tp.partition, set()).add(member)
                    if len(share.owners[tp.partition]) > 1:
                        share.overlaps.append(tp.partition)

            def on_partitions_revoked(self, partitions):
                for tp in partitions:
                    share.owners[tp.partition].discard(member)

        return Noted()


class Reading:
    """A topic that is written to while members come and go; every record is noted by the number in its value."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.producer = KafkaProducer(bootstrap_servers=servers)
        self.sent = 0
        self.read: Counter[int] = Counter()

    def write(self, count: int = 60) -> None:
        values = range(self.sent, self.sent + count)
        partitions = [value % PARTITIONS for value in values]
        self.producer.send_many(self.topic, [b"%d" % value for value in values], partitions=partitions).result(timeout=30)
        self.sent += count

    def poll(self, member: Any) -> set[int]:
        if isinstance(member, KafkaConsumer):
            self.read.update(int(record.value) for records in member.poll(0.02).values() for record in records)
        else:
            message = member.poll(0.02)
            if message is not None and message.error() is None:
                self.read[int(message.value())] += 1
        return {tp.partition for tp in member.assignment()}

    def shared(self, *members: Any) -> list[set[int]]:
        """Until the members share all partitions evenly and have read everything."""
        found: list[set[int]] = []

        def look() -> bool:
            found[:] = [self.poll(member) for member in members]
            even = {len(mine) for mine in found} == {PARTITIONS // len(members)}
            return even and set().union(*found) == set(range(PARTITIONS)) and len(self.read) == self.sent

        until(look, f"{len(members)} members share the partitions and read everything")
        return found


@pytest.fixture
def reading(bootstrap_servers: str, make_topic: MakeTopic) -> Iterator[Reading]:
    found = Reading(bootstrap_servers, make_topic(PARTITIONS))
    with found.producer:
        yield found


@pytest.mark.kafka_at_length
def test_a_cooperative_assignor_of_the_application(reading: Reading, ours: Make) -> None:
    group, share = fresh("g"), Share()
    members = []
    for count in (1, 2, 3):
        members.append(ours(reading.topic, group, Patient, listener=share.listener(count)))
        reading.write()
        reading.shared(*members)
    assert share.overlaps == []
    members.pop().close()
    reading.write()
    reading.shared(*members)


@pytest.mark.kafka_at_length
def test_one_that_hands_out_what_another_has_is_refused(reading: Reading, ours: Make) -> None:
    group, share = fresh("g"), Share()
    first = ours(reading.topic, group, Hasty, listener=share.listener(1))
    reading.write()
    reading.shared(first)
    second = ours(reading.topic, group, Hasty, listener=share.listener(2))
    raised: list[errors.UsageError] = []

    def look() -> bool:
        for member in (first, second):
            try:
                reading.poll(member)
            except errors.UsageError as error:
                raised.append(error)
        return bool(raised)

    until(look, "the assignment is refused")
    text = str(raised[0])
    moved = [partition for partition in range(PARTITIONS) if f"{reading.topic}-{partition} to" in text]
    assert moved in ([0, 2, 4], [1, 3, 5])
    new, old = members_in(text)
    assert all(f"{reading.topic}-{partition} to {new}, while {old} has it" in text for partition in moved)
    assert share.overlaps == []
    assert first.assignment() == {TopicPartition(reading.topic, partition) for partition in range(PARTITIONS)}
    second.close()
    reading.write()
    reading.shared(first)


def members_in(text: str) -> tuple[str, str]:
    """The new owner and the old one, of the first partition that the error names."""
    new, _, rest = text.partition(" to ")[2].partition(", while ")
    return new, rest.partition(" has it")[0]


@pytest.mark.kafka_alone("tests/consumer/test_groups.py")
def test_from_range_to_cooperative_by_two_rolling_restarts(reading: Reading, ours: Make, bootstrap_servers: str) -> None:
    """Records come all the time, and a member of confluent-kafka makes the change with ours."""
    group = fresh("g")

    def theirs(*strategy: str) -> confluent_kafka.Consumer:
        settings = {"partition_assignment_strategy": ",".join(strategy), "heartbeat_interval_ms": 100, "enable_auto_commit": True}
        consumer = confluent_consumer(bootstrap_servers, group_id=group, **settings)
        consumer.subscribe([reading.topic])
        return consumer

    members: list[Any] = [ours(reading.topic, group, "range"), ours(reading.topic, group, "range"), theirs("range")]
    reading.write()
    reading.shared(*members)

    def restart(nth: int, start: Callable[[], Any], name: str) -> None:
        members[nth].close()
        members[nth] = start()
        reading.write()
        reading.shared(*members)
        assert {group_of(member).membership.protocol_name for member in members[:2]} == {name}

    for nth in (0, 1):
        restart(nth, lambda: ours(reading.topic, group, "cooperative-sticky", "range"), "range")
    restart(2, lambda: theirs("cooperative-sticky"), "cooperative-sticky")  # librdkafka takes no list of both protocols: one step for it
    for nth in (0, 1):
        restart(nth, lambda: ours(reading.topic, group, "cooperative-sticky"), "cooperative-sticky")
    before = reading.shared(*members)
    members.append(ours(reading.topic, group, "cooperative-sticky"))

    def look() -> bool:
        found = [reading.poll(member) for member in members]
        return sum(map(len, found)) == PARTITIONS and bool(found[-1])

    until(look, "a fourth member has a share")
    for was, member in zip(before, members, strict=False):
        assert reading.poll(member) <= was  # members that stay got nothing new
    # librdkafka's commit at close is refused while the group rebalances, which the others' leaving makes it do.
    read = [found for found in members[2].position(members[2].assignment()) if found.offset >= 0]
    if read:
        members[2].commit(offsets=read, asynchronous=False)
    for member in members:
        member.close()
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group) as reader:
        committed = reader.committed([TopicPartition(reading.topic, partition) for partition in range(PARTITIONS)])
    assert [found.offset for found in committed.values()] == [reading.sent // PARTITIONS] * PARTITIONS
