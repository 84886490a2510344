"""Requests and responses of Kafka 0.8 to 0.10, laid out by hand as "A Guide To The Kafka Protocol" has them: [..] is a counted array.

ProduceRequest  => RequiredAcks i16, Timeout i32, [TopicName [Partition i32, MessageSetSize i32, MessageSet]]
MessageSet      => Offset i64, MessageSize i32, Crc u32, Magic i8, Attributes i8, Key bytes, Value bytes; one after the other
"""

import struct
import zlib

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kafka.record.memory_records import MemoryRecords

from kafkacore import protocol as p
from kafkacore.errors import CorruptDataError, UsageError
from kafkacore.records import read_batches
from tests.kit.rows import each_row


def i8(value):
    return struct.pack(">b", value)


def i16(value):
    return struct.pack(">h", value)


def i32(value):
    return struct.pack(">i", value)


def i64(value):
    return struct.pack(">q", value)


def text(value):
    return i16(-1) if value is None else i16(len(value)) + value.encode()


def sized(value):
    return i32(-1) if value is None else i32(len(value)) + value


def array(*items):
    return i32(len(items)) + b"".join(items)


def message(offset, key, value, magic=0, attributes=0, timestamp_ms=None):
    body = i8(magic) + i8(attributes) + (b"" if timestamp_ms is None else i64(timestamp_ms)) + sized(key) + sized(value)
    checked = struct.pack(">I", zlib.crc32(body)) + body
    return i64(offset) + i32(len(checked)) + checked


SET_0 = message(0, None, b"first") + message(1, b"k", b"second") + message(2, b"k", None)
SET_1 = message(0, b"k", b"stamped", magic=1, timestamp_ms=1_500_000_000_000)


def produce(version):
    records = SET_0 if version < 2 else SET_1
    topic = p.TopicProduceData(name="flights", partition_data=[p.PartitionProduceData(index=5, records=records)])
    body = i16(1) + i32(1_500) + array(text("flights") + array(i32(5) + sized(records)))
    return p.ProduceRequest(acks=1, timeout_ms=1_500, topic_data=[topic]), version, body


def produced(version):
    partition = p.PartitionProduceResponse(index=5, error_code=6, base_offset=77, log_append_time_ms=1_234 if version >= 2 else -1)
    body = array(text("flights") + array(i32(5) + i16(6) + i64(77) + (i64(1_234) if version >= 2 else b"")))
    throttle = i32(9) if version >= 1 else b""
    response = p.ProduceResponse(
        responses=[p.TopicProduceResponse(name="flights", partition_responses=[partition])], throttle_time_ms=9 if version else 0
    )
    return response, version, body + throttle


def fetch(version):
    partition = p.FetchPartition(partition=5, fetch_offset=1_234, partition_max_bytes=4_096)
    request = p.FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=65_536 if version >= 3 else 2_147_483_647,
        topics=[p.FetchTopic(topic="flights", partitions=[partition])],
    )
    most = i32(65_536) if version >= 3 else b""
    return request, version, i32(-1) + i32(500) + i32(1) + most + array(text("flights") + array(i32(5) + i64(1_234) + i32(4_096)))


def fetched(version):
    records = SET_0 if version < 2 else SET_1
    partition = p.PartitionData(partition_index=5, error_code=0, high_watermark=3, records=records)
    response = p.FetchResponse(
        responses=[p.FetchableTopicResponse(topic="flights", partitions=[partition])], throttle_time_ms=9 if version else 0
    )
    throttle = i32(9) if version >= 1 else b""
    return response, version, throttle + array(text("flights") + array(i32(5) + i16(0) + i64(3) + sized(records)))


LIST_OFFSETS = (
    p.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            p.ListOffsetsTopic(name="flights", partitions=[p.ListOffsetsPartition(partition_index=5, timestamp=-1, max_num_offsets=3)])
        ],
    ),
    0,
    i32(-1) + array(text("flights") + array(i32(5) + i64(-1) + i32(3))),
)
LISTED = (
    p.ListOffsetsResponse(
        topics=[
            p.ListOffsetsTopicResponse(
                name="flights", partitions=[p.ListOffsetsPartitionResponse(partition_index=5, old_style_offsets=[90, 40, 0])]
            )
        ]
    ),
    0,
    array(text("flights") + array(i32(5) + i16(0) + array(i64(90), i64(40), i64(0)))),
)
METADATA = p.MetadataRequest(topics=[p.MetadataRequestTopic(name="flights")]), 0, array(text("flights"))
DESCRIBED = (
    p.MetadataResponse(
        brokers=[p.MetadataResponseBroker(node_id=1, host="h", port=9092)],
        topics=[
            p.MetadataResponseTopic(
                name="flights",
                partitions=[p.MetadataResponsePartition(error_code=5, leader_id=-1, replica_nodes=[1, 2], isr_nodes=[1])],
            )
        ],
    ),
    0,
    array(i32(1) + text("h") + i32(9092))
    + array(i16(0) + text("flights") + array(i16(5) + i32(0) + i32(-1) + array(i32(1), i32(2)) + array(i32(1)))),
)


