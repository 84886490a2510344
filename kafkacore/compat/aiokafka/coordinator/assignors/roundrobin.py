"""The round robin assignor's name."""


class RoundRobinPartitionAssignor:
    """All partitions in turn."""

    name = "roundrobin"
