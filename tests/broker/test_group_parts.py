"""The parts of consumer groups that are plain functions: assignors, one member's next step, regular expressions."""

import itertools
import random
import re
import zlib

import pytest
from group_bench import names_without_likeness
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.broker.groups import topic_regex
from kafkacore.broker.groups.assignors import ASSIGNORS, MemberSpec, _Balancer, range_, uniform
from kafkacore.broker.groups.classic import ClassicGroup, ClassicGroupState, ClassicMember
from kafkacore.broker.groups.consumer import ConsumerGroup, ConsumerMember, MemberState, ResolvedRegex, owned_of
from kafkacore.broker.groups.reconcile import next_step
from kafkacore.broker.groups.regex_resolver import ASK_AGAIN_MS, BURST_COST, COST_PER_MS, MAX_EXPRESSIONS, RegexResolver
from kafkacore.broker.groups.topic_regex import Matching, Regex
from kafkacore.clock import ManualClock
from kafkacore.errors import BrokerError, Code, InvalidRegularExpression
from kafkacore.protocol import JoinGroupRequestProtocol
from kafkacore.protocol.stored import ClassicMemberMetadata, ConsumerProtocolSubscription, CurrentTopicPartitions, encode_stored
from tests.kit.inside import expressions_of
from tests.kit.rows import each_row

TOPICS = [bytes([n]) * 16 for n in range(4)]
T0, T1 = TOPICS[:2]

# ---- assignors


@st.composite
def groups(draw):
    """Members, what they want, and what they were to have: disjoint, and perhaps of topics they want no more or that shrank."""
    sizes = {topic: draw(st.integers(0, 7)) for topic in TOPICS}
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True))
    same = draw(st.booleans())
    wants = {name: draw(st.frozensets(st.sampled_from(TOPICS))) for name in names}
    if same:
        wants = dict.fromkeys(names, next(iter(wants.values())))
    had = {name: {} for name in names}
    for topic in TOPICS:
        for partition in range(sizes[topic] + draw(st.integers(0, 1))):
            owner = draw(st.sampled_from([*names, None]))
            if owner is not None:
                had[owner].setdefault(topic, set()).add(partition)
    instances = {name: draw(st.sampled_from([None, f"i-{name}"])) for name in names}
    return {
        name: MemberSpec(wants[name], {topic: frozenset(parts) for topic, parts in had[name].items()}, instances[name]) for name in names
    }, sizes


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_every_partition_that_somebody_wants_goes_to_exactly_one_who_wants_it(name, group):
    members, sizes = group
    result = ASSIGNORS[name](members, sizes)
    given_out = [(topic, partition) for parts in result.values() for topic, indexes in parts.items() for partition in indexes]
    wanted = {topic for spec in members.values() for topic in spec.topics}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {(topic, partition) for topic in wanted for partition in range(sizes[topic])}
    assert all(parts.keys() <= members[member_id].topics for member_id, parts in result.items())
    assert ASSIGNORS[name](members, sizes) == result


def random_groups(count):
    """As `groups`, by chance; members of every second one want the same."""
    for seed in range(count):
        chance = random.Random(seed)
        sizes = {topic: chance.randint(0, 7) for topic in TOPICS}
        names = chance.sample("abcdefgh", chance.randint(1, 6))
        same = frozenset(chance.sample(TOPICS, chance.randint(0, 4)))
        wants = {name: same if seed % 2 else frozenset(chance.sample(TOPICS, chance.randint(0, 4))) for name in names}
        instances = {name: f"i-{name}" if chance.random() < 0.3 else None for name in names}
        had = {name: {} for name in names}
        for topic in TOPICS:
            for partition in range(sizes[topic] + chance.randint(0, 1)):
                if (owner := chance.choice([*names, None])) is not None:
                    had[owner].setdefault(topic, set()).add(partition)
        yield (
            {name: MemberSpec(wants[name], {t: frozenset(found) for t, found in had[name].items()}, instances[name]) for name in names},
            sizes,
        )


@pytest.mark.parametrize(("name", "expected"), [("uniform", 3630465408), ("range", 893184793)])
def test_each_coordinator_assigns_in_the_same_way(name, expected):
    """A group moves between brokers of several releases: another choice among equally good ones would move partitions each time."""
    found = [ASSIGNORS[name](members, sizes) for members, sizes in random_groups(60)]
    said = [sorted((member, sorted((t[0], sorted(parts)) for t, parts in mine.items())) for member, mine in each.items()) for each in found]
    assert zlib.crc32(repr(said).encode()) == expected


def load(parts):
    return sum(len(indexes) for indexes in parts.values())


