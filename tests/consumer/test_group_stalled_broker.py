"""The coordinator's connections stall in the middle of an answer: a byte of it comes each second.

Every call of a member that waits keeps to its timeout, and everything goes on when the broker does. What Ctrl+C ends is in
test_group_calls_that_wait.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafkacore import errors
from kafkacore.consumer import KafkaConsumer
from kafkacore.testing import CLIENTS, EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.clusters import embedded
from tests.kit.groups import until_polled
from tests.kit.inside import group_of, subscription_of
from tests.kit.waiting import fresh, until
from tests.kit.waits import GUARD_S

TIMEOUT_S = 0.3
LONG_S = 600
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 100

TIMED: dict[str, Callable[[KafkaConsumer, float], object]] = {
    "poll": lambda c, s: c.poll(s),
    "poll_batch": lambda c, s: c.poll_batch(s),
    "poll after enforce_rebalance": lambda c, s: (c.enforce_rebalance(), c.poll(s)),
    "poll after subscribe": lambda c, s: (c.subscribe(["t", "u"]), c.poll(s)),
    "commit": lambda c, s: c.commit({TP: 1}, timeout=s),
    "committed": lambda c, s: c.committed(OTHER, timeout=s),
    "position": lambda c, s: (c.seek_to_end(TP), c.position(TP, timeout=s)),
    "beginning_offsets": lambda c, s: c.beginning_offsets([TP], timeout=s),
    "end_offsets": lambda c, s: c.end_offsets([TP], timeout=s),
    "offsets_for_times": lambda c, s: c.offsets_for_times({TP: 1}, timeout=s),
    "partitions_for": lambda c, s: c.partitions_for("u", timeout=s),
    "list_topics": lambda c, s: c.list_topics(timeout=s),
    "unsubscribe": lambda c, s: (c.seek(TP, 3), c.unsubscribe()),
    "close": lambda c, s: (c.seek(TP, 3), c.close(s)),
}
NO_ERROR = ("poll", "poll_batch", "poll after enforce_rebalance", "poll after subscribe", "unsubscribe", "close")
"""What ends without an answer, and says so by its result or not at all."""
cluster = embedded({"t": [[b"v"] * RECORDS, []], "u": 2}, brokers=1, faults=True)


@contextmanager
def stalled(cluster: EmbeddedCluster) -> Iterator[None]:
    cluster.network.throttle(1, 1, CLIENTS, "from")
    try:
        yield
    finally:
        cluster.network.heal()


SETTINGS = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 20,  # what is on its way is answered before the next fetch goes
    "auto_commit_interval_ms": LONG_S * 1000,
    "default_api_timeout_ms": LONG_S * 1000,
    "heartbeat_interval_ms": 500,
}


@pytest.fixture
def member(cluster: EmbeddedCluster) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id=fresh("g"), **SETTINGS)
    read_all(consumer)
    yield consumer
    consumer.close(1)


def read_all(consumer: KafkaConsumer) -> None:
    """Everything from the beginning."""
    until_polled(lambda: {TP, OTHER} <= consumer.assignment(), consumer)
    consumer.seek(TP, 0)
    until_polled(lambda: TP in consumer.assignment() and subscription_of(consumer).state_of(TP).offset == RECORDS, consumer)


@pytest.mark.parametrize("call", TIMED)
def test_every_call_keeps_to_its_timeout_and_works_again_afterwards(cluster, member, call: str) -> None:
    if call == "unsubscribe":  # which has no timeout of its own
        object.__setattr__(member.config, "default_api_timeout_ms", round(TIMEOUT_S * 1000))
    with stalled(cluster):
        began_s = time.monotonic()
        if call in NO_ERROR:
            TIMED[call](member, TIMEOUT_S)
        else:
            with pytest.raises(errors.KafkaTimeoutError):
                TIMED[call](member, TIMEOUT_S)
        assert time.monotonic() - began_s < GUARD_S, "it waits for no answer"
    if call == "close":
        assert member.closed
        return
    if call == "unsubscribe":
        assert not member.assignment()
        member.subscribe(["t"])
        read_all(member)
    else:
        read_all(member)
        member.seek(TP, 0)
        TIMED[call](member, GUARD_S)
    commits_again(member)


def commits_again(consumer: KafkaConsumer) -> None:
    for _ in range(10):  # a rebalance may be going on
        try:
            consumer.commit({TP: 5}, timeout=GUARD_S)
            break
        except errors.RebalanceInProgress:
            consumer.poll(1)
    assert consumer.committed(TP, timeout=GUARD_S).offset == 5


@pytest.mark.parametrize("timeout_s", [0, TIMEOUT_S])
def test_nothing_is_handed_out_while_the_commit_before_a_rebalance_waits(cluster, timeout_s: float) -> None:
    """What was read before the stop is committed, so no record comes twice although all partitions were given up."""
    settings = {"group_id": fresh("h"), "max_poll_records": 10, **SETTINGS}
    with KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
        offsets: list[int] = []

        def read(timeout_s: float) -> int:
            found = [r.offset for records in consumer.poll(timeout_s).values() for r in records]
            offsets.extend(found)
            return len(found)

        while len(offsets) < 20:
            read(0.1)
        consumer.enforce_rebalance()
        with stalled(cluster):
            assert not any(read(timeout_s) for _ in range(3))
            assert group_of(consumer).gives_up
        until(lambda: read(0.1) and len(offsets) >= RECORDS, "all is read", every_s=0)
        assert offsets == list(range(RECORDS))
        assert group_of(consumer).membership.rebalances == 2
