"""What goes wrong in a soak: faults of brokers, coordinators and the network, and those that a soak has of its own.

A fault begins at once (`begin`), or at a request of a plan (`plan`): at which request (the third EndTxn) what happens (its answer is lost,
its coordinator moves). Faults that a broker's own thread cannot bring about go to a thread of their own, while the request waits for a
moment. The seed decides what comes in which order.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kafkacore import protocol
from kafkacore.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from kafkacore.errors import KafkaError
from kafkacore.testing import CLIENTS, Delay, Disconnect, EmbeddedCluster
from tests.kit.inside import requests_of

BROKERS = (1, 2, 3)
TRANSACTION_TIMEOUT_MS = 60_000
FAULT_S = 0.06
"""How long a fault of a plan lasts at most, while nothing gets through."""
DELAY_MS = 8
"""How long a request waits for the fault that it has set off."""
ASKED = 12
LOST_SHARE = 0.3
"""Of the answers, while they are lost for a time."""

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
"""Requests at which a fault of a plan may begin, and how many of them come at least."""

Begin = Callable[[], Callable[[], object] | None]
"""Begins a fault; returns what ends it."""


class Strike(NamedTuple):
    """A fault, the API whose request sets it off, and which request that is."""

    kind: str
    api: str
    nth: int
    lasts: int  # requests


class Faults:
    """Brings faults about.

    Attributes:
        away: brokers that a fault has taken away.
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
        find: Callable[[str], None],
        kinds: Mapping[str, int],
        only: Collection[str] | None = None,
        own: Mapping[str, Begin] | None = None,
        topics: Mapping[str, int] | None = None,
        lost: Sequence[str] = (),
        most_away: int = 1,
        most_delay_ms: int = 40,
        version: int = 2,
        network: bool = True,
    ) -> None:
        """Begins nothing.

        Args:
            cluster: of three brokers.
            rng: decides.
            find: is handed what should not be.
            kinds: of faults, and how often each comes in comparison; those of `own`, too.
            only: the kinds that come; None for all. "lose answers" may name the API: "lose answers: EndTxn".
            own: begins the kinds that are not faults of a cluster.
            topics: whose leaders move: the partitions of each.
            lost: APIs whose answers get lost.
            most_away: how many brokers are away at a time.
            most_delay_ms: of a slow network.
            version: the level of transaction.version.
            network: the cluster has a network that can have faults.
        """
        self._cluster: Any = cluster
        self._rng, self._find, self._own, self._topics, self._lost = rng, find, own or {}, topics or {}, lost
        self._most_away, self._most_delay_ms, self._version, self._network = most_away, most_delay_ms, version, network
        self._kinds = dict(kinds) if only is None else {kind: kinds.get(kind, 1) for kind in only}
        self._strikes: dict[str, deque[Strike]] = defaultdict(deque)
        self._seen: Counter[str] = Counter()
        self._losing: Counter[str] = Counter()  # so many answers
        self._due: deque[Strike | None] = deque()
        self._moved = threading.Condition()
        self._ends: list[Callable[[], object]] = []
        self.away: set[int] = set()
        self._thread: threading.Thread | None = None
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.jumped = False
        self.unloaded = False
        self.inits: Counter[str] = Counter()
        self.asked: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=ASKED))

    # ---- at once

    def choose(self, count: int) -> list[str]:
        """So many kinds, or fewer: each at most once."""
        return list(dict.fromkeys(self._rng.choices(list(self._kinds), list(self._kinds.values()), k=count))) if self._kinds else []

    def begin(self, named: str) -> None:
        """Begins a fault, which goes on until `end`."""
        kind, _, api = named.partition(": ")
        try:
            if kind == "lose answers":
                api = api or self._rng.choice(self._lost)
                kind = f"{kind}: {api}"
                end: Callable[[], object] | None = self._lose_answers(api)
            else:
                end = self._own[kind]() if kind in self._own else getattr(self, "_" + kind.replace(" ", "_"))()
            if end is not None:
                self._ends.append(end)
            self.counts[kind] += 1
        except KafkaError as error:
            self.refused[f"{kind}: {type(error).__name__}"] += 1
        except Exception as error:
            self._find(f"A FAULT FAILED: {kind}: {''.join(traceback.format_exception(error))}")

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

    def _end_all(self) -> None:
        """In any order."""
        ends, self._ends = self._ends, []
        self._rng.shuffle(ends)
        for end in ends:
            try:
                end()
            except Exception as error:
                self._find(f"A FAULT DOES NOT END: {''.join(traceback.format_exception(error))}")
        self.away.clear()

    # ---- the plan

    def plan(self, strikes: int) -> None:
        """Plays so many faults, beside each other or one after the other; those planned before that did not come are forgotten."""
        chosen: dict[str, list[Strike]] = defaultdict(list)
        for named in self._rng.choices(list(self._kinds), list(self._kinds.values()), k=strikes) if self._kinds else ():
            kind, _, api = named.partition(": ")
            api = api or self._rng.choice(self._lost if kind == "lose answers" else list(TRIGGERS))
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
            self.begin(strike.kind)
            with self._moved:
                self._moved.wait_for(lambda until=until: self._due or sum(self._seen.values()) >= until, FAULT_S)
                beside = bool(self._due)
            if not beside:
                self._end_all()

    # ---- kinds

    def _broker(self) -> int:
        """One that no fault has taken away."""
        if len(self.away) >= self._most_away:
            self._end_all()
        return self._rng.choice([broker for broker in BROKERS if broker not in self.away])

    def _take_away(self, broker: int, take: Callable[[int], None], bring_back: Callable[[int], None]) -> Callable[[], None]:
        self.unloaded = True
        take(broker)
        self.away.add(broker)
        return lambda: bring_back(broker)

    def _move(self, topic: str, partition: int) -> None:
        self._cluster.move_leader(topic, partition, self._rng.choice([each for each in BROKERS if each not in self.away]))

    def _move_leader(self) -> None:
        topic = self._rng.choice(list(self._topics))
        self._move(topic, self._rng.randrange(self._topics[topic]))

    def _move_all(self, topic: str) -> None:
        for partition in range(self._cluster.topics().get(topic, 0)):
            self._move(topic, partition)

    def _move_transaction_coordinator(self) -> None:
        self.unloaded = True
        self._move_all(TRANSACTION_TOPIC)

    def _move_group_coordinator(self) -> None:
        self._move_all(GROUP_TOPIC)

    def _kill_coordinator(self) -> Callable[[], None] | None:
        self._broker()
        topics = self._cluster.topics()
        topic = TRANSACTION_TOPIC if TRANSACTION_TOPIC in topics else GROUP_TOPIC
        leader = self._cluster.leader(topic, self._rng.randrange(topics[topic])) if topic in topics else None
        return None if leader is None else self._take_away(leader, self._cluster.kill_broker, self._cluster.start_broker)

    def _kill_broker(self) -> Callable[[], None]:
        return self._take_away(self._broker(), self._cluster.kill_broker, self._cluster.start_broker)

    def _stop_broker(self) -> Callable[[], None]:
        return self._take_away(self._broker(), self._cluster.stop_broker, self._cluster.start_broker)

    def _pause_broker(self) -> Callable[[], None]:
        return self._take_away(self._broker(), self._cluster.pause_broker, self._cluster.resume_broker)

    def _lose_answers(self, api: str) -> Callable[[], None]:
        """Some requests are carried out and not answered, some not even that."""
        rng = random.Random(self._rng.random())
        self._cluster.control(api, lambda _: Disconnect(handle=rng.random() < 0.7) if rng.random() < LOST_SHARE else None)
        return lambda: self._cluster.control(api, None)

    def _cut(self) -> None:
        self._cluster.network.cut(self._rng.choice((None, *BROKERS)), self._rng.choice((None, CLIENTS)))

    def _isolate(self) -> Callable[[], None]:
        broker, network = self._broker(), self._cluster.network
        other = self._rng.choice([CLIENTS, *(each for each in BROKERS if each != broker)])
        network.isolate(broker, other, direction=self._rng.choice(("both", "to", "from")))
        self.away.add(broker)
        lost = self._rng.random() < 0.5

        def heal() -> None:
            if lost:
                network.cut(broker, other)  # what was held back, which else arrives late
            network.heal(broker, other)

        return heal

    def _delay(self) -> Callable[[], None]:
        broker, network = self._broker(), self._cluster.network
        network.delay(self._rng.randrange(2, self._most_delay_ms), broker)
        return lambda: network.heal(broker)

    def _change_version(self) -> Callable[[], None] | None:
        """New connections tell the level; some clients have one at once."""
        self._version = 3 - self._version
        update = protocol.FeatureUpdateKey(
            feature="transaction.version", max_version_level=self._version, upgrade_type=1 if self._version == 2 else 2
        )
        answer: Any = requests_of(self._cluster)(protocol.UpdateFeaturesRequest(feature_updates=[update]))
        if answer.error_code or any(each.error_code for each in answer.results):
            self._find(f"THE LEVEL IS REFUSED: {answer}")
        if self._network:
            self._cluster.network.cut(self._rng.choice(BROKERS), CLIENTS)
            return None
        return self._stop_broker()

    def _jump_clock(self) -> None:
        self.jump_clocks()

    def jump_clocks(self) -> None:
        """Every transaction that is open now has been open for too long."""
        self.jumped = True
        for broker in BROKERS:
            if broker not in self.away:
                self._cluster.jump_clock(broker, TRANSACTION_TIMEOUT_MS + 1_000, asleep=True)
