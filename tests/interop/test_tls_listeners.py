"""TLS listeners of Apache Kafka and of the embedded broker, from the same settings: who is let in and as whom, versions and suites.

Other clients and Kafka's tools are in test_security_clients.py.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafkacore import KafkaAdminClient
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.errors import KafkaError
from kafkacore.testing import EmbeddedCluster
from kafkacore.testing.certificates import Certificates
from tests.kit.free_ports import free_port
from tests.kit.kafka_server import KafkaServer
from tests.kit.wire import Wire

pytestmark = pytest.mark.timeout(180)

NAMES = ("REQUIRED", "REQUESTED", "NARROW")
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


class Issuer(Certificates):
    """Certificates in the files of an operator."""

    def __init__(self, directory: Path) -> None:
        super().__init__(["127.0.0.1"])
        self.directory = directory
        self.own = directory / "broker.pem"
        self.own.write_text(self.settings["ssl_keystore_key"] + self.settings["ssl_keystore_certificate_chain"])

    def issued(self, name: str, unit: str = "test", *, by: trustme.CA | None = None, expired: bool = False) -> ssl.SSLContext:
        """The context of a client with a certificate; without one where the name is empty."""
        context = ssl.create_default_context(cafile=self.ca)
        if name:
            start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
            end = start + datetime.timedelta(1 if expired else 40_000)
            made = (by or self._authority).issue_cert(
                "client.invalid", common_name=name, organization_unit_name=unit, organization_name="acme", not_before=start, not_after=end
            )
            made.configure_cert(context)
        return context


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    made = Issuer(tmp_path_factory.mktemp("tls"))
    yield made
    made.close()


def settings(issuer: Issuer) -> dict[str, Any]:
    """What both are started with, besides the ports."""
    found: dict[str, Any] = {"authorizer.class.name": STANDARD_AUTHORIZER}
    found["super.users"] = "User:ANONYMOUS;User:alice;User:CN=carol,OU=dev,O=acme"
    for name in NAMES:
        prefix = f"listener.name.{name.lower()}.ssl."
        found |= {f"{prefix}keystore.type": "PEM", f"{prefix}keystore.location": str(issuer.own)}
        found |= {f"{prefix}truststore.type": "PEM", f"{prefix}truststore.location": issuer.ca}
        found[f"{prefix}principal.mapping.rules"] = "RULE:^CN=([^,]*),OU=test,.*$/$1/L, DEFAULT"
    found["listener.name.required.ssl.client.auth"] = "required"
    found["listener.name.requested.ssl.client.auth"] = "requested"
    found |= {"listener.name.narrow.ssl.enabled.protocols": "TLSv1.2", "listener.name.narrow.ssl.cipher.suites": SUITE}
    return found


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.kafka_at_length])])
def addresses(request: pytest.FixtureRequest, issuer: Issuer) -> Iterator[dict[str, str]]:
    """host:port by listener."""
    ports = {name: free_port() for name in NAMES}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = ",".join(f"{name}:SSL" for name in NAMES)
    if request.param == "embedded":
        config = {
            **settings(issuer),
            "listeners": f"PLAINTEXT://127.0.0.1:0,{listeners}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{protocols}",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        with EmbeddedCluster(config=config):
            yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        return
    server = KafkaServer(**settings(issuer))
    text = server.properties.read_text()
    text = text.replace(
        f"listeners=PLAINTEXT://{server.bootstrap_servers}", f"listeners=PLAINTEXT://{server.bootstrap_servers},{listeners}"
    )
    server.properties.write_text(text.replace("PLAINTEXT:PLAINTEXT\n", f"PLAINTEXT:PLAINTEXT,{protocols}\n"))
    with server:
        yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}


def outcome(address: str, context: ssl.SSLContext, topic: str) -> str:
    """What becomes of a client that creates a topic."""
    with KafkaAdminClient(bootstrap_servers=address, security_protocol="SSL", ssl_context=context) as admin:
        try:
            failed = admin.create_topics({topic: 1}, timeout=20).errors
        except KafkaError as error:
            return type(error).__name__
        return type(failed[topic]).__name__ if failed else "created"


LET_IN = {"alice": "created", "ALICE": "created", "carol of dev": "created", "carol": "TopicAuthorization", "mallory": "TopicAuthorization"}
REFUSED = {"none": "SslAuthenticationFailed", "stranger": "SslAuthenticationFailed", "expired": "SslAuthenticationFailed"}


@pytest.mark.parametrize("listener", NAMES[:2])
@pytest.mark.parametrize("who", [*LET_IN, *REFUSED])
def test_who_is_let_in_and_as_whom(addresses: dict[str, str], issuer: Issuer, who: str, listener: str) -> None:
    name, _, unit = who.partition(" of ")
    by = trustme.CA() if who == "stranger" else None
    context = issuer.issued("" if who == "none" else name, unit or "test", by=by, expired=who == "expired")
    expected = {**LET_IN, **REFUSED}[who]
    if (who, listener) == ("none", "REQUESTED"):
        expected = "created"  # as User:ANONYMOUS
    assert outcome(addresses[listener], context, f"{who.replace(' ', '-')}-{listener}") == expected


def test_versions_and_suites(addresses: dict[str, str], issuer: Issuer) -> None:
    context = issuer.issued("")
    with Wire(addresses["NARROW"]) as wire, context.wrap_socket(wire.sock, server_hostname="127.0.0.1") as stream:
        assert stream.cipher()[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")  # type: ignore[index]
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with Wire(addresses["NARROW"]) as wire, pytest.raises(ssl.SSLError, match=r"(?i)version"):
        context.wrap_socket(wire.sock, server_hostname="127.0.0.1")


# ---- altering a running broker
