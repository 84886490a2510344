"""What principals with all kinds of ACLs are answered, by every API: the embedded broker as Apache Kafka 4.3.1 with StandardAuthorizer.

The answers of Kafka are in `kafka_acl_answers.tsv`, a line for each answer to a request: who got it, and the answer as `shown` writes it.
The test marked `kafka` holds the table against a running Kafka; `python -m tests.security.test_acl_answers` writes it again.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkacore import protocol as p
from kafkacore.broker.handlers import SERVED
from kafkacore.net.sasl import PlainClient
from kafkacore.protocol.schema import Struct
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import why_unavailable
from tests.kit.waiting import until
from tests.kit.wire import Wire
from tests.security.acl_cases import CASES, Who
from tests.security.acl_principals import ACLS, FOREIGN, PASSWORDS, PRINCIPALS, SUPER, TOPICS
from tests.security.secured_kafka import SecuredKafka

RECORDED = Path(__file__).parent / "kafka_acl_answers.tsv"
NOT_ASKED_ABOUT = {
    17: "comes before there is a principal",
    18: "is answered to everybody, before there is a principal",
    36: "comes before there is a principal",
}
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "group.consumer.session.timeout.ms": 900_000,  # members outlive the preparations, on a busy machine, too
    "group.consumer.max.session.timeout.ms": 900_000,
}


class Connection(Wire):
    """A connection of a principal, that authenticates by PLAIN."""

    def __init__(self, address: str, user: str) -> None:
        super().__init__(address)
        self.log_in(PlainClient(user, PASSWORDS[user]))


# ---- the clusters


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    with EmbeddedCluster(users=PASSWORDS, super_users=[SUPER], config=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    if reason := why_unavailable():
        pytest.skip(reason)
    with SecuredKafka(SUPER, PASSWORDS, SETTINGS) as server:
        yield server.sasl_address


# ---- what there is


def prepare(address: str) -> tuple[dict[str, bytes], dict[str, tuple[int, int]]]:
    """Makes topics, ACLs, groups and transactions.

    Returns:
        Ids of topics by name; producer id and epoch by transactional id.
    """
    with Connection(address, SUPER) as admin:
        until(lambda: admin.ask(p.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code == 0)
        until(lambda: admin.ask(p.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4).coordinators[0].error_code == 0)
        names = [f"{user}.{name}" for user in PRINCIPALS for name in TOPICS] + [f"{prefix}t" for prefix in FOREIGN]
        topics = [p.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        made = admin.ask(p.CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        assert not any(each.error_code for each in made.topics)
        assert not any(each.error_code for each in admin.ask(p.CreateAclsRequest(creations=ACLS), 3).results)
        everything = p.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        wanted = len(set(ACLS))
        until(lambda: sum(len(each.acls) for each in admin.ask(everything, 3).resources) == wanted)
        asked = p.MetadataRequest(topics=[p.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
        until(lambda: not any(each.error_code for each in admin.ask(asked, 12).topics))
        ids = {each.name: bytes(each.topic_id) for each in admin.ask(asked, 12).topics}
        until(lambda: not any(each.partitions[0].error_code for each in admin.ask(_ends(names), 10).topics))
        owners = [*(f"{user}." for user in PRINCIPALS), *FOREIGN]
        for owner in owners:
            _make_groups(admin, owner)
        producers = {}
        for owner in owners:
            for name in ("x", "e"):
                producers[f"{owner}{name}"] = _begin(admin, f"{owner}{name}", [] if name == "e" else [f"{owner}t", "other.t"])
        return ids, producers


def _ends(names: list[str]) -> p.ListOffsetsRequest:
    part = [p.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return p.ListOffsetsRequest(replica_id=-1, topics=[p.ListOffsetsTopic(name=name, partitions=part) for name in names])


def _make_groups(admin: Wire, owner: str) -> None:
    """A group with offsets (g), and two of KIP-848 with members: one reads its owner's topic (c), one another's, too (mixed)."""
    part = [p.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
    topics = [p.OffsetCommitRequestTopic(name=name, partitions=part) for name in (f"{owner}t", "other.t")]
    until(
        lambda: (
            not any(
                each.partitions[0].error_code for each in admin.ask(p.OffsetCommitRequest(group_id=f"{owner}g", topics=topics), 9).topics
            )
        )
    )
    for group, names in (("c", [f"{owner}t"]), ("mixed", [f"{owner}t", "other.t"])):
        beat = p.ConsumerGroupHeartbeatRequest(
            group_id=f"{owner}{group}",
            member_id=f"{owner}member",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            server_assignor="uniform",
            topic_partitions=[],
        )
        assert admin.ask(beat, 1).error_code == 0
        seen = p.ConsumerGroupDescribeRequest(group_ids=[f"{owner}{group}"])
        until(lambda seen=seen: admin.ask(seen, 1).groups[0].members[0].target_assignment.topic_partitions)


def _begin(admin: Wire, transactional_id: str, topics: list[str]) -> tuple[int, int]:
    """Begins a transaction that writes to these topics."""
    begun = None

    def init() -> bool:
        nonlocal begun
        begun = admin.ask(p.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000), 4)
        return not begun.error_code

    until(init)
    assert begun is not None
    if topics:
        added = admin.ask(
            p.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=begun.producer_id,
                v3_and_below_producer_epoch=begun.producer_epoch,
                v3_and_below_topics=[p.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in dict.fromkeys(topics)],
            ),
            3,
        )
        assert not any(each.results_by_partition[0].partition_error_code for each in added.results_by_topic_v3_and_below)
    return begun.producer_id, begun.producer_epoch


# ---- an answer in a line

LABELS = (
    *("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "user", "key"),
    *("partition_index", "index", "partition", "partition_id", "principal_name"),
)
COUNTED = set("active_producers brokers configs matching_acls members results tokens current_voters acls config_resources".split())
"""Lists of which only counts whether they hold anything."""
_REQUEST = re.compile(r"Request Request\(.*\) needs \w+ permission.", re.DOTALL)
"""Kafka's words for a refusal by its controller: they show the request as its code sees it."""


