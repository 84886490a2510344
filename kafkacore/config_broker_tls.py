"""TLS of a broker: Kafka's settings for its listeners, for all of them or one, and for its connections to other brokers.

    ssl.keystore.location=/etc/kafka/broker.pem             for each listener that is SSL or SASL_SSL
    listener.name.internal.ssl.client.auth=required         for the one named INTERNAL alone

Rules:

1. A listener has its own value of a setting, or else that without the prefix. A setting that no listener uses is refused.
   [test_a_listener_of_a_broker_has_its_own_value_or_that_of_all]
2. Brokers connect to each other with certificate and authorities of the inter-broker listener. [test_three_brokers,
   test_brokers_renew_their_own_connections]
3. A broker that asks clients for a certificate is given the authorities to trust. (Kafka falls back to those that Java came with: each
   holder of a certificate for some web site would be let in.) [test_a_listener_of_a_broker_has_its_own_value_or_that_of_all]
4. Python's ssl module cannot choose among TLS 1.3's suites: `ssl.cipher.suites` names them all or none. [test_versions_and_suites]

Source: org.apache.kafka.common.config.SslConfigs, internals.BrokerSecurityConfigs, org.apache.kafka.common.network.ListenerName.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkacore.config_authorizer import check_authorizer
from kafkacore.config_listeners import Listener, inter_broker
from kafkacore.config_tls import TLS_VERSIONS, ContextSource, TlsSettings, check_stores, cipher_names, own_certificate, stores_of
from kafkacore.config_values import convert, one_of
from kafkacore.errors import ConfigError
from kafkacore.principals import MappingRules, subject_of

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
_RULES = "ssl_principal_mapping_rules"
CLIENT_AUTH = ("none", "requested", "required")


@dataclass(frozen=True, kw_only=True)
class BrokerTls:
    """The TLS settings of a broker.

    Attributes:
        ssl_keystore_location, ssl_keystore_type: file of the broker's certificate chain and key, as PEM or PKCS12; without a type its
            content decides.
        ssl_keystore_password: of a PKCS12 file.
        ssl_keystore_certificate_chain, ssl_keystore_key: the same as PEM text.
        ssl_key_password: of the key, where it is PEM.
        ssl_truststore_location, ssl_truststore_type: file of the authorities that clients' and other brokers' certificates come from.
        ssl_truststore_password: of a PKCS12 file.
        ssl_truststore_certificates: the same as PEM text.
        ssl_client_auth: whether clients of listeners that are SSL show a certificate: none, requested (who has one) or required. For one
            that is SASL_SSL listener.name.NAME.ssl.client.auth says so (KIP-684).
        ssl_enabled_protocols: TLSv1.2, TLSv1.3 or both.
        ssl_cipher_suites: by their standard names, as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384; OpenSSL's choice if left out. Of TLS 1.3's
            all or none are named, since Python's ssl module cannot choose among them.
        ssl_endpoint_identification_algorithm: https: another broker's certificate must name the host connected to; empty: it need not.
        ssl_principal_mapping_rules: what makes a user's name of a certificate's: RULE:pattern/replacement/ with L or U behind it for small
            or capital letters, and DEFAULT, the whole name; the first that fits counts.
        listener_name_settings: settings of one listener, by its name: as listener.name.NAME.ssl.keystore.location and the like.
    """

    ssl_keystore_location: str | None = None
    ssl_keystore_type: str | None = None
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str | None = None
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_client_auth: str = one_of("none", *CLIENT_AUTH)
    ssl_enabled_protocols: tuple[str, ...] = TLS_VERSIONS
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_endpoint_identification_algorithm: str = one_of("https", "https", "")
    ssl_principal_mapping_rules: str = "DEFAULT"
    listener_name_settings: Mapping[str, Mapping[str, Any]] | None = field(default=None, repr=False)


_FIELDS = {each.name: each for each in dataclasses.fields(BrokerTls) if each.name != "listener_name_settings"}
_PREFIXED = re.compile(rf"listener[._]name[._](?P<listener>.+)[._](?P<name>{'|'.join(each.replace('_', '[._]') for each in _FIELDS)})")
_HINTS = {name: hint for name, hint in typing.get_type_hints(BrokerTls).items() if name in _FIELDS}


class ListenerTls(NamedTuple):
    """What one listener's settings say.

    Attributes:
        server: of the context that accepts connections.
        client: of the context of connections to the same listener of other brokers.
        rules: how certificates name users.
    """

    server: TlsSettings
    client: TlsSettings
    rules: MappingRules


def field_of(name: str) -> str:
    """The field of a setting, without the prefix of a listener.

    Args:
        name: in either spelling.
    """
    match = _PREFIXED.fullmatch(name)
    return (name if match is None else match["name"]).replace(".", "_")


def gathered(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A user's settings, those with a listener's prefix as the one setting `listener_name_settings`.

    Raises:
        ConfigError: one of them is given twice.
    """
    found: dict[str, Any] = {}
    prefixed: dict[str, dict[str, Any]] = {}
    for given, value in settings.items():
        match = _PREFIXED.fullmatch(given) if isinstance(given, str) else None
        if match is None:
            found[given] = value
            continue
        own = prefixed.setdefault(match["listener"].upper(), {})
        name = match["name"].replace(".", "_")
        if name in own:
            raise ConfigError(f"setting {given!r} is given twice")
        own[name] = value
    if prefixed:
        if "listener_name_settings" in found:
            raise ConfigError("listener_name_settings and settings with a listener's prefix exclude each other")
        found["listener_name_settings"] = prefixed
    return found


