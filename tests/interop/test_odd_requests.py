"""Every API in several versions with odd requests: the embedded broker answers with what Apache Kafka answers, field by field."""

from __future__ import annotations

import itertools
import re
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kafkacore import protocol, records
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.errors import Code
from kafkacore.protocol.schema import Struct
from kafkacore.testing import EmbeddedCluster
from tests.interop.odd_requests import DELETED_FROM, GROUP, NAMES, TOPIC, TRANSACTIONAL_ID, Encoder, Schema, World, bases, load_schemas
from tests.kit.kafka_server import KafkaServer, fetch_jars
from tests.kit.waiting import until
from tests.kit.wire import Wire, produce_request

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

MASKED = {
    **dict.fromkeys(("host", "port", "cluster_id", "log_dir", "total_bytes", "usable_bytes", "partition_size"), "MASKED"),
    **dict.fromkeys(("error_message", "documentation"), "MASKED"),
    **dict.fromkeys(("finalized_features_epoch", "throttle_time_ms"), "MASKED"),
}
NUMBERED = {
    "session_id",
    "base_offset",
    "producer_id",
    "last_timestamp",
    "log_append_time_ms",
    "transaction_start_time_ms",
    "coordinator_epoch",
}
# What Kafka has and the embedded broker has not: the groups of shares and of streams, replicas that may lead though they are not in sync.
UNSERVED = {*range(76, 80), *range(83, 93)}
UNKNOWN_FEATURES = {"eligible.leader.replicas.version", "kraft.version", "share.version", "streams.version"}
_WHICH_TOPICS = "which topics there are depends on the requests for which Kafka found the time too short"
# What Kafka does by mistake, or for itself.
EXEMPT = {
    ("Fetch", "SessionId=2147483647"): "Kafka looks for the session in a shard of its cache that does not exist",
    ("DescribeLogDirs", "Topics=null"): _WHICH_TOPICS,
    ("DescribeTopicPartitions", "Topics=[]"): _WHICH_TOPICS,
    ("ListConfigResources", "ResourceTypes=[]"): _WHICH_TOPICS,
    ("ElectLeaders", "TopicPartitions=null"): _WHICH_TOPICS,
}
ANSWER_S = 20.0
NOW_MS = int(time.time() * 1000)  # of the records: older ones would be deleted by Kafka's retention while the test runs
SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": 5, "transaction.state.log.num.partitions": 5}
SILENT = "does not answer"
STUMBLES = {"error_code": -1}
# What is not asked of Kafka: it never answers, or fails so that its controller has to come up again, which takes seconds.
UNASKED = {
    **{("Produce", version, "TopicData[0]PartitionData[0]Records=null"): SILENT for version in (3, 13)},
    **{("JoinGroup", 0, f"Protocols{label}"): SILENT for label in ("=twice", "[0]Metadata=garbage")},
    ("AddPartitionsToTxn", 5, "Transactions=[]"): SILENT,
    **{("WriteTxnMarkers", version, f"Markers[0]Topics{part}=twice"): SILENT for version in (1, 2) for part in ("", "[0]PartitionIndexes")},
    **{("CreatePartitions", version, "Topics[0]Count=2147483647"): STUMBLES for version in (0, 3)},
    **{("AlterConfigs", version, "Resources=twice"): SILENT for version in (0, 2)},
    **{
        ("IncrementalAlterConfigs", version, f"Resources[0]Configs[0]ConfigOperation={odd}"): STUMBLES
        for version in (0, 1)
        for odd in (-1, -2, 7, 127)
    },
}


