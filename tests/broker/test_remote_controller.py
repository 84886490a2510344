"""Brokers that reach their controller over the network: registration, following the log, passing on, fencing, coming back."""

from functools import partial
from typing import get_type_hints

import pytest
from controlling import topic_request

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.controller import ControllerHost, remote
from kafkacore.broker.controller.envelope import answer_in
from kafkacore.broker.controller.log import CONTROLLER_ID, METADATA_TOPIC_ID
from kafkacore.broker.controller.server import SERVED, ControllerServer
from kafkacore.broker.controller.snapshots import SnapshotId, encode_snapshot
from kafkacore.broker.controller.state import Requester
from kafkacore.broker.controller.writer import SERVED as DECIDED
from kafkacore.broker.handlers.forwarding import REFUSALS
from kafkacore.broker.server import Broker
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.records import read_batches
from kafkacore.timer import LoopTimer
from kafkacore.types import Node
from tests.kit.inside import log_of, thread_of
from tests.kit.rows import each_row
from tests.kit.wire import Wire

CONFIG = BrokerConfig(default_replication_factor=2)


class RemoteStage:
    """A controller behind a port and brokers that know only that port."""

    def __init__(self, directory, brokers=2, config=CONFIG):
        self.directory, self.config = directory, config
        self.host = ControllerHost(config, directory=directory / "controller")
        self.server = ControllerServer(self.host)
        self.brokers = {}
        self.count = brokers

    def __enter__(self):
        self.server.start()
        for node_id in range(1, self.count + 1):
            self.add(node_id)
        return self

    def add(self, node_id):
        broker = self.brokers[node_id] = Broker(self.config, node_id, self.server.broker_address, log_dirs=self.log_dirs(node_id))
        broker.start()
        self.wait(lambda image: node_id in image.nodes)
        return broker

    def log_dirs(self, node_id):
        return [self.directory / f"broker-{node_id}"]

    def wait(self, condition):
        """Until something is true of the controller's image, and all brokers that serve know it."""
        assert self.host.wait_until(lambda state: condition(state.image), 20)
        serving = [each.node_id for each in self.brokers.values() if each.running]
        offset = self.host.end_offset()
        assert self.host.wait_until(lambda state: all(state.sessions[node].metadata_offset >= offset for node in serving), 20)

    def partition(self, topic="t", index=0):
        return self.host.read(lambda image: image.partition(topic, index))

    def __exit__(self, *exc):
        for broker in self.brokers.values():
            broker.stop(clean=False)
        self.server.stop()
        self.host.close()


@pytest.fixture
def stage(tmp_path):
    with RemoteStage(tmp_path) as made:
        yield made


def as_broker(stage):
    """A connection to the controller that has proved to know the secret."""
    wire = Wire(stage.server.address)
    wire.log_in(stage.server.broker_address.logins()())
    return wire


def create_through(stage, name="t", node=1):
    with Wire(stage.brokers[node].address) as wire:
        (result,) = wire.ask(topic_request(name, replicas=2), 7).topics
        # what the broker answers it knows itself
        assert [each.name for each in wire.ask(p.MetadataRequest(topics=None), 12).topics] == ([name] if result.error_code == 0 else [])
    return result


def test_a_topic_made_through_one_broker_is_known_to_all(stage):
    result = create_through(stage)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 2)
    stage.wait(lambda image: "t" in image.topics)
    for broker in stage.brokers.values():
        assert broker.call(lambda broker=broker: broker.cluster.topics_by_id[result.topic_id].partitions) == [stage.partition()]
        assert broker.cluster.cluster_id == stage.host.cluster_id
    with Wire(stage.brokers[2].address) as wire:
        again = wire.ask(topic_request("t"), 7).topics[0]
        assert again.error_code == Code.TOPIC_ALREADY_EXISTS
        ids = {wire.ask(p.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4).producer_id for _ in range(3)}
    with Wire(stage.brokers[1].address) as wire:
        ids.add(wire.ask(p.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4).producer_id)
    assert len(ids) == 4


