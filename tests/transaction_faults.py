"""What goes wrong in tests/soak_transactions.py: faults that begin in the middle of a transaction's requests, and how they end.

A seed decides a plan: at which request (the third EndTxn) what happens (its answer is lost, its coordinator moves). Faults that a broker's
own thread cannot bring about go to a thread of their own, while the request waits for a moment.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from kafkacore import protocol
from kafkacore.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from kafkacore.errors import KafkaError
from kafkacore.testing import CLIENTS, Delay, Disconnect, EmbeddedCluster

BROKERS = (1, 2, 3)
COORDINATOR_PARTITIONS = 2
TRANSACTION_TIMEOUT_MS = 60_000
FAULT_S = 0.06
"""How long a fault lasts at most, while nothing gets through."""
DELAY_MS = 8
"""How long a request waits for the fault that it has set off."""

ASKED = 12

TRIGGERS = {
    "Produce": 10,
    "EndTxn": 5,
    "WriteTxnMarkers": 6,
    "AddPartitionsToTxn": 5,
    "TxnOffsetCommit": 4,
    "AddOffsetsToTxn": 3,
    "InitProducerId": 4,
    "OffsetFetch": 4,
    "Fetch": 40,
    "FindCoordinator": 4,
}
"""Requests at which a fault may begin, and how many of them come at least."""
LOST = ("Produce", "EndTxn", "WriteTxnMarkers", "AddPartitionsToTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "InitProducerId", "OffsetFetch")
KINDS = {
    "lose answers": 7,
    "move transaction coordinator": 4,
    "move group coordinator": 2,
    "move leader": 3,
    "kill coordinator": 2,
    "kill broker": 2,
    "stop broker": 1,
    "pause broker": 1,
    "change version": 2,
}
NETWORK_KINDS = {"cut": 3, "isolate": 2, "delay": 1, "jump clock": 3}
"""These need EmbeddedCluster(faults=True)."""


class Strike(NamedTuple):
    """A fault, the API whose request sets it off, and which request that is."""

    kind: str
    api: str
    nth: int
    lasts: int  # requests


class Faults:
    """Brings the faults of a plan about.

    Attributes:
        counts: how many of each kind there were.
        refused: what the cluster answered to those that were not possible just then.
        jumped: a clock has jumped, so that transactions may have timed out.
        unloaded: a transaction coordinator has moved.
        inits: how often InitProducerId has come for each transactional id.
        asked: what coordinators were asked last about each transactional id, as far as answers were not lost on the way there.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        rng: random.Random,
        topics: dict[str, int],
        network: bool,
        find: Callable[[str], None],
        version: int,
        kinds: Collection[str] | None = None,
    ) -> None:
        """Begins nothing.

        Args:
            cluster: of three brokers.
            rng: decides.
            topics: the partitions of each topic.
            network: the cluster has a network and clocks that can have faults.
            find: is handed what should not be.
            version: the level of transaction.version.
            kinds: of faults; None for all that the cluster can have. "lose answers" may name the API: "lose answers: EndTxn".
        """
        self._cluster, self._rng, self._topics, self._network, self._find = cluster, rng, topics, network, find
        self._version = version
        every = KINDS | (NETWORK_KINDS if network else {})
        self._kinds = every if kinds is None else {kind: every.get(kind, 1) for kind in kinds}
        self._strikes: dict[str, deque[Strike]] = defaultdict(deque)
        self._seen: Counter[str] = Counter()
        self._losing: Counter[str] = Counter()
        self._due: deque[Strike | None] = deque()
        self._moved = threading.Condition()
        self._ends: list[Callable[[], object]] = []
        self._down: set[int] = set()
        self._thread: threading.Thread | None = None
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.jumped = False
        self.unloaded = False
        self.inits: Counter[str] = Counter()
        self.asked: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=ASKED))

    # ---- the plan

    def plan(self, strikes: int) -> None:
        """Plays so many faults, beside each other or one after the other; those planned before that did not come are forgotten."""
        chosen: dict[str, list[Strike]] = defaultdict(list)
        for named in self._rng.choices(list(self._kinds), list(self._kinds.values()), k=strikes) if self._kinds else ():
            kind, _, api = named.partition(": ")
            api = api or self._rng.choice(LOST if kind == "lose answers" else list(TRIGGERS))
            nth = self._seen[api] + self._rng.randint(1, TRIGGERS[api])
            chosen[api].append(Strike(kind, api, nth, self._rng.randint(1, 30)))
        with self._moved:
            self._strikes.clear()
            for api, some in chosen.items():
                self._strikes[api] = deque(sorted(some, key=lambda strike: strike.nth))
        if self._thread is None:
            for api in TRIGGERS:
                self._cluster.control(api, lambda request, api=api: self._watch(api, request))
            self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Ends all faults; those that did not come yet never come."""
        if self._thread is not None:
            with self._moved:
                self._strikes.clear()
                self._losing.clear()
                self._due.clear()
                self._due.append(None)
                self._moved.notify_all()
            self._thread.join()
            self._thread = None
            for api in TRIGGERS:
                self._cluster.control(api, None)
        self._end_all()

    def _watch(self, api: str, request: Any) -> Delay | Disconnect | None:
        """Runs in a broker's thread, before it serves a request."""
        with self._moved:
            if api in ("InitProducerId", "EndTxn") and request.transactional_id is not None:
                about = f"epoch {request.producer_epoch}" + (f", commit {request.committed}" if api == "EndTxn" else "")
                self.asked[request.transactional_id].append(f"{api}: {about}")
                self.inits[request.transactional_id] += api == "InitProducerId"
            self._seen[api] += 1
            self._moved.notify_all()
            strikes = self._strikes.get(api)
            while strikes and strikes[0].nth <= self._seen[api]:
                strike = strikes.popleft()
                if strike.kind != "lose answers":
                    self._due.append(strike)
                    return Delay(DELAY_MS)
                self._losing[api] += self._rng.randint(1, 2)
            if self._losing[api] > 0:
                self._losing[api] -= 1
                self.counts[f"lose answers: {api}"] += 1
                return Disconnect(handle=self._rng.random() < 0.75)
        return None

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._due)
                strike = self._due.popleft()
                until = sum(self._seen.values()) + (strike.lasts if strike is not None else 0)
            if strike is None:
                return
            try:
                getattr(self, "_" + strike.kind.replace(" ", "_"))()
                self.counts[strike.kind] += 1
            except KafkaError as error:
                self.refused[f"{strike.kind}: {type(error).__name__}"] += 1
            except Exception as error:
                self._find(f"A FAULT FAILED: {strike.kind}: {''.join(traceback.format_exception(error))}")
            with self._moved:
                self._moved.wait_for(lambda until=until: self._due or sum(self._seen.values()) >= until, FAULT_S)
                beside = bool(self._due)
            if not beside:
                self._end_all()

    def _end_all(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            try:
                end()
            except Exception as error:
                self._find(f"A FAULT DOES NOT END: {''.join(traceback.format_exception(error))}")
        self._down.clear()

    # ---- kinds

    def _broker(self) -> int:
        """One that no fault has taken away; at most one is away at a time."""
        if self._down:
            self._end_all()
        return self._rng.choice(BROKERS)

    def _move(self, topic: str, partition: int) -> None:
        self._cluster.move_leader(topic, partition, self._rng.choice([each for each in BROKERS if each not in self._down]))

    def _move_leader(self) -> None:
        topic = self._rng.choice(list(self._topics))
        self._move(topic, self._rng.randrange(self._topics[topic]))

    def _move_transaction_coordinator(self) -> None:
        self.unloaded = True
        if TRANSACTION_TOPIC in self._cluster.topics():
            for partition in range(COORDINATOR_PARTITIONS):
                self._move(TRANSACTION_TOPIC, partition)

    def _move_group_coordinator(self) -> None:
        if GROUP_TOPIC in self._cluster.topics():
            for partition in range(COORDINATOR_PARTITIONS):
                self._move(GROUP_TOPIC, partition)

    def _take_away(self, broker: int, take: Callable[[int], None], bring_back: Callable[[int], None]) -> None:
        self.unloaded = True
        take(broker)
        self._down.add(broker)
        self._ends.append(lambda: bring_back(broker))

    def _kill_coordinator(self) -> None:
        self._broker()
        if TRANSACTION_TOPIC in self._cluster.topics():
            leader = self._cluster.leader(TRANSACTION_TOPIC, self._rng.randrange(COORDINATOR_PARTITIONS))
            if leader is not None:
                self._take_away(leader, self._cluster.kill_broker, self._cluster.start_broker)

    def _kill_broker(self) -> None:
        self._take_away(self._broker(), self._cluster.kill_broker, self._cluster.start_broker)

    def _stop_broker(self) -> None:
        self._take_away(self._broker(), self._cluster.stop_broker, self._cluster.start_broker)

    def _pause_broker(self) -> None:
        self._take_away(self._broker(), self._cluster.pause_broker, self._cluster.resume_broker)

    def _change_version(self) -> None:
        """New connections tell the level; some clients have one at once."""
        self._version = 3 - self._version
        update = protocol.FeatureUpdateKey(
            feature="transaction.version", max_version_level=self._version, upgrade_type=1 if self._version == 2 else 2
        )
        answer: Any = self._cluster._submit(protocol.UpdateFeaturesRequest(feature_updates=[update]))
        if answer.error_code or any(each.error_code for each in answer.results):
            self._find(f"THE LEVEL IS REFUSED: {answer}")
        if self._network:
            self._cluster.network.cut(self._rng.choice(BROKERS), CLIENTS)
        else:
            self._stop_broker()

    def _cut(self) -> None:
        self._cluster.network.cut(self._rng.choice((None, *BROKERS)), self._rng.choice((None, CLIENTS)))

    def _isolate(self) -> None:
        broker, network = self._broker(), self._cluster.network
        other = self._rng.choice([CLIENTS, *(each for each in BROKERS if each != broker)])
        network.isolate(broker, other, direction=self._rng.choice(("both", "to", "from")))
        if self._rng.random() < 0.5:
            self._ends.append(lambda: network.cut(broker, other))  # what was held back is lost, else it arrives late
        self._ends.append(lambda: network.heal(broker, other))

    def _delay(self) -> None:
        broker, network = self._broker(), self._cluster.network
        network.delay(self._rng.randrange(2, 40), broker)
        self._ends.append(lambda: network.heal(broker))

    def _jump_clock(self) -> None:
        self.jump_clocks()

    def jump_clocks(self) -> None:
        """Every transaction that is open now has been open for too long."""
        self.jumped = True
        for broker in BROKERS:
            if broker not in self._down:
                self._cluster.jump_clock(broker, TRANSACTION_TIMEOUT_MS + 1_000, asleep=True)
