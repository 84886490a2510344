"""The sticky assignor's name."""


class StickyPartitionAssignor:
    """As few moves as possible."""

    name = "sticky"
