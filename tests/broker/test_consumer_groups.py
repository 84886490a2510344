"""KIP-848 groups: epochs, reconciliation, static members, expressions, commits by epoch, time, and what the log keeps."""

from types import SimpleNamespace

import pytest
from controlling import create_partitions, create_topic, delete_topic
from group_bench import GroupBench, Unwalked, assigned, names_without_likeness

from kafkacore import protocol as p
from kafkacore.broker import authorizer as a
from kafkacore.broker.groups.assignors import ASSIGNORS, uniform
from kafkacore.broker.groups.consumer_membership import (
    LARGE_GROUP,
    MEMBERS_PER_MS,
    check_request,
    join_key,
    rebalance_key,
    session_key,
    sync_key,
)
from kafkacore.broker.groups.regex_resolver import ASK_AGAIN_MS, BURST_COST
from kafkacore.errors import Code, IllegalGeneration, InvalidRequest
from kafkacore.protocol.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_stored,
    encode_stored,
)
from tests.kit.inside import expressions_of
from tests.kit.rows import each_row


class ConsumerGroupBench(GroupBench):
    def __init__(self, partitions=4, **config):
        super().__init__(**config)
        self.a = self.topic("a", partitions).topic_id

    def settle(self, *members, topics=("a",)):
        """Lets members (id -> epoch) heartbeat until they are where the group is; their epochs and partitions."""
        epochs, owned = dict.fromkeys(members, 0), {member_id: {} for member_id in members}
        for member_id in members:
            answer = self.beat(member_id, 0, topics=list(topics))
            assert answer.error_code == 0
            epochs[member_id], owned[member_id] = answer.member_epoch, assigned(answer)
        for _ in range(4 * len(members)):
            for member_id in members:
                answer = self.beat(member_id, epochs[member_id], owned=owned[member_id])
                assert answer.error_code == 0
                epochs[member_id] = answer.member_epoch
                if answer.assignment is not None:
                    owned[member_id] = assigned(answer)
        assert self.group().state_name == "Stable"
        return epochs, owned


def test_a_partition_is_handed_over_only_when_its_owner_has_let_it_go():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m1", 0, topics=["a"]).member_epoch
    newcomer = bench.beat("m2", 0, topics=["a"])
    assert (newcomer.member_epoch, assigned(newcomer)) == (epoch + 1, {})
    assert bench.group().state_name == "Reconciling"
    reported = bench.beat("m1", epoch, owned={bench.a: {0, 1, 2, 3}})
    kept = assigned(reported)[bench.a]
    assert (reported.member_epoch, len(kept)) == (epoch, 2)
    # It has been told, but it still has them: the newcomer waits.
    assert bench.beat("m2", epoch + 1).assignment is None
    assert bench.beat("m1", epoch, owned={bench.a: {0, 1, 2, 3}}).member_epoch == epoch
    assert bench.beat("m1", epoch).member_epoch == epoch  # it does not say what it has
    assert bench.beat("m1", epoch, owned={bench.a: kept}).member_epoch == epoch + 1
    assert bench.group().state_name == "Reconciling", "the newcomer has nothing yet"
    assert assigned(bench.beat("m2", epoch + 1)) == {bench.a: {0, 1, 2, 3} - kept}
    assert bench.group().state_name == "Stable"


def test_partitions_of_two_topics_are_handed_over_when_their_owner_has_let_both_go():
    bench = ConsumerGroupBench(partitions=2)
    topic_b = bench.topic("b", 2).topic_id
    epoch = bench.beat("m1", 0, topics=["a", "b"], assignor="range").member_epoch
    bench.beat("m2", 0, topics=["a", "b"], assignor="range")
    everything = {bench.a: {0, 1}, topic_b: {0, 1}}
    kept = assigned(bench.beat("m1", epoch, owned=everything))
    assert [len(kept[each]) for each in everything] == [1, 1]
    for each in everything:
        assert bench.beat("m1", epoch, owned={**everything, each: kept[each]}).member_epoch == epoch
        assert bench.beat("m2", epoch + 1, owned={}).assignment is None
    assert bench.beat("m1", epoch, owned=kept).member_epoch == epoch + 1
    assert assigned(bench.beat("m2", epoch + 1, owned={})) == {each: everything[each] - kept[each] for each in everything}


def test_a_newcomer_moves_no_more_than_it_gets():
    """The target is made from what each of the others was to have."""
    bench = ConsumerGroupBench(partitions=6)
    bench.settle("m1", "m2")
    bench.beat("m1", -1)
    targets = []
    for newcomer in ("m3", "m4"):
        bench.beat(newcomer, 0, topics=["a"])
        targets.append({member_id: target[bench.a] for member_id, target in bench.group().target.items()})
    assert targets == [{"m2": {3, 4, 5}, "m3": {0, 1, 2}}, {"m2": {3, 4}, "m3": {0, 1}, "m4": {2, 5}}]


