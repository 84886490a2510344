"""Exceptions of kafka-python and aiokafka, and those of their names here: the same classes, and one for each error of the engine."""

from __future__ import annotations

import importlib
import inspect

import pytest

from kafkacore import errors as engine_errors
from kafkacore.compat.aiokafka import errors as of_aiokafka
from kafkacore.compat.kafka import errors as of_kafka_python
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
