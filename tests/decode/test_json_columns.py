"""The compiled pass over JSON values: what it takes is right to the last bit, what it leaves is just what it should, and with the long way
for the rest the columns and faults are those of the long way alone."""

from __future__ import annotations

import json
import math
import re
import struct
from functools import partial
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafkacore._codec import json_columns
from kafkacore.decode import base, ddl, jsons
from tests.kit.reached import Reached
from tests.kit.rows import each_row

KINDS = {
    "c": pa.int8(),
    "s": pa.int16(),
    "i": pa.int32(),
    "l": pa.int64(),
    "f": pa.float32(),
    "g": pa.float64(),
    "b": pa.bool_(),
    "u": pa.string(),
    "U": pa.large_string(),
    "v": pa.string_view(),
}


class Long(jsons.JsonDecoder):
    """The decoder as it is without the compiled pass."""

    _structs = base.BlockDecoder._structs


def exact(values: list[bytes]) -> Any:
    """A binary array whose data ends with its allocation, so that a read beyond it is one that a sanitizer sees."""
    ends = numpy.cumsum([0, *map(len, values)], dtype=numpy.int32)
    data = numpy.frombuffer(b"".join(values), numpy.uint8).copy()
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def amid(values: list[bytes], junk: bytes) -> Any:
    """A binary array of the values in which each second item is null, and has junk for its bytes: words that are loaded reach into it."""
    parts = [part for value in values for part in (value, junk)]
    ends = numpy.cumsum([0, *map(len, parts)], dtype=numpy.int32)
    valid = numpy.packbits([True, False] * len(values), bitorder="little")
    return pa.Array.from_buffers(pa.binary(), len(parts), [pa.py_buffer(each) for each in (valid, ends, b"".join(parts))])


JUNK = {"u": b"1234567890" * 4, "U": b'.5e7"' * 8, "v": b'\xff","a":1}' * 4}


