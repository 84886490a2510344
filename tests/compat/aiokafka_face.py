"""What programs do with aiokafka, as coroutines over a package: each gives what the program sees, so that two packages can be compared.

A case gets `Face`: the classes of one package, a cluster, and a topic of its own with two partitions.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

from kafkacore.testing import EmbeddedCluster
from tests.kit import loops
from tests.kit.clusters import Topics, make_topics

NOW_MS = 1_700_000_000_000
GUARD_S = 90
QUICK = {"fetch_max_wait_ms": 50, "session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "retry_backoff_ms": 20}


class Face:
    """One package, and where its clients connect."""

    def __init__(self, package: str, servers: str, topic: str) -> None:
        self.package: ModuleType = importlib.import_module(package)
        self.name = package
        self.errors = self.module("errors")
        self.servers, self.topic = servers, topic
        self.group = f"group-of-{topic}"
        self.opened: list[Any] = []

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.name}.{name}")

    def tp(self, partition: int = 0) -> Any:
        return self.package.TopicPartition(self.topic, partition)

    def new_producer(self, **settings: Any) -> Any:
        made = self.package.AIOKafkaProducer(**{"bootstrap_servers": self.servers, "retry_backoff_ms": 20, **settings})
        self.opened.append(made)
        return made

    async def producer(self, **settings: Any) -> Any:
        made = self.new_producer(**settings)
        await made.start()
        return made

    def new_consumer(self, *topics: str, **settings: Any) -> Any:
        settings = {"bootstrap_servers": self.servers, "auto_offset_reset": "earliest", **QUICK, **settings}
        made = self.package.AIOKafkaConsumer(*topics, **settings)
        self.opened.append(made)
        return made

    async def consumer(self, *topics: str, **settings: Any) -> Any:
        made = self.new_consumer(*topics, **settings)
        await made.start()
        return made

    async def member(self, **settings: Any) -> Any:
        """A member of the case's group, subscribed to its topic."""
        return await self.consumer(self.topic, **{"group_id": self.group, "enable_auto_commit": False, **settings})

    async def reader(self, *partitions: int, **settings: Any) -> Any:
        """A consumer with these partitions assigned."""
        made = await self.consumer(**settings)
        made.assign([self.tp(each) for each in partitions or (0,)])
        return made

    async def fill(self, count: int, partition: int = 0, **more: Any) -> None:
        producer = await self.producer()
        for nth in range(count):
            await producer.send(self.topic, b"v%d" % nth, partition=partition, timestamp_ms=NOW_MS + nth * 1000, **more)
        await producer.stop()

    async def polled(self, consumer: Any, count: int, *partitions: Any) -> list[Any]:
        """So many records by getmany, in the order of their partitions."""
        found: list[Any] = []
        while len(found) < count:
            for records in (await consumer.getmany(*partitions, timeout_ms=2_000)).values():
                found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def raised(self, fn: Callable[[], Any]) -> Any:
        """The name of what a call raises, or what it gives."""
        try:
            found = fn()
            return repr(await found if asyncio.iscoroutine(found) or asyncio.isfuture(found) else found)
        except Exception as error:
            return type(error).__name__

    async def admin(self) -> Any:
        made = self.module("admin").AIOKafkaAdminClient(bootstrap_servers=self.servers)
        self.opened.append(made)
        await made.start()
        return made

    async def close(self) -> None:
        for client in reversed(self.opened):
            await (client.close if hasattr(client, "close") else client.stop)()


def beside_cluster(test: Callable[[str], Coroutine[Any, Any, None]], topics: Topics, **config: Any) -> None:
    """Runs a coroutine that gets the addresses of a cluster with these topics."""
    with EmbeddedCluster(config={"group_min_session_timeout_ms": 500, **config}) as cluster:
        make_topics(cluster, topics)
        loops.run(lambda: test(cluster.bootstrap_servers))
