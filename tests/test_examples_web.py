"""The web services in examples/: real servers that get SIGTERM while requests are under way."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaConsumer, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded

EXAMPLES = Path(__file__).parent.parent / "examples"
PARTITIONS = 4
GUARD_S = 60
SERVICES = {"fastapi_orders.py": ("fastapi", "uvicorn"), "aiohttp_orders.py": ("aiohttp",)}
LISTENS = re.compile(r"[Rr]unning on http://127\.0\.0\.1:(\d+)")


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    for module in SERVICES[request.param]:
        pytest.importorskip(module)
    return str(request.param)


cluster = embedded({"orders": PARTITIONS}, scope="function")


class Server:
    """A service as a process, on a port of its own."""

    def __init__(self, name: str, cluster: EmbeddedCluster) -> None:
        command = [sys.executable, str(EXAMPLES / name), "orders", "--bootstrap-server", cluster.bootstrap_servers, "--port", "0"]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        assert self.process.stdout is not None
        self.printed: list[str] = []
        for line in self.process.stdout:
            self.printed.append(line)
            if found := LISTENS.search(line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError("".join(self.printed))
        self._reader = threading.Thread(target=lambda: self.printed.extend(self.process.stdout or ()), daemon=True)
        self._reader.start()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)

    def get(self) -> Any:
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", "/orders")
            return json.load(connection.getresponse())

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> str:
        """Waits for its end; uvicorn passes the signal on to itself when all is closed."""
        assert self.process.wait(GUARD_S) in (0, -signal.SIGTERM), "".join(self.printed)
        self._reader.join(GUARD_S)
        return "".join(self.printed)


@pytest.fixture
def server(service: str, cluster: EmbeddedCluster) -> Iterator[Server]:
    server = Server(service, cluster)
    yield server
    server.process.kill()
    server.process.wait()
    assert server.process.stdout is not None
    server._reader.join(GUARD_S)
    server.process.stdout.close()


def post(connection: http.client.HTTPConnection, item: str) -> None:
    connection.request("POST", "/orders", json.dumps({"item": item}), {"content-type": "application/json"})


def answer(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    response = connection.getresponse()
    return response.status, json.load(response)


def in_the_topic(cluster: EmbeddedCluster) -> dict[tuple[int, int], str]:
    """The item at each (partition, offset)."""
    found = {}
    places = [TopicPartition("orders", p) for p in range(PARTITIONS)]
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(tp) < ends[tp] for tp in places):
            for tp, records in consumer.poll(timeout=1).items():
                found.update({(tp.partition, record.offset): json.loads(record.value)["item"] for record in records})
    return found


def test_what_is_posted_is_read(server: Server, cluster: EmbeddedCluster) -> None:
    items = [f"item {i}" for i in range(20)]
    with contextlib.closing(server.connect()) as connection:
        places = {}
        for item in items:
            post(connection, item)
            status, place = answer(connection)
            assert status == 201
            places[(place["partition"], place["offset"])] = item
    assert in_the_topic(cluster) == places
    while len(shown := server.get()) < len(items):
        pass
    assert Counter(order["item"] for order in shown) == Counter(items)
    server.terminate()
    printed = server.wait()
    assert "Traceback" not in printed, printed


def test_requests_under_way_are_answered_after_the_signal(server: Server, cluster: EmbeddedCluster) -> None:
    connections = [server.connect() for _ in range(50)]
    try:
        for connection in connections:  # each is accepted
            post(connection, "before")
        for connection in connections:
            assert answer(connection)[0] == 201
        cluster.pause_broker(1)
        for number, connection in enumerate(connections):
            post(connection, f"under way {number}")
        server.get()  # the server has seen all of them
        server.terminate()
        with pytest.raises(ConnectionError):
            while True:  # until it does not listen any more
                with contextlib.closing(server.connect()) as late:
                    late.connect()
        cut_off, _, _ = select.select([connection.sock for connection in connections], [], [], 0.5)
        assert not cut_off
        cluster.resume_broker(1)
        answers = [answer(connection) for connection in connections]
    finally:
        for connection in connections:
            connection.close()
    printed = server.wait()
    assert "Traceback" not in printed, printed
    assert [status for status, _ in answers] == [201] * 50
    found = in_the_topic(cluster)
    assert [found[place["partition"], place["offset"]] for _, place in answers] == [f"under way {number}" for number in range(50)]
    assert len(found) == 100


def test_a_record_that_is_not_delivered_is_no_success(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the process: FastAPI by the transport of httpx for applications."""
    pytest.importorskip("fastapi")
    import asyncio

    import httpx

    monkeypatch.syspath_prepend(str(EXAMPLES))
    cluster.create_topic("small", configs={"max.message.bytes": "200"})
    app = importlib.import_module("fastapi_orders").make_app("small", cluster.bootstrap_servers)

    async def ask() -> list[httpx.Response]:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://orders") as client,
        ):
            return [await client.post("/orders", json={"item": item}) for item in ("tea", "tea" * 100)]

    taken, refused = asyncio.run(ask())
    assert (taken.status_code, refused.status_code) == (201, 503)
    assert "MESSAGE_TOO_LARGE" in refused.json()["detail"]
