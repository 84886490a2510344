"""DefaultEventHandler step by step, on a cluster without a network. docs/legacy.md names the rule that each test shows."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.legacy import DefaultEventHandler, FailedToSendMessageError, KeyedMessage, UnknownCodecError
from kafkacore.legacy.brokers import Failure, ProduceCall
from kafkacore.legacy.message_set import ByteBufferMessageSet, Piece
from kafkacore.legacy.settings import AsyncProducerConfig, EventHandlerConfig, SimpleConsumerConfig
from kafkacore.legacy.statistics import Counts
from kafkacore.metadata import PartitionInfo
from kafkacore.records import read_batches
from kafkacore.types import TopicPartition as Tp
from tests.kit.rows import each_row
from tests.legacy.legacy_fakes import NO_LEADER, FakeBrokers, handler_of


def brokers_of(**leaders):
    return FakeBrokers(ManualClock(), **leaders)


def by_length(key, count):
    return len(key) % count


# -- collating --------------------------------------------------------------------------------------------------------------------


def test_a_batch_is_taken_apart_by_broker_topic_and_partition():
    brokers = brokers_of(a=[1, 2], b=[2, 1])
    handler = handler_of(brokers, partitioner=by_length)
    messages = [KeyedMessage(topic, "k" * n, b"%d" % n) for n in range(4) for topic in "ab"]
    found = handler.partition_and_collate(messages)
    assert {broker: {tp: [m.message for m in of] for tp, of in parts.items()} for broker, parts in found.items()} == {
        1: {Tp("a", 0): [b"0", b"2"], Tp("b", 1): [b"1", b"3"]},
        2: {Tp("b", 0): [b"0", b"2"], Tp("a", 1): [b"1", b"3"]},
    }
    assert list(found[1]) and all(isinstance(tp, Tp) for parts in found.values() for tp in parts)
    handler.handle(messages)
    assert brokers.produced == [
        {
            1: {Tp("a", 0): [(b"", b"0"), (b"kk", b"2")], Tp("b", 1): [(b"k", b"1"), (b"kkk", b"3")]},
            2: {Tp("b", 0): [(b"", b"0"), (b"kk", b"2")], Tp("a", 1): [(b"k", b"1"), (b"kkk", b"3")]},
        }
    ]


# -- the partition ------------------------------------------------------------------------------------------------------------------


def test_the_partitioner_gets_the_partition_key_which_is_not_stored_and_the_number_of_all_partitions():
    """Also of those without a leader."""
    asked = []
    brokers = brokers_of(t=[NO_LEADER, 1, 1])
    keys = [("key",), ("key", "part"), ("key", None), (None, "part")]
    handler = handler_of(brokers, partitioner=lambda key, count: asked.append((key, count)) or 2)
    handler.handle([KeyedMessage("t", *each, b"m") for each in keys])
    assert asked == [("key", 3), ("part", 3), ("key", 3), ("part", 3)]
    assert brokers.produced == [{1: {Tp("t", 2): [(b"key", b"m")] * 3 + [(None, b"m")]}}]
    assert b"part" not in bytes(brokers.sets()[Tp("t", 2)].buffer)


def test_without_partitions_the_topic_is_unknown():
    handler = handler_of(brokers_of())
    with pytest.raises(errors.UnknownTopicOrPartition, match="no partitions") as raised:
        handler.get_partition("t", "k", [])
    assert raised.value.topic == "t"


@each_row("chosen", [-1, 2, 99])
def test_a_partitioner_that_leaves_the_topic(chosen):
    handler = handler_of(brokers_of(), partitioner=lambda key, count: chosen)
    with pytest.raises(errors.UnknownTopicOrPartition, match=f"partition {chosen} was chosen, and there are 0 to 1") as raised:
        handler.get_partition("t", "k", [PartitionInfo(0, 1), PartitionInfo(1, 1)])
    assert raised.value.topic == "t"


def test_without_key_the_choice_is_among_partitions_with_a_leader():
    offered = []

    def choose(available):
        offered.append([one.index for one in available])
        return available[-1]

    handler = handler_of(brokers_of(), choose=choose)
    partitions = [PartitionInfo(0, NO_LEADER), PartitionInfo(1, 4), PartitionInfo(2, NO_LEADER), PartitionInfo(3, 5)]
    assert handler.get_partition("t", None, partitions) == 3
    assert offered == [[1, 3]]
    assert handler.send_partition_per_topic_cache == {"t": 3}


def test_without_key_any_partition_may_be_chosen():
    brokers = brokers_of(t=[1, NO_LEADER, 1, 1])
    chosen = set()
    for _ in range(300):
        handler = DefaultEventHandler(bootstrap_servers="nowhere:1", brokers=brokers, clock=brokers.clock)
        chosen.add(handler.get_partition("t", None, brokers.partitions("t")))
    assert chosen == {0, 2, 3}


def test_the_cached_partition_is_taken_without_a_look_at_its_leader():
    handler = handler_of(brokers_of(), choose=lambda available: pytest.fail("nothing is to be chosen"))
    handler.send_partition_per_topic_cache["t"] = 1
    assert handler.get_partition("t", None, [PartitionInfo(0, 1), PartitionInfo(1, NO_LEADER)]) == 1


def test_the_cache_is_per_topic():
    brokers = brokers_of(a=[1, 1], b=[1, 1, 1])
    handler = handler_of(brokers, choose=lambda available: available[-1])
    handler.handle([KeyedMessage("a", b"1"), KeyedMessage("b", b"2"), KeyedMessage("a", b"3")])
    assert handler.send_partition_per_topic_cache == {"a": 1, "b": 2}


def test_without_any_leader_there_is_nothing_to_choose():
    handler = handler_of(brokers_of())
    with pytest.raises(errors.LeaderNotAvailable, match="no partition of the topic has a leader") as raised:
        handler.get_partition("t", None, [PartitionInfo(0, NO_LEADER), PartitionInfo(1, NO_LEADER)])
    assert raised.value.topic == "t"


def test_a_topic_without_any_leader_keeps_nothing_else_back():
    brokers = brokers_of(t=[NO_LEADER], u=[1])
    with pytest.raises(FailedToSendMessageError) as caught:
        handler_of(brokers, message_send_max_retries=0).handle([KeyedMessage("t", b"lost"), KeyedMessage("u", b"sent")])
    assert brokers.produced == [{1: {Tp("u", 0): [(None, b"sent")]}}]
    assert {tp: cause.message for tp, cause in caught.value.failed.items()} == {Tp("t", -1): "no partition of the topic has a leader"}


# -- the refresh by time --------------------------------------------------------------------------------------------------------------


def turning(brokers, **settings):
    """A handler that chooses the next partition each time it is asked."""
    turns = iter(range(1000))
    return handler_of(brokers, choose=lambda available: available[next(turns) % len(available)], **settings)


def test_messages_without_key_stay_with_one_partition_until_the_refresh_interval_has_passed():
    brokers = brokers_of(t=[1, 1, 1])
    handler = turning(brokers, topic_metadata_refresh_interval_ms=600_000)
    seen = []
    for ms in (0, 1, 599_999, 0, 1, 600_000, 1):
        brokers.clock.advance(ms)
        handler.handle([KeyedMessage("t", b"m"), KeyedMessage("t", b"n")])
        (tp,) = brokers.produced[-1][1]
        seen.append(tp.partition)
    # 600,000 ms are not more than the interval, 600,001 are
    assert seen == [0, 0, 0, 0, 1, 1, 2]
    assert [what for name, what in brokers.calls if name == "refresh"] == [["t"]] * 3


def test_an_interval_of_0_refreshes_with_every_batch():
    brokers = brokers_of(t=[1, 1])
    handler = turning(brokers, topic_metadata_refresh_interval_ms=0)
    for _ in range(3):
        handler.handle([KeyedMessage("t", b"m")])
    assert brokers.names == ["refresh", "produce"] * 3
    assert [next(iter(sent[1])).partition for sent in brokers.produced] == [0, 1, 0]


def test_a_negative_interval_refreshes_after_failures_alone():
    brokers = brokers_of(t=[1, 1])
    handler = turning(brokers, topic_metadata_refresh_interval_ms=-1)
    for _ in range(3):
        handler.handle([KeyedMessage("t", b"m")])
        brokers.clock.advance(10**9)
    assert brokers.names == ["produce"] * 3
    assert handler.send_partition_per_topic_cache == {"t": 0}
    brokers.failures = [{Tp("t", 0): Failure(errors.NotLeaderOrFollower(), 0)}]
    handler.handle([KeyedMessage("t", b"m")])
    assert brokers.names[3:] == ["produce", "pause", "refresh", "produce"]
    assert handler.send_partition_per_topic_cache == {"t": 1}


def test_the_refresh_asks_for_every_topic_sent_to_since_the_last_one():
    brokers = brokers_of(a=[1], b=[1], c=[1])
    handler = handler_of(brokers, topic_metadata_refresh_interval_ms=100)
    for topic, ms in (("a", 0), ("b", 50), ("c", 51), ("a", 101)):
        brokers.clock.advance(ms)
        handler.handle([KeyedMessage(topic, b"m")])
    assert [what for name, what in brokers.calls if name == "refresh"] == [["a"], ["b", "c"], ["a"]]


def test_a_refresh_that_fails_stops_nothing(caplog):
    def fail():
        raise errors.NetworkError("no broker")

    brokers = brokers_of(t=[1])
    brokers.on_refresh = fail
    with caplog.at_level(logging.WARNING, "kafkacore.legacy"):
        handler_of(brokers).handle([KeyedMessage("t", b"m")])
    assert brokers.names == ["refresh", "produce"]
    assert "metadata of t could not be refreshed" in caplog.text


# -- no leader ------------------------------------------------------------------------------------------------------------------------


def test_a_partition_without_leader_goes_to_broker_minus_1():
    handler = handler_of(brokers_of(t=[1, NO_LEADER]), partitioner=by_length)
    found = handler.partition_and_collate([KeyedMessage("t", "k", b"lost"), KeyedMessage("t", "kk", b"sent")])
    assert {broker: list(parts) for broker, parts in found.items()} == {-1: [Tp("t", 1)], 1: [Tp("t", 0)]}


def test_sending_to_broker_minus_1_warns_and_fails_for_every_partition(caplog):
    brokers = brokers_of(t=[NO_LEADER, NO_LEADER])
    handler = handler_of(brokers, partitioner=by_length)
    collated = handler.partition_and_collate(handler.serialize([KeyedMessage("t", "k" * n, b"m") for n in range(2)]))
    with caplog.at_level(logging.WARNING, "kafkacore.legacy"):
        failed = handler.send(-1, handler.group_messages_to_set(collated[-1]))
    assert {tp: (type(it.error), it.error.topic, it.error.partition, it.sent) for tp, it in failed.items()} == {
        Tp("t", 0): (errors.LeaderNotAvailable, "t", 0, 0),
        Tp("t", 1): (errors.LeaderNotAvailable, "t", 1, 0),
    }
    assert "partitions without a leader: t-0, t-1" in caplog.text
    assert "produce" not in brokers.names


def test_a_leader_that_comes_back_gets_the_messages_with_a_retry():
    brokers = brokers_of(t=[1, NO_LEADER])
    refreshes = iter([None, None, lambda: brokers.leaders.update(t=[1, 2])])
    brokers.on_refresh = lambda: (step := next(refreshes, None)) and step()
    handler_of(brokers, partitioner=by_length, retry_backoff_ms=100).handle([KeyedMessage("t", "k", b"m")])
    assert brokers.names == ["refresh", "pause", "refresh", "pause", "refresh", "produce"]
    assert brokers.produced == [{2: {Tp("t", 1): [(b"k", b"m")]}}]


def test_a_topic_that_is_not_there_keeps_nothing_else_back():
    brokers = brokers_of(t=[1])
    handler = handler_of(brokers, message_send_max_retries=1)
    with pytest.raises(FailedToSendMessageError) as failed:
        handler.handle([KeyedMessage("u", b"1"), KeyedMessage("t", b"2"), KeyedMessage("u", "k", b"3")])
    assert brokers.produced == [{1: {Tp("t", 0): [(None, b"2")]}}]
    assert {tp: type(cause) for tp, cause in failed.value.failed.items()} == {Tp("u", -1): errors.UnknownTopicOrPartition}
    assert [m.message for m in failed.value.messages] == [b"1", b"3"]


# -- retries ----------------------------------------------------------------------------------------------------------------------


def test_each_retry_comes_after_the_back_off_and_a_refresh():
    brokers = brokers_of(t=[1])
    refused = {Tp("t", 0): Failure(errors.NotEnoughReplicas("too few", topic="t", partition=0), 0)}
    brokers.failures = [dict(refused) for _ in range(9)]
    handler = handler_of(brokers, message_send_max_retries=3, retry_backoff_ms=70)
    with pytest.raises(FailedToSendMessageError) as failed:
        handler.handle([KeyedMessage("t", b"m")])
    assert brokers.names == ["refresh", "produce", *["pause", "refresh", "produce"] * 3]
    assert [what for name, what in brokers.calls if name == "pause"] == [70, 70, 70]
    assert failed.value.failed == {Tp("t", 0): refused[Tp("t", 0)].error}
    assert failed.value.messages == (KeyedMessage("t", b"m"),)
    assert str(failed.value).startswith("1 message not sent with 4 tries; t-0: NOT_ENOUGH_REPLICAS (19): too few")


def test_every_partition_that_failed_is_logged(caplog):
    brokers = brokers_of(t=[1, 2])
    brokers.failures = [{Tp("t", n): Failure(errors.NotLeaderOrFollower(), 0) for n in range(2)}]
    handler = handler_of(brokers, partitioner=by_length, message_send_max_retries=0, topic_metadata_refresh_interval_ms=-1)
    with caplog.at_level(logging.WARNING, "kafkacore.legacy"), pytest.raises(FailedToSendMessageError) as failed:
        handler.handle([KeyedMessage("t", "k" * n, b"m") for n in range(2)])
    assert "failed to send to t-0" in caplog.text and "failed to send to t-1" in caplog.text
    assert failed.value.attempts == ()


def test_only_what_failed_is_sent_again_in_its_order():
    brokers = brokers_of(t=[1, 2])
    brokers.failures = [{Tp("t", 1): Failure(errors.NotLeaderOrFollower(), 0)}]
    handler_of(brokers, partitioner=by_length).handle([KeyedMessage("t", "k" * n, b"%d" % n) for n in range(6)])
    assert brokers.produced[1:] == [{2: {Tp("t", 1): [(b"k", b"1"), (b"kkk", b"3"), (b"kkkkk", b"5")]}}]


def test_what_arrived_of_a_set_that_failed_later_is_not_sent_again():
    brokers = brokers_of(t=[1])
    brokers.failures = [{Tp("t", 0): Failure(errors.DisconnectError(), 2)}]
    handler_of(brokers).handle([KeyedMessage("t", b"%d" % n) for n in range(4)])
    assert brokers.produced[1] == {1: {Tp("t", 0): [(None, b"2"), (None, b"3")]}}


def test_the_second_failure_in_a_row_goes_to_the_leader_of_then():
    brokers = brokers_of(t=[1])
    brokers.failures = [{Tp("t", 0): Failure(errors.NotLeaderOrFollower(), 0)}, {Tp("t", 0): Failure(errors.DisconnectError(), 0)}]
    leaders = iter([1, 2, 3])
    brokers.on_refresh = lambda: brokers.leaders.update(t=[next(leaders)])
    handler = handler_of(brokers)
    handler.handle([KeyedMessage("t", b"m")])
    assert [list(sent) for sent in brokers.produced] == [[1], [2], [3]]
    assert handler.statistics().resends.count == 2


def test_one_fatal_cause_among_others_ends_the_tries():
    brokers = brokers_of(t=[NO_LEADER])
    known = brokers.partitions

    def partitions(topic):
        if topic == "secret":
            raise errors.AuthenticationFailedError("wrong password")
        return known(topic)

    brokers.partitions = partitions
    with pytest.raises(FailedToSendMessageError) as caught:
        handler_of(brokers).handle([KeyedMessage(topic, b"m") for topic in ("t", "secret")])
    assert "pause" not in brokers.names
    assert str(caught.value).startswith("2 messages not sent with 1 try;")
    assert {tp.topic: cause.fatal for tp, cause in caught.value.failed.items()} == {"t": False, "secret": True}


def test_what_a_partitioner_raises_reaches_the_caller():
    brokers = brokers_of(t=[1])
    handler = handler_of(brokers, partitioner=lambda key, count: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        handler.handle([KeyedMessage("t", "k", b"m")])
    handler.handle([KeyedMessage("t", b"m")])
    assert len(brokers.produced) == 1


# -- compression --------------------------------------------------------------------------------------------------------------------


def codecs(brokers):
    return {tp.topic: {batch.compression for batch in one.shallow()} for tp, one in brokers.sets().items()}


@each_row(
    ("settings", "expected"),
    [
        ({}, {"a": {0}, "b": {0}}),
        ({"compressed_topics": "a"}, {"a": {0}, "b": {0}}),
        ({"compression_codec": "gzip"}, {"a": {1}, "b": {1}}),
        ({"compression_codec": 2}, {"a": {2}, "b": {2}}),
        ({"compression_codec": "lz4", "compressed_topics": ["a"]}, {"a": {3}, "b": {0}}),
        ({"compression_codec": "1", "compressed_topics": "b,c"}, {"a": {0}, "b": {1}}),
    ],
)
def test_compression_is_for_no_topic_for_all_or_for_the_listed_ones(settings, expected):
    brokers = brokers_of(a=[1], b=[1])
    handler_of(brokers, **settings).handle([KeyedMessage("a", b"m" * 100), KeyedMessage("b", b"m" * 100)])
    assert codecs(brokers) == expected
    assert all([m.value for m in one] == [b"m" * 100] for one in brokers.sets().values())


def test_the_messages_of_a_partition_are_compressed_together():
    brokers = brokers_of(t=[1])
    handler_of(brokers, compression_codec="gzip").handle([KeyedMessage("t", b"m%d" % n) for n in range(50)])
    (one,) = brokers.sets().values()
    assert len(list(one.shallow())) == 1
    assert [m.value for m in one] == [b"m%d" % n for n in range(50)]
    (piece,) = one.pieces(2, 1 << 20)
    assert {r.timestamp_ms for batch in read_batches(piece.buffer) for r in batch.records()} == {brokers.clock.wall_ms()}


@each_row("codec", ["zstd", "gz", 4, "9"])
def test_other_codecs_are_refused(codec):
    with pytest.raises(UnknownCodecError, match="unknown codec"):
        handler_of(brokers_of(), compression_codec=codec)


# -- serializers, statistics, settings ------------------------------------------------------------------------------------------------


def test_serializers_get_key_and_message_and_the_partitioner_the_key_itself():
    class Upper:
        def serialize(self, topic, value):
            return f"{topic}:{value}".upper()

    keys = []
    brokers = brokers_of(t=[1])
    handler = handler_of(
        brokers, serializer=Upper(), key_serializer=lambda key: b"<%d>" % key, partitioner=lambda k, n: keys.append(k) or 0
    )
    handler.handle([KeyedMessage("t", 5, "five"), KeyedMessage("t", 6, None)])
    assert keys == [5, 6]
    assert brokers.produced == [{1: {Tp("t", 0): [(b"<5>", b"T:FIVE"), (b"<6>", None)]}}]


def test_a_serializer_that_fails_stops_the_batch_before_anything_is_sent():
    brokers = brokers_of(t=[1])
    handler = handler_of(brokers, serializer=lambda value: value.missing)
    with pytest.raises(errors.SerializationError, match="has no attribute 'missing'") as raised:
        handler.handle([KeyedMessage("t", b"m")])
    assert raised.value.topic == "t" and isinstance(raised.value.__cause__, AttributeError)
    assert brokers.names == []
    assert handler.statistics().serialization_errors.count == 1


def test_serialization_errors_can_be_taken_one_by_one():
    lost = []
    brokers = brokers_of(t=[1])
    handler = handler_of(brokers, serializer=lambda v: b"%d" % v, on_serialization_error=lambda m, e: lost.append((m.message, type(e))))
    handler.handle([KeyedMessage("t", 1), KeyedMessage("t", "two"), KeyedMessage("t", 3)])
    assert brokers.produced == [{1: {Tp("t", 0): [(None, b"1"), (None, b"3")]}}]
    assert lost == [("two", TypeError)]


def test_statistics_count_messages_and_bytes_by_topic_and_what_failed():
    brokers = brokers_of(a=[1], b=[NO_LEADER])
    handler = handler_of(brokers, message_send_max_retries=2)
    with pytest.raises(FailedToSendMessageError):
        handler.handle([KeyedMessage("a", b"12345"), KeyedMessage("a", b"67"), KeyedMessage("b", "k", None)])
    found = handler.statistics()
    assert {name: (t.messages.count, t.bytes.count) for name, t in found.topics.items()} == {"a": (2, 7), "b": (1, 0)}
    assert (found.resends.count, found.failed_sends.count, found.queue_size) == (2, 1, 0)


@each_row(
    ("settings", "names"),
    [
        ({"request_required_acks": 2}, "request_required_acks"),
        ({"message_send_max_retries": -1}, "message_send_max_retries"),
        ({"request_timeout_ms": 0}, "request_timeout_ms"),
        ({"compressed_topic": "a"}, "compressed_topics"),
        ({"partitioner": 3}, "partitioner"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, names):
    with pytest.raises(errors.ConfigError, match=names):
        handler_of(brokers_of(), **settings)


LEAST = {
    EventHandlerConfig: {"request_timeout_ms": 1, "message_send_max_retries": 0, "max_request_size": 1},
    AsyncProducerConfig: {
        "queue_buffering_max_ms": 0,
        "queue_buffering_max_messages": 1,
        "queue_enqueue_timeout_ms": -1,
        "batch_num_messages": 1,
    },
    SimpleConsumerConfig: dict.fromkeys(("fetch_min_bytes", "fetch_max_wait_ms", "default_api_timeout_ms", "max_decompressed_bytes"), 0),
}
KAFKAS = {  # Kafka 0.8's defaults
    EventHandlerConfig: {
        "request_timeout_ms": 10_000,
        "request_required_acks": 1,
        "message_send_max_retries": 3,
        "topic_metadata_refresh_interval_ms": 600_000,
        "max_request_size": 1 << 20,
        "allow_auto_create_topics": True,
    },
    AsyncProducerConfig: {
        "queue_buffering_max_ms": 5_000,
        "queue_buffering_max_messages": 10_000,
        "queue_enqueue_timeout_ms": -1,
        "batch_num_messages": 200,
    },
    SimpleConsumerConfig: {"fetch_min_bytes": 1, "fetch_max_wait_ms": 100, "default_api_timeout_ms": 30_000},
}


@each_row("kind", list(LEAST))
def test_settings_have_kafkas_defaults_and_a_least_value(kind):
    found = kind.from_user(bootstrap_servers="nowhere:1")
    assert {name: getattr(found, name) for name in KAFKAS[kind]} == KAFKAS[kind]
    assert kind.from_user(bootstrap_servers="nowhere:1", **LEAST[kind])
    for name, low in LEAST[kind].items():
        with pytest.raises(errors.ConfigError, match=f"{name} must "):
            kind.from_user(bootstrap_servers="nowhere:1", **{name: low - 1})
    with pytest.raises(errors.ConfigError):  # of every client
        kind.from_user(bootstrap_servers="nowhere:1", retry_backoff_ms=-1)


def test_closing_closes_the_way_to_the_cluster():
    brokers = brokers_of()
    with handler_of(brokers):
        assert not brokers.closed
    assert brokers.closed


@pytest.mark.parametrize("sent", [False, True], ids=["before the first request", "between two requests"])
def test_a_broker_that_left_the_cluster_fails_what_was_not_sent(sent):
    driver = SimpleNamespace(client=None, metadata=SimpleNamespace(snapshot=SimpleNamespace(nodes={})))
    sets = {Tp("t", partition): ByteBufferMessageSet(messages=[b"m"]) for partition in (0, 1)}
    call = ProduceCall(driver, None, Counts(), 7, sets, 1_000)
    if sent:
        call._pieces = {tp: iter([Piece(3, 1, b"")]) for tp in sets}
    assert call.step(0) is None
    assert call.done
    assert {tp: (type(it.error), it.error.broker, it.sent) for tp, it in call.failed.items()} == dict.fromkeys(
        sets, (errors.BrokerNotAvailable, 7, 3 if sent else 0)
    )
