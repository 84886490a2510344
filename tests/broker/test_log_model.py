"""Any sequence of appends, truncations, deletions, restarts and crashes, in memory and on disk, against a list."""

import logging
import os
import shutil
import tempfile
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from logs import FAST_DIRECTORY, Disk, append, batches_in, content, topic_config

from kafkacore import errors
from kafkacore.broker.log import Log
from tests.kit.batches import T0, batch
from tests.kit.reached import Reached

SMALL = {"segment_bytes": 900, "index_interval_bytes": 150, "file_delete_delay_ms": 0}


class LogMachine(RuleBasedStateMachine):
    """Rows of the model: (base offset, last offset, values, timestamp, epoch), one per batch."""

    on_disk = False
    reached = Reached(
        "truncated inside a batch",
        "truncated below the start",
        "truncated into a gap",
        "started beyond the end",
        "the start moved into a batch",
        "a whole segment deleted for its size",
        "a batch cut off at the end of what a leader sent",
        "read from inside a batch",
        "read only a part for its size",
        "read up to a bound",
        "a time that an older record behind newer ones does not have",
        "a time in a batch that begins below the start",
        "the newest record below the start",
    )

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, int, list[bytes], int, int]] = []
        self.start = self.end = self.epoch = self.serial = 0
        self.truncated_inside = False
        self.sync = mock.patch("os.fsync", lambda fd: None)  # nobody cuts the power here
        self.sync.start()
        self.path = tempfile.mkdtemp(dir=FAST_DIRECTORY)

    def teardown(self) -> None:
        self.sync.stop()
        if self.on_disk:
            self.disk.manager.close(clean=False)
        shutil.rmtree(self.path)

    @initialize()
    def begin(self) -> None:
        if self.on_disk:
            self.disk = Disk(self.path)
            self.log = self.disk.log(**SMALL)
        else:
            self.log = Log(topic_config(**SMALL))

    def fill(self) -> None:
        """Batches of several segments, with gaps, so that what follows has something to act on."""
        while len(self.rows) < 6:
            self.append(3, self.serial % 4, "none")
            self.append_replicated([2], 2, 0)

    def values(self, count: int) -> list[bytes]:
        self.serial += 1
        return [b"%d-%d" % (self.serial, nth) + b"." * (self.serial % 90) for nth in range(count)]

    @rule(count=st.integers(1, 6), time=st.integers(0, 5), codec=st.sampled_from(["none", "lz4"]))
    def append(self, count: int, time: int, codec: str) -> None:
        values = self.values(count)
        fields = {"timestamps_ms": [T0 + time] * count, "compression": codec, "producer_id": 9, "sequence": self.serial}
        assert append(self.log, values, self.epoch, **fields) == self.end
        self.rows.append((self.end, self.end + count - 1, values, T0 + time, self.epoch))
        self.end += count
        self.truncated_inside = False

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=8), gap=st.integers(0, 3), torn=st.integers(0, 60))
    def append_replicated(self, counts: list[int], gap: int, torn: int) -> None:
        """What a leader's compacted log would send, cut off in a batch."""
        data, offset = b"", self.end
        for count in counts:
            offset += gap
            values = self.values(count)
            one = bytearray(batch(values, timestamps_ms=[T0] * count))
            one[0:8] = offset.to_bytes(8, "big")
            one[12:16] = self.epoch.to_bytes(4, "big")
            data += one
            self.rows.append((offset, offset + count - 1, values, T0, self.epoch))
            offset += count
        self.end = offset
        self.truncated_inside = False
        self.reached("a batch cut off at the end of what a leader sent", torn)
        cut = bytes(batch([b"cut"]))
        assert self.log.append_replicated(data + cut[: min(torn, len(cut) - 1)], T0) == self.end

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 25))
    def truncate(self, back: int) -> None:
        self.fill()
        offset = max(self.end - back, 0)
        self.reached("truncated inside a batch", any(row[0] < offset <= row[1] for row in self.rows))
        self.reached("truncated below the start", offset < self.start)
        self.reached("truncated into a gap", any(row[1] < offset - 1 and later[0] > offset for row, later in pairwise(self.rows)))
        changed = self.log.truncate_to(offset)
        assert changed == (offset < self.end)
        if not changed:
            return
        self.rows = [row for row in self.rows if row[1] < offset]
        self.truncated_inside = True
        self.end = offset
        self.start = min(self.start, offset)

    @rule(ahead=st.integers(0, 50))
    def start_anew(self, ahead: int) -> None:
        self.reached("started beyond the end", ahead)
        self.start = self.end = self.end + ahead
        self.rows = []
        self.truncated_inside = False
        self.log.truncate_fully_and_start_at(self.end)

    @rule(ahead=st.integers(0, 25), time=st.integers(-1, 2))
    def advance_start(self, ahead: int, time: int) -> None:
        self.fill()
        offset = min(self.start + ahead, self.end)
        self.reached("the start moved into a batch", any(row[0] < offset <= row[1] for row in self.rows))
        self.log.advance_start(offset)
        self.start = offset
        self.look_up_a_time(time)

    @rule(keep=st.sampled_from([0, 500, 1000, 2000]))
    def retain(self, keep: int) -> None:
        self.fill()
        self.log.delete_old_segments(-1, keep, T0)
        assert self.log.start_offset >= self.start
        self.reached("a whole segment deleted for its size", self.log.start_offset > self.start)
        self.start = self.log.start_offset

    @precondition(lambda self: self.on_disk)
    @rule(how=st.sampled_from(["restart", "crash"]), before=st.sampled_from(["nothing", "truncate", "advance_start"]), by=st.integers(1, 4))
    def reopen(self, how: str, before: str, by: int) -> None:
        if before == "truncate":
            self.truncate(by)
        elif before == "advance_start":
            self.advance_start(by, 0)
        self.reached("opened again with a start inside a batch", any(row[0] < self.start <= row[1] for row in self.rows))
        self.reached("opened again after a truncation inside a batch", self.truncated_inside and self.rows)
        if how == "crash":
            self.disk.manager.checkpoint()  # a start in the middle of a segment is known from there only
        getattr(self.disk, how)()
        self.log = self.disk.log(**SMALL)
        # After a truncation inside a batch, or into a gap, nothing in the files says where the log ended: as in Kafka it ends with what is
        # there. Leaders and followers truncate between batches.
        there = max(self.start, self.log.segments[-1].base_offset, max((row[1] + 1 for row in self.rows), default=0))
        assert self.log.end_offset == (there if self.truncated_inside else self.end)
        self.end, self.truncated_inside = self.log.end_offset, False

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.recovery_point <= self.end

    @invariant()
    def everything_is_there(self) -> None:
        expected = [(row[0], row[1], row[2], row[4]) for row in self.rows if row[1] >= self.start]
        found = batches_in(self.log)
        assert [(b.base_offset, b.last_offset, [r.value for r in b.records()], b.leader_epoch) for b in found] == expected

    @rule(data=st.data())
    def read_somewhere(self, data: st.DataObject) -> None:
        self.fill()
        offset = data.draw(st.integers(self.start, self.end))
        max_bytes = data.draw(st.sampled_from([0, 100, 300, 1000, 2500]))
        got = batches_in(self.log, offset, max_bytes=max_bytes)
        wanted = [row for row in self.rows if row[1] >= offset]
        self.reached("read from inside a batch", wanted and wanted[0][0] < offset)
        self.reached("read only a part for its size", got and len(got) < len(wanted))
        assert [each.base_offset for each in got] == [row[0] for row in wanted[: len(got)]]
        assert sum(each.size_bytes for each in got[1:]) <= max_bytes
        assert bool(got) == bool(wanted)  # at least one
        upper = data.draw(st.sampled_from([row[0] for row in wanted] or [self.end]))
        below = [row for row in wanted if row[1] < upper]
        self.reached("read up to a bound", 0 < len(below) < len(wanted))
        sizes = [each.size_bytes for each in batches_in(self.log, offset, upper)]
        assert len(sizes) == len(below)
        assert self.log.bytes_between(offset, upper) == sum(sizes)

    @rule(time=st.integers(-1, 6))
    def look_up_a_time(self, time: int) -> None:
        expected = next(
            ((offset, row[3]) for row in self.rows for offset in range(row[0], row[1] + 1) if row[3] >= T0 + time and offset >= self.start),
            None,
        )
        if expected is not None:
            row = next(row for row in self.rows if row[0] <= expected[0] <= row[1])
            newer = [each for each in self.rows if each[0] > row[1]]
            self.reached("a time that an older record behind newer ones does not have", any(each[3] < T0 + time for each in newer))
            self.reached("a time in a batch that begins below the start", row[0] < self.start)
        found = self.log.offset_for_timestamp(T0 + time, self.end)
        assert (None if found is None else found[:2]) == expected

    @invariant()
    def the_newest_is_found(self) -> None:
        held = [row for row in self.rows if self.log.segments and row[0] >= self.log.segments[0].base_offset]
        self.reached("the newest record below the start", held and max(held, key=lambda row: row[3])[1] < self.start)
        found = self.log.max_timestamp(self.end)
        assert (None if found is None else found.timestamp_ms) == max((row[3] for row in held), default=None)


