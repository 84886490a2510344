"""Programs that run over confluent-kafka and over kafkacore.compat.confluent: what poll and flush serve and count, errors, rebalances."""

from __future__ import annotations

import threading
from typing import Any

from kafkacore import KafkaAdminClient, NewTopic
from tests.compat.both_packages import case
from tests.compat.confluent_face import WAIT_S, Face
from tests.kit.waiting import until

NOBODY = "127.0.0.1:1"


def queued(f: Face, count: int, report: Any, **settings: Any) -> Any:
    """A producer with so many messages that leave together, soon or with the next flush."""
    producer = f.producer(**{"linger.ms": 200} | settings)
    producer.list_topics(f.topic, timeout=WAIT_S)
    for nth in range(count):
        producer.produce(f.topic, b"%d" % nth, b"k", 0, on_delivery=report)
    return producer


@case
def reports_that_are_not_served_count(f: Face) -> Any:
    seen: list[Any] = []
    producer = queued(f, 3, lambda error, m: seen.append((m.value(), len(producer))))
    until(lambda: len(producer) == 4)  # the messages, and the event of their batch
    before = len(seen)
    return before, producer.poll(0), len(producer), seen, producer.poll(0)


@case
def a_callback_that_raises(f: Face) -> Any:
    seen: list[Any] = []

    def report(error: Any, m: Any) -> None:
        seen.append(m.value())
        if m.value() == b"1":
            raise ValueError("of the callback")

    producer = queued(f, 4, report)
    until(lambda: len(producer) == 5)
    raised = f.raised(lambda: producer.poll(0)), list(seen), len(producer)
    return raised, producer.poll(0), seen, len(producer)


