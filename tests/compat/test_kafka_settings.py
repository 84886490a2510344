"""kafka-python's settings in the form that the engine wants."""

from __future__ import annotations

import base64
import json
import logging
import re
import ssl
import time
from typing import Any

import pytest

from kafkacore._codec import RecastSend
from kafkacore.compat import settings as shared
from kafkacore.compat.kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafkacore.compat.kafka.assignors import CooperativeStickyAssignor, StickyPartitionAssignor
from kafkacore.compat.kafka.common_settings import _addresses, _token_provider
from kafkacore.compat.kafka.consumer import _at_beginning
from kafkacore.compat.kafka.partitioner import StickyPartitioner
from kafkacore.types import OffsetAndMetadata as EngineOffset
from tests.kit.inside import consumer_in, producer_in, short_send_of
from tests.kit.rows import each_row

NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "api_version": (4, 3)}


@each_row(
    ("given", "found"),
    [
        ("localhost", ["localhost:9092"]),
        ("a:1,b", ["a:1", "b:9092"]),
        (["a", "b:2"], ["a:9092", "b:2"]),
        ("[::1]:5", ["[::1]:5"]),
        ("[::1]", ["[::1]:9092"]),
        ("::1", ["[::1]:9092"]),
        ("PLAINTEXT://a:1", ["a:1"]),
    ],
)
def test_addresses_get_the_default_port(given: Any, found: list[str]) -> None:
    assert _addresses(given) == found


def test_a_producer_has_kafka_pythons_defaults() -> None:
    with KafkaProducer(**NOWHERE) as producer, KafkaProducer(**NOWHERE, partitioner=StickyPartitioner()) as sticky:
        config = producer_in(producer).config
        assert (config.linger_ms, config.acks, config.retries, config.compression_type) == (0, -1, 2**31 - 1, "none")
        assert (config.reconnect_backoff_max_ms, config.send_buffer_bytes, config.enable_idempotence) == (30_000, -1, True)
        assert re.fullmatch(r"kafka-python-producer-\d+", config.client_id)
        assert type(short_send_of(producer)) is type(short_send_of(sticky)) is RecastSend


def test_a_consumer_has_kafka_pythons_defaults() -> None:
    with KafkaConsumer(**NOWHERE) as consumer:
        config = consumer_in(consumer).config
        assert (config.auto_offset_reset, config.max_poll_records, config.group_id) == ("latest", 500, None)
        assert config.partition_assignment_strategy == ("range", "roundrobin")
    words = {"smallest": "earliest", "largest": "latest", "EARLIEST": "earliest", "none": "none", "anything": "none"}
    for given, found in words.items():
        with KafkaConsumer(**NOWHERE, auto_offset_reset=given) as consumer:
            assert consumer_in(consumer).config.auto_offset_reset == found


def test_assignors_go_by_their_names() -> None:
    with KafkaConsumer(**NOWHERE, partition_assignment_strategy=[CooperativeStickyAssignor, StickyPartitionAssignor()]) as consumer:
        assert consumer_in(consumer).config.partition_assignment_strategy == ("cooperative-sticky", "sticky")
    with pytest.raises(errors.KafkaConfigurationError, match=r"kafkacore\.PartitionAssignor"):
        KafkaConsumer(**NOWHERE, partition_assignment_strategy=[object()])


def test_credentials() -> None:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"}
    with KafkaConsumer(**NOWHERE, **given) as consumer:
        config = consumer_in(consumer).config
        assert (config.sasl_username, config.sasl_password, config.sasl_mechanism) == ("u", "p", "PLAIN")


def test_settings_of_other_protocols_are_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with KafkaProducer(**NOWHERE, ssl_cafile="ca.pem", sasl_plain_username="u") as producer:
        assert producer_in(producer).config.ssl_cafile is None
    said = [record.getMessage() for record in caplog.records]
    assert any("ssl_cafile has no effect: security_protocol=PLAINTEXT is without TLS" in text for text in said)
    assert any("sasl_plain_username has no effect: security_protocol=PLAINTEXT is without SASL" in text for text in said)


