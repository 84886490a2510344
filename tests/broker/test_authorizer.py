"""Whether a principal may do an operation, by the rules of Kafka's StandardAuthorizer.

The model is written from those rules as Kafka's documentation and source give them: it walks all ACLs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.admin.security import OPERATIONS as SENT_OPERATIONS
from kafkacore.admin.security import PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES
from kafkacore.broker import authorizer as a
from kafkacore.broker.authorizer import Authorizer
from kafkacore.broker.cluster import Acl, ClusterImage
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import super_users
from kafkacore.errors import ConfigError
from kafkacore.protocol import metadata_log as m
from tests.kit.inside import decisions_of
from tests.kit.lines import lines_of
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ALICE, BOB, HOST, ELSEWHERE = "User:alice", "User:bob", "127.0.0.1", "10.0.0.1"
OPERATIONS = range(a.READ, a.TWO_PHASE_COMMIT + 1)


def acl(
    name: str,
    operation: int,
    principal: str = ALICE,
    *,
    host: str = "*",
    permission: int = a.ALLOW,
    pattern: int = a.LITERAL,
    resource_type: int = a.TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, super_users: Iterable[str] = (), is_open: bool = False) -> Authorizer:
    made = Authorizer(super_users, is_open)
    made.change({nth.to_bytes(16): each for nth, each in enumerate(acls)})
    return made


def may(asked: Authorizer, operation: int, name: str, principal: str = ALICE, host: str = HOST) -> bool:
    return asked.allows(principal, host, operation, a.TOPIC, name)


# ---- the model


def matches(entry: Acl, name: str) -> bool:
    if entry.pattern_type == a.PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name == name or (entry.resource_name == "*" and not name.startswith("*"))


def model(acls: Iterable[Acl], operation: int, resource_type: int, name: str, principal: str, host: str, is_open: bool) -> bool:
    of_resource = [each for each in acls if each.resource_type == resource_type and matches(each, name)]
    if not of_resource:
        return is_open
    implying = {a.DESCRIBE: {a.READ, a.WRITE, a.DELETE, a.ALTER}, a.DESCRIBE_CONFIGS: {a.ALTER_CONFIGS}}.get(operation, set())
    mine = [each for each in of_resource if each.principal in (principal, "User:*") and each.host in (host, "*")]
    if any(each.permission_type == a.DENY and each.operation in (operation, a.ALL) for each in mine):
        return False
    return any(each.permission_type == a.ALLOW and each.operation in {operation, a.ALL, *implying} for each in mine)


def model_some(acls: Iterable[Acl], operation: int, resource_type: int, principal: str, host: str, is_open: bool) -> bool:
    """As Kafka's default of authorizeByResourceType: an ALLOW that no DENY of the same name or of a beginning of it covers."""
    acls = list(acls)
    if model(acls, operation, resource_type, "hardcode", principal, host, is_open):
        return True
    mine = [
        each
        for each in acls
        if each.resource_type == resource_type
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
        and each.operation in (operation, a.ALL)
    ]
    denied = {(each.pattern_type, each.resource_name) for each in mine if each.permission_type == a.DENY}
    if (a.LITERAL, "*") in denied:
        return False
    for each in mine:
        if each.permission_type == a.DENY:
            continue
        if (each.pattern_type, each.resource_name) == (a.LITERAL, "*"):
            return True
        is_covered = any(kind == a.PREFIXED and each.resource_name.startswith(name) for kind, name in denied)
        if not is_covered and not (each.pattern_type == a.LITERAL and (a.LITERAL, each.resource_name) in denied):
            return True
    return False


