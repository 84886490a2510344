"""Requests whose whole answers are compared between Apache Kafka and the embedded broker.

A case is a sequence of requests on one connection, all answers of which count. `cases(topic)` gives all of them for a topic name, which is
the case's own: so the cases may run in any order and on a cluster that other tests use too.
"""

from __future__ import annotations

from typing import Any

from kafkacore import protocol as p
from kafkacore.protocol.schema import Struct

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Steps = list[tuple[Any, int]]
"""Requests and their versions."""
Cases = dict[str, Steps]

MASKED = dict.fromkeys(
    (
        "cluster_id",
        "finalized_features_epoch",
        "high_watermark",
        "host",
        "last_caught_up_timestamp",
        "last_fetch_timestamp",
        "log_dir",
        "log_end_offset",
        "port",
        "total_bytes",
        "usable_bytes",
    ),
    "masked",
)
"""Fields that differ between any two clusters."""


DROPPED = {"is_default"}
"""Fields of versions that Kafka 4 no longer serves."""


def plain(value: Any, field: str = "") -> Any:
    """A message as dicts and lists, without what differs between any two clusters."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name), name) for name in value.FIELDS if name not in DROPPED}
    if isinstance(value, (list, tuple)):
        items = [plain(each, field) for each in value]
        return sorted(items, key=repr)
    if field == "topic_id":
        return "ID" if any(value) else "NONE"
    return MASKED.get(field, value)


def new(name: str, partitions: int = 1, replicas: int = 1, assignments: Any = (), **configs: str | None) -> p.CreatableTopic:
    return p.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[p.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in assignments],
        configs=[p.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create(*topics: p.CreatableTopic, validate_only: bool = False) -> p.CreateTopicsRequest:
    return p.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


# ---- CreateTopics


def describe_topics(*names: str) -> p.MetadataRequest:
    return p.MetadataRequest(topics=[p.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)


# ---- DeleteTopics, CreatePartitions


def delete(*names: str | bytes | None) -> p.DeleteTopicsRequest:
    states = [p.DeleteTopicState(topic_id=each) if isinstance(each, bytes) else p.DeleteTopicState(name=each) for each in names]
    return p.DeleteTopicsRequest(topics=states, timeout_ms=10_000)


def grow(*topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> p.CreatePartitionsRequest:
    return p.CreatePartitionsRequest(
        topics=[
            p.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None if assigned is None else [p.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned],
            )
            for name, count, assigned in topics
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )


def cases(topic: str) -> Cases:
    """Of topics."""
    return {
        "create-with-defaults": [(create(new(topic, -1, -1)), 7)],
        "create-in-every-version": [(create(new(f"{topic}-{version}", 2, 1)), version) for version in range(2, 8)],
        "create-with-settings": [
            (create(new(topic, 3, 1, retention_ms="1000", cleanup_policy="compact,delete", min_insync_replicas="1")), 7)
        ],
        "create-for-validation-only": [
            (create(new(topic, 3, 1, retention_ms="1000"), validate_only=True), 7),
            (describe_topics(topic), 12),
        ],
        "create-what-exists": [(create(new(topic)), 7), (create(new(topic)), 7), (create(new(topic), validate_only=True), 7)],
        "create-twice-in-one-request": [(create(new(topic), new(topic), new(topic + "-other")), 7)],
        "create-bad-names": [(create(new(name)), 7) for name in ("", ".", "..", "x" * 250, "a b", "é", "a/b")],
        "create-names-that-collide": [(create(new(topic + ".a_b")), 7), (create(new(topic + "_a.b")), 7)],
        "create-names-that-collide-in-one-request": [(create(new(topic + ".a"), new(topic + "_a")), 7)],
        "create-with-wrong-counts": [
            (create(new(f"{topic}-{nth}", *each)), 7)
            for nth, each in enumerate([(0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (10_001, 1), (1, 32767)])
        ],
        "create-by-assignment": [(create(new(topic, -1, -1, [(0, [1]), (1, [1])])), 7)],
        "create-by-wrong-assignment": [
            *[
                (create(new(f"{topic}-{nth}", -1, -1, each)), 7)
                for nth, each in enumerate(
                    [
                        [(0, [])],
                        [(0, [1, 1])],
                        [(0, [9])],
                        [(0, [1]), (2, [1])],
                        [(1, [1])],
                        [(0, [1]), (0, [1])],
                        [(0, [1]), (1, [1, 9])],
                        [(0, [-1])],
                    ]
                )
            ],
            (create(new(topic + "-a", 1, -1, [(0, [1])])), 7),
            (create(new(topic + "-b", -1, 1, [(0, [1])])), 7),
        ],
        "create-with-wrong-settings": [
            (create(new(f"{topic}-{nth}", **each)), 7)
            for nth, each in enumerate(
                [
                    {"no_such": "1"},
                    {"retention_ms": "soon"},
                    {"retention_ms": "-2"},
                    {"retention_ms": None},
                    {"cleanup_policy": "burn"},
                    {"cleanup_policy": ""},
                    {"compression_type": "rar"},
                    {"segment_bytes": "1"},
                    {"min_insync_replicas": "0"},
                    {"message_timestamp_type": "Never"},
                    {"min_cleanable_dirty_ratio": "1.5"},
                    {"preallocate": "perhaps"},
                    {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
                    {"remote_storage_enable": "true"},
                    {"local_retention_ms": "5000", "retention_ms": "1000"},
                    {"follower_replication_throttled_replicas": "x"},
                    {"compression_gzip_level": "77"},
                ]
            )
        ],
        "create-nothing": [(create(), 7)],
        "create-what-is-kafkas-own": [
            (create(new("__cluster_metadata")), 7),
            (grow(("__cluster_metadata", 6, None)), 3),
            (delete("__cluster_metadata"), 6),
        ],
        "delete-a-topic": [(create(new(topic)), 7), (delete(topic), 6), (delete(topic), 6)],
        "delete-by-name-in-old-versions": [
            step
            for version in range(1, 6)
            for step in (
                (create(new(f"{topic}-{version}")), 7),
                (p.DeleteTopicsRequest(topic_names=[f"{topic}-{version}", topic + "-missing"], timeout_ms=10_000), version),
            )
        ],
        "delete-what-cannot-be": [
            (delete(topic + "-missing"), 6),
            (delete(b"\1" * 16), 6),
            (delete(None), 6),
            (p.DeleteTopicsRequest(topics=[p.DeleteTopicState(name=topic, topic_id=b"\1" * 16)], timeout_ms=10_000), 6),
            (create(new(topic)), 7),
            (delete(topic, topic), 6),
            (delete(topic, topic + "-missing", b"\2" * 16), 6),
            (delete(), 6),
            (delete(b"\3" * 16, b"\3" * 16), 6),
            (delete(topic + "-m", topic + "-m", topic + "-m"), 6),
        ],
        "grow-a-topic": [
            (create(new(topic)), 7),
            (grow((topic, 3, None), validate_only=True), 3),
            (grow((topic, 3, None)), 3),
            (grow((topic, 5, [[1], [1]])), 0),
            (grow((topic, 6, None)), 1),
            (grow((topic, 7, None)), 2),
        ],
        "grow-what-cannot-be": [
            (create(new(topic, 2)), 7),
            (grow((topic, 2, None)), 3),
            (grow((topic, 1, None)), 3),
            (grow((topic, 0, None)), 3),
            (grow((topic, -1, None)), 3),
            (grow((topic + "-missing", 3, None)), 3),
            (grow((topic, 4, [[1]])), 3),
            (grow((topic, 3, [[1], [1]])), 3),
            (grow((topic, 3, [[9]])), 3),
            (grow((topic, 3, [[1, 1]])), 3),
            (grow((topic, 3, [[]])), 3),
            (grow((topic, 3, [])), 3),
            (grow((topic, 3, None), (topic, 4, None), (topic + "-missing", 1, None)), 3),
            (grow(), 3),
        ],
    }
