"""What a cluster is made of, and what needs authentication or a quorum: handlers without sockets, through the codec.

More of it is compared answer by answer with what Kafka said in tests/interop/test_admin_answers.py.
"""

import pytest
from test_handlers import Bench

from kafkacore import protocol as p
from kafkacore.errors import Code


@pytest.fixture
def bench():
    return Bench()


# ---- DescribeTopicPartitions


def pages(bench, *topics, limit=2000, cursor=None):
    request = p.DescribeTopicPartitionsRequest(
        topics=[p.DescribeTopicPartitionsTopicRequest(name=name) for name in topics], response_partition_limit=limit, cursor=cursor
    )
    answer = bench.ask(request, 0)
    found = [(topic.name, topic.error_code, [part.partition_index for part in topic.partitions]) for topic in answer.topics]
    return found, answer.next_cursor and tuple(answer.next_cursor)


def test_paging_through_partitions(bench):
    bench.topic("b", 2)
    bench.topic("a", 3)
    everything = [("a", 0, [0, 1, 2]), ("b", 0, [0, 1])]
    assert pages(bench) == pages(bench, "b", "a", "a") == (everything, None)
    seen, cursor, rounds = [], None, 0
    while rounds == 0 or cursor:
        found, at = pages(bench, limit=2, cursor=cursor)
        seen += [(name, index) for name, _, indexes in found for index in indexes]
        cursor = at and p.Cursor(topic_name=at[0], partition_index=at[1])
        rounds += 1
    assert rounds == 3
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    own_limit = Bench(max_request_partition_size_limit=1)
    own_limit.topic("a", 3)
    assert pages(own_limit, "a") == ([("a", 0, [0])], ("a", 1))


# ---- what needs authentication, or a quorum


@pytest.mark.parametrize("version", [1, 2, 3])
def test_nobody_gets_a_delegation_token_without_authentication(bench, version):
    older = min(version, 2)
    for request, at in (
        (p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version),
        (p.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), older),
        (p.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), older),
        (p.DescribeDelegationTokenRequest(owners=None), version),
    ):
        assert bench.ask(request, at).error_code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    wanted = p.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1)
    answer = bench.ask(wanted, 3)
    assert (answer.principal_name, answer.token_requester_principal_name, answer.expiry_timestamp_ms) == ("bob", "ANONYMOUS", -1)


def test_nobody_need_say_who_he_is(bench):
    handshake = bench.ask(p.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (handshake.error_code, handshake.mechanisms) == (Code.ILLEGAL_SASL_STATE, [])
    assert bench.ask(p.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2).error_code == Code.ILLEGAL_SASL_STATE


def test_the_quorum_stays_as_it_is(bench):
    known = bytes(range(16))
    listener = p.RaftVoterListener(name="CONTROLLER", host="h", port=1)

    def add(**changes):
        fields = {"cluster_id": None, "timeout_ms": 1, "voter_id": 2, "voter_directory_id": known, "listeners": [listener]} | changes
        return bench.ask(p.AddRaftVoterRequest(**fields), 1)

    def remove(**changes):
        return bench.ask(p.RemoveRaftVoterRequest(**{"cluster_id": None, "voter_id": 2, "voter_directory_id": known} | changes), 0)

    for ask in (add, remove):
        assert ask().error_code == ask(cluster_id=bench.cluster.cluster_id).error_code == Code.UNSUPPORTED_VERSION
        assert ask(cluster_id="other").error_code == Code.INCONSISTENT_CLUSTER_ID
        assert ask(voter_id=-1).error_code == ask(voter_directory_id=bytes(16)).error_code == Code.INVALID_REQUEST
    assert "default listener" in add(listeners=[listener._replace(name="X")]).error_message


# ---- Kafka's words where something is missing


def test_what_may_be_done_to_a_topic_is_told_of_missing_ones_too(bench):
    bench.topic("t", 1)
    topics = [p.MetadataRequestTopic(name=name) for name in ("t", "none", "a b")]
    unknown = p.MetadataRequestTopic(topic_id=b"\1" * 16, name=None)
    request = p.MetadataRequest(topics=[*topics, unknown], include_topic_authorized_operations=True, allow_auto_topic_creation=False)
    answer = bench.ask(request, 12)
    assert [each.topic_authorized_operations for each in answer.topics] == [3576, 3576, 3576, -(2**31)]


def test_producers_of_what_is_not_there(bench):
    bench.topic("t", 1)
    topics = [p.DescribeProducersTopicRequest(name=name, partition_indexes=[9]) for name in ("t", "none")]
    found = [topic.partitions[0] for topic in bench.ask(p.DescribeProducersRequest(topics=topics), 0).topics]
    assert [each.error_code for each in found] == [Code.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert [each.error_message for each in found] == [None, "This server does not host this topic-partition."]


@pytest.mark.parametrize(("version", "key_type", "words"), [(3, 2, "This most likely"), (4, 2, ""), (6, 2, ""), (4, 3, "This most likely")])
def test_coordinators_that_do_not_exist(bench, version, key_type, words):
    keys = {"key": "k"} if version < 4 else {"coordinator_keys": ["k"]}
    answer = bench.ask(p.FindCoordinatorRequest(key_type=key_type, **keys), version)
    found = answer if version < 4 else answer.coordinators[0]
    assert found.error_code == Code.INVALID_REQUEST
    assert found.error_message.startswith(words) and bool(found.error_message) == bool(words)
