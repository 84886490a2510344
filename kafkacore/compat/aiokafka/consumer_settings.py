"""What the settings of AIOKafkaConsumer become.

Source: aiokafka.consumer.consumer, aiokafka 0.14.
"""

from __future__ import annotations

from typing import Any

from kafkacore.compat.aiokafka.common_settings import COMMON, COMMON_DEFAULTS
from kafkacore.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkacore.compat.settings import Kind, NoEffect, Ours, Own

CALL_RECORDS = 5_000
"""Records that `getmany` gives at most where max_poll_records sets no limit: the next call has the rest. What leaves the processor's cache
before the program sees it costs twice as much.
"""
ASSIGNORS = ("range", "roundrobin", "sticky")
CHUNK_RECORDS = 500
"""Records that `getone` and a loop take from the engine at once, and `getmany` with deserializers, unless max_poll_records is less."""


def _reset(policy: str) -> str:
    """aiokafka takes every other word for none."""
    return policy.lower() if policy.lower() in ("earliest", "latest") else "none"


def _assignors(given: Any) -> list[str]:
    """Names of the engine's assignors, from aiokafka's classes."""
    found = [getattr(each, "name", None) for each in given]
    for each, name in zip(given, found, strict=True):
        if name not in ASSIGNORS:
            raise ValueError(
                f"partition_assignment_strategy: {each!r} is an assignor of aiokafka's interface; derive one of your own from"
                " kafkacore.PartitionAssignor and read with kafkacore.aio.KafkaConsumer"
            )
    return [str(name) for name in found]


CONSUMER_SETTINGS: dict[str, Kind] = {
    **COMMON,
    "group_id": Ours(),
    "group_instance_id": Ours(),
    "key_deserializer": Own("where records are handed out"),
    "value_deserializer": Own("where records are handed out"),
    "fetch_max_wait_ms": Ours(),
    "fetch_max_bytes": Ours(),
    "fetch_min_bytes": Ours(),
    "max_partition_fetch_bytes": Ours(),
    "auto_offset_reset": Ours(convert=_reset),
    "enable_auto_commit": Ours(),
    "auto_commit_interval_ms": Ours(),
    "check_crcs": Ours(),
    "partition_assignment_strategy": Ours(convert=_assignors),
    "max_poll_interval_ms": Ours(),
    "rebalance_timeout_ms": NoEffect("in a rebalance the group waits max_poll_interval_ms for its members, as for Java's"),
    "session_timeout_ms": Ours(),
    "heartbeat_interval_ms": Ours(),
    "consumer_timeout_ms": NoEffect("the engine waits for events and not for a time"),
    "max_poll_records": Ours(convert=lambda most: CHUNK_RECORDS if most is None else min(most, CHUNK_RECORDS)),
    "exclude_internal_topics": Ours(),
    "isolation_level": Ours(),
    "client_rack": Ours(convert=lambda rack: rack or ""),
}

CONSUMER_DEFAULTS: dict[str, Any] = {
    **COMMON_DEFAULTS,
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "fetch_max_wait_ms": 500,
    "fetch_max_bytes": 52_428_800,
    "fetch_min_bytes": 1,
    "max_partition_fetch_bytes": 1_048_576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "check_crcs": True,
    "partition_assignment_strategy": (RoundRobinPartitionAssignor,),
    "max_poll_interval_ms": 300_000,
    "rebalance_timeout_ms": None,
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 3_000,
    "consumer_timeout_ms": 200,
    "max_poll_records": None,
    "exclude_internal_topics": True,
    "isolation_level": "read_uncommitted",
    "client_rack": None,
}
