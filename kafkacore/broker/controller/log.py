"""The metadata log on disk, `__cluster_metadata-0`: what the controller decided, in Kafka's file format.

    <directory>/meta.properties                 cluster.id, node.id
    <directory>/__cluster_metadata-0/*.log          one batch per decision, one record per fact
    <directory>/__cluster_metadata-0/*.checkpoint   snapshots

`DumpLogSegments --cluster-metadata-decoder` reads it. The controller loads the newest snapshot that is whole, and replays what follows.
A decision is about 60 bytes for each partition that changes; after metadata.log.max.record.bytes.between.snapshots, or with the first
decision after metadata.log.max.snapshot.interval.ms, a snapshot is taken and a new segment begins. When log and snapshots have more bytes
or are older than metadata.max.retention says, the oldest snapshot goes, and with it the segments below the next one. Like all logs this
one is synced to the disk as flush.messages and flush.ms say, by default when it is closed; snapshots are synced at once.

A directory may come from a Kafka and go back to one. Its quorum's epochs go on: what is written here is of an epoch behind the last one
that a Kafka voted in (`quorum-state`), as if this controller had been elected, so that another voter finds where its log ends.

Source: org.apache.kafka.raft.KafkaRaftClient, kafka.raft.KafkaMetadataLog, org.apache.kafka.image.publisher.SnapshotGenerator.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kafkacore.broker.controller.replay import Replay
from kafkacore.broker.controller.snapshots import Snapshot, SnapshotId, Snapshots
from kafkacore.broker.log import Log, LogManager
from kafkacore.broker.log.checkpoints import META_PROPERTIES, read_meta_properties
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.broker.worker import InlineWorker
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import CorruptDataError, KafkaError, RecordTooLarge, UsageError
from kafkacore.protocol.metadata_log import MetadataRecord, encode_record
from kafkacore.records import BatchBuilder, read_batches

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
CONTROLLER_ID = 3000
"""Node id of the controller; clients never see it."""
LEADER_EPOCH = 1
"""Of a log that no Kafka has led."""
logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_MAX_BATCH_BYTES = 64 << 20
_QUORUM_STATE = "quorum-state"


class MetadataLog:
    """The log and its directory.

    Attributes:
        cluster_id: of the cluster.
        epoch: in which this controller writes.
        replay: what was read of the log, and whether a Kafka left a transaction open in it.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, config: BrokerConfig, clock: Clock, new_cluster_id: str) -> None:
        """Takes the directory and recovers the log.

        Args:
            directory: for the log; made if necessary. None keeps the log in memory, from its first record on, without snapshots.
            config: segments, indexes, flushes.
            clock: for the batches' timestamps.
            new_cluster_id: the cluster's id if the directory is new.

        Raises:
            UsageError: the directory is in use, or not a controller's.
            KafkaStorage: it cannot be used.
        """
        found = {} if directory is None else read_meta_properties(Path(directory) / META_PROPERTIES)
        self.cluster_id = found.get("cluster.id", new_cluster_id)
        self.snapshots: Snapshots | None = None
        self._clock = clock
        self._logs = LogManager(config, None if directory is None else [directory], InlineWorker(), clock)
        self._config = config
        self._bytes_since_snapshot = 0
        self._snapshot_ms = clock.now_ms()
        self._last_timestamp_ms = 0
        self.epoch = LEADER_EPOCH
        self.replay = Replay()
        self._node_id = found.get("node.id", str(CONTROLLER_ID))  # a Kafka's controller has its own
        self.open()

    def open(self) -> None:
        """Takes the directory and recovers the log, at first and after `close`; nothing happens if it is open.

        Raises:
            UsageError, KafkaStorage: as in the constructor.
        """
        if not self._logs.on_disk:
            self.log = self._open_log()
        elif not self._logs.is_open:
            self._logs.start({"cluster.id": self.cluster_id, "node.id": self._node_id})
            self.log = self._open_log()
            path = self._logs.directories[0].path / f"{METADATA_TOPIC}-0"
            with self._logs.directories[0].io():
                self.snapshots = Snapshots(path)
                voted = _voted_epoch(path / _QUORUM_STATE)
            written = [epoch for epoch, _ in self.log.epochs[-1:]] + [each.epoch for each in self.snapshots.ids]
            self.epoch = max(LEADER_EPOCH, voted + 1, *written)

    def _open_log(self) -> Log:
        settings = {
            "segment.bytes": str(self._config.metadata_log_segment_bytes),
            "segment.ms": str(self._config.metadata_log_segment_ms),
            "file.delete.delay.ms": "0",  # no loop here would delete them later
        }
        return self._logs.open(METADATA_TOPIC, METADATA_TOPIC_ID, 0, TopicConfig.build(settings, self._config))

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Writes the records of one decision as one batch.

        Raises:
            KafkaStorage, RecordTooLarge: they are not in the log.
        """
        wall_ms = self._clock.wall_ms()
        builder = BatchBuilder(max_bytes=_MAX_BATCH_BYTES)
        for record in records:
            if not builder.append(encode_record(record), timestamp_ms=wall_ms):
                raise RecordTooLarge(f"{len(records)} records of one decision do not fit a batch of {_MAX_BATCH_BYTES} bytes")
        batch = next(iter(read_batches(builder.build(), check_crcs=False)))
        self.log.append(batch, self.epoch, wall_ms=wall_ms)
        self._bytes_since_snapshot += batch.size_bytes
        self._last_timestamp_ms = wall_ms

    # ---- snapshots

    def load_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is whole; None without one. `batches` then goes on behind it.

        Raises:
            CorruptDataError: the records before the log's beginning are in no snapshot.
            KafkaStorage: the disk fails.
        """
        if self.snapshots is None:
            return None
        log_dir = self._logs.directories[0]
        with log_dir.io():
            snapshot = self.snapshots.load_newest(self.log.start_offset)
        if snapshot is None:
            if self.log.start_offset:
                raise CorruptDataError(
                    f"the metadata log in {log_dir.path} begins at offset {self.log.start_offset}, and no snapshot has the records before"
                )
            return None
        self.replay.quorum.update(snapshot.quorum)
        if self.log.end_offset < snapshot.id.end_offset:  # a loss of power: the snapshot was synced, the end of the log was not
            self.log.truncate_fully_and_start_at(snapshot.id.end_offset)
        return snapshot

    def snapshot_is_due(self) -> bool:
        """Whether there is more to replay than there should be. Source: SnapshotGenerator.maybeScheduleEmit."""
        if self.snapshots is None:
            return False
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        if self._bytes_since_snapshot >= self._config.metadata_log_max_record_bytes_between_snapshots:
            return True
        return bool(interval_ms and self._bytes_since_snapshot) and self._clock.now_ms() - self._snapshot_ms >= interval_ms

    def take_snapshot(self, records: Iterable[MetadataRecord]) -> None:
        """Writes the state at the end of the log, and deletes what is no longer kept. If that fails the log has all that is needed, and
        the next try comes when the next snapshot is due.

        Args:
            records: the state.
        """
        if self.snapshots is None:
            raise UsageError("a metadata log in memory has no snapshots")
        self._bytes_since_snapshot, self._snapshot_ms = 0, self._clock.now_ms()
        try:
            self.log.roll(self._clock.wall_ms())
            self.snapshots.write(SnapshotId(self.log.end_offset, self.epoch), records, self._last_timestamp_ms, self.replay.quorum)
            self._apply_retention(self.snapshots)
        except (OSError, KafkaError) as error:
            logger.error("no snapshot of the metadata log at offset %d: %s", self.log.end_offset, error)

    def _apply_retention(self, snapshots: Snapshots) -> None:
        """Source: KafkaMetadataLog.maybeClean."""
        config, wall_ms = self._config, self._clock.wall_ms()
        while len(snapshots.ids) > 1:
            oldest, following = snapshots.ids[:2]
            too_large = 0 <= config.metadata_max_retention_bytes < self.log.size_bytes + snapshots.size_bytes()
            too_old = 0 <= config.metadata_max_retention_ms < wall_ms - snapshots.written_ms(oldest)
            if not too_large and not too_old:
                return
            self.log.advance_start(following.end_offset)
            snapshots.delete(oldest)

    # ---- reading

    def batches(self, from_offset: int = 0) -> Iterator[tuple[int, list[MetadataRecord]]]:
        """What was written: batch for batch, the offset of what follows it, and the records that count once it is read.

        Args:
            from_offset: between two batches.

        Raises:
            CorruptDataError, UnsupportedVersion: a record cannot be read, and without it the rest means nothing.
        """
        offset = max(from_offset, self.log.start_offset)
        while offset < self.log.end_offset:
            for piece in self.log.read(offset, _READ_BYTES, self.log.end_offset, at_least_one=True):
                data = piece if isinstance(piece, memoryview) else piece.read()
                for batch in read_batches(data):
                    self._bytes_since_snapshot += batch.size_bytes
                    self._last_timestamp_ms = batch.max_timestamp_ms
                    offset = batch.last_offset + 1
                    yield offset, self.replay.batch(batch)

    def close(self) -> None:
        """Writes everything to the disk and gives the directory back."""
        self._logs.close()


def _voted_epoch(path: Path) -> int:
    """The last epoch a Kafka's quorum knew of; 0 if no Kafka was here. Source: org.apache.kafka.raft.FileQuorumStateStore."""
    try:
        return int(json.loads(path.read_text())["leaderEpoch"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s is not readable and is ignored: %s", path, error)
        return 0
