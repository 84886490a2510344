"""In the place of a `CallerDriver`, with its client and its metadata: what brokers do is set by hand, and the clock moves by its waits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.cluster_snapshot import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.types import Node

NODES = {n: Node(n, "nowhere", n) for n in (1, 2, 3)}


class FakeDriver:
    """A cluster of three brokers.

    Args:
        **leaders: by topic, of each partition.
    """

    def __init__(self, **leaders: list[int]) -> None:
        self.clock = ManualClock()
        self.client: Any = self
        self.metadata = SimpleNamespace(
            add_topics=lambda topics, now_ms: self.asked_for.append((topics, now_ms)),
            request_update=self.update,
            last_error=None,
            topics=["t", "u"],
            version=0,
        )
        self.on_update: Callable[[], object] = lambda: None
        self.asked_for: list[Any] = []
        self.ready_nodes = set(NODES)
        self.failed_nodes: set[int] = set()
        self.tried = (errors.NetworkError("tried"),)
        self.connection_errors: Callable[[Node], tuple[Any, ...]] = lambda node: ()
        self.poll_delay_ms: Callable[[Node, int], int] = lambda node, now_ms: 30
        self.api_versions: Callable[[int], Any] = lambda node_id: None
        self.answer: Callable[[Any], Any] = lambda request: None
        self.sent: list[Any] = []
        self.times_ms: list[int | None] = []
        self.closed = self.forked = False
        self.is_in = 0
        self.is_due = False
        self.know(**leaders)

    def made(self, config: Any, what: str, *, exclusive: bool = True, clock: Any = None) -> FakeDriver:
        """As a `CallerDriver` is made, for threads that take turns."""
        assert (exclusive, clock) == (False, self.clock)
        return self

    def know(self, **leaders: list[int] | errors.KafkaError) -> None:
        """What the metadata say from now on."""

        def info(name: str, of: list[int] | errors.KafkaError) -> TopicInfo:
            if isinstance(of, errors.KafkaError):
                return TopicInfo(name, error=of)
            return TopicInfo(name, partitions=[PartitionInfo(*each) for each in enumerate(of)])

        topics = {name: info(name, of) for name, of in leaders.items()}
        self.metadata.snapshot = ClusterSnapshot(NODES, topics=topics)

    def update(self, *, reset_equivalent: bool) -> int:
        assert reset_equivalent
        self.is_due = True
        return self.metadata.version

    def updated(self, **leaders: list[int] | errors.KafkaError) -> None:
        """An answer with metadata has come."""
        self.know(**leaders)
        self.metadata.version += 1

    # -- driver -------------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> FakeDriver:
        self.is_in += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.is_in -= 1

    def run(self, step: Callable[[int], int | None], done: Callable[[], bool], timeout_ms: int | None) -> bool:
        assert self.is_in
        self.times_ms.append(timeout_ms)
        for _ in range(99):
            if done():
                return True
            wait_ms = step(self.clock.now_ms())
            if self.is_due:
                self.is_due = False
                self.on_update()
            waiting = [request for request in self.sent if not request.answered]
            for request in waiting:
                self.clock.advance(1)
                request.answered = True
                request.callback(self.answer(request))
            if not waiting and wait_ms is None:
                self.clock.advance(0 if done() else timeout_ms or 0)
                return done()
            self.clock.advance(wait_ms or 0)
        raise AssertionError("it does not end")

    def attempts(self) -> tuple[Any, ...]:
        return self.tried

    def close(self) -> None:
        assert not self.is_in
        self.closed = True

    # -- client -------------------------------------------------------------------------------------------------------------------

    def ready(self, node: Node, now_ms: int) -> bool:
        assert now_ms == self.clock.now_ms()
        return node.id in self.ready_nodes

    is_ready = ready

    def connection_failed(self, node: Node) -> bool:
        return node.id in self.failed_nodes

    def new_client_request(self, node_id: int, api: type[Any], build: Callable[[int], Any], now_ms: int, **more: Any) -> Any:
        assert now_ms == self.clock.now_ms()
        request = SimpleNamespace(
            node_id=node_id, api=api, body=build(0), now_ms=now_ms, answered=False, expect_response=True, max_version=None
        )
        vars(request).update(more)
        return request

    def send(self, request: Any, now_ms: int) -> None:
        assert now_ms == self.clock.now_ms()
        self.sent.append(request)


def answer_of(request: Any, response: Any = None, error: Any = None, version: int = 0, latency_ms: int = 5) -> Any:
    return SimpleNamespace(request=request, response=response, error=error, version=version, latency_ms=latency_ms)
