"""Idempotence: resends, gaps, epochs, wrapping sequences, forgetting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.broker.producers import BATCHES_TO_RETAIN, MAX_SEQUENCE, ProducerStates, add_sequence

PID = 7


def write(states: ProducerStates, sequence: int, count: int = 1, epoch: int = 0, offset: int = 0, now_ms: int = 0):
    resent = states.check(PID, epoch, sequence, count)
    if resent is None:
        states.update(PID, epoch, sequence, offset, count, 5, now_ms)
    return resent


def test_each_of_the_last_five_batches_may_be_resent():
    states = ProducerStates()
    for nth in range(7):
        assert write(states, nth * 10, 10, offset=100 + nth * 10) is None
    for nth in range(7 - BATCHES_TO_RETAIN, 7):
        resent = write(states, nth * 10, 10)
        assert (resent.first_offset, resent.last_offset) == (100 + nth * 10, 109 + nth * 10)
    with pytest.raises(errors.OutOfOrderSequence):
        write(states, 10, 10)


def test_a_gap_is_out_of_order():
    states = ProducerStates()
    write(states, 0, 3)
    with pytest.raises(errors.OutOfOrderSequence, match="expected 3"):
        write(states, 4, 1)
    assert write(states, 3, 1) is None


def test_a_batch_that_only_begins_like_an_old_one_is_no_resend():
    states = ProducerStates()
    write(states, 0, 3)
    with pytest.raises(errors.OutOfOrderSequence):
        write(states, 0, 2)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one():
    states = ProducerStates()
    write(states, 0, 3)
    with pytest.raises(errors.OutOfOrderSequence):
        write(states, 3, 1, epoch=1)
    assert write(states, 0, 1, epoch=1) is None
    with pytest.raises(errors.InvalidProducerEpoch):
        write(states, 3, 1, epoch=0)


def test_an_unknown_producer_may_start_anywhere():
    assert write(ProducerStates(), 12345, 2) is None


def test_sequences_wrap_to_zero():
    assert add_sequence(MAX_SEQUENCE, 1) == 0
    states = ProducerStates()
    assert write(states, MAX_SEQUENCE - 1, 4, offset=50) is None  # MAX-1, MAX, 0, 1
    assert write(states, 2, 1, offset=54) is None
    assert write(states, MAX_SEQUENCE - 1, 4).first_offset == 50


def test_idle_producers_are_forgotten():
    states = ProducerStates()
    write(states, 0, 1, now_ms=1000)
    assert states.expire(2000, 1000) == 0
    assert states.expire(2001, 1000) == 1
    assert write(states, 99, 1) is None


@given(st.lists(st.integers(1, 2**20), min_size=1, max_size=12), st.integers(0, MAX_SEQUENCE))
def test_consecutive_batches_are_always_accepted_once(counts, start):
    states = ProducerStates()
    sequence, offset = start, 0
    for count in counts:
        assert write(states, sequence, count, offset=offset) is None
        assert write(states, sequence, count).first_offset == offset
        sequence, offset = add_sequence(sequence, count), offset + count
