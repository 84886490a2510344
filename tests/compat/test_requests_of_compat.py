"""What the admin clients with other clients' names ask: the requests of a call in their versions, whom, and for how long."""

from __future__ import annotations

import contextlib
import importlib
import uuid
from collections.abc import Callable, ValuesView
from concurrent.futures import wait
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.admin import GroupDescription, GroupListing, MemberDescription
from kafkacore.compat import confluent as c
from kafkacore.compat.aiokafka import admin as a
from kafkacore.compat.aiokafka import errors as of_aiokafka
from kafkacore.compat.aiokafka.admin.config_resource import ConfigResource as CONFIG
from kafkacore.compat.confluent import admin as d
from kafkacore.compat.kafka import KafkaAdminClient, OffsetAndMetadata, OffsetSpec
from kafkacore.compat.kafka import admin as k
from kafkacore.compat.kafka import errors as of_kafka
from kafkacore.compat.kafka.admin import ConfigResource as NAMED
from kafkacore.protocol import admin as of
from kafkacore.types import Node, TopicPartition
from tests.kit.loops import GUARD_S, run
from tests.kit.rows import each_row

A, B = TopicPartition("t", 0), TopicPartition("u", 1)
ID, NO_ID = uuid.UUID(int=5), bytes(16)


class Results(dict[Any, Any]):
    """Those of the engine's calls."""

    def __init__(self, succeeded: dict[Any, Any] | None = None, failed: dict[Any, Any] | None = None) -> None:
        self.succeeded, self.errors = succeeded or {}, failed or {}

    def check(self) -> Results:
        return self


class Engine:
    """Notes what it is asked: whom, for how long, and a request's name and values, by the first version that has them; or a call's name and
    arguments. All answers are empty but one that is given.
    """

    _drivers = SimpleNamespace(lent=contextlib.nullcontext)

    def __init__(self, answer: Any = None, responses: dict[Any, Any] | None = None) -> None:
        self.asked: list[Any] = []
        self.answer = Results() if answer is None else answer
        self.responses = responses or {}

    def close(self) -> None:
        pass

    def note(self, whom: Any, timeout_ms: int, api: Any, build: Callable[[int], Any]) -> Any:
        made: dict[int, Any] = {}
        for version in range(api.MAX_VERSION + 1):
            with contextlib.suppress(errors.UnsupportedVersion):
                if (request := as_tuples(build(version))) not in made.values():
                    made[version] = request
        self.asked.append((whom, timeout_ms, api.__name__.removesuffix("Request"), made))
        return self.responses.get(api) or api.RESPONSE()

    def _ask(self, api: Any, build: Any, timeout_ms: int, *, to_controller: bool = False) -> Any:
        return self.note("controller" if to_controller else "any", timeout_ms, api, build)

    def _ask_brokers(self, requests: Any, timeout_ms: int) -> Any:
        return {
            node: SimpleNamespace(error=None, response=self.note(node, timeout_ms, api, build)) for node, (api, build) in requests.items()
        }

    def _ask_coordinators(self, ids: Any, key: int, build: Any, read: Any, seconds: float) -> Any:
        api, made = build(list(ids))
        self.note(("coordinator", key), int(seconds * 1000), api, made)
        return Results()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((name, args, kwargs))
            return self.answer

        return call


def as_tuples(value: Any) -> Any:
    """Messages as tuples."""
    if isinstance(value, tuple):
        return tuple(map(as_tuples, value))
    return [as_tuples(each) for each in value] if isinstance(value, list) else value


class InLoop:
    """The same for a client of asyncio."""

    def __init__(self, engine: Engine) -> None:
        self._client, self._calls = engine, self

    async def run(self, call: Callable[[], Any]) -> Any:
        return call()

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(self._client, name)(*args, **kwargs)

        return call


def in_all_versions(whom: Any, name: str, *request: Any, ms: int = 7_000, of: int = 0) -> Any:
    """A request that is the same in all versions from one on."""
    return whom, ms, name, {of: request}


ACLS, FILTER = (
    ("User:a", "h", k.ACLOperation.READ, k.ACLPermissionType.ALLOW),
    ("User:b", "i", k.ACLOperation.WRITE, k.ACLPermissionType.DENY),
)
ACL = k.ACL(*ACLS, k.ResourcePattern(k.ResourceType.GROUP, "g", k.ACLResourcePatternType.PREFIXED))
ACL_FILTER = k.ACLFilter(*FILTER, k.ResourcePatternFilter(k.ResourceType.TOPIC, "t", k.ACLResourcePatternType.ANY))
TOPICS = [("a", 2, 1, [], [("x", "1"), ("y", "2")]), ("b", -1, -1, [(0, [1, 2]), (1, [2])], [])]
PARTITIONS = [("a", 3, None), ("b", 4, [([1, 2],), ([2],)])]
TWO, XY = {A: 2, B: 3}, {"x": "1", "y": "2"}

