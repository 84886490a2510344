"""The producer's work per record, batch and pass does not grow with the partitions a topic has: what is walked is counted here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_support import Bench, read_request, response

from kafkacore._codec import StickyPartitioner, TopicQueue
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.producer import KafkaProducer, retry_log
from kafkacore.protocol import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import Node, TopicPartition
from tests.kit.inside import is_wanted, metadata_of, retry_log_of
from tests.kit.reached import Reached
from tests.kit.rows import each_row

MANY = 2_000
BROKERS = 4


class Walks(list[PartitionInfo]):
    """A topic's partitions; counts how often they are walked."""

    def __init__(self, items: Iterable[PartitionInfo]) -> None:
        super().__init__(items)
        self.count = 0

    def __iter__(self) -> Iterator[PartitionInfo]:
        self.count += 1
        return super().__iter__()


class Draws(random.Random):
    """Counts the numbers drawn; the same ones in every run."""

    def __init__(self) -> None:
        super().__init__(7)
        self.count = 0

    def random(self) -> float:
        self.count += 1
        return super().random()


class Rig:
    """A partitioner over a topic whose cluster the test changes; partition i is led by broker i % BROKERS."""

    def __init__(self, partitions: int, **settings: Any) -> None:
        self.walks = Walks(PartitionInfo(index, index % BROKERS, 0) for index in range(partitions))
        self.topic = TopicQueue("t")
        self.topic.grow(partitions, TopicPartition)
        self.slow: frozenset[int] = frozenset()
        self.draws = Draws()
        self.snapshot = self.view()
        self.choose = StickyPartitioner(
            lambda: self.snapshot, unavailable=lambda: self.slow, rng=self.draws, **{"adaptive": True, **settings}
        )

    def view(self, brokers: int = BROKERS) -> ClusterSnapshot:
        return ClusterSnapshot({i: Node(i, "h", i) for i in range(brokers)}, topics={"t": TopicInfo("t", b"1" * 16, self.walks)})

    def fill(self, *sizes: int) -> None:
        for queue, size in zip(self.topic.partitions, sizes, strict=False):
            queue.batches.extend([None] * size)  # type: ignore[list-item]

    def shares(self, choices: int) -> list[float]:
        counts = Counter(self.choose(self.topic).index for _ in range(choices))
        return [counts[index] / choices for index in range(self.topic.n)]

    def indexes(self) -> list[int]:
        return [queue.index for queue in self.choose.candidates(self.topic)]


@each_row("adaptive", [True, False])
def test_choices_walk_the_partitions_once_per_view_of_the_topic(adaptive: bool) -> None:
    rig = Rig(MANY, adaptive=adaptive)
    rig.walks.count = 0
    for _ in range(500):
        rig.choose(rig.topic)
    assert (rig.walks.count, rig.draws.count) == (1, 500)
    rig.snapshot = rig.view()  # something else in the cluster is new
    rig.choose(rig.topic)
    assert rig.walks.count == 1
    rig.snapshot = rig.view(brokers=2)  # two brokers have left
    assert {queue.index % BROKERS for queue in (rig.choose(rig.topic) for _ in range(100))} == {0, 1}
    assert rig.walks.count == 2


def test_choices_among_many_loaded_partitions_take_few_draws() -> None:
    rig = Rig(MANY)
    rig.fill(*[2] * (MANY - 1), 5)
    rig.shares(1_000)
    assert rig.draws.count < 3_200  # 1 + the mean queue length each at most, while the longest queue has not been drawn


def test_what_is_available_follows_the_cluster_and_slow_brokers() -> None:
    rig = Rig(8)
    assert rig.indexes() == list(range(8))
    rig.slow = frozenset({1, 2})
    assert rig.indexes() == [0, 3, 4, 7]
    rig.slow = frozenset({3})
    assert rig.indexes() == [0, 1, 2, 4, 5, 6]
    rig.snapshot = rig.view(brokers=2)
    assert rig.indexes() == [0, 1, 4, 5]
    rig.slow = frozenset({0, 1})
    assert rig.indexes() == [0, 1, 4, 5]  # better slow brokers than none
    rig.snapshot = rig.view(brokers=0)
    assert rig.indexes() == list(range(8))
    rig.snapshot = ClusterSnapshot()
    assert rig.indexes() == list(range(8))


def test_what_is_available_follows_the_number_of_partitions() -> None:
    rig = Rig(8)
    rig.topic.grow(4, TopicPartition)  # the topic is another one; the view is ahead of the producer or behind it
    assert rig.indexes() == [0, 1, 2, 3]
    rig.topic.grow(12, TopicPartition)
    assert rig.indexes() == list(range(8))  # of the others no leader is known


@each_row("sizes", [(0, 1, 3), (50, 50, 47), (0, 0, 0), (7, 7, 7)])
def test_the_weight_of_a_partition_is_the_longest_queue_plus_one_minus_its_own(sizes: tuple[int, ...]) -> None:
    rig = Rig(len(sizes))
    rig.fill(*sizes)
    rig.choose(rig.topic)
    weights = [max(sizes) + 1 - size for size in sizes]
    shares = rig.shares(20_000)
    assert shares == pytest.approx([weight / sum(weights) for weight in weights], abs=0.02)


