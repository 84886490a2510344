"""Records that are given up, and calls with many records: their columns, errors and futures, over a scripted client."""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from producer_support import Bench, all_memory_back, started

from kafkacore import errors
from kafkacore.errors import Code, PurgedError, UsageError
from kafkacore.producer.futures import BatchFuture
from kafkacore.producer.many_call import ManyCall, none_queued, one_array, partition_numbers
from kafkacore.producer.purge import purge
from kafkacore.types import TopicPartition
from tests.kit.inside import doubts_of
from tests.kit.rows import each_row


def busy(idempotent: bool) -> tuple[Bench, list[Any]]:
    """One record on the wire, one that waits for its retry, one that was never sent."""
    bench = started() if idempotent else Bench(enable_idempotence=False)
    bench.send_now("t", b"0", partition=0)
    bench.answered((0, 0, 0))
    retried = bench.send_now("t", b"retried", partition=1)
    bench.lost(errors.DisconnectError("cut"))
    wire = bench.send_now("t", b"wire", partition=0)
    bench.client.blocked.add(1)
    return bench, [wire, retried, bench.send("t", b"new", partition=0)]


@each_row("idempotent", [False, True])
def test_a_purge_takes_what_it_is_asked_for(idempotent: bool) -> None:
    bench, [wire, retried, new] = busy(idempotent)
    assert purge(bench.sender, queued=False, in_flight=False) == 0
    assert purge(bench.sender, queued=True, in_flight=False) == 2
    assert not wire.done()
    found = [future.exception(0) for future in (retried, new)]
    assert [(type(e), e.in_flight, e.topic, e.partition) for e in found] == [(PurgedError, False, "t", 1), (PurgedError, False, "t", 0)]
    assert [len(e.attempts) for e in found] == [1, 0]
    assert "1 record purged before they were sent" in str(new.exception(0))
    assert [queue.index for queue in doubts_of(bench.transactions)] == [1] if idempotent else bench.transactions is None
    assert purge(bench.sender, queued=True, in_flight=True) == 1
    assert wire.exception(0).in_flight
    assert "before the answer" in str(wire.exception(0))
    assert purge(bench.sender, queued=True, in_flight=True) == 0, "each has its outcome"
    bench.answered((0, 0, 1))
    assert all_memory_back(bench)


def many(bench: Bench, values: list[bytes], partitions: list[int]) -> BatchFuture:
    progress = bench.append_many(values, partitions=np.array(partitions, np.int32))
    return BatchFuture("t", progress)