class DiskLogMachine(LogMachine):
    on_disk = True
    reached = Reached(
        *LogMachine.reached.branches,
        "opened again with a start inside a batch",
        "opened again after a truncation inside a batch",
    )


TestLogInMemory = LogMachine.reached.by(LogMachine, rounds=6)
TestLogInMemory.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)
TestLogOnDisk = DiskLogMachine.reached.by(DiskLogMachine, rounds=6)
TestLogOnDisk.settings = settings(max_examples=10, stateful_step_count=12, deadline=None)


# ---- damaged files


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    logger = logging.getLogger("kafkacore.broker.log")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)  # other tests read what is logged


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=30),
    st.integers(0, 30),
    st.sampled_from(["cut", "flip", "zeros", "garbage", "index", "remove"]),
    st.data(),
)
def test_recovery_keeps_what_was_synced_and_a_prefix_of_the_rest(counts, synced_batches, damage, data):
    """The power goes: everything up to the last fsync is on the disk, behind it files end anywhere or hold anything."""
    with tempfile.TemporaryDirectory(dir=FAST_DIRECTORY) as path:
        disk = Disk(path)
        log = disk.log(**SMALL)
        rows = []
        for nth, count in enumerate(counts):
            values = [b"%d/%d" % (nth, each) + b"v" * 60 for each in range(count)]
            rows.append((append(log, values, nth // 7), values))
            if nth + 1 == synced_batches:
                log.flush()
        safe_offset = log.recovery_point  # segments that ended are synced by themselves
        synced = sum(base < safe_offset for base, _ in rows)
        # Of the segments written since, and of the part of the last synced one behind that.
        places = [
            (segment.path(".log"), segment.position_of(safe_offset) if segment.base_offset <= safe_offset else 0, segment.size)
            for segment in log.segments
            if segment is log.segments[-1] or log.segments[log.segments.index(segment) + 1].base_offset > safe_offset
        ]
        disk.manager.checkpoint()
        disk.die()
        file, first, size = data.draw(st.sampled_from(places))
        damage_file(file, first, size, damage, data)
        disk.start()
        log = disk.log(**SMALL)
        found = [(each.base_offset, [record.value for record in each.records()]) for each in batches_in(log, 0)]
        assert found == rows[: len(found)]
        assert len(found) >= synced
        assert log.end_offset == (rows[len(found)][0] if len(found) < len(rows) else rows[-1][0] + len(rows[-1][1]))
        base = append(log, [b"after"], 99)
        assert content(log, base) == [(base, b"after")]
        disk.restart()
        assert disk.log(**SMALL).end_offset == base + 1
        disk.manager.close(clean=False)


def damage_file(file, first, size, damage, data) -> None:
    position = data.draw(st.integers(first, size))
    if damage == "remove":
        for suffix in (".index", ".timeindex"):
            file.with_suffix(suffix).unlink(missing_ok=True)
    elif damage == "index":
        file.with_suffix(".index").write_bytes(data.draw(st.binary(max_size=64)))
        file.with_suffix(".timeindex").write_bytes(data.draw(st.binary(max_size=64)))
    elif damage == "cut":
        os.truncate(file, position)
    else:
        with file.open("r+b") as opened:
            found = opened.read()
            if damage == "flip":
                if position < len(found) and not is_outside_crc(found, position):
                    opened.seek(position)
                    opened.write(bytes([found[position] ^ (1 << data.draw(st.integers(0, 7)))]))
            else:
                opened.seek(position)
                opened.write(bytes(len(found) - position) if damage == "zeros" else data.draw(st.binary(max_size=300)))
                if damage == "garbage":
                    opened.truncate()


def is_outside_crc(data: bytes, position: int) -> bool:
    """The leader epoch and the base offset's high bytes are covered by no checksum; Kafka cannot see damage there either."""
    at = 0
    while at + 12 <= position:
        length = int.from_bytes(data[at + 8 : at + 12], "big")
        if position < at + 12 + length:
            return position - at < 8 or 12 <= position - at < 16
        at += 12 + length
    return True


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_as_index_snapshot_or_checkpoint_do_no_harm(noise):
    with tempfile.TemporaryDirectory(dir=FAST_DIRECTORY) as path:
        disk = Disk(path)
        log = disk.log(**SMALL)
        for nth in range(5):
            append(log, [b"v" * 200], producer_id=1, sequence=nth)
        disk.manager.close()
        for name in os.listdir(f"{path}/t-0"):
            if not name.endswith((".log", "partition.metadata")):
                with open(f"{path}/t-0/{name}", "wb") as file:
                    file.write(noise)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
            with open(f"{path}/{name}", "wb") as file:
                file.write(noise)
        disk.start()
        log = disk.log(**SMALL)
        assert [each.base_offset for each in batches_in(log)] == [0, 1, 2, 3, 4]
        assert log.offset_for_timestamp(T0, 5).offset == 0
        disk.manager.close(clean=False)


def test_a_replicated_batch_that_lies_before_the_end_is_refused():
    log = Log(topic_config())
    data = bytes(batch([b"a", b"b"]))
    assert log.append_replicated(data, T0) == 2
    with pytest.raises(errors.OffsetOutOfRange):
        log.append_replicated(data, T0)
    broken = bytearray(batch([b"c"]))
    broken[0:8], broken[-1] = (2).to_bytes(8, "big"), broken[-1] ^ 1
    with pytest.raises(errors.CorruptDataError):
        log.append_replicated(bytes(broken), T0)
    assert log.end_offset == 2