def _values(config: BrokerTls, listener: Listener) -> dict[str, Any]:
    """A listener's values, its own before those of all."""
    name = listener.name
    own = (config.listener_name_settings or {}).get(name, {})
    if listener.protocol != "SSL":
        own = {"ssl_client_auth": "none", **own}
    values = {}
    for each, described in _FIELDS.items():
        value = getattr(config, each)
        if each in own:
            shown = f"listener.name.{name.lower()}.{each.replace('_', '.')}"
            try:
                value = convert(_HINTS[each], own[each])
            except ValueError as failure:
                raise ConfigError(f"{shown} must be {failure}") from None
            check = described.metadata.get("check")
            if problem := check.problem(value) if check is not None else None:
                raise ConfigError(f"{shown} {problem}, not {value!r}")
        values[each] = value.upper() if each.endswith("_type") and isinstance(value, str) else value
    return values


def tls_of(config: BrokerTls, listener: Listener) -> ListenerTls:
    """What the settings say of one listener.

    Args:
        config: the broker's settings.
        listener: one that is SSL or SASL_SSL.

    Raises:
        ConfigError: something is missing, or contradicts something else.
    """
    name = listener.name
    values = _values(config, listener)
    try:
        check_stores(values, "ssl_key_password")
        ca, own, key = stores_of(values, "ssl_key_password")
        if own.path is None and own.text is None:
            raise ConfigError("ssl_keystore_location, or ssl_keystore_certificate_chain and ssl_keystore_key, must name a certificate")
        auth = values["ssl_client_auth"]
        if auth != "none" and ca.path is None and ca.text is None:
            raise ConfigError(f"ssl_client_auth={auth} needs ssl_truststore_location or ssl_truststore_certificates: whom to let in")
        versions = values["ssl_enabled_protocols"]
        if not versions or (unknown := [each for each in versions if each not in TLS_VERSIONS]):
            raise ConfigError(f"ssl_enabled_protocols may hold {' and '.join(TLS_VERSIONS)}, not {unknown[0] if versions else 'nothing'}")
        suites = values["ssl_cipher_suites"]
        cipher_names(suites, versions)
        rules = MappingRules(values["ssl_principal_mapping_rules"])
    except ConfigError as error:
        raise ConfigError(f"listener {name}: {error.message}") from None
    server = TlsSettings(ca, own, key, False, versions, suites, auth)
    check_hostname = values["ssl_endpoint_identification_algorithm"] == "https"
    unchecked = "ssl.endpoint.identification.algorithm is empty"
    return ListenerTls(server, TlsSettings(ca, own, key, check_hostname, versions, suites, unchecked=unchecked), rules)


