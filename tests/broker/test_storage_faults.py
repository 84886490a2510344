"""Disks that fail under a broker, and files that lost what was in them: who suffers, and what must not be believed any more."""

import contextlib
import errno
import io
import os
import shutil
import socket
from pathlib import Path

import pytest
from logs import MAX, Disk, append, content, full, write_by

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.broker.log import read_one_batch, recovery
from kafkacore.broker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    RECOVERY_POINTS,
    read_epochs,
    read_offsets,
    write_epochs,
    write_offsets,
)
from kafkacore.broker.open_servers import open_servers
from kafkacore.broker.producers import AbortedTxn
from kafkacore.broker.server import Broker
from kafkacore.config import BrokerConfig
from kafkacore.records import control_batch, read_batches
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import T0, batch
from tests.kit.inside import brokers_of
from tests.kit.rows import each_row
from tests.kit.waiting import until

HERE = TopicPartition("t", 0)


@pytest.fixture
def store(tmp_path):
    made = Disk(tmp_path)
    yield made
    made.manager.close()


def marker(commit=True):
    return control_batch(int(commit), producer_id=1, producer_epoch=0, timestamp_ms=T0)


def ids(sequence):
    return {"producer_id": 1, "epoch": 0, "sequence": sequence}


# ---- errors of the disk


def unreadable(log):
    """The disk gives nothing of a segment back that was opened at the start."""
    segment = log.segments[0]
    segment.close()
    segment._index = segment._largest = segment.rolling_ms = None
    for kind in (".log", ".index", ".timeindex"):
        segment.path(kind).unlink()


def retention(store, log):
    log.delete_old_segments(1, -1, T0 + 1_000_000)


def compaction(store, log):
    store.advance(store.config.log_cleaner_backoff_ms)


READS = [
    retention,
    compaction,
    lambda store, log: log.bytes_between(0, 2),
    lambda store, log: log.offset_after(0, 10),
    lambda store, log: log.offset_for_timestamp(T0, 2),
    lambda store, log: log.max_timestamp(2),
    lambda store, log: log.truncate_to(1),
]


@pytest.mark.parametrize("reads", READS)
def test_a_segment_that_cannot_be_read_takes_its_directory_offline(store, reads):
    log = store.log(segment_bytes=200, cleanup_policy="compact", min_compaction_lag_ms=1)
    for _ in range(4):
        append(log)
    unreadable(log)
    with pytest.raises(errors.KafkaStorage, match="No such file") if reads is not compaction else contextlib.nullcontext():
        reads(store, log)
    assert store.manager.is_offline
    for each in READS[2:]:
        with pytest.raises(errors.KafkaStorage, match="offline"):
            each(store, log)
    with pytest.raises(errors.KafkaStorage, match="all log directories are offline"):
        store.log("new")


def test_a_follower_whose_disk_fails_says_so(store, monkeypatch):
    log, data = store.log(), bytes(batch(is_transactional=True, **ids(0)))
    with monkeypatch.context() as patched:
        write_by(patched, full)
        with pytest.raises(errors.KafkaStorage, match="No space left"):
            log.append_replicated(data)
    assert (store.manager.is_offline, log.end_offset) == (True, 0)
    store.restart()
    log = store.log()
    log.append_replicated(data)
    (store.path / "t-0" / f"{0:020}.txnindex").mkdir()
    end = bytearray(marker(commit=False))
    end[:8] = (3).to_bytes(8, "big")
    with pytest.raises(errors.KafkaStorage, match="Is a directory"):
        log.append_replicated(bytes(end))
    assert store.manager.is_offline


