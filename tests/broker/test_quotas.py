"""Quotas as arithmetic: Kafka's formulas, a ring of samples as Kafka keeps it, all sets of quotas, clocks that jump, many clients."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import protocol as p
from kafkacore.broker.controller.quotas import alter_client_quotas
from kafkacore.broker.quotas import (
    ABSENT,
    CLIENT_ID,
    CONNECTIONS,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    USE_EXPIRES_MS,
    USER,
    Bucket,
    ConnectionRateQuota,
    Limits,
    MutationQuota,
    RateQuota,
    Uses,
    Windows,
)
from kafkacore.errors import Code
from kafkacore.protocol.metadata_log import ClientQuotaEntity, ClientQuotaRecord
from tests.kit.inside import kept_of, samples_of
from tests.kit.reached import Reached
from tests.kit.rows import each_row


def quota(limit, kind=PRODUCE, samples=11, window_s=1, **more):
    made = RateQuota(kind, samples, window_s, **more)
    made.limits.update({frozenset({(CLIENT_ID, "c")}): {kind: limit}}, kind)
    return made


class Ring:
    """Samples as Kafka keeps them: a ring of one more than count, whose obsolete ones are cleared where they are, and not taken away."""

    def __init__(self, samples, window_ms):
        self.samples, self.window_ms = samples, window_ms
        self.ring, self.current = [], 0

    def record(self, value, now):
        if not self.ring:
            self.ring.append([now, now, 0.0])
        sample = self.ring[self.current]
        if now - sample[0] >= self.window_ms:
            self.current = (self.current + 1) % (self.samples + 1)
            if self.current >= len(self.ring):
                self.ring.append(None)
            sample = self.ring[self.current] = [now, now, 0.0]
        sample[2] += value
        sample[1] = now

    def rate(self, now):
        for sample in self.ring:
            if now - sample[1] >= self.samples * self.window_ms:
                sample[:] = [now, now, 0.0]
        elapsed = now - min((each[0] for each in self.ring), default=now)
        full = elapsed // self.window_ms
        if full < self.samples - 1:
            elapsed += (self.samples - 1 - full) * self.window_ms
        return sum(each[2] for each in self.ring) * 1000 / elapsed, elapsed


WAITS = st.sampled_from([0, 1, 99, 100, 101, 150, 200, 400, 1_000, 2_500])
steps = st.lists(st.tuples(WAITS, st.sampled_from([-50, 0, 1, 5_000]), st.booleans()), min_size=5, max_size=60)
windows = Reached(
    "a sample as old as a window",
    "a sample as old as all windows together",
    "the ring is full and begins again",
    "looked twice at one time",
)


@partial(windows.by, rounds=28)
@settings(max_examples=10, deadline=None)
@given(steps, st.integers(2, 12), st.sampled_from([100, 1_000, 2_500]))
def test_windows_are_kafkas_ring(steps, samples, window_ms):
    ring, subject, now = Ring(samples, window_ms), Windows(), 10**6
    looked_ms = -1
    for wait, value, looks in steps:
        now += wait
        windows("a sample as old as a window", ring.ring and now - ring.ring[ring.current][0] == window_ms)
        ring.record(value, now)
        subject.record(value, now, window_ms)
        if looks:
            windows("a sample as old as all windows together", any(now - sample[1] == samples * window_ms for sample in ring.ring))
            windows("the ring is full and begins again", len(ring.ring) == samples + 1 and ring.current < samples)
            windows("looked twice at one time", now == looked_ms)
            looked_ms = now
            rate, over_ms = subject.rate(now, samples, window_ms)
            expected, elapsed = ring.rate(now)
            assert (over_ms, math.isclose(rate, expected, abs_tol=1e-9)) == (elapsed, True)
            assert len(samples_of(subject)) <= samples + 1


def test_the_first_use_counts_over_the_windows_that_are_missing():
    made = quota(1_000)
    assert made.record("u", "c", 10_000, 5_000) == 0  # 10000 bytes over 10 empty windows
    assert made.record("u", "c", 1_000, 5_000) == 1_000  # (1100 - 1000) / 1000 * 10 s
    assert made.record("u", "c", 0, 5_500) == 500  # half of it has passed: (11000 / 10.5 - 1000) / 1000 * 10.5 s
    assert made.record("u", "c", 0, 6_000) == 1_000  # a whole window takes the place of a missing one
    assert made.record("u", "c", 0, 16_000) == 0
    assert Windows().rate(7, 1, 100) == (0, 0)


def test_after_the_throttle_time_the_rate_is_at_the_quota():
    made = quota(500.0)
    wait = made.record("u", "c", 20_000, 0)
    assert wait == 30_000  # (2000 - 500) / 500 * 10 s: beyond the windows, in which the sample is forgotten
    assert made.record("u", "c", 0, 10_999) > 0
    assert made.record("u", "c", 0, 11_000) == 0
    most = made.most_at_once("u", "c")
    assert most == 5_000 and made.record("u", "c", most, 22_000) == 0
    assert made.record("u", "c", 1, 22_000) > 0
    made.count("u", "c", -1, 22_000)  # taken back
    assert made.record("u", "c", 0, 22_000) == 0
    assert made.most_at_once("u", "other") == math.inf


@each_row(
    "limit, value, expected, options",
    [
        (10_000, 100_005, 1, {}),  # 0.5 ms
        (10_000, 100_004, 0, {}),
        (1e-9, 10**12, 2**31 - 1, {}),
        (1, 0, 0, {"samples": 1}),
        (1, 1, 2**31 - 1, {"samples": 1}),  # a single window that has just begun: no rate, whatever came
        (10, 1_000, 1_000, {"max_throttle_ms": 1_000}),  # request time waits at most a window
        (10, 101, 100, {"max_throttle_ms": 1_000}),
    ],
)
def test_throttle_times_are_rounded_as_kafkas_and_fit_into_the_answer(limit, value, expected, options):
    assert quota(limit, **options).record("u", "c", value, 0) == expected


@each_row("limit, expected", [(5e-324, 2**31 - 1), (1e-300, 2**31 - 1), (math.nan, 0), (math.inf, 0)])
def test_no_limit_is_beyond_what_an_answer_can_say(limit, expected):
    """Kafka takes such limits, too: only what is not above zero is refused."""
    assert quota(limit).record("u", "c", 1_000, 0) == expected
    made = mutations(limit)
    assert made.take("u", "c", 1_000, 0, False) == (True, expected)
    assert made.take("u", "c", 1_000, 1, True) == (not expected, expected)


# ---- whose quota


def entity(user, client):
    return frozenset((kind, name) for kind, name in ((USER, user), (CLIENT_ID, client)) if name != "absent")


PRECEDENCE = [("u", "c"), ("u", None), ("u", "absent"), (None, "c"), (None, None), (None, "absent"), ("absent", "c"), ("absent", None)]
SHARED = {0: "uc", 1: "uc", 2: "u", 3: "uc", 4: "uc", 5: "u", 6: "c", 7: "c"}


def test_the_most_specific_quota_holds_of_every_set_of_them():
    for there in itertools.product((False, True), repeat=8):
        limits = Limits()
        limits.update({entity(*PRECEDENCE[nth]): {PRODUCE: nth + 1.0} for nth in range(8) if there[nth]}, PRODUCE)
        found = limits.find("u", "c")
        first = next((nth for nth in range(8) if there[nth]), None)
        assert (found is None) == (first is None) and bool(limits) == any(there)
        if found is not None and first is not None:
            (user, client), limit = found
            assert limit == first + 1.0
            assert (user == "u", client == "c") == ("u" in SHARED[first], "c" in SHARED[first])


def test_who_shares_a_quota_shares_its_use():
    made = RateQuota(PRODUCE, 11, 1)
    made.limits.update({entity("u", "absent"): {PRODUCE: 1_000.0}, entity("absent", None): {PRODUCE: 1_000.0}}, PRODUCE)
    assert made.record("u", "one", 10_000, 0) == 0
    assert made.record("u", "two", 1_000, 0) == 1_000  # of one user
    assert made.record("v", "one", 10_000, 0) == 0  # the default is for each client id
    assert made.record("w", "one", 1_000, 0) == 1_000
    assert made.record("w", "two", 10_000, 0) == 0
    other = RateQuota(PRODUCE, 11, 1)
    other.limits.update({entity("absent", "c"): {MUTATION: 1.0}, frozenset({(IP, None)}): {PRODUCE: 1.0}}, PRODUCE)
    assert not other and other.record("u", "c", 10**9, 0) == 0 and len(other.uses) == 0


def test_an_altered_quota_holds_at_once_and_keeps_what_was_used():
    made = quota(1_000)
    assert made.record("u", "c", 15_000, 0) == 5_000
    made.limits.update({entity("absent", "c"): {PRODUCE: 1_500.0}}, PRODUCE)
    assert made.record("u", "c", 0, 0) == 0
    made.limits.update({entity("absent", "c"): {PRODUCE: 500.0}}, PRODUCE)
    assert made.record("u", "c", 0, 0) == 20_000
    made.limits.update({}, PRODUCE)
    assert made.record("u", "c", 10**9, 0) == 0


# ---- what is kept


def test_uses_that_rest_for_an_hour_are_forgotten():
    made = RateQuota(PRODUCE, 11, 1)
    made.limits.update({entity("absent", None): {PRODUCE: 1_000.0}}, PRODUCE)
    for nth in range(10_000):
        made.record("u", f"client-{nth}", 1, nth)
    assert len(made.uses) == 10_000
    made.record("u", "client-0", 1, 100_000)  # used again: the youngest
    for nth, left in enumerate([*range(9_999, 1, -2), *[2] * 10]):  # two of the oldest for each one
        made.record("u", "late", 1, USE_EXPIRES_MS + 20_000 + nth)
        assert len(made.uses) == left
    made.uses.clear()
    assert len(made.uses) == 0


@each_row("kind", [Windows, Bucket])
def test_a_use_is_kept_for_an_hour_to_the_millisecond(kind):
    uses = Uses(kind)
    first = uses.of("a", 0)
    uses.of("b", 3_600_000).last_ms = 3_600_000
    assert len(uses) == 2 and uses.of("a", 3_600_000) is first
    assert uses.of("a", 3_600_001) is not first


def test_invented_client_ids_fill_no_memory():
    uses = Uses(Windows)
    for nth in range(50_010):
        uses.of(("u", f"x{nth}"), 0)
    assert len(uses) == 50_000
    for nth in range(20):
        kept = uses.of(("u", "x" * 30_000 + str(nth)), 1)
        assert uses.of(("u", "x" * 30_000 + str(nth)), 1) is kept
    uses.of(("u", "y" * 257), 1)
    assert max(len(part) for key in kept_of(uses) for part in key) < 50
    uses.of(("u", "y" * 256), 1)
    assert next(reversed(kept_of(uses))) == ("u", "y" * 256)


# ---- clocks


def test_a_clock_that_goes_back_throttles_nobody_for_ever():
    made = quota(1_000)
    made.record("u", "c", 10_000, 10**9)
    assert 0 <= made.record("u", "c", 5_000, 5) <= 10_000  # begins again
    assert made.record("u", "c", 6_000, 5) == 1_000
    assert made.record("u", "c", 0, 12_000) == 0


def test_a_clock_that_jumps_ahead_forgets():
    made = quota(1_000)
    assert made.record("u", "c", 50_000, 0) == 40_000
    assert made.record("u", "c", 10_000, 10**12) == 0
    bucket = Bucket()
    bucket.refill(1, 10, 100)
    bucket.tokens = -50
    assert bucket.refill(1, 10, 40) == -50  # back: nothing accrues, nothing is lost
    assert bucket.refill(1, 10, 10**9) == 10


# ---- controller mutations


def mutations(limit=2.0, samples=11, window_s=1):
    made = MutationQuota(samples, window_s)
    made.limits.update({entity("absent", "c"): {MUTATION: limit}}, MUTATION)
    return made


def test_strict_lets_all_of_a_request_through_and_then_nothing_until_the_debt_is_paid():
    made = mutations()
    assert made.take("u", "c", 22, 0, True) == (True, 0)  # the burst
    assert made.take("u", "c", 50, 0, True) == (True, 0)  # at zero it is not in debt
    assert made.take("u", "c", 1, 0, True) == (False, 25_000)
    assert made.take("u", "c", 1, 24_999, True) == (False, 1)
    assert made.take("u", "c", 1, 25_000, True) == (True, 0)
    assert made.take("u", "other", 10**6, 0, True) == (True, 0)
    made.uses.of((ABSENT, "c"), 25_000).tokens = -1e-6  # what sums of fractions may be wrong by
    assert made.take("u", "c", 1, 25_000, True) == (True, 0)


PERMITS = st.sampled_from([1, 2, 10, 22, 60])
bucket = Reached("empty to the token", "full again, and no fuller", "refused, then allowed", "taken more than there was")


@partial(bucket.by, rounds=20)
@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 500, 1_000, 5_000, 11_000, 30_000]), PERMITS, st.booleans()), min_size=5))
def test_a_bucket_is_what_accrued_less_what_was_taken(steps):
    made, rate, burst = mutations(), 2.0, 22.0
    now, tokens, was_refused = 10**6, burst, False
    for wait, permits, strict in steps:
        now += wait
        bucket("full again, and no fuller", tokens < burst < tokens + rate * wait / 1_000)
        tokens = min(burst, tokens + rate * wait / 1_000)
        allowed, wait_ms = made.take("u", "c", permits, now, strict)
        assert allowed == (not strict or tokens >= -1e-9) or abs(tokens) < 1e-6
        if allowed:
            tokens -= permits
        bucket("empty to the token", tokens == 0)
        bucket("refused, then allowed", allowed and was_refused)
        bucket("taken more than there was", allowed and tokens < 0)
        was_refused = not allowed
        assert wait_ms == (math.floor(-tokens / rate * 1_000 + 0.5) if tokens < 0 and (not allowed or not strict) else 0)


# ---- connections


def test_addresses_open_connections_at_their_rate():
    made = ConnectionRateQuota(11, 1)
    made.update({frozenset({(USER, "u")}): {CONNECTIONS: 0.1}, frozenset({(IP, None)}): {PRODUCE: 0.1}})  # Kafka writes no such thing
    assert not made and made.opened("10.0.0.1", 0) == 0
    names = {frozenset({(IP, each)}): {CONNECTIONS: 0.1} for each in ("localhost", "2001:DB8:0::1")}
    made.update(names | {frozenset({(IP, "10.0.0.1")}): {CONNECTIONS: 2.0}, frozenset({(IP, None)}): {CONNECTIONS: 1.0}})
    for host in ("127.0.0.1", "2001:db8::1"):
        assert [made.opened(host, 0) for _ in range(2)] == [0, 1_000]
    assert [made.opened("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    assert made.opened("10.0.0.1", 0) == 500  # (2.1 - 2) / 2 * 10 s
    assert made.opened("10.0.0.1", 0) == 500  # what was refused does not count
    assert [made.opened("10.0.0.2", 0) for _ in range(11)] == [0] * 10 + [1_000]
    assert made.opened("10.0.0.2", 0) == 1_000  # at most a window
    assert made.opened("10.0.0.1", 500) == 0


# ---- altering them


def alteration(*entries, validate_only=False, **current):
    """What the controller answers and writes; an entry is what it names, and a value by key, None to remove it."""
    wanted = []
    for names, ops in entries:
        parts = [p.ClientQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in names]
        sent = [p.ClientQuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in ops]
        wanted.append(p.ClientQuotaAlteration(entity=parts, ops=sent))
    state = SimpleNamespace(image=SimpleNamespace(client_quotas={entity("u", "absent"): current}))
    return alter_client_quotas(state, p.AlterClientQuotasRequest(entries=wanted, validate_only=validate_only), 1, 0)


U = [(USER, "u")]


@each_row(
    "names, ops, message",
    [
        ([], [(PRODUCE, 1.0)], "Invalid empty client quota entity"),
        ([(USER, "u"), ("group", "g")], [(PRODUCE, 1.0)], "Unhandled client quota entity type: group"),
        ([(USER, "")], [(PRODUCE, 1.0)], "Empty user not supported"),
        ([(IP, None), (USER, "u")], [], "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"),
        ([(IP, "10.0.0")], [], "10.0.0 is not a valid IP or resolvable host."),
        ([(IP, None)], [(PRODUCE, 1.0)], "Invalid configuration key producer_byte_rate"),
        (U, [(CONNECTIONS, 1.0)], "Invalid configuration key connection_creation_rate"),
        (U, [(REQUEST, 1.0), (PRODUCE, 0.0)], "Quota producer_byte_rate must be greater than 0"),
        (U, [(PRODUCE, 2.0**63 + 2048)], "Proposed value for producer_byte_rate is too large for a LONG."),
        (U, [("consumer_byte_rate", 2.0**64)], "Proposed value for consumer_byte_rate is too large for a LONG."),
        ([(IP, "::1")], [(CONNECTIONS, 2.0**31)], "Proposed value for connection_creation_rate is too large for an INT."),
        (U, [(PRODUCE, 7.0001)], "producer_byte_rate cannot be a fractional value."),
        (U, [(PRODUCE, 1.0), (PRODUCE, 1.0)], "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"),
        ([*U, (CLIENT_ID, "c")], [(PRODUCE, 1.0)] * 2, "Ignoring duplicate entity ClientQuotaEntity(entries={user=u, client-id=c})"),
    ],
)
def test_quotas_that_are_refused(names, ops, message):
    written = alteration((names, ops))
    (answer,) = written.response.entries
    assert (written.records, answer.error_code, answer.error_message) == ([], Code.INVALID_REQUEST, message)
    assert [(part.entity_type, part.entity_name) for part in answer.entity] == names


@each_row(
    "names, key, value",
    [
        ([(USER, "u"), (CLIENT_ID, None)], PRODUCE, 2.0**63),
        (U, REQUEST, 0.5),
        (U, MUTATION, 1e-9),
        (U, "consumer_byte_rate", 2 + 1e-7),
        (U, "consumer_byte_rate", 2.0**63),
        (U, PRODUCE, 1e-6),
        *(([(IP, name)], CONNECTIONS, 2.0**31 - 1) for name in ("localhost", "::1", None)),
    ],
)
def test_quotas_that_are_written(names, key, value):
    written, parts = alteration((names, [(key, value)])), [ClientQuotaEntity(entity_type=kind, entity_name=name) for kind, name in names]
    assert written.records == [ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)]
    assert [each.error_code for each in written.response.entries] == [0]
    assert alteration((names, [(key, value)]), validate_only=True) == ([], written.response)


def test_what_an_alteration_leaves_as_it_is_is_not_written():
    ops = [(PRODUCE, 1.0), (REQUEST, None), (MUTATION, None), ("consumer_byte_rate", 3.0)]
    written = alteration((U, ops), **{PRODUCE: 1.0, MUTATION: 5.0, "consumer_byte_rate": 2.0})
    assert [(each.key, each.value, each.remove) for each in written.records] == [(MUTATION, 0, True), ("consumer_byte_rate", 3, False)]
    written = alteration((U, ops[3:]), (U, ops[:1]), ([(USER, "v")], ops[:1]))  # the first entry of an entity counts
    assert [each.key for each in written.records] == ["consumer_byte_rate", PRODUCE]
    assert [each.error_code for each in written.response.entries] == [Code.INVALID_REQUEST, 0]
