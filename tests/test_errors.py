"""errors.py: the code table, the flags, where an error happened, pickling."""

import copy
import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.errors import Code, KafkaError
from tests.kit.inside import classes_by_code
from tests.kit.rows import each_row

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, KafkaError)]
CODES = [code for code in Code if code is not Code.NONE]


def test_every_code_has_one_class_of_its_own():
    assert [int(code) for code in Code] == list(range(-1, 134))
    assert errors.for_code(0) is None
    classes = [errors.for_code(code) for code in CODES]
    assert len(set(classes)) == len(CODES)
    for code, cls in zip(CODES, classes, strict=True):
        assert cls is not None
        assert cls.code == code
        assert getattr(errors, cls.__name__) is cls
        assert cls().name == errors.NAMES[code] == code.name


def test_flags_are_those_of_the_java_client():
    """Retriable and InvalidMetadata as the classes of kafka-clients 4.3.1 derive (read from its jar)."""
    retriable = {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89, 100, 103, 106}
    retriable |= {122, 123, 133}
    invalid_metadata = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
    assert {code for code in CODES if errors.for_code(code).retriable} == retriable
    assert {code for code in CODES if errors.for_code(code).invalid_metadata} == invalid_metadata
    assert not any(cls.fatal and cls.retriable for cls in ALL)


def test_what_ends_a_client_and_what_a_transaction():
    assert {code for code in CODES if errors.for_code(code).fatal} == {31, 33, 34, 35, 43, 48, 49, 53, 58, 82, 90}
    assert {code for code in CODES if errors.for_code(code).txn_requires_abort} == {22, 25, 29, 30, 45, 47, 59, 82, 120}
    assert {cls for cls in ALL if cls.fatal and cls.code is None} == {errors.AuthenticationFailedError, errors.SslAuthenticationFailed}
    of_others = {cls for cls in ALL if cls.retriable and cls.code is None}
    assert of_others == {
        *(errors.TransportError, errors.KafkaTimeoutError, errors.BufferFullError, errors.QueueFullError, errors.ConsumerTimeoutError)
    }
    assert not (errors.PurgedError.in_flight or errors.PreparedTransactionAborted.timed_out)


def test_a_second_class_for_a_code_is_refused():
    with pytest.raises(TypeError, match="code 6 belongs to NotLeaderOrFollower"):
        type("Another", (errors.BrokerError,), {}, code=Code.NOT_LEADER_OR_FOLLOWER)
    assert errors.for_code(6) is errors.NotLeaderOrFollower


def test_a_class_of_a_user_may_have_another_base():
    class Labelled:
        def __init_subclass__(cls, *, label, **more):
            super().__init_subclass__(**more)
            cls.label = label

    class Own(errors.TransportError, Labelled, label="x", fatal=True):
        """Theirs."""

    assert (Own.label, Own.fatal, Own.retriable) == ("x", True, True)


def test_flags_of_a_class_are_its_own_or_those_it_derives_from():
    class Own(errors.UsageError, retriable=True, fatal=True, invalid_metadata=True, txn_requires_abort=True):
        """Ours."""

    class Derived(Own):
        """Of ours."""

    class Other(Derived, retriable=False, fatal=False, invalid_metadata=False, txn_requires_abort=False):
        """Not of ours."""

    for cls, flag in ((Own, True), (Derived, True), (Other, False), (errors.UsageError, False)):
        flags = [cls.retriable, cls.fatal, cls.invalid_metadata, cls.txn_requires_abort, cls.code]
        assert flags == [flag] * 4 + [None]
    try:

        class Coded(errors.UsageError, code=Code.NONE):
            """With a code that has no class."""

        assert classes_by_code(errors)[0] is Coded and (Coded.code, type(Coded.code), Coded().name) == (0, int, "NONE")
    finally:
        classes_by_code(errors).pop(0, None)


def test_families():
    assert issubclass(errors.RequestTimedOut, errors.KafkaTimeoutError)
    assert issubclass(errors.RequestTimedOut, errors.TransportError)
    assert issubclass(errors.BufferFullError, errors.KafkaTimeoutError)
    assert issubclass(errors.BufferFullError, BufferError)
    assert issubclass(errors.KafkaTimeoutError, TimeoutError)
    assert issubclass(errors.ConfigError, ValueError)
    families = (errors.BrokerError, errors.TransportError, errors.CorruptDataError, errors.UsageError, errors.InternalError)
    for cls in ALL:
        assert sum(issubclass(cls, family) for family in families) <= 1, cls
    for code in CODES:
        assert issubclass(errors.for_code(code), (errors.BrokerError, errors.TransportError))


