"""What AIOKafkaProducer hands out, where aiokafka's own cannot be compared."""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic
from kafkacore.compat.aiokafka import AIOKafkaProducer, errors
from kafkacore.compat.aiokafka.future import HeldRecord, SentRecord, UnansweredRecord
from kafkacore.testing import EmbeddedCluster
from tests.compat.aiokafka_face import beside_cluster
from tests.kit.inside import short_send_of, take_general_way


def with_topic(test: Callable[[str], Coroutine[Any, Any, None]], **config: str) -> None:
    """Runs a coroutine beside a cluster that has the topic t."""
    beside_cluster(test, {"t": 2}, **config)


def test_records_that_the_broker_stamps_say_so() -> None:
    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            first = await producer.send("t", b"v", partition=0, timestamp_ms=5)
            quick = await producer.send("t", b"v", partition=0, timestamp_ms=6)
            batch = producer.create_batch()
            batch.append(key=None, value=b"v", timestamp=7)
            outcomes = [await first, await quick, await (await producer.send_batch(batch, "t", partition=0))]
        assert all(found.timestamp > 1_000_000 and found.timestamp_type == 1 for found in outcomes)
        assert (type(first), type(quick)) == (HeldRecord, SentRecord)

    with_topic(test, log_message_timestamp_type="LogAppendTime")


def test_the_engines_futures_name_the_brokers_stamp() -> None:
    with EmbeddedCluster() as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            stamps = {"message.timestamp.type": "LogAppendTime"}
            admin.create_topics([NewTopic("own", 1, 1), NewTopic("stamped", 1, 1, configs=stamps)]).check()
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            own, stamped = (producer.send(topic, b"v", timestamp_ms=5) for topic in ("own", "stamped"))
            assert own.log_append_time_ms == -1
            assert (own.result(60).timestamp_ms, own.log_append_time_ms) == (5, -1)
            assert stamped.result(60).timestamp_ms == stamped.log_append_time_ms > 5


def test_records_of_known_topics_take_the_quick_way() -> None:
    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, acks=0) as producer:
            await producer.send("t", b"v")
            assert type(await producer.send("t", b"v", b"k")) is UnansweredRecord
            assert type(await producer.send("t", b"v", headers=(("h", b"1"),), partition=1, timestamp_ms=5)) is UnansweredRecord
            assert type(await producer.send("t", None, bytearray(b"k"))) is UnansweredRecord
        async with AIOKafkaProducer(bootstrap_servers=servers, value_serializer=str.encode, partitioner=lambda *_: 1) as producer:
            assert (await (await producer.send("t", "v"))).partition == 1

    with_topic(test)


class Number:
    def __index__(self) -> int:
        raise StopIteration(5)


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "value": (("t", b"v"), {"partition": 1}),
    "value and key": (("t", b"v", b"k"), {"timestamp_ms": 5}),
    "by position": (("t", b"v", b"k", 1, 5, [("h", b"1")]), {}),
    "a tombstone": (("t", None, b"k"), {"timestamp_ms": 5}),
    "no headers": (("t", b"v", b"k"), {"headers": []}),
    "by name": ((), {"topic": "t", "value": b"v", "key": b"k"}),
    "headers as a tuple": (("t", b"v", b"k"), {"headers": (("h", b"1"),)}),
    "other bytes": (("t", bytearray(b"v"), memoryview(b"k")), {}),
    "nothing": (("t",), {"partition": 0}),
    "text": (("t", "v"), {}),
    "a key that is text": (("t", b"v", "k"), {}),
    "a partition that is not there": (("t", b"v"), {"partition": 2}),
    "a partition that is no number": (("t", b"v"), {"partition": "1"}),
    "a partition that stops": (("t", b"v"), {"partition": Number()}),
    "headers that are none": (("t", b"v"), {"headers": [5]}),
    "a time that is none": (("t", b"v"), {"timestamp_ms": -5}),
    "a topic that is no text": ((b"t", b"v"), {}),
    "a topic that cannot be": (("no topic", b"v"), {}),
    "too large": (("t", b"v" * 2_000_000), {}),
    "unknown": (("t", b"v"), {"no_such": 1}),
}


