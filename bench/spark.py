"""Spark with kafkacore and with its own Kafka connector, in one session, on one Apache Kafka 4.3.1: CPU and wall clock per row.

    python bench/spark.py [--json] [--rounds N] [--rows N] [--only read100,read1k,json,write,pass,stream,trigger]
                          [--plain | --unsafe-arrow] [--conf NAME=VALUE ...]

The cases of a comparison take turns, after rounds that warm the JVM up and are thrown away. CPU is user and system time of the JVM and of
all Python processes, the driver's too; the broker's is apart and in no sum. `ready batches` is a data source in Python that has its Arrow
batches ready, the ceiling of readers in Python; `dropped by Python` is a sink that does nothing with them, the ceiling of writers. Of a
stream both the whole query is told, with what starting it takes, and what its triggers take behind the first. Topics have 4 partitions and
batches of 16 KiB, Kafka's default; keys have 10 bytes.
Needs Java, Maven, Kafka's jars and the connector's, as the tests on a real Kafka do.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from harness import Table, Timing, add_arguments, headline, report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic  # noqa: E402
from kafkacore import spark as kafkacore_spark  # noqa: E402
from kafkacore.spark.options import SINK_DEFAULTS  # noqa: E402
from tests.interop.spark_connector import connector_jars  # noqa: E402
from tests.kit.kafka_server import KafkaServer, why_unavailable  # noqa: E402

OURS, FAST, THEIRS, CEILING = "kafkacore", "kafkacore.spark", "connector", "ready batches"
PARTITIONS = 4
KAFKA_SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
JSON_SCHEMA = "id bigint, price double, name string"
TRIGGER_ROWS = 200
TRIGGERS = 25
FIRST_TRIGGERS = 5
CHECK_INTERVAL_MS = 500
BROKER = {"log_retention_check_interval_ms": CHECK_INTERVAL_MS, "log_segment_delete_delay_ms": 0, "log_segment_bytes": 16 << 20}
TRIGGER_PARTS = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
KINDS = ("wall", "JVM and Python", "JVM", "Python", "broker")


class RealKafka(KafkaServer):
    """A Kafka with the JVM that Kafka's own scripts give it."""

    IS_FAST = False


@dataclass
class Run:
    """One run of one case: nanoseconds of wall clock and CPU, and what the case itself has to tell (milliseconds by name)."""

    took: dict[str, float]
    told: dict[str, float] = field(default_factory=dict)


class Meter:
    """CPU of Spark's processes and of the broker."""

    def __init__(self, spark: Any, broker: KafkaServer) -> None:
        assert broker.process is not None
        self._root = spark.sparkContext._gateway.proc.pid
        self._broker = broker.process.pid

    def cpu_ns(self) -> dict[str, float]:
        """So far, by kind. Processes that ended are in what their parent has waited for; the JVM's are Python's, but for the commands
        by which Hadoop sets the permissions of a checkpoint's files: some 80 ms per trigger, the same for every source.
        """
        tick = 1e9 / os.sysconf("SC_CLK_TCK")
        children: dict[int, list[int]] = defaultdict(list)
        found: dict[int, tuple[bool, float, float]] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_text()
                rest = text[text.rindex(")") + 2 :].split()
                own_ns = time.clock_gettime((~int(name) << 3) | 2) * 1e9  # CLOCK_PROCESS_CPUTIME_ID of that process
                found[int(name)] = (text[text.index("(") + 1 :].startswith("java"), own_ns, (int(rest[13]) + int(rest[14])) * tick)
                children[int(rest[1])].append(int(name))
        used = {"JVM": 0.0, "Python": time.process_time() * 1e9, "broker": found[self._broker][1]}
        left = [self._root]
        while left:
            pid = left.pop()
            left += children[pid]
            is_java, own_ns, ended_ns = found[pid]
            used["JVM" if is_java else "Python"] += own_ns
            used["Python"] += ended_ns
        return used

    def measured(self, case: Callable[[], dict[str, float] | None]) -> Run:
        """Runs it once."""
        gc.collect()
        before, start = self.cpu_ns(), time.perf_counter_ns()
        told = case() or {}
        wall = time.perf_counter_ns() - start
        after = self.cpu_ns()
        took = {kind: after[kind] - before[kind] for kind in after}
        return Run({"wall": wall, "JVM and Python": took["JVM"] + took["Python"], **took}, told)


