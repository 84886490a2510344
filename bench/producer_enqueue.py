"""What the calling thread pays per record: send() in its forms and send_many(), beside confluent-kafka's produce().

Nothing is sent: kafkacore's batches go back to the pool as soon as they are full; confluent's queue is purged outside the timed part.
Time is the calling thread's CPU time.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka
import numpy as np
from harness import Table, arguments, repeat, report, run_cases

from kafkacore import _codec
from kafkacore._codec import ColumnSource, ManyProgress, ProducerCore, TopicQueue
from kafkacore.producer.accumulator import BufferPool, RecordAccumulator
from kafkacore.types import TopicPartition

BATCH_BYTES = 131_072
MANY = 10_000
RIVAL = {
    "bootstrap.servers": "127.0.0.1:1",
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
    "log_level": 0,
}


class Append(ProducerCore):
    """The append path over the real accumulator and pool, without a Sender."""

    def __init__(self) -> None:
        self.pool = BufferPool(32 << 20, BATCH_BYTES)
        self.accumulator = RecordAccumulator(
            batch_size=BATCH_BYTES, linger_ms=5, delivery_timeout_ms=120_000, max_request_size=1 << 20, pool=self.pool, backoff_ms=int
        )
        self.queue = TopicQueue("t")
        self.queue.grow(4, TopicPartition)
        self._add_topic(self.queue)
        self._fast = True

    def _roll(self, queue: TopicQueue, chosen: Any, record_bytes: int) -> None:
        target = queue.sticky if chosen is None else chosen
        self.accumulator.roll(queue, chosen, record_bytes, 0, 0)
        if len(target.batches) > 2:
            batch = target.batches.popleft()
            batch.close()
            self.accumulator.deallocate(batch)

    def _begun(self) -> None:
        self.accumulator.begun(0)


def main() -> None:
    options = arguments(__doc__)
    table = Table("enqueue", "ns per record")
    for size in (100, 1024):
        value, key = b"x" * size, b"key-1"
        core = Append()
        rival = confluent_kafka.Producer(RIVAL)
        data = np.frombuffer(value * MANY, np.uint8)
        pair = (data, np.arange(MANY + 1, dtype=np.int64) * size)
        values = [value] * MANY

        def tracked(n: int, send: Any = core.send, value: bytes = value) -> None:
            for _ in range(n):
                send("t", value, on_delivery=_ignore)

        def many(source: Any, core: Append = core) -> Any:
            def case(n: int) -> None:
                for _ in range(n):
                    core._append_many(core.queue, ColumnSource(source), None, None, None, -1, None, ManyProgress())

            return case

        def confluent(callback: Any, rival: Any = rival, value: bytes = value) -> Any:
            def case(n: int) -> None:
                for _ in range(n):
                    rival.produce("t", value, on_delivery=callback)

            return case

        row = run_cases(
            {
                "send()": repeat(core.send, "t", value),
                "keyed": repeat(core.send, "t", value, key),
                "on_delivery": tracked,
                "confluent": confluent(None),
                "confluent on_delivery": confluent(_ignore),
            }
        )
        row |= run_cases({"send_many list": many(values), "send_many columns": many(pair)}, units=MANY)
        table.add(f"{size} B", row)
        rival.purge()
        rival.poll(0)
    report([table], as_json=options.json)


def _ignore(*_: object) -> None:
    pass


if __name__ == "__main__":
    assert _codec.BATCH_OVERHEAD_BYTES < BATCH_BYTES
    main()
