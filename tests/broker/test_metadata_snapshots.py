"""Snapshots of the metadata log: when they are taken, what a controller and a broker do with them, what is done without them."""

import os
import random
import struct
from pathlib import Path

import pytest
from controlling import topic_request
from hypothesis import given, settings
from hypothesis import strategies as st
from test_controller import Stage
from test_remote_controller import CONFIG, RemoteStage, as_broker, create_through

from kafkacore import protocol as p
from kafkacore.broker.cluster import ClusterImage, ImageListener
from kafkacore.broker.controller import ControllerHost, remote
from kafkacore.broker.controller.log import LEADER_EPOCH, METADATA_TOPIC
from kafkacore.broker.controller.snapshots import SnapshotId, Snapshots, decode_snapshot, encode_snapshot
from kafkacore.broker.image_jump import jump
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, CorruptDataError, KafkaError, KafkaStorage, UsageError
from kafkacore.protocol.metadata_log import NoOpRecord, encode_record
from kafkacore.records import BatchBuilder
from tests.kit.inside import log_of
from tests.kit.rows import each_row

SMALL = {"metadata_log_max_record_bytes_between_snapshots": 2000}


def facts(image):
    return list(image.records())


def create_many(stage, count, prefix="t"):
    for nth in range(count):
        assert stage.create(f"{prefix}{nth}", 2, 3, configs={"retention.ms": str(nth)}).error_code == 0


def reopened(stage, directory):
    """What another controller makes of the directory, but for the brokers, who are all dead to it, and the leaders."""
    stage.host.close()
    return ControllerHost(stage.config, directory=directory, clock=ManualClock())


def file_names(directory, suffix):
    return sorted(path.name for path in (directory / f"{METADATA_TOPIC}-0").glob("*" + suffix))


def topic_facts(host):
    return host.read(
        lambda image: [(each.name, each.config.overrides, [one.replicas for one in each.partitions]) for each in image.topics.values()]
    )


def test_a_snapshot_comes_after_so_many_bytes_and_is_what_a_controller_starts_from(tmp_path):
    stage = Stage(directory=tmp_path, **SMALL)
    assert file_names(tmp_path, ".checkpoint") == []
    create_many(stage, 30)
    found = file_names(tmp_path, ".checkpoint")
    log = log_of(stage.host)
    assert len(found) >= 3 and found == [each.file_name for each in log.snapshots.ids]
    assert [each.end_offset for each in log.snapshots.ids] == [segment.base_offset for segment in log.log.segments[1:]]
    newest = log.snapshots.ids[-1]
    assert newest.file_name == f"{newest.end_offset:020d}-0000000001.checkpoint"
    before = topic_facts(stage.host)
    stage.host.close()
    for segment in log.log.segments[:-1]:  # what the snapshot stands for is not looked at
        Path(segment.path(".log")).write_bytes(b"")
    again = ControllerHost(stage.config, directory=tmp_path, clock=ManualClock())
    assert topic_facts(again) == before and again.read(lambda image: sorted(image.brokers)) == [1, 2, 3]
    again.close()


def test_a_snapshot_comes_with_the_first_change_after_so_long(tmp_path):
    stage = Stage(directory=tmp_path, metadata_log_max_snapshot_interval_ms=1000)
    stage.create("a", 1, 1)
    stage.clock.advance(999)
    stage.create("b", 1, 1)
    assert file_names(tmp_path, ".checkpoint") == []
    stage.clock.advance(1)
    stage.create("c", 1, 1)
    (only,) = log_of(stage.host).snapshots.ids
    assert only.end_offset == stage.host.end_offset()
    stage.clock.advance(999)
    stage.create("d", 1, 1)
    assert log_of(stage.host).snapshots.ids == [only]
    stage.host.close()
    never = Stage(directory=tmp_path / "never", metadata_log_max_snapshot_interval_ms=0)
    never.clock.advance(10**9)
    never.create("a", 1, 1)
    assert file_names(tmp_path / "never", ".checkpoint") == []
    never.host.close()


def test_retention_drops_old_snapshots_and_the_log_below_the_next(tmp_path):
    stage = Stage(directory=tmp_path, metadata_max_retention_bytes=0, **SMALL)
    create_many(stage, 40)
    log = log_of(stage.host)
    (only,) = log.snapshots.ids
    assert (log.log.start_offset, len(log.log.segments)) == (only.end_offset, 1)
    assert len(file_names(tmp_path, ".log")) == len(file_names(tmp_path, ".checkpoint")) == 1
    assert file_names(tmp_path, ".deleted") == []
    before = topic_facts(stage.host)
    again = reopened(stage, tmp_path)
    assert topic_facts(again) == before
    (only,) = log_of(again).snapshots.ids
    log_of(again).snapshots.path(only).write_bytes(b"")
    again.close()
    for _ in range(2):  # the directory is free again
        with pytest.raises(CorruptDataError, match=f"begins at offset {only.end_offset}"):
            ControllerHost(stage.config, directory=tmp_path)


