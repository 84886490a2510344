"""What a handler gets: the broker's parts, and one request's circumstances."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol

from kafkacore.broker.assignments import DirectoryAssignments
from kafkacore.broker.authentication import Session
from kafkacore.broker.authorizer import Authorizer
from kafkacore.broker.cluster import FEATURES, ClusterImage, ImageDelta, ImageListener
from kafkacore.broker.configs import BrokerLayers, Resource, effective, static_settings
from kafkacore.broker.controller.link import ControllerLink, Post
from kafkacore.broker.controller.state import Requester
from kafkacore.broker.delayed import DelayedFetch, DelayedSessionFetch, purgatory
from kafkacore.broker.emulation import EMULATIONS, NEWEST, Emulation
from kafkacore.broker.fault_handler import contained
from kafkacore.broker.fetcher import ReplicaFetchers
from kafkacore.broker.groups.service import GroupCoordinator
from kafkacore.broker.isr import IsrProposals
from kafkacore.broker.log import LogManager
from kafkacore.broker.peers import PeerClient
from kafkacore.broker.producer_ids import ProducerIds
from kafkacore.broker.replicas import ReplicaManager
from kafkacore.broker.replication_quota import ReplicationQuotas
from kafkacore.broker.sessions import FetchSessionCache
from kafkacore.broker.throttling import Metered, Throttling, name_of
from kafkacore.broker.token_keys import TokenKeys
from kafkacore.broker.txns.service import TransactionService
from kafkacore.broker.worker import Worker
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import ANONYMOUS, super_users
from kafkacore.config_listeners import joined
from kafkacore.errors import ConfigError, KafkaError
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer
from kafkacore.types import Node

logger = logging.getLogger(__name__)


class Clocked(Protocol):
    """Something with deadlines that the broker's loop looks after."""

    def next_deadline_ms(self) -> int | None:
        """When to look again; None when nothing waits."""

    def advance_clock(self) -> bool:
        """Does what is due."""


class Operation(Protocol):
    """What a request waits in."""

    def is_completed(self) -> bool:
        """Whether the wait has ended."""

    def abandon(self) -> None:
        """The peer has closed and reads no answer."""


class Outcome(enum.Enum):
    """What a handler returns instead of a response."""

    LATER = "the response comes through Call.respond"
    SILENT = "this request has no response"
    CLOSE = "the connection is closed"


Connect = Callable[["BrokerState"], ControllerLink]
"""Makes a broker's link to its controller out of the broker's other parts."""


