"""The range assignor's name."""


class RangePartitionAssignor:
    """Consecutive partitions of each topic."""

    name = "range"
