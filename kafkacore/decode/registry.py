"""Schemas from a schema registry, by Confluent's HTTP interface, kept by id: a schema never changes under its id.

A value in the registry's wire format is a zero byte, the schema's id in four bytes, for Protobuf a list of message indexes, and the data.

No lock is held while the registry is asked: threads whose schemas are here go on, and those that want the same one ask once.

Source: io.confluent.kafka.schemaregistry.client.rest.RestService, io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe.
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kafkacore import config_secrets, errors
from kafkacore.bounds import (
    HTTP_SECONDS,
    REGISTRY_ANSWER_BYTES,
    REGISTRY_KEPT_CHARACTERS,
    SCHEMA_REFERENCES,
    SCHEMA_SECONDS,
    SCHEMAS_KEPT,
)
from kafkacore.client_credentials import ClientCredentials
from kafkacore.clock import SystemClock
from kafkacore.config_security import TokenEndpoint, TokenProvider, check_token_url, is_loopback
from kafkacore.config_tls import Store
from kafkacore.decode.values import Undecodable
from kafkacore.http_client import (
    NO_STORE,
    HttpAnswer,
    HttpFailed,
    HttpQuestion,
    HttpUnusable,
    HttpWay,
    answer_in_time,
    check_proxy,
    tls_context,
)
from kafkacore.plurals import counted

PREFIX_BYTES = 5
TRIES = 5
BACKOFF_S = 0.2
RETRIED = (408, 425, 429, 500, 502, 503, 504)
UNKNOWN_S = 30.0
TOKEN_SHARE = 0.8
"""Of a token's life after which the next one is asked for."""
NO_SCHEMA = 40403
NO_SUBJECT = (40401, 40402)
NOT_FRAMED = "not in the schema registry's wire format: a zero byte and a schema's id are expected first"


class WrongPlace(errors.ConfigError):
    """There is no schema registry at the URL."""


class UnusableSchema(errors.ConfigError):
    """A value's schema is not in the registry, is of another type, or cannot be read as the columns: the wrong registry, or columns."""


