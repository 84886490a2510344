"""Programs that run over confluent-kafka and over kafkacore.compat.confluent: messages of topics that the producer does not know yet."""

from __future__ import annotations

import importlib
from typing import Any

from kafkacore import KafkaAdminClient, NewTopic
from tests.compat.both_packages import case
from tests.compat.confluent_face import WAIT_S, Face
from tests.compat.confluent_serving import NOBODY
from tests.kit.waiting import until

SHORT = {"bootstrap.servers": NOBODY, "message.timeout.ms": 1_000}  # librdkafka looks for late messages once a second


def kept_reports(seen: list[Any]) -> Any:
    """A callback that keeps what it gets of a message that failed."""

    def report(error: Any, m: Any) -> None:
        seen.append((
            error.name(), m.error() == error, m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.timestamp(), m.headers(),
            m.latency() > 0, m.leader_epoch(),
        ))  # fmt: skip

    return report


@case
def messages_without_brokers_time_out(f: Face) -> Any:
    """Also with no address at all; a callback that raises leaves the others for the next call."""
    seen, served = [], []  # type: list[Any], list[Any]

    def report(error: Any, m: Any) -> None:
        served.append(m.value())
        if m.value() == b"1":
            raise ValueError("of the callback")

    producer, raising, alone = f.producer(**SHORT), f.producer(**SHORT), f.open(f.k.Producer({"message.timeout.ms": 1_000}))
    for nth in range(4):
        producer.produce(f.topic, b"%d" % nth, "key", nth - 1, headers={"a": "b"}, on_delivery=kept_reports(seen) if nth < 3 else None)
        raising.produce(f.topic, b"%d" % nth, on_delivery=report)
    alone.produce(f.topic, b"v", on_delivery=kept_reports(seen))
    left = len(producer) >= 4, producer.flush(WAIT_S), len(producer), alone.flush(WAIT_S)
    raised = f.raised(lambda: raising.flush(WAIT_S)), list(served), raising.flush(WAIT_S), served
    consumer, admin = f.open(f.k.Consumer({"group.id": "g"})), importlib.import_module(f"{f.k.__name__}.admin")
    consumer.subscribe([f.topic])
    return left, seen, raised, consumer.poll(0.1), f.raised(lambda: admin.AdminClient({}).list_topics(timeout=0.1))[0]


@case
def a_topic_that_the_brokers_do_not_have(f: Face) -> Any:
    seen: list[Any] = []
    topic = f"{f.topic}-no-such"
    producer = f.producer(**{"topic.metadata.propagation.max.ms": 500})
    producer.produce(topic, b"v", on_delivery=kept_reports(seen))
    left = producer.flush(WAIT_S)
    again = f.raised(lambda: producer.produce(topic, b"v"))
    with KafkaAdminClient(bootstrap_servers=f.servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)]).check()
    until(lambda: f.raised(lambda: producer.produce(topic, b"v")) == ("gave", None))
    return left, seen, again, producer.flush(WAIT_S)


@case
def names_that_no_topic_may_have(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer()
    producer.produce("no name", b"v", on_delivery=kept_reports(seen))
    return producer.flush(WAIT_S), seen, f.raised(lambda: producer.produce("no name", b"v"))


@case
def partitions_that_the_topic_does_not_have(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer()
    for partition in (0, 7, 1):
        producer.produce(f.topic, b"%d" % partition, partition=partition, on_delivery=lambda error, m: seen.append((error, m.partition())))
    left = producer.flush(WAIT_S)
    found = sorted((number, error and error.name()) for error, number in seen)
    return left, found, f.raised(lambda: producer.produce(f.topic, b"v", partition=7))


@case
def a_queue_that_is_full_of_them(f: Face) -> Any:
    by_count = f.producer(**SHORT | {"queue.buffering.max.messages": 2})
    by_bytes = f.producer(**SHORT | {"queue.buffering.max.kbytes": 1})
    found = [[f.raised(lambda p=p: p.produce(f.topic, b"v" * 600)) for _ in range(4)] for p in (by_count, by_bytes)]  # type: ignore[misc]
    by_count.purge()
    large = f.raised(lambda: f.producer(**SHORT).produce(f.topic, b"v" * 2_000_000))
    return found, large, by_count.flush(WAIT_S), f.raised(lambda: by_count.produce(f.topic, b"v" * 600))


@case
def they_are_purged(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer(**{"bootstrap.servers": NOBODY})
    producer.produce(f.topic, b"v", "k", on_delivery=kept_reports(seen))
    producer.purge(in_queue=False)
    kept = producer.flush(0.1), list(seen)
    producer.purge()
    return kept, producer.flush(WAIT_S), seen, len(producer)
