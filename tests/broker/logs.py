"""Logs on disk for the broker's tests, without a broker."""

import dataclasses
import os
from pathlib import Path

from kafkacore.broker.log import Log, LogManager, disk
from kafkacore.broker.log.headers import stamped
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.broker.worker import InlineWorker
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from tests.kit.batches import T0

DEFAULTS = TopicConfig.build({}, BrokerConfig())
TOPIC_ID = bytes(range(16))
FAST_DIRECTORY = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
"""For files that need not outlive a test, without waiting for a disk; None for the usual place."""


def topic_config(**settings) -> TopicConfig:
    """Topic settings, small ones too that a broker would refuse."""
    return dataclasses.replace(DEFAULTS, **settings)


def write_by(monkeypatch, write) -> None:
    """Has every write to a log go through a function in the place of the system call: write(fd, pieces, position) -> bytes written."""

    def write_batch(segment, batch, base_offset, leader_epoch):
        return segment.write(stamped(batch, base_offset, leader_epoch, batch.max_timestamp_ms, None), batch.size_bytes)

    monkeypatch.setattr(disk, "write_at", write)
    monkeypatch.setattr(disk.DiskSegment, "write_batch", write_batch)


class Disk:
    """A log manager over one directory, with clock and worker by hand."""

    def __init__(self, path: Path, broker: BrokerConfig | None = None) -> None:
        self.path = Path(path)
        self.broker = broker or BrokerConfig()
        self.clock = ManualClock(wall_ms=T0)
        self.start()

    def start(self) -> None:
        self.manager = LogManager(self.broker, [self.path], InlineWorker(), self.clock)
        self.manager.start({"cluster.id": "test", "node.id": "1"})

    def log(self, topic: str = "t", index: int = 0, **settings) -> Log:
        return self.manager.open(topic, TOPIC_ID, index, topic_config(**settings))

    def restart(self) -> None:
        self.manager.close()
        self.start()

    def crash(self) -> None:
        """The process dies; what it wrote is in the files, what it meant to write is not."""
        for log in self.manager.logs.values():
            log.close()
        self.manager._unlock()
        self.start()
