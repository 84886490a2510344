"""Whatever bytes come in, CorruptDataError is all that comes out, and no memory is taken on a length's word."""

import gc
import random
import tracemalloc
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_kit import MESSAGES, name_of, sample, whole

from kafkacore import protocol
from kafkacore.errors import CorruptDataError, UnsupportedVersion, UsageError
from kafkacore.protocol import stored
from tests.kit.rows import each_row


def picked_versions(kind):
    """The first, the last, and the first flexible version."""
    return sorted({kind.MIN_VERSION, kind.MAX_VERSION, max(kind.FLEXIBLE_VERSION or 0, kind.MIN_VERSION)})


def survives(kind, version, data):
    try:
        kind.decode(version, data)
    except CorruptDataError as error:
        assert kind.label(version) in str(error)


@each_row("kind", MESSAGES, ids=name_of)
def test_every_truncation_is_corrupt(kind):
    for version in picked_versions(kind):
        body = whole(sample(kind, version, 3).encode(version))
        for end in range(0, min(len(body), 600), 1 if len(body) < 300 else 3):
            with pytest.raises(CorruptDataError):
                kind.decode(version, body[:end])


@each_row("kind", MESSAGES, ids=name_of)
def test_changed_bytes(kind):
    rng = random.Random(kind.__name__)
    for version in picked_versions(kind):
        body = whole(sample(kind, version, 4).encode(version))
        for _ in range(60):
            data = bytearray(body)
            for _ in range(rng.randint(1, 4)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            survives(kind, version, data)
            survives(kind, version, rng.randbytes(rng.randrange(200)))


@each_row("kind", MESSAGES, ids=name_of)
def test_huge_counts_and_lengths(kind):
    """Every position once overwritten with the largest numbers that the encodings have."""
    for version in picked_versions(kind):
        body = whole(sample(kind, version, 5).encode(version))[:400]
        for at in range(0, len(body), 1 if len(body) < 150 else 5):
            for huge in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"):
                survives(kind, version, body[:at] + huge + body[at + len(huge) :])


def test_a_count_takes_no_memory():
    hostile = b"\0\0\0\0" + b"\x7f\xff\xff\xff" + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptDataError, match=r"Metadata v5 response, brokers, offset 8: count 2147483647 needs at least"):
            protocol.MetadataResponse.decode(5, hostile)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_path_names_the_broken_field():
    partition = protocol.PartitionData(partition_index=0, records=b"x" * 50)
    response = protocol.FetchResponse(
        responses=[protocol.FetchableTopicResponse(topic=str(t), partitions=[partition, partition]) for t in range(4)]
    )
    body = whole(response.encode(12))
    where = r"Fetch v12 response, responses\[3\]\.partitions\[1\]\.records, offset \d+: length 50 goes past"
    with pytest.raises(CorruptDataError, match=where):
        protocol.FetchResponse.decode(12, body[:-10])
    with pytest.raises(CorruptDataError, match=r"Fetch v12 response, offset .*: 3 bytes left over"):
        protocol.FetchResponse.decode(12, body + b"abc")
    bad = body.replace(b"\x022", b"\x02\xff")
    with pytest.raises(CorruptDataError, match=r"responses\[2\]\.topic, offset \d+: string is not valid UTF-8"):
        protocol.FetchResponse.decode(12, bad)


def test_bytes_after_a_request_are_ignored():
    """librdkafka asks for all topics with three bytes too many."""
    request = protocol.MetadataRequest(topics=None)
    frame = whole(protocol.encode_request(request, 13, 7, "rdkafka"))[4:]
    assert protocol.decode_request(frame + b"\x00\x00\x00")[1] == request


def test_null_where_null_is_not_allowed():
    with pytest.raises(CorruptDataError, match=r"Metadata v0 request, topics, .* null"):
        protocol.MetadataRequest.decode(0, b"\xff\xff\xff\xff")
    with pytest.raises(CorruptDataError, match="negative length -2"):
        protocol.MetadataRequest.decode(1, b"\xff\xff\xff\xfe")


STORED = [stored.ConsumerProtocolSubscription, stored.OffsetCommitValue, stored.TransactionLogValue]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(sorted(protocol.APIS)), st.integers(0, 20))
def test_random_bytes(data, api_key, version):
    frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + data
    readers = [lambda: protocol.decode_request(frame), lambda: protocol.decode_request_header(data)]
    readers += [lambda: protocol.decode_response_header(3, 9, data), *(partial(stored.decode_stored, kind, data) for kind in STORED)]
    for read in readers:
        try:
            read()
        except (CorruptDataError, UnsupportedVersion):
            pass


def test_nothing_is_leaked():
    message = sample(protocol.FetchResponse, 12, 7)
    message = message._replace(responses=[sample(protocol.FetchableTopicResponse, 12, seed) for seed in range(6)])
    body = whole(message.encode(12))
    bad = message._replace(session_id="x")

    def everything():
        protocol.FetchResponse.decode(12, body)
        message.encode(12)
        protocol.encode_response(message, 12, 1)
        for end in range(0, len(body), 7):
            try:
                protocol.FetchResponse.decode(12, body[:end])
            except CorruptDataError:
                pass
        for wrong in (lambda: bad.encode(12), lambda: message.encode(3), lambda: protocol.FetchResponse(nothing=1)):
            try:
                wrong()
            except (UsageError, TypeError):
                pass

    everything()
    gc.collect()
    tracemalloc.start()
    try:
        everything()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            everything()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 1_500
    finally:
        tracemalloc.stop()
