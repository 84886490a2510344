"""Authorizer: whether a principal may do an operation on a resource, by the cluster's ACLs.

    acls of the image -> type -> names, or beginnings of names -> principal -> host -> bits of operations, allowed and denied

Rules, in their order:

1. A super user may do everything. [test_deny_comes_before_allow_and_super_users_before_deny]
2. The ACLs of a resource are those with its literal name, with a prefix of its name, and with the literal name "*"; of these the last are
   not for names that begin with "*" themselves, as of groups: Kafka takes them for another literal name. Of all these count the ones
   of the principal and of User:*, for the client's address and for host "*", for the operation and for ALL.
   [test_it_answers_as_a_walk_over_all_acls]
3. A DENY refuses, whatever else there is; an ALLOW permits. An ALLOW for READ, WRITE, DELETE or ALTER permits DESCRIBE, too, and one for
   ALTER_CONFIGS permits DESCRIBE_CONFIGS; a DENY implies nothing. [test_deny_comes_before_allow_and_super_users_before_deny,
   test_it_answers_as_a_walk_over_all_acls]
4. A resource that has no ACL at all, of any principal, is open if `allow.everyone.if.no.acl.found` says so. Everything else is refused.
   [test_nothing_is_allowed_without_an_acl, test_an_open_cluster_closes_what_has_an_acl_of_anybody]

Prefixes are kept sorted. The greatest name that is not above the asked one is a prefix of it, or all its prefixes among the kept ones are
prefixes of what both begin with: a search goes on from there. Answers are remembered until an ACL changes; a denial is logged once for as
long, at level INFO.

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizerData, org.apache.kafka.server.authorizer.Authorizer.
"""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkacore.broker.cluster import Acl, ImageDelta, ImageListener
from kafkacore.printable import printable

logger = logging.getLogger(__name__)

# AclOperation
ALL = 2
READ = 3
WRITE = 4
CREATE = 5
DELETE = 6
ALTER = 7
DESCRIBE = 8
CLUSTER_ACTION = 9
DESCRIBE_CONFIGS = 10
ALTER_CONFIGS = 11
IDEMPOTENT_WRITE = 12
CREATE_TOKENS = 13
DESCRIBE_TOKENS = 14
TWO_PHASE_COMMIT = 15

# ResourceType
TOPIC = 2
GROUP = 3
CLUSTER = 4
TRANSACTIONAL_ID = 5
DELEGATION_TOKEN = 6
USER = 7

# PatternType
LITERAL = 3
PREFIXED = 4

# AclPermissionType
DENY = 2
ALLOW = 3

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
EVERYBODY = "User:*"

_OPERATIONS = {
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    CREATE_TOKENS: "CREATE_TOKENS",
    DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
    TWO_PHASE_COMMIT: "TWO_PHASE_COMMIT",
}
_TYPES = {TOPIC: "topic", GROUP: "group", CLUSTER: "cluster", TRANSACTIONAL_ID: "transactional id", DELEGATION_TOKEN: "token", USER: "user"}
MAX_SHOWN_CHARS = 250

MAX_DECISIONS = 65_536
"""How many answers are remembered."""
MAX_REMEMBERED_CHARS = 512
"""Of principal and name together: longer ones are asked about seldom, and must not fill the memory."""

_EVERY_OPERATION = -1
_IMPLIED = {
    ALL: _EVERY_OPERATION,
    **{operation: 1 << operation | 1 << DESCRIBE for operation in (READ, WRITE, DELETE, ALTER)},
    ALTER_CONFIGS: 1 << ALTER_CONFIGS | 1 << DESCRIBE_CONFIGS,
}
"""What an ALLOW permits, where that is more than its operation."""


class _Bits(NamedTuple):
    """Operations: allowed with what is implied, denied, and allowed by themselves."""

    allowed: int
    denied: int
    stated: int


_NOTHING = _Bits(0, 0, 0)


