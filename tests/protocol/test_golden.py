"""Frames with their size and header, as kafka-python 3.0.12 wrote them (client id "me"): ours must write the same and read them back.

test_tables.py holds the fields of all bodies, in every version.
"""

import pytest
from protocol_kit import whole

from kafkacore import protocol as p
from kafkacore.errors import CorruptDataError, UnsupportedVersion
from tests.kit.rows import each_row

ID = bytes(range(16))
REQUESTS = [
    (p.ApiVersionsRequest(), 0, 1, "0000000c001200000000000100026d65"),
    (
        p.ApiVersionsRequest(client_software_name="kafkacore", client_software_version="0.1.0"),
        3,
        1,
        "0000001e001200030000000100026d65000a6b61666b61636f726506302e312e3000",
    ),
    (
        p.MetadataRequest(
            topics=[p.MetadataRequestTopic(name="flights"), p.MetadataRequestTopic(name=None, topic_id=ID)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        12,
        2,
        "0000003c0003000c0000000200026d6500030000000000000000000000000000000008666c696768747300000102030405060708090a0b0c0d0e0f0000000100",
    ),
]


def api_versions_response(version):
    keys = [p.ApiVersion(api_key=0, max_version=13), p.ApiVersion(api_key=18, max_version=4)]
    if version < 3:
        return p.ApiVersionsResponse(api_keys=keys)
    return p.ApiVersionsResponse(
        api_keys=keys,
        throttle_time_ms=7,
        supported_features=[p.SupportedFeatureKey(name="transaction.version", max_version=2)],
        finalized_features_epoch=5,
        finalized_features=[p.FinalizedFeatureKey(name="transaction.version", max_version_level=2)],
    )


PRODUCED = p.PartitionProduceResponse(
    index=5,
    error_code=6,
    base_offset=-1,
    record_errors=[p.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="bad")],
    error_message="moved",
    current_leader=p.LeaderIdAndEpoch(leader_id=2, leader_epoch=8),
)
RESPONSES = [
    (api_versions_response(0), 0, 9, "000000160000000900000000000200000000000d001200000004"),
    (
        api_versions_response(3),
        3,
        9,
        "0000005c0000000900000300000000000d00001200000004000000000703001a02147472616e73616374696f6e2e76657273696f6e000000020001080000"
        "000000000005021a02147472616e73616374696f6e2e76657273696f6e0002000000",
    ),
    (
        p.ProduceResponse(
            responses=[p.TopicProduceResponse(name="flights", partition_responses=[PRODUCED])],
            throttle_time_ms=1,
            node_endpoints=[p.NodeEndpoint(node_id=2, host="h2", port=9093)],
        ),
        10,
        4,
        "0000005f00000004000208666c696768747302000000050006ffffffffffffffffffffffffffffffffffffffffffffffff"
        "02000000010462616400066d6f766564010009000000020000000800000000000101000e0200000002036832000023850000",
    ),
]


def row_name(value):
    return type(value).__name__ if isinstance(value, p.Struct) else str(value) if isinstance(value, int) else ""


@each_row(("request_", "version", "correlation_id", "frame"), REQUESTS, ids=row_name)
def test_request_frames(request_, version, correlation_id, frame):
    frame = bytes.fromhex(frame)
    assert whole(p.encode_request(request_, version, correlation_id, "me")) == frame
    header, decoded = p.decode_request(frame[4:])
    assert header == p.RequestHeader(request_.API_KEY, version, correlation_id, "me")
    assert decoded == request_


@each_row(("response", "version", "correlation_id", "frame"), RESPONSES, ids=row_name)
def test_response_frames(response, version, correlation_id, frame):
    frame = bytes.fromhex(frame)
    assert whole(p.encode_response(response, version, correlation_id)) == frame
    found, start = p.decode_response_header(response.API_KEY, version, frame[4:])
    assert found == correlation_id
    assert type(response).decode(version, frame[4:], start) == response


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


def test_a_broken_name_of_a_client_says_how_much_is_left():
    with pytest.raises(CorruptDataError, match="client_id, offset 10: length 5 goes past the end, 3 bytes left"):
        p.decode_request_header(bytes.fromhex("00120000000000010005616263"))


def test_broken_response_headers():
    assert p.decode_response_header(3, 0, b"\xff\xff\xff\xfe") == (-2, 4)
    for header, version in ((b"\0\0\0", 0), (b"\0\0\0\1", 9), (b"\0\0\0\1\1", 9)):
        with pytest.raises(CorruptDataError):
            p.decode_response_header(3, version, header)
