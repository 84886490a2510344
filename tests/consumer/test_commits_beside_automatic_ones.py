"""The application commits what it was just handed, and an automatic commit comes due before the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore.consumer import KafkaConsumer
from kafkacore.producer import KafkaProducer
from kafkacore.testing import Delay, EmbeddedCluster
from kafkacore.types import TopicPartition

pytestmark = pytest.mark.usefixtures("client_face")

PARTITIONS, RECORDS = 1, 15
WAYS: dict[str, Callable[[KafkaConsumer], object]] = {
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async(),
}


@pytest.fixture
def reader(shared: EmbeddedCluster, topic: str) -> Iterator[KafkaConsumer]:
    settings = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 10}
    with KafkaConsumer(topic, bootstrap_servers=shared.bootstrap_servers, **settings) as consumer:
        yield consumer
        shared.control("OffsetCommit", None)


@pytest.mark.parametrize("way", WAYS)
def test_the_automatic_one_takes_nothing_back(shared, topic, reader, way: str) -> None:
    """It commits what was processed before the last poll, which is older than what the application commits."""
    asked: list[int] = []

    def slow(request: Any) -> Any:
        offset = request.topics[0].partitions[0].committed_offset
        asked.append(offset)
        return Delay(200 if offset == RECORDS else 100)

    tp = TopicPartition(topic, 0)
    while not reader.assignment():
        reader.poll(0.05)
    reader.seek(tp, 0)
    while reader.position(tp) < RECORDS - 1:
        reader.poll(1, max_records=1)
    shared.control("OffsetCommit", slow)
    reader.poll(1)
    WAYS[way](reader)
    while RECORDS not in asked:
        reader.committed(tp)
    for _ in range(20):  # each drives the member while it waits for its answer, which comes behind that of the slow commit
        found = reader.committed(tp)
    assert found.offset == RECORDS
    assert asked[asked.index(RECORDS) :] == [RECORDS]


@pytest.mark.sync_only("asyncio's loops have one record in hand at a time, which test_aio_clients.py commits")
@pytest.mark.parametrize("way", WAYS)
def test_a_commit_in_a_loop_is_of_the_record_in_hand(shared: EmbeddedCluster, topic: str, way: str) -> None:
    """The records behind it are in hand, too, of both partitions: what the loop has not reached is not processed."""
    shared.create_topic(two := f"{topic}-two", partitions=2)
    tps = [TopicPartition(two, index) for index in range(2)]
    with KafkaProducer(bootstrap_servers=shared.bootstrap_servers) as producer:
        producer.send_many(two, [b"x"] * 7, partitions=[0, 0, 0, 1, 1, 1, 1]).result(30)
    settings = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    read = [0, 0]
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, **settings) as consumer:
        consumer.subscribe([two])
        for record in consumer:
            read[record.partition] += 1
            assert record.offset + 1 == read[record.partition]
            WAYS[way](consumer)
            found = consumer.committed(tps)
            assert [0 if found[tp] is None else found[tp].offset for tp in tps] == read
            if sum(read) == 7:
                break
