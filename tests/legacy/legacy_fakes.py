"""A cluster for event handlers without a network: what it says of topics is set by hand, and it keeps what it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.legacy.brokers import Failure
from kafkacore.legacy.event_handler import DefaultEventHandler
from kafkacore.legacy.message_set import ByteBufferMessageSet
from kafkacore.metadata import PartitionInfo
from kafkacore.types import TopicPartition

NO_LEADER = -1


class FakeBrokers:
    """Args:
    clock: is moved by pauses.
    **leaders: per topic the leader of each partition, -1 for none.
    """

    def __init__(self, clock: ManualClock, **leaders: list[int]) -> None:
        self.clock = clock
        self.leaders: dict[str, list[int]] = dict(leaders)
        self.calls: list[tuple[str, Any]] = []
        self.failures: list[dict[TopicPartition, Failure]] = []
        """What fails in the next calls of produce; nothing when it is empty."""
        self.on_refresh: Any = lambda: None
        self.closed = False

    def partitions(self, topic: str) -> list[PartitionInfo]:
        if topic not in self.leaders:
            raise errors.UnknownTopicOrPartition("not here", topic=topic)
        return [PartitionInfo(index, leader) for index, leader in enumerate(self.leaders[topic])]

    def refresh(self, topics: Iterable[str]) -> None:
        self.calls.append(("refresh", sorted(topics)))
        self.on_refresh()

    def produce(self, requests: Mapping[int, Mapping[TopicPartition, ByteBufferMessageSet]]) -> dict[TopicPartition, Failure]:
        self.calls.append(("produce", {broker: dict(sets) for broker, sets in requests.items()}))
        return self.failures.pop(0) if self.failures else {}

    def pause(self, ms: int) -> None:
        self.calls.append(("pause", ms))
        self.clock.advance(ms)

    def close(self) -> None:
        self.closed = True

    @property
    def names(self) -> list[str]:
        """The calls by name."""
        return [name for name, _ in self.calls]

    @property
    def produced(self) -> list[dict[int, dict[TopicPartition, list[tuple[bytes | None, bytes | None]]]]]:
        """What was sent, call by call, as (key, value) pairs."""
        return [
            {broker: {tp: [(m.key, m.value) for m in one] for tp, one in sets.items()} for broker, sets in what.items()}
            for name, what in self.calls
            if name == "produce"
        ]

    def sets(self) -> dict[TopicPartition, ByteBufferMessageSet]:
        """The message sets of the only call of produce."""
        (what,) = [what for name, what in self.calls if name == "produce"]
        return {tp: one for sets in what.values() for tp, one in sets.items()}


def handler_of(brokers: FakeBrokers, **settings: Any) -> DefaultEventHandler:
    """A handler whose random choice is the first partition that has a leader, unless `choose` says otherwise."""
    extra = {name: settings.pop(name) for name in ("choose", "on_serialization_error") if name in settings}
    extra.setdefault("choose", lambda available: available[0])
    return DefaultEventHandler(bootstrap_servers="nowhere:1", clock=brokers.clock, brokers=brokers, **extra, **settings)
