"""The course of every soak: a cluster, actors that are threads, faults in rounds, and one history that is judged at the end.

A round begins faults. Then all faults end, and every actor has to come back before the next round. At the end everything is read, and
`kafkacore.testing.history` judges: the log, groups and transactions by the rules of each. Errors that clients raise while there are faults
are counted, and are findings only if no fault explains them.

The seed decides what actors do and which faults come in which order; what they meet is up to the machine.
"""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Self

from kafkacore import errors
from kafkacore.errors import KafkaError
from kafkacore.testing import EmbeddedCluster
from kafkacore.testing.group_history import GroupHistory
from kafkacore.testing.history import Finding, History
from kafkacore.testing.transaction_history import TransactionHistory
from tests.soak.faults import Faults

BROKERS = 3
CONFIG = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1_500,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.socket.timeout.ms": 2_000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
NEVER_EXPECTED: tuple[type[KafkaError], ...] = (
    errors.InternalError,
    errors.CorruptDataError,
    errors.UsageError,
    errors.OffsetOutOfRange,
    errors.UnknownServer,
)
"""What no fault explains. BufferFullError is no UsageError."""
WAIT_S = 90.0
"""How long an actor may take to come back after the last fault."""
SHOWN = 20
"""How many findings of the history are shown."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def say_nothing(line: str) -> None:
    """Progress that nobody reads."""


class Stuck(Exception):
    """Something does not come to its end; the finding says what."""


class Actor:
    """A thread with clients of its own.

    Attributes:
        latest_ms: when the newest thing was begun that it has seen through.
        seen: how many things it has seen through.
    """

    def __init__(self, soak: Any, name: str) -> None:
        self.soak = soak
        self.name = name
        self.rng = random.Random(f"{soak.seed} {name}")
        self.latest_ms = self.seen = 0
        self._thread = threading.Thread(target=self._guarded, name=f"soak-{name}", daemon=True)

    def start(self) -> Self:
        self.soak.actors.append(self)
        self._thread.start()
        return self

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def saw(self, begun_ms: int, count: int = 1) -> None:
        self.seen += count
        self.latest_ms = max(self.latest_ms, begun_ms)

    def _guarded(self) -> None:
        try:
            self.run()
        except Stuck:
            pass
        except BaseException as error:
            self.soak.find(f"DIED: {self.name}: {''.join(traceback.format_exception(error))}")

    def run(self) -> None:
        raise NotImplementedError

    def describe(self) -> str:
        """What it says of itself, for a finding."""
        return ""


class LogCounter(logging.Handler):
    """Counts warnings and errors of kafkacore by their template; one with a traceback is a finding."""

    def __init__(self, find: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._find = find
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        template = f"{record.levelname} {record.name}: {str(record.msg)[:100]}"
        self.counts[template] += 1
        self.examples.setdefault(template, record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self._find(f"LOGGED: {record.getMessage()}: {''.join(traceback.format_exception(record.exc_info[1]))}")


class Soak:
    """A run; what is played is up to the subclass.

    Args:
        seed: decides the faults, and what actors do.
        seconds: how long faults go on; the round under way is completed.
        kinds: of faults; None for all. "lose answers" may name the API: "lose answers: EndTxn".
        config: more settings of brokers.
        disk: the logs are on disk, and read again after a kill.
        wait_s: see WAIT_S.
        say: is handed lines of progress.
    """

    name: str
    topics: Mapping[str, int]
    cluster_options: Mapping[str, Any] = {}
    config: Mapping[str, Any] = {}
    never_expected = NEVER_EXPECTED
    logs_are_findings = True
    """What is logged with a traceback."""

    def __init__(
        self,
        seed: int,
        seconds: float = 0,
        kinds: Collection[str] | None = None,
        config: Mapping[str, Any] | None = None,
        disk: bool = False,
        wait_s: float = WAIT_S,
        say: Callable[[str], object] = say_nothing,
    ) -> None:
        self.seed, self.seconds, self.kinds, self.disk, self.wait_s, self.say = seed, seconds, kinds, disk, wait_s, say
        self.config = CONFIG | dict(self.config) | dict(config or {})
        self.rng = random.Random(seed)
        self.history = History()
        self.group = GroupHistory(self.history)
        self.transactions = TransactionHistory(self.history)
        self.actors: list[Actor] = []  # those that were started
        self.rounds = 0
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # the first of each of them, in full
        self.slowest_s: dict[str, float] = {}
        self.findings: list[str] = []
        self.judged: list[Finding] = []
        self.faults: Faults
        self.cluster: Any = None
        self.servers = ""
        self.written = threading.Event()  # set when writers shall end
        self.over = threading.Event()  # set when nothing is written any more
        self._moved = threading.Condition()

    # ---- called by actors

    def find(self, text: str) -> None:
        self.findings.append(text)

    def count(self, who: str, error: BaseException) -> None:
        """Counts an error that a client raised. One that no fault explains is a finding."""
        what = f"{who}: {type(error).__name__}"
        self.tally(what, error)
        if (not isinstance(error, KafkaError) or isinstance(error, self.never_expected)) and self.errors[what] == 1:
            self.find(f"RAISED by {who}: {''.join(traceback.format_exception(error))}")

    def tally(self, what: str, example: object) -> None:
        with self._moved:
            self.errors[what] += 1
            self.examples.setdefault(what, str(example))

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """Changes what `wait` waits for."""
        with self._moved:
            yield
            self._moved.notify_all()

    def wait(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Until it is so, as far as `moving` brings it about."""
        with self._moved:
            return self._moved.wait_for(done, timeout_s)

    def rest(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def until(self, done: Callable[[], bool], what: Callable[[], str], every_s: float = 0.02, timeout_s: float | None = None) -> None:
        """Asks again until it is so.

        Raises:
            Stuck: it does not come in time.
        """
        limit_s = self.wait_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline:
                self.find(f"STUCK: {what()} within {limit_s} s")
                raise Stuck
            self.rest(every_s)

    def join(self, actors: Iterable[Actor], timeout_s: float | None = None) -> None:
        """Waits for actors that have been asked to end.

        Raises:
            Stuck: one does not.
        """
        for actor in actors:
            if not actor.join(max(self.wait_s, WAIT_S) if timeout_s is None else timeout_s):
                self.find(f"STUCK: {actor.name} does not end: {actor.describe()}")
                raise Stuck

    # ---- the run

    def run(self) -> dict[str, Any]:
        """Plays, judges, and returns the figures; `findings` among them is empty when nothing was broken."""
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            logged = stack.enter_context(self._watched())
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkacore-soak-")) if self.disk else None
            self.start_cluster(stack, directory)
            self.faults = self.make_faults()
            try:
                self.open(stack)
                self.begin()
                self._play_rounds()
                self.settle()
            except Stuck:
                pass
            finally:
                self.faults.end()
                self.release()
                for actor in self.actors:
                    if not actor.join(max(self.wait_s, WAIT_S)):
                        self.find(f"STUCK: {actor.name} does not end: {actor.describe()}")
        self.say(f"{self.name}: judging a history of {len(self.history.sends):,} records")
        self.judged = self.history.check()
        self.findings += [str(finding) for finding in self.judged[:SHOWN]]
        return {
            "soak": self.name,
            "seed": self.seed,
            "seconds": round(time.monotonic() - began, 2),
            "rounds": self.rounds,
            "records": len(self.history.sends),
            "acknowledged": sum(send.acked_at is not None for send in self.history.sends),
            **dict(sorted(self.counts.items())),
            **self.figures(),
            "faults": dict(self.faults.counts.most_common()),
            "faults_not_possible": dict(self.faults.refused.most_common()),
            "errors": dict(self.errors.most_common()),
            "logged": dict(logged.counts.most_common()),
            "examples": self.examples | logged.examples,
            "slowest_return_s": {name: round(took_s, 1) for name, took_s in self.slowest_s.items()},
            "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "findings": self.findings,
        }

    @contextlib.contextmanager
    def _watched(self) -> Iterator[LogCounter]:
        """What is logged, and threads that die."""
        find = self.find if self.logs_are_findings else lambda text: self.tally("logged with a traceback", text)
        logged, logger, hook = LogCounter(find), logging.getLogger("kafkacore"), threading.excepthook

        def died(arguments: threading.ExceptHookArgs) -> None:
            if arguments.exc_value is not None:
                name = arguments.thread.name if arguments.thread is not None else ""
                self.find(f"A THREAD DIED: {name}: {''.join(traceback.format_exception(arguments.exc_value))}")

        logger.addHandler(logged)
        threading.excepthook = died
        try:
            yield logged
        finally:
            threading.excepthook = hook
            logger.removeHandler(logged)

    def start_cluster(self, stack: contextlib.ExitStack, directory: str | None) -> None:
        self.cluster = stack.enter_context(EmbeddedCluster(brokers=BROKERS, data_dir=directory, config=self.config, **self.cluster_options))
        self.servers = self.cluster.bootstrap_servers
        for topic, partitions in self.topics.items():
            self.cluster.create_topic(topic, partitions, BROKERS)

    def _play_rounds(self) -> None:
        began = time.monotonic()
        while not self.findings and self.goes_on(elapsed := time.monotonic() - began):
            self.rounds += 1
            self.play(elapsed)
            self.faults.end()
            self.come_back()
            self.say(
                f"{self.name}: {time.monotonic() - began:.0f} s, round {self.rounds}, {self.faults.counts.total()} faults,"
                f" {len(self.history.sends):,} records, {self.errors.total()} errors raised, {len(self.findings)} findings"
            )

    def come_back(self) -> None:
        """Waits until every actor that `returning` names has seen something through that was begun after this call."""
        began, began_ms = time.monotonic(), wall_ms()
        late = {actor.name: actor for actor in self.returning()}

        def lacking() -> list[str]:
            for actor in [each for each in late.values() if each.latest_ms >= began_ms]:
                del late[actor.name]
                self.slowest_s[actor.name] = max(self.slowest_s.get(actor.name, 0.0), time.monotonic() - began)
            return [*late, *self.out_of_sync()]

        def what() -> str:
            states = "; ".join(f"{name}: {late[name].describe() if name in late else 'not in sync'}" for name in lacking())
            return f"{lacking()} did not come back after the last fault; {states}; {self.examples}; not"

        self.until(lambda: bool(self.findings) or not lacking(), what)

    # ---- for subclasses

    def make_faults(self) -> Faults:
        raise NotImplementedError

    def open(self, stack: contextlib.ExitStack) -> None:
        """Makes what lives as long as the run."""

    def begin(self) -> None:
        """Starts actors."""
        raise NotImplementedError

    def goes_on(self, elapsed_s: float) -> bool:
        """Whether there is another round."""
        return elapsed_s < self.seconds

    def play(self, elapsed_s: float) -> None:
        """A round: begins faults; they end after it."""
        raise NotImplementedError

    def returning(self) -> Iterable[Actor]:
        """Who has to come back after a round."""
        return self.actors

    def out_of_sync(self) -> list[str]:
        """What the cluster has not restored."""
        return []

    def settle(self) -> None:
        """Faults have ended: ends actors in their order, and has everything read."""
        raise NotImplementedError

    def release(self) -> None:
        """Lets all actors end, wherever they stand."""
        self.written.set()
        self.over.set()

    def figures(self) -> dict[str, Any]:
        """More of them."""
        return {}
