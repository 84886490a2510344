"""When the log says that records are retried: how long an outage is one outage, and when its line comes again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from producer_support import Bench, started

from kafkacore import errors
from kafkacore.errors import Code
from kafkacore.producer.retry_log import PATIENCE_MS, REPEAT_MS, RetryLog
from tests.kit.rows import each_row

SILENCE_MS = 1_000
ERROR = errors.NotLeaderOrFollower("moved", broker=1)


def delivery(partition: int) -> Any:
    return SimpleNamespace(queue=partition, topic="t", partition=partition, resolved=False, first_error=lambda: None)


def retry_log() -> RetryLog:
    return RetryLog(delivery_timeout_ms=120_000, silence_ms=SILENCE_MS)


@each_row("later_ms", [0, 1, 5_000])
def test_an_error_is_news_again_after_a_while(later_ms: int) -> None:
    log = retry_log()
    assert log.is_news(ERROR, 7)
    assert not log.is_news(ERROR, 8)
    assert not log.is_news(ERROR, 7 + REPEAT_MS - 1)
    assert log.is_news(ERROR, 7 + REPEAT_MS + later_ms)
    assert not log.is_news(ERROR, 7 + REPEAT_MS + later_ms + 1)


def test_of_two_kinds_of_errors_each_is_news_in_its_time() -> None:
    log, other = retry_log(), errors.KafkaStorage("the disk is full", broker=1)
    assert log.is_news(ERROR, 0)
    assert log.is_news(other, 100)
    assert log.is_news(ERROR, REPEAT_MS)
    assert not log.is_news(other, REPEAT_MS)
    assert log.is_news(other, REPEAT_MS + 100)


def test_of_two_partitions_that_fail_one_recovers_and_the_other_is_told_alone(caplog: pytest.LogCaptureFixture) -> None:
    log = retry_log()
    first, second = delivery(0), delivery(1)
    for each in (first, second):
        log.failed(each, ERROR, 0)
    first.resolved = True
    log.failed(second, ERROR, PATIENCE_MS)
    (told,) = (record.getMessage() for record in caplog.records)
    assert told.startswith("records for t-1 wait and are retried")


@pytest.mark.parametrize(("silent_ms", "warnings"), [(SILENCE_MS - 1, 1), (SILENCE_MS, 1), (SILENCE_MS + 1, 2), (SILENCE_MS + 500, 2)])
def test_an_outage_that_has_been_silent_for_long_is_another_one(caplog: pytest.LogCaptureFixture, silent_ms: int, warnings: int) -> None:
    log = retry_log()
    first, second = delivery(0), delivery(1)
    log.failed(first, ERROR, 0)
    log.failed(first, ERROR, PATIENCE_MS)
    assert [record.args[:2] for record in caplog.records if isinstance(record.args, tuple)] == [("t", 0)]
    began_ms = PATIENCE_MS + silent_ms
    log.failed(second, ERROR, began_ms)
    log.failed(second, ERROR, began_ms + PATIENCE_MS)
    assert len(caplog.records) == warnings


# ---- with a Sender


def refuse(bench: Bench, code: int, *partitions: int) -> None:
    """The request under way is answered with an error for these partitions."""
    bench.answered(*((index, code, -1) for index in partitions), error_message="the disk is full")


def test_an_error_that_lasts_is_told_once_and_one_that_passes_never(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkacore.producer")
    bench = started()
    future = bench.send("t", b"x", partition=0)
    bench.send_now("t", b"y", partition=1)
    for tries in range(5):  # 1.5 s, with the back-off
        assert (len(caplog.records), bench.requests()[0].keys()) == (0, {0, 1}), tries
        refuse(bench, Code.KAFKA_STORAGE_ERROR, 0, 1)
        while not bench.requests():
            bench.step(100)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("records for t-0 and 1 other partition wait and are retried, for 1.")
    assert "delivery_timeout_ms=120000" in told[0]
    assert "KAFKA_STORAGE_ERROR (56): the disk is full [topic t, partition 0, broker 1, Produce v13]" in told[0]
    bench.answered((0, 0, 5), (1, 0, 5))
    assert future.result(0).offset == 5
    future = bench.send("t", b"z", partition=0)  # the next error is another one, and passes
    bench.step()
    refuse(bench, Code.NOT_LEADER_OR_FOLLOWER, 0)
    bench.step(200)
    bench.answered((0, 0, 6))
    assert future.result(0).offset == 6
    assert len(caplog.records) == 1


def test_a_partition_that_stays_without_a_leader_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "kafkacore.producer")
    bench = started(leaders=(1, -1))
    bench.send("t", b"x", partition=1)
    for _ in range(12):
        bench.publish()  # the answers to what is asked while a leader is missing
        bench.step(200)
    (told,) = (record.getMessage() for record in caplog.records)
    assert "LEADER_NOT_AVAILABLE (5): no broker leads the partition [topic t, partition 1]" in told
