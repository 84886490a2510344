"""The controller's lock and log, and those who follow it: the links of brokers without threads."""

import threading
from types import SimpleNamespace

import pytest
from controlling import broker_state, create_topic, topic_request

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.cluster import ClusterImage, ImageListener
from kafkacore.broker.controller import ControllerHost, LocalControllerLink
from kafkacore.broker.controller.envelope import answer_in, answer_of, unwrapped, wrapped
from kafkacore.broker.controller.log import METADATA_TOPIC_ID
from kafkacore.broker.controller.server import ControllerState, api_versions, decide_in_envelope, fetch, list_offsets
from kafkacore.broker.controller.state import Requester, Session
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.timer import LoopTimer
from kafkacore.types import Node
from tests.kit.inside import host_of, lock_of

CONFIG = BrokerConfig()


class LogReader:
    """A follower that reads when the test says so."""

    def __init__(self, host):
        self.host, self.heard = host, []
        self.offset = host.follow(self)[1]

    def applied_offset(self):
        return self.offset

    def records_written(self):
        held = []
        thread = threading.Thread(target=lambda: held.append(not lock_of(self.host).acquire(blocking=False)))
        thread.start()
        thread.join()
        self.heard.append((self.host.end_offset(), self.batches()[-1][-1], held))

    def batches(self):
        return [(each.base_offset, each.next_offset) for each in self.host.batches_from(self.offset)]

    def read(self):
        self.offset = self.batches()[-1][-1]


def test_followers_hear_of_it_under_the_lock_before_the_answer_and_read_at_their_own_pace():
    clock = ManualClock()
    state = broker_state(CONFIG, clock)
    host = host_of(state.controller)
    quick, slow = LogReader(host), LogReader(host)
    first = host.end_offset()
    for nth in range(3):
        _, offset = host.submit(topic_request(f"t{nth}"), 7)
        assert quick.heard[nth] == slow.heard[nth] == (offset, offset, [True])  # replayed and there to be read, the lock held
        assert host.read(lambda image: len(image.topics)) == nth + 1
        state.controller.catch_up()
        quick.read()
    assert quick.batches() == []
    assert slow.batches()[0][0] == first and slow.batches()[-1][-1] == host.end_offset()
    slow.read()
    host.submit(topic_request("u"), 7)
    state.controller.catch_up()
    quick.read()
    assert [each.next_offset for each in host.batches_from(0)] == [host.end_offset()]  # what all have read is dropped
    host.unfollow(slow)  # one that will not come back keeps nothing
    assert host.batches_from(0) == []
    state.ended()


def test_who_waits_for_the_cluster_does_not_hold_the_controllers_lock():
    state = broker_state(CONFIG, ManualClock())
    host = host_of(state.controller)
    looked, found = threading.Event(), []

    def condition(cluster):
        looked.set()
        return "t" in cluster.image.topics

    thread = threading.Thread(target=lambda: found.append(host.wait_until(condition, 60)), daemon=True)
    thread.start()
    assert looked.wait(60)
    create_topic(state.controller, "t", 1)
    thread.join(60)
    assert found == [True]
    state.ended()


class Other:
    """A second broker's image and link; what is left for its thread waits in `posted`."""

    def __init__(self, host):
        self.posted = []
        self.image = ClusterImage(CONFIG, host.cluster_id)
        self.link = LocalControllerLink(host, 2, self.image, LoopTimer(clock=ManualClock()), self.posted.append)


def test_an_image_changes_only_when_its_broker_turns_to_it():
    state = broker_state(CONFIG, ManualClock())
    host = host_of(state.controller)
    other = Other(host)
    before = other.image.next_offset
    create_topic(state.controller, "t", 1)
    create_topic(state.controller, "u", 1)
    assert (other.image.next_offset, len(other.image.topics), len(other.posted)) == (before, 0, 1)  # one message for both
    other.posted.pop()()
    assert (other.image.next_offset, set(other.image.topics)) == (host.end_offset(), {"t", "u"})
    state.ended()


class Busy(ImageListener):
    """Asks for two topics while it hears of the first one, which is one of them."""

    def __init__(self, state):
        self.state, self.heard, self.answers = state, [], []

    def image_changed(self, delta):
        names = [topic.name for topic in delta.created_topics]
        self.heard.append(("begins", *names))
        if names == ["t"]:
            for name in ("t", "u"):
                self.state.controller.submit(topic_request(name), 7, self.answers.append)
            assert self.answers == [] and "u" not in self.state.cluster.topics
        self.heard.append(("ends", *names))


