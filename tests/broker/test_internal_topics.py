"""Internal topics: who may write to them, how they are made, and what a bad record in them does. Kafka 4.3.1 was asked the same."""

import logging

import pytest
from test_controller import Stage
from test_handlers import Bench

from kafkacore import protocol as p
from kafkacore.broker.coordinator_shard import ReplayedRecord
from kafkacore.broker.internal_topics import GROUP_TOPIC, METADATA_TOPIC, TRANSACTION_TOPIC, creation_of
from kafkacore.broker.txns.state import Transaction, TransactionState
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder
from tests.kit.batches import T0
from tests.kit.rows import each_row

INTERNAL = (GROUP_TOPIC, TRANSACTION_TOPIC)


def keyed_batch(*records):
    """A batch of (key, value) pairs."""
    builder = BatchBuilder(max_bytes=1 << 20)
    for key, value in records:
        builder.append(value, key, timestamp_ms=T0)
    return memoryview(bytes(builder.build()))


def bench_with_internal_topics(**config):
    bench = Bench(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1, **config)
    for key_type in (0, 1):
        bench.ask(p.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
    return bench


def metadata_of(bench, name, version=9):
    request = p.MetadataRequest(topics=[p.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    return bench.ask(request, version).topics[0]


def commit_offset(bench, offset, group="g", topic="t"):
    part = p.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
    wanted = [p.OffsetCommitRequestTopic(name=topic, partitions=[part])]
    request = p.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=wanted)
    return bench.ask(request, 8).topics[0].partitions[0].error_code


def committed_offset(bench, group="g", topic="t"):
    wanted = p.OffsetFetchRequestGroup(group_id=group, topics=[p.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
    answer = bench.ask(p.OffsetFetchRequest(groups=[wanted]), 8).groups[0]
    return answer.error_code or answer.topics[0].partitions[0].committed_offset


def init(bench, transactional_id="x"):
    return bench.ask(p.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000), 4).error_code


def move(bench, topic):
    """Another leadership of the same broker: its coordinator reads the log again."""
    known = bench.cluster.topics[topic]
    bench.elect(known, epoch=known.partitions[0].leader_epoch + 1)
    while (deadline := bench.state.timer.next_deadline_ms()) is not None and deadline <= bench.clock.now_ms():
        bench.state.timer.advance_clock()


@each_row("acks", [0, 1, -1])
@each_row("topic", INTERNAL)
def test_a_client_does_not_write_to_an_internal_topic(topic, acks):
    bench = bench_with_internal_topics()
    end_offset = bench.state.replicas.partition(topic, 0).log.end_offset
    answer = bench.produce(keyed_batch((b"k", b"v")), topic=topic, acks=acks)
    if acks:
        assert answer.error_code == Code.INVALID_TOPIC_EXCEPTION
    assert bench.state.replicas.partition(topic, 0).log.end_offset == end_offset


def test_a_client_writes_to_no_internal_topic_by_its_id_either_and_other_topics_of_the_request_are_written():
    bench = bench_with_internal_topics()
    bench.topic()
    topics = [bench.cluster.topics[name] for name in ("t", GROUP_TOPIC)]
    parts = [p.PartitionProduceData(index=0, records=keyed_batch((b"k", b"v")))]
    data = [p.TopicProduceData(topic_id=topic.topic_id, partition_data=parts) for topic in topics]
    answer = bench.ask(p.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 13)
    codes = {bytes(topic.topic_id): topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {topics[0].topic_id: Code.NONE, topics[1].topic_id: Code.INVALID_TOPIC_EXCEPTION}


def test_kafkas_admin_client_id_writes_to_internal_topics(monkeypatch):
    bench = bench_with_internal_topics()
    encode = p.encode_request
    monkeypatch.setattr(p, "encode_request", lambda request, version, number, client: encode(request, version, number, "__admin_client"))
    assert bench.produce(keyed_batch((b"\x00\x63k", b"v")), topic=GROUP_TOPIC).error_code == Code.NONE


def test_a_client_takes_no_internal_partition_into_its_transaction():
    bench = bench_with_internal_topics()
    bench.topic()
    topics = [p.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t", TRANSACTION_TOPIC)]
    request = p.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics
    )
    answer = bench.ask(request, 3).results_by_topic_v3_and_below
    codes = {topic.name: topic.results_by_partition[0].partition_error_code for topic in answer}
    assert codes == {"t": Code.OPERATION_NOT_ATTEMPTED, TRANSACTION_TOPIC: Code.TOPIC_AUTHORIZATION_FAILED}


def test_clients_do_not_delete_records_of_internal_topics():
    bench = bench_with_internal_topics()
    for topic in INTERNAL:
        part = p.DeleteRecordsPartition(partition_index=0, offset=-1)
        request = p.DeleteRecordsRequest(topics=[p.DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=1000)
        assert bench.ask(request, 2).topics[0].partitions[0].error_code == Code.INVALID_TOPIC_EXCEPTION


def test_a_metadata_request_makes_internal_topics_as_the_coordinators_want_them():
    bench = Bench(offsets_topic_num_partitions=7, transaction_state_log_num_partitions=4, num_partitions=2)
    made = {name: metadata_of(bench, name) for name in INTERNAL}
    assert {name: (topic.error_code, len(topic.partitions), topic.is_internal) for name, topic in made.items()} == {
        GROUP_TOPIC: (Code.NONE, 7, True),
        TRANSACTION_TOPIC: (Code.NONE, 4, True),
    }
    assert bench.cluster.topics[GROUP_TOPIC].config.overrides == {  # as Kafka 4.3.1 describes them
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert bench.cluster.topics[TRANSACTION_TOPIC].config.overrides == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert len(metadata_of(bench, "ordinary").partitions) == 2
    assert metadata_of(bench, METADATA_TOPIC).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert METADATA_TOPIC not in bench.cluster.topics


BAD = {
    "null key": (None, b"x"),
    "empty key": (b"", b"x"),
    "one byte of key": (b"\x00", b"x"),
    "garbage key": (b"\x00\x00\xff\xff\xff", b"x"),
    "unknown version of the key": (b"\x00\x63abc", b"x"),
    "garbage value": (b"\x00\x00\x00\x01x", b"\x00\x00\x01"),
    "unknown version of the value": (b"\x00\x00\x00\x01x", b"\x00\x63abc"),
    "garbage value of a group": (b"\x00\x02\x00\x01x", b"\x00\x03\xff\xff\xff"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("topic", INTERNAL)
def test_a_bad_record_is_skipped_counted_and_logged_and_the_others_count(topic, bad, caplog):
    bench = bench_with_internal_topics()
    bench.topic()
    assert (commit_offset(bench, 41), init(bench)) == (Code.NONE, Code.NONE)
    partition = bench.state.replicas.partition(topic, 0)
    at = partition.log.end_offset
    partition.append_internal(keyed_batch(bad), T0, 0)
    if topic == GROUP_TOPIC:
        assert commit_offset(bench, 42) == Code.NONE
    else:
        assert init(bench, "y") == Code.NONE
    runtime = bench.state.groups.runtime if topic == GROUP_TOPIC else bench.state.transactions.runtime
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        move(bench, topic)
    assert (committed_offset(bench), init(bench), init(bench, "y")) == (42 if topic == GROUP_TOPIC else 41, Code.NONE, Code.NONE)
    assert runtime.skipped_records == {0: 1}
    assert f"{topic}-0: the record at offset {at} is skipped: " in caplog.text


def test_one_bad_record_in_each_batch_and_a_batch_that_cannot_be_taken_apart():
    bench = bench_with_internal_topics()
    bench.topic()
    partition = bench.state.replicas.partition(GROUP_TOPIC, 0)
    for offset in range(20):
        assert commit_offset(bench, offset) == Code.NONE
        if offset % 2:
            partition.append_internal(keyed_batch((None, b"x")), T0, 0)
        else:  # promises a record longer than it is
            damaged = bytearray(keyed_batch((b"\x00\x00", b"x")))
            damaged[61] = 0x7E
            partition.append_internal(memoryview(damaged), T0, 0)
    move(bench, GROUP_TOPIC)
    assert committed_offset(bench) == 19
    assert bench.state.groups.runtime.skipped_records == {0: 20}
    assert commit_offset(bench, 77) == Code.NONE
    move(bench, GROUP_TOPIC)
    assert committed_offset(bench) == 77


def test_a_transaction_whose_timer_cannot_be_set_keeps_no_other_from_being_loaded():
    bench = bench_with_internal_topics()
    began = Transaction("poison", 1, 0, timeout_ms=1000, state=TransactionState.ONGOING, start_ms=2**63 - 1, update_ms=T0)
    record = began.record(0)
    bench.state.replicas.partition(TRANSACTION_TOPIC, 0).append_internal(keyed_batch((record.key, record.value)), T0, 0)
    assert init(bench, "y") == Code.NONE
    move(bench, TRANSACTION_TOPIC)
    assert (init(bench, "y"), init(bench, "z")) == (Code.NONE, Code.NONE)


def test_a_bug_in_the_replay_of_a_record_just_written_costs_that_record_only(monkeypatch):
    bench = bench_with_internal_topics()
    bench.topic()
    shard = bench.state.groups.runtime._contexts[0].shard
    replay = shard.replay
    seen = []

    def buggy(record: ReplayedRecord) -> None:
        seen.append(record)
        if len(seen) == 1:
            raise ZeroDivisionError("a bug")
        replay(record)

    monkeypatch.setattr(shard, "replay", buggy)
    assert commit_offset(bench, 1) == Code.NONE  # it is in the log
    assert commit_offset(bench, 2) == Code.NONE
    assert committed_offset(bench) == 2
    assert bench.state.groups.runtime.skipped_records == {0: 1}


def test_a_broker_that_is_down_when_an_internal_topic_is_made_gets_its_replica():
    stage = Stage(brokers=3)
    stage.lose(2)
    stage.lose(3)
    for name, min_isr in ((GROUP_TOPIC, None), (TRANSACTION_TOPIC, "2")):
        request = creation_of(stage.image, BrokerConfig(), name)
        (topic,) = stage.ask(request).topics
        assert (topic.error_code, topic.replication_factor) == (Code.NONE, 3)
        made = stage.image.topics[name]
        assert {(tuple(sorted(part.replicas)), tuple(part.isr), part.leader) for part in made.partitions} == {((1, 2, 3), (1,), 1)}
        assert made.config.overrides.get("min.insync.replicas") == min_isr
    alone = Stage(brokers=1)
    (topic,) = alone.ask(creation_of(alone.image, BrokerConfig(), TRANSACTION_TOPIC)).topics
    assert (topic.error_code, topic.replication_factor) == (Code.NONE, 1)
    assert alone.image.topics[TRANSACTION_TOPIC].config.overrides["min.insync.replicas"] == "1"
