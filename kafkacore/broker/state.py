"""What a handler gets: the broker's parts, and one request's circumstances."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.delayed import DelayedOperation, DelayedOperations
from kafkacore.broker.replicas import ReplicaManager
from kafkacore.broker.sessions import FetchSessionCache
from kafkacore.config import BrokerConfig
from kafkacore.protocol.schema import Response


class Outcome(enum.Enum):
    """What a handler returns instead of a response."""

    LATER = "the response comes through Call.respond"
    SILENT = "this request has no response"
    CLOSE = "the connection is closed"


class BrokerState:
    """The parts of one broker. Everything is used by the broker's thread only."""

    def __init__(self, config: BrokerConfig, node_id: int, cluster: ClusterImage, api_versions: Mapping[int, tuple[int, int]]) -> None:
        """Builds the parts and joins the cluster's image.

        Args:
            config: settings.
            node_id: this broker.
            cluster: the image it shares with the other brokers of its cluster.
            api_versions: the advertised versions, (min, max) by API key.
        """
        self.config = config
        self.node_id = node_id
        self.cluster = cluster
        self.api_versions = dict(api_versions)
        self.fetches = DelayedOperations()
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
    """

    __slots__ = ("client_id", "now_ms", "operation", "respond", "version", "wall_ms")

    def __init__(self, version: int, client_id: str | None, now_ms: int, wall_ms: int, respond: Callable[[Response], None]) -> None:
        self.version = version
        self.client_id = client_id
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.respond = respond
        self.operation: DelayedOperation | None = None
