"""Arrow columns as JSON: a table says what each type becomes, and the general way is the oracle for the compiled one. What is written is
read again in tests/decode/test_arrow_types.py."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import os
import uuid

import hypothesis.strategies as st
import numpy
import pyarrow as pa
import pytest
from hypothesis import given

from kafkacore._codec import json_rows
from kafkacore.errors import SerializationError
from kafkacore.producer import frame_json
from kafkacore.producer.frame_json import json_column
from tests.kit.reached import Reached
from tests.kit.rows import each_row

UTC = datetime.UTC
MS = datetime.timedelta(milliseconds=1)


def one(value, kind=None, **how):
    return json_column(pa.array([value], kind), **how)[0].as_py().decode()


@each_row(
    ("value", "kind", "text"),
    [
        (-(1 << 63), pa.int64(), "-9223372036854775808"),
        ((1 << 64) - 1, pa.uint64(), "18446744073709551615"),
        (-128, pa.int8(), "-128"),
        (True, None, "true"),
        (0.1, pa.float32(), "0.1"),
        (16777216.0, pa.float32(), "16777216.0"),
        (1e20, pa.float32(), "1e+20"),
        (1.5, pa.float16(), "1.5"),
        (5e-324, pa.float64(), "5e-324"),
        (1e16, pa.float64(), "1e+16"),
        (123456789012345.6, pa.float64(), "123456789012345.6"),
        (-0.0, pa.float64(), "-0.0"),
        (0.0001, pa.float64(), "0.0001"),
        (0.00001, pa.float64(), "1e-05"),
        ('"\\/\b\f\n\r\t\x00\x1f\x7fé😀', None, '"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7fé😀"'),
        (b"\xff\x00", None, '"/wA="'),
        (b"ab", pa.binary(2), '"YWI="'),
        (decimal.Decimal("12.30"), pa.decimal128(10, 2), "12.30"),
        (decimal.Decimal("-0.05"), pa.decimal128(10, 2), "-0.05"),
        (decimal.Decimal(-(10**38) + 1), pa.decimal128(38, 0), "-" + "9" * 38),
        (decimal.Decimal(1200), pa.decimal128(4, -2), "1200"),
        (decimal.Decimal(10**40), pa.decimal256(45, 3), "1" + "0" * 40 + ".000"),
        (datetime.date(2026, 2, 28), None, '"2026-02-28"'),
        (datetime.date(1, 1, 1), None, '"0001-01-01"'),
        (datetime.date(9999, 12, 31), pa.date64(), '"9999-12-31"'),
        (datetime.time(1, 2, 3, 4000), pa.time64("us"), '"01:02:03.004"'),
        (3723, pa.time32("s"), '"01:02:03"'),
        (datetime.datetime(2026, 5, 1, 12), pa.timestamp("s"), '"2026-05-01T12:00:00"'),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), pa.timestamp("ms"), '"1969-12-31T23:59:59.999"'),
        (datetime.datetime(2026, 5, 1, 12, 0, 0, 120000), pa.timestamp("us"), '"2026-05-01T12:00:00.120"'),
        (datetime.datetime(2026, 5, 1, 12, 0, 0, 123456), pa.timestamp("us"), '"2026-05-01T12:00:00.123456"'),
        (1, pa.timestamp("ns"), '"1970-01-01T00:00:00.000000001"'),
        (1_000, pa.timestamp("ns"), '"1970-01-01T00:00:00.000001"'),
        (0, pa.timestamp("ms", "Europe/Berlin"), '"1970-01-01T00:00:00Z"'),
        ([1, None], None, "[1,null]"),
        ([], pa.large_list(pa.int8()), "[]"),
        ([1, 2], pa.list_(pa.int8(), 2), "[1,2]"),
        ({"a": {"b": None, "é\n": [{"c": True}]}}, None, '{"a":{"b":null,"é\\n":[{"c":true}]}}'),
        ([("k", 1), ("l", None)], pa.map_(pa.string(), pa.int32()), '{"k":1,"l":null}'),
        ([(7, 1)], pa.map_(pa.int32(), pa.int32()), '{"7":1}'),
        ([(datetime.date(2026, 2, 28), 1)], pa.map_(pa.date32(), pa.int32()), '{"2026-02-28":1}'),
        ([('a "', 1)], pa.map_(pa.string_view(), pa.int32()), '{"a \\"":1}'),
        ([("a", 1)], pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.int32()), '{"a":1}'),
        ([(b"\xff", 1)], pa.map_(pa.binary(), pa.int32()), '{"/w==":1}'),
        (["a", None], pa.list_view(pa.string()), '["a",null]'),
        ([], pa.large_list_view(pa.string()), "[]"),
        (math.nan, None, None),
        (None, pa.null(), None),
    ],
)
def test_a_value(value, kind, text):
    array = pa.array([value, None, value], kind)
    found = json_column(array)
    assert found.to_pylist() == general(array) == ([text.encode(), None, text.encode()] if text is not None else [None] * 3)
    row = json_column(pa.array([{"x": value}], pa.struct([("x", kind)]) if kind is not None else None))
    assert row[0].as_py().decode() == '{"x":%s}' % ("null" if text is None else text)


def test_extension_types():
    some = uuid.UUID(int=7)
    assert json_column(pa.array([some.bytes], pa.uuid()))[0].as_py() == b'"%b"' % str(some).encode()
    documents = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None]))
    rows = pa.StructArray.from_arrays([documents, pa.array([1, 2])], ["x", "y"])
    assert json_column(documents).to_pylist() == [b'{"a": 1}', None]
    assert json_column(rows).to_pylist() == [b'{"x":{"a": 1},"y":1}', b'{"x":null,"y":2}']


def test_runs_and_views_of_lists():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), pa.array(["a", None, "b"]))
    assert json_column(runs).to_pylist() == [b'"a"', b'"a"', None, b'"b"', b'"b"']
    assert json_column(runs.slice(1, 3)).to_pylist() == [b'"a"', None, b'"b"']
    assert json_column(pa.StructArray.from_arrays([runs], ["x"]).slice(2, 2)).to_pylist() == [b'{"x":null}', b'{"x":"b"}']
    nothing = pa.array([False, True, False, False])
    views = pa.ListViewArray.from_arrays([0, 3, 0, 2], [2, 1, 0, 2], pa.array([1, 2, 3, 4]), mask=nothing)
    assert json_column(views).to_pylist() == [b"[1,2]", None, b"[]", b"[3,4]"]
    assert json_column(views.slice(2)).to_pylist() == [b"[]", b"[3,4]"]


def test_what_has_no_form_is_named():
    rows = pa.StructArray.from_arrays([pa.array([1]), pa.array([datetime.timedelta(1)])], ["n", "how long"])
    with pytest.raises(SerializationError, match=r'^column "how long": duration\[us\] has no form in JSON'):
        json_column(rows)


def test_a_type_that_only_its_library_knows_is_what_it_is_stored_as():
    opaque = pa.ExtensionArray.from_storage(pa.opaque(pa.int32(), "shape", "vendor"), pa.array([1, None], pa.int32()))
    assert json_column(opaque).to_pylist() == [b"1", None]


def test_fields_that_are_null_may_be_left_out():
    row = {"a": None, "b": [None], "c": {"d": None}, "e": math.inf, "f": 1}
    assert one(row) == '{"a":null,"b":[null],"c":{"d":null},"e":null,"f":1}'
    assert one(row, null_fields=False) == '{"b":[null],"c":{},"f":1}'
    assert one({"a": None}, null_fields=False) == "{}"


NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
YEAR_10_000 = pa.array([253402300800], pa.timestamp("s"))


@each_row(
    "array",
    lambda: [
        pa.array([datetime.timedelta(1)]),
        YEAR_10_000,
        pa.array([-719163], pa.date32()),
        NO_TEXT,
        *(pa.ListViewArray.from_arrays([0], [1], array) for array in (YEAR_10_000, NO_TEXT)),
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
    ],
    ids=["duration", "year 10000", "year 0", "no UTF-8", "year 10000 in a view", "no UTF-8 in a view", "one of several types"],
)
def test_what_json_cannot_hold_is_refused(array):
    for given_ in (array, pa.StructArray.from_arrays([array], ["x"]), pa.StructArray.from_arrays([array], ["x"]).slice(0, 1)):
        with pytest.raises(SerializationError):
            json_column(given_)


@each_row("unit", ["s", "ms", "us", "ns"])
@each_row("far", [*range(3), 10**9 - 1, 10**9])
def test_the_times_that_are_farthest_away(unit, far):
    """Seconds times units a second may lie beyond what 64 bits hold, although the time does not. A sanitized build says so."""
    for value in (-(2**63) + far, 2**63 - 1 - far):
        array = pa.array([value], pa.timestamp(unit))
        if unit == "ns":
            seconds, fraction = divmod(value, 10**9)
            day = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
            text = f"{day.isoformat()}.{fraction:09}".removesuffix("000").removesuffix("000").removesuffix(".000")
            assert json_column(array).to_pylist() == [f'"{text}"'.encode()]
        else:
            with pytest.raises(SerializationError, match="outside the years 1 to 9999"):
                json_column(array)


def test_slices_views_and_dictionaries():
    texts = ["short", None, "text that is longer than a view", "é"] * 3
    coded = pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.large_string())
    for kind in (pa.string(), pa.large_string(), pa.string_view(), *coded):
        array = pa.StructArray.from_arrays([pa.array(texts).cast(kind), pa.array([[i] * (i % 3) for i in range(12)])], ["x", "y"])
        for part in (array, array.slice(5), array.slice(3, 4)):
            assert [json.loads(each) for each in json_column(part).to_pylist()] == part.to_pylist()


TEXT = st.text(st.characters(codec="utf-8"))
FLOATS = st.floats() | st.integers(-(10**9), 10**9).map(lambda n: n / 100) | st.integers(0, 2**53).map(float) | st.floats(1e-6, 1e18)
LEAVES = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.uint8(): st.integers(0, 255),
    pa.float64(): FLOATS,
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.string_view(): TEXT,
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "UTC"): st.datetimes(timezones=st.just(UTC)).map(lambda t: t - t.microsecond % 1000 * MS / 1000),
    pa.decimal128(30, 4): st.decimals(-(10**20), 10**20, places=4),
    pa.time64("ns"): st.times(),
    pa.dictionary(pa.int16(), pa.string()): TEXT,
}
KINDS = st.recursive(
    st.sampled_from(list(LEAVES)),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, max_size=4).map(lambda kinds: pa.struct([(f'f{i}"', kind) for i, kind in enumerate(kinds)])),
    ),
    max_leaves=6,
)


def values_of_kind(kind):
    is_ = pa.types
    if is_.is_list(kind) or is_.is_large_list(kind):
        found = st.lists(values_of_kind(kind.value_type), max_size=3)
    elif is_.is_map(kind):
        found = st.dictionaries(TEXT, values_of_kind(kind.item_type), max_size=3).map(lambda each: list(each.items()))
    elif is_.is_struct(kind):
        found = st.fixed_dictionaries({field.name: values_of_kind(field.type) for field in kind})
    else:
        found = LEAVES[kind]
    return st.none() | found


@st.composite
def arrays(draw):
    kind = draw(st.sampled_from(list(LEAVES)) | KINDS)
    made = pa.array(draw(st.lists(values_of_kind(kind), min_size=1, max_size=8)), kind)
    start = draw(st.integers(0, min(2, len(made))))
    return made.slice(start, len(made) - start - draw(st.integers(0, min(2, len(made) - start))))


def general(array, null_fields=True):
    return [None if text is None else text.encode() for text in frame_json.texts_of(array, null_fields)]


def test_the_compiled_writer_knows_the_common_types():
    """Else the comparisons below compare the general way with itself."""
    odd = {kind for kind in LEAVES if frame_json.is_odd(kind)}
    assert odd == {pa.binary(), pa.time64("ns")}
    assert not frame_json.is_odd(pa.struct([("x", pa.list_(pa.large_list(pa.struct([("y", pa.dictionary(pa.int8(), pa.string()))]))))]))


both = Reached("nested", "null", "a slice", "by the general way", "null fields left out", "no rows")


@both.by
@given(arrays(), st.booleans())
def test_both_ways_write_the_same_bytes(array, null_fields):
    both("nested", pa.types.is_nested(array.type) and len(array))
    both("null", array.null_count)
    both("a slice", array.offset and len(array))
    both("by the general way", frame_json.is_odd(array.type) and len(array))
    both("null fields left out", not null_fields and array.null_count)
    both("no rows", not len(array))
    rows = pa.StructArray.from_arrays([array, array], ['"a"', "é"])
    for given_ in (array, rows, rows.slice(len(rows) // 2)):
        assert json_column(given_, null_fields).to_pylist() == general(given_, null_fields)


def test_doubles_as_python_writes_them():
    rng = numpy.random.default_rng(7)
    scales = 10.0 ** rng.integers(-30, 30, 20_000)
    powers = numpy.ldexp(1.0, numpy.arange(-1074, 1024))
    found = numpy.concatenate(
        [
            rng.integers(0, 1 << 63, 20_000, numpy.int64).view(numpy.float64),
            rng.random(20_000) * scales,
            rng.integers(-(10**15), 10**15, 20_000) / 10.0 ** rng.integers(0, 19, 20_000),
            powers,
            numpy.nextafter(powers, 0),
            numpy.nextafter(powers, numpy.inf),
            [1e15, 999999999999999.9, 1e16, 9999999999999998.0, 1e-4, 0.00099999999999999991, 9007199254740993.0, 1e22, 1e23, 5e-324],
        ]
    )
    array = pa.array(found)
    assert json_column(array).to_pylist() == [repr(each).encode() if math.isfinite(each) else None for each in found.tolist()]


def test_floats_as_numpy_writes_them():
    rng = numpy.random.default_rng(8)
    with numpy.errstate(all="ignore"):
        powers = numpy.ldexp(numpy.float32(1), numpy.arange(-149, 128)).astype(numpy.float32)
        found = numpy.concatenate(
            [
                rng.integers(0, 1 << 32, 10_000, numpy.uint32).view(numpy.float32),
                (rng.integers(-(10**7), 10**7, 10_000) / 10.0 ** rng.integers(0, 12, 10_000)).astype(numpy.float32),
                powers,
                numpy.nextafter(powers, numpy.float32(0)),
                numpy.nextafter(powers, numpy.float32(numpy.inf)),
            ]
        )
    array = pa.array(found)
    assert json_column(array).to_pylist() == general(array)


def test_a_small_buffer_grows_and_rows_are_not_torn():
    texts = ["x" * 10_000, "\x01" * 5_000, None, "é" * 3_000] * 3
    array = pa.StructArray.from_arrays([pa.array([[text] * 3 for text in texts]), pa.array(range(12))], ["t", "n"])
    assert json_column(array).to_pylist() == general(array)


def bad(kind, offsets, *children):
    """Its first and last offset are right, which is all that pyarrow looks at."""
    data = [] if children else [pa.py_buffer(b"ab")]
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(numpy.array(offsets)), *data], children=list(children))


@each_row(
    "array",
    lambda: [
        bad(pa.large_string(), [0, 5, 2]),
        bad(pa.large_string(), [0, -1, 2]),
        bad(pa.large_list(pa.int8()), [0, 9, 2], pa.array([1, 2], pa.int8())),
        bad(pa.large_list(pa.int8()), [0, 2, 1, 2], pa.array([1, 2], pa.int8())),
        bad(pa.large_list(pa.int8()), [0, -1, 2], pa.array([1, 2], pa.int8())),
        pa.DictionaryArray.from_arrays(pa.array([7], pa.int8()), ["a"], safe=False),
        pa.DictionaryArray.from_arrays(pa.array([-1], pa.int8()), ["a"], safe=False),
    ],
    ids=["text", "text before", "list", "list back", "list before", "index", "negative index"],
)
def test_offsets_and_indices_outside_the_data_are_refused(array):
    for rows in (array, pa.StructArray.from_buffers(pa.struct([("x", array.type)]), len(array), [None], children=[array])):
        with pytest.raises(ValueError):
            json_rows(rows)


def test_an_error_names_row_and_column():
    array = pa.StructArray.from_arrays([pa.array([0, 1 << 60], pa.timestamp("s"))], ["when"])
    with pytest.raises(SerializationError, match=r"^row 1,001, column \"when\": a time is outside the years 1 to 9999"):
        json_column(array, first_row=1_000)


@pytest.mark.parametrize("null_fields", [True, False])
def test_a_nul_in_a_name_does_not_end_it(null_fields):
    """Arrow's C interface ends names there: the object had the name "a" twice."""
    value = {"a": 1, "a\0b": [{"c\0": 2, "c": b"odd"}], "\0": {"d\0": None}}
    items = pa.list_(pa.struct({"c\0": pa.int8(), "c": pa.binary()}))
    kind = pa.struct({"a": pa.int8(), "a\0b": items, "\0": pa.struct({"d\0": pa.int8()})})
    expected = {**value, "a\0b": [{"c\0": 2, "c": "b2Rk"}], "\0": {"d\0": None} if null_fields else {}}
    assert json.loads(one(value, kind, null_fields=null_fields)) == expected
    around = pa.struct({"outside": kind, "\x01": pa.string()})
    text = one({"outside": value, "\x01": "x"}, around, null_fields=null_fields)
    assert json.loads(text) == {"outside": expected, "\x01": "x"}


