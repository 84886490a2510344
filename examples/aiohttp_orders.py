"""A web service with aiohttp: POST sends a record and answers when it is delivered, GET shows what a task has read.

The producer and the consumer are cleanup contexts of the application. On SIGTERM aiohttp stops listening, lets requests under way end, and
closes these contexts last, so that every client with an answer has a record.

    python examples/aiohttp_orders.py orders --port 8000
    curl -d '{"item": "tea"}' localhost:8000/orders
    curl localhost:8000/orders
"""

import argparse
import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from kafkacore import errors
from kafkacore.aio import KafkaConsumer, KafkaProducer

OPTIONS = web.AppKey("options", argparse.Namespace)
PRODUCER = web.AppKey("producer", KafkaProducer)
SEEN = web.AppKey("seen", deque[Any])


async def producer(app: web.Application) -> AsyncIterator[None]:
    async with KafkaProducer(bootstrap_servers=app[OPTIONS].bootstrap_server) as app[PRODUCER]:
        yield


async def reader(app: web.Application) -> AsyncIterator[None]:
    async def read() -> None:
        async for record in consumer:  # ends with the consumer
            app[SEEN].append(json.loads(record.value))

    options = app[OPTIONS]
    async with KafkaConsumer(options.topic, bootstrap_servers=options.bootstrap_server, auto_offset_reset="earliest") as consumer:
        reading = asyncio.create_task(read())
        yield
    await reading


async def take(request: web.Request) -> web.Response:
    order = await request.json(loads=json.loads)
    try:
        delivered = await (await request.app[PRODUCER].send(request.app[OPTIONS].topic, json.dumps(order), key=order["item"]))
    except errors.KafkaError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error  # not delivered, or not known to be
    return web.json_response({"partition": delivered.partition, "offset": delivered.offset}, status=201)


async def show(request: web.Request) -> web.Response:
    return web.json_response(list(request.app[SEEN]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    app = web.Application()
    app[OPTIONS] = parser.parse_args()
    app[SEEN] = deque(maxlen=1000)
    app.cleanup_ctx.extend([producer, reader])
    app.add_routes([web.post("/orders", take), web.get("/orders", show)])
    # aiohttp reads nothing more after the signal: what waits for the rest of its request would wait a minute.
    web.run_app(app, host="127.0.0.1", port=app[OPTIONS].port, shutdown_timeout=5)


if __name__ == "__main__":
    main()
