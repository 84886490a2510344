"""The sink's checks, messages and producers; no Spark session."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kafkacore import errors, protocol
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafkacore.spark import writer  # noqa: E402
from kafkacore.spark.writer import Task, Written, batch_writer, checked, stream_writer  # noqa: E402
from tests.kit.inside import kept_of, producer_in  # noqa: E402

PAIRS = "column headers must be array<struct<key:string,value:binary>>"
PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
ALL = {
    "key": StringType(),
    "value": BinaryType(),
    "headers": ArrayType(PAIR),
    "topic": StringType(),
    "partition": IntegerType(),
    "timestamp": TimestampType(),
}


def columns(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_all_columns_are_taken_by_a_writer_that_travels() -> None:
    for made in (batch_writer(SERVERS, columns(**ALL), False), stream_writer(SERVERS, columns(**ALL), True)):
        assert pickle.loads(pickle.dumps(made)).options == made.options


@each_row(
    ("types", "options", "says"),
    [
        ({"value": StringType(), "price": IntegerType()}, {"topic": "t"}, "column price would be lost"),
        ({"value": StringType(), "offset": LongType()}, {"topic": "t"}, "column offset is the broker's to give"),
        ({"key": StringType()}, {"topic": "t"}, "no column value"),
        ({"value": IntegerType()}, {"topic": "t"}, "column value must be string or binary, not int: cast it"),
        ({"value": StringType(), "key": NullType()}, {"topic": "t"}, "column key must be string or binary, not void"),
        ({"value": StringType(), "partition": LongType()}, {"topic": "t"}, "column partition must be int, not bigint"),
        ({"value": StringType(), "topic": BinaryType()}, {}, "column topic must be string, not binary"),
        ({"value": StringType(), "timestamp": TimestampNTZType()}, {"topic": "t"}, "must be timestamp, not timestamp_ntz"),
        ({"value": StringType(), "timestamp": LongType()}, {"topic": "t"}, "must be timestamp, not bigint"),
        ({"value": StringType(), "headers": MapType(StringType(), BinaryType())}, {"topic": "t"}, PAIRS),
        ({"value": StringType(), "headers": ArrayType(StringType())}, {"topic": "t"}, PAIRS),
        ({"value": StringType()}, {}, "use the option topic, or a column topic"),
        ({"value": StringType()}, {"topic": "t", "deliveryGuarantee": "exactly_once"}, "exactly_once is not implemented yet"),
        ({"value": StringType()}, {"topic": "t", "includeHeaders": "true"}, "option includeHeaders has no effect in a write"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(types: dict[str, Any], options: dict[str, str], says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        checked({**SERVERS, **options}, columns(**types), False)


def test_a_topic_cannot_be_overwritten_and_no_column_come_twice() -> None:
    with pytest.raises(errors.ConfigError, match="use append"):
        checked({**SERVERS, "topic": "t"}, columns(value=StringType()), True)
    twice = StructType([StructField("value", StringType()), StructField("value", StringType())])
    with pytest.raises(errors.ConfigError, match="two columns value"):
        checked({**SERVERS, "topic": "t"}, twice, False)


def test_the_message_says_what_a_second_phase_needs() -> None:
    message = Written(Task(3, 1, "query", 7), 100, 1_700_000_000_000)
    assert pickle.loads(pickle.dumps(message)) == message
    assert (message.task.partition_id, message.task.attempt, message.task.query_id, message.task.batch_id) == (3, 1, "query", 7)
    assert (message.transactional_id, message.producer_id, message.producer_epoch) == (None, -1, -1)


def test_a_producer_is_kept_for_the_next_task_and_not_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_kept", {})
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}
        made = batch_writer(options, columns(value=StringType(), partition=IntegerType()), False)
        beside = batch_writer({**options, "kafka.client.id": "beside"}, columns(value=StringType()), False)
        good = pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([0], pa.int32())})
        bad = pa.RecordBatch.from_pydict({"value": ["a", "b"], "partition": pa.array([0, 9], pa.int32())})
        assert made.write(iter([good, good])).rows == 2
        [first] = kept_of(writer).values()
        assert made.write(iter([])).rows == 0
        assert [*kept_of(writer).values()] == [first]
        assert beside.write(iter([good])).rows == 1
        [_, other] = kept_of(writer).values()
        with pytest.raises(errors.UsageError, match=r"topic t has 1 partition; asked for 0\.\.9"):
            made.write(iter([good, bad]))
        assert [*kept_of(writer).values()] == [other]
        with pytest.raises(errors.ClosedError):
            first.send("t", "x")
        assert made.write(iter([good])).rows == beside.write(iter([good])).rows == 1
        [second, still] = kept_of(writer).values()
        assert second is not first and still is other
        for each in (second, other):
            each.close()


def test_few_producers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_kept", {})
    options = [checked({**SERVERS, "topic": "t", "kafka.client.id": str(i)}, columns(value=StringType()), False) for i in range(6)]
    producers = [producer_in(writer)(each) for each in options]
    assert producer_in(writer)(options[2]) is producers[2]
    assert len(kept_of(writer)) == writer.KEPT_PRODUCERS
    assert [each.config.client_id for each in kept_of(writer).values()] == ["3", "4", "5", "2"]
    with pytest.raises(errors.ClosedError):
        producers[0].send("t", "x")
    for each in producers:
        each.close(timeout=0)


def test_a_topic_that_is_not_there_is_made_aloud_or_not_at_all(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(writer, "_kept", {})
    row = pa.RecordBatch.from_pydict({"value": ["a"]})
    with EmbeddedCluster(config={"num.partitions": 3}) as cluster:
        answers = iter([protocol.MetadataResponseTopic(error_code=3, name="made", partitions=[])])

        def as_kafka_does(request: Any) -> Any:
            """Its first answer is that there is none; the next ones are the broker's own."""
            names = [each.name for each in request.topics or ()]
            if "made" not in names or (first := next(answers, None)) is None:
                return None
            host, port = cluster.bootstrap_servers.split(":")
            broker = protocol.MetadataResponseBroker(node_id=1, host=host, port=int(port))
            return protocol.MetadataResponse(brokers=[broker], controller_id=1, topics=[first])

        cluster.control("Metadata", as_kafka_does)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.max.block.ms": "10000"}
        for _ in range(2):
            assert batch_writer({**options, "topic": "made"}, columns(value=StringType()), False).write(iter([row, row])).rows == 2
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == 1 and "topic made was not there when it was asked for first, and is now, with 3 partitions" in said[0]

        forbidden = {**options, "topic": "refused", "kafka.allow.auto.create.topics": "false", "kafka.max.block.ms": "200"}
        with pytest.raises(errors.KafkaTimeoutError, match=r"no metadata of topic refused within 200 ms.*UNKNOWN_TOPIC_OR_PARTITION"):
            batch_writer(forbidden, columns(value=StringType()), False).write(iter([row]))
        assert cluster.topics() == {"made": 3}
        for each in kept_of(writer).values():
            each.close()
