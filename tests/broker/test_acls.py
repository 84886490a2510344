"""ACLs as they are stored: what CreateAcls takes, what a filter means, and that every broker, a snapshot and a restart have them.

The expected answers are those of Apache Kafka 4.3.1 to the same requests.
"""

from __future__ import annotations

import pytest

from kafkacore import protocol as p
from kafkacore.broker.cluster import Acl
from kafkacore.broker.controller import ControllerHost, acls
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, UsageError
from kafkacore.testing import EmbeddedCluster
from tests.kit.lines import lines_of
from tests.kit.rows import each_row

USERS = {"admin": "a", "alice": "b"}
SHRUNK = "(no colon is present separating the principal type from the principal name)"


def creation(**given):
    fields = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return p.AclCreation(**{**fields, **given})


def entry_filter(**given):
    fields = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1)
    return p.DeleteAclsFilter(**{**fields, "resource_name_filter": None, "principal_filter": None, "host_filter": None, **given})


def create_acls(host, *creations):
    response, _ = host.submit(p.CreateAclsRequest(creations=list(creations)), 3)
    return [(each.error_code, each.error_message) for each in response.results]


def delete_acls(host, *filters):
    response, _ = host.submit(p.DeleteAclsRequest(filters=list(filters)), 3)
    return response.filter_results


def stored_acls(host):
    return host.read(lambda image: sorted(image.acls.values()))


# ---- the controller


@each_row(
    ("given", "message"),
    [
        ({"resource_type": 8}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": -1}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 5}, "Invalid patternType UNKNOWN"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 0}, "Invalid patternType UNKNOWN"),
        ({"operation": 0}, "Invalid operation UNKNOWN"),
        ({"permission_type": 0}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4, "resource_name": "*"}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, f"Could not parse principal from `alice` {SHRUNK}"),
    ],
)
def test_what_is_wrong_with_one_keeps_no_other_out(given, message):
    host = ControllerHost()
    assert create_acls(host, creation(**given), creation()) == [(Code.INVALID_REQUEST, message), (0, "")]
    assert len(stored_acls(host)) == 1


def test_the_last_number_of_each_kind_is_taken():
    host = ControllerHost()
    last = {"resource_type": 7, "resource_pattern_type": 4, "operation": 15, "permission_type": 3}
    assert create_acls(host, creation(**last), creation(resource_type=4, resource_name="kafka-cluster")) == [(0, "")] * 2
    asked = {"resource_type_filter": 7, "pattern_type_filter": 4, "operation": 15, "permission_type": 3}
    refused = [entry_filter(**asked | {name: number}) for name, most in asked.items() for number in (0, -1, most + 1)]
    *results, found = delete_acls(host, *refused, entry_filter(**asked))
    assert [each.error_message for each in results] == ["Unknown patternFilter."] * 6 + ["Unknown entryFilter."] * 6
    assert [each.operation for each in found.matching_acls] == [15]


@each_row(
    "given", [{"resource_type": 1}, {"resource_pattern_type": 1}, {"resource_pattern_type": 2}, {"operation": 1}, {"permission_type": 1}]
)
def test_what_means_several_fails_the_request(given):
    host = ControllerHost()
    assert create_acls(host, creation(), creation(**given)) == [(Code.UNKNOWN_SERVER_ERROR, None)] * 2
    assert stored_acls(host) == []


def test_an_entry_is_stored_once():
    host = ControllerHost()
    assert create_acls(host, creation(), creation()) == [(0, "")] * 2
    assert create_acls(host, creation(), creation(operation=4)) == [(0, "")] * 2
    assert [each.operation for each in stored_acls(host)] == [3, 4]
    unlike = Acl(5, "x", 4, "User:b", "h", 9, 2)
    assert create_acls(host, acls.creation_of(unlike)) == [(0, "")]
    assert stored_acls(host)[2:] == [unlike]
    assert acls.AclFilter.of(acls.filter_of(unlike)) == unlike


def test_ten_thousand_in_a_request_and_no_more():
    host = ControllerHost()
    many = [creation(resource_name=f"t{nth}") for nth in range(10_001)]
    too_many, wrong = (Code.POLICY_VIOLATION, "Unable to perform excessively large batch operation."), creation(operation=0)
    assert create_acls(host, *many, wrong) == [*[too_many] * 10_001, (Code.INVALID_REQUEST, "Invalid operation UNKNOWN")]
    assert stored_acls(host) == []
    assert set(create_acls(host, *many[1:])) == set(create_acls(host, many[0])) == {(0, "")}
    message = "Cannot remove more than 10000 acls in a single delete operation."
    refused = delete_acls(host, entry_filter(), entry_filter(resource_name_filter="none"))
    assert [(each.error_code, each.error_message, each.matching_acls) for each in refused] == [(Code.INVALID_REQUEST, message, [])] * 2
    assert len(stored_acls(host)) == 10_001
    assert [len(each.matching_acls) for each in delete_acls(host, entry_filter(resource_name_filter="t0"))] == [1]
    assert [len(each.matching_acls) for each in delete_acls(host, entry_filter())] == [10_000]
    assert stored_acls(host) == []


