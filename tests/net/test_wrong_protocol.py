"""One side speaks TLS, the other side does not: each says which."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafkacore import KafkaAdminClient, errors
from kafkacore._codec import FrameReader
from kafkacore.net.transport import Address
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row
from tests.kit.waiting import until

# Record headers of RFC 8446, section 5.1, with what follows them.
CLIENT_HELLO = bytes.fromhex("16030102000100")
ALERT = bytes.fromhex("15030300020250")
QUICK = {"default_api_timeout_ms": 400, "request_timeout_ms": 300, "retry_backoff_ms": 10, "reconnect_backoff_ms": 10}


@each_row(
    ("begins", "said"),
    [
        (CLIENT_HELLO, "above the limit of 1000 bytes; the peer speaks TLS, and this side of the connection does not"),
        (ALERT, "; the peer speaks TLS"),
        (b"GET / HTTP/1.1", "; the peer speaks HTTP"),
        (b"POST / HTTP/1.1", "; the peer speaks HTTP"),
        (b"HTTP/1.1 400 Bad Request", "; the peer speaks HTTP"),
        (struct.pack(">i", 0x1703 << 16), "; the stream is not Kafka's protocol or is out of step"),
        (struct.pack(">i", -1), "is negative; the stream is not Kafka's protocol"),
    ],
)
def test_a_frame_that_is_another_protocol_is_named(begins: bytes, said: str) -> None:
    reader = FrameReader(1000, "host:1")
    buffer, start, room = reader.target()
    take = begins[:room]
    memoryview(buffer)[start : start + len(take)] = take
    reader.received(len(take))
    with pytest.raises(errors.CorruptDataError) as caught:
        reader.next_frame()
    assert said in str(caught.value) and "host:1" in str(caught.value)


@contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats each connection so and closes it."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def failure_of_client(at: str, says: str, caplog: pytest.LogCaptureFixture, **settings: str) -> str:
    """What a call says of a client whose time was enough to find out; the warnings of that client are the log's."""

    def said() -> str:
        caplog.clear()
        with KafkaAdminClient(bootstrap_servers=at, **QUICK, **settings) as admin, pytest.raises(errors.KafkaTimeoutError) as caught:
            admin.list_topics()
        return str(caught.value) if says in str(caught.value) else ""

    return str(until(said, says))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_a_plain_client_hears_an_alert_of_tls(caplog: pytest.LogCaptureFixture) -> None:
    def alert(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(ALERT)

    wants = "the peer speaks TLS, and this side of the connection does not: its listener wants TLS, that is security_protocol=SSL"
    with peer(alert) as at:
        assert "may want SASL" not in failure_of_client(at, wants, caplog)
    (warning,) = warnings(caplog)
    assert wants in warning


@pytest.mark.parametrize("takes", [4096, 4], ids=["closes", "resets"])
def test_a_client_with_tls_at_a_listener_without(takes: int, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka reads four bytes, takes them for a size, and closes with the rest unread: a reset."""
    wants = "its listener may be without it, that is security_protocol=PLAINTEXT or SASL_PLAINTEXT"
    with peer(lambda connection: connection.recv(takes)) as at:
        assert "may want SASL" not in failure_of_client(at, wants, caplog, security_protocol="SSL")
    assert len(warnings(caplog)) == 1


def test_a_broker_without_tls_names_it(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster() as cluster:
        failure_of_client(cluster.bootstrap_servers, "its listener may be without it", caplog, security_protocol="SSL")
    assert "the peer speaks TLS, and this side of the connection does not" in caplog.text


def test_addresses_of_ipv6_have_brackets() -> None:
    assert str(Address(socket.AF_INET6, ("::1", 9092, 0, 0))) == "[::1]:9092"
    with pytest.raises(errors.ConfigError, match=r"'::1' is not an address of the form host:port, \[::1\]:9092 for IPv6"):
        KafkaAdminClient(bootstrap_servers="::1")
