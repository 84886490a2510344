"""What a broker's TLS listeners refuse, and what hostile peers can do to them: their own connection ends, with a line in the log that says
why, and others are served on."""

from __future__ import annotations

import contextlib
import datetime
import logging
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.broker.server import Broker
from kafkacore.clock import JumpingClock
from kafkacore.config import BrokerConfig
from kafkacore.config_broker_tls import tls_of
from kafkacore.config_listeners import listeners_of
from kafkacore.config_tls import make_context
from kafkacore.errors import KafkaError, SaslAuthentication, SslAuthenticationFailed
from kafkacore.net.transport import TlsTransport
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import authority_of, brokers_of, certificates_of
from tests.kit.tls import client_hello
from tests.kit.waiting import until
from tests.kit.wire import Wire

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tls="mutual") as made:
        made.create_topic("t")
        yield made


@pytest.fixture
def served(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    """A client that is served before, while and after another client is refused."""
    with KafkaProducer(**cluster.client_settings("alice")) as producer:
        producer.send("t", b"before").result(60)
        yield producer
        producer.send("t", b"after").result(60)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING and each.name.startswith("kafkacore.broker")]


def context_of(cluster: EmbeddedCluster, own: bool = True) -> ssl.SSLContext:
    settings = cluster.client_settings("mallory")
    context = ssl.create_default_context(cafile=settings["ssl_cafile"])
    if own:
        context.load_cert_chain(settings["ssl_certfile"], settings["ssl_keyfile"])
    return context


def until_closed(sock: socket.socket) -> None:
    """Waits for the end of a connection, whatever comes before it."""
    with contextlib.suppress(ConnectionError):
        while sock.recv(65_536):
            pass


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\0\0\0\x0e\0\x12\0\0\0\0\0\1\0\4wire", "what came is no TLS: that client needs security_protocol=SSL or SASL_SSL"),
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "what came is no TLS"),
        (b"\xff" * 5_000, "what came is no TLS"),
        (b"\x16\x03\x01\xff\xff" + b"\0" * 70_000, "failed"),
    ],
    ids=["Kafka", "HTTP", "garbage", "long record"],
)
def test_no_tls(cluster: EmbeddedCluster, served: KafkaProducer, caplog: pytest.LogCaptureFixture, sent: bytes, why: str) -> None:
    with Wire(cluster.bootstrap_servers) as wire:
        with contextlib.suppress(ConnectionError):
            wire.sock.sendall(sent)
        until_closed(wire.sock)
        port = wire.sock.getsockname()[1]
    served.send("t", b"v").result(60)
    [line] = until(lambda: warned(caplog))
    assert f"TLS handshake with 127.0.0.1:{port} failed" in line and why in line


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("shown", ["none", "another authority's", "expired"])
def test_certificates(
    cluster: EmbeddedCluster, served: KafkaProducer, caplog: pytest.LogCaptureFixture, tmp_path: Path, shown: str, version: str
) -> None:
    context = context_of(cluster, own=False)
    context.maximum_version = ssl.TLSVersion.TLSv1_2 if version == "1.2" else ssl.TLSVersion.TLSv1_3
    if shown != "none":
        authority = authority_of(certificates_of(cluster)) if shown == "expired" else trustme.CA()
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        end = past + datetime.timedelta(1 if shown == "expired" else 40_000)
        authority.issue_cert(common_name="mallory", not_before=past, not_after=end).configure_cert(context)
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SSL", "ssl_context": context}
    with KafkaAdminClient(**settings) as admin, pytest.raises(SslAuthenticationFailed, match=r"(?i)alert"):
        admin.list_topics()
    with KafkaProducer(**settings) as producer, pytest.raises(SslAuthenticationFailed, match=r"(?i)alert"):
        producer.partitions_for("t")
    with KafkaConsumer("t", **settings) as consumer, pytest.raises(SslAuthenticationFailed, match=r"(?i)alert"):
        consumer.poll(60)
    served.send("t", b"v").result(60)
    why = {"none": "the client shows no certificate, and ssl.client.auth is required", "expired": "certificate has expired"}
    said = until(lambda: warned(caplog))
    assert all(why.get(shown, "certificate verify failed") in line and "127.0.0.1:" in line for line in said)


