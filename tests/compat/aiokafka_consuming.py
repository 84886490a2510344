"""What programs do with aiokafka's consumer."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from tests.compat.aiokafka_face import GUARD_S, NOW_MS, Face
from tests.compat.both_packages import case, embedded_only


async def some_turns() -> None:
    """What was begun in a task has come to where it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


@case
async def fields_and_sizes_of_a_record(k: Face) -> Any:
    producer = await k.producer()
    await producer.send_and_wait(k.topic, b"value", b"key", 1, NOW_MS, [("h", b"1"), ("h", b"")])
    record = await (await k.reader(1)).getone()
    same = type(record)(*dataclasses.astuple(record)) == record
    for key, value in ((b"key", None), (None, b"")):
        await producer.send_and_wait(k.topic, value, key, partition=0)
    sizes = [(r.key, r.value, r.serialized_key_size, r.serialized_value_size) for r in await k.polled(await k.reader(), 2)]
    return dataclasses.asdict(record), record.timestamp, record.headers, record.checksum, same, repr(record), sizes


@case
async def a_loop(k: Face) -> Any:
    """The position moves with each record; a stop within ends it."""
    await k.fill(7)
    reader = await k.reader()
    seen = [((await reader.getone()).offset, await reader.position(k.tp()))]
    async for record in reader:
        seen.append((record.offset, await reader.position(k.tp())))
        if record.offset == 2:
            reader.seek(k.tp(), 4)
        if record.offset == 5:
            break
    async for record in reader:
        seen.append(record.offset)
        await reader.stop()
    return seen


@case
async def stop_ends_calls_that_wait(k: Face) -> Any:
    reader = await k.reader()
    one = asyncio.create_task(k.raised(reader.getone))
    await some_turns()
    await reader.stop()
    await reader.stop()
    found = [await asyncio.wait_for(one, GUARD_S)]
    found += [await k.raised(reader.getone), await k.raised(reader.getmany), await k.raised(reader.__aiter__)]
    return found


@case
async def getmany_of_few(k: Face) -> Any:
    await k.fill(10)
    reader = await k.reader(max_poll_records=4)
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes += [len(records) for records in (await reader.getmany(timeout_ms=1_000)).values()]
    reader.seek(k.tp(), 0)
    first = await k.polled(reader, 4)
    reader.seek(k.tp(), 0)
    few: dict[Any, Any] = {}
    while not few:
        few = await reader.getmany(timeout_ms=1_000, max_records=2)
    refused = [await k.raised(lambda most=most: reader.getmany(max_records=most)) for most in (0, -1, "2")]
    return sizes, len(first), [len(records) for records in few.values()], refused


@case
async def partitions_of_a_call(k: Face) -> Any:
    await k.fill(3, 0)
    await k.fill(3, 1)
    reader = await k.reader(0, 1)
    ones = [await reader.getone(k.tp(each)) for each in (1, 0, 1)]
    many = await k.polled(reader, 2, k.tp(0))
    rest = await k.polled(reader, 1)
    shown = [[(record.partition, record.offset) for record in each] for each in (ones, many, rest)]
    return shown, reader.paused()


@case
async def a_cancelled_call_loses_nothing(k: Face) -> Any:
    reader = await k.reader()
    task = asyncio.create_task(reader.getone())
    await some_turns()
    task.cancel()
    await asyncio.wait((task,))
    await k.fill(1)
    return task.cancelled(), (await asyncio.wait_for(reader.getone(), GUARD_S)).offset


@case
async def seeking(k: Face) -> Any:
    await k.fill(10)
    reader = await k.reader()
    reader.seek(k.tp(), 7)
    found: list[Any] = [await reader.position(k.tp()), [record.offset for record in await k.polled(reader, 3)]]
    found += [await reader.seek_to_beginning(), await reader.position(k.tp())]
    found += [await reader.seek_to_end(k.tp()), await reader.position(k.tp())]
    reader.seek(k.tp(), 2)
    found.append((await reader.getone()).offset)
    empty = await k.consumer()
    refused = (
        lambda: reader.seek(k.tp(), -1), lambda: reader.seek(k.tp(), "1"), lambda: reader.seek(k.tp(1), 1),
        lambda: reader.seek_to_beginning(k.tp(1)), lambda: reader.seek_to_end("x"), lambda: reader.seek_to_committed(k.tp()),
        lambda: empty.seek_to_end(), lambda: reader.position(k.tp(1)), lambda: reader.highwater(k.tp(1)),
        lambda: reader.last_stable_offset(k.tp(1)), lambda: reader.pause((k.topic, 0)), lambda: reader.pause(k.tp(1)),
        lambda: reader.resume(k.tp(1)),
    )  # fmt: skip
    return found, [await k.raised(call) for call in refused]


