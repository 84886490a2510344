"""The programs of aiokafka's and confluent-kafka's own READMEs, out of the installed packages, with their import lines changed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import re
import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, NewTopic, OffsetAndMetadata
from kafkacore.compat.confluent import DeserializingConsumer, SerializingProducer
from kafkacore.compat.confluent.error import ValueSerializationError
from kafkacore.compat.confluent.not_covered import reason
from kafkacore.testing import EmbeddedCluster

for needed, version in (("aiokafka", "0.14"), ("confluent_kafka", "2.16")):
    pytest.importorskip(needed, minversion=version)
GUARD_S = 90
BLOCKS = {"aiokafka": r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", "confluent-kafka": r"^```python\n(.*?)^```$"}
MARKS = {"asyncio": "asyncio.run(main())", "producer": "some_data_source", "consumer": "c.poll(", "admin": "AdminClient("}
"""What the programs among confluent-kafka's examples have in them: others go on from them, or are lists of imports."""


def examples(package: str) -> list[str]:
    metadata = importlib.metadata.metadata(package)
    flags = re.MULTILINE | (0 if package == "aiokafka" else re.DOTALL)
    return [textwrap.dedent(code) for code in re.findall(BLOCKS[package], str(metadata.get_payload() or metadata["Description"]), flags)]


def coroutine_of_aiokafkas(name: str, servers: str, names: dict[str, Any]) -> Any:
    """The coroutine of an example, which the test runs in place of the example's last line."""
    (code,) = [each for each in examples("aiokafka") if f"async def {name}" in each]
    changed = code.replace("from aiokafka import", "from kafkacore.compat.aiokafka import").replace("localhost:9092", servers)
    assert changed.count("kafkacore.compat") == changed.count(servers) == 1
    body, run = changed.rstrip().rsplit("\n", 1)
    assert run == f"asyncio.run({name}())"
    exec(compile(body, "README", "exec"), names)
    return names[name]()


def run_of_confluent_kafkas(name: str, servers: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a program, with the broker's address put in."""
    code = [each for each in examples("confluent-kafka") if MARKS[name] in each][-1]
    code = re.sub(r"^from confluent_kafka(?!\.schema_registry)", "from kafkacore.compat.confluent", code, flags=re.MULTILINE)
    for each in ("mybroker1,mybroker2", "mybroker"):
        code = code.replace(each, servers)
    assert "from kafkacore.compat.confluent" in code
    exec(compile(code, "README", "exec"), names)
    return names


def test_there_are_so_many() -> None:
    assert sorted(re.findall(r"async def (\w+)", "".join(examples("aiokafka")))) == ["consume", "send_one"]
    assert all(any(mark in code for code in examples("confluent-kafka")) for mark in MARKS.values())


def test_aiokafkas_run_with_another_import() -> None:
    seen: list[tuple[Any, ...]] = []

    async def both(servers: str) -> None:
        enough = asyncio.Event()

        def show(*values: Any) -> None:
            seen.append(values)
            enough.set()

        consuming = asyncio.create_task(coroutine_of_aiokafkas("consume", servers, {"print": show}))
        await coroutine_of_aiokafkas("send_one", servers, {})
        await asyncio.wait((consuming, asyncio.create_task(enough.wait())), timeout=GUARD_S, return_when=asyncio.FIRST_COMPLETED)
        assert not consuming.done()
        consuming.cancel()
        await asyncio.wait((consuming,), timeout=GUARD_S)
        assert consuming.cancelled()

    with EmbeddedCluster() as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("my_topic", 1, 1), NewTopic("my_other_topic", 1, 1)]).check()
            admin.alter_group_offsets("my-group", {("my_topic", 0): OffsetAndMetadata(0)}).check()
        asyncio.run(both(cluster.bootstrap_servers))
    assert [values[:6] for values in seen] == [("consumed: ", "my_topic", 0, 0, None, b"Super message")]


class Enough(BaseException):
    """Ends a program that would go on for ever."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """In place of the package's registry client and its JSON serializer, which need a registry and more packages."""
    calls: list[Any] = []

    def serializer(schema: str, client: Any) -> Any:
        calls.append((json.loads(schema)["title"], client))
        return lambda value, context: calls.append((context.topic, context.field == "value")) or json.dumps(value).encode()

    for name, member, value in (("", "SchemaRegistryClient", lambda conf: conf["url"]), (".json_schema", "JSONSerializer", serializer)):
        module = ModuleType(f"confluent_kafka.schema_registry{name}")
        setattr(module, member, value)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


def test_confluent_kafkas_run_with_other_imports(registry: list[Any]) -> None:
    printed: list[str] = []
    users = [{"name": "Ann", "favorite_number": 42}, {"name": "Ben", "favorite_number": 7}]

    def until_two(text: str) -> None:
        printed.append(text)
        if len(printed) == 2:
            raise Enough

    with EmbeddedCluster() as cluster:
        reports: list[str] = []
        run_of_confluent_kafkas("producer", cluster.bootstrap_servers, {"some_data_source": users, "print": reports.append})
        with pytest.raises(Enough):
            run_of_confluent_kafkas("consumer", cluster.bootstrap_servers, names := {"print": until_two})
        names["c"].close()
        created: list[str] = []
        for _ in range(2):
            run_of_confluent_kafkas("admin", cluster.bootstrap_servers, {"print": created.append})
    assert reports == ["Message delivered to mytopic [0]"] * 2
    assert registry == [("User", "http://localhost:8081"), ("mytopic", True), ("mytopic", True)]
    assert printed == [f"Received message: {json.dumps(user)}" for user in users]
    assert created[:2] == ["Topic topic1 created", "Topic topic2 created"]
    assert [line.split(":")[0] for line in created[2:]] == ["Failed to create topic topic1", "Failed to create topic topic2"]
    assert all("TOPIC_ALREADY_EXISTS" in line for line in created[2:])


def test_the_one_over_asyncio() -> None:
    with EmbeddedCluster() as cluster:
        run_of_confluent_kafkas("asyncio", cluster.bootstrap_servers, {})
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
