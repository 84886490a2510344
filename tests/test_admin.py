"""KafkaAdminClient on the embedded broker."""

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.admin import ItemResults, KafkaAdminClient
from kafkacore.admin.base import Call
from kafkacore.broker.server import Broker, Disconnect
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import NewPartitions, NewTopic, TopicPartition
from tests.kit.rows import each_row


@pytest.fixture
def broker():
    with Broker(BrokerConfig(auto_create_topics_enable=False)) as running:
        yield running


@pytest.fixture
def admin(broker):
    with KafkaAdminClient({"bootstrap.servers": broker.address}, retry_backoff_ms=10) as made:
        yield made


def test_topics_come_and_go(admin):
    made = admin.create_topics([NewTopic("a", 3, 1, configs={"retention.ms": "1000"}), "b"]).check()
    assert (made["a"].num_partitions, made["a"].replication_factor, made["b"].num_partitions) == (3, 1, 1)
    assert made["a"].configs["retention.ms"] == "1000"
    assert any(made["a"].topic_id)
    assert admin.list_topics() == ["a", "b"]
    described = admin.describe_topics(["a"]).check()["a"]
    assert (described.name, described.topic_id, described.is_internal) == ("a", made["a"].topic_id, False)
    assert [(each.index, each.leader) for each in described.partitions] == [(0, 1), (1, 1), (2, 1)]
    assert list(admin.delete_topics(["a"]).check()) == ["a"]
    assert admin.list_topics() == ["b"]


def test_one_failure_does_not_hide_the_rest(admin):
    admin.create_topics(["a"]).check()
    results = admin.create_topics(["a", NewTopic("b", 0, 1), "c", "not a name!"])
    assert results["c"].name == "c"
    assert {name: type(e) for name, e in results.errors.items()} == {
        "a": errors.TopicExists,
        "b": errors.InvalidPartitions,
        "not a name!": errors.InvalidTopic,
    }
    with pytest.raises(errors.TopicExists, match="topic a"):
        results["a"]
    with pytest.raises(errors.KafkaError):
        results.check()
    assert list(results.succeeded) == ["c"]
    gone = admin.delete_topics(["a", "missing"])
    assert isinstance(gone.errors["missing"], errors.UnknownTopicOrPartition)
    assert admin.list_topics() == ["c"]


def test_describing_what_is_not_there_creates_nothing():
    with Broker() as broker, KafkaAdminClient(bootstrap_servers=broker.address) as admin:  # this broker would create topics
        assert isinstance(admin.describe_topics(["x"]).errors["x"], errors.UnknownTopicOrPartition)
        assert admin.list_topics() == []


def test_checking_only(admin):
    assert not admin.create_topics([NewTopic("a", 1, 1)], validate_only=True).errors
    assert admin.list_topics() == []


def test_the_cluster(admin, broker):
    found = admin.describe_cluster()
    assert found.cluster_id == broker.cluster.cluster_id
    assert [(n.id, n.port) for n in found.nodes] == [(1, broker.port)]
    assert found.controller == found.nodes[0]


def test_offsets_of_partitions_and_of_what_is_none(admin):
    admin.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
    results = admin.list_offsets({("t", 0): "latest", ("t", 5): "earliest", ("missing", 0): "latest", ("u", 0): "latest"})
    assert {tp: found.offset for tp, found in results.items()} == {("t", 0): 0, ("u", 0): 0}
    assert {tp: type(e) for tp, e in results.errors.items()} == {
        TopicPartition("t", 5): errors.UnknownTopicOrPartition,
        TopicPartition("missing", 0): errors.UnknownTopicOrPartition,
    }
    assert {(e.topic, e.partition) for e in results.errors.values()} == results.errors.keys()
    for wrong in ("newest", -7):
        with pytest.raises(errors.UsageError) as caught:
            admin.list_offsets({("t", 0): "latest", ("t", 7): wrong})
        assert (caught.value.topic, caught.value.partition) == ("t", 7)


