"""Classic groups: states, generations, member ids, static members, sessions, and what a new coordinator knows."""

import pytest
from group_bench import GroupBench, subscription

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.groups.classic import ClassicGroup, ClassicGroupState, ClassicMember
from kafkacore.broker.internal_topics import GROUP_TOPIC
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, IllegalStateError
from tests.kit.rows import each_row


def code(pending):
    return pending.response.error_code


def test_an_id_that_nobody_came_back_with_is_forgotten():
    bench = GroupBench()
    first, second = bench.known_id(session_ms=100), bench.known_id()
    bench.advance(100)
    assert code(bench.join(first)) == Code.UNKNOWN_MEMBER_ID
    waiting = bench.join(second)
    bench.advance()
    assert code(waiting) == Code.NONE


def test_the_first_rebalance_is_not_put_off_beyond_the_rebalance_timeout():
    bench = GroupBench(group_initial_rebalance_delay_ms=100)
    joins = []
    for _ in range(4):
        joins.append(bench.join(bench.known_id(), rebalance_ms=250))
        bench.advance(90)
    assert [each.waits for each in joins] == [False, False, False, True]
    assert {each.response.generation_id for each in joins[:3]} == {1}


def test_a_new_member_begins_a_rebalance_and_the_others_learn_by_their_heartbeats():
    bench = GroupBench()
    generation, (first,), _ = bench.stable("a")
    assert bench.heartbeat(first, generation) == 0
    joining = bench.join(bench.known_id())
    assert joining.waits
    assert bench.heartbeat(first, generation) == Code.REBALANCE_IN_PROGRESS
    assert code(bench.sync(first, generation)) == Code.REBALANCE_IN_PROGRESS
    rejoining = bench.join(first)
    assert (code(joining), code(rejoining), joining.response.generation_id) == (0, 0, generation + 1)
    assert bench.heartbeat(first, generation) == Code.ILLEGAL_GENERATION
    assert bench.heartbeat(first, generation + 1) == 0


def test_who_does_not_join_again_in_time_is_out():
    bench = GroupBench()
    generation, (slow, quick), _ = bench.stable("a", "b", rebalance_ms=1_000)
    waiting = bench.join(quick, protocols=(("range", b"changed"),), rebalance_ms=1_000)
    while waiting.waits:
        assert bench.heartbeat(slow, generation) == Code.REBALANCE_IN_PROGRESS  # alive, but busy
        bench.advance(100)
    assert (waiting.response.generation_id, [each.member_id for each in waiting.response.members]) == (generation + 1, [quick])
    assert bench.heartbeat(slow, generation + 1) == Code.UNKNOWN_MEMBER_ID


def test_who_does_not_fetch_its_assignment_in_time_is_out():
    bench = GroupBench()
    ids = [bench.known_id(rebalance_ms=1_000) for _ in range(2)]
    joins = [bench.join(each, rebalance_ms=1_000) for each in ids]
    bench.advance()
    leader = joins[0].response.leader
    bench.sync(leader, 1, dict.fromkeys(ids, b"x"))
    assert bench.group().state_name == "Stable"
    bench.advance(999)
    assert set(bench.group().members) == set(ids)
    bench.heartbeat(leader, 1)
    bench.advance(1)
    assert set(bench.group().members) == {leader}
    assert bench.group().state_name == "PreparingRebalance"


def test_a_session_ends_and_the_others_take_over():
    bench = GroupBench()
    generation, (dead, alive), _ = bench.stable("a", "b", session_ms=1_000)
    for _ in range(4):
        bench.advance(250)
        last = bench.heartbeat(alive, generation)
    assert last == Code.REBALANCE_IN_PROGRESS
    waiting = bench.join(alive)
    assert (waiting.response.generation_id, waiting.response.leader) == (generation + 1, alive)
    assert dead not in bench.group().members


def test_a_waiting_join_keeps_a_member_alive():
    bench = GroupBench()
    generation, (first, second), _ = bench.stable("a", "b", session_ms=1_000, rebalance_ms=10_000)
    waiting = bench.join(first, protocols=(("range", b"changed"),), session_ms=1_000, rebalance_ms=10_000)
    for _ in range(30):
        bench.advance(100)
        assert bench.heartbeat(second, generation) == Code.REBALANCE_IN_PROGRESS
    assert waiting.waits
    bench.join(second, session_ms=1_000, rebalance_ms=10_000)
    assert (code(waiting), waiting.response.generation_id) == (0, generation + 1)


