"""One table: each transient error x each call of a client.

A row of `FAULTS` is an error that the cluster orders for requests of one API; a row of `CALLS` is a call and the APIs it sends. In every
cell the call is repeated until it works, on the same client. Either the error was raised once, or, where it may be retried, not at all; and
the other topic of the client was served. Where a call never sends the API there is no cell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore import protocol as p
from kafkacore.admin import KafkaAdminClient
from kafkacore.errors import Code
from kafkacore.testing import Disconnect, Drop
from kafkacore.types import NewTopic
from tests.kit.erring_cluster import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    VALUES,
    World,
    always,
    coordinators,
    erring,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from tests.kit.rows import each_row

TRIES = 300

# ---- the calls -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call of a client.

    Attributes:
        client: makes the client.
        run: makes the call for "t"; raises, returns True when it worked, or False where it has to be made again for the rest.
        others: the same client serves the other topic.
        apis: what it sends on its way, with "t" in it where the API names topics.
    """

    name: str
    client: Callable[..., Any]
    run: Callable[[World, Any], bool]
    others: Callable[[World, Any], bool]
    apis: frozenset[str]

    def __str__(self) -> str:
        return self.name


T, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)


class Reading:
    """A consumer, and the values read so far."""

    def __init__(self, world: World, *topics: str, **settings: Any) -> None:
        self.consumer = KafkaConsumer(*topics, bootstrap_servers=world.bootstrap, **CONSUMER | world.security | settings)
        self.got: dict[TopicPartition, list[bytes]] = {}

    def take(self, topic: str, partition: int, values: list[bytes]) -> None:
        self.got.setdefault(TopicPartition(topic, partition), []).extend(values)

    def has(self, tp: TopicPartition) -> bool:
        """The first records of a partition are there, each once and in order."""
        got = self.got.get(tp, [])
        assert got[:3] == VALUES[: len(got)]
        return len(got) >= len(VALUES)

    def close(self) -> None:
        self.consumer.close()


def subscribed(world: World, **settings: Any) -> Reading:
    return Reading(world, "t", "other", **settings)


def assigned(world: World, **settings: Any) -> Reading:
    reading = Reading(world, **settings)
    reading.consumer.assign([T, OTHER])
    return reading


def polled(_: World, reading: Reading) -> bool:
    for tp, records in reading.consumer.poll(5).items():
        reading.take(*tp, [r.value for r in records])
    return reading.has(T)


def polled_batch(_: World, reading: Reading) -> bool:
    for columns in reading.consumer.poll_batch(5):
        reading.take(columns.topic, columns.partition, columns.values.to_pylist())
    return reading.has(T)


def iterated(_: World, reading: Reading) -> bool:
    for record in reading.consumer:
        reading.take(record.topic, record.partition, [record.value])
        if reading.has(T):
            return True
    return False


def other_read(run: Callable[[World, Reading], bool]) -> Callable[[World, Reading], bool]:
    def read(world: World, reading: Reading) -> bool:
        while not reading.has(OTHER):
            run(world, reading)
        return True

    return read


def asked(question: Callable[[KafkaConsumer, TopicPartition], Any], expected: Any) -> tuple[Any, Any]:
    return (
        lambda _, reading: question(reading.consumer, T) == expected,
        lambda _, reading: question(reading.consumer, OTHER) == (expected if not isinstance(expected, dict) else {OTHER: expected[T]}),
    )


def producer(world: World, **settings: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=world.bootstrap, **PRODUCER | world.security | settings)


def sent(topic: str) -> Callable[[World, KafkaProducer], bool]:
    return lambda _, client: client.send(topic, b"x").result(60).offset >= 0


def sent_many(_: World, client: KafkaProducer) -> bool:
    failed = client.send_many("t", [b"x", b"y"]).exception(60)
    if failed is not None:
        raise failed
    return True


def flushed(_: World, client: KafkaProducer) -> bool:
    client.send("t", b"x")
    client.flush(10)
    return True