def test_the_future_of_many_records_says_where_they_are() -> None:
    bench = Bench(enable_idempotence=False)
    heard: list[Any] = []
    future = many(bench, [b"a", b"b", b"c", b"d"], [0, 1, 0, 1])
    future.add_done_callback(lambda it: heard.append(("first", it)))
    future.add_done_callback(lambda it: 1 // 0)
    future.add_done_callback(lambda it: heard.append(("third", it)))
    bench.step()
    assert not future.done() and not heard
    assert (len(future), repr(future)) == (4, "<BatchFuture t: 4 records in 2 batches, done=False>")
    with pytest.raises(errors.KafkaTimeoutError, match="not all of 4 records have an outcome within 0 s") as late:
        future.result(0)
    assert (late.value.topic, late.value.partition) == ("t", 0)
    bench.answered((0, 0, 7), (1, Code.RECORD_LIST_TOO_LARGE, -1))
    assert future.done()
    assert heard == [("first", future), ("third", future)], "one that fails keeps no other back"
    found = future.result(0)
    assert (found.offsets.tolist(), found.partitions.tolist(), len(found)) == ([7, -1, 8, -1], [0, 1, 0, 1], 4)
    assert found.offsets is found.offsets and found.partitions is found.partitions
    assert found.stretches() == {TopicPartition("t", 0): (7, 9)}
    assert repr(found) == "<BatchMetadata t: 4 records, 2 failed>"
    assert sorted(found.errors) == [1, 3]
    assert future.exception(0) is found.errors[1]
    future.add_done_callback(lambda it: heard.append("late"))
    assert heard[2:] == ["late"], "at once, since it is known"


def test_many_records_without_a_failure() -> None:
    bench = Bench(enable_idempotence=False)
    future = many(bench, [b"a", b"b"], [0, 1])
    bench.step()
    bench.answered((0, 0, 0), (1, 0, 5))
    assert future.exception(0) is None
    assert future.result().stretches() == {TopicPartition("t", 0): (0, 1), TopicPartition("t", 1): (5, 6)}


@each_row(
    ("given", "numbers", "named"),
    [
        ([0, 2**31 - 1, -(2**31)], [0, 2**31 - 1, -(2**31)], [0, 2**31 - 1, -(2**31)]),
        ([], [], []),
        (pa.array([1, None, 3]), [1, -1, 3], [1, 3]),
        (pa.array([1, 3]), [1, 3], [1, 3]),
        (pa.array([None, None], pa.int32()), None, None),
    ],
)
def test_partitions_of_many_records(given: Any, numbers: list[int] | None, named: list[int] | None) -> None:
    found = partition_numbers(given)
    assert tuple(None if each is None else each.tolist() for each in found) == (numbers, named)
    if numbers is not None:
        assert found[0].dtype == np.int32
        assert found[0] is not given


@each_row(
    ("given", "error", "said"),
    [
        ([0.5], TypeError, "partitions must be whole numbers, not"),
        ([2**31], UsageError, "partitions have 31 bits; asked for 2147483648..2147483648"),
        ([-(2**31) - 1], UsageError, "partitions have 31 bits"),
        ([math.nan], TypeError, "whole numbers"),
    ],
)
def test_what_is_no_partition_is_refused(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        partition_numbers(given)


def test_a_column_in_chunks_becomes_one_array() -> None:
    chunks = pa.chunked_array([["a"], ["b"]])
    assert one_array(chunks).to_pylist() == ["a", "b"]
    assert one_array(pa.chunked_array([["a"]])).equals(pa.array(["a"]))
    assert one_array(chunks.dictionary_encode()).to_pylist() == ["a", "b"]
    assert one_array(values := ["a"]) is values
    with pytest.raises(TypeError, match="has several columns"):
        one_array(pa.table({"a": [1], "b": [2]}))


def test_failures_are_counted_until_someone_has_looked() -> None:
    bench = Bench(enable_idempotence=False)
    futures = [bench.send("t", b"%d" % nth, partition=nth % 2) for nth in range(5)]
    bench.step()
    bench.answered((0, Code.INVALID_RECORD, -1), (1, Code.RECORD_LIST_TOO_LARGE, -1))
    counted = bench.sender.counters
    assert (counted["failed_records"], counted["requests"], counted["retries"], counted["expired_batches"]) == (5, 1, 0, 0)
    assert futures[0].exception(0) is not None
    count, causes = bench.sender.unobserved_failures()
    assert (count, [(cause.code, cause.partition) for cause in causes]) == (4, [(Code.INVALID_RECORD, 0), (Code.RECORD_LIST_TOO_LARGE, 1)])
    assert bench.sender.unobserved_failures() == (0, [])


def test_who_awaits_many_records_has_looked_at_their_failures() -> None:
    bench = Bench(enable_idempotence=False)
    future = many(bench, [b"a", b"b"], [0, 0])
    bench.step()
    bench.answered((0, Code.INVALID_RECORD, -1))

    async def outcome() -> Any:
        return await future

    assert sorted(asyncio.run(outcome()).errors) == [0, 1]
    assert bench.sender.unobserved_failures() == (0, [])


@each_row(("values", "is_text"), [(np.array(["a"]), True), (np.array([1.5]), False), (5, False)])
def test_what_is_no_column_says_so_and_of_text_how_it_becomes_one(values: Any, is_text: bool) -> None:
    with pytest.raises(TypeError, match=r"^values: ") as refused:
        ManyCall(Bench(enable_idempotence=False).topic, values, None, None, None, 0)
    assert ("np.char.encode" in str(refused.value)) is is_text


def call_of(values: Any = (b"a", b"b"), **more: Any) -> ManyCall:
    given = {"keys": None, "headers": None, "timestamps_ms": None, "waited_ms": 7}
    return ManyCall(Bench(enable_idempotence=False).topic, list(values), **given | more)


@each_row(
    ("more", "said"),
    [
        ({"keys": [b"k"]}, "2 values, 1 keys"),
        ({"timestamps_ms": [1]}, "2 values, 1 timestamps"),
        ({"timestamps_ms": -1}, r"must not be negative, got -1 \(topic t\)"),
        ({"timestamps_ms": [5, -2]}, "must not be negative, got -2"),
        ({"headers": [[], [], []]}, "2 values, 3 lists of headers"),
    ],
)
def test_columns_of_many_records_that_do_not_fit(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call_of(**more)


def test_each_of_many_records_as_a_send_of_its_own() -> None:
    plain = call_of()
    assert plain.record(0) == ("t", b"a", None, None, None, None, None, 7)
    assert plain.record(1) == ("t", b"b", None, None, None, None, None, 0), "the wait counts once"
    full = call_of(keys=[b"k", None], headers=[[("h", b"0")], [("h", b"1")]], timestamps_ms=[0, 9])
    full.numbers = np.array([-1, 0], np.int32)
    assert full.record(0) == ("t", b"a", b"k", [("h", b"0")], None, 0, None, 7)
    assert full.record(1) == ("t", b"b", None, [("h", b"1")], 0, 9, None, 0)
    common = call_of(headers={"h": b"x"}, timestamps_ms=0)
    assert common.record(1) == ("t", b"b", None, [("h", b"x")], None, 0, None, 0)
    assert call_of((), timestamps_ms=[]).count == 0


def test_an_error_says_how_much_of_a_call_is_queued() -> None:
    error: Any = errors.BufferFullError("full")
    call_of().cut_short(error)
    assert error.message == "full (0 of 2 records were queued)"
    assert (error.appended, len(error.future)) == (0, 0)
    one: Any = errors.BufferFullError("full")
    call_of((b"a",)).cut_short(one)
    assert one.message == "full (0 of 1 record was queued)"
    for values, keys, said in (([5], None, r"values\[0\] must be bytes-like"), ([b"v"], [5], r"keys\[0\] .* give a key_serializer")):
        wrong: Any = TypeError("expected bytes-like")
        call_of(values, keys=keys).cut_short(wrong)
        assert re.search(said, str(wrong))
    before: Any = ValueError()
    none_queued(before, "t")
    assert (before.appended, len(before.future)) == (0, 0)
