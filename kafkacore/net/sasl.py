"""SASL's mechanisms as pure state machines, client and server: bytes in, bytes out, no I/O, no clock.

    client.step(None) -> first token        server.step(token) -> challenge
    client.step(challenge) -> next token, or None when nothing is left to say

Rules:

1. A side is `done` only when it has nothing left to check: a SCRAM client when the server has proved that it knows the password too.
   [test_hostile_last_challenges, test_a_scram_client_does_not_go_on_after_its_end]
2. What a peer sends is taken apart by the RFCs' grammar and refused as a whole if it does not fit; nothing is sized by a number in it, and
   the number of SCRAM iterations is bounded both ways: too few give the password away, too many keep this side computing.
   [test_hostile_first_challenges, test_hostile_first_tokens, test_hostile_last_tokens]
3. A refusal is `SaslAuthentication`. Its text never holds a password, a token or a proof. [test_nothing_but_refusals_for_garbage]
4. Names and passwords are UTF-8 as given. RFC 5802 asks for SASLprep, but Kafka's brokers and tools do not apply it, and a salted password
   that was made without it is matched only without it. [test_scram_of_any_name_and_password, test_plain_of_any_name_and_password]

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 and KIP-255 (OAUTHBEARER), KIP-84;
org.apache.kafka.common.security.{plain,scram,oauthbearer}.internals.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from kafkacore.bounds import SCRAM_ITERATIONS
from kafkacore.errors import ConfigError, SaslAuthentication
from kafkacore.printable import quoted

__all__ = [
    "MECHANISMS", "OAuthBearerClient", "OAuthBearerServer", "PlainClient", "PlainServer", "SaslClient", "SaslServer", "ScramClient",
    "ScramCredential", "ScramServer", "salted_password", "scram_credential",
]  # fmt: skip

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *SCRAM_HASHES, "OAUTHBEARER", "GSSAPI")
MIN_ITERATIONS = 4_096
_GS2_HEADER = "n,,"


class SaslClient(Protocol):
    """The side that wants in."""

    mechanism: str
    user: str
    done: bool

    def step(self, challenge: bytes | None) -> bytes | None:
        """Takes a challenge (None at first) and gives the token to send, or None; raises SaslAuthentication."""


class SaslServer(Protocol):
    """The side that decides; `user` is who the other side has proved to be, once `done`, `claimed` who it said to be, as far as it did."""

    mechanism: str
    user: str
    claimed: str
    done: bool

    def step(self, token: bytes) -> bytes:
        """Takes a token and gives the challenge, or the last word; raises SaslAuthentication."""


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise SaslAuthentication(f"{what} is not UTF-8") from None


def _require_usable(mechanism: str, username: str, password: str) -> None:
    for what, value in (("user name", username), ("password", password)):
        if not value or "\0" in value or any("\ud800" <= each <= "\udfff" for each in value):
            raise ConfigError(f"a {what} for {mechanism} is not empty and has neither NUL characters nor halves of UTF-16 pairs")


def _refuse_challenge(mechanism: str, challenge: bytes | None, done: bool) -> None:
    if done:
        raise SaslAuthentication(f"the broker goes on with {mechanism} after its end")
    if challenge:
        raise SaslAuthentication(f"the broker sent a challenge of {len(challenge)} bytes where {mechanism} has none")


# ---- PLAIN


class PlainClient:
    """Name and password in one token.

    Args:
        username, password: not empty, without NUL characters.

    Raises:
        ConfigError: they cannot be sent.
    """

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        _require_usable(self.mechanism, username, password)
        self.user = username
        self.done = False
        self._token: bytes | None = f"\0{username}\0{password}".encode()

    def step(self, challenge: bytes | None) -> bytes | None:
        token, self._token = self._token, None
        if token is not None and challenge is None:
            return token
        _refuse_challenge(self.mechanism, challenge, self.done)
        self.done = True
        return None


class PlainServer:
    """Checks name and password.

    Args:
        is_password: `is_password(user, password)`; should take as long for a user that does not exist.
    """

    mechanism = "PLAIN"

    def __init__(self, is_password: Callable[[str, str], bool]) -> None:
        self.user = self.claimed = ""
        self.done = False
        self._is_password = is_password

    def step(self, token: bytes) -> bytes:
        parts = _text(token, "the PLAIN token").split("\0")
        if self.done or len(parts) != 3 or not parts[1] or not parts[2]:
            raise SaslAuthentication("the PLAIN token is not of the form [authzid] NUL authcid NUL passwd")
        authorization, user, password = parts
        self.claimed = user
        if not self._is_password(user, password):
            raise SaslAuthentication("Authentication failed: Invalid username or password")
        if authorization not in ("", user):
            raise SaslAuthentication("Authentication failed: Client requested an authorization id that is different from username")
        self.user = user
        self.done = True
        return b""


# ---- SCRAM


class ScramCredential(NamedTuple):
    """What a server keeps of a password: enough to check it, not enough to log in with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's Hi(password, salt, iterations)."""
    return hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)


