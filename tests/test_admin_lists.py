"""Lists that all brokers know a part of: what a broker that fails takes from them, and what it does not."""

import json

import pytest

from kafkacore import KafkaProducer, errors
from kafkacore import protocol as p
from kafkacore.admin import KafkaAdminClient
from kafkacore.cli.app import run
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 4, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 4}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=3) as started:
        started.create_topic("t", partitions=1, replication_factor=2)
        yield started


@pytest.fixture
def admin(cluster):
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as made:
        yield made


def group(name):
    return p.ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable", group_type="classic")


LISTS = [
    (
        "list_groups",
        p.ListGroupsRequest,
        lambda names: p.ListGroupsResponse(groups=[group(name) for name in names]),
        lambda each: each.group_id,
        p.ListGroupsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED),
    ),
    (
        "list_transactions",
        p.ListTransactionsRequest,
        lambda names: p.ListTransactionsResponse(
            transaction_states=[
                p.ListTransactionsTransactionState(transactional_id=name, producer_id=1, transaction_state="Ongoing") for name in names
            ]
        ),
        lambda each: each.transactional_id,
        p.ListTransactionsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED),
    ),
]


@pytest.fixture
def answers(cluster, admin, request):
    """A function that sets what the brokers answer, in the order they are asked; the API goes back to normal afterwards."""
    changed = []

    def play(api, given):
        left = list(given)
        changed.append(api)
        cluster.control(api.API_KEY, lambda request: left.pop(0) if left else None)

    yield play
    for api in changed:
        cluster.control(api.API_KEY, None)


@pytest.mark.parametrize(("call", "api", "listing", "name_of", "refusal"), LISTS, ids=[each[0] for each in LISTS])
def test_a_broker_that_refuses_hides_nothing_of_the_others(admin, answers, call, api, listing, name_of, refusal):
    given = [listing(["b", "a"]), refusal, listing(["c", "a"])]
    answers(api, given)
    found = getattr(admin, call)(partial=True)
    assert [name_of(each) for each in found] == ["a", "b", "c"]
    ((node_id, error),) = found.errors.items()
    assert isinstance(error, errors.ClusterAuthorization)
    assert f"broker {node_id}" in str(error)
    with pytest.raises(errors.ClusterAuthorization):
        found.check()
    answers(api, given)
    with pytest.raises(errors.ClusterAuthorization):
        getattr(admin, call)()
    whole = getattr(admin, call)()
    assert (whole, whole.errors, whole.check()) == ([], {}, [])


def test_a_broker_that_is_away_hides_nothing_of_the_others():
    with EmbeddedCluster(brokers=3) as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as admin:
        assert len(admin.describe_cluster().nodes) == 3
        nodes = admin._nodes(60_000)
        cluster.stop_broker(2)
        admin._nodes = lambda timeout_ms: nodes  # as when it goes after the metadata were answered
        found = admin.list_groups(partial=True, timeout=20)
        assert (found, list(found.errors)) == ([], [2])
        assert isinstance(found.errors[2], errors.BrokerNotAvailable)


def test_commands_show_what_is_known_and_fail(cluster, answers, capsys):
    where = ["-b", cluster.bootstrap_servers, "--json"]
    for words, (_, api, listing, _, refusal) in zip((["groups", "list"], ["transactions", "list"]), LISTS, strict=True):
        answers(api, [listing(["one"]), refusal, listing(["two"])])
        assert run([*words, *where]) == 1
        out, err = capsys.readouterr()
        assert len(json.loads(out)) == 2
        assert "one" in out and "two" in out
        assert err.startswith("kafkacore: CLUSTER_AUTHORIZATION_FAILED")
        assert "broker " in err


def test_offsets_that_are_refused_hide_no_other_group(cluster, admin, capsys):
    admin.alter_group_offsets("good", {("t", 0): 0}).check()
    admin.alter_group_offsets("bad", {("t", 0): 0}).check()

    def fetched(request):
        if not any(each.group_id == "bad" for each in request.groups):
            return None
        parts = [p.OffsetFetchResponseGroup(group_id=each.group_id, error_code=Code.GROUP_AUTHORIZATION_FAILED) for each in request.groups]
        return p.OffsetFetchResponse(groups=[part if part.group_id == "bad" else part._replace(error_code=0) for part in parts])

    cluster.control(p.OffsetFetchRequest.API_KEY, fetched)
    try:
        assert run(["groups", "describe", "-b", cluster.bootstrap_servers, "--json"]) == 1
    finally:
        cluster.control(p.OffsetFetchRequest.API_KEY, None)
    out, err = capsys.readouterr()
    assert {"good", "bad"} <= json.loads(out).keys()
    assert "GROUP_AUTHORIZATION_FAILED" in err


# -- producers, at a broker -------------------------------------------------------------------------------------------------------


def test_producers_as_a_follower_knows_them(cluster, admin):
    replicas = admin.describe_topics(["t"])["t"].partitions[0].replicas
    (stranger,) = {1, 2, 3} - set(replicas)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"x", partition=0).result(60)  # acks=all: both replicas have it
    known = [admin.describe_producers([("t", 0)], broker=broker).check()["t", 0] for broker in replicas]
    assert [each.last_sequence for each in known[0]] == [0]
    assert known[0] == known[1]
    results = admin.describe_producers([("t", 0)], broker=stranger)
    assert isinstance(results.errors["t", 0], errors.NotLeaderOrFollower)
    assert results.errors["t", 0].broker == stranger
    assert isinstance(admin.describe_producers([("t", 0)], broker=77).errors["t", 0], errors.BrokerNotAvailable)
    assert dict(admin.describe_producers([], broker=1)) == {}


def test_each_partition_has_its_own_outcome(admin, answers):
    parts = [
        p.DescribeProducersPartitionResponse(partition_index=0),
        p.DescribeProducersPartitionResponse(partition_index=1, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    answers(
        p.DescribeProducersRequest, [p.DescribeProducersResponse(topics=[p.DescribeProducersTopicResponse(name="t", partitions=parts)])]
    )
    results = admin.describe_producers([("t", 0), ("t", 1), ("t", 2)], broker=1)
    assert dict(results) == {("t", 0): []}
    assert isinstance(results.errors["t", 1], errors.UnknownTopicOrPartition)
    assert isinstance(results.errors["t", 2], errors.IncompleteAnswerError)