class Closing:
    """Producers, each of which sends one record before it is closed."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.settings = settings

    def send(self, topic: str) -> bool:
        with producer(self.world, **self.settings) as one:
            one.send(topic, b"x")
        return True

    def close(self) -> None:
        """Nothing is open."""


def admin(world: World, **settings: Any) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=world.bootstrap, **ADMIN | world.security | settings)


def described(topic: str) -> Callable[[World, KafkaAdminClient], bool]:
    return lambda _, client: len(client.describe_topics([topic]).check()[topic].partitions) == 1


CONSUMED = frozenset({"Metadata", "ListOffsets", "Fetch"})
LISTED = frozenset({"Metadata", "ListOffsets"})
PRODUCED = frozenset({"Metadata", "InitProducerId", "Produce"})
BEGINNING = asked(lambda c, tp: c.beginning_offsets([tp]), {T: 0})
ENDING = asked(lambda c, tp: c.end_offsets([tp])[tp] >= 3, True)
TIMED = asked(lambda c, tp: c.offsets_for_times({tp: 0})[tp].offset, 0)
PLACED = asked(lambda c, tp: c.position(tp), 0)
COUNTED = asked(lambda c, tp: c.partitions_for(tp.topic), [0])

CALLS = [
    Call("poll", subscribed, polled, other_read(polled), CONSUMED),
    Call("poll, assigned", assigned, polled, other_read(polled), CONSUMED),
    Call("poll_batch", subscribed, polled_batch, other_read(polled_batch), CONSUMED),
    Call("iteration", subscribed, iterated, other_read(polled), CONSUMED),
    Call("position", assigned, *PLACED, LISTED),
    Call("beginning_offsets", assigned, *BEGINNING, LISTED),
    Call("end_offsets", assigned, *ENDING, LISTED),
    Call("offsets_for_times", assigned, *TIMED, LISTED),
    Call("consumer.partitions_for", assigned, *COUNTED, frozenset({"Metadata"})),
    Call("send", producer, sent("t"), sent("other"), PRODUCED),
    Call("send_many", producer, sent_many, sent("other"), PRODUCED),
    Call("flush", producer, flushed, sent("other"), PRODUCED),
    Call("close", Closing, lambda _, c: c.send("t"), lambda _, c: c.send("other"), PRODUCED),
    Call("producer.partitions_for", producer, lambda _, c: c.partitions_for("t") == {0}, lambda _, c: c.partitions_for("other") == {0},
         frozenset({"Metadata"})),
    Call("create_topics", admin, lambda w, c: bool(c.create_topics([NewTopic(w.new_topic(), 1, 1)]).check()), described("other"),
         frozenset({"CreateTopics"})),
    Call("list_topics", admin, lambda _, c: "t" in c.list_topics(), described("other"), frozenset()),
    Call("describe_topics", admin, described("t"), described("other"), frozenset({"Metadata"})),
    Call("list_offsets", admin, lambda _, c: c.list_offsets({T: "latest"}).check()[T].offset >= 3,
         lambda _, c: c.list_offsets({OTHER: "latest"}).check()[OTHER].offset >= 3, LISTED),
    Call("describe_groups", admin, lambda _, c: type(c.describe_groups(["g"]).errors["g"]) is errors.GroupIdNotFound,
         described("other"), frozenset({"FindCoordinator"})),
    Call("list_groups", admin, lambda _, c: c.list_groups() == [], described("other"), frozenset({"ListGroups"})),
]  # fmt: skip


# ---- the errors ------------------------------------------------------------------------------------------------------------------------

RAISED, RETRIED = "raised once", "not raised"


@dataclass(frozen=True)
class Fault:
    """A transient error.

    Attributes:
        api: of the requests that meet it.
        answer: what they get.
        error: what it is raised as, or named as by a time-out.
        outcome: of all calls but those in `other_outcomes`.
    """

    name: str
    api: str
    answer: Callable[[World, Any], Any]
    error: type[errors.KafkaError]
    outcome: str
    other_outcomes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


DESCRIBED = {"describe_topics": RAISED}  # it says what one answer said, as Java's does
NOT_KNOWN = {**DESCRIBED, "consumer.partitions_for": RAISED, "list_offsets": RAISED}
FAULTS = [
    Fault("topic authorization", "Metadata", metadata(topic=Code.TOPIC_AUTHORIZATION_FAILED), errors.TopicAuthorization, RAISED),
    Fault("invalid topic", "Metadata", metadata(topic=Code.INVALID_TOPIC_EXCEPTION), errors.InvalidTopic, RAISED),
    Fault("unknown topic", "Metadata", metadata(topic=Code.UNKNOWN_TOPIC_OR_PARTITION), errors.UnknownTopicOrPartition, RETRIED, NOT_KNOWN),
    Fault("topic without leaders", "Metadata", metadata(topic=Code.LEADER_NOT_AVAILABLE), errors.LeaderNotAvailable, RETRIED, DESCRIBED),
    Fault("partition without leader", "Metadata", metadata(partition=Code.LEADER_NOT_AVAILABLE, leader=-1), errors.LeaderNotAvailable,
          RETRIED),
    Fault("leader with an unusable name", "Metadata", metadata(leader=2, host="bad..host"), errors.NetworkError, RETRIED),
    Fault("leader with a label too long", "Metadata", metadata(leader=2, host="x" * 64 + ".host"), errors.NetworkError, RETRIED),
    Fault("leader with an unusable port", "Metadata", metadata(leader=2, host="127.0.0.1", port=70_000), errors.NetworkError, RETRIED),
    Fault("fetch, topic authorization", "Fetch", fetch(Code.TOPIC_AUTHORIZATION_FAILED), errors.TopicAuthorization, RAISED),
    Fault("fetch, not leader", "Fetch", fetch(Code.NOT_LEADER_OR_FOLLOWER), errors.NotLeaderOrFollower, RETRIED),
    Fault("fetch, unknown topic", "Fetch", fetch(Code.UNKNOWN_TOPIC_ID), errors.UnknownTopicId, RETRIED),
    Fault("list offsets, topic authorization", "ListOffsets", list_offsets(Code.TOPIC_AUTHORIZATION_FAILED), errors.TopicAuthorization,
          RAISED),
    Fault("list offsets, leader not available", "ListOffsets", list_offsets(Code.LEADER_NOT_AVAILABLE), errors.LeaderNotAvailable, RETRIED),
    Fault("produce, topic authorization", "Produce", produce(Code.TOPIC_AUTHORIZATION_FAILED), errors.TopicAuthorization, RAISED),
    Fault("produce, not leader", "Produce", produce(Code.NOT_LEADER_OR_FOLLOWER), errors.NotLeaderOrFollower, RETRIED),
    Fault("producer id, cluster authorization", "InitProducerId",
          always(p.InitProducerIdResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)), errors.ClusterAuthorization, RAISED),
    Fault("producer id, coordinator loads", "InitProducerId",
          always(p.InitProducerIdResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS)), errors.CoordinatorLoadInProgress, RETRIED),
    Fault("coordinator not available", "FindCoordinator", coordinators(Code.COORDINATOR_NOT_AVAILABLE), errors.CoordinatorNotAvailable,
          RETRIED),
    Fault("coordinator loads", "ListGroups", always(p.ListGroupsResponse(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS)),
          errors.CoordinatorLoadInProgress, RETRIED),
    *(Fault(f"{api}, disconnected", api, always(Disconnect()), errors.DisconnectError, RETRIED)
      for api in ("Metadata", "ListOffsets", "Fetch", "Produce", "InitProducerId", "CreateTopics", "FindCoordinator", "ListGroups")),
    *(Fault(f"{api}, request times out", api, always(Drop()), errors.RequestTimedOut, RETRIED)
      for api in ("Metadata", "ListOffsets", "Fetch", "Produce", "InitProducerId", "CreateTopics", "FindCoordinator", "ListGroups")),
]  # fmt: skip

CELLS = [(fault, call) for fault in FAULTS for call in CALLS if fault.api in call.apis]
READING = CALLS[:4]


world = erring()
secured = erring(users={"alice": "pw"})


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that it names."""
    if error is not None:
        yield error
        for inner in [*getattr(error, "attempts", ()), *getattr(error, "causes", ()), error.__cause__]:
            yield from causes(inner)


