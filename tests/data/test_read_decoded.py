"""KafkaConsumer.read with decoded values: the fields as columns, in every format, with good values and bad ones, to the end and on."""

from __future__ import annotations

import asyncio
import base64
import datetime
import io
import json
from types import SimpleNamespace

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

from kafkacore import KafkaConsumer, KafkaProducer, aio, errors
from kafkacore.consumer.stretches import ColumnStream, Layout
from kafkacore.decode import registry
from tests.kit import loops
from tests.kit.clusters import embedded
from tests.kit.late import late
from tests.kit.rows import each_row

duckdb = late("duckdb")
pl = late("polars")

FLIGHTS = [{"carrier": "UA", "delay": 5, "on": {"day": 1}}, {"carrier": "é" * 20, "delay": -3, "on": {"day": 2}}]
RECORD = ["_key", "_topic", "_partition", "_offset", "_timestamp"]


cluster = embedded(name="cluster")


@pytest.fixture(scope="module")
def producer(cluster):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as made:
        yield made


@pytest.fixture
def consumer(cluster):
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(cluster, request):
    name = request.node.name.translate(str.maketrans("[]", "..", " '(),"))[:200]
    cluster.create_topic(name, partitions=1)
    return name


def sent_to(producer, topic, values, **more):
    assert producer.send_many(topic, values, **more).result(60).errors == {}
    return topic


def as_json(values):
    return [None if each is None else json.dumps(each).encode() for each in values]


WAYS = {
    "words": "carrier STRING, delay BIGINT, `on` STRUCT<day: INT>",
    "types": {"carrier": str, "delay": "bigint", "on": pa.struct([("day", pa.int32())])},
    "arrow": pa.schema({"carrier": pa.large_string(), "delay": pa.int64(), "on": pa.struct([("day", pa.int32())])}),
    "polars": lambda: pl.Schema({"carrier": pl.String, "delay": pl.Int64, "on": pl.Struct({"day": pl.Int32})}),
    "json schema": {
        "properties": {
            "carrier": {"type": "string"},
            "delay": {"type": "integer"},
            "on": {"type": "object", "properties": {"day": {"type": "integer"}}},
        }
    },
    "infer": "infer",
}


@pytest.fixture
def flights(producer, topic):
    return sent_to(producer, topic, as_json([*FLIGHTS, None]), keys=["a", None, "c"], timestamps_ms=1_700_000_000_000)


@each_row("way", WAYS.values(), ids=WAYS)
def test_json_fields_are_columns(consumer, flights, topic, way):
    stream = consumer.read(topic, json=way() if callable(way) else way, key="string")
    table = pa.table(stream)
    assert table.schema.equals(stream.schema())
    assert table.column_names == ["carrier", "delay", "on", *RECORD]
    assert table.schema.field("carrier").type == pa.string() and table.schema.field("delay").type == pa.int64()
    rows = table.to_pylist()
    assert [(row["carrier"], row["delay"], row["on"]) for row in rows] == [
        *((each["carrier"], each["delay"], each["on"]) for each in FLIGHTS),
        (None, None, None),
    ]
    assert [row["_key"] for row in rows] == ["a", None, "c"]
    assert {(row["_topic"], row["_partition"], row["_timestamp"].timestamp()) for row in rows} == {(topic, 0, 1_700_000_000.0)}
    assert [row["_offset"] for row in rows] == [0, 1, 2]


def test_an_empty_read_has_the_columns(consumer, topic):
    assert pa.table(consumer.read(topic, json="a INT")).schema.names == ["a", *RECORD]
    assert pa.table(consumer.read(topic, json="infer")).schema.names == RECORD


BAD = [b'{"a":1,"b":"x"}', b'{"a":"no","b":"y"}', None, b"{", b"\xff", b'{"a":4}{"a":5}', b'{"a":6}']


def test_a_bad_value_is_an_error_that_names_the_record(consumer, producer, topic):
    sent_to(producer, topic, BAD)
    with pytest.raises(errors.SerializationError, match=r"the value is not what json= says: .*field a") as found:
        list(consumer.read(topic, json="a INT, b STRING"))
    assert (found.value.topic, found.value.partition, found.value.offset) == (topic, 0, 1)


