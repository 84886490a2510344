"""KafkaConsumer on the embedded broker, over real sockets."""

import contextlib
import errno
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from produce_raw import produce
from test_fetcher import numbers

from kafkacore import errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.clock import JumpingClock
from kafkacore.consumer import KafkaConsumer
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.offsets import PositionKeeper
from kafkacore.consumer.subscription import SubscriptionState
from kafkacore.consumer.topics import TopicWatch
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.net.client import NetworkClient
from kafkacore.net.driver import CallerDriver
from kafkacore.types import NewTopic, Node, TopicPartition
from tests.kit.failing_once import VALUES, FailingOnce
from tests.kit.inside import fetcher_of, metadata_of, subscription_of, topics_of
from tests.kit.waiting import until
from tests.kit.waits import interrupt

pytestmark = pytest.mark.usefixtures("client_face")

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PLACES = {place.__name__: place for place in (NetworkClient, Fetcher, PositionKeeper, SubscriptionState)}


@pytest.fixture
def consumer(broker):
    settings = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "allow_auto_create_topics": False}
    with KafkaConsumer(bootstrap_servers=broker.address, **settings) as made:
        yield made


def read(consumer, count, **options):
    """Values by partition until `count` records are there."""
    got = {}
    while sum(map(len, got.values())) < count:
        polled = consumer.poll(10, **options)
        assert polled, f"{got} and then nothing"
        for tp, records in polled.items():
            got.setdefault(tp, []).extend(r.value for r in records)
    return got


