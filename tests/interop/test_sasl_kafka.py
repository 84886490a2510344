"""SASL with Apache Kafka: every mechanism, a wrong password, sessions that end (KIP-368), and users made by this package's admin client."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.config_kerberos import KRB5_MODULE
from kafkacore.config_security import sasl_listener
from kafkacore.errors import SaslAuthentication
from kafkacore.metadata import NEVER_MS
from kafkacore.net import client as client_module
from kafkacore.testing import EmbeddedCluster
from tests.kit.free_ports import free_port
from tests.kit.inside import connections_of, sender_of
from tests.kit.kafka_server import KafkaServer, fast_jvm, fetch_jars
from tests.kit.kdc import KDC_REASON, REALM, Realm
from tests.kit.rivals import applied

pytestmark = pytest.mark.kafka

PASSWORD = 'ali"ce\\sécret'
MODULES = "org.apache.kafka.common.security."
REAUTH_MS = 3_000
SESSION_PARTS = (0.4, 0.5)
"""When the client authenticates again: on a busy machine it needs the second half, and Kafka refuses that in the session's first second."""


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """Addresses of a Kafka with a plain listener, a SASL one, one with short sessions, and one within TLS."""
    plain_jaas = f'{MODULES}plain.PlainLoginModule required user_alice="ali\\\\"ce\\\\\\\\s\\u00e9cret";'
    stack = ExitStack()
    ports = {"SASL": free_port(), "SHORT": free_port(), "TLS": free_port()}
    if KDC_REASON is None:
        ports["KERBEROS"] = free_port()
    authority = trustme.CA()
    broker = authority.issue_cert("127.0.0.1")
    plain = KafkaServer()
    text = plain.properties.read_text()
    listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports.items())
    text = text.replace(f"listeners=PLAINTEXT://{plain.bootstrap_servers}", f"listeners=PLAINTEXT://{plain.bootstrap_servers}{listeners}")
    protocols = "SASL:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT,KERBEROS:SASL_PLAINTEXT,TLS:SASL_SSL"
    text = text.replace("PLAINTEXT:PLAINTEXT\n", f"PLAINTEXT:PLAINTEXT,{protocols}\n")
    key = load_pem_private_key(broker.private_key_pem.bytes(), None)  # Java reads keys in PKCS8 alone
    pem = {
        "certificate.chain": broker.cert_chain_pems[0].bytes(),
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    for part, content in pem.items():
        text += f"listener.name.tls.ssl.keystore.{part}=" + content.decode().replace("\n", "\\n") + "\n"
    text += "listener.name.tls.ssl.keystore.type=PEM\n"
    for name in ("sasl", "short", "tls"):
        text += f"listener.name.{name}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n"
        text += f"listener.name.{name}.plain.sasl.jaas.config={plain_jaas}\n"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            text += f"listener.name.{name}.{mechanism}.sasl.jaas.config={MODULES}scram.ScramLoginModule required;\n"
        text += f"listener.name.{name}.oauthbearer.sasl.jaas.config={MODULES}oauthbearer.OAuthBearerLoginModule required"
        text += ' unsecuredLoginStringClaim_sub="broker";\n'
        text += f"listener.name.{name}.plain.connections.max.reauth.ms={REAUTH_MS if name == 'short' else 0}\n"
    keytab = service = ""
    if KDC_REASON is None:
        realm = stack.enter_context(Realm())
        service, keytab = realm.principal("kafka/127.0.0.1", "kafka/localhost"), realm.principal("alice")
        plain.system_properties.append(f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}")
        text += "sasl.kerberos.service.name=kafka\nlistener.name.kerberos.sasl.enabled.mechanisms=GSSAPI\n"
        text += f"listener.name.kerberos.gssapi.sasl.jaas.config={KRB5_MODULE} required useKeyTab=true storeKey=true"
        text += f' keyTab="{service}" principal="kafka/127.0.0.1@{REALM}";\n'
        text += f"listener.name.kerberos.gssapi.connections.max.reauth.ms={REAUTH_MS}\n"
    plain.properties.write_text(text)
    with stack, plain:
        with KafkaAdminClient(bootstrap_servers=plain.bootstrap_servers) as admin:
            admin.alter_user_scram_credentials({("alice", f"SCRAM-SHA-{bits}"): PASSWORD for bits in (256, 512)}).check()
            applied(admin)
        keys = {"KEYTAB": keytab, "SERVICE": service}
        yield {**keys, "CA": authority.cert_pem.bytes().decode(), **{name: f"127.0.0.1:{port}" for name, port in ports.items()}}


def settings(servers: dict[str, str], mechanism: str, listener: str = "SASL", **more: Any) -> dict[str, Any]:
    base = {"bootstrap.servers": servers[listener], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if listener == "TLS":
        base |= {"security.protocol": "SASL_SSL", "ssl.truststore.certificates": servers["CA"]}
    if mechanism == "GSSAPI":
        return {**base, "sasl.kerberos.principal": "alice", "sasl.kerberos.keytab": servers["KEYTAB"], **more}
    if mechanism == "OAUTHBEARER":
        line = f'{MODULES}oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
        return {**base, "sasl.jaas.config": line, **more}
    return {**base, "sasl.username": "alice", "sasl.password": PASSWORD, **more}


LONG_S = 600
"""Longer than a test may take: what comes within is no time-out of a client."""
PATIENT = {"default.api.timeout.ms": LONG_S * 1000}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
KERBEROS = pytest.param("GSSAPI", "KERBEROS", marks=pytest.mark.skipif(KDC_REASON is not None, reason=str(KDC_REASON)))


@pytest.mark.parametrize(
    ("mechanism", "listener"), [*((each, "SASL") for each in MECHANISMS), ("PLAIN", "TLS"), ("SCRAM-SHA-512", "TLS"), KERBEROS]
)
def test_round_trips(servers: dict[str, str], mechanism: str, listener: str) -> None:
    topic = f"{listener}-{mechanism}"
    with KafkaProducer(settings(servers, mechanism, listener)) as producer:
        for n in range(100):
            producer.send(topic, b"%d" % n, partition=0)
        producer.flush(30)
    with KafkaConsumer(settings(servers, mechanism, listener, **{"auto.offset.reset": "earliest"})) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: list[bytes] = []
        while len(read) < 100:
            read += [record.value for records in consumer.poll(10).values() for record in records]
    assert read == [b"%d" % n for n in range(100)]
    with KafkaAdminClient(settings(servers, mechanism, listener)) as admin:
        assert admin.describe_user_scram_credentials(["alice"])["alice"] == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_told_at_once(servers: dict[str, str], mechanism: str) -> None:
    wrong = settings(servers, mechanism) | {"sasl.password": "guessed-wrong"}
    with pytest.raises(SaslAuthentication, match=rf"{mechanism} authentication of user 'alice' by {servers['SASL']} failed") as caught:
        with KafkaAdminClient(wrong | PATIENT) as admin:
            admin.list_topics()
    with pytest.raises(SaslAuthentication), KafkaProducer(wrong, max_block_ms=LONG_S * 1000) as producer:
        producer.send("t", b"v").result(LONG_S)
    assert "guessed-wrong" not in str(caught.value)


@pytest.mark.skipif(KDC_REASON is not None, reason=str(KDC_REASON))
def test_javas_clients_come_in_by_kerberos(servers: dict[str, str], tmp_path: Path) -> None:
    """Kafka's tools on the embedded broker, in the realm of the module. They look an address's name up, and want a ticket for that."""
    krb5_conf = f"-Djava.security.krb5.conf={os.environ['KRB5_CONFIG']}"
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\nmax.block.ms=30000\nsasl.jaas.config="
        f'{KRB5_MODULE} required useKeyTab=true storeKey=true keyTab="{servers["KEYTAB"]}" principal="alice@{REALM}";\n'
    )

    def tool(name: str, option: str, *args: str, stdin: bytes = b"") -> bytes:
        command = ["java", *fast_jvm(), krb5_conf, "-cp", f"{fetch_jars()}/*", f"org.apache.kafka.tools.{name}"]
        command += ["--bootstrap-server", cluster.bootstrap_servers, option, str(client), *args]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=True).stdout

    with EmbeddedCluster(config=sasl_listener({"bob": "x"}, keytab=servers["SERVICE"])) as cluster:
        tool("ConsoleProducer", "--command-config", "--topic", "java", stdin=b"one\ntwo\n")
        read = tool("consumer.ConsoleConsumer", "--command-config", "--topic", "java", "--from-beginning", "--max-messages", "2")
        assert read == b"one\ntwo\n"


@pytest.mark.parametrize(("mechanism", "listener"), [("PLAIN", "SHORT"), KERBEROS])
def test_sessions_are_renewed(servers: dict[str, str], mechanism: str, listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka closes a connection that goes on after its session's end; nothing is lost here, and no connection either."""
    monkeypatch.setattr(client_module, "_SESSION_PARTS", SESSION_PARTS)
    with KafkaProducer(settings(servers, mechanism, listener, **{"linger.ms": 0})) as producer:
        producer.send("sessions", b"v").result(30)
        client = sender_of(producer).client
        lost: list[Any] = []
        client.on_disconnect = lambda node, error: lost.append((node, error))
        renewals = {connections_of(client)[1].reauthenticate_ms}
        while len(renewals - {NEVER_MS}) < 3:
            producer.send("sessions", b"v").result(30)
            renewals.add(connections_of(client)[1].reauthenticate_ms)
        producer.send("sessions", b"v").result(30)
    assert lost == []
