"""kafka-python and aiokafka with kafkacore's record layer: the same bytes, records and errors, and all of it can be undone."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import aiokafka
import aiokafka.partitioner
import kafka
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacore._codec import ForeignBatchBuilder, ForeignRecords
from kafkacore.compat.acceleration import PACKAGES, accelerate
from kafkacore.compat.acceleration import Records as ForeignBatches
from kafkacore.errors import ConfigError
from kafkacore.records import BatchBuilder, control_batch, read_batches
from tests.kit.clusters import addresses
from tests.kit.reached import Reached
from tests.kit.records import numbered
from tests.kit.rows import each_row

NAMES = tuple(PACKAGES)
Bytes = st.none() | st.sampled_from([b"", b"v"]) | st.binary(max_size=300)
Headers = st.lists(st.tuples(st.text(max_size=5), Bytes), max_size=3)
Records = st.lists(st.tuples(st.integers(0, 2**41), Bytes, Bytes, Headers), min_size=1, max_size=8)
FIELDS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "checksum")
BATCH = (
    "base_offset magic crc attributes last_offset_delta next_offset compression_type timestamp_type is_transactional is_control_batch "
    "first_timestamp max_timestamp producer_id producer_epoch base_sequence"
).split()

NUMBERS = ("calc_crc32c", "decode_varint", "encode_varint")
SWAPPED = {
    "kafka": {
        "DefaultRecordBatch": "record.default_records record.memory_records",
        "DefaultRecordBatchBuilder": "record.default_records record.memory_records producer.kafka",
        "murmur2": "partitioner partitioner.default",
        **dict.fromkeys(NUMBERS, "record.util record.default_records"),
    },
    "aiokafka": {
        "DefaultRecordBatch": "record.default_records record.memory_records",
        "DefaultRecordBatchBuilder": "record.default_records producer.message_accumulator producer.producer",
        "MemoryRecords": "record.memory_records consumer.fetcher",
        "murmur2": "partitioner",
        **dict.fromkeys(NUMBERS, "record.util"),
    },
}
"""In which modules of a package which names are others'."""


def layer(package: str, name: str) -> Any:
    """A name of a package's record layer, as it is now."""
    return getattr(importlib.import_module(f"{package}.record.default_records"), name)


THEIRS = {package: (layer(package, "DefaultRecordBatchBuilder"), layer(package, "DefaultRecordBatch")) for package in NAMES}


def fields(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in FIELDS)


def built_batch(builder: type, records: list[Any], codec: int = 0, limit: int = 1 << 20, last: int = 0) -> tuple[bytes, list[Any]]:
    made = builder(2, codec, last, 77 if last else -1, 3 if last else -1, 9 if last else -1, limit)
    said = [made.append(offset, *record) for offset, record in enumerate(records)]
    assert made.size() >= 61
    return bytes(made.build()), [None if one is None else (one.offset, one.size, one.timestamp, one.crc) for one in said]


built = Reached("the batch is full", "all records fit", "null key and value", "headers")


@pytest.mark.parametrize("package", NAMES)
@built.by
@given(records=Records, limit=st.sampled_from([61, 75, 100, 200, 400, 2000]), transactional=st.booleans())
@example(records=[(0, None, None, []), (0, None, None, [])], limit=75, transactional=False)
@settings(max_examples=80)
def test_what_is_built_has_the_same_bytes(package: str, records: list[Any], limit: int, transactional: bool) -> None:
    theirs, _ = THEIRS[package]
    # aiokafka's compiled builder refuses a record that fills its batch; its Python builder, kafka-python's and ours take it
    expected, said = built_batch(theirs, records, limit=limit + (package == "aiokafka"), last=transactional)
    found, ours_said = built_batch(ForeignBatchBuilder, records, limit=limit, last=transactional)
    full = ours_said.index(None) if None in ours_said else len(records)
    built("the batch is full", full < len(records))
    built("all records fit", full == len(records))
    built("null key and value", any(key is value is None for _, key, value, _ in records[:full]))
    built("headers", any(headers for *_, headers in records[:full]))
    assert ours_said[: full + 1] == said[: full + 1]
    if full == len(records):
        assert (found[:12], found[16:]) == (expected[:12], expected[16:])  # the leader epoch, which brokers fill in, may differ


