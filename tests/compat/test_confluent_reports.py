"""The short cut of `produce` and the reports of batches (native/reports.pxi), Message and MessagesInHand (native/message.pxi): short and
general way do the same, and nothing of a report is lost."""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from kafkacore._codec import ConsumerRecord, MessagesInHand, ProducerCore, ReportedSend, message_method, recast_records, send_method
from kafkacore.compat.confluent import KafkaError, KafkaException, Message, Producer
from kafkacore.testing import EmbeddedCluster
from tests.compat.confluent_serving import NOBODY
from tests.kit.clusters import addresses
from tests.kit.inside import producer_in, sender_of, take_general_way, thread_of
from tests.kit.rows import each_row
from tests.kit.waiting import until

WAIT_S = 60.0
NOW_MS = 1_700_000_000_000


servers = addresses({"t": 3})


def producer_of_t(servers: str, **settings: Any) -> Any:
    made = Producer({"bootstrap.servers": servers, "linger.ms": 1} | settings)
    made.list_topics("t", timeout=WAIT_S)
    return made


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("t", b"v"), {}),
    (("t", "text", "key", 1), {"timestamp": NOW_MS}),
    (("t",), {"key": b"k", "partition": 2}),
    (("t", b"v", None, -1, None), {}),
    (("t",), {"value": b"v", "headers": {"a": "b"}, "partition": 0}),
    (("t",), {"value": b"v", "headers": [], "partition": 0}),
    (("t", b"", b"", 0), {}),
    ((), {"topic": "t", "value": b"named"}),
    (("t", "".join(["v", "w"]), None, int("1")), {"timestamp": int("170") * 10**10}),
]


def test_both_ways_report_the_same(servers: str) -> None:
    found = []
    for short in (True, False):
        with producer_of_t(servers) as made:
            if not short:
                take_general_way(made)
            seen: list[Any] = []

            def report(error: Any, m: Any, seen: list[Any] = seen) -> None:
                chosen = m.partition() if m.key() is not None else None
                seen.append(
                    (error, m.topic(), chosen, m.key(), m.value(), m.headers(), m.timestamp()[0], m.error(), m.latency() > 0, len(m))
                )

            for nth, (args, named) in enumerate(CALLS):
                place = "callback" if nth % 2 and len(args) < 5 else "on_delivery"
                made.produce(*args, **named, **{place: report})
                assert made.flush(WAIT_S) == 0
            found.append(seen)
    assert found[0] == found[1]
    assert len(found[0]) == len(CALLS)


@each_row(
    ("args", "named", "name"),
    [
        (("t", 5), {}, "TypeError"), (("t", b"v", 5), {}, "TypeError"), (("t", bytearray(b"v")), {}, "TypeError"), ((), {}, "TypeError"),
        (("t", b"v", None, None), {}, "TypeError"), ((b"t", b"v"), {}, "TypeError"), (("t", b"v", None, 17), {}, "_UNKNOWN_PARTITION"),
        (("t", b"v"), {"timestamp": None}, "TypeError"), (("t", b"v"), {"no_such": 1}, "TypeError"),
        (("t", b"v", None, 1 << 40), {}, "_UNKNOWN_PARTITION"),
        (("t", b"v" * 2_000_000), {}, "MSG_SIZE_TOO_LARGE"), (("t", b"v"), {"headers": [("a", 1)]}, "TypeError"),
    ],
)  # fmt: skip
def test_both_ways_refuse_the_same(servers: str, args: Any, named: Any, name: str) -> None:
    for short in (True, False):
        with producer_of_t(servers) as made:
            if not short:
                take_general_way(made)
            with pytest.raises(Exception) as caught:
                made.produce(*args, **named)
            error = caught.value.args[0]
            assert (error.name() if isinstance(error, KafkaError) else type(caught.value).__name__) == name
            assert not isinstance(error, KafkaError) or error.str().startswith("Unable to produce message: ")
            assert len(made) == 0


def delivered(made: Any) -> None:
    """Waits until what was produced has its outcome; serves nothing."""
    producer_in(made).flush(WAIT_S)


def test_the_rest_of_a_batch_comes_before_the_next_batch(servers: str) -> None:
    """Also where its outcome came first, and where a second callback of it raises; and in a flush."""
    seen: list[Any] = []

    def report(error: Any, m: Any) -> None:
        seen.append(m.value())
        if m.value() in (b"a1", b"a2"):
            raise ValueError("of the callback")

    for call in ("poll", "flush"):
        seen.clear()
        with producer_of_t(servers, **{"linger.ms": 60_000}) as made:
            for name in ("a", "b"):  # two batches of one partition, one outcome after the other
                for nth in range(4):
                    made.produce("t", f"{name}{nth}", partition=0, on_delivery=report)
                delivered(made)
            for _ in range(2 if call == "poll" else 1):
                with pytest.raises(ValueError, match="of the callback"):
                    made.poll(0) if call == "poll" else made.flush(WAIT_S)
            made.poll(0)
        assert seen == [b"%c%d" % (name, nth) for name in b"ab" for nth in range(4)]


