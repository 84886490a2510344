"""The security settings of clients and brokers: names, rules between them, and the credentials that come of them. No I/O.

A JAAS line, as Java clients have it, is read here so that an existing `sasl.jaas.config` can be taken over as it is:

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="...";

Rules: no message holds a password, a key or a token; of a JAAS line it repeats the names of login module and options alone. `repr` leaves
out whatever may hold one.

Source: org.apache.kafka.common.security.{JaasConfig, plain, scram, oauthbearer}, org.apache.kafka.common.config.{SaslConfigs, SslConfigs}.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from kafkacore.config_kerberos import (
    DEFAULT_SERVICE,
    KRB5_MODULE,
    BrokerKerberos,
    BrokerKeytab,
    KerberosSettings,
    broker_keytab,
    kerberos_settings,
)
from kafkacore.config_names import BY_PROVIDER
from kafkacore.config_tls import ContextSource, Store, TlsSettings, check_stores, make_context, stores_of
from kafkacore.config_values import function_named
from kafkacore.errors import ConfigError
from kafkacore.kerberos_names import LocalNames

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

TokenProvider = Callable[[], tuple[str, int]]
"""`provider() -> (token, expiry)`: a bearer token and when it expires, in milliseconds since 1970. Called on a thread of its own, so it may
block; one call at a time, unless one has not returned after ten seconds."""

# ---- JAAS

_LOGIN_MODULE = re.compile(r"(?:\w+\.)*?org\.apache\.kafka\.common\.security\.(?P<kind>[a-z]+\.\w+)")
"""Shaded copies of the classes, as in Databricks, have something before the name."""
_MODULES = {
    "plain.PlainLoginModule": ("PLAIN",),
    "scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_CALLBACK_HANDLER = re.compile(_LOGIN_MODULE.pattern.partition("(?P")[0] + r"oauthbearer\.(?:secured\.)?OAuthBearerLoginCallbackHandler")
_JAAS_TOKEN = re.compile(
    r"""\s*(?:"(?P<double>(?:[^"\\\r\n]|\\.)*)"|'(?P<single>(?:[^'\\\r\n]|\\.)*)'|(?P<mark>[=;])|(?P<word>[^\s=;"']+))"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasLine(NamedTuple):
    """One login module and its options."""

    module: str
    flag: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasLine(module={self.module!r}, flag={self.flag!r}, options of {', '.join(self.options)})"

    def text(self) -> str:
        """The line again, every value quoted, and the names that have to be."""
        shown = {name: name if re.fullmatch(r"[\w.-]+", name) else f'"{_escaped(name)}"' for name in self.options}
        options = "".join(f' {shown[name]}="{_escaped(value)}"' for name, value in self.options.items())
        return f"{self.module} {self.flag}{options};"


def _escaped(value: str) -> str:
    names = {text: f"\\{name}" for name, text in _ESCAPES.items()}
    return "".join("\\" + each if each in '"\\' else names.get(each, each) for each in value)


