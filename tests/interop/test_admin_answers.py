"""Whole answers of the embedded broker and of Apache Kafka to the same requests: they are equal but for what `DIFFERENCES` lists.

Kafka's answers are kept in `kafka_admin_answers.json.gz` beside this file, so the embedded broker is compared without a Kafka; the test
marked `kafka` holds the file against a running one. `python -m tests.interop.test_admin_answers` writes it again.
"""

from __future__ import annotations

import functools
import gzip
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore import protocol as p
from kafkacore.broker.cluster import FEATURES
from kafkacore.broker.handlers import SERVED
from kafkacore.testing import EmbeddedCluster
from tests.interop import admin_cases, admin_cases_cluster, admin_cases_configs
from tests.interop.admin_cases import Steps, create, describe_topics, new, plain
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import fresh
from tests.kit.wire import Wire

RECORDED = Path(__file__).parent / "kafka_admin_answers.json.gz"
SET_HERE = "consumer.assignment.interval.ms"
TABLES = (admin_cases, admin_cases_configs, admin_cases_cluster)
NAMES = [name for table in TABLES for name in table.cases("t")]
WRITES = ("Alter", "Create", "Delete", "IncrementalAlter", "Update")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    # Where the embedded broker has other defaults than Kafka, for short tests.
    with EmbeddedCluster(config={f"group.{SET_HERE}": 1000}) as running:
        yield running


@pytest.fixture
def broker(cluster: EmbeddedCluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap_servers, timeout_s=60) as wire:
        yield wire


@pytest.fixture(scope="module")
def apache() -> Iterator[KafkaServer]:
    with KafkaServer() as server:
        yield server


@pytest.fixture
def kafka(apache: KafkaServer) -> Iterator[Wire]:
    with Wire(apache.bootstrap_servers, timeout_s=60) as wire:
        yield wire


def settle(wire: Wire) -> None:
    """Kafka's broker follows its controller in steps: once it shows the second topic, it has finished the step of the first."""
    for _ in range(2):
        name = fresh("marker")
        assert wire.ask(create(new(name)), 7).topics[0].error_code == 0
        while wire.ask(describe_topics(name), 12).topics[0].error_code:
            pass


def steps_of(case: str) -> Steps:
    return next(found[case] for table in TABLES if case in (found := table.cases(f"case-{case}")))


def answers(wire: Wire, case: str, *, lags: bool) -> list[tuple[str, Any]]:
    found = []
    is_behind = False
    for request, version in steps_of(case):
        is_write = type(request).__name__.startswith(WRITES)
        if lags and is_behind and not is_write:
            settle(wire)
        is_behind = is_write
        found.append((f"{type(request).__name__} v{version}: {request}", plain(wire.ask(request, version))))
    return found


# ---- what differs, and why


def entries(answer: Any) -> Iterator[dict[str, Any]]:
    """The described settings anywhere in an answer."""
    if isinstance(answer, dict):
        if "config_source" in answer:
            yield answer
        for each in answer.values():
            yield from entries(each)
    elif isinstance(answer, list):
        for each in answer:
            yield from entries(each)


