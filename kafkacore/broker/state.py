"""What a handler gets: the broker's parts, and one request's circumstances."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping

from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.delayed import DelayedFetch, fetch_purgatory
from kafkacore.broker.replicas import ReplicaManager
from kafkacore.broker.sessions import FetchSessionCache
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.protocol.schema import Response

logger = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """What a handler returns instead of a response."""

    LATER = "the response comes through Call.respond"
    SILENT = "this request has no response"
    CLOSE = "the connection is closed"


class BrokerState:
    """The parts of one broker. Everything is used by the broker's thread only."""

    def __init__(
        self, config: BrokerConfig, node_id: int, cluster: ClusterImage, api_versions: Mapping[int, tuple[int, int]], clock: Clock
    ) -> None:
        """Builds the parts and joins the cluster's image.

        Args:
            config: settings.
            node_id: this broker.
            cluster: the image it shares with the other brokers of its cluster.
            api_versions: the advertised versions, (min, max) by API key.
            clock: for what waits.
        """
        self.config = config
        self.node_id = node_id
        self.cluster = cluster
        self.api_versions = dict(api_versions)
        self.fetches = fetch_purgatory(clock)
        self.sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self.replicas = ReplicaManager(node_id, self.fetches.check_and_complete)
        for topic in cluster.topics.values():
            self.replicas.topic_created(topic)
        cluster.listeners.append(self.replicas)


class Call:
    """The circumstances of one request.

    Attributes:
        version: of the API.
        client_id: as the client calls itself.
        now_ms: monotonic time.
        wall_ms: time since the epoch.
        respond: sends the response, for handlers that returned `Outcome.LATER`.
        operation: what the request waits in; ended when its connection goes away.
        fail: closes the connection because of a bug met while answering late.
    """

    __slots__ = ("client_id", "fail", "now_ms", "operation", "respond", "version", "wall_ms")

    def __init__(
        self,
        version: int,
        client_id: str | None,
        now_ms: int,
        wall_ms: int,
        respond: Callable[[Response], None],
        fail: Callable[[], None],
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.respond = respond
        self.fail = fail
        self.operation: DelayedFetch | None = None

    def answer(self, make: Callable[[], Response]) -> None:
        """Makes and sends a late response. A failure must not reach who completed the wait: another connection's request, or the loop."""
        try:
            self.respond(make())
        except Exception:
            logger.exception("a late answer to client %s failed", self.client_id)
            self.fail()
