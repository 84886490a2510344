"""What may hang without stopping anything else: the resolver for one broker's name, the place where OAuth tokens come from."""

import queue
import random
import socket
import threading

import pytest

from kafkacore import KafkaProducer, protocol
from kafkacore.config_security import SaslSettings
from kafkacore.errors import AuthenticationFailedError, NetworkError
from kafkacore.metadata import NEVER_MS
from kafkacore.net import background
from kafkacore.net.authentication import authenticators
from kafkacore.net.client import NetworkClient
from kafkacore.net.connection import AWAITING_TOKEN, REAUTHENTICATING, RESOLVING
from kafkacore.net.oauth import ASK_TIMEOUT_MS, read_unsecured_token, unsecured_token
from kafkacore.net.sasl import OAuthBearerServer
from kafkacore.net.selector import Selector
from kafkacore.types import Node
from tests.kit.clusters import embedded
from tests.kit.inside import connections_of, found_out_of, lookups_of, running_lookups
from tests.kit.records import fill, read, values_of
from tests.net.net_support import Cluster, CountingPoller, noting_wakeups
from tests.net.sasl_support import SaslCluster

WAIT_S = 90


def leave(cluster, state):
    """Polls, woken by helper threads, until no connection is in a state."""
    while any(one.state == state for one in connections_of(cluster.client).values()):
        assert cluster.woken.acquire(timeout=WAIT_S)
        cluster.poll()


def one_produce(cluster, node_id):
    """One request to a node, answered."""
    seen = []
    cluster.send(node_id, seen=seen)
    peer = cluster.peer(f"broker-{node_id}")
    header = next(header for header, _ in peer.read() if header.request_api_key == 0)
    peer.answer(header, protocol.ProduceResponse(responses=[]))
    cluster.client.poll(0, cluster.now_ms)
    return [response.error for response in seen]


# ---- names


class Resolver:
    """The system's resolver, whose answers the test gives."""

    def __init__(self):
        self.slow = {}  # host -> queue of answers
        self.asked = threading.Semaphore(0)
        self.calls = []

    def hangs(self, *hosts):
        for host in hosts:
            self.slow[host] = queue.SimpleQueue()

    def answer(self, host, *ips):
        self.slow[host].put(ips)

    def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.calls.append(host)
        ips = (host,)
        if host in self.slow:
            self.asked.release()
            ips = self.slow[host].get()
        if not ips:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]


@pytest.fixture
def resolver(monkeypatch):
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    for answers in made.slow.values():
        for _ in range(10):
            answers.put(())


class ResolvingCluster(Cluster):
    """Asks the system's resolver, as real clients do."""

    def make_client(self):
        client = NetworkClient(self.selector, self.metadata, self.config, rng=random.Random(1))
        self.woken = noting_wakeups(client)
        return client

    def until_ready(self, id=1):
        node = self.node(id)
        for _ in range(30):
            if self.client.ready(node, self.now_ms):
                return node
            leave(self, RESOLVING)
            self.poll()
        raise AssertionError(f"node {id} does not become ready")

    def start(self):
        """Until the metadata is there."""
        while self.metadata.snapshot.is_bootstrap:
            self.poll()
            tried = len(connections_of(self.client)) == len(self.config.bootstrap_addresses)
            if tried and not self.peers:
                assert self.woken.acquire(timeout=WAIT_S)


@pytest.fixture
def cluster(resolver):
    made = ResolvingCluster((1, 2))
    made.start()
    yield made
    made.close()


