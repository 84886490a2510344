"""Bytes written by kafka-python 3.0.12 and aiokafka 0.14, pinned: ours must write the same and read them back.

Frames come with their size and header (client id "me"); aiokafka's are bodies.
"""

import pytest

from kafkacore import protocol as p
from kafkacore.errors import CorruptDataError, UnsupportedVersion
from tests.kit.rows import each_row

ID = bytes(range(16))


def whole(parts):
    return b"".join(bytes(part) for part in parts)


def metadata_request(version):
    topics = [p.MetadataRequestTopic(name="flights")]
    if version >= 10:
        topics.append(p.MetadataRequestTopic(name=None, topic_id=ID))
    return p.MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4, include_topic_authorized_operations=version >= 8)


def produce_request(version):
    partitions = [p.PartitionProduceData(index=5, records=b"BATCH-BYTES"), p.PartitionProduceData(index=6, records=None)]
    where = {"topic_id": ID} if version >= 13 else {"name": "flights"}
    topic = p.TopicProduceData(partition_data=partitions, **where)
    return p.ProduceRequest(transactional_id="tx" if version >= 3 else None, acks=-1, timeout_ms=30000, topic_data=[topic])


REQUESTS = [
    (p.ApiVersionsRequest(), 0, 1, "0000000c001200000000000100026d65"),
    (
        p.ApiVersionsRequest(client_software_name="kafkacore", client_software_version="0.1.0"),
        3,
        1,
        "0000001e001200030000000100026d65000a6b61666b61636f726506302e312e3000",
    ),
    (p.MetadataRequest(topics=None), 1, 2, "00000010000300010000000200026d65ffffffff"),
    (metadata_request(0), 0, 2, "00000019000300000000000200026d65000000010007666c6967687473"),
    (metadata_request(5), 5, 2, "0000001a000300050000000200026d65000000010007666c696768747300"),
    (metadata_request(9), 9, 2, "0000001b000300090000000200026d65000208666c69676874730000000100"),
    (
        metadata_request(12),
        12,
        2,
        "0000003c0003000c0000000200026d6500030000000000000000000000000000000008666c696768747300000102030405060708090a0b0c0d0e0f0000000100",
    ),
    (
        produce_request(0),
        0,
        4,
        "0000003e000000000000000400026d65ffff00007530000000010007666c696768747300000002000000050000000b42415443482d4259544553"
        "00000006ffffffff",
    ),
    (
        produce_request(3),
        3,
        4,
        "00000042000000030000000400026d6500027478ffff00007530000000010007666c696768747300000002000000050000000b"
        "42415443482d425954455300000006ffffffff",
    ),
    (
        produce_request(9),
        9,
        4,
        "00000039000000090000000400026d6500037478ffff000075300208666c696768747303000000050c42415443482d4259544553000000000600000000",
    ),
    (
        produce_request(13),
        13,
        4,
        "000000410000000d0000000400026d6500037478ffff0000753002000102030405060708090a0b0c0d0e0f03000000050c"
        "42415443482d4259544553000000000600000000",
    ),
]


def api_versions_response(version):
    keys = [p.ApiVersion(api_key=0, max_version=13), p.ApiVersion(api_key=18, max_version=4)]
    if version < 3:
        return p.ApiVersionsResponse(api_keys=keys, throttle_time_ms=7 if version else 0)
    return p.ApiVersionsResponse(
        api_keys=keys,
        throttle_time_ms=7,
        supported_features=[p.SupportedFeatureKey(name="transaction.version", max_version=2)],
        finalized_features_epoch=5,
        finalized_features=[p.FinalizedFeatureKey(name="transaction.version", max_version_level=2)],
    )


def metadata_response(version):
    partition = p.MetadataResponsePartition(
        partition_index=3,
        leader_id=1,
        leader_epoch=4 if version >= 7 else -1,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[2] if version >= 5 else [],
    )
    return p.MetadataResponse(
        brokers=[p.MetadataResponseBroker(node_id=1, host="localhost", port=9092, rack="r1" if version else None)],
        cluster_id="lkc" if version >= 2 else None,
        controller_id=1 if version else -1,
        topics=[p.MetadataResponseTopic(name="flights", topic_id=ID if version >= 10 else bytes(16), partitions=[partition])],
    )


def produce_response(version):
    partition = p.PartitionProduceResponse(
        index=5,
        error_code=6,
        base_offset=-1,
        record_errors=[p.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="bad")] if version >= 8 else [],
        error_message="moved" if version >= 8 else None,
        current_leader=p.LeaderIdAndEpoch(leader_id=2, leader_epoch=8) if version >= 10 else p.LeaderIdAndEpoch(),
    )
    return p.ProduceResponse(
        responses=[p.TopicProduceResponse(name="flights", partition_responses=[partition])],
        throttle_time_ms=1 if version else 0,
        node_endpoints=[p.NodeEndpoint(node_id=2, host="h2", port=9093)] if version >= 10 else [],
    )


