"""Producer, consumer and metadata for bench/scale.py: what their work takes by partitions and topics."""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nullbroker import NullBroker
from scale_server import ClusterProcess, Wire, batch, fill
from scale_table import AtMost, Figures, Growth, KeepsRate, Sample

import kafkacore
from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, _codec
from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.metadata import ClusterSnapshot, LeaderHint, Metadata, PartitionInfo, TopicInfo
from kafkacore.net.channel import KafkaChannel, NetworkSend
from kafkacore.net.transport import PlaintextTransport
from kafkacore.protocol import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kafkacore.types import Node

TOPIC = "scale"
RECORD_BYTES = 100
TENS = (1, 10, 100, 1_000, 10_000)
TOPICS = (1, 10, 100, 1_000, 8_000)
READ = (10, 100, 1_000, 10_000)
BATCH_RECORDS = 100
LINGER_MS = 3_600_000
SAMPLE_S = 3.0
IDLE_S = 3.0


class Spent:
    """CPU nanoseconds since it was made: of this thread, and of the process."""

    def __init__(self) -> None:
        self._process, self._thread = time.process_time_ns(), time.thread_time_ns()

    def thread(self) -> int:
        return time.thread_time_ns() - self._thread

    def process(self) -> int:
        return time.process_time_ns() - self._process


# ---- producer

THREAD, PROCESS = "calling thread", "whole process"


@contextmanager
def sending(partitions: int, quick: bool, *, keyed: bool) -> Iterator[Sample]:
    """ns of CPU per record of send() with all defaults, up to the last acknowledgement."""
    count = 5_000 if quick else 50_000 if keyed else 200_000
    values = [b"%0*d" % (RECORD_BYTES, nth) for nth in range(10_000)]
    keys: list[bytes | None] = [b"key-%d" % nth if keyed else None for nth in range(10_000)]
    with NullBroker(partitions) as broker, KafkaProducer(bootstrap_servers=broker.address) as producer:

        def run(n: int) -> Figures:
            send, spent = producer.send, Spent()
            for key, value in itertools.islice(itertools.cycle(zip(keys, values, strict=True)), n):
                send(TOPIC, value, key)
            thread = spent.thread()
            producer.flush(60)
            return {THREAD: thread / n, PROCESS: spent.process() / n}

        run(count // 5)  # connections, metadata, buffers
        yield lambda: run(count)


@contextmanager
def sending_many(partitions: int, quick: bool) -> Iterator[Sample]:
    """ns of CPU per record of send_many() with all defaults, up to the last acknowledgement."""
    chunk, calls = 20_000, 1 if quick else 20
    values = [b"%0*d" % (RECORD_BYTES, nth) for nth in range(chunk)]
    columns = (np.frombuffer(b"".join(values), np.uint8), np.arange(chunk + 1, dtype=np.int64) * RECORD_BYTES)
    with NullBroker(partitions) as broker, KafkaProducer(bootstrap_servers=broker.address) as producer:

        def run(source: Any) -> float:
            spent = Spent()
            results = [producer.send_many(TOPIC, source) for _ in range(calls)]
            producer.flush(60)
            cpu_ns = spent.process()
            if errors := [result.result(0).errors for result in results if result.result(0).errors]:
                raise SystemExit(f"send_many to {partitions} partitions: {errors[0]}")
            return cpu_ns / (chunk * calls)

        run(values)
        yield lambda: {"columns": run(columns), "list": run(values)}


@contextmanager
def sender_pass(topics: int, quick: bool) -> Iterator[Sample]:
    """ms of CPU of the pass of the Sender that finds a small record for each topic, without sockets: the tests' producer."""
    sys.path.insert(0, str(Path(kafkacore.__file__).parent.parent / "tests" / "producer"))
    from producer_support import Bench

    from kafkacore._codec import TopicQueue

    def sample() -> Figures:
        bench = Bench(partitions=1, acks=1, batch_size=200, buffer_memory=1 << 28, max_request_size=1 << 26)
        names = [f"topic-{nth:06d}" for nth in range(topics)]
        infos = {name: TopicInfo(name, nth.to_bytes(16, "big"), [PartitionInfo(0, 1, 0)]) for nth, name in enumerate(names, 1)}
        bench.metadata.snapshot = ClusterSnapshot({1: Node(1, "h", 1)}, topics=infos)
        bench.metadata.version += 1
        for name in names:
            queue = TopicQueue(name)
            queue.grow(1, TopicPartition)
            bench._add_topic(queue)
            bench.send(name, b"x" * 50)
        spent = Spent()
        bench.step()
        cpu_ms = spent.thread() / 1e6
        if not bench.client.sent:
            raise SystemExit("the pass of the Sender sent nothing")
        return {"": cpu_ms}

    yield sample


@contextmanager
def flushing(topics: int, quick: bool) -> Iterator[Sample]:
    """ms of CPU of the whole process for a flush of a small record for each topic: requests, answers, futures."""
    names = [f"topic-{nth:06d}" for nth in range(topics)]
    settings: dict[str, Any] = {"linger_ms": LINGER_MS, "delivery_timeout_ms": 2 * LINGER_MS, "batch_size": 200, "buffer_memory": 1 << 26}
    with NullBroker(1) as broker, KafkaProducer(bootstrap_servers=broker.address, **settings) as producer:

        def sample() -> Figures:
            for name in names:
                producer.send(name, b"x" * 50)
            spent = Spent()
            producer.flush(60)
            return {"": spent.process() / 1e6}

        sample()
        yield sample


# ---- consumer


def assigned(cluster: ClusterProcess, partitions: int) -> KafkaConsumer:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(TOPIC, index) for index in range(partitions)])
    return consumer


