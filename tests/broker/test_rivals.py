"""Other clients against the embedded broker: each writes, idempotently, in every codec, and reads by assignment."""

import json

import confluent_kafka
import pytest

from kafkacore.testing import Disconnect, EmbeddedCluster
from tests.kit.plain_records import READ, WRITE, Plain, confluent_read
from tests.kit.waiting import fresh

COUNT = 500
RECORDS = [Plain(b"key-%d" % n, json.dumps({"n": n, "pad": "x" * 50}).encode(), timestamp_ms=1_700_000_000_000 + n) for n in range(COUNT)]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("reader", READ)
@pytest.mark.parametrize("codec", [each if each == "gzip" else pytest.param(each, marks=pytest.mark.slow) for each in CODECS])
@pytest.mark.parametrize("writer", WRITE)
def test_each_reads_what_each_wrote(cluster, writer, codec, reader):
    topic = fresh()  # made by asking for it
    WRITE[writer](cluster.bootstrap_servers, topic, RECORDS, codec)
    assert READ[reader](cluster.bootstrap_servers, topic, COUNT) == RECORDS


@pytest.mark.slow
def test_confluent_survives_a_restart_without_loss_or_doubling():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.ms": 10}
        )
        for n, record in enumerate(RECORDS):
            producer.produce("t", record.value, record.key, timestamp=record.timestamp_ms)
            producer.poll(0)
            if n == COUNT // 2:
                cluster.stop_broker(1)
                cluster.start_broker(1)
        assert producer.flush(90) == 0
        assert confluent_read(cluster.bootstrap_servers, "t", COUNT) == RECORDS


@pytest.mark.slow
@pytest.mark.parametrize("client", WRITE)
def test_lost_produce_responses_do_not_double_idempotent_records(client):
    with EmbeddedCluster() as cluster:
        asked = []

        def lose_every_third(request):
            asked.append(request)
            return Disconnect(handle=True) if len(asked) % 3 == 1 else None

        cluster.control(0, lose_every_third)
        WRITE[client](cluster.bootstrap_servers, "t", RECORDS, "none")
        cluster.control(0, None)
        assert asked
        assert confluent_read(cluster.bootstrap_servers, "t", COUNT) == RECORDS
        assert cluster.high_watermark("t", 0) == COUNT
