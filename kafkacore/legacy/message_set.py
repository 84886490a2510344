"""ByteBufferMessageSet: messages in a buffer, as Kafka 0.8 to 0.10 send and store them.

The formats themselves are those of `kafkacore.records` (native/legacy.pxi): this class chooses among them.

* magic 0 is Kafka 0.8's and 0.9's, magic 1 Kafka 0.10's with timestamps, magic 2 the record batches of today.
* A compressed set is one wrapper message. The messages in it have absolute offsets with magic 0, relative ones with magic 1.
* A set made from messages is encoded when its bytes are asked for: which magic a broker takes is known only when it is connected.

Source: kafka.message.ByteBufferMessageSet, kafka.message.CompressionFactory of Kafka 0.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kafkacore import errors
from kafkacore.bounds import UNPACKED_BYTES
from kafkacore.compress import NAMES
from kafkacore.plurals import counted
from kafkacore.records import Batch, BatchBuilder, PartitionReader, read_batches

Buffer: TypeAlias = bytes | bytearray | memoryview

NoCompressionCodec: Final = "none"
GZIPCompressionCodec: Final = "gzip"
SnappyCompressionCodec: Final = "snappy"
LZ4CompressionCodec: Final = "lz4"
DefaultCompressionCodec: Final = GZIPCompressionCodec

_CODECS: Final = NAMES[:4]
_MOST_HEAD_BYTES: Final = 61  # of a batch; what stands before a message or a record is shorter
_READ_AHEAD: Final = 500


def codec_id(codec: str | int) -> int:
    """The number of a codec of message sets.

    Args:
        codec: "none", "gzip", "snappy", "lz4" or 0 to 3.

    Raises:
        errors.UnknownCodecError: it is no such codec.
    """
    if isinstance(codec, str) and codec in _CODECS:
        return _CODECS.index(codec)
    if isinstance(codec, int) and not isinstance(codec, bool) and 0 <= codec < len(_CODECS):
        return codec
    raise errors.UnknownCodecError(f"unknown codec {codec!r}: message sets know {', '.join(_CODECS)}, or 0 to {len(_CODECS) - 1}")


def _bytes_of(part: Any) -> int:
    """How many bytes a key or value takes."""
    return 0 if part is None else memoryview(part.encode() if isinstance(part, str) else part).nbytes


class MessageAndOffset(NamedTuple):
    """A message and its place in the log. `key` and `value` are bytes, or None for null."""

    offset: int
    key: Any
    value: Any


class Piece(NamedTuple):
    """Part of a message set, encoded for the wire: `count` messages from `first` on."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is of no use here
    buffer: Any


