"""send_many where records cannot go the fast way: serializers, interceptors, a partitioner, round_robin, headers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import KafkaAdminClient, NewPartitions
from kafkacore.consumer import KafkaConsumer
from kafkacore.errors import BufferFullError, UsageError
from kafkacore.records import HeaderColumn
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import ProducerRecord
from tests.kit.inside import metadata_of, sender_of
from tests.kit.records import producer_of as producer


@pytest.fixture
def cluster(cluster_of_face: Any, client_face: str) -> EmbeddedCluster:
    return cluster_of_face(client_face)  # type: ignore[no-any-return]


class Topical:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic}/{value}".encode()


def test_serializers_get_the_objects_of_the_list(cluster: Any) -> None:
    with producer(cluster, value_serializer=lambda value: json.dumps(value).encode(), key_serializer=Topical()) as p:
        one = p.send("t", {"n": 0}, key=0).result(60)
        for values in ([{"n": i} for i in range(9)], tuple({"n": i} for i in range(9))):
            keys = [0, 1, None] * 3
            many = p.send_many("t", values, keys=keys, headers=[("h", b"x")], timestamps_ms=np.arange(9) + 5).result(60)
            assert not many.errors
            assert len(many) == 9
            assert set(many.partitions[::3]) == {one.partition}  # the same key, serialized, goes to the same place


def test_columns_in_memory_are_given_as_bytes(cluster: Any) -> None:
    seen: list[Any] = []

    def note(value: Any) -> bytes:
        seen.append(value)
        return bytes(value)

    with producer(cluster, value_serializer=note) as p:
        result = p.send_many("t", (b"abcdef", np.array([0, 1, 3, 6], np.int32)), partitions=[3, 0, 3]).result(60)
    assert seen == [b"a", b"bc", b"def"]
    assert list(result.partitions) == [3, 0, 3]
    assert result.offsets[2] == result.offsets[0] + 1


def test_a_partitioner_and_round_robin_choose_for_each_record(cluster: Any) -> None:
    with producer(cluster, partitioner=lambda topic, key, value, snapshot: value[0] % 4) as p:
        assert list(p.send_many("t", [bytes([i]) for i in range(12)]).result(60).partitions) == [0, 1, 2, 3] * 3
        assert list(p.send_many("t", [bytes([i]) for i in range(3)], partitions=2).result(60).partitions) == [2, 2, 2]
    with producer(cluster, partitioner="round_robin") as p:
        turns = list(p.send_many("t", [b"x"] * 8).result(60).partitions)
        assert sorted(turns) == [0, 0, 1, 1, 2, 2, 3, 3]
        one = p.send("t", b"x").result(60).partition
        turns = list(p.send_many("t", (b"xyz", np.arange(4, dtype="int32")), [b"k"] * 3).result(60).partitions)
        assert turns == [(one + i) % 4 for i in (1, 2, 3)]  # send and send_many take turns together, keys or not
        turns = list(p.send_many("t", [b"x"] * 3, partitions=pa.array([None, 2, None], pa.int32())).result(60).partitions)
        assert turns == [one, 2, (one + 1) % 4]


def test_round_robin_over_partitions_that_were_just_added(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("grows", partitions=2, replication_factor=1)
    with producer(cluster, partitioner="round_robin") as p, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert sorted(p.send_many("grows", [b"x"] * 4).result(60).partitions) == [0, 0, 1, 1]
        with monkeypatch.context() as patched:
            patched.setattr("kafkacore.producer._update_topics", lambda producer: None)  # the sender has not come round to it yet
            admin.create_partitions({"grows": NewPartitions(40)}).check()
            p.send("t", b"x", partition=0).result(60)
            version = metadata_of(p).request_update()
            p.send("t", b"x", partition=0).result(60)
            metadata_of(p).await_update(version, 10_000)
            assert len(metadata_of(p).snapshot.available_partitions("grows")) == 40
            assert sorted(p.send_many("grows", [b"x"] * 4).result(60).partitions) == [0, 0, 1, 1]
        with pytest.raises(UsageError):
            p.send("grows", b"x", partition=40)
        assert sorted(p.send_many("grows", [b"x"] * 40).result(60).partitions) == list(range(40))


class Audit:
    def __init__(self, answer: Any = "same") -> None:
        self.answer = answer
        self.sent: list[ProducerRecord] = []
        self.outcomes: list[Any] = []

    def on_send(self, record: ProducerRecord) -> Any:
        self.sent.append(record)
        return record._replace(value=b"changed") if self.answer == "same" else self.answer

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.outcomes.append(error if metadata is None else metadata.serialized_value_size)


def test_interceptors_see_every_record_and_outcome(cluster: Any) -> None:
    audit = Audit()
    with producer(cluster, interceptors=[audit]) as p:
        headers: list[Any] = [None, [("a", b"1")], {"b": b"2"}]
        future = p.send_many("t", [b"x", b"y", b"z"], keys=[b"k", None, b"l"], headers=headers, timestamps_ms=77)
        assert not future.result(60).errors
    assert [(record.value, record.key, record.headers, record.timestamp_ms) for record in audit.sent] == [
        (b"x", b"k", (), 77), (b"y", None, [("a", b"1")], 77), (b"z", b"l", {"b": b"2"}, 77)
    ]  # fmt: skip
    assert audit.outcomes == [7, 7, 7]


@pytest.mark.parametrize("answer", [None, b"not a record"])
def test_an_interceptor_that_returns_no_record_changes_nothing(cluster: Any, answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(answer)
    with producer(cluster, interceptors=[audit]) as p:
        assert p.send("t", b"abc").result(60).serialized_value_size == 3
        assert not p.send_many("t", [b"abcd"]).result(60).errors
    assert audit.outcomes == [3, 4]
    assert f"returned {answer!r}, no ProducerRecord" in caplog.text


def test_a_failure_tells_how_far_it_came(cluster: Any) -> None:
    def refuse(value: Any) -> bytes:
        if value == 3:
            raise ZeroDivisionError
        return b"%d" % value

    with producer(cluster, value_serializer=refuse) as p:
        with pytest.raises(ZeroDivisionError) as raised:
            p.send_many("t", list(range(6)))
        assert raised.value.appended == 3  # type: ignore[attr-defined]
        assert len(raised.value.future.result(60)) == 3  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="asked for 9"):
            p.send_many("t", [0], partitions=9)
        with pytest.raises(ValueError, match="3 values, 2 keys"):
            p.send_many("t", [0, 1, 2], keys=[b"a", b"b"])


def test_memory_short_in_the_middle(cluster: Any) -> None:
    limits = {"buffer_memory": 4096, "batch_size": 1024, "max_block_ms": 500, "linger_ms": 60_000}
    with producer(cluster, value_serializer=bytes, **limits) as p:
        p.partitions_for("t")
        ready, sender_of(p).client.ready = sender_of(p).client.ready, lambda node, now_ms: False  # type: ignore[method-assign]
        with pytest.raises(BufferFullError, match="of 100 records were queued") as raised:
            p.send_many("t", [b"x" * 300] * 100, partitions=0)
        sender_of(p).client.ready = ready  # type: ignore[method-assign]
        future = raised.value.future  # type: ignore[attr-defined]
        assert 0 < len(future) == raised.value.appended < 100  # type: ignore[attr-defined]
        p.flush(10)
        assert not future.result(60).errors


# ---- headers as columns


pairs = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=200)), max_size=4)
HEADERS = [[("a", b"1"), ("é", None), ("", b"")], [], [("b" * 100, b"x" * 1000)], []]


def column(headers: list[Any]) -> HeaderColumn:
    flat = [pair for each in headers for pair in each]
    return HeaderColumn([len(each) for each in headers], pa.array([k for k, _ in flat], pa.string()), [v for _, v in flat])


@given(st.lists(pairs, max_size=6))
def test_items_are_the_headers(headers: list[Any]) -> None:
    made = column(headers)
    assert len(made) == len(headers)
    assert list(made) == [tuple(each) for each in headers]


@pytest.mark.parametrize("settings", [{}, {"partitioner": "round_robin"}, {"value_serializer": bytes}])
@pytest.mark.parametrize("keys", [None, ["k"] * 4])
def test_records_get_them(cluster: Any, settings: dict[str, Any], keys: Any) -> None:
    with producer(cluster, **settings) as p:
        sent = p.send_many("t", [b"v"] * 4, keys, headers=column(HEADERS)).result(60)
        assert not sent.errors
        where = list(zip(sent.partitions.tolist(), sent.offsets.tolist(), strict=True))
    found = {}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        for partition in sorted({number for number, _ in where}):
            low, high = min(at for to, at in where if to == partition), max(at for to, at in where if to == partition) + 1
            for columns in consumer.read_range(("t", partition), low, high, timeout=60):
                found |= {(partition, each.offset): each.headers for each in columns}
    assert [found[each] for each in where] == [tuple(each) for each in HEADERS]


def test_columns_that_do_not_fit(cluster: Any) -> None:
    for counts, names, values, says in (
        ([2], ["a"], [b"x"], "record 0 has 2 headers; of the 1 there are 1 left"),
        ([0, -1], ["a"], [b"x"], "record 1 has -1 headers"),
        ([0], ["a"], [b"x"], "the records have 0 headers, and there are 1"),
        ([1], ["a"], [b"x", b"y"], "columns differ in length"),
        ([1, 1], ["a", None], [b"x", b"y"], "a header of record 1 has no name"),
        ([[1]], ["a"], [b"x"], "one dimension"),
    ):
        with pytest.raises(ValueError, match=says):
            HeaderColumn(np.array(counts), names, values)
    with producer(cluster) as p, pytest.raises(ValueError, match="columns differ in length"):
        p.send_many("t", [b"v"], headers=column(HEADERS))