class DynamicSettings(ImageListener):
    """Has altered settings obeyed: those of topics in their logs, those of this broker, or of all brokers, in `BrokerState.config`."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def image_changed(self, delta: ImageDelta) -> None:
        state = self._state
        if not delta.configs:
            return
        names = {(Resource.BROKER, ""), (Resource.BROKER, str(state.node_id))}
        if delta.configs & names:
            layers = state.config_layers()
            try:
                state.config = effective(state.static_config, layers.dynamic_default, layers.dynamic)
            except ConfigError as error:  # another broker, started with other settings, found nothing wrong with them
                logger.error("broker %d: the altered settings do not fit those it was started with: %s", state.node_id, error)
            state.cluster.set_config(state.config)
            state.replicas.config = state.config
            state.groups.set_config(state.config)
            state.throttled_replication.update(state.config)
            state.altered()
        for partition in list(state.replicas.partitions.values()):
            partition.log.config = partition.config


class BrokerState:
    """The parts of one broker. Everything is used by the broker's thread only.

    Attributes:
        config, static_config: its settings, with and without what was altered while it runs.
        altered: is called when settings were.
        halt: is called when this broker cannot go on.
        cluster: this broker's image of the cluster; it follows the controller's log.
        authorizer: who may do what; None where everybody may do everything.
        token_keys: what makes the secrets of delegation tokens; None where they are disabled.
        played: the release whose message format and errors it has.
        quotas: how long clients have to wait that take more than their share.
        throttled_replication: the rates of replicas that are moved.
        controller: the way to the controller, who alone changes the cluster.
        producer_ids: ids for idempotent producers.
        clock: the time.
        post: leaves a message for the broker's thread, from any thread.
        timer: whatever has to happen later.
        clocked: what the loop looks after.
        peers: requests to the other brokers.
        transactions: the transaction coordinator, and what leaders ask it.
        fetches, produces, deletions: requests that wait, under the keys (topic, partition) of what they wait for, or their fetch session.
        follower_fetches: the last Fetch of each follower that had to wait.
        groups: the group coordinator.
        worker, cleaner, checker: threads beside the broker's: for the disk, for compaction, and for batches that take long to check.
        checking: the requests that wait for a check.
        is_up: the start has ended.
    """

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        cluster_id: str,
        connect: Connect,
        api_versions: Mapping[int, tuple[int, int]],
        clock: Clock,
        *,
        controller_node: Node | None = None,
        log_dirs: Sequence[str | os.PathLike[str]] | None = None,
        supported_features: Mapping[str, tuple[int, int]] = FEATURES,
        played: Emulation = EMULATIONS[NEWEST],
        peer_versions: Mapping[int, tuple[int, int]] | None = None,
        post: Post = lambda message: message(),
    ) -> None:
        """Builds the parts and begins to follow the controller.

        Args:
            config: settings.
            node_id: this broker.
            cluster_id: of its cluster.
            connect: makes the link to the controller.
            api_versions: the advertised versions, (min, max) by API key.
            clock: for what waits.
            controller_node: where the controller listens if it is reached over a connection; `peers` reaches it by its id.
            log_dirs: where the logs lie; None keeps them in memory.
            supported_features: levels of Kafka's features, (lowest, highest) by name.
            played: the release that the broker plays.
            peer_versions: what brokers serve each other, (min, max) by API key; the advertised versions if left out.
            post: hands a function to the broker's thread.

        Raises:
            UsageError: a log directory is in use, or another broker's.
            KafkaStorage: no log directory can be used.
        """
        self.config = self.static_config = config
        self.altered: Callable[[], None] = lambda: None
        self.halt: Callable[[], None] = lambda: None
        self.node_id = node_id
        self.cluster = ClusterImage(config, cluster_id, supported_features)
        self.authorizer: Authorizer | None = None
        if config.authorizer_class_name:
            self.authorizer = Authorizer(super_users(config.super_users), config.allow_everyone_if_no_acl_found)
            self.cluster.listeners.append(self.authorizer)
        self.token_keys = TokenKeys(config.delegation_token_secret_key) if config.delegation_token_secret_key else None
        self.api_versions = dict(api_versions)
        self.played = played
        self.clock = clock
        self.timer = LoopTimer(clock=clock)
        self.fetches = purgatory("Fetch", clock)
        self.produces = purgatory("Produce", clock)
        self.deletions = purgatory("DeleteRecords", clock)
        self.follower_fetches: dict[int, DelayedFetch | DelayedSessionFetch] = {}
        self.controller_node = controller_node
        self.peers = PeerClient(node_id, config, clock, self._node)
        self.sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self.quotas = Throttling(config, self.sessions)
        self.cluster.listeners.append(self.quotas)
        self.throttled_replication = ReplicationQuotas(config, clock)
        self.worker = Worker(post, f"kafkacore-worker-{node_id}")
        self.cleaner = Worker(post, f"kafkacore-cleaner-{node_id}")
        self.checker = Worker(post, f"kafkacore-checks-{node_id}")
        self.checking: set[Operation] = set()
        self.logs = LogManager(config, log_dirs, self.worker, clock, self.cleaner)
        self._open_logs()
        self.replicas = ReplicaManager(node_id, self.cluster, config, clock, self.timer, self.logs, self._partition_changed)
        self.replicas.note_change = self.sessions.changed
        self.logs.on_dir_failure = lambda keys: post(lambda: self._dir_failed(keys))
        self.cluster.listeners += [_PeersInImage(self.peers), self.replicas, _StrayLogs(self)]
        self.groups = GroupCoordinator(config, self.replicas, self.cluster, self.timer, clock)
        self.cluster.listeners.append(self.groups)
        self.transactions = TransactionService(
            config,
            node_id,
            self.cluster,
            self.replicas,
            self.timer,
            clock,
            lambda done: self.producer_ids.take(done),
            self.groups.write_marker,
            self.peers,
        )
        purgatories = (self.fetches, self.produces, self.deletions, *self.groups.purgatories.both())
        self.clocked: list[Clocked] = [*purgatories, self.timer, self.peers, self.logs]
        self.cluster.listeners.append(DynamicSettings(self))
        self.post = post
        self.is_up = False
        self.controller = connect(self)
        self.controller.log_dirs = lambda: ([], []) if self.logs.is_offline else self.logs.directory_ids()
        self.controller.is_opening = self.replicas.is_opening
        self.replicas.on_opened = self.controller.opened
        self.producer_ids = ProducerIds(self.controller, node_id)
        self.replicas.assignments = DirectoryAssignments(node_id, self.controller.submit, self._epoch, self.timer)
        self.replicas.proposals = IsrProposals(node_id, self.controller.submit, self._epoch, clock, self.timer, self.replicas.changed)
        self.replicas.fetchers = ReplicaFetchers(
            node_id,
            config,
            clock,
            self.timer,
            self.peers.send,
            self._epoch,
            self.replicas.changed,
            peer_versions or self.api_versions,
            self.throttled_replication,
        )

    def _node(self, node_id: int) -> Node | None:
        """Where a broker listens, or a controller that is reached over a connection."""
        controller = self.controller_node
        return controller if controller is not None and node_id == controller.id else self.cluster.nodes.get(node_id)

    def _dir_failed(self, keys: list[tuple[str, int]]) -> None:
        """A log directory is offline. Others are to lead what lies there. A broker without any left has others lead all; alone it stops, or
        answers with the error."""
        self.replicas.storage_failed(keys)
        if not self.logs.is_offline:
            self.controller.log_dir_failed()
        elif len(self.cluster.nodes) > 1:
            logger.error("broker %d has no log directory left and leads nothing until it starts again", self.node_id)
            self.controller.fence()
        elif self.is_up:  # else `Broker.start` says so
            if self.static_config.log_dirs_failure_halts:
                logger.error("broker %d stops: all its log directories have failed: %s", self.node_id, self.logs.failures())
                self.halt()
            else:
                logger.error("broker %d has no log directory left and takes no records until it starts again", self.node_id)

    def _epoch(self) -> int:
        return self.controller.broker_epoch

    def config_layers(self) -> BrokerLayers:
        """This broker's settings by layer."""
        stored = self.cluster.configs
        facts = {"broker.id": str(self.node_id), "node.id": str(self.node_id), "process.roles": "broker"}
        registered = self.cluster.brokers.get(self.node_id)
        if registered is not None:
            told = (f"{each.name}://{joined(each.host, each.port)}" for each in registered.endpoints)
            facts["listeners"] = facts["advertised.listeners"] = ",".join(told)
            facts["inter.broker.listener.name"] = registered.endpoints[0].name
        if self.logs.directories:
            facts["log.dirs"] = ",".join(str(log_dir.path) for log_dir in self.logs.directories)
        return BrokerLayers(
            stored.get((Resource.BROKER, str(self.node_id)), {}),
            stored.get((Resource.BROKER, ""), {}),
            static_settings(self.static_config, facts),
        )

    def _open_logs(self) -> None:
        self.logs.start({"cluster.id": self.cluster.cluster_id, "node.id": str(self.node_id)})

    def prepare(self) -> None:
        """The broker is about to start: opens the logs that `ended` closed."""
        self.is_up = False
        if not self.logs.is_open:
            self._open_logs()
            self.replicas.reopen()

    def ended(self, clean: bool = True) -> None:
        """The broker has stopped: closes the logs.

        Args:
            clean: see `LogManager.close`.
        """
        self.logs.broker_epoch = self.controller.broker_epoch
        self.logs.close(clean)

    def started(self) -> None:
        """The broker begins to serve."""
        self.replicas.started()

    def stopping(self) -> None:
        """The broker stops serving: what waits in its coordinators is answered, while the connections are still open."""
        self.replicas.stopping()

    def _partition_changed(self, key: tuple[str, int]) -> None:
        self.produces.check_and_complete(key)
        self.deletions.check_and_complete(key)
        self.fetches.check_and_complete(key)
        for session in self.sessions.take_waiting():
            self.fetches.check_and_complete(session)

    def cancel_waits(self) -> None:
        """The broker stops: no client is left to be answered."""
        self.fetches.cancel_all()
        self.follower_fetches.clear()
        self.produces.cancel_all()
        self.deletions.cancel_all()
        for operation in list(self.checking):
            operation.abandon()


