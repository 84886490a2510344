"""Kafka's own assignors, run in a JVM (Assignors.java)."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkacore.consumer.group.assignor import MemberSubscription
from kafkacore.metadata import ClusterSnapshot
from kafkacore.types import TopicPartition
from tests.kit.kafka_server import LOG4J, fast_jvm, fetch_jars

SOURCE = Path(__file__).with_name("Assignors.java")
CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
Owned = Mapping[str, Sequence[TopicPartition]]


class Assigned(NamedTuple):
    """What Kafka's assignor found.

    Attributes:
        partitions: of each member.
        user_data: that each member had in its subscription; empty for none.
        took_ns: CPU time of the thread for each of the assignments.
    """

    partitions: dict[str, list[TopicPartition]]
    user_data: dict[str, bytes]
    took_ns: list[int]


class KafkaAssignors:
    """A JVM that assigns.

    Args:
        is_fast: starts soon, as tests want it; else its compiler makes the most of code that runs long.
    """

    def __init__(self, *, is_fast: bool = True) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kafkacore-assignors-")
        log4j = Path(self._directory.name) / "log4j2.properties"
        log4j.write_text(LOG4J + "appender.c.target=SYSTEM_ERR\n")
        options = fast_jvm() if is_fast else []
        command = ["java", "-Xmx1g", *options, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{fetch_jars()}/*", str(SOURCE)]
        # what an odd group makes its assignor log is not an answer
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def assign(
        self,
        name: str,
        cluster: ClusterSnapshot,
        subscriptions: Mapping[str, MemberSubscription],
        owned: Owned,
        generations: Mapping[str, int],
        *,
        times: int = 1,
        timeout: float = 120,
    ) -> Assigned:
        """Assigns.

        Args:
            name: of the assignor.
            cluster: topics, their partitions, replicas and racks.
            subscriptions: topics, instance id and rack of each member; its last partitions and their generation are in the other two.
            owned: what each member had.
            generations: when it had that, -1 for a new member.
            times: so often.
            timeout: in seconds; the JVM is killed then.
        """
        nodes = ",".join(f"{node.id}={node.rack or ''}" for node in cluster.node_list)
        topics = ",".join(
            f"{topic}=" + "/".join(".".join(map(str, partition.replicas)) for partition in info.partitions)
            for topic, info in cluster.topics.items()
        )
        members = ",".join(
            ";".join(
                (
                    member,
                    subscription.group_instance_id or "",
                    subscription.rack_id or "",
                    str(generations.get(member, -1)),
                    " ".join(subscription.topics),
                    " ".join(f"{topic}.{partition}" for topic, partition in owned.get(member, ())),
                )
            )
            for member, subscription in subscriptions.items()
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        watch = threading.Timer(timeout, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write("\t".join((CLASSES[name], str(times), nodes, topics, members)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not answer:
            raise RuntimeError(f"the JVM ended in {name}: too slow, or the assignor failed for {members[:500]}")
        nanos, _, found = answer.rstrip("\n").partition("\t")
        partitions: dict[str, list[TopicPartition]] = {}
        user_data: dict[str, bytes] = {}
        for part in found.split(","):
            member, assigned, data = part.split("=")
            pairs = [text.rpartition(".") for text in assigned.split()]
            partitions[member] = [TopicPartition(topic, int(index)) for topic, _, index in pairs]
            user_data[member] = bytes.fromhex(data)
        return Assigned(partitions, user_data, [*map(int, nanos.split(","))])

    def close(self) -> None:
        """Ends the JVM."""
        self._process.kill()
        self._process.communicate()
        self._directory.cleanup()
