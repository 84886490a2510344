"""Columns out to the data world and back, with its own packages as the oracles."""

from __future__ import annotations

import itertools
from functools import partial

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from kafkacore import KafkaConsumer, KafkaProducer
from kafkacore.consumer.batches import RecordBatches, arrow_schema
from kafkacore.producer.many_call import one_array
from kafkacore.records import ColumnSource
from tests.kit.clusters import embedded
from tests.kit.late import late
from tests.kit.reached import Reached

datafusion = late("datafusion")
duckdb = late("duckdb")
pd = late("pandas")
pl = late("polars")

VALUES = [b"short", b"longer than the twelve bytes of a view", None, b""]


cluster = embedded(name="cluster")


@pytest.fixture(scope="module")
def batches(cluster):
    cluster.create_topic("out", partitions=2)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many("out", VALUES, keys=[b"k"] * 4, partitions=0, headers=[("h", b"v")], timestamps_ms=1_700_000_000_000)
        producer.send_many("out", VALUES, partitions=1)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        parts = [c for p in (0, 1) for c in consumer.read_range(("out", p), 0, 4, 10)]
    return RecordBatches(parts)


def test_each_library_takes_batches_as_a_table(batches):
    expected = VALUES + VALUES
    assert pa.table(batches).column("value").to_pylist() == expected
    assert pa.table(batches).cast(arrow_schema()).equals(batches.to_arrow())
    frame = pl.DataFrame(batches)
    assert frame["value"].to_list() == expected
    assert frame["headers"][0].to_list() == [{"key": "h", "value": b"v"}]
    assert frame["topic"].cast(pl.String).to_list() == ["out"] * 8
    pandas = pd.DataFrame.from_arrow(batches)
    assert [None if pd.isna(each) else each for each in pandas["value"]] == expected
    assert pandas["partition"].tolist() == [0] * 4 + [1] * 4
    found = duckdb.sql('select partition, count(value), sum("offset") from batches group by 1 order by 1').fetchall()
    assert found == [(0, 3, 6), (1, 3, 6)]


def test_datafusion_takes_batches_and_columns_as_a_table(batches):
    context = datafusion.SessionContext()
    frame = context.from_arrow(batches)
    assert frame.count() == 8
    context.from_arrow(batches[0], name="part")
    [batch] = context.sql('select count(value) as n, sum("offset") as s from part').collect()
    assert batch.to_pylist() == [{"n": 3, "s": 6}]
    assert context.from_arrow(RecordBatches([])).count() == 0


def test_columns_of_one_partition_are_a_table_too(batches):
    columns = batches[1]
    assert pl.DataFrame(columns)["value"].to_list() == VALUES
    assert [None if pd.isna(each) else each for each in pd.DataFrame.from_arrow(columns)["value"]] == VALUES
    assert duckdb.sql("select topic, count(*) from columns group by 1").fetchall() == [("out", 4)]
    assert pl.Series(columns.values).to_list() == pa.array(columns.values).to_pylist() == VALUES


def test_the_stream_can_be_read_again_and_after_the_batches_are_gone(batches):
    copy = RecordBatches(list(batches))
    first, second = pa.table(copy), pa.table(copy)
    del copy
    assert first.equals(second)


def test_no_records_are_an_empty_table():
    nothing = RecordBatches([])
    assert pa.table(nothing).num_rows == 0
    assert pl.DataFrame(nothing).columns == nothing.to_arrow().column_names == arrow_schema().names
    assert pa.concat_tables([nothing.to_arrow(), nothing.to_arrow()]).num_rows == 0
    assert pa.schema(nothing).equals(arrow_schema(True))


def test_the_schema_is_that_of_the_columns(batches):
    for view in (False, True):
        assert batches[0].to_arrow(view=view).schema.equals(arrow_schema(view), check_metadata=True)


TEXTS = ["a", None, "text that is longer than a view", "é"]
COLUMNS = {
    "pandas": lambda: pd.Series(TEXTS),
    "pandas objects": lambda: pd.Series([None if each is None else each.encode() for each in TEXTS], dtype=object),
    "pandas category": lambda: pd.Series(TEXTS, dtype="category"),
    "polars": lambda: pl.Series(TEXTS),
    "polars binary": lambda: pl.Series([None if each is None else each.encode() for each in TEXTS]),
    "polars category": lambda: pl.Series(TEXTS, dtype=pl.Categorical),
    "polars chunks": lambda: pl.concat([pl.Series(TEXTS[:1]), pl.Series(TEXTS[1:])], rechunk=False),
    "table": lambda: pa.table({"x": TEXTS})["x"],
    "chunks": lambda: pa.chunked_array([TEXTS[:2], [], TEXTS[2:]]),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_send_many_takes_columns_in_chunks(cluster, request, column):
    topic = "in-" + request.node.callspec.id.replace(" ", "-")
    cluster.create_topic(topic, partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert producer.send_many(topic, column(), keys=column()).result(60).errors == {}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        [columns] = consumer.read_range((topic, 0), 0, 4, 10)
    expected = [None if each is None else each.encode() for each in TEXTS]
    assert columns.values.to_pylist() == columns.keys.to_pylist() == expected


def test_send_many_takes_its_own_output(cluster, batches):
    cluster.create_topic("again", partitions=1)
    table = pa.table(batches)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many("again", table["value"], keys=batches.to_arrow()["key"]).result(60)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert [each for c in consumer.read_range(("again", 0), 0, 8, 10) for each in c.values.to_pylist()] == VALUES + VALUES


def test_what_is_no_column_of_bytes_is_refused_by_name(cluster):
    cluster.create_topic("refused", partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(TypeError, match="a DataFrame has several columns: pass one of them"):
            producer.send_many("refused", pl.DataFrame({"a": ["x"]}))
        with pytest.raises(TypeError, match="not a column of byte strings"):
            producer.send_many("refused", pl.Series([1, 2]))


taken = Reached("several chunks", "an empty chunk", "null", "cut within a chunk", "a dictionary", "views")


@partial(taken.by, rounds=12)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(st.sampled_from([None, None, b"", b"longer than a view"]), max_size=4), min_size=2, max_size=4),
    st.sampled_from([pa.dictionary(pa.int8(), pa.binary()), pa.binary_view(), pa.large_binary()]),
    st.data(),
)
def test_any_chunks_slices_and_nulls_are_read_as_they_are(chunks, kind, data):
    plain = [pa.array(each, pa.binary()) for each in chunks]
    arrays = [each.dictionary_encode() if pa.types.is_dictionary(kind) else each.cast(kind) for each in plain]
    column = pa.chunked_array(arrays, arrays[0].type)
    start = data.draw(st.integers(0, min(3, len(column))))
    column = column.slice(start, data.draw(st.integers(0, len(column) - start).map(lambda left: len(column) - start - left)))
    taken("several chunks", sum(map(bool, chunks)) > 1)
    taken("an empty chunk", [] in chunks)
    taken("null", column.null_count)
    taken("cut within a chunk", len(column) and start not in itertools.accumulate(map(len, chunks), initial=0))
    taken("a dictionary", len(column) and pa.types.is_dictionary(kind))
    taken("views", len(column) and kind == pa.binary_view())
    source = ColumnSource(one_array(column))
    assert [source[i] for i in range(len(source))] == column.to_pylist()
