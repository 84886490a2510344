"""A thread beside a broker's own, for what waits for the disk or computes for long.

A broker has three of them: for fsync, checkpoints and deletion; for compaction; for batches that take long to check.

Rules:

1. Jobs run one after the other, in the order they came. What a job touches belongs to it alone until its outcome is handed over: the job
   gets all it needs handed in, and the owner changes its own state only in `done`.
   [test_jobs_run_in_order_elsewhere_and_their_outcomes_come_home]
2. `done` runs in the owner's thread, through its post. A failed job hands over its exception; nothing is swallowed.
   [test_jobs_run_in_order_elsewhere_and_their_outcomes_come_home, test_a_failed_job_tells_its_exception_and_the_next_one_runs]
3. The thread begins with the first job: a broker without any has none. [test_jobs_run_in_order_elsewhere_and_their_outcomes_come_home]
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Job = Callable[[], Callable[[], None]]


class Worker:
    """Runs jobs in a thread of its own."""

    def __init__(self, post: Callable[[Callable[[], None]], None], name: str = "kafkacore-worker") -> None:
        """No thread yet.

        Args:
            post: hands a function to the owner's thread.
            name: of the thread.
        """
        self._post = post
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.pending = 0

    def submit(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Runs a function later; called by the owner.

        Args:
            work: runs in the worker's thread.
            done: gets its result or its exception, in the owner's thread.
        """

        def job() -> Callable[[], None]:
            outcome: T | Exception
            try:
                outcome = work()
            except Exception as error:
                outcome = error
            return lambda: self._finish(done, outcome)

        self.pending += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _finish(self, done: Callable[[T | Exception], None], outcome: T | Exception) -> None:
        self.pending -= 1
        done(outcome)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._post(job())
            del job                                           # while the thread waits for the next one, it holds nothing of this one

    def stop(self) -> None:
        """Ends the thread once the jobs it has are done; their `done` comes through the post as ever. A later submit begins a new one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()


class InlineWorker(Worker):
    """Runs every job at once in the owner's thread: for tests and tools without a loop."""

    def __init__(self) -> None:
        super().__init__(lambda message: message())

    def submit(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        outcome: T | Exception
        try:
            outcome = work()
        except Exception as error:
            outcome = error
        done(outcome)
