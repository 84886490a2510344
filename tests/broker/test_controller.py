"""What the controller decides: topics, placement, elections, ISRs, reassignments, registrations, heartbeats. No threads, no sockets."""

import dataclasses
import random

import pytest
from controlling import topic_request

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.cluster import BrokerRegistration, ClusterImage, ImageListener, PartitionRegistration
from kafkacore.broker.controller import ControllerHost, brokers
from kafkacore.broker.controller.brokers import PRODUCER_ID_BLOCK
from kafkacore.broker.controller.elections import Election, PartitionChangeBuilder, Reassignment, revert
from kafkacore.broker.controller.placement import ReplicaPlacer
from kafkacore.broker.controller.state import ControllerState
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, UsageError
from kafkacore.protocol.metadata_log import BrokerEndpoint, PartitionChangeRecord
from tests.kit.rows import each_row


def isr_request(node, epoch, *wishes):
    """What a leader asks for: (topic, index, ISR) of each partition, which it knows as the image does."""
    topics = []
    for topic, index, isr in wishes:
        known = topic.partitions[index]
        asked = p.AlterPartitionRequestPartition(
            partition_index=index,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            new_isr_with_epochs=[p.IsrBrokerState(broker_id=each) for each in isr],
        )
        topics.append(p.AlterPartitionRequestTopic(topic_id=topic.topic_id, partitions=[asked]))
    return p.AlterPartitionRequest(broker_id=node, broker_epoch=epoch, topics=topics)


class Stage:
    """A controller, a clock moved by hand, and brokers that do what a test says."""

    def __init__(self, brokers=3, directory=None, **config):
        self.clock = ManualClock()
        self.config = BrokerConfig(**config)
        state = ControllerState(ClusterImage(self.config, "cluster"), self.config, ReplicaPlacer(random.Random(1)))
        self.host = ControllerHost(self.config, "cluster", directory=directory, clock=self.clock, state=state)
        self.epochs, self.lives = {}, 0
        for node in range(1, brokers + 1):
            self.start(node)

    @property
    def image(self):
        return self.host.controller.image

    def ask(self, request, version=None):
        return self.host.submit(request, request.MAX_VERSION if version is None else version)[0]

    def register(self, node, incarnation=None, rack=None, **changes):
        if incarnation is None:
            self.lives += 1
            incarnation = self.lives.to_bytes(16, "big")
        fields = {
            "cluster_id": "cluster",
            "listeners": [p.RegistrationListener(name="PLAINTEXT", host="h", port=9000 + node)],
            "features": [
                p.RegistrationFeature(name=name, min_supported_version=0, max_supported_version=100)
                for name in ("metadata.version", "group.version", "transaction.version")
            ],
            **changes,
        }
        answer = self.ask(p.BrokerRegistrationRequest(broker_id=node, incarnation_id=incarnation, rack=rack, **fields))
        if not answer.error_code:
            self.epochs[node] = answer.broker_epoch
        return answer

    def beat(self, node, offset=None, epoch=None, **wishes):
        return self.ask(
            p.BrokerHeartbeatRequest(
                broker_id=node,
                broker_epoch=self.epochs[node] if epoch is None else epoch,
                current_metadata_offset=self.image.next_offset if offset is None else offset,
                **wishes,
            )
        )

    def start(self, node, **fields):
        assert self.register(node, **fields).error_code == 0
        assert not self.beat(node).is_fenced

    def lose(self, node):
        self.host.broker_lost(node, self.epochs[node])

    def create(self, name="t", partitions=-1, replicas=-1, assignments=(), configs=None, version=7):
        topic = p.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[p.CreatableReplicaAssignment(partition_index=nth, broker_ids=nodes) for nth, nodes in enumerate(assignments)],
            configs=[p.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        return self.ask(p.CreateTopicsRequest(topics=[topic]), version).topics[0]

    def part(self, name="t", index=0):
        return self.image.partition(name, index)

    def seen(self, name="t", index=0):
        """Leader and ISR."""
        return self.part(name, index).leader, self.part(name, index).isr

    def alter_isr(self, isr, node=None, topic_id=None, index=0, version=3, broker_epochs=None, recovery=0, **epochs):
        part = self.part()
        node = part.leader if node is None else node
        asked = p.AlterPartitionRequestPartition(
            partition_index=index,
            leader_epoch=epochs.get("leader_epoch", part.leader_epoch),
            partition_epoch=epochs.get("partition_epoch", part.partition_epoch),
            leader_recovery_state=recovery,
            **(
                {"new_isr": isr}
                if version < 3
                else {
                    "new_isr_with_epochs": [
                        p.IsrBrokerState(broker_id=each, broker_epoch=(broker_epochs or {}).get(each, -1)) for each in isr
                    ]
                }
            ),
        )
        topic = p.AlterPartitionRequestTopic(topic_id=topic_id or self.image.topics["t"].topic_id, partitions=[asked])
        epoch = epochs.get("broker_epoch", self.epochs.get(node, -1))
        answer = self.ask(p.AlterPartitionRequest(broker_id=node, broker_epoch=epoch, topics=[topic]), version)
        return answer if answer.error_code else answer.topics[0].partitions[0]

    def reassign(self, replicas, index=0, name="t", version=1, may_resize=True):
        wanted = p.ReassignablePartition(partition_index=index, replicas=replicas)
        resize = {} if version < 1 else {"allow_replication_factor_change": may_resize}
        request = p.AlterPartitionReassignmentsRequest(topics=[p.ReassignableTopic(name=name, partitions=[wanted])], **resize)
        return self.ask(request, version).responses[0].partitions[0].error_code

    def ongoing(self, topics=None):
        found = self.ask(p.ListPartitionReassignmentsRequest(topics=topics)).topics
        return {(t.name, q.partition_index): (q.replicas, q.adding_replicas, q.removing_replicas) for t in found for q in t.partitions}

    def elect(self, kind, partitions=((("t", (0,)),)), version=2):
        wanted = None if partitions is None else [p.TopicPartitions(topic=name, partitions=list(each)) for name, each in partitions]
        found = self.ask(p.ElectLeadersRequest(election_type=kind, topic_partitions=wanted), version).replica_election_results
        return {(each.topic, q.partition_id): q.error_code for each in found for q in each.partition_result}


# ---- topics


def test_defaults_come_from_the_settings():
    stage = Stage(num_partitions=4, default_replication_factor=2)
    made = stage.create()
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 4, 2)
    assert made.topic_id == stage.image.topic("t").topic_id != bytes(16)
    assert {each.name: each.value for each in made.configs}["max.message.bytes"] == "1048588"


