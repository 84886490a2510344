"""The accumulator beside a model of it: threads, sizes, interrupts, leaders and brokers that come and go, in any order.

Every record is delivered once, or fails when its delivery timeout has passed and not before; the order of a partition holds; all memory
comes back; and no empty batch stands before another one.
"""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import pytest
from broker_model import LOST, REFUSED, BrokerClient, PartitionLog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from producer_support import Bench, Racing, read_request, response

from kafkacore import errors, protocol
from kafkacore.errors import BufferFullError, Code, KafkaTimeoutError, RecordTooLarge
from tests.kit.reached import Reached

PARTITIONS = 2
TIMEOUT_MS = 1000
SIZES = (10, 300, 600, 3000)
SIZE = st.sampled_from(SIZES)
reached = Reached(
    "no memory left",
    "another thread came between a batch and its first record",
    "interrupted between a batch and its first record",
    "a batch split",
    "a record too large by itself",
    "a lost answer of an appended batch",
    "two requests in flight, the first fails",
    "a batch of several records",
    "timed out",
    "timed out while others of the partition wait",
    "both partitions in a request",
    "sent to a leader that came back",
)
PARTITION = st.integers(0, PARTITIONS - 1)
FAULT = st.sampled_from([0, Code.NOT_LEADER_OR_FOLLOWER, Code.MESSAGE_TOO_LARGE, Code.MESSAGE_TOO_LARGE, LOST, LOST, REFUSED])


class Sent:
    """A record as the model knows it."""

    def __init__(self, name: bytes, partition: int, future: Any, sent_ms: int, batch_ms: int) -> None:
        self.name = name
        self.partition = partition
        self.future = future
        self.sent_ms = sent_ms
        self.batch_ms = batch_ms  # when the first record of its batch came


