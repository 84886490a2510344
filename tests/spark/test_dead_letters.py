"""Dead letters that their topic does not take as they are, and what else may keep them from it; an embedded broker, no session."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kafkacore import KafkaProducer, errors, protocol
from kafkacore.decode import ddl
from kafkacore.spark import clients, decoded
from kafkacore.spark.offsets import OffsetRange
from kafkacore.spark.options import source_options
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import kept_of
from tests.spark.shared import dead_letters

PRODUCE = 0
MIB = 1 << 20
BAD = b"!" * (MIB - 100)  # a default topic takes it, but not with the headers of a dead letter
OWN = decoded.HEADER


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("t", configs={"max.message.bytes": str(16 * MIB)})
        with KafkaProducer(bootstrap_servers=running.bootstrap_servers, max_request_size=16 * MIB) as producer:
            producer.send("t", BAD, key=b"edge", headers=[("h", b"1")])
            producer.send("t", b'{"a":1}')
            producer.send("t", b"{", key=b"k" * 3000, headers=[("h", b"1"), ("h", b"2")])
            producer.send("t", b"{", key=b"small")
            producer.send("t", b"?" * (9 * MIB), key=b"far")
        yield running


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    for consumers in kept_of(clients).values():
        while consumers:
            consumers.pop().close()
    while kept_of(decoded):
        kept_of(decoded).popitem()[1].close(timeout=0)


def options_of(cluster: EmbeddedCluster, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t", "value.format": "json"}
    return source_options({**given, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=False)


def read(cluster: EmbeddedCluster, topic: str, start: int = 0, end: int = 5, **more: str) -> list[int]:
    options = options_of(cluster, deadLetterTopic=topic, **more)
    return [a for each in clients.read(options, OffsetRange("t", 0, start, end), ddl.parse("a INT", "o")) for a in each["a"].to_pylist()]


def test_a_value_that_its_topic_does_not_take_goes_there_cut(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create_topic("letters")
    with caplog.at_level(logging.WARNING, "kafkacore.spark"):
        assert read(cluster, "letters") == [1]
    first, second, third, last = dead_letters(cluster, "letters", 4)
    assert (first.key, first.value) == (b"edge", BAD[:4096])
    headers = dict(first.headers)
    assert headers["h"] == b"1" and headers[OWN + "cut"] == b"value" and headers[OWN + "value.bytes"] == b"%d" % len(BAD)
    assert headers[OWN + "topic"] == b"t" and headers[OWN + "reason"].startswith(b"JSONDecodeError")
    assert (second.key, second.value) == (b"k" * 3000, b"{") and OWN + "cut" not in dict(second.headers)
    assert (third.key, third.value) == (b"small", b"{")  # what lies beside is as it was
    assert (last.key, dict(last.headers)[OWN + "value.bytes"]) == (b"far", b"%d" % (9 * MIB))
    said = [each.getMessage() for each in caplog.records if "is sent cut" in each.getMessage()]
    assert len(said) == 2 and said[0].startswith(f"t-0, offset 0: a value that cannot be decoded ({len(BAD)} bytes) is too large for topic")
    assert "(2 so far)" in said[1] and "MESSAGE_TOO_LARGE" in said[1]


def test_a_topic_for_large_records_gets_them_whole(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("large", configs={"max.message.bytes": str(16 * MIB)})
    assert read(cluster, "large") == [1]
    found = dead_letters(cluster, "large", 4)
    assert [len(each.value) for each in found] == [len(BAD), 1, 1, 9 * MIB]
    assert not any(OWN + "cut" in dict(each.headers) for each in found)


def test_the_producer_of_dead_letters_has_settings_of_its_own(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("limited", configs={"max.message.bytes": str(16 * MIB)})
    assert read(cluster, "limited", deadLetter__kafka__max__request__size="5000", deadLetter__kafka__compression__type="gzip") == [1]
    found = dead_letters(cluster, "limited", 4)
    assert [len(each.value) for each in found] == [4096, 1, 1, 4096]  # refused by the client, uncompressed


def test_a_key_and_headers_that_are_too_large_themselves_are_cut_too(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("tiny", configs={"max.message.bytes": "2000"})
    assert read(cluster, "tiny") == [1]
    first, second, third, _ = dead_letters(cluster, "tiny", 4)
    assert (first.value, first.key) == (BAD[:256], b"edge")  # 4,096 bytes were too many as well
    headers = dict(second.headers)
    assert (second.key, second.value) == (b"k" * 256, b"{")
    assert headers[OWN + "cut"] == b"value,key,headers" and "h" not in headers
    assert (headers[OWN + "key.bytes"], headers[OWN + "headers.count"], headers[OWN + "value.bytes"]) == (b"3000", b"2", b"1")
    assert OWN + "cut" not in dict(third.headers)


def test_a_topic_that_takes_nothing_is_an_error(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("nothing", configs={"max.message.bytes": "100"})
    with pytest.raises(errors.DeliveryError, match=r"could not be sent to the option deadLetterTopic.*MESSAGE_TOO_LARGE") as caught:
        read(cluster, "nothing")
    assert caught.value.topic == "nothing"


@pytest.mark.parametrize("code", [29, 31, 87])  # TOPIC_AUTHORIZATION_FAILED, CLUSTER_.., INVALID_RECORD
def test_a_refusal_for_good_is_one_error_at_once(cluster: EmbeddedCluster, code: int) -> None:
    topic = f"refused-{code}"
    cluster.create_topic(topic)

    def refuse(request: Any) -> Any:
        [each] = request.topic_data
        parts = [protocol.PartitionProduceResponse(index=part.index, error_code=code) for part in each.partition_data]
        answer = protocol.TopicProduceResponse(name=each.name, topic_id=each.topic_id, partition_responses=parts)
        return protocol.ProduceResponse(responses=[answer])

    cluster.control(PRODUCE, refuse)
    try:
        with pytest.raises(errors.DeliveryError, match=r"could not be sent to the option deadLetterTopic") as caught:
            read(cluster, topic, 3, 4)
    finally:
        cluster.control(PRODUCE, None)
    assert caught.value.topic == topic and isinstance(caught.value.__cause__, errors.for_code(code))
    assert read(cluster, topic, 3, 4) == []  # the next try is not harmed by it
    assert len(dead_letters(cluster, topic, 1)) == 1


def test_a_topic_that_does_not_exist_is_an_error(cluster: EmbeddedCluster) -> None:
    with pytest.raises(errors.DeliveryError, match=r"deadLetterTopic: .*never-was") as caught:
        read(cluster, "never-was", deadLetter__kafka__max__block__ms="300", deadLetter__kafka__allow__auto__create__topics="false")
    assert caught.value.topic == "never-was"


def test_another_cluster_gets_nothing_of_the_credentials(cluster: EmbeddedCluster) -> None:
    secured = {"kafka__security__protocol": "SASL_PLAINTEXT", "kafka__sasl__mechanism": "PLAIN"}
    secured |= {"kafka__sasl__username": "u", "kafka__sasl__password": "hush"}
    same = options_of(cluster, deadLetterTopic="d", **secured, deadLetter__kafka__acks="1").dead_letter_client
    assert same["sasl.password"] == "hush" and same["acks"] == "1" and same["client.id"] == "spark-kafkacore"
    elsewhere = {"deadLetter__kafka__bootstrap__servers": "elsewhere:9092"}
    other = options_of(cluster, deadLetterTopic="d", **secured, **elsewhere).dead_letter_client
    limits = {"max.request.size": str(32 * MIB), "buffer.memory": str(64 * MIB)}
    assert other == {"bootstrap.servers": "elsewhere:9092", **limits}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"deadLetter__kafka__acks": "1"}, r"option deadLetter.kafka.acks has no effect without deadLetterTopic"),
        ({"deadLetterTopic": "d", "deadLetter__kafka__transactional__id": "x"}, r"deadLetter.kafka.transactional.id is not supported"),
        ({"deadLetterTopic": "d", "deadLetter__kafka__max__reqest__size": "1"}, r"did you mean deadLetter.kafka.max.request.size\?"),
        ({"deadLetterTopic": "d", "deadLetter__kafka__linger__ms": "x"}, r"a deadLetter.kafka.\* option is refused: .*linger"),
    ],
)
def test_settings_that_cannot_be(cluster: EmbeddedCluster, given: dict[str, str], says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        options_of(cluster, **given)


def test_the_limit_follows_what_is_fetched(cluster: EmbeddedCluster) -> None:
    found = options_of(cluster, deadLetterTopic="d", kafka__max__partition__fetch__bytes=str(64 * MIB)).dead_letter_client
    assert (found["max.request.size"], found["buffer.memory"]) == (str(65 * MIB), str(130 * MIB))
    assert options_of(cluster).dead_letter_client == {}
