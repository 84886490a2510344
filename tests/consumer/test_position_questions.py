"""What happens to a lookup or a validation while its answer is awaited: no partition is left behind."""

import itertools

import pytest
from test_elections import A, B, content, epoch_questions, on_their_way, position, read_on, reset_earliest, two_epochs
from test_fetcher import FetchRig, filled

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.subscription import EARLIEST, FetchState
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot
from kafkacore.types import TopicPartition
from tests.kit.inside import errors_in
from tests.kit.interrupter import Interrupter
from tests.kit.rows import each_row


def recreated_name(rig):
    """Metadata forgets the topic while the question is under way, and knows it again later."""
    rig.cluster.snapshot = ClusterSnapshot(dict(rig.cluster.snapshot.nodes))
    rig.cluster.deliver(lost=True)
    for _ in range(5):
        rig.round(300)
    rig.cluster.refresh()


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


EVENTS = [
    recreated_name,
    seek_to_the_same_offset,
    seek_and_back_to_validation,
    rewound_while_asked,
    rewound_to_an_unknown_epoch,
    reset_while_asked,
    fenced,
    unknown_epoch,
    left_out_of_the_answer,
    refused_for_good,
    old_metadata,
]


@each_row("times", [1, 2])
@each_row("asked", ["validation", "reset"])
@each_row("event", EVENTS)
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
    rig = FetchRig({A: filled()}, seek=False)
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.seek(A, 4)
    rig.cluster.deliver(lost=True)
    rig.round()
    rig.round(5_000)
    assert sum(isinstance(request, p.ListOffsetsRequest) for *_, request in rig.cluster.requests) == 1
    assert rig.positions.idle


def test_a_position_that_was_found_under_an_old_epoch_is_validated_at_once():
    rig = FetchRig({A: two_epochs()}, seek=False, reset="latest")
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


# ---- errors


def test_errors_of_many_partitions_are_raised_one_by_one_and_do_not_pile_up():
    count = 5
    rig = FetchRig({TopicPartition("t", index): filled(2) for index in range(count)}, reset="none")
    rig.round()
    rig.fetcher.collect(1_000)
    for log in rig.cluster.logs.values():
        log.elect(cut=10)
    rig.cluster.refresh()
    raised = set()
    for _ in range(20):  # each partition is validated again between two of them
        try:
            rig.round(1_000)
        except errors.LogTruncationError as error:
            raised.add(error.partition)
        rig.cluster.deliver()
        assert len(errors_in(rig.positions)) <= count
    assert raised == set(range(count))
    for tp in rig.cluster.logs:
        rig.subscription.seek(tp, 10)
    rig.round(1_000)  # what was not raised yet is not true any longer
    assert rig.positions.idle


# ---- interrupts


def test_an_interrupt_at_any_line_leaves_no_partition_behind():
    """Ctrl+C in every third line of offsets.py and subscription.py, during a reset and during a validation that finds a truncation."""

    def run(nth):
        ctrl_c = Interrupter(nth, files=("consumer/offsets.py", "consumer/subscription.py"))

        def step():
            before = ctrl_c.done
            if ctrl_c.run(lambda: rig.positions.step(rig.now_ms, 1_700_000_000_000)) and not before:
                interrupted(rig)
            rig.fetcher.send_fetches(rig.now_ms)
            rig.cluster.deliver()

        rig = FetchRig({A: two_epochs(), B: two_epochs()}, seek=False, reset="latest")
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
        return ctrl_c.done

    assert sum(1 for _ in itertools.takewhile(run, itertools.count(0, 3))) > 50