def test_partitions_of_one_leader_have_an_outcome_each(admin, broker):
    """What is known already stays while one partition is asked for again, and another fails."""
    admin.create_topics([NewTopic("t", 3, 1)]).check()
    codes = [{1: Code.TOPIC_AUTHORIZATION_FAILED, 2: Code.NOT_LEADER_OR_FOLLOWER}, {}]
    asked = []

    def answer(request):
        asked.append([part.partition_index for part in request.topics[0].partitions])
        found = codes.pop(0)
        parts = [p.DeleteRecordsPartitionResult(partition_index=i, error_code=found.get(i, 0), low_watermark=7) for i in asked[-1]]
        return p.DeleteRecordsResponse(topics=[p.DeleteRecordsTopicResult(name="t", partitions=parts)])

    broker.control(p.DeleteRecordsRequest.API_KEY, answer)
    results = admin.delete_records({("t", index): 7 for index in range(3)})
    assert ({tp.partition: low for tp, low in results.items()}, asked) == ({0: 7, 2: 7}, [[0, 1, 2], [2]])
    assert {tp.partition: type(error) for tp, error in results.errors.items()} == {1: errors.TopicAuthorization}


def test_a_controller_that_moved_is_asked_again(admin, broker):
    answers = iter([41, None])

    def refuse(request):
        code = next(answers)
        return code and p.CreateTopicsResponse(topics=[p.CreatableTopicResult(name="a", error_code=code)])

    broker.control(p.CreateTopicsRequest.API_KEY, refuse)
    assert admin.create_topics(["a"]).check()["a"].name == "a"
    assert next(answers, "used up") == "used up"


def test_nobody_there_is_said_with_the_reasons():
    with KafkaAdminClient(bootstrap_servers="127.0.0.1:1") as admin:
        for timeout in (0.1, 1, 10):  # on a machine that is busy the refusal may be late
            with pytest.raises(errors.KafkaTimeoutError) as late:
                admin.list_topics(timeout=timeout)
            if "refused" in str(late.value):
                return
    raise AssertionError(f"the reason is not named: {late.value}")


def test_life():
    admin = KafkaAdminClient(bootstrap_servers="127.0.0.1:1")
    admin.close()
    admin.close()
    with pytest.raises(errors.ClosedError):
        admin.list_topics()


def test_usage(admin):
    with pytest.raises(errors.UsageError, match="collection"):
        admin.delete_topics("a")
    assert admin.create_topics([]) == ItemResults({}, {})
    with pytest.raises(errors.ConfigError, match="client_id"):
        KafkaAdminClient(bootstrap_servers="127.0.0.1:1", clientid="x")


def test_partitions_are_added(admin):
    admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 3, 1)]).check()
    results = admin.create_partitions({"a": 2, "b": 2, "c": 9})
    assert results.succeeded == {"a": None}
    assert {name: (type(error), error.topic) for name, error in results.errors.items()} == {
        "b": (errors.InvalidPartitions, "b"),
        "c": (errors.UnknownTopicOrPartition, "c"),
    }
    assert admin.create_partitions({"b": NewPartitions(4, [[1]])}, validate_only=True).check().succeeded == {"b": None}
    admin.create_partitions({"b": NewPartitions(5, [[1], [1]])}).check()
    described = admin.describe_topics(["a", "b"]).check()
    assert {name: len(topic.partitions) for name, topic in described.items()} == {"a": 2, "b": 5}
    assert isinstance(admin.create_partitions({"b": NewPartitions(6, [[7]])}).errors["b"], errors.InvalidReplicaAssignment)


def test_a_coordinator_that_loads_moves_or_goes_away_is_looked_for_again():
    """A broker that nobody knows, one that is gone, one that goes before it has answered, and one that is it no more."""
    with EmbeddedCluster(brokers=2) as cluster:
        with KafkaAdminClient({"bootstrap.servers": cluster.bootstrap_servers}, retry_backoff_ms=10) as admin:
            admin.list_groups()  # it knows both brokers
            cluster.stop_broker(2)
            places = [-1, 9, 2, 1, 1, 1]

            def find(request):
                place = places.pop(0)
                code = Code.COORDINATOR_LOAD_IN_PROGRESS if place < 0 else 0
                found = [p.Coordinator(key=key, node_id=place, host="", port=1, error_code=code) for key in request.coordinator_keys]
                return p.FindCoordinatorResponse(coordinators=found)

            def state(code):
                found = p.DescribeTransactionsTransactionState(error_code=code, transactional_id="t")
                return p.DescribeTransactionsResponse(transaction_states=[found])

            answers = [Disconnect, state(Code.NOT_COORDINATOR), state(Code.TRANSACTIONAL_ID_NOT_FOUND)]

            cluster.control(p.FindCoordinatorRequest.API_KEY, find)
            cluster.control(p.DescribeTransactionsRequest.API_KEY, lambda request: answers.pop(0))
            found = admin.describe_transactions(["t"], timeout=60)
            assert (type(found.errors["t"]), places, answers) == (errors.TransactionalIdNotFound, [], [])
            cluster.control(p.DescribeTransactionsRequest.API_KEY, lambda request: state(Code.NOT_COORDINATOR))
            for timeout in (0.1, 1, 10):  # on a machine that is busy the first answer may be late
                places[:] = [1] * 1000
                late = admin.describe_transactions(["t"], timeout=timeout).errors["t"]
                assert isinstance(late, errors.KafkaTimeoutError)
                if late.attempts and isinstance(late.attempts[0], errors.NotCoordinator):
                    return
            raise AssertionError(f"the cause is not named: {late}")


