"""Throttled replication: what counts, who is held back and for how long, and that a move goes on once its throttle is gone."""

from types import SimpleNamespace

import pytest
from test_follower_fetches import LONG_LANE, SHORT_LANE, Copy, Follower, asked_for, data, fetch_answer

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic
from kafkacore.broker.replication_quota import ReplicationQuota, ReplicationQuotas, is_named
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.config_values import INT64_MAX
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import brokers_of
from tests.kit.rows import each_row
from tests.kit.waiting import until

PATIENCE_S = 60
MEGABYTE = bytes(1_000_000)


@each_row(("text", "named"), [("", []), ("*", [(0, 1), (1, 2), (7, 9)]), ("0:1", [(0, 1)]), ("0:1,1:2", [(0, 1), (1, 2)]), ("1:12", [])])
def test_the_replicas_a_topic_names(text, named):
    assert [each for each in [(0, 1), (1, 2), (7, 9)] if is_named(text, *each)] == named


def test_a_rate_is_over_its_windows():
    quota = ReplicationQuota(11, 1)
    assert not quota.is_active
    quota.set_rate(1_000)
    assert quota.is_active and quota.wait_ms(0) == 0
    quota.record(10_000, 0)
    assert quota.wait_ms(0) == 0  # a thousand a second over ten seconds
    quota.record(1, 0)
    assert quota.wait_ms(0) == 1  # what is missing
    quota.record(99, 0)
    assert quota.wait_ms(0) == 100
    quota.record(20_000, 0)
    assert quota.wait_ms(0) == 1_000  # a second at most: the rate may be altered
    assert quota.wait_ms(20_000) == 0
    quota.set_rate(0)
    assert quota.wait_ms(20_000) == 0  # until something is copied
    quota.record(1, 20_000)
    assert quota.wait_ms(20_000) == 1_000
    quota.set_rate(INT64_MAX)
    assert quota.wait_ms(20_000) == 0
    quota.set_rate(100_000)
    quota.record(1_000_000, 20_000)
    assert quota.wait_ms(20_000) == 1  # less than half a millisecond is no reason to go on


def quotas(**rates):
    return ReplicationQuotas(BrokerConfig(**rates), ManualClock())


def partition(isr=(1,), node_id=1, **config):
    config = TopicConfig.build({f"{name}.replication.throttled.replicas": text for name, text in config.items()}, BrokerConfig())
    return SimpleNamespace(index=0, node_id=node_id, isr=list(isr), config=config)


def test_a_follower_in_sync_counts_and_is_not_held_back():
    made = quotas(leader_replication_throttled_rate=1, follower_replication_throttled_rate=1)
    held, free = partition(leader="0:1"), partition()
    made.sent(free, MEGABYTE)
    assert not made.leader_waits(held, 2)
    made.sent(held, [memoryview(b"x"), memoryview(MEGABYTE)])
    assert made.leader_waits(held, 2) and not made.leader_waits(free, 2)
    assert not made.leader_waits(partition(isr=(1, 2), leader="0:1"), 2)
    fetched = partition(isr=(2,), follower="0:1")
    made.fetched(fetched, memoryview(MEGABYTE))
    assert made.follower_wait_ms(fetched) == 1_000
    assert made.follower_wait_ms(partition(isr=(2, 1), follower="0:1")) == made.follower_wait_ms(partition(isr=(2,), leader="0:1")) == 0


def test_nothing_counts_without_a_rate():
    made, moved, settled = quotas(), partition(leader="*", follower="*"), partition()
    made.sent(moved, MEGABYTE)
    made.fetched(moved, memoryview(MEGABYTE))
    made.update(BrokerConfig(leader_replication_throttled_rate=1, follower_replication_throttled_rate=1))
    made.sent(settled, MEGABYTE)
    made.fetched(settled, memoryview(MEGABYTE))
    moved.isr = [2]
    assert (made.leader_waits(moved, 3), made.follower_wait_ms(moved)) == (False, 0)


class Throttled(Copy):
    def __init__(self, index, text):
        super().__init__(index)
        self.node_id, self.isr = 1, [2]
        self.config = SimpleNamespace(follower_throttled_replicas=text)


def test_a_throttled_partition_rests_and_its_neighbour_goes_on():
    follower = Follower()
    follower.quotas.update(BrokerConfig(follower_replication_throttled_rate=10))
    held, free = Throttled(0, "0:1"), Throttled(1, "0:1")
    for each in (held, free):
        follower.fetchers.follow(each)
    follower.fetchers.wake()
    for turn in range(3):
        _, request, _, done = follower.take(LONG_LANE)
        assert set(asked_for(request)) == {0, 1} if turn == 0 else {1}
        done(fetch_answer([data(index, records=memoryview(bytes(1_000))) for index in asked_for(request)]))
    assert (held.log.end_offset, free.log.end_offset) == (1_000, 3_000)
    follower.clock.advance(999)
    follower.timer.advance_clock()
    assert follower.lanes() == [LONG_LANE] and 0 not in asked_for(follower.sent[0][1])
    follower.clock.advance(100_000)  # the windows are empty again
    follower.timer.advance_clock()
    assert asked_for(follower.take(SHORT_LANE)[1])[0][0] == 1_000


def test_when_everything_is_throttled_a_timer_asks_again():
    follower = Follower()
    follower.quotas.update(BrokerConfig(follower_replication_throttled_rate=10))
    follower.fetchers.follow(Throttled(0, "*"))
    follower.fetchers.wake()
    follower.take(LONG_LANE)[3](fetch_answer([data(0, records=memoryview(bytes(1_000)))]))
    assert follower.sent == []
    for _ in range(8):
        follower.clock.advance(1_000)
        follower.timer.advance_clock()
        assert follower.sent == []
    follower.quotas.update(BrokerConfig())
    follower.clock.advance(1_000)
    follower.timer.advance_clock()
    assert set(asked_for(follower.take(LONG_LANE)[1])) == {0}


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_move_is_held_at_its_rate_and_goes_on_without_it(side, tmp_path):
    """One answer may exceed the rate; at a byte a second the next one does not come."""
    with EmbeddedCluster(brokers=2, data_dir=tmp_path, config={"replica.fetch.max.bytes": 100_000}) as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", replica_assignments={0: [1]})]).check()
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for _ in range(10):
                    producer.send("t", bytes(90_000), partition=0)
            throttled = {f"{side}.replication.throttled.replicas": "0:1" if side == "leader" else "0:2"}
            rate = {f"{side}.replication.throttled.rate": 1}
            admin.alter_configs({("topic", "t"): throttled, ("broker", "1"): rate, ("broker", "2"): rate}).check()
            admin.alter_partition_reassignments({("t", 0): [1, 2]}).check()
            state = brokers_of(cluster)[1 if side == "leader" else 2].state
            quota = getattr(state.throttled_replication, side)
            until(lambda: quota.wait_ms(state.clock.now_ms()) > 0)
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:  # who writes does not wait for it
                producer.send("t", b"more", partition=0).result(PATIENCE_S)
            assert 1 <= cluster.end_offset("t", 0, 2) < 10 and cluster.isr("t", 0) == [1]
            admin.alter_configs({("broker", each): dict.fromkeys(rate) for each in "12"}).check()
            until(lambda: sorted(cluster.isr("t", 0)) == [1, 2])
        assert cluster.end_offset("t", 0, 2) == 11
