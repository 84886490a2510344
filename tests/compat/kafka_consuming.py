"""What programs do with kafka-python's consumer."""

from __future__ import annotations

import warnings
from typing import Any

from tests.compat.both_packages import case
from tests.compat.kafka_face import NOW_MS, Face


@case
def fields_and_sizes_of_a_record(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, b"value", b"key", [("h", b"1"), ("h", b"")], 1, NOW_MS).get(60)
    producer.send(k.topic, None, b"key", partition=0)
    producer.send(k.topic, b"", partition=0)
    producer.send(k.topic, "ä€".encode(), "ü".encode(), [("größe", "ü".encode()), ("leer", b"")], 0)
    producer.flush(20)
    record = k.polled(k.reader(1), 1)[0]
    return (
        [each[-3:] for each in k.polled(k.reader(), 3)],
        record._fields,
        tuple(record),
        record.timestamp,
        record.headers,
        record[3:5],
        len(record),
        record._asdict() == dict(zip(record._fields, record, strict=True)),
    )


@case
def a_loop(k: Face) -> Any:
    """The position follows it; it ends in time."""
    k.fill(10)
    reader = k.reader(consumer_timeout_ms=1_000)
    seen = []
    for record in reader:
        seen.append((record.offset, reader.position(k.tp())))
        if record.offset == 3:
            reader.seek(k.tp(), 6)
        if record.offset == 7:
            break
    first = next(reader)
    position = reader.position(k.tp())
    return seen, first.offset, position, [record.offset for record in reader], k.raised(lambda: next(reader))


@case
def seeking(k: Face) -> Any:
    k.fill(10)
    reader = k.reader()
    reader.seek(k.tp(), 7)
    found = [reader.position(k.tp()), [record.offset for record in k.polled(reader, 3)]]
    reader.seek_to_beginning()
    found.append(reader.position(k.tp()))
    reader.seek_to_end(k.tp())
    found.append(reader.position(k.tp()))
    empty = k.consumer()
    refused = (
        lambda: reader.seek(k.tp(), -1), lambda: reader.seek(k.tp(), "1"), lambda: reader.seek((k.topic, 0), 1),
        lambda: reader.seek(k.tp(1), 1), lambda: reader.seek_to_beginning(k.tp(1)), lambda: reader.seek_to_end("x"),
        lambda: empty.seek_to_end(), lambda: reader.position(k.tp(1)), lambda: reader.position((k.topic, 0)),
        lambda: reader.highwater(k.tp(1)), lambda: reader.pause((k.topic, 0)), lambda: reader.pause(k.tp(1)),
    )  # fmt: skip
    return found, [k.raised(call) for call in refused]


@case
def pausing(k: Face) -> Any:
    k.fill(3, 0)
    k.fill(3, 1)
    reader = k.reader(0, 1)
    reader.pause(k.tp(0))
    paused = reader.paused()
    first = [record.partition for record in k.polled(reader, 3)]
    quiet = reader.poll(300)
    reader.resume(k.tp(0))
    return len(paused), first, quiet, [record.partition for record in k.polled(reader, 3)], reader.paused()


@case
def polls_of_few(k: Face) -> Any:
    k.fill(10)
    reader = k.reader(max_poll_records=4)
    water = [reader.highwater(k.tp())]
    sizes = []
    while sum(sizes) < 10:
        sizes += [len(records) for records in reader.poll(1_000).values()]
    water.append(reader.highwater(k.tp()))
    reader.seek(k.tp(), 0)
    first = []
    while not first:
        first = [record.offset for records in reader.poll(1_000, max_records=2).values() for record in records]
    wrong = [
        k.raised(call) for call in (lambda: reader.poll(-1), *(lambda most=most: reader.poll(0, max_records=most) for most in (0, "1")))
    ]
    reader.close()
    reader.close()
    return water, sizes, first, wrong, k.raised(lambda: reader.poll(0)), k.raised(lambda: next(reader))