@case
async def pausing(k: Face) -> Any:
    await k.fill(3, 0)
    await k.fill(3, 1)
    reader = await k.reader(0, 1)
    reader.pause(k.tp(0))
    paused = reader.paused()
    first = [record.partition for record in await k.polled(reader, 3)]
    quiet = await reader.getmany(timeout_ms=200)
    reader.resume(k.tp(0))
    return paused == {k.tp(0)}, first, quiet, [record.partition for record in await k.polled(reader, 3)], reader.paused()


@case
async def what_the_last_answer_said(k: Face) -> Any:
    await k.fill(6)
    seen = []
    for level in ("read_uncommitted", "read_committed"):
        reader = await k.reader(isolation_level=level)
        seen.append([reader.highwater(k.tp()), reader.last_stable_offset(k.tp()), reader.last_poll_timestamp(k.tp())])
        await k.polled(reader, 6)
        seen.append([reader.highwater(k.tp()), reader.last_stable_offset(k.tp()), reader.last_poll_timestamp(k.tp()) > NOW_MS])
    empty = await k.reader(1)
    while empty.highwater(k.tp(1)) is None:
        await empty.getmany(timeout_ms=20)
    return seen, empty.highwater(k.tp(1)), empty.last_stable_offset(k.tp(1))


@case
async def offsets_by_time(k: Face) -> Any:
    await k.fill(5)
    reader = await k.consumer()
    wanted = (0, NOW_MS + 1, NOW_MS + 3_000, NOW_MS + 9_000)
    found = [(await reader.offsets_for_times({k.tp(): at}))[k.tp()] for at in wanted]
    bounds = [await reader.beginning_offsets([k.tp(), k.tp(1)]), await reader.end_offsets([k.tp(), k.tp(1)])]
    return (
        [None if each is None else (each._fields, tuple(each)) for each in found],
        [sorted(each.values()) for each in bounds],
        await reader.offsets_for_times({}),
        len(await reader.offsets_for_times({k.tp(): NOW_MS, k.tp(1): NOW_MS})),
        await k.raised(lambda: reader.offsets_for_times({k.tp(): -1})),
    )


@case
async def topics_and_partitions(k: Face) -> Any:
    reader = await k.consumer(k.topic)
    topics = await reader.topics()
    return (
        k.topic in topics,
        [each for each in topics if each.startswith("__")],
        reader.partitions_for_topic(k.topic),
        reader.partitions_for_topic(k.topic + "-absent"),
        sorted(reader.assignment()),
        reader.subscription(),
    )


@case
async def subscribing(k: Face) -> Any:
    seen: list[Any] = []
    consumer = await k.consumer()
    seen += [consumer.assignment(), set(consumer.subscription())]
    for wrong in ({}, {"topics": k.topic}, {"topics": [k.topic], "pattern": "x"}, {"pattern": "("}, {"topics": [k.topic], "listener": 1}):
        seen.append(await k.raised(lambda wrong=wrong: consumer.subscribe(**wrong)))
    consumer.assign([k.tp(1)])
    seen += [sorted(consumer.assignment()), consumer.subscription(), await k.raised(lambda: consumer.subscribe([k.topic]))]
    consumer.unsubscribe()
    seen += [consumer.assignment(), set(consumer.subscription())]
    consumer.subscribe([k.topic])
    seen.append(consumer.subscription())
    await k.fill(1)
    seen.append((await consumer.getone()).topic)
    seen.append(await k.raised(lambda: consumer.assign([k.tp()])))
    return seen


@case
async def a_pattern(k: Face) -> Any:
    await k.fill(1)
    found = []
    for group in (k.group, None):
        consumer = k.new_consumer(group_id=group)
        consumer.subscribe(pattern=f"^{k.topic}")
        await consumer.start()
        found.append(((await consumer.getone()).topic, consumer.subscription(), sorted(consumer.assignment())))
    return found


