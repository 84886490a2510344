"""When the log says that records are retried: how long an outage is one outage, and when its line comes again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.producer.retry_log import PATIENCE_MS, REPEAT_MS, RetryLog

SILENCE_MS = 1_000
ERROR = errors.NotLeaderOrFollower("moved", broker=1)


def delivery(partition: int) -> Any:
    return SimpleNamespace(queue=partition, topic="t", partition=partition, resolved=False, first_error=lambda: None)


def retry_log() -> RetryLog:
    return RetryLog(delivery_timeout_ms=120_000, silence_ms=SILENCE_MS)


@pytest.mark.parametrize("later_ms", [0, 1, 5_000])
def test_an_error_is_news_again_after_a_while(later_ms: int) -> None:
    log = retry_log()
    assert log.is_news(ERROR, 7)
    assert not log.is_news(ERROR, 8)
    assert not log.is_news(ERROR, 7 + REPEAT_MS - 1)
    assert log.is_news(ERROR, 7 + REPEAT_MS + later_ms)
    assert not log.is_news(ERROR, 7 + REPEAT_MS + later_ms + 1)


@pytest.mark.parametrize(("silent_ms", "warnings"), [(SILENCE_MS - 1, 1), (SILENCE_MS, 1), (SILENCE_MS + 1, 2), (SILENCE_MS + 500, 2)])
def test_an_outage_that_has_been_silent_for_long_is_another_one(
    caplog: pytest.LogCaptureFixture, silent_ms: int, warnings: int
) -> None:
    log = retry_log()
    first, second = delivery(0), delivery(1)
    log.failed(first, ERROR, 0)
    log.failed(first, ERROR, PATIENCE_MS)
    assert [record.args[:2] for record in caplog.records if isinstance(record.args, tuple)] == [("t", 0)]
    began_ms = PATIENCE_MS + silent_ms
    log.failed(second, ERROR, began_ms)
    log.failed(second, ERROR, began_ms + PATIENCE_MS)
    assert len(caplog.records) == warnings
