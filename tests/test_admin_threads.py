"""Calls of several threads and tasks on one admin client run beside each other."""

import asyncio
import os
import signal
import threading

import pytest

from kafkacore import NewTopic, errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.admin.drivers import MOST_KEPT
from kafkacore.aio import KafkaAdminClient as AioAdminClient
from kafkacore.aio.call_threads import MOST_THREADS
from kafkacore.broker.server import Broker, Drop
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.protocol import DescribeAclsRequest, DescribeAclsResponse, DescribeLogDirsRequest, ListOffsetsRequest
from tests.kit.inside import drivers_of
from tests.kit.rows import each_row

GUARD_S = 60


@pytest.fixture
def broker():
    with Broker(BrokerConfig(auto_create_topics_enable=False)) as running:
        yield running


@pytest.fixture
def admin(broker):
    with KafkaAdminClient(bootstrap_servers=broker.address, retry_backoff_ms=10) as made:
        yield made


class Unanswered:
    """DescribeLogDirs gets no answer from the broker; `asked` counts the requests."""

    def __init__(self, broker):
        self.asked = threading.Semaphore(0)
        broker.control(DescribeLogDirsRequest.API_KEY, self._drop)

    def _drop(self, request):
        self.asked.release()
        return Drop

    def wait(self, count=1):
        for _ in range(count):
            assert self.asked.acquire(timeout=GUARD_S)


