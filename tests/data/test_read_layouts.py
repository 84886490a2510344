"""Decoded JSON in each text layout: the compiled pass gives what the general way gives, every library takes it, and nothing that a caller
still holds is written to again."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.consumer.decoding import TEXTS, decoding_of
from kafkacore.consumer.stretches import NO_END, ColumnStream, Layout
from kafkacore.records import BatchBuilder, PartitionReader, json_batch
from tests.kit.late import late
from tests.kit.reached import Reached
from tests.kit.rows import each_row

datafusion = late("datafusion")
duckdb = late("duckdb")
pd = late("pandas")
pl = late("polars")

WORDS = "name STRING, n INT, x DOUBLE, ok BOOLEAN, more STRING"
TYPES = {name: getattr(pa, name)() for name in TEXTS}
LONG = "longer than twelve bytes"
ROWS = [
    {"name": "é", "n": 1, "x": -0.5, "ok": True, "more": LONG},
    {"name": "twelve bytes", "n": None, "x": 1.25, "ok": False, "more": 'es"c\\aped\n'},
    {"name": None, "n": -7, "x": None, "ok": None, "more": "esc\taped" * 9},
    {"name": "", "n": 2**31 - 1, "x": 1e22, "ok": True, "more": None},
    {"name": "thirteen byte", "n": 0, "x": 3.0, "ok": False, "more": ""},
]


def fetched_batches(batches, topic="t"):
    """Values, batch by batch, as they are fetched: one region of memory for each codec's blocks."""
    out, at = bytearray(), 0
    for number, values in enumerate(batches):
        builder = BatchBuilder(max_bytes=1 << 24, base_offset=at, compression="lz4" if number % 3 == 2 else "none")
        for row, value in enumerate(values):
            assert builder.append(value, key=b"k%d" % row if row % 3 else None, headers=[("h", b"%d" % row)], timestamp_ms=at + row)
        at += len(values)
        out += builder.build() if values else b""
    return PartitionReader(bytes(out), topic=topic, partition=2).columns()


class Given(ColumnStream):
    """A stream of columns that are there."""

    def __init__(self, columns, end=NO_END, key="binary", **how):
        on_error, headers = how.pop("on_error", "raise"), how.pop("headers", False)
        decoding = decoding_of(["t"], WORDS, None, None, None, on_error, headers, "binary", **how)
        super().__init__(None, {}, Layout(key, "binary", decoding.headers), None, decoding=decoding)
        self.given, self.until = columns, end

    def _fetched(self):
        for columns in self.given:
            yield columns, self.until


def general(monkeypatch):
    """Only the general way from here on."""
    monkeypatch.setattr("kafkacore.consumer.decoding.json_batch", lambda *_: None)


def as_json(rows, **how):
    return [None if each is None else json.dumps(each, **how).encode() for each in rows]


def plain_table(rows, text="string"):
    kinds = {"name": TYPES[text], "n": pa.int32(), "x": pa.float64(), "ok": pa.bool_(), "more": TYPES[text]}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


@each_row("text", TEXTS)
def test_each_layout_holds_the_same(text):
    for how in ({}, {"separators": (",", ":")}, {"ensure_ascii": False, "indent": 1}):
        columns = fetched_batches([as_json(ROWS, **how), as_json(ROWS[::-1], **how), as_json(ROWS, **how)])
        stream = Given([columns], text=text, record_columns=False)
        table = pa.table(stream)
        table.validate(full=True)
        assert table.equals(plain_table([*ROWS, *ROWS[::-1], *ROWS], text))
        assert table.schema.equals(stream.schema()) and [batch.schema for batch in stream] == [stream.schema()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("chosen", "headers"), [(True, True), (True, False), (["_offset", "_key"], False), (False, True)])
def test_the_general_way_says_the_same(monkeypatch, text, chosen, headers):
    columns = fetched_batches([as_json(ROWS), [], as_json([*ROWS, None, {}, {"other": [1, "]"]}]), as_json(ROWS)])
    how = {"text": text, "record_columns": chosen, "headers": headers, "key": "string"}
    for end in (0, 1, 6, 13, NO_END):
        with monkeypatch.context() as patch:
            found = pa.table(Given([columns], end, **how))
            general(patch)
            expected = pa.table(Given([columns], end, **how))
        found.validate(full=True)
        assert found.equals(expected) and found.num_rows == min(end, 18)


