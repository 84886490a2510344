"""How long does a varint take, one at a time and in arrays, against aiokafka (Cython) and kafka-python?"""

import numpy as np
from aiokafka.record._crecords import cutil
from harness import Table, arguments, report, run_cases
from kafka.record import util as kafka_python

from kafkacore import codec

COUNT = 10_000


def main() -> None:
    options = arguments(__doc__)
    rng = np.random.default_rng(1)
    small = rng.integers(-64, 64, COUNT)
    mixed = np.where(rng.random(COUNT) < 0.5, small, rng.integers(-100_000, 100_000, COUNT))
    wide = rng.integers(-(2**62), 2**62, COUNT) >> rng.integers(0, 62, COUNT)
    encode, decode = Table("encode", "ns per value"), Table("decode", "ns per value")
    for label, values in (("1 byte", small), ("1-3 bytes mixed", mixed), ("1-9 bytes mixed", wide)):
        numbers, data = values.tolist(), codec.encode_varints(values)

        def ours_in(n: int, values: np.ndarray = values) -> None:
            for _ in range(n):
                codec.encode_varints(values)

        def ours_one_in(n: int, numbers: list[int] = numbers) -> None:
            for _ in range(n):
                for value in numbers:
                    codec.encode_varint(value)

        def aiokafka_in(n: int, numbers: list[int] = numbers) -> None:
            for _ in range(n):
                out = bytearray()
                write = out.append
                for value in numbers:
                    cutil.encode_varint_cython(value, write)

        def kafka_python_in(n: int, numbers: list[int] = numbers) -> None:
            for _ in range(n):
                out = bytearray()
                write = out.append
                for value in numbers:
                    kafka_python.encode_varint(value, write)

        def ours_out(n: int, data: bytes = data) -> None:
            for _ in range(n):
                codec.decode_varints(data, COUNT)

        def ours_one_out(n: int, data: bytes = data) -> None:
            for _ in range(n):
                pos = 0
                for _ in range(COUNT):
                    _, pos = codec.decode_varint(data, pos)

        def aiokafka_out(n: int, data: bytes = data) -> None:
            for _ in range(n):
                pos = 0
                for _ in range(COUNT):
                    _, pos = cutil.decode_varint_cython(data, pos)

        def kafka_python_out(n: int, data: bytes = data) -> None:
            view = memoryview(data)
            for _ in range(n):
                pos = 0
                for _ in range(COUNT):
                    _, pos = kafka_python.decode_varint(view, pos)

        written = {"array": ours_in, "single": ours_one_in, "aiokafka": aiokafka_in, "kafka-python": kafka_python_in}
        read = {"array": ours_out, "single": ours_one_out, "aiokafka": aiokafka_out, "kafka-python": kafka_python_out}
        encode.add(label, run_cases(written, rounds=options.rounds, units=COUNT))
        decode.add(label, run_cases(read, rounds=options.rounds, units=COUNT))
    report([encode, decode], as_json=options.json)


if __name__ == "__main__":
    main()
