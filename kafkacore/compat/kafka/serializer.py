"""kafka-python's interfaces of serializers, and the ones it brings.

Source: kafka.serializer, kafka-python 3.0.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Serializer(ABC):
    """Turns keys or values into bytes."""

    @abstractmethod
    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """Bytes-like or None, for a record of this topic with these headers."""

    def close(self) -> None:  # noqa: B027 - need not be overridden
        """The producer is closed."""


class Deserializer(ABC):
    """Turns bytes into keys or values."""

    @abstractmethod
    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes) -> Any:
        """A key or value of a record of this topic with these headers; `data` is None for null."""

    def close(self) -> None:  # noqa: B027 - need not be overridden
        """The consumer is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding; bytes and None pass."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        return data if data is None or isinstance(data, (bytes, bytearray, memoryview)) else data.encode(self.encoding)

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON in an encoding; None stays null."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """A function as a serializer."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        return data if self.fn is None else self.fn(data)


class DeserializeWrapper(Deserializer):
    """A function as a deserializer."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        return data if self.fn is None else self.fn(data)
