"""The ports of docs/moving.md: the examples of other clients' READMEs, over the native clients."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded

TEXT = (Path(__file__).parent.parent / "docs" / "moving.md").read_text()
PORTS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


cluster = embedded()


@pytest.fixture
def printed() -> list[str]:
    return []


@pytest.fixture
def ports(printed: list[str]) -> dict[str, Any]:
    """The functions of the page; each program has names of its own."""
    functions: dict[str, Any] = {}
    for code in PORTS:
        names: dict[str, Any] = {"print": lambda *words: printed.append(" ".join(map(str, words)))}
        exec(code, names)
        functions |= {name: each for name, each in names.items() if getattr(each, "__globals__", None) is names}
    return functions


def test_confluent_kafka_s(cluster: EmbeddedCluster, ports: dict[str, Any], printed: list[str]) -> None:
    servers = cluster.bootstrap_servers
    ports["confluent_producer"](servers, ["one", "two"])
    assert printed == ["Message delivered to mytopic [0]"] * 2
    ports["delivery_report"](None, ValueError("why"))
    assert printed[-1] == "Message delivery failed: why"
    received = []

    def until_two(text: str) -> None:
        received.append(text)
        if len(received) == 2:
            raise KeyboardInterrupt

    ports["confluent_consumer"].__globals__["print"] = until_two
    ports["confluent_consumer"](servers)
    assert received == ["Received message: one", "Received message: two"]


def test_confluent_kafka_s_administration(cluster: EmbeddedCluster, ports: dict[str, Any], printed: list[str]) -> None:
    cluster.create_topic("topic2")
    ports["confluent_admin"](cluster.bootstrap_servers)
    assert printed[0] == "Topic topic1 created" and printed[1].startswith("Failed to create topic topic2: TOPIC_ALREADY_EXISTS (36)")


def test_aiokafka_s(cluster: EmbeddedCluster, ports: dict[str, Any], printed: list[str]) -> None:
    async def both() -> None:
        await ports["send_one"](cluster.bootstrap_servers)
        consumed = asyncio.Event()
        ports["consume"].__globals__["print"] = lambda *words: (printed.append(" ".join(map(str, words))), consumed.set())
        cluster.create_topic("my_other_topic")
        task = asyncio.create_task(ports["consume"](cluster.bootstrap_servers))
        await asyncio.wait_for(consumed.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(both())
    (line,) = printed
    assert re.fullmatch(r"consumed:  my_topic 0 0 None b'Super message' \d{13}", line)


def test_kafka_python_s(cluster: EmbeddedCluster, ports: dict[str, Any], printed: list[str]) -> None:
    ports["kafka_python_producer"](cluster.bootstrap_servers)
    values = [each.value for each in cluster.records("foobar")]
    assert values == [b"some_message_bytes"] * 100 + [b"another_message", b"bar"] + [b"msg %d" % i for i in range(1000)]
    assert [(each.key, each.value) for each in cluster.records("flipflap")] == [(b"ping", b"1234")]
    ports["kafka_python_consumer"](cluster.bootstrap_servers)
    assert (printed[0][:50], printed[1]) == ("ConsumerRecord(topic='foobar', partition=0, offset", "0")


def test_what_the_tables_name_is_there() -> None:
    from kafkacore import KafkaConsumer, KafkaProducer

    ours = "\n".join(line.split("|")[2] for line in TEXT.splitlines() if line.startswith("| `"))
    called = set(re.findall(r"`(?:\w+ in )?(?:while records := )?(c|p|consumer)\.(\w+)", ours))
    assert len(called) > 10
    missing = [f"{who}.{name}" for who, name in called if not hasattr(KafkaProducer if who == "p" else KafkaConsumer, name)]
    assert not missing
