"""Sender over a scripted client: requests and answers, retries, expiry, splits, what each record is told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from producer_support import Bench, all_memory_back, response, sequences, started

from kafkacore import errors, protocol
from kafkacore.clock import ManualClock, SystemClock
from kafkacore.errors import Code, KafkaTimeoutError
from kafkacore.types import Node, TopicPartition
from tests.kit.inside import clock_of, is_wanted
from tests.kit.rows import each_row


def test_acks_0_is_done_when_sent() -> None:
    bench = Bench(acks=0)
    futures = [bench.send("t", b"x", partition=index) for index in (0, 1)]
    bench.step()
    bench.client.answer(None)
    bench.step()
    assert [future.result(0).offset for future in futures] == [-1, -1]
    assert all_memory_back(bench)


@each_row("clock", [ManualClock(1_000, wall_ms=1_000_000), None], ids=["injected", "the machine's"])
def test_records_are_stamped_by_the_producers_clock(clock: ManualClock | None) -> None:
    bench = Bench(partitions=1, linger_ms=0, enable_idempotence=False, clock=clock)
    if clock is None:
        bench._clock = SystemClock()
    before = clock_of(bench).wall_ms() - 20  # the coarse clock lags behind
    bench.send("t", b"a")
    for values in ([b"b"], np.array([b"c"])):
        bench.append_many(values)
    bench.append_many([b"d"], [b"k"])
    bench.send("t", b"e", timestamp_ms=7)
    after = clock_of(bench).wall_ms()
    bench.accumulator.begin_flush()
    bench.step()
    (batch,) = bench.requests()[0].values()
    *stamped, given = [record.timestamp_ms for record in batch.records()]
    assert given == 7
    assert len(stamped) == 4
    assert all(before <= each <= after for each in stamped)
    if clock is not None:
        assert set(stamped) == {1_000_000}


@each_row(("at_once", "under_way"), [(1, 1), (2, 3)])
def test_without_numbers_batches_of_a_partition_overlap_unless_one_request_is_all(at_once: int, under_way: int) -> None:
    bench = Bench(enable_idempotence=False, max_in_flight_requests_per_connection=at_once)
    for _ in range(3):
        bench.send_now("t", b"x", partition=0)
    assert len(bench.requests()) == under_way  # the client, which counts them, takes any number here


def test_batches_of_one_moment_that_fail_in_the_order_of_sending_go_again_in_it() -> None:
    bench = Bench(enable_idempotence=False)
    for value in (b"1", b"2", b"3"):
        bench.send_now("t", value, partition=0)
    for _ in range(3):
        bench.client.answer(response((0, Code.NOT_ENOUGH_REPLICAS, -1)))
    for _ in range(4):
        bench.step(100)
    assert [record.value for request in bench.requests() for record in request[0].records()] == [b"1", b"2", b"3"]


def test_expiry_on_the_wire_keeps_the_buffer_until_the_answer() -> None:
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    future = bench.send_now("t", b"a", partition=0)
    bench.step(1000)
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert "no answer" in str(error)
    assert (error.topic, error.partition) == ("t", 0)
    assert not all_memory_back(bench)  # KAFKA-19012: the socket may still be reading it
    bench.send_now("t", b"b", partition=0)
    assert len(bench.requests()) == 1  # nobody knows yet which sequence is next
    bench.answered((0, 0, 5))
    bench.step()
    assert sequences(bench) == [(0, 0, 1)]  # the broker had it after all: no gap, no bump
    bench.answered((0, 0, 6))
    assert all_memory_back(bench)


def test_batches_under_way_expire_each_in_its_time() -> None:
    bench = started(partitions=3, delivery_timeout_ms=1000, request_timeout_ms=900)
    futures = []
    for partition in range(3):  # written at 0, 100 and 200 ms
        futures.append(bench.send_now("t", b"x", partition=partition))
        bench.step(100)
    assert len(bench.requests()) == 3
    bench.step(600)
    late = []
    for _ in range(3):  # 1,000, 1,100 and 1,200 ms
        bench.step(100)
        late.append([future.done() for future in futures])
    assert late == [[True, False, False], [True, True, False], [True, True, True]]


def until_sent(bench: Bench) -> None:
    """Lets time pass until the next try is on the wire."""
    for _ in range(100):
        if bench.requests():
            return
        bench.step(10)
    raise AssertionError("nothing is sent any more")


def test_the_last_error_tells_why_the_tries_before_it_failed() -> None:
    bench = started(retries=2, max_in_flight_requests_per_connection=5)
    futures = [bench.send("t", b"a", partition=index) for index in (0, 1)]
    refused = [Code.KAFKA_STORAGE_ERROR, Code.NOT_ENOUGH_REPLICAS, Code.NOT_LEADER_OR_FOLLOWER]
    for code in refused:
        until_sent(bench)
        (there,) = bench.requests()
        bench.answered(*((index, code if index == 0 else 0, -1 if index == 0 else 7) for index in there))
    error = futures[0].exception(0)
    assert isinstance(error, errors.NotLeaderOrFollower)
    assert [attempt.code for attempt in error.attempts] == refused[:-1]
    assert futures[1].result(0).offset == 7
    assert (error.topic, error.partition, error.broker, error.api) == ("t", 0, 1, "Produce v13")


def test_a_lost_request_is_told_to_each_batch_with_its_own_past() -> None:
    """One error is the outcome of all batches of a request; what each went through before is its own."""
    bench = started(retries=1)
    futures = [bench.send("t", b"a", partition=0)]
    bench.step()
    bench.answered((0, Code.KAFKA_STORAGE_ERROR, -1))
    bench.step(200)
    bench.lost(errors.DisconnectError("cut"))
    (error,) = [future.exception(0) for future in futures]
    assert [attempt.code for attempt in error.attempts] == [Code.KAFKA_STORAGE_ERROR]


def test_who_waits_in_vain_is_told_what_went_wrong_so_far() -> None:
    bench = started()
    future = bench.send_now("t", b"a", partition=0)
    bench.answered((0, Code.KAFKA_STORAGE_ERROR, -1))
    with pytest.raises(KafkaTimeoutError, match="still on their way") as caught:
        future.result(0)
    assert [attempt.code for attempt in caught.value.attempts] == [Code.KAFKA_STORAGE_ERROR]
    (batch,) = bench.accumulator.incomplete()
    for number in range(20):
        batch.delivery.tried(errors.KafkaStorage(str(number)))
    assert [attempt.message for attempt in batch.delivery.attempts()] == [str(number) for number in range(4, 20)]  # the newest
    bench.step(200_000)
    assert [attempt.message for attempt in future.exception(0).attempts] == [str(number) for number in range(4, 20)]


def test_one_partition_failing_leaves_its_neighbour_alone_and_asks_for_metadata() -> None:
    bench = started()
    good, moved = bench.send("t", b"a", partition=0), bench.send("t", b"b", partition=1)
    bench.step()
    due = bench.metadata.version
    bench.answered((0, 0, 3), (1, Code.NOT_LEADER_OR_FOLLOWER, -1))
    assert good.result(0).offset == 3
    assert not moved.done()
    assert is_wanted(bench.metadata)
    assert bench.metadata.version == due
    assert bench.metadata.snapshot.leader(TopicPartition("t", 1)) == Node(1, "h", 1), "the answer names no other"


def test_what_an_answer_does_not_say_is_asked_again_of_each_partition_and_what_was_not_asked_is_passed_over() -> None:
    bench = started(partitions=3)
    futures = [bench.send("t", b"x", partition=index) for index in range(3)]
    bench.step()
    bench.answered((7, 0, 1), (0, 0, 5))
    assert [future.done() for future in futures] == [True, False, False]
    bench.step(100)
    assert sorted(sequences(bench)) == [(1, 0, 0), (2, 0, 0)]
    bench.step(200_000)
    for index in (1, 2):
        left_out = futures[index].exception(0).attempts[0]
        assert (left_out.topic, left_out.partition, left_out.broker, left_out.api) == ("t", index, 1, "Produce v13")


def test_the_leaders_named_in_an_answer_are_all_used_at_once() -> None:
    bench = started(partitions=4, leaders=(1, 1, 0, 3))
    for index in (0, 1):
        bench.send("t", b"a", partition=index)
    bench.step()
    answer = response((0, Code.NOT_LEADER_OR_FOLLOWER, -1), (1, Code.NOT_LEADER_OR_FOLLOWER, -1))
    parts = answer.responses[0].partition_responses
    for at, leader in enumerate((0, 9)):
        parts[at] = parts[at]._replace(current_leader=type(parts[at].current_leader)(leader_id=leader, leader_epoch=5))
    bench.client.answer(answer._replace(node_endpoints=[protocol.NodeEndpoint(node_id=9, host="new", port=99, rack="r")]))
    bench.step()
    bench.step(1)
    assert sorted(request.node_id for request, _ in bench.client.sent) == [0, 9]
    assert bench.metadata.snapshot.nodes[9] == Node(9, "new", 99, "r")


def refused_by_newer_leaders(bench: Bench, for_ms: int) -> list[int]:
    """When each Produce left, while two brokers name each other as the new leader, of a higher epoch each time."""
    left, epoch = [], 0
    for now_ms in range(for_ms):
        for _ in range(8):  # passes within a millisecond
            while bench.client.sent:
                request, _ = bench.client.sent[0]
                left.append(now_ms)
                epoch += 1
                answer = response((0, Code.NOT_LEADER_OR_FOLLOWER, -1))
                part = answer.responses[0].partition_responses[0]
                answer.responses[0].partition_responses[0] = part._replace(
                    current_leader=type(part.current_leader)(leader_id=3 - request.node_id, leader_epoch=epoch)
                )
                bench.client.answer(answer)
            bench.step()
        bench.step(1)
    return left


@each_row("idempotent", [True, False])
def test_brokers_that_name_a_newer_leader_each_time_are_asked_with_pauses(idempotent: bool) -> None:
    bench = started(leaders=(1, 2)) if idempotent else Bench(leaders=(1, 2), enable_idempotence=False)
    future = bench.send_now("t", b"a", partition=0)
    left = refused_by_newer_leaders(bench, 3_000)
    assert left[:3] == [0, 0, 0]  # two changes of the leader are followed at once
    pauses = [after - before for before, after in itertools.pairwise(left[2:])]
    assert len(left) < 10
    assert all(pause >= 100 for pause in pauses), pauses
    assert not future.done()
    bench.step(10_000)
    bench.answered((0, 0, 5))
    assert future.result(0).offset == 5


def test_a_new_leader_ends_the_pause_after_other_errors() -> None:
    """However often the batch has been tried: what is counted are the tries that a new leader brought forward."""
    bench = started(leaders=(1, 2))
    bench.send_now("t", b"a", partition=0)
    for _ in range(3):
        bench.answered((0, Code.KAFKA_STORAGE_ERROR, -1))
        until_sent(bench)
    assert refused_by_newer_leaders(bench, 50) == [0, 0, 0]


def test_a_refused_authentication_fails_the_records_that_waited_for_it_and_no_later_ones() -> None:
    bench = Bench(enable_idempotence=False)
    bench.client.blocked.add(1)
    for attempt in range(3):
        bench.client.refused.clear()
        waited = bench.send_now("t", b"x", partition=0)
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


def test_record_errors_name_the_refused_record() -> None:
    bench = started()
    first, second = bench.send("t", b"a", partition=0), bench.send("t", b"b", partition=0)
    bench.step()
    named = [protocol.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
    bench.answered((0, Code.INVALID_RECORD, -1), record_errors=named)
    assert "other records" in str(first.exception(0))
    assert "no key" in str(second.exception(0))


def test_a_garbled_answer_is_a_lost_one() -> None:
    bench = Bench()
    future = bench.send_now("t", b"x", partition=0)
    bench.lost(errors.CorruptDataError("a correlation id out of step"))
    bench.step(100)
    bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
    bench.step()
    bench.step()
    assert sequences(bench) == [(0, 0, 0)]
    bench.lost(half := errors.CorruptDataError("half an answer"))
    [why] = bench.accumulator.incomplete()[0].delivery.attempts()
    assert isinstance(why, errors.DisconnectError) and why.__cause__.__cause__ is half
    assert (why.message, why.broker, why.api) == ("the connection was given up: half an answer", 1, "Produce v13")
    bench.step(200)
    assert sequences(bench) == [(0, 0, 0)]  # again, with its numbers: the broker may have it
    bench.answered((0, 0, 5))
    assert future.result(0).offset == 5
    assert all_memory_back(bench)


def test_with_acks_0_a_closed_connection_is_told_with_the_count_of_its_broker(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(acks=0, leaders=(1, 2))
    for index in (0, 1, 1):
        bench.send("t", b"a", partition=index)
    bench.step()
    for _ in range(2):
        bench.client.answer(None)
    bench.step()
    assert bench.client.on_disconnect is not None
    for node_id, lost in ((1, 1), (1, 1), (2, 3)):
        bench.client.on_disconnect(node_id, errors.DisconnectError("closed by the peer"))
        assert bench.sender.counters["unconfirmed_records"] == lost
    assert [record.args[:2] for record in caplog.records] == [(1, 1), (2, 2)]


def test_with_acks_0_a_close_asks_whether_all_arrived() -> None:
    bench = Bench(acks=0)
    bench.send_now("t", b"a", partition=0)
    bench.client.answer(None)
    bench.step()

    def answer() -> None:
        assert not bench.client.closed
        [(request, message)] = bench.client.sent
        assert request.api is protocol.ApiVersionsRequest
        assert (message.client_software_name, message.client_software_version) == ("kafkacore", "close")
        bench.client.answer(protocol.ApiVersionsResponse())

    bench.client.in_poll = answer
    bench.client.poll_timeouts.clear()
    bench.sender.finish()
    assert bench.client.poll_timeouts == [5_000]
    assert bench.client.closed
    assert bench.client.sent == []
    assert bench.sender.counters["unconfirmed_records"] == 0


def test_of_two_brokers_one_cannot_take_batches_and_the_other_stays_available() -> None:
    bench = started(leaders=(1, 2), partitioner_availability_timeout_ms=100)
    for partition in (0, 1):
        bench.send("t", b"x", partition=partition)
    bench.client.blocked.add(1)
    bench.step()
    bench.send("t", b"x", partition=1)
    bench.step(150)
    assert bench.sender.unavailable_nodes() == {1}
    bench.client.blocked.clear()
    bench.step(1)
    assert bench.sender.unavailable_nodes() == set()