def test_lists_wait_for_coordinators_that_are_still_reading(admin, broker):
    busy = [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE]
    for api, answer, ask in (
        (p.ListGroupsRequest, p.ListGroupsResponse, admin.list_groups),
        (p.ListTransactionsRequest, p.ListTransactionsResponse, admin.list_transactions),
    ):
        codes = list(busy)
        broker.control(api.API_KEY, lambda request, codes=codes, answer=answer: answer(error_code=codes.pop()) if codes else None)
        assert (ask(), codes) == ([], [])


@each_row("entity", [("user", "alice"), ("ip", "ab"), "user", (), (("user", "alice", 1),), None])
def test_the_entity_of_a_quota_is_a_tuple_of_pairs(entity):
    with KafkaAdminClient(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(errors.UsageError, match="such as"):
        admin.alter_client_quotas({entity: {"producer_byte_rate": 1.0}})


def test_calls_with_nothing_to_do_ask_nobody():
    with KafkaAdminClient(bootstrap_servers="127.0.0.1:1") as admin:
        assert not admin.alter_client_quotas({}) and not admin.create_acls([]) and not admin.delete_acls([])
        assert not admin.alter_partition_reassignments({}) and not admin.delete_records({}) and not admin.describe_configs([])
        assert not admin.delete_groups([]) and not admin.alter_group_offsets("g", {}) and not admin.describe_transactions([])


def test_retries_bound_every_call(broker):
    asked = []

    def refuse(request):
        asked.append(type(request))
        return Disconnect()

    with KafkaAdminClient(bootstrap_servers=broker.address, retries=2, retry_backoff_ms=1, reconnect_backoff_ms=1) as admin:
        admin.create_topics(["a"]).check()
        broker.control(p.ListOffsetsRequest.API_KEY, refuse)
        broker.control(p.CreateTopicsRequest.API_KEY, refuse)
        broker.control(p.DeleteRecordsRequest.API_KEY, refuse)
        assert isinstance(admin.list_offsets({("a", 0): "latest"}).errors["a", 0], errors.NetworkError)
        with pytest.raises(errors.NetworkError):
            admin.create_topics(["b"])
        assert isinstance(admin.delete_records({("a", 0): 0}).errors["a", 0], errors.NetworkError)
    assert asked == [p.ListOffsetsRequest] * 3 + [p.CreateTopicsRequest] * 3 + [p.DeleteRecordsRequest] * 3


def test_a_broker_may_be_given_other_time_than_the_call(admin, monkeypatch):
    asked = []
    real = Call.__init__

    def noted(self, admin, api, build, *rest, **more):
        request = build(5)
        if hasattr(request, "timeout_ms"):
            asked.append((api.__name__.removesuffix("Request"), request.timeout_ms))
        real(self, admin, api, build, *rest, **more)

    monkeypatch.setattr(Call, "__init__", noted)
    for more in ({}, {"operation_timeout": 0.5}):
        admin.create_topics(["a"], timeout=60, **more).check()
        admin.create_partitions({"a": 2}, timeout=60, **more).check()
        admin.elect_leaders([("a", 0)], timeout=60, **more)
        admin.delete_topics(["a"], timeout=60, **more).check()
    names = ["CreateTopics", "CreatePartitions", "ElectLeaders", "DeleteTopics"]
    assert asked == [(name, ms) for ms in (60_000, 500) for name in names]


def test_settings_are_asked_of_a_broker(admin):
    admin.create_topics(["a"]).check()
    topic = ("topic", "a")
    assert admin.describe_configs([topic], broker=1).check()[topic]["retention.ms"].is_default
    admin.alter_configs({topic: {"retention.ms": 5}}, broker=1).check()
    assert admin.describe_configs([topic])[topic]["retention.ms"].value == "5"
    late = admin.describe_configs([topic], broker=77)
    assert isinstance(late.errors[topic], errors.BrokerNotAvailable)
