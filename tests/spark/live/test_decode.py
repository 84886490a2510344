"""Decoded reads in a Spark session: the rows Spark itself would make of the values, derived columns, dead letters, errors."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkacore.decode import ddl
from kafkacore.testing import EmbeddedCluster
from tests.kit.records import fill
from tests.spark import from_json
from tests.spark.shared import dead_letters, given


def produce(cluster: EmbeddedCluster, topic: str, values: list[bytes | None]) -> dict[str, str]:
    cluster.create_topic(topic)
    fill(cluster.bootstrap_servers, topic, values)
    return given(cluster, subscribe=topic)


@pytest.fixture(scope="module")
def json_bad(cluster: EmbeddedCluster) -> dict[str, str]:
    """A topic with a value that is no JSON."""
    return produce(cluster, "json_bad", [b"{}", b"{"])


def both(spark: Any, given: dict[str, str], kind: str, schema: str) -> tuple[list[Any], list[Any]]:
    """The rows as decoded in the reader, and as Spark's own function makes them of the values."""
    plain = spark.read.format("kafkacore").options(**given).load()
    theirs = plain.orderBy("offset").selectExpr(f"from_{kind}(cast(value AS string), '{schema}') AS r").collect()
    ours = spark.read.format("kafkacore").schema(f"{schema}, _offset LONG").options(**given, **{"value.format": kind}).load()
    width = len(ours.columns) - 1
    nothing = (None,) * width
    return [tuple(row)[:width] for row in ours.orderBy("_offset").collect()], [nothing if r is None else tuple(r) for (r,) in theirs]


SCHEMA = (
    "a INT, d DOUBLE, s STRING, b BOOLEAN, p DECIMAL(6,2), y DATE, t TIMESTAMP, n TIMESTAMP_NTZ, "
    "l ARRAY<STRUCT<x: BIGINT>>, m MAP<STRING,DOUBLE>, r STRUCT<u: BINARY>"
)
ALIKE = [
    '{"a":1,"d":1.5,"s":"x","b":true,"p":1.5,"y":"2020-01-02","t":"2020-01-01T10:00:00.5+02:00","n":"2020-01-01T10:00:00","r":{"u":"AP8="}}',
    '{"l":[{"x":1},null,{"y":2}],"m":{"k":1,"z":null}}',
    "{}",
    "null",
    '{"a":null,"foreign":[{"a":1}]}',
    '{"s":{"q": [1.5,null,"ä"]}}',
    '{"s":12}',
    '{"d":7}',
    '{"d":"NaN"}',
    '{"d":"-Infinity"}',
    '{"p":"12.345"}',
    '{"p":-0.005}',
    '{"t":1577836800}',
    '{"t":"2020-01-01"}',
    '{"t":"2020-01-01 01:02:03.1234567Z"}',
    '{"y":"2020-1-2"}',
    '{"s":"\\u00e4\\ud83d\\ude00\\u0000"}',
    '{"a":1,"a":2}',
    '  {"a" :\n 5 } ',
    "{",
    '"text"',
    '[{"s":"x"}]',
]


def test_json_is_read_as_from_json_does(spark: Any, cluster: EmbeddedCluster) -> None:
    ours, theirs = both(spark, produce(cluster, "json", [each.encode() for each in ALIKE]), "json", SCHEMA)
    for mine, spark_row, text in zip(ours, theirs, ALIKE, strict=True):
        assert repr(mine) == repr(spark_row), text


def test_bad_json_is_what_from_json_makes_of_it(spark: Any, cluster: EmbeddedCluster) -> None:
    """`from_json.ROWS` is what the tests without Spark compare with."""
    ours, theirs = both(spark, produce(cluster, "bad", [text.encode() for text, _ in from_json.ROWS]), "json", from_json.SCHEMA)
    fields = list(ddl.parse(from_json.SCHEMA, "o"))
    for (text, wanted), *found in zip(from_json.ROWS, ours, theirs, strict=True):
        for row in found:
            plain = {field.name: from_json.plain(value, field.type) for field, value in zip(fields, row, strict=True)}
            assert repr(plain) == repr({field.name: wanted.get(field.name) for field in fields}), text


