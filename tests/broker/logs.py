"""Logs for the broker's tests, on disk and in memory, without a broker."""

import contextlib
import dataclasses
import os
from pathlib import Path

from kafkacore import records
from kafkacore.broker.log import Log, LogManager, disk, read_one_batch
from kafkacore.broker.log.headers import stamped
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.broker.worker import InlineWorker
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from tests.kit.batches import T0, batch

DEFAULTS = TopicConfig.build({}, BrokerConfig())
TOPIC_ID = bytes(range(16))
MAX = 1 << 20
FAST_DIRECTORY = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
"""For files that need not outlive a test, without waiting for a disk; None for the usual place."""


def topic_config(**settings) -> TopicConfig:
    """Topic settings, small ones too that a broker would refuse."""
    return dataclasses.replace(DEFAULTS, **settings)


def append(log, values=(b"a", b"b", b"c"), epoch=0, append_time_ms=None, wall_ms=T0, producer_epoch=0, **fields) -> int:
    """A leader's write of one batch; its first offset."""
    made = batch(values, epoch=producer_epoch if "producer_id" in fields else -1, **fields)
    return log.append(read_one_batch(made, MAX), epoch, append_time_ms, wall_ms=wall_ms)


def batches_in(log, offset=None, upper=None, max_bytes=1 << 30) -> list[records.Batch]:
    """What a read gives, each batch with a look at its checksum."""
    pieces = log.read(log.start_offset if offset is None else offset, max_bytes, log.end_offset if upper is None else upper, True)
    buffers = [piece if isinstance(piece, memoryview) else piece.read() for piece in pieces]
    return [each for buffer in buffers for each in records.read_batches(buffer, check_crcs=True)]


def content(log, offset=None, upper=None) -> list[tuple[int, bytes]]:
    """Offsets and values."""
    return [(record.offset, record.value) for each in batches_in(log, offset, upper) for record in each.records()]


def write_by(monkeypatch, write) -> None:
    """Has every write to a log go through a function in the place of the system call: write(fd, pieces, position) -> bytes written."""

    def write_batch(segment, batch, base_offset, leader_epoch):
        return segment.write(stamped(batch, base_offset, leader_epoch, batch.max_timestamp_ms, None), batch.size_bytes)

    monkeypatch.setattr(disk, "write_at", write)
    monkeypatch.setattr(disk.DiskSegment, "write_batch", write_batch)


def full(fd, pieces, position):
    """For `write_by`: no write succeeds."""
    raise OSError(28, "No space left on device")


class HeldWorker(InlineWorker):
    """A worker that works at once until a test holds it: then each job waits, or where `outcomes` are held, what came of it."""

    def __init__(self, *, jobs=False, outcomes=False) -> None:
        super().__init__()
        self.jobs, self.outcomes, self.waiting, self.found = jobs, outcomes, [], []

    def submit(self, work, done) -> None:
        if self.jobs:
            self.waiting.append(lambda: InlineWorker.submit(self, work, done))
        elif self.outcomes:
            InlineWorker.submit(self, work, self.found.append)
            self.waiting.append(lambda outcome=self.found[-1]: done(outcome))
        else:
            super().submit(work, done)

    def release(self) -> None:
        """What waits comes about, and what comes later does at once."""
        self.jobs = self.outcomes = False
        while self.waiting:
            self.waiting.pop(0)()


class Disk:
    """A log manager over directories, or without any in memory; clock, worker and cleaner are in the test's hands."""

    def __init__(self, *paths: Path | str, **config) -> None:
        self.paths = [Path(path) for path in paths]
        self.config = BrokerConfig(**config)
        self.clock = ManualClock(wall_ms=T0)
        self.worker, self.cleaner = HeldWorker(), HeldWorker()
        self.start()

    def start(self) -> None:
        self.manager = LogManager(self.config, self.paths or None, self.worker, self.clock, self.cleaner)
        if self.paths:
            self.manager.start({"cluster.id": "test", "node.id": "1"})

    @property
    def path(self) -> Path:
        """The first directory."""
        return self.paths[0]

    def log(self, topic: str = "t", index: int = 0, **settings) -> Log:
        return self.manager.open(topic, TOPIC_ID, index, topic_config(**settings))

    def open_logs(self) -> set[str]:
        """The files of segments that this process holds open."""
        links = set()
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.add(os.readlink(f"/proc/self/fd/{fd}"))
        mine = [link for path in self.paths for link in links if link.startswith(f"{path}/") and ".log" in link]
        return {os.path.basename(link) for link in mine}

    def advance(self, ms: int) -> None:
        """Time passes; what is due is done."""
        self.clock.advance(ms)
        self.manager.advance_clock()

    def restart(self) -> None:
        self.manager.close()
        self.start()

    def die(self) -> None:
        """The process dies; what it wrote is in the files, what it meant to write is not."""
        self.manager.close(clean=False)

    def crash(self) -> None:
        """It dies, and starts again."""
        self.die()
        self.start()
