"""Records under kafka-python's names as values: they compare, are hashed and pickled."""

from __future__ import annotations

import pickle
from typing import Any

from kafkacore._codec import ConsumerRecord, recast_records
from kafkacore.compat.kafka.structs import ConsumerRecord as Shown
from kafkacore.compat.kafka.structs import DeserializedRecord


def shown_record(value: Any = b"v", key: Any = b"k", headers: Any = (("h", b"1"),)) -> Any:
    made = ConsumerRecord(topic="t", partition=1, offset=2, timestamp_ms=3, key=key, value=value, headers=list(headers), leader_epoch=4)
    records: list[Any] = [made]
    recast_records(records, Shown)
    return records[0]


def test_a_shown_record_survives_pickling_and_compares() -> None:
    records = [shown_record(), shown_record()]
    copied = pickle.loads(pickle.dumps(records[0]))
    assert copied == records[1] == tuple(records[0])
    assert type(copied) is Shown
    assert len({records[0], records[1], copied}) == 1
    assert records[0] != shown_record(b"other")


def test_a_deserialized_record_survives_pickling_with_its_sizes() -> None:
    made = DeserializedRecord.of(shown_record(), "key", {"a": 1})
    copied = pickle.loads(pickle.dumps(made))
    assert (copied.key, copied.value, copied.serialized_key_size, copied.serialized_value_size) == ("key", {"a": 1}, 1, 1)
    assert (copied.headers, copied.offset, copied == made) == ([("h", b"1")], 2, True)


def test_sizes_are_of_bytes_and_not_of_characters() -> None:
    headers = [("größe", "ü".encode()), ("leer", None), ("", b"")]
    whole = shown_record("ä€".encode(), "ü".encode(), headers)
    for record in (whole, DeserializedRecord.of(whole, "ü", "ä€"), pickle.loads(pickle.dumps(DeserializedRecord.of(whole, "ü", "ä€")))):
        assert (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size) == (2, 5, 7 + 2 + 4)
    bare = shown_record(None, None, [])
    assert (bare.serialized_key_size, bare.serialized_value_size, bare.serialized_header_size) == (-1, -1, -1)
