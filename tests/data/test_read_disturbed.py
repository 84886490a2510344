"""KafkaConsumer.read while the topic changes, and of topics that end without records: every record once, or an error that says why."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafkacore.consumer import topics
from kafkacore.testing import EmbeddedCluster
from tests.kit.late import late

pl = late("polars")

COUNT = 400


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster):
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(cluster, request):
    name = request.node.name.translate(str.maketrans("[]", "..", " '(),"))
    cluster.create_topic(name, partitions=1, replication_factor=2)
    fill_numbers(cluster, name)
    return name


def fill_numbers(cluster, topic, first=0, count=COUNT):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for at in range(first, first + count, 50):
            producer.send_many(topic, [f'{{"n": {i}}}' for i in range(at, at + 50)]).result(60)


@pytest.fixture
def consumer(cluster):
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, max_partition_fetch_bytes=1_000, metadata_max_age_ms=1_000) as made:
        yield made


@pytest.mark.parametrize("endless", [False, True])
def test_the_leader_changes_on_the_way(cluster, consumer, admin, topic, endless):
    seen = []
    for batch in consumer.read(topic, json="n INT", until_end=not endless, timeout=90):
        seen += batch["n"].to_pylist()
        if len(seen) < COUNT:
            cluster.move_leader(topic, 0, 1 + len(seen) // 50 % 2)
        elif endless:
            break
    assert seen == list(range(COUNT))


@pytest.mark.parametrize("endless", [False, True])
def test_the_topic_is_deleted_on_the_way(consumer, admin, topic, endless, monkeypatch):
    monkeypatch.setattr(topics, "DELETED_MS", 300)
    stream = iter(consumer.read(topic, until_end=not endless, timeout=90))
    assert len(next(stream)) > 0
    admin.delete_topics([topic]).check()
    with pytest.raises(errors.UnknownTopicOrPartition) as found:
        for _ in stream:
            pass
    assert found.value.topic == topic


@pytest.mark.parametrize("endless", [False, True])
def test_the_topic_is_created_again_on_the_way(cluster, consumer, admin, topic, endless):
    stream = iter(consumer.read(topic, json="n INT", until_end=not endless, timeout=90))
    seen = next(stream)["n"].to_pylist()
    admin.delete_topics([topic]).check()
    cluster.create_topic(topic, partitions=1, replication_factor=2)
    fill_numbers(cluster, topic, first=10_000)
    with pytest.raises(errors.KafkaError):
        for batch in stream:
            seen += batch["n"].to_pylist()
    assert max(seen) < COUNT  # nothing of the new one is taken for the old one's


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_the_last_offset_is_a_marker(cluster, topic, isolation, committed):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{topic}-id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_many(topic, ['{"n": -1}'] * 5)
        producer.flush()
        producer.commit_transaction() if committed else producer.abort_transaction()
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level=isolation) as consumer:
        visible = committed or isolation == "read_uncommitted"
        table = pa.table(consumer.read(topic, json="n INT", timeout=90))
        assert table.num_rows == COUNT + 5 * visible
        assert pl.DataFrame(consumer.read(topic, -1, timeout=90)).height == 0  # the marker alone
        assert consumer.read(topic, COUNT).stretches == {(topic, 0): (COUNT, COUNT + 6)}


def test_a_loop_that_is_left_and_one_that_fails_disturb_nothing(consumer, topic):
    stream = consumer.read(topic, json="n INT", timeout=90)
    for batch in stream:
        assert batch["n"][0].as_py() == 0
        break
    with pytest.raises(ZeroDivisionError):
        for _ in stream:
            raise ZeroDivisionError
    assert pa.table(stream)["n"].to_pylist() == list(range(COUNT))
    consumer.assign([(topic, 0)])
    consumer.seek((topic, 0), 7)
    consumer.resume((topic, 0))
    assert consumer.poll_batch(10)[0].offsets[0] == 7


def test_times_that_no_calendar_has(cluster, consumer):
    cluster.create_topic("times", partitions=1, configs={"message.timestamp.after.max.ms": 2**62, "retention.ms": -1})
    times = [0, 253_402_300_799_999, 253_402_300_800_000, 2**53]  # the year 9999 ends, and others
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert producer.send_many("times", ["x"] * 4, timestamps_ms=times).result(60).errors == {}
    assert pa.table(consumer.read("times"))["timestamp"].cast(pa.int64()).to_pylist() == times
    assert pl.DataFrame(consumer.read("times"))["timestamp"].dt.timestamp("ms").to_list() == times
