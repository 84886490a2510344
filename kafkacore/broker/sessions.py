"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests name only what changed and answers
hold only what is new.

    request epoch -1            no session; the one named is closed
    request epoch 0             all partitions are named; a session is made if the cache has room, and its id is answered
    request epoch n = expected  changes only; forgotten partitions are dropped
    anything else               FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH: the client starts over

Rules:

1. An incremental fetch reads the *dirty* partitions of its session, in the session's order, and no others. The answer is the one that a
   walk over all partitions would give. [test_an_incremental_fetch_answers_what_a_walk_over_all_partitions_would,
   test_an_incremental_fetch_reads_what_changed_and_nothing_else]
2. A partition is dirty from the start, when a request names it, and when `FetchSessionCache.changed` reports it: its log's end or start,
   its high watermark, its leader, ISR or replicas, its storage or its deletion.
   [test_an_incremental_fetch_answers_what_a_walk_over_all_partitions_would, test_a_change_touches_the_sessions_that_fetch_the_partition]
3. It leaves the dirty ones when a read of it finds nothing to say: no error, no records below what the reader may read, and what the client
   knows already (`FetchSession.leave_out`). Whatever is in doubt stays dirty: that costs a read, never an answer.
   [test_an_incremental_fetch_answers_what_a_walk_over_all_partitions_would, test_an_incremental_fetch_reads_what_changed_and_nothing_else]
4. A follower counts as caught up in what its fetch leaves out: see `Replica.left_out_by`.
   [test_a_follower_is_caught_up_in_what_its_fetches_leave_out]

Source: KIP-227; kafka.server.{FetchSession, FetchSessionCache, FetchManager}.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from kafkacore.broker.partition import Partition, Replica
from kafkacore.config_values import INT32_MAX
from kafkacore.errors import Code
from kafkacore.protocol import FetchPartition, FetchRequest, FetchResponse, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = INT32_MAX
EVICTION_MS = 120_000

TopicKey = str | bytes
"""A topic as the request names it: by name up to Fetch v12, by id from v13 on."""
FetchKey = tuple[TopicKey, int]


class Wait(Protocol):
    """A fetch of a session that waits.

    Attributes:
        changed: partitions that have changed since it looked at them.
    """

    changed: set[FetchKey]


class CachedPartition:
    """A fetched partition: what the client asked for last, and what it was answered last.

    Attributes:
        turn: its place in the session's order.
        known: high watermark and log start that the client has; None if the next answer is news in any case.
        segment_base: of the segment that holds the fetch offset, while the partition is left out.
        replica: of the follower whose fetches leave the partition out.
    """

    __slots__ = ("known", "replica", "request", "segment_base", "turn")

    def __init__(self, request: FetchPartition, turn: int) -> None:
        self.request = request
        self.turn = turn
        self.known: tuple[int, int] | None = None
        self.segment_base: int | None = None
        self.replica: Replica | None = None

    def is_news(self, answer: PartitionData) -> bool:
        """Whether an answer belongs into an incremental response."""
        return (
            bool(answer.records)
            or answer.error_code != 0
            or answer.preferred_read_replica != -1
            or _has_diverged(answer)
            or self.known != (answer.high_watermark, answer.log_start_offset)
        )

    def told(self, answer: PartitionData) -> None:
        """The client gets this answer."""
        # An error is sent again with every response until it has passed, as in Kafka. Who has diverged cannot use the high watermark yet.
        self.known = None if answer.error_code or _has_diverged(answer) else (answer.high_watermark, answer.log_start_offset)


def _has_diverged(answer: PartitionData) -> bool:
    return answer.diverging_epoch.epoch >= 0


