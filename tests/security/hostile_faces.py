"""What clients of every face do against a broker that lies: read, read in a group, write; each for a while.

A drive is called with the broker's address and seconds, makes a client, uses it until the time is up, and closes it. What the face says of
a lie is an error of its family; `failed` is called with each. Anything else comes out.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors, legacy
from kafkacore.compat import aiokafka, confluent, kafka
from tests.kit.faces import face_in

Failed = Callable[[BaseException], None]
Drive = Callable[[str, float, dict[str, Any], Failed], None]
CLOSE_S = 0.25
STEP_S = 0.5
"""A call of a client."""
PAUSE_S = 0.03
"""Behind one that failed at once: a program that does not even wait so long is busy by its own fault."""


def _until(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def _tries(call: Callable[[], Any], seconds: float, family: tuple[type[BaseException], ...], failed: Failed) -> None:
    """Makes a call again and again, as a program that logs its errors and goes on."""
    for _ in _until(seconds):
        try:
            call()
        except family as error:
            failed(error)
            time.sleep(PAUSE_S)


def _ours(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


# ---- kafkacore


def read(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", **_ours(settings))
    try:
        if "group.id" in settings:
            consumer.subscribe(["t"])
        else:
            consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        _tries(lambda: consumer.poll(STEP_S), seconds, (errors.KafkaError,), failed)
    finally:
        with contextlib.suppress(errors.KafkaError):
            consumer.close(timeout=CLOSE_S)


def write(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    producer = KafkaProducer(bootstrap_servers=address, **{"max_block_ms": 500, **_ours(settings)})
    try:
        producer.send("t", b"x" * 1000).add_done_callback(lambda future: None)
        for _ in _until(seconds):
            try:
                producer.send("t", b"x" * 1000).result(seconds)
            except TimeoutError:
                pass
            except errors.KafkaError as error:
                failed(error)
                time.sleep(PAUSE_S)
    except errors.KafkaError as error:
        failed(error)
    finally:
        with contextlib.suppress(errors.KafkaError):
            producer.close(CLOSE_S)


def transact(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    given = {"transactional_id": "x", "max_block_ms": round(seconds * 1000), **_ours(settings)}
    producer = KafkaProducer(bootstrap_servers=address, **given)
    try:
        producer.init_transactions()
        for _ in _until(seconds):
            producer.begin_transaction()
            producer.send("t", b"x")
            producer.commit_transaction()
    except errors.KafkaError as error:
        failed(error)
    finally:
        with contextlib.suppress(errors.KafkaError):
            producer.close(CLOSE_S)


# ---- kafkacore.aio, under the same names


def in_aio(drive: Drive) -> Drive:
    def driven(*given: Any) -> None:
        with face_in("aio", sys.modules[__name__]):
            drive(*given)

    return driven


# ---- kafkacore.legacy


def legacy_read(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    consumer = legacy.SimpleConsumer(bootstrap_servers=address, default_api_timeout_ms=500)

    def fetch() -> None:
        offset = consumer.get_offsets_before("t", 0, legacy.EARLIEST_TIME)[0]
        for message in consumer.fetch("t", 0, offset):
            assert message.offset >= 0
        time.sleep(PAUSE_S)

    try:
        _tries(fetch, seconds, (errors.KafkaError,), failed)
    finally:
        consumer.close()


def legacy_group(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    connector = legacy.ConsumerConnector(
        bootstrap_servers=address, group_id=settings["group.id"], auto_offset_reset="smallest", consumer_timeout_ms=round(STEP_S * 1000)
    )
    try:
        [stream] = connector.create_message_streams({"t": 1})["t"]
        _tries(lambda: next(iter(stream)), seconds, (errors.KafkaError, StopIteration), failed)
    except errors.KafkaError as error:
        failed(error)
    finally:
        with contextlib.suppress(errors.KafkaError):
            connector.shutdown()


def legacy_write(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    producer = legacy.SyncProducer(bootstrap_servers=address, request_timeout_ms=500)
    try:
        _tries(lambda: producer.send(legacy.KeyedMessage("t", None, b"x" * 1000)), seconds, (errors.KafkaError,), failed)
    finally:
        producer.close()


# ---- confluent-kafka's names


def confluent_read(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    group_id = settings.get("group.id", "none")
    consumer = confluent.Consumer({"bootstrap.servers": address, "group.id": group_id, "auto.offset.reset": "earliest"})

    def poll() -> None:
        message = consumer.poll(STEP_S)
        if message is not None and message.error() is not None:
            raise confluent.KafkaException(message.error())

    try:
        if settings.get("group.id"):
            consumer.subscribe(["t"])
        else:
            consumer.assign([confluent.TopicPartition("t", 0), confluent.TopicPartition("t", 1)])
        _tries(poll, seconds, (confluent.KafkaException,), failed)
    finally:
        with contextlib.suppress(confluent.KafkaException):
            consumer.close()


# ---- kafka-python's names

SHORT: dict[str, Any] = {"bootstrap_timeout_ms": 500}
"""Its constructors wait for a broker."""


def kafka_read(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    try:
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", group_id=settings.get("group.id"), **SHORT)
    except kafka.errors.KafkaError as error:
        return failed(error)
    try:
        if settings.get("group.id"):
            consumer.subscribe(["t"])
        else:
            consumer.assign([kafka.TopicPartition("t", 0), kafka.TopicPartition("t", 1)])
        _tries(lambda: consumer.poll(round(STEP_S * 1000)), seconds, (kafka.errors.KafkaError,), failed)
    finally:
        with contextlib.suppress(kafka.errors.KafkaError):
            consumer.close(autocommit=False)


# ---- aiokafka's names


def aiokafka_read(address: str, seconds: float, settings: dict[str, Any], failed: Failed) -> None:
    async def use() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest", group_id=settings.get("group.id"), request_timeout_ms=2_000
        )
        try:
            try:
                await consumer.start()
            except aiokafka.errors.KafkaError as error:
                failed(error)
                return
            if settings.get("group.id"):
                consumer.subscribe(["t"])
            else:
                consumer.assign([aiokafka.TopicPartition("t", 0), aiokafka.TopicPartition("t", 1)])
            for _ in _until(seconds):
                try:
                    await consumer.getmany(timeout_ms=round(STEP_S * 1000))
                except aiokafka.errors.KafkaError as error:
                    failed(error)
                    await asyncio.sleep(PAUSE_S)
        finally:
            with contextlib.suppress(aiokafka.errors.KafkaError):
                await consumer.stop()

    asyncio.run(use())


FACES: dict[str, dict[str, Drive]] = {
    "kafkacore": {"read": read, "group": read, "write": write, "transact": transact},
    "aio": {"read": in_aio(read), "group": in_aio(read), "write": in_aio(write)},
    "legacy": {"read": legacy_read, "group": legacy_group, "write": legacy_write},
    "confluent": {"read": confluent_read, "group": confluent_read},
    "kafka-python": {"read": kafka_read, "group": kafka_read},
    "aiokafka": {"read": aiokafka_read, "group": aiokafka_read},
}
"""The settings of a member name its group."""
OTHERS = ("confluent", "kafka-python", "aiokafka")
"""Faces that have errors of their own."""
