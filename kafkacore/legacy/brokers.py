"""The old producers' way to the brokers: metadata of topics, one Produce request per broker.

Network, metadata and messages are those of all clients (`CallerDriver`); here is what the event handler asks of them. Its calls block.

A broker gets what it understands, by its ApiVersions: message sets of magic 0 (Produce up to version 1), of magic 1 (version 2), or
record batches (from version 3 on). A request takes one record batch per partition, so a large set goes as several batches, one after
the other.

Source: kafka.producer.ProducerPool, kafka.producer.BrokerPartitionInfo of Kafka 0.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from kafkacore import errors
from kafkacore.clock import Clock
from kafkacore.legacy.message_set import ByteBufferMessageSet, Piece
from kafkacore.legacy.settings import EventHandlerConfig
from kafkacore.legacy.statistics import Counts
from kafkacore.metadata import PartitionInfo
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.driver import CallerDriver
from kafkacore.net.leaders import by_topic
from kafkacore.protocol import MetadataRequest, MetadataRequestTopic, PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacore.types import Node, TopicPartition

_LAST_BY_NAME = 12
"""The last version of Produce that names topics; later ones know them by their ids alone."""
_OLDEST = 0
"""Versions that Kafka 4 has dropped are asked for as well."""
_FIRST_WITH_BATCHES = 3
_FIRST_WITH_MAGIC_1 = 2
_CONFIRM_MAX_MS = 5_000


class Failure(NamedTuple):
    """Why messages of a partition were not sent, and how many of the set were, before them."""

    error: errors.KafkaError
    sent: int


class Brokers(Protocol):
    """What an event handler needs of a cluster."""

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, all of them, in the order of their numbers; leader -1 without a leader."""

    def refresh(self, topics: Iterable[str]) -> None:
        """Asks for the metadata of these topics."""

    def produce(self, requests: Mapping[int, Mapping[TopicPartition, ByteBufferMessageSet]]) -> dict[TopicPartition, Failure]:
        """Sends message sets to brokers, and says what failed."""

    def pause(self, ms: int) -> None:
        """Waits."""

    def close(self) -> None:
        """Ends all connections."""


