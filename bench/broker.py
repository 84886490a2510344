"""What a broker costs: this one and Apache Kafka 4.3.1, each a process with its log on disk, driven by the same confluent client.

    python bench/broker.py [--json] [--rounds N] [--only load,latency,start,idle] [--records N] [--warm-up N]

Both brokers run all the time and the cases take turns. CPU is user and system time of the broker's whole process, threads of the JVM's
compiler and collector included; megabytes are of values (100 B each), 10^6 bytes. Kafka is warmed up first, and after that keeps what its
compiler learnt. A file is written and deleted before each case, and the client keeps the memory it had: the first touch of a page may cost
a virtual machine more than everything else here, and falls on either broker by chance. What writing the same bytes to a file costs then is
shown beside the brokers.
Needs Java and Kafka's jars, as the tests on a real Kafka do.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import numpy
from harness import Table, Timing, add_arguments, report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.kit.kafka_server import KafkaServer, free_port, why_unavailable

RECORD_BYTES = 100
BATCH_BYTES = 65_536
WARM_UP_ROUNDS = 30  # some 900 MB: the JVM compiles what it does that often, and costs a half to a third of what it did after 180 MB
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
WARM_FACTOR = 8  # of the records' bytes: the client may take memory first, and the page cache keeps what was written before
SETTLE_SECONDS = 65  # the files of deleted topics go after a minute, as file.delete.delay.ms says
IDLE_SECONDS = 10
OURS, THEIRS = "kafkacore", "Kafka 4.3.1"


class OwnBroker:
    """`kafkacore broker` on a directory of its own, with the face of KafkaServer."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kafkacore-bench-"))
        self.port = free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process and returns when it has said that it is there."""
        command = [sys.executable, "-m", "kafkacore", "broker", "--json", "--port", str(self.port), "--data-dir", f"{self.directory}/data"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise SystemExit("kafkacore broker did not start")

    def stop(self) -> None:
        """SIGTERM, and the wait for the end."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def __enter__(self) -> OwnBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class RealKafka(KafkaServer):
    """A Kafka with the JVM that Kafka's own scripts give it."""

    IS_FAST = False


Brokers = dict[str, Any]


def pid_of(broker: Any) -> int:
    pid: int = broker.process.pid
    return pid


def cpu_s(broker: Any) -> float:
    """CPU time of the broker's process so far, to the nanosecond: CLOCK_PROCESS_CPUTIME_ID of another process."""
    return time.clock_gettime((~pid_of(broker) << 3) | 2)


def user_and_system_ticks(broker: Any) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]:
    """The same in ticks of 10 ms, in the process and in the system's calls it made: for shares over many rounds."""
    with open(f"/proc/{pid_of(broker)}/stat", encoding="ascii") as file:
        return numpy.array(file.read().rsplit(")", 1)[1].split()[11:13], dtype=float)