def test_before_the_recovery_point_moves_all_that_recovery_believes_is_on_the_disk(store, monkeypatch):
    log = store.log(segment_bytes=300)
    log.append(read_one_batch(batch(is_transactional=True, **ids(0)), MAX), 0)
    log.append(next(iter(read_batches(marker(commit=False)))), 0)
    synced, fsync = set(), os.fsync

    def record(fd):
        synced.add(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    append(log)
    append(log)
    assert log.recovery_point == log.segments[-1].base_offset > 0
    assert {f"{0:020}.log", f"{0:020}.txnindex", "leader-epoch-checkpoint", "t-0"} <= synced


# ---- files that are not what they were


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-80] + bytes(80)])
def test_a_last_segment_that_does_not_end_with_a_batch_is_read_whatever_the_shutdown_was(store, damage):
    log = store.log()
    append(log, **ids(0))
    append(log, **ids(3))
    path = log.segments[0].path(".log")
    store.manager.close()
    path.write_bytes(damage(path.read_bytes()))
    store.start()
    log = store.log()
    append(log, [b"d"], **ids(3))
    assert content(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_epochs_are_learned_from_the_batches_where_their_file_is_lost(store):
    log = store.log()
    append(log)
    append(log, epoch=3)
    store.manager.close()
    (store.path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"")
    store.start()
    log = store.log()
    assert log.epochs == [(0, 0), (3, 3)]
    assert log.end_offset_for_epoch(1) == (0, 3)


def test_a_damaged_log_takes_only_its_partition_offline(store):
    log = store.log(segment_bytes=200)
    append(log, **ids(0))
    append(log, **ids(3))
    append(log, **ids(6))
    path = log.segments[0].path(".log")
    store.manager.close()
    for name in os.listdir(store.path / "t-0"):
        if name.endswith(".snapshot"):  # so that the first segment is needed
            (store.path / "t-0" / name).unlink()
    path.write_bytes(bytes(61))
    store.start()
    with pytest.raises(errors.KafkaStorage, match="no batch at position 0") as refused:
        store.log()
    assert (refused.value.topic, refused.value.partition) == ("t", 0)
    assert not store.manager.is_offline and append(store.log(index=1)) == 0


def test_of_what_a_leader_sends_the_good_batches_before_a_bad_one_are_kept(store):
    second = bytearray(batch())
    second[7], second[-1] = 3, second[-1] ^ 1
    log = store.log()
    with pytest.raises(errors.CorruptDataError, match="CRC"):
        log.append_replicated(bytes(batch()) + second)
    assert log.end_offset == 3


def test_a_crash_in_the_middle_of_everything_leaves_the_files_that_belong_together(store):
    log = store.log(segment_bytes=300)
    for nth in range(5):
        append(log, [b"%d" % nth * 200])
    store.die()
    where = store.path / "t-0"

    def file(base_offset, suffix):
        return where / f"{base_offset:020}{suffix}"

    both = file(1, ".log").read_bytes() + file(2, ".log").read_bytes()
    file(1, ".log.swap").write_bytes(both)  # takes the place of two
    file(1, ".index.swap").write_bytes(b"")
    file(1, ".timeindex.swap").write_bytes(b"")
    file(1, ".txnindex.swap").write_bytes(AbortedTxn(7, 1, 2, 3).encode())
    file(2, ".timeindex.swap").write_bytes(b"")  # of a swap that was finished
    for base_offset, suffix in (
        (3, ".log.swap"),
        (3, ".log.cleaned"),
        (4, ".log.deleted"),
        (0, ".index.deleted"),
        (9, ".index"),
        (9, ".txnindex"),
    ):
        file(base_offset, suffix).write_bytes(b"x")
    (store.path / CLEAN_SHUTDOWN).touch()
    store.start()
    log = store.log(segment_bytes=300)
    assert content(log) == [(nth, b"%d" % nth * 200) for nth in range(5)]
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [(0, 270), (1, 540), (3, 270), (4, 270)]
    assert log.aborted_transactions(0, 5) == [(7, 1, 2, 3)]
    names = {name for name in os.listdir(where) if name.startswith("0") and ".snapshot" not in name}
    expected = {file(base, suffix).name for base in (0, 1, 3, 4) for suffix in (".log", ".index", ".timeindex")}
    assert names == {*expected, file(1, ".txnindex").name}


def test_transactions_and_leader_epochs_are_learned_again_after_a_crash(store):
    log = store.log()
    for nth in range(3):
        log.append(read_one_batch(batch(is_transactional=True, **ids(3 * nth)), MAX), nth)
        log.append(next(iter(read_batches(marker(commit=nth == 1)))), nth)
    wanted = [(1, 0, 3), (1, 8, 11)]
    assert [each[:3] for each in log.aborted_transactions(0, 12)] == wanted
    path = store.path / "t-0" / f"{0:020}.txnindex"
    for damage in (lambda: path.write_bytes(b"broken"), path.unlink, lambda: path.write_bytes(path.read_bytes() * 2)):
        store.die()
        damage()
        write_epochs(store.path / "t-0" / LEADER_EPOCHS, [(0, 0)])  # the later ones were not on the disk
        store.start()
        log = store.log()
        assert [each[:3] for each in log.aborted_transactions(0, 12)] == wanted and log.producers.entries[1].last_sequence == 8
        assert log.epochs == [(0, 0), (1, 4), (2, 8)]
    store.restart()
    path.write_bytes(b"broken")  # after a clean shutdown, too
    log = store.log()
    assert [each[:3] for each in log.aborted_transactions(0, 12)] == wanted and log.epochs == [(0, 0), (1, 4), (2, 8)]
    log.truncate_to(8)
    assert [each[:3] for each in log.aborted_transactions(0, 12)] == wanted[:1]
    store.restart()
    assert [each[:3] for each in store.log().aborted_transactions(0, 12)] == wanted[:1]
    store.manager.close()
    (store.path / "t-0" / f"{0:020}.log").write_bytes(b"")
    store.start()
    assert (store.log().epochs, store.log().end_offset) == ([(0, 0)], 0)


@each_row(
    ("recovery_point", "clean", "without_index", "read"),
    [
        (0, False, None, [0, 1, 2, 3]),
        (2, False, None, [2, 3]),
        (3, False, None, [3]),
        (4, False, None, [3]),
        (0, True, None, []),
        (4, True, 1, [1, 2, 3]),
        (4, False, 2, [2, 3]),
    ],
)
def test_which_segments_are_read_at_a_start(tmp_path_factory, recovery_point, clean, without_index, read):
    store = Disk(tmp_path_factory.mktemp("logs"))
    log, found = store.log(segment_bytes=300), []
    for _ in range(4):  # each in a segment of its own
        append(log, [b"v" * 200])
    store.manager.close()
    write_offsets(store.path / RECOVERY_POINTS, {("t", 0): recovery_point})
    if not clean:
        (store.path / CLEAN_SHUTDOWN).unlink()
    if without_index is not None:
        (store.path / "t-0" / f"{without_index:020}.index").unlink()
    check = recovery.check_batches
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recovery, "check_batches", lambda segment, take: found.append(segment.base_offset) or check(segment, take))
        store.start()
        log = store.log(segment_bytes=300)
    assert (found, log.end_offset) == (read, 4)
    assert log.recovery_point == (4 if clean else recovery_point)
    assert [segment.is_last for segment in log.segments] == [False, False, False, True]
    store.manager.close()


