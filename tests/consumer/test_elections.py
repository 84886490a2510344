"""Leader changes and unclean elections (KIP-320): no position, whatever it comes from, reads on past records that it has not seen."""

import contextlib
import itertools
import sys

import pytest
from scripted_cluster import COMMIT, Log
from test_fetcher import Rig, filled, numbered

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer import offsets, subscription
from kafkacore.consumer.offsets import PositionKeeper
from kafkacore.consumer.subscription import EARLIEST, LATEST, FetchState
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot
from kafkacore.net.leaders import OffsetQuery
from kafkacore.records import PartitionReader
from kafkacore.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def two_epochs() -> Log:
    """Offsets 0 to 9 of epoch 0, 10 to 19 of epoch 1, five to a batch."""
    log = filled(2, 5)
    log.elect()
    for first in (10, 15):
        log.append(*numbered(first, 5))
    return log


def content(log: Log, start: int) -> list[tuple[int, bytes]]:
    """What a log holds from an offset on."""
    reader = PartitionReader(log.read(start, 1 << 30, 0), start_offset=start)
    return [(record.offset, record.value) for record in reader.records()]


def read_on(rig: Rig, rounds: int = 60) -> list[tuple[int, bytes]]:
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


def position(rig: Rig) -> int:
    return rig.subscription.partitions[A].offset


def epoch_questions(rig: Rig) -> list[tuple[int, int]]:
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
    rig = Rig({A: two_epochs()}, seek=False)
    read_on(rig, 10)
    return rig


def reset_latest_before_any_record():
    rig = Rig({A: two_epochs()}, seek=False, reset="latest")
    for _ in range(4):
        rig.round()
    return rig


def reset_latest():
    rig = reset_latest_before_any_record()
    rig.log(A).append(*numbered(20, 5))
    read_on(rig, 10)
    return rig


def reset_by_duration():
    rig = Rig({A: two_epochs()}, seek=False, reset="by_duration:PT1S")
    read_on(rig, 10)
    return rig


def seek_before_metadata():
    rig = Rig({A: two_epochs()}, seek=False)
    rig.cluster.snapshot = ClusterSnapshot(is_bootstrap=True)
    rig.subscription.seek(A, 5)
    rig.round()
    rig.cluster.refresh()
    read_on(rig, 10)
    return rig


def seek_after_metadata():
    rig = Rig({A: two_epochs()})
    rig.round()
    rig.subscription.seek(A, 11)
    read_on(rig, 10)
    return rig


def seek_while_reset():
    rig = Rig({A: two_epochs()}, seek=False)
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.seek(A, 3)
    read_on(rig, 10)
    return rig


def seek_to_beginning():
    rig = reset_latest()
    rig.subscription.request_reset(A, EARLIEST)
    read_on(rig, 10)
    return rig


def seek_to_end():
    rig = reset_earliest()
    rig.subscription.request_reset(A, LATEST)
    read_on(rig, 10)
    return rig


