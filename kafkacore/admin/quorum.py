"""The controllers' quorum, the cluster's features, and brokers that do not come back.

Source: Kafka's KafkaAdminClient.{describeFeatures, updateFeatures} (KIP-584), {describeMetadataQuorum} (KIP-836), {addRaftVoter,
removeRaftVoter} (KIP-853), {unregisterBroker} (KIP-500).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import AdminBase, ItemResults, complete, moved
from kafkacore.protocol import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeQuorumRequest,
    FeatureUpdateKey,
    QuorumPartition,
    QuorumTopic,
    RaftVoterListener,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from kafkacore.types import Node

_METADATA_TOPIC = "__cluster_metadata"
_UPGRADES = {"upgrade": 1, "safe_downgrade": 2, "unsafe_downgrade": 3}
_CLIENT = "kafkacore"


class VersionRange(NamedTuple):
    """Levels of a feature, both ends included."""

    lowest: int
    highest: int


class FeatureDescription(NamedTuple):
    """The features of a cluster.

    Attributes:
        finalized: by name, the levels in force.
        epoch: of the finalized levels; None where the cluster has none.
        supported: by name, the levels that the broker that answered can do.
    """

    finalized: dict[str, VersionRange]
    epoch: int | None
    supported: dict[str, VersionRange]


class FeatureUpdate(NamedTuple):
    """A level for a feature.

    Attributes:
        level: 0 turns the feature off.
        kind: upgrade; safe_downgrade, which loses no metadata; unsafe_downgrade.
    """

    level: int
    kind: str = "upgrade"


class QuorumReplica(NamedTuple):
    """A controller or broker that follows the metadata log; times are None where the broker does not know them."""

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class QuorumDescription(NamedTuple):
    """The quorum of the metadata log.

    Attributes:
        leader_id: the active controller.
        leader_epoch, high_watermark: of the log.
        voters: the controllers that vote.
        observers: those that follow only, brokers first of all.
        nodes: by id, where a voter listens, by listener name; empty before Kafka 3.9.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    nodes: dict[int, dict[str, Node]]


