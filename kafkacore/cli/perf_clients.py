"""`kafkacore perf produce` and `perf consume`: how fast a cluster takes and gives records, as this package's clients see it.

Source: Kafka's kafka-producer-perf-test (ProducerPerformance) and kafka-consumer-perf-test (ConsumerPerformance).
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.cli import completion
from kafkacore.cli.options import DEFAULT_BOOTSTRAP, PATIENCE_MS, Bootstrap, Failure, Json, Settings, client_settings, print_json
from kafkacore.cli.perf_report import Progress, Samples, plot_run, show_rate, show_times, throughput
from kafkacore.cli.setting_files import was_typed
from kafkacore.cli.terminal import console, record_progress
from kafkacore.config import ConsumerConfig, ProducerConfig
from kafkacore.consumer import RebalanceListener
from kafkacore.plurals import counted

SAMPLED = 100_000
"""Latencies that are taken at most: a callback for every record would be a good part of what is measured."""
ROWS = 10_000
_SLICE_S = 0.01
_DIFFERENT = 1_000
_CALL_BYTES = 4 << 20

Columns = Annotated[bool, typer.Option("--columns", help="Many records with a call, as columns, in place of an object each.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="PNG", help="Draw the rate and the times.")]


# -- produce ----------------------------------------------------------------------------------------------------------------------


def payloads_of(file: Path | None, delimiter: bytes, size: int) -> list[bytes]:
    """The values to send, over and over: what a file holds, or random letters as Kafka's tool makes them."""
    if file is None:
        different = max(1, min(_DIFFERENT, _CALL_BYTES // size))
        letters = np.random.default_rng(0).integers(ord("A"), ord("Z") + 1, (different, size), dtype=np.uint8)
        return [row.tobytes() for row in letters]
    found = [part for part in file.read_bytes().split(delimiter) if part]
    if not found:
        raise Failure(f"{file}: there is no payload in it")
    return found


def unescaped(text: str) -> bytes:
    """ "\\n" as the shell passes it, as a newline."""
    try:
        found = text.encode().decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        found = b""
    if not found:
        raise typer.BadParameter(f"{text!r} is no text to look for, such as \\n", param_hint="--payload-delimiter")
    return found


def column_of(payloads: list[bytes], rows: int) -> Any:
    """Payloads over and over: a slice of `rows` from any payload on lies in it. An array where all are of one length."""
    needed = itertools.islice(itertools.cycle(payloads), len(payloads) + rows)
    sizes = {len(payload) for payload in payloads}
    return np.frombuffer(b"".join(needed), f"V{sizes.pop()}") if len(sizes) == 1 else list(needed)


class Sender:
    """Sends so many records, and takes the time that their delivery takes.

    Args:
        producer: sends.
        topic: where to.
        payloads: the values, used in turns.
        rows: records that one call sends at most.
    """

    def __init__(self, producer: KafkaProducer, topic: str, payloads: list[bytes], rows: int) -> None:
        self._producer = producer
        self._topic = topic
        self._payloads = payloads
        self._column = column_of(payloads, rows)
        self.latency = Samples()
        self.failures: list[errors.KafkaError] = []
        self.failed = 0

    def objects(self, first: int, count: int, every: int) -> None:
        """Sends records one by one; of one in `every` the latency is taken."""
        send, topic, payloads = self._producer.send, self._topic, self._payloads
        turn = itertools.islice(itertools.cycle(payloads), first % len(payloads), None)
        for number, value in zip(range(first, first + count), turn, strict=False):
            if number % every:
                send(topic, value)
            else:
                send(topic, value, on_delivery=functools.partial(self._delivered, time.monotonic()))

    def columns(self, first: int, count: int, every: int) -> None:
        """Sends records with one call; the latency is that of the whole call."""
        turn = first % len(self._payloads)
        values = self._column[turn : turn + count]
        self._producer.send_many(self._topic, values).add_done_callback(functools.partial(self._all_delivered, time.monotonic()))

    def _delivered(self, since: float, metadata: Any, error: errors.KafkaError | None) -> None:
        if error is None:
            self.latency.add((time.monotonic() - since) * 1000)
        else:
            self.failed += 1
            self.failures[:1] = [error]

    def _all_delivered(self, since: float, future: Any) -> None:
        failed = future.result(0).errors
        if failed:
            self.failed += len(failed)
            self.failures[:1] = [next(iter(failed.values()))]
        else:
            self.latency.add((time.monotonic() - since) * 1000)


def paced(total: int, rate: float, rows: int, start: float) -> Iterator[tuple[int, int]]:
    """(first, count) of the slices to send, each when the rate allows it; a rate of 0 has no bound."""
    first = 0
    if rate > 0:
        rows = max(1, min(rows, round(rate * _SLICE_S)))
    while first < total:
        if rate > 0:
            ahead_s = first / rate - (time.monotonic() - start)
            if ahead_s > 0:
                time.sleep(ahead_s)
        count = min(rows, total - first)
        yield first, count
        first += count


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.", autocompletion=completion.topics)],
    records: Annotated[int, typer.Option("-n", "--num-records", min=1, help="How many.")] = 1_000_000,
    size: Annotated[int, typer.Option("--record-size", min=1, max=1 << 30, metavar="BYTES", help="Of a value of random letters.")] = 100,
    payload_file: Annotated[
        Path | None, typer.Option("--payload-file", help="Take the values from this file, over and over, in place of random ones.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--payload-delimiter", help="What stands between two values in it.")] = "\\n",
    rate: Annotated[float, typer.Option("--throughput", min=-1, metavar="N", help="Records a second at most; 0 has no bound.")] = 0,
    columns: Columns = False,
    plot: Plot = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Send records and say how fast they were taken: the peer of kafka-producer-perf-test. -X acks=1, -X compression.type=lz4, ..."""
    payloads = payloads_of(payload_file, unescaped(delimiter), size)
    rows = max(1, min(ROWS, _CALL_BYTES // max(map(len, payloads)))) if columns else ROWS // 10
    patience: dict[str, Any] = {"max.block.ms": PATIENCE_MS}
    settings = client_settings(bootstrap_server, setting, kind=ProducerConfig, **patience)
    with KafkaProducer(settings) as producer:
        producer.partitions_for(topic)                            # connected, and the topic is known, before the clock starts
        sender = Sender(producer, topic, payloads, rows if columns else 0)
        send = sender.columns if columns else sender.objects
        every = max(1, records // SAMPLED)
        with record_progress(topic, records, visible=not json) as bar:
            progress = Progress(time.monotonic())
            for first, count in paced(records, rate, rows, progress.start):
                send(first, count, every)
                if progress.reached(first + count):
                    bar.update(bar.task_ids[0], completed=first + count)
            lost: errors.DeliveryError | None = None
            try:
                producer.flush()
            except errors.DeliveryError as error:
                lost = error
        progress.reached(records, last=True)
    seconds = progress.points[-1][0]
    if lost is not None:
        raise Failure(str(lost))
    if sender.failures:
        raise Failure(f"{counted(sender.failed, 'record')} or more were not delivered: {sender.failures[0]}")
    whole, rest = divmod(records, len(payloads))
    sent_bytes = whole * sum(map(len, payloads)) + sum(map(len, payloads[:rest]))
    result = throughput(records, sent_bytes, seconds)
    latency = sender.latency.summary()
    if plot is not None:
        plot_run(plot, f"{topic}: {result['records_per_s']:,.0f} records/s sent", progress, sender.latency, "delivery")
    if json:
        sampled = {"latency_samples": len(sender.latency), "latency_ms": latency}
        print_json({"topic": topic, **result, "columns": columns, **sampled, "plot": str(plot) if plot else None})
        return
    show_rate(result, progress)
    show_times(f"from send{'_many' if columns else ''} to the acknowledgement ({counted(len(sender.latency), 'sample')})", latency)


# -- consume ----------------------------------------------------------------------------------------------------------------------


class _Joined(RebalanceListener):
    """When the group gave this member its partitions."""

    def __init__(self) -> None:
        self.at: float | None = None

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if self.at is None:
            self.at = time.monotonic()


class Reader:
    """Reads, counts and takes the times of polls.

    Args:
        consumer: reads.
        columns: by poll_batch.

    Attributes:
        polls: how long each poll took that brought records.
        ages: how old records were when they were handed out: one of each partition in a poll.
    """

    def __init__(self, consumer: KafkaConsumer, columns: bool) -> None:
        self._consumer = consumer
        self.poll: Callable[[int, float], tuple[int, int]] = self._columns if columns else self._objects
        self.polls = Samples()
        self.ages = Samples()

    def _objects(self, most: int, wait_s: float) -> tuple[int, int]:
        start = time.monotonic()
        polled = self._consumer.poll(wait_s, max(1, min(most, self._consumer.config.max_poll_records)))
        took_ms = (time.monotonic() - start) * 1000
        count = size = 0
        now_ms = time.time() * 1000
        for records in polled.values():
            count += len(records)
            size += sum([len(record.value or b"") + len(record.key or b"") for record in records])
            self.ages.add(max(0.0, now_ms - records[-1].timestamp_ms))
        if count:
            self.polls.add(took_ms)
        return count, size

    def _columns(self, most: int, wait_s: float) -> tuple[int, int]:
        start = time.monotonic()
        batches = self._consumer.poll_batch(wait_s)
        took_ms = (time.monotonic() - start) * 1000
        count = size = 0
        now_ms = time.time() * 1000
        for each in batches:
            count += len(each)
            size += sum(int(np.maximum(column.lengths, 0).sum()) for column in (each.keys, each.values))
            self.ages.add(max(0.0, now_ms - int(each.timestamps_ms[-1])))
        if count:
            self.polls.add(took_ms)
        return count, size


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="What to read.", autocompletion=completion.topics)],
    records: Annotated[int | None, typer.Option("-n", "--num-records", min=1, help="Stop after so many; else when nothing comes.")] = None,
    group: Annotated[str | None, typer.Option("-g", "--group", help="Read as a member of this group; without it all partitions.")] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest", help="Where to begin; with --group only where nothing is committed.")
    ] = "earliest",
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, metavar="S", help="Stop when no record has come for so long.")] = 10.0,
    columns: Columns = False,
    plot: Plot = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    setting: Settings = None,
    json: Json = False,
) -> None:
    """Read records and say how fast they came: the peer of kafka-consumer-perf-test.

    The join is the time from the first poll to the assignment, the fetch time the rest. Columns come as they were fetched, so that a few
    more than --num-records may be read.
    """
    if start not in ("earliest", "latest"):
        raise typer.BadParameter("must be earliest or latest", param_hint="--from")
    own = {"auto.offset.reset": start, "allow.auto.create.topics": False, "default.api.timeout.ms": PATIENCE_MS}
    mine = {"auto.offset.reset": start} if was_typed("start") else {}
    if group is not None:
        mine["group.id"] = group
    with KafkaConsumer(client_settings(bootstrap_server, setting, kind=ConsumerConfig, typed=mine, **own)) as consumer:
        there = [TopicPartition(topic, p) for topic in dict.fromkeys(topics) for p in consumer.partitions_for(topic)]
        joined = _Joined()
        if consumer.config.group_id is None:
            consumer.assign(there)
        else:
            consumer.subscribe(topics, listener=joined)
        reader = Reader(consumer, columns)
        count = size = 0
        with record_progress(", ".join(topics), records, visible=not json) as bar:
            progress = Progress(time.monotonic())
            last = progress.start
            while records is None or count < records:
                left_s = last + timeout - time.monotonic()
                if left_s <= 0:
                    break
                got, bytes_ = reader.poll((records or count + 2**31) - count, min(left_s, 1.0))
                if got:
                    count, size, last = count + got, size + bytes_, time.monotonic()
                    if progress.reached(count):
                        bar.update(bar.task_ids[0], completed=count)
        fetches = consumer.metrics()
    seconds = last - progress.start
    progress.points = [point for point in progress.points if point[0] < seconds] + [(seconds, count)] if count else progress.points
    join_s = 0.0 if joined.at is None else min(joined.at - progress.start, seconds)
    result = throughput(count, size, seconds)
    fetch = throughput(count, size, seconds - join_s)
    times = {
        "join_ms": round(join_s * 1000, 3),
        "fetch_ms": round((seconds - join_s) * 1000, 3),
        "fetch_records_per_s": fetch["records_per_s"],
        "fetch_mb_per_s": fetch["mb_per_s"],
        "fetches": int(fetches["fetch_total"]),
        "fetch_latency_avg_ms": round(fetches["fetch_latency_avg"], 3),
        "fetch_latency_max_ms": round(fetches["fetch_latency_max"], 3),
    }
    if plot is not None:
        plot_run(plot, f"{', '.join(topics)}: {result['records_per_s']:,.0f} records/s read", progress, reader.ages, "age of a record")
    if json:
        summaries = {"poll_ms": reader.polls.summary(), "record_age_ms": reader.ages.summary()}
        drawn = str(plot) if plot else None
        print_json({"topics": topics, "group": group, **result, "columns": columns, **times, **summaries, "plot": drawn})
    else:
        show_rate(result, progress)
        show_fetching(times)
        show_times("a poll that brought records", reader.polls.summary())
        show_times("age of a record when it was handed out", reader.ages.summary())
    if records is not None and count < records:
        raise Failure(f"{count:,} of {counted(records, 'record')}: nothing came for {timeout:g} s")


def show_fetching(times: dict[str, Any]) -> None:
    """Join and fetch time in a line."""
    console.print(
        f"joined in {times['join_ms']:,.0f} ms, fetched for {times['fetch_ms']:,.0f} ms: {times['fetch_records_per_s']:,.0f} records/s, "
        f"{times['fetch_mb_per_s']:,.1f} MB/s; {counted(times['fetches'], 'fetch', 'fetches')}, "
        f"latency {times['fetch_latency_avg_ms']:.1f} ms on average, {times['fetch_latency_max_ms']:.1f} ms at most"
    )
