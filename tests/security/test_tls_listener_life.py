"""TLS listeners over time: certificates that are renewed, keys that are updated, renegotiations, brokers that do not trust each other."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from kafkacore import KafkaAdminClient, KafkaProducer, protocol
from kafkacore.errors import InvalidRequest
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import controller_of
from tests.kit.tls import OpenSsl
from tests.kit.wire import Wire

WAIT_S = 90
pytestmark = pytest.mark.timeout(90)
needs_openssl = pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("stdbuf")), reason="needs the openssl command")


class Directory:
    """Certificates in files, as an operator has them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = trustme.CA()
        self.own, self.trusted, self.client = path / "own.pem", path / "trusted.pem", path / "client.pem"
        self.authority.issue_cert(common_name="client").private_key_and_cert_chain_pem.write_to_path(str(self.client))
        self.trust(self.authority)
        self.renew()

    def renew(self) -> str:
        """Replaces the broker's certificate; its serial number."""
        leaf = self.authority.issue_cert("127.0.0.1", "localhost")
        self._replace(self.own, leaf.private_key_and_cert_chain_pem.bytes())
        return self._serial(leaf.cert_chain_pems[0].bytes())

    def trust(self, *authorities: trustme.CA) -> None:
        self._replace(self.trusted, b"".join(each.cert_pem.bytes() for each in authorities))

    def _replace(self, file: Path, content: bytes) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, file)

    @staticmethod
    def _serial(pem: bytes) -> str:
        return f"{x509.load_pem_x509_certificate(pem).serial_number:X}"

    def config(self, **more: Any) -> dict[str, Any]:
        return {
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": str(self.own),
            "ssl.truststore.location": str(self.trusted),
            "ssl.client.auth": "required",
            **more,
        }

    def settings(self, cluster: EmbeddedCluster) -> dict[str, Any]:
        return {
            "bootstrap_servers": cluster.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.path / "ca.pem"),
            "ssl_certfile": str(self.client),
        }

    def shown(self, cluster: EmbeddedCluster, broker: int = 1) -> str:
        """The serial number of the certificate that the broker shows."""
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        context.load_cert_chain(str(self.client))
        address = cluster.bootstrap_servers.split(",")[broker - 1]
        with Wire(address) as wire, context.wrap_socket(wire.sock, server_hostname="localhost") as stream:
            found: Any = stream.getpeercert()
            return str(found["serialNumber"]).lstrip("0")


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    made = Directory(tmp_path)
    made.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


