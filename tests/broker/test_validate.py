"""What a leader checks and changes before it writes a batch."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import topic_config

from kafkacore import compress, errors
from kafkacore.broker.log import validate
from kafkacore.broker.log.headers import stamped
from kafkacore.broker.log.rewrite import emptied, filtered
from kafkacore.records import BatchBuilder, read_batches
from tests.kit.batches import T0, batch
from tests.kit.reached import Reached
from tests.kit.rows import each_row

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch_of_keys(*keys, timestamps_ms=None) -> bytes:
    builder = BatchBuilder(max_bytes=1 << 20)
    for nth, key in enumerate(keys):
        builder.append(b"v" * 50, key=key, timestamp_ms=T0 if timestamps_ms is None else timestamps_ms[nth])
    return bytes(builder.build())


def validated(data, version=9, **settings):
    return validate(memoryview(data), topic_config(**settings), version, T0)


def test_a_record_without_key_is_refused_by_a_compacted_topic_and_named():
    assert validated(batch_of_keys(b"a", None)).append_time_ms is None
    with pytest.raises(errors.InvalidRecord) as refused:
        validated(batch_of_keys(b"a", None, b"", None), cleanup_policy="delete,compact")
    assert [row for row, _ in refused.value.record_errors] == [1, 3]
    with pytest.raises(errors.InvalidRecord, match="1002 of 1002 records") as refused:
        validated(batch_of_keys(*[None] * 1_002), cleanup_policy="compact")
    assert len(refused.value.record_errors) == 1_000


@each_row(
    ("timestamps_ms", "bad"),
    [
        ([T0, T0 + 1000], []),
        ([T0, T0 + 1001], [1]),
        ([T0 - 2000, T0], []),
        ([T0 - 2001, T0, T0 + 5000], [0, 2]),
        ([-1, T0], []),
        ([T0 + 1000, T0 + 1001, -1], [1]),
        ([T0 - 2000, T0 - 2001], [1]),
    ],
)
def test_timestamps_out_of_range_are_refused_and_named(timestamps_ms, bad):
    data = batch_of_keys(*[b"k"] * len(timestamps_ms), timestamps_ms=timestamps_ms)
    limits = {"message_timestamp_after_max_ms": 1000, "message_timestamp_before_max_ms": 2000}
    validated(data, **limits, message_timestamp_type="LogAppendTime")
    if not bad:
        assert validated(data, **limits).max_timestamp_ms == max(timestamps_ms)
        return
    with pytest.raises(errors.InvalidTimestamp) as refused:
        validated(data, **limits)
    assert [row for row, _ in refused.value.record_errors] == bad


@each_row("source", CODECS)
@each_row("target", [*CODECS, "producer"])
def test_a_batch_is_turned_into_the_topics_codec(source, target):
    producer = {"producer_id": 4, "epoch": 2, "sequence": 7, "is_transactional": True}
    sent = batch([b"v" * 300] * 20, compression=source.replace("uncompressed", "none"), **producer)
    (before,) = read_batches(sent)
    after = validated(sent, compression_type=target).batch
    (after,) = read_batches(after.buffer, check_crcs=True)
    assert after.compression == (CODECS[source] if target == "producer" else CODECS[target])
    fields = ("base_offset", "last_offset", "record_count", "producer_id", "producer_epoch", "base_sequence", "is_transactional")
    assert [getattr(after, name) for name in fields] == [getattr(before, name) for name in fields]
    assert [(r.value, r.timestamp_ms) for r in after.records()] == [(r.value, r.timestamp_ms) for r in before.records()]


def test_levels_are_those_of_the_topic(monkeypatch):
    used = []
    monkeypatch.setattr(compress, "compress", lambda codec, data, level=None: used.append((codec, level)) or b"x")
    monkeypatch.setattr("kafkacore.broker.log.rewrite.compress.compress", compress.compress)
    for target, name, level in (("gzip", "gzip", 3), ("lz4", "lz4", 12), ("zstd", "zstd", -5)):
        validated(batch_of_keys(b"k"), compression_type=target, **{f"compression_{name}_level": level})
    for target in ("gzip", "lz4", "zstd", "snappy"):
        validated(batch_of_keys(b"k"), compression_type=target)
    assert used == [(1, 3), (3, 12), (4, -5), (1, None), (3, None), (4, 3), (2, None)]


def test_sizes_are_checked_before_and_after():
    noise = bytes(range(256)) * 8
    packed = batch([noise], compression="zstd")
    with pytest.raises(errors.RecordTooLarge):
        validated(packed, max_message_bytes=len(packed) - 1)
    with pytest.raises(errors.RecordTooLarge):
        validated(packed, max_message_bytes=1500, compression_type="uncompressed")
    with pytest.raises(errors.RecordBatchTooLarge):
        validated(packed, segment_bytes=len(packed) - 1)
    assert validated(packed, max_message_bytes=len(packed), segment_bytes=len(packed)).batch.size_bytes == len(packed)
    plain = validated(packed, compression_type="uncompressed").batch.size_bytes
    assert plain > len(noise) > 1500
    assert validated(packed, max_message_bytes=plain, compression_type="uncompressed").batch.size_bytes == plain
    with pytest.raises(errors.RecordTooLarge):
        validated(packed, max_message_bytes=plain - 1, compression_type="uncompressed")


@each_row(
    ("producer", "is_possible"),
    [
        ({"producer_id": 0, "epoch": 0, "sequence": 0}, True),
        ({"producer_id": 0, "epoch": 0, "sequence": 0, "is_transactional": True}, True),
        ({"producer_id": -1, "epoch": -1, "sequence": -1}, True),
        ({"producer_id": -1, "epoch": -1, "sequence": -1, "is_transactional": True}, False),
        ({"producer_id": -2, "epoch": 0, "sequence": 0}, False),
        ({"producer_id": 0, "epoch": -1, "sequence": 0}, False),
        ({"producer_id": 0, "epoch": 0, "sequence": -1}, False),
    ],
)
def test_producers_that_are_possible(producer, is_possible):
    for compression in ("none", "gzip"):
        data = batch(compression=compression, **producer)
        if is_possible:
            assert validated(data).batch.producer_id == producer["producer_id"]
            continue
        with pytest.raises(errors.InvalidRecord):
            validated(data)


def test_zstd_needs_a_client_that_knows_it():
    with pytest.raises(errors.UnsupportedCompressionType):
        validated(batch(compression="zstd"), version=6)
    assert validated(batch(compression="zstd"), version=7).batch.compression == 4


kept_of_batch = Reached("all", "not the first", "not the last", "one", "until a time", "compressed")


@partial(kept_of_batch.by, rounds=14)
@given(st.lists(st.booleans(), min_size=1, max_size=5), st.sampled_from(["none", "gzip", "lz4"]), st.sampled_from([None, 0, T0, 2**45]))
@settings(max_examples=10)
def test_a_filtered_batch_has_the_kept_records_unchanged(keep, codec, horizon_ms):
    values = [b"v%d" % nth for nth in range(len(keep))]
    (whole,) = read_batches(batch(values, compression=codec, producer_id=3, epoch=1, sequence=0))
    head, rest = stamped(whole, 1000, 7, whole.max_timestamp_ms, None)
    (stored,) = read_batches(bytes(head) + bytes(rest), check_crcs=True)
    if not any(keep):
        keep[0] = True
    kept_of_batch("all", all(keep))
    kept_of_batch("not the first", not keep[0])
    kept_of_batch("not the last", not keep[-1])
    kept_of_batch("one", sum(keep) == 1 < len(keep))
    kept_of_batch("until a time", horizon_ms is not None)
    kept_of_batch("compressed", codec != "none")
    (made,) = read_batches(filtered(stored, keep, horizon_ms), check_crcs=True)
    assert [(r.offset, r.timestamp_ms, r.value) for r in made.records()] == [
        (r.offset, r.timestamp_ms, r.value) for r, kept in zip(stored.records(), keep, strict=True) if kept
    ]
    assert (made.base_offset, made.last_offset, made.last_sequence, made.leader_epoch) == (1000, 999 + len(keep), len(keep) - 1, 7)
    (empty,) = read_batches(emptied(stored), check_crcs=True)
    assert (empty.base_offset, empty.last_offset, empty.record_count, empty.compression) == (1000, 999 + len(keep), 0, 0)
    assert empty.records() == []


@each_row(("body", "bad_at"), [(b"\2x", None), (b"\2x\2y", None), (b"\2x\0", 2), (b"\1x", 0), (b"\2x\4y", 2)])
def test_records_whose_lengths_do_not_fit_are_not_filtered(body, bad_at):
    made = batch([b"v"])[:61].tobytes() + body
    (damaged,) = read_batches(made[:8] + (49 + len(body)).to_bytes(4, "big") + made[12:], check_crcs=False)
    if bad_at is None:
        assert filtered(damaged, [True] * (len(body) // 2), None)[61:] == body
        return
    with pytest.raises(errors.CorruptDataError, match="length does not fit") as refused:
        filtered(damaged, [True, True], None)
    assert refused.value.offset == bad_at


def test_a_batch_that_holds_more_than_128_mib_is_too_large_and_not_invalid():
    builder = BatchBuilder(compression="zstd", max_bytes=1 << 28)
    for _ in range(9):
        builder.append(bytes(16 << 20))
    with pytest.raises(errors.RecordTooLarge, match="holds more than max_decompressed_bytes=134217728"):
        validated(bytes(builder.build()))
