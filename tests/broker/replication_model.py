"""A cluster without sockets, threads or time of its own: brokers' states, the real controller, and a network that the test moves.

Requests between brokers go through their wire format and wait in lanes, as on connections: in order within a lane, in any order between
lanes, until the test delivers them or cuts the lane. What the controller decides waits for every broker in a queue of its own.
"""

import functools
import random
from collections import deque

from controlling import connect

from kafkacore import protocol as p
from kafkacore.broker.controller import ControllerHost
from kafkacore.broker.fetcher import ReplicaFetchers
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import DisconnectError
from kafkacore.records import read_batches
from kafkacore.types import Node
from tests.kit.batches import T0, batch
from tests.kit.wire import produce_request

TOPIC = "t"


class Lane:
    """One connection from a broker to another."""

    def __init__(self):
        self.to_serve, self.answers, self.open_calls, self.pending = deque(), deque(), [], deque()


class Model:
    def __init__(self, brokers=3, **config):
        self.clock = ManualClock(wall_ms=T0)
        self.config = BrokerConfig(**config)
        self.host = ControllerHost(self.config, clock=self.clock)
        self.lanes = {}
        self.news = {node: deque() for node in range(1, brokers + 1)}
        self.states = {}
        self.alive = set()
        self.acked = {}  # offset -> value
        self.written = 0
        for node in self.news:
            state = BrokerState(
                self.config, node, self.host.cluster_id, functools.partial(connect, self.host), API_VERSIONS, self.clock,
                post=self.news[node].append,
            )  # fmt: skip
            state.replicas.fetchers = ReplicaFetchers(
                node, self.config, self.clock, state.timer, functools.partial(self.send, node),
                lambda state=state: state.controller.broker_epoch, state.replicas.changed, API_VERSIONS,
                state.throttled_replication, random.Random(node),
            )  # fmt: skip
            self.states[node] = state
        for node in self.news:
            self.start(node)
        replicas = [p.CreatableReplicaAssignment(partition_index=0, broker_ids=list(self.news))]
        topic = p.CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=replicas)
        self.submit(p.CreateTopicsRequest(topics=[topic], timeout_ms=0))

    def submit(self, request):
        return self.host.submit(request, request.MAX_VERSION)[0]

    # ---- brokers

    def start(self, node):
        self.alive.add(node)
        self.states[node].controller.start(Node(node, "127.0.0.1", 9090 + node))
        self.states[node].replicas.started()

    def kill(self, node):
        state = self.states[node]
        state.replicas.stopping()
        state.cancel_waits()
        state.sessions.clear()
        self.alive.discard(node)
        for source, target, lane in list(self.lanes):
            if node in (source, target):
                self.cut((source, target, lane))
        state.controller.close()

    def partition(self, node):
        return self.states[node].replicas.partitions.get((TOPIC, 0))

    @property
    def registration(self):
        return self.host.read(lambda image: image.partition(TOPIC, 0))

    # ---- the network

    def send(self, source, target, request, version, done, timeout_ms, lane=""):
        key = source, target, lane
        connection = self.lanes.setdefault(key, Lane())
        connection.pending.append(done)
        connection.to_serve.append((b"".join(bytes(part) for part in p.encode_request(request, version, 1, "peer"))[4:], version))

    def moves(self):
        """What could happen next on the network: (lane key, what)."""
        return [
            (key, what)
            for key, lane in sorted(self.lanes.items())
            for what in ("serve", "answer")
            if (lane.to_serve and not lane.open_calls if what == "serve" else lane.answers)
        ]

    def move(self, key, what):
        (self.serve if what == "serve" else self.answer)(key)

    def serve(self, key):
        lane, target = self.lanes[key], key[1]
        if target not in self.alive:
            self.cut(key)
            return
        frame, version = lane.to_serve.popleft()
        header, request = p.decode_request(memoryview(frame))

        def respond(response):
            lane.open_calls.clear()
            encoded = b"".join(bytes(part) for part in p.encode_response(response, version, 1))[4:]
            lane.answers.append((header.request_api_key, version, encoded))

        call = Call(version, header.client_id, self.clock.now_ms(), self.clock.wall_ms(), respond, self.fail)
        lane.open_calls.append(call)
        result = SERVED[header.request_api_key].handler(self.states[target], call, request)
        if not isinstance(result, Outcome):
            respond(result)

    def fail(self):
        raise AssertionError("a late answer failed")

    def answer(self, key):
        lane = self.lanes[key]
        api_key, version, frame = lane.answers.popleft()
        done = lane.pending.popleft()
        view = memoryview(frame)
        _, start = p.decode_response_header(api_key, version, view)
        done(p.APIS[api_key].response.decode(version, view, start))

    def cut(self, key):
        """The connection breaks: requests that were not answered may or may not have been served."""
        lane = self.lanes.pop(key)
        for call in lane.open_calls:
            if call.operation is not None:
                call.operation.abandon()
        for done in lane.pending:
            done(DisconnectError("cut"))

    # ---- time and news

    def tell(self, node):
        if self.news[node] and node in self.alive:
            self.news[node].popleft()()

    def advance(self, ms):
        self.clock.advance(ms)
        for node in sorted(self.alive):
            for each in self.states[node].clocked:
                each.advance_clock()

    # ---- clients

    def produce(self, node, acks=-1, records=1, timeout_ms=10_000):
        """A producer's batch, sent to a broker that may or may not lead."""
        values = [b"%d" % (self.written + nth) for nth in range(records)]
        self.written += records
        request = produce_request(batch(values), topic=TOPIC, acks=acks)._replace(timeout_ms=timeout_ms)

        def respond(response):
            answer = response.responses[0].partition_responses[0]
            if answer.error_code == 0 and acks == -1:
                for nth, value in enumerate(values):
                    first = self.acked.setdefault(answer.base_offset + nth, value)
                    # An unclean election may take an acknowledged record away, and another takes its offset.
                    assert first == value or self.config.unclean_leader_election_enable, "two acknowledged records at one offset"

        frame = b"".join(bytes(part) for part in p.encode_request(request, 9, 1, "producer"))[4:]
        _, decoded = p.decode_request(memoryview(frame))
        call = Call(9, "producer", self.clock.now_ms(), self.clock.wall_ms(), respond, self.fail)
        result = SERVED[0].handler(self.states[node], call, decoded)
        if not isinstance(result, Outcome):
            respond(result)

    # ---- what must hold

    def records(self, node):
        log = self.partition(node).log
        found = {}
        for view in log.read(log.start_offset, 1 << 30, log.end_offset, True):
            for each in read_batches(view):
                for record in each.records():
                    found[record.offset] = record.value
        return found

    def settle(self, rounds=150):
        """Everybody is back, nothing is lost any more: replication must come to an end."""
        for node in self.news:
            if node not in self.alive:
                self.start(node)
        for _ in range(rounds):
            for node in self.news:
                while self.news[node]:
                    self.tell(node)
            moved = self.moves()
            for key, what in moved:
                if key in self.lanes and (key, what) in self.moves():
                    self.move(key, what)
            if not moved:
                self.advance(100)
            if self.settled:
                return

    @property
    def settled(self):
        partitions = [self.partition(node) for node in self.news]
        ends = {each.log.end_offset for each in partitions}
        return len(self.registration.isr) == len(self.news) and len(ends) == 1 and {each.high_watermark for each in partitions} == ends
