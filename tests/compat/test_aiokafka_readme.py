"""The programs of aiokafka's own README, out of the installed package, with one import line changed."""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import textwrap
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, NewTopic, OffsetAndMetadata
from kafkacore.testing import EmbeddedCluster

pytest.importorskip("aiokafka", minversion="0.14")
GUARD_S = 90


def examples() -> dict[str, str]:
    """By the name of its coroutine."""
    metadata = importlib.metadata.metadata("aiokafka")
    readme = str(metadata.get_payload() or metadata["Description"])
    blocks = [textwrap.dedent(block) for block in re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", readme)]
    return {re.findall(r"async def (\w+)", block)[0]: block for block in blocks}


def program(name: str, servers: str, names: dict[str, Any]) -> Any:
    """The coroutine of an example, which the test runs in place of the example's last line."""
    code = examples()[name]
    changed = code.replace("from aiokafka import", "from kafkacore.compat.aiokafka import").replace("localhost:9092", servers)
    assert changed.count("kafkacore.compat") == 1
    assert changed.count(servers) == 1
    body, run = changed.rstrip().rsplit("\n", 1)
    assert run == f"asyncio.run({name}())"
    exec(compile(body, "README", "exec"), names)
    return names[name]()


def test_there_are_two() -> None:
    assert set(examples()) == {"send_one", "consume"}


def test_they_run_with_another_import() -> None:
    seen: list[tuple[Any, ...]] = []

    async def both(servers: str) -> None:
        enough = asyncio.Event()

        def show(*values: Any) -> None:
            seen.append(values)
            enough.set()

        consuming = asyncio.create_task(program("consume", servers, {"print": show}))
        await program("send_one", servers, {})
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
