"""Sender with idempotence over a scripted client: retries, order, sequence recovery, expiry, splits."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from producer_support import Bench, response

from kafkacore import errors, protocol
from kafkacore._codec import PartitionBooks, TopicQueue
from kafkacore.errors import Code, IllegalStateError, KafkaTimeoutError, RecordTooLarge
from kafkacore.metadata import ClusterSnapshot, TopicInfo
from kafkacore.producer import KafkaProducer
from kafkacore.producer import sender as sender_module
from kafkacore.producer.txn import MAX_EPOCH, TRANSITIONS, State, TransactionManager
from kafkacore.types import RecordMetadata, TopicPartition


def started(**settings: Any) -> Bench:
    bench = Bench(**settings)
    bench.give_producer_id()
    return bench


def sequences(bench: Bench) -> list[tuple[int, int, int]]:
    """(partition, epoch, base sequence) of each batch on the wire."""
    return [(index, batch.producer_epoch, batch.base_sequence) for request in bench.requests() for index, batch in request.items()]


def all_memory_back(bench: Bench) -> bool:
    return bench.pool.available_bytes == bench.pool.total_bytes and not bench.accumulator.has_incomplete


def test_nothing_leaves_before_the_producer_id_is_known() -> None:
    bench = Bench()
    future = bench.send("t", b"x", partition=0)
    bench.step()
    assert [request.api for request, _ in bench.client.sent] == [protocol.InitProducerIdRequest]
    bench.client.answer(error=errors.DisconnectError("cut"))
    bench.step()
    bench.step(100)
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=9, producer_epoch=2))
    bench.step()
    bench.step()
    assert sequences(bench) == [(0, 2, 0)]
    bench.client.answer(response((0, 0, 33)))
    bench.step()
    assert future.result(0).offset == 33
    assert all_memory_back(bench)


def test_statistics_name_no_producer_before_there_is_an_id() -> None:
    def named(transactions: TransactionManager) -> tuple[str, int, int]:
        found = transactions.statistics()
        return found["state"], found["producer_id"], found["producer_epoch"]

    transactions = TransactionManager()
    assert named(transactions) == ("UNINITIALIZED", -1, -1)
    transactions.initializing()
    transactions.initialized(7, 0)
    assert named(transactions) == ("READY", 7, 0)


def test_acks_0_is_done_when_sent() -> None:
    bench = Bench(acks=0)
    future = bench.send("t", b"x", partition=0)
    bench.step()
    bench.client.answer(None)
    bench.step()
    assert future.result(0).offset == -1
    assert all_memory_back(bench)


def test_topic_ids_from_v13_and_names_without_an_id() -> None:
    bench = started()
    bench.send("t", b"x", partition=0)
    bench.step()
    request, message = bench.client.sent[0]
    assert (request.version, message.topic_data[0].name) == (13, "")
    info = bench.metadata.snapshot.topics["t"]
    bench.client.sent.clear()
    bench.metadata.snapshot.topics["t"] = info._replace(topic_id=bytes(16))  # type: ignore[index]
    bench.send("t", b"x", partition=1)
    bench.step()
    request, message = bench.client.sent[0]
    assert (request.version, message.topic_data[0].name) == (12, "t")


def test_a_lost_answer_is_retried_with_the_same_numbers_and_a_duplicate_is_success() -> None:
    bench = started()
    futures = [bench.send("t", b"x%d" % i, partition=0) for i in range(3)]
    bench.step()
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(error=errors.DisconnectError("cut"))
    bench.step()
    bench.step(100)
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(response((0, Code.DUPLICATE_SEQUENCE_NUMBER, -1)))
    bench.step()
    assert [future.exception(0) for future in futures] == [None] * 3
    bench.send("t", b"y", partition=0)
    bench.step()
    assert sequences(bench) == [(0, 0, 3)]


def known_to_the_broker(bench: Bench) -> None:
    """The first record of partition 0, at offset 0, is acknowledged: from here on batches of it may overlap on the wire."""
    bench.send("t", b"first", partition=0)
    bench.step()
    bench.client.answer(response((0, 0, 0)))
    bench.step()


def test_until_the_first_batch_is_acknowledged_it_travels_alone() -> None:
    bench = started()
    futures = []
    for i in range(3):
        futures.append(bench.send("t", b"%d" % i, partition=0))
        bench.step()
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(response((0, Code.NOT_LEADER_OR_FOLLOWER, -1)))
    bench.step()
    bench.publish()
    bench.step(400)
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    bench.step()
    futures.append(bench.send("t", b"3", partition=0))
    bench.step()
    assert sequences(bench) == [(0, 0, 1), (0, 0, 3)]     # what queued meanwhile is one batch
    bench.client.answer(response((0, 0, 1)))
    bench.client.answer(response((0, 0, 3)))
    bench.step()
    assert [future.result(0).offset for future in futures] == [0, 1, 2, 3]
    assert all_memory_back(bench)


def test_a_batch_overtaken_by_a_later_one_is_numbered_anew() -> None:
    bench = started()
    known_to_the_broker(bench)
    first = bench.send("t", b"a", partition=0)
    bench.step()
    second = bench.send("t", b"b", partition=0)
    bench.step()
    assert [sequence for _, _, sequence in sequences(bench)] == [1, 2]
    bench.client.answer(response((0, Code.NOT_ENOUGH_REPLICAS, -1)))
    bench.client.answer(response((0, 0, 1)))                                 # the broker had forgotten the producer
    bench.step()
    assert second.result(0).offset == 1
    bench.step(400)
    assert sequences(bench) == [(0, 0, 1)]
    bench.client.answer(response((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)))
    bench.step()
    bench.step(400)
    assert sequences(bench) == [(0, 1, 0)]
    bench.client.answer(response((0, 0, 2)))
    bench.step()
    assert first.result(0).offset == 2
    assert all_memory_back(bench)


def test_later_batches_wait_for_the_first_ones_retry_and_keep_order() -> None:
    bench = started()
    known_to_the_broker(bench)
    futures = []
    for i in range(3):
        futures.append(bench.send("t", b"%d" % i, partition=0))
        bench.step()
    assert sequences(bench) == [(0, 0, 1), (0, 0, 2), (0, 0, 3)]
    bench.client.answer(response((0, Code.NOT_ENOUGH_REPLICAS, -1)))
    bench.step()
    bench.client.answer(response((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)))
    bench.client.answer(response((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)))
    bench.step()
    futures.append(bench.send("t", b"3", partition=0))
    order = []
    for _ in range(4):
        bench.step(400)
        assert len(bench.requests()) == 1
        order += sequences(bench)
        bench.client.answer(response((0, 0, len(order))))
        bench.step()
    bench.step()
    assert order == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 0, 4)]
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert bench.transactions is not None
    assert bench.transactions.epoch == 0
    assert all_memory_back(bench)


def test_out_of_order_for_the_next_expected_bumps_the_epoch_and_restarts_at_0() -> None:
    bench = started()
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.client.answer(response((0, 0, 10)))
    bench.step()
    future = bench.send("t", b"b", partition=0)
    bench.step()
    assert sequences(bench) == [(0, 0, 1)]
    bench.client.answer(response((0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)))
    bench.step()
    bench.step(100)
    assert sequences(bench) == [(0, 1, 0)]
    bench.client.answer(response((0, 0, 11)))
    bench.step()
    assert future.result(0).offset == 11


def test_the_largest_epoch_asks_for_a_new_producer_id() -> None:
    bench = Bench()
    assert MAX_EPOCH == 32_767
    bench.give_producer_id(7, MAX_EPOCH)
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.client.answer(response((0, Code.UNKNOWN_PRODUCER_ID, -1), log_start_offset=50))
    bench.step()
    bench.step(100)
    assert [request.api for request, _ in bench.client.sent] == [protocol.InitProducerIdRequest]
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=8, producer_epoch=0))
    bench.step()
    bench.step()
    ((batch,),) = [list(request.values()) for request in bench.requests()]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_a_failed_batch_leaves_no_gap() -> None:
    bench = started()
    lost = bench.send("t", b"a", partition=0)
    bench.step()
    bench.client.answer(response((0, Code.INVALID_RECORD, -1)))
    bench.step()
    assert isinstance(lost.exception(0), errors.InvalidRecord)
    bench.send("t", b"b", partition=0)
    bench.step()
    assert sequences(bench) == [(0, 1, 0)]


def test_expiry_on_the_wire_keeps_the_buffer_until_the_answer() -> None:
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    future = bench.send("t", b"a", partition=0)
    bench.step()
    bench.step(1000)
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert "no answer" in str(error)
    assert (error.topic, error.partition) == ("t", 0)
    assert not all_memory_back(bench)                 # KAFKA-19012: the socket may still be reading it
    bench.send("t", b"b", partition=0)
    bench.step()
    assert len(bench.requests()) == 1                 # nobody knows yet which sequence is next
    bench.client.answer(response((0, 0, 5)))
    bench.step()
    bench.step()
    assert sequences(bench) == [(0, 0, 1)]            # the broker had it after all: no gap, no bump
    bench.client.answer(response((0, 0, 6)))
    bench.step()
    assert all_memory_back(bench)


def until_sent(bench: Bench) -> None:
    """Lets time pass until the next try is on the wire."""
    for _ in range(100):
        if bench.requests():
            return
        bench.step(10)
    raise AssertionError("nothing is sent any more")


def test_a_timeout_tells_why_the_tries_failed() -> None:
    bench = started(delivery_timeout_ms=5000, request_timeout_ms=900)
    future = bench.send("t", b"a", partition=0)
    codes = [Code.NOT_LEADER_OR_FOLLOWER, *[Code.KAFKA_STORAGE_ERROR] * 4]
    for code in codes:
        until_sent(bench)
        bench.client.answer(response((0, code, -1)))
        bench.step()
    bench.step(5000)
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert [attempt.code for attempt in error.attempts] == codes
    assert "KAFKA_STORAGE_ERROR (56)" in str(error)


def test_the_last_error_tells_why_the_tries_before_it_failed() -> None:
    bench = started(retries=2, max_in_flight_requests_per_connection=5)
    futures = [bench.send("t", b"a", partition=index) for index in (0, 1)]
    refused = [Code.KAFKA_STORAGE_ERROR, Code.NOT_ENOUGH_REPLICAS, Code.NOT_LEADER_OR_FOLLOWER]
    for code in refused:
        until_sent(bench)
        (there,) = bench.requests()
        bench.client.answer(response(*((index, code if index == 0 else 0, -1 if index == 0 else 7) for index in there)))
        bench.step()
    error = futures[0].exception(0)
    assert isinstance(error, errors.NotLeaderOrFollower)
    assert [attempt.code for attempt in error.attempts] == refused[:-1]
    assert futures[1].result(0).offset == 7


def test_a_lost_request_is_told_to_each_batch_with_its_own_past() -> None:
    """One error is the outcome of all batches of a request; what each went through before is its own."""
    bench = started(retries=1)
    futures = [bench.send("t", b"a", partition=0)]
    bench.step()
    bench.client.answer(response((0, Code.KAFKA_STORAGE_ERROR, -1)))
    bench.step()
    bench.step(200)
    bench.client.answer(error=errors.DisconnectError("cut"))
    bench.step()
    (error,) = [future.exception(0) for future in futures]
    assert [attempt.code for attempt in error.attempts] == [Code.KAFKA_STORAGE_ERROR]


def test_who_waits_in_vain_is_told_what_went_wrong_so_far() -> None:
    bench = started()
    future = bench.send("t", b"a", partition=0)
    bench.step()
    bench.client.answer(response((0, Code.KAFKA_STORAGE_ERROR, -1)))
    bench.step()
    with pytest.raises(KafkaTimeoutError, match="still on their way") as caught:
        future.result(0)
    assert [attempt.code for attempt in caught.value.attempts] == [Code.KAFKA_STORAGE_ERROR]
    (batch,) = bench.accumulator.incomplete()
    for number in range(20):
        batch.delivery.tried(errors.KafkaStorage(str(number)))
    assert [attempt.message for attempt in batch.delivery.attempts()] == [str(number) for number in range(4, 20)]  # the newest


def test_expiry_with_unknown_outcome_bumps_the_epoch() -> None:
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.step(1000)
    bench.send("t", b"b", partition=0)
    bench.client.answer(error=errors.RequestTimedOut("late"))
    bench.step()
    bench.step()
    assert sequences(bench) == [(0, 1, 0)]


def test_too_large_splits_and_numbers_run_on() -> None:
    bench = started(batch_size=4096)
    futures = [bench.send("t", b"x" * 100, partition=0, timestamp_ms=i) for i in range(20)]
    bench.step()
    bench.client.answer(response((0, Code.MESSAGE_TOO_LARGE, -1)))
    bench.step()
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


def test_a_single_record_too_large_fails() -> None:
    bench = started()
    future = bench.send("t", b"x", partition=0)
    bench.step()
    bench.client.answer(response((0, Code.MESSAGE_TOO_LARGE, -1)))
    bench.step()
    assert isinstance(future.exception(0), RecordTooLarge)


def test_one_partition_failing_leaves_its_neighbour_alone_and_asks_for_metadata() -> None:
    bench = started()
    good, moved = bench.send("t", b"a", partition=0), bench.send("t", b"b", partition=1)
    bench.step()
    due = bench.metadata.version
    bench.client.answer(response((0, 0, 3), (1, Code.NOT_LEADER_OR_FOLLOWER, -1)))
    bench.step()
    assert good.result(0).offset == 3
    assert not moved.done()
    assert bench.metadata._wanted
    assert bench.metadata.version == due


def test_the_leader_named_in_the_answer_is_used_at_once() -> None:
    bench = started(leaders=(1, 2))
    bench.send("t", b"a", partition=0)
    bench.step()
    answer = response((0, Code.NOT_LEADER_OR_FOLLOWER, -1))
    part = answer.responses[0].partition_responses[0]
    part = part._replace(current_leader=type(part.current_leader)(leader_id=2, leader_epoch=5)) if hasattr(part, "_replace") else part
    answer.responses[0].partition_responses[0] = part
    bench.client.answer(answer)
    bench.step()
    bench.step(1)
    assert [request.node_id for request, _ in bench.client.sent] == [2]


def test_max_in_flight_1_mutes_the_partition() -> None:
    bench = started(max_in_flight_requests_per_connection=1)
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.send("t", b"b", partition=0)
    bench.step()
    assert len(bench.requests()) == 1
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    bench.step()
    assert sequences(bench) == [(0, 0, 1)]


def test_a_refused_authentication_fails_the_records_that_waited_for_it_and_no_later_ones() -> None:
    bench = Bench(enable_idempotence=False)
    bench.client.blocked.add(1)
    for attempt in range(3):
        bench.client.refused.clear()
        waited = bench.send("t", b"x", partition=0)
        bench.step()
        assert not waited.done()
        refused = bench.client.refused[1] = errors.AuthenticationFailedError(f"wrong password, attempt {attempt}")
        bench.step()
        assert waited.exception(0) is refused
        later = bench.send("t", b"y", partition=1)
        for _ in range(3):
            bench.step()
            assert not later.done()
        assert bench.client.poll_timeouts[-1] <= 40  # the next attempt is not slept through
        bench.client.refused[1] = errors.AuthenticationFailedError("wrong password, the next attempt")
        bench.step()
        assert later.done()


def test_refused_authentication_fails_records_with_its_cause() -> None:
    bench = started()
    bench.client.blocked.add(1)
    bench.client.refused[1] = errors.AuthenticationFailedError("wrong password")
    future = bench.send("t", b"a", partition=0)
    bench.step()
    assert isinstance(future.exception(0), errors.AuthenticationFailedError)


@pytest.mark.parametrize("took_it", [False, True], ids=["the broker has not got it", "the broker has it"])
def test_a_refused_authentication_between_two_tries_does_not_end_an_idempotent_producer(took_it: bool) -> None:
    bench = started()
    futures = [bench.send("t", b"a", partition=0)]
    bench.step()
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    futures += [bench.send("t", b"b", partition=0)]
    bench.step()
    futures += [bench.send("t", b"c", partition=0)]
    bench.step()
    assert sequences(bench) == [(0, 0, 1), (0, 0, 2)]
    if took_it:
        bench.client.answer(response((0, 0, 2)), at=1)
    bench.client.answer(error=errors.DisconnectError("cut"))
    bench.step()
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
    bench.client.answer(response((0, 0, 3)))
    bench.step()
    assert last.result(0).offset == 3
    assert all_memory_back(bench)


def test_a_producer_id_is_asked_for_again_after_a_refused_authentication() -> None:
    bench = Bench()
    waited = bench.send("t", b"a", partition=0)
    bench.step()
    refused = errors.AuthenticationFailedError("the token has expired")
    bench.client.answer(error=refused)
    bench.step()
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
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    assert later.result(0).offset == 0


def test_record_errors_name_the_refused_record() -> None:
    bench = started()
    first, second = bench.send("t", b"a", partition=0), bench.send("t", b"b", partition=0)
    bench.step()
    named = [protocol.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
    bench.client.answer(response((0, Code.INVALID_RECORD, -1), record_errors=named))
    bench.step()
    assert "other records" in str(first.exception(0))
    assert "no key" in str(second.exception(0))


def test_an_interrupted_pass_loses_and_doubles_nothing() -> None:
    bench = started()
    futures = [bench.send("t", b"a", partition=0)]
    bench.step()
    futures.append(bench.send("t", b"b", partition=0))

    def interrupt() -> None:
        bench.client.in_poll = lambda: None
        raise KeyboardInterrupt

    bench.client.in_poll = interrupt
    with pytest.raises(KeyboardInterrupt):
        futures[0].result(5)
    assert bench.client.disconnected == [1]
    old, bench.client.sent = bench.client.sent, []
    for request, _ in old:                            # answers of the old connection come to nothing
        assert request.callback is not None
    bench.step(200)
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    bench.step(200)
    assert sequences(bench) == [(0, 0, 1)]
    bench.client.answer(response((0, 0, 1)))
    bench.step()
    assert [future.result(0).offset for future in futures] == [0, 1]
    assert all_memory_back(bench)


def test_a_waiting_caller_drives_and_a_callback_may_not_wait() -> None:
    bench = started()
    future = bench.send("t", b"a", partition=0)
    caught: list[BaseException] = []

    def wait_in_callback(metadata: Any, error: Any) -> None:
        try:
            late.result(1)
        except IllegalStateError as refused:
            caught.append(refused)

    bench.send("t", b"b", partition=0, on_delivery=wait_in_callback)
    late = bench.send("t", b"c", partition=1)

    def answer() -> None:
        if bench.client.sent:
            bench.client.answer(response((0, 0, 0)), at=0)

    bench.client.in_poll = answer
    assert future.result(5).offset == 0
    assert len(caught) == 1
    assert bench.sender.counters["driven_by_callers"] == 1


def test_wait_times_out_and_leaves_the_record_on_its_way() -> None:
    bench = started()
    future = bench.send("t", b"a", partition=0)
    bench.client.in_poll = lambda: bench.clock.advance(30) and None
    with pytest.raises(KafkaTimeoutError, match="on their way"):
        future.result(0.1)
    bench.client.in_poll = lambda: None
    bench.client.answer(response((0, 0, 4)))
    bench.step()
    assert future.result(0).offset == 4


def test_an_idle_sender_sleeps_without_a_bound() -> None:
    bench = started()
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    bench.sender.run_once(bench.clock.now_ms())
    assert bench.client.poll_timeouts[-1] > 2**60


def test_illegal_transitions_raise() -> None:
    assert set(TRANSITIONS) == set(State)
    books = TransactionManager()
    with pytest.raises(IllegalStateError, match="UNINITIALIZED to READY"):
        books.initialized(1, 0)
    books.fail(errors.for_code(Code.CLUSTER_AUTHORIZATION_FAILED)("no"))
    with pytest.raises(IllegalStateError):
        books.initializing()


def test_a_garbled_answer_is_a_lost_one() -> None:
    bench = Bench()
    future = bench.send("t", b"x", partition=0)
    bench.step()
    bench.client.answer(error=errors.CorruptDataError("a correlation id out of step"))
    bench.step()
    bench.step(100)
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
    bench.step()
    bench.step()
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(error=errors.CorruptDataError("half an answer"))
    bench.step()
    bench.step(200)
    assert sequences(bench) == [(0, 0, 0)]            # again, with its numbers: the broker may have it
    bench.client.answer(response((0, 0, 5)))
    bench.step()
    assert future.result(0).offset == 5
    assert all_memory_back(bench)


def test_a_forced_close_ends_the_wait_of_a_caller_that_drives() -> None:
    bench = started()
    future = bench.send("t", b"x", partition=0)
    passes = []

    def close_from_another_thread() -> None:
        passes.append(1)
        if len(passes) == 3:
            bench.sender.initiate_close(force=True)
            threading.Thread(target=end_io).start()
        assert len(passes) < 20, "the caller goes on driving"

    def end_io() -> None:
        with bench.sender._io:
            bench.sender.finish()

    bench.client.in_poll = close_from_another_thread
    with pytest.raises(errors.ClosedError):
        future.result(20)
    assert all_memory_back(bench)


def test_a_topic_in_use_stays_known() -> None:
    bench = started()
    bench.send("t", b"x", partition=0)
    bench.step()
    assert bench.metadata.topics == ["t"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_whatever_a_callback_raises_the_others_run_and_the_waiters_wake(stop: type[BaseException]) -> None:
    bench = started()
    ran: list[int] = []

    def leave(metadata: Any, error: Any) -> None:
        ran.append(0)
        raise stop

    first = bench.send("t", b"a", partition=0, on_delivery=leave)
    second = bench.send("t", b"b", partition=0, on_delivery=lambda metadata, error: ran.append(1))
    second.add_done_callback(lambda future: ran.append(2))
    bench.step()
    bench.client.answer(response((0, 0, 0)))
    if stop is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            first.result(5)
    else:
        assert first.result(5).offset == 0
    assert ran == [0, 1, 2]
    assert second.result(0).offset == 1
    assert all_memory_back(bench)


def test_with_acks_0_a_closed_connection_is_told(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(acks=0)
    for value in (b"a", b"b"):
        bench.send("t", value, partition=0)
    bench.step()
    bench.client.answer(None)
    bench.step()
    assert bench.client.on_disconnect is not None
    bench.client.on_disconnect(1, errors.DisconnectError("closed by the peer"))
    assert "up to 2 records sent to broker 1" in caplog.text
    assert bench.sender.counters["unconfirmed_records"] == 2


def test_with_acks_0_a_close_asks_whether_all_arrived() -> None:
    bench = Bench(acks=0)
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.client.answer(None)
    bench.step()

    def answer() -> None:
        assert not bench.client.closed
        assert [request.api for request, _ in bench.client.sent] == [protocol.ApiVersionsRequest]
        bench.client.answer(protocol.ApiVersionsResponse())

    bench.client.in_poll = answer
    bench.sender.finish()
    assert bench.client.closed
    assert bench.client.sent == []
    assert bench.sender.counters["unconfirmed_records"] == 0


@pytest.mark.parametrize("answer", [((0, 0, 10), (1, 0, 20)), ((1, 0, 20), (0, 0, 10))])
def test_partitions_may_be_answered_in_any_order(answer: tuple[tuple[int, int, int], ...]) -> None:
    bench = started()
    futures = [bench.send("t", b"x", partition=index) for index in (0, 1)]
    bench.step()
    bench.client.answer(response(*answer))
    bench.step()
    assert [future.result(0).offset for future in futures] == [10, 20]
    assert all_memory_back(bench)


def test_an_answer_for_another_topic_settles_nothing() -> None:
    bench = started()
    future = bench.send("t", b"x", partition=0)
    bench.step()
    strange = protocol.ProduceResponse(
        responses=[
            protocol.TopicProduceResponse(
                name="other", partition_responses=[protocol.PartitionProduceResponse(index=0, base_offset=10)]
            )
        ]
    )
    bench.client.answer(strange)
    bench.step()
    assert not future.done()                                          # left out of its answer: tried again with the same numbers
    bench.step(100)
    assert sequences(bench) == [(0, 0, 0)]
    bench.client.answer(response((0, 0, 10)))
    bench.step()
    assert future.result(0).offset == 10


def test_a_request_lists_each_topic_once() -> None:
    bench = started(partitions=2)
    other = TopicQueue("u")
    other.grow(2, TopicPartition)
    bench._add_topic(other)
    known = bench.metadata.snapshot.topics["t"]
    topics = {name: TopicInfo(name, bytes(15) + name.encode(), known.partitions) for name in "tu"}
    bench.metadata.snapshot = ClusterSnapshot(bench.metadata.snapshot.nodes, topics=topics)
    futures = [bench.send(name, b"x", partition=index) for index in (0, 1) for name in "tu"]
    bench.step()
    ((_, message),) = bench.client.sent
    assert [len(topic.partition_data) for topic in message.topic_data] == [2, 2]
    bench.client.answer(
        protocol.ProduceResponse(
            responses=[
                protocol.TopicProduceResponse(
                    topic_id=topic.topic_id,
                    partition_responses=[
                        protocol.PartitionProduceResponse(index=part.index, base_offset=100 * number + part.index)
                        for part in topic.partition_data
                    ],
                )
                for number, topic in enumerate(message.topic_data)
            ]
        )
    )
    bench.step()
    assert [future.result(0).offset for future in futures] == [0, 100, 1, 101]


def test_an_expired_batch_costs_no_epoch_when_a_later_one_is_acknowledged() -> None:
    """The broker takes a batch only after the one before it: TransactionManager.maybeResolveSequences looks at the last one sent."""
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    bench.send("t", b"first", partition=0)
    bench.step()
    bench.client.answer(response((0, 0, 0)))          # rule 5: from now on several are under way
    bench.step()
    bench.send("t", b"a", partition=0)
    bench.step()
    bench.step(500)
    later = bench.send("t", b"b", partition=0)
    bench.step()
    assert sequences(bench) == [(0, 0, 1), (0, 0, 2)]
    bench.step(500)                                   # a expires on the wire
    bench.client.answer(error=errors.RequestTimedOut("late"))
    bench.step()
    bench.client.answer(response((0, 0, 2)))
    bench.step()
    assert later.result(0).offset == 2
    bench.send("t", b"c", partition=0)
    bench.step()
    assert sequences(bench) == [(0, 0, 3)]            # the same epoch, the next number


def test_numbers_resolve_across_the_wrap() -> None:
    books = TransactionManager()
    books.producer_id, books.epoch = 7, 0
    queue = Bench().topic.partitions[0]
    partition = books._partitions[queue] = PartitionBooks(7, 0)
    partition.next_sequence, partition.last_acked_sequence = 0, 2**31 - 1
    books._unresolved.add(queue)
    books.resolve()
    assert (books.epoch, books._unresolved) == (0, set())


def test_a_producer_id_that_is_late_is_no_warning_at_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafkacore.producer.sender")
    bench = Bench()
    levels = []
    for _ in range(4):
        bench.step(1_000)
        bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
        bench.step()
        levels.append(caplog.records[-1].levelname)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in caplog.records[-1].getMessage()
    assert levels == ["INFO"] * 3 + ["WARNING"]
    bench.step(1_000)
    bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
    bench.step()
    assert caplog.records[-1].levelname == "INFO"            # told once, not with every try
    bench.step(1_000)
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
    bench.step()
    bench.step()
    bench.sender.transactions = TransactionManager()         # a new trouble starts again
    bench.step()
    bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED))
    bench.step()
    assert caplog.records[-1].levelname == "WARNING"         # final: said at once


def test_a_refused_producer_id_is_asked_for_again_after_a_back_off_that_grows() -> None:
    """Not a millisecond too early, nor a round late: the Sender is to be back when the back-off ends."""
    bench = Bench()
    tries: list[int] = []

    def backoff_ms(attempts: int) -> int:
        tries.append(attempts)
        return 100 << attempts

    bench.sender._backoff_ms = backoff_ms
    bench.send("t", b"x", partition=0)
    for attempt, wait_ms in enumerate([100, 200, 400]):
        bench.step()
        (request,) = bench.client.sent
        assert request[0].api is protocol.InitProducerIdRequest
        bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
        bench.step()
        assert tries == list(range(attempt + 1))
        bench.client.poll_timeouts.clear()
        bench.sender.run_once(bench.clock.now_ms(), 60_000)
        assert bench.client.poll_timeouts == [wait_ms]
        bench.clock.advance(wait_ms - 1)
        bench.sender.run_once(bench.clock.now_ms(), 60_000)
        assert bench.client.poll_timeouts == [wait_ms, 1]
        assert bench.client.sent == []
        bench.clock.advance(1)
    bench.step()
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
    bench.step()
    bench.step()
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    bench.sender.transactions = TransactionManager()           # another id is needed, with another back-off
    bench.step()
    bench.client.answer(protocol.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS))
    bench.step()
    assert tries == [0, 1, 2, 0]


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
        bench.send("t", b"x", partition=partition)
        bench.step()
    assert on_the_wire() == [3, 1, 0]
    bench.client.answer(response((0, 0, 0)))
    bench.step()
    assert on_the_wire() == [2, 1, 0]


def refuse(bench: Bench, code: int, *partitions: int) -> None:
    """The request under way is answered with an error for these partitions."""
    bench.client.answer(response(*((index, code, -1) for index in partitions), error_message="the disk is full"))
    bench.step()


def test_an_error_that_lasts_is_told_once_and_one_that_passes_never(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkacore.producer")
    bench = started()
    future = bench.send("t", b"x", partition=0)
    bench.send("t", b"y", partition=1)
    bench.step()
    for tries in range(5):                                   # 1.5 s, with the back-off
        assert (len(caplog.records), bench.requests()[0].keys()) == (0, {0, 1}), tries
        refuse(bench, Code.KAFKA_STORAGE_ERROR, 0, 1)
        while not bench.requests():
            bench.step(100)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("records for t-0 and 1 other partition wait and are retried, for 1.")
    assert "delivery_timeout_ms=120000" in told[0]
    assert "KAFKA_STORAGE_ERROR (56): the disk is full [topic t, partition 0, broker 1, Produce v13]" in told[0]
    bench.client.answer(response((0, 0, 5), (1, 0, 5)))
    bench.step()
    assert future.result(0).offset == 5
    future = bench.send("t", b"z", partition=0)              # the next error is another one, and passes
    bench.step()
    refuse(bench, Code.NOT_LEADER_OR_FOLLOWER, 0)
    bench.step(200)
    bench.client.answer(response((0, 0, 6)))
    bench.step()
    assert future.result(0).offset == 6
    assert len(caplog.records) == 1


def test_an_error_is_told_again_after_a_while_and_outlives_the_records_it_cost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkacore.producer")
    bench = started(delivery_timeout_ms=3_000, request_timeout_ms=2_000)
    told_ms = []
    for now_ms in range(0, 40_000, 500):
        if not bench.accumulator.has_incomplete:
            bench.send("t", b"x", partition=0)
        bench.step()
        if bench.client.sent:
            before = len(caplog.records)
            refuse(bench, Code.NOT_ENOUGH_REPLICAS, 0)
            told_ms += [now_ms] * (len(caplog.records) - before)
        bench.step(500)
    assert bench.sender.counters["expired_batches"] > 5
    assert [round(each, -3) for each in told_ms] == [1_000, 31_000]


def test_a_partition_that_stays_without_a_leader_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkacore.producer")
    bench = started(leaders=(1, -1))
    bench.send("t", b"x", partition=1)
    for _ in range(12):
        bench.publish()                                      # the answers to what is asked while a leader is missing
        bench.step(200)
    (told,) = (record.getMessage() for record in caplog.records)
    assert "LEADER_NOT_AVAILABLE (5): no broker leads the partition [topic t, partition 1]" in told


class Gate:
    """A gate that notes how it is waited at."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.waits: list[float] = []
        self.asleep = threading.Event()

    def acquire(self, timeout: float = -1) -> bool:
        self.waits.append(timeout)
        if timeout < 0:
            self.asleep.set()
        return self.lock.acquire(timeout=timeout)

    def locked(self) -> bool:
        return self.lock.locked()

    def release(self) -> None:
        self.lock.release()


