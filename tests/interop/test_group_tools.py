"""What Kafka's ConsumerGroupCommand says of a group of ours, beside our own admin client and command line; on both brokers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.cli.app import run
from tests.kit.java_tools import JavaTools, Ran
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
PARTITIONS, RECORDS = 3, 10
COMMAND = "consumer.group.ConsumerGroupCommand"
CLIENTS = {"one": "static-one", "two": None}
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180), pytest.mark.slow]


def rows_of(text: str) -> list[dict[str, str]]:
    """The table that a tool printed, by its header: a cell may be empty, and begins where its header does."""
    lines = [line for line in text.splitlines() if line.strip()]
    at = next(i for i, line in enumerate(lines) if line.startswith("GROUP "))
    begins = [(found.start(), found[0]) for found in re.finditer(r"\S+( \(ID\))?", lines[at])]
    ends = [begin for begin, _ in begins[1:]] + [None]
    return [{name: line[begin:end].strip() for (begin, name), end in zip(begins, ends, strict=True)} for line in lines[at + 1 :]]


class Group:
    """Two members of ours, of which one is static, and what the tools say of their group."""

    def __init__(self, java: JavaTools, servers: str, topic: str, protocol: str) -> None:
        self.java, self.servers, self.topic, self.protocol = java, servers, topic, protocol
        self.name = fresh("g")
        self.members: dict[str, KafkaConsumer] = {}
        for client_id, instance_id in CLIENTS.items():
            consumer = KafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=self.name,
                group_protocol=protocol,
                client_id=client_id,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **({"group_instance_id": instance_id} if instance_id else {}),
                **({"heartbeat_interval_ms": 100} if protocol == "classic" else {}),
            )
            self.members[client_id] = consumer

    def shared(self) -> bool:
        """Also of the last generation, which a member hears of after it gave partitions away."""
        found, generations = [], set()
        for consumer in self.members.values():
            consumer.poll(0.05)
            found.append(len(consumer.assignment()))
            generations.add(consumer.consumer_group_metadata().generation_id)
        return sorted(found) == [1, 2] and len(generations) == 1

    def tool(self, *words: object) -> Ran:
        return self.java.run(COMMAND, "--bootstrap-server", self.servers, "--group", self.name, *words)

    def described(self, *words: object) -> list[dict[str, str]]:
        return rows_of(self.tool("--describe", *words).ok())


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.kafka_at_length), "consumer"])
def group(request: pytest.FixtureRequest, java: JavaTools, bootstrap_servers: str, make_topic: MakeTopic) -> Iterator[Group]:
    topic = make_topic(PARTITIONS)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        count = RECORDS * PARTITIONS
        producer.send_many(topic, [b"v"] * count, partitions=[i % PARTITIONS for i in range(count)]).result(timeout=30)
    found = Group(java, bootstrap_servers, topic, request.param)
    with contextlib.ExitStack() as stack:
        for consumer in found.members.values():
            stack.enter_context(consumer)
        until(found.shared, "the members share the partitions")
        for consumer in found.members.values():  # partition 0 is committed at 1, partition 1 at 2; partition 2 is not
            consumer.commit({tp: tp.partition + 1 for tp in consumer.assignment() if tp.partition < 2})
        yield found


def test_a_group_is_described_alike(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    topic, name = group.topic, group.name
    with KafkaAdminClient(bootstrap_servers=group.servers) as admin:
        ours = admin.describe_groups([name])[name]
    owner = {tp.partition: member for member in ours.members for tp in member.partitions}
    assert {client: {tp.partition for tp in consumer.assignment()} for client, consumer in group.members.items()} == {
        member.client_id: {tp.partition for tp in member.partitions} for member in ours.members
    }
    assert {member.client_id: member.instance_id for member in ours.members} == CLIENTS
    ids = {client: consumer.consumer_group_metadata().member_id for client, consumer in group.members.items()}
    assert {member.client_id: member.member_id for member in ours.members} == ids
    assert owner.keys() == set(range(PARTITIONS))

    offsets = {int(row["PARTITION"]): row for row in group.described("--offsets", "--verbose")}
    for partition in range(PARTITIONS):
        row, member = offsets[partition], owner[partition]
        committed = str(partition + 1) if partition < 2 else "-"
        assert (row["GROUP"], row["TOPIC"], row["CURRENT-OFFSET"]) == (name, topic, committed)
        assert row["LOG-END-OFFSET"] == str(RECORDS)
        assert row["LAG"] == (str(RECORDS - partition - 1) if partition < 2 else "-")
        assert (row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"]) == (member.member_id, member.client_host, member.client_id)

    rows = {row["CLIENT-ID"]: row for row in group.described("--members", "--verbose")}
    epoch = {client: consumer.consumer_group_metadata().generation_id for client, consumer in group.members.items()}
    for member in ours.members:
        row, numbers = rows[member.client_id], ",".join(str(tp.partition) for tp in member.partitions)
        assert (row["CONSUMER-ID"], row["HOST"]) == (member.member_id, member.client_host)
        assert row["GROUP-INSTANCE-ID"] == (member.instance_id or "")
        assert (row["#PARTITIONS"], row["CURRENT-ASSIGNMENT"]) == (str(len(member.partitions)), f"{topic}:{numbers}")
        if group.protocol == "consumer":
            assert row["CURRENT-EPOCH"] == row["TARGET-EPOCH"] == str(epoch[member.client_id])
            assert row["TARGET-ASSIGNMENT"] == row["CURRENT-ASSIGNMENT"]

    (state,) = group.described("--state", "--verbose")
    at = ours.coordinator
    assert at is not None and state["COORDINATOR (ID)"].split() == [f"{at.host}:{at.port}", f"({at.id})"]
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == (ours.assignor, ours.state, "2")
    assert (ours.assignor, ours.state, ours.type) == ("range" if group.protocol == "classic" else "uniform", "Stable", group.protocol)
    if group.protocol == "consumer":
        assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] == str(epoch["one"])

    assert run(["groups", "describe", name, "-b", group.servers, "--json"]) == 0
    ((_, shown),) = json.loads(capsys.readouterr().out).items()
    assert (shown["state"], shown["type"], shown["assignor"]) == (ours.state, ours.type, ours.assignor)
    assert shown["coordinator"] == {"id": at.id, "host": at.host, "port": at.port}
    assert {m["client_id"]: (m["member_id"], m["instance_id"], m["host"], m["partitions"]) for m in shown["members"]} == {
        m.client_id: (m.member_id, m.instance_id, m.client_host, [[topic, tp.partition] for tp in m.partitions]) for m in ours.members
    }
    keys = {"committed": "CURRENT-OFFSET", "end": "LOG-END-OFFSET", "lag": "LAG"}
    told = {row["partition"]: {java: "-" if row[own] is None else str(row[own]) for own, java in keys.items()} for row in shown["offsets"]}
    assert told == {partition: {java: row[java] for java in keys.values()} for partition, row in offsets.items()}
    assert run(["groups", "describe", name, "-b", group.servers]) == 0
    assert f"{name}: Stable, 2 members, assignor {ours.assignor}, coordinator {at.host}:{at.port} ({at.id})" in capsys.readouterr().out
