"""A metadata log that a Kafka has written, or goes back to one: control batches, transactions, what nothing here acts on, eligible leaders.

interop/test_directory_both_ways.py does the same with a real Kafka.
"""

import json
import logging
import struct

import pytest
from controlling import topic_request
from test_controller import Stage
from test_remote_controller import CONFIG, RemoteStage

from kafkacore.broker.cluster import NO_LEADER, ClusterImage
from kafkacore.broker.controller import ControllerHost
from kafkacore.broker.controller.elections import Election, PartitionChangeBuilder
from kafkacore.broker.controller.log import MetadataLog
from kafkacore.broker.controller.replay import KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, Replay
from kafkacore.broker.controller.snapshots import decode_snapshot, encode_snapshot
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import CorruptDataError, UsageError
from kafkacore.protocol import metadata_log as m
from kafkacore.records import BatchBuilder, read_batches
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import log_of
from tests.kit.rows import each_row

IDS = [bytes(15) + bytes([number]) for number in range(10, 20)]
VOTERS = bytes.fromhex("0000020000000100000000000000000000000000000000020a434f4e54524f4c4c4552")
FEATURES = [
    m.FeatureLevelRecord(name="metadata.version", feature_level=30),
    m.FeatureLevelRecord(name="group.version", feature_level=1),
    m.FeatureLevelRecord(name="share.version", feature_level=1),
]
CONTROLLER = m.RegisterControllerRecord(
    controller_id=1,
    incarnation_id=IDS[0],
    end_points=[m.ControllerEndpoint(name="CONTROLLER", host="h", port=9093)],
    features=[m.ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
)


def topic(nth, name=None):
    """A topic of one partition that nobody leads."""
    return [
        m.TopicRecord(name=name or f"t{nth}", topic_id=IDS[nth]),
        m.PartitionRecord(partition_id=0, topic_id=IDS[nth], replicas=[1], isr=[1], leader_epoch=0, partition_epoch=0, directories=[]),
    ]


def control(*types, value=b"\0\0"):
    builder = BatchBuilder(max_bytes=1 << 20, is_control=True)
    for kind in types:
        builder.append(value, key=struct.pack(">hh", 0, kind), timestamp_ms=1)
    return next(iter(read_batches(builder.build())))


def write_log(directory, *batches, epoch=1):
    """A directory with a log of these batches: lists of records, or control batches."""
    log = MetadataLog(directory, BrokerConfig(), ManualClock(), "cluster")
    log.epoch = epoch
    for batch in batches:
        if isinstance(batch, list):
            log.append(batch)
        else:
            log.log.append(batch, epoch, wall_ms=1)
    log.close()


def topic_names(host):
    return host.read(lambda image: sorted(image.topics))


@each_row(
    ("batches", "names", "end_offset"),
    [
        ([control(LEADER_CHANGE), FEATURES, control(LEADER_CHANGE), topic(1), control(LEADER_CHANGE)], ["t1"], 8),
        ([control(LEADER_CHANGE)], [], 4),  # nothing but an election: a new cluster
    ],
)
def test_control_batches_change_no_image_and_count_as_offsets(tmp_path_factory, batches, names, end_offset):
    directory = tmp_path_factory.mktemp("log")
    write_log(directory, *batches)
    host = ControllerHost(directory=directory)
    assert (topic_names(host), host.end_offset()) == (names, end_offset)
    assert host.read(lambda image: image.features["metadata.version"]) == 30
    host.close()


@pytest.mark.parametrize("batch_by_batch", [False, True])
def test_a_transaction_counts_at_its_end_or_not_at_all(tmp_path, batch_by_batch):
    begin, end, abort = m.BeginTransactionRecord(name="large"), m.EndTransactionRecord(), m.AbortTransactionRecord()
    records = [*FEATURES, begin, *topic(1), end, *topic(2), begin, *topic(3), abort, begin, *topic(4), end]
    write_log(tmp_path, *([[each] for each in records] if batch_by_batch else [records]))
    host = ControllerHost(directory=tmp_path)
    assert topic_names(host) == ["t1", "t2", "t4"]
    host.close()


def test_a_transaction_that_was_left_open_is_aborted(tmp_path):
    write_log(tmp_path, FEATURES, [m.BeginTransactionRecord(), *topic(1)], topic(2))
    for _ in range(2):
        host = ControllerHost(directory=tmp_path)
        assert topic_names(host) == []
        host.close()
    log = MetadataLog(tmp_path, BrokerConfig(), ManualClock(), "cluster")
    assert [offset for offset, _ in log.batches()][-1] == log.log.end_offset and not log.replay.is_open
    log.close()


@each_row("records", [[m.EndTransactionRecord()], [m.AbortTransactionRecord()], [m.BeginTransactionRecord()] * 2])
def test_transactions_that_make_no_sense_are_refused(records):
    with pytest.raises(CorruptDataError):
        Replay().records(records)


def test_what_nothing_here_acts_on_goes_through_log_snapshot_and_image(tmp_path, caplog):
    kept = [
        *FEATURES,
        CONTROLLER,
        m.ZkMigrationStateRecord(zk_migration_state=3),
        m.RegisterBrokerRecord(broker_id=7, incarnation_id=IDS[3], broker_epoch=5, log_dirs=[IDS[4], IDS[5]], cordoned_log_dirs=[IDS[4]]),
        *topic(1),
        m.PartitionChangeRecord(partition_id=0, topic_id=IDS[1], eligible_leader_replicas=[2], last_known_elr=[3]),
        m.ConfigRecord(resource_type=2, resource_name="t1", name="retention.ms", value="5"),
        m.ConfigRecord(resource_type=2, resource_name="t1", name="remote.storage.enable", value="true"),
        m.ConfigRecord(resource_type=2, resource_name="t1", name="of.a.newer.kafka", value="x"),
    ]
    write_log(tmp_path, control(KRAFT_VERSION, KRAFT_VOTERS, value=VOTERS), kept)
    host = ControllerHost(directory=tmp_path, clock=ManualClock())
    assert "share.version" in caplog.text and "remote.storage.enable" in caplog.text and "of.a.newer.kafka" in caplog.text
    image = host.controller.image
    assert image.topics["t1"].config.retention_ms == 5  # what is obeyed beside it is obeyed
    log_of(host).take_snapshot(image.records())
    snapshots = log_of(host).snapshots
    host.close()
    replay = Replay()
    data = snapshots.path(snapshots.ids[-1]).read_bytes()
    records = decode_snapshot(data, replay)
    assert replay.quorum == {KRAFT_VERSION: VOTERS, KRAFT_VOTERS: VOTERS}
    again = ClusterImage(BrokerConfig(), "cluster")
    again.apply(records, 1)
    assert list(again.records()) == list(image.records()) == records
    for record in (*FEATURES, CONTROLLER, *kept[4:5], *kept[-3:]):
        assert record in records
    assert next(each for each in records if isinstance(each, m.RegisterBrokerRecord)).cordoned_log_dirs == [IDS[4]]
    assert (again.topics["t1"].partitions[0].elr, again.topics["t1"].partitions[0].last_known_elr) == ([2], [3])
    # And a controller that finds the snapshot alone writes the voters into its own next one.
    host = ControllerHost(directory=tmp_path, clock=ManualClock())
    assert log_of(host).replay.quorum == replay.quorum
    host.close()


def test_a_snapshot_with_voters_in_control_batches_of_their_own_is_read():
    batches = [bytes(each) for each in encode_snapshot(FEATURES, 1, 1)]
    voters = BatchBuilder(max_bytes=1 << 20, is_control=True, base_offset=1)
    voters.append(VOTERS, key=struct.pack(">hh", 0, KRAFT_VOTERS), timestamp_ms=1)
    moved = []
    offset = 2
    for each in batches[1:]:
        moved.append(struct.pack(">q", offset) + each[8:])
        offset += next(iter(read_batches(each))).record_count
    replay = Replay()
    assert decode_snapshot(b"".join([batches[0], bytes(voters.build()), *moved]), replay) == FEATURES
    assert replay.quorum == {KRAFT_VOTERS: VOTERS}


@pytest.mark.parametrize(
    ("in_log", "voted", "epoch"),
    [(1, None, 1), (1, {"leaderEpoch": 1}, 2), (7, {"leaderEpoch": 9}, 10), (7, {"leaderEpoch": 3}, 7), (7, "{", 7)],
)
def test_the_quorums_epochs_go_on(tmp_path, in_log, voted, epoch):
    write_log(tmp_path, FEATURES, epoch=in_log)
    if voted is not None:
        text = voted if isinstance(voted, str) else json.dumps(voted)
        (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text(text)
    for _ in range(2):
        stage = Stage(brokers=1, directory=tmp_path, metadata_log_max_record_bytes_between_snapshots=1)
        log = log_of(stage.host)
        assert log.log.epochs[-1][0] == log.snapshots.ids[-1].epoch == epoch
        stage.host.close()


def test_a_feature_that_is_not_served_keeps_no_broker_out(tmp_path):
    write_log(tmp_path, FEATURES)
    stage = Stage(brokers=1, directory=tmp_path)
    assert list(stage.image.nodes) == [1]
    stage.host.close()


def test_a_broker_behind_a_connection_follows_control_batches_and_transactions(tmp_path):
    large = [m.BeginTransactionRecord(), *topic(1)], topic(2), [m.EndTransactionRecord()]
    write_log(tmp_path / "controller", control(LEADER_CHANGE), FEATURES, *large)
    with RemoteStage(tmp_path, brokers=1, config=CONFIG.replace(default_replication_factor=1)) as stage:
        stage.host.submit(topic_request("mine"), 7)
        stage.wait(lambda image: "mine" in image.topics)
        (broker,) = stage.brokers.values()
        assert broker.call(lambda: sorted(broker.cluster.topics)) == ["mine", "t1", "t2"]


def test_a_checkpoint_that_a_kafka_has_not_filled_yet_is_no_fault(tmp_path, caplog):
    write_log(tmp_path, FEATURES)
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        ControllerHost(directory=tmp_path).close()
    assert "not readable" not in caplog.text


def test_the_log_directory_of_a_kafka_is_no_data_dir(tmp_path):
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(UsageError, match="move __cluster_metadata-0 to controller/"):
        EmbeddedCluster(data_dir=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["__cluster_metadata-0"]


def built_partition(isr, elr=(), last_known=(), alive=(1, 2, 3), leader=NO_LEADER, election=Election.ONLINE, target_isr=None):
    """The partition after what a builder says, and the record."""
    image = ClusterImage(BrokerConfig(), "cluster")
    image.apply(
        [
            m.TopicRecord(name="t", topic_id=IDS[1]),
            m.PartitionRecord(
                partition_id=0,
                topic_id=IDS[1],
                replicas=[1, 2, 3],
                isr=list(isr),
                leader=leader,
                eligible_leader_replicas=list(elr),
                last_known_elr=list(last_known),
            ),
        ],
        2,
    )
    partition = image.partition("t", 0)
    builder = PartitionChangeBuilder(partition, IDS[1], 0, lambda node: node in alive, election)
    if target_isr is not None:
        builder.target_isr = target_isr
    record = builder.build()
    return partition if record is None else partition.merge(record)


@each_row(
    ("isr", "elr", "last_known", "alive", "leader", "new_isr", "recovering"),
    [
        ([], [2, 3], [], [1, 2, 3], 2, [2], 0),  # the first eligible one in the order of the replicas
        ([], [2, 3], [1], [1, 3], 3, [3], 0),
        ([], [2], [], [1, 3], -1, [], 0),
        ([], [], [3], [1, 2, 3], 3, [3], 1),  # what it lacks nobody knows
        ([], [], [2, 3], [1, 2, 3], -1, [], 0),
        ([], [2], [3], [3], -1, [], 0),  # an eligible one may come back
        ([1], [2], [], [2, 3], -1, [1], 0),  # the last replica in sync may have more than it says
        ([], [], [], [1, 2, 3], -1, [], 0),
    ],
)
def test_eligible_leaders_that_a_kafka_left(isr, elr, last_known, alive, leader, new_isr, recovering):
    now = built_partition(isr, elr, last_known, alive)
    assert (now.leader, now.isr, now.leader_recovery_state) == (leader, new_isr, recovering)
    if leader == NO_LEADER:
        assert (now.elr, now.last_known_elr) == (elr, last_known)
    else:
        assert (now.elr, now.last_known_elr) == ([], [])


@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_beside_a_leader_no_replica_stays_eligible(leader):
    now = built_partition([1, 3], elr=[2], leader=leader, target_isr=[1])
    assert (now.leader, now.isr, now.elr) == (1, [1], [])


def test_eligible_leaders_are_cleared_for_one_topic_or_all():
    image = ClusterImage(BrokerConfig(), "cluster")
    image.apply([*topic(1), *topic(2)], 4)
    changes = [m.PartitionChangeRecord(partition_id=0, topic_id=IDS[nth], eligible_leader_replicas=[1]) for nth in (1, 2)]
    image.apply([*changes, m.ClearElrRecord(topic_name="t1")], 7)
    assert [each.partitions[0].elr for each in image.topics.values()] == [[], [1]]
    image.apply([m.ClearElrRecord(topic_name="")], 8)
    assert [each.partitions[0].elr for each in image.topics.values()] == [[], []]