@each_row("depth", [63, 64, 65, 66, 90])
def test_objects_nest_as_deep_as_they_are(depth):
    """Also where the whole is just too deep for the compiled writer, and no field of it is."""
    value, kind = 1, pa.int8()
    for _ in range(depth):
        value, kind = {"a": value}, pa.struct({"a": kind})
    assert json.loads(one(value, kind)) == value


def test_nesting_has_an_end():
    array = pa.array([1], pa.int8())
    for _ in range(70):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    with pytest.raises(TypeError, match="64 deep"):
        json_rows(array)
    assert json_column(array)[0].as_py() == b"[" * 70 + b"1" + b"]" * 70


@each_row("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_of_any_length_with_something_odd_at_any_place(kind):
    texts = ["x" * n for n in range(40)]
    for odd in ('"', "\\", "\x1f", "\x00", "é", "\x7f"):
        texts += [f"{'a' * at}{odd}{'b' * (n - at)}" for n in range(36) for at in range(n + 1)]
    array = pa.StructArray.from_arrays([pa.array(texts).cast(kind)], ["t"])
    assert [json.loads(each) for each in json_column(array).to_pylist()] == [{"t": text} for text in texts]
    assert json_column(array).to_pylist() == general(array)


@given(st.lists(st.sampled_from(["", "a", "n" * 12, "n" * 13, "n" * 40, 'a"b', "é"]), max_size=5), st.booleans())
def test_labels_of_any_length(names, null_fields):
    rows = [pa.array([1, None, -7], pa.int16()) for _ in names]
    array = pa.StructArray.from_arrays([*rows, pa.nulls(3)], [*names, "last"])
    assert json_column(array, null_fields).to_pylist() == general(array, null_fields)


@given(st.lists(st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 24)), max_size=60))
def test_a_column_of_rounded_doubles_keeps_no_digit_of_the_values_before(parts):
    found = [m / 10.0**k if k < 23 else m * 10.0 ** (k - 20) for m, k in parts]
    assert json_column(pa.array(found, pa.float64())).to_pylist() == [repr(each).encode() for each in found]


