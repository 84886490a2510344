"""SASL on a connection: its requests over a stream, its refusals, and authenticating again before a session ends."""

import hashlib
import struct
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from kafkacore import protocol
from kafkacore.bounds import SASL_ANSWER_BYTES
from kafkacore.clock import ManualClock
from kafkacore.config_security import SaslSettings
from kafkacore.errors import (
    AuthenticationFailedError,
    ConfigError,
    CorruptDataError,
    IllegalSaslState,
    KafkaError,
    SaslAuthentication,
    UnsupportedSaslMechanism,
)
from kafkacore.metadata import NEVER_MS
from kafkacore.net.authentication import SaslAuthenticator, authenticators, new_clients
from kafkacore.net.connection import REAUTHENTICATING
from kafkacore.net.sasl import ScramServer, salted_password, scram_credential
from kafkacore.net.transport import memory_pair
from tests.kit.inside import connections_of
from tests.kit.rows import each_row
from tests.net.net_support import Peer
from tests.net.sasl_support import CREDENTIAL, PASSWORD, SaslBroker, SaslCluster

PLAIN = SaslSettings("PLAIN", "alice", PASSWORD)
SCRAM = SaslSettings("SCRAM-SHA-512", "alice", PASSWORD)


def connection(settings=PLAIN, **broker):
    near, far = memory_pair()
    near.peer = "kafka-1:9092"
    authenticator = SaslAuthenticator(new_clients(settings, ManualClock()), "me")
    return authenticator, near, SaslBroker(Peer(far, None), **broker)


def authenticate(authenticator, transport, broker):
    for _ in range(10_000):
        if authenticator.step(transport):
            return
        broker.serve()
    raise AssertionError("no end")


@each_row("step_bytes", [1, 3, 1 << 20])
@each_row("settings", [PLAIN, SCRAM])
def test_to_its_end_over_any_pieces(settings, step_bytes):
    authenticator, transport, broker = connection(settings, lifetime_ms=5_000)
    transport.max_read_bytes = transport.max_write_bytes = step_bytes
    assert authenticator.session_lifetime_ms == 0
    authenticate(authenticator, transport, broker)
    tokens = 1 if settings is PLAIN else 2
    assert broker.asked == [(18, 0), (17, 1), *[(36, 2)] * tokens]
    assert broker.machine.user == "alice"
    assert authenticator.session_lifetime_ms == 5_000


def test_the_password_is_hashed_once_per_salt_and_not_for_every_connection(monkeypatch):
    hashed, real = [], hashlib.pbkdf2_hmac

    def counting(name, password, salt, iterations):
        hashed.append((salt, iterations))
        return real(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counting)
    new_client = new_clients(SCRAM, ManualClock())
    other = scram_credential("SCRAM-SHA-512", salted_password("SCRAM-SHA-512", PASSWORD, b"pepper", 5000), b"pepper", 5000)
    hashed.clear()
    for credential in (CREDENTIAL, CREDENTIAL, other, CREDENTIAL, other):
        near, far = memory_pair()
        machine = ScramServer("SCRAM-SHA-512", {"alice": credential}.get)
        authenticate(SaslAuthenticator(new_client, "me"), near, SaslBroker(Peer(far, None), machine=machine))
        assert machine.done
    assert hashed == [(b"salt", 4096), (b"pepper", 5000)]


def test_a_refusal_has_no_effect_on_a_terminal():
    class Hostile:
        def step(self, token):
            raise SaslAuthentication("no\x1b[2J\nkafkacore: deleted everything" + "x" * 30_000)

    authenticator, transport, broker = connection(machine=Hostile())
    with pytest.raises(SaslAuthentication) as caught:
        authenticate(authenticator, transport, broker)
    said = caught.value.message
    assert r"no\x1b[2J\nkafkacore: deleted everythingxxx" in said
    assert said.isprintable() and len(said) < 400


def test_bytes_behind_the_last_answer_stay_for_the_channel():
    authenticator, transport, broker = connection()
    transport.max_read_bytes = 1 << 20
    while True:
        if authenticator.step(transport):
            break
        if broker.serve() and broker.asked[-1][0] == 36:
            broker.peer.transport.write([b"more"], 0)
    left = bytearray(10)
    assert transport.read_into(left, 0, 10) == 4
    assert left[:4] == b"more"


@each_row(("offered", "spoken"), [((0, 0), 0), ((0, 1), 1), ((0, 9), 2)])
@each_row("handshake", [(0, 1), (1, 9)])
def test_versions_of_older_and_newer_brokers(offered, spoken, handshake):
    authenticator, transport, broker = connection(authenticate=offered, handshake=handshake, lifetime_ms=7)
    authenticate(authenticator, transport, broker)
    assert broker.asked[-1] == (36, spoken)
    assert authenticator.session_lifetime_ms == (7 if spoken else 0)