def test_what_a_listener_asks_for_is_applied_and_answered_after_the_change_it_hears_of():
    state = broker_state(CONFIG, ManualClock())
    busy = Busy(state)
    state.cluster.listeners.append(busy)
    create_topic(state.controller, "t", 1)
    assert busy.heard == [("begins", "t"), ("ends", "t"), ("begins", "u"), ("ends", "u")]
    found = [(topic.name, topic.error_code) for answer in busy.answers for topic in answer.topics]
    assert found == [("t", Code.TOPIC_ALREADY_EXISTS), ("u", Code.NONE)]
    state.ended()


def test_who_creates_topics_is_answered_when_all_partitions_are_open():
    state, answers = broker_state(CONFIG, ManualClock()), []
    opening = True
    state.controller.is_opening = lambda: opening
    for name in ("t", "t", "u"):
        state.controller.submit(topic_request(name), 7, answers.append)
    state.controller.opened()
    assert answers == []
    opening = False
    state.controller.opened()
    assert [answer.topics[0].error_code for answer in answers] == [Code.NONE, Code.TOPIC_ALREADY_EXISTS, Code.NONE]
    state.ended()


def test_an_answer_is_given_when_the_image_knows_what_it_tells():
    state = broker_state(CONFIG, ManualClock())
    other, known = Other(host_of(state.controller)), []
    create_topic(state.controller, "before", 1)  # which the other broker has not read yet
    other.link.submit(topic_request("t"), 7, lambda answer: known.append((answer.topics[0].name, set(other.image.topics))))
    assert known == [("t", {"before", "t"})]
    state.ended()


def test_a_controller_in_memory_keeps_no_batch_without_a_follower():
    host = ControllerHost(CONFIG)
    host.submit(topic_request("t"), 7)
    assert host.batches_from(0) == []


class Members:
    """Brokers of one controller, whose timers and messages wait for the test."""

    def __init__(self, *nodes):
        self.clock = ManualClock()
        self.host = ControllerHost(CONFIG, clock=self.clock)
        self.timer = LoopTimer(clock=self.clock)
        self.posted = []
        self.links = {node: self.link(node) for node in nodes}
        for node, link in self.links.items():
            link.start(Node(node, "h", 9000 + node, "rack"))
        self.settle()

    def link(self, node):
        return LocalControllerLink(self.host, node, ClusterImage(CONFIG, self.host.cluster_id), self.timer, self.posted.append)

    def settle(self):
        while self.posted:
            self.posted.pop(0)()

    def pass_by(self, ms):
        self.clock.advance(ms)
        self.timer.advance_clock()
        self.settle()

    def alive(self):
        return self.host.read(lambda image: sorted(image.nodes))


def test_what_a_broker_registers_with():
    members = Members(3)
    broker = members.host.read(lambda image: image.brokers[3])
    assert (broker.id, broker.epoch, broker.rack, broker.fenced) == (3, members.links[3].broker_epoch, "rack", False)
    assert [(each.name, each.host, each.port, each.security_protocol) for each in broker.endpoints] == [("PLAINTEXT", "h", 9003, 0)]
    assert broker.features == members.host.read(lambda image: dict(image.supported_features))
    link, first = members.links[3], broker.epoch
    link.log_dirs = lambda: ([b"1" * 16, b"2" * 16], [b"2" * 16])
    link.close()
    link.start(Node(3, "h", 9003))
    assert link.broker_epoch > first
    assert members.host.read(lambda image: image.brokers[3].log_dirs) == (b"1" * 16, b"2" * 16)
    link.log_dir_failed()
    assert members.host.read(lambda image: image.brokers[3].log_dirs) == (b"1" * 16,)
    with pytest.raises(errors.DuplicateBrokerRegistration):
        members.link(3).start(Node(3, "h", 9103))
    refused = []
    link.submit(p.FetchRequest(), 17, refused.append)
    assert [type(each) for each in refused] == [errors.UnsupportedVersion]


