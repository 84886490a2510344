"""The controller: a machine with one writer, whose only state is the image that its own records make.

    records, response = controller.handle(request, version, now_ms)     # decides, changes nothing
    controller.replay(records)                                          # once they are in the log

Source: org.apache.kafka.controller.QuorumController.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkacore import errors
from kafkacore.broker.cluster import FEATURES, ClusterImage, ImageDelta
from kafkacore.broker.controller import acls, brokers, configs, credentials, features, partitions, quotas, tokens, topics
from kafkacore.broker.controller.state import ControllerState, Permits, Requester, Written
from kafkacore.broker.quotas import MUTATION, MutationQuota
from kafkacore.config import BrokerConfig
from kafkacore.errors import UsageError
from kafkacore.protocol.metadata_log import FeatureLevelRecord, MetadataRecord
from kafkacore.protocol.schema import Request

Serve = Callable[[ControllerState, Any, int, int], Written]

SERVED: dict[int, Serve] = {
    19: topics.create_topics,
    20: topics.delete_topics,
    30: acls.create_acls,
    31: acls.delete_acls,
    33: configs.alter_configs,
    37: topics.create_partitions,
    38: tokens.create_delegation_token,
    39: tokens.renew_delegation_token,
    40: tokens.expire_delegation_token,
    43: partitions.elect_leaders,
    44: configs.incremental_alter_configs,
    45: partitions.alter_partition_reassignments,
    46: partitions.list_partition_reassignments,
    49: quotas.alter_client_quotas,
    51: credentials.alter_user_scram_credentials,
    56: partitions.alter_partition,
    57: features.update_features,
    62: brokers.register_broker,
    63: brokers.broker_heartbeat,
    64: brokers.unregister_broker,
    67: brokers.allocate_producer_ids,
    73: brokers.assign_replicas_to_dirs,
}
"""What the controller serves, by API key."""
FIRST_STRICT_VERSIONS = {19: 6, 20: 5, 37: 3}
"""From which version on a client knows THROTTLING_QUOTA_EXCEEDED: CreateTopics, DeleteTopics, CreatePartitions (KIP-599)."""


class Controller:
    """Decides about one cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str | None = None,
        state: ControllerState | None = None,
        supported_features: Mapping[str, tuple[int, int]] = FEATURES,
    ) -> None:
        """An empty cluster.

        Args:
            config: the settings new topics and brokers are judged by.
            cluster_id: a random one if left out.
            state: for tests: with a placer or ids of their own.
            supported_features: (lowest, highest) level by name.
        """
        self.state = state or ControllerState(ClusterImage(config, cluster_id, supported_features), config)
        self._mutations = MutationQuota(config.controller_quota_window_num, config.controller_quota_window_size_seconds)

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is."""
        return self.state.image

    def bootstrap(self) -> list[MetadataRecord]:
        """The first records of a new cluster: the features at their highest levels. Source: BootstrapMetadata."""
        supported = self.image.supported_features
        return [FeatureLevelRecord(name=name, feature_level=highest) for name, (_, highest) in supported.items() if highest]

    def finalize(self, levels: Mapping[str, int]) -> list[MetadataRecord]:
        """Features at other levels than the highest ones, to play an older cluster.

        Args:
            levels: by name.

        Raises:
            UsageError: a feature or level that is not supported.
        """
        supported = self.image.supported_features
        for name, level in levels.items():
            low, high = supported.get(name, (0, 0 if name in FEATURES else -1))
            if not low <= level <= high:
                raise UsageError(f"feature {name!r} cannot have level {level}; supported are {dict(supported)}")
        return [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in levels.items()
            if self.image.features.get(name, 0) != level
        ]

    def handle(self, request: Request, version: int, now_ms: int, requester: Requester | None = None, wall_ms: int = 0) -> Written:
        """Decides about a request.

        Args:
            request: of one of the APIs in `SERVED`.
            version: of the API.
            now_ms: monotonic time.
            requester: the client it comes from; None if it comes from a broker.
            wall_ms: time since the epoch.

        Returns:
            The records that carry it out, and the response.

        Raises:
            UnsupportedVersion: the controller does not serve the API.
        """
        serve = SERVED.get(request.API_KEY)
        if serve is None:
            raise errors.UnsupportedVersion(f"the controller does not serve API {request.API_KEY}")
        self.state.permits = self._permits(request, version, now_ms, requester)
        self.state.requester, self.state.wall_ms = requester, wall_ms
        return serve(self.state, request, version, now_ms)

    def _permits(self, request: Request, version: int, now_ms: int, requester: Requester | None) -> Permits:
        if requester is None or not self._mutations:
            return Permits()
        strict = version >= FIRST_STRICT_VERSIONS.get(request.API_KEY, 0)
        return Permits(lambda partitions: self._mutations.take(*requester, partitions, now_ms, strict))

    def replay(self, records: Sequence[MetadataRecord], next_offset: int) -> ImageDelta:
        """Applies records that are in the log.

        Args:
            records: in its order.
            next_offset: of what follows them.
        """
        delta = self.image.apply(records, next_offset)
        brokers.track(self.state, delta)
        configs.track(self.state, delta)
        if delta.quotas:
            self._mutations.limits.update(self.image.client_quotas, MUTATION)
        return delta