NAMES = st.sampled_from(["*a", "*", "a", "ab", "hard"])
ACLS = st.builds(
    Acl,
    st.sampled_from([a.TOPIC, a.TOPIC, a.TOPIC, a.GROUP]),
    NAMES,
    st.sampled_from([a.LITERAL, a.PREFIXED]),
    st.sampled_from([ALICE, ALICE, BOB, "User:*"]),
    st.sampled_from([HOST, ELSEWHERE, "*", "*"]),
    st.sampled_from([a.ALL, a.READ, a.DESCRIBE, a.ALTER_CONFIGS, *OPERATIONS]),
    st.sampled_from([a.ALLOW, a.ALLOW, a.DENY]),
)
CHANGE = st.tuples(st.integers(0, 7), st.none() | ACLS)
# Two of one name and operation, which are seldom drawn by chance.
TWO = st.one_of(
    ACLS.map(
        lambda entry: [(8, entry._replace(principal=ALICE, host="*")), (9, entry._replace(principal="User:*", permission_type=a.DENY))]
    ),
    ACLS.map(lambda entry: [(8, entry._replace(pattern_type=a.PREFIXED)), (9, entry._replace(pattern_type=a.LITERAL)), (8, None)]),
    ACLS.map(lambda entry: [(8, entry._replace(operation=a.WRITE)), (9, entry), (8, None)]),
)
CHANGES = st.lists(TWO | CHANGE.map(lambda change: [change]), min_size=3, max_size=12).map(lambda x: [*itertools.chain(*x)])


ASKED = st.lists(st.tuples(NAMES, st.sampled_from([ALICE, ALICE, BOB]), st.sampled_from([HOST, ELSEWHERE])), min_size=1, max_size=2)


changing = Reached(
    "an ACL in the place of another",
    "an ACL removed whose name keeps another of the same principal and host",
    "an ACL removed whose name keeps one of another principal or host",
    "the last ACL of a prefix that is a literal name, too",
    "a name that begins with *",
    "an open resource while others have ACLs",
    "denied for User:*, allowed for the principal",
)


def of_same_name(one: Acl, other: Acl) -> bool:
    return one[:3] == other[:3]


@changing.by
@given(CHANGES, st.booleans(), ASKED)
@settings(max_examples=80)
def test_it_answers_as_a_walk_over_all_acls(
    changes: list[tuple[int, Acl | None]], is_open: bool, asked: list[tuple[str, str, str]]
) -> None:
    """After every change, so that what is remembered or indexed of before cannot stay."""
    subject, acls = Authorizer((), is_open), {}
    for nth, entry in [*changes, (0, None)]:
        acl_id = nth.to_bytes(16)
        subject.change({acl_id: entry})
        before = acls.pop(acl_id, None)
        if before is not None:
            beside = [each for each in acls.values() if of_same_name(before, each)]
            same = [each for each in beside if each[3:5] == before[3:5]]
            changing("an ACL removed whose name keeps another of the same principal and host", same)
            changing("an ACL removed whose name keeps one of another principal or host", len(beside) > len(same))
            literal = before._replace(pattern_type=a.LITERAL)
            is_last = before.pattern_type == a.PREFIXED and not beside
            changing(
                "the last ACL of a prefix that is a literal name, too", is_last and any(of_same_name(literal, x) for x in acls.values())
            )
            changing("an ACL in the place of another", entry is not None)
        if entry is not None:
            acls[acl_id] = entry
        for (name, principal, host), kind in itertools.product(asked, (a.TOPIC, a.GROUP)):
            bits = subject.operations(principal, host, kind, name, -1)
            mine = [each for each in acls.values() if each.resource_type == kind and matches(each, name) and each.host in (host, "*")]
            changing("a name that begins with *", mine and name.startswith("*"))
            changing("an open resource while others have ACLs", is_open and bits == -1 and acls)
            verdicts = {(each.principal, each.permission_type) for each in mine}
            changing("denied for User:*, allowed for the principal", {("User:*", a.DENY), (principal, a.ALLOW)} <= verdicts)
            for operation in OPERATIONS:
                expected = model(acls.values(), operation, kind, name, principal, host, is_open)
                assert subject.allows(principal, host, operation, kind, name) == expected
                assert bool(bits >> operation & 1) == expected
        for (principal, host), kind in itertools.product(dict.fromkeys(each[1:] for each in asked), (a.TOPIC, a.GROUP)):
            for operation in OPERATIONS:
                some = model_some(acls.values(), operation, kind, principal, host, is_open)
                assert subject.allows_some(principal, host, operation, kind) == some