def test_heartbeats_go_on_where_another_broker_could_miss_them(caplog, monkeypatch):
    alone = Members(1)
    assert alone.timer.next_deadline_ms() is None
    members = Members(1, 2)
    beats, submit = [], members.host.submit

    def heard(request, version, requester=None):
        if isinstance(request, p.BrokerHeartbeatRequest):
            beats.append((request.broker_id, members.clock.now_ms()))
            if request.broker_id == 2 and members.clock.now_ms() == begin + CONFIG.broker_heartbeat_interval_ms:
                raise errors.KafkaStorage("full")
        return submit(request, version, requester)

    begin = members.clock.now_ms()
    monkeypatch.setattr(members.host, "submit", heard)
    for _ in range(2):
        members.pass_by(CONFIG.broker_heartbeat_interval_ms - 1)
        members.pass_by(1)
    times = [begin + nth * CONFIG.broker_heartbeat_interval_ms for nth in (1, 1, 2, 2)]
    assert sorted(beats) == sorted(zip((1, 2, 1, 2), times, strict=True))
    assert "broker 2: heartbeat failed: KAFKA_STORAGE_ERROR (56): full" in caplog.text
    members.links[2].fence()
    assert members.alive() == [1]
    members.host.submit(p.UnregisterBrokerRequest(broker_id=2), 0)
    members.pass_by(CONFIG.broker_heartbeat_interval_ms)
    assert "broker 2: heartbeat refused: STALE_BROKER_EPOCH" in caplog.text
    ended = []
    members.links[2].shut_down(lambda: ended.append(2))  # it has nothing of ours left
    members.links[2].shut_down(lambda: ended.append(3))
    assert ended == [2, 3]


def test_a_broker_goes_when_the_others_know_who_leads():
    members, ended = Members(1, 2), []
    members.links[1].submit(topic_request("t", replicas=2), 7, lambda answer: None)
    members.settle()
    leader = members.host.read(lambda image: image.partition("t", 0).leader)
    members.links[leader].shut_down(lambda: ended.append(leader))
    assert (ended, members.alive()) == ([], [1, 2])
    assert members.host.read(lambda image: image.partition("t", 0).leader) == 3 - leader
    members.settle()
    assert (ended, members.alive()) == ([leader], [3 - leader])
    members.links[3 - leader].shut_down(lambda: ended.append("last"))  # nobody else has to know
    assert ended == [leader, "last"]
    for link in members.links.values():
        link.close()
    assert members.alive() == []
    members.pass_by(10 * CONFIG.broker_heartbeat_interval_ms)
    assert members.timer.next_deadline_ms() is None


def test_a_clients_request_goes_through_an_envelope():
    request, asker = topic_request("t"), Requester("alice", "app")
    envelope = wrapped(request, 7, asker)
    assert unwrapped(envelope, 1_000) == (request, 7, 0, asker)
    assert (envelope.client_host_address, envelope.request_data[:8].hex()) == (bytes(4), "0013000700000000")
    assert p.stored.decode_stored(p.stored.DefaultPrincipalData, envelope.request_principal)[:2] == ("User", "alice")
    old = next(api for api in p.APIS.values() if api.min_version)
    heads = [(999, 7), (19, p.APIS[19].max_version + 1), (old.request.API_KEY, old.min_version - 1)]
    wrong = [
        (envelope._replace(request_data=envelope.request_data[:7]), errors.CorruptDataError),
        (envelope._replace(request_principal=None), errors.CorruptDataError),
    ]
    for key, version in heads:
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big")
        wrong.append((envelope._replace(request_data=head + envelope.request_data[4:]), errors.UnsupportedVersion))
    for each, error in wrong:
        with pytest.raises(error):
            unwrapped(each, 1_000)
    answer = p.CreateTopicsResponse(topics=[p.CreatableTopicResult(name="t", error_code=7)])
    made = answer_in(answer, 7, 5)
    assert (made.error_code, made.response_data[:4]) == (0, (5).to_bytes(4, "big"))
    assert answer_of(made, request, 7).topics[0].error_code == 7
    for each, error in (
        (answer, errors.UnknownServer),
        (p.EnvelopeResponse(error_code=Code.STALE_BROKER_EPOCH), errors.StaleBrokerEpoch),
        (p.EnvelopeResponse(response_data=None), errors.CorruptDataError),
    ):
        with pytest.raises(error):
            answer_of(each, request, 7)