def until_it_works(run: Callable[[], bool], raised_one: Callable[[], object] = lambda: None) -> list[errors.KafkaError]:
    """What a call raises before it works; `raised_one` is called after each."""
    raised: list[errors.KafkaError] = []
    for _ in range(TRIES):
        try:
            if run():
                return raised
        except errors.KafkaError as error:
            raised.append(error)
            raised_one()
    raise AssertionError(f"no success; raised {raised[-3:]}")


def heal(world: World) -> Callable[[], None]:
    def healed() -> None:
        world.left = 0

    return healed


def settings_for(fault: Fault) -> dict[str, Any]:
    return {"request_timeout_ms": 40} if fault.error is errors.RequestTimedOut else {}


@each_row(("fault", "call"), CELLS, ids=str)
def test_an_error_that_passes(world: World, fault: Fault, call: Call) -> None:
    outcome = fault.other_outcomes.get(call.name, fault.outcome)
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.errs(fault.api, fault.answer, times=1))
        client = stack.enter_context(contextlib.closing(call.client(world, **settings_for(fault))))
        if fault.api == "InitProducerId" and outcome is RAISED:
            world.left = TRIES  # the first requests may come before there is a record that could fail
        raised = until_it_works(lambda: call.run(world, client), heal(world))
        assert world.answered >= 1
        if outcome is RETRIED:
            assert raised == []
        else:
            (error,) = raised
            assert any(isinstance(cause, fault.error) for cause in causes(error))
            assert getattr(error, "topic", None) in ("t", None)
        assert call.others(world, client)
        if call not in READING:
            assert call.run(world, client)  # nothing is left of it


