"""Three brokers, real sockets, our clients: what replication promises, seen from outside."""

import threading
import time

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore import protocol as p
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.wire import Wire, produce_request

T0 = TopicPartition("t", 0)
QUICK = {"replica.lag.time.max.ms": 600, "replica.fetch.wait.max.ms": 100}


def eventually(condition, timeout_s=90):
    """Waits, without a sleep of fixed length, for something that another thread does."""
    turn, deadline = threading.Event(), time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        turn.wait(0.005)


def servers_of(cluster, broker):
    return cluster.bootstrap_servers.split(",")[broker - 1]


def values_of(cluster, count, partition=0, **settings):
    """The first records of a partition, by a consumer that checks what it reads."""
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition("t", partition)])
        found = []
        while len(found) < count:
            polled = consumer.poll(timeout=20)
            assert polled, f"only {len(found)} of {count} records came"
            found += [record.value for records in polled.values() for record in records]
        return found


def write(cluster, count, first=0, **settings):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        futures = [producer.send("t", b"%d" % (first + nth), partition=0) for nth in range(count)]
        return [future.result(timeout=30).offset for future in futures]


def together(cluster):
    """All replicas are in sync and hold the same."""
    return len(cluster.isr("t", 0)) == 3 and len({cluster.end_offset("t", 0, broker) for broker in (1, 2, 3)}) == 1


def test_every_acknowledged_record_survives_leaders_that_stop_and_die():
    with EmbeddedCluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        cluster.create_topic("t", partitions=1)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1) as producer:
            futures = []
            for turn in range(6):
                futures += [producer.send("t", b"%d" % nth, partition=0) for nth in range(turn * 1000, turn * 1000 + 1000)]
                leader = cluster.leader("t", 0)
                (cluster.kill_broker if turn % 2 else cluster.stop_broker)(leader)
                assert cluster.leader("t", 0) not in (None, leader)
                futures += [producer.send("t", b"%d" % (6000 + turn), partition=0)]
                futures[-1].result(timeout=60)
                cluster.start_broker(leader)
                eventually(lambda: len(cluster.isr("t", 0)) == 3)
            offsets = [future.result(timeout=60).offset for future in futures]
        assert offsets == list(range(6006))
        expected = [b"%d" % nth for turn in range(6) for nth in (*range(turn * 1000, turn * 1000 + 1000), 6000 + turn)]
        assert values_of(cluster, len(expected)) == expected
        eventually(lambda: together(cluster))


def test_too_few_replicas_refuse_acks_all_and_nothing_else():
    with EmbeddedCluster(brokers=3, config={"min.insync.replicas": 2, **QUICK}) as cluster:
        cluster.create_topic("t", partitions=1)
        first, second = [broker for broker in (1, 2, 3) if broker != cluster.leader("t", 0)]
        cluster.kill_broker(first)
        assert write(cluster, 10) == list(range(10))
        cluster.kill_broker(second)
        leader = cluster.leader("t", 0)
        with Wire(servers_of(cluster, leader)) as wire:
            ask = lambda acks: wire.ask(produce_request(batch(), acks=acks), 9).responses[0].partition_responses[0]  # noqa: E731
            assert ask(-1).error_code == Code.NOT_ENOUGH_REPLICAS
            assert (ask(1).error_code, cluster.high_watermark("t", 0)) == (0, 10)  # written, and not committed
        cluster.start_broker(second)
        eventually(lambda: len(cluster.isr("t", 0)) == 2)
        assert write(cluster, 5, first=100) == list(range(13, 18))
        assert cluster.high_watermark("t", 0) == 18


def test_a_hanging_follower_leaves_the_isr_and_comes_back():
    # The session time-out is longer than the lag: it is the leader who finds out.
    with EmbeddedCluster(brokers=3, config=QUICK) as cluster:
        cluster.create_topic("t", partitions=1)
        write(cluster, 10)
        follower = next(broker for broker in (1, 2, 3) if broker != cluster.leader("t", 0))
        cluster.pause_broker(follower)
        # A client might ask the broker that hangs for metadata.
        with Wire(servers_of(cluster, cluster.leader("t", 0)), timeout_s=60) as wire:
            request = produce_request(batch([b"x"] * 10))._replace(timeout_ms=20_000)
            answer = wire.ask(request, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 10)  # once the ISR has shrunk
        assert follower not in cluster.isr("t", 0)
        cluster.resume_broker(follower)
        eventually(lambda: together(cluster))
        eventually(lambda: cluster.high_watermark("t", 0, follower) == 20)


