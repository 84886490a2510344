"""The producer's network path as a whole: who does the work, with which memory, on which thread."""

from __future__ import annotations

import resource
import sys
import threading
from typing import Any

import numpy as np
import pytest
from producer_support import response, started

from kafkacore import protocol
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster


def test_send_touches_no_network() -> None:
    bench = started(batch_size=512)
    polls = len(bench.client.poll_timeouts)
    for _ in range(100):
        bench.send("t", b"x" * 100, partition=0)
    assert len(bench.accumulator.incomplete()) > 10
    assert len(bench.client.poll_timeouts) == polls
    assert not bench.client.sent


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults")
def test_memory_that_was_used_once_faults_no_more() -> None:
    bench = started(batch_size=65_536, buffer_memory=1 << 20)
    value = b"x" * 1_000

    def round_trip(times: int) -> None:
        for _ in range(times):
            for _ in range(600):
                bench.send("t", value, partition=0)
            while bench.accumulator.has_incomplete:
                bench.step()
                for _ in range(len(bench.client.sent)):
                    bench.client.answer(response((0, 0, 0)))
                bench.step()

    round_trip(3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    round_trip(20)  # 12 MB: 2900 pages, were they new
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 300
    assert bench.pool.available_bytes == bench.pool.total_bytes
