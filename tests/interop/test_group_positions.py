"""Where a member of a group begins: open transactions, a duration, topics created again, logs that were cut; on Apache Kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kafkacore import KafkaConsumer, OffsetAndMetadata, TopicPartition, errors
from tests.kit.records import fill, numbered
from tests.kit.rivals import confluent_consumer, confluent_producer
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
Make = Callable[..., KafkaConsumer]
HOUR_MS = 3_600_000
pytestmark = [pytest.mark.usefixtures("client_face"), pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.kafka_alone("tests/consumer")]
AT_LENGTH = pytest.mark.kafka_at_length


@pytest.fixture(params=["classic", "consumer"])
def member(request: pytest.FixtureRequest, bootstrap_servers: str) -> Iterator[Make]:
    protocol = request.param
    classic = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000} if protocol == "classic" else {}
    with contextlib.ExitStack() as stack:

        def make(topic: str, group: str, **settings: Any) -> KafkaConsumer:
            given = {"group_id": group, "group_protocol": protocol, "auto_offset_reset": "earliest", **classic, **settings}
            return stack.enter_context(KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, **given))

        yield make


def reads(consumer: KafkaConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    until(lambda: found.extend(r.value for rs in consumer.poll(0.1).values() for r in rs) or len(found) >= count, f"{count} records came")
    return found


@pytest.mark.parametrize("ends", ["commit", pytest.param("abort", marks=AT_LENGTH)])
def test_offsets_of_an_open_transaction_are_waited_for(bootstrap_servers: str, make_topic: MakeTopic, member: Make, ends: str) -> None:
    topic, group = make_topic(), fresh("g")
    tp = TopicPartition(topic, 0)
    fill(bootstrap_servers, topic, numbered(10))
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group) as outside:
        outside.commit({tp: 3})
    producer = confluent_producer(bootstrap_servers, transactional_id=fresh("x"))
    producer.init_transactions(WAIT_S)
    with contextlib.closing(confluent_consumer(bootstrap_servers, group_id=group)) as consumer:
        producer.begin_transaction()
        producer.produce(topic, b"within", partition=0)
        producer.send_offsets_to_transaction([confluent_kafka.TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), WAIT_S)
        reader = member(topic, group, isolation_level="read_committed")
        until(lambda: reader.poll(0.05) or reader.assignment(), "it has joined")
        assert not reader.poll(0.5), "it begins nowhere before the transaction has ended"

        def refused() -> errors.KafkaTimeoutError | None:
            with pytest.raises(errors.KafkaTimeoutError) as raised:
                reader.committed(tp, timeout=0.5)
            return raised.value if raised.value.attempts else None  # on a busy machine nothing may have been answered

        error = until(refused, "the coordinator answers")
        assert "UNSTABLE_OFFSET_COMMIT" in str(error)
        assert isinstance(error.attempts[0], errors.UnstableOffsetCommit)
        assert error.attempts[0].topic == topic
        getattr(producer, f"{ends}_transaction")(WAIT_S)
        begins = 7 if ends == "commit" else 3
        assert reader.committed(tp, timeout=30) == OffsetAndMetadata(begins)
        last = [b"within"] if ends == "commit" else []
        assert reads(reader, 10 - begins + len(last)) == numbered(10)[begins:] + last


def test_a_group_begins_a_duration_ago_and_then_where_it_has_committed(bootstrap_servers: str, make_topic: MakeTopic, member: Make) -> None:
    topic, group = make_topic(), fresh("g")
    now_ms = time.time_ns() // 1_000_000
    fill(bootstrap_servers, topic, numbered(10), timestamps_ms=[now_ms - (10 - i) * HOUR_MS for i in range(10)])
    reader = member(topic, group, auto_offset_reset="by_duration:PT3H30M", enable_auto_commit=False)
    assert reads(reader, 3) == numbered(10)[7:]
    reader.commit({(topic, 0): 2})
    reader.unsubscribe()
    reader.subscribe([topic])
    assert reads(reader, 8) == numbered(10)[2:]
    late = member(topic, fresh("g"), auto_offset_reset="by_duration:PT30M")  # nothing is that young: what comes next
    until(lambda: late.poll(0.05) or late.assignment(), "it has joined")
    assert late.position((topic, 0)) == 10


@pytest.mark.parametrize("reset", [pytest.param("latest", marks=AT_LENGTH), "none"])
def test_a_committed_offset_that_the_log_has_lost(bootstrap_servers: str, make_topic: MakeTopic, member: Make, reset: str) -> None:
    """A member that begins there asks the leader where the epoch of the committed offset ends (KIP-320)."""
    topic, group = make_topic(), fresh("g")
    fill(bootstrap_servers, topic, numbered(10))
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group) as outside:
        epoch = outside.partition_infos(topic)[0].leader_epoch
        outside.commit({(topic, 0): OffsetAndMetadata(13, epoch)})
    reader = member(topic, group, auto_offset_reset=reset, enable_auto_commit=False)
    if reset == "none":
        with pytest.raises(errors.LogTruncationError, match="ends at offset 10"):
            until(lambda: reader.poll(0.1), "records")
        reader.seek((topic, 0), 8)
        assert reads(reader, 2) == numbered(10)[8:]
        return
    until(lambda: reader.poll(0.05) or reader.assignment(), "it has joined")
    assert reader.position((topic, 0)) == 10
    fill(bootstrap_servers, topic, [b"after"])
    assert reads(reader, 1) == [b"after"]  # 13 would be out of range, and `latest` would have left it out
