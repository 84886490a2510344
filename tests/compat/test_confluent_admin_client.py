"""compat.confluent's AdminClient by itself: its thread, times, ends, credentials, and what brokers that fail make of it."""

from __future__ import annotations

import base64
import gc
import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.compat.confluent import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from kafkacore.compat.confluent.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafkacore.compat.confluent.admin.base import ADMIN_SETTINGS
from kafkacore.compat.settings import NoEffect
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.inside import driver_of
from tests.kit.programs import run_python
from tests.kit.rows import each_row
from tests.kit.waiting import until

WAIT_S = 60.0
TP = TopicPartition("t", 0, 0)
GROUP, TOPICS = ConsumerGroupTopicPartitions("g"), TopicCollection(["t"])
LATEST, PREFERRED, PARTITIONS = OffsetSpec.latest(), ElectionType.PREFERRED, NewPartitions("t", 1)
NAME = "kafkacore-confluent-admin"


cluster = embedded({"t": 1}, config={"auto_create_topics_enable": False})


def client(servers: Any, **settings: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers} | settings)


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == NAME]


def may(on: int) -> dict[str, bool]:
    return {"include_authorized_operations": bool(on)}


def code(future: Future[Any]) -> str:
    with pytest.raises(KafkaException) as caught:
        future.result(WAIT_S)
    return str(caught.value.args[0].name())


def test_one_thread_completes_all_futures(cluster: EmbeddedCluster) -> None:
    before = threads()
    admin = client(cluster.bootstrap_servers)
    assert threads() == before
    names: list[str] = []
    futures = [admin.describe_cluster() for _ in range(20)]
    futures[0].add_done_callback(lambda _: 1 / 0)  # ends nothing
    for each in futures:
        each.add_done_callback(lambda _: names.append(threading.current_thread().name))
    assert all(each.result(WAIT_S).cluster_id for each in futures)
    assert len(set(threads()) - set(before)) == 1
    until(lambda: len(names) == 20)
    assert NAME in names
    until(lambda: len(admin) == 0)


def test_a_client_that_nobody_holds_ends_its_thread(cluster: EmbeddedCluster) -> None:
    before = set(threads())
    admin = client(cluster.bootstrap_servers)
    admin.describe_cluster().result(WAIT_S)
    (thread,) = set(threads()) - before
    engine = admin._engines.now
    last = admin.describe_cluster()
    del admin
    gc.collect()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert driver_of(engine).closed
    assert last.result(0).cluster_id


def test_the_end_of_a_client_ends_its_calls() -> None:
    with client("127.0.0.1:1") as admin:
        futures = [admin.describe_cluster() for _ in range(3)]
        late = admin.create_topics([NewTopic("t", 1, 1)])["t"]
        waiting = threading.Thread(target=admin.poll)
        waiting.start()
    assert {code(each) for each in [*futures, late]} == {"_DESTROY"}
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        admin.list_topics(timeout=1)


def test_times_count_from_the_call() -> None:
    admin = client("127.0.0.1:1")
    futures = [admin.describe_cluster(request_timeout=0.5) for _ in range(300)]
    assert wait(futures, WAIT_S).not_done == set()  # one after the other they would take 150 s
    assert {code(each) for each in futures} == {"_TIMED_OUT"}
    with pytest.raises(KafkaException) as caught:
        admin.cluster_id(timeout=0.1)
    assert caught.value.args[0].name() == "_TIMED_OUT"


def test_calls_that_wait_at_once_are_not_queued(cluster: EmbeddedCluster) -> None:
    admin = client(cluster.bootstrap_servers)
    released = threading.Event()
    held = admin._one(lambda engine: released.wait(WAIT_S))
    assert admin.cluster_id(timeout=WAIT_S)
    assert admin.list_topics(timeout=WAIT_S).brokers
    assert not held.done()
    released.set()
    assert held.result(WAIT_S)