class QuorumAdmin(AdminBase):
    """The calls about controllers, features and the brokers' registration."""

    def describe_features(self, *, timeout: float | None = None) -> FeatureDescription:
        """The features of the cluster and their levels, as metadata.version.

        Args:
            timeout: seconds.

        Returns:
            Without features before Kafka 2.7.
        """

        def build(version: int) -> ApiVersionsRequest:
            return ApiVersionsRequest(client_software_name=_CLIENT, client_software_version="0")

        response = self._ask(ApiVersionsRequest, build, self._timeout_ms(timeout))
        errors.raise_for(response.error_code, api="ApiVersions")
        return FeatureDescription(
            {each.name: VersionRange(each.min_version_level, each.max_version_level) for each in response.finalized_features},
            response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
            {each.name: VersionRange(each.min_version, each.max_version) for each in response.supported_features},
        )

    def update_features(
        self, updates: Mapping[str, int | FeatureUpdate], *, validate_only: bool = False, timeout: float | None = None
    ) -> ItemResults[str, None]:
        """Gives features another level.

        Args:
            updates: by name the level, for an upgrade, or a `FeatureUpdate`.
            validate_only: check only.
            timeout: seconds.

        Returns:
            By feature. Typical errors: InvalidUpdateVersion, FeatureUpdateFailed, InvalidRequest. Since Kafka 4.0 all are updated or none.
        """
        wanted = {name: FeatureUpdate(given) if isinstance(given, int) else given for name, given in updates.items()}
        for name, update in wanted.items():
            if update.kind not in _UPGRADES or update.level < 0:
                raise errors.UsageError(f"{name}: an update is {' or '.join(_UPGRADES)} to a level of 0 or more, not {update!r}")
        if not wanted:
            return ItemResults({}, {})
        timeout_ms = self._timeout_ms(timeout)

        def build(version: int) -> UpdateFeaturesRequest:
            if version == 0 and validate_only:
                raise errors.UnsupportedVersion("the broker cannot check an update only", api="UpdateFeatures")
            entries = [
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=update.level,
                    allow_downgrade=version == 0 and update.kind != "upgrade",
                    upgrade_type=_UPGRADES[update.kind] if version else 1,
                )
                for name, update in wanted.items()
            ]
            return UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=entries, validate_only=validate_only)

        response = self._ask(UpdateFeaturesRequest, build, timeout_ms, to_controller=True, refused=moved)
        if response.error_code:
            failed = {
                name: errors.from_code(response.error_code, response.error_message, api="UpdateFeatures") for name in wanted
            }
            return ItemResults({}, failed)
        if not response.results:  # version 2 on: one answer for all
            return ItemResults(dict.fromkeys(wanted), {})
        found = {
            each.feature: errors.from_code(each.error_code, each.error_message, api="UpdateFeatures") if each.error_code else None
            for each in response.results
        }
        worked = {name: None for name, error in found.items() if error is None}
        return complete(ItemResults(worked, {name: e for name, e in found.items() if e is not None}), wanted, "UpdateFeatures")

    def describe_quorum(self, *, timeout: float | None = None) -> QuorumDescription:
        """The controllers, and how far each has followed the metadata log.

        Args:
            timeout: seconds.

        Raises:
            errors.ClusterAuthorization: this client may not describe the cluster.
        """

        def build(version: int) -> DescribeQuorumRequest:
            return DescribeQuorumRequest(topics=[QuorumTopic(topic_name=_METADATA_TOPIC, partitions=[QuorumPartition(partition_index=0)])])

        response = self._ask(DescribeQuorumRequest, build, self._timeout_ms(timeout))
        errors.raise_for(response.error_code, response.error_message, api="DescribeQuorum")
        found = [each for topic in response.topics if topic.topic_name == _METADATA_TOPIC for each in topic.partitions]
        if not found:
            raise errors.IncompleteAnswerError("the answer has no result", topic=_METADATA_TOPIC, partition=0, api="DescribeQuorum")
        log = found[0]
        errors.raise_for(log.error_code, log.error_message, api="DescribeQuorum")
        nodes = {
            node.node_id: {each.name: Node(node.node_id, each.host, each.port, None) for each in node.listeners} for node in response.nodes
        }
        return QuorumDescription(
            log.leader_id, log.leader_epoch, log.high_watermark, _replicas(log.current_voters), _replicas(log.observers), nodes
        )

    def add_raft_voter(
        self,
        voter_id: int,
        directory_id: bytes,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Has a controller vote that follows already.

        Args:
            voter_id, directory_id: of the controller, as `describe_quorum` shows it among the observers.
            listeners: where it listens: (host, port) by listener name.
            cluster_id: of the cluster that is meant; None for any.
            timeout: seconds.

        Raises:
            errors.UnsupportedVersion: the cluster's voters are fixed (kraft.version 0).
            errors.DuplicateVoter: it votes already.
        """
        timeout_ms = self._timeout_ms(timeout)
        places = [RaftVoterListener(name=name, host=host, port=port) for name, (host, port) in listeners.items()]

        def build(version: int) -> AddRaftVoterRequest:
            return AddRaftVoterRequest(
                cluster_id=cluster_id, timeout_ms=timeout_ms, voter_id=voter_id, voter_directory_id=directory_id, listeners=places
            )

        response = self._ask(AddRaftVoterRequest, build, timeout_ms)
        errors.raise_for(response.error_code, response.error_message, api="AddRaftVoter")

    def remove_raft_voter(
        self, voter_id: int, directory_id: bytes, *, cluster_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Has a controller vote no longer.

        Args:
            voter_id, directory_id: of the controller, as `describe_quorum` shows it among the voters.
            cluster_id: of the cluster that is meant; None for any.
            timeout: seconds.

        Raises:
            errors.UnsupportedVersion: the cluster's voters are fixed (kraft.version 0).
            errors.VoterNotFound: it does not vote.
        """

        def build(version: int) -> RemoveRaftVoterRequest:
            return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)

        response = self._ask(RemoveRaftVoterRequest, build, self._timeout_ms(timeout))
        errors.raise_for(response.error_code, response.error_message, api="RemoveRaftVoter")

    def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Makes the cluster forget a broker that will not come back.

        Args:
            broker_id: of a broker that has stopped; one that runs registers again.
            timeout: seconds.

        Raises:
            errors.BrokerIdNotRegistered: the cluster has no such broker.
        """
        response = self._ask(
            UnregisterBrokerRequest,
            lambda version: UnregisterBrokerRequest(broker_id=broker_id),
            self._timeout_ms(timeout),
            to_controller=True,
            refused=moved,
        )
        errors.raise_for(response.error_code, response.error_message, api="UnregisterBroker", broker=broker_id)


def _replicas(found: Iterable[Any]) -> list[QuorumReplica]:
    return [
        QuorumReplica(
            each.replica_id,
            bytes(each.replica_directory_id),
            each.log_end_offset,
            each.last_fetch_timestamp if each.last_fetch_timestamp >= 0 else None,
            each.last_caught_up_timestamp if each.last_caught_up_timestamp >= 0 else None,
        )
        for each in found
    ]
