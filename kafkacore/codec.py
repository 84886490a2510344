"""Kafka's byte-level pieces for other producers: checksum, key hashes, varints. All of it is compiled; this module only names it."""

from kafkacore._codec import (
    crc32c,
    decode_unsigned_varint,
    decode_unsigned_varints,
    decode_varint,
    decode_varints,
    encode_unsigned_varint,
    encode_unsigned_varints,
    encode_varint,
    encode_varints,
    fnv1a,
    murmur2,
)

__all__ = [
    "crc32c",
    "decode_unsigned_varint",
    "decode_unsigned_varints",
    "decode_varint",
    "decode_varints",
    "encode_unsigned_varint",
    "encode_unsigned_varints",
    "encode_varint",
    "encode_varints",
    "fnv1a",
    "murmur2",
]
