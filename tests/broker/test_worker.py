"""The worker: one job after the other beside the owner, outcomes in the owner's thread, failures told."""

import threading
from collections import deque

from kafkacore.broker.worker import Worker
from tests.kit.inside import thread_of


class Owner:
    """A thread that runs what is posted when it looks."""

    def __init__(self):
        self.messages, self.arrived = deque(), threading.Semaphore(0)
        self.worker = Worker(self.post)

    def post(self, message):
        self.messages.append(message)
        self.arrived.release()

    def run(self, count):
        for _ in range(count):
            assert self.arrived.acquire(timeout=60)
            self.messages.popleft()()


def test_jobs_run_in_order_elsewhere_and_their_outcomes_come_home():
    owner, outcomes, threads = Owner(), [], []
    assert thread_of(owner.worker) is None  # no job, no thread

    def job(nth):
        def work():
            threads.append(threading.get_ident())
            return nth

        return work

    for nth in range(20):
        owner.worker.submit(job(nth), lambda outcome: outcomes.append((outcome, threading.get_ident())))
    assert owner.worker.pending == 20 - len(outcomes)
    owner.run(20)
    assert outcomes == [(nth, threading.get_ident()) for nth in range(20)]
    assert len(set(threads)) == 1 and threading.get_ident() not in threads
    assert owner.worker.pending == 0
    owner.worker.stop()


def test_a_failed_job_tells_its_exception_and_the_next_one_runs():
    owner, outcomes = Owner(), []
    owner.worker.submit(lambda: 1 // 0, outcomes.append)
    owner.worker.submit(lambda: "fine", outcomes.append)
    owner.run(2)
    assert isinstance(outcomes[0], ZeroDivisionError) and outcomes[1] == "fine"
    owner.worker.stop()


def test_stop_waits_for_the_jobs_and_a_later_job_begins_anew():
    owner, outcomes = Owner(), []
    begin = threading.Event()
    owner.worker.submit(lambda: begin.wait(60), outcomes.append)
    owner.worker.submit(lambda: 2, outcomes.append)
    threading.Timer(0.01, begin.set).start()
    owner.worker.stop()
    assert len(owner.messages) == 2 and outcomes == []  # told when the owner looks, not before
    owner.run(2)
    assert outcomes == [True, 2]
    owner.worker.submit(lambda: 3, outcomes.append)
    owner.run(1)
    assert outcomes[-1] == 3
    owner.worker.stop()
