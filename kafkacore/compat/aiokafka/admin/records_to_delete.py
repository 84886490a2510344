"""Records to delete."""

from __future__ import annotations


class RecordsToDelete:
    """What lies before an offset.

    Args:
        before_offset: the first record to keep; -1 deletes everything.
    """

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset
