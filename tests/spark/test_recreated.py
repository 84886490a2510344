"""A topic that is deleted and created again between two runs of one checkpoint, and has grown past the query's offset. No session."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacore import errors
from kafkacore.spark import offsets, source
from kafkacore.spark.pipeline import status
from kafkacore.types import topic_id_text
from tests.spark.driven import Query, numbers, places, read, send
from tests.spark.test_topics import T2, A, B, Brokers, known

pytestmark = pytest.mark.usefixtures("driven_readers")

KINDS = ("subscribe", "subscribePattern", "assign")


def given(kind: str, name: str) -> dict[str, str]:
    return {kind: json.dumps({name: [0]}) if kind == "assign" else name}


class Recreated:
    """A query that has read five records, and a topic that another one of its name, of eight, has replaced since it stopped.

    Attributes:
        name: of the topic.
        before, after: its ids.
        last: start and end of the query's last batch.
        offset: what its checkpoint holds.
    """

    def __init__(self, cluster: Any, admin: Any, producer: Any, name: str, **options: str) -> None:
        self.name, self._cluster, self._admin, self._producer = name, cluster, admin, producer
        self._options = {"subscribe": name, **options}
        cluster.create_topic(name, partitions=1)
        send(producer, name, range(5))
        query = Query(cluster, **self._options)
        assert numbers(query.batch()) == [0, 1, 2, 3, 4]
        query.reader.stop()
        self.last, self.offset = query.last, query.offset
        self.before = self._id()
        self.again()
        self.after = self._id()

    def again(self) -> None:
        self._admin.delete_topics([self.name]).check()
        self._cluster.create_topic(self.name, partitions=1)
        send(self._producer, self.name, range(100, 108))

    def _id(self) -> str:
        return topic_id_text(self._admin.describe_topics([self.name]).check()[self.name].topic_id)

    def run(self, offset: dict[str, Any] | None = None, **options: str) -> Query:
        """Another run, on the same checkpoint."""
        return Query(self._cluster, self.offset if offset is None else offset, **{**self._options, **options})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [{}, {"commitOffsetsToGroup": "g"}], ids=["alone", "group"])
def test_it_is_reported_with_both_ids(cluster: Any, admin: Any, producer: Any, kind: str, group: dict[str, str]) -> None:
    name = f"reported-{kind}-{len(group)}"
    made = Recreated(cluster, admin, producer, name, **group)
    options = {"subscribe": name} if kind == "subscribe" else given(kind, name)
    run = Query(cluster, made.offset, **options, **group)
    with pytest.raises(errors.OffsetOutOfRange, match="deleted and created again") as caught:
        run.batch()
    said = str(caught.value)
    assert f"{name}-0: the topic was deleted and created again (its id was {made.before} and is {made.after}); where its" in said
    assert "checkTopicIds=false goes on; it holds the offsets 0 to 8 (the query is at offset 5)" in said
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (name, 0, 5)


@pytest.mark.parametrize("available_now", [False, True])
def test_where_loss_is_tolerated_the_new_topic_is_read(cluster: Any, admin: Any, producer: Any, available_now: bool, caplog: Any) -> None:
    made = Recreated(cluster, admin, producer, f"tolerated-{available_now}")
    earliest, skip = made.run(failOnDataLoss="false"), made.run(onDataLoss="skip")
    if available_now:
        for each in (earliest, skip):
            each.reader.prepareForTriggerAvailableNow()
    assert [numbers(batch) for batch in earliest.batches()] == [[], list(range(100, 108))]
    assert skip.batches() == [[]] and skip.at == {made.name: {"0": 8}}
    said = [each.getMessage() for each in caplog.records if "created again" in each.getMessage()]
    assert len(said) == 2 and all(made.before in each and made.after in each for each in said)
    assert [list(offsets.topic_ids(each.offset)) for each in (earliest, skip)] == [[made.name]] * 2
    if not available_now:
        send(producer, made.name, [200])
        for each in (earliest, skip, made.run(earliest.offset), made.run(skip.offset)):  # the last two: strict, and nothing is lost
            assert numbers(each.batch()) == [200]


def test_a_topic_whose_records_were_kept_goes_on_where_that_is_said(cluster: Any, admin: Any, producer: Any) -> None:
    """As in a mirrored cluster: other ids, the same offsets."""
    made = Recreated(cluster, admin, producer, "mirrored")
    kept = made.run(checkTopicIds="false")
    assert numbers(read(kept.reader, kept.reader.partitions(*made.last))) == list(range(100, 105))  # a batch that is replayed
    assert [numbers(batch) for batch in kept.batches()] == [[105, 106, 107]]
    assert offsets.topic_ids(kept.offset).keys() == {"mirrored"}
    assert made.run(kept.offset).batch() is None  # its new id is known from then on


def test_a_checkpoint_without_ids_goes_on(cluster: Any, admin: Any, producer: Any) -> None:
    """One of an earlier version, or of Spark's own connector; from its next batch on there are ids."""
    cluster.create_topic("no-ids", partitions=1)
    send(producer, "no-ids", range(5))
    query = Query(cluster, {"no-ids": {"0": 2}}, subscribe="no-ids")
    assert numbers(query.batch()) == [2, 3, 4] and offsets.topic_ids(query.offset)
    quiet = Query(cluster, {"no-ids": {"0": 5}}, subscribe="no-ids")
    assert quiet.batch() is None and quiet.offset == {"no-ids": {"0": 5}}  # that ids are known is no news