@each_row(
    ("arguments", "code"),
    [
        *(({"name": name}, Code.INVALID_TOPIC_EXCEPTION) for name in ("", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\n")),
        ({"name": "old"}, Code.TOPIC_ALREADY_EXISTS),
        ({"name": "o.d"}, Code.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, Code.INVALID_REQUEST),
        ({"partitions": 0}, Code.INVALID_PARTITIONS),
        ({"partitions": -2}, Code.INVALID_PARTITIONS),
        ({"partitions": 2**31 - 1}, Code.POLICY_VIOLATION),
        ({"replicas": 0}, Code.INVALID_REPLICATION_FACTOR),
        ({"replicas": -2}, Code.INVALID_REPLICATION_FACTOR),
        ({"replicas": 4}, Code.INVALID_REPLICATION_FACTOR),
        ({"assignments": [[1]], "partitions": 1}, Code.INVALID_REQUEST),
        ({"assignments": [[1]], "replicas": 1}, Code.INVALID_REQUEST),
        ({"assignments": [[9]]}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [[1, 1]]}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [[]]}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [[1], [1, 2]]}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"configs": {"retention.ms": "soon"}}, Code.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, Code.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused_and_leave_nothing(arguments, code):
    stage = Stage()
    stage.create("old", 1)
    stage.create("o_d", 1)
    before = stage.image.next_offset
    result = stage.create(**{"name": "t", **arguments})
    assert (result.error_code, bool(result.error_message)) == (code, True)
    assert stage.image.next_offset == before


def test_the_partitions_that_an_assignment_names_are_all_from_zero_on():
    stage = Stage()
    for indexes, code in (([1, 0], 0), ([0, 0], Code.INVALID_REPLICA_ASSIGNMENT), ([0, 2], Code.INVALID_REPLICA_ASSIGNMENT)):
        assignments = [p.CreatableReplicaAssignment(partition_index=index, broker_ids=[1 + index]) for index in indexes]
        topic = p.CreatableTopic(name=f"t{code}", num_partitions=-1, replication_factor=-1, assignments=assignments)
        assert stage.ask(p.CreateTopicsRequest(topics=[topic])).topics[0].error_code == code
    assert [each.replicas for each in stage.image.topic("t0").partitions] == [[1], [2]]


def test_a_request_makes_so_many_partitions_and_no_more():
    stage = Stage()
    for counts, codes in (([10_000], [0]), ([10_001], [Code.POLICY_VIOLATION]), ([6_000, 4_000, 1], [0, 0, Code.POLICY_VIOLATION])):
        topics = [p.CreatableTopic(name=f"t{nth}", num_partitions=count, replication_factor=1) for nth, count in enumerate(counts)]
        found = stage.ask(p.CreateTopicsRequest(topics=topics, validate_only=True)).topics
        assert [(each.error_code, each.num_partitions) for each in found] == [
            (code, -1 if code else count) for code, count in zip(codes, counts, strict=True)
        ]
    stage.create("t", 1, 1)
    more = [p.CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in (("t", 10_001), ("u", 2), ("u", 2))]
    found = stage.ask(p.CreatePartitionsRequest(topics=more, validate_only=True)).results
    assert {each.name: each.error_code for each in found} == {"t": 0, "u": Code.INVALID_REQUEST}
    too_many = [p.CreatePartitionsTopic(name="t", count=10_002, assignments=None)]
    assert stage.ask(p.CreatePartitionsRequest(topics=too_many)).results[0].error_code == Code.POLICY_VIOLATION


def test_one_bad_topic_does_not_spoil_the_others_and_one_named_twice_is_refused():
    stage = Stage()
    topics = [p.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "b", "c d")]
    answers = stage.ask(p.CreateTopicsRequest(topics=topics)).topics
    assert {each.name: each.error_code for each in answers} == {
        "a": 0,
        "b": Code.INVALID_REQUEST,
        "c d": Code.INVALID_TOPIC_EXCEPTION,
    }
    assert list(stage.image.topics) == ["a"]
    checked = stage.ask(p.CreateTopicsRequest(topics=[topics[1]], validate_only=True)).topics[0]
    assert (checked.error_code, list(stage.image.topics)) == (0, ["a"])


def test_partitions_can_be_added_never_taken():
    stage = Stage()
    stage.create(partitions=2, replicas=2)

    def grow(count, assignments=None, validate_only=False, name="t"):
        given = None if assignments is None else [p.CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
        wanted = p.CreatePartitionsTopic(name=name, count=count, assignments=given)
        return stage.ask(p.CreatePartitionsRequest(topics=[wanted], validate_only=validate_only)).results[0].error_code

    assert grow(5, validate_only=True) == 0 and len(stage.image.topics["t"].partitions) == 2
    assert (grow(3), grow(4, [[3, 1]])) == (0, 0)
    assert (stage.part(index=3).replicas, len(stage.part(index=2).replicas)) == ([3, 1], 2)
    for wrong, code in [
        ((4,), Code.INVALID_PARTITIONS),
        ((0,), Code.INVALID_PARTITIONS),
        ((20_000,), Code.POLICY_VIOLATION),
        ((5, [[1]]), Code.INVALID_REPLICA_ASSIGNMENT),
        ((5, [[1, 2], [2, 3]]), Code.INVALID_REPLICA_ASSIGNMENT),
        ((5, [[1, 9]]), Code.INVALID_REPLICA_ASSIGNMENT),
    ]:
        assert grow(*wrong) == code
    assert grow(9, name="u") == Code.UNKNOWN_TOPIC_OR_PARTITION


@each_row("version", range(1, 7))
def test_topics_are_deleted_by_name_or_id(version):
    stage = Stage()
    topic_id = stage.create(partitions=1, replicas=1).topic_id
    stage.create("u", 1, 1)

    def delete(*wanted, version=version):
        if version >= 6:
            request = p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=name, topic_id=each) for name, each in wanted])
        else:
            request = p.DeleteTopicsRequest(topic_names=[name for name, _ in wanted])
        return [each.error_code for each in stage.ask(request, version).responses]

    none = bytes(16)
    assert delete(("t", none), ("t", none)) == [Code.INVALID_REQUEST]
    assert delete(("t", none), ("x", none)) == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert list(stage.image.topics) == ["u"]
    if version >= 6:
        assert delete((None, topic_id)) == [Code.UNKNOWN_TOPIC_ID]
        assert delete(("u", topic_id), (None, none)) == [Code.INVALID_REQUEST] * 2
        other = stage.image.topics["u"].topic_id
        assert set(delete(("u", none), (None, other))) == {Code.INVALID_REQUEST}
        assert delete((None, other)) == [0]
    closed = Stage(delete_topic_enable=False)
    closed.create(partitions=1, replicas=1)
    stage = closed
    assert delete(("t", none)) == [Code.TOPIC_DELETION_DISABLED if version >= 3 else Code.INVALID_REQUEST]


# ---- placement


