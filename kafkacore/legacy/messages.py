"""KeyedMessage: what the producers of Kafka 0.8 send."""

from __future__ import annotations

from typing import Any, NamedTuple, overload

from kafkacore import errors

_ABSENT: Any = object()


class KeyedMessage:
    """A message for a topic, with or without a key.

    There are three forms: (topic, message), (topic, key, message) and (topic, key, part_key, message). In the second `part_key` is the key.

    Args:
        topic: name of the topic.
        key: stored with the message; None for none.
        part_key: chooses the partition, and is never stored; None leaves the choice to the key.
        message: what is sent.

    Raises:
        errors.UsageError: the topic is None, or the arguments are none of the three forms.

    Source: kafka.producer.KeyedMessage of Kafka 0.8.
    """

    __slots__ = ("key", "message", "part_key", "topic")

    topic: str
    key: Any
    part_key: Any
    message: Any

    @overload
    def __init__(self, topic: str, message: Any, /) -> None: ...
    @overload
    def __init__(self, topic: str, key: Any, message: Any, /) -> None: ...
    @overload
    def __init__(self, topic: str, key: Any, part_key: Any, message: Any) -> None: ...
    @overload
    def __init__(self, topic: str, *, message: Any, key: Any = None, part_key: Any = None) -> None: ...
    def __init__(self, topic: str, *values: Any, message: Any = _ABSENT, key: Any = _ABSENT, part_key: Any = _ABSENT) -> None:
        if topic is None:
            raise errors.UsageError("the topic of a KeyedMessage must not be None")
        if not isinstance(topic, str):
            raise errors.UsageError(f"the topic of a KeyedMessage is a string, not {topic!r}")
        names = {1: ("message",), 2: ("key", "message"), 3: ("key", "part_key", "message")}.get(len(values), ())
        given = dict(zip(names, values, strict=False))
        for name, value in (("key", key), ("part_key", part_key), ("message", message)):
            if value is not _ABSENT:
                if name in given or (values and not names):
                    raise errors.UsageError(f"{name} of a KeyedMessage is given twice")
                given[name] = value
        if "message" not in given or len(values) > len(names):
            raise errors.UsageError("a KeyedMessage is (topic, message), (topic, key, message) or (topic, key, part_key, message)")
        self.topic = topic
        self.key = given.get("key")
        self.part_key = given.get("part_key", self.key)
        self.message = given["message"]

    @property
    def partition_key(self) -> Any:
        """What the partitioner gets: `part_key`, or else the key; None when there is neither."""
        return self.key if self.part_key is None else self.part_key

    @property
    def has_key(self) -> bool:
        """True when there is a key to be stored."""
        return self.key is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyedMessage):
            return NotImplemented
        return (self.topic, self.key, self.part_key, self.message) == (other.topic, other.key, other.part_key, other.message)

    def __hash__(self) -> int:
        return hash((self.topic, self.key, self.part_key, self.message))

    def __repr__(self) -> str:
        return f"KeyedMessage({self.topic!r}, {self.key!r}, {self.part_key!r}, {self.message!r})"


class Message(NamedTuple):
    """What is stored: bytes-like or str, or None for null."""

    key: Any
    value: Any
