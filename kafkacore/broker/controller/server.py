"""The controller behind a port, for brokers in processes of their own.

    broker --registration, heartbeats, what it passes on--> answered at once
    broker --Fetch of __cluster_metadata, from where it is--> records, at the latest after the request's max wait; or a snapshot's name
    broker --FetchSnapshot--> a piece of its file
    broker's connection ends --> fenced at once if it has a process of its own: a kill is noticed before the session expires

Only brokers of the same machine are meant to connect, so the port is open on loopback alone; and only those of this cluster, so each has to
prove that it has the cluster's secret (`access.py`) before it is asked anything but ApiVersions.

Source: kafka.server.{ControllerServer, ControllerApis}.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafkacore import protocol
from kafkacore.broker.controller.access import ControllerAddress, ControllerSessions, new_secret
from kafkacore.broker.controller.envelope import answer_in, unwrapped
from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.controller.log import METADATA_TOPIC, METADATA_TOPIC_ID
from kafkacore.broker.controller.snapshots import SnapshotId
from kafkacore.broker.controller.state import Requester, code_of
from kafkacore.broker.controller.writer import SERVED as DECIDED
from kafkacore.broker.handlers.forwarding import REFUSALS
from kafkacore.broker.handlers.security import sasl_authenticate, sasl_handshake
from kafkacore.broker.served import MAX_REQUEST_ELEMENTS, Served
from kafkacore.broker.socket_server import Server
from kafkacore.broker.state import Call, LateAnswer, Outcome
from kafkacore.clock import Clock
from kafkacore.config_listeners import Listener
from kafkacore.errors import Code, KafkaError
from kafkacore.net.channel import ConnectionId
from kafkacore.protocol import (
    APIS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
    PartitionSnapshot,
    TopicSnapshot,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
FETCH_SNAPSHOT_VERSION = 1
LIST_OFFSETS_VERSION = 7
MIN_LOOK_MS = 10


class ControllerState:
    """What the handlers share.

    Attributes:
        host: the controller.
        config: its settings.
        timer: of the server's loop.
        waiting: fetches that reached the end of the log, each with what answers it.
    """

    def __init__(self, host: ControllerHost, timer: LoopTimer) -> None:
        self.host = host
        self.config = host.config
        self.timer = timer
        self.waiting: dict[LateAnswer, Callable[[], None]] = {}

    def records_written(self) -> None:
        """Answers the fetches that waited for more."""
        waiting, self.waiting = self.waiting, {}
        for answer in waiting.values():
            answer()


def decide(state: ControllerState, call: Call, request: Request) -> Response:
    """Every API the controller decides about. What cannot be written is refused, and nothing has changed."""
    return _decide(state, call, request, call.version, None)


def decide_in_envelope(state: ControllerState, call: Call, request: EnvelopeRequest) -> EnvelopeResponse:
    """Envelope: the same for a request of a client, whose quota counts."""
    try:
        inner, version, correlation_id, requester = unwrapped(request, MAX_REQUEST_ELEMENTS)
    except KafkaError as error:
        logger.error("Envelope of %s failed: %s", call.client_id, error)
        return EnvelopeResponse(error_code=code_of(error))
    if inner.API_KEY not in REFUSALS:
        return EnvelopeResponse(error_code=Code.INVALID_REQUEST)
    return answer_in(_decide(state, call, inner, version, requester), version, correlation_id)


def _decide(state: ControllerState, call: Call, request: Request, version: int, requester: Requester | None) -> Response:
    try:
        response, _ = state.host.submit(request, version, requester)
    except KafkaError as error:
        logger.error("%s of %s failed: %s", APIS[request.API_KEY].name, call.client_id, error)
        refuse = REFUSALS.get(request.API_KEY)
        if refuse is not None:
            return refuse(request, code_of(error), error.message, version)
        between_brokers: Any = APIS[request.API_KEY].response
        refused: Response = between_brokers(error_code=code_of(error))
        return refused
    return response


def api_versions(state: ControllerState, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """ApiVersions: what this listener serves."""
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=each.min_version, max_version=each.max_version) for key, each in SERVED.items()],
    )


def list_offsets(state: ControllerState, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """ListOffsets: the end of the metadata log. A broker asks behind a request of its own, and then knows how far the answer reaches."""
    end_offset, epoch = state.host.end_offset(), state.host.epoch()
    topics = []
    for topic in request.topics:
        code = Code.NONE if topic.name == METADATA_TOPIC else Code.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code, offset=end_offset, leader_epoch=epoch)
            for each in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def fetch(state: ControllerState, call: Call, request: FetchRequest) -> FetchResponse | Outcome:
    """Fetch v17, the metadata log only, without sessions. The offset says how far the broker has applied it."""
    wanted = request.topics[0].partitions[0] if request.topics and request.topics[0].partitions else None
    if wanted is None or request.topics[0].topic_id != METADATA_TOPIC_ID or wanted.partition != 0:
        return FetchResponse(error_code=Code.UNKNOWN_TOPIC_ID)
    state.host.reached(request.replica_state.replica_id, request.replica_state.replica_epoch, wanted.fetch_offset)
    snapshot = state.host.snapshot_for(wanted.fetch_offset)
    if snapshot is not None:
        named = protocol.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        data = PartitionData(partition_index=0, snapshot_id=named, aborted_transactions=None, records=b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])
    if wanted.fetch_offset >= state.host.end_offset() and request.max_wait_ms > 0:
        late = LateAnswer(call)
        expiry = TimerTask(request.max_wait_ms, lambda: answer())

        def answer() -> None:
            state.waiting.pop(late, None)
            expiry.cancel()
            late.respond(lambda: _read(state.host, request, wanted))

        state.waiting[late] = answer
        state.timer.add(expiry)
        return Outcome.LATER
    return _read(state.host, request, wanted)


def _read(host: ControllerHost, request: FetchRequest, wanted: FetchPartition) -> FetchResponse:
    records, end_offset = host.read_log(wanted.fetch_offset, wanted.partition_max_bytes)
    data = PartitionData(
        partition_index=0,
        error_code=Code.NONE if wanted.fetch_offset <= end_offset else Code.OFFSET_OUT_OF_RANGE,
        high_watermark=end_offset,
        last_stable_offset=end_offset,
        aborted_transactions=None,
        records=[*records] or b"",
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])


def fetch_snapshot(state: ControllerState, call: Call, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """FetchSnapshot v0-1: a piece of a snapshot's file."""
    topics = []
    max_bytes = request.max_bytes
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            snapshot = SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
            data, size, code = b"", 0, Code.NONE
            try:
                if topic.name != METADATA_TOPIC or wanted.partition != 0:
                    code = Code.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    data, size = state.host.read_snapshot(snapshot, wanted.position, max_bytes)
                    max_bytes -= len(data)
            except KafkaError as error:
                code = code_of(error)
            answer = PartitionSnapshot(
                index=wanted.partition,
                error_code=code,
                snapshot_id=wanted.snapshot_id,
                size=size,
                position=wanted.position,
                unaligned_records=data,
            )
            partitions.append(answer)
        topics.append(TopicSnapshot(name=topic.name, partitions=partitions))
    return FetchSnapshotResponse(topics=topics)


