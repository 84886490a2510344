"""Sender over a scripted client: producer ids, epochs and sequence numbers, which keep order and let nothing come twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from producer_support import Bench, all_memory_back, response, sequences, started

from kafkacore import errors, protocol
from kafkacore._codec import PartitionBooks, PartitionQueue, TransactionGate
from kafkacore.errors import Code, IllegalStateError
from kafkacore.producer import KafkaProducer
from kafkacore.producer.transactions import Phase, Standing
from kafkacore.producer.txn import MAX_EPOCH, TRANSITIONS, State, TransactionManager
from kafkacore.types import RecordMetadata, TopicPartition
from tests.kit.inside import books_by_partition, doubts_of
from tests.kit.rows import each_row


def test_a_lost_answer_is_retried_with_the_same_numbers_and_a_duplicate_is_success() -> None:
    bench = started()
    futures = [bench.send("t", b"x%d" % i, partition=0, timestamp_ms=i) for i in range(3)]
    bench.step()
    assert sequences(bench) == [(0, 0, 0)]
    bench.lost(errors.DisconnectError("cut"))
    bench.step(100)
    assert sequences(bench) == [(0, 0, 0)]
    bench.answered((0, Code.DUPLICATE_SEQUENCE_NUMBER, -1))
    assert [future.result(0) for future in futures] == [RecordMetadata("t", 0, -1, i, -1, 2) for i in range(3)]
    bench.send_now("t", b"y", partition=0)
    assert sequences(bench) == [(0, 0, 3)]


def known_to_the_broker(bench: Bench) -> None:
    """The first record of partition 0, at offset 0, is acknowledged: from here on batches of it may overlap on the wire."""
    bench.send_now("t", b"first", partition=0)
    bench.answered((0, 0, 0))


def test_until_the_first_batch_is_acknowledged_it_travels_alone() -> None:
    bench = started()
    futures = []
    for i in range(3):
        futures.append(bench.send_now("t", b"%d" % i, partition=0))
    assert sequences(bench) == [(0, 0, 0)]
    bench.answered((0, Code.NOT_LEADER_OR_FOLLOWER, -1))
    bench.publish()
    bench.step(400)
    assert sequences(bench) == [(0, 0, 0)]
    bench.answered((0, 0, 0))
    bench.step()
    futures.append(bench.send_now("t", b"3", partition=0))
    assert sequences(bench) == [(0, 0, 1), (0, 0, 3)]  # what queued meanwhile is one batch
    bench.client.answer(response((0, 0, 1)))
    bench.answered((0, 0, 3))
    assert [future.result(0).offset for future in futures] == [0, 1, 2, 3]
    assert all_memory_back(bench)


def test_a_batch_overtaken_by_a_later_one_is_numbered_anew() -> None:
    bench = started()
    known_to_the_broker(bench)
    first = bench.send_now("t", b"a", partition=0)
    second = bench.send_now("t", b"b", partition=0)
    assert [sequence for _, _, sequence in sequences(bench)] == [1, 2]
    bench.client.answer(response((0, Code.NOT_ENOUGH_REPLICAS, -1)))
    bench.client.answer(response((0, 0, 1)))  # the broker had forgotten the producer
    bench.step()
    assert second.result(0).offset == 1
    bench.step(400)
    assert sequences(bench) == [(0, 0, 1)]
    bench.answered((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
    bench.step(400)
    assert sequences(bench) == [(0, 1, 0)]
    bench.answered((0, 0, 2))
    assert first.result(0).offset == 2
    assert all_memory_back(bench)


def test_later_batches_wait_for_the_first_ones_retry_and_keep_order() -> None:
    bench = started()
    known_to_the_broker(bench)
    futures = []
    for i in range(3):
        futures.append(bench.send_now("t", b"%d" % i, partition=0))
    assert sequences(bench) == [(0, 0, 1), (0, 0, 2), (0, 0, 3)]
    bench.answered((0, Code.NOT_ENOUGH_REPLICAS, -1))
    bench.client.answer(response((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)))
    bench.answered((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
    futures.append(bench.send("t", b"3", partition=0))
    order = []
    for _ in range(4):
        bench.step(400)
        assert len(bench.requests()) == 1
        order += sequences(bench)
        bench.answered((0, 0, len(order)))
    bench.step()
    assert order == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4)]
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert bench.transactions.epoch == 0
    assert all_memory_back(bench)


@each_row("last", [0, 1])
def test_no_number_changes_while_a_batch_of_any_partition_with_a_gap_is_on_the_wire(last: int) -> None:
    bench = started(leaders=(1, 2))
    for _ in range(2):  # the first of a partition travels alone
        for index in (0, 1):
            bench.send("t", b"a", partition=index)
        bench.step()
        for index, _, base in sequences(bench):
            bench.client.answer(response((index, 0, base)))
        bench.step()
    for _ in range(2):
        for index in (0, 1):
            bench.send("t", b"b", partition=index)
        bench.step()
    assert sorted(sequences(bench)) == [(0, 0, 2), (0, 0, 3), (1, 0, 2), (1, 0, 3)]
    for index in (last, 1 - last, 1 - last):
        at = [each for each, _, _ in sequences(bench)].index(index)
        bench.client.answer(response((index, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)), at=at)
        bench.step()
    assert sequences(bench) == [(last, 0, 3)]
    assert bench.transactions.epoch == 0
    bench.answered((last, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
    bench.step(200)
    assert sorted(sequences(bench)) == [(0, 1, 0), (1, 1, 0)]


@each_row("answered", [0, 1])
def test_a_partition_in_doubt_does_not_wait_for_another_one(answered: int) -> None:
    bench = started(leaders=(1, 2), delivery_timeout_ms=1000, request_timeout_ms=900)
    for index in (0, 1):
        bench.send("t", b"a", partition=index)
    bench.step()
    bench.step(1000)
    bench.send("t", b"b", partition=answered)
    at = [index for index, _, _ in sequences(bench)].index(answered)
    bench.lost(errors.RequestTimedOut("late"), at=at)
    bench.step()
    assert sorted(sequences(bench)) == sorted([(answered, 1, 0), (1 - answered, 0, 0)])


@each_row(("retries", "epoch"), [(1, 0), (2, 1)])
def test_numbers_are_free_unless_the_batch_was_tried_to_the_end(retries: int, epoch: int) -> None:
    """With its last try it may be with the broker all the same."""
    bench = started(retries=retries)
    bench.send_now("t", b"x", partition=0)
    bench.answered((0, Code.NOT_ENOUGH_REPLICAS, -1))
    bench.step(400)
    bench.answered((0, Code.INVALID_RECORD, -1))
    bench.step()
    assert bench.transactions is not None and bench.transactions.epoch == epoch


@each_row("busy", [0, 3, 7])
def test_the_epoch_of_several_partitions_is_bumped_when_nothing_of_any_is_on_the_wire(busy: int) -> None:
    """All have lost a batch for good, and one of them has another one under way."""
    bench = started(partitions=8)
    others = [partition for partition in range(8) if partition != busy]

    def send(*partitions: int) -> None:
        for partition in partitions:
            bench.send("t", b"x", partition=partition)
        bench.step()

    send(*range(8))
    bench.answered(*((partition, 0, 0) for partition in range(8)))
    send(busy)
    send(busy)
    send(*others)
    bench.client.answer(response(*((partition, Code.INVALID_RECORD, -1) for partition in others)), at=2)
    bench.client.answer(response((busy, Code.INVALID_RECORD, -1)))
    for _ in range(2):
        bench.step()
        assert bench.transactions is not None and bench.transactions.epoch == 0
    bench.client.answer(response((busy, 0, 1)))
    for _ in range(2):
        bench.step()
    assert bench.transactions.epoch == 1


def test_the_largest_epoch_asks_for_a_new_producer_id() -> None:
    bench = Bench()
    assert MAX_EPOCH == 32_767
    bench.give_producer_id(7, MAX_EPOCH)
    for index in (0, 1):
        bench.send("t", b"a", partition=index)
    bench.step()
    bench.answered(*((index, Code.UNKNOWN_PRODUCER_ID, -1) for index in (0, 1)), log_start_offset=50)
    bench.step(100)
    assert [request.api for request, _ in bench.client.sent] == [protocol.InitProducerIdRequest]
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=8, producer_epoch=0))
    bench.step()
    bench.step()
    (request,) = bench.requests()
    assert [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in request.values()] == [(8, 0, 0)] * 2


def test_too_large_splits_and_numbers_run_on() -> None:
    bench = started(batch_size=4096)
    futures = [bench.send("t", b"x" * 100, partition=0, timestamp_ms=i) for i in range(20)]
    bench.step()
    bench.answered((0, Code.MESSAGE_TOO_LARGE, -1))
    seen, at = [], 0
    while bench.accumulator.has_incomplete:
        bench.step()
        for request in bench.requests():
            seen.append((request[0].base_sequence, request[0].record_count))
        for request in bench.requests():
            bench.client.answer(response((0, 0, at)))
            at += request[0].record_count
    assert [base for base, _ in seen] == [sum(count for _, count in seen[:i]) for i in range(len(seen))]
    assert len(seen) >= 2
    assert [future.result(0) for future in futures] == [RecordMetadata("t", 0, i, i, -1, 100) for i in range(20)]
    assert bench.sender.counters["splits"] == 1
    assert all_memory_back(bench)


def test_the_parts_of_a_batch_take_its_place_among_those_on_the_wire() -> None:
    bench = started(batch_size=4096)
    known_to_the_broker(bench)
    futures = [bench.send("t", b"x" * 100, partition=0) for _ in range(20)]
    bench.step()
    futures.append(bench.send_now("t", b"y", partition=0))
    assert sequences(bench) == [(0, 0, 1), (0, 0, 21)]
    bench.answered((0, Code.MESSAGE_TOO_LARGE, -1))
    parts = bench.transactions.statistics()["partitions"]["t-0"]  # type: ignore[union-attr]
    assert (parts["next_sequence"], parts["unanswered_batches"]) == (22, 3)
    bench.client.answer(response((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)))
    seen = []
    while bench.accumulator.has_incomplete:
        bench.step(400)
        for number in sequences(bench):
            bench.client.answer(response((0, 0, number[2])))
            seen.append(number)
    assert [base for _, _, base in seen[::2]] == [1, 21] and len(seen) == 3
    assert [future.result(0).offset for future in futures] == list(range(1, 22))


@each_row("took_it", [False, True], ids=["the broker has not got it", "the broker has it"])
def test_a_refused_authentication_between_two_tries_does_not_end_an_idempotent_producer(took_it: bool) -> None:
    bench = started()
    futures = [bench.send("t", b"a", partition=0)]
    bench.step()
    bench.answered((0, 0, 0))
    futures += [bench.send("t", b"b", partition=0)]
    bench.step()
    futures += [bench.send("t", b"c", partition=0)]
    bench.step()
    assert sequences(bench) == [(0, 0, 1), (0, 0, 2)]
    if took_it:
        bench.client.answer(response((0, 0, 2)), at=1)
    bench.lost(errors.DisconnectError("cut"))
    bench.client.blocked.add(1)
    refused = bench.client.refused[1] = errors.AuthenticationFailedError("the token has expired")
    bench.step(200)
    assert futures[1].exception(0) is refused
    if not took_it:
        bench.client.answer(error=errors.DisconnectError("cut"))  # the other one was under way
        bench.step()
        bench.client.refused[1] = errors.AuthenticationFailedError("the token has expired, the next attempt")
        bench.step(200)
        assert isinstance(futures[2].exception(0), errors.AuthenticationFailedError)
    bench.client.blocked.clear()
    bench.client.refused.clear()
    last = bench.send("t", b"d", partition=0)
    bench.step(200)
    # As after an expiry: the broker may have it, so the epoch rises, unless a later batch was acknowledged.
    assert sequences(bench) == ([(0, 0, 3)] if took_it else [(0, 1, 0)])
    bench.answered((0, 0, 3))
    assert last.result(0).offset == 3
    assert all_memory_back(bench)


def test_a_producer_id_is_asked_for_again_after_a_refused_authentication() -> None:
    bench = Bench()
    waited = bench.send_now("t", b"a", partition=0)
    refused = errors.AuthenticationFailedError("the token has expired")
    bench.lost(refused)
    assert waited.exception(0) is refused
    later = bench.send("t", b"b", partition=0)
    bench.client.refused[1] = refused  # still in force, and reported
    bench.client.blocked.add(1)
    bench.step()
    assert not later.done()
    bench.client.refused.clear()
    bench.client.blocked.clear()
    bench.step(200)
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
    bench.step()
    bench.step()
    bench.answered((0, 0, 0))
    assert later.result(0).offset == 0


def test_illegal_transitions_raise() -> None:
    assert set(TRANSITIONS) == set(State)
    books = TransactionManager()
    with pytest.raises(IllegalStateError, match="UNINITIALIZED to READY"):
        books.initialized(1, 0)
    books.fail(errors.for_code(Code.CLUSTER_AUTHORIZATION_FAILED)("no"))
    with pytest.raises(IllegalStateError):
        books.initializing()


def test_an_expired_batch_costs_no_epoch_when_a_later_one_is_acknowledged() -> None:
    """The broker takes a batch only after the one before it: TransactionManager.maybeResolveSequences looks at the last one sent."""
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    bench.send_now("t", b"first", partition=0)
    bench.client.answer(response((0, 0, 0)))  # rule 5: from now on several are under way
    bench.step()
    bench.send_now("t", b"a", partition=0)
    bench.step(500)
    later = bench.send_now("t", b"b", partition=0)
    assert sequences(bench) == [(0, 0, 1), (0, 0, 2)]
    bench.step(500)  # a expires on the wire
    bench.lost(errors.RequestTimedOut("late"))
    bench.answered((0, 0, 2))
    assert later.result(0).offset == 2
    bench.send_now("t", b"c", partition=0)
    assert sequences(bench) == [(0, 0, 3)]  # the same epoch, the next number


def test_numbers_resolve_across_the_wrap() -> None:
    books = TransactionManager()
    books.producer_id, books.epoch = 7, 0
    queue = Bench().topic.partitions[0]
    partition = books_by_partition(books)[queue] = PartitionBooks(7, 0)
    partition.next_sequence, partition.last_acked_sequence = 0, 2**31 - 1
    doubts_of(books).add(queue)
    books.resolve()
    assert (books.epoch, doubts_of(books)) == (0, set())


def test_a_refused_producer_id_is_asked_for_again_after_a_back_off_that_grows(caplog: pytest.LogCaptureFixture) -> None:
    """Not a millisecond too early, nor a round late: the Sender is back when the back-off ends. The log warns once, and not at first."""
    caplog.set_level("INFO", "kafkacore.producer.sender")
    bench = Bench()
    tries: list[int] = []

    def backoff_ms(attempts: int) -> int:
        tries.append(attempts)
        return 100 << attempts

    bench.sender._backoff_ms = backoff_ms
    bench.send("t", b"x", partition=0)
    levels = []
    for attempt, wait_ms in enumerate([100, 200, 400, 800, 1_600, 3_200, 6_400]):
        bench.step()
        (request,) = bench.client.sent
        assert request[0].api is protocol.InitProducerIdRequest
        assert (request[1].transactional_id, request[1].transaction_timeout_ms) == (None, 2**31 - 1)
        bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
        bench.step()
        levels.append(caplog.records[-1].levelname)
        assert tries == list(range(attempt + 1))
        bench.client.poll_timeouts.clear()
        bench.sender.run_once(bench.clock.now_ms(), 60_000)
        assert bench.client.poll_timeouts == [wait_ms]
        bench.clock.advance(wait_ms - 1)
        bench.sender.run_once(bench.clock.now_ms(), 60_000)
        assert bench.client.poll_timeouts == [wait_ms, 1]
        assert bench.client.sent == []
        bench.clock.advance(1)
    said = caplog.records[-1].getMessage()
    assert "COORDINATOR_LOAD_IN_PROGRESS" in said and said.endswith("[broker 1, InitProducerId v5]")
    bench.step()
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
    bench.step()
    bench.step()
    bench.answered((0, 0, 0))
    bench.sender.transactions = TransactionManager()  # another id is needed, with another back-off
    bench.step()
    bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
    bench.step()
    assert tries == [0, 1, 2, 3, 4, 5, 6, 0]
    levels.append(caplog.records[-1].levelname)
    assert levels == ["INFO"] * 5 + ["WARNING"] + ["INFO"] * 2
    bench.step(1_000)
    bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED))
    bench.step()
    assert caplog.records[-1].levelname == "WARNING"  # final: said at once


def test_after_a_fatal_error_records_fail_at_once_and_for_that_reason() -> None:
    bench = started()
    first, second = (bench.send("t", b"x", partition=partition) for partition in (0, 1))
    bench.client.blocked.add(1)
    bench.transactions.fail(errors.for_code(Code.CLUSTER_AUTHORIZATION_FAILED)("no"))  # type: ignore[union-attr]
    bench.step()
    for future in (first, second):
        assert future.exception(0).code == Code.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[union-attr]
    assert bench.client.sent == []
    assert all_memory_back(bench)


def test_statistics_count_the_batches_on_the_wire_by_partition() -> None:
    bench = Bench(partitions=3, enable_idempotence=False, acks=1)
    looked_at: Any = SimpleNamespace(_sender=bench.sender, _topics={"t": bench.topic}, _transactions=None)

    def on_the_wire() -> list[int]:
        partitions = KafkaProducer.statistics(looked_at)["partitions"]
        return [partitions[TopicPartition("t", index)]["in_flight_batches"] for index in range(3)]

    assert on_the_wire() == [0, 0, 0]
    for partition in (0, 0, 1, 0):
        bench.send_now("t", b"x", partition=partition)
    assert on_the_wire() == [3, 1, 0]
    bench.answered((0, 0, 0))
    assert on_the_wire() == [2, 1, 0]


def books_of(gate: TransactionGate | None, last_acked: int) -> tuple[TransactionManager, PartitionQueue]:
    """The books of a producer with one partition."""
    manager = TransactionManager(gate)
    manager.initializing()
    manager.initialized(7, 0)
    queue = started().topic.partitions[0]
    books_by_partition(manager)[queue] = SimpleNamespace(last_acked_sequence=last_acked, next_sequence=last_acked + 1, in_flight=[])
    return manager, queue


UNKNOWN, GAP = Code.UNKNOWN_PRODUCER_ID, Code.OUT_OF_ORDER_SEQUENCE_NUMBER


@each_row(
    ("code", "last_acked", "sequence", "log_start", "was_reset", "bumps"),
    [
        (UNKNOWN, 4, 5, -1, False, False),
        (UNKNOWN, 4, 5, 0, False, True),
        (UNKNOWN, 4, 5, 0, True, False),
        (GAP, 4, 5, -1, False, True),
        (GAP, 4, 5, -1, True, False),
        (GAP, 4, 6, -1, False, False),
        (GAP, 4, 4, -1, True, True),
        (GAP, 0, 0, -1, True, True),
        (GAP, -1, 2**31 - 1, -1, True, False),
        (GAP, 2**30, 1, -1, True, True),
        (GAP, 2**30, 0, -1, True, False),
        (Code.NOT_LEADER_OR_FOLLOWER, 4, 5, -1, False, False),
    ],
)
def test_what_a_refused_number_asks_for(code: int, last_acked: int, sequence: int, log_start: int, was_reset: bool, bumps: bool) -> None:
    manager, queue = books_of(None, last_acked)
    batch: Any = SimpleNamespace(queue=queue, base_sequence=sequence, has_sequence=True, sequence_has_been_reset=was_reset, in_flight=False)
    assert manager.can_retry(batch, errors.from_code(code), log_start)
    assert manager.has_doubts is bumps
    manager.mark_unresolved(batch)
    manager.can_retry(batch, errors.from_code(code), log_start)
    manager.resolve()
    assert manager.epoch == (bumps or code == GAP)
    assert not manager.can_retry(batch, errors.RecordTooLarge(), log_start)
    batch.has_sequence = False
    assert not manager.can_retry(batch, errors.from_code(GAP), log_start) and not manager.has_doubts


@each_row(
    ("code", "sequence", "log_start", "goes"),
    [
        (UNKNOWN, 5, -1, True),
        (UNKNOWN, 5, 0, False),
        (GAP, 5, -1, False),
        (GAP, 6, -1, True),
        (GAP, 4, -1, False),
        (GAP, 5 + 0x3FFFFFFF, -1, True),
        (GAP, 5 + 0x40000000, -1, False),
        (Code.NOT_LEADER_OR_FOLLOWER, 5, -1, True),
        (Code.MESSAGE_TOO_LARGE, 5, -1, False),
    ],
)
def test_in_a_transaction_a_batch_goes_again_as_it_is_or_not_at_all(code: int, sequence: int, log_start: int, goes: bool) -> None:
    manager, queue = books_of(TransactionGate(Standing(Phase.OPEN, True, set())), 4)
    batch: Any = SimpleNamespace(queue=queue, base_sequence=sequence, has_sequence=True, sequence_has_been_reset=False)
    assert manager.can_retry(batch, errors.from_code(code), log_start) is goes
    assert not manager.has_doubts
    manager.mark_unresolved(batch)
    assert manager.can_retry(batch, errors.from_code(code), log_start) is (goes and code != GAP)


class Unanswered:
    """A batch without an answer, which is not on the wire; it keeps the numbers it is given."""

    def __init__(self, queue: PartitionQueue, count: int) -> None:
        self.queue, self.count, self.base_sequence, self.numbers = queue, count, 5, [()]
        self.has_sequence, self.sequence_has_been_reset, self.in_flight = True, False, False

    def set_producer_state(self, *numbers: int) -> None:
        self.numbers.append(numbers)  # type: ignore[arg-type]

    def clear_producer_state(self) -> None:
        self.numbers.clear()


@pytest.mark.parametrize("epoch", [MAX_EPOCH - 1, MAX_EPOCH])
def test_all_partitions_with_a_gap_begin_again(epoch: int) -> None:
    manager = TransactionManager()
    manager.initializing()
    manager.initialized(7, epoch)
    unanswered = {}
    for queue in started().topic.partitions:
        batches = unanswered[queue] = [Unanswered(queue, 3), Unanswered(queue, 4)]
        books_by_partition(manager)[queue] = SimpleNamespace(
            last_acked_sequence=4, last_acked_offset=9, next_sequence=12, in_flight=batches, producer_id=7, epoch=epoch
        )
        assert manager.can_retry(batches[0], errors.UnknownProducerId(), 0)  # type: ignore[arg-type]
    first = unanswered[queue][0]
    first.in_flight = True
    manager.resolve()
    assert manager.epoch == epoch, "a batch on the wire keeps its number"
    first.in_flight = False
    manager.resolve()
    assert not manager.has_doubts
    found = manager.statistics()
    if epoch == MAX_EPOCH:
        assert (found["state"], found["producer_id"], found["producer_epoch"], found["partitions"]) == ("UNINITIALIZED", -1, -1, {})
        assert [batch.numbers for batches in unanswered.values() for batch in batches] == [[]] * 4
        return
    assert (found["state"], found["producer_id"], found["producer_epoch"]) == ("READY", 7, MAX_EPOCH)
    same = {"next_sequence": 7, "last_acked_sequence": -1, "unanswered_batches": 2, "unresolved": False}
    assert found["partitions"] == {"t-0": same, "t-1": same}
    for queue, batches in unanswered.items():
        assert [batch.numbers[-1] for batch in batches] == [(7, MAX_EPOCH, 0), (7, MAX_EPOCH, 3)]
        assert books_by_partition(manager)[queue].last_acked_offset == -1
        assert books_by_partition(manager)[queue].epoch == MAX_EPOCH
