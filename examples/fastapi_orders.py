"""A web service with FastAPI: POST sends a record and answers when it is delivered, GET shows what a task has read.

The lifespan of the application opens the producer and the consumer. On SIGTERM uvicorn lets requests under way end, then closes them, so
that every client with an answer has a record.

    python examples/fastapi_orders.py orders --port 8000
    curl -d '{"item": "tea"}' -H 'content-type: application/json' localhost:8000/orders
    curl localhost:8000/orders
"""

import argparse
import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from kafkacore import errors
from kafkacore.aio import KafkaConsumer, KafkaProducer


class Order(BaseModel):
    item: str
    count: int = 1


def make_app(topic: str, bootstrap_server: str) -> FastAPI:
    seen: deque[Order] = deque(maxlen=1000)

    async def read(consumer: KafkaConsumer) -> None:
        async for record in consumer:  # ends with the consumer
            seen.append(Order.model_validate_json(record.value))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with KafkaProducer(bootstrap_servers=bootstrap_server) as app.state.producer:
            async with KafkaConsumer(topic, bootstrap_servers=bootstrap_server, auto_offset_reset="earliest") as consumer:
                reading = asyncio.create_task(read(consumer))
                yield
            await reading

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def take(order: Order, request: Request) -> dict[str, int]:
        delivered = await (await request.app.state.producer.send(topic, order.model_dump_json(), key=order.item))
        return {"partition": delivered.partition, "offset": delivered.offset}

    @app.get("/orders")
    async def show() -> list[Order]:
        return list(seen)

    @app.exception_handler(errors.KafkaError)
    async def unavailable(request: Request, error: errors.KafkaError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503)  # not delivered, or not known to be

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options = parser.parse_args()
    uvicorn.run(make_app(options.topic, options.bootstrap_server), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
