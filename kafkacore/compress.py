"""Compression of record batches by Kafka's codec ids: gzip, snappy, lz4 and zstd.

Rules of the formats that are easy to miss:

* snappy is xerial's stream: a 16-byte header, then blocks of (int32 length, raw snappy). Some writers use little-endian lengths,
  some send raw snappy without a header. All of them are read, xerial is written.
* lz4 is the frame format. Java reads only independent blocks. Magic 0 message sets (KIP-57) have a header checksum taken over the
  magic number too; `lz4_break_header` writes it, reading accepts both.
* zstd may come as several frames, and without a content size.

Sizes that compressed bytes declare are never trusted: output grows piece by piece up to `max_bytes`.

gzip and lz4 decompressors copy what lies behind the end of a member or frame. The first one is given all, for there is hardly ever
another; the following are fed by slices that begin small, so that a megabyte of empty ones is not copied fifty thousand times.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import lz4.frame
import snappy
import zstandard

from kafkacore.errors import CorruptDataError, DecompressedTooLarge

_isal: Any
try:
    from isal import isal_zlib

    _isal = isal_zlib
except ImportError:  # optional: the same format, several times faster
    _isal = None

Buffer: TypeAlias = bytes | bytearray | memoryview

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# Lowest and highest level, as Java's producer accepts them. None where the codec has none.
LEVELS: Final[tuple[tuple[int, int] | None, ...]] = (None, (1, 9), None, (1, 17), (-131072, 22))
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32_768
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_FIRST_PIECE_BYTES: Final = 65_536
_FIRST_SLICE_BYTES: Final = 512
_SNAPPY_MAX_RATIO: Final = 22  # a 3-byte element copies at most 64 bytes
_ISAL_DEFAULT_LEVEL: Final = 2
_ISAL_TOP_LEVEL: Final = 3
_ZLIB_DEFAULT_LEVEL: Final = 6
_ZSTD_DEFAULT_LEVEL: Final = 3
_STEP_BYTES: Final = 4_096
_LEAST_ALLOWANCE_BYTES: Final = 65_536
_COMPRESS_WEIGHT: Final = 64


class AllowanceExceeded(Exception):
    """The work goes beyond the `Allowance` of its thread: it says nothing about the data."""


class Allowance:
    """How much work the codecs may do in a thread while it is entered (`with allowance:`), in bytes that come out of decompression.

    A block or frame counts as 4 KiB more, because a megabyte may hold 100,000 empty ones; a byte that is compressed counts 64 times. Broken
    data may have come far: it takes half of what is left, so that all of it together costs the allowance once more. Beyond the allowance
    the codecs raise `AllowanceExceeded`.

    Attributes:
        left_bytes: what may still be done; at most 0 for nothing.
    """

    __slots__ = ("left_bytes",)

    def __init__(self, nbytes: int) -> None:
        self.left_bytes = nbytes

    def __enter__(self) -> None:
        _contexts.allowance = self

    def __exit__(self, *exc: object) -> None:
        _contexts.allowance = None

    def spend(self, nbytes: int) -> None:
        """Counts work.

        Raises:
            AllowanceExceeded: there is not enough left.
        """
        self.left_bytes -= nbytes
        if self.left_bytes < 0:
            raise AllowanceExceeded


def _step() -> None:
    """Another frame or block."""
    if _contexts.allowance is not None:
        _contexts.allowance.spend(_STEP_BYTES)


class _Contexts(threading.local):
    """Codec contexts of one thread: making one costs more than a small batch does, and none may be shared between threads."""

    def __init__(self) -> None:
        self.zstd_compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.zstd_decompressor = zstandard.ZstdDecompressor()
        self.lz4_decompressor = lz4.frame.LZ4FrameDecompressor()
        self.allowance: Allowance | None = None


_contexts = _Contexts()


def codec_id(name: str | int) -> int:
    """The codec's number in batch attributes.

    Args:
        name: "none", "gzip", "snappy", "lz4" or "zstd", or the number itself.

    Raises:
        ValueError: there is no such codec.
    """
    if name in NAMES:
        return NAMES.index(name)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(NAMES):
        return name
    raise ValueError(f"unknown compression {name!r}: expected one of {', '.join(NAMES)}")


def check_level(codec: int, level: int | None) -> None:
    """Checks a compression level.

    Args:
        codec: the codec's number.
        level: the level; None, the codec's default, is always right. gzip also takes -1 for its default.

    Raises:
        ValueError: the codec has no levels, or not this one.
    """
    if level is None or (codec == GZIP and level == -1):
        return
    limits = LEVELS[codec]
    if limits is None:
        raise ValueError(f"{NAMES[codec]} has no compression levels")
    if not isinstance(level, int) or not limits[0] <= level <= limits[1]:
        raise ValueError(f"{NAMES[codec]} level must be {limits[0]} to {limits[1]}, not {level!r}")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses bytes as Kafka's clients expect them.

    Args:
        codec: the codec's number.
        data: what to compress.
        level: the codec's level, None for its default: gzip 6 (or about that, faster, where isal is installed), lz4 fast, zstd 3.

    Raises:
        ValueError: unknown codec, or a level out of range.
        AllowanceExceeded: see `Allowance`.
    """
    check_level(codec, level)
    if codec != NONE and _contexts.allowance is not None:
        _contexts.allowance.spend(_COMPRESS_WEIGHT * len(data))
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _gzip_compress(data, level)
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        return lz4.frame.compress(  # type: ignore[no-any-return]
            data,
            compression_level=0 if level is None else level,
            block_linked=False,
            content_checksum=False,
            store_size=False,
        )
    if codec == ZSTD:
        level = _ZSTD_DEFAULT_LEVEL if level is None else level
        compressor = _contexts.zstd_compressors.get(level)
        if compressor is None:
            compressor = _contexts.zstd_compressors[level] = zstandard.ZstdCompressor(level)
        return compressor.compress(data)
    raise ValueError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """Decompresses bytes that came from anywhere.

    Args:
        codec: the codec's number.
        data: what to decompress.
        max_bytes: most bytes that may come out.

    Raises:
        CorruptDataError: the bytes are not what the codec writes, or the codec is unknown.
        DecompressedTooLarge: they hold more than max_bytes.
        TypeError: the data is not one piece of memory.
        AllowanceExceeded: see `Allowance`.
    """
    allowance = _contexts.allowance
    if allowance is None:
        return _decompress(codec, data, max_bytes)
    left_bytes = allowance.left_bytes
    if left_bytes < _LEAST_ALLOWANCE_BYTES:
        raise AllowanceExceeded
    try:
        out = _decompress(codec, data, min(max_bytes, left_bytes))
    except DecompressedTooLarge:
        allowance.left_bytes = 0
        if left_bytes < max_bytes:
            raise AllowanceExceeded from None
        raise
    except CorruptDataError:
        allowance.left_bytes = left_bytes // 2
        raise
    except AllowanceExceeded:  # by its frames or blocks
        allowance.left_bytes = 0
        raise
    allowance.left_bytes -= len(out)
    return out


