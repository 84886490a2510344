"""An admin client with `bootstrap_controllers` at the controller of Apache Kafka 4.3.1."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kafkacore import KafkaAdminClient, errors
from kafkacore.admin import Acl
from kafkacore.admin.controllers import SERVED
from kafkacore.cli.app import run
from kafkacore.protocol import APIS
from tests.kit.inside import driver_of
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import fresh, until

pytestmark = pytest.mark.kafka
UNSERVED = {"DescribeUserScramCredentials", "DescribeDelegationToken", "AlterConfigs", "SaslHandshake", "SaslAuthenticate"}
"""What controllers announce, and then answer with an error; the older way to alter settings; a connection's own dialogue."""
FOLLOWS = "what the controller shows follows what it has decided"
BROKERS = {"Envelope", "Fetch", "AlterPartition", "BrokerRegistration", "BrokerHeartbeat", "AllocateProducerIds", "AssignReplicasToDirs"}
"""What brokers ask controllers."""


@pytest.fixture
def admin(real_kafka: KafkaServer) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_controllers=real_kafka.bootstrap_controllers) as client:
        yield client


def test_the_controller_announces_what_is_asked_of_it(admin: KafkaAdminClient) -> None:
    admin.describe_cluster()
    client = driver_of(admin).client
    (announced,) = (versions.ranges for node_id in (1,) if (versions := client.api_versions(node_id)) is not None)
    served = {APIS[key].name for key in announced if key in APIS}
    assert served - UNSERVED - BROKERS - {"FetchSnapshot"} == {api.__name__.removesuffix("Request") for api in SERVED}


def test_the_cluster_its_quorum_and_features(admin: KafkaAdminClient, real_kafka: KafkaServer) -> None:
    found = admin.describe_cluster(include_authorized_operations=True)
    host, port = real_kafka.bootstrap_controllers.split(":")
    assert [(node.id, node.host, node.port) for node in found.nodes] == [(1, host, int(port))]
    assert found.controller == found.nodes[0]
    assert "alter" in (found.authorized_operations or [])
    assert admin.describe_quorum().leader_id == 1
    assert "metadata.version" in admin.describe_features().finalized
    assert admin.update_features({"group.version": 1}, validate_only=True).errors == {}
    with pytest.raises(errors.BrokerIdNotRegistered):
        admin.unregister_broker(17)
    for call in (admin.add_raft_voter, admin.remove_raft_voter):
        with pytest.raises(errors.UnsupportedVersion, match=r"kraft\.version feature is 0"):
            call(9, b"d" * 16, *([{"CONTROLLER": ("h", 1)}] if call == admin.add_raft_voter else []))


def test_topics_and_their_replicas(admin: KafkaAdminClient) -> None:
    name = fresh("t")
    assert admin.create_topics([name]).check()[name].num_partitions == 1
    admin.create_partitions({name: 3}).check()
    admin.alter_configs({("topic", name): {"retention.ms": 77_000}}).check()
    topic = ("topic", name)
    until(lambda: admin.describe_configs([topic]).check()[topic]["retention.ms"].value == "77000", FOLLOWS)
    assert isinstance(admin.elect_leaders([(name, 0)]).errors[name, 0], errors.ElectionNotNeeded)
    assert isinstance(admin.alter_partition_reassignments({(name, 0): None}).errors[name, 0], errors.NoReassignmentInProgress)
    assert admin.list_partition_reassignments() == {}
    admin.delete_topics([name]).check()
    until(lambda: admin.describe_configs([topic]).errors, FOLLOWS)


def test_settings_of_nodes(admin: KafkaAdminClient) -> None:
    node, everyone, logger, unknown = ("broker", "1"), ("broker", ""), ("broker_logger", "1"), ("broker", "77")
    changes = {node: {"log.cleaner.threads": 2}, everyone: {"log.retention.ms": 7_000_000}, unknown: {"log.retention.ms": 5}}
    results = admin.alter_configs(changes)
    assert set(results) == {node, everyone}
    assert isinstance(results.errors[unknown], errors.BrokerIdNotRegistered)
    admin.alter_configs({logger: {"kafka.server.ControllerApis": "WARN"}}).check()
    assert admin.describe_configs([logger]).check()[logger]["kafka.server.ControllerApis"].value == "WARN"
    until(lambda: admin.describe_configs([node]).check()[node]["log.cleaner.threads"].value == "2", FOLLOWS)
    admin.alter_configs({node: {"log.cleaner.threads": None}, everyone: {"log.retention.ms": None}}).check()
    assert isinstance(admin.describe_configs([unknown]).errors[unknown], errors.BrokerNotAvailable)


def test_users_quotas_entries_and_tokens(admin: KafkaAdminClient, real_kafka: KafkaServer) -> None:
    user = fresh("u")
    credential, entity = (user, "SCRAM-SHA-256"), (("user", user),)
    admin.alter_user_scram_credentials({credential: "secret"}).check()
    admin.alter_user_scram_credentials({credential: None}).check()
    admin.alter_client_quotas({entity: {"producer_byte_rate": 1e6}}).check()
    admin.alter_client_quotas({entity: {"producer_byte_rate": None}}).check()
    with pytest.raises(errors.SecurityDisabled):
        admin.describe_acls()
    acl = Acl("topic", "t", f"User:{user}", "read")
    assert isinstance(admin.create_acls([acl]).errors[acl], errors.SecurityDisabled)
    with pytest.raises(errors.UnsupportedByAuthentication):
        admin.create_delegation_token()


def test_addresses_of_the_other_kind(real_kafka: KafkaServer) -> None:
    with (
        KafkaAdminClient(bootstrap_controllers=real_kafka.bootstrap_servers) as wrong,
        pytest.raises(errors.MismatchedEndpointType, match="bootstrap_controllers names controllers, bootstrap_servers brokers"),
    ):
        wrong.describe_quorum()
    with (
        KafkaAdminClient(bootstrap_servers=real_kafka.bootstrap_controllers) as wrong,
        pytest.raises(errors.UnsupportedVersion, match="the address is that of a controller"),
    ):
        wrong.list_topics()


def test_commands(real_kafka: KafkaServer, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--bootstrap-controller", real_kafka.bootstrap_controllers]
    assert run(["cluster", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["controller"] == 1
    assert run(["configs", "set", "log.retention.ms=8000000", "--broker-defaults", *where]) == 0

    def shown() -> str:
        capsys.readouterr()
        assert run(["configs", "describe", "--broker", "1", "--all", *where, "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)[0]["configs"]["log.retention.ms"]["value"])

    until(lambda: shown() == "8000000", FOLLOWS)
    assert run(["configs", "unset", "log.retention.ms", "--broker-defaults", *where]) == 0
    assert run(["quotas", "set", "producer_byte_rate=5", "--user", "q", *where]) == 0
    assert run(["quotas", "unset", "producer_byte_rate", "--user", "q", *where]) == 0
    assert run(["acls", "list", *where]) == 1
    assert "SECURITY_DISABLED" in capsys.readouterr().err