def test_both_ways_do_the_same() -> None:
    """The compiled coroutine and the function's."""

    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send("t", b"v")
            short = short_send_of(producer)
            assert short is not None

            async def outcome(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
                try:
                    send = producer.send(*args, **named)
                    compiled = type(send) is not types.CoroutineType
                    future = await send
                    found = await future
                    stamped = found.timestamp if 5 in (*args, *named.values()) else None
                    return compiled, (type(future), found.partition, stamped)
                except Exception as error:
                    return None, (type(error), str(error), type(error.__cause__))

            ways: dict[str, Any] = {}
            for name, call in CALLS.items():
                sys.set_coroutine_origin_tracking_depth(0)  # where the tests run in asyncio's debug mode
                producer._short_send = short
                ways[name], found = await outcome(*call)
                take_general_way(producer)
                assert (name, *await outcome(*call)) == (name, None if ways[name] is None else False, found)
            assert [name for name, compiled in ways.items() if compiled] == list(CALLS)[:5]
            assert [name for name, compiled in ways.items() if compiled is None] == list(CALLS)[8:]

    with_topic(test)


def test_a_send_is_a_coroutine() -> None:
    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            assert asyncio.iscoroutinefunction(producer.send)
            assert inspect.iscoroutinefunction(AIOKafkaProducer.send)
            await (await producer.send("t", b"first", partition=0))
            sys.set_coroutine_origin_tracking_depth(0)
            with pytest.warns(RuntimeWarning, match="coroutine 'AIOKafkaProducer.send' was never awaited"):
                producer.send("t", b"never awaited", partition=0)
            cancelled = asyncio.create_task(producer.send("t", b"cancelled", partition=0))
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            waited = await asyncio.wait_for(producer.send("t", b"v", b"k", 0, 5, [("h", b"1")]), 20)
            assert waited.cancel() is False
            assert (await waited).offset == 1

    with_topic(test)


def test_a_send_goes_behind_those_that_wait_for_memory() -> None:
    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send("t", b"v")
            producer._waiting.in_line += 1
            assert type(await producer.send("t", b"v")) is HeldRecord
            producer._waiting.in_line -= 1
            assert type(await producer.send("t", b"v")) is SentRecord

    with_topic(test)


def test_a_producer_before_its_start_and_after_its_end() -> None:
    async def test(servers: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        for expected in (errors.IllegalStateError, errors.ProducerClosed):
            for call in (lambda: producer.send("t", b"v"), producer.flush, lambda: producer.partitions_for("t")):
                with pytest.raises(expected):
                    await call()
            await producer.start()
            await producer.start()
            await producer.stop()

    with_topic(test)


def test_a_callback_that_fails_is_reported_and_stops_nothing() -> None:
    async def test(servers: str) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            seen = asyncio.Event()
            future = await producer.send("t", b"v")
            future.add_done_callback(lambda _: 1 / 0)
            future.add_done_callback(lambda _: seen.set())
            await seen.wait()
        assert [type(error) for error in reported] == [ZeroDivisionError]

    with_topic(test)


def test_records_that_are_lost_are_in_the_log_unless_the_program_has_looked(caplog: pytest.LogCaptureFixture) -> None:
    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            looked = await producer.send("t", b"v" * 1_000)
            with pytest.raises(errors.MessageSizeTooLargeError):
                await looked
            assert isinstance(looked.exception(), errors.MessageSizeTooLargeError)
            with pytest.raises(errors.MessageSizeTooLargeError):
                looked.result()
            await producer.flush()
            assert not caplog.records
            await producer.send("t", b"w" * 1_000)
            await producer.flush()
            (record,) = caplog.records
            assert "1 record" in record.getMessage()
            batch = producer.create_batch()
            batch.append(key=None, value=b"x" * 1_000, timestamp=None)
            failed = await producer.send_batch(batch, "t", partition=0)
            called = asyncio.Event()
            failed.add_done_callback(lambda _: called.set())
            await called.wait()
            assert isinstance(failed.exception(), errors.MessageSizeTooLargeError)
            with pytest.raises(errors.MessageSizeTooLargeError):
                await failed

    with_topic(test, message_max_bytes="500")
