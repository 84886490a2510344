"""The ends of a producer while threads send: flush, close, forced close, the end of the interpreter, a fork."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from kafkacore.errors import ClosedError
from kafkacore.net import block_end
from kafkacore.producer import KafkaProducer
from kafkacore.testing import Delay, Drop, EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.programs import run_program

pytestmark = pytest.mark.usefixtures("client_face")


cluster = embedded({"t": 4}, brokers=1)


class Senders:
    """Threads that send until the producer is closed under them."""

    def __init__(self, p: KafkaProducer, count: int = 6) -> None:
        self.futures: list[list[Any]] = [[] for _ in range(count)]
        self.ends: list[BaseException] = []
        self.threads = [threading.Thread(target=self.run, args=(p, number), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()
        while not all(self.futures) and p.metrics()["waiting_threads"] < count:
            pass

    def run(self, p: KafkaProducer, number: int) -> None:
        try:
            while True:
                self.futures[number].append(p.send("t", b"x" * 50, partition=number % 4))
        except BaseException as error:
            self.ends.append(error)

    def joined(self) -> list[Any]:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        assert {type(end) for end in self.ends} == {ClosedError}, self.ends
        return [future for futures in self.futures for future in futures]


def small(cluster: Any, **settings: Any) -> KafkaProducer:
    """Memory is always short, so that some threads wait for it."""
    return KafkaProducer(
        **({"bootstrap_servers": cluster.bootstrap_servers, "linger_ms": 1, "batch_size": 1_024, "buffer_memory": 8_192} | settings)
    )


@pytest.mark.parametrize("reason", [KeyboardInterrupt, ValueError])
def test_a_block_left_by_an_error_does_not_wait_long_for_brokers_that_are_gone(
    reason: type[BaseException], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What that costs is said in one line. Were it CLOSE_S, the test would not end in time."""
    monkeypatch.setattr(block_end, "FAILED_BLOCK_S", 0.1)
    monkeypatch.setattr(block_end, "CLOSE_S", 6_000.0)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(reason), KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=7_000_000) as producer:
            producer.send("t", b"a").result(60)
            cluster.pause_broker(1)
            producer.send("t", b"b")
            producer.send("t", b"c")
            raise reason
        said = [record.getMessage() for record in caplog.records if "not delivered" in record.getMessage()]
        assert [line.split(";")[0] for line in said] == ["2 records were not delivered"]


def test_the_end_of_the_program_is_no_error() -> None:
    ends = (None, SystemExit, GeneratorExit, KeyboardInterrupt, ValueError)
    assert [block_end.close_timeout_s(kind) for kind in ends] == [block_end.CLOSE_S] * 3 + [block_end.FAILED_BLOCK_S] * 2


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
def test_ctrl_c_in_a_transaction_does_not_wait_long_for_a_coordinator_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_end, "FAILED_BLOCK_S", 0.1)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x", max_block_ms=6_000_000)
        producer.init_transactions()
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            producer.send("t", b"a").result(60)
            cluster.pause_broker(1)
            raise KeyboardInterrupt
        producer.close(0)


