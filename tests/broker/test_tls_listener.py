"""Listeners with TLS: who clients are, brokers among themselves, and what settings cannot mean.

Which clients get in by which listener is in tests/interop/test_security_clients.py.
"""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.broker.server import Broker
from kafkacore.cli.app import run
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.errors import ConfigError, SslAuthenticationFailed, TopicAuthorization, UsageError
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import brokers_of
from tests.kit.programs import environment
from tests.kit.rows import each_row
from tests.kit.wire import Wire

pytestmark = pytest.mark.timeout(60)

USERS = {"alice": "secret", "bob": "other"}
CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL",
    "inter.broker.listener.name": "SSL",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=test,.*$/$1/,DEFAULT",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tls=True, users=USERS, config=CONFIG) as made:
        yield made


def principals(cluster: EmbeddedCluster, call: Callable[[], object]) -> set[str]:
    """Who asks the broker for metadata meanwhile, as its handlers see it."""
    seen: list[Any] = []
    [broker] = brokers_of(cluster).values()
    assert isinstance(broker, Broker)
    handle = broker._handle

    def watched(connection: Any, call: Any, api_key: int, request: Any) -> None:
        seen.append(call.principal)
        handle(connection, call, api_key, request)

    broker._handle = watched  # type: ignore[method-assign]
    try:
        call()
    finally:
        del broker._handle
    return set(seen)


def write_and_read(settings: dict[str, Any], topic: str) -> None:
    with KafkaProducer(**settings) as producer:
        producer.send(topic, b"v", key=b"k").result(60)
    group = {"group_id": f"{topic}-group", "auto_offset_reset": "earliest"}
    with KafkaConsumer(topic, **settings, **group) as consumer:
        [record] = next(iter(consumer.poll(20).values()))
        consumer.commit()
    assert (record.key, record.value) == (b"k", b"v")
    with KafkaAdminClient(**settings) as admin:
        assert topic in admin.list_topics()


