"""Transient errors that the table of test_transient_errors.py does not have: several in a row, many topics, a seek meanwhile, time-outs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore import protocol as p
from kafkacore.admin import KafkaAdminClient
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.erring_cluster import ADMIN, CONSUMER, PRODUCER, VALUES, World, always, erring, fetch, list_offsets, metadata
from tests.kit.rows import each_row

T, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
DENIED = Code.TOPIC_AUTHORIZATION_FAILED
TRIES = 300


world = erring()
pair = erring(brokers=2)


def consumer(world: World, *topics: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(*topics, bootstrap_servers=world.bootstrap, **CONSUMER | settings)


def read(reader: KafkaConsumer, wanted: dict[TopicPartition, list[bytes]]) -> list[errors.KafkaError]:
    """Polls until all of `wanted` is there, in order. Returns what was raised on the way."""
    raised: list[errors.KafkaError] = []
    got: dict[TopicPartition, list[bytes]] = {}
    for _ in range(TRIES):
        try:
            for tp, records in reader.poll(5).items():
                got.setdefault(tp, []).extend(r.value for r in records)
        except errors.KafkaError as error:
            raised.append(error)
        if all(got.get(tp, [])[: len(values)] == values for tp, values in wanted.items()):
            return raised
    raise AssertionError(f"read {got}, raised {raised[-3:]}")


@each_row(
    ("api", "answer"),
    [("Metadata", metadata(topic=DENIED)), ("ListOffsets", list_offsets(DENIED)), ("Fetch", fetch(DENIED))],
    ids=["metadata", "list offsets", "fetch"],
)
def test_errors_in_a_row_are_raised_once_each(world: World, api: str, answer: Callable[[World, Any], Any]) -> None:
    with world.errs(api, answer, times=3), consumer(world, "t", "other") as reader:
        raised = read(reader, {T: VALUES, OTHER: VALUES})
        assert [type(error) for error in raised] == [errors.TopicAuthorization] * 3
        assert {error.topic for error in raised} == {"t"}


def test_refusals_of_one_answer_are_one_error_that_names_all_topics(world: World) -> None:
    names = [f"refused-{index}" for index in range(30)]
    world.create(*names)
    world.fill(*names)

    def answer(world: World, request: p.MetadataRequest) -> Any:
        if not request.topics or not any(topic.name == names[0] for topic in request.topics):
            return None
        host, _, port = world.bootstrap.rpartition(":")
        return p.MetadataResponse(
            brokers=[p.MetadataResponseBroker(node_id=1, host=host, port=int(port))],
            topics=[p.MetadataResponseTopic(name=topic.name, error_code=DENIED) for topic in request.topics],
        )

    with world.errs("Metadata", answer, times=1), consumer(world, *names) as reader:
        (error,) = read(reader, dict.fromkeys([TopicPartition(name, 0) for name in names], VALUES))
    assert world.answered == 1
    assert "refused for" in str(error)
    assert " and " in str(error)


def test_a_refusal_is_not_raised_again_with_news_of_other_topics(world: World) -> None:
    world.create("third")
    with (
        world.errs("Metadata", metadata(topic=DENIED), times=1),
        consumer(world, "t", "other", retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as reader,
    ):
        assert len(read(reader, {OTHER: VALUES})) == 1
        assert reader.partitions_for("third") == [0]  # a new topic is asked for at once, and alone
        assert reader.poll(0) == {}
        assert reader.poll(0) == {}


def test_a_seek_while_a_fetch_is_refused(world: World) -> None:
    refusing = fetch(DENIED)

    def answer(world: World, request: p.FetchRequest) -> Any:
        here = next((q.fetch_offset for topic in request.topics if world.name(topic.topic_id) == "t" for q in topic.partitions), None)
        return refusing(world, request) if here == 0 else None

    with world.errs("Fetch", answer, times=TRIES), consumer(world) as reader:
        reader.assign([T])
        reader.seek(T, 0)
        reader.poll(0)  # the request is on its way
        reader.seek(T, 1)
        assert read(reader, {T: VALUES[1:]}) == []
        reader.seek(T, 0)
        with pytest.raises(errors.TopicAuthorization) as raised:
            reader.poll(5)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 0, 0)
        assert reader.position(T) == 0
        world.left = 0
        assert len(read(reader, {T: VALUES})) <= 1


# ---- time-outs name the cause


LATE: list[tuple[str, Callable[[World, Any], Any], type[errors.KafkaError]]] = [
    ("Metadata", metadata(topic=Code.UNKNOWN_TOPIC_OR_PARTITION), errors.UnknownTopicOrPartition),
    ("Metadata", metadata(topic=Code.LEADER_NOT_AVAILABLE), errors.LeaderNotAvailable),
    ("Metadata", metadata(partition=Code.LEADER_NOT_AVAILABLE, leader=-1), errors.LeaderNotAvailable),
    ("ListOffsets", list_offsets(Code.NOT_LEADER_OR_FOLLOWER), errors.NotLeaderOrFollower),
]


@each_row("call", ["position", "beginning_offsets", "end_offsets", "offsets_for_times"])
@each_row(("api", "answer", "cause"), LATE)
def test_a_time_out_names_the_cause(
    world: World, api: str, answer: Callable[[World, Any], Any], cause: type[errors.KafkaError], call: str
) -> None:
    argument: Any = {"position": T, "offsets_for_times": {T: 0}}.get(call, [T])
    with world.errs(api, answer, times=1 << 30), consumer(world) as reader:
        reader.assign([T, OTHER])
        for timeout in (0.1, 1, 5):  # on a machine that is busy the first answer may be late
            with pytest.raises(errors.KafkaTimeoutError) as late:
                getattr(reader, call)(argument, timeout)
            if any(isinstance(attempt, cause) for attempt in late.value.attempts):
                break
        else:
            raise AssertionError(f"the cause is not named: {late.value}")
        assert reader.position(OTHER) == 0
        world.left = 0
        getattr(reader, call)(argument)


# ---- OffsetForLeaderEpoch: a position is validated after a leader change


def epoch_ends(code: int) -> Callable[[World, Any], Any]:
    def answer(_: World, request: p.OffsetForLeaderEpochRequest) -> Any:
        return p.OffsetForLeaderEpochResponse(
            topics=[
                p.OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[p.EpochEndOffset(partition=q.partition, error_code=code) for q in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    return answer


@each_row(
    ("answer", "count"),
    [(epoch_ends(DENIED), 1), (epoch_ends(Code.NOT_LEADER_OR_FOLLOWER), 0), (epoch_ends(Code.UNKNOWN_TOPIC_OR_PARTITION), 0)],
    ids=["topic authorization", "not leader", "unknown topic"],
)
def test_an_error_of_a_validation(pair: World, answer: Callable[[World, Any], Any], count: int) -> None:
    with consumer(pair) as reader:
        reader.assign([T])
        end = reader.end_offsets([T])[T]
        while reader.position(T) < end:
            reader.poll(5)
        leader = pair.cluster.leader("t", 0)
        raised = []
        with pair.errs("OffsetForLeaderEpoch", answer, times=1):
            pair.cluster.move_leader("t", 0, 3 - (leader or 0))
            pair.fill("t")
            while reader.position(T) == end:
                try:
                    reader.poll(5)
                except errors.KafkaError as error:
                    raised.append(error)
            assert pair.answered == 1
        assert [type(error) for error in raised] == [errors.TopicAuthorization] * count


# ---- a broker that is upgraded


def from_the_start(world: World) -> KafkaConsumer:
    client = consumer(world)
    client.assign([T])
    client.seek(T, 0)
    return client


def producing(world: World) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=world.bootstrap, **PRODUCER | {"enable_idempotence": False})


def administering(world: World) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=world.bootstrap, **ADMIN)


@each_row(
    ("api", "client", "call"),
    [
        ("ListOffsets", from_the_start, lambda c: c.beginning_offsets([T]) == {T: 0}),
        ("Fetch", from_the_start, lambda c: bool(c.poll(5))),
        ("Produce", producing, lambda c: c.send("t", b"x").result(60).offset >= 0),
        ("ListGroups", administering, lambda c: c.list_groups() == []),
    ],
)
def test_a_client_outlives_a_broker_that_is_too_old(api: str, client: Callable[[World], Any], call: Callable[[Any], bool]) -> None:
    """A broker says that it does not speak an API, and later, after a restart, that it does."""
    world = World()
    try:
        world.create("t")
        world.fill("t")
        key = next(each.key for each in p.APIS.values() if each.name == api)
        served = EmbeddedCluster.__init__.__kwdefaults__["api_versions"]
        ranges = [p.ApiVersion(api_key=each, min_version=low, max_version=high) for each, (low, high) in served.items() if each != key]
        with contextlib.closing(client(world)) as one:
            with world.errs("ApiVersions", always(p.ApiVersionsResponse(api_keys=ranges)), times=1 << 30):
                for _ in range(3):
                    with pytest.raises(errors.UnsupportedVersion):
                        for _ in range(TRIES):
                            call(one)
            world.cluster.stop_broker(1)
            world.cluster.start_broker(1)
            for _ in range(TRIES):
                with contextlib.suppress(errors.UnsupportedVersion):
                    if call(one):
                        return
            raise AssertionError("the client did not recover")
    finally:
        world.cluster.close()
