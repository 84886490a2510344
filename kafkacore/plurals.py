"""Numbers of things, for people."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `2 records`, `1,000 batches`.

    Args:
        count: how many.
        noun: of one.
        plural: of others; the noun with an s when None.
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
