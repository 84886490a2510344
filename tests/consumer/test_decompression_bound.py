"""max_decompressed_bytes: what a compressed batch may hold, and what one call unpacks, through every face."""

import contextlib

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, compress
from kafkacore import consumer as engines
from kafkacore.errors import CorruptDataError, DecompressedTooLarge
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition

TP = TopicPartition("t", 0)


def reader(cluster, **settings):
    made = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **settings)
    made.assign([TP])
    return made


@pytest.mark.parametrize("poll", ["poll", "poll_batch"])
def test_a_batch_above_the_bound_is_read_with_a_larger_one(poll):
    with EmbeddedCluster(1) as cluster:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type="zstd", max_request_size=4 << 20) as producer:
            producer.send("t", b"small").result()
            producer.send("t", bytes(3 << 20)).result()
        with reader(cluster, max_decompressed_bytes=1 << 20) as bounded:
            records = bounded.poll(10)
            assert [r.value for r in records[TP]] == [b"small"]
            for _ in range(2):
                with pytest.raises(DecompressedTooLarge, match=r"the zstd batch at offset 1 .*max_decompressed_bytes=1048576") as caught:
                    getattr(bounded, poll)(10)
                assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 1)
                assert not isinstance(caught.value, CorruptDataError)
            assert bounded.position(TP) == 1
        with reader(cluster, max_decompressed_bytes=4 << 20) as wide:
            wide.seek(TP, 1)
            assert len(getattr(wide, poll)(10)) == 1
            assert wide.position(TP) == 2


# ---- what one call unpacks

BATCH_BYTES, BATCHES, BOUND = 600_000, 12, 1 << 20


@pytest.fixture(scope="module")
def packed():
    """Batches that unpack to much: some in each of two partitions, one record each."""
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic("packed", partitions=2)
        settings = {"compression_type": "zstd", "batch_size": 1, "max_request_size": 1 << 20}
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
            for n in range(BATCHES):
                producer.send("packed", bytes(BATCH_BYTES), partition=n % 2).result()
        yield cluster.bootstrap_servers


@contextlib.contextmanager
def native(servers, **settings):
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_decompressed_bytes=BOUND, **settings) as member:
        member.assign([TopicPartition("packed", 0), TopicPartition("packed", 1)])
        yield member


def by_poll(servers):
    with native(servers) as member:
        while True:
            yield sum(map(len, member.poll(10).values()))


def by_poll_batch(servers):
    with native(servers) as member:
        while True:
            yield member.poll_batch(10).record_count


def by_iteration(servers):
    with native(servers) as member:
        for _ in member:
            yield 1


def by_read(servers):
    with KafkaConsumer(bootstrap_servers=servers) as member:
        for batch in member.read("packed"):
            yield len(batch)


def by_legacy(servers):
    from kafkacore.legacy import SimpleConsumer

    member = SimpleConsumer(bootstrap_servers=servers, max_decompressed_bytes=BOUND)
    try:
        for partition in (0, 1):
            for _ in member.fetch("packed", partition, 0):
                yield 1
    finally:
        member.close()


def by_confluent(servers):
    from kafkacore.compat.confluent import Consumer
    from kafkacore.compat.confluent import TopicPartition as Place

    member = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    member.assign([Place("packed", 0), Place("packed", 1)])
    try:
        while True:
            yield len(member.consume(1_000, 10))
    finally:
        member.close()


def unpacks_little(packed, way, monkeypatch):
    unpacked = 0
    decompress = compress.decompress

    def counted(*args):
        nonlocal unpacked
        unpacked += BATCH_BYTES
        return decompress(*args)

    monkeypatch.setattr(compress, "decompress", counted)
    fetcher = engines.Fetcher  # other clients have no setting for it
    monkeypatch.setattr(engines, "Fetcher", lambda *args, **options: fetcher(*args, **{**options, "max_decompressed_bytes": BOUND}))
    handed = 0
    with contextlib.closing(way(packed)) as calls:
        for count in calls:
            assert unpacked - handed * BATCH_BYTES <= BOUND + BATCH_BYTES
            handed += count
            if handed >= BATCHES:
                break
    assert handed == BATCHES


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize("way", [by_poll, by_poll_batch, by_iteration])
def test_a_call_unpacks_little_more_than_the_bound_and_all_comes_in_the_end(packed, way, monkeypatch):
    unpacks_little(packed, way, monkeypatch)


@pytest.mark.parametrize("way", [by_read, by_legacy, by_confluent])
def test_nor_does_a_call_of_another_client(packed, way, monkeypatch):
    unpacks_little(packed, way, monkeypatch)