def check_tls(config: BrokerTls, listeners: Sequence[Listener]) -> None:
    """Rules between a broker's TLS settings and its listeners. Reads no file.

    Raises:
        ConfigError: one is missing, contradicts another, or would be ignored.
    """
    by_certificate = [each.name for each in listeners if each.protocol == "SSL"]
    encrypted = [each.name for each in listeners if each.protocol in TLS_PROTOCOLS]
    for name in config.listener_name_settings or {}:
        if name not in encrypted:
            why = "is not SSL or SASL_SSL" if name in [each.name for each in listeners] else "does not exist"
            raise ConfigError(f"settings with the prefix listener.name.{name.lower()} have no effect: this listener {why}")
    if not encrypted:
        given = [name for name, each in _FIELDS.items() if getattr(config, name) != each.default]
        if given:
            raise ConfigError(f"{given[0]} has no effect without a listener that is SSL or SASL_SSL")
    if encrypted and not by_certificate and config.ssl_client_auth != "none":
        how = f"listener.name.{encrypted[0].lower()}.ssl.client.auth is for one that is SASL_SSL"
        raise ConfigError(f"ssl_client_auth has no effect without a listener that is SSL; {how}")
    for name in ("", *(config.listener_name_settings or {})):
        rules = config.ssl_principal_mapping_rules if not name else (config.listener_name_settings or {})[name].get(_RULES, "DEFAULT")
        if rules != "DEFAULT" and (name not in by_certificate if name else not by_certificate):
            raise ConfigError("ssl_principal_mapping_rules has no effect on listeners that are SASL_SSL: SASL says who a client is")
    for each in listeners:
        if each.protocol in TLS_PROTOCOLS:
            tls_of(config, each)


def same_tls(one: BrokerTls, other: BrokerTls) -> bool:
    """Whether two brokers' settings say the same of TLS."""
    return all(getattr(one, each.name) == getattr(other, each.name) for each in dataclasses.fields(BrokerTls))


class BrokerContexts(NamedTuple):
    """The contexts of a broker.

    Attributes:
        listeners: what gives those of accepted connections, by listener.
        rules: how certificates name users, by listener.
        peers: what gives those of connections to other brokers; None where these are not encrypted.
    """

    listeners: dict[str, Callable[[], ssl.SSLContext]]
    rules: dict[str, MappingRules]
    peers: Callable[[], ssl.SSLContext] | None


def broker_contexts(config: Any, listeners: Sequence[Listener]) -> BrokerContexts:
    """Reads certificates and keys.

    Args:
        config: a `BrokerConfig`.
        listeners: what it says.

    Raises:
        ConfigError: a file is missing, or holds no usable certificate or key; brokers could not do what they must by its name.
    """
    tls = {each.name: tls_of(config, each) for each in listeners if each.protocol in TLS_PROTOCOLS}
    among_brokers = inter_broker(config, listeners)
    own = tls.get(among_brokers.name)
    contexts = BrokerContexts(
        {name: ContextSource(each.server) for name, each in tls.items()},
        {name: each.rules for name, each in tls.items()},
        None if own is None else ContextSource(own.client),
    )
    if own is not None and among_brokers.protocol == "SSL" and own.server.client_auth != "none":
        shown = own_certificate(own.client)
        user = None if shown is None else own.rules.name(subject_of(shown))
        if shown is not None and user is None:
            raise ConfigError(f"ssl_principal_mapping_rules: none fits the brokers' own certificate, {subject_of(shown)}")
        check_authorizer(config, f"User:{user}")
    return contexts


def client_stores(config: BrokerTls, listener: Listener) -> dict[str, Any]:
    """Settings of a client with the certificates of the brokers themselves.

    Args:
        config: the brokers' settings.
        listener: one that is SSL or SASL_SSL.
    """
    values = _values(config, listener)
    stores = {each: value for each, value in values.items() if each.startswith(("ssl_keystore", "ssl_truststore")) and value is not None}
    password = values["ssl_key_password"]
    checks = values["ssl_endpoint_identification_algorithm"] == "https"
    return stores | ({} if password is None else {"ssl_password": password}) | ({} if checks else {"ssl_check_hostname": False})