def test_poll_reads_all_partitions_of_a_topic_in_order(broker):
    produce(broker.address, "t", 0, numbers(0, 1000))
    produce(broker.address, "t", 1, numbers(0, 300))
    with KafkaConsumer("t", bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        assert read(consumer, 1300, max_records=70) == {A: numbers(0, 1000), B: numbers(0, 300)}
        assert consumer.assignment() == {A, B}
        assert consumer.subscription() == {"t"}
        assert consumer.position(A) == 1000
        assert consumer.lag(A) == 0


def test_poll_batch_gives_columns(broker, consumer):
    produce(broker.address, "t", 0, numbers(0, 250))
    consumer.assign([A])
    offsets, values = [], []
    while len(values) < 250:
        batch = consumer.poll_batch(10)
        assert len(batch) == 1
        assert batch.record_count == len(batch[0])
        assert (batch[0].topic, batch[0].partition) == ("t", 0)
        offsets += batch[0].offsets.tolist()
        values += batch[0].values.to_pylist()
        assert [r.offset for r in batch.records()] == batch[0].offsets.tolist()
        assert batch.to_arrow().column("value").to_pylist() == batch[0].values.to_pylist()
    assert (offsets, values) == (list(range(250)), numbers(0, 250))
    assert consumer.position(A) == 250
    empty = consumer.poll_batch(0)
    assert not empty
    assert empty.to_arrow().num_rows == 0


def test_a_for_loop_reads_and_its_position_follows_record_by_record(broker, consumer):
    produce(broker.address, "t", 0, numbers(0, 600))
    consumer.assign([A])
    got = []
    for record in consumer:
        got.append(record.value)
        assert consumer.position(A) == record.offset + 1
        if len(got) == 550:
            break
    assert got == numbers(0, 550)
    assert consumer.lag(A) == 50
    got = []
    for record in consumer:  # goes on where the first loop stopped
        got.append(record.offset)
        if record.offset == 555:
            consumer.seek(A, 590)
        if record.offset == 599:
            break
    assert got == [*range(550, 556), *range(590, 600)]
    consumer.seek(A, 598)
    assert [consumer.close() for _ in consumer] == [None], "the end of the loop"
    with pytest.raises(errors.ClosedError):
        consumer.poll(0)


def test_seeks_pauses_and_positions(broker, consumer):
    produce(broker.address, "t", 0, numbers(0, 100))
    produce(broker.address, "t", 1, numbers(0, 100))
    consumer.assign([A, B])
    consumer.seek(A, 95)
    consumer.pause(B)
    assert consumer.paused() == {B}
    assert read(consumer, 5) == {A: numbers(95, 5)}
    assert consumer.poll(0.1) == {}
    consumer.resume(B)
    assert read(consumer, 100) == {B: numbers(0, 100)}
    consumer.seek_to_beginning(A)
    assert consumer.position(A) == 0
    consumer.seek_to_end()
    assert (consumer.position(A), consumer.position(B)) == (100, 100)
    consumer.seek_to_beginning()
    produce(broker.address, "t", 1, [b"x"])
    assert read(consumer, 201) == {A: numbers(0, 100), B: [*numbers(0, 100), b"x"]}


def test_offsets_by_place_and_time(broker, consumer):
    produce(broker.address, "t", 0, numbers(0, 100))
    assert consumer.beginning_offsets([A, B]) == {A: 0, B: 0}
    assert consumer.end_offsets([A, B]) == {A: 100, B: 0}
    found = consumer.offsets_for_times({A: 1_000_042, B: 5})
    assert (found[A].offset, found[A].timestamp_ms, found[B]) == (42, 1_000_042, None)
    assert consumer.partitions_for("t") == [0, 1]


def test_deserializers_and_what_they_cannot_read(broker):
    produce(broker.address, "t", 0, [b"1", b"2", b"three", b"4"])

    class WithTopic:
        def deserialize(self, topic, data):
            return topic + data.decode()

    settings = {"key_deserializer": WithTopic(), "value_deserializer": int}
    with KafkaConsumer("t", bootstrap_servers=broker.address, auto_offset_reset="earliest", **settings) as consumer:
        assert [(r.key, r.value) for r in consumer.poll(10)[A]] == [("tk0", 1), ("tk1", 2)]
        for _ in range(2):
            with pytest.raises(errors.SerializationError) as caught:
                consumer.poll(10)
            assert (caught.value.offset, consumer.position(A)) == (2, 2)
            assert isinstance(caught.value.__cause__, ValueError)
        consumer.seek(A, 3)
        assert [r.value for r in consumer.poll(10)[A]] == [4]


def test_what_cannot_be_deserialized_costs_no_record_of_another_partition(broker):
    with KafkaAdminClient(bootstrap_servers=broker.address) as admin:
        admin.create_partitions({"t": 3}).check()
    tps = [TopicPartition("t", partition) for partition in range(3)]
    for tp, values in zip(tps, VALUES, strict=True):
        produce(broker.address, "t", tp.partition, values)
    seen = {tp: [] for tp in tps}
    settings = {"auto_offset_reset": "earliest", "value_deserializer": (failing := FailingOnce())}
    with KafkaConsumer(bootstrap_servers=broker.address, **settings) as consumer:
        consumer.assign(tps)
        for _ in range(30):
            with contextlib.suppress(errors.SerializationError):
                for tp, records in consumer.poll(0.1).items():
                    seen[tp] += [record.value for record in records]
            if sum(map(len, seen.values())) >= 9:
                break
    assert not failing.left and list(seen.values()) == VALUES


def test_a_grown_topic_is_read_from_the_start_of_its_new_partitions(broker):
    with KafkaConsumer("t", bootstrap_servers=broker.address, auto_offset_reset="latest", metadata_max_age_ms=100) as consumer:
        until(lambda: consumer.assignment() == {A, B}, "it knows the topic as it was", consumer)
        with KafkaAdminClient(bootstrap_servers=broker.address) as admin:
            admin.create_partitions({"t": 3}).check()
        produce(broker.address, "t", 2, [b"first"])
        assert read(consumer, 1) == {TopicPartition("t", 2): [b"first"]}


@pytest.mark.sync_only("a loop is one thread")
def test_two_threads_at_once_are_refused(broker):
    produce(broker.address, "t", 0, [b"x"])
    inside, leave = threading.Event(), threading.Event()

    def slow(data):
        inside.set()
        assert leave.wait(60)
        return data

    with KafkaConsumer("t", bootstrap_servers=broker.address, auto_offset_reset="earliest", value_deserializer=slow) as consumer:
        polled = []
        thread = threading.Thread(target=lambda: polled.append(consumer.poll(10)))
        thread.start()
        assert inside.wait(60)
        with pytest.raises(errors.IllegalStateError, match="another thread"):
            consumer.poll(0)
        leave.set()
        thread.join()
        assert [r.value for r in polled[0][A]] == [b"x"]


def test_a_broker_that_comes_back(broker, consumer):
    produce(broker.address, "t", 0, numbers(0, 10))
    consumer.assign([A])
    assert read(consumer, 10) == {A: numbers(0, 10)}
    broker.stop()
    assert consumer.poll(0.1) == {}
    assert not consumer.health().ok
    broker.start()
    produce(broker.address, "t", 0, [b"back"])
    assert read(consumer, 1) == {A: [b"back"]}
    assert consumer.health().ok


def test_nobody_there_is_said_with_the_reasons():
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1") as consumer, pytest.raises(errors.KafkaTimeoutError) as caught:
        consumer.end_offsets([A], timeout=0.3)
    assert "refused" in str(caught.value)


def test_a_position_out_of_range_is_reset_within_the_call_that_finds_it(broker):
    """With nothing else on the way, nothing but the reset itself ends the wait: a `for` loop stood still."""
    produce(broker.address, "t", 0, numbers(0, 10))
    with (
        KafkaAdminClient(bootstrap_servers=broker.address) as admin,
        KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer,
    ):
        admin.delete_records({A: 5})
        consumer.assign([A])
        consumer.seek(A, 0)
        assert next(iter(consumer)).offset == 5
        consumer.seek(A, 100)
        assert consumer.poll(None)[A][0].offset == 5


def test_closing_ends_the_fetch_session_and_the_connections(broker):
    others = broker.statistics()["connections"]
    consumer = KafkaConsumer("t", bootstrap_servers=broker.address, fetch_max_wait_ms=10)
    while broker.statistics()["fetch_sessions"] == 0:
        consumer.poll(0.05)
    assert broker.statistics()["fetch_sessions"] == 1
    assert broker.statistics()["connections"] > others
    consumer.pause(A, B)
    while fetcher_of(consumer).in_flight:  # a session with a fetch in flight is left to the broker
        consumer.poll(0.01)
    consumer.close()
    assert broker.statistics()["fetch_sessions"] == 0
    consumer.close()
    with pytest.raises(errors.ClosedError):
        consumer.poll(0)


def test_usage_errors(broker, consumer):
    with pytest.raises(errors.IllegalStateError, match="nothing to read"):
        consumer.poll(0)
    with pytest.raises(errors.ConfigError, match="auto_offset_reset"):
        KafkaConsumer({"bootstrap.servers": broker.address, "auto.offset.reset": "newest"})
    with pytest.raises(errors.ConfigError, match=r"did you mean auto\.offset\.reset"):
        KafkaConsumer({"bootstrap.servers": broker.address, "auto.ofset.reset": "latest"})
    with pytest.raises(errors.IllegalStateError, match="not assigned"):
        consumer.seek(A, 0)
    with pytest.raises(errors.UsageError, match="pair"):
        consumer.assign(["t"])
    with (
        KafkaConsumer(bootstrap_servers=broker.address, allow_auto_create_topics=False) as other,
        pytest.raises(errors.UnknownTopicOrPartition),
    ):
        other.partitions_for("no-such-topic")
    consumer.assign([A])
    with pytest.raises(errors.IllegalStateError, match="mutually exclusive"):
        consumer.subscribe(["t"])
    with pytest.raises(errors.UsageError, match="offset"):
        consumer.seek(A, -1)
    with pytest.raises(errors.UsageError, match="max_records"):
        consumer.poll(0, max_records=0)


@pytest.mark.parametrize("call", [("commit",), ("commit_async",), ("committed", A), ("consumer_group_metadata",)])
def test_group_calls_need_a_group(consumer, call):
    with pytest.raises(errors.UsageError, match=f"{call[0]} needs a consumer group: set group_id"):
        getattr(consumer, call[0])(*call[1:])


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("subscribed", [True, False])
def test_a_topic_made_anew_is_read_from_its_start(broker, partitions, subscribed):
    """The old position may well exist in the new topic: what lies before it must not be lost."""
    with (
        KafkaAdminClient(bootstrap_servers=broker.address) as admin,
        KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest", fetch_max_wait_ms=10, retry_backoff_ms=5) as consumer,
    ):
        consumer.subscribe(["t"]) if subscribed else consumer.assign([A, B])
        for index in range(2):
            produce(broker.address, "t", index, numbers(0, 100))
        assert read(consumer, 200) == {A: numbers(0, 100), B: numbers(0, 100)}
        admin.delete_topics(["t"]).check()
        admin.create_topics([NewTopic("t", partitions, 1)]).check()
        for index in range(partitions):
            produce(broker.address, "t", index, numbers(1000, 150))
        expected = [TopicPartition("t", index) for index in range(partitions) if subscribed or index < 2]
        assert read(consumer, 150 * len(expected)) == dict.fromkeys(expected, numbers(1000, 150))
        assert consumer.assignment() == set(expected if subscribed else [A, B])


@pytest.mark.parametrize("reset", ["latest", "none", "seek"])
def test_a_topic_made_anew_is_new_whatever_the_reset_strategy_is(broker, reset):
    """All of its records came after the position was given, so `latest` misses none of them; `none` leaves the decision to the caller."""
    given = "none" if reset == "seek" else reset
    settings = {"bootstrap_servers": broker.address, "auto_offset_reset": given, "fetch_max_wait_ms": 10, "retry_backoff_ms": 5}
    with KafkaAdminClient(bootstrap_servers=broker.address) as admin, KafkaConsumer(**settings) as consumer:
        consumer.assign([A])
        consumer.seek(A, 0)
        produce(broker.address, "t", 0, numbers(0, 10))
        assert read(consumer, 10) == {A: numbers(0, 10)}
        admin.delete_topics(["t"]).check()
        admin.create_topics([NewTopic("t", 1, 1)]).check()
        produce(broker.address, "t", 0, numbers(1000, 20))
        if reset == "latest":
            assert read(consumer, 20) == {A: numbers(1000, 20)}
        elif reset == "none":
            with pytest.raises(errors.NoOffsetForPartition):
                read(consumer, 20)
        else:
            consumer.seek(A, 12)
            assert read(consumer, 8) == {A: numbers(1012, 8)}


def test_health_names_a_partition_that_does_not_move_and_no_other(broker):
    clock = JumpingClock()
    for index in range(2):
        produce(broker.address, "t", index, numbers(0, 10))
    settings = {"bootstrap_servers": broker.address, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 10}
    with KafkaConsumer(**settings, clock=clock) as consumer:
        consumer.assign([A, B])
        while consumer.lag(A) is None or consumer.lag(B) is None:
            consumer.poll(0.1, max_records=1)
        consumer.seek(A, 0)
        consumer.seek(B, 0)
        seen = 0
        for _ in range(4):  # A goes on, a record every 20 s; B is not read
            assert consumer.health().stalled == (() if seen < 2 else (B,))
            clock.sleep(20_000)
            consumer.seek(A, seen := seen + 1)
        assert [problem for problem in consumer.health().problems if "t-1 has not moved for" in problem]
        consumer.pause(B)
        assert consumer.health().stalled == ()


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
@pytest.mark.parametrize("how", ["poll", "poll_batch", "iterate"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, errors.AuthenticationFailedError])
def test_an_error_while_fetching_ahead_loses_no_record(broker, consumer, monkeypatch, how, error):
    for index in range(2):
        produce(broker.address, "t", index, numbers(0, 300))
    consumer.assign([A, B])
    assert consumer.poll(10, max_records=1)
    first = {tp: consumer.position(tp) for tp in (A, B)}

    def fail(now_ms):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(fetcher_of(consumer), "send_fetches", fail)
        fetcher_of(consumer).wants_fetch = True
        with pytest.raises(error):
            consumer.poll(10) if how == "poll" else consumer.poll_batch(10) if how == "poll_batch" else next(iter(consumer))
    assert {tp: consumer.position(tp) for tp in (A, B)} == first
    assert read(consumer, 599) == {A: numbers(first[A], 300 - first[A]), B: numbers(first[B], 300 - first[B])}


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
def test_ctrl_c_in_a_deserializer_loses_no_record(broker):
    produce(broker.address, "t", 0, numbers(0, 100))
    fuse = iter(range(60))

    def decode(data):
        if next(fuse, None) == 50:
            raise KeyboardInterrupt
        return data

    with KafkaConsumer("t", bootstrap_servers=broker.address, auto_offset_reset="earliest", value_deserializer=decode) as consumer:
        with pytest.raises(KeyboardInterrupt):
            read(consumer, 100)
        assert read(consumer, 100) == {A: numbers(0, 100)}


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
@pytest.mark.parametrize(
    "step", ["NetworkClient._do_send", "NetworkClient._handle_completed_receives", "Fetcher._take_answers", "PositionKeeper._collect"]
)
def test_a_consumer_goes_on_after_an_interrupt_at_any_step(broker, monkeypatch, step):
    """Ctrl+C may leave a request half sent or an answer half taken in: the next call starts over with new connections."""
    produce(broker.address, "t", 0, numbers(0, 300))
    owner, name = step.split(".")
    place = PLACES[owner]
    original = getattr(place, name)
    got = []
    with KafkaConsumer(
        "t", bootstrap_servers=broker.address, auto_offset_reset="earliest", max_partition_fetch_bytes=2000, fetch_max_wait_ms=10
    ) as consumer:
        for nth in range(1, 9):
            count = itertools.count(1)

            def interrupted(*args, count=count, nth=nth):
                if next(count) == nth:
                    raise KeyboardInterrupt
                return original(*args)

            with monkeypatch.context() as patch:
                patch.setattr(place, name, interrupted)
                with contextlib.suppress(KeyboardInterrupt):
                    while len(got) < 30 * nth and (polled := consumer.poll(10, max_records=7)):
                        got += [r.value for r in polled[A]]
        got += read(consumer, 300 - len(got)).get(A, [])
    assert got == numbers(0, 300)


@pytest.mark.parametrize("error", [MemoryError, errors.InternalError])
@pytest.mark.parametrize("step", ["Fetcher._answered", "Fetcher._take_answers", "PositionKeeper._collect", "NetworkClient._do_send"])
def test_an_error_that_is_no_answer_of_a_broker_starts_over_as_well(broker, consumer, monkeypatch, step, error):
    """It ends a call between any two steps, as Ctrl+C does: what was in flight would never be asked for again."""
    produce(broker.address, "t", 0, numbers(0, 3))
    consumer.assign([A])
    owner, name = step.split(".")
    place = PLACES[owner]

    def fail(*_):
        raise error("no room")

    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail)
        with pytest.raises(error):
            consumer.poll(10)
    assert read(consumer, 3) == {A: numbers(0, 3)}


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
@pytest.mark.parametrize("step", ["Fetcher.start_anew", "PositionKeeper.start_anew", "SubscriptionState.settle_anew"])
def test_a_second_interrupt_where_the_first_is_put_in_order(broker, consumer, monkeypatch, step):
    """What was in flight would never be asked for again."""
    produce(broker.address, "t", 0, numbers(0, 3))
    consumer.assign([A])
    owner, name = step.split(".")
    for where, what in ((Fetcher, "_answered"), (PLACES[owner], name)):
        with monkeypatch.context() as patch:
            patch.setattr(where, what, interrupt)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(10)
    assert read(consumer, 3) == {A: numbers(0, 3)}


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
def test_a_poller_that_cannot_be_made_leaves_the_client_to_other_threads(broker, consumer, monkeypatch):
    produce(broker.address, "t", 0, numbers(0, 3))
    consumer.assign([A])
    full = OSError(errno.EMFILE, "too many open files")
    for where, what, error in ((Fetcher, "_answered", KeyboardInterrupt()), (CallerDriver, "_new_client", full)):

        def fail(*_, error=error):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(where, what, fail)
            with pytest.raises(type(error)):
                consumer.poll(10)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(read, consumer, 3).result(30) == {A: numbers(0, 3)}


