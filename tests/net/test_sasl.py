"""SASL's mechanisms: the RFCs' own examples, client against server, and what must be refused."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.errors import ConfigError, SaslAuthentication
from kafkacore.net.sasl import (
    OAuthBearerClient,
    OAuthBearerServer,
    PlainClient,
    PlainServer,
    ScramClient,
    ScramCredential,
    ScramServer,
    salted_password,
    scram_credential,
)
from tests.kit.rows import each_row

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

# RFC 7677, section 3: user "user", password "pencil"
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC7677_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC7677 = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def credential(mechanism, password, salt=b"salt", iterations=4096):
    return scram_credential(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def talk(client, server):
    """Lets both talk to the end; the tokens and challenges in their order."""
    said = []
    challenge = None
    while not (client.done and server.done):
        token = client.step(challenge)
        if token is None:
            break
        challenge = server.step(token)
        said += [token, challenge]
    return said


def test_rfc7677_example():
    kept = credential("SCRAM-SHA-256", "pencil", RFC7677_SALT)
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=CLIENT_NONCE)
    server = ScramServer("SCRAM-SHA-256", {"user": kept}.get, nonce=SERVER_NONCE)
    assert tuple(talk(client, server)) == RFC7677
    assert (client.done, server.done, server.user) == (True, True, "user")


def test_rfc7628_token():
    bearer = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    client = OAuthBearerClient(bearer, extensions={"host": "server.example.com", "port": "143"})
    token = client.step(None)
    assert token == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=server.example.com\x01port=143\x01\x01"
    server = OAuthBearerServer({bearer: "alice"}.__getitem__)
    assert server.step(token) == b"" and server.user == "alice"
    assert client.step(b"") is None
    assert client.done


names = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), min_size=1, max_size=20)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SCRAM), names, names, st.binary(min_size=1, max_size=30))
def test_scram_of_any_name_and_password(mechanism, user, password, salt):
    kept = credential(mechanism, password, salt)
    client, server = ScramClient(mechanism, user, password), ScramServer(mechanism, {user: kept}.get)
    talk(client, server)
    assert client.done
    assert server.user == user
    with pytest.raises(SaslAuthentication, match="invalid credentials"):
        talk(ScramClient(mechanism, user, password + "x"), ScramServer(mechanism, {user: kept}.get))


@given(names, names, names)
def test_plain_of_any_name_and_password(user, password, other):
    server = PlainServer(lambda name, word: {user: password}.get(name) == word)
    client = PlainClient(user, password)
    token = client.step(None)
    assert token == f"\0{user}\0{password}".encode()  # RFC 4616
    assert client.step(server.step(token)) is None
    assert client.done
    assert server.user == user
    if other != password:
        with pytest.raises(SaslAuthentication, match="Invalid username or password"):
            PlainServer(lambda name, word: {user: password}.get(name) == word).step(PlainClient(user, other).step(None))


@each_row("token", [b"", b"a\0b", b"\0\0b", b"\0a\0", b"\0a\0b\0c", b"\0\xff\0b", b"root\0alice\0secret"])
def test_plain_refuses_other_tokens(token):
    with pytest.raises(SaslAuthentication):
        PlainServer(lambda user, password: True).step(token)


@each_row(("username", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b"), ("x", "\ud800"), ("x", "\udfff")])
@each_row("make", [PlainClient, lambda *args: ScramClient("SCRAM-SHA-256", *args)])
def test_what_cannot_be_sent(make, username, password):
    with pytest.raises(ConfigError):
        make(username, password)


FIRST = RFC7677[1].decode()


@each_row(
    ("challenge", "why"),
    [
        (FIRST.replace("r=rOpr", "r=xOpr"), "nonce"),
        (FIRST.replace(SERVER_NONCE, ""), "nonce"),
        (FIRST.replace("i=4096", "i=0"), "form"),
        (FIRST.replace("i=4096", "i=1"), "1 SCRAM-SHA-256 iterations"),
        (FIRST.replace("i=4096", "i=4095"), "iterations"),
        (FIRST.replace("i=4096", "i=1000000000"), "1000000000 SCRAM-SHA-256 iterations"),
        (FIRST.replace("i=4096", "i=100001"), "100001 SCRAM-SHA-256 iterations; 4096 to 100000 are accepted"),
        (FIRST.replace("i=4096", "i=" + "9" * 5000), "form"),
        (FIRST.replace("i=4096", "i=-4096"), "form"),
        (FIRST.replace("i=4096", "i=4096,"), "form"),
        (FIRST.replace("gQ==", "gQ="), "not base64"),
        (FIRST.replace("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s="), "form"),
        (FIRST.replace("W22Z", "W2-Z"), "form"),
        ("m=x," + FIRST, "form"),
        ("", "form"),
        ("e=other-error", "form"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_hostile_first_challenges(challenge, why):
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=CLIENT_NONCE)
    client.step(None)
    with pytest.raises(SaslAuthentication, match=why) as caught:
        client.step(challenge if isinstance(challenge, bytes) else challenge.encode())
    assert "pencil" not in str(caught.value)
    assert not client.done


@each_row(
    ("challenge", "why"),
    [
        (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
        (b"v=AAAA", "signature is wrong"),
        (b"v=6rri", "signature is wrong"),
        (b"v=!", "form"),
        (b"", "form"),
        (b"e=invalid-proof", "the broker refuses: invalid-proof"),
        (RFC7677[1], "form"),
    ],
)
def test_hostile_last_challenges(challenge, why):
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=CLIENT_NONCE)
    client.step(None)
    client.step(RFC7677[1])
    with pytest.raises(SaslAuthentication, match=why):
        client.step(challenge)
    assert not client.done


def test_a_client_without_a_dialogue_takes_no_challenge():
    early, late = PlainClient("u", "p"), PlainClient("u", "p")
    late.step(None)
    for client in (early, late):
        with pytest.raises(SaslAuthentication, match="sent a challenge of 1 bytes where PLAIN has none"):
            client.step(b"x")
        assert not client.done
    for client in (PlainClient("u", "p"), OAuthBearerClient("t")):
        assert client.step(None) and client.step(None) is None and client.done
        for challenge in (b"", b"x"):
            with pytest.raises(SaslAuthentication, match=rf"goes on with {client.mechanism} after its end"):
                client.step(challenge)


def test_a_scram_client_keeps_to_its_order():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
    with pytest.raises(SaslAuthentication, match="out of its order"):
        client.step(RFC7677[1])
    assert len(client.step(None)) == len("n,,n=user,r=") + 32  # of 24 bytes
    with pytest.raises(SaslAuthentication, match="out of its order"):
        client.step(None)


def test_no_server_goes_on_after_its_end():
    kept = credential("SCRAM-SHA-256", "pencil", RFC7677_SALT)
    for server, tokens in (
        (PlainServer(lambda user, password: True), [b"user\0user\0pencil"]),
        (OAuthBearerServer(lambda token: "user"), [b"n,a=user,\x01auth=Bearer x\x01\x01"]),
        (ScramServer("SCRAM-SHA-256", {"user": kept}.get, nonce=SERVER_NONCE), [RFC7677[0], RFC7677[2]]),
    ):
        for token in tokens:
            server.step(token)
        assert (server.done, server.user) == (True, "user")
        with pytest.raises(SaslAuthentication):
            server.step(tokens[0])
        assert ScramServer("SCRAM-SHA-256", {"user": kept}.get).step(b"n,a=user,n=user,r=abc")


def test_a_scram_client_does_not_go_on_after_its_end():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=CLIENT_NONCE)
    for challenge in (None, RFC7677[1], RFC7677[3]):
        client.step(challenge)
    with pytest.raises(SaslAuthentication):
        client.step(RFC7677[3])


@each_row(
    ("token", "why"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,a=root,n=user,r=abc", "authorization id"),
        (b"n,,m=x,n=user,r=abc", "form"),
        (b"n,,n=us=er,r=abc", "form"),
        (b"n,,n=,r=abc", "form"),
        (b"n,,n=user,r=", "form"),
        (b"n,,n=nobody,r=abc", "invalid credentials"),
        (b"", "form"),
    ],
)
def test_hostile_first_tokens(token, why):
    with pytest.raises(SaslAuthentication, match=why):
        ScramServer("SCRAM-SHA-256", {"user": credential("SCRAM-SHA-256", "pencil")}.get).step(token)


@each_row(
    ("change", "why"),
    [
        (lambda token: token.replace(b"r=rOpr", b"r=xOpr"), "another dialogue"),
        (lambda token: token.replace(b"c=biws", b"c=eSws"), "another dialogue"),
        (lambda token: token.replace(b"p=dHzb", b"p=dHzc"), "invalid credentials"),
        (lambda token: token[: token.index(b",p=")] + b",p=AAAA", "invalid credentials"),
        (lambda token: token[: token.index(b",p=")], "form"),
        (lambda token: token + b",x=y", "form"),
    ],
)
def test_hostile_last_tokens(change, why):
    kept = credential("SCRAM-SHA-256", "pencil", RFC7677_SALT)
    server = ScramServer("SCRAM-SHA-256", {"user": kept}.get, nonce=SERVER_NONCE)
    server.step(RFC7677[0])
    with pytest.raises(SaslAuthentication, match=why):
        server.step(change(RFC7677[2]))
    assert not server.done
    assert server.user == ""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_nothing_but_refusals_for_garbage(tokens):
    kept = ScramCredential(b"s", b"k" * 32, b"k" * 32, 4096)
    servers = (
        PlainServer(lambda user, password: False),
        ScramServer("SCRAM-SHA-256", lambda user: kept),
        OAuthBearerServer(lambda token: "user"),
    )
    clients = (PlainClient("u", "p"), ScramClient("SCRAM-SHA-512", "u", "p"), OAuthBearerClient("t"))
    for each in clients:
        each.step(None)
    for each in (*servers, *clients):
        for token in tokens:
            try:
                each.step(token)
            except SaslAuthentication:
                break
    assert not any(each.done for each in (*servers[:2], clients[1]))


# ---- OAUTHBEARER


def test_a_refused_token_is_acknowledged_and_told():
    def refuse(token):
        raise SaslAuthentication("expired")

    server, client = OAuthBearerServer(refuse), OAuthBearerClient("secret-token")
    challenge = server.step(client.step(None))
    assert json.loads(challenge) == {"status": "invalid_token"}
    token = client.step(challenge)
    assert token == b"\x01"
    assert client.refusal == "the broker refuses the token: invalid_token"
    with pytest.raises(SaslAuthentication, match="expired"):
        server.step(token)
    with pytest.raises(SaslAuthentication, match="invalid_token") as caught:
        client.step(b"")
    assert "secret-token" not in str(caught.value)


HOSTILE = "no\x1b[2J\u202e\nkafkacore: deleted everything" + "x" * 30_000
SHOWN = r"no\x1b[2J\u202e\nkafkacore: deleted everythingxxx"


def test_a_refusal_has_no_effect_on_a_terminal():
    bearer = OAuthBearerClient("t")
    bearer.step(None)
    bearer.step(json.dumps({"status": HOSTILE}).encode())
    scram = ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=CLIENT_NONCE)
    scram.step(None)
    scram.step(RFC7677[1])
    with pytest.raises(SaslAuthentication) as refused:
        scram.step(b"e=" + HOSTILE.encode())
    for said in (bearer.refusal, refused.value.message):
        assert SHOWN in said
        assert said.isprintable() and len(said) < 300


@each_row("challenge", [b"nonsense", b"[1]", b'{"status": {"a": 1}}', b'{"status": "' + b"x" * 100_000 + b'"}', b"[" * 99_999])
def test_hostile_oauth_challenges(challenge):
    client = OAuthBearerClient("t")
    client.step(None)
    assert client.step(challenge) == b"\x01"
    assert len(client.refusal) < 300


@each_row(
    "token",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"p=x,,\x01auth=Bearer x\x01\x01",
        b"n,a=root,\x01auth=Bearer x\x01\x01",
    ],
)
def test_hostile_oauth_tokens(token):
    with pytest.raises(SaslAuthentication):
        OAuthBearerServer(lambda _: "alice").step(token)


@each_row(
    ("token", "extensions"),
    [("a b", None), ("", None), ("a\x01b", None), ("a", {"auth": "x"}), ("a", {"k1": "x"}), ("a", {"k": "\x01"}), ("a", {"k": ""})],
)
def test_what_an_oauth_message_cannot_hold(token, extensions):
    with pytest.raises(ConfigError):
        OAuthBearerClient(token, extensions=extensions)