def test_a_value_in_doubt_sends_its_batch_the_general_way(monkeypatch):
    doubtful = b'{"name":"x","n":4294967296,"x":12345678901234567890,"ok":true}'
    for at in (0, 3, 5):
        values = as_json(ROWS)
        values.insert(at, doubtful)
        columns = [fetched_batches([as_json(ROWS)]), fetched_batches([values]), fetched_batches([as_json(ROWS)])]
        for text in TEXTS:
            table = pa.table(Given(columns, text=text, on_error="skip"))
            assert table.num_rows == 15 and table["name"].type == TYPES[text]
            assert table.select(["name", "n", "x", "ok", "more"]).equals(plain_table(ROWS * 3, text))
        with pytest.raises(errors.SerializationError, match="field n") as found:
            list(Given(columns))
        assert found.value.offset == at


def test_a_requested_schema_goes_before_the_argument():
    stream = Given([fetched_batches([as_json(ROWS)])], text="string_view", record_columns=False)
    wanted = pa.schema({"name": pa.large_string(), "more": pa.string(), "n": pa.float64(), "missing": pa.string()})
    table = pa.RecordBatchReader._import_from_c_capsule(stream.__arrow_c_stream__(wanted.__arrow_c_schema__())).read_all()
    assert table.schema.types == [pa.large_string(), pa.int32(), pa.float64(), pa.bool_(), pa.string()]
    assert table.to_pylist() == ROWS and stream.schema().field("name").type == pa.string_view()


def test_text_that_is_something_else():
    with pytest.raises(errors.UsageError, match="text is one of string, large_string, string_view, not 'utf8'"):
        Given([], text="utf8")
    with pytest.raises(errors.UsageError, match="text is about values that are decoded"):
        decoding_of(["t"], None, None, None, None, "raise", None, "binary", text="string_view")


def test_keys_that_are_no_text_matter_where_they_are_seen(monkeypatch):
    builder = BatchBuilder()
    builder.append(b'{"n":1}', key=b"\xff")
    columns = [PartitionReader(bytes(builder.build()), topic="t", partition=0).columns()]
    for way in (lambda _: None, general):
        with monkeypatch.context() as patch:
            way(patch)
            assert pa.table(Given(columns, key="string", record_columns="_offset"))["n"].to_pylist() == [1]
            with pytest.raises(errors.SerializationError, match="key is not UTF-8"):
                list(Given(columns, key="string"))


@each_row("text", TEXTS)
def test_libraries_take_each_layout(text):
    columns = [fetched_batches([as_json(ROWS)]), fetched_batches([as_json(ROWS[:2])]), fetched_batches([as_json(ROWS[1:])])]
    rows = [*ROWS, *ROWS[:2], *ROWS[1:]]
    stream = Given(columns, text=text, record_columns=False)
    frame = pl.DataFrame(stream)
    assert frame.to_dicts() == rows
    assert frame[3:9].filter(pl.col("more") == LONG)["name"].to_list() == ["é"]
    assert pl.concat([frame, frame]).rechunk()["more"].to_list() == [row["more"] for row in rows] * 2
    taken = pd.DataFrame.from_arrow(stream)
    assert taken["more"].fillna("null").tolist() == ["null" if row["more"] is None else row["more"] for row in rows]
    assert taken["x"].sum() == frame["x"].sum()
    assert duckdb.sql("select name, n, x, ok, more from stream").fetchall() == [tuple(row.values()) for row in rows]
    assert duckdb.sql("select count(*) from stream where more = 'longer than twelve bytes'").fetchall() == [(2,)]
    assert pa.table(stream).slice(2, 7).to_pylist() == rows[2:9]
    context = datafusion.SessionContext()
    counted = context.from_arrow(stream, "flights").select("more", "n").filter(datafusion.col("more") == datafusion.lit(LONG))
    assert counted.to_pydict() == {"more": [LONG] * 2, "n": [1, 1]}


@each_row("text", TEXTS)
def test_an_empty_read(text):
    for columns in ([], [fetched_batches([[]])], [fetched_batches([as_json(ROWS)])]):
        stream = Given(columns, 0, text=text)
        assert pa.table(stream).schema.equals(stream.schema()) and pl.DataFrame(stream).shape == (0, 10)
        assert duckdb.sql("select count(*) from stream").fetchall() == [(0,)]
    batch = Given([], text=text).batch(fetched_batches([as_json(ROWS)]), 0)
    assert len(batch) == 0 and batch.schema.field("name").type == TYPES[text]


