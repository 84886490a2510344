"""An embedded cluster in a process of its own for bench/scale.py, and a raw client for it.

Run as a program it is that process: it reads a command a line from stdin, and answers each with a line of JSON.
"""

from __future__ import annotations

import gc
import itertools
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from kafkacore import protocol as p
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder

PRODUCE, FETCH, METADATA = 9, 12, 9
"""The versions that are spoken here: topics by name."""
BATCHES_AT_ONCE = 100


class ClusterProcess:
    """A running cluster; its logs are in memory.

    Args:
        brokers: how many.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._process = subprocess.Popen([sys.executable, __file__, str(brokers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.addresses: list[str] = self._answer().split(",")
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the cluster's process ended with status {self._process.wait()}")
        return json.loads(line)

    def _ask(self, *command: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def create_topic(self, name: str, partitions: int, replication_factor: int = 1) -> None:
        self._ask("create_topic", name, partitions, replication_factor)

    def leader(self, topic: str, partition: int = 0) -> str:
        """The address of a partition's leader."""
        return self.addresses[self._ask("leader", topic, partition) - 1]

    def thread_cpu_ns(self) -> dict[str, int]:
        """CPU time so far of each thread but the one that answers here."""
        cpu: dict[str, int] = self._ask("thread_cpu")
        return cpu

    def watched_fetches(self) -> int:
        """Operations on the lists of the fetch purgatories, complete ones that are not yet removed included."""
        watched: int = self._ask("watched")
        return watched

    def cpu_s(self) -> float:
        """CPU time of the process so far, to the nanosecond: CLOCK_PROCESS_CPUTIME_ID of another process."""
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def close(self) -> None:
        """Kills the process: what it keeps is in memory, and stopping thousands of partitions one by one takes a while."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> ClusterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def owner_cpu_ns(after: dict[str, int], before: dict[str, int]) -> int:
    """What the busiest thread took between two looks: with one broker under load, the broker's owner thread."""
    return max(spent - before.get(name, 0) for name, spent in after.items())


class Wire:
    """A connection with a blocking socket: frames there and back, by the project's own message classes."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, request: Any, version: int) -> None:
        self._socket.sendall(b"".join(bytes(part) for part in p.encode_request(request, version, next(self._ids), "bench")))

    def receive(self, api: Any, version: int) -> Any:
        (size,) = struct.unpack(">i", self._exactly(4))
        payload = self._exactly(size)
        _, start = p.decode_response_header(api.API_KEY, version, payload)
        return p.APIS[api.API_KEY].response.decode(version, payload, start)

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(type(request), version)

    def _exactly(self, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise EOFError("the broker closed the connection")
            view = view[got:]
        return bytes(data)

    def produce(self, topic: str, records_by_partition: dict[int, bytes], acks: int = -1) -> None:
        """Produces a batch to each of some partitions that this broker leads.

        Raises:
            SystemExit: the broker refused one.
        """
        parts = [p.PartitionProduceData(index=index, records=records) for index, records in records_by_partition.items()]
        topics = [p.TopicProduceData(name=topic, partition_data=parts)]
        response = self.ask(p.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), PRODUCE)
        for part in response.responses[0].partition_responses:
            expect(part.error_code, f"Produce to {topic}-{part.index}")


def expect(error_code: int, what: str) -> None:
    """Ends the bench on a broker's error: what is measured then would be something else."""
    if error_code:
        raise SystemExit(f"{what}: {Code(error_code).name}")


def batch(records: int, size: int = 100) -> bytes:
    """A record batch of values of `size` bytes."""
    builder = BatchBuilder(max_bytes=1 << 24)
    for nth in range(records):
        if not builder.append(b"%0*d" % (size, nth), timestamp_ms=1_700_000_000_000):
            raise AssertionError("the batch is full")
    return bytes(builder.build())


def fill(cluster: ClusterProcess, topic: str, partitions: int, batches_each: int, data: bytes) -> None:
    """Produces the same batch, some times, to every partition of a topic."""
    with Wire(cluster.addresses[0]) as wire:
        known = wire.ask(p.MetadataRequest(topics=[p.MetadataRequestTopic(name=topic)]), METADATA)
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in known.brokers}
    led: dict[int, list[int]] = {}
    for part in known.topics[0].partitions:
        led.setdefault(part.leader_id, []).append(part.partition_index)
    for leader, indexes in led.items():
        with Wire(addresses[leader]) as wire:
            for _ in range(batches_each):
                for start in range(0, len(indexes), BATCHES_AT_ONCE):
                    wire.produce(topic, dict.fromkeys(indexes[start : start + BATCHES_AT_ONCE], data), acks=1)


def serve(brokers: int) -> None:
    """The process: answers commands until stdin ends."""
    from kafkacore.purgatory import DelayedOperationPurgatory
    from kafkacore.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=brokers) as cluster:
        print(json.dumps(cluster.bootstrap_servers), flush=True)
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            answer: Any = None
            if command == "create_topic":
                cluster.create_topic(*arguments)
            elif command == "leader":
                answer = cluster.leader(*arguments)
            elif command == "thread_cpu":
                threads = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and thread.ident]
                answer = {thread.name: time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident)) for thread in threads}
            elif command == "watched":
                purgatories = [each for each in gc.get_objects() if isinstance(each, DelayedOperationPurgatory)]
                answer = sum(each.watched() for each in purgatories if each.name == "Fetch")
            else:
                raise SystemExit(f"there is no command {command}")
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
