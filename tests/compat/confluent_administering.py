"""What programs do with confluent-kafka's admin client."""

from __future__ import annotations

import warnings
from typing import Any

from tests.compat.both_packages import case
from tests.compat.confluent_face import NOW_MS, WAIT_S, Face

WEEK_MS = "604800000"

# ---- topics --------------------------------------------------------------------------------------------------------------------------


@case
def topics_are_created(f: Face) -> Any:
    a, more = f.admin(), [f"{f.topic}-{nth}" for nth in range(4)]
    made = a.create_topics([
        f.a.NewTopic(more[0], 3, 1, config={"retention.ms": "1000"}),
        f.a.NewTopic(more[1]),
        f.a.NewTopic(more[2], 2, replica_assignment=[[1], [1]]),
        f.a.NewTopic(more[3], 1, 9),
        f.a.NewTopic(f.topic, 1, 1),
        f.a.NewTopic("no/name", 1, 1),
    ])  # fmt: skip
    return f.results(made), f.counted(a, {more[0]: 3, more[1]: 1, more[2]: 2, more[3]: 0})


@case
def topics_are_only_checked(f: Face) -> Any:
    a, name = f.admin(), f"{f.topic}-checked"
    made = f.results(a.create_topics([f.a.NewTopic(name, 1, 1)], validate_only=True, request_timeout=WAIT_S, operation_timeout=5))
    grown = f.results(a.create_partitions([f.a.NewPartitions(f.topic, 5)], validate_only=True))
    return made, grown, f.counted(a, {name: 0, f.topic: 2})


@case
def assignments_that_do_not_fit(f: Face) -> Any:
    a = f.admin()
    topics = [
        f.a.NewTopic("x", 2, replica_assignment=[[1]]),
        f.a.NewTopic("x", replica_assignment=[[1]]),
        f.a.NewTopic("x", 1, 1, replica_assignment=[[1]]),
        f.a.NewTopic("x", 1, replica_assignment=[1]),
    ]
    return [f.given(lambda t=t: f.results(a.create_topics([t], validate_only=True))) for t in topics]


@case
def partitions_are_added(f: Face) -> Any:
    a = f.admin()
    first = f.results(a.create_partitions([f.a.NewPartitions(f.topic, 4), f.a.NewPartitions(f"{f.topic}-none", 4)]))
    fewer = f.results(a.create_partitions([f.a.NewPartitions(f.topic, 1)]))
    placed = f.results(a.create_partitions([f.a.NewPartitions(f.topic, 5, [[1]])]))
    wrong = f.results(a.create_partitions([f.a.NewPartitions(f.topic, 7, [[1]])]))
    return first, fewer, placed, wrong, f.counted(a, {f.topic: 5})


@case
def topics_are_deleted(f: Face) -> Any:
    a = f.admin()
    found = f.results(a.delete_topics([f.topic, f"{f.topic}-none"], operation_timeout=WAIT_S))
    return found, f.counted(a, {f.topic: 0})


@case
def topics_are_described(f: Face) -> Any:
    a, topics = f.admin(), f.k.TopicCollection([f.topic, f"{f.topic}-none", "no/name"])
    described = a.describe_topics(topics)
    leader = described[f.topic].result(WAIT_S).partitions[0].leader
    with_operations = a.describe_topics(topics, include_authorized_operations=True)
    return f.results(described), f.results(with_operations), f.given(lambda: a.describe_topics(f.k.TopicCollection([]))), str(leader)[:4]


@case
def topics_are_listed(f: Face) -> Any:
    a = f.admin()
    f.counted(a, {f.topic: 2})
    everything, of_none = a.list_topics(timeout=WAIT_S), a.list_topics(f"{f.topic}-none", WAIT_S)
    return f.shown(everything.topics[f.topic]), f.shown(everything.brokers), f.shown(of_none.topics), everything.controller_id


