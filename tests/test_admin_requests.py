"""What calls of the admin client ask for at the versions of their APIs, and what they make of answers with two unlike items. No network."""

import inspect
from collections import defaultdict
from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.admin import Acl, AclFilter, Append, FeatureUpdate, ItemResults, KafkaAdminClient, Subtract
from kafkacore.admin.base import GROUP_KEY, TRANSACTION_KEY, Asked, Call, results_of
from kafkacore.clock import ManualClock
from kafkacore.errors import Code
from kafkacore.types import NewTopic, Node, OffsetAndMetadata, TopicPartition

REFUSED = Code.CLUSTER_AUTHORIZATION_FAILED


def answer(kind, /, **fields):
    """A message of a kind; dictionaries in it become the messages of their fields."""

    def made(field, value):
        if isinstance(value, list):
            return [made(field, each) for each in value]
        return answer(field.type, **value) if isinstance(value, dict) else value

    return kind(**{name: made(kind.FIELDS[name], value) for name, value in fields.items()})


def shown(message):
    """What a message says, without what it leaves at the default."""
    if isinstance(message, list):
        return [shown(each) for each in message]
    if not hasattr(message, "FIELDS"):
        return message
    blank = type(message)()
    return {name: shown(value) for name in message.FIELDS if (value := getattr(message, name)) != getattr(blank, name)}


@pytest.fixture
def ask(monkeypatch):
    """A function that makes a call and gives its answers, in the order of the requests; it returns the result and the requests.

    Those for brokers and coordinators are answered by themselves: there are the brokers 1 and 2, and 1 coordinates everything. One answer
    is that of all leaders.
    `how` is how the last requests went: whether no other broker could answer, whether another one may be found. All errors of answers
    have to say where it happened.
    """
    built = {}
    real = Call.__init__

    def noted(self, admin, api, build, *rest, **more):
        built[self] = api, build, {name for name, value in more.items() if value}
        real(self, admin, api, build, *rest, **more)

    monkeypatch.setattr(Call, "__init__", noted)

    def make(call, *answers, version=None, key_type=GROUP_KEY):
        left, asked, apis = list(answers), [], set()
        make.how = []

        def answered(api, build, how):
            apis.add(api.__name__.removesuffix("Request"))
            request = build(api.MAX_VERSION if version is None else version)
            if api is p.FindCoordinatorRequest:
                if request.key_type != key_type:
                    return answer(p.FindCoordinatorResponse, error_code=REFUSED)
                return answer(
                    p.FindCoordinatorResponse, node_id=1, coordinators=[{"key": k, "node_id": 1} for k in request.coordinator_keys]
                )
            if api is p.MetadataRequest and request.topics == []:
                return answer(p.MetadataResponse, brokers=[{"node_id": 1, "host": "a"}, {"node_id": 2, "host": "b"}])
            asked.append(shown(request))
            make.how.append(how)
            return left.pop(0)

        def ask_all(calls, timeout_ms, refused=None):
            assert timeout_ms in (30_000, 7_000)  # as calls here say, or nothing
            found = []
            for each in calls:
                response = answered(*built[each])
                while refused is not None and not isinstance(response, Exception) and refused(response) is not None:
                    response = answered(*built[each])
                found.append(Asked(None, response) if isinstance(response, Exception) else Asked(response, None))
            return found

        def ask_leaders(partitions, request, read, timeout):
            tps = list(partitions)
            api, build = request(tps)
            found = [(tp, code, None, value) for tp, code, value in read(answered(api, build, {"leaders"}))]
            return results_of(found, tps, api.__name__.removesuffix("Request"))

        still = {"clock": ManualClock(1_000), "retry_backoff_ms": 0, "default_api_timeout_ms": 30_000}
        with KafkaAdminClient(bootstrap_servers="127.0.0.1:1", **still) as admin:
            monkeypatch.setattr(admin, "_ask_all", ask_all)
            monkeypatch.setattr(admin, "_ask_leaders", ask_leaders)
            try:
                result = call(admin)
            except errors.KafkaError as error:
                assert isinstance(error, errors.UsageError) or error.api in apis
                raise
        assert not left
        for item, error in result.errors.items() if isinstance(result, ItemResults) else ():
            if error not in answers:
                assert error.api in apis
                assert not isinstance(item, TopicPartition) or (error.topic, error.partition) == item
                assert not isinstance(item, int) or error.broker == item
        return result, asked

    return make


def of_errors(results):
    return {item: type(error) for item, error in results.errors.items()}


UNLESS_SAID = {
    **dict.fromkeys(("broker", "brokers", "cluster_id", "filters", "instances", "matching", "members", "names", "owner", "owners"), None),
    **dict.fromkeys(("operation_timeout", "partitions", "pattern", "timeout", "users"), None),
    **dict.fromkeys(("include_authorized_operations", "include_fenced_brokers", "include_internal", "include_synonyms"), False),
    **dict.fromkeys(("partial", "read_committed", "require_stable", "strict", "validate_only"), False),
    **dict.fromkeys(("kinds", "producer_ids", "renewers", "states", "topic_ids", "types"), ()),
    **dict.fromkeys(("longer_than_ms", "max_lifetime_ms", "period_ms"), -1),
    "election": "preferred",
    "iterations": 4096,
    "reason": "",
    "retry_on_quota_violation": True,
}


def test_what_calls_do_unless_they_are_told():
    found = defaultdict(set)
    for name, call in inspect.getmembers(KafkaAdminClient, inspect.isfunction):
        for each in inspect.signature(call).parameters.values() if not name.startswith("_") else ():
            if each.default is not each.empty:
                found[each.name].add(each.default)
    assert found == {name: {value} for name, value in UNLESS_SAID.items()}


