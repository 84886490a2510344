"""Credentials of the plain soak: tokens that live for a few seconds, from an endpoint that can fail, and a password that changes."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kafkacore import KafkaAdminClient
from kafkacore.errors import KafkaError
from kafkacore.net.oauth import unsecured_token
from tests.soak.frame import WAIT_S, wall_ms

PLAIN_USER, PLAIN_PASSWORD = "plain", "plain-password"
SCRAM_USER, MECHANISM = "scram", "SCRAM-SHA-256"


class TokenEndpoint:
    """An OAuth token endpoint on loopback. Its tokens live for `life_s`; `mode` is "works", "fails" or "hangs".

    Attributes:
        answers: how many requests were answered in which mode.
    """

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self.mode = "works"
        self.answers: Counter[str] = Counter()
        self._works = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                mode = endpoint.mode
                endpoint.answers[mode] += 1
                if mode == "hangs":
                    endpoint._works.wait(30)
                status, body = (200, endpoint.body()) if mode == "works" else (503, b"{}")
                with contextlib.suppress(OSError):  # the client has waited for long enough
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Requests are counted, not printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, name="soak-tokens", daemon=True)
        self._thread.start()

    def body(self) -> bytes:
        token = unsecured_token({"sub": "endpoint"}, wall_ms(), self.life_s)
        return json.dumps({"access_token": token, "token_type": "bearer", "expires_in": self.life_s}).encode()

    def provider(self) -> tuple[str, int]:
        """The same as a function, for `sasl_oauthbearer_token_provider`."""
        self.answers[f"function {self.mode}"] += 1
        if self.mode == "hangs":
            self._works.wait(30)
        if self.mode != "works":
            raise ConnectionError("the token endpoint fails")
        now_ms = wall_ms()
        return unsecured_token({"sub": "provider"}, now_ms, self.life_s), now_ms + int(self.life_s * 1000)

    def fail(self, mode: str) -> None:
        self._works.clear()
        self.mode = mode

    def work(self) -> None:
        self.mode = "works"
        self._works.set()

    def close(self) -> None:
        self.work()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Passwords:
    """The password of the SCRAM user, as the cluster has it, and as the clients have it."""

    def __init__(self, servers: str) -> None:
        self._admin = KafkaAdminClient(**plain(servers))
        self._numbers = itertools.count(1)
        self.handed = self.current = ""
        self.generation = 0  # rises when clients are handed another password
        self.rotate()
        self.hand_over()

    def set(self, password: str) -> None:
        """Sets it in the cluster, however long that takes.

        Raises:
            KafkaError: it was not possible in WAIT_S.
        """
        end = time.monotonic() + WAIT_S
        while True:
            try:
                self._admin.alter_user_scram_credentials({(SCRAM_USER, MECHANISM): password}, timeout=10).check()
                self.current = password
                return
            except KafkaError:
                if time.monotonic() > end:
                    raise

    def rotate(self) -> None:
        self.set(f"password-{next(self._numbers)}")

    def hand_over(self) -> None:
        if self.handed != self.current:
            self.handed = self.current
            self.generation += 1

    def close(self) -> None:
        self._admin.close()


def plain(servers: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": PLAIN_USER,
        "sasl_password": PLAIN_PASSWORD,
        "retry_backoff_ms": 50,
        "request_timeout_ms": 3_000,
        "reconnect_backoff_max_ms": 500,
    }


class Credentials:
    """Those of a cluster, and the settings of clients that have them."""

    def __init__(self, servers: str, token_life_s: float) -> None:
        self.servers = servers
        self.tokens = TokenEndpoint(token_life_s)
        self.passwords = Passwords(servers)

    def settings(self, credentials: str) -> dict[str, Any]:
        """Settings of a kafkacore client with credentials "plain", "scram", "endpoint" or "provider"."""
        made = plain(self.servers)
        if credentials == "scram":
            made |= {"sasl_mechanism": MECHANISM, "sasl_username": SCRAM_USER, "sasl_password": self.passwords.handed}
        elif credentials != "plain":
            del made["sasl_username"], made["sasl_password"]
            made["sasl_mechanism"] = "OAUTHBEARER"
            if credentials == "provider":
                made["sasl_oauthbearer_token_provider"] = self.tokens.provider
            else:
                made |= {
                    "sasl_oauthbearer_token_endpoint_url": self.tokens.url,
                    "sasl_oauthbearer_client_credentials_client_id": "soak",
                    "sasl_oauthbearer_client_credentials_client_secret": "secret",
                }
        return made

    def confluent_settings(self, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"bootstrap.servers": self.servers, "security.protocol": "sasl_plaintext", "log_level": 0}
        made |= {"reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50}
        made |= {"sasl.mechanisms": "PLAIN", "sasl.username": PLAIN_USER, "sasl.password": PLAIN_PASSWORD}
        return made | {name.replace("_", "."): value for name, value in more.items()}

    def close(self) -> None:
        self.passwords.close()
        self.tokens.close()
