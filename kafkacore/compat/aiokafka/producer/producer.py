"""aiokafka's AIOKafkaProducer over the engine's asyncio producer.

`send` is a compiled coroutine where records are plain bytes (`RecastCoroutine`, native/send_coroutine.pxi). Serializers and partitioners of
the program run in Python, and the record goes into its batch by one compiled call (`RecastSend`, native/recast.pxi). `_send_general` is the
general way, which waits for metadata and memory, asks the program's partitioner, and words every error.

Source: aiokafka.producer.producer, aiokafka 0.14.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from kafkacore import errors as ours
from kafkacore._codec import RecastCoroutine, RecastSend, send_method
from kafkacore.aio import KafkaProducer as Engine
from kafkacore.aio.calls import wake
from kafkacore.compat.aiokafka import errors
from kafkacore.compat.aiokafka.batch import BatchBuilder
from kafkacore.compat.aiokafka.commits import checked_offsets
from kafkacore.compat.aiokafka.common_settings import COMMON, COMMON_DEFAULTS, engine_settings
from kafkacore.compat.aiokafka.connecting import unreachable
from kafkacore.compat.aiokafka.future import HeldRecord, Outcome, SentBatch, SentRecord, UnansweredRecord
from kafkacore.compat.aiokafka.partitioner import DefaultPartitioner
from kafkacore.compat.settings import Kind, Ours, Own
from kafkacore.config import ProducerConfig
from kafkacore.producer.not_now import NotNow
from kafkacore.producer.transactions import Phase
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.compat")

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_CLIENT_NUMBERS = itertools.count(1)
_missing = object()
_DEFAULT_PARTITIONER = DefaultPartitioner()

PRODUCER_SETTINGS: dict[str, Kind] = {
    **COMMON,
    "acks": Ours(),
    "key_serializer": Own("send"),
    "value_serializer": Own("send"),
    "compression_type": Ours(convert=lambda codec: codec or "none"),
    "max_batch_size": Ours("batch_size"),
    "partitioner": Own("send; DefaultPartitioner means the engine's own"),
    "max_request_size": Ours(),
    "linger_ms": Ours(),
    "enable_idempotence": Ours(),
    "transactional_id": Ours(),
    "transaction_timeout_ms": Ours(),
}
PRODUCER_DEFAULTS: dict[str, Any] = {
    **COMMON_DEFAULTS,
    "acks": _missing,
    "key_serializer": None,
    "value_serializer": None,
    "compression_type": None,
    "max_batch_size": 16_384,
    "partitioner": _DEFAULT_PARTITIONER,
    "max_request_size": 1_048_576,
    "linger_ms": 0,
    "enable_idempotence": False,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
}


def _engines(given: dict[str, Any]) -> tuple[asyncio.AbstractEventLoop, dict[str, Any]]:
    """The loop, and the engine's settings."""
    acks, transactional = given["acks"], given["transactional_id"] is not None
    if acks is not _missing and acks not in (0, 1, -1, "all"):
        raise ValueError(f"acks must be 0, 1, -1 or 'all', not {acks!r}")
    if given["compression_type"] not in CODECS:
        raise ValueError(f"compression_type must be gzip, snappy, lz4, zstd or None, not {given['compression_type']!r}")
    idempotent = given["enable_idempotence"] or transactional
    if idempotent and acks not in (_missing, "all", -1):
        raise ValueError(f"acks={acks} does not go with enable_idempotence")
    if acks is _missing:
        acks = -1 if idempotent else 1
    if given["client_id"] is None:
        given["client_id"] = f"aiokafka-producer-{next(_CLIENT_NUMBERS)}"
    given |= {"acks": acks, "enable_idempotence": idempotent}
    more = {
        # aiokafka has a request at a time under way to a broker, so that retries keep the order
        "max_in_flight_requests_per_connection": 5 if idempotent else 1,
        "delivery_timeout_ms": given["linger_ms"] + given["request_timeout_ms"],
        "max_block_ms": given["request_timeout_ms"],
    }
    if not transactional:
        more["transaction_timeout_ms"] = ProducerConfig.__dataclass_fields__["transaction_timeout_ms"].default
    return engine_settings(PRODUCER_SETTINGS, PRODUCER_DEFAULTS, given, ProducerConfig, more)


