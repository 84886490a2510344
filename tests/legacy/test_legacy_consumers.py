"""SimpleConsumer and ConsumerConnector on an embedded cluster."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, TopicPartition, errors
from kafkacore.clock import ManualClock
from kafkacore.legacy import (
    EARLIEST_TIME,
    LATEST_TIME,
    ConsumerConnector,
    ConsumerTimeoutError,
    KeyedMessage,
    SimpleConsumer,
    SyncProducer,
    connector,
)
from kafkacore.protocol import FetchResponse
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row
from tests.kit.waiting import until

GUARD_S = 120.0
names = (f"c{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def cluster():
    config = {"group_initial_rebalance_delay_ms": 0, "auto_create_topics_enable": "false"}
    with EmbeddedCluster(brokers=2, config=config) as running:
        yield running


@pytest.fixture
def topic(cluster):
    name = next(names)
    cluster.create_topic(name, partitions=4, replication_factor=2)
    return name


@pytest.fixture
def simple(cluster):
    with SimpleConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        yield consumer


def send_numbered(cluster, topic, count, first=0, codec="gzip", **settings):
    messages = [KeyedMessage(topic, f"k{n}", b"%d" % n) for n in range(first, first + count)]
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "compression_codec": codec, "request_required_acks": -1, **settings}
    with SyncProducer(**settings) as producer:
        producer.send(*messages)
    return [m.message for m in messages]


def in_partition(cluster, topic, partition, values, **settings):
    with SyncProducer(
        bootstrap_servers=cluster.bootstrap_servers, request_required_acks=-1, partitioner=lambda key, count: partition, **settings
    ) as producer:
        producer.send(*(KeyedMessage(topic, "k", value) for value in values))


# -- SimpleConsumer -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_partition_is_read_from_offset_to_offset(cluster, topic, simple, codec):
    values = [b"%d" % n for n in range(100)]
    for start in (0, 40, 70):
        in_partition(cluster, topic, 1, values[start : {0: 40, 40: 70, 70: 100}[start]], compression_codec=codec)
    at, found = 0, []
    while at < 100:
        messages = simple.fetch(topic, 1, at, max_bytes=1)
        found += messages
        assert messages.next_offset > at
        at = messages.next_offset
    assert found == [(n, b"k", value) for n, value in enumerate(values)]
    assert simple.high_watermark(topic, 1) == 100


def test_at_the_end_a_fetch_is_empty_and_stays_there(cluster, topic, simple):
    in_partition(cluster, topic, 0, [b"m"])
    messages = simple.fetch(topic, 0, 1)
    assert (list(messages), messages.next_offset, messages.size_bytes) == ([], 1, 0)


def test_what_is_no_message_is_passed_over(cluster, topic, simple):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"of-{topic}") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"m", partition=2)
    until(lambda: cluster.end_offset(topic, 2, cluster.leader(topic, 2)) == 2, "the marker, which comes after the answer to the commit")
    messages = simple.fetch(topic, 2, 0)
    assert ([m.value for m in messages], messages.next_offset) == ([b"m"], 2)
    assert simple.fetch(topic, 2, 1).next_offset == 2


@each_row(
    ("name", "partition", "offset", "error"),
    [
        ("there", 0, 99, errors.OffsetOutOfRange),
        ("there", 9, 0, errors.UnknownTopicOrPartition),
        ("missing", 0, 0, errors.UnknownTopicOrPartition),
    ],
)
def test_errors_say_what_and_where(cluster, topic, simple, name, partition, offset, error):
    name = topic if name == "there" else name
    with pytest.raises(error) as raised:
        simple.fetch(name, partition, offset)
    assert raised.value.topic == name
    if error is errors.OffsetOutOfRange:
        assert (raised.value.partition, raised.value.offset, raised.value.broker) == (partition, offset, cluster.leader(name, partition))
        assert raised.value.api.startswith("Fetch v")


def test_an_answer_without_the_partition_says_which(cluster, topic, simple):
    cluster.control("Fetch", lambda request: FetchResponse())
    try:
        with pytest.raises(errors.UnknownServer, match="leaves the partition out") as raised:
            simple.fetch(topic, 2, 0)
    finally:
        cluster.control("Fetch", None)
    assert (raised.value.topic, raised.value.partition) == (topic, 2)


def test_a_leader_that_moved_is_an_error_once(cluster, topic, simple):
    """For each topic: what is found out about one does not count for the other."""
    other = next(names)
    cluster.create_topic(other, partitions=1, replication_factor=2)
    before = {name: cluster.leader(name, 0) for name in (topic, other)}
    for name in before:
        in_partition(cluster, name, 0, [b"m"])
        assert simple.find_leader(name, 0).id == before[name]
        simple.fetch(name, 0, 0)
    for name in before:
        cluster.move_leader(name, 0, 3 - before[name])
        with pytest.raises(errors.NotLeaderOrFollower):
            simple.fetch(name, 0, 0)
    for name in before:
        assert [m.value for m in simple.fetch(name, 0, 0)] == [b"m"]
        assert simple.find_leader(name, 0).id == 3 - before[name]


def test_offsets_before_a_time(cluster, topic, simple):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for n in range(10):
            producer.send(topic, b"m", partition=0, timestamp_ms=1_000_000 + n)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 2}).check()
    ask = simple.get_offsets_before
    assert ask(topic, 0, LATEST_TIME) == [10]
    assert ask(topic, 0, LATEST_TIME, 5) == [10, 2]
    assert ask(topic, 0, EARLIEST_TIME, 5) == [2]
    assert ask(topic, 0, 1_000_006, 5) == [6, 2]
    assert ask(topic, 0, 1_000_006) == [6]
    assert ask(topic, 0, 2_000_000) == [10]
    assert ask(topic, 1, LATEST_TIME, 5) == [0]


@each_row("call", [("fetch", 0, -1), ("fetch", 0, 0, -1), ("get_offsets_before", 0, -3), ("get_offsets_before", 0, -1, 0)])
def test_arguments_that_cannot_be(simple, topic, call):
    name, *values = call
    with pytest.raises(errors.UsageError) as refused:
        getattr(simple, name)(topic, *values)
    assert (refused.value.topic, refused.value.partition) == (topic, 0)


# -- ConsumerConnector ----------------------------------------------------------------------------------------------------------------


class Readers:
    """A thread for each stream; what they read. A rebalance may hand the record that is being worked on to another stream as well."""

    def __init__(self, streams):
        self.got = [[] for _ in streams]
        self.distinct = {}
        self.changed = threading.Condition()
        self.ended = []
        self.threads = [threading.Thread(target=self._read, args=(n, stream)) for n, stream in enumerate(streams)]
        for thread in self.threads:
            thread.start()

    def _read(self, number, stream):
        for record in stream:
            with self.changed:
                self.got[number].append(record)
                self.distinct[record.topic, record.partition, record.offset] = record.value
                self.changed.notify_all()
        with self.changed:
            self.ended.append(number)

    @property
    def values(self):
        return list(self.distinct.values())

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.distinct) >= count, GUARD_S), Counter(self.values)

    def join(self):
        for thread in self.threads:
            thread.join(GUARD_S)
            assert not thread.is_alive()
        assert sorted(self.ended) == list(range(len(self.threads)))


def connector_of(cluster, group, **settings):
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "heartbeat_interval_ms": 50, **settings}
    return ConsumerConnector(group_id=group, auto_offset_reset="smallest", **settings)


def committed_in_all(cluster, group):
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return sum(found.offset for found in admin.list_group_offsets(group).values())


def test_the_streams_of_a_topic_share_its_partitions(cluster, topic):
    values = send_numbered(cluster, topic, 200)
    connector = connector_of(cluster, f"g-{topic}")
    streams = connector.create_message_streams({topic: 2})
    assert [len(of) for of in streams.values()] == [2]
    readers = Readers(streams[topic])
    readers.wait_for(200)
    shares = [set(), set()]
    while len(values) < 100_000 and not all(shares):  # until the second stream is a member as well
        first = len(values)
        values += send_numbered(cluster, topic, 40, first=first)
        readers.wait_for(len(values))
        shares = [{r.partition for r in got if int(r.value) >= first} for got in readers.got]
    connector.shutdown()
    readers.join()
    assert Counter(readers.values) == Counter(values)
    assert all(shares) and shares[0] | shares[1] == {0, 1, 2, 3}


def test_each_topic_has_its_streams(cluster, topic):
    other = next(names)
    cluster.create_topic(other, partitions=2, replication_factor=1)
    send_numbered(cluster, topic, 50)
    send_numbered(cluster, other, 50, first=50)
    connector = connector_of(cluster, f"g-{topic}")
    streams = connector.create_message_streams({topic: 1, other: 2})
    readers = Readers([*streams[topic], *streams[other]])
    readers.wait_for(100)
    connector.shutdown()
    readers.join()
    assert {r.topic for r in readers.got[0]} == {topic}
    assert {r.topic for got in readers.got[1:] for r in got} == {other}


def test_a_filter_reads_every_topic_that_matches(cluster, topic):
    other = f"{topic}-too"
    cluster.create_topic(other, partitions=1, replication_factor=1)
    send_numbered(cluster, topic, 20)
    send_numbered(cluster, other, 20, first=20)
    connector = connector_of(cluster, f"g-{topic}")
    readers = Readers(connector.create_message_streams_by_filter(f"{topic}(-too)?", 2))
    readers.wait_for(40)
    connector.shutdown()
    readers.join()
    assert Counter(readers.values) == Counter(b"%d" % n for n in range(40))


def test_the_shutdown_commits_and_the_next_connector_goes_on(cluster, topic):
    group = f"g-{topic}"
    send_numbered(cluster, topic, 60)
    for first in (0, 60):
        connector = connector_of(cluster, group, auto_commit_enable=True)
        readers = Readers(connector.create_message_streams({topic: 2})[topic])
        readers.wait_for(60)
        connector.shutdown()
        connector.shutdown()
        readers.join()
        assert Counter(readers.values) == Counter(b"%d" % n for n in range(first, first + 60))
        assert committed_in_all(cluster, group) == first + 60
        send_numbered(cluster, topic, 60, first=first + 60)


def test_without_auto_commit_offsets_are_committed_when_told(cluster, topic):
    group = f"g-{topic}"
    send_numbered(cluster, topic, 60)
    connector = connector_of(cluster, group, auto_commit_enable="false")
    first, _ = connector.create_message_streams({topic: 2})[topic]  # the other one is not iterated, and so no member
    readers = Readers([first])
    readers.wait_for(60)
    assert committed_in_all(cluster, group) == 0
    connector.commit_offsets()
    assert committed_in_all(cluster, group) == 60
    send_numbered(cluster, topic, 60, first=60)
    readers.wait_for(120)
    connector.shutdown()
    readers.join()
    assert committed_in_all(cluster, group) == 60


def test_a_commit_covers_what_the_loop_was_given_and_no_more(cluster, topic):
    group = f"g-{topic}"
    in_partition(cluster, topic, 0, [b"%d" % n for n in range(10)])
    with connector_of(cluster, group, auto_commit_enable=False) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        first = list(itertools.islice(stream, 3))
        stream.commit()
        assert committed_in_all(cluster, group) == 3
        rest = list(itertools.islice(stream, 7))
        assert [r.value for r in first + rest] == [b"%d" % n for n in range(10)]


def test_a_stream_without_messages_times_out_and_goes_on(cluster, topic):
    with connector_of(cluster, f"g-{topic}", consumer_timeout_ms=1) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        with pytest.raises(ConsumerTimeoutError, match="no message for 1 ms"):
            list(stream)
        send_numbered(cluster, topic, 1)

        def value():
            with contextlib.suppress(ConsumerTimeoutError):
                return next(iter(stream)).value

        assert until(value, "it goes on") == b"0"


def test_streams_are_made_once(cluster, topic):
    with connector_of(cluster, f"g-{topic}") as connector:
        connector.create_message_streams({topic: 1})
        with pytest.raises(errors.IllegalStateError, match="once"):
            connector.create_message_streams({topic: 1})
    closed = connector_of(cluster, f"g-{topic}")
    closed.shutdown()
    with pytest.raises(errors.ClosedError):
        closed.create_message_streams({topic: 1})


@each_row(
    ("settings", "match"),
    [
        ({}, "needs a group_id"),
        ({"group_id": "g", "auto_commit_enable": True, "enable_auto_commit": True}, "given twice"),
        ({"group_id": "g", "auto_offset_reset": "tiniest"}, "auto_offset_reset"),
        ({"group_id": "g", "queued_max": 3}, "unknown setting"),
    ],
)
def test_settings_of_a_connector_are_checked(cluster, settings, match):
    with pytest.raises(errors.ConfigError, match=match):
        ConsumerConnector(bootstrap_servers=cluster.bootstrap_servers, **settings).create_message_streams({"t": 1})


class FakeConsumer:
    """In the place of a `KafkaConsumer`, without a cluster."""

    def __init__(self, made, **settings):
        made.append(self)
        self.settings, self.topics, self.closes, self.failing = settings, None, 0, None

    def subscribe(self, topics, pattern):
        self.topics = topics, pattern
        if topics == ["refused"]:
            raise ValueError(topics)

    def close(self):
        self.closes += 1
        if self.failing is not None:
            raise self.failing


def without_a_cluster(monkeypatch, config=None, **settings):
    made = []
    monkeypatch.setattr(connector, "KafkaConsumer", lambda **more: FakeConsumer(made, **more))
    return ConsumerConnector(config, **settings), made


def test_each_stream_has_a_consumer_of_its_own(monkeypatch):
    config = {"group.id": "g", "auto.commit.enable": True, "auto.offset.reset": "largest"}
    maker, made = without_a_cluster(monkeypatch, config, client_id="c")
    streams = maker.create_message_streams({"t": 2, "u": 1})
    assert {topic: len(of) for topic, of in streams.items()} == {"t": 2, "u": 1}
    assert maker.streams == [*streams["t"], *streams["u"]]
    assert [one.topics for one in made] == [(["t"], None), (["t"], None), (["u"], None)]
    same = {"group_id": "g", "enable_auto_commit": True, "auto_offset_reset": "latest", "auto_commit_interval_ms": 60_000}
    assert [one.settings for one in made] == [{**same, "client_id": f"c-{n}"} for n in range(3)]
    maker, made = without_a_cluster(monkeypatch, group_id="g", auto_commit_interval_ms=7, auto_offset_reset="none")
    assert len(maker.create_message_streams_by_filter("t.*")) == 1
    assert [one.topics for one in made] == [(None, "t.*")]
    assert made[0].settings == {"group_id": "g", "auto_commit_interval_ms": 7, "auto_offset_reset": "none", "client_id": "kafkacore-0"}
    with pytest.raises(errors.UsageError):
        without_a_cluster(monkeypatch, group_id="g")[0].create_message_streams_by_filter("t", 0)
    with pytest.raises(errors.ConfigError, match="'consumer_timeout_ms' is given twice"):
        ConsumerConnector({"consumer.timeout.ms": 5}, consumer_timeout_ms=5, group_id="g")


def test_streams_that_cannot_be_made_end_those_before(monkeypatch):
    maker, made = without_a_cluster(monkeypatch, group_id="g")
    with pytest.raises(ValueError, match="refused"):
        maker.create_message_streams({"t": 1, "refused": 1, "u": 1})
    assert [one.closes for one in made] == [1, 1]
    assert len(maker.create_message_streams({"t": 1})["t"]) == 1  # it can be tried again


def test_the_first_error_of_a_shutdown_is_raised_when_all_have_ended(monkeypatch):
    maker, made = without_a_cluster(monkeypatch, group_id="g")
    with pytest.raises(ValueError, match="first"), maker:
        maker.create_message_streams({"t": 3})
        made[0].failing, made[1].failing = ValueError("first"), ValueError("second")
    assert [one.closes for one in made] == [1, 1, 1]
    maker, made = without_a_cluster(monkeypatch, group_id="g")
    block = KeyError("of the block")
    with pytest.raises(KeyError) as raised, maker:
        maker.create_message_streams({"t": 1})
        made[0].failing = ValueError("first")
        raise block
    assert raised.value is block and isinstance(block.__context__, ValueError)


class Quiet:
    """In the place of a `KafkaConsumer` that has something with the fourth look; a wait takes 400 ms, and a thread ends the second."""

    def __init__(self):
        self._clock, self.waited, self.waits_s = ManualClock(), [], []
        self.looks, self.waits = iter([None, None, None, ["a", "b"], None]), iter([True, errors.WakeupError(), True, False])

    def _take_chunk(self, waited):
        self.waited.append(waited)
        return next(self.looks)

    def _await_records(self, timeout_s):
        self.waits_s.append(timeout_s)
        self._clock.advance(400)
        if isinstance(found := next(self.waits), Exception):
            raise found
        return found


@each_row(("timeout_ms", "waits_s"), [(-1, [None] * 3), (0, [0, 0, 0]), (1_000, [1, 0.6, 0.2]), (500, [0.5, 0.1, 0])], ids=str)
def test_a_stream_waits_for_what_is_left_of_its_time(timeout_ms, waits_s):
    quiet, found = Quiet(), []
    with pytest.raises(ConsumerTimeoutError, match=f"no message for {timeout_ms} ms"):
        found.extend(connector.MessageStream(quiet, timeout_ms))
    assert found == ["a", "b"]
    assert (quiet.waits_s[:3], quiet.waits_s[3:]) == (waits_s, waits_s[:1])
    assert quiet.waited == [False, True, True, True, False]


@each_row("count", [0, -1, True, "2"])
def test_there_is_at_least_one_stream(cluster, topic, count):
    with connector_of(cluster, "g") as connector, pytest.raises(errors.UsageError, match="at least one stream") as refused:
        connector.create_message_streams({topic: count})
    assert refused.value.topic == topic
