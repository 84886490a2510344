"""Other clients against the embedded broker: each produces (idempotently too) in every codec and reads by assignment."""

import asyncio
import json

import pytest

from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.testing import EmbeddedCluster

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")
aiokafka = pytest.importorskip("aiokafka")

COUNT = 500
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
EXPECTED = [(f"key-{n}".encode(), json.dumps({"n": n, "pad": "x" * 50}).encode()) for n in range(COUNT)]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    cluster.create_topic(name)
    return name


def confluent_produce(servers, topic, codec, idempotent):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 1, "batch.size": 4096}
    )
    failures = []
    for key, value in EXPECTED:
        producer.produce(topic, value, key, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(90) == 0
    assert failures == []


def confluent_consume(servers, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        got = []
        while len(got) < COUNT:
            messages = consumer.consume(COUNT, 10)
            assert messages, f"only {len(got)} records came"
            for message in messages:
                assert message.error() is None
                assert message.offset() == len(got)
                got.append((message.key(), message.value()))
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0)) == (0, COUNT)
        return got
    finally:
        consumer.close()


def kafka_python_produce(servers, topic, codec, idempotent):
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, compression_type=None if codec == "none" else codec, enable_idempotence=idempotent, batch_size=4096
    )
    try:
        futures = [producer.send(topic, value, key) for key, value in EXPECTED]
        assert [future.get(60).offset for future in futures] == list(range(COUNT))
    finally:
        producer.close()


def kafka_python_consume(servers, topic):
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=10_000, group_id=None)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        got = []
        for record in consumer:
            got.append((record.key, record.value))
            if len(got) == COUNT:
                break
        assert consumer.end_offsets([partition]) == {partition: COUNT}
        return got
    finally:
        consumer.close()


def aiokafka_produce(servers, topic, codec, idempotent):
    async def run():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_batch_size=4096,
        )
        await producer.start()
        try:
            futures = [await producer.send(topic, value, key) for key, value in EXPECTED]
            assert [metadata.offset for metadata in await asyncio.wait_for(asyncio.gather(*futures), 60)] == list(range(COUNT))
        finally:
            await producer.stop()

    asyncio.run(run())


def aiokafka_consume(servers, topic):
    async def run():
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=None)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            got = []
            while len(got) < COUNT:
                record = await asyncio.wait_for(consumer.getone(), 60)
                got.append((record.key, record.value))
            assert await consumer.end_offsets([partition]) == {partition: COUNT}
            return got
        finally:
            await consumer.stop()

    return asyncio.run(run())


PRODUCE = {"confluent": confluent_produce, "kafka-python": kafka_python_produce, "aiokafka": aiokafka_produce}
CONSUME = {"confluent": confluent_consume, "kafka-python": kafka_python_consume, "aiokafka": aiokafka_consume}


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("client", PRODUCE)
def test_each_produces_and_reads_its_own(cluster, topic, client, idempotent):
    PRODUCE[client](cluster.bootstrap_servers, topic, "gzip", idempotent)
    assert CONSUME[client](cluster.bootstrap_servers, topic) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("reader", CONSUME)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", PRODUCE)
def test_each_reads_what_each_wrote(cluster, topic, writer, codec, reader):
    PRODUCE[writer](cluster.bootstrap_servers, topic, codec, False)
    assert CONSUME[reader](cluster.bootstrap_servers, topic) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("client", PRODUCE)
@pytest.mark.parametrize(
    "older",
    [{18: (0, 2)}, {18: (0, 0)}, {0: (0, 7), 1: (4, 11), 3: (0, 8), 2: (1, 5), 22: (0, 1)}],
    ids=["ApiVersions-2", "ApiVersions-0", "Kafka-2.3"],
)
def test_older_tables(topic, client, older):
    with EmbeddedCluster(api_versions={**API_VERSIONS, **older}) as cluster:
        cluster.create_topic(topic)
        PRODUCE[client](cluster.bootstrap_servers, topic, "lz4", True)
        assert CONSUME[client](cluster.bootstrap_servers, topic) == EXPECTED


def test_auto_created_topics(cluster):
    confluent_produce(cluster.bootstrap_servers, "made-by-confluent", "none", True)
    kafka_python_produce(cluster.bootstrap_servers, "made-by-kafka-python", "none", True)
    assert cluster.high_watermark("made-by-confluent", 0) == cluster.high_watermark("made-by-kafka-python", 0) == COUNT


def test_confluents_admin_creates_and_deletes(cluster):
    admin_module = pytest.importorskip("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([admin_module.NewTopic("by-admin", 3, 1, config={"retention.ms": "60000"})])["by-admin"].result(60)
    assert cluster.topics()["by-admin"] == 3
    refused = admin.create_topics([admin_module.NewTopic("compacted", 1, 1, config={"cleanup.policy": "squeeze"})])["compacted"]
    with pytest.raises(confluent_kafka.KafkaException, match=r"cleanup\.policy"):
        refused.result(60)
    admin.delete_topics(["by-admin"])["by-admin"].result(60)
    assert "by-admin" not in cluster.topics()


def test_kafka_pythons_admin_describes_the_cluster(cluster):
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        described = admin.describe_cluster()
        assert described["cluster_id"] == cluster.cluster_id
    finally:
        admin.close()


@pytest.mark.slow
def test_confluent_survives_a_restart_without_loss_or_doubling(topic):
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.ms": 10}
        )
        for n, (key, value) in enumerate(EXPECTED):
            producer.produce(topic, value, key)
            producer.poll(0)
            if n == COUNT // 2:
                cluster.stop_broker(1)
                cluster.start_broker(1)
        assert producer.flush(90) == 0
        assert confluent_consume(cluster.bootstrap_servers, topic) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("client", PRODUCE)
def test_lost_produce_responses_do_not_double_idempotent_records(topic, client):
    from kafkacore.testing import Disconnect

    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic)
        requests = 0

        def lose_every_third(request):
            nonlocal requests
            requests += 1
            return Disconnect(handle=True) if requests % 3 == 1 else None

        cluster.control(0, lose_every_third)
        PRODUCE[client](cluster.bootstrap_servers, topic, "none", True)
        cluster.control(0, None)
        assert requests > 1
        assert confluent_consume(cluster.bootstrap_servers, topic) == EXPECTED
