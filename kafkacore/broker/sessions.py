"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests name only what changed and answers
hold only what is new.

    request epoch -1            no session; the one named is closed
    request epoch 0             all partitions are named; a session is made if the cache has room, and its id is answered
    request epoch n = expected  changes only; forgotten partitions are dropped
    anything else               FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH: the client starts over

Source: KIP-227; kafka.server.{FetchSession, FetchSessionCache, FetchManager}.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable

from kafkacore.errors import Code
from kafkacore.protocol import FetchPartition, FetchRequest, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000

TopicKey = str | bytes
"""A topic as the request names it: by name up to Fetch v12, by id from v13 on."""


class CachedPartition:
    """A fetched partition: what the client asked for last, and what it was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_news(self, answer: PartitionData) -> bool:
        """Whether an answer belongs into an incremental response; remembers it."""
        diverged = answer.diverging_epoch.epoch >= 0 or answer.diverging_epoch.end_offset >= 0
        news = bool(answer.records) or answer.error_code != 0 or answer.preferred_read_replica != -1 or diverged
        if answer.high_watermark != self.high_watermark or answer.log_start_offset != self.log_start_offset:
            news = True
        # An error is told again with every response until it is gone, as in Kafka. Who has diverged cannot use the high watermark yet.
        self.high_watermark = -1 if answer.error_code or diverged else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return news


class FetchSession:
    """One client's partitions, in the order they are to be served: those that were given data move to the end."""

    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[tuple[TopicKey, int], CachedPartition] = OrderedDict()

    def update(self, request: FetchRequest, version: int) -> None:
        """Applies a request's changes, in Kafka's order: what is both named and forgotten is forgotten."""
        for key, partition in request_partitions(request, version):
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(partition)
            else:
                cached.request = partition
        for forgotten in request.forgotten_topics_data:
            topic: TopicKey = forgotten.topic_id if version >= 13 else forgotten.topic
            for index in forgotten.partitions:
                self.partitions.pop((topic, index), None)


def request_partitions(request: FetchRequest, version: int) -> list[tuple[tuple[TopicKey, int], FetchPartition]]:
    """The partitions a request names, each once: the last mention wins, as in Kafka."""
    found: dict[tuple[TopicKey, int], FetchPartition] = {}
    for topic in request.topics:
        key: TopicKey = topic.topic_id if version >= 13 else topic.topic
        for partition in topic.partitions:
            found[key, partition.partition] = partition
    return list(found.items())


class FetchContext:
    """What one Fetch request reads, and which session, if any, it belongs to."""

    __slots__ = ("incremental", "partitions", "session", "session_id")

    def __init__(
        self, partitions: list[tuple[tuple[TopicKey, int], FetchPartition]], session: FetchSession | None, incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.session_id = session.id if session is not None else NO_SESSION
        self.incremental = incremental

    def filter(self, answers: list[tuple[TopicKey, PartitionData]]) -> list[tuple[TopicKey, PartitionData]]:
        """The answers the response holds: all of them, or the news of an incremental session."""
        session = self.session
        if session is None:
            return answers
        kept = []
        for topic, answer in answers:
            key = topic, answer.partition_index
            cached = session.partitions.get(key)
            if cached is None or cached.has_news(answer) or not self.incremental:
                kept.append((topic, answer))
            if cached is not None and answer.records:
                session.partitions.move_to_end(key)
        return kept


class FetchSessionCache:
    """The sessions of all clients, within a fixed number of slots."""

    def __init__(self, slots: int, new_id: Callable[[], int] = lambda: random.randint(1, 2**31 - 1)) -> None:
        """An empty cache.

        Args:
            slots: max.incremental.fetch.session.cache.slots; 0 turns sessions off.
            new_id: proposes session ids, none of them 0.
        """
        self.slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext | Code:
        """Finds out what a request reads.

        Args:
            request: the request.
            version: its version.
            now_ms: the time now.

        Returns:
            The context, or the error that answers the whole request.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if version < 7 or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if version >= 7 and session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            session = None
            if version >= 7 and epoch == INITIAL_EPOCH:
                session = self._create(version >= 13, now_ms)
            partitions = request_partitions(request, version)
            if session is not None:
                session.update(request, version)
            return FetchContext(partitions, session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            return Code.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return Code.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != (version >= 13):
            return Code.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(request, version)
        if not session.partitions:
            # Kafka ends an incremental session that fetches nothing any more.
            del self._sessions[session_id]
            return FetchContext([], None, incremental=True)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchContext([(key, cached.request) for key, cached in session.partitions.items()], session, incremental=True)

    def _create(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if self.slots == 0:
            return None
        if len(self._sessions) >= self.slots:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms <= EVICTION_MS:
                return None
            del self._sessions[oldest.id]
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms)
        return session

    def clear(self) -> None:
        """Forgets all sessions, as a broker does that restarts."""
        self._sessions.clear()