def test_leaders_and_replicas_are_spread_evenly():
    stage = Stage()
    stage.create(partitions=30, replicas=2)
    parts = stage.image.topic("t").partitions
    assert [sum(part.leader == node for part in parts) for node in (1, 2, 3)] == [10, 10, 10]
    assert [sum(node in part.replicas for part in parts) for node in (1, 2, 3)] == [20, 20, 20]
    assert all(len(set(part.replicas)) == 2 and part.isr == part.replicas and part.leader == part.replicas[0] for part in parts)


def test_replicas_of_a_partition_stand_in_different_racks():
    stage = Stage(brokers=0)
    for node, rack in enumerate("aabbcc", 1):
        stage.start(node, rack=rack)
    stage.create(partitions=12, replicas=3)
    rack_of = dict(enumerate("aabbcc", 1))
    for part in stage.image.topic("t").partitions:
        assert {rack_of[node] for node in part.replicas} == {"a", "b", "c"}


class Still(random.Random):
    """Shuffles nothing, and counts the lists that it is given."""

    def __init__(self):
        super().__init__(1)
        self.shuffled = []

    def shuffle(self, x):
        self.shuffled.append(len(x))


def test_placement_goes_round_the_racks_and_the_brokers_in_them():
    def broker(node, rack, fenced=False):
        return BrokerRegistration(node, 0, bytes(16), (), {}, rack, fenced)

    alive = [broker(0, "a"), broker(1, "a"), broker(3, "b"), broker(2, "b")]
    still = Still()
    assert ReplicaPlacer(still).place(alive, 5, 3) == [[1, 3, 0], [2, 0, 3], [1, 3, 0], [2, 0, 3], [1, 3, 0]]
    assert still.shuffled == [2, 0, 2, 0, 2, 2]  # the rings of each rack, the racks, and these again after four partitions
    fenced = [broker(4, "a", True), broker(5, None, True), broker(6, "b", True)]
    assert ReplicaPlacer(Still()).place([*alive, *fenced], 4, 7) == [
        *([1, 3, 0, 2, 5, 4, 6], [0, 2, 1, 3, 5, 4, 6], [3, 1, 2, 0, 6, 5, 4], [0, 2, 1, 3, 5, 4, 6]),
    ]
    assert ReplicaPlacer(Still()).place([broker(1, None), *fenced], 1, 2)[0][0] == 1
    uneven = [broker(0, "a"), broker(1, "b"), broker(2, "b"), broker(3, "b"), broker(4, "c")]
    assert sorted(ReplicaPlacer(Still()).place(uneven, 1, 5)[0]) == [0, 1, 2, 3, 4]
    for given, factor, why in (
        (alive, 0, "must be positive"),
        (alive, 5, "only 4 broker"),
        (fenced, 1, "currently fenced"),
        ([], 1, "only 0"),
    ):
        with pytest.raises(errors.InvalidReplicationFactor, match=why):
            ReplicaPlacer(Still()).place(given, 1, factor)


def test_a_fenced_broker_may_hold_but_not_lead_and_is_not_in_sync():
    stage = Stage()
    stage.lose(3)
    stage.create(partitions=6, replicas=3)
    for part in stage.image.topic("t").partitions:
        assert part.replicas[2] == 3 and sorted(part.isr) == [1, 2] and part.leader in (1, 2)
    assert stage.create("u", assignments=[[3, 1]]).error_code == 0
    assert stage.seen("u") == (1, [1])
    assert stage.create("v", assignments=[[3]]).error_code == Code.INVALID_REPLICA_ASSIGNMENT
    stage.lose(1)
    stage.lose(2)
    assert stage.create("w", 1, 1).error_code == Code.INVALID_REPLICATION_FACTOR


# ---- who leads


def test_a_lost_leader_leaves_the_isr_and_the_next_replica_in_sync_leads():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    stage.lose(1)
    assert (stage.seen(), stage.part().leader_epoch, stage.part().partition_epoch) == ((2, [2, 3]), 1, 1)
    assert stage.part().leader_recovery_state == 0
    stage.lose(3)
    assert (stage.seen(), stage.part().leader_epoch, stage.part().partition_epoch) == ((2, [2]), 1, 2)
    stage.lose(2)  # the last one stays in the ISR: nobody else has everything
    assert (stage.seen(), stage.part().leader_epoch) == ((-1, [2]), 2)
    stage.start(1)
    stage.start(3)
    assert stage.seen() == (-1, [2])
    stage.start(2)
    assert (stage.seen(), stage.part().leader_epoch, stage.part().leader_recovery_state) == ((2, [2]), 3, 0)


