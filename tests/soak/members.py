"""A member of the group soak, and what history calls the partitions of a topic that is created again."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from kafkacore import KafkaConsumer, SubscriptionPattern, TopicPartition, errors
from kafkacore.consumer import RebalanceListener
from kafkacore.errors import KafkaError
from kafkacore.records import ConsumerRecord
from tests.soak.frame import WAIT_S, Actor

if TYPE_CHECKING:
    from tests.soak.group import GroupSoak

TOPIC, PARTITIONS, GROUP = "group-soak", 6, "group-soak"
AGAIN, AGAIN_PARTITIONS = "group-soak-again", 2
MAX_POLL_INTERVAL_MS = 1_500
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range", "session_timeout_ms": 2_000, "heartbeat_interval_ms": 100},
    "cooperative-sticky": {
        "partition_assignment_strategy": "cooperative-sticky",
        "session_timeout_ms": 2_000,
        "heartbeat_interval_ms": 100,
    },
    "consumer": {"group_protocol": "consumer"},
}
CLIENT: dict[str, Any] = {"retry_backoff_ms": 20, "request_timeout_ms": 2_000, "reconnect_backoff_max_ms": 200}

Rows = Mapping[TopicPartition, list[ConsumerRecord]]
Place = tuple[str, int]


def place_of(record: ConsumerRecord) -> Place:
    """Where history has a record: of the topic that is created again the generation that the record names."""
    if record.topic != AGAIN:
        return record.topic, record.partition
    return generation_name(int(record.value.split(b":")[0])), record.partition


def generation_name(generation: int) -> str:
    return f"{AGAIN}#{generation}"


class SoakMember(Actor, RebalanceListener):
    """A member.

    Args:
        soak: the run that it is part of.
        name: its name in the history.
        auto: commits by itself; else after each poll, by turns at once and in the background.
    """

    def __init__(self, soak: GroupSoak, name: str, auto: bool) -> None:
        super().__init__(soak, name)
        self.auto = auto
        self.member = soak.group.member(name)
        self.leaving = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.consumer: KafkaConsumer
        self.next: dict[TopicPartition, int] = {}  # processed and not committed
        self.places: dict[TopicPartition, Place | None] = {}  # owned, by history's names; None before a record says the generation
        self._unprocessed: Rows = {}
        self._turn = 0

    def leave(self) -> None:
        self.goes_on.set()
        self.leaving.set()

    def run(self) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=self.soak.servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=self.auto,
            auto_commit_interval_ms=20,
            max_poll_records=20,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            default_api_timeout_ms=3_000,
            metadata_max_age_ms=500,  # by which classic members see new topics of a pattern
            **CLIENT,
            **PROTOCOLS[self.soak.protocol],
        )
        try:
            self._subscribe()
            while not self.leaving.is_set():
                self._try(self._step)
                self.goes_on.wait(WAIT_S)
                self._process()
                self._try(self._commit)
        finally:
            self._try(lambda: self.consumer.close(10))

    def _subscribe(self) -> None:
        match self.soak.subscribes:
            case "names":
                self.consumer.subscribe([TOPIC, AGAIN], listener=self)
            case "pattern":
                self.consumer.subscribe(pattern=re.compile(f"{TOPIC}.*"), listener=self)
            case _:
                self.consumer.subscribe(pattern=SubscriptionPattern(f"{TOPIC}.*"), listener=self)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self.soak.count(self.name, error)

    def _step(self) -> None:
        rows = self.poll()
        for tp, records in rows.items():
            for place, of_topic in itertools.groupby(records, place_of):
                if tp in self.places and self.places[tp] != place:
                    self._own(tp, place)
                self.member.polled(*place, [(record.offset, record.value) for record in of_topic])
        self.soak.counts["handed out"] += sum(map(len, rows.values()))
        self.handle(rows)

    def poll(self) -> Rows:
        """What the consumer hands out."""
        return self.consumer.poll(0.1)

    def handle(self, rows: Rows) -> None:
        """What the application does with it: the work is done before the next poll, and in its own time."""
        self._unprocessed = rows
        if self.auto and rows and self.soak.counts["handed out"] % 4 == 0:
            self.soak.wait_for_looks()  # work that takes long enough to see what is committed meanwhile

    def _process(self) -> None:
        rows, self._unprocessed = self._unprocessed, {}
        for tp, records in rows.items():
            self.member.processed(*place_of(records[-1]), records[-1].offset + 1)
            if not self.auto:
                self.next[tp] = records[-1].offset + 1
            self.soak.processed(records)

    def _commit(self) -> None:
        """By turns in the background; what was revoked meanwhile is not in `next` any more."""
        if not self.next:
            return
        self._turn += 1
        offsets = dict(self.next)
        call = self.member.commit(self._by_place(offsets))
        if self._turn % 3 == 0:
            self.next.clear()
            places = dict(self.places)

            def answered(_: object, error: KafkaError | None) -> None:
                if error is None:
                    call.taken()
                    return
                for tp, offset in offsets.items():  # a rebalance refuses it, for example: with the next commit
                    if tp in places and self.places.get(tp) == places[tp]:
                        self.next.setdefault(tp, offset)

            self.consumer.commit_async(offsets, callback=answered)
            return
        try:
            self.consumer.commit(offsets)
        except errors.UnknownTopicOrPartition as error:
            if error.topic != AGAIN:
                raise
            self.soak.counts["commits of the topic before"] += 1
            for tp in [tp for tp in self.next if tp.topic == AGAIN]:  # the others are committed with the next call
                del self.next[tp]
            return
        call.taken()
        self.soak.counts["commits"] += 1
        self.next.clear()

    def _by_place(self, offsets: Mapping[TopicPartition, int]) -> dict[Place, int]:
        return {place: offset for tp, offset in offsets.items() if (place := self.places.get(tp)) is not None}

    def _own(self, tp: TopicPartition, place: Place) -> None:
        """A record says which generation of the topic this partition is of."""
        before = self.places[tp]
        if before is not None:
            self.member.revoked([before])
        self.member.assigned([place])
        self.places[tp] = place

    # ---- listener

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.soak.counts["assigned"] += len(partitions)
        with self.soak.moving():
            self.places |= dict.fromkeys(partitions)
        for tp in partitions:
            if tp.topic != AGAIN:
                self._own(tp, tp)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.soak.counts["revoked"] += len(partitions)
        mine = {tp: offset for tp, offset in self.next.items() if tp in partitions}
        try:
            if mine:
                call = self.member.commit(self._by_place(mine))
                self.consumer.commit(mine)
                call.taken()
        except KafkaError as error:
            self.soak.count(self.name, error)
        finally:
            self.member.revoked(self._forget(partitions))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.soak.counts["lost"] += len(partitions)
        self.member.lost(self._forget(partitions))

    def _forget(self, partitions: Collection[TopicPartition]) -> list[Place]:
        """Returns what history calls those that it knows as this member's."""
        for tp in partitions:
            self.next.pop(tp, None)
        return [place for tp in partitions if (place := self.places.pop(tp)) is not None]
