"""`bootstrap_controllers`: an admin client that asks the active controller, and what it says when it cannot (KIP-919)."""

import inspect
import json

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.admin import AclFilter, KafkaAdminClient
from kafkacore.admin.controllers import SERVED, no_longer_active
from kafkacore.broker.server import Broker, Drop
from kafkacore.cli.app import run
from kafkacore.config import AdminConfig, BrokerConfig
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 4, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 4}
NO_SERVER = "127.0.0.1:1"


class Quorum:
    """Two servers that play the controllers 3000 and 3001; `active` is which of them leads, `asked` who got which request."""

    def __init__(self, servers):
        self.servers = dict(zip((3000, 3001), servers, strict=True))
        self.active = 3000
        self.asked = []
        self.refusals = []
        self.control(p.DescribeClusterRequest, lambda node_id, request: self.described(request))
        self.control(p.MetadataRequest, lambda node_id, request: Drop)

    def control(self, api, answer):
        def noted(node_id):
            def look(request):
                self.asked.append((node_id, api.__name__.removesuffix("Request")))
                return answer(node_id, request)

            return look

        for node_id, server in self.servers.items():
            server.control(api.API_KEY, noted(node_id))

    def described(self, request):
        assert request.endpoint_type == 2
        if self.refusals:
            return self.refusals.pop(0)
        nodes = []
        for node_id, server in self.servers.items():
            host, port = server.address.rsplit(":", 1)
            nodes.append(p.DescribeClusterBroker(broker_id=node_id, host=host, port=int(port)))
        return p.DescribeClusterResponse(endpoint_type=2, cluster_id="c", controller_id=self.active, brokers=nodes)

    def who(self, name):
        return [node_id for node_id, api in self.asked if api == name]

    def client(self, **more):
        return KafkaAdminClient(bootstrap_controllers=self.servers[3000].address, **QUICK, **more)


@pytest.fixture
def quorum():
    config = BrokerConfig(auto_create_topics_enable=False)
    with Broker(config) as first, Broker(config) as second:
        yield Quorum([first, second])


@pytest.fixture
def admin(quorum):
    with quorum.client() as made:
        yield made


# -- who is asked -----------------------------------------------------------------------------------------------------------------


def test_the_active_controller_is_asked_for_everything(quorum, admin):
    quorum.active = 3001
    quorum.control(p.DescribeAclsRequest, lambda node_id, request: p.DescribeAclsResponse())
    quorum.control(
        p.CreateTopicsRequest, lambda node_id, request: p.CreateTopicsResponse(topics=[p.CreatableTopicResult(name="t", num_partitions=1)])
    )
    assert admin.describe_acls(AclFilter()) == []
    assert admin.create_topics(["t"])["t"].num_partitions == 1
    found = admin.describe_cluster()
    assert (found.cluster_id, found.controller.id, [node.id for node in found.nodes]) == ("c", 3001, [3000, 3001])
    assert set(quorum.who("DescribeAcls") + quorum.who("CreateTopics")) == {3001}
    assert quorum.who("Metadata") == []


def not_controller(api, node_id):
    """What a controller that does not lead says, in each place where answers have it."""
    if api is p.DescribeAclsRequest:
        return p.DescribeAclsResponse(error_code=Code.NOT_CONTROLLER)
    if api is p.CreateTopicsRequest:
        return p.CreateTopicsResponse(topics=[p.CreatableTopicResult(name="t", error_code=Code.NOT_CONTROLLER)])
    if api is p.DescribeConfigsRequest:
        return p.DescribeConfigsResponse(
            results=[p.DescribeConfigsResult(resource_type=2, resource_name="t", error_code=Code.NOT_CONTROLLER)]
        )
    partition = p.QuorumPartitionData(partition_index=0, error_code=Code.NOT_LEADER_OR_FOLLOWER)
    return p.DescribeQuorumResponse(topics=[p.QuorumTopicData(topic_name="__cluster_metadata", partitions=[partition])])


