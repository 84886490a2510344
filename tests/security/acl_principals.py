"""The principals of `acl_cases.py`, and their ACLs.

Each principal has resources of its own, whose names begin with its own: topics, groups and transactional ids. So every principal can send
every request, and none changes what another finds. What belongs to `other` only wildcards reach; READ on `public` is allowed to everybody,
and everything on `closed` is denied to everybody.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacore import protocol as p

ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(2, 13)
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER_NAME = "kafka-cluster"
HERE, ELSEWHERE = "127.0.0.1", "10.9.8.7"

SUPER = "super"
FOREIGN = ("other.", "public.", "closed.")
TOPICS = ("t", "d1", "d2")
"""What there is of each principal. Only the first is asked for but by DeleteTopics."""


class Principal(NamedTuple):
    """A user, and the ACLs that its name is in."""

    name: str
    acls: tuple[p.AclCreation, ...] = ()


# ---- who

PRINCIPALS: dict[str, Principal] = {}


def _acl(
    user: str, kind: int, name: str, operation: int, pattern: int = LITERAL, permission: int = ALLOW, host: str = "*"
) -> p.AclCreation:
    return p.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission_type=permission,
    )


_NAMES = {
    TOPIC: ("t", "d1", "d2", "missing", "new", "auto"),
    GROUP: ("g", "c", "mixed", "j", "k", "missing", "configured"),
    TRANSACTIONAL_ID: ("x", "e", "new", "missing"),
}


def _literally(user: str, kind: int, operation: int) -> list[p.AclCreation]:
    """ACLs for the principal's own resources of a type, by their names."""
    if kind == CLUSTER:
        return [_acl(user, kind, CLUSTER_NAME, operation)]
    if kind == USER:
        return [_acl(user, kind, "User:other", operation)]
    return [_acl(user, kind, f"{user}.{name}", operation) for name in _NAMES.get(kind, ("t",))]


def _add(name: str, *acls: p.AclCreation) -> None:
    PRINCIPALS[name] = Principal(name, acls)


_OPERATIONS = {
    "topic": (TOPIC, "all read write create delete alter describe describe_configs alter_configs"),
    "group": (GROUP, "all read delete describe describe_configs alter_configs"),
    "cluster": (CLUSTER, "all create alter describe cluster_action describe_configs alter_configs idempotent_write"),
    "id": (TRANSACTIONAL_ID, "all write describe two_phase_commit"),
    "token": (DELEGATION_TOKEN, "describe"),
    "user": (USER, "create_tokens describe_tokens"),
}


def _everything(user: str) -> list[p.AclCreation]:
    kinds = (TOPIC, GROUP, TRANSACTIONAL_ID, USER)
    return [*(_acl(user, kind, "*", ALL) for kind in kinds), _acl(user, CLUSTER, CLUSTER_NAME, ALL)]


def _principals() -> None:
    _add(SUPER)
    _add("nobody")
    for kind_name, (kind, operations) in _OPERATIONS.items():
        for operation in operations.split():
            user = f"{kind_name}-{operation.replace('_', '-')}"
            _add(user, *_literally(user, kind, globals()[operation.upper()]))
    for kind_name, kind, operation in (
        ("topic", TOPIC, "read"),
        ("topic", TOPIC, "describe"),
        ("topic", TOPIC, "create"),
        ("topic", TOPIC, "all"),
        ("group", GROUP, "read"),
        ("group", GROUP, "describe"),
        ("id", TRANSACTIONAL_ID, "write"),
    ):
        code = globals()[operation.upper()]
        user = f"{kind_name}-{operation}-prefixed"
        _add(user, _acl(user, kind, user + ".", code, PREFIXED))
        user = f"{kind_name}-{operation}-any"
        _add(user, _acl(user, kind, "*", code))
    for user, wanted in {
        "reader": ((TOPIC, READ), (GROUP, READ)),
        "writer": ((TOPIC, WRITE), (TRANSACTIONAL_ID, WRITE)),
        "exactly-once": ((TOPIC, READ), (TOPIC, WRITE), (GROUP, READ), (TRANSACTIONAL_ID, WRITE)),
    }.items():
        _add(user, *(_acl(user, kind, user + ".", code, PREFIXED) for kind, code in wanted))
    kinds = (TOPIC, GROUP, TRANSACTIONAL_ID)
    of_resources = [_acl("observer", kind, "observer.", DESCRIBE, PREFIXED) for kind in kinds]
    _add("observer", *of_resources, _acl("observer", CLUSTER, CLUSTER_NAME, DESCRIBE))
    _add("everything", *_everything("everything"))
    for denied, kind, code in (
        ("topic-read", TOPIC, READ),
        ("topic-describe", TOPIC, DESCRIBE),
        ("topic-write", TOPIC, WRITE),
        ("topic", TOPIC, ALL),
        ("group-read", GROUP, READ),
        ("group-describe", GROUP, DESCRIBE),
        ("id-write", TRANSACTIONAL_ID, WRITE),
        ("id-describe", TRANSACTIONAL_ID, DESCRIBE),
    ):
        user = f"all-but-{denied}"
        _add(user, *_everything(user), _acl(user, kind, user + ".", code, PREFIXED, DENY))
    for denied, code in (
        ("cluster-describe", DESCRIBE),
        ("cluster-alter", ALTER),
        ("cluster-describe-configs", DESCRIBE_CONFIGS),
        ("cluster", ALL),
        ("cluster-idempotent-write", IDEMPOTENT_WRITE),
    ):
        user = f"all-but-{denied}"
        _add(user, *_everything(user), _acl(user, CLUSTER, CLUSTER_NAME, code, permission=DENY))
    for user, host in (("allowed-here", HERE), ("allowed-elsewhere", ELSEWHERE)):
        _add(user, *(_acl(user, kind, user + ".", ALL, PREFIXED, host=host) for kind in kinds))
    for user, host in (("denied-here", HERE), ("denied-elsewhere", ELSEWHERE)):
        denials = [_acl(user, kind, user + ".", ALL, PREFIXED, DENY, host) for kind in kinds]
        _add(user, *_everything(user), *denials)


_principals()
PASSWORDS = dict.fromkeys(PRINCIPALS, "secret")

OF_EVERYBODY = [
    *(_acl("*", kind, f"public.{name}", READ) for kind, name in ((TOPIC, "t"), (GROUP, "g"))),
    _acl("*", TOPIC, "closed.", ALL, PREFIXED, DENY),
    *(_acl("*", kind, f"closed.{name}", ALL, permission=DENY) for kind, name in ((GROUP, "g"), (TRANSACTIONAL_ID, "x"))),
]
ACLS = [*OF_EVERYBODY, *(acl for principal in PRINCIPALS.values() for acl in principal.acls)]
