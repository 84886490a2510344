"""What a task hands to Spark of a decoded read, and what it does with values that cannot be decoded; an embedded broker, no session."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from tests.kit.rows import each_row

pa = pytest.importorskip("pyarrow")

from kafkacore import KafkaProducer, errors  # noqa: E402
from kafkacore.decode import ddl, registry  # noqa: E402
from kafkacore.spark import clients, decoded, formats  # noqa: E402
from kafkacore.spark.offsets import OffsetRange  # noqa: E402
from kafkacore.spark.options import source_options  # noqa: E402
from kafkacore.testing import EmbeddedCluster  # noqa: E402
from tests.decode.support import rows  # noqa: E402
from tests.kit.inside import kept_of  # noqa: E402
from tests.spark.shared import dead_letters  # noqa: E402

VALUES = [b'{"a":0}', b"{", None, b'{"a":3}', b'{"a":"x"}', b'{"a":5}']
COLUMNS = "_offset BIGINT, a INT, _corrupt BINARY"


@pytest.fixture(scope="module")
def cluster() -> Any:
    with EmbeddedCluster() as running:
        running.create_topic("t", partitions=2)
        with KafkaProducer(bootstrap_servers=running.bootstrap_servers) as producer:
            for at, value in enumerate(VALUES):
                producer.send("t", value, key=b"k%d" % at, partition=1, headers=[("h", b"1")] if at == 1 else None, timestamp_ms=at)
        yield running
        for kept in kept_of(clients).values():
            for consumer in kept:
                consumer.close()
        kept_of(clients).clear()
        for producer in kept_of(decoded).values():
            producer.close()
        kept_of(decoded).clear()


def read(cluster: EmbeddedCluster, columns: str, start: int = 0, end: int = len(VALUES), **more: str) -> list[dict[str, Any]]:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", "value.format": "json", **more}
    options = source_options({name.replace("__", "."): value for name, value in given.items()}, streaming=False)
    schema = ddl.parse(columns, "o")
    found = []
    for batch in clients.read(options, OffsetRange("t", 1, start, end), schema):
        assert batch.schema == schema
        found += batch.to_pylist()
    return found


def test_values_beside_kafkas_columns(cluster: EmbeddedCluster) -> None:
    found = read(
        cluster,
        "_topic STRING, a INT, _partition INT, _offset BIGINT, _key BINARY, _timestamp TIMESTAMP, _timestampType INT, "
        "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    assert [each["a"] for each in found] == [0, None, None, 3, None, 5]
    assert [(each["_topic"], each["_partition"], each["_offset"], each["_key"]) for each in found] == [
        ("t", 1, at, b"k%d" % at) for at in range(6)
    ]
    assert [(each["_timestamp"].microsecond, each["_timestampType"]) for each in found] == [(at * 1000, 0) for at in range(6)]
    assert [each["_headers"] for each in found] == [None, [{"key": "h", "value": b"1"}], None, None, None, None]


def test_permissive_shows_the_corrupt_and_no_tombstone_among_them(cluster: EmbeddedCluster) -> None:
    found = read(cluster, COLUMNS)
    assert [(each["_offset"], each["a"], each["_corrupt"]) for each in found] == [
        (0, 0, None), (1, None, b"{"), (2, None, None), (3, 3, None), (4, None, b'{"a":"x"}'), (5, 5, None),
    ]  # fmt: skip


def test_dropmalformed_drops_the_corrupt_and_no_tombstone(cluster: EmbeddedCluster) -> None:
    assert [each["_offset"] for each in read(cluster, COLUMNS, mode="dropmalformed")] == [0, 2, 3, 5]


def test_failfast_names_the_first(cluster: EmbeddedCluster) -> None:
    with pytest.raises(errors.CorruptDataError, match=r"field a: 'x' is no int") as caught:
        read(cluster, COLUMNS, start=2, mode="failfast")
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 4)
    assert [each["a"] for each in read(cluster, COLUMNS, start=2, end=4, mode="failfast")] == [None, 3]


def test_only_kafkas_columns_are_read_without_decoding(cluster: EmbeddedCluster) -> None:
    assert [each["_offset"] for each in read(cluster, "_offset BIGINT")] == list(range(6))
    assert [each["_offset"] for each in read(cluster, "_offset BIGINT", mode="dropmalformed")] == [0, 2, 3, 4, 5]


@pytest.mark.parametrize(("mode", "left"), [({}, [0, 2, 3, 5]), ({"mode": "permissive"}, list(range(6)))])
def test_dead_letters_are_there_when_the_task_is_done(cluster: EmbeddedCluster, mode: dict[str, str], left: list[int]) -> None:
    topic = f"letters-{len(left)}"
    cluster.create_topic(topic)
    assert [each["_offset"] for each in read(cluster, COLUMNS, deadLetterTopic=topic, **mode)] == left
    first, second = dead_letters(cluster, topic, 2)
    assert (first.key, first.value) == (b"k1", b"{") and (second.key, second.value) == (b"k4", b'{"a":"x"}')
    headers = dict(first.headers)
    assert headers.pop(decoded.HEADER + "reason").startswith(b"JSONDecodeError")
    assert headers == {"h": b"1", decoded.HEADER + "topic": b"t", decoded.HEADER + "partition": b"1", decoded.HEADER + "offset": b"1"}
    assert dict(second.headers)[decoded.HEADER + "reason"] == b"field a: 'x' is no int"


def test_a_task_fails_when_its_dead_letters_cannot_be_sent(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("small", configs={"max.message.bytes": "10"})
    with pytest.raises(errors.DeliveryError, match=r"could not be sent to the option deadLetterTopic.*MESSAGE_TOO_LARGE") as caught:
        read(cluster, COLUMNS, deadLetterTopic="small")
    assert caught.value.topic == "small" and caught.value.__cause__ is not None


def test_text_keeps_kafkas_names(cluster: EmbeddedCluster) -> None:
    found = read(cluster, "value STRING, offset BIGINT", value__format="string")
    assert [each["value"] for each in found] == [None if each is None else each.decode() for each in VALUES]
    assert [each["offset"] for each in found] == list(range(6))


@each_row(
    ("given", "columns", "says"),
    [
        ({}, "a INT, _offset INT", "column _offset is bigint, not int"),
        ({}, "a INT, _corrupt STRING", "column _corrupt is binary, not string"),
        ({}, "m MAP<INT,INT>", "column m: the keys of JSON objects are strings, not int"),
        ({"value__format": "string"}, "a INT", "column a: value.format=string has the column value"),
        ({"value__format": "csv"}, "a ARRAY<INT>", "a cell of CSV cannot be array<int>"),
        ({"value__schema": "a INT, b INT"}, "a BIGINT", "column a is bigint in the schema; option value.schema: int there"),
        ({"value__schema": "a INT"}, "b INT", "column b is int in the schema; option value.schema: not there"),
        ({"value__format": "avro", "value__schema": '"int"'}, "a INT", "a value must be a record"),
        ({}, "a INT, _corrupt_record STRING", "column _corrupt_record would always be null: here the undecodable value is in _corrupt"),
    ],
)
def test_columns_that_cannot_be(cluster: EmbeddedCluster, given: dict[str, str], columns: str, says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        read(cluster, columns, **given)


def test_a_column_that_must_not_be_null_is_refused() -> None:
    options = source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "value.format": "json"}, streaming=False)
    for kind, path in (
        (pa.field("a", pa.int32(), nullable=False), "a"),
        (pa.field("a", pa.struct([pa.field("b", pa.int32(), nullable=False)])), "a.b"),
        (pa.field("a", pa.list_(pa.field("element", pa.int32(), nullable=False))), r"a\[\]"),
        (pa.field("a", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))), "a{}"),
    ):
        with pytest.raises(errors.ConfigError, match=f"column {path} is NOT NULL"):
            formats.value_fields(pa.schema([kind]), options)


def options_of(**more: str) -> Any:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", **{name.replace("__", "."): value for name, value in more.items()}}
    return source_options({name: value for name, value in given.items() if value}, streaming=False)


def derived(**more: str) -> Any:
    return formats.derived(options_of(**more))


def test_columns_that_are_derived(registry_server: Any) -> None:
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    registry_server.add("t-value", json.dumps(avro))
    registry_server.add("u-value", json.dumps(avro))
    registry_server.add("v-value", json.dumps({**avro, "fields": [{"name": "b", "type": "int"}]}))
    url = {"value__format": "avro", "schema__registry__url": registry_server.url}
    a = pa.schema([("a", pa.int32())])
    assert derived(**url) == derived(**url, subscribe="t,u") == derived(**url, subscribe="", assign='{"t":[0,1]}') == a
    assert derived(**url, subscribe="", subscribePattern=".*", schema__registry__subject="v-value").names == ["b"]
    assert derived(value__format="avro", value__schema=json.dumps(avro)) == a
    assert derived(value__format="csv", value__schema="a INT, _offset BIGINT").names == ["a", "_offset"]
    for given, says in (
        ({"subscribe": "t,v"}, "the subjects t-value and v-value of the registry have different columns"),
        ({"subscribe": "w"}, "the schema registry has no subject 'w-value'"),
        ({"subscribe": "", "subscribePattern": ".*"}, "a pattern does not say whose schema"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            derived(**url, **given)
    hidden = json.dumps({**avro, "fields": [{"name": "_offset", "type": "long"}]})
    registry_server.add("y-value", hidden)
    for more in ({**url, "subscribe": "y"}, {"value__format": "avro", "value__schema": hidden}):
        with pytest.raises(errors.ConfigError, match="the value has a field _offset, which here is a column of the record"):
            derived(**more)
    with pytest.raises(errors.ConfigError, match=r"value.format=json does not name the columns"):
        derived(value__format="json")
    as_json = {**url, "value__format": "json", "subscribe": "x"}
    of = {"type": "object", "properties": {"a": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}}
    number = registry_server.add("x-value", json.dumps(of), "JSON")
    columns = derived(**as_json)
    assert columns == pa.schema([("a", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    framed = b"\0" + number.to_bytes(4, "big") + b'{"at": "2020-01-01T02:00:00+02:00", "a": 7, "more": 1}'
    found, faults = rows(formats.decoder(options_of(**as_json), list(columns)), [framed, b'{"a": 7}', None])
    assert found == [(7, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), (None, None), (None, None)] and list(faults) == [1]
    formats.registry.shared(formats.registry.RegistryOptions(registry_server.url)).close()


def test_what_the_modes_make_of_a_value_with_a_bad_field(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("modes")
    value = b'{"a":"bad","b":"keep me","c":{"d":"bad","e":"keep me"}}'
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("modes", value)

    def rows_with(mode: str, **more: str) -> list[dict[str, Any]]:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "modes", "value.format": "json", "mode": mode, **more}
        schema = ddl.parse("a INT, b STRING, c STRUCT<d: INT, e: STRING>, _corrupt BINARY", "o")
        read = clients.read(source_options(given, streaming=False), OffsetRange("modes", 0, 0, 1), schema)
        return [row for batch in read for row in batch.to_pylist()]

    cluster.create_topic("rejected")
    assert rows_with("permissive") == [{"a": None, "b": "keep me", "c": {"d": None, "e": "keep me"}, "_corrupt": value}]
    assert rows_with("permissive", deadLetterTopic="rejected")[0]["b"] == "keep me" and cluster.high_watermark("rejected", 0) == 1
    assert rows_with("rowwise") == [{"a": None, "b": None, "c": None, "_corrupt": value}]
    assert rows_with("dropmalformed") == []
    with pytest.raises(errors.CorruptDataError, match="field a: 'bad' is no int"):
        rows_with("failfast")


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed", "failfast"])
def test_a_schema_that_the_registry_lacks_fails_the_task(
    cluster: EmbeddedCluster, registry_server: Any, other_registry: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """No mode makes rows of nulls of values that another registry could read; and what was unknown once is asked for again."""
    monkeypatch.setattr(registry, "BACKOFF_S", 0)
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    registry_server.add("first", "{}")
    number = registry_server.add("t-value", json.dumps(schema))
    topic = f"framed-{mode}"
    cluster.create_topic(topic)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (None, bytes([0, 0, 0, 0, number, 10])):
            producer.send(topic, value)

    def forget() -> None:
        while kept_of(registry):
            kept_of(registry).popitem()[1].close()

    def tried(url: str, **more: str) -> list[Any]:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "value.format": "avro", "mode": mode}
        options = source_options({**given, "schema.registry.url": url, **more}, streaming=False)
        return [row for batch in clients.read(options, OffsetRange(topic, 0, 0, 2), ddl.parse("a INT", "o")) for row in batch.to_pylist()]

    login = other_registry.url.replace("//", "//me:hush@")
    for _ in range(2):
        with pytest.raises(registry.UnusableSchema, match=f"the schema registry {other_registry.url} has no schema {number}") as caught:
            tried(login)
        error = caught.value
        assert (error.topic, error.partition, error.offset) == (topic, 0, 1)
        assert f"[topic {topic}, partition 0, offset 1]" in str(error) and "hush" not in str(error)
    other_registry.add("first", "{}")
    other_registry.add("t-value", json.dumps(schema))
    assert tried(login) == tried(registry_server.url) == [{"a": None}, {"a": 5}]
    for more in ({}, {"onUnusableSchema": "corrupt"}):
        forget()
        registry_server.answers = [(404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}')]
        says = f"there is no schema registry at {registry_server.url}/typo.*{topic}, partition 0, offset 1"
        with pytest.raises(errors.ConfigError, match=says):
            tried(registry_server.url + "/typo", **more)
    forget()
    registry_server.answers = [(404, b'{"error_code": 40403}')]
    lenient = {"onUnusableSchema": "corrupt"}
    if mode == "failfast":
        with pytest.raises(errors.CorruptDataError, match=f"has no schema {number}"):
            tried(registry_server.url, **lenient)
    else:
        assert tried(registry_server.url, **lenient) == [{"a": None}] * (2 if mode == "permissive" else 1)
    forget()
