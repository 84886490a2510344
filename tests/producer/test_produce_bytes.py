"""The Produce request out of batches and its answer out of bytes, beside the general way by structs; what the collector sees of them."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from producer_support import Bench, as_received

from kafkacore import _codec, protocol
from kafkacore.errors import Code, CorruptDataError, UsageError
from kafkacore.metadata import ClusterSnapshot, TopicInfo
from kafkacore.protocol import LeaderIdAndEpoch, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ZERO_ID = bytes(16)


def topic_id(name: str) -> bytes:
    return name.encode()[:16].rjust(16, b"\x01")


def bench_of(topics: list[str], *, partitions: int = 3, with_ids: bool = True, **options: Any) -> Bench:
    """A producer that knows these topics; without idempotence, so that requests depend on what is sent alone."""
    bench = Bench(partitions=partitions, **{"enable_idempotence": False, "acks": 1, "batch_size": 512, **options})
    known = bench.metadata.snapshot
    parts = known.topics["t"].partitions
    infos = {name: TopicInfo(name, topic_id(name) if with_ids else ZERO_ID, parts) for name in topics}
    bench.metadata.snapshot = ClusterSnapshot(known.nodes, topics=infos)
    for name in topics:
        if name != "t":
            bench.add_topic(name, partitions)
    return bench


def wire(message: Any, version: int) -> bytes:
    return b"".join(bytes(piece) for piece in message.encode(version))


def by_structs(message: Any) -> ProduceRequest:
    """The same request, of structs and lists alone."""
    assert not isinstance(message.topic_data, list)
    topics = list(message.topic_data)
    assert all(type(topic) is protocol.TopicProduceData and type(topic.partition_data) is list for topic in topics)
    return ProduceRequest(transactional_id=message.transactional_id, acks=message.acks, timeout_ms=message.timeout_ms, topic_data=topics)


NAMES = st.sampled_from(["t", "t", "u", "größer", "x" * 249])
SENDS = st.lists(st.tuples(NAMES, st.integers(0, 2), st.binary(max_size=60)), min_size=1, max_size=40)
ASKED = [(3, False), (8, True), (12, True), (12, False), (13, True), (13, True), (13, False)]
"""The newest version of the broker, and whether topics have ids."""
requests = Reached("several topics", "several partitions of a topic", "ids", "names although ids are known", "compressed")


@requests.by
@settings(deadline=None, max_examples=80)
@given(SENDS, st.sampled_from(ASKED), st.sampled_from(["none", "gzip"]))
def test_a_request_has_the_bytes_of_the_general_encoder(sends: list[tuple[str, int, bytes]], asked: tuple[int, bool], codec: str) -> None:
    version, with_ids = asked
    bench = bench_of(["t", "u", "größer", "x" * 249], with_ids=with_ids, compression_type=codec)
    bench.client.version_limit = version
    for name, partition, value in sends:
        bench.send(name, value, partition=partition, timestamp_ms=7)
    bench.step()
    ((request, message),) = bench.client.sent
    assert request.version == min(version, 13 if with_ids else 12)
    assert wire(message, request.version) == wire(by_structs(message), request.version)
    where = {(name, partition) for name, partition, _ in sends}
    requests("several topics", len({name for name, _ in where}) > 1)
    requests("several partitions of a topic", len({name for name, _ in where}) < len(where))
    requests("ids", request.version == 13)
    requests("names although ids are known", with_ids and version < 13)
    requests("compressed", codec != "none")
    read = ProduceRequest.decode(request.version, wire(message, request.version))
    names = {topic_id(name): name for name, _, _ in sends}
    found = [(topic.name or names[bytes(topic.topic_id)], part.index) for topic in read.topic_data for part in topic.partition_data]
    assert sorted(found) == sorted(where)
    assert len({topic.name or bytes(topic.topic_id) for topic in read.topic_data}) == len(read.topic_data)


def test_rows_stand_for_their_own_struct_only() -> None:
    bench = bench_of(["t"])
    bench.send_now("t", b"x", partition=0)
    ((_, message),) = bench.client.sent
    assert len(message.topic_data) == 1
    with pytest.raises(IndexError):
        message.topic_data[1]
    with pytest.raises(UsageError, match=r"topics: expected a list, got ProduceTopics"):
        protocol.FetchRequest(topics=message.topic_data).encode(12)


# ---- answers

PARTS = st.fixed_dictionaries(
    {
        "error_code": st.sampled_from(
            [0, 0, 0, int(Code.NOT_LEADER_OR_FOLLOWER), int(Code.DUPLICATE_SEQUENCE_NUMBER), int(Code.INVALID_RECORD)]
        ),
        "base_offset": st.integers(-1, 2**62),
        "log_append_time_ms": st.sampled_from([-1, 1_234]),
        "error_message": st.sampled_from([None, "why"]),
        "current_leader": st.sampled_from([LeaderIdAndEpoch(), LeaderIdAndEpoch(leader_id=1, leader_epoch=3)]),
    }
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[tuple[str, list[tuple[int, dict[str, Any]]]]], str | None]:
    """What is sent where, with the answer to each, and how the answer is bent, if it is."""
    names = draw(st.lists(st.sampled_from(["t", "u", "größer"]), min_size=1, max_size=3, unique=True))
    plain = draw(st.booleans())
    part = PARTS if not plain else st.builds(
        lambda offset, time: {"error_code": 0, "base_offset": offset, "log_append_time_ms": time},
        st.integers(-1, 2**62), st.sampled_from([-1, 1_234]),
    )  # fmt: skip
    told = [
        (name, [(index, draw(part)) for index in draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))]) for name in names
    ]
    return told, draw(st.sampled_from([None, "in another order", "a partition left out", "a topic twice"]))


def outcome(bench: Bench, futures: list[Any]) -> Any:
    settled = [
        (type(future.exception(0)).__name__, future.result(0) if future.exception(0) is None else None) if future.done() else None
        for future in futures
    ]
    counters = {name: bench.sender.counters[name] for name in ("batches", "records", "bytes", "retries", "failed_records")}
    leaders = {tp: (info.leader, info.leader_epoch) for tp in range(3) if (info := bench.metadata.snapshot.topics["t"].partition(tp))}
    return settled, counters, leaders, bench.pool.available_bytes, len(bench.sender._in_flight)


answered = Reached("one taken, one refused", "all taken", "a leader named", "in another order", "a partition left out", "a topic twice")


@answered.by
@settings(deadline=None, max_examples=150)
@given(answers(), st.sampled_from([3, 9, 12, 13, 13]), st.randoms(use_true_random=False))
def test_an_answer_means_the_same_out_of_bytes_and_structs(
    given: tuple[list[tuple[str, list[tuple[int, dict[str, Any]]]]], str | None], version: int, rng: Any
) -> None:
    told, bent = given
    said = [
        TopicProduceResponse(
            name=name if version < 13 else "",
            topic_id=topic_id(name),
            partition_responses=[
                PartitionProduceResponse(index=index, **{**fields, **({} if version >= 10 else {"current_leader": LeaderIdAndEpoch()})})
                for index, fields in parts
            ],
        )
        for name, parts in told
    ]
    parts = [fields for _, parts in told for _, fields in parts]
    plain = not any(fields["error_code"] for fields in parts)
    answered("one taken, one refused", not plain and not all(fields["error_code"] for fields in parts))
    answered("all taken", plain)
    answered("a leader named", version >= 10 and any(fields.get("current_leader", LeaderIdAndEpoch()).leader_id > 0 for fields in parts))
    if bent:
        for topic in said:
            rng.shuffle(topic.partition_responses)
        rng.shuffle(said)
        answered(bent)
        if bent == "a partition left out":
            rng.choice(said).partition_responses.pop()
        elif bent == "a topic twice":
            said.append(said[0])
    outcomes = []
    for by_bytes in (True, False):
        bench = bench_of(["t", "u", "größer"])
        bench.client.version_limit = version
        futures = [bench.send(name, b"x", partition=index, timestamp_ms=9) for name, parts in told for index, _ in parts]
        bench.step()
        answer = ProduceResponse(responses=said)
        received = as_received(answer, version)
        assert type(received.responses) is _codec.ProducedTopics
        bench.client.answer(received if by_bytes else ProduceResponse.decode(version, wire(answer, version)), as_it_is=True)
        bench.step()
        outcomes.append(outcome(bench, futures))
    assert outcomes[0] == outcomes[1]
    if plain and not bent:
        assert outcomes[0][1]["batches"] == sum(len(parts) for _, parts in told)


@each_row("version", [3, 8, 9, 12, 13])
@each_row("wrong", ["name", "id", "index", "missing topic", "missing partition", "twice"])
def test_an_answer_that_does_not_fit_the_request_settles_nothing_by_position(version: int, wrong: str) -> None:
    bench = bench_of(["t", "u"])
    bench.client.version_limit = version
    futures = [bench.send(name, b"x", partition=index) for name in "tu" for index in (0, 1)]
    bench.step()
    said = [
        TopicProduceResponse(
            name=name if version < 13 else "",
            topic_id=topic_id(name),
            partition_responses=[PartitionProduceResponse(index=index, base_offset=10 + index) for index in (0, 1)],
        )
        for name in "tu"
    ]
    spared = futures[2:] if wrong in ("name", "id", "missing topic") else futures[3:]
    if wrong in ("name", "id"):
        named = {"name": "v" if version < 13 else "", "topic_id": topic_id("v")}
        said[1] = TopicProduceResponse(**named, partition_responses=said[1].partition_responses)
    elif wrong == "index":
        said[1].partition_responses[1] = PartitionProduceResponse(index=2, base_offset=11)
    elif wrong == "missing topic":
        del said[1]
    elif wrong == "missing partition":
        said[1].partition_responses.pop()
    else:
        said[1].partition_responses[1] = PartitionProduceResponse(index=0, base_offset=11)
    bench.client.answer(ProduceResponse(responses=said))
    bench.step()
    assert [future.done() for future in futures] == [future not in spared for future in futures]


decoded = Reached("refused", "read, although changed", "cut off")


@decoded.by
@settings(deadline=None, max_examples=150)
@given(st.sampled_from([3, 8, 9, 12, 13]), st.data())
def test_bytes_that_are_no_answer_are_refused_as_by_the_general_decoder(version: int, data: st.DataObject) -> None:
    answer = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t" if version < 13 else "",
                topic_id=topic_id("t"),
                partition_responses=[
                    PartitionProduceResponse(index=index, base_offset=5, error_message="ä", current_leader=LeaderIdAndEpoch(leader_id=1))
                    if version >= 10
                    else PartitionProduceResponse(index=index, base_offset=5)
                    for index in range(3)
                ],
            )
        ]
    )
    raw = bytearray(wire(answer, version))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    found: list[Any] = []
    plan = ProduceResponse.plan(version)
    for decode in (plan.decode, lambda raw: _codec.decode_produced(plan, raw)):
        try:
            body = decode(bytes(raw))
            found.append((list(body.responses), body.throttle_time_ms, list(body.node_endpoints)))
        except CorruptDataError as error:
            found.append(str(error))
    decoded("refused", isinstance(found[0], str))
    decoded("read, although changed", not isinstance(found[0], str) and bytes(raw) != wire(answer, version))
    decoded("cut off", len(raw) < len(wire(answer, version)))
    assert found[0] == found[1]


# ---- what the collector has to walk


def tracked_by_a_round(topics: int) -> tuple[int, int]:
    """Objects for the collector that a pass over small records of so many topics leaves, and that its answer brings."""
    names = [f"topic-{nth}" for nth in range(topics)]
    bench = bench_of(names, partitions=1, batch_size=200, buffer_memory=1 << 24)
    bench.client.send = lambda request, now_ms: sent.append((request, protocol.encode_request(build(request), 13, 1, "me")))  # type: ignore[method-assign]
    sent: list[Any] = []

    def build(request: Any) -> Any:
        request.version = 13
        return request.build(13)

    futures = [bench.send(name, b"x", partition=0) for name in names]
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        bench.sender.send_producer_data(bench.clock.now_ms())
        after = len(gc.get_objects())
        ((request, frame),) = sent
        assert sum(map(len, frame)) > 70 * topics
        said = [
            TopicProduceResponse(topic_id=topic_id(name), partition_responses=[PartitionProduceResponse(index=0, base_offset=3)])
            for name in names
        ]
        raw = wire(ProduceResponse(responses=said), 13)
        decoded = len(gc.get_objects())
        body = _codec.decode_produced(ProduceResponse.plan(13), raw)
        request.callback(_codec.ClientResponse(request, body))
        answered = len(gc.get_objects())
    finally:
        gc.enable()
    assert all(future.result(0).offset == 3 for future in futures)
    return after - before, answered - decoded


def test_no_object_of_a_request_or_its_answer_is_walked_by_the_collector_for_each_topic() -> None:
    assert tracked_by_a_round(10) == pytest.approx(tracked_by_a_round(400), abs=12)


def test_batches_and_deliveries_are_hidden_from_the_collector_until_something_fails() -> None:
    bench = bench_of(["t"])
    futures = [bench.send("t", b"x", partition=index) for index in (0, 1)]
    deliveries = [batch.delivery for batch in bench.accumulator.incomplete()]
    assert not any(map(gc.is_tracked, [*bench.accumulator.incomplete(), *deliveries]))
    bench.step()
    parts = [PartitionProduceResponse(index=0, base_offset=1), PartitionProduceResponse(index=1, error_code=Code.INVALID_RECORD)]
    bench.client.answer(ProduceResponse(responses=[TopicProduceResponse(topic_id=topic_id("t"), partition_responses=parts)]))
    bench.step()
    assert [future.exception(0) is None for future in futures] == [True, False]
    assert [gc.is_tracked(delivery) for delivery in deliveries] == [False, True]
