"""What waited for a delivery and was cancelled, or came to its deadline, is forgotten at once, not when the delivery ends."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from cancelling import LOOPS, run

from kafkacore import errors
from kafkacore._codec import Delivery
from kafkacore.aio import KafkaProducer
from kafkacore.testing import EmbeddedCluster


def futures_of(loop: asyncio.AbstractEventLoop, *kinds: type) -> int:
    """Futures of the loop that are done and still held by something."""
    gc.collect()
    return sum(1 for found in gc.get_objects() if type(found) in kinds and found.get_loop() is loop and found.done())


@pytest.mark.parametrize(
    ("loop", "call"), [("uvloop", "record"), ("asyncio", "many"), ("uvloop", "flush"), ("asyncio", "flush at its deadline")]
)
def test_no_waiter_is_left(loop: str, call: str) -> None:
    async def work(cluster: EmbeddedCluster) -> None:
        async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            await (await producer.send("t", b"known"))
            cluster.stop_broker(1)
            future = await producer.send("t", b"x")
            many = await producer.send_many("t", [b"y"])

            async def wait() -> Any:
                if call == "record":
                    return await future
                if call == "many":
                    return await many
                return await producer.flush(0.01 if "deadline" in call else None)

            kinds = asyncio.Future, type(future.__await__())  # `await future` has one of its own
            before = futures_of(asyncio.get_running_loop(), *kinds)
            for _ in range(50):
                task = asyncio.create_task(wait())
                await asyncio.sleep(0)
                if "deadline" in call:
                    with pytest.raises(errors.KafkaTimeoutError):
                        await task
                else:
                    task.cancel()
                    await asyncio.wait((task,))
                del task
            assert futures_of(asyncio.get_running_loop(), *kinds) < before + 10
            cluster.start_broker(1)
            assert (await future).offset == 1
            assert not (await many).errors

    with EmbeddedCluster() as cluster:
        run(LOOPS[loop], lambda: work(cluster))


def test_a_loop_that_is_closed_does_not_stop_what_a_delivery_without_a_partition_ends(caplog: pytest.LogCaptureFixture) -> None:
    """That of a transaction's step, or of send_many."""
    loop = asyncio.new_event_loop()
    delivery = Delivery(None, None)
    delivery.loop_future(loop)
    loop.close()
    with caplog.at_level("DEBUG", "kafkacore"):
        assert delivery.resolve(-1, -1, None)
    assert delivery.resolved
    assert "event loop closed before the delivery" in caplog.text