class QueueModel(RuleBasedStateMachine):
    """One producer, one broker with two partitions; time and every answer are the test's."""

    @initialize(numbered=st.booleans(), in_flight=st.sampled_from([1, 5]), linger_ms=st.sampled_from([0, 20]))
    def begin(self, numbered: bool, in_flight: int, linger_ms: int) -> None:
        self.numbered, self.in_order = numbered, numbered or in_flight == 1
        self.bench = Racing(
            partitions=PARTITIONS, batch_size=512, buffer_memory=8192, linger_ms=linger_ms, enable_idempotence=numbered,
            delivery_timeout_ms=TIMEOUT_MS, request_timeout_ms=900, max_in_flight_requests_per_connection=in_flight,
        )  # fmt: skip
        if numbered:
            self.bench.give_producer_id()
        self.logs = [PartitionLog() for _ in range(PARTITIONS)]
        self.sent: list[Sent] = []
        self.names = 0
        self.began_ms: dict[Any, int] = {}
        self.flushing = False

    # ---- threads that send

    def put(self, partition: int, size: int) -> None:
        self.names += 1
        name = b"%06d" % self.names
        try:
            future = self.bench.send("t", name + b"." * size, partition=partition)
        except BufferFullError:
            reached("no memory left")
            return
        finally:
            self.bench.hook = None
        batch = self.bench.topic.partitions[partition].batches[-1]
        now_ms = self.bench.clock.now_ms()
        if batch.count == 1:
            self.began_ms[batch] = now_ms
        assert batch.created_ms == self.began_ms[batch]
        self.sent.append(Sent(name, partition, future, now_ms, batch.created_ms))

    @rule(partition=PARTITION, size=SIZE)
    def send(self, partition: int, size: int) -> None:
        self.put(partition, size)

    @rule(partition=PARTITION, size=SIZE, others=st.lists(SIZE, min_size=1, max_size=3))
    def send_while_other_threads_do(self, partition: int, size: int, others: list[int]) -> None:
        def run_others() -> None:
            reached("another thread came between a batch and its first record")
            for other in others:
                self.put(partition, other)

        self.bench.hook = run_others
        self.put(partition, size)

    @rule(partition=PARTITION, size=SIZE)
    def send_and_be_interrupted(self, partition: int, size: int) -> None:
        def interrupt() -> None:
            reached("interrupted between a batch and its first record")
            raise KeyboardInterrupt

        self.bench.hook = interrupt
        try:
            self.put(partition, size)
        except KeyboardInterrupt:
            pass

    # ---- the Sender, time and the cluster

    @rule(ms=st.sampled_from([0, 1, 20, 150, 500, 1000]))
    def one_pass(self, ms: int) -> None:
        bench = self.bench
        bench.step(ms)
        now_ms = bench.clock.now_ms()
        if bench.client.poll_timeouts[-1] == 0:  # a second look was asked for, or nothing to wait for at all
            bench.step()
        for sent in self.sent:
            if now_ms >= sent.sent_ms + TIMEOUT_MS:
                assert sent.future.done(), "outlives its delivery timeout"
        for queue in bench.topic.partitions:
            assert all(batch.count or batch is queue.open for batch in queue.batches), "an empty batch in a queue"

    @precondition(lambda self: any(request.api is protocol.ProduceRequest for request, _ in self.bench.client.sent))
    @rule(fault=FAULT)
    def answer(self, fault: int) -> None:
        (_, message), lost = self.bench.client.sent[0], errors.DisconnectError("the connection was closed before the answer", broker=1)
        if fault == REFUSED:
            self.bench.client.answer(error=lost)
        else:
            batches = read_request(message)
            several = any(batch.record_count > 1 for batch in batches.values())
            reached("a batch of several records", several)
            reached("a batch split", fault == Code.MESSAGE_TOO_LARGE and several)
            reached("a record too large by itself", fault == Code.MESSAGE_TOO_LARGE and not several)
            reached("both partitions in a request", len(batches) == PARTITIONS)
            reached("a lost answer of an appended batch", fault == LOST)
            reached("two requests in flight, the first fails", fault != 0 and len(self.bench.client.sent) > 1)
            leaders = [self.bench.epochs[index] for index in batches]
            reached("sent to a leader that came back", max(leaders) > 1)
            results = {index: self.logs[index].append(batch, fault) for index, batch in batches.items()}
            if fault == LOST:
                self.bench.client.answer(error=lost)
            else:
                self.bench.client.answer(response(*((index, *result) for index, result in results.items())))
        if fault in (LOST, REFUSED):  # so are all that follow on the connection
            while self.bench.client.sent:
                self.bench.client.answer(error=lost)
        self.bench.step()

    @rule(partition=PARTITION, count=st.sampled_from([1, 1, 2]), passes=st.sampled_from([1, 2, 2]), fault=FAULT)
    def send_and_be_answered(self, partition: int, count: int, passes: int, fault: int) -> None:
        """Batches of several records reach the broker."""
        for _ in range(passes):
            for _ in range(count):
                self.put(partition, 10)
            self.one_pass(20)
        if any(request.api is protocol.ProduceRequest for request, _ in self.bench.client.sent):
            self.answer(fault)

    @rule(partition=PARTITION, led=st.booleans())
    def leader(self, partition: int, led: bool) -> None:
        self.bench.leaders[partition] = 1 if led else -1
        self.bench.epochs[partition] += led
        self.bench.publish()

    @rule(reachable=st.booleans())
    def broker(self, reachable: bool) -> None:
        (self.bench.client.blocked.discard if reachable else self.bench.client.blocked.add)(1)

    @rule()
    def flush(self) -> None:
        (self.bench.accumulator.end_flush if self.flushing else self.bench.accumulator.begin_flush)()
        self.flushing = not self.flushing

    # ---- what always holds

    @invariant()
    def memory_is_exact(self) -> None:
        if hasattr(self, "bench"):
            taken = sum(batch.reserved_bytes for batch in self.bench.accumulator.incomplete() if not batch.is_split)
            assert self.bench.pool.available_bytes + taken == self.bench.pool.total_bytes

    @invariant()
    def nothing_fails_early(self) -> None:
        for sent in getattr(self, "sent", ()):
            if sent.future.done() and (error := sent.future.exception(0)) is not None:
                if isinstance(error, RecordTooLarge):
                    continue  # one record, refused as too large
                at = sent.partition
                reached("timed out")
                reached("timed out while others of the partition wait", any(x.partition == at and not x.future.done() for x in self.sent))
                assert isinstance(error, KafkaTimeoutError), error
                assert self.bench.clock.now_ms() >= sent.batch_ms + TIMEOUT_MS, "failed before its delivery timeout"

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        for partition in range(PARTITIONS):
            self.leader(partition, True)
        self.broker(True)
        if self.flushing:
            self.flush()
        for _ in range(60):
            while any(request.api is protocol.ProduceRequest for request, _ in self.bench.client.sent):
                self.answer(0)
            self.one_pass(20)
        assert all(sent.future.done() for sent in self.sent)
        incomplete = self.bench.accumulator.incomplete()
        assert all(batch is batch.queue.open and not batch.count for batch in incomplete)  # left behind by an interrupt
        self.flush()
        self.one_pass(0)
        assert self.bench.pool.available_bytes == self.bench.pool.total_bytes
        for partition, log in enumerate(self.logs):
            names = [value.rstrip(b".") for value in log.values]
            delivered = [sent.name for sent in self.sent if sent.partition == partition and sent.future.exception(0) is None]
            assert set(delivered) <= set(names)
            if self.numbered:
                assert len(names) == len(set(names)), "a record is there twice"
            if self.in_order:
                assert list(dict.fromkeys(names)) == [sent.name for sent in self.sent if sent.name in set(names)], "out of order"