def parse_jaas(line: str) -> JaasLine:
    """Takes a JAAS line apart.

    Args:
        line: `LoginModule flag name=value ...;`, values bare or in quotes.

    Raises:
        ConfigError: it has another form; the text is not repeated, for there is a password in it.
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while line[at:].strip():
        match = _JAAS_TOKEN.match(line, at)
        if match is None:
            raise ConfigError("sasl_jaas_config: a quote is not closed")
        kind = match.lastgroup or ""
        text = match[kind]
        if kind in ("double", "single"):
            text = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)
        tokens.append(("value" if kind in ("double", "single") else kind, text))
        at = match.end()
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[1][0] != "word" or tokens[-1] != ("mark", ";"):
        raise ConfigError("sasl_jaas_config must be a login module, a flag such as required, options as name=value, and a semicolon")
    module, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in _FLAGS:
        raise ConfigError(f"sasl_jaas_config: behind the login module stands one of {', '.join(_FLAGS)}")
    rest = tokens[2:-1]
    options: dict[str, str] = {}
    if len(rest) % 3:
        raise ConfigError("sasl_jaas_config: options are name=value, and there is one login module only")
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if name[0] == "mark" or equals != ("mark", "=") or value[0] == "mark":
            raise ConfigError("sasl_jaas_config: options are name=value, and there is one login module only")
        if name[1] in options:
            raise ConfigError(f"sasl_jaas_config: option {name[1]} is given twice")
        options[name[1]] = value[1]
    return JaasLine(module, flag.lower(), options)


def jaas_mechanisms(line: JaasLine) -> tuple[str, ...]:
    """The mechanisms that a line's login module is for.

    Raises:
        ConfigError: it is none of Kafka's own.
    """
    if line.module == KRB5_MODULE:
        return ("GSSAPI",)
    match = _LOGIN_MODULE.fullmatch(line.module)
    mechanisms = _MODULES.get(match["kind"]) if match else None
    if mechanisms is None:
        known = ", ".join([*(name.partition(".")[2] for name in _MODULES), KRB5_MODULE.rpartition(".")[2]])
        hint = f". {BY_PROVIDER}" if "iam" in line.module.lower() or "oauth" in line.module.lower() else ""
        raise ConfigError(f"sasl_jaas_config: {line.module} is Java code that cannot run here; {known} have their counterparts{hint}")
    return mechanisms


# ---- SASL


class TokenEndpoint(NamedTuple):
    """Where tokens come from by OAuth's client-credentials grant.

    Attributes:
        url: whole, with what messages leave out.
        client_id, client_secret, scope: what is sent there.
        ca: the authorities to trust; the system's by default.
        proxy: the URL of a proxy; by default as HTTPS_PROXY and NO_PROXY say.
    """

    url: str
    client_id: str
    client_secret: str
    scope: str | None
    ca: Store = Store(None, None, None)
    proxy: str | None = None

    @property
    def shown(self) -> str:
        """The URL for messages: a query may hold a key."""
        return self.url.partition("?")[0]

    def __repr__(self) -> str:
        return f"TokenEndpoint(url={self.shown!r}, client_id={self.client_id!r}, scope={self.scope!r})"


_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name: what goes there crosses no network."""
    return _LOOPBACK.fullmatch(host) is not None


def check_token_url(
    url: str,
    allowed: Sequence[str] | None,
    called: str = "sasl_oauthbearer_token_endpoint_url",
    remedy: str = "sasl_oauthbearer_allowed_urls may allow an http URL",
) -> None:
    """Whether a client's secret may be sent to a URL.

    Args:
        url: of the token endpoint.
        allowed: the URLs that may be used; None allows each https URL, and http on loopback.
        called: what the caller knows the URL by, for messages.
        remedy: what allows another URL, for messages.

    Raises:
        ConfigError: no. The text repeats nothing that may be a secret.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{called} must be of the form https://host/path")
    if "@" in parts.netloc:
        raise ConfigError(f"{called} holds a name or password: id and secret have settings of their own")
    if allowed is not None:
        if url not in allowed:
            raise ConfigError(f"{called} is not among sasl_oauthbearer_allowed_urls")
    elif parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"{called} must be https, or others can read the client's secret; {remedy}")


class RefreshWindow(NamedTuple):
    """When a token is refreshed, under Kafka's names and with its defaults (`sasl.login.refresh.*`).

    Source: org.apache.kafka.common.security.oauthbearer.internals.expiring.ExpiringCredentialRefreshingLogin, KIP-255.
    """

    factor: float = 0.8
    jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def delay_ms(self, life_ms: int, random: float) -> int:
        """How long after it came a token is refreshed.

        Args:
            life_ms: for how long it is valid.
            random: 0 to 1, for the jitter.
        """
        delay_ms = min(int(life_ms * (self.factor + self.jitter * random)), life_ms)
        front_ms, back_ms = self.min_period_s * 1000, self.buffer_s * 1000
        if front_ms + back_ms > life_ms:  # both are for long-lived tokens, and ignored for others
            return delay_ms
        return max(min(delay_ms, life_ms - back_ms), front_ms)


_REFRESH = {
    "factor": ("sasl_login_refresh_window_factor", 0.5, 1.0),
    "jitter": ("sasl_login_refresh_window_jitter", 0.0, 0.25),
    "min_period_s": ("sasl_login_refresh_min_period_seconds", 0, 900),
    "buffer_s": ("sasl_login_refresh_buffer_seconds", 0, 3600),
}
_REFRESH_NAMES = tuple(name for name, _low, _high in _REFRESH.values())


@dataclass(frozen=True)
class SaslSettings:
    """What a client authenticates with.

    Attributes:
        mechanism: one of SASL_MECHANISMS.
        username, password: for PLAIN and SCRAM.
        is_delegation_token: they are the id and the secret of a delegation token (KIP-48).
        token_provider: OAUTHBEARER: gives tokens; or
        token_endpoint: does; or
        claims: are what an unsigned token says, for tests; it is valid for `lifetime_s`.
        extensions: further pairs that go with a token.
        refresh: when the next token is asked for.
        kerberos: GSSAPI: where tickets come from, and what they are for.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_provider: TokenProvider | None = field(default=None, repr=False)
    token_endpoint: TokenEndpoint | None = None
    claims: dict[str, Any] | None = None
    lifetime_s: int = 3_600
    extensions: dict[str, str] = field(default_factory=dict, repr=False)
    refresh: RefreshWindow = field(default_factory=RefreshWindow)
    is_delegation_token: bool = False
    kerberos: KerberosSettings | None = None


