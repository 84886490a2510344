"""What of a membership changes with time: its engine counts, this looks at the counts whenever it has taken a step."""

from __future__ import annotations

from kafkacore._codec import SampledStat
from kafkacore.consumer.group.membership import Membership


class GroupStats:
    """Rates and times of heartbeats and rebalances.

    Attributes:
        heartbeats: one per heartbeat.
        rebalances_ms: how long each took that ended well.
        failed_rebalances: one per rebalance that did not.
        last_rebalance_ms: when the last one ended well, -1 before the first.
    """

    __slots__ = ("failed_rebalances", "heartbeats", "last_rebalance_ms", "rebalances_ms")

    def __init__(self) -> None:
        self.heartbeats, self.rebalances_ms, self.failed_rebalances = SampledStat(), SampledStat(), SampledStat()
        self.last_rebalance_ms = -1

    def look(self, membership: Membership, now_ms: int) -> None:
        """Takes in what the engine has counted since the last look."""
        while self.heartbeats.count < membership.heartbeats:
            self.heartbeats.record(1, now_ms)
        while self.failed_rebalances.count < membership.failed_rebalances:
            self.failed_rebalances.record(1, now_ms)
        while self.rebalances_ms.count < membership.rebalances:
            self.rebalances_ms.record(membership.last_rebalance_ms, now_ms)
            self.last_rebalance_ms = now_ms
