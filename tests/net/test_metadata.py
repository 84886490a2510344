"""Metadata: what an answer changes, and when the next one is asked for."""

from __future__ import annotations

import gc
import random
import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import protocol
from kafkacore._codec import PartitionTable, decode_metadata
from kafkacore.clock import ManualClock, SystemClock
from kafkacore.cluster_snapshot import ZERO_ID, changed_topics
from kafkacore.config import ClientConfig
from kafkacore.errors import AuthenticationFailedError, ClosedError, CorruptDataError, NetworkError, TopicAuthorization, UsageError
from kafkacore.metadata import ClusterSnapshot, LeaderHint, Metadata, PartitionInfo, TopicInfo, checked_topic
from kafkacore.types import Node, TopicPartition
from tests.kit.lines import lines_of
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ID_A, ID_B = bytes([1]) * 16, bytes([2]) * 16
TP = TopicPartition("t", 0)


def config(**more: Any) -> ClientConfig:
    return ClientConfig.from_user({"bootstrap.servers": "boot:9092", "retry.backoff.ms": 100, "retry.backoff.max.ms": 1_000, **more})


class Case:
    """A Metadata with its clock."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock(1_000_000)
        self.metadata = Metadata(config(), self.clock, rng=random.Random(1), **options)
        self.metadata.bootstrap([("boot", 9092)])

    def due_ms(self) -> int:
        return self.metadata.time_to_next_update(self.clock.now_ms())

    def update(self, *topics: Any, nodes: tuple[int, ...] = (1, 2, 3), **more: Any) -> None:
        self.metadata.begin_request(self.clock.now_ms())
        self.metadata.update(metadata_answer(*topics, nodes=nodes, **more), self.clock.now_ms())


def topic(name: str = "t", *leaders: tuple[int, int], id: bytes = ID_A, error: int = 0, partition_error: int = 0) -> Any:
    return protocol.MetadataResponseTopic(
        name=name,
        topic_id=id,
        error_code=error,
        partitions=[
            protocol.MetadataResponsePartition(
                partition_index=index, leader_id=leader, leader_epoch=epoch, error_code=partition_error, replica_nodes=[1, 2], isr_nodes=[1]
            )
            for index, (leader, epoch) in enumerate(leaders)
        ],
    )


def metadata_answer(*topics: Any, nodes: tuple[int, ...] = (1, 2, 3), **more: Any) -> Any:
    brokers = [protocol.MetadataResponseBroker(node_id=id, host=f"h{id}", port=9000 + id, rack=f"r{id}") for id in nodes]
    return protocol.MetadataResponse(brokers=brokers, cluster_id="c", topics=list(topics), **{"controller_id": 2, **more})


@pytest.fixture
def case() -> Case:
    return Case()


# ---- the snapshot


@each_row(
    "name, wrong",
    [
        ("a" * 32_767, None),
        ("a" * 32_768, "at most 32767 bytes, not 32768"),
        ("\u00e9" * 16_383 + "a", None),
        ("\u00e9" * 16_384, "at most 32767 bytes, not 32768"),
        ("\ud800", "lone surrogate"),
        (b"a", "is text"),
    ],
    ids=lambda value: "name" if isinstance(value, str | bytes) else None,
)
def test_a_topics_name_fits_in_a_request(name: Any, wrong: str | None) -> None:
    if wrong is None:
        assert checked_topic(name) is name
    else:
        with pytest.raises(UsageError, match=wrong):
            checked_topic(name)


def test_bootstrap_nodes_have_negative_ids(case: Case) -> None:
    case.metadata.bootstrap([("a", 1), ("b", 2)])
    assert case.metadata.snapshot.node_list == (Node(-1, "a", 1), Node(-2, "b", 2))
    assert case.metadata.snapshot.is_bootstrap
    assert case.due_ms() == 0


def test_before_bootstrap_nothing_is_due() -> None:
    metadata = Metadata(config(), ManualClock())
    assert metadata.snapshot.is_bootstrap and (metadata.version, metadata.fatal_count, metadata.started, metadata.answered) == (0, 0, 0, 0)
    metadata.add_topic("t", 0)
    assert metadata.time_to_next_update(0) > 10**12


def test_an_answer_becomes_a_snapshot(case: Case) -> None:
    before = case.metadata.snapshot
    case.update(topic("t", (1, 5), (9, 6), (3, 7)))
    cluster = case.metadata.snapshot
    assert before is not cluster
    assert before.is_bootstrap  # snapshots never change
    assert cluster.nodes[1] == Node(1, "h1", 9001, "r1")
    assert cluster.controller == Node(2, "h2", 9002, "r2")
    assert cluster.cluster_id == "c"
    assert cluster.partition_count("t") == 3
    assert cluster.leader(TP) == cluster.nodes[1]
    assert cluster.leader(TopicPartition("t", 1)) is None  # its leader is no node we know
    assert cluster.leader_epoch(TopicPartition("t", 2)) == 7
    assert [part.index for part in cluster.available_partitions("t")] == [0, 2]
    assert cluster.topic_id("t") == ID_A
    assert cluster.topic_name(ID_A) == "t"
    assert cluster.topics["t"].partitions[0] == PartitionInfo(0, 1, 5, [1, 2], [1])


def test_partitions_are_found_by_number_in_any_order(case: Case) -> None:
    part = protocol.MetadataResponsePartition
    shuffled = protocol.MetadataResponseTopic(
        name="t", topic_id=ID_A, partitions=[part(partition_index=index, leader_id=1, leader_epoch=index) for index in (5, 0, 2)]
    )
    case.update(shuffled)
    info = case.metadata.snapshot.topics["t"]
    assert [one.index for one in info.partitions] == [0, 2, 5]
    assert info.partition(5) is info.partitions[2]
    assert info.partition(2) is info.partitions[1]
    assert info.partition(1) is None
    assert info.partition(-1) is None
    case.update(topic("t", (1, 5), (1, 5), id=ID_B))
    assert case.metadata.snapshot.topics["t"].partition(2) is None


# ---- epochs and ids


def test_leader_epochs_never_go_back(case: Case) -> None:
    case.update(topic("t", (1, 5)))
    case.update(topic("t", (2, 4)))
    assert (case.metadata.snapshot.leader(TP), case.metadata.snapshot.leader_epoch(TP)) == (Node(1, "h1", 9001, "r1"), 5)
    case.update(topic("t", (3, 5)))  # the same epoch is news about replicas
    assert case.metadata.snapshot.leader_epoch(TP) == 5
    case.update(topic("t", (2, 6)))
    assert case.metadata.snapshot.leader(TP) == Node(2, "h2", 9002, "r2")
    case.update(topic("t", (1, 5), id=ZERO_ID))  # of a broker that knows no ids of topics
    assert case.metadata.snapshot.leader_epoch(TP) == 6
    case.update(topic("t", (1, -1)))  # of one that knows no epochs
    assert case.metadata.snapshot.leader(TP) == Node(1, "h1", 9001, "r1")


def test_an_epoch_that_no_broker_knows_any_more_is_given_up(case: Case) -> None:
    """It was a wrong answer, or the cluster was restored from a backup: the leader refuses it, or there is no such leader."""
    case.update(topic("t", (1, 5)))
    case.update(topic("t", (77, 2**31 - 1)))
    case.update(topic("t", (2, 6)))
    began_ms, answers = case.clock.now_ms(), 0
    while case.metadata.snapshot.leader_epoch(TP) != 6:
        assert case.metadata.snapshot.leader_epoch(TP) == 2**31 - 1
        case.clock.advance(case.due_ms())
        case.update(topic("t", (2, 6)))
        answers += 1
    assert 30_000 <= case.clock.now_ms() - began_ms <= 40_000
    assert answers <= 60
    assert case.metadata.snapshot.leader(TP) == Node(2, "h2", 9002, "r2")
    case.clock.advance(1)
    assert case.due_ms() > 1_000


@each_row("answers, ms, given_up", [(10, 30_000, True), (9, 60_000, False), (10, 29_999, False)])
def test_ten_answers_in_thirty_seconds_count(answers: int, ms: int, given_up: bool) -> None:
    case = Case()
    case.update(topic("t", (1, 5)))
    for _ in range(answers - 1):
        case.update(topic("t", (2, 4)))
    case.clock.advance(ms)
    case.update(topic("t", (2, 4)))
    assert case.metadata.snapshot.leader_epoch(TP) == (4 if given_up else 5)


def test_a_topic_that_comes_back_does_not_make_another_one_wait_for_longer(case: Case) -> None:
    wrong = (77, 2**31 - 1)
    for leaders in (wrong, (2, 6)):
        case.update(topic("t", leaders), topic("u", leaders, id=ID_B))
    began_ms, answers = case.clock.now_ms(), 0
    while case.metadata.snapshot.leader_epoch(TP) != 6:
        case.clock.advance(case.due_ms())
        answers += 1
        case.update(topic("t", (2, 6)), topic("u", wrong if answers % 5 == 0 else (2, 6), id=ID_B))
        assert case.clock.now_ms() - began_ms <= 40_000
    assert case.metadata.snapshot.leader_epoch(TopicPartition("u", 0)) == wrong[1]


def test_a_broker_that_lags_behind_is_not_believed_beside_others(case: Case) -> None:
    case.update(topic("t", (1, 5)))
    for _ in range(100):
        for _ in range(9):
            case.clock.advance(10_000)
            case.update(topic("t", (2, 4)))
        case.update(topic("t", (1, 5)))
        assert case.metadata.snapshot.leader_epoch(TP) == 5
    for _ in range(100):
        case.clock.advance(1)
        case.update(topic("t", (2, 4)))
    assert case.metadata.snapshot.leader_epoch(TP) == 5


def test_a_topic_with_a_new_id_starts_over(case: Case) -> None:
    case.update(topic("t", (1, 50), (1, 50)))
    case.update(topic("t", (2, 0), id=ID_B))
    assert case.metadata.snapshot.leader(TP) == Node(2, "h2", 9002, "r2")
    assert case.metadata.snapshot.leader_epoch(TP) == 0
    assert case.metadata.snapshot.partition_count("t") == 1
    assert case.metadata.snapshot.topic_name(ID_A) is None


# ---- errors


@pytest.mark.parametrize("code", [3, 5])
def test_retriable_topic_errors_are_asked_again_and_keep_what_is_known(case: Case, code: int) -> None:
    case.metadata.add_topic("t", case.clock.now_ms())
    case.update(topic("t", error=code))
    assert case.metadata.snapshot.partition_count("t") is None
    assert 0 < case.due_ms() <= 120
    error = case.metadata.snapshot.topics["t"].error
    assert error is not None and error.code == code and error.topic == "t"
    case.update(topic("t", (1, 5)))
    assert case.due_ms() > 200_000
    case.update(topic("t", error=code))
    assert case.metadata.snapshot.leader_epoch(TP) == 5
    assert case.due_ms() <= 120


def test_a_partition_without_leader_is_asked_again_with_growing_pauses(case: Case) -> None:
    case.metadata.add_topic("t", case.clock.now_ms())
    pauses = []
    for _ in range(8):
        case.update(topic("t", (-1, 5), partition_error=5))
        pauses.append(case.due_ms())
        case.clock.advance(case.due_ms())
    assert case.metadata.snapshot.leader(TP) is None
    assert pauses[0] <= 120
    assert pauses[-1] > 800
    case.metadata.request_update(reset_equivalent=True)
    case.update(topic("t", (1, 6)))
    assert case.metadata.snapshot.leader(TP) is not None


def test_a_topic_without_a_name_keeps_no_other_out(case: Case) -> None:
    """It was asked for by an id that the broker does not know."""
    case.update(topic(None, error=100), topic("t", (1, 5)))  # type: ignore[arg-type]
    assert [*case.metadata.snapshot.topics] == ["t"]


def test_all_topics_that_an_answer_leaves_out_are_asked_for_again(case: Case) -> None:
    for name in ("t", "u", "v"):
        case.metadata.add_topic(name, case.clock.now_ms())
    assert case.due_ms() == 0
    case.update(topic("u", (1, 5)))
    assert case.due_ms() > 0
    case.clock.advance(case.due_ms())
    assert case.metadata.begin_request(case.clock.now_ms()) == ["t", "v"]


def test_an_answer_without_brokers_changes_nothing(case: Case) -> None:
    case.update(topic("t", (1, 5)))
    cluster = case.metadata.snapshot
    case.update(nodes=())
    assert case.metadata.snapshot is cluster
    assert "no brokers" in str(case.metadata.last_error)
    assert 0 < case.due_ms() <= 120
    case.update(error_code=31)  # a refusal of all of it
    assert case.metadata.snapshot is cluster
    assert case.metadata.last_error is not None and case.metadata.last_error.code == 31
    case.update(topic("t", (0, 6)), nodes=(0,), controller_id=0)
    assert case.metadata.snapshot.controller == case.metadata.snapshot.leader(TP) == Node(0, "h0", 9000, "r0")


def test_failures_back_off(case: Case) -> None:
    pauses = []
    for number in range(6):
        case.metadata.begin_request(case.clock.now_ms())
        case.metadata.failed(NetworkError(f"try {number}"), case.clock.now_ms())
        pauses.append(case.due_ms())
        case.clock.advance(case.due_ms())
    for pause, nominal in zip(pauses, [100, 200, 400, 800, 1_000, 1_000], strict=True):
        assert 0.8 * nominal - 1 <= pause <= min(1.2 * nominal, 1_000)
    assert [error.message for error in case.metadata.attempts] == [f"try {number}" for number in range(6)]
    for number in range(6, 20):
        case.metadata.note_attempt(NetworkError(f"try {number}"))
    assert [error.message for error in case.metadata.attempts] == [f"try {number}" for number in range(4, 20)]
    case.metadata.add_topic("new", case.clock.now_ms() - 1)
    case.metadata.failed(NetworkError("again"), case.clock.now_ms())
    assert case.due_ms() > 0  # a new topic does not get around the back-off of a broken cluster
    case.update()
    assert case.metadata.attempts == []
    assert case.metadata.last_error is None


def test_rebootstrap_on_the_brokers_word(case: Case) -> None:
    case.update(topic("t", (1, 5)))
    case.update(error_code=129)
    assert case.metadata.snapshot.node_list == (Node(-1, "boot", 9092),)
    assert case.metadata.snapshot.leader_epoch(TP) == 5
    assert case.metadata.snapshot.is_bootstrap
    assert case.metadata.snapshot.cluster_id == "c"
    assert 80 <= case.due_ms() <= 120


# ---- what is asked, and when


def test_age(case: Case) -> None:
    case.update()
    assert case.due_ms() == 300_000


def test_a_new_topic_is_asked_for_alone_and_at_once(case: Case) -> None:
    case.metadata.add_topic("t", case.clock.now_ms())
    case.update(topic("t", (1, 5)))
    assert case.metadata.add_topic("u", case.clock.now_ms())
    assert not case.metadata.add_topic("u", case.clock.now_ms())
    assert case.due_ms() == 0
    assert case.metadata.begin_request(case.clock.now_ms()) == ["u"]
    case.metadata.update(metadata_answer(topic("u", (2, 0), id=ID_B)), case.clock.now_ms())
    assert set(case.metadata.snapshot.topics) == {"t", "u"}
    assert case.due_ms() == 300_000
    case.clock.advance(300_000)
    assert case.metadata.begin_request(case.clock.now_ms()) == ["t", "u"]


def test_a_topic_added_while_an_answer_is_under_way_is_not_lost(case: Case) -> None:
    case.metadata.add_topic("t", case.clock.now_ms())
    case.metadata.begin_request(case.clock.now_ms())
    case.metadata.add_topic("u", case.clock.now_ms())
    case.metadata.update(metadata_answer(topic("t", (1, 5))), case.clock.now_ms())
    assert case.due_ms() == 0
    assert case.metadata.begin_request(case.clock.now_ms()) == ["u"]


def test_an_update_requested_while_an_answer_is_under_way_is_not_lost(case: Case) -> None:
    case.update()
    case.metadata.request_update()
    case.metadata.begin_request(case.clock.now_ms())
    case.metadata.request_update()
    case.metadata.update(metadata_answer(), case.clock.now_ms())
    assert 0 < case.due_ms() <= 120


def test_unused_topics_are_dropped_after_a_while() -> None:
    case = Case(topic_idle_ms=1_000)
    case.metadata.add_topic("old", case.clock.now_ms())
    case.metadata.add_topic("used", case.clock.now_ms())
    case.update(topic("old", (1, 0)), topic("used", (1, 0), id=ID_B))
    case.clock.advance(999)
    assert case.metadata.begin_request(case.clock.now_ms()) == ["old", "used"]
    case.clock.advance(1)
    case.metadata.add_topic("used", case.clock.now_ms())
    case.metadata.request_update()
    assert case.metadata.begin_request(case.clock.now_ms()) == ["used"]
    case.metadata.update(metadata_answer(topic("used", (1, 0), id=ID_B)), case.clock.now_ms())
    assert list(case.metadata.snapshot.topics) == ["used"]
    assert case.metadata.add_topic("old", case.clock.now_ms())
    assert case.due_ms() == 0


def test_many_topics_that_are_written_to_may_be_created_and_are_used_from_then_on() -> None:
    case = Case(topic_idle_ms=1_000)
    case.metadata.add_topics(["a", "b"], case.clock.now_ms())
    assert begin(case) == (["a", "b"], True)
    answer_with(case, topic("a", (1, 0)), topic("b", (1, 0), id=ID_B))
    case.clock.advance(999)
    case.metadata.add_topics(["b"], case.clock.now_ms())
    case.clock.advance(1)
    case.metadata.request_update()
    assert begin(case) == (["b"], True)


def test_set_topics_and_all_topics(case: Case) -> None:
    case.metadata.set_topics(["a", "b"], case.clock.now_ms())
    case.metadata.set_topics(["b", "c"], case.clock.now_ms())
    with pytest.raises(UsageError):
        case.metadata.set_topics(["c", "\ud800"], case.clock.now_ms())
    assert sorted(case.metadata.topics) == ["b", "c"]
    every = Case(all_topics=True)
    assert every.metadata.begin_request(0) is None
    for asked in (True, False):
        if asked:
            every.metadata.request_topic("a")  # while an answer is under way
            every.metadata.add_topic("a", every.clock.now_ms())
        answer_with(every, topic("a", (1, 5)))
        assert (0 < every.due_ms() < 1_000) == asked
        every.metadata.begin_request(every.clock.now_ms())
    answer_with(every, topic("a", error=5))  # there is no question for it alone
    assert 0 < every.due_ms() < 1_000


# ---- KIP-951


def test_leader_hints(case: Case) -> None:
    case.update(topic("t", (1, 5), (1, 5), (1, 5)))
    hints: dict[TopicPartition, LeaderHint | tuple[int, int]] = {
        TopicPartition("t", 1): LeaderHint(2, 5),  # not newer
        TP: LeaderHint(7, 6),  # newer, and its node is named beside it
        TopicPartition("t", 2): LeaderHint(8, 9),  # nobody says where node 8 is
        TopicPartition("u", 0): LeaderHint(2, 9),  # unknown topic
    }
    version = case.metadata.version
    assert case.metadata.update_leaders(hints, [Node(6, "h6", 1), Node(7, "h7", 1)]) == {TP}
    assert case.metadata.snapshot.nodes[6] == Node(6, "h6", 1) and case.metadata.snapshot.cluster_id == "c"
    assert not case.metadata.snapshot.is_bootstrap
    assert case.metadata.snapshot.leader(TP) == Node(7, "h7", 1)
    assert case.metadata.snapshot.leader_epoch(TP) == 6
    assert case.metadata.snapshot.leader(TopicPartition("t", 1)) == Node(1, "h1", 9001, "r1")
    assert case.metadata.snapshot.controller == Node(2, "h2", 9002, "r2")
    assert case.metadata.version == version + 1
    assert case.metadata.update_leaders(hints) == set()
    assert case.metadata.version == version + 1


def lines_for_hints(partitions: int, hints: int, others: int = 0) -> int:
    case = Case()
    case.update(topic("t", *[(1, 5)] * partitions), *(topic(f"o{n}", (1, 5), id=n.to_bytes(16, "big")) for n in range(1, others + 1)))
    hints_of = {TopicPartition("t", index): LeaderHint(2, 6) for index in range(hints)}
    before = case.metadata.snapshot
    lines = lines_of(lambda: case.metadata.update_leaders(hints_of))
    after = case.metadata.snapshot
    assert [part[1:3] for part in after.topics["t"].partitions] == [(2, 6)] * hints + [(1, 5)] * (partitions - hints)
    assert {part.leader for part in before.topics["t"].partitions} == {1}  # what others may be reading has not changed
    assert all(after.topics[name] is info for name, info in before.topics.items() if name != "t")
    return lines


def test_hints_cost_as_much_as_there_are_of_them() -> None:
    few, many = lines_for_hints(400, 100), lines_for_hints(400, 400)
    assert many < 5 * few
    assert lines_for_hints(1_000, 1) < 100  # the topic's list is copied in one step
    assert lines_for_hints(1, 1, others=500) < 100


def test_hints_for_a_topic_with_holes_in_its_numbering(case: Case) -> None:
    parts = [PartitionInfo(0, 1, 5), PartitionInfo(2, 1, 5), PartitionInfo(7, 1, 5)]
    case.metadata.snapshot = ClusterSnapshot({1: Node(1, "h", 1), 2: Node(2, "i", 2)}, topics={"t": TopicInfo("t", ID_A, parts)})
    hints = {TopicPartition("t", 7): LeaderHint(2, 6), TopicPartition("t", 0): LeaderHint(2, 7), TopicPartition("t", 1): LeaderHint(2, 8)}
    assert case.metadata.update_leaders(hints) == {TopicPartition("t", 0), TopicPartition("t", 7)}
    found = case.metadata.snapshot.topics["t"].partitions
    assert [(part.index, part.leader, part.leader_epoch) for part in found] == [(0, 2, 7), (2, 1, 5), (7, 2, 6)]


# ---- answers whose partitions stay bytes


def answered(case: Case, message: Any, version: int = 12) -> None:
    """Takes an answer in as the network client does."""
    raw = b"".join(bytes(part) for part in message.encode(version))
    case.metadata.begin_request(case.clock.now_ms())
    case.metadata.update(decode_metadata(protocol.MetadataResponse.plan(version), raw), case.clock.now_ms())


def topics_described(case: Case) -> dict[str, Any]:
    found = case.metadata.snapshot.topics
    return {
        name: (
            info.topic_id,
            [(*part[:3], *map(tuple, part[3:])) for part in info.partitions],
            info.is_internal,
            info.error and info.error.code,
        )
        for name, info in found.items()
    }


def many_topics(count: int, *moved: int) -> Any:
    """Topics of three partitions; those in `moved` have another leader."""
    leaders = {n: (2, 6) if n in moved else (1, 5) for n in range(1, count + 1)}
    return metadata_answer(*(topic(f"t{n}", *[leader] * 3, id=n.to_bytes(16, "big")) for n, leader in leaders.items()))


def test_a_topic_that_an_answer_repeats_stays_the_same_object(case: Case) -> None:
    answered(case, many_topics(20))
    before = case.metadata.snapshot
    assert all(info.table is not None for info in before.topics.values())
    answered(case, many_topics(20, 7, 9))
    after = case.metadata.snapshot
    assert {name for name, info in after.topics.items() if before.topics[name] is not info} == {"t7", "t9"}
    assert after.leader_epoch(TopicPartition("t7", 1)) == 6
    assert before.leader_epoch(TopicPartition("t7", 1)) == 5
    assert after.nodes[1] is before.nodes[1]


def infos_alive() -> dict[int, PartitionInfo]:
    """By their ids: those of clients of other tests may go meanwhile, and new ones do not get the ids of those that are held here."""
    gc.collect()
    return {id(each): each for each in gc.get_objects() if type(each) is PartitionInfo}


def test_partitions_are_made_when_they_are_looked_at(case: Case) -> None:
    before = infos_alive()
    answered(case, many_topics(3))
    snapshot = case.metadata.snapshot
    assert snapshot.partition_count("t1") == 3
    assert not infos_alive().keys() - before.keys()
    assert snapshot.topics["t1"].partitions is snapshot.topics["t1"].partitions
    assert snapshot.topics["t1"].partitions == [PartitionInfo(n, 1, 5, [1, 2], [1], ()) for n in range(3)]
    assert len(infos_alive().keys() - before.keys()) == 3


def test_an_answer_that_changes_nothing_runs_few_lines_per_topic() -> None:
    def lines(topics: int, partitions: int) -> int:
        case = Case()
        message = metadata_answer(*(topic(f"t{n}", *[(1, 5)] * partitions, id=n.to_bytes(16, "big")) for n in range(1, topics + 1)))
        answered(case, message)
        return lines_of(lambda: answered(case, message))

    assert lines(20, 50) - lines(20, 1) < 100  # 980 partitions more; the collector may run a finalizer
    assert lines(40, 1) - lines(20, 1) < 20 * 30


def test_what_hints_and_older_answers_do_to_partitions_that_are_bytes(case: Case) -> None:
    answered(case, metadata_answer(topic("t", (1, 5), (2, 5))))
    assert case.metadata.update_leaders({TP: (3, 8)}) == {TP}
    answered(case, metadata_answer(topic("t", (1, 5), (1, 6))))  # from a broker that lags behind
    assert [part[:3] for part in case.metadata.snapshot.topics["t"].partitions] == [(0, 3, 8), (1, 1, 6)]
    answered(case, metadata_answer(topic("t", (3, 8), (1, 6))))
    assert case.metadata.snapshot.topics["t"].table is not None
    answered(case, metadata_answer(topic("t", (1, 7), (1, 9))))
    assert [part[:3] for part in case.metadata.snapshot.topics["t"].partitions] == [(0, 3, 8), (1, 1, 9)]
    answered(case, metadata_answer(topic("t", (1, 0), id=ID_B)))  # created again
    assert [part[:3] for part in case.metadata.snapshot.topics["t"].partitions] == [(0, 1, 0)]


def test_a_topic_without_leader_is_asked_for_again_although_its_bytes_are_the_same(case: Case) -> None:
    for _ in range(2):
        answered(case, metadata_answer(topic("t", (-1, 5))))
        assert case.due_ms() < 1_000
        case.clock.advance(1_000)
    answered(case, metadata_answer(topic("t", (1, 5))))
    assert case.due_ms() > 100_000


@st.composite
def topics_of_an_answer(draw: st.DrawFn) -> Any:
    parts = [
        protocol.MetadataResponsePartition(
            error_code=draw(st.sampled_from([0, 0, 0, 5, 9, 72])),
            partition_index=index,
            leader_id=draw(st.integers(-1, 3)),
            leader_epoch=draw(st.integers(-1, 3)),
            replica_nodes=draw(st.lists(st.integers(0, 2**31 - 1), max_size=2)),
            isr_nodes=draw(st.lists(st.integers(0, 3), max_size=2)),
            offline_replicas=draw(st.lists(st.integers(0, 3), max_size=1)),
        )
        for index in draw(st.lists(st.integers(0, 4), unique=True, max_size=4))
    ]
    return protocol.MetadataResponseTopic(
        name=draw(st.sampled_from(["t", "u"])),
        topic_id=draw(st.sampled_from([ZERO_ID, ID_A, ID_B])),
        error_code=draw(st.sampled_from([0, 0, 0, 3, 29])),
        is_internal=draw(st.booleans()),
        partitions=parts,
    )


ANSWERS = st.lists(st.lists(topics_of_an_answer(), max_size=2, unique_by=lambda t: t.name), max_size=5)
answers_met = Reached("an older epoch", "another id", "an error of a topic that was known", "no leader", "a partition less")


@answers_met.by
@given(ANSWERS, st.sampled_from([1, 5, 7, 9, 10, 12, 13]))
def test_bytes_and_structs_come_to_the_same(answers: list[list[Any]], version: int) -> None:
    """Whatever a series of answers says, in whatever version."""
    left, right = Case(), Case()
    known: dict[str, Any] = {}
    for each in (each for topics in answers for each in topics):
        before, epochs = known.get(each.name), {part.partition_index: part.leader_epoch for part in each.partitions}
        if before is not None:
            earlier = {part.partition_index: part.leader_epoch for part in before.partitions}
            answers_met("another id", before.topic_id != each.topic_id)
            answers_met("an older epoch", any(epoch < earlier.get(index, -1) for index, epoch in epochs.items()))
            answers_met("an error of a topic that was known", each.error_code and not before.error_code)
            answers_met("a partition less", earlier.keys() - epochs.keys())
        answers_met("no leader", any(part.leader_id == -1 for part in each.partitions))
        known[each.name] = each
    for topics in answers:
        raw = b"".join(bytes(part) for part in metadata_answer(*topics).encode(version))
        plan = protocol.MetadataResponse.plan(version)
        for case, message in ((left, plan.decode(raw)), (right, decode_metadata(plan, raw))):
            case.metadata.begin_request(0)
            case.metadata.update(message, 0)
        assert topics_described(left) == topics_described(right)
        for name in ("_wanted", "_same_answers", "next_update_ms"):
            assert getattr(left.metadata, name) == getattr(right.metadata, name)


changed_bytes = Reached("refused", "another answer")


@changed_bytes.by
@given(st.data(), st.sampled_from([1, 7, 9, 12]))
def test_hostile_answers_are_refused_alike(data: st.DataObject, version: int) -> None:
    """Bytes that stay bytes have been through all checks of decoding, and are refused in the same words."""
    good = b"".join(bytes(part) for part in many_topics(2).encode(version))
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    del raw[data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw)))) :]
    plan = protocol.MetadataResponse.plan(version)
    outcomes: list[Any] = []
    for decode in (plan.decode, partial(decode_metadata, plan)):
        try:
            found = [(each.name, each.partitions) for each in decode(bytes(raw)).topics]
        except CorruptDataError as error:
            outcomes.append(str(error))
        else:
            outcomes.append([(name, parts.structs() if isinstance(parts, PartitionTable) else parts) for name, parts in found])
    assert outcomes[0] == outcomes[1]
    changed_bytes("refused", isinstance(outcomes[0], str))
    changed_bytes("another answer", not isinstance(outcomes[0], str) and raw != good)


# ---- waiting


def waiting_thread(metadata: Metadata, outcome: list[object], timeout_ms: int = 60_000) -> threading.Thread:
    version, fatal_count = metadata.request_update(), metadata.fatal_count

    def run() -> None:
        try:
            outcome.append(metadata.await_update(version, timeout_ms, fatal_count))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def system() -> Metadata:
    metadata = Metadata(config(), SystemClock())
    metadata.bootstrap([("boot", 9092)])
    return metadata


def test_waiters_wake_with_the_update() -> None:
    metadata = system()
    outcome: list[object] = []
    threads = [waiting_thread(metadata, outcome) for _ in range(3)]
    metadata.begin_request(0)
    metadata.update(metadata_answer(), 0)
    for thread in threads:
        thread.join()
    assert outcome == [True] * 3


def test_an_update_is_told_once_to_all_who_watch() -> None:
    metadata = system()
    reported: list[str] = []
    watchers = [partial(reported.append, name) for name in "abc"]
    for watcher in watchers:
        metadata.watch(watcher)
    metadata.unwatch(watchers[1])
    for _ in range(2):
        metadata.begin_request(0)
        metadata.update(metadata_answer(), 0)
    assert reported == ["a", "c"]


def test_waiters_are_told_of_fatal_errors_and_of_the_close() -> None:
    metadata = system()
    outcome: list[object] = []
    thread = waiting_thread(metadata, outcome)
    metadata.failed(NetworkError("not fatal"), 0)
    metadata.failed(AuthenticationFailedError("who are you"), 0)
    thread.join()
    assert isinstance(outcome[0], AuthenticationFailedError)
    assert metadata.fatal_error is outcome[0] and metadata.fatal_count == 1
    metadata.update(metadata_answer(), 0)  # it worked in the end
    assert metadata.fatal_error is None
    thread = waiting_thread(metadata, outcome)
    metadata.close()
    thread.join()
    assert isinstance(outcome[1], ClosedError)


def test_waiting_ends() -> None:
    metadata = system()
    assert metadata.await_update(metadata.version, 0) is False
    assert metadata.await_update(metadata.version, 1) is False
    assert metadata.await_update(metadata.version - 1, 0) is True


def test_a_refused_topic_that_is_asked_for_again_slows_the_refresh(case: Case) -> None:
    case.metadata.set_topics(["t", "u"], case.clock.now_ms())
    waits = []
    for _ in range(6):
        case.update(topic("t", error=29), topic("u", (1, 0)))
        case.metadata.request_update()
        waits.append(case.due_ms())
        case.clock.advance(waits[-1])
    assert waits[1:] == sorted(waits[1:])
    assert 80 <= waits[0] <= 120
    assert waits[-1] >= 800
    case.update(topic("t", (1, 0)), topic("u", (1, 0)))
    case.metadata.request_update()
    assert case.due_ms() <= 120


def test_an_error_of_an_earlier_attempt_is_not_raised() -> None:
    metadata = system()
    metadata.failed(AuthenticationFailedError("the old password"), 0)
    outcome: list[object] = []
    thread = waiting_thread(metadata, outcome)
    metadata.begin_request(0)
    metadata.update(metadata_answer(), 0)
    thread.join()
    assert outcome == [True]
    before = metadata.fatal_count
    metadata.failed(AuthenticationFailedError("while the caller got ready to wait"), 0)
    with pytest.raises(AuthenticationFailedError):
        metadata.await_update(metadata.version, 10_000, before)


# ---- many topics


def needs(case: Case, *names: str) -> list[str] | None:
    """Adds topics and asks for each as a producer does; returns what the next request is for."""
    for name in names:
        case.metadata.add_topic(name, case.clock.now_ms())
        case.metadata.request_topic(name)
    return case.metadata.begin_request(case.clock.now_ms())


def answer_with(case: Case, *topics: Any) -> None:
    case.metadata.update(metadata_answer(*topics), case.clock.now_ms())


def test_topics_that_come_one_after_the_other_cost_what_they_are(case: Case) -> None:
    case.update()
    count = 1_000
    copies = 0
    shared: list[Any] = []
    for nth in range(count):
        assert needs(case, f"t{nth}") == [f"t{nth}"]
        answer_with(case, topic(f"t{nth}", (1, 5)))
        known = case.metadata.snapshot.topics
        base = getattr(known, "base", known)
        if not shared or base is not shared[-1]:
            shared.append(base)
            copies += len(base)
        copies += len(getattr(known, "recent", ()))
        assert case.metadata.changed_since(case.metadata.version - 1) == (case.metadata.version, [f"t{nth}"])
    assert len(case.metadata.snapshot.topics) == count
    assert copies <= 2 * count * count**0.5  # a copy of all for each of them would be 500 000


def test_a_topic_that_was_not_described_is_asked_for_again_without_the_others(case: Case) -> None:
    case.update()
    assert needs(case, "whole", "open", "shut") == ["open", "shut", "whole"]
    answer_with(case, topic("whole", (1, 5)), topic("open", error=5), topic("shut", error=5))
    assert 80 <= case.due_ms() <= 120
    case.metadata.request_topic("open")
    assert 80 <= case.due_ms() <= 120  # a caller that waits for it does not hurry it
    for nth in range(4):
        case.clock.advance(30)
        named = needs(case, f"new{nth}")
        answer_with(case, *(topic(name, (1, 5)) for name in named or () if name != "open"))
        if "open" in (named or ()):
            break
    else:
        raise AssertionError("new topics keep one that waits from being asked for")
    assert case.due_ms() > 0  # left out of that answer: again after a pause
    case.clock.advance(2_000)
    assert case.metadata.begin_request(case.clock.now_ms()) == ["open"]
    answer_with(case, topic("open", (1, 5)))
    assert case.due_ms() > 200_000


def test_a_topic_that_was_refused_is_asked_for_alone_when_it_is_needed_again(case: Case) -> None:
    case.update()
    needs(case, "mine", "theirs")
    answer_with(case, topic("mine", (1, 5)), topic("theirs", error=29))
    assert isinstance(case.metadata.snapshot.topics["theirs"].error, TopicAuthorization)
    assert case.due_ms() > 200_000
    case.metadata.request_topic("theirs")
    assert 80 <= case.due_ms() <= 120
    case.clock.advance(120)
    assert case.metadata.begin_request(case.clock.now_ms()) == ["theirs"]


def test_topics_nobody_needs_any_more_are_not_asked_for_again(case: Case) -> None:
    case.update()
    needs(case, "a", "b")
    answer_with(case, topic("a", (1, 5)), topic("b", error=5))
    case.metadata.set_topics(["a"], case.clock.now_ms())
    assert case.due_ms() > 200_000


def test_what_changed_since_a_version(case: Case) -> None:
    metadata = case.metadata
    answered(case, metadata_answer(topic("a", (1, 5)), topic("b", (1, 5)), topic("c", (1, 5))))
    version, names = metadata.changed_since(-1)
    assert sorted(names) == ["a", "b", "c"]
    answered(case, metadata_answer(topic("a", (1, 5)), topic("b", (2, 6))))
    assert metadata.changed_since(version) == (version + 1, ["b"])
    metadata.update_leaders({TopicPartition("a", 0): (2, 7)})
    assert metadata.changed_since(version) == (version + 2, ["a", "b"])
    assert metadata.changed_since(version + 1) == (version + 2, ["a"])
    assert metadata.changed_since(version + 2) == (version + 2, [])
    answered(case, metadata_answer(topic("a", (2, 7)), topic("b", (2, 6)), topic("c", (1, 5))))
    assert "c" in metadata.changed_since(version + 2)[1]  # it was gone, and is another
    assert "b" not in metadata.changed_since(version + 2)[1]


layers = Reached("a layer over all", "a topic replaced in a layer", "layers become one", "a topic replaced below a layer")


@layers.by
@given(st.lists(st.dictionaries(st.text("abc", max_size=2), st.integers(), max_size=20), max_size=8), st.integers(0, 4))
def test_a_snapshot_stays_as_it_was_while_later_ones_share_its_topics(steps: list[dict[str, int]], least: int) -> None:
    model: dict[str, Any] = {}
    topics: Any = model
    made = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafkacore.cluster_snapshot._LAYER_MIN", least)
        for step in steps:
            changed: dict[str, Any] = {name: (number,) for name, number in step.items()}
            below, above = getattr(topics, "base", topics), getattr(topics, "recent", {})
            layers("a topic replaced in a layer", above.keys() & changed.keys())
            layers("a topic replaced below a layer", above and (below.keys() - above.keys()) & changed.keys())
            model, topics = {**model, **changed}, changed_topics(topics, changed)
            layers("a layer over all", hasattr(topics, "recent") and below)
            layers("layers become one", above and not hasattr(topics, "recent"))
            made.append((model, topics))
    for expected, known in made:
        assert dict(known) == expected
        assert len(known) == len(expected)
        assert set(known) == expected.keys()
        assert all((known.get(name) is expected.get(name)) and (name in known) == (name in expected) for name in ("", "a", "b", "cc"))


@each_row("topics, most", [(0, 32), (1_000, 32), (2_025, 45)])
def test_so_many_changes_are_a_layer_over_what_was_there(topics: int, most: int) -> None:
    known: Any = {f"t{nth}": (nth,) for nth in range(topics)}
    sizes = []
    for nth in range(most + 1):
        known = changed_topics(known, {f"new{nth}": (nth,)})
        sizes.append(len(getattr(known, "recent", ())))
    assert sizes == [*range(1, most + 1), 0]


# ---- topics that asking may create


def begin(case: Case) -> tuple[list[str] | None, bool]:
    names = case.metadata.begin_request(case.clock.now_ms())
    return names, case.metadata.may_create


def test_a_request_that_may_create_names_no_topic_of_a_question(case: Case) -> None:
    case.update()
    case.metadata.add_topic("written", 0, create=True)
    case.metadata.add_topic("made", 0, create=True)
    case.metadata.add_topic("asked", 0)
    assert begin(case) == (["made", "written"], True)
    answer_with(case, topic("made", (1, 5)), topic("written", error=3))
    assert begin(case) == (["asked"], False)  # at once: a caller waits for it
    answer_with(case, topic("asked", error=3))
    seen = []
    for _ in range(4):  # neither keeps the other waiting
        case.clock.advance(2_000)
        names, may_create = begin(case)
        assert names is not None and len(names) == 1
        seen.append((*names, may_create))
        answer_with(case, topic(names[0], error=3))
    assert seen == [("written", True), ("asked", False)] * 2


def test_a_topic_that_was_asked_about_is_asked_for_again_once_it_is_written_to(case: Case) -> None:
    case.update()
    assert case.metadata.add_topic("t", 0) and begin(case) == (["t"], False)
    answer_with(case, topic("t", error=3))
    assert case.metadata.add_topic("t", 0) is False
    assert case.metadata.add_topic("t", 0, create=True) and case.due_ms() == 0
    assert begin(case) == (["t"], True)
    answer_with(case, topic("t", (1, 5)))
    assert case.metadata.add_topic("t", 0, create=True) is False
    case.metadata.set_topics(["t"], 0)  # no longer subscribed to
    case.metadata.request_update()
    case.clock.advance(2_000)
    assert begin(case) == (["t"], False)


@pytest.mark.parametrize("setting", [False, None])
def test_nothing_is_created_where_the_settings_do_not_allow_it(setting: bool | None) -> None:
    case = Case(allow_auto_topic_creation=setting)
    assert case.metadata.forbids_topic_creation is (setting is False)
    case.update()
    assert needs(case, "a") == ["a"]
    case.metadata.add_topic("b", 0, create=True)
    case.metadata.add_topics(["c"], 0)
    case.metadata.set_topics(["b", "c", "d"], 0, create=["b", "c", "d"])
    assert begin(case) == (["b", "c", "d"], False)


def test_new_topics_have_their_turn_while_updates_are_wanted_all_the_time(case: Case) -> None:
    case.update()
    case.metadata.add_topic("asked", 0)
    case.metadata.add_topic("new", 0, create=True)
    seen = []
    for _ in range(3):
        case.clock.advance(2_000)
        case.metadata.request_update()
        names, may_create = begin(case)
        assert names is not None
        seen.append((*names, may_create))
        case.metadata.request_update()  # a caller waits for a topic without a leader
        answer_with(case, *(topic(name, error=3) if name == "asked" else topic(name, (1, 5)) for name in names))
    assert seen == [("asked", False), ("new", True), ("asked", "new", False)]
    assert case.metadata.started == case.metadata.answered == 4
    case.metadata.add_topic("later", 0, create=True)
    case.metadata.request_update()
    assert begin(case) == (["asked", "new"], False)  # all that were asked for before have had their answer
    answer_with(case, topic("asked", (1, 5)), topic("new", (1, 5)))
    assert begin(case) == (["later"], True)
    assert case.metadata.started == 6 and case.metadata.answered == 5
    answer_with(case)
    assert case.due_ms() > 0  # left out of the answer: no faster than the back-off allows
