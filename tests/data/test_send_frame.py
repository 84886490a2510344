"""send_frame: rows of tables of every library become records, on both faces."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import decimal
import json
import weakref

import numpy
import pyarrow as pa
import pyarrow.compute
import pytest

import kafkacore
from kafkacore import KafkaProducer, TopicPartition, aio, errors
from kafkacore.producer import frames
from tests.kit.clusters import embedded
from tests.kit.late import late
from tests.kit.rows import each_row

duckdb = late("duckdb")
pd = late("pandas")
pl = late("polars")

NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
NOON_MS = int(NOON.timestamp() * 1000)
ROWS = {
    "id": ["a", "b", "c", "d"],
    "n": [1, 2, None, 4],
    "at": [NOON + datetime.timedelta(milliseconds=i) for i in range(4)],
    "p": [0, 1, 1, 0],
}


cluster = embedded(name="cluster")
at_length = pytest.mark.aio_at_length  # what becomes of rows is the same on both faces


@pytest.fixture
def topic(cluster, request):
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
def producer(cluster, client_face):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def records_in(cluster, topic):
    return sorted(cluster.records(topic), key=lambda record: (record.partition, record.offset))


FRAMES = {
    "polars": lambda: pl.DataFrame(ROWS),
    "polars chunks": lambda: pl.concat([pl.DataFrame(ROWS)[:1], pl.DataFrame(ROWS)[1:]], rechunk=False),
    "pandas": lambda: pd.DataFrame({**ROWS, "n": pd.array(ROWS["n"], "Int64")}),
    "pandas objects": lambda: pd.DataFrame({**ROWS, "n": pd.Series(ROWS["n"], dtype=object), "id": pd.Series(ROWS["id"], dtype=object)}),
    "pandas index": lambda: pd.DataFrame({**ROWS, "n": pd.array(ROWS["n"], "Int64")}).set_index("id"),
    "table": lambda: pa.table(ROWS),
    "batch": lambda: pa.record_batch(ROWS),
    "reader": lambda: pa.table(ROWS).to_reader(1),
    "duckdb": lambda: duckdb.from_arrow(pa.table(ROWS)),
    "struct array": lambda: pa.table(ROWS).to_struct_array().chunk(0),
    "categories": lambda: pl.DataFrame(ROWS).with_columns(pl.col("id").cast(pl.Categorical)),
}


@pytest.mark.parametrize("frame", [pytest.param(FRAMES[name], id=name, marks=[at_length] * (name != "polars")) for name in FRAMES])
def test_each_library_s_frame(cluster, topic, producer, frame):
    future = producer.send_frame(topic, frame(), key="id", value_format="json", timestamp="at", partition="p", headers={"from": "id"})
    found = future.result(60)
    assert len(future) == len(found) == 4 and found.errors == {} and found.delivered == 4
    assert found.stretches == {TopicPartition(topic, 0): (0, 2), TopicPartition(topic, 1): (0, 2)}
    got = {record.key.decode(): record for record in records_in(cluster, topic)}
    for i, name in enumerate(ROWS["id"]):
        record = got[name]
        assert json.loads(record.value) == {"n": ROWS["n"][i]}
        assert (record.partition, record.timestamp_ms, record.headers) == (ROWS["p"][i], NOON_MS + i, (("from", name.encode()),))


@at_length
def test_values_of_named_columns_and_keys_of_any_type(cluster, topic, producer):
    frame = pa.table({"id": [1, 2], "s": [{"x": 1}, None], "text": ["a", None], "t": [0.5, None]})
    producer.send_frame(topic, frame, key="id", key_format="json", value=["t", "id"], value_format="json", partition=0).result(60)
    producer.send_frame(topic, frame, key=["id", "text"], key_format="json", value="s", value_format="json", partition=0).result(60)
    producer.send_frame(topic, frame, value="text", partition=0, timestamp=NOON).result(60)
    producer.send_frame(topic, frame, value=["t", "id"], value_format="json", null_fields=False, partition=0).result(60)
    assert [(record.key, record.value) for record in records_in(cluster, topic)] == [
        (b"1", b'{"t":0.5,"id":1}'),
        (b"2", b'{"t":null,"id":2}'),
        (b'{"id":1,"text":"a"}', b'{"x":1}'),
        (b'{"id":2,"text":null}', None),
        (None, b"a"),
        (None, None),
        (None, b'{"t":0.5,"id":1}'),
        (None, b'{"id":2}'),
    ]
    assert {record.timestamp_ms for record in records_in(cluster, topic)[4:6]} == {NOON_MS}


@at_length
def test_columns_that_are_keys_and_times_stay_in_the_value_if_they_are_to(cluster, topic, producer):
    fine = pa.array([1_777_593_600_000_000_001], pa.timestamp("ns"))
    frame = pa.table({"id": ["a"], "at": fine, "p": [1], "n": [7]})
    roles = {"key": "id", "timestamp": "at", "partition": "p", "headers": {"h": "id"}, "value_format": "json"}
    for keep in (False, True, ["at"], ("id", "p")):
        producer.send_frame(topic, frame, keep=keep, **roles).result(60)
    at = "2026-05-01T00:00:00.000000001"
    assert [json.loads(record.value) for record in records_in(cluster, topic)] == [
        {"n": 7},
        {"id": "a", "at": at, "p": 1, "n": 7},
        {"at": at, "n": 7},
        {"id": "a", "p": 1, "n": 7},
    ]
    for how, says in (
        ({"keep": ["n"]}, "keep names column 'n', which is in the value anyway"),
        ({"keep": ["x"]}, "no column 'x'"),
        ({"keep": "at"}, "keep is a list of columns"),
        ({"keep": 1}, "keep is a list of columns"),
        ({"keep": True, "value": ["n"]}, "value says which columns it holds"),
        ({"keep": ["at"], "value": "n"}, "value says which columns it holds"),
    ):
        with pytest.raises(errors.UsageError, match=says):
            producer.send_frame(topic, frame, **{**roles, **how})


@at_length
def test_periods_of_pandas_are_text(cluster, topic, producer):
    frame = pd.DataFrame(
        {
            "month": pd.PeriodIndex(["2026-01", None, "2026-03"], freq="M"),
            "quarter": pd.PeriodIndex(["2026Q1", "2026Q2", "2026Q3"], freq="Q"),
            "day": pd.period_range("2026-05-01", periods=3),
            "flag": pd.array([True, None, False], dtype="boolean"),
        }
    )
    producer.send_frame(topic, frame, value_format="json", partition=0).result(60)
    assert [json.loads(record.value) for record in records_in(cluster, topic)] == [
        {"month": "2026-01", "quarter": "2026Q1", "day": "2026-05-01", "flag": True},
        {"month": None, "quarter": "2026Q2", "day": "2026-05-02", "flag": None},
        {"month": "2026-03", "quarter": "2026Q3", "day": "2026-05-03", "flag": False},
    ]


@at_length
@each_row("how", [{"value_format": "avro"}, {"value_format": "avro", "value": ["p"]}, {"value_format": "json", "timestamp": "p"}])
def test_periods_of_pandas_are_never_bare_numbers(producer, how):
    frame = pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M"), "n": [1, 2]})
    with pytest.raises(errors.UsageError, match=r"column .p. holds periods of pandas"):
        producer.send_frame("never", frame, **how)


@at_length
def test_a_frame_comes_back_with_its_own_schema(cluster, topic, producer):
    berlin = pl.Datetime("ns", "Europe/Berlin")
    frame = pl.DataFrame(
        {
            "u8": pl.Series([255, None], dtype=pl.UInt8),
            "u64": pl.Series([2**64 - 1, 0], dtype=pl.UInt64),
            "cat": pl.Series(["x", "y"], dtype=pl.Categorical),
            "enum": pl.Series(["b", "a"], dtype=pl.Enum(["a", "b", "c"])),
            "time": [datetime.time(1, 2, 3, 4), None],
            "ns": pl.Series([1_777_593_600_000_000_001, None]).cast(berlin),
            "ms": pl.Series([1_777_593_600_001, 0]).cast(pl.Datetime("ms")),
            "arr": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int16, 2)),
            "list": [[{"a": 1}], []],
            "dec": pl.Series([decimal.Decimal("1.50"), None], dtype=pl.Decimal(38, 2)),
            "bin": [b"a", None],
            "day": [datetime.date(2026, 5, 1), None],
        }
    )
    producer.send_frame(topic, frame, value_format="json", partition=0).result(60)
    with kafkacore.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        back = pl.DataFrame(consumer.read(topic, json=frame.schema, record_columns=False))
        # Arrow has no Enum: it comes back as categories
        assert back.with_columns(pl.col("enum").cast(frame.schema["enum"])).equals(frame)
        assert {name: kind for name, kind in back.schema.items() if name != "enum"} == {
            name: kind for name, kind in frame.schema.items() if name != "enum"
        }
        pandas = frame.drop("arr", "list", "enum").to_pandas()
        producer.send_frame(topic, pandas, value_format="json", partition=1).result(60)
        schema = pa.Schema.from_pandas(pandas)
        table = pa.table(consumer.read({(topic, 1): (0, None)}, json=schema, record_columns=False))
    pd.testing.assert_frame_equal(table.to_pandas(), pandas, check_dtype=False, check_categorical=False)


@at_length
def test_a_header_is_left_out_where_its_column_is_null(cluster, topic, producer):
    coded = pa.array(["k", "l", None]).dictionary_encode()
    frame = pa.table({"v": ["1", "2", "3"], "x": ["a", None, "c"], "y": [None, None, b"e"], "z": coded})
    producer.send_frame(topic, frame, value="v", headers={"hx": "x", "hy": "y", "hz": "z"}, partition=0).result(60)
    assert [record.headers for record in records_in(cluster, topic)] == [
        (("hx", b"a"), ("hz", b"k")),
        (("hz", b"l"),),
        (("hx", b"c"), ("hy", b"e")),
    ]


def test_a_topic_is_copied_by_what_a_read_returns(cluster, topic, producer):
    for name in ("-copy", "-refused"):
        cluster.create_topic(topic + name, partitions=2)
    values = [b"x", None, b"\xff", b""]
    headers = [[("h", b"1")], [], [("h", None)], []]
    how = {"headers": headers, "partitions": [0, 0, 1, 1], "timestamps_ms": NOON_MS}
    producer.send_many(topic, values, keys=["k", None, "l", None], **how).result(60)
    with kafkacore.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        stream = consumer.read(topic)
        how = {"key": "key", "value": "value", "headers": "headers", "timestamp": "timestamp", "partition": "partition"}
        with pytest.raises(errors.UsageError, match="has no key"):
            producer.send_frame(topic + "-refused", stream, **how)
        assert producer.send_frame(topic + "-copy", stream, **how, null_keys=True).result(60).delivered == 4

    def seen(name):
        return [(r.partition, r.offset, r.key, r.value, r.headers, r.timestamp_ms) for r in records_in(cluster, name)]

    assert seen(topic + "-copy") == seen(topic)


def test_many_slices_keep_order_and_say_where_they_are(cluster, topic, producer, monkeypatch):
    monkeypatch.setattr(frames, "SLICE_ROWS", 700)
    frame = pl.DataFrame({"n": range(5_000), "p": [i % 2 for i in range(5_000)]})
    found = producer.send_frame(topic, frame, partition="p", value_format="json").result(60)
    assert found.stretches == {TopicPartition(topic, 0): (0, 2_500), TopicPartition(topic, 1): (0, 2_500)}
    for p in (0, 1):
        assert [json.loads(r.value)["n"] for r in records_in(cluster, topic) if r.partition == p] == list(range(p, 5_000, 2))
    with kafkacore.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert sum(len(batch) for batch in consumer.read(found.stretches)) == 5_000


@at_length
def test_an_empty_frame_is_no_records(cluster, topic, producer):
    empty = pa.table({"v": pa.array([], pa.string())})
    for frame in (empty, pl.DataFrame(empty), empty.to_pandas()):
        found = producer.send_frame(topic, frame, value="v").result(60)
        assert (len(found), found.errors, found.stretches) == (0, {}, {})


PAIRS = pa.field("pairs", pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())])))
WRONG = [
    ({"key": "nope", "value_format": "json"}, "no column 'nope': there are id, n, at, p, pairs"),
    ({"value": ["n", "x"], "value_format": "json"}, "no column 'x'"),
    ({"headers": {"h": "x"}, "value": "id"}, "no column 'x'"),
    ({"value": "n"}, "'n' holds int64.*value_format='json'"),
    ({"key": "n", "value": "id"}, "'n' holds int64.*key_format='json'"),
    ({}, "which column is the value"),
    ({"value": ["id", "n"]}, "value_format='json'"),
    ({"value": ["id", "id"], "value_format": "json"}, "named twice"),
    ({"value": "id", "value_format": "xml"}, "not 'xml'"),
    ({"value": "id", "timestamp": "id"}, "(?s)'id'.*epoch milliseconds"),
    ({"value": "id", "partition": "id"}, "'id' holds string"),
    ({"value": "id", "headers": "id"}, "'id' holds string"),
    ({"value": "id", "timestamp": "n"}, "row 2 has no time"),
    ({"value": "id", "key": "n", "key_format": "json"}, "row 2 has no key"),
    ({"value": "id", "headers": {"h": "n"}}, "'n' holds int64, and a header is text or bytes"),
    ({"value": "id", "headers": {1: "id"}}, "a header's name is text, not 1"),
    ({"value": "id", "headers": "pairs"}, "'pairs' holds .*structs of text or bytes"),
    ({"value": "id", "headers": ["id"]}, "headers is .*, not"),
    ({"value": "id", "key": 0, "key_format": "json"}, "key is .*, not 0"),
    ({"value": 1, "value_format": "json"}, "value is .*, not 1"),
    ({"value": "id", "partition": True}, "partition is .*, not True"),
    ({"value": "id", "timestamp": [1, 2, 3, 4]}, r"timestamp is .*, not \[1"),
    ({"value": "id", "key_format": "xml"}, "key_format is json.*not 'xml'"),
    ({"key": ["id", "n", "at", "p", "pairs"], "key_format": "json", "value_format": "json"}, "no column is left for the value"),
]


@each_row(("how", "text"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_what_cannot_be_is_refused_before_anything_is_sent(cluster, topic, producer, how, text):
    with pytest.raises(errors.UsageError, match=text) as caught:
        producer.send_frame(topic, pa.table({**ROWS, "pairs": [[("a", 1)]] * 4}, schema=pa.table(ROWS).schema.append(PAIRS)), **how)
    assert caught.value.appended == 0 and caught.value.topic == topic
    assert records_in(cluster, topic) == []


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"key": "k"}, "row 1,001 has no key"),
        ({"timestamp": "at"}, r"row 1,001 has no time \(column 'at' is null\)"),
        ({"timestamp": "early"}, "row 1,002 has a time before 1970"),
        ({"timestamp": "v"}, "within the 3 rows from 1,000 on"),
        ({"headers": "h"}, "a header in column 'h' has no name"),
    ],
)
def test_a_row_of_a_later_slice_is_counted_from_the_beginning_of_the_frame(how, text):
    headers = pa.array([[("a", b"1")], [], [(None, b"2")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch = pa.record_batch({"k": ["x", None, "y"], "at": [1, None, 2], "early": [1, 2, -1], "v": ["v"] * 3, "h": headers})
    with pytest.raises(errors.UsageError, match=text):
        frames.FrameRows("t", batch.schema, value="v", **how).arguments(batch, 1_000)


@at_length
def test_what_is_no_table(producer):
    column, lazy = "send_many", "collect"
    for given, text in ((["a"], "no Arrow"), (pl.Series(["a"]), column), (pa.array(["a"]), column), (pl.LazyFrame(ROWS), lazy)):
        with pytest.raises(TypeError, match=text):
            producer.send_frame("t", given, value="a")
    with pytest.raises(errors.UsageError, match="2 columns 'a'"):
        producer.send_frame("t", pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], ["a", "a"]), value="a")


NO_ARROW = {
    "addresses of objects": (lambda: pl.DataFrame({"n": [1], "o": [object()]}), "column 'o' holds polars' Object"),
    "128 bits": (lambda: pl.DataFrame({"o": pl.Series([1], dtype=pl.Int128)}), "column 'o' holds polars' Int128"),
    "mixed": (lambda: pd.DataFrame({"n": [1, 2], "o": [1, "x"]}), "column 'o' cannot be a column of Arrow .*'x'"),
    "complex": (lambda: pd.DataFrame({"n": [1, 2], "o": [1j, 2j]}), "column 'o' cannot be a column of Arrow"),
    "huge": (lambda: pd.DataFrame({"n": [1, 2], "o": [2**70, 1]}), "column 'o' cannot be a column of Arrow"),
    "twice": (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names found"),
}


@at_length
@each_row(("frame", "text"), NO_ARROW.values(), ids=NO_ARROW)
def test_a_column_that_arrow_does_not_have_is_named(producer, frame, text):
    with pytest.raises(errors.UsageError, match=text):
        producer.send_frame("t", frame(), value_format="json")


@at_length
def test_runs_dictionaries_and_columns_of_nulls_alone(cluster, topic, producer):
    def runs(values):
        return pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(values))

    names = pa.array(["x", "y", "x"]).dictionary_encode()
    pairs = pa.ListArray.from_arrays([0, 1, 1, 3], pa.StructArray.from_arrays([names, pa.array([b"1", b"2", b"3"])], ["key", "value"]))
    frame = pa.table({"k": runs(["a", "b"]), "v": runs([b"1", b"2"]), "t": runs([5, 6]), "p": pa.nulls(3), "h": pairs})
    sent = producer.send_frame(topic, frame, key="k", value="v", timestamp="t", partition="p", headers="h").result(60)
    assert sent.delivered == 3
    found = sorted((r.key, r.value, r.timestamp_ms, r.headers) for r in records_in(cluster, topic))
    assert found == [(b"a", b"1", 5, (("x", b"1"),)), (b"b", b"2", 6, ()), (b"b", b"2", 6, (("y", b"2"), ("x", b"3")))]


def test_batches_of_other_columns_end_the_call(cluster, topic, producer):
    first = pa.record_batch({"a": [1], "b": pa.nulls(1)})

    def source(*others):
        return pa.RecordBatchReader.from_batches(first.schema, iter([first, *others]))

    frame = source(pa.record_batch({"a": ["x"], "b": [2]}))  # only the types are others
    assert producer.send_frame(topic, frame, value_format="json", partition=0).result(60).delivered == 2
    assert [r.value for r in records_in(cluster, topic)] == [b'{"a":1,"b":null}', b'{"a":"x","b":2}']
    for other, text in (({"a": [1]}, "no column 'b'"), ({"a": [1], "b": [1], "c": [1]}, "a new column 'c'")):
        with pytest.raises(errors.UsageError, match=f"from row 1 on the frame has {text}") as caught:
            producer.send_frame(topic, source(pa.record_batch(other)), value_format="json", partition=1)
        assert caught.value.appended == 1
    text = pa.record_batch({"a": ["x"], "b": ["y"]})
    with pytest.raises(errors.UsageError, match="'a' holds int64"):
        producer.send_frame(topic, pa.RecordBatchReader.from_batches(text.schema, iter([text, first])), key="a", value="b", null_keys=True)


def test_an_error_in_the_middle_says_what_is_queued(cluster, topic, producer):
    schema = pa.schema([("v", pa.string()), ("t", pa.int64())])

    def source():
        yield pa.record_batch([["a", "b"], [NOON_MS] * 2], schema=schema)
        yield pa.record_batch([["c", "d"], [NOON_MS, -1]], schema=schema)

    with pytest.raises(errors.UsageError, match=r"row 3 has a time before 1970.*\(2 rows of the frame queued") as caught:
        producer.send_frame(topic, pa.RecordBatchReader.from_batches(schema, source()), value="v", timestamp="t", partition=0)
    assert caught.value.appended == 2
    assert caught.value.future.result(60).delivered == 2
    assert [record.value for record in records_in(cluster, topic)] == [b"a", b"b"]


def test_a_source_that_fails_says_what_is_queued(cluster, topic, producer):
    schema = pa.schema([("v", pa.string())])

    def source():
        yield pa.record_batch([["a", "b"]], schema=schema)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="the file ends here") as caught:
        producer.send_frame(topic, pa.RecordBatchReader.from_batches(schema, source()), value="v")
    assert caught.value.appended == 2 and any("2 rows of the frame queued" in note for note in caught.value.__notes__)


def test_a_row_that_was_not_delivered_ends_the_call(cluster, topic, producer):
    small = topic + "-small"
    cluster.create_topic(small, partitions=1, configs={"max.message.bytes": "500"})
    schema = pa.schema([("v", pa.string())])
    made = []

    def source():
        yield pa.record_batch([["a", "b"]], schema=schema)
        with contextlib.suppress(errors.DeliveryError):
            producer.flush(20)
        yield pa.record_batch([["x" * 1_000]], schema=schema)
        with contextlib.suppress(errors.DeliveryError):
            producer.flush(20)  # from here on it is known
        for i in range(3):
            made.append(i)
            yield pa.record_batch([["c"]], schema=schema)

    text = r"row 2 of the frame was not delivered.*3 rows of the frame queued, 2 of them"
    with pytest.raises(errors.DeliveryError, match=text) as caught:
        producer.send_frame(small, pa.RecordBatchReader.from_batches(schema, source()), value="v")
    assert isinstance(caught.value.__cause__, errors.KafkaError) and caught.value.failed == 1
    assert made == [0] and caught.value.future.result(60).errors.keys() == {2}
    assert [record.value for record in records_in(cluster, small)] == [b"a", b"b"]


def test_memory_holds_a_batch_and_not_the_frame(cluster, topic, client_face):
    schema = pa.schema([("v", pa.binary())])
    alive = []
    most = []

    def source():
        for i in range(40):
            most.append(sum(batch() is not None for batch in alive))
            batch = pa.record_batch([[bytes([i]) * 50_000] * 10], schema=schema)
            alive.append(weakref.ref(batch))
            yield batch

    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=2_000_000) as producer:
        found = producer.send_frame(topic, pa.RecordBatchReader.from_batches(schema, source()), value="v", partition=0).result(60)
    assert found.delivered == 400 and max(most) <= 2
    assert [record.value[0] for record in records_in(cluster, topic)] == [i for i in range(40) for _ in range(10)]


@at_length
def test_slices_grow_and_shrink_with_the_rows(cluster, topic, producer, monkeypatch):
    monkeypatch.setattr(frames, "SLICE_BYTES", 20_000)
    seen = []
    before = frames.FrameRows.arguments
    monkeypatch.setattr(frames.FrameRows, "arguments", lambda self, batch, row: (seen.append(len(batch)), before(self, batch, row))[1])
    wide = ["x"] * 3_000 + ["y" * 1_000] * 2_000
    producer.send_frame(topic, pa.table({"v": wide}), value_format="json").result(60)
    assert seen[0] == 64 and max(seen) > 500 and seen[-2] < 25
    assert sum(seen) == len(wide)


@each_row(("rows", "slices"), [(100, [100]), (112, [112]), (113, [100, 13]), (212, [100, 112]), (300, [100, 100, 100])])
def test_no_slice_of_a_few_rows_is_left_for_the_end(monkeypatch, rows, slices):
    """An eighth more than a slice has is no slice of its own."""
    monkeypatch.setattr(frames, "SLICE_ROWS", 100)
    call = frames.FrameCall("t", value_format="json")
    batch = pa.record_batch({"n": range(rows)})
    call.open(batch.schema)
    assert [len(each["values"]) for each in call.slices(batch[:64])] == [64]
    found = [each["values"].to_pylist() for each in call.slices(batch)]
    assert [len(values) for values in found] == slices
    assert [value for values in found for value in values] == [b'{"n":%d}' % n for n in range(rows)]


def test_a_slice_has_as_many_rows_as_its_bytes_allow(monkeypatch):
    call = frames.FrameCall("t", value="v")
    batch = pa.record_batch({"v": ["a"] * 198_725})
    call.open(batch.schema)
    assert [len(each["values"]) for each in call.slices(batch)] == [64, 2_048, 65_536, 131_077]
    for limit, sizes in ((10_000, [64, 92, 92, 102]), (50, [64, *[1] * 286])):
        monkeypatch.setattr(frames, "SLICE_BYTES", limit)
        call = frames.FrameCall("t", value_format="json")
        batch = pa.record_batch({"v": ["x" * 92] * 350})  # 100 bytes of JSON, and 8 of an offset
        call.open(batch.schema)
        assert [len(each["values"]) for each in call.slices(batch)] == sizes


@pytest.mark.parametrize("form", ["json", "avro"])
def test_encodings_of_a_column_may_change_from_batch_to_batch(form):
    """Run-end encoded in some batches, wherever: the rows are the same."""
    plain = pa.record_batch({"n": pa.array([5, 5, 7], pa.int64())})
    runs = pa.record_batch({"n": pa.compute.run_end_encode(plain["n"])})
    for batches in ([plain, runs, plain], [runs, plain, runs, plain], [plain, plain], [runs, runs]):
        call = frames.FrameCall("t", value_format=form)
        call.open(batches[0].schema)
        found = [arguments["values"].to_pylist() for batch in batches for arguments in call.slices(batch)]
        assert found == [found[0]] * len(batches) and len(set(found[0])) == 2


@pytest.mark.sync_only("the tests' face awaits futures for callbacks")
def test_a_callback_runs_when_all_is_known(cluster, topic, client_face):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        called = []
        future = producer.send_frame(topic, pa.table(ROWS), value="id")
        future.add_done_callback(called.append)
        future.result(60)
        producer.flush()
        assert called == [future] and future.done() and future.exception(60) is None
        assert "4 rows" in repr(future) and "4 rows, 0 failed" in repr(future.result())


def test_the_asyncio_face_takes_asynchronous_batches(cluster, topic):
    async def copy():
        address = cluster.bootstrap_servers
        async with aio.KafkaProducer(bootstrap_servers=address) as producer, aio.KafkaConsumer(bootstrap_servers=address) as consumer:
            await (await producer.send_frame(topic, pa.table(ROWS), value="id", partition=0))
            future = await producer.send_frame(topic, consumer.read(topic), value="value", partition=1)
            return await future

    assert asyncio.run(copy()).stretches == {TopicPartition(topic, 1): (0, 4)}


@at_length
def test_pandas_missing_numbers_are_null(cluster, topic, producer):
    frame = pd.DataFrame({"f": numpy.array([0.5, numpy.nan]), "t": pd.to_datetime(["2026-05-01 12:00", None])})
    producer.send_frame(topic, frame, value_format="json", partition=0).result(60)
    producer.send_frame(topic, frame, value_format="json", partition=0, null_fields=False).result(60)
    producer.send_frame(topic, frame, value="f", value_format="json", partition=0).result(60)
    noon = b'"t":"2026-05-01T12:00:00"'
    found = [record.value for record in records_in(cluster, topic)]
    assert found == [b'{"f":0.5,%b}' % noon, b'{"f":null,"t":null}', b'{"f":0.5,%b}' % noon, b"{}", b"0.5", None]
    with pytest.raises(errors.UsageError, match="row 1 has no key"):
        producer.send_frame(topic, frame, key="f", key_format="json", value_format="json")


def bounds(outcome):
    """The stretches, from the offset of each record."""
    found = {}
    for number, offset in zip(outcome.partitions.tolist(), outcome.offsets.tolist(), strict=True):
        if offset >= 0:
            low, high = found.get(number, (offset, offset))
            found[number] = min(low, offset), max(high, offset)
    return {TopicPartition(outcome.topic, number): (low, high + 1) for number, (low, high) in found.items()}


@at_length
@pytest.mark.parametrize("how", [{}, {"keys": [f"k{i % 7}" for i in range(3_000)]}, {"partitions": [i // 2 % 2 for i in range(3_000)]}])
def test_stretches_are_the_bounds_of_the_offsets(cluster, topic, client_face, how):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, batch_size=1_000) as producer:
        values = [b"%d" % i for i in range(3_000)]
        sent = [producer.send_many(topic, values, **how) for _ in range(3)]
        for outcome in [each.result(60) for each in sent]:
            assert len(outcome.offsets) == 3_000 and outcome.stretches() == bounds(outcome) != {}
        assert producer.send_many(topic, []).result(60).stretches() == {}


@at_length
def test_stretches_leave_out_what_failed(cluster, topic, client_face):
    small = topic + "-small"
    cluster.create_topic(small, partitions=2, configs={"max.message.bytes": "500"})
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, batch_size=400) as producer:
        outcome = producer.send_many(small, [b"a", b"b", b"x" * 1_000, b"c"], partitions=[0, 1, 1, 0]).result(60)
        assert outcome.errors.keys() == {2}
        assert outcome.stretches() == bounds(outcome) == {TopicPartition(small, 0): (0, 2), TopicPartition(small, 1): (0, 1)}


@at_length
def test_without_acknowledgements_nobody_knows_where_rows_are(cluster, topic, client_face):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=0, enable_idempotence=False) as producer:
        assert producer.send_many(topic, ["a", "b"]).result(60).stretches() == {}
        assert producer.send_frame(topic, pa.table({"v": ["a"]}), value="v").result(60).stretches == {}


PANDAS = {
    "numbers": lambda: pd.DataFrame(
        {"i": numpy.arange(5, dtype=numpy.int16), "f": [0.5, numpy.nan, 1, numpy.inf, -0.0], "b": [True, False, True, False, True]}
    ),
    "float16": lambda: pd.DataFrame({"f": numpy.arange(5, dtype=numpy.float16)}),
    "times": lambda: pd.DataFrame(
        {unit: pd.Series(pd.to_datetime(["2026-05-01 12:00", None] * 2)).astype(f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")}
    ).assign(zone=lambda frame: frame["ns"].dt.tz_localize("Europe/Berlin"), day=datetime.date(2026, 5, 1)),
    "text": lambda: pd.DataFrame({"t": ["a", None, "é"], "o": pd.Series(["x", None, "y"], dtype=object)}),
    "text of two parts": lambda: pd.concat([pd.DataFrame({"t": part, "n": range(len(part))}) for part in (["a", "b"], ["c", None, "d"])]),
    "Python strings": lambda: pd.DataFrame({"t": pd.Series(["a", None], dtype=pd.StringDtype("python"))}),
    "nullable": lambda: pd.DataFrame({"i": pd.array([1, None, 3], "Int64"), "b": pd.array([True, None, False], "boolean")}),
    "Arrow": lambda: pd.DataFrame(
        {
            "i": pd.Series([1, None], dtype=pd.ArrowDtype(pa.int8())),
            "l": pd.Series([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
        }
    ),
    "categories": lambda: pd.DataFrame({"c": pd.Categorical(["a", None, "b"]), "n": [1, 2, 3]}),
    "lists": lambda: pd.DataFrame({"l": [[1], [], None], "n": [1, 2, 3]}),
    "a matrix": lambda: pd.DataFrame(numpy.arange(20.0).reshape(5, 4), columns=list("abcd")),
    "turned round": lambda: pd.DataFrame({"n": numpy.arange(10)[::-1], "f": numpy.arange(20.0)[::2]}),
    "an index": lambda: pd.DataFrame({"n": range(5), "t": list("abcde")}, index=pd.Index(range(5, 10), name="at")),
    "two indices": lambda: pd.DataFrame({"n": range(4)}, index=pd.MultiIndex.from_product([["x", "y"], [1, 2]], names=["a", None])),
    "no rows": lambda: pd.DataFrame({"i": numpy.array([], numpy.int64), "t": pd.Series([], dtype="str")}),
}


@each_row("made", PANDAS.values(), ids=PANDAS)
def test_slices_of_a_pandas_frame_are_what_pyarrow_makes_of_it(made, monkeypatch):
    monkeypatch.setattr(frames, "SLICE_ROWS", 2)
    frame = made()
    keep = any(name is not None for name in frame.index.names)
    schema, batches = frames.batches_of(frame)
    found = list(batches)
    assert schema.equals(pa.Schema.from_pandas(frame, preserve_index=keep).remove_metadata())
    assert [len(each) for each in found] == [min(2, len(frame) - at) for at in range(0, len(frame), 2)]
    assert pa.Table.from_batches(found, schema).equals(pa.Table.from_pandas(frame, schema, preserve_index=keep))


def test_numbers_of_another_byte_order():
    swapped = pd.DataFrame({"n": numpy.arange(3).astype(">i4"), "f": numpy.array([0.5, numpy.nan, 2]).astype(">f8")})
    _, batches = frames.batches_of(swapped)
    assert next(batches).to_pydict() == {"n": [0, 1, 2], "f": [0.5, None, 2.0]}


def test_numbers_and_texts_of_pandas_share_their_memory():
    frame = pd.DataFrame({"n": numpy.arange(6), "t": pd.Series(list("abcdef"), dtype=pd.StringDtype("pyarrow"))})
    numbers = frame["n"].to_numpy()
    batch = next(frames.batches_of(frame)[1])
    assert batch["n"].buffers()[1].address == numbers.ctypes.data
    assert batch["t"].buffers()[2].address == frame["t"].array.__arrow_array__().chunk(0).buffers()[2].address


def test_an_error_within_a_slice_counts_the_rows_before_it(cluster, topic, client_face):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=10_000) as producer:
        with pytest.raises(errors.KafkaError, match="2 rows of the frame queued") as caught:
            producer.send_frame(topic, pa.table({"v": ["a", "b", "x" * 20_000, "c"]}), value="v", partition=0)
        assert caught.value.appended == 2 and caught.value.future.result(60).delivered == 2
    assert [record.value for record in records_in(cluster, topic)] == [b"a", b"b"]


def test_a_send_that_is_cancelled_says_what_is_queued(cluster, topic):
    async def cancelled():
        reached = asyncio.Event()

        async def batches():
            yield pa.record_batch({"v": ["a", "b"]})
            reached.set()
            await asyncio.Event().wait()

        async with aio.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            task = asyncio.ensure_future(producer.send_frame(topic, batches(), value="v", partition=0))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.appended == 2
            return (await caught.value.future).delivered

    assert asyncio.run(cancelled()) == 2