class ByteBufferMessageSet:
    """A set of messages, from bytes (consumers) or from messages (producers). Iterating gives (offset, key, value), compressed or not.

    Args:
        buffer: message sets and record batches as a broker sends them, one after the other. They may end in the middle of one.
        messages: of a new set: values, or (key, value) pairs; each bytes-like, str (UTF-8) or None.
        compression_codec: of a new set, by name or number; `DefaultCompressionCodec` is gzip.
        magic: format of a new set: 0, 1, or 2 for a record batch.
        base_offset: of the first message of a new set; brokers choose their own.
        timestamp_ms: of all messages of a new set, epoch milliseconds; None for now. Magic 0 has none.
        start_offset: messages of a buffer below it are left out: brokers send compressed sets whole.
        max_decompressed_bytes: the most bytes that one compressed set of a buffer may hold uncompressed.

    Raises:
        errors.UnknownCodecError: message sets know no such codec.
        errors.UsageError: neither a buffer nor messages, or both.
    """

    def __init__(
        self,
        buffer: Buffer | None = None,
        *,
        messages: Iterable[Any] | None = None,
        compression_codec: str | int = NoCompressionCodec,
        magic: int = 0,
        base_offset: int = 0,
        timestamp_ms: int | None = None,
        start_offset: int = 0,
        max_decompressed_bytes: int = UNPACKED_BYTES,
    ) -> None:
        if (buffer is None) == (messages is None):
            raise errors.UsageError("a message set is made from a buffer or from messages")
        if magic not in (0, 1, 2):
            raise errors.UsageError(f"magic must be 0, 1 or 2, not {magic!r}")
        self.magic = magic
        self.compression_codec = _CODECS[codec_id(compression_codec)]
        self.start_offset = start_offset
        self._base_offset = base_offset
        self._timestamp_ms = timestamp_ms
        self._max_decompressed_bytes = max_decompressed_bytes
        self._buffer: Any = buffer
        self._keys: list[Any] | None = None
        self._values: list[Any] = []
        if messages is not None:
            self._keys = []
            for message in messages:
                key, value = message if isinstance(message, tuple) else (None, message)
                self._keys.append(key)
                self._values.append(value)

    # -- as bytes -----------------------------------------------------------------------------------------------------------------

    @property
    def buffer(self) -> Any:
        """The bytes: those handed in, or the messages encoded with the set's own magic."""
        if self._buffer is None:
            self._buffer = self._encode(self.magic)
        return self._buffer

    @property
    def size_bytes(self) -> int:
        """Size of the buffer, with a message that is cut off at its end."""
        return memoryview(self.buffer).nbytes

    @property
    def valid_bytes(self) -> int:
        """Size of the whole messages in the buffer."""
        last = self._last()
        return 0 if last is None else last.position + last.size_bytes

    @property
    def next_offset(self) -> int:
        """Where to read on: behind the last whole message, and `start_offset` without a message. Also behind what is no message."""
        last = self._last()
        return self.start_offset if last is None else max(self.start_offset, last.next_offset)

    def _last(self) -> Batch | None:
        last = None
        for last in self.shallow():  # noqa: B007 - the last one counts
            pass
        return last

    def pieces(self, magic: int, max_bytes: int) -> Iterator[Piece]:
        """The messages encoded for the wire, with whatever magic a broker takes.

        Args:
            magic: 0 or 1, and the set stays whole; 2 for record batches, of which a request takes one per partition.
            max_bytes: of a record batch before compression; a larger message goes alone.
        """
        keys, values, timestamps_ms = self._columns()
        if magic < 2:
            yield Piece(0, len(values), self.buffer if magic == self.magic and self._keys is not None else self._encode(magic))
            return
        has_keys = any(key is not None for key in keys)
        first = 0
        while first < len(values):
            builder = BatchBuilder(magic=magic, compression=self.compression_codec, max_bytes=max_bytes)
            count = builder.append_many(values, keys if has_keys else None, timestamps_ms=timestamps_ms, start=first)
            yield Piece(first, count, builder.build())
            first += count

    def _columns(self) -> tuple[list[Any], list[Any], Any]:
        """Keys, values, timestamps in ms (an array, one for all, or None for now)."""
        if self._keys is not None:
            return self._keys, self._values, self._timestamp_ms
        records = list(self._records())
        timestamps_ms = np.fromiter((r.timestamp_ms for r in records), np.int64, len(records))
        known = bool((timestamps_ms >= 0).all())
        return [r.key for r in records], [r.value for r in records], timestamps_ms if known else self._timestamp_ms

    def _encode(self, magic: int) -> memoryview:
        keys, values, timestamps_ms = self._columns()
        head_bytes = _MOST_HEAD_BYTES * (len(values) + 1)
        max_bytes = sum(map(_bytes_of, keys)) + sum(map(_bytes_of, values)) + head_bytes  # a set is not split
        builder = BatchBuilder(magic=magic, compression=self.compression_codec, max_bytes=max_bytes, base_offset=self._base_offset)
        has_keys = any(key is not None for key in keys)
        count = builder.append_many(values, keys if has_keys else None, timestamps_ms=timestamps_ms)
        if count != len(values):
            raise errors.InternalError(f"{count} of {len(values)} messages fit {max_bytes} bytes")
        return builder.build()

    # -- as messages --------------------------------------------------------------------------------------------------------------

    def _records(self) -> Iterator[Any]:
        reader = PartitionReader(self.buffer, start_offset=self.start_offset, max_decompressed_bytes=self._max_decompressed_bytes)
        while records := reader.records(_READ_AHEAD, self._max_decompressed_bytes):
            yield from records

    def __iter__(self) -> Iterator[MessageAndOffset]:
        """Every message, those of compressed sets one by one.

        Raises:
            errors.CorruptDataError: the bytes are not what they claim to be.
            errors.DecompressedTooLarge: a compressed set holds more than max_decompressed_bytes.
        """
        for record in self._records():
            yield MessageAndOffset(record.offset, record.key, record.value)

    def shallow(self) -> Iterator[Batch]:
        """The messages as they are stored: a compressed set is one of them, and is not decompressed.

        Yields:
            `Batch` with `magic`, `last_offset` (the stored one), `compression`, `size_bytes`, `crc`; `records()` looks inside.
        """
        return read_batches(self.buffer, max_decompressed_bytes=self._max_decompressed_bytes)

    def __repr__(self) -> str:
        if self._keys is not None:
            return f"ByteBufferMessageSet({counted(len(self._values), 'message')}, magic {self.magic}, {self.compression_codec})"
        return f"ByteBufferMessageSet({self.size_bytes} bytes)"
