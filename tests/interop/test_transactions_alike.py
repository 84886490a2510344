"""The same requests to the embedded broker and to Apache Kafka, step by step: every answer has to be the same.

Each walk is a sequence of requests about one transactional id, by producers old and new and of both protocols; what comes back is compared
as error codes, states, and (producer, epoch), producers being numbered as they appear.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import protocol as p
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from tests.kit.kafka_server import KafkaServer
from tests.kit.rivals import take_transactions_back
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until
from tests.kit.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

STEPS = 60
RETRIED = (
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
)
Identity = tuple[int, int]
"""Number of a producer id in the order of appearance, and epoch."""


class Side:
    """One of the two, and how far it is."""

    def __init__(self, servers: str) -> None:
        self.wire = Wire(servers.split(",")[0])
        self.topic, self.transactional_id = fresh("alike"), fresh("txn")
        topic = p.CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        assert self.wire.ask(p.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics[0].error_code == 0
        self.ids: list[int] = []
        self.sequences: Counter[tuple[int, int, int]] = Counter()
        self.find(key_type=1)

    def close(self) -> None:
        self.wire.sock.close()

    def again(self, request: Any, version: int, code_of: Any) -> Any:
        """Asks until what passes has passed: a topic or coordinator that is only just coming up."""
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.wire.ask(request, version)
            if code_of(answer) not in RETRIED or time.monotonic() > deadline:
                return answer

    def find(self, key_type: int) -> None:
        request = p.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[self.transactional_id])
        self.again(request, 6, lambda a: a.coordinators[0].error_code)

    def number(self, producer_id: int) -> int:
        if producer_id < 0:
            return -1
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id)

    def id_of(self, number: int) -> int:
        return self.ids[number] if 0 <= number < len(self.ids) else 999_999

    # ---- steps: each returns what is to be compared

    def init(self, expected: Identity | None) -> tuple[Any, ...]:
        request = p.InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        if expected is not None:
            request = request._replace(producer_id=self.id_of(expected[0]), producer_epoch=expected[1])
        got = self.again(request, 5, lambda a: a.error_code)
        return got.error_code, self.number(got.producer_id), got.producer_epoch

    def add(self, who: Identity, partition: int) -> tuple[Any, ...]:
        request = p.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id_of(who[0]),
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[p.AddPartitionsToTxnTopic(name=self.topic, partitions=[partition])],
        )
        got = self.again(request, 3, lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        return (got.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,)

    def write(self, who: Identity, partition: int, version: int, skip: int) -> tuple[Any, ...]:
        key = who[0], who[1], partition
        builder = BatchBuilder(
            producer_id=self.id_of(who[0]), producer_epoch=who[1], base_sequence=self.sequences[key] + skip, is_transactional=True
        )
        builder.append(b"v", timestamp_ms=1_700_000_000_000)
        part = p.PartitionProduceData(index=partition, records=bytes(builder.build()))
        topics = [p.TopicProduceData(name=self.topic, partition_data=[part])]
        request = p.ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)
        got = self.again(request, version, lambda a: a.responses[0].partition_responses[0].error_code)
        code = got.responses[0].partition_responses[0].error_code
        if code == 0:
            self.sequences[key] += 1
        return code, got.responses[0].partition_responses[0].base_offset

    def end(self, who: Identity, commit: bool, version: int) -> tuple[Any, ...]:
        request = p.EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.id_of(who[0]), producer_epoch=who[1], committed=commit
        )
        got = self.again(request, version, lambda a: a.error_code)
        return got.error_code, self.number(got.producer_id), got.producer_epoch

    def offset_commit(self, who: Identity, version: int) -> tuple[Any, ...]:
        partition = p.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        request = p.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.transactional_id,
            producer_id=self.id_of(who[0]),
            producer_epoch=who[1],
            topics=[p.TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        self.find(key_type=0)
        got = self.again(request, version, lambda a: a.topics[0].partitions[0].error_code)
        return (got.topics[0].partitions[0].error_code,)

    def settle(self) -> tuple[Any, ...]:
        """Where the transaction stands once its markers are written, and what the partitions say."""

        def ended() -> Any:
            state = self.wire.ask(p.DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0).transaction_states[0]
            return None if state.transaction_state.startswith("Prepare") else state

        got = until(ended, "the markers are written", every_s=0.005)
        partitions = sorted(index for topic in got.topics if topic.topic == self.topic for index in topic.partitions)
        ends = []
        for index in (0, 1):
            for isolation in (0, 1):
                wanted = p.ListOffsetsPartition(partition_index=index, timestamp=-1)
                topics = [p.ListOffsetsTopic(name=self.topic, partitions=[wanted])]
                request = p.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
                got_end = self.again(request, 7, lambda a: a.topics[0].partitions[0].error_code)
                ends.append(got_end.topics[0].partitions[0].offset)
        producers = self.wire.ask(
            p.DescribeProducersRequest(topics=[p.DescribeProducersTopicRequest(name=self.topic, partition_indexes=[0, 1])]), 0
        )
        known = [
            (self.number(each.producer_id), each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
            for partition in producers.topics[0].partitions
            for each in sorted(partition.active_producers)
        ]
        return got.error_code, got.transaction_state, self.number(got.producer_id), got.producer_epoch, partitions, ends, known


def walk(seed: int, version: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Steps that make sense often enough: identities are those of the producers so far, or wrong by a little. Kafka's records of version 0
    cannot hold what the new protocol needs, and it fails while it writes them: those requests are left out there."""
    choose = random.Random(seed)
    steps: list[tuple[str, tuple[Any, ...]]] = [("init", (None,))]
    new_protocol = choose.random() < 0.5
    for _ in range(STEPS):
        # An epoch is given as an offset to the newest one known when the step is taken.
        who = (choose.choice([0, 0, 0, 0, 0, 0, -1, -1, 1, 7]),)
        mixed = choose.random() < 0.1
        version2 = version > 0 and new_protocol != mixed
        kind = choose.choices(["init", "again", "add", "write", "end", "offsets"], [1, 1, 3, 6, 5, 2])[0]
        if kind == "init":
            steps.append(("init", (None,)))
        elif kind == "again":
            steps.append(("init", (who,)))
        elif kind == "add":
            steps.append(("add", (who, choose.randrange(2))))
        elif kind == "write":
            steps.append(("write", (who, choose.randrange(2), 12 if version2 else choose.choice([10, 11]), choose.choice([0] * 9 + [1]))))
        elif kind == "end":
            steps.append(("end", (who, choose.random() < 0.5, 5 if version2 else 4)))
        else:
            steps.append(("offset_commit", (who, 5 if version2 else choose.choice([3, 4]))))
    return steps