def test_a_follower_that_joins_unchanged_is_told_what_is_and_a_leader_makes_a_rebalance():
    bench = GroupBench()
    generation, ids, leader = bench.stable("a", "b")
    follower = next(each for each in ids if each != leader)
    assert bench.join(follower).response.generation_id == generation
    assert bench.group().state_name == "Stable"
    assert bench.join(leader).waits
    assert bench.group().state_name == "PreparingRebalance"


def test_joining_again_unchanged_while_the_assignment_is_awaited_starts_nothing():
    bench = GroupBench()
    ids = [bench.known_id() for _ in range(2)]
    joins = [bench.join(each) for each in ids]
    bench.advance()
    leader = joins[0].response.leader
    again = [bench.join(each).response for each in ids]
    assert [(each.generation_id, len(each.members)) for each in again] == [(1, 2 if each == leader else 0) for each in ids]
    follower = next(each for each in ids if each != leader)
    parked = bench.sync(follower, 1)
    changed = bench.join(leader, protocols=(("range", b"new"),))
    assert (code(parked), changed.waits) == (Code.REBALANCE_IN_PROGRESS, True)


def test_leaving_and_being_removed():
    bench = GroupBench()
    generation, ids, leader = bench.stable("a", "b")
    follower = next(each for each in ids if each != leader)
    answer = bench.leave((leader, None), ("nobody", None))
    assert [each.error_code for each in answer.members] == [0, Code.UNKNOWN_MEMBER_ID]
    assert bench.heartbeat(follower, generation) == Code.REBALANCE_IN_PROGRESS
    assert bench.join(follower).response.leader == follower
    bench.leave((follower, None))
    assert (bench.group().state_name, bench.group().generation) == ("Empty", generation + 2)
    assert bench.ask(p.LeaveGroupRequest(group_id="g", member_id=follower), 2).error_code == Code.UNKNOWN_MEMBER_ID
    pending = bench.known_id()
    assert [each.error_code for each in bench.leave((pending, None)).members] == [0]
    assert [each.error_code for each in bench.leave((pending, None), group="none").members] == [Code.UNKNOWN_MEMBER_ID]


def test_a_member_that_waits_and_leaves_is_answered():
    bench = GroupBench()
    _, (first, _), _ = bench.stable("a", "b")
    waiting = bench.join(first, protocols=(("range", b"changed"),))
    bench.leave((first, None))
    assert code(waiting) == Code.UNKNOWN_MEMBER_ID


def test_members_that_wait_for_their_assignment_and_leave_are_answered():
    bench = GroupBench()
    joins = [bench.join(version=3) for _ in range(3)]
    bench.advance(3_000)
    answers = [each.response for each in joins]
    followers = [each.member_id for each in answers if each.member_id != each.leader]
    syncs = [bench.sync(member_id, 1) for member_id in followers]
    assert all(each.waits for each in syncs)
    bench.leave((followers[0], None))
    assert [code(each) for each in syncs] == [Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS]
    assert list(bench.group().members) == [each.member_id for each in answers if each.member_id != followers[0]]


