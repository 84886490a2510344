"""What a record costs its client: CPU per record and wall time of every client against the same null broker.

    python bench/end_to_end.py [produce] [consume] [latency] [memory] [--records N] [--rounds N] [--json FILE]

Every case runs in a process of its own, the cases take turns, and the median over the rounds is shown with the best
beside it: ratios within one run hold on a noisy machine, absolute figures do not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nullbroker import NullBroker

from kafkacore.records import BatchBuilder

CASE = Path(__file__).parent / "end_to_end_case.py"
# case -> share of --records, so that the slow ones do not take all the time
PRODUCE = {
    "confluent produce()": 1.0,
    "confluent produce(on_delivery)": 1.0,
    "confluent produce_batch(dicts)": 0.5,
    "aiokafka send_batch": 0.5,
    "kafkacore send(), 1 MB batches": 2.0,
    "kafkacore send(), defaults": 2.0,
    "kafkacore send(on_delivery), 1 MB": 1.0,
    "kafkacore send_many(list)": 4.0,
    "kafkacore send_many(columns)": 4.0,
}
CONSUME = {
    "confluent consume(500)": 0.5,
    "confluent consume(10000)": 0.5,
    "aiokafka getmany(10000)": 0.5,
    "kafkacore poll(500) objects": 2.0,
    "kafkacore poll_batch() columns": 8.0,
}
# (what is compared, the rival, ours, the least ratio wanted)
GOALS = [
    ("send() v. confluent produce()", "confluent produce()", "kafkacore send(), 1 MB batches", 8),
    ("send() v. produce(on_delivery)", "confluent produce(on_delivery)", "kafkacore send(), 1 MB batches", 14),
    ("send_many(columns) v. confluent produce()", "confluent produce()", "kafkacore send_many(columns)", 20),
    ("objects v. consume(500)", "confluent consume(500)", "kafkacore poll(500) objects", 4),
    ("columns v. consume(500)", "confluent consume(500)", "kafkacore poll_batch() columns", 18),
]


def run_case(name: str, broker: NullBroker, records: int, size: int) -> dict[str, float]:
    """One case in a fresh process."""
    environment = {**os.environ, "NULLBROKER_PID": str(broker.pid)}
    done = subprocess.run(
        [sys.executable, str(CASE), name, broker.address, str(records), str(size)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def rounds_of(cases: dict[str, float], broker: NullBroker, records: int, size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Interleaved rounds of all cases: medians and bests."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for number in range(rounds):
        for name, share in cases.items():
            print(f"\r\033[Kround {number + 1}/{rounds}: {name}", end="", file=sys.stderr, flush=True)
            runs[name].append(run_case(name, broker, max(40_000, int(records * share)), size))
    print("\r\033[K", end="", file=sys.stderr)
    return {
        name: {
            "cpu_us": statistics.median(r["cpu_us"] for r in results),
            "cpu_us_best": min(r["cpu_us"] for r in results),
            "wall_us": statistics.median(r["wall_us"] for r in results),
        }
        for name, results in runs.items()
    }


def show(title: str, table: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}\n{'client':36} {'CPU us/record':>14} {'(best)':>9} {'M records/s':>12}")
    for name, row in table.items():
        print(f"{name:36} {row['cpu_us']:14.3f} {row['cpu_us_best']:9.3f} {1 / row['wall_us']:12.2f}")
    for what, rival, ours, wanted in GOALS:
        if rival in table and ours in table:
            median, best = table[rival]["cpu_us"] / table[ours]["cpu_us"], table[rival]["cpu_us_best"] / table[ours]["cpu_us_best"]
            print(f"  {what:44} {median:6.1f}x (best {best:.1f}x), goal {wanted}x: {'held' if median >= wanted else 'NOT held'}")


def latency(broker: NullBroker, rounds: int, sends: int = 2000) -> dict[str, dict[str, float]]:
    """p50 and p99 of one record sent and waited for, in turns: a bare socket, kafkacore, confluent."""
    import confluent_kafka

    from kafkacore import KafkaProducer

    builder = BatchBuilder()
    builder.append(b"x" * 100, timestamp_ms=0)
    batch = bytes(builder.build())
    header = struct.pack(">hhihs", 0, 7, 1, 1, b"c")
    body = header + struct.pack(">hhiih5siii", -1, -1, 30_000, 1, 5, b"bench", 1, 0, len(batch)) + batch
    frame = struct.pack(">i", len(body)) + body
    host, port = broker.address.split(":")
    bare = socket.create_connection((host, int(port)))
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def bare_send() -> None:
        bare.sendall(frame)
        bare.recv(4096)

    ours = KafkaProducer(bootstrap_servers=broker.address, linger_ms=0)
    defaults = KafkaProducer(bootstrap_servers=broker.address)
    rival = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0, "acks": "all"})

    def rival_send() -> None:
        rival.produce("bench", b"x" * 100, partition=0)
        rival.flush()

    cases: dict[str, Any] = {
        "bare blocking socket": bare_send,
        "kafkacore send().result()": lambda: ours.send("bench", b"x" * 100, partition=0).result(10),
        "confluent produce() + flush()": rival_send,
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    cpu = dict.fromkeys(cases, 0.0)
    for _ in range(rounds):
        for name, one in cases.items():
            for _ in range(50):
                one()
            before = time.process_time()
            for _ in range(sends):
                start = time.perf_counter()
                one()
                taken[name].append((time.perf_counter() - start) * 1e6)
            cpu[name] += time.process_time() - before
    ours.close()
    defaults.close()
    table = {}
    print(f"\nOne record, sent and waited for, acks=all, linger 0\n{'client':36} {'p50 us':>8} {'p99 us':>8} {'CPU us':>8}")
    for name, times in taken.items():
        times.sort()
        table[name] = {"p50_us": times[len(times) // 2], "p99_us": times[len(times) * 99 // 100], "cpu_us": cpu[name] / len(times) * 1e6}
        print(f"{name:36} {table[name]['p50_us']:8.1f} {table[name]['p99_us']:8.1f} {table[name]['cpu_us']:8.1f}")
    base, mine, theirs = (table[name]["p50_us"] for name in cases)
    print(f"  kafkacore : bare socket {mine / base:.2f} (goal <= 1.3), kafkacore : confluent {mine / theirs:.2f} (goal < 1)")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="produce, consume, latency, memory (default: all)")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    what = args.what or ["produce", "consume", "latency", "memory"]
    if unknown := set(what) - {"produce", "consume", "latency", "memory"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    builder = BatchBuilder(max_bytes=16_384)
    while builder.append(b"x" * args.size, timestamp_ms=1_700_000_000_000):
        pass
    machine = f"{platform.machine()} {os.cpu_count()} CPUs"
    figures: dict[str, Any] = {"machine": machine, "python": platform.python_version(), "size": args.size}
    with NullBroker(batches={"bench": bytes(builder.build())}) as broker:
        if "produce" in what:
            figures["produce"] = rounds_of(PRODUCE, broker, args.records, args.size, args.rounds)
            show(f"Produce, {args.size} byte values, acks=all, 4 partitions", figures["produce"])
        if "consume" in what:
            figures["consume"] = rounds_of(CONSUME, broker, args.records, args.size, args.rounds)
            show(f"Consume, {args.size} byte values, 16 KiB batches, 1 partition, every value touched", figures["consume"])
        if "latency" in what:
            figures["latency"] = latency(broker, args.rounds)
        if "memory" in what:
            figures["memory"] = {}
            print("\nMemory per queued 100 byte record")
            for client in ("kafkacore", "confluent"):
                figures["memory"][client] = run_case(f"memory {client}", broker, 200_000, 100)["bytes"]
                os.kill(broker.pid, signal.SIGCONT)
                print(f"{client:36} {figures['memory'][client]:8.0f} bytes")
            print(f"  goal <= 130: {'held' if figures['memory']['kafkacore'] <= 130 else 'NOT held'}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
