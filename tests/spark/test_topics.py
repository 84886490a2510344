"""Whether a topic exists: brokers whose answers differ, and what may be believed of them."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacore import KafkaAdminClient, errors
from kafkacore.admin.base import ItemResults
from kafkacore.admin.topics import TopicDescription, TopicsSeen
from kafkacore.cluster_snapshot import ZERO_ID
from kafkacore.spark import clients, topics
from kafkacore.spark.topics import Topics
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewPartitions
from tests.spark.driven import Query, numbers, send

pytestmark = pytest.mark.usefixtures("driven_readers")

PAUSES_S = topics.CONFIRM_PAUSES_S
A, B = b"a" * 16, b"b" * 16


class Brokers:
    """Brokers with views of their own, in place of an admin client. The first of `asked` answers what any broker may answer.

    Attributes:
        views: topics by broker: (id, partitions), or an error.
        down: brokers that do not answer.
        rounds: how often brokers were asked one by one.
        script: called with the number of the round before it is answered.
    """

    def __init__(self, *views: dict[str, Any]) -> None:
        self.views = dict(enumerate(views))
        self.down: set[int] = set()
        self.rounds = 0
        self.script: Any = lambda rounds: None

    def all(self, **view: Any) -> None:
        for each in self.views:
            self.views[each] = dict(view)

    def _described(self, broker: int, names: Iterable[str]) -> ItemResults[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        failed: dict[str, errors.KafkaError] = {}
        for name in names:
            there = self.views[broker].get(name)
            if isinstance(there, tuple):
                found[name] = self._description(name, *there)
            else:
                failed[name] = there or errors.UnknownTopicOrPartition(topic=name)
        return ItemResults(found, failed)

    @staticmethod
    def _description(name: str, topic_id: bytes, count: int) -> TopicDescription:
        return TopicDescription(name, topic_id, False, [SimpleNamespace(index=i) for i in range(count)])  # type: ignore[misc]

    def describe_topics(self, names: Iterable[str]) -> ItemResults[str, TopicDescription]:
        return self._described(0, names)

    def describe_cluster(self, timeout: float) -> Any:
        return SimpleNamespace(nodes=[SimpleNamespace(id=each) for each in self.views])

    def describe_topics_by_broker(
        self, names: list[str], *, topic_ids: list[bytes], brokers: list[int], timeout: float
    ) -> ItemResults[int, TopicsSeen]:
        self.script(self.rounds)
        self.rounds += 1
        found = {}
        for broker in set(brokers) - self.down:
            described = self._described(broker, names)
            by_id: dict[bytes, Any] = dict.fromkeys(topic_ids, errors.UnknownTopicId())
            for name, there in self.views[broker].items():
                if isinstance(there, tuple) and there[0] in by_id:
                    by_id[there[0]] = self._description(name, *there)
            found[broker] = TopicsSeen({**described.succeeded, **described.errors}, by_id)
        return ItemResults(found, dict.fromkeys(self.down, errors.CoordinatorNotAvailable()))


def known(*views: dict[str, Any]) -> tuple[Brokers, Topics]:
    """Brokers of which the first has been asked."""
    brokers = Brokers(*views)
    found = Topics(lambda: brokers)  # type: ignore[arg-type, return-value]
    found.look(list(views[0]), {})
    assert brokers.rounds == 0
    return brokers, found


T2 = {"t": (A, 2)}


def test_fewer_partitions_under_the_same_id_are_an_old_answer() -> None:
    brokers, found = known(T2, T2)
    brokers.views[0] = {"t": (A, 1)}
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    brokers.all(t=(A, 1))
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    assert brokers.rounds == 0 and not found.renewed


def test_partitions_that_the_offsets_name_are_not_lost_by_one_answer() -> None:
    """After a restart only offsets are known."""
    brokers, found = known({}, T2)
    brokers.views[0] = {"t": (A, 1)}
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    assert brokers.rounds == 1
    brokers, found = known({"t": (A, 1)}, T2)  # nor by one that came before the offsets
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    for there in ({}, {"t": (A, 1)}):
        brokers, found = known(there, {}, {})
        brokers.all(t=(A, 1))
        assert found.look(["t"], {"t": 2}) == ({"t": 1}, {})  # all agree: it was created again, before this process started
        assert found.renewed == {"t"} and brokers.rounds == 4


@pytest.mark.parametrize("count", [2, 3])
def test_a_topic_that_one_broker_does_not_know_exists(count: int) -> None:
    brokers, found = known(*[T2] * count)
    brokers.views[0] = {}
    for _ in range(3):
        assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    brokers.all()
    counts, failed = found.look(["t"], {"t": 2})
    assert counts == {} and isinstance(failed["t"], errors.UnknownTopicOrPartition) and found.topic_id("t") == A
    rounds = brokers.rounds
    assert isinstance(found.look(["t"], {"t": 2})[1]["t"], errors.UnknownTopicOrPartition)
    assert brokers.rounds == rounds  # it is known by now


def test_one_broker_of_several_does_not_confirm_a_loss() -> None:
    brokers, found = known(T2, T2, T2)
    brokers.all()
    brokers.down = {1, 2}
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    brokers.down = {1}
    assert found.look(["t"], {"t": 2})[0] == {}


def test_the_only_broker_is_asked_over_a_while() -> None:
    brokers, found = known(T2)
    brokers.all()
    brokers.script = lambda rounds: brokers.all(**T2) if rounds == 2 else None
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    assert brokers.rounds == 3
    brokers.all()
    assert found.look(["t"], {"t": 2})[0] == {}
    assert brokers.rounds == 7


def test_brokers_that_change_their_minds_are_not_believed() -> None:
    brokers, found = known(T2, T2)
    brokers.all(t=(B, 2))
    brokers.script = lambda rounds: brokers.all() if rounds == 3 else None
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    assert found.topic_id("t") == A and not found.renewed and brokers.rounds == 4


def test_a_new_id_counts_when_the_old_one_is_unknown_to_all_and_the_old_one_never_again() -> None:
    brokers, found = known(T2, T2)
    brokers.views[0] = {"t": (B, 3)}
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {}) and not found.renewed
    brokers.all(t=(B, 3))
    assert found.look(["t"], {"t": 2}) == ({"t": 3}, {}) and found.renewed == {"t"}
    found.renewed.clear()
    rounds = brokers.rounds
    for view in (T2, {"t": (B, 3)}, T2):
        brokers.views[0] = view
        assert found.look(["t"], {"t": 3}) == ({"t": 3}, {})
    assert found.topic_id("t") == B and not found.renewed and brokers.rounds == rounds


@pytest.mark.parametrize(("topic_id", "renewed"), [(A, set()), (B, {"t"})])
def test_a_topic_that_comes_back(topic_id: bytes, renewed: set[str]) -> None:
    brokers, found = known(T2, T2)
    brokers.all()
    found.look(["t"], {"t": 2})
    brokers.all(t=(topic_id, 2))
    assert found.look(["t"], {}) == ({"t": 2}, {})
    assert (found.topic_id("t"), found.renewed) == (topic_id, renewed)
    if topic_id == B:
        brokers.all(**T2)  # an old answer
        assert found.look(["t"], {}) == ({"t": 2}, {}) and found.topic_id("t") == B


def test_a_refusal_counts_when_brokers_agree() -> None:
    refused = {"t": errors.TopicAuthorization(topic="t")}
    brokers, found = known(T2, T2)
    brokers.views[0] = refused
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    brokers.all(**refused)
    for _ in range(2):
        counts, failed = found.look(["t"], {"t": 2})
        assert counts == {} and isinstance(failed["t"], errors.TopicAuthorization) and failed["t"].topic == "t"
    assert brokers.rounds == 5
    brokers.all(**T2)
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {}) and found.topic_id("t") == A


def test_of_several_topics_in_doubt_each_is_judged_alone() -> None:
    ids = {name: name.encode() * 4 for name in ("gone", "stay", "anew", "hide", "fine")}
    views = {name: (topic_id, 2) for name, topic_id in ids.items()}
    brokers, found = known(views, views)
    anew, hide = (B, 3), errors.TopicAuthorization(topic="hide")
    brokers.views[0] = {"anew": anew, "hide": hide, "fine": views["fine"]}
    brokers.views[1] = {"anew": anew, "hide": hide, "fine": views["fine"], "stay": views["stay"]}  # of which the first has not heard
    for _ in range(2):  # the second time one of them is in doubt still
        counts, failed = found.look([*views], dict.fromkeys(views, 2))
        assert counts == {"stay": 2, "anew": 3, "fine": 2}
        kinds = {name: type(error) for name, error in failed.items()}
        assert kinds == {"gone": errors.UnknownTopicOrPartition, "hide": errors.TopicAuthorization}
    assert found.renewed == {"anew"} and sorted(found.known()) == ["anew", "fine", "hide", "stay"]


def test_a_topic_that_has_not_been_seen_yet() -> None:
    brokers, found = known({}, T2)
    assert found.look(["t"], {}) == ({"t": 2}, {})  # the second broker knows it already
    brokers, found = known({}, {})
    counts, failed = found.look(["t"], {})
    assert counts == {} and isinstance(failed["t"], errors.UnknownTopicOrPartition)
    brokers.all(t=(A, 1))
    assert found.look(["t"], {}) == ({"t": 1}, {}) and not found.renewed


def test_brokers_without_topic_ids() -> None:
    brokers, found = known({"t": (ZERO_ID, 2)}, {"t": (ZERO_ID, 2)})
    brokers.views[0] = {"t": (ZERO_ID, 1)}
    assert found.look(["t"], {"t": 2}) == ({"t": 2}, {})
    brokers.all(t=(ZERO_ID, 1))
    assert found.look(["t"], {"t": 2}) == ({"t": 1}, {}) and found.renewed == {"t"}


# ---- by the wire


@pytest.mark.slow
def test_brokers_are_asked_one_by_one() -> None:
    with EmbeddedCluster(brokers=3) as three, KafkaAdminClient(bootstrap_servers=three.bootstrap_servers) as admin:
        three.create_topic("t", partitions=2)
        topic_id = admin.describe_topics(["t"]).check()["t"].topic_id
        found = admin.describe_topics_by_broker(["t", "u"], topic_ids=[topic_id, B]).check()
        assert len(found) == 3
        for seen in found.values():
            assert [len(seen.by_name["t"].partitions), seen.by_id[topic_id].name] == [2, "t"]
            assert isinstance(seen.by_name["u"], errors.UnknownTopicOrPartition) and isinstance(seen.by_id[B], errors.UnknownTopicId)
        three.stop_broker(3)
        found = admin.describe_topics_by_broker(["t"], brokers=[1, 3])
        assert list(found.succeeded) == [1] and list(found.errors) == [3]


class Blind:
    """The admin client of a query whose brokers seem not to know a topic, for as long as this is `on`."""

    def __init__(self, query: Query, topic: str, all_brokers: bool) -> None:
        self.on, self._topic, self._all, self._inner = False, topic, all_brokers, query.reader._source.admin()
        query.reader._source._admin = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list_topics(self) -> list[str]:
        return [each for each in self._inner.list_topics() if not self.on or each != self._topic]

    def describe_topics(self, names: list[str]) -> Any:
        found = self._inner.describe_topics(names)
        if not self.on or self._topic not in names:
            return found
        left = {name: each for name, each in found.succeeded.items() if name != self._topic}
        return ItemResults(left, {**found.errors, self._topic: errors.UnknownTopicOrPartition(topic=self._topic)})

    def describe_topics_by_broker(self, names: list[str], *, topic_ids: list[bytes], **more: Any) -> Any:
        found = self._inner.describe_topics_by_broker(names, topic_ids=topic_ids, **more)
        for seen in found.values() if self.on and self._all else ():
            seen.by_name[self._topic] = errors.UnknownTopicOrPartition(topic=self._topic)
            seen.by_id.update(dict.fromkeys(topic_ids, errors.UnknownTopicId()))
        return found


@pytest.mark.parametrize(("what", "loss"), [("subscribe", "fail"), ("subscribePattern", "earliest")])
def test_an_old_answer_is_no_loss(cluster: Any, admin: Any, producer: Any, what: str, loss: str) -> None:
    name = f"flap-{what}-{loss}"
    cluster.create_topic(name, partitions=1)
    send(producer, name, range(3))
    query = Query(cluster, **{what: name}, onDataLoss=loss)
    blind = Blind(query, name, all_brokers=False)
    assert numbers(query.batch()) == [0, 1, 2]
    blind.on = True
    assert query.batch() is None and query.at == {name: {"0": 3}}
    send(producer, name, [3])
    assert numbers(query.batch()) == [3]


@pytest.mark.parametrize("what", ["subscribe", "subscribePattern"])
def test_what_comes_back_under_its_id_goes_on_where_it_stood(cluster: Any, producer: Any, what: str) -> None:
    name = f"returns-{what}"
    cluster.create_topic(name, partitions=2)
    send(producer, name, range(3))
    send(producer, name, range(10, 12), 1)
    query = Query(cluster, **{what: name}, onDataLoss="earliest")
    blind = Blind(query, name, all_brokers=True)
    assert sorted(numbers(query.batch())) == [0, 1, 2, 10, 11]
    blind.on = True
    assert query.batch() == [] and query.offset == {}
    assert query.batch() is None
    send(producer, name, [3])
    blind.on = False
    assert query.batch() == [] and query.at == {name: {"0": 3, "1": 2}}
    assert numbers(query.batch()) == [3]
    assert query.batch() is None


def test_new_partitions_stay_though_a_broker_does_not_know_them_yet(cluster: Any, admin: Any, producer: Any) -> None:
    cluster.create_topic("grown", partitions=1)
    query = Query(cluster, subscribe="grown")
    admin.create_partitions({"grown": NewPartitions(2)}).check()
    send(producer, "grown", range(3), 1)
    assert numbers(query.batch()) == [0, 1, 2]
    inner = query.reader._source.admin()
    real = inner.describe_topics

    def stale(names: list[str]) -> Any:
        found = real(names)
        found.succeeded["grown"] = found.succeeded["grown"]._replace(partitions=found.succeeded["grown"].partitions[:1])
        return ItemResults({"grown": found.succeeded["grown"]._replace(partitions=found.succeeded["grown"].partitions[:1])}, {})

    inner.describe_topics = stale
    assert query.batch() is None
    again = Query(cluster, query.offset, subscribe="grown")  # and after a restart
    again.reader._source.admin().describe_topics = stale
    assert again.batch() is None


def test_what_an_unclean_election_took_from_a_task_is_a_loss(cluster: Any, producer: Any) -> None:
    cluster.create_topic("cut-topic", partitions=1)
    send(producer, "cut-topic", range(5))
    fault = errors.LogTruncationError("the leader's log ends before the position")
    wanted = clients.OffsetRange("cut-topic", 0, 0, 5)
    for tolerance in ("fail", "earliest"):
        options = Query(cluster, subscribe="cut-topic", onDataLoss=tolerance).reader.options
        with clients.Lent(options.client) as consumer:
            if tolerance == "fail":
                with pytest.raises(errors.OffsetOutOfRange, match=r"0 to 4 .* from 3 on .* an election lost records"):
                    clients._behind_loss(consumer, options, wanted, 3, fault)
            else:
                assert clients._behind_loss(consumer, options, wanted, 3, fault) == 3  # what has these offsets now is read


def test_a_task_does_not_believe_one_answer_either(cluster: Any, producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("task-topic", partitions=1)
    send(producer, "task-topic", range(3))
    options = Query(cluster, subscribe="task-topic", onDataLoss="earliest").reader.options
    fault = errors.UnknownTopicOrPartition("the broker does not know it yet")
    wanted = clients.OffsetRange("task-topic", 0, 0, 3)
    with clients.Lent(options.client) as consumer, pytest.raises(errors.UnknownTopicOrPartition, match="does not know it yet"):
        clients._behind_loss(consumer, options, wanted, 0, fault)  # the task fails, and is tried again
    asked: list[str] = []
    monkeypatch.setattr(KafkaAdminClient, "describe_topics", lambda self, names: asked.append("once") or Brokers({}).describe_topics(names))
    assert clients._exists(options, wanted) and asked == ["once"]
    assert not clients._exists(options, wanted._replace(partition=1))


# ---- topics that the options name, or do not name