class _PeersInImage(ImageListener):
    """Tells the client of other brokers which of them are back."""

    def __init__(self, peers: PeerClient) -> None:
        self._peers = peers

    def image_changed(self, delta: ImageDelta) -> None:
        for node in delta.brokers:
            if node in delta.image.nodes:
                with contained("the requests that wait for broker %d", node):
                    self._peers.is_back(node)


class _StrayLogs(ImageListener):
    """Has logs deleted that are no longer this broker's, once its image has its registration: then nothing of before it is missing."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def image_changed(self, delta: ImageDelta) -> None:
        state = self._state
        broker = delta.image.brokers.get(state.node_id) if state.node_id in delta.brokers else None
        if broker is not None and not broker.fenced and broker.epoch == state.controller.broker_epoch and state.logs.is_open:
            state.logs.remove_strays(self._is_held)

    def _is_held(self, topic_id: bytes, index: int) -> bool:
        topic = self._state.cluster.topics_by_id.get(topic_id)
        return topic is not None and index < len(topic.partitions) and self._state.node_id in topic.partitions[index].replicas


class WholeRequest:
    """What the parts of one long request share.

    Attributes:
        request: the request before it was cut.
        answers: of the authorizer, by operation, type and name of the resource: a change of the ACLs counts from the next request on.
        is_transactional: whether a Produce request holds a batch of a transaction; None until a handler asks.
    """

    __slots__ = ("answers", "is_transactional", "request")

    def __init__(self, request: Request) -> None:
        """Nothing is known of it yet."""
        self.request = request
        self.answers: dict[tuple[int, int, str], bool] = {}
        self.is_transactional: bool | None = None


class Call:
    """The circumstances of one request.

    Attributes:
        version: of the API.
        client_id: as the client calls itself.
        client_host: where it connects from, as Kafka writes it: "/127.0.0.1", "/0:0:0:0:0:0:0:1".
        now_ms: monotonic time.
        wall_ms: time since the epoch.
        respond: sends the response, for handlers that returned `Outcome.LATER`; None for a request that has no response.
        operation: what the request waits in; ended when its connection goes away.
        fail: closes the connection because of a bug met while answering late.
        listener: the name of the listener that the connection came in by; empty where there is one alone.
        session: the authentication of the connection; None where everybody is let in.
        principal: who asks, as ACLs name it: "User:alice", or "User:ANONYMOUS" where the listener asks for no user.
        connection: the id of the connection; None without a connection.
        meter: of the time that is spent on the request; None while no client has a quota.
        elements: how many elements the arrays of the request have together.
        slice: slice(call, steps) runs what is left to do in steps, between which other connections are served: a generator that returns
            what a handler returns. None where nothing else is to be served.
        whole: the request that this one is a part of; None for a request that is not cut.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "connection",
        "elements",
        "fail",
        "listener",
        "meter",
        "now_ms",
        "operation",
        "principal",
        "respond",
        "session",
        "slice",
        "version",
        "wall_ms",
        "whole",
    )

    def __init__(
        self,
        version: int,
        client_id: str | None,
        now_ms: int,
        wall_ms: int,
        respond: Callable[[Response | None], None],
        fail: Callable[[], None],
        client_host: str = "",
    ) -> None:
        self.version = version
        self.client_host = client_host
        self.client_id = client_id
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.respond = respond
        self.fail = fail
        self.operation: Operation | None = None
        self.session: Session | None = None
        self.principal = ANONYMOUS
        self.listener = ""
        self.connection: int | str | None = None
        self.elements = 0
        self.meter: Metered | None = None
        self.slice: Callable[[Call, Generator[None, None, Response | Outcome]], None] | None = None
        self.whole: WholeRequest | None = None

    def answer(self, make: Callable[[], Response]) -> None:
        """Makes and sends a late response. A failure must not reach who completed the wait: another connection's request, or the loop."""
        try:
            self.respond(make())
        except Exception:
            logger.exception("a late answer to client %s failed", self.client_id)
            self.fail()


