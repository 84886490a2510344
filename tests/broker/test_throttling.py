"""Brokers that obey quotas: throttle times in answers, connections that are not read, empty fetches, refused partitions. Time by hand."""

import contextlib
import select
import socket
import struct
from types import SimpleNamespace

import pytest

from kafkacore import protocol as p
from kafkacore.broker.controller.envelope import answer_in, answer_of, unwrapped, wrapped
from kafkacore.broker.controller.state import Requester
from kafkacore.broker.quotas import CONNECTIONS, FETCH, MUTATION, PRODUCE, REQUEST
from kafkacore.broker.server import Broker
from kafkacore.broker.sessions import FetchSessionCache
from kafkacore.broker.throttling import Metered, Throttling, is_measured
from kafkacore.clock import JumpingClock, ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.config_security import sasl_listener
from kafkacore.errors import Code, CorruptDataError, KafkaError
from kafkacore.net.sasl import PlainClient
from kafkacore.testing import Delay, EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.inside import brokers_of, kept_of, samples_of
from tests.kit.rows import each_row
from tests.kit.wire import Wire, produce_request

VERSIONS = p.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
KIND = {"client": "client-id", "user": "user", "ip": "ip"}


class NamedWire(Wire):
    """A connection with a client id."""

    def __init__(self, address, client_id="c"):
        super().__init__(address)
        self.client_id = client_id

    def frame(self, request, version):
        self.correlation_id += 1
        return b"".join(bytes(part) for part in p.encode_request(request, version, self.correlation_id, self.client_id))

    @property
    def is_silent(self):
        return select.select([self.sock], [], [], 0)[0] == []


class StillClock(JumpingClock):
    """Time that only sleeps move: what a bucket holds does not depend on how busy the machine is."""

    def __init__(self):
        super().__init__()
        self._system = ManualClock(wall_ms=1_800_000_000_000)


class ThrottledBroker:
    """A broker whose time stands still until a test moves it; with a `JumpingClock` a request takes its time."""

    def __init__(self, clock=None, **settings):
        self.clock = clock or StillClock()
        settings = {"auto.create.topics.enable": "false", "connections.max.idle.ms": "-1", "log.retention.ms": "-1", **settings}
        self.broker = Broker(BrokerConfig.from_user(settings), clock=self.clock)

    def __enter__(self):
        self.broker.start()
        return self

    def __exit__(self, *exc):
        self.broker.stop()

    def client(self, client_id="c"):
        return NamedWire(self.broker.address, client_id)

    def alter(self, entity, **values):
        """entity: client=..., user=..., ip=... by name; None is the default. A value of None removes the quota."""
        ops = [p.ClientQuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
        parts = [p.ClientQuotaEntityPart(entity_type=KIND[kind], entity_name=name) for kind, name in entity.items()]
        request = p.AlterClientQuotasRequest(entries=[p.ClientQuotaAlteration(entity=parts, ops=ops)], validate_only=False)
        answers = []
        self.broker.call(lambda: self.broker.state.controller.submit(request, 1, answers.append))
        assert [each.error_code for each in answers[0].entries] == [0]

    def create(self, name="t", partitions=1):
        answers = []
        topic = p.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = p.CreateTopicsRequest(topics=[topic])
        self.broker.call(lambda: self.broker.state.controller.submit(request, 7, answers.append))
        while not answers:
            self.broker.call(lambda: None)

    def sleep(self, ms):
        self.broker.call(lambda: None)  # who has read an answer comes before its connection is muted, on a busy machine
        self.clock.sleep(ms)
        self.broker.call(lambda: None)


@pytest.fixture
def stage():
    with ThrottledBroker() as made:
        made.create()
        yield made


@pytest.fixture
def running():
    """A stage on which time passes, so that requests take some."""
    with ThrottledBroker(JumpingClock()) as made:
        made.create()
        yield made


def write_bytes(wire, nbytes, acks=-1):
    return wire.ask(produce_request(batch([bytes(nbytes)]), acks=acks), 9)


def fetch_one(offset=0, session=(0, -1), wait_ms=0, replica_id=-1, partitions=(0,), max_bytes=64 << 20, forget=()):
    wanted = [p.FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=64 << 20) for each in partitions]
    return p.FetchRequest(
        replica_id=replica_id,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[p.FetchTopic(topic="t", partitions=wanted)] if wanted else [],
    )


# ---- produce