@given(group=groups())
def test_uniform_is_balanced_as_far_as_the_subscriptions_allow(group):
    members, sizes = group
    result = uniform(members, sizes)
    if len({spec.topics for spec in members.values()}) == 1:
        assert max(map(load, result.values())) - min(map(load, result.values())) <= 1
    for giver, parts in result.items():
        for topic in parts:
            for taker, spec in members.items():
                assert topic not in spec.topics or load(parts) - load(result[taker]) <= 1, f"{giver} could give {topic} to {taker}"


@given(group=groups())
def test_uniform_leaves_a_balanced_group_alone(group):
    members, sizes = group
    first = uniform(members, sizes)
    again = {
        name: spec._replace(assigned={topic: frozenset(parts) for topic, parts in first[name].items()}) for name, spec in members.items()
    }
    assert uniform(again, sizes) == first


def test_uniform_moves_no_more_than_it_must():
    both = frozenset({T0, T1})
    members = {"a": MemberSpec(both, {T0: frozenset(range(3)), T1: frozenset(range(3))}), "b": MemberSpec(both, {})}
    result = uniform(members, {T0: 3, T1: 3})
    assert (load(result["a"]), load(result["b"])) == (3, 3)
    assert all(result["a"].get(topic, set()) <= set(range(3)) for topic in both)
    three = {name: spec._replace(assigned={t: frozenset(p) for t, p in result[name].items()}) for name, spec in members.items()}
    three["c"] = MemberSpec(both, {})
    moved = uniform(three, {T0: 3, T1: 3})
    assert [load(moved[name]) for name in "abc"] == [2, 2, 2]
    assert all(moved[name].get(topic, set()) <= result[name].get(topic, set()) for name in "ab" for topic in both)


def test_range_keeps_partitions_of_one_number_together():
    both = frozenset({T0, T1})
    members = {"m2": MemberSpec(both, {}), "m1": MemberSpec(both, {}), "m3": MemberSpec(both, {}, "static")}
    assert range_(members, {T0: 4, T1: 4}) == {
        "m3": {T0: {0, 1}, T1: {0, 1}},  # static members come first
        "m1": {T0: {2}, T1: {2}},
        "m2": {T0: {3}, T1: {3}},
    }
    assert range_({"a": MemberSpec(frozenset({T0}), {}), "b": MemberSpec(both, {})}, {T0: 2, T1: 2}) == {
        "a": {T0: {0}},
        "b": {T0: {1}, T1: {0, 1}},
    }
    assert range_({}, {}) == {}


# ---- the next step


def step(member, target, *, epoch=5, owned=None, holders=None, subscribed=(T0, T1), changed=False):
    held = holders or {}
    return next_step(
        member,
        epoch,
        {topic: frozenset(parts) for topic, parts in target.items()},
        frozenset(subscribed),
        changed,
        None if owned is None else {topic: frozenset(parts) for topic, parts in owned.items()},
        lambda topic, partition: held.get((topic, partition)),
    )


def test_steps_of_one_member():
    new = ConsumerMember("m")
    full = step(new, {T0: {0, 1}})
    assert (full.epoch, full.previous_epoch, full.state, full.assigned) == (5, 0, MemberState.STABLE, {T0: {0: 5, 1: 5}})
    assert step(full, {T0: {0, 1}}) is full
    less = step(full, {T0: {1}}, epoch=6, owned={T0: {0, 1}})
    assert (less.epoch, less.state) == (5, MemberState.UNREVOKED_PARTITIONS)
    assert (less.assigned, less.pending_revocation) == ({T0: {1: 5}}, {T0: {0: 5}})
    assert step(less, {T0: {1}}, epoch=6, owned={T0: {0, 1}}) is less
    assert step(less, {T0: {1}}, epoch=6) is less
    done = step(less, {T0: {1}}, epoch=6, owned={T0: {1}})
    assert (done.epoch, done.previous_epoch, done.state, done.pending_revocation) == (6, 5, MemberState.STABLE, {})
    # The target may bring back what it was giving up.
    back = step(less, {T0: {0, 1}}, epoch=7, owned={T0: {1}}, holders={(T0, 0): "m"})
    assert (back.state, back.assigned) == (MemberState.STABLE, {T0: {1: 5, 0: 7}})
    waits = step(new, {T0: {0, 1}}, holders={(T0, 0): "other"})
    assert (waits.epoch, waits.state, waits.assigned) == (5, MemberState.UNRELEASED_PARTITIONS, {T0: {1: 5}})
    assert step(waits, {T0: {0, 1}}).assigned == {T0: {1: 5, 0: 5}}
    gone = step(full, {T0: {0, 1}}, changed=True, subscribed=(T1,), owned={T0: {0, 1}})
    assert (gone.state, gone.assigned, gone.pending_revocation) == (MemberState.UNREVOKED_PARTITIONS, {}, {T0: {0: 5, 1: 5}})
    assert step(full, {T0: {0, 1}}, changed=True, subscribed=(T1,), owned={}).assigned == {}