def test_few_partitions_with_long_queues_are_weighed_after_a_bounded_number_of_draws() -> None:
    rig = Rig(4)
    rig.fill(100_000, 100_000, 100_000, 100_000)
    for _ in range(100):
        rig.choose(rig.topic)
    assert rig.draws.count <= 505  # one a partition, and one by the weights; the first choice saw that the queues are long


def test_the_longest_queue_is_known_at_once_and_forgotten_with_the_next_pass() -> None:
    bench = Bench(partitions=4, batch_size=200, enable_idempotence=False, acks=1)
    for _ in range(6):
        bench.send("t", b"x" * 60, partition=2)
    assert bench.topic.longest == len(bench.topic.partitions[2].batches) == 6
    while bench.topic.partitions[2].batches:
        bench.step()
    bench.send_now("t", b"x" * 60, partition=1)
    assert bench.topic.longest == 1


class Lookups(TopicInfo):
    """Counts the partitions looked up in it."""

    __slots__ = ()
    count = 0

    def partition(self, index: int) -> PartitionInfo | None:
        Lookups.count += 1
        return super().partition(index)


def test_a_pass_looks_at_partitions_with_batches_only() -> None:
    bench = Bench(partitions=MANY, enable_idempotence=False, acks=1)
    walks = Walks(bench.metadata.snapshot.topics["t"].partitions)
    Lookups.count = 0
    info = Lookups("t", bytes(range(16)), walks)
    bench.metadata.snapshot = ClusterSnapshot(bench.metadata.snapshot.nodes, topics={"t": info})
    for offset in range(5):
        bench.send_now("t", b"x", partition=7)
        bench.answered((7, 0, offset))
    assert (Lookups.count, walks.count) == (2, 0)  # for its leader, and because the view is new


def test_a_topic_in_use_is_kept_in_the_metadata_without_saying_so_in_every_request() -> None:
    bench = Bench(partitions=2, enable_idempotence=False, acks=1)
    said: list[int] = []
    add_topics = bench.metadata.add_topics
    bench.metadata.add_topics = lambda names, now_ms: said.append(now_ms) or add_topics(names, now_ms)  # type: ignore[func-returns-value, method-assign]
    for _ in range(30):
        bench.send("t", b"x", partition=0)
        bench.step(100)
        bench.answered((0, 0, 0))
    assert said == [1_100, 2_100, 3_100]


def test_partitions_that_fail_at_once_are_not_walked_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    is_over = retry_log._Failing.is_over.fget
    assert is_over is not None

    def counted(failing: retry_log._Failing) -> bool:
        nonlocal looks
        looks += 1
        return is_over(failing)

    monkeypatch.setattr(retry_log._Failing, "is_over", property(counted))
    bench = Bench(partitions=MANY, enable_idempotence=False, acks=1)
    for outage in range(2):
        looks = 0
        for partition in range(MANY):
            bench.send("t", b"x", partition=partition)
        bench.step()
        bench.answered(*((partition, Code.NOT_LEADER_OR_FOLLOWER, -1) for partition in range(MANY)))
        assert 0 < looks <= 4 * MANY, outage
        bench.step(1_000)
        bench.answered(*((partition, 0, outage) for partition in range(MANY)))
    assert len(retry_log_of(bench.sender)._failing) == MANY  # the first outage is forgotten


def test_round_robin_walks_the_partitions_once_per_view_of_the_topic() -> None:
    with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, partitioner="round_robin") as producer:
        cluster.create_topic("turns", partitions=8)
        producer.send("turns", b"x").result(60)
        snapshot = metadata_of(producer).snapshot
        info = snapshot.topics["turns"]
        walks = Walks(info.partitions)
        metadata_of(producer).snapshot = ClusterSnapshot(snapshot.nodes, topics={"turns": info._replace(partitions=walks)})
        futures = [producer.send("turns", b"x") for _ in range(40)]
        many = producer.send_many("turns", [b"x"] * 40)
        assert walks.count == 1
        assert Counter(future.result(60).partition for future in futures) == dict.fromkeys(range(8), 5)
        assert Counter(many.result(60).partitions.tolist()) == dict.fromkeys(range(8), 5)


def learn(bench: Bench, name: str) -> None:
    """The metadata answer about a new topic, and its queue."""
    now_ms = bench.clock.now_ms()
    bench.metadata.add_topic(name, now_ms)
    bench.metadata.begin_request(now_ms)
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
    topic = MetadataResponseTopic(name=name, topic_id=name.encode().rjust(16, b"\0"), partitions=[partition])
    brokers = [MetadataResponseBroker(node_id=1, host="h", port=1)]
    bench.metadata.update(MetadataResponse(brokers=brokers, topics=[topic]), now_ms)
    bench.add_topic(name, 1)


