"""Groups that change their protocol while they run: nothing is skipped, on both brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.admin import ConfigResource
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
PARTITIONS, MEMBERS = 8, 4
pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


class Application:
    """Members of one group in slots that restart, and a topic that is written to all the time.

    Attributes:
        read: by partition, the offsets in the order in which they were handed out.
    """

    def __init__(self, servers: str, topic: str, stack: contextlib.ExitStack) -> None:
        self.servers, self.topic, self.stack = servers, topic, stack
        self.group = fresh("g")
        self.partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        self.producer = stack.enter_context(KafkaProducer(bootstrap_servers=servers))
        self.admin = stack.enter_context(KafkaAdminClient(bootstrap_servers=servers))
        self.members: list[KafkaConsumer] = []
        self.read: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.sent = 0
        self.before: dict[int, int] = {}

    def start(self, slot: int, protocol: str) -> None:
        """A new member in a slot; the one that was there is closed first."""
        if slot < len(self.members):
            self.members[slot].close()
        classic = {"heartbeat_interval_ms": 100} if protocol == "classic" else {}
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            **classic,
        )
        self.stack.enter_context(consumer)
        consumer.subscribe([self.topic])
        self.members[slot : slot + 1] = [consumer]

    def write(self, each: int = 5) -> None:
        values = [b"v"] * (each * PARTITIONS)
        self.producer.send_many(self.topic, values, partitions=[i % PARTITIONS for i in range(len(values))]).result(timeout=30)
        self.sent += each

    def poll(self) -> list[set[int]]:
        for consumer in self.members:
            for tp, records in consumer.poll(0.02).items():
                self.read[tp.partition] += [record.offset for record in records]
        return [{tp.partition for tp in consumer.assignment()} for consumer in self.members]

    def settled(self) -> None:
        """Until the members share the partitions and have read all that was written; committed offsets never go back."""
        share = PARTITIONS // len(self.members)

        def look() -> bool:
            found = self.poll()
            even = [len(mine) for mine in found] == [share] * len(self.members) and set().union(*found) == set(self.read)
            # a member that is put out, as when a group becomes a classic one, reads again from what was committed
            return even and all(consumer.position(tp) == self.sent for consumer in self.members for tp in consumer.assignment())

        until(look, "the members share the partitions and have read everything")
        committed = self.committed()
        assert all(committed.get(index, 0) >= offset for index, offset in self.before.items()), (self.before, committed)
        self.before = committed

    def committed(self) -> dict[int, int]:
        found = self.admin.list_group_offsets(self.group, self.partitions)
        return {tp.partition: each.offset for tp, each in found.items() if each is not None}

    def type(self) -> str:
        return self.admin.describe_groups([self.group])[self.group].type

    def check_order(self) -> None:
        """Every offset was handed out, the first time in the order of the partition: nothing was skipped, also not for a while."""
        for offsets in self.read.values():
            assert [*dict.fromkeys(offsets)] == [*range(self.sent)]


@pytest.fixture
def application(bootstrap_servers: str, make_topic: MakeTopic) -> Iterator[Application]:
    with contextlib.ExitStack() as stack:
        yield Application(bootstrap_servers, make_topic(PARTITIONS), stack)


def test_half_of_the_members_at_a_time_change_the_protocol_and_change_back(application: Application) -> None:
    resource = ConfigResource("broker", "1")
    policy = application.admin.describe_configs([resource])[resource]["group.consumer.migration.policy"].value
    assert policy is not None and policy.lower() == "bidirectional"
    for slot in range(MEMBERS):
        application.start(slot, "classic")
    application.write()
    application.settled()
    assert application.type() == "classic"
    slots = range(MEMBERS)
    # the first half and the second half, one restart after the other while records come; then the same way back
    for protocol, half, kind in (
        ("consumer", slots[:2], "consumer"),
        ("consumer", slots[2:], "consumer"),
        ("classic", slots[:2], "consumer"),
        ("classic", slots[2:], "classic"),
    ):
        for slot in half:
            application.start(slot, protocol)
            application.write()
            application.poll()
        application.settled()
        assert application.type() == kind
    application.check_order()
    for consumer in application.members:
        consumer.close()
    assert application.committed() == dict.fromkeys(range(PARTITIONS), application.sent)
