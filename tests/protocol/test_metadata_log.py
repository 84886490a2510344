"""Records of the metadata log: bytes that Kafka 4.3.1 wrote, round trips, garbage. interop/test_metadata_log_tool.py asks Kafka itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_kit import name_of, sample, versions_of

from kafkacore.errors import CorruptDataError, UnsupportedVersion
from kafkacore.protocol import metadata_log as m
from kafkacore.protocol.metadata_log import MetadataRecord, decode_record, encode_record
from tests.kit.rows import each_row

KINDS = list(MetadataRecord.RECORDS.values())
TOPIC_ID = bytes.fromhex("ebb798f48f754912922c55f6bac7b7e5")
DIRECTORY = bytes.fromhex("f3b3861b783b98bfc45227c75f11d43a")

WRITTEN_BY_KAFKA = [
    ("010c00116d657461646174612e76657273696f6e001e00", m.FeatureLevelRecord(name="metadata.version", feature_level=30)),
    (
        "0104000401146d696e2e696e73796e632e7265706c69636173023100",
        m.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    ),
    ("01140000", m.NoOpRecord()),
    ("01110300000001000000000000001101030101", m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=17, cordoned_log_dirs=[])),
    ("0102000261ebb798f48f754912922c55f6bac7b7e500", m.TopicRecord(name="a", topic_id=TOPIC_ID)),
    (
        "01030200000000ebb798f48f754912922c55f6bac7b7e502000000010200000001010100000001000000000000000002f3b3861b783b98bfc45227c75f11d43a00",
        m.PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0, directories=[DIRECTORY]
        ),
    ),
    ("01170001001212426f6f747374726170207265636f726473", m.BeginTransactionRecord(name="Bootstrap records")),
    ("01180000", m.EndTransactionRecord()),
    (
        "011b000000000199e71313f61c49379dac7f65abdb613e00020b434f4e54524f4c4c45520a3132372e302e302e3170ea000000080e67726f75702e7665727369"
        "6f6e00000001000e6b726166742e76657273696f6e0000000100116d657461646174612e76657273696f6e0007001e000e73686172652e76657273696f6e0000"
        "0001001073747265616d732e76657273696f6e0000000100147472616e73616374696f6e2e76657273696f6e000000020021656c696769626c652e6c65616465"
        "722e7265706c696361732e76657273696f6e000000010000",
        m.RegisterControllerRecord(
            controller_id=1,
            incarnation_id=bytes.fromhex("99e71313f61c49379dac7f65abdb613e"),
            end_points=[m.ControllerEndpoint(name="CONTROLLER", host="127.0.0.1", port=28906)],
            features=[
                m.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in [
                    ("group.version", 0, 1),
                    ("kraft.version", 0, 1),
                    ("metadata.version", 7, 30),
                    ("share.version", 0, 1),
                    ("streams.version", 0, 1),
                    ("transaction.version", 0, 2),
                    ("eligible.leader.replicas.version", 0, 1),
                ]
            ],
        ),
    ),
    ("010900ebb798f48f754912922c55f6bac7b7e500", m.RemoveTopicRecord(topic_id=TOPIC_ID)),
]


@each_row(("data", "record"), WRITTEN_BY_KAFKA, ids=lambda value: type(value).__name__)
def test_bytes_written_by_kafka(data, record):
    assert encode_record(record).hex() == data
    assert decode_record(bytes.fromhex(data)) == record


@each_row("kind", KINDS, ids=name_of)
def test_every_record_in_every_version_is_read_as_it_was_written(kind):
    for version in versions_of(kind):
        assert decode_record(encode_record(kind(), version)) == kind()
        for seed in range(5):
            record = sample(kind, version, seed)
            assert decode_record(encode_record(record, version)) == record
    assert encode_record(kind())[2] == kind.MAX_VERSION


def test_a_kind_of_record_is_found_by_its_number(monkeypatch):
    monkeypatch.setattr(MetadataRecord, "RECORDS", {})

    class Newer(MetadataRecord, api_key=300, versions="1-2"):
        pass

    assert (Newer.API_KEY, Newer.MIN_VERSION, Newer.MAX_VERSION, Newer.FLEXIBLE_VERSION) == (300, 1, 2, 0)
    assert MetadataRecord.RECORDS == {300: Newer}
    assert decode_record(bytes.fromhex("01ac020100")) == Newer() and encode_record(Newer()).hex() == "01ac020200"


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=40))
def test_garbage_is_refused_and_nothing_else_happens(data):
    for value in (data, b"\x01" + data, b"\x01\x03\x02" + data):
        try:
            decode_record(value)
        except (CorruptDataError, UnsupportedVersion):
            pass


@each_row(
    ("error", "value"),
    [
        *((UnsupportedVersion, each) for each in (b"\x02\x14\x00\x00", b"\x01\x63\x00\x00", b"\x01\x14\x05\x00")),
        *((CorruptDataError, each) for each in (b"", b"\x01", b"\x01\x14", b"\x01\x14\x00", b"\x01\x14\x00\x00\x00")),
    ],
)
def test_what_is_newer_cut_or_too_long_is_refused(error, value):
    with pytest.raises(error):
        decode_record(value)
