"""TLS contexts, of clients and of a broker's listeners: certificates and keys from files or text, PEM or PKCS12.

Rules:

1. No message holds a password or a piece of a key. A key from text or a PKCS12 file is written to no disk where that is possible
   (OpenSSL takes keys from files only, so they are in a file without a name for as long as it reads them). [test_what_cannot_be_read,
   test_secrets_are_in_no_repr]
2. Files that have changed are read again for the next connection. A file that cannot be used, as one that is half written, changes
   nothing. [test_certificate_and_key_in_two_files_are_replaced_one_after_the_other, test_renewed_certificates_need_no_restart]

What clients and brokers share is here, with what messages call a setting; which settings there are is in config_security.py and
config_broker_tls.py.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory; KIP-651 (PEM).
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkacore.errors import ConfigError

log = logging.getLogger("kafkacore.net")

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_COLUMNS = 64


class Store(NamedTuple):
    """Where something is.

    Attributes:
        path, text: a file, or PEM.
        password: of it.
        password_setting: the name of that setting, for messages.
        kind: PEM or PKCS12; None leaves it to the file's content.
    """

    path: str | None
    text: str | None
    password: str | None
    password_setting: str = "ssl_password"
    kind: str | None = None

    def __repr__(self) -> str:
        return f"Store(path={self.path!r})"


TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class TlsSettings(NamedTuple):
    """What a context is made of.

    Attributes:
        ca: authorities.
        own: the own certificate, in a file of both with its key.
        key: the key.
        check_hostname: of a client: the other side's certificate must name its host.
        versions: of TLS_VERSIONS.
        suites: by their standard names; empty for OpenSSL's choice.
        client_auth: of a listener: whether clients show a certificate, "none", "requested" or "required"; empty for a client's context.
        unchecked: of a client: how the settings say not to check the host, for the log.
    """

    ca: Store
    own: Store
    key: Store
    check_hostname: bool
    versions: tuple[str, ...] = TLS_VERSIONS
    suites: tuple[str, ...] = ()
    client_auth: str = ""
    unchecked: str = "ssl_check_hostname=false"


def check_stores(values: Mapping[str, Any], key_password: str) -> None:
    """Rules between the settings of key stores and trust stores.

    Args:
        values: ssl_keystore_location, ssl_truststore_type and so on by their names; None for what is not set.
        key_password: the name of the setting with the key's password.

    Raises:
        ConfigError: one of them contradicts another, or would be ignored.
    """
    for ways in (
        ("ssl_cafile", "ssl_truststore_certificates", "ssl_truststore_location"),
        ("ssl_certfile", "ssl_keystore_certificate_chain", "ssl_keystore_location"),
    ):
        if len(chosen := [name for name in ways if values.get(name) is not None]) > 1:
            raise ConfigError(f"{chosen[0]} and {chosen[1]} exclude each other")
    if (values["ssl_keystore_key"] is None) != (values["ssl_keystore_certificate_chain"] is None):
        raise ConfigError("ssl_keystore_certificate_chain and ssl_keystore_key need each other")
    if values[key_password] is not None and not any(
        values.get(name) for name in ("ssl_certfile", "ssl_keystore_key", "ssl_keystore_location")
    ):
        certfile = "ssl_certfile, or " if "ssl_certfile" in values else ""
        raise ConfigError(f"{key_password} needs {certfile}a key store")
    for store, text in (("ssl_truststore", values["ssl_truststore_certificates"]), ("ssl_keystore", values["ssl_keystore_key"])):
        location, kind = values[f"{store}_location"], values[f"{store}_type"]
        if values[f"{store}_password"] is not None and (location is None or kind == "PEM"):
            raise ConfigError(f"{store}_password has no effect without {store}_location of type PKCS12")
        if kind is not None and location is None and text is None:
            raise ConfigError(f"{store}_type has no effect without {store}_location")
        if kind is not None and text is not None and kind != "PEM":
            raise ConfigError(f"{store}_type is PEM where certificates are given as text, not {kind}")
        if kind not in (None, "PEM", "PKCS12"):
            raise ConfigError(f"{store}_type must be PEM or PKCS12, not {kind!r}" + (f": {how_to_convert(location)}" if location else ""))


def stores_of(values: Mapping[str, Any], key_password: str) -> tuple[Store, Store, Store]:
    """Where authorities, the own certificate and its key are, by the same settings."""
    password = values["ssl_keystore_password"]
    return (
        Store(
            values["ssl_truststore_location"] or values.get("ssl_cafile"),
            values["ssl_truststore_certificates"],
            values["ssl_truststore_password"],
            kind=values["ssl_truststore_type"],
        ),
        Store(
            values["ssl_keystore_location"] or values.get("ssl_certfile"),
            values["ssl_keystore_certificate_chain"],
            password,
            kind=values["ssl_keystore_type"],
        ),
        Store(values.get("ssl_keyfile"), values["ssl_keystore_key"], values[key_password], key_password),
    )


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


_SUITES_OF_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_SUITE = re.compile(r"TLS_(?P<exchange>[A-Z_]+?)_WITH_(?P<cipher>[A-Z0-9_]+)")


def cipher_names(suites: Sequence[str], versions: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Suites as OpenSSL has them.

    Args:
        suites: by their standard names, as Java has them; none for OpenSSL's choice.
        versions: of TLS_VERSIONS.

    Returns:
        OpenSSL's list of those before TLS 1.3, empty if none is named; the versions that are left.

    Raises:
        ConfigError: OpenSSL does not know one, cannot choose it, or no version is left.
    """
    if not suites:
        return "", tuple(versions)
    newest = [each for each in suites if each in _SUITES_OF_1_3]
    if newest and len(newest) < len(_SUITES_OF_1_3):
        raise ConfigError(
            f"ssl_cipher_suites: Python's ssl module cannot choose among the suites of TLS 1.3: name all of {', '.join(_SUITES_OF_1_3)},"
            " or none"
        )
    older = []
    for suite in suites:
        if suite in newest:
            continue
        match = _SUITE.fullmatch(suite)
        name = "" if match is None else match["cipher"]
        for standard, openssl in (("_CBC", ""), ("POLY1305_SHA256", "POLY1305"), ("CCM_8", "CCM8")):
            name = name.replace(standard, openssl)
        name = re.sub(r"^(AES|ARIA|CAMELLIA)_", r"\1", name).replace("_", "-")
        if match is not None and match["exchange"] != "RSA":
            name = f"{match['exchange'].replace('_', '-')}-{name}"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            name = ""
        if name not in [each["name"] for each in context.get_ciphers()]:
            raise ConfigError(f"ssl_cipher_suites: OpenSSL knows no suite {suite!r}; names are as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
        older.append(name)
    left = tuple(each for each in versions if (newest if each == "TLSv1.3" else older))
    if not left:
        raise ConfigError(f"ssl_cipher_suites holds none for ssl_enabled_protocols={','.join(versions)}")
    return ":".join(older), left


_OPENSSL_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client or a listener.

    Raises:
        ConfigError: a file is missing, or there is no usable certificate or key.
    """
    files = [each.path for each in (settings.ca, settings.own, settings.key) if each.path]
    try:
        ca = _certificates(settings.ca)
        if settings.client_auth:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=ca)
            context.verify_mode = _VERIFY[settings.client_auth]
        else:
            context = ssl.create_default_context(cadata=ca)
            context.check_hostname = settings.check_hostname
        ciphers, versions = cipher_names(settings.suites, settings.versions)
        if len(versions) == 1:
            context.minimum_version = context.maximum_version = _OPENSSL_VERSIONS[versions[0]]
        if ciphers:
            context.set_ciphers(ciphers)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # from Python 3.13 on it refuses authorities that keytool makes and Java takes
        context.options |= ssl.OP_NO_RENEGOTIATION  # as in Java; a write in the middle of it would have to wait for a read
        own = _own(settings.own, settings.key)
        if own is not None:
            _load(context, *own, settings.key, settings.own.path or "ssl_keystore_certificate_chain")
    except ConfigError:
        raise
    except (OSError, ValueError) as failure:
        where = f"TLS files ({', '.join(files)})" if files else "TLS certificates given as text"
        raise ConfigError(f"{where} cannot be used: {failure}") from failure
    return context


def own_certificate(settings: TlsSettings) -> bytes | None:
    """The certificate that a context of these settings shows, in DER; None without one.

    Raises:
        ConfigError: it cannot be read.
        OSError: the file cannot be read.
    """
    own = _own(settings.own, settings.key)
    first = None if own is None else re.search("-----BEGIN ([A-Z0-9 ]*CERTIFICATE)-----(.*?)-----END", own[0], re.DOTALL)
    return None if first is None else base64.b64decode(first[2])


class ContextSource:
    """A context, made again when one of its files has changed.

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
        if not settings.check_hostname and not settings.client_auth:
            log.warning("%s: any holder of a certificate that a trusted authority gave may pose as a broker", settings.unchecked)

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
    return data.decode("ascii", "replace") if _is_pem(data, store) else _from_pkcs12(store, data)[1]


def _own(store: Store, key: Store) -> tuple[str, str] | None:
    """Chain and key as PEM, the key as it is if it is encrypted; None without a certificate."""
    if store.text is not None and key.text is not None:
        return pem_text(store.text), pem_text(key.text)
    if store.path is None:
        return None
    data = _read(store.path)
    if not _is_pem(data, store):
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


def _is_pem(data: bytes, store: Store) -> bool:
    is_pem = b"-----BEGIN " in data
    if store.kind is not None and (store.kind == "PEM") != is_pem:
        raise ConfigError(f"{store.path} is {'PEM' if is_pem else 'not PEM'}, and its type is set to {store.kind}")
    return is_pem


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


def _load(context: ssl.SSLContext, chain: str, key: str, store: Store, where: str) -> None:
    asked = []

    def give() -> str:
        asked.append(True)
        return store.password or ""

    if not re.search("-----BEGIN [A-Z0-9 ]*CERTIFICATE-----", chain):
        raise ConfigError(f"{where} holds no certificate")
    if not re.search("-----BEGIN [A-Z ]*PRIVATE KEY-----", key):
        raise ConfigError(f"the certificate in {where} comes without a private key: ssl_keyfile, or a key in the same file")
    try:
        with _file(chain) as chain_path, _file(key) as key_path:
            context.load_cert_chain(chain_path, key_path, password=give)
    except ssl.SSLError as failure:
        if not asked:
            raise
        setting = store.password_setting
        what = f"has another password than {setting}" if store.password else f"is encrypted, and {setting} is not set"
        raise ConfigError(f"the private key of {where} {what}") from failure


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
