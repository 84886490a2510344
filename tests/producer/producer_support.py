"""A producer without sockets: real accumulator, books and Sender over a scripted client and a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacore import _codec, protocol
from kafkacore.clock import ManualClock
from kafkacore.config import ProducerConfig
from kafkacore.errors import KafkaError
from kafkacore.metadata import ClusterSnapshot, Metadata, PartitionInfo, TopicInfo
from kafkacore.net.request import ClientRequest, ClientResponse
from kafkacore.producer.accumulator import BufferPool, RecordAccumulator
from kafkacore.producer.sender import Sender
from kafkacore.producer.transactions import TransactionEngine
from kafkacore.producer.txn import TransactionManager
from kafkacore.records import read_batches
from kafkacore.types import Node, TopicPartition

TOPIC_ID = bytes(range(16))
PRODUCE_RESPONSES = {
    version: protocol.ProduceResponse.plan(version)
    for version in range(protocol.ProduceResponse.MIN_VERSION, protocol.ProduceResponse.MAX_VERSION + 1)
}


class ScriptedClient:
    """Keeps what is sent; answers when told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.sent: list[tuple[ClientRequest, Any]] = []
        self.answers: list[tuple[ClientRequest, ClientResponse]] = []
        self.blocked: set[int] = set()
        self.refused: dict[int, KafkaError] = {}
        self.version_limit = 13
        self.poll_timeouts: list[int] = []
        self.disconnected: list[int] = []
        self.in_poll: Callable[[], None] = lambda: None
        self.closed = False
        self.finalized_features: dict[str, int] = {}
        self.metadata: Metadata | None = None
        self.wakeups = 0
        self.on_disconnect: Callable[[int, KafkaError], None] | None = None

    def ready(self, node: Node, now_ms: int) -> bool:
        return node.id not in self.blocked

    is_ready = ready

    def connection_failed(self, node: Node) -> bool:
        return False

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return 40

    def authentication_exception(self, node: Node) -> KafkaError | None:
        return self.refused.get(node.id)

    def least_loaded_node(self, now_ms: int) -> Node | None:
        return Node(1, "h", 1)

    def new_client_request(self, node_id: int, api: Any, build: Any, now_ms: int, **options: Any) -> ClientRequest:
        request = ClientRequest(
            node_id, api, build, now_ms, options.get("expect_response", True), options.get("timeout_ms") or 30_000, options.get("callback"),
            options.get("min_version") or api.MIN_VERSION, options.get("max_version") or api.MAX_VERSION,
        )  # fmt: skip
        return request

    def send(self, request: ClientRequest, now_ms: int) -> None:
        request.version = min(request.max_version, self.version_limit if request.api is protocol.ProduceRequest else 99)
        message = request.build(request.version)
        message.encode(request.version)
        self.sent.append((request, message))

    def answer(self, response: Any = None, *, error: KafkaError | None = None, at: int = 0, as_it_is: bool = False) -> None:
        """Queues the answer to the oldest request (or the one at `at`) for the next poll; that to a Produce as it comes out of bytes."""
        request, _ = self.sent.pop(at)
        if type(response) is protocol.ProduceResponse and not as_it_is:
            response = as_received(response, request.version)
        self.answers.append((request, ClientResponse(request, response, disconnected=error is not None, error=error)))

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        self.poll_timeouts.append(timeout_ms)
        self.in_poll()
        answers, self.answers = self.answers, []
        for request, response in answers:
            if request.callback is not None:
                request.callback(response)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        return bool(self.sent)

    def disconnect(self, node_id: int) -> None:
        self.disconnected.append(node_id)

    def wakeup(self) -> None:
        self.wakeups += 1

    def close(self) -> None:
        self.closed = True


