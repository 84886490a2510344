"""What users of other clients write is answered, or refused, by name: times, partitions, headers, callbacks, attributes."""

import asyncio
import datetime
import functools
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kafkacore
from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, aio, elsewhere
from kafkacore.elsewhere import FUTURE, RECORD, check_callback_order
from kafkacore.errors import ConfigError, UsageError
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import ProducerRecord
from tests.kit.clusters import embedded
from tests.kit.rows import each_row

UTC = datetime.UTC


cluster = embedded({"t": 2, "dated": 1})


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"the topic is known", partition=1).result(30)
        yield producer


def records(cluster: EmbeddedCluster, topic: str, count: int) -> list[Any]:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning((topic, 0))
        found: list[Any] = []
        while len(found) < count:
            for more in consumer.poll(30).values():
                found += more
        return found


@each_row(
    ("name", "answer"),
    [
        ("Producer", "KafkaProducer; kafkacore.compat.confluent has the names of confluent-kafka"),
        ("AIOKafkaConsumer", "kafkacore.aio.KafkaConsumer; kafkacore.compat.aiokafka has the names of aiokafka"),
        ("KafkaException", "kafkacore.errors.KafkaError is what every error derives from"),
    ],
)
def test_other_clients_classes_are_answered_where_they_are_imported(name: str, answer: str) -> None:
    with pytest.raises(ImportError, match=f"^cannot import name '{name}' from 'kafkacore': {re.escape(answer)}$"):
        exec(f"from kafkacore import KafkaProducer, {name}")
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': {re.escape(answer)}$"):
        getattr(kafkacore, name)
    assert not hasattr(kafkacore, name) and name not in dir(kafkacore)
    with pytest.raises(ImportError, match=r"cannot import name 'nosuch' from 'kafkacore' \("):
        exec("from kafkacore import nosuch")


def test_the_answers_name_what_is_there() -> None:
    for answer in kafkacore._ELSEWHERE.values():
        for path in re.findall(r"kafkacore(?:\.\w+)+", answer):
            assert pkgutil.resolve_name(path) is not None


# ---- times and partitions of send -------------------------------------------------------------------------------------------------------


