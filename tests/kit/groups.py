"""Members of groups: what makes them, and what their listeners hear.

A module on both faces (`client_face`) lists this one in its `FACED`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from kafkacore import KafkaAdminClient, KafkaConsumer, RebalanceListener
from kafkacore.consumer.group.sticky import CooperativeStickyAssignor
from tests.kit.waiting import until

EVERY_MS = 50
"""Between heartbeats of classic members: a rebalance is heard of soon."""

MEMBER = """
import json, os, signal, sys, threading, time
from kafkacore import errors
from kafkacore.consumer import KafkaConsumer, RebalanceListener

topic, settings = sys.argv[1], json.loads(sys.argv[2])

heard = []

def say(*what):
    heard.append(what[0])
    print(json.dumps(what), flush=True)

class Says(RebalanceListener):
    def on_partitions_assigned(self, partitions):
        say("assigned", len(partitions))
    def on_partitions_revoked(self, partitions):
        say("revoked", len(partitions))
    def on_partitions_lost(self, partitions):
        say("lost", len(partitions))

def member(**more):
    consumer = KafkaConsumer(**{"auto_offset_reset": "earliest", **settings, **more})
    consumer.subscribe([topic], listener=Says())
    return consumer

def read(consumer):
    for _ in range(1200):
        if found := consumer.poll(0.1, max_records=10):
            return [(r.partition, r.offset) for records in found.values() for r in records]

def joined(**more):
    consumer = member(**more)
    read(consumer)
    return consumer
"""
"""A program for `programs.Saying` begins with this: a member that says what its listener hears."""


class Members:
    """Makes members of one topic's group; they are closed at the end.

    Attributes:
        topic: what they subscribe to; its group is named after it.
        made: all of them.
    """

    def __init__(self, servers: str, topic: str, **settings: Any) -> None:
        self.topic, self.made = topic, list[KafkaConsumer]()
        self.settings = {"bootstrap_servers": servers, "group_id": f"g-{topic}", "auto_offset_reset": "earliest", **settings}

    def __call__(self, listener: Any = None, **settings: Any) -> KafkaConsumer:
        given = {**self.settings, **settings}
        if given.get("group_protocol", "classic") == "classic":
            given.setdefault("heartbeat_interval_ms", EVERY_MS)
        consumer = KafkaConsumer(**given)
        self.made.append(consumer)
        consumer.subscribe([self.topic], listener=listener)
        return consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self.made:
            consumer.close(10)


class Heard(RebalanceListener):
    """Notes each call, with the numbers of its partitions, and does something in it."""

    def __init__(self, **does: Callable[[Any], object]) -> None:
        self.does = does
        self.calls: list[tuple[str, list[int]]] = []

    @property
    def kinds(self) -> list[str]:
        """Of the calls that named a partition."""
        return [kind for kind, partitions in self.calls if partitions]

    def _note(self, kind: str, partitions: Any) -> None:
        self.calls.append((kind, [tp.partition for tp in partitions]))
        if kind in self.does:
            self.does[kind](partitions)

    def on_partitions_assigned(self, partitions: Any) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Any) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Any) -> None:
        self._note("lost", partitions)


def joined(consumer: KafkaConsumer, count: int = 1) -> KafkaConsumer:
    """Once it has so many partitions; a poll hands out one record at most."""

    def look() -> bool:
        consumer.poll(0.05, max_records=1)
        return len(consumer.assignment()) >= count

    until(look, "it joins", every_s=0)
    return consumer


def until_polled(look: Callable[[], Any], *consumers: KafkaConsumer) -> Any:
    """Asks again until the answer is true; polls these consumers in between."""
    return until(look, "what the group shows in the end", *consumers)


def committed_offsets(servers: str, group: str) -> dict[int, int]:
    """The committed offsets of a group that reads one topic, by partition."""
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        return {tp.partition: found.offset for tp, found in admin.list_group_offsets(group).items() if found is not None}


class Whole(CooperativeStickyAssignor):
    """What members are to have in the end, with what others have still to give up."""

    def hand_out(self, given: Any, owners: Any) -> Any:
        return given