@dataclass(frozen=True)
class Schema:
    """A registered schema.

    Attributes:
        kind: AVRO, PROTOBUF or JSON.
        text: as registered; for Protobuf a serialized FileDescriptorProto in base 64.
        references: names under which it uses other schemas, and those.
    """

    kind: str
    text: str
    references: tuple[tuple[str, Schema], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class RegistryOptions:
    """Where the registry is and who asks; secrets are references still.

    Attributes:
        url: one or several, separated by commas, with or without user:password@.
        user_info: user:password.
        token: a bearer token.
        when: by when the variables of references must be set, for messages.
        called: what the caller knows the URL by, for messages.
        token_endpoint: where a client's id and secret are exchanged for bearer tokens.
        token_provider: `provider() -> (token, expiry in milliseconds since 1970)`; may be the one that a client has as
            `sasl_oauthbearer_token_provider`. It may be called by several threads.
        ca_file: PEM of the authorities that the registry's certificate must be of; otherwise those that httpx trusts.
        certificate_file, key_file, key_password: PEM of the certificate that this client shows, and of its key.
        proxy: URL of a proxy, http://host:port; otherwise as HTTPS_PROXY and NO_PROXY say.
        timeout_s: for one question as a whole, in seconds.
        allow_http: a password or token may go to another host without TLS, where others on the way can read it.
        headers: (name, value) sent with each question.
    """

    url: str
    user_info: str | None = None
    token: str | None = None
    when: str = ""
    called: str = "option schema.registry.url"
    token_endpoint: TokenEndpoint | None = None
    token_provider: TokenProvider | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    proxy: str | None = None
    timeout_s: float = HTTP_SECONDS
    allow_http: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        place = ", ".join(_shown(each) for each in self.url.split(","))
        return f"RegistryOptions(url={place!r})"


def options_of(url: str, settings: Mapping[str, Any], when: str = "", called: str = "option schema.registry.url") -> RegistryOptions:
    """Options by the names that Confluent's clients have for them, without `schema.registry.` before.

    Args:
        url: of the registry.
        settings: texts, by name; see SETTINGS. Secrets may be references.
        when, called: as `RegistryOptions` takes them.

    Raises:
        errors.ConfigError: a name is none of them, or an OAuth client is named by half.
    """
    if unknown := [name for name in settings if name not in SETTINGS]:
        raise errors.ConfigError(f"schema.registry.{unknown[0]} is no setting; there are {', '.join(SETTINGS)}")
    endpoint = None
    oauth = [name for name in settings if name in _OAUTH]
    if oauth:
        place, user, secret = (settings.get(f"bearer.auth.{name}") for name in ("issuer.endpoint.url", "client.id", "client.secret"))
        if place is None or user is None or secret is None:
            raise errors.ConfigError(
                f"schema.registry.{oauth[0]} goes with schema.registry.bearer.auth.issuer.endpoint.url, .client.id and .client.secret"
            )
        endpoint = TokenEndpoint(place, user, secret, settings.get("bearer.auth.scope"))
        if "ssl.ca.location" in settings:
            endpoint = endpoint._replace(ca=Store(settings["ssl.ca.location"], None, None))
        endpoint = endpoint._replace(proxy=settings.get("proxy"))
    allowed = str(settings.get("allow.http", "false")).lower()
    try:
        timeout_s = int(settings.get("timeout.ms", round(HTTP_SECONDS * 1000))) / 1000
    except ValueError:
        timeout_s = 0.0
    if allowed not in ("true", "false") or timeout_s <= 0:
        raise errors.ConfigError("schema.registry.allow.http is true or false, schema.registry.timeout.ms milliseconds above 0")
    return RegistryOptions(
        url,
        settings.get("basic.auth.user.info"),
        settings.get("bearer.auth.token"),
        when,
        called,
        token_endpoint=endpoint,
        ca_file=settings.get("ssl.ca.location"),
        certificate_file=settings.get("ssl.certificate.location"),
        key_file=settings.get("ssl.key.location"),
        key_password=settings.get("ssl.key.password"),
        proxy=settings.get("proxy"),
        timeout_s=timeout_s,
        allow_http=allowed == "true",
        headers=tuple((header, settings[name]) for name, header in _HEADERS.items() if name in settings),
    )


_HEADERS = {"bearer.auth.logical.cluster": "target-sr-cluster", "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id"}
"""What Confluent Cloud asks for beside a token."""
_OAUTH = ("bearer.auth.issuer.endpoint.url", "bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.scope")
SETTINGS = (
    "basic.auth.user.info",
    "bearer.auth.token",
    *_OAUTH,
    *_HEADERS,
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "proxy",
    "timeout.ms",
    "allow.http",
)
"""Of a registry, without `schema.registry.` before them."""


class _Access(NamedTuple):
    """How the registry is asked, with secrets in place.

    Attributes:
        bases: each address without userinfo, and who asks there.
        headers: of each question.
        way: files and bounds.
        tokens: gives bearer tokens; None without OAuth.
    """

    bases: tuple[tuple[str, tuple[str, str] | None], ...]
    headers: tuple[tuple[str, str], ...]
    way: HttpWay
    tokens: TokenProvider | None


def _shown(url: str) -> str:
    """A URL without userinfo and query."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return "?"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class _Flight:
    """A call that several threads wait for, so many of them beside the one that makes it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.done = threading.Event()
        self.found: Any = None
        self.error: errors.KafkaError | None = None
        self.is_answer = False


class _Once:
    """Calls of several threads for the same thing at the same time become one; no lock is held while it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Any, _Flight] = {}

    def __call__(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, called by this thread or by another one that wants the same."""
        while True:
            with self._lock:
                flight = self._flights.get(key)
                mine = flight is None
                if flight is None:
                    flight = self._flights[key] = _Flight()
                else:
                    flight.waiting += 1
            if mine:
                try:
                    flight.found = make()
                    flight.is_answer = True
                    return flight.found
                except errors.KafkaError as error:
                    flight.error = error
                    raise
                finally:
                    with self._lock:
                        del self._flights[key]
                    flight.done.set()
            flight.done.wait()
            if flight.error is not None:
                raise copy.copy(flight.error) from flight.error
            if flight.is_answer:
                return flight.found
            # that thread was interrupted: another one asks


class Registry:
    """A registry and what it has answered. Threads may share it."""

    def __init__(
        self, options: RegistryOptions, sleep: Callable[[float], object] = time.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepares; asks nothing yet.

        Args:
            options: where it is.
            sleep: waits between tries, in seconds.
            clock: seconds; where values of an unknown schema are taken for corrupt, it is asked for again after UNKNOWN_S.

        Raises:
            errors.ConfigError: a URL is not http or https, or a secret is not there.
        """
        self._options = options
        self._called = options.called
        self._tokens = _token_source(options)
        self._access = self._resolved()
        self._sleep, self._clock = sleep, clock
        self._once = _Once()
        self._lock = threading.Lock()  # held for a look, never while waiting
        self._by_id: dict[tuple[int, str], Schema] = {}
        self._kept_characters = 0
        self._unknown: dict[int, float] = {}
        self._token: tuple[str, float] = "", 0.0
        self._context: ssl.SSLContext | None = None

    def _resolved(self) -> _Access:
        """How it is asked, by secrets and files that are read now.

        Raises:
            errors.ConfigError: a URL is not http or https, or a secret or file is not there.
        """
        options = self._options
        given = {
            name: config_secrets.resolve(f"schema.registry.{name}", value, options.when)
            for name, value in (
                ("url", options.url),
                ("basic.auth.user.info", options.user_info),
                ("bearer.auth.token", options.token),
                ("ssl.key.password", options.key_password),
            )
            if value is not None
        }
        login, token = given.get("basic.auth.user.info"), given.get("bearer.auth.token")
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **dict(options.headers)}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        bases: list[tuple[str, tuple[str, str] | None]] = []
        for each in given["url"].split(","):
            try:
                parts = urlsplit(each.strip())
                host, _port = parts.hostname or "", parts.port
            except ValueError:
                parts, host = urlsplit(""), ""
            if parts.scheme not in ("http", "https") or not host:
                raise errors.ConfigError(f"{options.called} must be like https://host:8081, or several separated by commas")
            info, _, place = parts.netloc.rpartition("@")
            user, _, password = (info or login or "").partition(":")
            base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
            auth = (unquote(user), unquote(password)) if info else (user, password)
            secret = bool(user) or token is not None or self._tokens is not None
            if secret and parts.scheme == "http" and not is_loopback(host) and not options.allow_http:
                raise errors.ConfigError(
                    f"{options.called}: the password or token for {base} would go over http, where others can read it: use https,"
                    " or allow it (schema.registry.allow.http=true; allow_http=True of RegistryOptions)"
                )
            bases.append((base, auth if user else None))
        if options.key_file is not None and options.certificate_file is None:
            raise errors.ConfigError("the key for a schema registry goes with a certificate")
        if options.proxy is not None:
            check_proxy(options.proxy, "the proxy of a schema registry")
        way = HttpWay(
            Store(options.ca_file, None, None) if options.ca_file is not None else NO_STORE,
            Store(options.certificate_file, None, None) if options.certificate_file is not None else NO_STORE,
            Store(options.key_file, None, given.get("ssl.key.password"), "schema.registry.ssl.key.password")
            if options.key_file is not None
            else NO_STORE,
            options.proxy,
            options.timeout_s,
            REGISTRY_ANSWER_BYTES,
        )
        way.context()  # a file that is missing is an error of the settings
        return _Access(tuple(bases), tuple(headers.items()), way, self._tokens)

    def close(self) -> None:
        """Lets go of what it keeps; what is asked after it is kept again."""
        with self._lock:
            self._by_id.clear()
            self._kept_characters = 0

    def by_id(self, number: int, kind: str, *, patient: bool = True) -> Schema:
        """The schema behind an id; asked once.

        Args:
            number: from a value.
            kind: AVRO, PROTOBUF or JSON: what it must be.
            patient: a registry that does not know the id may be a follower that lags: it is asked again as one that does not answer, and
                what it said is forgotten. Otherwise it is asked once, and not again before UNKNOWN_S have passed.

        Raises:
            UnusableSchema: the registry does not have it, or it is of another kind.
            errors.KafkaError: the registry does not answer, or refuses.
        """
        found = self._by_id.get((number, kind))
        if found is None:
            found = self._once((number, kind, patient), lambda: self._asked_by_id(number, kind, patient))
        if found.kind != kind:
            raise UnusableSchema(f"schema {number} of the schema registry {self.places} is of the type {found.kind}, not {kind}")
        return found

    def _asked_by_id(self, number: int, kind: str, patient: bool) -> Schema:
        found = self._by_id.get((number, kind))  # by a thread that asked until now
        if found is not None:
            return found
        answer = None
        if patient or self._clock() - self._unknown.get(number, -UNKNOWN_S) >= UNKNOWN_S:
            answer = self._get(f"/schemas/ids/{number}{_form(kind)}", (NO_SCHEMA,), patient)
            if answer is None and not patient:
                with self._lock:
                    if len(self._unknown) >= SCHEMAS_KEPT:
                        self._unknown.clear()
                    self._unknown[number] = self._clock()
        if answer is None:
            raise UnusableSchema(f"the schema registry {self.places} has no schema {number}")
        found, characters = self._schema(answer, kind, f"schema {number}")
        with self._lock:
            if len(self._by_id) >= SCHEMAS_KEPT or self._kept_characters + characters > REGISTRY_KEPT_CHARACTERS:
                self._by_id.clear()
                self._kept_characters = 0
            self._by_id[number, kind] = found
            self._kept_characters += characters
        return found

    @property
    def places(self) -> str:
        """The addresses, without who asks."""
        return ", ".join(base for base, _ in self._access.bases)

    def latest(self, subject: str, kind: str, hint: str = "") -> Schema:
        """The newest schema of a subject; asked every time.

        Args:
            subject: its name.
            kind: AVRO, PROTOBUF or JSON: what it must be.
            hint: what else the caller can do, for the message that there is no such subject.

        Raises:
            errors.ConfigError: there is no such subject, or its schema is of another kind.
            errors.KafkaError: as `by_id`.
        """
        return self.latest_with_id(subject, kind, hint)[1]

    def latest_with_id(self, subject: str, kind: str, hint: str = "") -> tuple[int, Schema]:
        """As `latest`, with the schema's id before it: what values written with it begin with.

        Raises:
            errors.CorruptDataError: the answer has no id.
            errors.KafkaError: as `latest`.
        """
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest{_form(kind)}", NO_SUBJECT)
        if answer is None:
            raise errors.ConfigError(f"the schema registry has no subject {subject!r}{hint}")
        found, _ = self._schema(answer, kind, f"subject {subject!r}")
        if found.kind != kind:
            raise errors.ConfigError(f"the schema of subject {subject!r} is of the type {found.kind}, not {kind}")
        number = answer.get("id")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 31:
            raise errors.CorruptDataError(f"the schema registry's answer for subject {subject!r} holds no id: {number!r:.60}")
        return number, found

    def _schema(self, answer: Any, kind: str, what: str) -> tuple[Schema, int]:
        """The schema of an answer with its references, and their characters together; what several refer to is asked for once."""
        walk = _References(self._get, self._clock, kind, what)
        return walk.schema(answer, what, 0), walk.characters

    def _get(self, path: str, absent: tuple[int, ...], patient: bool = False, renewed: bool = False) -> Any:
        """Asks; None when the registry knows no such thing. Tries again what may pass, at each address, within the time of one question.

        Args:
            path: of the question.
            absent: the registry's codes for that there is no such thing. Another 404 is not a registry's.
            patient: it is believed only when it says so at the last try.
            renewed: who asks was looked up again since it was refused.

        Raises:
            WrongPlace: there is no schema registry at this URL.
            errors.KafkaError: it does not answer, or refuses.
        """
        why = ""
        end_s = self._clock() + self._access.way.seconds
        attempt = unknown = 0
        while attempt < TRIES and not (attempt and self._clock() >= end_s):  # a registry that hangs is not asked five times
            unknown = 0
            if attempt:
                self._sleep(BACKOFF_S * 2 ** (attempt - 1))
            attempt += 1
            access = self._access
            for base, auth in access.bases:
                try:
                    answer = self._ask(access, base + path, auth)
                except HttpUnusable as failed:
                    raise errors.CorruptDataError(f"the schema registry {base} {failed}") from failed
                except HttpFailed as failed:
                    why = f"{base} {failed}"
                    self._context = None  # a certificate may be another one by now
                    continue
                if answer.status == 200:
                    return _json(answer, base)
                if answer.status == 404:
                    if not _says(answer, absent):
                        raise WrongPlace(
                            f"{self._called}: there is no schema registry at {base}: HTTP status 404 for {base}{path}, "
                            f"without the code of one ({' or '.join(map(str, absent))})"
                        )
                    unknown += 1
                    continue
                why = f"{base}: HTTP status {answer.status} for {path}"
                if answer.status in (401, 403):
                    if not renewed and self._has_changed(access):
                        return self._get(path, absent, patient, True)
                    raise errors.AuthenticationFailedError(f"the schema registry does not let us in: {why}")
                if answer.status not in RETRIED:
                    raise errors.UsageError(f"the schema registry refuses: {why}")
            if unknown == len(access.bases) and not patient:
                return None
        if unknown:
            return None
        raise errors.KafkaTimeoutError(f"the schema registry could not be asked, {counted(attempt, 'try', 'tries')}: {why}")


    def _ask(self, access: _Access, url: str, auth: tuple[str, str] | None) -> HttpAnswer:
        headers = dict(access.headers)
        if access.tokens is not None:
            headers["Authorization"] = f"Bearer {self._bearer(access.tokens)}"
        context = None
        if url.startswith("https:"):
            context = self._context = self._context or tls_context(access.way)
        question = HttpQuestion(url, access.way, headers=headers, auth=auth, context=context)
        return answer_in_time(question, access.way.seconds)

    def _bearer(self, tokens: TokenProvider) -> str:
        """A token that is valid for a while yet."""
        token, until_s = self._token
        return token if time.time() < until_s else str(self._once("token", lambda: self._new_bearer(tokens)))

    def _new_bearer(self, tokens: TokenProvider) -> str:
        found = tokens()
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str) and isinstance(found[1], (int, float))):
            raise errors.AuthenticationFailedError("the token provider must return (token, expiry in milliseconds since 1970)")
        now_s = time.time()
        self._token = found[0], now_s + TOKEN_SHARE * (found[1] / 1000 - now_s)
        return found[0]

    def _has_changed(self, refused: _Access) -> bool:
        """Whether there is another token or password by now than the one that was refused; it is used from here on."""
        if refused is not self._access:
            return True  # another thread has looked
        try:
            access = self._resolved()
        except errors.ConfigError:
            return False  # gone, or half written: what was there before was refused, and that is the error
        changed = access != refused
        if self._token[0]:
            self._token, changed = ("", 0.0), True
        if changed:
            self._access = access._replace()
        return changed


def _token_source(options: RegistryOptions) -> TokenProvider | None:
    """What gives bearer tokens.

    Raises:
        errors.ConfigError: several ways to say who asks, or an endpoint that cannot be used.
    """
    endpoint = options.token_endpoint
    ways = {
        "a login": options.user_info,
        "a token": options.token,
        "a token endpoint": endpoint,
        "a token provider": options.token_provider,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise errors.ConfigError(f"{options.called}: who asks the schema registry is said once, not by {' and by '.join(given)}")
    if endpoint is None:
        return options.token_provider
    secret = config_secrets.resolve("schema.registry.bearer.auth.client.secret", endpoint.client_secret, options.when)
    allowed = [endpoint.url] if options.allow_http else None
    check_token_url(endpoint.url, allowed, "the token endpoint of the schema registry", "allow_http allows an http URL")
    return ClientCredentials(endpoint._replace(client_secret=secret), SystemClock()).in_time


class _References:
    """A walk through what one schema refers to: so many, so long and so large as the bounds say."""

    def __init__(self, get: Callable[..., Any], clock: Callable[[], float], kind: str, what: str) -> None:
        self._get, self._clock, self._kind, self._what = get, clock, kind, what
        self._end_s = clock() + SCHEMA_SECONDS
        self._known: dict[tuple[str, int], Schema] = {}
        self.characters = 0

    def schema(self, answer: Any, what: str, depth: int) -> Schema:
        """The schema of an answer."""
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise errors.CorruptDataError(f"the schema registry's answer for {what} holds no schema")
        if depth > 32:
            raise errors.CorruptDataError(f"the schema registry's {what} has references more than 32 deep")
        self.characters += len(answer["schema"])
        if self.characters > REGISTRY_ANSWER_BYTES:
            raise errors.CorruptDataError(f"the schema registry's {self._what} has more than {REGISTRY_ANSWER_BYTES} characters")
        given = answer.get("references") or ()
        try:
            named = [(str(each["name"]), str(each["subject"]), int(each["version"])) for each in given]
        except (TypeError, KeyError, ValueError):
            raise errors.CorruptDataError(f"the schema registry's answer for {what} has references that are none") from None
        return Schema(
            str(answer.get("schemaType") or "AVRO"),
            answer["schema"],
            tuple((name, self._referred(subject, version, what, depth)) for name, subject, version in named),
        )

    def _referred(self, subject: str, version: int, what: str, depth: int) -> Schema:
        known = self._known.get((subject, version))
        if known is not None:
            return known
        if self._clock() >= self._end_s:
            raise errors.KafkaTimeoutError(f"what the schema registry's {self._what} refers to has not come within {SCHEMA_SECONDS:.0f} s")
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}{_form(self._kind)}", NO_SUBJECT, True)
        if found is None:
            raise errors.CorruptDataError(f"{what} refers to subject {subject!r} version {version}, which the schema registry lacks")
        schema = self._known[subject, version] = self.schema(found, f"subject {subject!r}", depth + 1)
        if len(self._known) > SCHEMA_REFERENCES:
            raise errors.CorruptDataError(f"the schema registry's {self._what} has more than {SCHEMA_REFERENCES} references")
        return schema


def _form(kind: str) -> str:
    return "?format=serialized" if kind == "PROTOBUF" else ""


def _document(answer: HttpAnswer) -> dict[str, Any] | None:
    """An answer's JSON object; None if it is none."""
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _says(answer: HttpAnswer, codes: tuple[int, ...]) -> bool:
    data = _document(answer)
    return data is not None and data.get("error_code") in codes


def _json(answer: HttpAnswer, base: str) -> Any:
    data = _document(answer)
    if data is None:
        raise errors.CorruptDataError(f"{base} answers with something else than a schema registry's JSON (status {answer.status})")
    return data


_kept: dict[RegistryOptions, Registry] = {}
_lock = threading.Lock()


def shared(options: RegistryOptions) -> Registry:
    """The registry of this process: tasks that follow each other ask for a schema once."""
    with _lock:
        found = _kept.get(options)
        if found is None:
            found = _kept[options] = Registry(options)
        return found


def prefix_of(number: int) -> bytes:
    """What a value begins with that is written with the schema of this id."""
    return b"\0" + number.to_bytes(PREFIX_BYTES - 1, "big")


def split(value: bytes) -> tuple[int, bytes]:
    """A value's schema id and data.

    Raises:
        Undecodable: it does not begin like the wire format.
    """
    if len(value) < PREFIX_BYTES or value[0]:
        raise Undecodable(NOT_FRAMED)
    return int.from_bytes(value[1:PREFIX_BYTES], "big"), value[PREFIX_BYTES:]
