"""Random calls of a consumer against a model of what each must return: nothing lost, doubled, reordered or handed over while paused.

Records from a byte to hundreds of kilobytes lie in batches of every codec; fetches are as small as one byte and as large as allowed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = [pytest.mark.usefixtures("client_face"), pytest.mark.kafka_at_length]

PARTITIONS = 2
Record = tuple[bytes | None, bytes | None]


def sizes(rng: random.Random) -> list[int]:
    kind = rng.random()
    if kind < 0.4:
        return [rng.randrange(50) for _ in range(rng.randrange(1, 200))]
    if kind < 0.7:
        return [rng.randrange(5000) for _ in range(rng.randrange(1, 50))]
    return [rng.randrange(20_000, 400_000)]


class Model:
    """What was written, and where the consumer has to stand."""

    def __init__(self, servers: str, topic: str, rng: random.Random) -> None:
        self.servers, self.topic, self.rng = servers, topic, rng
        self.tps = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        self.written: list[list[Record]] = [[] for _ in self.tps]
        self.position = [0] * PARTITIONS
        self.paused: set[int] = set()

    def write(self, batches: int) -> None:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            batch_size = self.rng.choice([0, 500, 100_000])
            with KafkaProducer(bootstrap_servers=self.servers, compression_type=codec, batch_size=batch_size) as out:
                for _ in range(batches):
                    index = self.rng.randrange(PARTITIONS)
                    for size in sizes(self.rng):
                        value = None if size == 7 else self.rng.randbytes(size)
                        key = None if self.rng.random() < 0.3 else b"%d" % size
                        out.send(self.topic, value, key=key, partition=index)
                        self.written[index].append((key, value))

    def take(self, record) -> None:
        index = record.partition
        assert index not in self.paused
        assert record.offset == self.position[index]
        assert (record.key, record.value) == self.written[index][record.offset]
        self.position[index] += 1

    def left(self) -> int:
        return sum(len(self.written[i]) - self.position[i] for i in range(PARTITIONS) if i not in self.paused)

    def step(self, consumer: KafkaConsumer) -> None:
        rng = self.rng
        index = rng.randrange(PARTITIONS)
        tp = self.tps[index]
        kind = rng.choice(["poll", "poll", "batch", "batch", "iterate", "pause", "resume", "seek", "ask", "jump"])
        if kind == "poll":
            for records in consumer.poll(0.02, max_records=rng.choice([None, 1, 3, 100])).values():
                for record in records:
                    self.take(record)
        elif kind == "batch":
            for columns in consumer.poll_batch(0.02):
                for record in columns:
                    self.take(record)
        elif kind == "iterate" and (count := min(self.left(), rng.randrange(1, 50))):
            for record in consumer:
                self.take(record)
                count -= 1
                if not count:
                    break
        elif kind == "pause" and not self.paused:
            consumer.pause(tp)
            self.paused.add(index)
        elif kind == "resume":
            consumer.resume(*(self.tps[i] for i in self.paused))
            self.paused.clear()
        elif kind == "seek":
            self.position[index] = rng.randrange(len(self.written[index]) + 1)
            consumer.seek(tp, self.position[index])
        elif kind == "ask":
            assert consumer.position(tp) == self.position[index]
        elif kind == "jump":
            consumer.seek_to_beginning(tp) if rng.random() < 0.5 else consumer.seek_to_end(tp)
            self.position[index] = consumer.position(tp)
            assert self.position[index] in (0, len(self.written[index]))


@pytest.mark.parametrize("seed", range(3))
def test_every_call_returns_what_comes_next(bootstrap_servers: str, make_topic: Callable[..., str], seed: int) -> None:
    rng = random.Random(seed)
    model = Model(bootstrap_servers, make_topic(PARTITIONS, segment_bytes=1 << 20), rng)
    model.write(16)  # several segments in every partition
    with KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=5,
        max_partition_fetch_bytes=[1, 300_000, 1 << 20][seed],
        fetch_max_bytes=[50 << 20, 50 << 20, 200_000][seed],
        max_poll_records=rng.choice([1, 50, 5000]),
        isolation_level=rng.choice(["read_committed", "read_uncommitted"]),
    ) as consumer:
        consumer.assign(model.tps)
        for nth in range(150):
            model.step(consumer)
            if nth == 75:
                model.write(1)
        consumer.resume(*model.tps)
        model.paused.clear()
        while model.left():
            polled = consumer.poll(10, max_records=5000)
            assert polled, f"nothing more after {model.position} of {[len(each) for each in model.written]}"
            for records in polled.values():
                for record in records:
                    model.take(record)