def test_who_writes_too_much_is_told_and_not_read_for_so_long(stage):
    stage.alter({"client": "c"}, producer_byte_rate=1_000.0)
    with stage.client() as wire, stage.client("other") as other:
        assert write_bytes(wire, 5_000).throttle_time_ms == 0
        answer = write_bytes(wire, 10_000)
        assert answer.responses[0].partition_responses[0].error_code == 0  # it is written
        assert 4_000 <= answer.throttle_time_ms <= 5_700
        wire.send(VERSIONS, 3)
        for _ in range(20):
            assert write_bytes(other, 20_000).throttle_time_ms == 0
        assert wire.is_silent
        stage.sleep(answer.throttle_time_ms // 2)
        other.ask(VERSIONS, 3)
        assert wire.is_silent
        stage.sleep(answer.throttle_time_ms)
        assert wire.receive(type(VERSIONS), 3)[1].throttle_time_ms == 0
        statistics = stage.broker.statistics()
        assert (statistics["throttled_requests"], statistics["throttled_ms"], statistics["throttled_connections"]) == (
            1,
            answer.throttle_time_ms,
            0,
        )


def test_the_size_of_the_request_counts(stage):
    stage.alter({"client": "c"}, producer_byte_rate=1_000.0)
    request = produce_request(batch([bytes(20_000)]))
    with stage.client() as wire:
        nbytes = len(wire.frame(request, 9)) - 4
        wait_ms = wire.ask(request, 9).throttle_time_ms
        assert wait_ms == (nbytes / 10 - 1_000) / 1_000 * 10_000 // 1


def test_writers_that_want_no_answer_are_not_read_and_their_time_is_nobodys(running):
    running.alter({"client": "c"}, producer_byte_rate=1_000.0, request_percentage=0.000001)
    with running.client() as wire:
        for count in (1, 1, 20_000):
            before = running.broker.statistics()["log_bytes"]
            wire.send(produce_request(batch([bytes(count)]), acks=0), 9)
            while running.broker.statistics()["log_bytes"] == before:
                pass
        wire.send(VERSIONS, 3)
        while not running.broker.statistics()["throttled_connections"]:
            pass
        assert wire.is_silent and set(running.broker.state.quotas.throttled) == {"producer_byte_rate"}
        assert used(running, running.broker.state.quotas.request) == 0
        running.sleep(20_000)
        wire.receive(type(VERSIONS), 3)


# ---- fetch


def test_who_reads_too_much_gets_nothing_and_the_same_later(stage):
    stage.alter({"client": "c"}, consumer_byte_rate=2_000.0)
    with stage.client("other") as wire:
        for _ in range(4):
            write_bytes(wire, 15_000)
    with stage.client() as wire:
        first = wire.ask(fetch_one(), 12)  # at most what ten windows allow
        assert first.throttle_time_ms == 0 and 15_000 < len(first.responses[0].partitions[0].records) < 20_000
        for _ in range(2):
            second = wire.ask(fetch_one(1), 12)
            if not second.throttle_time_ms:
                continue
            assert second.responses == [] and second.session_id == 0 and second.error_code == 0
            assert used(stage, stage.broker.state.quotas.fetch) < 20_000  # the first one alone: what was not sent does not count
            stage.sleep(second.throttle_time_ms)
        stage.sleep(12_000)
        again = wire.ask(fetch_one(1), 12)
        assert again.throttle_time_ms == 0 and len(again.responses[0].partitions[0].records) > 15_000
    assert stage.broker.state.quotas.throttled["consumer_byte_rate"][0] >= 1


def test_the_size_of_the_answer_counts_without_its_header(stage):
    stage.alter({"client": "c"}, consumer_byte_rate=1_000_000.0)
    with stage.client() as wire:
        for version, header in ((11, 4), (12, 5)):
            before = used(stage, stage.broker.state.quotas.fetch)
            wire.send(fetch_one(), version)
            nbytes = 4 + len(wire.receive_frame())
            assert used(stage, stage.broker.state.quotas.fetch) - before == nbytes - header


def throttled_fetch(stage, wire, request):
    """Asks until it is throttled; other requests of the client used the quota up."""
    stage.broker.call(lambda: stage.broker.state.quotas.fetch.record("ANONYMOUS", "c", 10**8, stage.clock.now_ms()))
    answer = wire.ask(request, 12)
    assert answer.throttle_time_ms > 0 and answer.responses == []
    stage.sleep(10**6)
    return answer


def test_a_session_loses_nothing_by_an_answer_that_was_not_sent(stage):
    stage.alter({"client": "c"}, consumer_byte_rate=1_000_000.0)
    with stage.client() as wire, stage.client("other") as writer:
        refused = throttled_fetch(stage, wire, fetch_one(session=(0, 0)))
        assert refused.session_id == 0 and stage.broker.statistics()["fetch_sessions"] == 0
        opened = wire.ask(fetch_one(session=(0, 0)), 12)
        assert opened.session_id and opened.responses[0].partitions[0].high_watermark == 0
        write_bytes(writer, 5)
        session = opened.session_id
        refused = throttled_fetch(stage, wire, fetch_one(session=(session, 1), partitions=()))
        assert refused.session_id == session
        answer = wire.ask(fetch_one(session=(session, 2), partitions=()), 12).responses[0].partitions[0]
        assert (answer.high_watermark, len(answer.records) > 0) == (1, True)
        assert wire.ask(fetch_one(1, session=(session, 3)), 12).responses == []  # it knows all
        # A high watermark alone is news, too, that must not be lost.
        write_bytes(writer, 5)
        throttled_fetch(stage, wire, fetch_one(2, session=(session, 4)))
        answer = wire.ask(fetch_one(2, session=(session, 5)), 12).responses[0].partitions[0]
        assert (answer.high_watermark, len(answer.records)) == (2, 0)
        assert wire.ask(fetch_one(session=(session, 6), partitions=()), 12).responses == []


def test_a_fetch_that_waited_is_throttled_when_it_is_answered_and_its_wait_is_no_work(running):
    running.alter({"client": "c"}, consumer_byte_rate=1_000_000.0, request_percentage=100.0)
    quotas = running.broker.state.quotas
    with running.client() as wire, running.client("other") as writer:
        for refused in (False, True):
            wire.send(fetch_one(wait_ms=20_000), 12)
            while not running.broker.statistics()["waiting_fetches"]:
                pass
            if refused:
                running.broker.call(lambda: quotas.fetch.record("ANONYMOUS", "c", 10**8, running.clock.now_ms()))
                write_bytes(writer, 5)
            else:
                running.sleep(20_000)
            answer = wire.receive(p.FetchRequest, 12)[1]
            assert (answer.throttle_time_ms > 0) == (answer.responses == []) == refused
            assert 0 < used(running, quotas.request) < 1_000  # percent of a second: less than the twenty that it waited


def test_followers_are_not_throttled(stage):
    stage.alter({"client": None}, consumer_byte_rate=1.0, request_percentage=0.000001)
    with stage.client() as wire:
        for _ in range(3):
            assert wire.ask(fetch_one(replica_id=2), 12).throttle_time_ms == 0


@each_row("replica_id", [-1, 0, 1])
def test_the_requests_of_brokers_are_not_measured(replica_id):
    for version in (12, 14):
        assert is_measured(fetch_one(replica_id=replica_id), version) == (replica_id < 0)
    assert is_measured(p.FetchRequest(replica_state=p.ReplicaState(replica_id=replica_id)), 15) == (replica_id < 0)
    assert is_measured(p.OffsetForLeaderEpochRequest(replica_id=replica_id), 4) == (replica_id < 0)
    assert not is_measured(p.WriteTxnMarkersRequest(), 1)


# ---- the brokers' time


THROTTLED = [
    (p.MetadataRequest(topics=None), 12),
    (p.ApiVersionsRequest(client_software_name="w", client_software_version="1"), 4),
    (p.OffsetCommitRequest(group_id="g", topics=[]), 8),
    (p.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4),
    (p.DescribeGroupsRequest(groups=["g"]), 5),
    (p.CreateTopicsRequest(topics=[]), 7),
    (p.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4),
]


def test_requests_count_with_the_time_they_take_and_wait_a_window_at_most(running):
    running.alter({"client": "c"}, request_percentage=0.000001)
    with running.client() as wire:
        for request, version in THROTTLED:
            assert wire.ask(request, version).throttle_time_ms == 1_000, request
            running.sleep(1_000)
        assert write_bytes(wire, 1).throttle_time_ms == 1_000
        running.sleep(1_000)
        answer = wire.ask(fetch_one(), 12)
        assert (answer.throttle_time_ms, answer.responses) == (1_000, [])
        running.sleep(1_000)
        wire.ask(p.MetadataRequest(topics=None), 2)  # its answer has no throttle time, and the client waits all the same
        wire.send(VERSIONS, 3)
        assert running.broker.statistics()["throttled_connections"] == 1 and wire.is_silent
        running.sleep(1_000)
        wire.receive(type(VERSIONS), 3)
    assert set(running.broker.state.quotas.throttled) == {"request_percentage"}
    running.alter({"client": "c"}, request_percentage=10_000.0)
    with running.client() as wire:
        assert wire.ask(*THROTTLED[0]).throttle_time_ms == 0


def counted(quota):
    """By all clients together."""
    return sum(each[2] for use in kept_of(quota.uses).values() for each in samples_of(use))


def used(stage, quota):
    return stage.broker.call(lambda: counted(quota))


def obeyed(**quotas):
    """Quotas of one client without a broker."""
    made = Throttling(BrokerConfig(), FetchSessionCache(0))
    entity = frozenset({(KIND["ip" if CONNECTIONS in quotas else "client"], None)})
    made.image_changed(SimpleNamespace(quotas={entity}, image=SimpleNamespace(client_quotas={entity: quotas})))
    return made


@each_row("kind, is_active", [*((each, True) for each in (PRODUCE, FETCH, REQUEST, MUTATION)), (CONNECTIONS, False)])
def test_every_quota_of_clients_has_requests_measured(kind, is_active):
    made = obeyed(**{kind: 1.0})
    assert (made.is_active, bool(made.connections)) == (is_active, not is_active)


def test_a_request_counts_with_what_the_thread_does_for_it_and_with_nothing_else():
    clock, quotas, answers, waits = ManualClock(), obeyed(request_percentage=1.95), [], []
    metered = Metered(quotas, VERSIONS, 3, "u", "c", 100, clock, answers.append, waits.append)
    clock.advance(20)
    metered.pause()
    assert counted(quotas.request) == 0  # before there is an answer
    clock.advance(1_000)  # it waits
    metered.resume()
    clock.advance(180)
    metered.respond(p.ApiVersionsResponse())
    assert ([each.throttle_time_ms for each in answers], waits, counted(quotas.request)) == ([256], [256], 20)
    clock.advance(5)
    metered.pause()  # what came after the answer
    assert counted(quotas.request) == 20.5
    late = Metered(quotas, VERSIONS, 3, "u", "c", 100, clock, answers.append, waits.append)
    late.respond(None)  # no answer to say it in
    late.pause()
    assert (answers[1], len(waits), counted(quotas.request), quotas.throttled) == (None, 2, 20.5, {REQUEST: (2, 256 + waits[1])})


def test_a_write_without_an_answer_costs_its_bytes_alone():
    clock, quotas, waits = ManualClock(), obeyed(request_percentage=1.0, producer_byte_rate=1_000.0), []
    for acks, costs in ((0, 0), (1, 3)):
        request = produce_request(batch(), acks=acks)
        metered = Metered(quotas, request, 9, "u", "c", 5_250, clock, lambda response: None, waits.append)
        clock.advance(20)
        metered.respond(None if acks == 0 else p.ProduceResponse())
        clock.advance(10)
        metered.pause()
        assert counted(quotas.request) == costs
    assert waits == [500 - 30]


@pytest.mark.parametrize("percent, waits", [(10.0, [0, 0, 1_000]), (20.0, [0, 0, 0])])
def test_the_unit_is_percent_of_the_thread(stage, percent, waits):
    """Each request takes half a second: three of them are 15 percent of the ten seconds that count."""
    stage.alter({"client": "c"}, request_percentage=percent)
    stage.broker.control(18, lambda request: stage.clock.sleep(500))
    with stage.client() as wire:
        assert [wire.ask(VERSIONS, 3).throttle_time_ms for _ in range(3)] == waits
    assert used(stage, stage.broker.state.quotas.request) == 150


def test_every_part_of_a_long_request_counts(stage):
    stage.alter({"client": "c"}, request_percentage=9.0)
    broker, served = stage.broker, stage.broker.served[15]

    def slow(state, call, request):
        stage.clock.sleep(100)
        return served.handler(state, call, request)

    broker.served = {**broker.served, 15: served._replace(handler=slow)}
    with stage.client() as wire:
        answer = wire.ask(p.DescribeGroupsRequest(groups=[f"g{nth}" for nth in range(1_000)]), 5)
        assert len(answer.groups) == 1_000 and answer.throttle_time_ms == 1_000  # ten parts, 100 percent of a second
        assert 100 <= used(stage, broker.state.quotas.request) < 1_000


# ---- alterations


def test_a_quota_is_obeyed_at_once_and_its_end_too(stage):
    broker = stage.broker
    assert broker.throttling is None
    with stage.client() as wire:
        assert write_bytes(wire, 50_000).throttle_time_ms == 0
        stage.alter({"client": "c"}, producer_byte_rate=1_000.0)
        assert broker.throttling is not None
        wait_ms = write_bytes(wire, 50_000).throttle_time_ms
        assert wait_ms > 30_000
        stage.sleep(wait_ms)
        stage.alter({"client": "c"}, producer_byte_rate=1_000_000.0)
        assert write_bytes(wire, 50_000).throttle_time_ms == 0
        stage.alter({"client": "c"}, producer_byte_rate=None)
        assert broker.throttling is None
        assert write_bytes(wire, 50_000).throttle_time_ms == 0
        stage.alter({"client": "c"}, producer_byte_rate=1_000.0)
        assert write_bytes(wire, 50_000).throttle_time_ms > 30_000
        broker.stop()  # while the connection waits
        broker.start()
        assert broker.call(lambda: (len(broker.pauses.throttled), len(broker.pauses.muted))) == (0, 0)
    with stage.client() as wire:
        assert write_bytes(wire, 50_000).throttle_time_ms > 30_000


# ---- who


def test_users_have_quotas():
    listener = sasl_listener({"broker": "b", "alice": "a", "bob": "b"})
    with ThrottledBroker(**listener) as stage:
        stage.create()
        stage.alter({"user": "alice"}, producer_byte_rate=1_000.0)
        stage.alter({"user": "alice", "client": "fast"}, producer_byte_rate=10_000_000.0)
        for user, client_id, is_throttled in (("alice", "c", True), ("alice", "fast", False), ("bob", "c", False)):
            with stage.client(client_id) as wire:
                wire.log_in(PlainClient(user, user[0]))
                assert (write_bytes(wire, 50_000).throttle_time_ms > 0) == is_throttled


def test_strangers_use_nobodys_quota():
    """Before a connection has a user it may ask for ApiVersions, by any client id. Kafka does not count that."""
    with ThrottledBroker(JumpingClock(), **sasl_listener({"broker": "b", "alice": "a"})) as stage:
        stage.alter({"client": "c"}, request_percentage=0.0001)
        with stage.client() as stranger, stage.client() as wire:
            assert stranger.ask(VERSIONS, 3).throttle_time_ms == 0
            assert not stage.broker.state.quotas.request.uses and not stage.broker.statistics()["throttled_connections"]
            stranger.send(VERSIONS, 3)  # its connection is read on
            assert stranger.receive(p.ApiVersionsRequest, 3)[1].throttle_time_ms == 0
            wire.log_in(PlainClient("alice", "a"))
            assert wire.ask(VERSIONS, 3).throttle_time_ms > 0


# ---- the controller


def make_topics_by(wire, *counts, version=7, prefix="m", validate_only=False):
    topics = [p.CreatableTopic(name=f"{prefix}{nth}", num_partitions=count, replication_factor=1) for nth, count in enumerate(counts)]
    return wire.ask(p.CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only), version)


