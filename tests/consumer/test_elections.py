"""Leader changes and unclean elections (KIP-320): no position, whatever it comes from, reads on past records that it has not seen."""

import pytest
from scripted_cluster import COMMIT, Log
from test_fetcher import FetchRig, filled, numbers

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer import subscription
from kafkacore.metadata import ClusterSnapshot
from kafkacore.records import PartitionReader
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def two_epochs() -> Log:
    """Offsets 0 to 9 of epoch 0, 10 to 19 of epoch 1, five to a batch."""
    log = filled(2, 5)
    log.elect()
    for first in (10, 15):
        log.append(*numbers(first, 5))
    return log


def content(log: Log, start: int) -> list[tuple[int, bytes]]:
    """What a log holds from an offset on."""
    reader = PartitionReader(log.read(start, 1 << 30, 0), start_offset=start)
    return [(record.offset, record.value) for record in reader.records()]


def read_on(rig: FetchRig, rounds: int = 60) -> list[tuple[int, bytes]]:
    """What is handed out until nothing comes any more; metadata is fetched when it is asked for, as the network client does."""
    found = []
    asked = rig.cluster.update_requests
    for _ in range(rounds):
        rig.round(200)
        found += [(record.offset, record.value) for record in rig.fetcher.collect(7).get(A, ())]
        if rig.cluster.update_requests > asked:
            asked = rig.cluster.update_requests
            rig.cluster.refresh()
    return found


def position(rig: FetchRig) -> int:
    return rig.subscription.partitions[A].offset


def epoch_questions(rig: FetchRig) -> list[tuple[int, int]]:
    """(current leader epoch, epoch asked for) of each question about A."""
    return [
        (partition.current_leader_epoch, partition.leader_epoch)
        for _, _, request in rig.cluster.requests
        if isinstance(request, p.OffsetForLeaderEpochRequest)
        for partition in request.topics[0].partitions
        if partition.partition == 0
    ]


# ---- in what way a position can have come about


def reset_earliest():
    rig = FetchRig({A: two_epochs()}, seek=False)
    read_on(rig, 10)
    return rig


def reset_latest_before_any_record():
    rig = FetchRig({A: two_epochs()}, seek=False, reset="latest")
    for _ in range(4):
        rig.round()
    return rig


def seek_before_metadata():
    rig = FetchRig({A: two_epochs()}, seek=False)
    rig.cluster.snapshot = ClusterSnapshot(is_bootstrap=True)
    rig.subscription.seek(A, 5)
    rig.round()
    rig.cluster.refresh()
    read_on(rig, 10)
    return rig


def rewound():
    rig = reset_earliest()
    rig.subscription.rewind(A, 14)
    rig.fetcher.retain()
    return rig


def given_back():
    """Ctrl+C between the fetcher and the application."""
    rig = FetchRig({A: two_epochs()}, seek=False)
    for _ in range(4):
        rig.round()
    rig.fetcher.collect(12)
    taken = rig.fetcher.collect(500)
    assert position(rig) == 20
    rig.fetcher.give_back(taken)
    assert position(rig) == 12
    return rig


def moved_back_before():
    rig = reset_earliest()
    rig.log(A).elect(2, cut=15)
    rig.log(A).append(*[b"second %d" % offset for offset in range(15, 30)])
    rig.cluster.refresh()
    read_on(rig, 10)
    assert position(rig) == 30
    return rig


def paused():
    rig = FetchRig({A: two_epochs()}, seek=False)
    for _ in range(4):
        rig.round()
    rig.fetcher.collect(12)
    rig.subscription.pause(A)  # the rest is held
    return rig


def held():
    """Records of the old leader are held: they may be no part of the log any longer."""
    rig = FetchRig({A: two_epochs()}, seek=False)
    for _ in range(4):
        rig.round()
    rig.fetcher.collect(4)
    return rig


def on_their_way():
    """The old leader has answered, and the answer comes when metadata knows the new one."""
    rig = FetchRig({A: two_epochs()}, seek=False, max_partition_bytes=1)
    rig.round()
    rig.round()
    assert len(rig.fetcher.collect(4)[A]) == 4
    rig.fetcher.send_fetches(rig.now_ms)
    (_, message, version) = rig.cluster.pending[0]
    answers = [rig.cluster.handle(1, version, message)]
    assert answers[0].responses[0].partitions[0].records
    rig.cluster.answer = lambda node, version, request: answers.pop() if answers and request is message else None
    return rig


def behind_a_marker():
    """The last batch is one that is not handed out: its epoch is that of the position."""
    log = two_epochs()
    log.elect()
    log.mark(COMMIT, 7)
    rig = FetchRig({A: log}, seek=False, isolation=1)
    read_on(rig, 10)
    assert position(rig) == 21
    assert rig.subscription.partitions[A].offset_epoch == 2
    return rig


WAYS = [
    reset_earliest,
    reset_latest_before_any_record,
    seek_before_metadata,
    rewound,
    given_back,
    moved_back_before,
    paused,
    held,
    on_their_way,
    behind_a_marker,
]


def resume(rig: FetchRig) -> None:
    rig.subscription.resume(A)


