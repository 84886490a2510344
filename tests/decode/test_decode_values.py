"""The pieces that the formats share: times, decimals and rows at their bounds, and why a field of JSON is not what its column holds."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafkacore.decode import ddl
from kafkacore.decode import values as v
from kafkacore.decode.jsons import JsonDecoder
from kafkacore.errors import ConfigError
from tests.decode.support import rows
from tests.kit.rows import each_row

MOST = 2**63


@each_row(
    ("text", "us", "ns"),
    [
        ("1970-01-01", 0, 0),
        ("1970-1-2", 86_400_000_000, 86_400_000_000_000),
        (" 1970-01-01T00:00:01Z ", 1_000_000, 1_000_000_000),
        ("1970-01-01 01:02:03.4 UTC", 3_723_400_000, 3_723_400_000_000),
        ("1970-01-01T00:00:00.123456789999", 123_456, 123_456_789),
        ("1970-01-01T01+01", 0, 0),
        ("1970-01-01T00:00-01:30", 5_400_000_000, 5_400_000_000_000),
        ("1970-01-01T00:00+0130", -5_400_000_000, -5_400_000_000_000),
        ("1969-12-31T23:59:59.9", -100_000, -100_000_000),
        ("2262-04-11T23:47:16.854775807", MOST // 1000, MOST - 1),
        ("2262-04-11T23:47:16.854775808", MOST // 1000, "timestamp of nanoseconds, which end in 2262"),
        ("1677-09-21T00:12:43.145224192", -(MOST // 1000) - 1, -MOST),
        ("1677-09-21T00:12:43.145224191", -(MOST // 1000) - 1, "timestamp of nanoseconds, which end in 2262"),
        *((text, "timestamp", "timestamp") for text in ("soon", "1970-02-30", "1970-01-01T24:00", "1970-01-01T00:00+1", "x1970-01-01")),
    ],
)
def test_a_text_is_an_instant(text: str, us: Any, ns: Any) -> None:
    for read, wanted in ((v.instant_us, us), (v.instant_ns, ns)):
        if isinstance(wanted, int):
            assert read("f", text, True) == wanted
            continue
        with pytest.raises(v.Undecodable) as refused:
            read("f", text, True)
        assert str(refused.value) == f"field f: {text!r} is no {wanted}"
    if text.startswith("x") or "+" in text:
        with pytest.raises(v.Undecodable, match=r"^field f: .* is no timestamp_ntz$"):
            v.instant_us("f", text, False)


def test_numbers_are_seconds_up_to_the_year_9999() -> None:
    for seconds in (253_402_300_799, -253_402_300_799, 0):
        assert v.seconds_us("f", seconds) == seconds * 1_000_000
    for seconds in (253_402_300_800, -253_402_300_800):
        with pytest.raises(v.Undecodable, match=f"^field f: {seconds} as seconds since 1970 is no timestamp"):
            v.seconds_us("f", seconds)


@each_row(
    ("value", "kind", "found"),
    [
        ("0.005", pa.decimal128(3, 2), "0.01"),
        ("-9.994", pa.decimal128(3, 2), "-9.99"),
        (999, pa.decimal128(3, 0), "999"),
        ("1" * 76, pa.decimal256(76, 0), "1" * 76),
        ("9.995", pa.decimal128(3, 2), None),
        ("10", pa.decimal128(3, 2), None),
        ("1e3", pa.decimal128(3, 0), None),
        ("NaN", pa.decimal128(3, 2), None),
        ("soon", pa.decimal128(3, 2), None),
    ],
)
def test_a_decimal_has_the_scale_of_its_column(value: Any, kind: Any, found: str | None) -> None:
    if found is not None:
        assert str(v.scaled("f", value, kind)) == found
    else:
        with pytest.raises(v.Undecodable, match=rf"^field f: '{value}' is no decimal\({kind.precision},{kind.scale}\)$"):
            v.scaled("f", value, kind)


@each_row("texts", [["1.5", None, "-99.25"], ["1.005", "7"], ["1e2", " 3 "], ["12345678901234567890", None]])
def test_texts_are_decimals_by_arrow_or_one_by_one(texts: list[str | None]) -> None:
    kind = pa.decimal128(25, 2)
    wanted = [None if each is None else v.scaled("f", each.strip(), kind) for each in texts]
    assert v.decimals("f", pa.array(texts), kind).to_pylist() == wanted
    with pytest.raises(v.Undecodable, match=r"^field f: '1234.5' is no decimal\(5,2\)$"):
        v.decimals("f", pa.array(["1", "1234.5"]), pa.decimal128(5, 2))


def test_reasons_are_short_and_in_one_line() -> None:
    assert v.reason(v.Undecodable("x" * 300)) == "x" * 300
    assert v.reason(v.Undecodable("x" * 301)) == "x" * 297 + "..."
    assert v.reason(ValueError("a\n  b")) == "ValueError: a b"
    for length, shown in ((58, f"'{'x' * 58}'"), (59, f"'{'x' * 56}...")):
        with pytest.raises(v.Undecodable) as refused:
            v.refuse("f", "x" * length, "int")
        assert str(refused.value) == f"field f: {shown} is no int"


@each_row(
    ("texts", "kind", "found"),
    [
        (["1970-01-01T00:00:00.5", None], pa.timestamp("ms"), [500, None]),
        ([None, "1969-12-31T23:59:59.9999", "1970-01-01"], pa.timestamp("ms"), [None, -1, 0]),
        (["1970-01-01", "1970-01-01T00:00:00.0019"], pa.timestamp("ms"), [0, 1]),
        (["1970-01-01T00:00:00Z", "1970-01-01T02:00:00+01:00"], pa.timestamp("us", "UTC"), [0, 3_600_000_000]),
        (["1970-01-01T00:00:00.1234567", "1970-01-01"], pa.timestamp("us", "UTC"), [123_456, 0]),
        ([None], pa.timestamp("us"), [None]),
        ([], pa.timestamp("us"), []),
    ],
)
def test_texts_are_times_of_the_columns_unit(texts: list[str | None], kind: Any, found: list[int | None]) -> None:
    for wanted, made in (
        (kind, texts),
        (pa.struct([("w", pa.int8()), ("x", kind)]), [{"w": 1, "x": each} for each in texts]),
        (pa.list_(kind), [texts, None, []]),
    ):
        array = pa.array(made, v.raw_type(wanted))
        read = v.typed(array, wanted)
        read.validate(full=True)
        assert read.type == wanted
        plain = read.flatten() if pa.types.is_list(wanted) else read.field(1) if pa.types.is_struct(wanted) else read
        assert plain.view(pa.int64()).to_pylist() == found and read.null_count == array.null_count
    with pytest.raises(v.Undecodable, match="a text has a zone, and the column none"):
        v.typed(pa.array(["1970-01-01T00:00:00Z"]), pa.timestamp("us"))
    with pytest.raises(v.Undecodable, match="some texts are no times, or in several forms"):
        v.typed(pa.array(["1970-01-01", "soon"]), pa.timestamp("us"))


def test_rows_that_arrow_refuses_are_nulls_among_the_others() -> None:
    fields = [pa.field("a", pa.int8()), pa.field("b", pa.string())]
    given: list[Any] = [None if at % 7 == 3 else (1000 if at in (0, 39, 40) else at, f"t{at}") for at in range(41)]
    faults: dict[int, str] = {}
    made = v.assemble(given, fields, faults)
    assert sorted(faults) == [0, 39, 40] and all("1000" in why for why in faults.values())
    nothing = {"a": None, "b": None}
    assert made.to_pylist() == [
        nothing if row is None or at in faults else dict(zip("ab", row, strict=True)) for at, row in enumerate(given)
    ]
    assert v.placed(made.slice(1, 2), pa.array([1, 3]).to_numpy(), 5).to_pylist() == [None, made[1].as_py(), None, made[2].as_py(), None]
    assert len(v.assemble([None] * 3, [], {})) == 3 and v.joined([], fields).type == pa.struct(fields)


@each_row(
    ("kind", "text", "fault"),
    [
        ("INT", '"1"', "field a: '1' is no int"),
        ("INT", "-2147483649", "field a: -2147483649 is no int"),
        ("TINYINT", "128", "field a: 128 is no tinyint"),
        ("SMALLINT", "32768", "field a: 32768 is no smallint"),
        ("DOUBLE", "true", "field a: True is no double"),
        ("DOUBLE", '"1"', "field a: '1' is no double"),
        ("BOOLEAN", "1", "field a: 1 is no boolean"),
        ("DATE", "5", "field a: 5 is no date"),
        ("DATE", '"soon"', "field a: 'soon' is no date"),
        ("DATE", '"2021-02-29"', "field a: '2021-02-29' is no date"),
        ("TIMESTAMP", "true", "field a: True is no timestamp"),
        ("TIMESTAMP", '"2021-02-29"', "field a: '2021-02-29' is no timestamp"),
        ("TIMESTAMP_NTZ", "5", "field a: 5 is no timestamp_ntz"),
        ("BINARY", "5", "field a: 5 is no binary in base 64"),
        ("BINARY", '"x"', "field a: 'x' is no binary in base 64"),
        ("BINARY", '"YQ=="x"', None),
        ("DECIMAL(5,2)", "true", "field a: True is no decimal(5,2)"),
        ("DECIMAL(5,2)", "1234.5", "field a: '1234.5' is no decimal(5,2)"),
        ("ARRAY<INT>", "{}", "field a: {} is no array"),
        ("ARRAY<INT>", '[1,"x"]', "field a[]: 'x' is no int"),
        ("MAP<STRING,INT>", "[]", "field a: [] is no map"),
        ("MAP<STRING,INT>", '{"k":1,"x":"y"}', "field a{}: 'y' is no int"),
        ("STRUCT<x: INT>", "5", "field a: 5 is no struct"),
        ("STRUCT<y: INT, x: INT>", '{"y":1,"x":"y"}', "field a.x: 'y' is no int"),
        ("ARRAY<STRUCT<x: MAP<STRING, DATE>>>", '[{"x":{"k":1}}]', "field a[].x{}: 1 is no date"),
    ],
)
def test_why_a_field_of_json_is_not_what_its_column_holds(kind: str, text: str, fault: str | None) -> None:
    for keeps in (False, True):
        decoder = JsonDecoder(list(ddl.parse(f"n INT, a {kind}", "o")), keeps_good_fields=keeps)
        found, faults = rows(decoder, [b'{"n":1,"z":2}', b'{"a":%b,"n":3,"z":4}' % text.encode(), b'{"z":null,"n":5}'])
        assert list(faults) == [1] and (fault is None or faults[1] == fault)
        assert [row[0] for row in found] == [1, 3 if keeps and fault else None, 5]


@each_row(
    ("kind", "items", "found"),
    [
        ("TINYINT", "-128, 127, null", [-128, 127, None]),
        ("SMALLINT", "-32768, 32767", [-32768, 32767]),
        ("INT", "-2147483648, 2147483647", [-(2**31), 2**31 - 1]),
        ("BIGINT", "-9223372036854775808, 9223372036854775807", [-(2**63), 2**63 - 1]),
        ("DOUBLE", "1, 1.5, 1e400, 1e2", [1.0, 1.5, math.inf, 100.0]),
        ("DOUBLE", '"Infinity", "+Infinity", "INF", "+INF", "-Infinity", "-INF"', [math.inf] * 4 + [-math.inf] * 2),
        ("BOOLEAN", "true, false", [True, False]),
        ("STRING", '"a", 5, 1.50, [1.0, {"b": "ä"}], false', ["a", "5", "1.50", '[1.0,{"b":"ä"}]', "false"]),
        ("BINARY", '"YQ==", ""', [b"a", b""]),
        ("DECIMAL(5,2)", '1, "2.005", 1e1', [1, Decimal("2.01"), 10]),
        ("DATE", '"1970-01-02T10:00", "2020-2-9"', [dt.date(1970, 1, 2), dt.date(2020, 2, 9)]),
        ("TIMESTAMP_NTZ", '"1970-01-01T00:00:01"', [dt.datetime(1970, 1, 1, 0, 0, 1)]),
        ("TIMESTAMP", "-1", [dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC)]),
        ("ARRAY<INT>", "[1, null], []", [[1, None], []]),
        ("STRUCT<x: INT, y: INT>", '{"y": 2, "z": 3}, {}', [{"x": None, "y": 2}, {"x": None, "y": None}]),
        ("MAP<STRING,INT>", '{"a": 1, "b": null}', [[("a", 1), ("b", None)]]),
    ],
)
def test_what_columns_of_json_hold(kind: str, items: str, found: list[Any]) -> None:
    """In a map, which is read neither by the compiled pass nor by Arrow."""
    for keeps in (False, True):
        decoder = JsonDecoder(list(ddl.parse(f"a MAP<STRING, ARRAY<{kind}>>", "o")), keeps_good_fields=keeps)
        assert rows(decoder, [b'{"a":{"k":[],"l":[%b]}}' % items.encode()]) == ([([("k", []), ("l", found)],)], {})


def test_keys_of_json_are_text() -> None:
    with pytest.raises(ConfigError, match=r"^column a: the keys of JSON objects are strings, not int$"):
        JsonDecoder(list(ddl.parse("a MAP<INT,INT>", "o")))
    with pytest.raises(ConfigError, match=r"^column a: Spark has no type uint8$"):
        JsonDecoder([pa.field("a", pa.uint8())])
    with pytest.raises(ConfigError, match=r"^column a: JSON has nothing that could be read as time64"):
        JsonDecoder([pa.field("a", pa.time64("us"))])
