"""How calls of confluent-kafka's admin client run: each gives futures at once, which a thread of the client completes.

The thread starts with the first call, runs one call after the other by the engine's admin client, and waits in its queue between them. It
knows its queue only, and calls under way know their client: one that nobody holds any more ends with its thread once these are done.
Time-outs count from the call.

Source: confluent_kafka.admin.AdminClient, confluent-kafka 2.16.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from kafkacore import errors as ours
from kafkacore.admin import ItemResults
from kafkacore.admin import KafkaAdminClient as Engine
from kafkacore.compat.confluent.client_settings import COMMON, CONSUMER_SETTINGS, PRODUCER_SETTINGS, engine_settings, joined, number
from kafkacore.compat.confluent.events import Events, Watch
from kafkacore.compat.confluent.kafka_error import KafkaError, KafkaException, of, translated
from kafkacore.compat.confluent.logs import log_to
from kafkacore.compat.confluent.statistics import Statistics
from kafkacore.compat.settings import Kind, NoEffect
from kafkacore.config import AdminConfig
from kafkacore.net.driver import CallerDriver

K = TypeVar("K")
MOST_S = 3600.0
PROBE_MS = 1_000
_OF_OTHERS = NoEffect("it is a setting of producers or consumers")

ADMIN_SETTINGS: dict[str, Kind] = {
    **dict.fromkeys(sorted({*PRODUCER_SETTINGS, *CONSUMER_SETTINGS}), _OF_OTHERS),
    **COMMON,
}


class Options:
    """The keywords of a call.

    Args:
        call: its name, for errors.
        given: what the program gave.
        default_s: the time-out when none is given.
        defaults: other keywords that the call has, with their defaults.

    Raises:
        TypeError: a keyword that the call does not have, or of another type.
        ValueError: a time out of range.
    """

    def __init__(self, call: str, given: Mapping[str, Any], default_s: float, **defaults: Any) -> None:
        known = {"request_timeout": default_s, **defaults}
        for name, value in given.items():
            if name not in known:
                raise TypeError(f"{name!r} is an invalid keyword argument for {call}()")
            if isinstance(known[name], bool) and not isinstance(value, bool):
                raise TypeError(f"Expected {name} to be bool type, not {type(value).__name__}")
            if name == "broker" and not isinstance(value, int):
                raise TypeError(f"broker must be a broker's id, not {type(value).__name__}")
            if name.endswith("_timeout"):
                least = -0.001 if name == "operation_timeout" else 0
                if not isinstance(value, (int, float)):
                    raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
                if not least <= value <= MOST_S:
                    raise ValueError(f"{name}: expecting seconds in range 0..{MOST_S:.0f}, not {value!r}")
        self._values = {**known, **given}
        self.deadline = time.monotonic() + self._values["request_timeout"]

    def __getattr__(self, name: str) -> Any:
        return self._values[name]

    def left(self) -> float:
        """Seconds until the call is late.

        Raises:
            KafkaTimeoutError: it is.
        """
        left: float = self.deadline - time.monotonic()
        if left <= 0 < self.request_timeout:
            raise ours.KafkaTimeoutError("calls before this one took all of its time")
        return max(left, 0.001)


class Engines:
    """The engine of a client: another one after `set_sasl_credentials`.

    Args:
        settings: the engine's.
        watch: called with each of its drivers.
    """

    def __init__(self, settings: dict[str, Any], watch: Callable[[CallerDriver], object]) -> None:
        self._settings, self._watch = settings, watch
        self._lock = threading.Lock()
        self._ended = False
        self.now = self._made()

    def _made(self) -> Engine:
        made = Engine(**self._settings)
        made._drivers.made = self._watch
        self._watch(made._drivers.first)
        return made

    def change(self, **changes: Any) -> None:
        """Goes on with other settings."""
        with self._lock:
            if not self._ended:
                before, self._settings = self.now, self._settings | changes
                self.now = self._made()
                before.close()

    def end(self) -> None:
        """Closes the engine: a running call ends at once, and so do later ones."""
        with self._lock:
            self._ended = True
            self.now.close()


def _nothing() -> None:
    """The event that ends a `poll` of a client that is closed."""


def _serve(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # and what it holds


def _end(engines: Engines, jobs: queue.SimpleQueue[Any]) -> None:
    engines.end()
    jobs.put(None)


_CLOSED = threading.Event()
_CLOSED.set()


class AdminBase:
    """Settings, the thread, and ways to run a call."""

    _closed = _CLOSED  # of a subclass that skips __init__, too
    _under_way = 0
    _default_s = MOST_S

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        if not isinstance(conf, dict):
            raise TypeError("expected configuration dict")
        given = joined(conf, kwargs)
        settings = engine_settings(ADMIN_SETTINGS, given)
        known = set(AdminConfig.names())
        settings = {name: value for name, value in settings.items() if name in known}
        log_to(self, given)
        events = self._events = Events()
        with translated("Failed to create admin client"):
            engines = self._engines = Engines(settings, lambda driver: Watch(events, lambda: driver.client, given))
        if (interval_ms := number(given, "statistics.interval.ms")) > 0 and (tell := given.get("stats_cb")) is not None:
            client = str(settings["client_id"])
            self._events.statistics = Statistics("producer", client, tell, interval_ms, lambda: engines.now._drivers.first.client, dict)
        self._default_s = self._engines.now.config.request_timeout_ms / 1000
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._under_way = 0
        self._closed = threading.Event()
        self._ending = weakref.finalize(self, _end, self._engines, self._jobs)
        if given.get("error_cb") is not None:  # as librdkafka does: it connects at once, and so says at once what is wrong
            self._one(lambda engine: engine._metadata([], PROBE_MS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None) -> None:
        """Ends the client: calls under way fail with _DESTROY."""
        with self._lock:
            self._closed.set()
            self._ending()
            self._events.put(_nothing)

    def __len__(self) -> int:
        return self._under_way

    # -- running ------------------------------------------------------------------------------------------------------------------

    def _put(self, job: Callable[[], None]) -> None:
        """Queues what is to be done.

        Raises:
            RuntimeError: the client is closed.
        """
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("AdminClient has been closed")
            if self._thread is None or not self._thread.is_alive():  # the second: in a child process
                self._thread = threading.Thread(target=_serve, args=(self._jobs,), name="kafkacore-confluent-admin", daemon=True)
                self._thread.start()
            self._under_way += 1
            self._jobs.put(job)

    def _each(self, keys: Iterable[K], work: Callable[[Engine], Mapping[K, Any]]) -> dict[K, Future[Any]]:
        """Runs a call with a future for each of its items.

        Args:
            keys: the items.
            work: asks the engine; gives each item's result, or an error of the engine.
        """
        futures = {key: new_future() for key in keys}
        if not futures:
            return futures
        if self._closed.is_set():
            raise RuntimeError("AdminClient has been closed")
        engines = self._engines

        def run() -> None:
            try:
                engine = engines.now
                with engine._drivers.lent():
                    found = work(engine)
                outcomes = {key: found.get(key, ours.IncompleteAnswerError(f"the answer leaves out {key}")) for key in futures}
            except Exception as error:
                outcomes = dict.fromkeys(futures, error)
            with self._lock:
                self._under_way -= 1
            for key, future in futures.items():
                complete(future, outcomes[key])

        self._put(run)
        return futures

    def _one(self, work: Callable[[Engine], Any]) -> Future[Any]:
        """Runs a call with one future."""
        return self._each([None], lambda engine: {None: work(engine)})[None]

    def _now(self, what: str, timeout: float | None, work: Callable[[Engine, float], Any]) -> Any:
        """Runs a call in the thread of its caller, beside those that are queued.

        Args:
            what: what is tried, for errors.
            timeout: seconds; None and below 0: the longest there is.
            work: asks the engine, within so many seconds.
        """
        if self._closed.is_set():
            raise RuntimeError("Handle has been closed")
        seconds = MOST_S if timeout is None or timeout < 0 else timeout
        engine = self._engines.now
        with translated(what), engine._drivers.lent():
            return work(engine, seconds)

    def _options(self, call: str, given: Mapping[str, Any], **defaults: Any) -> Options:
        return Options(call, given, self._default_s, **defaults)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Calls from now on authenticate with these, on new connections.

        Raises:
            TypeError: one of them is no str.
        """
        for value in (username, password):
            if not isinstance(value, str):
                raise TypeError(f"credentials must be str, not {type(value).__name__}")
        engines = self._engines
        self._one(lambda _: engines.change(sasl_username=username, sasl_password=password))

    def poll(self, timeout: float | None = -1) -> int:
        """Serves error_cb, throttle_cb and stats_cb; futures need no `poll`.

        Args:
            timeout: seconds to wait for an event; without limit when it is -1 or None.

        Returns:
            How many were served.
        """
        if self._closed.is_set():
            raise RuntimeError("AdminClient has been closed")
        served = self._events.serve(None if timeout is None or timeout < 0 else timeout)
        return 0 if self._closed.is_set() else served