OF_AIOKAFKA: dict[Callable[[Any], Any], list[Any]] = {
    lambda it: it.create_topics([a.NewTopic("a", 2, 1, None, XY), a.NewTopic("b", -1, -1, {0: [1, 2], 1: [2]})], 5, True): [
        in_all_versions("controller", "CreateTopics", TOPICS, 5, True, ms=5)
    ],
    lambda it: it.create_topics([]): [in_all_versions("controller", "CreateTopics", [], 7_000, False)],
    lambda it: it.delete_topics(["a", "b"], 5): [
        ("controller", 5, "DeleteTopics", {0: ([], ["a", "b"], 5), 6: ([("a", NO_ID), ("b", NO_ID)], [], 5)})
    ],
    lambda it: it.delete_topics([]): [in_all_versions("controller", "DeleteTopics", [], [], 7_000)],
    lambda it: it.list_topics(): [("any", 7_000, "Metadata", {of: (None, of < 4, False, False) for of in (0, 4)})],
    lambda it: it.describe_topics(["a", "b"]): [
        ("any", 7_000, "Metadata", {of: ([(NO_ID, "a"), (NO_ID, "b")], of < 4, False, False) for of in (0, 4)})
    ],
    lambda it: it.describe_cluster(): [("any", 7_000, "Metadata", {of: ([], of < 4, False, False) for of in (0, 4)})],
    lambda it: it.create_partitions({"a": a.NewPartitions(3), "b": a.NewPartitions(4, [[1, 2], [2]])}, 5, True): [
        in_all_versions("controller", "CreatePartitions", PARTITIONS, 5, True, ms=5)
    ],
    lambda it: it.create_partitions({}): [in_all_versions("controller", "CreatePartitions", [], 7_000, False)],
    lambda it: it.delete_records({A: a.RecordsToDelete(2), B: a.RecordsToDelete(3)}, 5): [("delete_records", (TWO,), {"timeout": 0.005})],
    lambda it: it.delete_records({}): [("delete_records", ({},), {"timeout": 7.0})],
    lambda it: it.describe_configs([CONFIG("topic", "a", XY), CONFIG("broker", 1), CONFIG("broker", 2), CONFIG("topic", "b")]): [
        in_all_versions(1, "DescribeConfigs", [(4, "1", None)], False, False),
        in_all_versions(2, "DescribeConfigs", [(4, "2", None)], False, False),
        in_all_versions("any", "DescribeConfigs", [(2, "a", ["x", "y"]), (2, "b", None)], False, False),
    ],
    lambda it: it.describe_configs([CONFIG("topic", "b", {})], True): [
        in_all_versions("any", "DescribeConfigs", [(2, "b", None)], True, False)
    ],
    lambda it: it.alter_configs([CONFIG("topic", "a", XY), CONFIG("broker", 1), CONFIG("topic", "b")]): [
        in_all_versions(1, "AlterConfigs", [(4, "1", [])], False),
        in_all_versions("any", "AlterConfigs", [(2, "a", [("x", "1"), ("y", "2")]), (2, "b", [])], False),
    ],
    lambda it: it.list_consumer_groups([1, 2]): [in_all_versions(1, "ListGroups", [], []), in_all_versions(2, "ListGroups", [], [])],
    lambda it: it.find_coordinator("g", 1): [("any", 7_000, "FindCoordinator", {0: ("g", 1, []), 4: ("", 1, ["g"])})],
    lambda it: it.describe_consumer_groups(["g", "h"], 3, True): [in_all_versions(3, "DescribeGroups", ["g", "h"], True)],
    lambda it: it.describe_consumer_groups(["g"]): [
        ("any", 7_000, "FindCoordinator", {0: ("g", 0, []), 4: ("", 0, ["g"])}),
        in_all_versions(0, "DescribeGroups", ["g"], False),
    ],
    lambda it: it.list_consumer_group_offsets("g", None, [A]): [("list_group_offsets", ("g", [A]), {"timeout": 7.0})],
}  # fmt: skip

