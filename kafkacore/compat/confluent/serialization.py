"""confluent-kafka's serializers: objects that turn keys and values into bytes and back; a SerializationContext says where these belong.

Source: confluent_kafka.serialization, confluent-kafka 2.16.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any

from kafkacore.compat.confluent.kafka_error import KafkaException

__all__ = [
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
]


class MessageField(str, Enum):  # noqa: UP042 - compares with the words, and so with confluent-kafka's own members
    """A part of a message."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"

    def __str__(self) -> str:
        return str(self.value)


class SerializationContext:
    """Where an object belongs.

    Args:
        topic: topic name.
        field: key or value.
        headers: the message's.
    """

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class SerializationError(KafkaException):
    """An object is no bytes of its kind, or bytes no object."""


class _Serde:
    __slots__ = ()

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Takes what gives the cluster's id, from the client that is made; to be called when the id is needed. Here it is not."""

    def close(self) -> None:
        """Frees what this has opened for itself, which is nothing here."""


class Serializer(_Serde):
    """Turns objects into bytes; a base."""

    __slots__ = ()

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """The bytes; None for None.

        Raises:
            SerializationError: the object has none.
        """
        raise NotImplementedError


class Deserializer(_Serde):
    """Turns bytes into objects; a base."""

    __slots__ = ()

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """The object; None for None.

        Raises:
            SerializationError: these bytes are none.
        """
        raise NotImplementedError


class SerializerBuilder:
    """Makes a serializer of a client's settings; a base."""

    __slots__ = ()

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """The serializer, and the settings without those that were for it.

        Args:
            conf: the client's settings.
            is_key: for keys, or for values.
        """
        raise NotImplementedError


class DeserializerBuilder:
    """Makes a deserializer of a client's settings; a base."""

    __slots__ = ()

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """The deserializer, and the settings without those that were for it.

        Args:
            conf: the client's settings.
            is_key: for keys, or for values.
        """
        raise NotImplementedError


def _packed(form: str, obj: Any) -> bytes | None:
    if obj is None:
        return None
    try:
        return struct.pack(form, obj)
    except struct.error as error:
        raise SerializationError(str(error)) from error


def _unpacked(form: str, value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return struct.unpack(form, value)[0]
    except struct.error as error:
        raise SerializationError(str(error)) from error


class DoubleSerializer(Serializer):
    """Floats as eight bytes, IEEE 754, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        """See Serializer."""
        return _packed(">d", obj)


class DoubleDeserializer(Deserializer):
    """Floats from eight bytes."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> float | None:
        """See Deserializer."""
        found: float | None = _unpacked(">d", value)
        return found


class IntegerSerializer(Serializer):
    """Whole numbers as four bytes, signed, big-endian."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        """See Serializer."""
        return _packed(">i", obj)


class IntegerDeserializer(Deserializer):
    """Whole numbers from four bytes."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        """See Deserializer."""
        found: int | None = _unpacked(">i", value)
        return found


class StringSerializer(Serializer):
    """Texts as bytes of an encoding."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        """See Serializer."""
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """Texts from bytes of an encoding."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        """See Deserializer."""
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
