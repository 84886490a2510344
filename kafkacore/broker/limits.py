"""How many connections a server takes, from whom and how fast; how much memory their requests may hold.

Rules:

1. Beyond max.connections, and faster than max.connection.creation.rate, connections stay in the listener's queue: none is refused.
   [test_connections_beyond_the_limit_wait_for_one_to_close, test_connections_beyond_the_rate_wait_their_share_of_a_second]
2. Beyond max.connections.per.ip an address's connections are closed as soon as they are accepted: waiting would hold up others.
   [test_an_address_has_its_own_limit, test_an_address_with_too_many_connections_is_turned_away]
3. The last file descriptors of the process are kept for logs, checkpoints and connections to other brokers: while only they are left,
   connections stay in the queue too. What frees some need not say so: the listener looks again after a while.
   [test_connections_leave_the_last_descriptors_to_the_logs, test_a_listener_goes_on_when_somebody_else_gives_descriptors_back]
4. Faster than its connection_creation_rate allows, an address's connections are accepted, not read, and closed after a while: at once it
   would try again at once. [test_addresses_that_connect_too_fast_are_kept_waiting_and_closed]

Source: kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import resource
import socket
from collections import Counter

from kafkacore.broker.quotas import ConnectionRateQuota
from kafkacore.config import BrokerConfig
from kafkacore.errors import ConfigError
from kafkacore.net.channel import ConnectionId

WAIT_FOR_A_CLOSE = -1
DESCRIPTOR_RETRY_MS = 200
"""How often a listener without a free file descriptor looks for one, if no connection is closed."""
MAX_RESERVED_DESCRIPTORS = 64
UNLIMITED_DESCRIPTORS = 65_536
"""What a process takes where the system sets no hard limit."""
_MILLIS = 1_000


def raise_descriptor_limit() -> int:
    """Raises this process's soft limit of file descriptors to the hard one: every partition on disk keeps a file open.

    Returns:
        The limit now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, UNLIMITED_DESCRIPTORS) if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def has_spare_descriptor() -> bool:
    """Whether this process can open more file descriptors than those that are kept in reserve.

    The system gives the lowest free number, so the number of a new descriptor is at most that of those in use.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return True
    try:
        probe = os.open("/", os.O_RDONLY)
    except OSError:
        return False
    os.close(probe)
    return probe < soft - min(MAX_RESERVED_DESCRIPTORS, soft // 4)


@functools.lru_cache(1024)
def full_address(host: str) -> str:
    """An address as Java writes it, and ACLs have it: all eight groups of IPv6, as 0:0:0:0:0:0:0:1."""
    if ":" not in host:
        return host
    address, percent, zone = host.partition("%")
    groups = ipaddress.IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone


class ConnectionQuotas:
    """Counts the connections of one server. Time is handed in; the server's loop looks at `deadline_ms`.

    Attributes:
        hosts: the address each connection came from.
        doomed: connections of addresses that opened too many of late, and how long each stays before it is closed.
        deadline_ms: when the rate lets the listener go on; None if it does not hold it.
    """

    def __init__(self, config: BrokerConfig, per_ip: ConnectionRateQuota | None = None) -> None:
        """Counts nothing yet.

        Args:
            config: the limits.
            per_ip: how fast an address may open connections.

        Raises:
            ConfigError: max.connections.per.ip.overrides names an unknown host.
        """
        self.update(config)
        self.hosts: dict[ConnectionId, str] = {}
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._came_by: dict[ConnectionId, str] = {}
        self._allowance = self._rate * _MILLIS  # in thousandths of a connection; a second's worth at most
        self._allowance_ms: int | None = None
        self.deadline_ms: int | None = None
        self.refused = 0
        self._per_ip = per_ip
        self._now_ms = 0
        self.doomed: dict[ConnectionId, int] = {}

    def __len__(self) -> int:
        return len(self.hosts)

    def update(self, config: BrokerConfig) -> None:
        """Other limits; connections that are open stay.

        Args:
            config: the limits.

        Raises:
            ConfigError: as in the constructor.
        """
        self._overrides = connection_limits(config)
        self._max = config.max_connections
        self._max_per_ip = config.max_connections_per_ip
        self._rate = config.max_connection_creation_rate
        self._max_per_listener = config.listener_name_max_connections or {}

    def of_listener(self, name: str) -> ListenerAdmission:
        """Counts those of one listener, too."""
        return ListenerAdmission(self, name)

    def is_full(self, listener: str) -> bool:
        """Whether a listener has as many connections as it may have of its own."""
        limit = self._max_per_listener.get(listener)
        return limit is not None and self._per_listener[listener] >= limit

    def came_by(self, id: ConnectionId, listener: str) -> None:
        """Which listener a connection came in by; nothing if it is not counted."""
        if id in self.hosts:
            self._came_by[id] = listener
            self._per_listener[listener] += 1

    def wait_ms(self, now_ms: int) -> int:
        """0: a connection may be taken from the listener; -1: after one was closed; else how long to wait."""
        self._now_ms = now_ms
        if len(self.hosts) >= self._max:
            return WAIT_FOR_A_CLOSE
        if not has_spare_descriptor():
            self.out_of_descriptors(now_ms)
            return DESCRIPTOR_RETRY_MS
        if self._allowance_ms is not None:
            elapsed_ms = max(now_ms - self._allowance_ms, 0)
            self._allowance = min(self._allowance + elapsed_ms * self._rate, self._rate * _MILLIS)
        self._allowance_ms = now_ms
        if self._allowance >= _MILLIS:
            return 0
        wait_ms = -((self._allowance - _MILLIS) // self._rate)
        self.deadline_ms = now_ms + wait_ms
        return wait_ms

    def out_of_descriptors(self, now_ms: int) -> None:
        """No file descriptor is free for a connection: the listener looks again in a while."""
        self.deadline_ms = now_ms + DESCRIPTOR_RETRY_MS

    def passed(self, now_ms: int) -> bool:
        """True, once, when that time has come."""
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return False
        self.deadline_ms = None
        return True

    def opened(self, id: ConnectionId, host: str) -> bool:
        """Counts a connection; False if its address has too many."""
        host = host.removeprefix("::ffff:")  # of IPv4, at a listener for both
        self._allowance -= _MILLIS
        if self._per_ip and (wait_ms := self._per_ip.opened(host, self._now_ms)):
            self.doomed[id] = wait_ms
            return True
        if self._per_host[host] >= self._overrides.get(host, self._max_per_ip):
            self.refused += 1
            return False
        self.hosts[id] = host
        self._per_host[host] += 1
        return True

    def closed(self, id: ConnectionId) -> None:
        """A connection is closed; nothing happens if it was not counted."""
        host = self.hosts.pop(id, None)
        if host is not None:
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
        listener = self._came_by.pop(id, None)
        if listener is not None:
            self._per_listener[listener] -= 1


class ListenerAdmission:
    """Who may connect to one listener of several, as its selector asks it."""

    def __init__(self, quotas: ConnectionQuotas, name: str) -> None:
        """Args:
        quotas: of the server.
        name: of the listener.
        """
        self._quotas = quotas
        self._name = name

    def wait_ms(self, now_ms: int) -> int:
        """As `ConnectionQuotas.wait_ms`."""
        return WAIT_FOR_A_CLOSE if self._quotas.is_full(self._name) else self._quotas.wait_ms(now_ms)

    def out_of_descriptors(self, now_ms: int) -> None:
        """As `ConnectionQuotas.out_of_descriptors`."""
        self._quotas.out_of_descriptors(now_ms)

    def opened(self, id: ConnectionId, host: str) -> bool:
        """As `ConnectionQuotas.opened`."""
        is_open = self._quotas.opened(id, host)
        self._quotas.came_by(id, self._name)
        return is_open

    def closed(self, id: ConnectionId) -> None:
        """As `ConnectionQuotas.closed`."""
        self._quotas.closed(id)


def connection_limits(config: BrokerConfig) -> dict[str, int]:
    """max.connections.per.ip.overrides by address; a name means all its addresses.

    Raises:
        ConfigError: a host is unknown.
    """
    found: dict[str, int] = {}
    for host, limit in config.connection_overrides().items():
        try:
            addresses = socket.getaddrinfo(host, None)
        except OSError as error:
            raise ConfigError(f"max_connections_per_ip_overrides: the host {host!r} is unknown: {error}") from None
        for _, _, _, _, address in addresses:
            found[str(address[0])] = limit
    return found


def request_memory_bytes(config: BrokerConfig) -> int:
    """What the requests of all connections may hold together: queued.max.request.bytes, or a quarter of the machine's memory."""
    if config.queued_max_request_bytes > 0:
        return config.queued_max_request_bytes
    return max(machine_memory_bytes() // 4, config.socket_request_max_bytes)


def log_memory_bytes(config: BrokerConfig) -> int:
    """What the logs of a broker in memory may hold together: log.memory.max.bytes, or a quarter of the machine's memory; 0 for no limit."""
    return config.log_memory_max_bytes if config.log_memory_max_bytes >= 0 else machine_memory_bytes() // 4


def machine_memory_bytes() -> int:
    """Bytes of the machine's memory; 0 on a system that does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0
