"""JSON, CSV and text as columns: right values, the bad ones found wherever they are, and nothing that one value holds touches another."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import io
import json
import math
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.decode import base, ddl
from kafkacore.decode.csvs import CsvDecoder
from kafkacore.decode.jsons import JsonDecoder
from kafkacore.decode.strings import StringDecoder
from kafkacore.errors import ConfigError
from tests.decode.support import rows
from tests.kit.reached import Reached
from tests.kit.rows import each_row
from tests.spark import from_json

UTC = dt.UTC


def json_decoder(text: str) -> JsonDecoder:
    return JsonDecoder(list(ddl.parse(text, "o")))


def csv_decoder(text: str, delimiter: str = ",", names: tuple[str, ...] | None = None) -> CsvDecoder:
    layout = list(ddl.parse(text, "o"))
    return CsvDecoder(layout if names is None else [ddl.parse(text, "o").field(name) for name in names], layout, delimiter)


# ---- JSON ----------------------------------------------------------------------------------------------------------------------------


@each_row(
    ("kind", "text", "value"),
    [
        ("TINYINT", "-128", -128),
        ("TINYINT", "128", None),
        ("INT", "2147483648", None),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("BIGINT", "9223372036854775808", None),
        ("BIGINT", "1.0", None),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "1e400", math.inf),
        ("DOUBLE", "9007199254740993", 9007199254740992.0),
        ("DOUBLE", '"-Infinity"', -math.inf),
        ("DOUBLE", "-Inf", -math.inf),
        ("FLOAT", "0.1", 0.10000000149011612),
        ("BOOLEAN", "true", True),
        ("STRING", r'"a\u0000\n\"\ud83d\ude00"', 'a\0\n"\U0001f600'),
        ("STRING", r'"\ud800"', None),
        ("STRING", '"a\nb"', None),
        ("STRING", "1.50", "1.50"),
        ("STRING", '{"b": [1.0, null, "x"]}', '{"b":[1.0,null,"x"]}'),
        ("BINARY", '"AP8="', b"\x00\xff"),
        ("DECIMAL(1)", "7", Decimal(7)),
        ("DECIMAL(5,2)", "1.005", Decimal("1.01")),
        ("DECIMAL(5,2)", '"-999.99"', Decimal("-999.99")),
        ("DECIMAL(5,2)", "999.995", None),
        ("DECIMAL(5,2)", r'"1\u0065-999999999"', Decimal("0.00")),
        ("DECIMAL(5,2)", "1e999999999", None),
        ("DECIMAL(5,2)", "1e-999999999", Decimal("0.00")),
        ("DECIMAL(38,38)", "9" * 23, None),
        ("DECIMAL(38,18)", "9" * 21, None),
        ("DECIMAL(38,18)", "12345678901234567890.5", Decimal("12345678901234567890.5")),
        ("DECIMAL(38,0)", "1" * 38, Decimal("1" * 38)),
        ("DATE", '"2020-02-29"', dt.date(2020, 2, 29)),
        ("DATE", '"2021-02-29"', None),
        ("DATE", '"2020-2-9T10:00:00Z"', dt.date(2020, 2, 9)),
        ("TIMESTAMP", '"2020-01-01T10:00:00Z"', dt.datetime(2020, 1, 1, 10, tzinfo=UTC)),
        ("TIMESTAMP", '"2020-01-01 10:00:00.5+02:30"', dt.datetime(2020, 1, 1, 7, 30, 0, 500_000, tzinfo=UTC)),
        ("TIMESTAMP", '"2020-01-01T10:00:00.1234569-0100"', dt.datetime(2020, 1, 1, 11, 0, 0, 123_456, tzinfo=UTC)),
        ("TIMESTAMP", '"2020-01-01T10:00:00+12"', dt.datetime(2019, 12, 31, 22, tzinfo=UTC)),
        ("TIMESTAMP", '"2020-01-01"', dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP", "1577836800", dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP", "1577836800000", None),
        ("TIMESTAMP_NTZ", '"2020-01-01T10:00:00.25"', dt.datetime(2020, 1, 1, 10, 0, 0, 250_000)),
        ("TIMESTAMP_NTZ", '"2020-01-01T10:00:00Z"', None),
        ("ARRAY<INT>", "[1,null]", [1, None]),
        ("ARRAY<ARRAY<DATE>>", '[["2020-01-01"],null,[]]', [[dt.date(2020, 1, 1)], None, []]),
        ("MAP<STRING,INT>", '{"x":1,"y":null}', [("x", 1), ("y", None)]),
        (
            "STRUCT<b: INT, c: STRUCT<d: TIMESTAMP>>",
            '{"c":{"d":"2020-01-01"},"z":0}',
            {"b": None, "c": {"d": dt.datetime(2020, 1, 1, tzinfo=UTC)}},
        ),
    ],
)
def test_json_types(kind: str, text: str, value: Any) -> None:
    found, faults = rows(json_decoder(f"a {kind}, z INT"), [b'{"a":%b,"z":7}' % text.encode()])
    assert (found[0][0], bool(faults)) == (value, value is None)
    if faults:
        assert found[0][1] is None  # a value is whole or nothing
        assert not kind.startswith("DECIMAL") or "is no decimal(" in faults[0]


@each_row("names", [None, "abzf", ("a", "s", "l", "ls", "ll", "d", "t", "dt", "f", "b"), ("m", "b"), ("b",)])
@each_row("together", [True, False])
def test_permissive_json_is_what_from_json_makes_of_it(names: Any, together: bool) -> None:
    """Also of columns for which the compiled pass or Arrow reads first, and of values between many good ones."""
    fields = [each for each in ddl.parse(from_json.SCHEMA, "o") if names is None or each.name in names]
    decoder = JsonDecoder(fields, keeps_good_fields=True)
    values = [text.encode() for text, _ in from_json.ROWS]
    good = [b'{"a":7,"b":"good"}'] * 40
    if together:
        decoded = decoder.decode(pa.array([each for value in values for each in (value, *good)], pa.binary()))
        found = [[column[at].as_py() for column in decoded.columns] for at in range(0, decoded.rows, 41)]
    else:
        found = [[column[0].as_py() for column in decoder.decode(pa.array([value], pa.binary())).columns] for value in values]
    for (text, wanted), row in zip(from_json.ROWS, found, strict=True):
        ours = {field.name: from_json.plain(value, field.type) for field, value in zip(fields, row, strict=True)}
        assert repr(ours) == repr({field.name: wanted.get(field.name) for field in fields}), text


def test_what_permissive_json_keeps_is_marked_all_the_same() -> None:
    """Rows in part are known by `_corrupt`, and go to the dead letters; so is what follows the first value."""
    decoder = JsonDecoder(list(ddl.parse("a INT, s STRUCT<x: INT, y: STRING>", "o")), keeps_good_fields=True)
    values: list[bytes | None] = [b'{"a":1}', b'{"a":"1","s":{"x":"2","y":"k"}}', b'{"a":1} {"a":2}', None, b'{"a":1}}']
    values.append(b'{"s":{"y":"\\ud800"},"a":3}')
    found, faults = rows(decoder, values)
    assert found == [(1, None), (None, {"x": None, "y": "k"}), (1, None), (None, None), (1, None), (3, {"x": None, "y": None})]
    assert sorted(faults) == [1, 2, 4, 5]
    assert faults[1] == "field a: '1' is no int" and faults[2] == """something follows the JSON object: '{"a":2}'"""


def test_of_several_bad_fields_the_first_one_is_named() -> None:
    fields = list(ddl.parse("a INT, b INT, s STRUCT<x: INT, y: INT>, l ARRAY<STRUCT<x: INT>>", "o"))
    values = {
        b'{"b":"1","a":"2"}': "b",
        b'{"s":{"y":"1","x":2},"a":"2","b":"3"}': "s.y",
        b'{"s":{"x":"1","y":"2"}}': "s.x",
        b'{"l":[{"x":0},{"x":"1"},{"x":"2"}],"a":"3"}': "l[].x",
    }
    _, faults = rows(JsonDecoder(fields, keeps_good_fields=True), list(values))
    assert faults == {nth: f"field {name}: '1' is no int" for nth, name in enumerate(values.values())}
    _, faults = rows(json_decoder("t TIMESTAMP_NTZ, u TIMESTAMP"), [b'{"t":5}', b'{"u":true}'])
    assert [why[:10] for why in faults.values()] == ["field t: 5", "field u: T"]


@each_row(
    ("value", "fault"),
    [
        (b"", True),
        (b"   ", True),
        (b"null", False),
        (b"{", True),
        (b"{}", False),
        (b" \r\n\t{ }\n", False),
        (b"[]", True),
        (b'[{"a":1}]', True),
        (b'"a"', True),
        (b"7", True),
        (b'{"a":1} {"a":2}', True),
        (b'{"a":1}}{"a":2}', True),
        (b'{"a":1},{"a":2}', True),
        (b'{"a":1}\x00', True),
        (b'{"a":1}}\x00', True),
        (b'\xef\xbb\xbf{"a":1}', True),
        (b'{"a":1,}', True),
        (b"{'a':1}", True),
        (b'{"a":01}', True),
        (b'{"b":"\xff"}', True),
        (b'{"b":' + b"[" * 100_000, True),
        (b'{"b":' + b'{"b":' * 5_000 + b"1" + b"}" * 5_001, False),
        (b'{"a":' + b"9" * 10_000 + b"}", True),
        (b'{"a":1}\n', False),
        (b'{"a":\n1}', False),
    ],
)
def test_odd_json_is_itself_alone(value: bytes, fault: bool) -> None:
    """Between good values in a batch, and by itself: the same, and the others are what they are."""
    decoder = json_decoder("a BIGINT, s STRUCT<a: INT>")
    good = b'{"a":5,"s":{"a":6}}'
    for values in ([value], [good, value, good], [good] * 300 + [value] + [good] * 300):
        found, faults = rows(decoder, list(values))
        at = values.index(value)
        assert list(faults) == ([at] if fault else [])
        assert all(row == (5, {"a": 6}) for place, row in enumerate(found) if place != at)


def test_values_that_complete_each_other_shift_nothing() -> None:
    """Two broken values that read as two objects when they stand together."""
    values: list[bytes | None] = [b'{"a":1}', b'{"a":2}{"s":', b'{"a":3}}', b'{"a":4}', b'{"a":5}}\n{"a":6', b'{"a":7}']
    found, faults = rows(json_decoder("a INT, s STRUCT<a: INT>"), values)
    assert sorted(faults) == [1, 2, 4]
    assert [row[0] for row in found] == [1, None, None, 4, None, 7]


def test_tombstones_are_rows_of_nulls_and_no_faults() -> None:
    found, faults = rows(json_decoder("a INT"), [None, b'{"a":1}', None, b"x", None])
    assert found == [(None,), (1,), (None,), (None,), (None,)] and list(faults) == [3]
    assert rows(json_decoder("a INT"), [None, None]) == ([(None,), (None,)], {})
    assert rows(json_decoder("a INT"), []) == ([], {})
    assert rows(json_decoder("a INT"), [b'{"a":1,"a":2}']) == ([(2,)], {})  # the last member of a name counts


_LEAVES = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": st.text(max_size=8),
    "BOOLEAN": st.booleans(),
    "DATE": st.dates().map(str),
    "TIMESTAMP": st.datetimes().map(lambda at: at.isoformat() + "Z")
    | st.builds(
        lambda at, zone: at.isoformat() + zone,
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)),
        st.sampled_from(["+0130", "-05:30"]),
    ),
}
_SCHEMA = (
    ", ".join(f"f{at} {kind}" for at, kind in enumerate(_LEAVES))
    + ", l ARRAY<STRUCT<x: BIGINT, y: STRING>>, s STRUCT<t: TIMESTAMP, n: INT>"
)
_OBJECT = st.fixed_dictionaries(
    {},
    optional={
        **{f"f{at}": st.none() | values for at, values in enumerate(_LEAVES.values())},
        "l": st.lists(st.none() | st.fixed_dictionaries({"x": _LEAVES["BIGINT"]}, optional={"y": _LEAVES["STRING"]}), max_size=3),
        "s": st.none() | st.fixed_dictionaries({}, optional={"t": _LEAVES["TIMESTAMP"], "n": st.integers(-(2**31), 2**31 - 1)}),
        "foreign": st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)),
    },
)
_RIGHT = _OBJECT.map(lambda each: json.dumps(each, ensure_ascii=False).encode())
_WRONG = st.sampled_from([b"{", b"", b"null", b'{"f0":"x"}', b'{"f2":5}', b'{"f0":1}{"f0":2}', b'"', b"}\n{"]) | st.binary(max_size=6)


batches = Reached("a bad value between good ones", "bad values side by side", "no bad value", "a null", "a fault alone")


@partial(batches.by, rounds=4)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.none() | _RIGHT | _WRONG | _RIGHT.map(bytes) | _RIGHT.map(bytes.strip), max_size=12))
def test_in_a_batch_as_row_by_row(values: list[bytes | None]) -> None:
    """Arrow for all at once, and Python for each: they agree on every value, in whatever company it is."""
    decoder = json_decoder(_SCHEMA)
    alone = json_decoder(_SCHEMA)
    alone.by_arrow = False
    found, faults = rows(decoder, values)
    expected, wrong = rows(alone, values)
    assert sorted(faults) == sorted(wrong)
    assert repr(found) == repr(expected)
    good = {at for at, value in enumerate(values) if value is not None} - faults.keys()
    batches("a bad value between good ones", any({at - 1, at + 1} <= good for at in faults))
    batches("bad values side by side", any(at + 1 in faults for at in faults))
    batches("no bad value", good and not faults)
    batches("a null", None in values)
    batches("a fault alone", len(faults) == 1)


class Counting(JsonDecoder):
    """Notes how many values each call of the library gets."""

    def __init__(self, text: str) -> None:
        super().__init__(list(ddl.parse(text, "o")))
        self.calls: list[int] = []

    def _block(self, values: Any) -> Any:
        self.calls.append(len(values))
        return super()._block(values)


@each_row("wrong", [b"{", b'{"a":"x","b":1}', b'{"a":99999999999}', b""])
@each_row("every", [1, 3, 40])
def test_many_bad_values_cost_no_more_than_their_number(wrong: bytes, every: int) -> None:
    """Calls of the library grow with the values and not with their square."""
    decoder = Counting("a INT, b STRING")
    count = 6_000
    found, faults = rows(decoder, [wrong if at % every == 0 else b'{"a":%d,"b":"x"}' % at for at in range(count)])
    assert len(faults) == -(-count // every)
    assert all(row == (at, "x") for at, row in enumerate(found) if at % every)
    assert len(decoder.calls) < 10 + 3 * min(len(faults), count / 64 * 4)
    assert sum(decoder.calls) < 12 * count + len(faults) * 64 * base.PIECES


@each_row("wrong", [b'{"a":{"x":"y"}}', b"{", b'{"a":{"x":1}}{}'])
def test_where_the_library_says_which_value_is_bad_it_is_believed(wrong: bytes) -> None:
    decoder = Counting("a STRUCT<x: INT>")
    found, faults = rows(decoder, [wrong if at == 70 else b'{"a":{"x":1}}' for at in range(100)])
    assert (list(faults), found.count(({"x": 1},))) == ([70], 99)
    assert decoder.calls == [100, 70, 29]


class CountingCells(CsvDecoder):
    """As `Counting`; a value by itself is one call, too."""

    calls: list[int]

    def _block(self, values: Any) -> Any:
        self.calls.append(len(values))
        return super()._block(values)


@each_row("wrong", [b"x,1", b"1", b"1,2,3"])
def test_a_bad_line_is_found_at_once(wrong: bytes) -> None:
    fields = list(ddl.parse("a INT, b STRING", "o"))
    decoder = CountingCells(fields, fields, ",")
    decoder.calls = []
    found, faults = rows(decoder, [wrong if at == 70 else b"1,z" for at in range(100)])
    assert (list(faults), found.count((1, "z")), decoder.calls) == ([70], 99, [100, 70, 1, 29])


def test_the_registrys_prefix_is_taken_off() -> None:
    decoder = base.Unframed(json_decoder("a INT"))
    frame = b"\x00\x00\x00\x00\x07"
    found, faults = rows(decoder, [frame + b'{"a":1}', None, b'{"a":2}', frame, b"\x00", b"", frame + b"{", frame + b'{"a":3}'])
    assert [row[0] for row in found] == [1, None, None, None, None, None, None, 3]
    assert sorted(faults) == [2, 3, 4, 5, 6] and "wire format" in faults[2] and "JSON" in faults[3]
    assert rows(decoder, [b"x", None, b"y"])[0] == [(None,)] * 3


# ---- CSV -----------------------------------------------------------------------------------------------------------------------------


def test_csv_cells() -> None:
    decoder = csv_decoder("a INT, s STRING, d DOUBLE, b BOOLEAN, t TIMESTAMP, y DATE, p DECIMAL(6,2), n TIMESTAMP_NTZ")
    found, faults = rows(
        decoder,
        [
            b'1,"x,""y""\nz",1.5,true,2020-01-01T01:00:00Z,2020-01-02,12.5,2020-01-01 05:00:00',
            b",,,,,,,",
            b',"",,,2020-01-01,,,',
            b"1,x,1.5,true,2020-01-01T00:00:00Z,2020-01-02",
            b"x,x,,,,,,",
            None,
        ],
    )
    midnight = dt.datetime(2020, 1, 1)
    assert found == [
        (1, 'x,"y"\nz', 1.5, True, dt.datetime(2020, 1, 1, 1, tzinfo=UTC), dt.date(2020, 1, 2), Decimal("12.50"), midnight.replace(hour=5)),
        (None,) * 8,
        (None, "", None, None, midnight.replace(tzinfo=UTC), None, None, None),
        (None,) * 8,
        (None,) * 8,
        (None,) * 8,
    ]
    assert faults == {3: "not one line of 8 cells", 4: "field a: CSV conversion error to int32: invalid value 'x'"}


def test_csv_columns_are_chosen_by_name_and_stand_in_the_layouts_order() -> None:
    assert rows(csv_decoder("a INT, b STRING, c INT", names=("c", "a")), [b"1,x,3"]) == ([(3, 1)], {})
    assert rows(csv_decoder("a INT, b STRING", "\t"), [b"1\tx"]) == ([(1, "x")], {})
    assert rows(csv_decoder("a INT"), [b"5", b"", b'"', b"1,2"])[0] == [(5,), (None,), (None,), (None,)]


@each_row("value", [b"1,x\n2,y", b'1,"x', b"1,x\n", b"\n1,x", b"1", b"1,x,2", b"\xff,x", b'"\n"', b'1,"x"y"', b"a,b"])
def test_odd_csv_is_itself_alone(value: bytes) -> None:
    decoder = csv_decoder("a INT, b STRING")
    values = [b"5,good"] * 20 + [value] + [b'6,"also, good"'] * 20 + [value, value, b"7,end"]
    found, faults = rows(decoder, list(values))
    alone, wrong = rows(decoder, [value])
    bad = [at for at, each in enumerate(values) if each == value]
    assert sorted(faults) == (bad if wrong else [])
    assert [found[at] for at in bad] == alone * 3
    assert [row for at, row in enumerate(found) if at not in bad] == [(5, "good")] * 20 + [(6, "also, good")] * 20 + [(7, "end")]


def test_what_marks_the_lines_is_never_told() -> None:
    decoder = csv_decoder("a INT, b DATE")
    _, faults = rows(decoder, [b"x,", b"1", b"1,2,3", b"1,x", b'1,"x', b"\xff", b"1,\n1,", b"99999999999,"])
    assert len(faults) == 8 and not any(decoder.mark in each for each in faults.values())
    _, faults = rows(json_decoder("a INT"), [b'{"a":Inf}', b'{"a":"Inf"}', b'{"a":Inf'])
    assert len(faults) == 3 and not any("/" in each for each in faults.values())


def test_csv_refuses_types_that_no_cell_holds() -> None:
    with pytest.raises(ConfigError, match="column b: a cell of CSV cannot be array<int>"):
        csv_decoder("a INT, b ARRAY<INT>")


amid_rows = Reached("a fault", "a row", "nothing but nulls")


@partial(amid_rows.by, rounds=4)
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)), min_size=1, max_size=8
    ),
    st.data(),
)
def test_csv_as_pythons_csv_writes_it(lines: list[tuple[int, str]], data: Any) -> None:
    values: list[bytes | None] = []
    for line in lines:
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(line)
        values.append(out.getvalue().encode())
    at = data.draw(st.integers(0, len(values)))
    values.insert(at, data.draw(st.binary(max_size=6) | st.sampled_from([b"5,x", b"-1,", b'5,"x']) | st.sampled_from([b",", b",,"])))
    found, faults = rows(csv_decoder("a INT, b STRING"), values)
    assert found[:at] + found[at + 1 :] == lines
    amid_rows("a fault", faults)
    amid_rows("a row", found[at] != (None, None))
    amid_rows("nothing but nulls", not faults and found[at] == (None, None))


# ---- text, and large values ----------------------------------------------------------------------------------------------------------


def test_text_is_checked() -> None:
    decoder = StringDecoder([pa.field("value", pa.string())])
    found, faults = rows(decoder, ["häuser".encode(), None, b"\xff", b""])
    assert found == [("häuser",), (None,), (None,), ("",)] and list(faults) == [2]


def test_a_large_value_is_read_once() -> None:
    big = b'{"a":"' + base64.b64encode(bytes(3 << 20)) + b'"}'
    decoder = Counting("a STRING")
    found, _ = rows(decoder, [big, b"x", big])
    assert [len(row[0] or "") for row in found] == [4 << 20, 0, 4 << 20]
    assert decoder.calls == [1]  # the bad one, alone


# ---- DDL -----------------------------------------------------------------------------------------------------------------------------


@each_row(
    ("text", "says"),
    [
        ("", "a column expected and the end found"),
        ("a", "a name expected and the end found"),
        ("a INTT", "a type expected and 'INTT' found"),
        ("a INT b INT", "',' or the end expected and 'b' found"),
        ("a INT,", "a name expected"),
        ("a ARRAY<INT", "'>' expected"),
        ("a DECIMAL(39,0)", "must have 1 to 38 digits"),
        ("a DECIMAL(0,0)", "must have 1 to 38 digits"),
        ("a DECIMAL(3,4)", "must have 1 to 38 digits"),
        ("a INT NOT NULL", "column a is NOT NULL"),
        ("a INT, a STRING", "column a is there twice"),
        ("a INT COMMENT b", "a comment in quotes expected"),
        ("a " + "ARRAY<" * 100, "nested more than 64 deep"),
        ("a INT;", "found"),
    ],
)
def test_ddl_says_what_it_expected(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ddl.parse(text, "value.schema")


def test_ddl_reads_what_it_writes() -> None:
    kinds = "a INT,`b``c` STRUCT<x: ARRAY<DECIMAL(10,2)>,y:MAP<STRING,TIMESTAMP_NTZ>> COMMENT 'it''s',c decimal, d timestamp , e BINARY"
    schema = ddl.parse(kinds.replace("it''s", "its"), "o")
    assert schema.names == ["a", "b`c", "c", "d", "e"]
    assert [ddl.name_of(each.type) for each in list(schema)[2:]] == ["decimal(10,0)", "timestamp", "binary"]
    assert [
        ddl.name_of(ddl.parse(f"a: {kind}", "o").field(0).type) for kind in ("dec(7)", "NUMERIC(38,38)", "decimal(1,1)", "struct<>")
    ] == [*("decimal(7,0)", "decimal(38,38)", "decimal(1,1)", "struct<>")]
    written = ", ".join(f"`{each.name.replace('`', '``')}` {ddl.name_of(each.type)}" for each in schema)
    assert ddl.parse(written, "o") == schema
