"""The partitioner of Kafka 0.8: abs(hash of the key) modulo the number of partitions, with the hashes of Java.

Source: kafka.producer.DefaultPartitioner, kafka.producer.ByteArrayPartitioner, kafka.utils.Utils.abs.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from kafkacore import errors

_CACHED_KEYS = 65_536


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@functools.lru_cache(_CACHED_KEYS)
def _java_string_hash(text: str) -> int:
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _int32(value)


@functools.lru_cache(_CACHED_KEYS)
def _java_bytes_hash(data: bytes) -> int:
    value = 1
    for byte in data:
        value = (31 * value + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return _int32(value)


def java_hash(key: Any) -> int:
    """The hash that Java gives the same value, an int32.

    Args:
        key: a str (as java.lang.String), bytes-like (as java.util.Arrays.hashCode), bool, int (as Integer, outside of 32 bits as Long) or
            float (as Double).

    Raises:
        errors.UsageError: the key is of another type, whose hash in Python would change from run to run.
    """
    if isinstance(key, str):
        return _java_string_hash(key)
    if isinstance(key, (bytes, bytearray, memoryview)):
        return _java_bytes_hash(bytes(key))
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if -(2**31) <= key < 2**31:
            return key
        if -(2**63) <= key < 2**63:
            return _int32(key ^ (key >> 32))
    if isinstance(key, float):
        bits = 0x7FF8000000000000 if key != key else int.from_bytes(struct.pack(">d", key), "big")
        return _int32(bits ^ (bits >> 32))
    raise errors.UsageError(
        f"default_partitioner takes str, bytes, int and float, not {type(key).__name__}: give a partitioner of your own"
    )


def default_partitioner(key: Any, num_partitions: int) -> int:
    """The partition of a key: its Java hash without sign, modulo the number of partitions. Not the murmur2 of today's clients.

    Args:
        key: see `java_hash`. For bytes it is what ByteArrayPartitioner does; DefaultPartitioner hashed arrays by their address.
        num_partitions: of the topic, those without a leader included.
    """
    return (java_hash(key) & 0x7FFFFFFF) % num_partitions