OF_KAFKA: dict[Callable[[Any], Any], list[Any]] = {
    lambda it: it.describe_topics(["a", ID]): [
        ("any", 7_000, "Metadata", {of: ([(NO_ID, "a"), (ID.bytes, None)], of < 4, False, of == 8) for of in (0, 4, 8)})
    ],
    lambda it: it.list_topics(): [("any", 7_000, "Metadata", {of: (None, of < 4, False, of == 8) for of in (0, 4, 8)})],
    lambda it: it.create_topics(
        {"a": {"num_partitions": 2, "replication_factor": 1, "configs": XY}, "b": {"assignments": {0: [1, 2], 1: [2]}}}, 5, True
    ): [in_all_versions("controller", "CreateTopics", TOPICS, 5, True, ms=5)],
    lambda it: it.create_topics(["a", "b"]): [
        in_all_versions("controller", "CreateTopics", [("a", -1, -1, [], []), ("b", -1, -1, [], [])], 7_000, False)
    ],
    lambda it: it.create_topics([k.NewTopic("a", 2, 1), k.NewTopic("b", replica_assignments={0: [1]}, topic_configs={"x": "1"})]): [
        in_all_versions("controller", "CreateTopics", [("a", 2, 1, [], []), ("b", -1, -1, [(0, [1])], [("x", "1")])], 7_000, False)
    ],
    lambda it: it.delete_topics(["a", ID], 5): [
        ("controller", 5, "DeleteTopics", {0: ([], ["a", ID], 5), 6: ([("a", NO_ID), (None, ID.bytes)], [], 5)})
    ],
    lambda it: it.create_partitions({"a": 3, "b": k.NewPartitions(4, [[1, 2], [2]]), "c": {"count": 5, "assignments": [[3]]}}, 5, True): [
        in_all_versions("controller", "CreatePartitions", [*PARTITIONS, ("c", 5, [([3],)])], 5, True, ms=5)
    ],
    lambda it: it.delete_records(TWO, 5): [("delete_records", (TWO,), {"timeout": 0.005})],
    lambda it: it.elect_leaders(1, {"a": [0, 1], "b": [2]}, 5): [
        in_all_versions("controller", "ElectLeaders", 1, [("a", [0, 1]), ("b", [2])], 5, ms=5)
    ],
    lambda it: it.alter_partition_reassignments({A: [1, 2], B: None}, 5): [
        ("alter_partition_reassignments", ({A: [1, 2], B: None},), {"timeout": 0.005})
    ],
    lambda it: it.list_partition_reassignments({"t": [0, 1], "u": [1]}, 5): [
        ("list_partition_reassignments", ([A, ("t", 1), B],), {"timeout": 0.005})
    ],
    lambda it: it.describe_topic_partitions(["a", "b"], 7, {"topic_name": "a", "partition_index": 3}): [
        in_all_versions("any", "DescribeTopicPartitions", [("a",), ("b",)], 7, ("a", 3))
    ],
    lambda it: it.describe_topic_partitions([]): [in_all_versions("any", "DescribeTopicPartitions", [], 2_000, None)],
    lambda it: it.list_partition_offsets({A: OffsetSpec.LATEST, B: 0}, "read_committed", 5): [
        ("list_offsets", ({A: "latest", B: 0},), {"read_committed": True, "timeout": 0.005})
    ],
    lambda it: it.list_partition_offsets({A: OffsetSpec.EARLIEST, B: OffsetSpec.MAX_TIMESTAMP}): [
        ("list_offsets", ({A: "earliest", B: "max_timestamp"},), {"read_committed": False, "timeout": 7.0})
    ],
    lambda it: it.describe_cluster(): [in_all_versions("any", "DescribeCluster", True, 1, False)],
    lambda it: it.describe_log_dirs({"a": [0, 1], "b": [2]}, [1, 2]): [
        in_all_versions(node, "DescribeLogDirs", [("a", [0, 1]), ("b", [2])]) for node in (1, 2)
    ],
    lambda it: it.describe_metadata_quorum(): [in_all_versions("any", "DescribeQuorum", [("__cluster_metadata", [(0,)])])],
    lambda it: it.describe_configs([NAMED("topic", "a", XY), NAMED("broker", 1), NAMED("broker_logger", 1), NAMED("topic", "b")], True): [
        in_all_versions("any", "DescribeConfigs", [(2, "a", ["x", "y"]), (2, "b", None)], True, False),
        in_all_versions(1, "DescribeConfigs", [(4, "1", None), (8, "1", None)], True, False),
    ],
    lambda it: it.list_config_resources(["topic", 16]): [in_all_versions("any", "ListConfigResources", [2, 16])],
    lambda it: it.alter_configs([NAMED("topic", "a", {"x": "1", "y": (2, "2")}), NAMED("broker", 1, {"z": ("DELETE", 3)})], True, False): [
        in_all_versions("any", "IncrementalAlterConfigs", [(2, "a", [("x", 0, "1"), ("y", 2, "2")])], True),
        in_all_versions(1, "IncrementalAlterConfigs", [(4, "1", [("z", 1, None)])], True),
    ],
    lambda it: it.reset_configs([NAMED("topic", "a", ["x", "y"])], raise_on_unknown=False): [
        in_all_versions("any", "IncrementalAlterConfigs", [(2, "a", [("x", 1, None), ("y", 1, None)])], False)
    ],
    lambda it: it.describe_features(True): [in_all_versions("controller", "ApiVersions", "kafkacore", "0")],
    lambda it: it.update_features({"a": 1, "b": (2, 3)}, True, 5): [
        in_all_versions("controller", "UpdateFeatures", 5, [("a", 1, False, 1), ("b", 3, False, 2)], True, ms=5)
    ],
    lambda it: it.alter_replica_log_dirs({("t", 0, 1): "/x", ("t", 1, 1): "/x", ("u", 0, 1): "/y", ("u", 0, 2): "/x"}): [
        in_all_versions(1, "AlterReplicaLogDirs", [("/x", [("t", [0, 1])]), ("/y", [("u", [0])])]),
        in_all_versions(2, "AlterReplicaLogDirs", [("/x", [("u", [0])])]),
    ],
    lambda it: it.describe_groups(["g", "h"]): [in_all_versions(("coordinator", 0), "DescribeGroups", ["g", "h"], True)],
    lambda it: it.list_groups([1, 2], ["stable", "empty"], ["consumer", "classic"]): [
        in_all_versions(node, "ListGroups", ["Stable", "Empty"], ["consumer", "classic"]) for node in (1, 2)
    ],
    lambda it: it.list_group_offsets({"g": [A, B], "h": None}): [
        ("list_group_offsets", ("g", [A, B]), {"timeout": 7.0}), ("list_group_offsets", ("h", None), {"timeout": 7.0})
    ],
    lambda it: it.delete_groups(["g", "h"]): [("delete_groups", (["g", "h"],), {"timeout": 7.0})],
    lambda it: it.alter_group_offsets("g", {A: OffsetAndMetadata(1, "n", -1), B: OffsetAndMetadata(2, "", 3)}): [
        ("alter_group_offsets", ("g", {A: (1, None, "n"), B: (2, 3, "")}), {"timeout": 7.0})
    ],
    lambda it: it.delete_group_offsets("g", [A, B]): [("delete_group_offsets", ("g", [A, B]), {"timeout": 7.0})],
    lambda it: it.remove_group_members("g", [k.MemberToRemove("m"), k.MemberToRemove(None, "i", "why")]): [
        in_all_versions(("coordinator", 0), "LeaveGroup", "g", "", [("m", None, None), ("", "i", "why")])
    ],
    lambda it: it.describe_acls(ACL_FILTER): [in_all_versions("any", "DescribeAcls", 2, "t", 1, *FILTER)],
    lambda it: it.create_acls([ACL, ACL]): [in_all_versions("any", "CreateAcls", [(3, "g", 4, *ACLS)] * 2)],
    lambda it: it.delete_acls([ACL_FILTER] * 2): [in_all_versions("any", "DeleteAcls", [(2, "t", 1, *FILTER)] * 2)],
    lambda it: it.describe_user_scram_credentials(["a"]): [("describe_user_scram_credentials", (["a"],), {"timeout": 7.0})],
    lambda it: it.alter_user_scram_credentials(
        [k.UserScramCredentialUpsertion("a", "SCRAM-SHA-256", "p", 5_000), k.UserScramCredentialDeletion("b", "SCRAM-SHA-512")]
    ): [
        ("alter_user_scram_credentials", ({("a", "SCRAM-SHA-256"): "p"},), {"iterations": 5_000, "timeout": 7.0}),
        ("alter_user_scram_credentials", ({("b", "SCRAM-SHA-512"): None},), {"iterations": 4_096, "timeout": 7.0}),
    ],
    lambda it: it.list_transactions([1, 2], [7], ["Ongoing", "Empty"]): [
        in_all_versions(node, "ListTransactions", ["Ongoing", "Empty"], [7], -1, None) for node in (1, 2)
    ],
    lambda it: it.list_transactions([1], duration_filter_ms=0): [in_all_versions(1, "ListTransactions", [], [], 0, None, of=1)],
    lambda it: it.list_transactions([1], transactional_id_pattern="x"): [in_all_versions(1, "ListTransactions", [], [], -1, "x", of=2)],
    lambda it: it.describe_producers([A]): [("describe_producers", ([A],), {"timeout": 7.0})],
    lambda it: it.abort_transaction(k.AbortTransactionSpec(A, 1, 2, 3)): [("abort_transaction", (A, 1, 2, 3), {"timeout": 7.0})],
}  # fmt: skip

