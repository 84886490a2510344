"""Elections that lose records, against real brokers: what test_elections.py shows of the engine; `lag` and `health` during a validation."""

import re

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, NewTopic, TopicPartition, errors
from kafkacore.clock import JumpingClock
from kafkacore.testing import Drop, EmbeddedCluster
from tests.kit.records import fill, take
from tests.kit.waiting import until

T0 = TopicPartition("t", 0)


def write(cluster, values):
    fill(cluster.bootstrap_servers, "t", values)


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "reset"), [("classic", "latest"), ("consumer", "none")])
def test_a_member_that_starts_again_after_an_unclean_election(protocol, reset):
    """It has committed offset 20 with its leader epoch. The new leader's log parts at 10 and is longer than 20 by now: nothing else would
    show that ten records are others.
    """
    with EmbeddedCluster(brokers=3, config={"unclean.leader.election.enable": True}) as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", replica_assignments={0: (1, 2)})]).check()
        settings = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "g",
            "group_protocol": protocol,
            "reconnect_backoff_max_ms": 100,
            "metadata_max_age_ms": 1_000,
        }

        write(cluster, [b"%d" % nth for nth in range(10)])
        until(lambda: cluster.high_watermark("t", 0, 2) == 10)
        cluster.kill_broker(2)
        write(cluster, [b"lost %d" % nth for nth in range(10, 20)])
        with KafkaConsumer("t", **settings, auto_offset_reset="earliest") as first:
            assert len([*records_to(first, 20)]) == 20
            first.commit()
            committed = first.committed(T0)
            assert (committed.offset, committed.leader_epoch) == (20, first.partition_infos("t")[0].leader_epoch)
        cluster.kill_broker(1)
        cluster.start_broker(2)
        until(lambda: cluster.leader("t", 0) == 2)
        write(cluster, [b"new %d" % nth for nth in range(10, 25)])
        with KafkaConsumer("t", **settings, auto_offset_reset=reset) as second:
            assert second.committed(T0) == committed
            if reset == "none":
                with pytest.raises(errors.LogTruncationError, match="ends at offset 10, before the position"):
                    next(records_to(second, 25))
            else:
                expected = [(offset, b"new %d" % offset) for offset in range(10, 25)]
                assert [(record.offset, record.value) for record in records_to(second, 25)] == expected


def records_to(consumer, end):
    for record in consumer:
        yield record
        if record.offset == end - 1:
            return


def move_leader(cluster):
    cluster.move_leader("t", 0, next(broker for broker in (1, 2, 3) if broker != cluster.leader("t", 0)))


def poll_until(consumer, state):
    until(lambda: consumer.statistics()["partitions"]["t-0"]["state"] == state, state, consumer)


def test_lag_and_health_do_not_trust_an_end_from_before_the_validation():
    clock = JumpingClock()
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=3)
        write(cluster, [b"x"] * 5)
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", clock=clock) as consumer:
            consumer.assign([T0])
            assert consumer.lag(T0) is None
            assert len(take(consumer, 5)) == 5
            until(lambda: consumer.poll(0.1) == {} and consumer.lag(T0) == 0, "it is at the end")
            consumer.health()
            cluster.control("OffsetForLeaderEpoch", lambda request: Drop)
            move_leader(cluster)
            write(cluster, [b"x"] * 5)
            poll_until(consumer, "await_validation")
            consumer.poll(0.1)
            assert consumer.lag(T0) is None
            assert consumer.statistics()["partitions"]["t-0"]["lag"] is None
            assert consumer.health().stalled == ()
            for _ in range(2):  # a second leader change starts no new clock
                clock.sleep(20_000)
                consumer.poll(0.1)
                move_leader(cluster)
            health = consumer.health()
            assert not health.ok
            assert health.stalled == (T0,)
            assert any(re.match(r"t-0 has been awaiting validation for \d\d s \(offset 5\)", problem) for problem in health.problems)
            consumer.pause(T0)
            assert consumer.health().stalled == ()
            consumer.resume(T0)
            cluster.control("OffsetForLeaderEpoch", None)
            clock.sleep(40_000)  # what was dropped times out
            assert len(take(consumer, 5)) == 5
            consumer.poll(0.1)
            assert consumer.health().stalled == ()
            cluster.control("ListOffsets", lambda request: Drop)
            consumer.seek_to_end(T0)
            consumer.poll(0.1)
            clock.sleep(31_000)
            assert any(re.match(r"t-0 has been awaiting reset for \d\d s", problem) for problem in consumer.health().problems)
