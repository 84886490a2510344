"""How far streaming queries are behind, from what Spark reports of their progress.

Spark lets a Python source report no metrics of its own, but it reports offsets: where a query stands and where its partitions end. Works
with `format("kafkacore")`, with the fast path and with Spark's own Kafka source.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkacore.errors import ConfigError
from kafkacore.spark import offsets
from kafkacore.spark.offsets import Partition

log = logging.getLogger(__name__)

KEPT_ENDED = 100


class SourceLag(NamedTuple):
    """How far one source of a query is behind after a batch.

    Attributes:
        query: the query's name, or its id if it has none.
        query_id, batch_id: which query, which batch.
        source: its number among the query's sources.
        metrics: minOffsetsBehindLatest, maxOffsetsBehindLatest, avgOffsetsBehindLatest, as text, as Spark's own source reports them.
        by_partition: offsets behind, by (topic, partition).
        rows_per_second: processed; ranges, not records, with the fast path.
    """

    query: str
    query_id: str
    batch_id: int
    source: int
    metrics: dict[str, str]
    by_partition: dict[Partition, int]
    rows_per_second: float


def _offsets_of(text: Any) -> dict[Partition, int] | None:
    """Offsets out of a progress report; None for those of a source that is not Kafka."""
    if not text:
        return None
    try:
        return offsets.from_json(json.loads(text) if isinstance(text, str) else text)
    except (ConfigError, ValueError):
        return None


def lags(progress: Any) -> list[SourceLag]:
    """The lag of each Kafka source in a progress report.

    Args:
        progress: a `StreamingQueryProgress`, as in `query.lastProgress` or a listener's event.
    """
    found = []
    for number, source in enumerate(progress.sources):
        consumed, latest = _offsets_of(source.endOffset), _offsets_of(source.latestOffset)
        if consumed is None or latest is None:
            continue
        found.append(
            SourceLag(
                query=progress.name or str(progress.id),
                query_id=str(progress.id),
                batch_id=progress.batchId,
                source=number,
                metrics=offsets.behind_latest(consumed, latest),
                by_partition={each: end - consumed.get(each, 0) for each, end in latest.items()},
                rows_per_second=source.processedRowsPerSecond,
            )
        )
    return found


class LagListener(StreamingQueryListener):
    """Keeps the lag of every query, running or ended: `spark.streams.addListener(LagListener())`.

    Attributes:
        current: the last report, by (query name or id, number of the source); a query that ends is taken out.
        ended: the last report of queries that have ended, by the same keys, those that ended last at the end; at most `KEPT_ENDED`. A
            query that is started again under its name is in `current` too.
    """

    def __init__(self, report: Callable[[SourceLag], object] | None = None) -> None:
        """Starts with nothing known.

        Args:
            report: called after each batch, for each Kafka source; without it reports are logged at level INFO.
        """
        self._report = report
        self.current: dict[tuple[str, int], SourceLag] = {}
        self.ended: dict[tuple[str, int], SourceLag] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        for lag in lags(event.progress):
            self.current[lag.query, lag.source] = lag
            if self._report is not None:
                self._report(lag)
            else:
                log.info("query %s, batch %d: %s", lag.query, lag.batch_id, lag.metrics)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has arrived: what was reported last holds."""

    def onQueryTerminated(self, event: Any) -> None:
        """The query has ended."""
        over = {key: lag for key, lag in self.current.items() if lag.query_id == str(event.id)}
        ended = [*(each for each in self.ended.items() if each[0] not in over), *over.items()]
        self.ended = dict(ended[-KEPT_ENDED:])                    # a new one, as `current`: who iterates over the old one is not disturbed
        self.current = {key: lag for key, lag in self.current.items() if key not in over}
