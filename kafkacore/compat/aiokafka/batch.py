"""BatchBuilder: records that are to go out together, by `AIOKafkaProducer.send_batch`.

The engine's batch of the same limit says which records fit and how large they are; the records are kept as columns for `send_many`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacore._codec import ForeignBatchBuilder

MAGIC = 2


class BatchBuilder:
    """Made by `AIOKafkaProducer.create_batch`.

    Args:
        batch_size: bytes, at most.
        compression_type: the codec's number; 0 for none.
        is_transactional: whether the batch is part of a transaction.
        key_serializer, value_serializer: the producer's.
    """

    def __init__(
        self,
        batch_size: int,
        compression_type: int,
        *,
        is_transactional: int = 0,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
    ) -> None:
        self._builder = ForeignBatchBuilder(MAGIC, compression_type, bool(is_transactional), -1, -1, 0, batch_size)
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._closed = False
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.headers: list[Any] = []
        self.timestamps_ms: list[int] = []

    def append(self, *, timestamp: int | None, key: Any, value: Any, headers: Sequence[tuple[str, bytes]] | None = []) -> Any:
        """Adds a record.

        Args:
            timestamp: epoch milliseconds, None for now.
            key, value: bytes or None, or what the producer's serializers turn into that.
            headers: pairs of name and bytes.

        Returns:
            Its `offset` in the batch, `size` in bytes and `timestamp`; None when the batch is full, which closes it, or closed.
        """
        if self._closed:
            return None
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        headers = list(headers or ())
        found = self._builder.append(len(self.keys), timestamp, key, value, headers)
        if found is None:
            self._closed = True
            return None
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.timestamps_ms.append(found.timestamp)
        return found

    def close(self) -> None:
        """No record can be added any more."""
        self._closed = True

    def closed(self) -> bool:
        """True once it is full or closed."""
        return self._closed

    def size(self) -> int:
        """Bytes, before compression."""
        return self._builder.size()

    def record_count(self) -> int:
        """Records so far."""
        return len(self.keys)