def test_which_answers_say_that_another_controller_leads():
    for code, follower, other in ((Code.NOT_CONTROLLER, True, True), (Code.NOT_LEADER_OR_FOLLOWER, True, False)):
        for api, answer, leads in (
            (p.DescribeQuorumRequest, p.DescribeQuorumResponse(error_code=code), follower),
            (p.CreateTopicsRequest, p.CreateTopicsResponse(topics=[p.CreatableTopicResult(error_code=code)]), other),
        ):
            error = no_longer_active(api, answer)
            assert (error is not None) is leads
            assert error is None or (error.code, error.api, error.invalid_metadata) == (code, api.__name__.removesuffix("Request"), True)


MOVES = [
    (p.DescribeAclsRequest, p.DescribeAclsResponse(), lambda a: a.describe_acls() == []),
    (
        p.CreateTopicsRequest,
        p.CreateTopicsResponse(topics=[p.CreatableTopicResult(name="t", num_partitions=1)]),
        lambda a: list(a.create_topics(["t"]).check()) == ["t"],
    ),
    (
        p.DescribeConfigsRequest,
        p.DescribeConfigsResponse(results=[p.DescribeConfigsResult(resource_type=2, resource_name="t")]),
        lambda a: list(a.describe_configs([("topic", "t")]).check()) == [("topic", "t")],
    ),
    (
        p.DescribeQuorumRequest,
        p.DescribeQuorumResponse(
            topics=[p.QuorumTopicData(topic_name="__cluster_metadata", partitions=[p.QuorumPartitionData(leader_id=3001)])]
        ),
        lambda a: a.describe_quorum().leader_id == 3001,
    ),
]


@pytest.mark.parametrize(("api", "answer", "works"), MOVES, ids=lambda each: getattr(each, "__name__", ""))
def test_another_controller_has_become_active(quorum, admin, api, answer, works):
    """The old one refuses twice in a row, for the first metadata may still name it."""
    refused = []

    def serve(node_id, request):
        if node_id == 3001:
            return answer
        refused.append(node_id)
        if len(refused) == 2:
            quorum.active = 3001
        return not_controller(api, node_id)

    quorum.control(api, serve)
    assert works(admin)
    name = api.__name__.removesuffix("Request")
    asked = quorum.who(name)
    assert asked[:2] == [3000, 3000]
    assert asked[-1] == 3001
    assert {*asked[2:-1]} <= {3000}  # an answer of before the move may come after the second refusal


def test_no_controller_leads_for_a_while(quorum, admin):
    quorum.control(p.DescribeAclsRequest, lambda node_id, request: p.DescribeAclsResponse())
    quorum.refusals = [
        p.DescribeClusterResponse(error_code=Code.REQUEST_TIMED_OUT, endpoint_type=2, cluster_id="c"),
        p.DescribeClusterResponse(error_code=Code.REQUEST_TIMED_OUT, endpoint_type=2, cluster_id="c"),
        quorum.described(p.DescribeClusterRequest(endpoint_type=2))._replace(controller_id=-1),
        p.DescribeClusterResponse(endpoint_type=2, cluster_id="c", controller_id=-1),  # no controller
    ]
    assert admin.describe_acls() == []
    assert quorum.refusals == []
    assert quorum.asked[-1] == (3000, "DescribeAcls")
    assert quorum.who("DescribeAcls") == [3000]


def test_settings_of_nodes(quorum, admin):
    """A controller describes itself, the active one alters what is any node's, loggers are their own node's."""
    wanted = {}

    def describe(node_id, request):
        wanted[node_id] = [each.resource_name for each in request.resources]
        results = [
            p.DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name) for each in request.resources
        ]
        return p.DescribeConfigsResponse(results=results)

    def alter(node_id, request):
        wanted.setdefault(node_id, []).extend((each.resource_type, each.resource_name) for each in request.resources)
        kinds = [(each.resource_type, each.resource_name) for each in request.resources]
        return p.IncrementalAlterConfigsResponse(
            responses=[p.IncrementalAlterConfigsResourceResponse(resource_type=kind, resource_name=name) for kind, name in kinds]
        )

    quorum.control(p.DescribeConfigsRequest, describe)
    quorum.control(p.IncrementalAlterConfigsRequest, alter)
    results = admin.describe_configs([("broker", "3001"), ("topic", "t"), ("broker", "1")])
    assert wanted == {3000: ["t"], 3001: ["3001"]}
    assert isinstance(results.errors["broker", "1"], errors.BrokerNotAvailable)
    assert "no controller 1 now; it has 3000, 3001; for brokers" in str(results.errors["broker", "1"])
    wanted.clear()
    names = [("broker", "1"), ("broker", "3001"), ("broker_logger", "3001"), ("broker", "")]
    admin.alter_configs({name: {"a": "b"} for name in names}).check()
    assert wanted == {3000: [(4, "1"), (4, "3001"), (4, "")], 3001: [(8, "3001")]}