def plainer(answer: Any, case: str) -> Any:
    """An answer without what the embedded broker does otherwise on purpose: it says which topic or id it does not know, and answers when a
    topic is there that it creates, which Kafka does before."""
    if isinstance(answer, p.ProduceResponse):
        found = [
            each._replace(
                partition_responses=[
                    part._replace(error_message=None) if part.error_code in (3, 100) else part for part in each.partition_responses
                ]
            )
            for each in answer.responses
        ]
        return answer._replace(responses=found)
    if case.startswith("metadata-that-creates"):
        found = [each._replace(error_code={3: 0, 5: 0}.get(each.error_code, each.error_code), partitions=[]) for each in answer.topics]
        return answer._replace(topics=found)
    return answer


def answer_in_line(value: Any, user: str, ordered: bool) -> str:
    """An answer without what differs between any two clusters: names, error codes, messages, authorized operations, and what is there."""
    own = f"{user}."

    def text(each: Any) -> str:
        return "me" if each == user else str(each).replace(own, "own.").replace(f"User:{user}", "User:me")

    def is_visible(each: Any) -> bool:
        label = _label(each)
        owner, dot, _ = str(label).partition(".")
        return not dot or owner == user or owner not in PRINCIPALS

    def render(struct: Struct) -> str:
        parts = []
        for name in struct.FIELDS:
            each = getattr(struct, name)
            if name.endswith("error_code"):
                parts.append(str(each))
            elif name.endswith("error_message") and each:
                parts.append(repr(_REQUEST.sub("Cluster authorization failed.", text(each))))
            elif name.endswith("authorized_operations") and each != -(2**31):
                parts.append("may:" + ",".join(str(bit) for bit in range(32) if each >> bit & 1))
            elif isinstance(each, list) and name in COUNTED and not (name == "results" and each and _label(each[0]) is not None):
                parts.append(f"{name}:{'some' if each else 'none'}")
            elif isinstance(each, list) and each and isinstance(each[0], Struct) and name != "nodes":  # only Kafka names controllers
                items = [render(item) for item in each if is_visible(item)]
                parts.append(f"[{' '.join(items if ordered else sorted(items))}]")
        label = _label(struct)
        return (f"{text(label)}=" if label is not None else "") + " ".join(parts)

    return render(value)