def test_an_unclean_election_takes_any_that_lives_where_the_topic_allows_it():
    stage = Stage()
    stage.create(assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    stage.lose(2)
    stage.start(2)
    stage.lose(1)
    assert (stage.seen(), stage.part().leader_recovery_state) == ((2, [2]), 1)
    # while it recovers it cannot take others into the ISR; then it says so
    stage.start(1)
    assert stage.alter_isr([2, 1], recovery=1).error_code == Code.INVALID_REQUEST
    assert stage.alter_isr([2, 1]).error_code == 0
    assert (stage.seen(), stage.part().leader_recovery_state) == ((2, [2, 1]), 0)
    assert stage.alter_isr([2], recovery=1).error_code == Code.INVALID_REQUEST


def test_elections_on_demand():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3], [2, 3, 1]])
    stage.lose(1)
    stage.start(1)
    assert stage.elect(0) == {("t", 0): Code.PREFERRED_LEADER_NOT_AVAILABLE}  # it is not in sync yet
    assert stage.elect(0, [("t", (1, 7)), ("x", (0,))]) == {
        ("t", 1): Code.ELECTION_NOT_NEEDED,
        ("t", 7): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    stage.alter_isr([2, 3, 1])
    epoch = stage.part().leader_epoch
    assert stage.elect(0, None) == {("t", 0): 0}  # those that need none are not named
    assert (stage.seen(), stage.part().leader_epoch, stage.part().leader_recovery_state) == ((1, [2, 3, 1]), epoch + 1, 0)
    assert stage.elect(1) == {("t", 0): Code.ELECTION_NOT_NEEDED}
    for node in (1, 2, 3):
        stage.lose(node)
    assert (stage.seen(), stage.elect(1)) == ((-1, [3]), {("t", 0): Code.ELIGIBLE_LEADERS_NOT_AVAILABLE})
    stage.start(1)
    assert (stage.seen(), stage.elect(0), stage.elect(1)) == ((-1, [3]), {("t", 0): Code.PREFERRED_LEADER_NOT_AVAILABLE}, {("t", 0): 0})
    assert stage.seen() == (1, [1])
    assert stage.ask(p.ElectLeadersRequest(election_type=7, topic_partitions=None)).error_code == Code.INVALID_REQUEST
    assert stage.elect(0, version=0) == {("t", 0): Code.ELECTION_NOT_NEEDED}


def test_elections_are_answered_as_they_were_asked_for():
    stage = Stage()
    stage.create()
    stage.create("u")

    def elect(wanted):
        found = stage.ask(p.ElectLeadersRequest(topic_partitions=wanted)).replica_election_results
        return [(each.topic, [q.partition_id for q in each.partition_result]) for each in found]

    twice = [p.TopicPartitions(topic="t", partitions=[0])] * 2
    assert elect([*twice, p.TopicPartitions(topic="none", partitions=[])]) == [("t", [0]), ("t", [0]), ("none", [])]
    assert elect(None) == [("t", []), ("u", [])]  # all topics, though none needs it
    unknown = stage.ask(p.ElectLeadersRequest(election_type=7, topic_partitions=twice)).replica_election_results
    answers = [(q.partition_id, q.error_code, q.error_message) for each in unknown for q in each.partition_result]
    assert answers == [(0, Code.INVALID_REQUEST, "Unknown election type 7")] * 2


MOVED = {"adding_replicas": [], "removing_replicas": []}
DIRECTORY = b"d" * 16


@each_row(
    ("partition", "alive", "election", "wanted", "changes"),
    [
        ({}, [1, 2, 3], Election.ONLINE, {}, None),
        ({}, [2, 3], Election.ONLINE, {}, {"leader": 2}),
        ({}, [3], Election.ONLINE, {"isr": [2, 3]}, {"leader": 3, "isr": [2, 3]}),
        ({}, [], Election.ONLINE, {"isr": []}, {"leader": -1}),
        ({}, [], Election.UNCLEAN, {"isr": []}, {"leader": -1}),
        ({"isr": [1]}, [2, 3], Election.ONLINE, {"isr": []}, {"leader": -1}),
        ({"isr": [1]}, [2, 3], Election.UNCLEAN, {"isr": []}, {"leader": 2, "isr": [2], "leader_recovery_state": 1}),
        ({"isr": [1], "leader_recovery_state": 1}, [3], Election.UNCLEAN, {"isr": []}, {"leader": 3, "isr": [3]}),
        ({"isr": [1, 3]}, [2, 3], Election.UNCLEAN, {}, {"leader": 3}),  # one in sync is alive
        ({"leader": 2}, [1, 2, 3], Election.PREFERRED, {}, {"leader": 1}),
        ({"leader": 2}, [1, 2, 3], Election.ONLINE, {}, None),
        ({"leader": 2}, [2, 3], Election.PREFERRED, {}, None),
        ({"leader": 2, "isr": [2, 3]}, [1, 2, 3], Election.PREFERRED, {}, None),
        ({"leader": -1, "isr": [2]}, [1, 2], Election.ONLINE, {}, {"leader": 2}),
        ({"leader_recovery_state": 1}, [1], Election.ONLINE, {"recovery_state": 0}, {"leader_recovery_state": 0}),
        ({}, [1], Election.ONLINE, {"directories": {2: DIRECTORY}}, {"directories": [bytes(16), DIRECTORY, bytes(16)]}),
        ({}, [1], Election.ONLINE, {"replicas": [2, 1, 3]}, {"replicas": [2, 1, 3]}),
        ({}, [1], Election.ONLINE, {"replicas": [1, 2, 3, 4]}, {"replicas": [1, 2, 3, 4], "directories": [bytes(16)] * 3 + [DIRECTORY]}),
        # reassignments
        (
            {"replicas": [3, 4, 1, 2], "isr": [1, 2, 3, 4], "adding_replicas": [3, 4], "removing_replicas": [1, 2]},
            [1, 2, 3, 4],
            Election.ONLINE,
            {},
            {"leader": 3, "isr": [3, 4], "replicas": [3, 4], "directories": [bytes(16)] * 2, **MOVED},
        ),
        (
            {"isr": [1, 2, 3], "removing_replicas": [3]},
            [1, 2, 3],
            Election.ONLINE,
            {},
            {"leader": 1, "isr": [1, 2], "replicas": [1, 2], "directories": [bytes(16)] * 2, "removing_replicas": []},
        ),
        ({"isr": [1, 3], "removing_replicas": [3]}, [1, 2, 3], Election.ONLINE, {}, None),  # 2 has to be in sync first
        (
            {"replicas": [1, 2, 4, 3], "isr": [1, 3, 4], "adding_replicas": [4], "removing_replicas": [3]},
            [1, 2, 3, 4],
            Election.ONLINE,
            {},
            {"leader": 1, "isr": [1, 4], "replicas": [1, 2, 4], "directories": [bytes(16)] * 3, **MOVED},
        ),
        ({"isr": [1, 2], "adding_replicas": [3]}, [1, 2, 3], Election.ONLINE, {}, None),
        (
            {"isr": [1, 2], "adding_replicas": [3]},
            [1, 2, 3],
            Election.ONLINE,
            {"isr": [1, 2, 3]},
            {"isr": [1, 2, 3], "adding_replicas": []},
        ),
        ({"leader": 3, "isr": [3], "removing_replicas": [3]}, [1, 2, 3], Election.ONLINE, {}, None),
        # eligible replicas of a Kafka
        (
            {"leader": -1, "isr": [], "elr": [2, 3], "last_known_elr": [1]},
            [1, 3],
            Election.ONLINE,
            {},
            {"leader": 3, "isr": [3], "eligible_leader_replicas": [], "last_known_elr": []},
        ),
        (
            {"leader": -1, "isr": [], "last_known_elr": [2]},
            [2],
            Election.ONLINE,
            {},
            {"leader": 2, "isr": [2], "leader_recovery_state": 1, "last_known_elr": []},
        ),
        ({"leader": -1, "isr": [], "last_known_elr": [2]}, [3], Election.ONLINE, {}, None),
        ({"leader": -1, "isr": [], "last_known_elr": [9]}, [9], Election.ONLINE, {}, None),
        ({"leader": -1, "isr": [], "last_known_elr": [2, 3]}, [2, 3], Election.ONLINE, {}, None),
        ({"leader": -1, "isr": [], "elr": [1], "last_known_elr": [2]}, [2], Election.ONLINE, {}, None),
        ({"elr": [3]}, [1], Election.ONLINE, {"isr": [1, 2]}, {"isr": [1, 2], "eligible_leader_replicas": []}),
        ({"elr": [3]}, [], Election.ONLINE, {}, {"leader": -1}),
    ],
)
def test_what_becomes_of_a_partition(partition, alive, election, wanted, changes):
    known = PartitionRegistration(**{"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, **partition})
    builder = PartitionChangeBuilder(known, b"i" * 16, 5, alive.__contains__, election, lambda node: DIRECTORY)
    for name, value in wanted.items():
        setattr(builder, f"target_{name}", value)
    expected = None if changes is None else PartitionChangeRecord(partition_id=5, topic_id=b"i" * 16, **changes)
    assert builder.build() == expected


def test_reassignments_there_and_back():
    assert Reassignment.plan([1, 2], [2, 3]) == ([2, 3, 1], [3], [1])
    assert Reassignment.plan([1, 2], [2, 1]) == ([2, 1], [], [])
    for isr, expected in (([1, 3], ([1, 2], [1], False)), ([3], ([1, 2], [1], True)), ([], ([1, 2], [1], True))):
        assert revert(PartitionRegistration([3, 1, 2], isr, 1, adding_replicas=[3])) == expected
    with pytest.raises(errors.InvalidReplicaAssignment):
        revert(PartitionRegistration([3], [], -1, adding_replicas=[3]))


# ---- AlterPartition


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_shrinks_and_expands_its_isr(version):
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    answer = stage.alter_isr([1, 3], version=version)
    assert answer == p.AlterPartitionResponsePartition(
        partition_index=0, error_code=0, leader_id=1, leader_epoch=0, isr=[1, 3], leader_recovery_state=0, partition_epoch=1
    )
    answer = stage.alter_isr([1, 3, 2], version=version)
    assert (answer.error_code, answer.isr, answer.partition_epoch, stage.part().leader_epoch) == (0, [1, 3, 2], 2, 0)
    same = stage.alter_isr([1, 3, 2], version=version)
    assert (same.error_code, same.partition_epoch) == (0, 2)  # nothing changed, nothing written


def test_a_leader_that_was_elected_uncleanly_says_when_it_has_recovered():
    stage = Stage()
    stage.create(assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    stage.alter_isr([1])
    stage.lose(1)
    assert (stage.seen(), stage.part().leader_recovery_state) == ((2, [2]), 1)
    stage.start(1)
    assert stage.alter_isr([2, 1], recovery=1).error_code == Code.INVALID_REQUEST  # alone until it has
    still = stage.alter_isr([2], recovery=1)
    assert (still.error_code, still.leader_recovery_state, still.leader_epoch) == (0, 1, stage.part().leader_epoch)
    assert stage.alter_isr([2, 1]).leader_recovery_state == stage.part().leader_recovery_state == 0
    assert stage.alter_isr([2], recovery=1).error_code == Code.INVALID_REQUEST


@each_row(
    ("wish", "code"),
    [
        ({"leader_epoch": 5}, Code.NOT_CONTROLLER),
        ({"partition_epoch": 9}, Code.NOT_CONTROLLER),
        ({"leader_epoch": 0}, Code.FENCED_LEADER_EPOCH),
        ({"node": 3}, Code.INVALID_REQUEST),
        ({"partition_epoch": 0}, Code.INVALID_UPDATE_VERSION),
        ({"isr": [3]}, Code.INVALID_REQUEST),
        ({"isr": [2, 9]}, Code.INVALID_REQUEST),
        ({"isr": [2, 2]}, Code.INVALID_REQUEST),
        ({"isr": []}, Code.INVALID_REQUEST),
        ({"recovery": 7}, Code.INVALID_REQUEST),
        ({"isr": [2, 3, 1]}, Code.INELIGIBLE_REPLICA),
        ({"isr": [2, 3], "broker_epochs": {3: 1}}, Code.INELIGIBLE_REPLICA),
        ({"index": 4}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": bytes(15) + b"\x09"}, Code.UNKNOWN_TOPIC_ID),
        ({"broker_epoch": 1}, Code.STALE_BROKER_EPOCH),
        ({"node": 9, "broker_epoch": 1}, Code.STALE_BROKER_EPOCH),
    ],
)
def test_isr_changes_that_are_refused(wish, code):
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    stage.lose(1)  # leader epoch 1, partition epoch 1
    before = stage.part()
    assert stage.alter_isr(**{"isr": [2], **wish}).error_code == code
    assert stage.part() == before


def test_a_partition_named_twice_is_changed_once():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    asked = [
        p.AlterPartitionRequestPartition(
            partition_index=0, leader_epoch=0, partition_epoch=0, new_isr_with_epochs=[p.IsrBrokerState(broker_id=node) for node in isr]
        )
        for isr in ([1, 2], [1, 3])
    ]
    topic = p.AlterPartitionRequestTopic(topic_id=stage.image.topics["t"].topic_id, partitions=asked)
    answer = stage.ask(p.AlterPartitionRequest(broker_id=1, broker_epoch=stage.epochs[1], topics=[topic]))
    assert [each.error_code for each in answer.topics[0].partitions] == [0, Code.INVALID_REQUEST]
    assert stage.part().isr == [1, 2]


def test_partitions_of_one_number_in_two_topics_are_changed_both():
    stage = Stage()
    for name in "tu":
        stage.create(name, assignments=[[1, 2, 3]])
    t, u = (stage.image.topics[name] for name in "tu")
    stage.ask(isr_request(1, stage.epochs[1], (t, 0, [1, 2]), (u, 0, [1, 3])))
    assert (stage.part("t").isr, stage.part("u").isr) == ([1, 2], [1, 3])


# ---- reassignments


def test_a_reassignment_adds_then_removes():
    stage = Stage(brokers=4)
    stage.create(assignments=[[1, 2]])
    assert stage.reassign([3, 4]) == 0
    assert stage.ongoing() == {("t", 0): ([3, 4, 1, 2], [3, 4], [1, 2])}
    assert (stage.seen(), stage.part().leader_epoch) == ((1, [1, 2]), 0)
    stage.alter_isr([1, 2, 3])
    assert stage.part().reassigning
    # the last newcomer is in sync: the old ones are dropped, and the leader hears that it is none any more
    assert stage.alter_isr([1, 2, 3, 4]).error_code == Code.NEW_LEADER_ELECTED
    assert (stage.seen(), stage.part().replicas, stage.part().leader_epoch, stage.ongoing()) == ((3, [3, 4]), [3, 4], 1, {})


def test_dropping_a_replica_begins_a_leader_epoch_even_if_the_leader_stays():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    assert stage.reassign([1, 2]) == 0
    assert (stage.part().replicas, stage.seen(), stage.part().leader_epoch) == ([1, 2], (1, [1, 2]), 1)
    assert stage.reassign([2, 1]) == 0  # another order moves nobody
    assert (stage.part().replicas, stage.seen(), stage.part().leader_epoch) == ([2, 1], (1, [1, 2]), 1)


def test_a_smaller_set_of_replicas_waits_until_all_that_stay_are_in_sync():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    stage.alter_isr([1, 3])
    assert stage.reassign([1, 2]) == 0
    assert stage.ongoing() == {("t", 0): ([1, 2, 3], [], [3])}
    stage.alter_isr([1, 3, 2])
    assert (stage.part().replicas, stage.part().isr, stage.ongoing()) == ([1, 2], [1, 2], {})


def test_a_reassignment_can_be_given_up_or_changed():
    stage = Stage(brokers=4)
    stage.create(assignments=[[1, 2]])
    assert stage.reassign(None) == Code.NO_REASSIGNMENT_IN_PROGRESS
    stage.reassign([2, 3])
    assert stage.ongoing([p.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]) == stage.ongoing() != {}
    assert stage.ongoing([p.ListPartitionReassignmentsTopics(name="u", partition_indexes=[0])]) == {}
    assert stage.reassign(None) == 0
    assert (stage.part().replicas, stage.seen(), stage.ongoing()) == ([2, 1], (1, [1, 2]), {})
    stage.reassign([3, 4])
    stage.reassign([1, 2])
    assert stage.ongoing() == {("t", 0): ([1, 2, 3, 4], [3, 4], [3, 4])}  # as Kafka: what was being added still is


@each_row(
    ("arguments", "code"),
    [
        ({"replicas": [1, 9]}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"replicas": [1, 1]}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"replicas": []}, Code.INVALID_REPLICA_ASSIGNMENT),
        ({"replicas": [1, 2, 3], "may_resize": False}, Code.INVALID_REPLICATION_FACTOR),
        ({"replicas": [1, 2], "index": 1}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"replicas": [1, 2], "name": "x"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments_that_are_refused(arguments, code):
    stage = Stage()
    stage.create(assignments=[[1, 2]])
    assert stage.reassign(**arguments) == code
    assert stage.ongoing() == {}


def test_going_back_without_an_old_replica_in_sync_needs_leave_to_lose_records():
    for allowed in ("false", "true"):
        stage = Stage(brokers=4)
        stage.create(assignments=[[1, 2]], configs={"unclean.leader.election.enable": allowed})
        stage.reassign([3, 4])
        stage.alter_isr([1, 3])
        stage.lose(1)
        stage.start(1)
        assert stage.seen() == (3, [3])
        assert stage.reassign(None) == (0 if allowed == "true" else Code.INVALID_REPLICA_ASSIGNMENT)
        assert stage.seen() == ((1, [1]) if allowed == "true" else (3, [3]))


# ---- brokers


def test_a_registration_is_fenced_until_its_broker_has_read_the_log_so_far():
    stage = Stage(brokers=0)
    answer = stage.register(1)
    assert (answer.error_code, stage.image.nodes, stage.image.brokers[1].fenced) == (0, {}, True)
    behind = stage.beat(1, offset=answer.broker_epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    caught_up = stage.beat(1, offset=answer.broker_epoch)
    assert (caught_up.is_caught_up, caught_up.is_fenced, list(stage.image.nodes)) == (True, False, [1])
    assert stage.beat(1, want_fence=True).is_fenced
    assert stage.image.nodes == {}


def test_the_same_incarnation_keeps_its_epoch_and_another_waits_for_the_end_of_the_session():
    stage = Stage(brokers=0)
    stage.start(1, incarnation=b"a" * 16)
    epoch = stage.epochs[1]
    assert stage.register(1, incarnation=b"a" * 16).broker_epoch == epoch
    assert not stage.image.brokers[1].fenced
    assert stage.register(1, incarnation=b"b" * 16).error_code == Code.DUPLICATE_BROKER_REGISTRATION
    stage.clock.advance(stage.config.broker_session_timeout_ms)
    assert stage.register(1, incarnation=b"b" * 16).broker_epoch > epoch
    assert stage.beat(1, epoch=epoch).error_code == Code.STALE_BROKER_EPOCH
    assert stage.beat(1).error_code == 0


@each_row(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, Code.INCONSISTENT_CLUSTER_ID),
        ({"listeners": []}, Code.INVALID_REGISTRATION),
        ({"log_dirs": [DIRECTORY, DIRECTORY]}, Code.INVALID_REGISTRATION),
        (
            {"features": [p.RegistrationFeature(name="metadata.version", min_supported_version=31, max_supported_version=99)]},
            Code.UNSUPPORTED_VERSION,
        ),
        ({"features": []}, Code.UNSUPPORTED_VERSION),
        (
            {"features": [p.RegistrationFeature(name="metadata.version", min_supported_version=1, max_supported_version=7)]},
            Code.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_registrations_that_are_refused(changes, code):
    stage = Stage(brokers=0)
    assert stage.register(1, **changes).error_code == code
    assert stage.image.brokers == {}


def test_what_is_kept_of_a_registration():
    stage = Stage(brokers=1)
    fields = {"log_dirs": [DIRECTORY, b"e" * 16], "rack": "r", "incarnation": b"a" * 16}
    listeners = [
        p.RegistrationListener(name=name, host=name, port=port, security_protocol=kind) for name, port, kind in (("A", 1, 0), ("B", 2, 3))
    ]
    assert stage.register(0, listeners=listeners, **fields).broker_epoch == stage.epochs[0]
    expected = BrokerRegistration(
        id=0,
        epoch=stage.epochs[0],
        incarnation_id=b"a" * 16,
        endpoints=tuple(BrokerEndpoint(name=n, host=n, port=port, security_protocol=kind) for n, port, kind in (("A", 1, 0), ("B", 2, 3))),
        features=dict.fromkeys(("metadata.version", "group.version", "transaction.version"), (0, 100)),
        rack="r",
        log_dirs=(DIRECTORY, b"e" * 16),
    )
    assert stage.image.brokers[0] == expected and stage.epochs[0] == stage.image.next_offset - 1
    assert stage.register(-1).error_code == Code.INVALID_REGISTRATION
    stage.beat(0)
    stage.create(assignments=[[0, 1]])
    assert not stage.beat(0, want_shut_down=True).should_shut_down
    stage.register(0, listeners=listeners, **fields)  # the same life goes on where it was
    assert stage.image.brokers[0] == dataclasses.replace(expected, fenced=False, in_controlled_shutdown=True)
    assert stage.register(0, listeners=listeners, **fields | {"incarnation": b"b" * 16}).broker_epoch > expected.epoch
    assert (stage.image.brokers[0].fenced, stage.image.brokers[0].in_controlled_shutdown) == (True, False)


def test_a_new_life_of_a_broker_leads_nothing_that_the_last_one_led():
    stage = Stage()
    stage.create(assignments=[[1, 2], [3, 1]])
    stage.clock.advance(stage.config.broker_session_timeout_ms)
    answer = stage.register(1)
    assert (stage.seen(), stage.seen(index=1)) == ((2, [2]), (3, [3]))
    assert answer.broker_epoch == stage.image.brokers[1].epoch == stage.image.next_offset - 1


def test_silent_brokers_are_fenced():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3]])
    stage.clock.advance(stage.config.broker_session_timeout_ms - 1)
    stage.beat(2)
    assert stage.host.do_what_is_due() == 1
    assert len(stage.image.nodes) == 3
    stage.clock.advance(1)
    assert stage.host.do_what_is_due() == stage.config.broker_session_timeout_ms - 1
    assert (list(stage.image.nodes), stage.seen()) == ([2], (2, [2]))
    assert not stage.beat(1).is_fenced  # it lives after all
    stage.lose(1)
    stage.lose(1)
    stage.host.broker_lost(2, stage.epochs[2] - 1)  # an incarnation of long ago
    assert list(stage.image.nodes) == [2]


def test_a_broker_that_goes_costs_the_partitions_it_has(monkeypatch):
    looked = []

    def partitions_of(state):
        for each in walk(state):
            looked.append(each[1])
            yield each

    walk = brokers.partitions_of
    monkeypatch.setattr(brokers, "partitions_of", partitions_of)
    stage = Stage(brokers=3)
    stage.create(assignments=[[1, 2], *([2, 3] for _ in range(50))])
    del looked[:]
    assert not stage.beat(1, want_shut_down=True).should_shut_down
    assert looked == [0]  # and not the 50 behind it
    assert not stage.beat(1, want_shut_down=True).should_shut_down
    stage.beat(2)
    stage.beat(3)
    assert stage.beat(1, want_shut_down=True).should_shut_down
    stage.register(1)
    stage.beat(1)
    assert stage.image.is_active(1)
    assert looked == [0]  # it was in no ISR any more, and each partition had a leader


def test_a_controlled_shutdown_ends_when_the_others_know():
    stage = Stage()
    stage.create(assignments=[[1, 2, 3], [2, 3, 1]])
    first = stage.beat(1, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert (stage.seen(), stage.seen(index=1)) == ((2, [2, 3]), (2, [2, 3]))
    assert not stage.image.is_active(1) and 1 in stage.image.nodes
    assert not stage.beat(1, want_shut_down=True).should_shut_down
    stage.beat(2)
    assert not stage.beat(1, want_shut_down=True).should_shut_down
    stage.beat(3)
    last = stage.beat(1, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced, 1 in stage.image.nodes) == (True, True, False)
    assert stage.register(1).error_code == 0  # no need to wait for the old session
    assert stage.beat(1, want_shut_down=True).should_shut_down  # nothing to hand over


def test_a_broker_can_be_forgotten():
    stage = Stage()
    stage.create(assignments=[[1, 2]])
    unknown = stage.ask(p.UnregisterBrokerRequest(broker_id=9))
    assert (unknown.error_code, unknown.error_message) == (Code.BROKER_ID_NOT_REGISTERED, "Broker ID 9 is not currently registered")
    assert stage.ask(p.UnregisterBrokerRequest(broker_id=1)) == p.UnregisterBrokerResponse(error_code=0, error_message=None)
    assert (sorted(stage.image.brokers), stage.seen()) == ([2, 3], (2, [2]))
    assert stage.beat(1).error_code == Code.STALE_BROKER_EPOCH
    assert stage.register(1).error_code == 0


def test_producer_ids_are_never_given_twice():
    stage = Stage()
    blocks = [stage.ask(p.AllocateProducerIdsRequest(broker_id=node, broker_epoch=stage.epochs[node])) for node in (1, 2, 1)]
    assert [each.producer_id_start for each in blocks] == [0, PRODUCER_ID_BLOCK, 2 * PRODUCER_ID_BLOCK]
    assert all(each.producer_id_len == PRODUCER_ID_BLOCK for each in blocks)
    assert stage.ask(p.AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)).error_code == Code.STALE_BROKER_EPOCH
    stage.image.next_producer_id = 2**63 - 1 - PRODUCER_ID_BLOCK
    for code, start in ((0, 2**63 - 1 - PRODUCER_ID_BLOCK), (Code.UNKNOWN_SERVER_ERROR, -1)):
        last = stage.ask(p.AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.epochs[1]))
        assert (last.error_code, last.producer_id_start if not code else -1) == (code, start)


# ---- the log


def test_a_request_it_does_not_serve_is_an_error():
    with pytest.raises(errors.UnsupportedVersion):
        Stage().ask(p.ProduceRequest(), 9)


def test_a_controller_finds_its_cluster_in_its_directory_with_nobody_alive(tmp_path):
    stage = Stage(directory=tmp_path)
    stage.create(assignments=[[1, 2, 3]])
    stage.create("gone", 1, 1)
    stage.ask(p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name="gone")]))
    stage.ask(p.AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.epochs[1]))
    before, epoch = list(stage.image.records()), stage.part().leader_epoch
    with pytest.raises(UsageError, match="in use"):
        ControllerHost(stage.config, directory=tmp_path)
    stage.host.close()
    again = ControllerHost(stage.config, directory=tmp_path)
    image = again.controller.image
    assert again.cluster_id == "cluster" and image.nodes == {}
    assert (image.partition("t", 0).leader, image.partition("t", 0).isr, image.partition("t", 0).leader_epoch) == (-1, [1, 2, 3], epoch + 1)
    assert [type(record) for record in image.records()] == [type(record) for record in before]
    assert (list(image.topics), image.next_producer_id, image.features) == (["t"], PRODUCER_ID_BLOCK, stage.image.features)
    again.close()
    again.open()
    assert again.submit(topic_request("u"), 7)[0].topics[0].error_code == Code.INVALID_REPLICATION_FACTOR
    again.close()