@case
def the_cluster(f: Face) -> Any:
    a = f.admin()
    plain, more = a.describe_cluster(), a.describe_cluster(include_authorized_operations=True, request_timeout=WAIT_S)
    same = a.cluster_id(timeout=WAIT_S) == plain.result(WAIT_S).cluster_id == a.list_topics(timeout=WAIT_S).cluster_id
    return f.result(plain), f.result(more), same, plain.done(), plain.cancel()


# ---- settings ------------------------------------------------------------------------------------------------------------------------


@case
def settings_are_described(f: Face) -> Any:
    a = f.admin()
    topic = a.describe_configs([f.resource(), f.resource(f"{f.topic}-none")], request_timeout=WAIT_S)
    entries = topic[f.resource()].result(WAIT_S)
    broker = next(iter(a.describe_configs([f.a.ConfigResource(f.a.ResourceType.BROKER, "1")]).values())).result(WAIT_S)
    group = next(iter(a.describe_configs([f.a.ConfigResource("group", "g")], broker=1).values())).result(WAIT_S)
    shown = [f.shown(entries[name]) for name in ("retention.ms", "cleanup.policy", "segment.bytes")]
    return (
        sorted(entries), shown, f.result(topic[f.resource(f"{f.topic}-none")]), len(broker) > 200, f.shown(broker["log.retention.hours"]),
        sorted(group), str(entries["retention.ms"]), repr(entries["cleanup.policy"]),
        f.a.ConfigSource(entries["retention.ms"].source) is f.a.ConfigSource.DEFAULT_CONFIG,
    )  # fmt: skip


@case
def what_has_no_settings(f: Face) -> Any:
    return f.results(f.admin().describe_configs([f.a.ConfigResource("broker", "x")]))


def changed(f: Face, operation: str, name: str, value: str | None) -> Any:
    return f.a.ConfigEntry(name, value, incremental_operation=f.a.AlterConfigOpType[operation])


def of_topic(f: Face, a: Any, **wanted: str) -> dict[str, Any]:
    """Settings of the topic, once they have these values."""

    def look() -> dict[str, Any]:
        entries = a.describe_configs([f.resource()])[f.resource()].result(WAIT_S)
        return {name: entries[name.replace("_", ".")] for name in wanted}

    found = f.once(look, lambda entries: {name: entry.value for name, entry in entries.items()} == wanted)
    return {name: (entry.value, entry.is_default, entry.source) for name, entry in found.items()}


@case
def settings_are_changed_one_by_one(f: Face) -> Any:
    a = f.admin()
    resource = f.resource(incremental_configs=[changed(f, "SET", "retention.ms", "5000"), changed(f, "SET", "max.message.bytes", "6000")])
    resource.add_incremental_config(changed(f, "APPEND", "cleanup.policy", "compact"))
    first = (
        f.results(a.incremental_alter_configs([resource])),
        of_topic(f, a, retention_ms="5000", cleanup_policy="delete,compact", max_message_bytes="6000"),
    )
    less = [changed(f, "DELETE", "retention.ms", None), changed(f, "SUBTRACT", "cleanup.policy", "delete")]
    second = (
        f.results(a.incremental_alter_configs([f.resource(incremental_configs=less)], broker=1)),
        of_topic(f, a, retention_ms=WEEK_MS, cleanup_policy="compact", max_message_bytes="6000"),
    )
    bad = [
        f.resource(incremental_configs=[changed(f, "SET", "no.such", "1")]),
        f.resource(f"{f.topic}-none", incremental_configs=[changed(f, "SET", "retention.ms", "1")]),
    ]
    checked = f.resource(incremental_configs=[changed(f, "SET", "retention.ms", "77")])
    only = f.results(a.incremental_alter_configs([checked], validate_only=True)), of_topic(f, a, retention_ms=WEEK_MS)
    twice = [changed(f, "SET", "retention.ms", "1"), changed(f, "SET", "retention.ms", "2")]
    return first, second, f.results(a.incremental_alter_configs(bad)), only, f.results(
        a.incremental_alter_configs([f.resource(incremental_configs=twice)])
    )  # fmt: skip


