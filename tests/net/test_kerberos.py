"""Kerberos by a KDC of the test's own: RFC 4752's dialogue, what fails and how, and when tickets are asked for."""

import itertools
import os
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.bounds import TICKETS_ASKED
from kafkacore.config_kerberos import BrokerKeytab, KerberosSettings
from kafkacore.config_security import SaslSettings
from kafkacore.errors import AuthenticationFailedError, ConfigError, NetworkError, SaslAuthentication
from kafkacore.metadata import NEVER_MS
from kafkacore.net.authentication import authenticators
from kafkacore.net.connection import AWAITING_TOKEN, READY, REAUTHENTICATING
from kafkacore.net.kerberos import FRESH_MS, TICKET_TIMEOUT_MS, BrokerKeys, Initiator, KerberosLogin
from kafkacore.net.sasl_gssapi import GssapiClient, GssapiServer
from tests.kit.inside import connections_of, needs_versions_of
from tests.kit.kdc import REALM, Realm
from tests.kit.rows import each_row
from tests.net.net_support import noting_wakeups
from tests.net.sasl_support import SaslCluster

GUARD_S = 60
SERVICE = f"kafka/localhost@{REALM}"


@pytest.fixture(scope="module")
def keytabs(realm: Realm) -> dict[str, str]:
    return {"alice": realm.principal("alice"), "kafka": realm.principal("kafka/localhost", "kafka/other")}


def alices_settings(keytabs, principal="alice"):
    return KerberosSettings("kafka", principal, keytabs["alice"])


def client_of(context):
    return GssapiClient(context, context.first, context.user, context.peer)


def server_of(keytabs, principal=SERVICE):
    return GssapiServer(BrokerKeys(BrokerKeytab(keytabs["kafka"], principal)).context(), lambda name: name.partition("@")[0])


def talk(client, server):
    """What either side says, until the client has nothing more to say."""
    said = [client.step(None)]
    while True:
        answer = server.step(said[-1])
        token = client.step(answer)
        said += [answer]
        if token is None:
            return said
        said += [token]


# ---- the dialogue


@pytest.mark.parametrize("principal", [SERVICE, None])
def test_a_ticket_lets_in(keytabs, principal):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs, principal)
    said = talk(client, server)
    assert (client.done, server.done, server.user, client.user) == (True, True, "alice", f"alice@{REALM}")
    assert [len(each) == 0 for each in said] == [False, False, True, False, False, True]


def test_what_is_chosen_is_no_layer_and_the_clients_own_name(keytabs):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    said = talk(client, server)
    assert server.context.unwrap(client.context.wrap(b"x")) == b"x"
    assert client.context.unwrap(server.context.wrap(b"x")) == b"x"
    # Integrity without encryption: the token header of RFC 4121, section 4.2.6.2, then the message as it is.
    offer, choice = said[3], said[4]
    assert (offer[:2], offer[16:20]) == (b"\x05\x04", b"\x01\x00\x00\x00")
    assert (choice[:2], choice[16:].startswith(b"\x01\x00\x00\x00" + f"alice@{REALM}".encode())) == (b"\x05\x04", True)


def test_neither_side_goes_on_after_its_end_or_out_of_its_order(keytabs):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    with pytest.raises(SaslAuthentication, match="the broker goes on with GSSAPI out of its order"):
        client_of(client.context).step(b"x")
    said = talk(client, server)
    with pytest.raises(SaslAuthentication, match="the client goes on with GSSAPI after its end"):
        server.step(said[4])
    for challenge in (None, b""):
        with pytest.raises(SaslAuthentication, match="the broker goes on with GSSAPI out of its order"):
            client.step(challenge)
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    client.step(server.step(client.step(None)))
    with pytest.raises(SaslAuthentication, match="the client sent 1 bytes where GSSAPI has none"):
        server.step(b"x")
    client.step(server.step(b""))
    with pytest.raises(SaslAuthentication, match="sent a challenge of 1 bytes where GSSAPI has none"):
        client.step(b"x")
    assert not client.done


