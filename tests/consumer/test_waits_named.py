"""`health` names every wait of 5 s: whatever stands still, it does not say ok."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore import protocol as p
from kafkacore._codec import FrameReader
from kafkacore.clock import JumpingClock
from kafkacore.consumer.health import ConsumerHealth
from kafkacore.errors import Code
from kafkacore.net.connection import AWAITING_TOKEN, CONNECTING, READY, RESOLVING
from kafkacore.net.waits import Pieces, waits
from kafkacore.testing import Drop, EmbeddedCluster
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata
from tests.kit.inside import connections_of, driver_of, group_of, metadata_of, subscription_of
from tests.kit.waiting import until

WAIT_MS = 6_000


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group_initial_rebalance_delay_ms": 0, "auto_create_topics_enable": False}) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.produce("t", [b"x"] * 20)
        yield cluster


@pytest.fixture
def cluster(shared: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    apis: set[str] = set()
    control = shared.control

    def noted(api: str, fn: Any) -> None:
        apis.add(api)
        control(api, fn)

    shared.control = noted  # type: ignore[method-assign, assignment]
    yield shared
    del shared.control  # type: ignore[method-assign]
    for api in apis:
        shared.control(api, None)
    shared.resume_broker(1)


class Reader:
    """A consumer whose time can be moved."""

    def __init__(self, cluster: EmbeddedCluster, stack: ExitStack, **settings: Any) -> None:
        self.clock = JumpingClock()
        quick = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "fetch_max_wait_ms": 20, "auto_offset_reset": "earliest"}
        self.consumer = KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, clock=self.clock, **{**quick, **settings})
        stack.callback(self.consumer.close, 0)
        self.read = 0

    def poll(self) -> None:
        self.read += sum(map(len, self.consumer.poll(0.01).values()))

    def until(self, done: Callable[[], object]) -> None:
        until(lambda: done() or self.poll(), "what the consumer comes to", every_s=0)

    def reads_all(self, count: int = 20) -> None:
        self.until(lambda: self.read >= count and self.consumer.health().ok)

    def later(self) -> ConsumerHealth:
        """What it says after 6 s in which nothing comes. The first look starts the clocks of what stands still."""
        for _ in range(10):
            self.poll()
        self.consumer.health()
        self.clock.sleep(WAIT_MS)
        for _ in range(3):
            self.poll()
        return self.consumer.health()


def dropped(_: Any) -> Drop:
    return Drop()


GROUPS: dict[str, dict[str, Any]] = {
    "no group": {},
    "classic": {"group_id": "g"},
    "consumer": {"group_id": "g8", "group_protocol": "consumer"},
}


ASKED = [
    *((api, "no group") for api in ("ApiVersions", "Metadata", "ListOffsets", "Fetch")),
    *((api, "classic") for api in ("FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "Fetch")),
    *((api, "consumer") for api in ("FindCoordinator", "ConsumerGroupHeartbeat", "OffsetFetch")),
]


@pytest.mark.parametrize("group", GROUPS)
def test_a_broker_that_hangs(cluster: EmbeddedCluster, group: str) -> None:
    """Everything was read: the lag is 0 as of the last answer."""
    with ExitStack() as stack:
        reader = Reader(cluster, stack, **GROUPS[group])
        reader.reads_all()
        cluster.pause_broker(1)
        health = reader.later()
        assert any("broker 1 (127.0.0.1:" in problem and "has not answered Fetch for " in problem for problem in health.problems)
        cluster.resume_broker(1)
        reader.until(lambda: reader.consumer.health().ok)


@pytest.mark.parametrize(("api", "group"), ASKED)
def test_an_answer_that_does_not_come_from_the_start(cluster: EmbeddedCluster, api: str, group: str) -> None:
    settings = {**GROUPS[group], **({} if group == "no group" else {"group_id": f"{api}-{group}"})}
    with ExitStack() as stack:
        asked: list[Any] = []
        cluster.control(api, lambda request: asked.append(request) or Drop())
        reader = Reader(cluster, stack, **settings)
        reader.until(lambda: asked)
        health = reader.later()
        assert not health.ok
        waits_for = {"JoinGroup": "its join", "SyncGroup": "the assignment", "ConsumerGroupHeartbeat": "its join"}
        assert any(api in problem or waits_for.get(api, api) in problem for problem in health.problems), health.problems
        cluster.control(api, None)


@pytest.mark.parametrize(("api", "group"), [("Heartbeat", "classic"), ("ConsumerGroupHeartbeat", "consumer")])
def test_heartbeats_that_are_not_answered(cluster: EmbeddedCluster, api: str, group: str) -> None:
    with ExitStack() as stack:
        reader = Reader(cluster, stack, **{**GROUPS[group], "group_id": f"beats-{group}"})
        reader.reads_all()
        cluster.control(api, dropped)
        reader.clock.sleep(5_500)  # the next one is due
        health = reader.later()
        assert any(f"has not answered {api} for " in problem for problem in health.problems), health.problems


@pytest.mark.parametrize("code", [Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR])
def test_a_leader_that_refuses_for_ever(cluster: EmbeddedCluster, code: Code) -> None:
    """Errors that may pass are raised nowhere. The partition is at its end, as far as the consumer knows."""
    with ExitStack() as stack:
        reader = Reader(cluster, stack)
        reader.reads_all()

        def refused(request: Any) -> Any:
            partitions = [p.PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"") for index in (0, 1)]
            topic_id = metadata_of(reader.consumer).snapshot.topic_id("t")
            return p.FetchResponse(responses=[p.FetchableTopicResponse(topic="", topic_id=topic_id, partitions=partitions)])

        cluster.control("Fetch", refused)
        for _ in range(8):
            for _ in range(10):
                reader.poll()
            reader.clock.sleep(1_000)
        problems = reader.consumer.health().problems
        assert any(problem.startswith("t-") and "refused by its broker for " in problem and code.name in problem for problem in problems)
        cluster.control("Fetch", None)
        reader.until(lambda: reader.consumer.health().ok)


def test_a_throttle(cluster: EmbeddedCluster) -> None:
    with ExitStack() as stack:
        reader = Reader(cluster, stack)
        reader.reads_all()
        cluster.control("Fetch", lambda _: p.FetchResponse(throttle_time_ms=60_000))
        client, (node,) = driver_of(reader.consumer).client, metadata_of(reader.consumer).snapshot.node_list
        reader.until(lambda: client.throttle_delay_ms(node, reader.clock.now_ms()))
        assert any("throttles this client for another " in problem for problem in reader.later().problems)


@pytest.mark.parametrize("group", ["classic", "consumer"])
def test_offsets_of_an_open_transaction(cluster: EmbeddedCluster, group: str) -> None:
    """KIP-447: the position of a partition waits for the end of the transaction, which is named. The other partitions are read."""
    name, (waits_, goes_on) = f"open {group}", (TopicPartition("t", 0), TopicPartition("t", 1))
    with ExitStack() as stack:
        writer = stack.enter_context(KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name))
        writer.init_transactions()
        writer.begin_transaction()
        writer.send_offsets_to_transaction({waits_: OffsetAndMetadata(0)}, ConsumerGroupMetadata(name))
        reader = Reader(cluster, stack, **{**GROUPS[group], "group_id": name})
        consumer = reader.consumer
        end = cluster.high_watermark("t", 1)
        reader.until(lambda: goes_on in consumer.assignment() and consumer.position(goes_on) == end)
        health = reader.later()
        assert health.stalled == (waits_,)
        problems = [problem for problem in health.problems if problem.startswith("t-")]  # a slow broker may be named, too
        assert len(problems) == 1 and problems[0].startswith("t-0 has been initializing for ") and "UNSTABLE_OFFSET_COMMIT" in problems[0]
        with pytest.raises(errors.KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            consumer.position(waits_, timeout=0)
        writer.commit_transaction()
        reader.until(lambda: consumer.position(waits_) == cluster.high_watermark("t", 0) and consumer.health().ok)


def test_an_open_transaction_at_the_first_look(cluster: EmbeddedCluster) -> None:
    """Of a program that asks when it has read nothing for a while; records in between, and a look before it, start the time again."""
    cluster.create_topic("first-look", partitions=1)
    with ExitStack() as stack, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="y") as producer:
        reader = Reader(cluster, stack, isolation_level="read_committed")
        consumer, state = reader.consumer, subscription_of(reader.consumer)
        consumer.subscribe(["first-look"])
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            producer.send("first-look", b"whole").result()
            producer.commit_transaction()
            producer.begin_transaction()
            for _ in range(2):
                producer.send("first-look", b"open").result()
            before = reader.read
            reader.until(lambda read=before: reader.read > read)
            tp = next(iter(state.partitions))
            reader.until(lambda tp=tp: state.partitions[tp].high_watermark > state.partitions[tp].last_stable_offset >= 0)
            reader.poll()
            reader.clock.sleep(WAIT_MS)
            reader.poll()
            health = consumer.health()
            [held], [problem] = health.held_back, [each for each in health.problems if "transaction" in each]
            assert problem == (
                f"first-look-0: an open transaction has held readers of committed data back at offset {held.offset} for 6 s,"
                f" {held.behind} offsets before the end; `kafkacore transactions open first-look` says whose"
            )
            assert health.stalled == ()
            producer.abort_transaction()
        reader.clock.sleep(WAIT_MS)
        reader.poll()
        reader.until(lambda: consumer.health().ok)
        producer.begin_transaction()
        producer.send("first-look", b"open").result()
        reader.until(lambda: consumer.health().held_back)
        assert consumer.health().ok, "a look just before it has seen nothing held back"
        producer.abort_transaction()


def test_a_commit_before_a_rebalance(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """An operator sees it, and the log says it once."""
    with ExitStack() as stack:
        first, second = (Reader(cluster, stack, group_id="commits", heartbeat_interval_ms=100) for _ in range(2))
        first.reads_all()
        cluster.control("OffsetCommit", dropped)

        def both() -> bool:
            second.poll()
            group = group_of(first.consumer)
            return group is not None and group.gives_up

        first.until(both)
        problems = first.later().problems
        assert any("it waits for the commit before giving up partitions (" in problem for problem in problems), problems
        assert "the commit before giving up partitions" in first.consumer.health().member.waits_for
        said = "poll() hands out nothing, it waits for the commit before giving up partitions"
        first.until(lambda: said in caplog.text)  # by the poll that comes to 2 s, which may be the next one
        first.poll()
        assert caplog.text.count(said) == 1


def test_many_absent_partitions_are_one_sentence(cluster: EmbeddedCluster) -> None:
    with ExitStack() as stack:
        reader = Reader(cluster, stack)
        reader.consumer.unsubscribe()
        reader.consumer.assign([("t", index) for index in range(5_000)])
        reader.until(lambda: reader.consumer.health().problems)
        assert reader.consumer.health().problems == ("t-2 and 4,997 partitions more do not exist: topic t has 2 partitions",)


def test_a_program_that_does_not_take_its_records_is_at_work(cluster: EmbeddedCluster) -> None:
    """For 30 s. The answer is taken in by the look itself: the broker is not accused."""
    with ExitStack() as stack:
        reader = Reader(cluster, stack, max_poll_records=1)
        reader.until(lambda: reader.read)
        client = driver_of(reader.consumer).client
        while client.in_flight.count:
            client.poll(10, reader.clock.now_ms())
        reader.consumer.health()
        reader.clock.sleep(WAIT_MS)
        assert reader.consumer.health().problems == ()
        reader.clock.sleep(30_000)
        assert "has not moved" in reader.consumer.health().problems[0]


def test_a_large_answer_of_which_no_more_comes() -> None:
    frame = (100_000).to_bytes(4, "big") + bytes(100_000)
    reader, sent = FrameReader(), iter([70_000, 20_000, 0, 0])

    def poll(timeout_ms: int, now_ms: int) -> None:
        left = next(sent)
        while left:
            buffer, at, size = reader.target()
            count = min(left, size)
            memoryview(buffer)[at : at + count] = frame[:count]
            reader.received(count)
            reader.next_frame()
            left -= count

    request = SimpleNamespace(sent_ms=0, api=p.FetchRequest)
    oldest = SimpleNamespace(oldest=lambda node_id: request)
    connections = {1: SimpleNamespace(throttled_until_ms=0)}
    client: Any = SimpleNamespace(
        poll=poll,
        selector=SimpleNamespace(channels={1: SimpleNamespace(reader=reader)}),
        in_flight=oldest,
        _connections=connections,
        metadata=SimpleNamespace(snapshot=SimpleNamespace(nodes={})),
    )
    pieces = Pieces()
    assert [waits(client, at, {}, pieces.take_in(client, at)) for at in (6_000, 12_000, 16_000, 18_000)] == [
        [],
        [],
        [],
        ["broker 1 has not answered Fetch for 6 s"],
    ]


def test_connections_that_are_being_set_up(cluster: EmbeddedCluster) -> None:
    with ExitStack() as stack:
        reader = Reader(cluster, stack)
        reader.reads_all()
        client, now_ms = driver_of(reader.consumer).client, reader.clock.now_ms()
        connection = connections_of(client)[1]
        said = {AWAITING_TOKEN: "credentials for it", RESOLVING: "its name has been looked up", CONNECTING: "it has been connected to"}
        reader.consumer.unsubscribe()
        while client.in_flight.oldest(1) is not None:
            client.poll(10, reader.clock.now_ms())
        for state, text in said.items():
            connection.state, connection.last_attempt_ms = state, now_ms
            assert waits(client, now_ms + 4_999, {}) == []
            (problem,) = waits(client, now_ms + 7_000, {})
            assert text in problem
            assert problem.endswith(" for 7 s")
        connection.state = READY
