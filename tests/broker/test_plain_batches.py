"""The short way through the checks of a produced batch says what the long way says, or nothing."""

import importlib
import random
from dataclasses import dataclass

import pytest
from fuzz_loop import mend_crcs, mutate, sample_batches

from kafkacore import records
from kafkacore._codec import read_plain_batch
from kafkacore.errors import KafkaError
from tests.kit.batches import batch
from tests.kit.rows import each_row

validate = importlib.import_module("kafkacore.broker.log.validate")  # the package has a function of that name


@dataclass
class Settings:
    max_message_bytes: int = 1_000_000
    segment_bytes: int = 1 << 30
    cleanup_policy: str = "delete"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = 2**62
    message_timestamp_after_max_ms: int = 2**62
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3


def outcome(data: bytes, settings: Settings) -> object:
    try:
        found = validate.validate(memoryview(data), settings, 9, 1_700_000_000_000)
    except KafkaError as error:
        return type(error), error.message
    return bytes(found.batch.buffer), found.max_timestamp_ms, found.append_time_ms


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [Settings(), Settings(cleanup_policy="compact"), Settings(max_message_bytes=150)])
def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch, seed: int, settings: Settings) -> None:
    rng = random.Random(seed)
    inputs = []
    for _ in range(500):
        data = bytearray(next(iter(records.read_batches(sample_batches(rng, [2])))).buffer)
        if rng.random() < 0.8:
            data[:8] = bytes(8)
        damaged = bytes(data) if rng.random() < 0.4 else mutate(bytes(data), rng)
        inputs.append(bytes(mend_crcs(damaged)) if rng.random() < 0.8 else damaged)
    plain = sum(read_plain_batch(data, settings.max_message_bytes) is not None for data in inputs)
    assert 0 < plain < len(inputs)
    short = [outcome(data, settings) for data in inputs]
    monkeypatch.setattr(validate, "read_plain_batch", lambda *_: None)
    long = [outcome(data, settings) for data in inputs]
    assert short == long


@each_row(
    "strange",
    [
        b"",
        bytes(61),
        bytes(batch()) + b"\0",
        bytes(batch())[:-1],
        bytes(batch(is_control=True, producer_id=1, epoch=0, sequence=0)),
        bytes(batch(is_transactional=True)),
        bytes(batch(producer_id=5, epoch=-1, sequence=0)),
        bytes(batch(producer_id=-2, epoch=0, sequence=0)),
        bytes(records.BatchBuilder(magic=1).build() or b""),
    ],
)
def test_whatever_stands_out_takes_the_long_way(strange: bytes) -> None:
    assert read_plain_batch(strange, 1_000_000) is None


@each_row("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_facts_of_a_plain_batch(compression: str) -> None:
    data = batch([b"x"] * 20, compression=compression, timestamps_ms=[5, 3, *range(4, 22)], producer_id=7, epoch=1, sequence=3)
    found = read_plain_batch(data, 1_000_000)
    assert found is not None
    assert (found[0].record_count, *found[1:]) == (20, 21, 3, True)
    assert read_plain_batch(data, len(data) - 1) is None