# ---- regular expressions

NAME = "abcXYZ019._-"
ATOMS = st.sampled_from(
    ["a", "b", "c", "X", "0", "9", ".", r"\.", "-", "_", r"\d", r"\w", r"\W", "[a-c]", "[^a-c]", "[0-9_.-]", r"[\d]", "(?:)"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda each: f"({each})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?"])).map(lambda each: f"(?:{each[0]}){each[1]}"),
    ),
    max_leaves=8,
)


@given(pattern=PATTERNS, names=st.lists(st.text(NAME, max_size=8), min_size=1, max_size=5))
def test_names_match_as_by_python(pattern, names):
    ours, theirs = Regex(pattern), re.compile(pattern, re.ASCII)
    assert [ours.matches(name) for name in names] == [theirs.fullmatch(name) is not None for name in names]


@each_row(
    ("pattern", "matching", "other"),
    [
        ("^t.*$", ["t", "topic"], ["at"]),
        (r"\Aa\z", ["a"], ["aa"]),
        ("(?i)ab", ["aB", "AB"], ["b"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(?P<x>a)|(?<y>b)", ["a", "b"], ["ab"]),
        ("[[:alpha:]]+", ["ab"], ["a1"]),
        ("[[:^digit:]]", ["a"], ["1"]),
        ("[]a]+", ["a]"], ["b"]),
        ("[^]a]", ["b"], ["a", "]"]),
        ("[a-]", ["-", "a"], ["b"]),
        (r"\Qa.b\E+", ["a.b"], ["axb"]),
        (r"\x61\x{62}", ["ab"], ["a"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("a{b", ["a{b"], ["a"]),
        ("", [""], ["a"]),
        ("a|", ["a", ""], ["b"]),
        ("()*a", ["a"], ["b"]),
        ("a{2,}b{2,3}c{0002}d{1,0002}", ["aabbccd", "aaabbbccdd"], ["abbccd", "aabccd", "aabbbbccd", "aabbccddd"]),
        (
            "a{x}|a{1,x}|a{\N{ARABIC-INDIC DIGIT THREE}}|a{1,\N{ARABIC-INDIC DIGIT THREE}}",
            ["a{x}", "a{1,x}", "a{\u0663}", "a{1,\u0663}"],
            ["a", "aaa"],
        ),
        ("$a|b^c|(^|x)d($|y)", ["d", "xdy", "xd"], ["a", "bc", "xxd", "dyy", ""]),
        ("^$|$^", [""], ["a"]),
        (".", ["a"], ["\n", ""]),
        ("(?i)a(?-i)b", ["Ab", "ab"], ["AB", "aB"]),
        ("((?i)a|b)c", ["Ac", "Bc"], ["AC", "BC"]),
        ("(?m)a(?s:b)(?Ui:c)(?i-m:d)e", ["abCDe"], ["aBcde", "abcdE"]),
        ("(?i)[b-d][x]", ["BX", "Dx", "bx", "dX"], ["Ax", "Ex", "ax", "bb", "bxx"]),
        ("[b-d][e-e]", ["be", "de"], ["ae", "ee", "bd"]),
        (r"\Qa.b", ["a.b"], ["axb", "a.b."]),
        (r"\Qa\Eb\Z", ["ab"], ["a", "abb"]),
        (r"\D\S\W", ["ab-"], ["1b-", "a -", "abc"]),
        (r"\a\f\t\n\r\v\-", ["\a\f\t\n\r\v-"], ["aftnrv-"]),
        (r"\x{10FFFF}\x{000062}c", ["\U0010ffffbc"], ["\U0010ffffb", "bc"]),
        (r"[\]\dx\x61-\x63]", ["]", "1", "x", "a", "b", "c"], ["d", "\\", "-"]),
        (r"[a\-z][b-\x64]", ["ab", "-c", "zd"], ["bb", "ae"]),
        ("[[:ascii:]][[:digit:]x-z]", ["\x7f1", "ay"], ["\x801", "aw", "1:"]),
        ("(?:)" * 2500, [""], ["a"]),
        ("a" * 2500, ["a" * 2500], ["a" * 2499]),
        ("(?:aaaa){500}", ["a" * 2000], ["a" * 1996]),
        ("(?:aaaa){499,}", ["a" * 1996, "a" * 2000], ["a" * 1992]),
        ("a{1000}", ["a" * 1000], ["a" * 999]),
        ("a|" * 833 + "a", ["a"], ["aa"]),
        ("(" * 99 + "a" + ")" * 99, ["a"], [""]),
        ("(a)" * 100, ["a" * 100], ["a"]),
    ],
)
def test_what_re2_understands(pattern, matching, other):
    regex = Regex(pattern)
    assert [regex.matches(name) for name in matching] == [True] * len(matching)
    assert [regex.matches(name) for name in other] == [False] * len(other)


@each_row(
    "pattern",
    [
        *("(", ")", "[", "[b-a]", "[a", "[[:nope:]]", "*", "a**", "a++", "a{2}{3}", "a{1001}", "a{3,2}", r"\1", r"\y", "\\", r"\xg"),
        *("(?=a)", "(?<=a)", "(?!a)", "(?<n", "(?P<>a)", "(?z)", r"\x{110000}", r"\x{61"),
        *("(?<!a)", "(?P<\xe9>a)", "(?--i)a", "a*+", "a?*", "+", "a|?", "[a-", "[[:alpha", "a{1,1001}", "a{00001}", "a{1,00002}"),
        *("()" + "(" * 100 + ")" * 100, r"\8", r"\x6", r"\x{}", r"\x{6g}", r"\x{0000061}", "(?", "[a-\\"),
        *(
            "(" * 100 + ")" * 100,
            "()" + "(" * 100 + ")" * 100,
            "((a{1000}){1000}){1000}",
            "(?:)" * 2500 + "a",
            "a" * 2501,
            "a|" * 834 + "a",
        ),
        *("(?:aaaa){501}", "(?:aaaa){500,}"),
    ],
)
def test_what_re2_refuses(pattern):
    with pytest.raises(InvalidRegularExpression):
        Regex(pattern)


@given(pattern=st.text(r"ab()[]{}*+?|\^$.-,:=!<>PixdQE01", max_size=30))
def test_garbage_is_an_expression_or_is_refused(pattern):
    try:
        Regex(pattern).matches("ab01")
    except InvalidRegularExpression:
        pass


@given(pattern=PATTERNS, name=st.text(NAME, max_size=12), max_cost=st.integers(1, 30))
def test_a_match_that_stops_on_the_way_ends_as_one_that_does_not(pattern, name, max_cost):
    whole, parts = Regex(pattern), Regex(pattern)
    found = parts.start
    turns = 0
    while isinstance(found, Matching):
        found = parts.go_on(name, found, max_cost)
        turns += 1
        assert turns <= len(name) + 1
    assert found == whole.matches(name)


@each_row(
    "pattern",
    ["(a|b|.)*a(a|b|.){300}", "|".join("a" * 700), f"({'|'.join('a' * 700)})*", "(a?){800}b", "((a*)*|(b*)*){100}$", "(?:$?){800}"],
)
def test_an_expression_costs_little_per_character(pattern):
    """No more than a few visits of each instruction, four of which are looked at together."""
    regex = Regex(pattern)
    size = len(regex._program)
    assert regex.cost < 3 * size + len(pattern)
    before = regex.cost
    regex.matches("ab" * 120)
    assert regex.cost - before < 20 * size + 2 * (size + len(pattern)) + 240 * (size // 4 + 3)


def test_a_match_counts_its_steps_and_stops_after_so_many():
    regex = Regex("(a|b)*c")
    costs = [regex.cost]
    for name in ("abc", "abc", "ab", ""):
        regex.matches(name)
        costs.append(regex.cost)
    assert costs == [12, 149, 152, 154, 155]
    assert regex.go_on("abc", regex.start, 2) == regex.go_on("abc", regex.go_on("abc", regex.start, 1), 1)
    assert regex.go_on("abc", regex.start, 2).at == 2


@each_row(
    ("max_bytes", "expected"),
    [(1 << 20, [5682, 240, 20]), (14_769, [5734, 4719, 340]), (0, [5734, 4740, 340])],
)
def test_an_expression_remembers_so_many_steps(monkeypatch, max_bytes, expected):
    """70 of them, and then 64: what is forgotten costs again."""
    monkeypatch.setattr(topic_regex, "MAX_STEPS_BYTES", max_bytes)
    regex, costs = Regex("(a|b|.)*a(a|b|.){10}"), []
    (name,) = names_without_likeness(1)
    for text in (name, name, name[:20]):
        before = regex.cost
        regex.matches(text)
        costs.append(regex.cost - before)
    assert costs == expected


class Reads(dict):
    count = 0

    def __getitem__(self, key):
        self.count += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("partitions", [100, 1000])
def test_evening_out_looks_at_each_partition_a_few_times(partitions):
    t, u = b"t" * 16, b"u" * 16
    members = {"a": MemberSpec(frozenset({t}), {t: frozenset(range(partitions))}), "b": MemberSpec(frozenset({t, u}), {})}
    balancer = _Balancer(members, {t: partitions, u: 1})
    balancer.owner = Reads()
    result = balancer.balance()
    assert balancer.owner.count <= 3 * (partitions + 1)
    assert abs(len(result["a"][t]) - sum(map(len, result["b"].values()))) <= 1


def test_who_keeps_everything_gets_what_it_has_itself():
    """So that nobody compares, or writes, the assignments of a thousand members when one more joins."""
    topic = b"t" * 16
    members = {f"m{i}": MemberSpec(frozenset({topic}), {topic: frozenset({i})}) for i in range(8)}
    members["new"] = MemberSpec(frozenset({topic}), {})
    result = uniform(members, {topic: 9})
    assert all(result[f"m{i}"] is members[f"m{i}"].assigned for i in range(8))
    assert result["new"] == {topic: {8}}


# ---- the topics of expressions


class Resolving:
    """A resolver, its clock and its topics."""

    def __init__(self, *names):
        self.clock, self.topics = ManualClock(), set(names)
        self.resolver = RegexResolver(self.clock.now_ms, lambda: self.topics)

    def ask(self, pattern, version):
        """The topics, and how often it had to be asked."""
        turns = 1
        while (found := self.resolver.topics(pattern, version)) is None:
            self.clock.advance(ASK_AGAIN_MS)
            turns += 1
        return found, turns


def test_only_topics_that_are_new_are_looked_at():
    stage = Resolving("a1", "a2", "b1")
    looked_at = []
    stage.resolver.check("a.*")
    regex = expressions_of(stage.resolver)["a.*"].regex
    go_on = regex.go_on
    regex.go_on = lambda name, *rest: looked_at.append(name) or go_on(name, *rest)
    assert stage.ask("a.*", 1) == ({"a1", "a2"}, 1)
    assert sorted(looked_at) == ["a1", "a2", "b1"]
    assert stage.ask("a.*", 1) == ({"a1", "a2"}, 1)
    stage.topics = {"a2", "a3", "b1", "b2"}
    assert stage.ask("a.*", 2) == ({"a2", "a3"}, 1)
    assert sorted(looked_at) == ["a1", "a2", "a3", "b1", "b2"]


def test_expressions_share_a_budget_and_all_get_their_answer():
    names = names_without_likeness(8)
    stage = Resolving(*names)
    patterns = [f"(a|b|.)*a(a|b|.){{{n}}}" for n in (230, 231, 232)]
    asked = [stage.ask(pattern, 1) for pattern in patterns]
    assert [found == {name for name in names if Regex(pattern).matches(name)} for pattern, (found, _) in zip(patterns, asked, strict=True)]
    assert min(turns for _, turns in asked) > 2
    cost = sum(expressions_of(stage.resolver)[pattern].regex.cost for pattern in patterns)
    assert cost <= BURST_COST + COST_PER_MS * stage.clock.now_ms() + 10_000


def test_topics_that_change_while_an_expression_is_looked_at():
    names = names_without_likeness(12)
    stage = Resolving(*names[:9])
    pattern = "(a|b|.)*a(a|b|.){220}"
    assert stage.resolver.topics(pattern, 1) is None
    stage.topics = set(names[3:])
    found, _ = stage.ask(pattern, 2)
    assert found == {name for name in names[3:] if Regex(pattern).matches(name)}


def test_expressions_that_nobody_asked_for_lately_are_forgotten():
    stage = Resolving("a")
    for n in range(MAX_EXPRESSIONS + 20):
        stage.ask(f"a|{n}", 1)
    assert len(expressions_of(stage.resolver)) == MAX_EXPRESSIONS
    assert stage.ask("a|0", 1)[0] == {"a"}
    with pytest.raises(InvalidRegularExpression):
        stage.resolver.check("(")


def test_an_instance_id_belongs_to_its_last_member_until_that_one_goes():
    group = ConsumerGroup("g")
    for member_id in ("first", "second"):
        group.put_member(ConsumerMember(member_id, instance_id="i"))
    group.put_member(ConsumerMember("other", instance_id="j"))
    group.drop_member("first")
    assert group.static_members == {"i": "second", "j": "other"}
    group.drop_member("second")
    assert group.static_members == {"j": "other"}


# ---- what groups know


def test_groups_and_members_begin_with_nothing():
    group = ConsumerGroup("g")
    assert (group.epoch, group.assignment_epoch, group.seen_epoch, group.metadata_hash, group.assignment_wall_ms) == (1, 1, 1, 0, 0)
    assert (group.seen_topics_version, group.regexes_version, group.regexes_wall_ms, group.consumer_count) == (-1, -1, 0, 0)
    assert (group.members, group.static_members, group.target, group.regexes) == ({}, {}, {}, {})
    member = ConsumerMember("m")
    assert (member.epoch, member.previous_epoch, member.rebalance_timeout_ms, member.state) == (0, -1, -1, MemberState.STABLE)
    assert not (member.assigned or member.pending_revocation or member.topic_names or member.uses_classic_protocol)
    classic = ClassicGroup("g", ClassicGroupState.EMPTY, 5)
    assert (classic.generation, classic.state_timestamp_ms, classic.joined_count()) == (0, 5, 0)
    assert not (classic.new_member_added or classic.rebalance_is_due or classic.pending_joins or classic.pending_syncs)
    assert {classic.protocol_type, classic.protocol_name, classic.leader, classic.subscribed_topics} == {None}


def test_a_member_that_goes_is_counted_no_more():
    group = ClassicGroup("g", ClassicGroupState.EMPTY, 5)
    for name in "ab":
        protocols = [JoinGroupRequestProtocol(name=each, metadata=b"") for each in ("range", name)]
        group.add(ClassicMember(name, f"i-{name}", "client", "host", 1, 2, "consumer", protocols), print)
    assert (group.joined_count(), group.leader, group.static_members) == (2, "a", {"i-a": "a", "i-b": "b"})
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 1)
    group.pending_syncs |= {"a", "b"}
    group.remove("b")
    assert (group.joined_count(), group.leader, group.static_members, group.pending_syncs) == (1, "a", {"i-a": "a"}, {"a"})
    assert [group.supports_protocols("consumer", [name]) for name in ("range", "a", "b")] == [True, True, False]
    group.remove("a")
    assert (group.joined_count(), group.leader, group.static_members, group.pending_syncs) == (0, None, {}, set())


@pytest.mark.parametrize(("before", "after"), [(0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, 0)])
def test_generations_begin_again_behind_the_last_one(before, after):
    group = ClassicGroup("g", ClassicGroupState.EMPTY, 0)
    group.generation = before
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 1)
    group.pending_syncs.add("m")
    group.init_next_generation(7)
    assert (group.generation, group.state, group.state_timestamp_ms, group.pending_syncs) == (after, ClassicGroupState.EMPTY, 7, set())


def test_a_session_ends_only_of_a_member_that_waits_for_no_answer():
    found = []
    for satisfied, is_new, joins, syncs in itertools.product((False, True), repeat=4):
        member = ClassicMember("m", None, "client", "host", 1, 2, "consumer", [])
        assert not (member.is_new or member.heartbeat_satisfied or member.is_static or member.awaiting_join or member.awaiting_sync)
        member.heartbeat_satisfied, member.is_new = satisfied, is_new
        member.awaiting_join, member.awaiting_sync = (print if each else None for each in (joins, syncs))
        found.append(member.has_satisfied_heartbeat())
    assert found == [False, True, True, True] + [False] * 4 + [True] * 8


def test_who_takes_the_place_of_a_static_member_counts_in_its_stead():
    group = ConsumerGroup("g")
    group.put_member(ConsumerMember("old", instance_id="i", topic_names=frozenset({"t"})))
    group.put_member(ConsumerMember("other", topic_regex="a.*"))
    new = ConsumerMember("new", instance_id="i", topic_names=frozenset({"u"}))
    assert group.members_with(new) == {"other": group.members["other"], "new": new}
    assert group.members_with(new._replace(instance_id=None)).keys() == {"old", "other", "new"}
    assert [each.member_id for each in group.replaced_by(new)] == ["old"]
    assert group.wanted() == ({"t"}, {"a.*"})
    assert group.wanted(group.replaced_by(new), new) == ({"u"}, {"a.*"})
    assert group.wanted(group.members.values(), new._replace(topic_regex="b")) == ({"u"}, {"b"})


def test_epochs_of_partitions_are_those_of_the_record_or_of_the_member():
    """Kafka before 4.3 did not write them."""
    topics = [CurrentTopicPartitions(topic_id=T0, partitions=[1, 2], assignment_epochs=epochs) for epochs in (None, [3], [3, 4])]
    assert [owned_of([topic], 9) for topic in topics] == [{T0: {1: 9, 2: 9}}] * 2 + [{T0: {1: 3, 2: 4}}]
    assert owned_of([topics[2], topics[0]._replace(topic_id=T1)], 9) == {T0: {1: 3, 2: 4}, T1: {1: 9, 2: 9}}


def said(ask):
    """What a check answers: the code of its refusal, the member it found, or 0."""
    try:
        found = ask()
    except BrokerError as error:
        return int(error.code or -1)
    return found.member_id if isinstance(found, ClassicMember) else 0


UNKNOWN, FENCED, ILLEGAL, REBALANCING = Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS
STALE, OLD = Code.STALE_MEMBER_EPOCH, Code.UNSUPPORTED_VERSION


@each_row(
    ("state", "is_transactional", "outside", "inside", "of_no_generation"),
    [
        (ClassicGroupState.EMPTY, False, 0, "m", 0),
        (ClassicGroupState.EMPTY, True, 0, "m", 0),
        (ClassicGroupState.STABLE, False, UNKNOWN, "m", ILLEGAL),
        (ClassicGroupState.STABLE, True, 0, "m", ILLEGAL),
        (ClassicGroupState.COMPLETING_REBALANCE, False, UNKNOWN, REBALANCING, ILLEGAL),
        (ClassicGroupState.COMPLETING_REBALANCE, True, 0, "m", ILLEGAL),
        (ClassicGroupState.PREPARING_REBALANCE, False, UNKNOWN, "m", ILLEGAL),
        (ClassicGroupState.PREPARING_REBALANCE, True, 0, "m", ILLEGAL),
    ],
)
def test_who_may_commit_offsets_of_a_classic_group(state, is_transactional, outside, inside, of_no_generation):
    group = ClassicGroup("g", state, 0)
    group.add(ClassicMember("m", "i", "client", "host", 1, 2, "consumer", []))
    group.generation = 3
    asked = [("", None, -1), ("m", "i", 3), ("m", None, 3), ("m", None, -1), ("m", "i", 2), ("m", "x", 3), ("n", "i", 3), ("n", None, 3)]
    found = [said(lambda asked=each: group.validate_offset_commit(*asked, is_transactional)) for each in (*asked, ("", None, 3))]
    assert found == [outside, inside, inside, of_no_generation, ILLEGAL, UNKNOWN, FENCED, UNKNOWN, UNKNOWN]


@each_row("is_transactional", [False, True])
@each_row("version", [8, 9])
@each_row("metadata", [None, ClassicMemberMetadata()])
def test_who_may_commit_and_fetch_offsets_of_a_consumer_group(metadata, version, is_transactional):
    """In an epoch of before: what the member had then, and still has."""
    group = ConsumerGroup("g")
    assert said(lambda: group.validate_offset_commit("", None, -1, is_transactional, version)) == 0
    group.put_member(ConsumerMember("m", epoch=5, classic=metadata, assigned={T0: {0: 3, 1: 5}}, pending_revocation={T0: {2: 4}}))
    stale = STALE if metadata is None else ILLEGAL
    outside = 0 if is_transactional else UNKNOWN
    asked = [("", None, -1), ("", "i", -1), ("n", None, -1), ("n", None, 5), ("m", None, 5), ("m", None, 6)]
    found = [said(lambda asked=each: group.validate_offset_commit(*asked, is_transactional, version)) for each in asked]
    too_old = metadata is None and version == 8 and not is_transactional
    assert found == [outside, UNKNOWN, UNKNOWN, UNKNOWN, *([OLD, OLD] if too_old else [0, stale])]
    before = {4: [0, stale, 0, stale], 3: [0, stale, stale, stale], 2: [stale] * 4}
    for epoch, expected in {} if too_old else before.items():
        check = group.validate_offset_commit("m", None, epoch, is_transactional, version)
        assert [said(lambda at=at, check=check: check("a", T0, at)) for at in range(4)] == expected
        assert said(lambda check=check: check("b", T1, 0)) == stale
    asked = [(None, -1), ("m", 5), ("m", 4), (None, 5), ("n", 5), ("", -1), (None, 0)]
    found = [said(lambda asked=each: group.validate_offset_fetch(*asked)) for each in asked]
    assert found == [0, 0, stale, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]
    assert said(group.validate_delete) == Code.NON_EMPTY_GROUP
    group.drop_member("m")
    assert (said(group.validate_delete), group.holder(T0, 0), group.consumer_count) == (0, None, 0)


@each_row(
    ("kind", "state", "topics", "since"),
    [
        *((None, state, None, 9) for state in ClassicGroupState),
        *((kind, ClassicGroupState.EMPTY, topics, 5) for kind in ("consumer", "connect") for topics in (None, frozenset())),
        ("consumer", ClassicGroupState.STABLE, frozenset(), 9),
        ("consumer", ClassicGroupState.STABLE, None, None),
        ("consumer", ClassicGroupState.PREPARING_REBALANCE, frozenset(), None),
        ("connect", ClassicGroupState.STABLE, frozenset(), None),
    ],
)
def test_from_when_on_an_offset_of_a_classic_group_ages(kind, state, topics, since):
    """5: since the group is empty; 9: since its commit."""
    for empty_ms in (5, -1):
        group = ClassicGroup("g", state, empty_ms)
        group.protocol_type, group.subscribed_topics = kind, topics
        of = group.offsets_expire_since()
        assert (None if of is None else of(9)) == (9 if since == 5 and empty_ms < 0 else since)
        assert group.is_subscribed_to("t") == (topics is None and kind == "consumer")
        assert (group.listed_protocol_type, group.is_empty) == (kind or "", state is ClassicGroupState.EMPTY)


def test_what_all_members_of_a_classic_group_know_and_want():
    def wants(*topics):
        return encode_stored(ConsumerProtocolSubscription(topics=list(topics)), 0)

    def member(name, **protocols):
        known = [JoinGroupRequestProtocol(name=protocol, metadata=data) for protocol, data in protocols.items()]
        return ClassicMember(name, None, "client", "host", len(protocols), 2, "consumer", known)

    group = ClassicGroup("g", ClassicGroupState.EMPTY, 0)
    found = [group.supports_protocols(*asked) for asked in (("", ["x"]), ("consumer", []), ("connect", ["x"]))]
    assert (found, group.rebalance_timeout_ms(), group.compute_subscribed_topics()) == ([False, False, True], 0, None)
    first, second = member("a", range=wants("t"), sticky=wants("t"), other=b""), member("b", sticky=wants("u"), range=wants("u", "v"))
    for each in (first, second, member("c", sticky=wants("t"), range=b"\xff")):
        group.add(each)
    group.state = ClassicGroupState.STABLE
    asked = [("consumer", ["other"]), ("consumer", ["other", "range"]), ("connect", ["range"]), ("consumer", [])]
    assert [group.supports_protocols(*each) for each in asked] == [False, True, False, False]
    assert (group.select_protocol(), group.rebalance_timeout_ms()) == ("sticky", 3)
    assert group.compute_subscribed_topics() is None, "no protocol yet"
    group.protocol_name = "range"
    assert group.compute_subscribed_topics() is None, "one of them cannot be read"
    group.protocol_name = "sticky"
    group.subscribed_topics = group.compute_subscribed_topics()
    assert [group.is_subscribed_to(topic) for topic in "tuv"] == [True, True, False]
    assert [(each.member_id, each.metadata) for each in group.member_list()] == [("a", wants("t")), ("b", wants("u")), ("c", wants("t"))]
    assert first.matches([JoinGroupRequestProtocol(name=name, metadata=data) for name, data in first.protocols.items()])
    assert not first.matches([JoinGroupRequestProtocol(name=name, metadata=data) for name, data in reversed(first.protocols.items())])
    group.protocol_type = "connect"
    assert group.compute_subscribed_topics() is None


def test_a_consumer_group_is_where_all_of_its_members_are():
    group = ConsumerGroup("g")
    states = [group.state_name]
    group.epoch = 2
    for name in "ab":
        group.put_member(ConsumerMember(name, epoch=1, topic_names=frozenset({name}), server_assignor="range" if name == "b" else None))
    states.append(group.state_name)
    group.assignment_epoch = 2
    for name in "ab":
        states.append(group.state_name)
        group.put_member(group.members[name]._replace(epoch=2))
    assert [*states, group.state_name] == ["Empty", "Assigning", "Reconciling", "Reconciling", "Stable"]
    assert group.preferred_assignor(group.members.values()) == "range"
    assert group.preferred_assignor([group.members["a"]]) is None
    group.put_member(ConsumerMember("c", topic_regex="x"))
    group.put_member(ConsumerMember("d", topic_regex="y"))
    group.regexes["y"] = ResolvedRegex(frozenset({"yes"}), 1, 1)
    assert [group.is_subscribed_to(topic) for topic in ("a", "b", "yes", "x")] == [True, True, True, False]
    assert group.subscribed_names() == {"a", "b", "yes"}
    assert group.subscribed_names([group.members["d"], group.members["a"]]) == {"b"}