def test_a_lost_connection_to_the_controller_is_made_again(stage):
    create_through(stage)
    before = stage.host.read(lambda image: image.brokers[1].epoch)
    stage.server.stop()
    stage.server.start()
    delete = p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name="t")])
    stage.host.submit(delete, 6)
    stage.wait(lambda image: sorted(image.nodes) == [1, 2])
    assert stage.host.read(lambda image: image.brokers[1].epoch) == before  # the same incarnation
    assert create_through(stage, "u").error_code == 0


def test_without_a_controller_requests_are_refused_and_not_lost(tmp_path):
    config = BrokerConfig(default_replication_factor=1)
    with RemoteStage(tmp_path, brokers=1, config=config) as stage:
        stage.server.stop()
        with Wire(stage.brokers[1].address) as wire:
            (result,) = wire.ask(topic_request("t"), 7).topics
            assert result.error_code in (Code.NETWORK_EXCEPTION, Code.BROKER_NOT_AVAILABLE)
            (topic,) = wire.ask(p.MetadataRequest(topics=[p.MetadataRequestTopic(name="u")]), 12).topics
            assert topic.error_code in (Code.NETWORK_EXCEPTION, Code.BROKER_NOT_AVAILABLE)


def test_a_log_that_cannot_be_written_refuses_and_changes_nothing(stage, monkeypatch, caplog):
    before = stage.host.end_offset()

    def full(records):
        raise errors.KafkaStorage("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_of(stage.host), "append", full)
        assert create_through(stage).error_code == Code.KAFKA_STORAGE_ERROR
        with as_broker(stage) as wire:
            request = p.AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.host.read(lambda image: image.brokers[1].epoch))
            assert wire.ask(request, 0).error_code == Code.KAFKA_STORAGE_ERROR
            change = p.IncrementalAlterableConfig(name="num.partitions", config_operation=0, value="2")
            wanted = p.IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
            (altered,) = wire.ask(p.IncrementalAlterConfigsRequest(resources=[wanted]), 1).responses
            assert altered.error_code == Code.KAFKA_STORAGE_ERROR
        stage.host.broker_lost(1, stage.host.read(lambda image: image.brokers[1].epoch))
        assert stage.host.end_offset() == before
    assert "No space left" in caplog.text
    assert create_through(stage).error_code == 0


def test_a_broker_of_another_cluster_ends(stage, caplog):
    stranger = Broker(CONFIG, 9, stage.server.broker_address._replace(cluster_id="somebody-else"))
    stranger.start()
    thread_of(stranger).join(60)
    assert not stranger.running
    assert "INCONSISTENT_CLUSTER_ID" in caplog.text
    stranger.stop()
    assert stage.host.read(lambda image: sorted(image.brokers)) == [1, 2]


def test_a_second_broker_of_the_same_id_waits_until_the_first_is_gone(stage):
    epoch = stage.host.read(lambda image: image.brokers[2].epoch)
    twin = Broker(CONFIG, 2, stage.server.broker_address)
    with twin, Wire(twin.address, timeout_s=60) as wire:
        wire.send(p.MetadataRequest(topics=None), 12)  # which waits, too: a broker that is not registered serves nothing
        stage.brokers.pop(2).stop(clean=False)
        stage.brokers[2] = twin
        stage.wait(lambda image: image.brokers[2].epoch > epoch and 2 in image.nodes)
        assert stage.host.read(lambda image: image.nodes[2].port) == twin.port
        _, metadata = wire.receive(p.MetadataRequest, 12)
        assert metadata.cluster_id == stage.host.cluster_id and 1 in {each.node_id for each in metadata.brokers}