def resident_mb(broker: Any) -> float:
    with open(f"/proc/{pid_of(broker)}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024 / 1e6


@contextlib.contextmanager
def topic_on(broker: Any) -> Any:
    """A new topic of one partition, deleted at the end."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name].result(30)
    yield name
    admin.delete_topics([name])[name].result(30)


def produce(broker: Any, topic: str, records: int) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "acks": "all",
            "batch.size": BATCH_BYTES,
            "linger.ms": 100,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = b"x" * RECORD_BYTES
    for _ in range(records):
        producer.produce(topic, value, partition=0)
    if producer.flush(60):
        raise SystemExit(f"{broker.bootstrap_servers} did not take everything")


def fetch(broker: Any, topic: str, records: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    got = 0
    while got < records:
        messages = consumer.consume(10_000, 10)
        if not messages:
            raise SystemExit(f"{broker.bootstrap_servers} gave {got} of {records} records")
        got += len(messages)
    consumer.close()


def spent(broker: Any, work: Callable[..., None], *args: Any) -> float:
    """CPU milliseconds of the broker per megabyte of values."""
    before = cpu_s(broker)
    work(broker, *args)
    return (cpu_s(broker) - before) * 1e3 / (args[-1] * RECORD_BYTES / 1e6)


def keep_memory() -> None:
    """Has this process keep what it frees, so that the client does not take fresh pages in each round; where the C library can."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)


def warm_pages(nbytes: int) -> None:
    """Leaves free memory that the host has given to this machine already, for the page cache to take: what a deleted file had."""
    piece = bytes(BATCH_BYTES)
    with tempfile.TemporaryFile() as file:
        for position in range(0, nbytes, BATCH_BYTES):
            os.pwrite(file.fileno(), piece, position)


def file_write(records: int) -> float:
    """CPU milliseconds per megabyte for writing as many bytes to a new file: what no broker with a log on disk can do without."""
    piece = bytes(BATCH_BYTES)
    with tempfile.TemporaryFile() as file:
        before = time.process_time()
        for position in range(0, records * RECORD_BYTES, BATCH_BYTES):
            os.pwrite(file.fileno(), piece, position)
        return (time.process_time() - before) * 1e3 / (records * RECORD_BYTES / 1e6)


def load(brokers: Brokers, rounds: int, records: int, warm_up: int = WARM_UP_ROUNDS) -> list[Table]:
    floor: list[float] = []
    costs: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in brokers} for kind in ("produced", "fetched")}
    ticks = {kind: {name: numpy.zeros(2) for name in brokers} for kind in costs}
    for number in range(-warm_up, rounds):
        for name, broker in brokers.items():
            progress(f"load, round {number + 1}/{rounds}: {name}")
            warm_pages(WARM_FACTOR * records * RECORD_BYTES)
            with topic_on(broker) as topic:
                for kind, work in (("produced", produce), ("fetched", fetch)):
                    before = user_and_system_ticks(broker)
                    figure = spent(broker, work, topic, records)
                    if number >= 0:
                        costs[kind][name].append(figure)
                        ticks[kind][name] += user_and_system_ticks(broker) - before
        warm_pages(WARM_FACTOR * records * RECORD_BYTES)
        floor.append(file_write(records))
    table = Table(f"broker CPU, {RECORD_BYTES} B records in {BATCH_BYTES // 1024} KiB batches, acks=all, log on disk", "ms of CPU per MB")
    for kind, by_name in costs.items():
        table.add(kind, {name: Timing(statistics.median(figures), min(figures)) for name, figures in by_name.items()})
        shares = {name: ticks[kind][name][1] / max(ticks[kind][name].sum(), 1) for name in brokers}
        table.add(
            f"{kind}, in the system's calls alone",
            {name: Timing(statistics.median(figures) * shares[name], min(figures) * shares[name]) for name, figures in by_name.items()},
        )
    write = Table("the same bytes written to a file by pwrite", "ms of CPU per MB")
    write.add("", {"pwrite": Timing(statistics.median(floor), min(floor))})
    return [table, write]


def latency(brokers: Brokers, rounds: int, records: int) -> list[Table]:
    """One record after the other, from produce() to the consumer that has it."""
    taken: dict[str, list[float]] = {name: [] for name in brokers}
    with contextlib.ExitStack() as stack:
        pairs = {}
        for name, broker in brokers.items():
            topic = stack.enter_context(topic_on(broker))
            address = {"bootstrap.servers": broker.bootstrap_servers}
            consumer = confluent_kafka.Consumer({**address, "group.id": "bench", "enable.auto.commit": False})
            stack.callback(consumer.close)
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            pairs[name] = confluent_kafka.Producer({**address, "acks": "all", "linger.ms": 0}), consumer, topic
        for number in range(rounds + 1):
            for name, (producer, consumer, topic) in pairs.items():
                progress(f"latency, round {number}/{rounds}: {name}")
                for _ in range(300):
                    begin = time.perf_counter()
                    producer.produce(topic, b"x" * RECORD_BYTES, partition=0)
                    if consumer.poll(10) is None:
                        raise SystemExit(f"{name}: a record did not arrive")
                    if number:  # the first is the warm-up
                        taken[name].append((time.perf_counter() - begin) * 1e6)
        for producer, _, _ in pairs.values():
            producer.flush(10)
    table = Table("end to end, one record at a time, acks=all, linger 0", "us")
    for label, rank in (("p50", 0.5), ("p99", 0.99)):
        table.add(label, {name: Timing(sorted(times)[int(len(times) * rank)], min(times)) for name, times in taken.items()})
    return [table]