def test_a_client_that_does_not_trust_the_broker(
    cluster: EmbeddedCluster, served: KafkaProducer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    settings = {**cluster.client_settings("alice"), "ssl_cafile": str(tmp_path / "other.pem")}
    with KafkaAdminClient(**settings) as admin, pytest.raises(SslAuthenticationFailed):
        admin.list_topics()
    served.send("t", b"v").result(60)
    said = until(lambda: warned(caplog))  # the broker reads the refusal when the client has its error already
    assert all("the client refuses this listener's certificate" in line for line in said)


@pytest.mark.parametrize("how", ["closes", "resets", "half closes"])
def test_a_peer_that_ends_in_the_middle(
    cluster: EmbeddedCluster, served: KafkaProducer, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    hello = client_hello(context_of(cluster))
    broker = next(iter(brokers_of(cluster).values()))
    assert isinstance(broker, Broker)
    before = broker.statistics()["connections"]
    for sent in (b"", hello[:1], hello[:100], hello):
        with Wire(cluster.bootstrap_servers) as wire:
            wire.sock.sendall(sent)
            if how == "resets":
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half closes":
                wire.sock.shutdown(socket.SHUT_WR)
                until_closed(wire.sock)
    while broker.statistics()["connections"] > before:
        served.send("t", b"v").result(60)
    assert warned(caplog) == []


def test_half_a_handshake_and_then_drops(cluster: EmbeddedCluster) -> None:
    """A byte now and then does not put off the end: the whole handshake has connections.max.idle.ms."""
    clock = JumpingClock()
    config = BrokerConfig.from_user({"security.inter.broker.protocol": "SSL", **certificates_of(cluster).settings})
    hello = client_hello(context_of(cluster))
    with Broker(config, clock=clock) as broker, Wire(broker.address, 30) as silent, Wire(broker.address, 30) as dripping:
        dripping.sock.sendall(hello[:50])
        while broker.statistics()["connections"] < 2:
            pass
        for at in range(50, 59):
            clock.sleep(config.connections_max_idle_ms // 10)
            assert broker.statistics()["connections"] == 2
            dripping.sock.sendall(hello[at : at + 1])
        clock.sleep(config.connections_max_idle_ms // 10 + 1)
        while broker.statistics()["connections"]:
            pass
        until_closed(silent.sock)
        until_closed(dripping.sock)


def test_frames_before_authentication_are_bounded() -> None:
    config = {"sasl.server.max.receive.size": 1_000}
    with EmbeddedCluster(tls=True, users={"alice": "secret"}, config=config) as cluster:
        settings = cluster.client_settings("alice")
        context = ssl.create_default_context(cafile=settings["ssl_cafile"])
        with Wire(cluster.bootstrap_servers) as wire, context.wrap_socket(wire.sock, server_hostname="localhost") as stream:
            stream.sendall(struct.pack(">i", 1_001))
            until_closed(stream)
        with KafkaAdminClient(**{**settings, "sasl_password": "guessed"}) as admin, pytest.raises(SaslAuthentication):
            admin.list_topics()
        with KafkaProducer(**settings) as producer:
            producer.send("t", b"x" * 10_000).result(60)


def test_a_name_that_no_rule_fits(caplog: pytest.LogCaptureFixture) -> None:
    config = {"ssl.principal.mapping.rules": "RULE:^CN=(alice|broker),.*$/$1/"}
    with EmbeddedCluster(tls="mutual", config=config) as cluster:
        with KafkaProducer(**cluster.client_settings("alice")) as producer:
            producer.send("t", b"v").result(60)

        def refused() -> list[str]:
            with KafkaAdminClient(**cluster.client_settings("ma\x1bllory")) as admin, pytest.raises(KafkaError):
                admin.list_topics(timeout=0.3)
            return warned(caplog)

        said = until(refused)
    assert all(r"no rule of ssl.principal.mapping.rules fits CN=ma\x1bllory,OU=test" in line for line in said)


@pytest.mark.parametrize(
    "sent", [b"\0" * 100, b"\x17\x03\x03\x00\x20" + b"\xaa" * 32, b"\x15\x03\x03\x00\x02\x02\x28"], ids=["no record", "forged", "alert"]
)
def test_garbage_behind_a_handshake(cluster: EmbeddedCluster, served: KafkaProducer, sent: bytes) -> None:
    with Wire(cluster.bootstrap_servers) as wire:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        stream = context_of(cluster).wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                stream.do_handshake()
                break
            except ssl.SSLWantReadError:
                wire.sock.sendall(outgoing.read())
                incoming.write(wire.sock.recv(65_536))
        wire.sock.sendall(outgoing.read() + sent)
        until_closed(wire.sock)
    served.send("t", b"v").result(60)


def test_changed_handshakes(cluster: EmbeddedCluster) -> None:
    """Whatever the first bytes are: a refusal, an end, or a wait for more; nothing else reaches the loop."""
    rng = random.Random(20261123)
    settings = tls_of(cluster.config, listeners_of(cluster.config)[0])
    context = make_context(settings.server)
    hello = client_hello(context_of(cluster))
    outcomes = Counter[str]()
    for _ in range(300):
        changed = bytearray(hello)
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            transport = TlsTransport(near, context, server_side=True, peer="far")
            far.sendall(changed[: rng.choice([len(changed), rng.randrange(len(changed))])])
            try:
                outcomes["done" if transport.handshake() else "waits"] += 1
            except (SslAuthenticationFailed, OSError) as error:
                outcomes[type(error).__name__] += 1
            transport.close()
    assert outcomes["waits"] > 20 and outcomes["SslAuthenticationFailed"] > 20 and not outcomes["done"]