def test_a_bad_value_is_a_row_of_nulls_beside_it(consumer, producer, topic):
    sent_to(producer, topic, BAD)
    table = pa.table(consumer.read(topic, json="a INT, b STRING", on_error="null"))
    assert table["a"].to_pylist() == [1, None, None, None, None, 4, 6]
    assert table["b"].to_pylist() == ["x", "y", None, None, None, None, None]
    assert table["_corrupt"].to_pylist() == [None, BAD[1], None, b"{", b"\xff", BAD[5], None]
    assert table["_corrupt"].type == pa.binary()


def test_bad_values_are_left_out_and_counted(consumer, producer, topic):
    sent_to(producer, topic, BAD)
    stream = consumer.read(topic, json="a INT, b STRING", on_error="skip")
    assert pa.table(stream)["_offset"].to_pylist() == [0, 2, 6]
    assert stream.skipped == 4


def test_a_later_value_that_does_not_fit_what_was_inferred(consumer, producer, topic):
    sent_to(producer, topic, as_json([{"a": 1}] * 1_000))
    sent_to(producer, topic, as_json([{"a": 2, "new": 3}, {"a": 1.5}]))
    with pytest.raises(errors.SerializationError, match=r"were inferred \(a schema names others\): .*field a") as found:
        list(consumer.read(topic, json="infer"))
    assert found.value.offset == 1_001
    assert pa.table(consumer.read(topic, 0, 1_001, json="infer")).column_names == ["a", *RECORD]


def test_headers_on_wish(consumer, producer, topic):
    sent_to(producer, topic, [b'{"a":1}'], headers=[("h", b"v")])
    assert pa.table(consumer.read(topic, json="a INT", headers=True))["_headers"].to_pylist() == [[{"key": "h", "value": b"v"}]]
    assert "headers" not in pa.table(consumer.read(topic, headers=False)).column_names


@pytest.fixture
def one_bad(producer, topic):
    return sent_to(producer, topic, [b'{"a":1}', b"no", b'{"a":2}'])


@each_row(
    ("chosen", "columns"),
    [(True, RECORD), (False, []), ([], []), ("_offset", ["_offset"]), (("_timestamp", "_topic"), ["_topic", "_timestamp"])],
)
def test_columns_of_the_record_on_wish(consumer, one_bad, topic, chosen, columns):
    for on_error, rows, more in (("skip", [1, 2], []), ("null", [1, None, 2], ["_corrupt"])):
        stream = consumer.read(topic, json="a INT", on_error=on_error, record_columns=chosen)
        table = pa.table(stream)
        assert table.column_names == stream.schema().names == ["a", *columns, *more]
        assert table["a"].to_pylist() == rows
        assert "_offset" not in columns or table["_offset"].to_pylist() == ([0, 2] if on_error == "skip" else [0, 1, 2])
    with_headers = consumer.read(topic, json="a INT", on_error="skip", headers=True, record_columns=chosen)
    assert pa.table(with_headers).column_names == ["a", *columns, "_headers"]


def test_a_field_may_have_the_name_of_a_column_that_is_left_out(consumer, producer, topic):
    sent_to(producer, topic, [b'{"_offset":7}'])
    table = pa.table(consumer.read(topic, json="_offset BIGINT", record_columns=["_topic"]))
    assert table.to_pylist() == [{"_offset": 7, "_topic": topic}]


AVRO = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}]}


def avro_bytes(value, prefix=b""):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, value)
    return prefix + out.getvalue()


def test_avro_with_its_schema(consumer, producer, topic):
    rows = [{"carrier": "UA", "delay": 1}, {"carrier": "AA", "delay": None}]
    sent_to(producer, topic, [avro_bytes(each) for each in rows])
    for schema in (AVRO, json.dumps(AVRO)):
        assert pa.table(consumer.read(topic, avro=schema)).select(["carrier", "delay"]).to_pylist() == rows
    sent_to(producer, topic, [b"\x05"])
    with pytest.raises(errors.SerializationError, match="not what avro= says") as found:
        list(consumer.read(topic, avro=AVRO))
    assert found.value.offset == 2