def test_a_call_under_way_does_not_hold_the_end_of_the_program() -> None:
    program = """
from kafkacore.compat.confluent.admin import AdminClient
admin = AdminClient({"bootstrap.servers": "127.0.0.1:1"})
admin.describe_cluster(request_timeout=600)
print("end")
"""
    done = run_python("-c", program)
    assert (done.stdout, "Traceback" in done.stderr) == ("end\n", False)


def test_credentials_are_changed() -> None:
    with EmbeddedCluster(users={"alice": "secret"}) as secured:
        log_in = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "old"}
        admin = client(secured.bootstrap_servers, **{"security.protocol": "SASL_PLAINTEXT"}, **log_in)
        assert code(admin.describe_cluster(request_timeout=5)) == "_AUTHENTICATION"
        admin.set_sasl_credentials("alice", "secret")
        assert admin.describe_cluster().result(WAIT_S).nodes
        admin.set_sasl_credentials("alice", "wrong")
        assert code(admin.describe_cluster(request_timeout=5)) == "_AUTHENTICATION"


@each_row(
    ("api", "ask", "field", "values"),
    [
        ("ListOffsets", lambda a, on: a.list_offsets({TP: LATEST}, isolation_level=IsolationLevel(on)), "isolation_level", [0, 1]),
        ("ElectLeaders", lambda a, on: {0: a.elect_leaders(ElectionType(on), [TP])}, "election_type", [0, 1]),
        ("ElectLeaders", lambda a, on: {0: a.elect_leaders(PREFERRED, [TP], operation_timeout=on + 1)}, "timeout_ms", [1000, 2000]),
        ("OffsetFetch", lambda a, on: a.list_consumer_group_offsets([GROUP], require_stable=bool(on)), "require_stable", [False, True]),
        ("DescribeGroups", lambda a, on: a.describe_consumer_groups(["none"], **may(on)), "include_authorized_operations", [False, True]),
        ("Metadata", lambda a, on: a.describe_topics(TOPICS, **may(on)), "include_topic_authorized_operations", [False, True]),
        ("DeleteTopics", lambda a, on: a.delete_topics(["none"], operation_timeout=on + 1), "timeout_ms", [1000, 2000]),
        ("DeleteRecords", lambda a, on: a.delete_records([TP], operation_timeout=on + 1), "timeout_ms", [1000, 2000]),
        ("CreatePartitions", lambda a, on: a.create_partitions([PARTITIONS], validate_only=bool(on)), "validate_only", [False, True]),
        ("DescribeConfigs", lambda a, on: a.describe_configs([ConfigResource("topic", "t")]), "include_synonyms", [True, True]),
    ],
)
def test_options_reach_the_broker(cluster: EmbeddedCluster, api: str, ask: Any, field: str, values: list[Any]) -> None:
    seen: list[Any] = []
    admin = client(cluster.bootstrap_servers)
    cluster.control(api, lambda request: seen.append(getattr(request, field)))
    try:
        for on in (0, 1):
            for future in ask(admin, on).values():
                future.exception(WAIT_S)
    finally:
        cluster.control(api, None)
    assert [value for n, value in enumerate(seen) if n == 0 or value != seen[n - 1]] == sorted(set(values))


def test_salts_are_those_of_the_program(cluster: EmbeddedCluster) -> None:
    seen: list[Any] = []
    cluster.control("AlterUserScramCredentials", lambda request: seen.extend(request.upsertions))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    given = [UserScramCredentialUpsertion(user, info, b"secret", salt) for user, salt in (("a", b"salt"), ("b", None), ("c", None))]
    for future in client(cluster.bootstrap_servers).alter_user_scram_credentials(given).values():  # type: ignore[arg-type]
        future.result(WAIT_S)
    cluster.control("AlterUserScramCredentials", None)
    salts = {each.name: bytes(each.salt) for each in seen}
    assert salts["a"] == b"salt"
    assert len({*salts.values()}) == 3
    assert b"secret" not in b"".join(bytes(each.salted_password) for each in seen)


