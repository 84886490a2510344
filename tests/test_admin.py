"""KafkaAdminClient on the embedded broker."""

import threading

import pytest

from kafkacore import errors
from kafkacore.admin import ItemResults, KafkaAdminClient
from kafkacore.broker.server import Broker, Disconnect, Drop
from kafkacore.config import BrokerConfig
from kafkacore.protocol import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse, ListOffsetsRequest, MetadataRequest
from kafkacore.types import NewPartitions, NewTopic, TopicPartition


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
    assert [(p.index, p.leader) for p in described.partitions] == [(0, 1), (1, 1), (2, 1)]
    assert list(admin.delete_topics(["a"]).check()) == ["a"]
    assert admin.list_topics() == ["b"]


def test_one_failure_does_not_hide_the_rest(admin):
    admin.create_topics(["a"]).check()
    results = admin.create_topics(["a", NewTopic("b", 0, 1), "c", "not a name!"])
    assert set(results) == {"a", "b", "c", "not a name!"}
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
    admin.create_topics([NewTopic("t", 1, 1)])
    results = admin.list_offsets({("t", 0): "latest", ("t", 5): "earliest", ("missing", 0): "latest"})
    assert results[TopicPartition("t", 0)].offset == 0
    assert {tp: type(e) for tp, e in results.errors.items()} == {
        TopicPartition("t", 5): errors.UnknownTopicOrPartition,
        TopicPartition("missing", 0): errors.UnknownTopicOrPartition,
    }
    for wrong in ("newest", -7):
        with pytest.raises(errors.UsageError):
            admin.list_offsets({("t", 0): wrong})


def test_a_controller_that_moved_is_asked_again(admin, broker):
    answers = iter([41, None])

    def refuse(request):
        code = next(answers)
        return code and CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=code)])

    broker.control(CreateTopicsRequest.API_KEY, refuse)
    assert admin.create_topics(["a"]).check()["a"].name == "a"
    assert next(answers, "used up") == "used up"


def test_a_lost_answer_is_asked_for_again(admin, broker):
    admin.create_topics(["a"]).check()
    answers = iter([Disconnect, None])
    broker.control(MetadataRequest.API_KEY, lambda request: next(answers, None))
    assert admin.list_topics() == ["a"]


def test_nobody_there_is_said_with_the_reasons():
    with KafkaAdminClient(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(errors.KafkaTimeoutError, match="refused"):
        admin.list_topics(timeout=0.3)


def test_threads_take_turns(admin):
    names = [f"t{i}" for i in range(8)]
    threads = [threading.Thread(target=admin.create_topics, args=([name],)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admin.list_topics() == names


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
    assert {name: type(error) for name, error in results.errors.items()} == {
        "b": errors.InvalidPartitions,
        "c": errors.UnknownTopicOrPartition,
    }
    assert admin.create_partitions({"b": NewPartitions(4, [[1]])}, validate_only=True).check().succeeded == {"b": None}
    admin.create_partitions({"b": NewPartitions(5, [[1], [1]])}).check()
    described = admin.describe_topics(["a", "b"]).check()
    assert {name: len(topic.partitions) for name, topic in described.items()} == {"a": 2, "b": 5}
    assert isinstance(admin.create_partitions({"b": NewPartitions(6, [[7]])}).errors["b"], errors.InvalidReplicaAssignment)


def test_closing_ends_the_call_of_another_thread(broker, admin):
    asked = threading.Event()

    def hang(request):
        asked.set()
        return Drop()

    broker.control(MetadataRequest.API_KEY, lambda request: None if request.topics == [] else hang(request))
    ended = []

    def ask():
        try:
            admin.list_topics(timeout=60)
        except errors.KafkaError as error:
            ended.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(10)
    admin.close()
    thread.join(10)
    assert ended == [errors.ClosedError]


@pytest.mark.parametrize("call", ["describe_configs", "list_groups", "delete_records", "abort_transaction", "create_acls"])
def test_what_is_not_there_yet_says_so(admin, call):
    with pytest.raises(errors.UsageError, match=f"{call} is not implemented yet"):
        getattr(admin, call)("x", option=1)


def test_retries_bound_every_call(broker):
    asked = []

    def refuse(request):
        asked.append(type(request))
        return Disconnect()

    with KafkaAdminClient(bootstrap_servers=broker.address, retries=2, retry_backoff_ms=1, reconnect_backoff_ms=1) as admin:
        admin.create_topics(["a"]).check()
        broker.control(ListOffsetsRequest.API_KEY, refuse)
        broker.control(CreateTopicsRequest.API_KEY, refuse)
        assert isinstance(admin.list_offsets({("a", 0): "latest"}).errors["a", 0], errors.NetworkError)
        with pytest.raises(errors.NetworkError):
            admin.create_topics(["b"])
    assert asked == [ListOffsetsRequest] * 3 + [CreateTopicsRequest] * 3
