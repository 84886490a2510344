"""error_cb, throttle_cb, oauth_cb, logger and set_sasl_credentials of compat.confluent, where confluent-kafka cannot be asked beside it."""

from __future__ import annotations

import gc
import json
import logging
import re
import time
from typing import Any

import pytest

from kafkacore.compat.confluent import Consumer, KafkaError, KafkaException, Producer, ThrottleEvent, TopicPartition, statistics
from kafkacore.compat.confluent.admin import AdminClient
from kafkacore.testing import EmbeddedCluster
from tests.compat.confluent_serving import NOBODY
from tests.kit.clusters import addresses
from tests.kit.inside import producer_in, sender_of
from tests.kit.rows import each_row
from tests.kit.waiting import until

WAIT_S = 60.0
BEARER = {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}


guarded = addresses({"t": 1}, users={"alice": "secret"})
"""Of a cluster that lets in alice only."""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_refused_client_goes_on_with_other_credentials(guarded: str, mechanism: str) -> None:
    seen: list[str] = []
    settings = SASL | {
        "bootstrap.servers": guarded, "sasl.mechanisms": mechanism, "sasl.username": "alice", "sasl.password": "wrong",
        "error_cb": lambda error: seen.append(error.name()),
    }  # fmt: skip
    producer, consumer = Producer(settings), Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0)])
    for client in (producer, consumer):
        seen.clear()
        until(lambda: "_AUTHENTICATION" in seen, "an error of the log-in", client)
        assert seen[0] == "_AUTHENTICATION"
        with pytest.raises(KafkaException) as caught:
            client.set_sasl_credentials("alice", "")
        assert caught.value.args[0].name() == "_INVALID_ARG"
        client.set_sasl_credentials("alice", "secret")
    delivered: list[Any] = []

    def produced() -> bool:
        try:
            producer.produce("t", b"v", on_delivery=lambda error, m: delivered.append(error))
        except KafkaException:  # the attempt before
            return False
        return producer.flush(WAIT_S) == 0 and delivered[-1] is None

    until(produced)
    until(lambda: (m := consumer.poll(0.1)) is not None and m.value() == b"v")
    producer.close()
    consumer.close()


def test_tokens_of_oauth_cb() -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6OTk5OTk5OTk5OX0.", time.time() + 600

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}
    with (
        EmbeddedCluster(users={"alice": "secret"}, config=BEARER) as cluster,
        Producer(settings | {"bootstrap.servers": cluster.bootstrap_servers}) as producer,
    ):
        assert producer.list_topics(timeout=WAIT_S).topics == {}
        assert asked
        with pytest.raises(KafkaException, match="tokens in place of"):
            producer.set_sasl_credentials("alice", "secret")


def test_an_oauth_cb_that_raises_is_a_failed_authentication() -> None:
    seen: list[Any] = []

    def token(config: str) -> tuple[str, float]:
        raise ValueError("no token today")

    with EmbeddedCluster(users={"alice": "secret"}, config=BEARER) as cluster:
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token, "error_cb": seen.append}
        with Producer(settings | {"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            until(lambda: producer.poll(0.1) > 0)
    assert (seen[0].name(), "the provider raised ValueError" in seen[0].str()) == ("_AUTHENTICATION", True)


def test_a_broker_that_goes_and_comes_back() -> None:
    seen: list[str] = []
    with EmbeddedCluster() as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "error_cb": lambda error: seen.append(error.name())}
        with Producer(settings | {"reconnect.backoff.max.ms": 100}) as producer:
            producer.list_topics(timeout=WAIT_S)
            cluster.create_topic("t", partitions=1)
            for round_ in range(2):
                producer.produce("t", b"v")
                assert producer.flush(WAIT_S) == 0
                assert seen == []
                cluster.stop_broker(1)
                until(lambda: producer.poll(0.1) >= 0 and seen.count("_ALL_BROKERS_DOWN") == 1, f"round {round_}")
                assert seen[0] == "_TRANSPORT"
                cluster.start_broker(1)
                producer.produce("t", b"v")
                assert producer.flush(WAIT_S) == 0
                seen.clear()


def test_an_error_callback_that_raises_ends_its_poll_only() -> None:
    def failed(error: KafkaError) -> None:
        raise ValueError(error.name())

    producer = Producer({"bootstrap.servers": NOBODY, "error_cb": failed})
    found = []
    for _ in range(2):
        with pytest.raises(ValueError, match="_") as caught:
            producer.poll(WAIT_S)
        found.append(str(caught.value))
    assert found == ["_TRANSPORT", "_ALL_BROKERS_DOWN"]
    producer.close()


def test_throttled_requests() -> None:
    seen: list[ThrottleEvent] = []
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "throttle_cb": seen.append}
        with Producer(settings) as producer:
            producer.produce("t", b"v")
            producer.flush(WAIT_S)
            network = sender_of(producer_in(producer)).client
            assert network.on_throttle is not None
            network.on_throttle(1, 250)  # as an answer with a throttle time does
            assert producer.poll(0) == 1
    (event,) = seen
    assert (event.broker_id, event.throttle_time, str(event)) == (1, 0.25, f"{event.broker_name}/1 throttled for 250 ms")


