"""Building and reading record batches, against aiokafka (Cython), kafka-python and the bound of one memcpy and one CRC.

    python bench/batches.py [--values 10,100,1000] [--batch-bytes 16384] [--seconds 0.5]

Every case of a table runs in turn, many times; shown is the median CPU time per record, and how many times less than aiokafka's.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kafkacore.codec import crc32c
from kafkacore.records import BatchBuilder, ColumnSource, PartitionReader, read_batches, set_base_offset

TIMESTAMP_MS = 1_700_000_000_000
FETCH_BATCHES = 16


def measure(cases: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median CPU nanoseconds per call of each case; the cases take turns, so that noise meets all of them."""
    repeats = {}
    for name, case in cases.items():
        case()
        start = time.process_time_ns()
        case()
        repeats[name] = max(1, int(4_000_000 / max(time.process_time_ns() - start, 500)))
    samples: dict[str, list[float]] = {name: [] for name in cases}
    end = time.monotonic() + seconds * len(cases)
    while time.monotonic() < end or len(samples[name]) < 5:
        for name, case in cases.items():
            turns = range(repeats[name])
            start = time.process_time_ns()
            for _ in turns:
                case()
            samples[name].append((time.process_time_ns() - start) / len(turns))
    return {name: statistics.median(times) for name, times in samples.items()}


def show(title: str, times: dict[str, float], records: int, bound: str | None = None) -> None:
    print(f"\n{title}")
    for name, ns in times.items():
        share = f"{100 * times[bound] / ns:6.0f}% of the bound" if bound else ""
        print(f"  {name:34} {ns / records:9.2f} ns/record {times['aiokafka'] / ns:8.1f}x {share}")


def build_table(value_bytes: int, batch_bytes: int, seconds: float) -> bytes:
    value = b"v" * value_bytes
    probe = BatchBuilder(max_bytes=batch_bytes)
    while probe.append(value, timestamp_ms=TIMESTAMP_MS):
        pass
    n = len(probe)
    sample = bytes(probe.build())
    values = [bytes(value) for _ in range(n)]
    data = b"".join(values)
    offsets = np.arange(0, len(data) + 1, value_bytes, dtype=np.int32)
    arrow = pa.array(values, pa.binary())

    def peer(builder_class: type, start: int) -> object:
        builder = builder_class(
            magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=batch_bytes
        )
        append = builder.append
        for i in range(start, n):
            append(i, TIMESTAMP_MS, None, values[i], [])
        return builder.build()

    def per_record() -> object:
        builder = BatchBuilder(max_bytes=batch_bytes)
        append = builder.append
        for v in values:
            append(v, None, (), TIMESTAMP_MS)
        return builder.build()

    def many(column: object) -> object:
        builder = BatchBuilder(max_bytes=batch_bytes)
        assert builder.append_many(column, timestamps_ms=TIMESTAMP_MS) == n
        return builder.build()

    column = ColumnSource((data * FETCH_BATCHES, np.arange(0, FETCH_BATCHES * len(data) + 1, value_bytes, dtype=np.int32)))

    def one_column() -> None:
        for batch in range(FETCH_BATCHES):
            builder = BatchBuilder(max_bytes=batch_bytes)
            assert builder.append_many(column, timestamps_ms=TIMESTAMP_MS, start=batch * n) >= n
            builder.build()

    target = memoryview(bytearray(len(sample)))

    def bound() -> object:
        target[:] = sample
        return crc32c(target)

    assert bytes(per_record()) == sample == bytes(many(values)) == bytes(many((data, offsets))) == bytes(many(arrow))
    cases: dict[str, Callable[[], object]] = {
        "kafka-python": lambda: peer(KafkaPythonBuilder, 0),
        "aiokafka": lambda: peer(AiokafkaBuilder, 0),
        "append per record": per_record,
        "append_many, list": lambda: many(values),
        "append_many, Arrow": lambda: many(arrow),
        "append_many, (data, offsets)": lambda: many((data, offsets)),
        "memcpy + CRC": bound,
    }
    times = measure(cases | {"one column over many batches": one_column}, seconds)
    times["one column over many batches"] /= FETCH_BATCHES
    show(f"Build: {n} records of {value_bytes} B, batch of {len(sample)} B", times, n, "memcpy + CRC")
    return sample


def read_table(sample: bytes, value_bytes: int, seconds: float) -> None:
    (probe,) = read_batches(sample)
    batches = [bytearray(sample) for _ in range(FETCH_BATCHES)]
    for i, batch in enumerate(batches):
        set_base_offset(batch, i * probe.record_count)
    fetched = b"".join(batches)
    n = FETCH_BATCHES * probe.record_count

    def peer(module: type) -> int:
        out: list[object] = []
        batches = module(fetched)
        while batches.has_next():
            batch = batches.next_batch()
            assert batch.validate_crc()
            out.extend(batch)
        return len(out)

    assert peer(AiokafkaRecords) == n == len(PartitionReader(fetched).records()) == len(PartitionReader(fetched).columns())
    cases: dict[str, Callable[[], object]] = {
        "kafka-python": lambda: peer(KafkaPythonRecords),
        "aiokafka": lambda: peer(AiokafkaRecords),
        "objects": lambda: PartitionReader(fetched).records(),
        "objects, CRC off": lambda: PartitionReader(fetched, check_crcs=False).records(),
        "columns": lambda: PartitionReader(fetched).columns(),
        "columns, CRC off": lambda: PartitionReader(fetched, check_crcs=False).columns(),
        "columns, values to Arrow (copy)": lambda: PartitionReader(fetched).columns().values.to_arrow(),
        "columns, values to Arrow (view)": lambda: PartitionReader(fetched).columns().values.to_arrow(view=True),
        "columns to Arrow, all": lambda: PartitionReader(fetched).columns().to_arrow(),
        "CRC alone": lambda: crc32c(fetched),
    }
    show(f"Read: {FETCH_BATCHES} batches, {n} records of {value_bytes} B", measure(cases, seconds), n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--values", default="10,100,1000", help="value sizes in bytes")
    parser.add_argument("--batch-bytes", type=int, default=16384)
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each case")
    options = parser.parse_args()
    for size in map(int, options.values.split(",")):
        sample = build_table(size, options.batch_bytes, options.seconds)
        read_table(sample, size, options.seconds)


if __name__ == "__main__":
    main()