def test_send_dates_records_with_times_of_any_form(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    wanted_ms = 1_704_067_200_000
    day = np.datetime64("2024-01-01")
    forms: list[Any] = [
        wanted_ms,
        np.int64(wanted_ms),
        datetime.datetime(2024, 1, 1, tzinfo=UTC),
        datetime.datetime(2024, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        datetime.datetime.fromtimestamp(wanted_ms / 1000),  # local time
        *(day.astype(f"datetime64[{unit}]") for unit in ("D", "s", "ms", "us", "ns")),
    ]
    for form in forms:
        producer.send("dated", b"x", timestamp_ms=form)
        producer.send(ProducerRecord("dated", b"x", timestamp_ms=form))
    producer.flush(30)
    found = records(cluster, "dated", 2 * len(forms))
    assert [record.timestamp_ms for record in found] == [wanted_ms] * (2 * len(forms))


@each_row("wrong", [1_795_433_039.7, 1.0, float("nan"), np.float64(1.5), "1", True, np.datetime64("NaT"), 1 << 63, -1])
def test_send_refuses_what_is_no_time_by_the_arguments_name(producer: KafkaProducer, wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^timestamp_ms"):
        producer.send("t", b"x", timestamp_ms=wrong)  # type: ignore[arg-type]


@each_row("wrong", ["0", 0.0, True, b"0"])
def test_send_refuses_a_partition_that_is_no_number_by_the_arguments_name(producer: KafkaProducer, wrong: object) -> None:
    with pytest.raises(TypeError, match=r"^partition must be a whole number, not .* \(topic t\)"):
        producer.send("t", b"x", partition=wrong)  # type: ignore[arg-type]


@each_row(
    ("headers", "says"),
    [
        ([("a", 1)], "the value of header 'a' must be bytes-like, str or None, not int"),
        ([(1, b"a")], "a header's name must be a str, not 1"),
        ([1], "a header is a pair of name and value, not 1"),
        ([("a", b"b", b"c")], "a header is a pair of name and value, not"),
        ([(None, b"a")], "a header's key must not be None"),
    ],
)
def test_a_header_that_is_none_is_refused_by_its_name(producer: KafkaProducer, headers: Any, says: str) -> None:
    with pytest.raises(TypeError, match=f"^{says}"):
        producer.send("t", b"x", headers=headers)


@pytest.mark.parametrize(("name", "answer"), [("callback", "on_delivery"), ("timestamp", "timestamp_ms, in epoch milliseconds")])
def test_arguments_of_other_clients_are_answered_by_send(producer: KafkaProducer, name: str, answer: str) -> None:
    with pytest.raises(TypeError, match=rf"^send\(\) got an unexpected keyword argument '{name}'; here it is {answer}"):
        producer.send("t", b"x", **{name: 1})
    with pytest.raises(TypeError, match=r"^send\(\) got an unexpected keyword argument 'nonsense'$"):
        producer.send("t", b"x", nonsense=1)  # type: ignore[call-arg]


def test_batches_take_the_same_times() -> None:
    builder = BatchBuilder()
    builder.append_many([b"a"], timestamps_ms=np.array(["2024-01-01"], "datetime64[D]"))
    for wrong in ([1.5], [float("nan")], np.array([1.5])):
        with pytest.raises(TypeError, match=r"^timestamps_ms\[0\] must be epoch milliseconds"):
            builder.append_many([b"a"], timestamps_ms=wrong)
    with pytest.raises(ValueError, match=r"^timestamps_ms has NaT at 0"):
        builder.append_many([b"a"], timestamps_ms=np.array(["NaT"], "datetime64[s]"))


# ---- the order of a callback's arguments ------------------------------------------------------------------------------------------------


def error_first(err: Any, msg: Any) -> None:
    raise AssertionError("must never be called")


def metadata_first(metadata: Any, error: Any) -> None: ...


class Reports:
    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def metadata_first(self, metadata: Any, error: Any) -> None:
        self.seen.append((metadata, error))

    def __call__(self, err: Any, msg: Any) -> None:
        error_first(err, msg)

    def bound(self, number: int, err: Any, msg: Any) -> None:
        error_first(err, msg)


REVERSED = [
    error_first,
    lambda err, _: None,
    lambda e, m: None,
    lambda _, record: None,
    Reports(),
    functools.partial(Reports().bound, 1),
]
RIGHT = [
    metadata_first,
    lambda _, err: None,
    lambda a, b: None,
    lambda *both: None,
    lambda metadata, error, err=1: None,
    lambda error, exception: None,
    Reports().metadata_first,
    [].append,
    functools.wraps(error_first)(lambda metadata, error: None),
]


@each_row("fn", REVERSED)
def test_a_callback_in_confluents_order_is_refused_and_the_record_is_not_queued(producer: KafkaProducer, fn: Any) -> None:
    before = producer.send("t", b"x", partition=0).result(30).offset
    for _ in range(2):
        with pytest.raises(UsageError, match=r"on_delivery\(metadata, error\), and .* has them the other way round, as in confluent-kafka"):
            producer.send("t", b"x", partition=0, on_delivery=fn)
    assert producer.send("t", b"x", partition=0).result(30).offset == before + 1


@each_row("fn", RIGHT)
def test_other_callbacks_are_not_refused(producer: KafkaProducer, fn: Any) -> None:
    check_callback_order(fn, "on_delivery", "metadata, error")
    producer.send("t", b"x", on_delivery=fn).result(30)


def test_each_callback_is_looked_at_whatever_came_before_it(producer: KafkaProducer) -> None:
    reports = Reports()
    for _ in range(3):
        producer.send("t", b"x", on_delivery=reports.metadata_first)
        with pytest.raises(UsageError):
            producer.send("t", b"x", on_delivery=reports)
    for number in range(200):  # more than are remembered
        scope: dict[str, Any] = {}
        exec(f"def fn{number}(metadata, error): pass\ndef turned{number}(err, msg): pass", scope)
        producer.send("t", b"x", on_delivery=scope[f"fn{number}"])
        with pytest.raises(UsageError):
            producer.send("t", b"x", on_delivery=scope[f"turned{number}"])
    producer.flush(30)
    assert [(metadata.topic, error) for metadata, error in reports.seen] == [("t", None)] * 3


def test_the_asyncio_producer_refuses_the_order_for_new_and_known_topics(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with aio.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for _ in range(2):  # the topic is not known, then it is
                with pytest.raises(UsageError, match="other way round"):
                    await producer.send("t", b"refused", on_delivery=error_first)
                await (await producer.send("t", b"x", on_delivery=Reports().metadata_first))

    asyncio.run(main())


def test_a_callback_is_a_plain_function() -> None:
    async def late(metadata: Any, error: Any) -> None: ...

    class Late:
        async def __call__(self, metadata: Any, error: Any) -> None: ...

    for fn, what in ((late, r".*\.late"), (Late(), "Late"), (functools.partial(late, 1), "partial")):
        with pytest.raises(UsageError, match=f"^cb is a plain function, and {what} is a coroutine function, .* would await: do so$"):
            elsewhere.check_plain_function(fn, "cb", "do so")
        with pytest.raises(UsageError, match="await the future that send"):
            check_callback_order(fn, "cb", "metadata, error")
    for plain in (*REVERSED, *RIGHT, max):
        elsewhere.check_plain_function(plain, "cb", "do so")
    check_callback_order(max, "cb", "metadata, error")  # it has no signature
    with pytest.raises(UsageError, match=r"^cb is called as cb\(a, b\), and error_first\(err, msg\) has them the other way round"):
        check_callback_order(error_first, "cb", "a, b")


def test_a_function_answers_arguments_that_it_does_not_have() -> None:
    def call(first: int, *, timeout: int = 5) -> tuple[int, int]:
        """Ours."""
        return first, timeout

    answering = elsewhere.Answering(call, "call()")
    assert (answering(1), answering(1, timeout=2), answering(first=3)) == ((1, 5), (1, 2), (3, 5))
    with pytest.raises(TypeError, match=r"^call\(\) got an unexpected keyword argument 'timeout_ms'; here it is timeout, in seconds$"):
        answering(1, timeout=2, timeout_ms=3, callback=4)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        answering()
    assert inspect.signature(answering) == inspect.signature(call) and repr(answering) == repr(call)
    assert (answering.__doc__, answering.__module__, answering.__name__) == ("Ours.", __name__, "call")
    elsewhere.refuse_arguments("call()", {})
    with pytest.raises(TypeError, match=r"^call\(\) got an unexpected keyword argument 'odd'$"):
        elsewhere.refuse_arguments("call()", {"odd": 1, "callback": 2})


def test_names_are_answered_unless_the_class_has_them() -> None:
    class Face:
        def poll(self) -> int:
            return 5

    elsewhere.answer_names(Face, {"poll": "no", "start": "it starts"}, {"poll": "no", "stop": "close()"})
    face: Any = Face()
    assert face.poll() == 5 and {"poll", "start", "stop"} & set(dir(face)) == {"poll"}
    for name, answer in (("start", "it starts"), ("stop", "close()")):
        with pytest.raises(AttributeError, match=rf"^Face has no {name}: {re.escape(answer)}$") as refused:
            getattr(face, name)
        assert refused.value.name == name


def test_whole_seconds_from_a_thousand_on_are_warned_of() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for timeout in (999, 1000.0, None, True, 1000, 2500):
            elsewhere.check_seconds("poll", timeout)
    assert [str(each.message).split(" seconds:")[0] for each in said] == ["poll(1000) waits up to 1000", "poll(2500) waits up to 2500"]
    assert str(said[1].message).endswith("For milliseconds write 2.5, and 2500.0 if you mean it")


# ---- attributes of records and futures --------------------------------------------------------------------------------------------------


def test_attributes_of_other_clients_are_answered_by_records_and_futures(cluster: EmbeddedCluster, producer: KafkaProducer) -> None:
    future = producer.send("dated", b"x")
    future.result(30)
    record = records(cluster, "dated", 1)[0]
    for item, names in ((record, RECORD), (future, FUTURE)):
        for name, answer in names.items():
            assert not hasattr(item, name)
            with pytest.raises(AttributeError) as refused:
                getattr(item, name)
            assert str(refused.value) == f"{type(item).__name__} has no {name}: {answer}"


# ---- names of other clients -----------------------------------------------------------------------------------------------------

FACES: list[tuple[type, tuple[dict[str, str], ...]]] = [
    (KafkaProducer, (elsewhere.PRODUCER,)),
    (KafkaConsumer, (elsewhere.CONSUMER,)),
    (KafkaAdminClient, (elsewhere.ADMIN,)),
    (aio.KafkaProducer, (elsewhere.PRODUCER, elsewhere.STARTED)),
    (aio.KafkaConsumer, (elsewhere.CONSUMER, elsewhere.STARTED)),
]


@each_row(("cls", "tables"), FACES, ids=lambda item: f"{item.__module__}.{item.__name__}" if isinstance(item, type) else "")
def test_methods_of_other_clients_are_answered_by_what_is_there(cls: type, tables: tuple[dict[str, str], ...]) -> None:
    made = cls.__new__(cls)
    for table in tables:
        for name, answer in table.items():
            assert not hasattr(cls, name), f"{cls.__name__} has {name} itself: it needs no answer"
            with pytest.raises(AttributeError, match=rf"^{cls.__name__} has no {name}: ") as refused:
                getattr(made, name)
            assert str(refused.value).endswith(answer)
            assert name not in dir(made)
            for call in re.findall(r"(?<![\w.])([a-z]\w*)\(", answer):  # a method that the answer names
                assert hasattr(cls, call) or call in ("fn", "on_delivery"), f"{name}: {cls.__name__} has no {call}"
    assert "close" in dir(made)


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([("t", 0)])
        yield consumer


def test_arguments_of_other_clients_are_answered_by_the_consumer(consumer: KafkaConsumer) -> None:
    for call, name, answer in (
        (consumer.poll, "timeout_ms", "timeout, in seconds"),
        (consumer.poll_batch, "num_messages", "max_records"),
        (consumer.subscribe, "on_assign", "listener, a RebalanceListener"),
    ):
        refused = rf"^{call.__name__}\(\) got an unexpected keyword argument"
        with pytest.raises(TypeError, match=rf"{refused} '{name}'; here it is {re.escape(answer)}$"):
            call(**{name: 1})
        with pytest.raises(TypeError, match=rf"{refused} 'nonsense'$"):
            call(nonsense=1)


def test_a_poll_of_a_thousand_seconds_warns_and_one_of_a_float_does_not(consumer: KafkaConsumer, producer: KafkaProducer) -> None:
    def more() -> None:
        producer.send("t", b"x", partition=0).result(30)
        consumer.seek_to_beginning(("t", 0))

    for poll in (consumer.poll, consumer.poll_batch):
        more()
        says = rf"^{poll.__name__}\(1000\) waits up to 1000 seconds: .* write 1, and 1000.0 if you mean it"
        with pytest.warns(UserWarning, match=says) as warned:
            poll(1000)
        assert warned[0].filename == __file__
        for timeout in (1000.0, 99, None):  # warnings are errors here
            more()
            poll(timeout)


@each_row(("given", "meant"), [("smallest", "earliest"), ("largest", "latest"), ("end", "latest"), ("error", "none")])
def test_values_of_other_clients_are_answered(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"not '{given}'; did you mean {meant}\?$"):
        KafkaConsumer(bootstrap_servers="localhost:1", auto_offset_reset=given)


def test_the_settings_for_topics_are_the_clients_own() -> None:
    with pytest.raises(ConfigError, match=r"default\.topic\.config.*: give its settings beside the others"):
        KafkaConsumer({"bootstrap.servers": "localhost:1", "default.topic.config": {"auto.offset.reset": "smallest"}})


@each_row("name", ["queue.buffering.max.ms", "message.timeout.ms", "statistics.interval.ms", "default.topic.config"])
def test_settings_of_librdkafka_name_its_partitioner_to_producers(name: str) -> None:
    with pytest.raises(ConfigError, match="partitioner='consistent_random' keeps keys on the partitions"):
        KafkaProducer({"bootstrap.servers": "localhost:1", name: 1})
    with pytest.raises(ConfigError) as refused:
        KafkaConsumer({"bootstrap.servers": "localhost:1", name: 1})
    assert "consistent_random" not in str(refused.value)


@pytest.mark.parametrize("many", [False, True])
def test_keys_beside_confluent_kafka_are_warned_of_once(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, many: bool) -> None:
    pytest.importorskip("confluent_kafka.cimpl")
    elsewhere._said_partitioner.cache_clear()

    def said(key: Any, **settings: Any) -> int:
        caplog.clear()
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
            for _ in range(2):
                producer.send_many("t", [b"v"], keys=key and [key]) if many else producer.send("t", b"v", key)
        return caplog.text.count("partitioner='consistent_random' keeps keys on its partitions")

    assert said(None) == 0
    assert said(b"k", partitioner="murmur2") == said(b"k", partitioner="consistent_random") == 0
    assert said(b"k") == 1
    assert said(b"k") == 0
