"""KafkaProducer on real sockets against the embedded broker, and what it does without any broker."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from kafkacore import KafkaAdminClient, NewPartitions, protocol
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.errors import (
    ClosedError,
    DeliveryError,
    KafkaTimeoutError,
    UnsupportedVersion,
    UsageError,
)
from kafkacore.producer import KafkaProducer
from kafkacore.producer.topic_queues import follow
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import ProducerRecord
from tests.kit.free_ports import free_port
from tests.kit.inside import metadata_of, sender_of, thread_of, topics_of
from tests.kit.programs import run_program
from tests.kit.records import producer_of as producer
from tests.kit.rows import each_row


@pytest.fixture
def cluster(cluster_of_face: Any, client_face: str) -> EmbeddedCluster:
    return cluster_of_face(client_face)  # type: ignore[no-any-return]


@pytest.fixture
def unreachable() -> str:
    """An address that refuses connections."""
    return f"127.0.0.1:{free_port()}"


@pytest.mark.sync_only("the loop does that, by passes of its own")
def test_synchronous_sends_are_driven_by_the_caller(cluster: Any) -> None:
    with producer(cluster) as p:
        p.send("t", b"first", partition=0).result(60)
        before = p.metrics()["driven_by_callers"]
        for i in range(200):
            p.send("t", b"%d" % i, partition=0).result(60)
        assert p.metrics()["driven_by_callers"] - before > 20  # most, where both threads have a processor


@pytest.mark.sync_only("it has a loop of its own")
def test_await(cluster: Any) -> None:
    async def run(p: KafkaProducer) -> list[int]:
        metas = await asyncio.gather(*(asyncio.ensure_future(_one(p, i)) for i in range(20)))
        result = await p.send_many("t", [b"a", b"b"], partitions=3)
        assert (np.diff(result.offsets) == 1).all()
        return [meta.offset for meta in metas]

    async def _one(p: KafkaProducer, i: int) -> Any:
        return await p.send("t", b"%d" % i, partition=2)

    with producer(cluster) as p:
        offsets = asyncio.run(run(p))
    assert offsets == list(range(offsets[0], offsets[0] + 20))


def test_round_robin_passes_over_partitions_without_a_leader() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=4, replication_factor=1)
        led = [index for index in range(4) if cluster.leader("t", index) == 1]
        assert 0 < len(led) < 4
        cluster.kill_broker(2)
        with producer(cluster, partitioner="round_robin", metadata_max_age_ms=20) as p:
            p.partitions_for("t")
            while len(metadata_of(p).snapshot.available_partitions("t")) != len(led):
                metadata_of(p).await_update(metadata_of(p).request_update(), 10_000)
            assert [p.send("t", b"x").result(30).partition for _ in range(2 * len(led))].count(led[0]) == 2


@each_row(("produce", "codec", "goes"), [(3, "lz4", True), (6, "zstd", False), (7, "zstd", True)])
def test_older_brokers_get_the_produce_versions_that_they_speak(produce: int, codec: str, goes: bool) -> None:
    """Record batches need Produce v3 (Kafka 0.11), zstd v7 (Kafka 2.1)."""
    with (
        EmbeddedCluster(api_versions={**API_VERSIONS, protocol.ProduceRequest.API_KEY: (3, produce)}) as cluster,
        producer(cluster, compression_type=codec) as p,
    ):
        cluster.create_topic("t", partitions=1)
        sent = p.send("t", b"x" * 1000)
        if goes:
            assert sent.result(60).offset == 0
        else:
            with pytest.raises(UnsupportedVersion):
                sent.result(60)


def test_wrong_host_reaches_the_caller(unreachable: str) -> None:
    with KafkaProducer(bootstrap_servers=unreachable, max_block_ms=150, reconnect_backoff_ms=10) as p:
        with pytest.raises(KafkaTimeoutError) as raised:
            p.send("t", b"x")
        assert raised.value.attempts
        assert "refused" in str(raised.value).lower()
        with pytest.raises(KafkaTimeoutError):
            p.partitions_for("t")


def test_send_frame_hands_all_that_it_takes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacore.producer.frames.send_frame", lambda *given, **more: (given, more))
    names = "key value value_format key_format value_schema registry headers partition timestamp null_keys null_fields keep"
    more: Any = {name: object() for name in names.split()}
    assert KafkaProducer.send_frame("self", "t", "frame", **more) == (("self", "t", "frame"), more)  # type: ignore[arg-type, comparison-overlap]


def test_a_producer_says_what_it_is_and_belongs_to_its_process(unreachable: str) -> None:
    for settings, named in (({}, ""), ({"transactional_id": "x"}, "; transactional_id 'x'")):
        with KafkaProducer(bootstrap_servers=unreachable, **settings) as p:  # type: ignore[arg-type]
            assert repr(p) == f"KafkaProducer({unreachable}{named})"
            with pytest.raises(UsageError, match="make one in each process"):
                pickle.dumps(p)
        assert repr(p) == f"KafkaProducer({unreachable}{named}; closed)"


def test_close_is_bounded_idempotent_and_final(unreachable: str, cluster: Any) -> None:
    p = producer(cluster)
    future = p.send("t", b"x")
    p.close(10)
    p.close()
    assert future.result(0).offset >= 0
    for call in (lambda: p.send("t", b"x"), lambda: p.flush(), lambda: p.partitions_for("t"), lambda: p.send_many("t", [b""])):
        with pytest.raises(ClosedError):
            call()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("kafkacore-producer") and thread_of(sender_of(p)) is thread
    ]


def test_close_with_the_broker_gone_fails_what_is_left(cluster: Any) -> None:
    p = producer(cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
    p.partitions_for("t")
    future = p.send("t", b"x")
    p.close(0)
    assert isinstance(future.exception(0), ClosedError)
    assert p.metrics()["buffer_available_bytes"] == p.metrics()["buffer_total_bytes"]


@pytest.mark.sync_only("a loop does not outlive a fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_closes_leaves_the_failures_to_its_parent(cluster: Any) -> None:
    cluster.create_topic("small-only", configs={"max.message.bytes": "500"})
    done = run_program(
        """
        import logging, os, sys
        from kafkacore.errors import DeliveryError
        from kafkacore.producer import KafkaProducer
        logging.basicConfig(format="%(process)d", stream=sys.stdout)
        p = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=0)
        p.send("small-only", b"x" * 1_000)
        while not p._sender.counters["failed_records"]:
            p.send("t", b"y").result(60)
        child = os.fork()
        if child == 0:
            try:
                with p:
                    pass
                p.close()
            except DeliveryError:
                os._exit(1)
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        p.close()
        print(ended, os.getpid())
        """,
        cluster.bootstrap_servers,
    )
    warnings, ended = done.stdout.split()[:-2], done.stdout.split()[-2:]
    assert (ended[0], warnings, done.returncode) == ("0", ended[1:], 0), done.stdout + done.stderr


def test_endless_time_outs(cluster: Any) -> None:
    endless = float("inf")
    p = producer(cluster)
    assert p.send("t", b"x").result(endless).offset >= 0
    assert not p.send_many("t", [b"x"]).result(endless).errors
    p.flush(endless)
    p.close(endless)
    assert sender_of(p).join(0)


@pytest.mark.sync_only("it runs a program")
def test_exit_delivers_or_says_loudly_what_was_lost(cluster: Any, unreachable: str) -> None:
    body = """
        import logging, sys
        logging.basicConfig(level=logging.WARNING)
        import kafkacore.producer as producer
        from kafkacore.producer import endings
        endings.ATEXIT_MAX_S = 0.3
        p = producer.KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
        p.partitions_for("exit")
        if sys.argv[2] == "lost":
            p._sender.client.ready = lambda node, now_ms: False
        for i in range(7):
            p.send("exit", b"%d" % i)
    """
    cluster.create_topic("exit", partitions=1, replication_factor=1)
    done = run_program(body, cluster.bootstrap_servers, "kept")
    assert "LOST" not in done.stderr
    assert [record.value for record in cluster.records("exit")] == [b"%d" % i for i in range(7)]
    done = run_program(body, cluster.bootstrap_servers, "lost")
    assert "7 of 7 records still queued at exit were LOST" in done.stderr


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("what", ["flush", "result", "metadata", "memory"])
def test_ctrl_c_interrupts_every_wait(cluster: Any, what: str) -> None:
    body = """
        import os, signal, sys, threading
        from kafkacore.producer import KafkaProducer
        p = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=0, buffer_memory=2048, batch_size=1024)
        p.partitions_for("t")
        p._sender.client.ready = lambda node, now_ms: False
        if sys.argv[2] == "metadata":
            p._metadata.update = lambda response, now_ms: None
        f = p.send("t", b"x", partition=0)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            if sys.argv[2] == "flush":
                p.flush()
            elif sys.argv[2] == "result":
                f.result()
            elif sys.argv[2] == "metadata":
                p.partitions_for("nowhere")
            else:
                for i in range(100):
                    p.send("t", b"x" * 500, partition=i % 4)
        except KeyboardInterrupt:
            print("interrupted")
        p.close(0)
    """
    assert run_program(body, cluster.bootstrap_servers, what).stdout.strip() == "interrupted"


def test_log_names_where_a_callback_failed(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    with producer(cluster) as p, caplog.at_level(logging.ERROR, "kafkacore.producer"):
        p.send("t", b"x", partition=3, on_delivery=lambda metadata, error: 1 / 0).result(60)
        p.flush(10)
    assert "t-3" in caplog.text


def test_a_partition_added_since_is_found_before_its_number_is_refused(cluster: Any) -> None:
    cluster.create_topic("grows", partitions=2, replication_factor=1)
    with producer(cluster) as p, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        p.send("grows", b"x").result(60)
        with pytest.raises(UsageError, match="partition 4 of topic grows does not exist: it has 2"):
            p.send("grows", b"x", partition=4)
        admin.create_partitions({"grows": NewPartitions(5)}).check()
        assert p.send("grows", b"x", partition=4).result(60).partition == 4


def test_an_old_answer_takes_no_partition_from_a_topic_and_another_topic_of_the_name_does(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("grown", partitions=4, replication_factor=1)
    with producer(cluster) as p:
        p.send("grown", b"x").result(60)
        queue, info = topics_of(p)["grown"], metadata_of(p).snapshot.topics["grown"]
        for topic_id, partitions in ((info.topic_id, 4), (b"another topic id", 2)):
            follow(queue, info._replace(topic_id=topic_id, partitions=info.partitions[:2]))
            assert queue.n == partitions


def test_each_new_topic_is_asked_for_alone_and_no_other_looked_at(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"new-{nth}" for nth in range(30)]
    for name in names:
        cluster.create_topic(name, partitions=1, replication_factor=1)
    looks: list[str] = []
    asked: list[str] = []

    def look(queue: Any, info: Any) -> None:
        looks.append(queue.topic)
        follow(queue, info)

    def begin_request(now_ms: int) -> Any:
        wanted = begin(now_ms)
        asked.extend(wanted or ())
        return wanted

    for module in ("kafkacore.producer", "kafkacore.producer.topic_queues"):
        monkeypatch.setattr(f"{module}.follow", look)
    with producer(cluster) as p:
        begin = metadata_of(p).begin_request
        monkeypatch.setattr(metadata_of(p), "begin_request", begin_request)
        for name in names:
            p.send(name, b"x").result(60)
    assert len(looks) <= 2 * len(names)  # when its queue is made; and when the answer comes, if the queue was quicker
    assert len(asked) <= 2 * len(names)  # the first request of all may have been for all


@pytest.mark.sync_only("what the face keeps is not forgotten")
def test_a_forgotten_producer_delivers_and_leaves_nothing_behind(cluster: Any) -> None:
    p = producer(cluster)
    future = p.send("t", b"x")
    sender, thread = weakref.ref(sender_of(p)), thread_of(sender_of(p))
    del p
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
    assert future.result(0).offset >= 0
    del thread, future
    gc.collect()
    assert sender() is None


class Passes:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None: ...


def test_flush_reports_once_what_nobody_looked_at(cluster: Any) -> None:
    cluster.create_topic("small", partitions=2, replication_factor=1, configs={"max.message.bytes": "1000"})
    for interceptors in ((), (Passes(),)):
        with producer(cluster, interceptors=interceptors) as p:
            looked = p.send("small", b"x" * 5000, partition=0)
            for _ in range(2):
                p.send("small", b"x" * 5000, partition=1)
            assert looked.exception(60) is not None
            with pytest.raises(DeliveryError) as raised:
                p.flush(10)
            assert raised.value.failed == 2
            assert raised.value.causes[0].topic == "small"
            p.send("small", b"x" * 5000, on_delivery=lambda metadata, error: None)
            p.flush(10)


def test_a_topic_that_somebody_made_between_two_sends_is_not_told_as_made_by_brokers(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(config={"auto.create.topics.enable": "false"}) as own, producer(own, max_block_ms=200) as p:
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            p.send("late", b"x")
        own.create_topic("late")
        p.config = p.config.replace(max_block_ms=10_000)
        assert p.send("late", b"x").result(60).offset == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_with_block_raises_what_nobody_looked_at_and_close_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        cluster.create_topic("t", configs={"max.message.bytes": "500"})
        with pytest.raises(DeliveryError, match="1 record"), KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"x" * 1000)
        with pytest.raises(ZeroDivisionError), KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"x" * 1000)
            raise ZeroDivisionError
        assert "1 record" in caplog.text and "max.message.bytes" in caplog.text
        caplog.clear()
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert producer.send("t", b"x" * 1000).exception(60) is not None
        assert "not delivered" not in caplog.text
