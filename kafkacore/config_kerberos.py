"""Kerberos in settings: whose ticket a client shows, and the keys of a broker. No I/O.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/alice.keytab" principal="alice@EXAMPLE.COM";
    com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;

Rules:

1. A client has a keytab, or else the tickets that kinit, or the login, keeps in a cache. No password is asked for. [test_whose_ticket,
   test_what_contradicts_about_tickets]
2. Where neither settings nor a JAAS line name any of it, MIT's own rules apply: KRB5CCNAME, KRB5_CLIENT_KTNAME, krb5.conf.
   [test_whose_ticket]
3. An option of Java's that would do something here that is not done is refused. [test_what_contradicts_about_tickets]

Source: com.sun.security.auth.module.Krb5LoginModule, org.apache.kafka.common.security.kerberos.KerberosLogin; librdkafka's settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkacore.errors import ConfigError

KRB5_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
DEFAULT_SERVICE = "kafka"
_WHICH = {"useKeyTab", "keyTab", "useTicketCache", "ticketCache", "principal", "serviceName"}
_AS_IT_IS = {
    "storeKey": (),
    "doNotPrompt": (),
    "isInitiator": (),
    "refreshKrb5Config": ("true",),
    "renewTGT": ("false",),
    "debug": ("false",),
}
"""Options whose values, or those named here, say what is so anyway: keys are at hand, nothing prompts, krb5.conf is read each time."""
_SERVICE = re.compile(r"[^\s/@\0]+")


class KerberosSettings(NamedTuple):
    """Where a client's ticket comes from, and what it is for.

    Attributes:
        service: the service's name, the part of a broker's principal before the slash.
        principal: who the client is; None: the first in the cache or the keytab.
        keytab: a file with the principal's keys; None: a ticket is there already.
        ticket_cache: where it is; None: the system's default.
    """

    service: str = DEFAULT_SERVICE
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


class BrokerKeytab(NamedTuple):
    """A broker's keys.

    Attributes:
        keytab: the file.
        principal: the only one that tickets may be for; None: each of this file's.
    """

    keytab: str
    principal: str | None


@dataclass(frozen=True, kw_only=True)
class BrokerKerberos:
    """The Kerberos settings of a broker; GSSAPI must be among `sasl_enabled_mechanisms`.

    Attributes:
        sasl_kerberos_service_name: the part of the brokers' principals before the slash, as kafka.
        sasl_kerberos_principal_to_local_rules: what makes a user's name of a principal: RULE:[n:string](pattern)s/from/to/g with /L or /U
            behind it for small or capital letters, and DEFAULT, the first part of names in the default realm; the first that fits counts.
        gssapi_sasl_jaas_config: Krb5LoginModule with the broker's keytab and principal, for all listeners, or by listener: as
            listener.name.NAME.gssapi.sasl.jaas.config.
    """

    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = ("DEFAULT",)
    gssapi_sasl_jaas_config: str | Mapping[str, str] | None = field(default=None, repr=False)


_OF_LISTENER = re.compile(r"listener[._]name[._](?P<listener>.+?)[._]gssapi[._]sasl[._]jaas[._]config")


def gathered_by_listener(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A broker's settings, the JAAS lines of its listeners as the one setting `gssapi_sasl_jaas_config`."""
    matches = {given: _OF_LISTENER.fullmatch(given) for given in settings if isinstance(given, str)}
    lines = {match["listener"].upper(): settings[given] for given, match in matches.items() if match is not None}
    found = {given: value for given, value in settings.items() if matches.get(given) is None}
    return found | {"gssapi_sasl_jaas_config": lines} if lines else found


def _is_true(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"sasl_jaas_config: {name} must be true or false")
    return value == "true"