@each_row(
    ("options", "expected"),
    [
        ({"group": ""}, Code.INVALID_GROUP_ID),
        ({"session_ms": 999}, Code.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, Code.INVALID_SESSION_TIMEOUT),
        ({"kind": ""}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "unknown"}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused(options, expected):
    bench = GroupBench(group_min_session_timeout_ms=1_000)
    assert code(bench.join(**options)) == expected


def test_joins_that_do_not_fit_the_group():
    bench = GroupBench()
    _, (member,), _ = bench.stable("a")
    assert code(bench.join(kind="connect")) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert code(bench.join(protocols=(("sticky", b""),))) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert code(bench.join(member, protocols=(("sticky", b""),))) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert code(bench.join("unknown")) == Code.UNKNOWN_MEMBER_ID
    assert code(bench.sync(member, 1, protocol_type="connect")) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert code(bench.sync(member, 1, protocol_name="sticky")) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert code(bench.sync(member, 2)) == Code.ILLEGAL_GENERATION
    assert code(bench.sync("unknown", 1)) == Code.UNKNOWN_MEMBER_ID
    assert code(bench.sync(member, 1, group="none")) == Code.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(member, 1, group="none") == Code.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("unknown", 1) == Code.UNKNOWN_MEMBER_ID


def test_the_protocol_all_know_and_most_like_best_is_chosen():
    bench = GroupBench()
    wishes = [(("a", b"1"), ("b", b"1"), ("c", b"1")), (("b", b"2"), ("a", b"2")), (("b", b"3"), ("a", b"3"), ("d", b"3"))]
    ids = [bench.known_id(protocols=wish) for wish in wishes]
    joins = [bench.join(each, protocols=wish) for each, wish in zip(ids, wishes, strict=True)]
    bench.advance()
    assert {each.response.protocol_name for each in joins} == {"b"}
    leader = joins[0].response
    assert {each.metadata for each in leader.members} == {b"1", b"2", b"3"}


def test_a_group_has_a_largest_size():
    bench = GroupBench(group_max_size=2)
    _, ids, _ = bench.stable("a", "b")
    assert code(bench.join()) == Code.GROUP_MAX_SIZE_REACHED
    waiting = [bench.join(each, protocols=(("range", b"changed"),)) for each in ids]
    assert [code(each) for each in waiting] == [0, 0]


# ---- static members


def static(bench, *names, **options):
    joins = {name: bench.join(instance=name, **options) for name in names}
    bench.advance()
    ids = {name: each.response.member_id for name, each in joins.items()}
    generation, leader = next(iter(joins.values())).response.generation_id, next(iter(joins.values())).response.leader
    for name, member_id in sorted(ids.items(), key=lambda each: each[1] != leader):
        bench.sync(member_id, generation, {each: each.encode() for each in ids.values()}, instance=name)
    assert bench.group().state_name == "Stable"
    return generation, ids, leader


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_member_comes_back_under_a_new_id_without_a_rebalance(version):
    bench = GroupBench()
    generation, ids, leader = static(bench, "x", "y")
    follower = next(name for name, member_id in ids.items() if member_id != leader)
    back = bench.join(instance=follower, version=version).response
    assert (back.error_code, back.generation_id, back.skip_assignment) == (0, generation, False)
    assert back.member_id != ids[follower]
    assert bench.group().state_name == "Stable"
    assert bench.sync(back.member_id, generation, instance=follower).response.assignment == ids[follower].encode()
    assert bench.heartbeat(ids[follower], generation, instance=follower) == Code.FENCED_INSTANCE_ID
    assert bench.heartbeat(back.member_id, generation, instance=follower) == 0
    bench.reload()
    assert bench.heartbeat(back.member_id, generation, instance=follower) == 0


def test_a_static_leader_that_comes_back_keeps_the_assignment():
    bench = GroupBench()
    generation, ids, leader = static(bench, "x", "y")
    name = next(name for name, member_id in ids.items() if member_id == leader)
    back = bench.join(instance=name).response
    assert (back.generation_id, back.leader, back.skip_assignment, len(back.members)) == (generation, back.member_id, True, 2)
    old = bench.join(instance=name, version=8).response
    assert (old.generation_id, old.leader, old.members) == (generation, back.member_id, [])  # so that it does not assign


def test_a_static_member_whose_new_id_is_not_written_stays_what_it_was():
    bench = GroupBench()
    generation, ids, _ = static(bench, "x", "y", session_ms=1_000)
    member = bench.group().members[ids["x"]]
    before = dict(member.protocols), member.session_timeout_ms, member.rebalance_timeout_ms
    with bench.no_appends():
        refused = bench.join(instance="x", protocols=(("range", b"new"), ("other", b"")), session_ms=2_000, rebalance_ms=3_000)
    assert code(refused) == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.group().members[ids["x"]] is member
    assert (dict(member.protocols), member.session_timeout_ms, member.rebalance_timeout_ms) == before
    assert bench.group().joined_count() == 0
    bench.advance(999)
    assert (bench.heartbeat(ids["y"], generation, instance="y"), len(bench.group().members)) == (0, 2)
    bench.advance(1)
    assert list(bench.group().static_members) == ["y"]


def test_a_static_member_survives_a_rebalance_it_misses():
    bench = GroupBench()
    _, ids, _ = static(bench, "x", "y", rebalance_ms=500, session_ms=60_000)
    waiting = bench.join(ids["x"], instance="x", protocols=(("range", b"new"),), rebalance_ms=500, session_ms=60_000)
    bench.advance(500)
    assert {each.group_instance_id for each in waiting.response.members} == {"x", "y"}
    assert bench.group().leader == ids["x"]


def test_static_members_are_removed_by_instance_id():
    bench = GroupBench()
    generation, ids, _ = static(bench, "x", "y")
    answer = bench.leave(("", "x"), ("", "z"), ("wrong", "y"))
    assert [each.error_code for each in answer.members] == [0, Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID]
    assert set(bench.group().members) == {ids["y"]}
    assert bench.heartbeat(ids["y"], generation, instance="y") == Code.REBALANCE_IN_PROGRESS


def test_two_that_claim_one_instance_id():
    bench = GroupBench()
    generation, ids, _ = static(bench, "x")
    waiting = bench.join(ids["x"], instance="x", protocols=(("range", b"new"),))
    assert code(waiting) == 0
    generation += 1
    second = bench.join(instance="x")
    bench.advance()
    assert code(second) == 0
    assert code(bench.join(ids["x"], instance="x")) == Code.FENCED_INSTANCE_ID
    assert code(bench.sync(ids["x"], generation, instance="x")) == Code.FENCED_INSTANCE_ID
    assert bench.commit({("t", 0): 1}, member=ids["x"], generation=generation, instance="x") == {("t", 0): Code.UNKNOWN_TOPIC_OR_PARTITION}


# ---- the log


def test_a_new_coordinator_knows_the_last_generation_and_gives_everybody_a_session():
    bench = GroupBench()
    generation, ids, leader = bench.stable("a", "b", session_ms=1_000)
    before = bench.group()
    bench.advance(900)
    bench.reload()
    after = bench.group()
    assert after is not before
    assert (after.state_name, after.generation, after.leader, after.protocol_name) == ("Stable", generation, leader, "range")
    assert {member_id: member.assignment for member_id, member in after.members.items()} == {each: each.encode() for each in ids}
    bench.advance(900)
    assert [bench.heartbeat(each, generation) for each in ids] == [0, 0]
    bench.advance(1_000)
    assert not bench.group().members


def test_a_group_that_could_not_be_written_down_is_not_there():
    bench = GroupBench(group_initial_rebalance_delay_ms=0)
    with bench.no_appends():
        waiting = bench.join(version=3)
        bench.advance()
    assert waiting.response.error_code == Code.COORDINATOR_NOT_AVAILABLE
    again = bench.join(version=3)
    bench.advance()
    assert again.response.leader == again.response.member_id  # nobody leads whom no client knows


def test_who_waits_is_sent_to_the_new_coordinator():
    bench = GroupBench()
    generation, (first, second), _ = bench.stable("a", "b")
    waiting = bench.join(first, protocols=(("range", b"changed"),))
    bench.state.stopping()
    assert code(waiting) == Code.NOT_COORDINATOR
    assert code(bench.join(first)) == Code.NOT_COORDINATOR
    bench.reload()
    # The rebalance is forgotten; the generation before it stands, and who asks for another gets it.
    again = [bench.join(each) for each in (first, second)]
    assert {each.response.generation_id for each in again if each.response} <= {generation, generation + 1}


def test_a_group_that_nobody_came_back_to_is_in_the_log_and_ends_with_its_offsets():
    bench = GroupBench()
    bench.known_id(session_ms=100)
    assert bench.group().state_name == "Empty"
    bench.reload()
    assert (bench.group().state_name, bench.group().generation) == ("Empty", 0)
    bench.advance(600_000)
    assert bench.group() is None
    bench.reload()
    assert bench.group() is None


# ---- looking


def described_group(bench, version=5, **options):
    (group,) = bench.ask(p.DescribeGroupsRequest(groups=["g"], **options), version).groups
    return group


def test_describing_a_group():
    bench = GroupBench()
    _, ids, _ = bench.stable("a", "b", protocols=(("range", subscription("t")),))
    group = described_group(bench, include_authorized_operations=True)
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (0, "Stable", "consumer", "range")
    assert {(each.member_id, each.client_id, each.client_host, each.member_assignment) for each in group.members} == {
        (each, "client", "/127.0.0.1", each.encode()) for each in ids
    }
    assert {each.member_metadata for each in group.members} == {subscription("t")}
    assert group.authorized_operations == sum(1 << each for each in (3, 6, 8, 10, 11))
    bench.join(ids[0], protocols=(("range", subscription("u")),))
    group = described_group(bench)
    assert (group.group_state, group.protocol_data, {each.member_metadata for each in group.members}) == ("PreparingRebalance", "", {b""})
    missing = GroupBench()
    assert [(each.error_code, each.group_state) for each in (described_group(missing), described_group(missing, 6))] == [
        (0, "Dead"),
        (Code.GROUP_ID_NOT_FOUND, "Dead"),
    ]


def test_listing_groups():
    bench = GroupBench()
    bench.topic("t")
    bench.stable("a")
    bench.commit({("t", 0): 5}, group="simple")

    def listed(version=5, **filters):
        answer = bench.ask(p.ListGroupsRequest(**filters), version)
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}

    assert listed() == {"g": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
    assert set(listed(0)) == {"g", "simple"}
    assert set(listed(states_filter=["stable"])) == {"g"}
    assert set(listed(states_filter=["EMPTY", "Dead"])) == {"simple"}
    assert set(listed(types_filter=["Classic"])) == {"g", "simple"}
    assert set(listed(types_filter=["consumer"])) == set()


def test_deleting_groups():
    bench = GroupBench()
    bench.topic("t")
    _, (member,), _ = bench.stable("a")
    bench.commit({("t", 0): 5}, group="simple")

    def delete(*names):
        return {each.group_id: each.error_code for each in bench.ask(p.DeleteGroupsRequest(groups_names=list(names)), 2).results}

    assert delete("g", "simple", "none") == {"g": Code.NON_EMPTY_GROUP, "simple": 0, "none": Code.GROUP_ID_NOT_FOUND}
    assert bench.fetch(("t", 0), group="simple") == {("t", 0): -1}
    bench.leave((member, None))
    assert delete("g") == {"g": 0}
    bench.reload()
    assert not bench.shard.groups


# ---- the machine


def test_moves_that_are_not_in_the_table_raise():
    group = ClassicGroup("g", ClassicGroupState.EMPTY, 0)
    for state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY):
        with pytest.raises(IllegalStateError):
            group.transition_to(state, 1)
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 1)
    group.transition_to(ClassicGroupState.DEAD, 2)
    group.transition_to(ClassicGroupState.DEAD, 3)
    with pytest.raises(IllegalStateError):
        group.transition_to(ClassicGroupState.EMPTY, 4)