REFUSED = always(p.SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message="no such password"))


@each_row("call", CALLS, ids=str)
def test_a_password_that_is_wrong_for_a_while(secured: World, call: Call) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(secured.errs("SaslAuthenticate", REFUSED, times=TRIES))
        client = stack.enter_context(contextlib.closing(call.client(secured)))
        raised = until_it_works(lambda: call.run(secured, client), heal(secured))
        assert 1 <= len(raised) <= secured.answered  # once per attempt
        assert any(isinstance(cause, errors.SaslAuthentication) for cause in causes(raised[0]))
        assert call.others(secured, client)


WARM = [call for call in CALLS if call.name not in ("iteration", "position", "consumer.partitions_for", "producer.partitions_for", "close")]
"""The others have their answer, or begin from nothing each time; iteration is poll without an end."""


@each_row("call", WARM, ids=str)
def test_a_password_that_is_changed_under_a_running_client(secured: World, call: Call) -> None:
    client = call.client(secured)
    with contextlib.closing(client), contextlib.ExitStack() as cut:
        assert until_it_works(lambda: call.run(secured, client)) == []
        assert call.others(secured, client)
        if isinstance(client, Reading):
            client.got.clear()
            client.consumer.seek_to_beginning()
        # A producer may as well keep its records: while every broker refuses it, their leaders are not known.
        keeps = isinstance(client, KafkaProducer)
        cut.enter_context(secured.errs("SaslAuthenticate", REFUSED, times=3 if keeps else TRIES))
        for api in ("Metadata", "ListOffsets", "Fetch", "Produce", "CreateTopics", "FindCoordinator", "ListGroups"):
            secured.cluster.control(api, lambda _: None if secured.answered else Disconnect())  # whichever connection it takes
            cut.callback(secured.cluster.control, api, None)
        raised = until_it_works(lambda: call.run(secured, client), heal(secured))
        assert (0 if keeps else 1) <= len(raised) <= secured.answered
        assert secured.answered
        assert all(any(isinstance(cause, errors.SaslAuthentication) for cause in causes(error)) for error in raised)
        assert call.others(secured, client)