@each_row("pattern", ["aaaa", "aaba", "abab", "abcd", "a-a-", "ab-b", "-a--"])
def test_each_message_has_its_callback_whether_they_are_all_the_same_or_not(servers: str, pattern: str) -> None:
    """A batch keeps one callback while there is one only; `-` has none."""
    seen: list[Any] = []
    found: list[list[Any]] = []
    firsts: set[int] = set()

    def report(name: str, m: Any) -> None:
        seen.append((name, m.value()))
        firsts.add(m.offset() - int(m.value()))

    callbacks = {name: (lambda error, m, name=name: report(name, m)) for name in "abcd"}
    for short in (True, False):
        seen.clear()
        with producer_of_t(servers, **{"linger.ms": 60_000}) as made:
            if not short:
                take_general_way(made)
            for nth, name in enumerate(pattern):
                made.produce("t", b"%d" % nth, partition=0, on_delivery=callbacks.get(name))
            assert len(made) == len(pattern)
            delivered(made)
            assert len(made) == len(pattern) + 1  # the messages and the event of their batch, as librdkafka counts
            firsts.clear()
            assert made.poll(0) == 1
            assert len(made) == 0
            assert len(firsts) == 1  # each offset is the first one and the record's number
        found.append(list(seen))
    assert found[0] == found[1] == [(name, b"%d" % nth) for nth, name in enumerate(pattern) if name != "-"]


def test_a_latency_ends_with_its_report(servers: str) -> None:
    """Also behind a callback that takes its time: then the clock is read again."""
    queued: list[tuple[float, float]] = []
    called: list[tuple[float, float]] = []
    ended = 0.0

    def slow(error: Any, m: Any) -> None:
        nonlocal ended
        called.append((time.monotonic(), m.latency()))
        if len(called) == 2:
            until = time.monotonic() + 0.03  # some ticks of the coarse clock
            while (ended := time.monotonic()) < until:
                pass

    with producer_of_t(servers, **{"linger.ms": 60_000}) as made:
        for nth in range(4):
            before = time.monotonic()
            made.produce("t", b"%d" % nth, partition=0, on_delivery=slow)
            queued.append((before, time.monotonic()))
        delivered(made)
        served = time.monotonic()
        assert made.poll(0) == 1
    for nth, ((before, after), (now, latency)) in enumerate(zip(queued, called, strict=True)):
        assert (served if nth < 2 else ended) - after < latency < now - before


def test_a_callback_may_produce_poll_and_flush(servers: str) -> None:
    seen: list[Any] = []
    with producer_of_t(servers) as made:

        def report(error: Any, m: Any) -> None:
            seen.append(m.value())
            if m.value() == b"first":
                made.produce("t", b"second", partition=1, on_delivery=report)
                assert made.flush() == 1  # the message of this callback
                assert made.poll(0) == 0

        made.produce("t", b"first", partition=0, on_delivery=report)
        assert made.flush(WAIT_S) == 0
        assert seen == [b"first", b"second"]


