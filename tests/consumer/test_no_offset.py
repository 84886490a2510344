"""auto_offset_reset="none": a partition without an offset, or with one that is not there, is an error of that partition alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from produce_raw import produce
from test_fetcher import FetchRig, filled, numbers

from kafkacore import KafkaConsumer, errors
from kafkacore.consumer.group.commits import CommittedQuery
from kafkacore.consumer.subscription import EARLIEST
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.inside import errors_in, refused_in
from tests.kit.rows import each_row

A, B, C = (TopicPartition("t", index) for index in range(3))


def rig() -> FetchRig:
    return FetchRig({A: filled(), B: filled(), C: filled()}, reset="none", seek=False)


def test_partitions_without_an_offset_are_one_error_and_the_others_are_read() -> None:
    consumer = rig()
    consumer.subscription.seek(B, 0)
    consumer.positions.step(1_000, 0)
    consumer.fetcher.send_fetches(1_000)
    with pytest.raises(errors.NoOffsetForPartition, match="2 partitions and auto_offset_reset is none: t-0, t-2") as caught:
        consumer.positions.raise_failure()
    assert (caught.value.topic, caught.value.partition, caught.value.partitions) == ("t", 0, (A, C))
    consumer.cluster.deliver()
    assert consumer.values() == {B: numbers(0, 10)}
    for _ in range(10):  # none before the back-off
        consumer.round(9)
    with pytest.raises(errors.NoOffsetForPartition):
        consumer.round(20)


@each_row("count, said", [(10, ", t-9; seek"), (11, ", t-9 and 1 more; seek")])
def test_ten_partitions_without_an_offset_are_named(count: int, said: str) -> None:
    consumer = FetchRig({TopicPartition("t", index): filled() for index in range(count)}, reset="none", seek=False)
    consumer.positions.step(1_000, 0)
    with pytest.raises(errors.NoOffsetForPartition) as caught:
        consumer.positions.raise_failure()
    assert said in caught.value.message and len(caught.value.partitions) == count


def test_what_a_seek_has_mended_is_not_raised() -> None:
    consumer = rig()
    consumer.positions.step(1_000, 0)
    consumer.subscription.seek(A, 3)
    consumer.subscription.request_reset(B, EARLIEST)
    consumer.subscription.remove([C])
    assert consumer.poll() == {A: numbers(3, 7)}
    assert consumer.poll() == {B: numbers(0, 10)}
    assert consumer.positions.idle


def test_a_paused_partition_is_an_error_once_it_is_resumed() -> None:
    consumer = rig()
    consumer.subscription.seek(A, 0)
    consumer.subscription.seek(B, 0)
    consumer.subscription.pause(C)
    assert consumer.poll() == {A: numbers(0, 10), B: numbers(0, 10)}
    for _ in range(50):
        consumer.round(100)
    assert not errors_in(consumer.positions)
    assert not refused_in(consumer.positions)  # nothing is asked while nobody reads it
    consumer.subscription.resume(C)
    with pytest.raises(errors.NoOffsetForPartition, match="t-2"):
        consumer.round()


def test_paused_between_the_error_and_the_read() -> None:
    consumer = rig()
    consumer.positions.step(1_000, 0)
    consumer.subscription.pause(A)
    consumer.subscription.pause(B)
    with pytest.raises(errors.NoOffsetForPartition, match="t-2"):
        consumer.positions.raise_failure()
    with pytest.raises(errors.NoOffsetForPartition, match="t-0"):
        consumer.positions.raise_failure(A)
    consumer.subscription.resume(B)
    with pytest.raises(errors.NoOffsetForPartition, match=r"1 partition .*t-1"):
        consumer.round()
    consumer.subscription.resume(A)
    with pytest.raises(errors.NoOffsetForPartition, match="t-0"):
        consumer.round(100)


def test_an_offset_that_is_committed_later_is_found() -> None:
    consumer = FetchRig({A: filled()}, reset="none", seek=False)
    asked: list[CommittedQuery] = []

    def fetch_committed(tps: Iterable[TopicPartition]) -> CommittedQuery:
        query = CommittedQuery(tps)
        query.results = {tp: OffsetAndMetadata(4) if len(asked) > 1 else None for tp in query.waiting}
        query.waiting.clear()
        asked.append(query)
        return query

    consumer.positions.fetch_committed = fetch_committed
    raised = 0
    for _ in range(6):
        try:
            consumer.round(150)
        except errors.NoOffsetForPartition:
            raised += 1
    assert (raised, len(asked)) == (2, 3)
    assert consumer.poll() == {A: numbers(4, 6)}


@pytest.mark.usefixtures("client_face")
def test_the_position_of_one_says_nothing_of_another(broker: Any) -> None:
    with KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="none", retry_backoff_ms=10) as consumer:
        consumer.assign([A, B])
        consumer.seek_to_beginning(A)
        assert consumer.position(A, timeout=60) == 0
        with pytest.raises(errors.NoOffsetForPartition, match="t-1"):
            consumer.position(B, timeout=60)
        consumer.pause(B)
        with pytest.raises(errors.NoOffsetForPartition, match="t-1"):
            consumer.position(B, timeout=60)


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize("how", ["poll", "poll_batch", "for"])
def test_every_way_of_reading_goes_on_with_the_neighbours(broker: Any, how: str) -> None:
    produce(broker.address, "t", 0, numbers(0, 100))
    with KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="none", retry_backoff_ms=10, max_poll_records=30) as consumer:
        consumer.assign([A, B])
        consumer.seek(A, 0)
        values: list[bytes | None] = []
        raised = 0
        while len(values) < 100 or raised < 2:
            try:
                if how == "poll":
                    values += [record.value for records in consumer.poll(60).values() for record in records]
                elif how == "poll_batch":
                    values += [record.value for batch in consumer.poll_batch(60) for record in batch]
                else:
                    for record in consumer:
                        values.append(record.value)
            except errors.NoOffsetForPartition as error:
                assert error.partition == 1
                raised += 1
        assert values == numbers(0, 100)
        consumer.seek(B, 0)
        consumer.poll()


def test_an_error_that_is_owed_ends_with_a_seek_or_a_pause() -> None:
    """Records of a neighbour came first; by the next call the partition is read elsewhere, or not at all."""
    for mend in ("seek", "pause"):
        consumer = FetchRig({A: filled(), B: filled()}, reset="none")
        consumer.subscription.seek(B, 77)
        consumer.round()
        assert consumer.values() == {A: numbers(0, 10)}
        if mend == "seek":
            consumer.subscription.seek(B, 0)
            assert consumer.poll() == {B: numbers(0, 10)}
        else:
            consumer.subscription.pause(B)
            consumer.log(A).append(b"more")
            assert consumer.poll() == {A: [b"more"]}
            consumer.subscription.resume(B)
            with pytest.raises(errors.OffsetOutOfRange):
                consumer.poll()
