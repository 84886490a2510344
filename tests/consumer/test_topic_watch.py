"""What a consumer makes of each metadata answer about its topics."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.clock import ManualClock
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.subscription import EARLIEST, ResetStrategy, SubscriptionState
from kafkacore.consumer.topics import TopicWatch
from kafkacore.metadata import Metadata
from kafkacore.types import TopicPartition
from tests.kit.inside import is_wanted

ABSENT, DENIED = 3, 29


class Watch(TopicWatch):
    """One whose answers and time the test gives."""

    def __init__(self) -> None:
        self.clock, config = ManualClock(1_000), ConsumerConfig(bootstrap_servers="127.0.0.1:1")
        self.metadata, self.subscription = Metadata(config, self.clock), SubscriptionState(ResetStrategy("latest"))
        self.metadata.bootstrap([("127.0.0.1", 1)])
        self.looks = 0
        fetcher: Any = SimpleNamespace(wants_fetch=False, retain=self.retain)
        driver: Any = SimpleNamespace(metadata=self.metadata, client=None, clock=self.clock)
        super().__init__(self.subscription, driver, fetcher, config)
        self.fetcher = fetcher

    def retain(self) -> None:
        self.looks += self.fetcher.wants_fetch

    def answer(self, after_ms: int = 0, **topics: tuple[int, str] | int) -> None:
        """How many partitions each topic has, and its id; or why it is not described."""
        self.clock.advance(after_ms)
        described = []
        for name, found in topics.items():
            count, id = (0, "") if isinstance(found, int) else found
            parts = [p.MetadataResponsePartition(partition_index=index, leader_id=1) for index in range(count)]
            code = found if isinstance(found, int) else 0
            named = p.MetadataResponseTopic(name=name, topic_id=id.encode().ljust(16, b"\0"), error_code=code, partitions=parts)
            described.append(named._replace(is_internal=name.startswith("a_")))
        self.metadata.begin_request(self.clock.now_ms())
        brokers = [p.MetadataResponseBroker(node_id=1, host="h", port=1)]
        self.metadata.update(p.MetadataResponse(brokers=brokers, topics=described), self.clock.now_ms())
        assert self.behind and not self.settled
        self.follow()
        assert self.settled and not self.behind

    def read(self) -> list[str]:
        return [f"{tp.topic}-{tp.partition}" for tp in self.subscription.partitions]


def test_partitions_come_with_their_topics_and_those_that_come_later_are_read_from_their_start() -> None:
    watch = Watch()
    watch.subscribe(["a", "b"])
    watch.answer(b=(1, "b"), a=(2, "a"))
    assert watch.read() == ["a-0", "a-1", "b-0"] and watch.looks == 1
    watch.answer(b=(3, "b"), a=(2, "a"))
    assert watch.read()[3:] == ["b-1", "b-2"]
    resets = {f"{tp.topic}-{tp.partition}": state.reset for tp, state in watch.subscription.partitions.items()}
    assert resets == {"a-0": None, "a-1": None, "b-0": None, "b-1": EARLIEST, "b-2": EARLIEST}
    watch.subscribe(["b", "c"])
    watch.look_again()
    watch.answer(b=(3, "b"), c=(1, "c"))
    assert watch.read() == ["b-0", "b-1", "b-2", "c-0"]


def test_a_topic_that_is_created_again_starts_over_with_the_partitions_that_it_has() -> None:
    watch = Watch()
    watch.subscribe(["a", "b"])
    watch.answer(a=(2, "a"), b=(1, "b"))
    before = dict(watch.subscription.partitions)
    for tp, state in before.items():
        watch.subscription.seek(tp, 7)
        state.topic_id = tp.topic.encode().ljust(16, b"\0")
    watch.answer(a=(1, "new"), b=(1, "b"))
    assert watch.read() == ["a-0", "b-0"]
    assert [watch.subscription.partitions[tp] is before[tp] for tp in (TopicPartition("a", 0), TopicPartition("b", 0))] == [False, True]


def test_topics_that_a_coordinator_has_matched_are_those_of_the_assignment() -> None:
    watch = Watch()
    watch.subscription.subscribe_broker_pattern()
    watch.subscription.set_assignment([TopicPartition("b", 0), TopicPartition("a", 1)])
    watch.assigned_by_group()
    assert watch.subscription.topics == {"a", "b"} == {*watch.metadata.topics}


def test_a_refusal_is_owed_once_and_asked_about_again() -> None:
    watch = Watch()
    watch.subscribe(["a", "b", "c"])
    watch.answer(a=DENIED, b=(1, "b"), c=DENIED)
    assert is_wanted(watch.metadata) and watch.read() == ["b-0"]
    with pytest.raises(errors.TopicAuthorization, match="refused for 2 topics"):
        watch.raise_owed()
    watch.look_again()
    watch.follow()
    watch.raise_owed()
    assert [problem[:7] for problem in watch.problems(0)] == ["topic a", "topic c"]
    watch.answer(a=(1, "a"), b=(1, "b"), c=(1, "c"))
    assert not is_wanted(watch.metadata) and watch.problems(0) == []


def test_a_topic_is_missing_once_two_answers_do_not_know_it() -> None:
    watch, named = Watch(), list[str]()
    watch.on_missing = named.append
    watch.subscribe(["a", "b"])
    for times in (1, 2):
        watch.answer(a=ABSENT, b=(1, "b"))
        assert len(named) == times - 1
        for _ in range(3):
            watch.answer(1_000, a=ABSENT, b=(1, "b"))
        assert named == ["a"] * times
        said = f"topic a does not exist: it was not found {3 * times} s ago, and not since"
        assert watch.problems(watch.clock.now_ms() + 3_000 * (times - 1)) == [said]
        watch.answer(a=(1, "a"), b=(1, "b"))
        assert watch.problems(0) == []
        watch.answer(b=(1, "b"))


def test_stretches_of_a_topic_end_once_it_has_not_been_known_for_five_seconds() -> None:
    watch = Watch()
    watch.subscribe(["a", "b"])
    watch.answer(a=(1, "a"), b=(1, "b"))
    token = watch.subscription.begin_stretches()
    for ms, owed in ((0, []), (4_999, []), (1, ["a"])):
        watch.answer(ms, a=ABSENT, b=ABSENT if ms else (1, "b"))
        assert [*watch.owed] == owed
    watch.owed.clear()
    watch.subscription.end_stretches(token)
    watch.answer(60_000, a=ABSENT, b=ABSENT)
    assert not watch.owed


def test_a_pattern_is_matched_with_answers_about_all_topics() -> None:
    watch = Watch()
    watch.subscribe_pattern(re.compile("a.*"))
    assert watch.metadata.all_topics and not watch.matched
    watch.follow()
    assert not watch.matched  # nothing is known but an address
    watch.answer(b=(1, "b"))
    assert watch.matched and watch.problems(0) == ["the pattern 'a.*' matches none of the cluster's topics (1)"]
    watch.answer(a1=(1, "1"), a_internal=(1, "2"), ba=(1, "3"))
    assert watch.subscription.topics == {"a1"} and watch.read() == ["a1-0"] and watch.problems(0) == []
    watch.answer(a2=(1, "4"))
    assert watch.read() == ["a2-0"]
    watch.unsubscribe()
    assert not watch.metadata.all_topics