def test_a_dead_group_serves_nothing():
    group = ClassicGroup("g", ClassicGroupState.DEAD, 0)
    found = []
    for ask in (lambda: group.validate_offset_commit("", None, -1, False), group.validate_offset_delete, group.validate_delete):
        with pytest.raises(errors.BrokerError) as refused:
            ask()
        found.append(refused.value.code)
    assert found == [Code.COORDINATOR_NOT_AVAILABLE, Code.GROUP_ID_NOT_FOUND, Code.GROUP_ID_NOT_FOUND]
    bench = GroupBench()
    bench.stable("a")
    bench.group().transition_to(ClassicGroupState.DEAD, 1)
    for member_id in ("", "who"):
        answer = bench.join(member_id).response
        assert (answer.error_code, answer.member_id) == (Code.COORDINATOR_NOT_AVAILABLE, member_id)


def test_a_group_with_members_is_neither_deleted_nor_are_offsets_that_only_it_knows_of():
    """What members of another protocol than the consumers' read is not known."""
    for kind, expected in (("consumer", [Code.NON_EMPTY_GROUP]), ("connect", [Code.NON_EMPTY_GROUP] * 2)):
        bench = GroupBench()
        bench.join(bench.known_id(kind=kind), kind=kind)
        bench.advance()
        found = []
        for ask in (bench.group().validate_delete, bench.group().validate_offset_delete):
            try:
                ask()
            except errors.GroupNotEmpty as error:
                found.append(error.code)
        assert found == expected
    with pytest.raises(errors.UnknownMemberId, match="instance id 'x'"):
        bench.group().validate_member("m", "x")