QueueModel.TestCase.settings = settings(max_examples=10, stateful_step_count=27, deadline=None)
TestQueueModel = pytest.mark.slow(reached.by(QueueModel, rounds=8))


class Contended(Bench):
    """After a roll it is interrupted now and then, or lets other threads run, as between any two bytecodes of KafkaProducer._roll."""

    chance = random.Random(13)

    def _roll(self, queue: Any, chosen: Any, nbytes: int) -> None:
        super()._roll(queue, chosen, nbytes)
        dice = self.chance.randrange(50)
        if dice == 0:
            raise KeyboardInterrupt
        for _ in range(dice % 8):
            pass  # a bytecode at which the interpreter may switch


@pytest.mark.slow
@pytest.mark.parametrize("numbered", [True, False])
def test_threads_mixed_sizes_and_interrupts(numbered: bool) -> None:
    """A thread switch between any two bytecodes. Memory is ample: threads that wait for it would have empty batches dropped."""
    bench = Contended(
        partitions=PARTITIONS, batch_size=512, buffer_memory=64 << 20, enable_idempotence=numbered, delivery_timeout_ms=30_000,
        request_timeout_ms=900, client=lambda clock: BrokerClient(clock, PARTITIONS),
    )  # fmt: skip
    client: Any = bench.client
    sent: list[list[tuple[int, bytes, Any]]] = [[] for _ in range(4)]
    interrupted: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        for count in range(4000):
            partition = chance.randrange(PARTITIONS)
            name = b"%d-%05d" % (number, count)
            try:
                future = bench.send("t", name + b"." * chance.choice(SIZES), partition=partition)
            except KeyboardInterrupt as stop:
                interrupted.append(stop)
            else:
                sent[number].append((partition, name, future))

    previous = sys.getswitchinterval()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            bench.sender.run_once(bench.clock.now_ms(), 0)
    finally:
        sys.setswitchinterval(previous)
        for thread in threads:
            thread.join()
    passes_in_vain = 0
    while passes_in_vain < 50:
        settled = bench.sender.counters["batches"]
        bench.step()
        passes_in_vain = 0 if bench.sender.counters["batches"] > settled else passes_in_vain + 1
    records = [record for records in sent for record in records]
    assert interrupted
    assert [name for _, name, future in records if not future.done()] == []
    assert [name for _, name, future in records if future.exception(0) is not None] == []
    logs = [[value.rstrip(b".") for value in log.values] for log in client.logs]
    for partition, names in enumerate(logs):
        assert len(names) == len(set(names)), "a record is there twice"
        for number in range(4):
            own = [name for name in names if name.startswith(b"%d-" % number)]
            assert own == [name for at, name, _ in sent[number] if at == partition]
    bench.accumulator.begin_flush()  # drops what an interrupt has left open
    bench.step()
    assert bench.pool.available_bytes == bench.pool.total_bytes