BINDING = d.AclBinding(
    d.ResourceType.TOPIC, "t", d.ResourcePatternType.PREFIXED, "User:a", "h", d.AclOperation.READ, d.AclPermissionType.ALLOW
)
BINDINGS = d.AclBindingFilter(
    d.ResourceType.ANY, None, d.ResourcePatternType.MATCH, None, "i", d.AclOperation.ANY, d.AclPermissionType.DENY
)
SET = d.ConfigResource("topic", "a", set_config=XY)
COMMITS = c.ConsumerGroupTopicPartitions("g", [c.TopicPartition("t", 0, 2, "n"), c.TopicPartition("u", 1, 3, leader_epoch=4)])
STATES = c.ConsumerGroupState
FIRST, SECOND = c.TopicPartition("t", 0, 2), c.TopicPartition("u", 1, 3)
OF_CONFLUENT: dict[Callable[[Any], Any], tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    lambda it: it.create_topics([d.NewTopic("a", 2, 1, config={"x": 1}), d.NewTopic("b", 2, replica_assignment=[[1, 2], [2]])]): (
        "create_topics",
        ([("a", 2, 1, None, {"x": "1"}), ("b", 2, -1, {0: [1, 2], 1: [2]}, {})],),
        {"validate_only": False, "operation_timeout": None},
    ),
    lambda it: it.create_topics([d.NewTopic("a", 1, 1)], validate_only=True, operation_timeout=5): (
        "create_topics", ([("a", 1, 1, None, {})],), {"validate_only": True, "operation_timeout": 5}
    ),
    lambda it: it.delete_topics(["a", "b", "a"], operation_timeout=5): ("delete_topics", (["a", "b"],), {"operation_timeout": 5}),
    lambda it: it.create_partitions([d.NewPartitions("a", 3), d.NewPartitions("b", 4, [[1], [2]])], validate_only=True): (
        "create_partitions", ({"a": (3, None), "b": (4, [[1], [2]])},), {"validate_only": True, "operation_timeout": None}
    ),
    lambda it: it.describe_cluster(include_authorized_operations=True): ("describe_cluster", (), {"include_authorized_operations": True}),
    lambda it: it.list_offsets({FIRST: d.OffsetSpec.latest(), SECOND: d.OffsetSpec.for_timestamp(5)}): (
        "list_offsets", ({A: "latest", B: 5},), {"read_committed": False}
    ),
    lambda it: it.list_offsets({FIRST: d.OffsetSpec.earliest()}, isolation_level=c.IsolationLevel.READ_COMMITTED): (
        "list_offsets", ({A: "earliest"},), {"read_committed": True}
    ),
    lambda it: it.delete_records([FIRST, SECOND], operation_timeout=5): ("delete_records", (TWO,), {"operation_timeout": 5}),
    lambda it: it.elect_leaders(c.ElectionType.UNCLEAN, [FIRST, SECOND], operation_timeout=5): (
        "elect_leaders", ([A, B],), {"election": "unclean", "operation_timeout": 5}
    ),
    lambda it: it.list_consumer_groups(states={STATES.STABLE, STATES.EMPTY}, types={c.ConsumerGroupType.CONSUMER}): (
        "list_groups", (), {"states": ["Stable", "Empty"], "types": ["consumer"], "partial": True}
    ),
    lambda it: it.describe_consumer_groups(["g", "h"], include_authorized_operations=True): (
        "describe_groups", (["g", "h"],), {"include_authorized_operations": True}
    ),
    lambda it: it.delete_consumer_groups(["g", "h"]): ("delete_groups", (["g", "h"],), {}),
    lambda it: it.list_consumer_group_offsets([c.ConsumerGroupTopicPartitions("g", [c.TopicPartition("t", 0)])], require_stable=True): (
        "list_group_offsets", ("g", [A]), {"require_stable": True}
    ),
    lambda it: it.list_consumer_group_offsets([c.ConsumerGroupTopicPartitions("g")]): (
        "list_group_offsets", ("g", None), {"require_stable": False}
    ),
    lambda it: it.alter_consumer_group_offsets([COMMITS]): ("alter_group_offsets", ("g", {A: (2, None, "n"), B: (3, 4, None)}), {}),
    lambda it: it.describe_configs([SET, d.ConfigResource("broker", "1")], broker=0): (
        "describe_configs", ([("topic", "a"), ("broker", "1")],), {"include_synonyms": True, "broker": 0}
    ),
    lambda it: it.describe_configs([SET]): ("describe_configs", ([("topic", "a")],), {"include_synonyms": True, "broker": None}),
    lambda it: it.describe_configs([SET], broker=-1): ("describe_configs", ([("topic", "a")],), {"include_synonyms": True, "broker": None}),
    lambda it: it.create_acls([BINDING]): ("create_acls", ([("topic", "t", "User:a", "read", "h", "allow", "prefixed")],), {}),
    lambda it: it.describe_acls(BINDINGS): ("describe_acls", (("any", None, None, "any", "i", "deny", "match"),), {}),
    lambda it: it.delete_acls([BINDINGS]): ("delete_acls", ([("any", None, None, "any", "i", "deny", "match")],), {}),
    lambda it: it.describe_user_scram_credentials(["a", "b"]): ("describe_user_scram_credentials", (["a", "b"],), {}),
}  # fmt: skip


