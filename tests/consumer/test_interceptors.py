"""Interceptors see what a consumer hands out and commits, in their order, and stop nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import ConsumerInterceptor, errors
from kafkacore.config import ConsumerConfig
from kafkacore.consumer import KafkaConsumer, RecordBatches
from kafkacore.consumer.interceptors import Interceptors
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.clusters import embedded
from tests.kit.records import numbered, take
from tests.kit.rows import each_row

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


cluster = embedded({"t": [numbered(20)[::2], numbered(20)[1::2]]})


@pytest.fixture
def consumer(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*interceptors: Any, **settings: Any) -> KafkaConsumer:
        given = {"auto_offset_reset": "earliest", "interceptors": interceptors, **settings}
        made.append(KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **given))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Marks(ConsumerInterceptor):
    """Appends its mark to every value."""

    def __init__(self, mark: bytes, calls: list[str] | None = None) -> None:
        self.mark = mark
        self.calls = [] if calls is None else calls
        self.committed: list[Any] = []
        self.threads: set[threading.Thread] = set()

    def on_consume(self, records):
        self.threads.add(threading.current_thread())
        return {tp: [r.replace(value=r.value + self.mark) for r in found] for tp, found in records.items()}

    def on_commit(self, offsets):
        self.threads.add(threading.current_thread())
        self.committed.append(dict(offsets))

    def close(self):
        self.calls.append(f"close {self.mark.decode()}")


class Broken:
    def on_consume(self, records):
        records.clear()
        raise ValueError("broken")

    on_consume_batch = on_commit = lambda self, what: 1 / 0

    def close(self):
        raise ValueError("broken")


@pytest.mark.parametrize("how", ["poll", "for"])
def test_records_go_through_all_of_them_in_order_and_what_failed_is_logged(consumer, how, caplog):
    class Forgets:
        def on_consume(self, records):
            pass

    reader = consumer(Marks(b"a"), Broken(), Forgets(), Marks(b"b"))
    records = take(reader, 20) if how == "poll" else [*itertools.islice(reader, 20)]
    assert sorted(r.value for r in records) == sorted(b"%dab" % i for i in range(20))
    assert "on_consume of" in caplog.text
    assert "ValueError: broken" in caplog.text
    assert "returned None, no Mapping" in caplog.text


@pytest.mark.parametrize("how", ["poll", "for"])
def test_records_may_be_left_out_and_the_position_is_behind_them(consumer, how):
    class Even(ConsumerInterceptor):
        def on_consume(self, records):
            return {tp: [r for r in found if r.offset % 2 == 0 and tp == A] for tp, found in records.items()}

    reader = consumer(Even(), group_id=f"even-{how}", enable_auto_commit=False)
    if how == "poll":
        assert [r.offset for r in take(reader, 5)] == [0, 2, 4, 6, 8]
    else:
        assert [record.offset for record in itertools.islice(reader, 5)] == [0, 2, 4, 6, 8]
    while reader.position(B) < 10:
        assert not reader.poll(0.1)  # a partition without records is left out
    assert {tp: reader.position(tp) for tp in (A, B)} == {A: 10, B: 10}
    reader.commit()
    assert reader.committed([A, B]) == {A: OffsetAndMetadata(10, 0), B: OffsetAndMetadata(10, 0)}


def test_columns_go_to_a_method_of_their_own(consumer):
    class Columns(ConsumerInterceptor):
        def on_consume_batch(self, batches):
            return RecordBatches([c for c in batches if c.partition == 1])

    class Deaf:
        def on_consume_batch(self, batches):
            return list(batches)

    reader = consumer(Broken(), Columns(), Deaf())
    found = RecordBatches([])
    while not found:
        found = reader.poll_batch(10)
    assert [c.partition for c in found] == [1]
    reader.unsubscribe()
    assert sum(len(c) for c in reader.read_range(B, 0, 10, timeout=30)) == 10
    assert not list(reader.read_range(A, 0, 10, timeout=30))


def test_columns_do_not_pass_by_an_interceptor_of_records(consumer):
    reader = consumer(Marks(b"a"))
    with pytest.raises(errors.UsageError, match="columns would pass it by"):
        reader.poll_batch(1)
    with pytest.raises(errors.UsageError, match="columns would pass it by"):
        list(reader.read_range(A, 0, 10))
    assert len(take(reader, 20)) == 20

    class Counts(ConsumerInterceptor):
        def on_commit(self, offsets):
            pass

    assert consumer(Counts()).poll_batch(10)  # it does not look at records


def test_commits_that_worked_are_seen_on_the_polling_thread(consumer, cluster):
    marks = Marks(b"")
    reader = consumer(Broken(), marks, group_id="commits", auto_commit_interval_ms=1)
    take(reader, 20)
    heard: list[Any] = []
    reader.commit_async({A: 3}, callback=lambda offsets, error: heard.append((len(marks.committed), error)))
    reader.commit({A: OffsetAndMetadata(4, None, "note")})
    assert heard == [(marks.committed.index({A: OffsetAndMetadata(3)}) + 1, None)]  # before the callback
    assert marks.committed[-1] == {A: OffsetAndMetadata(4, None, "note")}
    before = len(marks.committed)
    reader.seek(A, 5)
    while not any(A in offsets and offsets[A].offset == 10 for offsets in marks.committed[before:]):  # an automatic one
        reader.poll(0.01)
    cluster.stop_broker(cluster.leader("t", 0))
    try:
        before = len(marks.committed)
        with pytest.raises(errors.KafkaError):
            reader.commit({A: 7}, timeout=0.1)
        assert len(marks.committed) == before
    finally:
        cluster.start_broker(1)
    assert marks.threads == {threading.current_thread()}


def test_they_are_closed_once_after_the_last_commit(consumer):
    calls: list[str] = []

    class Late(Marks):
        def on_commit(self, offsets):
            self.calls.append("commit")

    reader = consumer(Marks(b"a", calls), Broken(), Late(b"b", calls), group_id="closing")
    take(reader, 20)
    reader.close()
    reader.close()
    assert calls == ["commit", "close a", "close b"]


def test_ctrl_c_inside_loses_no_record(consumer):
    armed = []

    class Interrupted(ConsumerInterceptor):
        def on_consume(self, records):
            if armed and records:
                armed.clear()
                raise KeyboardInterrupt
            return records

    reader = consumer(Interrupted(), max_poll_records=3)
    records = take(reader, 1)
    armed.append(True)
    with pytest.raises(KeyboardInterrupt):
        while True:
            for found in reader.poll(0.1).values():
                records += found
    records += take(reader, 20 - len(records))
    assert sorted((r.partition, r.offset) for r in records) == [(p, o) for p in (0, 1) for o in range(10)]


@each_row(
    ("wrong", "problem"),
    [
        (int, "is no object with on_consume, on_consume_batch or on_commit"),
        ("org.example.Interceptor", "interceptors='org.example.Interceptor' cannot be loaded"),
        (object(), "is no object with on_consume, on_consume_batch or on_commit"),
    ],
)
def test_what_is_no_interceptor_is_refused(wrong, problem):
    with pytest.raises(errors.ConfigError, match=problem):
        ConsumerConfig.from_user(bootstrap_servers="h:1", interceptors=[wrong])


def test_an_interceptor_without_a_method_is_passed_by(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    class Last(ConsumerInterceptor):
        def on_commit(self, offsets: Any) -> None:
            seen.append(offsets)

        def close(self) -> None:
            seen.append("closed")

    interceptors = Interceptors([object(), Last()])
    interceptors.on_commit({A: OffsetAndMetadata(1)})
    interceptors.close()
    assert interceptors.on_consume({}) == {}
    assert seen == [{A: OffsetAndMetadata(1)}, "closed"] and not caplog.records
