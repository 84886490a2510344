"""What a cluster is made of, and what needs authentication or a quorum: handlers without sockets, through the codec.

More of it is compared answer by answer with what Kafka said in tests/interop/test_admin_answers.py.
"""

from dataclasses import replace

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


def test_pages_begin_at_their_cursor_and_say_what_is_missing(bench):
    for name in ("a", "b", "c"):
        bench.topic(name, 2)
    bench.elect(bench.cluster.topics["b"], index=1, leader=2, epoch=4, replicas=[2, 1], isr=[2])
    missing = [("a b", Code.INVALID_TOPIC_EXCEPTION, []), ("none", Code.UNKNOWN_TOPIC_OR_PARTITION, [])]
    assert pages(bench, "none", "a", "a b", limit=2) == ([("a", 0, [0, 1]), *missing], None)
    assert pages(bench, "a", "b", limit=2) == ([("a", 0, [0, 1])], ("b", 0))
    at = p.Cursor(topic_name="b", partition_index=1)
    assert pages(bench, cursor=at) == pages(bench, "b", "c", cursor=at) == ([("b", 0, [1]), ("c", 0, [0, 1])], None)
    assert pages(bench, limit=0, cursor=at) == pages(bench, limit=1, cursor=at) == ([("b", 0, [1])], ("c", 0))
    assert pages(bench, cursor=p.Cursor(topic_name="aa", partition_index=1)) == ([("b", 0, [0, 1]), ("c", 0, [0, 1])], None)
    refused = [(name, Code.INVALID_REQUEST, []) for name in ("a", "c")]
    assert pages(bench, "a", "c", cursor=at) == (refused, None)
    assert pages(bench, "a", "c", cursor=p.Cursor(topic_name="a", partition_index=-1)) == (refused, None)
    answer = bench.ask(p.DescribeTopicPartitionsRequest(topics=[p.DescribeTopicPartitionsTopicRequest(name="b")]), 0)
    (topic,) = answer.topics
    known = bench.cluster.topics["b"]
    assert (topic.topic_id, topic.is_internal, topic.topic_authorized_operations) == (known.topic_id, False, 3576)
    assert [tuple(part)[:6] for part in topic.partitions] == [(0, 0, 1, 0, [1], [1]), (Code.LEADER_NOT_AVAILABLE, 1, 2, 4, [2, 1], [2])]
    assert [part.offline_replicas for part in topic.partitions] == [[], [2]]


# ---- the cluster


def test_brokers_are_described_and_fenced_ones_if_asked_for(bench):
    bench.cluster.brokers[2] = replace(bench.cluster.brokers[1], id=2, rack="r", fenced=True)
    one, two = (1, "127.0.0.1", 9092, None, False), (2, "127.0.0.1", 9092, "r", True)
    for fenced, version, brokers in ((False, 2, [one]), (True, 2, [one, two]), (True, 1, [one])):
        answer = bench.ask(p.DescribeClusterRequest(include_fenced_brokers=fenced and version > 1), version)
        assert [tuple(each) for each in answer.brokers] == [each if version > 1 else (*each[:4], False) for each in brokers]
        assert (answer.error_code, answer.controller_id, answer.cluster_authorized_operations) == (0, 1, -(2**31))
        assert answer.cluster_id == bench.cluster.cluster_id
    assert bench.ask(p.DescribeClusterRequest(include_cluster_authorized_operations=True), 0).cluster_authorized_operations == 8096
    words = ((2, Code.MISMATCHED_ENDPOINT_TYPE, "we wanted an endpoint of type CONTROLLER"), (3, Code.UNSUPPORTED_ENDPOINT_TYPE, "type 3"))
    for endpoint, code, word in words:
        answer = bench.ask(p.DescribeClusterRequest(endpoint_type=endpoint), 1)
        assert (answer.error_code, answer.cluster_id, word in answer.error_message) == (code, bench.cluster.cluster_id, True)


def test_logs_in_memory_lie_in_one_directory(bench):
    bench.topic("t", 2)
    bench.topic("u", 2)
    bench.produce()
    partition = bench.state.replicas.partition("t", 0)
    size = partition.log.size_bytes

    def described(*topics):
        wanted = [p.DescribableLogDirTopic(topic=name, partitions=list(indexes)) for name, *indexes in topics] or None
        answer = bench.ask(p.DescribeLogDirsRequest(topics=wanted), 4)
        (found,) = answer.results
        assert (answer.error_code, found.error_code, found.log_dir, found.total_bytes, found.usable_bytes) == (0, 0, "memory", -1, -1)
        return {topic.name: [tuple(part)[:3] for part in topic.partitions] for topic in found.topics}

    assert described() == {"t": [(0, size, 0), (1, 0, 0)], "u": [(0, 0, 0), (1, 0, 0)]}
    partition.high_watermark += 4
    assert described(("t", 0, 9), ("u", 1)) == {"t": [(0, size, 4)], "u": [(1, 0, 0)]}
    moves = [
        p.AlterReplicaLogDir(path=path, topics=[p.AlterReplicaLogDirTopic(name=name, partitions=[1, 2]) for name in ("t", "u")])
        for path in ("memory", "/other")
    ]
    answer = bench.ask(p.AlterReplicaLogDirsRequest(dirs=moves), 2)
    codes = {topic.topic_name: [(part.partition_index, part.error_code) for part in topic.partitions] for topic in answer.results}
    here = [(1, 0), (2, Code.UNKNOWN_TOPIC_OR_PARTITION), (1, Code.LOG_DIR_NOT_FOUND), (2, Code.LOG_DIR_NOT_FOUND)]
    assert codes == {"t": here, "u": here}


def test_the_quorum_is_the_controller_and_the_brokers_watch(bench):
    bench.cluster.nodes[2] = bench.cluster.nodes[1]

    def ask(*topics):
        wanted = [
            p.QuorumTopic(topic_name=name, partitions=[p.QuorumPartition(partition_index=at) for at in each]) for name, each in topics
        ]
        return bench.ask(p.DescribeQuorumRequest(topics=wanted), 2)

    answer = ask(("__cluster_metadata", [0]))
    (part,) = answer.topics[0].partitions
    end, now_ms = bench.cluster.next_offset, bench.clock.wall_ms()
    assert (answer.error_code, answer.topics[0].topic_name, part.partition_index, part.error_code) == (0, "__cluster_metadata", 0, 0)
    assert (part.leader_id, part.leader_epoch, part.high_watermark) == (1, 1, end)
    voters, observers = ([(each.replica_id, each.log_end_offset) for each in all_of] for all_of in (part.current_voters, part.observers))
    assert (voters, observers) == ([(1, end)], [(2, end)])
    assert (part.observers[0].last_fetch_timestamp, part.observers[0].last_caught_up_timestamp) == (now_ms, now_ms)
    for topics in ([("t", [0])], [("__cluster_metadata", [0, 1])], [("__cluster_metadata", [0]), ("t", [0])]):
        answer = ask(*topics)
        assert [(each.topic_name, [part.partition_index for part in each.partitions]) for each in answer.topics] == topics
        assert {part.error_code for each in answer.topics for part in each.partitions} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
        assert answer.error_code == 0


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
