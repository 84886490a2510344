"""Brokers that play Kafka 0.8 to 2.8: old requests in bytes laid out by hand, what lies in the log, clients that speak to them."""

import struct
import uuid
import zlib
from contextlib import closing

import confluent_kafka
import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kafka import KafkaProducer as PythonProducer
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.record.memory_records import MemoryRecords
from logs import topic_config

from kafkacore import KafkaProducer
from kafkacore import protocol as p
from kafkacore.broker.emulation import EMULATIONS
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.broker.log import messages
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.config import BrokerConfig
from kafkacore.errors import (
    BrokerError,
    Code,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from kafkacore.protocol.stored import OffsetCommitValue, decode_stored
from kafkacore.records import BatchBuilder, read_batches
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.inside import brokers_of
from tests.kit.records import numbered
from tests.kit.rivals import confluent_consumer, confluent_producer, drain, kafka_python_consumer, send_all, subscribe, take
from tests.kit.rows import each_row
from tests.kit.wire import Wire

OLD = ("0.8", "0.9", "0.10", "2.x")
RELEASE = {"0.8": (0, 8, 2), "0.9": (0, 9), "0.10": (0, 10, 2), "2.x": (2, 8)}
STORED = {"0.8": 0, "0.9": 0, "0.10": 1, "2.x": 2}
FLIGHTS = "flights-of-all-years"  # librdkafka reads no Metadata v0 that is too short: it runs out of its own memory
NO_DELAY = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}


def entry(value, key=None, offset=0, magic=0, attributes=0, timestamp_ms=1_500_000_000_000):
    """offset, size, then CRC, magic, attributes, the timestamp of magic 1, key and value with their sizes."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def compressed(codec, values, magic=0):
    builder = BatchBuilder(magic=magic, compression=codec, max_bytes=1 << 20)
    for n, value in enumerate(values):
        builder.append(value, b"k", timestamp_ms=1_500_000_000_000 + n)
    return bytes(builder.build())


def store(wire, records, version=0, topic="t", acks=-1):
    data = p.TopicProduceData(name=topic, partition_data=[p.PartitionProduceData(index=0, records=records)])
    answer = wire.ask(p.ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data]), version)
    return answer.responses[0].partition_responses[0]


def load(wire, offset=0, version=0, topic="t", max_bytes=1 << 20):
    wanted = p.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = p.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[p.FetchTopic(topic=topic, partitions=[wanted])])
    return wire.ask(request, version).responses[0].partitions[0]


def offsets_before(wire, timestamp, count=10, topic="t"):
    wanted = p.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    request = p.ListOffsetsRequest(replica_id=-1, topics=[p.ListOffsetsTopic(name=topic, partitions=[wanted])])
    return wire.ask(request, 0).topics[0].partitions[0]


def rows_in(records):
    """What kafka-python and aiokafka read, which must agree: (magic, offset, timestamp, key, value)."""
    found = []
    for reader in (MemoryRecords(bytes(records)), AioMemoryRecords(bytes(records))):
        rows = []
        while reader.has_next():
            batch = reader.next_batch()
            assert batch.validate_crc()
            magic = getattr(batch, "magic", getattr(batch, "_magic", 2))
            rows += [(magic, each.offset, -1 if each.timestamp is None else each.timestamp, each.key, each.value) for each in batch]
        found.append(rows)
    assert [row[1:] for row in found[0]] == [row[1:] for row in found[1]]
    return found[0]


def values_in(records):
    return [(row[1], row[4]) for row in rows_in(records)]


@pytest.fixture(params=OLD)
def old(request):
    with EmbeddedCluster(emulate=request.param, config=NO_DELAY) as cluster:
        cluster.create_topic("t")
        yield request.param, cluster


# ---- tables


@each_row("release", OLD)
def test_the_tables_are_those_of_their_time(release):
    """kafka-python has the answers of real brokers from 0.10 on, and what can be said of those before."""
    theirs = BROKER_API_VERSIONS[RELEASE[release]]
    played = EMULATIONS[release]
    assert played.versions == {key: versions for key, versions in theirs.items() if key in SERVED}
    assert all(played.code(code) <= played.newest_code for code in Code)


def test_what_they_say_of_themselves(old):
    release, cluster = old
    with Wire(cluster.bootstrap_servers) as wire:
        if release in ("0.8", "0.9"):
            wire.send(p.ApiVersionsRequest(), 0)
            assert wire.closed_by_peer
            with Wire(cluster.bootstrap_servers) as another:
                assert another.ask(p.MetadataRequest(topics=[]), 0).brokers
            return
        answer = wire.ask(p.ApiVersionsRequest(), 0)
        assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == EMULATIONS[release].versions
        wire.send(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        _, refused = wire.receive(p.ApiVersionsRequest, 0)
        own = [] if release == "0.10" else [p.ApiVersion(api_key=18, max_version=3)]  # KIP-511 came with 2.4
        assert (refused.error_code, refused.api_keys) == (Code.UNSUPPORTED_VERSION, own)
        if release == "2.x":
            answer = wire.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            assert (answer.supported_features, answer.finalized_features) == ([], [])


def test_kafka_4_serves_none_of_it():
    """KIP-896. Produce v0-2 are advertised by Kafka, too, and refused for each partition."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with Wire(cluster.bootstrap_servers) as wire:
            assert store(wire, entry(b"v", magic=1), 2).error_code == Code.UNSUPPORTED_VERSION
            wire.send(p.FetchRequest(), 3)
            assert wire.closed_by_peer


