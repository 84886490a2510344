"""Commits and questions for committed offsets without a network: a coordinator that keeps offsets, and a member of its group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.clock import ManualClock
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.group.commits import OffsetCommits
from kafkacore.consumer.group.topic_ids import TopicIds
from kafkacore.consumer.subscription import ResetStrategy, SubscriptionState
from kafkacore.errors import Code
from kafkacore.metadata import Metadata
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OFFSETS = {A: OffsetAndMetadata(5, leader_epoch=2), B: OffsetAndMetadata(6, metadata="é"), C: OffsetAndMetadata(7)}
OLD, NEW, OTHER = (bytes([n]) * 16 for n in (1, 2, 3))


class Coordinator:
    """Keeps offsets of the topics that it knows; `bend` makes a lie of an answer, `mutate` changes its bytes."""

    def __init__(self) -> None:
        self.ids = {"t": OLD, "u": OTHER}
        self.kept: dict[TopicPartition, tuple[int, int, str]] = {}
        self.bend: Callable[[Any], Any] | None = None
        self.mutate: Callable[[bytes], bytes] | None = None
        self.flying: deque[tuple[type, Any, int, Callable[[Any], None]]] = deque()
        self.requests = 0
        self.versions = {p.OffsetCommitRequest: 9, p.OffsetFetchRequest: 9}
        self.broker_id = 1
        self.failure: errors.KafkaError | None = None
        self.away = False
        self.now_ms = 1_000

    def ready(self, now_ms: int) -> bool:
        return not self.away

    def next_wake_ms(self, now_ms: int) -> int:
        return 0

    def lost(self, cause: Any) -> None:
        pass

    def send(self, api: Any, build: Any, now_ms: int, answered: Any, *, max_version: int | None) -> None:
        version = min(self.versions[api], 99 if max_version is None else max_version)
        self.requests += 1
        self.flying.append((api, api.decode(version, b"".join(build(version).encode(version))), version, answered))

    def answer(self) -> None:
        api, request, version, answered = self.flying.popleft()
        reply = self._commit(request) if api is p.OffsetCommitRequest else self._fetch(request, version)
        if self.bend is not None:
            reply = self.bend(reply)
        wire = b"".join(reply.encode(version))
        wire = wire if self.mutate is None else self.mutate(wire)
        found, error = None, None
        try:
            found = api.RESPONSE.decode(version, wire)
        except errors.CorruptDataError as cause:
            error = cause
        sent = SimpleNamespace(sent_ms=self.now_ms)
        answered(SimpleNamespace(response=found, error=error, version=version, latency_ms=1, request=sent))

    def _named(self, topic: Any) -> tuple[str | None, int]:
        """The topic that is meant, and what is wrong with it."""
        if (topic_id := bytes(topic.topic_id)) == bytes(16):
            return topic.name, 0 if topic.name in self.ids else Code.UNKNOWN_TOPIC_OR_PARTITION
        name = next((name for name, known in self.ids.items() if known == topic_id), None)
        return name, 0 if name else Code.UNKNOWN_TOPIC_ID

    def _commit(self, request: Any) -> Any:
        assert request.group_id == "g"
        topics = []
        for topic in request.topics:
            name, code = self._named(topic)
            for q in () if code else topic.partitions:
                self.kept[TopicPartition(name, q.partition_index)] = q.committed_offset, q.committed_leader_epoch, q.committed_metadata
            parts = [p.group.OffsetCommitResponsePartition(partition_index=q.partition_index, error_code=code) for q in topic.partitions]
            topics.append(p.group.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
        return p.OffsetCommitResponse(topics=topics)

    def _fetch(self, request: Any, version: int) -> Any:
        new = version >= 8
        kind = p.group.OffsetFetchResponsePartitions if new else p.group.OffsetFetchResponsePartition
        assert (request.groups[0] if new else request).group_id == "g"
        topics = []
        for topic in request.groups[0].topics if new else request.topics:
            name, code = self._named(topic) if version >= 10 else (topic.name, 0)
            parts = []
            for index in topic.partition_indexes:
                offset, epoch, metadata = self.kept.get(TopicPartition(name, index), (-1, -1, ""))
                found = kind(partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, metadata=metadata)
                parts.append(found._replace(error_code=code))
            if new:
                topics.append(p.group.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=parts))
            else:
                topics.append(p.group.OffsetFetchResponseTopic(name=topic.name, partitions=parts))
        if new:
            return p.OffsetFetchResponse(groups=[p.group.OffsetFetchResponseGroup(group_id="g", topics=topics)])
        return p.OffsetFetchResponse(topics=topics)


class CommitsRig:
    """A member whose generation and partitions the test changes. It knows no ids of topics, but that an answer about them has come.

    Attributes:
        refused: what the member heard of refused commits.
        goes_on: what it answers: whether its next generation may commit.
        taken: offsets that were committed.
    """

    def __init__(self, *, fetch_version: int = 9, backoff_max_ms: int = 100, metadata: Metadata | None = None, **options: Any) -> None:
        self.coordinator = Coordinator()
        self.coordinator.versions[p.OffsetFetchRequest] = fetch_version
        self.member = ConsumerGroupMetadata("g", 3, "m")
        self.assigned = {A, B, C}
        self.refused: list[errors.KafkaError] = []
        self.goes_on = False
        self.taken: dict[TopicPartition, int] = {}
        if metadata is None:
            metadata = Metadata(ConsumerConfig(bootstrap_servers="127.0.0.1:1"), ManualClock())
            metadata.answered = 1
        self.subscription = SubscriptionState(ResetStrategy("earliest"))
        self.topics = TopicIds(self.subscription, metadata)
        self.commits = OffsetCommits(
            self.coordinator,  # type: ignore[arg-type]
            "g",
            lambda: self.member,
            self.topics,
            retry_backoff_ms=100,
            retry_backoff_max_ms=backoff_max_ms,
            refused=self._hear,
            assigned=self.assigned.__contains__,
            taken=lambda offsets: self.taken.update((tp, found.offset) for tp, found in offsets.items()),
            **options,
        )

    def _hear(self, cause: errors.KafkaError, sent_as: ConsumerGroupMetadata) -> bool:
        self.refused.append(cause)
        return self.goes_on

    def step(self, ms: int = 0) -> None:
        self.coordinator.now_ms += ms
        self.commits.step(self.coordinator.now_ms)

    def sent(self) -> list[p.OffsetCommitRequest]:
        return [request for api, request, _, _ in self.coordinator.flying if api is p.OffsetCommitRequest]
