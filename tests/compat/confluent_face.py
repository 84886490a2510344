"""What cases over confluent-kafka's admin client and serializers share: the modules of one package, a cluster, a topic."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Any

CASES: list[Callable[[Face], Any]] = []
NOW_MS = 1_700_000_000_000
WAIT_S = 60.0
HIDDEN = ("port", "orig_broker_id", "orig_broker_name", "restype_int", "resource_pattern_type_int", "operation_int", "permission_type_int")


class Face:
    """One package, and where its clients connect."""

    def __init__(self, package: str, servers: str, topic: str) -> None:
        self.k: Any = importlib.import_module(package)
        self.a: Any = importlib.import_module(f"{package}.admin")
        self.error: Any = importlib.import_module(f"{package}.error")
        self.s: Any = importlib.import_module(f"{package}.serialization")
        self.servers, self.topic = servers, topic
        self.opened: list[Any] = []

    def admin(self, **settings: Any) -> Any:
        return self.a.AdminClient({"bootstrap.servers": self.servers} | settings)

    def tp(self, partition: int = 0, offset: int = -1001) -> Any:
        return self.k.TopicPartition(self.topic, partition, offset)

    def resource(self, name: str | None = None, **more: Any) -> Any:
        return self.a.ConfigResource("topic", self.topic if name is None else name, **more)

    def opened_one(self, client: Any) -> Any:
        self.opened.append(client)
        return client

    def fill(self, count: int, partition: int = 0) -> None:
        producer = self.opened_one(self.k.Producer({"bootstrap.servers": self.servers, "linger.ms": 1}))
        for nth in range(count):
            producer.produce(self.topic, b"v%d" % nth, partition=partition, timestamp=NOW_MS + nth)
        assert producer.flush(WAIT_S) == 0

    def member(self, group: str, **settings: Any) -> Any:
        """A consumer that has been assigned the topic."""
        base = {"bootstrap.servers": self.servers, "group.id": group, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        consumer = self.opened_one(self.k.Consumer(base | settings))
        consumer.subscribe([self.topic])
        end = time.monotonic() + WAIT_S
        while not consumer.assignment() and time.monotonic() < end:
            consumer.poll(0.05)
        return consumer

    def group(self) -> str:
        return f"group-of-{self.topic}"

    def results(self, futures: dict[Any, Future[Any]]) -> dict[str, Any]:
        """What each future gives, by what its key is shown as."""
        return {self.shown(key): self.result(future) for key, future in futures.items()}

    def result(self, future: Future[Any]) -> Any:
        return self.raised(lambda: self.shown(future.result(WAIT_S)))

    def raised(self, fn: Callable[[], Any]) -> Any:
        """What a call gives, or the class of what it raises, with the name of its code."""
        try:
            return fn()
        except self.k.KafkaException as error:
            return type(error).__name__, error.args[0].name()
        except Exception as error:
            return (type(error).__name__,)

    def shown(self, value: Any) -> Any:
        """Objects as the names of their classes with their fields; what differs from run to run left out."""
        if isinstance(value, Enum):
            return str(value)
        if isinstance(value, self.k.KafkaError):
            return "error", value.name()
        if isinstance(value, self.k.TopicPartition):
            return str((value.topic, value.partition, value.offset, value.leader_epoch, value.error and value.error.name()))
        if isinstance(value, (self.a.ConfigResource, self.a.AclBinding, self.k.Uuid)):
            return type(value).__name__ if isinstance(value, self.k.Uuid) else repr(value)
        if isinstance(value, (list, tuple, set)):
            return [self.shown(each) for each in value]
        if isinstance(value, dict):
            return {str(self.shown(key)): self.shown(each) for key, each in value.items()}
        if hasattr(value, "__dict__") and not isinstance(value, type):
            return type(value).__name__, {name: self.shown(each) for name, each in vars(value).items() if name not in HIDDEN}
        return value

    def counted(self, admin: Any, counts: dict[str, int]) -> dict[str, int]:
        """How many partitions topics have, once every broker has heard of what was changed; 0 for a topic that is not there."""

        def look() -> dict[str, int]:
            topics = admin.list_topics(timeout=WAIT_S).topics
            return {name: len(topics[name].partitions) if name in topics else 0 for name in counts}

        return self.once(look, counts.__eq__)

    def once(self, look: Callable[[], Any], is_there: Callable[[Any], Any]) -> Any:
        """What is seen once a change has reached the broker: Kafka's hear of it after the answer."""
        end = time.monotonic() + WAIT_S
        while not is_there(found := look()) and time.monotonic() < end:
            pass
        return found

    def close(self) -> None:
        for client in reversed(self.opened):
            client.close()


def case(fn: Callable[[Face], Any]) -> Callable[[Face], Any]:
    CASES.append(fn)
    return fn