def test_renewed_certificates_need_no_restart(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(config=directory.config()) as cluster, KafkaProducer(**directory.settings(cluster)) as producer:
        producer.send("t", b"v").result(WAIT_S)
        serial = directory.renew()
        assert directory.shown(cluster) == serial
        producer.send("t", b"on the old connection").result(WAIT_S)
        good = directory.own.read_bytes()
        directory.own.write_bytes(good[:100])  # half written
        assert directory.shown(cluster) == serial
        directory.own.unlink()
        assert directory.shown(cluster) == serial
        directory.own.write_bytes(good)
        assert directory.shown(cluster) == serial
        assert directory.renew() == directory.shown(cluster) != serial
    warned = [each.getMessage() for each in caplog.records if "what was read before is used on" in each.getMessage()]
    assert len(warned) == 2 and all(str(directory.own) in each for each in warned)


def test_brokers_renew_their_own_connections(directory: Directory) -> None:
    """Both ends of replication change to another authority, broker by broker."""
    later = trustme.CA()
    with EmbeddedCluster(brokers=2, config=directory.config()) as cluster:
        cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": 2})
        cluster.produce("t", [b"one"])
        directory.trust(directory.authority, later)
        directory.authority = later
        directory.renew()
        for broker in (1, 2):
            cluster.stop_broker(broker)
            cluster.start_broker(broker)
        directory.trust(later)
        cluster.produce("t", [b"two"])
        assert {cluster.end_offset("t", 0, broker) for broker in (1, 2)} == {2}


def test_altered_certificates(directory: Directory) -> None:
    """By listener, for one broker; they hold when it starts again."""
    with EmbeddedCluster(brokers=2, config=directory.config()) as cluster, KafkaAdminClient(**directory.settings(cluster)) as admin:
        before = directory.shown(cluster)
        leaf = directory.authority.issue_cert("127.0.0.1", "localhost")
        serial = directory._serial(leaf.cert_chain_pems[0].bytes())
        named = {
            "listener.name.ssl.ssl.keystore.location": None,
            "listener.name.ssl.ssl.keystore.certificate.chain": leaf.cert_chain_pems[0].bytes().decode(),
            "listener.name.ssl.ssl.keystore.key": leaf.private_key_pem.bytes().decode(),
        }
        resource = ("broker", "1")
        failed = admin.alter_configs({resource: named}).errors[resource]
        assert isinstance(failed, InvalidRequest) and "exclude each other" in str(failed)  # the file stands in its settings still
        following = directory.path / "following.pem"
        following.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
        admin.alter_configs({resource: {"listener.name.ssl.ssl.keystore.location": str(following)}}).check()
        assert directory.shown(cluster) == serial
        assert directory.shown(cluster, 2) == before
        admin.alter_configs({resource: {"producer.id.expiration.ms": 1_000_000}}).check()
        cluster.stop_broker(1)
        cluster.start_broker(1)
        assert directory.shown(cluster) == serial
        described = admin.describe_configs([resource])[resource]
        assert described["listener.name.ssl.ssl.keystore.location"].value == str(following)
        admin.alter_configs({resource: {"listener.name.ssl.ssl.keystore.location": None}}).check()
        assert directory.shown(cluster) == before
        for name, why in (
            ("ssl.keystore.location", "only per-listener"),
            ("listener.name.other.ssl.keystore.location", "this listener does not exist"),
            ("listener.name.ssl.ssl.principal.mapping.rules", "Cannot update these configs dynamically"),
        ):
            assert why in str(admin.alter_configs({resource: {name: "x"}}).errors[resource])
        for name in ("listener.name.ssl.ssl.cipher.suites", "listener.name.ssl.ssl.nonsense"):  # which wait for a start, or a plug-in
            admin.alter_configs({resource: {name: "x"}}).check()
            assert directory.shown(cluster) == before


def test_brokers_at_other_names(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    """A certificate that does not name the host is refused among brokers, unless the settings say so."""
    leaf = directory.authority.issue_cert("kafka.example")
    directory._replace(directory.own, leaf.private_key_and_cert_chain_pem.bytes())
    for algorithm in ("https", ""):
        config = directory.config(**{"ssl.endpoint.identification.algorithm": algorithm, "replica.lag.time.max.ms": 500})
        with EmbeddedCluster(brokers=2, config=config) as cluster:
            cluster.create_topic("t", replication_factor=2, config={"min.insync.replicas": 2})
            if algorithm:
                assert controller_of(cluster).wait_until(lambda state: len(state.image.partition("t", 0).isr) == 1, WAIT_S)
            else:
                cluster.produce("t", [b"v"])
    said = [each.getMessage() for each in caplog.records]
    assert any("connection to broker" in each and "IP address mismatch" in each for each in said)
    assert any(each.startswith("ssl.endpoint.identification.algorithm is empty: any holder") for each in said)


def typing_to(cluster: EmbeddedCluster, version: str) -> OpenSsl:
    ca = cluster.client_settings()["ssl_cafile"]
    typing = OpenSsl("s_client", "-connect", cluster.bootstrap_servers, "-CAfile", ca, f"-{version}")
    typing.read_until(b"Verify return code: 0 (ok)")
    return typing


def api_versions_frame(correlation_id: int) -> bytes:
    return b"".join(bytes(part) for part in protocol.encode_request(protocol.ApiVersionsRequest(), 0, correlation_id, "typing"))


@needs_openssl
def test_a_renegotiation_is_declined() -> None:
    """By OpenSSL 3 in any case, by older ones as the context asks."""
    with EmbeddedCluster(tls=True) as cluster, typing_to(cluster, "tls1_2") as typing:
        with KafkaProducer(**cluster.client_settings()) as producer:
            typing.type(api_versions_frame(0x51525354))
            typing.read_until(b"\x51\x52\x53\x54")
            typing.type(b"R\n")
            typing.read_until(b"no renegotiation")
            producer.send("t", b"v").result(WAIT_S)


def test_a_broker_that_closes_says_so(directory: Directory) -> None:
    """close_notify, so that what was read is known to be all."""
    with EmbeddedCluster(tls=True) as cluster:
        context = ssl.create_default_context(cafile=cluster.client_settings()["ssl_cafile"])
        with socket.create_connection(("127.0.0.1", int(cluster.bootstrap_servers.rpartition(":")[2])), WAIT_S) as sock:
            with context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False) as stream:
                stream.sendall(api_versions_frame(1))
                assert stream.recv(4)
                cluster.stop_broker(1)
                while stream.recv(65_536):
                    pass