@pytest.mark.sync_only("makes no call that waits")
def test_a_metadata_answer_costs_the_topics_that_it_changes(monkeypatch):
    infos = {f"t{nth}": TopicInfo(f"t{nth}", bytes([nth + 1]) * 16, [PartitionInfo(0, 1, 0)]) for nth in range(40)}
    denied = TopicInfo("t7", error=errors.TopicAuthorization("no", topic="t7"))
    nodes = {1: Node(1, "127.0.0.1", 1)}
    looked = []
    looks = TopicWatch._refusals
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1") as reader:
        watch = topics_of(reader)
        monkeypatch.setattr(watch, "_refusals", lambda names: looks(watch, looked.append(sorted(names)) or looked[-1]))
        monkeypatch.setattr(watch, "_start_topic_over", lambda info, follows: looked.append(info.name))
        reader.subscribe(infos)
        for topics in (infos, {**infos, "t7": denied}, {**infos, "t7": denied}, infos, {**infos, "t9": infos["t9"]._replace()}):
            del looked[:]
            metadata_of(reader).snapshot = ClusterSnapshot(nodes, topics=topics)
            watch.follow()
            if topics is infos and watch.owed:
                assert looked == [["t7", "t7"], "t7"]  # changed, and refused before
                watch.owed.clear()
            elif topics is infos:
                assert len(looked[0]) == 40
            elif topics["t7"] is denied:
                assert looked == [["t7"]]
                assert watch.owed == {"t7": denied.error}
            else:
                assert looked == [["t9"]]
        assert len(reader.assignment()) == 40