class FetchSession:
    """One client's partitions, in the order they are to be served: those that were given data move to the end.

    Attributes:
        dirty: the partitions that the next fetch reads.
        waits: fetches that wait for a change.
        last_used_ms: when the last request came.
    """

    __slots__ = ("_reader", "_turn", "_watching", "dirty", "epoch", "id", "last_used_ms", "partitions", "uses_topic_ids", "waits")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, watching: dict[FetchKey, dict[FetchSession, None]]) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: dict[FetchKey, CachedPartition] = {}
        self.dirty: set[FetchKey] = set()
        self.waits: list[Wait] = []
        self._reader: object = None
        self._turn = 0
        self._watching = watching

    def update(self, request: FetchRequest, version: int) -> None:
        """Applies a request's changes, in Kafka's order: what is both named and forgotten is forgotten."""
        for key, partition in request_partitions(request, version):
            cached = self.partitions.get(key)
            if cached is None:
                self._turn += 1
                self.partitions[key] = CachedPartition(partition, self._turn)
                self.dirty.add(key)
                self._watching.setdefault(key, {})[self] = None
            else:
                cached.request = partition
                self.mark(key)
        for forgotten in request.forgotten_topics_data:
            topic: TopicKey = forgotten.topic_id if version >= 13 else forgotten.topic
            for index in forgotten.partitions:
                if (topic, index) in self.partitions:
                    self._forget((topic, index))

    def _forget(self, key: FetchKey) -> None:
        self.mark(key)
        self.dirty.discard(key)
        del self.partitions[key]
        watching = self._watching[key]
        del watching[self]
        if not watching:
            del self._watching[key]

    def close(self) -> None:
        """The session has ended."""
        for key in list(self.partitions):
            self._forget(key)

    def read_by(self, reader: object) -> None:
        """Takes note of what the answers go by beside the partitions: for another reader than the last all of them are to be read.

        Args:
            reader: who fetches, comparable with the last.
        """
        if reader != self._reader:
            self._reader = reader
            for key in self.partitions:
                self.mark(key)

    def mark(self, key: FetchKey) -> None:
        """A partition is to be read again."""
        if key not in self.dirty:
            self.dirty.add(key)
            cached = self.partitions[key]
            if cached.replica is not None:
                cached.replica.taken_up_by(self)
                cached.replica = None
        for wait in self.waits:
            wait.changed.add(key)

    def to_read(self) -> list[tuple[FetchKey, FetchPartition]]:
        """The dirty partitions, in the session's order."""
        partitions = self.partitions
        return [(key, partitions[key].request) for key in sorted(self.dirty, key=lambda key: partitions[key].turn)]

    def leave_out(self, key: FetchKey, wanted: FetchPartition, answer: PartitionData, segment_base: int, replica: Replica | None) -> None:
        """A read found no error and no records: the fetches to come leave the partition out until it changes, unless the answer is news.

        Args:
            key: the partition.
            wanted: what was read.
            answer: what was found.
            segment_base: of the segment that holds the fetch offset.
            replica: of the follower that fetches; None for a consumer.
        """
        cached = self.partitions.get(key)
        if cached is None or cached.request is not wanted or key not in self.dirty or cached.is_news(answer):
            return
        self.dirty.discard(key)
        cached.segment_base = segment_base
        if replica is not None:
            cached.replica = replica
            replica.left_out_by(self, key)

    def filter(self, answers: list[tuple[TopicKey, PartitionData]], incremental: bool) -> list[tuple[TopicKey, PartitionData]]:
        """The answers that the response holds; they count as sent."""
        kept = []
        for topic, answer in answers:
            cached = self.partitions.get((topic, answer.partition_index))
            if cached is None or not incremental or cached.is_news(answer):
                kept.append((topic, answer))
            if cached is not None:
                cached.told(answer)
                if answer.records:
                    self._turn += 1
                    cached.turn = self._turn
        return kept


def request_partitions(request: FetchRequest, version: int) -> list[tuple[FetchKey, FetchPartition]]:
    """The partitions a request names, each once: the last mention wins, as in Kafka."""
    found: dict[FetchKey, FetchPartition] = {}
    for topic in request.topics:
        key: TopicKey = topic.topic_id if version >= 13 else topic.topic
        for partition in topic.partitions:
            found[key, partition.partition] = partition
    return list(found.items())


