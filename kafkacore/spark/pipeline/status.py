"""What is known of a pipeline's runs: made of Spark's progress reports, kept in a file that outlives them. No pyspark here, no clock.

Rows and expectations add up over all runs; rates, offsets and watermark are those of the last batch that had any.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kafkacore.errors import UsageError
from kafkacore.private_files import write_file
from kafkacore.spark.pipeline.expectations import Metric

FORMAT = 1
MESSAGE_CHARACTERS = 1_000
FORGOTTEN = re.compile(r"\[LOCATION_ALREADY_EXISTS\] Cannot name the managed table as (\S+), as its associated location '([^']+)'")
FLOW_EVENT = re.compile(r"Flow '?(\S+?)'? (?:is|has) ([A-Z]+)\b.*")
FLOW_FAILURE = re.compile(r"(?:Flow (\S+) has FAILED\b|Failed to resolve flow( due to upstream failure)?: (\S+?)\.?(?:\n|$))")
REASON = "\nError: "
NEVER = "1970-01-01T00:00:00.000Z"
"""The watermark that Spark reports of a query which has none yet."""
Offsets = dict[str, dict[str, int]]
"""Topic to partition to offset."""


@dataclass
class Expectation:
    """How often a condition was looked at, and did not hold.

    Attributes:
        action: what happens to the rows of which it did not hold.
        rows: looked at.
        failed: of them.
    """

    action: str
    rows: int = 0
    failed: int = 0


@dataclass
class Flow:
    """One streaming query of the pipeline.

    Attributes:
        rows: read, over all runs.
        batches: that had rows.
        rows_per_second: of the last of them.
        batch_ms: how long it took.
        last_batch_at: when it began, as Spark says it (ISO 8601, UTC).
        watermark: event time up to which nothing more is expected.
        late_rows: dropped since they came after it (Spark counts them after grouping, so these are at most the records).
        read_to: where reading has got to.
        ends: the ends of the partitions at that time.
        expectations: by flow function and name.
    """

    rows: int = 0
    batches: int = 0
    rows_per_second: float | None = None
    batch_ms: int | None = None
    last_batch_at: str | None = None
    watermark: str | None = None
    late_rows: int = 0
    read_to: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    expectations: dict[str, Expectation] = field(default_factory=dict)

    @property
    def behind(self) -> int | None:
        """Records between where reading has got to and the ends; None if the flow reads no Kafka."""
        return lag(self.read_to, self.ends) if self.read_to else None


@dataclass
class Status:
    """A pipeline's runs.

    Attributes:
        pipeline: its name.
        state: "running", "stopped" or "failed"; what a run that was killed left is "running".
        updates: finished ones, over all runs.
        unfinished: one has begun and not been finished: the next does its rest.
        started_at: when the last run began, ISO 8601, UTC.
        ended_at: when it ended, done or failed; None while it runs, and if it was killed.
        finished_at: when the last update ended.
        seconds: how long that took.
        last_error: its time and text, and its flow if known; kept until an update succeeds.
        flows: by name.
    """

    pipeline: str
    state: str = "stopped"
    updates: int = 0
    unfinished: bool = False
    started_at: str | None = None
    ended_at: str | None = None
    finished_at: str | None = None
    seconds: float | None = None
    last_error: dict[str, str] | None = None
    flows: dict[str, Flow] = field(default_factory=dict)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Takes in one progress report of a streaming query, as Spark writes it in JSON."""
        flow = self.flows.setdefault(flow_name(progress.get("name")), Flow())
        rows = int(progress.get("numInputRows") or 0)
        flow.rows += rows
        if rows:
            flow.batches += 1
            flow.rows_per_second = float(progress.get("processedRowsPerSecond") or 0.0)
            flow.batch_ms = int((progress.get("durationMs") or {}).get("triggerExecution") or 0)
            flow.last_batch_at = progress.get("timestamp")
        flow.watermark = _watermark((progress.get("eventTime") or {}).get("watermark", flow.watermark))
        flow.late_rows += sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in progress.get("stateOperators") or ())
        read_to: Offsets = {}
        ends: Offsets = {}
        for source in progress.get("sources") or ():
            read_to.update(_offsets(source.get("endOffset")))
            ends.update(_offsets(source.get("latestOffset")))
        if read_to:
            flow.read_to, flow.ends = read_to, ends or read_to
        for name, values in (progress.get("observedMetrics") or {}).items():
            metric = Metric.read(name)
            if metric is not None:
                found = flow.expectations.setdefault(f"{metric.flow}.{metric.name}", Expectation(metric.action))
                found.rows += int(values.get("rows") or 0)
                found.failed += int(values.get("failed") or 0)

    # ---- on disk

    def write(self, path: Path) -> None:
        """Replaces the file: a reader sees the old or the new one."""
        part = path.with_suffix(f".{os.getpid()}.part")
        write_file(part, json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode())
        part.replace(path)

    @classmethod
    def read(cls, path: Path, pipeline: str) -> Status:
        """What was recorded; an empty one if nothing was yet.

        Raises:
            UsageError: the file is not one of these.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            flows = data.pop("flows")
            status = cls(**data)
            for name, flow in flows.items():
                expectations = {key: Expectation(**each) for key, each in flow.pop("expectations").items()}
                status.flows[name] = Flow(**flow, expectations=expectations)
                status.flows[name].watermark = _watermark(status.flows[name].watermark)
        except FileNotFoundError:
            return cls(pipeline)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{path} is not a pipeline's status ({error}): remove it; offsets are not kept there") from None
        return status


def lag(read_to: Offsets, ends: Offsets) -> int:
    """How many records there are still to read."""
    pairs = ((end, read_to.get(topic, {}).get(each, 0)) for topic, partitions in ends.items() for each, end in partitions.items())
    return sum(max(0, end - at) for end, at in pairs)


def partitions_of(flows: Iterable[Flow]) -> set[tuple[str, int]]:
    """Every partition that flows read."""
    return {(topic, int(partition)) for flow in flows for topic, partitions in flow.read_to.items() for partition in partitions}


def flow_name(query: str | None) -> str:
    """A query's name without the catalog and database that Spark puts before it."""
    return (query or "unnamed").rpartition(".")[2].strip("`")


