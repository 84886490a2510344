"""The listeners of a broker: where it listens, what each is called, and which address clients that come in there are given.

    listeners=CLIENTS://0.0.0.0:9092,INTERNAL://127.0.0.1:9192
    advertised.listeners=CLIENTS://kafka.example:9092                 a listener that is not named here advertises where it listens
    listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT
    inter.broker.listener.name=INTERNAL

Rules:

1. A client gets the addresses of the listener that it came in on, of every broker (KIP-103). Brokers reach each other over one of them.
   [test_a_client_is_given_the_addresses_of_the_listener_it_came_in_by, test_a_group_works_by_each_listener]
2. Port 0 lets the system choose, and is then advertised. Kafka has no such port. [test_a_broker_comes_back_on_all_its_ports,
   test_settings_are_described_as_they_are]
3. Where a listener is on every address of the machine, somebody must say which one clients reach: Kafka takes the machine's name for
   `NAME://:9092`, which a container cannot resolve from outside. [test_listeners_that_cannot_be]

What a listener that is SSL or SASL_SSL needs besides is in config_broker_tls.py.

Source: kafka.server.KafkaConfig.validateValues, org.apache.kafka.network.SocketServerConfigs, KIP-103, KIP-797.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kafkacore.config_values import string_list
from kafkacore.errors import ConfigError

LOOPBACK = "127.0.0.1"
DEFAULT_PROTOCOLS = ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")
_ADDRESS = re.compile(r"(?P<name>[^:/,\s]+)://(?:\[(?P<six>[0-9a-zA-Z:.%]*)\]|(?P<host>[0-9a-zA-Z\-%._]*)):(?P<port>\d+)")
_LAST_PORT = 65_535


class Listener(NamedTuple):
    """One listener.

    Attributes:
        name: in capital letters.
        host: where it listens; empty for every address of the machine.
        port: 0 until the system has chosen.
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        advertised_host: what clients are given; empty for `host`.
        advertised_port: 0 for `port`.
    """

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    advertised_host: str = ""
    advertised_port: int = 0

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that clients are given; port 0 before the system has chosen."""
        return self.advertised_host or self.host, self.advertised_port or self.port

    @property
    def address(self) -> str:
        """The same as host:port, for bootstrap_servers."""
        return joined(*self.advertised)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class ListenerSettings(Protocol):
    """The settings of `BrokerConfig` that say where a broker listens."""

    @property
    def listeners(self) -> tuple[str, ...] | None: ...
    @property
    def advertised_listeners(self) -> tuple[str, ...] | None: ...
    @property
    def listener_security_protocol_map(self) -> tuple[str, ...] | None: ...
    @property
    def inter_broker_listener_name(self) -> str | None: ...
    @property
    def security_inter_broker_protocol(self) -> str: ...