def test_retention_by_age(tmp_path):
    stage = Stage(directory=tmp_path, metadata_max_retention_ms=5000, **SMALL)
    create_many(stage, 20)
    many = list(log_of(stage.host).snapshots.ids)
    assert len(many) > 2
    stage.host.close()
    again = Stage(brokers=0, directory=tmp_path, metadata_max_retention_ms=5000, **SMALL)
    again.clock.advance(5001)
    for node in (1, 2, 3):
        again.start(node)
    create_many(again, 20, "u")
    assert not set(many[:-1]) & set(log_of(again.host).snapshots.ids)  # their age is in their headers
    again.host.close()


@each_row("harm", ["torn", "changed", "empty", "foreign", "all"])
def test_a_snapshot_that_is_not_whole_gives_way_to_the_older_one(tmp_path_factory, harm, caplog):
    """Without any the log is replayed, as long as it is there."""
    directory = tmp_path_factory.mktemp(harm)
    stage = Stage(directory=directory, **SMALL)
    create_many(stage, 12)
    before, ids, snapshots = topic_facts(stage.host), log_of(stage.host).snapshots.ids, log_of(stage.host).snapshots
    for each in ids if harm == "all" else ids[-1:]:
        path = snapshots.path(each)
        whole = path.read_bytes()
        middle = len(whole) // 2
        changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes({"torn": whole[:middle], "changed": changed, "empty": b""}.get(harm, b"\xff" * 400))
    again = reopened(stage, directory)
    assert topic_facts(again) == before
    assert str(path) in caplog.text
    assert harm == "all" or log_of(again).snapshots.ids[: len(ids) - 1] == ids[:-1] != []
    again.close()


def test_what_a_crash_leaves(tmp_path):
    stage = Stage(directory=tmp_path, **SMALL)
    create_many(stage, 20)
    before = topic_facts(stage.host)
    snapshots = log_of(stage.host).snapshots
    stage.host.close()
    part = Path(f"{snapshots.path(SnapshotId(10**6, 1))}.part")
    part.write_bytes(b"begun")
    for suffix in (".log", ".index", ".timeindex"):  # the log was not synced, they were
        for name in file_names(tmp_path, suffix):
            (tmp_path / f"{METADATA_TOPIC}-0" / name).unlink()
    again = ControllerHost(stage.config, directory=tmp_path, clock=ManualClock())
    assert not part.exists()
    found = topic_facts(again)
    assert found == before[: len(found)] and len(found) >= 15
    assert log_of(again).log.start_offset == snapshots.ids[-1].end_offset
    again.close()


def test_a_disk_that_refuses_a_snapshot_costs_no_decision(tmp_path, monkeypatch, caplog):
    stage = Stage(directory=tmp_path, **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Snapshots, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        create_many(stage, 20)
    assert "No space left" in caplog.text and file_names(tmp_path, ".checkpoint") == []
    create_many(stage, 20, "u")
    assert file_names(tmp_path, ".checkpoint")
    before = topic_facts(stage.host)
    again = reopened(stage, tmp_path)
    assert topic_facts(again) == before
    again.close()


# ---- the file


def some_records():
    stage = Stage()
    create_many(stage, 8)
    stage.ask(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name="t3")]))
    return facts(stage.image)


def test_a_snapshot_holds_what_was_put_in_over_several_batches(monkeypatch):
    monkeypatch.setattr("kafkacore.broker.controller.snapshots._BATCH_BYTES", 500)
    records = some_records()
    batches = [bytes(each) for each in encode_snapshot(records, 7, 1234)]
    assert len(batches) > 4
    assert [struct.unpack(">q", each[:8])[0] for each in batches][:2] == [0, 1]
    assert {struct.unpack(">i", each[12:16])[0] for each in batches} == {7}
    assert decode_snapshot(b"".join(batches)) == records
    assert decode_snapshot(b"".join(bytes(each) for each in encode_snapshot([], 1, 0))) == []