RESPONSES = [
    (api_versions_response(0), 0, 9, "000000160000000900000000000200000000000d001200000004"),
    (api_versions_response(2), 2, 9, "0000001a0000000900000000000200000000000d00120000000400000007"),
    (
        api_versions_response(3),
        3,
        9,
        "0000005c0000000900000300000000000d00001200000004000000000703001a02147472616e73616374696f6e2e76657273696f6e000000020001080000"
        "000000000005021a02147472616e73616374696f6e2e76657273696f6e0002000000",
    ),
    (
        metadata_response(0),
        0,
        3,
        "0000004c00000003000000010000000100096c6f63616c686f7374000023840000000100000007666c69676874730000000100000000000300000001"
        "0000000200000001000000020000000100000001",
    ),
    (
        metadata_response(5),
        5,
        3,
        "000000660000000300000000000000010000000100096c6f63616c686f7374000023840002723100036c6b63000000010000000100000007666c6967687473"
        "00000000010000000000030000000100000002000000010000000200000001000000010000000100000002",
    ),
    (
        metadata_response(9),
        9,
        3,
        "0000006100000003000000000002000000010a6c6f63616c686f73740000238403723100046c6b630000000102000008666c696768747300020000"
        "000000030000000100000004030000000100000002020000000102000000020080000000008000000000",
    ),
    (
        metadata_response(13),
        13,
        3,
        "0000006f00000003000000000002000000010a6c6f63616c686f73740000238403723100046c6b630000000102000008666c6967687473"
        "000102030405060708090a0b0c0d0e0f0002000000000003000000010000000403000000010000000202000000010200000002008000000000000000",
    ),
    (produce_response(0), 0, 4, "0000002300000004000000010007666c696768747300000001000000050006ffffffffffffffff"),
    (
        produce_response(8),
        8,
        4,
        "0000004b00000004000000010007666c696768747300000001000000050006ffffffffffffffffffffffffffffffffffffffffffffffff"
        "0000000100000001000362616400056d6f76656400000001",
    ),
    (
        produce_response(10),
        10,
        4,
        "0000005f00000004000208666c696768747302000000050006ffffffffffffffffffffffffffffffffffffffffffffffff"
        "02000000010462616400066d6f766564010009000000020000000800000000000101000e0200000002036832000023850000",
    ),
]

BODIES = [
    (
        p.ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=30000,
            topic_data=[p.TopicProduceData(name="flights", partition_data=[p.PartitionProduceData(index=5, records=b"BATCH-BYTES")])],
        ),
        7,
        "00027478ffff00007530000000010007666c696768747300000001000000050000000b42415443482d4259544553",
    ),
    (p.MetadataRequest(topics=[p.MetadataRequestTopic(name="flights")]), 5, "000000010007666c696768747301"),
    (
        p.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=52428800,
            isolation_level=1,
            topics=[
                p.FetchTopic(
                    topic="flights",
                    partitions=[p.FetchPartition(partition=5, current_leader_epoch=4, fetch_offset=1234, partition_max_bytes=1048576)],
                )
            ],
            rack_id="r1",
        ),
        11,
        "ffffffff000001f400000001032000000100000000ffffffff000000010007666c696768747300000001000000050000000400000000000004d2"
        "ffffffffffffffff001000000000000000027231",
    ),
    (
        p.FetchResponse(
            session_id=77,
            responses=[
                p.FetchableTopicResponse(
                    topic="flights",
                    partitions=[
                        p.PartitionData(
                            partition_index=5,
                            high_watermark=100,
                            last_stable_offset=99,
                            log_start_offset=0,
                            aborted_transactions=[p.AbortedTransaction(producer_id=4000, first_offset=12)],
                            records=b"BATCH-BYTES",
                        )
                    ],
                )
            ],
        ),
        11,
        "0000000000000000004d000000010007666c6967687473000000010000000500000000000000000064000000000000006300000000000000000000"
        "00010000000000000fa0000000000000000cffffffff0000000b42415443482d4259544553",
    ),
]


def name(value):
    return type(value).__name__ if isinstance(value, p.Struct) else str(value) if isinstance(value, int) else ""


@each_row(("request_", "version", "correlation_id", "frame"), REQUESTS, ids=name)
def test_request_frames(request_, version, correlation_id, frame):
    frame = bytes.fromhex(frame)
    assert whole(p.encode_request(request_, version, correlation_id, "me")) == frame
    header, decoded = p.decode_request(frame[4:])
    assert header == p.RequestHeader(request_.API_KEY, version, correlation_id, "me")
    assert decoded == request_


@each_row(("response", "version", "correlation_id", "frame"), RESPONSES, ids=name)
def test_response_frames(response, version, correlation_id, frame):
    frame = bytes.fromhex(frame)
    assert whole(p.encode_response(response, version, correlation_id)) == frame
    found, start = p.decode_response_header(response.API_KEY, version, frame[4:])
    assert found == correlation_id
    assert type(response).decode(version, frame[4:], start) == response


@each_row(("message", "version", "body"), BODIES, ids=name)
def test_bodies_of_aiokafka(message, version, body):
    body = bytes.fromhex(body)
    assert whole(message.encode(version)) == body
    assert type(message).decode(version, body) == message


def test_an_api_versions_request_of_the_future_has_a_readable_header():
    """A broker must answer it in version 0 (KIP-511), so it needs the correlation id."""
    frame = bytes.fromhex("001200630000000100026d65" + "00" + "ffffffff")
    header, start = p.decode_request_header(frame)
    assert header == p.RequestHeader(18, 99, 1, "me")
    assert start == 13
    with pytest.raises(UnsupportedVersion, match="ApiVersions v99"):
        p.decode_request(frame)


def test_an_unknown_api():
    header, _ = p.decode_request_header(bytes.fromhex("7fff0000000000010000"))
    assert header == p.RequestHeader(32767, 0, 1, "")
    with pytest.raises(UnsupportedVersion, match="API 32767 v0"):
        p.decode_request(bytes.fromhex("7fff0000000000010000"))


@each_row(
    "header", ["", "00120000", "00120000000000010002", "0012000000000001fffe", "001200000000000100026dff", "001200030000000100026d6501"]
)
def test_broken_request_headers(header):
    with pytest.raises(CorruptDataError):
        p.decode_request_header(bytes.fromhex(header))


def test_broken_response_headers():
    for header, version in ((b"\0\0\0", 0), (b"\0\0\0\1", 9), (b"\0\0\0\1\1", 9)):
        with pytest.raises(CorruptDataError):
            p.decode_response_header(3, version, header)