def test_a_resolver_that_hangs_for_one_broker_does_not_keep_another_from_being_asked(cluster, resolver):
    cluster.until_ready(1)
    resolver.hangs("broker-2")
    node = cluster.node(2)
    assert not cluster.client.ready(node, cluster.now_ms)
    assert resolver.asked.acquire(timeout=WAIT_S)
    for _ in range(3):
        assert not cluster.client.ready(node, cluster.now_ms)
        assert one_produce(cluster, 1) == [None]
    assert connections_of(cluster.client)[2].state == RESOLVING
    assert cluster.client.connection_delay(node, cluster.now_ms) == 250
    assert cluster.client.least_loaded_node(cluster.now_ms).id == 1
    cluster.clock.advance(250)
    assert 5_000 < cluster.client.connection_delay(node, cluster.now_ms) <= 12_000
    resolver.answer("broker-2", "broker-2")
    cluster.until_ready(2)
    assert one_produce(cluster, 2) == [None]
    assert resolver.calls.count("broker-2") == 1


def test_a_name_that_is_not_resolved_in_time_fails_its_own_broker_and_its_late_answer_is_used(cluster, resolver):
    cluster.until_ready(1)
    resolver.hangs("broker-2")
    node = cluster.node(2)
    cluster.client.ready(node, cluster.now_ms)
    assert resolver.asked.acquire(timeout=WAIT_S)
    for attempt in range(3):
        for _ in range(2):
            cluster.clock.advance(cluster.client.connection_delay(node, cluster.now_ms))
            cluster.poll()
        assert cluster.client.connection_failed(node)
        error = cluster.client.connection_errors(node)[-1]
        assert isinstance(error, NetworkError)
        assert "cannot resolve host 'broker-2': there was no answer within" in str(error)
        cluster.clock.advance(cluster.client.connection_delay(node, cluster.now_ms))
        if attempt < 2:
            assert not cluster.client.ready(node, cluster.now_ms)
    assert resolver.calls.count("broker-2") == 1  # one thread, however many attempts
    assert one_produce(cluster, 1) == [None]
    resolver.answer("broker-2", "broker-2")
    while running_lookups(cluster.client):  # it comes when no one waits for it
        assert cluster.woken.acquire(timeout=WAIT_S)
        cluster.poll()
    cluster.until_ready(2)
    assert resolver.calls.count("broker-2") == 1


def test_two_brokers_at_one_host_share_a_lookup(cluster, resolver):
    resolver.hangs("both")
    nodes = [Node(id, "both", 9009) for id in (7, 8)]
    for node in nodes:
        assert not cluster.client.ready(node, cluster.now_ms)
    resolver.answer("both", "both")
    leave(cluster, RESOLVING)
    assert [connections_of(cluster.client)[id].attempts for id in (7, 8)] == [[], []]
    assert resolver.calls.count("both") == 1


def test_a_poll_takes_in_all_that_helper_threads_have_found_out(cluster, resolver):
    hosts = ("broker-1", "broker-2")
    resolver.hangs(*hosts)
    for node_id in (1, 2):
        assert not cluster.client.ready(cluster.node(node_id), cluster.now_ms)
    resolver.answer("broker-1")
    resolver.answer("broker-2", "broker-2")
    while len(found_out_of(cluster.client)) < 2:
        assert cluster.woken.acquire(timeout=WAIT_S)
    cluster.client.poll(0, cluster.now_ms)
    assert cluster.client.connection_failed(cluster.node(1)) and not cluster.client.connection_failed(cluster.node(2))
    cluster.until_ready(2)
    assert resolver.calls.count("broker-2") == 1


def test_answers_that_come_late_are_each_used_by_its_own_next_attempt(cluster, resolver):
    nodes = {id: cluster.node(id) for id in (1, 2)}
    resolver.hangs("broker-1", "broker-2")
    for node in nodes.values():
        assert not cluster.client.ready(node, cluster.now_ms)
    while not all(cluster.client.connection_failed(node) for node in nodes.values()):
        cluster.metadata.next_update_ms = NEVER_MS  # no third party that asks for them
        cluster.clock.advance(1_000)
        cluster.client.poll(0, cluster.now_ms)
    resolver.answer("broker-1")
    resolver.answer("broker-2", "broker-2")
    while running_lookups(cluster.client):
        assert cluster.woken.acquire(timeout=WAIT_S)
        cluster.client.poll(0, cluster.now_ms)
    cluster.clock.advance(60_000)
    cluster.until_ready(2)
    assert not cluster.client.ready(nodes[1], cluster.now_ms)
    assert "Name or service not known" in str(cluster.client.connection_errors(nodes[1])[-1])
    assert [resolver.calls.count(f"broker-{id}") for id in nodes] == [1, 1]


