"""Transactions of one client beside the same records without one, in a process of its own; run by transactions.py.

    python bench/transactions_case.py CLIENT SERVERS TOPIC RECORDS TURNS PER_TURN

Two producers, one transactional, take turns of PER_TURN transactions of RECORDS records. Each record goes to TOPIC-transactions or
TOPIC-plain. Without a transaction the records end with flush(). It prints a line of JSON: by producer, the CPU of this process and the time
per transaction, a figure for each turn, and the time of each commit_transaction() or flush().

Both clients have their defaults, but confluent-kafka is asked for what is a default here: idempotence.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

RECORD_BYTES = 100
WARM_UP_TURNS = 2
KINDS = ("plain", "transactions")

Calls = tuple[Callable[[], object], Callable[[list[bytes]], object], Callable[[], object]]
"""What begins, sends the values, and returns when all of them are there for good."""


def nothing() -> None:
    """Where there is no transaction to begin."""


def kafkacore_calls(servers: str, topic: str, transactional: bool, many: bool) -> Calls:
    from kafkacore import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=topic if transactional else None)

    def send(values: list[bytes]) -> None:
        one = producer.send
        for value in values:
            one(topic, value)

    def send_many(values: list[bytes]) -> None:
        producer.send_many(topic, values)

    sending = send_many if many else send
    if not transactional:
        return nothing, sending, producer.flush
    producer.init_transactions()
    return producer.begin_transaction, sending, producer.commit_transaction


def confluent_calls(servers: str, topic: str, transactional: bool, many: bool) -> Calls:
    import confluent_kafka

    wanted = {"transactional.id": topic} if transactional else {"enable.idempotence": True}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **wanted})

    def send(values: list[bytes]) -> None:
        one = producer.produce
        for value in values:
            one(topic, value)

    if not transactional:
        return nothing, send, producer.flush
    producer.init_transactions(30)
    return producer.begin_transaction, send, producer.commit_transaction


CLIENTS = {
    "kafkacore send()": (kafkacore_calls, False),
    "kafkacore send_many()": (kafkacore_calls, True),
    "confluent produce()": (confluent_calls, False),
}


def turn(calls: Calls, values: list[bytes], count: int) -> tuple[float, float, list[int]]:
    """CPU and time of a transaction in nanoseconds, and how long each end took."""
    begin, send, end = calls
    ends_ns = []
    cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(count):
        begin()
        send(values)
        before_ns = time.perf_counter_ns()
        end()
        ends_ns.append(time.perf_counter_ns() - before_ns)
    return (time.process_time_ns() - cpu_ns) / count, (time.perf_counter_ns() - wall_ns) / count, ends_ns


def main(client: str, servers: str, topic: str, records: int, turns: int, per_turn: int) -> None:
    connect, many = CLIENTS[client]
    values = [(b"%012d" % nth).ljust(RECORD_BYTES, b"x") for nth in range(records)]
    producers = {kind: connect(servers, f"{topic}-{kind}", kind == KINDS[1], many) for kind in KINDS}
    found: dict[str, dict[str, list[Any]]] = {kind: {"cpu_ns": [], "wall_ns": [], "end_ns": []} for kind in KINDS}
    for nth in range(WARM_UP_TURNS + turns):
        for kind in KINDS if nth % 2 else reversed(KINDS):
            cpu_ns, wall_ns, ends_ns = turn(producers[kind], values, per_turn)
            if nth >= WARM_UP_TURNS:
                found[kind]["cpu_ns"].append(cpu_ns)
                found[kind]["wall_ns"].append(wall_ns)
                found[kind]["end_ns"] += ends_ns
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    client, servers, topic, *numbers = sys.argv[1:]
    main(client, servers, topic, *map(int, numbers))
