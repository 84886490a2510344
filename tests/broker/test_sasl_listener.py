"""Brokers that want to know who is there: every mechanism, and what the unauthenticated may not do.

Other clients are in tests/interop/test_security_clients.py, and how clients renew their sessions in tests/net.
"""

import base64
import contextlib
import itertools
import select
import struct
from contextlib import ExitStack

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, protocol
from kafkacore.broker.authentication import SCRAM_NUMBERS, Authentication, Session
from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.server import Broker
from kafkacore.broker.token_keys import TokenKeys
from kafkacore.clock import JumpingClock, ManualClock, SystemClock
from kafkacore.config import BrokerConfig
from kafkacore.config_security import sasl_listener
from kafkacore.errors import (
    AuthenticationFailedError,
    ResourceNotFound,
    SaslAuthentication,
    UnsupportedSaslMechanism,
    UsageError,
)
from kafkacore.net.oauth import unsecured_token
from kafkacore.net.sasl import PlainClient, ScramClient, salted_password, scram_credential
from kafkacore.protocol import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkacore.protocol.metadata_log import DelegationTokenRecord, UserScramCredentialRecord
from kafkacore.testing import EmbeddedCluster
from tests.broker.client_calls import CALLS
from tests.kit.inside import calls_of, driver_of, memory_of, sessions_of
from tests.kit.rows import each_row
from tests.kit.wire import Wire

USERS = {"alice": 'a"l\\i=ce;', "bör,ge=": "pä ss"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(users=USERS, config={"sasl.enabled.mechanisms": ",".join([*MECHANISMS, "OAUTHBEARER"])}) as made:
        yield made


def as_user(cluster, mechanism="PLAIN", user="alice", password=None, **more):
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS[user] if password is None else password,
        **more,
    }


def as_token(cluster, provider):
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": provider,
    }


def round_trip(settings, topic):
    with KafkaProducer(settings) as producer:
        sent = producer.send(topic, b"v").result(60)
    with KafkaConsumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), sent.offset)
        [record] = next(iter(consumer.poll(10).values()))
    assert record.value == b"v"


@each_row("user", USERS)
@each_row("mechanism", MECHANISMS)
def test_round_trips(cluster, mechanism, user):
    round_trip(as_user(cluster, mechanism, user), "round")


def carols_token():
    """As settings that are text name it."""
    now_ms = 4_000_000_000_000
    return unsecured_token({"sub": "carol"}, now_ms, 60), now_ms


def test_tokens(cluster):
    now_ms = 4_000_000_000_000
    round_trip(as_token(cluster, lambda: (unsecured_token({"sub": "carol"}, now_ms, 60), now_ms)), "tokens")
    round_trip(as_token(cluster, f"{__name__}:carols_token"), "tokens")
    expired = as_token(cluster, lambda: (unsecured_token({"sub": "carol"}, 0, 60), now_ms))
    refusal = "the token has expired; the broker refuses the token: invalid_token"
    with pytest.raises(SaslAuthentication, match=refusal), KafkaAdminClient(expired) as admin:
        admin.list_topics()