def test_the_first_of_the_old_isr_leads_alone_when_a_whole_cluster_comes_back(tmp_path):
    stage = Stage(directory=tmp_path)
    stage.create(assignments=[[1, 2, 3]])
    stage.host.close()
    again = Stage(brokers=0, directory=tmp_path)
    again.start(3)
    assert again.seen() == (3, [3])
    again.start(1)
    assert again.seen() == (3, [3])
    assert again.alter_isr([3, 1]).error_code == 0
    again.host.close()


def test_features_of_an_older_cluster():
    host = ControllerHost(features={"transaction.version": 1})
    assert host.read(lambda image: image.features["transaction.version"]) == 1
    for wrong in ({"transaction.version": 3}, {"x.version": 0}):
        with pytest.raises(UsageError, match="supported"):
            ControllerHost(features=wrong)


def test_features_are_updated_all_or_none():
    stage = Stage()

    def update(*wanted, version=2, **options):
        keys = [
            p.FeatureUpdateKey(
                feature=name, max_version_level=level, **({"upgrade_type": kind} if version else {"allow_downgrade": kind > 1})
            )
            for name, level, kind in wanted
        ]
        answer = stage.ask(p.UpdateFeaturesRequest(feature_updates=keys, timeout_ms=1, **options), version)
        features = [stage.image.features.get(name, 0) for name in ("transaction.version", "group.version")]
        return answer.error_code, (answer.error_message or "").rpartition(": ")[2], *features

    most = stage.image.features["transaction.version"]
    low, high = stage.image.supported_features["transaction.version"]
    assert (most, low, stage.image.features["group.version"]) == (high, 0, 1)
    invalid, beginning = Code.INVALID_UPDATE_VERSION, "Invalid update version"
    for wanted, why in (
        ((("transaction.version", 0, 1),), "unsafe downgrade."),
        ((("group.version", 0, 2), ("transaction.version", 0, 1)), "unsafe downgrade."),
        ((("transaction.version", 0, 0),), "upgrade type."),
        ((("transaction.version", 0, 4),), "upgrade type."),
        ((("transaction.version", -1, 3),), "less than 0."),
        ((("transaction.version", high + 1, 1),), f"Local controller 1 only supports versions 0-{high}"),
        ((("x", 1, 1),), "Local controller 1 does not support this feature."),
        ((("metadata.version", stage.image.features["metadata.version"] - 1, 3),), "have one form."),
    ):
        code, message, *features = update(*wanted)
        assert (code, features) == (invalid, [high, 1]) and message.startswith(beginning) and message.endswith(why), message
    assert update(("transaction.version", 0, 2), validate_only=True) == (0, "", high, 1)
    assert update(("transaction.version", 0, 2), ("group.version", 0, 3)) == (0, "", 0, 0)
    assert update(("transaction.version", 0, 1)) == (0, "", 0, 0)  # what is off is no lower than it was
    key = p.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=1)
    result = p.UpdatableFeatureResult(feature="group.version", error_code=0, error_message="NONE")
    whole = stage.ask(p.UpdateFeaturesRequest(feature_updates=[key]), 1)
    assert whole == p.UpdateFeaturesResponse(error_code=0, error_message=None, results=[result])
    same = "metadata.version", stage.image.features["metadata.version"], 1
    assert update(("transaction.version", high, 1), ("group.version", 1, 1), same) == (0, "", high, 1)
    assert update(("group.version", 0, 1), version=0)[0] == invalid
    offset = stage.image.next_offset
    assert update(("group.version", 1, 1), version=0) == (0, "", high, 1)
    assert stage.image.next_offset == offset  # nothing to write
    assert update(("group.version", 0, 2), version=0) == (0, "", high, 0)