@case
async def forms_of_commits(k: Face) -> Any:
    await k.fill(10)
    member = await k.member()
    seen = [await member.committed(k.tp())]
    await k.polled(member, 10)
    await member.commit()
    seen.append(await member.committed(k.tp()))
    await member.commit({k.tp(): 4})
    seen.append(await member.committed(k.tp()))
    await member.commit({k.tp(): (5, "note")})
    await member.commit({k.tp(1): k.package.OffsetAndMetadata(0, "")})
    seen += [await member.committed(k.tp()), await member.committed(k.tp(1))]
    found = await member.seek_to_committed()
    seen += [sorted(found.items()), await member.position(k.tp())]
    absent = k.package.TopicPartition("absent", 0)
    for wrong in ({}, [1], {"x": 1}, {k.tp(): "1"}, {k.tp(): (1, 2)}, {k.tp(): (1, "a", 3)}, {absent: 1}):
        seen.append(await k.raised(lambda wrong=wrong: member.commit(wrong)))
    alone, without = await k.reader(), await k.consumer(group_id=k.group)
    return seen, await k.raised(without.commit), await k.raised(alone.commit), await k.raised(lambda: alone.committed(k.tp()))


@case
async def listeners_of_functions_and_of_coroutines(k: Face) -> Any:
    return [await _heard(k, coroutines=each) for each in (False, True)]


