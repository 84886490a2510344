"""A group changes from range to cooperative-sticky by two rolling restarts, beside a member of confluent-kafka; on Apache Kafka."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition
from tests.kit.inside import group_of
from tests.kit.rivals import confluent_consumer
from tests.kit.waiting import fresh, until

PARTITIONS = 6
pytestmark = [pytest.mark.timeout(120), pytest.mark.slow, pytest.mark.kafka_alone("tests/consumer/test_groups.py")]


class Reading:
    """A topic that is written to while members come and go; every record is noted by the number in its value."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self.topic = topic
        self.producer = producer
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


def test_from_range_to_cooperative_by_two_rolling_restarts(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    with contextlib.ExitStack() as stack:
        reading = Reading(stack.enter_context(KafkaProducer(bootstrap_servers=bootstrap_servers)), topic)

        def ours(*strategy: str) -> KafkaConsumer:
            given = {"group_id": group, "partition_assignment_strategy": [*strategy], "heartbeat_interval_ms": 100}
            consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", **given)
            return stack.enter_context(consumer)

        def theirs(strategy: str) -> confluent_kafka.Consumer:
            settings = {"partition_assignment_strategy": strategy, "heartbeat_interval_ms": 100, "enable_auto_commit": True}
            consumer = confluent_consumer(bootstrap_servers, group_id=group, **settings)
            consumer.subscribe([topic])
            return consumer

        members: list[Any] = [ours("range"), ours("range"), theirs("range")]
        reading.write()
        reading.shared(*members)

        def restart(nth: int, start: Callable[[], Any], name: str) -> None:
            members[nth].close()
            members[nth] = start()
            reading.write()
            reading.shared(*members)
            assert {group_of(member).membership.protocol_name for member in members[:2]} == {name}

        for nth in (0, 1):
            restart(nth, lambda: ours("cooperative-sticky", "range"), "range")
        # librdkafka takes no list of both protocols: one step for it.
        restart(2, lambda: theirs("cooperative-sticky"), "cooperative-sticky")
        for nth in (0, 1):
            restart(nth, lambda: ours("cooperative-sticky"), "cooperative-sticky")
        before = reading.shared(*members)
        members.append(ours("cooperative-sticky"))

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
            committed = reader.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    assert [found.offset for found in committed.values()] == [reading.sent // PARTITIONS] * PARTITIONS
