"""Answers that one read brings together: the loop goes on with the second at once, and does not leave it to the thread."""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkacore.aio import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from kafkacore.testing.network import CLIENTS
from tests.kit.inside import producer_in, sender_of
from tests.kit.waiting import until

GUARD_S = 60
ANSWER_BYTES = 66


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="without a descriptor to watch the thread drives")
def test_two_answers_at_once(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def test(cluster: EmbeddedCluster) -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, enable_idempotence=False)
        async with asyncio.timeout(GUARD_S), producer:
            await (await producer.send("t", b"known", partition=0))
            sender_of(producer_in(producer))._nap_s = 10 * GUARD_S  # the thread does not help
            cluster.network.isolate(1, CLIENTS, "from")
            waiting = []
            for partition in (0, 1):
                future = await producer.send("t", b"x", partition=partition)
                waiting.append(asyncio.create_task(delivered(future)))
                await asyncio.to_thread(arrived, cluster, partition, 2 - partition)
            channel = sender_of(producer_in(producer)).client.selector.channels[1]
            cluster.network.heal()
            until(lambda: unread_bytes(channel.transport.fd) >= 2 * ANSWER_BYTES, "both answers are there")  # the loop waits with it
            await asyncio.gather(*waiting)
            sender_of(producer_in(producer))._nap_s = 0.001

    with EmbeddedCluster(brokers=1, faults=True) as cluster:
        cluster.create_topic("t", partitions=2)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(test(cluster))


async def delivered(future: Awaitable[Any]) -> None:
    await future


def unread_bytes(fd: int) -> int:
    """How many bytes a socket has for its reader."""
    (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    return int(count)


def arrived(cluster: EmbeddedCluster, partition: int, count: int) -> None:
    """Returns when the log of the broker has so many records."""
    log = cluster._broker(1).state.replicas.partitions["t", partition].log
    until(lambda: log.end_offset == count, "the record is in the log")