@each_row(
    ("offer", "why"),
    [(b"\x01\0\0", "in 3 bytes instead of 4"), (b"\x06\0\1\0", "wants a security layer of SASL's own"), (b"", "in 0 bytes")],
)
def test_offers_that_a_client_refuses(keytabs, offer, why):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    proof = server.step(client.step(None))
    assert client.step(proof) == b""
    with pytest.raises(SaslAuthentication, match=why):
        client.step(server.context.wrap(offer))
    assert not client.done


@each_row(
    ("choice", "why"),
    [
        (b"\x02\0\0\0", "chooses security layer 2"),
        (b"\x01\0\0", "in 3 bytes"),
        (b"", "in 0 bytes"),
        (b"\x01\0\0\0" + bytes(1_025), "in 1029 bytes"),
    ],
)
def test_choices_that_a_broker_refuses(keytabs, choice, why):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    client.step(server.step(client.step(None)))
    server.step(b"")
    with pytest.raises(SaslAuthentication, match=why):
        server.step(client.context.wrap(choice))
    assert (server.done, server.user) == (False, "")


def test_the_user_is_whom_the_ticket_names_whatever_the_client_says(keytabs):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    client.step(server.step(client.step(None)))
    server.step(b"")
    assert server.claimed == f"alice@{REALM}" and server.user == ""
    assert server.step(client.context.wrap(b"\x01\0\0\0" + bytes(1_024))) == b""
    assert server.user == "alice"


def test_a_ticket_counts_once_and_for_its_service_only(keytabs):
    first = Initiator(alices_settings(keytabs), "localhost").first
    server_of(keytabs).step(first)
    with pytest.raises(SaslAuthentication, match="ticket is refused: Request is a replay"):
        server_of(keytabs).step(first)
    other = Initiator(alices_settings(keytabs), "other").first
    with pytest.raises(SaslAuthentication, match=r"ticket is refused: .*kafka/other"):
        server_of(keytabs).step(other)


@each_row("challenge", [b"", b"\x60\x82\xff\xff", b"yes, it is me", bytes(100_000)])
def test_a_broker_without_the_services_key_proves_nothing(keytabs, challenge):
    client = client_of(Initiator(alices_settings(keytabs), "localhost"))
    client.step(None)
    with pytest.raises(SaslAuthentication, match="the broker does not prove that it is kafka/localhost"):
        client.step(challenge)
    assert not client.done


def test_changed_bytes_let_nobody_in(keytabs):
    """Each byte of the short messages, some of the ticket: no crash, and no user but the one of the ticket."""
    first = Initiator(alices_settings(keytabs), "localhost").first
    for at in range(0, len(first), 7):
        changed = bytearray(first)
        changed[at] ^= 0x55
        server = server_of(keytabs)
        try:
            server.step(bytes(changed))
        except SaslAuthentication:
            continue
        assert server.context.peer == f"alice@{REALM}"  # a byte that the ticket does not cover, as the flags outside of it
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    client.step(server.step(client.step(None)))
    offer = server.step(b"")
    for at in range(len(offer)):
        changed = bytearray(offer)
        changed[at] ^= 0x55
        try:
            assert client.context.unwrap(bytes(changed)) == b"\x01\0\0\0"  # RFC 4121 counts a shift modulo the length
            assert at == 6
        except SaslAuthentication as refusal:
            assert "was not wrapped by the other side" in refusal.message
    assert client.step(offer)


@given(tokens=st.lists(st.binary(max_size=300), min_size=1, max_size=4), real=st.booleans())
def test_anything_may_come_from_either_side(keytabs, tokens, real):
    client, server = client_of(Initiator(alices_settings(keytabs), "localhost")), server_of(keytabs)
    first = client.step(None)
    if real:
        client.step(server.step(first))
    for side in (client, server):
        with pytest.raises(SaslAuthentication):
            for token in [*tokens, b"", b""]:
                side.step(token)
        assert not side.done
    assert server.user == ""


# ---- what keeps a ticket away


def no_ticket(settings, host="localhost", error=AuthenticationFailedError):
    with pytest.raises(error) as caught:
        Initiator(settings, host)
    return caught.value.message