_ENDPOINT = {
    "url": "sasl_oauthbearer_token_endpoint_url",
    "client_id": "sasl_oauthbearer_client_credentials_client_id",
    "client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
_ENDPOINT_ONLY = ("sasl_oauthbearer_allowed_urls", "sasl_oauthbearer_proxy_url", "https_ca_location")
_OAUTH_ONLY = ("sasl_oauthbearer_token_provider", *_ENDPOINT.values(), *_ENDPOINT_ONLY, "sasl_login_callback_handler_class")
_PASSWORD_ONLY = ("sasl_username", "sasl_password")
_KERBEROS_ONLY = ("sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab")


def _sasl_settings(config: SecuritySettings) -> SaslSettings | None:
    """The credentials of a client's settings; None without SASL.

    Raises:
        ConfigError: something is missing, too much, or contradicts something else.
    """
    names = ("sasl_mechanism", "sasl_jaas_config", *_PASSWORD_ONLY, *_KERBEROS_ONLY, *_OAUTH_ONLY)
    given = [name for name in names if getattr(config, name) is not None]
    given += [each.name for each in fields(SecuritySettings) if each.name in _REFRESH_NAMES and getattr(config, each.name) != each.default]
    if not config.security_protocol.startswith("SASL_"):
        if given:
            raise ConfigError(f"{given[0]} has no effect with security_protocol={config.security_protocol}")
        return None
    mechanism = config.sasl_mechanism
    if mechanism is None:
        raise ConfigError(f"security_protocol={config.security_protocol} needs sasl_mechanism, one of {', '.join(SASL_MECHANISMS)}")
    oauth_only = (*_OAUTH_ONLY, *_REFRESH_NAMES)
    wrong = {"OAUTHBEARER": (*_PASSWORD_ONLY, *_KERBEROS_ONLY), "GSSAPI": (*_PASSWORD_ONLY, *oauth_only)}.get(
        mechanism, (*_KERBEROS_ONLY, *oauth_only)
    )
    if found := [name for name in wrong if name in given]:
        raise ConfigError(f"{found[0]} has no effect with sasl_mechanism={mechanism}")
    if config.sasl_jaas_config is not None:
        line = parse_jaas(config.sasl_jaas_config)
        if mechanism not in (mechanisms := jaas_mechanisms(line)):
            raise ConfigError(f"sasl_jaas_config is for {' or '.join(mechanisms)}, and sasl_mechanism is {mechanism}")
        double = [name for name in _PASSWORD_ONLY if name in given]
        if double:
            raise ConfigError(f"{double[0]} and sasl_jaas_config exclude each other")
        if mechanism == "GSSAPI":
            return _kerberos(config, line.options)
        return _oauth(config, line.options) if mechanism == "OAUTHBEARER" else _password(mechanism, line.options)
    if mechanism == "GSSAPI":
        return _kerberos(config, None)
    if mechanism == "OAUTHBEARER":
        return _oauth(config, {})
    missing = [name for name in _PASSWORD_ONLY if not getattr(config, name)]
    if missing:
        raise ConfigError(f"sasl_mechanism={mechanism} needs {missing[0]}, or sasl_jaas_config")
    return SaslSettings(mechanism, config.sasl_username or "", config.sasl_password or "")


def _kerberos(config: SecuritySettings, options: Mapping[str, str] | None) -> SaslSettings:
    found = kerberos_settings(config.sasl_kerberos_service_name, config.sasl_kerberos_principal, config.sasl_kerberos_keytab, options)
    return SaslSettings("GSSAPI", found.principal or "", kerberos=found)


def _password(mechanism: str, options: Mapping[str, str]) -> SaslSettings:
    for name in options:
        if name not in ("username", "password", "tokenauth"):
            raise ConfigError(f"sasl_jaas_config: option {name} is not known; there are username and password")
    if not options.get("username") or not options.get("password"):
        raise ConfigError("sasl_jaas_config must have username and password")
    is_token = options.get("tokenauth", "").lower() == "true"
    if is_token and mechanism == "PLAIN":
        raise ConfigError("sasl_jaas_config: tokenauth is for SCRAM: brokers take delegation tokens by SCRAM alone")
    return SaslSettings(mechanism, options["username"], options["password"], is_delegation_token=is_token)


_CLAIM = re.compile(r"unsecuredLogin(?P<kind>String|Number|List)Claim_(?P<name>.+)")
_EXTENSION = re.compile(r"(?:unsecuredLoginExtension|extension)_(?P<name>.+)")
_CLAIM_NAMES = ("unsecuredLoginPrincipalClaimName", "unsecuredLoginScopeClaimName")
"""Which claims Java's client itself looks at; neither is sent to brokers. Here the first is looked at, for messages."""
_JAAS_ENDPOINT = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
_JAAS_STORE = {"ssl.truststore.location": "path", "ssl.truststore.certificates": "text", "ssl.truststore.password": "password"}


def _oauth(config: SecuritySettings, options: Mapping[str, str]) -> SaslSettings:
    claims: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    endpoint = {part: getattr(config, name) for part, name in _ENDPOINT.items()}
    store: dict[str, Any] = {"path": config.https_ca_location, "text": None, "password": None}
    lifetime_s = 3_600
    for name, value in options.items():
        if claim := _CLAIM.fullmatch(name):
            claims[claim["name"]] = _claim(name, claim["kind"], value)
        elif extension := _EXTENSION.fullmatch(name):
            extensions[extension["name"]] = value
        elif name == "unsecuredLoginLifetimeSeconds":
            if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
                raise ConfigError(f"sasl_jaas_config: {name} must be a number of seconds")
            lifetime_s = int(value)
        elif part := _JAAS_ENDPOINT.get(name):
            if endpoint[part] is not None:
                raise ConfigError(f"sasl_jaas_config: {name} is given by {_ENDPOINT[part]} too")
            endpoint[part] = value
        elif part := _JAAS_STORE.get(name):
            if store[part] is not None:
                raise ConfigError(f"sasl_jaas_config: {name} is given by https_ca_location too")
            store[part] = value
        elif name not in _CLAIM_NAMES:
            raise ConfigError(f"sasl_jaas_config: option {name} is not known for OAUTHBEARER")
    handler = config.sasl_login_callback_handler_class
    if handler is not None and not _CALLBACK_HANDLER.fullmatch(handler):
        raise ConfigError(f"sasl_login_callback_handler_class: {handler} is Java code that cannot run here. {BY_PROVIDER}")
    provider = config.sasl_oauthbearer_token_provider
    if isinstance(provider, str):
        try:
            provider = function_named(provider)
        except ValueError as failure:
            raise ConfigError(f"sasl_oauthbearer_token_provider must be {failure}") from failure
    has_endpoint = any(value is not None for value in endpoint.values())
    possible = (("a token provider", provider), ("a token endpoint", has_endpoint), ("unsecured claims", claims))
    ways = [way for way, there in possible if there]
    if len(ways) != 1:
        raise ConfigError(
            "sasl_mechanism=OAUTHBEARER needs one source of tokens: sasl_oauthbearer_token_provider, or"
            " sasl_oauthbearer_token_endpoint_url with a client's id and secret, or"
            f" unsecuredLoginStringClaim_sub in sasl_jaas_config; there are {' and '.join(ways) or 'none'}"
        )
    found = None
    if has_endpoint:
        if missing := [name for part, name in _ENDPOINT.items() if part != "scope" and not endpoint[part]]:
            raise ConfigError(f"tokens from an endpoint need {missing[0]}")
        check_token_url(endpoint["url"] or "", config.sasl_oauthbearer_allowed_urls)
        if store["path"] is not None and store["text"] is not None:
            raise ConfigError("sasl_jaas_config: ssl.truststore.certificates and a file with certificates exclude each other")
        found = TokenEndpoint(**endpoint, ca=Store(**store), proxy=config.sasl_oauthbearer_proxy_url)
    elif useless := [name for name in _ENDPOINT_ONLY if getattr(config, name) is not None]:
        raise ConfigError(f"{useless[0]} has no effect without sasl_oauthbearer_token_endpoint_url")
    elif useless := [name for name in _JAAS_STORE if name in options]:
        raise ConfigError(f"sasl_jaas_config: {useless[0]} has no effect without sasl_oauthbearer_token_endpoint_url")
    elif handler is not None:
        raise ConfigError("sasl_login_callback_handler_class has no effect without sasl_oauthbearer_token_endpoint_url")
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    if claims and not isinstance(claims.get(principal), str):
        raise ConfigError(f"sasl_jaas_config: an unsecured token needs unsecuredLoginStringClaim_{principal}: who it is for")
    return SaslSettings(
        "OAUTHBEARER",
        str(claims.get(principal, "")) or (found.client_id if found else ""),
        token_provider=provider,
        token_endpoint=found,
        claims=claims or None,
        lifetime_s=lifetime_s,
        extensions=extensions,
        refresh=_refresh_window(config),
    )


def _refresh_window(config: SecuritySettings) -> RefreshWindow:
    for name, low, high in _REFRESH.values():
        if not low <= getattr(config, name) <= high:
            raise ConfigError(f"{name} must be {low} to {high}, not {getattr(config, name)!r}")
    return RefreshWindow(**{part: getattr(config, name) for part, (name, _low, _high) in _REFRESH.items()})


def _claim(name: str, kind: str, value: str) -> Any:
    if kind == "String":
        return value
    if kind == "List":  # the first character separates
        return value[1:].split(value[0]) if value else []
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"sasl_jaas_config: {name} must be a number") from None