@each_row("text", TEXTS)
def test_what_is_held_is_not_written_to_again(text):
    """Frames, slices and single columns of reads before, while others come and go in the same memory."""
    held = []
    for turn in range(20):
        rows = [
            {"name": f"{turn} {row}", "n": turn * row, "x": turn + row / 4, "ok": row % 2 == 0, "more": f"{LONG} {turn} {row}"}
            for row in range(64)
        ]
        stream = Given([fetched_batches([as_json(rows)])], text=text)
        if turn % 4 == 0:
            held.append((pl.DataFrame(stream), rows))
        elif turn % 4 == 1:
            held.append((pl.DataFrame(stream)["more"][10:20], [row["more"] for row in rows[10:20]]))
        elif turn % 4 == 2:
            held.append((pa.table(stream)["name"].chunk(0).slice(3, 5), [row["name"] for row in rows[3:8]]))
        del stream
    for found, expected in held:
        if isinstance(found, pl.DataFrame):
            assert found.select("name", "n", "x", "ok", "more").to_dicts() == expected
        else:
            assert (found.to_list() if isinstance(found, pl.Series) else found.to_pylist()) == expected


def test_one_batch_is_handed_out_twice():
    columns = fetched_batches([as_json(ROWS)])
    schema = Given([], text="string_view", record_columns=False).schema()
    batch = json_batch(columns, 5, (b"name", b"n", b"x", b"ok", b"more"), "vigbv", (), "binary", schema)
    first, second = pa.record_batch(batch), pa.record_batch(batch)
    del batch, columns
    assert first.equals(second) and first.to_pylist() == ROWS


def test_arguments_that_cannot_be():
    columns = fetched_batches([as_json(ROWS)])
    for rows in (-1, 6):
        with pytest.raises(ValueError, match=f"{rows} rows of 5"):
            json_batch(columns, rows, (b"n",), "i", (), "binary", None)
    with pytest.raises(ValueError, match="no kind of a JSON column: 'z'"):
        json_batch(columns, 5, (b"n",), "z", (), "binary", None)
    with pytest.raises(ValueError, match="1 names and 2 kinds"):
        json_batch(columns, 5, (b"n",), "ii", (), "binary", None)
    with pytest.raises(TypeError):
        json_batch(columns, 5, ("n",), "i", (), "binary", None)


some_text = st.sampled_from([None, "", "é", "twelve bytes", "a byte more..", "ä" * 400, 'es"c\n']) | st.text(max_size=20)
some_rows = st.fixed_dictionaries(
    {},
    optional={
        "name": some_text,
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "x": st.none() | st.integers(-(10**9), 10**9).map(lambda n: n / 1000) | st.floats(-1e20, 1e20).filter(lambda x: str(x) != "-0.0"),
        "ok": st.none() | st.booleans(),
        "more": some_text,
        "other": some_text,
    },
)


drawn = Reached("several batches", "no value", "no field", "null field", "longer than a view", "another field", "cut", "escaped")


@drawn.by
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.none() | some_rows, max_size=5), min_size=1, max_size=3),
    st.sampled_from(list(TEXTS)),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
    st.sampled_from([1, 2, 5, 40]),
)
def test_any_rows(batches, text, separators, ascii_only, end):
    columns = fetched_batches([as_json(rows, separators=separators, ensure_ascii=ascii_only) for rows in batches])
    every = [row for each in batches for row in each]
    rows = [row or {} for row in every][:end]
    drawn("several batches", len(batches) > 1)
    drawn("no value", None in every)
    drawn("no field", {} in every)
    drawn("null field", any(None in row.values() for row in rows))
    drawn("longer than a view", any(len((row.get(name) or "").encode()) > 12 for row in rows for name in ("name", "more")))
    drawn("another field", any("other" in row for row in rows))
    drawn("cut", 0 < end < len(every))
    drawn("escaped", ascii_only and any(not (row.get(name) or "").isascii() for row in rows for name in ("name", "more")))
    table = pa.table(Given([columns], end, text=text, record_columns=False))
    table.validate(full=True)
    names = ("name", "n", "x", "ok", "more")
    assert table.to_pylist() == [{name: row.get(name) for name in names} for row in rows]
