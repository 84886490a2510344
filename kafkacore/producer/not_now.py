"""NotNow: what a call of a producer raises that would have to wait, where no thread may be kept waiting (asyncio)."""

from __future__ import annotations


class NotNow(Exception):
    """The call would wait; nothing of it is queued that its progress does not say. Never reaches an application.

    Args:
        nbytes: the buffer memory that is missing; 0 when it is not memory.
        version: the metadata version behind which to look again; -1 when it is not metadata.
    """

    def __init__(self, nbytes: int = 0, version: int = -1) -> None:
        super().__init__(nbytes, version)
        self.nbytes = nbytes
        self.version = version