def keeping_logger() -> tuple[logging.Logger, list[tuple[str, int]]]:
    """A program's logger, and the names and levels of what it gets."""
    lines: list[tuple[str, int]] = []
    logger = logging.Logger("of a program")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.name, record.levelno))

    logger.addHandler(Keep())
    return logger, lines


def test_a_logger_gets_lines_from_its_level_on_and_as_long_as_the_client_lives() -> None:
    logger, lines = keeping_logger()
    engine = logging.getLogger("kafkacore.net")
    handlers = list(logging.getLogger("kafkacore").handlers)
    producer = Producer({"bootstrap.servers": NOBODY, "logger": logger, "log_level": 3})
    engine.error("an error")
    engine.warning("a warning")
    assert [level for _, level in lines] == [logging.ERROR]
    producer.close()
    del producer
    gc.collect()
    engine.error("nobody hears this")
    assert [level for _, level in lines] == [logging.ERROR]
    assert logging.getLogger("kafkacore").handlers == handlers


@each_row(
    "settings",
    [{"logger": "no logger"}, {"log_level": 9, "logger": logging.Logger("x")}, {"debug": "no such"}],
)
def test_what_cannot_be_honoured_is_refused(settings: Any) -> None:
    for client in (Producer, Consumer, AdminClient):
        with pytest.raises(KafkaException) as caught:
            client({"bootstrap.servers": NOBODY, "group.id": "g"} | settings)
        assert caught.value.args[0].name() == "_INVALID_ARG"
        assert next(iter(settings)) in caught.value.args[0].str()


def test_debug_writes_until_the_last_client_with_it_has_gone() -> None:
    logger, lines = keeping_logger()
    net, producers = logging.getLogger("kafkacore.net"), logging.getLogger("kafkacore.producer")
    before = net.level, producers.level
    clients = [Producer({"bootstrap.servers": NOBODY, "logger": logger, "debug": each}) for each in ("broker", "protocol,msg")]
    net.debug("a line")
    producers.debug("another")
    assert lines.count(("kafkacore.net", logging.DEBUG)) >= 2  # of each client
    assert lines.count(("kafkacore.producer", logging.DEBUG)) >= 1
    for left in ((logging.DEBUG, before[1]), before):
        clients.pop().close()
        gc.collect()
        assert (net.level, producers.level) == left


def test_debug_without_a_logger_writes_to_stderr_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    source = logging.getLogger("kafkacore")
    monkeypatch.setattr(source, "propagate", False)
    monkeypatch.setattr(source, "handlers", [])
    made = Producer({"bootstrap.servers": NOBODY, "debug": "broker"})
    assert [type(each) for each in source.handlers] == [logging.StreamHandler]
    made.close()
    del made
    gc.collect()
    assert source.handlers == []


def test_a_mode_for_the_first_start_warns_of_what_is_refused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"bootstrap.servers": NOBODY, "group.id": "g", "queuing.strategy": "lifo", "plugin.library.paths": "x.so"}
    for client in (Producer, Consumer):
        monkeypatch.delenv("KAFKACORE_COMPAT", raising=False)
        with pytest.raises(KafkaException, match=r"plugin\.library\.paths"):
            client(settings)
        monkeypatch.setenv("KAFKACORE_COMPAT", "warn")
        caplog.clear()
        client(settings).close()
        assert "plugin.library.paths='x.so' is not honoured: C libraries cannot be loaded" in caplog.text
        monkeypatch.setenv("KAFKACORE_COMPAT", "off")
        with pytest.raises(KafkaException, match="KAFKACORE_COMPAT='off'"):
            client(settings)