@case
def the_callback_of_a_call_comes_before_that_of_all(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer(on_delivery=lambda error, m: seen.append(("of all", m.value())))
    producer.produce(f.topic, b"a", partition=0)
    producer.flush(WAIT_S)
    producer.produce(f.topic, b"b", partition=0, callback=lambda error, m: seen.append(("of the call", m.value())))
    return producer.flush(WAIT_S), seen


@case
def purged_messages_are_reported(f: Face) -> Any:
    seen: list[Any] = []

    def report(error: Any, m: Any) -> None:
        seen.append((
            error.name(), error.fatal(), m.error() == error, m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.timestamp(),
            m.latency() is not None, m.headers(), m.leader_epoch(),
        ))  # fmt: skip

    producer = queued(f, 1, report, **{"linger.ms": 60_000})  # of two, librdkafka may make two events
    before = len(producer)
    result = producer.purge()
    until(lambda: len(producer) == 2)
    return before, result, seen, producer.poll(WAIT_S), seen, len(producer), producer.flush(0), producer.purge(blocking=False)


@case
def messages_that_are_aborted_are_reported(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer(**{"transactional.id": f"aborts-{f.topic}", "linger.ms": 5_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(f.topic, b"v", partition=0, on_delivery=lambda error, m: seen.append((error.name(), m.value())))
    producer.abort_transaction(WAIT_S)
    producer.poll(0)
    return seen, len(producer)


@case
def times_that_brokers_give(f: Face) -> Any:
    seen: list[Any] = []
    topic = f"{f.topic}-appended"
    with KafkaAdminClient(bootstrap_servers=f.servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs={"message.timestamp.type": "LogAppendTime"})]).check()
    producer = f.producer()
    producer.produce(topic, b"v", timestamp=1_700_000_000_000, on_delivery=lambda error, m: seen.append(m.timestamp()))
    producer.flush(WAIT_S)
    consumer = f.consumer()
    consumer.assign([f.k.TopicPartition(topic, 0)])
    (message,) = f.read(consumer, 1)
    return [kind for kind, _ in seen], message.timestamp()[0], seen == [message.timestamp()]


@case
def headers_of_all_kinds(f: Face) -> Any:
    producer = f.producer()
    for headers in ({"a": "text", "b": b"bytes", "c": None}, [("a", "1"), ("a", "2")], [], {}, None):
        producer.produce(f.topic, b"v", partition=0, headers=headers)
    refused = [f.raised(lambda each=each: producer.produce(f.topic, b"v", headers=each)) for each in ({"a": 1}, [("a", 1.5)])]  # type: ignore[misc]
    producer.flush(WAIT_S)
    return refused, [m.headers() for m in f.read(f.reader(), 5)]


@case
def arguments_of_other_types(f: Face) -> Any:
    producer = f.producer()
    calls: list[dict[str, Any]] = [
        {"key": bytearray(b"k")}, {"value": memoryview(b"v")}, {"partition": None}, {"timestamp": None}, {"partition": -2}, {"no_such": 1},
    ]  # fmt: skip
    producer.produce(f.topic, b"v")
    producer.flush(WAIT_S)
    return [f.raised(lambda each=each: producer.produce(f.topic, **({"value": b"v"} | each))) for each in calls]  # type: ignore[misc]


@case
def a_broker_that_cannot_be_reached(f: Face) -> Any:
    seen: list[Any] = []
    main = threading.current_thread()

    def failed(error: Any) -> None:
        seen.append((error.name(), error.fatal(), error.retriable(), threading.current_thread() is main))

    producer = f.k.Producer({"bootstrap.servers": NOBODY, "error_cb": failed})
    before = len(seen)
    until(lambda: len({each[0] for each in seen}) == 2, "both errors come", producer)
    return before, seen[:2]


@case
def credentials_that_are_set(f: Face) -> Any:
    found = []
    for client in (f.producer(), f.consumer()):
        found += [
            client.set_sasl_credentials("alice", "secret"), f.raised(lambda c=client: c.set_sasl_credentials("alice", 5)),  # type: ignore[misc]
            f.raised(lambda c=client: c.set_sasl_credentials("alice")),  # type: ignore[misc]
        ]  # fmt: skip
    return found


@case
def watermarks_beside_an_open_transaction(f: Face) -> Any:
    f.fill(2)
    producer = f.producer(**{"transactional.id": f"open-{f.topic}"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(f.topic, b"v", partition=0)
    producer.flush(WAIT_S)
    consumer = f.reader()
    unknown = consumer.get_watermark_offsets(f.tp(1), cached=True)
    f.read(consumer, 2)
    found = consumer.get_watermark_offsets(f.tp(), cached=True), consumer.get_watermark_offsets(f.tp(), timeout=WAIT_S)
    producer.abort_transaction(WAIT_S)
    return unknown, found


@case
def partitions_that_are_added_and_taken_away(f: Face) -> Any:
    f.fill(2, 0)
    f.fill(3, 1)
    consumer = f.reader(f.tp(0, 0))
    first = [(m.partition(), m.offset()) for m in f.read(consumer, 2)]
    consumer.incremental_assign([f.tp(1, 1)])
    both = [p.partition for p in consumer.assignment()]
    more = [(m.partition(), m.offset()) for m in f.read(consumer, 2)]
    consumer.incremental_unassign([f.tp(0)])
    left = [p.partition for p in consumer.assignment()]
    consumer.unassign()
    return first, both, more, left, consumer.assignment(), consumer.poll(0.05)


@case
def incremental_rebalance_callbacks(f: Face) -> Any:
    f.fill(2)
    seen: list[Any] = []

    def assigned(consumer: Any, partitions: list[Any]) -> None:
        seen.append(("assign", [p.partition for p in partitions]))
        consumer.incremental_assign(partitions)

    def revoked(consumer: Any, partitions: list[Any]) -> None:
        seen.append(("revoke", [p.partition for p in partitions]))
        consumer.incremental_unassign(partitions)

    consumer = f.consumer(**{"partition.assignment.strategy": "cooperative-sticky"})
    consumer.subscribe([f.topic], on_assign=assigned, on_revoke=revoked)
    offsets = [m.offset() for m in f.read(consumer, 2)]
    consumer.unsubscribe()
    consumer.poll(0.1)
    return offsets, seen, consumer.assignment()


@case
def a_callback_of_a_rebalance_that_raises(f: Face) -> Any:
    def assigned(consumer: Any, partitions: list[Any]) -> None:
        raise ValueError("of the callback")

    consumer = f.consumer()
    consumer.subscribe([f.topic], on_assign=assigned)

    def poll() -> Any:
        found = f.raised(lambda: consumer.poll(0.5))
        return None if found == ("gave", None) else found

    return until(poll, "the error of the callback")


@case
def a_topic_that_does_not_exist(f: Face) -> Any:
    consumer = f.consumer()
    consumer.subscribe([f"{f.topic}-no-such"])
    (found,) = f.read(consumer, 1)
    return found.error().name(), found.topic(), bool(found.value())


@case
def an_offset_that_is_not_there(f: Face) -> Any:
    f.fill(2)
    strict = f.reader(f.tp(0, 100), **{"auto.offset.reset": "error"})
    (failed,) = f.read(strict, 1)
    lenient = f.reader(f.tp(0, 100))
    return failed.error().name(), failed.topic(), failed.partition(), [m.offset() for m in f.read(lenient, 2)]


@case
def partitions_without_an_offset(f: Face) -> Any:
    """Each is a message with an error; the others are read."""
    f.fill(2, 0)
    consumer = f.reader(f.tp(0, 0), f.tp(1, f.k.OFFSET_STORED), **{"auto.offset.reset": "error"})
    values: list[Any] = []
    failed: set[Any] = set()
    for message in f.read(consumer, 3):
        if message.error() is None:
            values.append(message.value())
        else:
            failed.add((message.error().name(), message.topic(), message.partition()))
    return values, failed


@case
def topics_by_a_pattern(f: Face) -> Any:
    f.fill(2)
    consumer = f.consumer()
    consumer.subscribe([f"^{f.topic[:-2]}.*"])
    return sorted(m.offset() for m in f.read(consumer, 2))


@case
def a_consumer_before_and_after_it_joined(f: Face) -> Any:
    f.fill(1)
    consumer = f.consumer()
    before = consumer.consumer_group_metadata() is not None, consumer.committed([f.tp(1)], timeout=WAIT_S)[0].offset
    consumer.subscribe([f.topic])
    f.read(consumer, 1)
    member = consumer.memberid()
    return before, isinstance(member, str) and len(member) > 10, consumer.consumer_group_metadata() is not None


@case
def blocks_that_close(f: Face) -> Any:
    seen: list[Any] = []
    with f.k.Producer({"bootstrap.servers": f.servers}) as producer:
        producer.produce(f.topic, b"v", partition=0, on_delivery=lambda error, m: seen.append(m.offset()))
    base = {"bootstrap.servers": f.servers, "group.id": f.topic, "auto.offset.reset": "earliest"}
    with f.k.Consumer(base) as consumer:
        consumer.assign([f.tp()])
        found = [m.value() for m in f.read(consumer, 1)]
    closed = (lambda: producer.flush(0), lambda: producer.list_topics(timeout=5), lambda: producer.cluster_id(timeout=5))
    return seen, found, [f.raised(call) for call in (*closed, lambda: consumer.consume(1, 0))]


@case
def assignments_that_are_refused(f: Face) -> Any:
    consumer = f.reader(f.tp(0, 0))
    again = f.raised(lambda: consumer.incremental_assign([f.tp(0, 0)]))
    absent = f.raised(lambda: consumer.incremental_unassign([f.tp(1)]))
    left = [p.partition for p in consumer.assignment()]
    twice = f.raised(lambda: consumer.assign([f.tp(0, 0), f.tp(0, 1)]))
    return again, absent, left, twice, f.raised(lambda: consumer.subscribe([]))


@case
def topics_after_assigned_partitions(f: Face) -> Any:
    f.fill(2)
    consumer = f.reader(f.tp(0, 1))
    first = [m.offset() for m in f.read(consumer, 1)]
    consumer.subscribe([f.topic])
    f.fill(1)
    return first, [m.offset() for m in f.read(consumer, 1)]


@case
def partitions_that_no_topic_has(f: Face) -> Any:
    consumer = f.consumer()
    absent = f.k.TopicPartition(f"{f.topic}-no-such", 0, 0)
    return [
        f.raised(lambda: consumer.get_watermark_offsets(absent, timeout=1)),
        f.raised(lambda: consumer.offsets_for_times([absent], timeout=1)),
        f.raised(lambda: consumer.get_watermark_offsets(f.k.TopicPartition(f.topic, 99), timeout=1)),
    ]


@case
def switches_that_are_neither_on_nor_off(f: Face) -> Any:
    texts = ("maybe", "", "yes", "on", "T", "False", "0", "f", 2)
    return [f.raised(lambda text=text: f.consumer(**{"enable.auto.commit": text}) and text) for text in texts]
