"""Handlers without sockets: op(request, now) -> response, also through the codec in every served version.

Administration is compared answer by answer with what Kafka said in tests/interop/test_admin_answers.py.
"""

import re
import struct
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from controlling import broker_state, create_topic, delete_topic
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import protocol as p
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.broker.handlers import fetch as fetch_handlers
from kafkacore.broker.log import read_one_batch
from kafkacore.broker.state import Call, Outcome
from kafkacore.clock import ManualClock
from kafkacore.codec import crc32c
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import ANONYMOUS
from kafkacore.errors import Code, RequestTimedOut
from kafkacore.records import read_batches
from kafkacore.types import Node
from tests.kit.batches import T0, batch
from tests.kit.reached import Reached
from tests.kit.rows import each_row
from tests.kit.wire import produce_request


def altered(data, *changes):
    """A batch with (format, position, value) put in and the CRC made right again."""
    changed = bytearray(data)
    for form, at, value in zip(*[iter(changes)] * 3, strict=True):
        struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


class Bench:
    """A broker's state, a clock moved by hand, and requests that go through the wire format of their version both ways."""

    principal = ANONYMOUS

    def __init__(self, **config):
        self.clock = ManualClock(wall_ms=T0)
        self.config = BrokerConfig(**config)
        self.state = broker_state(self.config, self.clock)
        self.cluster = self.state.cluster
        self.late = []

    def ask(self, request, version):
        frame = b"".join(bytes(part) for part in p.encode_request(request, version, 5, "bench"))
        header, decoded = p.decode_request(memoryview(frame)[4:])
        call = Call(
            version,
            header.client_id,
            self.clock.now_ms(),
            self.clock.wall_ms(),
            lambda it: self.late.append(self.wire(it, version)),
            self.fail,
            "/127.0.0.1",
        )
        call.principal = self.principal
        answered = len(self.late)
        result = SERVED[type(request).API_KEY].handler(self.state, call, decoded)
        if result is Outcome.LATER and len(self.late) > answered:
            return self.late.pop()  # it came within the call
        return result if isinstance(result, Outcome) else self.wire(result, version)

    def fail(self):
        raise AssertionError("a late answer failed")

    @staticmethod
    def wire(response, version):
        frame = frame_of(response, version)
        _, start = p.decode_response_header(type(response).API_KEY, version, frame[4:])
        return type(response).decode(version, frame[4:], start)

    def topic(self, name="t", partitions=1, **configs):
        create_topic(self.state.controller, name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        return self.cluster.topics[name]

    def elect(self, topic, *, index=0, leader=1, epoch, **changes):
        """The image decides again about a partition."""
        before = topic.partitions[index]
        partition_epoch = before.partition_epoch + 1
        topic.partitions[index] = replace(before, leader=leader, leader_epoch=epoch, partition_epoch=partition_epoch, **changes)
        self.state.replicas.update(topic, index)

    def produce(self, data=..., version=9, topic_id=bytes(16), **kwargs):
        answer = self.ask(produce_request(batch() if data is ... else data, topic_id=topic_id, **kwargs), version)
        return answer if isinstance(answer, Outcome) else answer.responses[0].partition_responses[0]

    def fetch(self, offset=0, version=12, topic="t", topic_id=bytes(16), **kwargs):
        return self.ask(fetch_request([(0, offset)], topic=topic, topic_id=topic_id, **kwargs), version)


def fetch_request(
    partitions, *, topic="t", topic_id=bytes(16), max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, partition_bytes=1 << 20, epoch=-1, **kwargs
):
    wanted = [
        p.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_bytes, current_leader_epoch=epoch)
        for index, offset in partitions
    ]
    topics = [p.FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)] if wanted else []
    return p.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics, **kwargs)


def offsets(response):
    return [
        (part.partition_index, record.offset)
        for topic in response.responses
        for part in topic.partitions
        for each in read_batches(part.records or b"")
        for record in each.records()
    ]


def only(response):
    return response.responses[0].partitions[0]


@pytest.fixture
def bench():
    return Bench()


# ---- ApiVersions


BETWEEN_BROKERS = {56, 58, 59, 62, 63, 67, 73}


def test_each_api_has_its_handler_and_all_versions_that_the_wire_knows():
    """But for InitProducerId v6, of two-phase commit."""
    assert SERVED.keys() == p.APIS.keys() - BETWEEN_BROKERS
    for key, served in SERVED.items():
        api, handler = p.APIS[key], served.handler.__name__
        assert (served.min_version, served.max_version) == (0, 5 if key == 22 else api.max_version), api
        assert handler in ("pass_on", re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower())
        assert (handler == "pass_on") == (key in (43, 45, 46, 49, 51, 57, 64))
        assert API_VERSIONS[key] == (0 if key == 0 else api.oldest_served, served.max_version)
        in_steps = served.parts != () or key in {1, 30, 31, 35, 75}
        assert served.max_elements == (100_000 if in_steps else 10_000)
    assert SERVED[0].parts


@each_row("name", ["", "-x", "x.", "a b", "ä", "x\n"])
def test_client_software_names_are_checked(bench, name):
    assert bench.ask(p.ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3).error_code == Code.INVALID_REQUEST
    assert bench.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version=name), 4).error_code == Code.INVALID_REQUEST


# ---- Metadata


def test_features_come_with_the_epoch_they_hold_since(bench):
    answer = bench.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    assert answer.finalized_features_epoch == bench.cluster.next_offset - 1 > 0
    assert ("metadata.version", 7, 30) in [tuple(each) for each in answer.supported_features]
    assert ("metadata.version", 30, 30) in [tuple(each) for each in answer.finalized_features]


def named(*names):
    return [p.MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(14))
