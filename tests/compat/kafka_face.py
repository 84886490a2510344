"""What programs do with kafka-python, as functions of the package: each gives what the program sees, so that two packages can be compared.

A case gets `Face`: the classes of one package, a cluster, and a topic of its own with two partitions.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

NOW_MS = 1_700_000_000_000


class Face:
    """One package, and where its clients connect."""

    def __init__(self, package: str, servers: str, topic: str) -> None:
        self.package: ModuleType = importlib.import_module(package)
        self.errors = importlib.import_module(f"{package}.errors")
        self.structs = importlib.import_module(f"{package}.structs")
        self.admin_module = importlib.import_module(f"{package}.admin")
        self.serializer = importlib.import_module(f"{package}.serializer")
        self.servers, self.topic = servers, topic
        self.group = f"group-of-{topic}"
        self.opened: list[Any] = []

    def tp(self, partition: int = 0) -> Any:
        return self.package.TopicPartition(self.topic, partition)

    def open(self, client: Any) -> Any:
        self.opened.append(client)
        return client

    def producer(self, **settings: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kafka-python's, about serializers that are functions
            return self.open(self.package.KafkaProducer(bootstrap_servers=self.servers, **settings))

    def consumer(self, *topics: str, **settings: Any) -> Any:
        settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 15_000, **settings}
        return self.open(self.package.KafkaConsumer(*topics, bootstrap_servers=self.servers, **settings))

    def reader(self, *partitions: int, **settings: Any) -> Any:
        """A consumer without a group, with these partitions assigned."""
        consumer = self.consumer(**settings)
        consumer.assign([self.tp(each) for each in partitions or (0,)])
        return consumer

    def admin(self) -> Any:
        return self.open(self.package.KafkaAdminClient(bootstrap_servers=self.servers))

    def fill(self, count: int, partition: int = 0, **more: Any) -> None:
        producer = self.producer()
        for nth in range(count):
            producer.send(self.topic, b"v%d" % nth, partition=partition, timestamp_ms=NOW_MS + nth * 1000, **more)
        producer.flush(20)

    def polled(self, consumer: Any, count: int) -> list[Any]:
        """So many records by poll, in the order of their partitions."""
        found: list[Any] = []
        for _ in range(200):
            for records in consumer.poll(500).values():
                found += records
            if len(found) >= count:
                break
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def polled_until_error(self, consumer: Any) -> list[Any]:
        """Records by poll, until one raises or four are there."""
        found: list[Any] = []
        try:
            while len(found) < 2:
                for records in consumer.poll(500).values():
                    found += records
        except LookupError:
            pass
        return found

    def raised(self, fn: Callable[[], Any]) -> str:
        """The name of what a call raises, or what it gives."""
        try:
            return f"gave {fn()!r}"
        except Exception as error:
            return type(error).__name__

    def close(self) -> None:
        for client in reversed(self.opened):
            client.close()
