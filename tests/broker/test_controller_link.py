"""The controller's lock and log, and those who follow it: the links of brokers without threads."""

import threading

from controlling import broker_state, create_topic, topic_request

from kafkacore.broker.cluster import ClusterImage, ImageListener
from kafkacore.broker.controller import ControllerHost, LocalControllerLink
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.timer import LoopTimer
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