def test_who_leaves_frees_its_partitions():
    bench = ConsumerGroupBench()
    epochs, _ = bench.settle("m1", "m2")
    left = bench.beat("m1", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    answer = bench.beat("m2", epochs["m2"])
    assert assigned(answer) == {bench.a: {0, 1, 2, 3}}
    assert bench.beat("m1", epochs["m1"]).error_code == Code.UNKNOWN_MEMBER_ID
    assert bench.beat("m1", -1).error_code == Code.UNKNOWN_MEMBER_ID
    assert bench.beat("m2", -1).error_code == 0
    assert bench.group().state_name == "Empty"


def test_who_does_not_let_go_in_time_is_out():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m1", 0, topics=["a"], rebalance_ms=1_000).member_epoch
    bench.beat("m2", 0, topics=["a"])
    everything = {bench.a: {0, 1, 2, 3}}
    assert bench.beat("m1", epoch, owned=everything).assignment is not None
    for _ in range(9):
        bench.advance(100)
        assert bench.beat("m1", epoch, owned=everything).error_code == 0
    bench.advance(100)
    assert bench.beat("m1", epoch, owned=everything).error_code == Code.UNKNOWN_MEMBER_ID


def test_who_could_not_be_removed_is_still_to_be_heard_of():
    bench = ConsumerGroupBench(group_consumer_session_timeout_ms=1_000)
    bench.beat("m", 0, topics=["a"])
    with bench.no_appends():
        assert bench.beat("m", -1).error_code == Code.COORDINATOR_NOT_AVAILABLE
    bench.advance(1_000)
    assert not bench.group().members


def test_epochs_are_checked_and_an_answer_that_was_lost_is_made_up_for():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m", 0, topics=["a"]).member_epoch
    owned = {bench.a: {0, 1, 2, 3}}
    assert bench.beat("m", epoch + 1).error_code == Code.FENCED_MEMBER_EPOCH
    assert bench.beat("m", epoch - 1).error_code == Code.FENCED_MEMBER_EPOCH
    topic_b = bench.topic("b").topic_id
    changed = bench.beat("m", epoch, topics=["a", "b"], owned=owned)
    assert (changed.member_epoch, assigned(changed)) == (epoch + 1, {bench.a: {0, 1, 2, 3}, topic_b: {0}})
    again = bench.beat("m", epoch, topics=["a", "b"], owned=owned, rebalance_ms=30_000)  # the answer did not arrive
    assert (again.error_code, again.member_epoch, assigned(again)) == (0, epoch + 1, {bench.a: {0, 1, 2, 3}, topic_b: {0}})
    for part in ({"rebalance_ms": -1}, {"topics": None}, {"owned": None}):  # a heartbeat that says less does not ask for it
        assert bench.beat("m", epoch, **{"topics": ["a", "b"], "owned": owned, "rebalance_ms": 30_000} | part).assignment is None
    assert bench.beat("m", epoch, regex="", owned=owned, rebalance_ms=30_000).assignment is not None
    for more in ({bench.a: {9}}, {bench.a: {0, 9}}, {bench.a: {0}, topic_b: {0, 1}}):  # than it was given
        assert bench.beat("m", epoch, owned=more).error_code == Code.FENCED_MEMBER_EPOCH
    rejoined = bench.beat("m", 0, topics=["a", "b"])
    assert (rejoined.error_code, rejoined.member_epoch, assigned(rejoined)) == (0, epoch + 1, {bench.a: {0, 1, 2, 3}, topic_b: {0}})


@each_row(
    ("options", "expected"),
    [
        ({"member_id": "", "epoch": 0, "topics": ["a"]}, Code.INVALID_REQUEST),
        ({"epoch": 0, "topics": ["a"], "group": ""}, Code.INVALID_REQUEST),
        ({"epoch": 0, "topics": ["a"], "instance": ""}, Code.INVALID_REQUEST),
        ({"epoch": 0, "topics": ["a"], "rebalance_ms": -1}, Code.INVALID_REQUEST),
        ({"epoch": 0, "topics": ["a"], "owned": {b"\1" * 16: {0}}}, Code.INVALID_REQUEST),
        ({"member_id": "", "epoch": 1, "version": 0}, Code.INVALID_REQUEST),
        ({"member_id": "", "epoch": -1, "version": 0}, Code.INVALID_REQUEST),
        ({"epoch": -2}, Code.INVALID_REQUEST),
        ({"epoch": -3}, Code.INVALID_REQUEST),
        ({"epoch": 0, "topics": ["a"], "assignor": "best"}, Code.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 0, "regex": "("}, Code.INVALID_REGULAR_EXPRESSION),
        ({"epoch": 5}, Code.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, Code.GROUP_ID_NOT_FOUND),
    ],
)
def test_heartbeats_that_are_refused(options, expected):
    bench = ConsumerGroupBench()
    answer = bench.beat(options.pop("member_id", "m"), options.pop("epoch"), **options)
    assert (answer.error_code, bool(answer.error_message)) == (expected, True)
    assert bench.group() is None


def test_who_joins_says_what_it_wants():
    request = p.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=0, topic_partitions=[])
    with pytest.raises(InvalidRequest, match="Either SubscribedTopicNames or SubscribedTopicRegex"):
        check_request(request, 1)
    for wish in ({"subscribed_topic_names": []}, {"subscribed_topic_regex": ""}):
        check_request(request._replace(**wish), 1)


def test_an_instance_id_that_no_member_has_is_unknown():
    bench = ConsumerGroupBench()
    bench.beat("m", 0, topics=["a"])
    assert [bench.beat("m", epoch, instance="x").error_code for epoch in (1, -1, -2)] == [Code.UNKNOWN_MEMBER_ID] * 3


def test_nothing_waits_for_a_member_that_left():
    bench = ConsumerGroupBench()
    timers, keys = bench.shard.timers, [key("g", "m") for key in (session_key, rebalance_key, join_key, sync_key)]
    assert len({*keys}) == 4
    bench.beat("m", 0, topics=["a"])
    bench.beat("n", 0, topics=["a"])
    assert [timers.is_scheduled(key) for key in keys] == [True, False, False, False]
    for key in keys:
        timers.schedule(key, 60_000, lambda: None)
    bench.beat("m", -1)
    assert [timers.is_scheduled(key) for key in (*keys, session_key("g", "n"))] == [False] * 4 + [True]


def test_version_0_lets_the_broker_choose_the_member_id():
    bench = ConsumerGroupBench()
    answer = bench.beat("", 0, topics=["a"], version=0)
    assert (answer.error_code, len(answer.member_id)) == (0, 22)
    assert bench.beat(answer.member_id, answer.member_epoch, version=0).error_code == 0


def test_a_group_has_a_largest_size():
    bench = ConsumerGroupBench(group_consumer_max_size=1)
    bench.beat("m1", 0, topics=["a"])
    assert bench.beat("m2", 0, topics=["a"]).error_code == Code.GROUP_MAX_SIZE_REACHED
    assert bench.beat("m1", 0, topics=["a"]).error_code == 0


# ---- topics


def test_topics_that_grow_come_and_go():
    bench = ConsumerGroupBench(partitions=1)
    epoch = bench.beat("m", 0, topics=["a", "b"]).member_epoch
    create_partitions(bench.state.controller, "a", 2)
    grown = bench.beat("m", epoch)
    assert (grown.member_epoch, assigned(grown)) == (epoch + 1, {bench.a: {0, 1}})
    topic_b = bench.topic("b", 1).topic_id
    come = bench.beat("m", epoch + 1)
    assert assigned(come) == {bench.a: {0, 1}, topic_b: {0}}
    delete_topic(bench.state.controller, "a")
    gone = bench.beat("m", epoch + 2, owned={bench.a: {0, 1}, topic_b: {0}})
    assert assigned(gone) == {topic_b: {0}}
    after = bench.beat("m", epoch + 2, owned={topic_b: {0}})
    assert after.member_epoch == epoch + 3
    bench.topic("c")
    assert bench.beat("m", epoch + 3).member_epoch == epoch + 3  # nobody here wants it