def leaves(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            yield from leaves(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for nth, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from leaves(our, their, f"{path}[{nth}]")
    elif ours != theirs:
        yield f"{path}: {ours!r}, Kafka says {theirs!r}"


def without_layer(answer: Any, name: str, source: int) -> Any:
    """A setting as it is told where this layer has no value of it, and Kafka's default holds."""
    for entry in entries(answer):
        if entry["name"].endswith(name) and entry["config_source"] == source:
            entry["config_source"] = 5
            if "synonyms" in entry:
                entry["synonyms"] = [each for each in entry["synonyms"] if each["source"] != source]
    return answer


def without_elr(answer: Any) -> Any:
    """A new Kafka cluster finalizes eligible.leader.replicas.version (KIP-966) and for that keeps min.insync.replicas=1 as the default of
    all brokers. The embedded controller has no such replicas, so there the 1 is Kafka's own default."""
    without_layer(answer, "min.insync.replicas", 3)
    if isinstance(answer, dict):
        for result in answer.get("results", []):
            if isinstance(result, dict) and result.get("resource_type") == 4 and not result.get("resource_name"):
                result["configs"] = [entry for entry in result["configs"] if entry["name"] != "min.insync.replicas"]
    return answer


def shown_apis(answer: Any) -> Any:
    """Kafka serves more APIs, has more features, and can make its voters dynamic (kraft.version 1); what both have is equal."""
    answer["api_keys"] = [each for each in answer["api_keys"] if each["api_key"] in SERVED]
    for field in ("supported_features", "finalized_features"):
        answer[field] = [each for each in answer[field] if each["name"] in FEATURES and each["name"] != "kraft.version"]
    return answer


def no_controller_listener(answer: Any) -> Any:
    """The embedded controller has no listener of its own and elects nobody, so its epoch stays."""
    answer["nodes"] = []
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            partition["leader_epoch"] = "masked"
    return answer


DIFFERENCES: dict[str, Callable[[int, Any], Any]] = {
    "api-versions": lambda index, answer: shown_apis(answer),
    "describe-quorum": lambda index, answer: no_controller_listener(answer),
}


@functools.cache
def unpacked() -> str:
    return gzip.decompress(RECORDED.read_bytes()).decode()


def recorded() -> dict[str, list[Any]]:
    """Kafka's answers by case, for the caller to change as it likes."""
    found: dict[str, list[Any]] = json.loads(unpacked())
    return found


def jsonable(answer: Any) -> Any:
    """As the file has it."""
    return json.loads(json.dumps(answer, default=lambda value: bytes(value).hex()))


@pytest.mark.parametrize("case", NAMES)
def test_the_embedded_broker_answers_as_kafka_did(broker: Wire, case: str) -> None:
    allow = DIFFERENCES.get(case, lambda index, answer: answer)
    theirs = recorded()[case]
    found = answers(broker, case, lags=False)
    assert len(found) == len(theirs)
    for index, (request, ours) in enumerate(found):
        ours = without_layer(jsonable(ours), SET_HERE, source=4)
        differences = list(leaves(allow(index, ours), allow(index, without_elr(theirs[index]))))
        assert not differences, f"{index}: {request}"


def test_every_case_is_recorded_and_nothing_else() -> None:
    assert recorded().keys() == set(NAMES)
    assert all(recorded().values())


@pytest.mark.kafka
@pytest.mark.kafka_at_length
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", NAMES)
def test_kafka_answers_as_recorded(kafka: Wire, case: str) -> None:
    mask = no_controller_listener if case == "describe-quorum" else lambda answer: answer
    kept = recorded()[case]
    found = answers(kafka, case, lags=True)
    assert len(found) == len(kept)
    for index, (request, theirs) in enumerate(found):
        assert list(leaves(mask(jsonable(theirs)), mask(kept[index]))) == [], f"{index}: {request}"


@pytest.mark.kafka
@pytest.mark.kafka_at_length
def test_a_topic_to_delete_by_name_and_by_id(kafka: Wire, broker: Wire) -> None:
    found = []
    for wire, lags in ((broker, False), (kafka, True)):
        topic_id = wire.ask(create(new("named-twice")), 7).topics[0].topic_id
        if lags:
            settle(wire)
        states = [p.DeleteTopicState(name="named-twice"), p.DeleteTopicState(topic_id=topic_id), p.DeleteTopicState(topic_id=topic_id)]
        found.append([plain(wire.ask(p.DeleteTopicsRequest(topics=each, timeout_ms=1000), 6)) for each in (states, states[:2], states[:1])])
    assert list(leaves(*found)) == []


@pytest.mark.kafka
@pytest.mark.kafka_at_length
def test_unknown_versions_and_apis(kafka: Wire, broker: Wire) -> None:
    """KIP-511: an ApiVersions request of a version nobody knows is answered as v0, with what the client needs to ask again."""

    def raw(wire: Wire, api_key: int, version: int) -> Any:
        with Wire(f"{wire.sock.getpeername()[0]}:{wire.sock.getpeername()[1]}", timeout_s=60) as fresh:
            payload = struct.pack(">hhihs", api_key, version, 7, 1, b"x") + b"\0\0\0"
            fresh.sock.sendall(struct.pack(">i", len(payload)) + payload)
            try:
                frame = fresh.receive_frame()
            except EOFError:
                return "closed"
            return p.ApiVersionsResponse.decode(0, frame, 4) if api_key == 18 else frame

    for api_key, version in ((18, 99), (18, -1), (0, 99), (3, 50), (99, 0), (-1, 0)):
        ours, theirs = raw(broker, api_key, version), raw(kafka, api_key, version)
        if isinstance(theirs, str):
            assert ours == theirs, (api_key, version)
        else:
            assert plain(ours) == plain(theirs), (api_key, version)


def record() -> None:
    """Asks a Kafka everything and keeps its answers."""
    with KafkaServer() as server, Wire(server.bootstrap_servers, timeout_s=60) as wire:
        kept = {case: [jsonable(answer) for _, answer in answers(wire, case, lags=True)] for case in NAMES}
    RECORDED.write_bytes(gzip.compress(json.dumps(kept, separators=(",", ":"), sort_keys=True).encode(), mtime=0))


if __name__ == "__main__":
    record()
