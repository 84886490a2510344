"""ACLs that change between requests and while they wait, and requests that pretend.

Who may ask what, request by request, and what clients make of a refusal is in tests/security; other clients are in
tests/interop/test_security_clients.py.
"""

from __future__ import annotations

from functools import partial

import pytest
from controlling import submit
from hypothesis import given, settings
from hypothesis import strategies as st
from test_handlers import Bench, fetch_request, offsets, produce_request
from test_listeners import has_ipv6

from kafkacore import KafkaProducer
from kafkacore import protocol as p
from kafkacore.admin import Acl, AclFilter, KafkaAdminClient
from kafkacore.broker import authorizer as a
from kafkacore.broker.limits import full_address
from kafkacore.broker.state import Outcome
from kafkacore.config_authorizer import ANONYMOUS, STANDARD_AUTHORIZER
from kafkacore.errors import Code, InvalidTxnState
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.reached import Reached
from tests.kit.rows import each_row

ALICE = "User:alice"
DENIED = Code.TOPIC_AUTHORIZATION_FAILED
USERS = {"admin": "a", "alice": "b"}


class Secured(Bench):
    """A broker with an authorizer, asked by the principal that is set."""

    def __init__(self, **config):
        super().__init__(authorizer_class_name=STANDARD_AUTHORIZER, super_users=f"{ANONYMOUS};User:admin", **config)
        self.topic("t")
        self.principal = ALICE

    def entry(self, operation, name="t", **given):
        fields = {"resource_type": a.TOPIC, "resource_pattern_type": a.LITERAL, "principal": ALICE, "host": "*", "permission_type": a.ALLOW}
        return p.AclCreation(**{**fields, "resource_name": name, "operation": operation, **given})

    def allow(self, *entries):
        answer = submit(self.state.controller, p.CreateAclsRequest(creations=list(entries)))
        assert not any(each.error_code for each in answer.results)

    def forbid(self, operation):
        fields = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "permission_type"), 1)
        names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
        [result] = submit(
            self.state.controller, p.DeleteAclsRequest(filters=[p.DeleteAclsFilter(operation=operation, **fields, **names)])
        ).filter_results
        assert result.matching_acls

    def as_admin(self, ask):
        before, self.principal = self.principal, "User:admin"
        try:
            return ask()
        finally:
            self.principal = before


@pytest.fixture
def bench():
    return Secured()


def codes_of_fetch(response):
    return [part.error_code for topic in response.responses for part in topic.partitions]


# ---- ACLs that change


sessions = Reached(
    "one topic is refused and the other is not", "refused after it was read", "read after it was refused", "both are refused"
)
STEPS = st.lists(
    st.sampled_from(["allow t", "forbid", "deny", "allow u", "produce", "bob", "alice", "fetch", "fetch"]), min_size=5, max_size=25
)


@partial(sessions.by, rounds=6)
@given(STEPS, st.sampled_from([12, 17]))
@settings(max_examples=15)
def test_a_session_is_refused_what_a_fetch_without_one_is(steps, version):
    bench = Secured()
    ids = {name: bench.topic(name).topic_id if name == "u" else bench.cluster.topics[name].topic_id for name in "tu"}

    def wanted(**epochs):
        request = fetch_request([(0, 0)], **epochs)
        topics = [request.topics[0]._replace(topic=name, topic_id=topic_id) for name, topic_id in ids.items()]
        return request._replace(topics=topics)

    def denied(response):
        return {(topic.topic, topic.topic_id) for topic in response.responses for part in topic.partitions if part.error_code == DENIED}

    first, epoch, before = bench.ask(wanted(session_epoch=0), version), 0, set()
    for step in ["allow t", "allow u", "fetch", "fetch", *steps, "fetch"]:
        if step == "fetch":
            epoch += 1
            found = bench.ask(fetch_request([], session_id=first.session_id, session_epoch=epoch), version)
            now = denied(bench.ask(wanted(session_epoch=-1), version))
            assert denied(found) == now
            sessions("one topic is refused and the other is not", len(now) == 1)
            sessions("both are refused", len(now) == 2)
            sessions("refused after it was read", now - before)
            sessions("read after it was refused", before - now)
            before = now
        elif step == "produce":
            bench.as_admin(bench.produce)
        elif step == "forbid" and bench.cluster.acls:
            bench.forbid(a.READ)
        elif step == "deny":
            bench.allow(bench.entry(a.READ, "*", permission_type=a.DENY))
        elif step.startswith("allow"):
            bench.allow(bench.entry(a.READ, step[-1]))
        elif step in ("bob", "alice"):
            bench.principal = f"User:{step}"


