"""How AIOKafkaConsumer reads, where aiokafka's own cannot be compared."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import types
import warnings
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors as ours
from kafkacore.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition, errors
from kafkacore.compat.aiokafka.connecting import unreachable
from kafkacore.compat.aiokafka.listener import EngineListener
from kafkacore.compat.aiokafka.reading import Readers
from tests.compat.aiokafka_face import GUARD_S, QUICK, beside_cluster
from tests.kit.failing_once import VALUES, FailingOnce
from tests.kit.inside import chunk_of, client_of, engine_of, group_of, look_of, topics_of
from tests.kit.records import fill, numbered

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def with_records(test: Callable[[str], Coroutine[Any, Any, None]], *counts: int, **config: Any) -> None:
    """Runs a coroutine beside a cluster whose topic t has so many records in its two partitions."""
    beside_cluster(test, {"t": [numbered(count) for count in (*counts, 0, 0)[:2]]}, **config)


def quick_consumer(servers: str, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(*topics, **{"bootstrap_servers": servers, "auto_offset_reset": "earliest", **QUICK, **settings})


def test_a_program_that_goes_through_its_records_has_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers, "t", group_id="g") as member:
            await member.getone()
            group = group_of(client_of(engine_of(member)))
            assert group is not None
            polled: list[int] = []
            monkeypatch.setattr(group, "still_polling", polled.append)
            look_of(member)()
            assert len(polled) == 1
            look_of(member)()
            assert len(polled) == 1  # the program stands still
            await member.getone()
            look_of(member)()
            assert len(polled) == 2
            while chunk_of(member).__length_hint__():
                await member.getone()
            look_of(member)()
            assert (len(polled), member._look_at) == (2, None)

    with_records(test, 10)


def test_records_in_hand_go_back_when_the_group_waits_for_this_member() -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers, "t", group_id="g", enable_auto_commit=False) as first:
            await first.getone()
            assert chunk_of(first).__length_hint__() > 100
            async with quick_consumer(servers, "t", group_id="g", enable_auto_commit=False) as second:
                assert chunk_of(first).__length_hint__() == 0
                while len(first.assignment()) != 1:
                    await asyncio.sleep(0.01)
                assert {*first.assignment(), *second.assignment()} == {T0, T1}

    with_records(test, 400, 0)


def test_tasks_wait_for_partitions_of_their_own_and_the_program_sees_no_pause() -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers) as reader:
            reader.assign([T0, T1])
            reader.pause(T1)
            ones = [asyncio.create_task(reader.getone(tp)) for tp in (T0, T1)]
            everything = asyncio.create_task(reader.getmany(timeout_ms=20_000))
            for _ in range(5):  # until it waits as well: it would take all records, if it only began to look when they are there
                await asyncio.sleep(0)
            assert reader.paused() == {T1}
            reader.resume(T1)
            for partition in (0, 1):
                fill(servers, "t", numbered(3), partition)
            found = [await each for each in ones]
            assert [record.partition for record in found] == [0, 1]
            seen = [record for records in (await everything).values() for record in records]
            while len(seen) < 4:
                seen += [record for records in (await reader.getmany(timeout_ms=1_000)).values() for record in records]
            places = sorted((record.partition, record.offset) for record in [*found, *seen])
            assert places == [(partition, offset) for partition in (0, 1) for offset in range(3)]
            assert reader.paused() == set()

    with_records(test)


def test_a_task_that_reads_all_partitions_is_not_held_to_those_of_another() -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers) as reader:
            reader.assign([T0, T1])
            everything = asyncio.ensure_future(reader.getone())
            await asyncio.sleep(0)
            one = asyncio.ensure_future(reader.getone(T1))
            await asyncio.sleep(0)
            for partition, waiting in enumerate((everything, one)):
                fill(servers, "t", [b"x"], partition)
                async with asyncio.timeout(GUARD_S / 6):
                    assert (await waiting).partition == partition

    with_records(test)


def test_what_is_held_back_for_a_task_is_not_what_the_program_has_paused() -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers) as reader:
            reader.assign([T0, T1])
            waiting = asyncio.create_task(reader.getone(T1))
            while not engine_of(reader).paused():
                await asyncio.sleep(0)
            assert (engine_of(reader).paused(), reader.paused()) == ({T0}, set())
            reader.resume(T0)
            assert engine_of(reader).paused() == {T0}
            reader.pause(T0)
            waiting.cancel()
            await asyncio.wait((waiting,))
            assert reader.paused() == {T0}
            reader.resume(T0)
            assert engine_of(reader).paused() == set()
            reader.pause(T0, T1)
            assert reader.paused() == {T0, T1}
            reader.resume(T0, T1)
            assert engine_of(reader).paused() == set()

    with_records(test)


def test_a_task_whose_reading_ends_leaves_the_waiting_to_the_others() -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers) as reader:
            reader.assign([T0])
            first, second = (asyncio.create_task(reader.getone()) for _ in range(2))
            assert await reader.getmany(timeout_ms=20) == {}
            first.cancel()
            await asyncio.wait((first,))
            fill(servers, "t", [b"v"])
            assert (await second).offset == 0

    with_records(test)


class Hand:
    """The clock of a loop, moved by hand, and an engine's calls: a wait takes 0.25 s."""

    idle = True

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float | None] = []
        engine: Any = SimpleNamespace(_calls=self, _client=SimpleNamespace(_await_records=None), _now_s=self.time, closed=False)
        self.readers: Any = Readers(engine, self)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now_s

    async def wait(self, call: Any, timeout_s: float | None, now_s: Any) -> bool:
        self.waits.append(timeout_s)
        self.now_s += 0.25
        return False


