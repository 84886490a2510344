"""A member that closes or unsubscribes in the middle of a rebalance commits what was processed, as long as the protocol allows it.

The coordinator takes commits of the old generation until all members have joined, refuses those of the new generation until the leader
has assigned, and reads nothing behind a JoinGroup or SyncGroup that it holds back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from numbered import send_numbers
from refused_commits import refuse_commits

from kafkacore import errors
from kafkacore.consumer import KafkaConsumer
from kafkacore.errors import Code
from kafkacore.testing import Delay, Drop, EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit import groups
from tests.kit.groups import Heard, Members, until_polled
from tests.kit.inside import group_of
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("client_face", "in_control")

FACED = (groups,)
PARTITIONS = 4
RECORDS = 80
MEMBER = {"auto_commit_interval_ms": 600_000}


@pytest.fixture
def group_protocol() -> str:
    return "classic"


@pytest.fixture
def in_control(shared: EmbeddedCluster, member: Members) -> Iterator[None]:
    """Members close when the coordinator is well again."""
    yield
    for name in ("JoinGroup", "SyncGroup", "OffsetCommit"):
        shared.control(name, None)


@pytest.fixture
def observer(shared: EmbeddedCluster, topic: str) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, group_id=f"g-{topic}", enable_auto_commit=False) as consumer:
        yield consumer


def phase(consumer: KafkaConsumer) -> str:
    return group_of(consumer).membership.phase.value


def share(*members: KafkaConsumer) -> None:
    """Until they share the partitions."""

    def shared() -> bool:
        for consumer in members:
            consumer.poll(0.02, max_records=1)
        return sum(len(m.assignment()) for m in members) == PARTITIONS and all(m.assignment() and phase(m) == "stable" for m in members)

    until(shared, "they share the partitions", every_s=0)


def read_on(shared: EmbeddedCluster, topic: str, consumer: KafkaConsumer) -> dict[TopicPartition, int]:
    """Reads something new of every partition, without a commit. Returns what there is to commit."""
    before = {tp: consumer.position(tp) for tp in consumer.assignment()}
    send_numbers(shared, topic, PARTITIONS, RECORDS)
    while not all(consumer.position(tp) > offset for tp, offset in before.items()):
        consumer.poll(1)
    return {tp: consumer.position(tp) for tp in before}


def committed(consumer: KafkaConsumer, tps: Any = None) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in consumer.committed(tps or consumer.assignment()).items() if found is not None}


ENDS: dict[str, Callable[[KafkaConsumer], object]] = {
    "close": lambda consumer: consumer.close(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.parametrize("end", ENDS)
def test_while_the_leader_assigns(shared, topic, member, observer, end: str) -> None:
    leader, leaver = (member(partition_assignment_strategy=["cooperative-sticky"]) for _ in range(2))
    share(leader, leaver)
    if group_of(leaver).membership.leads:
        leader, leaver = leaver, leader
    processed = read_on(shared, topic, leaver)
    asked = threading.Event()

    def slow_leader(request: Any) -> Any:
        if request.assignments:
            asked.set()
            return Delay(1_000)
        return None

    shared.control("SyncGroup", slow_leader)
    leaver.enforce_rebalance()
    until_polled(lambda: asked.is_set() and phase(leaver) == "syncing", leaver)
    processed = {tp: leaver.position(tp) for tp in processed}
    ENDS[end](leaver)
    assert committed(observer, list(processed)) == processed


@pytest.mark.parametrize(("end", "leads"), [("close", True), ("unsubscribe", False)])
def test_when_the_group_has_rebalanced_with_a_member_that_does_not_know_it(shared, topic, member, observer, end: str, leads: bool) -> None:
    """The answer to its JoinGroup is lost, or on its way: its generation may not commit any more, and the next may."""
    leaver, other = (member(partition_assignment_strategy=["cooperative-sticky"]) for _ in range(2))
    share(leaver, other)
    if group_of(leaver).membership.leads != leads:
        leaver, other = other, leaver
    processed = read_on(shared, topic, leaver)
    its_id = leaver.consumer_group_metadata().member_id
    generation = other.consumer_group_metadata().generation_id
    lost = threading.Event()

    def lose(request: Any) -> Any:
        if request.member_id != its_id or lost.is_set():
            return None
        lost.set()
        return Drop(handle=True)

    shared.control("JoinGroup", lose)
    leaver.enforce_rebalance()
    until_polled(lost.is_set, leaver, other)
    until_polled(lambda: group_of(other).membership.metadata.generation_id > generation, other)
    processed = {tp: leaver.position(tp) for tp in processed}
    ENDS[end](leaver)
    assert committed(observer, list(processed)) == processed


@pytest.mark.parametrize("by", ["itself", "the listener"])
@pytest.mark.parametrize("end", ENDS)
def test_a_commit_that_the_rebalance_refuses_is_tried_again(shared, topic, member, observer, end: str, by: str) -> None:
    heard = Heard(revoked=lambda _: leaver.commit() if by == "the listener" else None)
    leaver = member(heard, enable_auto_commit=by == "itself")
    share(leaver)
    processed = read_on(shared, topic, leaver)
    refusals = refuse_commits(shared, Code.REBALANCE_IN_PROGRESS, times=3)
    ENDS[end](leaver)
    assert not refusals
    assert committed(observer, list(processed)) == processed


@pytest.mark.parametrize("when", ["left over", "during the commit"])
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_wakeup_does_not_cut_the_commit(member, shared, topic, observer, caplog, group_protocol: str, when: str) -> None:
    """A signal handler that is called twice, or while the consumer closes."""
    consumer = member(group_protocol=group_protocol)
    share(consumer)
    expected = read_on(shared, topic, consumer)
    seen: list[Any] = []

    def slow(request: Any) -> Any:
        if request.topics and not seen:
            seen.append(request)
            if when == "during the commit":
                consumer.wakeup()
        return Delay(200)

    shared.control("OffsetCommit", slow)
    if when == "left over":
        consumer.wakeup()
        with pytest.raises(errors.WakeupError):
            consumer.poll(1, max_records=1)
        consumer.wakeup()
    consumer.close()
    assert seen
    assert "wakeup" not in caplog.text
    assert {tp: found.offset for tp, found in observer.committed(expected).items()} == expected
    assert consumer.closed
