"""Expectations: what must hold of each row of a flow, counted, and what becomes of rows of which it does not.

    @dp.temporary_view
    @expect_or_dead_letter("readable", "_corrupt IS NULL", topic="flights-rejected", value="_corrupt")
    @expect("has_tail_number", "tailnum IS NOT NULL")
    def flights(): ...

The decorator nearest to the function looks first. A condition that is null does not hold. Counts are Spark's observed metrics, one per
streaming query that a row passes through; `kafkacore pipeline status` adds them up. A flow that is computed again each time (a materialized
view) drops and fails alike, but Spark reports no counts for it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkacore.errors import ConfigError

MARK = "kafkacore"
ACTIONS = ("count", "drop", "fail", "dead_letter")
ROW_CHARACTERS = 500
"""How much of a row an error shows."""

Flow = Callable[[], Any]
Decorator = Callable[[Flow], Flow]


class Metric(NamedTuple):
    """Which expectation a count is of.

    Attributes:
        flow: the function it stands on.
        name: its own.
        action: one of `ACTIONS`.
    """

    flow: str
    name: str
    action: str

    @property
    def text(self) -> str:
        """As Spark knows it."""
        return ":".join((MARK, self.action, self.flow, self.name))

    @classmethod
    def read(cls, text: str) -> Metric | None:
        """What `text` made; None if the observed metric is somebody else's."""
        parts = text.split(":", 3)
        return cls(parts[2], parts[3], parts[1]) if len(parts) == 4 and parts[0] == MARK and parts[1] in ACTIONS else None


def expect(name: str, condition: Any) -> Decorator:
    """Counts the rows of which a condition does not hold, and lets them pass.

    Args:
        name: shown by `kafkacore pipeline status`.
        condition: SQL, such as "delay IS NOT NULL", or a Column.
    """
    return _decorator(name, condition, "count", lambda frame, holds, flow: frame)


def expect_or_drop(name: str, condition: Any) -> Decorator:
    """Drops the rows of which a condition does not hold; the arguments are those of `expect`."""
    return _decorator(name, condition, "drop", lambda frame, holds, flow: frame.filter(holds))


def expect_or_fail(name: str, condition: Any) -> Decorator:
    """Fails the flow at the first row of which a condition does not hold; the error shows the row. Nothing of its batch is committed.

    The arguments are those of `expect`.
    """

    def checked(frame: Any, holds: Any, flow: str) -> Any:
        from pyspark.sql import functions as F

        row = F.substring(F.to_json(F.struct("*")), 1, ROW_CHARACTERS)
        error = F.raise_error(F.concat(F.lit(f"expectation {name} of {flow} does not hold ({_shown(condition)}) for the row "), row))
        return frame.filter(F.when(holds, F.lit(True)).otherwise(error.cast("boolean")))

    return _decorator(name, condition, "fail", checked)


def expect_or_dead_letter(name: str, condition: Any, topic: str, value: str | None = None, **options: str) -> Decorator:
    """Sends the rows of which a condition does not hold to a topic, and drops them from the flow.

    Spark's flows have one target each, so this adds a flow of its own, which reads the source a second time and writes at least once. The
    records carry the headers `expectation`, `condition` and `flow`. The flow must be a streaming one. A row larger than
    kafka.max.request.size, or than the topic takes, fails the flow.

    Args:
        name: as for `expect`.
        condition: as for `expect`.
        topic: where the rows go.
        value: a column that becomes the record's value as it is (string or binary); default the whole row as JSON.
        options: more options of the sink, as for `topic_sink`.
    """

    def decorate(function: Flow) -> Flow:
        from pyspark import pipelines

        from kafkacore.spark.pipeline.topics import topic_sink

        flow = function.__name__
        sink = f"{flow}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}_dead_letters"
        topic_sink(sink, topic, **options)

        def rejected() -> Any:
            from pyspark.sql import functions as F

            frame = function()
            said = {"expectation": name, "condition": _shown(condition), "flow": flow}
            headers = [F.struct(F.lit(key).alias("key"), F.lit(text).cast("binary").alias("value")) for key, text in said.items()]
            sent = F.to_json(F.struct("*")) if value is None else F.col(value)
            return frame.filter(~_holds(condition)).select(sent.alias("value"), F.array(*headers).alias("headers"))

        pipelines.append_flow(target=sink, name=sink)(rejected)
        return _decorator(name, condition, "dead_letter", lambda frame, holds, flow: frame.filter(holds))(function)

    return decorate


def _decorator(name: str, condition: Any, action: str, then: Callable[[Any, Any, str], Any]) -> Decorator:
    """Counts, then does what is to be done: `then(frame, holds, flow)`."""
    if not name or not isinstance(name, str):
        raise ConfigError(f"an expectation needs a name, got {name!r}")

    def decorate(function: Flow) -> Flow:
        if not callable(function):
            raise ConfigError(f"expectation {name} stands before something that is no function: put it between @dp.table and the function")
        metric = Metric(function.__name__, name, action)

        @functools.wraps(function)
        def flow() -> Any:
            from pyspark.sql import functions as F

            holds = _holds(condition)
            counts = [F.count(F.lit(1)).alias("rows"), F.count(F.when(~holds, F.lit(1))).alias("failed")]
            return then(function().observe(metric.text, *counts), holds, metric.flow)

        return flow

    return decorate


def _holds(condition: Any) -> Any:
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))


def _shown(condition: Any) -> str:
    return str(condition)