def test_avro_and_json_by_a_registry(consumer, producer, cluster, topic, registry_server, monkeypatch):
    monkeypatch.setattr(registry, "BACKOFF_S", 0)
    number = registry_server.add(f"{topic}-value", json.dumps(AVRO))
    prefix = b"\0" + number.to_bytes(4, "big")
    sent_to(producer, topic, [avro_bytes({"carrier": "UA", "delay": 7}, prefix)])
    url = registry_server.url
    [row] = pa.table(consumer.read(topic, avro=True, registry=url)).to_pylist()
    assert (row["carrier"], row["delay"], row["_offset"]) == ("UA", 7, 0)
    some = consumer.read(topic, avro=pa.schema({"delay": pa.int64()}), registry=url)
    assert pa.table(some).column_names == ["delay", *RECORD]
    sent_to(producer, topic, [avro_bytes({"carrier": "UA", "delay": 7}, b"\0\0\0\0\x63")])
    with pytest.raises(errors.ConfigError, match=r"has no schema 99; with on_error='null' such values") as found:
        list(consumer.read({(topic, 0): (1, 2)}, avro=True, registry=url))
    assert (found.value.topic, found.value.partition, found.value.offset) == (topic, 0, 1)
    assert pa.table(consumer.read(topic, avro=True, registry=url, on_error="null"))["_corrupt"].null_count == 1
    other = f"{topic}-json"
    cluster.create_topic(other, partitions=1)
    registry_server.add(f"{other}-value", '{"properties": {"n": {"type": "integer"}}}', "JSON")
    sent_to(producer, other, [b"\0\0\0\0\x01" + b'{"n": 3}'])
    assert pa.table(consumer.read(other, json=True, registry=url))["n"].to_pylist() == [3]
    with pytest.raises(errors.ConfigError, match=f"no subject '{topic}x-value': name the columns by avro=pyarrow.schema"):
        cluster.create_topic(f"{topic}x", partitions=1)
        consumer.read(f"{topic}x", avro=True, registry=url)


def test_protobuf_by_a_registry_and_topics_of_different_columns(consumer, producer, cluster, topic, registry_server):
    other, same = f"{topic}-other", f"{topic}-same"
    for name, message in ((topic, timestamp_pb2), (same, timestamp_pb2), (other, wrappers_pb2)):
        if name != topic:
            cluster.create_topic(name, partitions=1)
        number = registry_server.add(f"{name}-value", base64.b64encode(message.DESCRIPTOR.serialized_pb).decode(), "PROTOBUF")
        sent_to(producer, name, [b"\0" + number.to_bytes(4, "big") + b"\0" + timestamp_pb2.Timestamp(seconds=5).SerializeToString()])
    url = registry_server.url
    assert pa.table(consumer.read([topic, same], protobuf=True, registry=url))["seconds"].to_pylist() == [5, 5]
    with pytest.raises(errors.ConfigError, match=f"the subjects {topic}-value and {other}-value of the registry have different columns"):
        consumer.read([topic, same, other], protobuf=True, registry=url)


def test_protobuf_of_a_descriptor_set(consumer, producer, topic, tmp_path):
    sent_to(producer, topic, [timestamp_pb2.Timestamp(seconds=5).SerializeToString()])
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    (tmp_path / "time.desc").write_bytes(files.SerializeToString())
    table = pa.table(consumer.read(topic, protobuf=(tmp_path / "time.desc", "google.protobuf.Timestamp")))
    assert table["seconds"].to_pylist() == [5]
    with pytest.raises(errors.ConfigError, match=r"^protobuf: there is no message Time in .*; there are google.protobuf.Timestamp"):
        consumer.read(topic, protobuf=(tmp_path / "time.desc", "Time"))


def test_protobuf_of_a_generated_class(consumer, producer, topic):
    sent_to(producer, topic, [timestamp_pb2.Timestamp(seconds=5, nanos=6).SerializeToString(), b"\xff"])
    table = pa.table(consumer.read(topic, protobuf=timestamp_pb2.Timestamp, on_error="null"))
    assert table.select(["seconds", "nanos"]).to_pylist()[0] == {"seconds": 5, "nanos": 6}
    assert table["_corrupt"].to_pylist() == [None, b"\xff"]
    with pytest.raises(errors.ConfigError, match="contains itself"):
        consumer.read(topic, protobuf=struct_pb2.Struct)