# ---- elections that nobody asks for


def keep_alive(stage, ms, *nodes):
    """Time passes, and the brokers say that they live."""
    while ms > 0:
        stage.clock.advance(min(ms, 5_000))
        ms -= 5_000
        for node in nodes:
            stage.beat(node)


def come_back(stage, node, **fields):
    """A broker starts again, and every leader takes it into its ISR."""
    stage.start(node, **fields)
    for topic in stage.image.topics.values():
        for index, part in enumerate(topic.partitions):
            if node in part.replicas and node not in part.isr:
                answer = stage.ask(isr_request(part.leader, stage.epochs[part.leader], (topic, index, [*part.isr, node])))
                assert answer.topics[0].partitions[0].error_code == 0


def test_preferred_leaders_lead_again_after_the_interval():
    stage = Stage(leader_imbalance_check_interval_seconds=60)
    stage.create(assignments=[[1, 2, 3], [2, 3, 1], [1, 3, 2]])
    stage.lose(1)
    come_back(stage, 1)
    assert [stage.part(index=nth).leader for nth in range(3)] == [2, 2, 3]
    keep_alive(stage, 59_999, 1, 2, 3)
    assert 1 <= stage.host.do_what_is_due() <= 1
    assert [stage.part(index=nth).leader for nth in range(3)] == [2, 2, 3]
    before = stage.part(index=1)
    stage.clock.advance(1)
    stage.host.do_what_is_due()
    assert [stage.part(index=nth).leader for nth in range(3)] == [1, 2, 1]
    assert stage.part(index=1) == before and stage.part().leader_epoch == 2
    end = stage.host.end_offset()
    keep_alive(stage, 60_000, 1, 2, 3)
    stage.host.do_what_is_due()
    assert stage.host.end_offset() == end  # nothing is out of balance