def test_metadata_creates_and_describes(bench, version):
    answer = bench.ask(p.MetadataRequest(topics=named("new")), version)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.error_code, topic.name, partition.error_code, partition.leader_id) == (0, "new", 0, 1)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", 9092)]
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == bench.cluster.cluster_id
    if version >= 7:
        assert partition.leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == bench.cluster.topics["new"].topic_id


def test_metadata_tells_of_each_partition_how_it_is(bench):
    bench.elect(bench.topic("t", 2), index=1, leader=-1, epoch=4, replicas=[1, 2], isr=[2])
    [topic] = bench.ask(p.MetadataRequest(topics=[p.MetadataRequestTopic(name="t")]), 12).topics
    assert [tuple(each) for each in topic.partitions] == [
        (0, 0, 1, 0, [1], [1], []),
        (Code.LEADER_NOT_AVAILABLE, 1, -1, 4, [1, 2], [2], [2]),
    ]


def test_metadata_of_all_and_of_none(bench):
    bench.topic("a")
    bench.topic("b")
    assert [each.name for each in bench.ask(p.MetadataRequest(topics=[]), 0).topics] == ["a", "b"]
    assert [each.name for each in bench.ask(p.MetadataRequest(topics=None), 1).topics] == ["a", "b"]
    assert bench.ask(p.MetadataRequest(topics=[]), 1).topics == []


def test_metadata_does_not_create_where_it_may_not(bench):
    request = p.MetadataRequest(topics=named("x"), allow_auto_topic_creation=False)
    assert bench.ask(request, 4).topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert Bench(auto_create_topics_enable=False).ask(p.MetadataRequest(topics=named("x")), 12).topics[0].error_code == 3
    assert bench.ask(p.MetadataRequest(topics=named("a/b")), 12).topics[0].error_code == Code.INVALID_TOPIC_EXCEPTION
    assert bench.cluster.topics == {}


def test_metadata_by_id(bench):
    topic_id = bench.topic().topic_id
    wanted = [p.MetadataRequestTopic(topic_id=topic_id, name=None), p.MetadataRequestTopic(topic_id=b"x" * 16, name=None)]
    known, unknown = bench.ask(p.MetadataRequest(topics=wanted), 12).topics
    assert (known.name, known.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == (None, Code.UNKNOWN_TOPIC_ID)
    assert bench.ask(p.MetadataRequest(topics=wanted), 10).topics[0].error_code == Code.INVALID_REQUEST


# ---- Produce


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_answers_offsets(bench, version, acks):
    topic_id = bench.topic().topic_id if version >= 13 else bytes(16)
    if version < 13:
        bench.topic()
    first = bench.produce(version=version, acks=acks, topic_id=topic_id)
    second = bench.produce(version=version, acks=acks, topic_id=topic_id)
    assert [(each.error_code, each.base_offset, each.log_append_time_ms) for each in (first, second)] == [(0, 0, -1), (0, 3, -1)]
    assert offsets(bench.fetch()) == [(0, n) for n in range(6)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_is_refused_by_name(bench, version):
    bench.topic()
    assert bench.produce(version=version).error_code == Code.UNSUPPORTED_VERSION
    assert offsets(bench.fetch()) == []


def test_acks_0_is_silent_and_an_error_closes(bench):
    bench.topic()
    assert bench.produce(acks=0) is Outcome.SILENT
    assert bench.produce(acks=0, topic="missing") is Outcome.CLOSE
    assert bench.produce(batch()[:40], acks=0) is Outcome.CLOSE
    assert offsets(bench.fetch()) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (Code.UNKNOWN_TOPIC_OR_PARTITION, {"topic": "missing"}),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, {"partition": 7}),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, {"partition": -1}),
        (Code.UNKNOWN_TOPIC_ID, {"version": 13, "topic_id": b"?" * 16}),
        (Code.INVALID_REQUIRED_ACKS, {"acks": 2}),
        (Code.INVALID_RECORD, {"data": None}),
        (Code.INVALID_RECORD, {"data": b""}),
        (Code.INVALID_RECORD, {"data": bytes(batch()) * 2}),
        (Code.INVALID_RECORD, {"data": batch(is_control=True)}),
        (Code.INVALID_RECORD, {"data": altered(batch(), ">q", 0, 5)}),  # a base offset
        (Code.INVALID_RECORD, {"data": altered(batch(), ">i", 57, 2)}),  # a count that contradicts the offsets
        (Code.INVALID_RECORD, {"data": altered(batch(), ">i", 57, 2, ">i", 23, 1)}),  # a count below the records
        (Code.INVALID_RECORD, {"data": altered(batch(), ">i", 57, 4, ">i", 23, 3)}),  # and one above them
        (Code.INVALID_RECORD, {"data": altered(batch(compression="zstd"), ">i", 57, 2, ">i", 23, 1)}),
        (Code.INVALID_RECORD, {"data": altered(batch(), ">h", 21, 1)}),  # says gzip
        (Code.INVALID_TIMESTAMP, {"data": altered(batch(timestamps_ms=[T0, T0 + 3_600_001, T0]), ">q", 35, T0)}),
        (Code.CORRUPT_MESSAGE, {"data": bytes(batch())[:-1] + b"!"}),
        (Code.MESSAGE_TOO_LARGE, {"data": batch([b"x" * 1_048_600])}),
        (Code.INVALID_TIMESTAMP, {"data": batch(timestamps_ms=[T0 + 3_600_001] * 3)}),
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {"data": batch(is_transactional=True, producer_id=1, epoch=0, sequence=0)}),
        (Code.UNSUPPORTED_COMPRESSION_TYPE, {"data": batch(compression="zstd"), "version": 6}),
    ],
)
def test_produce_refuses(bench, code, arguments):
    bench.topic()
    assert bench.produce(**arguments).error_code == code
    assert offsets(bench.fetch()) == []


