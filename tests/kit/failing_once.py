"""A deserializer for tests of three partitions that are read at once: what fails in one of them must cost no record of another."""

from __future__ import annotations

VALUES = [[b"%d-%d" % (partition, nth) for nth in range(3)] for partition in range(3)]
"""By partition."""


class FailingOnce:
    """Refuses a value in the middle of the first partition, and one at the end of the second: each the first time that it comes."""

    def __init__(self) -> None:
        self.left = [b"0-1", b"1-2"]

    def __call__(self, data: bytes) -> bytes:
        if data in self.left:
            self.left.remove(data)
            raise LookupError(data)
        return data
