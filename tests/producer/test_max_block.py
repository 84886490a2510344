"""max_block_ms: one budget for all that a send waits for. And names that are no topic's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import KafkaProducer
from kafkacore.clock import ManualClock
from kafkacore.errors import BufferFullError, KafkaTimeoutError
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.types import Node, ProducerRecord
from tests.kit.inside import metadata_of, sender_of, topics_of
from tests.kit.rows import each_row

METADATA_MS = 1500
MEMORY_MS = 300


class Slow(KafkaProducer):
    """The metadata of a topic takes METADATA_MS; and another thread takes the first memory that MEMORY_MS of waiting have brought."""

    def __init__(self, clock: ManualClock, **settings: Any) -> None:
        self.time = clock
        self.granted: list[int] = []
        super().__init__(bootstrap_servers="127.0.0.1:1", clock=clock, max_block_ms=2000, **settings)
        self.opens = self._accumulator.roll
        self._accumulator.roll = self.contended  # type: ignore[method-assign]

    def _await_topic(self, topic: str, max_block_ms: int) -> TopicInfo:
        assert max_block_ms == 2000
        self.time.advance(METADATA_MS)
        known = dict(self._metadata.snapshot.topics)
        known[topic] = TopicInfo(topic, bytes(16), [PartitionInfo(0, 1, 0)])
        self._metadata.snapshot = ClusterSnapshot({1: Node(1, "127.0.0.1", 1)}, topics=known)
        return known[topic]

    def contended(self, queue: Any, chosen: Any, nbytes: int, now_ms: int, max_block_ms: int, left_bytes: int) -> None:
        self.granted.append(max_block_ms)
        if len(self.granted) % 2:
            self.time.advance(MEMORY_MS)
        else:
            self.opens(queue, chosen, nbytes, now_ms, 0, left_bytes)


@pytest.fixture
def producer() -> Iterator[Slow]:
    slow = Slow(ManualClock())
    yield slow
    slow.close(0)


def plain(producer: KafkaProducer) -> None:
    producer.send("t", b"x")


def record(producer: KafkaProducer) -> None:
    producer.send(ProducerRecord("t", b"x"))


def columns(producer: KafkaProducer) -> None:
    producer.send_many("t", [b"x"])


def rows(producer: KafkaProducer) -> None:
    producer.send_many("t", [b"x"], headers=[[("h", b"v")]])


@pytest.mark.parametrize("send", [plain, record, columns, rows])
def test_metadata_and_memory_share_one_budget(producer: Slow, send: Callable[[KafkaProducer], None]) -> None:
    """KafkaProducer.doSend: remainingWaitMs = max(0, maxBlockTimeMs - waitedOnMetadataMs)."""
    send(producer)
    assert producer.granted == [500, 200]


def test_each_send_has_its_own_budget(producer: Slow) -> None:
    producer.send("t", b"x")
    for queue in topics_of(producer)["t"].partitions:
        queue.close_open()
    producer.send("t", b"x")
    assert producer.granted == [500, 200, 2000, 1700]


def test_a_general_send_many_counts_the_metadata_once(producer: Slow) -> None:
    producer._plain = False  # as with serializers: each record takes the path of send()
    producer.send_many("t", [b"x"])
    assert producer.granted == [500, 200]


def test_a_partition_just_added_is_waited_for_within_the_budget(producer: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    def await_update(version: int, timeout_ms: int) -> bool:
        waits.append(timeout_ms)
        producer.time.advance(100)
        return False

    monkeypatch.setattr(metadata_of(producer), "await_update", await_update)
    with pytest.raises(Exception, match="partition 3 of topic t does not exist"):
        producer.send("t", b"x", partition=3)
    assert waits == [500]
    with pytest.raises(Exception, match="topic t has 1 partition; asked for"):
        producer.send_many("t", [b"x"], partitions=[3])
    assert waits == [500, 2000]


def test_the_error_says_how_long_memory_was_waited_for() -> None:
    slow = Slow(ManualClock(), buffer_memory=20_000, batch_size=16_384)
    try:
        slow.send("t", b"x" * 15_000)
        with pytest.raises(BufferFullError, match="buffer_memory stayed full"):
            slow.send("t", b"x" * 15_000)
    finally:
        slow.close(0)


def test_a_call_of_a_transaction_takes_max_block_ms_unless_it_has_a_timeout() -> None:
    with KafkaProducer(bootstrap_servers="127.0.0.1:1", transactional_id="x", max_block_ms=20) as unreachable:
        for timeout, said in ((None, "0.02"), (0.01, "0.01")):
            with pytest.raises(KafkaTimeoutError, match=rf"init_transactions\(\) did not end within {said} s"):
                unreachable.init_transactions(timeout)
        with pytest.raises(KafkaTimeoutError) as raised:
            unreachable.partitions_for("t")
        assert raised.value.topic == "t"


def test_a_topic_that_nothing_is_sent_to_for_five_minutes_is_not_asked_for_any_more() -> None:
    clock, asked = ManualClock(), []
    with KafkaProducer(bootstrap_servers="127.0.0.1:1", clock=clock, max_block_ms=0) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.partitions_for("t")
        for ms in (299_999, 1):
            clock.advance(ms)
            metadata_of(producer).request_update()
            asked.append(metadata_of(producer).begin_request(clock.now_ms()))
    assert asked == [["t"], []]


def test_a_flush_waits_for_each_record_for_what_is_left_of_its_time(producer: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    times_s, waits = iter([100.0, 100.25, 102.0]), []
    monkeypatch.setattr("kafkacore.producer.time", SimpleNamespace(monotonic=lambda: next(times_s)))
    monkeypatch.setattr(sender_of(producer), "wait", lambda delivery, timeout_s: waits.append(timeout_s))
    for topic in ("t", "u"):
        producer.send(topic, b"x")
    producer.flush(1.0)
    producer.flush()
    assert waits == [0.75, 0.0, None, None]


# ---- names -----------------------------------------------------------------------------------------------------------------------------


@each_row("topic", [None, 5, b"t", ["t"]])
@each_row(
    "call",
    [
        lambda producer, topic: producer.send(topic, b"x"),
        lambda producer, topic: producer.send(ProducerRecord(topic, b"x")),
        lambda producer, topic: producer.send_many(topic, [b"x"]),
        lambda producer, topic: producer.partitions_for(topic),
    ],
    ids=["send", "record", "send_many", "partitions_for"],
)
def test_what_is_no_name_is_refused_by_name_and_never_asked_for(producer: Slow, topic: Any, call: Callable[[Any, Any], object]) -> None:
    for _ in range(2):  # the first call, and one after another topic
        with pytest.raises(TypeError, match=f"topic must be a str.*{type(topic).__name__}"):
            call(producer, topic)
        producer.send("t", b"x")
    assert set(topics_of(producer)) == {"t"}