def test_doubles_of_each_number_of_places_and_digits():
    """The two ways of a float meet where a value has 15 digits, or is 10^-4 or 10^15."""
    rng = numpy.random.default_rng(int(os.environ.get("KAFKACORE_SEED", "9")))
    for _ in range(int(os.environ.get("KAFKACORE_FLOATS_ROUNDS", "1"))):
        for places in range(19):
            digits = 10 ** rng.integers(1, 18, 500)
            rounded, random = rng.integers(-digits, digits) / 10.0**places, rng.random(500) * 10.0**-places
            found = numpy.concatenate([[10.0**-places, 10.0**places], rounded, random])
            assert json_column(pa.array(found)).to_pylist() == [repr(each).encode() for each in found.tolist()]


EDGES = [10**n + d for n in range(19) for d in (-1, 0, 1)] + [(1 << n) - 1 for n in range(64)]
WHOLE = numpy.unique(numpy.concatenate([numpy.array(EDGES), numpy.arange(10_001)]))
WHOLE_KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@each_row("kind", WHOLE_KINDS, ids=str)
def test_whole_numbers_of_any_length(kind):
    numbers = WHOLE.astype(kind.to_pandas_dtype())
    ends = numpy.array([numpy.iinfo(numbers.dtype).min, numpy.iinfo(numbers.dtype).max], numbers.dtype)
    numbers = numpy.concatenate([numbers, -numbers, ends])
    assert json_column(pa.array(numbers)).to_pylist() == [str(each).encode() for each in numbers.tolist()]