def test_a_topic_that_grew_is_looked_at_again_when_what_came_of_it_could_not_be_written():
    bench = ConsumerGroupBench(partitions=1)
    epoch = bench.beat("m", 0, topics=["a"]).member_epoch
    create_partitions(bench.state.controller, "a", 2)
    with bench.no_appends():
        assert bench.beat("m", epoch).error_code == Code.COORDINATOR_NOT_AVAILABLE
    answer = bench.beat("m", epoch)
    assert (answer.member_epoch, assigned(answer)) == (epoch + 1, {bench.a: {0, 1}})


def test_expressions():
    bench = ConsumerGroupBench(partitions=1)
    b1 = bench.topic("b1").topic_id
    answer = bench.beat("m", 0, regex="b[0-9]")
    assert assigned(answer) == {b1: {0}}
    b2 = bench.topic("b2").topic_id
    bench.topic("bx")
    more = bench.beat("m", answer.member_epoch)
    assert assigned(more) == {b1: {0}, b2: {0}}
    bench.beat("m", more.member_epoch)
    b3 = bench.topic("b3").topic_id
    assert assigned(bench.beat("m", more.member_epoch)) == {b1: {0}, b2: {0}, b3: {0}}, "at once, however lately it was looked at"
    delete_topic(bench.state.controller, "b3")
    bench.beat("m", more.member_epoch + 1, owned={b1: {0}, b2: {0}})
    more = bench.beat("m", more.member_epoch + 1, owned={b1: {0}, b2: {0}})
    (described,) = bench.ask(p.ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (described.members[0].subscribed_topic_regex, described.members[0].subscribed_topic_names) == ("b[0-9]", [])
    bench.reload()
    kept = bench.beat("m", more.member_epoch)
    assert (kept.error_code, kept.member_epoch, kept.assignment) == (0, more.member_epoch, None)
    both = bench.beat("m", more.member_epoch, topics=["a"], owned={b1: {0}, b2: {0}})
    assert assigned(both) == {bench.a: {0}, b1: {0}, b2: {0}}
    owned = {bench.a: {0}, b1: {0}, b2: {0}}
    narrowed = bench.beat("m", both.member_epoch, regex="", owned=owned)
    assert assigned(narrowed) == {bench.a: {0}}
    assert bench.group().regexes == {}


def test_clients_see_the_groups_and_the_topics_that_they_may_describe():
    bench = ConsumerGroupBench(group_consumer_regex_refresh_interval_ms=10_000)
    ids = {name: bench.topic(name).topic_id for name in ("b1", "b2", "b3")}
    for group in "ghi":
        bench.beat("m", 0, topics=["a"], group=group)
    may = {(a.DESCRIBE, a.GROUP, "g"), (a.DESCRIBE, a.GROUP, "i"), (a.READ, a.GROUP, "j")}
    may |= {(a.DESCRIBE, a.TOPIC, "b1"), (a.DESCRIBE, a.TOPIC, "b3")}
    bench.state.authorizer = SimpleNamespace(allows=lambda principal, host, *asked: asked in may)
    assert [each.group_id for each in bench.ask(p.ListGroupsRequest(), 5).groups] == ["g", "i"]
    assert assigned(bench.beat("n", 0, regex="b.", group="j")) == {ids["b1"]: {0}, ids["b3"]: {0}}
    bench.beat("n", -1, group="j")
    epoch = bench.beat("m", 0, regex="b.", group="j").member_epoch
    may.add((a.DESCRIBE, a.TOPIC, "b2"))
    found = []
    for ms in (0, 10_000, 1):  # since then an expression stands for what it stood for
        bench.advance(ms)
        found.append(bench.beat("m", epoch, group="j").member_epoch)
    assert found == [epoch, epoch, epoch + 1]
    assert bench.group("j").regexes["b."].topics == {"b1", "b2", "b3"}
    may.add((a.DESCRIBE, a.CLUSTER, a.CLUSTER_NAME))
    assert [each.group_id for each in bench.ask(p.ListGroupsRequest(), 5).groups] == ["g", "h", "i", "j"]


def test_an_expression_of_several_members_is_matched_once_and_goes_with_the_last():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m1", 0, regex="a.*").member_epoch
    bench.beat("m2", 0, regex="a.*")
    bench.beat("m3", 0, regex="b.*")
    assert list(bench.group().regexes) == ["a.*", "b.*"]
    bench.beat("m3", -1)
    bench.beat("m2", -1)
    assert list(bench.group().regexes) == ["a.*"]
    assert bench.beat("m1", epoch, regex="[").error_code == Code.INVALID_REGULAR_EXPRESSION
    assert list(bench.group().regexes) == ["a.*"]
    bench.beat("m1", -1)
    assert bench.group().regexes == {}


@pytest.mark.parametrize("wish", [{"topics": ["a"]}, {"regex": "[a-z]"}])
def test_a_heartbeat_walks_no_members(wish):
    bench = ConsumerGroupBench(partitions=20)
    ids = [f"m{i}" for i in range(20)]
    for member_id in ids:
        bench.beat(member_id, 0, **wish)
    for _ in range(3):  # until everybody is there
        for member_id in ids:
            member = bench.group().members[member_id]
            answer = bench.beat(member_id, member.epoch, owned=member.assigned)
    assert bench.group().state_name == "Stable"
    bench.group().members = Unwalked(bench.group().members)
    answer = bench.beat("m7", answer.member_epoch)
    assert answer.error_code == 0


def test_an_expression_that_takes_long_is_resolved_between_other_requests():
    bench = ConsumerGroupBench()
    names = names_without_likeness(8)
    for name in names:
        bench.topic(name)
    resolver, slow = bench.shard.resolver, "(a|b|.)*a(a|b|.){220}|[ab]*"
    answer = bench.beat("m", 0, regex=slow)
    assert answer.error_code == 0
    assert assigned(answer) == {}
    spent, turns = 0, 0
    while bench.shard.timers.is_scheduled("regex\0g"):
        before = expressions_of(resolver)[slow].regex.cost
        bench.advance(ASK_AGAIN_MS)
        turns += 1
        spent = max(spent, expressions_of(resolver)[slow].regex.cost - before)
    assert turns > 2
    assert spent < 2 * BURST_COST
    answer = bench.beat("m", answer.member_epoch)
    assert len(assigned(answer)) == 9
    assert bench.group().regexes[slow].topics == {"a", *names}


def test_the_assignor_most_members_prefer_is_used():
    bench = ConsumerGroupBench(partitions=3)
    b = bench.topic("b", 3).topic_id
    names = ["a", "b"]
    for member_id in ("m1", "m2"):
        bench.beat(member_id, 0, topics=names, assignor="range")
    target = bench.group().target
    assert [len(target["m1"][topic]) for topic in (bench.a, b)] == [2, 2]  # range gives m1 more of each
    bench.beat("m3", 0, topics=names, assignor="uniform")
    assert bench.group().preferred_assignor(bench.group().members.values()) == "range"


# ---- static members


def test_a_static_member_that_restarts_gets_what_it_had():
    bench = ConsumerGroupBench()
    first = bench.beat("m1", 0, topics=["a"], instance="x")
    bench.beat("m2", 0, topics=["a"], instance="y")
    epoch = first.member_epoch
    reported = bench.beat("m1", epoch, owned={bench.a: {0, 1, 2, 3}}, instance="x")
    mine = assigned(reported)
    assert bench.beat("m1", epoch, owned=mine, instance="x").member_epoch == epoch + 1
    group_epoch = bench.group().epoch
    assert bench.beat("m9", 0, topics=["a"], instance="x").error_code == Code.UNRELEASED_INSTANCE_ID
    away = bench.beat("m1", -2, instance="x")
    assert (away.error_code, away.member_epoch) == (0, -2)
    assert assigned(bench.beat("m2", epoch + 1, instance="y")) == {bench.a: {0, 1, 2, 3} - mine[bench.a]}  # nothing of what is kept
    bench.reload()
    back = bench.beat("m3", 0, topics=["a"], instance="x")
    assert (back.error_code, back.member_epoch, assigned(back)) == (0, epoch + 1, mine)
    assert (bench.group().epoch, set(bench.group().target), set(bench.shard.groups)) == (group_epoch, {"m2", "m3"}, {"g"})
    assert bench.beat("m1", epoch + 1, instance="x").error_code == Code.FENCED_INSTANCE_ID
    assert bench.beat("m1", -1, instance="x").error_code == Code.FENCED_INSTANCE_ID
    assert bench.beat("m3", -1, instance="z").error_code == Code.UNKNOWN_MEMBER_ID
    assert bench.beat("m3", -1, instance="x").error_code == 0
    assert set(bench.group().members) == {"m2"}


def test_a_static_member_that_stays_away_loses_its_partitions():
    bench = ConsumerGroupBench(group_consumer_session_timeout_ms=1_000)
    bench.beat("m1", 0, topics=["a"], instance="x")
    bench.beat("m1", -2, instance="x")
    bench.advance(1_000)
    assert bench.group().is_empty


# ---- offsets


def test_commits_by_epoch():
    bench = ConsumerGroupBench()
    epochs, owned = bench.settle("m1", "m2")
    epoch = epochs["m1"]
    mine, theirs = min(owned["m1"][bench.a]), min(owned["m2"][bench.a])
    assert bench.commit({("a", mine): 1}, member="m1", generation=epoch) == {("a", mine): 0}
    assert bench.commit({("a", mine): 2}, member="m1", generation=epoch + 1) == {("a", mine): Code.STALE_MEMBER_EPOCH}
    assert bench.commit({("a", mine): 2}, member="m1", generation=epoch, version=8) == {("a", mine): Code.UNSUPPORTED_VERSION}
    assert bench.commit({("a", mine): 2}, member="who", generation=epoch) == {("a", mine): Code.UNKNOWN_MEMBER_ID}
    assert bench.commit({("a", mine): 2}) == {("a", mine): Code.UNKNOWN_MEMBER_ID}
    bench.topic("b")
    moved = bench.beat("m1", epoch, topics=["a", "b"], owned=owned["m1"]).member_epoch
    assert moved > epoch
    # A commit that was on its way while the member went on counts for what it had then and still has.
    assert bench.commit({("a", mine): 3}, member="m1", generation=epoch) == {("a", mine): 0}
    assert bench.commit({("a", theirs): 3}, member="m1", generation=epoch) == {("a", theirs): Code.STALE_MEMBER_EPOCH}
    assert bench.fetch(("a", mine), member="m1", epoch=moved) == {("a", mine): 3}
    assert bench.fetch(("a", mine), member="m1", epoch=epoch) == Code.STALE_MEMBER_EPOCH
    assert bench.fetch(("a", mine), member="who", epoch=epoch) == Code.UNKNOWN_MEMBER_ID
    assert bench.fetch(("a", mine)) == {("a", mine): 3}


def test_a_partition_that_came_later_is_not_committed_in_an_epoch_of_before():
    """In a transaction as outside of one; by no member and without an epoch from anywhere."""
    bench = ConsumerGroupBench()
    epochs, owned = bench.settle("m1", "m2")
    epoch = epochs["m1"]
    bench.beat("m2", -1)
    later = bench.beat("m1", epoch, owned=owned["m1"])
    (mine, *_), (new, *_) = owned["m1"][bench.a], assigned(later)[bench.a] - owned["m1"][bench.a]
    assert bench.commit({("a", new): 1}, member="m1", generation=epoch) == {("a", new): Code.STALE_MEMBER_EPOCH}
    assert bench.commit({("a", new): 1}, member="m1", generation=epoch + 1) == {("a", new): 0}

    def request(group, member, generation, *partitions):
        parts = [p.TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=9) for each in partitions]
        topics = [p.TxnOffsetCommitRequestTopic(name="a", partitions=parts)]
        return p.TxnOffsetCommitRequest(group_id=group, member_id=member, generation_id=generation, topics=topics)

    for member, generation, partitions in (("m1", epoch + 1, [mine, new]), ("m1", epoch, [mine]), ("", -1, [mine, new])):
        done = bench.shard.commit_in_transaction(request("g", member, generation, *partitions))
        assert [(each.partition_index, each.error_code) for each in done.response.topics[0].partitions] == [(at, 0) for at in partitions]
        assert len(done.records) == len(partitions)
    for group, generation, partitions in (("g", epoch, [mine, new]), ("g", epoch + 2, [mine]), ("none", 0, [mine])):
        with pytest.raises(IllegalGeneration):
            bench.shard.commit_in_transaction(request(group, "m1", generation, *partitions))
    bench.shard.commit_in_transaction(request("none", "", -1, mine))


