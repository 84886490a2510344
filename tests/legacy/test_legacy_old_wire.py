"""The old clients in the old bytes, against a broker of Kafka 0.8 that is written from the protocol guide."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kafkacore import KafkaProducer, errors
from kafkacore.legacy import (
    LATEST_TIME,
    DefaultEventHandler,
    FailedToSendMessageError,
    KeyedMessage,
    SimpleConsumer,
    SyncProducer,
    default_partitioner,
)
from tests.kit.rows import each_row
from tests.legacy.old_broker import GZIP, METADATA, NO_CODEC, NOT_LEADER, PRODUCE, SNAPPY, OldBroker, messages


def of_old(broker, **settings):
    return {"bootstrap_servers": broker.bootstrap_servers, "broker_version": "0.8", **settings}


@each_row(("codec", "number"), [("none", NO_CODEC), ("gzip", GZIP), ("snappy", SNAPPY)])
@each_row("acks", [0, 1, -1])
def test_message_sets_of_magic_0_go_out_in_produce_v0(codec, number, acks):
    with OldBroker(t=3, u=1) as broker:
        with SyncProducer(**of_old(broker, compression_codec=codec, compressed_topics="t", request_required_acks=acks)) as producer:
            producer.send(*(KeyedMessage("t", f"k{n}", b"%d" % n) for n in range(30)), KeyedMessage("u", b"m"))
        expected = defaultdict(list)
        for n in range(30):
            expected[default_partitioner(f"k{n}", 3)].append((b"k%d" % n, b"%d" % n))
        assert broker.stored("t") == expected
        assert broker.stored("u") == {0: [(None, b"m")]}
        ((sent_acks, timeout_ms, sets),) = broker.produced
        assert (sent_acks, timeout_ms) == (acks, 10_000)
        assert {where: {codec for _, codec, _, _ in messages(data)} for where, data in sets.items()} == {
            **{("t", partition): {number} for partition in expected},
            ("u", 0): {NO_CODEC},
        }
        assert set(broker.requests) == {(METADATA, 0), (PRODUCE, 0)}


def test_offsets_of_version_0_are_starts_of_segments():
    with OldBroker(t=1) as broker:
        with SyncProducer(**of_old(broker)) as producer:
            for n in range(4):
                producer.send(KeyedMessage("t", b"a%d" % n), KeyedMessage("t", b"b%d" % n))
        with SimpleConsumer(**of_old(broker)) as consumer:
            assert consumer.get_offsets_before("t", 0, LATEST_TIME, 3) == [8, 6, 4]
            assert consumer.get_offsets_before("t", 0, LATEST_TIME, 99) == [8, 6, 4, 2, 0]
            with pytest.raises(errors.OffsetOutOfRange) as raised:
                consumer.fetch("t", 0, 9)
            assert raised.value.api == "Fetch v0"


def test_a_message_larger_than_the_fetch_comes_cut_off():
    with OldBroker(t=1) as broker:
        with SyncProducer(**of_old(broker)) as producer:
            producer.send(KeyedMessage("t", b"m" * 1000))
        with SimpleConsumer(**of_old(broker)) as consumer:
            small = consumer.fetch("t", 0, 0, max_bytes=100)
            assert (list(small), small.size_bytes, small.valid_bytes, small.next_offset) == ([], 100, 0, 0)
            assert [m.value for m in consumer.fetch("t", 0, 0, max_bytes=2000)] == [b"m" * 1000]


def test_an_error_of_produce_v0_is_retried_and_then_named():
    with OldBroker(t=1) as broker, SyncProducer(**of_old(broker, retry_backoff_ms=1, message_send_max_retries=2)) as producer:
        broker.refuse = [NOT_LEADER, NOT_LEADER]
        producer.send(KeyedMessage("t", b"m"))
        assert broker.stored("t") == {0: [(None, b"m")]}
        broker.refuse = [NOT_LEADER] * 3
        with pytest.raises(FailedToSendMessageError) as failed:
            producer.send(KeyedMessage("t", b"n"))
        (cause,) = failed.value.failed.values()
        assert isinstance(cause, errors.NotLeaderOrFollower) and (cause.api, cause.broker) == ("Produce v0", 7)


def test_todays_producer_says_that_it_cannot_write_to_them():
    with OldBroker(t=1) as broker, KafkaProducer(**of_old(broker, acks=1, enable_idempotence=False)) as producer:
        with pytest.raises(errors.UnsupportedVersion, match="broker has 0 to 0, this request needs"):
            producer.send("t", b"m").result(timeout=30)


def test_a_broker_that_is_asked_closes_the_connection():
    """Without broker_version."""
    with OldBroker(t=1) as broker:
        producer = SyncProducer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=500, message_send_max_retries=0, reconnect_backoff_max_ms=50
        )
        with producer, pytest.raises(FailedToSendMessageError, match="closed the connection"):
            producer.send(KeyedMessage("t", b"m"))
        assert {key for key, _ in broker.requests} == {18}


def test_the_error_of_an_old_broker_names_the_setting():
    with OldBroker(t=1) as broker:
        quick = {"request_timeout_ms": 500, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 1}
        with (
            DefaultEventHandler(bootstrap_servers=broker.bootstrap_servers, **quick) as handler,
            pytest.raises(FailedToSendMessageError, match=r"it is a Kafka before 0\.10, which broker_version='0\.8' \(or '0\.9'\) says"),
        ):
            handler.handle([KeyedMessage("t", b"m")])


def test_other_versions_are_refused():
    with pytest.raises(errors.ConfigError, match=r"broker_version must be one of 0\.8, 0\.9"):
        SimpleConsumer(bootstrap_servers="nowhere:1", broker_version="0.7")