class Calling(threading.Thread):
    """A call in a thread of its own, with its result or its error."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self._call, self.result, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error

    def ended(self):
        self.join(GUARD_S)
        assert not self.is_alive()
        return self


def test_a_call_does_not_wait_for_that_of_another_thread(broker, admin):
    held = Unanswered(broker)
    slow = [Calling(lambda: admin.describe_log_dirs([1], timeout=GUARD_S)) for _ in range(2)]
    held.wait(2)
    assert admin.list_topics(timeout=GUARD_S) == []
    refused = DescribeAclsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
    broker.control(DescribeAclsRequest.API_KEY, lambda request: refused)
    with pytest.raises(errors.ClusterAuthorization):  # the error of one call stays with it
        admin.describe_acls(timeout=GUARD_S)
    quick = admin.describe_log_dirs([1], timeout=0.05)
    assert isinstance(quick.errors[1], errors.KafkaTimeoutError)
    assert all(call.is_alive() for call in slow)
    admin.close()
    assert [type(call.ended().error) for call in slow] == [errors.ClosedError] * 2


def of_a_broker(admin):
    return admin.describe_log_dirs([1], timeout=0.3).errors[1]


def of_a_leader(admin):
    try:
        return admin.list_offsets({("t", 0): "latest"}, timeout=0.3).errors[("t", 0)]
    except errors.KafkaTimeoutError as error:  # on a busy machine its metadata were late
        return error


@each_row("late", [of_a_broker, of_a_leader])
def test_no_call_waits_behind_the_answer_that_a_late_one_left(broker, late):
    """The requests of one connection are answered in their order."""
    with KafkaAdminClient(bootstrap_servers=broker.address, request_timeout_ms=600_000) as admin:
        if "t" not in admin.list_topics():
            admin.create_topics([NewTopic("t", 1, 1)]).check()
        admin.list_offsets({("t", 0): "latest"}).check()
        Unanswered(broker)
        broker.control(ListOffsetsRequest.API_KEY, lambda request: Drop)
        try:
            assert isinstance(late(admin), errors.KafkaTimeoutError)
            assert admin.list_topics(timeout=GUARD_S) == ["t"]
            broker.control(ListOffsetsRequest.API_KEY, None)
            assert admin.list_offsets({("t", 0): "latest"}, timeout=GUARD_S).check()[("t", 0)].offset == 0
        finally:
            broker.control(ListOffsetsRequest.API_KEY, None)


def test_connections_of_few_calls_are_kept(broker, admin):
    held = Unanswered(broker)
    calls = [Calling(lambda: admin.describe_log_dirs([1], timeout=GUARD_S)) for _ in range(MOST_KEPT + 3)]
    held.wait(len(calls))
    broker.control(DescribeLogDirsRequest.API_KEY, None)
    drivers = drivers_of(admin)
    assert len(drivers.all) == len(calls)
    for driver in tuple(drivers.all):
        driver.wakeup()
    assert all(isinstance(call.ended().error, errors.WakeupError) for call in calls)
    assert len(drivers.all) == len(drivers.free) == MOST_KEPT
    assert drivers.first in drivers.free


def test_a_call_within_a_call_has_its_connections(admin):
    drivers = drivers_of(admin)
    with drivers.lent():
        outer = drivers.current
        with drivers.lent():
            assert drivers.current is outer
        assert drivers.current is outer
    assert drivers.all == drivers.free == [outer]


def test_a_call_that_takes_connections_while_the_client_closes_them(broker, admin):
    drivers_of(admin).free.clear()
    drivers_of(admin).first.closed = True  # as `close` does between two looks of another thread
    with pytest.raises(errors.ClosedError):
        drivers_of(admin).new()
    assert all(driver.closed for driver in drivers_of(admin).all)
    drivers_of(admin).first.closed = False


def test_ctrl_c_ends_the_call_of_its_thread_and_no_other(broker, admin):
    held = Unanswered(broker)
    main, caught = threading.get_ident(), threading.Event()

    def once(number, frame):
        if not caught.is_set():
            caught.set()
            raise KeyboardInterrupt

    def interrupt():
        held.wait()
        while not caught.wait(0.1):  # a signal that comes just before the wait does not end it
            signal.pthread_kill(main, signal.SIGINT)

    slow = Calling(lambda: admin.describe_log_dirs([1], timeout=GUARD_S))
    held.wait()
    before = signal.signal(signal.SIGINT, once)
    try:
        other = Calling(interrupt)
        with pytest.raises(KeyboardInterrupt):
            admin.describe_log_dirs([1], timeout=GUARD_S)
        other.ended()
    finally:
        signal.signal(signal.SIGINT, before)
    assert slow.is_alive()
    assert admin.list_topics(timeout=GUARD_S) == []
    admin.close()
    slow.ended()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_was_forked_during_a_call_is_refused_and_closes_nothing(broker, admin):
    held = Unanswered(broker)
    slow = Calling(lambda: admin.describe_log_dirs([1], timeout=GUARD_S))
    held.wait()
    child = os.fork()
    if not child:
        code = 1
        try:
            admin.list_topics()
        except errors.ForkedClientError:
            admin.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert admin.list_topics(timeout=GUARD_S) == []
    admin.close()
    slow.ended()


def test_tasks_of_a_loop_do_not_wait_for_each_other(broker):
    held = Unanswered(broker)

    async def run():
        async with AioAdminClient(bootstrap_servers=broker.address) as admin:
            slow = asyncio.create_task(admin.describe_log_dirs([1], timeout=GUARD_S))
            await asyncio.to_thread(held.wait)
            assert await admin.list_topics(timeout=GUARD_S) == []
            assert not slow.done()
            slow.cancel()  # ends this call, and no other
            other = asyncio.create_task(admin.describe_log_dirs([1], timeout=0.05))
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert isinstance((await other).errors[1], errors.KafkaTimeoutError)

    asyncio.run(run())


def test_more_tasks_than_threads(broker):
    async def run():
        async with AioAdminClient(bootstrap_servers=broker.address) as admin:
            names = [f"t{i:02}" for i in range(3 * MOST_THREADS)]
            await asyncio.gather(*(admin.create_topics([name]) for name in names))
            assert await admin.list_topics() == names
            assert sum(thread.name == "kafkacore-admin" for thread in threading.enumerate()) <= MOST_THREADS

    asyncio.run(run())
