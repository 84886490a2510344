"""Snapshots of the metadata log: the state that the records up to an offset have made, as records, in a file of its own.

    00000000000000000123-0000000001.checkpoint      records below offset 123, in leader epoch 1
        control batch     SnapshotHeaderRecord: when the last record that it replaces was written; a Kafka's voters, where it left any
        batches           the state, offsets from 1 on
        control batch     SnapshotFooterRecord: it is whole

The files lie beside the log's segments, as Kafka's do, and `DumpLogSegments --cluster-metadata-decoder` reads them. One is written under
another name, synced and then renamed; whatever is wrong with one that is found (torn, changed, unreadable) makes it count as absent.

Source: org.apache.kafka.snapshot.{Snapshots, RecordsSnapshotWriter, RecordsSnapshotReader}, kafka.raft.KafkaMetadataLog.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kafkacore.broker.controller.replay import CONTROL_KEY, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, Replay
from kafkacore.broker.log.disk import sync_file
from kafkacore.errors import CorruptDataError, KafkaError
from kafkacore.private_files import open_file
from kafkacore.protocol.metadata_log import MetadataRecord, encode_record
from kafkacore.protocol.stored import SnapshotFooterRecord, SnapshotHeaderRecord
from kafkacore.records import BatchBuilder, read_batches

logger = logging.getLogger(__name__)

SUFFIX = ".checkpoint"
_PART = ".part"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
_BATCH_BYTES = 1 << 20
_FIRST_BYTES = 4096


class SnapshotId(NamedTuple):
    """The name of a snapshot: the log up to an offset, written in an epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


class Snapshot(NamedTuple):
    """What a snapshot holds: the state, and what a Kafka's quorum needs (as `Replay.quorum`)."""

    id: SnapshotId
    records: list[MetadataRecord]
    quorum: dict[int, bytes]


def encode_snapshot(
    records: Iterable[MetadataRecord], epoch: int, last_timestamp_ms: int, quorum: Mapping[int, bytes] | None = None
) -> Iterator[memoryview]:
    """The batches of a snapshot.

    Args:
        records: the state.
        epoch: of the snapshot.
        last_timestamp_ms: when the last record of the log that it replaces was written.
        quorum: control records by type, as `Replay.quorum`.
    """
    offset = 0

    def batch(is_control: bool = False) -> BatchBuilder:
        return BatchBuilder(max_bytes=_BATCH_BYTES, base_offset=offset, leader_epoch=epoch, is_control=is_control)

    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)
    footer = SnapshotFooterRecord()
    control = batch(is_control=True)
    heads = {SNAPSHOT_HEADER: b"".join(header.encode(0)), **dict(sorted((quorum or {}).items()))}
    for kind, value in heads.items():
        control.append(value, key=CONTROL_KEY.pack(0, kind), timestamp_ms=last_timestamp_ms)
    yield control.build()
    offset += len(heads)
    builder, count = batch(), 0
    for record in records:
        value = encode_record(record)
        if not builder.append(value, timestamp_ms=last_timestamp_ms):
            yield builder.build()
            offset += count
            builder, count = batch(), 0
            builder.append(value, timestamp_ms=last_timestamp_ms)  # the first one always fits
        count += 1
    if count:
        yield builder.build()
        offset += count
    control = batch(is_control=True)
    control.append(b"".join(footer.encode(0)), key=CONTROL_KEY.pack(0, SNAPSHOT_FOOTER), timestamp_ms=last_timestamp_ms)
    yield control.build()


def decode_snapshot(data: memoryview | bytes, replay: Replay | None = None) -> list[MetadataRecord]:
    """The records of a whole snapshot.

    Args:
        data: the file.
        replay: takes what control batches say of a Kafka's quorum.

    Raises:
        CorruptDataError: it is torn, or something else.
        UnsupportedVersion: it holds a record of a newer Kafka.
    """
    replay = replay or Replay()
    found: list[MetadataRecord] = []
    ended, position, offset = False, 0, 0
    for batch in read_batches(data):
        if batch.base_offset != offset or ended:
            raise CorruptDataError(f"a snapshot has a batch at offset {batch.base_offset} where {offset} or its end should be")
        kind = _control_type(batch.control_type, first=not position)
        found += replay.batch(batch)
        ended = kind == SNAPSHOT_FOOTER
        position += batch.size_bytes
        offset = batch.last_offset + 1
    if not ended or position != len(data):
        raise CorruptDataError(f"a snapshot of {len(data)} bytes has no footer at its end")
    return found


