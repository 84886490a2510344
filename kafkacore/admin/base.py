"""What the rooms of the admin client share: results per item; requests to any broker, the controller, leaders, coordinators.

Source: Kafka's KafkaAdminClient, AdminApiDriver, CoordinatorStrategy, PartitionLeaderStrategy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar, Unpack

from kafkacore import errors
from kafkacore.admin.controllers import check_served, no_longer_active
from kafkacore.admin.drivers import Drivers, lend_to_calls, lent
from kafkacore.clock import Clock
from kafkacore.config import AdminConfig
from kafkacore.config_keywords import AdminKeywords
from kafkacore.errors import Code
from kafkacore.net.client import ClientResponse
from kafkacore.net.coordinator import named
from kafkacore.net.driver import CallerDriver
from kafkacore.net.leaders import LeaderQuery
from kafkacore.plurals import counted
from kafkacore.protocol import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kafkacore.types import Node, TopicPartition

log = logging.getLogger("kafkacore.admin")

K = TypeVar("K")
V = TypeVar("V")

GROUP_KEY, TRANSACTION_KEY = 0, 1
_FIRST_BATCH_VERSION = 4
_FIRST_OPERATIONS_VERSION = 8
_BY_NAME: dict[type, int] = {OffsetCommitRequest: 9, OffsetFetchRequest: 9}
"""The last versions that name topics; later ones know them by their ids alone."""

_SILENT: Any = object()
_MOVED = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS})


class ItemResults(Mapping[K, V], Generic[K, V]):
    """Results by item: a mapping of the items that worked. Those that failed are in `errors`.

    Reading the result of an item that failed raises its error, and `check` raises the first; `get` returns the default. So
    `dict(results)`, `results.items()` and loops have the items that worked, however many failed.

    They are true when there are some and none failed. Errors that the program did not look at are logged when the results are dropped.

    Args:
        values: of the items that worked.
        failed: why the others did not.
    """

    __slots__ = ("_failed", "_looked_at", "_values")

    def __init__(self, values: dict[K, V], failed: dict[K, errors.KafkaError]) -> None:
        self._values = values
        self._failed = failed
        self._looked_at = not failed

    @property
    def errors(self) -> dict[K, errors.KafkaError]:
        """The error of each item that failed; empty when all worked."""
        self._looked_at = True
        return self._failed

    def __getitem__(self, item: K) -> V:
        failed = self._failed.get(item)
        if failed is not None:
            self._looked_at = True
            raise failed
        return self._values[item]

    def get(self, item: K, default: Any = None) -> Any:
        """The result of an item, or the default where it failed or was not asked for."""
        return self._values.get(item, default)

    def __contains__(self, item: object) -> bool:
        return item in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        self._looked_at = True
        return bool(self._values) and not self._failed

    @property
    def succeeded(self) -> dict[K, V]:
        """The items that worked."""
        self._looked_at = True
        return dict(self._values)

    def check(self) -> Self:
        """Raises the first error, if there is one; otherwise returns these results."""
        for failed in self.errors.values():
            raise failed
        return self

    def __repr__(self) -> str:
        return f"ItemResults({self._values!r}, errors={self.errors!r})"

    def __del__(self) -> None:
        if getattr(self, "_looked_at", True):
            return
        item, failed = next(iter(self._failed.items()))
        log.warning(
            "%d of %s failed and the program did not look at the results, which check() raises; the first is %r: %s",
            len(self._failed), counted(len(self._values) + len(self._failed), "item"), item, failed,
        )  # fmt: skip


class Listed(list[V]):
    """A list of what the brokers know, with what is missing from it.

    Attributes:
        errors: by broker id, why it did not say what it knows. Empty unless the call was allowed to be partial.
    """

    def __init__(self, items: Iterable[V] = (), failed: Mapping[int, errors.KafkaError] | None = None) -> None:
        super().__init__(items)
        self.errors: dict[int, errors.KafkaError] = dict(failed or {})

    def check(self) -> Self:
        """Raises the first error, if there is one; otherwise returns this list."""
        for failed in self.errors.values():
            raise failed
        return self


def complete(results: ItemResults[K, V], wanted: Iterable[K], api: str, broker: int | None = None) -> ItemResults[K, V]:
    """The same results, with an error for each item that the answer left out. What nobody asked for is left out here.

    Args:
        results: as an answer has them.
        wanted: what was asked for.
        api, broker: who left them out.
    """
    values: dict[K, V] = {}
    failed: dict[K, errors.KafkaError] = {}
    for item in wanted:
        if item in results.errors:
            failed[item] = results.errors[item]
        elif item in results:
            values[item] = results[item]
        else:
            tp = item if isinstance(item, TopicPartition) else None
            text = "the answer has no result" if tp is not None else f"the answer has no result for {item}"
            topic, partition = (None, None) if tp is None else tp
            failed[item] = errors.IncompleteAnswerError(text, topic=topic, partition=partition, api=api, broker=broker)
    return ItemResults(values, failed)


def results_of(
    found: Iterable[tuple[K, int, str | None, V]], wanted: Iterable[K] | None, api: str, *, by_topic: bool = False
) -> ItemResults[K, V]:
    """Results out of (item, error code, error message, value) as an answer has them.

    Args:
        found: from the answer.
        wanted: what was asked for; None where the broker chose the items.
        api: whose answer it is, for the errors.
        by_topic: the items are names of topics.
    """
    values: dict[K, V] = {}
    failed: dict[K, errors.KafkaError] = {}
    for item, code, message, value in found:
        if not code:
            values[item] = value
        elif isinstance(item, TopicPartition):
            failed[item] = errors.from_code(code, message or None, topic=item.topic, partition=item.partition, api=api)
        else:
            failed[item] = errors.from_code(code, message or None, topic=str(item) if by_topic else None, api=api)
    results = ItemResults(values, failed)
    return results if wanted is None else complete(results, wanted, api)


class Call:
    """One request to one broker, tried again until it is answered, refused for good, or late.

    Args:
        admin: whose.
        api, build: the request.
        find: which broker is asked; None while none is known, and then the metadata is asked for.
        is_fixed: no other broker could answer.
        may_move: it ends with an error when its broker cannot be reached, since the caller can find out who answers instead.
    """

    def __init__(
        self,
        admin: AdminBase,
        api: type[Any],
        build: Callable[[int], Any],
        find: Callable[[int], Node | None],
        *,
        is_fixed: bool = False,
        may_move: bool = False,
    ) -> None:
        if admin.config.asks_controllers:
            check_served(api)
        self._admin = admin
        self._api = api
        self._build = build
        self._find = find
        self._is_fixed = is_fixed
        self._may_move = may_move
        self._in_flight = False
        self._failed_try: errors.KafkaError | None = None
        self._retry_at_ms = 0
        self.tries = 0
        self.attempts: list[errors.KafkaError] = []
        self.response: Any = None
        self.error: errors.KafkaError | None = None

    @property
    def done(self) -> bool:
        """Whether there is an answer, or none to come."""
        return self.response is not None or self.error is not None

    def step(self, now_ms: int) -> int | None:
        """Sends what can be sent; see `CallerDriver.run`."""
        admin = self._admin
        client = admin._driver.client
        if self._failed_try is not None:
            self.attempts.append(self._failed_try)
            config = admin.config
            if self.tries > config.retries:
                self.error = self._failed_try
                return None
            self._retry_at_ms = now_ms + min(config.retry_backoff_max_ms, config.retry_backoff_ms << min(self.tries - 1, 20))
            self._failed_try = None
        if self._in_flight or self.done:
            return None
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        try:
            node = self._find(now_ms)
        except errors.BrokerNotAvailable as error:
            self.error = error
            return None
        if node is None:
            admin._driver.metadata.request_update()
            if self._may_move:
                self.error = errors.CoordinatorNotAvailable("the cluster has no such broker now")
                return None
            return admin.config.reconnect_backoff_ms
        if not client.ready(node, now_ms):
            if self._may_move and client.connection_failed(node):
                admin._driver.metadata.request_update()
                self.error = errors.CoordinatorNotAvailable("its broker cannot be reached", broker=node.id)
                return None
            return client.poll_delay_ms(node, now_ms) if self._is_fixed else admin.config.reconnect_backoff_ms
        self._in_flight = True
        self.tries += 1
        request = client.new_client_request(
            node.id, self._api, self._build, now_ms, callback=self._answered, max_version=_BY_NAME.get(self._api)
        )
        client.send(request, now_ms)
        return None

    def retry(self, cause: errors.KafkaError) -> None:
        """Another try is needed, after the back-off."""
        self.response = None
        self._failed_try = cause
        if cause.invalid_metadata or self._is_fixed:
            self._admin._driver.metadata.request_update()

    def _answered(self, response: ClientResponse) -> None:
        self._in_flight = False
        if response.response is not None:
            self.response = response.response
            return
        cause = response.error or errors.DisconnectError("the connection was lost before the answer")
        if self._may_move:
            self._admin._driver.metadata.request_update()
            self.error = cause
        elif cause.retriable:
            self.retry(cause)
        else:
            self.error = cause


class LeaderAsk(LeaderQuery):
    """A question for the leaders of partitions.

    Args:
        request: makes one for some of the partitions: the API, and what builds it for a version.
        read: finds (partition, error code, value) in a response.
        rest: as for `LeaderQuery`.
    """

    def __init__(
        self,
        admin: AdminBase,
        waiting: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], tuple[type, Callable[[int], object]]],
        read: Callable[[Any], Iterable[tuple[TopicPartition, int, Any]]],
    ) -> None:
        config, driver = admin.config, admin._driver
        super().__init__(
            driver.client,
            driver.metadata,
            waiting,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            retries=config.retries,
        )
        self.results: dict[TopicPartition, Any] = {}
        self._make_request = request
        self._find_results = read

    def _request(self, tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
        return self._make_request(tps)

    def _read(self, tps: list[TopicPartition], response: object) -> None:
        for tp, code, value in self._find_results(response):
            if tp in self._flying and self._code(tp, code):
                self._answer(tp)
                self.results[tp] = value


class OneByOne(Exception):
    """The broker is too old to be asked about several things at once."""


class Asked(NamedTuple):
    """What became of one of several questions: a response or an error."""

    response: Any
    error: errors.KafkaError | None


def _close_waiting(driver: CallerDriver) -> None:
    """A call is late. Connections that still owe it an answer are closed: behind that answer the next call would wait.

    Source: Kafka's KafkaAdminClient.timeoutCallsInFlight.
    """
    for node in driver.metadata.snapshot.nodes.values():
        if driver.client.has_in_flight_requests(node.id):
            driver.client.close(node.id)


class AdminBase:
    """Settings, the network, and ways to ask."""

    def __init__(
        self, mapping: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Unpack[AdminKeywords]
    ) -> None:
        self.config = config = AdminConfig.from_user(mapping, **settings)
        self._drivers = Drivers(lambda: CallerDriver(config, "KafkaAdminClient", exclusive=False, clock=clock))

    def __init_subclass__(cls) -> None:
        lend_to_calls(cls)

    @property
    def _driver(self) -> CallerDriver:
        return self._drivers.current

    def close(self) -> None:
        """Closes all connections at once; calls of other threads end with ClosedError. A second close does nothing."""
        self._drivers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        where = self.config.bootstrap_servers or self.config.bootstrap_controllers
        return f"KafkaAdminClient({', '.join(where)}{'; closed' if self._drivers.first.closed else ''})"

    def __del__(self) -> None:
        drivers: Drivers | None = self.__dict__.get("_drivers")
        if drivers is not None:
            drivers.abandon(self)

    # -- time ---------------------------------------------------------------------------------------------------------------------

    def _timeout_ms(self, timeout: float | None) -> int:
        return self.config.default_api_timeout_ms if timeout is None else round(timeout * 1000)

    def _deadline_ms(self, timeout: float | None) -> int:
        return self._driver.clock.now_ms() + self._timeout_ms(timeout)

    def _left_ms(self, deadline_ms: int) -> int:
        return max(deadline_ms - self._driver.clock.now_ms(), 0)

    # -- who is asked -------------------------------------------------------------------------------------------------------------

    def _anyone(self, now_ms: int) -> Node | None:
        """Any broker; of controllers the active one, which alone has the newest of everything."""
        return self._controller(now_ms) if self.config.asks_controllers else self._driver.client.least_loaded_node(now_ms)

    def _controller(self, now_ms: int) -> Node | None:
        return self._driver.metadata.snapshot.controller

    def _broker(self, node_id: int) -> Callable[[int], Node | None]:
        """Finds a broker by its id.

        Raises:
            errors.BrokerNotAvailable: when called for an id that is missing in metadata that came after the first call.
        """
        asked_at: int | None = None

        def find(_: int) -> Node | None:
            nonlocal asked_at
            metadata = self._driver.metadata
            node = metadata.snapshot.nodes.get(node_id)
            if node is not None or metadata.snapshot.is_bootstrap:
                return node
            if asked_at is None:
                asked_at = metadata.version
            elif metadata.version > asked_at:
                there = ", ".join(map(str, sorted(metadata.snapshot.nodes)))
                if self.config.asks_controllers:
                    text = f"the cluster has no controller {node_id} now; it has {there}; for brokers a client takes bootstrap_servers"
                    raise errors.BrokerNotAvailable(text, broker=node_id)
                raise errors.BrokerNotAvailable(f"the cluster has no broker {node_id} now; it has {there or 'none'}", broker=node_id)
            return None

        return find

    @lent
    def _nodes(self, timeout_ms: int) -> list[Node]:
        """All brokers of the cluster."""
        response = self._metadata([], timeout_ms)
        return [Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers]

    # -- asking -------------------------------------------------------------------------------------------------------------------

    @lent
    def _metadata(self, names: list[str] | None, timeout_ms: int, operations: bool = False) -> MetadataResponse:
        def build(version: int) -> MetadataRequest:
            topics = None if names is None else [MetadataRequestTopic(name=n) for n in names]
            if operations and version < _FIRST_OPERATIONS_VERSION:
                raise errors.UnsupportedVersion("the broker does not know authorized operations", api="Metadata")
            return MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4, include_topic_authorized_operations=operations)

        response: MetadataResponse = self._ask(MetadataRequest, build, timeout_ms)
        errors.raise_for(response.error_code, api="Metadata")
        return response

    @lent
    def _ask(
        self,
        api: type[Any],
        build: Callable[[int], Any],
        timeout_ms: int,
        *,
        to_controller: bool = False,
        refused: Callable[[Any], errors.KafkaError | None] | None = None,
    ) -> Any:
        """Sends one request to any broker, or to the controller, until one answers it.

        Args:
            api, build: the request.
            timeout_ms: for all tries together.
            to_controller: who is asked.
            refused: looks into an answer for the reason to ask again.
        """
        is_fixed = to_controller or self.config.asks_controllers
        call = Call(self, api, build, self._controller if to_controller else self._anyone, is_fixed=is_fixed)
        asked = self._ask_all([call], timeout_ms, refused)[0]
        if asked.error is not None:
            raise asked.error
        return asked.response

    @lent
    def _ask_all(
        self, calls: Sequence[Call], timeout_ms: int, refused: Callable[[Any], errors.KafkaError | None] | None = None
    ) -> list[Asked]:
        """Runs several calls at once.

        Returns:
            For each what became of it; those that are late have a KafkaTimeoutError.
        """
        asks_controllers = self.config.asks_controllers
        with self._driver as driver:

            def step(now_ms: int) -> int | None:
                return min((wait for call in calls if (wait := call.step(now_ms)) is not None), default=None)

            def done() -> bool:
                for call in calls:
                    if call.response is None:
                        continue
                    cause = no_longer_active(call._api, call.response) if asks_controllers else None
                    if cause is None and refused is not None:
                        cause = refused(call.response)
                    if cause is not None and call.tries <= self.config.retries:
                        call.retry(cause)
                return all(call.done for call in calls)

            if not driver.run(step, done, timeout_ms):
                _close_waiting(driver)
            results = []
            for call in calls:
                late: errors.KafkaError | None = None
                if not call.done:
                    tries = [*call.attempts, *driver.attempts()]
                    late = errors.KafkaTimeoutError(f"no answer within {timeout_ms} ms", api=call._api.__name__, attempts=tries)
                results.append(Asked(call.response, call.error or late))
            return results

    @lent
    def _ask_brokers(
        self,
        requests: Mapping[int, tuple[type[Any], Callable[[int], Any]]],
        timeout_ms: int,
        *,
        may_move: bool = False,
        refused: Callable[[Any], errors.KafkaError | None] | None = None,
    ) -> dict[int, Asked]:
        """One request to each of some brokers, by their ids. See `Call` for may_move, `_ask` for refused."""
        calls = [
            Call(self, api, build, self._broker(node_id), is_fixed=True, may_move=may_move) for node_id, (api, build) in requests.items()
        ]
        return dict(zip(requests, self._ask_all(calls, timeout_ms, refused), strict=True))

    @lent
    def _list_everywhere(
        self, api: type[Any], build: Callable[[int], Any], items: Callable[[Any], Iterable[V]], deadline_ms: int, partial: bool
    ) -> Listed[V]:
        """What all brokers list of what they coordinate, sorted, each once.

        Raises:
            errors.KafkaError: a broker failed, and the list may not be partial.
        """
        name = api.__name__.removesuffix("Request")
        found: set[V] = set()
        failed: dict[int, errors.KafkaError] = {}
        questions = {node.id: (api, build) for node in self._nodes(self._left_ms(deadline_ms))}
        for node_id, asked in self._ask_brokers(questions, self._left_ms(deadline_ms), refused=is_loading).items():
            if asked.error is not None:
                failed[node_id] = asked.error
            elif asked.response.error_code:
                failed[node_id] = errors.from_code(asked.response.error_code, api=name, broker=node_id)
            else:
                found.update(items(asked.response))
        listed = Listed(sorted(found), failed)  # type: ignore[type-var]
        return listed if partial else listed.check()

    @lent
    def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], tuple[type, Callable[[int], object]]],
        read: Callable[[Any], Iterable[tuple[TopicPartition, int, Any]]],
        timeout: float | None,
    ) -> ItemResults[TopicPartition, Any]:
        """Asks the leaders of partitions, again where leadership has moved; see `LeaderAsk`."""
        deadline_ms = self._deadline_ms(timeout)
        there, failed = self._existing(partitions, deadline_ms)
        query = LeaderAsk(self, there, request, read)
        return self._run_query(query, failed, deadline_ms)

    def _existing(
        self, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> tuple[list[TopicPartition], dict[TopicPartition, errors.KafkaError]]:
        """Which partitions exist, and why the others do not. (Brokers might create what a client merely asks for.)"""
        wanted = [TopicPartition(*tp) for tp in partitions]
        if not wanted:
            return [], {}
        response = self._metadata(list(dict.fromkeys(tp.topic for tp in wanted)), self._left_ms(deadline_ms))
        topics = {topic.name or "": topic for topic in response.topics}
        there, failed = [], {}
        for tp in dict.fromkeys(wanted):
            topic = topics.get(tp.topic)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            error = errors.from_code(code, topic=tp.topic, partition=tp.partition, api="Metadata") if code else None
            if error is not None and error.retriable and code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                there.append(tp)  # its leader is asked as soon as there is one
            elif error is not None:
                failed[tp] = error
            elif topic is not None and tp.partition not in {p.partition_index for p in topic.partitions}:
                failed[tp] = errors.UnknownTopicOrPartition("the topic has no such partition", topic=tp.topic, partition=tp.partition)
            else:
                there.append(tp)
        return there, failed

    def _run_query(self, query: Any, failed: dict[TopicPartition, errors.KafkaError], deadline_ms: int) -> ItemResults[TopicPartition, Any]:
        query.topics_may_fail = True
        with self._driver as driver:

            def step(now_ms: int) -> int | None:
                query.step(now_ms)
                wait_ms: int | None = query.next_wake_ms(now_ms)
                return wait_ms

            if not driver.run(step, lambda: query.done, self._left_ms(deadline_ms)):
                for tp in query.unanswered():
                    failed[tp] = errors.KafkaTimeoutError(
                        "no answer in time",
                        topic=tp.topic,
                        partition=tp.partition,
                        attempts=[query.last_errors[tp]] if tp in query.last_errors else driver.attempts(),
                    )
                query.cancel()
                _close_waiting(driver)
            return ItemResults(query.results, failed | query.failed)

    # -- coordinators -------------------------------------------------------------------------------------------------------------

    @lent
    def _ask_coordinators(
        self,
        keys: Iterable[str],
        key_type: int,
        request: Callable[[list[str]], tuple[type, Callable[[int], object]]],
        read: Callable[[Any], Iterable[tuple[str, V | errors.KafkaError]]],
        timeout: float | None,
        located: Callable[[V, Node | None], V] = lambda value, _: value,
    ) -> ItemResults[str, V]:
        """Asks the coordinators of groups or transactional ids, again where they have moved.

        Args:
            keys: the ids.
            key_type: GROUP_KEY or TRANSACTION_KEY.
            request: makes one for some of the ids: the API, and what builds it for a version.
            read: finds (id, value or error) in a response.
            timeout: seconds.
            located: adds to a value the broker that answered.
        """
        deadline_ms = self._deadline_ms(timeout)
        waiting = list(dict.fromkeys(keys))
        values: dict[str, V] = {}
        failed: dict[str, errors.KafkaError] = {}
        causes: dict[str, errors.KafkaError] = {}
        tries = 0
        while waiting:
            places = self._coordinators(waiting, key_type, deadline_ms)
            again: dict[str, errors.KafkaError] = {}
            groups: dict[int, list[str]] = {}
            for key, place in places.items():
                if isinstance(place, int):
                    groups.setdefault(place, []).append(key)
                else:
                    (again if place.code in _MOVED else failed)[key] = place
            questions = {node_id: request(group) for node_id, group in groups.items()}
            asked = self._ask_brokers(questions, self._left_ms(deadline_ms), may_move=True)
            for node_id, answer in asked.items():
                if answer.error is not None:
                    is_over = isinstance(answer.error, errors.KafkaTimeoutError) or not answer.error.retriable
                    (failed if is_over else again).update(dict.fromkeys(groups[node_id], answer.error))
                    continue
                found = dict(read(answer.response))
                for key in groups[node_id]:
                    value = found.get(key, _SILENT)
                    if value is _SILENT:
                        failed[key] = errors.IncompleteAnswerError(f"the answer has no result for {key}", broker=node_id)
                    elif not isinstance(value, errors.KafkaError):
                        values[key] = located(value, self._driver.metadata.snapshot.nodes.get(node_id))
                    elif value.code in _MOVED:
                        again[key] = value
                    else:
                        failed[key] = value
            tries += 1
            causes |= again
            if tries > self.config.retries:
                failed |= again
                again = {}
            elif not self._left_ms(deadline_ms):
                failed |= dict.fromkeys(again, errors.KafkaTimeoutError("no coordinator answered in time"))
                again = {}
            waiting = list(again)
            if waiting:
                self._pause(min(self.config.retry_backoff_max_ms, self.config.retry_backoff_ms << min(tries - 1, 20)), deadline_ms)
        for key, error in failed.items():
            if isinstance(error, errors.KafkaTimeoutError) and key in causes:
                failed[key] = errors.KafkaTimeoutError("no coordinator answered in time", attempts=[causes[key], *error.attempts])
        return ItemResults(values, failed)

    @lent
    def _coordinators(self, keys: Sequence[str], key_type: int, deadline_ms: int) -> dict[str, int | errors.KafkaError]:
        """The broker that coordinates each key, or why it is not known."""

        def build_for(several: Sequence[str]) -> Callable[[int], FindCoordinatorRequest]:
            def build(version: int) -> FindCoordinatorRequest:
                if version >= _FIRST_BATCH_VERSION:
                    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(several))
                if len(several) > 1:
                    raise OneByOne
                return FindCoordinatorRequest(key_type=key_type, key=several[0])

            return build

        def ask(batches: Sequence[Sequence[str]]) -> list[Asked]:
            calls = [Call(self, FindCoordinatorRequest, build_for(batch), self._anyone) for batch in batches]
            return self._ask_all(calls, self._left_ms(deadline_ms))

        def title(key: str) -> str:
            return f"transactional id {key}" if key_type == TRANSACTION_KEY else f"group {key}"

        api = "FindCoordinator"
        batches: Sequence[Sequence[str]] = [keys]
        try:
            answers = ask(batches)
        except OneByOne:
            batches = [[key] for key in keys]
            answers = ask(batches)
        found: dict[str, int | errors.KafkaError] = {}
        for batch, asked in zip(batches, answers, strict=True):
            if asked.error is not None:
                found |= dict.fromkeys(batch, asked.error)
                continue
            for place in asked.response.coordinators or [asked.response]:
                code = place.error_code
                key = place.key if asked.response.coordinators else batch[0]
                found[key] = errors.from_code(code, named(title(key), place.error_message), api=api) if code else place.node_id
        silent = errors.IncompleteAnswerError("the answer leaves a group or transactional id out", api=api)
        return {key: found.get(key, silent) for key in keys}

    def _pause(self, wait_ms: int, deadline_ms: int) -> None:
        """Lets time pass, and the network work."""
        with self._driver as driver:
            driver.run(lambda _: None, lambda: False, min(wait_ms, self._left_ms(deadline_ms)))


def names_of(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise errors.UsageError(f"names must be a collection of names, not the string {names!r}")
    return list(dict.fromkeys(names))


def is_loading(response: Any) -> errors.KafkaError | None:
    """An answer of a broker that cannot list what it coordinates until it has read all of it."""
    code = response.error_code
    return errors.from_code(code) if code in (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE) else None


def moved(response: Any) -> errors.KafkaError | None:
    """An answer of a broker that is no longer the controller."""
    return errors.from_code(Code.NOT_CONTROLLER) if response.error_code == Code.NOT_CONTROLLER else None


def not_controller(field: str) -> Callable[[Any], errors.KafkaError | None]:
    """An answer of a broker that is no longer the controller says so for every item."""

    def look(response: Any) -> errors.KafkaError | None:
        if any(item.error_code == Code.NOT_CONTROLLER for item in getattr(response, field)):
            return errors.from_code(Code.NOT_CONTROLLER)
        return None

    return look
