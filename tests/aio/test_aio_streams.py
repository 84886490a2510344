"""Streams of rows in a loop, and what clients say of themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from kafkacore import TopicPartition, errors
from kafkacore.aio import KafkaConsumer, KafkaProducer
from kafkacore.aio.calls import Ending, Job
from kafkacore.aio.timers import Line, WheelTimer, shared_timer
from kafkacore.producer import frames
from tests.kit.loops import run, turns


def test_the_rows_of_a_topic_come_to_the_loop(servers: str, topic: str) -> None:
    async def work() -> None:
        async with KafkaProducer(bootstrap_servers=servers) as producer:
            future = await producer.send_frame(topic, pa.table({"n": [1, 2, 3]}), value_format="json", partition=0)
            assert len(await future) == 3
            assert producer.metrics() == producer.metrics(detail=False) != producer.metrics(detail=True)
            assert [one.name for one in producer.measured()]
        async with KafkaConsumer(bootstrap_servers=servers) as consumer:
            found = [batch.to_pydict()["n"] async for batch in consumer.read(topic, json="n INT")]
            assert found == [[1, 2, 3]]
            assert consumer.metrics() == consumer.metrics(detail=False) != consumer.metrics(detail=True)
            assert consumer.measured() and consumer.statistics()
            seen: list[Any] = []
            async for batch in consumer.read(topic, json="infer", until_end=False):
                seen += batch.to_pydict()["n"]
                assert consumer.assignment() == {TopicPartition(topic, 0)}
                break
            assert seen == [1, 2, 3]
            with pytest.raises(errors.UsageError, match="subscribe to topics or to a pattern"):
                consumer.subscribe([])
            with pytest.raises(errors.UsageError, match="assign at least one partition"):
                consumer.assign([])
            with pytest.raises(errors.UsageError, match="not the string"):
                consumer.subscribe(topic)
            await consumer.unsubscribe()  # the stream was assigned
            consumer.subscribe(each for each in (topic,))
            assert consumer.subscription() == {topic}
            await consumer.unsubscribe()
            consumer.assign([(topic, 0)])
            consumer.pause(TopicPartition(topic, 0))
            assert (consumer.paused(), consumer.subscription()) == ({TopicPartition(topic, 0)}, set())

    run(work)


def test_an_endless_stream_ends_with_its_consumer(servers: str, topic: str) -> None:
    async def work() -> None:
        async with KafkaProducer(bootstrap_servers=servers) as producer:
            await (await producer.send(topic, b'{"n": 1}'))
        consumer = KafkaConsumer(bootstrap_servers=servers)
        seen: list[Any] = []

        async def read() -> None:
            async for batch in consumer.read(topic, json="n INT", until_end=False):
                seen.extend(batch.to_pydict()["n"])
                first.set()

        first = asyncio.Event()
        reads = asyncio.create_task(read())
        await first.wait()
        await consumer.close()
        await reads
        assert seen == [1]

    run(work)


def test_send_frame_hands_on_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []

    async def send_frame_in_loop(producer: Any, topic: str, frame: Any, in_thread: Any, **more: Any) -> None:
        handed.append((topic, frame, more))
        if topic == "refused":
            raise ValueError(topic)

    monkeypatch.setattr(frames, "send_frame_in_loop", send_frame_in_loop)
    names = "key value value_format key_format value_schema registry headers partition timestamp null_keys null_fields keep".split()
    given: dict[str, Any] = {name: object() for name in names}

    async def work() -> None:
        async with KafkaProducer(bootstrap_servers="nowhere:1") as producer:
            await producer.send_frame("t", "frame", **given)
            with pytest.raises(ValueError, match="refused"):
                await producer.send_frame("refused", "frame")

    run(work)
    assert handed[0] == ("t", "frame", given)


def test_a_call_that_ends_a_client_is_made_once_and_waited_for_so_long(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        ending, started = Ending("client c"), list[Job]()
        first = asyncio.create_task(ending.run(lambda: 1 // 0, started.append, timeout=0.0))
        await turns(3)
        assert not first.done(), "who begins it waits for its end"
        assert await ending.run(lambda: "other", started.append, timeout=0.0) is None
        [job] = started
        first.cancel()
        await turns(3)
        job.make()
        job.end()
        assert "client c: a call whose task was cancelled failed" in caplog.text
        assert await ending.run(lambda: "again", started.append, lambda: False) is None
        assert len(started) == 1, "it is not needed"

        def refused(job: Job) -> None:
            raise ValueError("no thread")

        with pytest.raises(ValueError, match="no thread"):
            await ending.run(lambda: None, refused)
        again = asyncio.create_task(ending.run(lambda: "again", started.append))
        await turns(3)
        started[1].make()
        started[1].end()
        assert await again == "again"
        caplog.clear()
        failed = asyncio.create_task(ending.run(lambda: 1 // 0, started.append))
        await turns(3)
        started[2].make()
        started[2].end()
        with pytest.raises(ZeroDivisionError):
            await failed
        assert not caplog.records, "who waits hears of it"
        late = asyncio.create_task(ending.run(lambda: 1 // 0, started.append))
        await turns(3)
        started[3].make()
        late.cancel()  # in the turn in which the call ends
        started[3].end()
        await turns(3)
        assert late.cancelled() and [record.message for record in caplog.records] == ["client c: a call whose task was cancelled failed"]

    run(work)


def test_a_line_lets_one_in_after_another() -> None:
    async def work() -> None:
        timer, line, entered = shared_timer(asyncio.get_running_loop()), Line(), list[Any]()

        async def enter(number: int, timeout_s: float) -> None:
            entered.append((number, await line.enter(timeout_s, timer)))

        assert await line.enter(0.0, timer)
        tasks = [asyncio.create_task(enter(number, 60.0)) for number in range(3)]
        await enter(9, 0.0)
        assert entered == [(9, False)]
        tasks[0].cancel()
        await turns(2)
        for number in (1, 2):
            line.leave()
            await turns(2)
            assert entered[1:][-1] == (number, True)
        assert (len(line.waiting), line.taken) == (0, True)
        line.leave()
        assert not line.taken
        with WheelTimer() as own:
            own.call_later(60.0, entered.clear)
        with pytest.raises(RuntimeError):
            own.call_later(60.0, entered.clear)

    run(work)