def test_settings_are_in_the_help_and_names_of_others_are_answered():
    assert "\n    bootstrap_controllers: " in KafkaAdminClient.__doc__ or "\nbootstrap_controllers: " in KafkaAdminClient.__doc__
    with KafkaAdminClient(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(AttributeError, match=r"describe_groups\(names\)"):
        admin.describe_consumer_groups  # noqa: B018


def test_what_the_controller_alone_does(ask):
    elsewhere = {"error_code": Code.NOT_CONTROLLER}
    for call, kind, items in (
        (lambda admin: admin.create_topics(["t"]), p.CreateTopicsResponse, "topics"),
        (lambda admin: admin.delete_topics(["t"]), p.DeleteTopicsResponse, "responses"),
        (lambda admin: admin.delete_topics_by_id([b"t" * 16]), p.DeleteTopicsResponse, "responses"),
        (lambda admin: admin.create_partitions({"t": 3}), p.CreatePartitionsResponse, "results"),
        (lambda admin: admin.alter_user_scram_credentials({("a", "SCRAM-SHA-256"): None}), p.AlterUserScramCredentialsResponse, "results"),
        (lambda admin: admin.elect_leaders(), p.ElectLeadersResponse, None),
        (lambda admin: admin.alter_partition_reassignments({("t", 0): None}), p.AlterPartitionReassignmentsResponse, None),
        (lambda admin: admin.list_partition_reassignments(), p.ListPartitionReassignmentsResponse, None),
        (lambda admin: admin.update_features({"a": FeatureUpdate(1, "safe_downgrade")}), p.UpdateFeaturesResponse, None),
        (lambda admin: admin.unregister_broker(3), p.UnregisterBrokerResponse, None),
    ):
        refused = answer(kind, **({items: [{}, elsewhere]} if items else elsewhere))
        asked = ask(call, refused, kind())[1]
        assert (asked[0], ask.how) == (asked[1], [{"is_fixed"}] * 2)
    for call, kind in (
        (lambda admin: admin.create_delegation_token(), p.CreateDelegationTokenResponse),
        (lambda admin: admin.renew_delegation_token(b"h"), p.RenewDelegationTokenResponse),
    ):
        ask(call, kind())
        assert ask.how == [{"is_fixed"}]
    ask(lambda admin: admin.describe_client_quotas(), p.DescribeClientQuotasResponse())
    assert ask.how == [set()]


@pytest.fixture
def rig():
    """What a call needs of an admin client, moved by hand."""
    rig = SimpleNamespace(node=None, ready=True, failed=False, sent=[], updates=0)
    client = SimpleNamespace(
        ready=lambda node, now_ms: rig.ready,
        connection_failed=lambda node: rig.failed,
        poll_delay_ms=lambda node, now_ms: 33,
        new_client_request=lambda *what, callback, max_version: (*what, max_version, callback),
        send=lambda request, now_ms: rig.sent.append((request, now_ms)),
    )
    rig.config = SimpleNamespace(asks_controllers=False, retries=3, retry_backoff_ms=100, retry_backoff_max_ms=300, reconnect_backoff_ms=50)

    def find(now_ms):
        if isinstance(rig.node, Exception):
            raise rig.node
        return rig.node

    def update():
        rig.updates += 1

    def answer(response=None, error=None):
        rig.sent[-1][0][-1](SimpleNamespace(response=response, error=error))

    driver = SimpleNamespace(client=client, metadata=SimpleNamespace(request_update=update))
    rig.call = lambda api=p.MetadataRequest, **how: Call(SimpleNamespace(config=rig.config, _driver=driver), api, "build", find, **how)
    rig.answer = answer
    return rig


def test_tries_of_a_call(rig):
    call, lost = rig.call(p.OffsetCommitRequest), errors.DisconnectError("lost")
    assert (call.step(0), rig.updates) == (50, 1)
    rig.node, rig.ready = Node(2, "h", 1, None), False
    assert (call.step(0), rig.call(is_fixed=True).step(0), rig.sent) == (50, 33, [])
    rig.ready = True
    now_ms = 7
    for tries, wait_ms in enumerate((100, 200, 300), 1):
        assert [call.step(now_ms), call.step(now_ms), call.done, call.tries] == [None, None, False, tries]
        assert [each[0][:5] for each in rig.sent] == [(2, p.OffsetCommitRequest, "build", each[1], 9) for each in rig.sent]
        assert (len(rig.sent), rig.sent[-1][1]) == (tries, now_ms)
        rig.answer(error=lost)
        assert [call.step(now_ms + 5), call.step(now_ms + 4 + wait_ms)] == [wait_ms, 1]
        now_ms += 5 + wait_ms
    call.step(now_ms)
    rig.answer()  # without a reason
    assert (call.step(now_ms), call.done, call.response) == (None, True, None)
    assert [str(each).partition(" [")[0] for each in call.attempts] == [str(lost)] * 3 + [str(call.error)]
    assert (call.step(now_ms + 9_999), len(rig.sent), rig.updates) == (None, 4, 5)
    late = errors.CoordinatorLoadInProgress("it reads")
    for error, how, updates in ((errors.ClusterAuthorization("no"), {}, None), (late, {}, 0), (late, {"is_fixed": True}, 1)):
        call, before = rig.call(**how), rig.updates
        call.step(0)
        rig.answer(error=error)
        assert (call.done, call.error) == ((True, error) if updates is None else (False, None))
        assert rig.updates - before == (updates or 0)
    call.step(0)
    call.step(100)
    rig.answer("found")
    assert (call.response, call.done, rig.sent[-1][0][4]) == ("found", True, None)


def test_a_call_whose_broker_may_have_moved(rig):
    away = errors.BrokerNotAvailable("away")
    for node, ready, failed, broker in ((None, True, False, None), (Node(2, "h", 1, None), False, True, 2)):
        rig.node, rig.ready, rig.failed, call, before = node, ready, failed, rig.call(may_move=True), rig.updates
        assert (call.step(0), type(call.error), call.error.broker) == (None, errors.CoordinatorNotAvailable, broker)
        assert rig.updates == before + 1
    rig.failed, call, before = False, rig.call(may_move=True), rig.updates
    assert (call.step(0), call.error) == (50, None)
    rig.ready = True
    call.step(0)
    rig.answer(error=away)
    assert (call.error, rig.updates - before) == (away, 1)
    rig.node, call = away, rig.call()
    assert (call.step(0), call.error, call.done) == (None, away, True)


def test_features_and_their_updates(ask):
    levels = [{"name": "a", "min_version_level": 1, "max_version_level": 2}, {"name": "b", "max_version_level": 3}]
    known = [{"name": "a", "min_version": 1, "max_version": 4}, {"name": "c", "max_version": 5}]
    reported = answer(p.ApiVersionsResponse, finalized_features=levels, finalized_features_epoch=0, supported_features=known)
    found, asked = ask(lambda admin: admin.describe_features(), reported)
    assert found == ({"a": (1, 2), "b": (0, 3)}, 0, {"a": (1, 4), "c": (0, 5)})
    assert asked == [{"client_software_name": "kafkacore", "client_software_version": "0"}]
    assert ask(lambda admin: admin.describe_features(), answer(p.ApiVersionsResponse))[0].epoch is None

    def update(admin, **more):
        return admin.update_features({"a": 0, "b": FeatureUpdate(1, "unsafe_downgrade")}, timeout=7.0, **more)

    both = [{"feature": "a"}, {"feature": "b", "error_code": Code.FEATURE_UPDATE_FAILED}, {"feature": "c"}]
    found, asked = ask(update, answer(p.UpdateFeaturesResponse, results=both), version=1)
    changed = {"feature": "b", "max_version_level": 1, "upgrade_type": 3}
    assert (dict(found), of_errors(found)) == ({"a": None}, {"b": errors.FeatureUpdateFailed})
    assert asked == [{"timeout_ms": 7_000, "feature_updates": [{"feature": "a"}, changed]}]
    found, asked = ask(update, answer(p.UpdateFeaturesResponse), version=0)
    assert (dict(found), of_errors(found)) == ({"a": None, "b": None}, {})
    assert asked[0]["feature_updates"] == [{"feature": "a"}, {"feature": "b", "max_version_level": 1, "allow_downgrade": True}]
    found, asked = ask(lambda admin: update(admin, validate_only=True), answer(p.UpdateFeaturesResponse, error_code=REFUSED), version=1)
    assert of_errors(found) == dict.fromkeys("ab", errors.ClusterAuthorization)
    assert asked[0]["validate_only"]
    with pytest.raises(errors.UnsupportedVersion):
        ask(lambda admin: update(admin, validate_only=True), version=0)
    for wrong in (FeatureUpdate(1, "other"), -1):
        with pytest.raises(errors.UsageError, match="a: an update"):
            ask(lambda admin, wrong=wrong: admin.update_features({"a": wrong}))


def test_the_quorum(ask):
    voters = [
        {"replica_id": 1, "replica_directory_id": b"d" * 16, "log_end_offset": 9, "last_fetch_timestamp": 0, "last_caught_up_timestamp": 0}
    ]
    observers = [{"replica_id": 2, "last_fetch_timestamp": -1, "last_caught_up_timestamp": -1}]
    log = {"leader_id": 1, "leader_epoch": 2, "high_watermark": 3, "current_voters": voters, "observers": observers}
    topics = [{"topic_name": "other", "partitions": [{}]}, {"topic_name": "__cluster_metadata", "partitions": [log, {}]}]
    nodes = [{"node_id": 1, "listeners": [{"name": "A", "host": "h", "port": 5}, {"name": "B"}]}, {"node_id": 2}]
    found, asked = ask(lambda admin: admin.describe_quorum(), answer(p.DescribeQuorumResponse, topics=topics, nodes=nodes))
    assert found[:4] == (1, 2, 3, [(1, b"d" * 16, 9, 0, 0)])
    assert found[4:] == ([(2, bytes(16), 0, None, None)], {1: {"A": Node(1, "h", 5, None), "B": Node(1, "", 0, None)}, 2: {}})
    assert [[topic["topic_name"] for topic in request["topics"]] for request in asked] == [["__cluster_metadata"]]
    with pytest.raises(errors.IncompleteAnswerError) as silent:
        ask(lambda admin: admin.describe_quorum(), answer(p.DescribeQuorumResponse))
    assert (silent.value.topic, silent.value.partition) == ("__cluster_metadata", 0)
    log["error_code"] = REFUSED
    for refused in ({"error_code": REFUSED}, {"topics": topics}):
        with pytest.raises(errors.ClusterAuthorization):
            ask(lambda admin: admin.describe_quorum(), answer(p.DescribeQuorumResponse, **refused))
    places = {"A": ("h", 1), "B": ("i", 2)}
    voter = {"cluster_id": "c", "voter_id": 3, "voter_directory_id": b"e" * 16}
    listeners = [{"name": "A", "host": "h", "port": 1}, {"name": "B", "host": "i", "port": 2}]
    for call, response, request in (
        (
            lambda admin: admin.add_raft_voter(3, b"e" * 16, places, cluster_id="c", timeout=7.0),
            p.AddRaftVoterResponse,
            voter | {"timeout_ms": 7_000, "listeners": listeners},
        ),
        (lambda admin: admin.remove_raft_voter(3, b"e" * 16, cluster_id="c"), p.RemoveRaftVoterResponse, voter),
        (lambda admin: admin.unregister_broker(3), p.UnregisterBrokerResponse, {"broker_id": 3}),
    ):
        assert ask(call, response()) == (None, [request])
        with pytest.raises(errors.ClusterAuthorization):
            ask(call, response(error_code=REFUSED))


def test_delegation_tokens(ask):
    token = {"principal_type": "User", "principal_name": "o", "token_id": "i", "hmac": b"h"}
    token |= {"token_requester_principal_type": "User", "token_requester_principal_name": "r"}
    made = answer(p.CreateDelegationTokenResponse, **token, issue_timestamp_ms=1, expiry_timestamp_ms=2, max_timestamp_ms=3)

    def create(admin, **more):
        return admin.create_delegation_token(renewers=["User:a", "User:b"], max_lifetime_ms=5, **more)

    one = ("i", b"h", "User:o", "User:r", ["User:a", "User:b"], 1, 2, 3)
    renewers = [{"principal_type": "User", "principal_name": name} for name in "ab"]
    request = {"renewers": renewers, "max_lifetime_ms": 5}
    assert ask(create, made, version=2) == (one, [request])
    owner = {"owner_principal_type": "User", "owner_principal_name": "o"}
    assert ask(lambda admin: create(admin, owner="User:o"), made, version=3) == (one, [owner | request])
    with pytest.raises(errors.UnsupportedVersion):
        ask(lambda admin: create(admin, owner="User:o"), version=2)
    for wrong in ("User", "User:", ":a"):
        with pytest.raises(errors.UsageError):
            ask(lambda admin, wrong=wrong: create(admin, owner=wrong))
    tokens = [token | {"issue_timestamp": 1, "expiry_timestamp": 2, "max_timestamp": 3, "renewers": renewers}, {"token_id": "j"}]
    listed = answer(p.DescribeDelegationTokenResponse, tokens=tokens)
    found, asked = ask(lambda admin: admin.describe_delegation_tokens(["User:a", "User:b"]), listed)
    assert (found, asked) == ([one, ("j", b"", ":", "", [], 0, 0, 0)], [{"owners": renewers}])
    assert found[0].password == "aA=="
    assert "b'h'" not in repr(found[0])
    assert ask(lambda admin: admin.describe_delegation_tokens(), listed)[1] == [shown(p.DescribeDelegationTokenRequest(owners=None))]
    assert ask(lambda admin: admin.describe_delegation_tokens([])) == ([], [])
    renewed = p.RenewDelegationTokenResponse(expiry_timestamp_ms=9), [{"hmac": b"h", "renew_period_ms": 4}]
    assert ask(lambda admin: admin.renew_delegation_token(b"h", period_ms=4), renewed[0]) == (9, renewed[1])
    expired = p.ExpireDelegationTokenResponse(expiry_timestamp_ms=9)
    assert ask(lambda admin: admin.expire_delegation_token(b"h"), expired) == (9, [{"hmac": b"h", "expiry_time_period_ms": -1}])
    for call, response in (
        (create, p.CreateDelegationTokenResponse),
        (lambda admin: admin.describe_delegation_tokens(), p.DescribeDelegationTokenResponse),
        (lambda admin: admin.renew_delegation_token(b"h"), p.RenewDelegationTokenResponse),
    ):
        with pytest.raises(errors.ClusterAuthorization):
            ask(call, response(error_code=REFUSED))


def test_transactions(ask):
    state = {"transactional_id": "a", "transaction_state": "Ongoing", "producer_id": 1, "producer_epoch": 2}
    state |= {"transaction_timeout_ms": 3, "transaction_start_time_ms": 4}
    state["topics"] = [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [2]}]
    states = [state, {"transactional_id": "b", "error_code": Code.TRANSACTIONAL_ID_NOT_FOUND}]
    reported = answer(p.DescribeTransactionsResponse, transaction_states=states)
    found, asked = ask(lambda admin: admin.describe_transactions(["a", "b"]), reported, key_type=TRANSACTION_KEY)
    assert dict(found) == {"a": ("Ongoing", 1, 2, 3, 4, [("t", 0), ("t", 1), ("u", 2)])}
    assert of_errors(found) == {"b": errors.TransactionalIdNotFound}
    assert asked == [{"transactional_ids": ["a", "b"]}]
    assert ask(lambda admin: admin.describe_transactions(["a", "b"]), reported, version=0, key_type=TRANSACTION_KEY)[1] == asked
    fenced = p.InitProducerIdResponse(producer_id=5, producer_epoch=6)
    busy = p.InitProducerIdResponse(error_code=Code.CONCURRENT_TRANSACTIONS)
    refused = p.InitProducerIdResponse(error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    found, asked = ask(lambda admin: admin.fence_producers(["a", "b", "c"]), fenced, refused, busy, fenced, key_type=TRANSACTION_KEY)
    assert (dict(found), of_errors(found)) == ({"a": (5, 6), "c": (5, 6)}, {"b": errors.TransactionalIdAuthorization})
    assert [(each["transactional_id"], each["transaction_timeout_ms"]) for each in asked] == [(each, 1) for each in "abcc"]
    with pytest.raises(errors.TransactionalIdAuthorization, match="transactional id a"):
        ask(lambda admin: admin.force_terminate_transaction("a"), refused, key_type=TRANSACTION_KEY)

    def listed(admin):
        return admin.list_transactions(states=["S"], producer_ids=[7], longer_than_ms=0, pattern="p")

    ends = [answer(p.ListTransactionsResponse, transaction_states=[{"transactional_id": each, "producer_id": 1}]) for each in "ba"]
    found, asked = ask(listed, *ends)
    assert found == [("a", 1, ""), ("b", 1, "")]
    wanted = {"state_filters": ["S"], "producer_id_filters": [7], "duration_filter": 0, "transactional_id_pattern": "p"}
    assert asked == [wanted] * 2
    with pytest.raises(errors.UnsupportedVersion):
        ask(listed, version=1)
    for more in ({"longer_than_ms": 0}, {"pattern": ""}):
        with pytest.raises(errors.UnsupportedVersion):
            ask(lambda admin, more=more: admin.list_transactions(**more), version=0)
    assert ask(lambda admin: admin.list_transactions(longer_than_ms=0), *ends, version=1)[1] == [{"duration_filter": 0}] * 2
    assert ask(lambda admin: admin.list_transactions(), *ends, version=0)[1] == [{}] * 2


def test_what_leaders_know_and_do(ask):
    names = "producer_id producer_epoch last_sequence last_timestamp coordinator_epoch current_txn_start_offset".split()
    producers = [dict(zip(names, range(nth, nth + 6), strict=True)) for nth in (1, 7)]
    parts = [{"partition_index": 0, "active_producers": producers}, {"partition_index": 1, "error_code": REFUSED}]
    reported = answer(p.DescribeProducersResponse, topics=[{"name": "t", "partitions": parts}, {"name": "u", "partitions": parts[:1]}])
    wanted = [TopicPartition(name, index) for name in "tu" for index in (0, 1)]
    for broker, how in ((None, "leaders"), (2, "is_fixed")):
        found, asked = ask(lambda admin, broker=broker: admin.describe_producers(wanted, broker=broker), reported)
        assert dict(found) == {("t", 0): [(1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12)], ("u", 0): [(1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12)]}
        assert of_errors(found) == {("t", 1): errors.ClusterAuthorization, ("u", 1): errors.IncompleteAnswerError}
        assert {error.broker for error in found.errors.values()} == {broker}
        assert (asked, ask.how) == ([{"topics": [{"name": name, "partition_indexes": [0, 1]} for name in "tu"]}], [{how}])
    lost = errors.DisconnectError("lost")
    found, _ = ask(lambda admin: admin.describe_producers(wanted, broker=2), lost)
    assert (dict(found), found.errors) == ({}, dict.fromkeys(wanted, lost))
    parts = [{"partition_index": 0, "low_watermark": 5}, {"partition_index": 1, "error_code": REFUSED}]
    reported = answer(p.DeleteRecordsResponse, topics=[{"name": "t", "partitions": parts}, {"name": "u", "partitions": parts}])
    for more, ms in (({}, 7_000), ({"operation_timeout": 5.0}, 5_000)):
        found, asked = ask(lambda admin, more=more: admin.delete_records(dict.fromkeys(wanted, 4), timeout=7.0, **more), reported)
        assert (dict(found), list(found.errors)) == (dict.fromkeys(wanted[::2], 5), wanted[1::2])
        partitions = [{"offset": 4}, {"partition_index": 1, "offset": 4}]
        assert asked == [{"topics": [{"name": name, "partitions": partitions} for name in "tu"], "timeout_ms": ms}]
    reported = [
        {"name": "t", "partitions": [{"partition_index": 3}, {"partition_index": 4}]},
        {"name": "u", "partitions": [{"partition_index": 3}]},
    ]
    written = answer(p.WriteTxnMarkersResponse, markers=[{}, {"topics": reported}])
    marker = {"producer_id": 1, "producer_epoch": 2, "topics": [{"name": "u", "partition_indexes": [3]}]}
    for name, epoch, more in (
        ("abort_transaction", -1, {}),
        ("commit_transaction", 5, {"coordinator_epoch": 5, "transaction_result": True}),
    ):
        asked = ask(lambda admin, name=name, epoch=epoch: getattr(admin, name)(("u", 3), 1, 2, epoch), written)[1]
        assert asked == [{"markers": [marker | more]}]
    with pytest.raises(errors.IncompleteAnswerError):
        ask(lambda admin: admin.abort_transaction(("u", 4), 1, 2, 5), written)


def test_log_directories(ask):
    def held(index, is_future):
        return {"partition_index": index, "partition_size": 3, "offset_lag": index, "is_future_key": is_future}

    first = {"log_dir": "/a", "total_bytes": 8, "usable_bytes": 9}
    first["topics"] = [{"name": "t", "partitions": [held(0, False), held(1, False)]}, {"name": "u", "partitions": [held(2, True)]}]
    second = {"log_dir": "/b", "topics": [{"name": "t", "partitions": [held(1, True)]}, {"name": "x", "partitions": [held(4, False)]}]}
    third = {"log_dir": "/c", "error_code": Code.KAFKA_STORAGE_ERROR}
    reported = answer(p.DescribeLogDirsResponse, results=[first, second, third])
    lost = errors.DisconnectError("lost")
    refused = p.DescribeLogDirsResponse(error_code=REFUSED)
    found, asked = ask(lambda admin: admin.describe_log_dirs(), reported, refused)
    assert (list(found), of_errors(found), asked) == (
        [1],
        {2: errors.ClusterAuthorization},
        [shown(p.DescribeLogDirsRequest(topics=None))] * 2,
    )
    assert found[1]["/a"] == (None, {("t", 0): (3, 0, False), ("t", 1): (3, 1, False), ("u", 2): (3, 2, True)}, 8, 9)
    assert isinstance(found[1]["/c"].error, errors.KafkaStorage)
    replicas = [("t", 0, 1), ("t", 0, 2), ("t", 1, 1), ("u", 2, 1), ("x", 4, 1), ("y", 0, 1)]
    found, asked = ask(lambda admin: admin.describe_replica_log_dirs(replicas), reported, lost)
    assert [dict(found), found.errors, len(asked)] == [
        {
            ("t", 0, 1): ("/a", 0, None, -1),
            ("t", 1, 1): ("/a", 1, "/b", 1),
            ("u", 2, 1): (None, -1, "/a", 2),
            ("x", 4, 1): ("/b", 4, None, -1),
            ("y", 0, 1): (None, -1, None, -1),
        },
        {("t", 0, 2): lost},
        2,
    ]
    places = {("t", 0, 1): "/a", ("t", 1, 1): "/a", ("u", 0, 1): "/a", ("t", 2, 1): "/b", ("t", 0, 2): "/b"}
    results = [
        {"topic_name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 1, "error_code": Code.KAFKA_STORAGE_ERROR}]},
        {"topic_name": "u", "partitions": [{"partition_index": 0}]},
    ]
    moved = answer(p.AlterReplicaLogDirsResponse, results=results)
    found, asked = ask(lambda admin: admin.alter_replica_log_dirs(places), moved, lost)
    assert dict(found) == {("t", 0, 1): None, ("u", 0, 1): None}
    assert of_errors(found) == {
        ("t", 1, 1): errors.KafkaStorage,
        ("t", 2, 1): errors.IncompleteAnswerError,
        ("t", 0, 2): errors.DisconnectError,
    }
    assert found.errors["t", 1, 1].broker == 1
    both = [{"name": "t", "partitions": [0, 1]}, {"name": "u", "partitions": [0]}]
    assert asked[0]["dirs"] == [{"path": "/a", "topics": both}, {"path": "/b", "topics": [{"name": "t", "partitions": [2]}]}]
    assert asked[1]["dirs"] == [{"path": "/b", "topics": [{"name": "t", "partitions": [0]}]}]


def test_elections_reassignments_and_quotas(ask):
    parts = [{"partition_id": 0}, {"partition_id": 1, "error_code": Code.ELECTION_NOT_NEEDED}]
    elected = answer(p.ElectLeadersResponse, replica_election_results=[{"topic": "t", "partition_result": parts}])

    def elect(admin, **more):
        return admin.elect_leaders([("t", 0), ("t", 1), ("u", 0)], timeout=7.0, **more)

    found, asked = ask(lambda admin: elect(admin, election="unclean"), elected)
    assert dict(found) == {("t", 0): None}
    assert of_errors(found) == {("t", 1): errors.ElectionNotNeeded, ("u", 0): errors.IncompleteAnswerError}
    wanted = [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}]
    assert asked == [{"election_type": 1, "topic_partitions": wanted, "timeout_ms": 7_000}]
    assert ask(elect, elected, version=0)[1] == [{"topic_partitions": wanted, "timeout_ms": 7_000}]
    with pytest.raises(errors.UnsupportedVersion):
        ask(lambda admin: elect(admin, election="unclean"), version=0)
    with pytest.raises(errors.UsageError):
        ask(lambda admin: elect(admin, election="other"))
    with pytest.raises(errors.ClusterAuthorization):
        ask(elect, p.ElectLeadersResponse(error_code=REFUSED))
    given = {("t", 0): (1, 2), ("t", 1): None, ("u", 0): [3]}
    done = answer(
        p.AlterPartitionReassignmentsResponse, responses=[{"name": "t", "partitions": [{}, {"partition_index": 1, "error_code": 85}]}]
    )
    found, asked = ask(lambda admin: admin.alter_partition_reassignments(given, timeout=7.0), done)
    assert (dict(found), list(found.errors)) == ({("t", 0): None}, [("t", 1), ("u", 0)])
    assert (asked[0]["timeout_ms"], [each["name"] for each in asked[0]["topics"]]) == (7_000, ["t", "u"])
    assert [[each.get("replicas") for each in topic["partitions"]] for topic in asked[0]["topics"]] == [[[1, 2], None], [[3]]]
    going = [{"partition_index": i, "replicas": [1, 2], "adding_replicas": [2], "removing_replicas": [i]} for i in (0, 1)]
    reported = answer(p.ListPartitionReassignmentsResponse, topics=[{"name": "t", "partitions": going}, {"name": "u", "partitions": going}])
    found, asked = ask(lambda admin: admin.list_partition_reassignments([("t", 0), ("t", 1), ("u", 0)], timeout=7.0), reported)
    assert found == {(name, i): ([1, 2], [2], [i]) for name in "tu" for i in (0, 1)}
    indexes = [{"name": "t", "partition_indexes": [0, 1]}, {"name": "u", "partition_indexes": [0]}]
    assert asked == [{"timeout_ms": 7_000, "topics": indexes}]
    limits = [{"key": "k", "value": 1.0}, {"key": "l", "value": 2.0}]
    entries = [{"entity": [{"entity_type": "user", "entity_name": "a"}, {"entity_type": "ip"}], "values": limits}, {}]
    found, asked = ask(
        lambda admin: admin.describe_client_quotas({"user": None, "ip": "*", "client-id": "c"}, strict=True),
        answer(p.DescribeClientQuotasResponse, entries=entries),
    )
    assert found == {frozenset({("user", "a"), ("ip", "")}): {"k": 1.0, "l": 2.0}, frozenset(): {}}
    matches = [(each["entity_type"], each.get("match_type", 0), each.get("match")) for each in asked[0]["components"]]
    assert (matches, asked[0]["strict"]) == ([("user", 1, None), ("ip", 2, None), ("client-id", 0, "c")], True)
    for call, response in (
        (lambda admin: admin.alter_partition_reassignments(given), p.AlterPartitionReassignmentsResponse),
        (lambda admin: admin.list_partition_reassignments(), p.ListPartitionReassignmentsResponse),
        (lambda admin: admin.describe_client_quotas(), p.DescribeClientQuotasResponse),
    ):
        with pytest.raises(errors.ClusterAuthorization):
            ask(call, response(error_code=REFUSED))


def test_groups_and_their_members(ask):
    def places(*parts):
        return {"topic_partitions": [{"topic_name": name, "partitions": indexes} for name, indexes in parts]}

    names = {"member_id": "m", "instance_id": "i", "client_id": "c", "client_host": "h"}
    members = [names | {"assignment": places(("u", [1]), ("t", [2, 0])), "target_assignment": places(("t", [0]))}, {"member_id": "n"}]
    groups = [{"group_id": "a", "group_state": "S", "assignor_name": "uniform", "members": members, "authorized_operations": 1 << 3}]
    groups += [{"group_id": name, "error_code": code} for name, code in (("b", REFUSED), ("c", 69), ("d", Code.UNSUPPORTED_VERSION))]
    classic = [{"group_id": "c", "group_state": "E", "protocol_type": "connect", "protocol_data": "x", "authorized_operations": 1 << 4}]
    classic[0]["members"] = [{"member_id": "o"}, {"member_id": "p", "group_instance_id": "i", "client_id": "c", "client_host": "h"}]
    classic += [{"group_id": "d", "error_code": REFUSED}]
    reported = answer(p.ConsumerGroupDescribeResponse, groups=groups), answer(p.DescribeGroupsResponse, groups=classic)
    found, asked = ask(lambda admin: admin.describe_groups(list("abcd"), include_authorized_operations=True), *reported)
    assert list(found) == ["a", "c"]
    assert of_errors(found) == dict.fromkeys("bd", errors.ClusterAuthorization)
    assert found["a"][:5] == ("a", "consumer", "S", "consumer", "uniform")
    assert found["a"].members == [("m", "i", "c", "h", [("t", 0), ("t", 2), ("u", 1)], [("t", 0)]), ("n", None, "", "", [], [])]
    assert (found["a"].authorized_operations, found["c"].authorized_operations) == (["read"], ["write"])
    both = [("o", None, "", "", [], None), ("p", "i", "c", "h", [], None)]
    assert found["c"][:6] == ("c", "classic", "E", "connect", "x", both)
    assert [request["include_authorized_operations"] for request in asked] == [True, True]
    assert [request.get("group_ids") or request["groups"] for request in asked] == [["a", "b", "c", "d"], ["c", "d"]]

    def remove(admin, **more):
        return admin.remove_group_members("a", **more)

    left = answer(p.LeaveGroupResponse, members=[{"member_id": "n"}, {"member_id": "m", "group_instance_id": "i", "error_code": 25}])
    found, asked = ask(remove, reported[0], left)
    assert (dict(found), of_errors(found)) == ({"n": None}, {"i": errors.UnknownMemberId})
    why = {"reason": "removed by an admin client"}
    assert asked[1] == {"group_id": "a", "members": [{"member_id": "n"} | why, {"group_instance_id": "i"} | why]}
    found, asked = ask(lambda admin: remove(admin, members=["n", "o"], reason="r"), left)
    assert of_errors(found) == {"o": errors.IncompleteAnswerError}
    assert asked[0]["members"] == [{"member_id": name, "reason": "r"} for name in "no"]
    assert ask(lambda admin: remove(admin, instances=["i"]), left, version=3)[1][0]["members"] == [{"group_instance_id": "i"} | why]
    assert ask(lambda admin: remove(admin, members=[])) == ({}, [])
    with pytest.raises(errors.UnsupportedVersion):
        ask(lambda admin: remove(admin, members=["n"]), version=2)
    with pytest.raises(errors.ClusterAuthorization):
        ask(lambda admin: remove(admin, members=["n"]), p.LeaveGroupResponse(error_code=REFUSED))
    for more, version in (({"states": ["S"]}, 3), ({"types": ["classic"]}, 4)):
        with pytest.raises(errors.UnsupportedVersion):
            ask(lambda admin, more=more: admin.list_groups(**more), version=version)
        listed = answer(p.ListGroupsResponse, groups=[{"group_id": "b"}, {"group_id": "a", "group_state": "S", "group_type": "classic"}])
        found, asked = ask(lambda admin, more=more: admin.list_groups(**more), listed, listed, version=version + 1)
        assert found == [("a", "", "S", "classic"), ("b", "", "", "")]
        assert asked == [{f"{name}_filter": value for name, value in more.items()}] * 2


def test_coordinators_that_fail_or_have_moved(ask):
    def delete(admin):
        return admin.delete_groups(["a", "b"])

    for error in (errors.UnsupportedVersion("old"), errors.KafkaTimeoutError("late")):
        assert ask(delete, error)[0].errors == dict.fromkeys("ab", error)
    half = answer(p.DeleteGroupsResponse, results=[{"group_id": "b", "error_code": Code.NOT_COORDINATOR}, {"group_id": "a"}])
    found, asked = ask(delete, errors.DisconnectError("lost"), half, answer(p.DeleteGroupsResponse, results=[{"group_id": "b"}]))
    assert dict(found) == {"a": None, "b": None}
    assert [request["groups_names"] for request in asked] == [["a", "b"], ["a", "b"], ["b"]]
    assert ask.how == [{"is_fixed", "may_move"}] * 3


def test_offsets_of_groups(ask):
    parts = [{"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 6, "metadata": "m"}]
    parts += [{"partition_index": 1, "error_code": REFUSED}, {"partition_index": 2, "committed_offset": -1}]
    groups = [{"group_id": "a", "topics": [{"name": "t", "partitions": parts}, {"name": "u", "partitions": parts[:1]}]}]
    groups += [{"group_id": "b", "error_code": Code.GROUP_AUTHORIZATION_FAILED}]
    reported = answer(p.OffsetFetchResponse, groups=groups)
    wanted = {"a": [("t", 0), ("u", 0), ("t", 1), ("t", 0), ("t", 2)], "b": None}

    def fetch(admin):
        return admin.list_groups_offsets(wanted, require_stable=True)

    found, asked = ask(fetch, reported, version=9)
    assert dict(found["a"]) == {("t", 0): (5, 6, "m"), ("u", 0): (5, 6, "m"), ("t", 2): None}
    assert (of_errors(found["a"]), of_errors(found)) == ({("t", 1): errors.ClusterAuthorization}, {"b": errors.GroupAuthorization})
    topics = [{"name": "t", "partition_indexes": [0, 1, 2]}, {"name": "u", "partition_indexes": [0]}]
    assert asked[0]["require_stable"]
    assert [(each["group_id"], each.get("topics")) for each in asked[0]["groups"]] == [("a", topics), ("b", None)]
    old = answer(p.OffsetFetchResponse, topics=groups[0]["topics"][1:])
    found, asked = ask(lambda admin: admin.list_groups_offsets({"a": [("u", 0)], "c": [("u", 0)]}), old, old, version=7)
    assert {group: dict(offsets) for group, offsets in found.items()} == {group: {("u", 0): (5, 6, "m")} for group in "ac"}
    assert [request["group_id"] for request in asked] == ["a", "c"]
    with pytest.raises(errors.UnsupportedVersion):
        ask(fetch, version=6)
    offsets = {("t", 0): 7, ("t", 1): OffsetAndMetadata(8, "n", 2), ("u", 0): 9}
    done = {"partitions": [{"partition_index": 0}, {"partition_index": 1, "error_code": 3}]}
    for call, kind in (
        (lambda admin: admin.alter_group_offsets("a", offsets), p.OffsetCommitResponse),
        (lambda admin: admin.delete_group_offsets("a", [*offsets, ("t", 0)]), p.OffsetDeleteResponse),
    ):
        found, asked = ask(call, answer(kind, topics=[{"name": "t"} | done]))
        assert dict(found) == {("t", 0): None}
        assert of_errors(found) == {("t", 1): errors.UnknownTopicOrPartition, ("u", 0): errors.IncompleteAnswerError}
        assert asked[0]["group_id"] == "a"
        places = [(topic["name"], [each.get("partition_index", 0) for each in topic["partitions"]]) for topic in asked[0]["topics"]]
        assert places == [("t", [0, 1]), ("u", [0])]
    with pytest.raises(errors.GroupAuthorization, match="group a"):
        ask(call, p.OffsetDeleteResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED))


def test_topics(ask):
    first, second, third = (bytes([i]) * 16 for i in (1, 2, 3))
    found, asked = ask(
        lambda admin: admin.create_topics([NewTopic("a", 2, 3, configs={"k": 1}), NewTopic("b", replica_assignments={0: [1], 1: [2, 3]})]),
        answer(p.CreateTopicsResponse, topics=[{"name": "a", "topic_id": first, "configs": [{"name": "k", "value": "1"}]}, {"name": "b"}]),
    )
    assert (found["a"].configs, found["a"].topic_id, found["b"].configs) == ({"k": "1"}, first, {})
    assert repr(found["a"]).endswith("configs={1 setting})")
    assert asked[0]["topics"] == [
        {"name": "a", "num_partitions": 2, "replication_factor": 3, "configs": [{"name": "k", "value": "1"}]},
        {
            "name": "b",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"broker_ids": [1]}, {"partition_index": 1, "broker_ids": [2, 3]}],
        },
    ]
    for version, wanted in ((5, {"topic_names": ["a", "b"]}), (6, {"topics": [{"name": "a"}, {"name": "b"}]})):
        deleted = answer(p.DeleteTopicsResponse, responses=[{"name": "b"}, {"name": "a", "error_code": REFUSED}])
        found, asked = ask(lambda admin: admin.delete_topics(["a", "b"], timeout=7.0), deleted, version=version)
        assert (dict(found), of_errors(found)) == ({"b": None}, {"a": errors.ClusterAuthorization})
        assert asked == [wanted | {"timeout_ms": 7_000}]
    deleted = answer(p.DeleteTopicsResponse, responses=[{"topic_id": first}, {"topic_id": second, "error_code": REFUSED}])
    for more, ms in (({}, 7_000), ({"operation_timeout": 5.0}, 5_000)):
        found, asked = ask(lambda admin, more=more: admin.delete_topics_by_id([first, second], timeout=7.0, **more), deleted, version=6)
        assert (dict(found), of_errors(found)) == ({first: None}, {second: errors.ClusterAuthorization})
        assert asked == [{"topics": [{"topic_id": each} for each in (first, second)], "timeout_ms": ms}]
    parts = [{"partition_index": i, "leader_id": 1, "leader_epoch": 2, "replica_nodes": [1, 2], "isr_nodes": [1]} for i in (1, 0)]
    topics = [{"name": "a", "topic_id": first, "partitions": parts, "topic_authorized_operations": 1 << 4}]
    topics += [{"name": "b", "topic_id": second, "error_code": Code.TOPIC_AUTHORIZATION_FAILED}]
    reported = answer(p.MetadataResponse, topics=topics)
    found, asked = ask(lambda admin: admin.describe_topics_by_id([first, second, third]), reported, version=12)
    assert of_errors(found) == {second: errors.TopicAuthorization, third: errors.IncompleteAnswerError}
    one = ("a", first, False, [(i, 1, 2, [1, 2], [1], ()) for i in (0, 1)], ["write"])
    assert [(*each[:3], [(*part[:5], tuple(part[5])) for part in each[3]], each[4]) for each in found.values()] == [one]
    assert [each["topic_id"] for each in asked[0]["topics"]] == [first, second, third]
    for call, version in ((lambda a: a.delete_topics_by_id([first]), 5), (lambda a: a.describe_topics_by_id([first]), 11)):
        with pytest.raises(errors.UnsupportedVersion):
            ask(call, version=version)
    refused = p.MetadataResponse(error_code=REFUSED)
    with pytest.raises(errors.ClusterAuthorization):
        ask(lambda admin: admin.describe_topics_by_id([first]), refused)

    def seen(admin, **more):
        return admin.describe_topics_by_broker(["a", "b", "c"], **more)

    found, asked = ask(seen, reported, refused, version=4)
    assert (list(found), of_errors(found), [each.get("topic_id") for each in asked]) == ([1], {2: errors.ClusterAuthorization}, [None] * 2)
    assert found[1].by_name["a"].name == "a"
    kinds = {name: type(error) for name, error in found[1].by_name.items() if name != "a"}
    assert kinds == {"b": errors.TopicAuthorization, "c": errors.UnknownTopicOrPartition}
    assert {error.broker for name, error in found[1].by_name.items() if name != "a"} == {1}
    found, asked = ask(lambda admin: seen(admin, topic_ids=[first, second], brokers=[2, 2]), reported, reported, version=12)
    assert (found[2].by_id[first].name, type(found[2].by_id[second])) == ("a", errors.TopicAuthorization)
    assert [[each["name"] for each in request["topics"]] for request in asked] == [["a", "b", "c"], [None, None]]
    assert [each["topic_id"] for each in asked[1]["topics"]] == [first, second]
    assert [each["allow_auto_topic_creation"] for each in asked] == [False, False]
    assert list(ask(seen, reported, reported, version=4)[0]) == [1, 2]
    lost = errors.DisconnectError("lost")
    found, _ = ask(lambda admin: seen(admin, topic_ids=[first], brokers=[2]), reported, lost, version=12)
    assert (dict(found), found.errors) == ({}, {2: lost})
    found, asked = ask(lambda admin: seen(admin, topic_ids=[first], brokers=[2]), reported, version=11)
    assert (found[2].by_id, len(asked)) == ({}, 1)  # the second question is about no topic