def only_member(cluster: ClusterProcess, partitions: int, group: str) -> KafkaConsumer:
    """A member that a group of its own has given all partitions, with automatic commits."""
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest")
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < partitions:
        consumer.poll(0.1, 1)
        if time.monotonic() > deadline:
            raise SystemExit(f"group {group}: no assignment of {partitions} partitions")
    consumer.seek_to_beginning(*consumer.assignment())
    return consumer


@contextmanager
def reading(partitions: int, quick: bool, *, brokers: int, grouped: bool = False) -> Iterator[Sample]:
    """ns of CPU per record that is read, every partition with the same share of the data, in batches of 100 records."""
    batches_each = max(1, (100 if quick else 2_000) // partitions)
    total = partitions * batches_each * BATCH_RECORDS
    with ClusterProcess(brokers) as cluster:
        cluster.create_topic(TOPIC, partitions)
        fill(cluster, TOPIC, partitions, batches_each, batch(BATCH_RECORDS, RECORD_BYTES))
        consumers = [only_member(cluster, partitions, how) if grouped else assigned(cluster, partitions) for how in ("poll", "poll_batch")]
        with consumers[0] as objects, consumers[1] as columns:
            polls: dict[str, tuple[KafkaConsumer, Callable[[], int]]] = {
                "poll": (objects, lambda: sum(map(len, objects.poll(1.0, 500).values()))),
                "poll_batch": (columns, lambda: sum(map(len, columns.poll_batch(1.0)))),
            }
            left = dict.fromkeys(polls, total)

            def run(how: str, count: int, seconds: float = SAMPLE_S) -> float:
                consumer, poll = polls[how]
                got, cpu_ns, deadline = 0, 0, time.monotonic() + seconds
                while got < count and (time.monotonic() < deadline or not got):
                    if left[how] <= 0:
                        for tp in consumer.assignment():  # a reset would ask for the offset of every partition, while it is measured
                            consumer.seek(tp, 0)
                        left[how] += total
                    spent = Spent()
                    while left[how] > 0 and got < count and (time.monotonic() < deadline or not got):
                        found = poll()
                        got += found
                        left[how] -= found
                    cpu_ns += spent.process()
                return cpu_ns / got

            for how in polls:
                run(how, total)

            def sample() -> Figures:
                figures = {}
                for how in polls:
                    if grouped:  # the automatic commit became due since the last sample: it comes every 5 s, and a sample is shorter
                        run(how, sys.maxsize, 0.05 if quick else 0.5)
                    figures[how] = run(how, 2_000 if quick else 400_000)
                return figures

            yield sample


@contextmanager
def trickling(partitions: int, quick: bool) -> Iterator[Sample]:
    """us of CPU per record that comes alone, from one of the assigned partitions, into a poll that waits for it."""
    count = 3 if quick else 30
    data = batch(1, RECORD_BYTES)
    with ClusterProcess() as cluster:
        cluster.create_topic(TOPIC, partitions)
        with assigned(cluster, partitions) as consumer, Wire(cluster.addresses[0]) as wire:
            indexes = itertools.cycle(range(0, partitions, max(1, partitions // 10)))

            def sample() -> Figures:
                cpu_ns, done, deadline = 0, 0, time.monotonic() + SAMPLE_S
                while done < count and (time.monotonic() < deadline or not done):
                    wire.produce(TOPIC, {next(indexes): data}, acks=1)
                    spent = Spent()
                    while not consumer.poll(1.0):
                        pass
                    cpu_ns += spent.process()
                    done += 1
                return {"": cpu_ns / done / 1e3}

            sample()
            yield sample


@contextmanager
def idle_consumer(partitions: int, quick: bool) -> Iterator[Sample]:
    """% of a processor of a consumer that polls partitions without records."""
    seconds = 0.5 if quick else IDLE_S
    with ClusterProcess() as cluster:
        cluster.create_topic(TOPIC, partitions)
        with assigned(cluster, partitions) as consumer:
            consumer.poll(2.0)

            def sample() -> Figures:
                spent, begin = Spent(), time.monotonic()
                consumer.poll(seconds)
                return {"": spent.process() / 1e7 / (time.monotonic() - begin)}

            yield sample


# ---- metadata and connection


@contextmanager
def leader_hints(partitions: int, quick: bool) -> Iterator[Sample]:
    """ms of CPU to take in the new leaders of all partitions of a topic, as one Produce answer names them (KIP-951)."""
    parts = [PartitionInfo(index, 1, 0) for index in range(partitions)]
    snapshot = ClusterSnapshot(
        {1: Node(1, "h", 1), 2: Node(2, "h", 2)}, topics={TOPIC: TopicInfo(TOPIC, b"1" * 16, parts)}
    )
    hints = {TopicPartition(TOPIC, index): LeaderHint(2, 1) for index in range(partitions)}
    times = max(1, 300 // partitions)

    def sample() -> Figures:
        cpu_ns = 0
        for _ in range(times):
            metadata = Metadata(ClientConfig.from_user(bootstrap_servers="h:1"), ManualClock(1_000))
            metadata.snapshot = snapshot
            spent = Spent()
            updated = metadata.update_leaders(hints)
            cpu_ns += spent.thread()
            if len(updated) != partitions:
                raise SystemExit(f"{len(updated)} of {partitions} leaders were taken in")
        return {"": cpu_ns / times / 1e6}

    yield sample


@contextmanager
def gathering(pieces: int, quick: bool) -> Iterator[Sample]:
    """ms of CPU to write a frame of so many small pieces to a socket, the writing thread's alone."""
    buffers = [memoryview(bytearray(60)) if nth % 2 else bytes(12) for nth in range(pieces)]
    times = max(1, 2_000 // pieces)
    with contextlib.ExitStack() as stack:
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        for end in (ours, theirs):
            end.setblocking(False)
        channel = KafkaChannel(1, PlaintextTransport(ours), 1 << 20)
        if not (channel.finish_connect() and channel.prepare()):
            raise SystemExit("a channel over a pair of sockets is not ready")

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                while theirs.recv(1 << 20):
                    pass

        def sample() -> Figures:
            cpu_ns = 0
            for _ in range(times):
                send = NetworkSend(1, list(buffers))
                spent = Spent()
                channel.set_send(send)
                cpu_ns += spent.thread()
                while not send.completed:
                    spent = Spent()
                    channel.write()
                    cpu_ns += spent.thread()
                    drain()
            return {"": cpu_ns / times / 1e6}

        yield sample


@contextmanager
def taking_over(topics: int, quick: bool) -> Iterator[Sample]:
    """ms of CPU for a metadata answer of topics with 10 partitions: to decode it as a client does, to make it the client's view, and to
    take the same answer in once more."""
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
        for index in range(10)
    ]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=9092) for node in (1, 2, 3)],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=f"topic-{nth:06d}", topic_id=nth.to_bytes(16, "big"), partitions=partitions)
            for nth in range(1, topics + 1)
        ],
    )
    version = MetadataResponse.MAX_VERSION
    wire = b"".join(bytes(piece) for piece in response.encode(version))
    plan = MetadataResponse.plan(version)
    times = max(1, 30 // topics)

    # a checkout from before it had its own decoder of Metadata is measured with the one it has
    decode = getattr(_codec, "decode_metadata", None) or (lambda _plan, wire: MetadataResponse.decode(version, wire))

    def sample() -> Figures:
        took_ns = {"decoded": 0, "taken over": 0, "again": 0}
        for _ in range(times):
            metadata = Metadata(ClientConfig.from_user(bootstrap_servers="h:1"), ManualClock(1_000), all_topics=True)
            for part in ("taken over", "again"):
                spent = Spent()
                decoded = decode(plan, wire)
                took_ns["decoded"] += spent.thread() // 2
                metadata.begin_request(1_000)
                spent = Spent()
                metadata.update(decoded, 1_000)
                took_ns[part] += spent.thread()
            if len(metadata.snapshot.topics) != topics:
                raise SystemExit(f"{len(metadata.snapshot.topics)} of {topics} topics were taken over")
        return {part: ns / times / 1e6 for part, ns in took_ns.items()}

    yield sample


PER_RECORD = "ns of CPU per record"
SENDING_GOALS = {(size, part): KeepsRate(share) for size, share in ((1_000, 0.8), (10_000, 0.6)) for part in (THREAD, PROCESS)}
READING_GOALS = {(size, part): KeepsRate(share) for size, share in ((1_000, 0.8), (10_000, 0.5)) for part in ("poll", "poll_batch")}
GROUP_GOALS = {(size, part): KeepsRate(0.7) for size in (1_000, 10_000) for part in ("poll", "poll_batch")}
MANY_GOALS = {(size, part): AtMost(60) for size in TENS for part in ("columns", "list")}
SENDING_PARTS = (THREAD, PROCESS)

TABLES = [
    Growth(
        "producer.send", "producer: send() without a key", PER_RECORD, "partitions", TENS, TENS[:3],
        partial(sending, keyed=False), SENDING_GOALS, parts=SENDING_PARTS, rounds=7,
    ),
    Growth(
        "producer.keyed", "producer: send() with 10,000 keys", PER_RECORD, "partitions", TENS, TENS[:3],
        partial(sending, keyed=True), parts=SENDING_PARTS,
    ),
    Growth(
        "producer.many", "producer: send_many(), all defaults", PER_RECORD, "partitions", TENS, TENS[:3],
        sending_many, MANY_GOALS, parts=("columns", "list"), rounds=7,
    ),
    Growth(
        "producer.pass", "producer: a pass of the Sender, a small record for each topic", "ms of CPU", "topics", TOPICS, TOPICS[:3],
        sender_pass, {(8_000, ""): AtMost(15)},
    ),
    Growth(
        "producer.flush", "producer: flush() of a small record for each topic, whole process", "ms of CPU", "topics", TOPICS,
        TOPICS[:3], flushing,
    ),
    Growth(
        "consumer.one", "consumer: poll() of 500 records, poll_batch(); one broker", PER_RECORD, "partitions", READ, READ[:2],
        partial(reading, brokers=1), READING_GOALS, parts=("poll", "poll_batch"),
    ),
    Growth(
        "consumer.three", "consumer: poll() of 500 records, poll_batch(); three brokers", PER_RECORD, "partitions", READ, READ[:2],
        partial(reading, brokers=3), READING_GOALS, parts=("poll", "poll_batch"),
    ),
    Growth(
        "consumer.group", "consumer: poll() of 500 records, poll_batch() by a member of a group; three brokers", PER_RECORD, "partitions",
        READ, READ[:2], partial(reading, brokers=3, grouped=True), GROUP_GOALS, parts=("poll", "poll_batch"),
    ),
    Growth(
        "consumer.trickle", "consumer: a record comes to one of the assigned partitions", "us of CPU per record", "partitions",
        READ, READ[:2], trickling,
    ),
    Growth(
        "consumer.idle", "consumer: idle, nothing comes", "% of a processor", "partitions", READ, READ[:2],
        idle_consumer, {(10_000, ""): AtMost(1)}, rounds=3,
    ),
    Growth(
        "metadata.hints", "metadata: leader hints for every partition of a topic", "ms of CPU", "partitions",
        (1, 10, 100, 1_000, 3_000, 10_000), (1, 10, 100), leader_hints, {(3_000, ""): AtMost(5)},
    ),
    Growth(
        "metadata.gather", "connection: a frame of small pieces is written", "ms of CPU", "pieces",
        (100, 1_000, 10_000, 40_000), (100, 1_000), gathering, {(40_000, ""): AtMost(10)},
    ),
    Growth(
        "metadata.update", "metadata: an answer with topics of 10 partitions", "ms of CPU", "topics",
        TENS, TENS[:3], taking_over, {(10_000, "taken over"): AtMost(100)}, parts=("decoded", "taken over", "again"),
    ),
]  # fmt: skip
