"""Listeners with TLS: who clients are, brokers among themselves, and what settings cannot mean.

Which clients get in by which listener is in tests/interop/test_security_clients.py.
"""

from __future__ import annotations

import contextlib
import json
import signal
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
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.errors import ConfigError, SslAuthenticationFailed, UsageError
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import brokers_of
from tests.kit.programs import environment
from tests.kit.rows import each_row

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


def test_what_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"security.inter.broker.protocol": "SSL", "ssl.keystore.location": str(tmp_path / "no-such-file")}
    for processes in (False, True):
        with pytest.raises(ConfigError, match="no-such-file"):
            EmbeddedCluster(config=missing, processes=processes)
    for useless in ({"ssl.client.auth": "required"}, {"ssl.principal.mapping.rules": "RULE:a/b/"}):
        with pytest.raises(ConfigError, match="no effect"):
            EmbeddedCluster(tls=True, users=USERS, config=useless)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "trustme", None)
        with pytest.raises(UsageError, match="tls needs the package trustme, which makes certificates: pip install trustme"):
            EmbeddedCluster(tls=True)
    with pytest.raises(UsageError, match="certificates are said twice"):
        EmbeddedCluster(tls=True, config={"ssl.keystore.location": "x"})
    with pytest.raises(UsageError, match='tls is True or "mutual"'):
        EmbeddedCluster(tls="both")
    with EmbeddedCluster(tls=True, users=USERS) as cluster, pytest.raises(UsageError, match="one of the users 'alice', 'bob'"):
        cluster.client_settings()


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


HOWS = [{}, {"users": USERS}, {"processes": True}, {"faults": True}]


@pytest.mark.parametrize("how", HOWS, ids=["certificates", "passwords", "processes", "faults"])
def test_three_brokers(how: dict[str, Any]) -> None:
    with EmbeddedCluster(brokers=3, tls="mutual", **how) as cluster:
        cluster.create_topic("t", replication_factor=3, config={"min.insync.replicas": 3})
        cluster.produce("t", [b"one", b"two"])
        assert {cluster.end_offset("t", 0, broker) for broker in (1, 2, 3)} == {2}
        assert [each.value for each in cluster.records("t")] == [b"one", b"two"]
        send_one(**cluster.client_settings("alice"))


@pytest.mark.parametrize(("tls", "users"), [(True, None), ("mutual", USERS)], ids=["open", "closed"])
def test_beyond_loopback(tls: bool | str, users: dict[str, str] | None, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(brokers=2, host="0.0.0.0", advertised_host="localhost", tls=tls, users=users) as cluster:
        write_and_read(cluster.client_settings("alice"), "t")
        write_and_read(cluster.client_settings("alice", listener="INTERNAL"), "u")
        cluster.produce("t", [b"v"])
    warned = [each.getMessage() for each in caplog.records if "beyond this machine" in each.getMessage()]
    assert len(warned) == (2 if users is None else 0) and all("ssl.client.auth is not required (SSL)" in each for each in warned)


# ---- the command line


LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p" user_b="p" user_alice="secret";'


def said_in(line: str) -> dict[str, str]:
    """The settings that a line for people names."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


@pytest.mark.parametrize("way", ["certificate", "password", "password in the clear", "own key"])
def test_on_the_command_line(tmp_path: Path, way: str) -> None:
    """The command says what clients need, as JSON or for people."""
    settings, words = [], ["--json"]
    if way == "certificate":
        words, settings = ["--json", "--tls"], ["ssl.client.auth=required"]
    elif way == "own key":
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        own = authority.issue_cert("127.0.0.1")
        key = load_pem_private_key(own.private_key_pem.bytes(), None)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
        (tmp_path / "own.pem").write_bytes(locked + own.cert_chain_pems[0].bytes())
        prefix = "listener.name.ssl.ssl"
        settings = ["listeners=SSL://127.0.0.1:0", "inter.broker.listener.name=SSL", f"{prefix}.keystore.location={tmp_path}/own.pem"]
        settings.append(f"{prefix}.key.password=secret://env/KEY_PASSWORD")
    else:
        (tmp_path / "jaas").write_text(LOGIN)
        protocol = "SASL_SSL" if way == "password" else "SASL_PLAINTEXT"
        words = ["--tls"] if way == "password" else []
        settings = [f"security.inter.broker.protocol={protocol}", f"sasl.jaas.config=secret://file{tmp_path}/jaas"]
    with command(tmp_path, *words, *(word for each in settings for word in ("--set", each))) as said:
        if "--json" in words:
            needed = json.loads(said.readline())
            assert ("ssl_certfile" in needed) == (way == "certificate")
        else:
            where, line = said.readline(), said.readline()
            assert line.endswith("-X sasl.username=USER -X sasl.password=secret://env/NAME\n")
            needed = {name.replace(".", "_"): value for name, value in said_in(line).items()}
            assert needed["security_protocol"] == protocol
            needed |= {"sasl_username": "alice", "sasl_password": "secret", "bootstrap_servers": where.split()[2].rstrip(",")}
        if way == "own key":
            needed |= {"security_protocol": "SSL", "ssl_cafile": str(tmp_path / "ca.pem")}
        send_one(**needed)
    assert way == "own key" or not Path(needed.get("ssl_cafile", "none")).exists()