def test_partitions_beyond_the_rate_are_refused(stage):
    stage.alter({"client": "c"}, controller_mutation_rate=1.0)
    with stage.client() as wire, stage.client("other") as other:
        answer = make_topics_by(wire, 20, 1, 1)  # the burst are 11: the first request takes all of its first topic
        assert [each.error_code for each in answer.topics] == [0, Code.THROTTLING_QUOTA_EXCEEDED, Code.THROTTLING_QUOTA_EXCEEDED]
        assert answer.topics[1].error_message is None
        assert answer.throttle_time_ms == 9_000
        assert make_topics_by(other, 50, prefix="o").throttle_time_ms == 0
        wire.send(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name="m0")], timeout_ms=10_000), 6)
        other.ask(VERSIONS, 3)
        assert stage.broker.statistics()["throttled_connections"] == 1 and wire.is_silent
        stage.sleep(answer.throttle_time_ms)
        assert wire.receive(p.DeleteTopicsRequest, 6)[1].responses[0].error_code == 0
        grown = p.CreatePartitionsTopic(name="o0", count=60, assignments=None)
        answer = wire.ask(p.CreatePartitionsRequest(topics=[grown], timeout_ms=10_000), 3)
        assert answer.results[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED and answer.throttle_time_ms > 15_000
        stage.sleep(answer.throttle_time_ms + 11_000)
        answer = wire.ask(p.CreatePartitionsRequest(topics=[grown], timeout_ms=10_000), 3)
        assert (answer.results[0].error_code, answer.throttle_time_ms) == (0, 0)
        stage.sleep(60_000)
        answer = make_topics_by(wire, 20, 1, version=5, prefix="old")  # old clients get their topics, and wait afterwards
        assert [each.error_code for each in answer.topics] == [0, 0]
        assert answer.throttle_time_ms == 10_000
        stage.sleep(answer.throttle_time_ms)
        answer = wire.ask(p.DeleteTopicsRequest(topic_names=["old0"], timeout_ms=10_000), 4)
        assert (answer.responses[0].error_code, answer.throttle_time_ms) == (0, 20_000)


def test_a_long_request_has_one_throttle_time(stage):
    """Of its parts, each of which the controller answers."""
    stage.alter({"client": "c"}, controller_mutation_rate=0.1)
    with stage.client() as wire:
        answer = make_topics_by(wire, *[1] * 200)
        codes = [each.error_code for each in answer.topics]
        assert codes[:2] == [0, 0] and set(codes[2:]) == {Code.THROTTLING_QUOTA_EXCEEDED} and len(codes) == 200
        assert 5_000 < answer.throttle_time_ms <= 10_000
        stage.sleep(answer.throttle_time_ms)
        answer = make_topics_by(wire, *[1] * 200, version=5)
        assert {each.error_code for each in answer.topics} == {0, Code.TOPIC_ALREADY_EXISTS} and answer.throttle_time_ms > 1_000_000


def test_what_is_refused_for_another_reason_does_not_count(stage):
    stage.alter({"client": "c"}, controller_mutation_rate=1.0)
    with stage.client() as wire:
        for _ in range(3):
            topics = [p.CreatableTopic(name="..", num_partitions=50, replication_factor=1)]
            topics += [p.CreatableTopic(name="t", num_partitions=50, replication_factor=1)]
            answer = wire.ask(p.CreateTopicsRequest(topics=topics), 7)
            assert answer.throttle_time_ms == 0
            assert [each.error_code for each in answer.topics] == [Code.INVALID_TOPIC_EXCEPTION, Code.TOPIC_ALREADY_EXISTS]
        assert make_topics_by(wire, 5, validate_only=True).topics[0].error_code == 0
        assert make_topics_by(wire, 10).topics[0].error_code == 0  # what was only looked at counted, as in Kafka
        assert make_topics_by(wire, 1, prefix="n").topics[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED


def test_topics_that_are_made_by_asking_for_them_count():
    with ThrottledBroker(**{"auto.create.topics.enable": "true", "num.partitions": "20"}) as stage:
        stage.alter({"client": "c"}, controller_mutation_rate=1.0)
        with stage.client() as wire:

            def ask(name):
                topics = [p.MetadataRequestTopic(name=name)]
                return wire.ask(p.MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12).topics[0].error_code

            assert [ask("a"), ask("b"), ask("b")] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_OR_PARTITION]
            stage.sleep(10_000)
            assert ask("b") == 0


@pytest.mark.parametrize("faults", [False, True], ids=["in one process", "over connections"])
def test_brokers_count_together_what_the_controller_does(faults):
    with EmbeddedCluster(brokers=2, faults=faults) as cluster:
        parts = [p.ClientQuotaEntityPart(entity_type="client-id", entity_name="c")]
        ops = [p.ClientQuotaOp(key="controller_mutation_rate", value=0.01, remove=False)]
        cluster._submit(p.AlterClientQuotasRequest(entries=[p.ClientQuotaAlteration(entity=parts, ops=ops)], validate_only=False))
        first, second = (brokers_of(cluster)[node].address for node in (1, 2))
        with NamedWire(first) as one, NamedWire(second) as two, NamedWire(first, "d") as d:
            assert make_topics_by(one, 3, prefix="a").topics[0].error_code == 0
            answer = make_topics_by(two, 3, prefix="b")
            assert answer.topics[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED
            assert 280_000 < answer.throttle_time_ms < 300_000  # 2.89 tokens of debt, at one in 100 s
            assert make_topics_by(d, 3, prefix="d").topics[0].error_code == 0
        assert sorted(cluster.topics()) == ["a0", "d0"]


@each_row("data", [b"", b"\x00" * 3, b"\xff" * 40, b"\x00\x13\x00\x07" + b"\xff" * 20])
@each_row("principal", [None, b"", b"\x00\x01", b"\x00\x00\xff\xff"])
def test_envelopes(data, principal):
    request = p.CreateTopicsRequest(topics=[p.CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    who = Requester("al=ice\n", "c,ü")
    envelope = wrapped(request, 7, who)
    sent = p.EnvelopeRequest.decode(0, b"".join(bytes(part) for part in envelope.encode(0)))
    assert unwrapped(sent, 1_000) == (request, 7, 0, who)
    answer = p.CreateTopicsResponse(throttle_time_ms=5, topics=[])
    back = p.EnvelopeResponse.decode(0, b"".join(bytes(part) for part in answer_in(answer, 7, 0).encode(0)))
    assert answer_of(back, request, 7) == answer
    with pytest.raises(KafkaError):
        unwrapped(sent._replace(request_data=data), 1_000)
    with pytest.raises(CorruptDataError):
        unwrapped(sent._replace(request_principal=principal), 1_000)


# ---- connections


def test_addresses_that_connect_too_fast_are_kept_waiting_and_closed(stage):
    stage.alter({"ip": "127.0.0.1"}, connection_creation_rate=1.0)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(stage.client()) for _ in range(10)]
        for wire in wires:
            wire.ask(VERSIONS, 3)
        late = stack.enter_context(stage.client())
        late.send(VERSIONS, 3)
        while not stage.broker.statistics()["throttled_connections"]:
            pass
        for wire in wires:
            wire.ask(VERSIONS, 3)
        assert late.is_silent and stage.broker.call(lambda: len(stage.broker.pauses.silenced)) == 1  # whatever else it sends
        stage.sleep(1_000)
        assert late.closed_by_peer
        stage.sleep(20_000)
        stack.enter_context(stage.client()).ask(VERSIONS, 3)
        stage.alter({"ip": "127.0.0.1"}, connection_creation_rate=None)
        for _ in range(30):
            stack.enter_context(stage.client()).ask(VERSIONS, 3)
        assert stage.broker.throttling is None


# ---- peers that hang up while they are throttled


def connections_after(stage, other):
    """How many connections the broker sees, once it has had time to see that one is gone; its clock stands still."""
    for _ in range(200):
        other.ask(VERSIONS, 3)
        if stage.broker.call(stage.broker.num_connections) == 1:
            break
    return stage.broker.call(stage.broker.num_connections)


@pytest.mark.parametrize("sends", [False, True])
def test_a_throttled_client_that_hangs_up_is_noticed_at_once_unless_it_has_sent_more(stage, sends):
    stage.alter({"client": "c"}, producer_byte_rate=1_000.0)
    with stage.client("other") as other:
        wire = stage.client()
        assert write_bytes(wire, 60_000).throttle_time_ms > 40_000
        if sends:
            wire.send(produce_request(batch([b"last"]), acks=0), 9)
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", int(not sends), 0))  # closed, or cut
        wire.sock.close()
        if sends:
            assert connections_after(stage, other) == 2
            stage.sleep(100_000)
        assert connections_after(stage, other) == 1
        assert stage.broker.statistics()["throttled_connections"] == 0
        assert stage.broker.call(lambda: stage.broker.state.replicas.partition("t", 0).log.end_offset) == 1 + sends


def test_a_client_that_hung_up_before_it_was_throttled_is_noticed_then(stage):
    """The end came while the request waited, when nothing was read."""
    stage.alter({"client": "c"}, producer_byte_rate=1_000.0)
    stage.broker.control(0, lambda request: Delay(1_000))
    with stage.client("other") as other, stage.client() as wire:
        wire.send(produce_request(batch([bytes(60_000)]), acks=-1), 9)
        while not stage.broker.call(lambda: len(stage.broker.pauses.delayed)):
            other.ask(VERSIONS, 3)
        wire.sock.close()
        other.ask(VERSIONS, 3)
        assert stage.broker.call(stage.broker.num_connections) == 2
        stage.sleep(1_000)
        assert connections_after(stage, other) == 1
