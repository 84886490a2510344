"""A topic to create."""

from __future__ import annotations

from typing import Any

from kafkacore.compat.aiokafka.errors import IllegalArgumentError


class NewTopic:
    """A topic to create.

    Args:
        name: of the topic.
        num_partitions: -1 with replica_assignments.
        replication_factor: -1 with replica_assignments.
        replica_assignments: by partition the ids of its brokers.
        topic_configs: settings by name.

    Raises:
        IllegalArgumentError: both counts and assignments, or neither.
    """

    def __init__(
        self, name: str, num_partitions: int, replication_factor: int, replica_assignments: Any = None, topic_configs: Any = None
    ) -> None:
        if (num_partitions == -1 or replication_factor == -1) is (replica_assignments is None):
            raise IllegalArgumentError("either num_partitions and replication_factor or replica_assignments must be given")
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}
