"""Errors of the package (placeholder until the values room lands; keeps only what the codec raises)."""


class KafkaError(Exception):
    """Base of every error of this package."""

    def __init__(self, message: str = "", *, offset: int | None = None, **where: object) -> None:
        super().__init__(message if offset is None else f"{message} (offset {offset})")
        self.offset = offset
        self.where = where


class CorruptDataError(KafkaError):
    """Bytes from a peer or a file that cannot be what they should be."""