class FlowFailure(NamedTuple):
    """What an event says of a flow that failed.

    Attributes:
        flow: its name.
        reason: why, in one line; "" if the event does not say.
        follows: whether only since another flow failed.
    """

    flow: str
    reason: str
    follows: bool


def flow_failure(event: str) -> FlowFailure | None:
    """The failure that an event is about; None if it is about something else."""
    match = FLOW_FAILURE.match(event)
    if match is None:
        return None
    _, says, reason = event.partition(REASON)
    return FlowFailure(flow_name((match[1] or match[3]).strip("'")), one_line(reason) if says else "", match[2] is not None)


class Events:
    """Hands on the events of an update, without the COMPLETED that Spark says also of a flow that ends with an error, before its FAILED.

    Attributes:
        failed: the first flow that failed, and of its own if there is one.
    """

    def __init__(self, hear: Callable[[str], None]) -> None:
        """Prepares.

        Args:
            hear: is called with each event; with that of a flow's end when the next event has come.
        """
        self.failed: FlowFailure | None = None
        self._hear = hear
        self._held: str | None = None

    def __call__(self, event: str) -> None:
        """The next event."""
        failure = flow_failure(event)
        if failure is not None:
            if self.failed is None or (self.failed.follows and not failure.follows):  # Spark tells first of those that follow
                self.failed = failure
            if self._held is not None and _flow_of(self._held) == failure.flow:
                self._held = None
        self.end()
        if event.rstrip(".").endswith("has COMPLETED") and _flow_of(event) is not None:
            self._held = event
        else:
            self._hear(event)

    def end(self) -> None:
        """No more events."""
        held, self._held = self._held, None
        if held is not None:
            self._hear(held)


def _flow_of(event: str) -> str | None:
    match = FLOW_EVENT.fullmatch(event)
    return None if match is None else flow_name(match[1])


def event_text(event: str) -> str:
    """What Spark says of a run, in few words; nothing of a flow that is yet to begin."""
    if (failure := flow_failure(event)) is not None:
        return f"{failure.flow} failed" + (f": {failure.reason}" if failure.reason else "")
    match = FLOW_EVENT.fullmatch(event)
    if match is None:
        return one_line(event)
    return "" if match[2] in ("QUEUED", "PLANNING", "STARTING") else f"{flow_name(match[1])} {match[2].lower()}"


def one_line(error: object) -> str:
    """What went wrong, out of the pages that Spark makes of it: the Python error below it, the error a flow raised, or its first line."""
    text = str(error)
    if (forgotten := FORGOTTEN.search(text)) is not None:
        return (
            f"table {forgotten[1]} has files of an earlier run ({forgotten[2]}) of which Spark's catalog knows nothing: one in memory ends "
            "with its Spark. A pipeline with tables needs one that lasts: spark.sql.catalogImplementation: hive in its configuration, say"
        )
    for pattern in (
        r"^(?:kafkacore\.errors\.\w+|(?:pyspark\.errors\.[\w.]*)?Py\w*Error): (.+)$",
        r"\[USER_RAISED_EXCEPTION\] (.+)",
        r"^(?:[\w.]+(?:Error|Exception)): (.+)$",
    ):
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            return _tidy(found[-1])
    return _tidy(next((line for line in text.splitlines() if line.strip()), type(error).__name__))


def _tidy(text: str) -> str:
    text = re.sub(r"\s+SQLSTATE: \w+.*$", "", " ".join(text.split()))
    return text if len(text) <= MESSAGE_CHARACTERS else text[:MESSAGE_CHARACTERS] + "..."


def _watermark(told: str | None) -> str | None:
    return None if told == NEVER else told


def _offsets(given: Any) -> Offsets:
    """The offsets of a Kafka source; nothing for any other kind."""
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            given = json.loads(given)
    if not isinstance(given, Mapping):
        return {}
    found: Offsets = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping) or not all(isinstance(offset, int) for offset in partitions.values()):
            return {}
        if partitions:                                              # without any it is a topic's id
            found[topic] = {str(partition): offset for partition, offset in partitions.items()}
    return found
