"""What a pipeline's flows read: wrong options and topics before Spark runs, and updates that are left out when nothing is new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer
from kafkacore.spark.pipeline import running
from kafkacore.spark.pipeline.project import Project, create
from kafkacore.spark.pipeline.reads import FlowFault, News, Reads, reading
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewPartitions
from tests.kit.clusters import embedded
from tests.kit.late import late, late_or_skip
from tests.kit.rows import each_row

late_or_skip("pyspark")
pb2: Any = late("pyspark.sql.connect.proto")


cluster = embedded()


def source(streaming: bool = True, kind: str = "kafkacore", **options: str) -> Any:
    """The plan of `spark.readStream.format("kafkacore").options(...).load()`."""
    named = {"kafka.bootstrap.servers": "h:1", **{name.replace("_", "."): value for name, value in options.items()}}
    return pb2.Relation(read=pb2.Read(is_streaming=streaming, data_source=pb2.Read.DataSource(format=kind, options=named)))


def table(name: str, streaming: bool = True) -> Any:
    return pb2.Relation(read=pb2.Read(is_streaming=streaming, named_table=pb2.Read.NamedTable(unparsed_identifier=name)))


def joined(*relations: Any) -> Any:
    """All of them, one within the other."""
    whole = relations[0]
    for each in relations[1:]:
        whole = pb2.Relation(join=pb2.Join(left=pb2.Relation(filter=pb2.Filter(input=whole)), right=each))
    return whole


def called(relation: Any, name: str) -> Any:
    """A projection that calls a function."""
    function = pb2.Expression(unresolved_function=pb2.Expression.UnresolvedFunction(function_name=name))
    return pb2.Relation(project=pb2.Project(input=relation, expressions=[function]))


def reads(*relations: Any, outputs: tuple[str, ...] = ()) -> Reads:
    found = Reads(outputs=set(outputs))
    for number, each in enumerate(relations):
        found.add_flow(f"spark_catalog.default.flow{number}", each)
    return found


# ---- what is found in plans


def test_reads_are_found_wherever_they_are_in_a_plan() -> None:
    deep = joined(called(source(subscribe="a,b"), "from_json"), source(False, assign='{"c":[0]}'), table("`words`"))
    whole = pb2.Relation(with_relations=pb2.WithRelations(root=deep, references=[source(subscribePattern="d.*")]))
    found = reads(whole, outputs=("words",))
    assert {options.subscribe or options.assign or options.pattern for _, options in found.kafka} == {("a", "b"), (("c", 0),), "d.*"}
    assert {flow for flow, _ in found.kafka} == {"flow0"} and found.tables == {"words"} and found.why_unknown() is None


@each_row(
    ("relation", "why"),
    lambda: [
        (source(kind="rate"), "flow0 reads rate"),
        (source(kind="parquet"), "flow0 reads parquet"),
        (table("others"), "the table others is not of the pipeline"),
        (table("db.words"), "the table db.words is not of the pipeline"),
        (pb2.Relation(sql=pb2.SQL(query="SELECT 1")), "flow0 reads by SQL"),
        (joined(source(subscribe="a"), pb2.Relation(sql=pb2.SQL(query="SELECT 1"))), "flow0 reads by SQL"),
        (called(source(False, subscribe="a"), "current_timestamp"), "flow0 may change by itself (current_timestamp)"),
        (called(table("words", False), "rand"), "flow0 may change by itself (rand)"),
        (pb2.Relation(map_partitions=pb2.MapPartitions(input=source(False, subscribe="a"))), "flow0 may change by itself (map_partitions)"),
        (pb2.Relation(apply_in_pandas_with_state=pb2.ApplyInPandasWithState(input=source(subscribe="a"))), "by itself (with_state)"),
        (called(source(subscribe="a"), "current_timestamp"), None),  # a stream without records has no batch
        (pb2.Relation(map_partitions=pb2.MapPartitions(input=source(subscribe="a"))), None),
        (called(table("words", False), "count"), None),
    ],
)
def test_where_it_cannot_be_known_whether_something_is_new(relation: Any, why: str | None) -> None:
    found = reads(relation, outputs=("words",)).why_unknown()
    assert found is None if why is None else found is not None and why in found


def test_a_misspelled_option_is_of_the_flow_that_has_it() -> None:
    with pytest.raises(FlowFault, match=r"flow flow0: unknown option 'value.fromat'; did you mean value.format") as caught:
        reads(joined(source(subscribe="a"), source(subscribe="b", value_fromat="json")))
    assert (caught.value.flow, caught.value.reason[:14]) == ("flow0", "unknown option")
    with pytest.raises(FlowFault, match=r"flow out: unknown option 'partitoner'"):
        Reads().add_sink("out", "kafkacore", {"kafka.bootstrap.servers": "h:1", "topic": "t", "partitoner": "sticky"})
    Reads().add_sink("out", "parquet", {"path": "/p"})


def test_topics_that_do_not_exist_are_reported_with_the_nearest(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create_topic("flights")
    servers = {"kafka_bootstrap_servers": cluster.bootstrap_servers}
    reads(source(subscribe="flights", **servers), source(subscribePattern="nothing.*", **servers)).check_topics(tolerant=False)
    for options in ({"subscribe": "flights,flihgts"}, {"assign": '{"flihgts":[0]}'}):
        with pytest.raises(FlowFault, match=r"flow flow0: there is no topic 'flihgts' that this user may see, .*; did you mean flights\?"):
            reads(source(**options, **servers)).check_topics(tolerant=False)
    written = reads(source(subscribe="flihgts", **servers))
    written.add_sink("out", "kafkacore", {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "flihgts"})
    written.check_topics(tolerant=False)  # it comes with the first record
    lossy = reads(source(subscribe="flihgts", onDataLoss="skip", **servers))
    lossy.check_topics(tolerant=True)
    with pytest.raises(FlowFault):
        lossy.check_topics(tolerant=False)
    assert not caplog.messages
    away = {"kafka_bootstrap_servers": "127.0.0.1:9", "kafka_default_api_timeout_ms": "200"}
    reads(source(subscribe="t", **away)).check_topics(tolerant=False)
    assert "its topics cannot be checked" in caplog.text


# ---- whether there is something new


@pytest.fixture
def news() -> Iterator[News]:
    made = News()
    yield made
    made.close()


def test_news_are_records_partitions_and_topics(cluster: EmbeddedCluster, news: News) -> None:
    servers = {"kafka_bootstrap_servers": cluster.bootstrap_servers}
    cluster.create_topic("new.a", partitions=1)
    assert news.is_there()  # nothing is known yet
    by_name = [source(streaming, subscribe="new.a", **servers) for streaming in (True, False)]
    wanted = reads(source(subscribePattern=r"new\..*", **servers), *by_name)

    def update() -> None:
        news.began(wanted)
        assert not news.is_there() and not news.is_there()

    update()
    assert len(news._sources) == 2  # one question for the reads of the same topics
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        producer.send("new.a", b"x").result(30)
        assert news.is_there() and news.is_there()  # until an update has started
        update()
        admin.create_partitions({"new.a": NewPartitions(2)}).check()
        assert news.is_there()
        update()
        cluster.create_topic("new.b", partitions=1)
        assert news.is_there()
        update()
    news.began(reads(source(kind="rate")))
    assert news.is_there()
    news.began(reads(source(subscribe="no.such", **servers)))
    assert news.is_there()  # the update says what is wrong


def test_a_kafka_that_does_not_answer_is_left_to_the_update(news: News) -> None:
    with EmbeddedCluster() as short:
        short.create_topic("t")
        news.began(reads(source(subscribe="t", kafka_bootstrap_servers=short.bootstrap_servers, kafka_default_api_timeout_ms="300")))
        assert not news.is_there()
    assert news.is_there()


# ---- the registry and the session


def test_the_registry_takes_down_what_it_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.pipelines import flow, output
    from pyspark.pipelines.source_code_location import SourceCodeLocation

    at = SourceCodeLocation("f.py", 1)
    handed: list[Any] = []

    class Base:
        def __init__(self) -> None:
            self._client = "client"

        def register_output(self, given: Any) -> None:
            handed.append(given)

        def register_flow(self, given: Any) -> None:
            handed.append(given.func())

        def register_sql(self, text: str, path: Path) -> None:
            handed.append(text)

    registry = reading(Base)()
    frame = SimpleNamespace(_plan=SimpleNamespace(plan={"client": source(subscribe="t")}.get))
    registry.register_flow(flow.Flow(name="a.b.f", target="x", spark_conf={}, source_code_location=at, func=lambda: frame))
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    sink = output.Sink(name="out", comment=None, source_code_location=at, format="kafkacore", options=given)
    view = output.TemporaryView(name="words", comment=None, source_code_location=at)
    for each in (sink, view):
        registry.register_output(each)
    found = registry.reads
    assert [name for name, _ in found.kafka] == ["f"] and (found.sinks, found.outputs, found.unknown) == ({"t"}, {"words"}, None)
    registry.register_sql("SELECT 1", Path("a.sql"))
    assert handed == [frame, sink, view, "SELECT 1"] and found.unknown == "a.sql is SQL"


def test_a_session_has_news_when_a_file_changes_or_spark_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "flights")
    session = running.Session(Project.find(tmp_path / "flights"), "h:1")
    monkeypatch.setattr(session.news, "is_there", lambda: False)
    assert session.has_news()  # no update yet
    session._files = session._changed()
    assert not session.has_news()
    session._context = SimpleNamespace(_gateway=SimpleNamespace(proc=SimpleNamespace(poll=lambda: -9)))
    assert session.has_news()
    session._context = None
    (tmp_path / "flights" / "transformations" / "more.py").write_text("x = 1")
    assert session.has_news()
