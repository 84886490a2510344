"""What a caller gives and no request can carry: it is raised, at once where that can be, and nothing else is held up by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from kafkacore import errors
from kafkacore.config import ConsumerConfig
from kafkacore.consumer import KafkaConsumer
from kafkacore.consumer.arguments import milliseconds, offset_of, partition_of
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.rows import each_row

TP = TopicPartition("t", 0)
LONG = "m" * 40_000
HOUR_S = 3_600


@each_row(
    "given, found",
    [
        (("t", 0), TP),
        (["t", (1 << 31) - 1], TopicPartition("t", (1 << 31) - 1)),
        (("t", 1 << 31), None),
        (("t", -1), None),
        (("t", 0, 0), None),
        (("t",), None),
        (("", 0), None),
        ((b"t", 0), None),
        (("t", "0"), None),
        ("t0", None),
    ],
)
def test_what_is_a_partition(given: Any, found: TopicPartition | None) -> None:
    if found is not None:
        assert partition_of(given) == found
    else:
        with pytest.raises(errors.UsageError, match=r"not a \(topic, partition\) pair"):
            partition_of(given)


@each_row("offset, good", [(0, True), ((1 << 63) - 1, True), (1 << 63, False), (-1, False), ("1", False)])
@each_row("epoch, fits", [(None, True), (0, True), ((1 << 31) - 1, True), (1 << 31, False), (-1, False), ("1", False)])
def test_what_is_a_position(offset: Any, good: bool, epoch: Any, fits: bool) -> None:
    found = OffsetAndMetadata(offset, epoch)
    if good and fits:
        assert offset_of(TP, found) is found and offset_of(TP, offset) == OffsetAndMetadata(offset)
    else:
        with pytest.raises(errors.UsageError) as raised:
            offset_of(TP, found)
        assert (raised.value.topic, raised.value.partition) == TP


@each_row("seconds, ms", [(0, 0), (1.5, 1_500), (0.0004, 0), (0.0006, 1), (math.inf, 1 << 40), (math.nan, None), ("1", None)])
def test_what_is_a_time(seconds: Any, ms: int | None) -> None:
    if ms is not None:
        assert milliseconds(seconds) == ms
    else:
        with pytest.raises(errors.UsageError, match="a timeout is a number of seconds"):
            milliseconds(seconds)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        started.create_topic("t", partitions=1)
        yield started


@pytest.fixture(params=["classic", "consumer"])
def member(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=f"g-{request.param}", group_protocol=request.param, enable_auto_commit=False
    )
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(0.05)
    yield consumer
    consumer.close(timeout=HOUR_S)  # a commit that never ends would be waited for


@each_row(
    ("tp", "found"),
    [
        (TP, 1 << 63),
        (TP, OffsetAndMetadata(1, leader_epoch=1 << 31)),
        (TP, OffsetAndMetadata(1, leader_epoch=-1)),
        (TP, OffsetAndMetadata(1, metadata=LONG)),
        (TP, OffsetAndMetadata(1, metadata="\ud800")),
        (TopicPartition("t", 1 << 31), 1),
        (TopicPartition(LONG, 0), 1),
    ],
)
def test_offsets(member: KafkaConsumer, tp: TopicPartition, found: Any) -> None:
    """A commit that cannot be encoded held up every later one, and close."""
    with pytest.raises(errors.UsageError):
        member.commit({tp: found}, timeout=HOUR_S)
    called: list[Any] = []
    with pytest.raises(errors.UsageError):
        member.commit_async({tp: found}, callback=lambda *given: called.append(given))
    member.commit({TP: 3}, timeout=HOUR_S)
    assert called == []
    assert member.committed(TP) == OffsetAndMetadata(3)


NO_POSITIONS = [1 << 63, -1, 1.5, OffsetAndMetadata(1, leader_epoch=1 << 31), OffsetAndMetadata(1, leader_epoch=-2)]


@each_row(
    ("call", "args", "options"),
    [
        ("committed", [TopicPartition("t", 1 << 31)], {}),
        ("committed", [TopicPartition(LONG, 0)], {}),
        *(("seek", [TP, found], {}) for found in NO_POSITIONS),
        *((call, [], {"timeout": timeout}) for call in ("poll", "poll_batch", "close", "commit") for timeout in (math.nan, "1")),
    ],
)
def test_questions_positions_and_timeouts(member: KafkaConsumer, call: str, args: list[Any], options: dict[str, Any]) -> None:
    before = member.position(TP)
    with pytest.raises(errors.UsageError):
        getattr(member, call)(*args, **options)
    assert member.position(TP, timeout=1e300) == before
    assert member.poll(0) == {}
    assert member.committed([TP]).keys() == {TP}
    member.commit({TP: 1}, timeout=math.inf)


@each_row("protocol", ["classic", "consumer"])
@each_row(("setting", "what"), [("client_rack", "rack"), ("group_id", "coordinator_keys")])
def test_settings(cluster: EmbeddedCluster, protocol: str, setting: str, what: str) -> None:
    """Every poll raises it: one that was raised once, and nothing came ever after, looked like an idle topic."""
    settings = {"group_id": f"h-{protocol}", setting: LONG}
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 1}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_protocol=protocol, **quick, **settings) as consumer:
        consumer.subscribe(["t"])
        for _ in range(3):
            with pytest.raises(errors.UsageError, match=what):
                consumer.poll(60)
        consumer.unsubscribe()


@each_row("instance_id", ["", ".", "..", "a b", "é", "i" * 250])
def test_instance_ids(instance_id: str) -> None:
    """Kafka's JoinGroupRequest.validateGroupInstanceId."""
    with pytest.raises(errors.ConfigError, match="group_instance_id"):
        ConsumerConfig(bootstrap_servers="b:1", group_id="g", group_instance_id=instance_id)
    ConsumerConfig(bootstrap_servers="b:1", group_id="g", group_instance_id="i" * 249)


