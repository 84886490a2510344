"""A producer's metrics: by a scripted client and a clock moved by hand, and read from other threads."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from broker_model import LOST
from producer_support import Bench, response, started
from transaction_model import TransactionalBench

from kafkacore import errors, protocol
from kafkacore.errors import Code
from kafkacore.net.measure import NetworkStats, grouped
from kafkacore.producer import KafkaProducer
from kafkacore.producer.producer_metrics import TransactionStats, all_names, of_producer
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import io_held, sender_of, topics_of


def metrics(bench: Bench) -> dict[str, dict[str, float]]:
    return grouped(
        of_producer(
            NetworkStats({}, 0),
            bench.sender.stats,
            getattr(bench, "_transaction_stats", TransactionStats()),
            bench.pool,
            list(topics_of(bench).values()),
            bench.clock.now_ms(),
        )
    )


def test_batches_are_measured_when_they_leave() -> None:
    bench = started(linger_ms=100, batch_size=1 << 20)
    for _ in range(10):
        bench.send("t", b"x" * 100, partition=0)
    bench.step()
    assert metrics(bench)["producer-metrics"]["record-send-total"] == 0
    bench.step(100)
    found = metrics(bench)["producer-metrics"]
    assert found["record-queue-time-avg"] == found["record-queue-time-max"] == 100
    assert found["records-per-request-avg"] == found["record-send-total"] == 10
    (sent,) = bench.requests()
    assert found["batch-size-avg"] == found["batch-size-max"] == sent[0].size_bytes > 1_000
    assert found["compression-rate-avg"] == 1
    topic = metrics(bench)["producer-topic-metrics.topic-t"]
    assert (topic["record-send-total"], topic["byte-total"], topic["compression-rate"]) == (10, found["batch-size-max"], 1)
    assert found["record-error-total"] == found["record-retry-total"] == 0


def test_retries_errors_and_splits_are_counted_in_all_and_by_topic() -> None:
    bench = started(retry_backoff_ms=10, retry_backoff_max_ms=10)
    first = [bench.send("t", b"x", partition=0) for _ in range(3)]
    bench.step()
    bench.answered((0, int(Code.NOT_LEADER_OR_FOLLOWER), -1))
    bench.step(1_000)
    bench.answered((0, 0, 5))
    assert first[0].result(0).offset == 5
    for value in (b"y", b"z"):
        bench.send("t", value, partition=0)
    bench.step()
    bench.answered((0, int(Code.TOPIC_AUTHORIZATION_FAILED), -1))
    found, topic = metrics(bench)["producer-metrics"], metrics(bench)["producer-topic-metrics.topic-t"]
    for values in (found, topic):
        assert (values["record-retry-total"], values["record-error-total"], values["record-send-total"]) == (3, 2, 3 + 3 + 2)
    assert found["record-error-rate"] == 2 / 30
    bench.sender.unobserved_failures()


def test_answers_give_latency_and_throttling() -> None:
    bench = started()
    bench.send_now("t", b"x", partition=0)
    assert math.isnan(metrics(bench)["producer-metrics"]["request-latency-avg"])
    request, _ = bench.client.sent[0]
    request.sent_ms = bench.clock.now_ms()
    answer = response((0, 0, 1))._replace(throttle_time_ms=30)
    bench.client.answer(answer)
    bench.client.answers[-1][1].latency_ms = 12
    bench.step()
    found = metrics(bench)["producer-metrics"]
    assert (found["request-latency-max"], found["request-latency-p99"], found["produce-throttle-time-max"]) == (12, 12, 30)


def test_a_lost_answer_is_no_latency() -> None:
    bench = started()
    bench.send_now("t", b"x", partition=0)
    bench.lost(errors.DisconnectError("cut"))
    assert bench.sender.stats.latency_ms.count == 0
    assert metrics(bench)["producer-metrics"]["record-retry-total"] == 1


def test_each_call_of_a_transaction_is_timed_and_ends_are_counted() -> None:
    bench = TransactionalBench(2)
    serve = bench.broker.serve
    took_ms = {protocol.InitProducerIdRequest: 3, protocol.ProduceRequest: 10, protocol.EndTxnRequest: 5}

    def timed(request: Any, message: Any) -> None:
        bench.clock.advance(took_ms.get(type(message), 0))
        serve(request, message)

    def times_ms() -> dict[str, float]:
        found = metrics(bench)["producer-metrics"]
        return {name: found[f"txn-{name}-time-ns-total"] / 1e6 for name in ("init", "begin", "send-offsets", "commit", "abort")}

    def ended() -> tuple[float, float]:
        found = metrics(bench)["producer-metrics"]
        return found["txn-commit-total"], found["txn-abort-total"]

    bench.broker.serve = timed  # type: ignore[method-assign]
    none = dict.fromkeys(times_ms(), 0.0)
    assert times_ms() == none
    bench.init_transactions()
    assert times_ms() == none | {"init": 3}
    for _ in range(2):
        bench.begin_transaction()
        bench.send("t", "x", partition=0)
        bench.commit_transaction()
    assert times_ms() == none | {"init": 3, "commit": 30}
    bench.begin_transaction()
    bench.send("t", "x", partition=0).result(60)
    bench.abort_transaction()
    assert times_ms() == none | {"init": 3, "commit": 30, "abort": 5}
    assert ended() == (2, 1)
    bench.begin_transaction()
    bench.send("t", "x", partition=0).result(60)
    bench.broker.ends.append(LOST)
    with pytest.raises(errors.KafkaTimeoutError):
        bench.commit_transaction(timeout=0.0)
    assert ended() == (2, 1), "what did not end is not counted"
    bench.commit_transaction()
    assert ended() == (3, 1)


def test_a_real_producer_has_all_names_and_its_flat_ones_stay() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("t", [b"%d" % i for i in range(1_000)]).result(30)
            found = producer.metrics(detail=True)
            assert {(one.group, one.name) for one in producer.measured()} == {(one.group, one.name) for one in all_names()}
            assert found["producer-topic-metrics.topic-t"]["record-send-total"] == producer.metrics()["records"] == 1_000
            assert found["producer-topic-metrics.topic-t"]["byte-total"] == producer.metrics()["bytes"]
            assert found["producer-metrics"]["buffer-total-bytes"] == producer.metrics()["buffer_total_bytes"]
            assert found["producer-metrics"]["waiting-threads"] == 0
            assert found["producer-node-metrics.node-1"]["connection-count"] == 1
            assert found["producer-node-metrics.node-1"]["request-latency-p99"] >= 0
            assert "requests" in producer.metrics()


def test_reading_takes_no_lock() -> None:
    """Another thread gets its answer while the I/O and the accumulator are held."""
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"x").result(30)
            got: list[dict[str, dict[str, float]]] = []
            with io_held(sender_of(producer)):
                reader = threading.Thread(target=lambda: got.append(producer.metrics(detail=True)))
                reader.start()
                reader.join(30)
            assert got[0]["producer-metrics"]["record-send-total"] == 1
