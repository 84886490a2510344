"""Members of one client in one group, each in a thread of this process; run by bench/churn.py.

    python bench/churn_member.py CLIENT SERVERS TOPIC PROTOCOL

It reads a command a line from stdin: `join NAME`, `leave NAME`, `write PATH`. The last writes what the members were handed out so far: an
array of (monotonic ns, partition, offset), one per record, in machine order. It ends with its stdin.

CLIENT is kafkacore or confluent, or `no group` for a kafkacore consumer that has every partition assigned: what the topic itself allows.
`feed` is none: it produces a record to each partition, again and again, every so many ms (in place of PROTOCOL).
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

GROUP = "churn"
PROTOCOLS = {"eager": "range", "cooperative": "cooperative-sticky", "KIP-848": "consumer"}
POLL_S = 0.2
events = array("q")
"""(monotonic ns, partition, offset) of each record handed out; three appends in one `extend`, so threads do not mix them."""


def kafkacore_member(servers: str, topic: str, protocol: str, left: threading.Event) -> None:
    from kafkacore import KafkaConsumer

    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if protocol != "KIP-848":
        settings = {"partition_assignment_strategy": [PROTOCOLS[protocol]]}
    group = f"{GROUP}-kafkacore"
    with KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", **settings) as consumer:
        read(consumer, left)


def assigned_reader(servers: str, topic: str, _: str, left: threading.Event) -> None:
    from kafkacore import KafkaConsumer, TopicPartition

    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in consumer.partitions_for(topic)])
        read(consumer, left)


def read(consumer: Any, left: threading.Event) -> None:
    while not left.is_set():
        for tp, records in consumer.poll(POLL_S).items():
            now_ns = time.monotonic_ns()
            for record in records:
                events.extend((now_ns, tp.partition, record.offset))


def confluent_member(servers: str, topic: str, protocol: str, left: threading.Event) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {"group.protocol": "consumer"}
    if protocol != "KIP-848":
        settings = {"partition.assignment.strategy": PROTOCOLS[protocol]}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": f"{GROUP}-confluent", "auto.offset.reset": "earliest", "log_level": 2, **settings}
    )
    consumer.subscribe([topic])
    while not left.is_set():
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            events.extend((time.monotonic_ns(), message.partition(), message.offset()))
    consumer.close()


CLIENTS: dict[str, Callable[[str, str, str, threading.Event], None]] = {
    "kafkacore": kafkacore_member,
    "confluent": confluent_member,
    "no group": assigned_reader,
}


def feed(servers: str, topic: str, every_ms: int) -> None:
    """Produces until stdin ends."""
    from kafkacore import KafkaProducer

    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with KafkaProducer(bootstrap_servers=servers) as producer:
        indexes = sorted(producer.partitions_for(topic))
        print("ready", flush=True)
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            due += every_ms / 1000
            for index in indexes:
                producer.send(topic, b"x", partition=index)


def serve(client: str, servers: str, topic: str, protocol: str) -> None:
    members: dict[str, tuple[threading.Thread, threading.Event]] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        command, argument = line.split(maxsplit=1)
        argument = argument.strip()
        if command == "join":
            left = threading.Event()
            thread = threading.Thread(target=CLIENTS[client], args=(servers, topic, protocol, left), daemon=True)
            members[argument] = thread, left
            thread.start()
        elif command == "leave":
            members[argument][1].set()
        else:
            with open(argument, "wb") as file:
                events[: len(events) // 3 * 3].tofile(file)
            print("written", flush=True)
    for _, left in members.values():
        left.set()
    for thread, _ in members.values():
        thread.join(10)


if __name__ == "__main__":
    if sys.argv[1] == "feed":
        feed(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        serve(*sys.argv[1:5])