# ---- a client's settings

WORDS = ("security_protocol", "sasl_mechanism", "ssl_truststore_type", "ssl_keystore_type")
"""Settings that are written in capitals."""


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    """Who a client connects to and as whom.

    Attributes:
        security_protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL".
        sasl_mechanism: "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER" or "GSSAPI" (Kerberos).
        sasl_username, sasl_password: for PLAIN and SCRAM.
        sasl_jaas_config: the same, or a source of tokens or tickets, as Java clients have it.
        sasl_kerberos_service_name: the part of the brokers' principals before the slash; "kafka" unless given.
        sasl_kerberos_keytab: file with the keys of a principal (librdkafka's name); left out, a ticket is there already, from kinit.
        sasl_kerberos_principal: who the client is, as alice@REALM (librdkafka's name); left out, who is first in ticket cache or keytab.
        sasl_oauthbearer_token_provider: a function without arguments that gives (token, when it expires in milliseconds since 1970), or
            its name as "module:function", where settings are text.
        sasl_oauthbearer_token_endpoint_url: where a client's id and secret are exchanged for tokens; needs httpx.
        sasl_oauthbearer_client_credentials_client_id, sasl_oauthbearer_client_credentials_client_secret: for that.
        sasl_oauthbearer_scope: asked for along with them.
        sasl_oauthbearer_allowed_urls: URLs that the endpoint's must be among (Java's system property of that name); left out, it must be
            https, or http on loopback.
        sasl_oauthbearer_proxy_url: a proxy on the way there; left out, the environment's HTTPS_PROXY and NO_PROXY count.
        https_ca_location: PEM file of the authorities that the endpoint's certificate may come from (librdkafka's name); left out, the
            system's. A JAAS line may have ssl.truststore.location or ssl.truststore.certificates instead, as for Java.
        sasl_login_callback_handler_class: Java's name for using the endpoint; nothing else can be named.
        sasl_login_refresh_window_factor: a token is refreshed after this part of its life,
        sasl_login_refresh_window_jitter: and up to so much more, at random;
        sasl_login_refresh_min_period_seconds: so long after the one before at the earliest,
        sasl_login_refresh_buffer_seconds: so long before it expires at the latest. A token of a shorter life than these two together is
            refreshed without regard to them.
        ssl_context: a ready `ssl.SSLContext`; excludes the other ssl settings.
        ssl_cafile: PEM file of the authorities to trust; without any the system's are trusted.
        ssl_certfile, ssl_keyfile: PEM files of the client's own certificate chain and key, or both in the first.
        ssl_password: of the key.
        ssl_check_hostname: the certificate must name the host connected to.
        ssl_truststore_location, ssl_truststore_password, ssl_truststore_type: authorities in a file as Java has it, PEM or PKCS12.
        ssl_truststore_certificates: authorities, as PEM text.
        ssl_keystore_location, ssl_keystore_password, ssl_keystore_type: the client's certificate and key in such a file.
        ssl_keystore_certificate_chain, ssl_keystore_key: the client's certificate and key, as PEM text.
    """

    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_jaas_config: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_keytab: str | None = None
    sasl_kerberos_principal: str | None = None
    sasl_oauthbearer_token_provider: TokenProvider | str | None = field(default=None, repr=False)
    sasl_oauthbearer_token_endpoint_url: str | None = field(default=None, repr=False)
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_allowed_urls: tuple[str, ...] | None = field(default=None, repr=False)
    sasl_oauthbearer_proxy_url: str | None = field(default=None, repr=False)
    https_ca_location: str | None = None
    sasl_login_callback_handler_class: str | None = None
    sasl_login_refresh_window_factor: float = 0.8
    sasl_login_refresh_window_jitter: float = 0.05
    sasl_login_refresh_min_period_seconds: int = 60
    sasl_login_refresh_buffer_seconds: int = 300
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_type: str | None = None
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_type: str | None = None
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)

    def check_security(self) -> None:
        """Rules between these settings.

        Raises:
            ConfigError: one is missing, contradicts another, or would be ignored.
        """
        if (self.sasl_mechanism or "").upper() == "AWS_MSK_IAM":
            raise ConfigError(f"sasl_mechanism=AWS_MSK_IAM is Java code that cannot run here. {BY_PROVIDER}")
        for name, choices in (("security_protocol", SECURITY_PROTOCOLS), ("sasl_mechanism", (None, *SASL_MECHANISMS))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(filter(None, choices))}, not {getattr(self, name)!r}")
        tls_settings(self)
        self.sasl_settings()

    def sasl_settings(self) -> SaslSettings | None:
        """What to authenticate with.

        Returns:
            None without SASL.

        Raises:
            ConfigError: something is missing, or contradicts something else.
        """
        return _sasl_settings(self)

    def make_ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context of these settings.

        Returns:
            None without TLS.

        Raises:
            ConfigError: a file is missing or holds no usable certificate or key.
        """
        found = tls_settings(self)
        return None if found is None else self.ssl_context or make_context(found)

    def ssl_contexts(self) -> Callable[[], ssl.SSLContext] | None:
        """What gives the TLS context of each connection: files that have changed are read again.

        Returns:
            None without TLS.

        Raises:
            ConfigError: a file is missing or holds no usable certificate or key.
        """
        found, ready = tls_settings(self), self.ssl_context
        if found is None:
            return None
        return ContextSource(found) if ready is None else lambda: ready


def tls_settings(config: SecuritySettings) -> TlsSettings | None:
    """Where a client's certificates and key are; None without TLS.

    Raises:
        ConfigError: they are named twice, or would be ignored.
    """
    given = [
        each.name
        for each in fields(SecuritySettings)
        if each.name.startswith("ssl_") and each.name != "ssl_context" and getattr(config, each.name) != each.default
    ]
    if config.ssl_context is not None and given:
        raise ConfigError(f"ssl_context is ready made: {given[0]} would be ignored")
    if not config.security_protocol.endswith("SSL"):
        if given or config.ssl_context is not None:
            raise ConfigError(f"{(given or ['ssl_context'])[0]} has no effect with security_protocol={config.security_protocol}")
        return None
    if config.ssl_keyfile is not None and config.ssl_certfile is None:
        raise ConfigError("ssl_keyfile needs ssl_certfile")
    values = {each.name: getattr(config, each.name) for each in fields(SecuritySettings)}
    check_stores(values, "ssl_password")
    return TlsSettings(*stores_of(values, "ssl_password"), config.ssl_check_hostname)


# ---- SASL of the embedded broker


class BrokerSaslConfig(Protocol):
    """The settings read here (any BrokerConfig has them)."""

    @property
    def sasl_enabled_mechanisms(self) -> tuple[str, ...] | None: ...
    @property
    def sasl_jaas_config(self) -> str | None: ...
    @property
    def connections_max_reauth_ms(self) -> int: ...


def check_broker_sasl(config: BrokerSaslConfig, has_sasl: bool) -> None:
    """Rules between a broker's SASL settings.

    Args:
        config: the settings.
        has_sasl: one of its listeners is SASL_PLAINTEXT or SASL_SSL.

    Raises:
        ConfigError: one is missing, or would be ignored.
    """
    if not has_sasl:
        for name in ("sasl_enabled_mechanisms", "sasl_jaas_config", "connections_max_reauth_ms"):
            if getattr(config, name):
                raise ConfigError(f"{name} has no effect without a listener that is SASL_PLAINTEXT or SASL_SSL")
        return
    mechanisms = config.sasl_enabled_mechanisms
    if mechanisms is not None and (unknown := [each for each in mechanisms if each not in SASL_MECHANISMS]):
        raise ConfigError(f"sasl_enabled_mechanisms may hold {', '.join(SASL_MECHANISMS)}, not {unknown[0]!r}")
    if mechanisms is not None and "PLAIN" not in mechanisms:
        raise ConfigError("sasl_enabled_mechanisms must hold PLAIN: brokers log in at each other with it")
    plain_users(config.sasl_jaas_config)


def check_broker_kerberos(config: BrokerKerberos, mechanisms: Sequence[str], listeners: Sequence[str]) -> None:
    """Rules between a broker's Kerberos settings.

    Args:
        config: the settings.
        mechanisms: that clients may use.
        listeners: the names of those that are SASL_PLAINTEXT or SASL_SSL.

    Raises:
        ConfigError: one is missing, or would be ignored.
    """
    if not listeners or "GSSAPI" not in mechanisms:
        for each in fields(BrokerKerberos):
            if getattr(config, each.name) != each.default:
                raise ConfigError(f"{each.name} has no effect without GSSAPI in sasl_enabled_mechanisms, and a listener that uses it")
        return
    gssapi_keytab(config, listeners)
    LocalNames(config.sasl_kerberos_principal_to_local_rules)


def gssapi_keytab(config: BrokerKerberos, listeners: Sequence[str]) -> BrokerKeytab:
    """A broker's keys for GSSAPI; the same for all of its listeners.

    Raises:
        ConfigError: they are missing, incomplete, or not the same.
    """
    given = config.gssapi_sasl_jaas_config
    if given is None:
        by_listener = "listener.name.NAME.gssapi.sasl.jaas.config"
        raise ConfigError(f"GSSAPI needs gssapi_sasl_jaas_config, or {by_listener}: Krb5LoginModule with a keytab")
    lines = dict.fromkeys(listeners, given) if isinstance(given, str) else given
    for name in {*lines} ^ {*listeners}:
        lacks = "is missing" if name in listeners else "has no effect: there is no such listener with SASL"
        raise ConfigError(f"listener.name.{name.lower()}.gssapi.sasl.jaas.config {lacks}")
    found = {}
    for name, line in lines.items():
        parsed = parse_jaas(line)
        if parsed.module != KRB5_MODULE:
            raise ConfigError(f"gssapi_sasl_jaas_config is for Krb5LoginModule, not {parsed.module}")
        found[broker_keytab(config.sasl_kerberos_service_name, parsed.options)] = name
    if len(found) > 1:
        raise ConfigError(f"listeners {' and '.join(found.values())} must have the same keytab and principal for GSSAPI")
    return next(iter(found))


def plain_users(line: str | None) -> tuple[str, str, dict[str, str]]:
    """What a broker's JAAS line holds: its own name and password, and the passwords of PLAIN's users by name.

    Raises:
        ConfigError: it is missing or incomplete.
    """
    if line is None:
        raise ConfigError("a listener that is SASL_PLAINTEXT or SASL_SSL needs sasl_jaas_config, for PlainLoginModule")
    parsed = parse_jaas(line)
    if jaas_mechanisms(parsed) != ("PLAIN",):
        raise ConfigError(f"a broker's sasl_jaas_config is for PlainLoginModule, not {parsed.module}; SCRAM's users are in the controller")
    users = {name.removeprefix("user_"): value for name, value in parsed.options.items() if name.startswith("user_")}
    own = _password("PLAIN", {name: value for name, value in parsed.options.items() if not name.startswith("user_")})
    if users.get(own.username) != own.password:
        raise ConfigError(f"sasl_jaas_config must have user_{own.username} with the same password: brokers log in at each other as that")
    return own.username, own.password, users


def sasl_listener(users: Mapping[str, str], *, keytab: str | None = None, principal: str = "*") -> dict[str, str]:
    """Settings of brokers that let in only these users: `EmbeddedCluster(config=sasl_listener({"alice": "secret"}))`.

    Args:
        users: their passwords by name. One named broker, as which the brokers themselves log in, is added unless it is there.
        keytab: file of the service's keys: whose ticket is for it may come in, too, by Kerberos.
        principal: the service's, as kafka/host@REALM; all of the keytab's if left out.

    Returns:
        To be joined with other settings of brokers.
    """
    own = users.get("broker") or secrets.token_urlsafe(18)
    named = {f"user_{name}": password for name, password in {"broker": own, **users}.items()}
    line = JaasLine("org.apache.kafka.common.security.plain.PlainLoginModule", "required", {"username": "broker", "password": own, **named})
    found = {"security.inter.broker.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": line.text()}
    if keytab is None:
        return found
    keys = JaasLine(KRB5_MODULE, "required", {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab, "principal": principal})
    return found | {
        "sasl.enabled.mechanisms": ",".join((*PASSWORD_MECHANISMS, "GSSAPI")),
        "sasl.kerberos.service.name": DEFAULT_SERVICE if principal == "*" else re.split("[/@]", principal)[0],
        "gssapi.sasl.jaas.config": keys.text(),
    }