@pytest.mark.parametrize("epochs", [{}, {"session_epoch": -1}], ids=["session", "no session"])
def test_an_acl_that_goes_while_a_fetch_waits(bench, epochs):
    bench.allow(bench.entry(a.READ))
    assert bench.fetch(0, max_wait_ms=500, **epochs) is Outcome.LATER
    bench.forbid(a.READ)
    bench.as_admin(bench.produce)
    [answer] = bench.late
    assert codes_of_fetch(answer) == [DENIED] and offsets(answer) == []


def test_an_acl_that_comes_while_a_fetch_waits(bench):
    """What the fetch may not read is answered at once; of the rest it reads what comes."""
    bench.topic("u")
    bench.allow(bench.entry(a.READ))
    both = fetch_request([(0, 0)], max_wait_ms=500)
    both = both._replace(topics=[*both.topics, both.topics[0]._replace(topic="u")])
    assert codes_of_fetch(bench.ask(both, 12)) == [0, DENIED]
    assert bench.fetch(0, max_wait_ms=500) is Outcome.LATER
    bench.allow(bench.entry(a.READ, "u"))
    assert bench.late == []
    assert bench.ask(both, 12) is Outcome.LATER
    bench.as_admin(bench.produce)
    assert [codes_of_fetch(each) for each in bench.late] == [[0], [0, 0]]


# ---- requests that pretend


@pytest.mark.parametrize("version", [12, 17])
def test_who_is_no_broker_does_not_copy_like_one(bench, version):
    bench.allow(bench.entry(a.ALL))
    follower = {"replica_id": 2} if version < 15 else {"replica_state": p.ReplicaState(replica_id=2)}
    wanted = fetch_request([(0, 0)], topic_id=bench.cluster.topics["t"].topic_id, max_wait_ms=500, session_epoch=-1, **follower)
    bench.state.follower_fetches[2] = None  # whatever a broker waits in: it must be left alone
    assert codes_of_fetch(bench.ask(wanted, version)) == [DENIED]
    assert 2 in bench.state.follower_fetches


def test_a_transactional_id_is_asked_about_before_anything_is_written(bench):
    bench.allow(bench.entry(a.WRITE))
    data = batch(producer_id=1, epoch=0, sequence=0, is_transactional=True)
    request = produce_request(data)._replace(transactional_id="x")
    [answer] = bench.ask(request, 9).responses[0].partition_responses
    assert answer.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert bench.ask(request._replace(acks=0), 9) is Outcome.CLOSE
    assert bench.state.replicas.partitions["t", 0].log.end_offset == 0


def test_a_topic_that_this_broker_does_not_know_yet_is_not_written_once_it_does(bench):
    """Another batch of the request waits for its transaction's coordinator in between."""
    bench.allow(bench.entry(a.WRITE), bench.entry(a.WRITE, "x", resource_type=a.TRANSACTIONAL_ID))
    new = bench.topic("new").topic_id
    topic = bench.cluster.topics_by_id.pop(new)
    asked = []
    bench.state.transactions.verifier.ask = lambda *given: asked.append(given)
    begins = batch(producer_id=1, epoch=0, sequence=0, is_transactional=True)
    request = produce_request(begins, topic_id=bench.cluster.topics["t"].topic_id)._replace(transactional_id="x")
    other = produce_request(batch(), topic_id=new).topic_data
    assert bench.ask(request._replace(topic_data=[*request.topic_data, *other]), 13) is Outcome.LATER
    bench.cluster.topics_by_id[new] = topic
    asked.pop()[-1]({})
    assert bench.state.replicas.partitions["new", 0].log.end_offset == 0
    answer = {each.topic_id: each.partition_responses[0].error_code for each in bench.late.pop().responses}
    assert answer[new] == Code.UNKNOWN_TOPIC_ID
    assert bench.state.replicas.partitions["t", 0].log.end_offset == 3


