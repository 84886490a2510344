"""The short way through the checks of a produced batch says what the long way says, or nothing."""

import importlib
import random
from typing import Any

import pytest
from fuzz_loop import mend_crcs, mutate, sample_batches
from logs import topic_config

from kafkacore import records
from kafkacore._codec import read_plain_batch
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.errors import KafkaError
from tests.kit.batches import batch
from tests.kit.rows import each_row

UNLIMITED = {"message_timestamp_before_max_ms": 2**62, "message_timestamp_after_max_ms": 2**62}
validate = importlib.import_module("kafkacore.broker.log.validate")  # the package has a function of that name


def outcome_of(data: bytes, settings: TopicConfig) -> object:
    try:
        found = validate.validate(memoryview(data), settings, 9, 1_700_000_000_000)
    except KafkaError as error:
        return type(error), error.message
    return bytes(found.batch.buffer), found.max_timestamp_ms, found.append_time_ms


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", [{}, {"cleanup_policy": "compact"}, {"max_message_bytes": 150}], ids=["none", "compact", "small"])
def test_both_ways_agree(monkeypatch: pytest.MonkeyPatch, seed: int, limits: dict[str, Any]) -> None:
    settings = topic_config(**UNLIMITED, **limits)
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
    short = [outcome_of(data, settings) for data in inputs]
    monkeypatch.setattr(validate, "read_plain_batch", lambda *_: None)
    long = [outcome_of(data, settings) for data in inputs]
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