def offset_for_a_time_and_seek():
    rig = Rig({A: two_epochs()}, seek=False)
    query = OffsetQuery(rig.cluster, rig.cluster, {A: 1_000_012}, isolation_level=0, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    query.step(rig.now_ms)
    rig.cluster.deliver()
    assert query.results[A].offset == 12
    rig.subscription.seek(A, 12)
    read_on(rig, 10)
    return rig


def out_of_range():
    rig = Rig({A: two_epochs()}, seek=False)
    rig.subscription.seek(A, 1_000)
    read_on(rig, 10)
    return rig


def rewound():
    rig = reset_earliest()
    rig.subscription.rewind(A, 14)
    rig.fetcher.retain()
    return rig


def given_back():
    """Ctrl+C between the fetcher and the application."""
    rig = Rig({A: two_epochs()}, seek=False)
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
    rig = Rig({A: two_epochs()}, seek=False)
    for _ in range(4):
        rig.round()
    rig.fetcher.collect(12)
    rig.subscription.pause(A)  # the rest is held
    return rig


def held():
    """Records of the old leader are held: they may be no part of the log any longer."""
    rig = Rig({A: two_epochs()}, seek=False)
    for _ in range(4):
        rig.round()
    rig.fetcher.collect(4)
    return rig


def on_their_way():
    """The old leader has answered, and the answer comes when metadata knows the new one."""
    rig = Rig({A: two_epochs()}, seek=False, max_partition_bytes=1)
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
    rig = Rig({A: log}, seek=False, isolation=1)
    read_on(rig, 10)
    assert position(rig) == 21
    assert rig.subscription.partitions[A].offset_epoch == 2
    return rig


WAYS = [
    reset_earliest,
    reset_latest_before_any_record,
    reset_latest,
    reset_by_duration,
    seek_before_metadata,
    seek_after_metadata,
    seek_while_reset,
    seek_to_beginning,
    seek_to_end,
    offset_for_a_time_and_seek,
    out_of_range,
    rewound,
    given_back,
    moved_back_before,
    paused,
    held,
    on_their_way,
    behind_a_marker,
]


def resume(rig: Rig) -> None:
    rig.subscription.resume(A)


@pytest.mark.parametrize("cut", [5, 10, None])
@pytest.mark.parametrize("changes", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
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


@pytest.mark.parametrize("way", [way for way in WAYS if way not in (held, on_their_way)])  # not behind the cut
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
    rig = Rig({A: two_epochs()})
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


# ---- no question stays without an end


def recreated_name(rig):
    """Metadata forgets the topic while the question is under way, and knows it again later."""
    rig.cluster.snapshot = ClusterSnapshot(dict(rig.cluster.snapshot.nodes))
    rig.cluster.deliver(lost=True)
    for _ in range(5):
        rig.round(300)
    rig.cluster.refresh()


def assigned_again(rig):
    at = position(rig)
    rig.subscription.assign_manual([])
    rig.round(300)
    rig.subscription.assign_manual([A])
    rig.subscription.seek(A, at)
    rig.cluster.deliver()


def assigned_again_between_two_steps(rig):
    at = position(rig)
    rig.subscription.assign_manual([])
    rig.subscription.assign_manual([A])
    rig.subscription.seek(A, at)
    rig.cluster.deliver()


def seek_to_the_same_offset(rig):
    rig.subscription.seek(A, position(rig))


def seek_and_back_to_validation(rig):
    state = rig.subscription.partitions[A]
    rig.subscription.seek(A, state.offset, 1)
    rig.subscription.request_validation(state)


def rewound_while_asked(rig):
    rig.subscription.rewind(A, 12)


def rewound_to_an_unknown_epoch(rig):
    rig.subscription.rewind(A, 0)


def reset_while_asked(rig):
    rig.subscription.request_reset(A, EARLIEST)


def interrupted(rig):
    rig.cluster.pending.clear()
    rig.fetcher.start_anew(rig.cluster)
    rig.positions.start_anew(rig.cluster)
    rig.subscription.settle_anew()


def leaderless(rig):
    rig.log(A).leader = -1
    rig.cluster.refresh()
    for _ in range(5):
        rig.round(300)
    rig.log(A).elect(3)


def another_epoch(rig):
    rig.log(A).elect(3)
    rig.cluster.refresh()


def fenced(rig):
    """The leader is ahead of the metadata."""
    rig.log(A).elect()
    rig.cluster.deliver()


def unknown_epoch(rig):
    """The leader is behind the metadata."""
    rig.log(A).epoch -= 1
    for _ in range(4):
        rig.round(300)
    rig.log(A).epoch += 1


def answer_lost(rig):
    rig.cluster.deliver(lost=True)


def left_out_of_the_answer(rig):
    nothing = {
        p.OffsetForLeaderEpochRequest: p.OffsetForLeaderEpochResponse(topics=[]),
        p.ListOffsetsRequest: p.ListOffsetsResponse(topics=[]),
    }
    rig.cluster.answer = lambda node, version, request: nothing[type(request)]
    rig.cluster.deliver()
    rig.cluster.answer = None


def refused_for_good(rig):
    rig.log(A).error = Code.TOPIC_AUTHORIZATION_FAILED
    rig.now_ms += 200
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver()
    with pytest.raises(errors.TopicAuthorization):
        rig.round(200)
    rig.log(A).error = 0


def old_metadata(rig):
    """A broker that knows no leader epochs answers."""
    epoch, rig.log(A).epoch = rig.log(A).epoch, -1
    rig.cluster.refresh()
    rig.log(A).epoch = epoch
    rig.round()
    rig.cluster.refresh()


def broker_away(rig):
    rig.cluster.unready.update((1, 2, 3))
    rig.cluster.deliver(lost=True)
    for _ in range(5):
        rig.round(300)
    rig.cluster.unready.clear()


EVENTS = [
    recreated_name,
    assigned_again,
    assigned_again_between_two_steps,
    seek_to_the_same_offset,
    seek_and_back_to_validation,
    rewound_while_asked,
    rewound_to_an_unknown_epoch,
    reset_while_asked,
    interrupted,
    leaderless,
    another_epoch,
    fenced,
    unknown_epoch,
    answer_lost,
    left_out_of_the_answer,
    refused_for_good,
    old_metadata,
    broker_away,
]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("asked", ["validation", "reset"])
@pytest.mark.parametrize("event", EVENTS)
def test_a_partition_reads_on_after_anything_that_happens_to_its_question(event, asked, times):
    rig = reset_earliest()
    log = rig.log(A)
    log.elect(2)
    log.append(*[b"new %d" % offset for offset in range(20, 25)])
    rig.cluster.refresh()
    for _ in range(times):
        if asked == "reset":
            rig.subscription.request_reset(A, EARLIEST)
        rig.positions.step(rig.now_ms, 0)
        event(rig)
        assert rig.subscription.partitions[A].offset_epoch < log.epoch + 1
    at = position(rig) if rig.subscription.partitions[A].has_position else 0
    rig.now_ms += 1_000
    assert read_on(rig) == content(log, max(at, 0))
    state = rig.subscription.partitions[A]
    assert (state.state, state.question, state.leader_epoch) == (FetchState.FETCHING, None, log.epoch)
    assert rig.positions.idle


def test_a_broker_that_answers_followers_only_is_not_asked():
    """Below version 3 OffsetForLeaderEpoch takes the permission to act as a broker."""
    rig = reset_earliest()
    rig.cluster.versions[p.OffsetForLeaderEpochRequest] = 2
    rig.log(A).elect(2)
    rig.log(A).append(b"new")
    rig.cluster.refresh()
    assert read_on(rig) == [(20, b"new")]
    assert epoch_questions(rig) == []


def test_two_leader_changes_in_a_row_are_asked_about_with_the_epoch_of_each():
    rig = reset_earliest()
    asked = len(epoch_questions(rig))
    rig.log(A).elect(2)
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.log(A).elect(3)
    rig.log(A).append(b"after")
    rig.cluster.deliver()
    rig.cluster.refresh()
    assert read_on(rig) == [(20, b"after")]
    assert epoch_questions(rig)[asked:] == [(2, 1), (3, 1)]


def test_a_question_that_is_asked_again_names_the_epoch_of_the_newest_metadata():
    rig = Rig({A: two_epochs()})
    query = offsets.EpochQuery(rig.cluster, rig.cluster, {A: 0}, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    query.step(0)
    rig.log(A).elect()
    rig.cluster.deliver()
    rig.cluster.refresh()
    query.step(0)
    query.step(1_000)
    rig.cluster.deliver()
    assert epoch_questions(rig) == [(1, 0), (2, 0)]
    assert query.results == {A: (0, 10)}


def test_a_position_that_was_taken_back_is_asked_about_with_its_own_epoch():
    rig = reset_earliest()
    rig.log(A).elect(2)
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.rewind(A, 7)
    assert read_on(rig) == content(rig.log(A), 7)
    assert epoch_questions(rig)[-2:] == [(2, 1), (2, 0)]


def test_a_position_that_was_taken_back_to_where_no_epoch_is_known_is_not_validated():
    rig = Rig({A: two_epochs()}, reset="latest")
    read_on(rig, 10)
    rig.log(A).elect(2)
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.rewind(A, 0)
    assert read_on(rig) == content(rig.log(A), 0)


def test_a_seek_during_a_lookup_fetches_with_the_newest_leader_epoch():
    rig = reset_earliest()
    rig.subscription.request_reset(A, EARLIEST)
    rig.log(A).elect(2)
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.seek(A, 15)
    assert read_on(rig) == content(rig.log(A), 15)
    assert rig.cluster.update_requests == 0


def test_an_answer_to_an_abandoned_question_is_not_asked_for_again():
    rig = Rig({A: filled()}, seek=False)
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.seek(A, 4)
    rig.cluster.deliver(lost=True)
    rig.round()
    rig.round(5_000)
    assert sum(isinstance(request, p.ListOffsetsRequest) for *_, request in rig.cluster.requests) == 1
    assert rig.positions.idle


def test_a_position_that_was_found_under_an_old_epoch_is_validated_at_once():
    rig = Rig({A: two_epochs()}, seek=False, reset="latest")
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver()  # offset 20, epoch 1
    rig.log(A).elect(2, cut=10)
    rig.log(A).append(*[b"new %d" % offset for offset in range(10, 30)])
    rig.cluster.refresh()
    assert read_on(rig) == content(rig.log(A), 10)
    assert rig.cluster.update_requests == 0


def test_what_an_earlier_leader_says_about_the_end_does_not_count():
    rig = on_their_way()
    state = rig.subscription.partitions[A]
    before = state.high_watermark
    answer = rig.cluster.answer

    def with_another_end(*request):
        reply = answer(*request)
        if reply is not None:
            reply.responses[0].partitions[0] = p.PartitionData(partition_index=0, high_watermark=1_000)
        return reply

    rig.cluster.answer = with_another_end
    rig.log(A).elect(2)
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver(1)
    assert state.high_watermark == before
    assert rig.fetcher.metrics.stale_answers == 1


def test_a_leader_that_says_the_log_has_diverged_is_asked_where():
    rig = reset_earliest()
    log = rig.log(A)
    said = []

    def diverged(node, version, request):
        if isinstance(request, p.FetchRequest) and not said:
            said.append(request)
            answer = rig.cluster.fetch(node, version, request)
            topics = answer.responses or [p.FetchableTopicResponse(topic_id=rig.cluster.topic_id("t"), partitions=[])]
            partition = p.PartitionData(
                partition_index=0, high_watermark=10, diverging_epoch=p.FetchEpochEndOffset(epoch=0, end_offset=10), records=b""
            )
            topics[0] = topics[0]._replace(partitions=[partition])
            return answer._replace(responses=topics)
        return None

    rig.cluster.answer = diverged
    read_on(rig, 5)
    assert said
    assert epoch_questions(rig)[-1] == (log.epoch, 1)
    assert position(rig) == 20


# ---- the epoch of a position


@pytest.mark.parametrize("step", [1, 3, 7, 500])
def test_a_rewind_finds_the_epoch_of_the_record_before_the_offset(step):
    log = Log()
    epochs = {}
    for epoch, count in [(0, 4), (2, 1), (3, 6), (7, 2), (9, 5)]:
        while log.epoch < epoch:
            log.elect()
        epochs.update(dict.fromkeys(range(log.end, log.end + count), epoch))
        log.append(*numbered(log.end, count))
    for offset in range(log.end + 1):
        rig = Rig({A: log})
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
    rig = Rig({A: log})
    rig.poll()
    state = rig.subscription.partitions[A]
    assert len(state.epochs) == 16
    rig.subscription.rewind(A, 90)
    assert state.offset_epoch == 89
    rig.subscription.rewind(A, 1)  # not known any longer: the oldest epoch that is, which no leader before knew either
    assert state.offset_epoch == 84


def test_columns_that_are_given_back_restore_offset_and_epoch():
    rig = Rig({A: two_epochs()}, seek=False)
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


# ---- interrupts


def test_an_interrupt_at_any_line_leaves_no_partition_behind():
    """Ctrl+C in every line of offsets.py and subscription.py, during a reset and during a validation that finds a truncation."""
    places = {offsets.__file__, subscription.__file__}

    def run(nth):
        lines = itertools.count(1)
        hit = False

        def trace(frame, event, _):
            nonlocal hit
            if frame.f_code.co_filename not in places:
                return None
            if event == "line" and next(lines) == nth:
                hit = True
                raise KeyboardInterrupt
            return trace

        def step():
            sys.settrace(trace)
            try:
                rig.positions.step(rig.now_ms, 1_700_000_000_000)
            except KeyboardInterrupt:
                interrupted(rig)
            finally:
                sys.settrace(outer)
            rig.fetcher.send_fetches(rig.now_ms)
            rig.cluster.deliver()

        outer = sys.gettrace()
        rig = Rig({A: two_epochs(), B: two_epochs()}, seek=False, reset="latest")
        step()
        rig.log(B).elect(2, cut=15)  # between the answer and its taking in
        rig.cluster.refresh()
        for _ in range(3):
            rig.now_ms += 200
            step()
        rig.log(A).elect(2, cut=10)
        rig.log(A).append(*[b"new %d" % offset for offset in range(10, 30)])
        rig.log(B).elect(1)
        rig.log(B).append(b"15", b"16")
        rig.cluster.refresh()
        for _ in range(3):
            rig.now_ms += 200
            step()
        found = {A: [], B: []}
        for _ in range(6):
            rig.round(200)
            for tp, records in rig.fetcher.collect(500).items():
                found[tp] += [record.value for record in records]
        assert found == {A: [b"new %d" % offset for offset in range(10, 30)], B: [b"15", b"16"]}, nth
        return hit

    assert sum(1 for _ in itertools.takewhile(run, itertools.count(1))) > 100


# ---- many partitions


@pytest.mark.slow
def test_ten_thousand_partitions_are_compared_once_per_snapshot(monkeypatch):
    count = 10_000
    logs = {TopicPartition("t", index): Log(leader=1 + index % 3) for index in range(count)}
    for log in logs.values():
        log.append(b"x")
    rig = Rig(logs, seek=False)
    compared = []
    check = PositionKeeper._check_epoch

    def counted(keeper, state, snapshot):
        compared.append(state)
        check(keeper, state, snapshot)

    monkeypatch.setattr(PositionKeeper, "_check_epoch", counted)
    read = sum(len(records) for _ in range(5) for records in (rig.round(200), rig.fetcher.collect(count))[1].values())
    assert read == count
    assert len(compared) == 2 * count  # the first snapshot, and each position that was found
    compared.clear()
    for _ in range(10):
        rig.round(200)
    assert compared == []
    for log in logs.values():
        log.elect(1 + log.leader % 3)
        log.append(b"y")
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    assert len(compared) == count
    assert len(rig.subscription.unsettled) == count
    questions = [r for _, _, r in rig.cluster.requests if isinstance(r, p.OffsetForLeaderEpochRequest)]
    assert sorted(len(t.partitions) for r in questions for t in r.topics) == [3_333, 3_333, 3_334]
    read = sum(len(records) for _ in range(5) for records in (rig.round(200), rig.fetcher.collect(count))[1].values())
    assert read == count
    assert not rig.subscription.unsettled
    for log in logs.values():
        log.elect()
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver(lost=True)
    rig.subscription.unsubscribe()
    with contextlib.suppress(errors.KafkaError):
        rig.positions.step(rig.now_ms, 0)
    assert rig.positions.idle
