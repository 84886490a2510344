"""Many new partitions on disk are opened in turns of the loop: other clients are served between, and their maker is answered at the end."""

import dataclasses
import errno
from types import SimpleNamespace

import pytest
from controlling import broker_state, create_topic, delete_topic, submit, topic_request

from kafkacore import protocol as p
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import CorruptDataError, KafkaStorage, NotLeaderOrFollower, UnknownTopicOrPartition
from tests.kit.batches import T0, batch

OPENED_PER_TURN = 8
MANY = 5 * OPENED_PER_TURN


class OpeningBroker:
    """A broker with logs on disk, without a thread: `turn` is a turn of its loop."""

    def __init__(self, directory):
        self.clock = ManualClock(wall_ms=T0)
        self.state = broker_state(BrokerConfig(), self.clock, log_dirs=[directory])
        self.replicas = self.state.replicas
        self.answers = []

    def create(self, name, partitions=MANY):
        self.state.controller.submit(topic_request(name, partitions), 7, self.answers.append)

    def turn(self):
        """How many partitions it opened."""
        before = len(self.replicas.partitions)
        self.state.timer.advance_clock()
        return len(self.replicas.partitions) - before

    def write(self, name, index):
        return self.replicas.append(name, index, batch(), -1, 9, self.clock.wall_ms(), self.clock.now_ms()).base_offset


@pytest.fixture
def bench(tmp_path):
    made = OpeningBroker(tmp_path)
    yield made
    made.state.ended()