NAMES = [("t", 0), 5, b"t", None, "\ud800", "x" * 40_000]
ASKING: dict[str, Callable[[KafkaConsumer, Any], Any]] = {
    "partitions_for": lambda c, name: c.partitions_for(name),
    "subscribe": lambda c, name: c.subscribe([name]),
    "assign": lambda c, name: c.assign([(name, 0)]),
    "end_offsets": lambda c, name: c.end_offsets([(name, 0)]),
    "read": lambda c, name: c.read([name]),
    "read_range": lambda c, name: list(c.read_range((name, 0), 0, 1)),
}


@each_row("name", NAMES, ids=["a pair", "a number", "bytes", "None", "a surrogate", "long"])
@each_row("call", sorted(ASKING))
def test_a_name_that_no_request_can_carry(cluster: EmbeddedCluster, call: str, name: Any) -> None:
    """The question about it could not be sent, nor could any later one about topics."""
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        with pytest.raises(errors.UsageError, match=r"name|pair"):
            ASKING[call](consumer, name)
        assert consumer.partitions_for("t") == [0]


@pytest.mark.parametrize("name", ["\ud800", "x" * 40_000], ids=["a surrogate", "long"])
def test_a_name_that_no_record_can_be_sent_to(cluster: EmbeddedCluster, name: str) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for call in (lambda: producer.send(name, b""), lambda: producer.send_many(name, [b""]), lambda: producer.partitions_for(name)):
            with pytest.raises(errors.UsageError, match="name"):
                call()
        assert producer.send("t", b"").result(HOUR_S).topic == "t"


@each_row("stretch", [None, 5, (1,), (0.5, 1), ("a", None), (1, 2, 3)])
def test_stretches_that_are_none(cluster: EmbeddedCluster, stretch: Any) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        with pytest.raises(errors.UsageError, match=r"\(first, end\), not"):
            consumer.read({("t", 0): stretch})
        assert consumer.read("t", numpy.int64(-1)).stretches.keys() == {TP}
