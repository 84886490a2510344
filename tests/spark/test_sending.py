"""Arrow batches to records: what of each row arrives where, as confluent-kafka reads it; what is said of rows that cannot be records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafkacore import KafkaProducer, errors
from kafkacore.clock import ManualClock
from kafkacore.spark.sending import RowSender
from kafkacore.testing import EmbeddedCluster
from tests.kit.plain_records import Plain, confluent_read
from tests.kit.rows import each_row

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
US = pa.timestamp("us", "UTC")


def send(producer: KafkaProducer, topic: str | None, *batches: dict[str, Any]) -> int:
    sender = RowSender(producer, topic, clock=ManualClock(wall_ms=77_000))
    for each in batches:
        sender.send(pa.RecordBatch.from_pydict(each))
    return sender.finish()


def test_every_column_arrives_and_null_means_what_it_means_for_kafka(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("all", partitions=2)
    pairs = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    count = send(
        producer,
        None,
        {
            "topic": ["all"] * 5,
            "partition": pa.array([1, 0, 1, 0, 1], pa.int32()),
            "key": [b"k", None, b"", b"l", None],
            "value": ["v", "", None, "w", "x"],
            "headers": pa.array([pairs, None, [], [{"key": "é", "value": b""}], None], HEADERS),
            "timestamp": pa.array([0, 6_999, None, 8_000, 9_000], US),
        },
    )
    assert count == 5
    assert confluent_read(cluster.bootstrap_servers, "all", 3, 1) == [
        Plain(b"k", b"v", (("h", b"1"), ("h", None)), 0),
        Plain(b"", None, (), 77_000),
        Plain(None, b"x", (), 9),
    ]
    assert confluent_read(cluster.bootstrap_servers, "all", 2, 0) == [Plain(None, b"", (), 6), Plain(b"l", b"w", (("é", b""),), 8)]


def test_rows_without_a_partition_go_where_their_key_says(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("mixed", partitions=4)
    keys = [b"%d" % i for i in range(40)]
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as plain:
        home = {key: plain.send("mixed", None, key=key).result().partition for key in keys}
    before = [cluster.high_watermark("mixed", i) for i in range(4)]
    given = [None if i % 2 else 3 - home[key] for i, key in enumerate(keys)]
    send(producer, "mixed", {"key": keys, "value": keys, "partition": pa.array(given, pa.int32())})
    send(producer, "mixed", {"key": keys, "value": keys, "partition": pa.nulls(40, pa.int32())})
    for partition in range(4):
        end = cluster.high_watermark("mixed", partition)
        records = confluent_read(cluster.bootstrap_servers, "mixed", end, partition)[before[partition] :]
        expected = [key for i, key in enumerate(keys) if (home[key] if given[i] is None else given[i]) == partition]
        expected += [key for key in keys if home[key] == partition]
        assert [each.value for each in records] == expected


def test_topics_by_row_keep_their_order(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    names = [f"many-{i}" for i in range(7)]
    for name in names:
        cluster.create_topic(name)
    rows = [(names[i * i % 7], b"%d" % i) for i in range(300)]
    send(producer, None, {"topic": [name for name, _ in rows], "value": [value for _, value in rows], "key": [value for _, value in rows]})
    for name in names:
        wanted = [Plain(value, value) for row, value in rows if row == name]
        got = confluent_read(cluster.bootstrap_servers, name, len(wanted))
        assert [(each.key, each.value) for each in got] == [(each.key, each.value) for each in wanted]


def test_the_option_goes_before_the_column(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("option")
    assert send(producer, "option", {"topic": ["elsewhere", None], "value": ["a", "b"]}) == 2
    assert [each.value for each in confluent_read(cluster.bootstrap_servers, "option", 2)] == [b"a", b"b"]


@each_row("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()])
def test_every_layout_of_text_and_slices_of_it(cluster: EmbeddedCluster, producer: KafkaProducer, kind: pa.DataType) -> None:
    topic = f"layout-{kind}"
    cluster.create_topic(topic)
    texts = pa.array(["a", None, "ccc", "a longer one than a view holds inline", ""], pa.string()).cast(kind)
    sender = RowSender(producer, topic)
    sender.send(pa.RecordBatch.from_arrays([texts, texts], ["key", "value"]).slice(1, 4))
    assert sender.finish() == 4
    got = confluent_read(cluster.bootstrap_servers, topic, 4)
    assert [each.value for each in got] == [each.key for each in got] == [None, b"ccc", b"a longer one than a view holds inline", b""]


def test_headers_of_a_slice(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("sliced")
    batch = pa.RecordBatch.from_pydict(
        {"value": ["a", "b", "c", "d"], "headers": pa.array([[{"key": c, "value": b"x"}] * n for n, c in enumerate("abcd")], HEADERS)}
    )
    sender = RowSender(producer, "sliced")
    sender.send(batch.slice(2, 2))
    sender.finish()
    got = confluent_read(cluster.bootstrap_servers, "sliced", 2)
    assert [each.headers for each in got] == [(("c", b"x"),) * 2, (("d", b"x"),) * 3]


def test_columns_of_nulls_alone_are_as_if_they_were_not_there(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("nulls")
    kinds = {"key": pa.binary(), "partition": pa.int32(), "timestamp": US, "headers": HEADERS}
    nulls = {name: pa.nulls(2, kind) for name, kind in kinds.items()}
    assert send(producer, "nulls", {"value": ["a", "b"], **nulls}) == 2
    assert [(each.key, each.value, each.headers) for each in confluent_read(cluster.bootstrap_servers, "nulls", 2)] == [
        (None, b"a", ()), (None, b"b", ()),
    ]  # fmt: skip


def test_an_empty_batch_asks_for_no_topic(producer: KafkaProducer) -> None:
    assert send(producer, "never-made", {"value": pa.array([], pa.binary())}) == 0


@each_row(
    ("topic", "columns", "says"),
    lambda: [
        (None, {"topic": ["refusing", None], "value": ["a", "b"]}, "a row has no topic"),
        (None, {"value": ["a"]}, "neither an option topic nor a column topic"),
        ("refusing", {"key": ["a"]}, "no column value"),
        ("refusing", {"value": ["a", "b"], "partition": pa.array([None, 99], pa.int32())}, "topic refusing has 2 partitions; asked for 99"),
        ("refusing", {"value": ["a", "b"], "partition": pa.array([0, -1], pa.int32())}, r"has 2 partitions; asked for -1\.\.0"),
        ("refusing", {"value": ["a", "b"], "partition": pa.array([None, -1], pa.int32())}, r"has 2 partitions; asked for -1$"),
        ("refusing", {"value": ["a"], "timestamp": pa.array([-1], US)}, "column timestamp: -0.000001 s since 1970 is negative"),
        ("refusing", {"value": ["a"], "headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS)}, "a header has no key"),
    ],
)
def test_what_cannot_be_a_record_is_refused_at_once(
    cluster: EmbeddedCluster, producer: KafkaProducer, topic: str | None, columns: dict[str, Any], says: str
) -> None:
    if "refusing" not in cluster.topics():
        cluster.create_topic("refusing", partitions=2)
    with pytest.raises(errors.UsageError, match=says) as caught:
        send(producer, topic, columns)
    assert caught.value.topic == (None if "partition" in columns else topic)
    assert cluster.high_watermark("refusing", 0) == cluster.high_watermark("refusing", 1) == 0


def test_of_two_topics_the_one_that_takes_its_rows_has_them_all(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    cluster.create_topic("takes-some", configs={"max.message.bytes": "500"})
    cluster.create_topic("takes-all")
    with pytest.raises(errors.RecordTooLarge) as caught:
        send(producer, None, {"topic": ["takes-some", "takes-all"] * 2, "value": [b"x" * 600, b"x" * 600, b"fits", b"fits"]})
    assert caught.value.topic == "takes-some"
    assert (cluster.high_watermark("takes-some", 0), cluster.high_watermark("takes-all", 0)) == (1, 2)


def test_two_megabytes_go_where_they_may_and_are_refused_where_not(cluster: EmbeddedCluster) -> None:
    big = b"x" * (2 << 20)
    cluster.create_topic("large", configs={"max.message.bytes": str(3 << 20)})
    cluster.create_topic("small")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=3 << 20) as producer:
        send(producer, "large", {"value": ["before", big, "after"]})
        assert [len(each.value or b"") for each in confluent_read(cluster.bootstrap_servers, "large", 3)] == [6, 2 << 20, 5]
        with pytest.raises(errors.RecordTooLarge, match="small"):
            send(producer, "small", {"value": ["before", big, "after"]})


def test_the_first_record_that_fails_is_the_error_and_no_memory_is_kept(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("narrow", configs={"max.message.bytes": "500"})
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, batch_size=400) as producer:
        sender = RowSender(producer, "narrow")
        for _ in range(20):
            sender.send(pa.RecordBatch.from_pydict({"value": [b"x" * 100] * 20}))
            producer.flush()
        assert len(sender._open) <= 1  # what is known of is not kept
        sender.send(pa.RecordBatch.from_pydict({"value": [b"fits", b"y" * 600, b"fits", b"z" * 700]}))
        with pytest.raises(errors.RecordTooLarge) as caught:
            sender.finish()
    assert (caught.value.topic, caught.value.partition) == ("narrow", 0)
    assert caught.value.__notes__ == ["2 of the 4 records sent with this one to narrow failed"]