def test_the_metadata_log_is_all_that_can_be_fetched(stage):
    def fetch(topic_id, offset=0, partition=0, max_wait_ms=0):
        wanted = p.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        state = p.ReplicaState(replica_id=7, replica_epoch=-1)
        topics = [p.FetchTopic(topic_id=topic_id, partitions=[wanted])]
        return p.FetchRequest(replica_state=state, max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)

    with as_broker(stage) as wire:
        answer = wire.ask(fetch(METADATA_TOPIC_ID), 17).responses[0].partitions[0]
        assert (answer.error_code, len(answer.records) > 0, answer.high_watermark) == (0, True, stage.host.end_offset())
        assert wire.ask(fetch(METADATA_TOPIC_ID, 10**6), 17).responses[0].partitions[0].error_code == Code.OFFSET_OUT_OF_RANGE
        for wrong in (fetch(bytes(16)), fetch(METADATA_TOPIC_ID, partition=1), p.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])):
            assert wire.ask(wrong, 17).error_code == Code.UNKNOWN_TOPIC_ID
        at_end = wire.ask(fetch(METADATA_TOPIC_ID, stage.host.end_offset(), max_wait_ms=20), 17).responses[0].partitions[0]
        assert len(at_end.records) == 0
        wire.send(fetch(METADATA_TOPIC_ID, stage.host.end_offset(), max_wait_ms=60_000), 17)
        with as_broker(stage):  # by now it waits
            stage.host.submit(topic_request("t"), 7)
        assert len(wire.receive(p.FetchRequest, 17)[1].responses[0].partitions[0].records) > 0
        other = p.ListOffsetsTopic(name="t", partitions=[p.ListOffsetsPartition(partition_index=0, timestamp=-1)])
        assert wire.ask(p.ListOffsetsRequest(topics=[other]), 7).topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        versions = wire.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert {1, 2, 18, 19, 56, 62, 63, 64, 67} <= {each.api_key for each in versions.api_keys} <= set(p.APIS) - {0}


def test_a_log_in_memory_is_served_from_its_first_record_on():
    host = ControllerHost(CONFIG.replace(metadata_log_max_record_bytes_between_snapshots=1), has_log=True)
    for name in ("a", "b"):
        host.submit(topic_request(name), 7)
    pieces, end_offset = host.read_log(0, 1 << 20)
    batches = [batch for piece in pieces for batch in read_batches(piece)]
    assert (batches[0].base_offset, batches[-1].last_offset + 1) == (0, end_offset) == (0, host.end_offset())
    assert host.snapshot_for(0) is None
    with pytest.raises(errors.SnapshotNotFound):
        host.read_snapshot(SnapshotId(end_offset, 1), 0, 1)
    host.close()
    host.open()
    assert host.read_log(0, 1)[1] == end_offset


class ScriptedPeers:
    """Keeps what a link sends, and answers when the test says so."""

    def __init__(self):
        self.sent = []

    def send(self, node_id, request, version, done, timeout_ms, lane=""):
        self.sent.append((request, done))

    def take(self, kind):
        """The only request of this kind that is not answered yet."""
        ((nth, found),) = [(nth, each) for nth, each in enumerate(self.sent) if isinstance(each[0], kind)]
        del self.sent[nth]
        return found[1]


def test_a_restart_asks_the_controller_once_for_everything():
    clock, peers, caught_up = ManualClock(), ScriptedPeers(), []
    timer = LoopTimer(clock=clock)
    image = ClusterImage(CONFIG, "c")
    link = remote.RemoteControllerLink(CONFIG, 1, image, timer, peers, pytest.fail, lambda: caught_up.append(image.next_offset))
    for epoch in (5, 6, 7):
        link.start(Node(1, "127.0.0.1", 9092))
        peers.take(p.BrokerRegistrationRequest)(errors.DisconnectError("broken"))
        clock.advance(remote.RETRY_MS)
        timer.advance_clock()
        peers.take(p.BrokerRegistrationRequest)(p.BrokerRegistrationResponse(broker_epoch=epoch))
        assert not caught_up
        peers.take(p.FetchRequest)(errors.DisconnectError("broken"))  # it is asked again later
        link.close()
    clock.advance(10 * remote.RETRY_MS)
    timer.advance_clock()
    assert peers.sent == []  # by a link that is open only
    link.start(Node(1, "127.0.0.1", 9092))
    peers.take(p.BrokerRegistrationRequest)(p.BrokerRegistrationResponse(broker_epoch=8))
    clock.advance(10 * remote.RETRY_MS)
    timer.advance_clock()
    peers.take(p.FetchRequest)
    assert peers.sent == []


