"""Schemas from a schema registry, by Confluent's HTTP interface, kept by id: a schema never changes under its id.

A value in the registry's wire format is a zero byte, the schema's id in four bytes, for Protobuf a list of message indexes, and the data.

Source: io.confluent.kafka.schemaregistry.client.rest.RestService, io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kafkacore import config_secrets, errors
from kafkacore.decode.values import Undecodable

PREFIX_BYTES = 5
TRIES = 5
BACKOFF_S = 0.2
TIMEOUT_S = 10.0
RETRIED = (408, 425, 429, 500, 502, 503, 504)
UNKNOWN_IDS = 10_000
UNKNOWN_S = 30.0
MAX_REFERENCES = 1_000
"""Of one schema, those of its references included."""
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
    """

    url: str
    user_info: str | None = None
    token: str | None = None
    when: str = ""
    called: str = "option schema.registry.url"


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
        self._headers: dict[str, str] = {}
        self._called = options.called
        self._bases: list[tuple[str, Any]] = []
        self._resolve()
        self._sleep, self._clock = sleep, clock
        self._client: Any = None
        self._lock = threading.Lock()
        self._by_id: dict[tuple[int, str], Schema] = {}
        self._unknown: dict[int, float] = {}

    def _resolve(self) -> bool:
        """Puts the secrets in place; whether they are others than before.

        Raises:
            errors.ConfigError: a URL is not http or https, or a secret is not there.
        """
        options, before = self._options, (self._headers, self._bases)
        bases: list[tuple[str, Any]] = []
        given = {
            name: config_secrets.resolve(f"schema.registry.{name}", value, options.when)
            for name, value in (("url", options.url), ("basic.auth.user.info", options.user_info), ("bearer.auth.token", options.token))
            if value is not None
        }
        login, token = given.get("basic.auth.user.info"), given.get("bearer.auth.token")
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        for each in given["url"].split(","):
            parts = urlsplit(each.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise errors.ConfigError(f"{options.called} must be like https://host:8081, or several separated by commas")
            info, _, place = parts.netloc.rpartition("@")
            user, _, password = (info or login or "").partition(":")
            # Userinfo is taken out: httpx writes URLs into its log.
            base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
            auth = (unquote(user), unquote(password)) if info else (user, password)
            bases.append((base, auth if user else None))
        self._headers, self._bases = headers, bases
        return before != (headers, bases)

    def close(self) -> None:
        """Lets go of the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

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
        with self._lock:
            found = self._by_id.get((number, kind))
            if found is None:
                answer = None
                if patient or self._clock() - self._unknown.get(number, -UNKNOWN_S) >= UNKNOWN_S:
                    answer = self._get(f"/schemas/ids/{number}{_form(kind)}", (NO_SCHEMA,), tries=TRIES if patient else 1)
                if answer is None:
                    if len(self._unknown) >= UNKNOWN_IDS:
                        self._unknown.clear()
                    if not patient:
                        self._unknown[number] = self._clock()
                    raise UnusableSchema(f"the schema registry {self.places} has no schema {number}")
                found = self._by_id[number, kind] = self._schema(answer, kind, f"schema {number}")
            if found.kind != kind:
                raise UnusableSchema(f"schema {number} of the schema registry {self.places} is of the type {found.kind}, not {kind}")
            return found

    @property
    def places(self) -> str:
        """The addresses, without who asks."""
        return ", ".join(base for base, _ in self._bases)

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
        found = self._schema(answer, kind, f"subject {subject!r}")
        if found.kind != kind:
            raise errors.ConfigError(f"the schema of subject {subject!r} is of the type {found.kind}, not {kind}")
        number = answer.get("id")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 31:
            raise errors.CorruptDataError(f"the schema registry's answer for subject {subject!r} holds no id: {number!r:.60}")
        return number, found

    def _schema(self, answer: Any, kind: str, what: str, depth: int = 0, known: dict[tuple[str, int], Schema] | None = None) -> Schema:
        """The schema of an answer with its references; what several refer to is asked for once."""
        known = {} if known is None else known
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise errors.CorruptDataError(f"the schema registry's answer for {what} holds no schema")
        if depth > 32:
            raise errors.CorruptDataError(f"the schema registry's {what} has references more than 32 deep")
        references = []
        for each in answer.get("references") or ():
            name, subject, version = each["name"], each["subject"], int(each["version"])
            referred = known.get((subject, version))
            if referred is not None:
                references.append((str(name), referred))
                continue
            found = self._get(f"/subjects/{quote(str(subject), safe='')}/versions/{version}{_form(kind)}", NO_SUBJECT, tries=TRIES)
            if found is None:
                raise errors.CorruptDataError(f"{what} refers to subject {subject!r} version {version}, which the schema registry lacks")
            referred = self._schema(found, kind, f"subject {subject!r}", depth + 1, known)
            known[subject, version] = referred
            if len(known) > MAX_REFERENCES:
                raise errors.CorruptDataError(f"the schema registry's {what} has more than {MAX_REFERENCES} references")
            references.append((str(name), referred))
        return Schema(str(answer.get("schemaType") or "AVRO"), answer["schema"], tuple(references))

    def _get(self, path: str, absent: tuple[int, ...], tries: int = 1) -> Any:
        """Asks; None when the registry knows no such thing. Tries again what may pass, at each address.

        Args:
            path: of the question.
            absent: the registry's codes for that there is no such thing. Another 404 is not a registry's.
            tries: how often it may say so before it is believed.

        Raises:
            WrongPlace: there is no schema registry at this URL.
            errors.KafkaError: it does not answer, or refuses.
        """
        import httpx

        why = ""
        for attempt in range(TRIES):
            unknown = 0
            if attempt:
                self._sleep(BACKOFF_S * 2 ** (attempt - 1))
            for base, auth in self._bases:
                if self._client is None:
                    self._client = httpx.Client(timeout=TIMEOUT_S, headers=self._headers, follow_redirects=False)
                try:
                    answer = self._client.get(base + path, auth=auth)
                except httpx.TransportError as error:
                    why = f"{base}: {type(error).__name__}: {error}"
                    continue
                if answer.status_code == 200:
                    return _json(answer, base)
                if answer.status_code == 404:
                    if not _says(answer, absent):
                        raise WrongPlace(
                            f"{self._called}: there is no schema registry at {base}: HTTP status 404 for {base}{path}, "
                            f"without the code of one ({' or '.join(map(str, absent))})"
                        )
                    unknown += 1
                    continue
                why = f"{base}: HTTP status {answer.status_code} for {path}"
                if answer.status_code in (401, 403):
                    if self._has_changed():
                        return self._get(path, absent, tries)
                    raise errors.AuthenticationFailedError(f"the schema registry does not let us in: {why}")
                if answer.status_code not in RETRIED:
                    raise errors.UsageError(f"the schema registry refuses: {why}")
            if unknown and (attempt + 1 == TRIES or (unknown == len(self._bases) and attempt + 1 >= tries)):
                return None
        raise errors.KafkaTimeoutError(f"the schema registry could not be asked, {TRIES} tries: {why}")


    def _has_changed(self) -> bool:
        """Whether there is another token or password by now; it is used from here on."""
        try:
            changed = self._resolve()
        except errors.ConfigError:
            return False  # gone, or half written: what was there before was refused, and that is the error
        if changed:
            self.close()
        return changed


def _form(kind: str) -> str:
    return "?format=serialized" if kind == "PROTOBUF" else ""


def _says(answer: Any, codes: tuple[int, ...]) -> bool:
    try:
        data = answer.json()
    except ValueError:
        return False
    return isinstance(data, dict) and data.get("error_code") in codes


def _json(answer: Any, base: str) -> Any:
    try:
        data = answer.json()
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise errors.CorruptDataError(f"{base} answers with something else than a schema registry's JSON (status {answer.status_code})")
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