def test_every_version_that_2_8_had_is_served():
    """The lowest ones of APIs whose lowest Kafka 4 dropped, without anything in particular to say."""
    dropped = [key for key in API_VERSIONS if key != 0 and p.APIS[key].oldest_served and key in EMULATIONS["2.x"].versions]
    assert len(dropped) == 18
    with EmbeddedCluster(emulate="2.x", config=NO_DELAY) as cluster:
        cluster.create_topic("t")
        with Wire(cluster.bootstrap_servers) as wire:
            for key in dropped:
                fields = {"resource_type_filter": 1, "operation": 1, "permission_type": 1} if key == p.DescribeAclsRequest.API_KEY else {}
                for version in range(p.APIS[key].oldest_served):
                    wire.ask(p.APIS[key].request(**fields), version)
            wanted = p.DescribeConfigsRequest(resources=[p.DescribeConfigsResource(resource_type=2, resource_name="t")])
            rows = {row.name: row for row in wire.ask(wanted, 0).results[0].configs}
            assert rows["retention.ms"].is_default and rows["retention.ms"].value == "604800000"
            create = p.CreateTopicsRequest(topics=[p.CreatableTopic(name="u", num_partitions=1, replication_factor=1)], timeout_ms=5_000)
            assert [wire.ask(create, version).topics[0].error_code for version in (0, 1)] == [0, Code.TOPIC_ALREADY_EXISTS]
            delete = p.DeleteTopicsRequest(topic_names=["u"], timeout_ms=5_000)
            assert [wire.ask(delete, 0).responses[0].error_code for _ in range(2)] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
            epoch = p.OffsetForLeaderTopic(topic="t", partitions=[p.OffsetForLeaderPartition(partition=0, leader_epoch=0)])
            store(wire, entry(b"v"))
            assert wire.ask(p.OffsetForLeaderEpochRequest(topics=[epoch]), 0).topics[0].partitions[0].end_offset == 1


# ---- storing


