"""A producer's metrics under Kafka's names, put together when they are read.

Source: Kafka's SenderMetricsRegistry, BufferPool, RecordAccumulator.registerMetrics, KafkaProducerMetrics. `txn-commit-total` and
`txn-abort-total` are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkacore._codec import BufferPool, NodeStats, ProducerStats, TopicQueue, TopicStats
from kafkacore.net.measure import Measured, NetworkStats, amounts, average_and_most, events, of_network

PRODUCER = "producer-metrics"
TOPIC = "producer-topic-metrics"


TRANSACTION_CALLS = {
    "init_transactions": "init",
    "begin_transaction": "begin",
    "send_offsets_to_transaction": "send-offsets",
    "commit_transaction": "commit",
    "abort_transaction": "abort",
}
"""As Kafka's metrics call them."""


class TransactionStats:
    """The calls of transactions that came to a good end. They belong to one thread, so nothing is locked.

    Attributes:
        time_ns: how long they took together, by call.
        committed, aborted: transactions.
    """

    __slots__ = ("aborted", "committed", "time_ns")

    def __init__(self) -> None:
        """No call yet."""
        self.time_ns = dict.fromkeys(TRANSACTION_CALLS, 0)
        self.committed = self.aborted = 0

    def ended(self, call: str, time_ns: int) -> None:
        """A call came to a good end; one for which Kafka has no metric is left out.

        Args:
            call: the method.
            time_ns: how long it took.
        """
        if call in self.time_ns:
            self.time_ns[call] += time_ns
        self.committed += call == "commit_transaction"
        self.aborted += call == "abort_transaction"


def of_producer(
    network: NetworkStats, stats: ProducerStats, transactions: TransactionStats, pool: BufferPool, topics: Iterable[TopicQueue], now_ms: int
) -> Iterator[Measured]:
    """Everything a producer measures.

    Args:
        network: what its network counts.
        stats: the Sender's.
        transactions: what their calls took.
        pool: the buffer memory.
        topics: what was sent to.
        now_ms: the time.
    """
    for name, value in _of_requests(stats, now_ms):
        yield Measured(PRODUCER, name, value)
    for call, name in TRANSACTION_CALLS.items():
        yield Measured(PRODUCER, f"txn-{name}-time-ns-total", transactions.time_ns[call])
    yield Measured(PRODUCER, "txn-commit-total", transactions.committed)
    yield Measured(PRODUCER, "txn-abort-total", transactions.aborted)
    yield Measured(PRODUCER, "buffer-total-bytes", pool.total_bytes)
    yield Measured(PRODUCER, "buffer-available-bytes", pool.available_bytes)
    yield Measured(PRODUCER, "waiting-threads", pool.queued)
    for queue in topics:
        tags = (("topic", queue.topic),)
        for name, value in _of_topic(queue.stats, now_ms):
            yield Measured(TOPIC, name, value, tags)
    yield from of_network(network, "producer", now_ms)


def _of_requests(stats: ProducerStats, now_ms: int) -> Iterator[tuple[str, float]]:
    yield from average_and_most("record-queue-time", stats.queue_time_ms, now_ms)
    yield from average_and_most("batch-size", stats.batch_bytes, now_ms)
    yield "compression-rate-avg", stats.compression.avg(now_ms)
    yield "records-per-request-avg", stats.records.avg(now_ms)
    yield from amounts("record-send", stats.records, now_ms)
    yield from average_and_most("request-latency", stats.latency_ms, now_ms)
    yield "request-latency-p99", stats.latency_ms.percentile(0.99, now_ms)
    yield from average_and_most("produce-throttle-time", stats.throttle_ms, now_ms)
    yield from amounts("record-retry", stats.retried, now_ms)
    yield from amounts("record-error", stats.failed, now_ms)
    yield from events("batch-split", stats.splits, now_ms)


def _of_topic(stats: TopicStats, now_ms: int) -> Iterator[tuple[str, float]]:
    yield from amounts("record-send", stats.records, now_ms)
    yield from amounts("byte", stats.bytes, now_ms)
    yield "compression-rate", stats.bytes.total / stats.uncompressed_bytes if stats.uncompressed_bytes else float("nan")
    yield from amounts("record-retry", stats.retried, now_ms)
    yield from amounts("record-error", stats.failed, now_ms)


def all_names() -> list[Measured]:
    """One of each value that a producer may have, for exporters that have to know names before there are values."""
    network, topics = NetworkStats({0: NodeStats()}, 0), [TopicQueue("")]
    return list(of_producer(network, ProducerStats(), TransactionStats(), BufferPool(1, 1), topics, 0))
