"""Ctrl+C in the calls of a group member: at every line, with the background thread driving between the calls.

What a call had in hand comes with the next one, once, and is not committed before it was handed over.
"""

from __future__ import annotations

import gc
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore.consumer import KafkaConsumer
from kafkacore.consumer.group import background
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.groups import Members
from tests.kit.inside import driver_of, group_of, lock_of, subscription_of
from tests.kit.interrupter import Interrupter
from tests.kit.records import numbered, producer_of
from tests.kit.waiting import GUARD_S

PARTITIONS = 3
RECORDS = 9_000
BATCHES = 30  # records of three batches, one for each partition


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        with producer_of(cluster) as producer:
            for begin in range(0, RECORDS, BATCHES):
                producer.send_many("t", numbered(BATCHES, first=begin), partitions=[i % PARTITIONS for i in range(BATCHES)]).result(GUARD_S)
        yield cluster


@pytest.fixture(autouse=True)
def soon_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl+C may cut the wake-up of the background thread short."""
    monkeypatch.setattr(background, "_ASLEEP_S", 0.05)


@pytest.fixture(autouse=True)
def sockets_may_be_dropped() -> Iterator[None]:
    """Ctrl+C on a socket's way to the selector: the collector closes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"g{abs(hash(request.node.nodeid)) % 10**9}"


@pytest.fixture
def make(shared: EmbeddedCluster, group: str) -> Iterator[Members]:
    settings = {"auto_commit_interval_ms": 1, "max_partition_fetch_bytes": 300, "fetch_max_wait_ms": 20}
    with Members(shared.bootstrap_servers, "t", group_id=group, **settings) as members:
        yield members


class MembersReading:
    """What came of each partition, and what may be committed of it."""

    def __init__(self, consumer: KafkaConsumer, observer: KafkaConsumer, *, repeats: bool = False) -> None:
        self.repeats = repeats
        self.consumer = consumer
        self.observer = observer
        self.next = {TopicPartition("t", i): 0 for i in range(PARTITIONS)}
        self.polled: list[Any] = []
        self.polled_columns: list[Any] = []

    def take(self, tp: tuple[str, int], values: list[bytes]) -> None:
        for value in values:
            offset, partition = divmod(int(value), PARTITIONS)
            if self.repeats and offset < self.next[TopicPartition(*tp)]:
                continue
            assert (tp[1], self.next[TopicPartition(*tp)]) == (partition, offset)
            self.next[TopicPartition(*tp)] += 1

    def poll(self) -> None:
        self.polled += self.consumer.poll(5, max_records=3).items()

    def poll_batch(self) -> None:
        self.polled_columns += (self.consumer.poll_batch(5),)

    def take_polled(self) -> None:
        for tp, records in self.polled:
            self.take(tp, [r.value for r in records])
        for columns in (columns for batches in self.polled_columns for columns in batches):
            self.take((columns.topic, columns.partition), [r.value for r in columns])
        self.polled, self.polled_columns = [], []

    def iterate(self) -> None:
        for taken, record in enumerate(self.consumer):
            self.take((record.topic, record.partition), [record.value])
            if taken == 2:
                return

    def iterate_one(self) -> None:
        record = next(iter(self.consumer))
        self.take((record.topic, record.partition), [record.value])

    def read_some(self) -> None:
        """Something new of every partition."""
        before = dict(self.next)
        while any(self.next[tp] == offset for tp, offset in before.items()):
            polled = self.consumer.poll(60, max_records=4)
            assert polled, (self.next, group_of(self.consumer).membership.phase, subscription_of(self.consumer).mode)
            for tp, records in polled.items():
                self.take(tp, [r.value for r in records])

    def check_committed(self) -> None:
        """Nothing behind what was handed over."""
        for tp, found in self.observer.committed(list(self.next)).items():
            assert found is None or found.offset <= self.next[tp], (tp, found, self.next)

    def wait_for_background(self) -> None:
        """It drives. It cannot while the interrupted call has not given the lock back."""
        lock = lock_of(driver_of(self.consumer))
        for _ in range(30_000):
            if lock._is_owned() or not lock.acquire(blocking=False):
                return
            lock.release()
            threading.Event().wait(0.001)
        raise AssertionError("the background thread does not drive")

    def read_the_rest(self) -> None:
        while sum(self.next.values()) < RECORDS:
            for tp, records in self.consumer.poll(10).items():
                self.take(tp, [r.value for r in records])


