"""Strict X.509 (RFC 5280), which Python 3.13 asks of certificates by itself, on every Python: certificates that pass and that do not."""

from __future__ import annotations

import ssl

import pytest

from kafkacore.testing.certificates import Certificates


@pytest.fixture(scope="module")
def certificates():
    made = Certificates(["127.0.0.1"])
    yield made
    made.close()


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Both sides to the end, in memory.

    Raises:
        ssl.SSLError: one of them refuses the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"), server.wrap_bio(to_server, to_client, server_side=True)]
    left = list(sides)
    while left:
        for side in tuple(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass


def test_certificates_of_test_clusters_are_strict(certificates, tmp_path):
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(certificates.settings["ssl_keystore_certificate_chain"])
    key.write_text(certificates.settings["ssl_keystore_key"])
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca)
    server.load_cert_chain(chain, key)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certificates.ca)
    client.load_cert_chain(*certificates.of_user("alice"))
    for context in (client, server):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the client hears of a refusal within the handshake
    handshake(client, server)