@pytest.mark.parametrize("package", NAMES)
@given(records=Records, codec=st.integers(0, 4), is_ours=st.booleans())
@settings(max_examples=80)
def test_what_is_read_is_the_same(package: str, records: list[Any], codec: int, is_ours: bool) -> None:
    data, _ = built_batch(ForeignBatchBuilder if is_ours else THEIRS[package][0], records, codec)
    expected = THEIRS[package][1](data)
    with accelerate(package):
        found = layer(package, "DefaultRecordBatch")(data)
    assert type(found) is not type(expected)
    codecs = [f"CODEC_{name}" for name in ("MASK", "NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD") if hasattr(expected, f"CODEC_{name}")]
    assert len(codecs) > 4 and [getattr(found, name) for name in codecs] == [getattr(expected, name) for name in codecs]
    assert [getattr(found, name) for name in BATCH] == [getattr(expected, name) for name in BATCH]
    assert found.validate_crc() is expected.validate_crc() is True
    read, wanted = list(found), list(expected)
    assert [(each.timestamp, each.key, each.value, [*each.headers]) for each in read] == records
    assert list(map(fields, read)) == list(map(fields, wanted))
    if package == "kafka":
        assert [record.size_in_bytes for record in read] == [record.size_in_bytes for record in wanted]
        more = ("size_in_bytes", "leader_epoch", "last_offset", "has_sequence", "last_sequence", "records_count")
        assert [getattr(found, name) for name in more] == [getattr(expected, name) for name in more]


@each_row("abort", [True, False])
@each_row("package", NAMES)
def test_control_batches(package: str, abort: bool) -> None:
    data = bytes(control_batch(0 if abort else 1, producer_id=5, producer_epoch=1))
    with accelerate(package):
        batch = layer(package, "DefaultRecordBatch")(data)
    assert batch.is_control_batch
    record = next(batch)
    assert record.key == next(THEIRS[package][1](data).__iter__()).key
    assert (record.abort, record.commit, record.version, record.type) == (abort, not abort, 0, 0 if abort else 1)
    with pytest.raises(StopIteration):
        next(batch)


@pytest.mark.parametrize("package", NAMES)
def test_broken_batches_raise_the_packages_error(package: str) -> None:
    errors = importlib.import_module(f"{package}.errors")
    corrupt = errors.CorruptRecordError if package == "kafka" else errors.CorruptRecordException
    data, _ = built_batch(ForeignBatchBuilder, [(5, None, b"value", [])] * 3)
    with accelerate(package):
        batch = layer(package, "DefaultRecordBatch")
        assert not batch(data[:-1] + b"!").validate_crc()
        with pytest.raises(corrupt, match="record structure"):
            list(batch(data[:61] + bytes(len(data) - 61)))
        with pytest.raises(corrupt, match="record batch"):
            batch(data[:40])
        with pytest.raises(corrupt, match="record batch"):
            batch(data[:57] + b"\xff\xff\xff\xff" + data[61:])


