"""Kafka for tests without Kafka: a real broker on loopback, in this process.

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=4)
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

The pytest plugin `kafkacore.testing.plugin` gives the fixtures `kafka_cluster` and `kafka_topic`; installing kafkacore registers it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkacore.broker.controller.host import ControllerHost
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.server import Broker, Control, Delay, Disconnect, Drop
from kafkacore.config import BrokerConfig
from kafkacore.errors import UsageError, raise_for
from kafkacore.protocol import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kafkacore.protocol.schema import Request, Response

__all__ = ["Delay", "Disconnect", "Drop", "EmbeddedCluster"]

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
            data_dir: None keeps the logs in memory. In a directory they have Kafka's file format, one `broker-<id>` each and one
                `controller`, and the cluster goes on where it stopped.
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
        directory = None if data_dir is None else Path(data_dir)
        self._controller = ControllerHost(self.config, directory=None if directory is None else directory / "controller", features=features)
        log_dirs = None if directory is None else [directory / f"broker-{_FIRST_NODE_ID}"]
        broker = Broker(self.config, _FIRST_NODE_ID, self._controller, port=port, log_dirs=log_dirs, api_versions=api_versions)
        self._brokers = {_FIRST_NODE_ID: broker}
        self._hanging: set[int] = set()

    def start(self) -> EmbeddedCluster:
        """Starts all brokers.

        Returns:
            Itself.
        """
        self._controller.open()
        for broker in self._brokers.values():
            broker.start()
        return self

    def close(self) -> None:
        """Stops all brokers; data in memory is gone with this object. May be called twice."""
        for broker in self._brokers.values():
            broker.stop()
        self._controller.close()

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
        return self._controller.cluster_id

    def _broker(self, broker: int) -> Broker:
        found = self._brokers.get(broker)
        if found is None:
            raise UsageError(f"there is no broker {broker}; there are {sorted(self._brokers)}")
        return found

    def _submit(self, request: Request) -> Response:
        """Has the controller carry out a request, and waits until every broker that serves knows the result."""
        response, _ = self._controller.submit(request, request.MAX_VERSION)
        for node_id, broker in self._brokers.items():
            if broker.running and node_id not in self._hanging:
                broker.call(lambda: None)  # behind the message that the controller left
        return response

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
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        response = self._submit(CreateTopicsRequest(topics=[topic]))
        assert isinstance(response, CreateTopicsResponse)
        raise_for(response.topics[0].error_code, response.topics[0].error_message, topic=name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic.

        Raises:
            UnknownTopicOrPartition: there is none of that name.
        """
        response = self._submit(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        assert isinstance(response, DeleteTopicsResponse)
        raise_for(response.responses[0].error_code, response.responses[0].error_message, topic=name)

    def topics(self) -> dict[str, int]:
        """The topics and how many partitions each has."""
        return self._controller.read(lambda image: {name: len(topic.partitions) for name, topic in image.topics.items()})

    def stop_broker(self, broker: int) -> None:
        """Closes a broker's port and connections; its data stays."""
        self._broker(broker).stop()
        self._hanging.discard(broker)

    def start_broker(self, broker: int) -> None:
        """Starts a stopped broker on its old port."""
        self._broker(broker).start()

    def pause_broker(self, broker: int) -> None:
        """Lets a broker hang: connections stay open, nothing is answered."""
        self._broker(broker).pause()
        self._hanging.add(broker)

    def resume_broker(self, broker: int) -> None:
        """Ends `pause_broker`; what was sent meanwhile is served."""
        self._broker(broker).resume()
        self._hanging.discard(broker)

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

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader's id; None without one."""
        leader = self._controller.read(lambda image: image.partition(topic, partition).leader)
        return leader if leader >= 0 else None

    def isr(self, topic: str, partition: int) -> list[int]:
        """The ids of the in-sync replicas."""
        return self._controller.read(lambda image: list(image.partition(topic, partition).isr))

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset below which records are on all in-sync replicas."""
        holder = self._brokers[self.isr(topic, partition)[0]]
        return holder.call(lambda: holder.state.replicas.partition(topic, partition).high_watermark)