# ---- the rules by name


def test_numbers_are_those_that_clients_send() -> None:
    kinds = RESOURCE_TYPES, PATTERN_TYPES, SENT_OPERATIONS, PERMISSIONS
    sent = {word.upper(): number for kind in kinds for word, number in kind.items() if word not in ("any", "match")}
    assert {name: getattr(a, name) for name in sent} == sent


def test_nothing_is_allowed_without_an_acl() -> None:
    assert not may(authorizer(), a.READ, "t")
    assert may(authorizer(is_open=True), a.READ, "t")


def test_an_open_cluster_closes_what_has_an_acl_of_anybody() -> None:
    subject = authorizer(acl("t", a.READ, BOB), is_open=True)
    assert not may(subject, a.READ, "t")
    assert may(subject, a.READ, "other")


def test_deny_comes_before_allow_and_super_users_before_deny() -> None:
    entries = acl("t", a.ALL), acl("t", a.READ, permission=a.DENY)
    assert not may(authorizer(*entries), a.READ, "t")
    assert may(authorizer(*entries), a.WRITE, "t")
    assert may(authorizer(*entries, super_users=[ALICE]), a.READ, "t")
    assert authorizer(*entries, super_users=[ALICE]).allows_some(ALICE, HOST, a.READ, a.TOPIC)
    assert authorizer(*entries, super_users=[ALICE]).operations(ALICE, HOST, a.TOPIC, "t", 1 << a.READ) == 1 << a.READ


def test_each_prefix_of_a_name_counts_behind_neighbours_that_are_none() -> None:
    prefixes = ("o", "orders-", "orders-a", "orders-eu", "p")
    for wanted in prefixes:
        asked = authorizer(*(acl(each, a.READ, ALICE if each == wanted else BOB, pattern=a.PREFIXED) for each in prefixes))
        assert may(asked, a.READ, "orders-eu-1") == (wanted in ("o", "orders-", "orders-eu"))
        assert may(asked, a.READ, "orders-b") == (wanted in ("o", "orders-"))
        assert may(asked, a.READ, "op") == (wanted == "o")


def test_a_host_is_compared_without_kafkas_slash() -> None:
    subject = authorizer(acl("t", a.READ, host=HOST))
    assert may(subject, a.READ, "t", host="/" + HOST) and may(subject, a.READ, "t", host=HOST)
    assert not may(subject, a.READ, "t", host="/" + ELSEWHERE)


@each_row("operation", [a.ALL, *OPERATIONS])
def test_what_an_acl_permits_and_refuses(operation: int) -> None:
    every = (1 << a.TWO_PHASE_COMMIT + 1) - 1
    implied = {a.ALTER_CONFIGS: a.DESCRIBE_CONFIGS, **dict.fromkeys((a.READ, a.WRITE, a.DELETE, a.ALTER), a.DESCRIBE)}
    bits = every if operation == a.ALL else 1 << operation
    allowed = authorizer(acl("t", operation))
    assert allowed.operations(ALICE, HOST, a.TOPIC, "t", every) == bits | (1 << implied[operation] if operation in implied else 0)
    denied = authorizer(acl("t", a.ALL), acl("t", operation, permission=a.DENY))
    assert denied.operations(ALICE, HOST, a.TOPIC, "t", every) == every & ~bits
    assert [each for each in OPERATIONS if allowed.allows_some(ALICE, HOST, each, a.TOPIC)] == (
        [*OPERATIONS] if operation == a.ALL else [operation]
    )


