"""What the clients make of refusals: the class of the error, where it happened and what to do about it; and how they go on when an ACL is
added, removed, or added again in the middle of their work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, SubscriptionPattern, TopicPartition, errors
from kafkacore.admin import Acl, AclFilter
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import why_unavailable
from tests.kit.waiting import until
from tests.security.secured_kafka import SecuredKafka

pytestmark = pytest.mark.usefixtures("client_face")

USERS = {"admin": "a", "alice": "b"}
SHORT = {
    "group.consumer.heartbeat.interval.ms": 50,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
}
SHORT_OF_KAFKA = {"group.consumer.min.heartbeat.interval.ms": 50}
SettingsOf = Callable[[str], dict[str, Any]]
PROTOCOLS = ("classic", "consumer")
GUARD_S = 90


class Secured:
    """A cluster, and what `alice` may do there; names end with a number of the test's own."""

    count = 0

    def __init__(self, settings_of: SettingsOf, admin: KafkaAdminClient) -> None:
        Secured.count += 1
        self.settings_of = settings_of
        self.admin = admin
        self.topic, self.other, self.group, self.transaction = (f"{name}{Secured.count}" for name in ("t", "u", "g", "x"))
        topics = [self.topic, self.other]
        self.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).check()
        until(lambda: not self.admin.list_offsets({TopicPartition(topic, 0): "latest" for topic in topics}).errors)

    def settings(self, user: str = "alice", **more: Any) -> dict[str, Any]:
        return {**self.settings_of(user), "retry_backoff_ms": 10, "retry_backoff_max_ms": 50, **more}

    def acl(self, operation: str, kind: str, name: str | None = None, permission: str = "allow") -> Acl:
        own = {"topic": self.topic, "group": self.group, "transactional_id": self.transaction, "cluster": "kafka-cluster"}
        return Acl(kind, own[kind] if name is None else name, "User:alice", operation, permission=permission)

    def allow(self, operation: str, kind: str, name: str | None = None) -> None:
        acl = self.acl(operation, kind, name)
        self.admin.create_acls([acl]).check()
        until(lambda: acl in self.admin.describe_acls())

    def forbid(self, operation: str, kind: str, name: str | None = None) -> None:
        acl = self.acl(operation, kind, name)
        removed = self.admin.delete_acls([AclFilter(acl.resource_type, acl.resource_name, acl.principal, operation)])
        assert sum(map(len, removed.values())) == 1
        until(lambda: acl not in self.admin.describe_acls())

    def forbid_all(self) -> None:
        self.admin.delete_acls([AclFilter()])
        until(lambda: not self.admin.describe_acls())

    def fill(self, *values: bytes, topic: str | None = None) -> None:
        with KafkaProducer(self.settings("admin")) as producer:
            for value in values:
                producer.send(topic or self.topic, value, partition=0)
            producer.flush(GUARD_S)

    def readable(self) -> None:
        """A member may read the topic, which has a record."""
        self.allow("read", "topic")
        self.allow("read", "group")
        self.fill(b"a")

    def producer(self, **more: Any) -> KafkaProducer:
        return KafkaProducer(self.settings(max_block_ms=10_000, **more))

    def transactional(self) -> KafkaProducer:
        return self.producer(transactional_id=self.transaction)

    def commit(self, producer: KafkaProducer, value: bytes) -> None:
        """A transaction of one record."""
        producer.begin_transaction()
        producer.send(self.topic, value)
        producer.commit_transaction()

    def committed(self, count: int) -> list[bytes]:
        """The first values that transactions have committed."""
        with KafkaConsumer(self.settings("admin", isolation_level="read_committed", auto_offset_reset="earliest")) as consumer:
            consumer.assign([TopicPartition(self.topic, 0)])
            return read_values(consumer, count)

    def consumer(self, **more: Any) -> KafkaConsumer:
        given = {"group_id": self.group, "auto_offset_reset": "earliest", "enable_auto_commit": False, **more}
        if given.get("group_protocol", "classic") == "classic":
            given.setdefault("heartbeat_interval_ms", 50)
        return KafkaConsumer(self.settings(**given))


KAFKA = pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.aio_at_length, pytest.mark.timeout(300)])