def test_one_bad_partition_does_not_spoil_the_others(bench):
    bench.topic(partitions=2)
    parts = [p.PartitionProduceData(index=index, records=batch()) for index in (0, 9, 1)]
    request = p.ProduceRequest(acks=-1, timeout_ms=1, topic_data=[p.TopicProduceData(name="t", partition_data=parts)])
    answers = bench.ask(request, 9).responses[0].partition_responses
    assert [(each.index, each.error_code) for each in answers] == [(0, 0), (9, 3), (1, 0)]


def test_a_write_to_several_topics_counts_the_last_batch_of_a_partition(bench):
    for name in ("t", "u"):
        bench.topic(name, 2)
    rows = [("t", 0, 3), ("t", 1, 1), ("u", 1, 2), ("t", 0, 2)]
    data = [
        p.TopicProduceData(name=name, partition_data=[p.PartitionProduceData(index=index, records=batch([b"x"] * count))])
        for name, index, count in rows
    ]
    answer = bench.ask(p.ProduceRequest(acks=1, timeout_ms=1, topic_data=data), 9)
    found = {topic.name: [(each.index, each.error_code) for each in topic.partition_responses] for topic in answer.responses}
    assert found == {"t": [(0, 0), (1, 0)], "u": [(1, 0)]}
    ends = [bench.state.replicas.partition(name, index).log.end_offset for name in "tu" for index in (0, 1)]
    assert ends == [2, 1, 0, 2]


def test_the_first_batches_of_a_transaction_are_of_one_producer_and_want_an_answer(bench):
    bench.topic("t", 3)

    def write(*producer_ids, transactional_id="x", acks=-1):
        parts = [
            p.PartitionProduceData(index=index, records=batch(producer_id=each, epoch=0, sequence=0, is_transactional=True))
            for index, each in enumerate(producer_ids)
        ]
        data = [p.TopicProduceData(name="t", partition_data=parts)]
        answer = bench.ask(p.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=data), 12)
        return answer if isinstance(answer, Outcome) else [each.error_code for each in answer.responses[0].partition_responses]

    first, *others = write(7, 8, 7)
    assert first not in (0, Code.INVALID_PRODUCER_ID_MAPPING)  # there is no coordinator
    assert others == [Code.INVALID_PRODUCER_ID_MAPPING, first]
    assert write(7, 7, transactional_id=None) == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert write(7, acks=0) is Outcome.CLOSE
    assert write(7, transactional_id=None, acks=0) is Outcome.CLOSE
    assert {bench.state.replicas.partition("t", index).log.end_offset for index in range(3)} == {0}


