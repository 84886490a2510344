"""DefaultEventHandler: what becomes of a batch of messages in the async producer of Kafka 0.8.

    handle: serialize -> dispatch -> what failed, after a back-off and with new metadata, again
    dispatch: partition_and_collate -> group_messages_to_set, for each broker -> send

Rules:

1. A batch is taken apart by broker, topic and partition, and each broker gets one request with all that it leads.
   [test_a_batch_is_taken_apart_by_broker_topic_and_partition]
2. The partitioner chooses among all partitions of a topic, also those without a leader: they fail when it comes to sending.
   [test_the_partitioner_gets_the_partition_key_which_is_not_stored_and_the_number_of_all_partitions,
   test_a_partition_without_leader_goes_to_broker_minus_1]
3. Messages without a partition key go to one random partition that has a leader, the same for all of a topic until the metadata are
   refreshed. [test_without_key_the_choice_is_among_partitions_with_a_leader,
   test_messages_without_key_stay_with_one_partition_until_the_refresh_interval_has_passed]
4. What has no leader is collated for broker -1, and so is a message of a topic without partitions (as partition -1). It fails, and is
   retried. [test_a_partition_without_leader_goes_to_broker_minus_1, test_a_topic_that_is_not_there_keeps_nothing_else_back,
   test_a_topic_without_any_leader_keeps_nothing_else_back]
5. Only what failed is sent again. A request whose answer was lost may have been carried out, so a message may be stored twice.
   [test_only_what_failed_is_sent_again_in_its_order, test_what_arrived_of_a_set_that_failed_later_is_not_sent_again]

Source: kafka.producer.async.DefaultEventHandler of Kafka 0.8. There an unknown topic keeps back the whole batch; here only its own
messages.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafkacore import errors
from kafkacore.clock import Clock, SystemClock
from kafkacore.legacy.brokers import Brokers, Failure, NetworkBrokers
from kafkacore.legacy.message_set import ByteBufferMessageSet, NoCompressionCodec
from kafkacore.legacy.messages import KeyedMessage, Message
from kafkacore.legacy.partitioner import default_partitioner
from kafkacore.legacy.settings import EventHandlerConfig
from kafkacore.legacy.statistics import Counts, ProducerStatistics
from kafkacore.metadata import PartitionInfo
from kafkacore.plurals import counted
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.legacy")

NO_BROKER = -1
NO_PARTITION = -1

Collated = dict[int, dict[TopicPartition, list["SerializedMessage"]]]


class SerializedMessage(KeyedMessage):
    """A message whose `message` is what is stored; the key is still the caller's, for the partitioner.

    Attributes:
        source: the message as it was handed in.
    """

    __slots__ = ("source",)

    def __init__(self, source: KeyedMessage, message: Message) -> None:
        self.topic = source.topic
        self.key = source.key
        self.part_key = source.part_key
        self.message = message
        self.source = source


class DefaultEventHandler:
    """Sends batches of messages; see the rules at the top of the file. One batch at a time: a second thread waits.

    Args:
        config: settings as a mapping with dotted names.
        clock: the time; the system's unless given.
        brokers: the way to the cluster; over the network unless given.
        choose: a random choice among partitions, for messages without key.
        on_serialization_error: called with a message and the error of its serializer; the message is left out. None raises the error.
        **settings: see `EventHandlerConfig`.

    Attributes:
        send_partition_per_topic_cache: {topic: partition} for messages without key.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | EventHandlerConfig | None = None,
        /,
        *,
        clock: Clock | None = None,
        brokers: Brokers | None = None,
        choose: Callable[[Sequence[PartitionInfo]], PartitionInfo] = random.choice,
        on_serialization_error: Callable[[KeyedMessage, Exception], object] | None = None,
        **settings: Any,
    ) -> None:
        self.config = config if isinstance(config, EventHandlerConfig) else EventHandlerConfig.from_user(config, **settings)
        self._clock = clock or SystemClock()
        self.counts = Counts()
        self._brokers: Brokers = brokers or NetworkBrokers(self.config, self.counts, clock=self._clock)
        self._choose = choose
        self._on_serialization_error = on_serialization_error
        self._partitioner = self.config.partitioner or default_partitioner
        self._lock = threading.Lock()
        self._refreshed_ms: int | None = None
        self._topics_to_refresh: set[str] = set()
        self._causes: dict[TopicPartition, errors.KafkaError] = {}
        self._refresh_error: errors.KafkaError | None = None
        self.send_partition_per_topic_cache: dict[str, int] = {}

    # -- the whole ----------------------------------------------------------------------------------------------------------------

    def handle(self, messages: Iterable[KeyedMessage]) -> None:
        """Sends messages, and what failed of them again, `message_send_max_retries` times.

        Args:
            messages: in the order in which each partition gets them.

        Raises:
            errors.FailedToSendMessageError: some could not be sent; it names them, and why, by topic and partition.
            errors.SerializationError: a serializer refused a message, and there is no on_serialization_error; nothing was sent.
        """
        with self._lock:
            config = self.config
            outstanding = self.serialize(messages)
            self._count(outstanding)
            left = config.message_send_max_retries + 1
            while left and outstanding:
                self.refresh_when_due({message.topic for message in outstanding})
                outstanding = self.dispatch(outstanding)
                left -= 1
                if outstanding and left and not any(cause.fatal for cause in self._causes.values()):
                    words = counted(left, "try", "tries"), counted(len(outstanding), "message")
                    log.info("backing off for %d ms; %s left for %s", config.retry_backoff_ms, *words)
                    self._back_off({message.topic for message in outstanding})
                elif outstanding:
                    break
            if outstanding:
                self.counts.failed_sends.record(1, self._clock.now_ms())
                tries = config.message_send_max_retries + 1 - left
                raise errors.FailedToSendMessageError(
                    f"{counted(len(outstanding), 'message')} not sent with {counted(tries, 'try', 'tries')}",
                    failed=self._causes,
                    messages=[message.source for message in outstanding],
                    attempts=() if self._refresh_error is None else [self._refresh_error],
                )

    def _back_off(self, topics: set[str]) -> None:
        """Waits, and asks where the topics are by now. What has failed has failed: the next try shows whether the cluster is back."""
        self._brokers.pause(self.config.retry_backoff_ms)
        self._refresh(topics)
        self.send_partition_per_topic_cache.clear()
        self.counts.resends.record(1, self._clock.now_ms())

    # -- the steps ----------------------------------------------------------------------------------------------------------------

    def refresh_when_due(self, topics: Iterable[str]) -> bool:
        """Asks for new metadata and forgets the partitions for messages without key, if the last time was more than
        `topic_metadata_refresh_interval_ms` ago.

        Args:
            topics: asked for, with those sent to since the last time.

        Returns:
            Whether it was due.
        """
        self._topics_to_refresh.update(topics)
        interval_ms = self.config.topic_metadata_refresh_interval_ms
        now_ms = self._clock.now_ms()
        if interval_ms < 0:
            return False
        if self._refreshed_ms is not None and 0 < interval_ms and now_ms - self._refreshed_ms <= interval_ms:
            return False
        self._refresh(self._topics_to_refresh)
        self.send_partition_per_topic_cache.clear()
        self._topics_to_refresh.clear()
        self._refreshed_ms = self._clock.now_ms()
        return True

    def _refresh(self, topics: Iterable[str]) -> None:
        try:
            self._brokers.refresh(topics)
            self._refresh_error = None
        except errors.KafkaError as error:
            self._refresh_error = error
            log.warning("metadata of %s could not be refreshed: %s", ", ".join(sorted(topics)), error)  # sending goes by what is known

    def serialize(self, messages: Iterable[KeyedMessage]) -> list[SerializedMessage]:
        """Turns keys and messages into bytes; `key` and `part_key` stay as they are, for the partitioner.

        Raises:
            errors.SerializationError: a serializer refused a message, and there is no on_serialization_error.
        """
        found = []
        for message in messages:
            topic = message.topic
            try:
                key = None if message.key is None else _serialized(self.config.key_serializer, topic, message.key)
                value = None if message.message is None else _serialized(self.config.serializer, topic, message.message)
            except Exception as cause:
                self.counts.serialization_errors.record(1, self._clock.now_ms())
                if self._on_serialization_error is None:
                    raise errors.SerializationError(f"a message was not serialized: {cause}", topic=topic) from cause
                log.error("a message for topic %s was not serialized: %s", topic, cause)
                self._on_serialization_error(message, cause)
            else:
                found.append(SerializedMessage(message, Message(key, value)))
        return found

    def _count(self, messages: Sequence[SerializedMessage]) -> None:
        now_ms = self._clock.now_ms()
        sums: dict[str, list[int]] = {}
        for message in messages:
            of_topic = sums.setdefault(message.topic, [0, 0])
            of_topic[0] += 1
            of_topic[1] += 0 if message.message.value is None else len(message.message.value)
        for topic, (count, nbytes) in sums.items():
            stats = self.counts.of(topic)
            stats.messages.record(count, now_ms)
            stats.bytes.record(nbytes, now_ms)

    def dispatch(self, messages: Sequence[SerializedMessage]) -> list[SerializedMessage]:
        """Sends each message to the leader of its partition, once.

        Returns:
            The messages that were not sent, in their order within each partition.
        """
        self._causes = {}
        collated = self.partition_and_collate(messages)
        sets = {broker: self.group_messages_to_set(parts) for broker, parts in collated.items()}
        failed = self._send_all(sets)
        left = []
        for parts in collated.values():
            for tp, of_partition in parts.items():
                if (failure := failed.get(tp)) is not None:
                    self._causes[tp] = failure.error
                    left += of_partition[failure.sent :]
        return left

    def partition_and_collate(self, messages: Iterable[KeyedMessage]) -> Collated:
        """Finds the partition of each message, and its leader.

        Returns:
            {broker: {TopicPartition: messages}}. Broker -1 has the partitions without a leader; there, partition -1 of a topic has the
            messages for which none could be chosen.
        """
        found: Collated = {}
        partitions: dict[str, list[PartitionInfo] | errors.KafkaError] = {}
        for message in messages:
            topic = message.topic
            of_topic = partitions.get(topic)
            if of_topic is None:
                of_topic = partitions[topic] = self._partitions_of(topic)
            broker, number = NO_BROKER, NO_PARTITION
            if isinstance(of_topic, errors.KafkaError):
                self._causes[TopicPartition(topic, number)] = of_topic
            else:
                try:
                    info = of_topic[self.get_partition(topic, message.partition_key, of_topic)]
                    broker, number = info.leader, info.index
                except (errors.UnknownTopicOrPartition, errors.LeaderNotAvailable) as error:
                    self._causes[TopicPartition(topic, number)] = error
            parts = found.get(broker)
            if parts is None:
                parts = found[broker] = {}
            tp = TopicPartition(topic, number)
            of_partition = parts.get(tp)
            if of_partition is None:
                of_partition = parts[tp] = []
            of_partition.append(message)  # type: ignore[arg-type]
        return found

    def _partitions_of(self, topic: str) -> list[PartitionInfo] | errors.KafkaError:
        try:
            return self._brokers.partitions(topic)
        except errors.KafkaError as error:
            return error

    def get_partition(self, topic: str, key: Any, partitions: Sequence[PartitionInfo]) -> int:
        """Chooses a partition.

        Args:
            topic: name of the topic.
            key: the partition key; None takes the cached partition of the topic, or a random one that has a leader, which is then cached.
                The cached one is not looked at again: if it lost its leader, sending fails.
            partitions: all partitions of the topic, in the order of their numbers.

        Returns:
            Index into `partitions`.

        Raises:
            errors.UnknownTopicOrPartition: there are no partitions, or the partitioner chose one that is not there.
            errors.LeaderNotAvailable: the key is None, and no partition has a leader.
        """
        count = len(partitions)
        if count == 0:
            raise errors.UnknownTopicOrPartition("the topic has no partitions", topic=topic)
        if key is None:
            chosen = self.send_partition_per_topic_cache.get(topic)
            if chosen is None:
                available = [one for one in partitions if one.leader >= 0]
                if not available:
                    raise errors.LeaderNotAvailable("no partition of the topic has a leader", topic=topic)
                chosen = self._choose(available).index
                self.send_partition_per_topic_cache[topic] = chosen
        else:
            chosen = self._partitioner(key, count)
        if not 0 <= chosen < count:
            raise errors.UnknownTopicOrPartition(f"partition {chosen} was chosen, and there are 0 to {count - 1}", topic=topic)
        return chosen

    def group_messages_to_set(
        self, messages: Mapping[TopicPartition, Sequence[KeyedMessage]]
    ) -> dict[TopicPartition, ByteBufferMessageSet]:
        """Makes a message set of what goes to each partition, compressed if the topic is.

        Args:
            messages: serialized messages by partition.
        """
        timestamp_ms = self._clock.wall_ms()
        return {
            tp: ByteBufferMessageSet(
                messages=[one.message for one in of_partition], compression_codec=self.codec_of(tp.topic), timestamp_ms=timestamp_ms
            )
            for tp, of_partition in messages.items()
        }

    def codec_of(self, topic: str) -> str:
        """The codec of a topic: `compression_codec`, unless `compressed_topics` names others only."""
        listed = self.config.compressed_topics
        return str(self.config.compression_codec) if not listed or topic in listed else NoCompressionCodec

    def send(self, broker: int, sets: Mapping[TopicPartition, ByteBufferMessageSet]) -> dict[TopicPartition, Failure]:
        """Sends message sets to a broker in one request (several, where one record batch per partition does not hold them).

        Args:
            broker: id of the leader; -1 fails for all of them.
            sets: by partition.

        Returns:
            What failed, by partition, and why.
        """
        return self._send_all({broker: sets})

    def _send_all(self, sets: Mapping[int, Mapping[TopicPartition, ByteBufferMessageSet]]) -> dict[TopicPartition, Failure]:
        failed: dict[TopicPartition, Failure] = {}
        for tp in sets.get(NO_BROKER, ()):
            cause = self._causes.get(tp) or errors.LeaderNotAvailable(
                "no broker leads the partition", topic=tp.topic, partition=tp.partition
            )
            failed[tp] = Failure(cause, 0)
        if failed:
            named = (tp.topic if tp.partition == NO_PARTITION else f"{tp.topic}-{tp.partition}" for tp in failed)
            log.warning("failed to send to partitions without a leader: %s", ", ".join(named))
        requests = {broker: of_broker for broker, of_broker in sets.items() if broker >= 0 and of_broker}
        if requests:
            refused = self._brokers.produce(requests)
            for tp, failure in refused.items():
                log.warning("failed to send to %s-%d: %s", tp.topic, tp.partition, failure.error)
            failed |= refused
        return failed

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def statistics(self) -> ProducerStatistics:
        """What was counted so far; any thread may ask."""
        return self.counts.read(self._clock.now_ms(), 0)

    def close(self) -> None:
        """Closes all connections. A second close does nothing."""
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def _serialized(serializer: Any, topic: str, value: Any) -> Any:
    found = value
    if serializer is not None:
        found = serializer.serialize(topic, value) if hasattr(serializer, "serialize") else serializer(value)
    if isinstance(found, str):
        return found.encode()
    if found is None or isinstance(found, bytes):
        return found
    return memoryview(found).cast("B")
