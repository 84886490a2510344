"""Delegation tokens as the controller decides about them, time by hand; what a broker keeps of them; what is written of them."""

from __future__ import annotations

import base64
from itertools import count

import pytest
from test_acl_enforcement import ALICE as PRINCIPAL
from test_acl_enforcement import Secured

from kafkacore import protocol as p
from kafkacore.broker import authorizer as a
from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.controller.periodic import Periodic
from kafkacore.broker.controller.state import ControllerState, Requester
from kafkacore.broker.controller.writer import Controller
from kafkacore.broker.server import Broker
from kafkacore.broker.token_keys import TokenKeys
from kafkacore.clock import JumpingClock
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import ANONYMOUS
from kafkacore.config_security import sasl_listener
from kafkacore.errors import Code, SaslAuthentication
from kafkacore.net.sasl import PlainClient, ScramClient
from kafkacore.protocol.metadata_log import DelegationTokenRecord, RemoveDelegationTokenRecord, decode_record, encode_record
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import brokers_of, heartbeat_of
from tests.kit.wire import Wire

T0 = 1_700_000_000_000
ALICE, BOB = Requester("alice", "c"), Requester("bob", "c")
KEY = {"delegation.token.secret.key": "hush-hush"}
TIMES = {"delegation.token.max.lifetime.ms": 10_000, "delegation.token.expiry.time.ms": 1_000}


class TokenBench:
    """A controller whose time a test gives."""

    def __init__(self, **settings):
        config = BrokerConfig.from_user({**KEY, **TIMES, **settings})
        numbers = count(1)
        state = ControllerState(ClusterImage(config), config, new_uuid=lambda: next(numbers).to_bytes(16, "big"))
        self.controller = Controller(config, state=state)
        self.ask_at = T0
        self.apply(self.controller.bootstrap())

    @property
    def image(self):
        return self.controller.image

    def apply(self, records):
        self.controller.replay(records, self.image.next_offset + len(records))

    def ask(self, request, requester=ALICE, at=0, version=2):
        written = self.controller.handle(request, version, at, requester, T0 + at)
        assert len(written.records) <= 1
        self.apply(written.records)
        return written.response

    def create(self, requester=ALICE, at=0, **fields):
        return self.ask(p.CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": -1, **fields}), requester, at, 3)

    def renew(self, hmac, at, period_ms=-1, requester=ALICE):
        return self.ask(p.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), requester, at)

    def expire(self, hmac, at, period_ms=-1, requester=ALICE):
        return self.ask(p.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), requester, at)


@pytest.fixture
def bench():
    return TokenBench()


def times(answer):
    return answer.error_code, answer.expiry_timestamp_ms - T0 if answer.error_code == 0 else answer.expiry_timestamp_ms


def test_a_token_lives_from_one_renewal_to_the_next_and_ends_at_last(bench):
    made = bench.create()
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (T0, T0 + 1_000, T0 + 10_000)
    assert times(bench.renew(made.hmac, 1_000)) == (0, 2_000)  # at its very last moment
    assert times(bench.renew(made.hmac, 2_001)) == (Code.DELEGATION_TOKEN_EXPIRED, 0)
    assert times(bench.expire(made.hmac, 2_001)) == (Code.DELEGATION_TOKEN_EXPIRED, 0)
    other = bench.create(at=2_000)
    for at in range(2_500, 12_000, 500):
        assert times(bench.renew(other.hmac, at)) == (0, min(at + 1_000, 12_000))
    assert times(bench.renew(other.hmac, 12_001)) == (Code.DELEGATION_TOKEN_EXPIRED, 0)


def test_a_period_is_the_shorter_of_the_asked_one_and_what_there_is(bench):
    made = [bench.create(max_lifetime_ms=each) for each in (-1, 0, 1, 1_001, 20_000)]
    assert [each.max_timestamp_ms - T0 for each in made] == [10_000, 10_000, 1, 1_001, 10_000]
    assert [each.expiry_timestamp_ms - T0 for each in made] == [1_000, 1_000, 1, 1_000, 1_000]
    hmac = made[0].hmac
    assert [times(bench.renew(hmac, 10, each)) for each in (-1, 0, 1, 500, 20_000)] == [(0, at) for at in (1_010, 1_010, 11, 510, 1_010)]
    assert [times(bench.expire(hmac, 10, each)) for each in (0, 5, 20_000, -1)] == [(0, 10), (0, 15), (0, 10_000), (0, 10)]
    assert bench.renew(hmac, 10).error_code == Code.DELEGATION_TOKEN_NOT_FOUND
    assert times(bench.expire(made[1].hmac, 10, 5)) == (0, 15)
    assert bench.renew(made[1].hmac, 16).error_code == Code.DELEGATION_TOKEN_EXPIRED


