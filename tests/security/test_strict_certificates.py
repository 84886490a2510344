"""Strict X.509 (RFC 5280), which Python 3.13 asks of certificates by itself, on every Python: certificates that pass and that do not."""

from __future__ import annotations

import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kafkacore import KafkaAdminClient, errors
from kafkacore.config import ClientConfig
from kafkacore.testing import EmbeddedCluster
from tests.kit.tls import shake_hands


def lenient(lacking: str) -> tuple[str, str, str]:
    """An authority, and a broker's certificate and key, with an extension missing; as PEM."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in ("ca", "broker")]
    now = datetime.datetime.now(datetime.UTC)
    made = []
    for index, (name, key) in enumerate(zip(names, keys, strict=True)):
        begun = x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number())
        begun = begun.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        if index == 0:
            begun = begun.add_extension(x509.BasicConstraints(True, None), critical=True).add_extension(identifier, critical=False)
            if lacking != "key usage":
                usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
                begun = begun.add_extension(usage, critical=True)
        else:
            host = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            begun = begun.add_extension(x509.SubjectAlternativeName([host]), critical=False)
            if lacking != "authority key identifier":
                by = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key())
                begun = begun.add_extension(by, critical=False)
        made.append(begun.sign(keys[0], hashes.SHA256()).public_bytes(Encoding.PEM).decode())
    return made[0], made[1], keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize("lacking", ["key usage", "authority key identifier"])
def test_a_strict_context_refuses_and_the_error_says_why(lacking):
    ca, chain, key = lenient(lacking)
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ca,
    }
    with EmbeddedCluster(config=config) as cluster:
        where = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SSL"}
        strict = ssl.create_default_context(cadata=ca)
        strict.verify_flags |= ssl.VERIFY_X509_STRICT
        with KafkaAdminClient(**where, ssl_context=strict) as admin, pytest.raises(errors.SslAuthenticationFailed) as refused:
            admin.list_topics()
        assert lacking in str(refused.value).lower()
        assert "VERIFY_X509_STRICT of the ssl_context checks" in str(refused.value)
        with KafkaAdminClient(**where, ssl_truststore_certificates=ca) as admin:
            assert admin.list_topics() == []


def test_an_authority_as_keytool_makes_it_is_taken_on_every_python(monkeypatch, tmp_path):
    """Python 3.13 wants key usage, which `keytool -genkeypair` leaves out."""
    ca, chain, key = lenient("key usage")
    (tmp_path / "own.pem").write_text(chain + key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "own.pem")
    create = ssl.create_default_context

    def strict(**options):
        context = create(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    with pytest.raises(ssl.SSLError):
        shake_hands(strict(cadata=ca), server)
    monkeypatch.setattr(ssl, "create_default_context", strict)
    settings = {"bootstrap.servers": "b:1", "security.protocol": "SSL", "ssl.truststore.certificates": ca}
    shake_hands(ClientConfig.from_user(settings).ssl_contexts()(), server)


def test_an_unknown_authority_is_to_be_named():
    with EmbeddedCluster(tls=True) as cluster:
        settings = cluster.client_settings()
        authority = settings.pop("ssl_cafile")
        with KafkaAdminClient(**settings) as admin, pytest.raises(errors.SslAuthenticationFailed, match="ssl_cafile names the file"):
            admin.list_topics()
        with KafkaAdminClient(**settings, ssl_cafile=authority) as admin:
            assert admin.list_topics() == []