def test_settings_are_asked_of_the_broker_that_is_named(cluster: EmbeddedCluster) -> None:
    admin, resource = client(cluster.bootstrap_servers), ConfigResource("group", "g")
    change = ConfigEntry("consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource("group", "g", set_config={"consumer.session.timeout.ms": "50000"}, incremental_configs=[change])
    assert admin.describe_configs([resource], broker=1)[resource].result(WAIT_S)
    with pytest.warns(DeprecationWarning):
        altered = admin.alter_configs([changed], broker=77)
        assert admin.alter_configs([changed], broker=1)[changed].result(WAIT_S) is None
    assert admin.incremental_alter_configs([changed])[changed].result(WAIT_S) is None
    for futures in (admin.describe_configs([resource], broker=77), admin.incremental_alter_configs([changed], broker=77), altered):
        assert code(futures[resource]) == "BROKER_NOT_AVAILABLE"


def test_several_brokers_are_asked_about_their_settings() -> None:
    with EmbeddedCluster(brokers=2) as two:
        admin = client(two.bootstrap_servers)
        resources = [ConfigResource("broker", "1"), ConfigResource("broker", "2"), ConfigResource("topic", "none")]
        futures = admin.describe_configs(resources)
        found = [futures[each].result(WAIT_S)["broker.id"].value for each in resources[:2]]
        assert found == ["1", "2"]
        assert code(futures[resources[2]]) == "UNKNOWN_TOPIC_OR_PART"


def test_a_result_that_the_answer_leaves_out_is_an_error(cluster: EmbeddedCluster) -> None:
    admin = client(cluster.bootstrap_servers)
    futures = admin._each(["a", "b"], lambda engine: {"a": 1})
    assert futures["a"].result(WAIT_S) == 1
    assert code(futures["b"]) == "_BAD_MSG"


def test_topic_ids_are_shown_as_kafkas_tools_show_them(cluster: EmbeddedCluster) -> None:
    admin = client(cluster.bootstrap_servers)
    for name in ("ids", "more"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as engine:
            raw = engine.describe_topics([name])[name].topic_id
        found = admin.describe_topics(TopicCollection([name]))[name].result(WAIT_S).topic_id
        assert str(found) == base64.urlsafe_b64encode(raw).decode().rstrip("=")
        assert found == Uuid(found.get_most_significant_bits(), found.get_least_significant_bits())


def test_brokers_have_their_addresses(cluster: EmbeddedCluster) -> None:
    admin, (host, _, port) = client(cluster.bootstrap_servers), cluster.bootstrap_servers.rpartition(":")
    of_cluster = admin.describe_cluster().result(WAIT_S)
    (partition,) = admin.describe_topics(TOPICS)["t"].result(WAIT_S).partitions
    group = admin.describe_consumer_groups(["none"])["none"].result(WAIT_S)
    nodes = [*of_cluster.nodes, of_cluster.controller, partition.leader, *partition.replicas, *partition.isr, group.coordinator]
    assert [(each.id, each.id_string, each.host, each.port, each.rack) for each in nodes] == [(1, "1", host, int(port), None)] * 6
    listed = admin.list_topics("t", WAIT_S)
    assert [(number, each.id, each.host, each.port) for number, each in listed.brokers.items()] == [(1, 1, host, int(port))]
    known = listed.topics["t"].partitions[0]
    assert (known.id, known.leader, known.replicas, known.isrs, listed.controller_id, listed.orig_broker_id) == (0, 1, [1], [1], 1, -1)


def test_errors_say_where() -> None:
    with EmbeddedCluster(config={"auto_create_topics_enable": False}) as own:
        future = client(own.bootstrap_servers).delete_records([TopicPartition("none", 3, 1)])
        error = next(iter(future.values())).exception(WAIT_S)
    assert isinstance(error, KafkaException)
    assert "topic none, partition 3" in error.args[0].str()
    assert type(error.__cause__).__name__ == "UnknownTopicOrPartition"


def test_settings_of_other_clients_say_that_they_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    client("127.0.0.1:1", **{"group.id": "g", "acks": 1})
    assert {"group.id", "request.required.acks"} <= {word for record in caplog.records for word in record.getMessage().split("=")[:1]}
    assert all(isinstance(ADMIN_SETTINGS[name], NoEffect) for name in ("group.id", "request.required.acks"))