@pytest.fixture
def observer(shared: EmbeddedCluster, group: str) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, group_id=group, enable_auto_commit=False) as consumer:
        yield consumer


HANDING_OVER = (
    "consumer/__init__.py",
    "consumer/reading.py",
    "consumer/fetcher.py",
    "consumer/chunks.py",
    "consumer/batches.py",
    "consumer/deserializers.py",
    "net/driver.py",
    "group/member.py",
)


# Python ignores Ctrl+C, as all that is raised, while a loop's generator is dropped: no line of ours can pass it on.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <generator object KafkaConsumer.__iter__:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("call", "auto"), [("poll", True), ("poll", False), ("poll_batch", True), ("iterate", True)])
def test_ctrl_c_at_every_line_that_hands_records_over(make, observer, call: str, auto: bool) -> None:
    consumer = make(enable_auto_commit=auto)
    reading = MembersReading(consumer, observer)
    while not sum(reading.next.values()):
        reading.poll()
        reading.take_polled()
    at, missed = 0 if auto else 1, 0  # every second line: of `poll` the others by the other case
    while missed < 10:
        interrupted = Interrupter(at, files=HANDING_OVER).run(getattr(reading, call))
        reading.take_polled()
        if interrupted and at % 10 < 2:
            reading.wait_for_background()
            reading.check_committed()
        missed = 0 if interrupted else missed + 1
        at += 2
        assert sum(reading.next.values()) < RECORDS, "the topic is too short"
    assert at > 40
    reading.read_the_rest()
    reading.check_committed()


MEMBERSHIP = (
    "consumer/__init__.py",
    "consumer/reading.py",
    "consumer/topics.py",
    "consumer/chunks.py",
    "consumer/subscription.py",
    "net/driver.py",
    "group/member.py",
    "group/membership.py",
    "group/classic.py",
    "group/modern.py",
    "group/commits.py",
)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("call", ["subscribe", "unsubscribe"])
def test_ctrl_c_at_any_line_of_a_call_that_joins_or_leaves(make, observer, call: str, protocol: str) -> None:
    """The same call works when it is repeated, and reading goes on where it was committed: nothing is skipped."""
    consumer = make(group_protocol=protocol)
    reading = MembersReading(consumer, observer, repeats=True)
    reading.read_some()
    calls: dict[str, Callable[[], object]] = {
        "subscribe": lambda: consumer.subscribe(["t"]),
        "unsubscribe": consumer.unsubscribe,
    }
    for at in itertools.count(0, 7):
        interrupted = Interrupter(at, files=MEMBERSHIP).run(calls[call])
        if call == "unsubscribe" and at % 2:
            consumer.unsubscribe()
        consumer.subscribe(["t"])
        reading.read_some()
        if not interrupted or max(reading.next.values()) > RECORDS / PARTITIONS * 0.9:  # they are not read evenly
            break
    assert at >= 30
    reading.check_committed()


@pytest.mark.parametrize("call", ["seek", "pause"])
def test_ctrl_c_while_a_for_loop_gives_back_what_it_has_in_hand(make, observer, call: str) -> None:
    consumer = make(enable_auto_commit=False)
    reading = MembersReading(consumer, observer)
    tps = list(reading.next)

    def seek() -> None:
        for tp in tps:
            consumer.seek(tp, reading.next[tp])

    reading.iterate()
    for at in itertools.count():
        interrupted = Interrupter(at, files=HANDING_OVER).run(seek if call == "seek" else lambda: consumer.pause(*tps))
        consumer.resume(*tps)
        reading.iterate()
        if not interrupted:
            break
    assert at > 20
    reading.read_the_rest()