class Remote:
    """The link of broker 1, a log for it to follow, and all that it sends: (request, version, timeout, lane, what takes the answer)."""

    def __init__(self):
        self.clock, self.sent, self.refused = ManualClock(), [], []
        self.timer = LoopTimer(clock=self.clock)
        self.host = ControllerHost(CONFIG, "c", has_log=True, clock=self.clock)
        self.image = ClusterImage(CONFIG, "c")
        self.link = remote.RemoteControllerLink(CONFIG, 1, self.image, self.timer, self, lambda: self.refused.append(self.clock.now_ms()))

    def send(self, node_id, request, version, done, timeout_ms, lane=""):
        assert node_id == CONTROLLER_ID
        self.sent.append((request, version, timeout_ms, lane, done))

    def take(self, kind):
        (found,) = [each for each in self.sent if isinstance(each[0], kind)]
        self.sent.remove(found)
        return found

    def kinds(self):
        return [type(each[0]) for each in self.sent]

    def later(self):
        self.clock.advance(99)
        self.timer.advance_clock()
        assert self.sent == []
        self.clock.advance(1)
        self.timer.advance_clock()

    def log(self, **fields):
        """The answer to a Fetch from where the image is: what the controller's log holds."""
        pieces, end_offset = self.host.read_log(self.image.next_offset, 1 << 20)
        records = memoryview(b"".join(bytes(each) for each in pieces))
        data = p.PartitionData(partition_index=0, high_watermark=end_offset, records=records, aborted_transactions=None)
        answer = p.FetchResponse(responses=[p.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data._replace(**fields)])])
        self.take(p.FetchRequest)[-1](answer)

    def begin(self):
        self.link.start(Node(1, "h", 9001))
        request = self.take(p.BrokerRegistrationRequest)
        answer, _ = self.host.submit(request[0], request[1])
        request[-1](answer)
        self.log()


def test_a_remote_broker_registers_reads_the_log_and_beats():
    stage = Remote()
    stage.link.start(Node(1, "h", 9001, "rack"))
    request, version, timeout_ms, lane, registered = stage.take(p.BrokerRegistrationRequest)
    assert (version, timeout_ms, lane) == (4, 30_000, "")
    assert (request.broker_id, request.cluster_id, request.rack, request.previous_broker_epoch, request.log_dirs) == (
        1,
        "c",
        "rack",
        -1,
        [],
    )
    registered(p.BrokerRegistrationResponse(error_code=Code.DUPLICATE_BROKER_REGISTRATION))
    stage.later()
    registered = stage.take(p.BrokerRegistrationRequest)[-1]
    answer, _ = stage.host.submit(request, version)
    registered(answer)
    assert stage.link.broker_epoch == answer.broker_epoch
    fetch, version, timeout_ms, lane, _ = stage.sent[-1]
    wanted = p.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
    assert fetch == p.FetchRequest(
        replica_state=p.ReplicaState(replica_id=1, replica_epoch=answer.broker_epoch),
        max_wait_ms=10_000,
        min_bytes=1,
        topics=[p.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
    )
    assert (version, timeout_ms, lane) == (17, 40_000, remote.LOG_LANE)
    stage.log()
    assert stage.image.next_offset == stage.host.end_offset()
    assert stage.kinds() == [p.FetchRequest, p.BrokerHeartbeatRequest]
    beat, version, timeout_ms, lane, beaten = stage.take(p.BrokerHeartbeatRequest)
    assert beat == p.BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=answer.broker_epoch, current_metadata_offset=stage.image.next_offset, offline_log_dirs=[]
    )
    assert (version, timeout_ms, lane) == (2, CONFIG.broker_session_timeout_ms, "")
    stage.link.log_dir_failed()  # news while one is under way
    assert stage.kinds() == [p.FetchRequest]
    beaten(p.BrokerHeartbeatResponse(is_fenced=False))
    stage.take(p.BrokerHeartbeatRequest)[-1](errors.DisconnectError("broken"))
    stage.sent.clear()
    stage.later()
    stage.take(p.BrokerHeartbeatRequest)[-1](p.BrokerHeartbeatResponse(is_fenced=False))
    stage.clock.advance(CONFIG.broker_heartbeat_interval_ms - 1)
    stage.timer.advance_clock()
    assert stage.sent == []
    stage.clock.advance(1)
    stage.timer.advance_clock()
    stage.take(p.BrokerHeartbeatRequest)[-1](p.BrokerHeartbeatResponse(is_fenced=False))
    ended = []
    stage.link.shut_down(lambda: ended.append(1))
    beat, *_, beaten = stage.take(p.BrokerHeartbeatRequest)
    assert (beat.want_shut_down, beat.want_fence) == (True, False)
    beaten(p.BrokerHeartbeatResponse(is_fenced=False, should_shut_down=False))
    stage.clock.advance(9)
    stage.timer.advance_clock()
    assert stage.sent == []
    stage.clock.advance(1)
    stage.timer.advance_clock()
    stage.link.fence()
    stage.take(p.BrokerHeartbeatRequest)[-1](p.BrokerHeartbeatResponse(is_fenced=True, should_shut_down=True))
    assert (ended, stage.sent, stage.refused) == ([1], [], [])
    stage.link.shut_down(lambda: ended.append(2))
    assert (ended, stage.sent) == ([1, 2], [])