@each_row(("second", "end"), [(3, 6), (2, 3), (2**31 - 3, 2**31), (2**31 - 2, 3)])
def test_a_batch_whose_offset_cannot_be_ends_the_log(tmp_path_factory, second, end):
    store = Disk(tmp_path_factory.mktemp("logs"))
    append(store.log())
    path = store.log().segments[0].path(".log")
    store.die()
    data = bytearray(batch())
    data[:8] = second.to_bytes(8, "big")
    path.write_bytes(path.read_bytes() + data)
    store.start()
    assert store.log().end_offset == end
    store.die()


def test_a_log_that_ends_before_its_start_begins_there_again(store):
    log = store.log()
    append(log)
    append(log)
    path = log.segments[0].path(".log")
    log.advance_start(4)
    store.manager.close()
    path.write_bytes(path.read_bytes()[:100])  # shorter than its first batch
    store.start()
    log = store.log()
    assert (log.start_offset, log.end_offset, [segment.base_offset for segment in log.segments]) == (4, 4, [4])


def test_a_torn_batch_takes_its_index_entries_and_its_time_along(store):
    log = store.log(index_interval_bytes=400)
    for nth in range(11):
        append(log, [b"v" * 130], timestamps_ms=[T0 + nth])  # 200 bytes
    path = log.segments[0].path(".log")
    store.manager.close()
    path.write_bytes(path.read_bytes()[:-1])
    for offset in (9, 10):
        shutil.copy(store.path / "t-0" / f"{11:020}.snapshot", store.path / "t-0" / f"{offset:020}.snapshot")
    store.start()
    segment = store.log(index_interval_bytes=400).segments[0]
    assert (segment.index.offsets.tolist(), segment.largest_timestamp()) == ([3, 6, 9], (T0 + 9, 9))
    assert [path.name for path in (store.path / "t-0").glob("*.snapshot")] == [f"{10:020}.snapshot"]
    store.manager.close()
    (store.path / "t-0" / f"{10:020}.snapshot").write_bytes(b"broken")
    store.start()
    assert store.log().end_offset == 10
    assert not list((store.path / "t-0").glob("*.snapshot"))


