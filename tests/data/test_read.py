"""KafkaConsumer.read: parts of topics as a stream of Arrow batches, in both faces."""

from __future__ import annotations

import asyncio
import datetime

import pyarrow as pa
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, aio, errors
from kafkacore.testing import EmbeddedCluster
from tests.kit.late import late
from tests.kit.rows import each_row

duckdb = late("duckdb")
pl = late("polars")

MIDDLE = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
MIDDLE_MS = int(MIDDLE.timestamp() * 1000)


@pytest.fixture(scope="module")
def address():
    with EmbeddedCluster() as cluster:
        for topic, partitions in (("numbers", 2), ("empty", 2), ("bytes", 1), ("shrunk", 1)):
            cluster.create_topic(topic, partitions=partitions)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for p in (0, 1):
                for begin in range(0, 1_000, 100):  # batches smaller than the topic
                    numbers = range(begin, begin + 100)
                    values, times = [str(i) for i in numbers], [MIDDLE_MS - 500 + i for i in numbers]
                    producer.send_many("numbers", values, partitions=p, timestamps_ms=times).result(60)
            producer.send_many("bytes", [b"fine", None, b"caf\xe9"], keys=["a", "b", "c"]).result(60)
        yield cluster.bootstrap_servers


@pytest.fixture
def consumer(address):
    with KafkaConsumer(bootstrap_servers=address, max_partition_fetch_bytes=1_500) as made:
        yield made


def numbers_of(batches) -> list[list[int]]:
    table = pa.Table.from_batches(batches)
    found = zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)
    by_partition = [[], []]
    for partition, value in found:
        by_partition[partition].append(int(value))
    return by_partition


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, range(1_000)),
        (10, 20, range(10, 20)),
        (250, 251, range(250, 251)),
        (-5, None, range(995, 1_000)),
        (-5_000, -999, range(1)),
        (MIDDLE, None, range(500, 1_000)),
        (None, MIDDLE, range(500)),
        (990, 2_000, range(990, 1_000)),
        ("beginning", 2, range(2)),
        (998, "end", range(998, 1_000)),
        (MIDDLE + datetime.timedelta(milliseconds=499), None, range(999, 1_000)),
    ],
)
def test_parts_of_a_topic(consumer, start, end, expected):
    assert numbers_of(consumer.read("numbers", start, end)) == [list(expected)] * 2


def test_a_part_without_records_is_a_table_without_rows(consumer):
    late = MIDDLE + datetime.timedelta(milliseconds=500)
    for stream in (
        *(consumer.read("numbers", 500, 400), consumer.read("empty"), consumer.read("numbers", -0, 0)),
        *(consumer.read("numbers", late), consumer.read("numbers", "end"), consumer.read({("numbers", 1): (1_000, None)})),
    ):
        table = pa.table(stream)
        assert table.num_rows == 0
        assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers"]


def test_a_mapping_says_where_each_partition_begins_and_ends(consumer):
    assert numbers_of(consumer.read({("numbers", 1): (5, 7)})) == [[], [5, 6]]
    assert numbers_of(consumer.read({("numbers", 1): (998, None), ("numbers", 0): (0, 1)})) == [[0], [998, 999]]
    assert repr(consumer.read({("numbers", 1): (998, None), ("numbers", 0): (0, 1)})) == "ColumnStream(3 offsets of 2 partitions)"
    with pytest.raises(errors.OffsetOutOfRange, match="offsets 7 to 5 were asked for"):
        consumer.read({("numbers", 1): (7, 5)})
    with pytest.raises(errors.OffsetOutOfRange, match="offsets -1 to 5 were asked for"):
        consumer.read({("numbers", 1): (-1, 5)})
    for wrong in (5, (1,), (1, 2, 3), ("1", 2), (None, 2), (1, "2")):
        with pytest.raises(errors.UsageError, match="a partition is read from an offset to another"):
            consumer.read({("numbers", 1): wrong})
    with pytest.raises(errors.OffsetOutOfRange, match="offsets 5 to 1001 were asked for, and there are 0 to 1000") as found:
        consumer.read({("numbers", 1): (5, 1_001)})
    assert (found.value.topic, found.value.partition) == ("numbers", 1)


def test_libraries_take_it_as_a_table_and_more_than_once(consumer):
    stream = consumer.read(["numbers", "empty"], value="string")
    frame = pl.DataFrame(stream)
    assert frame["value"].cast(pl.Int64).sum() == 999_000
    assert duckdb.sql("select partition, sum(value::int) from stream group by 1 order by 1").fetchall() == [(0, 499_500), (1, 499_500)]
    assert pa.table(stream)["value"].to_pylist() == frame["value"].to_list()


def test_it_goes_on_by_the_batch(consumer):
    sizes = [len(batch) for batch in consumer.read("numbers")]
    assert sum(sizes) == 2_000
    assert max(sizes) <= 200


def test_text_that_is_none_is_an_error_that_names_the_record(consumer):
    assert pa.table(consumer.read("bytes", 0, 2, value="string"))["value"].to_pylist() == ["fine", None]
    assert pa.table(consumer.read("bytes", key="string"))["key"].to_pylist() == ["a", "b", "c"]
    with pytest.raises(errors.SerializationError, match="the value is not UTF-8: byte 3 of 4") as found:
        list(consumer.read("bytes", value="string"))
    assert (found.value.topic, found.value.partition, found.value.offset) == ("bytes", 0, 2)


def test_wrong_arguments_are_refused(consumer):
    with pytest.raises(errors.UsageError, match="has no time zone"):
        consumer.read("numbers", datetime.datetime(2024, 1, 1))
    with pytest.raises(errors.UsageError, match=r"not 1\.5"):
        consumer.read("numbers", 1.5)
    with pytest.raises(errors.UsageError, match="leave out start and end"):
        consumer.read({("numbers", 0): (0, 1)}, 3)
    with pytest.raises(errors.UsageError, match="leave out start and end"):
        consumer.read({("numbers", 0): (0, 1)}, None, 3)
    with pytest.raises(errors.UsageError, match="not True"):
        consumer.read("numbers", True)
    for name in ("key", "value"):
        with pytest.raises(errors.UsageError, match=f"{name} is read as binary or string, not 'utf-8'"):
            consumer.read("numbers", **{name: "utf-8"})


@each_row("reset", ["earliest", "latest", "none"])
def test_records_deleted_meanwhile_are_an_error(address, reset):
    with KafkaProducer(bootstrap_servers=address) as producer, KafkaAdminClient(bootstrap_servers=address) as admin:
        end = int(producer.send_many("shrunk", [b"x"] * 10).result(60).offsets[-1]) + 1
        with KafkaConsumer(bootstrap_servers=address, auto_offset_reset=reset) as consumer:
            stream = consumer.read("shrunk")
            admin.delete_records({("shrunk", 0): end - 5}).check()
            with pytest.raises(errors.OffsetOutOfRange):
                list(stream)
            assert sum(map(len, consumer.read("shrunk"))) == 5
            assert consumer.config.auto_offset_reset == reset


def test_asyncio_reads_the_same(address):
    async def read() -> list[list[int]]:
        async with aio.KafkaConsumer(bootstrap_servers=address) as consumer:
            return numbers_of([batch async for batch in consumer.read("numbers", -5)])

    assert asyncio.run(read()) == [list(range(995, 1_000))] * 2
