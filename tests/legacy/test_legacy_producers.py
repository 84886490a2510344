"""AsyncProducer and SyncProducer around an event handler that keeps what it gets; the queue by itself with a clock moved by hand."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.legacy import (
    AsyncProducer,
    CallbackHandler,
    FailedToSendMessageError,
    KeyedMessage,
    QueueFullError,
    SyncProducer,
    event_handler,
    producers,
)
from kafkacore.legacy.producers import MessageQueue
from kafkacore.legacy.statistics import Counts
from tests.kit.inside import changed_of, thread_of
from tests.kit.rows import each_row
from tests.legacy.legacy_fakes import FakeBrokers

GUARD_S = 90.0
FOREVER_MS = 10**9


class KeepingHandler:
    """Keeps the batches; `hold()` makes it stop inside `handle` until `release()`."""

    def __init__(self):
        self.counts = Counts()
        self.batches = []
        self.changed = threading.Condition()
        self.held = False
        self.inside = False
        self.closed = False
        self.failing = None

    def handle(self, messages):
        with self.changed:
            self.inside = True
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: not self.held, GUARD_S)
            self.inside = False
            self.batches.append([m.message for m in messages])
            self.changed.notify_all()
        if self.failing is not None:
            raise self.failing(messages)

    def close(self):
        self.closed = True

    def hold(self):
        self.held = True

    def release(self):
        with self.changed:
            self.held = False
            self.changed.notify_all()

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, GUARD_S)


def producer_of(handler, **settings):
    extra = {name: settings.pop(name) for name in ("callback_handler", "clock") if name in settings}
    settings = {"queue_buffering_max_ms": FOREVER_MS, **settings}
    return AsyncProducer(bootstrap_servers="nowhere:1", event_handler=handler, **extra, **settings)


def messages_of(*numbers):
    return [KeyedMessage("t", n) for n in numbers]


# -- the queue ------------------------------------------------------------------------------------------------------------------------


def test_a_batch_is_due_when_enough_messages_wait():
    queue = MessageQueue(10, 5_000, 3)
    assert queue.wait_ms(0) is None
    assert queue.put(messages_of(1, 2), 100) == 2
    assert queue.wait_ms(100) == 5_000
    queue.put(messages_of(3, 4), 200)
    assert queue.wait_ms(200) == 0
    assert [m.message for m in queue.take(200)] == [1, 2, 3]


def test_a_batch_is_due_when_the_oldest_message_has_waited_long_enough():
    queue = MessageQueue(10, 5_000, 3)
    queue.put(messages_of(1), 100)
    queue.put(messages_of(2), 4_000)
    assert [queue.wait_ms(ms) for ms in (4_000, 5_099, 5_100, 9_000)] == [1_100, 1, 0, 0]
    assert len(queue.take(5_100)) == 2
    assert queue.wait_ms(5_100) is None


def test_what_stays_behind_a_batch_begins_to_wait():
    queue = MessageQueue(10, 5_000, 3)
    queue.put(messages_of(1, 2, 3, 4), 0)
    queue.take(10)
    assert queue.wait_ms(10) == 5_000


def test_the_queue_takes_what_it_has_room_for():
    queue = MessageQueue(3, 5_000, 200)
    assert queue.put(messages_of(1, 2, 3, 4, 5), 0) == 3
    assert (queue.room, len(queue), queue.put(messages_of(6), 0)) == (0, 3, 0)
    assert queue.wait_ms(0) == 0  # nothing more can come, so there is nothing to wait for


def test_a_closing_queue_gives_out_the_rest():
    queue = MessageQueue(10, 5_000, 3)
    queue.put(messages_of(1), 0)
    queue.closing = True
    assert queue.wait_ms(0) == 0


# -- the async producer -----------------------------------------------------------------------------------------------------------------


def test_messages_go_out_in_batches_and_the_rest_when_it_closes():
    handler = KeepingHandler()
    with producer_of(handler, batch_num_messages=4) as producer:
        for message in messages_of(*range(4)):
            producer.send(message)
        handler.wait_for(lambda: handler.batches)
        assert handler.batches == [[0, 1, 2, 3]]
        producer.send(*messages_of(4, 5, 6, 7, 8, 9))
        handler.wait_for(lambda: len(handler.batches) == 2)
    assert handler.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert handler.closed


def test_a_send_takes_the_lock_once(monkeypatch):
    takers = []

    class Lock:
        def __init__(self):
            self._lock = threading.Lock()
            self.release = self._lock.release

        def acquire(self, *how):
            taken = self._lock.acquire(*how)
            takers.extend([threading.current_thread()] * taken)
            return taken

        def __enter__(self):
            self.acquire()

        def __exit__(self, *error):
            self.release()

    monkeypatch.setattr(producers, "threading", SimpleNamespace(**vars(threading) | {"Lock": Lock}))
    with producer_of(KeepingHandler()) as producer:
        producer.send(*messages_of(*range(100)))
        assert takers.count(threading.current_thread()) == 1


def test_a_lonely_message_goes_out_after_its_time():
    handler = KeepingHandler()
    with producer_of(handler, queue_buffering_max_ms=1) as producer:
        producer.send(*messages_of(1))
        handler.wait_for(lambda: handler.batches)
        assert handler.batches == [[1]]


def full(handler, **settings):
    """A producer whose thread is busy with message 0, and whose queue of two is full."""
    handler.hold()
    producer = producer_of(handler, queue_buffering_max_messages=2, batch_num_messages=1, **settings)
    producer.send(*messages_of(0))
    handler.wait_for(lambda: handler.inside)
    producer.send(*messages_of(1, 2))
    return producer


def test_with_a_timeout_of_0_a_full_queue_drops_at_once():
    handler = KeepingHandler()
    producer = full(handler, queue_enqueue_timeout_ms=0)
    with pytest.raises(QueueFullError, match="2 were dropped, the first for topic t") as dropped:
        producer.send(*messages_of(3, 4))
    assert [m.message for m in dropped.value.messages] == [3, 4]
    assert isinstance(dropped.value, errors.BufferFullError)
    found = producer.statistics()
    assert (found.topics["t"].dropped_messages.count, found.queue_size) == (2, 2)
    handler.release()
    producer.close()
    assert handler.batches == [[0], [1], [2]]


def test_with_a_timeout_of_minus_1_a_full_queue_makes_the_caller_wait():
    handler = KeepingHandler()
    producer = full(handler, queue_enqueue_timeout_ms=-1)
    caller = threading.Thread(target=lambda: producer.send(*messages_of(3, 4, 5)))
    caller.start()
    handler.release()
    caller.join(GUARD_S)
    assert not caller.is_alive()
    producer.close()
    assert handler.batches == [[n] for n in range(6)]


def test_with_a_timeout_a_full_queue_makes_the_caller_wait_so_long():
    handler, clock, waits = KeepingHandler(), ManualClock(), []
    producer = full(handler, queue_enqueue_timeout_ms=500, clock=clock)

    def wait(seconds):
        waits.append(seconds)
        clock.advance(400)

    changed_of(producer).wait, before = wait, changed_of(producer).wait
    with pytest.raises(QueueFullError):
        producer.send(*messages_of(3))
    changed_of(producer).wait = before
    assert waits == [0.5, 0.1]
    handler.release()
    producer.close()


def test_a_close_beside_a_caller_that_waits_says_what_is_queued():
    handler, callbacks = KeepingHandler(), Recorder()
    handler.hold()
    producer = producer_of(handler, queue_buffering_max_messages=2, batch_num_messages=1, callback_handler=callbacks)
    producer.send(*messages_of(0))
    handler.wait_for(lambda: handler.inside)
    waits, raised = threading.Event(), []
    before = changed_of(producer).wait
    changed_of(producer).wait = lambda *a: (waits.set(), before(*a))[1]  # type: ignore[method-assign]

    def send():
        try:
            producer.send(*messages_of(1, 3, 4))  # two fit
        except errors.ClosedError as error:
            raised.append(error)

    caller = threading.Thread(target=send)
    caller.start()
    assert waits.wait(GUARD_S)
    with pytest.raises(errors.KafkaTimeoutError):
        producer.close(timeout=0)
    caller.join(GUARD_S)
    handler.release()
    producer.close()
    assert "2 of 3 messages of this call were queued" in str(raised[0])
    assert [m.message for m in raised[0].messages] == [40]
    assert [call[1:] for call in callbacks.calls if call[0] == "after_enqueue"] == [(0, True), (10, True), (30, True), (40, False)]
    assert [n for batch in handler.batches for n in batch if n != -1] == [0, 10, 30, 99]


def test_ctrl_c_while_a_caller_waits_says_what_is_not_queued():
    handler = KeepingHandler()
    producer = full(handler)

    def interrupted(*_):
        raise KeyboardInterrupt

    changed_of(producer).wait, before = interrupted, changed_of(producer).wait  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt) as ended:
        producer.send(*messages_of(3, 4))
    changed_of(producer).wait = before  # type: ignore[method-assign]
    assert [m.message for m in ended.value.messages] == [3, 4]
    handler.release()
    producer.close()
    assert handler.batches == [[0], [1], [2]]


def test_a_callback_that_sends_does_not_wait_for_its_own_thread():
    class Again(CallbackHandler):
        full = None

        def on_failure(self, messages, error):
            handler.failing = None
            try:
                producer.send(*messages, *messages_of(7))
            except QueueFullError as full:
                self.full = full

    handler, again = KeepingHandler(), Again()
    handler.failing = lambda messages: ValueError("broken")
    producer = full(handler, queue_enqueue_timeout_ms=-1, callback_handler=again)
    handler.release()
    handler.wait_for(lambda: len(handler.batches) == 3)
    producer.close(GUARD_S)
    assert [m.message for m in again.full.messages] == [0, 7]
    assert handler.batches == [[0], [1], [2]]


def test_a_thread_that_ends_early_leaves_nobody_waiting():
    handler, callbacks = KeepingHandler(), Recorder()
    producer = full(handler, callback_handler=callbacks)
    handler.failing = lambda messages: SystemExit(3)
    handler.release()
    thread_of(producer).join(GUARD_S)
    with pytest.raises(errors.ClosedError):
        producer.send(*messages_of(5))  # the queue was full, and the timeout is without end
    assert [call[1] for call in callbacks.calls if call[0] == "failed"] == [[0, -1], [10, 20]]
    assert handler.closed
    producer.close()


def test_after_the_close_nothing_can_be_sent():
    handler = KeepingHandler()
    for producer in (producer_of(handler), SyncProducer(bootstrap_servers="nowhere:1", event_handler=handler)):
        producer.close()
        producer.close()
        with pytest.raises(errors.ClosedError):
            producer.send(*messages_of(1))


def test_a_batch_that_fails_takes_nothing_with_it_and_the_close_tells():
    handler = KeepingHandler()
    producer = producer_of(handler, batch_num_messages=2)
    handler.failing = lambda messages: FailedToSendMessageError("no", failed={("t", 0): errors.LeaderNotAvailable()}, messages=messages[:1])
    producer.send(*messages_of(1, 2))
    handler.wait_for(lambda: len(handler.batches) == 1)
    handler.failing = lambda messages: ZeroDivisionError("a partitioner")
    producer.send(*messages_of(3, 4))
    handler.wait_for(lambda: len(handler.batches) == 2)
    handler.failing = None
    producer.send(*messages_of(5))
    with pytest.raises(errors.DeliveryError, match=r"3 records .*not delivered; first cause: no; t-0") as lost:
        producer.close()
    assert handler.batches == [[1, 2], [3, 4], [5]]
    assert [type(cause) for cause in lost.value.causes] == [FailedToSendMessageError, ZeroDivisionError]
    assert lost.value.failed == 3
    producer.close()


def test_of_many_failures_the_first_are_kept():
    handler = KeepingHandler()
    handler.failing = lambda messages: ValueError(messages[0].message)
    producer = producer_of(handler, batch_num_messages=1)
    producer.send(*messages_of(*range(20)))
    with pytest.raises(errors.DeliveryError) as lost:
        producer.close()
    assert (lost.value.failed, [cause.args for cause in lost.value.causes]) == (20, [(n,) for n in range(16)])


class Recorder(CallbackHandler):
    def __init__(self):
        self.calls = []

    def before_enqueue(self, message):
        return KeyedMessage(message.topic, message.message * 10)

    def after_enqueue(self, message, added):
        self.calls.append(("after_enqueue", message.message, added))

    def after_dequeuing_existing_data(self, messages):
        self.calls.append(("dequeued", [m.message for m in messages]))
        return [m for m in messages if m.message != 20]

    def before_sending_data(self, messages):
        return [*messages, KeyedMessage("t", -1)]

    def last_batch_before_close(self):
        return messages_of(99)

    def on_failure(self, messages, error):
        self.calls.append(("failed", [m.message for m in messages], type(error)))

    def close(self):
        self.calls.append(("close",))


def test_callbacks_are_called_on_the_way():
    handler, callbacks = KeepingHandler(), Recorder()
    with producer_of(handler, callback_handler=callbacks) as producer:
        producer.send(*messages_of(1, 2, 3))
    assert handler.batches == [[10, 30, -1], [99, -1]]
    assert callbacks.calls == [
        *[("after_enqueue", n, True) for n in (10, 20, 30)],
        ("dequeued", [10, 20, 30]),
        ("close",),
    ]


def test_a_callback_hears_of_what_was_lost_and_of_what_was_dropped():
    handler, callbacks = KeepingHandler(), Recorder()
    handler.failing = lambda messages: ValueError("broken")
    producer = full(handler, callback_handler=callbacks, queue_enqueue_timeout_ms=0)
    with pytest.raises(QueueFullError):
        producer.send(*messages_of(7))
    handler.release()
    producer.close()
    assert ("after_enqueue", 70, False) in callbacks.calls
    assert ("failed", [0, -1], ValueError) in callbacks.calls


def test_what_is_no_message_is_refused():
    handler = KeepingHandler()
    with producer_of(handler) as producer, pytest.raises(errors.UsageError, match="takes KeyedMessages, not bytes"):
        producer.send(*messages_of(1), b"m")
    assert handler.batches == []


@each_row("kind", [SyncProducer, AsyncProducer])
def test_a_producer_hands_its_clock_on(monkeypatch, kind):
    clock, clocks = ManualClock(), []

    def network(config, counts, *, clock=None):
        clocks.append(clock)
        return FakeBrokers(clock)

    monkeypatch.setattr(event_handler, "NetworkBrokers", network)
    with kind(bootstrap_servers="nowhere:1", clock=clock) as producer:
        assert producer.statistics().queue_size == 0
    assert clocks == [clock]


# -- the sync producer -----------------------------------------------------------------------------------------------------------------


def test_the_sync_producer_sends_in_the_callers_thread():
    handler = KeepingHandler()
    with SyncProducer(bootstrap_servers="nowhere:1", event_handler=handler) as producer:
        producer.send(*messages_of(1, 2))
        assert handler.batches == [[1, 2]]
        handler.failing = lambda messages: FailedToSendMessageError("no", messages=messages)
        with pytest.raises(FailedToSendMessageError):
            producer.send(*messages_of(3))
        assert producer.statistics().queue_size == 0
    assert handler.closed
