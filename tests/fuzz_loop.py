"""Feeds mutated and random bytes to everything that reads bytes; only CorruptDataError or DecompressedTooLarge may come out.

    python tests/fuzz_loop.py --seconds 60 --seed 1 --target batches

Every target has valid samples to start from, since pure noise rarely gets past the first length. A run is repeated by its seed: the same
seed gives the same inputs in the same order, also when one of them ends the process. `make sanitize` runs it on a build with
ASAN and UBSAN; tests/test_fuzz.py runs a short piece of it.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import random
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkacore import codec, compress, protocol, records
from kafkacore._codec import decode_request_body
from kafkacore.errors import CorruptDataError, DecompressedTooLarge, UnsupportedVersion
from kafkacore.protocol import schema

if TYPE_CHECKING:
    from typing_extensions import Buffer

EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
MAX_DECOMPRESSED_BYTES = 1 << 16
StructT = TypeVar("StructT", bound=schema.Struct)


class Target(NamedTuple):
    """A reader: `sample` makes valid bytes for it, `read` must take them, and either take or refuse anything else."""

    sample: Callable[[random.Random], bytes]
    read: Callable[[Buffer, random.Random], object]


class LetOut(Exception):
    """A reader let something else than CorruptDataError out."""


def exact(data: bytes) -> memoryview:
    """The bytes in a block of exactly their size: the zero at the end of a bytes object would hide an over-read from a sanitizer."""
    return memoryview(array.array("B", data))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few wounds: flipped bits, edge values in place of integers, cuts, doublings, noise."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(8)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 2:
            size = rng.choice((1, 2, 4, 8))
            out[at : at + size] = (rng.choice(EDGES) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            del out[at : at + rng.randrange(1, 9)]
        elif kind == 5:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 6:
            out[at:at] = out[at : at + rng.randrange(1, 40)]
        else:
            out[at : at + 10] = b"\xff" * rng.randrange(1, 11)
    return bytes(out)


# ---- varints -----------------------------------------------------------------------------------------------------------------------


def sample_varints(rng: random.Random) -> bytes:
    return b"".join(codec.encode_varint(rng.getrandbits(rng.randrange(1, 64))) for _ in range(rng.randrange(40)))


def read_varints(data: Buffer, rng: random.Random) -> object:
    size = memoryview(data).nbytes
    count = rng.choice((rng.randrange(size + 2), rng.choice(EDGES) >> 1))
    refusals: list[CorruptDataError] = []
    for decode in (codec.decode_varints, codec.decode_unsigned_varints):
        try:
            values, pos = decode(data, count, rng.randrange(size + 1))
            if len(values) != count or pos > size:
                raise LetOut(f"{len(values)} of {count} varints, up to {pos} of {size}")
        except CorruptDataError as error:
            refusals.append(error)
    for one in (codec.decode_varint, codec.decode_unsigned_varint):
        pos = 0
        while pos < size:
            _, pos = one(data, pos)
    if refusals:
        raise refusals[0]
    return count


# ---- compression -------------------------------------------------------------------------------------------------------------------


def read_compressed(kind: int) -> Callable[[Buffer, random.Random], object]:
    def read(data: Buffer, rng: random.Random) -> object:
        out = compress.decompress(kind, memoryview(data), MAX_DECOMPRESSED_BYTES)
        if len(out) > MAX_DECOMPRESSED_BYTES:
            raise LetOut(f"{len(out)} bytes came out of decompress")
        return out

    return read


def sample_compressed(kind: int) -> Callable[[random.Random], bytes]:
    def sample(rng: random.Random) -> bytes:
        return bytes(compress.compress(kind, rng.randbytes(rng.randrange(60)) * rng.randrange(1, 40)))

    return sample


# ---- record batches ----------------------------------------------------------------------------------------------------------------


def sample_batches(rng: random.Random, magics: Sequence[int] = (0, 1, 2, 2, 2, 2)) -> bytes:
    out = b""
    for _ in range(rng.randrange(1, 4)):
        magic = rng.choice(magics)
        kinds = ("none", "gzip", "snappy", "lz4", "zstd") if magic == 2 else ("none", "gzip", "snappy", "lz4")
        builder = records.BatchBuilder(magic=magic, compression=rng.choice(kinds), base_offset=rng.getrandbits(40))
        for _ in range(rng.randrange(1, 12)):
            key = rng.choice((None, b"", rng.randbytes(5)))
            value = rng.choice((None, b"", rng.randbytes(rng.randrange(60))))
            headers = [("h", rng.choice((None, b"v")))] * rng.randrange(3) if magic == 2 else ()
            builder.append(value, key, headers, rng.getrandbits(41) if magic else None)
        out += bytes(builder.build())
    if rng.random() < 0.1:
        out += bytes(records.control_batch(rng.randrange(2), producer_id=5, producer_epoch=1))
    return out


def mend_crcs(data: Buffer) -> Buffer:
    """Gives every batch v2 the checksum of its bytes, so that mutations reach what lies behind the check."""
    out, at = bytearray(data), 0
    while at + 61 <= len(out):
        size = 12 + struct.unpack_from(">i", out, at + 8)[0]
        if size < 61 or at + size > len(out):
            break
        if out[at + 16] == 2:
            struct.pack_into(">I", out, at + 17, codec.crc32c(memoryview(out)[at + 21 : at + size]))
        at += size
    return exact(bytes(out))


def touch_columns(columns: records.RecordColumns) -> int:
    """Reads everything that lies behind the positions which the columns hold."""
    total = sum(len(columns.values[i] or b"") + len(columns.keys[i] or b"") for i in range(len(columns)))
    return total + int(columns.offsets.sum()) + len(columns.to_records())


def touch_records(found: list[records.ConsumerRecord]) -> int:
    for record in found:
        repr((record.offset, record.timestamp_ms, record.timestamp_type, record.leader_epoch))
    return sum(len(record.key or b"") + len(record.value or b"") + len(record.headers) for record in found)


def read_batches(data: Buffer, rng: random.Random) -> object:
    check_crcs = rng.random() < 0.7
    if check_crcs and rng.random() < 0.8:
        data = mend_crcs(data)
    for batch in records.read_batches(data, check_crcs, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
        repr(batch)
        for name in BATCH_FACTS:
            getattr(batch, name)
        if len(batch.buffer) != batch.size_bytes:
            raise LetOut("a batch's buffer is not its size")
        if rng.random() < 0.5:
            touch_records(batch.records("t", 0))
        else:
            touch_columns(batch.columns())
        if batch.magic == 2:
            largest_ms, smallest_ms, in_sequence, has_null_key = batch.scan()
            columns = batch.columns()
            if len(columns) and (largest_ms, smallest_ms) != (int(columns.timestamps_ms.max()), int(columns.timestamps_ms.min())):
                raise LetOut("scan and columns differ about timestamps")
            if len(columns) != batch.record_count or has_null_key != bool((columns.keys.lengths < 0).any()):
                raise LetOut("scan and columns differ about records or keys")
            wanted = [batch.base_offset + nth for nth in range(len(columns))]
            if in_sequence != (columns.offsets.tolist() == wanted):
                raise LetOut("scan and columns differ about the sequence")
    return None


BATCH_FACTS = [name for name in vars(records.Batch) if not name.startswith("_") and not callable(getattr(records.Batch, name))]


def read_partition(data: Buffer, rng: random.Random) -> object:
    if rng.random() < 0.8:
        data = mend_crcs(data)
    reader = records.PartitionReader(
        data,
        topic="t",
        partition=1,
        start_offset=rng.choice((0, 0, rng.getrandbits(40))),
        check_crcs=rng.random() < 0.7,
        aborted=rng.choice((None, [(5, 0)], [(-1, 3), (5, 7)])),
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    )
    while not reader.exhausted:
        portion = rng.choice((None, 1, 3))
        if rng.random() < 0.5:
            touch_records(reader.records(portion))
        else:
            touch_columns(reader.columns(portion))
    return reader.next_offset


def patch_batch(data: Buffer, rng: random.Random) -> object:
    batch = bytearray(data)
    try:
        records.set_base_offset(batch, rng.getrandbits(62))
    except ValueError as error:  # the caller gave something else than a batch
        raise CorruptDataError(str(error)) from None
    records.set_leader_epoch(batch, 7)
    records.set_log_append_time(batch, 1_700_000_000_000)
    first = next(iter(records.read_batches(batch)))  # renewed, so the CRC must be right
    if (first.leader_epoch, first.timestamp_type, first.max_timestamp_ms) != (7, 1, 1_700_000_000_000):
        raise LetOut("a patched batch lacks its patches")
    return first


# ---- protocol ----------------------------------------------------------------------------------------------------------------------


def random_value(kind: schema.WireType, rng: random.Random) -> object:
    match kind.name:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return "".join(rng.choices("abcß漢", k=rng.randrange(8)))
        case "bytes" | "records":
            return rng.randbytes(rng.randrange(20))
        case "uuid":
            return rng.randbytes(16)
        case "float64":
            return rng.random()
        case name:
            unsigned = name.startswith("uint")
            bits = int(name.removeprefix("u").removeprefix("int"))
            value = rng.getrandbits(bits)
            return value if unsigned else value - (1 << (bits - 1))


def random_message(kind: type[StructT], version: int, rng: random.Random) -> StructT:
    """A message whose fields are filled where the version has them."""
    values: dict[str, object] = {}
    for name, field in kind.FIELDS.items():
        if not field.versions.has(version):
            continue
        if field.nullable.has(version) and rng.random() < 0.2:
            values[name] = None
            continue

        def one(inner: object = field.type) -> object:
            if isinstance(inner, schema.WireType):
                return random_value(inner, rng)
            return random_message(inner, version, rng)  # type: ignore[arg-type]

        values[name] = [one() for _ in range(rng.randrange(4))] if field.is_array else one()
    return kind(**values)


def pick_message(rng: random.Random) -> tuple[type[schema.Message], int]:
    api = protocol.APIS[rng.choice(list(protocol.APIS))]
    return rng.choice((api.request, api.response)), rng.randint(api.min_version, api.max_version)


def sample_message(rng: random.Random) -> bytes:
    """Two bytes that say which message it is (a seed for pick_message), then the message."""
    choice = rng.randbytes(2)
    kind, version = pick_message(random.Random(choice))
    return choice + b"".join(bytes(part) for part in random_message(kind, version, rng).encode(version))


def read_message(data: Buffer, rng: random.Random) -> object:
    view = memoryview(data)
    if len(view) < 2:
        return None
    kind, version = pick_message(random.Random(bytes(view[:2])))
    message = kind.decode(version, data, 2)
    again = b"".join(bytes(part) for part in message.encode(version))
    if kind.decode(version, again) != message and "nan" not in repr(message):
        raise LetOut(f"{kind.label(version)} reads differently the second time")
    return message


def sample_request(rng: random.Random) -> bytes:
    api = protocol.APIS[rng.choice(list(protocol.APIS))]
    version = rng.randint(api.min_version, api.max_version)
    parts = protocol.encode_request(random_message(api.request, version, rng), version, rng.getrandbits(31), rng.choice((None, "", "me")))
    return b"".join(bytes(part) for part in parts)[4:]


def read_request(data: Buffer, rng: random.Random) -> object:
    try:
        protocol.decode_response_header(rng.choice(list(protocol.APIS)), rng.randrange(14), data)
    except CorruptDataError:
        pass  # a request need not look like a response
    api = protocol.APIS[rng.choice(list(protocol.APIS))]
    with contextlib.suppress(CorruptDataError):  # a plan that the frame did not choose
        decode_request_body(api.request.plan(rng.randint(api.min_version, api.max_version)), data)
    try:
        header, request = protocol.decode_request(data)
    except UnsupportedVersion:  # a proper answer too: the frame asks for what the tables lack
        return None
    found = decode_request_body(type(request).plan(header.request_api_version), data)
    if found[:2] != (header.client_id, request) and "nan" not in repr(request):
        raise LetOut(f"{type(request).__name__} reads differently with its plan at hand")
    return request


TARGETS = {
    "varints": Target(sample_varints, read_varints),
    **{name: Target(sample_compressed(kind), read_compressed(kind)) for kind, name in enumerate(("gzip", "snappy", "lz4", "zstd"), 1)},
    "batches": Target(sample_batches, read_batches),
    "partitions": Target(sample_batches, read_partition),
    "patches": Target(lambda rng: sample_batches(rng, [2]), patch_batch),
    "messages": Target(sample_message, read_message),
    "requests": Target(sample_request, read_request),
}


def run(name: str, rng: random.Random, rounds: int) -> tuple[int, int]:
    """Feeds one target.

    Args:
        name: which one.
        rng: all randomness.
        rounds: how many inputs.

    Returns:
        How many inputs were read, and how many refused.

    Raises:
        LetOut: with the input that broke the rule.
    """
    target = TARGETS[name]
    taken = refused = 0
    for _ in range(rounds):
        sample = target.sample(rng)
        way = rng.random()
        data = mutate(sample, rng) if way < 0.9 else rng.randbytes(rng.randrange(120)) if way < 0.95 else sample
        try:
            target.read(data if rng.random() < 0.3 else exact(data), rng)  # bytes objects have paths of their own
            taken += 1
        except (CorruptDataError, DecompressedTooLarge):
            refused += 1
        except Exception as error:
            raise LetOut(f"{name}: {type(error).__name__}: {error}; input {data.hex()}") from error
    return taken, refused


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30, help="how long in all (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the run with this seed")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one (may be repeated)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)
    names = options.target or list(TARGETS)
    print(f"fuzz: seed {seed}, {', '.join(names)}", flush=True)
    rngs = {name: random.Random(f"{seed} {name}") for name in names}
    counts = {name: [0, 0] for name in names}
    end = time.monotonic() + options.seconds
    try:
        while time.monotonic() < end:
            for name in names:
                taken, refused = run(name, rngs[name], 200)
                counts[name][0] += taken
                counts[name][1] += refused
    except LetOut as found:
        print(f"fuzz: {found}", file=sys.stderr)
        if found.__cause__ is not None:
            sys.excepthook(type(found.__cause__), found.__cause__, found.__cause__.__traceback__)
        return 1
    for name, (taken, refused) in counts.items():
        print(f"fuzz: {name:10} {taken + refused:9,} inputs, {refused:9,} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