def test_of_partitions_that_begin_a_transaction_one_is_refused(bench):
    bench.allow(bench.entry(a.WRITE), bench.entry(a.WRITE, "x", resource_type=a.TRANSACTIONAL_ID))
    bench.topic("u")
    asked = []
    bench.state.transactions.verifier.ask = lambda *given: asked.append(given)
    begins = batch(producer_id=1, epoch=0, sequence=0, is_transactional=True)
    request = produce_request(begins)._replace(transactional_id="x")
    bench.allow(bench.entry(a.WRITE, "u"))
    both = request._replace(topic_data=[*request.topic_data, *produce_request(begins, topic="u").topic_data])
    assert bench.ask(both, 9) is Outcome.LATER
    asked.pop()[-1]({("u", 0): InvalidTxnState("it has ended")})
    codes = {each.name: each.partition_responses[0].error_code for each in bench.late.pop().responses}
    assert codes == {"t": Code.NONE, "u": Code.INVALID_TXN_STATE}
    assert [bench.state.replicas.partitions[name, 0].log.end_offset for name in "tu"] == [3, 0]


def test_a_topic_that_this_broker_does_not_know_yet_is_not_deleted_by_its_id(bench):
    """The controller knows it, and leaves it to the broker to ask who may."""
    new = bench.topic("new").topic_id
    topic = bench.cluster.topics_by_id.pop(new)
    before = bench.cluster.next_offset
    request = p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=None, topic_id=new)], timeout_ms=1000)
    [result] = bench.ask(request, 6).responses
    bench.cluster.topics_by_id[new] = topic
    assert (result.error_code, result.name, bench.cluster.next_offset) == (Code.UNKNOWN_TOPIC_ID, None, before)
    bench.allow(bench.entry(a.DELETE, "new"))
    [result] = bench.ask(request, 6).responses
    assert result.error_code == Code.NONE and "new" not in bench.cluster.topics


# ---- clusters


def test_the_brokers_themselves_may_do_everything(tmp_path):
    """They copy, and end transactions, as a user of their own; after a restart too."""
    for nth in range(2):
        with EmbeddedCluster(2, tmp_path, users=USERS, super_users=["admin"], config={"min.insync.replicas": 2}) as made:
            if not nth:
                made.create_topic("t", partitions=2)
            with KafkaProducer(**made.client_settings("admin"), transactional_id="x", acks="all") as producer:
                producer.init_transactions()
                producer.begin_transaction()
                sent = [producer.send("t", b"v", partition=index) for index in (0, 1)]
                producer.commit_transaction()
                assert [each.result(60).offset for each in sent] == [2 * nth] * 2
            with KafkaAdminClient(**made.client_settings("admin")) as admin:
                assert len(admin.describe_acls(AclFilter())) == nth
                admin.create_acls([Acl("topic", "t", ALICE, "read")]).check()


@each_row(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a:0:1", "2001:db8:0:0:0:a:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
    ],
)
def test_addresses_are_those_that_acls_have(host, shown):
    """Java's Inet6Address.getHostAddress."""
    assert full_address(host) == shown


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6")
def test_a_host_by_ipv6():
    with EmbeddedCluster(users=USERS, super_users=["admin"], host="::1") as made:
        made.create_topic("t")
        with KafkaAdminClient(**made.client_settings("admin")) as admin:
            admin.create_acls([Acl("topic", "t", ALICE, "write", "0:0:0:0:0:0:0:1")]).check()
        with KafkaProducer(**made.client_settings("alice")) as producer:
            assert producer.send("t", b"v").result(60).offset == 0