def joined(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_everywhere(host: str) -> bool:
    """Whether a listener at this host is on every address of the machine."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _addresses(setting: str, entries: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Host and port by name."""
    found: dict[str, tuple[str, int]] = {}
    for entry in entries:
        match = _ADDRESS.fullmatch(entry)
        if match is None or int(match["port"]) > _LAST_PORT:
            raise ConfigError(f"{setting}: {entry!r} is not of the form NAME://host:port, as PLAINTEXT://127.0.0.1:9092")
        name = match["name"].upper()
        if name in found:
            raise ConfigError(f"{setting}: each listener must have a different name, and {name} is there twice")
        found[name] = match["six"] or match["host"] or "", int(match["port"])
    return found


def _protocols(entries: Sequence[str] | None) -> Mapping[str, str]:
    """Protocol by name of listener."""
    if entries is None:
        return {name: name for name in DEFAULT_PROTOCOLS}
    found = {}
    for entry in entries:
        name, colon, protocol = (each.strip().upper() for each in entry.partition(":"))
        if not colon or not name or protocol not in DEFAULT_PROTOCOLS:
            raise ConfigError(f"listener_security_protocol_map: {entry!r} is not of the form NAME:PROTOCOL, as INTERNAL:PLAINTEXT")
        found[name] = protocol
    return found


def listeners_of(config: ListenerSettings, host: str = LOOPBACK, port: int = 0) -> tuple[Listener, ...]:
    """What the settings say.

    Args:
        config: the settings.
        host, port: of the only listener, where the settings name none.

    Returns:
        The listeners in their order.

    Raises:
        ConfigError: a setting has another form, contradicts another one, or asks for what is not implemented.
    """
    if config.listeners is None:
        for name in ("advertised_listeners", "listener_security_protocol_map", "inter_broker_listener_name"):
            if getattr(config, name) is not None:
                raise ConfigError(f"{name} has no effect without listeners")
        protocol = config.security_inter_broker_protocol
        return (Listener(protocol, host, port, protocol),)
    where = _addresses("listeners", config.listeners)
    if not where:
        raise ConfigError("listeners: a broker has at least one listener")
    advertised = _addresses("advertised_listeners", config.advertised_listeners or ())
    protocols = _protocols(config.listener_security_protocol_map)
    if unknown := [name for name in advertised if name not in where]:
        raise ConfigError(f"advertised_listeners: {unknown[0]} is not among the listeners ({', '.join(where)})")
    found = []
    for name, (its_host, its_port) in where.items():
        if name not in protocols:
            how = f"listener_security_protocol_map names one, as {name}:PLAINTEXT"
            raise ConfigError(f"no security protocol is defined for listener {name}: {how}")
        given_host, given_port = advertised.get(name, ("", 0))
        if is_everywhere(given_host or its_host):
            shown = joined(given_host or its_host, given_port or its_port)
            raise ConfigError(
                f"advertised_listeners must say where clients reach listener {name}, as {name}://192.168.1.5:{its_port or 9092}:"
                f" {shown} is every address of this machine, and none that a client can connect to"
            )
        if given_port and not its_port:
            raise ConfigError(f"listener {name}: advertised_listeners names port {given_port}, and listeners leaves it to the system (0)")
        found.append(Listener(name, its_host, its_port, protocols[name], given_host, given_port))
    for at, one in enumerate(found):
        for other in found[:at]:
            if one.port and one.port == other.port and (":" in one.host) == (":" in other.host) and _overlap(one.host, other.host):
                raise ConfigError(f"listeners: {other.name} and {one.name} have the same port {one.port}")
    _inter_broker(config, found)
    return tuple(found)


def _overlap(one: str, other: str) -> bool:
    return one == other or is_everywhere(one) or is_everywhere(other)


def _inter_broker(config: ListenerSettings, listeners: Sequence[Listener]) -> Listener:
    named = config.inter_broker_listener_name
    if named is not None:
        if config.security_inter_broker_protocol != "PLAINTEXT":
            raise ConfigError("inter_broker_listener_name and security_inter_broker_protocol exclude each other")
        found = [each for each in listeners if each.name == named.upper()]
        setting = "inter_broker_listener_name"
    else:
        found = [each for each in listeners if each.name == config.security_inter_broker_protocol]
        setting = "security_inter_broker_protocol"
    if not found:
        names = ", ".join(each.name for each in listeners)
        wanted = named or config.security_inter_broker_protocol
        raise ConfigError(f"{setting}: there is no listener {wanted}; inter_broker_listener_name names the one for brokers, of {names}")
    return found[0]


def inter_broker(config: ListenerSettings, listeners: Sequence[Listener]) -> Listener:
    """The one of a broker's listeners that the other brokers use."""
    return listeners[0] if config.listeners is None else _inter_broker(config, listeners)


def hosts_in(settings: Mapping[str, Any]) -> list[str]:
    """The hosts that the settings listeners and advertised.listeners name, under either spelling; without those that mean every address."""
    entries = [each for name in ("listeners", "advertised_listeners") for each in (name, name.replace("_", ".")) if settings.get(each)]
    found = []
    for name in entries:
        for entry in string_list(settings[name]):
            match = _ADDRESS.fullmatch(str(entry).strip())
            host = "" if match is None else match["six"] or match["host"] or ""
            if not is_everywhere(host):
                found.append(host)
    return found


def protocols_in(settings: Mapping[str, Any]) -> dict[str, str]:
    """The protocols of the listeners that settings name, by listener; of those that the map of protocols has.

    Args:
        settings: under snake names, not checked yet.
    """
    known = _protocols(entries if (entries := settings.get("listener_security_protocol_map")) is None else string_list(entries))
    names = [str(entry).partition(":")[0].strip().upper() for entry in string_list(settings.get("listeners") or ())]
    return {name: known[name] for name in names if name in known}


def written(listeners: Iterable[Listener]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Listeners as the settings `listeners` and `advertised.listeners`."""
    every = tuple(listeners)
    return tuple(f"{e.name}://{joined(e.host, e.port)}" for e in every), tuple(f"{e.name}://{e.address}" for e in every)


def shifted(config: ListenerSettings, by: int) -> dict[str, tuple[str, ...]]:
    """The settings of the nth broker of a cluster: its ports, those that clients are given too, follow the first one's.

    Raises:
        ConfigError: there are not so many ports.
    """
    if not config.listeners or not by:
        return {}
    moved: dict[str, tuple[str, ...]] = {}
    for setting in ("listeners", "advertised_listeners"):
        entries = getattr(config, setting)
        if entries is None:
            continue
        places = _addresses(setting, entries)
        if any(port and port + by > _LAST_PORT for _, port in places.values()):
            raise ConfigError(f"{setting}: so many brokers would need ports above {_LAST_PORT}")
        moved[setting] = tuple(f"{name}://{joined(host, port + by if port else 0)}" for name, (host, port) in places.items())
    return moved