def test_what_is_remembered_is_bounded() -> None:
    subject = authorizer(acl("t", a.READ, pattern=a.PREFIXED))
    decisions_of(subject).update(dict.fromkeys(range(65_535)))
    for nth, left in enumerate((65_536, 1, 2)):
        assert may(subject, a.READ, f"t{nth}") and len(decisions_of(subject)) == left
    for length, left in ((512, 3), (513, 3)):
        assert may(subject, a.READ, "t" * (length - len(ALICE))) and len(decisions_of(subject)) == left
    assert subject.allows_some(ALICE, HOST, a.READ, a.TOPIC) and len(decisions_of(subject)) == 4


def test_many_acls_cost_next_to_nothing() -> None:
    """A question about a new name takes a few steps, not a walk."""

    def made(count: int) -> Authorizer:
        own = [acl(f"team-{nth}.", a.READ, f"User:u{nth % 100}", pattern=a.PREFIXED if nth % 2 else a.LITERAL) for nth in range(count)]
        return authorizer(*own, *(acl("*", a.READ, f"User:v{nth}") for nth in range(count)))

    def cost(subject: Authorizer, names: list[str]) -> int:
        return lines_of(lambda: [subject._operations(ALICE, HOST, a.TOPIC, name) for name in names])

    names = [f"team-{nth}.events" for nth in range(500)]
    large, small = made(4_000), made(100)
    assert len(names) < cost(large, names) < 2 * cost(small, names)


def test_it_follows_the_image() -> None:
    image = ClusterImage(BrokerConfig())
    subject = Authorizer()
    image.listeners.append(subject)
    added = m.AccessControlEntryRecord(id=bytes(16), **acl("t", a.READ)._asdict())
    image.apply([added], 1)
    assert may(subject, a.READ, "t")
    image.apply([m.RemoveAccessControlEntryRecord(id=bytes(16))], 2)
    assert not may(subject, a.READ, "t")
    image.apply([added, m.RemoveAccessControlEntryRecord(id=bytes(16))], 4)
    assert not may(subject, a.READ, "t")


# ---- settings

STANDARD = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@each_row(
    ("given", "message"),
    [
        ({"authorizer_class_name": "com.example.Mine"}, "authorizer_class_name may be"),
        ({"super_users": "User:a"}, "super_users has no effect without authorizer_class_name"),
        ({"allow_everyone_if_no_acl_found": "true"}, "allow_everyone_if_no_acl_found has no effect"),
        ({**STANDARD, "super_users": "alice;User:ANONYMOUS"}, "super_users: 'alice' is not of the form User:name"),
        ({**STANDARD, "super_users": "User:a"}, "super_users must hold User:ANONYMOUS"),
        (STANDARD, "super_users must hold User:ANONYMOUS"),
    ],
)
def test_settings_that_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(**given)


def test_settings() -> None:
    users = " User:a ; User:CN=b,O=c;User:ANONYMOUS; "
    found = BrokerConfig(**STANDARD, super_users=users, allow_everyone_if_no_acl_found="true")
    assert super_users(found.super_users) == {"User:a", "User:CN=b,O=c", "User:ANONYMOUS"}
    assert found.allow_everyone_if_no_acl_found


def test_a_denial_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafkacore.broker.authorizer")
    subject = authorizer(acl("t", a.READ))
    for _ in range(3):
        assert may(subject, a.READ, "t") and not may(subject, a.WRITE, "t") and not may(subject, a.READ, "\x1b[31m", host="/10.0.0.1")
    assert [each.getMessage() for each in caplog.records] == [
        "User:alice at 127.0.0.1 may not WRITE topic t",
        "User:alice at /10.0.0.1 may not READ topic \\x1b[31m",
    ]
    assert not may(subject, a.READ, "t" * 251, principal="u" * 251)
    assert caplog.records[-1].getMessage() == f"{'u' * 250} at 127.0.0.1 may not READ topic {'t' * 250}"