def test_an_unclean_election_truncates_and_consumers_see_it():
    settings = {"unclean.leader.election.enable": True, "default.replication.factor": 2}
    with EmbeddedCluster(brokers=2, config=settings) as cluster:
        cluster.create_topic("t", partitions=1)
        write(cluster, 10)
        leader = cluster.leader("t", 0)
        other = 3 - leader
        eventually(lambda: cluster.high_watermark("t", 0, other) == 10)
        cluster.kill_broker(other)
        write(cluster, 10, first=10)
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none", metadata_max_age_ms=100) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            seen = []
            while len(seen) < 20:
                seen += [record.value for records in consumer.poll(timeout=20).values() for record in records]
            cluster.kill_broker(leader)
            cluster.start_broker(other)  # what was written while it was away is lost
            assert cluster.leader("t", 0) == other
            assert write(cluster, 3, first=50) == [10, 11, 12]
            cluster.start_broker(leader)
            eventually(lambda: cluster.end_offset("t", 0, leader) == 13 and len(cluster.isr("t", 0)) == 2)
            with pytest.raises((errors.LogTruncationError, errors.OffsetOutOfRange)):
                for _ in range(100):
                    consumer.poll(timeout=1)
        cluster.move_leader("t", 0, leader)
        assert values_of(cluster, 13) == [b"%d" % nth for nth in (*range(10), 50, 51, 52)]


def test_a_follower_that_was_away_for_long_starts_where_the_leader_s_log_begins(tmp_path):
    with EmbeddedCluster(brokers=3, data_dir=tmp_path, config={"log.segment.bytes": 1 << 20}) as cluster:
        cluster.create_topic("t", partitions=1)
        write(cluster, 10)
        follower = next(broker for broker in (1, 2, 3) if broker != cluster.leader("t", 0))
        cluster.stop_broker(follower)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for nth in range(30):
                producer.send("t", b"%d" % nth + bytes(100_000), partition=0)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            deleted = admin.delete_records({T0: 30})
            assert deleted[T0]
        cluster.start_broker(follower)
        eventually(lambda: together(cluster))
        cluster.move_leader("t", 0, follower)
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            assert consumer.beginning_offsets([T0]) == {T0: 30}
            assert consumer.end_offsets([T0]) == {T0: 40}
        found = values_of(cluster, 10)
        assert [value[:2] for value in found] == [b"%d" % nth for nth in range(20, 30)]


def test_deleting_records_waits_for_the_followers():
    with EmbeddedCluster(brokers=3, config=QUICK) as cluster:
        cluster.create_topic("t", partitions=1)
        write(cluster, 10)
        leader = cluster.leader("t", 0)
        follower = next(broker for broker in (1, 2, 3) if broker != leader)
        wanted = p.DeleteRecordsTopic(name="t", partitions=[p.DeleteRecordsPartition(partition_index=0, offset=4)])
        with Wire(servers_of(cluster, leader)) as wire:
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
        write(cluster, 10)
        readers = []

        def note(request):
            if request.replica_state.replica_id < 0 and request.session_epoch >= 0:
                readers.append((request.rack_id, int(threading.current_thread().name.rpartition("-")[2])))

        cluster.control(1, note)
        expected = [b"%d" % nth for nth in range(10)]
        for broker, rack in ((1, "a"), (2, "b"), (3, "c"), (cluster.leader("t", 0), "")):
            assert values_of(cluster, 10, client_rack=rack) == expected
            asked = [node for told, node in readers if told == rack]
            assert asked[-1] == broker
            assert set(asked) == {cluster.leader("t", 0), broker}


def test_a_produce_to_the_wrong_broker_names_the_right_one():
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=1)
        leader = cluster.leader("t", 0)
        wrong = leader % 3 + 1
        with Wire(servers_of(cluster, wrong)) as wire:
            answer = wire.ask(produce_request(batch()), 10)
            part = answer.responses[0].partition_responses[0]
            assert (part.error_code, part.current_leader.leader_id) == (Code.NOT_LEADER_OR_FOLLOWER, leader)
            assert [f"{each.host}:{each.port}" for each in answer.node_endpoints] == [servers_of(cluster, leader)]


def test_idle_followers_wait_in_long_polls():
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=30)
        write(cluster, 1)
        fetches = []
        enough = threading.Event()

        def note(request):
            fetches.append(time.monotonic())
            if len(fetches) >= 18:
                enough.set()

        eventually(lambda: all(cluster.high_watermark("t", 0, broker) == 1 for broker in (1, 2, 3)))
        cluster.control(1, note)
        assert enough.wait(60)
        # Six pairs of brokers, a Fetch each 500 ms: eighteen of them take a second or more.
        assert fetches[17] - fetches[0] > 0.8
