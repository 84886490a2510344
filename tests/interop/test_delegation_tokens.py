"""Delegation tokens: who gets which, who may renew, end and see it, what it opens; the embedded broker as Apache Kafka 4.3.1."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore import protocol as p
from kafkacore.admin import Acl, AclFilter
from kafkacore.errors import Code
from kafkacore.net.sasl import PlainClient, ScramClient
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import why_unavailable
from tests.kit.waiting import until
from tests.kit.wire import Wire
from tests.security.secured_kafka import SecuredKafka

pytestmark = pytest.mark.kafka_at_length

USERS = {"admin": "a", "alice": "b", "bob": "c", "carol": "d"}
DAY_MS = 86_400_000
SETTINGS = {
    "delegation.token.secret.key": "a key of the test",
    "delegation.token.expiry.check.interval.ms": 1_000,
    "offsets.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
}
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.timeout(120)])])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a listener with PLAIN and SCRAM; ACLs are enforced, and admin is a super user."""
    if request.param == "embedded":
        mechanisms = {"sasl.enabled.mechanisms": ",".join(["PLAIN", *MECHANISMS])}
        with EmbeddedCluster(users=USERS, super_users=["admin"], config=SETTINGS | mechanisms) as cluster:
            yield cluster.bootstrap_servers
        return
    if reason := why_unavailable():
        pytest.skip(reason)
    server = SecuredKafka("admin", USERS, SETTINGS)
    text = server.properties.read_text()
    text = text.replace("sasl.enabled.mechanisms=PLAIN\n", f"sasl.enabled.mechanisms=PLAIN,{','.join(MECHANISMS)}\n")
    for mechanism in MECHANISMS:
        text += f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config={SCRAM} required;\n"
    server.properties.write_text(text)
    with server:
        yield server.sasl_address


