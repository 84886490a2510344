"""What programs do with kafka-python's admin client."""

from __future__ import annotations

from typing import Any

from tests.compat.both_packages import case
from tests.compat.kafka_face import NOW_MS, Face


def _shape(value: Any) -> Any:
    """Dicts by their keys, lists by their first item: what an answer looks like."""
    if isinstance(value, dict):
        return {str(key): _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return type(value).__name__


@case
def topics_come_and_go(k: Face) -> Any:
    admin = k.admin()
    name = k.topic + "-made"
    configs = {"retention.ms": "1000", "max.message.bytes": "6000"}
    made = admin.create_topics({name: {"num_partitions": 3, "replication_factor": 1, "configs": configs}})
    kept = admin.describe_configs([k.admin_module.ConfigResource("TOPIC", name)])["topic"][name]
    again = k.raised(lambda: admin.create_topics([name]))
    admin.wait_for_topics([name])
    described = admin.describe_topics([name])[0]
    unknown = admin.describe_topics([name + "-absent"])[0]["error_code"]
    listed = name in admin.list_topics()
    deleted = admin.delete_topics([name])
    return (
        [made["topics"][0][field] for field in ("error_code", "num_partitions", "replication_factor")],
        again,
        sorted((setting, each["value"]) for setting, each in kept.items()),
        sorted(described),
        sorted(described["partitions"][0]),
        [each["partition_index"] for each in described["partitions"]],
        unknown,
        listed,
        deleted["topics"][0]["error_code"],
        k.raised(lambda: admin.delete_topics([name + "-absent"])),
    )


@case
def partitions_are_added(k: Face) -> Any:
    admin = k.admin()
    answer = admin.create_partitions({k.topic: 3})
    return [tuple(each)[:2] == (k.topic, 0) for each in answer.results], k.raised(lambda: admin.create_partitions({k.topic: 1}))


@case
def records_are_deleted(k: Face) -> Any:
    k.fill(5)
    admin = k.admin()
    found = admin.delete_records({k.tp(): 3})
    return found[k.tp()], k.raised(lambda: admin.delete_records({k.tp(): 99})), k.raised(lambda: admin.delete_records({k.tp(9): 0}))


@case
def offsets_by_spec(k: Face) -> Any:
    k.fill(5)
    admin, spec = k.admin(), k.package.OffsetSpec
    found = [admin.list_partition_offsets({k.tp(): each})[k.tp()] for each in (spec.EARLIEST, spec.LATEST, spec.MAX_TIMESTAMP, NOW_MS + 1)]
    return [(each.offset, each.timestamp) for each in found]


@case
def configs(k: Face) -> Any:
    admin, module = k.admin(), k.admin_module
    resource = module.ConfigResource
    everything = admin.describe_configs([resource("TOPIC", k.topic)], config_filter="all")["topic"][k.topic]
    altered = admin.alter_configs([resource("TOPIC", k.topic, {"retention.ms": "5000"})])
    shown = [
        sorted(admin.describe_configs([resource(kind, name)], config_filter=each)[kind.lower()][name])
        for each in ("all", "dynamic", "static", "default", "modified")
        for kind, name in (("TOPIC", k.topic), ("BROKER", "1"))
    ]
    modified = admin.describe_configs([resource("TOPIC", k.topic)])
    one = admin.describe_configs([resource("TOPIC", k.topic, ["retention.ms"])], include_synonyms=True)["topic"][k.topic]["retention.ms"]
    reset = admin.reset_configs([resource("TOPIC", k.topic, ["retention.ms"])])
    return (
        shown,
        _shape(everything["retention.ms"]),
        everything["cleanup.policy"]["config_type"],
        list(altered["topic"].values()),
        {name: config["value"] for name, config in modified["topic"][k.topic].items()},
        _shape(one),
        one["config_source"],
        list(reset["topic"].values()),
        admin.describe_configs([resource("TOPIC", k.topic)])["topic"][k.topic],
        k.raised(lambda: admin.alter_configs([resource("TOPIC", k.topic, {"nonsense": "1"})])),
        k.raised(lambda: admin.describe_configs([resource("BROKER", "x")])),
    )


@case
def groups(k: Face) -> Any:
    k.fill(5)
    admin = k.admin()
    consumer = k.consumer(k.topic, group_id=k.group)
    next(consumer)
    listed = [each for each in admin.list_groups() if each["group_id"] == k.group]
    described = admin.describe_groups([k.group])[k.group]
    member = described["members"][0]
    held = admin.delete_groups([k.group])
    consumer.commit()
    consumer.close()
    offsets = admin.list_group_offsets(k.group)[k.group]
    altered = admin.alter_group_offsets(k.group, {k.tp(): k.package.OffsetAndMetadata(2, "n", -1)})
    reset = admin.reset_group_offsets(k.group, {k.tp(): k.package.OffsetSpec.LATEST})
    beyond = admin.reset_group_offsets(k.group, {k.tp(): 99})
    after = admin.list_group_offsets({k.group: [k.tp(), k.tp(1)]})[k.group]
    admin.delete_records({k.tp(): 2})
    specs = (0, 3, k.package.OffsetSpec.EARLIEST, k.package.OffsetSpec.MAX_TIMESTAMP, k.admin_module.OffsetTimestamp(NOW_MS + 3_000))
    places = [list(admin.reset_group_offsets(k.group, {k.tp(): each, k.tp(1): 0}).values()) for each in specs]
    forgotten = admin.delete_group_offsets(k.group, [k.tp()])
    gone = admin.delete_groups([k.group, k.group + "-absent"])
    return (
        [sorted(each) for each in listed],
        [(each["protocol_type"], each["group_state"]) for each in listed],
        sorted(described),
        described["error"],
        member["member_metadata"]["topics"] == [k.topic],
        member["member_assignment"]["assigned_partitions"][0]["partitions"],
        list(held.values()),
        [at.offset for tp, at in offsets.items() if tp == k.tp()],
        [kind.__name__ for kind in altered.values()],
        [(each["error"].__name__, each["offset"]) for each in (*reset.values(), *beyond.values())],
        sorted(tuple(at)[:2] for at in after.values()),
        [sorted((each["error"].__name__, each["offset"]) for each in found) for found in places],
        [kind.__name__ for kind in forgotten.values()],
        sorted(gone.values()),
    )


@case
def the_cluster(k: Face) -> Any:
    admin = k.admin()
    found = admin.describe_cluster()
    dirs = admin.describe_log_dirs()
    return _shape(found), [each["broker"] for each in dirs], _shape(dirs[0]["log_dirs"][0]["topics"][0]["partitions"][0])


@case
def reassignments_and_elections(k: Face) -> Any:
    admin = k.admin()
    brokers = [each["broker_id"] for each in admin.describe_cluster()["brokers"]]
    moved = admin.alter_partition_reassignments({k.tp(): brokers[:1]})
    elected = admin.elect_leaders(0, {k.topic: [0, 1]})
    codes = [tuple(each)[:2] for each in elected.replica_election_results[0][1]]
    return (
        list(moved.values()),
        admin.list_partition_reassignments(),
        codes,
        k.raised(lambda: admin.alter_partition_reassignments({k.tp(): []})),
        [kind.__name__ for kind in admin.alter_partition_reassignments({k.tp(): None, k.tp(9): [1], k.tp(1): [77]}).values()],
    )


@case
def transactions_of_others(k: Face) -> Any:
    k.fill(1)
    producer = k.producer(transactional_id=k.topic, transaction_timeout_ms=50_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(k.topic, b"v", partition=0).get(60)
    admin = k.admin()
    listed = [each for found in admin.list_transactions().values() for each in found if each.transactional_id == k.topic]
    pid = listed[0].producer_id
    filters: list[dict[str, Any]] = [{"state_filters": ["Ongoing"]}, {"state_filters": ["Empty"]}, {"producer_id_filters": [pid]}]
    filters += [{"producer_id_filters": [pid + 1]}, {"transactional_id_pattern": k.topic}, {"transactional_id_pattern": "x"}]
    filters += [{"duration_filter_ms": 0}, {"duration_filter_ms": 10**9}, {"broker_ids": [1]}]
    filtered = [any(each.transactional_id == k.topic for of in admin.list_transactions(**one).values() for each in of) for one in filters]
    hanging = [each for each in admin.find_hanging_transactions(max_transaction_timeout_ms=-(10**9)) if each["transactional_id"] == k.topic]
    described = admin.describe_transactions([k.topic])[k.topic]
    producers = admin.describe_producers([k.tp()])[k.tp()].active_producers
    producer.abort_transaction()
    return (
        [each.state.value for each in listed],
        described.state.value,
        {tp.partition for tp in described.topic_partitions},
        described._fields,
        sorted((each.current_transaction_start_offset, each._fields) for each in producers),
        (described.transaction_timeout_ms, described.transaction_start_time_ms > NOW_MS, described.producer_id == pid),
        k.raised(lambda: admin.describe_transactions([k.topic + "-absent"])),
        admin.find_hanging_transactions(),
        filtered,
        [(sorted(each), each["producer_id"] == pid, str(each["state"])) for each in hanging],
    )


@case
def access_lists(k: Face) -> Any:
    admin, m = k.admin(), k.admin_module
    any_kind, literal = m.ResourceType.ANY, m.ACLResourcePatternType.LITERAL

    def acl(name: str, operation: str = "READ", permission: str = "ALLOW", who: str = "User:a", host: str = "*", **more: Any) -> Any:
        pattern = m.ResourcePattern(m.ResourceType[more.pop("kind", "TOPIC")], name, **more)
        return m.ACL(who, host, m.ACLOperation[operation], m.ACLPermissionType[permission], pattern)

    def shown(acls: Any) -> Any:
        rows = [(each.principal, each.host, each.operation.name, each.permission_type.name, each.resource_pattern) for each in acls]
        return sorted((*row, of.resource_type.name, of.resource_name, of.pattern_type.name) for *row, of in rows)

    def matching(name: Any, kind: Any = any_kind, pattern: str = "ANY", who: Any = None) -> Any:
        where = m.ResourcePatternFilter(kind, name, m.ACLResourcePatternType[pattern])
        return m.ACLFilter(who, None, m.ACLOperation.ANY, m.ACLPermissionType.ANY, where)

    prefixed, any_access = m.ACLResourcePatternType.PREFIXED, ("a", "b", m.ACLOperation.ANY, m.ACLPermissionType.ANY)
    where = m.ResourcePatternFilter(any_kind, "t", literal)
    readers = ("a", "b", m.ACLOperation.READ, m.ACLPermissionType.ALLOW)
    wanted = [acl(k.topic), acl(k.topic, "WRITE", "DENY", "User:b", "10.0.0.1", pattern_type=prefixed), acl(f"{k.topic}-g", kind="GROUP")]
    made = admin.create_acls([*wanted, acl(k.topic, who="nobody")])
    described = admin.describe_acls(matching(None, who="User:a"))
    deleted = admin.delete_acls([matching(k.topic), matching("absent"), matching(f"{k.topic}-g")])
    found = [shown(made["succeeded"]), [each.__name__ for each in made["failed"]], shown(described[0]), described[1].__name__]
    found += [[(shown(acls), kind.__name__) for _, acls, kind in deleted], shown(admin.describe_acls(matching(None, who="User:a"))[0])]
    return (
        found,
        [acl("t") == acl("t"), acl("t") == acl("u"), matching("t") == matching("t"), len({acl("t"), acl("t")})],
        [
            k.raised(call)
            for call in (
                lambda: admin.create_acls([matching("t")]), lambda: admin.create_acls([acl("t"), 1]), lambda: admin.delete_acls([1]),
                lambda: admin.delete_acls([matching("t"), 1]), lambda: acl("t", "ANY"), lambda: acl("t", permission="ANY"),
                lambda: acl("t", kind="ANY"), lambda: acl("t", pattern_type=m.ACLResourcePatternType.MATCH),
                lambda: acl("t", pattern_type=m.ACLResourcePatternType.ANY), lambda: matching("t", kind=2) and None,
                lambda: m.ResourcePatternFilter(any_kind, "t", 3), lambda: m.ACLFilter("a", "b", 1, any_access[3], where),
                lambda: m.ACLFilter("a", "b", m.ACLOperation.ANY, 1, where), lambda: m.ACLFilter(*any_access, 1),
                lambda: m.ACL(*readers, where) and None,
            )
        ],
    )  # fmt: skip


@case
def users(k: Face) -> Any:
    admin, m = k.admin(), k.admin_module
    first, second, third = (f"{k.topic}-{each}" for each in "abc")
    upsert, delete = m.UserScramCredentialUpsertion, m.UserScramCredentialDeletion
    made = admin.alter_user_scram_credentials(
        [
            upsert(first, "SCRAM-SHA-256", "secret"),
            upsert(third, m.ScramMechanism.SCRAM_SHA_512, b"secret", iterations=5000),
            upsert(second, "scram-sha-512", "secret", 5000),
            delete(f"{k.topic}-absent", "SCRAM-SHA-256"),
        ]
    )
    seen = [admin.describe_user_scram_credentials([first, second, third, f"{k.topic}-absent"])]
    admin.alter_user_scram_credentials([delete(first, "SCRAM-SHA-256"), upsert(second, "SCRAM-SHA-256", "secret")])
    seen += [admin.describe_user_scram_credentials([first, second]), second in admin.describe_user_scram_credentials()]
    infos = [
        (name, each["error"] is None, sorted((info["mechanism"].name, info["iterations"]) for info in each["credential_infos"]))
        for found in seen[:2]
        for name, each in sorted(found.items())
    ]
    return (
        sorted((name, error is None) for name, error in made.items()),
        infos,
        seen[2],
        repr(upsert("u", "SCRAM-SHA-256", "p")).split("(")[0],
        [k.raised(call) for call in (lambda: upsert("u", 0, "p") and None, lambda: admin.alter_user_scram_credentials([1]))],
    )


@case
def members_are_removed(k: Face) -> Any:
    k.fill(1)
    admin, member = k.admin(), k.admin_module.MemberToRemove
    consumer = k.consumer(k.topic, group_id=k.group, group_instance_id="here", session_timeout_ms=6_000)
    next(consumer)
    removed = admin.remove_group_members(k.group, [member(group_instance_id="absent"), member(group_instance_id="here", reason="why")])
    return (
        sorted((name, kind.__name__) for name, kind in removed.items()),
        admin.describe_groups([k.group])[k.group]["members"],
        admin.remove_group_members(k.group, []),
        [member("a") == member("a"), member("a") == member("b"), member("a") == member(None, "a")],
    )


@case
def features_and_the_quorum(k: Face) -> Any:
    admin, m = k.admin(), k.admin_module
    found, by_controller = admin.describe_features(), admin.describe_features(send_request_to_controller=True)
    name, levels = next((name, each["finalized"]) for name, each in sorted(found.items()) if "finalized" in each)
    quorum = admin.describe_metadata_quorum()
    (partition,) = quorum["topics"][0]["partitions"]
    kind = m.UpdateFeatureType
    return (
        {each: sorted(found[each]) for each in found},
        found == by_controller,
        {each: (of["supported"], of.get("finalized")) for each, of in found.items() if "supported" in of},
        found[name]["finalized_epoch"] is not None and found[name]["finalized_epoch"] >= 0,
        admin.update_features({name: levels[1]}, validate_only=True),
        k.raised(lambda: admin.update_features({name: (kind.UPGRADE, 99)}, validate_only=True)),
        k.raised(lambda: admin.update_features([name])),
        sorted(quorum),
        [quorum["topics"][0]["topic_name"], partition["error"], sorted(partition), len(partition["current_voters"])],
    )


@case
def replicas_change_their_directory(k: Face) -> Any:
    admin = k.admin()
    (log_dirs,) = admin.describe_log_dirs({k.topic: [0, 1]})
    broker, path = log_dirs["broker"], log_dirs["log_dirs"][0]["log_dir"]
    places = {(k.topic, 0, broker): path, (k.topic + "-absent", 0, broker): path, (k.topic, 1, broker): "/nowhere"}
    return sorted((*map(str, replica[:2]), kind.__name__) for replica, kind in admin.alter_replica_log_dirs(places).items())


@case
def pages_of_partitions(k: Face) -> Any:
    admin = k.admin()
    first = admin.describe_topic_partitions([k.topic], response_partition_limit=1)
    second = admin.describe_topic_partitions([k.topic], cursor=first["next_cursor"])
    pages = [[each["partition_index"] for each in found["topics"][0]["partitions"]] for found in (first, second)]
    resources = admin.list_config_resources(["TOPIC", "BROKER"])
    return sorted(first), first["next_cursor"], pages, second["next_cursor"], k.topic in resources["topic"], sorted(resources)


@case
def forms_of_arguments(k: Face) -> Any:
    """What is taken in more than one form, and what is refused."""
    admin, m, name = k.admin(), k.admin_module, k.topic + "-form"
    made = admin.create_topics([m.NewTopic(name, 2, 1, topic_configs={"retention.ms": "1000"}), m.NewTopic(name + "2")], validate_only=True)
    plain = [admin.create_topics(form, validate_only=True)["topics"] for form in ([name, f"{name}2"], {name: {}, f"{name}2": {}})]
    checked = admin.alter_configs([m.ConfigResource("TOPIC", k.topic, {"retention.ms": "7000"})], validate_only=True)
    placed = admin.create_topics({name: {"assignments": {0: [1], 1: [1]}}}, wait_for_metadata=True)["topics"][0]["num_partitions"]
    admin.create_partitions({name: m.NewPartitions(3, [[1]]), k.topic: {"count": 4, "assignments": [[1], [1]]}})
    spec = k.package.OffsetSpec
    refused = (
        lambda: admin.create_topics([]), lambda: admin.create_topics([name, 1]),
        lambda: admin.create_topics([name + "3"], validate_only=True, wait_for_metadata=True),
        lambda: admin.list_partition_offsets({k.tp(): "x"}), lambda: admin.reset_group_offsets(k.group, {k.tp(): "x"}),
        lambda: admin.alter_configs([m.ConfigResource("TOPIC", k.topic, ["retention.ms"])]), lambda: admin.list_group_offsets([]),
        lambda: admin.delete_records({k.tp(): 9, k.tp(1): 9}), lambda: admin.wait_for_topics([name + "-absent"], timeout_ms=50),
    )  # fmt: skip
    return (
        [(each["name"], each["num_partitions"], each["replication_factor"]) for each in made["topics"]],
        [(each["name"], each["num_partitions"], each["replication_factor"], type(each["configs"])) for topics in plain for each in topics],
        (checked, admin.describe_configs([m.ConfigResource("TOPIC", k.topic)])["topic"][k.topic]),
        placed,
        sorted(len(each["partitions"]) for each in admin.describe_topics([name, k.topic])),
        admin.list_partition_reassignments({k.topic: [0, 1]}),
        admin.reset_group_offsets(k.group, {}),
        [tuple(each)[:2] for each in admin.list_partition_offsets({k.tp(): spec.LATEST, k.tp(1): spec.EARLIEST}).values()],
        [k.raised(call) for call in refused],
    )


@case
def settings_that_are_set_as_a_whole(k: Face) -> Any:
    admin, module = k.admin(), k.admin_module

    def resource(configs: Any = None) -> Any:
        return module.ConfigResource("TOPIC", k.topic, configs)

    first = admin.alter_configs([resource({"retention.ms": "5000"})])
    second = admin.alter_configs([resource({"max.message.bytes": ("SET", "6000")})], incremental=False)
    refused = [
        k.raised(lambda op=op: admin.alter_configs([resource({"cleanup.policy": (op, "x")})], incremental=False))
        for op in ("APPEND", "DELETE")
    ]
    found = admin.describe_configs([resource(["retention.ms", "max.message.bytes"])])["topic"][k.topic]
    return first, second, refused, {name: found[name]["value"] for name in sorted(found)}


@case
def two_of_which_one_fails(k: Face) -> Any:
    """What is raised, or in the answer; the other one is done all the same."""
    k.fill(3)
    admin, other, absent = k.admin(), f"{k.topic}-other", f"{k.topic}-absent"
    nowhere, at = k.package.TopicPartition(absent, 0), k.package.OffsetAndMetadata
    found: list[Any] = [k.raised(lambda: admin.create_topics([k.topic, other]))]
    admin.wait_for_topics([other])
    made = admin.create_topics([k.topic, f"{other}-2"], raise_errors=False)["topics"]
    found.append(sorted((each["name"], each["error_code"]) for each in made))
    found.append([k.raised(lambda: admin.create_partitions({absent: 3, other: 3})), k.raised(lambda: admin.create_partitions({other: 2}))])
    found.append(sorted(each["error_code"] for each in admin.describe_topics([absent, other])))
    for offsets in ({k.tp(): at(2, "", -1), nowhere: at(1, "", -1)}, {k.tp(): at(1, "", -1)}):
        found.append(sorted((tp.partition, kind.__name__) for tp, kind in admin.alter_group_offsets(k.group, offsets).items()))
    described = admin.describe_groups([k.group, f"{k.group}-absent"])
    found.append(sorted((name, each["group_state"], each["error"]) for name, each in described.items()))
    spec = k.package.OffsetSpec.LATEST
    pairs = admin.describe_configs(
        [k.admin_module.ConfigResource("TOPIC", name, ["retention.ms"]) for name in (k.topic, other)], config_filter="all"
    )
    found.append([sorted(of) for _, of in sorted(pairs["topic"].items())])
    found.append(sorted(low["low_watermark"] for low in admin.delete_records({k.tp(): 2, k.tp(1): 0}).values()))
    found.append(k.raised(lambda: admin.list_partition_offsets({k.tp(): spec, nowhere: spec})))
    found.append(k.raised(lambda: admin.delete_topics([absent, other])))
    return found, other in admin.list_topics()
