"""A broker in a few lines, and a client that answers from it: what it takes, in which order, and each record once."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from producer_support import ScriptedClient, read_request, response

from kafkacore import errors, protocol
from kafkacore.clock import ManualClock
from kafkacore.errors import Code
from kafkacore.producer.accumulator import NEVER_MS

LOST = -1000  # a fault: the batch is taken and its answer is lost
REFUSED = -1001  # a fault: the connection ends before the batch has come
GUARD_S = 200  # a deadlock has no end; a busy machine has one


class PartitionLog:
    """One partition as its leader keeps it: the records, and what it knows of the producer (ProducerStateManager)."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.epoch = -1
        self.next_sequence = 0
        self.taken: dict[tuple[int, int], int] = {}  # (epoch, base sequence) -> base offset

    def append(self, batch: Any, fault: int = 0) -> tuple[int, int]:
        """(error code, base offset); a fault is none for a batch that is there already."""
        values = [record.value for record in batch.records()]
        key = (batch.producer_epoch, batch.base_sequence)
        if batch.producer_id >= 0 and key in self.taken:
            return 0, self.taken[key]
        if fault > 0:
            return fault, -1
        if batch.producer_id < 0:
            self.values += values
            return 0, len(self.values) - len(values)
        if batch.producer_epoch > self.epoch:
            self.epoch, self.next_sequence = batch.producer_epoch, 0
        if batch.producer_epoch < self.epoch:
            return Code.INVALID_PRODUCER_EPOCH, -1
        if batch.base_sequence != self.next_sequence:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.next_sequence += len(values)
        self.taken[key] = len(self.values)
        self.values += values
        return 0, self.taken[key]


class BrokerClient(ScriptedClient):
    """Answers at once, with the next of `faults` if there is one. A poll that would wait moves the clock by as much; only one without end
    sleeps, until a wake-up."""

    def __init__(self, clock: ManualClock, partitions: int) -> None:
        super().__init__(clock)
        self.logs = [PartitionLog() for _ in range(partitions)]
        self.faults: deque[int] = deque()
        self.woken = threading.Event()
        self.stalled = False  # slept for longer than any test should

    def wakeup(self) -> None:
        super().wakeup()
        self.woken.set()

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        while self.sent:
            self.serve(*self.sent[0])
        if not self.answers and timeout_ms > 0:
            if timeout_ms < NEVER_MS // 2:
                self.clock.advance(timeout_ms)
            else:
                self.stalled |= not self.woken.wait(GUARD_S)
        self.woken.clear()
        super().poll(timeout_ms, now_ms)

    def serve(self, request: Any, message: Any) -> None:
        if request.api is protocol.InitProducerIdRequest:
            self.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
            return
        fault = self.faults.popleft() if self.faults else 0
        lost = errors.DisconnectError("the connection was closed before the answer", broker=1)
        if fault == REFUSED:
            self.answer(error=lost)
            return
        batches = read_request(message)
        results = {index: self.logs[index].append(batch, fault) for index, batch in batches.items()}
        if fault == LOST:
            self.answer(error=lost)
        elif not request.expect_response:
            self.answer()
        else:
            self.answer(response(*((index, *result) for index, result in results.items())))
