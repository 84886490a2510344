"""Questions about topics and offsets that have nothing to do with what a consumer reads."""

from __future__ import annotations

from kafkacore import errors
from kafkacore.config import ConsumerConfig
from kafkacore.metadata import PartitionInfo
from kafkacore.net.asking import MetadataQuery
from kafkacore.net.driver import CallerDriver
from kafkacore.net.leaders import ListedOffset, OffsetQuery
from kafkacore.types import TopicPartition


class Lookups:
    """Asks the cluster, and waits for its answers. The caller has entered the driver.

    Args:
        driver: of the network.
        config: the consumer's settings.
        isolation_level: 1 makes `latest` the last stable offset.
    """

    def __init__(self, driver: CallerDriver, config: ConsumerConfig, *, isolation_level: int) -> None:
        self._driver = driver
        self._isolation_level = isolation_level
        self._backoff = {"retry_backoff_ms": config.retry_backoff_ms, "retry_backoff_max_ms": config.retry_backoff_max_ms}

    def offsets(self, timestamps_ms: dict[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, ListedOffset]:
        """Offsets by time, or by -1 for the last and -2 for the first.

        Raises:
            errors.KafkaTimeoutError: not all leaders answered in time.
        """
        driver = self._driver
        query = OffsetQuery(driver.client, driver.metadata, timestamps_ms, isolation_level=self._isolation_level, **self._backoff)
        return query.run(driver, timeout_ms)

    def partitions(self, topic: str, timeout_ms: int) -> list[PartitionInfo]:
        """A topic's partitions, as the last metadata say.

        Raises:
            errors.KafkaTimeoutError: no broker answered in time.
            errors.UnknownTopicOrPartition: there is no such topic.
        """
        info = self._driver.describe(topic, timeout_ms)
        if info is None:
            raise errors.KafkaTimeoutError("no metadata in time", topic=topic, attempts=self._driver.topic_attempts(topic))
        if info.error is not None and not info.partitions:
            raise info.error
        return list(info.partitions)

    def topics(self, timeout_ms: int) -> dict[str, list[PartitionInfo]]:
        """All topics by name, with their partitions; asked for now.

        Raises:
            errors.KafkaTimeoutError: no broker answered in time.
        """
        return MetadataQuery(self._driver.client, None, **self._backoff).topics(self._driver, timeout_ms)