class _Pattern:
    """The ACLs of one name, or of one beginning of names."""

    __slots__ = ("_bits", "entries")

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], dict[bytes, Acl]] = {}  # by principal and host, and by id
        self._bits: dict[tuple[str, str], _Bits] = {}

    def add(self, acl_id: bytes, acl: Acl) -> None:
        key = acl.principal, acl.host
        self.entries.setdefault(key, {})[acl_id] = acl
        self._bits[key] = _bits(self.entries[key].values())

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        key = acl.principal, acl.host
        left = self.entries[key]
        del left[acl_id]
        if left:
            self._bits[key] = _bits(left.values())
        else:
            del self.entries[key], self._bits[key]

    def bits(self, principal: str, host: str) -> _Bits:
        """What holds for a client."""
        allowed = denied = stated = 0
        for key in ((principal, host), (principal, WILDCARD), (EVERYBODY, host), (EVERYBODY, WILDCARD)):
            found = self._bits.get(key)
            if found is not None:
                allowed |= found.allowed
                denied |= found.denied
                stated |= found.stated
        return _Bits(allowed, denied, stated)


def _bits(acls: Iterable[Acl]) -> _Bits:
    allowed = denied = stated = 0
    for acl in acls:
        own = _EVERY_OPERATION if acl.operation == ALL else 1 << acl.operation
        if acl.permission_type == ALLOW:
            allowed |= _IMPLIED.get(acl.operation, own)
            stated |= own
        else:
            denied |= own
    return _Bits(allowed, denied, stated)


