"""What a broker says of quotas and SCRAM's users, by the state that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.controller.credentials import alter_user_scram_credentials
from kafkacore.broker.handlers import security
from kafkacore.broker.handlers.security import describe_client_quotas, describe_user_scram_credentials
from kafkacore.errors import Code
from kafkacore.net.sasl import scram_credential
from kafkacore.protocol import metadata_log as m
from tests.kit.rows import each_row

EXACT, DEFAULT, ANY = 0, 1, 2
ENTITIES = [
    (("user", "a"),),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", "c"), ("user", "a")),
    (("client-id", None), ("user", "b")),
    (("ip", "1.2.3.4"),),
]


def state_of(**cluster: Any) -> Any:
    return SimpleNamespace(authorizer=None, cluster=SimpleNamespace(**cluster))


def quotas(strict: bool, *wanted: tuple[str, int, str | None]) -> Any:
    state = state_of(client_quotas={each: {"x": float(at), "y": 1.0} for at, each in enumerate(ENTITIES)})
    components = [p.ClientQuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in wanted]
    return describe_client_quotas(state, SimpleNamespace(), p.DescribeClientQuotasRequest(components=components, strict=strict))


@each_row(
    "wanted, loose, strict",
    [
        ([], [0, 1, 2, 3, 4, 5], []),
        ([("user", EXACT, "a")], [0, 3], [0]),
        ([("user", DEFAULT, None)], [1], [1]),
        ([("user", ANY, None)], [0, 1, 3, 4], [0, 1]),
        ([("client-id", EXACT, "c"), ("user", EXACT, "a")], [3], [3]),
        ([("user", EXACT, "b"), ("client-id", DEFAULT, None)], [4], [4]),
        ([("user", ANY, None), ("client-id", EXACT, "d")], [], []),
        ([("ip", ANY, None)], [5], [5]),
    ],
)
def test_quotas_by_filter(wanted: list[Any], loose: list[int], strict: list[int]) -> None:
    for is_strict, found in ((False, loose), (True, strict)):
        entries = quotas(is_strict, *wanted).entries
        assert [tuple((part.entity_type, part.entity_name) for part in each.entity) for each in entries] == [ENTITIES[at] for at in found]
        assert [[(value.key, value.value) for value in each.values] for each in entries] == [[("x", at), ("y", 1.0)] for at in found]


@each_row(
    "wanted, error, why",
    [
        ([("", EXACT, "a")], errors.InvalidRequest, "empty entity type"),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], errors.InvalidRequest, "more than once"),
        ([("group", EXACT, "a")], errors.UnsupportedVersion, "entity type group"),
        ([("user", EXACT, None)], errors.InvalidRequest, "MATCH_TYPE_EXACT"),
        ([("user", DEFAULT, "a")], errors.InvalidRequest, "MATCH_TYPE_DEFAULT"),
        ([("user", ANY, "a")], errors.InvalidRequest, "MATCH_TYPE_SPECIFIED"),
        ([("user", 3, "a")], errors.InvalidRequest, "match type 3"),
        ([("ip", ANY, None), ("user", ANY, None)], errors.InvalidRequest, "IP filter component"),
    ],
)
def test_filters_that_are_none(wanted: list[Any], error: type[errors.KafkaError], why: str) -> None:
    found = quotas(False, *wanted)
    assert found.error_code == error.code and why in found.error_message and found.entries is None


@pytest.mark.parametrize("named", [None, ["b", "a", "stranger", "a"]])
def test_users_of_scram(named: list[str] | None) -> None:
    state = state_of(
        scram_credentials={(user, kind): SimpleNamespace(iterations=n) for user, kind, n in (("a", 1, 5), ("b", 2, 6), ("b", 1, 7))}
    )
    users = None if named is None else [p.ScramUserName(name=each) for each in named]
    results = describe_user_scram_credentials(state, SimpleNamespace(), p.DescribeUserScramCredentialsRequest(users=users)).results  # type: ignore[arg-type]
    found = {each.user: (each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos]) for each in results}
    if named is None:
        assert found == {"a": (0, [(1, 5)]), "b": (0, [(2, 6), (1, 7)])}
    else:
        assert found == {"b": (0, [(2, 6), (1, 7)]), "a": (Code.DUPLICATE_RESOURCE, []), "stranger": (Code.RESOURCE_NOT_FOUND, [])}
        assert all(each.user in each.error_message for each in results if each.error_code) and len(results) == 3


def scram_alteration(*wanted: tuple[str, int, int | None]) -> Any:
    """What the controller makes of users, mechanisms and iterations; None deletes."""
    deletions = [p.ScramCredentialDeletion(name=name, mechanism=kind) for name, kind, count in wanted if count is None]
    upsertions = [
        p.ScramCredentialUpsertion(name=name, mechanism=kind, iterations=count, salt=b"salt", salted_password=b"salted")
        for name, kind, count in wanted
        if count is not None
    ]
    state: Any = SimpleNamespace(image=SimpleNamespace(scram_credentials={("a", 1): None, ("b", 2): None}))
    request = p.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    return alter_user_scram_credentials(state, request, 0, 0)


def test_credentials_that_are_written() -> None:
    written = scram_alteration(("a", 1, None), ("b", 1, 4_096), ("c", 2, 16_384), ("d", 2, 4_095))
    deletion = m.RemoveUserScramCredentialRecord(name="a", mechanism=1)
    kept = [
        m.UserScramCredentialRecord(name=name, mechanism=kind, **scram_credential(called, b"salted", b"salt", count)._asdict())
        for name, kind, called, count in (("b", 1, "SCRAM-SHA-256", 4_096), ("c", 2, "SCRAM-SHA-512", 16_384))
    ]
    assert written.records == [deletion, *kept]
    refused = (errors.UnacceptableCredential.code, "Too few iterations")
    assert [(each.user, (each.error_code, each.error_message)) for each in written.response.results] == [
        *((name, (0, None)) for name in "abc"),
        ("d", refused),
    ]


@each_row(
    "wanted, error, why",
    [
        ([("", 1, 4_096)], errors.UnacceptableCredential, "Username must not be empty"),
        ([("a", 3, 4_096)], errors.UnsupportedSaslMechanism, "Unknown SCRAM mechanism"),
        ([("a", 0, None)], errors.UnsupportedSaslMechanism, "Unknown SCRAM mechanism"),
        ([("a", 1, 4_095)], errors.UnacceptableCredential, "Too few iterations"),
        ([("a", 1, 16_385)], errors.UnacceptableCredential, "Too many iterations"),
        ([("a", 2, None)], errors.ResourceNotFound, "Attempt to delete a user credential that does not exist"),
        ([("a", 1, None), ("a", 2, 5_000)], errors.DuplicateResource, "A user credential cannot be altered twice in the same request"),
        (
            [("a", 1, 5_000), ("a", 2, None), ("a", 1, 1)],
            errors.DuplicateResource,
            "A user credential cannot be altered twice in the same request",
        ),
        ([("a", 1, 1), ("a", 3, 5_000)], errors.UnacceptableCredential, "Too few iterations"),
    ],
)
def test_credentials_that_are_refused(wanted: list[Any], error: type[errors.KafkaError], why: str) -> None:
    written = scram_alteration(*wanted)
    (result,) = written.response.results
    assert (written.records, result.error_code, result.error_message) == ([], error.code, why)


def test_who_may_not_ask_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "may_cluster", lambda *_: False)
    refused = quotas(False, ("user", EXACT, None))
    assert (refused.error_code, refused.error_message, refused.entries) == (Code.CLUSTER_AUTHORIZATION_FAILED, None, None)
    request = p.DescribeUserScramCredentialsRequest(users=[p.ScramUserName(name=each) for each in "ab"])
    answer = describe_user_scram_credentials(state_of(), SimpleNamespace(), request)  # type: ignore[arg-type]
    assert (answer.error_code, answer.error_message) == (Code.CLUSTER_AUTHORIZATION_FAILED, None)
    assert [(each.user, each.error_code, each.error_message, each.credential_infos) for each in answer.results] == [
        ("", Code.CLUSTER_AUTHORIZATION_FAILED, None, [])
    ] * 2
