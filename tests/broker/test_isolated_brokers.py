"""Brokers cut off from the others, the clients and the controller: who leads, what is acknowledged, what is truncated, what ends."""

import threading

import pytest

import kafkacore.broker.server
import kafkacore.testing.members
from kafkacore.errors import Code, KafkaTimeoutError, UsageError
from kafkacore.testing import CLIENTS, CONTROLLER, EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.inside import brokers_of, controller_of, thread_of
from tests.kit.replicas import address_of, followers_of, in_step, read_numbers, write_numbers
from tests.kit.waiting import until
from tests.kit.wire import Wire, produce_request

BROKERS = (1, 2, 3)
SESSION_MS = 1_500
QUICK = {
    "broker.session.timeout.ms": SESSION_MS,
    "broker.heartbeat.interval.ms": 200,
    "replica.lag.time.max.ms": 600,
    "replica.fetch.wait.max.ms": 100,
    "min.insync.replicas": 2,
}
PATIENCE_S = 60


@pytest.fixture
def cluster():
    with EmbeddedCluster(brokers=3, config=QUICK, faults=True) as made:
        made.create_topic("t", partitions=1)
        yield made


def wait(cluster, condition):
    """Until something is true of the controller's image; its changes wake this."""
    assert controller_of(cluster).wait_until(lambda state: condition(state.image), PATIENCE_S)


def new_leader(cluster, old):
    wait(cluster, lambda image: image.partition("t", 0).leader not in (-1, *old))
    return cluster.leader("t", 0)


def known_to(cluster, broker):
    """What a broker itself knows of partition 0."""
    member = brokers_of(cluster)[broker]
    return member.call(lambda: (member.cluster.partition("t", 0).leader, sorted(member.cluster.partition("t", 0).isr)))


def all_in_sync(cluster):
    wait(cluster, lambda image: sorted(image.partition("t", 0).isr) == [*BROKERS])
    until(lambda: in_step(cluster))


def test_an_isolated_leader_is_fenced_and_does_not_know_it(cluster):
    write_numbers(cluster, 10)
    old = cluster.leader("t", 0)
    cluster.network.isolate(old)
    new_leader(cluster, [old])
    wait(cluster, lambda image: old not in image.nodes and old not in image.partition("t", 0).isr)
    assert known_to(cluster, old) == (old, [*BROKERS])  # no metadata record has reached it
    assert write_numbers(cluster, 10, first=10, request_timeout_ms=2_000) == list(range(10, 20))  # it may begin with the one cut off
    cluster.create_topic("u", partitions=1)  # which does not wait for a broker that cannot learn of it
    assert not brokers_of(cluster)[old].call(lambda: "u" in brokers_of(cluster)[old].cluster.topics)
    cluster.network.heal()
    all_in_sync(cluster)
    until(lambda: known_to(cluster, old) == (cluster.leader("t", 0), [*BROKERS]))  # a busy machine may fence others, too
    assert brokers_of(cluster)[old].call(lambda: "u" in brokers_of(cluster)[old].cluster.topics)
    assert read_numbers(cluster, 20) == list(range(20))


def test_an_isolated_leader_cannot_shrink_the_isr_and_its_tail_is_truncated(cluster):
    write_numbers(cluster, 10)
    old = cluster.leader("t", 0)
    for peer in (CONTROLLER, *(broker for broker in BROKERS if broker != old)):
        cluster.network.isolate(old, peer)  # its clients still reach it
    with Wire(address_of(cluster, old), timeout_s=PATIENCE_S) as wire:
        waiting = wire.send(produce_request(batch([b"lost"] * 3))._replace(timeout_ms=2 * SESSION_MS), 9)
        new_leader(cluster, [old])
        got, answer = wire.receive(type(produce_request(b"")), 9)
        assert (got, answer.responses[0].partition_responses[0].error_code) == (waiting, Code.REQUEST_TIMED_OUT)
        # It is still leader by what it knows, so acks=1 is acknowledged, and lost, as in Kafka.
        answer = wire.ask(produce_request(batch([b"lost"] * 2), acks=1), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 13)
    assert known_to(cluster, old) == (old, [*BROKERS])
    assert (cluster.high_watermark("t", 0, old), cluster.end_offset("t", 0, old)) == (10, 15)
    cluster.network.isolate(old)
    assert write_numbers(cluster, 1, first=10, request_timeout_ms=2_000) == [10]
    cluster.network.heal()
    all_in_sync(cluster)
    assert cluster.end_offset("t", 0, old) == 11
    assert read_numbers(cluster, 11) == list(range(11))


def test_only_the_controller_out_of_reach(cluster):
    follower = followers_of(cluster)[0]
    cluster.network.isolate(follower, CONTROLLER)
    wait(cluster, lambda image: follower not in image.nodes and follower not in image.partition("t", 0).isr)
    assert write_numbers(cluster, 5, request_timeout_ms=2_000) == list(range(5))  # it may begin with the one cut off
    until(lambda: cluster.end_offset("t", 0, follower) == 5)  # it goes on to copy from the leader that it knows
    cluster.network.heal(follower, CLIENTS)  # another path
    assert cluster.network.is_cut(follower, CONTROLLER)
    cluster.network.heal(follower, CONTROLLER)
    all_in_sync(cluster)