def _label(struct: Struct) -> Any:
    for name in LABELS:
        if name in struct.FIELDS:
            found = getattr(struct, name)
            if found not in ("", None):
                return found
    return None


def answers_to(address: str, user: str, ids: dict[str, bytes], producers: dict[str, tuple[int, int]]) -> dict[str, str]:
    """What a principal is answered, by case."""
    who = Who(user, ids, producers)
    found = {}
    with Connection(address, user) as wire:
        for each in CASES.values():
            wire.send(each.build(who), each.version)
        for each in CASES.values():
            _, answer = wire.receive(type(each.build(who)), each.version)
            found[each.name] = answer_in_line(plainer(answer, each.name), user, each.ordered)
    return found


def answers_by_case(address: str) -> dict[str, dict[str, str]]:
    """Answers by case and principal."""
    ids, producers = prepare(address)
    found: dict[str, dict[str, str]] = {name: {} for name in CASES}
    for user in PRINCIPALS:
        for name, answer in answers_to(address, user, ids, producers).items():
            found[name][user] = answer
    return found


# ---- the table in a file


REST = "(all others)"


def as_lines(found: Mapping[str, Mapping[str, str]]) -> str:
    lines = []
    for name, by_user in found.items():
        users = defaultdict(list)
        for user, answer in by_user.items():
            users[answer].append(user)
        rest = max(users, key=lambda answer: len(users[answer]))
        lines += [f"{name}\t{' '.join(those)}\t{answer}\n" for answer, those in sorted(users.items()) if answer != rest]
        lines.append(f"{name}\t{REST}\t{rest}\n")
    return "".join(lines)


@functools.cache
def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in RECORDED.read_text().splitlines():
        name, users, answer = line.split("\t")
        of_case = found.setdefault(name, {})
        of_case.update(dict.fromkeys([user for user in PRINCIPALS if user not in of_case] if users == REST else users.split(" "), answer))
    return found


def differences(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    kept = recorded()
    return [
        f"{name}, {user}:\n  here  {answer}\n  Kafka {kept.get(name, {}).get(user)}"
        for name, by_user in found.items()
        for user, answer in by_user.items()
        if answer != kept.get(name, {}).get(user)
    ]


# ---- tests


def test_the_embedded_broker_answers_as_kafka_did(embedded: str) -> None:
    assert differences(answers_by_case(embedded)) == []


def test_every_api_is_asked_by_every_principal() -> None:
    who = Who("super", defaultdict(bytes), defaultdict(lambda: (0, 0)))
    asked = {case.build(who).API_KEY for case in CASES.values()}
    assert asked | NOT_ASKED_ABOUT.keys() == SERVED.keys()
    assert recorded().keys() == CASES.keys()
    assert all(by_user.keys() == PRINCIPALS.keys() for by_user in recorded().values())


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_kafka_answers_as_recorded(kafka: str) -> None:
    assert differences(answers_by_case(kafka)) == []


def record_answers() -> None:
    """Asks a Kafka everything and keeps its answers."""
    with SecuredKafka(SUPER, PASSWORDS, SETTINGS) as server:
        RECORDED.write_text(as_lines(answers_by_case(server.sasl_address)))


if __name__ == "__main__":
    record_answers()