def test_a_log_is_not_made_anew_while_it_may_lie_in_a_directory_that_is_offline(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    with Broker(BrokerConfig(auto_create_topics_enable=True, num_partitions=2), log_dirs=paths) as broker:
        with KafkaProducer(bootstrap_servers=broker.address) as producer:
            for index in (0, 1):
                producer.send("t", b"kept", partition=index).result(60)
        broker.stop()
        (gone,) = (path for path in paths if (path / "t-1").exists())
        gone.rename(tmp_path / "away")
        gone.write_text("no directory")
        broker.start()
        states = broker.state.replicas
        assert broker.call(lambda: states.partition("t", 0).log.end_offset) == 1
        with pytest.raises(errors.KafkaStorage):
            broker.call(lambda: states.partition("t", 1))
        broker.stop()
        gone.unlink()
        (tmp_path / "away").rename(gone)
        broker.start()
        assert broker.call(lambda: states.partition("t", 1).log.end_offset) == 1


def test_committed_transactions_are_stable_after_a_restart(tmp_path: Path):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        broker = brokers_of(cluster)[1]

        def write():
            replicas = broker.state.replicas
            guard = replicas.partition("t", 0).producers.start_verification(1, 0, 0, T0, False)
            replicas.append_internal("t", 0, batch(is_transactional=True, **ids(0)), lambda outcome: None, None, verification=guard)
            replicas.append_internal("t", 0, marker(), lambda outcome: None, None)

        broker.call(write)
        broker.stop(clean=False)  # no snapshot: the log is replayed
        broker.start()
        assert broker.call(lambda: broker.state.replicas.partition("t", 0).last_stable_offset) == 4


def test_a_damaged_segment_is_truncated_nowhere(store):
    log = store.log(segment_bytes=200)
    for _ in range(4):
        append(log)
    store.restart()
    log = store.log(segment_bytes=200)
    with log.segments[0].path(".log").open("r+b") as file:
        file.write(bytes(61))
    with pytest.raises(errors.CorruptDataError):
        log.truncate_to(1)
    assert content(log, offset=9) == [(9, b"a"), (10, b"b"), (11, b"c")]


# ---- logs that come and go


def test_what_is_known_of_a_partition_survives_a_start_that_never_opens_it(store):
    log = store.log(segment_bytes=200)
    for _ in range(4):
        append(log)
    log.advance_start(4)
    store.restart()
    store.log(index=1)  # the image of the cluster has not come further
    store.restart()
    log = store.log(segment_bytes=200)
    assert (log.start_offset, log.end_offset) == (4, 12)
    assert store.manager.high_watermark("t", 0) == 12


def test_a_clean_stop_does_not_vouch_for_partitions_that_were_not_opened_after_a_crash(store):
    append(store.log())
    store.restart()  # now there are index files
    append(store.log())
    path = store.path / "t-0" / f"{0:020}.log"
    store.crash()
    path.write_bytes(path.read_bytes()[:-1] + b"?")  # power went: the last batch has its length, and not its bytes
    store.restart()
    assert content(store.log()) == [(0, b"a"), (1, b"b"), (2, b"c")]


# ---- no directory left


def test_a_broker_that_finds_its_only_disk_broken_says_so_once_and_does_not_start(tmp_path, caplog):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=3)
    logs = sorted((tmp_path / "broker-1").glob("t-*/*.log"))
    for each in logs:
        each.unlink()
        each.mkdir()
    caplog.set_level("WARNING", "kafkacore")
    with pytest.raises(errors.KafkaStorage, match=r"no log directory can be used: .*broker-1: .*Is a directory.*\[broker 1\]"):
        EmbeddedCluster(data_dir=tmp_path).start()
    (reported,) = (record.getMessage() for record in caplog.records)
    assert reported.startswith(f"log directory {tmp_path / 'broker-1'} is offline: ")
    caplog.clear()
    for each in logs:
        each.rmdir()
    with EmbeddedCluster(data_dir=tmp_path) as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"mended").result(60)
    assert not caplog.records