@pytest.mark.parametrize("release", OLD)
def test_messages_lie_on_the_disk_in_the_format_of_the_release(release, tmp_path):
    with EmbeddedCluster(emulate=release, data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        with Wire(cluster.bootstrap_servers) as wire:
            sent = entry(b"a", b"k", offset=7) + entry(b"b") + entry(b"cut off")[:-1]
            assert store(wire, sent)[:3] == (0, 0, 0)
            assert store(wire, compressed("gzip", [b"c", b"d"]))[:3] == (0, 0, 2)
            assert store(wire, entry(b"cut off")[:-1]).base_offset == -1
            assert store(wire, entry(None, b"k"))[:3] == (0, 0, 4)
    data = next(tmp_path.glob("broker-1/t-0/*.log")).read_bytes()
    assert [(row[0], row[1], row[3], row[4]) for row in rows_in(data)] == [
        (STORED[release], n, key, value)
        for n, (key, value) in enumerate([(b"k", b"a"), (None, b"b"), (b"k", b"c"), (b"k", b"d"), (b"k", None)])
    ]
    assert {row[2] for row in rows_in(data)} == {-1}
    assert [batch.compression for batch in read_batches(data)] == ([0, 0, 1, 0] if release != "2.x" else [0, 1, 0])
    with EmbeddedCluster(emulate=release, data_dir=tmp_path) as cluster, Wire(cluster.bootstrap_servers) as wire:
        assert values_in(load(wire, 0).records) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, None)]
        assert store(wire, entry(b"e"))[:3] == (0, 0, 5)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_set_with_one_compressed_message_is_stored_as_one(old, codec):
    _, cluster = old
    with Wire(cluster.bootstrap_servers) as wire:
        store(wire, entry(b"before"))
        sent = entry(b"plain") + compressed(codec, [b"x" * 50, b"y" * 50])
        assert store(wire, sent)[:3] == (0, 0, 1)
        stored = load(wire, 1).records
        expected = [(1, b"plain"), (2, b"x" * 50), (3, b"y" * 50)]
        assert [(each.offset, each.value) for batch in read_batches(stored) for each in batch.records()] == expected
        assert codec == "lz4" or values_in(stored) == expected  # for lz4 in magic 0 the others want one more package
        assert [batch.compression for batch in read_batches(stored)] == [{"gzip": 1, "snappy": 2, "lz4": 3}[codec]]


def test_which_codec_a_set_is_stored_with():
    def stored(sent, magic=0, **settings):
        taken = messages.taken(sent, TopicConfig.build(settings, BrokerConfig()), magic, 0, 0, 0)
        return [batch.compression for batch in read_batches(taken.data)]

    mixed = compressed("gzip", [b"a"]) + entry(b"b") + compressed("snappy", [b"c"]) + entry(b"d")
    assert stored(entry(b"a") + entry(b"b")) == [0, 0]
    assert stored(mixed) == [2]
    assert stored(mixed, **{"compression.type": "gzip"}) == [1]
    assert stored(mixed, **{"compression.type": "uncompressed"}) == [0] * 4
    assert stored(entry(b"a"), **{"compression.type": "lz4"}) == [3]
    with pytest.raises(UnsupportedCompressionType, match="know no zstd"):
        stored(mixed, **{"compression.type": "zstd"})
    assert stored(mixed, magic=2, **{"compression.type": "zstd"}) == [4]