def _decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    if not 0 <= codec < len(NAMES):
        raise CorruptDataError(f"unknown compression codec {codec}")
    view = memoryview(data).cast("B")
    try:
        out = _DECOMPRESS[codec](view, max_bytes)
    except (CorruptDataError, DecompressedTooLarge):
        raise
    except (zlib.error, snappy.UncompressError, RuntimeError, EOFError, ValueError, zstandard.ZstdError, *_ISAL_ERRORS) as error:
        raise CorruptDataError(f"{NAMES[codec]} data is broken: {error or type(error).__name__}") from error
    if len(out) > max_bytes:
        raise _too_large(codec, max_bytes)
    return out


def _too_large(codec: int, max_bytes: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{NAMES[codec]} data decompresses to more than {max_bytes} bytes")


def _next_piece(codec: int, produced: int, packed_bytes: int, max_bytes: int) -> int:
    """Room for the next piece of output: grows with what already came out, ends one byte past max_bytes (which is an error)."""
    if produced > max_bytes:
        raise _too_large(codec, max_bytes)
    return min(max(_FIRST_PIECE_BYTES, 4 * packed_bytes, produced), max_bytes + 1 - produced)


def _none_decompress(data: memoryview, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(NONE, max_bytes)
    return bytes(data)


# ---- gzip ----


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    if level is None or level == -1:
        level = _ZLIB_DEFAULT_LEVEL if _isal is None else _ISAL_DEFAULT_LEVEL
    library: Any = _isal if _isal is not None and level <= _ISAL_TOP_LEVEL else zlib
    packer = library.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()  # type: ignore[no-any-return]


def _gzip_decompress(data: memoryview, max_bytes: int) -> bytes:
    library: Any = zlib if _isal is None else _isal
    pieces: list[bytes] = []
    at = produced = 0
    slice_bytes = len(data)
    if not len(data):
        raise CorruptDataError("gzip data is empty")
    while at < len(data):  # one turn per member
        member = library.decompressobj(31)
        while not member.eof:
            feed: Buffer = member.unconsumed_tail
            if not feed:
                feed = data[at : at + slice_bytes]
                at += len(feed)
                slice_bytes *= 2
            piece = member.decompress(feed, _next_piece(GZIP, produced, len(data), max_bytes))
            pieces.append(piece)
            produced += len(piece)
            if not piece and not member.eof and not member.unconsumed_tail and at == len(data):
                raise CorruptDataError("gzip data is truncated")
        at -= len(member.unused_data)
        if at < len(data):
            _step()
        slice_bytes = _FIRST_SLICE_BYTES
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


# ---- snappy ----


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK_BYTES])
        out.append(struct.pack(">i", len(block)))
        out.append(block)
    return b"".join(out)