def test_a_broker_that_loses_its_only_disk_while_it_runs_stops(tmp_path, monkeypatch, caplog):
    caplog.set_level("WARNING", "kafkacore.broker")
    halted = []
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.on_halt = halted.append
        cluster.create_topic("t")
        host, port = cluster.bootstrap_servers.split(":")
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "retries": 0, "enable_idempotence": False}
        with KafkaProducer(settings) as producer, monkeypatch.context() as patched:
            producer.send("t", b"kept").result(60)
            write_by(patched, full)
            with pytest.raises(errors.KafkaError):
                producer.send("t", b"lost").result(60)
            until(lambda: not brokers_of(cluster)[1].running)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), 60)
        assert halted == [1]
    reported = [record.getMessage() for record in caplog.records if record.name != "kafkacore.broker.controller.host"]
    with EmbeddedCluster(data_dir=tmp_path) as cluster:  # the disk is mended
        assert [record.value for record in cluster.records("t")] == [b"kept"]
    assert "broker-1 is offline" in reported[0]
    assert reported[1].startswith("broker 1 stops: all its log directories have failed: ") and "broker-1: " in reported[1]


def test_a_broker_that_loses_its_only_disk_while_it_runs_says_what_it_still_does(tmp_path, monkeypatch, caplog):
    caplog.set_level("WARNING", "kafkacore.broker")
    with EmbeddedCluster(data_dir=tmp_path, config={"log_dirs_failure_halts": False}) as cluster:
        cluster.create_topic("t", partitions=2)
        broker, servers = brokers_of(cluster)[1], cluster.bootstrap_servers
        with (
            KafkaProducer(bootstrap_servers=servers, retries=0, enable_idempotence=False) as producer,
            KafkaConsumer(bootstrap_servers=servers, fetch_min_bytes=100_000, fetch_max_wait_ms=20_000) as consumer,
        ):
            producer.send("t", b"some", partition=0).result(60)
            consumer.assign([HERE])
            consumer.seek(HERE, 0)
            while not broker.statistics()["waiting_fetches"]:
                consumer.poll(0.01)
            with monkeypatch.context() as patched:
                write_by(patched, full)
                for index in range(2):
                    with pytest.raises(errors.KafkaStorage):
                        producer.send("t", b"lost", partition=index).result(60)
            seen = broker.statistics()
            assert seen["connections"] and not seen["waiting_fetches"]
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == 2 and "broker-1 is offline" in reported[0]
    assert reported[1] == "broker 1 has no log directory left and takes no records until it starts again"