def test_an_entry_that_two_filters_mean_is_in_both_answers():
    host = ControllerHost()
    create_acls(host, creation(), creation(operation=4))
    first, second, third = delete_acls(host, entry_filter(resource_name_filter="t"), entry_filter(operation=3), entry_filter(operation=99))
    assert [len(first.matching_acls), len(second.matching_acls)] == [2, 1]
    assert (third.error_code, third.error_message) == (Code.INVALID_REQUEST, "Unknown entryFilter.")
    assert stored_acls(host) == []


@each_row(
    ("given", "names"),
    [
        ({}, ["*", "p", "pq", "x"]),
        ({"resource_name_filter": "pq"}, ["pq"]),
        ({"resource_name_filter": "pq", "pattern_type_filter": 2}, ["*", "p", "pq"]),
        ({"resource_name_filter": "pq", "pattern_type_filter": 4}, []),
        ({"resource_name_filter": "pq", "pattern_type_filter": 3}, ["pq"]),
        ({"resource_name_filter": "x", "pattern_type_filter": 2, "resource_type_filter": 3}, ["x"]),
        ({"principal_filter": "User:b"}, ["x"]),
        ({"host_filter": "10.0.0.1"}, ["pq"]),
        ({"permission_type": 2}, ["p"]),
        ({"operation": 4}, []),
        ({"resource_name_filter": "p", "pattern_type_filter": 2}, ["*", "p"]),
        ({"resource_name_filter": "x", "principal_filter": "User:a"}, []),
        ({"principal_filter": "User:a", "resource_name_filter": "pq", "pattern_type_filter": 2}, ["*", "p", "pq"]),
        ({"resource_type_filter": 2, "pattern_type_filter": 3}, ["*", "pq"]),
    ],
)
def test_filters(given, names):
    host = ControllerHost()
    everything, prefixed = creation(resource_name="*"), creation(resource_name="p", resource_pattern_type=4, permission_type=2)
    create_acls(host, everything, prefixed, creation(resource_name="pq", host="10.0.0.1"))
    create_acls(host, creation(resource_type=3, resource_name="x", principal="User:b"))
    [result] = delete_acls(host, entry_filter(**given))
    assert sorted(each.resource_name for each in result.matching_acls) == names


def test_a_snapshot_and_a_restart_have_them(tmp_path):
    settings = BrokerConfig(metadata_log_max_record_bytes_between_snapshots=1)
    host = ControllerHost(settings, directory=tmp_path)
    create_acls(host, creation(), creation(operation=4), creation(resource_name="u"))
    delete_acls(host, entry_filter(operation=4))
    before = stored_acls(host)
    host.close()
    assert stored_acls(ControllerHost(settings, directory=tmp_path)) == before
    assert len(before) == 2


# ---- a cluster


def test_super_users_are_users():
    with pytest.raises(UsageError, match=r"some of the users 'admin', 'alice', not 'bob'$"):
        EmbeddedCluster(users=USERS, super_users=["bob"])
    with pytest.raises(UsageError, match="not 'User:alice'; leave out \"User:\""):
        EmbeddedCluster(users=USERS, super_users=["User:alice"])
    with pytest.raises(UsageError, match="super_users needs users="):
        EmbeddedCluster(super_users=["alice"])
    with pytest.raises(UsageError, match="super_users needs users="):
        EmbeddedCluster(super_users=[])


def test_many_filters_do_not_walk_over_all_entries_each():
    """A thousand names and a thousand principals cost what some walks do."""
    host = ControllerHost()
    create_acls(host, *(creation(resource_name=f"t{nth}", principal=f"User:u{nth % 50}") for nth in range(5_000)))
    names = [entry_filter(resource_name_filter=f"t{nth}") for nth in range(1_000)]
    unknown = [entry_filter(principal_filter=f"User:no{nth}") for nth in range(1_000)]
    walk = lines_of(lambda: delete_acls(host, entry_filter(operation=9)))
    results = []
    cost = lines_of(lambda: results.extend(delete_acls(host, *names, *unknown)))
    assert [len(each.matching_acls) for each in results] == [1] * 1_000 + [0] * 1_000
    assert walk > 5_000 and cost < 10 * walk


def test_an_answer_does_not_name_the_same_entries_without_end(monkeypatch):
    monkeypatch.setattr(acls, "MAX_MATCHING", 5)
    host = ControllerHost()
    create_acls(host, creation(), creation(operation=4))
    assert {(each.error_code, *each.matching_acls) for each in delete_acls(host, *[entry_filter()] * 3)} == {(Code.INVALID_REQUEST,)}
    assert len(stored_acls(host)) == 2
    answer = delete_acls(host, *[entry_filter()] * 2, entry_filter(operation=4))
    assert [len(each.matching_acls) for each in answer] == [2, 2, 1]