def seen_by(reader, **topics):
    """The consumer's metadata are these: topics with one partition, or refused by an error."""
    known = {
        name: TopicInfo(name, error=found) if found else TopicInfo(name, name.encode() * 16, [PartitionInfo(0, 1, 0)])
        for name, found in topics.items()
    }
    metadata_of(reader).snapshot = ClusterSnapshot({1: Node(1, "127.0.0.1", 1)}, topics=known)
    topics_of(reader).follow()


@pytest.mark.sync_only("makes no call that waits")
def test_a_refusal_of_the_cluster_is_raised_once_and_asked_for_again(monkeypatch):
    """Of two that are refused one is allowed later, and read."""
    denied, invalid = errors.TopicAuthorization("no", topic="t"), errors.InvalidTopic("no", topic="v")
    asked = []
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1") as reader:
        watch = topics_of(reader)
        reader.subscribe(["t", "u", "v"])
        monkeypatch.setattr(metadata_of(reader), "request_update", lambda: asked.append("t"))
        for answers, of_v in ((1, invalid), (2, invalid), (3, None)):
            seen_by(reader, t=denied, u=None, v=of_v)
            assert len(asked) == answers
            if answers == 1:
                assert watch.owed == {"t": denied, "v": invalid}
                with pytest.raises((errors.TopicAuthorization, errors.InvalidTopic)):
                    watch.raise_owed()
            watch.raise_owed()
        assert reader.assignment() == {("u", 0), ("v", 0)}


