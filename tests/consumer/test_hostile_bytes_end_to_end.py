"""A member of a group whose brokers' answers arrive with other bytes, over sockets.

What a changed answer says may be believed, as long as it can be true. But no error is ours, nothing that the consumer drives ends, the
caller gets nothing but records of the log, and once the bytes are right the member is well again.
"""

from __future__ import annotations

import contextlib
import random
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import errors, metadata
from kafkacore.consumer import KafkaConsumer
from kafkacore.net import client, client_selector
from kafkacore.net.selector import Selector
from kafkacore.producer import KafkaProducer
from kafkacore.protocol import ApiVersionsRequest
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.inside import driver_of, group_of, loop_of, thread_of

PARTITIONS, RECORDS = 4, 400
FAULTS = 40
QUICK = {
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "request_timeout_ms": 1_000,
    "socket_connection_setup_timeout_ms": 200,
    "socket_connection_setup_timeout_max_ms": 200,
    "fetch_max_wait_ms": 20,
    "metadata_max_age_ms": 500,
    "auto_commit_interval_ms": 20,
    "max_poll_interval_ms": 2_000,  # bounds the heartbeat interval of a member of the new protocol, too
    "auto_offset_reset": "earliest",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    quick = {"group_consumer_heartbeat_interval_ms": 50, "group_consumer_session_timeout_ms": 500}
    with EmbeddedCluster(brokers=2, config=quick) as started:
        yield started


class ChangedBytes:
    """Changes bytes of some answers, but for their correlation ids.

    Not of ApiVersions, which are believed as long as the connection stands.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.done = 0
        self.on = True
        self.consumer: KafkaConsumer | None = None

    def request_of(self, node_id: int) -> Any:
        """What the next answer of a node answers."""
        return None if self.consumer is None else driver_of(self.consumer).client.in_flight.oldest(node_id)

    def change(self, payload: memoryview) -> bytes:
        self.done += 1
        chance = self.chance
        changed = bytearray(payload)
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(4, len(changed)) if chance.random() < 0.3 else chance.randrange(4, min(len(changed), 200))
            changed[at] = chance.choice([chance.randrange(256), 0, 0xFF, 0x7F, 0x80, changed[at] ^ 1 << chance.randrange(8)])
        return bytes(changed)

    def selector(self) -> type[Selector]:
        fault = self

        class Changing(Selector):
            def poll(self, *args: Any, **kwargs: Any) -> Any:
                found = super().poll(*args, **kwargs)
                for receive in {r.source: r for r in reversed(self.completed_receives)}.values():
                    request = fault.request_of(receive.source)
                    if fault.on and request is not None and request.api is not ApiVersionsRequest and fault.chance.random() < 0.15:
                        receive.payload = fault.change(receive.payload)
                return found

        return Changing


_resolve = socket.getaddrinfo


def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
    """Other addresses than this machine's are not looked for."""
    if not str(host).startswith("127."):
        raise socket.gaierror("no such host")
    return _resolve(host, *args, **kwargs)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seed", range(2))
def test_a_member_outlives_changed_bytes(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, protocol: str, seed: int) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(RECORDS)], partitions=[i % PARTITIONS for i in range(RECORDS)])
    fault = ChangedBytes(seed)
    monkeypatch.setattr(client_selector, "Selector", fault.selector())
    monkeypatch.setattr(client, "_LONGEST_THROTTLE_MS", 20)  # else it is waited for
    monkeypatch.setattr(metadata, "_BEHIND_MS", 100)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    classic = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6_000} if protocol == "classic" else {}
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic, group_protocol=protocol, **QUICK, **classic)
    fault.consumer = consumer
    with contextlib.closing(consumer):
        consumer.subscribe([topic])
        while fault.done < FAULTS:
            poll(consumer, topic)
            if fault.chance.random() < 0.2:
                with contextlib.suppress(errors.KafkaError):
                    consumer.commit(timeout=0.05)
        fault.on = False
        thread = thread_of(loop_of(consumer).background)
        ends = {TopicPartition(topic, i): RECORDS // PARTITIONS for i in range(PARTITIONS)}
        assert group_of(consumer) is not None
        membership = group_of(consumer).membership
        for n in range(2_000):
            if n == 200:  # an assignment that was changed to fewer partitions can be true, and nobody says it again
                consumer.unsubscribe()
                consumer.subscribe([topic])
            beats = membership.heartbeats
            poll(consumer, topic)
            if consumer.assignment() != ends.keys() or membership.heartbeats == beats:
                continue
            with contextlib.suppress(errors.KafkaError):
                if all(consumer.position(tp, timeout=0) >= end for tp, end in ends.items()):
                    consumer.commit(timeout=1)
                    break
        else:
            raise AssertionError(consumer.health())
        assert thread.is_alive()
        consumer.unsubscribe()
        consumer.assign(ends)
        consumer.seek_to_beginning()
        read: dict[TopicPartition, list[bytes]] = {tp: [] for tp in ends}
        while any(len(values) < RECORDS // PARTITIONS for values in read.values()):
            for tp, records in consumer.poll(10).items():
                read[tp] += [r.value for r in records]
        assert read == {tp: [b"%d" % i for i in range(tp.partition, RECORDS, PARTITIONS)] for tp in ends}


def poll(consumer: KafkaConsumer, topic: str) -> None:
    try:
        found = consumer.poll(0.02)
    except errors.InternalError:
        raise
    except errors.KafkaError:
        return
    for tp, records in found.items():
        assert tp.topic == topic
        assert tp in consumer.assignment()
        for record in records:
            assert record.value == b"%d" % (record.offset * PARTITIONS + record.partition)