@each_row("leader", [None, "other", "a", "b"])
@each_row("joined", ["", "b", "ab"])
def test_a_member_leads_that_has_joined(leader, joined):
    group = ClassicGroup("g", ClassicGroupState.EMPTY, 0)
    for name in "ab":
        group.add(ClassicMember(name, None, "client", "host", 1, 1, "consumer", []), (lambda answer: None) if name in joined else None)
    group.leader = leader
    is_member = leader in ("a", "b")
    assert group.elect_joined_leader() == (is_member and bool(joined))
    assert group.leader == (leader if not is_member or not joined or leader in joined else "b")


def test_static_members_that_miss_a_rebalance_together_are_waited_for_again():
    bench = GroupBench()
    generation, ids, _ = static(bench, "x", "y", rebalance_ms=500, session_ms=60_000)
    bench.leave(("", "y"))
    for _ in range(2):
        bench.advance(500)
        assert (bench.group().state_name, list(bench.group().members)) == ("PreparingRebalance", [ids["x"]])
    back = bench.join(ids["x"], instance="x", rebalance_ms=500, session_ms=60_000).response
    assert (back.error_code, back.generation_id, back.leader) == (0, generation + 1, ids["x"])


def test_an_empty_consumer_group_makes_room_only_for_what_is_written():
    bench = GroupBench()
    bench.beat("m", 0, topics=["a"])
    bench.beat("m", -1)
    with bench.no_appends():
        assert code(bench.join(version=3)) == Code.COORDINATOR_NOT_AVAILABLE
    assert (bench.group().kind, bench.heartbeat("m", 1)) == ("consumer", Code.UNKNOWN_MEMBER_ID)
    assert bench.leave(("m", None)).members[0].error_code == Code.UNKNOWN_MEMBER_ID
    assert code(bench.join("m")) == Code.UNKNOWN_MEMBER_ID
    waiting = bench.join(version=3)
    bench.advance()
    assert (code(waiting), bench.group().kind) == (0, "classic")


