"""Messages of topics that a compat.confluent Producer does not know yet, where confluent-kafka cannot be asked beside it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.compat.confluent import KafkaException, Producer
from kafkacore.errors import KafkaTimeoutError
from kafkacore.testing import EmbeddedCluster
from tests.compat.confluent_serving import NOBODY
from tests.kit.clusters import embedded
from tests.kit.inside import metadata_of, producer_in, sender_of, topics_of
from tests.kit.waiting import until

WAIT_S = 60.0


cluster = embedded(scope="function", config={"auto.create.topics.enable": False})
"""One without topics, which makes none by itself."""


def by_partition(cluster: EmbeddedCluster, topic: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = defaultdict(list)
    for record in cluster.records(topic):
        found[record.partition].append(record.value)
    return dict(found)


@pytest.mark.parametrize("idempotent", [False, True])
def test_the_order_of_a_partition_is_kept(cluster: EmbeddedCluster, idempotent: bool) -> None:
    """Threads go on producing while the topic appears: no later message goes ahead of one that was held."""
    begun, stop = threading.Barrier(4), threading.Event()
    sent: list[int] = [0, 0, 0]
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": idempotent, "linger.ms": 1}) as producer:

        def send(thread: int) -> None:
            nth = 0
            while not (stop.is_set() and nth > 200):
                try:
                    producer.produce("t", b"%d %d" % (thread, nth), partition=nth % 3)
                except BufferError:
                    producer.poll(0.01)
                    continue
                nth += 1
                if nth == 100:
                    begun.wait(WAIT_S)
            sent[thread] = nth

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        begun.wait(WAIT_S)
        assert len(producer) >= 300
        cluster.create_topic("t", partitions=3)
        until(lambda: "t" in topics_of(producer_in(producer)))
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert producer.flush(WAIT_S) == 0
    for partition, values in by_partition(cluster, "t").items():
        for thread in range(3):
            mine = [int(value.split()[1]) for value in values if value.startswith(b"%d " % thread)]
            assert mine == list(range(partition, sent[thread], 3))


def test_records_are_those_of_produce_and_keys_choose_the_partition_that_they_have_later(cluster: EmbeddedCluster) -> None:
    where: dict[bytes, set[int]] = defaultdict(set)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for round_ in range(2):
            for nth in range(20):
                producer.produce("t", b"v", b"%d" % nth, on_delivery=lambda error, m: where[m.key()].add(m.partition()))
            if not round_:
                assert len(producer) == 20
                cluster.create_topic("t", partitions=5)
            assert producer.flush(WAIT_S) == 0
        producer.produce("u", "text", "key", timestamp=1_700_000_000_000, headers={"a": "b", "c": None})
        producer.produce("u", None)
        cluster.create_topic("u")
        assert producer.flush(WAIT_S) == 0
    assert {len(each) for each in where.values()} == {1}
    assert len(set.union(*where.values())) > 1
    first, second = cluster.records("u")
    assert (first.key, first.value, first.timestamp_ms) == (b"key", b"text", 1_700_000_000_000)
    assert list(first.headers) == [("a", b"b"), ("c", None)]
    assert (second.key, second.value) == (None, None)


def test_memory_for_a_part_of_them_lets_them_leave_in_parts(cluster: EmbeddedCluster) -> None:
    """A batch of each of twelve partitions takes more than the queue has."""
    seen: list[Any] = []
    settings = {"queue.buffering.max.kbytes": 200, "batch.size": 65_536, "linger.ms": 20}
    with Producer({"bootstrap.servers": cluster.bootstrap_servers} | settings) as producer:
        for nth in range(120):
            producer.produce("t", b"%03d" % nth, partition=nth % 12, on_delivery=lambda error, m: seen.append(error))
        cluster.create_topic("t", partitions=12)
        assert producer.flush(WAIT_S) == 0
    assert seen == [None] * 120
    assert by_partition(cluster, "t") == {n: [b"%03d" % nth for nth in range(n, 120, 12)] for n in range(12)}


def test_a_commit_waits_for_them(cluster: EmbeddedCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}) as producer:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("t", b"v")
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(0.01)
        assert caught.value.args[0].name() == "_TIMED_OUT"
        cluster.create_topic("t")
        producer.commit_transaction(WAIT_S)
    assert [record.value for record in cluster.records("t")] == [b"v"]


def test_a_commit_without_one_of_them_fails(cluster: EmbeddedCluster) -> None:
    seen: list[Any] = []
    cluster.create_topic("t")
    settings = {"transactional.id": "x", "topic.metadata.propagation.max.ms": 1}
    with Producer({"bootstrap.servers": cluster.bootstrap_servers} | settings) as producer:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("t", b"beside it")
        producer.produce("no-such", b"v", on_delivery=lambda error, m: seen.append(error.name()))
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(WAIT_S)
        assert caught.value.args[0].txn_requires_abort()
        producer.abort_transaction(WAIT_S)
        assert seen == ["UNKNOWN_TOPIC_OR_PART"]
        producer.begin_transaction()
        producer.produce("t", b"next")
        producer.commit_transaction(WAIT_S)
    assert [record.value for record in cluster.records("t")] == [b"next"]


def test_an_abort_gives_them_up(cluster: EmbeddedCluster) -> None:
    seen: list[Any] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}) as producer:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for topic in ("t", "u"):
            producer.produce(topic, b"v", on_delivery=lambda error, m: seen.append((m.topic(), error.name())))
        producer.abort_transaction(WAIT_S)
        assert (seen, len(producer)) == ([("t", "_PURGE_QUEUE"), ("u", "_PURGE_QUEUE")], 0)
        cluster.create_topic("t")
        producer.begin_transaction()
        producer.produce("t", b"next")
        producer.commit_transaction(WAIT_S)
    assert [record.value for record in cluster.records("t")] == [b"next"]


def test_the_brokers_come_after_the_producer(cluster: EmbeddedCluster) -> None:
    """They were down when it was made: what was produced meanwhile is delivered."""
    cluster.create_topic("t", partitions=1)
    cluster.stop_broker(1)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "reconnect.backoff.max.ms": 100}) as producer:
        producer.produce("t", b"v")
        assert producer.flush(0.05) == 1
        cluster.start_broker(1)
        assert producer.flush(WAIT_S) == 0
    assert [record.value for record in cluster.records("t")] == [b"v"]


def test_a_topic_that_becomes_known_during_the_call(cluster: EmbeddedCluster) -> None:
    """Between the engine's "no metadata" and the look at what is held."""
    cluster.create_topic("t")
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("t", b"0")
        assert producer.flush(WAIT_S) == 0
        early = KafkaTimeoutError("no metadata of topic t within 0 ms", topic="t")
        producer._again(early, "t", b"1", None, None, None, None, None)
        assert producer.flush(WAIT_S) == 0
    assert [record.value for record in cluster.records("t")] == [b"0", b"1"]