def test_many_threads_produce_while_others_poll(servers: str) -> None:
    seen: list[int] = []
    with producer_of_t(servers, **{"linger.ms": 0, "batch.size": 200}) as made:  # a batch holds a few: outcomes overtake the calls

        def send(first: int) -> None:
            for nth in range(first, first + 500):
                made.produce("t", b"%d" % nth, on_delivery=lambda error, m: seen.append(int(m.value())))
                if nth % 50 == 0:
                    made.poll(0)

        threads = [threading.Thread(target=send, args=(first,)) for first in range(0, 2_000, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert made.flush(WAIT_S) == 0
    assert sorted(seen) == list(range(2_000))


def test_a_full_queue_counts_what_is_not_served(servers: str) -> None:
    with producer_of_t(servers, **{"queue.buffering.max.messages": 2}) as made:
        for _ in range(2):
            made.produce("t", b"v", partition=0)
        delivered(made)
        with pytest.raises(BufferError):
            made.produce("t", b"v", partition=0)
        made.poll(0)
        made.produce("t", b"v", partition=0)


def test_a_purged_producer_goes_on(servers: str) -> None:
    seen: list[Any] = []
    with producer_of_t(servers, **{"linger.ms": 60_000, "enable.idempotence": True}) as made:
        made.produce("t", b"before", partition=0)
        assert made.flush(WAIT_S) == 0  # it has a producer id: sequence numbers go on
        for blocking in (True, False):
            made.produce("t", b"v", partition=0, on_delivery=lambda error, m: seen.append(error.name()))
            made.purge(in_queue=False, blocking=blocking)
            assert seen == []  # it is not on its way
            made.purge(blocking=blocking)
            assert made.flush(WAIT_S) == 0
            assert seen.pop() == "_PURGE_QUEUE"
            made.produce("t", b"v", partition=0, on_delivery=lambda error, m: seen.append(error))
            assert made.flush(WAIT_S) == 0
            assert seen.pop() is None


def test_messages_on_their_way_are_purged(servers: str) -> None:
    seen: list[Any] = []
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=3)
        for idempotent in (False, True):
            with producer_of_t(cluster.bootstrap_servers, **{"enable.idempotence": idempotent}) as made:
                made.produce("t", b"before", partition=0)
                assert made.flush(WAIT_S) == 0
                broker = 1
                cluster.pause_broker(broker)
                try:
                    made.produce("t", b"v", b"k", 0, on_delivery=lambda error, m: seen.append((error.name(), m.value(), m.offset())))
                    sender = sender_of(producer_in(made))
                    until(lambda sender=sender: len(sender.batches_in_flight()) == 1)
                    made.purge(in_flight=False)
                    assert (made.poll(0), len(made)) == (0, 1)
                    made.purge(in_queue=False)
                    assert (made.poll(0), seen.pop(), len(made)) == (1, ("_PURGE_INFLIGHT", b"v", None), 0)
                finally:
                    cluster.resume_broker(broker)
                made.produce("t", b"after", partition=0, on_delivery=lambda error, m: seen.append((error, m.value())))
                assert made.flush(WAIT_S) == 0
                assert seen.pop() == (None, b"after")


def test_messages_that_never_arrived_leave_no_gap_when_they_are_purged() -> None:
    seen: list[Any] = []
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        with producer_of_t(cluster.bootstrap_servers, **{"enable.idempotence": True, "reconnect.backoff.max.ms": 100}) as made:
            made.produce("t", b"before")
            assert made.flush(WAIT_S) == 0
            cluster.pause_broker(1)
            made.produce("t", b"lost", on_delivery=lambda error, m: seen.append(error.name()))
            until(lambda: len(sender_of(producer_in(made)).batches_in_flight()) == 1)
            made.purge()
            assert (made.poll(0), seen.pop()) == (1, "_PURGE_INFLIGHT")
            cluster.kill_broker(1)  # it has not read the request
            cluster.start_broker(1)
            for nth in (1, 2):
                made.produce("t", b"after", on_delivery=lambda error, m: seen.append((error, m.offset())))
                assert made.flush(WAIT_S) == 0
                assert seen.pop() == (None, nth)


def test_nothing_of_a_report_stays(servers: str) -> None:
    value = b"value" * 50
    before = sys.getrefcount(value)

    class Callback:
        def __call__(self, error: Any, m: Any) -> None:
            pass

    with producer_of_t(servers) as made:
        callback = Callback()
        gone = weakref.ref(callback)
        for _ in range(300):
            made.produce("t", value, value, on_delivery=callback)
        made.flush(WAIT_S)
        del callback
        assert gone() is None
        assert sys.getrefcount(value) == before


def test_a_producer_that_is_dropped_ends(servers: str) -> None:
    """Also with a message of a topic that it does not know."""
    for bootstrap in (servers, NOBODY):
        made = Producer({"bootstrap.servers": bootstrap, "error_cb": print, "throttle_cb": print})
        made.produce("t", b"v", on_delivery=lambda error, m: None)
        made.flush(WAIT_S if bootstrap == servers else 0)
        thread, gone = thread_of(sender_of(producer_in(made))), weakref.ref(made)
        del made
        gc.collect()
        assert gone() is None
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_short_cut_finds_what_an_object_holds_in_a_slot_and_without() -> None:
    def general(
        self: Any, topic: Any, value: Any = None, key: Any = None, partition: int = -1, callback: Any = None, on_delivery: Any = None,
        timestamp: int = 0, headers: Any = None,
    ) -> Any:  # fmt: skip
        return "general", topic, value

    class Slotted:
        __slots__ = ("_short_send",)
        produce = send_method(general, ReportedSend)

    class Plain:
        produce = send_method(general, ReportedSend)

    class Derived(Slotted):
        pass

    refused: list[Any] = []

    def failed(*args: Any) -> None:
        refused.append(args[1:])

    for cls in (Slotted, Plain, Derived):
        held = cls()
        assert held.produce("t", b"v") == ("general", "t", b"v")  # it holds nothing
        held._short_send = "something else"
        assert held.produce("t", b"v") == ("general", "t", b"v")
        held._short_send = ReportedSend(ProducerCore(), Message, None, 10, False, failed, print, print)
        assert held.produce("t", b"v", None, 3, timestamp=7) is None  # an engine that has no general way: the short cut was taken
        assert refused.pop() == ("t", b"v", None, None, 3, 7, None)
        assert held.produce("t", b"v", headers={"a": "b"}) == ("general", "t", b"v")
        assert held.produce(topic="t", value=b"v") == ("general", "t", b"v")
    with pytest.raises(TypeError, match="its short cut knows"):
        send_method(lambda self, other: None, ReportedSend)


# ---- messages -------------------------------------------------------------------------------------------------------------------------


def as_read(**fields: Any) -> Any:
    records: list[Any] = [
        ConsumerRecord(**({"topic": "t", "partition": 1, "offset": 2, "timestamp_ms": NOW_MS, "key": b"k", "value": b"v"} | fields))
    ]
    recast_records(records, Message)
    return records[0]


def test_a_record_that_was_read_as_a_message() -> None:
    m = as_read(headers=[("a", b"1"), ("a", None)], leader_epoch=3)
    assert isinstance(m, Message)
    assert (m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.leader_epoch()) == ("t", 1, 2, b"k", b"v", 3)
    assert (m.deserialized_key(), m.deserialized_value(), m.timestamp()) == (b"k", b"v", (1, NOW_MS))
    assert m.headers() == [("a", b"1"), ("a", None)]
    assert m.headers() is m.headers()
    assert (m.error(), m.latency(), m.delivery_count(), len(m), bool(m)) == (None, None, None, 1, True)
    assert as_read().headers() is None
    assert as_read(leader_epoch=-1).leader_epoch() is None
    assert as_read(timestamp_type=-1, timestamp_ms=-1).timestamp() == (0, -1)
    with pytest.raises(TypeError):
        hash(m)


def test_what_is_set_replaces_one_field_and_no_other() -> None:
    fields = ("topic", "key", "value", "headers", "error")
    for name, before in itertools.product(fields, (as_read(headers=[("a", b"1")]), as_read(), Message("t", latency=0.5), Message())):
        others = {each: getattr(before, each)() for each in (*fields, "partition", "offset", "timestamp", "latency", "leader_epoch")}
        getattr(before, f"set_{name}")("new")
        assert getattr(before, name)() == "new"
        assert {each: getattr(before, each)() for each in others} == others | {name: "new"}


def test_a_message_that_a_program_makes() -> None:
    error = KafkaError(1, "text")
    m = Message("t", 1, 2, b"k", {"a": 1}, [("h", b"1")], error, (2, 5), 0.25, 7, 1)
    fields = ("topic", "partition", "offset", "key", "value", "headers", "error", "timestamp", "latency", "leader_epoch", "delivery_count")
    assert [getattr(m, name)() for name in fields] == ["t", 1, 2, b"k", {"a": 1}, [("h", b"1")], error, (2, 5), 0.25, 7, 1]
    assert pickle.loads(pickle.dumps(m)) == m
    assert [getattr(Message(), name)() for name in fields] == [*[None] * 7, (0, 0), None, None, None]
    assert Message(value=b"v") == Message(value=b"v") != Message(value=b"w")
    with pytest.raises(TypeError):
        Message.value("no message")
    with pytest.raises(ValueError, match="no method colour"):
        message_method("colour", "")


def test_messages_in_hand_end_with_the_time_and_with_the_messages() -> None:
    hand = MessagesInHand()
    assert not hand.in_time
    hand.begin(iter([1, 2]), 60_000)
    assert hand.in_time
    hand.begin(iter([1, 2]), 0)
    assert not hand.in_time
    hand.begin(iter([1, 2]), 60_000)
    hand.end()
    assert not hand.in_time
    with pytest.raises(TypeError, match="no iterator"):
        hand.begin([1], 60_000)  # type: ignore[arg-type]


def test_a_producer_that_another_fenced_has_the_name_that_librdkafka_gives_it(servers: str) -> None:
    with producer_of_t(servers, **{"transactional.id": "fenced"}) as second:
        first = producer_of_t(servers, **{"transactional.id": "fenced"})
        first.init_transactions(WAIT_S)
        first.begin_transaction()
        second.init_transactions(WAIT_S)
        first.produce("t", b"v")
        codes = []
        for call in (first.commit_transaction, first.abort_transaction):
            with pytest.raises(KafkaException) as caught:
                call(WAIT_S)
            codes.append((caught.value.args[0].code(), caught.value.args[0].fatal()))
        first.close()
    assert codes[-1] == (KafkaError._FENCED, True)
