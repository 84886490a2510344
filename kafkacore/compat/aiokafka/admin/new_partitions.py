"""Partitions to add."""

from __future__ import annotations

from typing import Any


class NewPartitions:
    """How many partitions a topic shall have.

    Args:
        total_count: of the topic.
        new_assignments: for each added partition the ids of its brokers; None leaves them to the cluster.
    """

    def __init__(self, total_count: int, new_assignments: Any = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments
