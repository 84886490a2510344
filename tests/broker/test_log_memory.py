"""Logs in memory have a limit: beyond it the oldest records are deleted, with a warning, and nothing that must stay is."""

import logging
from types import SimpleNamespace

import pytest
from controlling import broker_state, create_topic

from kafkacore.broker.limits import log_memory_bytes, machine_memory_bytes
from kafkacore.broker.log.memory import MemoryLimit
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import T0

MIB = 1 << 20


def half_mib() -> bytes:
    builder = BatchBuilder(max_bytes=MIB)
    assert builder.append(bytes(MIB // 2), key=b"k", timestamp_ms=T0)
    return bytes(builder.build())


BATCH = half_mib()


class LimitedLogs:
    """A broker whose logs in memory may hold 16 MiB."""

    def __init__(self, limit_bytes=16 * MIB):
        self.clock = ManualClock(wall_ms=T0)
        self.state = broker_state(BrokerConfig(log_memory_max_bytes=limit_bytes), self.clock)
        self.replicas = self.state.replicas

    def topic(self, name, **configs):
        create_topic(self.state.controller, name, 1, configs={key.replace("_", "."): value for key, value in configs.items()})
        return self.replicas.partition(name, 0)

    def write(self, partition, mib):
        """So many MiB in batches of half a MiB, with a turn of the broker's loop after each."""
        for _ in range(mib * 2):
            self.replicas.append(*partition.key, BATCH, -1, 9, self.clock.wall_ms(), self.clock.now_ms())
            self.state.timer.advance_clock()


def test_the_largest_log_loses_its_oldest_records_and_the_warning_names_it(caplog):
    bench = LimitedLogs()
    small, large = bench.topic("small"), bench.topic("large")
    bench.write(small, 2)
    with caplog.at_level(logging.WARNING):
        bench.write(large, 12)
        assert large.log.start_offset == 0
        assert caplog.text == ""
        bench.write(large, 100)
    # The limit, the segment that passed it, and the eighth of the limit between two counts.
    assert bench.replicas.memory_limit.used_bytes() <= 16 * MIB + 16 * MIB + 2 * MIB
    assert small.log.start_offset == 0
    assert 0 < large.log.start_offset < large.log.end_offset == 224
    assert "large-0 (begins at offset" in caplog.text
    assert "log.memory.max.bytes=16777216" in caplog.text
    assert "small" not in caplog.text


def test_what_is_compacted_stays_and_an_error_says_that_nothing_can_go(caplog):
    bench = LimitedLogs()
    compacted, deletable = bench.topic("compacted", cleanup_policy="compact"), bench.topic("deletable")
    bench.write(deletable, 8)
    with caplog.at_level(logging.WARNING):
        bench.write(compacted, 64)
    assert compacted.log.start_offset == 0
    assert deletable.log.start_offset > 0
    assert "nothing more may be deleted" in caplog.text


def test_what_the_followers_do_not_have_stays():
    bench = LimitedLogs()
    partition = bench.topic("t")
    bench.write(partition, 2)
    limit = bench.replicas.memory_limit
    partition.log.roll(T0)
    bench.write(partition, 30)
    start_offset = partition.log.start_offset
    partition.high_watermark = start_offset  # as if no follower had fetched what came behind it
    assert limit.free([partition], lambda _: True, T0) == []
    assert partition.log.start_offset == start_offset


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_brokers_of_a_cluster_share_a_quarter_of_the_memory(brokers):
    with EmbeddedCluster(brokers=brokers) as cluster:
        assert cluster.config.log_memory_max_bytes == machine_memory_bytes() // 4 // brokers


def test_no_limit_and_a_given_limit():
    assert log_memory_bytes(BrokerConfig(log_memory_max_bytes=0)) == 0
    assert LimitedLogs(limit_bytes=0).replicas.memory_limit is None
    assert log_memory_bytes(BrokerConfig(log_memory_max_bytes=7)) == 7


class SegmentSizes:
    """A log of segments that have these sizes, and its partition."""

    def __init__(self, *sizes):
        self.log, self.high_watermark, self.key = self, 9, ("t", sizes)
        self.segments = [SimpleNamespace(size=size) for size in sizes]
        self.start_offset, self.asked = 0, []

    @property
    def size_bytes(self):
        return sum(segment.size for segment in self.segments)

    def delete_old_segments(self, *wanted):
        self.asked.append(wanted)
        del self.segments[0]
        return 1


def test_how_often_logs_are_counted_and_how_much_is_deleted():
    exceeded, logs = [], {"a": SegmentSizes(300, 50), "b": SegmentSizes(200, 200, 51)}
    limit = MemoryLimit(800, logs, lambda: exceeded.append(limit.used_bytes()))
    limit.grew(99)
    assert exceeded == []
    limit.grew(1)
    limit.grew(100)
    assert exceeded == [801] * 2  # an eighth of the limit each time
    logs["b"].segments[-1].size = 50
    limit.grew(100)
    assert exceeded == [801] * 2
    kept = SegmentSizes(900)
    assert limit.free([*logs.values(), kept], lambda each: each is not kept, T0) == [logs["b"]]
    assert (logs["b"].asked, logs["a"].asked) == ([(-1, 250, T0, 9)], [])  # 600 bytes are within nine tenths of the limit
    logs["c"] = SegmentSizes(130)
    assert limit.free(logs.values(), lambda each: True, T0) == [logs["a"]]
    logs["d"] = SegmentSizes(300)
    logs["e"] = SegmentSizes(40, 40)
    assert limit.free(logs.values(), lambda each: True, T0) == [logs["b"]]  # and not of the one that is larger, and open
    logs["f"] = SegmentSizes(60, 50)
    assert limit.used_bytes() == 720 and limit.free(logs.values(), lambda each: True, T0) == []