WHOLE = b"".join(bytes(each) for each in encode_snapshot(some_records(), 1, 5))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_part_of_a_snapshot_and_no_changed_one_is_taken_for_whole(data):
    cut = data.draw(st.integers(0, len(WHOLE) - 1))
    with pytest.raises(KafkaError):
        decode_snapshot(WHOLE[:cut])
    with pytest.raises(KafkaError):
        decode_snapshot(WHOLE + WHOLE[: data.draw(st.integers(1, 200))])
    # a flipped bit in what the checksums cover: behind length, epoch, magic and the sum itself of the first batch
    at = data.draw(st.integers(21, struct.unpack(">i", WHOLE[8:12])[0] + 11))
    with pytest.raises(KafkaError):
        decode_snapshot(WHOLE[:at] + bytes([WHOLE[at] ^ (1 << data.draw(st.integers(0, 7)))]) + WHOLE[at + 1 :])


# ---- brokers that are too far behind


class Heard(ImageListener):
    def __init__(self):
        self.deltas = []

    def image_changed(self, delta):
        self.deltas.append(delta)


def image_of(records, next_offset):
    image = ClusterImage(BrokerConfig(), "cluster")
    image.apply(records, next_offset)
    return image


@each_row("seed", range(5))
def test_an_image_that_jumps_is_the_other_one_and_tells_what_changed(seed):
    """Against a listener's own book: what it knew, with what it heard, is what there is."""
    stage = Stage(default_replication_factor=3)
    rng = random.Random(seed)

    def act():
        names_now = list(stage.image.topics)
        what = rng.randrange(6)
        if what < 2 or not names_now:
            stage.create(f"t{rng.randrange(8)}", rng.randint(1, 3), configs={"retention.ms": str(rng.randrange(9))})
        elif what == 2:
            stage.ask(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=rng.choice(names_now))]))
        elif what == 3:
            stage.lose(rng.randint(1, 3))
        elif what == 4:
            for node in {1, 2, 3} - stage.image.nodes.keys():
                stage.start(node)
        else:
            wanted = p.CreatePartitionsTopic(name=rng.choice(names_now), count=rng.randint(2, 5), assignments=None)
            stage.ask(p.CreatePartitionsRequest(topics=[wanted], timeout_ms=0))

    for _ in range(12):
        act()
    image = image_of(facts(stage.image), stage.image.next_offset)
    heard = Heard()
    image.listeners.append(heard)
    book = {(each.topic_id, n): part for each in image.topics.values() for n, part in enumerate(each.partitions)}
    brokers = dict(image.brokers)
    for _ in range(12):
        act()
    jump(image, image_of(facts(stage.image), stage.image.next_offset))
    assert (set(map(str, facts(image))), image.next_offset) == (set(map(str, facts(stage.image))), stage.image.next_offset)
    assert image.nodes == stage.image.nodes
    assert (image.led, image.in_sync) == (stage.image.led, stage.image.in_sync)
    assert {name: each.config for name, each in image.topics.items()} == {
        name: image_of(facts(stage.image), 0).topics[name].config for name in stage.image.topics
    }
    (delta,) = heard.deltas
    for topic in delta.deleted_topics:
        book = {key: part for key, part in book.items() if key[0] != topic.topic_id}
    for change in delta.partitions:
        assert book.get((change.topic.topic_id, change.index)) == change.before
        book[change.topic.topic_id, change.index] = change.now
    assert book == {(each.topic_id, n): part for each in image.topics.values() for n, part in enumerate(each.partitions)}
    assert delta.brokers == {node for node in brokers | image.brokers if brokers.get(node) != image.brokers.get(node)}


def test_a_broker_that_is_too_far_behind_reads_the_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "MAX_FETCH_BYTES", 700)
    config = CONFIG.replace(metadata_max_retention_bytes=0, **SMALL)
    with RemoteStage(tmp_path, config=config) as stage:
        create_through(stage, "gone")
        stage.host.submit(topic_request("kept", replicas=2), 7)
        stage.brokers[2].stop()
        stage.host.submit(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name="gone")]), 6)
        for nth in range(30):
            stage.host.submit(topic_request(f"t{nth}"), 7)
        behind = stage.brokers[2].cluster.next_offset
        assert 0 < behind < log_of(stage.host).log.start_offset
        stage.brokers[2].start()
        stage.add(3)  # has read nothing yet
        stage.wait(lambda image: 2 in image.nodes and sorted(image.partition("kept", 0).isr) == [1, 2])
        for node in (2, 3):
            broker = stage.brokers[node]
            theirs = broker.call(lambda broker=broker: set(map(str, facts(broker.cluster))))
            assert theirs == stage.host.read(lambda image: set(map(str, facts(image))))
        held = stage.brokers[2].call(lambda: set(stage.brokers[2].state.replicas.partitions))
        assert ("gone", 0) not in held and ("kept", 0) in held
        names = os.listdir(tmp_path / "broker-2")
        assert "gone-0" not in names and any(name.startswith("gone-0.") and name.endswith("-delete") for name in names)


