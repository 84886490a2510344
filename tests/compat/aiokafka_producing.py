"""What programs do with aiokafka's producer."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.compat.aiokafka_face import GUARD_S, NOW_MS, Face
from tests.compat.both_packages import case


@case
async def metadata_of_a_record(k: Face) -> Any:
    producer = await k.producer(linger_ms=300)
    future = await producer.send(k.topic, b"value", b"key", partition=1, timestamp_ms=NOW_MS)
    early = future.done(), await k.raised(future.result), await k.raised(future.exception)
    found = await future
    return early, found._fields, tuple(found)[:-1], future.done(), future.cancelled(), future.exception(), tuple(future.result())[:-1]


@case
async def futures_are_gathered_and_waited_for(k: Face) -> Any:
    producer = await k.producer()
    futures = [await producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(10)]
    gathered = [each.offset for each in await asyncio.gather(*futures)]
    done, pending = await asyncio.wait(futures)
    more = [await producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(5)]
    completed = sorted([(await each).offset for each in asyncio.as_completed(more)])
    last = await asyncio.wait_for(await producer.send(k.topic, b"x", partition=0), GUARD_S)
    return gathered, len(done), len(pending), completed, last.offset


@case
async def callbacks_run_in_the_loop(k: Face) -> Any:
    seen: list[Any] = []
    loop = asyncio.get_running_loop()
    producer = await k.producer()
    futures = [await producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(5)]
    for future in futures:
        future.add_done_callback(lambda f: seen.append((f.result().offset, asyncio.get_running_loop() is loop)))
    futures[3].add_done_callback(seen.append)
    removed = futures[3].remove_done_callback(seen.append)
    await producer.flush()
    await asyncio.gather(*futures)
    await asyncio.sleep(0)
    late = asyncio.Event()
    futures[0].add_done_callback(lambda f: late.set())
    await asyncio.wait_for(late.wait(), GUARD_S)
    return sorted(seen), removed, futures[0].remove_done_callback(print)


@case
async def flush_and_stop_deliver_what_is_queued(k: Face) -> Any:
    producer = await k.producer(linger_ms=300)
    futures = [await producer.send(k.topic, b"%d" % nth, partition=nth % 2) for nth in range(50)]
    flushed = any(future.done() for future in futures), await producer.flush(), all(future.done() for future in futures)
    futures = [await producer.send(k.topic, b"%d" % nth, partition=0) for nth in range(20)]
    await producer.stop()
    await producer.stop()
    return flushed, [future.result().offset for future in futures], await k.raised(lambda: producer.send(k.topic, b"v", partition=0))


@case
async def values_that_are_refused(k: Face) -> Any:
    producer = await k.producer()
    wrong: list[dict[str, Any]] = [{}, {"value": "text"}, {"value": 7}, {"value": b"v", "key": "text"}, {"value": b"v" * 2_000_000}]
    wrong += [{"value": b"v", "partition": each} for each in (9, -1)]
    return [await k.raised(lambda each=each: producer.send(k.topic, **each)) for each in wrong]


@case
async def a_topic_that_is_not_there(k: Face) -> Any:
    producer = await k.producer(request_timeout_ms=1_000)
    return await k.raised(lambda: producer.send("absent", b"v")), await k.raised(lambda: producer.partitions_for("absent"))


@case
async def keys_choose_the_partition(k: Face) -> Any:
    producer, module = await k.producer(), k.module("partitioner")
    chosen, keys = module.DefaultPartitioner(), [b"key-%d" % nth for nth in range(12)]
    found = [(await producer.send_and_wait(k.topic, b"v", key)).partition for key in keys]
    some = {chosen(None, [0, 1, 2], [1, 2]) for _ in range(64)}, {chosen(None, [0, 1], []) for _ in range(64)}
    return found, [(module.murmur2(key), chosen(key, [4, 5, 6, 7, 8], [])) for key in keys], some


@case
async def serializers_and_deserializers(k: Face) -> Any:
    producer = await k.producer(value_serializer=lambda v: repr(v).encode(), key_serializer=str.encode)
    await producer.send_and_wait(k.topic, {"a": "ä€"}, "ü", partition=0)
    reader = await k.reader(value_deserializer=lambda v: v.decode(), key_deserializer=lambda key: key and key.decode())
    record = await reader.getone()
    return record.key, record.value, record.serialized_key_size, record.serialized_value_size


@case
async def a_partitioner_of_the_program(k: Face) -> Any:
    seen: list[Any] = []

    def last(key: Any, everything: Any, available: Any) -> Any:
        seen.append((key, sorted(everything), sorted(available)))
        return max(everything)

    producer = await k.producer(partitioner=last, key_serializer=str.encode)
    return [(await producer.send_and_wait(k.topic, b"v", "k", partition=given)).partition for given in (None, 0)], seen


@case
async def acks_of_none(k: Face) -> Any:
    producer = await k.producer(acks=0)
    future = await producer.send(k.topic, b"v", partition=0)
    second = await producer.send(k.topic, b"v", partition=0)
    return (
        await future,
        future.result(),
        await second,
        second.result(),
        await producer.send_and_wait(k.topic, b"v", partition=0, headers=[("h", b"1")]),
    )


@case
async def batches(k: Face) -> Any:
    producer = await k.producer(max_batch_size=1_000)
    batch = producer.create_batch()
    seen = [batch.size(), batch.record_count(), batch.closed()]
    for nth in range(100):
        found = batch.append(key=b"k%02d" % nth, value=b"v" * 20, timestamp=NOW_MS + nth, headers=[("h", b"%d" % nth)] if nth % 2 else [])
        if found is None:
            break
        seen.append((found.offset, found.size, found.timestamp))
    seen += [batch.size(), batch.record_count(), batch.closed()]
    metadata = await (await producer.send_batch(batch, k.topic, partition=1))
    again = producer.create_batch()
    again.append(key=None, value=b"last", timestamp=None)
    again.close()
    refused = again.append(key=None, value=b"too late", timestamp=None)
    second = await (await producer.send_batch(again, k.topic, partition=1))
    records = await k.polled(await k.reader(1), batch.record_count() + 1)
    shown = [(each.offset, each.key, each.timestamp, each.headers) for each in records[:-1]]
    absent = await k.raised(lambda: producer.send_batch(again, k.topic, partition=7))
    return seen, tuple(metadata)[:-1], refused, second.offset, shown, absent


@case
async def batches_without_a_partition(k: Face) -> Any:
    """The partitioner chooses one, as for a record without a key."""
    found = []
    for settings in ({}, {"partitioner": lambda key, every, available: every[-1]}):
        producer = await k.producer(**settings)
        batch = producer.create_batch()
        batch.append(key=b"k", value=b"v", timestamp=None)
        metadata = await (await producer.send_batch(batch, k.topic, partition=None))
        found.append((metadata.topic, metadata.partition in (0, 1), metadata.partition if settings else None))
    return found


@case
async def transactions(k: Face) -> Any:
    producer = await k.producer(transactional_id=k.topic)
    seen = [await k.raised(lambda: producer.send(k.topic, b"outside", partition=0))]
    async with producer.transaction():
        await producer.send_and_wait(k.topic, b"0", partition=0)
    try:
        async with producer.transaction():
            await producer.send_and_wait(k.topic, b"1", partition=0)
            raise LookupError
    except LookupError:
        seen.append("aborted")
    await producer.begin_transaction()
    seen.append(await k.raised(producer.begin_transaction))
    await producer.send(k.topic, b"2", partition=0)
    await producer.commit_transaction()
    seen.append(await k.raised(producer.commit_transaction))
    plain = await k.producer()
    seen += [await k.raised(plain.begin_transaction), await k.raised(plain.commit_transaction)]
    committed = await k.polled(await k.reader(isolation_level="read_committed"), 2)
    everything = await k.polled(await k.reader(), 3)
    return seen, [each.value for each in committed], [each.value for each in everything]


@case
async def offsets_in_a_transaction(k: Face) -> Any:
    await k.fill(3)
    producer = await k.producer(transactional_id=k.topic)
    seen = [await k.raised(lambda: producer.send_offsets_to_transaction({k.tp(): 1}, k.group))]
    async with producer.transaction():
        seen += [
            await k.raised(lambda: producer.send_offsets_to_transaction({k.tp(): 1}, "")),
            await k.raised(lambda: producer.send_offsets_to_transaction({}, k.group)),
        ]
        await producer.send_offsets_to_transaction({k.tp(): 2, k.tp(1): (1, "note")}, k.group)
    reader = await k.reader(0, 1, group_id=k.group)
    return seen, await reader.committed(k.tp()), await reader.committed(k.tp(1))


@case
async def a_fenced_producer(k: Face) -> Any:
    first = await k.producer(transactional_id=k.topic)
    await first.begin_transaction()
    second = await k.producer(transactional_id=k.topic)
    await second.begin_transaction()
    await second.abort_transaction()

    async def go_on() -> None:
        await first.send_and_wait(k.topic, b"v", partition=0)
        await first.commit_transaction()

    return await k.raised(go_on)


@case
async def settings_that_are_refused(k: Face) -> Any:
    wrong: list[dict[str, Any]] = [{"compression_type": "zip"}, {"acks": 7}, {"acks": 1, "enable_idempotence": True}, {"nonsense": 1}]
    wrong += [{"security_protocol": each} for each in ("SSL", "TLS", "SASL_PLAINTEXT")]
    consumers: list[dict[str, Any]] = [{"nonsense": 1}, {"max_poll_records": 0}]
    return [await k.raised(lambda each=each: k.new_producer(**each)) for each in wrong] + [
        await k.raised(lambda each=each: k.new_consumer(**each)) for each in consumers
    ]


@case
async def no_broker(k: Face) -> Any:
    producer = k.new_producer(bootstrap_servers="127.0.0.1:1")
    consumer = k.new_consumer(bootstrap_servers=["127.0.0.1:1", "127.0.0.1:2"])
    return [await k.raised(client.start) for client in (producer, consumer, producer, consumer)]
