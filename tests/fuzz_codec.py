"""A fuzz loop over everything that reads bytes from outside: any garbage gives a value or `CorruptDataError`, nothing else.

    python tests/fuzz_codec.py [--seconds 30] [--seed N] [--only NAME]

Valid inputs are mutated (flipped bits, lengths overwritten with extremes, cut, spliced, repeated) and copied into memory of exactly their
size, so that ASAN (`make sanitize`) sees the first byte read beyond the end. A failure prints the seed, the target and the input in hex.
"""

import argparse
import array
import itertools
import random
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator

from kafkacore import codec, compress, records
from kafkacore.errors import CorruptDataError, UnsupportedVersion

MAX_BYTES = 1 << 20
EXTREMES = [
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    b"\x7f\xff",
    b"\x80\x01",
]

Target = Callable[[memoryview], object]


def varint_targets() -> Iterator[tuple[str, Target, list[bytes]]]:
    seeds = [codec.encode_varint(n) for n in (0, -1, 300, 2**31, -(2**63))]
    yield "decode_varint", codec.decode_varint, seeds
    yield "decode_unsigned_varint", codec.decode_unsigned_varint, [codec.encode_unsigned_varint(n) for n in (0, 300, 2**63)]
    yield "decode_varints", lambda data: codec.decode_varints(data, 3), [b"".join(seeds)]
    # Inputs that hold far fewer: the count must not size an allocation unchecked.
    yield "decode_varints, count beyond", lambda data: codec.decode_varints(data, 2**40), [b"".join(seeds)]


def compression_targets() -> Iterator[tuple[str, Target, list[bytes]]]:
    plain = [b"", b"kafka" * 400, bytes(range(256)) * 40]
    for name in ("gzip", "snappy", "lz4", "zstd"):
        kind = compress.codec_id(name)
        seeds = [bytes(compress.compress(kind, data)) for data in plain]

        def target(data: memoryview, kind: int = kind) -> object:
            out = compress.decompress(kind, data, MAX_BYTES)
            assert len(out) <= MAX_BYTES, "more than allowed came out"
            return out

        yield f"decompress {name}", target, seeds


def batch_targets() -> Iterator[tuple[str, Target, list[bytes]]]:
    read_batches = getattr(records, "read_batches", None)
    if read_batches is None:
        print("no reader of batches in this build")
        return
    seeds = []
    for magic, compression in itertools.product((0, 1, 2), ("none", "gzip", "snappy", "lz4", "zstd")):
        if compression == "zstd" and magic < 2:
            continue
        builder = records.BatchBuilder(magic=magic, compression=compression)
        for n in range(5):
            headers = [("h", b"x"), ("n", None)] if magic == 2 else []
            builder.append(b"value %d" % n, key=None if n == 2 else b"k", headers=headers, timestamp_ms=1_400_000_000_000 + n)
        seeds.append(bytes(builder.build()))
    seeds.append(b"".join(seeds[-2:]))

    def objects(data: memoryview) -> object:
        return [
            (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            for batch in read_batches(data, check_crcs=False)
            for record in batch.records()
        ]

    def columns(data: memoryview) -> object:
        return [batch.columns() for batch in read_batches(data, check_crcs=False)]

    yield "records as objects", objects, seeds
    yield "records as columns", columns, seeds
    yield "records with CRC", lambda data: [batch.records() for batch in read_batches(data)], seeds


def protocol_targets() -> Iterator[tuple[str, Target, list[bytes]]]:
    try:
        from kafkacore import protocol
    except ImportError:
        print("no protocol in this build")
        return
    for api in protocol.APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for kind in (api.request, api.response):

                def target(data: memoryview, kind: type = kind, version: int = version) -> object:
                    return kind.decode(version, data)

                yield f"{kind.__name__} v{version}", target, [b"".join(kind().encode(version)), bytes(64)]

    def frame(data: memoryview) -> object:
        try:
            return protocol.decode_request(data)
        except UnsupportedVersion as error:  # a well-formed frame of a version that brokers answer with error 35
            return error

    yield "request frame", frame, [struct.pack(">hhihB", key, 0, 1, -1, 0) + bytes(32) for key in protocol.APIS]


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.randrange(256)
            case 2:
                extreme = rng.choice(EXTREMES)
                data[at : at + len(extreme)] = extreme
            case 3:
                del data[at:]
            case 4:
                data[at:at] = rng.randbytes(rng.randint(1, 12))
            case 5:
                del data[at : at + rng.randint(1, 8)]
            case 6:
                other = rng.choice(seeds)
                data[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    rng = random.Random(seed)
    groups = [list(make()) for make in (varint_targets, compression_targets, batch_targets, protocol_targets)]
    groups = [kept for group in groups if (kept := [target for target in group if options.only in target[0]])]
    runs = refused = 0
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        name, target, seeds = rng.choice(rng.choice(groups))
        for _ in range(50):
            data = mutate(rng, seeds)
            runs += 1
            try:
                target(memoryview(array.array("B", data)))
            except CorruptDataError:
                refused += 1
            except BaseException:
                traceback.print_exc()
                print(f"fuzz: seed {seed}, {name}, input {data.hex()}", file=sys.stderr)
                return 1
    print(f"fuzz: seed {seed}, {sum(map(len, groups))} targets, {runs} inputs, {refused} refused, the others read")
    return 0


if __name__ == "__main__":
    sys.exit(main())
