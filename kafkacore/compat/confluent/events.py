"""What a client's `poll` serves: delivery reports, and the callbacks error_cb and throttle_cb.

Any thread puts events in; the threads that call `poll` run them. What raises ends its call; the events behind it are for the next one.

Source: rd_kafka_poll, the reply queue of librdkafka 2.16.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kafkacore import errors as ours
from kafkacore._codec import Reports
from kafkacore.compat.confluent.kafka_error import CODES, KafkaError, code_of, translated
from kafkacore.compat.confluent.statistics import Statistics
from kafkacore.net.authentication import Authenticators
from kafkacore.net.client import NetworkClient
from kafkacore.net.node_ids import broker_of


class ThrottleEvent:
    """A broker has throttled a request.

    Attributes:
        broker_name: its host.
        broker_id: its number, -1 where it is not known.
        throttle_time: for how long, seconds.
    """

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"


class Events:
    """Events that wait to be served.

    Attributes:
        put: takes Reports, or a function without arguments. Any thread may call it.
        statistics: served when their time has come; None without stats_cb.
    """

    statistics: Statistics | None = None

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._cut_short: deque[Reports] = deque()  # a callback of theirs has raised: the rest comes first
        self._serving: set[int] = set()  # threads
        self.put = self._queue.put
        self.serve_reports: Callable[[Reports], None] = lambda reports: None

    def __len__(self) -> int:
        return self._queue.qsize() + len(self._cut_short)

    @property
    def any(self) -> bool:
        """True when something is to be served."""
        return len(self) > 0

    @property
    def being_served(self) -> bool:
        """True in a callback."""
        return threading.get_ident() in self._serving

    def serve(self, timeout: float | None = 0) -> int:
        """Runs what is there; when that is nothing, waits for something.

        Args:
            timeout: seconds to wait; None without limit.

        Returns:
            How many events were served; the reports of one batch are one event.
        """
        served = 0
        self.look_at_statistics()
        if timeout != 0 and not self.any:
            try:
                event = self._queue.get(timeout=self.until_statistics(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)))
            except queue.Empty:
                if not self.look_at_statistics():
                    return 0
                event = self._queue.get()
            self._run(event)
            served = 1
        for _ in range(len(self)):
            try:
                event = self._cut_short.popleft() if self._cut_short else self._queue.get(block=False)
            except (IndexError, queue.Empty):  # another thread was quicker
                break
            self._run(event)
            served += 1
        return served

    def until_statistics(self, timeout: float | None) -> float | None:
        """A time-out, cut where statistics are due before."""
        if self.statistics is None:
            return timeout
        due_s = max(0.0, self.statistics.due_s())
        return due_s if timeout is None else min(timeout, due_s)

    def look_at_statistics(self) -> bool:
        """Makes an event of statistics that are due."""
        due = self.statistics is not None and self.statistics.due_s() <= 0
        if due:
            assert self.statistics is not None
            self.statistics.schedule()
            self.put(self.statistics.tell)
        return due

    def serve_all(self, timeout: float | None = 0) -> Exception | None:
        """`serve`, which goes on behind callbacks that raise. Returns what the last of them has raised."""
        raised: Exception | None = None
        while True:
            try:
                self.serve(timeout)
                return raised
            except Exception as error:
                raised, timeout = error, 0

    def _run(self, event: Any) -> None:
        me = threading.get_ident()
        outermost = me not in self._serving
        self._serving.add(me)
        try:
            if type(event) is not Reports:
                event()
                return
            try:
                self.serve_reports(event)
            except BaseException:
                if event.count:
                    self._cut_short.appendleft(event)
                raise
        finally:
            if outermost:
                self._serving.discard(me)


class Watch:
    """Makes events of what happens to a client's connections.

    Args:
        events: where they go.
        client: gives the client's connections; they may be others later.
        given: the program's settings: error_cb, throttle_cb.
    """

    def __init__(self, events: Events, client: Callable[[], NetworkClient], given: Mapping[str, Any]) -> None:
        self._put = events.put
        self._client = client
        self._error_cb, self._throttle_cb = given.get("error_cb"), given.get("throttle_cb")
        self._all_down = False
        if self._error_cb is not None:
            client().on_failure = self._failed
        if self._throttle_cb is not None:
            client().on_throttle = self._throttled

    def _failed(self, node_id: int, error: ours.KafkaError, was_ready: bool) -> None:
        assert self._error_cb is not None
        self._put(functools.partial(self._error_cb, KafkaError(code_of(error), str(error))))
        client = self._client()
        nodes = client.metadata.snapshot.nodes
        down = bool(nodes) and all(client.connection_failed(node) for node in nodes.values())
        if down and (not self._all_down or (was_ready and node_id in nodes)):
            text = f"{len(nodes)}/{len(nodes)} brokers are down"
            self._put(functools.partial(self._error_cb, KafkaError(CODES["_ALL_BROKERS_DOWN"], text)))
        self._all_down = down

    def _throttled(self, node_id: int, throttle_ms: int) -> None:
        assert self._throttle_cb is not None
        number = broker_of(node_id)
        node = None if number is None else self._client().metadata.snapshot.nodes.get(number)
        event = ThrottleEvent("" if node is None else node.host, -1 if number is None else number, throttle_ms / 1000)
        self._put(functools.partial(self._throttle_cb, event))


def set_credentials(client: NetworkClient, username: Any, password: Any) -> None:
    """Has a client's connections authenticate with other credentials from now on.

    Raises:
        KafkaException: they cannot be used.
        TypeError: they are no str.
    """
    if not isinstance(username, str) or not isinstance(password, str):
        raise TypeError("username and password must be str")
    authenticators = client.selector.authenticator
    if isinstance(authenticators, Authenticators):  # else nothing asks for them, as in confluent-kafka
        with translated("Failed to set credentials"):
            authenticators.use(username, password)
