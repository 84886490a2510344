"""The application commits what it was just handed, and an automatic commit comes due before the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore.consumer import KafkaConsumer
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
