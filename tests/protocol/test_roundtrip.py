"""Every message in every version: our encoder against our decoder, and against kafka-python's in both directions."""

from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_kit import (
    API_MESSAGES,
    BETWEEN_BROKERS,
    MESSAGES,
    equal_to_peer,
    name_of,
    peer_class,
    sample,
    struct_strategy,
    to_peer,
    versions_of,
    whole,
)

from kafkacore import protocol
from kafkacore.protocol import stored
from tests.kit.rows import each_row

NOT_IN_KAFKA_PYTHON = {
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
} | BETWEEN_BROKERS
CROSS = [message for message in API_MESSAGES if message.__name__ not in NOT_IN_KAFKA_PYTHON]


def read_back(message, version):
    return type(message).decode(version, whole(message.encode(version)))


def check_cross(kind, version, message):
    """kafka-python reads our bytes, and we read kafka-python's."""
    peer = peer_class(kind)
    if kind is protocol.ApiVersionsResponse:
        message = message._replace(error_code=0)  # with an error kafka-python reads it as version 0, whatever was asked
    equal_to_peer(kind, message, peer.decode(whole(message.encode(version)), version=version), version)
    theirs = to_peer(kind, message, version, peer._struct.fields, lambda **kw: peer(version=version, **kw))
    assert kind.decode(version, bytes(theirs.encode(version=version))) == message


@each_row("kind", MESSAGES, ids=name_of)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read(kind, data):
    version = data.draw(st.sampled_from(versions_of(kind)))
    message = data.draw(struct_strategy(kind, version))
    assert read_back(message, version) == message


@each_row("kind", MESSAGES, ids=name_of)
def test_all_defaults_and_samples(kind):
    for version in versions_of(kind):
        assert read_back(kind(), version) == kind()
        for seed in range(5):
            message = sample(kind, version, seed)
            assert read_back(message, version) == message


@each_row("kind", CROSS, ids=name_of)
def test_kafka_python_understands_and_is_understood(kind):
    for version in versions_of(kind):
        check_cross(kind, version, kind())
        for seed in range(3):
            check_cross(kind, version, sample(kind, version, seed))


@each_row("api", protocol.APIS.values(), ids=lambda api: api.name)
def test_frames(api):
    """Header and body of a request and a response, through the functions that brokers and clients use."""
    for version in range(api.min_version, api.max_version + 1):
        request, response = sample(api.request, version, 1), sample(api.response, version, 1)
        for client_id in (None, "", "clïent"):
            frame = whole(protocol.encode_request(request, version, 77, client_id))
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            header, decoded = protocol.decode_request(frame[4:])
            assert header == protocol.RequestHeader(api.key, version, 77, client_id)
            assert decoded == request
        frame = whole(protocol.encode_response(response, version, -5))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, start = protocol.decode_response_header(api.key, version, frame[4:])
        assert correlation_id == -5
        assert api.response.decode(version, frame[4:], start) == response


def test_stored_messages_carry_their_version():
    for kind in (stored.OffsetCommitValue, stored.GroupMetadataValue, stored.TransactionLogValue, stored.ConsumerProtocolSubscription):
        for version in versions_of(kind):
            message = sample(kind, version, 2)
            data = stored.encode_stored(message, version)
            assert data[:2] == version.to_bytes(2, "big")
            assert stored.decode_stored(kind, data) == message


def test_a_newer_consumer_protocol_is_read_as_the_newest_known():
    message = sample(stored.ConsumerProtocolSubscription, 3, 1)
    data = (9).to_bytes(2, "big") + stored.encode_stored(message, 3)[2:] + b"what version 9 adds"
    assert stored.decode_stored(stored.ConsumerProtocolSubscription, data) == message