SERVED: dict[int, Served] = {
    1: Served(FETCH_VERSION, FETCH_VERSION, fetch),
    2: Served(LIST_OFFSETS_VERSION, LIST_OFFSETS_VERSION, list_offsets),
    17: Served(1, 1, sasl_handshake),
    18: Served(0, 4, api_versions),
    36: Served(0, 2, sasl_authenticate),
    58: Served(0, 0, decide_in_envelope),
    59: Served(0, 1, fetch_snapshot),
    **{key: Served(APIS[key].min_version, APIS[key].max_version, decide) for key in DECIDED},
}


class ControllerServer(Server):
    """The controller's listener, a follower of its log."""

    def __init__(
        self,
        host: ControllerHost,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        fences_disconnected: bool = True,
    ) -> None:
        """Prepares the listener; `start` opens the port.

        Args:
            host: the controller, with a directory or `has_log`: followers read its log.
            address: to listen on.
            port: 0 lets the system choose.
            clock: the time.
            fences_disconnected: a connection that ends is a broker that died. False where connections break for other reasons: as in Kafka
                only the end of a session counts then.
        """
        listener = Listener("CONTROLLER", address, port, "SASL_PLAINTEXT")
        super().__init__(SERVED, host.config, name="controller", listeners=[listener], clock=clock)
        self._secret = new_secret()
        self.authentication = ControllerSessions(self._secret, self.clock)
        self._host = host
        self._fences_disconnected = fences_disconnected
        timer = LoopTimer(clock=self.clock)
        self.state: ControllerState = ControllerState(host, timer)
        self.clocked = [timer]
        self._notified = False
        host.follow(self)

    @property
    def broker_address(self) -> ControllerAddress:
        """What brokers need to reach it, once its port is open. Who has it is a broker of the cluster."""
        return ControllerAddress(self.host, self.port, self._host.cluster_id, self._secret)

    # ---- a follower of the log

    def applied_offset(self) -> int:
        """Nothing is kept in memory for the sake of this follower."""
        return 2**63 - 1

    def records_written(self) -> None:
        if not self._notified:
            self._notified = True
            self.post(self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._notified = False
        self.state.records_written()

    # ---- brokers and their connections

    def _reset_connections(self) -> None:
        super()._reset_connections()
        self._brokers: dict[ConnectionId, tuple[int, int]] = {}

    def _handle(self, connection: ConnectionId, call: Call, api_key: int, request: Request) -> None:
        if isinstance(request, BrokerRegistrationRequest):
            respond = call.respond

            def registered(response: Response | None) -> None:
                if isinstance(response, BrokerRegistrationResponse) and not response.error_code:
                    self._brokers[connection] = request.broker_id, response.broker_epoch
                respond(response)

            call.respond = registered
        elif isinstance(request, BrokerHeartbeatRequest):
            self._brokers[connection] = request.broker_id, request.broker_epoch
        super()._handle(connection, call, api_key, request)

    def _forget(self, connection: ConnectionId) -> None:
        super()._forget(connection)
        broker = self._brokers.pop(connection, None)
        if self._fences_disconnected and broker is not None and broker not in self._brokers.values():
            self._host.broker_lost(*broker)

    def _began(self) -> None:
        self._look()

    def _look(self) -> None:
        """A broker that hangs keeps its connection; its heartbeats end. The next look is when the first session would."""
        wait_ms = self._host.do_what_is_due()
        self._check: TimerTask = TimerTask(max(wait_ms, MIN_LOOK_MS), self._look)
        self.state.timer.add(self._check)

    def _ending(self) -> None:
        self._check.cancel()
        self.state.waiting.clear()
