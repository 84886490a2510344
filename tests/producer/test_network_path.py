"""The producer's network path as a whole: who does the work, with which memory, on which thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from producer_support import started

from kafkacore import protocol
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster


def test_a_producer_has_one_thread_which_ends_with_it() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)
        before = set(threading.enumerate())
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as p:
            p.send("t", b"x").result(60)
            p.send_many("t", [b"x"] * 100).result(60)
            (thread,) = set(threading.enumerate()) - before
            assert thread.name.startswith("kafkacore-producer")
        assert not thread.is_alive()


def address_of(buffer: Any) -> tuple[int, int]:
    array = np.frombuffer(buffer, np.uint8)
    start = int(array.__array_interface__["data"][0])
    return start, start + array.nbytes


def test_record_bytes_are_written_from_where_send_put_them() -> None:
    bench = started()
    bench.send("t", b"x" * 5_000, partition=0)
    (batch,) = bench.accumulator.incomplete()
    low, high = address_of(batch.buffer)
    bench.step()
    ((request, message),) = bench.client.sent
    frame = protocol.encode_request(message, request.version, 1, "me")
    inside = [part for part in frame if low <= address_of(part)[0] and address_of(part)[1] <= high]
    assert sum(len(part) for part in inside) >= 5_000
    assert sum(len(part) for part in frame) - sum(len(part) for part in inside) < 200