def test_a_task_that_always_finds_records_lets_others_run_every_ten_milliseconds() -> None:
    hand, turns, taken = Hand(), [], []
    for hand.now_s in (0.005, 0.01, 0.015, 0.02, 0.02):
        read, found = hand.readers.read((), lambda waited: 7, None), []
        try:
            while True:
                found.append(read.send(None))
        except StopIteration as ended:
            turns.append((len(found), ended.value))
    assert turns == [(0, 7), (1, 7), (0, 7), (1, 7), (0, 7)]
    hand = Hand()
    for hand.now_s in (0.005, 0.01):
        taken.append(hand.readers.at_once(lambda waited: (7, waited)))
    assert taken == [(7, False), None]


def test_a_read_waits_for_what_is_left_of_its_time_and_no_longer() -> None:
    for timeout_s, waits in ((0.0, [0.0]), (0.5, [0.5, 0.25])):
        hand = Hand()
        assert asyncio.run(hand.readers.read((), lambda waited: None, timeout_s)) is None
        assert hand.waits == waits
    hand = Hand()
    assert asyncio.run(hand.readers.read((), lambda waited: hand.now_s if hand.now_s > 0.5 else None, None)) == 0.75
    assert hand.waits == [None] * 3


def test_a_start_ends_once_each_broker_was_tried_or_another_attempt_mends_nothing() -> None:
    config: Any = SimpleNamespace(bootstrap_servers=["a:1", "b:2"])
    last, known = LookupError(), {"attempts": ["a:1: no", "b:2: no"]}

    def said(failures: int, fatal: int, late: bool = False, before: tuple[int, int] = (0, 0), **more: Any) -> str | None:
        snapshot = SimpleNamespace(is_bootstrap=more.pop("is_bootstrap", True))
        metadata: Any = SimpleNamespace(snapshot=snapshot, _failures=failures, fatal_count=fatal, last_error=last, **known | more)
        found = unreachable(metadata, config, late, before)
        assert found is None or found.__cause__ is last
        return found and str(found)

    text = "KafkaConnectionError: Unable to bootstrap from a:1, b:2: "
    tried = f"{text}a:1: no; b:2: no"
    assert [said(failures, 0) for failures in (1, 2, 3)] == [None, tried, tried]
    assert [said(6, 1, before=(4, 1)), said(5, 1, before=(4, 1)), said(5, 2, before=(4, 1))] == [tried, None, tried]
    assert said(0, 0, late=True, attempts=[]) == f"{text}no answer"
    assert said(9, 9, late=True, is_bootstrap=False) is None


