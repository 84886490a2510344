"""What the settings of kafka-python's KafkaConsumer become.

Source: kafka.consumer.group, kafka-python 3.0.
"""

from __future__ import annotations

from typing import Any

from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.assignors import RangePartitionAssignor, RoundRobinPartitionAssignor
from kafkacore.compat.kafka.common_settings import COMMON, COMMON_DEFAULTS, SSL_CIPHERS
from kafkacore.compat.settings import Kind, NoEffect, Ours, Own, Refused

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
_OLD_RESETS = {"smallest": "earliest", "largest": "latest"}
_ISOLATION = {0: "read_uncommitted", 1: "read_committed"}


def _reset(policy: str) -> str:
    """kafka-python takes every other word for none."""
    policy = _OLD_RESETS.get(policy, policy).lower()
    return policy if policy in ("earliest", "latest") else "none"


def _isolation(level: Any) -> str:
    return level if isinstance(level, str) else _ISOLATION.get(level, str(level))


def _assignors(given: Any) -> list[str]:
    """Names of the engine's assignors, from kafka-python's classes or objects of them."""
    found = [each if isinstance(each, str) else getattr(each, "name", None) for each in given]
    for each, name in zip(given, found, strict=True):
        if name not in ASSIGNORS:
            raise errors.KafkaConfigurationError(
                f"partition_assignment_strategy: {each!r} is an assignor of kafka-python's interface; derive one of your own from"
                " kafkacore.PartitionAssignor and read with kafkacore.KafkaConsumer"
            )
    return [str(name) for name in found]


CONSUMER_SETTINGS: dict[str, Kind] = {
    **COMMON,
    "client_rack": Ours(),
    "group_id": Ours(),
    "group_instance_id": Ours(),
    "key_deserializer": Own("poll and iteration"),
    "value_deserializer": Own("poll and iteration"),
    "consumer_timeout_ms": Own("iteration"),
    "default_offset_commit_callback": Own("commit_async without a callback, and automatic commits"),
    "bootstrap_timeout_ms": Own("making a consumer without api_version waits so long for a broker"),
    "metrics_enabled": Own("metrics() gives None without it"),
    "enable_incremental_fetch_sessions": NoEffect("fetch sessions are used where brokers have them"),
    "fetch_min_bytes": Ours(),
    "fetch_max_wait_ms": Ours(),
    "fetch_max_bytes": Ours(),
    "max_partition_fetch_bytes": Ours(),
    "max_in_flight_requests_per_connection": NoEffect(
        "there is one fetch at a time per broker, and the next is sent before the records are read"
    ),
    "auto_offset_reset": Ours(convert=_reset),
    "enable_auto_commit": Ours(),
    "auto_commit_interval_ms": Ours(),
    "check_crcs": Ours(),
    "isolation_level": Ours(convert=_isolation),
    "allow_auto_create_topics": Ours(),
    "partition_assignment_strategy": Ours(convert=_assignors),
    "max_poll_records": Ours(),
    "max_poll_interval_ms": Ours(),
    "session_timeout_ms": Ours(),
    "heartbeat_interval_ms": Ours(),
    "exclude_internal_topics": Ours(),
    "metric_group_prefix": Refused("metrics have Kafka's names"),
    "ssl_ciphers": SSL_CIPHERS,
}


def _nothing(offsets: Any, response: Any) -> bool:
    return True


CONSUMER_DEFAULTS: dict[str, Any] = {
    **COMMON_DEFAULTS,
    "client_id": "kafka-python-kafkacore",
    "client_rack": "",
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "enable_incremental_fetch_sessions": True,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "max_partition_fetch_bytes": 1_048_576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "default_offset_commit_callback": _nothing,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "allow_auto_create_topics": True,
    "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "consumer_timeout_ms": float("inf"),
    "metrics_enabled": True,
    "metric_group_prefix": "consumer",
    "exclude_internal_topics": True,
    "ssl_ciphers": None,
}