def test_str_says_what_and_where():
    error = errors.from_code(6, topic="t", partition=3, broker=1, api="Produce v9", offset=118, attempts=["refused", OSError("reset")])
    text = str(error)
    assert text.startswith("NOT_LEADER_OR_FOLLOWER (6): ")
    assert text.endswith("[topic t, partition 3, broker 1, Produce v9, offset 118]; earlier attempts: refused; reset")
    assert str(errors.from_code(6, "the broker's own text")) == "NOT_LEADER_OR_FOLLOWER (6): the broker's own text"
    assert str(errors.UsageError("no")) == "no"
    assert "partition 0" in str(errors.CorruptDataError("bad", partition=0))


def test_every_class_says_something_without_a_message():
    for cls in ALL:
        assert len(str(cls())) > 10, cls


def test_codes_newer_than_the_table_keep_their_number():
    error = errors.from_code(9999, topic="t")
    assert type(error) is errors.UnknownServer
    assert (error.code, error.name) == (9999, "UNKNOWN")
    assert "(9999)" in str(error)
    assert errors.UnknownServer.code == -1


def test_raise_for():
    errors.raise_for(0, topic="t")
    with pytest.raises(errors.UnknownTopicOrPartition) as caught:
        errors.raise_for(3, topic="t", partition=1)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    with pytest.raises(errors.InternalError):
        errors.from_code(0)


def test_flags_can_be_overridden_for_one_error():
    error = errors.TransportError("gone", retriable=False, fatal=True, code=13, invalid_metadata=True, txn_requires_abort=True)
    assert (error.retriable, error.fatal, error.code, error.invalid_metadata, error.txn_requires_abort) == (False, True, 13, True, True)
    assert (errors.TransportError.retriable, errors.TransportError.code) == (True, None)
    assert errors.UsageError("x").name == "UsageError"


def test_delivery_error_counts_and_names_the_first_cause():
    cause = errors.from_code(10, topic="t", partition=0)
    error = errors.DeliveryError(failed=3, causes=[cause], topic="t")
    assert (error.failed, error.causes) == (3, (cause,))
    assert "3 records were not delivered; first cause: MESSAGE_TOO_LARGE" in str(error)
    assert "1 record was not delivered" in str(errors.DeliveryError(failed=1))
    assert str(errors.DeliveryError()).startswith("0 records were")
    assert (errors.DeliveryError(failed=1).args, KafkaError().args) == (("1 record was not delivered",), ("",))
    assert str(errors.DeliveryError("lost", causes=[cause], topic="t")) == "lost [topic t]"


def test_errors_that_hold_what_they_are_about():
    none = errors.NoOffsetForPartition("none", partitions=[("t", 0), ("u", 1)], topic="t")
    assert (none.partitions, str(none)) == ((("t", 0), ("u", 1)), "none [topic t]")
    full = errors.QueueFullError("full", messages=["a", "b"], topic="t")
    assert (full.messages, str(full)) == (("a", "b"), "full [topic t]")
    failed = {("t", n): OSError(f"e{n}") for n in range(6)}
    error = errors.FailedToSendMessageError("3 tries", failed=failed, messages=["a", "b"], broker=1)
    assert (error.failed, error.messages) == (failed, ("a", "b"))
    assert str(error) == "3 tries; t-0: e0; t-1: e1; t-2: e2; t-3: e3; t-4: e4; and 1 more [broker 1]"
    del failed["t", 5]
    assert str(errors.FailedToSendMessageError("3 tries", failed=failed)).endswith("; t-4: e4")
    assert (str(errors.FailedToSendMessageError("no")), errors.FailedToSendMessageError().failed) == ("no", {})