def test_of_two_writes_that_the_followers_do_not_get_in_time_the_one_that_was_committed_is_acknowledged(bench):
    topic = bench.topic(partitions=2)
    for index in (0, 1):
        bench.elect(topic, index=index, epoch=1, replicas=[1, 2], isr=[1, 2])
    parts = [p.PartitionProduceData(index=index, records=batch()) for index in (0, 1)]
    request = p.ProduceRequest(acks=-1, timeout_ms=500, topic_data=[p.TopicProduceData(name="t", partition_data=parts)])
    assert bench.ask(request, 9) is Outcome.LATER
    second = bench.state.replicas.partition("t", 1)
    second.follower_fetched(2, 3, 0, 3, -1, bench.clock.now_ms())
    bench.state.replicas.changed(second)
    bench.clock.advance(499)
    assert not bench.state.produces.advance_clock()
    assert bench.late == []
    bench.clock.advance(1)
    assert bench.state.produces.advance_clock()
    (answer,) = bench.late
    parts = [(each.index, each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]
    assert parts == [(0, Code.REQUEST_TIMED_OUT, -1), (1, 0, 0)]
    assert bench.produce(acks=1).error_code == 0


def test_a_producer_cannot_claim_log_append_time(bench):
    bench.topic(message_timestamp_type="LogAppendTime")
    assert bench.produce(altered(batch(), ">h", 21, 8)).error_code == Code.INVALID_TIMESTAMP
    bench.topic("u")
    assert bench.produce(altered(batch(), ">h", 21, 8), topic="u").error_code == 0
    (each,) = read_batches(only(bench.fetch(topic="u")).records, check_crcs=True)
    assert (each.timestamp_type, each.max_timestamp_ms) == (0, T0 + 2)


@pytest.mark.parametrize("wrong", [T0 - 5, T0 + 10**9])
def test_a_wrong_largest_timestamp_is_corrected(bench, wrong):
    bench.topic()
    assert bench.produce(altered(batch(), ">q", 35, wrong)).error_code == 0
    (each,) = read_batches(only(bench.fetch()).records, check_crcs=True)
    assert each.max_timestamp_ms == T0 + 2


def test_a_lost_leadership_is_told_with_the_current_leader(bench):
    topic = bench.topic()
    bench.cluster.nodes[2] = Node(2, "other", 9093)
    bench.elect(topic, leader=2, epoch=5, replicas=[2])
    answer = bench.ask(produce_request(batch()), 10)
    part = answer.responses[0].partition_responses[0]
    assert (part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch) == (Code.NOT_LEADER_OR_FOLLOWER, 2, 5)
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [(2, "other", 9093)]
    fetched = bench.fetch(version=16, topic_id=topic.topic_id)
    assert (only(fetched).error_code, only(fetched).current_leader.leader_id) == (Code.NOT_LEADER_OR_FOLLOWER, 2)
    assert [each.node_id for each in fetched.node_endpoints] == [2]
    assert bench.produce(version=9).error_code == Code.NOT_LEADER_OR_FOLLOWER


# ---- idempotence


def test_idempotent_produce(bench):
    bench.topic()
    pid = bench.ask(p.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    assert (pid.error_code, pid.producer_epoch) == (0, 0)

    def send(sequence, epoch=0):
        answer = bench.produce(batch(producer_id=pid.producer_id, epoch=epoch, sequence=sequence))
        return answer.error_code, answer.base_offset

    assert [send(0), send(3)] == [(0, 0), (0, 3)]
    assert [send(3), send(0)] == [(0, 3), (0, 0)]
    assert send(9) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(6) == (0, 6)
    assert send(0, epoch=1) == (0, 9)
    assert send(9) == (Code.INVALID_PRODUCER_EPOCH, -1)
    assert len(offsets(bench.fetch())) == 12


# ---- Fetch


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_gives_whole_batches(bench, version):
    topic_id = bench.topic().topic_id
    bench.produce()
    bench.produce()
    answer = bench.fetch(4, version, topic_id=topic_id if version >= 13 else bytes(16))
    assert offsets(answer) == [(0, 3), (0, 4), (0, 5)]
    part = only(answer)
    assert (part.high_watermark, part.last_stable_offset) == (6, 6)
    if version >= 13:
        assert answer.responses[0].topic_id == topic_id


def test_an_offset_before_the_log_is_out_of_range_whether_epochs_diverge_or_not(bench):
    """Source: kafka.cluster.Partition.readRecords, "regardless of whether epochs are diverging"."""
    topic = bench.topic()
    bench.produce()
    bench.elect(topic, epoch=2)
    bench.produce()

    def ask(offset, last_fetched_epoch):
        request = fetch_request([(0, offset)])
        wanted = request.topics[0].partitions[0]._replace(last_fetched_epoch=last_fetched_epoch)
        return only(bench.ask(request._replace(topics=[request.topics[0]._replace(partitions=[wanted])]), 12))

    diverging = ask(0, 1)
    assert (diverging.error_code, diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 0, 3)
    bench.state.replicas.delete_records("t", 0, 1)
    assert bench.state.replicas.partition("t", 0).log.end_offset_for_epoch(1) == (0, 3)  # they still diverge
    outside = ask(0, 1)
    assert (outside.error_code, outside.diverging_epoch.epoch) == (Code.OFFSET_OUT_OF_RANGE, -1)
    inside = ask(1, 1)
    assert (inside.error_code, inside.diverging_epoch.epoch, inside.diverging_epoch.end_offset) == (0, 0, 3)


def test_fetch_errors(bench):
    topic = bench.topic()
    bench.produce()
    bench.elect(topic, epoch=3)
    assert only(bench.fetch(4)).error_code == Code.OFFSET_OUT_OF_RANGE
    assert only(bench.fetch(-1)).error_code == Code.OFFSET_OUT_OF_RANGE
    assert only(bench.fetch(topic="missing")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert only(bench.fetch(version=13, topic_id=b"?" * 16)).error_code == Code.UNKNOWN_TOPIC_ID
    fenced = only(bench.fetch(epoch=2))
    assert (fenced.error_code, fenced.current_leader.leader_epoch) == (Code.FENCED_LEADER_EPOCH, 3)
    assert only(bench.fetch(epoch=4)).error_code == Code.UNKNOWN_LEADER_EPOCH
    assert only(bench.fetch(epoch=3)).error_code == 0
    assert only(bench.ask(fetch_request([(0, 0)], replica_id=2), 12)).error_code == Code.NOT_LEADER_OR_FOLLOWER


@each_row(
    "offset, replica, changes",
    [
        (5, 3, {}),  # of two that are as far it was asked later
        (1, 2, {}),
        (2, 3, {}),
        (10, 3, {}),
        (11, -1, {}),
        (-1, -1, {}),
        (5, -1, {"rack": ""}),
        (5, 6, {"rack": "other"}),
        (5, -1, {"broker_rack": "near"}),
        (5, -1, {"replica_selector_class": None}),
        (5, -1, {"is_leader": False}),
    ],
)
def test_which_replica_a_consumer_is_sent_to(offset, replica, changes):
    reported = {"rack": "near", "broker_rack": "own", "replica_selector_class": "x", "is_leader": True, **changes}
    found = {2: (0, 10, 5), 3: (2, 10, 7), 4: (0, 12, 9), 5: (0, 20, 9), 6: (0, 30, 9)}  # 4 is not in sync, 5 not alive
    names = ("log_start_offset", "log_end_offset", "last_caught_up_ms")
    remotes = {node: SimpleNamespace(**dict(zip(names, values, strict=True))) for node, values in found.items()}
    partition = SimpleNamespace(is_leader=reported["is_leader"], remotes=remotes, isr=[1, 2, 3, 5, 6])
    nodes = {node: SimpleNamespace(rack="other" if node == 6 else "near") for node in (1, 2, 3, 4, 6)}
    state = SimpleNamespace(config=SimpleNamespace(**reported), cluster=SimpleNamespace(nodes=nodes))
    assert fetch_handlers.preferred_read_replica(state, partition, reported["rack"], offset) == replica


@pytest.mark.parametrize("version", [12, 15, 16])
def test_who_fetches_from_a_leader_of_before_hears_of_the_one_now(bench, version):
    topic = bench.topic()
    bench.elect(topic, epoch=3)
    answer = bench.fetch(version=version, topic_id=topic.topic_id, epoch=2)
    assert (only(answer).error_code, only(answer).current_leader) == (
        Code.FENCED_LEADER_EPOCH,
        p.LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
    )
    assert [each.node_id for each in answer.node_endpoints] == [1] * (version >= 16)


@pytest.mark.parametrize("version", [12, 13])
def test_what_a_follower_gets_counts_against_the_rate_of_its_leader(version):
    bench = Bench(leader_replication_throttled_rate=10)
    topic = bench.topic(leader_replication_throttled_replicas="*")
    bench.elect(topic, epoch=1, replicas=[1, 2], isr=[1])
    bench.produce(batch([bytes(1_000)]))
    rate = bench.state.throttled_replication.leader
    bench.fetch(version=version, topic_id=topic.topic_id)  # a consumer's does not count
    assert rate.wait_ms(bench.clock.now_ms()) == 0
    assert only(bench.fetch(version=version, topic_id=topic.topic_id, replica_id=2)).records
    assert rate.wait_ms(bench.clock.now_ms()) == 1_000


def test_a_fetch_that_is_refused_says_nothing_else(bench):
    bench.topic("t")
    for answer, code, aborted in (
        (bench.fetch(topic="none"), Code.UNKNOWN_TOPIC_OR_PARTITION, []),
        (bench.fetch(5), Code.OFFSET_OUT_OF_RANGE, None),
        (bench.fetch(max_bytes=-1), Code.INVALID_REQUEST, None),
        (bench.fetch(partition_bytes=-1), Code.INVALID_REQUEST, None),
        (bench.fetch(isolation_level=2), Code.INVALID_REQUEST, None),
    ):
        refused = p.PartitionData(partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=aborted, records=b"")
        assert only(answer) == refused


def test_fetch_limits(bench):
    bench.topic(partitions=3)
    for partition in range(3):
        for _ in range(2):
            bench.produce(batch([b"x" * 500]), partition=partition)
    every = [(0, 0), (1, 0), (2, 0)]
    assert offsets(bench.ask(fetch_request(every, max_bytes=1), 12)) == [(0, 0)]
    assert offsets(bench.ask(fetch_request(every, partition_bytes=1), 12)) == [(0, 0)]
    assert offsets(bench.ask(fetch_request(every, partition_bytes=600), 12)) == [(0, 0), (1, 0), (2, 0)]
    assert offsets(bench.ask(fetch_request(every, max_bytes=1800), 12)) == [(0, 0), (0, 1), (1, 0)]
    assert len(offsets(bench.ask(fetch_request(every), 12))) == 6


LIMITS = st.sampled_from([*[600, 1500, 1 << 20, 0, 1] * 3, -1])
ASKED = st.fixed_dictionaries(
    {
        "offset": st.sampled_from([0, 0, 1, 1, 2, 4, 5, 5, 6, 6, 6, 6, -1, 7]),
        "version": st.integers(4, 18),
        "max_bytes": LIMITS,
        "partition_bytes": LIMITS,
        "min_bytes": st.sampled_from([0, 1, 700, 1 << 20, 1 << 20, 1 << 20]),
        "isolation_level": st.sampled_from([*[0, 1] * 6, 2]),
        "epoch": st.sampled_from([*[-1, 0] * 5, 1]),
        "rack_id": st.sampled_from(["", "", "a"]),
        "replica_id": st.sampled_from([-1] * 7 + [2]),
        "max_wait_ms": st.sampled_from([500, 500, 0]),
    }
)


one_step = Reached("records", "nothing to read, and no wait", "a wait", "an error", "larger than asked")


@partial(one_step.by, rounds=10)
@given(asked=ASKED, stable=st.booleans(), unknown=st.sampled_from([False] * 9 + [True]))
@settings(max_examples=10, deadline=None)
def test_a_fetch_of_one_partition_is_answered_the_same_in_one_step(asked, stable, unknown):
    bench = Bench()
    topic = bench.topic()
    for _ in range(3):
        bench.produce(batch([b"x" * 250, b"y" * 250]))
    if not stable:
        log = bench.state.replicas.partition("t", 0).log
        log.append(read_one_batch(batch(producer_id=9, epoch=0, sequence=0, is_transactional=True), 1 << 20), 0)
    version = asked.pop("version")
    if version < 11:
        asked["rack_id"] = ""
    if version >= 15:
        del asked["replica_id"]
    named = {"topic_id": b"?" * 16 if unknown else topic.topic_id} if version >= 13 else {"topic": "missing" if unknown else "t"}
    request = fetch_request([(0, asked.pop("offset"))], **named, **asked)
    answers = []
    for at_once in (True, False):
        with pytest.MonkeyPatch.context() as patched:
            if not at_once:
                patched.setattr(fetch_handlers, "_fetch_one", lambda *args: None)
            answers.append(bench.ask(request, version))
    first, second = answers
    one_step("a wait", first is Outcome.LATER)
    if first is not Outcome.LATER and first.responses:
        answer = only(first)
        size = len(answer.records or b"")
        one_step("records", size)
        one_step("nothing to read, and no wait", not size and not answer.error_code)
        one_step("an error", answer.error_code)
        one_step("larger than asked", size > max(asked["max_bytes"], 0))
    assert first == second if isinstance(second, Outcome) else frame_of(first, version) == frame_of(second, version)


def frame_of(response, version):
    return b"".join(bytes(part) for part in p.encode_response(response, version, 5))


def test_a_fetch_waits_for_bytes_and_an_append_wakes_it(bench):
    bench.topic()
    assert bench.fetch(max_wait_ms=500, min_bytes=150) is Outcome.LATER
    bench.produce()
    assert bench.late == []
    bench.produce()
    (answer,) = bench.late
    assert len(offsets(answer)) == 6
    bench.clock.advance(1000)
    assert not bench.state.fetches.advance_clock()
    assert len(bench.late) == 1
    bench.fetch(max_wait_ms=500, min_bytes=10_000)
    assert bench.state.fetches.next_deadline_ms() == bench.clock.now_ms() + 500
    bench.clock.advance(500)
    bench.state.fetches.advance_clock()
    assert len(offsets(bench.late[1])) == 6  # by time, with what there is


@pytest.mark.parametrize("readers_offset", [0, 3])
def test_a_waiting_fetch_is_answered_when_its_segment_ends(bench, readers_offset):
    """DelayedFetch, case F: whatever min_bytes says, Kafka does not wait beyond the end of a segment."""
    topic = bench.topic()
    bench.produce()
    assert bench.fetch(offset=readers_offset, max_wait_ms=500, min_bytes=10_000) is Outcome.LATER
    log = bench.state.replicas.partition(topic.name, 0).log
    bench.produce()
    assert bench.late == []  # more in the same segment
    log.roll(bench.clock.wall_ms())
    bench.produce()
    (answer,) = bench.late
    assert [offset for _, offset in offsets(answer)] == list(range(readers_offset, 9))
    # A reader behind two segments is answered at once, one at the end waits.
    assert bench.fetch(offset=0, max_wait_ms=500, min_bytes=10_000) is not Outcome.LATER
    assert bench.fetch(offset=9, max_wait_ms=500, min_bytes=10_000) is Outcome.LATER
    log.roll(bench.clock.wall_ms())
    assert len(bench.late) == 1  # an empty segment has nothing to read


def test_a_waiting_fetch_is_answered_when_its_topic_goes(bench):
    topic = bench.topic()
    bench.fetch(max_wait_ms=500)
    delete_topic(bench.state.controller, topic.name)
    assert only(bench.late[0]).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_more_than_max_bytes_is_never_waited_for(bench):
    bench.topic()
    assert bench.fetch(max_wait_ms=500, min_bytes=10_000, max_bytes=50) is Outcome.LATER
    bench.produce()
    assert len(offsets(bench.late[0])) == 3


@pytest.mark.parametrize("arguments", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"offset": 99}, {"topic": "missing"}])
def test_some_fetches_never_wait(bench, arguments):
    bench.topic()
    assert not isinstance(bench.fetch(**{"max_wait_ms": 500, **arguments}), Outcome)


# ---- fetch sessions


def session_fetch(bench, partitions, session_id, epoch, version=12, **kwargs):
    return bench.ask(fetch_request(partitions, session_id=session_id, session_epoch=epoch, **kwargs), version)


def test_a_session_tells_only_news(bench):
    bench.topic(partitions=3)
    full = session_fetch(bench, [(0, 0), (1, 0), (2, 0)], 0, 0)
    assert full.session_id > 0
    assert [part.partition_index for part in full.responses[0].partitions] == [0, 1, 2]
    assert session_fetch(bench, [], full.session_id, 1).responses == []
    bench.produce(partition=1)
    assert offsets(session_fetch(bench, [], full.session_id, 2)) == [(1, 0), (1, 1), (1, 2)]
    assert session_fetch(bench, [(1, 3)], full.session_id, 3).responses == []
    bench.produce(partition=2)
    forgotten = [p.ForgottenTopic(topic="t", partitions=[2])]
    assert session_fetch(bench, [], full.session_id, 4, forgotten_topics_data=forgotten).responses == []


def test_served_partitions_move_to_the_end(bench):
    bench.topic(partitions=2)
    bench.produce(batch([b"x" * 500]), partition=0)
    bench.produce(batch([b"x" * 500]), partition=1)
    full = session_fetch(bench, [(0, 0), (1, 0)], 0, 0, max_bytes=1)
    assert offsets(full) == [(0, 0)]
    assert offsets(session_fetch(bench, [], full.session_id, 1, max_bytes=1)) == [(1, 0)]


def test_session_errors(bench):
    bench.topic()
    full = session_fetch(bench, [(0, 0)], 0, 0)
    assert session_fetch(bench, [], full.session_id, 5).error_code == Code.INVALID_FETCH_SESSION_EPOCH
    assert session_fetch(bench, [], full.session_id + 1, 1).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert session_fetch(bench, [], full.session_id, 1, version=13).error_code == Code.FETCH_SESSION_TOPIC_ID_ERROR
    final = session_fetch(bench, [(0, 0)], full.session_id, -1)
    assert (final.error_code, final.session_id) == (0, 0)
    assert session_fetch(bench, [], full.session_id, 1).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_the_session_cache_is_bounded_and_old_sessions_make_room():
    bench = Bench(max_incremental_fetch_session_cache_slots=2)
    bench.topic()
    first, second = (session_fetch(bench, [(0, 0)], 0, 0).session_id for _ in range(2))
    assert session_fetch(bench, [(0, 0)], 0, 0).session_id == 0
    bench.clock.advance(120_001)
    assert session_fetch(bench, [], first, 1).error_code == 0
    assert session_fetch(bench, [(0, 0)], 0, 0).session_id > 0
    assert session_fetch(bench, [], second, 1).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert session_fetch(bench, [], first, 2).error_code == 0


def test_what_a_request_both_names_and_forgets_is_forgotten(bench):
    bench.topic(partitions=2)
    first = bench.ask(fetch_request([(0, 0), (1, 0)], session_epoch=0), 12)
    forgotten = [p.ForgottenTopic(topic="t", partitions=[0])]
    again = fetch_request([(0, 0)], session_id=first.session_id, session_epoch=1, forgotten_topics_data=forgotten)
    bench.ask(again, 12)
    bench.produce(partition=0)
    bench.produce(partition=1)
    answer = bench.ask(fetch_request([], session_id=first.session_id, session_epoch=2), 12)
    assert [each.partition_index for topic in answer.responses for each in topic.partitions] == [1]
    forgotten = [p.ForgottenTopic(topic="t", partitions=[0, 1])]
    last = fetch_request([], session_id=first.session_id, session_epoch=3, forgotten_topics_data=forgotten)
    assert (bench.ask(last, 12).session_id, len(bench.state.sessions)) == (0, 0)


def test_a_session_with_topic_ids(bench):
    topic_id = bench.topic().topic_id
    full = session_fetch(bench, [(0, 0)], 0, 0, version=15, topic_id=topic_id)
    bench.produce()
    answer = session_fetch(bench, [], full.session_id, 1, version=15)
    assert answer.responses[0].topic_id == topic_id
    assert len(offsets(answer)) == 3
    delete_topic(bench.state.controller, "t")
    assert only(session_fetch(bench, [], full.session_id, 2, version=15)).error_code == Code.UNKNOWN_TOPIC_ID


# ---- offsets


def list_offset(bench, timestamp, version=11, topic="t", epoch=-1):
    wanted = p.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = p.ListOffsetsRequest(replica_id=-1, topics=[p.ListOffsetsTopic(name=topic, partitions=[wanted])])
    return bench.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(bench, version):
    bench.topic()
    assert [list_offset(bench, stamp, version).offset for stamp in (-2, -1)] == [0, 0]
    bench.produce(batch(timestamps_ms=[T0, T0 + 20, T0 + 10]))
    found = [list_offset(bench, stamp, version) for stamp in (-2, -1, T0 + 5, T0 + 21)]
    assert [(each.error_code, each.offset, each.timestamp) for each in found] == [(0, 0, -1), (0, 3, -1), (0, 1, T0 + 20), (0, -1, -1)]
    if version >= 4:
        assert [each.leader_epoch for each in found] == [0, 0, 0, -1]


@pytest.mark.parametrize(("timestamp", "since", "offset"), [(-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)])
def test_special_timestamps_since_their_version(bench, timestamp, since, offset):
    bench.topic()
    bench.produce(batch(timestamps_ms=[T0, T0 + 20, T0 + 10]))
    assert list_offset(bench, timestamp, since).offset == offset
    assert list_offset(bench, timestamp, since - 1).error_code == Code.UNSUPPORTED_VERSION


def test_list_offsets_errors(bench):
    bench.topic()
    assert list_offset(bench, -1, epoch=9).error_code == Code.UNKNOWN_LEADER_EPOCH
    assert list_offset(bench, -99).error_code == Code.UNSUPPORTED_VERSION
    wanted = [p.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (9, 0)]
    topics = [p.ListOffsetsTopic(name=name, partitions=wanted) for name in ("missing", "t")]
    missing, found = bench.ask(p.ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics
    codes = [each.error_code for each in (*missing.partitions, *found.partitions)]
    assert codes == [Code.UNKNOWN_TOPIC_OR_PARTITION] * 3 + [Code.NONE]
    bench.topic("u")
    topics = [p.ListOffsetsTopic(name=name, partitions=wanted[1:]) for name in ("t", "u", "t")]
    for isolation_level, of_u in ((1, 0), (2, Code.INVALID_REQUEST), (-1, Code.INVALID_REQUEST)):
        answer = bench.ask(p.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics), 5)
        assert {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics} == {
            "t": [Code.INVALID_REQUEST],
            "u": [of_u],
        }


def test_a_new_leader_knows_no_latest_offset_before_it_has_committed(bench):
    topic = bench.topic()
    bench.elect(topic, epoch=1, replicas=[1, 2], isr=[1, 2])
    bench.produce(acks=1)
    assert list_offset(bench, -1).offset == 0
    bench.elect(topic, epoch=2, isr=[1, 2])
    for stamp in (-1, -3, T0):
        codes = [list_offset(bench, stamp, version).error_code for version in (4, 5, 11)]
        if stamp != -3:
            assert codes == [Code.LEADER_NOT_AVAILABLE, Code.OFFSET_NOT_AVAILABLE, Code.OFFSET_NOT_AVAILABLE]
        assert codes[2] == Code.OFFSET_NOT_AVAILABLE
    assert (list_offset(bench, -2).offset, list_offset(bench, -4).offset) == (0, 0)
    wanted = [p.ListOffsetsTopic(name="t", partitions=[p.ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    of_follower = bench.ask(p.ListOffsetsRequest(replica_id=2, topics=wanted), 11).topics[0].partitions[0]
    assert (of_follower.error_code, of_follower.offset, of_follower.leader_epoch) == (0, 3, 2)
    bench.state.replicas.follower_fetched(bench.state.replicas.partition("t", 0), 2, 3, 0, 3, -1)
    assert [(each.offset, each.leader_epoch) for each in (list_offset(bench, -1), list_offset(bench, T0))] == [(3, 2), (0, 1)]


def test_readers_of_committed_records_see_an_earlier_end(bench):
    bench.topic()
    bench.produce()
    open_batch = batch(producer_id=7, epoch=0, sequence=0, is_transactional=True)
    bench.state.replicas.partition("t", 0).append_internal(open_batch, T0, bench.clock.now_ms(), verification_enabled=False)
    wanted = [p.ListOffsetsTopic(name="t", partitions=[p.ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    ends = [
        bench.ask(p.ListOffsetsRequest(replica_id=-1, isolation_level=each, topics=wanted), 5).topics[0].partitions[0].offset
        for each in (0, 1)
    ]
    assert ends == [6, 3]


def test_records_are_deleted_where_they_can_be(bench):
    bench.topic(partitions=2)
    for partition in (0, 1):
        bench.produce(partition=partition)
    wanted = [p.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in ((9, 1), (0, -1), (1, 2))]
    topics = [p.DeleteRecordsTopic(name=name, partitions=wanted) for name in ("missing", "t")]
    missing, found = bench.ask(p.DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 2).topics
    unknown = (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert [(each.error_code, each.low_watermark) for each in missing.partitions] == [unknown] * 3
    assert [(each.error_code, each.low_watermark) for each in found.partitions] == [unknown, (0, 3), (0, 2)]
    bench.topic("compacted", cleanup_policy="compact")
    topics = [p.DeleteRecordsTopic(name="compacted", partitions=wanted[1:2])]
    (refused,) = bench.ask(p.DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 2).topics[0].partitions
    assert refused.error_code == Code.POLICY_VIOLATION


def test_a_write_of_the_broker_is_committed_in_time_or_has_an_error(bench):
    topic, replicas, outcomes = bench.topic(), bench.state.replicas, []

    def write(timeout_ms):
        return replicas.append_internal("t", 0, batch(), outcomes.append, timeout_ms)

    def passes(ms):
        bench.clock.advance(ms)
        for each in bench.state.clocked:
            each.advance_clock()

    assert [write(100), write(None), outcomes] == [0, 3, [None, None]]
    bench.elect(topic, epoch=1, replicas=[1, 2], isr=[1, 2])
    partition = replicas.partition("t", 0)
    for ms, at_once in ((99, []), (100, [RequestTimedOut])):
        outcomes.clear()
        base_offset = write(100)
        write(None)
        passes(ms)
        assert [type(each) for each in outcomes] == at_once
        replicas.follower_fetched(partition, 2, base_offset + 6, 0, base_offset + 6, -1)
        assert outcomes[len(at_once) :] == [None] * (2 - len(at_once))
        passes(1_000)
        assert len(outcomes) == 2
    assert "offset 15 was not committed within 100 ms" in str(outcomes[0])
    assert (outcomes[0].topic, outcomes[0].partition) == ("t", 0)


def test_a_write_that_follows_another_wakes_those_who_wait_for_it(bench):
    bench.topic(partitions=2)
    replicas, outcomes = bench.state.replicas, []
    bench.ask(fetch_request([(1, 0)], max_wait_ms=500), 12)
    replicas.append_internal("t", 0, batch(), lambda _: replicas.append_internal("t", 1, batch(), outcomes.append, None), None)
    assert outcomes == [None] and len(bench.late) == 1


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(bench, version):
    topic = bench.topic()

    def ask(epoch):
        wanted = [p.OffsetForLeaderPartition(partition=index, leader_epoch=epoch) for index in (9, 0)]
        request = p.OffsetForLeaderEpochRequest(topics=[p.OffsetForLeaderTopic(topic=name, partitions=wanted) for name in ("missing", "t")])
        missing, (unknown, known) = (each.partitions for each in bench.ask(request, version).topics)
        assert {each.error_code for each in (*missing, unknown)} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
        return known.error_code, known.leader_epoch, known.end_offset

    bench.elect(topic, epoch=1)
    assert ask(0) == (0, 0, 0)  # an epoch without records
    bench.produce()
    bench.elect(topic, epoch=2)
    bench.produce()
    assert [ask(epoch) for epoch in (0, 1, 2, 3)] == [(0, 0, 0), (0, 1, 3), (0, 2, 6), (0, -1, -1)]


# ---- housekeeping


def test_what_has_no_effect_is_kept_and_shown_and_the_log_says_so(bench, caplog):
    changes = {"some.plugin.setting": "x", "max.connections": "7"}
    configs = [p.IncrementalAlterableConfig(name=name, value=value) for name, value in changes.items()]
    broker = p.IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    assert bench.ask(p.IncrementalAlterConfigsRequest(resources=[broker]), 1).responses[0].error_code == 0
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "broker 1 keeps and shows altered settings that have no effect here: some.plugin.setting"
    ]
    described = bench.ask(p.DescribeConfigsRequest(resources=[p.DescribeConfigsResource(resource_type=4, resource_name="1")]), 4)
    shown = {each.name: each.value for each in described.results[0].configs}
    assert "some.plugin.setting" in shown and shown["max.connections"] == "7"


def test_clean_up_applies_retention_and_forgets_producers(bench):
    bench.topic(retention_ms="1000")
    bench.produce(batch(producer_id=5, epoch=0, sequence=0))
    partition = bench.state.replicas.partition("t", 0)
    bench.state.replicas.clean_up(T0 + 500, 1000)
    assert (partition.log.start_offset, len(partition.producers.entries)) == (0, 1)
    bench.state.replicas.clean_up(T0 + 5000, 1000)
    assert (partition.log.start_offset, len(partition.producers.entries)) == (3, 0)
    assert only(bench.fetch(0)).error_code == Code.OFFSET_OUT_OF_RANGE
    assert only(bench.fetch(3)).log_start_offset == 3


def test_a_topic_named_twice_is_described_once(bench):
    topic_id = bench.topic().topic_id
    wanted = [p.MetadataRequestTopic(name="t"), p.MetadataRequestTopic(name="t"), p.MetadataRequestTopic(name=None, topic_id=topic_id)]
    assert len(bench.ask(p.MetadataRequest(topics=wanted), 12).topics) == 1


def test_a_topic_that_is_deleted_between_the_steps_of_a_fetch_ends_its_wait():
    bench = Bench()
    wide, small = bench.topic("wide", fetch_handlers.STEP_PARTITIONS), bench.topic("small")
    topics = [
        p.FetchTopic(topic_id=topic.topic_id, partitions=[p.FetchPartition(partition=index, fetch_offset=0) for index in range(count)])
        for topic, count in ((wide, fetch_handlers.STEP_PARTITIONS), (small, 1))
    ]
    request = p.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics)
    call = Call(13, "client", 0, T0, bench.late.append, bench.fail)
    call.slice = lambda *_: None
    steps = SERVED[p.FetchRequest.API_KEY].handler(bench.state, call, request)
    next(steps)
    next(steps)  # the partitions of the first topic have been read
    delete_topic(bench.state.controller, "wide")
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [(topic.topic_id, len(topic.partitions)) for topic in end.value.value.responses] == [
        (wide.topic_id, fetch_handlers.STEP_PARTITIONS),
        (small.topic_id, 1),
    ]
    assert {part.error_code for part in bench.ask(request._replace(max_wait_ms=0), 13).responses[0].partitions} == {Code.UNKNOWN_TOPIC_ID}
