"""A schema registry for tests: real HTTP on loopback, with Confluent's paths."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


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
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
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