def test_a_broker_that_could_not_be_made_can_be_stopped(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(errors.KafkaStorage, match=r"no log directory can be used: .*taken: .*File exists"):
        Broker(log_dirs=[tmp_path / "taken"])
    halves = [server for server in open_servers if isinstance(server, Broker) and server.state is None]
    assert halves
    for half in halves:
        half.stop()  # as at the interpreter's exit


# ---- what is not the disk's fault


@pytest.fixture
def without_descriptors(monkeypatch):
    """While it is set, no file can be opened."""
    state = {"number": 0}
    real_open, real_io_open = os.open, io.open

    def refuse(real):
        def opened(*args, **kwargs):
            if state["number"]:
                raise OSError(state["number"], os.strerror(state["number"]))
            return real(*args, **kwargs)

        return opened

    monkeypatch.setattr(os, "open", refuse(real_open))
    monkeypatch.setattr(io, "open", refuse(real_io_open))
    return state


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EINTR])
def test_a_checkpoint_without_a_file_descriptor_is_written_later(store, without_descriptors, number, caplog):
    log = store.log()
    append(log)
    without_descriptors["number"] = number
    for _ in range(3):
        store.advance(store.config.log_flush_offset_checkpoint_interval_ms)
    assert not store.manager.is_offline
    assert len([record for record in caplog.records if "stays online" in record.getMessage()]) == 1
    append(log)
    without_descriptors["number"] = 0
    assert read_offsets(store.path / HIGH_WATERMARKS) == {}
    store.clock.advance(store.config.log_flush_offset_checkpoint_interval_ms)
    assert store.manager.next_deadline_ms() is not None
    store.manager.advance_clock()
    store.advance(store.config.log_flush_offset_checkpoint_interval_ms)
    assert read_offsets(store.path / HIGH_WATERMARKS) == {("t", 0): 6}
    store.log(index=1)  # all is well again
    append(log)
    without_descriptors["number"] = number
    for _ in range(3):
        store.advance(store.config.log_flush_offset_checkpoint_interval_ms)
    assert len([record for record in caplog.records if "stays online" in record.getMessage()]) == 2
    without_descriptors["number"] = 0


def test_leader_epochs_that_could_not_be_written_are_in_their_file_before_the_recovery_point_moves(store, without_descriptors):
    log = store.log()
    append(log)
    without_descriptors["number"] = errno.EMFILE
    log.begin_epoch(7)
    with pytest.raises(errors.KafkaStorage, match="stays online"):
        log.flush()
    without_descriptors["number"] = 0
    assert (log.recovery_point, read_epochs(store.path / "t-0" / LEADER_EPOCHS)) == (0, [(0, 0)])
    log.flush()
    assert (log.recovery_point, read_epochs(store.path / "t-0" / LEADER_EPOCHS)) == (3, [(0, 0), (7, 3)])


def test_a_flush_and_a_deletion_without_a_file_descriptor_are_tried_again(store, without_descriptors, monkeypatch):
    log = store.log(flush_ms=100)
    append(log)
    store.log(index=1, file_delete_delay_ms=0)
    store.manager.delete("t", 1)
    without_descriptors["number"] = errno.EMFILE
    store.advance(100)
    assert (log.recovery_point, store.manager.is_offline, len(list(store.path.glob("t-1.*")))) == (0, False, 1)
    without_descriptors["number"] = 0
    store.advance(999)
    assert log.recovery_point == 0
    store.advance(1)
    assert (log.recovery_point, list(store.path.glob("t-1*"))) == (3, [])
    append(log)
    with monkeypatch.context() as patched:

        def interrupted(descriptor):
            raise OSError(errno.EINTR, "interrupted")

        patched.setattr(os, "fsync", interrupted)
        store.advance(100)
    assert (log.recovery_point, store.manager.is_offline) == (3, False)
    store.advance(1_000)
    assert log.recovery_point == 6


def test_a_shutdown_that_could_not_write_all_is_not_clean(store, without_descriptors):
    append(store.log())
    without_descriptors["number"] = errno.EMFILE
    store.manager.close()
    without_descriptors["number"] = 0
    assert not (store.path / CLEAN_SHUTDOWN).exists()
    store.start()
    assert content(store.log()) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_truncation_that_stops_half_way_takes_the_directory_offline(store, without_descriptors):
    log = store.log()
    append(log, **ids(0))
    log.storage.save_snapshot(log, 3)
    append(log, **ids(3))
    without_descriptors["number"] = errno.EMFILE
    with pytest.raises(errors.KafkaStorage, match="offline"):
        log.truncate_to(3)
    assert store.manager.is_offline