@case
def all_settings_are_replaced(f: Face) -> Any:
    a = f.admin()
    a.incremental_alter_configs([f.resource(incremental_configs=[changed(f, "SET", "retention.ms", "5000")])])[f.resource()].result(WAIT_S)
    of_topic(f, a, retention_ms="5000")
    resource = f.resource(set_config={"max.message.bytes": "6000"})
    resource.set_config("max.message.bytes", "1", overwrite=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replaced = f.results(a.alter_configs([resource])), of_topic(f, a, retention_ms=WEEK_MS, max_message_bytes="6000")
        checked = (
            f.results(a.alter_configs([f.resource(set_config={"retention.ms": "7"})], validate_only=True)),
            of_topic(f, a, retention_ms=WEEK_MS, max_message_bytes="6000"),
        )
        bad = f.results(a.alter_configs([f.resource(set_config={"no.such": "7"}), f.resource(f"{f.topic}-none")]))
        cleared = f.results(a.alter_configs([f.resource()])), of_topic(f, a, retention_ms=WEEK_MS, max_message_bytes="1048588")
    return replaced, checked, bad, cleared, {each.category.__name__ for each in caught}, len(resource)


# ---- offsets and records -------------------------------------------------------------------------------------------------------------


@case
def offsets_are_listed(f: Face) -> Any:
    f.fill(5)
    a, spec = f.admin(), f.a.OffsetSpec
    places = a.list_offsets({f.tp(0): spec.latest(), f.tp(1): spec.earliest(), f.k.TopicPartition(f"{f.topic}-none", 0): spec.latest()})
    latest = a.list_offsets({f.tp(0): spec.max_timestamp(), f.tp(1): spec.max_timestamp()})
    times = a.list_offsets({f.tp(0): spec.for_timestamp(NOW_MS + 2), f.tp(1): spec(1)}, isolation_level=f.k.IsolationLevel.READ_COMMITTED)
    return f.results(places), f.results(latest), f.results(times), f.tp(0) in places, spec(-1) is spec.latest(), a.list_offsets({})


@case
def records_are_deleted(f: Face) -> Any:
    f.fill(5)
    a = f.admin()
    some = f.results(a.delete_records([f.tp(0, 2), f.tp(1, 7), f.k.TopicPartition(f"{f.topic}-none", 0, 1)], operation_timeout=5))
    return some, f.results(a.delete_records([f.tp(0, f.k.OFFSET_END)])), f.results(a.delete_records([f.tp(0, -5)])), a.delete_records([])


@case
def leaders_are_elected(f: Face) -> Any:
    a, kinds = f.admin(), f.k.ElectionType
    some = a.elect_leaders(kinds.PREFERRED, [f.tp(0), f.k.TopicPartition(f"{f.topic}-none", 0)])
    unclean = a.elect_leaders(kinds.UNCLEAN, [f.tp(0)])
    return f.result(some), f.result(unclean), f.result(a.elect_leaders(kinds.PREFERRED)), f.result(a.elect_leaders(kinds.PREFERRED, []))


# ---- groups --------------------------------------------------------------------------------------------------------------------------


def without_ids(f: Face, futures: Any) -> Any:
    found = {}
    for group, future in futures.items():
        description = f.given(lambda future=future: future.result(WAIT_S))
        for member in getattr(description, "members", ()):
            member.member_id = bool(member.member_id)
        found[group] = f.shown(description)
    return found


@case
def groups_are_described(f: Face) -> Any:
    a, group = f.admin(), f.group()
    member = f.member(**{"client.id": "me", "group.instance.id": "mine"})
    stable = without_ids(f, a.describe_consumer_groups([group, f"{group}-none"]))
    may = a.describe_consumer_groups([group], include_authorized_operations=True)[group].result(WAIT_S).authorized_operations
    member.unsubscribe()
    member.close()
    return stable, f.shown(may)


@case
def groups_of_the_new_protocol(f: Face) -> Any:
    a, group = f.admin(), f.group()
    f.member(**{"group.protocol": "consumer", "group.remote.assignor": "uniform"})
    described = without_ids(f, a.describe_consumer_groups([group], include_authorized_operations=True))
    listed = a.list_consumer_groups(types={f.k.ConsumerGroupType.CONSUMER}).result(WAIT_S).valid
    return described, [f.shown(each) for each in listed if each.group_id == group]


@case
def groups_are_listed(f: Face) -> Any:
    a, group = f.admin(), f.group()
    f.member()
    a.alter_consumer_group_offsets([f.k.ConsumerGroupTopicPartitions(f"{group}-simple", [f.tp(0, 1)])])[f"{group}-simple"].result(WAIT_S)

    def of_case(**options: Any) -> Any:
        found = a.list_consumer_groups(**options).result(WAIT_S)
        return sorted(str(f.shown(each)) for each in found.valid if each.group_id.startswith(group)), found.errors

    states, kinds = f.k.ConsumerGroupState, f.k.ConsumerGroupType
    return (
        of_case(request_timeout=WAIT_S), of_case(states={states.EMPTY}),
        of_case(states={states.STABLE, states.EMPTY}, types={kinds.CLASSIC}),
        of_case(types={kinds.CONSUMER}), of_case(states=None, types=set()),
    )  # fmt: skip


@case
def groups_with_the_bytes_of_their_members(f: Face) -> Any:
    a, group = f.admin(), f.group()
    f.member()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = a.list_groups(group, WAIT_S)
        nobody = a.list_groups(f"{group}-none", timeout=WAIT_S)
    (member,) = found.members
    return (
        found.id, found.state, found.protocol_type, found.protocol, found.error, found.broker.id, member.client_id, member.client_host,
        f.topic.encode() in member.metadata, f.topic.encode() in member.assignment, nobody, repr(found), str(found),
    )  # fmt: skip


@case
def offsets_of_a_group(f: Face) -> Any:
    a, group, request = f.admin(), f.group(), f.k.ConsumerGroupTopicPartitions
    places = [f.tp(0, 5), f.k.TopicPartition(f.topic, 1, 6, "note", 0), f.k.TopicPartition(f"{f.topic}-none", 0, 3)]
    altered = f.results(a.alter_consumer_group_offsets([request(group, places)], request_timeout=WAIT_S))
    listed = a.list_consumer_group_offsets([request(group)], require_stable=True)
    notes = [each.metadata for each in listed[group].result(WAIT_S).topic_partitions]
    some = f.results(a.list_consumer_group_offsets([request(group, [f.tp(1), f.k.TopicPartition(f.topic, 9)])]))
    none = f.results(a.list_consumer_group_offsets([request(f"{group}-none")]))
    return altered, f.results(listed), notes, some, none


@case
def groups_are_deleted(f: Face) -> Any:
    a, group = f.admin(), f.group()
    a.alter_consumer_group_offsets([f.k.ConsumerGroupTopicPartitions(group, [f.tp(0, 1)])])[group].result(WAIT_S)
    return f.results(a.delete_consumer_groups([group, f"{group}-none"])), without_ids(f, a.describe_consumer_groups([group]))


# ---- access --------------------------------------------------------------------------------------------------------------------------


@case
def access_lists(f: Face) -> Any:
    """A cluster without authorizer refuses; then there is nothing to describe."""
    a, binding, kind = f.admin(), f.a.AclBinding, f.a.AclBindingFilter
    who = f"User:{f.topic}"
    first = binding("topic", f.topic, "literal", who, "*", "read", "allow")
    second = binding(f.a.ResourceType.BROKER, "kafka-cluster", f.a.ResourcePatternType.LITERAL, who, "1.2.3.4", "ALTER", 2)
    third = binding("group", "g", "prefixed", who, "*", f.a.AclOperation.ALL, "allow")
    made = f.results(a.create_acls([first, second, third, binding("topic", "t", "literal", "nobody", "*", "read", "allow")]))
    mine = kind("any", None, "any", who, None, "any", "any")
    others = kind("topic", "x", "match", who, "*", "write", "deny")
    if made[repr(first)] is not None:
        return made, f.results(a.delete_acls([mine, others]))
    found = sorted(map(repr, f.once(lambda: a.describe_acls(mine, request_timeout=WAIT_S).result(WAIT_S), lambda found: len(found) == 3)))
    matching = f.result(a.describe_acls(kind("topic", f.topic, "match", who, None, "any", "any")))
    deleted = a.delete_acls([mine, others])
    gone = sorted(map(repr, deleted[mine].result(WAIT_S))), f.result(deleted[others])
    return made, found, matching, gone, f.once(lambda: f.result(a.describe_acls(mine)), lambda found: not found)


@case
def users(f: Face) -> Any:
    a, one, two = f.admin(), f"a-{f.topic}", f"b-{f.topic}"
    mechanism, info = f.a.ScramMechanism, f.a.ScramCredentialInfo
    made = a.alter_user_scram_credentials([
        f.a.UserScramCredentialUpsertion(one, info(mechanism.SCRAM_SHA_256, 5000), b"secret"),
        f.a.UserScramCredentialUpsertion(two, info(mechanism.SCRAM_SHA_512, 6000), b"secret", b"salt"),
        f.a.UserScramCredentialDeletion(f"c-{f.topic}", mechanism.SCRAM_SHA_256),
    ])  # fmt: skip
    results = sorted(f.results(made).items())
    everybody = f.once(lambda: a.describe_user_scram_credentials().result(WAIT_S), lambda found: {one, two} <= set(found))
    described = results, f.results(a.describe_user_scram_credentials([one, two, f"c-{f.topic}"]))
    gone = f.results(a.alter_user_scram_credentials([f.a.UserScramCredentialDeletion(one, mechanism.SCRAM_SHA_256)]))
    nobody = f.once(lambda: f.results(a.describe_user_scram_credentials([one])), lambda found: isinstance(found[one][1], str))
    return described, f.shown(everybody[one]), gone, nobody, a.describe_user_scram_credentials([])


@case
def users_that_are_refused(f: Face) -> Any:
    a, who = f.admin(), f.topic
    mechanism, info, upsertion = f.a.ScramMechanism, f.a.ScramCredentialInfo, f.a.UserScramCredentialUpsertion
    twice = [upsertion(who, info(each, 5000), b"secret") for each in (mechanism.SCRAM_SHA_256, mechanism.SCRAM_SHA_512)]
    wrong = [
        [], ["x"], None, [f.a.UserScramCredentialAlteration("u")], [f.a.UserScramCredentialDeletion("", mechanism.SCRAM_SHA_256)],
        [f.a.UserScramCredentialDeletion("u", 1)], [upsertion("u", info(mechanism.SCRAM_SHA_256, 5000), "text")],
        [upsertion("u", info(mechanism.SCRAM_SHA_256, 5000), b"")], [upsertion("u", info(mechanism.SCRAM_SHA_256, 0), b"p")],
        [upsertion("u", info(mechanism.SCRAM_SHA_256, 5000), b"p", b"")], [upsertion("u", info("x", 5000), b"p")],
        [upsertion("u", 3, b"p")],
    ]  # fmt: skip
    return (
        f.results(a.alter_user_scram_credentials(twice)), f.results(a.describe_user_scram_credentials([who, who])),
        f.results(a.alter_user_scram_credentials([f.a.UserScramCredentialDeletion(who, mechanism.UNKNOWN)])),
        f.results(a.alter_user_scram_credentials([upsertion(who, info(mechanism.SCRAM_SHA_256, 5), b"p")])),
        [f.given(lambda each=each: a.alter_user_scram_credentials(each)) for each in wrong],
        [f.given(lambda each=each: a.describe_user_scram_credentials(each)) for each in ("x", [3], [None], [""])],
    )  # fmt: skip


# ---- arguments, times and ends -------------------------------------------------------------------------------------------------------


@case
def arguments_that_are_refused(f: Face) -> Any:
    a, new = f.admin(), f.a.NewTopic("x", 1, 1)
    calls = [
        lambda: a.create_topics([]), lambda: a.create_topics(["x"]), lambda: a.create_topics([new], no_such=1),
        lambda: a.create_topics([new], validate_only=3), lambda: a.create_topics([new], request_timeout=-1),
        lambda: a.create_topics([new], request_timeout=5000), lambda: a.create_topics([new], request_timeout="x"),
        lambda: a.create_topics([new], operation_timeout=-2), lambda: a.create_topics([new], request_timeout=None),
        lambda: a.delete_topics([]), lambda: a.delete_topics("abc"), lambda: a.create_partitions([]), lambda: a.create_partitions(["x"]),
        lambda: a.create_partitions([f.a.NewPartitions("x", 0)]), lambda: f.a.NewTopic(), lambda: f.a.NewPartitions("x"),
        lambda: a.describe_configs([]), lambda: a.describe_configs(["x"]), lambda: f.a.ConfigResource("nope", "x"),
        lambda: f.a.ConfigResource("topic", None), lambda: a.incremental_alter_configs([f.resource()]),
        lambda: a.incremental_alter_configs([f.resource(incremental_configs=[f.a.ConfigEntry("a", "b")])]),
        lambda: a.incremental_alter_configs([f.resource(incremental_configs=[changed(f, "SET", "a", 1)])]),
        lambda: a.incremental_alter_configs([f.resource(incremental_configs=["x"])]), lambda: a.incremental_alter_configs(["x"]),
        lambda: a.create_acls([]), lambda: a.create_acls(["x"]), lambda: a.describe_acls(3), lambda: a.delete_acls([]),
        lambda: a.list_consumer_groups(states=[]), lambda: a.list_consumer_groups(types={3}), lambda: a.list_consumer_groups(states={"x"}),
        lambda: a.describe_consumer_groups([]), lambda: a.describe_consumer_groups("x"), lambda: a.delete_consumer_groups([]),
        lambda: a.delete_consumer_groups([3]), lambda: a.describe_topics(["x"]), lambda: a.describe_topics(f.k.TopicCollection("x")),
        lambda: a.describe_topics(f.k.TopicCollection([3])), lambda: a.list_offsets([]), lambda: a.list_offsets({f.tp(): 3}),
        lambda: a.list_offsets({"x": f.a.OffsetSpec.latest()}), lambda: a.list_offsets({f.tp(-1): f.a.OffsetSpec.latest()}),
        lambda: a.list_offsets({f.tp(): f.a.OffsetSpec.latest()}, isolation_level=1), lambda: a.delete_records("x"),
        lambda: a.delete_records(["x"]), lambda: a.delete_records([f.tp(-1)]), lambda: a.elect_leaders("x"),
        lambda: a.elect_leaders(f.k.ElectionType.PREFERRED, "x"), lambda: a.elect_leaders(f.k.ElectionType.PREFERRED, ["x"]),
        lambda: a.elect_leaders(f.k.ElectionType.PREFERRED, [f.tp(-1)]), lambda: a.set_sasl_credentials("a", 3),
        lambda: f.a.OffsetSpec(-9), lambda: a.describe_cluster(no=1), lambda: f.a.NewTopic("x", "y", 1),
        lambda: f.a.NewTopic("x", 1, 1, no=2), lambda: f.a.NewPartitions("x", "y"),
    ]  # fmt: skip
    binding, latest = ("topic", "t", "literal", "User:a", "*", "read", "allow"), f.a.OffsetSpec.latest()
    good = f.resource(incremental_configs=[changed(f, "SET", "a", "1")])
    calls += [  # the first is right, the second is not
        lambda: a.create_topics([new, "x"]), lambda: a.create_partitions([f.a.NewPartitions("x", 2), "x"]),
        lambda: a.describe_configs([f.resource(), "x"]), lambda: a.incremental_alter_configs([good, "x"]),
        lambda: a.create_acls([f.a.AclBinding(*binding), "x"]), lambda: a.delete_acls([f.a.AclBindingFilter(*binding), "x"]),
        lambda: a.describe_topics(f.k.TopicCollection(["t", 3])), lambda: a.describe_topics(f.k.TopicCollection(["t", ""])),
        lambda: a.list_offsets({f.tp(): latest, "x": latest}), lambda: a.list_offsets({f.tp(): latest, f.tp(1): 3}),
        lambda: a.delete_records([f.tp(0, 1), "x"]), lambda: a.elect_leaders(f.k.ElectionType.PREFERRED, [f.tp(), "x"]),
        lambda: a.list_consumer_groups(states={f.k.ConsumerGroupState.STABLE, "x"}),
    ]  # fmt: skip
    calls += [lambda: a.describe_configs([f.resource()], broker="x")]
    calls += [lambda: a.create_acls([f.a.AclBinding(*binding)] * 2), lambda: a.delete_acls([f.a.AclBindingFilter(*binding)] * 2)]
    for nth, value in [(0, None), (0, "any"), (0, 3.5), (0, "nope"), (1, None), (1, 5), (2, "match"), (3, None), (5, "any"), (6, "any")]:
        calls.append(lambda nth=nth, value=value: repr(f.a.AclBinding(*binding[:nth], value, *binding[nth + 1 :])))
        calls.append(lambda nth=nth, value=value: repr(f.a.AclBindingFilter(*binding[:nth], value, *binding[nth + 1 :])))
    calls.append(lambda: repr(f.a.AclBindingFilter("unknown", *binding[1:])))
    return [f.given(call) for call in calls]


@case
def groups_that_are_refused(f: Face) -> Any:
    a, request = f.admin(), f.k.ConsumerGroupTopicPartitions
    wrong = [
        None, "x", [], ["x"], [request("g"), request("h")], [request(None)], [request(3)], [request("")], [request("g", "x")],
        [request("g", [])], [request("g", ["x"])], [request("g", [f.tp(-1)])], [request("g", [f.k.TopicPartition("", 0)])],
        [request("g", [f.tp(), f.tp(-1)])],
    ]  # fmt: skip
    listed = [
        f.given(lambda each=each: a.list_consumer_group_offsets(each))
        for each in [*wrong, [request("g", [f.tp(0, 3)])], [request("g", [f.tp(), "x"])]]
    ]
    return listed, [
        f.given(lambda each=each: a.alter_consumer_group_offsets(each))
        for each in [
            *wrong,
            [request("g")],
            [request("g", [f.tp()])],
            [request("g", [f.tp(0, 1), f.tp(1)])],
            [request("g", [f.tp(0, 1), "x"])],
        ]
    ]


@case
def no_broker(f: Face) -> Any:
    f.servers = "127.0.0.1:1"
    a = f.admin()
    late = a.describe_cluster(request_timeout=0.2)
    more = a.create_topics([f.a.NewTopic("x", 1, 1), f.a.NewTopic("y", 1, 1)], request_timeout=0.2)
    return late.cancel(), f.result(late), late.done(), f.results(more), f.given(lambda: a.cluster_id(timeout=0.1))


@case
def a_client_as_a_block(f: Face) -> Any:
    with f.admin() as a:
        inside = a.cluster_id(timeout=WAIT_S) is not None
    return inside, [f.given(call) for call in (lambda: a.describe_cluster(), lambda: a.delete_topics(["x"]), lambda: a.poll(0))]


@case
def settings_of_the_client(f: Face) -> Any:
    base = {"bootstrap.servers": f.servers}
    return [
        f.given(lambda: f.a.AdminClient()), f.given(lambda: f.a.AdminClient("x")),
        f.given(lambda: f.a.AdminClient(base | {"no.such": 1})),
        f.given(lambda: f.a.AdminClient(base | {"socket.timeout.ms": "x"})), f.admin(**{"client.id": "me"}).poll(0), len(f.admin()),
    ]  # fmt: skip


@case
def values_by_themselves(f: Face) -> Any:
    a = f.a
    topic, same, other = a.NewTopic("t", 2, 1), a.NewTopic("t", 2, 1), a.NewTopic("u", 2, 1)
    added = a.NewPartitions("t", 3)
    resource, binding = a.ConfigResource(2, "t", set_config={"a": "b"}), a.AclBinding(2, "t", 3, "User:a", "*", 3, 3)
    entry = a.ConfigEntry("a", None)
    return [
        repr(topic), str(topic), topic == same, topic == other, topic < other, hash(topic) == hash(same), topic.config,
        topic.replica_assignment,
        repr(a.NewTopic("t")), a.NewTopic("t").num_partitions, repr(added), added == a.NewPartitions("t", 3),
        added == a.NewPartitions("t", 4),
        repr(resource), resource == a.ConfigResource("topic", "t"), hash(resource) == hash(a.ConfigResource("TOPIC", "t")), len(resource),
        repr(a.ConfigResource("topic", "t", error=1)), resource < a.ConfigResource("topic", "u"), a.ConfigResource.Type is a.ResourceType,
        repr(binding), binding == a.AclBinding("topic", "t", "literal", "User:a", "*", "read", "allow"), len({binding, binding}),
        repr(a.AclBindingFilter("any", None, "any", None, None, "any", "any")), binding < a.AclBinding(2, "u", 3, "User:a", "*", 3, 3),
        f.shown(entry), repr(entry), a.OffsetSpec(7).timestamp, a.OffsetSpec.latest() < a.OffsetSpec(7), str(f.k.Uuid(1, 2)),
        repr(f.k.Uuid(2**60, 2)),
        f.k.Uuid(5, -6).get_most_significant_bits(), f.k.Uuid(5, -6).get_least_significant_bits(),
        hash(f.k.Uuid(1, 2)) == hash(f.k.Uuid(1, 2)),
        f.given(lambda: f.k.Uuid(1)), f.given(lambda: f.k.Uuid("a", 2)), f.given(lambda: f.k.Uuid(2**65, 2)),
        str(f.k.Node(1, "h", 2)), str(f.k.Node(1, "h", 2, "r")), f.shown(a.ListOffsetsResultInfo(1, 2, -1)),
        f.k.ConsumerGroupState["UNKOWN"].name,
        f.k.ConsumerGroupState.EMPTY < f.k.ConsumerGroupState.STABLE, a.ResourceType.TOPIC < a.ResourceType.GROUP,
        f.shown(a.ConsumerGroupListing("g", True)), f.shown(a.ConsumerGroupListing("g", True, "stable", 2)),
        f.shown(a.MemberAssignment(None)),
        f.shown(a.DescribeClusterResult(None, [], "c", ["read", 4])), f.shown(a.ClusterMetadata()), f.shown(a.GroupMetadata()),
        repr(a.BrokerMetadata()), str(a.TopicMetadata()), f.shown(a.GroupMember()),
        f.given(lambda: a.ConsumerGroupListing("g", True, "nope")),
    ]  # fmt: skip
