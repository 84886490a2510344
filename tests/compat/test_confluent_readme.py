"""The programs of confluent-kafka's own README, out of the installed package, with their import lines changed."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import sys
from types import ModuleType
from typing import Any

import pytest

from kafkacore.compat.confluent import DeserializingConsumer, SerializingProducer
from kafkacore.compat.confluent.error import ValueSerializationError
from kafkacore.compat.confluent.not_covered import reason
from kafkacore.testing import EmbeddedCluster

pytest.importorskip("confluent_kafka", minversion="2.16")
SERVERS = ("mybroker1,mybroker2", "mybroker")


def programs() -> dict[str, str]:
    """By what they show; those that go on from others before them, and lists of imports, are no programs."""
    metadata = importlib.metadata.metadata("confluent-kafka")
    readme = str(metadata.get_payload() or metadata["Description"])
    found = {}
    for code in re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL):
        for name, mark in (
            ("asyncio", "asyncio.run(main())"),
            ("producer", "some_data_source"),
            ("consumer", "c.poll("),
            ("admin", "AdminClient("),
        ):
            if mark in code:
                found[name] = code
    return found


def run_program(name: str, servers: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a program, with the broker's address put in."""
    code = re.sub(r"^from confluent_kafka(?!\.schema_registry)", "from kafkacore.compat.confluent", programs()[name], flags=re.MULTILINE)
    for each in SERVERS:
        code = code.replace(each, servers)
    assert "from kafkacore.compat.confluent" in code
    exec(compile(code, "README", "exec"), names)
    return names


class Enough(BaseException):
    """Ends a program that would go on for ever."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """In place of the package's registry client and its JSON serializer, which need a registry and more packages."""
    calls: list[Any] = []

    class JSONSerializer:
        def __init__(self, schema: str, client: Any) -> None:
            calls.append((json.loads(schema)["title"], client))

        def __call__(self, value: Any, context: Any) -> bytes:
            calls.append((context.topic, context.field == "value"))
            return json.dumps(value).encode()

    module, inner = ModuleType("confluent_kafka.schema_registry"), ModuleType("confluent_kafka.schema_registry.json_schema")
    module.SchemaRegistryClient = lambda conf: conf["url"]  # type: ignore[attr-defined]
    inner.JSONSerializer = JSONSerializer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, inner.__name__, inner)
    return calls


def test_there_are_four() -> None:
    assert set(programs()) == {"asyncio", "producer", "consumer", "admin"}


def test_they_run_with_other_imports(registry: list[Any]) -> None:
    printed: list[str] = []
    users = [{"name": "Ann", "favorite_number": 42}, {"name": "Ben", "favorite_number": 7}]

    def until_two(text: str) -> None:
        printed.append(text)
        if len(printed) == 2:
            raise Enough

    with EmbeddedCluster() as cluster:
        reports: list[str] = []
        run_program("producer", cluster.bootstrap_servers, {"some_data_source": users, "print": reports.append})
        with pytest.raises(Enough):
            run_program("consumer", cluster.bootstrap_servers, names := {"print": until_two})
        names["c"].close()
        created: list[str] = []
        run_program("admin", cluster.bootstrap_servers, {"print": created.append})
        again: list[str] = []
        run_program("admin", cluster.bootstrap_servers, {"print": again.append})
    assert reports == ["Message delivered to mytopic [0]"] * 2
    assert registry == [("User", "http://localhost:8081"), ("mytopic", True), ("mytopic", True)]
    assert printed == [f"Received message: {json.dumps(user)}" for user in users]
    assert created == ["Topic topic1 created", "Topic topic2 created"]
    assert [line.split(":")[0] for line in again] == ["Failed to create topic topic1", "Failed to create topic topic2"]
    assert all("TOPIC_ALREADY_EXISTS" in line for line in again)


def test_the_one_over_asyncio() -> None:
    with EmbeddedCluster() as cluster:
        run_program("asyncio", cluster.bootstrap_servers, {})
        assert [record.value for record in cluster.records("mytopic")] == [b"hello"]


def test_clients_over_asyncio_that_are_not_covered_say_why() -> None:
    aio = importlib.import_module("kafkacore.compat.confluent.aio")
    with pytest.raises(ImportError) as caught:
        aio.AsyncSerializingProducer  # noqa: B018
    assert str(caught.value) == reason("aio.AsyncSerializingProducer")


@pytest.mark.filterwarnings("ignore")  # of authlib, about httpx
def test_serializers_of_the_registry_are_taken_as_they_are() -> None:
    package = pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
    avro = importlib.import_module("confluent_kafka.schema_registry.avro")
    client = package.SchemaRegistryClient.new_client({"url": "mock://"})
    schema = json.dumps({"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}, {"name": "n", "type": "int"}]})
    with EmbeddedCluster() as cluster:
        base = {"bootstrap.servers": cluster.bootstrap_servers}
        serializers = {"key.serializer": avro.AvroSerializer(client, '"string"'), "value.serializer": avro.AvroSerializer(client, schema)}
        with SerializingProducer(base | serializers) as producer:
            producer.produce("users", key="k", value={"name": "Ann", "n": 3})
            with pytest.raises(ValueSerializationError, match="no value"):
                producer.produce("users", key="k", value={"name": "Ben"})
        group = {"group.id": "g", "auto.offset.reset": "earliest"}
        deserializers = {"key.deserializer": avro.AvroDeserializer(client), "value.deserializer": avro.AvroDeserializer(client)}
        with DeserializingConsumer(base | group | deserializers) as consumer:
            consumer.subscribe(["users"])
            message = consumer.poll(30)
            assert (message.key(), message.value()) == ("k", {"name": "Ann", "n": 3})
    assert sorted(client.get_subjects()) == ["users-key", "users-value"]