def test_ctrl_c_behind_a_held_message_keeps_its_count() -> None:
    """It waits, is counted, and has one report."""

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    seen: list[bytes] = []
    producer = Producer({"bootstrap.servers": NOBODY})
    unplaced = producer._unknown._unplaced
    sender = sender_of(unplaced)
    unplaced._sender = SimpleNamespace(accumulator=sender.accumulator, wake=interrupted, transactional=None)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        producer.produce("t", b"1", on_delivery=lambda error, message: seen.append(message.value()))
    unplaced._sender = sender
    assert len(producer) == 1
    producer.purge()
    producer.poll(0)
    assert (seen, len(producer)) == ([b"1"], 0)
    producer.close()


def test_ctrl_c_in_a_call_leaves_the_metadata_unlocked() -> None:
    """A signal can arrive between the two halves of `Condition.__enter__`: the thread of the I/O would wait for that lock for ever."""

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code is threading.Condition.__enter__.__code__ and event == "return":
            raise KeyboardInterrupt
        return trace

    producer = Producer({"bootstrap.servers": NOBODY})
    metadata = metadata_of(producer_in(producer))
    for call in (lambda: metadata.add_topic("t", 0, create=True), lambda: metadata.request_topic("t"), metadata.request_update):
        sys.settrace(trace)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                call()
        finally:
            sys.settrace(None)
        assert metadata._changed.acquire(timeout=60)
        metadata._changed.release()
    producer.close()