@pytest.mark.sync_only("makes no call that waits")
def test_of_two_topics_that_do_not_exist_one_is_created(caplog):
    clock = JumpingClock()
    absent = [errors.UnknownTopicOrPartition(f"no {nth}") for nth in range(6)]  # each answer is another one
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1", clock=clock) as reader:
        watch = topics_of(reader)
        reader.subscribe(["t", "u"])
        for nth in (0, 1):
            seen_by(reader, t=absent[nth], u=absent[nth])
        seen_by(reader, t=absent[2], u=None)
        assert [problem.partition(":")[0] for problem in watch.problems(clock.now_ms())] == ["topic t does not exist"]
        assert reader.assignment() == {("u", 0)}
        for nth in (3, 4):
            seen_by(reader, t=absent[nth], u=absent[nth])
        assert [caplog.text.count(f"topic {name} does not exist") for name in "tu"] == [1, 2]


@pytest.mark.sync_only("makes no call that waits")
def test_of_two_topics_that_were_deleted_while_stretches_are_read_one_comes_back():
    clock = JumpingClock()
    absent = [errors.UnknownTopicOrPartition(f"no {nth}") for nth in range(2)]
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1", clock=clock) as reader:
        watch = topics_of(reader)
        reader.assign([("t", 0), ("u", 0)])
        subscription_of(reader).begin_stretches()
        seen_by(reader, t=absent[0], u=absent[0])
        clock.sleep(4_000)
        seen_by(reader, t=absent[1], u=None)
        clock.sleep(2_000)
        assert watch.owed == {}
        seen_by(reader, t=absent[0], u=absent[0])
        assert watch.owed.keys() == {"t"}


@pytest.mark.sync_only("makes no call that waits")
def test_in_a_group_metadata_assign_nothing():
    with KafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as reader:
        reader.subscribe(["t"])
        topics = {"t": TopicInfo("t", partitions=[PartitionInfo(0, 1)])}
        metadata_of(reader).snapshot = ClusterSnapshot({1: Node(1, "127.0.0.1", 1)}, topics=topics)
        topics_of(reader).follow()
        assert reader.assignment() == set()