@pytest.fixture(scope="module")
def apache() -> Iterator[KafkaServer]:
    """A Kafka whose protocol of transactions may be turned back, step by step."""
    with KafkaServer() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest, apache: KafkaServer) -> Iterator[tuple[int, str, str]]:
    """Kafka and the embedded broker, with the same transaction.version."""
    version = request.param
    config = {"transaction.state.log.num.partitions": 5, "offsets.topic.num.partitions": 5}
    with EmbeddedCluster(config=config, features={"transaction.version": version}) as cluster:
        if version < 2:
            take_transactions_back(apache.bootstrap_servers, version)
        yield version, apache.bootstrap_servers, cluster.bootstrap_servers


SEEDS = {2: 12, 1: 6, 0: 6} if os.environ.get("KAFKACORE_KAFKA") == "all" else {2: 5, 1: 2, 0: 1}
WALKS = [(version, seed) for version, seeds in SEEDS.items() for seed in range(seeds)]


@pytest.mark.parametrize(("servers", "seed"), WALKS, indirect=["servers"])
def test_every_answer_is_kafkas(servers: tuple[int, str, str], seed: int) -> None:
    version, kafka, embedded = servers
    sides = Side(kafka), Side(embedded)
    newest: Identity = (0, 0)
    told: list[str] = []
    try:
        for name, args in walk(seed, version):
            filled = tuple((newest[0], newest[1] + arg[0]) if isinstance(arg, tuple) else arg for arg in args)
            theirs, ours = (getattr(side, name)(*filled) for side in sides)
            told.append(f"{name}{filled}: {theirs}")
            assert ours == theirs, "\n".join(told)
            if name in ("init", "end") and theirs[0] == 0 and theirs[1] >= 0:
                newest = theirs[1], theirs[2]
            theirs, ours = (side.settle() for side in sides)
            told.append(f"    {theirs}")
            assert ours == theirs, "\n".join(told)
    finally:
        for side in sides:
            side.close()