@pytest.fixture(scope="module", params=["embedded", KAFKA])
def settings_of(request: pytest.FixtureRequest) -> Iterator[SettingsOf]:
    """The same test on the embedded broker and on Apache Kafka."""
    if request.param == "embedded":
        with EmbeddedCluster(users=USERS, super_users=["admin"], config=SHORT) as running:
            yield running.client_settings
        return
    if reason := why_unavailable():
        pytest.skip(reason)
    with SecuredKafka("admin", USERS, SHORT | SHORT_OF_KAFKA) as server:
        base = {"bootstrap_servers": server.sasl_address, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        yield lambda user: {**base, "sasl_username": user, "sasl_password": USERS[user]}


@pytest.fixture
def it(settings_of: SettingsOf) -> Iterator[Secured]:
    with KafkaAdminClient(**settings_of("admin")) as admin:
        made = Secured(settings_of, admin)
        made.forbid_all()
        yield made


def read_values(consumer: KafkaConsumer, count: int, despite: type[errors.KafkaError] | tuple[()] = ()) -> list[bytes]:
    """Values of records; a refusal of before the ACL came may still be raised."""
    found: list[bytes] = []
    deadline = time.monotonic() + GUARD_S
    while len(found) < count:
        assert time.monotonic() < deadline
        with contextlib.suppress(despite):
            found += [record.value for records in consumer.poll(0.5).values() for record in records]
    return found


def is_refused(kind: type[errors.KafkaError], call: Callable[[], Any], *words: str, topic: str | None = None) -> errors.KafkaError:
    """The error that a call raises at once, whose text has these words."""
    with pytest.raises(kind) as caught:
        call()
    assert caught.type is kind
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert caught.value.topic == topic
    return caught.value


def refused_poll(kind: type[errors.KafkaError], consumer: KafkaConsumer, *words: str, topic: str | None = None) -> None:
    def poll() -> None:
        deadline = time.monotonic() + GUARD_S
        while time.monotonic() < deadline:
            assert not consumer.poll(0.5)

    is_refused(kind, poll, *words, topic=topic)


# ---- producers


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_a_producer_goes_on_when_an_acl_has_come(it: Secured, idempotent: bool) -> None:
    with it.producer(enable_idempotence=idempotent) as producer:

        def send() -> Any:
            return producer.send(it.topic, b"v").result(GUARD_S)

        hidden = "an ACL must allow DESCRIBE, which READ and WRITE include"
        is_refused(errors.TopicAuthorization, send, hidden, topic=it.topic)
        it.allow("describe", "topic")
        if idempotent:
            is_refused(errors.ClusterAuthorization, send, "InitProducerId", "an ACL must allow IDEMPOTENT_WRITE, or WRITE on some topic")
            it.allow("idempotent_write", "cluster")
        is_refused(errors.TopicAuthorization, send, "Produce", "an ACL must allow WRITE", topic=it.topic)
        it.allow("write", "topic")
        assert send().offset == 0
        it.forbid("write", "topic")
        is_refused(errors.TopicAuthorization, send, "an ACL must allow WRITE", topic=it.topic)
        it.allow("write", "topic")
        assert send().offset == 1


def test_a_producer_sends_to_the_topics_that_it_may_write(it: Secured) -> None:
    it.allow("write", "topic")
    it.allow("describe", "topic", it.other)
    with it.producer(linger_ms=50) as producer:
        futures = [producer.send(topic, b"v") for topic in (it.topic, it.other) * 5]
        for future in futures[::2]:
            future.result(GUARD_S)
        for future in futures[1::2]:
            with pytest.raises(errors.TopicAuthorization):
                future.result(GUARD_S)


# ---- transactions


def test_a_transactional_id_that_is_hidden_ends_the_producer(it: Secured) -> None:
    with it.transactional() as producer:
        text = f"transactional id {it.transaction}", "FindCoordinator", "an ACL must allow DESCRIBE, which WRITE includes"
        error = is_refused(errors.TransactionalIdAuthorization, producer.init_transactions, *text)
        assert error.fatal
        it.allow("write", "transactional_id")
        is_refused(errors.TransactionalIdAuthorization, producer.init_transactions, "close this producer")


def test_a_transactional_id_that_may_be_seen_is_asked_for_again(it: Secured) -> None:
    it.allow("describe", "transactional_id")
    it.allow("write", "topic")
    with it.transactional() as producer:
        text = "call init_transactions() again", "InitProducerId", "an ACL must allow WRITE"
        for _ in range(2):
            error = is_refused(errors.TransactionalIdAuthorization, producer.init_transactions, *text)
            assert not error.fatal
        is_refused(errors.IllegalStateError, producer.begin_transaction, "call init_transactions() first")
        it.allow("write", "transactional_id")
        producer.init_transactions()
        it.commit(producer, b"v")


def test_an_acl_that_goes_in_the_middle_of_a_transaction(it: Secured) -> None:
    """Without WRITE on the topic the transaction can still be aborted. The producer may go on later."""
    it.allow("write", "transactional_id")
    it.allow("write", "topic")
    it.allow("read", "group")
    it.allow("read", "topic", it.other)
    with it.transactional() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(it.topic, b"first").result(GUARD_S)
        it.forbid("write", "topic")
        it.allow("describe", "topic")
        producer.send(it.topic, b"second")
        is_refused(errors.TransactionAbortable, producer.commit_transaction, "an ACL must allow WRITE", topic=it.topic)
        producer.abort_transaction()
        it.allow("write", "topic")
        for operation, kind, name, cause in (
            ("read", "group", None, errors.GroupAuthorization),
            ("read", "topic", it.other, errors.TopicAuthorization),
        ):
            producer.begin_transaction()
            producer.send(it.topic, b"third").result(GUARD_S)
            it.forbid(operation, kind, name)
            offsets = {TopicPartition(it.other, 0): 1}
            error = is_refused(
                cause,
                lambda: producer.send_offsets_to_transaction(offsets, it.group),  # noqa: B023 - called at once
                "abort_transaction()",
                topic=it.other if kind == "topic" else None,
            )
            assert error.txn_requires_abort
            producer.abort_transaction()
            it.allow(operation, kind, name)
        producer.begin_transaction()
        producer.send(it.topic, b"kept")
        producer.send_offsets_to_transaction({TopicPartition(it.other, 0): 1}, it.group)
        producer.commit_transaction()
    until(lambda: it.admin.list_group_offsets(it.group))  # the markers are written after the answer
    assert it.admin.list_group_offsets(it.group)[TopicPartition(it.other, 0)].offset == 1
    assert it.committed(1) == [b"kept"]


def test_a_transactional_id_whose_acl_goes_in_the_middle_of_a_transaction(it: Secured) -> None:
    """Neither commit nor abort is possible, as in Kafka: the coordinator aborts, or the next producer of the id."""
    it.allow("write", "transactional_id")
    it.allow("write", "topic")
    with it.transactional() as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(it.topic, b"lost").result(GUARD_S)
        it.forbid("write", "transactional_id")
        error = is_refused(errors.TransactionalIdAuthorization, producer.commit_transaction, "close this producer", "EndTxn")
        assert error.fatal
        is_refused(errors.TransactionalIdAuthorization, producer.abort_transaction, "close this producer")
    it.allow("write", "transactional_id")
    with it.transactional() as producer:
        producer.init_transactions()
        it.commit(producer, b"kept")
    assert it.committed(1) == [b"kept"]


# ---- consumers


MISSING: dict[str, tuple[list[tuple[str, str]], tuple[str, str], type[errors.KafkaError], str]] = {
    "topic-describe": ([("read", "group")], ("read", "topic"), errors.TopicAuthorization, "DESCRIBE, which READ and WRITE include"),
    "topic-read": ([("read", "group"), ("describe", "topic")], ("read", "topic"), errors.TopicAuthorization, "READ"),
    "group-describe": ([("read", "topic")], ("read", "group"), errors.GroupAuthorization, "DESCRIBE, which READ includes"),
    "group-read": ([("read", "topic"), ("describe", "group")], ("read", "group"), errors.GroupAuthorization, "READ"),
}
"""What is allowed, what is still needed, the error, and what it asks for."""


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_goes_on_when_an_acl_has_come(it: Secured, protocol: str, missing: str) -> None:
    allowed, needed, kind, text = MISSING[missing]
    for operation, resource in allowed:
        it.allow(operation, resource)
    it.fill(b"a")
    with it.consumer(group_protocol=protocol) as consumer:
        consumer.subscribe([it.topic])
        is_topic = kind is errors.TopicAuthorization
        for _ in range(2):
            name = it.topic if is_topic else f"group {it.group}"
            refused_poll(kind, consumer, name, f"an ACL must allow {text} [", topic=it.topic if is_topic else None)
        it.allow(*needed)
        assert read_values(consumer, 1, kind) == [b"a"]
        consumer.commit()
        assert it.admin.list_group_offsets(it.group)[TopicPartition(it.topic, 0)].offset == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_whose_acl_goes_while_it_is_read(it: Secured, protocol: str) -> None:
    it.readable()
    with it.consumer(group_protocol=protocol) as consumer:
        consumer.subscribe([it.topic])
        assert read_values(consumer, 1) == [b"a"]
        it.forbid("read", "topic")
        refused_poll(errors.TopicAuthorization, consumer, topic=it.topic)  # Kafka still answers the fetch that waits
        it.fill(b"b")
        is_refused(errors.TopicAuthorization, consumer.commit, topic=it.topic)
        refused_poll(errors.TopicAuthorization, consumer, topic=it.topic)
        it.allow("read", "topic")
        assert read_values(consumer, 1, errors.TopicAuthorization) == [b"b"]
        consumer.commit()
    with it.consumer(group_protocol=protocol) as consumer:
        consumer.subscribe([it.topic])
        it.fill(b"c")
        assert read_values(consumer, 1) == [b"c"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_whose_acl_goes_while_it_lives(it: Secured, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """A member can be closed then, though neither its commit nor its leaving is allowed."""
    it.readable()
    with it.consumer(group_protocol=protocol, enable_auto_commit=True) as consumer:
        consumer.subscribe([it.topic])
        assert read_values(consumer, 1) == [b"a"]
        consumer.commit()
        it.forbid("read", "group")
        refused_poll(errors.GroupAuthorization, consumer, it.group)
        if protocol == "classic":
            is_refused(errors.GroupAuthorization, consumer.commit, f"group {it.group}", "OffsetCommit", topic=it.topic)
        else:
            is_refused(errors.CommitFailed, consumer.commit, it.group)  # its heartbeats are refused, so it is no member any more
        it.allow("read", "group")
        it.fill(b"b")
        assert read_values(consumer, 1, errors.GroupAuthorization) == [b"b"]
        consumer.commit()
        assert it.admin.list_group_offsets(it.group)[TopicPartition(it.topic, 0)].offset == 2
        it.fill(b"c")
        assert read_values(consumer, 1) == [b"c"]
        it.forbid("read", "group")
    if protocol == "classic":
        assert f"group {it.group}: the commit before leaving failed, records may come twice: GROUP_AUTHORIZATION_FAILED" in caplog.text


@pytest.mark.parametrize(("protocol", "kind"), [("classic", str), ("consumer", str), ("consumer", SubscriptionPattern)])
def test_a_pattern_matches_what_the_member_may_describe(it: Secured, protocol: str, kind: Callable[[str], Any]) -> None:
    """The last one is an expression that the broker matches."""
    it.allow("read", "topic")
    it.allow("read", "group")
    it.fill(b"seen")
    it.fill(b"hidden", topic=it.other)
    pattern, seen = kind(f"{it.topic}|{it.other}"), TopicPartition(it.topic, 0)
    with it.consumer(group_protocol=protocol) as consumer:
        consumer.subscribe(pattern=pattern)
        assert read_values(consumer, 1) == [b"seen"]
        assert consumer.assignment() == {seen}
        [member] = it.admin.describe_groups([it.group])[it.group].members
        assert protocol == "classic" or member.target_partitions == [seen]
    it.allow("read", "topic", it.other)
    with it.consumer(group_protocol=protocol) as consumer:  # an expression left with its last member, and is resolved again
        consumer.subscribe(pattern=pattern)
        assert sorted(read_values(consumer, 2)) == [b"hidden", b"seen"]


# ---- the admin client


def test_the_admin_client_names_what_is_refused(it: Secured) -> None:
    t, g, x = it.topic, it.group, it.transaction
    partition = TopicPartition(t, 0)
    of_topic, of_group, of_cluster = errors.TopicAuthorization, errors.GroupAuthorization, errors.ClusterAuthorization
    with KafkaAdminClient(it.settings()) as admin:
        calls: list[tuple[type[errors.KafkaError], str, Callable[[], Any]]] = [
            (of_topic, t, lambda: admin.describe_topics([t]).check()),
            (of_topic, t, lambda: admin.delete_topics([t]).check()),
            (of_topic, "new", lambda: admin.create_topics([NewTopic("new", 1, 1)]).check()),
            (of_topic, t, lambda: admin.create_partitions({t: 2}).check()),
            (of_topic, t, lambda: admin.list_offsets({partition: "latest"}).check()),
            (of_topic, t, lambda: admin.delete_records({partition: 0}).check()),
            (of_topic, t, lambda: admin.describe_configs([("topic", t)]).check()),
            (of_topic, t, lambda: admin.alter_configs({("topic", t): {"retention.ms": "1"}}).check()),
            (of_group, g, lambda: admin.describe_groups([g]).check()),
            (of_group, g, lambda: admin.delete_groups([g]).check()),
            (of_group, g, lambda: admin.list_group_offsets(g)),
            (of_group, g, lambda: admin.alter_group_offsets(g, {partition: 1})),
            (errors.TransactionalIdAuthorization, x, lambda: admin.describe_transactions([x]).check()),
            (of_cluster, "DescribeAcls", lambda: admin.describe_acls()),
            (of_cluster, "CreateAcls", lambda: admin.create_acls([it.acl("read", "topic")]).check()),
            # When it asks for all users, Kafka 4.3.1 never answers a client that may not.
            (of_cluster, "DescribeUserScramCredentials", lambda: admin.describe_user_scram_credentials(["x"]).check()),
            (of_cluster, "DescribeClientQuotas", lambda: admin.describe_client_quotas()),
            (of_cluster, "DescribeQuorum", lambda: admin.describe_quorum()),
        ]
        for kind, named, call in calls:
            with pytest.raises(kind) as caught:
                call()
            text = str(caught.value)
            assert caught.type is kind and named in text, (named, text)
            assert "an ACL must allow" in text, text
        assert admin.list_topics() == []
        assert admin.list_groups() == []
        it.allow("describe", "topic")
        assert admin.list_topics() == [t]