def test_csv_is_read_as_from_csv_does(spark: Any, cluster: EmbeddedCluster) -> None:
    schema = "a INT, s STRING, d DOUBLE, b BOOLEAN, p DECIMAL(6,2), y DATE, t TIMESTAMP"
    values = [
        "1,x,1.5,true,1.5,2020-01-02,2020-01-01T10:00:00Z",
        ",,,,,,",
        '2,"x,y",,false,,,',
        "3,,,,12.345,,",
        "-4, x ,1e3,,,,2020-01-01 05:00:00",
    ]
    ours, theirs = both(spark, produce(cluster, "csv", [each.encode() for each in values]), "csv", schema)
    for mine, spark_row, text in zip(ours, theirs, values, strict=True):
        assert repr(mine) == repr(spark_row), text


def test_csv_is_read_otherwise_where_the_docs_say_so(spark: Any, cluster: EmbeddedCluster) -> None:
    values = [b'1,""', b"2", b'3,"a""b"', b"x,y"]
    ours, theirs = both(spark, produce(cluster, "csv_otherwise", values), "csv", "a INT, s STRING")
    assert ours == [(1, ""), (None, None), (3, 'a"b'), (None, None)]
    assert theirs[0] == (1, None) and theirs[1] == (2, None) and theirs[3] == (None, "y")


def test_avro_of_a_registry_as_a_stream_with_dead_letters(
    spark: Any, cluster: EmbeddedCluster, registry_server: Any, tmp_path: Path
) -> None:
    import fastavro

    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "s", "type": ["null", "string"]}]}
    number = registry_server.add("avro-value", json.dumps(schema))

    def value(at: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"a": at, "s": None if at % 2 else "x"})
        return struct.pack(">bI", 0, number) + out.getvalue()

    read = produce(cluster, "avro", [value(at) if at % 10 else b"junk" for at in range(100)])
    cluster.create_topic("dead")
    more = {"value.format": "avro", "schema.registry.url": registry_server.url, "startingOffsets": "earliest", "deadLetterTopic": "dead"}
    stream = spark.readStream.format("kafkacore").options(**read, **more).load()
    assert stream.schema.simpleString() == "struct<a:int,s:string>"
    query = (
        stream.writeStream.format("memory").queryName("avro").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert sorted(row.a for row in spark.table("avro").collect()) == [at for at in range(100) if at % 10]
    found = dead_letters(cluster, "dead", 10)
    assert [dict(each.headers)["__kafkacore.errors.offset"] for each in found] == [b"%d" % at for at in range(0, 100, 10)]


@pytest.mark.parametrize(
    ("more", "schema", "says"),
    [
        ({"value.format": "json", "mode": "failfast"}, "a INT", r"json_bad-0.*@1|json_bad.*offset.*1"),
        ({"value.format": "json"}, None, "value.format=json does not name the columns"),
    ],
)
def test_what_is_wrong_is_said(spark: Any, json_bad: dict[str, str], more: dict[str, str], schema: str | None, says: str) -> None:
    reader = spark.read.format("kafkacore").options(**json_bad, **more)
    with pytest.raises(Exception, match=says):
        (reader if schema is None else reader.schema(schema)).load().count()


def test_a_stream_with_a_misspelled_option_and_a_schema_says_so(spark: Any, json_bad: dict[str, str], tmp_path: Path) -> None:
    """Spark does not ask the source for its schema then."""
    with pytest.raises(Exception, match=r"unknown option 'value\.fromat'; did you mean value.format"):
        stream = spark.readStream.format("kafkacore").options(**json_bad, **{"value.fromat": "json"}).schema("a INT").load()
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().awaitTermination()


def test_in_sql_a_topic_is_a_temporary_view_and_no_table(spark: Any, cluster: EmbeddedCluster) -> None:
    produce(cluster, "in-sql", [b'{"a":1}'])
    options = f"OPTIONS (`kafka.bootstrap.servers` '{cluster.bootstrap_servers}', subscribe 'in-sql', `value.format` 'json')"
    with pytest.raises(Exception, match="a table cannot be stored") as caught:
        spark.sql(f"CREATE TABLE in_sql USING kafkacore {options}")
    assert "CREATE TEMPORARY VIEW name USING kafkacore OPTIONS" in str(caught.value)
    spark.sql(f"CREATE TEMPORARY VIEW in_sql (a INT, _offset BIGINT) USING kafkacore {options}")
    try:
        assert [tuple(row) for row in spark.sql("SELECT * FROM in_sql").collect()] == [(1, 0)]
    finally:
        spark.sql("DROP VIEW in_sql")
