"""Throw-away certificates for a cluster with TLS: an authority, the brokers' certificate, and one for each user who asks."""

from __future__ import annotations

import os
import re

from kafkacore.errors import UsageError
from kafkacore.private_files import OwnedDirectory, write_file

MISSING = "tls needs the package trustme, which makes certificates: pip install trustme"


def full_name(name: str) -> str:
    """What a certificate for a user says."""
    return f"CN={name},OU=test,O=kafkacore"


class Certificates:
    """An authority that lives as long as this object, and the certificates it has signed, as files in a temporary directory.

    The files of a process that was killed are removed by the next one that writes some.

    Attributes:
        settings: the brokers', as text.
    """

    def __init__(self, hosts: list[str]) -> None:
        """Makes the authority and the brokers' certificate.

        Args:
            hosts: names and addresses of the brokers.

        Raises:
            UsageError: trustme is not installed.
        """
        try:
            import trustme
        except ImportError:
            raise UsageError(MISSING) from None
        self._authority = trustme.CA()
        self._files: OwnedDirectory | None = None
        self._made: dict[str, tuple[str, str]] = {}
        chain, key = self._issued(hosts, "broker")
        trusted = self._authority.cert_pem.bytes().decode()
        self._ca = ""
        self.settings = {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_certificate_chain": chain,
            "ssl_keystore_key": key,
            "ssl_truststore_type": "PEM",
            "ssl_truststore_certificates": trusted,
        }

    @property
    def ca(self) -> str:
        """The path of the authority's certificate, in PEM."""
        if not self._ca:
            self._ca = self._written("ca.pem", self.settings["ssl_truststore_certificates"])
        return self._ca

    def of_user(self, name: str) -> tuple[str, str]:
        """The certificate of a client.

        Args:
            name: the CN in it; the whole name is CN=NAME,OU=test,O=kafkacore.

        Returns:
            The paths of chain and key, in PEM and PKCS 8.
        """
        if name not in self._made:
            chain, key = self._issued(["client.invalid"], name)  # without any host Java cannot read it
            stem = f"{len(self._made)}-{re.sub(r'[^a-zA-Z0-9.-]', '_', name)[:60]}"
            self._made[name] = self._written(f"{stem}.pem", chain), self._written(f"{stem}.key", key)
        return self._made[name]

    def close(self) -> None:
        """Removes the files."""
        if self._files is not None:
            self._files.close()

    def _issued(self, hosts: list[str], name: str) -> tuple[str, str]:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

        made = self._authority.issue_cert(*hosts, common_name=name, organization_unit_name="test", organization_name="kafkacore")
        key = load_pem_private_key(made.private_key_pem.bytes(), None)  # Java reads keys in PKCS 8 alone
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return "".join(each.bytes().decode() for each in made.cert_chain_pems), text

    def _written(self, name: str, text: str) -> str:
        if self._files is None:
            self._files = OwnedDirectory("kafkacore-tls-")
        path = self._files.path / name
        write_file(path, text.encode())
        return os.fspath(path)