def test_a_member_that_unsubscribes_leaves_and_what_comes_next_waits_for_it() -> None:
    async def test(servers: str) -> None:
        heard: list[str] = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                heard.append("revoked")

            def on_partitions_assigned(self, assigned: Any) -> None:
                heard.append("assigned")

        member = quick_consumer(servers, group_id="g")
        member.subscribe(["t"], listener=Listener())
        async with member:
            await member.getone()
            member.unsubscribe()
            member.unsubscribe()
            assert (member.assignment(), member.subscription()) == (frozenset(), frozenset())
            with pytest.raises(errors.IllegalStateError):
                member.seek(T0, 0)
            member.assign([T1])
            assert await member.position(T1) == 0
            assert member.assignment() == {T1}
            assert heard == ["revoked", "assigned"]

    with_records(test, 3)


def test_a_member_that_reads_turns_to_other_topics() -> None:
    """aiokafka's own fetcher ends with an AssertionError here."""

    async def test(servers: str) -> None:
        async with quick_consumer(servers, "t", group_id="g") as member, AIOKafkaProducer(bootstrap_servers=servers) as producer:
            assert member.assignment() == {T0, T1}
            waiting = asyncio.create_task(member.getone())
            await asyncio.sleep(0)
            member.subscribe(["u"])
            await producer.send_and_wait("u", b"v")
            assert (await waiting).topic == "u"
            assert (member.subscription(), member.assignment()) == ({"u"}, {TopicPartition("u", 0)})

    beside_cluster(test, {"t": 2, "u": 1})


def test_calls_of_a_consumer_that_is_not_started() -> None:
    async def test(servers: str) -> None:
        reader = quick_consumer(servers)
        reader.assign([T0])
        for call in (reader.getone, reader.getmany, reader.topics, reader.seek_to_beginning, lambda: reader.position(T0)):
            with pytest.raises(errors.IllegalStateError, match="start"):
                await call()
        with pytest.raises(errors.IllegalStateError, match="start"):
            reader.seek(T0, 0)
        await reader.start()
        with pytest.raises(AssertionError, match="twice"):
            await reader.start()
        await reader.stop()

    with_records(test)


def test_a_deserializer_that_fails_in_getmany_costs_no_record_of_another_partition() -> None:
    async def test(servers: str) -> None:
        tps = [TopicPartition("t", partition) for partition in range(3)]
        read: dict[TopicPartition, list[bytes]] = {tp: [] for tp in tps}
        async with quick_consumer(servers, value_deserializer=(failing := FailingOnce())) as reader:
            reader.assign(tps)
            for _ in range(30):
                with contextlib.suppress(LookupError):
                    for tp, records in (await reader.getmany(timeout_ms=100)).items():
                        read[tp] += [record.value for record in records]
                if sum(map(len, read.values())) >= 9:
                    break
        assert not failing.left and list(read.values()) == VALUES

    beside_cluster(test, {"t": VALUES})


