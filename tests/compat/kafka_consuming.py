"""What programs do with kafka-python's consumer."""

from __future__ import annotations

import warnings
from typing import Any

from tests.compat.both_packages import case
from tests.compat.kafka_face import NOW_MS, Face


@case
def fields_of_a_record(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, b"value", b"key", [("h", b"1"), ("h", b"")], 1, NOW_MS).get(60)
    record = k.polled(k.reader(1), 1)[0]
    return (
        record._fields,
        tuple(record),
        record.timestamp,
        record.headers,
        record[3:5],
        len(record),
        record._asdict() == dict(zip(record._fields, record, strict=True)),
    )


@case
def sizes_of_a_record(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, None, b"key", partition=0)
    producer.send(k.topic, b"", partition=0)
    producer.send(k.topic, "ä€".encode(), "ü".encode(), [("größe", "ü".encode()), ("leer", b"")], 0)
    producer.flush(20)
    return [record[-3:] for record in k.polled(k.reader(), 3)]


@case
def iteration_ends_in_time(k: Face) -> Any:
    k.fill(5)
    reader = k.reader(consumer_timeout_ms=1_000)
    first = next(reader)
    rest = list(reader)
    again = list(reader)
    return first.offset, [record.offset for record in rest], again, k.raised(lambda: next(reader))


@case
def position_follows_the_loop(k: Face) -> Any:
    k.fill(10)
    reader = k.reader()
    seen = []
    for record in reader:
        seen.append((record.offset, reader.position(k.tp())))
        if len(seen) == 4:
            break
    return seen, next(reader).offset, reader.position(k.tp())


@case
def seek_in_a_loop(k: Face) -> Any:
    k.fill(10)
    reader = k.reader()
    seen = []
    for record in reader:
        seen.append(record.offset)
        if len(seen) == 3:
            reader.seek(k.tp(), 8)
        if record.offset == 9:
            break
    return seen


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
    return found


@case
def seeks_that_are_refused(k: Face) -> Any:
    reader = k.reader()
    empty = k.consumer()
    return [
        k.raised(lambda: reader.seek(k.tp(), -1)),
        k.raised(lambda: reader.seek(k.tp(), "1")),
        k.raised(lambda: reader.seek((k.topic, 0), 1)),
        k.raised(lambda: reader.seek(k.tp(1), 1)),
        k.raised(lambda: reader.seek_to_beginning(k.tp(1))),
        k.raised(lambda: reader.seek_to_end("x")),
        k.raised(lambda: empty.seek_to_end()),
        k.raised(lambda: reader.position(k.tp(1))),
        k.raised(lambda: reader.position((k.topic, 0))),
        k.raised(lambda: reader.highwater(k.tp(1))),
        k.raised(lambda: reader.pause((k.topic, 0))),
        k.raised(lambda: reader.pause(k.tp(1))),
    ]


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
    sizes = []
    while sum(sizes) < 10:
        sizes += [len(records) for records in reader.poll(1_000).values()]
    reader.seek(k.tp(), 0)
    first = []
    while not first:
        first = [record.offset for records in reader.poll(1_000, max_records=2).values() for record in records]
    return sizes, first


@case
def polls_that_are_refused(k: Face) -> Any:
    reader = k.reader()
    found = [
        k.raised(lambda: reader.poll(-1)),
        k.raised(lambda: reader.poll(0, max_records=0)),
        k.raised(lambda: reader.poll(0, max_records="1")),
    ]
    reader.close()
    reader.close()
    return found, k.raised(lambda: reader.poll(0)), k.raised(lambda: next(reader))


@case
def high_water(k: Face) -> Any:
    k.fill(6)
    reader = k.reader()
    before = reader.highwater(k.tp())
    k.polled(reader, 6)
    return before, reader.highwater(k.tp())


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
def commits_without_waiting(k: Face) -> Any:
    k.fill(3)
    consumer = k.consumer(group_id=k.group, enable_auto_commit=False)
    consumer.assign([k.tp()])
    seen: list[Any] = []
    wanted = {k.tp(): k.package.OffsetAndMetadata(2, "", -1)}
    future = consumer.commit_async(wanted, lambda offsets, response: seen.append((dict(offsets), isinstance(response, Exception))))
    for _ in range(100):
        consumer.poll(100)
        if seen:
            break
    return [(at.offset, failed) for found, failed in seen for at in found.values()], future.succeeded(), consumer.committed(k.tp())


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
    consumer.commit_async({k.tp(): k.package.OffsetAndMetadata(2, "", -1)}, lambda offsets, _: heard.append("its own"))
    own = until(1)
    consumer.commit_async({k.tp(): k.package.OffsetAndMetadata(3, "", -1)})
    return own, until(2)


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
    consumer.subscribe(pattern=f"^{k.topic[:-2]}")
    return [record.value for record in k.polled(consumer, 2)]


@case
def a_deserializer_sees_headers(k: Face) -> Any:
    class Tagged(k.serializer.Deserializer):  # type: ignore[name-defined]
        def deserialize(self, topic: str, headers: Any, data: Any) -> Any:
            return headers, data

    k.fill(1, headers=[("h", b"1")])
    record = k.polled(k.reader(value_deserializer=Tagged()), 1)[0]
    return record.value, record.key, record.serialized_value_size, next(k.reader(value_deserializer=Tagged())).value


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
def no_offset_to_begin_with(k: Face) -> Any:
    k.fill(1)
    reader = k.reader(auto_offset_reset="none", group_id=k.group)
    return k.raised(lambda: [reader.poll(2_000) for _ in range(5)])


@case
def a_partition_without_an_offset(k: Face) -> Any:
    """A seek mends it. (That others have one, kafka-python does not count.)"""
    k.fill(3)
    reader = k.reader(0, 1, auto_offset_reset="none", group_id=k.group)
    reader.seek(k.tp(), 1)
    failed = k.raised(lambda: reader.position(k.tp(1)))
    reader.seek(k.tp(1), 0)
    return failed, reader.position(k.tp()), [record.value for record in k.polled(reader, 2)]


@case
def metrics_by_group_and_name(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, b"v").get(60)
    found = producer.metrics()
    return "producer-metrics" in found, found["producer-metrics"]["request-rate"] >= 0, k.producer(metrics_enabled=False).metrics()
