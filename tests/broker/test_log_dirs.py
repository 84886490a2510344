"""Several log directories of a broker, one of which fails: what the controller decides, and what brokers do (KIP-858)."""

from controlling import topic_request
from test_controller import Stage, come_back
from test_remote_controller import CONFIG, RemoteStage

from kafkacore import protocol as p
from kafkacore.broker.cluster import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kafkacore.broker.controller import ControllerHost
from kafkacore.broker.log.checkpoints import META_PROPERTIES, read_meta_properties, write_meta_properties
from kafkacore.broker.server import Broker
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from tests.kit.batches import batch
from tests.kit.rows import each_row
from tests.kit.wire import Wire, produce_request


def dirs(node, count=2):
    """Ids of a broker's directories."""
    return [bytes([node, nth] * 8) for nth in range(1, count + 1)]


def stage_with_dirs(brokers=3, count=2, **config):
    stage = Stage(brokers=0, **config)
    for node in range(1, brokers + 1):
        stage.start(node, log_dirs=dirs(node, count))
    return stage


def assign(stage, node, where, epoch=None):
    """where: index of "t" -> directory; or (topic id, index) -> directory. Returns the codes."""
    topic_id = stage.image.topics["t"].topic_id
    wanted = []
    for at, directory in where.items():
        key = at if isinstance(at, tuple) else (topic_id, at)
        topic = p.AssignedTopic(topic_id=key[0], partitions=[p.AssignedPartition(partition_index=key[1])])
        wanted.append(p.AssignedDirectory(id=directory, topics=[topic]))
    epoch = stage.epochs[node] if epoch is None else epoch
    answer = stage.ask(p.AssignReplicasToDirsRequest(broker_id=node, broker_epoch=epoch, directories=wanted))
    assert [each.id for each in answer.directories] == ([each.id for each in wanted] if not answer.error_code else [])
    return answer.error_code or [each.topics[0].partitions[0].error_code for each in answer.directories]


# ---- the controller


@each_row(("count", "expected"), [(0, MIGRATING_DIRECTORY), (1, dirs(1)[0]), (2, UNASSIGNED_DIRECTORY)])
def test_a_new_replica_lies_where_its_broker_can_only_put_it(count, expected):
    stage = stage_with_dirs(count=count)
    stage.create(assignments=[[1, 2]])
    assert stage.part().directory(1) == expected
    assert stage.part().directory(9) == MIGRATING_DIRECTORY


def test_brokers_say_where_replicas_lie():
    stage = stage_with_dirs()
    stage.create(assignments=[[1, 2], [2, 1]])
    before = stage.part()
    assert assign(stage, 1, {0: dirs(1)[0], 1: dirs(1)[1]}) == [0, 0]
    assert stage.part().directories == [dirs(1)[0], UNASSIGNED_DIRECTORY]
    assert stage.part(index=1).directories == [UNASSIGNED_DIRECTORY, dirs(1)[1]]
    now = stage.part()
    assert (now.leader, now.isr, now.leader_epoch, now.partition_epoch) == (1, [1, 2], before.leader_epoch, before.partition_epoch + 1)
    end = stage.host.end_offset()
    assert assign(stage, 1, {0: dirs(1)[0]}) == [0]
    assert stage.host.end_offset() == end  # nothing new
    wrong = {(bytes(16), 0): dirs(1)[0], 7: dirs(1)[0], -1: dirs(1)[0]}
    assert assign(stage, 1, wrong) == [Code.UNKNOWN_TOPIC_ID, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(stage, 3, {0: dirs(3)[0]}) == [Code.NOT_LEADER_OR_FOLLOWER]
    assert assign(stage, 1, {0: dirs(1)[0]}, epoch=10**6) == Code.STALE_BROKER_EPOCH
    assert stage.host.end_offset() == end


def two_dirs():
    """Broker 1 leads partition 0 in its first directory, 1 in its second, follows 2 in its first, and has all of "alone" there."""
    stage = stage_with_dirs()
    stage.create(assignments=[[1, 2], [1, 2], [2, 1]])
    stage.create("alone", assignments=[[1]])
    first, second = dirs(1)
    assert assign(stage, 1, {0: first, 1: second, 2: first, (stage.image.topics["alone"].topic_id, 0): first}) == [0] * 4
    return stage


def parts(stage):
    return [*stage.image.topics["t"].partitions, stage.part("alone")]


def led(stage):
    return [(part.leader, part.isr) for part in parts(stage)]


def test_what_lies_in_a_directory_that_is_offline_is_led_by_others():
    stage = two_dirs()
    first, second = dirs(1)
    answer = stage.beat(1, offline_log_dirs=[first])
    assert (answer.error_code, answer.is_fenced) == (0, False)
    assert led(stage) == [(2, [2]), (1, [1, 2]), (2, [2]), (-1, [1])]
    assert stage.image.brokers[1].log_dirs == (second,) and 1 in stage.image.nodes
    assert [stage.image.offline_replicas(part) for part in parts(stage)] == [[1], [], [1], [1]]
    assert stage.alter_isr([2, 1]).error_code == Code.INELIGIBLE_REPLICA  # a Fetch of before came late
    end = stage.host.end_offset()
    stage.beat(1, offline_log_dirs=[first])
    stage.beat(1, offline_log_dirs=[bytes(range(16))])  # whose is that?
    assert stage.host.end_offset() == end
    stage.elect(0, None)
    stage.elect(1, None)
    assert [part.leader for part in parts(stage)] == [2, 1, 2, -1]  # alive, but not for these


def test_a_broker_that_comes_back_with_its_directory_leads_what_nobody_could():
    stage = two_dirs()
    stage.beat(1, offline_log_dirs=dirs(1)[:1])
    stage.lose(1)
    stage.start(1, log_dirs=dirs(1)[1:])  # without it
    assert stage.seen("alone") == (-1, [1])
    stage.lose(1)
    come_back(stage, 1, log_dirs=dirs(1))
    assert stage.seen("alone") == (1, [1]) and stage.seen(index=0) == (2, [2, 1])
    stage.elect(0, None)
    assert stage.seen(index=0) == (1, [2, 1])


def test_a_broker_without_any_directory_left_is_fenced():
    stage = two_dirs()
    assert stage.beat(1, offline_log_dirs=dirs(1)).is_fenced
    assert led(stage) == [(2, [2]), (2, [2]), (2, [2]), (-1, [1])]


def test_a_replica_that_is_said_to_lie_in_a_lost_directory_does_not_lead():
    stage = two_dirs()
    stage.create("later", assignments=[[1, 2]])
    stage.beat(1, offline_log_dirs=dirs(1)[:1])
    assert stage.seen("later") == (1, [1, 2])  # nobody has said where it lies
    assert assign(stage, 1, {(stage.image.topics["later"].topic_id, 0): dirs(1)[0]}) == [0]
    assert stage.seen("later") == (2, [2]) and stage.part("later").directory(1) == dirs(1)[0]


def test_a_reassignment_keeps_what_is_known_and_asks_for_the_rest():
    stage = stage_with_dirs()
    stage.create(assignments=[[1, 2]])
    assign(stage, 1, {0: dirs(1)[0]})
    assign(stage, 2, {0: dirs(2)[1]})
    stage.reassign([3, 2])
    assert {node: stage.part().directory(node) for node in (1, 2, 3)} == {1: dirs(1)[0], 2: dirs(2)[1], 3: UNASSIGNED_DIRECTORY}
    stage.alter_isr([1, 2, 3])
    assert (stage.part().replicas, stage.part().directories) == ([3, 2], [UNASSIGNED_DIRECTORY, dirs(2)[1]])


def test_ids_that_are_no_directories():
    stage = stage_with_dirs()
    broker = stage.image.brokers[1]
    assert [broker.has_online(each) for each in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, LOST_DIRECTORY)] == [True, True, False]
    assert stage.register(4, log_dirs=[dirs(4)[0]] * 2).error_code == Code.INVALID_REGISTRATION


