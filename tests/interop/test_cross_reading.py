"""What one client writes, the other reads: every rival, every codec, both directions, on the embedded broker and on Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkacore import KafkaProducer
from tests.kit import plain_records as rivals
from tests.kit.plain_records import Plain
from tests.kit.records import read

pytestmark = pytest.mark.kafka_at_length

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500


def sample() -> list[Plain]:
    """Records with the corners: null and empty keys and values, headers with null values, timestamps going back."""
    records = [
        Plain(b"k", b"v", (), 1_700_000_000_000),
        Plain(None, b"no key", (), 1_700_000_000_001),
        Plain(b"tombstone", None, (), 1_700_000_000_002),
        Plain(b"", b"", (("empty", b""), ("null", None), ("ключ", "значение".encode())), 1_699_999_999_000),
        Plain(b"big", bytes(range(256)) * 200, (("h", b"x" * 300),), 1_700_000_000_003),
    ]
    return records + [Plain(b"key-%d" % (i % 7), b"value %06d " % i * 5, (), 1_700_000_001_000 + i) for i in range(COUNT - len(records))]


def write(servers: str, topic: str, records: list[Plain], codec: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, compression_type=codec) as producer:
        for r in records:
            producer.send(topic, r.value, r.key, headers=list(r.headers), partition=0, timestamp_ms=r.timestamp_ms)


@pytest.mark.parametrize("rival", rivals.READ)
def test_they_read_what_we_write(bootstrap_servers: str, make_topic: Callable[..., str], rival: str) -> None:
    topic, records = make_topic(), sample()
    for codec in CODECS:
        write(bootstrap_servers, topic, records, codec)
    assert rivals.READ[rival](bootstrap_servers, topic, len(records) * len(CODECS)) == records * len(CODECS)


@pytest.mark.parametrize("rival", rivals.WRITE)
def test_we_read_what_they_write(bootstrap_servers: str, make_topic: Callable[..., str], rival: str) -> None:
    topic, records = make_topic(), sample()
    if rival == "kafka-python":  # it refuses a header without a value
        records = [r._replace(headers=tuple(h for h in r.headers if h[1] is not None)) for r in records]
    for codec in CODECS:
        rivals.WRITE[rival](bootstrap_servers, topic, records, codec)
    found = read(bootstrap_servers, topic, len(records) * len(CODECS))
    assert [Plain(r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in found] == records * len(CODECS)
