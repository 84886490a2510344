"""Kafka for tests without Kafka: a real broker on loopback, in this process.

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=4)
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

The pytest plugin `kafkacore.testing.plugin` gives the fixtures `kafka_cluster` and `kafka_topic`; installing kafkacore registers it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kafkacore.broker.cluster import ClusterImage, PartitionRegistration
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.image_file import ImageFile
from kafkacore.broker.server import Broker, Control, Delay, Disconnect, Drop
from kafkacore.config import BrokerConfig
from kafkacore.errors import UnknownTopicOrPartition, UsageError

__all__ = ["Delay", "Disconnect", "Drop", "EmbeddedCluster"]

T = TypeVar("T")

_FIRST_NODE_ID = 1


class EmbeddedCluster:
    """Brokers on loopback for the life of a `with` block (or from `start` to `close`)."""

    def __init__(
        self,
        brokers: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | BrokerConfig | None = None,
        *,
        port: int = 0,
        api_versions: Mapping[int, tuple[int, int]] = API_VERSIONS,
        features: Mapping[str, int] | None = None,
    ) -> None:
        """Prepares a cluster.

        Args:
            brokers: how many; 1 for now.
            data_dir: None keeps the logs in memory. In a directory they have Kafka's file format, one `broker-<id>` each, and the cluster
                goes on where it stopped.
            config: Kafka's broker settings, under dotted or snake names.
            port: of the first broker; 0 lets the system choose.
            api_versions: what the brokers advertise, (min, max) by API key, to play an older Kafka; at most what is served.
            features: levels of Kafka's features, by name, where they are not the highest: {"transaction.version": 1}.

        Raises:
            UsageError: more than one broker, a data_dir that is in use, or api_versions or features that are not served.
            KafkaStorage: the data_dir cannot be used.
            ConfigError: a setting is unknown or wrong.
        """
        if brokers != 1:
            raise UsageError(f"brokers={brokers}: a cluster of several brokers is not implemented yet; brokers=1 works")
        self.config = config if isinstance(config, BrokerConfig) else BrokerConfig.from_user(config)
        self._file: ImageFile | None = None
        if data_dir is None:
            self._image, log_dirs = ClusterImage(self.config), None
        else:
            self._file = ImageFile(Path(data_dir), self.config)
            self._image, log_dirs = self._file.image, [Path(data_dir) / f"broker-{_FIRST_NODE_ID}"]
        self._image.finalize_features(features or {})
        broker = Broker(self.config, _FIRST_NODE_ID, self._image, port=port, log_dirs=log_dirs, api_versions=api_versions)
        self._brokers = {_FIRST_NODE_ID: broker}

    def start(self) -> EmbeddedCluster:
        """Starts all brokers.

        Returns:
            Itself.
        """
        for broker in self._brokers.values():
            broker.start()
        if self._file is not None:
            self._ask(self._file.save)
        return self

    def close(self) -> None:
        """Stops all brokers; data in memory is gone with this object. May be called twice."""
        for broker in self._brokers.values():
            broker.stop()

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker, with commas; of stopped ones too, since they come back there."""
        return ",".join(broker.address for broker in self._brokers.values())

    @property
    def cluster_id(self) -> str:
        """The id clients see."""
        return self._image.cluster_id

    def _broker(self, broker: int) -> Broker:
        found = self._brokers.get(broker)
        if found is None:
            raise UsageError(f"there is no broker {broker}; there are {sorted(self._brokers)}")
        return found

    def _ask(self, fn: Callable[[], T]) -> T:
        """Runs a function where the image may be touched: with several brokers this will be the controller's thread."""
        return next(iter(self._brokers.values())).call(fn)

    def create_topic(self, name: str, partitions: int = -1, replication_factor: int = -1, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic.

        Args:
            name: its name.
            partitions: -1 for num.partitions.
            replication_factor: -1 for default.replication.factor.
            configs: topic settings by Kafka's names.

        Raises:
            BrokerError: as a broker would refuse it (`TopicExists`, `InvalidTopic`, ...).
        """
        self._ask(lambda: self._image.create_topic(name, partitions, replication_factor, configs))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic.

        Raises:
            UnknownTopicOrPartition: there is none of that name.
        """
        self._ask(lambda: self._image.delete_topic(self._image.topic(name)))

    def topics(self) -> dict[str, int]:
        """The topics and how many partitions each has."""
        return self._ask(lambda: {name: len(topic.partitions) for name, topic in self._image.topics.items()})

    def stop_broker(self, broker: int) -> None:
        """Closes a broker's port and connections; its data stays."""
        self._broker(broker).stop()

    def start_broker(self, broker: int) -> None:
        """Starts a stopped broker on its old port."""
        self._broker(broker).start()

    def pause_broker(self, broker: int) -> None:
        """Lets a broker hang: connections stay open, nothing is answered."""
        self._broker(broker).pause()

    def resume_broker(self, broker: int) -> None:
        """Ends `pause_broker`; what was sent meanwhile is served."""
        self._broker(broker).resume()

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Makes another broker the leader of a partition.

        Raises:
            UsageError: always for now: there is no other broker.
        """
        self._broker(broker)
        raise UsageError(f"move_leader: partition {partition} of {topic!r} has one replica, so nobody else can lead it")

    def control(self, api_key: int, fn: Control | None) -> None:
        """Puts a function before an API on every broker.

        Args:
            api_key: the API.
            fn: `fn(request)` runs in the broker's thread and returns a response to send instead, `Delay`, `Drop`, `Disconnect`, or None
                for the normal way. None takes the function away.
        """
        for broker in self._brokers.values():
            broker.control(api_key, fn)

    def _registration(self, topic: str, partition: int) -> PartitionRegistration:
        partitions = self._image.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise UnknownTopicOrPartition(f"topic {topic!r} has {len(partitions)} partitions", topic=topic, partition=partition)
        return partitions[partition]

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader's id; None without one."""
        leader = self._ask(lambda: self._registration(topic, partition).leader)
        return leader if leader >= 0 else None

    def isr(self, topic: str, partition: int) -> list[int]:
        """The ids of the in-sync replicas."""
        return self._ask(lambda: list(self._registration(topic, partition).isr))

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset below which records are on all in-sync replicas."""

        def look() -> int:
            holder = self._brokers[self._registration(topic, partition).isr[0]]
            return holder.state.replicas.partition(topic, partition).high_watermark

        return self._ask(look)