def plain(value: Any, field: str = "") -> Any:
    """A response without what differs between any two clusters; lists in an order of their own, since Kafka's are often those of a hash."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name), name) for name in value.FIELDS}
    if isinstance(value, (list, tuple)):
        return sorted((plain(each, field) for each in value), key=repr)
    if field in MASKED:
        return MASKED[field]
    if field in NUMBERED and value >= (0 if field == "base_offset" else 1):
        return "NUMBER"
    if isinstance(value, (bytes, memoryview)) and len(value) == 16 and "id" in field:
        return "ID" if any(value) else "NONE"
    if isinstance(value, (bytes, memoryview)):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        return (
            re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\w-]{22}(?=$)", "UUID", value)
            if "member" in field or field == "leader"
            else value
        )
    return value


def known(answer: dict[str, Any]) -> dict[str, Any]:
    """An ApiVersions answer without what the embedded broker does not have."""
    features = {
        field: [each for each in answer[field] if each["name"] not in UNKNOWN_FEATURES]
        for field in ("supported_features", "finalized_features")
    }
    return {**answer, "api_keys": [each for each in answer["api_keys"] if each["api_key"] not in UNSERVED], **features}


def leaves(right: Any, ours: Any, path: str = "") -> Iterator[str]:
    """The differing fields of two answers."""
    if isinstance(right, dict) and isinstance(ours, dict) and right.keys() == ours.keys():
        for name in right:
            yield from leaves(right[name], ours[name], f"{path}.{name}" if path else name)
    elif isinstance(right, list) and isinstance(ours, list) and len(right) == len(ours):
        for n, pair in enumerate(zip(right, ours, strict=True)):
            yield from leaves(*pair, f"{path}[{n}]")
    elif right != ours:
        yield f"{path} {right!r}, embedded {ours!r}"


def error_codes(answer: Any) -> set[int]:
    """All error codes in an answer but 0."""
    if isinstance(answer, dict):
        here = {value for name, value in answer.items() if name.endswith("error_code") and value}
        return here.union(*(error_codes(value) for value in answer.values()))
    return set().union(*map(error_codes, answer)) if isinstance(answer, list) else set()


def same(right: Any, ours: Any) -> bool:
    """Whether the embedded broker's answer will do. A Kafka that hangs, or needs longer than it may, is no example; where it stumbles
    (UNKNOWN_SERVER_ERROR), any error will do."""
    if right == SILENT or Code.REQUEST_TIMED_OUT in error_codes(right):
        return bool(ours != SILENT)
    return bool(right == ours or (-1 in error_codes(right) and error_codes(ours)))


class Outsider:
    """One connection to a cluster that is remade when the broker closes it."""

    def __init__(self, servers: str, transactions: bool) -> None:
        self.servers = servers
        self.world = prepare(servers, transactions)
        self.wire: Wire | None = None

    def ask(self, encoder: Encoder, body: Any, number: int) -> Any:
        """What comes back, up to the answer to an ApiVersions request sent after it: so silence is seen at once."""
        if self.wire is None:
            self.wire = Wire(self.servers, timeout_s=ANSWER_S)
        follow_up = struct.pack(">ihhih", 10, 18, 0, 2, -1)
        try:
            self.wire.sock.sendall(encoder.frame(body, 1, number) + follow_up)
            frames = []
            while True:
                frames.append(self.wire.receive_frame())
                if frames[-1][:4] == b"\0\0\0\2":
                    break
        except (EOFError, ConnectionError):
            self._close()
            return "closes the connection"
        except TimeoutError:
            self._close()
            return SILENT
        if len(frames) == 1:
            return "says nothing"
        key, version = encoder.schema.api_key, encoder.version
        _, start = protocol.decode_response_header(key, version, frames[0])
        answer = plain(protocol.APIS[key].response.decode(version, frames[0], start))
        if encoder.schema.name == "ApiVersions":
            answer = known(answer)
        if Code.CONCURRENT_TRANSACTIONS in error_codes(answer):
            return self.ask(encoder, body, number)  # the markers of the last transaction are not yet written
        return answer

    def _close(self) -> None:
        if self.wire is not None:
            self.wire.sock.close()
        self.wire = None


def prepare(servers: str, transactions: bool) -> World:
    """Topics with records, a group with offsets, producer ids."""
    with Wire(servers, timeout_s=30) as wire:
        # As a new Kafka does for itself, for its eligible leader replicas.
        min_isr = protocol.IncrementalAlterableConfig(name="min.insync.replicas", config_operation=0, value="1")
        brokers = protocol.IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[min_isr])
        altered = wire.ask(protocol.IncrementalAlterConfigsRequest(resources=[brokers]), 1)
        assert altered.responses[0].error_code == 0
        topics = [
            protocol.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name, partitions in ((TOPIC, 2), (DELETED_FROM, 1))
        ]
        created = wire.ask(protocol.CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=False), 7)
        assert [topic.error_code for topic in created.topics] == [0, 0]
        batch = records.BatchBuilder(max_bytes=10_000)
        for n in range(5):
            batch.append(b"value %d" % n, b"key", timestamp_ms=NOW_MS + n)
        data = bytes(batch.build())
        for name, partition in ((TOPIC, 0), (TOPIC, 0), (DELETED_FROM, 0)):
            request = produce_request(data, topic=name, partition=partition)
            until(lambda r=request: not wire.ask(r, 9).responses[0].partition_responses[0].error_code, "the leader has heard of it")
        ids = {topic.name: topic.topic_id for topic in created.topics}
        producer_ids = []
        for transactional_id in (None, TRANSACTIONAL_ID):
            if transactional_id is not None and not transactions:
                producer_ids.append(-1)
                continue
            request = protocol.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

            def given(request: Any = request) -> Any:
                if request.transactional_id is not None:
                    wire.ask(protocol.FindCoordinatorRequest(key_type=1, coordinator_keys=[request.transactional_id]), 6)
                answer = wire.ask(request, 4)
                return None if answer.error_code else answer

            producer_ids.append(until(given, "the coordinator gives an id").producer_id)
        commit_offsets(wire)
        return World(ids[TOPIC], data, *producer_ids)


def commit_offsets(wire: Wire) -> None:
    wire.ask(protocol.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6)
    partitions = [protocol.OffsetCommitRequestPartition(partition_index=n, committed_offset=n + 1, committed_metadata="") for n in (0, 1)]
    topic = protocol.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    request = protocol.OffsetCommitRequest(group_id=GROUP, topics=[topic])
    until(lambda: not any(each.error_code for each in wire.ask(request, 8).topics[0].partitions), "the coordinator takes the offsets")


@pytest.fixture(scope="module")
def schemas() -> dict[int, Schema]:
    return load_schemas(fetch_jars())


@pytest.fixture(scope="module")
def outsiders() -> Iterator[tuple[Outsider, Outsider]]:
    """To a Kafka and to an embedded broker of their own: other tests may not change what is asked about."""
    with KafkaServer(**SETTINGS) as kafka, EmbeddedCluster(config=SETTINGS) as embedded:
        both = Outsider(kafka.bootstrap_servers, True), Outsider(embedded.bootstrap_servers, 24 in SERVED)
        yield both
        for outsider in both:
            with suppress(OSError):
                outsider._close()


def chosen_versions(api_key: int) -> list[int]:
    """The lowest and the highest."""
    low, high = API_VERSIONS[api_key]
    return sorted({max(low, protocol.APIS[api_key].oldest_served), high})


def differences(schema: Schema, version: int, outsiders: tuple[Outsider, Outsider], counter: Iterator[int]) -> list[str]:
    encoder = Encoder(schema, version)
    found = []
    kafka, embedded = outsiders
    pairs = zip(*(encoder.oddities(bases(each.world)[schema.name]) for each in outsiders), strict=True)
    for (label, body), (_, twin) in pairs:
        number = next(counter)
        right = UNASKED.get((schema.name, version, label)) or kafka.ask(encoder, body, number)
        ours = embedded.ask(encoder, twin, number)
        if not same(right, ours) and (schema.name, label) not in EXEMPT:
            found.append(f"{schema.name} v{version} {label}: " + "; ".join(leaves(right, ours)))
    return found


_counter = itertools.count(1)


@pytest.mark.parametrize("name", NAMES)
def test_odd_requests_are_answered_as_by_kafka(name: str, schemas: dict[int, Schema], outsiders: tuple[Outsider, Outsider]) -> None:
    schema = next(each for each in schemas.values() if each.name == name)
    found = [text for version in chosen_versions(schema.api_key) for text in differences(schema, version, outsiders, _counter)]
    assert not found, "\n".join(found)
