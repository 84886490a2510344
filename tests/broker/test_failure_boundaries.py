"""One partition's, listener's or group's fault is logged and counted, and keeps nothing else from being done."""

import logging

import pytest
from controlling import create_topic, delete_topic
from test_handlers import Bench

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker import fault_handler
from kafkacore.broker.cluster import ImageListener
from kafkacore.broker.fault_handler import contained
from kafkacore.errors import Code


def test_what_is_contained_is_logged_with_its_traceback_and_counted(caplog):
    before = fault_handler.FAULTS["the unit %s-%d"]
    with contained("the unit %s-%d", "t", 3) as unit:
        raise ZeroDivisionError("a bug")
    assert unit.failed
    assert fault_handler.FAULTS["the unit %s-%d"] == before + 1
    assert "the unit t-3 failed; the others go on" in caplog.text
    assert 'raise ZeroDivisionError("a bug")' in caplog.text
    with contained("the unit %s-%d", "t", 4) as unit:
        pass
    assert not unit.failed
    with pytest.raises(KeyboardInterrupt), contained("the unit %s-%d", "t", 5):
        raise KeyboardInterrupt
    assert fault_handler.FAULTS["the unit %s-%d"] == before + 1


def test_a_listener_that_fails_keeps_no_other_from_hearing_of_a_change(caplog):
    bench = Bench()
    heard = []

    class Broken(ImageListener):
        def image_changed(self, delta):
            raise ZeroDivisionError("a bug")

    class Listener(ImageListener):
        def image_changed(self, delta):
            heard.append([topic.name for topic in delta.created_topics])

    bench.cluster.listeners.insert(0, Broken())
    bench.cluster.listeners.append(Listener())
    create_topic(bench.state.controller, "t", 3)
    assert heard == [["t"]]
    assert bench.produce().error_code == Code.NONE
    assert f"metadata up to offset {bench.cluster.next_offset}: listener Broken failed" in caplog.text


def test_a_partition_that_fails_keeps_no_other_from_being_opened_or_deleted(monkeypatch):
    bench = Bench()
    replicas, logs = bench.state.replicas, bench.state.logs
    opened, deleted = logs.open, logs.delete

    def open_log(topic, topic_id, index, config, **options):
        if index == 1:
            raise ZeroDivisionError("a bug")
        return opened(topic, topic_id, index, config, **options)

    def delete_log(topic, index):
        if index == 2:
            raise ZeroDivisionError("a bug")
        deleted(topic, index)

    monkeypatch.setattr(logs, "open", open_log)
    monkeypatch.setattr(logs, "delete", delete_log)
    create_topic(bench.state.controller, "t", 5)
    assert sorted(replicas.partitions) == [("t", index) for index in (0, 2, 3, 4)]
    delete_topic(bench.state.controller, "t")
    assert not replicas.partitions


def test_a_partition_whose_disk_refuses_for_a_moment_is_tried_again(monkeypatch, caplog):
    """No descriptor was left, say: the directory works, and the role of the partition has to be taken on all the same."""
    bench = Bench()
    refused = {("t", 1)}
    replicas = bench.state.replicas

    def watch(log, key):
        begin = log.begin_epoch

        def begin_epoch(epoch):
            if key in refused:
                raise errors.KafkaStorage("no descriptor is left")
            begin(epoch)

        monkeypatch.setattr(log, "begin_epoch", begin_epoch, raising=False)
        return log

    opened = bench.state.logs.open

    def open_log(topic, topic_id, index, config, **options):
        return watch(opened(topic, topic_id, index, config, **options), (topic, index))

    monkeypatch.setattr(bench.state.logs, "open", open_log)
    bench.topic("t", 3)
    codes = [bench.produce(partition=index).error_code for index in range(3)]
    assert codes == [Code.NONE, Code.KAFKA_STORAGE_ERROR, Code.NONE]
    for _ in range(3):
        bench.clock.advance(1_000)
        bench.state.timer.advance_clock()
    assert bench.produce(partition=1).error_code == Code.KAFKA_STORAGE_ERROR
    assert sum("partition t-1 is offline" in record.message for record in caplog.records if record.levelno == logging.ERROR) == 1
    refused.clear()
    bench.clock.advance(1_000)
    bench.state.timer.advance_clock()
    assert bench.produce(partition=1).error_code == Code.NONE
    assert not replicas.offline
    delete_topic(bench.state.controller, "t")
    assert not replicas.partitions


def test_a_role_that_the_disk_refused_leaves_the_high_watermark(monkeypatch):
    bench = Bench()
    topic = bench.topic()
    bench.produce()
    partition = bench.state.replicas.partition("t", 0)
    written, is_full = [], True

    def epochs_changed(storage, epochs):
        if is_full:
            raise errors.KafkaStorage("full")
        written.append(list(epochs))

    monkeypatch.setattr(type(partition.log.storage), "epochs_changed", epochs_changed)
    bench.elect(topic, epoch=5)
    assert bench.state.logs.high_watermarks()["t", 0] == 3
    assert bench.produce().error_code == Code.KAFKA_STORAGE_ERROR
    is_full = False
    bench.clock.advance(1_000)
    bench.state.timer.advance_clock()
    assert bench.produce().base_offset == 3
    assert written == [[(0, 0), (5, 3)]]
    assert bench.state.replicas.partition("t", 0).high_watermark == 6


def test_a_listener_that_fails_keeps_no_coordinator_from_leading():
    bench = Bench(offsets_topic_num_partitions=2)

    class Broken:
        def became_leader(self, topic, index, leader_epoch):
            raise ZeroDivisionError("a bug")

        def resigned(self, topic, index):
            raise ZeroDivisionError("a bug")

    bench.state.replicas.listeners.insert(0, Broken())
    bench.ask(p.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert [bench.state.groups.runtime.serves(index) for index in (0, 1)] == [True, True]
    bench.state.stopping()
    assert not bench.state.groups.runtime.held()