def test_appending_refuses_what_the_packages_refuse() -> None:
    for builder in (ForeignBatchBuilder, THEIRS["kafka"][0]):
        made = builder(2, 0, False, -1, -1, -1, 1 << 20)
        for bad in (("0", 5, None, b""), (0, 5.0, None, b""), (0, 5, "key", b""), (0, 5, None, "value")):
            with pytest.raises(TypeError):
                made.append(*bad, [])
        assert made.append(0, None, bytearray(b"k"), memoryview(b"v"), []).timestamp > 1_600_000_000_000
    made = ForeignBatchBuilder(2, 0, False, -1, -1, -1, 100)
    made.set_producer_state(8, 2, 5, True)
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (8, 2, 5)
    made.append(0, 5, None, b"x", [])
    (batch,) = read_batches(made.build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (8, 2, 5, True)


@given(record=st.tuples(Bytes, Bytes, Headers))
def test_sizes(record: Any) -> None:
    theirs = THEIRS["kafka"][0]
    assert ForeignBatchBuilder.size_of(*record) == theirs.size_of(*record)
    assert ForeignBatchBuilder.estimate_size_in_bytes(*record) == theirs.estimate_size_in_bytes(*record)
    assert ForeignBatchBuilder.header_size_in_bytes() == theirs.header_size_in_bytes() == 61


@pytest.mark.parametrize("package", NAMES)
@given(key=st.binary(max_size=40))
def test_keys_choose_the_same_partitions(package: str, key: bytes) -> None:
    """The number that the package's own hash gives: unsigned, where Java's has a sign."""
    module = importlib.import_module("kafka.partitioner.default" if package == "kafka" else "aiokafka.partitioner")
    theirs = module.murmur2
    with accelerate(package):
        ours = module.murmur2
        chosen = aiokafka.partitioner.DefaultPartitioner()(key, list(range(7)), [])
    assert ours is not theirs
    assert ours(key) == ours(bytearray(key)) == ours(memoryview(key)) == theirs(key)
    assert chosen == (theirs(key) & 0x7FFFFFFF) % 7


def test_a_message_set_is_left_to_the_package() -> None:
    builder = BatchBuilder(magic=1)
    builder.append(b"old")
    (message,) = read_batches(builder.build())
    with pytest.raises(ValueError, match="message set"):
        ForeignRecords(message, ValueError)
    data = bytes(builder.build()) + built_batch(ForeignBatchBuilder, [(5, None, b"new", [])])[0]
    for package, module in (("kafka", "kafka.record.memory_records"), ("aiokafka", "aiokafka.consumer.fetcher")):
        with accelerate(package):
            records = importlib.import_module(module).MemoryRecords(data + b"cut off")
        assert records.size_in_bytes() == len(data) + 7
        values = []
        while records.has_next():
            values += [record.value for record in records.next_batch()]
        assert values == [b"old", b"new"]
        assert records.next_batch() is None


def test_where_a_batch_ends_and_how_short_it_may_be() -> None:
    def found(length: int, size: int, magic: int = 2) -> Any:
        data = bytearray(size)
        data[8:12], data[16:17] = length.to_bytes(4, "big", signed=True), bytes([magic])
        batches = ForeignBatches(data[:size] * 2, bytes, lambda part, number: (len(part), number), ValueError)
        assert batches.has_next()
        try:
            return [batches.next_batch() for _ in range(3)]
        except ValueError as error:
            return str(error)

    short = "Record size is less than the minimum record overhead (14)"
    assert [found(14, 26, magic) for magic in (0, 1)] == [[(26, magic), (26, magic), None] for magic in (0, 1)]
    assert [len(each) for each in found(14, 26)[:2]] == [26, 26]
    assert [found(0, 12), found(-5, 12), found(-13, 12), found(13, 25)] == [short] * 4
    records = [ForeignBatches(data, bytes, bytes, ValueError) for data in (b"", bytes(11), bytes(8) + b"\0\0\0\x0e" + bytes(13))]
    assert [(each.has_next(), each.next_batch()) for each in records] == [(False, None)] * 3


@pytest.mark.parametrize("package", NAMES)
def test_it_is_undone(package: str) -> None:
    before = {(swap.module, swap.name): getattr(importlib.import_module(swap.module), swap.name) for swap in PACKAGES[package]()}
    assert before.keys() == {(f"{package}.{module}", name) for name, modules in SWAPPED[package].items() for module in modules.split()}
    done = accelerate(package)
    assert all(getattr(importlib.import_module(module), name) is not value for (module, name), value in before.items())
    done.undo()
    done.undo()
    assert all(getattr(importlib.import_module(module), name) is value for (module, name), value in before.items())


def test_a_package_that_is_not_known() -> None:
    with pytest.raises(ConfigError, match="knows kafka and aiokafka, not 'pykafka'"):
        accelerate("pykafka")


def test_a_version_with_other_insides(monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher = importlib.import_module("aiokafka.consumer.fetcher")
    monkeypatch.delattr(fetcher, "MemoryRecords")
    with pytest.raises(ConfigError, match=r"aiokafka cannot be accelerated: .*MemoryRecords"):
        accelerate("aiokafka")
    assert layer("aiokafka", "DefaultRecordBatchBuilder") is THEIRS["aiokafka"][0]


# ---- the clients


servers = addresses({"sync": 1, "async": 1})
VALUES = numbered(200, b"v")
READ = [(offset, b"k", VALUES[offset % 200], [("h", b"x")], offset % 200) for offset in range(400)]
"""What is there when each value was sent twice, with its number as its time."""


def shown_records(records: list[Any]) -> list[Any]:
    return [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in records]


def test_kafka_python_goes_on(servers: str) -> None:
    with accelerate("kafka"):
        for codec in (None, "gzip"):
            producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type=codec)
            for number, value in enumerate(VALUES):
                producer.send("sync", value, key=b"k", headers=[("h", b"x")], timestamp_ms=number)
            producer.flush()
            producer.close()
        consumer = kafka.KafkaConsumer("sync", bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
        found = [next(consumer) for _ in READ]
        consumer.close()
    assert shown_records(found) == READ


def test_aiokafka_goes_on(servers: str) -> None:
    async def use() -> list[Any]:
        for transaction in (None, "x"):
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transaction) as producer:
                if transaction:
                    await producer.begin_transaction()
                for number, value in enumerate(VALUES):
                    await producer.send("async", value, key=b"k", headers=[("h", b"x")], timestamp_ms=number)
                if transaction:
                    await producer.commit_transaction()
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with aiokafka.AIOKafkaConsumer("async", bootstrap_servers=servers, **settings) as consumer:
            return [await asyncio.wait_for(consumer.getone(), 30) for _ in READ]

    with accelerate("aiokafka"):
        assert shown_records(asyncio.run(use())) == READ