def principals(*names, kind="User"):
    return [p.DelegationTokenPrincipal(principal_type=kind, principal_name=name) for name in names]


def test_who_may_renew_and_end_a_token(bench):
    made = bench.create(renewers=principals("carol", "bob"), owner_principal_type="User", owner_principal_name="dora")
    assert (made.principal_name, made.token_requester_principal_name) == ("dora", "alice")
    asked = [(Requester(name, "c"), 0) for name in ("bob", "carol", "dora")]
    asked += [(ALICE, Code.DELEGATION_TOKEN_OWNER_MISMATCH), (None, Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)]
    for who, code in asked:
        assert (bench.renew(made.hmac, 1, requester=who).error_code, bench.expire(made.hmac, 1, 500, who).error_code) == (code, code)
    assert bench.create(renewers=[*principals("bob"), *principals("g", kind="Group")]).error_code == Code.INVALID_PRINCIPAL_TYPE
    older = bench.ask(p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))
    assert (older.principal_name, older.token_requester_principal_name) == ("alice", "")


def test_what_a_broker_refuses_itself():
    bench, bob = Secured(delegation_token_secret_key="k"), {"owner_principal_type": "User", "owner_principal_name": "bob"}

    def create(**fields):
        return bench.ask(p.CreateDelegationTokenRequest(**{"renewers": [], "max_lifetime_ms": -1, **fields}), 3)

    names = {"token_requester_principal_type": "User", "token_requester_principal_name": "alice"}
    nothing = {"issue_timestamp_ms": -1, "expiry_timestamp_ms": -1, "max_timestamp_ms": -1, "token_id": "", "hmac": b""}
    refused = p.CreateDelegationTokenResponse(
        error_code=Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED, principal_type="User", principal_name="bob", **names, **nothing
    )
    assert create(**bob) == refused
    refused = create(renewers=[*principals("bob"), *principals("g", kind="Group")])
    assert (refused.error_code, refused.expiry_timestamp_ms) == (Code.INVALID_PRINCIPAL_TYPE, -1)
    assert (create().error_code, create().principal_name) == (0, "alice")
    bench.allow(bench.entry(a.CREATE_TOKENS, "User:bob", resource_type=a.USER))
    assert (create(**bob).error_code, create(**bob).principal_name) == (0, "bob")
    others = p.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), p.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1)
    listed = p.DescribeDelegationTokenRequest(owners=None)
    for principal, key, code in (
        (PRINCIPAL, None, Code.DELEGATION_TOKEN_AUTH_DISABLED),
        (ANONYMOUS, "k", Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    ):
        bench = Secured(delegation_token_secret_key=key)
        bench.principal = principal
        assert [(each.error_code, each.expiry_timestamp_ms) for each in (bench.ask(each, 2) for each in others)] == [(code, -1)] * 2
        assert (create().error_code, bench.ask(listed, 3)) == (code, p.DescribeDelegationTokenResponse(error_code=code, tokens=[]))


def test_who_sees_which_tokens():
    bench = Secured(delegation_token_secret_key="k")
    token = DelegationTokenRecord(owner="User:bob", requester="User:bob", issue_timestamp=1, expiration_timestamp=2, max_timestamp=3)
    mine = {"own": {"owner": PRINCIPAL}, "asked for": {"requester": PRINCIPAL}, "renewed": {"renewers": ["a:b", PRINCIPAL]}}
    for name, fields in {**mine, "foreign": {}}.items():
        bench.cluster.delegation_tokens[name] = token._replace(token_id=name, **fields)

    def seen(*owners):
        wanted = principals(*owners) or None
        return [each.token_id for each in bench.ask(p.DescribeDelegationTokenRequest(owners=wanted), 3).tokens]

    assert seen() == seen("bob") == seen("carol", "alice", "dora") == [*mine] and seen("carol") == []
    may_describe = {"resource_type": a.DELEGATION_TOKEN, "operation": a.DESCRIBE, "name": "foreign"}
    for given in (may_describe, {"resource_type": a.USER, "operation": a.DESCRIBE_TOKENS, "name": "User:bob"}):
        bench.allow(bench.entry(**given))
        assert seen() == seen("bob") == [*mine, "foreign"] and seen("carol") == []
        bench.forbid(given["operation"])
    for version, requester in ((3, ("User", "bob")), (2, ("", ""))):
        described = bench.ask(p.DescribeDelegationTokenRequest(owners=None), version).tokens[2]
        hmac = TokenKeys("k").hmac_of("renewed")
        assert tuple(described) == ("User", "bob", *requester, 1, 2, 3, "renewed", hmac, [("a", "b"), ("User", "alice")])


def test_without_a_key_there_are_no_tokens():
    bench = TokenBench(**{"delegation.token.secret.key": ""})
    made = bench.create()
    disabled = Code.DELEGATION_TOKEN_AUTH_DISABLED
    assert (made.error_code, bench.renew(b"x", 0).error_code, bench.expire(b"x", 0).error_code) == (disabled,) * 3
    assert not bench.image.delegation_tokens


def test_what_has_ended_is_removed_in_its_time(bench):
    first, second = bench.create(), bench.create(requester=BOB, at=900)
    state = bench.controller.state
    periodic = Periodic(state.config, 0)
    interval_ms = state.config.delegation_token_expiry_check_interval_ms

    def due(now_ms, wall_ms):
        state.wall_ms = T0 + wall_ms
        return [each for each in periodic.run(state, now_ms) if isinstance(each, RemoveDelegationTokenRecord)]

    assert due(interval_ms - 1, 5_000) == []
    records = due(interval_ms, 1_001)
    assert [each.token_id for each in records] == [first.token_id]
    bench.apply(records)
    assert due(interval_ms, 5_000) == []
    bench.apply(due(2 * interval_ms, 5_000))
    assert not bench.image.delegation_tokens
    assert bench.renew(second.hmac, 0, requester=BOB).error_code == Code.DELEGATION_TOKEN_NOT_FOUND


def test_secrets_of_tokens_that_come_and_go(bench):
    made = [bench.create() for _ in range(50)]
    assert len({each.hmac for each in made}) == 50
    for each in made[::2]:
        assert bench.expire(each.hmac, 1).error_code == 0
    for nth, each in enumerate(made):
        assert bench.renew(each.hmac, 2).error_code == (0 if nth % 2 else Code.DELEGATION_TOKEN_NOT_FOUND)
    assert set(bench.controller.state.token_keys._ids) == {each.hmac for each in made[1::2]}  # nothing is kept of those that are gone
    assert TokenKeys("another key").find(made[1].hmac, bench.image.delegation_tokens) is None


def test_records_and_snapshots(bench):
    made = bench.create(renewers=[p.DelegationTokenPrincipal(principal_type="User", principal_name="bob")])
    [record] = bench.image.delegation_tokens.values()
    assert isinstance(record, DelegationTokenRecord)
    assert (record.owner, record.requester, record.renewers) == ("User:alice", "User:alice", ["User:bob"])
    assert (record.issue_timestamp - T0, record.expiration_timestamp - T0, record.max_timestamp - T0) == (0, 1_000, 10_000)
    assert bytes(made.hmac) not in encode_record(record)  # who reads the log does not know the secret
    assert decode_record(encode_record(record)) == record
    again = ClusterImage(BrokerConfig())
    again.apply([decode_record(encode_record(each)) for each in bench.image.records()], 1)
    assert again.delegation_tokens == bench.image.delegation_tokens


USERS = {"alice": "b"}


def token_settings(**more):
    return {**KEY, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "broker.heartbeat.interval.ms": 50, **more}


def log_in(address, made):
    with Wire(address, 30) as wire:
        secret = base64.b64encode(made.hmac).decode()
        wire.log_in(ScramClient("SCRAM-SHA-256", made.token_id, secret, is_delegation_token=True))


@pytest.mark.parametrize("faults", [False, True], ids=["controller in process", "controller over a connection"])
def test_every_broker_takes_a_token_also_after_a_new_start(tmp_path, faults):
    with EmbeddedCluster(brokers=2, users=USERS, config=token_settings(), data_dir=tmp_path, faults=faults) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        with Wire(addresses[0]) as wire:
            wire.log_in(PlainClient("alice", "b"))
            made = wire.ask(p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            assert made.error_code == 0 and made.token_requester_principal_name == "alice"
            other = wire.ask(p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            brokers = brokers_of(cluster).values()
            while not all(broker.call(lambda broker=broker: len(broker.state.cluster.delegation_tokens)) == 2 for broker in brokers):
                pass
            described = wire.ask(p.DescribeDelegationTokenRequest(owners=None), 3)
            assert {token.token_id for token in described.tokens} == {made.token_id, other.token_id}
        for address in addresses:
            log_in(address, made)
    with EmbeddedCluster(brokers=2, users=USERS, config=token_settings(), data_dir=tmp_path) as cluster:
        for address in cluster.bootstrap_servers.split(","):
            log_in(address, made)
    changed = token_settings(**{"delegation.token.secret.key": "another"})
    with EmbeddedCluster(brokers=2, users=USERS, config=changed, data_dir=tmp_path) as cluster, pytest.raises(SaslAuthentication):
        log_in(cluster.bootstrap_servers.split(",")[0], made)


def test_the_key_is_shown_nowhere():
    config = BrokerConfig.from_user({**sasl_listener({"alice": "b"}), **KEY})
    assert "hush" not in repr(config)
    made = p.CreateDelegationTokenResponse(hmac=b"hush")
    assert "hush" not in repr(made)


def test_a_broker_alone_wakes_for_tokens_only_and_a_second_one_is_not_kept_waiting():
    """The clock stands still but for what the test moves: what is planned is done when its time comes."""
    hour_ms = 3_600_000
    with Broker(BrokerConfig.from_user({**sasl_listener({"alice": "b"}), **KEY}), clock=JumpingClock()) as broker:
        link = broker.state.controller
        assert broker.call(lambda: heartbeat_of(link)) is None
        with Wire(broker.address) as wire:
            wire.log_in(PlainClient("alice", "b"))
            made = wire.ask(p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=hour_ms // 2), 3)
            assert made.error_code == 0
            broker.clock.sleep(hour_ms + 1_000)
            while wire.ask(p.DescribeDelegationTokenRequest(owners=None), 3).tokens:
                pass
        assert broker.call(lambda: heartbeat_of(link)) is None  # no token, no heartbeat


def test_a_second_broker_is_not_lost_because_the_first_waits_for_tokens(tmp_path):
    """The first one finds tokens when it starts alone, and plans to look at them in an hour; then it has to say that it lives."""
    with EmbeddedCluster(users=USERS, config=token_settings(), data_dir=tmp_path) as cluster, Wire(cluster.bootstrap_servers) as wire:
        wire.log_in(PlainClient("alice", "b"))
        assert wire.ask(p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3).error_code == 0
        [broker] = brokers_of(cluster).values()
        assert broker.call(lambda: broker.state.controller._is_for_tokens)
    with EmbeddedCluster(brokers=2, users=USERS, config=token_settings(), data_dir=tmp_path) as cluster:
        for broker in brokers_of(cluster).values():
            link = broker.state.controller
            assert broker.call(lambda link=link: heartbeat_of(link) is not None and not link._is_for_tokens)


def test_a_token_whose_time_has_passed_opens_nothing_and_ends_its_sessions():
    given = {"connection.failed.authentication.delay.ms": 0, "connections.max.idle.ms": -1}
    config = BrokerConfig.from_user({**sasl_listener({"alice": "b"}), **KEY, **given})
    with Broker(config, clock=JumpingClock()) as broker, Wire(broker.address, 30) as owner, Wire(broker.address, 30) as bearer:
        owner.log_in(PlainClient("alice", "b"))
        made = owner.ask(p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=600_000), 3)
        secret = base64.b64encode(made.hmac).decode()
        bearer.log_in(ScramClient("SCRAM-SHA-256", made.token_id, secret, is_delegation_token=True))
        assert bearer.ask(p.MetadataRequest(topics=[]), 9).brokers
        broker.clock.sleep(600_001)
        bearer.send(p.MetadataRequest(topics=[]), 9)
        assert bearer.closed_by_peer
        with pytest.raises(SaslAuthentication):
            log_in(broker.address, made)
        assert owner.ask(p.MetadataRequest(topics=[]), 9).brokers
        assert broker.call(lambda: broker.state.cluster.delegation_tokens)  # it is there until the controller looks