def _snappy_block(data: memoryview, room: int, max_bytes: int) -> bytes:
    """One raw snappy block, refused before it is decompressed when it declares more than the room or than its bytes can make."""
    declared = shift = 0
    for byte in data[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise CorruptDataError("snappy data is truncated")
    if declared > _SNAPPY_MAX_RATIO * len(data):
        raise CorruptDataError(f"snappy data declares {declared} bytes in {len(data)}")
    if declared > room:
        raise _too_large(SNAPPY, max_bytes)
    return snappy.uncompress(data)  # type: ignore[no-any-return]


def _snappy_decompress(view: memoryview, max_bytes: int) -> bytes:
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptDataError("snappy header is truncated")
    # The version after the magic tells the byte order of the lengths: it is 1, and no writer uses 2**24.
    order = "<i" if bytes(view[8:12]) == b"\x01\x00\x00\x00" else ">i"
    out: list[bytes] = []
    at, produced = len(_XERIAL_HEADER), 0
    while at < len(view):
        if len(view) - at < 4:
            raise CorruptDataError("snappy block length is truncated")
        (size,) = struct.unpack_from(order, view, at)
        at += 4
        if size < 0 or size > len(view) - at:
            raise CorruptDataError(f"snappy block of {size} bytes in the {len(view) - at} left")
        out.append(_snappy_block(view[at : at + size], max_bytes - produced, max_bytes))
        produced += len(out[-1])
        at += size
        _step()
    return out[0] if len(out) == 1 else b"".join(out)


# ---- lz4 ----


def _lz4_decompress(data: memoryview, max_bytes: int) -> bytes:
    decompressor = _contexts.lz4_decompressor
    pieces: list[bytes] = []
    at = produced = 0
    slice_bytes = len(data)
    if not len(data):
        raise CorruptDataError("lz4 data is empty")
    try:
        while at < len(data):  # one turn per frame
            while True:
                feed = data[at : at + slice_bytes] if decompressor.needs_input else b""
                at += len(feed)
                slice_bytes *= 2
                piece = decompressor.decompress(feed, _next_piece(LZ4, produced, len(data), max_bytes))
                pieces.append(piece)
                produced += len(piece)
                if decompressor.eof:
                    break
                if not piece and decompressor.needs_input and at == len(data):
                    raise CorruptDataError("lz4 data is truncated")
            at -= len(decompressor.unused_data or b"")
            slice_bytes = _FIRST_SLICE_BYTES
            decompressor.reset()
            if at < len(data):
                _step()
    except BaseException:
        _contexts.lz4_decompressor = lz4.frame.LZ4FrameDecompressor()
        raise
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of less than 16 bytes, which is all that a frame descriptor has."""

    def rotated(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & 0xFFFFFFFF

    h = (_PRIMES[4] + len(data)) & 0xFFFFFFFF
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:words]):
        h = rotated((h + word * _PRIMES[2]) & 0xFFFFFFFF, 17) * _PRIMES[3] & 0xFFFFFFFF
    for byte in data[words:]:
        h = rotated((h + byte * _PRIMES[4]) & 0xFFFFFFFF, 11) * _PRIMES[0] & 0xFFFFFFFF
    h = (h ^ (h >> 15)) * _PRIMES[1] & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * _PRIMES[2] & 0xFFFFFFFF
    return h ^ (h >> 16)


def _lz4_checksum_at(data: Buffer) -> int:
    """Where the frame header's checksum byte is. CorruptDataError when it is not an lz4 frame."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptDataError("not an lz4 frame")
    at = 6 + (8 if data[4] & 0x08 else 0) + (4 if data[4] & 0x01 else 0)
    if len(data) <= at:
        raise CorruptDataError("lz4 frame header is truncated")
    return at


def lz4_break_header(data: Buffer) -> bytes:
    """The frame with the header checksum that magic 0 message sets use: over the magic number too (KIP-57)."""
    at = _lz4_checksum_at(data)
    return bytes(data[:at]) + bytes([_xxh32_short(bytes(data[:at])) >> 8 & 0xFF]) + bytes(data[at + 1 :])


def lz4_mend_header(data: Buffer) -> bytes:
    """The frame with a right header checksum when it had a right or a KIP-57 one; anything else is left for the reader to refuse."""
    at = _lz4_checksum_at(data)
    if data[at] != _xxh32_short(bytes(data[:at])) >> 8 & 0xFF:
        return bytes(data)
    return bytes(data[:at]) + bytes([_xxh32_short(bytes(data[4:at])) >> 8 & 0xFF]) + bytes(data[at + 1 :])


# ---- zstd ----


def _zstd_check_complete(view: memoryview) -> None:
    """Walks frames and blocks to their end: the streaming reader below takes a truncated frame for the end of the data."""
    at, end = 0, len(view)
    if not end:
        raise CorruptDataError("zstd data is empty")
    while at < end:
        if end - at >= 8 and view[at] & 0xF0 == 0x50 and bytes(view[at + 1 : at + 4]) == b"\x2a\x4d\x18":  # a skippable frame
            at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")
            _step()
            continue
        parameters = zstandard.get_frame_parameters(view[at:])
        at += zstandard.frame_header_size(view[at:])
        last = 0
        while not last:
            if end - at < 3:
                raise CorruptDataError("zstd data is truncated")
            block = int.from_bytes(view[at : at + 3], "little")
            last = block & 1
            at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # type 1 repeats one byte
            _step()
        at += 4 if parameters.has_checksum else 0
    if at > end:
        raise CorruptDataError("zstd data is truncated")


def _zstd_decompress(data: memoryview, max_bytes: int) -> bytes:
    decompressor = _contexts.zstd_decompressor
    declared = zstandard.frame_content_size(data)
    if 0 < declared <= min(max_bytes, max(_FIRST_PIECE_BYTES, 64 * len(data))):
        try:
            return decompressor.decompress(data, allow_extra_data=False)
        except zstandard.ZstdError:
            pass  # more than one frame, or broken: the way below tells which
    _zstd_check_complete(data)
    pieces: list[bytes] = []
    produced = 0
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while piece := reader.read(_next_piece(ZSTD, produced, len(data), max_bytes)):
            pieces.append(piece)
            produced += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_DECOMPRESS: Final[tuple[Callable[[memoryview, int], bytes], ...]] = (
    _none_decompress,
    _gzip_decompress,
    _snappy_decompress,
    _lz4_decompress,
    _zstd_decompress,
)
_ISAL_ERRORS: Final[tuple[type[Exception], ...]] = () if _isal is None else (_isal.error,)
