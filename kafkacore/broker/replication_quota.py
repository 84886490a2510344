"""Throttled replication: how many bytes a second a broker sends to followers, and fetches itself, of partitions that are moved (KIP-73).

    topic    leader.replication.throttled.replicas=0:1,1:2      of which partition a leader, here broker 1 of partition 0, throttles what it
             follower.replication.throttled.replicas=*          sends; and which followers throttle what they fetch
    broker   leader.replication.throttled.rate=1000000          bytes a second of all such partitions together
             follower.replication.throttled.rate=1000000

Rules:

1. A follower in the ISR is never held back, so a throttle keeps no write with acks=all waiting; what it copies counts all the same.
   [test_a_follower_in_sync_counts_and_is_not_held_back]
2. A rate is over what was already copied: one answer may exceed it, and then nothing more goes until the rate is back.
   [test_a_rate_is_over_its_windows, test_a_throttled_partition_rests_and_its_neighbour_goes_on]
3. Without a rate, or for a topic that throttles no replica, nothing is counted. [test_nothing_counts_without_a_rate,
   test_a_follower_in_sync_counts_and_is_not_held_back]

Source: kafka.server.ReplicationQuotaManager, kafka.server.ReplicaManager.shouldLeaderThrottle,
kafka.server.ReplicaFetcherThread.shouldFollowerThrottle.
"""

from __future__ import annotations

import functools
from typing import Any

from kafkacore.broker.partition import Partition
from kafkacore.broker.quotas import Windows, throttle_ms
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.config_values import INT64_MAX

_EVERY = "*"
_LONGEST_WAIT_MS = 1_000
"""After which time is looked again, for the rate may be another one by then."""


@functools.lru_cache(1024)
def _replicas(text: str) -> frozenset[tuple[int, int]]:
    pairs = (each.partition(":") for each in text.split(",") if each)
    return frozenset((int(index), int(node)) for index, _, node in pairs)


def is_named(text: str, index: int, node_id: int) -> bool:
    """Whether a setting of a topic names a replica.

    Args:
        text: PARTITION:BROKER pairs with commas, or "*" for all.
        index: of the partition.
        node_id: of the broker.
    """
    return text == _EVERY or (bool(text) and (index, node_id) in _replicas(text))


def _nbytes(records: Any) -> int:
    """Of batches, or of several pieces of them, as an answer has them."""
    if isinstance(records, list):
        return sum(_nbytes(each) for each in records)
    return len(records) if isinstance(records, bytes) else int(records.nbytes)


class ReplicationQuota:
    """One rate of a broker, and what was copied under it."""

    def __init__(self, samples: int, window_s: int) -> None:
        """No rate yet.

        Args:
            samples: how many windows count.
            window_s: seconds of each.
        """
        self._samples = samples
        self._window_ms = window_s * 1_000
        self._rate = INT64_MAX
        self._use = Windows()

    @property
    def is_active(self) -> bool:
        """Whether there is a rate."""
        return self._rate < INT64_MAX

    def set_rate(self, bytes_per_second: int) -> None:
        """Another rate; INT64_MAX for none."""
        self._rate = bytes_per_second

    def record(self, nbytes: int, now_ms: int) -> None:
        """Counts what is copied."""
        self._use.record(nbytes, now_ms, self._window_ms)

    def wait_ms(self, now_ms: int) -> int:
        """0 while the rate is kept; else how long nothing more is to be copied, a second at most."""
        rate, _ = self._use.rate(now_ms, self._samples, self._window_ms)
        if rate <= self._rate:
            return 0
        if not self._rate:
            return _LONGEST_WAIT_MS
        return max(1, throttle_ms(self._use, self._rate, now_ms, self._samples, self._window_ms, _LONGEST_WAIT_MS))


class ReplicationQuotas:
    """The two rates of a broker.

    Attributes:
        leader: of what it sends to followers.
        follower: of what it fetches from leaders.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        """Args:
        config: windows and rates.
        clock: the time.
        """
        self._clock = clock
        windows = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self.leader, self.follower = ReplicationQuota(*windows), ReplicationQuota(*windows)
        self.update(config)

    def update(self, config: BrokerConfig) -> None:
        """Takes over altered rates."""
        self.leader.set_rate(config.leader_replication_throttled_rate)
        self.follower.set_rate(config.follower_replication_throttled_rate)

    def holds_leader(self, partition: Partition) -> bool:
        """Whether what this broker sends of a partition to followers counts."""
        return self.leader.is_active and is_named(partition.config.leader_throttled_replicas, partition.index, partition.node_id)

    def holds_follower(self, partition: Partition) -> bool:
        """Whether what this broker fetches of a partition counts."""
        return self.follower.is_active and is_named(partition.config.follower_throttled_replicas, partition.index, partition.node_id)

    def leader_waits(self, partition: Partition, follower: int) -> bool:
        """Whether a follower is to get nothing of a partition now."""
        return self.holds_leader(partition) and follower not in partition.isr and self.leader.wait_ms(self._clock.now_ms()) > 0

    def follower_wait_ms(self, partition: Partition) -> int:
        """How long this broker is not to fetch a partition; 0 if it may now."""
        if not self.holds_follower(partition) or partition.node_id in partition.isr:
            return 0
        return self.follower.wait_ms(self._clock.now_ms())

    def sent(self, partition: Partition, records: Any) -> None:
        """Counts what a follower gets of a partition."""
        if records and self.holds_leader(partition):
            self.leader.record(_nbytes(records), self._clock.now_ms())

    def fetched(self, partition: Partition, records: Any) -> None:
        """Counts what this broker got of a partition."""
        if records and self.holds_follower(partition):
            self.follower.record(_nbytes(records), self._clock.now_ms())
