"""Fetch sessions: what each fetch tells, and how the session goes on after every kind of answer."""

import pytest

from kafkacore.consumer.sessions import FetchLimits, FetchPlan, FetchSession, FetchTarget
from kafkacore.errors import Code
from kafkacore.protocol import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ID_T, ID_U, ID_T2 = b"t" * 16, b"u" * 16, b"T" * 16
LIMITS = FetchLimits(500, 1, 1 << 20, 0, "")


def target(topic_id: bytes, offset: int) -> FetchTarget:
    return FetchTarget(topic_id, offset, 1000, 0)


def response(*tps: TopicPartition, session_id: int = 7, error_code: int = 0) -> FetchResponse:
    by_id = {"t": ID_T, "u": ID_U}
    return FetchResponse(
        error_code=error_code,
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic=tp.topic,
                topic_id=by_id[tp.topic],
                partitions=[PartitionData(partition_index=tp.partition, high_watermark=0, records=b"")],
            )
            for tp in tps
        ],
    )


def plan_for(session: FetchSession, wanted: dict[TopicPartition, FetchTarget]) -> FetchPlan:
    """The next fetch, for exactly these partitions."""
    for tp in [tp for tp in session.rows.targets if tp not in wanted]:
        session.drop(tp)
    for tp, new in wanted.items():
        session.want(tp, new)
    return session.plan()


def built(plan: FetchPlan, version: int) -> FetchRequest:
    """The request as a broker reads it."""
    return FetchRequest.decode(version, b"".join(plan.build(version, LIMITS).encode(version)))


def reported(request) -> list[tuple[bytes, int, int]]:
    return [(t.topic_id, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]


@pytest.mark.parametrize("new_id", [ID_T2, b"z" * 16])
def test_a_recreated_topic_replaces_the_old_one(new_id):
    session = FetchSession(1)
    plan = plan_for(session, {A: target(ID_T, 50)})
    session.handle_response(plan, response(A), 17)
    request = built(plan_for(session, {A: target(new_id, 0)}), 17)
    assert reported(request) == [(new_id, 0, 0)]
    assert [(f.topic_id, f.partitions) for f in request.forgotten_topics_data] == [(ID_T, [0])]
    assert request.session_epoch == 1


@each_row("version, session, rack", [(6, (0, -1), ""), (7, (7, 1), ""), (10, (7, 1), ""), (11, (7, 1), "r")])
def test_a_request_says_what_its_version_knows(version, session, rack):
    plan = FetchPlan(FetchSession(1).rows, [], [], 7, 1, False, {})
    request = plan.build(version, FetchLimits(500, 2, 3, 1, "r"))
    assert (request.session_id, request.session_epoch) == session and request.rack_id == rack
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (500, 2, 3, 1)


@each_row(
    "code, session_id",
    [(Code.FETCH_SESSION_ID_NOT_FOUND, 0), (Code.INVALID_FETCH_SESSION_EPOCH, 7), (Code.FETCH_SESSION_TOPIC_ID_ERROR, 7)],
)
def test_a_refused_session_starts_over_with_a_full_fetch(code, session_id):
    session = FetchSession(1)
    session.handle_response(plan_for(session, {A: target(ID_T, 0)}), response(A), 17)
    plan = plan_for(session, {A: target(ID_T, 3)})
    assert str(int(code)) in session.handle_response(plan, response(session_id=0, error_code=code), 17)
    request = built(plan_for(session, {A: target(ID_T, 3)}), 17)
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert reported(request) == [(ID_T, 0, 3)]


def test_a_lost_answer_starts_over_and_closes_the_session_whose_state_is_unknown():
    session = FetchSession(1)
    session.handle_response(plan_for(session, {A: target(ID_T, 0)}), response(A), 17)
    plan_for(session, {A: target(ID_T, 3)})
    session.handle_error()
    request = built(plan_for(session, {A: target(ID_T, 3)}), 17)
    assert (request.session_id, request.session_epoch, reported(request)) == (7, 0, [(ID_T, 0, 3)])


def test_an_answer_about_something_else_is_refused():
    session = FetchSession(1)
    plan = plan_for(session, {A: target(ID_T, 0)})
    assert "not asked for" in session.handle_response(plan, response(A, B), 17)
    plan = plan_for(session, {A: target(ID_T, 0), B: target(ID_T, 0)})
    assert "leaves out 1 of 2" in session.handle_response(plan, response(A), 17)
    assert session.epoch == 0
    plan = plan_for(session, {A: target(ID_T, 0)})
    assert "topic id" in session.handle_response(plan, response(C), 17)


def test_the_epoch_wraps_to_one():
    session = FetchSession(1)
    session.handle_response(plan_for(session, {A: target(ID_T, 0)}), response(A), 17)
    session.epoch = 2**31 - 1
    plan = plan_for(session, {A: target(ID_T, 0)})
    assert built(plan, 17).session_epoch == 2**31 - 1
    session.handle_response(plan, response(A), 17)
    assert session.epoch == 1


def test_before_version_13_a_recreated_topic_is_not_forgotten_by_its_name():
    """Brokers add what a request names and then drop what it forgets; by name both are the same partition."""
    session = FetchSession(1)
    plan = plan_for(session, {A: target(ID_T, 50), B: target(ID_T, 1)})
    assert session.handle_response(plan, response(A, B), 12) is None
    again = built(plan_for(session, {A: target(ID_T2, 0)}), 12)
    assert [(t.topic, p.partition, p.fetch_offset) for t in again.topics for p in t.partitions] == [("t", 0, 0)]
    assert [(f.topic, f.partitions) for f in again.forgotten_topics_data] == [("t", [1])]
