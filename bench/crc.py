"""How long does a CRC-32C called from Python take, against crc32c, google-crc32c and aiokafka?

The last table holds the kernels of this machine against each other; it goes through the same Python call.
"""

import os
from collections.abc import Callable

import crc32c as crc32c_package
import google_crc32c
from aiokafka.record._crecords.cutil import crc32c_cython
from harness import Table, arguments, repeat, report, run_cases

from kafkacore._codec import crc32c_implementations, crc32c_with
from kafkacore.codec import crc32c

SIZES = (1, 16, 64, 100, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1 << 20)


def main() -> None:
    options = arguments(__doc__)
    functions: dict[str, Callable[[bytes], object]] = {
        "kafkacore": crc32c,
        "crc32c": crc32c_package.crc32c,
        "google-crc32c": google_crc32c.value,
        "aiokafka": crc32c_cython,
    }
    peers, kernels = Table("CRC-32C of one bytes object"), Table("the same by kernel")
    for size in SIZES:
        data = os.urandom(size)
        peers.add(f"{size} B", run_cases({name: repeat(fn, data) for name, fn in functions.items()}, rounds=options.rounds))
        cases = {name: repeat(crc32c_with, name, data) for name in crc32c_implementations()}
        kernels.add(f"{size} B", run_cases(cases, rounds=options.rounds))
    report([peers, kernels], as_json=options.json)


if __name__ == "__main__":
    main()
