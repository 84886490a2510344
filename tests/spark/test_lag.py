"""Lag out of progress reports, under the names and in the form of Spark's own Kafka source."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.spark import offsets

pytest.importorskip("pyspark")

from kafkacore.spark import LagListener, lag
from kafkacore.spark.lag import lags


def progress(name: str | None, *sources: tuple[Any, Any], query: str = "id-1", batch: int = 3) -> Any:
    made = [SimpleNamespace(endOffset=end, latestOffset=latest, processedRowsPerSecond=5.0) for end, latest in sources]
    return SimpleNamespace(name=name, id=query, batchId=batch, sources=made)


def test_metrics_are_the_connectors() -> None:
    # as seen of spark-sql-kafka-0-10: 2 x 500 records, 300 taken of each
    assert offsets.behind_latest({("t", 0): 300, ("t", 1): 300}, {("t", 0): 500, ("t", 1): 500}) == {
        "minOffsetsBehindLatest": "200",
        "maxOffsetsBehindLatest": "200",
        "avgOffsetsBehindLatest": "200.0",
    }
    assert offsets.behind_latest({("t", 0): 5}, {("t", 0): 5, ("t", 1): 3})["avgOffsetsBehindLatest"] == "1.5"
    assert offsets.behind_latest({}, {}) == {}


def test_kafka_sources_are_told_from_others() -> None:
    kafka = ('{"t":{"0":7}}', '{"t":{"0":9,"1":1}}')
    parsed = json.loads(kafka[0]), json.loads(kafka[1])
    [first, second] = lags(progress("q", (0, 5), kafka, (None, None), ('{"x":1}', '{"x":2}'), parsed))
    assert (first.query, first.source, first.by_partition) == ("q", 1, {("t", 0): 2, ("t", 1): 1})
    assert first.metrics == second.metrics
    assert first.metrics == {"minOffsetsBehindLatest": "1", "maxOffsetsBehindLatest": "2", "avgOffsetsBehindLatest": "1.5"}


def test_the_listener_keeps_the_last_report_of_every_running_query() -> None:
    seen: list[Any] = []
    listener = LagListener(seen.append)
    for latest in ("5", "9"):
        listener.onQueryProgress(SimpleNamespace(progress=progress(None, ('{"t":{"0":2}}', f'{{"t":{{"0":{latest}}}}}'))))
    listener.onQueryProgress(SimpleNamespace(progress=progress("named", ('{"t":{"0":2}}', '{"t":{"0":2}}'), query="id-2")))
    assert [each.metrics["maxOffsetsBehindLatest"] for each in seen] == ["3", "7", "0"]
    assert {key: each.metrics["maxOffsetsBehindLatest"] for key, each in listener.current.items()} == {("id-1", 0): "7", ("named", 0): "0"}
    listener.onQueryTerminated(SimpleNamespace(id="id-1"))
    assert list(listener.current) == [("named", 0)]
    assert {key: each.metrics["maxOffsetsBehindLatest"] for key, each in listener.ended.items()} == {("id-1", 0): "7"}


def test_of_the_queries_that_have_ended_the_newest_are_kept() -> None:
    listener = LagListener(lambda lag: None)

    def over(name: str, latest: int, query: str) -> None:
        source = ('{"t":{"0":0}}', f'{{"t":{{"0":{latest}}}}}')
        listener.onQueryProgress(SimpleNamespace(progress=progress(name, source, source, query=query)))
        listener.onQueryTerminated(SimpleNamespace(id=query))

    over("again", 1, "id-a")
    for number in range(lag.KEPT_ENDED // 2 - 1):
        over(f"q{number}", 1, f"id-{number}")
    assert len(listener.ended) == lag.KEPT_ENDED
    over("again", 5, "id-b")  # the same name: its report is replaced, and is the newest
    over("last", 1, "id-c")
    assert len(listener.ended) == lag.KEPT_ENDED and not listener.current
    assert next(iter(listener.ended)) == ("q1", 0) and [*listener.ended][-4:] == [("again", 0), ("again", 1), ("last", 0), ("last", 1)]
    assert listener.ended["again", 1].by_partition == {("t", 0): 5}
    listener.onQueryTerminated(SimpleNamespace(id="never reported"))
    assert len(listener.ended) == lag.KEPT_ENDED
