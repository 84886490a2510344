"""Transactions of one client beside the same records without one, in a process of its own; run by transactions.py.

    python bench/transactions_case.py CLIENT SERVERS TOPIC RECORDS TURNS PER_TURN
    python bench/transactions_case.py --end-txn SERVERS TURNS PER_TURN

Two producers, one transactional, take turns of PER_TURN transactions of RECORDS records. Each record goes to TOPIC-transactions or
TOPIC-plain. Without a transaction the records end with flush(). It prints a line of JSON: by producer, the CPU of this process and the time
per transaction, a figure for each turn, and the time of each commit_transaction() or flush().

With --end-txn it prints the CPU of one EndTxn and its answer, a figure for each turn: what a transaction costs a client at the least.

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


def end_txn_alone(servers: str, turns: int, per_turn: int) -> list[float]:
    """CPU in nanoseconds of an EndTxn, sent over kafkacore's connection to a coordinator that refuses it, and its answer."""
    import random

    from kafkacore.clock import SystemClock
    from kafkacore.config import ProducerConfig
    from kafkacore.metadata import Metadata
    from kafkacore.net.client import NetworkClient
    from kafkacore.net.coordinator import TRANSACTION, CoordinatorLink
    from kafkacore.net.selector import Selector
    from kafkacore.net.transport import SocketTransports
    from kafkacore.protocol import EndTxnRequest

    clock, rng = SystemClock(), random.Random()
    config = ProducerConfig.from_user(bootstrap_servers=servers)
    metadata = Metadata(config, clock, rng=rng)
    metadata.bootstrap(config.bootstrap_addresses)
    client = NetworkClient(Selector(clock, transports=SocketTransports()), metadata, config, clock, rng)
    link = CoordinatorLink(client, "alone", kind=TRANSACTION, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    while not link.ready(clock.now_ms()):
        client.poll(100, clock.now_ms())
    end = EndTxnRequest(transactional_id="alone", producer_id=1, producer_epoch=0, committed=True)
    answers: list[Any] = []
    found = []
    for _ in range(WARM_UP_TURNS + turns):
        cpu_ns = time.process_time_ns()
        for _ in range(per_turn):
            answers.clear()
            link.send(EndTxnRequest, lambda version: end, clock.now_ms(), answers.append)
            while not answers:
                client.poll(1_000, clock.now_ms())
        found.append((time.process_time_ns() - cpu_ns) / per_turn)
    assert answers[0].response is not None, answers[0].error
    client.close()
    return found[WARM_UP_TURNS:]


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
    if sys.argv[1] == "--end-txn":
        print(json.dumps(end_txn_alone(sys.argv[2], *map(int, sys.argv[3:]))), flush=True)
    else:
        client, servers, topic, *numbers = sys.argv[1:]
        main(client, servers, topic, *map(int, numbers))
