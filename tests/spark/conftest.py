"""What the tests of this room share: a broker with its clients, and a schema registry (real HTTP on loopback, with Confluent's paths)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer
from kafkacore.testing import EmbeddedCluster


class RegistryServer:
    """Schemas by id and subject; answers and asks are at hand.

    Attributes:
        asked: paths, in order.
        authorizations: the header of each.
        answers: instead of the schema: (status, body) for the next asks.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.answers: list[tuple[int, bytes]] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorizations.append(self.headers.get("Authorization"))
                status, body = registry.answers.pop(0) if registry.answers else registry.answer(urlsplit(self.path).path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Registers; gives the id."""
        schema: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            schema["schemaType"] = kind
        if references:
            schema["references"] = references
        self.schemas.append(schema)
        self.subjects.setdefault(subject, []).append(len(self.schemas))
        return len(self.schemas)

    def answer(self, path: str) -> tuple[int, bytes]:
        parts = [unquote(part) for part in path.split("/")[1:]]
        found: int | None = None
        if parts[:2] == ["schemas", "ids"]:
            found, code = int(parts[2]), 40403
            found = found if 1 <= found <= len(self.schemas) else None
        else:
            versions, code = self.subjects.get(parts[1], []), 40401
            if versions:
                at = len(versions) if parts[3] == "latest" else int(parts[3])
                found = versions[at - 1] if at <= len(versions) else None
        if found is None:
            return 404, json.dumps({"error_code": code, "message": "not found"}).encode()
        return 200, json.dumps({**self.schemas[found - 1], "id": found}).encode()


@pytest.fixture
def registry_server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


@pytest.fixture
def other_registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as embedded:
        yield embedded


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as client:
        yield client


@pytest.fixture
def driven_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests that use `driven`: no pauses, and nothing stays open."""
    from kafkacore.spark import clients, source, topics
    from tests.spark.driven import running

    monkeypatch.setattr(source, "IDLE_POLL_MS", 0)
    for module in (topics, clients):
        monkeypatch.setattr(module, "CONFIRM_PAUSES_S", (0, 0, 0))
    yield
    while running:
        running.pop().stop()
    for consumers in clients._kept.values():
        while consumers:
            consumers.pop().close()
