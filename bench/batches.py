"""Building and reading record batches, against aiokafka (Cython), kafka-python and the bound of one memcpy and one CRC.

    python bench/batches.py [--json] [--rounds N] [--values 10,100,1000] [--batch-bytes 16384]
"""

import argparse
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from harness import Table, add_arguments, repeat, report, run_cases
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kafkacore.codec import crc32c
from kafkacore.records import BatchBuilder, ColumnSource, PartitionReader, read_batches, set_base_offset

TIMESTAMP_MS = 1_700_000_000_000
FETCH_BATCHES = 16


def build_table(value_bytes: int, batch_bytes: int, rounds: int) -> tuple[Table, bytes]:
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
        "(data, offsets)": lambda: many((data, offsets)),
        "Arrow": lambda: many(arrow),
        "list": lambda: many(values),
        "per record": per_record,
        "aiokafka": lambda: peer(AiokafkaBuilder, 0),
        "kafka-python": lambda: peer(KafkaPythonBuilder, 0),
        "memcpy + CRC": bound,
    }
    timings = run_cases({name: repeat(case) for name, case in cases.items()}, rounds=rounds, units=n)
    timings |= run_cases({"one column over many batches": repeat(one_column)}, rounds=rounds, units=n * FETCH_BATCHES)
    table = Table(f"build {n} records, a batch of {len(sample)} B", "ns per record")
    table.add(f"{value_bytes} B", timings)
    return table, sample


def read_table(sample: bytes, value_bytes: int, rounds: int) -> Table:
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
        "columns": lambda: PartitionReader(fetched).columns(),
        "columns, CRC off": lambda: PartitionReader(fetched, check_crcs=False).columns(),
        "values to Arrow (copy)": lambda: PartitionReader(fetched).columns().values.to_arrow(),
        "values to Arrow (view)": lambda: PartitionReader(fetched).columns().values.to_arrow(view=True),
        "all to Arrow": lambda: PartitionReader(fetched).columns().to_arrow(),
        "objects": lambda: PartitionReader(fetched).records(),
        "objects, CRC off": lambda: PartitionReader(fetched, check_crcs=False).records(),
        "aiokafka": lambda: peer(AiokafkaRecords),
        "kafka-python": lambda: peer(KafkaPythonRecords),
        "CRC alone": lambda: crc32c(fetched),
    }
    table = Table(f"read {FETCH_BATCHES} batches of {probe.record_count} records", "ns per record")
    table.add(f"{value_bytes} B", run_cases({name: repeat(case) for name, case in cases.items()}, rounds=rounds, units=n))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--values", default="10,100,1000", help="value sizes in bytes")
    parser.add_argument("--batch-bytes", type=int, default=16384)
    options = parser.parse_args()
    tables: list[Table] = []
    for size in map(int, options.values.split(",")):
        table, sample = build_table(size, options.batch_bytes, options.rounds)
        tables += [table, read_table(sample, size, options.rounds)]
    report(tables, as_json=options.json)



if __name__ == "__main__":
    main()
