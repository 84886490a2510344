"""Every setting of a consumer that reaches a broker or bounds a poll does what it says: one check per name, and none without.

The settings that all clients share (addresses, time-outs, back-offs, TLS, SASL) are checked in tests/producer/test_every_setting.py and
tests/net.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
import test_group_settings as group_settings
from produce_raw import produce

from kafkacore import errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.broker.faults import Drop
from kafkacore.config import ClientConfig, ConsumerConfig
from kafkacore.consumer import KafkaConsumer
from kafkacore.protocol import FetchRequest, FetchResponse, ListOffsetsRequest, MetadataRequest
from kafkacore.protocol.data import FetchableTopicResponse, PartitionData
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewTopic, TopicPartition
from tests.kit.checks import Checks

checks = Checks()
RECORDS = 1200


class AskedOf:
    """A cluster with a topic, and the requests that its broker saw."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.calls = 0
        self.fetches: list[FetchRequest] = []
        self.listings: list[ListOffsetsRequest] = []
        cluster.control("Fetch", self.fetches.append)
        cluster.control("ListOffsets", self.listings.append)

    def consumer(self, **settings: Any) -> KafkaConsumer:
        given = {"bootstrap_servers": self.cluster.bootstrap_servers, "auto_offset_reset": "earliest"} | settings
        return KafkaConsumer("t", **given)

    def first_fetch(self, **settings: Any) -> FetchRequest:
        """The first Fetch of a new consumer that names a partition; its rack tells it from one of an earlier consumer that came late."""
        self.calls += 1
        settings.setdefault("client_rack", f"call-{self.calls}")
        with self.consumer(**settings) as consumer:
            assert consumer.poll(10)
        return next(fetch for fetch in self.fetches if fetch.topics and fetch.rack_id == settings["client_rack"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running, KafkaAdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 2, 1)]).check()
        for partition in (0, 1):
            produce(running.bootstrap_servers, "t", partition, [b"%0100d" % nth for nth in range(RECORDS // 2)])
        yield running


@pytest.fixture
def asked(cluster: EmbeddedCluster) -> Iterator[AskedOf]:
    yield AskedOf(cluster)
    cluster.control("Fetch", None)
    cluster.control("ListOffsets", None)


@checks("fetch_min_bytes", "fetch_max_bytes", "fetch_max_wait_ms", "max_partition_fetch_bytes", "client_rack")
def what_a_fetch_says(asked: AskedOf) -> None:
    assert (asked.first_fetch().min_bytes, asked.first_fetch().max_bytes) == (1, 52_428_800)
    bounds = {"fetch_min_bytes": 77, "fetch_max_bytes": 12_345, "fetch_max_wait_ms": 123, "max_partition_fetch_bytes": 23_456}
    fetch = asked.first_fetch(client_rack="rack-7", **bounds)
    assert (fetch.min_bytes, fetch.max_bytes, fetch.max_wait_ms, fetch.rack_id) == (77, 12_345, 123, "rack-7")
    assert {part.partition_max_bytes for topic in fetch.topics for part in topic.partitions} == {23_456}


@checks("max_poll_records")
def max_poll_records(asked: AskedOf) -> None:
    for most, settings in ((500, {}), (7, {"max_poll_records": 7}), (RECORDS, {"max_poll_records": 100_000})):
        counts = []
        with asked.consumer(**settings) as consumer:
            while sum(counts) < RECORDS:
                counts.append(sum(map(len, consumer.poll(10).values())))
        assert sum(counts) == RECORDS
        assert max(counts) <= most
        assert most == RECORDS or counts[0] == most


@checks("isolation_level")
def isolation_level(asked: AskedOf) -> None:
    assert asked.first_fetch().isolation_level == 0
    assert asked.first_fetch(isolation_level="read_committed").isolation_level == 1
    assert {request.isolation_level for request in asked.listings} == {0, 1}


@checks("auto_offset_reset")
def auto_offset_reset(asked: AskedOf) -> None:
    at = TopicPartition("t", 0)
    for reset, position in (("latest", RECORDS // 2), ("earliest", 0), ("by_duration:P30000D", 0), ("by_duration:PT1H", RECORDS // 2)):
        with KafkaConsumer(bootstrap_servers=asked.cluster.bootstrap_servers, auto_offset_reset=reset) as consumer:
            consumer.assign([at])
            assert consumer.position(at) == position, reset
    with asked.consumer(auto_offset_reset="none") as consumer, pytest.raises(errors.NoOffsetForPartition):
        consumer.poll(10)


@checks("check_crcs")
def check_crcs(asked: AskedOf) -> None:
    at = TopicPartition("t", 0)
    builder = BatchBuilder(max_bytes=1000)
    assert builder.append(b"value", timestamp_ms=1)
    damaged = bytearray(builder.build())
    damaged[-2] ^= 1  # a bit of the value; the batch can be read all the same

    def answer(request: FetchRequest) -> FetchResponse | None:
        if not request.topics:
            return None
        part = PartitionData(partition_index=0, high_watermark=1, last_stable_offset=1, log_start_offset=0, records=bytes(damaged))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=request.topics[0].topic_id, partitions=[part])])

    asked.cluster.control("Fetch", answer)
    settings = {"bootstrap_servers": asked.cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    with KafkaConsumer(**settings) as consumer, pytest.raises(errors.CorruptDataError, match="CRC"):
        consumer.assign([at])
        consumer.poll(10)
    with KafkaConsumer(**settings, check_crcs=False) as consumer:
        consumer.assign([at])
        assert [record.value for record in consumer.poll(10)[at]] == [b"valud"]


@checks("max_decompressed_bytes")
def max_decompressed_bytes(asked: AskedOf) -> None:
    """tests/consumer/test_decompression_bound.py has the whole; here, that the setting reaches the reader."""
    at = TopicPartition("packed", 0)
    with KafkaAdminClient(bootstrap_servers=asked.cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("packed", 1, 1)]).check()
    produce(asked.cluster.bootstrap_servers, "packed", 0, [bytes(10_000)] * 10, compression="gzip")
    settings = {"bootstrap_servers": asked.cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    for most, fits in ((50_000, False), (200_000, True)):
        with KafkaConsumer(**settings, max_decompressed_bytes=most) as consumer:
            consumer.assign([at])
            if fits:
                assert len(consumer.poll(10)[at]) == 10
            else:
                with pytest.raises(errors.DecompressedTooLarge, match="50000"):
                    consumer.poll(10)


@checks("key_deserializer", "value_deserializer")
def deserializers(asked: AskedOf) -> None:
    with asked.consumer(value_deserializer=int) as consumer:
        assert {record.value for records in consumer.poll(10).values() for record in records} <= set(range(RECORDS))
    with asked.consumer(key_deserializer=lambda data: "no key" if data is None else data.decode()) as consumer:
        assert {type(record.key) for records in consumer.poll(10).values() for record in records} <= {str, type(None)}


@checks("interceptors")
def interceptors(asked: AskedOf) -> None:
    class Numbers:
        def on_consume(self, records: Any) -> Any:
            return {tp: [r.replace(key=r.key, value=int(r.value)) for r in found] for tp, found in records.items()}

    with asked.consumer(interceptors=[Numbers()]) as consumer:
        assert {record.value for records in consumer.poll(10).values() for record in records} <= set(range(RECORDS))


@checks("allow_auto_create_topics")
def allow_auto_create_topics(asked: AskedOf) -> None:
    seen: list[MetadataRequest] = []
    asked.cluster.control("Metadata", seen.append)
    for allowed in (None, False, True):
        seen.clear()
        with asked.consumer(**({} if allowed is None else {"allow_auto_create_topics": allowed})) as consumer:
            consumer.poll(10)
        assert {request.allow_auto_topic_creation for request in seen if request.topics} == {allowed is True}
    asked.cluster.control("Metadata", None)


@checks("default_api_timeout_ms")
def default_api_timeout_ms(asked: AskedOf) -> None:
    asked.cluster.control("ListOffsets", lambda request: Drop)
    with asked.consumer(default_api_timeout_ms=50) as consumer, pytest.raises(errors.KafkaTimeoutError):
        consumer.end_offsets([TopicPartition("t", 0)])


def test_every_setting_of_a_consumer_has_its_check() -> None:
    own = {field.name for field in fields(ConsumerConfig)} - {field.name for field in fields(ClientConfig)}
    assert own == checks.of.keys() | group_settings.checks.of.keys()


@checks.each_one
def test_a_setting_does_what_it_says(fn: Callable[[AskedOf], None], asked: AskedOf) -> None:
    fn(asked)