def _control_type(kind: int | None, first: bool) -> int | None:
    if first != (kind == SNAPSHOT_HEADER):
        raise CorruptDataError("a snapshot begins with its header, and has one")
    return kind


class Snapshots:
    """The snapshots in the directory of a log.

    Attributes:
        directory: of the log.
        ids: those that count, the oldest first.
    """

    def __init__(self, directory: Path) -> None:
        """Finds the files, and removes what a crash left of one that was being written.

        Raises:
            OSError: the directory cannot be read.
        """
        self.directory = directory
        found = []
        for name in os.listdir(directory):
            match = _NAME.fullmatch(name)
            if match is not None:
                found.append(SnapshotId(int(match[1]), int(match[2])))
            elif name.endswith(SUFFIX + _PART):
                (directory / name).unlink()
        self.ids = sorted(found)
        self._times: dict[SnapshotId, int] = {}

    def path(self, snapshot: SnapshotId) -> Path:
        """Of its file."""
        return self.directory / snapshot.file_name

    def load_newest(self, usable_from: int) -> Snapshot | None:
        """The newest that can be read; newer ones that cannot do not count any more.

        Args:
            usable_from: where the log begins: an older snapshot would leave a gap.

        Raises:
            OSError: the disk fails.
        """
        while self.ids and self.ids[-1].end_offset >= usable_from:
            newest = self.ids[-1]
            try:
                replay = Replay()
                return Snapshot(newest, decode_snapshot(self.path(newest).read_bytes(), replay), replay.quorum)
            except KafkaError as error:
                logger.error("snapshot %s cannot be used: %s", self.path(newest), error)
                self.ids.pop()
        return None

    def write(
        self, snapshot: SnapshotId, records: Iterable[MetadataRecord], last_timestamp_ms: int, quorum: Mapping[int, bytes] | None = None
    ) -> int:
        """Writes one; after a crash it is there as a whole or not at all.

        Args:
            snapshot: its name.
            records, last_timestamp_ms, quorum: as in `encode_snapshot`.

        Returns:
            Its size.

        Raises:
            OSError: it is not there.
        """
        path = self.path(snapshot)
        temporary = path.with_name(path.name + _PART)
        try:
            with open_file(temporary, "wb") as file:
                for batch in encode_snapshot(records, snapshot.epoch, last_timestamp_ms, quorum):
                    file.write(batch)
                size = file.tell()
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_file(self.directory)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.ids = sorted({*self.ids, snapshot})
        self._times[snapshot] = last_timestamp_ms
        return size

    def delete(self, snapshot: SnapshotId) -> None:
        """Removes one.

        Raises:
            OSError: it is still there.
        """
        self.path(snapshot).unlink(missing_ok=True)
        self.ids.remove(snapshot)

    def size_bytes(self) -> int:
        """Of all files."""
        return sum(self.path(each).stat().st_size for each in self.ids)

    def written_ms(self, snapshot: SnapshotId) -> int:
        """When the last record that a snapshot replaces was written, by its header; 0 if that cannot be read."""
        if snapshot not in self._times:
            self._times[snapshot] = 0
            with self.path(snapshot).open("rb") as file:
                first = next(iter(read_batches(file.read(_FIRST_BYTES), check_crcs=False)), None)
            if first is not None:
                self._times[snapshot] = max(first.max_timestamp_ms, 0)
        return self._times[snapshot]

    def read(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Bytes of a snapshot from a position on, none where it has none, and the size of its file.

        Raises:
            OSError: it cannot be read.
        """
        with self.path(snapshot).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 <= position < size:
                return b"", size
            file.seek(position)
            return file.read(max(0, min(max_bytes, size - position))), size
