"""Producers, consumers and a transactional producer, with tokens and sessions that live for a few seconds.

Faults come at once, often two beside each other: leaders and coordinators move, brokers die, the network fails, credentials expire.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from kafkacore import KafkaConsumer, TopicPartition, errors
from tests.soak.credentials import PLAIN_PASSWORD, PLAIN_USER, Credentials, plain
from tests.soak.faults import Faults
from tests.soak.frame import BROKERS, NEVER_EXPECTED, WAIT_S, Actor, Soak
from tests.soak.plain_clients import (
    PARTITIONS,
    PLACES,
    TOPIC,
    OurReader,
    OurWriter,
    TransactionalWriter,
)

TOKEN_LIFE_S = 4.0
ROUND_S = 15.0
TOPICS = {TOPIC: PARTITIONS}
CONFIG = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", "connections.max.reauth.ms": 3_000}
OPTIONS = {"users": {PLAIN_USER: PLAIN_PASSWORD}, "faults": True}
KINDS = {
    "move leader": 5,
    "move transaction coordinator": 3,
    "stop broker": 2,
    "kill broker": 2,
    "pause broker": 2,
    "isolate": 4,
    "delay": 2,
    "cut": 2,
    "lose answers": 2,
    "tokens fail": 3,
    "rotate password": 3,
}


class PlainSoak(Soak):
    """A run with credentials."""

    name = "plain"
    topics, config, cluster_options = TOPICS, CONFIG, OPTIONS
    never_expected = (*NEVER_EXPECTED, errors.OutOfOrderSequence, errors.DuplicateSequence, errors.ProducerFenced)

    ends: dict[TopicPartition, int] | None = None  # set when all writers have ended

    def make_faults(self) -> Faults:
        own = {"tokens fail": self._tokens_fail, "rotate password": self._rotate_password}
        return Faults(
            self.cluster, self.rng, self.find, KINDS, self.kinds, own, self.topics, lost=("Produce",), most_away=2, most_delay_ms=400
        )

    def open(self, stack: contextlib.ExitStack) -> None:
        self.credentials = Credentials(self.servers, TOKEN_LIFE_S)
        stack.callback(self.credentials.close)

    def begin(self) -> None:
        self.writers: list[Actor] = [
            OurWriter(self, "writer-endpoint", "endpoint"),
            OurWriter(self, "writer-scram", "scram", delivery_timeout_ms=60_000),
            OurWriter(self, "writer-many", "provider", many=True, delivery_timeout_ms=12_000),
        ]
        self.transactional = TransactionalWriter(self, "writer-transactions")
        self.readers = [
            OurReader(self, "reader-endpoint", "endpoint", committed=True, subscribes=False),
            OurReader(self, "reader-provider", "provider", committed=False, subscribes=False, columns=True),
            OurReader(self, "reader-scram", "scram", committed=True, subscribes=True),
            OurReader(self, "reader-plain", "plain", committed=False, subscribes=True, columns=True),
        ]
        for actor in (*self.readers, *self.writers, self.transactional):
            actor.start()
        self.come_back()  # all work before the first fault
        self.slowest_s.clear()

    def play(self, elapsed_s: float) -> None:
        end = time.monotonic() + min(ROUND_S, self.seconds - elapsed_s)
        while time.monotonic() < end:
            for kind in self.faults.choose(self.rng.choice((1, 2, 2))):
                self.faults.begin(kind)
                self.rest(self.rng.uniform(0.1, 0.8))
            self.rest(self.rng.uniform(0.3, 3.0))
            self.faults.end()
        self.credentials.passwords.hand_over()

    def out_of_sync(self) -> list[str]:
        return [
            f"{topic}-{partition}"
            for topic, partitions in self.cluster.topics().items()
            for partition in range(partitions)
            if len(self.cluster.isr(topic, partition)) < BROKERS
        ]

    def settle(self) -> None:
        """Ends the writers, and lets readers old and fresh read all there is."""
        self.written.set()
        self.join([*self.writers, self.transactional], 2 * WAIT_S)
        with KafkaConsumer(**plain(self.servers)) as consumer:
            self.ends = consumer.end_offsets(PLACES, WAIT_S)
        self.readers += [
            OurReader(self, "fresh-uncommitted", "plain", committed=False, subscribes=False, columns=True).start(),
            OurReader(self, "fresh-committed", "endpoint", committed=True, subscribes=True).start(),
        ]
        self.join(self.readers, 2 * WAIT_S)

    def release(self) -> None:
        self.ends = {} if self.ends is None else self.ends
        super().release()

    def figures(self) -> dict[str, Any]:
        return {
            "refused": sum(send.failed_at is not None for send in self.history.sends),
            "transactions": {"committed": self.transactional.committed, "aborted": self.transactional.aborted},
            "shown": {actor.name: actor.seen for actor in self.readers},
            "token_requests": dict(self.credentials.tokens.answers),
        }

    # ---- faults

    def _tokens_fail(self) -> Callable[[], object]:
        self.credentials.tokens.fail(self.rng.choice(("fails", "fails", "hangs")))
        self.rest(self.rng.uniform(0.0, 1.5 * TOKEN_LIFE_S))
        return self.credentials.tokens.work

    def _rotate_password(self) -> Callable[[], object]:
        passwords = self.credentials.passwords
        before = passwords.current
        passwords.rotate()
        self.rest(self.rng.uniform(0.0, 4.0))
        if self.rng.random() < 0.5:
            return passwords.hand_over
        return lambda: passwords.set(before)  # the clients come back by themselves
