"""A TLS listener that refuses the client, renegotiates, or changes its keys: what clients raise, and how soon."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.config import ClientConfig
from kafkacore.errors import KafkaError, SslAuthenticationFailed
from kafkacore.net.transport import TlsTransport
from tests.kit.tls import OpenSsl, is_readable
from tests.kit.waiting import until

WAIT_S = 90
needs_openssl = pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("stdbuf")), reason="needs the openssl command")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class Listener:
    """Lets nobody in. With `reset` its TCP stack says so with a reset, which may overtake what TLS said."""

    def __init__(self, authority: trustme.CA, version: ssl.TLSVersion, *, reset: bool) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._context)
        authority.configure_trust(self._context)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.minimum_version = self._context.maximum_version = version
        self._reset = reset
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"localhost:{self._sock.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self.connections += 1
            sock.settimeout(WAIT_S)
            with contextlib.suppress(OSError):
                self._answer(sock)
            sock.close()

    def _answer(self, sock: socket.socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        stream = self._context.wrap_bio(incoming, outgoing, server_side=True)
        refused = False
        while data := sock.recv(65_536):
            incoming.write(data)
            try:
                refused or stream.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                refused = True
            if outgoing.pending:
                sock.sendall(outgoing.read())
            if refused and self._reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                break

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._thread.join()


@pytest.fixture(params=["1.2", "1.3"])
def listener(request: pytest.FixtureRequest, authority: trustme.CA) -> Iterator[Listener]:
    made = Listener(authority, ssl.TLSVersion.TLSv1_2 if request.param == "1.2" else ssl.TLSVersion.TLSv1_3, reset=False)
    yield made
    made.close()


def use_admin(settings: dict[str, Any]) -> None:
    with KafkaAdminClient(settings) as client:
        client.list_topics(timeout=WAIT_S)


def use_producer(settings: dict[str, Any]) -> None:
    with KafkaProducer({**settings, "max.block.ms": WAIT_S * 1000}) as client:
        client.send("t", b"x").result(WAIT_S)


def use_consumer(settings: dict[str, Any]) -> None:
    with KafkaConsumer("t", **{name.replace(".", "_"): value for name, value in settings.items()}, group_id="g") as client:
        client.poll(WAIT_S)


@pytest.mark.parametrize(("use", "protocol"), [(use_admin, "SSL"), (use_producer, "SSL"), (use_consumer, "SSL"), (use_admin, "SASL_SSL")])
def test_a_client_without_a_certificate_or_with_a_foreign_one_is_refused_at_once(
    use: Callable[[dict[str, Any]], None], protocol: str, listener: Listener, authority: trustme.CA, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    settings: dict[str, Any] = {"bootstrap.servers": listener.bootstrap, "security.protocol": protocol, "ssl.cafile": str(ca)}
    if protocol == "SASL_SSL":
        settings |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}
    with pytest.raises(SslAuthenticationFailed, match=r"(?i)alert") as caught:
        use(settings)
    assert f"localhost:{listener.bootstrap.rpartition(':')[2]}" in str(caught.value)
    assert "security_protocol" not in str(caught.value)
    assert listener.connections <= 3  # "localhost" may be two addresses; a producer's thread may have begun another attempt
    trustme.CA().issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "foreign.pem"))
    with pytest.raises(SslAuthenticationFailed, match=r"(?i)unknown.ca"):
        use({**settings, "ssl.certfile": str(tmp_path / "foreign.pem")})


def test_where_a_reset_takes_the_refusal_away_the_certificate_is_named(authority: trustme.CA, tmp_path: Path) -> None:
    listener = Listener(authority, ssl.TLSVersion.TLSv1_3, reset=True)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    settings = {"bootstrap.servers": listener.bootstrap, "security.protocol": "SSL", "ssl.cafile": str(ca), "reconnect.backoff.ms": 1}

    def is_named() -> bool:
        with KafkaAdminClient(settings) as client, pytest.raises(KafkaError) as caught:
            client.list_topics(timeout=0.5)
        return "client certificate" in str(caught.value)

    try:
        until(is_named)
    finally:
        listener.close()


# ---- TLS after the handshake: a real server that changes keys and renegotiates


@contextlib.contextmanager
def served(authority: trustme.CA, directory: Path, version: str, context: ssl.SSLContext) -> Iterator[tuple[OpenSsl, TlsTransport]]:
    own = directory / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(own))
    with OpenSsl("s_server", "-accept", "127.0.0.1:0", "-cert", str(own), f"-{version}") as server:
        server.read_until(b"ACCEPT 127.0.0.1:")
        sock = socket.create_connection(("127.0.0.1", int(server.read_until(b"\n"))), timeout=WAIT_S)
        sock.setblocking(False)
        transport = TlsTransport(sock, context, server_hostname="localhost")
        try:
            until_done(transport, transport.handshake)
            yield server, transport
        finally:
            transport.close()


def until_done(transport: TlsTransport, step: Callable[[], Any]) -> Any:
    while not (result := step()):
        assert is_readable(transport.sock), "nothing came"
    return result


def read_line(transport: TlsTransport) -> bytes:
    buffer, got = bytearray(1000), b""
    while not got.endswith(b"\n"):
        count = until_done(transport, lambda: max(0, transport.read_into(buffer, 0, len(buffer))))
        got += buffer[:count]
    return got


def write_all(transport: TlsTransport, data: bytes) -> None:
    assert transport.write([data], 0) == len(data)
    while not transport.flush():
        pass


@needs_openssl
@pytest.mark.parametrize("letter", [b"k\n", b"K\n"])
def test_writes_go_on_when_the_server_changes_its_keys(letter: bytes, authority: trustme.CA, tmp_path: Path) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with served(authority, tmp_path, "tls1_3", context) as (server, transport):
        for number in range(3):
            server.type(letter)
            server.read_until(b"SSL_do_handshake -> 1")
            server.type(b"line %d\n" % number)
            assert read_line(transport).endswith(b"line %d\n" % number)
            write_all(transport, b"answer %d\n" % number)
            server.read_until(b"answer %d" % number)


def settings_context(authority: trustme.CA) -> ssl.SSLContext:
    config = ClientConfig(
        bootstrap_servers=("localhost:1",), security_protocol="SSL", ssl_truststore_certificates=authority.cert_pem.bytes().decode()
    )
    context = config.make_ssl_context()
    assert context is not None
    return context


@needs_openssl
def test_a_renegotiation_is_declined(authority: trustme.CA, tmp_path: Path) -> None:
    with served(authority, tmp_path, "tls1_2", settings_context(authority)) as (server, transport):
        write_all(transport, b"first\n")
        server.read_until(b"first")
        server.type(b"r\n")
        server.read_until(b"SSL_do_handshake -> 1")
        with contextlib.suppress(ConnectionResetError):  # OpenSSL's server ends a connection that declines
            until_done(transport, lambda: transport.read_into(bytearray(10), 0, 10) == 0)
        server.read_until(b"no renegotiation")


@needs_openssl
def test_a_write_within_a_renegotiation_ends_the_connection(authority: trustme.CA, tmp_path: Path) -> None:
    context = ssl.create_default_context()  # a user's own, which takes part
    authority.configure_trust(context)
    with served(authority, tmp_path, "tls1_2", context) as (server, transport):
        server.type(b"r\n")
        with pytest.raises(ConnectionResetError, match="renegotiation"):
            until_done(transport, lambda: max(0, transport.read_into(bytearray(10), 0, 10)) or transport.write([b"x"], 0) < 0)