def test_half_open_between_broker_and_controller(cluster):
    follower = followers_of(cluster)[0]
    cluster.network.isolate(follower, CONTROLLER, direction="to")  # heartbeats arrive, their answers and the log do not
    cluster.create_topic("u", partitions=1)
    assert not brokers_of(cluster)[follower].call(lambda: "u" in brokers_of(cluster)[follower].cluster.topics)
    # One heartbeat at a time: the next waits for the answer of the last, so the session expires all the same.
    wait(cluster, lambda image: follower not in image.nodes)
    cluster.network.heal()
    all_in_sync(cluster)
    until(lambda: brokers_of(cluster)[follower].call(lambda: "u" in brokers_of(cluster)[follower].cluster.topics))


def test_a_delay_holds_between_broker_and_controller_too(cluster):
    cluster.network.delay(50, 1, CONTROLLER)
    cluster.create_topic("u", partitions=1)
    assert brokers_of(cluster)[1].call(lambda: "u" in brokers_of(cluster)[1].cluster.topics)  # it was waited for
    cluster.network.trickle(50, 2, CONTROLLER)
    cluster.network.throttle(100_000, 3, CONTROLLER)
    cluster.create_topic("v", partitions=1)
    assert cluster.topics() == {"t": 1, "u": 1, "v": 1}
    with pytest.raises(UsageError, match="CLIENTS and CONTROLLER"):
        cluster.network.isolate(1, "controllers")


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_cluster_whose_brokers_are_isolated_can_be_closed(monkeypatch, when):
    monkeypatch.setattr(kafkacore.broker.server, "CONTROLLED_SHUTDOWN_MAX_MS", 300)
    cluster = EmbeddedCluster(brokers=3, config=QUICK, faults=True).start()
    cluster.create_topic("t", partitions=3)
    members = brokers_of(cluster)
    if when == "before":
        cluster.network.isolate()
        cluster.close()
    else:
        closing = threading.Thread(target=cluster.close)
        asked = threading.Event()
        begin = members[1]._begin_to_stop
        monkeypatch.setattr(members[1], "_begin_to_stop", lambda: (asked.set(), begin()))
        closing.start()
        assert asked.wait(PATIENCE_S)
        cluster.network.isolate(1)
        cluster.network.isolate(2, CONTROLLER)
        closing.join(PATIENCE_S)
        assert not closing.is_alive()
    assert not any(member.running for member in members.values())
    assert thread_of(cluster.network) is None


def test_a_broker_that_starts_while_cut_off_comes_up_when_the_network_heals(cluster, monkeypatch):
    write_numbers(cluster, 5)
    broker = cluster.leader("t", 0)
    cluster.kill_broker(broker)
    cluster.network.isolate(broker, CONTROLLER)
    with monkeypatch.context() as patched:
        patched.setattr(kafkacore.testing.members, "START_TIMEOUT_S", 1)
        with pytest.raises(KafkaTimeoutError, match=f"broker {broker} did not come up"):
            cluster.start_broker(broker)
    # It is in bootstrap_servers and its port is open, but what it knows is of an earlier life: it serves nothing, as in Kafka.
    with Wire(address_of(cluster, broker), timeout_s=PATIENCE_S) as wire:
        sent = wire.send(produce_request(batch(), acks=1), 9)
        # A producer that begins with this broker turns to another one when its time is up.
        assert write_numbers(cluster, 5, first=5, request_timeout_ms=1_000) == list(range(5, 10))
        cluster.network.heal()
        got, answer = wire.receive(type(produce_request(b"")), 9)
    assert (got, answer.responses[0].partition_responses[0].error_code) == (sent, Code.NOT_LEADER_OR_FOLLOWER)
    all_in_sync(cluster)
    assert read_numbers(cluster, 10) == list(range(10))


def test_the_controller_cut_off_from_all_brokers_comes_back(cluster):
    cluster.network.isolate(peer=CONTROLLER)
    wait(cluster, lambda image: not image.nodes)
    cluster.network.heal(peer=CONTROLLER)
    all_in_sync(cluster)
    assert write_numbers(cluster, 3) == [0, 1, 2]


def test_a_connection_that_breaks_is_no_broker_that_died():
    """As in Kafka the end of its session fences a broker, not that of its connection to the controller."""
    with EmbeddedCluster(brokers=2, faults=True) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)

        def epochs():
            return controller_of(cluster).read(lambda image: [image.partition("t", each).leader_epoch for each in (0, 1)])

        before = epochs()
        for name in "uv":
            cluster.network.cut(None, CONTROLLER)
            cluster.create_topic(name)  # every broker knows of it: each has connected again
        assert epochs() == before
