"""Members of consumer groups (KIP-848): ours alone and beside confluent-kafka's, on Apache Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaConsumer, SubscriptionPattern, errors
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
Make = Callable[..., KafkaConsumer]
PARTITIONS = 6
pytestmark = [
    pytest.mark.usefixtures("client_face"),
    pytest.mark.timeout(300),
    pytest.mark.slow,
    pytest.mark.kafka_alone("tests/consumer"),
]


@pytest.fixture
def ours(bootstrap_servers: str) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def make(topic: str | None, group: str, **settings: Any) -> KafkaConsumer:
            given = {"group_id": group, "group_protocol": "consumer", "auto_offset_reset": "earliest", **settings}
            return stack.enter_context(KafkaConsumer(*filter(None, [topic]), bootstrap_servers=bootstrap_servers, **given))

        yield make


def has(consumer: Any) -> set[int]:
    consumer.poll(0.02)
    return {tp.partition for tp in consumer.assignment()}


def epoch_of(consumer: KafkaConsumer) -> int:
    return consumer.consumer_group_metadata().generation_id


def shared(*consumers: Any) -> None:
    """Until they share all partitions."""

    def look() -> bool:
        found = [has(c) for c in consumers]
        return all(found) and sum(map(len, found)) == PARTITIONS and set().union(*found) == set(range(PARTITIONS))

    until(look, "the members share the partitions")


def test_the_broker_matches_the_pattern(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    consumer = ours(None, group)
    consumer.subscribe(pattern=SubscriptionPattern(topic[:-1] + "[0-9a-f]"))
    shared(consumer)
    assert consumer.subscription() == {topic}
    consumer.unsubscribe()
    consumer.subscribe(pattern=SubscriptionPattern("(("))
    with pytest.raises(errors.InvalidRegularExpression):
        until(lambda: consumer.poll(0.05), "it is refused")


def test_a_static_member_comes_back_to_its_partitions(bootstrap_servers: str, make_topic: MakeTopic, ours: Make) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    members = [ours(topic, group, group_instance_id=f"i{at}") for at in range(2)]
    shared(*members)
    until(lambda: epoch_of(members[0]) == epoch_of(members[1]), "both have heard of the last epoch", *members)
    before, epoch = has(members[0]), epoch_of(members[1])
    members[0].close()
    members[0] = ours(topic, group, group_instance_id="i0")
    shared(*members)
    assert has(members[0]) == before
    assert epoch_of(members[1]) == epoch  # without a rebalance
    other = ours(topic, group, group_instance_id="i0")
    with pytest.raises(errors.UnreleasedInstanceId):
        until(lambda: other.poll(0.05), "it is refused")