def test_an_envelope_is_decided_about_as_what_is_in_it():
    members = Members(1)
    state, call = ControllerState(members.host, members.timer), SimpleNamespace(client_id="broker", version=0)
    made = decide_in_envelope(state, call, wrapped(topic_request("t"), 7, Requester("alice", "app")))
    assert [(each.name, each.error_code) for each in answer_of(made, topic_request("t"), 7).topics] == [("t", 0)]
    again = decide_in_envelope(state, call, wrapped(topic_request("t"), 7, Requester("alice", "app")))
    assert answer_of(again, topic_request("t"), 7).topics[0].error_code == Code.TOPIC_ALREADY_EXISTS
    beat = wrapped(p.BrokerHeartbeatRequest(broker_id=1), 1, Requester("alice", "app"))
    assert decide_in_envelope(state, call, beat).error_code == Code.INVALID_REQUEST
    assert decide_in_envelope(state, call, beat._replace(request_data=b"short")).error_code == Code.CORRUPT_MESSAGE


def test_partitions_count_for_the_quota_of_the_client_that_makes_them():
    """Older clients learn how long to wait, newer ones are refused. Brokers have no quota."""
    members = Members(1)
    entity = [p.ClientQuotaEntityPart(entity_type="user", entity_name="alice")]
    ops = [p.ClientQuotaOp(key="controller_mutation_rate", value=1.0, remove=False)]
    members.host.submit(p.AlterClientQuotasRequest(entries=[p.ClientQuotaAlteration(entity=entity, ops=ops)]), 1)
    alice = Requester("alice", "app")
    seen = []
    for name, version, requester in (("a", 6, alice), ("b", 5, alice), ("c", 6, alice), ("d", 6, Requester("bob", "app")), ("e", 6, None)):
        response, _ = members.host.submit(topic_request(name, partitions=30), version, requester)
        seen.append((response.topics[0].error_code, response.throttle_time_ms > 0))
    assert seen == [(0, False), (0, True), (Code.THROTTLING_QUOTA_EXCEEDED, True), (0, False), (0, False)]
    members.clock.advance(3_600_000)
    response, _ = members.host.submit(topic_request("f"), 6, alice)
    assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 0)


def test_what_the_controllers_listener_answers():
    host = ControllerHost(CONFIG, "c", has_log=True, clock=ManualClock())
    state, call, end = ControllerState(host, LoopTimer(clock=ManualClock())), SimpleNamespace(client_id="broker"), host.end_offset()
    asked = [p.ListOffsetsTopic(name=name, partitions=[p.ListOffsetsPartition(partition_index=1)]) for name in ("__cluster_metadata", "t")]
    parts = [p.ListOffsetsPartitionResponse(partition_index=1, error_code=code, offset=end, leader_epoch=1) for code in (0, 3)]
    assert list_offsets(state, call, p.ListOffsetsRequest(topics=asked)) == p.ListOffsetsResponse(
        topics=[p.ListOffsetsTopicResponse(name=topic.name, partitions=[part]) for topic, part in zip(asked, parts, strict=True)]
    )
    for offset, max_wait_ms, code in ((0, 500, 0), (end, 0, 0), (end + 1, 0, 1)):
        wanted = p.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = p.FetchRequest(max_wait_ms=max_wait_ms, topics=[p.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])])
        answer = fetch(state, call, request)
        (data,) = answer.responses[0].partitions
        assert bool(data.records) == (offset == 0)
        expected = p.PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end,
            aborted_transactions=None,
            records=data.records,
        )
        assert answer == p.FetchResponse(responses=[p.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[expected])])
    versions = api_versions(state, call, p.ApiVersionsRequest())
    found = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
    assert (versions.error_code, found[58], found[62]) == (0, (0, 0), (0, 4))


def test_a_broker_that_catches_up_is_heard_of_by_those_that_leave():
    host, heard = ControllerHost(CONFIG, clock=ManualClock()), []
    state = host.controller.state
    state.sessions[1] = Session(5, 0, metadata_offset=3)
    for node in (1, 2, 3):
        host.when_others_move(node, lambda node=node: heard.append(node))
    for epoch, offset, known in ((5, 4, 4), (5, 2, 4), (6, 9, 4), (4, 9, 4)):
        host.reached(1, epoch, offset)
        assert state.sessions[1].metadata_offset == known
    assert heard == [2, 3]  # each once, and not the one that moved
    host.reached(2, 0, 0)
    assert heard == [2, 3, 1]
