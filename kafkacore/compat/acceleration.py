"""kafkacore's record layer in kafka-python and aiokafka: `accelerate("kafka")` before a client is made, and they read and write faster.

The clients stay those of their packages. What is put in its place: the classes that build and read record batches of magic 2, CRC-32C,
varints, and the hash by which keys choose partitions. Message sets of before Kafka 0.11 are read as before. Batches that a client holds
already keep the class they have.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafkacore._codec import Batch, ForeignBatchBuilder, ForeignRecord, ForeignRecords
from kafkacore.codec import crc32c, decode_varint, encode_varint, murmur2
from kafkacore.errors import ConfigError, CorruptDataError
from kafkacore.records import read_batches

__all__ = ["Acceleration", "accelerate"]

LENGTH_AT, LOG_OVERHEAD, CRC_FROM = 8, 12, 21
MAGIC_AT, LEAST_BYTES = 16, 26
INT32_MAX = 2**31 - 1


class RecordBatch:
    """A batch of magic 2 with the members of `DefaultRecordBatch`, of kafka-python and of aiokafka."""

    CODEC_MASK, CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = 7, 0, 1, 2, 3, 4

    __slots__ = ("_batch", "_corrupt", "_left")

    def __init__(self, buffer: Any, corrupt: Callable[[str], Exception]) -> None:
        """Reads the header.

        Args:
            buffer: the batch, and nothing else.
            corrupt: makes the package's error, from its text.
        """
        self._corrupt = corrupt
        self._left: Iterator[ForeignRecord] | None = None
        try:
            self._batch: Batch = next(iter(read_batches(buffer, check_crcs=False)))
        except (CorruptDataError, StopIteration) as error:
            raise corrupt(f"Found invalid record batch: {error or 'it is cut off'}") from error

    def validate_crc(self) -> bool:
        """True when the bytes have the checksum that the header names."""
        return crc32c(self._batch.buffer[CRC_FROM:]) == self._batch.crc

    def __iter__(self) -> Iterator[ForeignRecord]:
        if self._left is None:
            self._left = ForeignRecords(self._batch, self._corrupt)
        return self._left

    def __next__(self) -> ForeignRecord:
        return next(iter(self))

    base_offset = property(lambda self: self._batch.base_offset)
    size_in_bytes = property(lambda self: self._batch.size_bytes)
    leader_epoch = property(lambda self: self._batch.leader_epoch)
    magic = property(lambda self: self._batch.magic)
    crc = property(lambda self: self._batch.crc)
    attributes = property(lambda self: self._batch.attributes)
    last_offset = property(lambda self: self._batch.last_offset)
    last_offset_delta = property(lambda self: self._batch.last_offset - self._batch.base_offset)
    next_offset = property(lambda self: self._batch.next_offset)
    compression_type = property(lambda self: self._batch.compression)
    timestamp_type = property(lambda self: self._batch.timestamp_type)
    is_transactional = property(lambda self: self._batch.is_transactional)
    is_control_batch = property(lambda self: self._batch.is_control)
    first_timestamp = property(lambda self: self._batch.base_timestamp_ms)
    max_timestamp = property(lambda self: self._batch.max_timestamp_ms)
    producer_id = property(lambda self: self._batch.producer_id)
    producer_epoch = property(lambda self: self._batch.producer_epoch)
    base_sequence = property(lambda self: self._batch.base_sequence)
    has_sequence = property(lambda self: self._batch.base_sequence != -1)
    last_sequence = property(lambda self: self._batch.last_sequence)
    records_count = property(lambda self: self._batch.record_count)

    def has_producer_id(self) -> bool:
        """True for a batch of an idempotent producer."""
        return bool(self._batch.producer_id > -1)


class Records:
    """The batches of one partition in a fetch, with the members of `MemoryRecords`; what is cut off at the end is left out."""

    def __init__(
        self, data: Any, batch: Callable[[Any], Any], message: Callable[[Any, int], Any], corrupt: Callable[[str], Exception]
    ) -> None:
        """Args:
        data: bytes-like.
        batch: makes a batch of magic 2, from its bytes.
        message: makes a message of magic 0 or 1, from its bytes and the magic.
        corrupt: makes the package's error, from its text.
        """
        self._data = memoryview(data)
        self._at = 0
        self._batch = batch
        self._message = message
        self._corrupt = corrupt

    def size_in_bytes(self) -> int:
        """Bytes of all, with what is cut off."""
        return len(self._data)

    def _end(self) -> int:
        """Where the next batch ends, 0 when no complete one is left."""
        left = len(self._data) - self._at
        if left < LOG_OVERHEAD:
            return 0
        size = LOG_OVERHEAD + int(struct.unpack_from(">i", self._data, self._at + LENGTH_AT)[0])
        return self._at + max(size, LOG_OVERHEAD) if size <= left else 0

    def has_next(self) -> bool:
        """True when a complete batch is left."""
        return self._end() > 0

    def next_batch(self) -> Any:
        """The next batch, None at the end."""
        end = self._end()
        if not end:
            return None
        part, self._at = self._data[self._at : end], end
        if len(part) < LEAST_BYTES:
            raise self._corrupt(f"Record size is less than the minimum record overhead ({LEAST_BYTES - LOG_OVERHEAD})")
        return self._batch(part) if part[MAGIC_AT] >= 2 else self._message(part, part[MAGIC_AT])


def _write_varint(value: int, write: Callable[[int], object]) -> int:
    encoded = encode_varint(value)
    for byte in encoded:
        write(byte)
    return len(encoded)


def _murmur2(data: Any) -> int:
    return murmur2(data) & 0xFFFFFFFF


NUMBERS = {"calc_crc32c": crc32c, "decode_varint": decode_varint, "encode_varint": _write_varint}


class Swap(NamedTuple):
    """A name of a module and its value from now on."""

    module: str
    name: str
    value: Any


def _kafka() -> list[Swap]:
    corrupt = importlib.import_module("kafka.errors").CorruptRecordError

    class DefaultRecordBatch(RecordBatch):
        __slots__ = ()

        def __init__(self, buffer: Any) -> None:
            super().__init__(buffer, corrupt)

    swaps = []
    for module in ("kafka.record.default_records", "kafka.record.memory_records"):
        swaps += [Swap(module, "DefaultRecordBatch", DefaultRecordBatch), Swap(module, "DefaultRecordBatchBuilder", ForeignBatchBuilder)]
    swaps.append(Swap("kafka.producer.kafka", "DefaultRecordBatchBuilder", ForeignBatchBuilder))
    for module in ("kafka.record.util", "kafka.record.default_records"):
        swaps += [Swap(module, name, value) for name, value in NUMBERS.items()]
    swaps += [Swap(module, "murmur2", _murmur2) for module in ("kafka.partitioner", "kafka.partitioner.default")]
    return swaps


def _aiokafka() -> list[Swap]:
    corrupt = importlib.import_module("aiokafka.errors").CorruptRecordException
    message = importlib.import_module("aiokafka.record.legacy_records").LegacyRecordBatch

    class DefaultRecordBatch(RecordBatch):
        __slots__ = ()

        def __init__(self, buffer: Any) -> None:
            super().__init__(buffer, corrupt)

    class MemoryRecords(Records):
        def __init__(self, data: Any) -> None:
            super().__init__(data, DefaultRecordBatch, message, corrupt)

    swaps = [
        Swap(module, "DefaultRecordBatchBuilder", ForeignBatchBuilder)
        for module in ("aiokafka.record.default_records", "aiokafka.producer.message_accumulator", "aiokafka.producer.producer")
    ]
    swaps += [Swap(f"aiokafka.record.{module}_records", "DefaultRecordBatch", DefaultRecordBatch) for module in ("default", "memory")]
    swaps += [Swap(module, "MemoryRecords", MemoryRecords) for module in ("aiokafka.record.memory_records", "aiokafka.consumer.fetcher")]
    swaps.append(Swap("aiokafka.partitioner", "murmur2", _murmur2))
    return swaps + [Swap("aiokafka.record.util", name, value) for name, value in NUMBERS.items()]


PACKAGES: dict[str, Callable[[], list[Swap]]] = {"kafka": _kafka, "aiokafka": _aiokafka}


class Acceleration:
    """What `accelerate` has done; `undo` takes it back. As a context manager it is taken back at the end of the block."""

    def __init__(self, swaps: list[Swap]) -> None:
        """Makes the swaps, all or none."""
        modules = [importlib.import_module(swap.module) for swap in swaps]
        self._before = [(module, swap.name, getattr(module, swap.name)) for module, swap in zip(modules, swaps, strict=True)]
        for module, swap in zip(modules, swaps, strict=True):
            setattr(module, swap.name, swap.value)

    def undo(self) -> None:
        """Gives the package its own classes back; calling it again does nothing."""
        for module, name, value in self._before:
            setattr(module, name, value)
        self._before = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.undo()


def accelerate(package: str) -> Acceleration:
    """Lets a package read and write records with kafkacore's compiled code. To be called before its clients are made.

    Args:
        package: "kafka" (kafka-python 3) or "aiokafka".

    Returns:
        Acceleration: its `undo()` takes it back.

    Raises:
        ConfigError: there is no such package here, or its version has other insides than those this was made for.
    """
    if package not in PACKAGES:
        raise ConfigError(f"accelerate() knows {' and '.join(PACKAGES)}, not {package!r}")
    try:
        return Acceleration(PACKAGES[package]())
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{package} cannot be accelerated: {error}") from error
