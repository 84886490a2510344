"""No request keeps the other clients of a broker waiting: long ones are carried out in slices."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from controlling import create_topic
from long_requests import Names, Shape, build, long_request

from kafkacore import protocol as p
from kafkacore._codec import decode_request_body
from kafkacore.broker import socket_server
from kafkacore.broker.handlers import SERVED
from kafkacore.broker.server import Broker
from kafkacore.broker.slices import Slices
from kafkacore.config import BrokerConfig
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.inside import brokers_of, calls_of, controller_of, slices_of
from tests.kit.wire import Wire

VERSIONS = p.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
MAX_CALLS_PER_TURN = 120_000
"""Calls of functions that one turn of the loop may take: some 100 ms. What a request of 1 MB takes as a whole is up to five million."""
COUNTED_S = 240
"""How long an answer may take on a busy machine while each call is counted."""
CONFIG = BrokerConfig(auto_create_topics_enable=False, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def elements_of(api_key: int, version: int) -> Callable[[bytes], int]:
    plan = p.APIS[api_key].request.plan(version)
    return lambda frame: decode_request_body(plan, memoryview(frame)[4:])[2]


class TurnCounter:
    """How many calls the turns of a broker's loop take: the same on a slow and on a quick machine."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.longest = self.turns = 0
        advance = broker._advance

        def next_turn(selector: Any) -> int:
            self.longest, self.calls, self.turns = max(self.longest, self.calls), 0, self.turns + 1
            return advance(selector)

        monkeypatch.setattr(broker, "_advance", next_turn)
        broker.call(lambda: sys.setprofile(self._count))
        self._broker = broker

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    def stop(self) -> None:
        self._broker.call(lambda: sys.setprofile(None))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(CONFIG) as made:
        made.call(lambda: create_topic(made.state.controller, "t", num_partitions=7))
        with Wire(made.address) as wire:  # the coordinators' topics
            for key_type in (0, 1):
                wire.ask(p.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
        yield made


EACH_RUN = {p.MetadataRequest, p.OffsetFetchRequest, p.CreateAclsRequest}
"""Requests of a megabyte that each run sends; the night sends those of all APIs."""
BY_API = [
    pytest.param(key, id=p.APIS[key].name, marks=() if p.APIS[key].request in EACH_RUN else pytest.mark.night) for key in sorted(SERVED)
]


@pytest.mark.slow
@pytest.mark.parametrize("api_key", BY_API)
def test_no_request_of_a_megabyte_holds_up_others(broker: Broker, monkeypatch: pytest.MonkeyPatch, api_key: int) -> None:
    version = broker.api_versions[api_key][1]
    frames = [
        long_request(api_key, version, shape, names, elements_of(api_key, version))
        for shape, names in ((Shape.OUTER, Names.DIFFERENT), (Shape.INNER, Names.SAME))
    ]
    turns = TurnCounter(broker, monkeypatch)
    with Wire(broker.address, COUNTED_S) as other:
        for frame in frames:
            with Wire(broker.address, COUNTED_S) as wire:
                wire.sock.sendall(frame)
                other.ask(VERSIONS, 3)
                try:
                    wire.receive_frame()
                except (EOFError, ConnectionError):
                    continue  # the request was refused, and its connection closed
        other.ask(VERSIONS, 3)
    turns.stop()
    assert turns.longest < MAX_CALLS_PER_TURN, f"{turns.longest} calls in one turn"


@pytest.mark.parametrize("faults", [False, True], ids=["controller in process", "controller over a connection"])
def test_heartbeats_go_on_between_the_slices(faults: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long request costs the broker neither its session nor its place in the ISR: each slice waits for a heartbeat after the last one."""
    settings = {"broker.heartbeat.interval.ms": 20, "replica.fetch.wait.max.ms": 20}
    with EmbeddedCluster(brokers=2, config=settings, faults=faults) as cluster:
        cluster.create_topic("t", partitions=2)
        before = controller_of(cluster).read(lambda image: [part.partition_epoch for part in image.topics["t"].partitions])
        host, broker = controller_of(cluster), brokers_of(cluster)[1]
        assert isinstance(broker, Broker)
        beaten = threading.Event()
        submit = host.submit

        def counted(request: Any, version: int, *more: Any) -> Any:
            if isinstance(request, p.BrokerHeartbeatRequest) and request.broker_id == 1:
                beaten.set()
            return submit(request, version, *more)

        monkeypatch.setattr(host, "submit", counted)
        slices: Slices = slices_of(broker)
        run, ran = slices.run, []

        def after_a_heartbeat(now_ms: Callable[[], int]) -> None:
            if beaten.is_set():
                beaten.clear()
                ran.append(now_ms())
                run(now_ms)

        broker.call(lambda: setattr(slices, "run", after_a_heartbeat))
        with Wire(broker.address) as wire:
            groups = [f"group {nth}" for nth in range(9_000)]
            assert len(wire.ask(p.DescribeGroupsRequest(groups=groups), 5).groups) == len(groups)
            broker.call(lambda: setattr(slices, "run", run))
            assert len(ran) > 1
        assert controller_of(cluster).read(lambda image: [part.partition_epoch for part in image.topics["t"].partitions]) == before


def test_what_is_pipelined_behind_a_long_request_is_answered_after_it(broker: Broker) -> None:
    names = [f"group {nth}" for nth in range(5_000)]
    long, short = p.DescribeGroupsRequest(groups=names), p.DescribeGroupsRequest(groups=["last"])
    with Wire(broker.address) as wire:
        wire.sock.sendall(wire.frame(long, 5) + wire.frame(VERSIONS, 3) + wire.frame(long, 5) + wire.frame(short, 5))
        kinds = [(p.DescribeGroupsRequest, 5), (p.ApiVersionsRequest, 3), (p.DescribeGroupsRequest, 5), (p.DescribeGroupsRequest, 5)]
        answers = [wire.receive(kind, version) for kind, version in kinds]
    assert [correlation_id for correlation_id, _ in answers] == [1, 2, 3, 4]
    assert [len(answers[nth][1].groups) for nth in (0, 2, 3)] == [5_000, 5_000, 1]


def stopped_after_a_slice(broker: Broker) -> tuple[threading.Event, Callable[[], None]]:
    """Has the loop go through one slice of the next long request and then keep the others back; what lets them go on."""
    begun = threading.Event()
    slices: Slices = slices_of(broker)
    run = slices.run
    kept = []

    def once(now_ms: Callable[[], int]) -> None:
        job = slices.ready[0]
        for _ in range(2):
            assert job.step()
        kept.append(slices.ready.popleft())
        begun.set()

    def go_on() -> None:
        slices.run = run  # type: ignore[method-assign]
        slices.ready.extend(kept)

    broker.call(lambda: setattr(slices, "run", once))
    return begun, lambda: broker.call(go_on)


@pytest.mark.parametrize("dropped", [True, False], ids=["by the broker", "by the client"])
def test_a_connection_that_ends_in_the_middle_leaves_nothing(broker: Broker, dropped: bool, caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = stopped_after_a_slice(broker)
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        other.ask(VERSIONS, 3)
        wire.send(p.DescribeGroupsRequest(groups=["g"] * 5_000), 5)
        assert begun.wait(60)
        if dropped:
            broker.call(lambda: [broker._drop_connection(connection) for connection in list(calls_of(broker))])
            assert wire.closed_by_peer
        wire.sock.close()
        go_on()
        while broker.call(broker.num_connections) > 1:
            other.ask(VERSIONS, 3)
        assert broker.call(lambda: (len(slices_of(broker).ready), len(calls_of(broker)), len(broker.pauses.muted))) == (0, 0, 0)
    assert not caplog.records


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_stops_in_the_middle_of_a_long_request(broker: Broker, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    begun, _ = stopped_after_a_slice(broker)
    with Wire(broker.address) as wire:
        wire.send(p.DescribeGroupsRequest(groups=["g"] * 5_000), 5)
        assert begun.wait(60)
        broker.stop(clean)
        assert wire.closed_by_peer
    broker.start()
    with Wire(broker.address) as wire:
        assert len(wire.ask(p.DescribeGroupsRequest(groups=["g"] * 5_000), 5).groups) == 5_000
    assert not caplog.records


def test_a_long_request_that_fails_in_the_middle_closes_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    describe, asked = broker.state.groups.describe, []

    def fail(version: int, group_id: str, respond: Any) -> None:
        asked.append(group_id)
        if len(asked) == 1_000:
            raise RuntimeError("a bug")
        describe(version, group_id, respond)

    monkeypatch.setattr(broker.state.groups, "describe", fail)
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.send(p.DescribeGroupsRequest(groups=["g"] * 5_000), 5)
        assert wire.closed_by_peer
        other.ask(VERSIONS, 3)
    assert len(asked) == 1_000
    assert [record.getMessage() for record in caplog.records] == ["a request is given up and its connection closed"]


def test_an_item_that_cannot_be_cut_has_a_limit_of_its_own(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    many = [p.AlterableConfig(name=f"x{nth}", value="1") for nth in range(10_001)]
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.send(p.AlterConfigsRequest(resources=[p.AlterConfigsResource(resource_type=2, resource_name="t", configs=many)]), 2)
        assert wire.closed_by_peer
        other.ask(VERSIONS, 3)
    assert "resources.configs: more than 10000 elements in one item" in caplog.records[0].getMessage()


def write_to(partitions: list[int], acks: int, topic: str = "t") -> p.ProduceRequest:
    parts = [p.PartitionProduceData(index=index, records=batch([b"v%d" % nth])) for nth, index in enumerate(partitions)]
    return p.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[p.TopicProduceData(name=topic, partition_data=parts)])


def test_a_long_produce_request_writes_the_last_batch_of_each_partition(broker: Broker) -> None:
    broker.call(lambda: create_topic(broker.state.controller, "wide", num_partitions=250))
    wanted = [*range(250), *range(250)]
    with Wire(broker.address) as wire:
        (topic,) = wire.ask(write_to(wanted, -1, "wide"), 9).responses
        assert [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses] == [(n, 0, 0) for n in range(250)]
        ends = broker.call(lambda: [broker.state.replicas.partition("wide", index).log.end_offset for index in range(250)])
        assert ends == [1] * 250


def test_a_long_produce_request_without_acks_has_no_answer_and_closes_when_it_fails(broker: Broker) -> None:
    broker.call(lambda: create_topic(broker.state.controller, "wide", num_partitions=250))
    with Wire(broker.address) as wire:
        wire.send(write_to([*range(250)], 0, "wide"), 9)
        wire.ask(VERSIONS, 3)  # behind it, and the first to be answered
        assert broker.call(lambda: broker.state.replicas.partition("wide", 249).log.end_offset) == 1
        wire.send(write_to([*range(260)], 0, "wide"), 9)
        assert wire.closed_by_peer


# ---- the answer is that to the whole request


@contextmanager
def cut_small(broker: Broker, elements: int) -> Iterator[None]:
    """Has every request cut that can be, into parts of so few elements."""
    before, smallest = broker.served, socket_server.SMALLEST_PARTS
    socket_server.SMALLEST_PARTS = 0  # type: ignore[attr-defined]
    broker.served = {
        key: served._replace(parts=tuple(parts._replace(elements=elements) for parts in served.parts)) for key, served in before.items()
    }
    yield
    broker.served, socket_server.SMALLEST_PARTS = before, smallest  # type: ignore[attr-defined]


def unordered(value: Any, *, repeated: bool) -> Any:
    """An answer without the order of its lists; with repeated items, whether they are answered together or not, once or twice."""
    if isinstance(value, p.Struct):
        return type(value).__name__, tuple((name, unordered(getattr(value, name), repeated=repeated)) for name in value.FIELDS)
    if isinstance(value, list):
        items = [unordered(each, repeated=repeated) for each in value]
        if repeated:
            together: dict[Any, set[Any]] = {}
            for item in items:
                fields = item[1] if isinstance(item, tuple) else ()
                lists = tuple(field for field in fields if isinstance(field[1], frozenset))
                known = together.setdefault(tuple(field for field in fields if field not in lists) if fields else item, set())
                known.update((name, each) for name, found in lists for each in found)
            return frozenset((key, frozenset(found)) for key, found in together.items())
        return tuple(sorted(items, key=repr))
    return value


LOOSE = {(8, Names.SAME), (27, Names.SAME)}
"""OffsetCommit and WriteTxnMarkers: a topic or partition that is named twice is answered once or twice, as it falls."""
WITH_PARTS = sorted(key for key, served in SERVED.items() if served.parts)


@pytest.mark.parametrize("names", Names, ids=lambda names: names.name)
@pytest.mark.parametrize("shape", Shape, ids=lambda shape: shape.name)
@pytest.mark.parametrize("api_key", WITH_PARTS, ids=lambda key: p.APIS[key].name)
def test_the_answer_to_the_parts_is_that_to_the_whole(broker: Broker, api_key: int, shape: Shape, names: Names) -> None:
    low, high = broker.api_versions[api_key]
    kind = p.APIS[api_key].request
    with Wire(broker.address) as wire:
        for version in range(low, high + 1):
            frame = build(kind, version, 23, shape, names)
            answers = []
            for elements in (1_000, 3, 2):
                with cut_small(broker, elements):
                    wire.sock.sendall(frame)
                    _, answer = wire.receive(kind, version)
                    answers.append(unordered(answer, repeated=(api_key, names) in LOOSE))
            assert answers[1] == answers[0], f"v{version} in parts of 3"
            assert answers[2] == answers[0], f"v{version} in parts of 2"


# ---- fetches


def fetch_of_many(
    partitions: int, session_epoch: int = -1, session_id: int = 0, max_wait_ms: int = 0, topic: str = "wide"
) -> p.FetchRequest:
    wanted = [p.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in range(partitions)]
    topics = [p.FetchTopic(topic=topic, partitions=wanted)] if wanted else []
    return p.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=session_epoch, topics=topics
    )


def test_ten_thousand_partitions_can_be_fetched_and_waited_for(broker: Broker) -> None:
    count = 10_000
    broker.call(lambda: create_topic(broker.state.controller, "wide", num_partitions=count))
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        answer = wire.ask(fetch_of_many(count, session_epoch=0), 12)
        assert [each.partition_index for each in answer.responses[0].partitions] == [*range(count)]
        assert not any(each.error_code for each in answer.responses[0].partitions)
        wire.send(fetch_of_many(0, session_epoch=1, session_id=answer.session_id, max_wait_ms=60_000), 12)
        while not broker.statistics()["waiting_fetches"]:
            other.ask(VERSIONS, 3)
        other.ask(write_to([7_777], 1, "wide"), 9)
        _, answer = wire.receive(p.FetchRequest, 12)
        assert [(each.partition_index, bool(each.records)) for each in answer.responses[0].partitions] == [(7_777, True)]


def test_steps_have_an_end_without_a_clock() -> None:
    class Endless:
        steps = 0
        meter = None

        def step(self) -> bool:
            self.steps += 1
            return True

        def is_completed(self) -> bool:
            return False

        def fail(self) -> None:
            raise AssertionError

    slices, one, two = Slices(), Endless(), Endless()
    slices.add(one)
    slices.add(two)
    for _ in range(3):
        slices.run(lambda: 0)
    assert (one.steps, two.steps) == (2 * 64, 64)
    times = iter(range(100))
    slices.run(lambda: next(times))  # two's turn, for 5 ms
    assert (one.steps, two.steps) == (2 * 64, 64 + 5)
