"""The source as Spark calls it, without a Spark: offsets, batches, tasks, and what becomes of records that are gone."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from kafkacore import errors
from kafkacore.spark import clients, source
from kafkacore.spark.source import KAFKA_SCHEMA, WITH_HEADERS, KafkaSource
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewPartitions
from tests.kit.rows import each_row
from tests.spark.driven import Query, numbers, read, rows, send, stream_reader

pytestmark = pytest.mark.usefixtures("driven_readers")


# ---- what a batch takes


def test_a_stream_takes_what_is_there_and_then_what_comes(cluster, producer):
    cluster.create_topic("plain", partitions=2)
    send(producer, "plain", range(10))
    query = Query(cluster, subscribe="plain")
    assert query.at == {"plain": {"0": 0, "1": 0}}
    assert numbers(query.batch()) == list(range(10))
    assert query.batch() is None
    send(producer, "plain", [10], partition=1)
    assert numbers(query.batch()) == [10]
    assert query.at == {"plain": {"0": 10, "1": 1}} == query.reader.reportLatestOffset()


def test_max_offsets_are_shared_out_and_once_takes_everything(cluster, producer):
    cluster.create_topic("shared", partitions=2)
    send(producer, "shared", range(50), 0)
    send(producer, "shared", range(50), 1)
    query = Query(cluster, subscribe="shared", maxOffsetsPerTrigger="60")
    assert [len(batch) for batch in query.batches()] == [60, 40]
    query = Query(cluster, subscribe="shared", maxOffsetsPerTrigger="60")
    query.batch()
    assert query.at == {"shared": {"0": 30, "1": 30}}
    send(producer, "shared", range(10))
    assert len(query.batch(source.ReadAllAvailable()) or []) == 50  # Trigger.Once


def test_a_batch_waits_for_min_offsets_or_the_delay(cluster, producer, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(source.time, "monotonic", lambda: now[0])
    cluster.create_topic("waits", partitions=1)
    send(producer, "waits", range(2))
    query = Query(cluster, subscribe="waits", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    assert len(query.batch() or []) == 2  # the first never waits
    send(producer, "waits", range(4))
    now[0] += 9
    assert query.batch() is None
    now[0] += 1
    assert len(query.batch() or []) == 4
    send(producer, "waits", range(5))
    assert len(query.batch() or []) == 5
    send(producer, "waits", range(1))
    assert query.batch() is None
    assert len(query.batch(source.ReadAllAvailable()) or []) == 1  # Trigger.Once does not wait
    send(producer, "waits", range(1))
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.batch() or []) == 1  # nor does AvailableNow


def test_the_longer_nothing_comes_the_longer_the_source_waits(cluster, producer, monkeypatch):
    now, waits = [100.0], []

    def sleep(seconds):
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(source, "IDLE_POLL_MS", 50)
    cluster.create_topic("idle", partitions=1)
    query = Query(cluster, subscribe="idle")
    send(producer, "idle", range(2))
    assert len(query.batch() or []) == 2
    for _ in range(40):
        now[0] += 0.012
        assert query.batch() is None
    assert 0 < waits[0] < waits[-1] == pytest.approx(0.05 - 0.012)
    waits.clear()
    query = Query(cluster, subscribe="idle", startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert len(query.batch() or []) == 1
    now[0] += 60
    send(producer, "idle", range(2))
    assert [len(batch) for batch in query.batches()] == [1, 1, 1]
    assert waits == []


def test_available_now_stops_at_what_was_there_in_steps(cluster, admin, producer):
    cluster.create_topic("now", partitions=1)
    send(producer, "now", range(25))
    query = Query(cluster, subscribe="now", maxOffsetsPerTrigger="10")
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.batch() or []) == 10
    send(producer, "now", range(100))
    admin.create_partitions({"now": NewPartitions(2)}).check()
    assert [len(batch) for batch in query.batches()] == [10, 5]
    assert query.at == {"now": {"0": 25}}


def test_tasks_are_cut_the_same_way_when_a_batch_is_replayed(cluster, producer):
    cluster.create_topic("cut", partitions=2)
    send(producer, "cut", range(100), 0)
    send(producer, "cut", range(100, 103), 1)
    queries = [Query(cluster, subscribe="cut", **how) for how in ({"minPartitions": "5"}, {"maxRecordsPerPartition": "30"})]
    plans = [query.plan() or [] for query in queries]
    send(producer, "cut", range(50), 1)
    for query, plan in zip(queries, plans, strict=True):
        assert len(plan) == 5 and sorted(numbers(read(query.reader, plan))) == list(range(103))
        assert [repr(each) for each in query.reader.partitions(*query.last)] == [repr(each) for each in plan]


# ---- partitions and topics that come


def test_a_new_partition_that_has_lost_records_already_is_a_loss(cluster, admin, producer):
    cluster.create_topic("short", partitions=1)
    query, lenient = (Query(cluster, subscribe="short", onDataLoss=what) for what in ("fail", "earliest"))
    admin.create_partitions({"short": NewPartitions(2)}).check()
    send(producer, "short", range(5), 1)
    admin.delete_records({("short", 1): 3}).check()
    with pytest.raises(errors.OffsetOutOfRange, match=r"short-1: the offsets 0 to 2 have aged out"):
        query.batch()
    assert [numbers(batch) for batch in lenient.batches()] == [[], [3, 4]]


def test_a_topic_that_is_added_begins_with_what_there_is(cluster, admin, producer):
    for name in ("first", "added", "whole"):
        cluster.create_topic(name, partitions=2)
        send(producer, name, range(10), 1)
    admin.delete_records({("added", 1): 4}).check()
    start = {"first": {"0": 0, "1": 10}}
    for what in ("fail", "skip", "earliest"):
        query = Query(cluster, start, subscribe="first,added,whole", onDataLoss=what)
        assert [numbers(batch) for batch in query.batches()] == [[], [*range(4, 10), *range(10)]]
        assert query.at == {"added": {"0": 0, "1": 10}, "first": {"0": 0, "1": 10}, "whole": {"0": 0, "1": 10}}
    query = Query(cluster, start, subscribe="first,added")
    assert numbers(query.batch()) == [] and numbers(read(query.reader, query.reader.partitions(*query.last))) == []  # replayed
    whole = Query(cluster, start, subscribe="first,whole")
    assert [numbers(batch) for batch in whole.batches()] == [list(range(10))]  # no batch of its own where nothing is missing
    query = Query(cluster, start, subscribePattern="first|added")  # which has named the topic all the time
    with pytest.raises(errors.OffsetOutOfRange, match=r"added-1: the offsets 0 to 3 have aged out"):
        query.batch()


def test_a_topic_that_is_left_out_is_said_to_be_just_that(cluster, producer):
    for name in ("kept", "left"):
        cluster.create_topic(name, partitions=1)
        send(producer, name, range(3))
    query = Query(cluster, subscribe="kept,left")
    query.batches()
    with pytest.raises(errors.OffsetOutOfRange, match=r"left-0: it is not subscribed any longer.*onDataLoss=earliest"):
        Query(cluster, query.offset, subscribe="kept").batch()
    assert Query(cluster, query.offset, subscribe="kept", onDataLoss="earliest").batches() == [[]]


def test_small_partitions_share_tasks_down_to_the_session_s_parallelism(cluster, producer, monkeypatch):
    cluster.create_topic("small", partitions=8)
    for partition in range(8):
        send(producer, "small", range(3), partition)

    def tasks(**options: str) -> int:
        return len(Query(cluster, subscribe="small", **options).plan() or [])

    monkeypatch.delenv("KAFKACORE_PARALLELISM", raising=False)
    assert [tasks(), tasks(joinSmallPartitions="true"), tasks(joinSmallPartitions="3")] == [8, 8, 3]  # not known: none is joined
    for parallelism, wanted in (("1", 1), ("2", 2), ("4", 4), ("64", 8), ("many", 8)):
        monkeypatch.setenv("KAFKACORE_PARALLELISM", parallelism)
        assert tasks() == wanted
    monkeypatch.setenv("KAFKACORE_PARALLELISM", "2")
    assert [tasks(joinSmallPartitions="false"), tasks(minPartitions="2"), tasks(joinSmallPartitions="1")] == [8, 8, 1]


@pytest.mark.parametrize("emit", ["rows", "ranges"])
def test_many_partitions_are_read_by_few_tasks(cluster, producer, monkeypatch, emit):
    """Of one topic and of several, in batches and streams: equal records, and those of a partition in their order, within a task too."""
    names = [f"few-{emit}-{i}" for i in range(2)]
    for name in names:
        cluster.create_topic(name, partitions=8)
        for partition in range(8):
            send(producer, name, range(100 * partition, 100 * partition + 5 * partition), partition)
    monkeypatch.delenv("KAFKACORE_PARALLELISM", raising=False)
    schema = KAFKA_SCHEMA if emit == "rows" else source.RANGES_SCHEMA

    def found(kind, **how):
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": ",".join(names), "emit": emit, **how}
        if kind == "batch":
            reader = KafkaSource(given).reader(schema)
            plan = list(reader.partitions())
        else:
            reader = stream_reader({**given, "startingOffsets": "earliest"}, schema)
            start = reader.initialOffset()
            start = reader.latestOffset(start, reader.getDefaultReadLimit())
            plan = list(reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit())))
        rows = [row for task in pickle.loads(pickle.dumps(plan)) for batch in reader.read(task) for row in batch.to_pylist()]
        return len(plan), [(row["topic"], row["partition"], row.get("offset", (row.get("start"), row.get("end")))) for row in rows]

    for kind in ("batch", "stream"):
        tasks, whole = found(kind)
        assert tasks == 14 and whole == sorted(whole)  # without the two empty ones
        for most, count in ((1, 1), (3, 3), (5, 5), (14, 14), (100, 14)):
            assert found(kind, maxPartitions=str(most)) == (count, whole)
        assert found(kind, maxPartitions="3", joinSmallPartitions="2")[0] == 2
        assert found(kind, maxPartitions="20", minPartitions="20")[0] <= 20 and found(kind, maxPartitions="4", minPartitions="4")[0] <= 4


def test_a_pattern_finds_topics_that_come_and_leaves_kafkas_own_alone(cluster, admin, producer):
    cluster.create_topic("logs.a", partitions=1)
    admin.alter_group_offsets("makes-the-offsets-topic", {("logs.a", 0): 0}).check()
    assert "__consumer_offsets" in admin.list_topics(include_internal=True)
    query = Query(cluster, subscribePattern=r"logs\..*|__.*", startingOffsets="latest")
    assert query.at == {"logs.a": {"0": 0}}
    cluster.create_topic("logs.b", partitions=1)
    cluster.create_topic("other.logs.c", partitions=1)
    send(producer, "logs.b", [1])
    assert numbers(query.batch()) == [1]
    assert query.at == {"logs.a": {"0": 0}, "logs.b": {"0": 1}}


def test_a_pattern_without_topics_has_no_rows(cluster):
    assert rows(cluster, subscribePattern="nothing-of-that-name") == []
    query = Query(cluster, subscribePattern="nothing-of-that-name")
    assert query.offset == {} and query.batch() is None


def test_partitions_are_assigned(cluster, producer):
    cluster.create_topic("assigned", partitions=3)
    for partition in range(3):
        send(producer, "assigned", [partition], partition)
    assert numbers(rows(cluster, assign='{"assigned":[0,2]}')) == [0, 2]
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"names a partition that does not exist.*assigned, partition 7"):
        rows(cluster, assign='{"assigned":[0,7]}')
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"option assign names a topic that does not exist.*not-there"):
        rows(cluster, assign='{"not-there":[0]}')


# ---- where a read begins and ends


def test_offsets_and_times_of_a_batch(cluster, producer):
    cluster.create_topic("ranges", partitions=2)
    for i in range(10):
        producer.send("ranges", b"%d" % i, partition=0, timestamp_ms=1_000 * i)
    send(producer, "ranges", [100, 101], 1)
    both = {"subscribe": "ranges"}
    assert numbers(rows(cluster, **both, startingOffsets='{"ranges":{"0":8,"1":-2}}')) == [8, 9, 100, 101]
    assert numbers(rows(cluster, **both, endingOffsets='{"ranges":{"0":2,"1":-1}}')) == [0, 1, 100, 101]
    assert numbers(rows(cluster, **both, startingOffsetsByTimestamp='{"ranges":{"0":7500,"1":0}}')) == [8, 9, 100, 101]
    assert numbers(rows(cluster, **both, startingTimestamp="7500", startingOffsets="latest")) == [8, 9, 100, 101]
    assert numbers(rows(cluster, **both, endingTimestamp="2000")) == [0, 1]
    assert numbers(rows(cluster, **both, endingOffsetsByTimestamp='{"ranges":{"0":4102444800000,"1":0}}')) == list(range(10))
    late = {"startingTimestamp": "4102444800000"}
    assert rows(cluster, **both, **late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(errors.NoOffsetForPartition, match=r"^no record is as young as timestamp 4102444800000.*topic ranges, partition 0"):
        rows(cluster, **both, **late)
    cluster.create_topic("ranges-empty", partitions=1)
    with pytest.raises(errors.NoOffsetForPartition, match=r"the partition is empty, so no record.*ranges-empty, partition 0"):
        rows(cluster, subscribe="ranges-empty", startingTimestamp="0")


@pytest.fixture(scope="module")
def wrong(cluster, producer):
    cluster.create_topic("wrong", partitions=2)
    send(producer, "wrong", range(3))


@each_row(
    ("options", "kind", "says"),
    [
        ({"startingOffsets": '{"wrong":{"0":0}}'}, errors.ConfigError, "startingOffsets must name exactly.*it lacks wrong-1"),
        ({"startingOffsets": '{"wrong":{"0":0,"1":0},"x":{"0":1}}'}, errors.ConfigError, "names x-0, which are not read"),
        ({"endingOffsets": '{"wrong":{"0":0}}'}, errors.ConfigError, "endingOffsets must name exactly"),
        ({"startingOffsets": '{"wrong":{"0":100,"1":0}}'}, errors.OffsetOutOfRange, "begin at offset 100 and end at 3.*wrong, partition 0"),
        ({"endingOffsets": '{"wrong":{"0":100,"1":-1}}'}, errors.OffsetOutOfRange, "end at offset 100, and the log ends at 3"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(cluster, wrong, options, kind, says):
    with pytest.raises(kind, match=says):
        rows(cluster, subscribe="wrong", **options)


def test_a_stream_does_not_begin_behind_the_end(cluster, producer):
    cluster.create_topic("behind", partitions=1)
    send(producer, "behind", range(3))
    options = {"subscribe": "behind", "startingOffsets": '{"behind":{"0":9}}'}
    with pytest.raises(errors.OffsetOutOfRange, match=r"begin at offset 9, and the log ends at 3.*behind, partition 0"):
        Query(cluster, **options)
    assert Query(cluster, **options, failOnDataLoss="false").at == {"behind": {"0": 3}}


def test_a_topic_that_does_not_exist_is_named(cluster):
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"option subscribe names a topic that does not exist .topic never-was"):
        rows(cluster, subscribe="never-was")
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"never-was"):
        Query(cluster, subscribe="never-was", failOnDataLoss="false")


def test_brokers_that_cannot_be_reached_are_named():
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "kafka.default.api.timeout.ms": "300"}
    with pytest.raises(errors.KafkaTimeoutError, match=r"127.0.0.1:9"):
        KafkaSource(given).reader(KAFKA_SCHEMA).partitions()


# ---- records that are gone


def test_offsets_that_have_aged_out(cluster, admin, producer):
    cluster.create_topic("aged", partitions=3)
    send(producer, "aged", range(10))
    send(producer, "aged", range(20, 23), 1)
    send(producer, "aged", range(30, 33), 2)
    start = {"aged": {"0": 2, "1": 1, "2": 0}}
    admin.delete_records({("aged", 0): 5, ("aged", 2): 1}).check()
    with pytest.raises(errors.OffsetOutOfRange, match=r"aged-0: the offsets 2 to 4 have aged out .*; the log begins at 5") as caught:
        Query(cluster, start, subscribe="aged").batch()
    assert "aged-1" not in str(caught.value) and "aged-2: the offsets 0 to 0 have aged out" in str(caught.value)
    for what in ("skip", "earliest"):
        query = Query(cluster, start, subscribe="aged", onDataLoss=what)
        assert [numbers(batch) for batch in query.batches()] == [[], [5, 6, 7, 8, 9, 21, 22, 31, 32]]
        assert query.reader.tolerated == 2
    assert numbers(rows(cluster, subscribe="aged")) == [5, 6, 7, 8, 9, 20, 21, 22, 31, 32]  # "earliest" is no loss
    with pytest.raises(errors.OffsetOutOfRange, match=r"aged-0: the offsets 2 to 4 have aged out"):
        rows(cluster, subscribe="aged", startingOffsets='{"aged":{"0":2,"1":0,"2":1}}')


def test_offsets_that_age_out_under_a_task(cluster, admin, producer):
    """The task reads another partition, too."""
    cluster.create_topic("vanish", partitions=2)
    send(producer, "vanish", range(10))
    send(producer, "vanish", range(20, 23), 1)
    options = {"subscribe": "vanish", "joinSmallPartitions": "1"}
    strict, lenient = (Query(cluster, **options, onDataLoss=what) for what in ("fail", "earliest"))
    plans = [strict.plan(), lenient.plan()]
    assert [len(plan) for plan in plans] == [1, 1]
    admin.delete_records({("vanish", 0): 5}).check()
    with pytest.raises(errors.OffsetOutOfRange, match=r"offsets 0 to 9 were to be read.*from 0 on some are not there: offsets before 5"):
        read(strict.reader, plans[0])
    assert numbers(read(lenient.reader, plans[1])) == [5, 6, 7, 8, 9, 20, 21, 22]


def test_a_topic_that_goes_under_a_task(cluster, admin, producer):
    for name in ("removed", "unharmed"):
        cluster.create_topic(name, partitions=1)
        send(producer, name, range(3))
    options = {"subscribe": "removed,unharmed", "joinSmallPartitions": "1", "kafkaConsumer.pollTimeoutMs": "300"}
    strict, lenient = (Query(cluster, **options, onDataLoss=what) for what in ("fail", "earliest"))
    plans = [strict.plan(), lenient.plan()]
    admin.delete_topics(["removed"]).check()
    with pytest.raises(errors.OffsetOutOfRange, match=r"partition no longer exists: the topic was deleted .*topic removed, partition 0"):
        read(strict.reader, plans[0])
    assert numbers(read(lenient.reader, plans[1])) == [0, 1, 2]


def test_a_topic_that_is_made_anew_under_a_task(cluster, admin, producer):
    cluster.create_topic("remade", partitions=1)
    send(producer, "remade", range(3))
    options = {"subscribe": "remade", "kafkaConsumer.pollTimeoutMs": "300"}
    strict, lenient = (Query(cluster, **options, onDataLoss=what) for what in ("fail", "earliest"))
    plans = [strict.plan(), lenient.plan()]
    admin.delete_topics(["remade"]).check()
    cluster.create_topic("remade", partitions=1)
    with pytest.raises(errors.OffsetOutOfRange, match=r"from 0 on some are not there: the log ends at 0: the topic was created again"):
        read(strict.reader, plans[0])
    assert read(lenient.reader, plans[1]) == []


def test_a_consumer_of_a_failed_task_is_closed_and_another_one_is_lent_again(cluster):
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    with pytest.raises(ZeroDivisionError), clients.Lent(client) as failed:
        with clients.Lent(client) as kept:
            pass
        raise ZeroDivisionError
    with pytest.raises(errors.ClosedError):
        failed.poll(0)
    with clients.Lent(client) as again:
        assert again is kept and again.list_topics()


def test_a_topic_deleted_while_it_is_read(cluster, admin, producer):
    for name in ("deleted", "stays"):
        cluster.create_topic(name, partitions=1)
        send(producer, name, range(3))
    strict = Query(cluster, subscribe="deleted,stays")
    lenient = Query(cluster, subscribe="deleted,stays", failOnDataLoss="false")
    for query in (strict, lenient):
        assert len(query.batch() or []) == 6
    admin.delete_topics(["deleted"]).check()
    with pytest.raises(errors.OffsetOutOfRange, match=r"deleted-0: the partition no longer exists.*the query is at offset 3"):
        strict.batch()
    with pytest.raises(errors.OffsetOutOfRange, match=r"deleted-0: the partition no longer exists"):
        Query(cluster, strict.offset, subscribe="deleted,stays").batch()  # after a restart
    assert lenient.batches() == [[]]
    assert lenient.at == {"stays": {"0": 3}}
    again = Query(cluster, {"deleted": {"0": 3}, "stays": {"0": 3}}, subscribe="deleted,stays", failOnDataLoss="false")
    assert again.batches() == [[]]
    cluster.create_topic("deleted", partitions=1)
    send(producer, "deleted", range(2))
    assert [numbers(batch) for batch in lenient.batches()] == [[0, 1]]


def test_a_topic_made_anew_while_it_is_read(cluster, admin, producer):
    cluster.create_topic("anew", partitions=1)
    send(producer, "anew", range(5))
    queries = {what: Query(cluster, subscribe="anew", onDataLoss=what) for what in ("fail", "earliest", "skip")}
    for query in queries.values():
        query.batch()
    admin.delete_topics(["anew"]).check()
    cluster.create_topic("anew", partitions=1)
    send(producer, "anew", [100, 101])
    with pytest.raises(errors.OffsetOutOfRange, match="the topic was deleted and created again"):
        queries["fail"].batch()
    assert [numbers(batch) for batch in queries["earliest"].batches()] == [[], [100, 101]]
    assert queries["skip"].batches() == [[]]
    send(producer, "anew", [200])
    for what in ("earliest", "skip"):
        assert numbers(queries[what].batch()) == [200]


# ---- what the options say before anything is asked


def test_constructors_ask_nobody():
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
    batch, stream = KafkaSource(given).reader(KAFKA_SCHEMA), KafkaSource(given).streamReader(KAFKA_SCHEMA)
    assert KafkaSource(given).schema() == KAFKA_SCHEMA
    assert KafkaSource({**given, "includeHeaders": "true"}).schema() == WITH_HEADERS
    pickle.dumps((batch, stream))


def test_batches_of_few_rows_and_bytes(cluster, producer, monkeypatch):
    cluster.create_topic("bounded", partitions=1)
    producer.send_many("bounded", [b"x" * 600] * 7).result(60)
    query = Query(cluster, subscribe="bounded")
    plan = query.plan() or []
    for rows_most, bytes_most, sizes in ((50_000, 16 << 20, [7]), (3, 16 << 20, [3, 3, 1]), (50_000, 2_500, [4, 3]), (50_000, 10, [1] * 7)):
        monkeypatch.setattr("kafkacore.spark.rows.MAX_BATCH_ROWS", rows_most)
        monkeypatch.setattr("kafkacore.spark.rows.MAX_BATCH_BYTES", bytes_most)
        assert [batch.num_rows for task in plan for batch in query.reader.read(task)] == sizes


def test_batches_have_sparks_types_exactly(cluster, producer):
    from pyspark.sql.pandas.types import to_arrow_schema

    cluster.create_topic("types", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    send(producer, "types", range(3))
    producer.send("types", None, partition=0, headers=[("h", b"x"), ("n", None)], timestamp_ms=-1 & 0x7FFFFFFF)
    producer.flush()
    query = Query(cluster, subscribe="types")
    [batch] = query.reader.read(*(query.plan() or []))
    assert batch.schema == to_arrow_schema(WITH_HEADERS, timezone="UTC")
    assert isinstance(batch, pa.RecordBatch) and batch.column("timestampType").to_pylist() == [1] * 4
    assert batch.column("headers").to_pylist() == [None, None, None, [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]]


def test_a_stream_that_goes_on_with_an_option_that_cannot_be_says_which(cluster: EmbeddedCluster) -> None:
    query = Query(cluster, {"t": {"0": 0}}, subscribe="t", endingOffsets="latest")
    with pytest.raises(errors.ConfigError, match="option endingOffsets has no effect in a streaming read"):
        query.batch()
    with pytest.raises(errors.ConfigError, match="option endingOffsets has no effect in a streaming read"):
        query.reader.partitions({"t": {"0": 0}}, {"t": {"0": 1}})


# ---- options


@each_row(
    ("given", "says"),
    [
        ({"subscribe": "t", "value.fromat": "json"}, "unknown option 'value.fromat'; did you mean value.format"),
        ({"subscribe": "t", "topic": "t"}, "option topic has no effect in a read"),
        ({"Assign": "t"}, "option assign: expected JSON"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "5", "endingOffsets": "latest"}, "has no effect in a"),
        ({"topic": "t", "partitoner": "sticky"}, "unknown option 'partitoner'; did you mean partitioner"),
        ({"topic": "t", "path": "elsewhere"}, "option path"),
        ({"topic": "t", "startingOffsets": "earliest"}, "option startingOffsets has no effect in a write"),
    ],
)
def test_options_are_checked_when_the_source_is_made_with_or_without_a_schema(given: dict[str, str], says: str) -> None:
    """Spark does not ask for the schema where one is given, and masks what `streamReader` raises."""
    with pytest.raises(errors.ConfigError, match=says):
        KafkaSource({"kafka.bootstrap.servers": "b:1", **given})


@each_row(
    "given",
    [
        {"subscribe": "t", "endingOffsets": "latest"},
        {"subscribe": "t", "maxOffsetsPerTrigger": "5", "startingOffsets": "latest"},
        {"topic": "t", "checkpointLocation": "/c", "queryName": "q"},
        {"kafka.acks": "all"},  # the topic is a column
    ],
)
def test_what_fits_one_kind_of_read_or_write_is_let_through(given: dict[str, str]) -> None:
    KafkaSource({"kafka.bootstrap.servers": "b:1", **given})