@case
def offsets_by_time(k: Face) -> Any:
    k.fill(5)
    reader = k.consumer()
    wanted = (0, NOW_MS + 1, NOW_MS + 3_000, NOW_MS + 9_000)
    found = [reader.offsets_for_times({k.tp(): at})[k.tp()] for at in wanted]
    bounds = [reader.beginning_offsets([k.tp(), k.tp(1)]), reader.end_offsets([k.tp(), k.tp(1)])]
    return (
        [None if each is None else (each._fields, tuple(each)) for each in found],
        [sorted(each.values()) for each in bounds],
        reader.offsets_for_times({}),
        k.raised(lambda: reader.offsets_for_times({k.tp(): -1})),
    )


@case
def topics_and_partitions(k: Face) -> Any:
    reader = k.consumer()
    topics = reader.topics()
    return (
        k.topic in topics,
        [t for t in topics if t.startswith("__")],
        reader.partitions_for_topic(k.topic),
        reader.partitions_for_topic(k.topic + "-absent"),
    )


@case
def forms_of_commits(k: Face) -> Any:
    k.fill(10)
    consumer = k.consumer(group_id=k.group, enable_auto_commit=False)
    consumer.assign([k.tp()])
    nothing = consumer.committed(k.tp())
    consumer.poll(5_000, max_records=1)
    consumer.seek(k.tp(), 4)
    consumer.commit()
    first = consumer.committed(k.tp())
    consumer.commit({k.tp(): k.package.OffsetAndMetadata(7, "note", -1)})
    second = consumer.committed(k.tp(), metadata=True)
    return nothing, first, second._fields, tuple(second)


@case
def a_callback_for_all_commits(k: Face) -> Any:
    k.fill(3)
    heard: list[Any] = []

    def callback(offsets: Any, response: Any) -> None:
        heard.append(
            (sorted((tp.partition, at.offset, at.metadata) for tp, at in offsets.items() if tp == k.tp()), isinstance(response, Exception))
        )

    consumer = k.consumer(k.topic, group_id=k.group, auto_commit_interval_ms=100, default_offset_commit_callback=callback)
    k.polled(consumer, 3)
    for _ in range(100):
        consumer.poll(100)
        if heard and heard[-1][0] and heard[-1][0][0][1] == 3:
            break
    return heard[-1]


@case
def commits_of_the_program_are_not_for_the_callback_of_all(k: Face) -> Any:
    k.fill(3)
    heard: list[Any] = []
    consumer = k.consumer(
        group_id=k.group,
        enable_auto_commit=False,
        default_offset_commit_callback=lambda offsets, _: heard.append([at.offset for at in offsets.values()]),
    )
    consumer.assign([k.tp()])

    def until(count: int) -> list[Any]:
        for _ in range(100):
            consumer.poll(50)
            if len(heard) >= count:
                break
        return list(heard)

    consumer.commit({k.tp(): k.package.OffsetAndMetadata(1, "", -1)})

    def own_callback(offsets: Any, response: Any) -> None:
        heard.append(([at.offset for at in offsets.values()], isinstance(response, Exception)))

    consumer.commit_async({k.tp(): k.package.OffsetAndMetadata(2, "", -1)}, own_callback)
    own = until(1)
    future = consumer.commit_async({k.tp(): k.package.OffsetAndMetadata(3, "", -1)})
    return own, until(2), future.succeeded(), consumer.committed(k.tp())


@case
def commits_without_a_group(k: Face) -> Any:
    reader = k.reader()
    return [
        k.raised(lambda: reader.commit()),
        k.raised(lambda: reader.commit_async()),
        k.raised(lambda: reader.committed(k.tp())),
        tuple(reader.group_metadata()),
    ]


@case
def a_group_goes_on_where_it_was(k: Face) -> Any:
    k.fill(10)
    with k.consumer(k.topic, group_id=k.group) as first:
        seen = [next(first).offset for _ in range(6)]
    with k.consumer(k.topic, group_id=k.group) as second:
        return seen, next(second).offset, second.committed(k.tp())


