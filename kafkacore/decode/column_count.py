"""How many columns a schema makes, and how deep: names that stand for other types can make very much of a short text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkacore.bounds import SCHEMA_DEPTH, SCHEMA_FIELDS
from kafkacore.errors import ConfigError


class ColumnCount:
    """Counts while a schema is walked.

    Args:
        what: whose schema it is, for messages.
        remedy: what the caller can do, for messages.
    """

    def __init__(self, what: str, remedy: str = "such are not read") -> None:
        self._what, self._remedy = what, remedy
        self._fields = self._depth = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around the making of one column, with those in it.

        Raises:
            ConfigError: they are too many, or too deep.
        """
        self._fields, self._depth = self._fields + 1, self._depth + 1
        if self._fields > SCHEMA_FIELDS or self._depth > SCHEMA_DEPTH:
            raise ConfigError(
                f"{self._what} has more than {SCHEMA_FIELDS:,} fields, or some more than {SCHEMA_DEPTH} deep: {self._remedy}"
            )
        yield
        self._depth -= 1
