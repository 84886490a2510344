"""Produce requests of Kafka 0.8 to 0.10, laid out by hand as "A Guide To The Kafka Protocol" has them: [..] is a counted array. What else
there was then, test_roundtrip.py holds against kafka-python.

ProduceRequest  => RequiredAcks i16, Timeout i32, [TopicName [Partition i32, MessageSetSize i32, MessageSet]]
MessageSet      => Offset i64, MessageSize i32, Crc u32, Magic i8, Attributes i8, Key bytes, Value bytes; one after the other
"""

import struct
import zlib

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kafka.record.memory_records import MemoryRecords

from kafkacore import protocol as p
from kafkacore.errors import UsageError
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
    return i16(len(value)) + value.encode()


def sized(value):
    return i32(-1) if value is None else i32(len(value)) + value


def array(*items):
    return i32(len(items)) + b"".join(items)


def old_message(offset, key, value, magic=0, attributes=0, timestamp_ms=None):
    body = i8(magic) + i8(attributes) + (b"" if timestamp_ms is None else i64(timestamp_ms)) + sized(key) + sized(value)
    checked = struct.pack(">I", zlib.crc32(body)) + body
    return i64(offset) + i32(len(checked)) + checked


SET_0 = old_message(0, None, b"first") + old_message(1, b"k", b"second") + old_message(2, b"k", None)
SET_1 = old_message(0, b"k", b"stamped", magic=1, timestamp_ms=1_500_000_000_000)


def produce_of(version):
    records = SET_0 if version < 2 else SET_1
    topic = p.TopicProduceData(name="flights", partition_data=[p.PartitionProduceData(index=5, records=records)])
    body = i16(1) + i32(1_500) + array(text("flights") + array(i32(5) + sized(records)))
    return p.ProduceRequest(acks=1, timeout_ms=1_500, topic_data=[topic]), version, body


@each_row("version", range(3))
def test_the_bytes_of_the_guide(version):
    of, _, body = produce_of(version)
    assert b"".join(bytes(part) for part in of.encode(version)) == body
    assert type(of).decode(version, body) == of


def test_a_message_set_within_a_request_is_read_by_all():
    for records in (SET_0, SET_1):
        request, version, body = produce_of(0 if records is SET_0 else 2)
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
        (p.ListOffsetsRequest(topics=[p.ListOffsetsTopic(partitions=[p.ListOffsetsPartition(max_num_offsets=3)])]), 1, "max_num_offsets"),
        (
            p.OffsetCommitRequest(topics=[p.OffsetCommitRequestTopic(partitions=[p.OffsetCommitRequestPartition(commit_timestamp=1_234)])]),
            2,
            "commit_timestamp",
        ),
    ],
)
def test_what_a_version_cannot_say_is_refused(request_, version, field):
    with pytest.raises(UsageError, match=field):
        request_.encode(version)
