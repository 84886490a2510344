"""send_frame with Avro values: fastavro and our own reader are the oracles."""

from __future__ import annotations

import datetime
import decimal
import io
import json

import fastavro
import pyarrow as pa
import pytest

from kafkacore import KafkaConsumer, KafkaProducer, errors
from kafkacore.decode import registry
from kafkacore.producer.frame_avro import AvroRows
from tests.kit.clusters import embedded

UTC = datetime.UTC
INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
NOON = datetime.datetime(2026, 5, 1, 12, 0, 0, 123000)
FIELDS = [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "double"]}]
SCHEMA = {"type": "record", "name": "Flight", "fields": FIELDS}


def flights():
    return pa.table({"flight": ["UA1", "AA2"], "carrier": ["UA", "AA"], "delay": [12.5, None]})


def avro_of(data, schema):
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


@pytest.mark.parametrize(
    ("value", "kind", "avro", "found"),
    [
        (-5, pa.int8(), "int", -5),
        (-5, pa.int16(), "int", -5),
        (5, pa.uint8(), "int", 5),
        (5, pa.uint16(), "int", 5),
        (0.5, pa.float16(), "float", 0.5),
        (1 << 31, pa.uint32(), "long", 1 << 31),
        (7, pa.uint64(), "long", 7),
        (0.5, pa.float32(), "float", 0.5),
        (0.1, pa.float64(), "double", 0.1),
        (True, pa.bool_(), "boolean", True),
        ("é", pa.string_view(), "string", "é"),
        ("x", pa.dictionary(pa.int8(), pa.string()), "string", "x"),
        (b"\xff", pa.binary(), "bytes", b"\xff"),
        (NOON.date(), pa.date32(), {"type": "int", "logicalType": "date"}, NOON.date()),
        (NOON, pa.timestamp("ms"), {"type": "long", "logicalType": "local-timestamp-millis"}, NOON),
        (NOON, pa.timestamp("us"), {"type": "long", "logicalType": "local-timestamp-micros"}, NOON),
        (NOON.replace(tzinfo=UTC), pa.timestamp("ms", "Asia/Tokyo"), INSTANT, NOON.replace(tzinfo=UTC)),
        (NOON.time(), pa.time32("ms"), {"type": "int", "logicalType": "time-millis"}, NOON.time()),
        (
            decimal.Decimal("-1.50"),
            pa.decimal128(10, 2),
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            decimal.Decimal("-1.50"),
        ),
        ([1, None], pa.list_(pa.int64()), {"type": "array", "items": ["null", "long"]}, [1, None]),
        ([("a", 1)], pa.map_(pa.string(), pa.int64()), {"type": "map", "values": ["null", "long"]}, {"a": 1}),
        (
            {"y": None},
            pa.struct([("y", pa.int32())]),
            {"type": "record", "name": "Row_x", "fields": [{"name": "y", "type": ["null", "int"], "default": None}]},
            {"y": None},
        ),
        (None, pa.null(), "null", None),
    ],
)
def test_a_schema_of_the_columns(value, kind, avro, found, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    columns = pa.struct([("x", kind)])
    union = avro if avro == "null" else ["null", avro]
    schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": union, "default": None}]}
    [data, nothing] = AvroRows(None, columns).column(pa.array([{"x": value}, None], columns)).to_pylist()
    assert nothing is None and avro_of(data, schema) == {"x": found}


def test_what_avro_cannot_hold():
    for kind, text in ((pa.duration("s"), "no Avro type for duration"), (pa.map_(pa.int8(), pa.int8()), "no Avro type for map")):
        with pytest.raises(errors.ConfigError, match=text):
            AvroRows(None, pa.struct([("x", kind)]))
    with pytest.raises(errors.ConfigError, match="'a b' cannot be a name"):
        AvroRows(None, pa.struct([("a b", pa.int8())]))
    with pytest.raises(errors.ConfigError, match="no Avro schema"):
        AvroRows('{"type": "what"}', pa.struct([("x", pa.int8())]))
    rows = AvroRows(None, pa.struct([("x", pa.uint64())]))
    with pytest.raises(errors.SerializationError, match="rows from 100 on"):
        rows.column(pa.array([{"x": 1 << 63}], pa.struct([("x", pa.uint64())])), 100)


cluster = embedded(name="cluster")


@pytest.fixture
def producer(cluster):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def consumer(cluster):
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def sorted_rows(stream):
    return sorted((row["carrier"], row["delay"]) for row in pa.table(stream).to_pylist())


def test_records_by_a_schema(cluster, producer, consumer):
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        producer.send_frame("by-schema", flights(), key="flight", value_format="avro", value_schema=schema).result(60)
    assert sorted_rows(consumer.read("by-schema", avro=SCHEMA)) == [("AA", None), ("AA", None), ("UA", 12.5), ("UA", 12.5)]


def test_a_row_that_does_not_fit_is_named(cluster, producer):
    cluster.create_topic("unfit")
    with pytest.raises(errors.SerializationError, match="row 1 does not fit the Avro schema") as caught:
        producer.send_frame("unfit", pa.table({"carrier": ["UA", None], "delay": [1.0, 1.0]}), value_format="avro", value_schema=SCHEMA)
    assert caught.value.appended == 0 and caught.value.topic == "unfit"


def test_a_registry_s_schemas(cluster, producer, consumer, registry_server, monkeypatch):
    monkeypatch.setattr(registry, "BACKOFF_S", 0)
    registry_server.add("other", '"string"')
    number = registry_server.add("framed-value", json.dumps(SCHEMA))
    producer.send_frame("framed", flights(), key="flight", value_format="avro", registry=registry_server.url).result(60)
    producer.send_frame("framed", flights(), key="flight", value_format="avro", registry=registry_server.url, value_schema=number).result(
        60
    )
    assert all(record.value[:5] == b"\0\0\0\0" + bytes([number]) for record in cluster.records("framed"))
    assert sorted_rows(consumer.read("framed", avro=True, registry=registry_server.url)) == [("AA", None)] * 2 + [("UA", 12.5)] * 2
    with pytest.raises(errors.ConfigError, match="no subject 'unknown-value'"):
        producer.send_frame("unknown", flights(), value_format="avro", registry=registry_server.url)


def test_a_registered_schema_that_uses_others(cluster, producer, registry_server):
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "long"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}
    registry_server.add("inner", json.dumps(inner))
    used = [{"name": "Inner", "subject": "inner", "version": 1}]
    registry_server.add("nested-value", json.dumps(outer), references=used)
    producer.send_frame("nested", pa.table({"inner": [{"n": 7}]}), value_format="avro", registry=registry_server.url).result(60)
    [record] = cluster.records("nested")
    assert avro_of(record.value[5:], {**outer, "fields": [{"name": "inner", "type": inner}]}) == {"inner": {"n": 7}}


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"value_format": "avro", "value": "carrier"}, "value=\\['carrier'\\]"),
        ({"value_format": "avro", "value_schema": 7}, "registry="),
        ({"value_format": "avro", "value_schema": SCHEMA, "registry": "http://localhost"}, "value_schema=7"),
        ({"value_format": "json", "value_schema": SCHEMA}, "for value_format='avro'"),
    ],
)
def test_what_cannot_be_is_refused(producer, cluster, how, text):
    with pytest.raises(errors.UsageError, match=text):
        producer.send_frame("t", flights(), **how)