class People:
    """Connections of users, which speak the wire format."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._open: dict[str, Wire] = {}

    def wire(self, user: str) -> Wire:
        if user not in self._open:
            self._open[user] = Wire(self.address, 60)
            self._open[user].log_in(PlainClient(user, USERS[user]))
        return self._open[user]

    def close(self) -> None:
        for wire in self._open.values():
            wire.sock.close()

    def create(
        self, user: str, *, owner: str | None = None, renewers: tuple[str, ...] = (), lifetime_ms: int = -1, version: int = 3
    ) -> Any:
        kind, name = (None, None) if owner is None else owner.split(":")
        others = [p.DelegationTokenPrincipal(principal_type=k, principal_name=n) for k, n in (each.split(":") for each in renewers)]
        fields = {"owner_principal_type": kind, "owner_principal_name": name} if version >= 3 else {}
        answer = self.wire(user).ask(p.CreateDelegationTokenRequest(renewers=others, max_lifetime_ms=lifetime_ms, **fields), version)
        if answer.error_code == 0:
            until(lambda: answer.token_id in self.seen("admin"))
        return answer

    def renew(self, user: str, hmac: bytes, period_ms: int = -1) -> Any:
        return self.wire(user).ask(p.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)

    def expire(self, user: str, hmac: bytes, period_ms: int = -1) -> Any:
        return self.wire(user).ask(p.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)

    def describe(self, user: str, *owners: str, everybody: bool = True) -> Any:
        wanted = [p.DelegationTokenPrincipal(principal_type=k, principal_name=n) for k, n in (each.split(":") for each in owners)]
        return self.wire(user).ask(p.DescribeDelegationTokenRequest(owners=None if everybody and not owners else wanted), 3)

    def seen(self, user: str, *owners: str) -> dict[str, Any]:
        answer = self.describe(user, *owners)
        assert answer.error_code == 0
        return {each.token_id: each for each in answer.tokens}

    def expiry_ms(self, token_id: str) -> int:
        return int(self.seen("admin")[token_id].expiry_timestamp)


@pytest.fixture
def people(address: str) -> Iterator[People]:
    made = People(address)
    yield made
    for token in made.seen("admin").values():
        # Whoever owns it: the super user is not asked, so its owner's connection ends it.
        made.expire(token.principal_name, token.hmac)
    until(lambda: made.seen("admin") == {})
    made.close()


@pytest.fixture
def acl(address: str) -> Iterator[Callable[[str, str, str, str], None]]:
    with KafkaAdminClient(settings(address, "PLAIN", "admin")) as admin:

        def allow(user: str, operation: str, kind: str, name: str) -> None:
            entry = Acl(kind, name, f"User:{user}", operation)
            admin.create_acls([entry]).check()
            until(lambda: entry in admin.describe_acls())

        yield allow
        admin.delete_acls([AclFilter()])
        until(lambda: not admin.describe_acls())


def settings(address: str, mechanism: str, user: str, password: str | None = None, **more: Any) -> dict[str, Any]:
    base = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    return {**base, "sasl.username": user, "sasl.password": password or USERS[user], **more}


def by_token(address: str, mechanism: str, token_id: str, hmac: bytes) -> dict[str, Any]:
    line = f'{SCRAM} required username="{token_id}" password="{base64.b64encode(hmac).decode()}" tokenauth=true;'
    return {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": line}


# ---- making tokens

ALICE = ("User", "alice")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_of_ones_own(people: People, version: int) -> None:
    made = people.create("alice", renewers=("User:bob",), version=version)
    assert made.error_code == 0 and (made.principal_type, made.principal_name) == ALICE
    requester = made.token_requester_principal_type, made.token_requester_principal_name
    assert requester == (ALICE if version >= 3 else ("", ""))
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
    assert len(made.hmac) == 64 and len(made.token_id) == 22
    seen = people.seen("alice")[made.token_id]
    assert (seen.principal_type, seen.principal_name) == (seen.token_requester_principal_type, seen.token_requester_principal_name) == ALICE
    assert (seen.issue_timestamp, seen.expiry_timestamp) == (made.issue_timestamp_ms, made.expiry_timestamp_ms)
    assert (seen.max_timestamp, seen.hmac) == (made.max_timestamp_ms, made.hmac)
    assert [(each.principal_type, each.principal_name) for each in seen.renewers] == [("User", "bob")]


@pytest.mark.parametrize(
    ("asked_ms", "lifetime_ms", "expiry_ms"),
    [(-1, 7 * DAY_MS, DAY_MS), (0, 7 * DAY_MS, DAY_MS), (1_000_000, 1_000_000, 1_000_000), (8 * DAY_MS, 7 * DAY_MS, DAY_MS)],
)
def test_lifetimes(people: People, asked_ms: int, lifetime_ms: int, expiry_ms: int) -> None:
    made = people.create("alice", lifetime_ms=asked_ms)
    assert made.max_timestamp_ms - made.issue_timestamp_ms == lifetime_ms
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == expiry_ms


@pytest.mark.parametrize(
    ("user", "given", "code"),
    [
        ("alice", {"owner": "User:bob"}, Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ("alice", {"owner": "User:alice"}, Code.NONE),
        ("admin", {"owner": "User:bob"}, Code.NONE),
        ("alice", {"renewers": ("Group:g",)}, Code.INVALID_PRINCIPAL_TYPE),
        ("alice", {"owner": "User:bob", "renewers": ("Group:g",)}, Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ("admin", {"owner": "User:bob", "renewers": ("Group:g",)}, Code.INVALID_PRINCIPAL_TYPE),
    ],
    ids=str,
)
def test_who_gets_a_token_for_whom(people: People, user: str, given: dict[str, Any], code: Code) -> None:
    made = people.create(user, **given)
    assert made.error_code == code
    kind, name = given.get("owner", f"User:{user}").split(":")
    named = made.principal_type, made.principal_name, made.token_requester_principal_type, made.token_requester_principal_name
    assert named == (kind, name, "User", user)
    if code:
        assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms, made.token_id, made.hmac) == (-1, -1, -1, "", b"")


def test_an_acl_lets_users_make_tokens_for_others(people: People, acl: Callable[..., None]) -> None:
    acl("alice", "create_tokens", "user", "User:bob")
    assert people.create("alice", owner="User:carol").error_code == Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    made = people.create("alice", owner="User:bob")
    assert made.error_code == 0
    # Who asked for it sees it, and may not renew it.
    assert made.token_id in people.seen("alice") and made.token_id in people.seen("bob") and made.token_id not in people.seen("carol")
    assert people.renew("alice", made.hmac).error_code == Code.DELEGATION_TOKEN_OWNER_MISMATCH
    assert people.renew("bob", made.hmac).error_code == 0


# ---- renewing and ending


def test_who_may_renew_and_end_a_token(people: People) -> None:
    made = people.create("alice", renewers=("User:bob",))
    for change in (people.renew, people.expire):
        for user in ("carol", "admin"):  # not even a super user
            refused = change(user, made.hmac, 1_000_000)
            assert (refused.error_code, refused.expiry_timestamp_ms) == (Code.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        for user in ("bob", "alice"):
            answer = change(user, made.hmac, 1_000_000)
            assert answer.error_code == 0 and made.issue_timestamp_ms < answer.expiry_timestamp_ms < made.issue_timestamp_ms + DAY_MS
            until(lambda answer=answer: people.expiry_ms(made.token_id) == answer.expiry_timestamp_ms)


def test_how_far_a_token_can_be_renewed(people: People) -> None:
    made = people.create("alice", lifetime_ms=3_600_000)
    assert people.renew("alice", made.hmac).expiry_timestamp_ms == made.max_timestamp_ms
    assert people.renew("alice", made.hmac, 9 * DAY_MS).expiry_timestamp_ms == made.max_timestamp_ms
    assert people.expire("alice", made.hmac, 9 * DAY_MS).expiry_timestamp_ms == made.max_timestamp_ms
    soon = people.renew("alice", made.hmac, 600_000).expiry_timestamp_ms
    assert made.issue_timestamp_ms + 600_000 <= soon < made.max_timestamp_ms
    long = people.create("alice")
    assert long.issue_timestamp_ms + DAY_MS <= people.renew("alice", long.hmac, 0).expiry_timestamp_ms < long.max_timestamp_ms


def test_a_token_that_has_ended(people: People) -> None:
    made = people.create("alice")
    ended = people.expire("alice", made.hmac)
    assert ended.error_code == 0 and made.issue_timestamp_ms <= ended.expiry_timestamp_ms < made.issue_timestamp_ms + 3_600_000  # now
    until(lambda: made.token_id not in people.seen("alice"))
    for change in (people.renew, people.expire):
        answer = change("alice", made.hmac)
        assert (answer.error_code, answer.expiry_timestamp_ms) == (Code.DELEGATION_TOKEN_NOT_FOUND, 0)


# ---- seeing


def test_who_sees_which_tokens(people: People, acl: Callable[..., None]) -> None:
    mine = people.create("alice", renewers=("User:bob",)).token_id
    other = people.create("carol").token_id
    table = [
        ("alice", (), {mine}),
        ("bob", (), {mine}),
        ("carol", (), {other}),
        ("admin", (), {mine, other}),
        ("alice", ("User:alice",), {mine}),
        ("alice", ("User:bob",), {mine}),
        ("alice", ("User:carol",), set()),
        ("admin", ("User:carol",), {other}),
        ("admin", ("User:carol", "User:bob"), {mine, other}),
        ("admin", ("Group:carol",), set()),
    ]
    assert [set(people.seen(user, *owners)) for user, owners, _ in table] == [expected for *_, expected in table]
    empty = people.describe("admin", everybody=False)
    assert (empty.error_code, empty.tokens) == (0, [])
    acl("bob", "describe", "delegation_token", other)
    until(lambda: set(people.seen("bob")) == {mine, other})
    acl("carol", "describe_tokens", "user", "User:alice")
    until(lambda: set(people.seen("carol")) == {mine, other})


# ---- logging in


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_is_its_owner(address: str, people: People, acl: Callable[..., None], mechanism: str) -> None:
    topic = f"of-alice-{mechanism.lower()}"
    for operation in ("create", "write", "read", "describe"):
        acl("alice", operation, "topic", topic)
    made = people.create("alice")
    found = by_token(address, mechanism, made.token_id, made.hmac)
    with KafkaProducer(found, max_block_ms=20_000) as producer:
        sent = producer.send(topic, b"v").result(20)
    with KafkaConsumer(found) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), sent.offset)
        [record] = next(iter(consumer.poll(20).values()))
    assert record.value == b"v"
    with KafkaAdminClient(found) as admin:
        with pytest.raises(errors.TopicAuthorization):
            admin.describe_topics(["of-bob"]).check()
        # A token is no way to more tokens, nor to a longer life.
        for call in (
            admin.create_delegation_token,
            lambda: admin.renew_delegation_token(made.hmac),
            lambda: admin.expire_delegation_token(made.hmac),
            admin.describe_delegation_tokens,
        ):
            with pytest.raises(errors.UnsupportedByAuthentication):
                call()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_no_token_opens(address: str, people: People, mechanism: str) -> None:
    made, ended = people.create("alice"), people.create("alice")
    people.expire("alice", ended.hmac)
    until(lambda: ended.token_id not in people.seen("admin"))
    secret, of_ended, wrong = (base64.b64encode(each).decode() for each in (made.hmac, ended.hmac, bytes(64)))
    for name, password, is_token in (
        (made.token_id, wrong, True),
        (made.token_id[::-1], secret, True),
        (ended.token_id, of_ended, True),
        (made.token_id, secret, False),
        ("alice", USERS["alice"], True),
    ):
        with Wire(address, 60) as wire, pytest.raises(errors.SaslAuthentication):
            wire.log_in(ScramClient(mechanism, name, password, is_delegation_token=is_token))
