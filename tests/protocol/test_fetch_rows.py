"""What the consumer encodes and decodes without objects is what the structs are, in every version, and hostile bytes are refused alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_kit import sample, versions_of, whole

import kafkacore.consumer.sessions  # noqa: F401 - binds the rows to their struct
from kafkacore import errors, protocol
from kafkacore._codec import FetchedPartitions, FetchQueue, FetchRow, FetchRows, RowKind, decode_fetch
from kafkacore.errors import CorruptDataError
from kafkacore.protocol import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkacore.types import TopicPartition
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ID = b"t" * 16
INT32, INT64 = 2**31 - 1, 2**63 - 1
PARTITIONS = st.lists(
    st.tuples(st.integers(0, INT32), st.integers(-1, INT32), st.integers(-1, INT64), st.integers(0, INT32)), unique_by=lambda p: p[0]
)


def rows_of(partitions: list[tuple[int, int, int, int]]) -> list[FetchRow]:
    rows = FetchRows(1)
    for index, epoch, offset, max_bytes in partitions:
        rows.want(TopicPartition("t", index), ID, offset, max_bytes, epoch)
    topics = rows.send_all()
    assert [(name, topic_id) for name, topic_id, _ in topics] == [("t", ID)] * bool(partitions)
    return topics[0][2] if topics else []


@each_row("version", versions_of(FetchRequest))
@settings(max_examples=10)
@given(PARTITIONS)
def test_a_row_is_written_as_its_struct(version: int, partitions: list[tuple[int, int, int, int]]) -> None:
    structs = [
        FetchPartition(partition=index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, epoch, offset, max_bytes in partitions
    ]
    written = [
        whole(FetchRequest(topics=[FetchTopic(topic="t", topic_id=ID, partitions=each)]).encode(version))  # type: ignore[arg-type]
        for each in (structs, rows_of(partitions))
    ]
    assert written[0] == written[1]


def test_a_row_stands_for_its_struct_alone() -> None:
    (row,) = rows_of([(0, 0, 0, 1)])
    with pytest.raises(errors.UsageError, match=r"forgotten_topics_data\[0\]: expected ForgottenTopic, got FetchRow"):
        FetchRequest(forgotten_topics_data=[row]).encode(17)
    with pytest.raises(errors.UsageError, match="expected FetchPartition, got FetchRow"):
        FetchRequest(topics=[FetchTopic(partitions=[FetchRow()])]).encode(17)  # type: ignore[list-item]


def test_a_row_says_what_was_sent_until_more_is_sent() -> None:
    rows = FetchRows(1)
    tp = TopicPartition("t", 0)
    row = rows.want(tp, ID, 5, 100, 3)
    rows.send_all()
    assert rows.want(tp, ID, 9, 100, 4) is row
    assert (row.fetch_offset, row.leader_epoch, rows.targets[tp].fetch_offset) == (5, 3, 9)
    assert rows.send_changes() == ([("t", ID, [row])], [])
    assert (row.fetch_offset, row.leader_epoch) == (9, 4)
    rows.drop(tp)
    assert rows.send_changes() == ([], [(tp, ID)])
    assert (rows.wanted, rows.sent_count, rows.targets, rows.sent) == (0, 0, {}, {})


def test_rows_are_of_structs_with_these_fields() -> None:
    with pytest.raises(ValueError):
        RowKind(FetchPartition, ("no_such_field",))
    with pytest.raises(errors.InternalError):
        RowKind(FetchPartition, tuple(FetchPartition.FIELDS))


@each_row("version", versions_of(FetchResponse))
def test_partitions_left_as_bytes_are_the_structs(version: int) -> None:
    plan = FetchResponse.plan(version)
    for seed in range(20):
        wire = whole(sample(FetchResponse, version, seed).encode(version))
        decoded, left = plan.decode(wire), decode_fetch(plan, wire)
        assert [t._replace(partitions=[]) for t in decoded.responses] == [t._replace(partitions=[]) for t in left.responses]
        for topic, same in zip(decoded.responses, left.responses, strict=True):
            assert type(same.partitions) is FetchedPartitions
            assert topic.partitions == [same.partitions[nth] for nth in range(len(same.partitions))]
            for nth in (-1, len(same.partitions)):
                with pytest.raises(IndexError):
                    same.partitions[nth]


changed_bytes = Reached("refused", "another answer")


@changed_bytes.by
@given(st.data(), st.sampled_from([4, 7, 12, 17]))
def test_hostile_answers_are_refused_alike(data: st.DataObject, version: int) -> None:
    parts = [protocol.PartitionData(partition_index=nth, records=b"x" * nth, aborted_transactions=[]) for nth in range(3)]
    good = whole(FetchResponse(responses=[protocol.FetchableTopicResponse(topic="t", partitions=parts)] * 2).encode(version))
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    del raw[data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw)))) :]
    plan = FetchResponse.plan(version)
    outcomes: list[Any] = []
    for decode in (plan.decode, partial(decode_fetch, plan)):
        try:
            found = [(each.topic, each.partitions) for each in decode(bytes(raw)).responses]
        except CorruptDataError as error:
            outcomes.append(str(error))
        else:
            outcomes.append([(name, [parts[nth] for nth in range(len(parts))]) for name, parts in found])
    assert outcomes[0] == outcomes[1]
    changed_bytes("refused", isinstance(outcomes[0], str))
    changed_bytes("another answer", not isinstance(outcomes[0], str) and raw != good)


def test_rows_are_those_of_the_answer() -> None:
    queue = FetchQueue(None, 1, 1, True, 1)
    wire = whole(FetchResponse(responses=[protocol.FetchableTopicResponse(topic="t", partitions=[protocol.PartitionData()])]).encode(12))
    (topic,) = decode_fetch(FetchResponse.plan(12), wire).responses
    with pytest.raises(errors.InternalError, match="0 rows for 1 partitions"):
        queue.take_answers([], topic.partitions, 0, b"", ID, 1)