@each_row(
    ("asked", "answer"),
    [
        (p.BrokerRegistrationRequest, errors.AuthenticationFailedError("another secret")),
        (p.BrokerRegistrationRequest, p.BrokerRegistrationResponse(error_code=Code.INCONSISTENT_CLUSTER_ID)),
        (p.BrokerHeartbeatRequest, p.BrokerHeartbeatResponse(error_code=Code.STALE_BROKER_EPOCH)),
        (p.FetchRequest, p.FetchResponse(error_code=Code.UNKNOWN_TOPIC_ID)),
        (p.FetchRequest, p.BrokerHeartbeatResponse()),
        (p.FetchRequest, {"error_code": Code.OFFSET_OUT_OF_RANGE}),
        (p.FetchRequest, {"records": memoryview(bytes(100))}),
    ],
)
def test_a_controller_that_refuses_a_broker_ends_it(asked, answer):
    stage = Remote()
    if asked is p.BrokerRegistrationRequest:
        stage.link.start(Node(1, "h", 9001))
    else:
        stage.begin()
    if isinstance(answer, dict):
        stage.log(**answer)
    else:
        stage.take(asked)[-1](answer)
    assert len(stage.refused) == 1
    for *_, done in stage.sent[:]:
        done(errors.DisconnectError("closed"))  # of a link that has ended nothing comes any more
    stage.sent.clear()
    stage.clock.advance(100_000)
    stage.timer.advance_clock()
    assert (stage.sent, len(stage.refused)) == ([], 1)


def test_an_answer_comes_when_the_image_knows_it_and_an_error_at_once():
    stage, answers = Remote(), []
    stage.begin()
    for requester in (None, Requester("alice", "app")):
        del answers[:], stage.sent[1:]

        def ask(name="t", requester=requester):
            stage.link.submit(topic_request(name), 7, answers.append, requester)
            (request, version, timeout_ms, lane, done), end = stage.sent.pop(-2), stage.sent.pop()
            wanted = (p.CreateTopicsRequest, 7) if requester is None else (p.EnvelopeRequest, 0)
            assert (type(request), version, timeout_ms, lane) == (*wanted, 30_000, "")
            partition = p.ListOffsetsPartition(partition_index=0, timestamp=-1)
            topics = [p.ListOffsetsTopic(name="__cluster_metadata", partitions=[partition])]
            assert end[:4] == (p.ListOffsetsRequest(replica_id=1, topics=topics), 7, 30_000, "")
            return done, end[-1]

        made = p.CreateTopicsResponse(topics=[p.CreatableTopicResult(name="t", error_code=0)])
        answer = made if requester is None else answer_in(made, 7, 0)
        done, reached = ask()
        done(errors.DisconnectError("broken"))
        reached(errors.DisconnectError("broken"))
        assert [type(each) for each in answers] == [errors.DisconnectError]
        for second, error in ((errors.DisconnectError("broken"), errors.DisconnectError), (made, errors.UnknownServer)):
            done, reached = ask()
            done(answer)
            reached(second)
            assert type(answers[-1]) is error
        if requester is not None:
            done, reached = ask()
            done(made)  # in no envelope
            assert type(answers[-1]) is errors.UnknownServer
        done, reached = ask()
        done(answer)
        offset = stage.host.submit(p.AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.link.broker_epoch), 0)[1]
        count = len(answers)
        part = p.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        reached(p.ListOffsetsResponse(topics=[p.ListOffsetsTopicResponse(name="__cluster_metadata", partitions=[part])]))
        assert len(answers) == count
        stage.log()
        assert [each.error_code for each in answers[count].topics] == [0] and len(answers) == count + 1