def test_the_sender_sleeps_while_a_caller_drives() -> None:
    """Until that caller leaves: looking again and again would cost processor time for as long as a broker says nothing."""
    bench = started()
    sender = bench.sender
    gate = sender._nap_gate = Gate()
    sender._calls += 1
    sender._io.acquire()                              # a caller drives
    seen = []
    thread = threading.Thread(target=lambda: seen.append(sender._nap_or_pass(0)), daemon=True)
    thread.start()
    assert gate.asleep.wait(20)
    assert len(gate.waits) == 2                       # a nap, then a sleep without a bound
    sender._io.release()
    sender._leave()
    thread.join(20)
    assert seen == [-1]                               # and naps again: callers come one after the other
    assert not sender._watching


@pytest.mark.parametrize("callers", [0, 1])
def test_what_was_urgent_before_a_caller_came_leaves_the_driving_to_it(callers: int) -> None:
    """Else the thread drove on, and each answer that the caller waits for would cost two switches of threads."""
    sender = started().sender
    order: list[str] = []

    class NapGate:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            order.append("nap" if blocking else "what was urgent is forgotten")
            return True

    class CallersGate:
        def locked(self) -> bool:
            return True

        def release(self) -> None:
            order.append("the caller is told")

    sender._nap_gate = NapGate()
    sender._callers.extend(CallersGate() for _ in range(callers))
    sender._calls = 1
    assert sender._nap_or_pass(0) == 1
    assert order == (["what was urgent is forgotten", "the caller is told", "nap"] if callers else ["nap"])


def test_an_error_in_a_pass_does_not_end_the_wait_of_a_caller_that_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record's error names what failed, should it not be delivered after all."""
    monkeypatch.setattr(sender_module, "ERROR_PAUSE_S", 0)
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    future = bench.send("t", b"x", partition=0)

    def fail() -> None:
        bench.clock.advance(300)
        if bench.clock.now_ms() < 2_500:
            raise ZeroDivisionError("a bug")

    bench.client.in_poll = fail
    error = future.exception(60)
    assert isinstance(error, KafkaTimeoutError)
    assert "a pass of the Sender failed: ZeroDivisionError('a bug')" in str(error)