def test_what_of_a_message_set_may_be_written():
    def taken(sent, magic=1, wall_ms=1_500_000_000_000, **settings):
        try:
            found = messages.taken(sent, topic_config(**settings), magic, 1, 7, wall_ms)
        except BrokerError as error:
            return type(error)
        rows = [
            (batch.base_offset, batch.timestamp_type, record.timestamp_ms)
            for batch in read_batches(found.data)
            for record in batch.records()
        ]
        return rows, found.num_records, found.append_time_ms

    first, second = entry(b"v" * 40, b"k", magic=1), entry(b"w" * 50, magic=1, timestamp_ms=1_500_000_000_009)
    both = ([(7, 0, 1_500_000_000_000), (8, 0, 1_500_000_000_009)], 2, None)
    assert taken(first + second, max_message_bytes=len(second), segment_bytes=len(first + second)) == both
    assert taken(first + second, max_message_bytes=len(second) - 1) is RecordTooLarge
    assert taken(first + second, segment_bytes=len(first + second) - 1) is RecordBatchTooLarge
    packed = compressed("gzip", [b"x", b"y" * 500], magic=1)
    assert taken(packed, max_message_bytes=len(packed), compression_type="uncompressed") is RecordTooLarge
    assert taken(first + second, cleanup_policy="compact,delete") is InvalidRecord
    assert taken(first, cleanup_policy="compact,delete")[1:] == (1, None)
    late = {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": 0}
    assert taken(first + second, wall_ms=5, **late) == ([(7, 1, 5), (8, 1, 5)], 2, 5)
    assert taken(first, magic=0, wall_ms=5, **late) == ([(7, -1, -1)], 1, None)
    for ahead_ms, limits in ((9, {"message_timestamp_after_max_ms": 9}), (-20, {"message_timestamp_before_max_ms": 20})):
        sent = first + entry(b"w", magic=1, timestamp_ms=1_500_000_000_000 + ahead_ms) + entry(b"x", magic=1, timestamp_ms=-1)
        ((name, limit),) = limits.items()
        assert taken(sent, **limits)[1] == 3
        assert taken(sent, **{name: limit - 1}) is InvalidTimestamp
    assert taken(first[:-1]) == ([], 0, None)
    assert messages.older([batch(compression="gzip")], 1, 3) == ([], 3)  # all of it was read
    ((data,), next_offset) = messages.older([batch(compression="gzip")], 1, 2)
    assert ([(record.offset, record.value) for each in read_batches(data) for record in each.records()], next_offset) == ([(2, b"c")], 3)


def test_timestamps_since_0_10():
    with EmbeddedCluster(emulate="0.10") as cluster:
        cluster.create_topic("t")
        cluster.create_topic("late", configs={"message.timestamp.type": "LogAppendTime"})
        with Wire(cluster.bootstrap_servers) as wire:
            assert store(wire, entry(b"a", magic=1), 2).log_append_time_ms == -1
            assert store(wire, compressed("gzip", [b"b", b"c"], magic=1), 2).error_code == 0
            stamps = [1_500_000_000_000, 1_500_000_000_000, 1_500_000_000_001]
            assert [row[:3] for row in rows_in(load(wire, 0, 2).records)] == [(1, n, stamp) for n, stamp in enumerate(stamps)]
            assert [row[:3] for row in rows_in(load(wire, 0, 0).records)] == [(0, n, -1) for n in range(3)]
            answer = store(wire, entry(b"a", magic=1), 2, topic="late")
            assert answer.log_append_time_ms > 1_500_000_000_000
            (batch,) = read_batches(load(wire, 0, 2, topic="late").records)
            assert (batch.timestamp_type, batch.max_timestamp_ms) == (1, answer.log_append_time_ms)


def test_several_brokers_copy_old_messages():
    with EmbeddedCluster(brokers=3, emulate="0.8") as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=3)
        leader = cluster.leader("t", 0)
        with Wire(cluster.bootstrap_servers.split(",")[leader - 1]) as wire:
            assert store(wire, entry(b"a") + entry(b"b"))[:3] == (0, 0, 0)
            assert store(wire, compressed("snappy", [b"c"]))[:3] == (0, 0, 2)
        cluster.stop_broker(leader)
        with Wire(cluster.bootstrap_servers.split(",")[cluster.leader("t", 0) - 1]) as wire:
            assert values_in(load(wire).records) == [(0, b"a"), (1, b"b"), (2, b"c")]
        with Wire(cluster.bootstrap_servers.split(",")[cluster.leader("t", 0) - 1]) as wire:
            wire.send(p.FetchRequest(), 12)  # as brokers ask each other, but "wire" is none
            assert wire.closed_by_peer


# ---- errors