def test_a_snapshot_is_fetched_by_its_name_and_position(tmp_path):
    with RemoteStage(tmp_path, brokers=1, config=CONFIG.replace(default_replication_factor=1, **SMALL)) as stage:
        for nth in range(20):
            stage.host.submit(topic_request(f"t{nth}"), 7)
        snapshots = log_of(stage.host).snapshots
        newest = snapshots.ids[-1]
        size = os.stat(snapshots.path(newest)).st_size

        def ask(name=METADATA_TOPIC, partition=0, end_offset=newest.end_offset, epoch=LEADER_EPOCH, position=0, max_bytes=100):
            wanted = p.PartitionSnapshotWanted(
                partition=partition,
                current_leader_epoch=LEADER_EPOCH,
                snapshot_id=p.FetchedSnapshotId(end_offset=end_offset, epoch=epoch),
                position=position,
            )
            request = p.FetchSnapshotRequest(max_bytes=max_bytes, topics=[p.TopicSnapshotWanted(name=name, partitions=[wanted])])
            return wire.ask(request, 1).topics[0].partitions[0]

        with as_broker(stage) as wire:
            answer = ask(position=7)
            assert (answer.error_code, answer.size, answer.position, len(answer.unaligned_records)) == (0, size, 7, 100)
            assert bytes(answer.unaligned_records) == snapshots.path(newest).read_bytes()[7:107]
            assert len(ask(max_bytes=-5).unaligned_records) == 0
            assert ask(name="t").error_code == ask(partition=1).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
            assert ask(end_offset=1).error_code == ask(epoch=9).error_code == Code.SNAPSHOT_NOT_FOUND
            for position in (-1, size, 2**62):
                assert ask(position=position).error_code == Code.POSITION_OUT_OF_RANGE


def test_a_snapshot_begins_with_its_one_header():
    header, footer = (bytes(each) for each in encode_snapshot([], 1, 0))
    assert decode_snapshot(header + footer) == []
    again = bytearray(header)
    again[7] = 1
    plain = BatchBuilder()
    assert plain.append(encode_record(NoOpRecord()))
    for wrong in (header + again, bytes(plain.build())):
        with pytest.raises(CorruptDataError, match="begins with its header, and has one"):
            decode_snapshot(bytes(wrong))
    for wrong in (footer, header, header + footer + footer):
        with pytest.raises(CorruptDataError):
            decode_snapshot(wrong)


def test_a_snapshot_that_could_not_be_written_leaves_no_part(tmp_path, monkeypatch):
    snapshots = Snapshots(tmp_path)
    assert snapshots.write(SnapshotId(5, 1), [], 1_234) == snapshots.size_bytes() == os.stat(snapshots.path(SnapshotId(5, 1))).st_size

    def refuse(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(OSError, match="No space"):
                snapshots.write(SnapshotId(9, 1), [], 5_678)
    assert os.listdir(tmp_path) == [SnapshotId(5, 1).file_name] == [f"{5:020}-{1:010}.checkpoint"]
    snapshots.write(SnapshotId(3, 2), [], 0)
    assert snapshots.ids == Snapshots(tmp_path).ids == [(3, 2), (5, 1)]
    assert [Snapshots(tmp_path).written_ms(each) for each in snapshots.ids] == [0, 1_234]
    size = os.stat(snapshots.path(SnapshotId(5, 1))).st_size
    whole = snapshots.path(SnapshotId(5, 1)).read_bytes()
    for position, max_bytes, expected in (
        (0, 9_999, whole),
        (7, 5, whole[7:12]),
        (size - 1, 5, whole[-1:]),
        (size, 5, b""),
        (-1, 5, b""),
        (0, -1, b""),
    ):
        assert snapshots.read(SnapshotId(5, 1), position, max_bytes) == (expected, size)
    snapshots.delete(SnapshotId(5, 1))
    assert (os.listdir(tmp_path), snapshots.ids) == ([SnapshotId(3, 2).file_name], [(3, 2)])


def test_what_cannot_be_read_of_a_controllers_log(tmp_path):
    with pytest.raises(UsageError, match="keeps no log"):
        ControllerHost(CONFIG).read_log(0, 1)
    in_memory = ControllerHost(CONFIG, has_log=True)
    assert not log_of(in_memory).snapshot_is_due()
    with pytest.raises(UsageError, match="no snapshots"):
        log_of(in_memory).take_snapshot([])
    stage = Stage(directory=tmp_path, **SMALL)
    create_many(stage, 20)
    (newest,) = log_of(stage.host).snapshots.ids[-1:]
    log_of(stage.host).snapshots.path(newest).unlink()
    with pytest.raises(KafkaStorage, match="cannot be read"):
        stage.host.read_snapshot(newest, 0, 1)
    stage.host.close()
