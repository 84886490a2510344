"""How a broker talks to a controller that it reaches over connections: requests over one, the metadata log over another.

    submit(request)  --request, ListOffsets-->  the response, and how far the log then reaches
                     done(response)             when this broker's image has got there
    Fetch from where the image is  ---------->  records, applied in order; then the next Fetch
    FetchSnapshot, piece by piece  ---------->  the state, where the records are gone; then the next Fetch

The question for the end of the log stands behind the request on the same connection and is answered behind it, so its answer covers all
that the request wrote, at no round trip more.

While the controller cannot be reached everything is tried again; the process that started this one says when the controller has
ended for good. A controller that refuses this broker, or its secret, ends it.

Source: kafka.server.{BrokerLifecycleManager, NodeToControllerChannelManagerImpl}, org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafkacore import errors
from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.controller.envelope import answer_of, wrapped
from kafkacore.broker.controller.link import HEARTBEAT_VERSION, REGISTRATION_VERSION, Done, LinkBase
from kafkacore.broker.controller.log import CONTROLLER_ID, METADATA_TOPIC, METADATA_TOPIC_ID
from kafkacore.broker.controller.replay import Replay
from kafkacore.broker.controller.server import FETCH_SNAPSHOT_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION
from kafkacore.broker.controller.snapshots import decode_snapshot
from kafkacore.broker.controller.state import Requester
from kafkacore.broker.image_jump import jump
from kafkacore.broker.peers import PeerClient
from kafkacore.config import BrokerConfig
from kafkacore.config_listeners import Listener
from kafkacore.errors import AuthenticationFailedError, Code, KafkaError
from kafkacore.protocol import (
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    FetchedSnapshotId,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionSnapshotWanted,
    ReplicaState,
    SnapshotId,
    TopicSnapshotWanted,
)
from kafkacore.protocol.schema import Request, Response
from kafkacore.records import read_batches
from kafkacore.timer import LoopTimer, TimerTask
from kafkacore.types import Node

logger = logging.getLogger(__name__)

FETCH_WAIT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
RETRY_MS = 100
SHUTDOWN_RETRY_MS = 10
MAX_FETCH_BYTES = 8 << 20
LATEST = -1
ENVELOPE_VERSION = 0
LOG_LANE = "metadata"


class RemoteControllerLink(LinkBase):
    """To a controller behind a port."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        image: ClusterImage,
        timer: LoopTimer,
        peers: PeerClient,
        on_refused: Callable[[], None],
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Asks nothing yet.

        Args:
            config: intervals.
            node_id: this broker.
            image: this broker's.
            timer: of the owner thread.
            peers: reaches the controller as node `CONTROLLER_ID`.
            on_refused: the controller will not have this broker.
            on_caught_up: called once after each start, when the image has this broker's registration. What the image of an earlier life, or
                an empty one, says must not be served: the partitions may have other leaders by now.
        """
        super().__init__(node_id, image, timer)
        self._config = config
        self._peers = peers
        self._on_refused = on_refused
        self._on_caught_up = on_caught_up
        self._replay = Replay()  # as old as the image
        self._has_caught_up = False
        self._alive = False
        self._fenced = True
        self._beating = False
        self._retries: set[TimerTask] = set()
        self._beat_again = False  # there is news that the heartbeat under way does not tell

    # ---- requests

    def submit(self, request: Request, version: int, done: Done, requester: Requester | None = None) -> None:
        answer: list[Response] = []

        def answered(result: Response | KafkaError) -> None:
            if requester is not None and not isinstance(result, KafkaError):
                try:
                    result = answer_of(result, request, version)
                except KafkaError as error:
                    result = error
            if isinstance(result, KafkaError):
                done(result)
            else:
                answer.append(result)

        def reached(result: Response | KafkaError) -> None:
            if not answer:
                return  # the request failed and `done` knows
            if not isinstance(result, ListOffsetsResponse):
                done(result if isinstance(result, KafkaError) else errors.UnknownServer("the controller answered something else"))
                return
            self._waiting.append((result.topics[0].partitions[0].offset, answer[0], done))
            self._settle()

        end = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        question = ListOffsetsRequest(replica_id=self._node_id, topics=[ListOffsetsTopic(name=METADATA_TOPIC, partitions=[end])])
        if requester is None:
            self._peers.send(CONTROLLER_ID, request, version, answered, REQUEST_TIMEOUT_MS)
        else:
            self._peers.send(CONTROLLER_ID, wrapped(request, version, requester), ENVELOPE_VERSION, answered, REQUEST_TIMEOUT_MS)
        self._peers.send(CONTROLLER_ID, question, LIST_OFFSETS_VERSION, reached, REQUEST_TIMEOUT_MS)

    # ---- the metadata log

    def _fetch(self) -> None:
        if not self._alive:
            return
        wanted = FetchPartition(partition=0, fetch_offset=self._image.next_offset, partition_max_bytes=MAX_FETCH_BYTES)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self.broker_epoch),
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
        )
        self._peers.send(CONTROLLER_ID, request, FETCH_VERSION, self._fetched, FETCH_WAIT_MS + REQUEST_TIMEOUT_MS, LOG_LANE)

    def _fetched(self, response: Response | KafkaError) -> None:
        if not self._alive:
            return
        if isinstance(response, KafkaError):
            self._later(self._fetch)
            return
        if not isinstance(response, FetchResponse) or response.error_code or response.responses[0].partitions[0].error_code:
            self._refused(f"the metadata log cannot be read: {response}")
            return
        partition = response.responses[0].partitions[0]
        if partition.snapshot_id.end_offset >= 0:
            self._fetch_snapshot(partition.snapshot_id, bytearray())
            return
        records = partition.records

        def apply() -> None:
            if isinstance(records, memoryview) and len(records):
                for batch in read_batches(records):
                    # Offsets asked for only ever stand between batches, so a batch is applied as a whole.
                    self._image.apply(self._replay.batch(batch), batch.last_offset + 1)

        self._follow(apply)

    def _follow(self, apply: Callable[[], object]) -> None:
        """Changes the image, and asks for what comes then."""
        self._applying = True
        try:
            apply()
        except Exception:
            logger.exception("broker %d cannot follow the metadata log", self._node_id)
            self._refused("its image of the cluster is broken")
            return
        finally:
            self._applying = False
        self._settle()
        self._fetch()
        if not self._has_caught_up and self._image.next_offset > self.broker_epoch:
            self._has_caught_up = True
            self._on_caught_up()  # before the heartbeat, whose answer makes this broker one that others connect to
        if self._fenced and self._image.next_offset > self.broker_epoch:
            self._beat()

    def _fetch_snapshot(self, snapshot: SnapshotId, held: bytearray) -> None:
        """The next piece of a snapshot; the image becomes what it says when it is whole."""
        if not self._alive:
            return

        def fetched(response: Response | KafkaError) -> None:
            if not self._alive:
                return
            if not isinstance(response, FetchSnapshotResponse):
                self._later(lambda: self._fetch_snapshot(snapshot, held))
                return
            piece = response.topics[0].partitions[0]
            data = piece.unaligned_records
            if piece.error_code or not isinstance(data, memoryview) or not len(data) or piece.position != len(held):
                self._later(self._fetch)  # it is gone, and a newer one is there
                return
            held.extend(data)
            if len(held) < piece.size:
                self._fetch_snapshot(snapshot, held)
            else:
                self._follow(lambda: self._jump(snapshot.end_offset, bytes(held)))

        named = FetchedSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        wanted = PartitionSnapshotWanted(partition=0, current_leader_epoch=snapshot.epoch, snapshot_id=named, position=len(held))
        request = FetchSnapshotRequest(
            cluster_id=self._image.cluster_id,
            replica_id=self._node_id,
            max_bytes=MAX_FETCH_BYTES,
            topics=[TopicSnapshotWanted(name=METADATA_TOPIC, partitions=[wanted])],
        )
        self._peers.send(CONTROLLER_ID, request, FETCH_SNAPSHOT_VERSION, fetched, REQUEST_TIMEOUT_MS, LOG_LANE)

    def _jump(self, end_offset: int, data: bytes) -> None:
        target = ClusterImage(self._image.config, self._image.cluster_id, self._image.supported_features)
        target.apply(decode_snapshot(data), end_offset)
        jump(self._image, target)
        self._replay = Replay()

    # ---- life

    def _later(self, again: Callable[[], None]) -> None:
        def run() -> None:
            self._retries.discard(task)
            again()

        task = TimerTask(RETRY_MS, run)
        self._retries.add(task)
        self._timer.add(task)

    def start(self, node: Node, listeners: Sequence[Listener] = ()) -> None:
        self._alive = True
        self._fenced = True
        self._has_caught_up = False
        self._register(self._registration(node, listeners, self._image.cluster_id))

    def _register(self, request: BrokerRegistrationRequest) -> None:
        if not self._alive:
            return

        def registered(response: Response | KafkaError) -> None:
            if not self._alive:
                return
            if isinstance(response, AuthenticationFailedError):
                self._refused(f"the controller at its port is another one: {response}")
            elif isinstance(response, BrokerRegistrationResponse) and not response.error_code:
                self.broker_epoch = response.broker_epoch
                self._fetch()
            elif isinstance(response, BrokerRegistrationResponse) and response.error_code != Code.DUPLICATE_BROKER_REGISTRATION:
                self._refused(f"the controller refuses the registration: {Code(response.error_code).name}")
            else:  # it is not there yet, or has not noticed that the last incarnation is gone
                self._later(lambda: self._register(request))

        self._peers.send(CONTROLLER_ID, request, REGISTRATION_VERSION, registered, REQUEST_TIMEOUT_MS)

    def _beat(self) -> None:
        """One heartbeat at a time; the next is planned when it is answered."""
        self._cancel_heartbeat()
        self._beat_again = self._beating
        if not self._alive or self._beating:
            return
        self._beating = True
        self._peers.send(CONTROLLER_ID, self._heartbeat_request(), HEARTBEAT_VERSION, self._beaten, self._config.broker_session_timeout_ms)

    def _beaten(self, response: Response | KafkaError) -> None:
        self._beating = False
        if not self._alive:
            return
        if not isinstance(response, BrokerHeartbeatResponse):
            self._later(self._beat)
            return
        if response.error_code:
            self._refused(f"the controller refuses the heartbeat: {Code(response.error_code).name}")
            return
        self._fenced = response.is_fenced
        if self._on_shutdown is not None and response.should_shut_down:
            done, self._on_shutdown = self._on_shutdown, None
            self._alive = False
            done()
            return
        if self._beat_again:
            self._beat()
            return
        self._plan_heartbeat(self._config.broker_heartbeat_interval_ms if self._on_shutdown is None else SHUTDOWN_RETRY_MS)

    def shut_down(self, done: Callable[[], None]) -> None:
        if not self._alive or self.broker_epoch < 0:
            done()
            return
        self._on_shutdown = done
        self._beat()

    def _refused(self, reason: str) -> None:
        logger.warning("broker %d ends: %s", self._node_id, reason)
        self._alive = False
        self._on_shutdown = None
        self._on_refused()

    def close(self) -> None:
        self._alive = False
        self._on_shutdown = None
        self._cancel_heartbeat()
        for task in self._retries:  # else they would run beside those of the next start
            task.cancel()
        self._retries.clear()
