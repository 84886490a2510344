"""kafka-python's calls about settings, features and log directories.

Source: kafka.admin._configs, kafka.admin._cluster, kafka-python 3.0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkacore import protocol as p
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.admin_base import AdminBase, as_dict, by_topic, check
from kafkacore.compat.kafka.admin_topics import shown_config
from kafkacore.compat.kafka.admin_types import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    UpdateFeatureType,
)
from kafkacore.compat.kafka.structs import TopicPartitionReplica
from kafkacore.types import TopicPartition

_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


def _given(request: Any, version: int) -> Any:
    """The same request for every version."""
    return request


class ConfigAdmin(AdminBase):
    """The calls about settings."""

    def _ask_about(self, resources: Sequence[ConfigResource], request: Callable[[list[ConfigResource]], Any]) -> list[Any]:
        """Asks brokers about themselves and any broker about the rest."""
        groups: dict[int | None, list[ConfigResource]] = {}
        for each in resources:
            node_id = None
            if each.resource_type in _OF_BROKERS:
                try:
                    node_id = int(each.name)
                except ValueError:
                    raise ValueError("Broker resource names must be an integer or a string represented integer") from None
            groups.setdefault(node_id, []).append(each)
        answers = []
        for node_id, group in groups.items():
            made = request(group)
            answers.append(self._send(type(made), functools.partial(_given, made), node_id=node_id))
        return answers

    def describe_configs(
        self, config_resources: Sequence[ConfigResource], include_synonyms: bool = False, config_filter: Any = "modified"
    ) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
        """Settings in force.

        Args:
            config_resources: whose; `configs` names the settings, None for all.
            include_synonyms: show the layers.
            config_filter: modified, dynamic, default, static or all.

        Returns:
            By kind ("topic"), name and setting.
        """
        wanted = ConfigFilterType.build_from(config_filter)

        def request(group: list[ConfigResource]) -> p.DescribeConfigsRequest:
            entries = [
                p.DescribeConfigsResource(
                    resource_type=each.resource_type,
                    resource_name=str(each.name),
                    configuration_keys=None if each.configs is None else list(each.configs),
                )
                for each in group
            ]
            return p.DescribeConfigsRequest(resources=entries, include_synonyms=include_synonyms)

        found: dict[str, dict[str, Any]] = {}
        for answer in self._ask_about(config_resources, request):
            for result in answer.results:
                check([(result.error_code, result.error_message, f"describing {result.resource_name}")])
                configs = dict(shown_config(as_dict(config)) for config in result.configs)
                kind = ConfigResourceType(result.resource_type).name.lower()
                found.setdefault(kind, {})[result.resource_name] = {n: c for n, c in configs.items() if not _left_out(c, wanted)}
        return found

    def list_config_resources(self, resource_types: Iterable[Any] | None = None) -> dict[str, list[str]]:
        """What has settings, or can have them: names by kind.

        Args:
            resource_types: kinds; None for all.
        """
        wanted = [ConfigResourceType.value_for(each) for each in resource_types or ()]
        request = p.ListConfigResourcesRequest(resource_types=wanted)
        response = self._send(p.ListConfigResourcesRequest, lambda _: request)
        check([(response.error_code, None, "listing resources")])
        found: dict[str, list[str]] = {}
        for each in response.config_resources:
            found.setdefault(ConfigResourceType(each.resource_type).name.lower(), []).append(each.resource_name)
        return found

    def alter_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Changes settings; what is not named stays.

        Args:
            config_resources: `configs` holds values, or (AlterConfigOp, value), by name.
            validate_only: check only.
            raise_on_unknown: ask first which settings there are.
            incremental: False allows SET only; what is not named stays as well.

        Returns:
            By kind and name "OK" or why not.

        Raises:
            ValueError: a setting is not known, or its change is not allowed.
        """
        if raise_on_unknown:
            self._check_known(config_resources)
        if incremental is False:
            for change in (change for each in config_resources for change in map(_alteration, _pairs(each.configs))):
                if change.config_operation != AlterConfigOp.SET:
                    operation = AlterConfigOp(change.config_operation)
                    raise ValueError(f"Non-incremental AlterConfigsRequest does not support operation {operation} (SET only)")

        def request(group: list[ConfigResource]) -> p.IncrementalAlterConfigsRequest:
            entries = [
                p.IncrementalAlterConfigsResource(
                    resource_type=each.resource_type, resource_name=str(each.name), configs=list(map(_alteration, _pairs(each.configs)))
                )
                for each in group
            ]
            return p.IncrementalAlterConfigsRequest(resources=entries, validate_only=validate_only)

        found: dict[str, dict[str, str]] = {}
        for answer in self._ask_about(config_resources, request):
            for each in answer.responses:
                result = str(errors.for_code(each.error_code)(each.error_message)) if each.error_code else "OK"
                found.setdefault(ConfigResourceType(each.resource_type).name.lower(), {})[each.resource_name] = result
        return found

    def reset_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Takes settings back to their defaults: those that `configs` names. Else as `alter_configs`."""
        resets = [
            ConfigResource(each.resource_type, each.name, dict.fromkeys(each.configs or (), (AlterConfigOp.DELETE, None)))
            for each in config_resources
        ]
        return self.alter_configs(resets, validate_only, raise_on_unknown, incremental)

    def _check_known(self, resources: Sequence[ConfigResource]) -> None:
        known = self.describe_configs([ConfigResource(each.resource_type, each.name) for each in resources], config_filter="dynamic")
        for each in resources:
            unknown = set(each.configs or ()) - set(known[each.resource_type.name.lower()][str(each.name)])
            if unknown:
                raise ValueError(f"Unrecognized configs: {unknown}")

    # -- features and directories -------------------------------------------------------------------------------------------------

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """Features that brokers have, and those that are final, with their levels.

        Args:
            send_request_to_controller: ask the controller.
        """
        request = p.ApiVersionsRequest(client_software_name="kafkacore", client_software_version="0")
        response = self._send(p.ApiVersionsRequest, lambda _: request, to_controller=send_request_to_controller)
        check([(response.error_code, None, "asking for features")])
        found: dict[str, dict[str, Any]] = {}
        for each in response.supported_features or ():
            found.setdefault(each.name, {})["supported"] = (each.min_version, each.max_version)
        for each in response.finalized_features or ():
            entry = found.setdefault(each.name, {})
            entry["finalized"] = (each.min_version_level, each.max_version_level)
            entry["finalized_epoch"] = None if response.finalized_features_epoch < 0 else response.finalized_features_epoch
        return found

    def update_features(self, feature_updates: Mapping[str, Any], validate_only: bool = False, timeout_ms: int = 60_000) -> dict[str, str]:
        """Sets levels of features.

        Args:
            feature_updates: by name a level, or (UpdateFeatureType, level).
            validate_only: check only.
            timeout_ms: how long.

        Returns:
            By name "OK" or why not.
        """
        if not isinstance(feature_updates, dict):
            raise TypeError("feature_updates must be a dict of levels, or (type, level), by feature")
        updates = []
        for name, spec in feature_updates.items():
            kind, level = spec if isinstance(spec, tuple) else (UpdateFeatureType.UPGRADE, spec)
            number = UpdateFeatureType.value_for(kind)
            updates.append(p.FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=number))
        request = p.UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=updates, validate_only=validate_only)
        response = self._send(p.UpdateFeaturesRequest, lambda _: request, timeout_ms, to_controller=True)
        check([(response.error_code, response.error_message, "updating features")])
        found = {
            each.feature: str(errors.for_code(each.error_code)(each.error_message)) if each.error_code else "OK"
            for each in response.results or ()
        }
        return {name: found.get(name, "OK") for name in feature_updates}

    def alter_replica_log_dirs(self, replica_assignments: Mapping[Any, str]) -> dict[TopicPartitionReplica, Any]:
        """Moves replicas between directories of their brokers.

        Args:
            replica_assignments: by TopicPartitionReplica the directory.

        Returns:
            By replica an error class, NoError where it was accepted.
        """
        by_broker: dict[int, dict[str, list[TopicPartition]]] = {}
        for given, path in replica_assignments.items():
            replica = TopicPartitionReplica(*given)
            tps = by_broker.setdefault(replica.broker_id, {}).setdefault(path, [])
            tps.append(TopicPartition(replica.topic, replica.partition))
        found: dict[TopicPartitionReplica, Any] = {}
        for node_id, paths in by_broker.items():
            dirs = [
                p.AlterReplicaLogDir(
                    path=path,
                    topics=[p.AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in by_topic(tps).items()],
                )
                for path, tps in paths.items()
            ]
            request = p.AlterReplicaLogDirsRequest(dirs=dirs)
            response = self._send(p.AlterReplicaLogDirsRequest, functools.partial(_given, request), node_id=node_id)
            for topic in response.results:
                for each in topic.partitions:
                    found[TopicPartitionReplica(topic.topic_name, each.partition_index, node_id)] = errors.for_code(each.error_code)
        return found


def _left_out(config: Mapping[str, Any], wanted: ConfigFilterType) -> bool:
    if wanted is ConfigFilterType.DYNAMIC and config["read_only"]:
        return True
    return wanted.should_skip(ConfigSourceType[config["config_source"]])


def _pairs(configs: Any) -> list[tuple[str, Any]]:
    if not isinstance(configs or {}, dict):
        raise TypeError("alter_configs requires configs as a dict of {key: (op, value)} or {key: value} (interpreted as SET)")
    return list((configs or {}).items())


def _alteration(pair: tuple[str, Any]) -> p.IncrementalAlterableConfig:
    name, given = pair
    op, value = given if isinstance(given, tuple) else (AlterConfigOp.SET, given)
    number = AlterConfigOp.value_for(op)
    return p.IncrementalAlterableConfig(name=name, config_operation=number, value=None if number == AlterConfigOp.DELETE else value)