def test_the_cluster_and_lists_of_settings(ask):
    brokers = [{"broker_id": i, "host": "h", "port": i, "rack": "r", "is_fenced": i == 3} for i in (2, 1, 3)]
    reported = answer(p.DescribeClusterResponse, cluster_id="c", controller_id=2, brokers=brokers, cluster_authorized_operations=1 << 5)
    for more in ({"include_authorized_operations": True}, {"include_fenced_brokers": True}):
        found, asked = ask(lambda admin, more=more: admin.describe_cluster(**more), reported, version=2)
        first, second, third = (Node(i, "h", i, "r") for i in (1, 2, 3))
        assert found == ("c", second, [first, second], ["create"], [third] if "include_fenced_brokers" in more else None)
        assert {name.removeprefix("include_") for name, value in asked[0].items() if value is True} == {
            next(iter(more)).removeprefix("include_").replace("authorized", "cluster_authorized")
        }
    with pytest.raises(errors.UnsupportedVersion):
        ask(lambda admin: admin.describe_cluster(include_fenced_brokers=True), version=1)
    resources = [{"resource_name": "a", "resource_type": 2}, {"resource_name": "b", "resource_type": 99}]
    reported = answer(p.ListConfigResourcesResponse, config_resources=resources)
    found, asked = ask(lambda admin: admin.list_config_resources(["topic", "group"]), reported)
    assert (found, asked) == ([("topic", "a"), ("unknown", "b")], [{"resource_types": [2, 32]}])
    assert ask(lambda admin: admin.list_config_resources(["client_metrics"]), reported, version=0)[1] == [{}]
    with pytest.raises(errors.UnsupportedVersion):
        ask(lambda admin: admin.list_config_resources(["topic"]), version=0)