WITHOUT_A_NAME = [
    (p.JoinGroupRequest(session_timeout_ms=10_000), 9),
    (p.SyncGroupRequest(), 4),
    (p.HeartbeatRequest(), 4),
    (p.LeaveGroupRequest(members=[p.MemberIdentity(member_id="m")]), 5),
    (
        p.OffsetDeleteRequest(
            topics=[p.OffsetDeleteRequestTopic(name="t", partitions=[p.OffsetDeleteRequestPartition(partition_index=0)])]
        ),
        0,
    ),
]


@each_row(("request", "version"), WITHOUT_A_NAME, ids=[type(request).__name__ for request, _ in WITHOUT_A_NAME])
def test_a_group_without_a_name_is_refused_and_one_that_is_loaded_is_waited_for(request, version):
    """A heartbeat hears that all is well while the group is loaded: its member need do nothing."""
    bench = GroupBench()
    bench.topic("t")
    runtime = bench.state.groups.runtime
    runtime.write = lambda partition, operation, done, *rest: done(errors.CoordinatorLoadInProgress(""))
    expected = [Code.INVALID_GROUP_ID, 0 if isinstance(request, p.HeartbeatRequest) else Code.COORDINATOR_LOAD_IN_PROGRESS]
    assert [bench.ask(request._replace(group_id=name), version).error_code for name in ("", "g")] == expected


def test_nothing_waits_for_a_group_that_has_left_this_broker():
    bench = GroupBench()
    _, (first, _), _ = bench.stable("a", "b")
    bench.join(first, protocols=(("range", b"changed"),))
    bench.known_id()
    joining = bench.join(bench.known_id(group="h"), group="h")
    bench.advance()
    assert joining.response.error_code == 0, "it has to sync"
    waits = bench.state.groups.purgatories.both()
    assert all(each.num_delayed() for each in waits)
    bench.state.groups.runtime.resigned(GROUP_TOPIC, 0)
    assert [each.num_delayed() for each in waits] == [0, 0]


def test_a_list_is_of_all_partitions_and_none_while_one_is_loaded():
    bench = GroupBench()
    bench.stable("a")
    groups = bench.state.groups
    read, outcomes = groups.runtime.read_committed, [errors.NotCoordinator(""), None, errors.CoordinatorLoadInProgress("")]
    groups.runtime.read_committed = lambda index, look, done: done(outcomes[index]) if outcomes[index] else read(0, look, done)
    found = []
    for count in (1, 2, 3):
        groups.runtime.held = lambda count=count: range(count)
        answer = bench.ask(p.ListGroupsRequest(), 5)
        found.append((answer.error_code, [group.group_id for group in answer.groups]))
    assert found == [(0, []), (0, ["g"]), (Code.COORDINATOR_LOAD_IN_PROGRESS, [])]


def test_other_settings_hold_for_groups_that_are_there():
    bench = GroupBench()
    _, (member,), _ = bench.stable("a")
    bench.state.groups.set_config(BrokerConfig(group_max_size=1, group_max_session_timeout_ms=20_000))
    assert [code(bench.join(session_ms=ms)) for ms in (20_000, 20_001)] == [Code.GROUP_MAX_SIZE_REACHED, Code.INVALID_SESSION_TIMEOUT]
    bench.state.groups.close()
    assert bench.heartbeat(member, 1) == Code.NOT_COORDINATOR