def test_wrong_names_and_keytabs_are_named(keytabs, realm, tmp_path):
    of, unknown = "GSSAPI authentication of", "not found in Kerberos database"
    assert no_ticket(alices_settings(keytabs), "elsewhere") == (
        f"{of} 'alice@{REALM}' failed: no Kerberos ticket for kafka/elsewhere: Server kafka/elsewhere@{REALM} {unknown}"
    )
    assert no_ticket(alices_settings(keytabs)._replace(service="pulsar")).endswith(f"Server pulsar/localhost@{REALM} {unknown}")
    assert no_ticket(alices_settings(keytabs, "bob")) == (
        f"{of} 'bob' failed: no Kerberos ticket for kafka/localhost: No key table entry found for bob@{REALM}"
    )
    (tmp_path / "no.keytab").write_bytes(b"this is none")
    assert "Unsupported key table format" in no_ticket(alices_settings(keytabs)._replace(keytab=str(tmp_path / "no.keytab")))
    assert "the keytab cannot be read: No such file" in no_ticket(alices_settings(keytabs)._replace(keytab=str(tmp_path / "gone")))
    said = no_ticket(KerberosSettings("kafka"))
    assert said.startswith("GSSAPI authentication failed: no Kerberos ticket for kafka/localhost: No Kerberos credentials available")


def test_old_keys_are_refused_by_the_kdc(realm):
    keytab = realm.principal("carol")
    realm.new_keys("carol")
    assert no_ticket(KerberosSettings("kafka", "carol", keytab)).endswith("Decrypt integrity check failed")


def test_a_brokers_keytab_that_is_replaced_counts_at_once(keytabs, realm):
    path = Path(realm.principal("kafka/rotated"))
    keys = BrokerKeys(BrokerKeytab(str(path), f"kafka/rotated@{REALM}"))
    old = Initiator(alices_settings(keytabs), "rotated").first
    realm.new_keys("kafka/rotated")
    os.utime(keytabs["alice"])  # another login, and so another ticket
    first = Initiator(alices_settings(keytabs), "rotated").first
    with pytest.raises(SaslAuthentication):
        GssapiServer(keys.context(), str).step(first)
    assert GssapiServer(keys.context(), str).step(old)
    path.write_bytes(Path(realm.keytab_of("kafka/rotated")).read_bytes())
    assert GssapiServer(keys.context(), str).step(Initiator(alices_settings(keytabs), "rotated").first)


