"""What the old clients ask of brokers, step by step, without a network."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore.legacy import EARLIEST_TIME, LATEST_TIME, SimpleConsumer, brokers, simple_consumer
from kafkacore.legacy.brokers import NetworkBrokers, OneRequest, ProduceCall, update_metadata
from kafkacore.legacy.message_set import ByteBufferMessageSet
from kafkacore.legacy.settings import EventHandlerConfig
from kafkacore.legacy.statistics import Counts
from kafkacore.protocol import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    PartitionData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkacore.records import read_batches
from kafkacore.types import TopicPartition as Tp
from tests.kit.rows import each_row
from tests.legacy.fake_driver import NODES, FakeDriver, answer_of

# -- a request and its connection -----------------------------------------------------------------------------------------------------


def one_request(driver, broker=2, deadline_ms=100):
    return OneRequest(driver, broker, deadline_ms, FetchRequest, lambda version: "body", max_version=10)


def test_a_request_waits_for_its_connection_until_its_deadline():
    driver = FakeDriver()
    driver.ready_nodes.clear()
    driver.connection_errors = lambda node: driver.tried
    call = one_request(driver)
    waits = [call.step(0)]
    driver.clock.advance(90)
    waits.append(call.step(90))
    driver.poll_delay_ms = lambda node, now_ms: 0
    waits.append(call.step(90))
    driver.clock.advance(9)
    assert [*waits, call.step(99), call.done] == [30, 10, 1, 1, False]
    driver.clock.advance(1)
    assert (call.step(100), call.done, call.error.broker, call.error.attempts) == (0, True, 2, driver.tried)
    assert isinstance(call.error, errors.KafkaTimeoutError)
    assert call.step(100) is None


@each_row("before", [(), (errors.NetworkError("old"),)])
def test_a_connection_that_fails_while_a_request_waits_ends_it(before):
    driver, new = FakeDriver(), errors.NetworkError("new")
    driver.ready_nodes.clear()
    driver.failed_nodes.add(2)
    driver.connection_errors = lambda node: before
    call = one_request(driver)
    assert (call.step(0), call.step(0), call.done) == (30, 30, False)
    driver.connection_errors = lambda node: (*before, new)
    driver.failed_nodes.clear()
    assert (call.step(0), call.done) == (30, False)
    driver.failed_nodes.add(2)
    assert (call.step(0), call.done, call.error) == (0, True, new)
    assert not driver.sent


def test_a_request_is_sent_once_and_takes_its_answer():
    driver = FakeDriver()
    call = one_request(driver)
    assert (call.step(0), call.step(0), call.done, call.in_flight, call.version) == (None, None, False, True, -1)
    [request] = driver.sent
    assert (request.node_id, request.api, request.body, request.min_version, request.max_version) == (2, FetchRequest, "body", 0, 10)
    request.callback(answer_of(request, "answer", version=4))
    assert (call.response, call.version, call.done, call.in_flight, call.error) == ("answer", 4, True, False, None)
    assert call.step(0) is None and len(driver.sent) == 1


@each_row("error", [None, errors.RequestTimedOut()])
def test_a_request_without_answer_says_why(error):
    driver = FakeDriver()
    call = one_request(driver)
    call.step(0)
    driver.sent[0].callback(answer_of(driver.sent[0], error=error, version=4))
    assert call.done
    if error is not None:
        assert call.error is error
    else:
        assert (type(call.error), call.error.broker, call.error.api) == (errors.DisconnectError, 2, "Fetch v4")


# -- Produce ------------------------------------------------------------------------------------------------------------------------


def sets_of(count=3, **more):
    return {tp: ByteBufferMessageSet(messages=[b"%d" % n for n in range(count)], **more) for tp in (Tp("t", 0), Tp("t", 1), Tp("u", 0))}


def produce_call(driver, sets, counts=None, **settings):
    config = EventHandlerConfig.from_user(bootstrap_servers="nowhere:1", request_timeout_ms=700, **settings)
    return ProduceCall(driver, config, counts or Counts(), 1, sets, 100)


def produced(request):
    return {Tp(t.name, p.index): p.records for t in request.body.topic_data for p in t.partition_data}


def answer_to(request, codes=(), left_out=(), **more):
    """An answer with the error codes of partitions, 0 for the others."""
    topics = [
        TopicProduceResponse(
            name=t.name,
            partition_responses=[
                PartitionProduceResponse(index=p.index, error_code=dict(codes).get((t.name, p.index), 0), error_message="why")
                for p in t.partition_data
                if (t.name, p.index) not in left_out
            ],
        )
        for t in request.body.topic_data
    ]
    return answer_of(request, ProduceResponse(responses=topics), version=9, **more)


@each_row(("version", "magic"), [(None, 0), (0, 0), (1, 0), (2, 1), (3, 2), (12, 2), (errors.UnsupportedVersion(), 0)])
def test_a_broker_gets_the_format_it_takes(version, magic):
    def negotiate(*asked):
        assert asked == (ProduceRequest.API_KEY, 0, 12)
        if isinstance(version, Exception):
            raise version
        return version

    driver = FakeDriver()
    driver.api_versions = lambda node_id: None if version is None else SimpleNamespace(negotiate=negotiate)
    produce_call(driver, sets_of(compression_codec="gzip")).step(0)
    [request] = driver.sent
    assert (request.node_id, request.min_version, request.max_version, request.expect_response) == (1, 0, 12, True)
    assert (request.body.acks, request.body.timeout_ms) == (1, 700)
    stored = {tp: [(b.magic, b.compression) for b in read_batches(records)] for tp, records in produced(request).items()}
    assert stored == {tp: [(magic, 1)] for tp in sets_of()}


def test_a_set_goes_batch_by_batch_and_what_fails_goes_no_further():
    driver, counts = FakeDriver(), Counts()
    driver.api_versions = lambda node_id: SimpleNamespace(negotiate=lambda *_: 9)
    call = produce_call(driver, sets_of(), counts, max_request_size=1)
    answers = [{}, {"codes": {("t", 1): 19}}, {"left_out": [("u", 0)], "latency_ms": 11}, {}]
    sizes = []
    while call.step(0) is None and not call.done:
        sizes.append(sum(len(records) for records in produced(driver.sent[-1]).values()))
        driver.sent[-1].callback(answer_to(driver.sent[-1], **answers.pop(0)))
        assert not call.in_flight
    assert [sorted(produced(request)) for request in driver.sent] == [[*sets_of()], [*sets_of()], [Tp("t", 0), Tp("u", 0)]]
    assert {tp: (type(failure.error), failure.sent) for tp, failure in call.failed.items()} == {
        Tp("t", 1): (errors.NotEnoughReplicas, 1),
        Tp("u", 0): (errors.UnknownServer, 2),
    }
    error = call.failed[Tp("t", 1)].error
    assert (error.message, error.topic, error.partition, error.broker, error.api) == ("why", "t", 1, 1, "Produce v9")
    left_out = call.failed[Tp("u", 0)].error
    assert (left_out.topic, left_out.partition, left_out.broker, left_out.api) == ("u", 0, 1, "Produce v9")
    found = counts.read(0, 0)
    assert (found.requests.count, found.request_time_ms_avg, found.request_time_ms_max) == (3, 7, 11)
    assert found.request_size_bytes_avg == pytest.approx(sum(sizes) / 3)


@each_row(
    ("acks", "error", "expected"),
    [
        (1, None, errors.DisconnectError),
        (-1, errors.RequestTimedOut(), errors.RequestTimedOut),
        (0, errors.NetworkError(), errors.NetworkError),
    ],
)
def test_a_produce_request_without_answer_fails_for_all_of_it(acks, error, expected):
    driver, counts = FakeDriver(), Counts()
    call = produce_call(driver, sets_of(), counts, request_required_acks=acks)
    call.step(0)
    driver.sent[0].callback(answer_of(driver.sent[0], error=error, version=2))
    assert call.done
    assert {tp: (type(failure.error), failure.sent) for tp, failure in call.failed.items()} == dict.fromkeys(sets_of(), (expected, 0))
    assert counts.read(0, 0).requests.count == 0


def test_without_sets_there_is_nothing_to_send():
    assert produce_call(FakeDriver(), {}).done


# -- the way to the cluster -------------------------------------------------------------------------------------------------------------


def network(monkeypatch, driver, **settings):
    monkeypatch.setattr(brokers, "CallerDriver", driver.made)
    config = EventHandlerConfig.from_user(bootstrap_servers="nowhere:1", **{"request_timeout_ms": 700, **settings})
    return NetworkBrokers(config, Counts(), clock=driver.clock)


def test_all_brokers_get_their_requests_at_once(monkeypatch):
    driver = FakeDriver()
    way = network(monkeypatch, driver)
    driver.answer = lambda request: answer_to(request, {("u", 0): 6} if request.node_id == 2 else {})
    failed = way.produce({1: {Tp("t", 0): sets_of()[Tp("t", 0)]}, 2: sets_of()})
    assert [(request.node_id, len(produced(request))) for request in driver.sent] == [(1, 1), (2, 3)]
    assert {tp: type(failure.error) for tp, failure in failed.items()} == {Tp("u", 0): errors.NotLeaderOrFollower}
    driver.ready_nodes.clear()
    failed = way.produce({3: sets_of()})
    assert {type(failure.error) for failure in failed.values()} == {errors.KafkaTimeoutError}
    assert (driver.clock.now_ms(), driver.times_ms) == (702, [None, None])
    way.close()
    assert driver.closed and len(driver.sent) == 2


@each_row(("timeout_ms", "longest_ms"), [(700, 700), (9_000, 5_000)])
def test_without_acks_the_close_asks_each_broker_that_got_something(monkeypatch, timeout_ms, longest_ms):
    driver = FakeDriver()
    way = network(monkeypatch, driver, request_required_acks=0, request_timeout_ms=timeout_ms)
    driver.answer = answer_of
    assert way.produce({1: sets_of(), 2: sets_of(), 3: sets_of(), 7: sets_of()}).keys() == sets_of().keys()  # broker 7 is not there
    driver.failed_nodes.add(3)
    way.close()
    asked = driver.sent[3:]
    assert [(request.node_id, request.api, request.min_version) for request in asked] == [(n, MetadataRequest, 0) for n in (1, 2)]
    assert [[topic.name for topic in request.body.topics] for request in asked] == [["t"], ["t"]]
    assert asked[0].now_ms == asked[1].now_ms, "at once"
    assert [request.expect_response for request in driver.sent] == [False] * 3 + [True] * 2
    assert (driver.times_ms[-1], driver.closed, driver.is_in) == (longest_ms, True, 0)


def test_a_close_asks_a_broker_once_it_is_connected(monkeypatch):
    driver = FakeDriver()
    way = network(monkeypatch, driver, request_required_acks=0)
    driver.answer = lambda request: driver.ready_nodes.add(2) or answer_of(request)
    way.produce({1: sets_of(), 2: sets_of()})
    driver.ready_nodes.discard(2)
    way.close()
    assert [(request.node_id, request.now_ms) for request in driver.sent] == [(1, 0), (2, 0), (1, 2), (2, 3)]


@each_row("state", ["closed", "forked"])
def test_what_is_closed_or_belongs_to_another_process_asks_nothing(monkeypatch, state):
    driver = FakeDriver()
    way = network(monkeypatch, driver, request_required_acks=0)
    driver.answer = answer_of
    way.produce({1: sets_of()})
    setattr(driver, state, True)
    way.close()
    assert driver.closed and len(driver.sent) == 1


def test_a_pause_lets_the_time_pass(monkeypatch):
    driver = FakeDriver()
    network(monkeypatch, driver).pause(70)
    assert driver.clock.now_ms() == 70


def test_partitions_are_asked_for_when_nothing_good_is_known(monkeypatch):
    driver = FakeDriver(t=[1, 9, 2])
    way = network(monkeypatch, driver)
    assert [p.leader for p in way.partitions("t")] == [1, -1, 2]
    assert driver.asked_for == []
    for before in ({}, {"u": errors.TopicAuthorization()}):
        driver.know(**before)
        driver.on_update = lambda: driver.updated(u=[3])
        assert [p.leader for p in way.partitions("u")] == [3]
    assert driver.asked_for == [(["u"], 0)] * 2
    driver.on_update = lambda: driver.updated(u=errors.LeaderNotAvailable())
    with pytest.raises(errors.UnknownTopicOrPartition, match="says nothing") as unknown:
        way.partitions("v")
    assert unknown.value.topic == "v"
    with pytest.raises(errors.LeaderNotAvailable):
        way.partitions("u")
    way.refresh(topic for topic in "tu")
    assert driver.asked_for[-1] == (["t", "u"], 0)
    assert set(driver.times_ms) == {700}


@each_row(("refused", "error"), [([1, 2, 3], errors.NetworkError), ([1, 2], errors.KafkaTimeoutError)])
def test_metadata_that_do_not_come_say_why(refused, error):
    driver = FakeDriver()
    driver.failed_nodes.update(refused)
    driver.on_update = lambda: setattr(driver.metadata, "last_error", errors.NetworkError("refused"))
    said = "no broker can be reached" if error is errors.NetworkError else "no metadata within 77 ms"
    with pytest.raises(error, match=said) as raised, driver:
        update_metadata(driver, ["t"], 77)
    assert raised.value.attempts == driver.tried


def test_an_old_failure_says_nothing_about_new_metadata():
    driver = FakeDriver()
    driver.failed_nodes.update(NODES)
    driver.metadata.last_error = errors.NetworkError("an hour ago")
    with pytest.raises(errors.KafkaTimeoutError), driver:
        update_metadata(driver, ["t"], 77)


# -- SimpleConsumer -----------------------------------------------------------------------------------------------------------------


def simple(monkeypatch):
    driver = FakeDriver(t=[1, 2], u=[9])
    monkeypatch.setattr(simple_consumer, "CallerDriver", driver.made)
    settings = {"fetch_min_bytes": 7, "fetch_max_wait_ms": 8, "default_api_timeout_ms": 900, "max_decompressed_bytes": 10_000}
    return driver, SimpleConsumer(bootstrap_servers="nowhere:1", clock=driver.clock, **settings)


def fetched(request, *parts, code=0):
    found = [FetchableTopicResponse(topic=topic, partitions=[part]) for topic, part in parts]
    return answer_of(request, FetchResponse(error_code=code, responses=found), version=10)


def test_a_fetch_asks_the_leader_for_one_partition(monkeypatch):
    driver, consumer = simple(monkeypatch)
    wrong = PartitionData(partition_index=0, high_watermark=3, error_code=1)
    right = PartitionData(partition_index=1, high_watermark=44, records=ByteBufferMessageSet(messages=[b"m", b"n"]).buffer)
    empty = PartitionData(partition_index=1, high_watermark=45, records=None)
    driver.answer = lambda request: fetched(request, ("t", wrong), ("u", right._replace(high_watermark=5)), ("t", right))
    assert consumer.high_watermark("t", 1) is None
    found = consumer.fetch("t", 1, 1, 50)
    assert ([m.offset for m in found], consumer.high_watermark("t", 1)) == ([1], 44)
    [request] = driver.sent
    body, [[topic]] = request.body, [request.body.topics]
    assert (request.node_id, request.api, request.min_version, request.max_version) == (2, FetchRequest, 0, 10)
    assert (body.replica_id, body.max_wait_ms, body.min_bytes, body.max_bytes, body.session_epoch) == (-1, 8, 7, 50, -1)
    assert topic.topic == "t"
    assert [(p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions] == [(1, 1, 50)]
    driver.answer = lambda request: fetched(request, ("t", empty))
    assert list(consumer.fetch("t", 1, 0, 0)) == []
    assert consumer.fetch("t", 1, 0).next_offset == 0
    assert driver.sent[-1].body.max_bytes == 1 << 20
    large = ByteBufferMessageSet(messages=[b"0" * 20_000], compression_codec="gzip").buffer
    driver.answer = lambda request: fetched(request, ("t", right._replace(records=large)))
    with pytest.raises(errors.DecompressedTooLarge):
        list(consumer.fetch("t", 1, 0))
    assert driver.asked_for == []


@each_row(
    ("code", "of_partition", "error", "asks"),
    [
        (6, 0, errors.NotLeaderOrFollower, True),
        (0, 6, errors.NotLeaderOrFollower, True),
        (0, 1, errors.OffsetOutOfRange, False),
        (0, None, errors.UnknownServer, False),
    ],
)
def test_an_error_of_a_fetch_says_where_and_may_cost_a_look_for_the_leader(monkeypatch, code, of_partition, error, asks):
    driver, consumer = simple(monkeypatch)
    parts = [] if of_partition is None else [("t", PartitionData(partition_index=1, error_code=of_partition))]
    driver.answer = lambda request: fetched(request, *parts, code=code)
    with pytest.raises(error) as raised:
        consumer.fetch("t", 1, 5)
    found = raised.value
    assert (found.topic, found.partition, found.broker, found.api) == ("t", 1, 2, "Fetch v10")
    assert consumer.high_watermark("t", 1) is None
    driver.on_update = lambda: driver.updated(t=[1, 3])
    assert [consumer.find_leader("t", 1).id for _ in range(2)] == [3 if asks else 2] * 2
    assert driver.asked_for == [(["t"], driver.clock.now_ms())] * asks


def test_a_leader_without_answer_is_looked_for_again(monkeypatch):
    driver, consumer = simple(monkeypatch)
    driver.ready_nodes.clear()
    with pytest.raises(errors.KafkaTimeoutError):
        consumer.fetch("t", 1, 5)
    assert driver.clock.now_ms() == 900
    driver.on_update = lambda: driver.updated(t=[1, 3])
    assert consumer.find_leader("t", 1).id == 3
    assert driver.times_ms == [None, 900]


@each_row(
    ("known", "error", "match"),
    [
        ({"t": [9]}, errors.LeaderNotAvailable, "no broker leads"),
        ({"t": [1]}, errors.UnknownTopicOrPartition, "no such partition"),
        ({}, errors.UnknownTopicOrPartition, "no such partition"),
        ({"t": errors.TopicAuthorization("not you")}, errors.TopicAuthorization, "not you"),
    ],
)
def test_without_a_leader_the_error_says_why(monkeypatch, known, error, match):
    driver, consumer = simple(monkeypatch)
    driver.know()
    driver.on_update = lambda: driver.updated(**known)
    partition = 0 if known.get("t") == [9] else 1
    with pytest.raises(error, match=match) as raised:
        consumer.find_leader("t", partition)
    if error is not errors.TopicAuthorization:
        assert (raised.value.topic, raised.value.partition) == ("t", partition)


def offsets_by_time(version, found):
    """Answers with offsets by their time."""

    def answer(request):
        [[topic]] = [request.body.topics]
        [asked] = topic.partitions
        other = ListOffsetsPartitionResponse(partition_index=asked.partition_index + 1, offset=7, old_style_offsets=[7])
        part = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, offset=found.get(asked.timestamp), old_style_offsets=[5, 4]
        )
        topics = [
            ListOffsetsTopicResponse(name="z", partitions=[other, part]),
            ListOffsetsTopicResponse(name="t", partitions=[other, part]),
        ]
        return answer_of(request, ListOffsetsResponse(topics=topics), version=version)

    return answer


def test_offsets_are_asked_for_by_time(monkeypatch):
    driver, consumer = simple(monkeypatch)
    driver.answer = offsets_by_time(1, {LATEST_TIME: 9, EARLIEST_TIME: 2, 1_000: 6, 2_000: -1})
    asked = [(1_000, 1), (1_000, 2), (2_000, 1), (2_000, 3), (LATEST_TIME, 2), (EARLIEST_TIME, 2)]
    found = [consumer.get_offsets_before("t", 1, *each) for each in asked]
    assert found == [[6], [6, 2], [9], [9, 2], [9, 2], [2]]
    assert consumer.get_offsets_before("t", 1, 1_000) == [6]
    assert len(driver.sent) == 1 + 2 + 2 + 3 + 2 + 1 + 1
    driver.answer = offsets_by_time(0, {1_000: -1})
    assert consumer.get_offsets_before("t", 1, 1_000, 4) == [5, 4]
    [topic] = driver.sent[-1].body.topics
    assert [(p.partition_index, p.timestamp, p.max_num_offsets) for p in topic.partitions] == [(1, 1_000, 4)]
    assert {(r.api, r.node_id, r.max_version, r.body.replica_id) for r in driver.sent} == {(ListOffsetsRequest, 2, None, -1)}


@each_row(("code", "index", "error"), [(6, 1, errors.NotLeaderOrFollower), (0, 0, errors.UnknownServer)])
def test_an_error_of_list_offsets_says_where(monkeypatch, code, index, error):
    driver, consumer = simple(monkeypatch)
    part = ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    topics = [ListOffsetsTopicResponse(name="t", partitions=[part])]
    driver.answer = lambda request: answer_of(request, ListOffsetsResponse(topics=topics), version=4)
    with pytest.raises(error) as raised:
        consumer.get_offsets_before("t", 1, LATEST_TIME)
    assert (raised.value.topic, raised.value.partition, raised.value.broker, raised.value.api) == ("t", 1, 2, "ListOffsets v4")