@pytest.mark.parametrize("way", ["short", "general"])
def test_getone_goes_through_all_records(way: str) -> None:
    """By the compiled coroutine and by the function's: in order, across batches, beside the loop and calls that move the position."""

    async def test(servers: str) -> None:
        async with quick_consumer(servers) as reader:
            reader.assign([T0])
            compiled = 0

            async def one() -> int:
                nonlocal compiled
                sys.set_coroutine_origin_tracking_depth(way == "general")  # noted where they were made: no short cut
                read = reader.getone()
                sys.set_coroutine_origin_tracking_depth(0)
                compiled += type(read) is not types.CoroutineType
                return int((await read).value)

            assert [await one() for _ in range(250)] == list(range(250))
            assert reader._short_read.in_time  # what is in hand is there for the first step
            assert await reader.position(T0) == 250
            with pytest.warns(RuntimeWarning, match="coroutine 'AIOKafkaConsumer.getone' was never awaited"):
                reader.getone()
            reader.getone().close()
            given_up = asyncio.create_task(reader.getone())
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert await one() == 250
            assert int((await asyncio.wait_for(reader.getone(), GUARD_S)).value) == 251
            async for record in reader:
                assert int(record.value) == 252
                break
            assert int((await reader.getone(T0)).value) == 253
            assert await one() == 254
            reader.seek(T0, 7)
            assert [await one() for _ in range(3)] == [7, 8, 9]
            reader.pause(T0)
            waits = asyncio.create_task(reader.getone())
            await asyncio.sleep(0)
            assert not waits.done()
            reader.resume(T0)
            assert int((await waits).value) == 10
            assert compiled > 250 if way == "short" else compiled == 0

        with pytest.raises(errors.ConsumerStoppedError):
            for _ in range(1000):
                await reader.getone()

    with_records(test, 300)


def test_what_goes_wrong_while_no_task_reads_is_raised_by_the_next_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(servers: str) -> None:
        async with quick_consumer(servers) as reader:
            client = client_of(engine_of(reader))
            refused = ours.TopicAuthorization("not yours", topic="t")
            follow = topics_of(client).follow
            monkeypatch.setattr(topics_of(client), "follow", lambda: (follow(), topics_of(client).owed.update(t=refused)))
            reader.subscribe(["t"])
            assert reader._taking_part is not None
            await reader._taking_part
            monkeypatch.undo()
            topics_of(client).owed.clear()
            with pytest.raises(errors.TopicAuthorizationFailedError):
                await reader.getone()
            assert (await reader.getone()).value == b"0"

    with_records(test, 1)


def test_a_start_does_not_wait_for_ever_for_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(servers: str) -> None:
        reader = quick_consumer(servers, "t", request_timeout_ms=500)
        monkeypatch.setattr(client_of(engine_of(reader))._positions, "_start", lambda wall_ms, now_ms: None)
        await reader.start()
        assert reader.assignment() == {T0, T1}
        monkeypatch.undo()
        assert (await reader.getone()).value == b"0"
        await reader.stop()

    with_records(test, 1)


@pytest.mark.parametrize("group", ["g", None])
def test_a_consumer_that_is_not_stopped_is_named_as_the_program_knows_it(group: str | None) -> None:
    """Also one whose start() raised."""

    async def test(servers: str) -> None:
        for topic in ("t", "no-such-topic"):
            more = {} if topic == "t" else {"request_timeout_ms": 1_000}
            made = quick_consumer(servers, topic, group_id=group, **more)
            if topic == "t":
                await made.start()
                await made.getone()
            else:
                with pytest.raises(errors.UnknownTopicOrPartitionError):
                    await made.start()
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                del made
                said: list[str] = []
                while not said:  # it may still be taking part in its group
                    await asyncio.sleep(0.01)
                    gc.collect()
                    said = [str(each.message) for each in seen if servers in str(each.message)]  # other tests may have left some, too
            assert [text.partition("(")[0] for text in said] == ["unclosed AIOKafkaConsumer"]

    with_records(test, 1, auto_create_topics_enable=False)


def test_a_task_is_inside_a_listener_while_it_is_called_and_no_longer() -> None:
    seen = []

    class Looking(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            seen.append((engines.calls, engines.inside))

        on_partitions_assigned = on_partitions_revoked

    engines = EngineListener(Looking(), lambda: {T0})

    async def called() -> None:
        await engines.on_partitions_assigned([T0])
        seen.append((engines.calls, engines.inside))
        await asyncio.wait_for(engines.ended(), GUARD_S)

    asyncio.run(called())
    assert seen == [(True, True)] * 2 + [(False, False)]
