"""KeyedMessage in its three forms, and the partitioner of its day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.legacy import KeyedMessage, default_partitioner, java_hash
from tests.kit.rows import each_row


def parts(message: KeyedMessage) -> tuple[object, ...]:
    return message.topic, message.key, message.part_key, message.message


def test_a_message_without_key():
    message = KeyedMessage("t", b"m")
    assert parts(message) == ("t", None, None, b"m") == parts(KeyedMessage("t", message=b"m"))
    assert (message.partition_key, message.has_key) == (None, False)


def test_with_a_key_the_partition_key_is_the_key():
    message = KeyedMessage("t", "key", b"m")
    assert parts(message) == ("t", "key", "key", b"m") == parts(KeyedMessage("t", key="key", message=b"m"))
    assert (message.partition_key, message.has_key) == ("key", True)


def test_a_partition_key_comes_before_the_key():
    message = KeyedMessage("t", "key", 7, b"m")
    assert parts(message) == ("t", "key", 7, b"m") == parts(KeyedMessage(topic="t", key="key", part_key=7, message=b"m"))
    assert message.partition_key == 7


def test_a_partition_key_of_none_leaves_it_to_the_key():
    assert KeyedMessage("t", "key", None, b"m").partition_key == "key"
    without_key = KeyedMessage("t", None, "p", b"m")
    assert (without_key.partition_key, without_key.has_key) == ("p", False)


def test_falsy_keys_are_keys():
    assert KeyedMessage("t", b"", 0, b"m").partition_key == 0
    assert KeyedMessage("t", b"", b"m").has_key


def test_a_topic_of_none_is_refused():
    with pytest.raises(errors.UsageError, match="topic of a KeyedMessage must not be None"):
        KeyedMessage(None, b"m")  # type: ignore[arg-type]


@each_row(
    ("values", "named"),
    [((), {}), (("k", "p", b"m", 1), {}), ((b"m",), {"message": b"n"}), (("k", b"m"), {"key": "l"}), ((), {"key": "k"})],
)
def test_other_forms_are_refused(values, named):
    with pytest.raises(errors.UsageError):
        KeyedMessage("t", *values, **named)


def test_messages_are_values():
    assert KeyedMessage("t", "k", b"m") == KeyedMessage("t", "k", "k", b"m") != KeyedMessage("t", "k", "l", b"m")
    assert len({KeyedMessage("t", b"m"), KeyedMessage("t", b"m"), KeyedMessage("u", b"m")}) == 2


# As Java 17 prints them: "...".hashCode(), Arrays.hashCode(bytes), Integer/Long/Double/Boolean.hashCode().
@each_row(
    ("key", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
        (b"", 1),
        (b"\x01\x02\x03", 30817),
        (b"\xff\x80", 802),
        (0, 0),
        (-5, -5),
        (2**31, -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (float("nan"), 2146959360),
        (1.5, 1073217536),
        (-0.0, -(2**31)),
        (True, 1231),
        (False, 1237),
    ],
)
def test_hashes_are_those_of_java(key, expected):
    assert java_hash(key) == expected


@given(st.text() | st.binary() | st.integers(-(2**63), 2**63 - 1) | st.floats(), st.integers(1, 1000))
def test_the_default_partitioner_stays_among_the_partitions(key, count):
    assert 0 <= default_partitioner(key, count) < count


def test_the_sign_of_a_hash_is_dropped():
    assert default_partitioner("polygenelubricants", 10) == 0
    assert default_partitioner(-1, 10) == (2**31 - 1) % 10


@each_row("key", [(1, 2), 2**64, object()])
def test_a_key_without_a_hash_in_java_is_refused(key):
    with pytest.raises(errors.UsageError, match="partitioner of your own"):
        default_partitioner(key, 4)
