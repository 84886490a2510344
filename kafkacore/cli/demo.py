"""`kafkacore demo`: the flights of 2013 through the producer to a broker and back, compared with their source."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, RecordMetadata, TopicPartition, errors
from kafkacore.cli.demo_pipeline import pipeline_demo
from kafkacore.cli.flights import Flights, load_flights
from kafkacore.cli.options import Failure, Json, Settings, client_settings, print_json
from kafkacore.cli.terminal import console, messages, record_progress
from kafkacore.plurals import counted
from kafkacore.records import RecordColumns
from kafkacore.spark.pipeline.running import missing as pipelines_missing
from kafkacore.testing import EmbeddedCluster

PARTITIONS = 4
SAMPLE_EVERY = 2000


class Leg(NamedTuple):
    """One way of the journey: how much, how long, and when so many records were done."""

    name: str
    records: int
    size_bytes: int
    seconds: float
    marks: list[tuple[float, int]]


@contextlib.contextmanager
def _cluster(bootstrap_server: str | None) -> Iterator[tuple[str, str]]:
    """Address and name of the cluster to use: the given one, or a broker embedded for the occasion."""
    if bootstrap_server is not None:
        yield bootstrap_server, f"the cluster at {bootstrap_server}"
    else:
        with EmbeddedCluster(brokers=1) as embedded:
            yield embedded.bootstrap_servers, f"an embedded broker at {embedded.bootstrap_servers}"


def _send(settings: dict[str, Any], topic: str, flights: Flights, visible: bool) -> tuple[Leg, Leg]:
    """Every flight by one `send` each; when they were handed over, and when they were acknowledged."""
    count = len(flights.documents)
    handed: list[tuple[float, int]] = [(0.0, 0)]
    acknowledged: list[float] = []

    def on_delivery(metadata: RecordMetadata | None, error: errors.KafkaError | None) -> None:
        acknowledged.append(time.perf_counter())

    with KafkaProducer(settings) as producer, record_progress("sending", count, visible=visible) as bar:
        send = producer.send
        producer.partitions_for(topic)
        start = time.perf_counter()
        for number, (carrier, document, timestamp_ms) in enumerate(zip(*flights, strict=True), 1):
            if number % SAMPLE_EVERY:
                send(topic, document, carrier, timestamp_ms=timestamp_ms)
            else:
                send(topic, document, carrier, timestamp_ms=timestamp_ms, on_delivery=on_delivery)
                handed.append((time.perf_counter() - start, number))
                bar.update(bar.task_ids[0], completed=number)
        enqueued = time.perf_counter() - start
        producer.flush(120)
        done = time.perf_counter() - start
    size = sum(map(len, flights.documents)) + sum(map(len, flights.carriers))
    marks = [(0.0, 0), *((moment - start, i * SAMPLE_EVERY) for i, moment in enumerate(sorted(acknowledged), 1)), (done, count)]
    queued = Leg("handed to send()", count, size, enqueued, [*handed, (enqueued, count)])
    return queued, Leg("acknowledged (acks=all)", count, size, done, marks)


def _read(settings: dict[str, Any], topic: str, count: int, visible: bool) -> tuple[Leg, dict[bytes, list[bytes]], Counter[int]]:
    """Everything in the topic, as columns: the leg, the documents of each carrier in order, flights per day."""
    by_carrier: dict[bytes, list[bytes]] = {}
    days: Counter[int] = Counter()
    marks: list[tuple[float, int]] = [(0.0, 0)]
    fetched: list[RecordColumns] = []
    got = size = 0
    settings = {**settings, "auto.offset.reset": "earliest"}
    with KafkaConsumer(settings) as consumer, record_progress("reading", count, visible=visible) as bar:
        where = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        ends = consumer.end_offsets(where)
        if sum(ends.values()) != count:
            raise Failure(f"the topic holds {sum(ends.values()):,} records where {count:,} were sent")
        consumer.assign(where)
        start = time.perf_counter()
        while got < count:
            batches = consumer.poll_batch(timeout=30)
            if not len(batches):
                raise Failure(f"only {got:,} of {count:,} records came back")
            for columns in batches:
                fetched.append(columns)
                got += len(columns)
            marks.append((time.perf_counter() - start, got))
            bar.update(bar.task_ids[0], completed=got)
        seconds = time.perf_counter() - start
    for columns in fetched:
        for carrier, document in zip(columns.keys, columns.values, strict=True):
            by_carrier.setdefault(carrier or b"", []).append(document or b"")
        size += int(columns.keys.lengths.sum() + columns.values.lengths.sum())
        days.update((columns.timestamps_ms // 86_400_000).tolist())
    return Leg("read back, CRC checked", got, size, seconds, marks), by_carrier, days


def _differences(flights: Flights, by_carrier: dict[bytes, list[bytes]]) -> int:
    """How many flights are missing, added, changed or out of their carrier's order."""
    truth: dict[bytes, list[bytes]] = {}
    for carrier, document in zip(flights.carriers, flights.documents, strict=True):
        truth.setdefault(carrier, []).append(document)
    wrong = 0
    for carrier in truth.keys() | by_carrier.keys():
        expected, got = truth.get(carrier, []), by_carrier.get(carrier, [])
        wrong += sum(a != b for a, b in zip(expected, got, strict=False)) + abs(len(expected) - len(got))
    return wrong


