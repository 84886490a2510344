"""TLS by the names that Java clients have: PEM as file and text, PKCS12, and what is refused; contexts shake hands with a server."""

import datetime
import ssl

import pytest

from kafkacore.config import ClientConfig
from kafkacore.config_broker_tls import BrokerTls, check_tls, gathered, tls_of
from kafkacore.config_listeners import Listener
from kafkacore.config_security import tls_settings
from kafkacore.config_tls import TLS_VERSIONS, ContextSource, Store, TlsSettings, cipher_names, how_to_convert, make_context, pem_text
from kafkacore.errors import ConfigError
from tests.kit.rows import each_row

trustme = pytest.importorskip("trustme")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
B = {"bootstrap.servers": "h:9092", "security.protocol": "SSL"}
HUSH = b"hush"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An authority, a server of it, and a client's certificate in every form."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

    where = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    client = authority.issue_cert("client")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("broker").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(client.cert_chain_pems[0].bytes())
    root = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(HUSH))
    contents = {
        "ca.pem": authority.cert_pem.bytes(),
        "both.pem": locked + client.cert_chain_pems[0].bytes(),
        "client.pem": client.cert_chain_pems[0].bytes(),
        "client.key": client.private_key_pem.bytes(),
        "locked.key": locked,
        "client.p12": pkcs12.serialize_key_and_certificates(b"me", key, certificate, [root], BestAvailableEncryption(HUSH)),
        "trust.p12": pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(root, b"ca")], BestAvailableEncryption(HUSH)),
        "old.jks": b"\xfe\xed\xfe\xed\0\0\0\2",
        "garbage": b"\x30\x82",
        "empty": b"",
    }
    for name, content in contents.items():
        (where / name).write_bytes(content)
    assert certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC)
    return where, server, {name: content.decode("latin-1") for name, content in contents.items()}