def new_future() -> Future[Any]:
    """A future that cannot be cancelled: what brokers were asked for may be done."""
    made: Future[Any] = Future()
    made.set_running_or_notify_cancel()
    return made


def complete(future: Future[Any], outcome: Any) -> None:
    """Gives a future its result, or an error: the engine's become KafkaException."""
    if isinstance(outcome, ours.OffsetOutOfRange):  # of delete_records: where consumers have it, a reset follows
        future.set_exception(_raised(KafkaError(int(ours.Code.OFFSET_OUT_OF_RANGE), str(outcome)), outcome))
    elif isinstance(outcome, ours.KafkaError):
        future.set_exception(_raised(of(outcome), outcome))
    elif isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _raised(error: KafkaError, cause: Exception) -> KafkaException:
    made = KafkaException(error)
    made.__cause__ = cause
    return made


def outcomes(results: ItemResults[Any, Any], keys: Mapping[K, Any], shown: Callable[[Any], Any] = lambda value: value) -> dict[K, Any]:
    """The engine's results by the program's items.

    Args:
        results: the engine's.
        keys: by item, its key there.
        shown: makes a result.
    """
    done, failed = results.succeeded, results.errors
    return {item: failed[key] if key in failed else shown(done[key]) for item, key in keys.items() if key in failed or key in done}


def a_list(values: Any, kind: type[Any], what: str, error: type[Exception] = TypeError) -> list[Any]:
    """A list that is not empty, of objects of one kind.

    Raises:
        TypeError: it is no list.
        ValueError: it is empty.
        Exception: `error`: it holds something else.
    """
    if not isinstance(values, list):
        raise TypeError(f"{what} must be list, not {type(values).__name__}")
    if not values:
        raise ValueError(f"Expected non-empty list of {what}")
    for value in values:
        if not isinstance(value, kind):
            raise error(f"Expected list of {kind.__name__}, not {type(value).__name__}")
    return values