def test_a_ready_context_takes_the_place_of_the_other_tls_settings(caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context()
    with KafkaProducer(**NOWHERE, security_protocol="SSL", ssl_context=context, ssl_cafile="ca.pem") as producer:
        assert producer_in(producer).config.ssl_context is context
    assert "ssl_cafile has no effect: ssl_context is ready made" in caplog.text


def test_a_token_lasts_as_long_as_it_says() -> None:
    class Provider:
        def __init__(self, token: str) -> None:
            self.token = lambda: token

    for expiry_s in (1_900_000_000, 7, 17, 117):  # of each length, by which padding is left out
        body = base64.urlsafe_b64encode(json.dumps({"exp": expiry_s}).encode()).decode().rstrip("=")
        provider = _token_provider(Provider(f"e30.{body}."))
        assert provider is not None
        assert provider() == (f"e30.{body}.", expiry_s * 1_000)
    opaque = _token_provider(Provider("opaque"))
    assert opaque is not None
    asked_ms = int(time.time() * 1000)
    token, expiry_ms = opaque()
    assert token == "opaque"
    assert asked_ms + 3_600_000 <= expiry_ms <= time.time() * 1000 + 3_600_000
    assert _token_provider(None) is None


@each_row(
    ("pattern", "name", "matches"),
    [
        ("^a", "abc", True),
        ("b", "abc", False),
        ("(?i)A.c", "abcdef", True),
        (re.compile("AB", re.IGNORECASE), "abc", True),
        ("a|b", "bx", True),
    ],
)
def test_patterns_match_the_beginning_of_a_name(pattern: Any, name: str, matches: bool) -> None:
    assert bool(_at_beginning(pattern).fullmatch(name)) is matches
    assert bool(re.match(pattern, name)) is matches  # as kafka-python does it


def test_commits_that_nothing_asked_for_are_told_one_by_one() -> None:
    heard: list[Any] = []
    with KafkaConsumer(**NOWHERE, default_offset_commit_callback=lambda *said: heard.append(said)) as consumer:
        watch = vars(consumer)["_watch"]
        commits = [{TopicPartition("t", number): EngineOffset(number + 5, None, "n")} for number in range(3)]
        watch.on_commit(commits[0])
        assert heard == []
        watch.on_commit(commits[1])
        watch.hand_on()
        watch.hand_on()
        watch.on_commit(commits[2])
        watch.was_asked_for()
        watch.hand_on()
    shown = [{TopicPartition("t", number): OffsetAndMetadata(number + 5, "n", -1)} for number in range(2)]
    assert [offsets for offsets, _ in heard] == shown
    assert [answer.topics for _, answer in heard] == [[("t", [(number, 0)])] for number in range(2)]


def test_a_table_of_settings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, shared.Kind] = {
        "a": shared.Ours(),
        "b": shared.Ours("bee", lambda value: value * 2),
        "c": shared.NoEffect("it is not needed"),
        "d": shared.Refused("it is not there"),
        "e": shared.Own("here"),
    }
    defaults = dict.fromkeys(table, 1)
    assert shared.translated(table, defaults, {"a": 5, "c": 1, "d": 1, "e": 9}, ValueError) == {"a": 5, "bee": 2}
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        shared.translated(table, defaults, {"c": 2}, ValueError)
    assert [record.getMessage() for record in caplog.records] == ["c=2 has no effect: it is not needed"]
    with pytest.raises(ValueError, match="d=2: it is not there"):
        shared.translated(table, defaults, {"d": 2}, ValueError)
    monkeypatch.setenv("KAFKACORE_COMPAT", "warn")  # for the first start
    shared.translated(table, defaults, {"d": 2}, ValueError)
    assert "d=2 is not honoured" in caplog.text
