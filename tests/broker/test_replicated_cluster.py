"""Three brokers, real sockets, our clients: what replication promises, seen from outside."""

import threading

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore import protocol as p
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.records import read, take
from tests.kit.replicas import address_of, followers_of, in_step, read_numbers, write_numbers
from tests.kit.waiting import until
from tests.kit.wire import Wire

T0 = TopicPartition("t", 0)
QUICK = {"replica.lag.time.max.ms": 600, "replica.fetch.wait.max.ms": 100}


def test_an_unclean_election_truncates_and_consumers_see_it():
    settings = {"unclean.leader.election.enable": True, "default.replication.factor": 2}
    with EmbeddedCluster(brokers=2, config=settings) as cluster:
        cluster.create_topic("t", partitions=1)
        write_numbers(cluster, 10)
        leader = cluster.leader("t", 0)
        other = 3 - leader
        until(lambda: cluster.high_watermark("t", 0, other) == 10)
        cluster.kill_broker(other)
        write_numbers(cluster, 10, first=10)
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none", metadata_max_age_ms=100) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            take(consumer, 20)
            cluster.kill_broker(leader)
            cluster.start_broker(other)  # what was written while it was away is lost
            assert cluster.leader("t", 0) == other
            assert write_numbers(cluster, 3, first=50) == [10, 11, 12]
            cluster.start_broker(leader)
            until(lambda: cluster.end_offset("t", 0, leader) == 13 and len(cluster.isr("t", 0)) == 2)
            with pytest.raises((errors.LogTruncationError, errors.OffsetOutOfRange)):
                for _ in range(100):
                    consumer.poll(timeout=1)
        cluster.move_leader("t", 0, leader)
        assert read_numbers(cluster, 13) == [*range(10), 50, 51, 52]


def test_a_follower_that_was_away_for_long_starts_where_the_leader_s_log_begins(tmp_path):
    with EmbeddedCluster(brokers=3, data_dir=tmp_path, config={"log.segment.bytes": 1 << 20}) as cluster:
        cluster.create_topic("t", partitions=1)
        write_numbers(cluster, 10)
        follower = followers_of(cluster)[0]
        cluster.stop_broker(follower)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for nth in range(30):
                producer.send("t", b"%d" % nth + bytes(100_000), partition=0)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.delete_records({T0: 30}).check()
        cluster.start_broker(follower)
        until(lambda: in_step(cluster))
        cluster.move_leader("t", 0, follower)
        found = read(cluster.bootstrap_servers, "t", 10)
        assert [(record.offset, record.value[:2]) for record in found] == [(10 + nth, b"%d" % nth) for nth in range(20, 30)]


def test_deleting_records_waits_for_the_followers():
    with EmbeddedCluster(brokers=3, config=QUICK) as cluster:
        cluster.create_topic("t", partitions=1)
        write_numbers(cluster, 10)
        leader = cluster.leader("t", 0)
        follower = followers_of(cluster)[0]
        wanted = p.DeleteRecordsTopic(name="t", partitions=[p.DeleteRecordsPartition(partition_index=0, offset=4)])
        with Wire(address_of(cluster, leader)) as wire:
            done = wire.ask(p.DeleteRecordsRequest(topics=[wanted], timeout_ms=20_000), 2).topics[0].partitions[0]
            assert (done.error_code, done.low_watermark) == (0, 4)
            cluster.pause_broker(follower)
            wanted = p.DeleteRecordsTopic(name="t", partitions=[p.DeleteRecordsPartition(partition_index=0, offset=-1)])
            late = wire.ask(p.DeleteRecordsRequest(topics=[wanted], timeout_ms=200), 2).topics[0].partitions[0]
            assert (late.error_code, late.low_watermark) == (Code.REQUEST_TIMED_OUT, -1)
            cluster.resume_broker(follower)
            done = wire.ask(p.DeleteRecordsRequest(topics=[wanted], timeout_ms=20_000), 2).topics[0].partitions[0]
            assert (done.error_code, done.low_watermark) == (0, 10)


def test_a_consumer_reads_from_the_replica_in_its_rack():
    settings = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector", "replica.fetch.wait.max.ms": 20}
    with EmbeddedCluster(brokers=3, config=settings, racks=["a", "b", "c"]) as cluster:
        cluster.create_topic("t", partitions=1)
        write_numbers(cluster, 10)
        readers = []

        def note(request):
            if request.replica_state.replica_id < 0 and request.session_epoch >= 0:
                readers.append((request.rack_id, int(threading.current_thread().name.rpartition("-")[2])))

        cluster.control(1, note)
        for broker, rack in ((1, "a"), (2, "b"), (3, "c"), (cluster.leader("t", 0), "")):
            assert read_numbers(cluster, 10, client_rack=rack) == list(range(10))
            asked = [node for told, node in readers if told == rack]
            assert asked[-1] == broker
            assert set(asked) == {cluster.leader("t", 0), broker}
