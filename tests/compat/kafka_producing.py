"""What programs do with kafka-python's producer."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from tests.compat.both_packages import case
from tests.compat.kafka_face import NOW_MS, Face


@case
def metadata_of_a_record(k: Face) -> Any:
    headers = [("größe", "ü".encode()), ("leer", b"")]
    future = k.producer().send(k.topic, "ä€".encode(), "ü".encode(), headers, 1, NOW_MS)
    found = future.get(timeout=60)
    return found._fields, tuple(found), future.is_done, future.succeeded(), future.failed(), future.exception, tuple(future.value)


@case
def callbacks(k: Face) -> Any:
    seen: list[Any] = []
    producer = k.producer()
    futures = [producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(20)]
    for nth, future in enumerate(futures):
        future.add_callback(lambda _: 1 / 0)  # stops nothing
        future.add_callback(lambda metadata, nth=nth: seen.append((nth, metadata.offset)))
        future.add_errback(lambda error: seen.append(error))
    producer.flush(20)
    for each in (future, producer.send(k.topic, b"v", partition=0)):  # one that is done
        each.add_callback(lambda *args, **kwargs: seen.append((args[:-1], args[-1].offset, kwargs)), "a", 2, three=3)
        each.get(timeout=60)
    other = importlib.import_module(f"{k.package.__name__}.future").Future()
    chained, waited = producer.send(k.topic, b"v", partition=0), threading.Event()
    chained.add_both(lambda outcome: seen.append(outcome.offset)).chain(other)
    chained.get(timeout=60)
    other.add_both(lambda _: waited.set())
    return waited.wait(60), seen, other.value.offset, other.succeeded()


@case
def flush_and_close_leave_every_future_done(k: Face) -> Any:
    producer = k.producer(linger_ms=60_000, delivery_timeout_ms=120_000)
    futures = [producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(100)]
    before = any(future.is_done for future in futures)
    result = producer.flush(20)
    flushed = before, result, all(future.is_done for future in futures), [future.value.offset for future in futures]
    last = producer.send(k.topic, b"v", partition=0)
    producer.close()
    producer.close()
    return flushed, last.succeeded(), k.raised(lambda: producer.send(k.topic, b"v"))


@case
def get_that_takes_too_long(k: Face) -> Any:
    future = k.producer(linger_ms=60_000, delivery_timeout_ms=120_000).send(k.topic, b"v", partition=0)
    return k.raised(lambda: future.get(timeout=0.05)), future.is_done, future.exception, future.value


@case
def values_that_are_refused(k: Face) -> Any:
    producer = k.producer()
    wrong: list[dict[str, Any]] = [{}, {"value": "text"}, {"value": 7}, {"value": b"v", "key": "text"}, {"value": b"v" * 2_000_000}]
    wrong += [{"value": b"v", "headers": each} for each in ({"a": b"1"}, [("a", "1")], [("a",)])]
    wrong += [{"value": b"v", "partition": each} for each in (9, -1)]
    names = [k.raised(lambda name=name: producer.send(name, b"v")) for name in (None, "", "no spaces")]  # type: ignore[misc]
    return [k.raised(lambda each=each: producer.send(k.topic, **each)) for each in wrong], names  # type: ignore[misc]


@case
def a_serializer_that_is_a_function(k: Face) -> Any:
    producer = k.producer(value_serializer=lambda v: repr(v).encode(), key_serializer=str.encode)
    sent = [producer.send(k.topic, value, key, partition=0).get(60)[-3:] for value, key in (({"a": 1}, "x"), (None, "y"))]
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
def partitions_of_keys(k: Face) -> Any:
    seen: list[Any] = []
    module = importlib.import_module(f"{k.package.__name__}.partitioner")

    class Odd(module.Partitioner):  # type: ignore[name-defined, misc]
        def partition(self, topic: Any, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any) -> int | None:
            seen.append((key, serialized_key, value, serialized_value, cluster.partitions_for_topic(topic)))
            seen.append((cluster.available_partitions_for_topic(topic), cluster.available_partitions_for_topic("absent")))
            default = module.DefaultPartitioner()
            seen.extend(default.partition(topic, None, b"key-%d" % nth, None, None, cluster) for nth in range(20))
            seen.append({default.partition(topic, None, None, None, None, cluster) for _ in range(64)})
            return None if value == b"none" else 1

    plain, producer = k.producer(), k.producer(partitioner=Odd(), key_serializer=str.encode)
    partitions = [producer.send(k.topic, b"v", "k", partition=given).get(60).partition for given in (None, 0)]
    by_key = [plain.send(k.topic, b"v", b"key-%d" % nth).get(60).partition for nth in range(20)]
    refused = k.raised(lambda: plain.partitions_for("no spaces")), k.raised(lambda: producer.send(k.topic, b"none"))
    return partitions, seen, by_key, plain.partitions_for(k.topic), refused, [module.murmur2(b"key-%d" % nth) for nth in range(20)]


@case
def futures_of_the_program(k: Face) -> Any:
    """Those that a program sets itself."""
    made = importlib.import_module(f"{k.package.__name__}.future").Future
    seen: list[Any] = []
    futures = [made() for _ in range(3)]
    early = [(each.is_done, each.succeeded(), each.failed(), each.retriable()) for each in futures[:1]]
    for future in futures:
        future.add_callback(lambda value: seen.append(("value", value))).add_callback(lambda value: seen.append(("second", value)))
        future.add_errback(lambda error: seen.append(("error", type(error).__name__)))
    futures[0].success(5)
    futures[1].failure(k.errors.NodeNotReadyError)
    futures[2].failure(k.errors.IllegalStateError("why"))
    for future in futures:
        future.add_both(lambda outcome: seen.append(("late", type(outcome).__name__)))
        seen.append((future.is_done, future.succeeded(), future.failed(), future.retriable(), future.value, repr(future.exception)))
    return early, seen


@case
def functions_as_serializers(k: Face) -> Any:
    to, back = k.serializer.SerializeWrapper, k.serializer.DeserializeWrapper
    return [made.serialize("t", [], "v") for made in (to(None), to(str.upper))] + [
        made.deserialize("t", [], b"v") for made in (back(None), back(bytes.decode))
    ]


@case
def formats_and_times(k: Face) -> Any:
    producer = k.producer()
    refused = k.raised(lambda: producer.close(timeout=-1))
    producer.close(timeout=0, null_logger=True)
    magic = k.package.KafkaProducer.max_usable_produce_magic
    versions = [(0, 9, 9), (0, 10), (0, 10, 0), (0, 10, 2), (0, 11), (1, 0), (4, 3)]
    return refused, [magic(each) for each in versions], k.raised(lambda: producer.send(k.topic, b"v"))


@case
def acks_of_none(k: Face) -> Any:
    producer = k.producer(acks=0)
    found = producer.send(k.topic, b"v", partition=0).get(60)
    return found.partition, producer.config["enable_idempotence"], producer.config["acks"]


@case
def settings_that_are_refused(k: Face) -> Any:
    wrong: list[dict[str, Any]] = [{"nonsense": 1}, {"compression_type": "zip"}, {"acks": 1, "enable_idempotence": True}]
    wrong += [{"transactional_id": "t", "enable_idempotence": False}]
    consumers: list[dict[str, Any]] = [{"nonsense": 1}, {"group_instance_id": "i"}, {"fetch_max_wait_ms": 40_000}]
    return (
        [k.raised(lambda each=each: k.producer(**each)) for each in wrong],  # type: ignore[misc]
        [k.raised(lambda each=each: k.consumer(**each)) for each in consumers],  # type: ignore[misc]
        k.raised(lambda: k.open(k.package.KafkaAdminClient(bootstrap_servers=k.servers, nonsense=1))),
    )


@case
def no_broker(k: Face) -> Any:
    kinds = (k.package.KafkaProducer, k.package.KafkaConsumer, k.package.KafkaAdminClient)
    return [k.raised(lambda each=each: each(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)) for each in kinds]  # type: ignore[misc]


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
        producer.send(k.topic, b"%d" % nth, partition=0).get(60)
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
    member = k.consumer(k.topic, group_id=k.group)
    found = [tuple(member.committed(k.tp(), metadata=True)), next(member).offset]
    producer.begin_transaction()
    producer.send_offsets_to_transaction({k.tp(): k.package.OffsetAndMetadata(3, "", -1)}, member.group_metadata())
    producer.commit_transaction()
    return found, member.committed(k.tp())


@case
def a_fenced_producer(k: Face) -> Any:
    first, second = (k.producer(transactional_id=k.topic) for _ in range(2))
    first.init_transactions()
    first.begin_transaction()
    second.init_transactions()

    def go_on() -> None:
        first.send(k.topic, b"v", partition=0).get(60)
        first.commit_transaction()

    return k.raised(go_on)
