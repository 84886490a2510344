"""Values that several modules of confluent-kafka share: enumerations, nodes, topic ids, collections of topics.

Source: confluent_kafka._model, confluent_kafka.cimpl.Uuid, confluent-kafka 2.16.
"""

from __future__ import annotations

import base64
import operator
from enum import Enum
from typing import Any, TypeVar

from kafkacore import types
from kafkacore.compat.confluent.partitions import TopicPartition

E = TypeVar("E", bound=Enum)
_INT64 = range(-(2**63), 2**63)


class Ordered(Enum):
    """Enumerations whose members are ordered by value."""

    def __lt__(self, other: object) -> bool:
        return bool(self.value < other.value) if isinstance(other, type(self)) else NotImplemented


# fmt: off
class ConsumerGroupState(Ordered):
    """What a group does. KIP-848's Assigning and Reconciling have no member here: they are UNKNOWN."""

    UNKNOWN = 0
    UNKOWN = UNKNOWN
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5
class ConsumerGroupType(Ordered):
    """The protocol of a group."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2
class IsolationLevel(Ordered):
    """Which offset is the last one."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
class ElectionType(Ordered):
    """Which replica may be elected."""

    PREFERRED = 0
    UNCLEAN = 1
# fmt: on


def member_of(value: Any, kind: type[E]) -> E:
    """A member of an enumeration from itself, its name in any case, or its number.

    Raises:
        ValueError: there is no such member.
        TypeError: the value is neither.
    """
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            raise ValueError(f'Unknown value "{value}": should be a {kind.__name__}') from None
    if isinstance(value, int):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f'Unknown value "{value}": should be a {kind.__name__}')
    return value


class Node:
    """A broker: id, host, port, rack."""

    def __init__(self, id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack

    def __str__(self) -> str:
        return f"({self.id}) {self.host}:{self.port} {f'(Rack - {self.rack})' if self.rack else ''}"


def node_of(node: types.Node | None) -> Node | None:
    """The engine's node."""
    return None if node is None else Node(node.id, node.host, node.port, node.rack)


class ConsumerGroupTopicPartitions:
    """A group and partitions, with offsets where a call wants or gives them."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


class TopicCollection:
    """Topics by name."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


class TopicPartitionInfo:
    """A partition: id, leader (None while no leader is elected), replicas, isr."""

    def __init__(self, id: int, leader: Node | None, replicas: list[Node], isr: list[Node]) -> None:
        self.id = id
        self.leader = leader
        self.replicas = replicas
        self.isr = isr


class Uuid:
    """128 bits, as Kafka's topic ids, shown as Kafka's tools show them. Equal by value.

    Args:
        most_significant_bits, least_significant_bits: signed 64-bit numbers.

    Raises:
        OverflowError: more than 64 bits.
    """

    __slots__ = ("_bits",)

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._bits = operator.index(most_significant_bits), operator.index(least_significant_bits)
        if not all(bits in _INT64 for bits in self._bits):
            raise OverflowError("int too big to convert")

    def get_most_significant_bits(self) -> int:
        """The first 64 bits."""
        return self._bits[0]

    def get_least_significant_bits(self) -> int:
        """The last 64 bits."""
        return self._bits[1]

    def __str__(self) -> str:
        raw = b"".join(bits.to_bytes(8, "big", signed=True) for bits in self._bits)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return self._bits == other._bits if isinstance(other, Uuid) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bits)


def uuid_of(topic_id: bytes) -> Uuid:
    """From the 16 bytes of a topic id."""
    raw = bytes(topic_id)
    return Uuid(int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True))
