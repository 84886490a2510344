"""Names of kafka-python's assignors, for partition_assignment_strategy; the engine shares out.

Source: kafka.coordinator.assignors, kafka-python 3.0.
"""

from __future__ import annotations


class RangePartitionAssignor:
    """Consecutive partitions of each topic."""

    name = "range"


class RoundRobinPartitionAssignor:
    """All partitions in turn."""

    name = "roundrobin"


class StickyPartitionAssignor:
    """As few moves as possible."""

    name = "sticky"


class CooperativeStickyAssignor:
    """As few moves as possible, and only what moves is given up (KIP-429)."""

    name = "cooperative-sticky"
