"""Log files between the embedded broker and Kafka 4.3.1: each reads what the other wrote; index entries are the same, byte for byte."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "broker"))

from logs import Disk, topic_config

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic
from kafkacore.broker.log import Log, read_one_batch
from kafkacore.broker.log.checkpoints import read_partition_metadata
from kafkacore.records import BatchBuilder, control_batch, read_batches
from tests.kit.batches import T0, batch
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import until

pytestmark = pytest.mark.kafka


def fill(log: Log, seed: int, batches: int) -> None:
    """Batches of every codec, of three producers with transactions, with control batches."""
    random_ = random.Random(seed)
    sequences = {1: 0, 2: 0, 3: 0}
    for nth in range(batches):
        producer, count = random_.choice([1, 2, 3, -1]), random_.randint(1, 60)
        settings: dict[str, Any] = {
            "timestamps_ms": [T0 + nth * 10 + random_.randint(-50, 50) for _ in range(count)],
            "compression": random_.choice(["none", "gzip", "lz4", "snappy", "zstd"]),
        }
        if producer > 0:
            settings.update(producer_id=producer, epoch=0, sequence=sequences[producer], is_transactional=producer != 1)
            sequences[producer] += count
        log.append(read_one_batch(batch([random_.randbytes(50) for _ in range(count)], **settings), 1 << 20), nth // 100, wall_ms=T0)
        if producer in (2, 3) and random_.random() < 0.3:
            marker = control_batch(random_.choice([0, 1]), producer_id=producer, producer_epoch=0, timestamp_ms=T0 + nth * 10)
            log.append(next(iter(read_batches(marker))), nth // 100, wall_ms=T0)


def content(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    pieces = log.read(log.start_offset, 1 << 30, log.end_offset, True)
    buffers = [piece if isinstance(piece, memoryview) else piece.read() for piece in pieces]
    batches = [each for buffer in buffers for each in read_batches(buffer, check_crcs=True)]
    return [(r.offset, r.timestamp_ms, r.key, r.value) for each in batches if not each.is_control for r in each.records()]


@pytest.fixture
def kafka() -> Iterator[KafkaServer]:
    with KafkaServer(log_segment_bytes=1 << 20, log_index_interval_bytes=4096) as server:
        yield server


def test_kafkas_tool_reads_every_file_without_complaint(java: JavaTools, tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = disk.log(segment_bytes=200_000)
    fill(log, 1, 300)
    disk.manager.close()
    directory = tmp_path / "t-0"
    for pattern, options in (
        ("*.log", ["--deep-iteration"]),
        ("*.index", ["--verify-index-only"]),
        ("*.timeindex", ["--verify-index-only"]),
        ("*.index", ["--index-sanity-check"]),
        ("*.timeindex", ["--index-sanity-check"]),
        ("*.txnindex", []),
        ("*.snapshot", []),
    ):
        files = sorted(map(str, directory.glob(pattern)))
        assert files
        said = java.run("DumpLogSegments", *options, "--files", ",".join(files)).ok()
        lines = [line for line in said.splitlines() if not line.startswith(("| offset", "baseOffset", "version: 0", "producerId"))]
        # Kafka's tool takes the offset before every segment for -1 and says so of its own files too.
        lines = [line for line in lines if "-1 is followed by" not in line and "Non-consecutive" not in line]
        fine = ("Dumping ", "Log starting offset", "passed sanity check")
        assert [line for line in lines if not any(word in line for word in fine)] == [], said[:2000]
        assert "isvalid: false" not in said
        if pattern == "*.log":
            assert said.count("baseOffset: ") == sum(1 for file in files for _ in read_batches(Path(file).read_bytes()))
        if pattern == "*.txnindex":
            assert said.count("producerId") == sum(len(segment.aborted) for segment in log.segments)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_kafkas_files_are_read_here_and_indexed_alike(kafka: KafkaServer, tmp_path: Path, how: signal.Signals) -> None:
    random_ = random.Random(3)
    sent = []
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=0, compression_type="lz4") as producer:
        for nth in range(4000):
            value = random_.randbytes(random_.randint(100, 1500))
            sent.append((nth, T0 + nth, b"k%d" % (nth % 7), value))
            producer.send("t", value, b"k%d" % (nth % 7), timestamp_ms=T0 + nth, partition=0)
            if nth % 10 == 0:
                producer.flush(30)
    kafka.kill(how)
    theirs = kafka.directory / "data" / "t-0"
    shutil.copytree(theirs, tmp_path / "t-0")
    topic_id = read_partition_metadata(theirs)
    assert topic_id is not None
    if how is signal.SIGTERM:
        shutil.copy(kafka.directory / "data" / ".kafka_cleanshutdown", tmp_path)
    disk = Disk(tmp_path)
    log = disk.manager.open("t", topic_id, 0, disk.log("other").config)
    assert content(log) == sent
    assert len(log.segments) >= 3
    assert [entry.last_sequence for entry in log.producers.entries.values()] == [3999]
    found = log.offset_for_timestamp(T0 + 1234, log.end_offset)
    assert found is not None and found.offset == 1234
    disk.manager.close()
    # What recovery builds from the batches alone is what Kafka built while it wrote them.
    built = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*index")}
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    disk.start()
    log = disk.manager.open("t", topic_id, 0, disk.log("other").config)
    disk.manager.flush_later(log, log.end_offset)
    for segment in log.segments:
        segment.largest_timestamp()
        segment.save_index(complete=True)  # type: ignore[attr-defined]
    disk.manager.close()
    for path in (tmp_path / "t-0").glob("*index"):
        own, original = path.read_bytes(), (theirs / path.name).read_bytes()
        assert built[path.name] == own, path.name
        if how is signal.SIGTERM or not original.endswith(bytes(100)):
            assert original == own, path.name
        else:
            last_entry = 12 if path.suffix == ".timeindex" else 0  # Kafka adds it when the segment ends
            assert original.startswith(own[: len(own) - last_entry]), path.name


def fill_compacted(log: Log, seed: int) -> None:
    """Keys that come again, tombstones, transactions of three producers, committed and aborted; all of it older than the active segment."""
    random_ = random.Random(seed)
    sequences = {5: 0, 6: 0, 7: 0}
    open_: set[int] = set()
    for nth in range(900):
        producer = random_.choice([5, 6, 7, -1, -1])
        builder = BatchBuilder(
            max_bytes=1 << 20,
            compression=random_.choice(["none", "none", "lz4", "zstd"]),
            **({"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]} if producer > 0 else {}),
            is_transactional=producer > 0,
        )
        count = random_.randint(1, 5)
        for _ in range(count):
            value = None if random_.random() < 0.1 else random_.randbytes(random_.randint(10, 1200))
            builder.append(value, key=b"k%d" % random_.randint(0, 60), timestamp_ms=T0 + nth)
        log.append(next(iter(read_batches(bytes(builder.build())))), 0, wall_ms=T0)
        if producer > 0:
            sequences[producer] += count
            open_.add(producer)
            if random_.random() < 0.4:
                end_transaction(log, producer, random_.random() < 0.6, T0 + nth)
                open_.discard(producer)
    for producer in open_:
        end_transaction(log, producer, True, T0 + 900)
    for nth in range(4):  # the active segment, and one before it with other keys
        builder = BatchBuilder(max_bytes=1 << 20)
        builder.append(random_.randbytes(400_000), key=b"last%d" % nth, timestamp_ms=T0 + 1000)
        log.append(next(iter(read_batches(bytes(builder.build())))), 0, wall_ms=T0)


def end_transaction(log: Log, producer: int, commit: bool, timestamp_ms: int) -> None:
    marker = control_batch(int(commit), producer_id=producer, producer_epoch=0, timestamp_ms=timestamp_ms)
    log.append(next(iter(read_batches(marker))), 0, wall_ms=T0)


def remains(log: Log) -> list[tuple[Any, ...]]:
    """Every batch that is left: what it says of itself, whether it has a delete horizon, and its records."""
    pieces = log.read(log.start_offset, 1 << 30, log.end_offset, True)
    batches = [each for piece in pieces for each in read_batches(piece if isinstance(piece, memoryview) else piece.read(), check_crcs=True)]
    return [
        (
            each.base_offset,
            each.last_offset,
            each.producer_id,
            each.base_sequence,
            each.is_control,
            bool(each.attributes & 0x40),
            [(record.offset, record.key, record.value, record.timestamp_ms) for record in each.records()],
        )
        for each in batches
    ]


def test_compaction_leaves_what_kafkas_leaves(tmp_path: Path) -> None:
    """The same files, cleaned by Kafka and here: the same batches with the same records remain, and the same transaction index."""
    settings = {"segment_bytes": 1 << 20, "cleanup_policy": "compact"}
    with KafkaServer(log_segment_bytes=1 << 20, log_cleaner_backoff_ms=100, log_cleaner_min_cleanable_ratio=0.0001) as kafka:
        with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 1, configs={"cleanup.policy": "compact"})])
        kafka.kill(signal.SIGTERM)
        theirs = kafka.directory / "data" / "t-0"
        topic_id = read_partition_metadata(theirs)
        assert topic_id is not None
        disk = Disk(tmp_path)
        log = disk.manager.open("t", topic_id, 0, topic_config(**settings))
        fill_compacted(log, 4)
        assert len(log.segments) >= 4
        disk.manager.close()
        shutil.rmtree(theirs)
        shutil.copytree(tmp_path / "t-0", theirs)
        checkpoint = kafka.directory / "data" / "cleaner-offset-checkpoint"
        checkpoint.unlink(missing_ok=True)
        kafka.start()
        active = log.segments[-1].base_offset
        until(lambda: checkpoint.exists() and f"t 0 {active}" in checkpoint.read_text(), "Kafka has cleaned up to the active segment")
        kafka.kill(signal.SIGTERM)
        cleaned = Disk(tmp_path / "cleaned")
        cleaned.manager.close()
        shutil.copytree(theirs, tmp_path / "cleaned" / "t-0")
        cleaned.start()
        reference = cleaned.manager.open("t", topic_id, 0, topic_config(**settings))
        expected, aborted = remains(reference), reference.aborted_transactions(0, reference.end_offset)
        cleaned.manager.close()
    disk.start()
    log = disk.manager.open("t", topic_id, 0, topic_config(**settings))
    before = len(remains(log))
    disk.manager.compactor.compact(("t", 0))
    assert remains(log) == expected
    assert len(expected) < before
    assert log.aborted_transactions(0, log.end_offset) == aborted
    disk.manager.close()
