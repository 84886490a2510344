"""What programs do with kafka-python, as functions of the package: each gives what the program sees, so that two packages can be compared.

A case gets `Face`: the classes of one package, a cluster, and a topic of its own with two partitions.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

CASES: list[Callable[[Face], Any]] = []
NOW_MS = 1_700_000_000_000


class Face:
    """One package, and where its clients connect."""

    def __init__(self, package: str, servers: str, topic: str) -> None:
        self.package: ModuleType = importlib.import_module(package)
        self.errors = importlib.import_module(f"{package}.errors")
        self.structs = importlib.import_module(f"{package}.structs")
        self.admin_module = importlib.import_module(f"{package}.admin")
        self.serializer = importlib.import_module(f"{package}.serializer")
        self.servers, self.topic = servers, topic
        self.group = f"group-of-{topic}"
        self.opened: list[Any] = []

    def tp(self, partition: int = 0) -> Any:
        return self.package.TopicPartition(self.topic, partition)

    def _opened(self, client: Any) -> Any:
        self.opened.append(client)
        return client

    def producer(self, **settings: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kafka-python's, about serializers that are functions
            return self._opened(self.package.KafkaProducer(bootstrap_servers=self.servers, **settings))

    def consumer(self, *topics: str, **settings: Any) -> Any:
        settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 15_000, **settings}
        return self._opened(self.package.KafkaConsumer(*topics, bootstrap_servers=self.servers, **settings))

    def reader(self, *partitions: int, **settings: Any) -> Any:
        """A consumer without a group, with these partitions assigned."""
        consumer = self.consumer(**settings)
        consumer.assign([self.tp(each) for each in partitions or (0,)])
        return consumer

    def admin(self) -> Any:
        return self._opened(self.package.KafkaAdminClient(bootstrap_servers=self.servers))

    def fill(self, count: int, partition: int = 0, **more: Any) -> None:
        producer = self.producer()
        for nth in range(count):
            producer.send(self.topic, b"v%d" % nth, partition=partition, timestamp_ms=NOW_MS + nth * 1000, **more)
        producer.flush(20)

    def polled(self, consumer: Any, count: int) -> list[Any]:
        """So many records by poll, in the order of their partitions."""
        found: list[Any] = []
        for _ in range(200):
            for records in consumer.poll(500).values():
                found += records
            if len(found) >= count:
                break
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def polled_until_error(self, consumer: Any) -> list[Any]:
        """Records by poll, until one raises or four are there."""
        found: list[Any] = []
        try:
            while len(found) < 2:
                for records in consumer.poll(500).values():
                    found += records
        except LookupError:
            pass
        return found

    def raised(self, fn: Callable[[], Any]) -> str:
        """The name of what a call raises, or what it gives."""
        try:
            return f"gave {fn()!r}"
        except Exception as error:
            return type(error).__name__

    def close(self) -> None:
        for client in reversed(self.opened):
            client.close()


def case(fn: Callable[[Face], Any]) -> Callable[[Face], Any]:
    CASES.append(fn)
    return fn


# ---- producer ------------------------------------------------------------------------------------------------------------------------


@case
def metadata_of_a_record(k: Face) -> Any:
    future = k.producer().send(k.topic, b"value", b"key", partition=1, timestamp_ms=NOW_MS)
    found = future.get(timeout=20)
    return found._fields, tuple(found), future.is_done, future.succeeded(), future.failed(), future.exception, tuple(future.value)


@case
def metadata_with_headers(k: Face) -> Any:
    found = k.producer().send(k.topic, b"value", headers=[("a", b"1"), ("bc", b"")], partition=0, timestamp_ms=NOW_MS).get(timeout=20)
    return tuple(found)


@case
def callbacks_in_order(k: Face) -> Any:
    seen: list[Any] = []
    producer = k.producer()
    futures = [producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(20)]
    for nth, future in enumerate(futures):
        future.add_callback(lambda metadata, nth=nth: seen.append((nth, metadata.offset)))
        future.add_errback(lambda error: seen.append(error))
    producer.flush(20)
    return seen


@case
def callbacks_with_arguments(k: Face) -> Any:
    seen: list[Any] = []
    future = k.producer().send(k.topic, b"v", partition=0)
    future.add_callback(lambda *args, **kwargs: seen.append((args[:-1], args[-1].offset, kwargs)), "a", 2, three=3)
    future.get(timeout=20)
    future.add_callback(lambda *args, **kwargs: seen.append((args[:-1], args[-1].offset, kwargs)), "late", b=1)
    return sorted(seen, key=str)


@case
def a_callback_that_raises_stops_nothing(k: Face) -> Any:
    seen: list[Any] = []
    producer = k.producer()
    future = producer.send(k.topic, b"v", partition=0)
    future.add_callback(lambda _: 1 / 0).add_callback(lambda metadata: seen.append(metadata.offset))
    producer.flush(20)
    return seen


@case
def both_and_chain(k: Face) -> Any:
    seen: list[Any] = []
    kind = importlib.import_module(f"{k.package.__name__}.future").Future
    other = kind()
    future = k.producer().send(k.topic, b"v", partition=0)
    future.add_both(lambda outcome: seen.append(outcome.offset)).chain(other)
    future.get(timeout=20)
    waited = threading.Event()
    other.add_both(lambda _: waited.set())
    return waited.wait(20), seen, other.value.offset, other.succeeded()


@case
def flush_leaves_every_future_done(k: Face) -> Any:
    producer = k.producer(linger_ms=60_000, delivery_timeout_ms=120_000)
    futures = [producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(100)]
    before = any(future.is_done for future in futures)
    result = producer.flush(20)
    return before, result, all(future.is_done for future in futures), [future.value.offset for future in futures]


@case
def get_that_takes_too_long(k: Face) -> Any:
    future = k.producer(linger_ms=60_000, delivery_timeout_ms=120_000).send(k.topic, b"v", partition=0)
    return k.raised(lambda: future.get(timeout=0.05)), future.is_done, future.exception, future.value


@case
def values_that_are_refused(k: Face) -> Any:
    producer = k.producer()
    return [
        k.raised(lambda: producer.send(k.topic)),
        k.raised(lambda: producer.send(k.topic, "text")),
        k.raised(lambda: producer.send(k.topic, 7)),
        k.raised(lambda: producer.send(k.topic, b"v", key="text")),
        k.raised(lambda: producer.send(k.topic, b"v", headers={"a": b"1"})),
        k.raised(lambda: producer.send(k.topic, b"v", headers=[("a", "1")])),
        k.raised(lambda: producer.send(k.topic, b"v", headers=[("a",)])),
        k.raised(lambda: producer.send(None, b"v")),
        k.raised(lambda: producer.send("", b"v")),
        k.raised(lambda: producer.send("no spaces", b"v")),
        k.raised(lambda: producer.send(k.topic, b"v", partition=9)),
        k.raised(lambda: producer.send(k.topic, b"v", partition=-1)),
        k.raised(lambda: producer.send(k.topic, b"v" * 2_000_000)),
    ]


@case
def kinds_of_bytes(k: Face) -> Any:
    producer = k.producer()
    for value in (b"bytes", bytearray(b"array"), memoryview(b"view")):
        producer.send(k.topic, value, partition=0)
    producer.send(k.topic, None, b"key", partition=0)
    producer.send(k.topic, b"", partition=0)
    producer.flush(20)
    return [(record.key, record.value) for record in k.polled(k.reader(), 5)]


@case
def keys_choose_the_partition(k: Face) -> Any:
    producer = k.producer()
    return [producer.send(k.topic, b"v", b"key-%d" % nth).get(20).partition for nth in range(20)]


@case
def a_serializer_that_is_a_function(k: Face) -> Any:
    producer = k.producer(value_serializer=lambda v: repr(v).encode(), key_serializer=str.encode)
    sent = [producer.send(k.topic, value, key, partition=0).get(20)[-3:] for value, key in (({"a": 1}, "x"), (None, "y"))]
    return sent, [(record.key, record.value) for record in k.polled(k.reader(), 2)]


@case
def a_serializer_of_the_interface(k: Face) -> Any:
    class Upper(k.serializer.Serializer):  # type: ignore[name-defined]
        closed = 0

        def serialize(self, topic: str, headers: Any, data: Any) -> Any:
            return f"{data}-{headers}".upper().encode()

        def close(self) -> None:
            type(self).closed += 1

    producer = k.producer(value_serializer=Upper())
    producer.send(k.topic, "v", headers=[("h", b"1")], partition=0)
    producer.flush(20)
    producer.close()
    return k.polled(k.reader(), 1)[0].value, Upper.closed


@case
def json_there_and_back(k: Face) -> Any:
    producer = k.producer(value_serializer=k.serializer.JsonSerializer())
    producer.send(k.topic, {"a": [1, None]}, partition=0)
    producer.send(k.topic, None, b"key", partition=0)
    producer.flush(20)
    reader = k.reader(value_deserializer=k.serializer.JsonSerializer())
    return [(record.key, record.value, record.serialized_value_size) for record in k.polled(reader, 2)]


@case
def a_partitioner_of_the_program(k: Face) -> Any:
    seen: list[Any] = []

    class Odd(importlib.import_module(f"{k.package.__name__}.partitioner").Partitioner):  # type: ignore[misc]
        def partition(self, topic: Any, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any) -> int:
            seen.append((key, serialized_key, value, serialized_value, cluster.partitions_for_topic(topic)))
            return 1

    producer = k.producer(partitioner=Odd(), key_serializer=str.encode)
    partitions = [producer.send(k.topic, b"v", "k", partition=given).get(20).partition for given in (None, 0)]
    return partitions, seen


@case
def partitions_of_a_topic(k: Face) -> Any:
    producer = k.producer()
    return producer.partitions_for(k.topic), k.raised(lambda: producer.partitions_for("no spaces"))


@case
def a_closed_producer(k: Face) -> Any:
    producer = k.producer()
    future = producer.send(k.topic, b"v", partition=0)
    producer.close()
    producer.close()
    return future.succeeded(), k.raised(lambda: producer.send(k.topic, b"v"))


@case
def acks_of_none(k: Face) -> Any:
    producer = k.producer(acks=0)
    found = producer.send(k.topic, b"v", partition=0).get(20)
    return found.partition, producer.config["enable_idempotence"], producer.config["acks"]


@case
def settings_that_are_refused(k: Face) -> Any:
    return [
        k.raised(lambda: k.producer(nonsense=1)),
        k.raised(lambda: k.producer(compression_type="zip")),
        k.raised(lambda: k.producer(acks=1, enable_idempotence=True)),
        k.raised(lambda: k.producer(transactional_id="t", enable_idempotence=False)),
        k.raised(lambda: k.consumer(nonsense=1)),
        k.raised(lambda: k.consumer(group_instance_id="i")),
        k.raised(lambda: k.consumer(fetch_max_wait_ms=40_000)),
        k.raised(lambda: k._opened(k.package.KafkaAdminClient(bootstrap_servers=k.servers, nonsense=1))),
    ]


@case
def no_broker(k: Face) -> Any:
    return [
        k.raised(lambda: k.package.KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)),
        k.raised(lambda: k.package.KafkaConsumer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)),
        k.raised(lambda: k.package.KafkaAdminClient(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)),
    ]


@case
def transactions(k: Face) -> Any:
    producer = k.producer(transactional_id=k.topic)
    seen = []
    try:
        producer.begin_transaction()
    except k.errors.KafkaError:
        seen.append("not before init_transactions")
    producer.init_transactions()
    seen.append(k.raised(lambda: producer.send(k.topic, b"outside", partition=0)))
    for nth, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.send(k.topic, b"%d" % nth, partition=0).get(20)
        end()
    committed = [record.value for record in k.polled(k.reader(isolation_level="read_committed"), 2)]
    return seen, committed, k.raised(k.producer().init_transactions)


@case
def offsets_in_a_transaction(k: Face) -> Any:
    k.fill(3)
    producer = k.producer(transactional_id=k.topic)
    producer.init_transactions()
    producer.begin_transaction()
    offsets = {k.tp(): k.package.OffsetAndMetadata(2, "note", 0)}
    producer.send_offsets_to_transaction(offsets, k.group)
    producer.commit_transaction()
    return tuple(k.consumer(group_id=k.group).committed(k.tp(), metadata=True))


@case
def a_fenced_producer(k: Face) -> Any:
    first, second = (k.producer(transactional_id=k.topic) for _ in range(2))
    first.init_transactions()
    first.begin_transaction()
    second.init_transactions()

    def go_on() -> None:
        first.send(k.topic, b"v", partition=0).get(20)
        first.commit_transaction()

    return k.raised(go_on)


# ---- consumer ------------------------------------------------------------------------------------------------------------------------


@case
def fields_of_a_record(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, b"value", b"key", [("h", b"1"), ("h", b"")], 1, NOW_MS).get(20)
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
    producer.flush(20)
    return [record[-3:] for record in k.polled(k.reader(), 2)]


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
def latest_is_the_default(k: Face) -> Any:
    k.fill(3)
    reader = k.reader(auto_offset_reset="latest")
    at = reader.position(k.tp())
    k.fill(1)
    return at, [record.value for record in k.polled(reader, 1)], k.package.KafkaConsumer.DEFAULT_CONFIG["auto_offset_reset"]


@case
def metrics_by_group_and_name(k: Face) -> Any:
    producer = k.producer()
    producer.send(k.topic, b"v").get(20)
    found = producer.metrics()
    return "producer-metrics" in found, found["producer-metrics"]["request-rate"] >= 0, k.producer(metrics_enabled=False).metrics()


# ---- admin ---------------------------------------------------------------------------------------------------------------------------


def _shape(value: Any) -> Any:
    """Dicts by their keys, lists by their first item: what an answer looks like."""
    if isinstance(value, dict):
        return {str(key): _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return type(value).__name__


@case
def topics_come_and_go(k: Face) -> Any:
    admin = k.admin()
    name = k.topic + "-made"
    made = admin.create_topics({name: {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "1000"}}})
    again = k.raised(lambda: admin.create_topics([name]))
    admin.wait_for_topics([name])
    described = admin.describe_topics([name])[0]
    unknown = admin.describe_topics([name + "-absent"])[0]["error_code"]
    listed = name in admin.list_topics()
    deleted = admin.delete_topics([name])
    return (
        [made["topics"][0][field] for field in ("error_code", "num_partitions", "replication_factor")],
        again,
        sorted(described),
        sorted(described["partitions"][0]),
        [each["partition_index"] for each in described["partitions"]],
        unknown,
        listed,
        deleted["topics"][0]["error_code"],
        k.raised(lambda: admin.delete_topics([name + "-absent"])),
    )


@case
def partitions_are_added(k: Face) -> Any:
    admin = k.admin()
    answer = admin.create_partitions({k.topic: 3})
    return [tuple(each)[:2] == (k.topic, 0) for each in answer.results], k.raised(lambda: admin.create_partitions({k.topic: 1}))


@case
def records_are_deleted(k: Face) -> Any:
    k.fill(5)
    admin = k.admin()
    found = admin.delete_records({k.tp(): 3})
    return found[k.tp()], k.raised(lambda: admin.delete_records({k.tp(): 99})), k.raised(lambda: admin.delete_records({k.tp(9): 0}))


@case
def offsets_by_spec(k: Face) -> Any:
    k.fill(5)
    admin, spec = k.admin(), k.package.OffsetSpec
    found = [admin.list_partition_offsets({k.tp(): each})[k.tp()] for each in (spec.EARLIEST, spec.LATEST, spec.MAX_TIMESTAMP, NOW_MS + 1)]
    return [(each.offset, each.timestamp) for each in found]


@case
def configs(k: Face) -> Any:
    admin, module = k.admin(), k.admin_module
    resource = module.ConfigResource
    everything = admin.describe_configs([resource("TOPIC", k.topic)], config_filter="all")["topic"][k.topic]
    altered = admin.alter_configs([resource("TOPIC", k.topic, {"retention.ms": "5000"})])
    modified = admin.describe_configs([resource("TOPIC", k.topic)])
    one = admin.describe_configs([resource("TOPIC", k.topic, ["retention.ms"])], include_synonyms=True)["topic"][k.topic]["retention.ms"]
    reset = admin.reset_configs([resource("TOPIC", k.topic, ["retention.ms"])])
    return (
        _shape(everything["retention.ms"]),
        everything["cleanup.policy"]["config_type"],
        list(altered["topic"].values()),
        {name: config["value"] for name, config in modified["topic"][k.topic].items()},
        _shape(one),
        one["config_source"],
        list(reset["topic"].values()),
        admin.describe_configs([resource("TOPIC", k.topic)])["topic"][k.topic],
        k.raised(lambda: admin.alter_configs([resource("TOPIC", k.topic, {"nonsense": "1"})])),
        k.raised(lambda: admin.describe_configs([resource("BROKER", "x")])),
    )


@case
def groups(k: Face) -> Any:
    k.fill(5)
    admin = k.admin()
    consumer = k.consumer(k.topic, group_id=k.group)
    next(consumer)
    listed = [each for each in admin.list_groups() if each["group_id"] == k.group]
    described = admin.describe_groups([k.group])[k.group]
    member = described["members"][0]
    held = admin.delete_groups([k.group])
    consumer.commit()
    consumer.close()
    offsets = admin.list_group_offsets(k.group)[k.group]
    altered = admin.alter_group_offsets(k.group, {k.tp(): k.package.OffsetAndMetadata(2, "n", -1)})
    reset = admin.reset_group_offsets(k.group, {k.tp(): k.package.OffsetSpec.LATEST})
    beyond = admin.reset_group_offsets(k.group, {k.tp(): 99})
    after = admin.list_group_offsets({k.group: [k.tp()]})[k.group]
    forgotten = admin.delete_group_offsets(k.group, [k.tp()])
    gone = admin.delete_groups([k.group, k.group + "-absent"])
    return (
        [sorted(each) for each in listed],
        [(each["protocol_type"], each["group_state"]) for each in listed],
        sorted(described),
        described["error"],
        member["member_metadata"]["topics"] == [k.topic],
        member["member_assignment"]["assigned_partitions"][0]["partitions"],
        list(held.values()),
        [at.offset for tp, at in offsets.items() if tp == k.tp()],
        [kind.__name__ for kind in altered.values()],
        [(each["error"].__name__, each["offset"]) for each in (*reset.values(), *beyond.values())],
        [tuple(at)[:2] for at in after.values()],
        [kind.__name__ for kind in forgotten.values()],
        sorted(gone.values()),
    )


@case
def the_cluster(k: Face) -> Any:
    admin = k.admin()
    found = admin.describe_cluster()
    dirs = admin.describe_log_dirs()
    return _shape(found), [each["broker"] for each in dirs], _shape(dirs[0]["log_dirs"][0]["topics"][0]["partitions"][0])


@case
def reassignments_and_elections(k: Face) -> Any:
    admin = k.admin()
    brokers = [each["broker_id"] for each in admin.describe_cluster()["brokers"]]
    moved = admin.alter_partition_reassignments({k.tp(): brokers[:1]})
    elected = admin.elect_leaders(0, {k.topic: [0, 1]})
    codes = [tuple(each)[:2] for each in elected.replica_election_results[0][1]]
    return (
        list(moved.values()),
        admin.list_partition_reassignments(),
        codes,
        k.raised(lambda: admin.alter_partition_reassignments({k.tp(): []})),
    )


@case
def transactions_of_others(k: Face) -> Any:
    producer = k.producer(transactional_id=k.topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(k.topic, b"v", partition=0).get(20)
    admin = k.admin()
    listed = [each for found in admin.list_transactions().values() for each in found if each.transactional_id == k.topic]
    described = admin.describe_transactions([k.topic])[k.topic]
    producers = admin.describe_producers([k.tp()])[k.tp()].active_producers
    producer.abort_transaction()
    return (
        [each.state.value for each in listed],
        described.state.value,
        {tp.partition for tp in described.topic_partitions},
        described._fields,
        [(each._fields, each.current_transaction_start_offset) for each in producers],
        k.raised(lambda: admin.describe_transactions([k.topic + "-absent"])),
        admin.find_hanging_transactions(),
    )


@case
def settings_that_are_set_as_a_whole(k: Face) -> Any:
    admin, module = k.admin(), k.admin_module

    def resource(configs: Any = None) -> Any:
        return module.ConfigResource("TOPIC", k.topic, configs)

    first = admin.alter_configs([resource({"retention.ms": "5000"})])
    second = admin.alter_configs([resource({"max.message.bytes": ("SET", "6000")})], incremental=False)
    refused = [
        k.raised(lambda op=op: admin.alter_configs([resource({"cleanup.policy": (op, "x")})], incremental=False))
        for op in ("APPEND", "DELETE")
    ]
    found = admin.describe_configs([resource(["retention.ms", "max.message.bytes"])])["topic"][k.topic]
    return first, second, refused, {name: found[name]["value"] for name in sorted(found)}
