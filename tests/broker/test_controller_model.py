"""The controller under random operations: what must hold after each of them, and that its log makes the same cluster again."""

from collections import Counter

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_controller import Stage

from kafkacore import protocol as p
from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.controller import LocalControllerLink
from kafkacore.errors import Code
from kafkacore.protocol.metadata_log import decode_record, encode_record
from kafkacore.timer import LoopTimer
from kafkacore.types import Node

NODES = range(1, 5)
TOPICS = ("a", "b")
DIRECTORIES = {node: [bytes([node, nth] * 8) for nth in (1, 2)] for node in NODES}


def contents(image):
    """All that an image says, but for whom it tells."""
    return {name: value for name, value in vars(image).items() if name not in ("listeners", "config", "cluster_id")}


class Cluster(RuleBasedStateMachine):
    """Brokers come, die, hang, shut down and come back; leaders wish for ISRs; topics are made, moved, elected for and deleted."""

    def __init__(self):
        super().__init__()
        self.stage = Stage(brokers=3)
        self.follower = ClusterImage(self.stage.config, "cluster")
        self.link = LocalControllerLink(
            self.stage.host, 9, self.follower, LoopTimer(clock=self.stage.clock), lambda message: message()
        )  # a broker that never registers, only follows
        self.seen = {}

    # ---- operations

    def partition(self, data):
        parts = [(topic, index) for topic in self.stage.image.topics.values() for index in range(len(topic.partitions))]
        assume(parts)
        return data.draw(st.sampled_from(parts), label="partition")

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 3), replicas=st.integers(1, 4), unclean=st.booleans())
    def create(self, name, partitions, replicas, unclean):
        self.stage.create(name, partitions, replicas, configs={"unclean.leader.election.enable": str(unclean).lower()})

    @rule(name=st.sampled_from(TOPICS))
    def delete(self, name):
        self.stage.ask(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=name)]))

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 5))
    def grow(self, name, count):
        wanted = p.CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.stage.ask(p.CreatePartitionsRequest(topics=[wanted]))

    @rule(node=st.sampled_from(NODES))
    def start(self, node):
        self.stage.register(node, log_dirs=DIRECTORIES[node])
        if node in self.stage.epochs:
            self.stage.beat(node)

    @rule(node=st.sampled_from(NODES), which=st.integers(0, 1))
    def lose_a_directory(self, node, which):
        assume(node in self.stage.epochs)
        self.stage.beat(node, offline_log_dirs=[DIRECTORIES[node][which]])

    @rule(data=st.data(), which=st.integers(0, 1))
    @precondition(lambda self: self.stage.image.topics)
    def say_where_a_replica_lies(self, data, which):
        topic, index = self.partition(data)
        node = data.draw(st.sampled_from(topic.partitions[index].replicas), label="node")
        before = topic.partitions[index]
        wanted = p.AssignedTopic(topic_id=topic.topic_id, partitions=[p.AssignedPartition(partition_index=index)])
        directory = p.AssignedDirectory(id=DIRECTORIES[node][which], topics=[wanted])
        epoch = self.stage.epochs.get(node, -1)
        answer = self.stage.ask(p.AssignReplicasToDirsRequest(broker_id=node, broker_epoch=epoch, directories=[directory]))
        now = topic.partitions[index]
        if answer.error_code:
            assert now == before
        else:
            assert now.directory(node) == DIRECTORIES[node][which]
            assert [now.directory(other) for other in now.replicas if other != node] == [
                before.directory(other) for other in now.replicas if other != node
            ]

    @rule(node=st.sampled_from(NODES), behind=st.booleans(), fence=st.booleans())
    def beat(self, node, behind, fence):
        assume(node in self.stage.epochs)
        self.stage.beat(node, offset=0 if behind else None, want_fence=fence)

    @rule(node=st.sampled_from(NODES))
    def shut_down(self, node):
        assume(node in self.stage.epochs)
        self.stage.beat(node, want_shut_down=True)

    @rule(node=st.sampled_from(NODES))
    def lose(self, node):
        assume(node in self.stage.epochs)
        self.stage.lose(node)

    @rule(node=st.sampled_from(NODES))
    def forget(self, node):
        self.stage.ask(p.UnregisterBrokerRequest(broker_id=node))

    @rule(ms=st.sampled_from([1_000, 5_000, 9_000]))
    def wait(self, ms):
        self.stage.clock.advance(ms)
        self.stage.host.do_what_is_due()

    @rule(seconds=st.sampled_from([1, 300]))
    def elections_that_nobody_asks_for(self, seconds):
        self.stage.clock.advance(seconds * 1000)
        for session in self.stage.host.controller.state.sessions.values():  # nobody is silent for so long
            session.last_contact_ms = self.stage.clock.now_ms()
        self.stage.host.do_what_is_due()
        if seconds == 300:
            image = self.stage.image
            for topic in image.topics.values():
                for part in topic.partitions:
                    first = part.replicas[0]
                    assert part.leader == first or not (first in part.isr and image.may_lead(first, part))
                    if topic.config.unclean_leader_election_enable and part.leader == -1:
                        assert not any(image.may_lead(node, part) for node in part.replicas)

    @rule(data=st.data(), version=st.sampled_from([2, 3]), stale=st.integers(-1, 1))
    @precondition(lambda self: self.stage.image.topics)
    def alter_isr(self, data, version, stale):
        topic, index = self.partition(data)
        part = topic.partitions[index]
        assume(part.leader > 0)
        isr = data.draw(st.permutations(part.replicas), label="isr")[: data.draw(st.integers(1, len(part.replicas)), label="size")]
        asked = p.AlterPartitionRequestPartition(
            partition_index=index,
            leader_epoch=part.leader_epoch,
            partition_epoch=part.partition_epoch + stale,
            **({"new_isr": isr} if version < 3 else {"new_isr_with_epochs": [p.IsrBrokerState(broker_id=node) for node in isr]}),
        )
        wanted = p.AlterPartitionRequestTopic(topic_id=topic.topic_id, partitions=[asked])
        request = p.AlterPartitionRequest(broker_id=part.leader, broker_epoch=self.stage.epochs[part.leader], topics=[wanted])
        (answer,) = self.stage.ask(request, version).topics[0].partitions
        now = topic.partitions[index]
        if answer.error_code == Code.NONE:
            assert (answer.leader_id, answer.leader_epoch, answer.isr) == (now.leader, now.leader_epoch, now.isr)
            assert answer.partition_epoch == now.partition_epoch and stale == 0
        elif answer.error_code != Code.NEW_LEADER_ELECTED:
            assert now == part

    @rule(data=st.data())
    @precondition(lambda self: self.stage.image.topics)
    def reassign(self, data):
        topic, index = self.partition(data)
        replicas = data.draw(st.none() | st.lists(st.sampled_from(NODES), unique=True, max_size=3), label="replicas")
        self.stage.reassign(replicas, index, topic.name)

    @rule(data=st.data(), kind=st.sampled_from([0, 1]), everything=st.booleans())
    @precondition(lambda self: self.stage.image.topics)
    def elect(self, data, kind, everything):
        topic, index = self.partition(data)
        self.stage.elect(kind, None if everything else [(topic.name, (index,))])

    @rule()
    def restart_of_the_controller(self):
        """Its image is made again, from a snapshot that went through bytes."""
        image = self.stage.image
        copy = ClusterImage(self.stage.config, "cluster")
        copy.apply([decode_record(encode_record(record)) for record in image.records()], image.next_offset)
        assert contents(copy) == contents(image)

    # ---- what must hold

    @invariant()
    def a_follower_of_the_log_has_the_same_image(self):
        assert contents(self.follower) == contents(self.stage.image)

    @invariant()
    def counts_are_those_of_a_walk(self):
        image = self.stage.image
        partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
        assert image.led == Counter(partition.leader for partition in partitions)
        assert image.in_sync == Counter(node for partition in partitions for node in partition.isr)

    @invariant()
    def partitions_are_sane(self):
        image = self.stage.image
        for topic in image.topics.values():
            for index, part in enumerate(topic.partitions):
                where = (topic.topic_id, index)
                assert len(part.directories) == len(part.replicas)
                assert part.replicas and len(set(part.replicas)) == len(part.replicas)
                assert part.isr and len(set(part.isr)) == len(part.isr) and set(part.isr) <= set(part.replicas)
                assert set(part.adding_replicas) <= set(part.replicas) and set(part.removing_replicas) <= set(part.replicas)
                if part.leader == -1:
                    assert not any(image.may_lead(node, part) for node in part.isr), "somebody in sync could lead"
                else:
                    assert part.leader in part.isr and image.may_lead(part.leader, part)
                    assert all(image.is_active(node) for node in part.isr)
                before = self.seen.get(where)
                if before is not None and before != part:
                    self.follows(before, part, topic)
                self.seen[where] = part

    def follows(self, before, now, topic):
        """A partition after one operation."""
        assert now.partition_epoch > before.partition_epoch and now.leader_epoch >= before.leader_epoch
        if now.leader != before.leader:
            assert now.leader_epoch > before.leader_epoch
        clean = now.leader == -1 or now.leader in before.isr
        if now.leader_epoch > before.leader_epoch and not clean:
            # An operation may be several steps: an ISR change lets a replica in, and completes a reassignment that moves the leader.
            assert (
                now.leader in before.adding_replicas
                or now.leader_recovery_state == 1
                or topic.config.unclean_leader_election_enable
                or (before.leader == -1)
            ), (before, now)

    @invariant()
    def the_nodes_are_the_unfenced_brokers(self):
        image = self.stage.image
        assert image.nodes == {broker.id: Node(broker.id, "h", 9000 + broker.id) for broker in image.brokers.values() if not broker.fenced}


Cluster.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestCluster = Cluster.TestCase
