"""Kafka is away: what the driver of a query does, for how long, and what it says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.spark.clients import OffsetSource
from kafkacore.spark.options import source_options
from tests.spark.driven import numbers, read, send, stream_reader

pytestmark = pytest.mark.usefixtures("driven_readers")

AWAY = errors.KafkaTimeoutError("no broker answers")


class Asked:
    """The driver's way of asking, with a Kafka that fails as often as it says; each try takes a minute, and a pause what it takes."""

    def __init__(self, streaming: bool = True, **more: str) -> None:
        given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
        given |= {name.replace("__", "."): value for name, value in more.items()}
        self.clock, self.tries, self.pauses = ManualClock(), 0, list[float]()
        self._source = OffsetSource(source_options(given, streaming=streaming), clock=self.clock, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(round(seconds * 1000))

    def ask(self, fails: int, error: errors.KafkaError = AWAY, takes_ms: int = 60_000) -> Any:
        left = fails
        self.tries, self.pauses = 0, []

        def answer() -> str:
            nonlocal left
            self.tries += 1
            if not left:
                return "answer"
            left -= 1
            self.clock.advance(takes_ms)
            raise error

        return self._source._retrying(answer)


def test_a_start_without_kafka_ends_after_one_time_out() -> None:
    asked = Asked()
    with pytest.raises(errors.KafkaTimeoutError):
        asked.ask(100)
    assert asked.tries == 1


def test_a_query_that_runs_waits_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    asked.ask(0)
    with caplog.at_level(logging.WARNING, "kafkacore.spark"):
        assert asked.ask(5) == "answer" and asked.tries == 6
        assert asked.pauses == [1.0] * 5
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 6
    assert said[0] == (
        "Kafka does not answer, and the query waits for it: 60 s so far, up to 600 s (fetchOffset.outageTimeoutMs): no broker answers"
    )
    assert "243 s so far" in said[3] and said[5] == "Kafka answers again, and the query goes on after 305 s"
    caplog.clear()
    assert asked.ask(20, errors.NetworkError("refused"), takes_ms=5) == "answer"
    assert len(caplog.records) == 2  # a warning in thirty seconds, and the end


def test_it_waits_no_longer_than_it_may() -> None:
    asked = Asked()
    asked.ask(0)
    with pytest.raises(errors.KafkaTimeoutError) as caught:
        asked.ask(100)
    assert asked.tries == 10 and caught.value.__notes__ == ["asked 10 times in 609 s"]
    del caught.value.__notes__
    shorter = Asked(fetchOffset__outageTimeoutMs="0")
    shorter.ask(0)
    with pytest.raises(errors.KafkaTimeoutError):
        shorter.ask(100)
    assert shorter.tries == 1


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_number_of_retries_holds_for_time_outs_too(streaming: bool, before: bool) -> None:
    asked = Asked(streaming, fetchOffset__numRetries="3", fetchOffset__retryIntervalMs="20")
    if before:
        asked.ask(0)
    error = errors.KafkaTimeoutError("away")
    with pytest.raises(errors.KafkaTimeoutError):
        asked.ask(100, error)
    assert asked.tries == 4 and asked.pauses == [0.02] * 3
    assert asked.ask(3, error) == "answer"


def test_a_number_of_retries_and_a_wait() -> None:
    asked = Asked(fetchOffset__numRetries="3", fetchOffset__outageTimeoutMs="300000")
    asked.ask(0)
    with pytest.raises(errors.KafkaTimeoutError):
        asked.ask(100, errors.KafkaTimeoutError("away"))
    assert asked.tries == 5


def test_a_batch_read_does_not_wait() -> None:
    asked = Asked(streaming=False)
    asked.ask(0)
    with pytest.raises(errors.KafkaTimeoutError):
        asked.ask(100, errors.KafkaTimeoutError("away"))
    assert asked.tries == 1
    with pytest.raises(errors.ConfigError, match=r"fetchOffset\.outageTimeoutMs has no effect in a batch read"):
        Asked(streaming=False, fetchOffset__outageTimeoutMs="1")


@pytest.mark.parametrize(("error", "tries"), [(errors.TopicAuthorization(topic="t"), 1), (errors.UnknownTopicOrPartition(topic="t"), 4)])
def test_what_brokers_refuse_is_not_waited_for(error: errors.KafkaError, tries: int) -> None:
    asked = Asked()
    asked.ask(0)
    with pytest.raises(type(error)):
        asked.ask(100, error, takes_ms=1)
    assert asked.tries == tries


@pytest.mark.slow
def test_a_stream_goes_on_where_it_stood(cluster: Any, producer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """By the wire: the only broker hangs for several tries."""
    cluster.create_topic("outage", partitions=1)
    send(producer, "outage", range(3))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "outage", "startingOffsets": "earliest"}
    reader = stream_reader({**given, "kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"})
    at = reader.initialOffset()
    at = reader.latestOffset(at, reader.getDefaultReadLimit())
    pauses = 0

    def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            cluster.resume_broker(1)

    reader._source._pause = pause
    cluster.pause_broker(1)
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert numbers(read(reader, list(reader.partitions(at, end)))) == [0, 1, 2]
    assert pauses >= 3 and "Kafka answers again" in caplog.text