@each_row(
    ("code", "api", "says"),
    [
        (Code.TOPIC_AUTHORIZATION_FAILED, "Produce v9", "an ACL must allow WRITE"),
        (Code.TOPIC_AUTHORIZATION_FAILED, "DeleteRecords", "an ACL must allow DELETE"),
        (Code.GROUP_AUTHORIZATION_FAILED, "OffsetDelete v0", "an ACL must allow DELETE"),
        (Code.TOPIC_AUTHORIZATION_FAILED, "Heartbeat v4", ""),
        (Code.TOPIC_AUTHORIZATION_FAILED, None, ""),
        (None, "Produce v9", ""),
    ],
)
def test_the_operation_that_is_missing_is_named(code, api, says):
    error = errors.from_code(code, "no.", api=api) if code else errors.AuthorizationError("no.", api=api)
    assert str(error) == (f"{code.name} ({code}): " if code else "") + (f"no; {says}" if says else "no.") + (f" [{api}]" if api else "")


def test_one_error_names_the_other_topics_of_an_answer():
    refused = [errors.from_code(29, "no", topic=f"t{n}") for n in range(11)]
    one = errors.joined(refused[:1])
    assert (type(one), str(one)) == (errors.TopicAuthorization, "TOPIC_AUTHORIZATION_FAILED (29): no [topic t0]")
    others = ", ".join(f"t{n}" for n in range(1, 11))
    assert errors.joined([*refused, refused[0]]).message == f"no (refused for 11 topics, also for: {others})"
    unlike = [*refused[:-1], errors.from_code(3, topic="t0"), errors.from_code(3, topic="u")]
    text = "also for: t1, t2, t3, t4, t5, t6, t7, t8, t9, t0 (UnknownTopicOrPartition) and 1 more"
    assert errors.joined(unlike).message == f"no (refused for 12 topics, {text})"
    assert refused[0].message == "no"  # the error of its topic stays as it was
    assert errors.joined([errors.from_code(29, topic=each) for each in "ab"]).message == "refused for 2 topics, also for: b"


def test_a_later_error_joins_the_end_of_the_chain():
    def chain(error):
        return [] if error is None else [error, *chain(error.__cause__ or error.__context__)]

    first, cause, context, later, before = (KafkaError(name) for name in ("first", "cause", "context", "later", "before"))
    first.__cause__, cause.__context__ = cause, context
    later.__context__, before.__context__ = before, first  # as Python sets them while `first` is handled
    errors.append_to_chain(first, later)
    assert chain(first) == [first, cause, context, later, before]
    errors.append_to_chain(first, later)
    assert chain(first) == [first, cause, context, later, before]
    errors.append_to_chain(first, first)
    assert chain(first) == [first, cause, context, later, before]


def test_a_topic_that_is_not_there_is_named_as_such():
    """Kafka has one code for it and for a partition that another broker has."""
    of_topic = errors.from_code(errors.Code.UNKNOWN_TOPIC_OR_PARTITION, topic="t", api="Metadata")
    assert str(of_topic) == "UNKNOWN_TOPIC_OR_PARTITION (3): There is no such topic (yet). [topic t, Metadata]"
    of_partition = errors.from_code(errors.Code.UNKNOWN_TOPIC_OR_PARTITION, topic="t", partition=0)
    assert "does not host this topic or partition" in str(of_partition)
    assert "what the broker said" in str(errors.from_code(errors.Code.UNKNOWN_TOPIC_OR_PARTITION, "what the broker said", topic="t"))


@each_row("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickle_and_copy(cls):
    error = cls("why", topic="t", partition=2, broker=3, api="Fetch v17", offset=4, attempts=("a", ValueError("b")), retriable=True)
    if isinstance(error, errors.DeliveryError):
        error.failed = 7
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is cls
        assert str(again) == str(error)
        assert again.args == error.args
        assert {**vars(again), "attempts": None} == {**vars(error), "attempts": None}
        assert [repr(a) for a in again.attempts] == [repr(a) for a in error.attempts]
    assert str(copy.copy(error)) == str(error)


@given(st.integers(-(2**15), 2**15 - 1))
def test_any_code_from_the_wire_makes_an_error(code):
    if code == 0:
        assert errors.for_code(code) is None
    else:
        error = errors.from_code(code)
        assert error.code == code
        assert isinstance(error, KafkaError)


def test_attempts_that_failed_alike_are_counted():
    refused = [OSError("refused") for _ in range(3)]
    assert str(errors.KafkaTimeoutError("late", attempts=[*refused, "reset", *refused[:1]])).endswith(
        "late; earlier attempts: refused (3 times); reset; refused"
    )