def test_settings(ask):
    reported = [
        {"name": str(i), "value": "v", "config_source": i, "config_type": i, "read_only": i == 1, "is_sensitive": i == 2}
        for i in range(1, 11)
    ]
    reported[0]["synonyms"] = [{"name": "s", "value": "w", "source": 5}, {"name": "r", "source": 99}]
    results = [
        {"resource_type": 2, "resource_name": "a", "configs": reported},
        {"resource_type": 32, "resource_name": "g", "error_code": REFUSED},
        {"resource_type": 2, "resource_name": "b", "error_code": REFUSED, "error_message": "why"},
    ]
    resources = [("topic", "a"), ("group", "g"), ("client_metrics", "m"), ("topic", "b")]
    found, asked = ask(
        lambda admin: admin.describe_configs(resources, names=["k"], include_synonyms=True),
        answer(p.DescribeConfigsResponse, results=results),
    )
    assert {item: error.message for item, error in found.errors.items()} == {
        ("group", "g"): "group g",
        ("topic", "b"): "why",
        ("client_metrics", "m"): "the answer has no result for client_metrics m",
    }
    assert [error.topic for error in found.errors.values()] == [None, "b", None]
    sources = "topic dynamic_broker dynamic_default_broker static_broker default dynamic_broker_logger client_metrics group".split()
    types = "boolean string int short long double list class password".split()
    entries = list(found["topic", "a"].values())
    assert [entry.source for entry in entries] == [*sources, "unknown", "unknown"]
    assert [entry.type for entry in entries] == [*types, "unknown"]
    assert [(entry.is_read_only, entry.is_sensitive, entry.is_default) for entry in entries[:2]] == [
        (True, False, False),
        (False, True, False),
    ]
    assert ([entry.is_default for entry in entries].index(True), entries[0].synonyms) == (
        4,
        [("s", "w", "default"), ("r", "", "unknown")],
    )
    assert [(each["resource_type"], each["resource_name"]) for each in asked[0]["resources"]] == [(2, "a"), (32, "g"), (16, "m"), (2, "b")]
    assert ([each["configuration_keys"] for each in asked[0]["resources"]], asked[0]["include_synonyms"]) == ([["k"]] * 4, True)
    changes = {("broker", "1"): {"a": 1, "b": None}, ("broker_logger", "2"): {"c": Append("x"), "d": Subtract("y")}, ("broker", ""): {}}
    done = [answer(p.IncrementalAlterConfigsResponse, responses=[each]) for each in (
        {"resource_type": 4, "resource_name": "1"}, {"resource_type": 8, "resource_name": "2", "error_code": REFUSED}, {"resource_type": 4}
    )]  # fmt: skip
    found, asked = ask(lambda admin: admin.alter_configs(changes, validate_only=True), *done)
    assert (dict(found), of_errors(found)) == (
        {("broker", "1"): None, ("broker", ""): None},
        {("broker_logger", "2"): errors.ClusterAuthorization},
    )
    assert [each["resources"][0].get("configs") for each in asked] == [
        [{"name": "a", "value": "1"}, {"name": "b", "config_operation": 1, "value": None}],
        [{"name": "c", "config_operation": 2, "value": "x"}, {"name": "d", "config_operation": 3, "value": "y"}],
        None,
    ]
    assert ([each["validate_only"] for each in asked], ask.how) == ([True] * 3, [{"is_fixed"}, {"is_fixed"}, set()])


