"""Where a query begins, and what a replay of its first batch reads: nothing that has come since the start is passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacore import KafkaAdminClient, errors
from kafkacore.spark import source
from tests.spark.driven import Query, numbers, places, read, rows, send, stream_reader

pytestmark = pytest.mark.usefixtures("driven_readers")

LATE = {"startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "latest"}
STARTS: dict[str, tuple[dict[str, str], int]] = {
    "latest": ({"startingOffsets": "latest"}, 5),
    "latest by number": ({"startingOffsets": '{"%s":{"0":-1}}'}, 5),
    "earliest": ({"startingOffsets": "earliest"}, 0),
    "earliest by number": ({"startingOffsets": '{"%s":{"0":-2}}'}, 0),
    "timestamp": ({"startingTimestamp": "1"}, 0),
    "timestamp of nothing yet": (LATE, 5),
    "behind the end": ({"startingOffsets": '{"%s":{"0":9}}', "failOnDataLoss": "false"}, 5),
}
LATEST_ONES = ("latest", "latest by number", "timestamp of nothing yet", "behind the end")


class First:
    """A new query up to its batch 0, as Spark 4.3 drives it: `start` and `end` are what Spark knows of it."""

    def __init__(self, cluster: Any, **options: str) -> None:
        self.given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
        self.reader = stream_reader(self.given)
        self.start = self.reader.initialOffset()

    def plan(self, limit: Any = None) -> None:
        assert self.reader.initialOffset() == self.start  # Spark asks twice
        self.end = self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())

    def rows(self) -> list[int]:
        return numbers(read(self.reader, list(self.reader.partitions(self.start, self.end))))

    def later(self) -> Query:
        """The query behind its batch 0."""
        return Query.of(self.reader, self.end)

    def replayed(self) -> Query:
        """A new process with the same offset log, after it has read batch 0 again."""
        query = Query.of(stream_reader(self.given), self.end)
        query.replay = numbers(read(query.reader, list(query.reader.partitions(query.reader.initialOffset(), self.end))))
        return query


def options_of(start: str, topic: str) -> dict[str, str]:
    return {name: value.replace("%s", topic) for name, value in STARTS[start][0].items()}


@pytest.mark.parametrize("start", STARTS)
def test_a_first_batch_that_is_replayed_loses_nothing(cluster, producer, start):
    topic = "pinned-" + start.replace(" ", "-")
    cluster.create_topic(topic, partitions=1)
    send(producer, topic, range(5))
    first = First(cluster, subscribe=topic, **options_of(start, topic))
    begin = STARTS[start][1]
    assert places(first.start) == {topic: {"0": begin}}
    send(producer, topic, range(5, 8))  # between the two questions of Spark
    first.plan()
    assert first.end == first.start and first.rows() == []
    send(producer, topic, range(8, 12))  # the batch fails, the query is started again
    again = first.replayed()
    assert again.replay == [] and again.reader.tolerated == 0
    assert numbers(again.batch()) == list(range(begin, 12))  # not put off by another pin
    assert numbers(first.later().batch()) == list(range(begin, 12))  # nor without a crash


def test_a_start_by_numbers_needs_no_empty_batch(cluster, producer):
    cluster.create_topic("by-number", partitions=2)
    for partition in range(2):
        send(producer, "by-number", range(5), partition)
    first = First(cluster, subscribe="by-number", startingOffsets='{"by-number":{"0":2,"1":3}}')
    first.plan()
    assert sorted(first.rows()) == [2, 3, 3, 4, 4]
    mixed = First(cluster, subscribe="by-number", startingOffsets='{"by-number":{"0":2,"1":-2}}')
    mixed.plan()
    assert mixed.rows() == [2, 3, 4] and places(mixed.end) == {"by-number": {"0": 5, "1": 0}}
    assert mixed.replayed().replay == [2, 3, 4]


def test_a_pattern_that_finds_nothing_is_pinned_too(cluster, producer):
    first = First(cluster, subscribePattern="not-yet-.*", startingOffsets="latest")
    cluster.create_topic("not-yet-there", partitions=1)
    send(producer, "not-yet-there", range(3))
    first.plan()
    assert first.start == first.end == {}
    again = first.replayed()
    assert numbers(again.batch()) == [0, 1, 2]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("crashed", [False, True])
def test_available_now_takes_everything_in_one_run(cluster, producer, start, crashed):
    topic = f"all-now-{crashed}-" + start.replace(" ", "-")
    cluster.create_topic(topic, partitions=1)
    send(producer, topic, range(5))
    first = First(cluster, subscribe=topic, **options_of(start, topic))
    first.reader.prepareForTriggerAvailableNow()
    first.plan()
    assert first.rows() == []
    query = first.later()
    if crashed:
        query = first.replayed()
        query.reader.prepareForTriggerAvailableNow()
    assert [numbers(batch) for batch in query.batches()] == [[*range(STARTS[start][1], 5)]] * (STARTS[start][1] < 5)


@pytest.mark.parametrize("start", STARTS)
def test_once_takes_what_is_there_in_its_only_batch(cluster, producer, start):
    topic = "once-" + start.replace(" ", "-")
    cluster.create_topic(topic, partitions=1)
    send(producer, topic, range(5))
    for limits in ({}, {"maxOffsetsPerTrigger": "2"}, {"minOffsetsPerTrigger": "50"}):
        first = First(cluster, subscribe=topic, **options_of(start, topic), **limits)
        assert not isinstance(first.reader.getDefaultReadLimit(), source.ReadAllAvailable)  # that is how Once is recognized
        first.plan(source.ReadAllAvailable())
        assert first.rows() == list(range(STARTS[start][1], 5))
    send(producer, topic, range(5, 7))
    again = first.replayed()
    assert again.replay == list(range(STARTS[start][1], 5))
    if start in LATEST_ONES:
        assert numbers(again.batch(source.ReadAllAvailable())) == [5, 6]


@pytest.mark.parametrize("start", ["earliest", "timestamp", "latest"])
@pytest.mark.parametrize("loss", ["fail", "earliest", "skip"])
def test_what_ages_out_before_the_first_batch_is_replayed_is_a_loss(cluster, admin, producer, caplog, start, loss):
    topic = f"retained-{start}-{loss}"
    cluster.create_topic(topic, partitions=1)
    send(producer, topic, range(5))
    first = First(cluster, subscribe=topic, onDataLoss=loss, **options_of(start, topic))
    first.plan()
    send(producer, topic, range(5, 12))
    admin.delete_records({(topic, 0): 8}).check()
    begin = STARTS[start][1]
    if loss == "fail":
        with pytest.raises(errors.OffsetOutOfRange, match=f"{topic}-0: .* the offsets {begin} to 7 have aged out"):
            first.replayed()
        return
    again = first.replayed()
    assert again.replay == [] and again.reader.tolerated == 1
    assert f"the offsets {begin} to 7 have aged out" in caplog.text
    assert [numbers(batch) for batch in again.batches()] == [[], [8, 9, 10, 11]]
    assert again.reader.tolerated == 2  # the batch that moves the offsets is reported once


@pytest.mark.parametrize("loss", ["fail", "earliest"])
def test_a_batch_that_ends_before_it_begins_is_a_loss(cluster, producer, caplog, loss):
    topic = f"backwards-{loss}"
    cluster.create_topic(topic, partitions=2)
    send(producer, topic, range(9))
    reader = Query(cluster, {topic: {"0": 9, "1": 0}}, subscribe=topic, onDataLoss=loss).reader
    batch = ({topic: {"0": 9, "1": 0}}, {topic: {"0": 4, "1": 0}})
    says = f"{topic}-0: the batch begins at offset 9 and ends at 4"
    if loss == "fail":
        with pytest.raises(errors.OffsetOutOfRange, match=says):
            reader.partitions(*batch)
    else:
        for _ in range(2):  # foreachBatch may read a batch twice
            assert read(reader, list(reader.partitions(*batch))) == []
        assert reader.tolerated == 1 and caplog.text.count(says) == 1


@pytest.mark.parametrize("times", [1, 3, 4])
def test_one_answer_of_a_leader_that_was_replaced_is_no_loss(cluster, producer, times):
    """Its end may lie before what has been read of the next leader."""
    topic = f"replaced-{times}"
    cluster.create_topic(topic, partitions=1)
    send(producer, topic, range(5))
    query = Query(cluster, subscribe=topic)
    query.batch()
    consumer = query.reader._source.consumer()
    real, asked = consumer.end_offsets, []

    def end_offsets(partitions):
        asked.append(partitions)
        return dict.fromkeys(partitions, 3) if len(asked) <= times else real(partitions)

    consumer.end_offsets = end_offsets
    if times > 3:
        with pytest.raises(errors.OffsetOutOfRange, match=f"{topic}-0: its end 3 lies before offset 5"):
            query.batch()
    else:
        assert query.batch() is None and len(asked) == times + 1


def test_an_end_that_is_cut_is_reported(cluster, producer, caplog):
    cluster.create_topic("cut-short", partitions=1)
    send(producer, "cut-short", range(3))
    options = {"subscribe": "cut-short", "failOnDataLoss": "false"}
    assert numbers(rows(cluster, **options, endingOffsets='{"cut-short":{"0":100}}')) == [0, 1, 2]
    assert "cut-short-0: reading would end at offset 100, and the log ends at 3" in caplog.text
    assert rows(cluster, **options, startingOffsets='{"cut-short":{"0":9}}') == []
    assert "cut-short-0: reading would begin at offset 9, and the log ends at 3" in caplog.text
    caplog.clear()
    assert Query(cluster, **options, startingOffsets='{"cut-short":{"0":9}}').reader.tolerated == 1
    assert "cut-short-0: reading would begin at offset 9, and the log ends at 3" in caplog.text


def test_what_ages_out_of_a_planned_batch_is_reported_where_it_is_tolerated(cluster, admin, producer, caplog):
    cluster.create_topic("replayed-short", partitions=1)
    send(producer, "replayed-short", range(10))
    query = Query(cluster, subscribe="replayed-short", failOnDataLoss="false")
    query.plan()
    admin.delete_records({("replayed-short", 0): 4}).check()
    again = Query(cluster, query.offset, subscribe="replayed-short", failOnDataLoss="false")
    assert numbers(read(again.reader, list(again.reader.partitions(*query.last)))) == [4, 5, 6, 7, 8, 9]
    assert again.reader.tolerated == 1 and "the offsets 0 to 3 of a batch have aged out" in caplog.text


@pytest.fixture
def older(monkeypatch):
    class Absent:
        """What 4.0 and 4.1 do not have."""

    for name in ("ReadAllAvailable", "ReadMaxRows", "ReadMinRows"):
        monkeypatch.setattr(source, name, Absent)
    monkeypatch.setattr(source, "ADMISSION_CONTROL", False)


@pytest.mark.parametrize("start", STARTS)
def test_older_sparks_ask_for_the_end_first(cluster, producer, older, start):
    """Batch 0 cannot be empty for their availableNow, which takes one batch: what begins at the end is pinned all the same."""
    topic = "older-" + start.replace(" ", "-")
    cluster.create_topic(topic, partitions=1)
    send(producer, topic, range(5))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **options_of(start, topic)}
    reader = stream_reader(given)
    end = reader.latestOffset()
    send(producer, topic, range(5, 8))
    begin = reader.initialOffset()
    assert numbers(read(reader, list(reader.partitions(begin, end)))) == list(range(STARTS[start][1], 5))
    again = stream_reader(given)  # batch 0 is replayed
    assert numbers(read(again, list(again.partitions(again.initialOffset(), end)))) == list(range(STARTS[start][1], 5))
    later = again.latestOffset()
    assert numbers(read(again, list(again.partitions(end, later)))) == [5, 6, 7]


def test_older_sparks_have_no_admission_control(cluster, producer, older):
    cluster.create_topic("older", partitions=1)
    send(producer, "older", range(3))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "older", "startingOffsets": "earliest"}
    reader = stream_reader(given)
    with pytest.raises(errors.OffsetOutOfRange, match="begins at offset 9 and ends at 3"):
        reader.partitions({"older": {"0": 9}}, reader.latestOffset())
    with pytest.raises(errors.ConfigError, match=r"maxOffsetsPerTrigger and minOffsetsPerTrigger need pyspark 4\.2"):
        stream_reader({**given, "maxOffsetsPerTrigger": "5"}).initialOffset()


@pytest.mark.parametrize("version", ["older", "newer"])
def test_only_older_sparks_say_that_a_batch_is_done(cluster, producer, version, request):
    if version == "older":
        request.getfixturevalue("older")
    group = f"done-{version}"
    cluster.create_topic(group, partitions=1)
    send(producer, group, range(5))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": group, "commitOffsetsToGroup": group}
    reader = stream_reader({**given, "startingOffsets": "earliest"})
    reader.commit({group: {"0": 3}})
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert [each.offset for each in admin.list_group_offsets(group).values()] == ([3] if version == "older" else [])