@each_row(
    ("broker", "kind", "why"),
    [
        ({"password": "other"}, SaslAuthentication, "Invalid username or password"),
        ({"code": 33}, UnsupportedSaslMechanism, "the broker offers PLAIN, GSSAPI"),
        ({"code": 34}, IllegalSaslState, "this listener of the broker does not use SASL"),
        ({"authenticate": None}, UnsupportedSaslMechanism, "older than Kafka 1.0"),
        ({"authenticate": (5, 6)}, UnsupportedSaslMechanism, "does not speak SaslAuthenticate"),
        *(({"handshake": each}, UnsupportedSaslMechanism, "does not speak SaslAuthenticate") for each in (None, (0, 0), (2, 3))),
        ({"machine": SimpleNamespace(step=Mock(side_effect=SaslAuthentication("")))}, SaslAuthentication, "invalid credentials$"),
    ],
)
def test_refusals_name_mechanism_user_and_broker(broker, kind, why):
    with pytest.raises(kind, match=f"PLAIN authentication of user 'alice' by kafka-1:9092 failed: .*{why}") as caught:
        authenticate(*connection(**broker))
    assert isinstance(caught.value, AuthenticationFailedError)
    assert caught.value.fatal
    assert not caught.value.retriable
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(caught.value.__cause__)


def test_a_handshake_may_fail_for_any_reason():
    with pytest.raises(KafkaError) as caught:
        authenticate(*connection(code=-1))
    assert (caught.value.code, isinstance(caught.value, AuthenticationFailedError)) == (-1, False)


@each_row(
    "settings",
    [
        SaslSettings("OAUTHBEARER", claims={"sub": "alice"}, extensions={"auth": "x"}),
        SaslSettings("PLAIN", "alice", "\0"),
        SaslSettings("SCRAM-SHA-512", "", "x"),
    ],
)
def test_what_no_message_holds_is_an_error_of_the_settings(settings):
    with pytest.raises(ConfigError):
        new_clients(settings, ManualClock())


@each_row(
    ("data", "why"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 3), "a frame of 3 bytes"),
        (struct.pack(">i", SASL_ANSWER_BYTES + 1), f"a frame of {SASL_ANSWER_BYTES + 1} bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Kafka's protocol"),
        (struct.pack(">ii", 4, 99), "answered request 99 instead of 0"),
        (struct.pack(">ii", 4, 0), None),
        (struct.pack(">iihi", 10, 0, 0, 2**31 - 1), None),
    ],
)
def test_garbage_instead_of_an_answer(data, why):
    authenticator, transport, broker = connection()
    assert not authenticator.step(transport)
    broker.peer.transport.write([data], 0)
    with pytest.raises(CorruptDataError, match=why):
        authenticator.step(transport)
    authenticator, transport, broker = connection()
    authenticator.step(transport)
    broker.peer.transport.write([struct.pack(">i", SASL_ANSWER_BYTES)], 0)
    assert not authenticator.step(transport)  # its rest may come
    authenticator, transport, broker = connection()
    authenticator.step(transport)
    broker.peer.close()
    with pytest.raises(ConnectionResetError, match="kafka-1:9092 closed it during SASL authentication"):
        authenticator.step(transport)


# ---- through the network client


class PasswordCluster(SaslCluster):
    """Notes what broker 1 is asked, in `order`."""

    password = PASSWORD
    login = None

    def authenticator(self):
        self.order = []
        made = authenticators(PLAIN, "me", self.clock)
        made.login = self.login
        return made

    def sasl_broker(self, peer) -> SaslBroker:
        broker = super().sasl_broker(peer)
        broker.password = self.password
        return broker

    def note_request(self, peer, key: int) -> None:
        if peer.address.host == "broker-1":
            self.order.append(key)


@pytest.fixture
def cluster():
    made = PasswordCluster()
    yield made
    made.close()


def test_nothing_goes_before_authentication(cluster):
    cluster.until_ready()
    assert cluster.order[:4] == [18, 17, 36, 18]
    assert connections_of(cluster.client)[1].reauthenticate_ms == NEVER_MS


def test_a_wrong_password_is_told_and_not_retried_at_once(cluster):
    cluster.password = "other"
    node = cluster.node()
    for _ in range(10):
        cluster.client.ready(node, cluster.now_ms)
        cluster.poll()
    assert isinstance(cluster.client.authentication_exception(node), SaslAuthentication)
    assert isinstance(cluster.metadata.fatal_error, SaslAuthentication)
    assert cluster.client.connection_delay(node, cluster.now_ms) > 0
    assert cluster.order.count(36) <= 2  # one of each address
    assert cluster.client.node_stats[1].failed_authentications == cluster.client.node_stats[1].connections_closed == 1