def test_what_lingers_is_not_looked_at_for_each_new_topic() -> None:
    topics = 200
    bench = Bench(enable_idempotence=False, acks=1, linger_ms=60_000, delivery_timeout_ms=120_000)
    learn(bench, "first")
    bench.step()
    looked_at = bench.accumulator.looked_at
    for nth in range(topics):
        learn(bench, f"new-{nth}")
        bench.send(f"new-{nth}", b"x", partition=0)
        bench.step(1)
        bench.step(1)
    assert bench.accumulator.looked_at - looked_at <= 3 * topics
    assert not bench.client.sent
    found = bench.accumulator.ready(bench.metadata.snapshot, bench.clock.now_ms())
    assert found.next_check_ms == 60_000 - 2 * topics  # until the first of them has lingered
    bench.step(60_000 - 2 * topics)
    ((_, request),) = bench.client.sent
    assert len(request.topic_data) == topics


SENDS = st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from([10, 60, 150, 400]))
ANSWERS = st.tuples(st.just("answer"), st.sampled_from([0, int(Code.NOT_LEADER_OR_FOLLOWER)]), st.just(0))
OPS = st.lists(
    st.one_of(
        SENDS,
        SENDS,
        st.tuples(st.just("many"), st.integers(2, 3), st.integers(1, 12)),
        st.tuples(st.just("step"), st.sampled_from([0, 1, 4, 10, 25, 130]), st.just(0)),
        st.tuples(st.just("leader"), st.integers(0, 2), st.sampled_from([-1, 1, 2])),
        ANSWERS,
        ANSWERS,
        st.tuples(st.just("block"), st.sampled_from([1, 2]), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    min_size=12,
    max_size=40,
)


reached = Reached(
    "a partition that has batches loses its leader",
    "a partition that has batches gets another leader",
    "a broker cannot be reached while batches wait",
    "a flush while batches linger",
    "a request refused, and another one under way",
    "a batch is full before it has lingered",
)


@reached.by
@settings(deadline=None, max_examples=150)
@given(OPS, st.sampled_from([False, False, True]))
def test_a_look_at_what_is_new_finds_what_a_look_at_all_finds(ops: list[tuple[str, int, int]], in_order: bool) -> None:
    benches = []
    for _ in range(2):
        bench = Bench(
            partitions=4, leaders=(1, 2), enable_idempotence=False, acks=1, linger_ms=10, batch_size=256, send_many_batch_size=2_048,
            delivery_timeout_ms=2_000, request_timeout_ms=1_000, max_in_flight_requests_per_connection=1 if in_order else 5,
        )  # fmt: skip
        benches.append(bench)
    general = benches[1]
    traces: list[list[Any]] = [[], []]
    waits: list[list[int]] = [[], []]
    flushing = False
    for what, a, b in [*ops, ("step", 10, 0), ("step", 200, 0)]:
        flushing = flushing != (what == "flush")
        look_at(benches[0], what, a, b)
        for bench, trace in zip(benches, traces, strict=True):
            if what == "send":
                bench.send("t", b"x" * b, partition=a, timestamp_ms=5)
            elif what == "many":
                bench.append_many([b"y" * 60] * b, partitions=np.full(b, a, np.int32), timestamps_ms=5)
            elif what == "leader":
                bench.leaders[a] = b
                bench.epochs[a] += 1
                bench.publish()
            elif what == "answer" and bench.client.sent:
                ((_, message), *_) = bench.client.sent
                parts = [(part.index, a, 7) for topic in message.topic_data for part in topic.partition_data]
                bench.client.answer(response(*parts))
            elif what == "block":
                bench.client.blocked ^= {a}
            elif what == "flush":
                (bench.accumulator.begin_flush if flushing else bench.accumulator.end_flush)()
            elif what == "step":
                if bench is general:
                    bench.accumulator._look_at_all = True
                bench.step(a)
                sent = [(request.node_id, sorted(read_request(message))) for request, message in bench.client.sent]
                wait_ms = bench.sender.send_producer_data(bench.clock.now_ms())
                trace.append((sent, is_wanted(bench.metadata), dict(bench.sender.counters)))
                waits[bench is general].append(wait_ms)
    assert traces[0] == traces[1]
    assert all(new <= every for new, every in zip(*waits, strict=True))  # one that has lost its leader is waited for no longer


def look_at(bench: Bench, what: str, a: int, b: int) -> None:
    """Which branch the next operation is."""
    waits = [len(queue.batches) for queue in bench.topic.partitions]
    if what == "leader" and waits[a]:
        reached("a partition that has batches loses its leader", b < 0)
        reached("a partition that has batches gets another leader", b > 0 and b != bench.leaders[a])
    reached("a broker cannot be reached while batches wait", what == "block" and any(waits))
    reached("a flush while batches linger", what == "flush" and any(waits))
    reached("a request refused, and another one under way", what == "answer" and a and len(bench.client.sent) > 1)
    reached("a batch is full before it has lingered", what == "send" and max(waits) > 1)


def test_after_a_pass_that_was_cut_short_the_sender_waits_again() -> None:
    bench = Bench(enable_idempotence=False, acks=1)
    bench.step()
    bench.sender._recover()  # the next pass is to see whether a batch is late
    bench.step()
    assert bench.sender.send_producer_data(bench.clock.now_ms()) > 1_000_000