class NetworkBrokers:
    """`Brokers` over the network.

    Args:
        config: settings.
        counts: where requests are counted.
        clock: the time; the system's unless given.
    """

    def __init__(self, config: EventHandlerConfig, counts: Counts, *, clock: Clock | None = None) -> None:
        self._config = config
        self._counts = counts
        self._driver = CallerDriver(config, "legacy producer", exclusive=False, clock=clock)
        self._unconfirmed: set[int] = set()

    # -- metadata -----------------------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic; the cluster is asked when nothing good is known about it.

        Raises:
            errors.UnknownTopicOrPartition: there is no such topic (it may be being created).
            errors.LeaderNotAvailable: it has no leader yet.
            errors.KafkaTimeoutError, errors.NetworkError: no broker answered.
            errors.KafkaError: what the cluster says of the topic.
        """
        with self._driver as driver:
            info = driver.metadata.snapshot.topics.get(topic)
            if info is None or info.error is not None:
                update_metadata(driver, [topic], self._config.request_timeout_ms)
                info = driver.metadata.snapshot.topics.get(topic)
            if info is None:
                raise errors.UnknownTopicOrPartition("the cluster says nothing about the topic", topic=topic)
            if info.error is not None and not info.partitions:
                raise info.error
            nodes = driver.metadata.snapshot.nodes
            return [p if p.leader in nodes else p._replace(leader=-1) for p in info.partitions]

    def refresh(self, topics: Iterable[str]) -> None:
        """Asks a broker for metadata, and takes the answer in.

        Raises:
            errors.KafkaTimeoutError, errors.NetworkError: no broker answered.
        """
        with self._driver as driver:
            update_metadata(driver, list(topics), self._config.request_timeout_ms)

    # -- sending ------------------------------------------------------------------------------------------------------------------

    def produce(self, requests: Mapping[int, Mapping[TopicPartition, ByteBufferMessageSet]]) -> dict[TopicPartition, Failure]:
        """Sends to all these brokers at the same time, and waits for their answers.

        Args:
            requests: message sets by broker and partition.

        Returns:
            What failed, by partition.
        """
        with self._driver as driver:
            deadline_ms = driver.clock.now_ms() + self._config.request_timeout_ms
            sends = [ProduceCall(driver, self._config, self._counts, broker, sets, deadline_ms) for broker, sets in requests.items()]

            def step(now_ms: int) -> int | None:
                return min((wait_ms for one in sends if (wait_ms := one.step(now_ms)) is not None), default=None)

            driver.run(step, lambda: all(one.done for one in sends), None)
            if self._config.request_required_acks == 0:
                self._unconfirmed.update(requests)
            return {tp: failure for one in sends for tp, failure in one.failed.items()}

    def pause(self, ms: int) -> None:
        """Waits; the network goes on meanwhile."""
        with self._driver as driver:
            driver.run(lambda _: None, lambda: False, ms)

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the connections. With acks=0 each broker is asked a question first: its answer says that all before it arrived."""
        driver = self._driver
        if driver.closed or driver.forked:
            driver.close()
            return
        try:
            if self._unconfirmed:
                with driver:
                    self._confirm()
        finally:
            driver.close()

    def _confirm(self) -> None:
        driver = self._driver
        asked: set[int] = set()

        def answered(response: ClientResponse) -> None:
            self._unconfirmed.discard(response.request.node_id)

        def build(_version: int) -> MetadataRequest:  # one topic: the oldest brokers describe all when asked for none
            return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in driver.metadata.topics[:1]])

        def step(now_ms: int) -> None:
            client = driver.client
            for node_id in list(self._unconfirmed):
                node = driver.metadata.snapshot.nodes.get(node_id)
                if node is None or client.connection_failed(node):
                    self._unconfirmed.discard(node_id)
                elif node_id not in asked and client.is_ready(node, now_ms):
                    asked.add(node_id)
                    request = client.new_client_request(node_id, MetadataRequest, build, now_ms, callback=answered, min_version=_OLDEST)
                    client.send(request, now_ms)

        driver.run(step, lambda: not self._unconfirmed, min(self._config.request_timeout_ms, _CONFIRM_MAX_MS))


def update_metadata(driver: CallerDriver, topics: list[str], timeout_ms: int) -> None:
    """Asks a broker for metadata, and takes the answer in. Ends early when each broker known has refused a connection meanwhile.

    Raises:
        errors.KafkaTimeoutError, errors.NetworkError: no broker answered.
    """
    metadata, client = driver.metadata, driver.client
    metadata.add_topics(topics, driver.clock.now_ms())
    version = metadata.request_update(reset_equivalent=True)
    before = metadata.last_error

    def ended() -> bool:
        if metadata.version > version:
            return True
        return metadata.last_error is not before and all(client.connection_failed(node) for node in metadata.snapshot.node_list)

    in_time = driver.run(lambda _: None, ended, timeout_ms)
    if metadata.version > version:
        return
    if in_time and metadata.last_error is not None:
        raise errors.NetworkError("no broker can be reached", attempts=driver.attempts())
    raise errors.KafkaTimeoutError(f"no metadata within {timeout_ms} ms", attempts=driver.attempts())


