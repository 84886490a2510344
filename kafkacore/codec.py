"""Kafka's byte-level pieces for other producers: checksums and hashes. All of it is compiled; this module only names it."""

from kafkacore._codec import crc32c, murmur2

__all__ = ["crc32c", "murmur2"]