class LateAnswer:
    """The answer to a request that a coordinator gives at once or later, at most once."""

    __slots__ = ("_call", "_completed")

    def __init__(self, call: Call) -> None:
        """Makes the call wait for `respond`; the handler returns `Outcome.LATER`."""
        self._call = call
        self._completed = False
        call.operation = self

    def respond(self, make: Callable[[], Response]) -> None:
        """Answers; nothing happens if the request has been answered or its connection is closed."""
        if not self._completed:
            self._completed = True
            self._call.answer(make)

    def is_completed(self) -> bool:
        """Whether it has been answered, or needs no answer any more."""
        return self._completed

    def abandon(self) -> None:
        """The peer has closed."""
        self._completed = True


def forward(
    state: BrokerState,
    call: Call,
    request: Request,
    version: int,
    answer: Callable[[Response | KafkaError], Response],
    *,
    counts: bool = False,
    names_client: bool = False,
) -> Outcome:
    """Has the controller carry out a request, and answers when this broker knows the result.

    Args:
        state: this broker's.
        call: whom to answer.
        request: for the controller.
        version: of its API.
        answer: makes the response out of the controller's, or out of the reason why it did not come.
        counts: the client wants it, so that its controller_mutation_rate holds, if anybody has one.
        names_client: the controller has to know who the client is.
    """
    late = LateAnswer(call)

    def done(result: Response | KafkaError) -> None:
        late.respond(lambda: answer(result))

    if names_client or (counts and state.quotas.mutation):
        state.controller.submit(request, version, done, Requester(name_of(call.principal), call.client_id or ""))
    else:
        state.controller.submit(request, version, done)
    return Outcome.LATER
