"""CPU time and wake-ups of a group member that is not polled, and of one that waits in poll, per protocol.

    python bench/idle_member.py [SECONDS]

The broker is a process of its own, so that its work does not count.
"""

from __future__ import annotations

import sys
import threading
import time

from kafkacore.consumer import KafkaConsumer
from kafkacore.net.client import NetworkClient
from kafkacore.testing import EmbeddedCluster


def main(seconds: float) -> None:
    waits = 0
    poll = NetworkClient.poll

    def counted(client: NetworkClient, timeout_ms: int, now_ms: int) -> object:
        nonlocal waits
        waits += 1
        return poll(client, timeout_ms, now_ms)

    NetworkClient.poll = counted
    with EmbeddedCluster(brokers=1, processes=True) as cluster:
        cluster.create_topic("idle", partitions=10)
        for protocol in ("classic", "consumer"):
            for state in ("away", "in poll"):
                with KafkaConsumer(
                    "idle", bootstrap_servers=cluster.bootstrap_servers, group_id=f"{protocol}-{state[:2]}", group_protocol=protocol
                ) as consumer:
                    while not consumer.assignment():
                        consumer.poll(0.1)
                    consumer.poll(2)
                    waits, cpu_s, began_s = 0, time.process_time(), time.monotonic()
                    if state == "away":
                        threading.Event().wait(seconds)
                    else:
                        consumer.poll(seconds)
                    took_s = time.monotonic() - began_s
                    share = 100 * (time.process_time() - cpu_s) / took_s
                    rounds = f"{waits / took_s:.1f} rounds of I/O per second"
                    print(f"{protocol:8} {state:8} CPU {share:.3f} %   {rounds}   over {took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
