"""The TLS context of a client: certificates and keys from files or text, PEM or PKCS12.

Rules:

1. No message holds a password or a piece of a key. A key from text or a PKCS12 file is written to no disk where that is possible
   it (OpenSSL takes keys from files only, so they are in a file without a name for as long as it reads them).
2. Files that have changed are read again for the next connection. A file that cannot be used, as one that is half written, changes
   nothing.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory; KIP-651 (PEM).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from kafkacore.errors import ConfigError

log = logging.getLogger("kafkacore.net")

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_COLUMNS = 64


class Store(NamedTuple):
    """Where something is: a file or a text, and the password of it."""

    path: str | None
    text: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"Store(path={self.path!r})"


class TlsSettings(NamedTuple):
    """What a context is made of: authorities, the own certificate (in a file of both with its key), the key."""

    ca: Store
    own: Store
    key: Store
    check_hostname: bool


def how_to_convert(path: str) -> str:
    """What to do with a Java key store."""
    new = (path.rpartition(".")[0] or path) + ".p12"
    return f"{path} is converted by: keytool -importkeystore -srckeystore {path} -destkeystore {new} -deststoretype PKCS12"


def pem_text(text: str) -> str:
    """PEM as OpenSSL reads it, from PEM that lost its line ends in a properties file or an option."""
    blocks = []
    for kind, body in _BLOCK.findall(text.replace("\\n", "\n")):
        if ":" not in body:  # headers, of a key encrypted in the old way, keep their lines
            joined = "".join(body.split())
            body = "\n".join(["", *(joined[at : at + _COLUMNS] for at in range(0, len(joined), _COLUMNS)), ""])
        blocks.append(f"-----BEGIN {kind}-----{body}-----END {kind}-----\n")
    if not blocks:
        raise ConfigError("there is no PEM block, -----BEGIN ... to -----END ..., in the text")
    return "".join(blocks)


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """A client's context.

    Raises:
        ConfigError: a file is missing, or there is no usable certificate or key.
    """
    files = [each.path for each in (settings.ca, settings.own, settings.key) if each.path]
    try:
        ca = _certificates(settings.ca)
        context = ssl.create_default_context(cadata=ca)
        context.check_hostname = settings.check_hostname
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # from Python 3.13 on it refuses authorities that keytool makes and Java takes
        context.options |= ssl.OP_NO_RENEGOTIATION  # as in Java; a write in the middle of it would have to wait for a read
        own = _own(settings.own, settings.key)
        if own is not None:
            _load(context, *own, settings.key.password or "")
    except ConfigError:
        raise
    except (OSError, ValueError) as failure:
        where = f"TLS files ({', '.join(files)})" if files else "TLS certificates given as text"
        raise ConfigError(f"{where} cannot be used: {failure}") from failure
    return context


class ContextSource:
    """A client's context, made again when one of its files has changed.

    Args:
        settings: where certificates and key are.

    Raises:
        ConfigError: see `make_context`.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._paths = [each.path for each in (settings.ca, settings.own, settings.key) if each.path is not None]
        self._seen = self._stamps()
        self._context = make_context(settings)
        if not settings.check_hostname:
            log.warning("ssl_check_hostname=false: any holder of a certificate that a trusted authority gave may pose as a broker")

    def __call__(self) -> ssl.SSLContext:
        """The context for the next connection."""
        if self._paths and (stamps := self._stamps()) != self._seen:
            self._seen = stamps
            try:
                self._context = make_context(self._settings)
            except ConfigError as error:
                log.warning("what was read before is used on: %s", error)
        return self._context

    def _stamps(self) -> list[tuple[int, ...] | None]:
        found: list[tuple[int, ...] | None] = []
        for path in self._paths:
            try:
                now = os.stat(path)
                found.append((now.st_mtime_ns, now.st_ino, now.st_size))
            except OSError:
                found.append(None)
        return found


def _certificates(store: Store) -> str | None:
    if store.text is not None:
        return pem_text(store.text)
    if store.path is None:
        return None
    data = _read(store.path)
    return data.decode("ascii", "replace") if _is_pem(data) else _from_pkcs12(store, data)[1]


def _own(store: Store, key: Store) -> tuple[str, str] | None:
    """Chain and key as PEM, the key as it is if it is encrypted; None without a certificate."""
    if store.text is not None and key.text is not None:
        return pem_text(store.text), pem_text(key.text)
    if store.path is None:
        return None
    data = _read(store.path)
    if not _is_pem(data):
        found, chain = _from_pkcs12(store, data)
        return chain, found
    chain = data.decode("ascii", "replace")
    return chain, chain if key.path is None else _read(key.path).decode("ascii", "replace")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read()
    if not data.strip():
        raise ConfigError(f"{path} is empty")
    if data.startswith(_JKS):
        raise ConfigError(f"Java key stores (JKS) are not read; {how_to_convert(path)}")
    return data


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _from_pkcs12(store: Store, data: bytes) -> tuple[str, str]:
    """(key, certificates) of a PKCS12 file."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ConfigError(f"{store.path}: PKCS12 files need cryptography: pip install cryptography; PEM files do not") from None
    try:
        found = pkcs12.load_pkcs12(data, (store.password or "").encode() or None)
    except ValueError:
        raise ConfigError(f"{store.path} is neither PEM nor PKCS12, or its password is another") from None
    certificates = [each.certificate for each in (found.cert, *found.additional_certs) if each is not None]
    if not certificates:
        raise ConfigError(f"{store.path} holds no certificate")
    key = "" if found.key is None else found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return key, "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def _load(context: ssl.SSLContext, chain: str, key: str, password: str) -> None:
    asked = []

    def give() -> str:
        asked.append(True)
        return password

    if not re.search("-----BEGIN [A-Z0-9 ]*CERTIFICATE-----", chain):
        raise ConfigError("the client's certificate chain holds no certificate")
    if not re.search("-----BEGIN [A-Z ]*PRIVATE KEY-----", key):
        raise ConfigError("the client's certificate comes without a private key: ssl_keyfile, or a key in the same file")
    try:
        with _file(chain) as chain_path, _file(key) as key_path:
            context.load_cert_chain(chain_path, key_path, password=give)
    except ssl.SSLError as failure:
        if not asked:
            raise
        what = "has another password than ssl_password" if password else "is encrypted, and ssl_password is not set"
        raise ConfigError(f"the client's private key {what}") from failure


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """The path of a file that has no name, or, where the system has none of those, of one that only its owner may read."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kafkacore-tls", os.MFD_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            yield f"/proc/self/fd/{fd}"
        return
    with tempfile.NamedTemporaryFile() as named:
        named.write(text.encode())
        named.flush()
        yield named.name
