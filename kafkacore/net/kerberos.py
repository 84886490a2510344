"""Kerberos by the package gssapi: tickets for a client's connections, and a broker's check of them.

Rules:

1. A ticket may have to come from the KDC, over the network and with time-outs of libkrb5's own. So each connection's context starts on a
   helper thread (net/background.py), before there is a connection; what follows (the broker's proof, the last message) is local and done
   in place. There is a thread per connection at most, `TICKETS_ASKED` per client: a KDC that hangs holds only these. No call can be ended
   from outside: where one takes too long its connection's attempt fails, and the next attempt waits for the same call.
   [test_a_kdc_that_hangs_holds_a_few_threads, test_while_the_kdc_hangs_other_connections_go_on,
   test_a_kdc_that_hangs_fails_each_attempt_and_is_asked_once]
2. A context serves one connection, once. Credentials are looked for each time, so a ticket that kinit has renewed, or a keytab that has
   changed, counts from the next connection on, and for sessions that are renewed (KIP-368). [test_a_context_serves_one_connection_once,
   test_a_keytab_that_is_replaced_counts_at_once, test_a_ticket_that_has_expired_and_is_renewed]
3. Tickets got by a keytab are kept in memory for the whole process, by principal and keytab: libkrb5 gets new ones when half their life
   has passed. A broker that refuses one may have other keys by now, so the next connection logs in again; not again within a minute, then
   two, up to an hour, since libkrb5 frees no cache. [test_a_ticket_that_a_broker_refuses_is_not_shown_for_ever,
   test_whom_brokers_go_on_refusing_logs_in_at_longer_and_longer_intervals]
4. A KDC that cannot be reached, or is busy, is a `NetworkError`: clients try again. Everything else that it says is an
   `AuthenticationFailedError`. [test_a_kdc_that_is_down_is_no_refusal, test_old_keys_are_refused_by_the_kdc]
5. Nothing here goes on by itself: an attempt fails, and the connection's back-off says when the next one is due.
   [test_a_failure_is_raised_once_and_the_next_attempt_asks_again, test_tries_come_at_the_pace_of_the_back_off]

Source: RFC 2743, RFC 4120, RFC 4752; MIT Kerberos: lib/gssapi/krb5/acquire_cred.c.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from kafkacore.bounds import TICKETS_ASKED
from kafkacore.config_kerberos import BrokerKeytab, KerberosSettings
from kafkacore.errors import AuthenticationFailedError, ConfigError, KafkaError, NetworkError, SaslAuthentication
from kafkacore.metadata import NEVER_MS
from kafkacore.net.background import call_in_background
from kafkacore.net.channel import ConnectionId
from kafkacore.net.sasl_gssapi import GssapiClient
from kafkacore.printable import quoted

__all__ = ["Acceptor", "BrokerKeys", "Initiator", "KerberosLogin", "load"]

TICKET_TIMEOUT_MS = 10_000
"""For a ticket. libkrb5 itself goes on for longer, depending on how many KDCs there are."""
RELOGIN_MS, RELOGIN_MAX_MS = 60_000, 3_600_000
"""The first is Kafka's default of sasl.kerberos.min.time.before.relogin."""
FRESH_MS = 60_000
"""A context's first token says when it was made, and brokers take it for five minutes."""
_KRB5_ERRORS = -1_765_328_384
_TRANSIENT = {(_KRB5_ERRORS + each) % (1 << 32) for each in (29, 156, 220)}
"""KRB5KDC_ERR_SVC_UNAVAILABLE, KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE."""


