"""A FastStream application in a process whose `aiokafka` is kafkacore's: prints what its subscribers saw.

Argument: host:port of a broker.
"""

import asyncio
import importlib
import json
import logging
import pkgutil
import sys
from typing import Any

from kafkacore.compat import aiokafka

sys.modules["aiokafka"] = aiokafka
for found in pkgutil.walk_packages(aiokafka.__path__, "kafkacore.compat.aiokafka."):
    sys.modules[found.name.removeprefix("kafkacore.compat.")] = importlib.import_module(found.name)

from faststream import FastStream  # noqa: E402
from faststream.kafka import KafkaBroker, KafkaMessage  # noqa: E402

GUARD_S = 60


async def main(servers: str) -> dict[str, Any]:
    log = logging.getLogger("of-the-application")
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log.addHandler(Lines())
    log.setLevel(logging.INFO)
    broker = KafkaBroker(servers, logger=log)
    seen: dict[str, list[Any]] = {"orders": [], "answers": [], "batches": []}
    changed = asyncio.Event()

    def take(what: str, values: list[Any]) -> None:
        seen[what] += values
        changed.set()

    @broker.subscriber("orders", group_id="shop")  # auto_offset_reset is latest
    @broker.publisher("answers")
    async def handle(order: int, message: KafkaMessage) -> int:
        take("orders", [(order, dict(message.headers).get("h"))])
        return order * 10

    @broker.subscriber("answers", group_id="shop-answers")
    async def answered(answer: int) -> None:
        take("answers", [answer])

    @broker.subscriber("batches", batch=True, group_id="shop-batches")
    async def batch(values: list[int]) -> None:
        take("batches", values)

    app = FastStream(broker, logger=log)
    await app.start()
    for nth in range(3):
        await broker.publish(nth, "orders", key=b"k", headers={"h": f"h{nth}"})
    await broker.publish_batch(1, 2, 3, topic="batches")
    async with asyncio.timeout(GUARD_S):
        while any(len(values) < 3 for values in seen.values()):
            changed.clear()
            await changed.wait()
    members = [line for line in lines if line.startswith("Consumer ") and "assigned to partitions" in line]
    alive = await broker.ping(5.0)
    await app.stop()
    return {**seen, "members": len(members), "named": all(line.split()[1] != "assigned" for line in members), "alive": alive}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