def commit(version):
    partition = p.OffsetCommitRequestPartition(
        partition_index=5, committed_offset=42, commit_timestamp=1_234 if version == 1 else -1, committed_metadata="here"
    )
    member = {"generation_id_or_member_epoch": 7, "member_id": "m"} if version else {}
    request = p.OffsetCommitRequest(group_id="g", topics=[p.OffsetCommitRequestTopic(name="flights", partitions=[partition])], **member)
    head = text("g") + (i32(7) + text("m") if version else b"")
    stamp = i64(1_234) if version == 1 else b""
    return request, version, head + array(text("flights") + array(i32(5) + i64(42) + stamp + text("here")))


COMMITTED = (
    p.OffsetCommitResponse(
        topics=[p.OffsetCommitResponseTopic(name="flights", partitions=[p.OffsetCommitResponsePartition(partition_index=5, error_code=16)])]
    ),
    0,
    array(text("flights") + array(i32(5) + i16(16))),
)
FETCH_COMMITTED = (
    p.OffsetFetchRequest(group_id="g", topics=[p.OffsetFetchRequestTopic(name="flights", partition_indexes=[5, 6])]),
    0,
    text("g") + array(text("flights") + array(i32(5), i32(6))),
)
FETCHED_COMMITTED = (
    p.OffsetFetchResponse(
        topics=[
            p.OffsetFetchResponseTopic(
                name="flights",
                partitions=[p.OffsetFetchResponsePartition(partition_index=5, committed_offset=42, metadata="here", error_code=0)],
            )
        ]
    ),
    0,
    array(text("flights") + array(i32(5) + i64(42) + text("here") + i16(0))),
)
FIND = p.FindCoordinatorRequest(key="g"), 0, text("g")
FOUND = p.FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1), 0, i16(15) + i32(-1) + text("") + i32(-1)

MESSAGES = [
    *(make(version) for make, last in ((produce, 2), (produced, 2), (fetch, 3), (fetched, 3), (commit, 1)) for version in range(last + 1)),
    *(LIST_OFFSETS, LISTED, METADATA, DESCRIBED, COMMITTED, FETCH_COMMITTED, FETCHED_COMMITTED, FIND, FOUND),
]


@each_row(("of", "version", "body"), MESSAGES, ids=lambda of: of.label(0) if isinstance(of, p.Struct) else None)
def test_the_bytes_of_the_guide(of, version, body):
    assert b"".join(bytes(part) for part in of.encode(version)) == body
    assert type(of).decode(version, body) == of
    for end in range(len(body)):
        with pytest.raises(CorruptDataError):
            type(of).decode(version, body[:end])


def test_a_message_set_within_a_request_is_read_by_all():
    for records in (SET_0, SET_1):
        request, version, body = produce(0 if records is SET_0 else 2)
        sent = type(request).decode(version, body).topic_data[0].partition_data[0].records
        ours = [(each.offset, each.key, each.value, each.timestamp_ms) for batch in read_batches(sent) for each in batch.records()]
        assert len(ours) == (3 if records is SET_0 else 1)
        for reader in (MemoryRecords(bytes(sent)), AioMemoryRecords(bytes(sent))):
            theirs = []
            while reader.has_next():
                batch = reader.next_batch()
                assert batch.validate_crc()
                theirs += [(each.offset, each.key, each.value, -1 if each.timestamp is None else each.timestamp) for each in batch]
            assert theirs == ours


@each_row(
    ("request_", "version", "field"),
    [
        (p.ProduceRequest(transactional_id="tx"), 2, "transactional_id"),
        (p.ListOffsetsRequest(isolation_level=1), 1, "isolation_level"),
        (LIST_OFFSETS[0], 1, "max_num_offsets"),
        (commit(1)[0], 2, "commit_timestamp"),
    ],
)
def test_what_a_version_cannot_say_is_refused(request_, version, field):
    with pytest.raises(UsageError, match=field):
        request_.encode(version)
