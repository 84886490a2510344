"""An OAuth token endpoint on loopback, for tests."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs


class Endpoint(HTTPServer):
    """Answers every request alike.

    Attributes:
        answer: status and body: JSON, or bytes as they are.
        asked: authorization and form of each request.
    """

    def __init__(self, answer: tuple[int, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        self.server.asked.append((self.headers["authorization"], form))
        status, body = self.server.answer
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def token_endpoint(status: int, body: Any) -> Iterator[Endpoint]:
    """The endpoint for the time of a block."""
    with Endpoint((status, body)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