def shake_hands(context, server):
    """Both sides in memory; the server asks for a certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = context.wrap_bio(to_client, to_server, server_hostname="broker")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(10):
        for side in (near, far):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert done == {near, far}
    assert far.getpeercert()
    return far.getpeercert(binary_form=True)


TRUST = [
    lambda where, text: {"ssl.cafile": str(where / "ca.pem")},
    lambda where, text: {"ssl.truststore.location": str(where / "ca.pem"), "ssl.truststore.type": "pem"},
    lambda where, text: {"ssl.truststore.certificates": text["ca.pem"], "ssl.truststore.type": "PEM"},
    lambda where, text: {"ssl.truststore.certificates": text["ca.pem"].replace("\n", " ")},
    lambda where, text: {"ssl.truststore.certificates": text["ca.pem"].replace("\n", "\\n")},
    lambda where, text: {"ssl.truststore.location": str(where / "trust.p12"), "ssl.truststore.password": "hush"},
]
OWN = [
    lambda where, text: {"ssl.certfile": str(where / "client.pem"), "ssl.keyfile": str(where / "client.key")},
    lambda where, text: {"ssl.certfile": str(where / "both.pem"), "ssl.password": "hush"},
    lambda where, text: {"ssl.keystore.location": str(where / "both.pem"), "ssl.keystore.type": "PEM", "ssl.password": "hush"},
    lambda where, text: {"ssl.keystore.certificate.chain": text["client.pem"], "ssl.keystore.key": text["client.key"]},
    lambda where, text: {
        "ssl.keystore.certificate.chain": text["client.pem"].replace("\n", " "),
        "ssl.keystore.key": text["locked.key"].replace("\n", " "),
        "ssl.password": "hush",
    },
    lambda where, text: {
        "ssl.keystore.location": str(where / "client.p12"),
        "ssl.keystore.password": "hush",
        "ssl.keystore.type": "PKCS12",
    },
]


@each_row(("trust", "own"), [*[(each, OWN[0]) for each in TRUST], *[(TRUST[0], each) for each in OWN[1:]]])
def test_certificates_in_every_form(files, trust, own):
    where, server, text = files
    config = ClientConfig.from_user({**B, **trust(where, text), **own(where, text)})
    shake_hands(config.make_ssl_context(), server)
    assert "BEGIN" not in repr(config)
    assert "hush" not in repr(config)


@each_row(
    ("settings", "why"),
    [
        ({"ssl.truststore.location": "old.jks"}, r"\(JKS\) are not read; .*keytool -importkeystore -srckeystore .*old.jks -dest.*old.p12"),
        ({"ssl.truststore.location": "garbage"}, "neither PEM nor PKCS12"),
        ({"ssl.truststore.location": "empty"}, "empty is empty"),
        ({"ssl.truststore.location": "trust.p12", "ssl.truststore.password": "wrong-one"}, "or its password is another"),
        ({"ssl.truststore.location": "missing"}, "TLS files .*missing.* cannot be used: .*No such file"),
        ({"ssl.truststore.certificates": "MIIB"}, "no PEM block"),
        ({"ssl.truststore.certificates": ""}, "no PEM block"),
        ({"ssl.cafile": "client.key"}, "cannot be used"),
        ({"ssl.certfile": "both.pem", "ssl.password": "wrong-one"}, "has another password than ssl_password"),
        ({"ssl.certfile": "locked.key"}, "holds no certificate"),
        ({"ssl.certfile": "client.pem"}, "comes without a private key: ssl_keyfile, or a key in the same file"),
        ({"ssl.certfile": "both.pem"}, "is encrypted, and ssl_password is not set"),
        ({"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PKCS12"}, r"ca\.pem is PEM, and its type is set to PKCS12"),
        ({"ssl.truststore.location": "trust.p12", "ssl.truststore.type": "PEM"}, r"trust\.p12 is not PEM, and its type is set to PEM"),
    ],
)
def test_what_cannot_be_read(files, settings, why):
    where, _, _ = files
    placed = {name: str(where / value) if name.endswith(("location", "cafile", "certfile")) else value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=why) as caught:
        ClientConfig.from_user({**B, **placed}).make_ssl_context()
    assert "wrong-one" not in str(caught.value)


@each_row(
    ("settings", "why"),
    [
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "/x/t.jks"}, r"must be PEM or PKCS12, not 'JKS': .*keytool.*/x/t\.p12"),
        ({"ssl.truststore.type": "PEM"}, "ssl_truststore_type has no effect without ssl_truststore_location"),
        ({"ssl.truststore.type": "PKCS12", "ssl.truststore.certificates": "x"}, "ssl_truststore_type is PEM where"),
        ({"ssl.truststore.password": "x"}, "ssl_truststore_password has no effect"),
        ({"ssl.keystore.password": "x", "ssl.keystore.location": "x", "ssl.keystore.type": "PEM"}, "ssl_keystore_password has no effect"),
        ({"ssl.cafile": "x", "ssl.truststore.location": "y"}, "ssl_cafile and ssl_truststore_location exclude each other"),
        ({"ssl.certfile": "x", "ssl.keystore.location": "y"}, "exclude each other"),
        ({"ssl.keystore.certificate.chain": "x"}, "need each other"),
        ({"ssl.keystore.key": "x"}, "need each other"),
        ({"ssl.password": "x"}, "ssl_password needs"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.truststore.location": "x"}, "has no effect with security_protocol=SASL_PLAINTEXT"),
    ],
)
def test_what_contradicts(settings, why):
    with pytest.raises(ConfigError, match=why):
        ClientConfig.from_user({**B, **settings})


NEWEST = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


@each_row(
    ("suites", "ciphers", "versions"),
    [
        ((), "", TLS_VERSIONS),
        (NEWEST, "", ("TLSv1.3",)),
        ((*NEWEST, "TLS_RSA_WITH_AES_128_CBC_SHA"), "AES128-SHA", TLS_VERSIONS),
        (
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_DHE_RSA_WITH_AES_256_CCM_8", "TLS_ECDHE_ECDSA_WITH_ARIA_256_GCM_SHA384"),
            "ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES256-CCM8:ECDHE-ECDSA-ARIA256-GCM-SHA384",
            ("TLSv1.2",),
        ),
    ],
)
def test_suites_by_the_names_of_openssl(suites, ciphers, versions):
    assert cipher_names(suites, TLS_VERSIONS) == (ciphers, versions)


@each_row(
    ("suites", "versions", "why"),
    [
        (NEWEST[1:], TLS_VERSIONS, f"cannot choose among the suites of TLS 1.3: name all of {', '.join(NEWEST)}"),
        (("TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_NO_WITH_X"), TLS_VERSIONS, "OpenSSL knows no suite 'TLS_NO_WITH_X'"),
        (("AES128-SHA",), TLS_VERSIONS, "OpenSSL knows no suite 'AES128-SHA'"),
        (("TLS_RSA_WITH_AES_128_CBC_SHA",), ("TLSv1.3",), "holds none for ssl_enabled_protocols=TLSv1.3"),
        (NEWEST, ("TLSv1.2",), "holds none for ssl_enabled_protocols=TLSv1.2"),
    ],
)
def test_suites_that_cannot_be(suites, versions, why):
    with pytest.raises(ConfigError, match=why):
        cipher_names(suites, versions)


def test_a_context_is_as_its_settings_say():
    none = Store(None, None, None)
    narrow = TlsSettings(none, none, none, False, ("TLSv1.2",), ("TLS_RSA_WITH_AES_128_CBC_SHA",))
    context = make_context(narrow)
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert {each["name"] for each in context.get_ciphers()} - {*NEWEST} == {"AES128-SHA"}
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert context.options & ssl.OP_NO_RENEGOTIATION and not context.verify_flags & ssl.VERIFY_X509_STRICT
    context = make_context(TlsSettings(none, none, none, True))
    assert context.check_hostname and context.minimum_version != context.maximum_version
    for asked, mode in (("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)):
        assert make_context(narrow._replace(client_auth=asked)).verify_mode == mode


def test_texts_of_certificates_and_of_what_to_do():
    lost = "-----BEGIN X-----" + "ab " * 40 + "-----END X-----"
    assert pem_text(lost * 2) == f"-----BEGIN X-----\n{'ab' * 32}\n{'ab' * 8}\n-----END X-----\n" * 2
    command = "is converted by: keytool -importkeystore -srckeystore"
    assert how_to_convert("/a.b/c.jks") == f"/a.b/c.jks {command} /a.b/c.jks -destkeystore /a.b/c.p12 -deststoretype PKCS12"
    assert how_to_convert("c") == f"c {command} c -destkeystore c.p12 -deststoretype PKCS12"


def test_a_key_encrypted_in_the_old_way_keeps_its_headers():
    text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nabc\n-----END RSA PRIVATE KEY-----"
    assert pem_text(text) == text + "\n"


@pytest.mark.parametrize("first", ["client.pem", "client.key"])
def test_certificate_and_key_in_two_files_are_replaced_one_after_the_other(files, tmp_path, caplog, first):
    """As certbot does it: in between they do not belong together, and what was read before is used on."""
    where, server, _ = files
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_bytes((where / name).read_bytes())
    names = {"ssl.cafile": "ca.pem", "ssl.certfile": "client.pem", "ssl.keyfile": "client.key"}
    source = ContextSource(tls_settings(ClientConfig.from_user({**B, **{name: str(tmp_path / file) for name, file in names.items()}})))
    before = shake_hands(source(), server)
    authority = trustme.CA()
    renewed = authority.issue_cert("client")
    server.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    contents = {"client.pem": renewed.cert_chain_pems[0].bytes(), "client.key": renewed.private_key_pem.bytes()}
    second = "client.key" if first == "client.pem" else "client.pem"
    replace_file(tmp_path / first, contents[first])
    assert shake_hands(source(), server) == before
    assert caplog.text.count("what was read before is used on") == 1
    replace_file(tmp_path / second, contents[second])
    assert shake_hands(source(), server) == ssl.PEM_cert_to_DER_cert(contents["client.pem"].decode())
    assert source() is source()


def test_all_authorities_of_a_pkcs12_file_are_shown(tmp_path):
    """Two of them stand between the certificate and the authority that the other side knows."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    root = trustme.CA()
    client = root.create_child_ca().create_child_ca().issue_cert("client")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    root.issue_cert("broker").configure_cert(server)
    root.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    own, *between = [x509.load_pem_x509_certificate(each.bytes()) for each in client.cert_chain_pems]
    assert len(between) == 2
    (tmp_path / "own.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, own, between, BestAvailableEncryption(HUSH)))
    settings = {"ssl.keystore.location": str(tmp_path / "own.p12"), "ssl.keystore.password": "hush", "ssl.keystore.type": "PKCS12"}
    config = ClientConfig.from_user({**B, **settings, "ssl.truststore.certificates": root.cert_pem.bytes().decode()})
    assert shake_hands(config.make_ssl_context(), server) == ssl.PEM_cert_to_DER_cert(client.cert_chain_pems[0].bytes().decode())


def replace_file(path, content):
    """By another file, as whoever must not be seen half done does it: time and size need not differ then."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def test_a_listener_of_a_broker_has_its_own_value_or_that_of_all() -> None:
    given = {
        "ssl.keystore.location": "all.pem",
        "listener.name.one.ssl.keystore.location": "one.pem",
        "listener.name.one.ssl.client.auth": "required",
    }
    one, two = (Listener(name, "127.0.0.1", 0, "SSL") for name in ("ONE", "TWO"))

    def broker(**more: str) -> BrokerTls:
        return BrokerTls(**{name.replace(".", "_"): value for name, value in gathered(given | more).items()})

    config = broker(ssl_truststore_location="ca.pem")
    found = [tls_of(config, each).server for each in (one, two)]
    assert [(each.own.path, each.client_auth) for each in found] == [("one.pem", "required"), ("all.pem", "none")]
    check_tls(config, [one, two])
    with pytest.raises(ConfigError, match=r"listener\.name\.one have no effect: this listener does not exist"):
        check_tls(config, [two])
    with pytest.raises(ConfigError, match=r"listener ONE: ssl_client_auth=required needs ssl_truststore_location .*: whom to let in"):
        tls_of(broker(), one)