PICTURE = Path("demo-output/flights.png")
NO_PICTURE = "the package matplotlib, which is not installed: pip install matplotlib"


def _plot(legs: list[Leg], days: Counter[int], path: Path) -> None:
    """A PNG: records over time on each leg, and the flights per day that came back."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.dates as mdates
    import matplotlib.pyplot as plt

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 7), layout="constrained")
    for leg, colour in zip(legs, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        seconds, counts = zip(*leg.marks, strict=True)
        top.plot(seconds, [n / 1000 for n in counts], label=f"{leg.name}: {leg.records / leg.seconds:,.0f} records/s", color=colour)
    top.set(xlabel="seconds since the leg began", ylabel="thousand records", title="Records over time")
    top.grid(alpha=0.3)
    top.legend(loc="lower right")
    bottom.plot(np.array(sorted(days), "datetime64[D]"), [days[day] for day in sorted(days)], color="tab:green", linewidth=0.8)
    bottom.xaxis.set_major_formatter(mdates.DateFormatter("%b"))  # type: ignore[no-untyped-call]
    bottom.set(ylabel="flights per day (UTC)", title="What came back: flights by the timestamps of their records, 2013")
    bottom.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def demo(
    bootstrap_server: Annotated[
        str | None, typer.Option("-b", "--bootstrap-server", metavar="HOST:PORT", help="Run on this cluster instead of an embedded broker.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="PNG", show_default=str(PICTURE), help="Where the picture goes; it takes matplotlib.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many flights.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the topic there.")] = False,
    spark: Annotated[
        bool | None, typer.Option("--spark/--no-spark", help="Also the pipeline on Spark, on a broker of its own; default if it is there.")
    ] = None,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Send the 336,776 flights that left New York City in 2013 through a broker, read them back and compare them with their source.

    Then run January through the pipeline that `kafkacore pipeline init` writes, if Spark is there."""
    draws = importlib.util.find_spec("matplotlib") is not None
    if plot is not None and not draws:
        raise Failure(f"--plot takes {NO_PICTURE}")
    plot = PICTURE if plot is None else plot
    no_pipeline = "asked for" if spark is False else pipelines_missing() or (None if draws else f"its picture takes {NO_PICTURE}")
    if spark and no_pipeline:
        raise Failure(no_pipeline)
    flights = load_flights(limit)
    topic = f"kafkacore-demo-{time.time_ns():x}"
    with _cluster(bootstrap_server) as (address, name):
        settings = client_settings(address, setting)
        if not json:
            messages.print(f"{len(flights.documents):,} flights as JSON, keyed by carrier, to {name} and back")
        with KafkaAdminClient(settings) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, configs={"retention.ms": "-1"})]).check()  # the flights are of 2013
            try:
                legs = [*_send(settings, topic, flights, not json)]
                back, by_carrier, days = _read(settings, topic, len(flights.documents), not json)
                legs.append(back)
            finally:
                if not keep:
                    admin.delete_topics([topic])
    wrong = _differences(flights, by_carrier)
    if draws:
        _plot(legs, days, plot)
    with_pipeline = not wrong and no_pipeline is None
    if json:
        pipeline = pipeline_demo(plot.with_name("pipeline.png"), False) if with_pipeline else None
        rates = [{"leg": leg.name, "records": leg.records, "bytes": leg.size_bytes, "seconds": round(leg.seconds, 6)} for leg in legs]
        equal = len(flights.documents) - wrong
        figures = {"cluster": address, "legs": rates, "records_equal": equal, "records_wrong": wrong, "plot": str(plot) if draws else None}
        print_json({**figures, "pipeline": pipeline})
    else:
        table = Table("", "records", "MB", "seconds", "records/s", "MB/s")
        for column in table.columns[1:]:
            column.justify = "right"
        for leg in legs:
            megabytes = leg.size_bytes / 1e6
            rate, flow = leg.records / leg.seconds, megabytes / leg.seconds
            table.add_row(leg.name, f"{leg.records:,}", f"{megabytes:.1f}", f"{leg.seconds:.3f}", f"{rate:,.0f}", f"{flow:,.0f}")
        console.print(table)
        console.print(f"plot: {plot}" if draws else f"no picture: it takes {NO_PICTURE}")
    if wrong:
        raise Failure(f"{counted(wrong, 'record')} not equal to the source")
    if not json:
        console.print(f"all {len(flights.documents):,} records equal their source, each carrier's in its order")
        if with_pipeline:
            pipeline = pipeline_demo(plot.with_name("pipeline.png"), True)
            updates = ", ".join(f"{seconds:.1f} s" for seconds in pipeline["updates"])
            how_often = counted(len(pipeline["updates"]), "update")
            console.print(f"pipeline on Spark: {pipeline['records']:,} flights in {how_often} ({updates})")
            console.print(f"{pipeline['checked']}; plot: {pipeline['plot']}")
        elif spark is None:
            console.print(f"left out, the pipeline on Spark: {no_pipeline} (from a checkout: make demo ARGS=--spark)")