# ---- brokers


class TwoDirectories(RemoteStage):
    """Each broker has two."""

    def log_dirs(self, node_id):
        return [self.directory / f"broker-{node_id}" / name for name in "ab"]


def known_everywhere(image):
    return all(
        part.directory(node) not in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
        for topic in image.topics.values()
        for part in topic.partitions
        for node in part.replicas
    )


def test_the_others_lead_what_a_failed_directory_held_and_its_broker_goes_on_with_the_rest(tmp_path):
    config = CONFIG.replace(broker_heartbeat_interval_ms=60_000, broker_session_timeout_ms=120_000)  # news does not wait for the next one
    with TwoDirectories(tmp_path, config=config) as stage:
        stage.host.submit(topic_request("t", 4, 2), 7)
        stage.wait(known_everywhere)
        broker = stage.brokers[1]
        lost = broker.state.logs.directories[0]
        there = {nth for nth in range(4) if stage.partition(index=nth).directory(1) == lost.id}
        assert len(there) == 2
        broker.call(lambda: lost.fail(OSError(5, "Input/output error")))
        stage.wait(lambda image: all(image.partition("t", nth).isr == [2] for nth in there))
        for nth in range(4):
            part = stage.partition(index=nth)
            assert part.leader == 2 if nth in there else sorted(part.isr) == [1, 2]
        with Wire(stage.brokers[2].address) as wire:
            (described,) = wire.ask(p.MetadataRequest(topics=[p.MetadataRequestTopic(name="t")]), 12).topics
            assert {each.partition_index for each in described.partitions if each.offline_replicas == [1]} == there
            at_two = sorted(nth for nth in range(4) if stage.partition(index=nth).leader == 2)
            for nth in at_two:
                (answer,) = wire.ask(produce_request(batch(), partition=nth), 9).responses[0].partition_responses
                assert answer.error_code == 0
        broker.stop()
        broker.start()
        stage.wait(lambda image: all(sorted(image.partition("t", nth).isr) == [1, 2] for nth in range(4)))
        ends = {
            node: [each.call(lambda each=each, nth=nth: each.state.replicas.partition("t", nth).log.end_offset) for nth in range(4)]
            for node, each in stage.brokers.items()
        }
        assert ends[1] == ends[2] and sum(ends[1]) == 3 * len(at_two)


def test_a_directory_without_an_id_gets_one_and_keeps_it(tmp_path):
    config, clock = BrokerConfig(), ManualClock()
    path = tmp_path / "logs"
    broker = Broker(config, 1, ControllerHost(config, "c", clock=clock), log_dirs=[path])
    (log_dir,) = broker.state.logs.directories
    given = log_dir.id
    assert any(given) and broker.state.logs.directory_ids() == ([given], [])
    broker.stop()
    known = read_meta_properties(path / META_PROPERTIES)
    again = Broker(config, 1, ControllerHost(config, "c", clock=clock), log_dirs=[path])
    assert again.state.logs.directory_ids() == ([given], [])
    again.stop()
    write_meta_properties(path / META_PROPERTIES, {name: value for name, value in known.items() if name != "directory.id"})
    third = Broker(config, 1, ControllerHost(config, "c", clock=clock), log_dirs=[path])
    now = read_meta_properties(path / META_PROPERTIES)
    third.stop()
    assert {**known, "directory.id": now["directory.id"]} == now and now["directory.id"] != known["directory.id"]
