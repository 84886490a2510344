"""KafkaConsumer.read_range: stretches of a partition, also those that end with offsets without records."""

from __future__ import annotations

import confluent_kafka
import pytest
from produce_raw import produce

from kafkacore import errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.broker.server import Broker
from kafkacore.consumer import KafkaConsumer
from kafkacore.types import NewTopic


@pytest.fixture(scope="module")
def address():
    with Broker() as running, KafkaAdminClient(bootstrap_servers=running.address) as admin:
        admin.create_topics([NewTopic("plain", 2, 1), NewTopic("transactional", 1, 1)]).check()
        produce(running.address, "plain", 0, [b"%d" % i for i in range(5_000)])
        produce(running.address, "plain", 1, [b"x"])
        producer = confluent_kafka.Producer({"bootstrap.servers": running.address, "transactional.id": "t"})
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            for i in range(3):
                producer.produce("transactional", b"%d" % i)
            producer.flush(10)  # an abort would throw away what has not been sent
            producer.commit_transaction() if commit else producer.abort_transaction()
        yield running.address


@pytest.fixture
def consumer(address):
    with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="none", max_partition_fetch_bytes=2_000) as made:
        yield made


def offsets_of(consumer: KafkaConsumer, partition: tuple[str, int], start: int, end: int) -> list[int]:
    found = [offset for columns in consumer.read_range(partition, start, end, 10) for offset in columns.offsets.tolist()]
    return [offset for offset in found if offset < end]


def test_stretches_of_a_partition_in_any_order(consumer):
    for start, end in ((4_000, 5_000), (0, 10), (10, 4_000), (4_999, 5_000), (7, 7)):
        assert offsets_of(consumer, ("plain", 0), start, end) == list(range(start, end))
    assert offsets_of(consumer, ("plain", 1), 0, 1) == [0]


def test_none_is_the_end_as_of_now(consumer):
    found = [offset for columns in consumer.read_range(("plain", 0), 4_990, None, 10) for offset in columns.offsets.tolist()]
    assert found[-1] == 4_999 and found[-10:] == list(range(4_990, 5_000))
    assert list(consumer.read_range(("plain", 0), 5_000, None, 10)) == []
    with pytest.raises(errors.UsageError, match="not from 5001 to 5000"):
        list(consumer.read_range(("plain", 0), 5_001, None, 10))
    with pytest.raises(errors.UnknownTopicOrPartition, match="nosuch"):
        list(consumer.read_range(("nosuch", 0), 0, None, 30))


def test_nothing_is_fetched_behind_the_end(consumer):
    list(consumer.read_range(("plain", 0), 0, 10, 10))
    asked = consumer.metrics()["fetch_total"]
    consumer.end_offsets([("plain", 0)])
    assert consumer.metrics()["fetch_total"] == asked


def test_reading_goes_on_where_a_range_ended_or_elsewhere(consumer):
    for read in (lambda: consumer.read_range(("plain", 0), 0, 10, 10), lambda: consumer.read({("plain", 0): (0, 10)})):
        for at in (None, 2_990, 0):
            list(read())
            assert not consumer.paused()
            if at is not None:
                consumer.seek(("plain", 0), at)
            at = consumer.position(("plain", 0))
            assert at >= 10 or at == 0
            assert next(iter(consumer)).offset == at


def test_reading_goes_on_behind_a_range_that_was_left(consumer):
    for _ in consumer.read_range(("plain", 0), 0, 3_000, 10):
        break
    consumer.seek(("plain", 0), 2_990)
    assert next(iter(consumer)).offset == 2_990
    consumer.seek(("plain", 0), 3_000)
    assert next(iter(consumer)).offset == 3_000


def test_markers_and_aborted_records_at_the_end_do_not_keep_it_waiting(address, consumer):
    assert offsets_of(consumer, ("transactional", 0), 0, 8) == [0, 1, 2, 4, 5, 6]
    with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="none", isolation_level="read_committed") as committed:
        assert offsets_of(committed, ("transactional", 0), 0, 8) == [0, 1, 2]
        assert offsets_of(committed, ("transactional", 0), 4, 8) == []


def test_what_cannot_be_read_is_an_error(consumer):
    with pytest.raises(errors.UsageError, match="not from 5 to 4"):
        list(consumer.read_range(("plain", 0), 5, 4))
    with pytest.raises(errors.KafkaError) as error:
        list(consumer.read_range(("plain", 0), 9_000, 9_001, 10))
    assert "plain" in str(error.value) and "9000" in str(error.value)
    with pytest.raises(errors.KafkaTimeoutError, match=r"nothing came for 0\.05 s") as late:
        list(consumer.read_range(("plain", 1), 0, 2, 0.05))
    assert late.value.offset == 1


def test_timestamp_types_of_columns(consumer):
    [columns] = consumer.read_range(("plain", 1), 0, 1, 10)
    assert columns.timestamp_types.tolist() == [0]
