"""`with KafkaConsumer(...)`: what its end commits, whose error the caller sees, and that the member leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore.consumer import KafkaConsumer
from kafkacore.net import block_end
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.clusters import make_topics
from tests.kit.groups import Heard
from tests.kit.inside import group_of
from tests.kit.records import take

PARTITIONS = 1
RECORDS = 30


@pytest.fixture
def make(shared: EmbeddedCluster, topic: str) -> Callable[..., KafkaConsumer]:
    def make(**settings: Any) -> KafkaConsumer:
        given = {"auto_offset_reset": "earliest", "max_poll_records": 10, "auto_commit_interval_ms": 600_000}
        return KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, group_id=f"g-{topic}", **given, **settings)

    return make


@pytest.fixture
def left(shared: EmbeddedCluster) -> Iterator[list[str]]:
    """The members that the coordinator hears leave."""
    found: list[str] = []

    def leave_group(request: Any) -> None:
        found.extend(member.member_id for member in request.members)

    shared.control("LeaveGroup", leave_group)
    yield found
    shared.control("LeaveGroup", None)


def offset_of(make: Callable[..., KafkaConsumer], topic: str) -> int | None:
    with make() as observer:
        found = observer.committed(TopicPartition(topic, 0))
    return None if found is None else found.offset


def chain(error: BaseException) -> list[BaseException]:
    found = [error]
    while (before := found[-1].__cause__ or found[-1].__context__) is not None:
        assert before not in found
        found.append(before)
    return found


class Bug(Exception):
    """Of the body."""


def failing(error: Any) -> Heard:
    def fail(_: Any) -> None:
        raise error

    return Heard(revoked=fail)


@pytest.mark.parametrize("raises", [None, Bug, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("auto", [True, False])
def test_what_the_last_poll_returned_is_committed_when_the_body_ends_well(make, topic, left, raises: Any, auto: bool) -> None:
    """The two polls before are not in doubt."""
    try:
        with make(enable_auto_commit=auto) as consumer:
            consumer.subscribe([topic])
            for _ in range(3):
                take(consumer, 1)
            if raises is not None:
                raise raises
    except (Bug, KeyboardInterrupt, SystemExit) as error:
        assert type(error) is raises
        assert chain(error) == [error]
    else:
        assert raises is None
    assert consumer.closed
    assert len(left) == 1
    assert offset_of(make, topic) == (None if not auto else 30 if raises is None else 20)


@pytest.mark.parametrize("how", ["commit", "commit_async"])
@pytest.mark.parametrize("end", ["with", "meanwhile"])
def test_what_the_application_committed_itself_is_not_taken_back(make, topic, left, how: str, end: str) -> None:
    """Automatic commits know less than it does: that the records before the last poll are processed."""
    with pytest.raises(Bug), make() as consumer:
        consumer.subscribe([topic])
        take(consumer, 1)
        take(consumer, 1)
        tp = TopicPartition(topic, 0)
        answers: list[Any] = []
        if how == "commit":
            consumer.commit({tp: 17})
        else:
            consumer.commit_async({tp: 17}, lambda offsets, error: answers.append(error))
            while not answers:
                consumer.committed(tp)  # goes behind it
                consumer.commit({})
            assert answers == [None]
        if end == "meanwhile":
            assert group_of(consumer) is not None
            assert group_of(consumer).processed() == {}
        raise Bug
    assert offset_of(make, topic) == 17


def test_in_a_for_loop_the_record_in_hand_is_the_doubtful_one(make, topic, left) -> None:
    with pytest.raises(Bug), make() as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            if record.offset == 13:
                raise Bug
    assert len(left) == 1
    assert offset_of(make, topic) == 13


FAILED, BUG, BEHIND = OSError("the listener failed"), Bug(), Bug()
BEHIND.__cause__ = ValueError("behind the bug")


@pytest.mark.parametrize(
    ("of_body", "of_listener", "seen"),
    [
        (Bug, FAILED, [Bug, OSError]),
        (BEHIND, FAILED, [Bug, ValueError, OSError]),
        (None, FAILED, [OSError]),
        (BUG, BUG, [Bug]),  # no circle
        (Bug, KeyboardInterrupt, [KeyboardInterrupt, Bug]),
    ],
)
def test_the_caller_sees_the_error_of_the_body_before_that_of_the_close(make, topic, left, of_body, of_listener, seen) -> None:
    with pytest.raises(seen[0]) as caught, make() as consumer:
        consumer.subscribe([topic], listener=failing(of_listener))
        take(consumer, 1)
        if of_body is not None:
            raise of_body
    assert consumer.closed
    assert seen[0] is KeyboardInterrupt or len(left) == 1
    assert [type(error) for error in chain(caught.value)] == seen


@pytest.mark.parametrize("reason", [KeyboardInterrupt, Bug, SystemExit])
def test_a_block_left_by_an_error_does_not_wait_long_for_brokers_that_are_gone(reason: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_end, "FAILED_BLOCK_S", 0.1)
    monkeypatch.setattr(block_end, "CLOSE_S", 1.0 if reason is SystemExit else 600.0)
    with EmbeddedCluster() as cluster:
        make_topics(cluster, {"t": [[b"a"]]})
        with (
            pytest.raises(reason),
            KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            take(consumer, 1)
            cluster.pause_broker(1)
            began_s = time.monotonic()
            raise reason
        took_s = time.monotonic() - began_s
        assert took_s >= 1 if reason is SystemExit else took_s < 300
        assert consumer.closed
