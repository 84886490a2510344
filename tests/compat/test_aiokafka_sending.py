"""What AIOKafkaProducer hands out, where aiokafka's own cannot be compared."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic
from kafkacore.compat.aiokafka import AIOKafkaProducer, errors
from kafkacore.compat.aiokafka.future import HeldRecord, SentRecord, UnansweredRecord
from kafkacore.testing import EmbeddedCluster


def run(test: Callable[[str], Awaitable[None]], **topic_configs: str) -> None:
    """Runs a coroutine beside a cluster that has the topic t."""
    with EmbeddedCluster() as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 2, 1, configs=topic_configs)]).check()
        asyncio.run(asyncio.wait_for(test(cluster.bootstrap_servers), 30))


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

    run(test, **{"message.timestamp.type": "LogAppendTime"})


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

    run(test)


def test_a_producer_before_its_start_and_after_its_end() -> None:
    async def test(servers: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        for call in (lambda: producer.send("t", b"v"), producer.flush, lambda: producer.partitions_for("t")):
            with pytest.raises(errors.IllegalStateError, match="start"):
                await call()
        await producer.start()
        await producer.start()
        await producer.stop()
        for call in (lambda: producer.send("t", b"v"), producer.flush, lambda: producer.partitions_for("t")):
            with pytest.raises(errors.ProducerClosed):
                await call()

    run(test)


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

    run(test)


def test_flush_sends_what_lingers_and_nothing_can_be_cancelled() -> None:
    async def test(servers: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=60_000) as producer:
            future = await producer.send("t", b"v", partition=0)
            assert not future.done()
            assert future.cancel() is False
            await producer.flush()
            assert (await future).offset == 0

    run(test)


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

    run(test, **{"max.message.bytes": "500"})
