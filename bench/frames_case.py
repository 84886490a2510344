"""One way between a topic and a frame, in a process of its own; prints one JSON line. Run by frames.py.

The clock starts when the client has its connections and the libraries are warm, and stops when the result is there or the last record is
acknowledged. CPU is of the whole process; memory is the most that was resident above what was before. Each client reads the same bytes: a
batch of JSON objects that the broker repeats.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

TEXTS = {"polars": "string_view", "pandas": "large_string"}  # as these have it themselves
TOPIC, PARTITIONS, WARM_UP, CHUNK = "bench", 4, 20_000, 100_000
ASKED = "select carrier, avg(delay) as delay, count(*) as flights from frame group by 1"


def _resident(field: str) -> float:
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def measured(run: Callable[[int], Any], count: int) -> dict[str, float]:
    """Figures of a run, after one that warms up."""
    kept = run(WARM_UP)
    del kept
    before_mb = _resident("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
        peak.write("5")
    cpu, wall = time.process_time(), time.perf_counter()
    kept = run(count)                                      # held until memory is read
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak_mb = _resident("VmHWM") - before_mb
    del kept
    return {"cpu_ns": cpu / count * 1e9, "wall_ns": wall / count * 1e9, "mb": peak_mb}


def rows(count: int) -> Any:
    """A polars frame of flights."""
    import numpy
    import polars

    rng = numpy.random.default_rng(1)
    carriers = numpy.array(["AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"])
    return polars.DataFrame(
        {
            "flight": (rng.integers(1, 9_999, count)).astype(str),
            "carrier": carriers[rng.integers(0, 8, count)],
            "distance": rng.integers(50, 5_000, count),
            "delay": rng.integers(-300, 5_000, count) / 10,
        }
    )


def lines_of(frame: Any) -> list[bytes]:
    """Its rows as JSON objects."""
    found: bytes = frame.write_ndjson().encode()
    return found.splitlines()


# ---- topic -> frame --------------------------------------------------------------------------------------------------------------------


def parquet_of(write: Callable[[str], Any]) -> Any:
    handle, path = tempfile.mkstemp(suffix=".parquet")
    os.close(handle)
    try:
        return write(path)
    finally:
        os.unlink(path)


def kafkacore_read(address: str, target: str) -> Callable[[int], Any]:
    import duckdb
    import pandas
    import polars

    from kafkacore import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=address)

    def run(count: int) -> Any:
        stretches = {(TOPIC, p): (0, count // PARTITIONS) for p in range(PARTITIONS)}
        columns, text = "flight STRING, carrier STRING, distance BIGINT, delay DOUBLE", TEXTS.get(target, "string")
        frame = consumer.read(stretches, json=columns, record_columns=False, text=text)
        if target == "polars":
            return polars.DataFrame(frame)
        if target == "pandas":
            return pandas.DataFrame.from_arrow(frame)
        return duckdb.sql(ASKED).fetchall() if target == "DuckDB" else parquet_of(frame.write_parquet)

    return run


def confluent_read(address: str, target: str) -> Callable[[int], Any]:
    import confluent_kafka
    import duckdb
    import pandas

    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])

    def run(count: int) -> Any:
        parts, values, left = [], [], count
        while left > 0:
            messages = consumer.consume(min(10_000, left), timeout=5)
            values += [json.loads(message.value()) for message in messages]
            left -= len(messages)
            if len(values) >= CHUNK or not left:
                parts.append(pandas.DataFrame(values))
                values = []
        frame = pandas.concat(parts, ignore_index=True)
        if target == "DuckDB":
            return duckdb.sql(ASKED).fetchall()
        return parquet_of(lambda path: frame.to_parquet(path, compression="zstd")) if target == "Parquet" else frame

    return run


def aiokafka_read(address: str, target: str) -> Callable[[int], Any]:
    import aiokafka
    import duckdb
    import polars

    loop = asyncio.new_event_loop()

    async def begin() -> Any:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
        return consumer

    consumer = loop.run_until_complete(begin())

    async def read(count: int) -> Any:
        parts, values, left = [], [], count
        while left > 0:
            for records in (await consumer.getmany(timeout_ms=5_000, max_records=min(10_000, left))).values():
                values += [record.value for record in records]
                left -= len(records)
            if len(values) >= CHUNK or not left:
                parts.append(polars.read_ndjson(b"\n".join(values)))
                values = []
        return polars.concat(parts)

    def run(count: int) -> Any:
        frame = loop.run_until_complete(read(count))
        if target == "pandas":
            return frame.to_pandas()
        if target == "DuckDB":
            return duckdb.sql(ASKED).fetchall()
        return parquet_of(lambda path: frame.write_parquet(path, compression="zstd")) if target == "Parquet" else frame

    return run


# ---- frame -> topic --------------------------------------------------------------------------------------------------------------------


def kafkacore_send(address: str, target: str, frame: Any) -> Callable[[int], Any]:
    from kafkacore import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address)
    given = frame.to_pandas() if target == "pandas" else frame
    key = "flight" if target == "polars, keys" else None

    def run(count: int) -> Any:
        part = given.iloc[:count] if target == "pandas" else given[:count]
        found = producer.send_frame(TOPIC, part, key=key, value_format="json").result()
        assert found.delivered == count

    return run


def confluent_send(address: str, target: str, frame: Any) -> Callable[[int], Any]:
    import confluent_kafka

    settings = {"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": 1_000_000, "linger.ms": 5}
    producer = confluent_kafka.Producer(settings)
    given = frame.to_pandas()
    keyed = target == "polars, keys"

    def run(count: int) -> Any:
        for at in range(0, count, CHUNK):
            part = given.iloc[at : min(at + CHUNK, count)]
            values = part.drop(columns="flight") if keyed else part
            keys = part["flight"] if keyed else [None] * len(part)
            for key, value in zip(keys, values.to_json(orient="records", lines=True).splitlines(), strict=True):
                while True:
                    try:
                        producer.produce(TOPIC, value, key)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    return run


def aiokafka_send(address: str, target: str, frame: Any) -> Callable[[int], Any]:
    import aiokafka

    loop = asyncio.new_event_loop()
    keyed = target == "polars, keys"

    async def begin() -> Any:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, max_batch_size=131_072)
        await producer.start()
        return producer

    producer = loop.run_until_complete(begin())

    async def send(count: int) -> None:
        partition = 0
        for at in range(0, count, CHUNK):
            part = frame[at : min(at + CHUNK, count)]
            if keyed:                                      # the client chooses the partition by key, one record at a time
                values = lines_of(part.drop("flight"))
                sent = [await producer.send(TOPIC, v, key=k.encode()) for k, v in zip(part["flight"], values, strict=True)]
                await asyncio.gather(*sent)
                continue
            values, row, waiting = lines_of(part), 0, []
            while row < len(values):
                batch = producer.create_batch()
                while row < len(values) and batch.append(key=None, value=values[row], timestamp=None) is not None:
                    row += 1
                batch.close()
                waiting.append(await producer.send_batch(batch, TOPIC, partition=partition))
                partition = (partition + 1) % PARTITIONS
            await asyncio.gather(*waiting)

    return lambda count: loop.run_until_complete(send(count))


READERS = {"kafkacore": kafkacore_read, "confluent-kafka + pandas": confluent_read, "aiokafka + polars": aiokafka_read}
SENDERS = {"kafkacore": kafkacore_send, "confluent-kafka + pandas": confluent_send, "aiokafka + polars": aiokafka_send}


def main() -> None:
    way, client, target, address, count = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
    case = READERS[client](address, target) if way == "read" else SENDERS[client](address, target, rows(count))
    print(json.dumps(measured(case, count)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