def test_what_a_producer_does_wrong(old):
    release, cluster = old
    cluster.create_topic("keyed", configs={"cleanup.policy": "compact"})
    cluster.create_topic("small", configs={"max.message.bytes": "100"})
    with Wire(cluster.bootstrap_servers) as wire:
        broken = bytearray(entry(b"value"))
        broken[-1] ^= 1
        assert store(wire, broken).error_code == Code.CORRUPT_MESSAGE
        assert store(wire, entry(b"v", magic=1)).error_code == Code.CORRUPT_MESSAGE  # v0 carries magic 0
        assert store(wire, entry(b"v"), topic="keyed").error_code == (Code.INVALID_RECORD if release == "2.x" else Code.CORRUPT_MESSAGE)
        assert store(wire, entry(b"v" * 90), topic="small").error_code == Code.MESSAGE_TOO_LARGE
        assert store(wire, entry(b"v"), acks=2).error_code == Code.INVALID_REQUIRED_ACKS
        assert store(wire, entry(b"v"), topic="none").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert load(wire, topic="none").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert load(wire, 9).error_code == Code.OFFSET_OUT_OF_RANGE
        assert store(wire, entry(b"fine"))[:3] == (0, 0, 0)


# ---- reading


def test_the_limit_of_old_fetches_is_strict():
    with EmbeddedCluster(emulate="0.10") as cluster:
        cluster.create_topic("t")
        with Wire(cluster.bootstrap_servers) as wire:
            whole = entry(b"x" * 1_000)
            store(wire, whole + entry(b"y", offset=1))
            for version in (0, 1, 2):
                assert len(load(wire, 0, version, max_bytes=300).records) == 300
            assert values_in(load(wire, 0, 3, max_bytes=300).records) == [(0, b"x" * 1_000)]  # KIP-74


def test_batches_are_converted_for_old_fetches():
    with EmbeddedCluster(emulate="2.x") as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t")
        cluster.create_topic("z", configs={"compression.type": "zstd"})
        with KafkaProducer(bootstrap_servers=servers, compression_type="gzip", linger_ms=50) as producer:
            futures = [producer.send("t", b"v%d" % n, b"k", timestamp_ms=1_500_000_000_000 + n, headers=[("h", b"1")]) for n in range(3)]
            futures.append(producer.send("z", b"v"))
            assert [each.result(timeout=60).offset for each in futures] == [0, 1, 2, 0]
        with KafkaProducer(bootstrap_servers=servers, transactional_id=uuid.uuid4().hex) as producer:
            producer.init_transactions()
            for value in (b"3", b"5"):  # a marker lies behind each
                with producer.transaction():
                    producer.send("t", value)
        with Wire(servers) as wire:
            expected = [(0, b"v0"), (1, b"v1"), (2, b"v2"), (3, b"3"), (5, b"5")]
            for version, magic in ((0, 0), (1, 0), (2, 1), (3, 1)):
                answer = load(wire, 0, version)
                rows = rows_in(answer.records)
                assert [(row[1], row[4]) for row in rows] == expected and {row[0] for row in rows} == {magic}
                if magic:
                    assert [row[2] for row in rows[:3]] == [1_500_000_000_000 + n for n in range(3)]
                assert values_in(load(wire, 2, version).records) == expected[2:]
                assert values_in(load(wire, 4, version).records) == [(5, b"5")]  # a marker, then a record
                assert bytes(load(wire, 6, version).records) == b""  # a marker, then the end
                assert load(wire, 0, version, topic="z").error_code == Code.UNSUPPORTED_COMPRESSION_TYPE
            assert values_in(load(wire, 4, 3, max_bytes=1).records) == [(5, b"5")]
            assert [batch.magic for batch in read_batches(load(wire, 0, 4).records)] == [2] * 5


def test_list_offsets_by_segments(old):
    _, cluster = old
    cluster.create_topic("s", configs={"segment.bytes": "1048576"})
    with Wire(cluster.bootstrap_servers) as wire:
        assert offsets_before(wire, -1, topic="s").old_style_offsets == [0]
        for _ in range(4):  # two do not fit into a segment
            assert store(wire, entry(b"x" * 600_000), topic="s").error_code == 0
        assert offsets_before(wire, -1, topic="s").old_style_offsets == [4, 3, 2, 1, 0]
        assert offsets_before(wire, -1, 1, topic="s").old_style_offsets == [4]
        assert offsets_before(wire, -2, topic="s").old_style_offsets == [0]
        assert offsets_before(wire, 1, topic="s").old_style_offsets == []  # nothing was written before that
        assert offsets_before(wire, 2**62, topic="s").old_style_offsets == [4, 3, 2, 1, 0]
        assert offsets_before(wire, -1, topic="none").error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    broker = brokers_of(cluster)[1]
    log = broker.state.replicas.partitions["s", 0].log
    assert broker.call(lambda: log.offsets_before(-1, 2, 0)) == [2, 1, 0]  # no further than a consumer may read


