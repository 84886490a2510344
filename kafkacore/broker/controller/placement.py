"""Where the replicas of new partitions go: in stripes over the racks and the brokers in them.

The racks stand in a ring, and in each rack its brokers do. A partition takes its replicas from one rack after the other, and from each
rack the broker that comes next; the next partition starts one rack further. So leaders and replicas spread evenly over brokers, and the
replicas of a partition over racks. Fenced brokers stand behind all others and never come first, since the first replica is to lead.

    rack A: 0 1      partition 0: 0 2 1
    rack B: 2 3      partition 1: 3 1 2
                     partition 2: 1 2 0 ...

After each full turn the rings are shuffled, so that the same brokers do not always follow each other.

Source: org.apache.kafka.metadata.placement.StripedReplicaPlacer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from kafkacore import errors
from kafkacore.broker.cluster import BrokerRegistration


class _Ring:
    """The brokers of one rack that are all fenced, or all not."""

    def __init__(self, brokers: list[int], order: random.Random) -> None:
        self.brokers = brokers
        self.order = order
        self.epoch = 0
        self.index = 0
        self.offset = 0
        order.shuffle(self.brokers)

    def next(self, epoch: int) -> int | None:
        """The next broker that this partition does not have yet; None when it has all."""
        if epoch != self.epoch:
            self.epoch, self.index = epoch, 0
            self.offset = (self.offset + 1) % len(self.brokers) if self.brokers else 0
        if self.index >= len(self.brokers):
            return None
        broker = self.brokers[(self.index + self.offset) % len(self.brokers)]
        self.index += 1
        return broker


class _Rack:
    def __init__(self, brokers: Iterable[BrokerRegistration], order: random.Random) -> None:
        brokers = list(brokers)
        self.unfenced = _Ring(sorted(broker.id for broker in brokers if not broker.fenced), order)
        self.fenced = _Ring(sorted(broker.id for broker in brokers if broker.fenced), order)


class _Racks:
    """All racks, for the partitions of one placement."""

    def __init__(self, brokers: Iterable[BrokerRegistration], order: random.Random) -> None:
        groups: dict[str | None, list[BrokerRegistration]] = {}
        for broker in brokers:
            groups.setdefault(broker.rack, []).append(broker)
        self.racks = [_Rack(groups[rack], order) for rack in sorted(groups, key=lambda name: name or "")]
        self.order = order
        self.total = sum(len(group) for group in groups.values())
        self.unfenced = sum(not broker.fenced for group in groups.values() for broker in group)
        self.epoch = 0
        self.offset = 0
        order.shuffle(self.racks)

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition."""
        if self.epoch and self.epoch % max(self.total, 1) == 0:
            self.order.shuffle(self.racks)
        if self.offset >= len(self.racks):
            self.offset = 0
        index, self.offset = self.offset, self.offset + 1
        self.epoch += 1
        chosen: list[int] = []
        # Two rounds over the ring: first brokers that are alive, then fenced ones.
        for fenced in (False, True):
            empty = 0
            while len(chosen) < replication_factor and empty < len(self.racks):
                rack = self.racks[index % len(self.racks)]
                broker = (rack.fenced if fenced else rack.unfenced).next(self.epoch)
                if broker is None:
                    empty += 1
                else:
                    empty = 0
                    chosen.append(broker)
                index += 1
        return chosen


class ReplicaPlacer:
    """Places the replicas of new partitions."""

    def __init__(self, order: random.Random) -> None:
        """Args:
        order: shuffles brokers and racks.
        """
        self._order = order

    def place(self, brokers: Iterable[BrokerRegistration], num_partitions: int, replication_factor: int) -> list[list[int]]:
        """The replicas of each new partition, the preferred leader first.

        Args:
            brokers: all that may hold replicas.
            num_partitions: how many partitions are new.
            replication_factor: replicas of each.

        Raises:
            InvalidReplicationFactor: fewer brokers than replicas, or none of them alive.
        """
        racks = _Racks(brokers, self._order)
        if replication_factor <= 0:
            raise errors.InvalidReplicationFactor(f"Invalid replication factor {replication_factor}: it must be positive.")
        if replication_factor > racks.total:
            raise errors.InvalidReplicationFactor(
                f"The target replication factor of {replication_factor} cannot be reached because only {racks.total} broker(s) are"
                " registered or some brokers have all their log directories cordoned."
            )
        if not racks.unfenced:
            raise errors.InvalidReplicationFactor("All brokers are currently fenced or have all their log directories cordoned.")
        return [racks.place(replication_factor) for _ in range(num_partitions)]