# -- what is not served -----------------------------------------------------------------------------------------------------------

TP = TopicPartition("t", 0)
BROKERS_ONLY = {
    "list_topics": (), "describe_topics": (["t"],), "describe_topics_by_broker": (["t"],), "describe_topics_by_id": ([b"i" * 16],),
    "list_offsets": ({TP: "latest"},), "delete_records": ({TP: 0},), "list_config_resources": (), "describe_log_dirs": (),
    "describe_replica_log_dirs": ([("t", 0, 1)],), "alter_replica_log_dirs": ({("t", 0, 1): "/d"},), "describe_client_quotas": (),
    "list_groups": (), "describe_groups": (["g"],), "delete_groups": (["g"],), "remove_group_members": ("g", ["m"]),
    "list_group_offsets": ("g",), "list_groups_offsets": ({"g": None},), "alter_group_offsets": ("g", {TP: 1}),
    "delete_group_offsets": ("g", [TP]), "describe_producers": ([TP],), "list_transactions": (), "describe_transactions": (["x"],),
    "fence_producers": (["x"],), "force_terminate_transaction": ("x",), "abort_transaction": (TP, 1, 0, 0),
    "commit_transaction": (TP, 1, 0, 0),
    "describe_user_scram_credentials": (), "describe_delegation_tokens": (),
}  # fmt: skip
BY_CONTROLLERS = {
    "create_topics", "delete_topics", "delete_topics_by_id", "create_partitions", "describe_configs", "alter_configs", "describe_cluster",
    "elect_leaders", "alter_partition_reassignments", "list_partition_reassignments", "alter_client_quotas", "describe_acls", "create_acls",
    "delete_acls", "alter_user_scram_credentials", "describe_features", "update_features", "describe_quorum", "add_raft_voter",
    "remove_raft_voter", "unregister_broker", "create_delegation_token", "renew_delegation_token", "expire_delegation_token",
}  # fmt: skip


def test_each_call_is_in_one_of_the_tables():
    calls = {name for name, _ in inspect.getmembers(KafkaAdminClient, inspect.isfunction) if name[0] != "_"} - {"close"}
    assert calls == BROKERS_ONLY.keys() | BY_CONTROLLERS
    assert not BROKERS_ONLY.keys() & BY_CONTROLLERS


@each_row("name", BROKERS_ONLY)
def test_calls_for_brokers_say_so_without_asking_anybody(name):
    with (
        KafkaAdminClient(bootstrap_controllers=NO_SERVER, **QUICK) as admin,
        pytest.raises(errors.UnsupportedEndpointType, match="controllers do not serve this request; a client with bootstrap_servers"),
    ):
        getattr(admin, name)(*BROKERS_ONLY[name])


def test_fenced_brokers_are_not_listed_by_controllers():
    with KafkaAdminClient(bootstrap_controllers=NO_SERVER) as admin, pytest.raises(errors.UsageError, match="fenced"):
        admin.describe_cluster(include_fenced_brokers=True)


# -- the wrong address ------------------------------------------------------------------------------------------------------------


def test_the_address_of_a_broker_is_refused_at_once():
    with Broker(BrokerConfig()) as broker, KafkaAdminClient(bootstrap_controllers=broker.address, **QUICK) as admin:
        for _ in range(2):
            with pytest.raises(errors.MismatchedEndpointType, match="bootstrap_controllers names controllers, bootstrap_servers brokers"):
                admin.describe_acls()


def test_a_broker_that_knows_no_endpoint_types_is_refused_at_once():
    with Broker(BrokerConfig()) as broker, KafkaAdminClient(bootstrap_controllers=broker.address, **QUICK) as admin:
        ranges = [p.ApiVersion(api_key=18, min_version=0, max_version=4), p.ApiVersion(api_key=60, min_version=0, max_version=0)]
        broker.control(p.ApiVersionsRequest.API_KEY, lambda request: p.ApiVersionsResponse(api_keys=ranges))
        with pytest.raises(errors.UnsupportedVersion, match=r"clients can ask controllers since Kafka 3\.7"):
            admin.describe_acls()