class FetchContext:
    """What one Fetch request reads, and which session, if any, it belongs to."""

    __slots__ = ("_named", "incremental", "session", "session_id")

    def __init__(self, named: list[tuple[FetchKey, FetchPartition]], session: FetchSession | None, incremental: bool) -> None:
        """Args:
        named: all that is read, unless it is an incremental fetch of a session.
        session: None without one.
        incremental: only news are answered.
        """
        self._named = named
        self.session = session
        self.session_id = session.id if session is not None else NO_SESSION
        self.incremental = incremental

    @property
    def is_empty(self) -> bool:
        """Whether nothing is fetched."""
        return not (self._named if self.session is None else self.session.partitions)

    @property
    def partition_count(self) -> int:
        """How many partitions a read of now looks at."""
        return len(self.session.dirty) if self.session is not None and self.incremental else len(self._named)

    @property
    def partitions(self) -> list[tuple[FetchKey, FetchPartition]]:
        """What a read of now looks at, in this order."""
        return self.session.to_read() if self.session is not None and self.incremental else self._named

    def filter(self, answers: list[tuple[TopicKey, PartitionData]]) -> list[tuple[TopicKey, PartitionData]]:
        """The answers the response holds: all of them, or the news of an incremental session."""
        return answers if self.session is None else self.session.filter(answers, self.incremental)


class FetchSessionCache:
    """The sessions of all clients, within a fixed number of slots."""

    def __init__(self, slots: int, new_id: Callable[[], int] = lambda: random.randint(1, INT32_MAX)) -> None:
        """An empty cache.

        Args:
            slots: max.incremental.fetch.session.cache.slots; 0 turns sessions off.
            new_id: proposes session ids, none of them 0.
        """
        self.slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._watching: dict[FetchKey, dict[FetchSession, None]] = {}
        self._to_look: dict[FetchSession, None] = {}

    def changed(self, partition: Partition) -> None:
        """Something about a partition has changed: the sessions that fetch it read it next time.

        Source: kafka.server.FetchSession has no such thing: Kafka looks at all partitions of a session with each fetch.
        """
        watching = self._watching
        if not watching:
            return
        for key in (partition.topic.topic_id, partition.index), partition.key:
            for session in watching.get(key, ()):
                session.mark(key)
                if session.waits:
                    self._to_look[session] = None

    def take_waiting(self) -> list[FetchSession]:
        """The sessions with a fetch that waits and for which something has changed since the last call."""
        if not self._to_look:
            return []
        sessions = list(self._to_look)
        self._to_look.clear()
        return sessions

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
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):  # the latter before version 7
            self._end(session_id)
            session = self._create(version >= 13, now_ms) if epoch == INITIAL_EPOCH else None
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
            self._end(session_id)
            return FetchContext([], None, incremental=True)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchContext([], session, incremental=True)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _create(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if self.slots == 0:
            return None
        if len(self._sessions) >= self.slots:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms <= EVICTION_MS:
                return None
            self._end(oldest.id)
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms, self._watching)
        return session

    def take_back(self, request: FetchRequest, response: FetchResponse, version: int) -> int:
        """An answer is not sent after all, an empty one is: what it said is news again.

        Args:
            request: what it answers.
            response: as it was to be sent.
            version: of both.

        Returns:
            The session's id for the empty answer: that of an incremental fetch; a new session is ended, since it would have said nothing.
        """
        session = self._sessions.get(response.session_id)
        if session is None:
            return NO_SESSION
        if request.session_epoch == INITIAL_EPOCH:
            self._end(session.id)
            return NO_SESSION
        for topic in response.responses:
            key: TopicKey = topic.topic_id if version >= 13 else topic.topic
            for answer in topic.partitions:
                cached = session.partitions.get((key, answer.partition_index))
                if cached is not None:
                    cached.known = None
                    session.mark((key, answer.partition_index))
        return session.id

    def clear(self) -> None:
        """Forgets all sessions, as a broker does that restarts."""
        for session_id in list(self._sessions):
            self._end(session_id)
