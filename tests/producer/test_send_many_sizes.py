"""How large the batches of send_many are, whatever batch_size says, and what bounds them: request, topic, memory, codec, partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from producer_support import Bench, response

from kafkacore.errors import BufferFullError, Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.inside import topics_of
from tests.kit.records import producer_of as producer
from tests.kit.rows import each_row

PLAIN = {"enable_idempotence": False}
KIB, MIB = 1024, 1024 * 1024


cluster = embedded({"one": 1, "four": 4}, brokers=1)


def column(count: int, size: int = 100) -> tuple[bytes, Any]:
    return (b"".join((b"%d" % i).ljust(size, b"x") for i in range(count)), np.arange(count + 1, dtype=np.int32) * size)


def reserved(bench: Bench) -> list[int]:
    return [batch.reserved_bytes for batch in bench.accumulator.incomplete()]


# ---- one call --------------------------------------------------------------------------------------------------------------------------


def test_a_column_fills_batches_of_a_mebibyte_and_its_end_a_small_one() -> None:
    bench = Bench(partitions=1, **PLAIN)
    values = column(40_000)
    bench.append_many(values)
    assert [size for size in reserved(bench) if size >= MIB // 2] == [MIB] * 4
    filled = [batch.size_bytes for batch in bench.accumulator.incomplete()]
    assert all(MIB - 256 < size <= MIB for size in filled[:4])
    assert all(size & (size - 1) == 0 for size in reserved(bench))  # PooledBuffer takes powers of two: none of it idle
    assert bench.pool.total_bytes - bench.pool.available_bytes == sum(reserved(bench))
    while bench.accumulator.has_queued():
        bench.step()
    seen = [bytes(record.value) for request in bench.requests() for record in request[0].records()]
    while bench.client.sent:
        bench.client.answer(response((0, 0, 0)))
    bench.step()
    assert seen == [values[0][i : i + 100] for i in range(0, len(values[0]), 100)]
    assert bench.pool.available_bytes == bench.pool.total_bytes


KINDS = {
    "bytes": lambda rows: rows,
    "str": lambda rows: [row.decode() for row in rows],
    "tuple": tuple,
    "bytearrays": lambda rows: [bytearray(row) for row in rows],
    "arrow": lambda rows: pa.array(rows, pa.binary()),
    "views": lambda rows: pa.array(rows, pa.binary_view()),
    "fixed": lambda rows: pa.array(rows, pa.binary(100)),
    "numpy S": lambda rows: np.array(rows, "S100"),
    "numpy V": lambda rows: np.array(rows, "V100"),
    "pair": lambda rows: (b"".join(rows), np.arange(len(rows) + 1, dtype=np.int64) * 100),
}


@each_row("kind", KINDS)
def test_every_kind_of_column_gives_the_same_batches(kind: str) -> None:
    rows = [(b"%d" % i).ljust(100, b"x") for i in range(6_000)]
    bench = Bench(partitions=1, **PLAIN)
    bench.append_many(KINDS[kind](rows))
    assert reserved(bench) == [512 * KIB, 256 * KIB]
    bench.step()
    bench.step()
    assert [bytes(record.value) for request in bench.requests() for record in request[0].records()] == rows


def test_a_list_that_is_changed_while_it_is_read_is_not_read_beyond_its_end() -> None:
    bench = Bench(partitions=1, send_many_batch_size=64 * KIB, **PLAIN)
    values = [b"x" * 1_000] * 5_000

    def shrink(*given: Any) -> None:
        del values[600:]  # the estimates for the next batches look at rows far behind
        Bench._roll_many(bench, *given)

    bench._roll_many = shrink  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="changed while it was read"):
        bench.append_many(values)


# ---- what bounds a batch ---------------------------------------------------------------------------------------------------------------


@each_row(
    ("settings", "largest"),
    [
        ({"max_request_size": 300_000}, 256 * KIB),
        ({"max_request_size": MIB - 1}, 512 * KIB),
        ({"buffer_memory": 4 * MIB}, 128 * KIB),
        ({"send_many_batch_size": 200_000}, 128 * KIB),
        ({"send_many_batch_size": 0}, 16_384),
        ({"send_many_batch_size": 1_000}, 16_384),
        ({"batch_size": 3_000_000, "max_request_size": 5_000_000}, 3_000_000),
        ({"batch_size": 1_000}, MIB),
        ({"batch_size": 0}, MIB),
        ({"send_many_batch_size": 4 * MIB, "max_request_size": 5_000_000, "buffer_memory": 256 * MIB}, 4 * MIB),
    ],
)
def test_the_smallest_limit_rules_and_a_larger_batch_size(settings: dict[str, int], largest: int) -> None:
    bench = Bench(partitions=1, **PLAIN, **settings)
    bench.append_many(column(10_000 + 3 * largest // 200))
    assert max(reserved(bench)) == largest
    assert all(batch.size_bytes <= bench.config.max_request_size for batch in bench.accumulator.incomplete())


@each_row(("limit", "idempotent"), [(20_000, True), (600_000, False)])
def test_a_topic_with_small_batches_is_remembered(cluster: EmbeddedCluster, limit: int, idempotent: bool) -> None:
    topic = f"small-{limit}-{idempotent}"
    cluster.create_topic(topic, partitions=1, configs={"max.message.bytes": str(limit)})
    values = column(12_000)
    rows = [values[0][i : i + 100] for i in range(0, len(values[0]), 100)]
    calls = 0
    with producer(cluster, enable_idempotence=idempotent, max_in_flight_requests_per_connection=5 if idempotent else 1) as p:
        while calls < 50 and (not calls or topics_of(p)[topic].many_limit_bytes > limit):
            assert not p.send_many(topic, values).result(30).errors
            calls += 1
        assert limit // 2 - 1 <= topics_of(p)[topic].many_limit_bytes <= limit
        splits = p.metrics()["splits"]
        assert splits >= 1
        for _ in range(3):
            assert not p.send_many(topic, values).result(30).errors
        assert p.metrics()["splits"] == splits
    assert [record.value for record in cluster.records(topic)] == rows * (calls + 3)


def test_a_refused_batch_of_batch_size_says_nothing_about_columns() -> None:
    bench = Bench(partitions=1, batch_size=4_096, **PLAIN)
    for _ in range(10):
        bench.send("t", b"x" * 100, partition=0)
    bench.step()
    bench.answered((0, int(Code.MESSAGE_TOO_LARGE), -1))
    assert bench.sender.counters["splits"] == 1
    bench.append_many(column(20_000))
    assert max(reserved(bench)) == MIB


# ---- memory ----------------------------------------------------------------------------------------------------------------------------


def test_without_time_to_wait_what_is_free_is_used_to_the_end() -> None:
    bench = Bench(partitions=1, buffer_memory=4 * MIB, **PLAIN)
    bench.pool.allocate(4 * MIB - 70 * KIB, 0)
    with pytest.raises(BufferFullError) as raised:
        bench.append_many(column(5_000))
    assert reserved(bench) == [64 * KIB]
    assert raised.value.topic == "t"
    assert bench.pool.available_bytes == 6 * KIB


def test_a_wait_is_for_a_batch_and_does_not_cut_it_ever_smaller() -> None:
    bench = Bench(partitions=1, buffer_memory=4 * MIB, **PLAIN)
    bench.max_block_ms = 1
    bench.pool.allocate(4 * MIB - 56 * KIB, 0)
    held = bench.pool.allocate(36 * KIB, 0)
    with pytest.raises(BufferFullError, match="131072 bytes needed"):
        bench.append_many(column(5_000))
    assert bench.pool.available_bytes == 20 * KIB
    bench.pool.deallocate(held, 36 * KIB)
    bench.append_many(column(300))
    assert reserved(bench) == [32 * KIB, 16 * KIB]  # a quarter or more of it is there: no wait


# ---- when a batch leaves, and what comes behind it -------------------------------------------------------------------------------------


def test_a_batch_with_batch_size_bytes_does_not_linger_and_takes_more_until_it_leaves() -> None:
    bench = Bench(partitions=1, linger_ms=1_000, **PLAIN)
    bench.append_many(column(100))
    bench.step()
    assert not bench.requests()  # 11 KB linger, as ever
    bench.step(1_000)
    assert [len(list(request[0].records())) for request in bench.requests()] == [100]
    bench.answered((0, 0, 0))
    bench.append_many(column(1_000))
    bench.append_many(column(50))
    assert reserved(bench) == [128 * KIB]
    bench.step()
    assert [len(list(request[0].records())) for request in bench.requests()] == [1_050]


@each_row(("rows", "urgent"), [(1_000, [True]), (50, [])])
def test_the_sender_hears_of_an_open_batch_with_batch_size_bytes(rows: int, urgent: list[bool]) -> None:
    bench = Bench(partitions=1, linger_ms=1_000, **PLAIN)
    bench._accumulator = bench.accumulator
    woken: list[bool] = []
    bench.accumulator.wake = lambda deadline_ms, urgent: woken.append(urgent) if urgent else None
    bench.accumulator.looking()
    bench.append_many(column(rows))
    bench.append_many([])
    assert len(bench.accumulator.incomplete()) == 1
    assert woken == urgent


def test_send_and_send_many_keep_their_order(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("mixed", partitions=1)
    expected: list[bytes] = []
    with producer(cluster) as p:
        for turn in range(6):
            for i in range(50):
                expected.append(b"s%d-%d" % (turn, i))
                p.send("mixed", expected[-1])
            rows = [(b"m%d-%d" % (turn, i)).ljust(120, b".") for i in range(4_000)]
            expected += rows
            p.send_many("mixed", rows)
        p.flush(60)
    assert [record.value for record in cluster.records("mixed")] == expected


# ---- partitions of rows without a key --------------------------------------------------------------------------------------------------


def in_turn(bench: Bench) -> list[int]:
    """Makes the sticky partition go round; returns the list of those chosen."""
    chosen: list[int] = []

    def choose(topic: Any) -> Any:
        chosen.append((topic.sticky.index + 1) % topic.n)
        return topic.partitions[chosen[-1]]

    bench.accumulator._choose_sticky = choose
    return chosen


def test_a_long_column_has_a_batch_for_every_partition() -> None:
    bench = Bench(partitions=4, **PLAIN)
    in_turn(bench)
    bench.append_many(column(10_000))
    assert [sum(batch.size_bytes for batch in queue.batches) > 200 * KIB for queue in bench.topic.partitions] == [True] * 4
    bench.append_many(column(80_000))
    assert max(reserved(bench)) == MIB
    held = [sum(batch.size_bytes for batch in queue.batches) for queue in bench.topic.partitions]
    assert max(held) - min(held) <= MIB + 64 * KIB


def test_calls_of_one_batch_go_round_the_partitions() -> None:
    bench = Bench(partitions=4, **PLAIN)
    chosen = in_turn(bench)
    for _ in range(8):
        bench.append_many(column(2_000))
        bench.step()  # it leaves at once: the next call begins another
    assert len(chosen) == 7
    counts = [0] * 4
    for request in bench.requests():
        for partition, batch in request.items():
            counts[partition] += len(list(batch.records()))
    assert counts == [4_000] * 4