@each_row(("listener", "who"), [("SSL", "User:ANONYMOUS"), ("MUTUAL", "User:alice"), ("SASL_SSL", "User:alice")])
def test_who_clients_are(cluster: EmbeddedCluster, listener: str, who: str) -> None:
    settings = cluster.client_settings("alice", listener=listener)
    seen = principals(cluster, lambda: write_and_read(settings, f"by-{listener}"))
    assert who in seen and seen <= {who, "User:ANONYMOUS"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_versions(version: str) -> None:
    config = {"ssl.enabled.protocols": version}
    other = {"TLSv1.2": ssl.TLSVersion.TLSv1_3, "TLSv1.3": ssl.TLSVersion.TLSv1_2}[version]
    with EmbeddedCluster(tls="mutual", config=config) as cluster:
        write_and_read(cluster.client_settings("alice"), "t")
        settings = cluster.client_settings("alice")
        context = ssl.create_default_context(cafile=settings["ssl_cafile"])
        context.load_cert_chain(settings["ssl_certfile"], settings["ssl_keyfile"])
        with Wire(cluster.bootstrap_servers) as wire:
            with context.wrap_socket(wire.sock, server_hostname="localhost") as stream:
                assert stream.version() == version
        context.minimum_version = context.maximum_version = other
        with Wire(cluster.bootstrap_servers) as wire, pytest.raises(ssl.SSLError, match=r"(?i)version"):
            context.wrap_socket(wire.sock, server_hostname="localhost")


def test_certificates_beside_passwords() -> None:
    """ssl.client.auth without a prefix is for listeners that are SSL, as in Kafka; with users tls="mutual" asks for both."""
    with EmbeddedCluster(tls="mutual", users=USERS) as cluster:
        settings = cluster.client_settings("alice")
        assert {"ssl_certfile", "sasl_password"} <= settings.keys()
        write_and_read(settings, "both")
        without = {name: value for name, value in settings.items() if name not in ("ssl_certfile", "ssl_keyfile")}
        with KafkaAdminClient(**without) as admin, pytest.raises(SslAuthenticationFailed):
            admin.list_topics()
    config = {
        "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
    }
    with EmbeddedCluster(tls=True, users=USERS, config=config) as cluster:
        assert "ssl_certfile" in cluster.client_settings("alice")
        settings = cluster.client_settings("alice", listener="SASL_SSL")
        assert "ssl_certfile" not in settings
        write_and_read(settings, "password-alone")


def test_suites() -> None:
    config = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    with EmbeddedCluster(tls=True, config=config) as cluster:
        context = ssl.create_default_context(cafile=cluster.client_settings()["ssl_cafile"])
        with Wire(cluster.bootstrap_servers) as wire, context.wrap_socket(wire.sock, server_hostname="localhost") as stream:
            assert stream.cipher()[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")


@pytest.mark.parametrize("users", [None, USERS], ids=["certificates", "passwords"])
def test_three_brokers(users: dict[str, str] | None) -> None:
    with EmbeddedCluster(brokers=3, tls="mutual", users=users) as cluster:
        cluster.create_topic("t", replication_factor=3, config={"min.insync.replicas": 3})
        cluster.produce("t", [b"one", b"two"])
        assert {cluster.end_offset("t", 0, broker) for broker in (1, 2, 3)} == {2}
        assert [each.value for each in cluster.records("t")] == [b"one", b"two"]
        with KafkaProducer(**cluster.client_settings("alice")) as producer:
            assert producer.send("t", b"three").result(60).offset == 2


def test_processes_and_a_network_with_faults() -> None:
    for how in ({"processes": True}, {"faults": True}):
        with EmbeddedCluster(brokers=2, tls="mutual", **how) as cluster:  # type: ignore[arg-type]
            cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": 2})
            send_one(**cluster.client_settings())


def test_acls_by_certificates() -> None:
    with EmbeddedCluster(brokers=2, tls="mutual", super_users=["admin"]) as cluster:
        with KafkaAdminClient(**cluster.client_settings("admin")) as admin:
            admin.create_topics({"t": 1}).check()
        with KafkaAdminClient(**cluster.client_settings("alice")) as admin:
            assert isinstance(admin.create_topics({"u": 1}).errors["u"], TopicAuthorization)


def test_brokers_must_be_super_users_by_their_certificates(tmp_path: Path) -> None:
    made = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:alice"}
    rules = "RULE:^CN=(.*?),.*$/$1/"
    for more, why in (
        ({}, "super_users must hold User:CN=broker,OU=test,O=kafkacore"),
        ({"ssl.principal.mapping.rules": rules}, "super_users must hold User:broker"),
        ({"ssl.principal.mapping.rules": "RULE:^CN=alice,.*$/alice/"}, "none fits the brokers' own certificate, CN=broker"),
    ):
        for processes in (False, True):
            with pytest.raises(ConfigError, match=why):
                EmbeddedCluster(brokers=2, tls="mutual", processes=processes, config={**made, **more})
    config = {**made, "super.users": "User:broker", "ssl.principal.mapping.rules": rules}
    with EmbeddedCluster(brokers=2, tls="mutual", config=config) as cluster:
        cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": 2})
        cluster.produce("t", [b"v"])


def test_records_on_disk(tmp_path: Path) -> None:
    """Over TLS they cannot go from file to socket."""
    with EmbeddedCluster(tls=True, data_dir=tmp_path) as cluster:
        values = [bytes([n]) * 700_000 for n in range(5)]
        cluster.produce("t", values)
        assert [each.value for each in cluster.records("t")] == values


def test_certificates_in_files(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    config = {
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "own.pem"),
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.client.auth": "requested",
    }
    with EmbeddedCluster(brokers=2, config=config) as cluster:
        cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": 2})
        cluster.produce("t", [b"v"])  # by the brokers' own certificate
        send_one(bootstrap_servers=cluster.bootstrap_servers, security_protocol="SSL", ssl_cafile=str(tmp_path / "ca.pem"))


def test_what_cannot_be(tmp_path: Path) -> None:
    missing = {"security.inter.broker.protocol": "SSL", "ssl.keystore.location": str(tmp_path / "no-such-file")}
    for processes in (False, True):
        with pytest.raises(ConfigError, match="no-such-file"):
            EmbeddedCluster(config=missing, processes=processes)
    for useless in ({"ssl.client.auth": "required"}, {"ssl.principal.mapping.rules": "RULE:a/b/"}):
        with pytest.raises(ConfigError, match="no effect"):
            EmbeddedCluster(tls=True, users=USERS, config=useless)
    with pytest.raises(UsageError, match="certificates are said twice"):
        EmbeddedCluster(tls=True, config={"ssl.keystore.location": "x"})
    with pytest.raises(UsageError, match='tls is True or "mutual"'):
        EmbeddedCluster(tls="both")
    with EmbeddedCluster(tls=True, users=USERS) as cluster, pytest.raises(UsageError, match="one of the users 'alice', 'bob'"):
        cluster.client_settings()


def test_without_the_package_that_makes_certificates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(UsageError, match="tls needs the package trustme, which makes certificates: pip install trustme"):
        EmbeddedCluster(tls=True)
    assert run(["broker", "-p", "0", "--tls"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "pip install trustme" in line


def test_secrets_are_in_no_repr(cluster: EmbeddedCluster) -> None:
    assert "PRIVATE KEY" not in repr(cluster.config)
    with KafkaAdminClient(**cluster.client_settings(listener="SSL")) as admin:
        described = admin.describe_configs([("broker", "1")])["broker", "1"]
        assert (described["ssl.keystore.key"].value, described["ssl.keystore.key"].is_sensitive) == (None, True)
        assert described["ssl.client.auth"].value == "none"


@contextlib.contextmanager
def command(tmp_path: Path, *words: str) -> Iterator[IO[str]]:
    """The output of `kafkacore broker`, which runs meanwhile."""
    line = [sys.executable, "-m", "kafkacore", "broker", "-p", "0", *words]
    broker = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment(KEY_PASSWORD="hush"), cwd=tmp_path)
    assert broker.stdout is not None
    try:
        yield broker.stdout
    finally:
        broker.send_signal(signal.SIGINT)
        broker.communicate(timeout=60)


def send_one(**settings: Any) -> None:
    with KafkaProducer(**settings) as producer:
        producer.send("t", b"v").result(60)


def said_in(line: str) -> dict[str, str]:
    """The settings that a line for people names."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def test_on_the_command_line(tmp_path: Path) -> None:
    ended = []
    for words in (["--json"], ["--json", "--set", "ssl.client.auth=required"], []):
        with command(tmp_path, "--tls", *words) as said:
            if words:
                settings = json.loads(said.readline())
            else:
                where, named = said.readline(), said_in(said.readline())
                settings = {"bootstrap_servers": where.split()[2].rstrip(",")}
                settings |= {name.replace(".", "_"): value for name, value in named.items()}
            assert ("ssl_certfile" in settings) == ("ssl.client.auth=required" in words)
            send_one(**settings)
        ended.append(Path(settings["ssl_cafile"]).exists())
    assert ended == [False, False, False]


def test_sasl_on_the_command_line(tmp_path: Path) -> None:
    """The command says what clients need: with --tls and without it."""
    line = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p" user_b="p" user_alice="secret";'
    (tmp_path / "jaas").write_text(line)
    for protocol, words in (("SASL_SSL", ["--tls"]), ("SASL_PLAINTEXT", [])):
        settings = ["--set", f"security.inter.broker.protocol={protocol}", "--set", f"sasl.jaas.config=secret://file{tmp_path}/jaas"]
        with command(tmp_path, *words, *settings) as said:
            where, needed = said.readline(), said.readline()
            assert needed.endswith("-X sasl.username=USER -X sasl.password=secret://env/NAME\n")
            named = said_in(needed)
            assert (named["security.protocol"], named["sasl.password"]) == (protocol, "secret://env/NAME")
            named |= {"sasl.username": "alice", "sasl.password": "secret", "bootstrap.servers": where.split()[2].rstrip(",")}
            send_one(**{name.replace(".", "_"): value for name, value in named.items()})


def test_a_keys_password_by_reference(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(own.private_key_pem.bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
    (tmp_path / "own.pem").write_bytes(locked + own.cert_chain_pems[0].bytes())
    given = ["listeners=SSL://127.0.0.1:0", "inter.broker.listener.name=SSL", f"listener.name.ssl.ssl.keystore.location={tmp_path}/own.pem"]
    given += ["listener.name.ssl.ssl.key.password=secret://env/KEY_PASSWORD"]
    with command(tmp_path, "--json", *(word for each in given for word in ("--set", each))) as said:
        servers = json.loads(said.readline())["bootstrap_servers"]
        send_one(bootstrap_servers=servers, security_protocol="SSL", ssl_cafile=str(tmp_path / "ca.pem"))


@pytest.mark.parametrize("users", [None, USERS], ids=["certificates", "passwords"])
@pytest.mark.parametrize("tls", [True, "mutual"])
def test_beyond_loopback(tls: bool | str, users: dict[str, str] | None, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(brokers=2, host="0.0.0.0", advertised_host="localhost", tls=tls, users=users) as cluster:
        write_and_read(cluster.client_settings("alice"), "t")
        write_and_read(cluster.client_settings("alice", listener="INTERNAL"), "u")
        cluster.produce("t", [b"v"])
    warned = [each.getMessage() for each in caplog.records if "beyond this machine" in each.getMessage()]
    is_open = tls is True and users is None
    assert len(warned) == (2 if is_open else 0) and all("ssl.client.auth is not required (SSL)" in each for each in warned)
