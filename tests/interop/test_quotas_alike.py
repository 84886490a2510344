"""Quotas on the embedded broker and on Apache Kafka: the same requests, throttle times that agree but for the time that requests take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore import protocol as p
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.kafka_server import KafkaServer
from tests.kit.rivals import applied
from tests.kit.waiting import fresh, until
from tests.kit.wire import Wire, produce_request

pytestmark = pytest.mark.kafka_at_length

TYPES = {"user": "user", "client": "client-id", "ip": "ip"}
SLACK_MS = 700
"""What the rounding of windows may change; the time that requests took may shorten a wait by as much."""
Entity = dict[str, str | None]


class Client(Wire):
    """A connection with a client id."""

    def __init__(self, address: str, client_id: str) -> None:
        super().__init__(address, timeout_s=60)
        self.client_id = client_id

    def frame(self, request: object, version: int) -> bytes:
        self.correlation_id += 1
        return b"".join(bytes(part) for part in p.encode_request(request, version, self.correlation_id, self.client_id))


def alteration(entity: Entity, **values: float | None) -> p.AlterClientQuotasRequest:
    """None removes a quota."""
    parts = [p.ClientQuotaEntityPart(entity_type=TYPES[kind], entity_name=name) for kind, name in entity.items()]
    ops = [p.ClientQuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    return p.AlterClientQuotasRequest(entries=[p.ClientQuotaAlteration(entity=parts, ops=ops)], validate_only=False)


class Side:
    """One of the two clusters. In Kafka what the controller has decided reaches its parts a little later."""

    def __init__(self, address: str, lags: bool) -> None:
        self.address = address
        self.lags = lags
        self.topic = fresh("quotas")
        self.held: list[tuple[Entity, tuple[str, ...]]] = []
        self.ask(p.CreateTopicsRequest(topics=[p.CreatableTopic(name=self.topic, num_partitions=1, replication_factor=1)]), 7)
        while self.ask(p.MetadataRequest(topics=[p.MetadataRequestTopic(name=self.topic)]), 12).topics[0].error_code:
            pass

    def ask(self, request: object, version: int, client_id: str = "unbounded") -> Any:
        """Over a connection of its own: that of a throttled client is not read."""
        with Client(self.address, client_id) as wire:
            return wire.ask(request, version)

    def alter(self, entity: Entity, **values: float | None) -> None:
        answer = self.ask(alteration(entity, **values), 1)
        assert [each.error_code for each in answer.entries] == [0]
        self.held.append((entity, tuple(values)))

    def hold(self, entity: Entity, **values: float) -> None:
        """Alters, and waits until the broker shows it and throttles by it. Its quotas count from now on."""
        self.alter(entity, **values)
        names = [
            p.ClientQuotaFilterComponent(entity_type=TYPES[kind], match_type=int(name is None), match=name) for kind, name in entity.items()
        ]
        until(lambda: self.ask(p.DescribeClientQuotasRequest(components=names, strict=True), 1).entries, "the quota is shown")
        with KafkaAdminClient(bootstrap_servers=self.address) as admin:
            self.settle(admin)

    def settle(self, admin: KafkaAdminClient) -> None:
        if self.lags:
            applied(admin)
        self.began = time.monotonic()

    def is_about(self, wait_ms: int, expected_ms: int) -> bool:
        """Whether a client is to wait so long, if requests since `hold` had taken no time."""
        took_ms = (time.monotonic() - self.began) * 1000
        return expected_ms - SLACK_MS - took_ms <= wait_ms <= expected_ms + SLACK_MS

    def clear(self) -> None:
        while self.held:
            entity, keys = self.held[-1]
            self.alter(entity, **dict.fromkeys(keys))
            self.held = [each for each in self.held if each[0] != entity]

    def produce(self, nbytes: int, client_id: str, acks: int = -1) -> int:
        return int(self.ask(produce_request(batch([bytes(nbytes)]), topic=self.topic, acks=acks), 9, client_id).throttle_time_ms)

    def fetch(self, client_id: str, offset: int = 0) -> tuple[int, int]:
        """Throttle time, and bytes of records."""
        wanted = p.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [p.FetchTopic(topic=self.topic, partitions=[wanted])]
        answer = self.ask(p.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12, client_id)
        assert answer.session_id == 0
        return answer.throttle_time_ms, sum(len(part.records) for topic in answer.responses for part in topic.partitions)


@pytest.fixture(scope="module")
def embedded() -> Iterator[Side]:
    with EmbeddedCluster() as cluster:
        yield Side(cluster.bootstrap_servers, lags=False)


@pytest.fixture(scope="module")
def apache(real_kafka: KafkaServer) -> Side:
    return Side(real_kafka.bootstrap_servers, lags=True)


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.kafka)])
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    found: Side = request.getfixturevalue(request.param)
    yield found
    found.clear()


def name() -> str:
    return fresh("client")


def test_produce(side: Side) -> None:
    client = name()
    side.hold({"client": client}, producer_byte_rate=1_000.0)
    assert side.produce(5_000, client) == 0
    assert side.is_about(side.produce(10_000, client), 5_200)
    assert side.is_about(side.produce(10_000, client), 15_300)
    side.alter({"client": client}, producer_byte_rate=None)
    while side.produce(5, client):
        pass
    assert side.produce(50_000, client) == 0


def test_fetch(side: Side) -> None:
    client = name()
    side.hold({"client": client}, consumer_byte_rate=2_000.0)
    for _ in range(2):
        side.produce(9_800, "unbounded")
    start = int(side.ask(offsets(side.topic), 7).topics[0].partitions[0].offset) - 2
    wait_ms, nbytes = side.fetch(client, start)
    assert wait_ms == 0 and 19_500 < nbytes < 20_000  # what ten windows allow
    wait_ms, nbytes = side.fetch(client, start)
    assert side.is_about(wait_ms, 10_000) and nbytes == 0
    assert side.is_about(side.fetch(client, start)[0], 10_000)  # what was not sent does not count


def offsets(topic: str) -> p.ListOffsetsRequest:
    part = p.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return p.ListOffsetsRequest(topics=[p.ListOffsetsTopic(name=topic, partitions=[part])])


def topics(prefix: str, *counts: int) -> p.CreateTopicsRequest:
    wanted = [p.CreatableTopic(name=f"{prefix}-{nth}", num_partitions=count, replication_factor=1) for nth, count in enumerate(counts)]
    return p.CreateTopicsRequest(topics=wanted, timeout_ms=30_000)


def test_partitions(side: Side) -> None:
    client, first, second = name(), name(), name()
    side.hold({"client": client}, controller_mutation_rate=1.0)
    answer = side.ask(topics(first, 21, 1), 7, client)
    while side.lags and not answer.throttle_time_ms:  # the controller had not heard of the quota
        first = name()
        answer = side.ask(topics(first, 21, 1), 7, client)
    assert [each.error_code for each in answer.topics] == [0, 89] and side.is_about(answer.throttle_time_ms, 10_000)
    assert answer.topics[1].error_message is None
    answer = side.ask(topics(second, 10), 5, client)  # an old version gets its topic and waits
    assert answer.topics[0].error_code == 0 and side.is_about(answer.throttle_time_ms, 20_000)
    grown = p.CreatePartitionsTopic(name=f"{first}-0", count=30, assignments=None)
    answer = side.ask(p.CreatePartitionsRequest(topics=[grown], timeout_ms=30_000), 3, client)
    assert (answer.results[0].error_code, answer.results[0].error_message) == (89, None) and side.is_about(answer.throttle_time_ms, 20_000)
    answer = side.ask(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=f"{first}-0")], timeout_ms=30_000), 6, client)
    assert (answer.responses[0].error_code, answer.responses[0].error_message) == (89, None)
    assert side.is_about(answer.throttle_time_ms, 20_000)
    assert side.ask(p.DeleteTopicsRequest(topic_names=[f"{first}-0"], timeout_ms=30_000), 4, client).responses[0].error_code == 0
    answer = side.ask(topics(second, 1), 7, client)
    assert answer.topics[0].error_code == 36 and answer.throttle_time_ms == 0  # refused for another reason before the quota is looked at