def scram_credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is kept of a salted password."""
    name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name), iterations)


_PRINTABLE = r"[!-+\--~]+"  # printable ASCII but the comma
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_NAME = r"(?:[^,=\0]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"
_GS2 = rf"(?P<binding>n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>{_NAME}))?,"
_CLIENT_FIRST = re.compile(rf"(?P<gs2>{_GS2})(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))")
_TOKEN_AUTH = "tokenauth=true"
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:v=(?P<signature>{_BASE64})|e=(?P<error>[^,\0]+)){_EXTENSIONS}")


def _parse(pattern: re.Pattern[str], data: bytes, what: str) -> re.Match[str]:
    match = pattern.fullmatch(_text(data, what))
    if match is None:
        raise SaslAuthentication(f"{what} does not have the form that RFC 5802 gives it")
    return match


def _unbase64(text: str, what: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        raise SaslAuthentication(f"{what} is not base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _new_nonce() -> str:
    return secrets.token_urlsafe(24)


class ScramClient:
    """Proves that it knows the password without telling it, and has the broker prove the same.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        username, password: not empty.
        nonce: printable ASCII without commas; random unless given.
        salted: gives the salted password for (salt, iterations), where it is known from an earlier connection.
        is_delegation_token: name and password are the id and the secret of a delegation token (KIP-48).

    Raises:
        ConfigError: name or password cannot be used.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: str | None = None,
        salted: Callable[[bytes, int], bytes] | None = None,
        is_delegation_token: bool = False,
    ) -> None:
        _require_usable(mechanism, username, password)
        self.mechanism = mechanism
        self.user = username
        self.done = False
        self._hash = SCRAM_HASHES[mechanism]
        self._salted = salted or functools.partial(salted_password, mechanism, password)
        self._nonce = nonce or _new_nonce()
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}" + (f",{_TOKEN_AUTH}" if is_delegation_token else "")
        self._signature: bytes | None = None
        self._began = False

    def step(self, challenge: bytes | None) -> bytes | None:
        if challenge is None and not self._began:
            self._began = True
            return (_GS2_HEADER + self._first_bare).encode()
        if challenge is None or not self._began or self.done:
            raise SaslAuthentication(f"the broker goes on with {self.mechanism} out of its order")
        if self._signature is None:
            return self._prove(challenge)
        self._check(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        first = _parse(_SERVER_FIRST, challenge, f"the broker's first {self.mechanism} message")
        nonce, iterations = first["nonce"], int(first["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslAuthentication(f"the broker's {self.mechanism} nonce does not continue the one it was sent")
        if not MIN_ITERATIONS <= iterations <= SCRAM_ITERATIONS:
            raise SaslAuthentication(
                f"the broker asks for {iterations} {self.mechanism} iterations; {MIN_ITERATIONS} to {SCRAM_ITERATIONS} are accepted"
            )
        salted = self._salted(_unbase64(first["salt"], "the broker's salt"), iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        final_bare = f"c={_base64(_GS2_HEADER.encode())},r={nonce}"
        message = f"{self._first_bare},{challenge.decode()},{final_bare}".encode()
        proof = _xor(client_key, hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        return f"{final_bare},p={_base64(proof)}".encode()

    def _check(self, challenge: bytes) -> None:
        final = _parse(_SERVER_FINAL, challenge, f"the broker's last {self.mechanism} message")
        if final["error"] is not None:
            raise SaslAuthentication(f"the broker refuses: {quoted(final['error'])}")
        assert self._signature is not None
        if not hmac.compare_digest(_unbase64(final["signature"], "the broker's signature"), self._signature):
            raise SaslAuthentication(f"the broker's {self.mechanism} signature is wrong: it does not know this user's password")
        self.done = True


class ScramServer:
    """Checks a proof of the password against what is kept of it.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        credential: what is kept of a user; None for an unknown user.
        nonce: as for the client; its own half.
        token: what is kept of a delegation token's secret, by the token's id, and the name of its owner; None for an unknown token. Left
            out, tokens are not taken.
    """

    def __init__(
        self,
        mechanism: str,
        credential: Callable[[str], ScramCredential | None],
        nonce: str | None = None,
        token: Callable[[str], tuple[ScramCredential, str] | None] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.user = ""
        self.done = False
        self._hash = SCRAM_HASHES[mechanism]
        self._find = credential
        self._find_token = token
        self._owner = ""
        self._half = nonce or _new_nonce()
        self.claimed = self._nonce = self._transcript = self._gs2 = ""
        self._credential: ScramCredential | None = None

    def step(self, token: bytes) -> bytes:
        if self.done:
            raise SaslAuthentication(f"the client goes on with {self.mechanism} after its end")
        return self._challenge(token) if self._credential is None else self._verify(token, self._credential)

    def _challenge(self, token: bytes) -> bytes:
        first = _parse(_CLIENT_FIRST, token, f"the client's first {self.mechanism} message")
        if first["binding"].startswith("p="):
            raise SaslAuthentication("channel binding is not supported")
        self.claimed = first["user"].replace("=2C", ",").replace("=3D", "=")
        if first["authzid"] not in (None, first["user"]):
            raise SaslAuthentication("Authentication failed: Client requested an authorization id that is different from username")
        if _TOKEN_AUTH in first["extensions"].lower().split(","):
            found = None if self._find_token is None else self._find_token(self.claimed)
            self._credential, self._owner = found or (None, "")
        else:
            self._credential = self._find(self.claimed)
        if self._credential is None:
            raise SaslAuthentication(self._invalid())
        self._gs2 = first["gs2"]
        self._nonce = first["nonce"] + self._half
        challenge = f"r={self._nonce},s={_base64(self._credential.salt)},i={self._credential.iterations}"
        self._transcript = f"{first['bare']},{challenge}"
        return challenge.encode()

    def _verify(self, token: bytes, credential: ScramCredential) -> bytes:
        final = _parse(_CLIENT_FINAL, token, f"the client's last {self.mechanism} message")
        if final["nonce"] != self._nonce or _unbase64(final["binding"], "the channel binding") != self._gs2.encode():
            raise SaslAuthentication(f"the client's last {self.mechanism} message belongs to another dialogue")
        message = f"{self._transcript},{final['bare']}".encode()
        proof = _unbase64(final["proof"], "the proof")
        signature = hmac.digest(credential.stored_key, message, self._hash)
        if len(proof) != len(signature):
            raise SaslAuthentication(self._invalid())
        if not hmac.compare_digest(hashlib.new(self._hash, _xor(proof, signature)).digest(), credential.stored_key):
            raise SaslAuthentication(self._invalid())
        self.user = self._owner or self.claimed
        self.done = True
        return f"v={_base64(hmac.digest(credential.server_key, message, self._hash))}".encode()

    def _invalid(self) -> str:
        return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self.mechanism}"


# ---- OAUTHBEARER

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_OAUTH_FIRST = re.compile(rf"{_GS2}\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01")
_ACKNOWLEDGED = b"\x01"


class OAuthBearerClient:
    """Shows a token.

    Args:
        token: as the authorization server gave it.
        user: for messages; the token itself says who it is.
        extensions: further pairs for the broker.

    Raises:
        ConfigError: the token or an extension has characters that cannot be sent.
    """

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, user: str = "", extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise ConfigError("the OAuth token has characters that a bearer token cannot have")
        for key, value in (extensions or {}).items():
            if not _KEY.fullmatch(key) or key == "auth" or not _VALUE.fullmatch(value):
                raise ConfigError(f"the SASL extension {key!r} is not of the form letters=printable text, or it is auth")
        self.user = user
        self.done = False
        pairs = "".join(f"{key}={value}\x01" for key, value in (extensions or {}).items())
        self._token: bytes | None = f"{_GS2_HEADER}\x01auth=Bearer {token}\x01{pairs}\x01".encode()
        self._refusal: str | None = None

    def step(self, challenge: bytes | None) -> bytes | None:
        token, self._token = self._token, None
        if token is not None and challenge is None:
            return token
        if self._refusal is not None:
            raise SaslAuthentication(self._refusal)
        if challenge and not self.done:
            self._refusal = f"the broker refuses the token: {_status(challenge)}"
            return _ACKNOWLEDGED
        _refuse_challenge(self.mechanism, challenge, self.done)
        self.done = True
        return None

    @property
    def refusal(self) -> str | None:
        """What the broker said about the token; None while it has not refused it."""
        return self._refusal


def _status(challenge: bytes) -> str:
    """What a broker's JSON says about a token it refuses."""
    try:
        status = json.loads(challenge)["status"]
    except (ValueError, TypeError, KeyError, RecursionError):
        status = f"{len(challenge)} bytes that are not RFC 7628's JSON"
    return quoted(str(status))


class OAuthBearerServer:
    """Takes a token and has it checked.

    Args:
        check: gives the token's user, or raises SaslAuthentication.
    """

    mechanism = "OAUTHBEARER"

    def __init__(self, check: Callable[[str], str]) -> None:
        self.user = self.claimed = ""
        self.done = False
        self._check = check
        self._refusal: SaslAuthentication | None = None

    def step(self, token: bytes) -> bytes:
        if self._refusal is not None or self.done:
            raise self._refusal or SaslAuthentication("the client goes on with OAUTHBEARER after its end")
        match = _OAUTH_FIRST.fullmatch(_text(token, "the OAUTHBEARER message"))
        pairs = [] if match is None else [pair.partition("=") for pair in match["pairs"].split("\x01") if pair]
        auth = [value for key, _, value in pairs if key == "auth"]
        if match is None or match["binding"].startswith("p=") or len(auth) != 1 or not auth[0].lower().startswith("bearer "):
            raise SaslAuthentication("the OAUTHBEARER message does not have the form that RFC 7628 gives it")
        try:
            self.user = self._check(auth[0][len("bearer ") :].strip())
        except SaslAuthentication as refusal:
            self._refusal = refusal
            return json.dumps({"status": "invalid_token"}).encode()
        if match["authzid"] not in (None, self.user):
            raise SaslAuthentication("Authentication failed: Client requested an authorization id that is different from the token's")
        self.done = True
        return b""