@pytest.mark.parametrize(("incremental", "reset", "offset"), [(False, "latest", -1001), (True, "latest", -1001), (False, "earliest", -1)])
def test_messages_sent_behind_an_assign_are_read(incremental: bool, reset: str, offset: int) -> None:
    """From the end, which confluent-kafka looks up in the background: there it takes a moment."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.produce("t", [b"before"])
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": reset})
        (consumer.incremental_assign if incremental else consumer.assign)([TopicPartition("t", 0, offset)])
        cluster.produce("t", [b"behind"])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"behind"
        consumer.seek(TopicPartition("t", 0, -2))
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"before"
        consumer.close()


def test_an_assign_with_the_broker_away_raises_nothing() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.stop_broker(1)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition("t", 0)])
        cluster.start_broker(1)
        message = consumer.poll(WAIT_S)
        while message is None:
            message = consumer.poll(WAIT_S)
        assert message.error().name() == "_AUTO_OFFSET_RESET"
        consumer.close()


def latest_of(consumer: Consumer, seen: list[Any]) -> Any:
    """Statistics that were made from now on, once the ends of both partitions are known."""
    seen.clear()

    def known() -> bool:
        assert consumer.poll(0.05) is None
        return bool(seen) and all(each["hi_offset"] >= 0 for each in seen[-1]["topics"]["t"]["partitions"].values())

    until(known, "the ends of both partitions", consumer)
    return seen[-1]


def test_statistics_count_what_a_client_has_done() -> None:
    seen: list[Any] = []

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 2)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers, "statistics.interval.ms": 20, "client.id": "me",
            "stats_cb": lambda text: seen.append(json.loads(text)),
        }  # fmt: skip
        producer = Producer(settings)
        for nth in range(3):
            producer.produce("t", b"v%d" % nth, partition=1)
        producer.flush(WAIT_S)
        until(lambda: producer.poll(0.05) > 0 and seen[-1]["txmsgs"] == 3, "statistics")
        found = seen[-1]
        assert re.fullmatch(r"me#producer-\d+", found["name"])
        assert abs(found["time"] - time.time()) < 3_600 and abs(found["ts"] / 1e6 - time.monotonic()) < 3_600
        assert 0 < found["age"] < 1e6 * WAIT_S
        assert (found["msg_cnt"], found["metadata_cache_cnt"], found["rxmsgs"]) == (0, 1, 0)
        ((name, broker),) = found["brokers"].items()
        assert (broker["name"], broker["nodename"], broker["nodeid"]) == (name, name.partition("/")[0], 1)
        assert (broker["state"], broker["source"], broker["connects"], broker["disconnects"]) == ("UP", "learned", 1, 0)
        assert (
            found["tx_bytes"] > broker["txbytes"] > 10 * broker["tx"] > 0 and found["rx_bytes"] > broker["rxbytes"] > 10 * broker["rx"] > 0
        )
        assert (found["tx"], found["rx"]) > (broker["tx"], broker["rx"])
        assert 60e6 > broker["rtt"]["max"] >= broker["rtt"]["p99"] >= 0 and broker["rtt"]["max"] >= broker["rtt"]["avg"] >= 0
        assert broker["throttle"] == {"avg": 0, "max": 0}
        known = {"broker": 1, "leader": 1, "leader_epoch": 0, "unknown": False}
        of_topic = {str(number): {"partition": number, "desired": False, **known} for number in (0, 1)}
        assert found["topics"] == {"t": {"topic": "t", "partitions": of_topic}}
        bytes_sent = found["txmsg_bytes"]
        producer.close()

        consumer = Consumer({
            **settings, "group.id": "g", "enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "earliest",
        })  # fmt: skip
        consumer.assign([TopicPartition("t", 1, 0), TopicPartition("t", 0, 0)])
        assert len(consumer.consume(3, WAIT_S)) == 3
        consumer.store_offsets(offsets=[TopicPartition("t", 1, 2)])
        consumer.commit(offsets=[TopicPartition("t", 1, 1)], asynchronous=False)
        consumer.pause([TopicPartition("t", 0)])
        found = latest_of(consumer, seen)
        places = dict.fromkeys(("app_offset", "stored_offset", "committed_offset"), -1001) | dict.fromkeys(
            ("lo_offset", "hi_offset", "ls_offset"), 0
        )
        idle = {"fetch_state": "none", "next_offset": 0, **places, "consumer_lag": -1, "consumer_lag_stored": -1, "rxmsgs": 0, "rxbytes": 0}
        read = {
            "fetch_state": "active", "next_offset": 3, "app_offset": 3, "stored_offset": 2, "committed_offset": 1, "lo_offset": 0,
            "hi_offset": 3, "ls_offset": 3, "consumer_lag": 2, "consumer_lag_stored": 1, "rxmsgs": 3, "rxbytes": bytes_sent,
        }  # fmt: skip
        of_topic = {str(number): {"partition": number, "desired": True, **known, **more} for number, more in ((0, idle), (1, read))}
        assert found["topics"] == {"t": {"topic": "t", "partitions": of_topic}}
        assert (found["rxmsgs"], found["rxmsg_bytes"], found["txmsgs"]) == (3, bytes_sent, 0)
        assert found["cgrp"] == {"state": "init", "rebalance_cnt": 0, "assignment_size": 2}
        consumer.close()


def test_statistics_come_at_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(statistics.time, "monotonic", lambda: now_s[0])
    made = statistics.Statistics("producer", "me", print, 20_000, lambda: pytest.fail("nobody asks"), dict)
    waits = [made.due_s()]
    for at_s, schedules in ((105.0, False), (121.0, True), (190.0, True), (190.0, True)):
        now_s[0] = at_s
        if schedules:
            made.schedule()
        waits.append(made.due_s())
    assert waits == [20, 15, 19, 0, 20]  # calls that came late are left out


def test_messages_of_a_batch_that_find_the_queue_full_say_so() -> None:
    settings = {"bootstrap.servers": NOBODY, "queue.buffering.max.messages": 2, "message.timeout.ms": 1_000}
    messages: list[dict[str, Any]] = [{"value": b"%d" % nth} for nth in range(4)]
    with Producer(settings) as producer:
        assert producer.produce_batch("t", messages) == 2
        assert [each["_error"].name() if "_error" in each else None for each in messages] == [None, None, "_QUEUE_FULL", "_QUEUE_FULL"]
        for wrong in (tuple(messages), [*messages[:1], "no dict"]):
            with pytest.raises(TypeError):
                producer.produce_batch("t", wrong)  # type: ignore[arg-type]
        producer.purge()