def _checked(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name in _WHICH:
            continue
        if name not in _AS_IT_IS:
            raise ConfigError(f"sasl_jaas_config: option {name} is not known for Krb5LoginModule here")
        is_true = _is_true(options, name)
        if _AS_IT_IS[name] and value.lower() not in _AS_IT_IS[name]:
            hint = {"renewTGT": "kinit -R renews tickets", "debug": "KRB5_TRACE=/dev/stderr shows what libkrb5 does"}.get(name)
            raise ConfigError(f"sasl_jaas_config: {name}={str(is_true).lower()} has no effect here" + (f": {hint}" if hint else ""))


def check_service(name: str) -> str:
    """A service's name as it is.

    Raises:
        ConfigError: it is none.
    """
    if not _SERVICE.fullmatch(name):
        raise ConfigError(f"sasl_kerberos_service_name is the part of a broker's principal before the slash, as kafka, not {name!r}")
    return name


def _service(name: str | None, options: Mapping[str, str]) -> str:
    own = options.get("serviceName")
    if own is not None and name is not None and own != name:
        raise ConfigError(f"sasl_jaas_config has serviceName={own}, and sasl_kerberos_service_name is {name}")
    return check_service(DEFAULT_SERVICE if own is None and name is None else name or own or "")


def kerberos_settings(
    service: str | None, principal: str | None, keytab: str | None, options: Mapping[str, str] | None = None
) -> KerberosSettings:
    """A client's settings.

    Args:
        service, principal, keytab: sasl_kerberos_service_name and so on.
        options: of Krb5LoginModule, if there is a JAAS line.

    Raises:
        ConfigError: they contradict each other, or would be ignored.
    """
    for name, value in (("sasl_kerberos_principal", principal), ("sasl_kerberos_keytab", keytab)):
        if value is not None and (not value or "\0" in value):
            raise ConfigError(f"{name} must not be empty")
        if value is not None and options is not None:
            raise ConfigError(f"{name} and sasl_jaas_config exclude each other")
    if options is None:
        return KerberosSettings(_service(service, {}), principal, keytab)
    _checked(options)
    uses_keytab, uses_cache = _is_true(options, "useKeyTab"), _is_true(options, "useTicketCache")
    if uses_keytab == uses_cache:
        raise ConfigError("sasl_jaas_config: Krb5LoginModule needs either useKeyTab=true or useTicketCache=true")
    if uses_keytab and not (options.get("keyTab") and options.get("principal")):
        raise ConfigError("sasl_jaas_config: useKeyTab=true needs keyTab, a file, and principal, who it is for")
    useless, switch = ("ticketCache", "useTicketCache") if uses_keytab else ("keyTab", "useKeyTab")
    if useless in options:
        raise ConfigError(f"sasl_jaas_config: {useless} has no effect without {switch}=true")
    return KerberosSettings(_service(service, options), options.get("principal"), _file(options, "keyTab"), options.get("ticketCache"))


def _file(options: Mapping[str, str], name: str) -> str | None:
    """A keytab's path; Java may have file: before it."""
    value = options.get(name)
    return None if value is None else re.sub(r"^(?i:file:)(?://(?=/))?", "", value)


def broker_keytab(service: str | None, options: Mapping[str, str]) -> BrokerKeytab:
    """A broker's keys, by its JAAS line.

    Args:
        service: sasl_kerberos_service_name.
        options: of Krb5LoginModule.

    Raises:
        ConfigError: something is missing, or would be ignored.
    """
    _checked(options)
    if not _is_true(options, "useKeyTab") or _is_true(options, "useTicketCache") or not options.get("keyTab"):
        raise ConfigError("sasl_jaas_config: a broker's Krb5LoginModule needs useKeyTab=true and keyTab")
    principal = options.get("principal")
    if not principal:
        needed = 'principal, as "kafka/host@REALM", or "*" for all of the keytab'
        raise ConfigError(f"sasl_jaas_config: a broker's Krb5LoginModule needs {needed}")
    if service is None and "serviceName" not in options:
        raise ConfigError("GSSAPI needs sasl_kerberos_service_name, as kafka: the part of the broker's principal before the slash")
    name = _service(service, options)
    if principal == "*":
        return BrokerKeytab(_file(options, "keyTab") or "", None)
    if re.split("[/@]", principal)[0] != name:
        raise ConfigError(f"sasl_jaas_config: principal {principal} is not of the service {name} that sasl_kerberos_service_name names")
    return BrokerKeytab(_file(options, "keyTab") or "", principal)