class BrokerCall:
    """Something asked of one broker: no clock, no waiting. Subclasses send, and take the answer.

    Args:
        driver: of the network; the caller has entered it.
        broker: its id.
        deadline_ms: when the broker counts as unreachable.

    Attributes:
        broker: its id.
        done: there is nothing left to send or to wait for.
    """

    def __init__(self, driver: CallerDriver, broker: int, deadline_ms: int) -> None:
        self._driver = driver
        self.broker = broker
        self._deadline_ms = deadline_ms
        self._tried: tuple[errors.KafkaError, ...] | None = None
        self.in_flight = False
        self.done = False

    def step(self, now_ms: int) -> int | None:
        """Sends what can be sent; returns after how many ms at the latest to be called again."""
        if self.done or self.in_flight:
            return None
        client = self._driver.client
        node = self._driver.metadata.snapshot.nodes.get(self.broker)
        if node is None:
            self._unreachable(errors.BrokerNotAvailable("the cluster has no such broker now", broker=self.broker))
            return None
        if client.ready(node, now_ms):
            self._send(client, now_ms)
            return None
        return self._await_connection(client, node, now_ms)

    def _await_connection(self, client: NetworkClient, node: Node, now_ms: int) -> int:
        found = client.connection_errors(node)
        if self._tried is None:
            self._tried = found
        if client.connection_failed(node) and found and (not self._tried or found[-1] is not self._tried[-1]):
            self._unreachable(found[-1])
            return 0
        if now_ms >= self._deadline_ms:
            self._unreachable(errors.KafkaTimeoutError("there was no connection in time", broker=node.id, attempts=found))
            return 0
        return max(1, min(client.poll_delay_ms(node, now_ms), self._deadline_ms - now_ms))

    def _send(self, client: NetworkClient, now_ms: int) -> None:
        raise NotImplementedError

    def _unreachable(self, cause: errors.KafkaError) -> None:
        raise NotImplementedError


class OneRequest(BrokerCall):
    """One request to one broker.

    Args:
        driver, broker, deadline_ms: as for `BrokerCall`.
        api, build: the request.
        max_version: the highest version that can say it; None for the newest.

    Attributes:
        response: the answer, None without one.
        version: that of the answer.
        error: why it did not come.
    """

    def __init__(
        self,
        driver: CallerDriver,
        broker: int,
        deadline_ms: int,
        api: type[Any],
        build: Callable[[int], Any],
        *,
        max_version: int | None = None,
    ) -> None:
        super().__init__(driver, broker, deadline_ms)
        self._api = api
        self._build = build
        self._max_version = max_version
        self.response: Any = None
        self.version = -1
        self.error: errors.KafkaError | None = None

    def _send(self, client: NetworkClient, now_ms: int) -> None:
        self.in_flight = True
        request = client.new_client_request(
            self.broker,
            self._api,
            self._build,
            now_ms,
            callback=self._answered,
            min_version=_OLDEST,
            max_version=self._max_version,
        )
        client.send(request, now_ms)

    def _answered(self, response: ClientResponse) -> None:
        self.in_flight, self.done = False, True
        self.response, self.version = response.response, response.version
        if self.response is None:
            api = f"{self._api.__name__.removesuffix('Request')} v{response.version}"
            self.error = response.error or errors.DisconnectError("the connection was lost before the answer", broker=self.broker, api=api)

    def _unreachable(self, cause: errors.KafkaError) -> None:
        self.error, self.done = cause, True


