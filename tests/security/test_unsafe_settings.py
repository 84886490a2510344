"""Settings that give something away are said once; passwords that are wrong are not tried at any pace; files that change are read again."""

import logging
import os
import socket
import ssl

import pytest
import trustme

from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.config_security import SaslSettings
from kafkacore.errors import ConfigError
from kafkacore.net.authentication import authenticators
from kafkacore.net.transport import Address, PlaintextTransport, SocketTransports
from tests.kit.tls import shake_hands
from tests.net.sasl_support import SaslCluster

# ---- a secret that anybody on the way can read


class Far:
    """A socket to another machine."""

    def __init__(self, name):
        self.name = name

    def fileno(self):
        return 99

    def getpeername(self):
        return self.name

    def gettimeout(self):
        return 0


@pytest.mark.parametrize(
    ("mechanism", "name", "warns"),
    [
        ("PLAIN", ("192.0.2.1", 9092), True),
        ("PLAIN", ("2001:db8::1", 9092, 0, 0), True),
        ("PLAIN", ("127.0.0.1", 9092), False),
        ("PLAIN", ("::1", 9092, 0, 0), False),
        ("PLAIN", "/run/kafka.sock", False),
        ("SCRAM-SHA-256", ("192.0.2.1", 9092), False),
        ("OAUTHBEARER", ("192.0.2.1", 9092), True),
    ],
)
def test_a_password_in_the_clear_is_warned_of_once(mechanism, name, warns, caplog, monkeypatch):
    monkeypatch.setattr(PlaintextTransport, "write", lambda *_: -1)
    settings = SaslSettings(mechanism, "alice", "hunter2", claims={"sub": "alice"} if mechanism == "OAUTHBEARER" else None)
    made = authenticators(settings, "me", ManualClock())
    if made.login is not None:
        made.login.ready(0)
    for id in range(3):
        made(id).step(PlaintextTransport(Far(name), peer="kafka:9092"))
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == warns
    assert not warns or ("to kafka:9092 without encryption" in said[0] and "hunter2" not in said[0])


def test_names_that_are_not_checked_are_warned_of(caplog):
    settings = {"bootstrap.servers": "b:1", "security.protocol": "SSL"}
    ClientConfig.from_user(settings).ssl_contexts()
    assert not caplog.records
    ClientConfig.from_user({**settings, "ssl.check.hostname": False}).ssl_contexts()
    assert "ssl_check_hostname=false" in caplog.text


# ---- what a wrong password and a short session cost


class SecuredCluster(SaslCluster):
    """One broker with SASL."""

    def __init__(self, settings, lifetime_ms=0, **config):
        self.settings, self.lifetime_ms = settings, lifetime_ms
        super().__init__(**config)

    def authenticator(self):
        return authenticators(self.settings, "me", self.clock)

    @property
    def authentications(self):
        return sum(key == 36 for broker in self.brokers.values() for key, _ in broker.asked)


def test_a_session_of_a_millisecond_leaves_time_for_requests():
    cluster = SecuredCluster(SaslSettings("PLAIN", "alice", "correct horse"), lifetime_ms=1)
    cluster.until_ready()
    begun = cluster.authentications
    for _ in range(1_000):
        cluster.poll()
        cluster.clock.advance(1)
    assert 5 <= cluster.authentications - begun <= 20
    assert [peer.address.host for peer in cluster.peers].count("broker-1") == 1


# ---- files that change


@pytest.fixture
def tls(tmp_path):
    """Files of a client, the settings that name them, and a server that wants certificates of the same authority."""
    authority = trustme.CA()
    write_files(tmp_path, authority)
    settings = {
        "bootstrap.servers": "b:1", "security.protocol": "SSL", "ssl.cafile": str(tmp_path / "ca.pem"),
        "ssl.certfile": str(tmp_path / "own.pem"), "ssl.keyfile": str(tmp_path / "own.key"),
    }  # fmt: skip
    return tmp_path, ClientConfig.from_user(settings), server_of(authority)


def write_files(directory, authority):
    own = authority.issue_cert("client")
    for name, blob in (("ca.pem", authority.cert_pem), ("own.pem", own.cert_chain_pems[0]), ("own.key", own.private_key_pem)):
        replacement = directory / f"{name}.new"
        blob.write_to_path(str(replacement))
        os.replace(replacement, directory / name)


def server_of(authority):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("broker").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    return server


@pytest.mark.parametrize("name", ["ca.pem", "own.pem", "own.key"])
@pytest.mark.parametrize("how", ["empty", "half", "gone"])
def test_a_file_that_is_half_written_changes_nothing(how, name, tls, caplog):
    directory, config, server = tls
    source = config.ssl_contexts()
    first, whole = source(), (directory / name).read_bytes()
    if how == "gone":
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(b"" if how == "empty" else whole[: len(whole) // 2])
    for _ in range(3):
        assert source() is first
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    (directory / name).write_bytes(whole)
    assert source() is not first
    shake_hands(source(), server, "broker")


def test_each_connection_asks_for_its_context(tls):
    directory, config, _ = tls
    transports = SocketTransports(ssl_context=config.ssl_contexts())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        contexts = []
        for _ in range(2):
            made = transports.connect(Address(socket.AF_INET, listener.getsockname(), "broker"))
            contexts.append(made.ssl_object.context)
            made.close()
            write_files(directory, trustme.CA())
    assert contexts[0] is not contexts[1]


def test_a_users_own_context_is_used_as_it_is():
    context = ssl.create_default_context()
    config = ClientConfig(bootstrap_servers=("b:1",), security_protocol="SSL", ssl_context=context)
    assert config.ssl_contexts()() is context


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"ssl.certfile": "own.pem", "ssl.keyfile": "locked.key"}, "is encrypted, and ssl_password is not set"),
        ({"ssl.certfile": "own.pem", "ssl.keyfile": "locked.key", "ssl.password": "hunter2"}, "has another password than ssl_password"),
        ({"ssl.certfile": "own.pem"}, "comes without a private key"),
        ({"ssl.certfile": "own.key"}, "holds no certificate"),
        ({"ssl.cafile": "empty"}, r"empty is empty"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(files, why, tls):
    from cryptography.hazmat.primitives import serialization

    directory = tls[0]
    key = serialization.load_pem_private_key((directory / "own.key").read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"other")
    (directory / "locked.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    (directory / "empty").write_bytes(b"")
    named = {name: value if name == "ssl.password" else str(directory / value) for name, value in files.items()}
    with pytest.raises(ConfigError, match=why) as caught:
        ClientConfig.from_user({"bootstrap.servers": "b:1", "security.protocol": "SSL", **named}).ssl_contexts()
    assert "hunter2" not in str(caught.value)
