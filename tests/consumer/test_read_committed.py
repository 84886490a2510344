"""read_committed: what belongs to aborted transactions, and every control batch, stays out."""

import random
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_cluster import ABORT, COMMIT, Log

from kafkacore.records import PartitionReader
from tests.kit.reached import Reached


def read(log: Log, start: int = 0, *, committed: bool = True, step: int = 1000) -> list[bytes]:
    data = log.read(start, 1 << 30, int(committed))
    aborted = sorted(log.aborted, key=lambda a: a[1]) if committed else None
    reader = PartitionReader(data, start_offset=start, aborted=aborted)
    out = []
    while taken := reader.records(step):
        assert len(taken) <= step
        out += [r.value for r in taken]
    assert reader.exhausted
    if data:
        assert reader.next_offset == reader.end_offset
    return out


def transactional(log: Log, producer_id: int, *values: bytes) -> int:
    return log.append(*values, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def test_interleaved_transactions():
    log = Log()
    first_of_1 = transactional(log, 1, b"1a")
    transactional(log, 2, b"2a")
    log.append(b"plain")
    transactional(log, 1, b"1b")
    log.mark(ABORT, 1)
    transactional(log, 2, b"2b")
    log.mark(COMMIT, 2)
    transactional(log, 1, b"1c")  # the same producer's next transaction
    log.mark(COMMIT, 1)
    log.aborted = [(1, first_of_1)]
    assert read(log) == [b"2a", b"plain", b"2b", b"1c"]
    assert read(log, committed=False) == [b"1a", b"2a", b"plain", b"1b", b"2b", b"1c"]


def test_the_list_of_aborted_transactions_may_come_in_any_order():
    log = Log()
    aborted = []
    expected = []
    for round_ in range(6):
        for producer_id in (1, 2, 3):
            first = transactional(log, producer_id, b"%d-%d" % (producer_id, round_))
            if (producer_id + round_) % 2:
                aborted.append((producer_id, first))
                log.mark(ABORT, producer_id)
            else:
                expected.append(b"%d-%d" % (producer_id, round_))
                log.mark(COMMIT, producer_id)
    for seed in range(5):
        log.aborted = random.Random(seed).sample(aborted, len(aborted))
        assert read(log) == expected


def test_a_fetch_that_begins_inside_an_aborted_transaction():
    log = Log()
    log.append(b"x")
    first = transactional(log, 7, b"a", b"b", b"c")
    log.mark(ABORT, 7)
    log.append(b"y")
    log.aborted = [(7, first)]
    assert read(log, start=3) == [b"y"]


def test_nothing_but_control_and_aborted_batches_still_moves_on():
    log = Log()
    first = transactional(log, 7, b"a")
    log.mark(ABORT, 7)
    log.aborted = [(7, first)]
    assert read(log) == []


def test_only_the_aborted_producer_is_left_out_and_only_transactional_batches():
    log = Log()
    first = transactional(log, 7, b"gone")
    log.append(b"idempotent", producer_id=7, producer_epoch=0, base_sequence=1)
    transactional(log, 8, b"kept")
    log.aborted = [(7, first)]
    assert read(log) == [b"idempotent", b"kept"]


definition = Reached(
    "a producer commits after it aborted",
    "a producer aborts after it committed",
    "one aborts inside another's transaction",
    "open at the end, with a commit behind its first record",
    "two transactions in one answer, both aborted",
)


EVENTS = st.lists(st.tuples(st.integers(1, 2), st.sampled_from(["data", "data", "commit", "abort", "plain"])), min_size=12, max_size=30)


@partial(definition.by, rounds=10)
@given(EVENTS, st.integers(1, 7))
@settings(max_examples=10)
def test_agrees_with_a_reading_of_the_definition(events, step):
    """A record is visible when it is plain or its transaction ended with a commit."""
    log = Log()
    open_: dict[int, tuple[int, list[bytes]]] = {}
    fate: list[tuple[bytes, bool | None]] = []
    outcome: dict[bytes, bool] = {}
    ended: dict[int, str] = {}
    for i, (producer_id, what) in enumerate(events):
        value = b"%d" % i
        if what == "plain":
            log.append(value)
            fate.append((value, True))
        elif what == "data":
            first = transactional(log, producer_id, value)
            open_.setdefault(producer_id, (first, []))[1].append(value)
            fate.append((value, None))
        elif producer_id in open_:
            first, values = open_.pop(producer_id)
            log.mark(COMMIT if what == "commit" else ABORT, producer_id)
            outcome.update(dict.fromkeys(values, what == "commit"))
            definition("a producer commits after it aborted", (ended.get(producer_id), what) == ("abort", "commit"))
            definition("a producer aborts after it committed", (ended.get(producer_id), what) == ("commit", "abort"))
            definition("one aborts inside another's transaction", what == "abort" and any(other < first for other, _ in open_.values()))
            ended[producer_id] = what
            if what == "abort":
                log.aborted.append((producer_id, first))
    log.last_stable = min((first for first, _ in open_.values()), default=log.end)
    definition("open at the end, with a commit behind its first record", open_ and "commit" in ended.values())
    definition("two transactions in one answer, both aborted", step > 4 and len(log.aborted) > 1)
    visible = []
    for offset, (value, plain) in zip(_offsets(log), fate, strict=True):
        if offset < log.last_stable and (plain or outcome.get(value)):
            visible.append(value)
    log.aborted.reverse()
    assert read(log, step=step) == visible


def _offsets(log: Log) -> list[int]:
    """Offset of each data record, markers left out."""
    return [base for base, _, data in log.batches if not data[22] & 0x20]