def test_a_session_is_renewed_between_requests(cluster):
    cluster.lifetime_ms = 20_000
    node = cluster.until_ready()
    connection = connections_of(cluster.client)[1]
    left_ms = connection.reauthenticate_ms - cluster.now_ms
    assert 17_000 <= left_ms <= 19_000
    seen = []
    cluster.send(seen=seen)
    cluster.clock.advance(left_ms)
    cluster.client.poll(0, cluster.now_ms)
    assert connection.state == REAUTHENTICATING
    assert not cluster.client.is_ready(node, cluster.now_ms)
    assert cluster.client.least_loaded_node(cluster.now_ms) is not None
    # What was asked before is answered before, and reaches its caller.
    peer = cluster.peer()
    broker = cluster.brokers[id(peer)]
    broker.machine = None
    (produce, _), (handshake, request) = peer.read()
    peer.answer(produce, protocol.ProduceResponse(responses=[]))
    cluster.client.poll(0, cluster.now_ms)
    assert [response.error for response in seen] == [None]
    broker.answer(handshake, request)
    for _ in range(3):
        cluster.poll()
    assert cluster.client.is_ready(node, cluster.now_ms)
    assert connection.reauthenticate_ms > cluster.now_ms


def test_a_session_of_a_millisecond_is_renewed_after_a_tenth_of_a_second(cluster):
    cluster.lifetime_ms = 1
    cluster.until_ready()
    assert connections_of(cluster.client)[1].reauthenticate_ms == cluster.now_ms + 100


def test_a_renewal_that_is_refused_ends_the_connection(cluster):
    cluster.lifetime_ms = 100_000
    node = cluster.until_ready()
    cluster.password = "changed meanwhile"
    cluster.clock.advance(connections_of(cluster.client)[1].reauthenticate_ms - cluster.now_ms)
    for _ in range(6):
        cluster.poll()
    assert isinstance(cluster.client.authentication_exception(node), SaslAuthentication)
    assert cluster.client.connection_failed(node)


class Login:
    """A token for every connection, until the test takes it away."""

    deadline_ms = NEVER_MS
    on_answer = None
    has_token = True
    refusal = None

    def ready(self, _now_ms):
        if self.refusal is not None:
            raise self.refusal
        return self.has_token

    def close(self):
        """There is nothing to let go of."""


class TwoBrokers(PasswordCluster):
    """Sessions with two brokers, which end within the time that a connection may take to be set up."""

    lifetime_ms = 5_000

    def __init__(self):
        self.login = Login()
        super().__init__((1, 2))

    def asked(self, node_id):
        """The API keys of what a node was asked."""
        return [header.request_api_key for peer in self.peers if peer.address.host == f"broker-{node_id}" for header, _ in peer.requests]

    def end_session(self, *node_ids):
        self.clock.advance(max(connections_of(self.client)[each].reauthenticate_ms for each in node_ids) - self.now_ms)


@pytest.fixture
def two():
    made = TwoBrokers()
    yield made
    made.close()


def test_a_node_that_is_being_written_to_holds_up_no_other_renewal(two):
    for node_id in (1, 2):
        two.until_ready(node_id)
    two.peer("broker-1").transport.other.max_write_bytes = 0
    two.send(1)
    two.client.poll(0, two.now_ms)
    assert not two.client.in_flight.can_send_more(1)
    two.end_session(1, 2)
    two.client.poll(0, two.now_ms)
    assert [header.request_api_key for header, _ in two.peer("broker-2").read()] == [17]


@pytest.mark.parametrize("refusal", [None, AuthenticationFailedError("no token")])
def test_a_node_without_a_token_holds_up_no_node_that_has_authenticated(two, refusal):
    """Node 1 waits for a token to renew its session; node 2 has let the client in and is to be asked for its versions."""
    two.until_ready(1)
    two.connected = False
    two.client.ready(two.node(2), two.now_ms)  # started while there was a token
    two.login.has_token = False
    two.end_session(1)
    two.client.poll(0, two.now_ms)
    assert connections_of(two.client)[1].state == REAUTHENTICATING
    two.peer("broker-2").transport.accept()
    while two.asked(2) != [18, 17, 36]:
        two.client.poll(0, two.now_ms)
        two.serve()
    two.login.refusal = refusal
    two.client.poll(0, two.now_ms)
    assert two.client.connection_failed(two.node(1)) == (refusal is not None)
    (header, _), *more = two.peer("broker-2").read()
    assert (header.request_api_key, header.request_api_version, more) == (18, protocol.ApiVersionsRequest.MAX_VERSION, [])