class Bench:
    """What the cases share: a session, a broker with topics, and the options."""

    def __init__(self, spark: Any, broker: KafkaServer, options: argparse.Namespace) -> None:
        self.spark = spark
        self.servers = broker.bootstrap_servers
        self.meter = Meter(spark, broker)
        self.rounds, self.rows, self.warm_up = options.rounds, options.rows, options.warm_up
        self.trigger_rows = options.trigger_rows or max(1, self.rows // 4)
        self.scratch = Path(tempfile.mkdtemp(prefix="kafkacore-bench-spark-"))
        self._count = 0

    # ---- topics

    def topic(self, name: str) -> str:
        with KafkaAdminClient(bootstrap_servers=self.servers) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS)]).check()
        return name

    def filled(self, name: str, rows: int, value: Callable[[int], bytes], keys: bool) -> str:
        """A topic with so many rows, spread evenly; its values repeat after 20,000."""
        progress(f"filling {name}")
        self.topic(name)
        distinct = min(20_000, rows // PARTITIONS)
        values = [value(i) for i in range(distinct)]
        names = [b"key-%06d" % i for i in range(distinct)] if keys else None
        with KafkaProducer(bootstrap_servers=self.servers) as producer:
            for partition in range(PARTITIONS):
                left = rows // PARTITIONS
                while left:
                    take = min(left, distinct)
                    where = numpy.full(take, partition, "int32")
                    producer.send_many(name, values[:take], names and names[:take], partitions=where)
                    left -= take
            producer.flush()
        return name

    def emptied(self, topics: list[str]) -> None:
        """Their files go in a second. A log that only grows takes memory which the machine must get first, at a cost that varies."""
        with KafkaAdminClient(bootstrap_servers=self.servers) as admin:
            admin.delete_records({(topic, partition): -1 for topic in topics for partition in range(PARTITIONS)}).check()
        time.sleep(2 * CHECK_INTERVAL_MS / 1000)

    # ---- rows

    def read(self, kind: str, topic: str, schema: str | None = None, **options: str) -> Any:
        """A batch read of the whole topic."""
        reader = self.spark.read.format("kafka" if kind == THEIRS else "kafkacore")
        if schema is not None and kind == OURS:
            reader = reader.schema(schema)
        frame = reader.options(**self._common(topic), **options).load()
        return frame if schema is None or kind == OURS else frame.selectExpr(*[each.split()[0] for each in schema.split(", ")])

    def _common(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"}

    def ready(self, rows: int, value_bytes: int, schema: str) -> Any:
        options = {"rows": rows, "parts": PARTITIONS, "value_bytes": value_bytes}
        return self.spark.read.format("prepared").schema(schema).options(**options).load()

    def generated(self) -> Any:
        """Rows to write, which cost next to nothing to make."""
        frame = self.spark.range(0, self.rows, 1, 2)
        return frame.selectExpr("cast(lpad(cast(id % 1000000 as string), 10, 'k') as binary) key", "unhex(repeat('61', 100)) value")

    def write(self, frame: Any, kind: str, topic: str, **options: str) -> None:
        writer = frame.write.format("kafka" if kind == THEIRS else "kafkacore").mode("append")
        writer.options(**{"kafka.bootstrap.servers": self.servers, "topic": topic, **options}).save()

    def stream(self, kind: str, topic: str, triggers: int, per_trigger: int, sink: Callable[[Any], Any]) -> dict[str, float]:
        """A stream over the whole topic: medians of its triggers in ms, without the first ones, and their CPU by kind, in ns per row."""
        self._count += 1
        options = {**self._common(topic), "maxOffsetsPerTrigger": str(per_trigger)}
        if kind == FAST:
            frame = kafkacore_spark.stream(self.spark, **options)
        elif kind == CEILING:
            ready = {"rows": self.rows, "parts": PARTITIONS, "value_bytes": 100, "per_trigger": per_trigger}
            frame = self.spark.readStream.format("prepared").schema(KAFKA_SCHEMA).options(**ready).load()
        else:
            frame = self.spark.readStream.format("kafka" if kind == THEIRS else "kafkacore").options(**options).load()
        checkpoint = self.scratch / f"checkpoint-{self._count}"
        query = sink(frame).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        first = int(kind not in (THEIRS, CEILING))                # batch 0 of ours holds no rows: it pins the start
        before, after = (self._when_committed(query, checkpoint, first + number) for number in (0, triggers - 1))
        query.awaitTermination()
        durations = [each.durationMs for each in query.recentProgress if each.numInputRows]
        kept = durations[FIRST_TRIGGERS:] or durations[1:] or durations
        told = {part: statistics.median(each.get(part, 0) for each in kept) for part in TRIGGER_PARTS}
        used = {kind: (after[kind] - before[kind]) / max(1, triggers - 1) / per_trigger for kind in after}
        return {**told, **used, "JVM and Python": used["JVM"] + used["Python"]}

    def _when_committed(self, query: Any, checkpoint: Path, batch: int) -> dict[str, float]:
        """CPU so far when a batch is done. By its file in the checkpoint: a listener would take 80 ms of the driver's CPU per trigger."""
        committed = checkpoint / "commits" / str(batch)
        for turn in itertools.count(1):
            if committed.exists():
                break
            if turn % 200 == 0 and not query.isActive and not committed.exists():
                raise SystemExit(f"a query ended without batch {batch}: {query.exception()}")
            time.sleep(0.005)
        return self.meter.cpu_ns()

    # ---- turns

    def in_turns(self, title: str, cases: dict[str, Callable[[], Any]], written: list[str] | None = None) -> dict[str, list[Run]]:
        """The runs of every case, in turns; the warm-up is thrown away. What they have `written` is deleted behind each."""
        runs: dict[str, list[Run]] = {name: [] for name in cases}
        for number in range(-self.warm_up, self.rounds):
            for name, case in cases.items():
                progress(f"{title}: round {number + 1}/{self.rounds}: {name}")
                run = self.meter.measured(case)
                if number >= 0:
                    runs[name].append(run)
                if written is not None:
                    self.emptied(written)
        return runs

    def table(self, title: str, rows: int, cases: dict[str, Callable[[], Any]], written: list[str] | None = None) -> Table:
        """What each case takes per row."""
        return per_row(title, rows, self.in_turns(title, cases, written))


def per_row(title: str, rows: int, runs: dict[str, list[Run]]) -> Table:
    table = Table(f"{title}, {rows:,} rows", "ns per row")
    for kind in KINDS:
        table.add(kind, {name: timing([run.took[kind] / rows for run in each]) for name, each in runs.items()})
    return table


def timing(values: list[float]) -> Timing:
    return Timing(statistics.median(values), min(values))


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def fast_read(bench: Bench, topic: str, schema: str) -> dict[str, Callable[[], None]]:
    """The case of `kafkacore.spark.read`."""
    options = bench._common(topic)
    return {FAST: lambda: noop(kafkacore_spark.read(bench.spark, schema, **options))}


def check_same(bench: Bench, topic: str) -> None:
    """Both formats read the same rows, or nothing here means anything."""
    what = ["count(*)", "bit_xor(xxhash64(key, value, topic, partition, offset, timestamp, timestampType))"]
    same(topic, what, *(bench.read(kind, topic) for kind in (OURS, THEIRS)))


def same(topic: str, what: list[str], *frames: Any) -> None:
    """Two frames of a topic, kafkacore's and the connector's, have the same rows."""
    ours, theirs = (frame.selectExpr(*what).first() for frame in frames)
    if ours != theirs:
        raise SystemExit(f"{topic}: kafkacore read {ours}, the connector {theirs}")


def reading(bench: Bench, label: str, value_bytes: int, rows: int, keys: bool) -> list[Table]:
    topic = bench.filled(f"read-{value_bytes}", rows, lambda i: (b"%012d" % i).ljust(value_bytes, b"x"), keys)
    check_same(bench, topic)
    tables = []
    for what, schema in (("all columns", None), ("key and value", "key binary, value binary")):
        cases: dict[str, Callable[[], None]] = {OURS: lambda schema=schema: noop(bench.read(OURS, topic, schema))}
        cases |= fast_read(bench, topic, schema or KAFKA_SCHEMA)
        cases[THEIRS] = lambda schema=schema: noop(bench.read(THEIRS, topic, schema))
        cases[CEILING] = lambda schema=schema: noop(bench.ready(rows, value_bytes, schema or KAFKA_SCHEMA))
        tables.append(bench.table(f"read {label}, {what}, to noop", rows, cases))
    return tables


def json_value(i: int) -> bytes:
    """88 bytes."""
    return (b'{"id": %d, "price": %.3f, "name": "customer %06d", "note": "' % (1_000_000 + i, 100 + i / 64, i)).ljust(86, b"x") + b'"}'


def typed_json(bench: Bench) -> list[Table]:
    rows = bench.rows // 2
    topic = bench.filled("json", rows, json_value, keys=False)

    options = {**bench._common(topic), "value.format": "json"}

    def ours() -> Any:
        return bench.spark.read.format("kafkacore").schema(JSON_SCHEMA).options(**options).load()

    def fast() -> Any:
        return kafkacore_spark.read(bench.spark, JSON_SCHEMA, **options)

    def theirs() -> Any:
        return bench.read(THEIRS, topic).selectExpr(f"from_json(cast(value as string), '{JSON_SCHEMA}') j").selectExpr("j.*")

    what = ["count(*)", "count(id)", "bit_xor(xxhash64(id, price, name))"]
    same(topic, what, ours(), theirs())
    same(topic, what, fast(), theirs())
    makes: dict[str, Callable[[], Any]] = {OURS: ours, FAST: fast, f"{THEIRS}, from_json": theirs}
    cases: dict[str, Callable[[], Any]] = {name: lambda make=make: noop(make()) for name, make in makes.items()}
    return [bench.table("typed columns of JSON, to noop", rows, cases)]


def writing(bench: Bench) -> list[Table]:
    tuned = {"kafka.linger.ms": "5"}                                   # kafkacore's default, which is Kafka 4's
    tuned |= {f"kafka.{name}": value for name, value in SINK_DEFAULTS.items() if name != "client.id"}
    cases: dict[str, Callable[[], Any]] = {}
    written = []
    for name, kind, options in ((OURS, OURS, {}), (THEIRS, THEIRS, {}), (f"{THEIRS}, tuned", THEIRS, tuned)):
        topic = bench.topic(f"write-{len(cases)}")
        written.append(topic)
        cases[name] = lambda kind=kind, options=options, topic=topic: bench.write(bench.generated(), kind, topic, **options)
    cases["dropped by Python"] = lambda: bench.generated().write.format("prepared").mode("append").save()
    cases["generator alone"] = lambda: noop(bench.generated())
    return [bench.table("write 100 B", bench.rows, cases, written)]


def passing(bench: Bench) -> list[Table]:
    source = bench.filled("pass", bench.rows, lambda i: (b"%012d" % i).ljust(100, b"x"), True)
    cases: dict[str, Callable[[], Any]] = {}
    written = []
    for kind in (OURS, THEIRS):
        topic = bench.topic(f"passed-{kind}")
        written.append(topic)
        cases[kind] = lambda kind=kind, topic=topic: bench.write(bench.read(kind, source, "key binary, value binary"), kind, topic)
    return [bench.table("pass-through 100 B, key and value", bench.rows, cases, written)]


def streaming(bench: Bench) -> list[Table]:
    topic = bench.filled("stream", bench.rows, lambda i: (b"%012d" % i).ljust(100, b"x"), True)

    def to_noop(frame: Any) -> Any:
        return frame.writeStream.format("noop")

    triggers = bench.rows // bench.trigger_rows
    cases: dict[str, Callable[[], Any]] = {
        kind: lambda kind=kind: bench.stream(kind, topic, triggers, bench.trigger_rows, to_noop) for kind in (OURS, FAST, THEIRS, CEILING)
    }
    title = f"stream 100 B, {bench.trigger_rows:,} rows a trigger, to noop"
    runs = bench.in_turns(title, cases)
    whole = per_row(f"{title}, the whole query", bench.rows, runs)
    table = Table(f"{title}, without the query's start", "ns per row")
    ns = 1e6 / bench.trigger_rows
    table.add("wall", {name: timing([run.told["triggerExecution"] * ns for run in each]) for name, each in runs.items()})
    for kind in KINDS[1:]:
        table.add(kind, {name: timing([run.told[kind] for run in each]) for name, each in runs.items()})
    return [whole, table]


def small_triggers(bench: Bench) -> list[Table]:
    topic = bench.filled("small", TRIGGER_ROWS * TRIGGERS, lambda i: (b"%012d" % i).ljust(100, b"x"), True)

    def to_noop(frame: Any) -> Any:
        return frame.writeStream.format("noop")

    def to_sink(kind: str) -> Callable[[Any], Any]:
        out = bench.topic(f"small-{kind}")
        options = {"kafka.bootstrap.servers": bench.servers, "topic": out}
        return lambda frame: frame.select("key", "value").writeStream.format("kafka" if kind == THEIRS else "kafkacore").options(**options)

    tables = []
    for title, sinks in (("noop", dict.fromkeys((OURS, THEIRS), to_noop)), ("a topic", {kind: to_sink(kind) for kind in (OURS, THEIRS)})):
        cases = {kind: lambda kind=kind, sink=sink: bench.stream(kind, topic, TRIGGERS, TRIGGER_ROWS, sink) for kind, sink in sinks.items()}
        runs = bench.in_turns(f"triggers to {title}", cases)
        table = Table(f"triggers of {TRIGGER_ROWS} rows, to {title}", "ms")
        for part in TRIGGER_PARTS:
            table.add(part, {name: timing([run.told[part] for run in each]) for name, each in runs.items()})
        tables.append(table)
    return tables


PARTS: dict[str, Callable[[Bench], list[Table]]] = {
    "read100": lambda bench: reading(bench, "100 B", 100, bench.rows, True),
    "read1k": lambda bench: reading(bench, "1 KiB", 1024, bench.rows // 2, False),
    "json": typed_json,
    "write": writing,
    "pass": passing,
    "stream": streaming,
    "trigger": small_triggers,
}


STARTED = time.monotonic()


def progress(text: str) -> None:
    """A line per step, with the seconds since the start: a whole run takes long enough to make one wonder."""
    print(f"{time.monotonic() - STARTED:6.0f} s  {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def session(memory: str, conf: list[str], plain: bool, unsafe_arrow: bool) -> Iterator[Any]:
    """`local[2]` with the connector's jars."""
    settings = {"spark.jars": connector_jars(), "spark.driver.memory": memory, **dict(each.split("=", 1) for each in conf)}
    settings |= dict.fromkeys(("spark.ui.enabled", "spark.ui.showConsoleProgress"), "false")
    if plain:
        from pyspark.sql import SparkSession

        kafkacore_spark.ensure_java()
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    else:
        spark = kafkacore_spark.session("bench", "local[2]", unsafe_arrow=unsafe_arrow, **settings)
    spark.sparkContext.setLogLevel("ERROR")
    from spark_ceiling import PreparedSource

    spark.dataSource.register(PreparedSource)
    yield spark
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}, with commas")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a topic with values of 100 B; half as many of JSON and of 1 KiB")
    parser.add_argument("--trigger-rows", type=int, help="of a streaming trigger (default: a quarter of --rows)")
    parser.add_argument("--warm-up", type=int, default=4, help="rounds that are thrown away; a cold connector costs three times as much")
    parser.add_argument("--memory", default="1g", help="of the driver, which has the executor in it")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="more settings of the session")
    parser.add_argument("--plain", action="store_true", help="a session of Spark's own making, not by kafkacore.spark.session")
    parser.add_argument("--unsafe-arrow", action="store_true", help="without Arrow's checks of its memory (not with --plain)")
    options = parser.parse_args()
    if options.plain and options.unsafe_arrow:
        parser.error("--plain and --unsafe-arrow exclude each other")
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(PARTS)}")
    if reason := why_unavailable():
        raise SystemExit(reason)
    options.rows -= options.rows % (PARTITIONS * 4)
    tables: list[Table] = []
    with RealKafka(**BROKER) as broker, session(options.memory, options.conf, options.plain, options.unsafe_arrow) as spark:
        bench = Bench(spark, broker, options)
        if not options.json:
            print(headline(), flush=True)
        for part in wanted:
            done = PARTS[part](bench)
            tables += done
            for table in done if not options.json else ():
                print(f"\n{table.text()}", flush=True)
    if options.json:
        report(tables, as_json=True)


if __name__ == "__main__":
    main()