class Bench(_codec.ProducerCore):
    """The append path over a RecordAccumulator and a Sender without a thread."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        leaders: tuple[int, ...] = (1,),
        client: Callable[[ManualClock], ScriptedClient] = ScriptedClient,
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        settings.setdefault("linger_ms", 0)
        self.config = ProducerConfig.from_user(bootstrap_servers="h:1", **settings)
        self.clock = self._clock = clock or ManualClock(1_000)
        self.client = client(self.clock)
        self.metadata = self.client.metadata = Metadata(self.config, self.clock)
        self.epochs = dict.fromkeys(range(partitions), 0)
        self.leaders = {index: leaders[index % len(leaders)] for index in range(partitions)}
        self.publish()
        transactional = self.config.transactional_id is not None
        self._engine = self.engine = TransactionEngine(lambda attempts: 100) if transactional else None
        self._gate = None if self.engine is None else self.engine.gate
        self.transactions = TransactionManager(self._gate) if self.config.enable_idempotence else None
        self.pool = BufferPool(self.config.buffer_memory, self.config.batch_size)
        self.accumulator = RecordAccumulator(
            batch_size=self.config.batch_size,
            linger_ms=self.config.linger_ms,
            delivery_timeout_ms=self.config.delivery_timeout_ms,
            max_request_size=self.config.max_request_size,
            pool=self.pool,
            backoff_ms=lambda attempts: 100 * 2**attempts,
            transactions=self.transactions,
            many_bytes=self.config.send_many_batch_size,
        )
        self.sender = Sender(
            client=self.client,  # type: ignore[arg-type]
            metadata=self.metadata,
            accumulator=self.accumulator,
            transactions=self.transactions,
            config=self.config,
            clock=self.clock,
            backoff_ms=lambda attempts: 100,
            engine=self.engine,
        )
        self.topic = self.add_topic("t", partitions)
        self._fast = True
        self.max_block_ms = 0

    def add_topic(self, name: str, partitions: int) -> _codec.TopicQueue:
        queue = _codec.TopicQueue(name)
        queue.grow(partitions, TopicPartition)
        self._add_topic(queue)
        return queue

    def append_many(
        self, values: Any, keys: Any = None, headers: Any = None, partitions: Any = None, timestamps_ms: Any = -1, progress: Any = None
    ) -> _codec.ManyProgress:
        """What send_many does with columns once it knows the topic."""
        progress = progress or _codec.ManyProgress()
        columns = [None if each is None else _codec.ColumnSource(each) for each in (values, keys)]
        self._append_many(self.topic, *columns, headers, partitions, timestamps_ms, None, progress)
        return progress

    def publish(self) -> None:
        parts = [PartitionInfo(index, leader, self.epochs[index]) for index, leader in self.leaders.items()]
        nodes = {node: Node(node, "h", node) for node in set(self.leaders.values()) if node >= 0}
        self.metadata.snapshot = ClusterSnapshot(nodes, topics={"t": TopicInfo("t", TOPIC_ID, parts)})
        self.metadata.version += 1
        self.metadata._changed_in.pop("t", None)
        self.metadata._changed_in["t"] = self.metadata.version

    def _roll(self, queue: Any, chosen: Any, nbytes: int) -> None:
        self.accumulator.roll(queue, chosen, nbytes, self.clock.now_ms(), self.max_block_ms)

    def _roll_many(self, queue: Any, chosen: Any, nbytes: int, waited_ms: int, left_bytes: int) -> None:
        self.accumulator.roll(queue, chosen, nbytes, self.clock.now_ms(), self.max_block_ms, left_bytes)

    def _begun(self) -> None:
        self.accumulator.begun(self.clock.now_ms())

    def step(self, ms: int = 0) -> None:
        """One pass of the Sender, `ms` later."""
        self.clock.advance(ms)
        self.sender.run_once(self.clock.now_ms(), 0)

    def send_now(self, *args: Any, **fields: Any) -> Any:
        """`send`, and the pass in which the record leaves."""
        future = self.send(*args, **fields)
        self.step()
        return future

    def answered(self, *parts: tuple[int, int, int], **more: Any) -> None:
        """The oldest request is answered: (partition, error code, base offset) of each."""
        self.client.answer(response(*parts, **more))
        self.step()

    def lost(self, error: KafkaError, at: int = 0) -> None:
        """A request ends without an answer."""
        self.client.answer(error=error, at=at)
        self.step()

    def give_producer_id(self, producer_id: int = 7, epoch: int = 0) -> None:
        self.step()
        request, _ = self.client.sent[0]
        assert request.api is protocol.InitProducerIdRequest
        self.client.answer(protocol.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch))
        self.step()

    def requests(self) -> list[dict[int, Any]]:
        """The Produce requests under way: {partition: Batch as a broker reads it}."""
        return [read_request(message) for request, message in self.client.sent if request.api is protocol.ProduceRequest]


class Racing(Bench):
    """Calls `hook` once between the opening of a batch and its first record: where another thread may run, or Ctrl+C arrive."""

    hook: Callable[[], object] | None = None

    def _roll(self, queue: Any, chosen: Any, nbytes: int) -> None:
        super()._roll(queue, chosen, nbytes)
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()


def as_received(response: Any, version: int) -> Any:
    """A ProduceResponse as the network client hands it on; runs no Python code of the package, which a test might interrupt."""
    plan = PRODUCE_RESPONSES[version]
    return _codec.decode_produced(plan, b"".join(map(bytes, plan.encode(response))))


def read_request(message: Any) -> dict[int, Any]:
    out = {}
    for topic in message.topic_data:
        for part in topic.partition_data:
            pieces = part.records if isinstance(part.records, list) else [part.records]
            (out[part.index],) = list(read_batches(b"".join(map(bytes, pieces))))
    return out


def response(*parts: tuple[int, int, int], version_topic_id: bytes = TOPIC_ID, **more: Any) -> Any:
    """A ProduceResponse of (partition, error code, base offset)."""
    fields = {"log_append_time_ms": -1, "log_start_offset": 0} | more
    return protocol.ProduceResponse(
        responses=[
            protocol.TopicProduceResponse(
                name="t",
                topic_id=version_topic_id,
                partition_responses=[
                    protocol.PartitionProduceResponse(index=index, error_code=code, base_offset=offset, **fields)
                    for index, code, offset in parts
                ],
            )
        ]
    )


def started(**settings: Any) -> Bench:
    bench = Bench(**settings)
    bench.give_producer_id()
    return bench


def sequences(bench: Bench) -> list[tuple[int, int, int]]:
    """(partition, epoch, base sequence) of each batch on the wire."""
    return [(index, batch.producer_epoch, batch.base_sequence) for request in bench.requests() for index, batch in request.items()]


def all_memory_back(bench: Bench) -> bool:
    return bench.pool.available_bytes == bench.pool.total_bytes and not bench.accumulator.has_incomplete
