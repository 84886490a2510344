"""The small text files of a log directory.

    recovery-point-offset-checkpoint, replication-offset-checkpoint (high watermarks), log-start-offset-checkpoint,
    cleaner-offset-checkpoint:
        0            version
        2            entries
        topic 0 17   topic, partition, offset
    leader-epoch-checkpoint, one per partition, with lines of epoch and first offset
    partition.metadata, one per partition: "version: 0" and "topic_id: " with the id in base64
    meta.properties: version=1, cluster.id, node.id, directory.id
    .kafka_cleanshutdown: there after a clean shutdown, gone while a broker uses the directory

Each is replaced as a whole, by renaming a new one. Recovery can do without all of them but partition.metadata; one that cannot be read
counts as absent, and a line in the log says so.

Source: org.apache.kafka.server.common.CheckpointFile, org.apache.kafka.storage.internals.checkpoint.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkacore.broker.log.disk import sync_file, write_whole
from kafkacore.private_files import open_file

logger = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

Partition = tuple[str, int]


def _write_lines(path: Path, lines: Iterable[str], *, sync: bool) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if not sync:
        write_whole(path, text.encode())
        return
    temporary = path.with_name(path.name + ".tmp")
    with open_file(temporary, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_file(path.parent)


def _read_entries(path: Path, fields: int) -> list[list[str]]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    if not lines:
        return []                                             # a Kafka makes the file before it has anything to write
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [line.rsplit(" ", fields - 1) for line in lines[2:] if line]
        if version != 0 or count != len(entries) or any(len(entry) != fields for entry in entries):
            raise ValueError
    except (IndexError, ValueError):
        logger.warning("%s is not readable and is ignored", path)
        return []
    return entries


def write_offsets(path: Path, offsets: Mapping[Partition, int], *, sync: bool = True) -> None:
    """Writes a checkpoint of one offset per partition.

    Raises:
        OSError: it could not be written.
    """
    lines = (f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items()))
    _write_lines(path, ["0", str(len(offsets)), *lines], sync=sync)


def read_offsets(path: Path) -> dict[Partition, int]:
    """The offsets of a checkpoint; {} if the file does not exist or cannot be read."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in _read_entries(path, 3)}
    except ValueError:
        logger.warning("%s is not readable and is ignored", path)
        return {}


def write_epochs(path: Path, epochs: Iterable[tuple[int, int]]) -> None:
    """Writes a partition's leader epochs; synced with the log, since recovery learns only those of the batches it reads.

    Raises:
        OSError: they could not be written.
    """
    lines = [f"{epoch} {offset}" for epoch, offset in epochs]
    _write_lines(path, ["0", str(len(lines)), *lines], sync=False)


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """The epochs of a partition, ascending in epoch and offset; [] if the file cannot be read."""
    try:
        epochs = [(int(epoch), int(offset)) for epoch, offset in _read_entries(path, 2)]
        if epochs != sorted(epochs) or any(a[1] > b[1] for a, b in itertools.pairwise(epochs)):
            raise ValueError
    except ValueError:
        logger.warning("%s is not readable and is ignored", path)
        return []
    return epochs


def encode_id(uuid: bytes) -> str:
    """Kafka's text form of an id: base64 for names, without padding."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    """The id of a text.

    Raises:
        ValueError: it is none.
    """
    try:
        uuid = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as problem:
        raise ValueError(str(problem)) from None
    if len(uuid) != 16:
        raise ValueError(f"an id has 16 bytes, not {len(uuid)}")
    return uuid


def write_partition_metadata(directory: Path, topic_id: bytes) -> None:
    """Notes which topic a partition's directory belongs to.

    Raises:
        OSError: it could not be written.
    """
    _write_lines(directory / PARTITION_METADATA, ["version: 0", f"topic_id: {encode_id(topic_id)}"], sync=False)


def read_partition_metadata(directory: Path) -> bytes | None:
    """The id of the topic a partition's directory belongs to; None if it does not say."""
    try:
        lines = dict(line.split(": ", 1) for line in (directory / PARTITION_METADATA).read_text().splitlines())
        return decode_id(lines["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        logger.warning("%s is not readable and is ignored", directory / PARTITION_METADATA)
        return None


def write_meta_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Writes a directory's meta.properties.

    Raises:
        OSError: it could not be written.
    """
    _write_lines(path, ["#", *(f"{name}={value}" for name, value in properties.items())], sync=True)


def read_meta_properties(path: Path) -> dict[str, str]:
    """What a directory's meta.properties says; {} without one."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
