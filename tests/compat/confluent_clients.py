"""Programs that run over confluent-kafka and over kafkacore.compat.confluent: a producer, a consumer, both."""

from __future__ import annotations

import functools
import threading
from typing import Any

from kafkacore import KafkaAdminClient, NewTopic
from kafkacore.testing import EmbeddedCluster
from tests.compat.both_packages import case
from tests.compat.confluent_face import NOW_MS, WAIT_S, Face
from tests.kit.waiting import until


@case
def delivery_callbacks_come_from_poll_in_order(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer()
    for nth in range(20):
        producer.produce(
            f.topic, b"%d" % nth, "key", 0, timestamp=NOW_MS, headers={"a": "b"},
            on_delivery=lambda error, m: seen.append((
                error, m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp(), m.error(), len(m),
                m.latency() > 0, m.leader_epoch(), threading.current_thread() is threading.main_thread(),
            )),
        )  # fmt: skip
    before = len(seen), len(producer) > 0
    left = producer.flush(WAIT_S)
    return before, left, len(producer), seen


@case
def a_full_queue_is_a_buffer_error(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer(**{"queue.buffering.max.messages": 3, "linger.ms": 60_000})
    producer.list_topics(f.topic, timeout=WAIT_S)
    outcomes = [f.raised(lambda: producer.produce(f.topic, b"v", partition=0, on_delivery=lambda e, m: seen.append(e))) for _ in range(5)]
    return outcomes, producer.flush(WAIT_S), seen, f.raised(lambda: producer.produce(f.topic, b"v", partition=0))


@case
def only_errors_are_reported(f: Face) -> Any:
    seen: list[Any] = []
    producer = f.producer(**{"delivery.report.only.error": True})
    producer.produce(f.topic, b"v", on_delivery=lambda error, m: seen.append(m))
    return producer.flush(WAIT_S), seen


@case
def arguments_that_are_refused(f: Face) -> Any:
    producer = f.producer()
    producer.produce(f.topic, b"v")
    producer.flush(WAIT_S)
    found = [
        f.raised(lambda: producer.produce(f.topic, 5)),
        f.raised(lambda: producer.produce(f.topic, b"v", partition=9)),
        f.raised(lambda: producer.produce(f.topic, b"v" * 2_000_000)),
        f.raised(lambda: producer.produce(f.topic, b"v", headers=[("a", 1)])),
        f.raised(producer.begin_transaction),
    ]
    producer.close()
    return [*found, f.raised(lambda: producer.produce(f.topic, b"v")), f.raised(lambda: producer.poll(0)), len(producer)]


@case
def settings_that_are_refused(f: Face) -> Any:
    return [
        f.raised(lambda: f.k.Producer({"bootstrap.servers": f.servers, "no.such": 1})),
        f.raised(lambda: f.k.Producer({"bootstrap.servers": f.servers, "linger.ms": -1})),
        f.raised(lambda: f.k.Producer({"bootstrap.servers": f.servers, "linger.ms": "x"})),
        f.raised(lambda: f.k.Producer({"bootstrap.servers": f.servers, "error_cb": 3})),
        f.raised(lambda: f.k.Producer({"bootstrap.servers": f.servers, "enable.idempotence": True, "acks": 1})),
        f.raised(lambda: f.k.Consumer({"bootstrap.servers": f.servers})),
        f.raised(lambda: f.k.Consumer({"bootstrap.servers": f.servers, "group.id": "g", "auto.offset.reset": "what"})),
    ]


@case
def a_message_as_it_is_read_and_changed(f: Face) -> Any:
    producer = f.producer()
    producer.produce(f.topic, b"v", b"k", 0, timestamp=NOW_MS, headers=[("a", b"1"), ("a", None), ("b", "2")])
    producer.produce(f.topic, None, None, 0, timestamp=NOW_MS + 1)
    producer.flush(WAIT_S)
    found = f.read(f.reader(), 2)
    shown = [
        (m.error(), m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp(), m.latency(), m.leader_epoch(),
         m.delivery_count(), len(m), isinstance(m, f.k.Message))
        for m in found
    ]  # fmt: skip
    message = found[0]
    message.set_value({"a": 1})
    message.set_key("new")
    message.set_headers([("h", b"1")])
    message.set_error(f.k.KafkaError(1))
    return shown, message.value(), message.key(), message.headers(), message.error().code(), message.offset(), message.deserialized_value()


@case
def the_end_of_a_partition(f: Face) -> Any:
    f.fill(2)
    consumer = f.reader(f.tp(0), f.tp(1), **{"enable.partition.eof": True})
    found = f.read(consumer, 4)
    ends = sorted((m.topic(), m.partition(), m.offset(), m.error().name()) for m in found if m.error())
    nothing = consumer.poll(0.1)
    consumer.seek(f.tp(0, 2))
    again = [(m.offset(), m.error().name()) for m in f.read(consumer, 1)]
    f.fill(1)
    more = [(m.offset(), m.error() and m.error().name()) for m in f.read(consumer, 2)]
    return [m.value() for m in found if not m.error()], ends, nothing, again, more


@case
def consume_gives_lists(f: Face) -> Any:
    f.fill(5)
    consumer = f.reader()
    first = [m.value() for m in consumer.consume(3, WAIT_S)]
    return first, [m.value() for m in consumer.consume(10, 0.5)], f.raised(lambda: consumer.consume(-1)), consumer.consume(0)


@case
def places_and_pauses(f: Face) -> Any:
    f.fill(5)
    consumer = f.reader(f.tp(0, 3))
    found: list[Any] = [[m.offset() for m in f.read(consumer, 2)]]
    consumer.assign([f.tp(0, f.k.OFFSET_BEGINNING)])
    found.append([p.offset for p in consumer.position([f.tp()])])
    found.append([m.offset() for m in f.read(consumer, 2)])
    found.append([p.offset for p in consumer.position([f.tp()])])
    consumer.seek(f.tp(0, 4))
    found.append([m.offset() for m in f.read(consumer, 1)])
    consumer.seek(f.tp(0, 1))
    consumer.pause([f.tp()])
    found.append(consumer.poll(0.2))
    consumer.resume([f.tp()])
    found.append([m.offset() for m in f.read(consumer, 4)])
    return found, [(p.topic, p.partition) for p in consumer.assignment()], f.raised(lambda: consumer.seek(f.tp(1, 0)))


@case
def forms_of_commits(f: Face) -> Any:
    f.fill(5)
    consumer = f.reader(**{"enable.auto.commit": False})
    nothing = f.raised(lambda: consumer.commit(asynchronous=False))
    messages = f.read(consumer, 3)
    by_message = consumer.commit(message=messages[0], asynchronous=False)
    all_read = consumer.commit(asynchronous=False)
    by_offset = consumer.commit(offsets=[f.tp(0, 5)], asynchronous=False)
    found = [(p.topic, p.partition, p.offset) for each in (by_message, all_read, by_offset) for p in each]
    return (
        nothing, found, [p.offset for p in consumer.committed([f.tp(0), f.tp(1)], timeout=WAIT_S)],
        f.raised(lambda: consumer.commit(message=messages[0], offsets=[])), f.raised(lambda: consumer.commit(message=3)),
    )  # fmt: skip


@case
def commits_without_waiting(f: Face) -> Any:
    f.fill(2)
    seen: list[Any] = []
    consumer = f.reader(**{"enable.auto.commit": False, "on_commit": lambda error, ps: seen.append((error, [p.offset for p in ps]))})
    f.read(consumer, 2)
    result = consumer.commit()
    until(lambda: seen, "the callback is called", consumer)
    waited_for = [p.offset for p in consumer.commit(offsets=[f.tp(0, 1)], asynchronous=False)]  # has none
    consumer.poll(0.1)
    return result, waited_for, seen


@case
def stored_offsets(f: Face) -> Any:
    f.fill(5)
    consumer = f.reader(**{"enable.auto.offset.store": False, "enable.auto.commit": False})
    messages = f.read(consumer, 5)
    nothing = f.raised(lambda: consumer.commit(asynchronous=False))
    consumer.store_offsets(message=messages[1])
    first = [p.offset for p in consumer.commit(asynchronous=False)]
    consumer.store_offsets(offsets=[f.tp(0, 4)])
    other = f.raised(lambda: f.reader().store_offsets(message=messages[0]))
    return nothing, first, [p.offset for p in consumer.commit(asynchronous=False)], f.raised(consumer.store_offsets), other


@case
def offsets_of_two_partitions_are_stored_one_after_the_other(f: Face) -> Any:
    for partition in (0, 1):
        f.fill(3, partition)
    consumer = f.reader(f.tp(0, 0), f.tp(1, 0), **{"enable.auto.offset.store": False, "enable.auto.commit": False})
    f.read(consumer, 6)
    for each in (f.tp(0, 3), f.tp(1, 2), f.tp(0, 1)):
        consumer.store_offsets(offsets=[each])
    return sorted((p.partition, p.offset) for p in consumer.commit(asynchronous=False))


@case
def stored_offsets_go_with_their_assignment(f: Face) -> Any:
    for partition in (0, 1):
        f.fill(3, partition)
    found = []
    for leave in (
        lambda consumer: consumer.assign([f.tp(1, 0)]),
        lambda consumer: consumer.unassign(),
        lambda consumer: (consumer.incremental_assign([f.tp(1, 0)]), consumer.incremental_unassign([f.tp(0)])),
    ):
        consumer = f.reader(f.tp(0, 0), **{"enable.auto.offset.store": False, "enable.auto.commit": False})
        f.read(consumer, 3)
        consumer.store_offsets(offsets=[f.tp(0, 2)])
        leave(consumer)
        found.append(f.raised(lambda consumer=consumer: [(p.partition, p.offset) for p in consumer.commit(asynchronous=False)]))  # type: ignore[misc]
    return found


@case
def what_is_left_by_an_assignment_is_committed(f: Face) -> Any:
    """With automatic commits, long before their interval has passed."""
    for partition in (0, 1):
        f.fill(3, partition)
    found = []
    for more in ({}, {"enable.auto.offset.store": False}):
        for leave in (
            lambda consumer: consumer.assign([f.tp(1, 0)]),
            lambda consumer: consumer.unassign(),
            lambda consumer: consumer.incremental_unassign([f.tp(0)]),
        ):
            consumer = f.reader(f.tp(0, 0), **more, **{"group.id": f"{f.topic}-{len(found)}", "auto.commit.interval.ms": 60_000})
            f.read(consumer, 3)
            if more:
                consumer.store_offsets(offsets=[f.tp(0, 2)])
            leave(consumer)
            until(lambda: consumer.committed([f.tp(0)], timeout=WAIT_S)[0].offset >= 0, "it is committed", consumer)  # noqa: B023
            found.append(consumer.committed([f.tp(0)], timeout=WAIT_S)[0].offset)
    return found


@case
def an_offset_is_committed_again_by_a_member_that_comes_back(f: Face) -> Any:
    """Meanwhile the group's offset was set to another one."""
    f.fill(2)
    consumer, other = f.consumer(**{"enable.auto.commit": False}), f.reader()
    found = []
    for _ in range(2):
        consumer.subscribe([f.topic])
        f.read(consumer, 2)
        found.append([p.offset for p in consumer.commit(asynchronous=False) if p.offset >= 0])
        consumer.unsubscribe()
        commit = functools.partial(other.commit, offsets=[f.tp(0, 0)], asynchronous=False)
        until(lambda: f.raised(commit)[0] == "gave", "the member has left", consumer)  # noqa: B023
    return found


@case
def rebalance_callbacks(f: Face) -> Any:
    f.fill(3)
    seen: list[Any] = []

    def assigned(consumer: Any, partitions: list[Any]) -> None:
        seen.append(("assign", [p.partition for p in partitions]))
        for each in partitions:
            each.offset = 1
        consumer.assign(partitions)

    consumer = f.consumer()
    consumer.subscribe([f.topic], on_assign=assigned, on_revoke=lambda c, ps: seen.append(("revoke", [p.partition for p in ps])))
    offsets = [m.offset() for m in f.read(consumer, 2)]
    consumer.close()
    return offsets, seen, f.raised(lambda: consumer.poll(0)), consumer.close()


@case
def offsets_by_time_and_watermarks(f: Face) -> Any:
    f.fill(3)
    consumer = f.reader()
    times = consumer.offsets_for_times([f.tp(0, NOW_MS + 1), f.tp(1, NOW_MS)], timeout=WAIT_S)
    return [p.offset for p in times], consumer.get_watermark_offsets(f.tp(), timeout=WAIT_S)


@case
def transactions(f: Face) -> Any:
    producer = f.producer(**{"transactional.id": f"tx-{f.topic}"})
    early = f.raised(producer.begin_transaction)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(f.topic, b"lost", partition=0)
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)
    consumer = f.reader(**{"enable.auto.commit": False})
    producer.begin_transaction()
    producer.produce(f.topic, b"kept", partition=0)
    producer.send_offsets_to_transaction([f.tp(1, 7)], consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    return early, [m.value() for m in f.read(consumer, 1)], [p.offset for p in consumer.committed([f.tp(1)], timeout=WAIT_S)]


@case
def flush_says_what_is_left_when_the_broker_is_gone(f: Face) -> Any:
    seen: list[Any] = []
    with EmbeddedCluster() as own:
        f.servers = own.bootstrap_servers
        with KafkaAdminClient(bootstrap_servers=f.servers) as admin:
            admin.create_topics([NewTopic(f.topic, 1, 1)]).check()
        producer = f.producer(**{"message.timeout.ms": 1500})
        producer.produce(f.topic, b"v", partition=0)
        before = producer.flush(WAIT_S)
    producer.produce(f.topic, b"v", partition=0, on_delivery=lambda error, m: seen.append(error.name()))
    return before, producer.flush(0.05), producer.flush(WAIT_S), seen


@case
def a_list_of_messages(f: Face) -> Any:
    producer = f.producer()
    messages: list[Any] = [{"value": b"a", "key": b"k"}, {"value": b"b", "partition": 0}, {"value": b"c" * 2_000_000}]
    queued = producer.produce_batch(f.topic, messages, partition=0)
    producer.flush(WAIT_S)
    errors = [each["_error"].name() if "_error" in each else None for each in messages]
    return queued, errors, [m.value() for m in f.read(f.reader(), 2)]


@case
def stored_offsets_are_committed_at_the_end(f: Face) -> Any:
    f.fill(5)
    consumer = f.consumer(**{"enable.auto.offset.store": False})
    consumer.subscribe([f.topic])
    messages = f.read(consumer, 5)
    consumer.store_offsets(message=messages[2])
    consumer.close()
    return [p.offset for p in f.consumer().committed([f.tp()], timeout=WAIT_S)]