async def _heard(k: Face, *, coroutines: bool) -> Any:
    seen: list[Any] = []
    again = asyncio.Event()

    def note(what: str, partitions: Any) -> None:
        seen.append((what, sorted(tp.partition for tp in partitions), type(partitions).__name__ in ("set", "frozenset")))
        if len(partitions) == 1 and what == "assigned":
            again.set()

    class Functions(k.package.ConsumerRebalanceListener):  # type: ignore[name-defined,misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            note("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            note("assigned", assigned)
            raise LookupError

    class Coroutines(Functions):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                await consumer.commit(dict.fromkeys(revoked, 0))
            note("revoked", revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            note("assigned", assigned)
            await asyncio.sleep(0)

    consumer = k.new_consumer(group_id=k.group, enable_auto_commit=False)
    consumer.subscribe([k.topic], listener=Coroutines() if coroutines else Functions())
    await consumer.start()
    alone = list(seen)
    seen.clear()
    reading = asyncio.create_task(k.raised(consumer.getone))
    second = await k.member()
    await again.wait()
    shared = sorted(tp.partition for tp in (*consumer.assignment(), *second.assignment()))
    both, kept = [what for what, _, _ in seen], len(seen[-1][1])
    seen.clear()
    await consumer.stop()
    await reading
    await second.stop()
    return alone, both, kept, shared, seen


@case
async def a_deserializer_that_fails(k: Face) -> Any:
    await k.fill(3)

    def refuse(value: bytes) -> bytes:
        if value == b"v1":
            raise LookupError(value)
        return value

    reader = await k.reader(value_deserializer=refuse)
    seen = [(await reader.getone()).offset, await k.raised(reader.getone)]
    reader.seek(k.tp(), 2)
    seen.append((await reader.getone()).offset)
    reader.seek(k.tp(), 1)
    seen.append(await k.raised(lambda: reader.getmany(timeout_ms=5_000)))
    shown = await k.reader(value_deserializer=bytes.decode)
    async for record in shown:
        seen.append((record.value, await shown.position(k.tp())))
        if record.offset == 2:
            break
    await shown.stop()
    return seen, await k.raised(shown.__anext__)


@case
async def a_consumer_of_a_topic_that_is_not_there(k: Face) -> Any:
    alone, member = (k.new_consumer("absent", request_timeout_ms=1_000, group_id=group) for group in (None, k.group))
    return [await k.raised(client.start) for client in (alone, member)]


@case
async def members_that_do_not_read(k: Face) -> Any:
    members = [await k.member() for _ in range(2)]
    while [len(member.assignment()) for member in members] != [1, 1]:
        await asyncio.sleep(0.01)
    shared = sorted(tp for member in members for tp in member.assignment())
    await members[0].stop()
    while len(members[1].assignment()) < 2:
        await asyncio.sleep(0.01)
    return shared, sorted(members[1].assignment())


@case
async def unsubscribing_and_assigning(k: Face) -> Any:
    await k.fill(3, 0)
    await k.fill(3, 1)
    member = await k.member()
    seen: list[Any] = [await member.position(k.tp())]
    for partition in (0, 1):
        member.unsubscribe()
        member.assign([k.tp(partition)])
        seen.append([(record.partition, record.offset) for record in [await member.getone() for _ in range(3)]])
        await member.commit()
    return seen, await member.committed(k.tp()), await member.committed(k.tp(1))


@case
async def stamps_of_the_broker(k: Face) -> Any:
    admin, stamped = await k.admin(), k.topic + "-stamped"
    configs = {"message.timestamp.type": "LogAppendTime"}
    await admin.create_topics([k.module("admin").NewTopic(stamped, 1, 1, topic_configs=configs)])
    producer = await k.producer()
    sent = [await producer.send_and_wait(stamped, b"v", timestamp_ms=5) for _ in range(2)]
    reader = await k.consumer()
    reader.assign([k.package.TopicPartition(stamped, 0)])
    record = await reader.getone()
    return [(each.timestamp > NOW_MS, each.timestamp_type) for each in sent], record.timestamp > NOW_MS, record.timestamp_type


@embedded_only  # aiokafka may look its positions up behind the first records
@case
async def records_sent_behind_start(k: Face) -> Any:
    """`latest` begins where the partitions end when start() returns: with a group, without one, with partitions assigned before."""
    found: list[Any] = []
    for group in (k.group, None):
        reader = await k.consumer(k.topic, group_id=group, auto_offset_reset="latest")
        await k.fill(3, partition=1)
        found.append([record.value for record in await k.polled(reader, 3)])
        await reader.stop()
    reader = k.new_consumer(auto_offset_reset="latest")
    reader.assign([k.tp()])
    await reader.start()
    await k.fill(2)
    found.append([record.value for record in await k.polled(reader, 2)])
    return found


@case
async def what_a_listener_may_ask_within_start(k: Face) -> Any:
    await k.fill(4)
    reader = k.new_consumer(group_id=k.group, enable_auto_commit=False)
    said: list[Any] = []

    class Listener(k.package.ConsumerRebalanceListener):  # type: ignore[name-defined, misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            said.append(await k.raised(lambda: reader.committed(k.tp())))
            said.append(await k.raised(lambda: reader.position(k.tp())))
            said.append(await k.raised(lambda: reader.seek_to_end(k.tp())))
            said.append(await k.raised(lambda: reader.position(k.tp())))
            said.append(await k.raised(lambda: reader.seek_to_beginning(*assigned)))
            reader.seek(k.tp(), 2)

    reader.subscribe([k.topic], listener=Listener())
    await reader.start()
    return said, [record.value for record in await k.polled(reader, 2)]


@case
async def subscriptions_without_a_read(k: Face) -> Any:
    """The listener hears of a subscribe() after start(), and of the same one again; positions are there without a read."""
    heard: list[int] = []

    class Listener(k.package.ConsumerRebalanceListener):  # type: ignore[name-defined, misc]
        def __init__(self, nth: int) -> None:
            self.nth, self.called = nth, asyncio.Event()

        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            heard.append(self.nth)
            self.called.set()

    reader = await k.consumer(group_id=k.group, enable_auto_commit=False, auto_offset_reset="latest")
    for nth in range(2):
        listener = Listener(nth)
        reader.subscribe([k.topic], listener=listener)
        await listener.called.wait()
    await reader.position(k.tp())
    await k.fill(2)
    return heard, [record.value for record in await k.polled(reader, 2)]


@case
async def partitions_without_an_offset(k: Face) -> Any:
    """With auto_offset_reset="none" each is an error of its own: raised by a call that reads it, and no call for another one."""
    await k.fill(3)
    await k.fill(3, partition=1)
    reader = await k.reader(0, 1, auto_offset_reset="none", max_poll_records=3)
    reader.seek(k.tp(), 0)
    found = [[record.value for record in await k.polled(reader, 3, k.tp())], await k.raised(lambda: reader.getone(k.tp(1)))]
    found.append(await k.raised(lambda: reader.getmany(k.tp(1), timeout_ms=5_000)))
    both = [asyncio.ensure_future(reader.getone(k.tp(each))) for each in range(2)]
    found.append(type((await asyncio.gather(both[1], return_exceptions=True))[0]).__name__)
    await k.fill(1)
    found.append((await both[0]).value)
    found.append(await k.raised(lambda: reader.seek_to_beginning(k.tp())))
    reader.seek(k.tp(1), 1)
    found.append([record.value for record in await k.polled(reader, 2, k.tp(1))])
    reader.seek(k.tp(1), 77)
    found.append([record.value for record in await k.polled(reader, 4, k.tp())])
    try:
        await reader.getone(k.tp(1))
    except k.errors.OffsetOutOfRangeError as error:
        found.append(error.args[0])
    return found