class ProduceCall(BrokerCall):
    """Message sets on their way to one broker.

    Args:
        driver: of the network; the caller has entered it.
        config: settings.
        counts: where requests are counted.
        broker: id of the leader.
        sets: message sets by partition.
        deadline_ms: when the broker counts as unreachable.

    Attributes:
        failed: what failed, by partition.
        done: everything was sent and answered, or has failed.
    """

    def __init__(
        self,
        driver: CallerDriver,
        config: EventHandlerConfig,
        counts: Counts,
        broker: int,
        sets: Mapping[TopicPartition, ByteBufferMessageSet],
        deadline_ms: int,
    ) -> None:
        super().__init__(driver, broker, deadline_ms)
        self._config = config
        self._counts = counts
        self._sets = sets
        self._pieces: dict[TopicPartition, Iterator[Piece]] | None = None  # what is left of each partition; None before the first request
        self._flying: dict[TopicPartition, Piece] = {}
        self._size_bytes = 0
        self.failed: dict[TopicPartition, Failure] = {}
        self.done = not sets

    def _send(self, client: NetworkClient, now_ms: int) -> None:
        config = self._config
        if self._pieces is None:
            magic = self._magic(client)
            self._pieces = {tp: one.pieces(magic, config.max_request_size) for tp, one in self._sets.items()}
        for tp, pieces in list(self._pieces.items()):
            piece = next(pieces, None)
            if piece is None:
                del self._pieces[tp]
            else:
                self._flying[tp] = piece
        if not self._flying:
            self.done = True
            return
        self.in_flight = True
        topics = by_topic((tp, piece.buffer) for tp, piece in self._flying.items())
        self._size_bytes = sum(memoryview(piece.buffer).nbytes for piece in self._flying.values())

        def build(_version: int) -> ProduceRequest:
            return ProduceRequest(
                acks=config.request_required_acks,
                timeout_ms=config.request_timeout_ms,
                topic_data=[
                    TopicProduceData(name=name, partition_data=[PartitionProduceData(index=i, records=records) for i, records in parts])
                    for name, parts in topics.items()
                ],
            )

        request = client.new_client_request(
            self.broker,
            ProduceRequest,
            build,
            now_ms,
            expect_response=config.request_required_acks != 0,
            callback=self._answered,
            min_version=_OLDEST,
            max_version=_LAST_BY_NAME,
        )
        client.send(request, now_ms)

    def _magic(self, client: NetworkClient) -> int:
        """The newest format that the broker takes. Where it shares no version, any: the request fails by itself."""
        versions = client.api_versions(self.broker)
        try:
            version = 0 if versions is None else versions.negotiate(ProduceRequest.API_KEY, _OLDEST, _LAST_BY_NAME)
        except errors.UnsupportedVersion:
            return 0
        return 2 if version >= _FIRST_WITH_BATCHES else 1 if version == _FIRST_WITH_MAGIC_1 else 0

    def _answered(self, response: ClientResponse) -> None:
        now_ms = self._driver.clock.now_ms()
        where: dict[str, Any] = {"broker": self.broker, "api": f"Produce v{response.version}"}
        flying, self._flying = self._flying, {}
        self.in_flight = False
        cause = response.error
        data = response.response
        if cause is None and data is None and self._config.request_required_acks:
            cause = errors.DisconnectError("the connection was lost before the answer", **where)
        if cause is None:
            self._counts.request_time_ms.record(response.latency_ms, now_ms)
            self._counts.request_bytes.record(self._size_bytes, now_ms)
        if cause is not None:
            for tp, piece in flying.items():
                self._fail(tp, cause, piece)
        elif data is not None:
            codes = {TopicPartition(topic.name, part.index): part for topic in data.responses for part in topic.partition_responses}
            for tp, piece in flying.items():
                part = codes.get(tp)
                if part is None:
                    missing = errors.UnknownServer("the answer leaves the partition out", topic=tp.topic, partition=tp.partition, **where)
                    self._fail(tp, missing, piece)
                elif part.error_code:
                    text = getattr(part, "error_message", None)
                    self._fail(tp, errors.from_code(part.error_code, text, topic=tp.topic, partition=tp.partition, **where), piece)
        self.done = not self._pieces

    def _fail(self, tp: TopicPartition, cause: errors.KafkaError, piece: Piece) -> None:
        self.failed[tp] = Failure(cause, piece.first)
        if self._pieces is not None:
            self._pieces.pop(tp, None)

    def _unreachable(self, cause: errors.KafkaError) -> None:
        """The broker cannot be reached: what has not been sent is not."""
        left: Iterable[TopicPartition] = self._sets if self._pieces is None else list(self._pieces)
        for tp in left:
            if self._pieces is None:
                self.failed[tp] = Failure(cause, 0)
            elif (piece := next(self._pieces[tp], None)) is not None:
                self._fail(tp, cause, piece)
        self.done = True
