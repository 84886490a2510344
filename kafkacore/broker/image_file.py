"""What a cluster with a data directory remembers of itself: its id, its topics and their settings, in one JSON file.

The file is replaced as a whole with every change. A broker that comes up leads its partitions in a new epoch, so epochs never repeat.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafkacore.broker.cluster import NO_LEADER, ClusterImage, PartitionRegistration, Topic, TopicConfig, TopicListener
from kafkacore.broker.log.disk import write_whole
from kafkacore.config import BrokerConfig
from kafkacore.errors import CorruptDataError

NAME = "cluster.json"
_PRODUCER_IDS_PER_START = 1 << 32


class ImageFile(TopicListener):
    """A cluster's image and its file."""

    def __init__(self, directory: Path, config: BrokerConfig) -> None:
        """Reads the file, or begins a new cluster.

        Args:
            directory: for the file; made if necessary.
            config: gives the defaults of topics.

        Raises:
            CorruptDataError: the file is there and cannot be read.
            OSError: the directory cannot be used.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / NAME
        try:
            stored: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            stored = {"cluster_id": None, "starts": 0, "topics": {}}
        except ValueError as problem:
            raise CorruptDataError(f"{self._path} cannot be read: {problem}") from None
        self._starts = int(stored["starts"]) + 1
        self.image = ClusterImage(config, stored["cluster_id"], first_producer_id=self._starts * _PRODUCER_IDS_PER_START)
        for name, topic in stored["topics"].items():
            partitions = [
                PartitionRegistration(each["replicas"], each["isr"], NO_LEADER, each["leader_epoch"]) for each in topic["partitions"]
            ]
            self.image.restore_topic(
                Topic(name, bytes.fromhex(topic["topic_id"]), TopicConfig.build(topic["configs"], config), partitions)
            )
        self.image.listeners.append(self)

    def topic_changed(self, topic: Topic) -> None:
        self.save()

    def topic_deleted(self, topic: Topic) -> None:
        self.save()

    def save(self) -> None:
        """Writes the image.

        Raises:
            OSError: it could not be written.
        """
        topics = {
            topic.name: {
                "topic_id": topic.topic_id.hex(),
                "configs": dict(topic.config.overrides),
                "partitions": [{"replicas": p.replicas, "isr": p.isr, "leader_epoch": p.leader_epoch} for p in topic.partitions],
            }
            for topic in self.image.topics.values()
        }
        content = {"cluster_id": self.image.cluster_id, "starts": self._starts, "topics": topics}
        write_whole(self._path, json.dumps(content, indent=1).encode())