def idle(brokers: Brokers, rounds: int, records: int) -> list[Table]:
    """No client is connected, and the work that the load left behind is done."""
    progress("settling")
    time.sleep(SETTLE_SECONDS)
    before = {name: cpu_s(broker) for name, broker in brokers.items()}
    progress("idle")
    time.sleep(IDLE_SECONDS)
    used = {name: (cpu_s(broker) - before[name]) * 100 / IDLE_SECONDS for name, broker in brokers.items()}
    resident = {name: resident_mb(broker) for name, broker in brokers.items()}
    tables = []
    for title, unit, figures in (("idle CPU", "% of one processor", used), ("memory after the load", "MB resident", resident)):
        table = Table(title, unit)
        table.add("", {name: Timing(figure, figure) for name, figure in figures.items()})
        tables.append(table)
    return tables


def answering(address: str) -> None:
    """Returns when the broker tells its metadata, which a client needs first."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address, "reconnect.backoff.ms": 10, "log_level": 0})
    admin.list_topics(timeout=60)


def start(brokers: Brokers, rounds: int, records: int) -> list[Table]:
    """From nothing to the first metadata answer, with an empty data directory, and the memory then."""
    took: dict[str, list[float]] = {OURS: [], THEIRS: []}
    resident: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for number in range(max(rounds, 1)):
        for name, kind in ((OURS, OwnBroker), (THEIRS, RealKafka)):
            progress(f"start, round {number + 1}/{rounds}: {name}")
            broker: Any = kind()
            if name == THEIRS:
                broker.__enter__()  # formats the directory, which is not part of it
                broker.kill()
            try:
                begin = time.perf_counter()
                broker.start()
                answering(broker.bootstrap_servers)
                took[name].append((time.perf_counter() - begin) * 1e3)
                resident[name].append(resident_mb(broker))
            finally:
                broker.__exit__()
    tables = []
    for title, unit, figures in (("start", "ms to the first metadata answer", took), ("memory after the start", "MB resident", resident)):
        table = Table(title, unit)
        table.add("", {name: Timing(statistics.median(each), min(each)) for name, each in figures.items()})
        tables.append(table)
    return tables


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


PARTS = {"load": load, "latency": latency, "idle": idle, "start": start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}, with commas")
    parser.add_argument("--records", type=int, default=300_000, help="of one round of load")
    parser.add_argument("--warm-up", type=int, default=WARM_UP_ROUNDS, help="rounds of load that are thrown away (default %(default)s)")
    parser.add_argument("--no-kafka", action="store_true", help="this broker alone")
    options = parser.parse_args()
    keep_memory()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(PARTS)}")
    if not options.no_kafka and (reason := why_unavailable()):
        raise SystemExit(reason)
    tables: list[Table] = []
    with contextlib.ExitStack() as stack:
        brokers: Brokers = {OURS: stack.enter_context(OwnBroker())}
        if not options.no_kafka:
            brokers[THEIRS] = stack.enter_context(RealKafka())
        for part in PARTS:
            if part in wanted and not (part == "start" and options.no_kafka):
                measure = functools.partial(load, warm_up=options.warm_up) if part == "load" else PARTS[part]
                tables += measure(brokers, options.rounds, options.records)
    progress("")
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
