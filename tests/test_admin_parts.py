"""What one item or one answer spoils stays with it: partial results of the admin client."""

import threading

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.admin import Acl, AclFilter, ItemResults, KafkaAdminClient
from kafkacore.admin.base import GROUP_KEY, Asked, OneByOne
from kafkacore.broker.server import Broker, Drop
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition

SHA_256, SHA_512 = ("w", "SCRAM-SHA-256"), ("w", "SCRAM-SHA-512")


@pytest.fixture
def broker():
    with Broker(BrokerConfig(auto_create_topics_enable=False)) as running:
        yield running


@pytest.fixture
def admin(broker):
    with KafkaAdminClient(bootstrap_servers=broker.address, retry_backoff_ms=10) as made:
        yield made


def test_results_are_a_mapping_of_what_worked():
    wrong = errors.TopicExists("there", topic="b")
    results = ItemResults({"a": 1}, {"b": wrong})
    assert dict(results) == {"a": 1} == dict(results.items()) == results.succeeded
    assert list(results) == ["a"]
    assert (results.get("a"), results.get("b"), results.get("b", 7), results.get("c")) == (1, None, 7, None)
    assert "a" in results
    assert "b" not in results
    for read in (results.check, lambda: results["b"]):
        with pytest.raises(errors.TopicExists):
            read()
    with pytest.raises(KeyError):
        results["c"]
    assert results.errors == {"b": wrong}


ACL = Acl("topic", "t", "User:a", "read")
SILENT = [
    (lambda admin: admin.create_topics(["x"]), p.CreateTopicsRequest, p.CreateTopicsResponse(), "x"),
    (lambda admin: admin.delete_topics(["x"]), p.DeleteTopicsRequest, p.DeleteTopicsResponse(), "x"),
    (lambda admin: admin.create_partitions({"x": 3}), p.CreatePartitionsRequest, p.CreatePartitionsResponse(), "x"),
    (lambda admin: admin.describe_configs([("topic", "x")]), p.DescribeConfigsRequest, p.DescribeConfigsResponse(), ("topic", "x")),
    (
        lambda admin: admin.alter_configs({("topic", "x"): {"retention.ms": 1}}),
        p.IncrementalAlterConfigsRequest,
        p.IncrementalAlterConfigsResponse(),
        ("topic", "x"),
    ),
    (lambda admin: admin.create_acls([ACL]), p.CreateAclsRequest, p.CreateAclsResponse(), ACL),
    (lambda admin: admin.delete_acls([AclFilter()]), p.DeleteAclsRequest, p.DeleteAclsResponse(), AclFilter()),
    (lambda admin: admin.delete_groups(["g"]), p.DeleteGroupsRequest, p.DeleteGroupsResponse(), "g"),
    (
        lambda admin: admin.delete_group_offsets("g", [("x", 0)]),
        p.OffsetDeleteRequest,
        p.OffsetDeleteResponse(),
        TopicPartition("x", 0),
    ),
    (
        lambda admin: admin.alter_client_quotas({(("user", "u"),): {"producer_byte_rate": 1.0}}),
        p.AlterClientQuotasRequest,
        p.AlterClientQuotasResponse(),
        frozenset({("user", "u")}),
    ),
    (
        lambda admin: admin.alter_user_scram_credentials({SHA_256: "p"}),
        p.AlterUserScramCredentialsRequest,
        p.AlterUserScramCredentialsResponse(),
        SHA_256,
    ),
]


@pytest.mark.parametrize(("call", "api", "answer", "item"), SILENT, ids=lambda value: getattr(value, "__name__", None))
def test_an_item_that_the_answer_leaves_out_has_an_error(broker, admin, call, api, answer, item):
    broker.control(api.API_KEY, lambda request: answer)
    results = call(admin)
    assert list(results.errors) == [item]
    error = results.errors[item]
    assert isinstance(error, errors.IncompleteAnswerError)
    asked = api.__name__.removesuffix("Request")
    assert (error.api, error.broker) == ((None, 1) if asked == "DeleteGroups" else (asked, None))  # which coordinator, or what
    with pytest.raises(errors.IncompleteAnswerError, match="no result"):
        results.check()


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.describe_log_dirs([1, 99]),
        lambda admin: admin.describe_configs([("broker", "1"), ("broker", "99")]),
    ],
    ids=["describe_log_dirs", "describe_configs"],
)
def test_an_unknown_broker_fails_at_once_and_alone(admin, call):
    results = call(admin)
    [(item, error)] = results.errors.items()
    assert isinstance(error, errors.BrokerNotAvailable)
    assert "99" in str(item)
    assert "no broker 99 now; it has 1" in str(error)
    assert len(results) == 1