def made_by_confluents(call: Any, engine: Any) -> Any:
    """What a call gives, once it is done."""
    with d.AdminClient({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 7_000}) as admin:
        engines = vars(admin)["_engines"]
        engines.now.close()
        engines.now = engine
        futures = call(admin)
        wait(futures.values() if isinstance(futures, dict) else [futures], GUARD_S)
        return futures


@each_row(("call", "expected"), OF_CONFLUENT.items())
def test_what_confluents_names_ask(call: Any, expected: Any) -> None:
    engine: Any = Engine()
    made_by_confluents(call, engine)
    ((name, args, kwargs),) = engine.asked
    assert 0 < kwargs.pop("timeout") <= 7
    given = tuple(list(each) if isinstance(each, ValuesView) else each for each in args)
    assert (name, given, kwargs) == expected


@each_row(("call", "expected"), OF_AIOKAFKA.items())
def test_what_aiokafkas_names_ask(call: Any, expected: list[Any]) -> None:
    async def test() -> None:
        client, engine = a.AIOKafkaAdminClient(bootstrap_servers="127.0.0.1:1", request_timeout_ms=7_000), Engine()
        await client.close()
        vars(client).update(_started=True, _engine=InLoop(engine))
        await call(client)
        assert engine.asked == expected

    run(test())


@each_row(("call", "expected"), OF_KAFKA.items())
def test_what_kafka_pythons_names_ask(call: Any, expected: list[Any]) -> None:
    client, engine = object.__new__(KafkaAdminClient), Engine()
    vars(client).update(_admin=engine, config={"request_timeout_ms": 7_000})
    with contextlib.suppress(KeyError, ValueError):  # the answer has no item for what was asked
        call(client)
    assert engine.asked == expected


