"""What the old producers count: ProducerStats, ProducerTopicStats and ProducerRequestStats of Kafka 0.8.

Rates and times are of the last 30 to 60 s; counts are since the producer was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkacore._codec import SampledStat


class Meter(NamedTuple):
    """How often, and how often per second lately."""

    count: float  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    per_second: float


class TopicStatistics(NamedTuple):
    """Of one topic: messages and bytes handed to the event handler, messages dropped since the queue was full."""

    messages: Meter
    bytes: Meter
    dropped_messages: Meter


class ProducerStatistics(NamedTuple):
    """Of one producer.

    Attributes:
        serialization_errors: messages that a serializer refused.
        resends: retries of what had failed.
        failed_sends: batches of which something was not sent with the last retry.
        requests: requests answered, or written with acks=0.
        request_time_ms_avg, request_time_ms_max: from send to answer; NaN without requests.
        request_size_bytes_avg: NaN without requests.
        queue_size: messages in the queue of an `AsyncProducer` now, else 0.
        topics: by topic.
    """

    serialization_errors: Meter
    resends: Meter
    failed_sends: Meter
    requests: Meter
    request_time_ms_avg: float
    request_time_ms_max: float
    request_size_bytes_avg: float
    queue_size: int
    topics: Mapping[str, TopicStatistics]


class _TopicCounts:
    def __init__(self) -> None:
        self.messages = SampledStat()
        self.bytes = SampledStat()
        self.dropped = SampledStat()


class Counts:
    """The counters. Read from any thread without a lock."""

    def __init__(self) -> None:
        self.serialization_errors = SampledStat()
        self.resends = SampledStat()
        self.failed_sends = SampledStat()
        self.request_time_ms = SampledStat()
        self.request_bytes = SampledStat()
        self.topics: dict[str, _TopicCounts] = {}

    def of(self, topic: str) -> _TopicCounts:
        """The counters of a topic."""
        found = self.topics.get(topic)
        return self.topics.setdefault(topic, _TopicCounts()) if found is None else found

    def read(self, now_ms: int, queue_size: int) -> ProducerStatistics:
        """All of them as of now."""

        def events(stat: SampledStat) -> Meter:
            return Meter(stat.count, stat.count_rate(now_ms))

        def amounts(stat: SampledStat) -> Meter:
            return Meter(stat.total, stat.rate(now_ms))

        return ProducerStatistics(
            events(self.serialization_errors),
            events(self.resends),
            events(self.failed_sends),
            events(self.request_time_ms),
            self.request_time_ms.avg(now_ms),
            self.request_time_ms.max(now_ms),
            self.request_bytes.avg(now_ms),
            queue_size,
            {name: TopicStatistics(amounts(t.messages), amounts(t.bytes), amounts(t.dropped)) for name, t in self.topics.copy().items()},
        )