@each_row("cut", [5, 10, None])
@each_row("changes", [1, 2, 3])
@each_row("way", WAYS)
def test_truncation_is_found_whatever_the_position_comes_from(way, changes, cut):
    """The first change is unclean, or with `cut` None clean. Each further one comes while the question about the one before is asked."""
    rig = way()
    log = rig.log(A)
    before, asked = position(rig), len(epoch_questions(rig))
    log.elect(2, cut)
    for change in range(1, changes):
        rig.cluster.refresh()
        rig.positions.step(rig.now_ms, 0)
        log.append(*[b"by %d: %d" % (change, offset) for offset in range(log.end, log.end + 3)])
        log.elect(1 + change)
    log.append(*[b"new %d" % offset for offset in range(log.end, 40)])
    rig.cluster.refresh()
    resume(rig)
    start = before if cut is None else min(before, cut)
    assert read_on(rig) == content(log, start)
    assert len(epoch_questions(rig)) > asked
    assert rig.positions.idle
    assert rig.subscription.partitions[A].question is None


@each_row("way", [way for way in WAYS if way not in (held, on_their_way)])  # not behind the cut
def test_without_a_reset_strategy_truncation_is_raised_until_a_seek(way):
    rig = way()
    rig.subscription.default_reset = subscription.ResetStrategy("none")
    before = position(rig)
    log = rig.log(A)
    log.elect(2, cut=5)
    log.append(*[b"new %d" % offset for offset in range(5, 40)])
    rig.cluster.refresh()
    resume(rig)
    for _ in range(3):
        with pytest.raises(errors.LogTruncationError, match="topic t, partition 0") as caught:
            for _ in range(5):
                rig.round(200)
                assert rig.values() == {}  # nothing from behind the gap
        assert caught.value.offset == before
    rig.subscription.seek(A, 5)
    assert read_on(rig) == content(log, 5)


def test_a_seek_that_names_no_epoch_is_not_validated_before_a_record_was_read():
    """As in Kafka: `seek(offset)` says nothing about what comes before the offset."""
    rig = FetchRig({A: two_epochs()})
    rig.round()
    rig.values()
    rig.subscription.seek(A, 15)
    rig.log(A).elect(2, cut=10)
    rig.log(A).append(*[b"new %d" % offset for offset in range(10, 30)])
    rig.cluster.refresh()
    assert read_on(rig) == content(rig.log(A), 15)
    assert epoch_questions(rig) == []
    rig.log(A).elect(3, cut=10)
    rig.cluster.refresh()
    read_on(rig)
    assert position(rig) == 10


def test_a_log_that_was_truncated_to_nothing_is_reset():
    rig = reset_earliest()
    log = rig.log(A)
    log.batches.clear()
    log.epochs.clear()
    log.start, log.epoch = 50, 3
    log.epochs = [(3, 50)]
    log.elect()
    log.append(b"x")
    rig.cluster.answer = lambda node, version, request: (
        None
        if not isinstance(request, p.OffsetForLeaderEpochRequest)
        else p.OffsetForLeaderEpochResponse(
            topics=[p.OffsetForLeaderTopicResult(topic="t", partitions=[p.EpochEndOffset(partition=0, leader_epoch=-1, end_offset=-1)])]
        )
    )
    rig.cluster.refresh()
    assert read_on(rig) == [(50, b"x")]


# ---- the epoch of a position


@each_row("step", [1, 3, 7, 500])
def test_a_rewind_finds_the_epoch_of_the_record_before_the_offset(step):
    log = Log()
    epochs = {}
    for epoch, count in [(0, 4), (2, 1), (3, 6), (7, 2), (9, 5)]:
        while log.epoch < epoch:
            log.elect()
        epochs.update(dict.fromkeys(range(log.end, log.end + count), epoch))
        log.append(*numbers(log.end, count))
    for offset in range(log.end + 1):
        rig = FetchRig({A: log})
        while found := rig.poll(step, rounds=2):
            assert found
        state = rig.subscription.partitions[A]
        first = log.end - min(step, log.end)
        rig.subscription.rewind(A, offset)
        assert (state.offset, state.offset_epoch) == (offset, epochs.get(offset - 1, -1)), first
        rig.fetcher.retain()
        while rig.poll(step, rounds=2):
            pass
        for again in range(log.end, offset - 1, -1):
            rig.subscription.rewind(A, again)
            assert (state.offset, state.offset_epoch) == (again, epochs.get(again - 1, -1))


def test_the_epochs_of_a_position_do_not_grow_without_end():
    log = Log()
    for _ in range(100):
        log.append(b"x")
        log.elect()
    rig = FetchRig({A: log})
    rig.poll()
    state = rig.subscription.partitions[A]
    assert len(state.epochs) == 16
    rig.subscription.rewind(A, 90)
    assert state.offset_epoch == 89
    rig.subscription.rewind(A, 1)  # not known any longer: the oldest epoch that is, which no leader before knew either
    assert state.offset_epoch == 84


def test_columns_that_are_given_back_restore_offset_and_epoch():
    rig = FetchRig({A: two_epochs()}, seek=False)
    for _ in range(4):
        rig.round()
    rig.fetcher.collect(3)
    (columns,) = rig.fetcher.collect_columns()
    state = rig.subscription.partitions[A]
    assert (state.offset, state.offset_epoch) == (20, 1)
    rig.fetcher.give_back({A: columns})
    assert (state.offset, state.offset_epoch) == (3, 0)


def test_a_rewind_never_goes_forward():
    """A `for` loop still holds records of the old leader's log when a truncation moves the position before them."""
    rig = reset_earliest()
    rig.log(A).elect(2, cut=10)
    rig.log(A).append(*[b"new %d" % offset for offset in range(10, 30)])
    rig.cluster.refresh()
    rig.round()
    rig.round()
    assert position(rig) == 10
    rig.subscription.rewind(A, 15)
    assert position(rig) == 10
