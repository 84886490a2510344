"""FastStream on the clients of kafkacore: an adapter of its Kafka broker, and an application that prices orders with it.

FastStream makes its clients in a few places of `faststream.kafka.KafkaBroker`; the adapter gives it these here instead. The rest is
FastStream's: handlers, acknowledgements, batches, middlewares. The places are no public interface of FastStream; this is written for 0.7.
aiokafka must be installed, since FastStream imports it.

    python examples/faststream_orders.py orders prices
    echo '{"item": "tea"}' | kafkacore produce orders
"""

import argparse
import asyncio
import dataclasses
import inspect
import types
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiokafka import ConsumerRecord
from aiokafka.errors import ConsumerStoppedError, KafkaError
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from faststream.kafka.helpers import AdminService, CreateResult
from pydantic import BaseModel

from kafkacore import NewTopic, TopicPartition, errors
from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer, RebalanceListener
from kafkacore.config import ConsumerConfig

OPTIONS = inspect.signature(KafkaBroker.subscriber).parameters
SETTINGS = {field.name for field in dataclasses.fields(ConsumerConfig)} - {"partition_assignment_strategy"}  # there, aiokafka's classes


class Producer(KafkaProducer):
    """What FastStream calls of an AIOKafkaProducer: `send` and `flush` are alike."""

    async def start(self) -> None:
        pass  # connects at the first send

    async def stop(self) -> None:
        await self.close()

    @property
    def _closed(self) -> bool:
        return self.closed

    def create_batch(self) -> "Batch":
        return Batch()

    async def send_batch(self, batch: "Batch", topic: str, *, partition: int | None) -> Any:
        values, keys, headers, timestamps_ms = (None if column[0] is None else list(column) for column in zip(*batch, strict=True))
        partitions = None if partition is None else [partition] * len(batch)
        return await self.send_many(topic, values, keys, headers, partitions, timestamps_ms)


class Batch(list[tuple[Any, Any, Any, Any]]):
    """Values, keys, headers and timestamps for `send_many`."""

    def append(self, *, key: Any, value: Any, timestamp: int | None, headers: Any) -> bool:
        super().append((value, key, headers, timestamp))
        return True


class Listener(RebalanceListener):
    """Passes on what an aiokafka listener wants to hear."""

    def __init__(self, listener: Any) -> None:
        self._listener = listener

    async def on_partitions_assigned(self, partitions: Any) -> None:
        await self._listener.on_partitions_assigned(set(partitions))

    async def on_partitions_revoked(self, partitions: Any) -> None:
        await self._listener.on_partitions_revoked(set(partitions))


def as_aiokafkas(record: Any) -> ConsumerRecord:
    sizes = (-1 if field is None else len(field) for field in (record.key, record.value))
    place = (record.topic, record.partition, record.offset)
    return ConsumerRecord(*place, record.timestamp_ms, record.timestamp_type, record.key, record.value, None, *sizes, record.headers)


class Consumer:
    """What FastStream calls of an AIOKafkaConsumer."""

    def __init__(self, settings: Mapping[str, Any], *, group_id: str | None, client_id: str | None, **options: Any) -> None:
        if unknown := sorted(name for name in options.keys() - SETTINGS if options[name] != OPTIONS[name].default):
            raise TypeError(f"kafkacore's consumer has no settings {unknown}")
        taken = {name: value for name, value in options.items() if name in SETTINGS and value is not None}
        self._consumer = KafkaConsumer(settings, group_id=group_id, client_id=client_id, **taken)
        self._group_id = group_id

    def subscribe(self, topics: list[str], pattern: str | None = None, listener: Any = None) -> None:
        heard = None if listener is None or self._group_id is None else Listener(listener)  # without a group nothing is given or taken
        self._consumer.subscribe(topics or None, pattern, heard)

    def assign(self, partitions: list[Any]) -> None:
        self._consumer.assign([(tp.topic, tp.partition) for tp in partitions])

    async def start(self) -> None:
        pass  # joins with the first poll

    async def stop(self) -> None:
        await self._consumer.close()

    async def getmany(self, *, timeout_ms: float | None, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        try:
            found = await self._consumer.poll(None if timeout_ms is None else timeout_ms / 1000, max_records)
            return {tp: [as_aiokafkas(record) for record in records] for tp, records in found.items()}
        except errors.ClosedError as closed:
            raise ConsumerStoppedError from closed
        except errors.KafkaError as error:
            raise KafkaError(str(error)) from error

    async def getone(self) -> ConsumerRecord:
        ((record,),) = (await self.getmany(timeout_ms=None, max_records=1)).values()
        return record

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            yield await self.getone()

    async def commit(self) -> None:
        await self._consumer.commit()

    def seek(self, partition: Any, offset: int) -> None:
        self._consumer.seek((partition.topic, partition.partition), offset)

    @property
    def _coordinator(self) -> Any:  # FastStream logs who got partitions
        return types.SimpleNamespace(member_id=self._consumer.consumer_group_metadata().member_id)


class Admin(AdminService):
    """Creates the topics of subscribers."""

    async def connect(self, **settings: Any) -> None:
        self.admin_client = KafkaAdminClient(settings)

    async def create_topics(self, topics: list[Any]) -> list[CreateResult]:
        created = await self.client.create_topics([NewTopic(t.name, t.num_partitions, t.replication_factor) for t in topics])
        failed = {name: error for name, error in created.errors.items() if not isinstance(error, errors.TopicExists)}
        return [CreateResult(topic.name, failed.get(topic.name)) for topic in topics]


class Broker(KafkaBroker):
    """FastStream's KafkaBroker on kafkacore.

    Args:
        bootstrap_servers: the cluster.
        settings: of all clients, in Kafka's names: security.protocol and the like.
        **options: of KafkaBroker, but for its clients' settings.
    """

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, Any] | None = None, **options: Any) -> None:
        self._settings = {"bootstrap.servers": bootstrap_servers, **(settings or {})}
        super().__init__(bootstrap_servers, **options)
        if wrong := sorted(options.keys() & {*self._connection_kwargs, "security"}):
            raise TypeError(f"settings of clients go into `settings`, in Kafka's names: {wrong}")

    async def _connect(self) -> Any:
        config = self.config.broker_config
        config.admin = Admin()
        await config.admin.connect(**self._settings)
        await config.producer.connect(Producer(self._settings), serializer=config.fd_config._serializer, codec=config.broker_codec)
        config.builder = lambda **options: Consumer(self._settings, **options)
        return config.builder


class Order(BaseModel):
    item: str
    count: int = 1


class Price(BaseModel):
    item: str
    cents: int


def make_app(bootstrap_server: str, orders: str, prices: str) -> FastStream:
    broker = Broker(bootstrap_server)

    @broker.subscriber(orders, group_id="prices", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.publisher(prices)
    async def price(order: Order) -> Price:  # acknowledged, and so committed, when its price is delivered
        return Price(item=order.item, cents=100 * order.count)

    return FastStream(broker)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("prices")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()
    asyncio.run(make_app(options.bootstrap_server, options.topic, options.prices).run())  # until Ctrl+C or SIGTERM


if __name__ == "__main__":
    main()