@each_row(
    ("arguments", "says"),
    [
        ({"json": "a INT", "avro": "{}"}, "one format, not json and avro"),
        ({"json": "a INT", "value": "string"}, "not both"),
        ({"json": "a INT", "on_error": "ignore"}, "on_error is one of raise, null, skip"),
        ({"on_error": "skip"}, "about values that are decoded"),
        ({"registry": "http://localhost:1"}, "say the format"),
        ({"json": "a INT", "record_columns": ["offset"]}, "some of _key, _topic, _partition, _offset, _timestamp, not 'offset'"),
        ({"record_columns": False}, "record_columns is about values that are decoded"),
        ({"avro": True}, "takes the schema from a registry"),
        ({"avro": pa.schema({"a": pa.int64()})}, "avro is written with a schema: give that, or the registry"),
        ({"avro": AVRO, "registry": "http://localhost:1"}, "the registry has the schemas"),
        ({"json": "a INTEGRAL"}, "a type expected"),
        ({"json": 5}, "json is like 'a INT, b STRING'"),
        ({"json": {"a": pa.duration("s")}}, r"column a is duration\[s\], and JSON has nothing that could be read as that"),
        ({"avro": pa.schema({"t": pa.timestamp("ms")}), "registry": "http://127.0.0.1:1"}, r"make it timestamp\[us\]"),
        ({"json": "_offset BIGINT"}, "field _offset, which here is a column of the record"),
        ({"json": pa.schema([("a", pa.int32()), ("a", pa.int32())])}, "column a is there twice"),
        ({"avro": "{"}, "the schema of avro= is no Avro schema"),
        ({"protobuf": 3}, "protobuf is a generated class"),
        ({"protobuf": ("a", "b", "c")}, "protobuf is a generated class"),
        ({"protobuf": ("/nowhere", "b")}, "^protobuf: the descriptor set /nowhere cannot be read"),
        ({"json": True, "registry": "localhost:8081"}, "^registry must be like https://host:8081"),
        ({"json": True, "registry": 8081}, "registry is a URL"),
        ({"until_end": False, "end": 5}, "has no end"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_once(consumer, cluster, arguments, says):
    if "refused" not in consumer.list_topics():
        cluster.create_topic("refused", partitions=1)
    with pytest.raises((errors.UsageError, errors.ConfigError), match=says):
        consumer.read("refused", **arguments)


# ---- without end ---------------------------------------------------------------------------------------------------------------------


def test_an_endless_stream_goes_on_with_new_records(consumer, producer, cluster, topic):
    two = f"{topic}-two"
    cluster.create_topic(two, partitions=2)
    for p in (0, 1):
        sent_to(producer, two, as_json([{"n": 10 * p + i} for i in range(3)]), partitions=p)
    seen: list[tuple[int, int]] = []
    for batch in consumer.read(two, -2, json="infer", until_end=False):
        seen += zip(batch["_partition"].to_pylist(), batch["n"].to_pylist(), strict=True)
        if len(seen) == 4:
            sent_to(producer, two, as_json([{"n": 99}]), partitions=1)
        if (1, 99) in seen:
            break
    assert sorted(seen) == [(0, 1), (0, 2), (1, 11), (1, 12), (1, 99)]
    assert numbers(consumer, two) == [0, 1, 2, 10, 11, 12, 99]  # the consumer is as before


def numbers(consumer, topic):
    return [n for batch in consumer.read(topic, json="n BIGINT") for n in batch["n"].to_pylist()]


def test_an_endless_stream_from_the_end_sees_only_what_comes(consumer, producer, topic):
    sent_to(producer, topic, [b"old"] * 3)
    stream = consumer.read(topic, "end", value="string", until_end=False)
    assert repr(stream) == "ColumnStream(1 partition, without end)"
    sent_to(producer, topic, [b"new"])
    assert next(iter(stream))["value"].to_pylist() == ["new"]


def test_an_endless_stream_ends_when_the_consumer_is_closed(cluster, producer, topic):
    sent_to(producer, topic, [b"x"])
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        for _ in consumer.read(topic, until_end=False):
            consumer.close()


def test_an_endless_stream_from_a_time_and_woken(cluster, producer, consumer, topic):
    sent_to(producer, topic, [b"a", b"b"], timestamps_ms=[1_000, 2_000])
    since = datetime.datetime.fromtimestamp(2, datetime.UTC)
    stream = iter(consumer.read(topic, since, until_end=False))
    assert next(stream)["value"].to_pylist() == [b"b"]
    consumer.wakeup()
    with pytest.raises(errors.WakeupError):
        next(stream)


@pytest.mark.parametrize("way", ["n INT", "infer"])
def test_in_asyncio_without_end(cluster, producer, topic, way):
    async def run():
        seen = []
        async with aio.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            async for batch in consumer.read(topic, json=way, until_end=False):
                seen += batch["n"].to_pylist()
                if len(seen) == 3:
                    break
                sent_to(producer, topic, [b'{"n": 2}'])
            assert [len(batch) async for batch in consumer.read(topic, json="n INT", on_error="skip")] == [3]
        return seen

    sent_to(producer, topic, [None, b'{"n": 1}'])
    assert loops.run(run) == [None, 1, 2]


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_in_asyncio_a_waiting_stream_ends(cluster, producer, topic, how):
    async def run() -> str:
        consumer = aio.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in consumer.read(topic, until_end=False):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        if how == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = [len(batch) async for batch in consumer.read(topic)]
            assert left == [1]
            await consumer.close()
        else:
            await consumer.close()
            await task
        return "ended"

    sent_to(producer, topic, [b"x"])
    assert loops.run(run) == "ended"


def test_in_asyncio_one_task_reads(cluster, producer, topic):
    async def run() -> list[int]:
        async with aio.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            begun = asyncio.Event()

            async def follow() -> list[int]:
                seen: list[int] = []
                async for batch in consumer.read(topic, json="n INT", until_end=False):
                    seen += batch["n"].to_pylist()
                    begun.set()
                    if len(seen) == 2:
                        break
                return seen

            task = asyncio.create_task(follow())
            await begun.wait()
            for read in (consumer.read(topic), consumer.read_range((topic, 0), 0, 1)):
                with pytest.raises(errors.IllegalStateError, match="another task is reading"):
                    await anext(read)
            sent_to(producer, topic, [b'{"n": 2}'])
            return await task

    sent_to(producer, topic, [b'{"n": 1}'])
    assert loops.run(run) == [1, 2]


class Fetched:
    """Columns as they are fetched: offsets and values."""

    def __init__(self, first, values):
        self.offsets, self.values = range(first, first + len(values)), values

    def __len__(self):
        return len(self.values)


@pytest.mark.parametrize(
    ("chunks", "endless", "sample", "left"),
    [
        ([(b"a", None, b"b"), (b"c", b"d"), (b"e",)], False, [b"a", b"b", b"c"], 1),
        ([(b"a",), (None, b"b")], False, [b"a", b"b"], 0),
        ([(None,)], False, [], 0),
        ([(None,), (b"a", b"b"), (b"c",)], True, [b"a", b"b"], 1),
        ([(None,)], True, None, 0),
    ],
)
def test_how_many_values_the_columns_are_inferred_from(monkeypatch, chunks, endless, sample, left):
    monkeypatch.setattr("kafkacore.decode.infer.SAMPLE", 3)
    seen = []
    decoding = SimpleNamespace(ready="known", infer=seen.append)
    fetched, at = [], 0
    for values in chunks:
        behind = (*values, b"behind the end")
        fetched.append((Fetched(at, behind), at + len(values)))
        at += len(values)
    source = iter(fetched)
    stream = ColumnStream(None, {}, Layout("binary", "binary", False), None, decoding=decoding, endless=endless)
    assert stream.infer(source) == "known"
    assert seen == ([] if sample is None else [sample])
    assert len(list(source)) == left