@each_row("topics", [None, ["a", "b"]])
def test_all_partitions_of_topics_are_meant_by_their_names(topics: list[str] | None) -> None:
    parts = [p.MetadataResponsePartition(partition_index=number) for number in (0, 1, 3)]
    known = [p.MetadataResponseTopic(name=name, partitions=of) for name, of in (("a", parts[:2]), ("b", parts[2:]))]
    client, engine = object.__new__(KafkaAdminClient), Engine(None, {p.MetadataRequest: p.MetadataResponse(topics=known)})
    vars(client).update(_admin=engine, config={"request_timeout_ms": 7_000})
    assert client.list_topics() == ["a", "b"]
    client.elect_leaders(0, topics)
    client.describe_log_dirs(topics, [1])
    everything = [("a", [0, 1]), ("b", [3])]
    assert engine.asked[2] == in_all_versions("controller", "ElectLeaders", 0, everything, 7_000)
    assert engine.asked[4] == in_all_versions(1, "DescribeLogDirs", everything)


def test_topics_are_waited_for_until_each_partition_has_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += seconds

    def topic(name: str, *leaders: int, **more: Any) -> Any:
        return p.MetadataResponseTopic(name=name, partitions=[p.MetadataResponsePartition(leader_id=each) for each in leaders], **more)

    monkeypatch.setattr("kafkacore.compat.kafka.admin_topics.time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    absent, late = topic("b", 0, error_code=3), topic("b", 0, -1)
    for times, rounds in (
        ([0.1] * 4, [[topic("a", 0, 1), late], [absent], [topic("b")], [late], [topic("b", 0)]]),
        ([0.1] * 2, [[late]] * 3),
    ):
        answers = [p.MetadataResponse(topics=topics) for topics in rounds]
        engine = Engine()
        engine.responses = SimpleNamespace(get=lambda _, answers=answers: answers.pop(0))  # type: ignore[assignment]
        client = object.__new__(KafkaAdminClient)
        vars(client).update(_admin=engine, config={"request_timeout_ms": 7_000})
        now_s[0] = 0.0
        slept.clear()
        if len(rounds) == 5:
            client.wait_for_topics(["a", "b"])
            wanted = [[name for _, name in each[3][0][0]] for each in engine.asked]
            assert wanted == [["a", "b"], *[["b"]] * 4]
        else:
            with pytest.raises(of_kafka.KafkaTimeoutError, match=r"Topics not ready after 200ms: \['b'\]"):
                client.wait_for_topics(["b"], 200)
        assert (slept, answers) == (times, [])


FAILED = {"error_code": 36, "error_message": "why"}
SECOND_FAILS: list[tuple[str, Callable[[Any], Any], Any, Any, str]] = [
    (
        "both",
        lambda it: it.create_partitions({"a": k.NewPartitions(2), "b": k.NewPartitions(2)}),
        p.CreatePartitionsRequest,
        p.CreatePartitionsResponse(results=[of.CreatePartitionsTopicResult(name="a"), of.CreatePartitionsTopicResult(name="b", **FAILED)]),
        "b: why",
    ),
    (
        "kafka",
        lambda it: it.create_topics(["a", "b"]),
        p.CreateTopicsRequest,
        p.CreateTopicsResponse(topics=[of.CreatableTopicResult(name="a"), of.CreatableTopicResult(name="b", **FAILED)]),
        "creating topic b: why",
    ),
    (
        "kafka",
        lambda it: it.delete_topics(["a", "b"]),
        p.DeleteTopicsRequest,
        p.DeleteTopicsResponse(responses=[of.DeletableTopicResult(name="a"), of.DeletableTopicResult(name="b", **FAILED)]),
        "deleting topic b: why",
    ),
    (
        "kafka",
        lambda it: it.elect_leaders(0, {"a": [0], "b": [0, 1]}),
        p.ElectLeadersRequest,
        p.ElectLeadersResponse(
            replica_election_results=[
                of.ReplicaElectionResult(topic="a", partition_result=[of.PartitionResult(partition_id=0)]),
                of.ReplicaElectionResult(
                    topic="b",
                    partition_result=[of.PartitionResult(partition_id=0, error_code=84), of.PartitionResult(partition_id=1, **FAILED)],
                ),
            ]
        ),
        "electing the leader of b: why",
    ),
    (
        "kafka",
        lambda it: it.describe_configs([NAMED("topic", "a"), NAMED("topic", "b")]),
        p.DescribeConfigsRequest,
        p.DescribeConfigsResponse(
            results=[
                of.DescribeConfigsResult(resource_type=2, resource_name="a"),
                of.DescribeConfigsResult(resource_type=2, resource_name="b", **FAILED),
            ]
        ),
        "describing b: why",
    ),
]


@each_row(("faces", "call", "api", "response", "text"), SECOND_FAILS)
def test_of_two_the_second_fails(faces: str, call: Any, api: Any, response: Any, text: str) -> None:
    engine = Engine(None, {api: response})
    client = object.__new__(KafkaAdminClient)
    vars(client).update(_admin=engine, config={"request_timeout_ms": 7_000})
    with pytest.raises(of_kafka.TopicAlreadyExistsError, match=f"{text}$"):
        call(client)
    if faces == "both":

        async def test() -> None:
            client = a.AIOKafkaAdminClient(bootstrap_servers="127.0.0.1:1", request_timeout_ms=7_000)
            await client.close()
            vars(client).update(_started=True, _engine=InLoop(engine))
            with pytest.raises(of_aiokafka.TopicAlreadyExistsError, match=f"{text}$"):
                await call(client)

        run(test())


def asked_by_kafkas(call: Callable[[Any], Any], engine: Any) -> Any:
    client = object.__new__(KafkaAdminClient)
    vars(client).update(_admin=engine, config={"request_timeout_ms": 7_000})
    return call(client)


def test_settings_have_names_in_place_of_numbers() -> None:
    configs = [of.CreatableTopicConfigs(name="x", value="1", config_source=1), of.CreatableTopicConfigs(name="y", config_source=5)]
    made = p.CreateTopicsResponse(topics=[of.CreatableTopicResult(name=name, configs=configs) for name in ("a", "b")])
    found = asked_by_kafkas(lambda it: it.create_topics(["a", "b"]), Engine(None, {p.CreateTopicsRequest: made}))
    plain = {"read_only": False, "is_sensitive": False}
    x, y = {"value": "1", "config_source": "DYNAMIC_TOPIC_CONFIG", **plain}, {"value": "", "config_source": "DEFAULT_CONFIG", **plain}
    assert found.keys() == {"topics"} and [each["configs"] for each in found["topics"]] == [{"x": x, "y": y}] * 2
    synonyms = [of.DescribeConfigsSynonym(name="x", value=value, source=source) for value, source in (("1", 1), ("2", 5))]
    entries = [
        of.DescribeConfigsResourceResult(name="x", value="1", config_source=1, config_type=5, synonyms=synonyms),
        of.DescribeConfigsResourceResult(name="y", config_source=4, read_only=True, config_type=1),
        of.DescribeConfigsResourceResult(name="z", config_source=5, config_type=1),
    ]
    results = [of.DescribeConfigsResult(resource_type=2, resource_name="a", configs=entries)]
    engine = Engine(None, {p.DescribeConfigsRequest: p.DescribeConfigsResponse(results=results)})
    shown_x = {"config_type": "LONG", "documentation": "", **x}
    shown_x["synonyms"] = [
        {"name": "x", "value": "1", "source": "DYNAMIC_TOPIC_CONFIG"},
        {"name": "x", "value": "2", "source": "DEFAULT_CONFIG"},
    ]
    every = {"modified": "x", "dynamic": "xz", "all": "xyz", "default": "yz", "static": "y"}
    for chosen, names in every.items():
        found = asked_by_kafkas(lambda it, chosen=chosen: it.describe_configs([NAMED("topic", "a")], config_filter=chosen), engine)
        assert (chosen, "".join(found["topic"]["a"])) == (chosen, names)
        assert found["topic"]["a"].get("x", shown_x) == shown_x


def test_which_settings_a_filter_leaves_out() -> None:
    theirs: Any = importlib.import_module("kafka.admin")
    for kind in theirs.ConfigFilterType:
        skipped = [source.name for source in theirs.ConfigSourceType if kind.should_skip(source)]
        assert [each.name for each in k.ConfigSourceType if k.ConfigFilterType[kind.name].should_skip(each)] == skipped


def test_partitions_whose_records_were_not_deleted_are_an_error_of_one_or_of_several() -> None:
    refused = errors.TopicAuthorization("no")
    with pytest.raises(of_kafka.TopicAuthorizationFailedError):
        asked_by_kafkas(lambda it: it.delete_records(TWO), Engine(Results({A: 2}, {B: refused})))
    with pytest.raises(of_kafka.BrokerResponseError, match=r"no.*; .*no"):
        asked_by_kafkas(lambda it: it.delete_records(TWO), Engine(Results({}, {A: refused, B: refused})))
    found = asked_by_kafkas(lambda it: it.delete_records(TWO), Engine(Results(TWO)))
    shown_two = {tp: {"partition_index": tp.partition, "low_watermark": low, "error_code": 0} for tp, low in TWO.items()}
    assert found == shown_two


def shown(found: Any) -> Any:
    """Objects as their attributes, enumerations as their names."""
    if isinstance(found, list):
        return [shown(each) for each in found]
    if isinstance(found, Enum):
        return found.name
    if isinstance(found, c.TopicPartition):
        return found.topic, found.partition, found.offset, found.metadata, found.leader_epoch, found.error and found.error.name()
    return {name: shown(each) for name, each in vars(found).items()} if hasattr(found, "__dict__") else found


def given(call: Any, answer: Any) -> Any:
    """The outcome of a call, or of each of its items: what is shown, or the name of the error."""

    def outcome(future: Any) -> Any:
        error = future.exception(0)
        return shown(future.result(0)) if error is None else error.args[0].name()

    found = made_by_confluents(call, Engine(answer))
    return [outcome(each) for each in found.values()] if isinstance(found, dict) else outcome(found)


def test_what_confluents_names_make_of_answers() -> None:
    refused, node = errors.GroupAuthorization("no"), Node(3, "a", 9, "r")
    member = MemberDescription("m", "i", "c", "/h", [A, B], [B])
    group = GroupDescription("g", "consumer", "Stable", "", "range", [member, member._replace(target_partitions=None)], node, ["read"])
    shown_node = {"id": 3, "id_string": "3", "host": "a", "port": 9, "rack": "r"}
    at = [("t", 0, -1001, None, None, None), ("u", 1, -1001, None, None, None)]
    who = {"member_id": "m", "client_id": "c", "host": "/h", "group_instance_id": "i", "assignment": {"topic_partitions": at}}
    described, failed = given(lambda it: it.describe_consumer_groups(["g", "h"]), Results({"g": group}, {"h": refused}))
    assert failed == "GROUP_AUTHORIZATION_FAILED"
    assert described == {
        "group_id": "g",
        "is_simple_consumer_group": True,
        "members": [{**who, "target_assignment": {"topic_partitions": at[1:]}}, {**who, "target_assignment": None}],
        "authorized_operations": ["READ"],
        "partition_assignor": "range",
        "state": "STABLE",
        "type": "CONSUMER",
        "coordinator": shown_node,
    }
    offset = SimpleNamespace(offset=5, timestamp_ms=6, leader_epoch=7)
    latest = {FIRST: d.OffsetSpec.latest(), SECOND: d.OffsetSpec.latest()}
    assert given(lambda it: it.list_offsets(latest), Results({A: offset}, {B: refused})) == [
        {"offset": 5, "timestamp": 6, "leader_epoch": 7},
        "GROUP_AUTHORIZATION_FAILED",
    ]
    assert given(lambda it: it.delete_records([FIRST, SECOND]), Results({A: 2}, {B: refused})) == [
        {"low_watermark": 2},
        "GROUP_AUTHORIZATION_FAILED",
    ]
    assert given(lambda it: it.delete_consumer_groups(["g", "h"]), Results({"g": None}, {"h": refused})) == [
        None,
        "GROUP_AUTHORIZATION_FAILED",
    ]
    (committed,) = given(lambda it: it.alter_consumer_group_offsets([COMMITS]), Results({A: None}, {B: refused}))
    assert committed == {
        "group_id": "g",
        "topic_partitions": [("t", 0, 2, None, None, None), ("u", 1, 3, None, 4, "GROUP_AUTHORIZATION_FAILED")],
    }
    cluster = SimpleNamespace(nodes=[node], controller=None, cluster_id="c", authorized_operations=None)
    assert given(lambda it: it.describe_cluster(), cluster) == {
        "cluster_id": "c",
        "controller": None,
        "nodes": [shown_node],
        "authorized_operations": None,
    }


class Listing(list[Any]):
    """Groups, and why brokers have listed none."""

    def __init__(self, groups: list[Any], *failed: errors.KafkaError) -> None:
        super().__init__(groups)
        self.errors = dict(enumerate(failed))

    def check(self) -> None:
        raise self.errors[0]


def test_groups_of_consumers_are_listed_with_the_errors_of_brokers() -> None:
    refused, late = errors.GroupAuthorization("no"), errors.KafkaTimeoutError("late")
    of_consumers = [GroupListing("g", "consumer", "Stable", "consumer"), GroupListing("s", "", "Odd", "odd")]
    listing = [*of_consumers, GroupListing("k", "connect", "Empty", "classic")]
    valid = [
        {"group_id": "g", "is_simple_consumer_group": False, "state": "STABLE", "type": "CONSUMER"},
        {"group_id": "s", "is_simple_consumer_group": True, "state": "UNKNOWN", "type": "UNKNOWN"},
    ]
    for failed, names in (((), []), ((late, refused), ["_TIMED_OUT", "GROUP_AUTHORIZATION_FAILED"])):
        found = made_by_confluents(lambda it: it.list_consumer_groups(), Engine(Listing(listing, *failed))).result(0)
        assert shown(found.valid) == valid
        assert [each.args[0].name() for each in found.errors] == names
    assert given(lambda it: it.list_consumer_groups(), Listing([], late, late)) == "_TIMED_OUT"


def test_offsets_of_a_group_are_asked_for_without_and_committed_with_a_number() -> None:
    def with_offsets(*offsets: int) -> list[Any]:
        return [c.ConsumerGroupTopicPartitions("g", [c.TopicPartition("t", number, at) for number, at in enumerate(offsets)])]

    with d.AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        for call, offsets, text in (
            (admin.alter_consumer_group_offsets, (0, -1), "must not have negative value for 'offset'"),
            (admin.list_consumer_group_offsets, (-1001, 0), "must not have 'offset' value"),
        ):
            with pytest.raises(ValueError, match=text):
                call(with_offsets(*offsets))
    (committed,) = given(lambda it: it.alter_consumer_group_offsets(with_offsets(0)), Results({("t", 0): None}))
    assert committed["topic_partitions"] == [("t", 0, 0, None, None, None)]
