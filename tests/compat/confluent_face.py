"""What programs over confluent-kafka share: the modules of one package, a cluster, a topic."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Any

from tests.kit.waiting import until

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

    def open(self, client: Any) -> Any:
        """The client, which is closed with the case."""
        self.opened.append(client)
        return client

    def producer(self, **settings: Any) -> Any:
        return self.open(self.k.Producer({"bootstrap.servers": self.servers, "linger.ms": 1} | settings))

    def consumer(self, **settings: Any) -> Any:
        base = {"bootstrap.servers": self.servers, "group.id": self.group(), "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        return self.open(self.k.Consumer(base | settings))

    def reader(self, *places: Any, **settings: Any) -> Any:
        made = self.consumer(**settings)
        made.assign(list(places) or [self.tp()])
        return made

    def read(self, consumer: Any, count: int) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < end:
            if (message := consumer.poll(1)) is not None:
                found.append(message)
        return found

    def member(self, **settings: Any) -> Any:
        """A consumer that has been assigned the topic."""
        consumer = self.consumer(**settings)
        consumer.subscribe([self.topic])
        until(consumer.assignment, "the topic is assigned", consumer)
        return consumer

    def admin(self, **settings: Any) -> Any:
        return self.a.AdminClient({"bootstrap.servers": self.servers} | settings)

    def tp(self, partition: int = 0, offset: int = -1001) -> Any:
        return self.k.TopicPartition(self.topic, partition, offset)

    def resource(self, name: str | None = None, **more: Any) -> Any:
        return self.a.ConfigResource("topic", self.topic if name is None else name, **more)

    def fill(self, count: int = 3, partition: int = 0) -> None:
        producer = self.producer()
        for nth in range(count):
            producer.produce(self.topic, b"v%d" % nth, b"k", partition, timestamp=NOW_MS + nth)
        assert producer.flush(WAIT_S) == 0

    def group(self) -> str:
        return f"group-of-{self.topic}"

    def results(self, futures: dict[Any, Future[Any]]) -> dict[str, Any]:
        """What each future gives, by what its key is shown as."""
        return {self.shown(key): self.result(future) for key, future in futures.items()}

    def result(self, future: Future[Any]) -> Any:
        return self.given(lambda: self.shown(future.result(WAIT_S)))

    def given(self, fn: Callable[[], Any]) -> Any:
        """What a call gives, or the class of what it raises, with the name of its code."""
        try:
            return fn()
        except self.k.KafkaException as error:
            return type(error).__name__, error.args[0].name()
        except Exception as error:
            return (type(error).__name__,)

    def raised(self, fn: Callable[[], Any]) -> Any:
        """The same, for calls that should raise."""
        return self.given(lambda: ("gave", fn()))

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