def test_a_batch_that_is_replayed_reads_nothing_of_another_topic(cluster: Any, admin: Any, producer: Any, caplog: Any) -> None:
    """It was planned, and the process ended before it was done; it is planned again without a question about its end."""
    made = Recreated(cluster, admin, producer, "replayed")
    with pytest.raises(errors.OffsetOutOfRange, match=rf"is {made.after}.*; the batch begins at offset 0 and ends at 5"):
        made.run().reader.partitions(*made.last)
    lenient = made.run(onDataLoss="earliest")
    for _ in range(2):  # foreachBatch may plan it twice
        assert read(lenient.reader, lenient.reader.partitions(*made.last)) == []
    assert lenient.reader.tolerated == 1
    assert [numbers(batch) for batch in lenient.batches()] == [[], list(range(100, 108))]


def test_a_skip_that_is_replayed_reads_nothing_of_what_was_skipped(cluster: Any, admin: Any, producer: Any) -> None:
    made = Recreated(cluster, admin, producer, "skipped")
    query = made.run(onDataLoss="skip")
    assert query.batch() == [] and [places(each) for each in query.last] == [{"skipped": {"0": 5}}, {"skipped": {"0": 8}}]
    again = made.run(query.offset, onDataLoss="skip")
    assert read(again.reader, again.reader.partitions(*query.last)) == []
    assert again.batch() is None


def test_twice_while_it_runs(cluster: Any, admin: Any, producer: Any) -> None:
    made = Recreated(cluster, admin, producer, "twice")
    query = made.run(onDataLoss="earliest")
    assert [numbers(batch) for batch in query.batches()] == [[], list(range(100, 108))]
    made.again()
    assert [numbers(batch) for batch in query.batches()] == [[], list(range(100, 108))]
    assert made.run(query.offset).batch() is None


def test_a_list_of_partitions_that_is_believed_for_a_while_has_no_ids_of_a_checkpoint(cluster: Any, admin: Any, producer: Any) -> None:
    made = Recreated(cluster, admin, producer, "cached")
    run = made.run(**{"partition.metadata.cache.ttl.ms": "600000"})
    run.reader.prepareForTriggerAvailableNow()
    with pytest.raises(errors.OffsetOutOfRange, match=made.before):
        run.batch()


@pytest.mark.parametrize("loss", ["fail", "earliest", "skip"])
def test_sparks_that_ask_for_the_end_without_a_start(cluster: Any, admin: Any, producer: Any, loss: str, monkeypatch: Any) -> None:
    made = Recreated(cluster, admin, producer, f"older-{loss}")
    monkeypatch.setattr(source, "ADMISSION_CONTROL", False)
    reader = made.run(onDataLoss=loss).reader
    end = reader.latestOffset()
    if loss == "fail":
        with pytest.raises(errors.OffsetOutOfRange, match=rf"{made.before} and is {made.after}"):
            reader.partitions(made.offset, end)
    else:
        assert numbers(read(reader, reader.partitions(made.offset, end))) == (list(range(100, 108)) if loss == "earliest" else [])


# ---- what brokers say against what the checkpoint says


def test_one_answer_against_the_checkpoint_is_an_old_one() -> None:
    brokers, found = known({"t": (A, 2)}, {"t": (B, 2)}, {"t": (B, 2)})
    assert found.look(["t"], {"t": 2}, {"t": B}) == ({"t": 2}, {})
    assert found.topic_id("t") == B and not found.renewed and brokers.rounds == 1
    brokers, found = known(T2, T2)
    brokers.all(t=(B, 3))
    for _ in range(2):
        assert found.look(["t"], {"t": 2}, {"t": A}) == ({"t": 3}, {})
    assert found.renewed == {"t"} and (found.former_id("t"), found.topic_id("t")) == (A, B)


def test_a_new_process_believes_the_checkpoint_until_brokers_agree() -> None:
    brokers = Brokers({"t": (A, 2)}, {"t": (A, 2)})
    found = source.clients.Topics(lambda: brokers)  # type: ignore[arg-type, return-value]
    assert found.look(["t"], {"t": 2}, {"t": B}) == ({"t": 2}, {})
    assert found.renewed == {"t"} and found.former_id("t") == B and brokers.rounds == 4


# ---- how ids are kept


def test_ids_beside_offsets() -> None:
    made = offsets.to_json({("b", 1): 5, ("a", 0): 3, ("b", 0): 4}, {"b": B, "elsewhere": A})
    assert made == {"a": {"0": 3}, "b": {"0": 4, "1": 5}, "b@YmJiYmJiYmJiYmJiYmJiYg": {}}
    assert list(made) == ["a", "b", "b@YmJiYmJiYmJiYmJiYmJiYg"]
    assert offsets.topic_ids(made) == {"b": B} and offsets.topic_ids({"a": {"0": 3}}) == {}
    assert offsets.from_json(made) == {("a", 0): 3, ("b", 0): 4, ("b", 1): 5}  # as Spark's own source reads it
    with pytest.raises(errors.ConfigError, match="expected JSON"):
        offsets.topic_ids({"a": {"0": 3}, "a@short": {}})
    assert status._offsets(json.dumps(made)) == {"a": {"0": 3}, "b": {"0": 4, "1": 5}}
