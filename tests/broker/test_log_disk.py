"""Logs on disk: what survives a restart, a crash, torn files; what the files beside the segments say."""

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from logs import MAX, TOPIC_ID, Disk, append, content, full, write_by

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors, records
from kafkacore.broker.log import checkpoints, read_one_batch
from kafkacore.broker.log import disk as disk_module
from kafkacore.broker.log.index import SparseIndex
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import T0, batch
from tests.kit.rows import each_row


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "logs")
    yield made
    made.manager.close()


def files(disk, partition="t-0") -> list[str]:
    return sorted(os.listdir(disk.path / partition))


def test_a_new_log_has_kafkas_files(disk):
    log = disk.log()
    append(log)
    assert content(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    disk.manager.close()
    assert files(disk) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (disk.path / "t-0/leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert (disk.path / "t-0/partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert (disk.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert (disk.path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert (disk.path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (disk.path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert "cluster.id=test\nnode.id=1\n" in (disk.path / "meta.properties").read_text()


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_log_goes_on_where_it_stopped(disk, how):
    log = disk.log(segment_bytes=400)
    for nth in range(9):
        data = batch([b"%d" % nth * 40], producer_id=7, epoch=0, sequence=nth, timestamps_ms=[T0 + nth])
        log.append(read_one_batch(data, MAX), nth // 3, wall_ms=T0)
    before = content(log), log.epochs, log.end_offset, len(log.segments), log.max_timestamp(9), log.offset_for_timestamp(T0 + 5, 9)
    assert before[3] > 2
    disk.manager.close(clean=how == "restart")
    assert disk.open_logs() == set()
    disk.start()
    log = disk.log(segment_bytes=400)
    after = content(log), log.epochs, log.end_offset, len(log.segments), log.max_timestamp(9), log.offset_for_timestamp(T0 + 5, 9)
    assert after == before
    assert log.producers.entries[7].last_sequence == 8
    assert append(log, epoch=3) == 9
    with pytest.raises(errors.OutOfOrderSequence):
        log.producers.check(read_one_batch(batch([b"x"], producer_id=7, epoch=0, sequence=10), MAX))


def test_a_torn_tail_is_cut_off_and_the_rest_stays(disk):
    log = disk.log(segment_bytes=1000)
    for _ in range(8):
        append(log, [b"v" * 200])
    path, size = log.segments[-1].path(".log"), log.segments[-1].size
    disk.die()
    with path.open("r+b") as file:
        file.truncate(size - 1)
    disk.start()
    log = disk.log(segment_bytes=1000)
    assert [offset for offset, _ in content(log)] == list(range(7))
    assert append(log, [b"w"]) == 7
    assert content(log)[-1] == (7, b"w")


def test_what_follows_a_broken_batch_is_gone_with_later_segments(disk):
    log = disk.log(segment_bytes=600)
    for _ in range(8):
        append(log, [b"v" * 200])
    first = log.segments[0].path(".log")
    assert len(log.segments) == 4
    disk.die()
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    (disk.path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    disk.start()
    log = disk.log(segment_bytes=600)
    assert [offset for offset, _ in content(log)] == [0]
    assert (log.end_offset, len(log.segments)) == (1, 1)


def test_indexes_are_built_anew_when_they_are_missing_or_broken(disk):
    log = disk.log(index_interval_bytes=100)
    for nth in range(50):
        append(log, [b"v" * 100], timestamps_ms=[T0 + nth])
    expected = [log.offset_for_timestamp(T0 + nth, 50) for nth in range(51)]
    disk.manager.close()
    whole = {name: (disk.path / "t-0" / name).read_bytes() for name in files(disk) if "index" in name}
    assert [len(content) for content in whole.values()] == [49 * 8, 49 * 12]
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"\xff" * 24), lambda path: path.write_bytes(b"x")):
        for name in whole:
            damage(disk.path / "t-0" / name)
        disk.start()
        log = disk.log(index_interval_bytes=100)
        assert [log.offset_for_timestamp(T0 + nth, 50) for nth in range(51)] == expected
        disk.manager.close()
        assert {name: (disk.path / "t-0" / name).read_bytes() for name in whole} == whole
    disk.start()


def test_an_entry_comes_with_the_first_batch_behind_the_interval_and_a_time_entry_only_if_time_went_on(disk):
    log = disk.log(index_interval_bytes=400)
    times = [5, 9, 7, 3, 9, 10, 10, 10, 10]
    for nth, time_ms in enumerate(times):
        append(log, [b"v" * 130], timestamps_ms=[T0 + time_ms])
        assert log.segments[0].size == 200 * (nth + 1)
    index = log.segments[0].index
    assert (index.offsets.tolist(), index.positions.tolist()) == ([3, 6], [600, 1_200])
    assert (index.timestamps.tolist(), index.time_offsets.tolist()) == ([T0 + 9, T0 + 10], [1, 5])
    for _ in range(3):
        append(log, [b"v" * 130], timestamps_ms=[T0])
    assert (index.offsets.tolist(), index.timestamps.tolist()) == ([3, 6, 9], [T0 + 9, T0 + 10])


def test_a_finished_segment_is_as_new_as_its_time_index_says_or_without_one_as_its_batches(disk, monkeypatch):
    log = disk.log(segment_bytes=600)
    for nth in range(7):  # three in a segment, without an entry between them
        append(log, [b"v" * 130], timestamps_ms=[T0 + nth])
    path = log.segments[1].path(".timeindex")
    disk.manager.close()
    whole = path.read_bytes()
    read, indexes = SparseIndex.read, []
    monkeypatch.setattr(SparseIndex, "read", lambda base_offset, *rest: indexes.append(base_offset) or read(base_offset, *rest))
    earlier, later = ((T0 + nth).to_bytes(8, "big") for nth in (3, 8))
    rows = [
        (whole, (T0 + 5, 5), []),
        (earlier + bytes(4) + later + b"\0\0\0\7", (T0 + 8, 10), []),
        (earlier + bytes(4), (T0 + 3, 3), []),
        (whole[:-1], (T0 + 5, 5), [3]),
        (b"", (T0 + 5, 5), [3]),
        (earlier + bytes(16), (T0 + 5, 5), [3]),
        (later[:7] + b"\xff" * 5, (T0 + 5, 5), [3]),
        (bytes(12), (T0 + 5, 5), [3]),
        (None, (T0 + 5, 5), []),
    ]
    for data, newest, asked in rows:
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        disk.start()
        log = disk.log(segment_bytes=600)
        indexes.clear()
        assert (log.segments[1].largest_timestamp(), [each for each in indexes if each == 3]) == (newest, asked), data
        disk.manager.close(clean=False)
        (disk.path / ".kafka_cleanshutdown").touch()
    disk.start()


def test_where_offsets_lie_in_a_segment_that_was_opened_and_goes_on(disk):
    for _ in range(20):
        append(disk.log(index_interval_bytes=400), [b"v" * 130])  # 200 bytes
    disk.restart()
    log = disk.log(index_interval_bytes=400)
    for _ in range(5):
        append(log, [b"v" * 130])
    segment = log.segments[0]
    assert segment.index.offsets.tolist() == [3, 6, 9, 12, 15, 18, 21, 24]
    positions = (0, 601, 3_601, 4_000, 4_201, 4_800, 4_801)
    assert [segment.offset_at(position) for position in positions] == [3, 6, 20, 20, 22, 24, None]
    assert segment.position_of_last_entry() == 4_800
    log.truncate_to(23)
    assert (segment.size, segment.offset_at(4_201), segment.position_of_last_entry()) == (
        4_600,
        22 if segment.size > 4_400 else None,
        4_400,
    )
    for _ in range(3):
        append(log, [b"v" * 130])
    assert segment.index.offsets.tolist() == [3, 6, 9, 12, 15, 18, 21, 24]
    log.truncate_to(20)
    assert (segment.index.offsets.tolist(), segment.offset_at(3_601), segment.position_of_last_entry()) == (
        [3, 6, 9, 12, 15, 18],
        None,
        3_600,
    )
    append(log, [b"v" * 130])
    append(log, [b"v" * 130])
    assert segment.index.offsets.tolist() == [3, 6, 9, 12, 15, 18, 21]


def test_files_of_what_is_cut_off_go_at_once(disk):
    log = disk.log(segment_bytes=300)
    for _ in range(4):
        append(log, [b"v" * 200])
    for cut, left in ((lambda: log.truncate_to(2), {0, 1, 2}), (lambda: log.truncate_fully_and_start_at(9), {9})):
        cut()
        assert {int(name[:20]) for name in files(disk) if name.endswith((".log", ".index"))} == left


def test_a_segment_that_is_made_again_is_empty(disk):
    append(disk.log(), producer_id=1, sequence=0)
    for suffix in (".index", ".timeindex", ".txnindex"):
        (disk.path / "t-0" / f"{0:020}{suffix}").write_bytes(b"x")
    made = disk_module.DiskSegment.create(disk.path / "t-0", 0, 400, T0)
    assert [name for name in files(disk) if name.startswith("0")] == [f"{0:020}.log"]
    assert (made.path(".log").stat().st_size, made.size, made.created_ms) == (0, 0, T0)


def test_zeros_end_an_index_and_what_falls_breaks_it():
    made = SparseIndex(100)
    for nth in range(3):
        made.add(110 + nth, 50 + nth, T0 + nth, 105 + nth)
    offsets, times = made.offset_bytes(), made.time_bytes()
    found = SparseIndex.read(100, offsets + bytes(80), times + bytes(120), 1_000)
    assert found.offsets.tolist() == [110, 111, 112] and found.positions.tolist() == [50, 51, 52]
    assert found.timestamps.tolist() == [T0, T0 + 1, T0 + 2] and found.time_offsets.tolist() == [105, 106, 107]
    assert (made.offset_bytes(), made.time_bytes()) == (found.offset_bytes(), found.time_bytes())
    for wrong in ((offsets + bytes(8) + offsets[:8], times), (offsets, times + bytes(12) + times[:12]), (offsets, times[12:] + times[:12])):
        with pytest.raises(errors.CorruptDataError):
            SparseIndex.read(100, *wrong, 1_000)
    with pytest.raises(errors.CorruptDataError, match="beyond the segment's end"):
        SparseIndex.read(100, offsets, times, 52)
    assert SparseIndex.read(100, offsets, times, 53).positions.tolist() == [50, 51, 52]
    for wrong in ((offsets[:-1], times), (offsets, times[:-1]), (offsets, times[:8] + b"\xff" * 4)):
        with pytest.raises(errors.CorruptDataError):
            SparseIndex.read(100, *wrong, 1_000)
    same = SparseIndex.read(100, b"", times[:12] + times[12:20] + times[8:12], 1_000)  # one batch may be the newest of two entries
    assert same.time_offsets.tolist() == [105, 105]
    first = SparseIndex(100)
    first.add(100, 1, 0, 100)
    assert SparseIndex.read(100, first.offset_bytes(), first.time_bytes(), 2).time_offsets.tolist() == [100]
    first.positions[0] = 0
    with pytest.raises(errors.CorruptDataError):
        SparseIndex.read(100, first.offset_bytes() + offsets, b"", 1_000)


def test_what_an_index_finds_and_forgets():
    made = SparseIndex(100)
    assert (made.position_before(500), made.last_position_within(500), made.offset_before_time(T0)) == (0, 0, 100)
    for nth in range(3):
        made.add(110 + nth, 50 + nth, T0 + nth, 105 + nth)
    assert [made.position_before(offset) for offset in (109, 110, 111, 112, 500)] == [0, 50, 51, 52, 52]
    assert [made.last_position_within(position) for position in (49, 50, 51, 52, 500)] == [0, 50, 51, 52, 52]
    assert [made.offset_before_time(T0 + nth) for nth in (-1, 0, 1, 2, 500)] == [100, 105, 106, 107, 107]
    made.changed = False
    made.truncate(111)
    assert (made.offsets.tolist(), made.positions.tolist(), made.changed) == ([110], [50], True)
    assert (made.timestamps.tolist(), made.time_offsets.tolist()) == ([T0, T0 + 1, T0 + 2], [105, 106, 107])
    made.truncate(106)
    assert (made.offsets.tolist(), made.timestamps.tolist(), made.time_offsets.tolist()) == ([], [T0], [105])


def test_indexes_are_written_when_their_segment_is_flushed_ends_or_is_closed(disk):
    log = disk.log(index_interval_bytes=0, segment_bytes=600)
    path = log.segments[0].path(".index")
    for _ in range(2):
        append(log, [b"v" * 130])
    assert not path.exists()
    log.flush()
    assert path.stat().st_size == 8
    append(log, [b"v" * 130])
    assert path.stat().st_size == 8
    append(log, [b"v" * 130])  # into the next one
    assert path.stat().st_size == 16 and not log.segments[1].path(".index").exists()
    last = log.segments[1].path(".index")
    disk.manager.close()
    assert last.exists()


def test_what_is_appended_is_in_the_file_at_once(disk):
    log, other = disk.log(), Disk(disk.path.parent / "leader").log()
    for nth in range(3):
        append(log, [b"%d" % nth])
        append(other, [b"other %d" % nth])
    (data,) = other.read(0, MAX, 3, True)
    disk.log(index=1).append_replicated(data.read())
    for each in (log, disk.log(index=1)):
        assert len(each.segments[0].path(".log").read_bytes()) == each.size_bytes


def test_the_last_batches_are_found_without_a_walk_and_older_ones_from_an_index_entry(disk, monkeypatch):
    for _ in range(20):
        append(disk.log(index_interval_bytes=400), [b"v" * 130])
    disk.restart()
    log = disk.log(index_interval_bytes=400)
    for _ in range(5):
        append(log, [b"v" * 130])
    walks, walk = [], disk_module.DiskSegment.spans

    def walking(segment, position=0):
        walks.append(position)
        return walk(segment, position)

    monkeypatch.setattr(disk_module.DiskSegment, "spans", walking)
    assert [offset for offset, _ in content(log, 22)] == [22, 23, 24]
    assert log.read(21, 250, 25, False)[0].nbytes == 200 and log.bytes_between(21, 23) == 400
    assert walks == []
    assert content(log, 11)[0][0] == 11
    assert walks == [9 * 200]  # of the entries for 3, 6, 9, ... the last one that is not beyond it


def test_a_segment_that_was_there_is_a_size_until_more_is_asked_for(disk, monkeypatch):
    log = disk.log(segment_bytes=300)
    for _ in range(4):
        append(log, [b"v" * 200])
    disk.restart()
    read, indexes = SparseIndex.read, []
    monkeypatch.setattr(SparseIndex, "read", lambda base_offset, *rest: indexes.append(base_offset) or read(base_offset, *rest))
    log = disk.log(segment_bytes=300)
    assert [segment.size for segment in log.segments] == [270] * 4
    first, second = f"{0:020}.log", f"{1:020}.log"
    assert not {first, second} & disk.open_logs() and not {0, 1} & {*indexes}
    assert [offset for offset, _ in content(log, 1, 2)] == [1]
    assert {first, second} & disk.open_logs() == {second} and {0, 1} & {*indexes} == {1}


def test_another_broker_cannot_use_the_directory(disk):
    with pytest.raises(errors.UsageError, match="in use"):
        Disk(disk.path)


def test_a_directory_of_another_cluster_is_refused(disk):
    disk.manager.close()
    with pytest.raises(errors.UsageError, match=r"cluster\.id"):
        disk.manager.start({"cluster.id": "other"})


def test_a_topic_made_anew_does_not_get_the_old_ones_records(disk):
    append(disk.log())
    disk.restart()
    log = disk.manager.open("t", bytes(16), 0, disk.log("u").config)
    assert (log.end_offset, content(log)) == (0, [])


def test_a_segment_without_timestamps_is_as_old_as_its_file_after_a_restart(disk):
    log = disk.log(segment_bytes=300)
    for _ in range(3):
        append(log, [b"v" * 200], timestamps_ms=[-1])
    written_ms = T0 - 5_000
    for path in (disk.path / "t-0").glob("*.log"):
        os.utime(path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))
    disk.restart()
    log = disk.log(segment_bytes=300)
    assert [segment.written_ms for segment in log.segments] == [written_ms] * 3
    assert log.delete_old_segments(5_000, -1, T0) == 0
    assert log.delete_old_segments(4_999, -1, T0) == 3


def test_deleted_files_stay_for_the_delay_under_another_name(disk):
    log = disk.log(segment_bytes=300, file_delete_delay_ms=1000)
    for _ in range(3):
        append(log, [b"v" * 200])
    (piece,) = log.read(0, 1, 3, True)
    assert log.delete_old_segments(-1, 1, T0) == 2
    assert "00000000000000000000.log.deleted" in files(disk)
    disk.advance(999)
    assert "00000000000000000000.log.deleted" in files(disk)
    disk.advance(1)
    assert [name for name in files(disk) if name.endswith(".deleted")] == []
    assert [r.offset for b in records.read_batches(piece.read()) for r in b.records()] == [0]  # what is being sent outlives the file
    disk.log("x" * 249)
    disk.manager.delete("x" * 249, 0)
    assert max(map(len, os.listdir(disk.path))) == 255  # as long as a name can be
    disk.manager.delete("t", 0)
    assert [name for name in os.listdir(disk.path) if name.startswith("t-0.") and name.endswith("-delete")]
    disk.advance(60_000)
    assert [name for name in os.listdir(disk.path) if name.startswith("t-0")] == []


def refuse_to_delete(monkeypatch, name) -> None:
    """What has this name stays where it is."""
    unlink, rmtree = Path.unlink, shutil.rmtree

    def checked(delete):
        def deleting(path, *args, **kwargs):
            if path.name.startswith(name):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            delete(path, *args, **kwargs)

        return deleting

    monkeypatch.setattr(Path, "unlink", checked(unlink))
    monkeypatch.setattr(shutil, "rmtree", checked(rmtree))


def test_a_shutdown_goes_on_behind_a_log_that_cannot_be_deleted(disk, monkeypatch, caplog):
    for index in range(3):
        append(disk.log(index=index))
    disk.manager.delete("t", 0)
    disk.manager.delete("t", 1)
    refuse_to_delete(monkeypatch, "t-0.")
    disk.manager.close()
    left = files(disk, ".")
    assert [name.partition(".")[0] for name in left if name.startswith("t-")] == ["t-0", "t-2"]
    assert ".kafka_cleanshutdown" in left
    assert "could not be removed" in caplog.text
    monkeypatch.undo()
    disk.start()  # it was given back
    assert content(disk.log(index=2)) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [name for name in files(disk, ".") if name.startswith("t-0")] == []


def test_a_disk_error_is_told_and_nothing_of_the_batch_stays(disk, monkeypatch):
    log = disk.log()
    append(log)
    offline = []
    disk.manager.on_dir_failure = offline.extend

    def nearly_full(fd, pieces, position):
        if position == log.segments[-1].size:
            return os.pwrite(fd, b"".join(pieces)[:10], position)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        write_by(patched, nearly_full)
        with pytest.raises(errors.KafkaStorage, match="No space left"):
            append(log)
    assert offline == [("t", 0)]
    assert log.end_offset == 3
    assert log.segments[-1].path(".log").stat().st_size == log.size_bytes
    for act in (
        lambda: append(log),
        lambda: log.append_replicated(at(3)),
        lambda: log.read(0, MAX, 3, True),
        lambda: log.truncate_to(1),
        lambda: log.truncate_fully_and_start_at(9),
        lambda: log.roll(T0),
        log.flush,
        lambda: log.bytes_between(0, 3),
        lambda: log.offset_for_timestamp(T0, 3),
        lambda: log.max_timestamp(3),
    ):
        with pytest.raises(errors.KafkaStorage, match="offline"):
            act()
    disk.restart()
    assert content(disk.log()) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.slow
def test_acknowledged_records_survive_sigkill(tmp_path):
    command = [sys.executable, "-m", "kafkacore", "broker", "--port", "0", "--data-dir", str(tmp_path), "--json"]
    acknowledged: list[int] = []
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as broker:
            address = json.loads(broker.stdout.readline())["bootstrap_servers"]
            with KafkaProducer(bootstrap_servers=address, acks="all", batch_size=512) as producer:
                start = max(acknowledged, default=-1) + 1
                sent = [producer.send("t", b"%d" % nth, partition=0) for nth in range(start, start + 2000)]
                sent[100].result(60)  # the others are on their way
                broker.kill()
                broker.wait()
                producer.close(0)  # nobody will answer any more
                for nth, future in enumerate(sent):
                    with contextlib.suppress(errors.KafkaError):
                        future.result(60)
                        acknowledged.append(start + nth)
    with EmbeddedCluster(data_dir=tmp_path) as cluster, KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        where = TopicPartition("t", 0)
        end = consumer.end_offsets([where])[where]
        consumer.assign([where])
        consumer.seek(where, 0)
        seen: list[int] = []
        deadline = time.monotonic() + 90
        while len(seen) < end and time.monotonic() < deadline:
            seen += [int(r.value) for rs in consumer.poll(5).values() for r in rs]
        assert set(acknowledged) <= set(seen)


# ---- when a segment ends


@pytest.mark.parametrize("interval_bytes", [0, 400, 1 << 20])
def test_where_a_read_of_what_was_opened_ends(disk, interval_bytes):
    """Between two batches, after all that fit up to the last one in the index, or without such a one after all that fit."""
    log = disk.log(index_interval_bytes=interval_bytes)
    begins = [0]
    for nth in range(9):
        append(log, [b"v" * (10 + 37 * nth % 90)])
        begins.append(log.segments[0].size)
    disk.restart()
    segment = disk.log(index_interval_bytes=interval_bytes).segments[0]
    indexed = list(segment.index.positions)
    assert bool(indexed) == (interval_bytes < 1 << 20)
    end = begins[-1]
    for start in begins[:-1]:
        for max_bytes in range(end - start):
            limit = start + max_bytes
            by_index = max((position for position in indexed if position <= limit), default=0)
            expected = by_index if by_index > start else max(position for position in begins if position <= limit)
            assert segment.whole_batches(start, end, max_bytes) == expected, (start, max_bytes)


def bases(log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_ends_by_size_and_takes_one_batch_that_is_larger(disk):
    log = disk.log(segment_bytes=500)
    for nbytes in (300, 50, 700, 10):
        append(log, [b"v" * nbytes])
    assert bases(log) == [0, 2, 3]


def test_a_segment_ends_by_the_time_of_its_records_or_of_the_clock_without(disk):
    log = disk.log(segment_ms=1000)
    for time_ms in (0, 900, 1000, 1001, 1500, 2001, 2002):
        append(log, [b"v"], timestamps_ms=[T0 + time_ms])
    assert bases(log) == [0, 3, 6]  # more than 1000 ms after the segment's first record
    untimed = disk.log("untimed", segment_ms=1000)
    for time_ms in (0, 900, 1001, 1002):
        append(untimed, [b"v"], timestamps_ms=[-1], wall_ms=T0 + time_ms)
    assert bases(untimed) == [0, 2]


def test_the_jitter_ends_it_earlier(disk, monkeypatch):
    monkeypatch.setattr(random.Random, "randint", lambda _, least, most: most)
    log = disk.log(segment_ms=1000, segment_jitter_ms=400)
    for time_ms in (0, 600, 601):
        append(log, [b"v"], timestamps_ms=[T0 + time_ms])
    assert bases(log) == [0, 2]


def test_a_segment_ends_with_a_full_index(disk):
    log = disk.log(index_interval_bytes=0, segment_index_bytes=60)  # 7 offset entries, 4 time entries and one for the end
    for nth in range(12):
        append(log, [b"v"], timestamps_ms=[T0 + nth])
    assert bases(log) == [0, 5, 10]
    same_time = disk.log("same", index_interval_bytes=0, segment_index_bytes=60)
    for _ in range(12):
        append(same_time, [b"v"], timestamps_ms=[T0])
    assert bases(same_time) == [0, 8]


def test_a_segment_ends_where_an_offset_would_not_fit_an_index(disk):
    log = disk.log()
    log.append_replicated(at(0))
    log.append_replicated(at(2**31 - 1))
    log.append_replicated(at(2**31))
    log.append_replicated(at(2**40) + bytes(at(2**40 + 1)))
    assert bases(log) == [0, 2**31, 2**40]
    disk.restart()
    assert [offset for offset, _ in content(disk.log())] == [0, 2**31 - 1, 2**31, 2**40, 2**40 + 1]
    disk.crash()
    assert disk.log().end_offset == 2**40 + 2


def at(offset: int) -> bytes:
    data = bytearray(batch([b"v"]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_a_preallocated_segment_has_its_length_and_loses_it_when_it_ends(disk):
    log = disk.log(preallocate=True, segment_bytes=4000)
    append(log, [b"v" * 100])
    path = log.segments[0].path(".log")
    assert path.stat().st_size == 4000
    disk.crash()
    log = disk.log(preallocate=True, segment_bytes=4000)
    assert content(log) == [(0, b"v" * 100)]
    for _ in range(40):
        append(log, [b"v" * 100])
    assert path.stat().st_size == log.segments[0].size < 4000
    last = log.segments[-1].path(".log")
    assert last.stat().st_size == 4000
    disk.manager.close()
    assert last.stat().st_size < 4000
    disk.start()


# ---- when it is on the disk


def test_flush_messages_and_flush_ms(disk, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    log = disk.log(flush_messages=3)
    append(log, [b"a", b"b"])
    assert (log.recovery_point, synced) == (0, [])
    append(log, [b"c"])
    assert log.recovery_point == 3 and str(log.segments[0].path(".log")) in synced
    synced.clear()
    later, deleted = disk.log("later", flush_ms=500), disk.log("deleted", flush_ms=500)
    for each in (deleted, later):
        append(each)
    disk.manager.delete("deleted", 0)
    synced.clear()
    disk.advance(499)
    assert (later.recovery_point, synced) == (0, [])
    disk.advance(1)
    assert later.recovery_point == 3 and str(later.segments[0].path(".log")) in synced
    assert later.segments[0].path(".index").exists()  # by then its files say all
    assert deleted.recovery_point == 0 and not [name for name in synced if "deleted" in name]


def test_a_flush_up_to_an_offset_takes_the_segments_that_are_not_on_the_disk(disk, monkeypatch):
    log = disk.log(segment_bytes=300)
    for _ in range(4):
        append(log, [b"v" * 200])
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    for done, upper_offset, bases in ((0, 0, []), (0, 1, [0]), (0, 2, [0, 1]), (1, 2, [1]), (2, 2, []), (1, 4, [1, 2, 3]), (3, 4, [3])):
        log.recovery_point = done
        synced.clear()
        disk.manager.flush_later(log, upper_offset)
        assert [name for name in synced if name.endswith(".log")] == [f"{base:020}.log" for base in bases], (done, upper_offset)
        assert log.recovery_point == max(done, upper_offset)
        assert ("t-0" in synced) == ("leader-epoch-checkpoint" in synced) == bool(bases)


def test_an_idle_manager_has_no_deadline_and_a_busy_one_checkpoints(disk):
    assert disk.manager.next_deadline_ms() is None
    append(disk.log())
    assert disk.manager.next_deadline_ms() == disk.clock.now_ms() + 5000
    disk.advance(5000)
    assert (disk.path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert not (disk.path / "recovery-point-offset-checkpoint").exists()
    disk.advance(55_000)
    assert (disk.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"
    assert disk.manager.next_deadline_ms() is None


def until_idle(disk):
    while (deadline_ms := disk.manager.next_deadline_ms()) is not None:
        disk.advance(deadline_ms - disk.clock.now_ms())


def test_checkpoints_are_written_when_they_say_something_else(disk, monkeypatch):
    written, write = [], checkpoints.write_offsets
    monkeypatch.setattr(checkpoints, "write_offsets", lambda path, offsets: written.append((path.name, offsets)) or write(path, offsets))
    marks, points, starts, cleaned = "replication-offset", "recovery-point-offset", "log-start-offset", "cleaner-offset"
    log = disk.log()
    t = "t", 0
    for act, expected in (
        (lambda: append(log), [(marks, {t: 3}), (points, {t: 0}), (starts, {}), (cleaned, {})]),
        (lambda: append(log), [(marks, {t: 6})]),
        (log.flush, []),
        (lambda: append(log), [(marks, {t: 9}), (points, {t: 6})]),
        (lambda: log.advance_start(4), [(starts, {t: 4})]),
        (lambda: disk.log(index=1), []),
        (lambda: append(disk.log(index=1)), [(marks, {t: 9, ("t", 1): 3}), (points, {t: 6, ("t", 1): 0})]),
        (lambda: disk.manager.delete("t", 0), []),
        (lambda: append(disk.log(index=1)), [(marks, {("t", 1): 6}), (points, {("t", 1): 0}), (starts, {})]),
    ):
        written.clear()
        act()
        until_idle(disk)
        assert written == [(f"{name}-checkpoint", offsets) for name, offsets in expected]


def test_what_a_directory_says_of_its_owner_and_of_its_end(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / checkpoints.META_PROPERTIES).write_text("#\nnode.id=1\nof.a.kafka=kept\n")
    disk = Disk(tmp_path / "a", tmp_path / "b")
    found = [checkpoints.read_meta_properties(path / checkpoints.META_PROPERTIES) for path in disk.paths]
    ids = [checkpoints.decode_id(each["directory.id"]) for each in found]
    kept, new = ({"version": "1", "cluster.id": "test", "node.id": "1", **more} for more in ({"of.a.kafka": "kept"}, {}))
    assert [each | {"directory.id": ""} for each in found] == [kept | {"directory.id": ""}, new | {"directory.id": ""}]
    logs = [disk.log(index=index) for index in range(2)]
    assert disk.manager.directory_ids() == (ids, [])
    assert [disk.manager.directory_of(log) for log in logs] == ids and disk.manager.directory_of(Disk().log()) is None
    with monkeypatch.context() as patched:
        write_by(patched, full)
        with pytest.raises(errors.KafkaStorage):
            append(logs[1])
    assert disk.manager.directory_ids() == (ids[:1], ids[1:])
    assert [disk.manager.has_failed(log) for log in logs] == [False, True] and not disk.manager.is_offline
    assert disk.manager.failures() == f"{tmp_path / 'b'}: [Errno 28] No space left on device"
    disk.manager.broker_epoch = 7
    disk.manager.close()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":7}'
    (tmp_path / "a" / "u-0.1-delete").mkdir()
    disk.start()
    assert disk.manager.directory_ids() == (ids, [])
    assert not {".kafka_cleanshutdown", "u-0.1-delete"} & {*os.listdir(tmp_path / "a")}
    disk.manager.close()


def test_a_start_within_a_segment_is_checkpointed_though_nothing_is_written(disk):
    log = disk.log()
    append(log)
    append(log)
    until_idle(disk)
    log.advance_start(2)  # DeleteRecords
    until_idle(disk)
    assert (disk.path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    disk.crash()
    assert disk.log().start_offset == 2


def test_what_is_flushed_when_high_watermarks_are_written_is_checkpointed_too(disk):
    log = disk.log(flush_ms=5_000)
    append(log)
    for wait_ms in (0, 5_000, 53_000):
        disk.advance(wait_ms)
    append(log)
    disk.manager.advance_clock()
    disk.clock.advance(2_000)  # recovery points are written, with what was flushed before
    disk.manager.advance_clock()
    assert (disk.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    disk.clock.advance(3_000)  # flush.ms and the high watermarks, at once
    disk.manager.advance_clock()
    assert log.recovery_point == 6
    until_idle(disk)
    assert (disk.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 6\n"


def test_after_a_truncation_the_recovery_point_in_the_file_falls_at_once(disk):
    log = disk.log()
    for _ in range(3):
        append(log)
    log.flush()
    until_idle(disk)
    assert (disk.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 9\n"
    log.truncate_to(3)
    append(log, epoch=1)
    disk.manager.advance_clock()
    assert (disk.path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    until_idle(disk)


def test_a_flush_counts_when_the_worker_is_done_with_it_unless_the_log_was_truncated(disk):
    disk.worker.jobs = True
    kept, cut = disk.log(index=0), disk.log(index=1)
    for log in (kept, cut):
        append(log)
        disk.manager.flush_later(log, 3)
    assert (kept.recovery_point, cut.recovery_point) == (0, 0)
    cut.truncate_to(0)
    append(cut, [b"other"] * 3, epoch=1)
    disk.worker.release()
    assert (kept.recovery_point, cut.recovery_point) == (3, 0)


@each_row(
    ("text", "offsets", "epochs"),
    [
        ("", {}, []),
        ("0\n0\n", {}, []),
        ("0\n2\na b 0 5\nt 1 7\n\n", {("a b", 0): 5, ("t", 1): 7}, []),
        ("0\n2\n0 0\n3 5\n", {}, [(0, 0), (3, 5)]),
        ("0\n2\n0 5\n3 5\n", {}, [(0, 5), (3, 5)]),
        ("0\n3\n0 0\n3 6\n4 5\n", {}, []),
        ("0\n2\n3 5\n0 0\n", {}, []),
        ("1\n1\nt 0 5\n", {}, []),
        ("1\n1\n0 5\n", {}, []),
        ("0\n2\nt 0 5\n", {}, []),
        ("0\n1\nt 0 x\n", {}, []),
        ("0\n1\nt 5\n", {}, []),
        ("0\n2\nt 0 5\nu 5\n", {}, []),
        ("0\n", {}, []),
        ("x\n0\n", {}, []),
    ],
)
def test_checkpoints_that_can_be_read_and_others(tmp_path_factory, text, offsets, epochs):
    path = tmp_path_factory.mktemp("checkpoints") / "file"
    assert (checkpoints.read_offsets(path), checkpoints.read_epochs(path)) == ({}, [])
    path.write_text(text)
    assert (checkpoints.read_offsets(path), checkpoints.read_epochs(path)) == (offsets, epochs)


def test_what_can_not_be_undone_is_reported_and_a_bug_is_not_swallowed(tmp_path, monkeypatch, caplog):
    disk = Disk(tmp_path / "a", tmp_path / "b")
    logs = [disk.log(index=index) for index in range(2)]
    for log in logs:
        append(log)

    def bug(*_):
        raise ZeroDivisionError

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    for target, name, act in (
        (os, "fsync", lambda: disk.manager.flush_later(logs[0], 3)),
        (checkpoints, "write_offsets", lambda: disk.advance(5_000)),
    ):
        disk.advance(0)
        with monkeypatch.context() as patched:
            patched.setattr(target, name, bug)
            with pytest.raises(ZeroDivisionError):
                act()
    disk.manager.delete("t", 0)
    with monkeypatch.context() as patched:
        refuse_to_delete(patched, "t-0.")
        disk.advance(60_000)
    assert "could not be removed" in caplog.text and not disk.manager.failures()
    usage = shutil.disk_usage(disk.path)
    assert [each.total_bytes for each in disk.manager.dirs()] == [usage.total] * 2
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: refuse() if path.name == "b" else usage)
        described = [(each.failure, each.total_bytes, each.usable_bytes) for each in disk.manager.dirs()]
    assert described == [(None, usage.total, usage.free), ("[Errno 5] Input/output error", -1, -1)]
    with monkeypatch.context() as patched:
        patched.setattr("kafkacore.broker.log.manager.write_file", refuse)
        disk.manager.close()
    assert disk.manager.failures().count("Input/output error") == 2
    assert not (disk.path / ".kafka_cleanshutdown").exists()
    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(errors.KafkaStorage, match=r"no log directory can be used: .*a: .*b: "):
        disk.start()


def test_a_manager_that_starts_again_believes_nothing_of_its_last_run(disk):
    properties = {"cluster.id": "test", "node.id": "1"}
    append(disk.log())
    append(disk.log())
    path = disk.log().segments[0].path(".log")
    disk.restart()
    append(disk.log("late", flush_ms=500))
    disk.manager.close(clean=False)
    path.write_bytes(path.read_bytes()[:-1] + b"?")  # power went
    disk.manager.start(properties)
    assert disk.log().end_offset == 3
    disk.advance(500)
    late = disk.log("late", flush_ms=500)
    assert late.recovery_point == 0
    append(late)
    disk.advance(500)
    assert late.recovery_point == 6


def test_partitions_that_are_no_longer_of_this_broker_are_deleted(disk, caplog):
    for topic, index in (("t", 0), ("t", 1), ("t", 10), ("u", 2)):
        append(disk.log(topic, index))
    disk.restart()
    append(disk.log("t", 1))
    (disk.path / "x-7").mkdir()  # says nothing of its topic
    (disk.path / "t-5").write_text("no directory")
    for name in ("t-x", "-3"):
        shutil.copytree(disk.path / "t-0", disk.path / name)
    asked = []
    disk.manager.remove_strays(lambda topic_id, index: asked.append((topic_id, index)) or index == 0)
    assert sorted(asked) == [(TOPIC_ID, 0), (TOPIC_ID, 2), (TOPIC_ID, 10)]
    left = sorted(name for name in os.listdir(disk.path) if "-" in name and "checkpoint" not in name)
    assert [name.partition(".")[0] for name in left] == ["-3", "t-0", "t-1", "t-10", "t-5", "t-x", "u-2", "x-7"]
    assert [name.endswith("-delete") for name in left] == [name.startswith(("t-10", "u-2")) for name in left]
    assert [disk.manager.high_watermark("t", index) for index in (0, 10)] == [3, 0]
    disk.advance(60_000)
    assert not [name for name in os.listdir(disk.path) if name.endswith("-delete")]


def test_what_is_written_to_small_files_is_read_again(tmp_path):
    path = tmp_path / "file"
    for sync in (False, True):
        checkpoints.write_offsets(path, {("u", 1): 4, ("t", 0): 3 + sync}, sync=sync)
        assert path.read_text() == f"0\n2\nt 0 {3 + sync}\nu 1 4\n"
    checkpoints.write_epochs(path, [(0, 0), (2, 9)])
    assert checkpoints.read_epochs(path) == [(0, 0), (2, 9)]
    path.write_text("#cluster.id=no\ncluster.id=a=b\nwrong\nnode.id=1\n")
    assert checkpoints.read_meta_properties(path) == {"cluster.id": "a=b", "node.id": "1"}
    assert checkpoints.read_meta_properties(tmp_path / "none") == {}
    assert checkpoints.read_partition_metadata(tmp_path) is None
    checkpoints.write_partition_metadata(tmp_path, TOPIC_ID)
    assert checkpoints.read_partition_metadata(tmp_path) == TOPIC_ID
    for text in ("version: 0\n", "topic_id: x\n", "topic_id\n"):
        (tmp_path / "partition.metadata").write_text(text)
        assert checkpoints.read_partition_metadata(tmp_path) is None
    for text in ("AAEC", "A", "AAECAwQFBgcICQoLDA0ODxA"):
        with pytest.raises(ValueError):
            checkpoints.decode_id(text)


def test_snapshots_do_not_pile_up(disk):
    log = disk.log(segment_bytes=300)
    for nth in range(5):
        append(log, [b"v" * 200])
        disk.restart()
        log = disk.log(segment_bytes=300)
        assert log.end_offset == nth + 1
    assert [name[17:20] for name in files(disk) if name.endswith(".snapshot")] == ["001", "002", "003", "004", "005"]


def test_snapshots_beyond_the_end_do_not_stay(disk):
    append(disk.log())
    disk.restart()
    for offset in (7, 9):
        shutil.copy(disk.path / "t-0/00000000000000000003.snapshot", disk.path / f"t-0/{offset:020}.snapshot")
    disk.crash()
    assert disk.log().end_offset == 3
    assert [name for name in files(disk) if name.endswith(".snapshot")] == ["00000000000000000003.snapshot"]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_of_batches_with_the_largest_time_the_first_is_found_after_a_restart(disk, how):
    log = disk.log()
    for timestamp_ms in (T0 + 1, T0 + 5, T0 + 5, T0 + 2):
        append(log, [b"v"], timestamps_ms=[timestamp_ms])
    getattr(disk, how)()
    log = disk.log()
    assert log.max_timestamp(4)[:2] == (1, T0 + 5)
    assert log.segments[-1].largest_timestamp() == (T0 + 5, 1)


# ---- several directories


def test_partitions_are_spread_over_the_directories_and_one_that_fails_takes_only_its_own(tmp_path, monkeypatch):
    disk, offline = Disk(tmp_path / "a", tmp_path / "b"), []
    disk.manager.on_dir_failure = offline.extend
    logs = [disk.log(index=index) for index in range(4)]
    found = [sorted(name for name in os.listdir(path) if name.startswith("t-")) for path in disk.paths]
    assert found == [["t-0", "t-2"], ["t-1", "t-3"]]
    for log in logs:
        append(log)
    with monkeypatch.context() as patched:
        write_by(patched, full)
        with pytest.raises(errors.KafkaStorage):
            append(logs[1])
    assert offline == [("t", 1), ("t", 3)]
    assert append(logs[0]) == 3
    with pytest.raises(errors.KafkaStorage):
        append(logs[3])
    described = [(Path(each.path).name, each.failure is None, len(each.replicas)) for each in disk.manager.dirs()]
    assert described == [("a", True, 2), ("b", False, 2)]
    new = disk.log(index=4)
    assert "t-4" in os.listdir(disk.path) and append(new) == 0
    with pytest.raises(errors.KafkaStorage):
        disk.log(index=3).read(0, MAX, 3, True)
    disk.manager.delete("t", 3)  # a directory that is offline is left alone
    assert "t-3" in os.listdir(disk.paths[1])
    disk.manager.close()
    assert [(path / ".kafka_cleanshutdown").exists() for path in disk.paths] == [True, False]
    disk.start()
    assert content(disk.log(index=3)) == [(0, b"a"), (1, b"b"), (2, b"c")]
    disk.manager.close()


def test_a_directory_that_cannot_be_used_is_offline_from_the_start(tmp_path):
    (tmp_path / "file").write_text("no directory")
    disk = Disk(tmp_path / "file", tmp_path / "good")
    assert append(disk.log()) == 0
    assert [each.failure is None for each in disk.manager.dirs()] == [False, True]
    disk.manager.close()
    with pytest.raises(errors.KafkaStorage, match=r"exists|Not a directory"):
        Disk(tmp_path / "file")


def test_a_file_that_may_not_grow_is_a_disk_error_of_the_short_way_too(disk):
    """The system itself writes a part of the batch, and then says no."""
    log = disk.log()
    append(log)
    size = log.segments[-1].size
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, unlimited[1]))
    try:
        with pytest.raises(errors.KafkaStorage, match="File too large"):
            append(log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        signal.signal(signal.SIGXFSZ, handler)
    assert log.end_offset == 3 and log.segments[-1].path(".log").stat().st_size == size


# ---- a clean shutdown


def test_a_clean_shutdown_syncs_only_what_is_not_on_the_disk(disk, monkeypatch):
    for index in range(20):
        disk.log("empty", index).begin_epoch(0)
    append(disk.log("full"))
    synced, fsync = [], os.fsync

    def record(fd):
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), disk.path))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    disk.manager.close()
    assert {f"full-0/{0:020}.log", "recovery-point-offset-checkpoint.tmp"} <= set(synced)
    assert not [name for name in synced if name.startswith("empty")]
    assert synced[-1] == "."
    disk.start()
    for index in range(20):
        disk.log("empty", index)
    log = disk.log("full")
    synced.clear()
    disk.manager.close()
    assert not [name for name in synced if "-0" in name or name.startswith("empty")]
    disk.start()
    log = disk.log("full")
    log.begin_epoch(4)  # without a batch only its file knows of it
    synced.clear()
    disk.manager.close()
    assert "full-0/leader-epoch-checkpoint" in synced
    disk.start()
    log = disk.log("full")
    assert (log.epochs, content(log)) == ([(0, 0), (4, 3)], [(0, b"a"), (1, b"b"), (2, b"c")])
    append(log)
    synced.clear()
    disk.manager.close()
    assert f"full-0/{0:020}.log" in synced


def test_logs_are_placed_where_the_fewest_are_without_counting_them_all(tmp_path):
    class Counted(dict):
        def values(self):
            raise AssertionError("all logs are walked for one of them")

    disk = Disk(tmp_path / "a", tmp_path / "b")
    manager = disk.manager
    logs, manager.logs = manager.logs, Counted()
    for index in range(6):
        disk.log(index=index)
    assert [log_dir.held for log_dir in manager.directories] == [3, 3]
    for index in (0, 2, 4):
        manager.delete("t", index)
    assert [log_dir.held for log_dir in manager.directories] == [0, 3]
    for index in range(6, 9):
        disk.log(index=index)
    assert [log_dir.held for log_dir in manager.directories] == [3, 3]
    manager.delete("t", 1)
    logs.update(manager.logs)
    manager.logs = logs
    manager.close()
    assert [log_dir.held for log_dir in manager.directories] == [0, 0]
