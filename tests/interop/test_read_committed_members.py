"""Members of groups that read committed data only, of three clients, on the same topics: what each reads, and where each commits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from tests.kit.rivals import confluent_consumer, confluent_producer, send_all, take
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.usefixtures("client_face"), pytest.mark.timeout(300), pytest.mark.slow, pytest.mark.kafka_alone("tests/consumer")]
PARTITIONS = 2


def write(servers: str, topic: str, seed: int) -> list[list[str]]:
    """Interleaved transactions of three producers and plain records, committed and aborted; the values that count, by partition. The last
    thing in each partition is the marker of an aborted transaction."""
    choose = random.Random(seed)
    producers = [KafkaProducer(bootstrap_servers=servers, transactional_id=fresh("tx"), linger_ms=0) for _ in range(3)]
    plain = KafkaProducer(bootstrap_servers=servers)
    kept: list[tuple[int, int, str]] = []
    open_: dict[int, list[tuple[int, int, str]]] = {}
    for producer in producers:
        producer.init_transactions()

    def end(nth: int, commit: bool) -> None:
        (producers[nth].commit_transaction if commit else producers[nth].abort_transaction)()
        kept.extend(open_.pop(nth) if commit else open_.pop(nth) and [])

    for step in range(120):
        nth, partition = choose.randrange(4), choose.randrange(PARTITIONS)
        value = f"{step}"
        if nth == 3:
            kept.append((partition, plain.send(topic, value, partition=partition).result(30).offset, value))
            continue
        if nth not in open_:
            producers[nth].begin_transaction()
            open_[nth] = []
        open_[nth].append((partition, producers[nth].send(topic, value, partition=partition).result(30).offset, value))
        if choose.random() < 0.4:
            end(nth, choose.random() < 0.5)
    for nth in list(open_):
        end(nth, True)
    producers[0].begin_transaction()
    for partition in range(PARTITIONS):
        producers[0].send(topic, "-", partition=partition).result(30)
    producers[0].abort_transaction()
    for each in (*producers, plain):
        each.close()
    return [[value for at, _, value in sorted(kept) if at == partition] for partition in range(PARTITIONS)]


def ends(servers: str, topic: str) -> list[int]:
    """Where the partitions end once all markers are there: no transaction is open."""
    where = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    with (
        KafkaConsumer(bootstrap_servers=servers) as all_of_it,
        KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as committed,
    ):
        until(lambda: all_of_it.end_offsets(where) == committed.end_offsets(where), "all markers are written")
        found = all_of_it.end_offsets(where)
        return [found[tp] for tp in where]


def committed_of(servers: str, group: str, topic: str) -> list[int]:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        found = admin.list_group_offsets(group)
        places = [found.get(TopicPartition(topic, index)) for index in range(PARTITIONS)]
        return [-1 if each is None else each.offset for each in places]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.kafka_at_length) for seed in (1, 2))])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_our_member_and_confluents(bootstrap_servers: str, make_topic: MakeTopic, protocol: str, seed: int) -> None:
    topic, group = make_topic(PARTITIONS), fresh("g")
    expected = write(bootstrap_servers, topic, seed)
    last = ends(bootstrap_servers, topic)
    got: list[list[str]] = [[] for _ in range(PARTITIONS)]
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_poll_records=7,
    ) as consumer:
        where = [TopicPartition(topic, index) for index in range(PARTITIONS)]

        def read() -> bool:
            for tp, records in consumer.poll(timeout=0.1).items():
                got[tp.partition] += [(record.value or b"").decode() for record in records]
            return set(where) <= set(consumer.assignment()) and [consumer.position(tp) for tp in where] == last

        until(read, "everything is read, the markers too", every_s=0)
        assert [consumer.lag(tp) for tp in where] == [0, 0]
        consumer.commit()
    assert got == expected
    assert committed_of(bootstrap_servers, group, topic) == last

    send_all(confluent_producer(bootstrap_servers), topic, [b"behind"], partition=1)
    theirs = confluent_consumer(bootstrap_servers, group_id=group, isolation_level="read_committed", group_protocol=protocol)
    theirs.subscribe([topic])
    assert [message.value() for message in take(theirs, 1)] == [b"behind"], "it goes on where ours stopped"
    theirs.close()
    other = confluent_consumer(bootstrap_servers, isolation_level="read_committed")
    other.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    messages = take(other, sum(map(len, expected)) + 1)
    other.close()
    by_partition: Any = [[message.value().decode() for message in messages if message.partition() == index] for index in range(PARTITIONS)]
    assert by_partition == [expected[0], [*expected[1], "behind"]]