def test_a_snapshot_is_read_piece_by_piece_and_again_where_it_is_gone():
    stage = Remote()
    stage.begin()
    stage.sent = [each for each in stage.sent if isinstance(each[0], p.FetchRequest)]
    other = ControllerHost(CONFIG, "c")
    other.submit(topic_request("s"), 7)
    whole = b"".join(bytes(each) for each in encode_snapshot(other.read(lambda image: list(image.records())), 3, 0))
    named = p.SnapshotId(end_offset=99, epoch=3)

    def answer(begin, nbytes, **fields):
        request, version, timeout_ms, lane, done = stage.take(p.FetchSnapshotRequest)
        wanted = p.PartitionSnapshotWanted(
            partition=0, current_leader_epoch=3, snapshot_id=p.FetchedSnapshotId(end_offset=99, epoch=3), position=begin
        )
        topics = [p.TopicSnapshotWanted(name="__cluster_metadata", partitions=[wanted])]
        assert request == p.FetchSnapshotRequest(cluster_id="c", replica_id=1, max_bytes=8 << 20, topics=topics)
        assert (version, timeout_ms, lane) == (1, 30_000, remote.LOG_LANE)
        piece = p.PartitionSnapshot(index=0, snapshot_id=named, size=len(whole), position=begin)
        piece = piece._replace(unaligned_records=memoryview(whole[begin : begin + nbytes]))._replace(**fields)
        done(p.FetchSnapshotResponse(topics=[p.TopicSnapshot(name="__cluster_metadata", partitions=[piece])]))

    for wrong in ({"error_code": Code.SNAPSHOT_NOT_FOUND}, {"unaligned_records": memoryview(b"")}, {"position": 1}):
        stage.log(snapshot_id=named)
        answer(0, 50, **wrong)
        stage.later()
        assert stage.kinds() == [p.FetchRequest]
    stage.log(snapshot_id=named)
    answer(0, 50)
    stage.take(p.FetchSnapshotRequest)[-1](errors.DisconnectError("broken"))
    stage.later()
    answer(50, 50)
    answer(100, len(whole) - 101)
    answer(len(whole) - 1, 1)
    assert (list(stage.image.topics), stage.image.next_offset) == (list(other.read(lambda image: image.topics)), 99)
    assert [each[0].topics[0].partitions[0].fetch_offset for each in stage.sent if isinstance(each[0], p.FetchRequest)] == [99]


def test_each_api_is_served_by_its_own_handler_in_the_versions_there_are():
    assert {get_type_hints(serve)["request"].API_KEY: key for key, serve in DECIDED.items()} == {key: key for key in DECIDED}
    dialogue = {1: (17, 17), 2: (7, 7), 17: (1, 1), 18: (0, 4), 36: (0, 2), 58: (0, 0), 59: (0, 1)}
    decided = {key: (p.APIS[key].min_version, p.APIS[key].max_version) for key in DECIDED}
    assert {key: (each.min_version, each.max_version) for key, each in SERVED.items()} == dialogue | decided
    assert {get_type_hints(SERVED[key].handler)["request"].API_KEY for key in dialogue} == set(dialogue)


def test_every_api_the_controller_serves_can_be_refused():
    """One that cannot would cost the broker its connection, and with it what it leads."""
    for key in DECIDED:
        api = p.APIS[key]
        if key in REFUSALS:
            assert isinstance(REFUSALS[key](api.request(), Code.KAFKA_STORAGE_ERROR, "full", api.max_version), api.response)
        else:
            assert api.response(error_code=Code.KAFKA_STORAGE_ERROR).error_code


FULL = {"error_code": Code.KAFKA_STORAGE_ERROR, "error_message": "full"}
CODE = {"error_code": Code.KAFKA_STORAGE_ERROR}


def items_of(kind, **fields):
    """Two items that differ in each of these fields."""
    return [kind(**{name: values[at] for name, values in fields.items()}) for at in (0, 1)]


