"""Assigned partitions that their topic does not have.

An assignment may name them because the topic is about to grow and these metadata are old, by mistake, or by the million from a member that
lies. Nothing is asked about them, and no poll looks at them, until metadata have them.
"""

from __future__ import annotations

import logging
from collections import Counter

from kafkacore.consumer.subscription import PartitionState, SubscriptionState
from kafkacore.metadata import Metadata
from kafkacore.plurals import counted

log = logging.getLogger("kafkacore.consumer")


class LeftOut:
    """The partitions that wait for their topic to have them.

    Args:
        subscription: whose partitions.
        metadata: how many partitions topics have; asked for again while there are some that wait.
        retry_backoff_ms, retry_backoff_max_ms: between two of these questions, doubled with each.
    """

    def __init__(self, subscription: SubscriptionState, metadata: Metadata, *, retry_backoff_ms: int, retry_backoff_max_ms: int) -> None:
        self._subscription = subscription
        self._metadata = metadata
        self._first_ms, self._longest_ms = retry_backoff_ms, retry_backoff_max_ms
        self.states: dict[PartitionState, None] = {}
        self._warned: dict[str, bool] = {}  # topics that lack partitions -> whether the log says so
        self._wait_ms: int  # of those that wait, since `take`
        self._next_ms: int

    def clear(self) -> None:
        """All partitions are looked at again."""
        self.states.clear()

    def count(self, state: PartitionState) -> int | None:
        """How many partitions the topic has, if the partition is none of them; else None, and where nothing is known of the topic."""
        topic = self._metadata.snapshot.topics.get(state.tp.topic)
        if topic is None or topic.error is not None or state.tp.partition < topic.partition_count:
            return None
        return topic.partition_count if topic.partition(state.tp.partition) is None else None

    def take(self, state: PartitionState, *, asks_leader: bool) -> bool:
        """Leaves a partition out if its topic does not have it, or is not known yet and the leader is to be asked."""
        if not (asks_leader and state.tp.topic not in self._metadata.snapshot.topics) and self.count(state) is None:
            return False
        if not self.states:
            self._wait_ms = self._next_ms = 0
            self._warned.clear()
        self.states[state] = None
        self._warned.setdefault(state.tp.topic, False)
        self._subscription.unasked.pop(state, None)
        return True

    def look(self, state: PartitionState) -> None:
        """Metadata say something else about its topic."""
        if state in self.states and self.count(state) is None and state.tp.topic in self._metadata.snapshot.topics:
            del self.states[state]
            self._subscription.ask_again(state)

    def step(self, now_ms: int) -> None:
        """Asks for newer metadata, and warns once about what these leave out as well."""
        states = self.states
        while states and not (first := next(iter(states))).assigned:
            del states[first]
        if not states or now_ms < self._next_ms:
            return
        if self._wait_ms:
            self._warn()
        self._wait_ms = min(self._wait_ms * 2, self._longest_ms) or self._first_ms
        self._next_ms = now_ms + self._wait_ms
        self._metadata.request_update()

    def _warn(self) -> None:
        known = self._metadata.snapshot.topics
        topics = {topic for topic, warned in self._warned.items() if not warned and topic in known}
        if not topics:
            return
        for topic, several in Counter(state.tp.topic for state in self.states if state.assigned and state.tp.topic in topics).items():
            log.warning(
                "topic %s has %s: %s of the assignment beyond them left out until it has them",
                topic,
                counted(self._metadata.snapshot.partition_count(topic) or 0, "partition"),
                counted(several, "partition"),
            )
        self._warned.update(dict.fromkeys(topics, True))

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until metadata are asked for again."""
        return max(0, self._next_ms - now_ms) if self.states else None
