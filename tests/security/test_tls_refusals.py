"""TLS after the handshake: a real server that changes its keys and renegotiates."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafkacore.config import ClientConfig
from kafkacore.net.transport import TlsTransport
from tests.kit.tls import OpenSsl, is_readable

WAIT_S = 90
needs_openssl = pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("stdbuf")), reason="needs the openssl command")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


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
