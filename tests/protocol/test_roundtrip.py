"""Every message in every version: what is written is read. test_tables.py holds their fields against Kafka's, test_schema.py the bytes."""

import pytest
from protocol_kit import MESSAGES, name_of, sample, versions_of, whole

from kafkacore import protocol
from kafkacore.errors import CorruptDataError
from kafkacore.protocol import stored
from tests.kit.rows import each_row


def read_back(message, version):
    return type(message).decode(version, whole(message.encode(version)))


@each_row("kind", MESSAGES, ids=name_of)
def test_all_defaults_and_samples(kind):
    for version in versions_of(kind):
        assert read_back(kind(), version) == kind()
        for seed in range(5):
            message = sample(kind, version, seed)
            assert read_back(message, version) == message


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


@each_row("kind", [stored.ConsumerProtocolSubscription, stored.ConsumerProtocolAssignment], ids=name_of)
def test_a_newer_consumer_protocol_is_read_as_the_newest_known(kind):
    message = sample(kind, 3, 1)
    body = stored.encode_stored(message, 3)[2:] + b"what version 9 adds"
    assert stored.decode_stored(kind, b"\0\x09" + body) == message
    with pytest.raises(CorruptDataError, match="19 bytes left over"):
        stored.decode_stored(kind, b"\0\3" + body)


@each_row(
    ("data", "says"),
    [
        ("00", "TransactionLogKey: 2 bytes of version needed, 1 left"),
        ("0000", "TransactionLogKey v0, transactional_id, offset 2"),
        ("0001000161", "TransactionLogKey: version 1, known are 0-0"),
        ("ffff000161", "TransactionLogKey: version -1, known are 0-0"),
    ],
)
def test_a_stored_message_that_cannot_be_read(data, says):
    with pytest.raises(CorruptDataError, match=says):
        stored.decode_stored(stored.TransactionLogKey, bytes.fromhex(data))
