"""Columns of any Arrow type: what `send_frame` writes comes back with the schema that it had."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.decode.arrow_types import json_decoder, plan
from kafkacore.decode.base import RowFailed
from kafkacore.decode.ddl import spark_list, spark_map
from kafkacore.decode.wanted import columns_of
from kafkacore.errors import ConfigError
from kafkacore.producer.frame_json import json_column
from tests.kit.rows import each_row

FIRST, LAST = -62_135_596_800, 253_402_300_799  # seconds of the years 1 to 9999
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)


def decoded(values: Any, schema: Any, **how: Any) -> Any:
    fields = [field.with_nullable(True) for field in columns_of(schema, "json")]
    decoder, _ = json_decoder(fields, **how)
    return decoder.decode(pa.array(values, pa.binary()) if isinstance(values, list) else values.cast(pa.binary()))


def whole(bits: int, signed: bool) -> Any:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else st.integers(0, (1 << bits) - 1)


def floats(width: int) -> Any:
    return st.floats(width=width, allow_nan=False, allow_infinity=False)


def decimals(precision: int, scale: int) -> Any:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=80)))


def instants(unit: str) -> Any:
    if unit == "ns":
        return st.integers(-(1 << 63) + 1, (1 << 63) - 1)
    return st.integers(FIRST * PER_SECOND[unit], (LAST + 1) * PER_SECOND[unit] - 1)


ZONES = st.sampled_from([None, "UTC", "Europe/Berlin", "+05:30"])
PLAIN: list[tuple[Any, Any]] = [
    *((getattr(pa, f"int{bits}")(), whole(bits, True)) for bits in (8, 16, 32, 64)),
    *((getattr(pa, f"uint{bits}")(), whole(bits, False)) for bits in (8, 16, 32, 64)),
    (pa.float32(), floats(32)),
    (pa.float64(), floats(64)),
    (pa.float16(), floats(16)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=6)),
    (pa.large_binary(), st.binary(max_size=6)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.date64(), st.dates()),
    *((pa.time32(unit), st.integers(0, 86_400 * PER_SECOND[unit] - 1)) for unit in ("s", "ms")),
    *((pa.time64(unit), st.integers(0, 86_400 * PER_SECOND[unit] - 1)) for unit in ("us", "ns")),
    (pa.decimal128(38, 10), decimals(38, 10)),
    (pa.decimal128(5, 2), decimals(5, 2)),
    (pa.decimal256(20, 4), decimals(20, 4)),
    (pa.decimal256(60, 12), decimals(60, 12)),
    (pa.null(), st.none()),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    (pa.dictionary(pa.uint32(), pa.large_string(), True), st.sampled_from(["x", "y"])),
    (pa.dictionary(pa.int16(), pa.int64()), st.integers(0, 9)),
]
PAIRS = st.sampled_from(PLAIN) | st.builds(
    lambda unit, zone: (pa.timestamp(unit, zone), instants(unit)), st.sampled_from(["s", "ms", "us", "ns"]), ZONES
)


def map_entries(keys: Any, values: Any) -> Any:
    return st.dictionaries(keys, st.none() | values, max_size=3).map(lambda found: list(found.items()))


def nested_types(inner: Any) -> Any:
    lists = inner.map(lambda pair: (pa.list_(pair[0]), st.lists(st.none() | pair[1], max_size=3)))
    large = inner.map(lambda pair: (pa.large_list(pair[0]), st.lists(st.none() | pair[1], max_size=3)))
    fixed = inner.map(lambda pair: (pa.list_(pair[0], 2), st.lists(st.none() | pair[1], min_size=2, max_size=2)))
    maps = inner.map(lambda pair: (pa.map_(pa.string(), pair[0]), map_entries(TEXT, pair[1])))
    counted = inner.map(lambda pair: (pa.map_(pa.uint16(), pair[0]), map_entries(whole(16, False), pair[1])))
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda pairs: (
            pa.struct([(f"f{i}", pair[0]) for i, pair in enumerate(pairs)]),
            st.fixed_dictionaries({f"f{i}": st.none() | pair[1] for i, pair in enumerate(pairs)}),
        )
    )
    return lists | large | fixed | maps | counted | structs


def array_of(values: list[Any], kind: Any) -> Any:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def has_dictionary(kind: Any) -> bool:
    below = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return pa.types.is_dictionary(kind) or any(map(has_dictionary, below))


# pyarrow makes no arrays of dictionaries within others out of Python's values
COLUMNS = (PAIRS | st.recursive(PAIRS, nested_types, max_leaves=4)).filter(
    lambda pair: pa.types.is_dictionary(pair[0]) or not has_dictionary(pair[0])
)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_schema_there_and_back(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(COLUMNS, min_size=1, max_size=4))
    count = data.draw(st.integers(1, 5))
    columns = [array_of(data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind) for kind, values in pairs]
    table = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
    found = decoded(json_column(table.to_struct_array()), table.schema)
    assert not found.faults
    fields = columns_of(table.schema, "json")
    for sent, back, field in zip(columns, found.columns, fields, strict=True):
        back.validate(full=True)
        assert back.type == field.type
        assert as_text(back) == as_text(sent), (sent.type, sent, back)


def as_text(array: Any) -> list[Any]:
    return [None if each is None else each.decode() for each in json_column(pa.StructArray.from_arrays([array], ["c"])).to_pylist()]


@each_row(
    ("kind", "good", "bad"),
    [
        (pa.uint8(), "255", ["256", "-1", "1.5", '"1"']),
        (pa.uint64(), "18446744073709551615", ["18446744073709551616", "-1", "1.5", "1e999999999"]),
        (pa.decimal256(60, 12), "1.5", ["1e999999999", '"sNaN"', '"Infinity"', "1e60"]),
        (pa.decimal32(5, 2), "1.5", ["1e999999999", "12345.6"]),
        (pa.time32("s"), '"23:59:59"', ['"24:00:00"', "5", '"noon"']),
        (pa.timestamp("ns"), '"2262-04-11T23:47:16.854775807"', ['"2263-01-01"', '"2026-05-01T12:00:00Z"', "5", '"soon"']),
        (pa.timestamp("ns", "UTC"), '"2026-5-1 14:00:00.123456789+02:00"', ['"2263-01-01"', '"soon"']),
        (pa.timestamp("s", "Europe/Berlin"), '"2026-05-01T12:00:00.999Z"', ['"soon"', "[]"]),
        (pa.list_(pa.int16(), 2), "[1,2]", ["[1]", "[1,2,3]", "[1,70000]"]),
        (pa.binary(2), '"YWI="', ['"YQ=="', "1"]),
        (pa.null(), "null", ["1", '"a"']),
        (pa.struct([("a", pa.uint8())]), '{"a":1}', ['{"a":256}']),
        (pa.map_(pa.uint8(), pa.time64("us")), '{"1":"12:00:00"}', ['{"256":"12:00:00"}', '{"1":"25:00:00"}']),
        (pa.dictionary(pa.int8(), pa.uint8()), "7", ["256"]),
        (pa.map_(pa.decimal256(60, 12), pa.int8()), '{"1.5":1}', ['{"1e999999999":1}']),
    ],
)
def test_items_that_do_not_fit_are_faults_of_their_rows(kind: Any, good: str, bad: list[str]) -> None:
    rows = [good, *(each for one in bad for each in (one, good)), "null"] * 50
    found = decoded([f'{{"n":1,"c":{each}}}'.encode() for each in rows], pa.schema([("n", pa.int64()), ("c", kind)]))
    assert sorted(found.faults) == [row for row, each in enumerate(rows) if each in bad]
    assert all("c" in why for why in found.faults.values())
    wanted = found.columns[1][0]
    for row, each in enumerate(rows):
        assert each in bad or found.columns[1][row] == (pa.scalar(None, kind) if each == "null" else wanted) or each == "null"
    kept = decoded([f'{{"n":1,"c":{each}}}'.encode() for each in rows], pa.schema([("n", pa.int64()), ("c", kind)]), keeps_good_fields=True)
    assert kept.columns[0].null_count == 0 and sorted(kept.faults) == sorted(found.faults)


@each_row("how, kept", [({}, None), ({"keeps_good_fields": True}, 1)])
def test_a_row_is_whole_or_nothing_unless_good_fields_are_kept(how: dict[str, bool], kept: int | None) -> None:
    found = decoded([b'{"n":1,"c":"x"}', b'{"n":2,"c":3}'], pa.schema([("n", pa.int64()), ("c", pa.int64())]), **how)
    assert [column.to_pylist() for column in found.columns] == [[kept, 2], [None, 3]] and list(found.faults) == [0]


def test_more_categories_than_the_index_counts_are_an_error_of_the_schema() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    for count in (128, 129):
        values = [b'{"c":"v%d"}' % n for n in range(count)]
        if count == 128:
            assert decoded(values, pa.schema([("c", kind)])).columns[0].to_pylist() == [f"v{n}" for n in range(count)]
            continue
        with pytest.raises(RowFailed) as failed:
            decoded(values, pa.schema([("c", kind)]))
        assert "column c has more than 128 categories, which int8 cannot count" in str(failed.value.error)


def test_extension_types() -> None:
    storage = pa.array([bytes(range(16)), None], pa.binary(16))
    columns = [pa.ExtensionArray.from_storage(pa.uuid(), storage), pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))]
    table = pa.RecordBatch.from_arrays(columns, ["u", "b"])
    texts = json_column(table.to_struct_array())
    assert texts[0].as_py() == b'{"u":"00010203-0405-0607-0809-0a0b0c0d0e0f","b":true}'
    found = decoded(texts, table.schema)
    assert not found.faults and [each.equals(sent) for each, sent in zip(found.columns, columns, strict=True)] == [True, True]
    for kind in (pa.json_(), pa.duration("s"), pa.map_(pa.list_(pa.int8()), pa.int8())):
        with pytest.raises(ConfigError, match="column c "):
            decoded([b"{}"], pa.schema([("c", kind)]))


@pytest.mark.parametrize(
    ("unit", "zone", "first", "second"),
    [("us", None, 123456, 999999), ("us", "UTC", 123456, 999999), ("ms", None, 123000, 999000), ("s", None, 0, 0)],
)
def test_nine_digits_are_cut_where_the_column_has_fewer(unit: str, zone: str | None, first: int, second: int) -> None:
    texts = ["2026-05-01T12:00:00.123456789", "1969-12-31T23:59:59.999999999", "2026-05-01", None]
    values = [f'{{"t":"{each}"}}'.encode() if each else b'{"t":null}' for each in texts]
    found = decoded(values, pa.schema([("t", pa.timestamp(unit, zone))]))
    assert not found.faults
    assert [each if each is None else each.replace(tzinfo=None) for each in found.columns[0].to_pylist()] == [
        datetime.datetime(2026, 5, 1, 12, 0, 0, first),
        datetime.datetime(1969, 12, 31, 23, 59, 59, second),
        datetime.datetime(2026, 5, 1),
        None,
    ]


def test_a_float_that_is_none_is_null() -> None:
    table = pa.RecordBatch.from_arrays([pa.array([math.nan, 1.5], pa.float16())], ["f"])
    assert decoded(json_column(table.to_struct_array()), table.schema).columns[0].to_pylist() == [None, 1.5]


def test_the_second_of_a_row_s_list_is_a_moment_that_pyarrow_does_not_read() -> None:
    kind = pa.list_(pa.timestamp("ns"))
    sent = pa.array([[None, -9_223_372_036_000_000_001, 7], [8]], kind)
    found = decoded(json_column(pa.StructArray.from_arrays([sent], ["c0"])), pa.schema([("c0", kind)]))
    assert not found.faults
    assert found.columns[0].cast(kind).to_pylist() == sent.to_pylist()


@each_row(
    ("kind", "read", "is_finished"),
    [
        *(
            (kind, kind, False)
            for kind in (pa.int8(), pa.int64(), pa.string(), pa.bool_(), pa.decimal128(38, 38), pa.timestamp("us", "UTC"))
        ),
        (pa.list_(pa.int32()), spark_list(pa.int32()), False),
        (pa.map_(pa.string(), pa.int32()), spark_map(pa.string(), pa.int32()), False),
        (pa.struct([("a", pa.int8()), ("b", pa.date32())]), pa.struct([("a", pa.int8()), ("b", pa.date32())]), False),
        *((kind, pa.int64(), True) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
        (pa.uint64(), pa.decimal128(36, 16), True),
        (pa.float16(), pa.float32(), True),
        (pa.date64(), pa.date32(), True),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("ms"), pa.timestamp("us"), True),
        (pa.timestamp("ns", "UTC"), pa.string(), True),
        (pa.time32("s"), pa.string(), True),
        (pa.decimal32(5, 2), pa.decimal128(5, 2), True),
        (pa.decimal256(38, 3), pa.decimal128(38, 3), True),
        (pa.decimal256(39, 3), pa.string(), True),
        (pa.binary(3), pa.binary(), True),
        (pa.dictionary(pa.int8(), pa.uint8()), pa.int64(), True),
        (pa.run_end_encoded(pa.int16(), pa.int8()), pa.int8(), True),
        (pa.null(), pa.string(), True),
        (pa.list_(pa.int32(), 2), spark_list(pa.int32()), True),
        (pa.list_(pa.uint8()), spark_list(pa.int64()), True),
        (pa.map_(pa.int8(), pa.int8()), spark_map(pa.string(), pa.int8()), True),
        (pa.map_(pa.string(), pa.uint8()), spark_map(pa.string(), pa.int64()), True),
        (pa.struct([("a", pa.int8()), ("b", pa.uint8())]), pa.struct([("a", pa.int8()), ("b", pa.int64())]), True),
    ],
)
def test_what_each_type_is_read_as(kind: Any, read: Any, is_finished: bool) -> None:
    found = plan(kind, "c")
    assert (found.read, found.finish is not None) == (read, is_finished)


@each_row(
    ("kind", "text", "key"),
    [
        (pa.binary(), "YWI=", b"ab"),
        (pa.binary(2), "YWI=", b"ab"),
        (pa.bool_(), "true", True),
        (pa.int8(), "-128", -128),
        (pa.uint64(), "18446744073709551615", 2**64 - 1),
        (pa.decimal128(5, 2), "1.005", decimal.Decimal("1.01")),
        (pa.date32(), "2020-02-29", datetime.date(2020, 2, 29)),
        (pa.timestamp("ms"), "1970-01-01T00:00:00.0019", datetime.datetime(1970, 1, 1, 0, 0, 0, 1_000)),
    ],
)
def test_keys_have_a_text_in_json(kind: Any, text: str, key: Any) -> None:
    values = [b'{"c":{"%b":1}}' % text.encode(), b'{"c":{}}', b'{"c":null}', b'{"c":{"x":1}}', b'{"c":{"%b":null}}' % text.encode()]
    found = decoded(values, pa.schema([("c", pa.map_(kind, pa.int8()))]))
    assert list(found.faults) == [3]
    assert found.columns[0].to_pylist() == [[(key, 1)], [], None, None, [(key, None)]]
