"""Members of consumer groups (KIP-848): ours alone, beside confluent-kafka's, and beside classic ones, on both brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, SubscriptionPattern, TopicPartition, errors
from tests.kit.rivals import confluent_consumer
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
Make = Callable[..., KafkaConsumer]
PARTITIONS = 6
pytestmark = [
    pytest.mark.usefixtures("client_face"),
    pytest.mark.timeout(300),
    pytest.mark.slow,
    pytest.mark.needs("ConsumerGroupHeartbeat"),
]


@pytest.fixture
def ours(bootstrap_servers: str) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def make(group: str, protocol: str = "consumer", **settings: Any) -> KafkaConsumer:
            classic = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000} if protocol == "classic" else {}
            consumer = KafkaConsumer(
                bootstrap_servers=bootstrap_servers,
                group_id=group,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                **{**classic, **settings},
            )
            return stack.enter_context(consumer)

        yield make


def fill(servers: str, topic: str, count: int = 120) -> None:
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(count)], partitions=[i % PARTITIONS for i in range(count)]).result(timeout=30)


def has(consumer: Any) -> set[int]:
    if isinstance(consumer, KafkaConsumer):
        consumer.poll(0.02)
        return {tp.partition for tp in consumer.assignment()}
    consumer.poll(0.02)
    return {tp.partition for tp in consumer.assignment()}


def shared(*consumers: Any) -> None:
    """Until they share all partitions."""

    def look() -> bool:
        found = [has(c) for c in consumers]
        return all(found) and sum(map(len, found)) == PARTITIONS and set().union(*found) == set(range(PARTITIONS))

    until(look, "the members share the partitions")


def test_members_come_and_go_and_committed_is_what_was_processed(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    fill(bootstrap_servers, topic)
    first = ours(group)
    first.subscribe([topic])
    seen: list[bytes] = []
    until(lambda: seen.extend(r.value for rs in first.poll(0.1).values() for r in rs) or len(seen) == 120, "everything is read")
    second = ours(group, group_remote_assignor="range")
    second.subscribe([topic])
    shared(first, second)
    first.close()
    shared(second)
    partitions = [TopicPartition(topic, i) for i in range(PARTITIONS)]
    assert {found.offset for found in second.committed(partitions).values()} == {20}
    assert second.poll(0.2) == {}


def test_beside_members_of_confluent_kafka(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    theirs = confluent_consumer(bootstrap_servers, group_id=group, group_protocol="consumer")
    with contextlib.closing(theirs):
        theirs.subscribe([topic])
        consumer = ours(group)
        consumer.subscribe([topic])
        shared(theirs, consumer)
        third = ours(group)
        third.subscribe([topic])
        shared(theirs, consumer, third)
        consumer.close()
        shared(theirs, third)
    shared(third)


def test_from_classic_members_to_consumer_members_and_back(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    """Rolling restarts, twice."""
    topic, group = make_topic(PARTITIONS), fresh("g")
    members = [ours(group, "classic"), ours(group, "classic")]
    for member in members:
        member.subscribe([topic])
    shared(*members)
    for protocol in ("consumer", "classic"):
        for at in range(2):
            members[at].close()
            members[at] = ours(group, protocol)
            members[at].subscribe([topic])
            shared(*members)
    fill(bootstrap_servers, topic, 60)
    read: set[bytes] = set()
    until(
        lambda: read.update(r.value for m in members for rs in m.poll(0.05).values() for r in rs) or len(read) == 60, "all records are read"
    )


def test_the_broker_matches_the_pattern(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    consumer = ours(group)
    consumer.subscribe(pattern=SubscriptionPattern(topic[:-1] + "[0-9a-f]"))
    shared(consumer)
    assert consumer.subscription() == {topic}
    consumer.unsubscribe()
    consumer.subscribe(pattern=SubscriptionPattern("(("))
    with pytest.raises(errors.InvalidRegularExpression):
        until(lambda: consumer.poll(0.05), "it is refused")


def test_a_static_member_comes_back_to_its_partitions(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    members = [ours(group, group_instance_id=f"i{at}") for at in range(2)]
    for member in members:
        member.subscribe([topic])
    shared(*members)
    before, epoch = has(members[0]), members[1].consumer_group_metadata().generation_id
    members[0].close()
    members[0] = ours(group, group_instance_id="i0")
    members[0].subscribe([topic])
    shared(*members)
    assert has(members[0]) == before
    assert members[1].consumer_group_metadata().generation_id == epoch  # without a rebalance
    other = ours(group, group_instance_id="i0")
    other.subscribe([topic])
    with pytest.raises(errors.UnreleasedInstanceId):
        until(lambda: other.poll(0.05), "it is refused")


def test_an_application_that_does_not_poll(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    slow = ours(group, max_poll_interval_ms=3_000)
    slow.subscribe([topic])
    shared(slow)
    other = ours(group)
    other.subscribe([topic])
    until(lambda: len(has(other)) == PARTITIONS, "the other member has everything")
    with pytest.raises(errors.CommitFailed, match="not a member"):
        slow.commit({(topic, 0): 0})
    with pytest.raises(errors.MaxPollExceeded):
        slow.poll(0)
    shared(slow, other)