def test_entries_of_access_control(ask):
    tables = (
        "topic group cluster transactional_id delegation_token user".split(),
        "read write create delete alter describe cluster_action describe_configs alter_configs idempotent_write create_tokens"
        " describe_tokens two_phase_commit".split(),
    )
    acls = [Acl(kind, "n", "User:a", "all") for kind in tables[0]] + [Acl("topic", "n", "User:a", operation) for operation in tables[1]]
    acls += [Acl("topic", "n", "User:b", "all", "h", "deny", "prefixed")]
    results = [{"error_code": REFUSED if i == 1 else 0} for i in range(len(acls) - 1)]
    found, asked = ask(lambda admin: admin.create_acls([*acls, acls[0]]), answer(p.CreateAclsResponse, results=results))
    assert list(found) == [acls[0], *acls[2:-1]]
    assert of_errors(found) == {acls[1]: errors.ClusterAuthorization, acls[-1]: errors.IncompleteAnswerError}
    made = asked[0]["creations"]
    assert [each["resource_type"] for each in made] == [*range(2, 8), *[2] * 14]
    assert [each["operation"] for each in made] == [*[2] * 6, *range(3, 16), 2]
    last = {"resource_type": 2, "resource_name": "n", "resource_pattern_type": 4, "principal": "User:b", "host": "h", "operation": 2}
    assert made[-1] == last | {"permission_type": 2}
    assert (made[0]["permission_type"], made[0].get("resource_pattern_type", 3), made[0]["host"]) == (3, 3, "*")
    entries = [{"principal": "User:a", "host": "*", "operation": i, "permission_type": 3} for i in (3, 99)]
    resources = [{"resource_type": i, "resource_name": "n", "pattern_type": 3, "acls": entries} for i in (2, 3)]
    reported = answer(p.DescribeAclsResponse, resources=resources)
    found, asked = ask(lambda admin: admin.describe_acls(AclFilter(pattern_type="match", principal="User:a")), reported)
    assert found == [Acl(kind, "n", "User:a", operation) for kind in ("topic", "group") for operation in ("read", "unknown")]
    every = {"resource_type_filter": 1, "resource_name_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    assert asked == [shown(p.DescribeAclsRequest(**every, pattern_type_filter=2, principal_filter="User:a"))]
    asked = ask(lambda admin: admin.describe_acls(), reported)[1]
    assert asked == [shown(p.DescribeAclsRequest(**every, pattern_type_filter=1, principal_filter=None))]
    matching = [resources[0] | entries[0], resources[1] | entries[0]]
    for each in matching:
        each.pop("acls")
    filters = [AclFilter("topic"), AclFilter("group"), AclFilter("user")]
    reported = answer(p.DeleteAclsResponse, filter_results=[{"matching_acls": matching}, {"error_code": REFUSED}])
    found, asked = ask(lambda admin: admin.delete_acls(filters), reported)
    assert dict(found) == {filters[0]: [Acl("topic", "n", "User:a", "read"), Acl("group", "n", "User:a", "read")]}
    assert of_errors(found) == {filters[1]: errors.ClusterAuthorization, filters[2]: errors.IncompleteAnswerError}
    assert [each["resource_type_filter"] for each in asked[0]["filters"]] == [2, 3, 7]
    with pytest.raises(errors.ClusterAuthorization):
        ask(lambda admin: admin.describe_acls(), p.DescribeAclsResponse(error_code=REFUSED))


def test_users_and_their_quotas(ask):
    infos = [{"mechanism": 1, "iterations": 4096}, {"mechanism": 2, "iterations": 5000}, {"mechanism": 9}]
    results = [{"user": "a", "credential_infos": infos}, {"user": "b", "error_code": Code.RESOURCE_NOT_FOUND}]
    reported = answer(p.DescribeUserScramCredentialsResponse, results=results)
    for users, missing in ((["a", "b", "a", "c"], {"c": errors.IncompleteAnswerError}), (None, {})):
        found, asked = ask(lambda admin, users=users: admin.describe_user_scram_credentials(users), reported)
        assert dict(found) == {"a": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 5000, "unknown": 0}}
        assert of_errors(found) == {"b": errors.ResourceNotFound} | missing
        assert asked == [shown(p.DescribeUserScramCredentialsRequest(users=users and [p.ScramUserName(name=name) for name in "abc"]))]
    assert ask(lambda admin: admin.describe_user_scram_credentials([])) == ({}, [])
    with pytest.raises(errors.ClusterAuthorization):
        ask(lambda admin: admin.describe_user_scram_credentials(), p.DescribeUserScramCredentialsResponse(error_code=REFUSED))
    first, second = "SCRAM-SHA-256", "SCRAM-SHA-512"
    passwords = {("a", first): "x", ("b", first): None, ("a", second): "x", ("c", second): None}
    done = answer(p.AlterUserScramCredentialsResponse, results=[{"user": "a"}, {"user": "b", "error_code": REFUSED}])
    found, asked = ask(lambda admin: admin.alter_user_scram_credentials(passwords, iterations=4097), done, done)
    assert (list(found), of_errors(found)) == (
        [("a", first), ("a", second)],
        {("b", first): errors.ClusterAuthorization, ("c", second): errors.IncompleteAnswerError},
    )
    assert [each["deletions"] for each in asked] == [[{"name": "b", "mechanism": 1}], [{"name": "c", "mechanism": 2}]]
    made = [each["upsertions"][0] for each in asked]
    assert [(each["name"], each["mechanism"], each["iterations"], len(each["salt"])) for each in made] == [
        ("a", i, 4097, 24) for i in (1, 2)
    ]
    assert [len(each["salted_password"]) for each in made] == [32, 64]
    lost = errors.DisconnectError("lost")
    found, _ = ask(lambda admin: admin.alter_user_scram_credentials(passwords), done, lost)
    assert (list(found), found.errors["a", second], found.errors["c", second]) == ([("a", first)], lost, lost)
    entities = [(("user", "a"), ("client-id", None)), (("ip", "h"),)]
    quotas = {entities[0]: {"k": 1.5, "l": None}, entities[1]: {"m": 0.0}}
    entries = [{"entity": [{"entity_type": "ip", "entity_name": "h"}], "error_code": REFUSED}]
    entries += [{"entity": [{"entity_type": "client-id", "entity_name": None}, {"entity_type": "user", "entity_name": "a"}]}]
    reported = answer(p.AlterClientQuotasResponse, entries=entries)
    found, asked = ask(lambda admin: admin.alter_client_quotas(quotas, validate_only=True), reported)
    assert (list(found), of_errors(found)) == ([frozenset(entities[0])], {frozenset(entities[1]): errors.ClusterAuthorization})
    assert [each["ops"] for each in asked[0]["entries"]] == [[{"key": "k", "value": 1.5}, {"key": "l", "remove": True}], [{"key": "m"}]]
    assert [each["entity_type"] for each in asked[0]["entries"][0]["entity"]] == ["user", "client-id"]
    assert asked[0]["validate_only"]