def test_the_controller_of_an_embedded_cluster_serves_its_brokers_alone():
    with EmbeddedCluster(faults=True) as cluster:  # the one whose controller listens, without further processes
        with KafkaAdminClient(bootstrap_controllers=f"127.0.0.1:{cluster._server.port}", **QUICK) as admin:
            with pytest.raises(errors.UnsupportedVersion, match="but not an embedded cluster's, which serves its brokers alone"):
                admin.describe_quorum()


def test_the_address_of_a_controller_as_that_of_a_broker_is_refused_at_once():
    with Broker(BrokerConfig()) as broker, KafkaAdminClient(bootstrap_servers=broker.address, **QUICK) as admin:
        keys = sorted({18, 62, *(api.API_KEY for api in SERVED)})
        ranges = [p.ApiVersion(api_key=key, min_version=0, max_version=0) for key in keys]
        broker.control(p.ApiVersionsRequest.API_KEY, lambda request: p.ApiVersionsResponse(api_keys=ranges))
        with pytest.raises(errors.UnsupportedVersion, match="the address is that of a controller: bootstrap_servers names brokers"):
            admin.list_topics()


def test_answers_that_are_none(quorum, admin):
    """About brokers, or about no controllers: the client asks again, and says why if that does not help."""
    described = quorum.described(p.DescribeClusterRequest(endpoint_type=2))
    quorum.refusals = [described._replace(endpoint_type=1), described._replace(brokers=[])] * 10_000
    reasons = ("the answer is not about controllers", "the answer names no controllers")
    for timeout in (0.1, 1, 10):  # on a machine that is busy the second answer may be late
        with pytest.raises(errors.KafkaTimeoutError) as late:
            admin.describe_quorum(timeout=timeout)
        if all(reason in str(late.value) for reason in reasons):
            return
    raise AssertionError(f"the reasons are not named: {late.value}")


# -- settings ---------------------------------------------------------------------------------------------------------------------


def test_brokers_or_controllers():
    config = AdminConfig.from_user({"bootstrap.controllers": "a:1, b:2"})
    assert config.asks_controllers
    assert config.bootstrap_addresses == [("a", 1), ("b", 2)]
    assert not AdminConfig.from_user(bootstrap_servers="a:1").asks_controllers
    for wrong, says in (
        ({}, "at least one, as host:port"),
        ({"bootstrap_servers": "a:1", "bootstrap_controllers": "b:1"}, "not both"),
        ({"bootstrap_controllers": "a"}, "'a' is not an address"),
        ({"bootstrap_controllers": [1]}, "bootstrap_controllers must hold strings"),
        ({"bootstrap_controllers": "a:1", "broker_version": "0.9"}, "broker_version=0.9"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            AdminConfig.from_user(wrong)
    with KafkaAdminClient(bootstrap_controllers=NO_SERVER) as admin:
        assert repr(admin) == f"KafkaAdminClient({NO_SERVER})"


# -- command line -----------------------------------------------------------------------------------------------------------------


def test_commands_ask_controllers(quorum, capsys, monkeypatch):
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", NO_SERVER)  # the option is stronger
    quorum.control(p.DescribeAclsRequest, lambda node_id, request: p.DescribeAclsResponse())
    where = ["--bootstrap-controller", quorum.servers[3001].address]
    assert run(["cluster", *where, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["controller"], [each["id"] for each in shown["controllers"]]) == (3000, [3000, 3001])
    assert run(["cluster", *where]) == 0
    assert "active" in capsys.readouterr().out
    assert run(["acls", "list", *where, "--json"]) == 0
    assert quorum.who("DescribeAcls") == [3000]
    for words in (["-b", NO_SERVER, *where], [*where, "-b", NO_SERVER]):
        assert run(["cluster", *words]) == 2
        assert "brokers or controllers, not both" in capsys.readouterr().err
    assert run(["cluster", "-X", "bootstrap.controllers=a:1"]) == 2
    assert "bootstrap.controllers is --bootstrap-controller" in capsys.readouterr().err
    assert run(["configs", "describe", *where]) == 1
    assert "controllers do not serve this request" in capsys.readouterr().err