@pytest.mark.timeout(60)  # at once, not when a time-out is over
@pytest.mark.parametrize("call", CALLS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_passwords_are_told_by_the_next_call(cluster, call, mechanism):
    with pytest.raises(SaslAuthentication, match=rf"{mechanism} authentication of user 'alice' by 127\.0\.0\.1:\d+ failed") as caught:
        call(as_user(cluster, mechanism, password="guessed-wrong"))
    assert "guessed-wrong" not in str(caught.value)


def test_unsigned_tokens_are_admitted_only_when_asked_for():
    now_ms = SystemClock().wall_ms()

    def provider():
        return unsecured_token({"sub": "alice"}, now_ms, 60), now_ms + 60_000

    for brokers in (1, 2):
        with EmbeddedCluster(brokers=brokers, users=USERS) as closed:
            refused = pytest.raises(UnsupportedSaslMechanism, match="the broker offers PLAIN, SCRAM")
            with refused, KafkaAdminClient(as_token(closed, provider)) as admin:
                admin.list_topics()
            with KafkaAdminClient(as_user(closed)) as admin:
                assert admin.list_topics() == []


def test_users_are_named_once():
    with pytest.raises(UsageError, match="who is let in is said twice"):
        EmbeddedCluster(users=USERS, config=sasl_listener(USERS))
    for config in ({"num.partitions": 3}, BrokerConfig(num_partitions=3)):
        with EmbeddedCluster(users={"broker": "known"}, config=config) as cluster:
            assert cluster.config.num_partitions == 3
            with KafkaAdminClient(as_user(cluster, user="broker", password="known")) as admin:
                assert admin.list_topics() == []


def test_a_client_that_authenticates_where_nobody_need():
    with EmbeddedCluster() as plain, KafkaAdminClient(as_user(plain, password="x")) as admin:
        with pytest.raises(AuthenticationFailedError, match="this listener of the broker does not use SASL"):
            admin.list_topics()


def test_users_come_and_go(cluster):
    with KafkaAdminClient(as_user(cluster)) as admin:
        admin.alter_user_scram_credentials({("dora", "SCRAM-SHA-256"): "one", ("dora", "SCRAM-SHA-512"): "two"}, iterations=5000).check()
        assert admin.describe_user_scram_credentials(["dora"])["dora"] == {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000}
        assert set(admin.describe_user_scram_credentials()) == {"dora"}
        dora = {**as_user(cluster, "SCRAM-SHA-256"), "sasl.username": "dora", "sasl.password": "one"}
        with KafkaAdminClient(dora) as hers:
            hers.list_topics()
        gone = admin.alter_user_scram_credentials({("dora", "SCRAM-SHA-256"): None, ("emil", "SCRAM-SHA-256"): None})
        assert ("dora", "SCRAM-SHA-256") in gone
        assert isinstance(gone.errors["emil", "SCRAM-SHA-256"], ResourceNotFound)
        with pytest.raises(SaslAuthentication), KafkaAdminClient(dora) as hers:
            hers.list_topics()
        assert admin.describe_user_scram_credentials(["dora"])["dora"] == {"SCRAM-SHA-512": 5000}
        password = admin.describe_configs([("broker", "1")])["broker", "1"]["sasl.jaas.config"]
        assert (password.value, password.is_sensitive) == (None, True)


# ---- the wire


def answer_or_end(wire, request, version):
    """The answer; None when the broker closes the connection instead."""
    try:
        return wire.ask(request, version)
    except (EOFError, ConnectionError):
        return None


@pytest.fixture
def raw(cluster):
    with Wire(cluster.bootstrap_servers) as wire:
        yield wire


PLAIN_TOKEN = SaslAuthenticateRequest(auth_bytes=f"\0alice\0{USERS['alice']}".encode())


@pytest.mark.parametrize(
    ("asked", "last"),
    [
        ([(protocol.MetadataRequest(topics=[]), 5)], None),
        ([(PLAIN_TOKEN, 1)], None),
        ([(SaslHandshakeRequest(mechanism="PLAIN"), 1), (protocol.ApiVersionsRequest(), 0)], None),
        ([(SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslHandshakeRequest(mechanism="PLAIN"), 1)], None),
        ([(SaslHandshakeRequest(mechanism="GSSAPI"), 1)], 33),
        ([(SaslHandshakeRequest(mechanism="PLAIN"), 0)], 34),
        ([(SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)], 58),
        ([(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1), (SaslAuthenticateRequest(auth_bytes=b""), 0)], 58),
        ([(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1), (SaslAuthenticateRequest(auth_bytes=b"\xff"), 0)], 58),
    ],
)
def test_what_ends_a_connection(raw, asked, last):
    for request, version in asked:
        answer = answer_or_end(raw, request, version)
    assert (answer and answer.error_code) == last
    assert answer_or_end(raw, protocol.ApiVersionsRequest(), 0) is None


def test_versions_may_be_asked_for_first(raw):
    assert answer_or_end(raw, protocol.ApiVersionsRequest(), 0).error_code == 0
    assert answer_or_end(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    answer = answer_or_end(raw, PLAIN_TOKEN, 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert answer_or_end(raw, protocol.MetadataRequest(topics=[]), 5).brokers


# ---- strangers


def secured(clock=None, **settings):
    return Broker(BrokerConfig.from_user({**sasl_listener({"alice": "a"}), **settings}), clock=clock)


def say_who(wire, password="a"):
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    wire.send(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{password}".encode()), 2)


def padded(nbytes):
    """A request of that size, whose rest is ignored."""
    frame = b"".join(bytes(part) for part in protocol.encode_request(protocol.ApiVersionsRequest(), 0, 7, "me"))
    return struct.pack(">i", nbytes) + frame[4:] + bytes(nbytes + 4 - len(frame))


def test_a_stranger_gets_small_requests_only(caplog):
    with secured(**{"sasl.server.max.receive.size": 20_000}) as broker:
        with Wire(broker.address) as wire:
            wire.sock.sendall(struct.pack(">i", 20_001))
            assert wire.closed_by_peer
        with Wire(broker.address) as wire:
            wire.sock.sendall(padded(20_000))
            wire.receive(protocol.ApiVersionsRequest, 0)
            for _ in range(2):  # the second one renews the session
                assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
                token = wire.frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"), 2)
                wire.sock.sendall(token + padded(60_000))  # a user's, right behind the token
                assert wire.receive(SaslAuthenticateRequest, 2)[1].error_code == 0
                wire.receive(protocol.ApiVersionsRequest, 0)
    [line] = [record.getMessage() for record in caplog.records]
    assert "above the limit of 20000 bytes" in line


def test_strangers_that_stall_keep_no_user_waiting():
    with secured(**{"socket.request.max.bytes": 600_000, "queued.max.request.bytes": 600_000}) as broker, ExitStack() as stack:
        for _ in range(3):
            stranger = stack.enter_context(Wire(broker.address))
            stranger.sock.sendall(padded(500_000)[:300_000])
        user = stack.enter_context(Wire(broker.address))
        say_who(user)
        assert user.receive(SaslAuthenticateRequest, 2)[1].error_code == 0
        user.sock.sendall(padded(550_000))
        user.receive(protocol.ApiVersionsRequest, 0)
        assert broker.call(lambda: memory_of(broker).used_bytes) <= 550_000  # the user's alone is counted


def test_who_fails_to_authenticate_waits_for_the_answer_and_nobody_else_does():
    clock = JumpingClock()
    with secured(clock, **{"connection.failed.authentication.delay.ms": 60_000}) as broker, Wire(broker.address) as wrong:
        say_who(wrong, "guess")
        with Wire(broker.address) as gone:  # hangs up before its answer
            say_who(gone, "guess")
            while broker.call(lambda: len(calls_of(broker))) < 2:
                pass
        with Wire(broker.address) as other:
            say_who(other)
            assert other.receive(SaslAuthenticateRequest, 2)[1].error_code == 0
            for _ in range(20):
                other.ask(protocol.ApiVersionsRequest(), 0)
        assert select.select([wrong.sock], [], [], 0)[0] == []
        clock.sleep(60_000)
        broker.call(lambda: None)
        assert wrong.receive(SaslAuthenticateRequest, 2)[1].error_code == 58
        assert wrong.closed_by_peer
        while broker.call(broker.num_connections):
            pass
        assert broker.call(lambda: (len(calls_of(broker)), len(broker.pauses.muted))) == (0, 0)


def lies(wire):
    """By a name that would colour a terminal and begin a line of the log."""
    wire.log_in(ScramClient("SCRAM-SHA-512", "eve\x1b[31m\n" + "e" * 500, "its-password"))


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (lambda wire: wire.log_in(PlainClient("e\x1bve\n", "its-password")), r"user 'e\x1bve\n', mechanism PLAIN"),
        (lies, r"user 'eve\x1b[31m\n"),
        (
            lambda wire: wire.ask(SaslHandshakeRequest(mechanism="GSS\nAPI"), 1),
            r"mechanism 'GSS\nAPI', SaslHandshake v1: UNSUPPORTED_SASL_MECHANISM",
        ),
        (lambda wire: wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0), "mechanism 'PLAIN', SaslHandshake v0: ILLEGAL_SASL_STATE"),
    ],
    ids=["PLAIN", "SCRAM", "mechanism", "version"],
)
def test_the_log_says_who_failed_by_which_mechanism(caplog, attempt, why):
    with secured(JumpingClock(), **{"connection.failed.authentication.delay.ms": 0}) as broker, Wire(broker.address) as wrong:
        with contextlib.suppress(SaslAuthentication):
            attempt(wrong)
        assert wrong.closed_by_peer
    [line] = [each.getMessage() for each in caplog.records]
    assert f"its authentication failed: {why}" in line
    assert line.isprintable() and "its-password" not in line and len(line) < 600


# ---- sessions that end


NOW_MS = 1_700_000_000_000


def rules(image=None, **settings):
    listener = sasl_listener({"broker": "b", "alice": "a", "bob": "b"})
    mechanisms = ",".join([*MECHANISMS, "OAUTHBEARER"])
    config = BrokerConfig.from_user({**listener, "sasl.enabled.mechanisms": mechanisms, "connections.max.reauth.ms": 1000, **settings})
    return Authentication(config, image, ManualClock(0, NOW_MS))


def log_in(session, user="alice", password="a", now_ms=0, mechanism="PLAIN"):
    assert session.handshake(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    return session.authenticate(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), now_ms)


def test_a_session_ends_unless_it_is_renewed():
    session = Session(rules())
    assert log_in(session).session_lifetime_ms == 1000
    assert session.admits(3, 999)
    assert not session.admits(3, 1000)
    assert session.admits(SaslHandshakeRequest.API_KEY, 1000)
    log_in(session, now_ms=1500)
    assert session.admits(3, 2499)
    assert not session.admits(3, 2500)


def test_the_brokers_own_session_does_not_end():
    session = Session(rules())
    assert log_in(session, "broker", "b").session_lifetime_ms == 0
    assert session.admits(1, 10**9)


def test_a_renewed_session_is_the_same_users():
    session = Session(rules())
    log_in(session)
    answer = log_in(session, "bob", "b")
    assert (answer.error_code, answer.error_message) == (58, "Cannot change principals during re-authentication from alice to bob")
    assert session.failed
    session = Session(rules())
    log_in(session)
    assert session.handshake(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 33


def test_a_connection_has_one_session_until_it_is_closed():
    found = rules()
    first, other = found.session("a"), found.session("b")
    assert found.session("a") is first is not other
    found.forget("a")
    found.forget("a")
    assert found.session("a") is not first and found.session("b") is other
    found.clear()
    assert found.session("b") is not other


@pytest.mark.parametrize("longest_ms", [0, 1000])
def test_a_session_ends_with_its_token(longest_ms):
    session = Session(rules(**{"connections.max.reauth.ms": longest_ms}))
    session.handshake(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    token = unsecured_token({"sub": "carol"}, NOW_MS, 0.5)
    answer = session.authenticate(SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {token}\x01\x01".encode()), 0)
    assert (session.user, answer.session_lifetime_ms) == ("carol", 500)
    # Without a longest life the client learns it, and is not held to it.
    assert session.admits(3, 499) and session.admits(3, 500) == (longest_ms == 0)


def by_scram(session, user, password, *, is_delegation_token=False):
    """Whether a client is let in, whoever it then is."""
    client = ScramClient("SCRAM-SHA-256", user, password, is_delegation_token=is_delegation_token)
    session.handshake(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    challenge = None
    while not client.done:
        answer = session.authenticate(SaslAuthenticateRequest(auth_bytes=client.step(challenge)), 0)
        if answer.error_code:
            return False
        challenge = answer.auth_bytes
        if challenge.startswith(b"v="):
            client.step(challenge)
    return True


def test_who_may_come_in_by_which_mechanism():
    image = ClusterImage(BrokerConfig())
    for user in ("bob", "carol"):
        salt, number = user.encode() * 3, SCRAM_NUMBERS["SCRAM-SHA-256"]
        made = scram_credential("SCRAM-SHA-256", salted_password("SCRAM-SHA-256", "new", salt, 4096), salt, 4096)
        image.scram_credentials[user, number] = UserScramCredentialRecord(
            name=user, mechanism=number, salt=salt, stored_key=made.stored_key, server_key=made.server_key, iterations=4096
        )
    token = DelegationTokenRecord(token_id="a-token", owner="User:alice", expiration_timestamp=NOW_MS + 1, max_timestamp=NOW_MS + 9)
    ended, ends = (token._replace(token_id=name, expiration_timestamp=NOW_MS - ago) for name, ago in (("ended", 1), ("ends", 0)))
    image.delegation_tokens |= {each.token_id: each for each in (token, ended, ends)}
    key = {"delegation.token.secret.key": "hush"}
    found = rules(image, **key)
    assert log_in(Session(found), "alice", "a").error_code == 0
    assert log_in(Session(found), "carol", "new").error_code == 58  # she is known to SCRAM alone
    assert log_in(Session(found), "bob", "b").error_code == 0
    asked = itertools.product(("alice", "bob", "carol"), ("a", "b", "new"))
    tries = {(user, password): by_scram(Session(found), user, password) for user, password in asked}
    # bob's password of the settings does not count beside the one that the controller knows
    assert [each for each, is_in in tries.items() if is_in] == [("alice", "a"), ("bob", "new"), ("carol", "new")]
    bearers = {}
    for token_id in ("a-token", "ended", "ends", "alice"):
        session = bearers[token_id] = Session(found)
        by_scram(session, token_id, base64.b64encode(TokenKeys("hush").hmac_of(token_id)).decode(), is_delegation_token=True)
    assert [session.user for session in bearers.values()] == ["alice", "", "alice", ""]
    for session in (bearers["a-token"], bearers["ends"]):
        assert session.by_token and session.admits(3, 0) and not session.admits(3, 1)
        assert by_scram(session, "alice", "a")  # the same user in another way
        assert not session.by_token and session.admits(3, 999) and not session.admits(3, 1000)
    secret = base64.b64encode(TokenKeys("hush").hmac_of("a-token")).decode()
    assert not by_scram(Session(rules(image)), "a-token", secret, is_delegation_token=True)  # without a key there are no tokens


@pytest.mark.parametrize("call", ["admin", "consumer"])
def test_a_client_that_was_idle_beyond_its_session_renews_it_before_it_asks(call, caplog):
    config = {**sasl_listener({"alice": "x"}), "connections.max.reauth.ms": 100_000}
    with EmbeddedCluster(config=config, faults=True) as cluster, ExitStack() as stack:
        cluster.create_topic("t")
        settings = as_user(cluster, password="x")
        if call == "admin":
            client = stack.enter_context(KafkaAdminClient(settings))
            ask = client.list_topics
        else:
            client = stack.enter_context(KafkaConsumer({**settings, "fetch.max.wait.ms": 1}))
            client.assign([TopicPartition("t", 0)])

            def ask():
                client.poll(0.05)
                client.position(TopicPartition("t", 0), 10)

        ask()
        network = driver_of(client).client
        while network.in_flight.count:
            network.poll(10, network.selector.now_ms)
        cluster.jump_clock(1, 200_000, asleep=True)
        for connection in sessions_of(network).values():
            connection.reauthenticate_ms = 0
        network._recompute_setup_deadline()
        handshakes = []
        cluster.control("SaslHandshake", lambda request: handshakes.append(request.mechanism))
        while not handshakes:
            ask()
        assert not [record for record in caplog.records if "closing connection" in record.getMessage()]