def test_offsets_of_topics_that_are_read_cannot_be_deleted_and_do_not_age():
    minute_ms = 60_000
    bench = ConsumerGroupBench(offsets_retention_minutes=10, offsets_retention_check_interval_ms=minute_ms)
    epoch = bench.beat("m", 0, topics=["a"]).member_epoch
    bench.topic("b")
    bench.commit({("a", 0): 1, ("b", 0): 2}, member="m", generation=epoch)
    topics = [p.OffsetDeleteRequestTopic(name="a", partitions=[p.OffsetDeleteRequestPartition(partition_index=0)])]
    (answer,) = bench.ask(p.OffsetDeleteRequest(group_id="g", topics=topics), 0).topics
    assert answer.partitions[0].error_code == Code.GROUP_SUBSCRIBED_TO_TOPIC
    for _ in range(22):
        bench.advance(minute_ms // 2)
        assert bench.beat("m", epoch).error_code == 0
    assert bench.fetch() == {("a", 0): 1}


# ---- other kinds of groups


def test_a_classic_group_without_members_makes_room_and_the_other_way_round():
    bench = ConsumerGroupBench(group_consumer_migration_policy="disabled")
    bench.commit({("a", 0): 5})
    _, (member,), _ = bench.stable("x")
    refused = bench.beat("m", 0, topics=["a"])
    assert refused.error_code == Code.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    bench.leave((member, None))
    assert bench.beat("m", 0, topics=["a"]).error_code == 0
    assert bench.group().kind == "consumer"
    assert bench.fetch(("a", 0)) == {("a", 0): 5}
    assert bench.join().response.error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert bench.heartbeat("m", 1) == Code.UNKNOWN_MEMBER_ID
    assert bench.sync("m", 1).response.error_code == Code.UNKNOWN_MEMBER_ID
    bench.reload()
    assert bench.group().kind == "consumer"
    bench.beat("m", -1)
    bench.stable("y")
    assert bench.group().kind == "classic"
    assert bench.fetch(("a", 0)) == {("a", 0): 5}
    bench.reload()
    assert (bench.group().kind, bench.group().state_name) == ("classic", "Stable")


def test_looking_at_consumer_groups():
    bench = ConsumerGroupBench()
    epochs, owned = bench.settle("m1", "m2")
    answer = bench.ask(p.ConsumerGroupDescribeRequest(group_ids=["g", "none", ""], include_authorized_operations=True), 1)
    group, unknown, empty = answer.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("Stable", 3, 3, "uniform")
    assert group.authorized_operations == sum(1 << each for each in (3, 6, 8, 10, 11))
    for member in group.members:
        (topic,) = member.assignment.topic_partitions
        assert (member.member_epoch, member.client_id, member.client_host, member.member_type) == (3, "client", "/127.0.0.1", 1)
        assert (topic.topic_name, set(topic.partitions)) == ("a", owned[member.member_id][bench.a])
        assert member.target_assignment == member.assignment
    assert (unknown.error_code, unknown.error_message) == (Code.GROUP_ID_NOT_FOUND, "Group none not found.")
    assert empty.error_code == Code.INVALID_GROUP_ID
    (listed,) = bench.ask(p.ListGroupsRequest(types_filter=["consumer"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == ("g", "consumer", "Stable", "consumer")
    (classic,) = bench.ask(p.DescribeGroupsRequest(groups=["g"]), 6).groups
    assert (classic.error_code, classic.error_message) == (Code.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")

    def delete():
        return bench.ask(p.DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code

    assert delete() == Code.NON_EMPTY_GROUP
    for member_id in epochs:
        bench.beat(member_id, -1)
    assert delete() == 0
    bench.reload()
    assert bench.group() is None
    assert not any(dict(bench.stored()).values())  # of what was ever written nothing stays when the log is compacted


def test_members_are_described_with_all_that_they_said_and_all_that_they_still_have():
    bench = ConsumerGroupBench(partitions=2)
    topic_b = bench.topic("b", 1).topic_id
    said = {"instance_id": "i", "rack_id": "r", "subscribed_topic_names": ["b", "a"], "subscribed_topic_regex": "c.*"}
    joins = {"member_epoch": 0, "rebalance_timeout_ms": 30_000, "topic_partitions": []}
    epoch = bench.ask(p.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", **said, **joins), 1).member_epoch
    bench.join("o", protocols=wish())
    bench.beat("m", epoch, owned={bench.a: {0, 1}, topic_b: {0}}, instance="i")  # it has to give one of a up
    (group,) = bench.ask(p.ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups

    def described(assignment):
        return [(bytes(topic.topic_id), topic.topic_name, topic.partitions) for topic in assignment.topic_partitions]

    first, other = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch, first.member_type) == ("m", "i", "r", epoch, 1)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["a", "b"], "c.*")
    assert sorted(described(first.assignment), key=str) == sorted([(bench.a, "a", [0, 1]), (topic_b, "b", [0])], key=str)
    assert sorted(described(first.target_assignment), key=str) == sorted([(bench.a, "a", [0]), (topic_b, "b", [0])], key=str)
    assert (other.member_id, other.instance_id, other.rack_id, other.member_epoch, other.member_type) == ("o", None, None, epoch + 1, 0)
    assert (described(other.assignment), described(other.target_assignment)) == ([], [(bench.a, "a", [1])])
    assert (group.group_epoch, group.assignment_epoch, group.group_state) == (epoch + 1, epoch + 1, "Reconciling")


@each_row(
    ("group", "member", "behind", "goes"),
    [("none", "m", None, False), ("g", "who", None, False), ("g", "m", 1, False), ("g", "m", 0, True), ("g", "m", None, True)],
)
def test_what_comes_too_late_removes_no_member(group, member, behind, goes):
    bench = ConsumerGroupBench()
    now = bench.beat("m", 0, topics=["a"]).member_epoch
    epoch = None if behind is None else now - behind
    assert bool(bench.shard.consumers.expire(group, member, epoch, "a test").records) == goes


def test_a_new_coordinator_goes_on_where_the_old_one_was():
    bench = ConsumerGroupBench(group_consumer_session_timeout_ms=1_000)
    epoch = bench.beat("m1", 0, topics=["a"], regex="a+", rebalance_ms=500, assignor="range").member_epoch
    bench.beat("m2", 0, topics=["a"], instance="x")
    reported = bench.beat("m1", epoch, owned={bench.a: {0, 1, 2, 3}})
    before = bench.group()
    bench.advance(400)
    bench.reload()
    after = bench.group()
    assert (after.epoch, after.assignment_epoch, after.target) == (before.epoch, before.assignment_epoch, before.target)
    assert after.members == before.members and after.state_name == "Reconciling"
    bench.advance(400)  # sessions and the time to let go began again
    assert bench.beat("m1", epoch, owned=assigned(reported)).member_epoch == epoch + 1
    assert assigned(bench.beat("m2", epoch + 1)) is not None


def test_targets_are_not_made_more_often_than_configured():
    bench = ConsumerGroupBench(group_consumer_assignment_interval_ms=1_000)
    epoch = bench.beat("m1", 0, topics=["a"]).member_epoch
    early = bench.beat("m2", 0, topics=["a"])
    assert (early.member_epoch, assigned(early), bench.group().state_name) == (epoch, {}, "Assigning")
    bench.advance(1_000)
    assert bench.beat("m2", epoch).member_epoch == epoch + 1


def test_members_that_join_a_large_group_together_are_assigned_together(monkeypatch):
    """An assignor walks all members: not once for each of hundreds."""
    walked = []
    monkeypatch.setitem(ASSIGNORS, "uniform", lambda members, sizes: walked.append(len(members)) or uniform(members, sizes))
    bench = ConsumerGroupBench(group_consumer_heartbeat_interval_ms=5_000)
    create_topic(bench.state.controller, "many", 400)
    answers = [bench.beat(f"m{nth}", 0, topics=["many"]) for nth in range(LARGE_GROUP)]
    assert walked == [*range(1, LARGE_GROUP + 1)]
    assert {answer.heartbeat_interval_ms for answer in answers} == {5_000}
    walked.clear()
    rounds = 0
    for nth in range(LARGE_GROUP, 400):
        answer = bench.beat(f"m{nth}", 0, topics=["many"])
        assert (assigned(answer), bench.group().state_name) == ({}, "Assigning")
        assert 0 < answer.heartbeat_interval_ms <= nth // MEMBERS_PER_MS  # not in 5 s
    assert walked == []
    while bench.group().state_name != "Stable":
        rounds += 1
        bench.advance(100)
        for member in list(bench.group().members.values()):
            owned = {topic: set(partitions) for topic, partitions in member.assigned.items()}
            answer = bench.beat(member.member_id, member.epoch, owned=owned)
            if assigned(answer) is not None:
                bench.beat(member.member_id, answer.member_epoch, owned=assigned(answer))
    assert walked == [400]
    assert rounds <= 4
    assert bench.beat("m0", bench.group().members["m0"].epoch).heartbeat_interval_ms == 5_000
    assert {sum(map(len, member.assigned.values())) for member in bench.group().members.values()} == {1}


def test_a_large_group_whose_clock_was_set_back_is_assigned():
    bench = ConsumerGroupBench()
    create_topic(bench.state.controller, "many", 1_000)
    for nth in range(LARGE_GROUP):
        bench.beat(f"m{nth}", 0, topics=["many"])
    bench.clock.set_wall_ms(bench.clock.wall_ms() - 3_600_000)
    assert assigned(bench.beat("late", 0, topics=["many"])) is not None
    assert bench.group().assignment_epoch == bench.group().epoch


def test_a_member_of_a_newer_kafka_begins_again():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m", 0, topics=["a"]).member_epoch
    group = bench.group()
    unknown = type(group.members["m"].state)(127)
    group.put_member(group.members["m"]._replace(state=unknown, epoch=epoch, classic=None))
    create_topic(bench.state.controller, "b")
    assert bench.beat("m", epoch, topics=["a", "b"]).error_code == Code.FENCED_MEMBER_EPOCH
    assert bench.beat("m", 0, topics=["a", "b"]).error_code == 0


# ---- both protocols in one group


def assignment(data):
    """The partitions of topic a in what SyncGroup gave."""
    found = decode_stored(ConsumerProtocolAssignment, data).assigned_partitions
    return {partition for topic in found for partition in topic.partitions}


def wish(*owned):
    """The protocols of a classic member of topic a that has partitions."""
    owned = [ConsumerProtocolTopicPartition(topic="a", partitions=list(owned))]
    return (("range", encode_stored(ConsumerProtocolSubscription(topics=["a"], owned_partitions=owned), 1)),)


def classic_group(bench, **options):
    """A classic group with one member that has everything: its id and generation."""
    member = bench.known_id(protocols=wish(), **options)
    waiting = bench.join(member, protocols=wish(), **options)
    bench.advance()
    topics = [ConsumerProtocolTopicPartition(topic="a", partitions=[0, 1, 2, 3])]
    given = encode_stored(ConsumerProtocolAssignment(assigned_partitions=topics), 1)
    bench.sync(member, waiting.response.generation_id, {member: given})
    assert bench.group().state_name == "Stable"
    return member, waiting.response.generation_id


def test_an_application_moves_to_the_consumer_protocol_and_back():
    bench = ConsumerGroupBench()
    old, generation = classic_group(bench)
    assert bench.commit({("a", 0): 7}, member=old, generation=generation) == {("a", 0): 0}
    new = bench.beat("m", 0, topics=["a"])
    assert (new.member_epoch, assigned(new), bench.group().kind) == (generation + 1, {}, "consumer")
    bench.reload()
    assert bench.heartbeat(old, generation) == Code.REBALANCE_IN_PROGRESS
    reported = bench.join(old, protocols=wish(0, 1, 2, 3)).response
    assert (reported.error_code, reported.generation_id) == (0, generation)
    kept = assignment(bench.sync(old, generation).response.assignment)
    assert len(kept) == 2
    assert bench.heartbeat(old, generation) == Code.REBALANCE_IN_PROGRESS  # it has not let go yet
    done = bench.join(old, protocols=wish(*kept)).response
    assert done.generation_id == generation + 1
    assert assignment(bench.sync(old, generation + 1).response.assignment) == kept
    assert bench.heartbeat(old, generation + 1) == 0
    assert assigned(bench.beat("m", generation + 1)) == {bench.a: {0, 1, 2, 3} - kept}
    assert bench.commit({("a", min(kept)): 8}, member=old, generation=generation + 1, version=8) == {("a", min(kept)): 0}
    bench.reload()
    assert bench.group().state_name == "Stable"
    assert bench.beat("m", -1).error_code == 0
    assert (bench.group().kind, bench.group().state_name) == ("classic", "PreparingRebalance")
    bench.reload()
    assert (bench.group().kind, bench.group().members[old].session_timeout_ms) == ("classic", 10_000)
    kinds = {int.from_bytes(key[:2]) for key, value in dict(bench.stored()).items() if value is not None}
    assert kinds == {1, 2}  # of the other kind of group nothing stays when the log is compacted
    assert bench.group().state_name == "PreparingRebalance"  # the log says that what the other had is nobody's
    assert bench.fetch(("a", min(kept))) == {("a", min(kept)): 8}


def test_a_classic_member_moves_its_group_with_it():
    bench = ConsumerGroupBench()
    old, generation = classic_group(bench)
    waiting = bench.join(bench.known_id(protocols=wish()), protocols=wish())
    new = bench.beat("m", 0, topics=["a"])
    assert (waiting.response.error_code, new.error_code) == (Code.REBALANCE_IN_PROGRESS, 0)
    assert set(bench.group().members) >= {old, "m"}
    switched = bench.beat(old, 0, topics=["a"])  # the same member, with the other protocol now
    assert (switched.error_code, bench.group().members[old].uses_classic_protocol) == (0, False)
    assert bench.heartbeat(old, generation) == Code.UNKNOWN_MEMBER_ID


def test_a_group_is_a_classic_one_again_when_the_last_of_the_new_protocol_has_left():
    bench = ConsumerGroupBench()
    classic_group(bench)
    for member_id in ("m", "n"):
        bench.beat(member_id, 0, topics=["a"])
    kinds = []
    for member_id in ("m", "n"):
        bench.beat(member_id, -1)
        kinds.append((bench.group().kind, len(bench.group().members)))
    assert kinds == [("consumer", 2), ("classic", 1)]


def test_a_member_that_wants_nothing_moves_a_group_in_its_epoch():
    bench = ConsumerGroupBench()
    _, generation = classic_group(bench)
    assert bench.beat("m", 0, topics=[]).member_epoch == bench.group().epoch == generation
    assert bench.group().metadata_hash


def test_classic_members_of_a_consumer_group_are_watched():
    bench = ConsumerGroupBench(group_consumer_session_timeout_ms=60_000)
    old, generation = classic_group(bench, session_ms=1_000, rebalance_ms=500)
    bench.beat("m", 0, topics=["a"])
    assert bench.heartbeat(old, generation) == Code.REBALANCE_IN_PROGRESS
    bench.advance(499)
    assert bench.heartbeat(old, generation) == Code.REBALANCE_IN_PROGRESS  # alive, but it does not join
    bench.advance(1)
    assert set(bench.group().members) == {"m"}
    waiting = bench.join("late", protocols=wish(), session_ms=1_000, rebalance_ms=500)
    assert waiting.response.error_code == 0
    bench.advance(500)  # it joined, and does not sync
    assert set(bench.group().members) == {"m"}
    waiting = bench.join("quiet", protocols=wish(), session_ms=1_000, rebalance_ms=60_000)
    bench.sync("quiet", waiting.response.generation_id)
    bench.advance(1_000)
    assert set(bench.group().members) == {"m"}


def test_a_classic_member_hears_when_it_may_have_what_another_gave_up():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m", 0, topics=["a"]).member_epoch
    joined = bench.join("o", protocols=wish(), instance=None).response
    assert assignment(bench.sync("o", joined.generation_id).response.assignment) == set()
    kept = assigned(bench.beat("m", epoch, owned={bench.a: {0, 1, 2, 3}}))
    assert bench.heartbeat("o", joined.generation_id) == 0, "the other one still has them"
    bench.beat("m", epoch, owned=kept)
    assert bench.heartbeat("o", joined.generation_id) == Code.REBALANCE_IN_PROGRESS
    again = bench.join("o", protocols=wish()).response
    assert assignment(bench.sync("o", again.generation_id).response.assignment) == {0, 1, 2, 3} - kept[bench.a]
    assert bench.heartbeat("o", again.generation_id) == 0
    bench.beat("n", 0, topics=["a"])
    assert bench.sync("o", again.generation_id).response.error_code == Code.REBALANCE_IN_PROGRESS
    bench.advance(30_000)  # it joined no longer
    assert "o" not in bench.group().members


def mixed_group():
    """A member of each protocol, both of them static, and one more of the new protocol."""
    bench = ConsumerGroupBench(group_consumer_max_size=4)
    for member_id, instance in (("m", None), ("s", "x")):
        bench.beat(member_id, 0, topics=["a"], instance=instance)
    classic = bench.join(instance="y", protocols=wish()).response
    assert classic.error_code == 0
    return bench, classic.member_id, classic.generation_id


@each_row(
    ("options", "expected"),
    [
        ({}, Code.MEMBER_ID_REQUIRED),
        ({"version": 3}, 0),
        ({"member_id": "o"}, 0),
        ({"member_id": "o", "kind": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "o", "protocols": (("other", wish()[0][1]),)}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "o", "protocols": (("other", wish()[0][1]), *wish())}, 0),
        ({"member_id": "o", "protocols": (("range", b"\xff"),)}, Code.UNKNOWN_SERVER_ERROR),
        ({"member_id": "o", "instance": "z"}, Code.UNKNOWN_MEMBER_ID),
        ({"member_id": "o", "instance": "y"}, Code.FENCED_INSTANCE_ID),
        ({"instance": "y"}, 0),
        ({"instance": "z"}, 0),
    ],
)
def test_who_joins_a_mixed_group(options, expected):
    bench, _, _ = mixed_group()
    found = bench.join(**{"protocols": wish()} | options).response
    assert found.error_code == expected
    assert bool(found.member_id) == (expected in (0, Code.MEMBER_ID_REQUIRED)) and found.member_id in (
        options.get("member_id"),
        found.member_id,
    )
    assert len(bench.group().members) == 3 + (expected == 0 and options != {"instance": "y"})
    if options == {"version": 3}:
        assert bench.join("late", protocols=wish()).response.error_code == Code.GROUP_MAX_SIZE_REACHED
        assert bench.join(found.member_id, protocols=wish(), version=3).response.error_code == 0


def test_all_protocols_of_a_classic_member_are_kept():
    bench, _, _ = mixed_group()
    both = (*wish(), ("other", wish()[0][1]))
    bench.leave(("", "y"))
    assert bench.join("o", protocols=both, session_ms=9_000).response.protocol_name == "range"
    classic = bench.group().members["o"].classic
    assert [(each.name, bytes(each.metadata)) for each in classic.supported_protocols] == [*both]
    assert (classic.session_timeout_ms, bench.group().members["o"].rebalance_timeout_ms) == (9_000, 30_000)
    assert bench.join("p", protocols=both[1:]).response.error_code == 0, "all classic members know it"


@each_row(
    ("options", "expected"),
    [
        ({}, 0),
        ({"version": 4}, 0),
        ({"protocol_type": None}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "other"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"generation": 99}, Code.ILLEGAL_GENERATION),
        ({"instance": "z"}, Code.UNKNOWN_MEMBER_ID),
        ({"instance": "x"}, Code.FENCED_INSTANCE_ID),
        ({"member_id": "s", "instance": "x"}, Code.UNKNOWN_MEMBER_ID),
        ({"member_id": "m", "instance": None}, Code.UNKNOWN_MEMBER_ID),
        ({"member_id": "who", "instance": None}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_syncs_with_a_mixed_group(options, expected):
    bench, member_id, generation = mixed_group()
    known = {"member_id": member_id, "generation": generation, "instance": "y"} | options
    assert bench.sync(**known).response.error_code == expected
    if not {"protocol_type", "protocol_name"} & options.keys():
        assert bench.heartbeat(known["member_id"], known["generation"], instance=known["instance"]) == expected


def test_who_leaves_a_mixed_group_hears_what_became_of_it():
    bench, classic, _ = mixed_group()
    epoch = bench.group().epoch
    strangers = {("who", None): Code.UNKNOWN_MEMBER_ID, ("", "z"): Code.UNKNOWN_MEMBER_ID, ("who", "y"): Code.FENCED_INSTANCE_ID}
    members = {("m", None): 0, ("s", "x"): 0}
    for asked in (strangers, {**members, **strangers}):
        answer = bench.leave(*asked)
        assert answer.error_code == 0
        assert {(each.member_id, each.group_instance_id): each.error_code for each in answer.members} == asked
        assert asked is not strangers or (bench.group().epoch, len(bench.group().members)) == (epoch, 3)
    assert (bench.group().kind, [*bench.group().members]) == ("classic", [classic])
    bench, classic, _ = mixed_group()
    assert [each.error_code for each in bench.leave(("", "y")).members] == [0]
    assert (bench.group().kind, [*bench.group().members]) == ("consumer", ["m", "s"])
    assert bench.group().epoch > epoch


def test_a_downgrade_that_could_not_be_written_leaves_everybody_to_be_heard_of():
    bench = ConsumerGroupBench(group_consumer_session_timeout_ms=1_000)
    classic_group(bench, session_ms=1_000)
    bench.beat("m", 0, topics=["a"])
    with bench.no_appends():
        assert bench.beat("m", -1).error_code == Code.COORDINATOR_NOT_AVAILABLE
    bench.advance(1_000)
    assert not bench.group().members


def test_a_static_member_goes_back_to_the_classic_protocol():
    bench = ConsumerGroupBench()
    epoch = bench.beat("m", 0, topics=["a"], instance="x").member_epoch
    back = bench.join(instance="x", protocols=wish())
    assert (back.response.error_code, back.response.generation_id, bench.group().kind) == (0, epoch, "classic")
    member = bench.group().members[back.response.member_id]
    assert (member.instance_id, assignment(member.assignment)) == ("x", {0, 1, 2, 3})
    bench.reload()
    assert bench.heartbeat(back.response.member_id, epoch, instance="x") == 0


def test_a_static_member_that_goes_back_and_wants_something_else_makes_its_group_rebalance():
    bench = ConsumerGroupBench()
    bench.topic("b", 2)
    epoch = bench.beat("m", 0, topics=["a"], instance="x").member_epoch
    new_wish = (("range", encode_stored(ConsumerProtocolSubscription(topics=["b"]), 1)),)
    back = bench.join(instance="x", protocols=new_wish).response
    assert (back.error_code, back.generation_id, bench.group().state_name) == (0, 0, "PreparingRebalance")
    assert bench.sync(back.member_id, 0, instance="x").response.error_code == Code.ILLEGAL_GENERATION
    again = bench.join(back.member_id, instance="x", protocols=new_wish)
    bench.advance()
    assert (again.response.generation_id, again.response.leader) == (epoch + 1, back.member_id)


def test_a_static_member_that_goes_back_learns_of_topics_that_grew_meanwhile():
    bench = ConsumerGroupBench(partitions=1)
    bench.beat("m", 0, topics=["a"], instance="x")
    create_partitions(bench.state.controller, "a", 2)
    bench.join(instance="x", protocols=wish())
    assert bench.group().state_name == "PreparingRebalance"


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_groups_stay_what_they_are_where_that_is_configured(policy):
    bench = ConsumerGroupBench(group_consumer_migration_policy=policy)
    classic_group(bench)
    assert bench.beat("m", 0, topics=["a"]).error_code == Code.GROUP_ID_NOT_FOUND
    bench.beat("n", 0, topics=["a"], group="h")
    expected = Code.INCONSISTENT_GROUP_PROTOCOL if policy == "disabled" else 0
    assert bench.join("o", group="h", protocols=wish()).response.error_code == expected


def test_classic_groups_that_cannot_become_consumer_groups():
    bench = ConsumerGroupBench()
    waiting = bench.join(bench.known_id(kind="connect"), kind="connect")
    bench.advance()
    assert waiting.response.error_code == 0
    assert "does not use the consumer embedded protocol" in bench.beat("m", 0, topics=["a"]).error_message
    other = bench.join(bench.known_id(group="h"), group="h")
    bench.advance()
    assert other.response.error_code == 0
    assert "is malformed" in bench.beat("m", 0, topics=["a"], group="h").error_message
    bench = ConsumerGroupBench(group_consumer_max_size=1)
    bench.stable("a", "b", protocols=wish())
    assert "exceeds the consumer group maximum size" in bench.beat("m", 0, topics=["a"]).error_message
    bench = ConsumerGroupBench()
    member = bench.known_id(protocols=wish())
    waiting = bench.join(member, protocols=wish())
    bench.advance()
    bench.sync(member, waiting.response.generation_id, {member: encode_stored(ConsumerProtocolAssignment(user_data=b"x"), 1)})
    assert "unsupported custom assignor" in bench.beat("m", 0, topics=["a"]).error_message
    assert bench.group().kind == "classic"