def test_a_ticket_cache(keytabs, realm, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    realm.kinit("alice", keytabs["alice"], cache, "-l", "1h")
    named = KerberosSettings("kafka", None, None, str(cache))
    assert Initiator(named, "localhost").user == f"alice@{REALM}"
    assert Initiator(named._replace(principal=f"alice@{REALM}"), "localhost").user == f"alice@{REALM}"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    assert Initiator(KerberosSettings("kafka"), "localhost").user == f"alice@{REALM}"
    assert "bob" in no_ticket(named._replace(principal="bob"))


def test_a_ticket_that_has_expired_and_is_renewed(keytabs, realm, tmp_path):
    cache = tmp_path / "cache"
    realm.kinit("alice", keytabs["alice"], cache, "-l", "1h")
    kept = cache.read_bytes()
    cache.write_bytes(expired(kept))
    settings = KerberosSettings("kafka", None, None, str(cache))
    assert no_ticket(settings).endswith("no Kerberos ticket for kafka/localhost: The referenced credential has expired")
    cache.write_bytes(kept)  # as kinit does
    assert Initiator(settings, "localhost").user == f"alice@{REALM}"


def expired(cache: bytes) -> bytes:
    """A ticket cache whose tickets have ended an hour ago."""
    import time

    now = int(time.time())
    ends = {struct.pack(">I", now + 3_600 + each) for each in range(-100, 100)}
    found = [at for at in range(len(cache) - 4) if cache[at : at + 4] in ends]
    assert found
    changed = bytearray(cache)
    for at in found:
        changed[at : at + 4] = struct.pack(">I", now - 3_600)
    return bytes(changed)


def test_a_kdc_that_is_down_is_no_refusal(realm, keytabs):
    realm.principal("kafka/rare")
    os.utime(keytabs["alice"])  # no ticket of another test
    realm.stop()
    try:
        said = no_ticket(alices_settings(keytabs), "rare", NetworkError)
        assert said.endswith(f"no Kerberos ticket for kafka/rare: Cannot contact any KDC for realm '{REALM}'")
    finally:
        realm.start()
    assert Initiator(alices_settings(keytabs), "rare").first


def test_a_keytab_that_is_replaced_counts_at_once(realm):
    keytab = Path(realm.principal("dave"))
    assert Initiator(KerberosSettings("kafka", "dave", str(keytab)), "localhost").first
    keytab.write_bytes(Path(realm.principal("erin")).read_bytes())
    assert no_ticket(KerberosSettings("kafka", "dave", str(keytab))).endswith(f"No key table entry found for dave@{REALM}")


# ---- when tickets are asked for


class Tickets:
    """Makes contexts, or hangs, or fails, as the test wants; real ones by default."""

    def __init__(self):
        self.calls = []
        self.logins = []
        self.errors = []
        self.hanging = None
        self.asked = threading.Semaphore(0)

    def __call__(self, settings, host, login):
        self.calls.append(host)
        self.logins.append(login)
        self.asked.release()
        if self.hanging is not None:
            assert self.hanging.wait(GUARD_S)
        if self.errors:
            raise self.errors.pop()
        return Initiator(settings, host, login)


class Waiting:
    """A login of a client, and the time."""

    def __init__(self, keytabs):
        self.tickets = Tickets()
        self.login = KerberosLogin(alices_settings(keytabs), self.tickets)
        self.answered = threading.Semaphore(0)
        self.login.on_answer = self.answered.release
        self.now_ms = 0

    def ready(self, id=1, host="localhost"):
        return self.login.ready(self.now_ms, id, host)

    def until_ready(self, id=1, host="localhost"):
        while not self.ready(id, host):
            assert self.answered.acquire(timeout=GUARD_S)


@pytest.fixture
def waiting(keytabs):
    made = Waiting(keytabs)
    yield made
    if made.tickets.hanging is not None:
        made.tickets.hanging.set()


def test_a_context_serves_one_connection_once(waiting):
    waiting.until_ready()
    assert waiting.ready()
    assert waiting.login.client(1).user == f"alice@{REALM}"
    with pytest.raises(AuthenticationFailedError, match="no Kerberos ticket was asked for"):
        waiting.login.client(1)
    waiting.until_ready()
    assert waiting.tickets.calls == ["localhost"] * 2


def test_a_context_is_not_kept_for_long(waiting):
    waiting.until_ready()
    waiting.now_ms += FRESH_MS + 1
    assert not waiting.ready()
    waiting.until_ready()
    assert len(waiting.tickets.calls) == 2


def test_a_node_that_has_moved_gets_a_ticket_for_its_new_host(waiting):
    waiting.until_ready()
    waiting.until_ready(host="other")
    assert waiting.login.client(1).refusal == "the ticket was for kafka/other"


def test_a_kdc_that_hangs_fails_each_attempt_and_is_asked_once(waiting):
    waiting.tickets.hanging = threading.Event()
    for _ in range(3):
        assert not waiting.ready()
        assert waiting.login.deadline_ms == waiting.now_ms + TICKET_TIMEOUT_MS
        waiting.now_ms += TICKET_TIMEOUT_MS
        with pytest.raises(NetworkError, match="no Kerberos ticket for kafka/localhost: no answer within 10000 ms"):
            waiting.ready()
        assert waiting.login.deadline_ms == NEVER_MS
    assert waiting.tickets.calls == ["localhost"]
    waiting.tickets.hanging.set()
    assert waiting.answered.acquire(timeout=GUARD_S)
    assert waiting.ready()


def test_connections_whose_time_is_over_fail_and_others_keep_their_deadlines(waiting):
    waiting.tickets.hanging = threading.Event()
    assert not waiting.ready(1) and not waiting.ready(2)
    waiting.now_ms += TICKET_TIMEOUT_MS
    assert not waiting.ready(3)
    assert waiting.login.deadline_ms == waiting.now_ms  # the owner is to look after 1 and 2
    waiting.login.advance(waiting.now_ms)
    assert waiting.login.deadline_ms == waiting.now_ms + TICKET_TIMEOUT_MS
    for id in (1, 2):
        with pytest.raises(NetworkError, match="no answer"):
            waiting.ready(id)
    assert not waiting.ready(3)


def test_a_kdc_that_hangs_holds_a_few_threads(waiting):
    waiting.tickets.hanging = threading.Event()
    ids = range(3 * TICKETS_ASKED)
    for _ in range(2):
        assert not any(waiting.ready(id) for id in ids)
    for _ in range(TICKETS_ASKED):
        assert waiting.tickets.asked.acquire(timeout=GUARD_S)
    assert len(waiting.tickets.calls) == TICKETS_ASKED
    assert not waiting.ready(ids[-1], "other")  # its node has moved: what it waited for is not asked for
    waiting.tickets.hanging.set()
    for id in ids[:-1]:
        waiting.until_ready(id)
    waiting.until_ready(ids[-1], "other")
    assert sorted(waiting.tickets.calls) == ["localhost"] * (len(ids) - 1) + ["other"]


def test_who_waits_for_a_thread_is_asked_for_when_one_is_free(waiting):
    waiting.tickets.hanging = threading.Event()
    assert not any(waiting.ready(id) for id in range(TICKETS_ASKED + 1))
    waiting.tickets.hanging.set()
    for _ in range(TICKETS_ASKED):
        assert waiting.tickets.asked.acquire(timeout=GUARD_S) and waiting.answered.acquire(timeout=GUARD_S)
    waiting.login.advance(waiting.now_ms)  # the owner comes back, though no connection asks again
    assert waiting.tickets.asked.acquire(timeout=GUARD_S)


def test_of_two_tickets_one_fails(waiting):
    waiting.tickets.hanging = threading.Event()
    assert not waiting.ready(1) and not waiting.ready(2, "nowhere")
    waiting.tickets.hanging.set()
    for _ in range(2):
        assert waiting.answered.acquire(timeout=GUARD_S)
    assert waiting.ready(1)
    with pytest.raises(AuthenticationFailedError, match="no Kerberos ticket for kafka/nowhere"):
        waiting.ready(2, "nowhere")
    assert waiting.ready(1)


def test_a_ticket_that_a_broker_refuses_is_not_shown_for_ever(waiting, keytabs, realm):
    """The broker has other keys, and kept none of the old ones."""
    service = f"kafka/moved@{REALM}"
    keytab = Path(realm.principal("kafka/moved"))
    keys = BrokerKeys(BrokerKeytab(str(keytab), service))
    waiting.until_ready(host="moved")
    assert GssapiServer(keys.context(), str).step(waiting.login.client(1).step(None))
    realm.new_keys("kafka/moved")
    keytab.write_bytes(Path(realm.keytab_of("kafka/moved")).read_bytes())
    keys = BrokerKeys(BrokerKeytab(str(keytab), service))
    waiting.until_ready(host="moved")
    refused = waiting.login.client(1)
    with pytest.raises(SaslAuthentication):
        GssapiServer(keys.context(), str).step(refused.step(None))
    refused.on_refusal()
    waiting.until_ready(host="moved")
    assert GssapiServer(keys.context(), str).step(waiting.login.client(1).step(None))


def test_whom_brokers_go_on_refusing_logs_in_at_longer_and_longer_intervals(waiting):
    times_ms = {}
    for _ in range(130):  # a try a minute
        waiting.until_ready()
        times_ms.setdefault(waiting.tickets.logins[-1], waiting.now_ms)
        waiting.login.client(1).on_refusal()
        waiting.now_ms += 60_000
    at_ms = list(times_ms.values())
    assert [later - earlier for earlier, later in itertools.pairwise(at_ms)][:8] == [
        60_000 * minutes for minutes in (1, 1, 2, 4, 8, 16, 32, 60)
    ]


def test_a_failure_is_raised_once_and_the_next_attempt_asks_again(waiting):
    waiting.tickets.errors = [ValueError("secret"), NetworkError("down")]
    with pytest.raises(NetworkError, match="down"):
        waiting.until_ready()
    with pytest.raises(AuthenticationFailedError, match=r"no Kerberos ticket for kafka/localhost: ValueError$"):
        waiting.until_ready()
    waiting.until_ready()
    assert len(waiting.tickets.calls) == 3


def test_a_keytab_that_is_not_there_is_an_error_of_the_settings(keytabs, tmp_path):
    with pytest.raises(ConfigError, match=r"keytab '.*gone' cannot be read: No such file"):
        KerberosLogin(alices_settings(keytabs)._replace(keytab=str(tmp_path / "gone")))
    with pytest.raises(ConfigError, match=r"keytab '.*gone' cannot be read: No such file"):
        BrokerKeys(BrokerKeytab(str(tmp_path / "gone"), None))
    (tmp_path / "no.keytab").write_bytes(b"this is none")
    with pytest.raises(ConfigError, match=r"cannot be used: Keytab .* is nonexistent or empty"):
        BrokerKeys(BrokerKeytab(str(tmp_path / "no.keytab"), None))
    with pytest.raises(ConfigError, match=f"cannot be used: No key table entry found for pulsar/localhost@{REALM}"):
        BrokerKeys(BrokerKeytab(keytabs["kafka"], f"pulsar/localhost@{REALM}"))


# ---- on connections


class TicketCluster(SaslCluster):
    """Two brokers that want Kerberos, on hosts that the realm knows."""

    def __init__(self, keytabs):
        self.keytabs = keytabs
        self.tickets = Tickets()
        self.keys = {host: BrokerKeys(BrokerKeytab(keytabs["kafka"], f"kafka/{host}@{REALM}")) for host in ("broker-1", "broker-2")}
        super().__init__((1, 2))

    def authenticator(self):
        made = authenticators(SaslSettings("GSSAPI", "alice", kerberos=alices_settings(self.keytabs)), "me", self.clock)
        made.login = KerberosLogin(alices_settings(self.keytabs), self.tickets)
        return made

    def make_client(self):
        client = super().make_client()
        self.woken = noting_wakeups(client)
        return client

    def machine(self, peer):
        return GssapiServer(self.keys[peer.address.host].context(), str)

    def until(self, is_so):
        for _ in range(1_000):
            if is_so():
                return
            if AWAITING_TOKEN in self.states() or (REAUTHENTICATING in self.states() and needs_versions_of(self.client)):
                assert self.woken.acquire(timeout=GUARD_S)
            self.poll()
        raise AssertionError("it does not come to that")

    def states(self):
        return [one.state for one in connections_of(self.client).values()]

    def ready(self, id):
        return self.client.ready(self.node(id), self.now_ms)


@pytest.fixture(scope="module")
def cluster_keytabs(realm, keytabs):
    return {"alice": keytabs["alice"], "kafka": realm.principal("kafka/broker-1", "kafka/broker-2")}


@pytest.fixture
def cluster(cluster_keytabs):
    made = TicketCluster(cluster_keytabs)
    yield made
    if made.tickets.hanging is not None:
        made.tickets.hanging.set()
    made.close()


def test_while_the_kdc_hangs_other_connections_go_on(cluster):
    cluster.until(lambda: cluster.ready(1))
    cluster.tickets.hanging = threading.Event()
    assert not cluster.ready(2)
    assert connections_of(cluster.client)[2].state == AWAITING_TOKEN
    cluster.clock.advance(TICKET_TIMEOUT_MS)
    cluster.client.poll(0, cluster.now_ms)
    assert connections_of(cluster.client)[1].state == READY
    assert cluster.client.connection_failed(cluster.node(2))
    assert cluster.client.authentication_exception(cluster.node(2)) is None  # no broker has refused anything


def test_tries_come_at_the_pace_of_the_back_off(cluster):
    """Two hundred failures, one after the other: never two asks within one back-off."""
    cluster.tickets.errors = [AuthenticationFailedError("refused")] * 200
    asked_ms = []
    while cluster.tickets.errors:
        before = len(cluster.tickets.calls)
        cluster.until(lambda: not cluster.ready(1) and connections_of(cluster.client)[1].state != AWAITING_TOKEN)
        if len(cluster.tickets.calls) > before:
            asked_ms.append(cluster.now_ms)
        cluster.clock.advance(max(1, cluster.client.connection_delay(cluster.node(1), cluster.now_ms)))
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked_ms)]
    assert min(pauses) >= 40
    assert min(pauses[10:]) >= 800  # reconnect.backoff.max.ms less its jitter
    cluster.until(lambda: cluster.ready(1))