@pytest.mark.sync_only("Ctrl+C ends the loop itself")
def test_after_an_error_of_the_application_the_abort_takes_max_block_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application may go on."""
    monkeypatch.setattr(block_end, "FAILED_BLOCK_S", 0.0)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            cluster.control("EndTxn", lambda request: Delay(200))
            with pytest.raises(ValueError), producer.transaction():
                producer.send("t", b"a").result(60)
                raise ValueError
            with producer.transaction():  # so the abort has ended
                producer.send("t", b"b")


def test_flushes_and_a_close_among_senders(cluster: Any) -> None:
    p = small(cluster)
    p.partitions_for("t")
    senders = Senders(p)
    flushed: list[bool] = []

    def flush() -> None:
        for _ in range(20):
            sent = [futures[-1] for futures in senders.futures if futures]
            p.flush(20)
            flushed.append(all(future.done() for future in sent))

    flushers = [threading.Thread(target=flush, daemon=True) for _ in range(2)]
    for thread in flushers:
        thread.start()
    for thread in flushers:
        thread.join(30)
        assert not thread.is_alive()
    assert flushed == [True] * 40
    p.close(20)
    futures = senders.joined()
    offsets = {(meta.partition, meta.offset) for meta in (future.result(0) for future in futures)}
    assert len(offsets) == len(futures)  # none lost, none twice
    assert p.metrics()["buffer_available_bytes"] == 8_192
    assert p.metrics()["waiting_threads"] == 0


@pytest.mark.sync_only("it counts threads that wait for memory; tasks wait in a line of their own")
@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_forced_close_among_senders_without_answers(cluster: Any, timeout: float) -> None:
    p = small(cluster)
    p.send("t", b"x").result(60)
    cluster.control(0, lambda request: Drop())
    try:
        senders = Senders(p)
        waiters: list[BaseException | None] = []
        first = next(futures[0] for futures in senders.futures if futures)
        waiting = [threading.Thread(target=lambda: waiters.append(first.exception(60)), daemon=True) for _ in range(3)]
        for thread in waiting:
            thread.start()
        p.close(timeout)
    finally:
        cluster.control(0, None)
    futures = senders.joined()
    assert {type(future.exception(0)) for future in futures} == {ClosedError}
    for thread in waiting:
        thread.join(60)
    assert {type(error) for error in waiters} == {ClosedError}
    assert p.metrics()["buffer_available_bytes"] == 8_192


@pytest.mark.sync_only("it runs a program")
def test_the_interpreter_ends_while_threads_send(cluster: Any) -> None:
    done = run_program(
        """
        import sys, threading
        import kafkacore.producer as module
        from kafkacore.producer import endings
        endings.ATEXIT_MAX_S = 5
        producers = [module.KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=1) for _ in range(4)]
        started = [threading.Event() for _ in producers]
        def run(p, started):
            try:
                while True:
                    p.send("t", b"x" * 20)
                    started.set()
            except module.ClosedError:
                pass
        for p, event in zip(producers, started):
            threading.Thread(target=run, args=(p, event), daemon=True).start()
        for event in started:
            assert event.wait(60)
        module.KafkaProducer(bootstrap_servers="127.0.0.1:1")          # one that never found its cluster
        print("end of the program")
        """,
        cluster.bootstrap_servers,
    )
    assert (done.returncode, done.stdout) == (0, "end of the program\n")
    assert all("127.0.0.1:1 failed" in line for line in done.stderr.splitlines())  # told, if there was time to try


@pytest.mark.sync_only("a loop does not outlive a fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_in_the_middle_of_sending(cluster: Any) -> None:
    done = run_program(
        """
        import asyncio, os, sys, threading
        import kafkacore.producer as module
        from kafkacore.errors import ClosedError, ForkedClientError
        make = lambda: module.KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=1, batch_size=1024, buffer_memory=16384)
        p, slow = make(), module.KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
        p.partitions_for("t")
        one, many = slow.send("t", b"x"), slow.send_many("t", [b"y"])
        async def wait(future):
            return await future
        calls = [lambda: p.send("t", b"y"), lambda: p.flush(), lambda: p.send_many("t", [b"z"]), lambda: p.partitions_for("t")]
        calls += [lambda: asyncio.run(wait(one)), lambda: asyncio.run(wait(many)), lambda: one.add_done_callback(print)]
        futures = [[] for _ in range(4)]
        stop = threading.Event()
        def run(mine):
            while not stop.is_set():
                mine.append(p.send("t", b"x" * 30))
                if len(mine) % 50 == 0:
                    mine[-1].result(60)
        threads = [threading.Thread(target=run, args=(mine,), daemon=True) for mine in futures]
        for thread in threads:
            thread.start()
        for _ in range(12):
            child = os.fork()
            if child == 0:
                refused = 0
                for call in calls:
                    try:
                        call()
                    except ForkedClientError:
                        refused += 1
                p.metrics()
                with make() as own:
                    own.send("t", b"child").result(60)
                p.close()
                del p, calls
                os._exit(0 if refused == 7 and slow.metrics() else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join(60)
        metas = [future.result(60) for mine in futures for future in mine]
        p.close()
        slow.close()
        print(len({(meta.partition, meta.offset) for meta in metas}) == len(metas) > 0)
        """,
        cluster.bootstrap_servers,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
