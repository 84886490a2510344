"""Exceptions of kafka-python and aiokafka, and those of their names here: the same classes, and one for each error of the engine."""

from __future__ import annotations

import importlib
import inspect

import pytest

from kafkacore import errors as engine_errors
from kafkacore.compat.aiokafka import errors as of_aiokafka
from kafkacore.compat.kafka import errors as of_kafka_python
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

FACES = {"kafka": of_kafka_python, "aiokafka": of_aiokafka}


@each_row("package", FACES)
def test_every_exception_is_there(package: str) -> None:
    theirs, ours = importlib.import_module(f"{package}.errors"), FACES[package]
    names = [name for name, each in vars(theirs).items() if inspect.isclass(each) and issubclass(each, Exception)]
    assert len(names) > 90
    for name in names:
        wanted, found = getattr(theirs, name), getattr(ours, name)
        assert [each.__name__ for each in wanted.__mro__] == [each.__name__ for each in found.__mro__], name
        for attribute in ("errno", "message", "retriable", "invalid_metadata"):
            if attribute != "message" or package == "aiokafka":
                assert getattr(wanted, attribute, None) == getattr(found, attribute, None), (name, attribute)
        if getattr(wanted, "errno", None) is not None:
            assert (found.message, ours.for_code(found.errno).__name__) == (wanted.message, theirs.for_code(wanted.errno).__name__)
            assert found.description


def test_codes_that_nobody_knows_keep_their_number() -> None:
    found = of_kafka_python.for_code(999)
    assert (found.__name__, found.errno, issubclass(found, of_kafka_python.UnknownError)) == ("UnrecognizedBrokerError", 999, True)
    assert str(found("x")) == "[Error 999] UnrecognizedBrokerError: x"
    assert of_aiokafka.for_code(999) is of_aiokafka.UnknownError
    assert issubclass(of_aiokafka.coded(999), of_aiokafka.UnknownError)
    assert str(of_aiokafka.coded(999)("x")) == "[Error 999] UnknownError: x"


@each_row("package", FACES)
def test_a_class_says_what_its_code_means(package: str) -> None:
    face = FACES[package]
    made = [type("Own", (face.BrokerResponseError,), {"errno": code}) for code in (0, 3, 6)]
    assert [each.message for each in made] == ["NO_ERROR", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_FOR_PARTITION"]
    assert made[0].description == "no error"
    assert made[1].description == (engine_errors.UnknownTopicOrPartition.__doc__ or "").splitlines()[0] != ""
    assert type("Own", (face.BrokerResponseError,), {"errno": 3, "message": "own"}).message == "own"
    assert "not a member" in str(face.CommitFailedError())
    assert str(face.CommitFailedError("why")) == "CommitFailedError: why"
    assert str(face.KafkaError()) == "KafkaError"
    assert [type(face.of(each)) for each in (KeyError(), engine_errors.TransportError("x", code=3))] == [KeyError, face.KafkaError]
    cause = LookupError()
    failed = engine_errors.SerializationError("x")
    failed.__cause__ = cause
    assert face.of(failed) is cause


def test_where_a_log_was_cut_and_which_offset_is_out_of_range() -> None:
    for partition, shown in ((2, 2), (None, 0)):
        at = TopicPartition("t", shown)
        cut = of_kafka_python.of(engine_errors.LogTruncationError("cut", topic="t", partition=partition))
        assert cut.divergent_offsets == {at: None}  # type: ignore[attr-defined]
        assert str(cut).startswith("LogTruncationError: cut")
        beyond = of_aiokafka.of(engine_errors.OffsetOutOfRange("beyond", topic="t", partition=partition, offset=7))
        assert beyond.args == ({at: 7},)
    assert "truncated" in str(of_kafka_python.LogTruncationError({}))


def test_errors_of_kafka_python_are_equal_by_class_and_words() -> None:
    first, same, other = (of_kafka_python.KafkaTimeoutError(text) for text in ("a", "a", "b"))
    assert first == same and hash(first) == hash(same)
    assert first != other and first != of_kafka_python.KafkaError("a") and first != "a"


@each_row(
    ("engine", "kafka_python", "aiokafka"),
    [
        ("RequestTimedOut", "KafkaTimeoutError", "KafkaTimeoutError"),
        ("KafkaTimeoutError", "KafkaTimeoutError", "KafkaTimeoutError"),
        ("BufferFullError", "KafkaTimeoutError", "KafkaTimeoutError"),
        ("CommitFailed", "CommitFailedError", "CommitFailedError"),
        ("MaxPollExceeded", "CommitFailedError", "CommitFailedError"),
        ("DecompressedTooLarge", "UnsupportedCodecError", "RecordTooLargeError"),
        ("TransactionAborted", "TransactionAbortedError", None),
        ("SslAuthenticationFailed", "KafkaConnectionError", None),
        ("SaslAuthentication", "SaslAuthenticationFailedError", "AuthenticationFailedError"),
        ("CorruptDataError", "KafkaProtocolError", "CorruptRecordException"),
        ("ConfigError", "KafkaConfigurationError", "KafkaConfigurationError"),
        ("ClosedError", "IllegalStateError", "IllegalStateError"),
        ("UsageError", "IllegalArgumentError", "IllegalArgumentError"),
        ("DisconnectError", "KafkaConnectionError", "KafkaConnectionError"),
        ("NoOffsetForPartition", "NoOffsetForPartitionError", "NoOffsetForPartitionError"),
        ("LogTruncationError", "LogTruncationError", None),
        ("OffsetOutOfRange", "OffsetOutOfRangeError", "OffsetOutOfRangeError"),
        ("RecordTooLarge", "MessageSizeTooLargeError", "MessageSizeTooLargeError"),
        ("InvalidProducerEpoch", "ProducerFencedError", "ProducerFenced"),
        ("ProducerFenced", None, "ProducerFenced"),
        ("RebalanceInProgress", "RebalanceInProgressError", "RebalanceInProgressError"),
        ("CoordinatorNotAvailable", None, "GroupCoordinatorNotAvailableError"),
    ],
)
def test_an_error_of_the_engine_becomes_the_rivals(engine: str, kafka_python: str | None, aiokafka: str | None) -> None:
    for face, name in ((of_kafka_python, kafka_python), (of_aiokafka, aiokafka)):
        if name is not None:
            assert type(face.of(getattr(engine_errors, engine)("what happened"))).__name__ == name


@pytest.mark.parametrize("package", FACES)
def test_every_error_of_the_engine_has_a_counterpart(package: str) -> None:
    face = FACES[package]
    kinds = [each for each in vars(engine_errors).values() if inspect.isclass(each) and issubclass(each, engine_errors.KafkaError)]
    for kind in kinds:
        if package == "kafka" and issubclass(kind, engine_errors.DeliveryError):
            continue
        error = kind("what happened", topic="t")
        found = face.of(error)
        assert isinstance(found, face.KafkaError)
        assert found.__cause__ is error
        assert "what happened" in str(found) or (package == "aiokafka" and isinstance(found, of_aiokafka.OffsetOutOfRangeError))
