"""KeyedMessage in its three forms, and the partitioner of its day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.legacy import KeyedMessage, default_partitioner, java_hash
from tests.kit.rows import each_row


@each_row(
    ("values", "named", "expected"),  # key, part_key, message, partition_key, has_key
    [
        ((b"m",), {"message": b"m"}, (None, None, b"m", None, False)),
        (("key", b"m"), {"key": "key", "message": b"m"}, ("key", "key", b"m", "key", True)),
        (("key", 7, b"m"), {"key": "key", "part_key": 7, "message": b"m"}, ("key", 7, b"m", 7, True)),
        (("key", None, b"m"), {"key": "key", "part_key": None, "message": b"m"}, ("key", None, b"m", "key", True)),
        ((None, "p", b"m"), {"part_key": "p", "message": b"m"}, (None, "p", b"m", "p", False)),
        ((b"", 0, b"m"), {"key": b"", "part_key": 0, "message": b"m"}, (b"", 0, b"m", 0, True)),
        ((b"", b"m"), {"key": b"", "message": b"m"}, (b"", b"", b"m", b"", True)),
    ],
)
def test_the_forms_of_a_message(values, named, expected):
    for message in (KeyedMessage("t", *values), KeyedMessage("t", **named), KeyedMessage(topic="t", **named)):
        assert (message.topic, message.key, message.part_key, message.message, message.partition_key, message.has_key) == ("t", *expected)


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
        (b"\x7f\x7f", 5025),
        (bytearray(b"\x01\x02\x03"), 30817),
        (0, 0),
        (-5, -5),
        (2**31 - 1, 2**31 - 1),
        (-(2**31), -(2**31)),
        (2**31, -(2**31)),
        (2**32, 1),
        (2**63 - 1, -(2**31)),
        (-(2**63), -(2**31)),
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


@each_row("key", [(1, 2), 2**63, -(2**63) - 1, object()])
def test_a_key_without_a_hash_in_java_is_refused(key):
    with pytest.raises(errors.UsageError, match="partitioner of your own"):
        default_partitioner(key, 4)