class AIOKafkaProducer:
    """Sends records from an event loop; its tasks may share a producer.

    Args:
        acks, linger_ms, ...: aiokafka's settings, with its defaults.

    Raises:
        ValueError: a setting is refused, with the reason.
        RuntimeError: no loop runs.
    """

    __slots__ = ("__dict__", "__weakref__", "_short_send")

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: Any = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: Any = None,
        acks: Any = _missing,
        key_serializer: Any = None,
        value_serializer: Any = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: Any = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in PRODUCER_SETTINGS}
        self._loop, self._settings = _engines(given)
        self._engine_: Engine | None = None
        self._quick: RecastSend | None = None  # since start()
        self._short_send: RecastCoroutine | None = None  # the same, without serializers and a partitioner of the program's
        self._waiting: Any = None  # whose `in_line` tasks wait for memory
        self._closed = False
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._partitioner: Any = None if type(partitioner) is DefaultPartitioner else partitioner
        self._unanswered = given["acks"] == 0
        self._transactional = transactional_id is not None

    # -- life ---------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects, and begins a transactional id's new epoch.

        Raises:
            KafkaConnectionError: none of bootstrap_servers could be reached; it can be called again.
            KafkaError: the transactional id was refused.
        """
        assert self._loop is asyncio.get_running_loop(), "the producer belongs to another loop"
        if self._engine_ is not None or self._closed:
            return
        engine = Engine(**self._settings)
        try:
            await self._connect(engine)
            if self._transactional:
                with errors.translated():
                    await engine.init_transactions()
        except BaseException:
            await engine.close(0)
            raise
        self._engine_ = engine
        future_type = UnansweredRecord if self._unanswered else SentRecord
        self._quick = RecastSend(engine._producer, future_type, None)
        self._waiting = engine._short_send
        if self._partitioner is None and self._key_serializer is None and self._value_serializer is None:
            self._short_send = RecastCoroutine(engine._short_send, future_type)

    async def _connect(self, engine: Engine) -> None:
        metadata, sender = engine._producer._metadata, engine._producer._sender
        metadata.request_update()
        sender.wake(-1, True)
        end_s = self._loop.time() + engine.config.request_timeout_ms / 1000
        while metadata.snapshot.is_bootstrap:
            woken = wake(changed := self._loop.create_future())
            metadata.watch(woken)
            try:
                if (failure := unreachable(metadata, engine.config, self._loop.time() >= end_s)) is not None:
                    raise failure
                if metadata.snapshot.is_bootstrap:
                    await asyncio.wait((changed,), timeout=max(0.0, end_s - self._loop.time()))
            finally:
                metadata.unwatch(woken)

    async def stop(self) -> None:
        """Delivers what is queued, and closes the connections; again does nothing. Records that are lost are in the log."""
        if self._closed:
            return
        self._closed, self._quick, self._short_send = True, None, None
        if self._engine_ is not None:
            await self._engine_.close(None)

    def __del__(self) -> None:
        engine: Engine | None = getattr(self, "_engine_", None)
        if engine is not None and not self._closed and not engine._producer.closed:
            engine._reported = True  # by the name that the program knows
            warnings.warn(f"unclosed {self!r}: await stop(), or use it in an async with block", ResourceWarning, source=self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        await self.stop()

    def _started(self) -> Engine:
        if self._closed:
            raise errors.ProducerClosed("the producer is stopped")
        if self._engine_ is None:
            raise errors.IllegalStateError("await start() first")
        return self._engine_

    # -- sending ------------------------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Any:
        """Queues a record; waits only for the topic's metadata and for memory.

        Args:
            topic: its name.
            value, key: bytes, or what the serializers turn into that; not both None.
            partition: number; None lets the partitioner choose.
            timestamp_ms: epoch milliseconds, None for now.
            headers: pairs of (str, bytes).

        Returns:
            A future of RecordMetadata (None with acks=0).

        Raises:
            KafkaTimeoutError: no memory or metadata within request_timeout_ms.
            UnknownTopicOrPartitionError: there is no such topic.
            MessageSizeTooLargeError: more than max_request_size.
            TypeError: value or key are not bytes.
            AssertionError: value and key are None, or there is no such partition.
            IllegalOperation: a transactional producer is not in a transaction.
            ProducerClosed: the producer is stopped.
        """
        try:
            if value is None and key is None:
                raise AssertionError("Need at least one: key or value")
            if self._key_serializer is not None:
                key = self._key_serializer(key)
            if self._value_serializer is not None:
                value = self._value_serializer(value)
            if type(value) is not bytes:
                _check_bytes(value, "value")
            if type(key) is not bytes and key is not None:
                _check_bytes(key, "key")
            if headers is not None and type(headers) is not list:
                headers = list(headers)
            if partition is None and self._partitioner is not None and self._quick is not None:
                partition = self._chosen(topic, key, self._partitioner)
            if self._quick is not None and not self._waiting.in_line and (partition is not None or self._partitioner is None):
                try:
                    return self._quick.append(topic, value, key, headers or None, partition, timestamp_ms)
                except (NotNow, ours.KafkaError):
                    pass  # nothing is queued: the general way waits, or says what is wrong
            return await self._send_general(topic, value, key, partition, timestamp_ms, headers)
        except Exception as error:
            self._refuse(error)
            raise

    send = send_method(send, RecastCoroutine)

    def _refuse(self, error: Exception) -> None:
        """A record was refused: an open transaction can only be aborted."""
        if self._engine_ is not None:
            self._engine_._producer._refuse(error)

    async def _send_general(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Outcome:
        """Waits for metadata and memory, asks the program's partitioner, and words every error."""
        engine = self._started()
        metadata = engine._producer._metadata
        count = metadata.snapshot.partition_count(topic) if isinstance(topic, str) else None
        if count is None:
            count = len(await self.partitions_for(topic))
        self._check_transaction(engine)
        if partition is not None:
            _check_partition(partition, count)
        elif self._partitioner is not None:
            partition = self._chosen(topic, key, self._partitioner)
        with errors.translated():
            future = await engine._send_general(topic, value, key, headers=headers or None, partition=partition, timestamp_ms=timestamp_ms)
        return HeldRecord(future, unanswered=self._unanswered)

    def _chosen(self, topic: str, key: bytes | None, partitioner: Any) -> Any:
        """What a partitioner says; None while nothing is known of the topic."""
        snapshot = self._started()._producer._metadata.snapshot
        count = snapshot.partition_count(topic)
        if count is None:
            return None
        available = [found.index for found in snapshot.available_partitions(topic)]
        return partitioner(key, list(range(count)), available)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Any = None,
    ) -> Any:
        """As `send`, and waits for the delivery.

        Returns:
            RecordMetadata (None with acks=0).

        Raises:
            KafkaError: as `send`, or why the record was not delivered.
        """
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """An empty batch, for `send_batch`."""
        return BatchBuilder(
            self._settings["batch_size"],
            CODECS[None if (codec := self._settings["compression_type"]) == "none" else codec],
            is_transactional=self._transactional,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
        )

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int | None) -> SentBatch:
        """Queues the records of a batch, and closes it.

        Args:
            batch: of `create_batch`.
            topic: its name.
            partition: number; None lets the partitioner choose one for all of them, as for a record without a key.

        Returns:
            A future of RecordMetadata with the offset of the first record (None with acks=0).

        Raises:
            KafkaError, AssertionError, IllegalOperation: as `send`.
        """
        engine = self._started()
        try:
            count = len(await self.partitions_for(topic))
            if partition is None:
                partition = self._chosen(topic, None, self._partitioner or _DEFAULT_PARTITIONER)
            _check_partition(partition, count)
        except Exception as error:
            self._refuse(error)
            raise
        self._check_transaction(engine)
        batch.close()
        with errors.translated():
            found = await engine.send_many(
                topic, batch.values, batch.keys, batch.headers, [partition] * len(batch.values), batch.timestamps_ms
            )
        return SentBatch(found, TopicPartition(topic, partition), unanswered=self._unanswered)

    async def flush(self) -> None:
        """Sends what is queued and waits until every record has an outcome; which it is, the futures say."""
        try:
            with errors.translated():
                await self._started().flush()
        except errors.KafkaError as lost:
            if not isinstance(lost.__cause__, ours.DeliveryError):
                raise
            log.warning("%s", lost.__cause__)

    async def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, and none came within request_timeout_ms.
        """
        engine = self._started()
        try:
            return await engine.partitions_for(topic)
        except ours.KafkaTimeoutError as late:
            if any(isinstance(each, ours.UnknownTopicOrPartition) for each in late.attempts):
                raise errors.UnknownTopicOrPartitionError(str(late)) from late
            raise errors.of(late) from late
        except ours.KafkaError as error:
            raise errors.of(error) from error

    # -- transactions -------------------------------------------------------------------------------------------------------------

    def _phase(self, engine: Engine) -> Phase:
        return engine._producer._transactional("transaction").at.phase

    def _check_transaction(self, engine: Engine) -> None:
        if self._transactional and self._phase(engine) is not Phase.OPEN:
            raise errors.IllegalOperation("Can't send messages while not in transaction")

    def _with_transactions(self) -> Engine:
        if not self._transactional:
            raise errors.IllegalOperation("transactions need transactional_id")
        return self._started()

    def _in_transaction(self) -> Engine:
        engine = self._with_transactions()
        if self._phase(engine) is Phase.READY:
            raise AssertionError("no transaction is open")
        return engine

    async def begin_transaction(self) -> None:
        """Opens a transaction: what is sent from now on belongs to it.

        Raises:
            IllegalOperation: there is no transactional_id.
            AssertionError: it is open.
            ProducerFenced: a newer producer has the transactional id.
        """
        engine = self._with_transactions()
        with _asserted():
            engine.begin_transaction()

    async def commit_transaction(self) -> None:
        """Waits until all records of the transaction are delivered, and commits.

        Raises:
            KafkaError: nothing is committed: call abort_transaction(), or stop the producer where it is fatal.
            AssertionError: none is open.
        """
        engine = self._in_transaction()
        with _asserted():
            await engine.commit_transaction()

    async def abort_transaction(self) -> None:
        """Aborts: readers of committed data see nothing of the transaction.

        Raises:
            KafkaError: refused.
            AssertionError: none is open.
        """
        engine = self._in_transaction()
        with _asserted():
            await engine.abort_transaction()

    def transaction(self) -> TransactionContext:
        """A transaction as a block: its end commits, an exception aborts."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, Any], group_id: str) -> None:
        """Commits a group's offsets with the transaction.

        Args:
            offsets: the next offset to read by partition, or (offset, note).
            group_id: the group.

        Raises:
            IllegalOperation: no transaction is open.
            ValueError, TypeError: `offsets` has another form, or there is no group.
            KafkaError: call abort_transaction(), or stop the producer where it is fatal.
        """
        engine = self._with_transactions()
        if self._phase(engine) is not Phase.OPEN:
            raise errors.IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        found = {tp: at.engines() for tp, at in checked_offsets(offsets).items()}
        with errors.translated():
            await engine.send_offsets_to_transaction(found, group_id)


class TransactionContext:
    """What `AIOKafkaProducer.transaction` gives."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            await self._producer.commit_transaction()
        elif self._producer._phase(self._producer._started()) is not Phase.FATAL:
            await self._producer.abort_transaction()


class _asserted(errors.translated):
    """`errors.translated` for calls out of order, where aiokafka asserts."""

    def __exit__(self, kind: Any, value: BaseException | None, traceback: Any) -> None:
        if isinstance(value, ours.IllegalStateError) and not isinstance(value, ours.ClosedError):
            raise AssertionError(str(value)) from value
        super().__exit__(kind, value, traceback)


def _check_partition(partition: int, count: int) -> None:
    if not 0 <= partition < count:
        raise AssertionError(f"Unrecognized partition {partition}")


def _check_bytes(data: Any, what: str) -> None:
    if data is not None and type(data) not in (bytes, bytearray, memoryview):
        raise TypeError(f"Unsupported type for {what}: {type(data)}")


__all__ = ["AIOKafkaProducer"]