def test_an_answer_whose_step_ctrl_c_has_ended_is_used_by_the_next_attempt(cluster, resolver, monkeypatch):
    """A producer keeps its client then: an answer that is lost would leave the name unresolved for good."""
    resolver.hangs("broker-2")
    node = cluster.node(2)
    cluster.client.ready(node, cluster.now_ms)
    resolver.answer("broker-2", "broker-2")

    def interrupt(_key, _now_ms):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lookups_of(cluster.client), "_arrived", interrupt)
        with pytest.raises(KeyboardInterrupt):
            leave(cluster, RESOLVING)
    while not cluster.client.connection_failed(node):  # the attempt ends at its deadline
        cluster.clock.advance(cluster.client.connection_delay(node, cluster.now_ms))
        cluster.poll()
    cluster.clock.advance(cluster.client.connection_delay(node, cluster.now_ms))
    cluster.until_ready(2)
    assert resolver.calls.count("broker-2") == 1


def test_a_lookup_that_ctrl_c_kept_from_beginning_begins_with_the_next_attempt(cluster, resolver, monkeypatch):
    resolver.hangs("broker-2")
    node = cluster.node(2)

    def interrupt(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(background, "call_in_background", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cluster.client.ready(node, cluster.now_ms)
    resolver.answer("broker-2", "broker-2")
    cluster.until_ready(2)


def test_a_call_in_the_background_has_a_thread_that_keeps_no_process_waiting():
    threads = queue.SimpleQueue()
    background.call_in_background("a call", threading.current_thread, threads.put)
    thread = threads.get(timeout=WAIT_S)
    assert thread.daemon
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_call_in_place_leaves_ctrl_c_to_the_caller(monkeypatch):
    def no_thread(_thread):
        raise RuntimeError("can't start new thread")

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        background.call_in_background("a call", interrupted, seen.append)
    background.call_in_background("a call", lambda: 1, seen.append)
    assert seen == [1]


def test_a_name_without_address_is_told_and_asked_for_again(cluster, resolver):
    resolver.hangs("broker-2")
    node = cluster.node(2)
    for attempt in range(2):
        cluster.client.ready(node, cluster.now_ms)
        resolver.answer("broker-2")
        leave(cluster, RESOLVING)
        assert "cannot resolve host 'broker-2': Name or service not known" in str(cluster.client.connection_errors(node)[attempt])
        cluster.clock.advance(cluster.client.connection_delay(node, cluster.now_ms))
    assert resolver.calls.count("broker-2") == 2


def test_metadata_comes_from_another_server_while_the_first_ones_name_hangs(resolver):
    resolver.hangs("boot-1", "boot-2")
    cluster = ResolvingCluster((1,), bootstrap=("boot-1:9000", "boot-2:9000"))
    try:
        for waits_ms in (250, 5_001):  # the second one is asked soon; then there is no other to ask, and no polling
            cluster.client.poll(60_000, cluster.now_ms)
            assert resolver.asked.acquire(timeout=WAIT_S)
            assert cluster.poller.waits[-1] == waits_ms or cluster.poller.waits[-1] >= waits_ms > 250
            cluster.clock.advance(250)
        assert sorted(resolver.calls) == ["boot-1", "boot-2"]
        resolver.answer(resolver.calls[1], "there")
        cluster.start()
        assert cluster.peers[0].address.host == resolver.calls[1]
    finally:
        cluster.close()


brokers = embedded({"t": [[b"v"]]})


def test_an_address_needs_no_thread(brokers, monkeypatch):
    def no_thread(*_args, **_options):
        raise AssertionError("a thread for an address")

    monkeypatch.setattr("kafkacore.net.background.call_in_background", no_thread)
    assert fill(brokers.bootstrap_servers, "t", [b"v"]) != []


def test_closing_does_not_wait_for_a_resolver_that_hangs(brokers, monkeypatch):
    real, asked, release = socket.getaddrinfo, threading.Event(), threading.Event()

    def getaddrinfo(host, *args, flags=0, **options):
        if host == "hangs.example" and not flags & socket.AI_NUMERICHOST:
            asked.set()
            release.wait()
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *args, flags=flags, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        servers = ["hangs.example:9092", *brokers.bootstrap_servers.split(",")]
        fill(servers, "t", [b"v"])
        assert values_of(read(servers, "t", 1))[0] == b"v"
        alone = KafkaProducer(bootstrap_servers=["hangs.example:9092"])
        assert asked.wait(WAIT_S)
        alone.close(0)
    finally:
        release.set()


# ---- tokens


class Tokens:
    """A provider of tokens, which hangs when the test wants it to."""

    def __init__(self, clock):
        self.clock = clock
        self.life_ms = 60_000
        self.hanging = None
        self.error = None
        self.calls = 0
        self.asked = threading.Semaphore(0)

    def hang(self):
        self.hanging = threading.Event()

    def release(self):
        self.hanging.set()

    def __call__(self):
        self.calls += 1
        self.asked.release()
        if self.hanging is not None:
            self.hanging.wait()
        if self.error is not None:
            raise self.error
        now_ms = self.clock.wall_ms()
        return unsecured_token({"sub": "alice"}, now_ms, self.life_ms // 1000), now_ms + self.life_ms


class TokenCluster(SaslCluster):
    """A cluster whose connections authenticate with tokens."""

    def authenticator(self):
        self.tokens = Tokens(self.clock)
        return authenticators(SaslSettings("OAUTHBEARER", token_provider=self.tokens), "me", self.clock)

    def make_client(self):
        client = super().make_client()
        self.woken = noting_wakeups(client)
        return client

    @property
    def login(self):
        return self.selector.authenticator.login

    def machine(self, peer):
        return OAuthBearerServer(lambda token: read_unsecured_token(token, self.clock.wall_ms())[0])

    def has_token(self):
        try:
            return bool(self.login.token())
        except AuthenticationFailedError:
            return False

    def wait_for_ready(self, *ids):
        """Polls; where only a token is waited for, until that is there."""
        for _ in range(100):
            if not [id for id in ids if not self.client.ready(self.node(id), self.now_ms)]:
                return
            leave(self, AWAITING_TOKEN)
            if any(one.state == REAUTHENTICATING for one in connections_of(self.client).values()) and not self.has_token():
                assert self.woken.acquire(timeout=WAIT_S)
            self.poll()
        raise AssertionError(f"nodes {ids} do not become ready")


@pytest.fixture
def secured():
    made = TokenCluster((1, 2))
    yield made
    made.tokens.error = ValueError("end of the test")
    if made.tokens.hanging is not None:
        made.tokens.release()
    made.close()


def expire(cluster):
    """The token's life passes; its refresh fails on the way."""
    cluster.tokens.error = ValueError("down")
    cluster.clock.advance(cluster.tokens.life_ms)
    while cluster.login.deadline_ms != NEVER_MS:
        cluster.poll()
        assert cluster.woken.acquire(timeout=WAIT_S)
        cluster.poll()
    cluster.clock.advance(20_000)


def test_tokens_that_are_not_given_do_not_keep_another_broker_from_being_asked(secured):
    secured.wait_for_ready(1)
    expire(secured)
    secured.tokens.error = None
    secured.tokens.hang()
    node = secured.node(2)
    for _ in range(3):
        assert not secured.client.ready(node, secured.now_ms)
        assert one_produce(secured, 1) == [None]
    assert connections_of(secured.client)[2].state == AWAITING_TOKEN
    assert not [peer for peer in secured.peers if peer.address.host == "broker-2"]  # no broker waits for it either
    secured.tokens.release()
    secured.wait_for_ready(2)
    assert one_produce(secured, 2) == [None]


def test_an_ask_that_takes_too_long_fails_who_waits_for_it_at_its_deadline(secured):
    secured.tokens.hang()
    node = secured.node(2)
    assert not secured.client.ready(node, secured.now_ms)
    assert secured.tokens.asked.acquire(timeout=WAIT_S)
    secured.poller.waits.clear()
    secured.client.poll(60_000, secured.now_ms)
    assert secured.poller.waits[-1] <= ASK_TIMEOUT_MS  # the client comes back by itself
    secured.clock.advance(ASK_TIMEOUT_MS)
    secured.poll(2)
    assert "gave no answer within 10000 ms" in str(secured.client.authentication_exception(node))
    secured.tokens.release()
    assert secured.woken.acquire(timeout=WAIT_S)
    secured.clock.advance(1_000)
    secured.wait_for_ready(2)
    assert secured.tokens.calls == 1


def test_a_session_whose_token_has_expired_waits_for_the_next_one_without_stopping_the_others(secured):
    secured.lifetime_ms = 100_000
    secured.wait_for_ready(1)
    secured.lifetime_ms = 0
    secured.wait_for_ready(2)
    expire(secured)
    secured.tokens.error = None
    secured.tokens.hang()
    connection = connections_of(secured.client)[1]
    secured.clock.advance(connection.reauthenticate_ms - secured.now_ms)
    for _ in range(3):
        secured.poll()
        assert one_produce(secured, 2) == [None]
    assert connection.state == REAUTHENTICATING
    secured.tokens.release()
    secured.wait_for_ready(1)
    assert len([peer for peer in secured.peers if peer.address.host == "broker-1"]) == 1


def test_a_session_that_gets_no_token_ends(secured):
    secured.lifetime_ms = 100_000
    secured.wait_for_ready(1)
    expire(secured)
    connection = connections_of(secured.client)[1]
    secured.clock.advance(connection.reauthenticate_ms - secured.now_ms)
    secured.poll()
    assert connection.state == REAUTHENTICATING
    leave(secured, REAUTHENTICATING)
    assert isinstance(secured.client.authentication_exception(secured.node(1)), AuthenticationFailedError)
    secured.tokens.error = None
    secured.clock.advance(20_000)
    secured.wait_for_ready(1)


def test_a_second_network_client_takes_over_the_ask(secured):
    """After Ctrl+C a driver goes on with new connections, and with the same login."""
    secured.tokens.hang()
    assert not secured.client.ready(secured.node(1), secured.now_ms)
    assert secured.tokens.asked.acquire(timeout=WAIT_S)
    authenticator = secured.selector.authenticator
    secured.selector.close()
    secured.selector = Selector(secured.clock, transports=secured, poller=CountingPoller(secured.serve), authenticator=authenticator)
    secured.client = Cluster.make_client(secured)
    secured.woken = noting_wakeups(secured.client)
    assert not secured.client.ready(secured.node(1), secured.now_ms)
    secured.tokens.release()
    secured.wait_for_ready(1)
    assert secured.tokens.calls == 1


def test_closing_does_not_wait_for_a_token_and_ends_the_ask(secured, monkeypatch):
    ended = []
    monkeypatch.setattr(secured.login, "close", lambda: ended.append(True))
    secured.tokens.hang()
    secured.client.ready(secured.node(1), secured.now_ms)
    assert secured.tokens.asked.acquire(timeout=WAIT_S)
    secured.client.close()
    assert ended
    secured.tokens.release()
    assert secured.woken.acquire(timeout=WAIT_S)  # its wake-up finds the selector closed