def test_without_auto_rebalance_nothing_goes_back():
    stage = Stage(auto_leader_rebalance_enable=False, leader_imbalance_check_interval_seconds=1)
    stage.create(assignments=[[1, 2, 3]])
    stage.lose(1)
    come_back(stage, 1)
    keep_alive(stage, 400_000, 1, 2, 3)
    stage.host.do_what_is_due()
    assert stage.part().leader == 2


def test_many_elections_come_in_parts(monkeypatch):
    monkeypatch.setattr("kafkacore.broker.controller.periodic.MAX_ELECTIONS", 3)
    stage = Stage(leader_imbalance_check_interval_seconds=1)
    stage.create(assignments=[[1, 2]] * 8)
    stage.lose(1)
    come_back(stage, 1)
    stage.clock.advance(1_000)
    written = []
    heard = ImageListener()
    heard.image_changed = lambda delta: written.append(len(delta.partitions))
    stage.image.listeners.append(heard)
    assert stage.host.do_what_is_due() == 1_000
    assert written == [3, 3, 2] and {stage.part(index=nth).leader for nth in range(8)} == {1}


@pytest.mark.parametrize("where", ["topic", "brokers"])
def test_a_partition_that_may_be_led_uncleanly_by_now_is(where):
    stage = Stage(unclean_leader_election_interval_ms=7_000)
    stage.create(assignments=[[1, 2]])
    stage.create("other", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "false"})
    stage.lose(2)
    stage.lose(1)
    stage.start(2)
    stage.clock.advance(7_000)
    stage.beat(2)
    stage.host.do_what_is_due()
    assert stage.seen() == (-1, [1])
    change = p.IncrementalAlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    kind, name = (2, "t") if where == "topic" else (4, "")
    wanted = p.IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    assert stage.ask(p.IncrementalAlterConfigsRequest(resources=[wanted])).responses[0].error_code == 0
    stage.clock.advance(6_999)
    stage.beat(2)
    assert stage.host.do_what_is_due() == 1
    assert stage.seen() == (-1, [1])
    stage.clock.advance(1)
    stage.host.do_what_is_due()
    assert (stage.seen(), stage.part().leader_recovery_state) == ((2, [2]), 1)
    assert stage.seen("other") == (-1, [1])  # its own setting says no


def test_elections_wait_for_a_log_that_can_be_written(monkeypatch, caplog):
    stage = Stage(leader_imbalance_check_interval_seconds=1)
    stage.create(assignments=[[1, 2]])
    stage.lose(1)
    come_back(stage, 1)

    def full(records):
        raise errors.KafkaStorage("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stage.host, "_write", full)
        stage.clock.advance(1_000)
        stage.host.do_what_is_due()
    assert "No space left" in caplog.text and stage.part().leader == 2
    stage.clock.advance(1_000)
    stage.host.do_what_is_due()
    assert stage.part().leader == 1
