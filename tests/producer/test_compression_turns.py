"""Compressing happens on the thread that does the I/O, so the network has its turn after a bounded number of bytes."""

import pytest
from producer_support import Bench

from kafkacore import compress
from kafkacore.config import COMPRESSION_TYPES

BATCH_BYTES = 1 << 16
PER_PASS_BYTES = 256 * 1024
BROKERS = 8


@pytest.fixture
def compressed(monkeypatch):
    """The bytes that each compression got."""
    sizes, real = [], compress.compress

    def note(codec, data, level=None):
        sizes.append(len(data))
        return real(codec, data, level)

    monkeypatch.setattr(compress, "compress", note)
    return sizes


def bench_of(**settings):
    leaders = tuple(range(1, BROKERS + 1))
    sizes = {"batch_size": BATCH_BYTES, "max_request_size": BATCH_BYTES}
    return Bench(partitions=BROKERS, leaders=leaders, enable_idempotence=False, **sizes, **settings)


def fill_brokers(bench, batches):
    for _ in range(batches):
        for partition in range(BROKERS):
            bench.send("t", bytes(BATCH_BYTES - 200), partition=partition)


@pytest.mark.parametrize("codec", COMPRESSION_TYPES[1:])
def test_what_is_compressed_between_two_looks_at_the_network_is_bounded(codec, compressed):
    bench = bench_of(compression_type=codec)
    fill_brokers(bench, 3)
    between = []
    bench.client.in_poll = lambda: (between.append(sum(compressed)), compressed.clear())
    while bench.accumulator.has_queued():
        bench.sender.run_once(bench.clock.now_ms())
        assert bench.client.poll_timeouts[-1] == 0 or not bench.accumulator.has_queued()
    assert sum(between) > 3 * BROKERS * (BATCH_BYTES - 300)
    assert max(between) < PER_PASS_BYTES + BATCH_BYTES
    assert len([size for size in between if size]) >= 3 * BROKERS * BATCH_BYTES // (PER_PASS_BYTES + BATCH_BYTES)


def test_every_broker_has_its_turn(compressed):
    bench = bench_of(compression_type="zstd")
    fill_brokers(bench, 4)
    for _ in range(4):
        bench.step()
    asked = [request.node_id for request, _ in bench.client.sent]
    assert set(asked) == set(range(1, BROKERS + 1))


def test_without_compression_all_brokers_are_asked_in_one_pass(compressed):
    bench = bench_of()
    fill_brokers(bench, 1)
    bench.step()
    assert len(bench.client.sent) == BROKERS
    assert not compressed
