"""read_committed: what belongs to aborted transactions, and every control batch, stays out."""

import random

from scripted_cluster import ABORT, COMMIT, Log

from kafkacore.records import PartitionReader


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


def test_only_the_aborted_producer_is_left_out_and_only_transactional_batches():
    log = Log()
    first = transactional(log, 7, b"gone")
    log.append(b"idempotent", producer_id=7, producer_epoch=0, base_sequence=1)
    transactional(log, 8, b"kept")
    log.aborted = [(7, first)]
    assert read(log) == [b"idempotent", b"kept"]