def scan(values: Any, **kinds: str) -> tuple[list[list[Any]], list[int]]:
    """The columns as lists, and which values were left; the buffers are sound, and say how many nulls there are. What lies behind a value
    does not matter, nor do layouts of text."""
    found = scan_once(exact(values) if isinstance(values, list) else values, kinds)
    for text, junk in JUNK.items() if isinstance(values, list) else ():
        columns, left = scan_once(amid(values, junk), {name: text if kind == "u" else kind for name, kind in kinds.items()})
        assert repr(([column[::2] for column in columns], [at // 2 for at in left])) == repr(found)
    return found


def scan_once(values: Any, kinds: dict[str, str]) -> tuple[list[list[Any]], list[int]]:
    found, left = json_columns(values, tuple(name.encode() for name in kinds), "".join(kinds.values()))
    columns = []
    for kind, (nulls, buffers) in zip(kinds.values(), found, strict=True):
        column = pa.Array.from_buffers(KINDS[kind], len(values), [None if each is None else pa.py_buffer(each) for each in buffers], nulls)
        column.validate(full=True)
        listed = column.to_pylist()
        assert nulls == listed.count(None) and (buffers[0] is None) == (not nulls)
        columns.append(listed)
    flags = [] if left is None else numpy.unpackbits(numpy.frombuffer(left, numpy.uint8), bitorder="little").tolist()
    assert left is None or sum(flags) == sum(flags[: len(values)]) > 0
    return columns, [at for at, flag in enumerate(flags) if flag]


def compare(schema: str, values: Any) -> None:
    """With the compiled pass as without."""
    fields = list(ddl.parse(schema, "o"))
    values = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    decoder = jsons.JsonDecoder(fields)
    assert decoder.plain is not None
    found, expected = decoder.decode(values), Long(fields).decode(values)
    assert found.faults == expected.faults and found.rows == expected.rows
    for column, wanted in zip(found.columns, expected.columns, strict=True):
        column.validate(full=True)
        assert column.type == wanted.type and column.null_count == wanted.null_count
        assert repr(column.to_pylist()) == repr(wanted.to_pylist())


# ---- what is taken, and what is left -------------------------------------------------------------------------------------------------


@each_row(
    ("kind", "text", "value"),
    [
        ("c", "-128", -128),
        ("c", "127", 127),
        ("s", "-32768", -(2**15)),
        ("i", "2147483647", 2**31 - 1),
        ("l", "-9223372036854775808", -(2**63)),
        ("l", "9223372036854775807", 2**63 - 1),
        ("l", "-0", 0),
        ("l", "null", None),
        ("g", "0", 0.0),
        ("g", "-0.5e-3", -0.0005),
        ("g", "0.000000000000000000001", 1e-21),
        ("g", "9007199254740993", 9007199254740992.0),
        ("g", "9007199254740995", 9007199254740996.0),
        ("g", "0.30000000000000004", 0.30000000000000004),
        ("g", "1E+27", 1e27),
        ("g", "9999999999999999999e27", 9999999999999999999e27),
        ("f", "0.1", 0.10000000149011612),
        ("f", "16777215", 16777215.0),
        ("b", "true", True),
        ("b", "false", False),
        ("u", '""', ""),
        (
            "u",
            r'"\"\\\/\b\f\n\r\t\u0000\u007f\u0080\u07ff\u0800\uFFFF\ud800\udc00\uDBFF\uDFFF"',
            '"\\/\b\f\n\r\t\0\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff',
        ),
        ("u", '"häuser \U0001f600"', "häuser \U0001f600"),
        ("u", '"\x7f\u2028"', "\x7f\u2028"),
    ],
)
def test_what_is_plain_is_taken(kind: str, text: str, value: Any) -> None:
    plain = [b'{"a":%b}' % text.encode(), b' \r\n\t{ "a"\t:\n%b } \n' % text.encode(), b'{"x":[{}],"a":%b,"y":"]"}' % text.encode()]
    (found,), left = scan(plain, a=kind)
    assert not left and repr(found) == repr([value] * 3)
    compare(f"a {ddl.name_of(KINDS[kind])}", plain)


@each_row(
    ("kind", "texts"),
    [
        ("c", ["128", "-129", "1.0", "1e1", '"1"', "true", "[]", "{}", "00", "+1", "-", "", "1_0", "0x1", "nul", "nulll"]),
        ("l", ["9223372036854775808", "-9223372036854775809", "18446744073709551617", "1" * 20, "1" * 500, "NaN", "-Infinity"]),
        ("g", ["1.", ".5", "1e", "1e+", "-0", "-0.0", "1e400", "1e28", "1e-28", "1" * 20, "0." + "1" * 20, "NaN", "Inf", '"NaN"', "null0"]),
        ("f", ["1e39", "1e-39", "16777217", "-Infinity"]),
        ("b", ["1", "True", "tru", '"true"', "fals"]),
        ("u", ["1", "true", "[]", "{}", "'a'", '"a', '"\n"', '"\0"', r'"\x"', r'"\u12g4"', r'"\u12"']),
        ("u", [r'"\ud800"', r'"\udc00"', r'"\ud800\u0041"', r'"\ud800x"']),
    ],
)
def test_what_is_not_is_left(kind: str, texts: list[str]) -> None:
    """Not read, and not judged either; what it has written until then is taken back."""
    for text in texts:
        values = [b'{"z":7,"a":%b}' % text.encode(), b'{"s":"x","a":null,"z":8}', b'{"s":"y","t":true,"a":%b}' % text.encode()]
        columns, left = scan(values, z="l", s="u", t="b", a=kind)
        assert left == [0, 2] and columns == [[None, 8, None], [None, "x", None], [None] * 3, [None] * 3]
        compare(f"z BIGINT, s STRING, t BOOLEAN, a {ddl.name_of(KINDS[kind])}", values)


@each_row(
    "value",
    [
        *(b"", b" ", b"null", b"7", b'"a"', b"[]", b'[{"a":1}]', b"{", b"}", b"{}}", b"{},", b"{}{}", b"{}\0", b"\x0b{}", b"/**/{}"),
        *(b"\xef\xbb\xbf{}", b'{"a":1,}', b"{,}", b'{"a"}', b'{"a":}', b'{"a" 1}', b"{a:1}", b'{"a":1 "b":2}', b'{"a":1}x'),
        *(b'{"a":1;"b":2}', b'{"x":1]', b'{"a":1,"a":1}', b'{"a":null,"a":1}', b'{"\\u0061":1}', b'{"x\\n":1}', b'{"x\n":1}'),
        *(b'{"x":"\xff"}', b'{"x":"\xed\xa0\x80"}', b'{"\xc0\x80":1}', b'{"x":[}', b'{"x":[1,]}', b'{"x":[,1]}', b'{"x":{]}'),
        *(b'{"x":{"y":1,}}', b'{"x":{"y"}}', b'{"x":{1:2}}', b'{"x":[1 2]}', b'{"x":[1}'),
        *(b'{"x":truE}', b'{"x":"\\ud800"}', b'{"x":01}', b'{"x":%b}' % (b"1" * 401), b'{"x":%b%b}' % (b"[" * 65, b"]" * 65)),
    ],
)
def test_values_that_are_left(value: bytes) -> None:
    assert scan([b'{"a":1}', value, b'{"a":2}'], a="l") == ([[1, None, 2]], [1])
    compare("a BIGINT", [b'{"a":1}', value, b'{"a":2}'])


def test_other_fields_are_passed_over() -> None:
    nested = b"[" * 61 + b'{"a":5,"b":[{},[],{"c":"]}"}],"\\n":-1.5e3}' + b"]" * 61
    assert scan([b'{"x":%b,"a":1,"A":2,"":3,"aa":[true,false,null]}' % nested, b'{"x":%b}' % (b"1" * 400)], a="l") == ([[1, None]], [])


def test_every_beginning_of_a_value_is_left() -> None:
    """And no byte behind it is read, which a sanitizer sees."""
    value = r'{"a":-12.5e1,"s":"x\ud83d\ude00 ä","b":true,"x":[{"y":null},"\n"],"i":123}'.encode()
    for end in range(len(value)):
        assert scan([value[:end]], a="g", s="u", b="b", i="i")[1] == [0]
    assert scan([value], a="g", s="u", b="b", i="i") == ([[-125.0], ["x\U0001f600 ä"], [True], [123]], [])


utf_8 = Reached("of several bytes", "broken", "bytes that are right at the end")


@utf_8.by
@settings(max_examples=150, deadline=None)
@given(
    st.text("aé€\U0001f600", min_size=1, max_size=4).map(str.encode)
    | st.binary(max_size=12)
    | st.lists(
        st.sampled_from(b"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf4\xf5\xff"), max_size=10
    ).map(bytes)
)
def test_utf_8_as_python_sees_it(data: bytes) -> None:
    try:
        text = data.decode()
        utf_8("of several bytes", len(text) < len(data))
    except UnicodeDecodeError:
        utf_8("broken", any(byte < 0x80 for byte in data))
        utf_8("bytes that are right at the end", data[-1] < 0x80)
        assert scan([b'{"a":1,"x":"' + data + b'"}', b'{"x":"' + data + b'","a":1,"y":"more text behind"}'], a="l")[1] == [0, 1]
    else:
        if not re.search(r'[\0-\x1f"\\]', text):
            values = [b'{"a":"' + data + b'","x":"1234567"}', b'{"x":"plain text in front: ' + data + b'","a":"' + data + b'"}']
            assert scan(values, a="u") == ([[text, text]], [])


# ---- numbers -------------------------------------------------------------------------------------------------------------------------


@st.composite
def halves(draw: Any) -> str:
    """Numbers half way between two doubles, or one beside that, also with a part behind the point."""
    near, shift = draw(st.integers(2**53, 2**63)), draw(st.integers(0, 20))
    step = 1 << (near.bit_length() - 53)
    number = near // step * step + step // 2 + draw(st.integers(-1, 1))
    digits = number * 5**shift
    return f"{digits}e{-shift}" if len(str(digits)) <= 19 else f"{number}e0"


@settings(max_examples=200, deadline=None)
@given(
    st.builds("{}{}e{}".format, st.sampled_from(["", "-"]), st.integers(0, 10**19 - 1), st.integers(-27, 27))
    | (st.floats(1e-9, 1e25) | st.floats(-1e25, -1e-9)).map(repr)
    | halves()
)
def test_doubles_are_the_nearest(text: str) -> None:
    (found,), left = scan([b'{"a":%b}' % text.encode()], a="g")
    assert left == [0] if text.startswith("-0e") else struct.pack("d", found[0]) == struct.pack("d", float(text))


@settings(max_examples=150, deadline=None)
@given(st.floats(-(2.0**126), 2.0**126, width=32), st.sampled_from(["", "0", "1", "5", "49", "500001"]))
def test_floats_are_what_arrow_reads(value: float, more: str) -> None:
    """Taken or left: half way between two floats it matters that there is one rounding only."""
    text = repr(value)
    text = text if "e" in text else text + more
    assume(value or math.copysign(1, value) > 0)
    compare("a FLOAT", [b'{"a":%b}' % text.encode()])
    middle = (value + float(numpy.nextafter(numpy.float32(value), numpy.float32(math.inf)))) / 2
    if math.isfinite(middle) and 1e-27 < abs(middle) < 1e27:
        compare("a FLOAT", [b'{"a":%b}' % repr(middle).encode(), b'{"a":%b%b}' % (repr(middle).encode().partition(b"e")[0], more.encode())])


# ---- with the long way for the rest, as the long way alone ---------------------------------------------------------------------------

SCHEMA = "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g BOOLEAN, h STRING, `ü` STRING"
_GOOD_STRINGS = st.builds(lambda text, plain: json.dumps(text, ensure_ascii=plain), st.text(max_size=9), st.booleans()) | st.sampled_from(
    [r'"\ud83d\ude00\/"', '"' + "long " * 30 + '"', '"' + r"\u00e4" * 20 + '"', '"Infinity"', '"id"']
)
_STRINGS = _GOOD_STRINGS | st.sampled_from([r'"\ud800"', r'"\udc00x"', r'"\u00"', '"\t"', '"a', r'"\x"'])
_INTEGERS = st.sampled_from([7, 8, 15, 16, 31, 32, 63, 64]).flatmap(lambda bits: st.integers(-(2**bits) - 1, 2**bits + 1)).map(str)
_REALS = st.floats(-1e30, 1e30).map(repr) | st.decimals(-(10**9), 10**9, places=3).map(str)
_ODD = st.sampled_from(
    ["", "1" * 25, *"1.50 1e5 1E+2 -0.0 0e9 1e-30 1e400 01 +1 1. .5 - NaN Infinity -Inf truE //".split()],
)
_ANY = st.recursive(
    _STRINGS | _INTEGERS | _REALS | _ODD | st.sampled_from(["true", "false", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: "[" + ", ".join(each) + "]")
        | st.lists(st.tuples(_STRINGS, inner), max_size=3).map(
            lambda each: "{" + ",".join(f"{name} :{value}" for name, value in each) + "}"
        )
    ),
    max_leaves=6,
)
_BLANK = st.sampled_from(["", "", "", " ", "\n", " \t\r\n"])


def _right(kind: Any) -> st.SearchStrategy[str]:
    if kind in jsons.INTEGERS:
        return st.integers(-(2 ** jsons.INTEGERS[kind]), 2 ** jsons.INTEGERS[kind] - 1).map(str)
    return {"u": _GOOD_STRINGS, "b": st.sampled_from(["true", "false"])}.get(jsons.PLAIN[kind], _REALS)


def _field(name: str, kind: Any) -> st.SearchStrategy[str]:
    # one in ten is of any kind
    value = st.integers(0, 9).flatmap(lambda choice: _ANY if choice == 9 else st.just("null") if choice == 8 else _right(kind))
    return st.builds(lambda blank, text: f'{blank}"{name}"{blank}:{blank}{text}{blank}', _BLANK, value)


_FIELDS = [_field(each.name, each.type) for each in ddl.parse(SCHEMA, "o")]
_FIELDS += [st.builds(lambda name, text: f"{name}:{text}", _GOOD_STRINGS, _ANY)]
_TEXT = st.permutations(range(len(_FIELDS))).flatmap(
    lambda order: st.integers(0, 5).flatmap(lambda size: st.tuples(*(_FIELDS[at] for at in order[:size])))
)
_VALUE = st.builds(lambda fields, blank: (blank + "{" + ",".join(fields) + "}" + blank).encode(errors="surrogatepass"), _TEXT, _BLANK)


@st.composite
def _mutated(draw: Any) -> bytes:
    value = bytearray(draw(_VALUE))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(value)))
        value[at : at + draw(st.integers(0, 1))] = draw(
            st.binary(max_size=1) | st.sampled_from([b'"', b"\\", b"{", b"}", b",", b"\x80", b"0"])
        )
    return bytes(value)


_NO_SIGN = re.compile(rb"-0(?![0-9.eE])")
"""A zero whose sign the long way keeps or not, according to the values beside it."""


passes = Reached("all are taken", "some are left", "what is left is right", "what is left is wrong")


@partial(passes.by, rounds=4)
@settings(max_examples=20, deadline=None)
@given(st.lists(st.none() | _VALUE | _mutated(), max_size=8), st.integers(0, 3))
def test_as_without_the_compiled_pass(values: list[bytes | None], skip: int) -> None:
    assume(not any(value and _NO_SIGN.search(value) for value in values))
    decoder, array, there = jsons.JsonDecoder(list(ddl.parse(SCHEMA, "o"))), pa.array(values, pa.binary()), len(values) - values.count(None)
    flags = json_columns(array, *decoder.plain)[1]
    left, wrong = (
        0 if flags is None else int(numpy.unpackbits(numpy.frombuffer(flags, numpy.uint8)).sum()),
        len(decoder.decode(array).faults),
    )
    passes("all are taken", there and not left)
    passes("some are left", 0 < left < there)
    passes("what is left is right", left > wrong)
    passes("what is left is wrong", wrong)
    compare(SCHEMA, values)
    compare(SCHEMA, pa.array(values, pa.binary())[skip:])


def test_slices_nulls_and_nothing() -> None:
    plain = [b'{"a":%d,"s":"%s","b":%s}' % (at, b"x" * (at % 7), (b"true", b"false")[at % 3 == 0]) for at in range(60)]
    odd: list[bytes | None] = [None if at % 5 == 1 else b'{"a":1,"a":2}' if at % 7 == 3 else value for at, value in enumerate(plain)]
    for array in (pa.array(plain, pa.binary()), pa.array(odd, pa.binary())):
        for start, stop in ((0, 60), (0, 0), (60, 60), (1, 60), (7, 9), (9, 33), (31, 32)):
            compare("a INT, s STRING, b BOOLEAN", array[start:stop])
    assert scan(pa.array([None, b'{"a":1}', None], pa.binary()), a="l") == ([[None, 1, None]], [])
    assert scan(pa.array([], pa.binary()), a="l", s="u", b="b") == ([[], [], []], [])


@each_row("text", ["1" + "0" * 330, "-1" + "0" * 330, "1E400", "-1e400"])
@each_row("kind", ["DOUBLE", "FLOAT"])
def test_a_number_beyond_the_range_is_infinite_whatever_stands_beside_it(text: str, kind: str) -> None:
    decoder = jsons.JsonDecoder(list(ddl.parse(f"a {kind}", "o")))
    value = b'{"a":%b}' % text.encode()
    for values in ([value], [b"[]", value, b"[]"]):
        found = decoder.decode(pa.array(values, pa.binary()))
        assert found.columns[0].drop_null().to_pylist() == [float(text)] and len(found.faults) == len(values) - 1


def test_a_hundred_columns() -> None:
    kinds = ["BIGINT", "STRING", "DOUBLE", "BOOLEAN"]
    made = {"BIGINT": 5, "STRING": "text", "DOUBLE": 0.5, "BOOLEAN": True}
    schema = ", ".join(f"c{at} {kinds[at % 4]}" for at in range(100))
    whole = {f"c{at}": made[kinds[at % 4]] for at in range(100)}
    backwards = dict(reversed(whole.items()))
    some = {"c99": None, "other": 1, "c50": 0.25, "c100": 2, "c3": False}
    values = [json.dumps(each).encode() for each in (whole, backwards, some, {}, {**whole, "c5": 7}, {**whole, "c8": "7"})] * 20
    compare(schema, values)
    found = jsons.JsonDecoder(list(ddl.parse(schema, "o"))).decode(pa.array(values, pa.binary()))
    assert [column[0].as_py() for column in found.columns] == [column[1].as_py() for column in found.columns] == list(whole.values())
    assert sorted(found.faults) == list(range(5, 120, 6))


def test_strings_of_any_size_find_room() -> None:
    """More than was thought of first, in several columns at once, and given back by values that are left after all."""
    sizes = [0, 1, 3000, 15, 70_000, 2, 300_000, 0, 17, 999]
    values = [b'{"a":"%b","b":"%b\\n","x":"%b"}' % (b"a" * n, b"b" * (n // 3), b"c" * n) for n in sizes]
    values[3:3] = [b'{"a":"%b","b":"%b","a":0}' % (b"q" * 100_000, b"r" * 100_000)] * 3
    (first, second), left = scan(values, a="u", b="u")
    assert left == [3, 4, 5]
    assert first == ["a" * n for n in sizes[:3]] + [None] * 3 + ["a" * n for n in sizes[3:]]
    assert second == ["b" * (n // 3) + "\n" for n in sizes[:3]] + [None] * 3 + ["b" * (n // 3) + "\n" for n in sizes[3:]]


@each_row("depth", [63, 64, 65, 900, 100_000])
def test_deep_values(depth: int) -> None:
    for value in (
        b'{"a":1,"x":%b%b}' % (b"[" * depth, b"]" * depth),
        b'{"a":1,"x":%b1%b}' % (b'{"a":' * depth, b"}" * depth),
        b'{"a":1,"x":' + b"[" * depth,
    ):
        assert scan([value], a="l")[1] == ([] if depth <= 64 and value.endswith(b"}") else [0])
        if depth < 1000:
            compare("a INT", [b'{"a":5}', value])


def test_which_columns_the_pass_makes() -> None:
    def plain(*fields: Any) -> Any:
        return jsons.JsonDecoder(fields).plain

    assert plain(*ddl.parse(SCHEMA, "o")) == ((*(each.encode() for each in "abcdefgh"), "ü".encode()), "csilfgbuu")
    for kind in ("DECIMAL(5,2)", "DATE", "TIMESTAMP", "BINARY", "ARRAY<INT>", "STRUCT<x: INT>", "MAP<STRING,INT>"):
        assert plain(*ddl.parse(f"a INT, b {kind}", "o")) is None
    assert plain(pa.field("a", pa.int32(), nullable=False)) is None
    assert plain(pa.field("a", pa.int32()), pa.field("a", pa.string())) is None
    assert plain() is None
    assert plain(*(pa.field(f"c{at}", pa.int32()) for at in range(256))) and not plain(
        *(pa.field(f"c{at}", pa.int32()) for at in range(257))
    )


def test_arguments_that_cannot_be() -> None:
    values = pa.array([b"{}"], pa.binary())
    for wrong in ([b"{}"], pa.array([b"{}"], pa.large_binary()), pa.array([1]), pa.array([None])):
        with pytest.raises(TypeError):
            json_columns(wrong, (b"a",), "l")
    with pytest.raises(ValueError, match="1 names and 2 kinds"):
        json_columns(values, (b"a",), "ll")
    with pytest.raises(ValueError, match="no kind of a JSON column: 'z'"):
        json_columns(values, (b"a",), "z")
    with pytest.raises(TypeError):
        json_columns(values, ("a",), "l")
    crossed = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(numpy.array([0, 2, 0, 2], numpy.int32)), pa.py_buffer(b"{}")])
    with pytest.raises(ValueError, match="item 1 of the column"):
        json_columns(crossed, (b"a",), "l")