@case
def listeners(k: Face) -> Any:
    k.fill(2)
    heard: list[Any] = []

    class Listener(k.package.ConsumerRebalanceListener):  # type: ignore[name-defined]
        def on_partitions_revoked(self, revoked: Any) -> None:
            heard.append(("revoked", sorted(tp.partition for tp in revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            heard.append(("assigned", sorted(tp.partition for tp in assigned)))

    consumer = k.consumer(group_id=k.group)
    consumer.subscribe([k.topic], listener=Listener())
    k.polled(consumer, 2)
    state = consumer.group_metadata()
    consumer.close()
    return [each for each in heard if each[1]], state.group_id == k.group, state.state, len(state.member_id) > 0


@case
def subscriptions(k: Face) -> Any:
    consumer = k.consumer()
    found: list[Any] = [consumer.subscription(), consumer.assignment()]
    found.append(k.raised(lambda: consumer.subscribe()))
    found.append(k.raised(lambda: consumer.subscribe([k.topic], pattern="x")))
    found.append(k.raised(lambda: consumer.subscribe(k.topic)))
    found.append(k.raised(lambda: consumer.subscribe([k.topic], listener=object())))
    consumer.unsubscribe()
    consumer.subscribe([k.topic])
    found.append(consumer.subscription() == {k.topic})
    found.append(k.raised(lambda: consumer.assign([k.tp()])))
    consumer.unsubscribe()
    found.append(consumer.subscription())
    consumer.assign([k.tp(), k.tp(1)])
    found.append([len(consumer.assignment()), consumer.subscription()])
    found.append(k.raised(lambda: consumer.subscribe([k.topic])))
    consumer.assign([])
    found.append(consumer.assignment())
    return found


@case
def a_pattern_matches_the_beginning(k: Face) -> Any:
    k.fill(2)
    consumer = k.consumer(group_id=k.group)
    heard: list[Any] = []

    class Listener(k.package.ConsumerRebalanceListener):  # type: ignore[name-defined, misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            heard.append(k.tp() in assigned)

    consumer.subscribe(pattern=f"^{k.topic[:-2]}", listener=Listener())
    return [record.value for record in k.polled(consumer, 2)], heard[-1]


@case
def a_deserializer_sees_headers(k: Face) -> Any:
    class Tagged(k.serializer.Deserializer):  # type: ignore[name-defined]
        def deserialize(self, topic: str, headers: Any, data: Any) -> Any:
            return headers, data

        def close(self) -> None:
            closed.append(self)

    closed: list[Any] = []
    k.fill(1, headers=[("h", b"1")])
    reader = k.reader(value_deserializer=Tagged(), key_deserializer=Tagged())
    reader.close()
    reader.close()
    record = k.polled(k.reader(value_deserializer=Tagged()), 1)[0]
    return len(closed), record.value, record.key, record.serialized_value_size, next(k.reader(value_deserializer=Tagged())).value


@case
def a_deserializer_that_fails(k: Face) -> Any:
    def failing(data: bytes) -> bytes:
        if data == b"v2":
            raise LookupError("v2")
        return data

    k.fill(4)
    reader = k.reader(value_deserializer=failing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = [record.value for record in k.polled_until_error(reader)]
        return before, k.raised(lambda: k.polled(reader, 1))


@case
def a_partition_without_an_offset(k: Face) -> Any:
    """A seek mends it. (That others have one, kafka-python does not count.)"""
    k.fill(3)
    alone = k.reader(auto_offset_reset="none", group_id=k.group)
    polled = k.raised(lambda: [alone.poll(2_000) for _ in range(5)])
    reader = k.reader(0, 1, auto_offset_reset="none", group_id=k.group)
    reader.seek(k.tp(), 1)
    failed = k.raised(lambda: reader.position(k.tp(1)))
    reader.seek(k.tp(1), 0)
    return polled, failed, reader.position(k.tp()), [record.value for record in k.polled(reader, 2)]


@case
def metrics_by_group_and_name(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, b"v").get(60)
    found = producer.metrics()
    return "producer-metrics" in found, found["producer-metrics"]["request-rate"] >= 0, k.producer(metrics_enabled=False).metrics()


@case
def what_a_consumer_refuses(k: Face) -> Any:
    reader = k.reader(group_id=k.group)
    lost: list[Any] = []

    class Listener(k.package.ConsumerRebalanceListener):  # type: ignore[name-defined, misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            lost.append(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    Listener().on_partitions_lost({1})
    return lost, k.raised(lambda: reader.committed((k.topic, 0))), reader.committed(k.tp()), reader.committed(k.tp(), metadata=True)