NAMES, RESOURCES = {"name": "ab"}, {"resource_type": (2, 4), "resource_name": "ab"}
TOPICS = {"name": (None, "b"), "topic_id": (b"i" * 16, bytes(16))}
QUOTAS = {"entity": [[p.ClientQuotaEntityPart(entity_type="user", entity_name=name)] for name in "ab"]}
INCREMENTAL = p.IncrementalAlterConfigsResourceResponse
LISTS = [
    (7, p.CreateTopicsRequest, "topics", p.CreatableTopic, "topics", partial(p.CreatableTopicResult, configs=[]), NAMES),
    (3, p.CreatePartitionsRequest, "topics", p.CreatePartitionsTopic, "results", p.CreatePartitionsTopicResult, NAMES),
    (3, p.CreateAclsRequest, "creations", p.AclCreation, "results", p.AclCreationResult, {}),
    (3, p.DeleteAclsRequest, "filters", p.DeleteAclsFilter, "filter_results", p.DeleteAclsFilterResult, {}),
    (2, p.AlterConfigsRequest, "resources", p.AlterConfigsResource, "responses", p.AlterConfigsResourceResponse, RESOURCES),
    (1, p.IncrementalAlterConfigsRequest, "resources", p.IncrementalAlterConfigsResource, "responses", INCREMENTAL, RESOURCES),
    (6, p.DeleteTopicsRequest, "topics", p.DeleteTopicState, "responses", p.DeletableTopicResult, TOPICS),
    (1, p.AlterClientQuotasRequest, "entries", p.ClientQuotaAlteration, "entries", p.AlteredClientQuota, QUOTAS),
]


@each_row("version, kind, asked, item, answers, result, names", LISTS)
def test_a_refusal_is_of_each_item(version, kind, asked, item, answers, result, names):
    found = REFUSALS[kind.API_KEY](kind(**{asked: items_of(item, **names)}), *FULL.values(), version)
    refused = {name: [value] * 2 for name, value in FULL.items()}
    assert found == p.APIS[kind.API_KEY].response(**{answers: items_of(result, **names, **refused)})


@each_row(
    "version, asked, answer",
    [
        (5, p.DeleteTopicsRequest(topic_names=["a", "b"]), {"responses": [p.DeletableTopicResult(name=each, **FULL) for each in "ab"]}),
        (
            3,
            p.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob"),
            {**CODE, "principal_type": "User", "principal_name": "bob"},
        ),
        (2, p.RenewDelegationTokenRequest(), CODE),
        (2, p.ExpireDelegationTokenRequest(), CODE),
        (0, p.ListPartitionReassignmentsRequest(), {**FULL, "topics": []}),
        (0, p.UnregisterBrokerRequest(), FULL),
        (1, p.UpdateFeaturesRequest(), FULL),
        (
            0,
            p.AlterUserScramCredentialsRequest(
                deletions=items_of(p.ScramCredentialDeletion, **NAMES), upsertions=items_of(p.ScramCredentialUpsertion, name="cb")
            ),
            {"results": [p.AlterUserScramCredentialsResult(user=each, **FULL) for each in "abc"]},
        ),
    ],
)
def test_a_refusal_is_of_the_whole(version, asked, answer):
    assert REFUSALS[asked.API_KEY](asked, *FULL.values(), version) == p.APIS[asked.API_KEY].response(**answer)


@each_row("version, code", [(0, 0), (1, Code.KAFKA_STORAGE_ERROR)])
def test_a_refusal_is_of_each_partition(version, code):
    asked = p.ElectLeadersRequest(topic_partitions=items_of(p.TopicPartitions, topic="ab", partitions=([3, 5], [7])))
    partitions = [[p.PartitionResult(partition_id=each, **FULL) for each in found] for found in ((3, 5), (7,))]
    results = items_of(p.ReplicaElectionResult, topic="ab", partition_result=partitions)
    assert REFUSALS[43](asked, *FULL.values(), version) == p.ElectLeadersResponse(error_code=code, replica_election_results=results)
    moved = [items_of(p.ReassignablePartition, partition_index=each) for each in ((3, 5), (7, 9))]
    refused = [[p.ReassignablePartitionResponse(partition_index=each, **FULL) for each in found] for found in ((3, 5), (7, 9))]
    asked = p.AlterPartitionReassignmentsRequest(topics=items_of(p.ReassignableTopic, **NAMES, partitions=moved))
    responses = items_of(p.ReassignableTopicResponse, **NAMES, partitions=refused)
    assert REFUSALS[45](asked, *FULL.values(), version) == p.AlterPartitionReassignmentsResponse(**FULL, responses=responses)