def test_offsets_are_committed_as_then(old):
    _, cluster = old
    with Wire(cluster.bootstrap_servers) as wire:
        while wire.ask(p.FindCoordinatorRequest(key="g"), 0).error_code:
            pass
        for version, offset in ((0, 11), (1, 12)):
            row = p.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, commit_timestamp=1_234 if version else -1, committed_metadata="m"
            )
            request = p.OffsetCommitRequest(group_id="g", topics=[p.OffsetCommitRequestTopic(name="t", partitions=[row])])
            assert wire.ask(request, version).topics[0].partitions[0].error_code == 0
            for fetched in (0, 1):
                wanted = p.OffsetFetchRequest(group_id="g", topics=[p.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 5])])
                known, unknown = wire.ask(wanted, fetched).topics[0].partitions
                assert (known.committed_offset, known.metadata, known.error_code) == (offset, "m", 0)
                missing = Code.NONE if fetched else Code.UNKNOWN_TOPIC_OR_PARTITION
                assert (unknown.committed_offset, unknown.error_code) == (-1, missing)
        stored = [decode_stored(OffsetCommitValue, row[4]) for row in rows_in(load(wire, topic="__consumer_offsets").records)]
        assert [each.offset for each in stored] == [11, 12]
        assert stored[0].commit_timestamp > 1_700_000_000_000 and stored[1].commit_timestamp == 1_234  # v1 brings its own


# ---- clients


def python_client(servers, release, codec):
    settings, group = {"api_version": RELEASE[release]}, {} if release == "0.8" else {"group_id": "g"}
    with closing(PythonProducer(bootstrap_servers=servers, compression_type=codec, enable_idempotence=False, **settings)) as producer:
        sent = [producer.send(FLIGHTS, b"v%d" % n, key=b"k").get(60).offset for n in range(10)]
    with closing(kafka_python_consumer(servers, **group, **settings)) as consumer:
        subscribe(consumer, FLIGHTS)
        found = [(each.offset, each.value) for each in drain(consumer, 10)]
        if group:
            consumer.commit()
            assert consumer.committed(consumer.assignment().pop()) == 10
    return sent, found


def confluent_client(servers, release, codec):
    settings = {"api.version.request": False, "broker.version.fallback": {"0.8": "0.8.2", "0.9": "0.9.0"}.get(release, "")}
    settings = settings if settings["broker.version.fallback"] else {}
    sent = send_all(confluent_producer(servers, compression_codec=codec or "none", **settings), FLIGHTS, numbered(10, b"v"), key=b"k")
    with closing(confluent_consumer(servers, group_id="g", **settings)) as consumer:
        if release == "0.8":
            consumer.assign([confluent_kafka.TopicPartition(FLIGHTS, 0, 0)])
        else:
            consumer.subscribe([FLIGHTS])
        found = [(each.offset(), each.value()) for each in take(consumer, 10)]
        if release != "0.8":
            consumer.commit(asynchronous=False)
    return sent, found


@each_row("codec", [None, "gzip"])
@each_row("release", OLD)
@each_row("client", [python_client, confluent_client])
def test_clients_that_still_speak_to_them(client, release, codec):
    with EmbeddedCluster(emulate=release, config=NO_DELAY) as cluster:
        cluster.create_topic(FLIGHTS)
        sent, found = client(cluster.bootstrap_servers, release, codec)
        assert sent == list(range(10))
        assert found == [(n, b"v%d" % n) for n in range(10)]
        with Wire(cluster.bootstrap_servers) as wire:
            assert values_in(load(wire, topic=FLIGHTS).records) == found
            assert {row[0] for row in rows_in(load(wire, topic=FLIGHTS).records)} == {0}