class _Resources:
    """The ACLs of one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self._prefixes: list[str] = []
        self._named: dict[str, dict[tuple[int, str], int]] = {}  # by principal, (type, name) of its patterns, and how many ACLs

    def add(self, acl_id: bytes, acl: Acl) -> None:
        names = self.literal if acl.pattern_type == LITERAL else self.prefixed
        pattern = names.get(acl.resource_name)
        if pattern is None:
            pattern = names[acl.resource_name] = _Pattern()
            if names is self.prefixed:
                insort(self._prefixes, acl.resource_name)
        pattern.add(acl_id, acl)
        named, key = self._named.setdefault(acl.principal, {}), (acl.pattern_type, acl.resource_name)
        named[key] = named.get(key, 0) + 1

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        names = self.literal if acl.pattern_type == LITERAL else self.prefixed
        pattern = names[acl.resource_name]
        pattern.remove(acl_id, acl)
        if not pattern.entries:
            del names[acl.resource_name]
            if names is self.prefixed:
                del self._prefixes[bisect_left(self._prefixes, acl.resource_name)]
        named, key = self._named[acl.principal], (acl.pattern_type, acl.resource_name)
        named[key] -= 1
        if not named[key]:
            del named[key]
            if not named:
                del self._named[acl.principal]

    def patterns(self, name: str) -> Iterator[_Pattern]:
        """Those that a resource matches."""
        exact = self.literal.get(name)
        if exact is not None:
            yield exact
        if not name.startswith(WILDCARD):
            everything = self.literal.get(WILDCARD)
            if everything is not None:
                yield everything
        prefixes, key = self._prefixes, name
        at = bisect_right(prefixes, key) - 1
        while at >= 0:
            candidate = prefixes[at]
            if key.startswith(candidate):
                yield self.prefixed[candidate]
                at -= 1
                key = candidate
            else:
                key = key[: next(at for at, (mine, theirs) in enumerate(zip(key, candidate, strict=False)) if mine != theirs)]
                at = bisect_right(prefixes, key, 0, at) - 1

    def of(self, principal: str) -> Iterator[tuple[int, str, _Pattern]]:
        """The patterns with ACLs of a principal: their type, name and ACLs."""
        for kind, name in self._named.get(principal, ()):
            yield kind, name, (self.literal if kind == LITERAL else self.prefixed)[name]


class Authorizer(ImageListener):
    """Answers who may do what; for one thread, its broker's. An image tells it of changed ACLs.

    Principals are "User:alice", hosts addresses with or without Kafka's slash ("/127.0.0.1"), operations and types of resources Kafka's
    numbers, which are constants of this module.

    Attributes:
        changes: how often ACLs changed: what was asked before may have another answer now.
    """

    def __init__(self, super_users: Iterable[str] = (), allow_everyone_if_no_acl_found: bool = False) -> None:
        """An authorizer without ACLs.

        Args:
            super_users: who may do everything.
            allow_everyone_if_no_acl_found: whether a resource without any ACL is open to all.
        """
        self.changes = 0
        self._super_users = frozenset(super_users)
        self._open = allow_everyone_if_no_acl_found
        self._acls: dict[bytes, Acl] = {}
        self._resources: dict[int, _Resources] = {}
        self._decisions: dict[tuple[str, str, int, int, str | None], bool] = {}

    def image_changed(self, delta: ImageDelta) -> None:
        if delta.acls:
            self.change({acl_id: delta.image.acls.get(acl_id) for acl_id in delta.acls})

    def change(self, acls: Mapping[bytes, Acl | None]) -> None:
        """ACLs changed.

        Args:
            acls: by id, as they are now; None for one that is removed.
        """
        for acl_id, acl in acls.items():
            before = self._acls.pop(acl_id, None)
            if before is not None:
                self._resources[before.resource_type].remove(acl_id, before)
            if acl is not None:
                self._acls[acl_id] = acl
                self._resources.setdefault(acl.resource_type, _Resources()).add(acl_id, acl)
        self._decisions.clear()
        self.changes += 1

    def is_super_user(self, principal: str) -> bool:
        """Whether a principal may do everything."""
        return principal in self._super_users

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether a client may do something.

        Args:
            principal: the client's.
            host: its address.
            operation: what it wants to do.
            resource_type, name: to what.
        """
        if principal in self._super_users:
            return True
        key = principal, host, operation, resource_type, name
        known = self._decisions.get(key)
        if known is None:
            known = bool(self._operations(principal, host, resource_type, name) >> operation & 1)
            self._remember(key, known)
            if not known:
                who, what = printable(principal[:MAX_SHOWN_CHARS]), printable(name[:MAX_SHOWN_CHARS])
                logger.info("%s at %s may not %s %s %s", who, host, _OPERATIONS[operation], _TYPES[resource_type], what)
        return known

    def operations(self, principal: str, host: str, resource_type: int, name: str, candidates: int) -> int:
        """Which of several operations a client may do.

        Args:
            principal, host: the client's.
            resource_type, name: of the resource.
            candidates: bits of operations, 1 << READ and so on.

        Returns:
            Those bits of them that are allowed, as in `topic_authorized_operations` of a response.
        """
        if principal in self._super_users:
            return candidates
        return self._operations(principal, host, resource_type, name) & candidates

    def allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether a client may do something to any resource of a type, which need not exist. As in Kafka no operation is implied here.

        Args:
            principal, host: the client's.
            operation: what it wants to do.
            resource_type: to what.
        """
        if principal in self._super_users:
            return True
        key = principal, host, operation, resource_type, None
        known = self._decisions.get(key)
        if known is None:
            known = self._find_some(principal, host, operation, resource_type)
            self._remember(key, known)
        return known

    def _remember(self, key: tuple[str, str, int, int, str | None], allowed: bool) -> None:
        if len(key[0]) + len(key[4] or "") > MAX_REMEMBERED_CHARS:
            return
        if len(self._decisions) >= MAX_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = allowed

    def _operations(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The bits of all operations that are allowed, for all operations there may be."""
        resources, address = self._resources.get(resource_type), host.removeprefix("/")
        allowed = denied = 0
        is_known = False
        for pattern in resources.patterns(name) if resources is not None else ():
            is_known = True
            bits = pattern.bits(principal, address)
            allowed |= bits.allowed
            denied |= bits.denied
        if not is_known:
            return _EVERY_OPERATION if self._open else 0
        return allowed & ~denied

    def _find_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        # Kafka asks about a name of its own first, so that an open cluster, or what everything of the type permits, counts.
        if self._operations(principal, host, resource_type, "hardcode") >> operation & 1:
            return True
        resources, address = self._resources.get(resource_type), host.removeprefix("/")
        if resources is None:
            return False
        allowed: list[tuple[int, str]] = []
        denied: set[tuple[int, str]] = set()
        for who in {principal, EVERYBODY}:
            for kind, name, pattern in resources.of(who):
                bits = pattern.bits(principal, address)
                if bits.denied >> operation & 1:
                    denied.add((kind, name))
                if bits.stated >> operation & 1:
                    allowed.append((kind, name))
        if (LITERAL, WILDCARD) in denied:
            return False
        for kind, name in allowed:
            if (kind, name) == (LITERAL, WILDCARD):
                return True
            if kind == LITERAL and (LITERAL, name) in denied:
                continue
            if not any((PREFIXED, beginning) in denied for beginning in itertools.accumulate(name)):
                return True
        return False