def test_each_turn_opens_some_and_the_answer_comes_with_the_last(bench):
    bench.create("t")
    assert len(bench.replicas.partitions) == OPENED_PER_TURN
    assert bench.write("t", 0) == 0
    with pytest.raises(NotLeaderOrFollower) as refused:
        bench.write("t", MANY - 1)
    assert refused.value.retriable
    for _ in range(MANY // OPENED_PER_TURN - 1):
        assert bench.answers == []
        assert bench.turn() == OPENED_PER_TURN
    (answer,) = bench.answers
    assert answer.topics[0].error_code == 0
    assert [bench.write("t", index) for index in range(1, MANY)] == [0] * (MANY - 1)
    assert bench.turn() == 0


def test_what_is_asked_in_between_is_answered_in_its_turn(bench):
    create_topic(bench.state.controller, "small", OPENED_PER_TURN)  # few are opened at once
    assert bench.write("small", OPENED_PER_TURN - 1) == 0
    bench.create("t")
    delete_topic(bench.state.controller, "small")  # it creates nothing
    assert bench.answers == []
    bench.create("u", 1)
    grown = p.CreatePartitionsTopic(name="t", count=MANY + 10, assignments=None)
    bench.state.controller.submit(p.CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3, bench.answers.append)
    while bench.turn():
        pass
    assert [answer.topics[0].name for answer in bench.answers[:2]] == ["t", "u"]
    assert [type(answer) for answer in bench.answers[2:]] == [p.CreatePartitionsResponse]
    bench.create("v")
    bench.replicas.stopping()
    assert bench.turn() == 0
    bench.replicas.started()  # opens the rest
    assert len(bench.replicas.partitions) == MANY + 10 + 1 + MANY
    assert all(partition.is_leader for partition in bench.replicas.partitions.values())


def test_a_topic_that_is_deleted_before_its_turn_is_not_opened(bench):
    bench.create("t")
    bench.create("other", 1)
    delete_topic(bench.state.controller, "t")
    assert bench.replicas.partitions == {}
    assert bench.turn() == 1
    assert bench.write("other", 0) == 0
    assert len(bench.answers) == 2
    with pytest.raises(UnknownTopicOrPartition):
        bench.write("t", MANY - 1)
    bench.create("t", 2)  # another topic of the name
    assert bench.write("t", 1) == 0
    assert len(bench.replicas.partitions) == 3


def test_one_that_cannot_be_opened_holds_up_no_other(bench, monkeypatch):
    opened = bench.state.logs.open

    refused = list(range(3, MANY, 7))

    def open_log(topic, topic_id, index, config, **options):
        if index in refused:
            raise OSError(errno.EMFILE, "no descriptor is left")
        return opened(topic, topic_id, index, config, **options)

    monkeypatch.setattr(bench.state.logs, "open", open_log)
    bench.create("t")
    for _ in range(MANY):
        bench.state.timer.advance_clock()
    assert len(bench.answers) == 1
    assert len(bench.replicas.partitions) == MANY - len(refused)
    mended = refused.pop(0)
    bench.clock.advance(999)
    assert bench.turn() == 0
    bench.clock.advance(1)
    bench.turn()
    assert bench.replicas.offline.keys() == {("t", index) for index in refused}
    assert bench.write("t", mended) == 0
    with pytest.raises(KafkaStorage) as offline:
        bench.write("t", refused[0])
    assert (offline.value.topic, offline.value.partition) == ("t", refused[0])


def test_a_bug_met_with_one_partition_that_changed_keeps_no_other_write_from_its_outcome(bench, monkeypatch, caplog):
    bench.create("t", 3)
    first, other, failing = (bench.replicas.partition("t", index) for index in range(3))
    outcomes = []
    first.when_committed(0, lambda _: [bench.replicas.changed(each) for each in (other, failing)])
    for each in (other, failing):
        each.when_committed(0, outcomes.append)
    monkeypatch.setattr(failing, "settle", lambda: 1 / 0)
    bench.replicas.changed(first)
    assert outcomes == [None]
    assert "the requests that wait for partition t-2" in caplog.text


def test_retention_goes_by_each_topics_settings_and_a_damaged_log_keeps_no_other_from_it(bench, monkeypatch, caplog):
    settings = ({}, {"retention.ms": "7", "retention.bytes": "9"}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"})
    for nth, configs in enumerate(settings):
        create_topic(bench.state.controller, f"t{nth}", 1, configs=configs)
        if "cleanup.policy" not in configs:
            bench.write(f"t{nth}", 0)
    asked, expired = [], []
    for key, partition in bench.replicas.partitions.items():

        def delete(*limits, key=key):
            asked.append((key[0], *limits))
            if key[0] == "t0":
                raise CorruptDataError("a bad segment")
            return key[0] == "t1"

        monkeypatch.setattr(partition.log, "delete_old_segments", delete)
        monkeypatch.setattr(partition.producers, "expire", lambda *times: expired.append(times))
    changes = bench.replicas.changes
    bench.replicas.clean_up(T0 + 5, 11)
    week_ms = 7 * 86_400_000
    assert asked == [("t0", week_ms, -1, T0 + 5, 3), ("t1", 7, 9, T0 + 5, 3), ("t2", -1, -1, T0 + 5, 0), ("t3", week_ms, -1, T0 + 5, 0)]
    assert (expired, bench.replicas.changes) == ([(T0 + 5, 11)] * 4, changes + 1)
    assert "retention of t0-0: a bad segment" in caplog.text


def test_other_settings_and_another_topic_of_a_name_change_what_is_held(bench):
    create_topic(bench.state.controller, "t", 1)
    bench.write("t", 0)
    topic, first = bench.state.cluster.topics["t"], bench.replicas.partition("t", 0)
    assert bench.state.logs.compactor.next_deadline_ms() is None
    compacted = dataclasses.replace(topic, config=dataclasses.replace(topic.config, cleanup_policy="compact"))
    bench.replicas.update(compacted, 0)
    assert bench.replicas.partition("t", 0) is first and first.log.config is first.config is compacted.config
    assert bench.state.logs.compactor.next_deadline_ms() == bench.clock.now_ms() + 15_000
    bench.replicas.update(dataclasses.replace(topic, topic_id=b"another".ljust(16)), 0)
    other = bench.replicas.partition("t", 0)
    assert (other is first, other.log.end_offset, first.leader) == (False, 0, -1)
    moved = dataclasses.replace(topic.partitions[0], replicas=[2], isr=[2], leader=2, leader_epoch=1)
    bench.replicas.update(dataclasses.replace(topic, topic_id=b"another".ljust(16), partitions=[moved]), 0)
    assert bench.replicas.partitions == {} and bench.state.logs.logs == {}


def test_an_isr_that_nobody_can_be_asked_for_may_be_proposed_again(bench):
    create_topic(bench.state.controller, "t", 1)
    partition, bench.replicas.proposals = bench.replicas.partition("t", 0), None
    partition.pending_isr = (1, 2)
    bench.replicas.propose_isr(partition, (1, 2))
    assert partition.pending_isr is None


def test_what_lies_in_a_directory_that_failed_is_not_copied_any_more(bench, monkeypatch):
    create_topic(bench.state.controller, "t", 2)
    stopped, changed = [], []
    monkeypatch.setattr(bench.replicas, "fetchers", SimpleNamespace(unfollow=stopped.append, close=lambda: None))
    monkeypatch.setattr(bench.replicas, "note_change", lambda partition: changed.append(partition.key))
    bench.replicas.storage_failed([("t", 1), ("none", 0), ("t", 0)])
    assert stopped == changed == [("t", 1), ("t", 0)]


def test_new_settings_hold_in_all_partitions_of_their_topic(bench):
    for name in "tu":
        create_topic(bench.state.controller, name, 2)
    change = p.IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="7")
    wanted = p.IncrementalAlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    changes = bench.replicas.changes
    assert submit(bench.state.controller, p.IncrementalAlterConfigsRequest(resources=[wanted])).responses[0].error_code == 0
    found = {key: partition.log.config.retention_ms == 7 for key, partition in bench.replicas.partitions.items()}
    assert found == {("t", 0): True, ("t", 1): True, ("u", 0): False, ("u", 1): False}
    assert bench.replicas.changes == changes + 2


def test_logs_are_opened_again_and_one_that_cannot_be_is_offline(bench, monkeypatch, caplog):
    create_topic(bench.state.controller, "t", 3)
    for index in range(3):
        bench.write("t", index)
    logs, opened = bench.state.logs, []
    logs.close()
    logs.start({})
    open_log = logs.open

    def open_again(topic, topic_id, index, config, **options):
        opened.append((index, options))
        if index == 1:
            raise KafkaStorage("a bad disk")
        return open_log(topic, topic_id, index, config, **options)

    monkeypatch.setattr(logs, "open", open_again)
    bench.replicas.offline["u", 0] = None
    bench.replicas.reopen()
    assert opened == [(index, {"is_new": False}) for index in range(3)]
    assert bench.replicas.offline == {("t", 1): None} and "partition t-1 is offline: " in caplog.text
    assert {key: (each.high_watermark, each.log.end_offset) for key, each in bench.replicas.partitions.items()} == {
        ("t", 0): (3, 3),
        ("t", 2): (3, 3),
    }
    assert bench.write("t", 2) == 3
    bench.replicas.offline["x", 0] = SimpleNamespace(high_watermark=5)
    assert logs.high_watermarks() == {("x", 0): 5, ("t", 0): 3, ("t", 2): 6}
    del bench.replicas.offline["x", 0]
