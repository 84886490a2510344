"""Keys and values as bytes: a serializer is a function of the value, or an object with `serialize(topic, value)`."""

from __future__ import annotations

from typing import Any


def is_function_of_value(serializer: Any) -> bool:
    """Whether the compiled `send` can call a serializer: one with `serialize(topic, value)` needs the topic."""
    return serializer is None or not hasattr(serializer, "serialize")


def serialize(serializer: Any, topic: str, value: Any) -> Any:
    """A key or value as the serializer makes it; None stays None."""
    if serializer is None or value is None:
        return value
    return serializer.serialize(topic, value) if hasattr(serializer, "serialize") else serializer(value)


def as_bytes(data: Any) -> bytes | None:
    """A serialized key or value as a partitioner with Java's arguments gets it."""
    if data is None:
        return None
    return data.encode() if isinstance(data, str) else bytes(data)
