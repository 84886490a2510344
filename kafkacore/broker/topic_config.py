"""A topic's settings in force: how the text of each is read, and what the broker's settings give where a topic has none of its own.

`configs` says which settings Kafka has and which values it takes; this file says which of them the embedded broker goes by. To implement a
topic setting, add its row, its field, and the broker's setting that gives its default in config_broker.py.

Source: org.apache.kafka.storage.internals.log.LogConfig.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.broker import configs
from kafkacore.config_broker import BrokerConfig


def _boolean(text: str) -> bool:
    return text == "true"


def _ratio(text: str) -> float:
    """Kafka's limits let NaN pass."""
    if math.isnan(value := float(text)):
        raise ValueError("must be a number")
    return value


class TopicSetting(NamedTuple):
    """One topic setting: how its text is read, once `configs` has found it right and written it, and the broker setting that gives its
    default. Reading may refuse with ValueError what is not implemented of it."""

    parse: Callable[[str], float | str]
    broker_setting: str


TOPIC_SETTINGS: dict[str, TopicSetting] = {
    "cleanup.policy": TopicSetting(str, "log_cleanup_policy"),
    "compression.gzip.level": TopicSetting(int, "compression_gzip_level"),
    "compression.lz4.level": TopicSetting(int, "compression_lz4_level"),
    "compression.type": TopicSetting(str, "compression_type"),
    "compression.zstd.level": TopicSetting(int, "compression_zstd_level"),
    "delete.retention.ms": TopicSetting(int, "log_cleaner_delete_retention_ms"),
    "file.delete.delay.ms": TopicSetting(int, "log_segment_delete_delay_ms"),
    "flush.messages": TopicSetting(int, "log_flush_interval_messages"),
    "flush.ms": TopicSetting(int, "log_flush_interval_ms"),
    "index.interval.bytes": TopicSetting(int, "log_index_interval_bytes"),
    "max.compaction.lag.ms": TopicSetting(int, "log_cleaner_max_compaction_lag_ms"),
    "max.message.bytes": TopicSetting(int, "message_max_bytes"),
    "message.timestamp.after.max.ms": TopicSetting(int, "log_message_timestamp_after_max_ms"),
    "message.timestamp.before.max.ms": TopicSetting(int, "log_message_timestamp_before_max_ms"),
    "message.timestamp.type": TopicSetting(str, "log_message_timestamp_type"),
    "min.cleanable.dirty.ratio": TopicSetting(_ratio, "log_cleaner_min_cleanable_ratio"),
    "min.compaction.lag.ms": TopicSetting(int, "log_cleaner_min_compaction_lag_ms"),
    "min.insync.replicas": TopicSetting(int, "min_insync_replicas"),
    "preallocate": TopicSetting(_boolean, "log_preallocate"),
    "retention.bytes": TopicSetting(int, "log_retention_bytes"),
    "retention.ms": TopicSetting(int, "log_retention_ms"),
    "segment.bytes": TopicSetting(int, "log_segment_bytes"),
    "segment.index.bytes": TopicSetting(int, "log_index_size_max_bytes"),
    "segment.jitter.ms": TopicSetting(int, "log_roll_jitter_ms"),
    "segment.ms": TopicSetting(int, "log_roll_ms"),
    "unclean.leader.election.enable": TopicSetting(_boolean, "unclean_leader_election_enable"),
}
"""The topic settings that are implemented; any other is refused with INVALID_CONFIG rather than ignored."""


@dataclass(frozen=True)
class TopicConfig:
    """A topic's settings in force; `overrides` are those set on the topic itself. The throttled replicas (KIP-73) are PARTITION:BROKER
    pairs with commas, or "*"."""

    max_message_bytes: int
    message_timestamp_type: str
    message_timestamp_after_max_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    preallocate: bool
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    cleanup_policy: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    max_compaction_lag_ms: int
    message_timestamp_before_max_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    unclean_leader_election_enable: bool = False
    leader_throttled_replicas: str = ""
    follower_throttled_replicas: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_segment_ms(self) -> int:
        """When a segment ends by time: what is to be compacted soon must not lie in the active segment for long."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if "compact" in self.cleanup_policy else self.segment_ms

    @classmethod
    def build(cls, overrides: Mapping[str, str | None], broker: BrokerConfig) -> TopicConfig:
        """Checks the topic's own settings and fills in the broker's.

        Args:
            overrides: Kafka's names and their texts; None means the default.
            broker: gives the defaults.

        Raises:
            InvalidConfiguration: an unknown or unsupported name, or a value out of range.
        """
        own = {name: text for name, text in overrides.items() if text is not None}
        if not own:
            return _default_topic_config(broker)
        configs.check_topic(own)
        values: dict[str, Any] = {}
        for name in own.keys() & TOPIC_SETTINGS.keys():
            try:
                values[name.replace(".", "_")] = TOPIC_SETTINGS[name].parse(configs.topic_keys()[name].parse(own[name]))
            except ValueError as problem:
                raise errors.InvalidConfiguration(
                    f"Invalid value {own[name]} for configuration {name}: the embedded broker does not implement it: {problem}"
                ) from None
        for role in ("leader", "follower"):
            if text := own.get(f"{role}.replication.throttled.replicas"):
                values[f"{role}_throttled_replicas"] = configs.topic_keys()[f"{role}.replication.throttled.replicas"].parse(text)
        return replace(_default_topic_config(broker), overrides=own, **values)

    @classmethod
    def recorded(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
        """The settings of a topic as the metadata log has them. What a Kafka took and nothing here obeys stays among the overrides, for the
        next Kafka.

        Args:
            overrides, broker: as in `build`.
        """
        try:
            return cls.build(overrides, broker)
        except errors.InvalidConfiguration:
            kept = cls.refused(overrides, broker)
            obeyed = cls.build({name: text for name, text in overrides.items() if name not in kept}, broker)
            return replace(obeyed, overrides=dict(overrides))

    @classmethod
    def refused(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
        """Why settings have no effect, by name; empty if `build` takes them all."""
        why: dict[str, str] = {}
        obeyed: dict[str, str] = {}
        for name, text in overrides.items():
            try:
                cls.build({**obeyed, name: text}, broker)
                obeyed[name] = text
            except errors.InvalidConfiguration as problem:
                why[name] = problem.message
        return why


_default_config: tuple[BrokerConfig, TopicConfig] | None = None


def _default_topic_config(broker: BrokerConfig) -> TopicConfig:
    """The settings of a topic that has none of its own: one object for all of them, since it never changes."""
    global _default_config
    known = _default_config
    if known is None or known[0] is not broker:
        values: dict[str, Any] = {
            name.replace(".", "_"): getattr(broker, setting.broker_setting) for name, setting in TOPIC_SETTINGS.items()
        }
        known = _default_config = broker, TopicConfig(**values)
    return known[1]