def test_one_members_garbage_spoils_its_group_alone(broker, admin):
    def described(request):
        member = {"member_id": "m", "client_id": "c", "client_host": "/h"}
        assignments = {"good": bytes(6) + b"\xff" * 4, "bad": bytes([0, 0, 0x7F, 0xFF, 0xFF, 0xFF])}
        return p.DescribeGroupsResponse(
            groups=[
                p.DescribedGroup(
                    group_id=name,
                    group_state="Stable",
                    protocol_type="consumer",
                    protocol_data="range",
                    members=[p.DescribedGroupMember(**member, member_metadata=b"", member_assignment=assignments[name])],
                )
                for name in request.groups
            ]
        )

    broker.control(p.DescribeGroupsRequest.API_KEY, described)
    results = admin.describe_groups(["good", "bad"])
    assert list(results) == ["good"], results.errors
    assert isinstance(results.errors["bad"], errors.CorruptDataError)


def test_a_second_request_that_gets_lost_does_not_hide_the_first(broker, admin):
    asked = []

    def answer(request):
        asked.append(request)
        return None if len(asked) == 1 else Drop

    broker.control(p.AlterUserScramCredentialsRequest.API_KEY, answer)
    for timeout in (1, 10):  # on a machine that is busy the first answer may be late
        asked.clear()
        results = admin.alter_user_scram_credentials({SHA_256: "p", SHA_512: "p"}, timeout=timeout)
        if len(results):
            break
    assert list(results) == [SHA_256]
    assert isinstance(results.errors[SHA_512], errors.KafkaTimeoutError)
    with KafkaAdminClient(bootstrap_servers=broker.address) as other:
        assert other.describe_user_scram_credentials()["w"] == {"SCRAM-SHA-256": 4096}


def test_entries_that_are_deleted_are_reported_beside_those_that_are_not(broker, admin):
    def match(name, code):
        return p.DeleteAclsMatchingAcl(
            error_code=code,
            error_message="not this one" if code else None,
            resource_type=2,
            resource_name=name,
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )

    found = p.DeleteAclsFilterResult(matching_acls=[match("t", 0), match("u", Code.SECURITY_DISABLED), match("v", 0)])
    broker.control(p.DeleteAclsRequest.API_KEY, lambda request: p.DeleteAclsResponse(filter_results=[found]))
    [error] = admin.delete_acls([AclFilter()]).errors.values()
    assert isinstance(error, errors.PartlyDoneError)
    assert [acl.resource_name for acl in error.done] == ["t", "v"]
    assert {acl.resource_name: type(why) for acl, why in error.refused.items()} == {"u": errors.SecurityDisabled}
    assert "2 of 3 entries deleted" in str(error)
    assert error.code == Code.SECURITY_DISABLED


def test_coordinators_of_many_groups_are_found_by_one_request(broker, admin):
    asked, lock = [], threading.Lock()

    def count(request):
        with lock:
            asked.append(len(request.coordinator_keys))

    broker.control(p.FindCoordinatorRequest.API_KEY, count)
    names = [f"g{i}" for i in range(300)]
    results = admin.delete_groups(names)
    assert {type(error) for error in results.errors.values()} == {errors.GroupIdNotFound}
    assert list(results.errors) == names
    assert asked == [300]


def test_groups_that_are_asked_about_one_by_one_fail_alone():
    """Before Kafka 3.0 an OffsetFetch is about one group."""
    with EmbeddedCluster(emulate="2.x") as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster.create_topic("t")
        for group in ("b", "c"):
            admin.alter_group_offsets(group, {("t", 0): 7}).check()
        refused = p.OffsetFetchResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
        cluster.control("OffsetFetch", lambda request: refused if request.group_id in ("a", "d") else None)
        found = admin.list_groups_offsets(dict.fromkeys("abcd"))
    assert {group: type(error) for group, error in found.errors.items()} == dict.fromkeys("ad", errors.GroupAuthorization)
    assert [found[group][TopicPartition("t", 0)].offset for group in "bc"] == [7, 7]


def test_a_coordinator_that_is_not_found_hides_no_other(admin, monkeypatch):
    """Before Kafka 3.0 each is looked for by a request of its own."""

    def ask(calls, timeout_ms):
        if len(calls) == 1:
            raise OneByOne
        answers = [Asked(p.FindCoordinatorResponse(node_id=nth), None) for nth in range(3)]
        return [answers[0], Asked(None, errors.DisconnectError("lost")), answers[2]]

    monkeypatch.setattr(admin, "_ask_all", ask)
    found = admin._coordinators(["a", "b", "c"], GROUP_KEY, 0)
    assert (found["a"], type(found["b"]), found["c"]) == (0, errors.DisconnectError, 2)