@functools.cache
def load() -> Any:
    """The package gssapi.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        import gssapi
    except ImportError as error:
        extra = "GSSAPI needs the package gssapi, kafkacore's extra of that name: pip install gssapi"
        raise ConfigError(f"{extra} ({quoted(str(error))})") from None
    return gssapi


def _said(error: Any) -> str:
    """What a failure of the library says, as the KDC or libkrb5 words it. On the thread that it happened on: the text is kept by thread."""
    minor = [text for text in error.get_all_statuses(error.min_code, False) if text != "Success"]
    return quoted(" ".join(minor or error.get_all_statuses(error.maj_code, True)))


# ---- contexts


class _Context:
    """What both sides do with an established context."""

    def __init__(self) -> None:
        self._gss = load()
        self._raw: Any = None
        self.complete = False
        self.peer = ""

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._gss.exceptions.GSSError as error:
            raise SaslAuthentication(f"{what}: {_said(error)}") from error

    def wrap(self, message: bytes) -> bytes:
        with self._failing("a message cannot be wrapped"):
            wrapped: bytes = self._gss.raw.wrap(self._raw, message, False).message
            return wrapped

    def unwrap(self, message: bytes) -> bytes:
        with self._failing("a message was not wrapped by the other side"):
            own = bytes(bytearray(message))  # libkrb5 turns the message round in place, though bytes are for good
            found: bytes = self._gss.raw.unwrap(self._raw, own).message
            return found


class Initiator(_Context):
    """A client's side. Making it may ask the KDC, and blocks.

    Args:
        settings: whose ticket, and for which service.
        host: the broker's, as clients name it.
        login: counts on when tickets by keytab must not be older ones.

    Attributes:
        first: the first token.
        user: the principal that the ticket is of.

    Raises:
        NetworkError: the KDC cannot be reached.
        AuthenticationFailedError: there is no ticket.
    """

    def __init__(self, settings: KerberosSettings, host: str, login: int = 0) -> None:
        super().__init__()
        gss = self._gss
        self.peer = f"{settings.service}/{host}"
        self.user = settings.principal or ""
        try:
            self._credentials = _credentials(gss, settings, login)
            self.user = str(self._credentials.inquire(lifetime=False, usage=False, mechs=False).name)
            self._target = gss.Name(f"{settings.service}@{host}", gss.NameType.hostbased_service)
            self.first = self._next(None) or b""
        except gss.exceptions.GSSError as error:
            raise self._no_ticket(_said(error), error.min_code in _TRANSIENT) from error
        except OSError as error:
            raise self._no_ticket(f"the keytab cannot be read: {error.strerror}", False) from error

    def _no_ticket(self, why: str, is_transient: bool) -> KafkaError:
        who = f" of {self.user!r}" if self.user else ""
        text = f"GSSAPI authentication{who} failed: no Kerberos ticket for {self.peer}: {why}"
        return NetworkError(text) if is_transient else AuthenticationFailedError(text)

    def _next(self, token: bytes | None) -> bytes | None:
        flags = self._gss.RequirementFlag
        made = self._gss.raw.init_sec_context(
            self._target, self._credentials, self._raw, self._gss.MechType.kerberos,
            flags.mutual_authentication | flags.integrity, input_token=token,
        )  # fmt: skip
        self._raw, self.complete = made.context, not made.more_steps
        answer: bytes | None = made.token
        return answer

    def step(self, token: bytes) -> bytes | None:
        with self._failing(f"the broker does not prove that it is {self.peer}"):
            return self._next(token)


_logging_in: dict[str, threading.Lock] = {}


def _credentials(gss: Any, settings: KerberosSettings, login: int) -> Any:
    name = None if settings.principal is None else gss.Name(settings.principal, gss.NameType.kerberos_principal)
    acquired = functools.partial(gss.Credentials, name=name, usage="initiate", mechs=[gss.MechType.kerberos])
    if settings.keytab is None:
        return acquired(store={"ccache": settings.ticket_cache}) if settings.ticket_cache else acquired()
    known = os.stat(settings.keytab)
    of = repr((login, settings.principal, os.path.realpath(settings.keytab), known.st_mtime_ns, known.st_ino, known.st_size))
    cache = f"MEMORY:kafkacore-{hashlib.sha256(of.encode()).hexdigest()}"
    with _logging_in.setdefault(cache, threading.Lock()):  # a login empties the cache first, and others would find nothing in it
        try:
            found = acquired(store={"client_keytab": settings.keytab, "ccache": cache})
            found.inquire(lifetime=False, usage=False, mechs=False)  # logs in now, if that is due
        except gss.exceptions.GSSError:
            # Of a keytab that has no key of the principal it says that there is no ticket; as a service's it says why.
            gss.Credentials(name=name, usage="accept", mechs=[gss.MechType.kerberos], store={"keytab": settings.keytab})
            raise
    return found


class Acceptor(_Context):
    """A broker's side. Reads the keytab and nothing else.

    Args:
        credentials: of `BrokerKeys`.
    """

    def __init__(self, credentials: Any) -> None:
        super().__init__()
        self._credentials = credentials

    def step(self, token: bytes) -> bytes | None:
        with self._failing("the client's Kerberos ticket is refused"):
            made = self._gss.raw.accept_sec_context(token, self._credentials, self._raw)
            self._raw, self.complete = made.context, not made.more_steps
            if self.complete:
                self.peer = str(self._gss.Name(made.initiator_name))
        answer: bytes | None = made.token
        return answer


class BrokerKeys:
    """The keys by which a broker checks tickets.

    Args:
        settings: where they are.

    Attributes:
        default_realm: of krb5.conf; empty if it names no realm.

    Raises:
        ConfigError: the package is missing, or the keytab cannot be used.
    """

    def __init__(self, settings: BrokerKeytab) -> None:
        gss = load()
        try:
            with open(settings.keytab, "rb"):
                pass
            name = None if settings.principal is None else gss.Name(settings.principal, gss.NameType.kerberos_principal)
            store = {"keytab": settings.keytab}
            self._credentials = gss.Credentials(name=name, usage="accept", mechs=[gss.MechType.kerberos], store=store)
            nobody = gss.Name("nobody", gss.NameType.kerberos_principal)
            self.default_realm = str(nobody.canonicalize(gss.MechType.kerberos)).partition("@")[2]
        except OSError as error:
            raise ConfigError(f"sasl_jaas_config: keytab {settings.keytab!r} cannot be read: {error.strerror}") from None
        except gss.exceptions.GSSError as error:
            raise ConfigError(f"sasl_jaas_config: keytab {settings.keytab!r} cannot be used: {_said(error)}") from None

    def context(self) -> Acceptor:
        """A context for one client."""
        return Acceptor(self._credentials)


# ---- a client's tickets


class _Wanted:
    """The context that one connection is to have."""

    __slots__ = ("deadline_ms", "host", "is_late", "made_ms", "outcome")

    def __init__(self, host: str) -> None:
        self.host = host
        self.deadline_ms = NEVER_MS
        self.is_late = False
        self.made_ms = 0
        self.outcome: Initiator | BaseException | None = None


class KerberosLogin:
    """The tickets of one client; see the rules at the top of the file.

    Args:
        settings: whose tickets, and for which service.
        begin: makes a context; may block.

    Attributes:
        on_answer: called on the helper thread when a context is there: the owner is to call `advance`, and `ready` for who waits.

    Raises:
        ConfigError: the package is missing, or the keytab cannot be read.
    """

    def __init__(self, settings: KerberosSettings, begin: Callable[[KerberosSettings, str, int], Initiator] = Initiator) -> None:
        load()
        if settings.keytab is not None:
            try:
                with open(settings.keytab, "rb"):
                    pass
            except OSError as error:
                raise ConfigError(f"keytab {settings.keytab!r} cannot be read: {error.strerror}") from None
        self._settings = settings
        self._initiator = begin
        self._wanted: dict[ConnectionId, _Wanted] = {}
        self._waiting: deque[_Wanted] = deque()
        self._asking: set[_Wanted] = set()
        self._answers: deque[tuple[_Wanted, Any]] = deque()
        self._login = 0
        self._is_refused = False
        self._relogin_ms = -NEVER_MS
        self.on_answer: Callable[[], None] = lambda: None

    @property
    def deadline_ms(self) -> int:
        """When `advance` has something to do without an answer."""
        return min((each.deadline_ms for each in self._wanted.values()), default=NEVER_MS)

    def ready(self, now_ms: int, id: ConnectionId, host: str) -> bool:
        """Whether a connection has its context; if not, it is being made now.

        Args:
            now_ms: the time.
            id: of the connection.
            host: of the broker.

        Raises:
            NetworkError: the KDC cannot be reached, or does not answer.
            AuthenticationFailedError: there is no ticket.
        """
        self._take_answers(now_ms)
        if self._is_refused and now_ms >= self._relogin_ms:
            self._is_refused = False
            self._relogin_ms = now_ms + min(RELOGIN_MS << min(self._login, 16), RELOGIN_MAX_MS)
            self._login += 1
        wanted = self._wanted.get(id)
        if wanted is not None and isinstance(wanted.outcome, BaseException):
            del self._wanted[id]
            raise self._failure(wanted)
        if wanted is not None and wanted.host == host and wanted.outcome is not None and now_ms - wanted.made_ms <= FRESH_MS:
            return True
        if wanted is None or wanted.host != host or wanted.outcome is not None:
            wanted = self._wanted[id] = _Wanted(host)
            self._waiting.append(wanted)
        if wanted.is_late or now_ms >= wanted.deadline_ms:
            wanted.deadline_ms, wanted.is_late = NEVER_MS, False
            raise NetworkError(f"{self._title(host)}: no answer within {TICKET_TIMEOUT_MS} ms")
        if wanted.deadline_ms == NEVER_MS:
            wanted.deadline_ms = now_ms + TICKET_TIMEOUT_MS
        self._begin()
        return False

    def client(self, id: ConnectionId) -> GssapiClient:
        """The machine of a connection that is `ready`.

        Raises:
            AuthenticationFailedError: it is not.
        """
        wanted = self._wanted.pop(id, None)
        if wanted is None or not isinstance(wanted.outcome, Initiator):
            raise AuthenticationFailedError("GSSAPI authentication failed: no Kerberos ticket was asked for")
        context = wanted.outcome
        return GssapiClient(context, context.first, context.user, context.peer, self._refused)

    def _refused(self) -> None:
        self._is_refused = True

    def advance(self, now_ms: int) -> None:
        """Takes answers, and ends waits whose time is up: `ready` says so to who still waits."""
        self._take_answers(now_ms)
        for wanted in self._wanted.values():
            if now_ms >= wanted.deadline_ms:
                wanted.deadline_ms, wanted.is_late = NEVER_MS, True
        self._begin()

    def _take_answers(self, now_ms: int) -> None:
        while self._answers:
            wanted, outcome = self._answers.popleft()
            self._asking.discard(wanted)
            wanted.outcome, wanted.made_ms = outcome, now_ms
            wanted.deadline_ms, wanted.is_late = NEVER_MS, False

    def close(self) -> None:
        """Forgets everything. Calls that are under way end by themselves."""
        self._wanted.clear()
        self._waiting.clear()

    def _begin(self) -> None:
        while self._waiting and len(self._asking) < TICKETS_ASKED:
            wanted = self._waiting.popleft()
            if wanted in self._wanted.values():  # else its node has another address by now
                self._asking.add(wanted)
                self._ask(wanted)

    def _ask(self, wanted: _Wanted) -> None:
        call = functools.partial(self._initiator, self._settings, wanted.host, self._login)
        call_in_background(f"kafkacore-kerberos-{wanted.host}", call, lambda outcome: self._answered(wanted, outcome))

    def _answered(self, wanted: _Wanted, outcome: Any) -> None:
        """Called on the helper thread."""
        self._answers.append((wanted, outcome))
        self.on_answer()

    def _title(self, host: str) -> str:
        who = f" of {self._settings.principal!r}" if self._settings.principal else ""
        return f"GSSAPI authentication{who} failed: no Kerberos ticket for {self._settings.service}/{host}"

    def _failure(self, wanted: _Wanted) -> KafkaError:
        error = wanted.outcome
        if isinstance(error, KafkaError):
            return error
        failed = AuthenticationFailedError(f"{self._title(wanted.host)}: {type(error).__name__}")
        failed.__cause__ = error if isinstance(error, BaseException) else None
        return failed
